//! What all answers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore, watch};

use milepost_clickhouse::Reader;

use super::gates::Gates;
use super::refusal::Refusal;
use crate::config;
use crate::fleet::look::Scope;
use crate::live::Live;
use crate::shared::Shared;
use crate::store::Store;

/// Who asks, as the guard found out.
#[derive(Debug, Clone, Default)]
pub(super) struct Viewer {
    pub(super) name: Option<String>,
    pub(super) scope: Arc<Scope>,
    /// A read-only link let them in.
    pub(super) is_link: bool,
}

/// What answers need.
pub struct State {
    pub live: Live,
    pub store: Store,
    /// Writes fences; `None`: nobody may.
    pub fence_writer: Option<Reader>,
    /// Held while a fence is read, changed and written.
    pub fence_changes: Mutex<()>,
    /// Acknowledgements of this process: a shared answer from before one is out of date.
    pub acknowledged: AtomicU64,
    pub config: config::Config,
    /// Questions to ClickHouse at once.
    pub questions: Semaphore,
    /// Lists and attributes that viewers share, as JSON.
    pub answers: Shared<Result<Bytes, Refusal>>,
    /// Pages at once.
    pub viewers: Arc<Semaphore>,
    pub gates: Gates,
    /// Turns true when the process ends: streams end then.
    pub ending: watch::Receiver<bool>,
}

/// Waits until the process ends.
pub(super) async fn end(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}
