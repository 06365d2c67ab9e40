//! Reports a window that stays full as a line of `/readyz`. While a session's window is full, the
//! broker must not send more messages to the session, so they wait in the broker's queue.

use std::time::{Duration, Instant};

use super::Consumer;

/// Time after which a full window is reported. By then, messages have waited in the broker for
/// about as long.
const REPORTED_AFTER: Duration = Duration::from_secs(10);

impl Consumer {
    /// Returns how long the window of a consuming session has been mostly full: the longest such
    /// time of all consuming sessions.
    /// [`Session::window_full_for`](crate::session::Session::window_full_for) defines "mostly
    /// full".
    pub(super) fn longest_full_window(&self, now: Instant) -> Duration {
        let consuming = &self.sessions[..self.growth.consuming()];
        consuming.iter().map(|session| session.window_full_for(now)).max().unwrap_or_default()
    }

    /// Returns the line of `/readyz` if a window has been full for at least [`REPORTED_AFTER`].
    pub(super) fn window_full_reason(&self, now: Instant) -> Option<String> {
        if self.window_full_for < REPORTED_AFTER {
            return None;
        }
        let consuming = &self.sessions[..self.growth.consuming()];
        let full = consuming
            .iter()
            .filter(|session| session.window_full_for(now) >= REPORTED_AFTER)
            .count();
        let (window, wanted) = (self.growth.window(&self.sessions), self.settings.window_wanted);
        let advice = if window < wanted {
            format!(
                "it takes {wanted} messages in flight to keep every insert slot busy: raise \
                 mqtt.max_inflight to 32000 (EMQX, in the zone of milepost's listener) or \
                 max_inflight_messages (Mosquitto)"
            )
        } else {
            "the window is large enough, so ClickHouse stores less than the broker delivers"
                .to_owned()
        };
        Some(format!(
            "window: full for {} s in {full} of {} sessions ({window} messages in all), so \
             messages wait in the broker; {advice}",
            self.window_full_for.as_secs(),
            consuming.len()
        ))
    }
}
