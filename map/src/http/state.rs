//! State that all request handlers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore, watch};

use milepost_clickhouse::Reader;

use super::gates::Gates;
use super::refusal::Refusal;
use crate::answer_cache::AnswerCache;
use crate::config;
use crate::driver::Columns;
use crate::fences::Unreadable;
use crate::fleet::filter::Scope;
use crate::live::Live;
use crate::store::Store;

/// The authenticated viewer of a request, as determined by the guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Viewer {
    pub(super) name: Option<String>,
    pub(super) scope: Arc<Scope>,
    /// Expiry of the viewer's read-only link, in milliseconds since 1970. `None`: the viewer
    /// uses no link.
    pub(super) link_until_ms: Option<i64>,
}

impl Viewer {
    pub(super) fn is_link(&self) -> bool {
        self.link_until_ms.is_some()
    }
}

/// Handles, limits and caches of the request handlers.
pub struct State {
    pub live: Live,
    pub store: Store,
    /// Cached columns of `[fields.NAME]`.
    pub columns: Columns,
    pub unreadable_fences: Unreadable,
    /// Writes fences, cards and acknowledgements; `None`: the map is read-only.
    pub writer: Option<Reader>,
    /// Locked while a fence is read, changed and written.
    pub fence_changes: Mutex<()>,
    /// Locked while cards are read, changed and written.
    pub card_changes: Mutex<()>,
    /// Number of acknowledgements through this process. The key of shared alerts contains the
    /// number, so an acknowledgement is visible at once.
    pub acknowledged: AtomicU64,
    pub config: config::Config,
    /// Limits concurrent queries to ClickHouse.
    pub query_permits: Semaphore,
    /// Lists, attributes, visits and alerts that viewers share, as JSON.
    pub answers: AnswerCache<Result<Bytes, Refusal>>,
    /// Limits open pages.
    pub viewers: Arc<Semaphore>,
    pub gates: Gates,
    /// Becomes true when the process shuts down, which ends all streams.
    pub shutdown: watch::Receiver<bool>,
}

/// Waits until the process shuts down.
pub(super) async fn until_shutdown(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|shutdown| *shutdown).await;
}
