//! Finds zones and units that an XML file states beside its points. They may be in a comment, in an
//! attribute such as `tz`, or in an element such as `timezone` or `speedUnit`. A time with an
//! offset states a zone, too, for example the time in the file's metadata.

use std::borrow::Cow;

use anyhow::{Result, bail};
use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;

use super::args::{ImportArgs, Kind};
use super::features::CheckFrame;
use super::names::normalised;
use super::stated_unit::unit_frames;
use super::zones::{has_other_clock, is_other_than_utc, is_shifted, states_zone};
use milepost_decode::{
    Local, Zone, is_zone_in_other_language, lacks_zone, names_reference_system, names_unit,
};

/// Appended to an error that occurs after points were read.
pub(super) const FIXES_MAY_BE_STORED: &str =
    ". The points before it may be stored already: check the driver's fixes";

/// Searches a file for a zone that contradicts the zone in which its times are read. The default
/// value finds nothing.
#[derive(Default)]
pub(super) struct StatedZone<'c> {
    /// Checks a unit in a JSON object such as `{"speed_unit":"mph"}`.
    check_units: Option<CheckFrame<'c>>,
    checks_zones: bool,
    /// Value of `--zone`; `None`: times without an offset are UTC.
    given: Option<Zone>,
    /// The first place that states another zone.
    stated: Option<String>,
    /// The file has a time without an offset.
    has_local: bool,
}

impl<'c> StatedZone<'c> {
    pub(super) fn new(kind: Kind, args: &ImportArgs, check_units: CheckFrame<'c>) -> Self {
        let reads_local_times = kind == Kind::Gpx || args.zone.is_some();
        let checks_zones =
            reads_local_times && args.format_name().is_none() && args.unit_of("ts").is_none();
        let given = args.zone.clone();
        Self { check_units: Some(check_units), checks_zones, given, ..Self::default() }
    }

    /// Reads a comment. Ignores a zone in the comment if `--zone` is given.
    pub(super) fn add_comment(&mut self, comment: &str, line: u64) -> Result<()> {
        unit_frames(comment).iter().try_for_each(|frame| self.check_unit(frame, line))?;
        if self.given.is_none() && self.checks_zones && states_zone(comment) {
            return self.note_zone(format!("the comment \"{:.60}\"", comment.trim()), line);
        }
        Ok(())
    }

    fn check_unit(&self, frame: &[u8], line: u64) -> Result<()> {
        let check = |check: CheckFrame<'_>| check(frame, &format!("line {line}"));
        self.check_units.map_or(Ok(()), check)
    }

    /// Reads the attributes of an element outside of points.
    pub(super) fn add_attributes(&mut self, element: &BytesStart<'_>, line: u64) -> Result<()> {
        for attribute in element.attributes().flatten() {
            let name = attribute.key.local_name();
            // Ignore an attribute that states the unit of the element's own value, as in
            // `<maxSpeed unit="mph">`.
            let is_own_unit = |value: &str| {
                ["unit", "units", "uom"].contains(&name.as_ref())
                    && !["imperial", "nautical"].contains(&&*value.trim().to_ascii_lowercase())
            };
            let Ok(value) = attribute.normalized_value(XmlVersion::Implicit1_0) else { continue };
            if element.local_name().as_ref().eq_ignore_ascii_case("units") {
                self.add_value(&format!("units/{}", name.as_ref()), value.trim(), line)?;
            } else if states_something(name.as_ref()) && !is_own_unit(&value) {
                self.add_value(name.as_ref(), value.trim(), line)?;
            }
        }
        Ok(())
    }

    /// Reads the value of an attribute or element.
    pub(super) fn add_value(&mut self, name: &str, value: &str, line: u64) -> Result<()> {
        if is_unit_name(name) || names_reference_system(name) {
            let frame = serde_json::json!({ name: value }).to_string();
            return self.check_unit(frame.as_bytes(), line);
        }
        let is_other = match &self.given {
            Some(given) => has_other_clock(value, given),
            None => is_other_than_utc(value),
        };
        if self.checks_zones && is_other && is_zone_name(name, value) {
            return self.note_zone(format!("{name:.40} \"{value:.40}\""), line);
        }
        if is_time_name(name) && is_time_with_offset(value) {
            return self.note_shifted(value, line);
        }
        Ok(())
    }

    /// Notes the first time whose offset or zone is not UTC: the times without an offset may be in
    /// that zone, too. Does nothing if `--zone` is given, or if a place that states another zone is
    /// noted already.
    fn note_shifted(&mut self, time: &str, line: u64) -> Result<()> {
        if self.checks_zones && self.given.is_none() && self.stated.is_none() && is_shifted(time) {
            return self.note_zone(format!("the time {time:.40}"), line);
        }
        Ok(())
    }

    /// Notes that `place` states another zone. Fails if a time without an offset was read before.
    fn note_zone(&mut self, place: String, line: u64) -> Result<()> {
        self.stated.get_or_insert(place);
        if self.has_local { self.refuse(line, FIXES_MAY_BE_STORED) } else { Ok(()) }
    }

    /// Checks the time of a point.
    ///
    /// # Errors
    /// The file has a time without an offset, and states a zone other than the one in which
    /// milepost reads such times.
    pub(super) fn check_time(&mut self, time: &str, line: u64) -> Result<()> {
        // Nearly every time ends with `Z`, which is UTC.
        if matches!(time.as_bytes(), [.., b'0'..=b'9', b'Z']) {
            return Ok(());
        }
        self.note_shifted(time, line)?;
        // `lacks_zone` is also false for a value that the decoder rejects, such as a date alone:
        // such a value must not end the reading of the file.
        if !self.checks_zones || self.has_local || !lacks_zone(time) {
            return Ok(());
        }
        self.has_local = true;
        if self.stated.is_some() { self.refuse(line, "") } else { Ok(()) }
    }

    /// Fails with the place that states another zone. `after`: the end of the message.
    fn refuse(&self, line: u64, after: &str) -> Result<()> {
        let place = self.stated.as_deref().unwrap_or_default();
        match &self.given {
            Some(given) => bail!(
                "line {line}: its times have no offset and are read in {}, and {place} states \
                 another zone: import the times of each zone on their own{after}",
                given.name()
            ),
            None => bail!(
                "line {line}: its times have no offset, and {place} states a zone other than UTC: \
                 give --zone, such as --zone Europe/Berlin, or --zone Z if they are in UTC{after}"
            ),
        }
    }
}

/// Returns a time with the zone that an attribute of its element states:
/// `2026-01-31T08:00:00[Europe/Berlin]` (RFC 9557).
pub(super) fn in_zone_of_element<'t>(time: Cow<'t, str>, zone: Option<&str>) -> Cow<'t, str> {
    // A Unix time, or a time that states its zone, needs no zone.
    let is_local = |time: &str| time.contains(['-', '/', ':']) && !time.ends_with([']', 'Z', 'z']);
    match zone {
        Some(zone) if is_local(&time) => format!("{time}[{zone}]").into(),
        Some(_) | None => time,
    }
}

/// Returns the name and the value of an element's attribute that states a zone.
pub(super) fn zone_attribute(element: &BytesStart<'_>) -> Option<(String, String)> {
    let mut attributes = element.attributes().flatten();
    attributes.find_map(|attribute| {
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?.trim().to_owned();
        let name = attribute.key.local_name().as_ref().to_owned();
        // Pass the value `/`, so that the name `zone` counts whatever the attribute's value is.
        (!value.is_empty() && is_zone_name(&name, "/")).then_some((name, value))
    })
}

/// Returns whether an element or attribute outside of points may state a zone, a unit or a
/// reference system, or may hold a time.
pub(super) fn states_something(name: &str) -> bool {
    is_unit_name(name)
        || names_reference_system(name)
        || is_zone_name(name, "/")
        || is_time_name(name)
}

/// Returns whether an element or attribute of this name may hold a time, such as `startTime`.
fn is_time_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["time", "date", "start", "begin", "end"].iter().any(|word| name.contains(word))
}

/// Returns whether a value is a date and a time of day with an offset. A span of time such as
/// `10:00-11:30` has no offset.
fn is_time_with_offset(value: &str) -> bool {
    Local::default().unix_ms(value).is_ok()
}

fn is_unit_name(name: &str) -> bool {
    name.to_ascii_lowercase().contains("unit") || names_unit(name)
}

/// Returns whether an element or attribute of this name and value states a zone. If the name is
/// `zone`, the value decides, because `zone` may also be a heart-rate zone.
pub(super) fn is_zone_name(name: &str, value: &str) -> bool {
    const NAMES: [&str; 7] =
        ["tz", "timezone", "tzid", "tzname", "tzoffset", "utcoffset", "gmtoffset"];
    // Return early for most names: this function runs for every element of a point.
    let may_be_foreign = || {
        let beginning = name.get(..3).unwrap_or_default();
        // Some words for a zone in other languages are ASCII, but do not begin with t, u, g or z:
        // fuseau, fuso orario, huso horario, strefa czasowa, saat dilimi. Compare their beginnings.
        let begins_foreign_word = |begin: &&str| beginning.eq_ignore_ascii_case(begin);
        !name.is_ascii() || ["fus", "hus", "str", "saa"].iter().any(begins_foreign_word)
    };
    if !name.starts_with(['t', 'T', 'u', 'U', 'g', 'G', 'z', 'Z']) && !may_be_foreign() {
        return false;
    }
    let name = normalised(name);
    NAMES.contains(&&*name)
        || is_zone_in_other_language(&name)
        || name == "zone" && (value.contains('/') || value.contains(':'))
}
