//! The number of consuming sessions of a process: a fixed number from the configuration, or as many
//! as it takes for their windows to add up to the wanted window. If a node of the broker has no
//! session, one more is added for that node, unless a fixed number is lower than the number of
//! nodes. The sessions after the consuming ones are visits to [former
//! sessions](super::former_sessions).

use std::time::Instant;

use super::former_sessions::{CONNECTIONS_MAX, FormerSessions};
use crate::counted::counted;
use crate::session::Session;
use crate::session::events::ConnectionState;

/// `mqtt.connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// Open sessions until their windows add up to `window_wanted`.
    Auto,
    /// Open this many sessions. `milepost drain` opens 0: it only visits former sessions.
    Fixed(usize),
}

impl Connections {
    /// Returns how many sessions [`Connections::Auto`] opens if the windows of `needed` sessions
    /// are enough: at least [`AUTO_MIN`], and at most [`CONNECTIONS_MAX`].
    pub fn auto(needed: usize) -> usize {
        needed.clamp(AUTO_MIN, CONNECTIONS_MAX)
    }
}

/// Number of sessions that [`Connections::Auto`] starts with. EMQX runs each session as one Erlang
/// process, which carries some 20,000 messages per second.
const AUTO_MIN: usize = 4;
/// Maximum number of sessions that have a `/readyz` line of their own.
const NAMED_MAX: usize = 3;

/// The next step of adding sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthStep {
    Nothing,
    /// Add a consuming session, with the index after the last consuming session. If that index has
    /// a visit, the visit has ended, and its session starts to consume: no new session is created.
    Grow,
    /// Visit the former session whose index follows those of all sessions.
    Visit,
}

/// Decides when a session or a visit is added.
#[derive(Debug)]
pub(super) struct Growth {
    connections: Connections,
    /// Number of consuming sessions. They have the lowest indices; all later sessions are visits.
    consuming: usize,
    /// Number of consuming sessions at the start of the process.
    initial: usize,
    pub(super) former_sessions: FormerSessions,
}

impl Growth {
    pub(super) fn new(connections: Connections) -> Self {
        let initial = match connections {
            Connections::Auto => AUTO_MIN,
            Connections::Fixed(number) => number,
        };
        Self {
            connections,
            consuming: initial,
            initial,
            former_sessions: FormerSessions::new(initial == 0),
        }
    }

    pub(super) fn consuming(&self) -> usize {
        self.consuming
    }

    /// Returns the sum of the windows of all consuming sessions. A session that is not live counts
    /// with the average window of the live sessions.
    pub(super) fn window(&self, sessions: &[Session]) -> usize {
        let live = sessions[..self.consuming].iter().filter(|session| is_live(session));
        let (sum, count) =
            live.fold((0, 0), |(sum, count), session| (sum + session.window(), count + 1));
        sum / count.max(1) * self.consuming
    }

    /// Returns whether no further session will be added to fill the window. `false` while an
    /// initial session is not live, and if no session consumes.
    pub(super) fn is_complete(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.consuming > 0
            && self.initial_are_live(sessions)
            && !self.needs_more(sessions, window_wanted)
    }

    /// Returns the next step. The caller takes this step before it calls again. If the step is
    /// [`GrowthStep::Grow`], [`consuming`](Self::consuming) already includes the new session.
    ///
    /// `nodes`: number of the broker's nodes. `has_unserved_node`: a node of the broker has no
    /// session.
    ///
    /// A session for an unserved node is added only after the search for former sessions. Until it
    /// has reached its node once, it connects to no other node, however long that node is
    /// unreachable. If it had the index of a former session, the former session's messages would
    /// have to wait for that node, too.
    pub(super) fn step(
        &mut self,
        sessions: &[Session],
        window_wanted: usize,
        has_unserved_node: bool,
        nodes: usize,
    ) -> GrowthStep {
        // While an initial session is not live, neither the windows nor the nodes without a session
        // are known.
        if !self.initial_are_live(sessions) {
            return GrowthStep::Nothing;
        }
        let needs_visit = self.former_sessions.advance_search(sessions, self.consuming, nodes);
        let grows_for_node = has_unserved_node
            && self.former_sessions.is_search_complete()
            && self.consuming < CONNECTIONS_MAX;
        if grows_for_node || self.needs_more(sessions, window_wanted) {
            // The next index may be a visit in progress: wait until the visit has ended.
            let visited = sessions.get(self.consuming);
            if visited.is_none_or(|visited| visited.connection() == ConnectionState::Ended) {
                visited.into_iter().for_each(|visited| self.former_sessions.keep_counts(visited));
                self.consuming += 1;
                return GrowthStep::Grow;
            }
        }
        if needs_visit { GrowthStep::Visit } else { GrowthStep::Nothing }
    }

    fn initial_are_live(&self, sessions: &[Session]) -> bool {
        sessions[..self.initial].iter().all(is_live)
    }

    fn needs_more(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.connections == Connections::Auto
            && self.consuming < CONNECTIONS_MAX
            && self.window(sessions) < window_wanted
    }

    /// Returns the lines of `/readyz` about consuming sessions: one line for each of the first
    /// [`NAMED_MAX`] sessions that are not ready, and a line with the number of further such
    /// sessions. A session that was added after the start of the process is skipped until it has
    /// been live once.
    pub(super) fn unready_reasons(&self, sessions: &[Session], now: Instant) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut unnamed = 0_usize;
        for (index, session) in sessions[..self.consuming].iter().enumerate() {
            let is_reported = index < self.initial || session.has_been_live();
            match session.unready_reason(now).filter(|_| is_reported) {
                Some(why) if reasons.len() < NAMED_MAX => {
                    reasons.push(format!("session {index}: {why}"))
                }
                Some(_) => unnamed += 1,
                None => {}
            }
        }
        if unnamed > 0 {
            reasons.push(format!("and {}", counted(unnamed, "more session")));
        }
        reasons
    }
}

fn is_live(session: &Session) -> bool {
    session.connection().live_since().is_some()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::ConnAck;
    use crate::session::events::{SessionConfig, SessionEvent};

    fn disconnected() -> Session {
        let answer_timeout = Duration::from_secs(10);
        let session_expiry = Duration::from_secs(120);
        Session::consuming(SessionConfig {
            receive_maximum: 100,
            answer_timeout,
            session_expiry,
            seed: 1,
        })
    }

    fn live(window: u16) -> Session {
        let (mut session, now) = (disconnected(), Instant::now());
        let connack = ConnAck { receive_maximum: Some(window), ..ConnAck::default() };
        session.handle_event(SessionEvent::Connected(connack), now);
        session.handle_event(SessionEvent::Subscribed { refusals: Vec::new() }, now);
        session
    }

    #[test]
    fn auto_opens_sessions_to_fill_the_window_within_bounds() {
        let opened = [0, 1, 4, 5, CONNECTIONS_MAX, CONNECTIONS_MAX + 1].map(Connections::auto);
        assert_eq!(opened, [4, 4, 4, 5, CONNECTIONS_MAX, CONNECTIONS_MAX]);
    }

    #[test]
    fn disconnected_session_counts_with_the_mean_window() {
        let growth = Growth::new(Connections::Fixed(3));
        assert_eq!(growth.window(&[live(20), disconnected(), live(40)]), 90);
        assert_eq!(growth.window(&[disconnected(), disconnected(), disconnected()]), 0);
    }

    #[test]
    fn no_session_is_added_for_a_node_before_visits_have_ended() {
        let (mut growth, mut sessions) = (Growth::new(Connections::Fixed(1)), vec![live(20)]);
        assert_eq!(growth.step(&sessions, 0, true, 2), GrowthStep::Visit);
        sessions.push(disconnected());
        assert_ne!(growth.step(&sessions, 0, true, 2), GrowthStep::Grow, "the visit has not ended");
        assert_eq!(growth.consuming(), 1);
    }
}
