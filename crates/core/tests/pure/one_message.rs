//! The example that ARCHITECTURE.md begins with prints what it printed when it was written down.

#[path = "../../examples/one_message.rs"]
mod example;

#[test]
fn example_prints_each_step_and_what_decided_it() {
    let mut printed = Vec::new();
    example::play(&mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(printed, include_str!("../../examples/one_message.txt"), "{printed}");
}
