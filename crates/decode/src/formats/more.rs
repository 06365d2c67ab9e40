//! Applies the options of a configured mapping besides pointers and units: hemispheres, the date of
//! a time, values that mean "unknown", and the treatment of a message without a position.

use std::sync::Arc;

use super::degrees::{Degrees, HEMISPHERE_LETTERS, coordinate, refuse_letter, refuse_padded};
use crate::extract::{Found, Pointer};
use crate::hemisphere::{Side, side};
use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::time::Local;
use crate::unit::number_and_unit;

/// Names of a mapping's own fields by slot, in the order of
/// [`Fields::pointers`](super::mapped::Fields::pointers).
pub const FIELDS: [&str; 8] = ["lat", "lng", "ts", "speed", "heading", "alt", "acc", "seq"];
/// Slot of the object at [`Quirks::root`](super::mapped::Quirks::root), after the eight of
/// [`Fields::pointers`](super::mapped::Fields::pointers).
pub(super) const ROOT: usize = 8;
/// First slot of the values at [`Quirks::extra`](super::mapped::Quirks::extra).
pub(super) const EXTRA: usize = 9;
/// Slots of the hemispheres of lat and lng, after those of [`mapped`](super::mapped).
const HEMISPHERES: [usize; 2] = [12, 13];
/// Slot of the date.
const DATE: usize = 14;
pub(super) const LAT: usize = 0;
pub(super) const LNG: usize = 1;
pub(super) const TS: usize = 2;
pub(super) const SPEED: usize = 3;
pub(super) const HEADING: usize = 4;
pub(super) const ALT: usize = 5;
pub(super) const ACC: usize = 6;

/// Options of a mapping that most formats do not need.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// Notation of lat and lng.
    pub degrees: [Degrees; 2],
    /// Pointers of the hemispheres of lat (N or S) and lng (E or W). The number then has no sign.
    pub hemispheres: [Option<Pointer>; 2],
    /// The date of a `ts` that is a time of day.
    pub date: Option<Pointer>,
    /// Zone and pattern of a string in `ts`.
    pub local: Option<Arc<Local>>,
    /// Size of the heading's unit in degrees.
    pub heading: f64,
    /// The configuration states the unit of the heading.
    pub has_unit_of_heading: bool,
    /// Size of the accuracy's unit in metres.
    pub acc: f64,
    /// Values as sent, before any unit, that mean "not available", by slot.
    pub unknown: Vec<(usize, f64)>,
    /// A message with neither lat nor lng is ignored, not rejected.
    pub may_lack_position: bool,
}

impl Default for More {
    fn default() -> Self {
        Self {
            degrees: [Degrees::Factor(1.0); 2],
            hemispheres: [None, None],
            date: None,
            local: None,
            heading: 1.0,
            has_unit_of_heading: false,
            acc: 1.0,
            unknown: Vec::new(),
            may_lack_position: false,
        }
    }
}

/// Parses `speed=102.3` into a slot and a value.
///
/// # Errors
/// The field is unknown, or the value is not a number.
pub fn unknown(text: &str) -> Result<(usize, f64), String> {
    let parts = text.split_once('=').and_then(|(field, value)| {
        let slot = FIELDS.iter().position(|known| *known == field.trim())?;
        Some((slot, number(value)?.as_f64()?))
    });
    parts.ok_or_else(|| {
        format!(
            "\"{text}\": must be such as \"speed=102.3\", where the field is one of {}",
            FIELDS.join(", ")
        )
    })
}

impl More {
    /// Returns whether the only option is the statement that the heading is in degrees.
    pub(super) fn only_states_unit_of_heading(&self) -> bool {
        self.has_unit_of_heading && *self == Self { has_unit_of_heading: true, ..Self::default() }
    }

    /// Returns a description of these options, which is the same in all versions of milepost.
    pub(super) fn stable_description(&self) -> String {
        let Self { degrees, local, heading, acc, unknown, may_lack_position, .. } = self;
        let places: Vec<_> = self.pointers().map(|(slot, at)| (slot, at.as_str())).collect();
        let local = local.as_deref().map(Local::stable_description);
        format!("{:?}", (degrees, places, local, heading, acc, unknown, may_lack_position))
    }

    /// Returns the pointers of these options, each with its slot.
    pub fn pointers(&self) -> impl Iterator<Item = (usize, &Pointer)> {
        let slots = [HEMISPHERES[0], HEMISPHERES[1], DATE];
        let pointers = [&self.hemispheres[0], &self.hemispheres[1], &self.date];
        slots
            .into_iter()
            .zip(pointers)
            .filter_map(|(slot, pointer)| Some((slot, pointer.as_ref()?)))
    }

    /// Applies the options to the found values, and converts the coordinates to degrees. Returns
    /// `Some` if the message holds no fix. `read`: parses a number in a string, if the format
    /// allows such numbers; `has_unit`: the configuration states the unit of lat and lng.
    pub(super) fn apply<'a>(
        &self,
        found: &mut Found<'a>,
        has_unit: bool,
        read: impl Fn(Scalar<'a>) -> Scalar<'a>,
    ) -> Result<Option<Ignored>, Refusal> {
        if self.may_lack_position && found[LAT].is_missing() && found[LNG].is_missing() {
            return Ok(Some(Ignored::Telemetry));
        }
        for (slot, unknown) in &self.unknown {
            let value = read(std::mem::take(&mut found[*slot]));
            let before_unit = || number_and_unit(value.as_text()?).map(|(number, _)| number);
            if value.as_f64().or_else(before_unit) != Some(*unknown) {
                found[*slot] = value;
            } else if matches!(*slot, LAT | LNG) {
                return Ok(Some(Ignored::NoFix));
            }
        }
        self.refuse_plain_degrees(found)?;
        for slot in [LAT, LNG] {
            let unit = self.degrees[slot];
            if unit.is_negative() {
                refuse_letter(&found[slot], slot)?;
            }
            if self.hemispheres[slot].is_some() && !has_unit {
                refuse_padded(&found[slot], slot, unit)?;
            }
            let value = read(coordinate(std::mem::take(&mut found[slot]), slot, unit, has_unit)?);
            unit.check_minutes(&value, slot)?;
            let value = unit.to_degrees(value);
            found[slot] = match &self.hemispheres[slot] {
                Some(pointer) => signed(value, &found[HEMISPHERES[slot]], slot, pointer)?,
                None => value,
            };
        }
        for (slot, factor) in [(HEADING, self.heading), (ACC, self.acc)] {
            if factor != 1.0 {
                found[slot] = read(std::mem::take(&mut found[slot])).times(factor);
            }
        }
        if self.date.is_some() {
            let text = |value: &Scalar<'_>| {
                value.as_text().map_or_else(|| value.to_string(), str::to_owned)
            };
            match (&found[DATE], &found[TS]) {
                (Scalar::Missing, Scalar::Missing) => return Ok(None),
                (Scalar::Missing, ts) => {
                    return refuse(Reason::BadTs, format!("the time {ts} has no date"));
                }
                (date, Scalar::Missing) => {
                    return refuse(Reason::BadTs, format!("the date {date} has no time of day"));
                }
                // A number has lost its leading zeros: `1507` may be 15:07 or 00:15:07. A pattern
                // decides, because it states the number of digits.
                (_, ts @ Scalar::Integer(..100_000)) if !self.has_pattern() => {
                    return refuse(
                        Reason::BadTs,
                        format!(
                            "the time of day {ts} is a number, which has lost leading zeros: send \
                             it as text, or give a pattern such as ts_unit = \"%Y-%m-%d %H%M%S\""
                        ),
                    );
                }
                _ => {}
            }
            let (date, time) = (text(&found[DATE]), text(&found[TS]));
            let (date, time) = if self.has_pattern() {
                (&*date, &*time)
            } else {
                (without_midnight(&date), without_day_0(&time))
            };
            found[TS] = Scalar::Text(format!("{date} {time}").into());
        }
        Ok(None)
    }
}

impl More {
    fn has_pattern(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.pattern.is_some())
    }

    /// Rejects coordinates in plain degrees if the configured unit is much smaller, such as 1e-7
    /// deg or `ddmm.mmmm`. After the conversion, such a fix would lie next to 0, 0.
    fn refuse_plain_degrees(&self, found: &Found<'_>) -> Result<(), Refusal> {
        let is_scaled = |unit: &Degrees| unit.factor() <= 1e-5 || unit.has_minutes();
        if !self.degrees.iter().all(is_scaled) {
            return Ok(());
        }
        let sent = |value: &Scalar<'_>| {
            value.as_f64().or_else(|| number(value.as_text()?).and_then(|number| number.as_f64()))
        };
        match (sent(&found[LAT]), sent(&found[LNG])) {
            (Some(lat), Some(lng))
                if lat.abs() <= 90.0 && lng.abs() <= 180.0 && (lat, lng) != (0.0, 0.0) =>
            {
                refuse(
                    Reason::WrongType,
                    format!("lat {lat}, lng {lng} are degrees already: remove lat_unit"),
                )
            }
            _ => Ok(()),
        }
    }
}

/// Removes the midnight that spreadsheets and databases add to a date: `2026-01-31 00:00:00`.
fn without_midnight(date: &str) -> &str {
    let Some((day, clock)) = date.trim().split_once([' ', 'T']) else { return date };
    let is_midnight = clock.starts_with('0')
        && clock.contains(':')
        && clock.bytes().all(|byte| matches!(byte, b'0' | b':' | b'.'));
    if is_midnight { day } else { date }
}

/// Removes the day 0 that Access and spreadsheets add to a time of day: `1899-12-30 08:00:00`.
fn without_day_0(time: &str) -> &str {
    const DAYS: [&str; 6] =
        ["1899-12-30", "1899-12-31", "1900-01-00", "1900-01-01", "30.12.1899", "12/30/1899"];
    let clock = DAYS.iter().find_map(|day| time.trim().strip_prefix(day)?.strip_prefix([' ', 'T']));
    clock.unwrap_or(time)
}

/// Applies a hemisphere to a number without a sign. Returns a value that is no number unchanged.
///
/// # Errors
/// The value is not a hemisphere of this coordinate, or contradicts the sign of the number.
fn signed<'a>(
    value: Scalar<'a>,
    hemisphere: &Scalar<'_>,
    slot: usize,
    pointer: &Pointer,
) -> Result<Scalar<'a>, Refusal> {
    let Some(number) = value.as_f64() else { return Ok(value) };
    let [positive, negative] = HEMISPHERE_LETTERS[slot];
    let text = hemisphere.to_word();
    let text = text.trim();
    // NE and ESE are directions, not hemispheres.
    let is_direction = text.len() > 1 && text.bytes().all(|byte| b"NESWnesw".contains(&byte));
    // `None` and `N/A` are not the north.
    let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    let words_for_none = ["no", "not", "na", "nan", "none", "null"];
    let is_none = text.eq_ignore_ascii_case("n/a")
        || words_for_none.iter().any(|none| word.eq_ignore_ascii_case(none));
    let path = pointer.path();
    let name = path.rsplit_once('/').filter(|(parent, _)| parent.len() > 1);
    let stated = side(name.map_or(&*path, |(_, name)| name), text, slot);
    let is_side = !is_direction && !is_none;
    let letter = match stated.filter(|_| is_side) {
        Some(Side::Positive) => Some(positive),
        Some(Side::Negative) => Some(negative),
        Some(Side::Unclear) => Some('O'),
        None => text.chars().next().filter(|_| is_side).map(|c| c.to_ascii_uppercase()),
    };
    let (field, at) = (FIELDS[slot], pointer.as_str());
    match letter {
        Some(c) if c == positive && number >= 0.0 => Ok(value),
        Some(c) if c == negative => Ok(Scalar::Number((-number.abs()).into())),
        Some(c) if c == positive => refuse(
            Reason::WrongType,
            format!("{field} is {number}, and {at} says {c}: which is right?"),
        ),
        Some('O') if stated.is_some() => refuse(
            Reason::WrongType,
            format!(
                "{at}, the hemisphere of {field}, is {hemisphere}: O is east in German and west in \
                 French, write E or W"
            ),
        ),
        Some(_) | None => {
            let expected = format!("not {positive} or {negative}");
            refuse(
                Reason::WrongType,
                format!("{at}, the hemisphere of {field}, is {hemisphere}, {expected}"),
            )
        }
    }
}
