//! The `/member` document of a member of the share group.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};

use crate::erased::Erased;

/// The fields of `/member`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// `mqtt.client_id`.
    pub name: String,
    /// `mqtt.group`.
    pub group: String,
    /// Filters of `mqtt.topics` or of the sources.
    pub topics: BTreeSet<String>,
    /// At least one connection of the member has a granted subscription.
    pub subscribed: bool,
    /// The member received SIGTERM.
    pub leaving: bool,
    /// Digest of the newest list of erased drivers. `None` before ClickHouse's list has been read,
    /// and while a batch or a running insert still holds an older list.
    pub erased: Option<String>,
    /// Files in the member's spool, quarantine included.
    pub spool_files: u64,
}

impl MemberStatus {
    /// Serialises to one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { name, group, topics, subscribed, leaving, erased, spool_files } = self;
        json!({
            "name": name, "group": group, "topics": topics, "subscribed": subscribed,
            "leaving": leaving, "erased": erased, "spool_files": spool_files,
        })
        .to_string()
    }

    /// Parses the object of [`to_json`](Self::to_json). Ignores unknown fields, because a newer
    /// version may send more.
    ///
    /// # Errors
    /// The answer is not JSON, or lacks a field; the message says which.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(text).map_err(|_| "its answer is not JSON".to_owned())?;
        let missing = |field: &str| format!("its answer has no {field}");
        let text =
            |field: &str| value[field].as_str().map(str::to_owned).ok_or_else(|| missing(field));
        let flag = |field: &str| value[field].as_bool().ok_or_else(|| missing(field));
        let topics = value["topics"].as_array().ok_or_else(|| missing("topics"))?;
        let topics = topics.iter().map(|topic| topic.as_str().map(str::to_owned));
        Ok(Self {
            name: text("name")?,
            group: text("group")?,
            topics: topics.collect::<Option<_>>().ok_or_else(|| missing("topics"))?,
            subscribed: flag("subscribed")?,
            leaving: flag("leaving")?,
            erased: value["erased"].as_str().map(str::to_owned),
            spool_files: value["spool_files"].as_u64().unwrap_or(0),
        })
    }
}

/// This process as a member: the source of its [`MemberStatus`].
#[derive(Debug)]
pub struct Member {
    name: String,
    group: String,
    topics: BTreeSet<String>,
    leaving: AtomicBool,
    erased: Mutex<ErasedLists>,
}

/// Weak references to lists of erased drivers. Each batch, and each running insert, holds the list
/// that its rows were checked against. A list without holders is no longer in use.
#[derive(Debug, Default)]
struct ErasedLists {
    current: Weak<Erased>,
    /// Earlier lists that a batch or a running insert may still hold.
    older: Vec<Weak<Erased>>,
}

impl Member {
    /// Creates a member that is not leaving.
    #[must_use]
    pub fn new(name: &str, group: &str, topics: &[String]) -> Self {
        let topics = topics.iter().cloned().collect();
        Self {
            name: name.to_owned(),
            group: group.to_owned(),
            topics,
            leaving: AtomicBool::new(false),
            erased: Mutex::default(),
        }
    }

    /// Marks this member as leaving. Call it before this member asks its peers: if two members
    /// leave at the same time, at least one of them must see that the other leaves.
    pub fn set_leaving(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Registers the list that rows are checked against until ClickHouse's list has been read.
    pub fn set_initial_erased(&self, erased: &Arc<Erased>) {
        let mut lists = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        lists.older.push(Arc::downgrade(erased));
    }

    /// Registers the list that new rows, and the rows of each insert, are checked against from now
    /// on.
    pub fn set_erased(&self, erased: &Arc<Erased>) {
        let mut lists = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        let current = Arc::downgrade(erased);
        if !lists.current.ptr_eq(&current) {
            let before = std::mem::replace(&mut lists.current, Weak::clone(&current));
            lists.older.push(before);
        }
        lists.older.retain(|older| older.strong_count() > 0 && !older.ptr_eq(&current));
    }

    /// Returns the value of [`MemberStatus::erased`].
    fn erased(&self) -> Option<String> {
        let mut lists = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        lists.older.retain(|older| older.strong_count() > 0);
        lists.current.upgrade().filter(|_| lists.older.is_empty()).map(|erased| erased.digest())
    }

    /// Returns the member's current document.
    #[must_use]
    pub fn status(&self, subscribed: bool, spool_files: u64) -> MemberStatus {
        MemberStatus {
            name: self.name.clone(),
            group: self.group.clone(),
            topics: self.topics.clone(),
            subscribed,
            leaving: self.leaving.load(Ordering::SeqCst),
            erased: self.erased(),
            spool_files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_document_round_trips() {
        let member = Member::new("milepost-2", "fleet", &["b/+".to_owned(), "a/+".to_owned()]);
        let status = member.status(true, 3);
        assert!(!status.leaving);
        assert_eq!(MemberStatus::from_json(status.to_json().as_bytes()), Ok(status));
        member.set_leaving();
        assert!(member.status(false, 0).leaving);
    }

    #[test]
    fn erased_digest_is_none_while_an_older_list_is_held() {
        let member = Member::new("milepost-2", "fleet", &[]);
        let (first, second) = (Arc::new(Erased::new([])), Arc::new(Erased::new(["d1".to_owned()])));
        let before = Arc::default();
        member.set_initial_erased(&before);
        assert_eq!(member.status(false, 0).erased, None, "no list has been read yet");
        member.set_erased(&first);
        assert_eq!(member.status(false, 0).erased, None, "a batch holds the initial list");
        drop(before);
        assert_eq!(member.status(false, 0).erased, Some(first.digest()));
        member.set_erased(&second);
        assert_eq!(member.status(false, 0).erased, None, "a batch holds the first list");
        drop(first);
        assert_eq!(member.status(false, 0).erased, Some(second.digest()));
    }

    #[test]
    fn member_document_needs_its_fields_and_may_have_more() {
        let newer_version =
            br#"{"name":"n","group":"g","topics":[],"subscribed":true,"leaving":false,"more":1}"#;
        assert!(MemberStatus::from_json(newer_version).is_ok());
        for (text, why) in [
            (&b"ready\n"[..], "its answer is not JSON"),
            (b"[]", "its answer has no topics"),
            (
                br#"{"name":"n","group":"g","topics":[1],"subscribed":true,"leaving":false}"#,
                "its answer has no topics",
            ),
            (
                br#"{"name":"n","group":"g","topics":[],"subscribed":"yes","leaving":false}"#,
                "its answer has no subscribed",
            ),
            (
                br#"{"name":"n","group":"g","topics":[],"subscribed":true}"#,
                "its answer has no leaving",
            ),
        ] {
            assert_eq!(MemberStatus::from_json(text), Err(why.to_owned()));
        }
    }
}
