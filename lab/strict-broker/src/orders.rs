//! Orders of a test that change how the broker answers the next requests.

use std::time::Duration;

/// The kind of request to which an order applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Connect,
    Subscribe,
}

/// How the broker answers a request under an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Sends no answer.
    Never,
    /// Sends the answer after this delay.
    Late(Duration),
    /// Sends no answer, and empties the session.
    Lose,
}

/// An order for the next requests of one kind.
#[derive(Debug)]
pub(crate) struct Order {
    /// Number of requests to which the order still applies.
    pub(crate) remaining: u32,
    pub(crate) request: Request,
    pub(crate) behaviour: Behaviour,
    /// Prefix of the client ids that the order applies to.
    pub(crate) prefix: String,
}

/// The orders that still apply. The oldest order that matches a request applies to it.
#[derive(Debug, Default)]
pub(crate) struct Orders(Vec<Order>);

impl Orders {
    pub(crate) fn push(&mut self, order: Order) {
        self.0.push(order);
    }

    /// Returns the ordered behaviour for this request, and counts the request; `None`: answer as
    /// usual.
    pub(crate) fn take(&mut self, request: Request, client: &str) -> Option<Behaviour> {
        let matches =
            |order: &&mut Order| order.request == request && client.starts_with(&order.prefix);
        let order = self.0.iter_mut().find(matches)?;
        order.remaining -= 1;
        let behaviour = order.behaviour;
        self.0.retain(|order| order.remaining > 0);
        Some(behaviour)
    }
}
