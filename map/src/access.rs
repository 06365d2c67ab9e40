//! Controls access: the configured viewers, and read-only links that expire. No I/O: the caller
//! reads the key that signs links.
//!
//! Guarantee: without the key, no one can create or change a link, or extend its validity.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use milepost_config::Secret;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::fleet::filter::Scope;
use crate::params::driver;

/// Maximum validity of a link, in hours.
pub const LINK_HOURS_MAX: u32 = 24 * 366;
/// Maximum number of groups and drivers in one link: the link must fit into a URL.
const LINK_NAMES_MAX: usize = 50;
/// Maximum length of a link's content and signature, in bytes before encoding.
const LINK_BYTES_MAX: usize = 6_000;
/// Maximum length of a new link, encoded. The page keeps the link in a cookie, and browsers drop
/// cookies of more than 4,096 bytes with their names.
const LINK_LETTERS_MAX: usize = 4_080;
/// Letters of a signature in hexadecimal, as older versions encoded links.
const HEX_SIGNATURE_LETTERS: usize = 64;

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
/// An entry has another form, or two entries have one name.
pub fn viewers(entries: Vec<String>) -> Result<Vec<(String, Arc<Scope>)>, String> {
    let mut viewers: Vec<(String, Arc<Scope>)> = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_empty()) {
        let (name, scope) = viewer(entry)?;
        if viewers.iter().any(|(known, _)| *known == name) {
            return Err(format!(
                "\"{name}\" has two entries: put all groups and drivers of a viewer into one"
            ));
        }
        viewers.push((name, scope));
    }
    Ok(viewers)
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
    /// The link names no driver or group, too many of them, or an invalid driver id; or it is too
    /// long.
    pub fn check(&self) -> Result<(), String> {
        let count = self.groups.len() + self.drivers.len();
        if count == 0 || count > LINK_NAMES_MAX {
            return Err(format!("drivers, groups: expected 1 to {LINK_NAMES_MAX} in all"));
        }
        if self.groups.contains("") {
            return Err("groups: an empty string is not a group".to_owned());
        }
        self.drivers.iter().try_for_each(|id| driver(id).map(drop))?;
        // The secret has no effect on the length.
        let letters = self.sign("").len();
        if letters > LINK_LETTERS_MAX {
            return Err(format!(
                "drivers, groups: their names are too long for one link, which would have \
                 {letters} letters instead of at most {LINK_LETTERS_MAX}: name fewer"
            ));
        }
        Ok(())
    }

    /// Returns the scope that the link shows.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope::Only { groups: self.groups.clone(), drivers: self.drivers.clone() }
    }

    /// Encodes the link for a URL: its content and a signature, both in base 64. `secret`: the
    /// value of [`Access::links_key`].
    #[must_use]
    pub fn sign(&self, secret: &str) -> String {
        let content = serde_json::to_vec(self).unwrap_or_default();
        let signature = hmac::sign(&key(secret), &content);
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        format!("{}.{}", encode(&content), encode(signature.as_ref()))
    }

    /// Decodes a signed link. `None`: the link was changed, another secret signed it, or it has
    /// expired.
    #[must_use]
    pub fn open(text: &str, secret: &str, now_ms: i64) -> Option<Self> {
        let (content, signature) =
            text.split_once('.').filter(|_| text.len() <= 2 * LINK_BYTES_MAX)?;
        let decode: fn(&str) -> Option<Vec<u8>> = if signature.len() == HEX_SIGNATURE_LETTERS {
            decode_hex
        } else {
            |text| BASE64_URL_SAFE_NO_PAD.decode(text).ok()
        };
        let (content, signature) = (decode(content)?, decode(signature)?);
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
        let twice = viewers(vec!["eve: north".to_owned(), "eve : south".to_owned()]);
        assert!(twice.unwrap_err().contains("\"eve\" has two entries"));
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
    fn link_that_fits_into_no_cookie_is_refused() {
        let link = |id_bytes: usize| Link {
            groups: BTreeSet::new(),
            drivers: (0..LINK_NAMES_MAX).map(|id| format!("{id:0id_bytes$}")).collect(),
            until: 1_800_000_000_000,
            by: "ada.lovelace@fleet.example".to_owned(),
        };
        // 50 UUIDs fit.
        assert_eq!(link(36).check(), Ok(()));
        assert!(link(36).sign("secret").len() <= LINK_LETTERS_MAX);
        assert!(link(64).check().unwrap_err().contains("name fewer"));
    }

    #[test]
    fn link_of_an_older_version_opens() {
        let drivers = BTreeSet::from(["van-1".to_owned()]);
        let link = Link { groups: BTreeSet::new(), drivers, until: 1_000, by: "ada".to_owned() };
        let content = serde_json::to_vec(&link).unwrap();
        let signature = hmac::sign(&key("secret"), &content);
        let signed = format!("{}.{}", encode_hex(&content), encode_hex(signature.as_ref()));
        assert_eq!(Link::open(&signed, "secret", 999), Some(link));
    }

    #[test]
    fn each_link_has_one_valid_text() {
        let link = Link {
            groups: BTreeSet::new(),
            drivers: BTreeSet::new(),
            until: 1_000,
            by: "a".into(),
        };
        let signed = link.sign("secret");
        assert!(!signed.contains(['+', '/', '=']), "{signed}");
        // 32 bytes end in a letter with two unused bits. Set, they would be a second text.
        let (start, last) = signed.split_at(signed.len() - 1);
        let with_unused_bit = char::from(last.as_bytes()[0] + 1);
        for wrong in
            [format!("{start}{with_unused_bit}"), format!("{signed}="), format!("{signed} ")]
        {
            assert_eq!(Link::open(&wrong, "secret", 999), None, "{wrong}");
        }
        assert_eq!(Link::open(&signed, "secret", 999), Some(link));
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
