//! Defines a source: its topic filter, its format, and the place of the driver's id.

use std::sync::Arc;

use super::driver::{Driver, Named, OtherBytes, Template};
use super::formats::Format;
use super::keep::Keep;
use super::schema::Schema;
use super::time::{Local, Zone};
use super::topic::Filter;
use crate::position::OutOfRange;

/// An entry of `[[sources]]`, or a topic of `mqtt.topics`.
#[derive(Debug, Clone)]
pub struct Source {
    pub(super) topic: String,
    pub(super) filter: Filter,
    /// The driver's id is the level of the filter's first `+`.
    id_is_first_level: bool,
    pub(super) format: Format,
    other_bytes: OtherBytes,
    pub(super) schema: Schema,
}

impl Source {
    /// Creates a source. `topic`: the filter of its topics.
    pub fn new(topic: &str, driver: Driver, format: Format, keep: Keep) -> Self {
        let id_is_first_level =
            matches!(&driver, Driver::Topic(template) if template.is_first_level());
        let schema = format.schema(driver, keep);
        let (topic, filter) = (topic.to_owned(), Filter::new(topic));
        Self { topic, filter, id_is_first_level, format, other_bytes: OtherBytes::Refused, schema }
    }

    /// Sets the treatment of bytes that a driver id must not contain.
    #[must_use]
    pub fn with_other_bytes(mut self, other_bytes: OtherBytes) -> Self {
        self.other_bytes = other_bytes;
        self
    }

    /// Sets the zone of times without an offset.
    #[must_use]
    pub fn in_zone(mut self, zone: Zone) -> Self {
        let local = self.schema.local.take().map_or_else(Local::default, |local| (*local).clone());
        self.schema.local = Some(Arc::new(Local { zone: Some(zone), ..local }));
        self
    }

    /// Adds paths whose values are kept, even if they are the position's own fields. Changes
    /// nothing in a format that is not JSON, because such a format has no paths.
    ///
    /// # Errors
    /// There would be too many paths; the error is their number.
    pub fn keeping(mut self, names: &[String]) -> Result<Self, usize> {
        if self.format.is_json() {
            self.schema.used.retain(|path| !names.contains(path));
            self.schema.keep = self.schema.keep.with(names.iter().cloned())?;
        }
        Ok(self)
    }

    /// Creates a source of milepost's own format; the topic's only `+` stands for the driver's id.
    pub fn milepost(topic: &str) -> Self {
        Self::new(topic, Driver::Topic(Template::first()), Format::Milepost, Keep::Nothing)
    }

    /// Returns whether the filter matches a topic.
    pub fn takes(&self, topic: &str) -> bool {
        self.filter.levels(topic).is_some()
    }

    /// Returns the driver of a message with this topic; `None` if the topic does not match.
    ///
    /// # Errors
    /// The topic matches, but its driver id is invalid.
    pub(super) fn driver_in(&self, topic: &[u8]) -> Option<Result<Named<'_>, OutOfRange>> {
        // Try the common case first, which is also the cheapest.
        if self.id_is_first_level
            && let Some(id) = self.filter.id_at_first_level(topic)
        {
            return Some(Ok(Named::InTopic(id)));
        }
        let levels = self.filter.levels(std::str::from_utf8(topic).ok()?)?;
        Some(match &self.schema.driver {
            Driver::Topic(template) => {
                self.other_bytes.id(&template.fill(&levels)).map(Named::InTopic)
            }
            Driver::Payload(pointer) => Ok(Named::InPayload(pointer, self.other_bytes)),
        })
    }

    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the paths whose values are kept; an empty list if all values are kept, or none.
    #[must_use]
    pub fn kept(&self) -> &[String] {
        match &self.schema.keep {
            Keep::Named(names) => names,
            Keep::Nothing | Keep::All => &[],
        }
    }

    /// Returns a description of the settings that decide how a payload is read, besides
    /// [`kept`](Self::kept). Every version of milepost describes the same settings alike, so a hash
    /// of the description may be stored.
    #[must_use]
    pub fn stable_description(&self) -> String {
        let Schema { driver, keep, local, .. } = &self.schema;
        let format = match &self.format {
            Format::Milepost => "milepost".to_owned(),
            Format::GeoJson(unit) => format!("geojson {unit:?}"),
            Format::Nmea => "nmea".to_owned(),
            Format::Mapped(mapping) => mapping.stable_description(),
        };
        let driver = match driver {
            Driver::Topic(template) => format!("{template:?}"),
            Driver::Payload(pointer) => pointer.as_str().to_owned(),
        };
        let keep = if *keep == Keep::All { "*" } else { "" };
        let local = local.as_deref().map(Local::stable_description);
        format!("{:?}", (&self.topic, format, driver, self.other_bytes, keep, local))
    }
}
