//! A source: its topics, its format, and where the driver's id comes from.

use super::driver::{Driver, Named, Template};
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
    /// The driver's id is the level of the filter's first `+`.
    is_simple: bool,
    pub(super) format: Format,
    pub(super) reading: Reading,
}

impl Source {
    pub(crate) fn new(topic: &str, driver: Driver, format: Format, keep: Keep) -> Self {
        let is_simple = matches!(&driver, Driver::Topic(template) if template.is_first_level());
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
    pub(super) fn driver_in(&self, topic: &[u8]) -> Option<Result<Named<'_>, OutOfRange>> {
        // The common case, and the cheapest: no other `+`, and an id has no `/`, so the topic matches.
        if self.is_simple
            && let Some(Ok(id)) = self.filter.only_level(topic).map(DriverId::new)
        {
            return Some(Ok(Named::InTopic(id)));
        }
        let levels = self.filter.levels(std::str::from_utf8(topic).ok()?)?;
        Some(match &self.reading.driver {
            Driver::Topic(template) => DriverId::new(template.fill(&levels)).map(Named::InTopic),
            Driver::Payload(pointer) => Ok(Named::InPayload(pointer)),
        })
    }

    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }
}
