//! The decision of one member at SIGTERM: leave the group, or keep the session for the next
//! process.
//!
//! A member leaves if a member with a lower name stays: that other member is subscribed to the same
//! topics in the same group, and is not leaving. A member never relies on a higher name, so two
//! members that stop at the same time cannot rely on each other. If another process with this
//! member's name stays, it uses the same sessions, so they are kept.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use super::member::MemberStatus;

/// Maximum number of peers that a log line names.
const NAMED_MAX: usize = 8;

/// States what happens to this member's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Unsubscribe: the peer with this name, at this address, stays.
    Leave { to: String, address: String },
    /// Keep the sessions: no member with a lower name is known to stay, or another process uses our
    /// client id.
    Keep {
        /// One reason per peer, for the log.
        reasons: Vec<String>,
        /// Every peer has answered, and no answer will change. If `false`, the log warns that
        /// messages will be lost unless a process resumes our sessions.
        certain: bool,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leave { to, address } => {
                write!(f, "unsubscribing: {to} at {address} stays, and takes our share")
            }
            Self::Keep { reasons, .. } => {
                f.write_str("keeping the session: no member with a lower name is known to stay")?;
                let unnamed = reasons.len().saturating_sub(NAMED_MAX);
                let others = (unnamed > 0).then(|| format!("and {unnamed} more"));
                let named: Vec<_> =
                    reasons.iter().take(NAMED_MAX).chain(&others).map(String::as_str).collect();
                if named.is_empty() { Ok(()) } else { write!(f, " ({})", named.join("; ")) }
            }
        }
    }
}

/// Whether to ask a peer again, while there is time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    /// Do not ask this peer again: its answer will not change.
    Settled,
    /// Ask this peer again: it did not answer, or its answer may change within a second.
    AskAgain,
    /// Ask no peer again: this answer decides.
    Stop,
}

/// Collects the answers of the peers that a leaving member has asked.
#[derive(Debug)]
pub struct Inquiry {
    ours: MemberStatus,
    /// Name and address of the peer that takes over our share; `None` until a peer with a lower
    /// name has answered that it stays.
    successor: Option<(String, String)>,
    /// Why the sessions are not ours to unsubscribe: another process with our client id stays.
    /// `None` until such a process has answered.
    replaced: Option<String>,
    /// For each address, why the peer does not take our share, according to its last answer, and
    /// whether to ask it again.
    refusals: BTreeMap<String, (String, FollowUp)>,
}

impl Inquiry {
    /// Creates an inquiry that has no answers yet.
    #[must_use]
    pub fn new(ours: MemberStatus) -> Self {
        Self { ours, successor: None, replaced: None, refusals: BTreeMap::new() }
    }

    /// Processes the answer of `address`; an error is the reason why there is no answer. Returns
    /// whether to ask this peer, or any peer, again.
    pub fn handle_answer(
        &mut self,
        address: &str,
        answer: Result<MemberStatus, String>,
    ) -> FollowUp {
        let (why, follow_up) = match answer {
            Err(why) => (format!("{address}: {why}"), FollowUp::AskAgain),
            Ok(theirs) => {
                let ours = &self.ours;
                let (reason, follow_up) = match order(&theirs.name, &ours.name) {
                    // This process itself has answered, possibly at another of its addresses.
                    Ordering::Equal if theirs.leaving => {
                        self.refusals.remove(address);
                        return FollowUp::Settled;
                    }
                    // This process announced that it leaves before it asked, so the answer is that
                    // of another process, which has taken our sessions over, or will.
                    Ordering::Equal => {
                        self.replaced.get_or_insert(format!(
                            "{} at {address} is another process with our client id",
                            theirs.name
                        ));
                        return FollowUp::Stop;
                    }
                    Ordering::Greater => ("has a higher name", FollowUp::Settled),
                    Ordering::Less if theirs.group != ours.group => {
                        ("is in another group", FollowUp::Settled)
                    }
                    Ordering::Less if theirs.topics != ours.topics => {
                        ("has other topics", FollowUp::Settled)
                    }
                    Ordering::Less if theirs.leaving => ("is leaving too", FollowUp::Settled),
                    Ordering::Less if !theirs.subscribed => {
                        ("is not subscribed", FollowUp::AskAgain)
                    }
                    Ordering::Less => {
                        self.successor.get_or_insert((theirs.name, address.to_owned()));
                        return FollowUp::Stop;
                    }
                };
                (format!("{} at {address} {reason}", theirs.name), follow_up)
            }
        };
        self.refusals.insert(address.to_owned(), (why, follow_up));
        follow_up
    }

    /// Returns the decision from the answers so far. A peer that has not answered counts as absent.
    #[must_use]
    pub fn decision(self) -> Decision {
        if let Some(why) = self.replaced {
            return Decision::Keep { reasons: vec![why], certain: true };
        }
        if let Some((to, address)) = self.successor {
            return Decision::Leave { to, address };
        }
        let certain = self.refusals.values().all(|(_, follow_up)| *follow_up == FollowUp::Settled);
        let reasons = self.refusals.into_values().map(|(why, _)| why).collect();
        Decision::Keep { reasons, certain }
    }
}

/// Compares names. Runs of digits are compared as numbers: `milepost-9` < `milepost-10`. Names that
/// differ only in leading zeros are not equal.
#[must_use]
pub fn order(a: &str, b: &str) -> Ordering {
    Parts(a.as_bytes()).cmp(Parts(b.as_bytes())).then_with(|| a.cmp(b))
}

/// Iterates over the parts of a name. A run of digits is one part, and so is any other byte.
struct Parts<'a>(&'a [u8]);

/// A part of a name. A number is kept as its digits without leading zeros, because it can be too
/// long for an integer type.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Part<'a> {
    Number { digits: usize, value: &'a [u8] },
    Byte(u8),
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let run = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if run == 0 {
            let (byte, remaining) = self.0.split_first()?;
            self.0 = remaining;
            return Some(Part::Byte(*byte));
        }
        let (number, remaining) = self.0.split_at(run);
        self.0 = remaining;
        let zeros = number.iter().take_while(|digit| **digit == b'0').count();
        let value = &number[zeros..];
        Some(Part::Number { digits: value.len(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(name: &str) -> MemberStatus {
        let topics = ["drivers/+/gps".to_owned()].into();
        MemberStatus {
            name: name.to_owned(),
            group: "g".to_owned(),
            topics,
            subscribed: true,
            leaving: false,
            erased: None,
            spool_files: 0,
        }
    }

    #[test]
    fn digits_in_names_are_ordered_as_numbers() {
        // `07` and `7` are the same number, so their bytes decide: two different names are never
        // equal.
        let sorted = "07 7 m m-0 m-1 m-2 m-9 m-010 m-10 m-10-a m-11 m-99999999999999999999 \
                      m-100000000000000000000 m-a n-1";
        let mut names: Vec<_> = sorted.split(' ').rev().collect();
        names.sort_by(|a, b| order(a, b));
        assert_eq!(names.join(" "), sorted);
    }

    #[test]
    fn member_leaves_only_to_a_lower_member_with_its_topics() {
        let ours = status_of("milepost-2");
        let decide = |theirs: MemberStatus| {
            let mut inquiry = Inquiry::new(ours.clone());
            let follow_up = inquiry.handle_answer("10.0.0.1:9464", Ok(theirs));
            let decision = inquiry.decision();
            assert_eq!(follow_up == FollowUp::Stop, matches!(decision, Decision::Leave { .. }));
            decision.to_string()
        };
        assert_eq!(
            decide(status_of("milepost-1")),
            "unsubscribing: milepost-1 at 10.0.0.1:9464 stays, and takes our share"
        );
        let keeps_session = "keeping the session: no member with a lower name is known to stay";
        let our_answer = MemberStatus { leaving: true, ..status_of("milepost-2") };
        assert_eq!(decide(our_answer), keeps_session);
        let decide_with = |change: fn(&mut MemberStatus)| {
            let mut theirs = status_of("milepost-1");
            change(&mut theirs);
            decide(theirs)
        };
        for (decision, reason) in [
            (decide(status_of("milepost-10")), "milepost-10 at 10.0.0.1:9464 has a higher name"),
            (
                decide_with(|theirs| theirs.group = "h".to_owned()),
                "milepost-1 at 10.0.0.1:9464 is in another group",
            ),
            (
                decide_with(|theirs| theirs.topics.clear()),
                "milepost-1 at 10.0.0.1:9464 has other topics",
            ),
            (
                decide_with(|theirs| theirs.subscribed = false),
                "milepost-1 at 10.0.0.1:9464 is not subscribed",
            ),
            (
                decide_with(|theirs| theirs.leaving = true),
                "milepost-1 at 10.0.0.1:9464 is leaving too",
            ),
        ] {
            assert_eq!(decision, format!("{keeps_session} ({reason})"));
        }
    }

    /// A process says that it leaves before it asks, so its own answer is never that it stays.
    #[test]
    fn member_keeps_the_sessions_that_another_process_uses() {
        for order in [["milepost-1", "milepost-2"], ["milepost-2", "milepost-1"]] {
            let mut inquiry = Inquiry::new(status_of("milepost-2"));
            for name in order {
                inquiry.handle_answer(&format!("{name}:9464"), Ok(status_of(name)));
            }
            let decision = inquiry.decision();
            assert!(matches!(decision, Decision::Keep { certain: true, .. }), "{decision:?}");
            let line = decision.to_string();
            let why = "milepost-2 at milepost-2:9464 is another process with our client id";
            assert!(line.ends_with(&format!("({why})")), "{line}");
        }
    }

    /// If a member reaches no peer and never starts again, the messages of its share are lost. So
    /// its log must warn.
    #[test]
    fn decision_without_answers_is_uncertain() {
        let certain = |answers: Vec<Result<MemberStatus, String>>| {
            let mut inquiry = Inquiry::new(status_of("milepost-2"));
            for answer in answers {
                inquiry.handle_answer("10.0.0.1:9464", answer);
            }
            match inquiry.decision() {
                Decision::Keep { certain, .. } => certain,
                Decision::Leave { .. } => panic!("no member stays"),
            }
        };
        let silent = || Err("cannot be reached".to_owned());
        let starting = MemberStatus { subscribed: false, ..status_of("milepost-1") };
        let leaving = MemberStatus { leaving: true, ..status_of("milepost-1") };
        assert!(!certain(vec![silent()]));
        assert!(!certain(vec![Ok(starting.clone())]));
        assert!(certain(vec![silent(), Ok(starting), Ok(leaving)]), "the last answer counts");
        assert!(certain(vec![Ok(status_of("milepost-3"))]));
    }

    #[test]
    fn log_line_of_a_decision_is_bounded() {
        let mut inquiry = Inquiry::new(status_of("milepost-2"));
        for peer in 0..1_000 {
            inquiry.handle_answer(&format!("10.0.0.{peer}:1"), Err("no answer".to_owned()));
        }
        let line = inquiry.decision().to_string();
        assert!(line.ends_with("; and 992 more)") && line.len() < 500, "{line}");
    }
}
