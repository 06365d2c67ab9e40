//! cargo test --release -p strict-broker -- --ignored --nocapture

use std::time::Instant;

use crate::client::{Broker, Client, Hello};

const COUNT: usize = 300_000;

#[test]
#[ignore = "a measurement"]
fn rate_and_memory() {
    let broker = Broker::start(&[]);
    let pid = broker.process().pid();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kept = |l: &&str| l.starts_with("VmRSS") || l.starts_with("VmHWM");
        status.lines().filter(kept).map(|l| l.replace('\t', " ")).collect::<Vec<_>>().join(", ")
    };
    println!("idle: {}", memory());
    let mut member = Client::member(&broker, &Hello::keep("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let began = Instant::now();
    let publishing = std::thread::spawn(move || {
        for start in (0..COUNT).step_by(1_000) {
            publisher.publish(start..start + 1_000);
        }
    });
    for _ in 0..COUNT {
        let publish = member.take_exactly(1).remove(0);
        member.ack(&publish);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{COUNT} delivered and acknowledged in {seconds:.2} s: {:.0}/s; {}",
        COUNT as f64 / seconds,
        memory()
    );
    publishing.join().unwrap();

    member.break_off(&broker, "member");
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    for start in (0..COUNT).step_by(1_000) {
        publisher.publish(start..start + 1_000);
    }
    println!("with {COUNT} queued: {}", memory());
}
