//! A format as a mapping: JSON pointers and units, from `[formats.NAME]` or shipped with milepost.

use std::borrow::Cow;
use std::sync::Arc;

use super::degrees::{Degrees, coordinate};
use super::more::{FIELDS, LAT, LNG, More};
use crate::exponent;
use crate::extract::{Found, Paths, Pointer};
use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::keep::Origin;
use crate::names;
use crate::point::Point;
use crate::points::Points;
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::time::Local;
use crate::unit::{Quantity, TimeUnit};

/// Slots after the eight of [`Fields::pointers`]: the object with the fields, and the values of
/// [`Habits::extra`].
pub(super) const ROOT: usize = 8;
pub(super) const EXTRA: usize = 9;

/// The pointers to the fields of a point.
#[derive(Debug, Clone)]
pub struct Fields {
    /// Pointer of an array of points; the other pointers begin at each of its elements.
    pub points: Option<Pointer>,
    pub lat: Pointer,
    pub lng: Pointer,
    pub ts: Option<(Pointer, TimeUnit)>,
    /// Pointer of the speed, with the factor of its unit; likewise for `alt`.
    pub speed: Option<(Pointer, f64)>,
    pub heading: Option<Pointer>,
    pub alt: Option<(Pointer, f64)>,
    pub acc: Option<Pointer>,
    pub seq: Option<Pointer>,
    /// Pointer of the driver's id, for a source without `driver`.
    pub driver: Option<Pointer>,
    pub more: Option<Box<More>>,
}

/// Peculiarities of the devices of a shipped format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    pub(super) numbers_may_be_strings: bool,
    /// A negative speed, heading or accuracy counts as unknown.
    pub(super) negative_is_unknown: bool,
    /// The value at the pointer of `lat` is `"LAT,LNG"`.
    pub(super) lat_lng_is_one_string: bool,
    /// The object whose members `keep` names.
    pub(super) root: &'static [&'static str],
    /// The fields are in the object at `root`, or in the point itself.
    pub(super) root_is_optional: bool,
    pub(super) ts_is_beside_root: bool,
    /// Paths of the values that `ignored_kind` reads.
    pub(super) extra: &'static [&'static str],
    /// Returns the kind of a valid message without a fix; `None` for a message to be decoded.
    pub(super) ignored_kind: fn(&Found<'_>, &str) -> Result<Option<Ignored>, Refusal>,
}

impl Habits {
    pub(super) const NONE: Self = Self {
        numbers_may_be_strings: false,
        negative_is_unknown: false,
        lat_lng_is_one_string: false,
        root: &[],
        root_is_optional: false,
        ts_is_beside_root: false,
        extra: &[],
        ignored_kind: |_, _| Ok(None),
    };

    pub(super) fn number<'a>(&self, value: Scalar<'a>) -> Scalar<'a> {
        if self.numbers_may_be_strings { value.or_number_in_text() } else { value }
    }

    /// Reads a coordinate: a number as it is, a string as degrees in the usual notations.
    #[cold]
    fn degrees<'a>(&self, value: Scalar<'a>, slot: usize) -> Result<Scalar<'a>, Refusal> {
        if value.as_text().is_none() {
            return Ok(value);
        }
        coordinate(value, slot, Degrees::Factor(1.0)).map(|value| self.number(value))
    }

    /// Converts a number by the factor of its unit, or reads a string that states its unit, such as
    /// `36 km/h`.
    #[inline]
    fn measured<'a>(&self, value: Scalar<'a>, quantity: Quantity, factor: f64) -> Scalar<'a> {
        let number = self.number(value);
        if self.numbers_may_be_strings
            && let Scalar::Text(text) = number
        {
            return with_unit(text, quantity);
        }
        // Most formats have milepost's own units.
        let has_factor = factor.to_bits() != 1f64.to_bits();
        if has_factor { number.times(factor) } else { number }
    }

    #[inline]
    fn magnitude<'a>(&self, value: Scalar<'a>, quantity: Quantity, factor: f64) -> Scalar<'a> {
        let number = self.measured(value, quantity, factor);
        if self.negative_is_unknown { number.unless_negative() } else { number }
    }
}

#[derive(Debug, Clone)]
pub struct Mapping {
    fields: Fields,
    habits: Habits,
}

impl Mapping {
    pub fn new(fields: Fields) -> Self {
        Self { fields, habits: Habits { numbers_may_be_strings: true, ..Habits::NONE } }
    }

    pub(super) fn shipped(fields: Fields, habits: Habits) -> Self {
        Self { fields, habits }
    }

    pub(super) fn reading(&self) -> (Paths, Vec<String>, [String; 2], TimeUnit) {
        let Self { fields, habits } = self;
        let Fields { lat, lng, ts, driver, .. } = fields;
        let mut paths = Paths::default();
        for (slot, pointer) in fields.pointers().into_iter().enumerate() {
            let Some(pointer) = pointer.filter(|_| slot != 1 || !habits.lat_lng_is_one_string)
            else {
                continue;
            };
            paths.add(pointer.steps(), slot);
            if habits.root_is_optional && !(slot == 2 && habits.ts_is_beside_root) {
                paths.add(habits.root.iter().copied().chain(pointer.steps()), slot);
            }
        }
        if !habits.root.is_empty() {
            paths.add(habits.root.iter().copied(), ROOT);
        }
        for (slot, pointer) in fields.more.iter().flat_map(|more| more.pointers()) {
            paths.add(pointer.steps(), slot);
        }
        for (n, path) in habits.extra.iter().enumerate() {
            paths.add([*path], EXTRA + n);
        }
        let root = habits.root.join("/") + "/";
        let used = |path: String| path.strip_prefix(&root).map_or(path.clone(), str::to_owned);
        let more = fields.more.iter().flat_map(|more| more.pointers()).map(|(_, pointer)| pointer);
        let pointers =
            fields.pointers().into_iter().flatten().chain(driver).chain(more).map(Pointer::path);
        let used =
            pointers.chain(habits.extra.iter().map(|path| (*path).to_owned())).map(used).collect();
        let ts_unit = ts.as_ref().map_or(TimeUnit::BySize, |(_, unit)| *unit);
        (paths, used, [lat, lng].map(|pointer| pointer.as_str().to_owned()), ts_unit)
    }

    pub(super) fn ts_called(&self) -> Option<String> {
        self.fields.ts.as_ref().map(|(pointer, _)| pointer.as_str().to_owned())
    }

    pub(super) fn local(&self) -> Option<Arc<Local>> {
        self.fields.more.as_ref().and_then(|more| more.local.clone())
    }

    /// Returns the pointer of the driver's id, if the format has one.
    pub fn driver(&self) -> Option<&Pointer> {
        self.fields.driver.as_ref()
    }

    pub(super) fn read(&self, points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
        let Some(pointer) = &self.fields.points else { return self.read_one(points, json, json) };
        let may_stand_alone = self.habits.root_is_optional;
        match pointer.raw(json)? {
            Some(array) if !may_stand_alone || array.get().starts_with('[') => {
                points.elements(array.get(), Some(json), |points, point| {
                    self.read_one(points, point, json)
                })
            }
            Some(_) => self.read_one(points, json, json),
            // A rejected point is replayed without its array.
            None => self.read_one(points, json, json).map_err(|refusal| {
                if refusal.reason == Reason::MissingField && !may_stand_alone {
                    Refusal::new(Reason::MissingField, format!("{} is missing", pointer.as_str()))
                } else {
                    refusal
                }
            }),
        }
    }

    fn read_one(&self, points: &mut Points<'_>, json: &str, within: &str) -> Result<(), Refusal> {
        let Self { fields, habits } = self;
        let mut found = points.reading.find(json)?;
        if let Some(kind) = (habits.ignored_kind)(&found, json)? {
            points.ignore(kind);
            return Ok(());
        }
        let read_unknown = |value| habits.number(value);
        if let Some(more) = &fields.more
            && let Some(kind) = more.apply(&mut found, read_unknown)?
        {
            points.ignore(kind);
            return Ok(());
        }
        let root =
            if habits.root_is_optional && found[ROOT].is_missing() { &[] } else { habits.root };
        let [lat, lng, ts, speed, heading, alt, acc, seq, .., south, west, driver] = found;
        let (lat, lng) = if habits.lat_lng_is_one_string { lat_and_lng(&lat)? } else { (lat, lng) };
        let speed_factor = fields.speed.as_ref().map_or(1.0, |(_, factor)| *factor);
        let alt_factor = fields.alt.as_ref().map_or(1.0, |(_, factor)| *factor);
        let ts_unit = points.reading.ts_unit;
        if let Scalar::Text(text) = &ts
            && !ts_unit.is_text()
        {
            exponent::check_time(text, ts_unit)?;
        }
        let is_in_figures =
            ts_unit == TimeUnit::BySize && ts.as_text().is_some_and(crate::time::is_in_figures);
        let is_text = ts_unit.is_text() || is_in_figures;
        // Numbers within a `"LAT,LNG"` string have no exponent.
        let may_have_exponent =
            |value| exponent::may_have_one(value) && !habits.lat_lng_is_one_string;
        if may_have_exponent(&lat) || may_have_exponent(&lng) || exponent::may_have_one(&ts) {
            self.check_exponents(json, ts_unit)?;
        }
        let (lat, lng) = if lat.as_text().is_some() || lng.as_text().is_some() {
            (habits.degrees(lat, LAT)?, habits.degrees(lng, LNG)?)
        } else {
            (lat, lng)
        };
        // Import checks more members itself, and suggests another remedy.
        if !points.reading.checks_hemispheres {
            names::check_unnamed_hemispheres([&south, &west], [&lat, &lng])?;
        }
        let point = Point {
            lat,
            lng,
            ts: if is_text { ts } else { habits.number(ts) },
            seq: habits.number(seq),
            speed: habits.magnitude(speed, Quantity::Speed, speed_factor),
            heading: habits.magnitude(heading, Quantity::Angle, 1.0),
            alt: habits.measured(alt, Quantity::Length, alt_factor),
            acc: habits.magnitude(acc, Quantity::Length, 1.0),
            ..Point::default()
        };
        points
            .add(&point, &Origin { driver, within: within.as_bytes(), root, raw: json.as_bytes() })
    }
}

impl Mapping {
    /// Checks the exponents of coordinates and time.
    ///
    /// # Errors
    /// A number has an exponent and too few digits.
    #[cold]
    fn check_exponents(&self, json: &str, ts_unit: TimeUnit) -> Result<(), Refusal> {
        if !exponent::is_in(json) {
            return Ok(());
        }
        let Fields { lat, lng, ts, more, .. } = &self.fields;
        for (slot, pointer) in [(LAT, lat), (LNG, lng)] {
            let factor = more.as_ref().map_or(1.0, |more| more.degrees[slot].factor());
            if let Some(raw) = pointer.raw(json)? {
                exponent::check_degrees_sent(raw.get(), FIELDS[slot], factor)?;
            }
        }
        match ts {
            Some((pointer, _)) => match pointer.raw(json)? {
                Some(raw) => exponent::check_time_sent(raw.get(), ts_unit),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl Fields {
    /// Returns the pointers, one per slot.
    pub fn pointers(&self) -> [Option<&Pointer>; 8] {
        let Self { lat, lng, ts, speed, heading, alt, acc, seq, points: _, driver: _, more: _ } =
            self;
        [
            Some(lat),
            Some(lng),
            ts.as_ref().map(|(pointer, _)| pointer),
            speed.as_ref().map(|(pointer, _)| pointer),
            heading.as_ref(),
            alt.as_ref().map(|(pointer, _)| pointer),
            acc.as_ref(),
            seq.as_ref(),
        ]
    }
}

/// Reads a string with a unit after its number; leaves other strings unchanged.
#[cold]
fn with_unit(text: Cow<'_, str>, quantity: Quantity) -> Scalar<'_> {
    quantity.read(&text).map_or(Scalar::Text(text), |number| Scalar::Number(number.into()))
}

/// Parses `"LAT,LNG"`, also with degree signs, as in Google's Timeline.
fn lat_and_lng(value: &Scalar<'_>) -> Result<(Scalar<'static>, Scalar<'static>), Refusal> {
    let degrees = |text: &str| number(text.trim().trim_end_matches('°'));
    if let Some((lat, lng)) = value.as_text().and_then(|text| text.split_once(','))
        && let (Some(lat), Some(lng)) = (degrees(lat), degrees(lng))
    {
        return Ok((lat, lng));
    }
    refuse(Reason::MissingField, format!("the position is {value}, not \"LAT,LNG\""))
}
