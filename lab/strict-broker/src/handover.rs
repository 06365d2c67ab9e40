//! A session that returns gets everything it is owed, in order, before anything new.
//!
//! rmqtt makes a new session for the new connection and moves the old one's messages over. Left
//! alone it loses and mixes messages, which a test of at-least-once delivery would blame on the
//! client:
//!
//! * A message routed while the old session is gone and the new one is not yet there is dropped.
//!   Here routing waits for those few moments: see `gate`.
//! * Unacknowledged messages come back in reverse order, behind newer ones, and a newer one may
//!   take a packet identifier that still belongs to one of them. Here they are the first thing the
//!   new session is handed, so they go out first, in order.
//! * A message whose sending fails because the connection broke is in neither queue nor window.
//!   Here it enters the window before it is sent.
//! * What waits in the channel of a session that is stuck in sending is dropped. Here the new
//!   connection waits for it: see `answers`.
//!
//! The rest of this file passes calls on to rmqtt's own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmqtt::Result;
use rmqtt::context::ServerContext;
use rmqtt::hook::{Handler, HookResult, Parameter, ReturnType, Type};
use rmqtt::inflight::{MomentStatus, OutInflightMessage};
use rmqtt::session::Session;
use rmqtt::shared::{DefaultShared, Entry, RetainLoadCallback, Shared};
use rmqtt::types::{
    ForwardedCount, ForwardedRecipients, From, Id, IsAdmin, Message, MsgID, NodeId, OfflineSession, Publish,
    QoS, Reason, SessionStatus, SubRelations, SubRelationsMap, SubsSearchParams, SubsSearchResult, Subscribe,
    SubscribeReturn, To, TopicFilter, Tx, Unsubscribe,
};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, oneshot};
use tokio::time::timeout;

/// Longer than a session can be stuck: sending, closing and saying goodbye time out one by one.
const STUCK: Duration = Duration::from_secs(4 * crate::SEND_TIMEOUT.as_secs());

/// Puts the handover in place of rmqtt's own.
pub async fn install(scx: &ServerContext) {
    let inner = DefaultShared::new(Some(scx.clone()));
    *scx.extends.shared_mut().await = Box::new(Handover { inner, gate: Arc::default() });
    let hooks = scx.extends.hook_mgr().register();
    hooks.add(Type::MessageDelivered, Box::new(EntersWindow)).await;
    hooks.start().await;
}

/// rmqtt calls this just before it sends; it enters the message into the window only afterwards,
/// if the sending did not fail. The second entry replaces this one.
struct EntersWindow;

#[async_trait]
impl Handler for EntersWindow {
    async fn hook(&self, event: &Parameter, before: Option<HookResult>) -> ReturnType {
        if let Parameter::MessageDelivered(session, from, publish) = event {
            let status = match publish.qos {
                QoS::AtMostOnce => return (true, before),
                QoS::AtLeastOnce => MomentStatus::UnAck,
                QoS::ExactlyOnce => MomentStatus::UnReceived,
            };
            let message = OutInflightMessage::new(status, from.clone(), (*publish).clone());
            session.out_inflight().write().await.push_back(message);
        }
        (true, before)
    }
}

/// All sessions.
struct Handover {
    inner: DefaultShared,
    /// Routing a message holds it for reading, a returning session for writing: from before the
    /// old session stops until the new one is in its place.
    gate: Arc<RwLock<()>>,
}

/// One session, as the handshake of its next connection sees it.
struct Place {
    inner: Box<dyn Entry>,
    gate: Arc<RwLock<()>>,
    closed: Option<OwnedRwLockWriteGuard<()>>,
    owed: Vec<Message>,
}

impl Place {
    /// Waits until the old session handles its channel. It does not while it sends to a client that
    /// reads nothing; rmqtt would go on after 5 s and lose what waits in the channel. The message
    /// asks for nothing; that it is answered, or dropped, is the answer.
    async fn answers(&self) {
        let (reply, answered) = oneshot::channel();
        if let Some(tx) = self.inner.tx()
            && tx.unbounded_send(Message::Subscribes(Vec::new(), Some(reply))).is_ok()
        {
            let _ = timeout(STUCK, answered).await;
        }
    }

    fn boxed(inner: Box<dyn Entry>, gate: &Arc<RwLock<()>>) -> Box<dyn Entry> {
        Box::new(Self { inner, gate: gate.clone(), closed: None, owed: Vec::new() })
    }
}

#[async_trait]
impl Entry for Place {
    /// Stops the old session and keeps what it owes.
    async fn kick(&mut self, clean_start: bool, unsubscribe: bool, admin: IsAdmin) -> Result<OfflineSession> {
        // A session without subscriptions is owed nothing. It may well be a publisher that is
        // itself waiting at the gate and could not stop while the gate is closed.
        if self.inner.subscriptions().await.is_some_and(|s| !s.is_empty()) {
            self.answers().await;
            self.closed = Some(self.gate.clone().write_owned().await);
        }
        let mut old = self.inner.kick(clean_start, unsubscribe, admin).await?;
        if let OfflineSession::Exist(Some(old)) = &mut old {
            for mut message in old.inflight_messages.drain(..) {
                self.owed.push(if message.status == MomentStatus::UnComplete {
                    Message::SendRerelease(message) // QoS 2, received: it is owed the PUBREL
                } else {
                    message.publish.dup = true; // makes rmqtt keep the packet identifier
                    Message::Forward(message.from, message.publish)
                });
            }
            self.owed.extend(old.offline_messages.drain(..).map(|(from, p)| Message::Forward(from, p)));
        }
        Ok(old)
    }

    /// Puts the new session in place, with what it is owed at the head of its channel.
    async fn set(&mut self, session: Session, tx: Tx) -> Result<()> {
        for message in self.owed.drain(..) {
            tx.unbounded_send(message)?;
        }
        self.inner.set(session, tx).await?;
        self.closed = None;
        Ok(())
    }

    async fn try_lock(&self) -> Result<Box<dyn Entry>> {
        Ok(Self::boxed(self.inner.try_lock().await?, &self.gate))
    }

    fn id(&self) -> Id {
        self.inner.id()
    }
    fn id_same(&self) -> Option<bool> {
        self.inner.id_same()
    }
    async fn remove(&mut self) -> Result<Option<(Session, Tx)>> {
        self.inner.remove().await
    }
    async fn remove_with(&mut self, id: &Id) -> Result<Option<(Session, Tx)>> {
        self.inner.remove_with(id).await
    }
    async fn online(&self) -> bool {
        self.inner.online().await
    }
    async fn is_connected(&self) -> bool {
        self.inner.is_connected().await
    }
    fn session(&self) -> Option<Session> {
        self.inner.session()
    }
    fn exist(&self) -> bool {
        self.inner.exist()
    }
    fn tx(&self) -> Option<Tx> {
        self.inner.tx()
    }
    async fn subscribe(&self, subscribe: &Subscribe) -> Result<SubscribeReturn> {
        self.inner.subscribe(subscribe).await
    }
    async fn unsubscribe(&self, unsubscribe: &Unsubscribe) -> Result<bool> {
        self.inner.unsubscribe(unsubscribe).await
    }
    async fn publish(&self, from: From, p: Publish) -> std::result::Result<(), (From, Publish, Reason)> {
        self.inner.publish(from, p).await
    }
    async fn subscriptions(&self) -> Option<Vec<SubsSearchResult>> {
        self.inner.subscriptions().await
    }
}

/// Whom a message reached, and for whom it failed.
type Routed<T> = std::result::Result<T, (T, Vec<(To, From, Publish, Reason)>)>;

#[async_trait]
impl Shared for Handover {
    fn entry(&self, id: Id) -> Box<dyn Entry> {
        Place::boxed(self.inner.entry(id), &self.gate)
    }

    async fn forwards(&self, id: Option<MsgID>, from: From, publish: Publish) -> Routed<ForwardedCount> {
        let _open = self.gate.read().await;
        self.inner.forwards(id, from, publish).await
    }

    fn exist(&self, client_id: &str) -> bool {
        self.inner.exist(client_id)
    }
    async fn forwards_and_get_shareds(
        &self,
        from: From,
        publish: Publish,
    ) -> std::result::Result<
        (SubRelationsMap, ForwardedRecipients),
        (ForwardedRecipients, Vec<(To, From, Publish, Reason)>),
    > {
        self.inner.forwards_and_get_shareds(from, publish).await
    }
    async fn forwards_to(
        &self,
        from: From,
        publish: &Publish,
        relations: SubRelations,
        id: Option<MsgID>,
    ) -> Routed<ForwardedRecipients> {
        self.inner.forwards_to(from, publish, relations, id).await
    }
    fn iter(&self) -> Box<dyn Iterator<Item = Box<dyn Entry>> + Sync + Send + '_> {
        self.inner.iter()
    }
    fn random_session(&self) -> Option<Session> {
        self.inner.random_session()
    }
    async fn session_status(&self, client_id: &str) -> Option<SessionStatus> {
        self.inner.session_status(client_id).await
    }
    async fn client_states_count(&self) -> usize {
        self.inner.client_states_count().await
    }
    fn sessions_count(&self) -> usize {
        self.inner.sessions_count()
    }
    async fn query_subscriptions(&self, q: &SubsSearchParams) -> Vec<SubsSearchResult> {
        self.inner.query_subscriptions(q).await
    }
    async fn subscriptions_count(&self) -> usize {
        self.inner.subscriptions_count().await
    }
    async fn retain_load_with(
        &self,
        filter: &TopicFilter,
        done: Arc<dyn RetainLoadCallback>,
    ) -> Result<Vec<(NodeId, MsgID)>> {
        self.inner.retain_load_with(filter, done).await
    }
}
