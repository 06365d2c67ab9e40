//! Decides which member of the share group stays subscribed when this process gets SIGTERM.
//!
//! Guarantee: of the members of a group that reach each other, the lowest by name keeps its
//! session, whatever the others do and whenever they do it. So the broker always has a session to
//! queue for. A member that does not answer in time counts as absent, and the decision as
//! uncertain. The members' answers are trusted.

pub mod decision;
mod peer;
pub mod standing;
pub mod waves;

pub use self::peer::Peer;
