//! Checks that the first example of ARCHITECTURE.md still prints examples/one_message.txt.

#[path = "../../examples/one_message.rs"]
mod example;

#[test]
fn example_prints_each_step_and_the_file_that_decided_it() {
    let mut printed = Vec::new();
    example::play(&mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(printed, include_str!("../../examples/one_message.txt"), "{printed}");
}
