//! How many unacknowledged messages the broker lets us have, as far as can be known.
//!
//! With acknowledgement after the insert, this number caps a batch: when it is reached nothing more will
//! come, and waiting for `rows_max` or `age_max` would only stall. Brokers tell it badly (MQTT 5 CONNACK's
//! Receive Maximum is what *we* may publish; EMQX echoes the delivery window there, others do not), so what
//! is announced is a first guess, and more unacknowledged messages than the guess refute it.

/// The in-flight window of one connection.
#[derive(Debug)]
pub struct Window {
    asked: usize,
    guess: usize,
}

impl Window {
    /// `asked`: the Receive Maximum in our CONNECT.
    #[must_use]
    pub fn new(asked: u16) -> Self {
        let asked = usize::from(asked);
        Self { asked, guess: asked }
    }

    /// A new connection; `announced` is the Receive Maximum in the broker's CONNACK, if it gave one.
    pub fn connected(&mut self, announced: Option<u16>) {
        self.guess = announced.map_or(self.asked, |announced| usize::from(announced).min(self.asked));
    }

    /// This many messages are unacknowledged now.
    pub fn observe(&mut self, unacked: usize) {
        if unacked > self.guess {
            self.guess = self.asked;
        }
    }

    /// Messages in flight at which nothing more will come.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.guess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_window_is_believed_until_more_arrives() {
        let mut window = Window::new(32_000);
        assert_eq!(window.messages(), 32_000);
        window.connected(Some(32));
        assert_eq!(window.messages(), 32);
        window.observe(32);
        assert_eq!(window.messages(), 32);
        window.observe(33);
        assert_eq!(window.messages(), 32_000);
    }

    #[test]
    fn a_larger_announcement_does_not_exceed_what_we_asked_for() {
        let mut window = Window::new(1_000);
        window.connected(Some(65_535));
        assert_eq!(window.messages(), 1_000);
    }
}
