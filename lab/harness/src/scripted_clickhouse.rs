//! A ClickHouse that misbehaves by script, in front of a real engine.
//!
//! Guarantee: what it says it stored is stored, because the engine has said so first. What brings
//! rows (an INSERT whose statement is in the URL) is treated by the [`Behaviour`] that the test
//! sets at run time. Every other statement goes to the engine, and its answer comes back, whatever
//! the behaviour. Refuses: TLS, pipelined requests, bodies above 256 MiB.

mod answers;
mod client;
mod message;
mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use lab_stack::lock;

use self::client::Client;
use self::script::Shared;
pub use self::script::{Behaviour, HangAt, Seen, TooLarge};
use crate::server::Server;

/// Small, so that a client is still writing a large body when the answer comes.
const RECEIVE_BUFFER_BYTES: u32 = 64 * 1024;

/// A running server; everything is closed when it is dropped.
#[derive(Debug)]
pub struct ScriptedClickHouse {
    /// Where it listens on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    _server: Server,
}

impl ScriptedClickHouse {
    /// Listens on a free port of the loopback, in front of engines at these addresses
    /// (`http://127.0.0.1:8123`), and is honest. All but [`Behaviour::InTurn`] use the first one.
    ///
    /// # Errors
    /// There is no engine's address, or no port or thread left.
    pub fn start(engines: &[String]) -> Result<Self> {
        let address =
            |url: &String| url.strip_prefix("http://").map(str::to_owned).context("it is http://…");
        let engines: Vec<String> = engines.iter().map(address).collect::<Result<_>>()?;
        ensure!(!engines.is_empty(), "a scripted ClickHouse needs an engine behind it");
        let shared = Arc::new(Shared::new(engines));
        let serving = Arc::clone(&shared);
        let server = Server::start(Some(RECEIVE_BUFFER_BYTES), move |stream| {
            let shared = Arc::clone(&serving);
            // How a connection ends is the client's affair: it is what the tests look at.
            async move { drop(Client::new(stream, shared).serve().await) }
        })?;
        Ok(Self { port: server.port, shared, _server: server })
    }

    /// `http://127.0.0.1:port`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Treats INSERTs like this from now on, and releases those that hang. One whose answer has
    /// begun goes on as it was.
    ///
    /// # Panics
    /// The code of an error is not among those that are known here.
    pub fn set(&self, behaviour: Behaviour) {
        self.change(behaviour, None);
    }

    /// Does so for the next `count` INSERTs that [`Behaviour::ClickHouseError`],
    /// [`Behaviour::ProxyError`], [`Behaviour::SwallowAnswer`] or
    /// [`Behaviour::ResetInBody`] hits, and is honest afterwards.
    pub fn set_for(&self, count: u32, behaviour: Behaviour) {
        self.change(behaviour, Some(count));
    }

    fn change(&self, behaviour: Behaviour, left: Option<u32>) {
        if let Behaviour::ClickHouseError { code, .. } | Behaviour::ReplicaDies { code } = behaviour
        {
            assert!(answers::is_known(code), "there is no text for ClickHouse's error {code}");
        }
        self.shared.script.send_modify(|script| {
            (script.behaviour, script.left) = (behaviour, left);
            script.changes += 1;
        });
    }

    /// Honest, whether it was told so or has done what it was told.
    #[must_use]
    pub fn is_honest(&self) -> bool {
        self.shared.script.borrow().behaviour == Behaviour::Honest
    }

    /// INSERTs that were met so far by a behaviour that [`set_for`](Self::set_for) counts.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::Relaxed)
    }

    /// How long INSERTs took that the engine answered with 200: from their head to the answer.
    #[must_use]
    pub fn inserts_took(&self) -> Vec<Duration> {
        lock(&self.shared.took).clone()
    }

    /// How many of them there are.
    #[must_use]
    pub fn inserts_answered(&self) -> usize {
        lock(&self.shared.took).len()
    }

    /// Every INSERT whose body came whole, in that order.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen().clone()
    }
}
