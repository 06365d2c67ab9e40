//! When to connect again after a connection ended, and what the log and `/readyz` say meanwhile.
//!
//! Guarantee: the next attempt comes long before the broker ends the session.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::events::Notice;
use crate::throttle::{Reasons, Throttle};

/// First delay before a reconnect; doubles up to [`BACKOFF_MAX`], halved at random.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Longest delay before a reconnect.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Longest delay while leaving: the grace is short.
const LEAVING_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Delay when another client took our id: a configuration error, and each attempt throws the other one out.
const TAKEN_OVER_DELAY: Duration = Duration::from_secs(30);
/// The longest delay is the session expiry divided by this, so one attempt may fail before the broker ends the session.
const DELAYS_PER_EXPIRY: u32 = 3;
/// After a connection that lasted this long, the next delay starts from the minimum.
const GOOD_CONNECTION: Duration = Duration::from_secs(10);
/// After this many short connections in a row the log names the likely cause.
const SHORT_LIVES_MAX: u32 = 3;
/// Interval between log lines with the same reason.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// How a connection ended.
pub(super) struct End {
    /// For how long it had been subscribed, if it had been.
    pub(super) lived: Option<Duration>,
    /// By another client with our id.
    pub(super) taken_over: bool,
    /// While we leave.
    pub(super) leaving: bool,
    /// In words.
    pub(super) why: String,
}

#[derive(Debug)]
pub(super) struct Reconnect {
    /// Connections in a row that ended soon, or never began.
    pub(super) failures: u32,
    /// Those among them that had been subscribed.
    short_lives: u32,
    /// Why there is none now, and since when there has been none.
    why: Option<(String, Instant)>,
    pub(super) taken_over: bool,
    /// Why there was none. Once connections end soon, again and again, a reason that comes back is no news.
    log: Reasons,
    /// A connection that may not last, and whether this one is told.
    success_log: Throttle,
    success_is_news: bool,
    delay_max: Duration,
    jitter: fastrand::Rng,
}

impl Reconnect {
    pub(super) fn new(session_expiry: Duration, seed: u64) -> Self {
        Self {
            failures: 0,
            short_lives: 0,
            why: None,
            taken_over: false,
            log: Reasons::every(LOGGED_EVERY),
            success_log: Throttle::every(LOGGED_EVERY),
            success_is_news: true,
            delay_max: session_expiry / DELAYS_PER_EXPIRY,
            jitter: fastrand::Rng::with_seed(seed),
        }
    }

    /// The broker keeps the session for so long while it is not connected.
    pub(super) fn session_lasts(&mut self, session_expiry: Duration) {
        self.delay_max = session_expiry / DELAYS_PER_EXPIRY;
    }

    /// Another client uses the session: the broker said so, or keeps closing what it had just accepted.
    pub(super) fn is_contested(&self) -> bool {
        self.taken_over || self.short_lives >= SHORT_LIVES_MAX
    }

    /// Subscribed. Returns whether that is news, as the connection was.
    pub(super) fn succeeded(&mut self) -> bool {
        self.why = None;
        if self.short_lives < SHORT_LIVES_MAX {
            self.log.reset();
        }
        self.success_is_news
    }

    /// Whether a connection is news. Those that end soon, again and again, are not.
    pub(super) fn connected(&mut self, now: Instant) -> bool {
        self.success_is_news = self.short_lives < SHORT_LIVES_MAX || self.success_log.allow(now);
        self.success_is_news
    }

    /// A connection ended, or could not begin; returns when the next is tried.
    pub(super) fn failed(&mut self, end: End, now: Instant, notices: &mut VecDeque<Notice>) -> Instant {
        let End { lived, taken_over, leaving, why } = end;
        self.judge(lived, taken_over, notices);
        let delay = if taken_over { TAKEN_OVER_DELAY } else { self.backoff(leaving) };
        let retry_in = delay.min(self.delay_max);
        let notice = if taken_over {
            Notice::TakenOver { retry_in }
        } else {
            Notice::Disconnected { why: why.clone(), retry_in }
        };
        let why = if taken_over { notice.to_string() } else { why };
        if lived.is_some_and(|lived| lived >= GOOD_CONNECTION) {
            self.log.reset();
        }
        if self.log.allow(&why, now) {
            notices.push_back(notice);
            self.success_log.reset(); // or the log would end with this
        }
        self.taken_over = taken_over;
        let since = self.why.take().map_or(now, |(_, since)| since);
        self.why = Some((why, since));
        now + retry_in
    }

    /// A broker that lets us in and closes soon after has a reason that it may not tell.
    fn judge(&mut self, lived: Option<Duration>, taken_over: bool, notices: &mut VecDeque<Notice>) {
        if lived.is_some_and(|lived| lived >= GOOD_CONNECTION) {
            (self.failures, self.short_lives) = (0, 0);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if lived.is_none() || taken_over {
            return;
        }
        self.short_lives = self.short_lives.saturating_add(1);
        if self.short_lives == SHORT_LIVES_MAX {
            notices.push_back(Notice::ClosedSoon { times: self.short_lives });
        }
    }

    fn backoff(&mut self, leaving: bool) -> Duration {
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        doubled
            .min(if leaving { LEAVING_BACKOFF_MAX } else { BACKOFF_MAX })
            .mul_f64(0.5 + self.jitter.f64() / 2.0)
    }

    /// Why there is no connection, or why the one since `live_since` may not last.
    pub(super) fn unready_reason(&self, live_since: Option<Instant>, now: Instant) -> Option<String> {
        let Some(since) = live_since else {
            let Some((why, since)) = &self.why else { return Some("not subscribed yet".to_owned()) };
            let seconds = now.saturating_duration_since(*since).as_secs();
            return Some(format!("no connection for {seconds} s: {why}"));
        };
        let is_doubtful = self.short_lives >= SHORT_LIVES_MAX && now < since + GOOD_CONNECTION;
        is_doubtful.then(|| Notice::ClosedSoon { times: self.short_lives }.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn end(lived: Option<Duration>, why: &str) -> End {
        End { lived, taken_over: false, leaving: false, why: why.to_owned() }
    }

    #[test]
    fn a_reason_is_logged_once_a_minute_and_anew_when_it_is_another_or_came_back() {
        let (began, mut it, mut notices) = (Instant::now(), Reconnect::new(120 * SECOND, 1), VecDeque::new());
        let mut logs = |it: &mut Reconnect, why, second| {
            it.failed(end(None, why), began + SECOND * second, &mut notices);
            notices.drain(..).count()
        };
        let said = [("a", 0), ("a", 1), ("b", 2), ("b", 61), ("b", 62), ("a", 63)]
            .map(|(why, at)| logs(&mut it, why, at));
        assert_eq!(said, [1, 0, 1, 0, 1, 1]);
        assert_eq!(
            it.unready_reason(None, began + 70 * SECOND),
            Some("no connection for 70 s: a".to_owned()),
            "since it is away"
        );
        it.succeeded();
        assert_eq!(it.unready_reason(None, began), Some("not subscribed yet".to_owned()));
        assert_eq!(logs(&mut it, "a", 64), 1, "it came back");
    }

    #[test]
    fn delays_double_until_a_connection_was_good_and_closing_soon_is_told() {
        let (now, mut it, mut notices) = (Instant::now(), Reconnect::new(120 * SECOND, 1), VecDeque::new());
        for doubled in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000] {
            let delay = it.failed(end(None, "away"), now, &mut notices) - now;
            let bound = Duration::from_millis(doubled);
            assert!(delay <= bound && delay >= bound / 2, "{delay:?} of {bound:?}");
        }
        assert_eq!(it.failures, 7);
        it.failed(end(Some(GOOD_CONNECTION), "closed"), now, &mut notices);
        assert_eq!(it.failures, 0);
        notices.clear();
        for times in 1..=4 {
            it.failed(end(Some(SECOND), "closed"), now, &mut notices);
            let told = notices.drain(..).any(|notice| matches!(notice, Notice::ClosedSoon { times: 3 }));
            assert_eq!(told, times == SHORT_LIVES_MAX);
            let doubt = it.unready_reason(Some(now), now + SECOND).is_some();
            assert_eq!(doubt, times >= SHORT_LIVES_MAX);
            assert_eq!(it.is_contested(), times >= SHORT_LIVES_MAX);
        }
        assert!(it.unready_reason(Some(now), now + GOOD_CONNECTION).is_none(), "it lasts");
        let leaving = End { leaving: true, ..end(None, "away") };
        assert!(it.failed(leaving, now, &mut notices) - now <= LEAVING_BACKOFF_MAX);
        let taken_over = End { taken_over: true, ..end(Some(SECOND), "taken") };
        assert_eq!(it.failed(taken_over, now, &mut notices) - now, TAKEN_OVER_DELAY);
        assert!(it.taken_over);
    }

    #[test]
    fn a_session_that_expires_soon_is_sought_sooner() {
        let (now, mut notices) = (Instant::now(), VecDeque::new());
        let mut it = Reconnect::new(6 * SECOND, 1);
        let taken_over = End { taken_over: true, ..end(Some(SECOND), "taken") };
        assert_eq!(it.failed(taken_over, now, &mut notices) - now, 2 * SECOND);
        for _ in 0..9 {
            assert!(it.failed(end(None, "away"), now, &mut notices) - now <= 2 * SECOND);
        }
    }
}
