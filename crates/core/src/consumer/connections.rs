//! How many sessions a process has: as many as the configuration says, or as the broker's windows ask for. Behind them are
//! visits to [former sessions](super::former).

use std::time::Instant;

use super::former::{CONNECTIONS_MAX, Former};
use crate::session::Session;
use crate::session::events::ConnectionState;

/// `mqtt.connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// As many as fill `window_wanted`.
    Auto,
    /// 0, which no configuration has: only visits to former sessions.
    Fixed(usize),
}

impl Connections {
    /// How many [`Connections::Auto`] opens if `enough` fill the window.
    pub fn auto(enough: usize) -> usize {
        enough.clamp(AUTO_MIN, CONNECTIONS_MAX)
    }
}

/// A session is one process at the broker, and one of them carries some 20,000 messages a second there (EMQX).
const AUTO_MIN: usize = 4;
/// Sessions that `/readyz` names.
const NAMED_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// One more member, with the next id.
    Grow,
    /// A visit to the next index.
    Visit,
}

#[derive(Debug)]
pub(super) struct Growth {
    connections: Connections,
    /// The first `members` sessions; those behind them are visits.
    members: usize,
    at_start: usize,
    pub(super) former: Former,
}

impl Growth {
    pub(super) fn new(connections: Connections) -> Self {
        let at_start = match connections {
            Connections::Auto => AUTO_MIN,
            Connections::Fixed(number) => number,
        };
        Self { connections, members: at_start, at_start, former: Former::new(at_start == 0) }
    }

    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// Sum of the windows, with the average for sessions that are not live.
    pub(super) fn window(&self, sessions: &[Session]) -> usize {
        let live = sessions[..self.members].iter().filter(|session| is_live(session));
        let (sum, count) = live.fold((0, 0), |(sum, count), session| (sum + session.window(), count + 1));
        sum / count.max(1) * self.members
    }

    pub(super) fn is_complete(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.members > 0 && self.have_begun(sessions) && !self.wants_more(sessions, window_wanted)
    }

    /// What to do next. The caller does it before it asks again. `node_without`: some node of the broker has no session. Its new session
    /// waits for that node, so it must not be a former one, whose messages would wait too.
    pub(super) fn step(
        &mut self,
        sessions: &[Session],
        window_wanted: usize,
        node_without: bool,
        nodes: usize,
    ) -> Step {
        if !self.have_begun(sessions) {
            return Step::Nothing;
        }
        let wants_visit = self.former.wants_visit(sessions, self.members, nodes);
        let for_node = node_without && self.former.has_looked() && self.members < CONNECTIONS_MAX;
        if for_node || self.wants_more(sessions, window_wanted) {
            let visited = sessions.get(self.members);
            if visited.is_none_or(|visited| visited.connection() == ConnectionState::Ended) {
                visited.into_iter().for_each(|visited| self.former.becomes_member(visited));
                self.members += 1;
                return Step::Grow;
            }
        }
        if wants_visit { Step::Visit } else { Step::Nothing }
    }

    fn have_begun(&self, sessions: &[Session]) -> bool {
        sessions[..self.at_start].iter().all(is_live)
    }

    fn wants_more(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.connections == Connections::Auto
            && self.members < CONNECTIONS_MAX
            && self.window(sessions) < window_wanted
    }

    /// A line per session that does not consume. A session added later counts once it has been subscribed.
    pub(super) fn unready_reasons(&self, sessions: &[Session], now: Instant) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut unnamed = 0;
        for (index, session) in sessions[..self.members].iter().enumerate() {
            let counts = index < self.at_start || session.has_lived();
            match session.unready_reason(now).filter(|_| counts) {
                Some(why) if reasons.len() < NAMED_MAX => reasons.push(format!("session {index}: {why}")),
                Some(_) => unnamed += 1,
                None => {}
            }
        }
        if unnamed > 0 {
            let s = if unnamed == 1 { "" } else { "s" };
            reasons.push(format!("and {unnamed} more session{s}"));
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
    use crate::session::events::{Event, Settings};

    fn away() -> Session {
        let answer_within = Duration::from_secs(10);
        let session_expiry = Duration::from_secs(120);
        Session::member(Settings { receive_maximum: 100, answer_within, session_expiry, seed: 1 })
    }

    fn live(window: u16) -> Session {
        let (mut session, now) = (away(), Instant::now());
        let connack = ConnAck { receive_maximum: Some(window), ..ConnAck::default() };
        session.handle_event(Event::Connected(connack), now);
        session.handle_event(Event::Subscribed { refusals: Vec::new() }, now);
        session
    }

    #[test]
    fn as_many_sessions_as_fill_the_window_within_bounds() {
        let opened = [0, 1, 4, 5, CONNECTIONS_MAX, CONNECTIONS_MAX + 1].map(Connections::auto);
        assert_eq!(opened, [4, 4, 4, 5, CONNECTIONS_MAX, CONNECTIONS_MAX]);
    }

    #[test]
    fn who_is_away_counts_with_the_window_of_the_others() {
        let of_three = Growth::new(Connections::Fixed(3));
        assert_eq!(of_three.window(&[live(20), away(), live(40)]), 90);
        assert_eq!(of_three.window(&[away(), away(), away()]), 0);
    }

    #[test]
    fn a_session_for_a_node_begins_when_no_former_one_can_have_its_id() {
        let (mut growth, mut sessions) = (Growth::new(Connections::Fixed(1)), vec![live(20)]);
        assert_eq!(growth.step(&sessions, 0, true, 2), Step::Visit);
        sessions.push(away());
        assert_ne!(growth.step(&sessions, 0, true, 2), Step::Grow, "the visit has not ended");
        assert_eq!(growth.members(), 1);
    }
}
