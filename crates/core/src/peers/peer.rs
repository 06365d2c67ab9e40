//! The address of a peer.

/// An entry of `shutdown.peers`; every address of the name is a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A host name, or an address without brackets.
    pub host: String,
    pub port: u16,
}
