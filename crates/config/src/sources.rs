//! Reads `[[sources]]`, one source from the environment, or `mqtt.topics`; and `[formats.NAME]`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::field::Field;
use super::setting::Setting;
use super::settings::Settings;
use milepost_decode::attributes::ATTRIBUTES_MAX;
use milepost_decode::formats::{Degrees, Fields, Format, Mapping, More, shipped, unknown};
use milepost_decode::{
    Driver, Keep, Local, OtherBytes, PLUSES_MAX, Pointer, Quantity, Source, SpeedUnit, Template,
    TimeUnit, Zone, overlap,
};

/// The sections `[formats.NAME]` by NAME.
type Mappings = BTreeMap<String, Configured>;

/// A section `[formats.NAME]`.
struct Configured {
    /// `None` after a violation.
    mapping: Option<Arc<Mapping>>,
    /// Whether the mapping may be for `milepost import` only (the key `import`).
    is_for_import: bool,
}

/// Returns whether any key of a source is given.
pub(super) fn are_given(settings: &Settings) -> bool {
    ["sources", "source."].iter().any(|prefix| settings.is_any_given(prefix))
}

/// Reads the sources and the mappings of `[formats.NAME]`. `topics`: the topics of `mqtt.topics`;
/// empty if `[[sources]]` are given.
pub(super) fn read(
    settings: &mut Settings,
    topics: &[String],
    fields: &[Field],
) -> (Vec<Source>, BTreeMap<String, Arc<Mapping>>) {
    let mappings = read_mappings(settings);
    let sources = read_sources(settings, topics, &mappings);
    let sources = keep_fields(settings, sources, fields);
    let mappings = mappings.into_iter();
    (sources, mappings.filter_map(|(name, configured)| Some((name, configured.mapping?))).collect())
}

/// Makes every source keep the values from which fields are computed.
fn keep_fields(settings: &mut Settings, sources: Vec<Source>, fields: &[Field]) -> Vec<Source> {
    let names: Vec<String> = fields.iter().flat_map(|field| field.from.iter().cloned()).collect();
    let keeping = sources.into_iter().enumerate().filter_map(|(index, source)| {
        let keeping = source.keeping(&names).map_err(|count| {
            format!("{count} names, including those of [fields.NAME]; at most {ATTRIBUTES_MAX}")
        });
        settings.valid(&format!("sources[{}].keep", index + 1), keeping)
    });
    keeping.collect()
}

/// Reads the sources. Each keeps only the names of its own `keep`; [`keep_fields`] adds the names
/// that `[fields.NAME]` needs.
fn read_sources(settings: &mut Settings, topics: &[String], mappings: &Mappings) -> Vec<Source> {
    if !topics.is_empty() {
        report_unused(settings, mappings);
        let sources: Vec<Source> = topics.iter().map(|topic| Source::milepost(topic)).collect();
        report_overlaps(settings, "mqtt.topics", &sources);
        return sources;
    }
    if settings.forget(|key| key == "sources" || key.starts_with("sources.")) {
        settings.add_violation(
            "sources",
            "must be a list: write [[sources]], with two brackets, before each source; the \
             environment can set one source: MILEPOST__SOURCE__TOPIC and so on",
        );
    }
    let mut entries: Vec<String> = (1..)
        .map(|n| format!("sources[{n}]"))
        .take_while(|section| settings.is_any_given(&format!("{section}.")))
        .collect();
    if settings.is_any_given("source.") {
        if !entries.is_empty() {
            settings.add_violation(
                "source",
                "set either this (in the environment) or [[sources]], not both",
            );
        }
        entries.push("source".to_owned());
    }
    let (mut sources, expected) = (Vec::new(), entries.len());
    for section in entries {
        let effective_section =
            if section == "source" { "sources[1]".to_owned() } else { section.clone() };
        sources.extend(Entry { settings, section, effective_section }.read_source(mappings));
    }
    assert!(
        sources.len() == expected || !settings.violations.is_empty(),
        "a source was dropped without a violation"
    );
    if sources.len() == expected {
        // Only if every source is valid: an invalid source could be the only user of a format.
        report_unused(settings, mappings);
    }
    report_overlaps(settings, "sources", &sources);
    sources
}

/// Reports each source that overlaps an earlier one. Names only the first source that it overlaps,
/// because a list of all pairs would grow with the square of the number of sources.
fn report_overlaps(settings: &mut Settings, key: &str, sources: &[Source]) {
    let mut distinct: Vec<&str> = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in sources.iter().map(Source::topic) {
        let count = counts.entry(topic).or_default();
        *count += 1;
        if *count > 1 {
            continue;
        }
        if let Some(earlier) = distinct.iter().find(|earlier| overlap(earlier, topic)) {
            let why = "both would store the same message; make one of them narrower";
            settings.add_violation(key, format!("\"{earlier}\" and \"{topic}\" overlap: {why}"));
        }
        distinct.push(topic);
    }
    for (topic, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
        settings.add_violation(key, format!("\"{topic}\" is listed {count} times; keep one"));
    }
}

/// Reports each mapping that neither a source nor `milepost import` uses.
fn report_unused(settings: &mut Settings, mappings: &Mappings) {
    for (name, Configured { mapping, is_for_import }) in mappings {
        // A source that uses the mapping holds a clone of its `Arc`.
        if !*is_for_import
            && mapping.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) == 1)
        {
            let problem = format!(
                "no source uses it: set format = \"{name}\" in one, set import = true for \
                 `milepost import`, or remove it"
            );
            settings.add_violation(&format!("formats.{name}"), problem);
        }
    }
}

/// Checks a topic filter, and returns the number of levels that are `+`.
pub(super) fn plus_levels(topic: &str) -> Result<usize, String> {
    let pluses = topic.split('/').filter(|level| *level == "+").count();
    let expected =
        "without # or $share/ (set mqtt.group instead), and with + only as a whole level";
    if topic.is_empty()
        || topic.contains(|c: char| c == '#' || c.is_control())
        || topic.starts_with('$')
        || pluses != topic.matches('+').count()
    {
        return Err(format!("{topic:?}: must be a filter such as \"owntracks/+/+\", {expected}"));
    }
    if pluses > PLUSES_MAX {
        return Err(format!("\"{topic}\": must have at most {PLUSES_MAX} `+`"));
    }
    Ok(pluses)
}

/// One section, `[[sources]]` or `[formats.NAME]`.
struct Entry<'s> {
    settings: &'s mut Settings,
    /// Key of the section: `sources[1]`, `source`, `formats.acme`.
    section: String,
    /// Key of the section in the effective configuration.
    effective_section: String,
}

impl Entry<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn add_violation(&mut self, name: &str, problem: impl fmt::Display) {
        self.settings.add_violation(&self.key(name), problem);
    }

    fn valid<T>(&mut self, name: &str, value: Result<T, String>) -> Option<T> {
        self.settings.valid(&self.key(name), value)
    }

    fn has(&self, name: &str) -> bool {
        self.settings.is_given(&self.key(name))
    }

    /// Reads a value without adding it to the effective configuration.
    fn value(&mut self, name: &str) -> Option<String> {
        self.settings.read(&self.key(name))
    }

    /// Reads a value, and adds it to the effective configuration.
    fn text(&mut self, name: &str) -> Option<String> {
        let text = self.value(name)?;
        self.add_effective(name, &text);
        Some(text)
    }

    fn add_effective(&mut self, name: &str, value: &impl Setting) {
        self.settings.add_effective(&format!("{}.{name}", self.effective_section), value);
    }

    /// Reads a value, adds it to the effective configuration, and returns it after `check`.
    fn checked<T>(
        &mut self,
        name: &str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(name)?;
        self.valid(name, check(&text))
    }

    fn pointer(&mut self, name: &str) -> Option<Pointer> {
        self.checked(name, Pointer::new)
    }

    /// Reads the name of a unit, and returns the unit.
    fn unit<T: Copy>(&mut self, name: &str, units: &[(&'static str, T)]) -> Option<T> {
        self.checked(name, |text| {
            let named = units.iter().find(|(name, _)| *name == text);
            named
                .map(|(_, unit)| *unit)
                .ok_or_else(|| format!("\"{text}\": must be one of {}", names(units)))
        })
    }

    /// Reads a source; `None` after a violation.
    fn read_source(mut self, mappings: &Mappings) -> Option<Source> {
        let topic = self.text("topic");
        if topic.is_none() {
            self.add_violation("topic", "required: a filter such as \"owntracks/+/+\"");
        }
        let pluses = topic.as_deref().and_then(|topic| self.valid("topic", plus_levels(topic)));
        let format = self.read_format(mappings);
        let driver = self.read_driver(pluses, format.as_ref());
        let keep = self.read_keep(format.as_ref());
        let zone = self.checked("zone", Zone::new);
        let other_bytes = self.checked("driver_other", OtherBytes::new).unwrap_or_default();
        pluses?; // without a valid topic there is no source
        let source = Source::new(&topic?, driver?, format?, keep).with_other_bytes(other_bytes);
        Some(match zone {
            Some(zone) => source.in_zone(zone),
            None => source,
        })
    }

    /// Reads `format` and `speed_unit`; `None` if the format cannot be used.
    fn read_format(&mut self, mappings: &Mappings) -> Option<Format> {
        let name = self.value("format").unwrap_or_else(|| "milepost".to_owned());
        self.add_effective("format", &name);
        let unit = self.unit("speed_unit", &SpeedUnit::NAMES);
        let needs_unit = matches!(&*name, "thingsboard" | "geojson");
        if unit.is_none() && needs_unit && !self.has("speed_unit") {
            let units = names(&SpeedUnit::NAMES);
            self.add_violation(
                "speed_unit",
                format!("{name} defines no unit of speed: set one of {units}"),
            );
        } else if unit.is_some() && !needs_unit {
            let problem =
                format!("{name} has its own unit; only thingsboard and geojson need this key");
            self.add_violation("speed_unit", problem);
        }
        Some(match &*name {
            "milepost" => Format::Milepost,
            "geojson" => Format::GeoJson(unit?),
            "nmea" => Format::Nmea,
            _ => match (shipped(&name, unit), mappings.get(&name)) {
                (Some(_), _) if needs_unit && unit.is_none() => return None,
                (Some(mapping), _) => Format::Mapped(Arc::new(mapping)),
                (None, Some(configured)) => {
                    Format::Mapped(Arc::clone(configured.mapping.as_ref()?))
                }
                (None, None) => {
                    let configured = mappings.keys().map(String::as_str);
                    let names: Vec<_> = Format::NAMES.into_iter().chain(configured).collect();
                    let names = names.join(", ");
                    let problem =
                        format!("\"{name}\": must be one of {names}, or your own [formats.NAME]");
                    self.add_violation("format", problem);
                    return None;
                }
            },
        })
    }

    /// Reads `driver`. If the key is not given, takes the driver from the format's mapping, or from
    /// the only `+` of the topic. `pluses`: number of `+` in the topic. `None` after a violation.
    fn read_driver(&mut self, pluses: Option<usize>, format: Option<&Format>) -> Option<Driver> {
        if let Some(text) = self.text("driver") {
            let driver = if text.starts_with('/') {
                Pointer::new(&text).map(Driver::Payload)
            } else {
                Template::new(&text, pluses?).map(Driver::Topic)
            };
            if matches!((&driver, format), (Ok(Driver::Payload(_)), Some(Format::Nmea))) {
                self.add_violation(
                    "driver",
                    "nmea sentences do not name the driver: take it from the topic, as in \"{1}\"",
                );
                return None;
            }
            return self.valid("driver", driver);
        }
        if let Some(Format::Mapped(mapping)) = format
            && let Some(pointer) = mapping.driver()
        {
            return Some(Driver::Payload(pointer.clone()));
        }
        let problem = match pluses? {
            1 => {
                self.add_effective("driver", &"{1}".to_owned());
                return Template::new("{1}", 1).map(Driver::Topic).ok();
            }
            0 => "the topic has no +: set a JSON pointer into the payload, such as \
                  \"/device/uniqueId\""
                .to_owned(),
            count => {
                let all: Vec<String> = (1..=count).map(|number| format!("{{{number}}}")).collect();
                let example = all.join(":");
                format!(
                    "the topic has {count} `+`: set which of them name the driver, such as \
                     \"{example}\""
                )
            }
        };
        self.add_violation("driver", problem);
        None
    }

    fn read_keep(&mut self, format: Option<&Format>) -> Keep {
        let mut names: Vec<String> = self.settings.read(&self.key("keep")).unwrap_or_default();
        names.retain(|name| !name.is_empty());
        if names.is_empty() {
            return Keep::Nothing;
        }
        self.add_effective("keep", &names);
        if matches!(format, Some(Format::Nmea)) {
            self.add_violation("keep", "nmea sentences have no named fields");
        }
        self.valid("keep", Keep::of_names(&names)).unwrap_or(Keep::Nothing)
    }

    /// Reads `import` of `[formats.NAME]`.
    fn read_import(&mut self) -> bool {
        let is_for_import: Option<bool> = self.settings.read(&self.key("import"));
        if let Some(is_for_import) = &is_for_import {
            self.add_effective("import", is_for_import);
        }
        is_for_import.unwrap_or(false)
    }

    /// Reads the other keys of `[formats.NAME]`; `None` after a violation.
    fn read_mapping(mut self) -> Option<Mapping> {
        let points = self.pointer("points");
        let (lat, lng) = (self.required("lat"), self.required("lng"));
        let mut more = More::default();
        let ts = self.read_time(&mut more);
        let speed = self.read_with_unit("speed", Quantity::Speed);
        let alt = self.read_with_unit("alt", Quantity::Length);
        let (heading, acc, seq) =
            (self.pointer("heading"), self.pointer("acc"), self.pointer("seq"));
        let driver = self.pointer("driver");
        let has_unit_of_degrees = self.read_rare_keys(&mut more);
        let more = Some(Box::new(more)).filter(|more| **more != More::default());
        let fields = Fields {
            points,
            lat: lat?,
            lng: lng?,
            ts,
            speed,
            heading,
            alt,
            acc,
            seq,
            driver,
            has_unit_of_degrees,
            more,
        };
        let rare = fields.more.iter().flat_map(|more| more.pointers()).map(|(_, pointer)| pointer);
        let pointers: Vec<&str> =
            fields.pointers().into_iter().flatten().chain(rare).map(Pointer::as_str).collect();
        let is_repeated = |index: &usize| pointers[..*index].contains(&pointers[*index]);
        if let Some(index) = (1..pointers.len()).find(is_repeated) {
            let problem = format!("\"{}\" is the pointer of two fields", pointers[index]);
            self.settings.add_violation(&self.section, problem);
            return None;
        }
        Some(Mapping::new(fields))
    }

    fn required(&mut self, name: &str) -> Option<Pointer> {
        if !self.has(name) {
            self.add_violation(name, format!("required: a JSON pointer such as \"/{name}\""));
        }
        self.pointer(name)
    }

    /// Reads a pointer, and the factor of the unit in `{name}_unit`.
    fn read_with_unit(&mut self, name: &str, quantity: Quantity) -> Option<(Pointer, f64)> {
        let unit = format!("{name}_unit");
        self.check_unit(name, &unit, || quantity.factor("").err().unwrap_or_default());
        let (pointer, factor) =
            (self.pointer(name), self.checked(&unit, |unit| quantity.factor(unit)));
        Some((pointer?, factor?))
    }

    /// Reports a field without its unit, and a unit without its field. `units`: the valid units.
    fn check_unit(&mut self, name: &str, unit: &str, units: impl FnOnce() -> String) {
        match (self.has(name), self.has(unit)) {
            (true, false) => {
                // The error about an empty unit lists the units after a prefix.
                let units = units();
                let units = units.trim_start_matches("\"\": must be ");
                self.add_violation(unit, format!("required with {name}: {units}"));
            }
            (false, true) => {
                self.add_violation(
                    unit,
                    format!("there is no {name}: remove the unit, or set the pointer"),
                );
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Reads `ts` with its unit or its strftime pattern, `ts_date` and `ts_zone`.
    fn read_time(&mut self, more: &mut More) -> Option<(Pointer, TimeUnit)> {
        let units = || {
            format!(
                "one of {}, or a pattern such as \"%d/%m/%Y %H:%M:%S\"",
                names(&TimeUnit::NAMES)
            )
        };
        self.check_unit("ts", "ts_unit", units);
        more.date = self.pointer("ts_date");
        let zone = self.checked("ts_zone", Zone::new);
        let mut pattern = None;
        let unit = self.checked("ts_unit", |text| {
            if text.contains('%') {
                pattern = Some(Local::check_pattern(text)?);
                return Ok(TimeUnit::Pattern);
            }
            let named = TimeUnit::NAMES.iter().find(|(name, _)| *name == text);
            named.map(|(_, unit)| *unit).ok_or_else(|| format!("\"{text}\": must be {}", units()))
        });
        let is_number = unit.is_some_and(|unit| {
            !matches!(unit, TimeUnit::Rfc3339 | TimeUnit::Pattern | TimeUnit::BySize)
        });
        for key in ["ts_date", "ts_zone"] {
            if self.has(key) && (is_number || !self.has("ts")) {
                self.add_violation(
                    key,
                    "only for a ts that is a string: set ts_unit to \"rfc3339\", or to a pattern",
                );
            }
        }
        if zone.is_some() || pattern.is_some() || more.date.is_some() {
            more.local = Some(Arc::new(Local { zone, pattern }));
        }
        Some((self.pointer("ts")?, unit?))
    }

    /// Reads the keys that few formats need: units of angles and of accuracy, hemispheres, values
    /// that stand for unknown, and messages without a position. Returns whether `lat_unit` is set.
    fn read_rare_keys(&mut self, more: &mut More) -> bool {
        let [lat, lng] = ["lat_unit", "lng_unit"].map(|key| self.checked(key, Degrees::new));
        if let Some(lat) = lat {
            more.degrees = [lat, lng.unwrap_or(lat.unsigned())];
        } else if lng.is_some() {
            self.add_violation("lng_unit", "requires lat_unit; lat_unit alone applies to both");
        }
        more.hemispheres = ["lat_hemisphere", "lng_hemisphere"].map(|key| self.pointer(key));
        for (name, quantity, factor) in [
            ("heading", Quantity::Angle, &mut more.heading),
            ("acc", Quantity::Length, &mut more.acc),
        ] {
            let unit = format!("{name}_unit");
            if let Some(given) = self.checked(&unit, |unit| quantity.factor(unit)) {
                *factor = given;
                if name == "heading" {
                    more.has_unit_of_heading = true;
                }
                if !self.has(name) {
                    self.add_violation(
                        &unit,
                        format!("there is no {name}: remove the unit, or set the pointer"),
                    );
                }
            }
        }
        let values: Vec<String> = self.settings.read(&self.key("unknown")).unwrap_or_default();
        if !values.is_empty() {
            self.add_effective("unknown", &values);
        }
        for value in values {
            more.unknown.extend(self.valid("unknown", unknown(&value)));
        }
        more.may_lack_position = self
            .checked("without_position", |text| match text {
                "ignore" => Ok(true),
                "reject" => Ok(false),
                _ => Err(format!("\"{text}\": must be \"ignore\" or \"reject\"")),
            })
            .unwrap_or(false);
        lat.is_some()
    }
}

/// Returns the units' names in quotes, separated by commas.
fn names<T>(units: &[(&'static str, T)]) -> String {
    units.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Reads all of `[formats.NAME]`.
fn read_mappings(settings: &mut Settings) -> Mappings {
    let mut mappings = Mappings::new();
    for name in settings.names_in("formats.") {
        let section = format!("formats.{name}");
        let is_taken = Format::NAMES.contains(&&*name);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if is_taken {
            settings
                .add_violation(&section, "milepost ships a format of this name; choose another");
        }
        if !is_name {
            settings.add_violation(&section, "must be a name of letters, digits, _ and -");
        }
        let mut entry = Entry { settings, effective_section: section.clone(), section };
        let is_for_import = entry.read_import();
        let mapping = entry.read_mapping().map(Arc::new).filter(|_| is_name && !is_taken);
        mappings.insert(name, Configured { mapping, is_for_import });
    }
    mappings
}
