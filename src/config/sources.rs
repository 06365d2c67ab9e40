//! `[[sources]]`, or one source from the environment, or `mqtt.topics`; and `[formats.NAME]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::settings::Settings;
use crate::pipeline::attributes::ATTRIBUTES_MAX;
use crate::pipeline::decode::formats::{Fields, Format, Mapping};
use crate::pipeline::decode::{
    Driver, Keep, LengthUnit, NAME_BYTES_MAX, PLUSES_MAX, Pointer, Source, SpeedUnit, Template, TimeUnit,
    overlap,
};

/// `[formats.NAME]`; `None` where something is wrong with it, which has been told.
type Mappings = BTreeMap<String, Option<Arc<Mapping>>>;

/// There are sources, or somebody has tried.
pub(super) fn are_given(s: &Settings) -> bool {
    ["sources", "source."].iter().any(|prefix| s.is_given(prefix))
}

/// Every source; `topics`: those of `mqtt.topics`, if that is how they are said.
pub(super) fn read(s: &mut Settings, topics: &[String]) -> Vec<Source> {
    let mappings = mappings(s);
    if !topics.is_empty() {
        unused(s, &mappings);
        return topics.iter().map(|topic| Source::milepost(topic)).collect();
    }
    if s.forget("sources.") | s.forget_key("sources") {
        s.violations.push(
            "sources: a list is wanted: [[sources]], with two brackets, for each; from the environment one can be set: \
             MILEPOST__SOURCE__TOPIC and so on"
                .to_owned(),
        );
    }
    let mut entries: Vec<String> =
        (1..).map(|n| format!("sources[{n}]")).take_while(|at| s.is_given(&format!("{at}."))).collect();
    if s.is_given("source.") {
        if !entries.is_empty() {
            s.violations
                .push("source: give either it (from the environment) or [[sources]], not both".to_owned());
        }
        entries.push("source".to_owned());
    }
    let (mut sources, wanted) = (Vec::new(), entries.len());
    for at in entries {
        let shown = if at == "source" { "sources[1]".to_owned() } else { at.clone() };
        sources.extend(Entry { s, at, shown }.read(&mappings));
    }
    assert!(
        sources.len() == wanted || !s.violations.is_empty(),
        "a source was left out, and nobody told why"
    );
    if sources.len() == wanted {
        unused(s, &mappings); // else the one that is wrong may be the one that uses it
    }
    for (n, later) in sources.iter().enumerate() {
        for earlier in sources[..n].iter().filter(|earlier| overlap(earlier.topic(), later.topic())) {
            s.violations.push(format!(
                "sources: \"{}\" and \"{}\" overlap: a message of both would come twice; make one of them narrower",
                earlier.topic(),
                later.topic()
            ));
        }
    }
    sources
}

/// A format that no source has is a mistake of the one or of the other.
fn unused(s: &mut Settings, mappings: &Mappings) {
    for (name, mapping) in mappings {
        if mapping.as_ref().is_some_and(|mapping| Arc::strong_count(mapping) == 1) {
            s.violations.push(format!(
                "formats.{name}: no source has it: give one format = \"{name}\", or remove it"
            ));
        }
    }
}

/// What a topic filter must be; with its number of levels `+`.
pub(super) fn filter(topic: &str) -> Result<usize, String> {
    let levels = topic.split('/').filter(|level| *level == "+").count();
    let wanted = "without #, without $share/ (mqtt.group says that), + only as a whole level";
    if topic.is_empty()
        || topic.contains(['#', '\0'])
        || topic.starts_with('$')
        || levels != topic.matches('+').count()
    {
        return Err(format!("\"{topic}\": a filter such as \"owntracks/+/+\" is wanted: {wanted}"));
    }
    if levels > PLUSES_MAX {
        return Err(format!("\"{topic}\": at most {PLUSES_MAX} levels + are wanted"));
    }
    Ok(levels)
}

/// One section, and what is wrong in it.
struct Entry<'s> {
    s: &'s mut Settings,
    /// As it is given: `sources[1]`, `source`, `formats.acme`.
    at: String,
    /// As it is shown.
    shown: String,
}

impl Entry<'_> {
    fn wrong(&mut self, name: &str, what: &str) {
        self.s.violations.push(format!("{}.{name}: {what}", self.at));
    }

    /// Not shown: whoever calls knows what it becomes.
    fn hidden(&mut self, name: &str) -> Option<String> {
        self.s.given_text(&format!("{}.{name}", self.at))
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let text = self.hidden(name)?;
        self.show(name, text.clone());
        Some(text)
    }

    fn show(&mut self, name: &str, value: impl super::setting::Setting) {
        self.s.show(format!("{}.{name}", self.shown), &value);
    }

    fn checked<T>(&mut self, name: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        check(&text).map_err(|what| self.wrong(name, &what)).ok()
    }

    fn pointer(&mut self, name: &str) -> Option<Pointer> {
        self.checked(name, Pointer::new)
    }

    fn unit<T: Copy>(&mut self, name: &str, units: &[(&'static str, T)]) -> Option<T> {
        self.checked(name, |text| {
            let known = units.iter().find(|(unit, _)| *unit == text);
            known.map(|(_, unit)| *unit).ok_or_else(|| format!("\"{text}\": {} is wanted", names(units)))
        })
    }

    /// A source; `None` where something is wrong, which has been told.
    fn read(mut self, mappings: &Mappings) -> Option<Source> {
        let topic = self.text("topic");
        if topic.is_none() {
            self.wrong("topic", "a filter such as \"owntracks/+/+\" is wanted");
        }
        let pluses =
            topic.as_deref().and_then(|topic| filter(topic).map_err(|what| self.wrong("topic", &what)).ok());
        let format = self.format(mappings);
        let driver = self.driver(pluses, format.as_ref());
        let keep = self.keep(format.as_ref());
        pluses?;
        Some(Source::new(&topic?, driver?, format?, keep))
    }

    fn format(&mut self, mappings: &Mappings) -> Option<Format> {
        let name = self.hidden("format").unwrap_or_else(|| "milepost".to_owned());
        self.show("format", name.clone());
        let unit = self.unit("speed_unit", &SpeedUnit::NAMES);
        let needs_unit = matches!(&*name, "thingsboard" | "geojson");
        if unit.is_none() && needs_unit && !self.has("speed_unit") {
            let units = names(&SpeedUnit::NAMES);
            self.wrong("speed_unit", &format!("{name} says no unit of speed: give one of {units}"));
        } else if unit.is_some() && !needs_unit {
            self.wrong(
                "speed_unit",
                &format!("{name} has its own; only thingsboard and geojson want one here"),
            );
        }
        Some(match &*name {
            "milepost" => Format::Milepost,
            "owntracks" => Format::OwnTracks,
            "traccar" => Format::Traccar,
            "traccar-client" => Format::TraccarClient,
            "teltonika" => Format::Teltonika,
            "thingsboard" => Format::ThingsBoard(unit?),
            "geojson" => Format::GeoJson(unit?),
            "nmea" => Format::Nmea,
            "w3c" => Format::W3c,
            _ => match mappings.get(&name) {
                Some(mapping) => Format::Mapped(Arc::clone(mapping.as_ref()?)),
                None => {
                    let known: Vec<&str> =
                        Format::NAMES.into_iter().chain(mappings.keys().map(String::as_str)).collect();
                    self.wrong(
                        "format",
                        &format!("\"{name}\" is none of {}; your own is [formats.NAME]", known.join(", ")),
                    );
                    return None;
                }
            },
        })
    }

    fn has(&self, name: &str) -> bool {
        self.s.was_given(&format!("{}.{name}", self.at))
    }

    fn driver(&mut self, pluses: Option<usize>, format: Option<&Format>) -> Option<Driver> {
        if let Some(text) = self.text("driver") {
            let driver = if text.starts_with('/') {
                Pointer::new(&text).map(Driver::Payload)
            } else {
                Template::new(&text, pluses?).map(Driver::Topic)
            };
            if matches!((&driver, format), (Ok(Driver::Payload(_)), Some(Format::Nmea))) {
                self.wrong("driver", "nmea sentences name nobody: the topic has to, as in \"{1}\"");
                return None;
            }
            return driver.map_err(|what| self.wrong("driver", &what)).ok();
        }
        if let Some(Format::Mapped(mapping)) = format
            && let Some(pointer) = mapping.driver()
        {
            return Some(Driver::Payload(pointer.clone()));
        }
        match pluses? {
            1 => {
                self.show("driver", "{1}".to_owned());
                Template::new("{1}", 1).map(Driver::Topic).ok()
            }
            0 => {
                self.wrong(
                    "driver",
                    "the topic has no +: give a JSON pointer into the payload, such as \"/device/uniqueId\"",
                );
                None
            }
            several => {
                let all: Vec<String> = (1..=several).map(|n| format!("{{{n}}}")).collect();
                let what = format!(
                    "the topic has {several} levels +: say which name the driver, such as \"{}\"",
                    all.join(":")
                );
                self.wrong("driver", &what);
                None
            }
        }
    }

    fn keep(&mut self, format: Option<&Format>) -> Keep {
        let key = format!("{}.keep", self.at);
        let names: Vec<String> = self.s.given(&key).unwrap_or_default();
        let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return Keep::Nothing;
        }
        self.show("keep", names.clone());
        if matches!(format, Some(Format::Nmea)) {
            self.wrong("keep", "nmea sentences have no names to keep fields by");
        }
        if names.iter().any(|name| name == "*") {
            if names.len() > 1 {
                self.wrong("keep", "\"*\" keeps everything: give it alone, or names");
            }
            return Keep::All;
        }
        if names.len() > ATTRIBUTES_MAX {
            self.wrong("keep", &format!("at most {ATTRIBUTES_MAX} names are wanted"));
        }
        let is_wrong =
            |name: &&String| name.starts_with('/') || name.ends_with('/') || name.len() > NAME_BYTES_MAX;
        if let Some(name) = names.iter().find(is_wrong) {
            let what = format!(
                "\"{name}\": a name such as \"batt\", or a path such as \"io/239\" without / before it, is wanted"
            );
            self.wrong("keep", &what);
        }
        Keep::Named(names)
    }

    /// `[formats.NAME]`; `None` where something is wrong, which has been told.
    fn mapping(mut self) -> Option<Mapping> {
        let points = self.pointer("points");
        let (lat, lng) = (self.required("lat"), self.required("lng"));
        let ts = self.with_unit("ts", &TimeUnit::NAMES);
        let speed = self.with_unit("speed", &SpeedUnit::NAMES);
        let alt = self.with_unit("alt", &LengthUnit::NAMES);
        let (heading, acc, seq) = (self.pointer("heading"), self.pointer("acc"), self.pointer("seq"));
        let driver = self.pointer("driver");
        let fields = Fields { points, lat: lat?, lng: lng?, ts, speed, heading, alt, acc, seq, driver };
        let pointers: Vec<&str> = fields.pointers().into_iter().flatten().map(Pointer::as_str).collect();
        if let Some(n) = (1..pointers.len()).find(|n| pointers[..*n].contains(&pointers[*n])) {
            let what = format!("{}: \"{}\" is given for two fields", self.at, pointers[n]);
            self.s.violations.push(what);
            return None;
        }
        Some(Mapping::new(fields))
    }

    fn required(&mut self, name: &str) -> Option<Pointer> {
        if !self.has(name) {
            self.wrong(name, &format!("where is it? a JSON pointer such as \"/{name}\" is wanted"));
        }
        self.pointer(name)
    }

    /// A pointer, and its unit beside it.
    fn with_unit<T: Copy>(&mut self, name: &str, units: &[(&'static str, T)]) -> Option<(Pointer, T)> {
        let unit_name = format!("{name}_unit");
        let (has, has_unit) = (self.has(name), self.has(&unit_name));
        if has && !has_unit {
            self.wrong(&unit_name, &format!("say what {name} is in: {}", names(units)));
        } else if has_unit && !has {
            self.wrong(&unit_name, &format!("there is no {name} that it would be the unit of"));
        }
        let (pointer, unit) = (self.pointer(name), self.unit(&unit_name, units));
        Some((pointer?, unit?))
    }
}

fn names<T>(units: &[(&'static str, T)]) -> String {
    units.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn mappings(s: &mut Settings) -> Mappings {
    let mut mappings = Mappings::new();
    for name in s.names_in("formats.") {
        let at = format!("formats.{name}");
        let is_taken = Format::NAMES.contains(&&*name);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if is_taken {
            s.violations.push(format!("{at}: milepost has a format of this name already; choose another"));
        }
        if !is_name {
            s.violations.push(format!("{at}: a name of letters, digits, _ and - is wanted"));
        }
        let mapping = Entry { s, shown: at.clone(), at }.mapping().map(Arc::new);
        mappings.insert(name, mapping.filter(|_| is_name && !is_taken));
    }
    mappings
}
