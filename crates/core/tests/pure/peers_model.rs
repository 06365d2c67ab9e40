//! Tests members of a group that receive SIGTERM in any order, even at the same time, and then ask
//! their peers whether any of them stays. Some peers die, hang, answer with garbage, or give false
//! answers.
//!
//! Invariant: once any member has been subscribed, some member is subscribed at every step.

use std::sync::Arc;

use milepost_core::erased::Erased;
use milepost_core::peers::decision::{Decision, FollowUp, Inquiry, order};
use milepost_core::peers::member::{Member, MemberStatus};
use proptest::prelude::*;

/// Typical names of members, unsorted.
const NAMES: [&str; 7] = [
    "milepost-10",
    "milepost-2",
    "milepost-0",
    "milepost-1",
    "gps",
    "milepost-02",
    "a1-milepost-9",
];

/// How a peer answers when another member asks for its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Honest,
    /// Never answers.
    Hung,
    Garbage,
    /// A load balancer in front of the pod routes the request back to the member that asks.
    Echo,
    OtherGroup,
    OtherTopics,
    /// Claims to be leaving, but stays.
    ClaimsToLeave,
}

/// A step of a schedule. Each number is the index of a pod in [`NAMES`].
#[derive(Debug, Clone)]
enum Step {
    Connect(usize),
    /// The process loses its connection to the broker.
    Cut(usize),
    /// The process receives SIGTERM.
    Terminate(usize),
    /// The asker receives the peer's answer.
    Answer {
        asker: usize,
        peer: usize,
    },
    /// The process decides with the answers that it has received so far.
    TimeOut(usize),
    Kill(usize),
    Start(usize),
}

#[derive(Debug)]
struct Pod {
    behaviour: Behaviour,
    /// The pod's process, if it runs.
    process: Option<Process>,
    /// The broker has a subscribed session of this pod.
    subscribed: bool,
}

#[derive(Debug)]
struct Process {
    member: Member,
    connected: bool,
    inquiry: Option<Inquiry>,
}

impl Process {
    fn new(name: &str) -> Self {
        let member = Member::new(name, "milepost", &["drivers/+/gps".to_owned()]);
        Self { member, connected: false, inquiry: None }
    }
}

struct World {
    pods: Vec<Pod>,
    ever_subscribed: bool,
}

impl World {
    fn new(behaviours: &[Behaviour]) -> Self {
        let pods = NAMES.iter().zip(behaviours).map(|(name, behaviour)| Pod {
            behaviour: *behaviour,
            process: Some(Process::new(name)),
            subscribed: false,
        });
        Self { pods: pods.collect(), ever_subscribed: false }
    }

    /// Returns the pod's answer to a question; `None`: the pod never answers.
    fn answer(&self, peer: usize, asker: &MemberStatus) -> Option<Result<MemberStatus, String>> {
        let pod = &self.pods[peer];
        let Some(process) = &pod.process else { return Some(Err("refused".to_owned())) };
        let status = process.member.status(process.connected, 0);
        match pod.behaviour {
            Behaviour::Honest => Some(Ok(status)),
            Behaviour::Hung => None,
            Behaviour::Garbage => Some(MemberStatus::from_json(b"<html>")),
            Behaviour::Echo => Some(Ok(asker.clone())),
            Behaviour::OtherGroup => Some(Ok(MemberStatus { group: "other".to_owned(), ..status })),
            Behaviour::OtherTopics => {
                Some(Ok(MemberStatus { topics: ["other/+".to_owned()].into(), ..status }))
            }
            Behaviour::ClaimsToLeave => Some(Ok(MemberStatus { leaving: true, ..status })),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect(pod) => {
                let pod = &mut self.pods[pod];
                if let Some(process) =
                    pod.process.as_mut().filter(|process| process.inquiry.is_none())
                {
                    process.connected = true;
                    pod.subscribed = true;
                    self.ever_subscribed = true;
                }
            }
            Step::Cut(pod) => {
                self.pods[pod].process.iter_mut().for_each(|process| process.connected = false);
            }
            Step::Terminate(pod) => {
                if let Some(process) =
                    self.pods[pod].process.as_mut().filter(|process| process.inquiry.is_none())
                {
                    process.member.set_leaving();
                    process.inquiry =
                        Some(Inquiry::new(process.member.status(process.connected, 0)));
                }
            }
            Step::Answer { asker, peer } => self.ask(asker, peer),
            Step::TimeOut(pod) => self.decide(pod),
            Step::Kill(pod) => self.pods[pod].process = None,
            Step::Start(pod) => {
                self.pods[pod].process.get_or_insert_with(|| Process::new(NAMES[pod]));
            }
        }
    }

    fn ask(&mut self, asker: usize, peer: usize) {
        let Some(process) = &self.pods[asker].process else { return };
        let Some(answer) = self.answer(peer, &process.member.status(process.connected, 0)) else {
            return;
        };
        let inquiry =
            self.pods[asker].process.as_mut().and_then(|process| process.inquiry.as_mut());
        if inquiry
            .is_some_and(|inquiry| inquiry.handle_answer(NAMES[peer], answer) == FollowUp::Stop)
        {
            self.decide(asker);
        }
    }

    /// Executes the decision as the shell does, and ends the process.
    fn decide(&mut self, pod: usize) {
        let pod = &mut self.pods[pod];
        let Some(inquiry) = pod.process.as_mut().and_then(|process| process.inquiry.take()) else {
            return;
        };
        if let Decision::Leave { .. } = inquiry.decision() {
            pod.subscribed = false;
        }
        pod.process = None;
    }

    /// Returns the names of the members that are subscribed.
    fn subscribed(&self) -> Vec<&str> {
        NAMES
            .iter()
            .zip(&self.pods)
            .filter(|(_, pod)| pod.subscribed)
            .map(|(name, _)| *name)
            .collect()
    }
}

#[test]
fn member_document_has_no_digest_while_an_older_list_is_held() {
    let (empty, with_driver) =
        (Arc::new(Erased::new([])), Arc::new(Erased::new(["d1".to_owned()])));
    let member = Member::new("milepost-0", "milepost", &[]);
    member.set_initial_erased(&empty);
    member.set_erased(&empty);
    assert_eq!(member.status(true, 0).erased, Some(empty.digest()));
    member.set_erased(&with_driver);
    member.set_erased(&empty);
    assert_eq!(member.status(true, 0).erased, None, "a batch may still hold the list with d1");
    drop(with_driver);
    assert_eq!(member.status(true, 0).erased, Some(empty.digest()));
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        6 => Just(Behaviour::Honest),
        1 => Just(Behaviour::Hung),
        1 => Just(Behaviour::Garbage),
        1 => Just(Behaviour::Echo),
        1 => Just(Behaviour::OtherGroup),
        1 => Just(Behaviour::OtherTopics),
        1 => Just(Behaviour::ClaimsToLeave),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || 0..NAMES.len();
    prop_oneof![
        6 => pod().prop_map(Step::Connect),
        1 => pod().prop_map(Step::Cut),
        4 => pod().prop_map(Step::Terminate),
        16 => (pod(), pod()).prop_map(|(asker, peer)| Step::Answer { asker, peer }),
        1 => pod().prop_map(Step::TimeOut),
        1 => pod().prop_map(Step::Kill),
        3 => pod().prop_map(Step::Start),
    ]
}

proptest! {
    #![proptest_config(crate::cases::cases(2_000))]

    #[test]
    fn some_member_is_always_subscribed(
        behaviours in prop::collection::vec(behaviour(), NAMES.len()),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(&behaviours);
        for step in &steps {
            world.step(step);
            prop_assert!(
                !world.ever_subscribed || !world.subscribed().is_empty(),
                "no member is subscribed after {step:?}, so the broker drops messages"
            );
        }
    }

    /// After several members have left, in any order of the steps, no member that left is still
    /// subscribed.
    #[test]
    fn member_leaves_cleanly_while_a_lower_member_stays(
        stay in 1..NAMES.len(),
        mut questions in Just((0..NAMES.len() * NAMES.len()).collect::<Vec<_>>()).prop_shuffle(),
        terminate_first in any::<bool>(),
    ) {
        let mut names = NAMES;
        names.sort_by(|a, b| order(a, b));
        let (staying, leaving) = names.split_at(stay);
        let is_leaving = |pod: usize| leaving.contains(&NAMES[pod]);
        let mut world = World::new(&[Behaviour::Honest; NAMES.len()]);
        let pods = || 0..NAMES.len();
        pods().for_each(|pod| world.step(&Step::Connect(pod)));
        if terminate_first {
            let leaving_pods = pods().filter(|pod| is_leaving(*pod));
            leaving_pods.for_each(|pod| world.step(&Step::Terminate(pod)));
        }
        for question in questions.drain(..) {
            let (asker, peer) = (question / NAMES.len(), question % NAMES.len());
            if is_leaving(asker) {
                world.step(&Step::Terminate(asker));
                world.step(&Step::Answer { asker, peer });
            }
        }
        let mut subscribed = world.subscribed();
        subscribed.sort_by(|a, b| order(a, b));
        prop_assert_eq!(subscribed, staying);
    }

    #[test]
    fn member_names_have_a_total_order(
        a in "[m0-9-]{0,6}",
        b in "[m0-9-]{0,6}",
        c in "[m0-9-]{0,6}",
    ) {
        prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
        prop_assert_eq!(order(&a, &b).is_eq(), a == b);
        if order(&a, &b).is_lt() && order(&b, &c).is_lt() {
            prop_assert!(order(&a, &c).is_lt());
        }
    }
}
