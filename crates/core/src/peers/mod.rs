//! Decides which member of the share group stays subscribed when this process gets SIGTERM.
//!
//! Guarantee: of the members of a group that reach each other, the member with the lowest name
//! keeps its session, even if all members stop at once. So the broker always has a session to queue
//! messages for. A member that does not answer in time counts as absent, and the decision then
//! counts as uncertain. The members' answers are trusted.

pub mod decision;
pub mod member;
mod peer;
pub mod waves;

pub use self::peer::Peer;
