//! State that all connections share.

use std::cell::RefCell;
use std::rc::Rc;

use crate::broker::Broker;
use crate::options::Options;
use crate::orders::Orders;

/// State of all connections, which run on one thread.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) options: Rc<Options>,
    pub(crate) broker: RefCell<Broker>,
    pub(crate) orders: RefCell<Orders>,
}
