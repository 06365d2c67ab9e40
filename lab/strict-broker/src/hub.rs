//! What all connections share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use rumqttc::v5::mqttbytes::QoS;

use crate::broker::Broker;
use crate::options::Options;
use crate::orders::Orders;
use crate::packet::Message;

/// "Not authorized", "server unavailable" and "server busy".
const STARTING_CODES: [u8; 3] = [0x87, 0x88, 0x89];
/// What EMQX calls its node.
const METRICS: &str = "$SYS/brokers/strict-broker/metrics/";

/// All of them run on one thread.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) options: Rc<Options>,
    pub(crate) broker: RefCell<Broker>,
    pub(crate) orders: RefCell<Orders>,
    started: Instant,
    refused: Cell<usize>,
}

impl Hub {
    pub(crate) fn new(options: Rc<Options>, broker: Broker) -> Self {
        Self {
            options,
            broker: broker.into(),
            orders: RefCell::default(),
            started: Instant::now(),
            refused: Cell::new(0),
        }
    }

    fn is_starting(&self) -> bool {
        self.started.elapsed() < self.options.starting
    }

    /// What a CONNECT is answered while the broker is starting.
    pub(crate) fn starting_code(&self) -> Option<u8> {
        if !self.is_starting() {
            return None;
        }
        self.refused.set(self.refused.get() + 1);
        Some(STARTING_CODES[(self.refused.get() - 1) % STARTING_CODES.len()])
    }

    /// As EMQX: at QoS 0, and not retained.
    pub(crate) fn publish_metrics(&self) {
        let mut broker = self.broker.borrow_mut();
        for (name, value) in broker.counters.named() {
            let topic = format!("{METRICS}{}", name.replace('.', "/"));
            let message = Message {
                topic: topic.clone().into(),
                payload: value.to_string().into(),
                qos: QoS::AtMostOnce,
                properties: None,
                share: None,
            };
            broker.publish(&topic, 0, &message, Instant::now());
        }
    }
}
