//! No acknowledgement unsettled, out of order or of an old epoch; all settled means all acknowledged.

use std::collections::{BTreeSet, VecDeque};

use milepost::ack::AckQueue;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// A message whose points go into the open batch; after each `true` the batch closes in its midst.
    Arrive(Vec<bool>),
    Close,
    /// The nth of the batches under way.
    Settle(usize),
    NewEpoch,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(prop::bool::weighted(0.2), 1..4).prop_map(Step::Arrive),
        3 => Just(Step::Close),
        4 => (0_usize..8).prop_map(Step::Settle),
        1 => Just(Step::NewEpoch),
    ]
}

/// The plain way: every message knows the batches it waits for.
#[derive(Default)]
struct Model {
    waits_for: VecDeque<(u16, BTreeSet<u64>)>,
    open: u64,
    /// Points in the open batch: an empty one never closes.
    open_points: u32,
}

proptest! {
    #[test]
    fn acknowledgements_are_settled_and_in_order(steps in prop::collection::vec(step(), 0..200)) {
        let mut queue = AckQueue::default();
        let mut model = Model::default();
        let mut under_way: Vec<u64> = Vec::new();
        let mut next_packet_id = 0_u16;

        for step in steps {
            match step {
                Step::Arrive(closes) => {
                    next_packet_id = next_packet_id % 50 + 1; // used again, as brokers do
                    queue.arrived(next_packet_id);
                    let mut batches = BTreeSet::new();
                    for close_after in closes {
                        batches.insert(model.open);
                        model.open_points += 1;
                        if close_after {
                            // One more point follows, so this message is not complete in this batch.
                            queue.closed(model.open, queue.next_arrival() - 1);
                            under_way.push(model.open);
                            model.open += 1;
                            model.open_points = 0;
                        }
                    }
                    batches.insert(model.open);
                    model.open_points += 1;
                    model.waits_for.push_back((next_packet_id, batches));
                }
                Step::Close if model.open_points == 0 => {}
                Step::Close => {
                    model.open_points = 0;
                    queue.closed(model.open, queue.next_arrival());
                    under_way.push(model.open);
                    model.open += 1;
                }
                Step::Settle(n) if n < under_way.len() => {
                    let batch = under_way.remove(n);
                    queue.settled(batch);
                    for (_, batches) in &mut model.waits_for {
                        batches.remove(&batch);
                    }
                }
                Step::Settle(_) => {}
                Step::NewEpoch => {
                    queue.new_epoch();
                    model.waits_for.clear();
                    // What is under way settles later, and must not acknowledge anything then.
                }
            }
            // It may wait longer than the model (for an earlier batch that holds rows of a dead connection),
            // never shorter; and in the end for nothing.
            while let Some(due) = queue.due() {
                let (packet_id, batches) = model.waits_for.pop_front().expect("nothing is waited for");
                prop_assert_eq!(due, packet_id, "out of order");
                prop_assert!(batches.is_empty(), "{} is due before batches {:?}", due, batches);
                queue.sent();
            }
            prop_assert_eq!(queue.unacked(), model.waits_for.len());
        }

        queue.closed(model.open, queue.next_arrival());
        under_way.push(model.open);
        for batch in under_way {
            queue.settled(batch);
        }
        while queue.due().is_some() {
            queue.sent();
        }
        prop_assert_eq!(queue.unacked(), 0);
    }
}

#[test]
#[should_panic(expected = "not due")]
fn what_is_not_due_cannot_be_sent() {
    let mut queue = AckQueue::default();
    queue.arrived(1);
    queue.sent();
}

#[test]
fn messages_that_left_no_row_are_complete_when_nothing_is_open() {
    let mut queue = AckQueue::default();
    queue.arrived(7);
    assert_eq!(queue.due(), None);
    queue.nothing_open();
    assert_eq!(queue.due(), Some(7));
}
