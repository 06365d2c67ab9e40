//! Reads payloads by a mapping: JSON pointers and units, from `[formats.NAME]` or shipped with
//! milepost.

use std::mem::take;
use std::sync::Arc;

use super::degrees::{Degrees, coordinate};
use super::feature::{self, OtherPath};
use super::more::{ALT, EXTRA, FIELDS, LAT, LNG, More, ROOT, TS};
use crate::exponent;
use crate::extract::{Found, Paths, Pointer};
use crate::ignored::Ignored;
use crate::json::{Scalar, number};
use crate::keep::{Kept, Origin};
use crate::measured::Measured;
use crate::names;
use crate::point::Point;
use crate::points::Points;
use crate::reference_system::{Place, check_system_around};
use crate::refusal::{Refusal, refuse};
use crate::reject::Reason;
use crate::time::Local;
use crate::unit::{Quantity, TimeUnit};
use crate::unread_unit::{check_unit_of_element, check_units, check_units_around};
use crate::unread_zone::check_utc_flag;

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
    /// The configuration states the unit of lat and lng.
    pub has_unit_of_degrees: bool,
    pub more: Option<Box<More>>,
}

/// Quirks of the devices of a shipped format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quirks {
    pub(super) numbers_may_be_strings: bool,
    /// A negative speed, heading or accuracy counts as unknown.
    pub(super) negative_is_unknown: bool,
    /// The value at the pointer of `lat` is `"LAT,LNG"`.
    pub(super) lat_lng_is_one_string: bool,
    /// Path of the object at which the paths of `keep` begin.
    pub(super) root: &'static [&'static str],
    /// The fields may be in the object at `root` or directly in the point.
    pub(super) root_is_optional: bool,
    /// The time is next to the object at `root`, not in it.
    pub(super) ts_is_beside_root: bool,
    /// Paths of the values that `ignored_kind` reads.
    pub(super) extra: &'static [&'static str],
    /// The payloads are GeoJSON features of a file.
    pub(super) is_feature: bool,
    /// Paths at which nearly every payload has the same string, with that string.
    pub(super) usual_strings: &'static [(&'static str, &'static str)],
    /// Names of further members that the devices send. The format does not read them.
    pub(super) unread: &'static [&'static str],
    /// Returns the kind of a valid message without a fix; `None` for a message to be decoded.
    pub(super) ignored_kind: fn(&Found<'_>, &[u8]) -> Result<Option<Ignored>, Refusal>,
}

impl Quirks {
    pub(super) const NONE: Self = Self {
        numbers_may_be_strings: false,
        negative_is_unknown: false,
        lat_lng_is_one_string: false,
        root: &[],
        root_is_optional: false,
        ts_is_beside_root: false,
        extra: &[],
        is_feature: false,
        usual_strings: &[],
        unread: &[],
        ignored_kind: |_, _| Ok(None),
    };

    /// Parses a number in a string, if the devices send such strings.
    #[inline(always)]
    pub(super) fn number<'a>(&self, value: Scalar<'a>) -> Scalar<'a> {
        if self.numbers_may_be_strings { value.or_number_in_text() } else { value }
    }

    /// Reads a coordinate. Returns a number unchanged; parses a string as degrees in the usual
    /// notations.
    #[cold]
    fn degrees<'a>(
        &self,
        value: Scalar<'a>,
        slot: usize,
        has_unit: bool,
    ) -> Result<Scalar<'a>, Refusal> {
        if value.as_text().is_none() {
            return Ok(value);
        }
        coordinate(value, slot, Degrees::Factor(1.0), has_unit).map(|value| self.number(value))
    }

    /// Converts a number by the factor of its unit. Returns a string with a unit unchanged: the
    /// rules for points convert it.
    #[inline(always)]
    fn measured<'a>(&self, value: Scalar<'a>, factor: f64) -> Scalar<'a> {
        let number = self.number(value);
        // Most formats have milepost's own units.
        let has_factor = factor.to_bits() != 1f64.to_bits();
        if has_factor { number.times(factor) } else { number }
    }

    /// Like [`measured`](Self::measured), for a quantity that is never negative.
    #[inline(always)]
    fn magnitude<'a>(&self, value: Scalar<'a>, factor: f64) -> Scalar<'a> {
        let number = self.measured(value, factor);
        if self.negative_is_unknown { number.unless_negative() } else { number }
    }
}

/// A format that consists of pointers, units and the quirks of its devices.
#[derive(Debug, Clone)]
pub struct Mapping {
    fields: Fields,
    quirks: Quirks,
}

impl Mapping {
    /// Creates the mapping of `[formats.NAME]` or a file, whose numbers may be strings.
    pub fn new(fields: Fields) -> Self {
        Self { fields, quirks: Quirks { numbers_may_be_strings: true, ..Quirks::NONE } }
    }

    /// Creates the mapping of a file of GeoJSON features.
    pub fn of_features(fields: Fields) -> Self {
        let mapping = Self::new(fields);
        let quirks = Quirks { is_feature: true, usual_strings: &feature::TYPES, ..mapping.quirks };
        Self { quirks, ..mapping }
    }

    pub(super) fn shipped(fields: Fields, quirks: Quirks) -> Self {
        Self { fields, quirks }
    }

    /// Returns the paths to extract, the paths that `keep` skips, the names of lat and lng for
    /// errors, and the unit of time.
    pub(super) fn schema_parts(&self) -> (Paths, Vec<String>, [String; 2], TimeUnit) {
        let Self { fields, quirks } = self;
        let Fields { lat, lng, ts, driver, .. } = fields;
        let mut paths = Paths::default();
        // Add the fields after these names, because the names added last are compared first.
        quirks.unread.iter().for_each(|name| paths.add_unread(name));
        for (slot, pointer) in fields.pointers().into_iter().enumerate() {
            let Some(pointer) = pointer.filter(|_| slot != LNG || !quirks.lat_lng_is_one_string)
            else {
                continue;
            };
            paths.add(pointer.steps(), slot);
            if quirks.root_is_optional && !(slot == TS && quirks.ts_is_beside_root) {
                paths.add(quirks.root.iter().copied().chain(pointer.steps()), slot);
            }
        }
        if !quirks.root.is_empty() {
            paths.add(quirks.root.iter().copied(), ROOT);
        }
        for (slot, pointer) in fields.more.iter().flat_map(|more| more.pointers()) {
            paths.add(pointer.steps(), slot);
        }
        for (index, path) in quirks.extra.iter().enumerate() {
            paths.add([*path], EXTRA + index);
        }
        let others = self.other_paths();
        for OtherPath { path, slot, is_alias } in &others {
            if *is_alias {
                paths.add_alias(path, *slot);
            } else {
                paths.add(path.split('/'), *slot);
            }
        }
        quirks.usual_strings.iter().for_each(|(path, text)| paths.set_usual(path, text));
        let root = quirks.root.join("/") + "/";
        let used = |path: String| path.strip_prefix(&root).map_or(path.clone(), str::to_owned);
        let more = fields.more.iter().flat_map(|more| more.pointers()).map(|(_, pointer)| pointer);
        let pointers =
            fields.pointers().into_iter().flatten().chain(driver).chain(more).map(Pointer::path);
        let extra = quirks.extra.iter().copied().chain(others.iter().map(|other| other.path));
        let used = pointers.chain(extra.map(str::to_owned)).map(used).collect();
        let ts_unit = ts.as_ref().map_or(TimeUnit::BySize, |(_, unit)| *unit);
        (paths, used, [lat, lng].map(|pointer| pointer.as_str().to_owned()), ts_unit)
    }

    /// Returns the paths of the objects that hold the speed, heading, altitude and accuracy.
    pub(super) fn parents_of_optional_fields(&self) -> [String; 4] {
        let root = self.quirks.root.join("/") + "/";
        let [.., speed, heading, alt, acc, _] = self.fields.pointers();
        [speed, heading, alt, acc].map(|pointer| {
            let path = pointer.map(Pointer::path).unwrap_or_default();
            let path = path.strip_prefix(&root).unwrap_or(&path);
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            // A flag such as `alt_valid` is in the properties.
            let is_coordinate = parent == feature::COORDINATES;
            (if is_coordinate { feature::PROPERTIES } else { parent }).to_owned()
        })
    }

    /// Returns the paths that are read besides those of the fields.
    fn other_paths(&self) -> Vec<OtherPath> {
        if !self.quirks.is_feature {
            return Vec::new();
        }
        feature::other_paths(self.fields.pointers(), self.fields.more.as_deref())
    }

    /// Returns the pointer of the time, for errors.
    pub(super) fn ts_name(&self) -> Option<String> {
        self.fields.ts.as_ref().map(|(pointer, _)| pointer.as_str().to_owned())
    }

    pub(super) fn local(&self) -> Option<Arc<Local>> {
        self.fields.more.as_ref().and_then(|more| more.local.clone())
    }

    /// Returns the pointers and units of the fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Returns a description of the pointers and units of the fields, which is the same in all
    /// versions of milepost.
    pub fn stable_description(&self) -> String {
        let Fields { points, ts, speed, alt, driver, more, .. } = &self.fields;
        let text = |pointer: Option<&Pointer>| pointer.map(|at| at.as_str().to_owned());
        let units = (ts.as_ref().map(|(_, unit)| *unit), factor_of(speed), factor_of(alt));
        let places = self.fields.pointers().map(text);
        let more = more.as_deref().filter(|more| !more.only_states_unit_of_heading());
        let more = more.map(More::stable_description);
        format!("{:?}", (places, text(points.as_ref()), text(driver.as_ref()), units, more))
    }

    /// Returns the pointer of the driver's id, if the format has one.
    pub fn driver(&self) -> Option<&Pointer> {
        self.fields.driver.as_ref()
    }

    pub(super) fn read(&self, points: &mut Points<'_>, json: &[u8]) -> Result<(), Refusal> {
        let Some(pointer) = &self.fields.points else { return self.read_one(points, json, json) };
        let may_stand_alone = self.quirks.root_is_optional;
        let found = pointer.raw_in(json)?;
        if found.may_describe_points && found.value.is_some_and(|array| array.starts_with(b"[")) {
            check_units_around(json, self.measured(), &points.schema.keep)?;
            check_system_around(json, &points.schema.keep, Place::Message)?;
        }
        match found.value {
            Some(array) if !may_stand_alone || array.starts_with(b"[") => {
                let read =
                    |points: &mut Points<'_>, point: &[u8]| self.read_one(points, point, json);
                points.elements(array, Some(json), read)?;
                if found.has_other_points {
                    points.refuse_other_points(json, array);
                }
                Ok(())
            }
            Some(_) => self.read_one(points, json, json),
            // A rejected point is stored without its array, so a replay finds only the point.
            None => self.read_one(points, json, json).map_err(|refusal| {
                if refusal.reason == Reason::MissingField && !may_stand_alone {
                    Refusal::new(Reason::MissingField, format!("{} is missing", pointer.as_str()))
                } else {
                    refusal
                }
            }),
        }
    }

    fn read_one(
        &self,
        points: &mut Points<'_>,
        json: &[u8],
        enclosing: &[u8],
    ) -> Result<(), Refusal> {
        let Self { fields, quirks } = self;
        let mut found = Found::default();
        points.schema.paths.find(json, &mut found)?;
        if let Some(kind) = (quirks.ignored_kind)(&found, json)? {
            points.ignore(kind);
            return Ok(());
        }
        if quirks.is_feature {
            feature::complete(&mut found);
            if feature::is_unlocated(&found, fields.pointers(), json)? {
                points.ignore(Ignored::NoFix); // RFC 7946, 3.2: an unlocated Feature
                return Ok(());
            }
        }
        // Look for exponents first: the options in `more` may change the values that were sent.
        let sent_with_exponent =
            [LAT, LNG, TS].map(|slot| exponent::may_have_exponent(&found[slot]));
        let read_number = |value| quirks.number(value);
        if let Some(more) = &fields.more
            && let Some(kind) = more.apply(&mut found, fields.has_unit_of_degrees, read_number)?
        {
            if kind == Ignored::Telemetry {
                names::refuse_unread_position(json, "map them as lat and lng in [formats.NAME]")?;
            }
            points.ignore(kind);
            return Ok(());
        }
        let root =
            if quirks.root_is_optional && found[ROOT].is_missing() { &[] } else { quirks.root };
        if quirks.lat_lng_is_one_string {
            (found[LAT], found[LNG]) = lat_and_lng(&found[LAT])?;
        }
        let ts_unit = points.schema.ts_unit;
        if let Scalar::Text(text) = &found[TS]
            && !ts_unit.is_text()
        {
            exponent::check_time(text, ts_unit)?;
        }
        let is_date_in_digits = ts_unit == TimeUnit::BySize
            && found[TS].as_text().is_some_and(crate::time::is_date_in_digits);
        let is_text = ts_unit.is_text() || is_date_in_digits;
        let mut sent = [LAT, LNG, TS].into_iter().zip(sent_with_exponent);
        if sent.any(|(slot, has_exponent)| has_exponent && !found[slot].is_missing()) {
            self.check_exponents(json, ts_unit)?;
        }
        if found[LAT].as_text().is_some() || found[LNG].as_text().is_some() {
            for slot in [LAT, LNG] {
                found[slot] =
                    quirks.degrees(take(&mut found[slot]), slot, fields.has_unit_of_degrees)?;
            }
        }
        // If `checks_hemispheres` is set, as in `milepost import`, a later check reads more members
        // and suggests another remedy.
        let [.., unread, south, west, _] = &found;
        let states_hemisphere = !south.is_missing() || !west.is_missing();
        if states_hemisphere && !points.schema.checks_hemispheres {
            names::check_unmapped_hemispheres([south, west], [&found[LAT], &found[LNG]])?;
        }
        let has_unread = !unread.is_missing();
        if has_unread {
            let kept = Kept { keep: &points.schema.keep, root };
            let measured = self.measured();
            check_units(json, &measured, kept)?;
            if !found[ALT].is_missing()
                && let Some(height) = feature::height(measured)
            {
                check_unit_of_element(json, &height, kept)?;
            }
            check_utc_flag(json, &found[TS])?;
        }
        let (speed_factor, alt_factor) = (factor_of(&fields.speed), factor_of(&fields.alt));
        // Move each value only once, because it is large and this runs for every message.
        let [lat, lng, ts, speed, heading, alt, acc, seq, .., driver] = &mut found;
        let ts = take(ts);
        let point = Point {
            lat: take(lat),
            lng: take(lng),
            ts: if is_text { ts } else { quirks.number(ts) },
            seq: quirks.number(take(seq)),
            speed: quirks.magnitude(take(speed), speed_factor),
            heading: quirks.magnitude(take(heading), 1.0),
            alt: quirks.measured(take(alt), alt_factor),
            acc: quirks.magnitude(take(acc), 1.0),
            may_have_no_fix: has_unread,
            ..Point::default()
        };
        let driver = take(driver);
        points.add(&point, &Origin { driver, enclosing, root, raw: json })?;
        if has_unread {
            points.refuse_other_points(json, &[]);
        }
        Ok(())
    }
}

impl Mapping {
    /// Returns the fields that have a unit.
    #[cold]
    pub(super) fn measured(&self) -> Vec<Measured> {
        let Self { fields, quirks } = self;
        let more = fields.more.as_deref();
        let has_unit_of_degrees = fields.has_unit_of_degrees;
        let degrees = |slot: usize| more.map_or(1.0, |more| more.degrees[slot].factor());
        let all = [
            (Some(&fields.lat), Quantity::Angle, degrees(LAT)),
            (Some(&fields.lng), Quantity::Angle, degrees(LNG)),
            (None, Quantity::Angle, 1.0),
            (fields.speed.as_ref().map(|(at, _)| at), Quantity::Speed, factor_of(&fields.speed)),
            (fields.heading.as_ref(), Quantity::Angle, more.map_or(1.0, |more| more.heading)),
            (fields.alt.as_ref().map(|(at, _)| at), Quantity::Length, factor_of(&fields.alt)),
            (fields.acc.as_ref(), Quantity::Length, more.map_or(1.0, |more| more.acc)),
        ];
        let paths = |path: String| {
            let in_root = (quirks.root_is_optional)
                .then(|| [quirks.root.join("/").as_str(), &path].join("/"));
            std::iter::once(path).chain(in_root)
        };
        let others = self.other_paths();
        let others = |field: &'static str| {
            let others = others.iter().filter(move |other| other.is_of(field));
            others.map(|other| other.path.to_owned())
        };
        let fields =
            all.into_iter().zip(FIELDS).filter_map(|((pointer, quantity, factor), field)| {
                let has_unit = match field {
                    "lat" | "lng" => has_unit_of_degrees,
                    _ => field == "heading" && more.is_some_and(|more| more.has_unit_of_heading),
                };
                let measured = move |path| Measured { field, path, quantity, factor, has_unit };
                Some(paths(pointer?.path()).chain(others(field)).map(measured))
            });
        fields.flatten().collect()
    }

    /// Checks the exponents of coordinates and time.
    ///
    /// # Errors
    /// A number has an exponent and too few digits.
    #[cold]
    fn check_exponents(&self, json: &[u8], ts_unit: TimeUnit) -> Result<(), Refusal> {
        if !exponent::is_in(json) {
            return Ok(());
        }
        let Fields { lat, lng, ts, more, .. } = &self.fields;
        for (slot, pointer) in [(LAT, lat), (LNG, lng)] {
            let factor = more.as_ref().map_or(1.0, |more| more.degrees[slot].factor());
            if let Some(raw) = pointer.raw(json)? {
                exponent::check_degrees_sent(raw, FIELDS[slot], factor)?;
            }
        }
        let others = self.other_paths().into_iter().filter(OtherPath::is_of_time);
        let others = others.filter_map(|other| Pointer::new(&format!("/{}", other.path)).ok());
        for pointer in ts.iter().map(|(pointer, _)| pointer.clone()).chain(others) {
            if let Some(raw) = pointer.raw(json)?.filter(|raw| *raw != "null") {
                return exponent::check_time_sent(raw, ts_unit);
            }
        }
        Ok(())
    }
}

impl Fields {
    /// Returns the pointers, one per slot.
    pub fn pointers(&self) -> [Option<&Pointer>; 8] {
        let Self { lat, lng, ts, speed, heading, alt, acc, seq, .. } = self;
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

/// Returns the factor of a field's unit.
fn factor_of(field: &Option<(Pointer, f64)>) -> f64 {
    field.as_ref().map_or(1.0, |(_, factor)| *factor)
}

/// Parses `"LAT,LNG"`, also with degree signs: `"52.5°, 13.4°"`.
fn lat_and_lng(value: &Scalar<'_>) -> Result<(Scalar<'static>, Scalar<'static>), Refusal> {
    let degrees = |text: &str| number(text.trim().trim_end_matches('°'));
    if let Some((lat, lng)) = value.as_text().and_then(|text| text.split_once(','))
        && let (Some(lat), Some(lng)) = (degrees(lat), degrees(lng))
    {
        return Ok((lat, lng));
    }
    refuse(Reason::MissingField, format!("the position is {value}, not \"LAT,LNG\""))
}
