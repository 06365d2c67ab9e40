//! Orders of a test for the next answers.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Connect,
    Subscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Never,
    Late(Duration),
    /// Sends no answer, and empties the session.
    Lose,
}

/// An order for some of the next answers.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) left: u32,
    pub(crate) answer: Answer,
    pub(crate) manner: Manner,
    /// Prefix of the client ids that the order applies to.
    pub(crate) prefix: String,
}

/// Orders for the next answers. The oldest order that matches an answer applies to it.
#[derive(Debug, Default)]
pub(crate) struct Orders(Vec<Order>);

impl Orders {
    pub(crate) fn push(&mut self, order: Order) {
        self.0.push(order);
    }

    /// Returns the ordered manner of this answer; `None`: answer as usual.
    pub(crate) fn take(&mut self, answer: Answer, client: &str) -> Option<Manner> {
        let fits = |order: &&mut Order| order.answer == answer && client.starts_with(&order.prefix);
        let order = self.0.iter_mut().find(fits)?;
        order.left -= 1;
        let manner = order.manner;
        self.0.retain(|order| order.left > 0);
        Some(manner)
    }
}
