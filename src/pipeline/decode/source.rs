//! A source: its topics, its format, and where the driver's id comes from.

use super::driver::{Driver, Template};
use super::formats::Format;
use super::keep::Keep;
use super::reading::Reading;
use super::topic::Filter;
use crate::pipeline::position::{DriverId, OutOfRange};

/// One of `[[sources]]`, or a topic of `mqtt.topics`.
#[derive(Debug, Clone)]
pub struct Source {
    pub(super) topic: String,
    pub(super) filter: Filter,
    /// The driver's id is the level of the filter's only `+`.
    is_simple: bool,
    pub(super) format: Format,
    pub(super) reading: Reading,
}

/// The driver, as far as the topic names it.
pub(super) enum Named {
    /// It may break the rule for ids.
    InTopic(Result<DriverId, OutOfRange>),
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
    pub(super) fn driver_in(&self, topic: &[u8]) -> Option<Named> {
        // The common case, and the cheapest: an id has no `/`, so the topic matches.
        if self.is_simple
            && let Some(Ok(id)) = self.filter.only_level(topic).map(DriverId::new)
        {
            return Some(Named::InTopic(Ok(id)));
        }
        let levels = self.filter.levels(std::str::from_utf8(topic).ok()?)?;
        Some(match &self.reading.driver {
            Driver::Topic(template) => Named::InTopic(DriverId::new(template.fill(&levels))),
            Driver::Payload(_) => Named::InPayload,
        })
    }

    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }
}
