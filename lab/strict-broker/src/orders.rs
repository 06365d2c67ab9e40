//! How the next answers are to be given.

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
    /// No answer is sent, and the session is emptied.
    Lose,
}

/// How some of the next answers are given.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) left: u32,
    pub(crate) answer: Answer,
    pub(crate) manner: Manner,
    /// Prefix of the client ids that it applies to.
    pub(crate) prefix: String,
}

/// Orders for the next answers. The oldest order that fits an answer applies to it.
#[derive(Debug, Default)]
pub(crate) struct Orders(Vec<Order>);

impl Orders {
    pub(crate) fn push(&mut self, order: Order) {
        self.0.push(order);
    }

    /// How this answer is to be given, if it is not to be given as usual.
    pub(crate) fn take(&mut self, answer: Answer, client: &str) -> Option<Manner> {
        let fits = |order: &&mut Order| order.answer == answer && client.starts_with(&order.prefix);
        let order = self.0.iter_mut().find(fits)?;
        order.left -= 1;
        let manner = order.manner;
        self.0.retain(|order| order.left > 0);
        Some(manner)
    }
}
