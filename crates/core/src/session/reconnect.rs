//! The backoff after a connection ended, and the cause that the log and `/readyz` report meanwhile.
//!
//! Guarantee: the delay before the next attempt is at most a third of the session expiry.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::events::SessionNotice;
use crate::throttle::{ReasonThrottle, Throttle};

/// First delay before a reconnect. It doubles up to [`BACKOFF_MAX`]; jitter shortens it by up to
/// half.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Upper limit of the backoff. The delay after a takeover is longer.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Upper limit of the backoff while leaving, because the grace period is short.
const LEAVING_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Delay after another client connected with our client id. That is a configuration error, and each
/// connection of ours disconnects the other client (MQTT-3.1.4-3).
const TAKEN_OVER_DELAY: Duration = Duration::from_secs(30);
/// Every delay is at most the session expiry divided by this number. So even after a failed
/// attempt, another attempt follows before the broker ends the session.
const DELAYS_PER_EXPIRY: u32 = 3;
/// After a connection that was subscribed for at least this long, the next delay starts from the
/// minimum. A connection that ended earlier counts as short.
const GOOD_CONNECTION: Duration = Duration::from_secs(10);
/// After this many short connections, with no long one between them, the log names the likely
/// cause.
const SHORT_CONNECTIONS_MAX: u32 = 3;
/// Minimum interval between log lines with the same reason.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The end of a connection, or of an attempt to connect.
pub(super) struct ConnectionEnd {
    /// Time for which the connection was subscribed; `None` if it never was.
    pub(super) live_for: Option<Duration>,
    /// Another client connected with our client id.
    pub(super) taken_over: bool,
    /// The process is shutting down.
    pub(super) leaving: bool,
    /// The cause, for the log and `/readyz`.
    pub(super) why: String,
}

/// The failures of a session's connections, and the delays that follow from them.
#[derive(Debug)]
pub(super) struct Reconnect {
    /// Consecutive connections that ended within [`GOOD_CONNECTION`] of their subscription, or were
    /// never subscribed.
    pub(super) failures: u32,
    /// Number of connections among `failures` that were subscribed and not taken over.
    short_connections: u32,
    /// Why there is no connection, and since when. `None` while subscribed, and before the first
    /// failure.
    why: Option<(String, Instant)>,
    /// The last connection ended because another client took the session over. Reset by the next
    /// CONNACK: the session is ours again.
    pub(super) taken_over: bool,
    /// Number of connections that ended because another client took the session over.
    pub(super) takeovers: u64,
    /// Limits the log lines about lost connections: one per reason and [`LOGGED_EVERY`]. A granted
    /// subscription resets the limit while `short_connections` is below [`SHORT_CONNECTIONS_MAX`].
    log: ReasonThrottle,
    /// Limits log lines about successful connections, after [`SHORT_CONNECTIONS_MAX`] short
    /// connections.
    success_log: Throttle,
    /// The CONNACK and the granted subscription of the current connection are logged.
    logs_success: bool,
    /// Upper limit of every delay, see [`DELAYS_PER_EXPIRY`].
    delay_max: Duration,
    jitter: fastrand::Rng,
}

impl Reconnect {
    pub(super) fn new(session_expiry: Duration, seed: u64) -> Self {
        Self {
            failures: 0,
            short_connections: 0,
            why: None,
            taken_over: false,
            takeovers: 0,
            log: ReasonThrottle::every(LOGGED_EVERY),
            success_log: Throttle::every(LOGGED_EVERY),
            logs_success: true,
            delay_max: session_expiry / DELAYS_PER_EXPIRY,
            jitter: fastrand::Rng::with_seed(seed),
        }
    }

    /// Sets how long the broker keeps the session without a connection.
    pub(super) fn set_session_expiry(&mut self, session_expiry: Duration) {
        self.delay_max = session_expiry / DELAYS_PER_EXPIRY;
    }

    /// Returns whether another client seems to use the session: the broker reported a takeover, or
    /// repeatedly closed connections soon after it had granted the subscription.
    pub(super) fn is_contested(&self) -> bool {
        self.taken_over || self.short_connections >= SHORT_CONNECTIONS_MAX
    }

    /// Records a granted subscription. Returns whether to log it.
    pub(super) fn record_subscribed(&mut self) -> bool {
        self.why = None;
        if self.short_connections < SHORT_CONNECTIONS_MAX {
            self.log.reset();
        }
        self.logs_success
    }

    /// Records a CONNACK. Returns whether to log it. After [`SHORT_CONNECTIONS_MAX`] short
    /// connections, a CONNACK is logged at most once per [`LOGGED_EVERY`], and once after each
    /// logged failure.
    pub(super) fn record_connected(&mut self, now: Instant) -> bool {
        self.taken_over = false;
        self.logs_success =
            self.short_connections < SHORT_CONNECTIONS_MAX || self.success_log.allow(now);
        self.logs_success
    }

    /// Records the end of a connection or attempt. Returns the time of the next attempt.
    pub(super) fn record_end(
        &mut self,
        end: ConnectionEnd,
        now: Instant,
        notices: &mut VecDeque<SessionNotice>,
    ) -> Instant {
        let ConnectionEnd { live_for, taken_over, leaving, why } = end;
        self.count_failure(live_for, taken_over, notices);
        let delay = if taken_over { TAKEN_OVER_DELAY } else { self.backoff(leaving) };
        let retry_in = delay.min(self.delay_max);
        let notice = if taken_over {
            SessionNotice::TakenOver { retry_in }
        } else {
            SessionNotice::Disconnected { why: why.clone(), retry_in }
        };
        let why = if taken_over { notice.to_string() } else { why };
        if live_for.is_some_and(|live_for| live_for >= GOOD_CONNECTION) {
            self.log.reset();
        }
        if self.log.allow(&why, now) {
            notices.push_back(notice);
            // Log the next success too, so that the log does not end with a past failure.
            self.success_log.reset();
        }
        self.taken_over = taken_over;
        self.takeovers += u64::from(taken_over);
        let since = self.why.take().map_or(now, |(_, since)| since);
        self.why = Some((why, since));
        now + retry_in
    }

    /// Counts consecutive failures, and short connections. If the broker repeatedly closes
    /// connections soon after SUBACK, it may not send a reason, so the log names the likely one.
    fn count_failure(
        &mut self,
        live_for: Option<Duration>,
        taken_over: bool,
        notices: &mut VecDeque<SessionNotice>,
    ) {
        if live_for.is_some_and(|live_for| live_for >= GOOD_CONNECTION) {
            (self.failures, self.short_connections) = (0, 0);
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if live_for.is_none() || taken_over {
            return;
        }
        self.short_connections = self.short_connections.saturating_add(1);
        if self.short_connections == SHORT_CONNECTIONS_MAX {
            notices.push_back(SessionNotice::ClosedSoon { times: self.short_connections });
        }
    }

    /// Returns the next delay: exponential, with jitter, so that members that lost the broker at
    /// the same moment do not all reconnect at the same moment.
    fn backoff(&mut self, leaving: bool) -> Duration {
        let doubled = BACKOFF_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        doubled
            .min(if leaving { LEAVING_BACKOFF_MAX } else { BACKOFF_MAX })
            .mul_f64(0.5 + self.jitter.f64() / 2.0)
    }

    /// Returns why there is no connection or, after several short connections, why the current one
    /// may not last either; `None` if the connection is in order. `live_since`: when the
    /// subscription of the current connection was granted.
    pub(super) fn unready_reason(
        &self,
        live_since: Option<Instant>,
        now: Instant,
    ) -> Option<String> {
        let Some(since) = live_since else {
            let Some((why, since)) = &self.why else {
                return Some("not subscribed yet".to_owned());
            };
            let seconds = now.saturating_duration_since(*since).as_secs();
            return Some(format!("no connection for {seconds} s: {why}"));
        };
        let is_doubtful =
            self.short_connections >= SHORT_CONNECTIONS_MAX && now < since + GOOD_CONNECTION;
        is_doubtful.then(|| SessionNotice::ClosedSoon { times: self.short_connections }.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn end(live_for: Option<Duration>, why: &str) -> ConnectionEnd {
        ConnectionEnd { live_for, taken_over: false, leaving: false, why: why.to_owned() }
    }

    #[test]
    fn reconnect_reason_is_logged_once_a_minute_or_when_it_changes() {
        let (began, mut reconnect, mut notices) =
            (Instant::now(), Reconnect::new(120 * SECOND, 1), VecDeque::new());
        let mut logs = |reconnect: &mut Reconnect, why, second| {
            reconnect.record_end(end(None, why), began + SECOND * second, &mut notices);
            notices.drain(..).count()
        };
        let logged = [("a", 0), ("a", 1), ("b", 2), ("b", 61), ("b", 62), ("a", 63)]
            .map(|(why, second)| logs(&mut reconnect, why, second));
        assert_eq!(logged, [1, 0, 1, 0, 1, 1]);
        assert_eq!(
            reconnect.unready_reason(None, began + 70 * SECOND),
            Some("no connection for 70 s: a".to_owned()),
            "the time counts from the end of the connection"
        );
        reconnect.record_subscribed();
        assert_eq!(reconnect.unready_reason(None, began), Some("not subscribed yet".to_owned()));
        assert_eq!(logs(&mut reconnect, "a", 64), 1, "logged again after a success");
    }

    #[test]
    fn reconnect_delays_double_until_a_connection_lasts() {
        let (now, mut reconnect, mut notices) =
            (Instant::now(), Reconnect::new(120 * SECOND, 1), VecDeque::new());
        for doubled in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000] {
            let delay = reconnect.record_end(end(None, "away"), now, &mut notices) - now;
            let bound = Duration::from_millis(doubled);
            assert!(delay <= bound && delay >= bound / 2, "{delay:?} of {bound:?}");
        }
        assert_eq!(reconnect.failures, 7);
        reconnect.record_end(end(Some(GOOD_CONNECTION), "closed"), now, &mut notices);
        assert_eq!(reconnect.failures, 0);
        notices.clear();
        for times in 1..=4 {
            reconnect.record_end(end(Some(SECOND), "closed"), now, &mut notices);
            let is_reported = notices
                .drain(..)
                .any(|notice| matches!(notice, SessionNotice::ClosedSoon { times: 3 }));
            assert_eq!(is_reported, times == SHORT_CONNECTIONS_MAX);
            let is_doubtful = reconnect.unready_reason(Some(now), now + SECOND).is_some();
            assert_eq!(is_doubtful, times >= SHORT_CONNECTIONS_MAX);
            assert_eq!(reconnect.is_contested(), times >= SHORT_CONNECTIONS_MAX);
        }
        assert!(
            reconnect.unready_reason(Some(now), now + GOOD_CONNECTION).is_none(),
            "the connection has lasted"
        );
        let leaving = ConnectionEnd { leaving: true, ..end(None, "away") };
        assert!(reconnect.record_end(leaving, now, &mut notices) - now <= LEAVING_BACKOFF_MAX);
        let taken_over = ConnectionEnd { taken_over: true, ..end(Some(SECOND), "taken") };
        assert_eq!(reconnect.record_end(taken_over, now, &mut notices) - now, TAKEN_OVER_DELAY);
        assert!(reconnect.taken_over);
    }

    #[test]
    fn short_session_expiry_shortens_reconnect_delays() {
        let (now, mut notices) = (Instant::now(), VecDeque::new());
        let mut reconnect = Reconnect::new(6 * SECOND, 1);
        let taken_over = ConnectionEnd { taken_over: true, ..end(Some(SECOND), "taken") };
        assert_eq!(reconnect.record_end(taken_over, now, &mut notices) - now, 2 * SECOND);
        for _ in 0..9 {
            assert!(reconnect.record_end(end(None, "away"), now, &mut notices) - now <= 2 * SECOND);
        }
    }
}
