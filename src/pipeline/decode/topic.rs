//! Which level of a topic names the driver.

/// A topic filter with one `+`, split around it.
#[derive(Debug, Clone)]
pub(super) struct TopicPattern {
    before: String,
    after: String,
}

impl TopicPattern {
    pub(super) fn new(filter: &str) -> Self {
        let (before, after) =
            filter.split_once('+').expect("the configuration wants exactly one + in a topic");
        Self { before: before.to_owned(), after: after.to_owned() }
    }

    /// The level of `topic` that the `+` stands for.
    pub(super) fn level<'a>(&self, topic: &'a str) -> Option<&'a str> {
        let level = topic.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        (!level.contains('/')).then_some(level)
    }
}
