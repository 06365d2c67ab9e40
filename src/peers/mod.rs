//! Who goes on when this process is told to go: what members say of themselves, what follows from it, and how they are
//! asked.
//!
//! Guarantee: of the members of a group that can ask each other, the lowest by name keeps its session, whatever the others do and
//! whenever they do it. So the broker always has somebody to queue for. A member that cannot be asked in time counts as
//! not there. It trusts what a peer says of itself.

pub mod ask;
pub mod decision;
pub mod standing;
