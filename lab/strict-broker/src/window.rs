//! `--announce false`: the window is enforced, and CONNACK does not name it.
//!
//! rmqtt asks the session's fitter for one number and uses it both for CONNACK and for the window.
//! Two steps part them: the fitter says 65535, which is MQTT's default and therefore not written
//! into CONNACK at all; then the session manager, which is handed the finished window, replaces it
//! by one of the true size.

use std::num::NonZeroU16;
use std::sync::Arc;

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::context::ServerContext;
use rmqtt::fitter::{DefaultFitter, Fitter, FitterManager};
use rmqtt::inflight::OutInflight;
use rmqtt::session::{DefaultSessionManager, SessionLike, SessionManager};
use rmqtt::types::{
    ConnectInfo, ConnectInfoType, DisconnectInfo, FitterType, Id, ListenerConfig, MessageQueueType,
    OutInflightType, SessionSubs, TimestampMillis,
};
use tokio::sync::RwLock;

/// Stops CONNACK from naming the window of any session.
pub async fn hide(scx: &ServerContext) {
    *scx.extends.fitter_mgr_mut().await = Box::new(SaysNothing);
    *scx.extends.session_mgr_mut().await = Box::new(SetsWindow);
}

struct SaysNothing;

impl FitterManager for SaysNothing {
    fn create(&self, connect: Arc<ConnectInfo>, id: Id, listener: ListenerConfig) -> FitterType {
        let mut connect = connect.as_ref().clone();
        if let ConnectInfo::V5(_, packet) = &mut connect {
            packet.receive_max = None;
        }
        let mut listener = listener.as_ref().clone();
        listener.max_inflight = NonZeroU16::MAX;
        Arc::new(DefaultFitter::new(Arc::new(connect), id, Arc::new(listener)))
    }
}

struct SetsWindow;

#[async_trait]
impl SessionManager for SetsWindow {
    async fn create(
        &self,
        id: Id,
        scx: ServerContext,
        listener: ListenerConfig,
        fitter: FitterType,
        subscriptions: SessionSubs,
        queue: MessageQueueType,
        _window: OutInflightType,
        connect: ConnectInfoType,
        created_at: TimestampMillis,
        connected_at: TimestampMillis,
        session_present: bool,
        superuser: bool,
        connected: bool,
        disconnect: Option<DisconnectInfo>,
        last_id: Option<Id>,
    ) -> Result<Arc<dyn SessionLike>> {
        let size = DefaultFitter::new(connect.clone(), id.clone(), listener.clone()).max_inflight();
        // The zeros: no re-sending on a live connection, as in main.rs.
        let window = Arc::new(RwLock::new(OutInflight::new(size.get().into(), 0, 0)));
        DefaultSessionManager
            .create(
                id,
                scx,
                listener,
                fitter,
                subscriptions,
                queue,
                window,
                connect,
                created_at,
                connected_at,
                session_present,
                superuser,
                connected,
                disconnect,
                last_id,
            )
            .await
    }
}
