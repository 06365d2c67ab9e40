//! Validates the parameters of a request. Each error says what is valid.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use crate::fleet::filter::State;
use crate::fleet::ids::ID_BYTES_MAX;
use crate::geo::Tile;

/// Maximum length of a span: 31 days and two hours, so that a span can be any month of any zone.
/// Clocks may be set back by an hour in a month, and at Troll by two.
const SPAN_MS_MAX: i64 = 31 * 86_400_000 + 2 * 3_600_000;
/// Latest time that is accepted: 2100-01-01, in milliseconds since 1970.
const MS_MAX: i64 = 4_102_444_800_000;
/// Default length of a span.
const SPAN_MS: i64 = 3_600_000;
/// Maximum of `limit`.
const LIMIT_MAX: usize = 100;
/// Maximum length of an attribute with its value, a group or a fence name, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum number of tiles in one response: more than twice as many as a screen of 3840 × 2160
/// shows.
pub const TILES_MAX: usize = 128;
/// Maximum number of drivers in a request for names.
const NAMES_MAX: usize = 400;
/// Maximum of `simplify`, in metres.
const SIMPLIFY_M_MAX: f64 = 10_000.0;
/// Maximum of `zoom`.
const ZOOM_MAX: u8 = 20;

/// A box in degrees. It crosses the antimeridian if west is above east.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bbox {
    pub west: f64,
    pub south: f64,
    pub east: f64,
    pub north: f64,
}

impl Bbox {
    /// Returns whether the box contains a place, in degrees times 1e7.
    #[must_use]
    pub fn contains(&self, lat_e7: i32, lng_e7: i32) -> bool {
        let (lat, lng) = (f64::from(lat_e7) / 1e7, f64::from(lng_e7) / 1e7);
        let is_between = if self.west <= self.east {
            (self.west..=self.east).contains(&lng)
        } else {
            lng >= self.west || lng <= self.east
        };
        is_between && (self.south..=self.north).contains(&lat)
    }
}

/// A time range in milliseconds since 1970; the end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from_ms: i64,
    pub to_ms: i64,
}

/// File format of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Gpx,
}

impl Format {
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Gpx => "application/gpx+xml",
        }
    }

    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Gpx => "gpx",
        }
    }
}

/// Conditions of a list. A driver must meet all of them. A condition at its default excludes no
/// driver.
#[derive(Debug, Default, PartialEq)]
pub struct Filter {
    pub prefix: String,
    /// Part of the id or the name, in any case.
    pub find: String,
    pub group: String,
    /// Includes drivers silent for longer than `map.hidden_after`.
    pub has_hidden: bool,
    /// Minimum number of seconds since the newest message arrived.
    pub silent_s: u32,
    /// Metres per second.
    pub faster_than: f64,
    /// Slower than 0.5 m/s.
    pub is_stopped: bool,
    /// Name of an attribute; empty: no condition.
    pub attribute_name: String,
    /// Value of the attribute; empty: any.
    pub attribute_value: String,
    pub fence: String,
}

/// The parameters in the query string of a URL.
#[derive(Debug)]
pub struct Params {
    given: BTreeMap<String, String>,
}

impl Params {
    /// Parses a query string.
    ///
    /// # Errors
    /// A parameter is repeated, or not in `known`.
    pub fn new(query: Option<&str>, known: &[&str]) -> Result<Self, String> {
        let mut given = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*name) {
                let valid = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(format!(
                    "{}: there is no such parameter; there are: {valid}",
                    quoted(&name)
                ));
            }
            if given.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(format!("{name}: give it once"));
            }
        }
        Ok(Self { given })
    }

    /// Returns a parameter that is given and not empty.
    fn non_empty(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the box of `bbox`.
    ///
    /// # Errors
    /// The box is missing or invalid.
    pub fn bbox(&self) -> Result<Bbox, String> {
        let text = self.non_empty("bbox");
        let invalid = || {
            let given = text.map_or_else(
                || "missing".to_owned(),
                |text| format!("{} is not a box", quoted(text)),
            );
            format!(
                "bbox: {given}; expected west,south,east,north in degrees, such as \
                 -80.3,25.6,-80.1,25.9 (west above east crosses the antimeridian)"
            )
        };
        let numbers: Option<Vec<f64>> =
            text.unwrap_or_default().split(',').map(|number| number.trim().parse().ok()).collect();
        let Some(&[west, south, east, north]) = numbers.as_deref() else {
            return Err(invalid());
        };
        let (lng, lat) = (-180.0..=180.0, -90.0..=90.0);
        let is_good = lng.contains(&west)
            && lng.contains(&east)
            && lat.contains(&south)
            && lat.contains(&north);
        if is_good && south <= north {
            Ok(Bbox { west, south, east, north })
        } else {
            Err(invalid())
        }
    }

    /// Returns the requested tiles, each with the version that the client has.
    ///
    /// # Errors
    /// No tiles, too many, or an invalid one.
    pub fn tiles(&self) -> Result<Vec<(Tile, Option<u64>)>, String> {
        let valid = format!(
            "expected z/x/y,z/x/y:version,… with z from 0 to {}, x and y from 0 to 2^z - 1, and \
             optionally the version that you have",
            Tile::Z_MAX
        );
        let text = self.non_empty("of").ok_or_else(|| format!("of: missing; {valid}"))?;
        let count = text.split(',').count();
        if count > TILES_MAX {
            return Err(format!("of: {count} tiles are too many; expected at most {TILES_MAX}"));
        }
        let parse =
            |text| tile(text).ok_or_else(|| format!("of: {} is not a tile; {valid}", quoted(text)));
        text.split(',').map(parse).collect()
    }

    /// Returns a time, or `default`.
    ///
    /// # Errors
    /// The value is not a time.
    pub fn time_ms(&self, name: &str, default: i64) -> Result<i64, String> {
        let Some(text) = self.non_empty(name) else { return Ok(default) };
        let ms = match text.parse::<i64>() {
            Ok(ms) => Some(ms),
            Err(_) => humantime::parse_rfc3339_weak(text)
                .ok()
                .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                .and_then(|since| i64::try_from(since.as_millis()).ok()),
        };
        ms.filter(|ms| (0..=MS_MAX).contains(ms)).ok_or_else(|| {
            format!(
                "{name}: {} is not a time; expected milliseconds since 1970, or a string such as \
                 2026-11-21T08:00:00Z",
                quoted(text)
            )
        })
    }

    /// Returns the range of `from` and `to`; by default the last hour.
    ///
    /// # Errors
    /// An invalid time, the wrong order, or too long a range.
    pub fn span(&self, now_ms: i64) -> Result<Span, String> {
        let to_ms = self.time_ms("to", now_ms)?;
        let from_ms = self.time_ms("from", to_ms - SPAN_MS)?;
        if from_ms >= to_ms {
            return Err("from: expected a time before to".to_owned());
        }
        if to_ms - from_ms > SPAN_MS_MAX {
            return Err("to: expected at most 31 days after from".to_owned());
        }
        Ok(Span { from_ms, to_ms })
    }

    /// Returns the number of results to return, or `default`.
    ///
    /// # Errors
    /// The limit is not a whole number from 1 to 100.
    pub fn limit(&self, default: usize) -> Result<usize, String> {
        let Some(text) = self.non_empty("limit") else { return Ok(default) };
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| {
            format!(
                "limit: {} is invalid; expected a whole number from 1 to {LIMIT_MAX}",
                quoted(text)
            )
        })
    }

    /// Returns a prefix of drivers' ids; empty: every id.
    ///
    /// # Errors
    /// The prefix cannot begin an id.
    pub fn prefix(&self) -> Result<&str, String> {
        let prefix = self.non_empty("prefix").unwrap_or_default();
        if prefix.is_empty() {
            Ok(prefix)
        } else {
            driver(prefix).map_err(|why| format!("prefix: {why}"))
        }
    }

    /// Returns the conditions of a list of drivers. Every driver meets a condition that the request
    /// leaves out.
    ///
    /// # Errors
    /// A condition is invalid.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a month")]
    pub fn filter(&self) -> Result<Filter, String> {
        let attribute = self.short_text("attribute")?;
        let (attribute_name, attribute_value) =
            attribute.split_once('=').unwrap_or((attribute, ""));
        Ok(Filter {
            prefix: self.prefix()?.to_owned(),
            find: self.find()?.unwrap_or_default().to_owned(),
            group: self.group()?.to_owned(),
            has_hidden: self.flag("hidden")?,
            silent_s: self.number("silent", f64::from(31 * 86_400), "seconds")?.round() as u32,
            faster_than: self.number("faster", 1_000.0, "metres per second")?,
            is_stopped: self.flag("stopped")?,
            attribute_name: attribute_name.to_owned(),
            attribute_value: attribute_value.to_owned(),
            fence: self.short_text("fence")?.to_owned(),
        })
    }

    /// Returns a number from 0 to `max`; 0 if it is not given.
    fn number(&self, name: &str, max: f64, unit: &str) -> Result<f64, String> {
        let Some(text) = self.non_empty(name) else { return Ok(0.0) };
        let number = text.parse().ok().filter(|number| (0.0..=max).contains(number));
        number.ok_or_else(|| {
            format!("{name}: {} is invalid; expected {unit} from 0 to {max}", quoted(text))
        })
    }

    /// Returns a flag; false if it is not given.
    fn flag(&self, name: &str) -> Result<bool, String> {
        let text = self.non_empty(name).unwrap_or("false");
        text.parse()
            .map_err(|_| format!("{name}: {} is invalid; expected true or false", quoted(text)))
    }

    /// Returns the name of the group that an answer is limited to; empty: every group.
    ///
    /// # Errors
    /// The name is too long.
    pub fn group(&self) -> Result<&str, String> {
        self.short_text("group")
    }

    /// Returns the part of a driver's id or name to search for; `None`: not given.
    ///
    /// # Errors
    /// The text is too long.
    pub fn find(&self) -> Result<Option<&str>, String> {
        Ok(Some(self.short_text("find")?).filter(|text| !text.is_empty()))
    }

    /// Returns the states to show, as bits of [`State`]; by default all but hidden.
    ///
    /// # Errors
    /// A state does not exist.
    pub fn states(&self) -> Result<u8, String> {
        let Some(text) = self.non_empty("states") else { return Ok(State::SHOWN) };
        text.split(',').try_fold(0, |states, name| {
            let state = State::ALL.into_iter().find(|state| state.name() == name);
            let state = state.ok_or_else(|| {
                let names = State::ALL.map(State::name).join(", ");
                format!("states: {} is not a state; expected some of {names}", quoted(name))
            })?;
            Ok(states | state as u8)
        })
    }

    /// Returns the ids of drivers in the parameter `of`.
    ///
    /// # Errors
    /// No ids, too many, or an invalid one.
    pub fn drivers(&self) -> Result<Vec<&str>, String> {
        let text =
            self.non_empty("of").ok_or("of: missing; expected driver ids, separated by commas")?;
        let ids: Vec<&str> = text.split(',').collect();
        if ids.len() > NAMES_MAX {
            return Err(format!(
                "of: {} drivers are too many; expected at most {NAMES_MAX}",
                ids.len()
            ));
        }
        ids.iter().try_for_each(|id| driver(id).map(drop)).map_err(|why| format!("of: {why}"))?;
        Ok(ids)
    }

    /// Returns a fence's name.
    ///
    /// # Errors
    /// The name is missing or too long.
    pub fn fence(&self) -> Result<&str, String> {
        let fence = self.short_text("fence")?;
        if fence.is_empty() {
            Err("fence: missing; expected the name of a fence".to_owned())
        } else {
            Ok(fence)
        }
    }

    /// Returns the name of an IANA time zone, by default UTC. ClickHouse checks whether it exists.
    ///
    /// # Errors
    /// The name is too long, or has characters that no time zone's name has.
    pub fn zone(&self) -> Result<&str, String> {
        let zone = self.non_empty("tz").unwrap_or("UTC");
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte);
        let is_good = zone.len() <= 64 && zone.bytes().all(is_allowed);
        if is_good {
            Ok(zone)
        } else {
            Err(format!(
                "tz: {} is not a time zone; expected one such as Europe/Berlin",
                quoted(zone)
            ))
        }
    }

    /// Returns the number of hours to look back, or `default`.
    ///
    /// # Errors
    /// The value is not a whole number from 1 to 744, which is 31 days.
    pub fn hours(&self, default: u32) -> Result<u32, String> {
        let Some(text) = self.non_empty("hours") else { return Ok(default) };
        let hours = text.parse().ok().filter(|hours| (1..=744).contains(hours));
        hours.ok_or_else(|| {
            format!("hours: {} is invalid; expected a whole number from 1 to 744", quoted(text))
        })
    }

    /// Returns the file format in which a track is requested; `None`: JSON.
    ///
    /// # Errors
    /// The format does not exist.
    pub fn format(&self) -> Result<Option<Format>, String> {
        match self.non_empty("format") {
            None | Some("json") => Ok(None),
            Some("csv") => Ok(Some(Format::Csv)),
            Some("gpx") => Ok(Some(Format::Gpx)),
            Some(unknown) => {
                Err(format!("format: {} is unknown; expected json, csv or gpx", quoted(unknown)))
            }
        }
    }

    /// Returns a text of at most [`TEXT_BYTES_MAX`]; empty if it is not given.
    fn short_text(&self, name: &str) -> Result<&str, String> {
        let text = self.non_empty(name).unwrap_or_default();
        let is_good = text.len() <= TEXT_BYTES_MAX;
        if is_good {
            Ok(text)
        } else {
            Err(format!("{name}: expected at most {TEXT_BYTES_MAX} bytes"))
        }
    }

    /// Returns the tolerance of the simplification, in metres; 0: not simplified.
    ///
    /// # Errors
    /// The value is not a number from 0 to 10,000.
    pub fn simplify(&self) -> Result<f64, String> {
        let Some(text) = self.non_empty("simplify") else { return Ok(0.0) };
        let metres = text.parse().ok().filter(|metres| (0.0..=SIMPLIFY_M_MAX).contains(metres));
        metres.ok_or_else(|| {
            format!("simplify: {} is invalid; expected metres from 0 to 10000", quoted(text))
        })
    }

    /// Returns the zoom of the map.
    ///
    /// # Errors
    /// The zoom is missing, or not a whole number from 0 to 20.
    pub fn zoom(&self) -> Result<u8, String> {
        let text = self.non_empty("zoom").unwrap_or_default();
        let zoom = text.parse().ok().filter(|zoom| *zoom <= ZOOM_MAX);
        zoom.ok_or_else(|| {
            format!(
                "zoom: {} is invalid; expected a whole number from 0 to {ZOOM_MAX}",
                quoted(text)
            )
        })
    }
}

/// Returns the id if milepost accepts it as a driver id.
///
/// # Errors
/// The id is empty, too long, or has other characters.
pub fn driver(id: &str) -> Result<&str, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(is_allowed) {
        return Ok(id);
    }
    Err(format!(
        "{} is not a driver id; expected 1 to {ID_BYTES_MAX} letters, digits and . _ : -",
        quoted(id)
    ))
}

/// Parses `z/x/y` or `z/x/y:version`; the version is the one that the client has.
fn tile(text: &str) -> Option<(Tile, Option<u64>)> {
    let (place, version) = match text.split_once(':') {
        Some((place, version)) => (place, Some(version.parse().ok()?)),
        None => (text, None),
    };
    let numbers: Vec<u32> =
        place.split('/').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let &[z, x, y] = numbers.as_slice() else { return None };
    Some((Tile::new(u8::try_from(z).ok()?, x, y)?, version))
}

/// Quotes a value for an error, shortened and without control characters.
fn quoted(text: &str) -> String {
    let begin: String =
        text.chars().take(40).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let ellipsis = if text.chars().count() > 40 { "…" } else { "" };
    format!("\"{begin}{ellipsis}\"")
}
