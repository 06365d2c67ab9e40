//! State that all request handlers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore, watch};

use milepost_clickhouse::Reader;

use super::gates::Gates;
use super::refusal::Refusal;
use crate::config;
use crate::driver::Columns;
use crate::fences::Unreadable;
use crate::fleet::look::Scope;
use crate::live::Live;
use crate::shared::Shared;
use crate::store::Store;

/// The authenticated viewer of a request, as determined by the guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Viewer {
    pub(super) name: Option<String>,
    pub(super) scope: Arc<Scope>,
    /// The viewer was admitted by a read-only link.
    pub(super) is_link: bool,
}

/// Handles, limits and caches of the request handlers.
pub struct State {
    pub live: Live,
    pub store: Store,
    /// The columns of `[fields.NAME]`.
    pub columns: Columns,
    pub unreadable_fences: Unreadable,
    /// Writes fences, cards and acknowledgements; `None`: the map is read-only.
    pub fence_writer: Option<Reader>,
    /// Held while a fence is read, changed and written.
    pub fence_changes: Mutex<()>,
    /// Number of acknowledgements by this process: each one makes earlier shared answers stale.
    pub acknowledged: AtomicU64,
    pub config: config::Config,
    /// Limits concurrent queries to ClickHouse.
    pub query_permits: Semaphore,
    /// Lists and attributes that viewers share, as JSON.
    pub answers: Shared<Result<Bytes, Refusal>>,
    /// Limits open pages.
    pub viewers: Arc<Semaphore>,
    pub gates: Gates,
    /// Becomes true when the process shuts down; streams end then.
    pub ending: watch::Receiver<bool>,
}

/// Waits until the process shuts down.
pub(super) async fn until_shutdown(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}
