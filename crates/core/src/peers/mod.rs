//! Decides which member of the share group stays subscribed when this process gets SIGTERM.
//!
//! Guarantee: among the members of a group that can reach each other, the one with the lowest name
//! keeps its session, even if all members stop at once. So there is always a session for which the
//! broker queues messages. A member that does not answer in time counts as absent, and the decision
//! then counts as uncertain. The answers of the members are trusted.

pub mod decision;
pub mod member;
mod peer;
pub mod waves;

pub use self::peer::Peer;
