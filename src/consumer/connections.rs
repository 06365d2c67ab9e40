//! How many sessions a process has: as many as the configuration says, or as the broker's windows ask for. And visits to
//! sessions that an earlier run may have left behind.

use std::time::Instant;

use crate::session::Session;
use crate::session::events::ConnectionState;

/// `mqtt.connections`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// As many as the learned windows ask for.
    Auto,
    /// 0, which no configuration has: only visits to sessions that others have left behind.
    Fixed(usize),
}

impl Connections {
    /// How many [`Connections::Auto`] becomes where so many would do.
    #[must_use]
    pub(crate) fn auto(enough: usize) -> usize {
        enough.clamp(AUTO_MIN, CONNECTIONS_MAX)
    }
}

/// A session is one process at the broker, and one of them carries some 20,000 messages a second there (EMQX).
const AUTO_MIN: usize = 4;
/// More would not help: a broker whose window is that small is not made for this.
pub const CONNECTIONS_MAX: usize = 64;
/// Behind so many ids without a session there are no more.
const ABSENT_MAX: u32 = 3;
/// Troubles of so many sessions are told one by one.
const TOLD_MAX: usize = 3;

/// What to do about the number of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// One more member, with the next id.
    Grow,
    /// A visit to the next id that is nobody's.
    Visit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visits {
    /// So many ids in a row had no session; the visit to the last one may be under way.
    Looking {
        absent: u32,
        visiting: bool,
    },
    Done,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Growth {
    connections: Connections,
    /// The first so many sessions are members; those behind them are visits.
    members: usize,
    at_start: usize,
    visits: Visits,
}

impl Growth {
    pub(super) fn new(connections: Connections) -> Self {
        let at_start = match connections {
            Connections::Auto => AUTO_MIN,
            Connections::Fixed(number) => number,
        };
        Self {
            connections,
            members: at_start,
            at_start,
            visits: Visits::Looking { absent: 0, visiting: false },
        }
    }

    /// Members there are.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// Their windows together, as if those that are not there yet had what the others have.
    pub(super) fn window(&self, sessions: &[Session]) -> usize {
        let live = sessions[..self.members].iter().filter(|session| is_live(session));
        let (sum, count) =
            live.fold((0, 0), |(sum, count), session| (sum + session.window().messages(), count + 1));
        sum / count.max(1) * self.members
    }

    /// All that were there from the start are live, and no more are wanted.
    pub(super) fn is_complete(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.members > 0 && self.have_begun(sessions) && !self.wants_more(sessions, window_wanted)
    }

    /// What to do next. [`Step::Grow`] and [`Step::Visit`] are done by the time this is asked again.
    pub(super) fn step(&mut self, sessions: &[Session], window_wanted: usize) -> Step {
        if !self.have_begun(sessions) {
            return Step::Nothing;
        }
        if self.wants_more(sessions, window_wanted) {
            let is_free = sessions
                .get(self.members)
                .is_none_or(|visited| visited.connection() == ConnectionState::Ended);
            self.members += usize::from(is_free);
            return if is_free { Step::Grow } else { Step::Nothing };
        }
        self.visit(sessions)
    }

    /// No visit is under way or wanted.
    pub(super) fn has_looked(&self) -> bool {
        self.visits == Visits::Done
    }

    fn have_begun(&self, sessions: &[Session]) -> bool {
        sessions[..self.at_start].iter().all(is_live)
    }

    fn wants_more(&self, sessions: &[Session], window_wanted: usize) -> bool {
        self.connections == Connections::Auto
            && self.members < CONNECTIONS_MAX
            && self.window(sessions) < window_wanted
    }

    fn visit(&mut self, sessions: &[Session]) -> Step {
        let Visits::Looking { mut absent, visiting } = self.visits else { return Step::Nothing };
        if let Some(visited) = sessions.last().filter(|_| visiting && sessions.len() > self.members) {
            if visited.connection() != ConnectionState::Ended {
                return Step::Nothing;
            }
            absent = if visited.was_found() { 0 } else { absent + 1 };
        }
        // What a drain that was stopped has ended is a gap of any length; a former size of ours leaves none.
        let is_drain = self.at_start == 0;
        if (absent >= ABSENT_MAX && !is_drain) || sessions.len() >= CONNECTIONS_MAX {
            self.visits = Visits::Done;
            return Step::Nothing;
        }
        self.visits = Visits::Looking { absent, visiting: true };
        Step::Visit
    }

    /// Why sessions do not do their work, a line each. One that came later counts only once it has worked.
    pub(super) fn troubles(&self, sessions: &[Session], now: Instant) -> Vec<String> {
        let mut troubles = Vec::new();
        let mut untold = 0;
        for (index, session) in sessions[..self.members].iter().enumerate() {
            let counts = index < self.at_start || session.has_lived();
            match session.trouble(now).filter(|_| counts) {
                Some(why) if troubles.len() < TOLD_MAX => troubles.push(format!("session {index}: {why}")),
                Some(_) => untold += 1,
                None => {}
            }
        }
        if untold > 0 {
            troubles.push(format!("and {untold} more sessions"));
        }
        troubles
    }
}

fn is_live(session: &Session) -> bool {
    session.connection().live_since().is_some()
}
