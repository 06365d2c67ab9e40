//! Which member leaves the group when it is told to go, and which keeps its session for its next process.
//!
//! A member leaves if another one with a lower name stays: subscribed to the same, and not told to go. Names are ordered, so
//! two that are told to go at once cannot both trust each other: the lowest always keeps its session.

use std::cmp::Ordering;
use std::fmt;

use super::standing::Standing;

/// So many peers are named in a log line.
const TOLD_MAX: usize = 8;

/// What to do with our sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Leave the group: this one goes on.
    Leave {
        /// Its name.
        to: String,
        /// Where it was asked.
        address: String,
    },
    /// Keep them: nobody with a lower name is known to go on.
    Keep {
        /// What became of each peer, for people.
        because: Vec<String>,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leave { to, address } => {
                write!(f, "unsubscribing: {to} at {address} stays, and takes our share")
            }
            Self::Keep { because } => {
                f.write_str("keeping the session: no member with a lower name is known to stay")?;
                let untold = because.len().saturating_sub(TOLD_MAX);
                let more = (untold > 0).then(|| format!("and {untold} more"));
                let told: Vec<_> = because.iter().take(TOLD_MAX).chain(&more).map(String::as_str).collect();
                if told.is_empty() { Ok(()) } else { write!(f, " ({})", told.join("; ")) }
            }
        }
    }
}

/// What a member says to us, who are about to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// Our own answer, perhaps from another of our addresses.
    Ourselves,
    NotLower,
    OtherGroup,
    OtherTopics,
    NotSubscribed,
    Leaving,
}

fn judge(ours: &Standing, theirs: &Standing) -> Verdict {
    match order(&theirs.name, &ours.name) {
        Ordering::Equal => Verdict::Ourselves,
        Ordering::Greater => Verdict::NotLower,
        Ordering::Less if theirs.group != ours.group => Verdict::OtherGroup,
        Ordering::Less if theirs.topics != ours.topics => Verdict::OtherTopics,
        Ordering::Less if theirs.leaving => Verdict::Leaving,
        Ordering::Less if !theirs.subscribed => Verdict::NotSubscribed,
        Ordering::Less => Verdict::Stays,
    }
}

/// The question of one member that is told to go, to all others.
#[derive(Debug)]
pub struct Inquiry {
    ours: Standing,
    heir: Option<(String, String)>,
    because: Vec<String>,
}

impl Inquiry {
    /// Nobody has answered yet.
    #[must_use]
    pub fn new(ours: Standing) -> Self {
        Self { ours, heir: None, because: Vec::new() }
    }

    /// What was said at `address`, or why nothing came from there; `true`: nobody else need be heard.
    pub fn heard(&mut self, address: &str, answer: Result<Standing, String>) -> bool {
        let theirs = match answer {
            Ok(theirs) => theirs,
            Err(why) => {
                self.because.push(format!("{address}: {why}"));
                return self.heir.is_some();
            }
        };
        let what = match judge(&self.ours, &theirs) {
            Verdict::Stays => {
                self.heir.get_or_insert((theirs.name, address.to_owned()));
                return true;
            }
            Verdict::Ourselves => return self.heir.is_some(),
            Verdict::NotLower => "has a higher name",
            Verdict::OtherGroup => "is of another group",
            Verdict::OtherTopics => "has other topics",
            Verdict::NotSubscribed => "is not subscribed",
            Verdict::Leaving => "is leaving, too",
        };
        self.because.push(format!("{} at {address} {what}", theirs.name));
        self.heir.is_some()
    }

    /// What follows from what was heard. Whoever has said nothing is not there.
    #[must_use]
    pub fn decision(self) -> Decision {
        match self.heir {
            Some((to, address)) => Decision::Leave { to, address },
            None => Decision::Keep { because: self.because },
        }
    }
}

/// The order of names: numbers in them count as numbers, so `milepost-9` is below `milepost-10`. Only equal names are equal.
#[must_use]
pub fn order(a: &str, b: &str) -> Ordering {
    Parts(a.as_bytes()).cmp(Parts(b.as_bytes())).then_with(|| a.cmp(b))
}

/// A name's bytes, a run of digits as one number.
struct Parts<'a>(&'a [u8]);

/// By its digits without leading zeros: a number can be longer than any integer.
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
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            return Some(Part::Byte(*first));
        }
        let (number, rest) = self.0.split_at(run);
        self.0 = rest;
        let zeros = number.iter().take_while(|digit| **digit == b'0').count();
        let value = &number[zeros..];
        Some(Part::Number { digits: value.len(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(name: &str) -> Standing {
        let topics = ["drivers/+/gps".to_owned()].into();
        Standing {
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
    fn names_are_ordered_with_their_numbers_as_numbers() {
        let sorted = [
            "7",
            "07",
            "m",
            "m-0",
            "m-1",
            "m-2",
            "m-9",
            "m-10",
            "m-010",
            "m-10-a",
            "m-11",
            "m-99999999999999999999",
            "m-100000000000000000000",
            "m-a",
            "n-1",
        ];
        // Equal numbers are told apart by their bytes, so that two names are never equal.
        assert_eq!(order("m-10", "m-010"), "m-10".cmp("m-010"));
        let mut shuffled = sorted.to_vec();
        shuffled.reverse();
        shuffled.sort_by(|a, b| order(a, b));
        let numbers =
            ["m-0", "m-1", "m-2", "m-9", "m-10", "m-11", "m-99999999999999999999", "m-100000000000000000000"];
        let kept: Vec<_> = shuffled.iter().filter(|name| numbers.contains(name)).copied().collect();
        assert_eq!(kept, numbers);
    }

    #[test]
    fn only_who_is_lower_and_stays_with_the_same_is_left_to() {
        let ours = standing("milepost-2");
        let decide = |theirs: Standing| {
            let mut inquiry = Inquiry::new(ours.clone());
            let decided = inquiry.heard("10.0.0.1:9464", Ok(theirs));
            let decision = inquiry.decision();
            assert_eq!(decided, matches!(decision, Decision::Leave { .. }));
            decision.to_string()
        };
        assert_eq!(
            decide(standing("milepost-1")),
            "unsubscribing: milepost-1 at 10.0.0.1:9464 stays, and takes our share"
        );
        let kept = "keeping the session: no member with a lower name is known to stay";
        assert_eq!(decide(standing("milepost-2")), kept, "our own answer");
        let other = |change: fn(&mut Standing)| {
            let mut theirs = standing("milepost-1");
            change(&mut theirs);
            decide(theirs)
        };
        for (said, what) in [
            (decide(standing("milepost-10")), "milepost-10 at 10.0.0.1:9464 has a higher name"),
            (
                other(|theirs| theirs.group = "h".to_owned()),
                "milepost-1 at 10.0.0.1:9464 is of another group",
            ),
            (other(|theirs| theirs.topics.clear()), "milepost-1 at 10.0.0.1:9464 has other topics"),
            (other(|theirs| theirs.subscribed = false), "milepost-1 at 10.0.0.1:9464 is not subscribed"),
            (other(|theirs| theirs.leaving = true), "milepost-1 at 10.0.0.1:9464 is leaving, too"),
        ] {
            assert_eq!(said, format!("{kept} ({what})"));
        }
    }

    #[test]
    fn a_log_line_has_a_bound() {
        let mut inquiry = Inquiry::new(standing("milepost-2"));
        (0..1_000)
            .for_each(|n| assert!(!inquiry.heard(&format!("10.0.0.{n}:1"), Err("no answer".to_owned()))));
        let told = inquiry.decision().to_string();
        assert!(told.ends_with("; and 992 more)") && told.len() < 500, "{told}");
    }
}
