//! The address of a peer.

/// An entry of `shutdown.peers`; each address that the host resolves to is one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// A host name, or an address without brackets.
    pub host: String,
    pub port: u16,
}
