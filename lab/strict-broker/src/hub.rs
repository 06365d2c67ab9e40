//! State that all connections share.

use std::cell::RefCell;
use std::rc::Rc;

use crate::broker::Broker;
use crate::options::Options;
use crate::orders::Orders;

/// The shared state. All connections run on one thread, so the state needs no lock.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) options: Rc<Options>,
    pub(crate) broker: RefCell<Broker>,
    pub(crate) orders: RefCell<Orders>,
}
