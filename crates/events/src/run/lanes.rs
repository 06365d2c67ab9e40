//! Deliveries that wait for a channel, in one lane for each driver: a failed delivery delays only
//! the later deliveries of its driver.
//!
//! Guarantee: a driver's deliveries leave in the order in which they arrived. The time of a call is
//! logarithmic in the number of drivers, and at most linear in the number of deliveries of its
//! driver. Exception: if a rule has begun to fail or to be limited, [`Lanes::take`] also
//! reschedules the lanes that were scheduled earlier with this rule. It does so once for each lane
//! and each failure or limit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::watch::Kind;

/// First pause before a failed delivery is retried. The pause doubles up to [`RETRY_PAUSE_MAX`].
pub(super) const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
pub(super) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Maximum number of deliveries that wait in the lanes of a channel.
pub(super) const WAITING_MAX: usize = 10_000;
/// While sound deliveries are due, one of this many deliveries may be doubtful or failed.
const TURNS: u8 = 8;

/// Kind and fence of an event. A receiver may refuse all events of one rule.
pub(super) type Rule = (Kind, String);

/// Whether a delivery is expected to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prospect {
    /// Neither the delivery nor the last one of its rule has failed.
    Sound,
    /// The delivery has not failed, but the last one of its rule has.
    Doubtful,
    /// The delivery has failed before.
    Failed,
}

/// A delivery that waits, or is in flight.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    pub(super) driver_id: String,
    rule: Rule,
    /// Prospect with which [`Lanes::take`] returned the delivery.
    pub(super) prospect: Prospect,
    /// Time of the first attempt; `None` if there was none.
    pub(super) tried_since: Option<Instant>,
    /// Pause after the next failure.
    pause: Duration,
    pub(super) has_failed: bool,
    /// The delivery is never dropped, and does not count towards [`WAITING_MAX`].
    is_kept: bool,
}

/// Time at which a lane is due, and a serial number, so that two lanes with the same time have
/// different keys.
type DueAt = (Instant, u64);

/// A driver's deliveries.
#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Number of waiting deliveries that may be dropped.
    droppable: usize,
    /// Prospect and time for which the lane is scheduled; `None` while its first delivery is in
    /// flight.
    due: Option<(Prospect, DueAt)>,
}

/// A limit of the receiver on the rate of a rule's deliveries.
#[derive(Debug)]
struct Limit {
    /// Time before which the receiver accepts no delivery of the rule.
    resumes_at: Instant,
    /// Pause after the next limit, if the receiver does not ask for a longer one.
    pause: Duration,
    /// No delivery of the rule has been accepted since the previous limit.
    is_repeated: bool,
}

impl Limit {
    /// Returns the limit that follows `before`. `time`: pause that the receiver asks for. A failure
    /// while a limit lasts belongs to this limit, because the delivery may have been in flight when
    /// the limit began. Such a delivery fails a little later, so its own pause ends a little later,
    /// too. Therefore the limit lasts one second longer than the receiver asks for: after that, all
    /// these deliveries are tried again in order.
    fn next(before: Option<Self>, now: Instant, time: Duration) -> Self {
        match before {
            None => Self {
                resumes_at: now + time + RETRY_PAUSE_MIN,
                pause: RETRY_PAUSE_MIN * 2,
                is_repeated: false,
            },
            Some(limit) if now < limit.resumes_at => {
                Self { resumes_at: limit.resumes_at.max(now + time), ..limit }
            }
            Some(limit) => Self {
                resumes_at: now + limit.pause.max(time + RETRY_PAUSE_MIN),
                pause: RETRY_PAUSE_MAX.min(limit.pause * 2),
                is_repeated: true,
            },
        }
    }
}

/// All waiting deliveries; see the module.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    lanes: HashMap<String, Lane<T>>,
    /// The drivers whose lane is scheduled with each prospect, by the time at which it is due.
    sound: BTreeMap<DueAt, String>,
    doubtful: BTreeMap<DueAt, String>,
    failed_lanes: BTreeMap<DueAt, String>,
    /// The doubtful and failed lanes with a delivery that may be dropped. The first part of the key
    /// is true for a failed lane. The last lane loses a delivery first.
    evictable: BTreeMap<(bool, DueAt), String>,
    /// The rules whose last delivery failed, with the limit on their rate, if there is one.
    failing: HashMap<Rule, Option<Limit>>,
    /// Number of waiting deliveries, without those in flight and those that are never dropped.
    count: usize,
    /// Number of waiting deliveries that have failed before.
    failed: usize,
    /// Number of times that a lane was scheduled, which makes each [`DueAt`] unique.
    scheduled: u64,
    /// Number of deliveries that were taken, modulo [`TURNS`].
    turn: u8,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self {
            lanes: HashMap::new(),
            sound: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            failed_lanes: BTreeMap::new(),
            evictable: BTreeMap::new(),
            failing: HashMap::new(),
            count: 0,
            failed: 0,
            scheduled: 0,
            turn: 0,
        }
    }
}

impl<T> Lanes<T> {
    /// Maximum number of rules that are remembered as failing.
    const FAILING_MAX: usize = 10_000;

    /// Returns the number of waiting deliveries that may be dropped.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether a waiting delivery has failed before.
    pub(super) fn has_failed(&self) -> bool {
        self.failed > 0
    }

    /// Returns whether [`WAITING_MAX`] deliveries wait.
    pub(super) fn is_full(&self) -> bool {
        self.count >= WAITING_MAX
    }

    /// Returns whether a new delivery of this driver and rule would wait behind one that is not
    /// expected to succeed.
    fn is_blocked(&self, driver_id: &str, rule: &Rule) -> bool {
        match self.lanes.get(driver_id) {
            Some(lane) => lane.due.is_some_and(|(prospect, _)| prospect != Prospect::Sound),
            None => self.failing.contains_key(rule),
        }
    }

    /// Returns whether the driver's next delivery has failed before.
    pub(super) fn is_failing(&self, driver_id: &str) -> bool {
        let lane = self.lanes.get(driver_id);
        lane.and_then(|lane| lane.waiting.front()).is_some_and(|first| first.has_failed)
    }

    /// Returns the waiting deliveries of this driver, oldest first.
    pub(super) fn of_driver(&self, driver_id: &str) -> impl Iterator<Item = &T> {
        let waiting = self.lanes.get(driver_id).into_iter().flat_map(|lane| &lane.waiting);
        waiting.map(|waiting| &waiting.item)
    }

    /// Enqueues a delivery. If [`WAITING_MAX`] wait already, drops and returns one delivery. This
    /// is the new delivery if it would wait behind a failure, or if no other delivery that may be
    /// dropped waits behind a failure. Otherwise it is such another delivery.
    pub(super) fn push(
        &mut self,
        driver_id: String,
        rule: Rule,
        item: T,
        now: Instant,
    ) -> Option<T> {
        let evicted = if !self.is_full() {
            None
        } else if self.is_blocked(&driver_id, &rule) {
            return Some(item);
        } else if let Some(evicted) = self.evict() {
            Some(evicted.item)
        } else {
            return Some(item);
        };
        self.insert((driver_id, rule), item, now, false);
        evicted
    }

    /// Enqueues a delivery that is never dropped, however many wait.
    pub(super) fn keep(&mut self, driver_id: String, rule: Rule, item: T, now: Instant) {
        self.insert((driver_id, rule), item, now, true);
    }

    fn insert(&mut self, (driver_id, rule): (String, Rule), item: T, now: Instant, is_kept: bool) {
        let waiting = Waiting {
            item,
            is_kept,
            driver_id: driver_id.clone(),
            rule,
            prospect: Prospect::Sound,
            tried_since: None,
            pause: RETRY_PAUSE_MIN,
            has_failed: false,
        };
        self.count += usize::from(!is_kept);
        let droppable = usize::from(!is_kept);
        match self.lanes.get_mut(&driver_id) {
            Some(lane) => {
                lane.waiting.push_back(waiting);
                lane.droppable += droppable;
                self.update_evictable(&driver_id);
            }
            None => {
                let lane = Lane { waiting: VecDeque::from([waiting]), droppable, due: None };
                self.lanes.insert(driver_id.clone(), lane);
                self.schedule(&driver_id, now);
            }
        }
    }

    /// Removes and returns the driver's waiting deliveries for which `is_older` returns true, and
    /// enqueues `item` behind all others of the driver. `item` inherits the failures of the oldest
    /// removed one, because a receiver that refuses both must not get more attempts. If there is no
    /// delivery to remove, changes nothing and returns `item` as an error. `is_kept`: `item` is
    /// never dropped.
    pub(super) fn replace(
        &mut self,
        (driver_id, rule): (&str, Rule),
        item: T,
        is_kept: bool,
        now: Instant,
        is_older: impl Fn(&T, &T) -> bool,
    ) -> Result<Vec<T>, T> {
        let Some(lane) = self.lanes.get_mut(driver_id) else { return Err(item) };
        let is_first_older = lane.waiting.front().is_some_and(|first| is_older(&first.item, &item));
        let (older, others) = std::mem::take(&mut lane.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|waiting| is_older(&waiting.item, &item));
        lane.waiting = others;
        let mut older = older.into_iter();
        let Some(mut waiting) = older.next() else { return Err(item) };
        let mut removed = vec![std::mem::replace(&mut waiting.item, item)];
        for count in [&mut self.count, &mut lane.droppable] {
            *count -= usize::from(!waiting.is_kept);
            *count += usize::from(!is_kept);
        }
        (waiting.rule, waiting.is_kept) = (rule, is_kept);
        lane.waiting.push_back(waiting);
        let has_next_failed = lane.waiting.front().is_some_and(|first| first.has_failed);
        for waiting in older {
            self.forget(&waiting);
            removed.push(waiting.item);
        }
        // The lane has another first delivery now. If that delivery has failed, keep the lane's due
        // time, so that the pause of that delivery lasts.
        if is_first_older && let Some((at, _)) = self.unschedule(driver_id) {
            self.schedule(driver_id, if has_next_failed { at } else { now });
        } else {
            self.update_evictable(driver_id);
        }
        Ok(removed)
    }

    /// Returns when the next delivery of this prospect is due.
    pub(super) fn next_at(&self, prospect: Prospect) -> Option<Instant> {
        self.due(prospect).first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns whether a delivery of this prospect is due.
    pub(super) fn is_due(&self, prospect: Prospect, now: Instant) -> bool {
        self.next_at(prospect).is_some_and(|at| at <= now)
    }

    /// Returns the prospects in the order in which their deliveries are taken: sound ones first,
    /// except at every eighth turn. Without that exception, the others would never leave while
    /// sound ones are always due. Of the other two prospects, the one whose first delivery has been
    /// due for longer comes first.
    pub(super) fn preferred(&self) -> [Prospect; 3] {
        let first_due = |prospect| self.due(prospect).first_key_value().map(|(due_at, _)| *due_at);
        let mut suspect = [Prospect::Doubtful, Prospect::Failed];
        if let (Some(doubtful), Some(failed)) = (first_due(suspect[0]), first_due(suspect[1]))
            && failed < doubtful
        {
            suspect.reverse();
        }
        if self.turn + 1 == TURNS {
            [suspect[0], suspect[1], Prospect::Sound]
        } else {
            [Prospect::Sound, suspect[0], suspect[1]]
        }
    }

    /// Removes and returns the delivery of this prospect that has been due for longest. No other
    /// delivery of its driver is returned until [`Self::succeed`], [`Self::give_up`],
    /// [`Self::abandon`], [`Self::retry`] or [`Self::requeue`] is called for it.
    pub(super) fn take(&mut self, prospect: Prospect, now: Instant) -> Option<Waiting<T>> {
        while self.is_due(prospect, now) {
            let driver_id = self.due(prospect).first_key_value()?.1.clone();
            let (at, _) = self.unschedule(&driver_id)?;
            let lane = self.lanes.get_mut(&driver_id)?;
            let rule = lane.waiting.front().map(|first| &first.rule);
            if let Some(limit) = rule.and_then(|rule| self.failing.get(rule)) {
                let resumes_at = limit.as_ref().map(|limit| limit.resumes_at);
                let later = resumes_at.filter(|resumes_at| *resumes_at > now);
                if later.is_some() || prospect == Prospect::Sound {
                    // The rule began to fail, or to be limited, while the delivery waited.
                    self.schedule(&driver_id, later.unwrap_or(at));
                    continue;
                }
            }
            let mut first = lane.waiting.pop_front()?;
            first.prospect = prospect;
            first.tried_since.get_or_insert(now);
            self.turn = (self.turn + 1) % TURNS;
            self.forget(&first);
            return Some(first);
        }
        None
    }

    /// Ends a delivery that succeeded.
    pub(super) fn succeed(&mut self, done: &Waiting<T>, now: Instant) {
        self.failing.remove(&done.rule);
        self.give_up(done, now);
    }

    /// Ends a delivery that will not be tried again.
    pub(super) fn give_up(&mut self, done: &Waiting<T>, now: Instant) {
        self.schedule(&done.driver_id, now);
    }

    /// Ends a delivery that failed and will not be tried again. The next one of its rule is
    /// doubtful; the next one of its driver is due at `not_before`.
    pub(super) fn abandon(&mut self, failed: &Waiting<T>, not_before: Instant) {
        self.mark_failing(&failed.rule);
        self.give_up(failed, not_before);
    }

    /// Marks a rule as failing, and returns its limit; `None` if too many rules fail.
    fn mark_failing(&mut self, rule: &Rule) -> Option<&mut Option<Limit>> {
        if self.failing.len() >= Self::FAILING_MAX && !self.failing.contains_key(rule) {
            return None;
        }
        Some(self.failing.entry(rule.clone()).or_default())
    }

    /// Delays the deliveries of a rule whose rate the receiver limits. The delay is `time`, or, if
    /// longer, a pause that doubles until one of them is accepted. Returns when the failed delivery
    /// may be tried again. Usually that is before the other deliveries of its rule. It is after
    /// them if no delivery of the rule was accepted since the previous limit, because the limit may
    /// then concern its driver alone.
    pub(super) fn limit(&mut self, failed: &Waiting<T>, now: Instant, time: Duration) -> Instant {
        let Some(limit) = self.mark_failing(&failed.rule) else { return now + time };
        let next = Limit::next(limit.take(), now, time);
        let limit = limit.insert(next);
        let extra = if limit.is_repeated { RETRY_PAUSE_MIN } else { Duration::ZERO };
        limit.resumes_at + extra
    }

    /// Puts a failed delivery back in front of its driver's later ones. It is due after its pause,
    /// and not before `not_before`. Does not mark its rule as failing.
    pub(super) fn requeue(&mut self, mut failed: Waiting<T>, now: Instant, not_before: Instant) {
        let at = not_before.max(now + failed.pause);
        failed.pause = RETRY_PAUSE_MAX.min(failed.pause * 2);
        failed.has_failed = true;
        let driver_id = failed.driver_id.clone();
        if let Some(lane) = self.lanes.get_mut(&driver_id) {
            for count in [&mut self.count, &mut lane.droppable] {
                *count += usize::from(!failed.is_kept);
            }
            lane.waiting.push_front(failed);
            self.failed += 1;
        }
        self.schedule(&driver_id, at);
    }

    /// Puts a failed delivery back as [`Self::requeue`] does, and marks its rule as failing.
    pub(super) fn retry(&mut self, failed: Waiting<T>, now: Instant, not_before: Instant) {
        self.mark_failing(&failed.rule);
        self.requeue(failed, now, not_before);
    }

    /// Returns whether a full channel may take another delivery in place of one that waits behind a
    /// failure: some lane has failed, and none is doubtful. The first delivery of a doubtful lane
    /// has not failed yet, and may succeed.
    pub(super) fn can_evict(&self) -> bool {
        self.doubtful.is_empty() && !self.failed_lanes.is_empty()
    }

    /// Removes and returns a delivery that waits behind a failure and may be dropped: the newest
    /// one of the last lane in `evictable`. Returns `None` if there is none.
    fn evict(&mut self) -> Option<Waiting<T>> {
        let driver_id = self.evictable.last_key_value()?.1.clone();
        let waiting = &mut self.lanes.get_mut(&driver_id)?.waiting;
        let index = waiting.iter().rposition(|waiting| !waiting.is_kept)?;
        let evicted = waiting.remove(index)?;
        self.forget(&evicted);
        if index == 0 {
            // The lane's new first delivery may have another prospect.
            let (at, _) = self.unschedule(&driver_id)?;
            self.schedule(&driver_id, at);
        } else {
            self.update_evictable(&driver_id);
        }
        Some(evicted)
    }

    /// Subtracts a delivery that does not wait any more from the counts.
    fn forget(&mut self, removed: &Waiting<T>) {
        self.failed -= usize::from(removed.has_failed);
        if !removed.is_kept {
            self.count -= 1;
            if let Some(lane) = self.lanes.get_mut(&removed.driver_id) {
                lane.droppable -= 1;
            }
        }
    }

    /// Adds the lane to the evictable ones, or removes it from them.
    fn update_evictable(&mut self, driver_id: &str) {
        let Some(lane) = self.lanes.get(driver_id) else { return };
        let Some((prospect, due_at)) = lane.due else { return };
        let key = (prospect == Prospect::Failed, due_at);
        if lane.droppable > 0 && prospect != Prospect::Sound {
            self.evictable.insert(key, driver_id.to_owned());
        } else {
            self.evictable.remove(&key);
        }
    }

    /// Removes a lane from the schedule. Returns when it was due; `None` if it was not scheduled.
    fn unschedule(&mut self, driver_id: &str) -> Option<DueAt> {
        let (prospect, due_at) = self.lanes.get_mut(driver_id)?.due.take()?;
        self.due_mut(prospect).remove(&due_at);
        self.evictable.remove(&(prospect == Prospect::Failed, due_at));
        Some(due_at)
    }

    /// Schedules the first delivery of a lane, or removes the lane if none waits.
    fn schedule(&mut self, driver_id: &str, at: Instant) {
        let Some(lane) = self.lanes.get_mut(driver_id) else { return };
        let Some(first) = lane.waiting.front() else {
            self.lanes.remove(driver_id);
            return;
        };
        let prospect = if first.has_failed {
            Prospect::Failed
        } else if self.failing.contains_key(&first.rule) {
            Prospect::Doubtful
        } else {
            Prospect::Sound
        };
        self.scheduled += 1;
        let due_at = (at, self.scheduled);
        lane.due = Some((prospect, due_at));
        self.due_mut(prospect).insert(due_at, driver_id.to_owned());
        self.update_evictable(driver_id);
    }

    fn due(&self, prospect: Prospect) -> &BTreeMap<DueAt, String> {
        match prospect {
            Prospect::Sound => &self.sound,
            Prospect::Doubtful => &self.doubtful,
            Prospect::Failed => &self.failed_lanes,
        }
    }

    fn due_mut(&mut self, prospect: Prospect) -> &mut BTreeMap<DueAt, String> {
        match prospect {
            Prospect::Sound => &mut self.sound,
            Prospect::Doubtful => &mut self.doubtful,
            Prospect::Failed => &mut self.failed_lanes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(fence: &str) -> Rule {
        (Kind::Entered, fence.to_owned())
    }

    fn names(taken: &[Waiting<u32>]) -> Vec<(&str, u32)> {
        taken.iter().map(|waiting| (&*waiting.driver_id, waiting.item)).collect()
    }

    /// Takes and ends every delivery of this prospect that is due.
    fn deliver(lanes: &mut Lanes<u32>, prospect: Prospect, now: Instant) -> Vec<Waiting<u32>> {
        let take = || {
            let taken = lanes.take(prospect, now)?;
            lanes.give_up(&taken, now);
            Some(taken)
        };
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn failed_delivery_delays_only_later_ones_of_its_driver() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for (driver_id, n) in [("p", 1), ("p", 2), ("a", 1), ("a", 2), ("b", 1)] {
            lanes.push(driver_id.to_owned(), rule(driver_id), n, now);
        }
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        assert_eq!(
            (lanes.len(), lanes.has_failed(), lanes.is_blocked("p", &rule("p"))),
            (5, true, true)
        );
        let sound = deliver(&mut lanes, Prospect::Sound, now);
        assert_eq!(names(&sound), [("a", 1), ("b", 1), ("a", 2)]);
        assert_eq!(lanes.next_at(Prospect::Failed), Some(now + RETRY_PAUSE_MIN));
        let later = now + RETRY_PAUSE_MIN;
        let again = lanes.take(Prospect::Failed, later).unwrap();
        assert_eq!((again.item, again.pause), (1, 2 * RETRY_PAUSE_MIN));
        assert!(lanes.take(Prospect::Failed, later).is_none());
        lanes.succeed(&again, later);
        assert_eq!(names(&deliver(&mut lanes, Prospect::Sound, later)), [("p", 2)]);
        assert!(lanes.lanes.is_empty());
    }

    #[test]
    fn deliveries_of_a_failing_rule_are_doubtful_until_one_succeeds() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for (driver_id, fence) in [("a", "bad"), ("b", "bad"), ("c", "good")] {
            lanes.push(driver_id.to_owned(), rule(fence), 1, now);
        }
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now + RETRY_PAUSE_MAX);
        assert_eq!(names(&deliver(&mut lanes, Prospect::Sound, now)), [("c", 1)]);
        let other = lanes.take(Prospect::Doubtful, now).unwrap();
        assert_eq!(other.driver_id, "b");
        lanes.succeed(&other, now);
        lanes.push("d".to_owned(), rule("bad"), 1, now);
        assert_eq!(names(&deliver(&mut lanes, Prospect::Sound, now)), [("d", 1)]);
        assert_eq!(lanes.next_at(Prospect::Failed), Some(now + RETRY_PAUSE_MAX));
    }

    #[test]
    fn requeued_delivery_makes_no_other_one_doubtful() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for driver_id in ["a", "b"] {
            lanes.push(driver_id.to_owned(), rule("yard"), 1, now);
        }
        let cut = lanes.take(Prospect::Sound, now).unwrap();
        lanes.requeue(cut, now, now);
        assert_eq!((lanes.has_failed(), lanes.is_blocked("a", &rule("yard"))), (true, true));
        assert_eq!(names(&deliver(&mut lanes, Prospect::Sound, now)), [("b", 1)]);
    }

    /// A limit of one driver must not delay the others of its rule for ever.
    #[test]
    fn delivery_that_is_limited_again_goes_behind_the_others_of_its_rule() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for driver_id in ["p", "q"] {
            lanes.push(driver_id.to_owned(), rule("yard"), 1, now);
        }
        let take = |lanes: &mut Lanes<u32>, at| {
            lanes.preferred().into_iter().find_map(|prospect| lanes.take(prospect, at))
        };
        let mut at = now;
        for pause in [1, 2] {
            let p = take(&mut lanes, at).unwrap();
            assert_eq!(p.driver_id, "p");
            let not_before = lanes.limit(&p, at, Duration::ZERO);
            lanes.retry(p, at, not_before);
            assert!(take(&mut lanes, at).is_none());
            at += Duration::from_secs(pause);
            assert_eq!(lanes.next_at(Prospect::Doubtful), Some(at));
        }
        let q = take(&mut lanes, at).unwrap();
        assert_eq!(q.driver_id, "q");
        lanes.succeed(&q, at);
        assert_eq!(lanes.next_at(Prospect::Failed), Some(at + RETRY_PAUSE_MIN));
    }

    #[test]
    fn one_of_eight_deliveries_is_not_sound_while_sound_ones_are_due() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for n in 0..40 {
            lanes.push(format!("d{n}"), rule(if n < 2 { "bad" } else { "good" }), n, now);
        }
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        let later = now + RETRY_PAUSE_MIN;
        let take = || {
            let taken = lanes.preferred().into_iter().find_map(|p| lanes.take(p, later))?;
            lanes.give_up(&taken, later);
            Some(taken.item)
        };
        let taken: Vec<u32> = std::iter::from_fn(take).collect();
        // Delivery 0 has failed, and 1 has its rule: each leaves at an eighth turn.
        let expected: Vec<u32> = (2..8).chain([1]).chain(8..15).chain([0]).chain(15..40).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn newest_delivery_behind_a_failure_is_evicted_first() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for (driver_id, n) in [("p", 1), ("p", 2), ("a", 1)] {
            lanes.push(driver_id.to_owned(), rule(driver_id), n, now);
        }
        assert!(lanes.evict().is_none());
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        assert_eq!(lanes.evict().map(|evicted| evicted.item), Some(2));
        assert_eq!(lanes.evict().map(|evicted| evicted.item), Some(1));
        assert!(lanes.evict().is_none() && !lanes.has_failed());
        assert_eq!((lanes.len(), lanes.lanes.len()), (1, 1));
    }

    #[test]
    fn full_lanes_drop_deliveries_behind_a_failure_first() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for n in 0..10_000 {
            assert_eq!(lanes.push("p".to_owned(), rule("p"), n, now), None);
        }
        assert_eq!(lanes.push("a".to_owned(), rule("a"), 1, now), Some(1)); // none has failed
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        assert_eq!(lanes.push("p".to_owned(), rule("p"), 10_000, now), Some(10_000));
        assert_eq!(lanes.push("a".to_owned(), rule("a"), 1, now), Some(9_999));
        assert_eq!(names(&deliver(&mut lanes, Prospect::Sound, now)), [("a", 1)]);
        assert_eq!(lanes.len(), WAITING_MAX - 1);
    }

    #[test]
    fn new_delivery_of_a_failing_rule_is_dropped_by_full_lanes() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for n in 0..10_000 {
            assert_eq!(lanes.push("p".to_owned(), rule("p"), n, now), None);
        }
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        assert_eq!(lanes.push("a".to_owned(), rule("p"), 10_001, now), Some(10_001));
        assert_eq!(lanes.push("a".to_owned(), rule("a"), 10_002, now), Some(9_999));
    }

    #[test]
    fn full_lanes_never_drop_a_kept_delivery() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        lanes.push("p".to_owned(), rule("p"), 0, now);
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        for n in 1..10_000 {
            assert_eq!(lanes.push("p".to_owned(), rule("p"), n, now), None);
        }
        for driver_id in ["p", "q"] {
            lanes.keep(driver_id.to_owned(), rule("p"), 20_000, now);
        }
        assert!(lanes.is_full() && lanes.len() == WAITING_MAX);
        let evicted = std::iter::from_fn(|| lanes.evict().map(|evicted| evicted.item));
        assert!(evicted.eq((0..10_000).rev()));
        assert_eq!((lanes.len(), lanes.has_failed()), (0, false));
        let later = now + RETRY_PAUSE_MIN;
        assert_eq!(
            names(&deliver(&mut lanes, Prospect::Doubtful, later)),
            [("q", 20_000), ("p", 20_000)]
        );
    }

    /// The time of an eviction must not grow with the number of lanes that have no delivery to
    /// drop.
    #[test]
    fn evictable_lanes_are_those_with_a_delivery_that_may_be_dropped() {
        let (mut now, mut lanes, mut random) = (Instant::now(), Lanes::default(), 1_u64);
        for n in 0..20_000 {
            let mut below = |bound: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % bound
            };
            let (driver_id, rule) = (format!("d{}", below(9)), rule(&below(4).to_string()));
            match below(9) {
                0..=2 => drop(lanes.push(driver_id, rule, n, now)),
                3 => lanes.keep(driver_id, rule, n, now),
                4 => {
                    let is_older = |older: &u32, newer: &u32| older % 4 == newer % 4;
                    let _ = lanes.replace((&driver_id, rule), n, below(2) == 0, now, is_older);
                }
                5 => drop(lanes.evict()),
                6 => now += Duration::from_millis(below(9_000)),
                _ => {
                    let next = lanes.preferred().into_iter().find_map(|p| lanes.take(p, now));
                    let Some(next) = next else { continue };
                    match below(4) {
                        0 => lanes.succeed(&next, now),
                        1 => lanes.requeue(next, now, now),
                        2 => lanes.retry(next, now, now),
                        _ => lanes.abandon(&next, now),
                    }
                }
            }
            let expected = lanes.lanes.iter().filter_map(|(driver_id, lane)| {
                let (prospect, due_at) = lane.due.filter(|due| due.0 != Prospect::Sound)?;
                let is_evictable = lane.waiting.iter().any(|waiting| !waiting.is_kept);
                let key = (prospect == Prospect::Failed, due_at);
                is_evictable.then(|| (key, driver_id.clone()))
            });
            assert_eq!(lanes.evictable, expected.collect::<BTreeMap<_, _>>(), "{n}");
        }
    }

    #[test]
    fn replaced_delivery_goes_behind_the_others_of_its_driver() {
        let (now, mut lanes) = (Instant::now(), Lanes::default());
        for n in [10, 20, 30] {
            lanes.push("p".to_owned(), rule("p"), n, now);
        }
        let failed = lanes.take(Prospect::Sound, now).unwrap();
        lanes.retry(failed, now, now);
        let replace = |lanes: &mut Lanes<u32>, driver_id, item| {
            let is_of_topic = |older: &u32, newer: &u32| older / 10 == newer / 10;
            lanes.replace((driver_id, rule("q")), item, false, now, is_of_topic)
        };
        assert_eq!(replace(&mut lanes, "p", 40), Err(40));
        assert_eq!(replace(&mut lanes, "q", 11), Err(11));
        assert_eq!(replace(&mut lanes, "p", 21), Ok(vec![20]));
        assert_eq!(lanes.next_at(Prospect::Sound), None);
        assert_eq!(replace(&mut lanes, "p", 11), Ok(vec![10]));
        assert_eq!((lanes.len(), lanes.has_failed()), (3, true));
        assert_eq!(lanes.next_at(Prospect::Doubtful), Some(now));
        let (mut taken, at) = (Vec::new(), now);
        while let Some(next) = lanes.preferred().into_iter().find_map(|p| lanes.take(p, at)) {
            lanes.succeed(&next, at);
            taken.push((next.item, next.has_failed));
        }
        assert_eq!(taken, [(30, false), (21, false), (11, true)]);
    }
}
