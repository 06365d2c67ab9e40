//! Access control: the configured viewers, and read-only links that expire. No I/O: the caller
//! reads the key that signs links.
//!
//! Guarantee: without the key, nobody can create or change a link, or extend its validity.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_config::Secret;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::fleet::look::Scope;
use crate::params::driver;

/// Maximum validity of a link, in hours.
pub const LINK_HOURS_MAX: u32 = 24 * 366;
/// Maximum number of groups and drivers in one link: the link must fit into a URL.
const LINK_NAMES_MAX: usize = 50;
/// Maximum length of a link's content and signature, in bytes before encoding.
const LINK_BYTES_MAX: usize = 6_000;

/// Settings of the section `[access]`.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Viewers' names with their scopes; empty: every viewer sees all drivers.
    pub viewers: Vec<(String, Arc<Scope>)>,
    /// Key that signs links; `None`: links are disabled.
    pub links_key: Option<Secret>,
}

impl Access {
    /// Returns whether some viewers may see only a part of the drivers.
    #[must_use]
    pub fn limits_viewers(&self) -> bool {
        self.links_key.is_some() || self.viewers.iter().any(|(_, scope)| !scope.is_all())
    }

    /// Returns the scope of a viewer; `None`: the viewer may see nothing.
    #[must_use]
    pub fn scope(&self, name: Option<&str>) -> Option<Arc<Scope>> {
        if self.viewers.is_empty() {
            return Some(Arc::default());
        }
        let name = name?;
        self.viewers.iter().find(|(viewer, _)| viewer == name).map(|(_, scope)| Arc::clone(scope))
    }
}

/// Parses `access.viewers`; skips empty entries. `NAME: *` sees all drivers; `NAME: north; south;
/// driver:van-1` sees two groups and a driver.
///
/// # Errors
/// An entry has another form.
pub fn viewers(entries: Vec<String>) -> Result<Vec<(String, Arc<Scope>)>, String> {
    entries.iter().filter(|entry| !entry.is_empty()).map(|entry| viewer(entry)).collect()
}

fn viewer(entry: &str) -> Result<(String, Arc<Scope>), String> {
    let invalid = || format!("\"{entry}\": expected NAME: * or NAME: GROUP; GROUP; driver:ID");
    let (name, scope) = entry.split_once(':').ok_or_else(invalid)?;
    let name = name.trim().to_owned();
    if name.is_empty() {
        return Err(invalid());
    }
    if scope.trim() == "*" {
        return Ok((name, Arc::default()));
    }
    let (mut groups, mut drivers) = (BTreeSet::new(), BTreeSet::new());
    for part in scope.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        match part.strip_prefix("driver:") {
            Some(id) => drivers.insert(driver(id.trim())?.to_owned()),
            None => groups.insert(part.to_owned()),
        };
    }
    if groups.is_empty() && drivers.is_empty() {
        return Err(invalid());
    }
    Ok((name, Arc::new(Scope::Only { groups, drivers })))
}

/// Content of a link: the drivers it shows, its expiry and its creator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(default)]
    pub groups: BTreeSet<String>,
    #[serde(default)]
    pub drivers: BTreeSet<String>,
    /// Expiry, in milliseconds since 1970.
    pub until: i64,
    /// Name of the viewer who made the link; empty: unknown.
    #[serde(default)]
    pub by: String,
}

impl Link {
    /// Checks the drivers and groups of a new link.
    ///
    /// # Errors
    /// The link names no driver or group, too many of them, or an invalid driver id.
    pub fn check(&self) -> Result<(), String> {
        let count = self.groups.len() + self.drivers.len();
        if count == 0 || count > LINK_NAMES_MAX {
            return Err(format!("drivers, groups: expected 1 to {LINK_NAMES_MAX} in all"));
        }
        if self.groups.contains("") {
            return Err("groups: an empty string is not a group".to_owned());
        }
        self.drivers.iter().try_for_each(|id| driver(id).map(drop))
    }

    /// Returns the scope that the link shows.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::Only { groups: self.groups.clone(), drivers: self.drivers.clone() }
    }

    /// Encodes the link for a URL: its content and a signature, both in hexadecimal. `secret`: the
    /// value of [`Access::links_key`].
    #[must_use]
    pub fn sign(&self, secret: &str) -> String {
        let content = serde_json::to_vec(self).unwrap_or_default();
        let signature = hmac::sign(&key(secret), &content);
        format!("{}.{}", encode_hex(&content), encode_hex(signature.as_ref()))
    }

    /// Decodes a signed link. `None`: the link was changed, another secret signed it, or it has
    /// expired.
    #[must_use]
    pub fn open(text: &str, secret: &str, now_ms: i64) -> Option<Self> {
        let (content, signature) =
            text.split_once('.').filter(|_| text.len() <= 2 * LINK_BYTES_MAX)?;
        let (content, signature) = (decode_hex(content)?, decode_hex(signature)?);
        hmac::verify(&key(secret), &content, &signature).ok()?;
        let link: Self = serde_json::from_slice(&content).ok()?;
        (now_ms < link.until).then_some(link)
    }
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

/// Encodes bytes as lower-case hexadecimal digits.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.is_ascii() {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|index| u8::from_str_radix(&hex[index..index + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_are_parsed() {
        let parsed =
            viewers(vec!["ada: *".to_owned(), "eve: north; driver:van-1;".to_owned()]).unwrap();
        assert_eq!(parsed[0], ("ada".to_owned(), Arc::default()));
        let groups = BTreeSet::from(["north".to_owned()]);
        let drivers = BTreeSet::from(["van-1".to_owned()]);
        assert_eq!(parsed[1], ("eve".to_owned(), Arc::new(Scope::Only { groups, drivers })));
        for wrong in ["ada", ": *", "ada:", "ada: driver:a b"] {
            assert!(viewers(vec![wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unlisted_viewer_has_no_scope() {
        let access =
            Access { viewers: viewers(vec!["ada: *".to_owned()]).unwrap(), links_key: None };
        assert!(access.scope(Some("ada")).is_some_and(|scope| scope.is_all()));
        assert_eq!((access.scope(Some("eve")), access.scope(None)), (None, None));
        assert!(Access::default().scope(None).is_some());
        assert!(!access.limits_viewers() && !Access::default().limits_viewers());
        let access =
            Access { viewers: viewers(vec!["eve: north".to_owned()]).unwrap(), links_key: None };
        assert!(access.limits_viewers());
    }

    #[test]
    fn changed_or_expired_link_does_not_open() {
        let drivers = BTreeSet::from(["van-1".to_owned()]);
        let link = Link { groups: BTreeSet::new(), drivers, until: 1_000, by: "ada".to_owned() };
        let signed = link.sign("secret");
        assert_eq!(Link::open(&signed, "secret", 999), Some(link));
        assert_eq!(Link::open(&signed, "secret", 1_000), None);
        assert_eq!(Link::open(&signed, "Secret", 999), None);
        for index in 0..signed.len() {
            let mut changed = signed.clone().into_bytes();
            changed[index] = if changed[index] == b'0' { b'1' } else { b'0' };
            assert_eq!(
                Link::open(std::str::from_utf8(&changed).unwrap(), "secret", 999),
                None,
                "{index}"
            );
        }
        for wrong in ["", ".", "é.é", "0.0"] {
            assert_eq!(Link::open(wrong, "secret", 0), None, "{wrong}");
        }
    }
}
