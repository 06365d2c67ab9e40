//! Which member stays when this process gets SIGTERM: the answers of the members, the decision, and the requests.
//!
//! Guarantee: of the members of a group that can ask each other, the lowest by name keeps its session, whatever the others do and whenever
//! they do it. So the broker always has a session to queue for. A member that does not answer in time counts as absent, and
//! the decision as uncertain. Answers are trusted.

pub mod decision;
mod peer;
pub mod standing;

pub use self::peer::Peer;
