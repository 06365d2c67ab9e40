//! A ClickHouse that misbehaves by script, in front of a real engine.
//!
//! Guarantee: if an answer's summary counts written rows, the engine has stored them. The
//! [`Behaviour`] that the test sets applies to INSERTs whose statement is in the URL. Every other
//! statement is forwarded to the engine. Not supported: TLS, pipelined requests, bodies above
//! 256 MiB.

mod answers;
mod connection;
mod message;
mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use lab_stack::lock;

use self::connection::Connection;
use self::script::Shared;
pub use self::script::{Behaviour, HangAt, ReceivedInsert, TooLarge};
use crate::server::Server;

/// Receive buffer in bytes. The buffer is small, so that a client is still writing a large body
/// when an early answer arrives.
const RECEIVE_BUFFER_BYTES: u32 = 64 * 1024;

/// A running server. Dropping this value closes all connections.
#[derive(Debug)]
pub struct ScriptedClickHouse {
    /// Port of the listener on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
    _server: Server,
}

impl ScriptedClickHouse {
    /// Listens on a free port of the loopback, in front of the engines at these addresses
    /// (`http://127.0.0.1:8123`). The server starts with [`Behaviour::Honest`]. Every behaviour but
    /// [`Behaviour::RoundRobin`] uses the first engine.
    ///
    /// # Errors
    /// The list of engines is empty, an address does not begin with `http://`, or no port is free.
    pub fn start(engines: &[String]) -> Result<Self> {
        let address = |url: &String| {
            url.strip_prefix("http://")
                .map(str::to_owned)
                .context("an engine's address must begin with http://")
        };
        let engines: Vec<String> = engines.iter().map(address).collect::<Result<_>>()?;
        ensure!(!engines.is_empty(), "a scripted ClickHouse needs an engine behind it");
        let shared = Arc::new(Shared::new(engines));
        let server_shared = Arc::clone(&shared);
        let server = Server::start(Some(RECEIVE_BUFFER_BYTES), move |stream| {
            let shared = Arc::clone(&server_shared);
            // Ignore how a connection ended: the tests check the client's reaction.
            async move { drop(Connection::new(stream, shared).serve().await) }
        })?;
        Ok(Self { port: server.port, shared, _server: server })
    }

    /// Returns the URL, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the behaviour for INSERTs from now on, and releases the INSERTs that hang. An INSERT
    /// whose answer has begun keeps its behaviour.
    ///
    /// # Panics
    /// This server has no text for the error code of the behaviour.
    pub fn set(&self, behaviour: Behaviour) {
        self.change(behaviour, None);
    }

    /// Sets the behaviour for the next `count` INSERTs that the behaviour affects (hits).
    /// Afterwards the server is honest again. Only [`Behaviour::ClickHouseError`],
    /// [`Behaviour::ProxyError`], [`Behaviour::SwallowAnswer`] and [`Behaviour::ResetInBody`] count
    /// hits.
    pub fn set_for(&self, count: u32, behaviour: Behaviour) {
        self.change(behaviour, Some(count));
    }

    fn change(&self, behaviour: Behaviour, remaining: Option<u32>) {
        if let Behaviour::ClickHouseError { code, .. } | Behaviour::ReplicaDies { code } = behaviour
        {
            assert!(answers::is_known(code), "there is no text for ClickHouse's error {code}");
        }
        self.shared.script.send_modify(|script| {
            (script.behaviour, script.remaining) = (behaviour, remaining);
            script.changes += 1;
        });
    }

    /// Returns `true` if the behaviour is [`Behaviour::Honest`]. After the last INSERT of
    /// [`set_for`](Self::set_for) the behaviour is honest again.
    #[must_use]
    pub fn is_honest(&self) -> bool {
        self.shared.script.borrow().behaviour == Behaviour::Honest
    }

    /// Returns how many INSERTs were hit by a behaviour that [`set_for`](Self::set_for) counts.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::Relaxed)
    }

    /// Returns the durations of the INSERTs that the engine answered with 200, from the request's
    /// head to the engine's answer.
    #[must_use]
    pub fn insert_durations(&self) -> Vec<Duration> {
        lock(&self.shared.durations).clone()
    }

    /// Returns how many INSERTs are in progress that began while the behaviour was
    /// [`Behaviour::Honest`]. These INSERTs stay honest after a change of the behaviour.
    #[must_use]
    pub fn honest_in_progress(&self) -> usize {
        self.shared.honest.load(Ordering::SeqCst)
    }

    /// Returns how many INSERTs the engine answered with 200.
    #[must_use]
    pub fn inserts_answered(&self) -> usize {
        lock(&self.shared.durations).len()
    }

    /// Returns every INSERT whose body arrived complete, in order of arrival.
    #[must_use]
    pub fn received_inserts(&self) -> Vec<ReceivedInsert> {
        self.shared.received().clone()
    }
}
