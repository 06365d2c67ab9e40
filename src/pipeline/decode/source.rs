//! A source: its topics, its format, and where the driver's id comes from.

use std::borrow::Cow;

use super::driver::{Driver, Template};
use super::formats::Format;
use super::keep::Keep;
use super::reading::Reading;
use super::topic::Filter;

/// One of `[[sources]]`, or a topic of `mqtt.topics`.
#[derive(Debug, Clone)]
pub struct Source {
    pub(super) topic: String,
    pub(super) filter: Filter,
    /// The filter has one `+`, which is the driver's id.
    is_simple: bool,
    pub(super) format: Format,
    pub(super) reading: Reading,
}

/// The driver, as far as the topic names it.
pub(super) enum Named<'t> {
    InTopic(Cow<'t, str>),
    InPayload,
}

impl Source {
    pub(crate) fn new(topic: &str, driver: Driver, format: Format, keep: Keep) -> Self {
        let is_simple = topic.matches('+').count() == 1
            && matches!(&driver, Driver::Topic(template) if template.is_only_level());
        let reading = format.reading(driver, keep);
        Self { topic: topic.to_owned(), filter: Filter::new(topic), is_simple, format, reading }
    }

    /// milepost's own format; the driver's id is the topic's only `+`.
    pub(crate) fn milepost(topic: &str) -> Self {
        Self::new(topic, Driver::Topic(Template::first()), Format::Milepost, Keep::Nothing)
    }

    pub(crate) fn takes(&self, topic: &str) -> bool {
        self.filter.levels(topic).is_some()
    }

    /// `None`: the topic does not match.
    pub(super) fn driver_in<'t>(&self, topic: &'t str) -> Option<Named<'t>> {
        match &self.reading.driver {
            // The common case, and the cheapest: every message passes here.
            Driver::Topic(_) if self.is_simple => {
                self.filter.level(topic).map(|level| Named::InTopic(Cow::Borrowed(level)))
            }
            Driver::Topic(template) => {
                self.filter.levels(topic).map(|levels| Named::InTopic(Cow::Owned(template.fill(&levels))))
            }
            Driver::Payload(_) => self.filter.levels(topic).map(|_| Named::InPayload),
        }
    }

    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }
}
