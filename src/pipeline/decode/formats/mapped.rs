//! A format of somebody's own: JSON pointers and units, from `[formats.NAME]`. Numbers may be texts.

use crate::pipeline::decode::extract::{Paths, Pointer};
use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::Point;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::Refusal;
use crate::pipeline::decode::unit::{LengthUnit, SpeedUnit, TimeUnit};
use crate::pipeline::reject::Reason;

/// Where the fields of a point are, as the configuration says it.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    /// An array of points; the other pointers begin in each of them.
    pub(crate) points: Option<Pointer>,
    pub(crate) lat: Pointer,
    pub(crate) lng: Pointer,
    pub(crate) ts: Option<(Pointer, TimeUnit)>,
    pub(crate) speed: Option<(Pointer, SpeedUnit)>,
    pub(crate) heading: Option<Pointer>,
    pub(crate) alt: Option<(Pointer, LengthUnit)>,
    pub(crate) acc: Option<Pointer>,
    pub(crate) seq: Option<Pointer>,
    /// Who, for a source that does not say it.
    pub(crate) driver: Option<Pointer>,
}

/// The same, as a format.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    fields: Fields,
}

impl Mapping {
    pub(crate) fn new(fields: Fields) -> Self {
        Self { fields }
    }

    pub(super) fn reading(&self) -> (Paths, Vec<String>, [String; 2], TimeUnit) {
        let Fields { lat, lng, ts, driver, .. } = &self.fields;
        let pointers = self.fields.pointers();
        let mut paths = Paths::default();
        for (slot, pointer) in pointers.iter().enumerate() {
            pointer.iter().for_each(|pointer| paths.add_pointer(pointer, slot));
        }
        let used = pointers.into_iter().flatten().chain(driver).map(Pointer::path).collect();
        let ts_unit = ts.as_ref().map_or(TimeUnit::BySize, |(_, unit)| *unit);
        (paths, used, [lat, lng].map(|pointer| pointer.as_str().to_owned()), ts_unit)
    }

    /// Where the driver is, if the format says it.
    pub(crate) fn driver(&self) -> Option<&Pointer> {
        self.fields.driver.as_ref()
    }

    pub(super) fn read(&self, points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
        let Some(pointer) = &self.fields.points else { return self.read_one(points, json, json) };
        match pointer.raw(json).map_err(|error| Refusal::from_json(&error))? {
            Some(array) => {
                points.elements(array.get(), Some(json), |points, point| self.read_one(points, point, json))
            }
            // A point that was refused stands alone when it is replayed.
            None => self.read_one(points, json, json).map_err(|refusal| {
                let is_no_point = refusal.reason == Reason::MissingField;
                let missing =
                    || Refusal::new(Reason::MissingField, format!("{} is missing", pointer.as_str()));
                if is_no_point { missing() } else { refusal }
            }),
        }
    }

    fn read_one(&self, points: &mut Points<'_>, json: &str, within: &str) -> Result<(), Refusal> {
        let found = points.reading.paths.find(json).map_err(|error| Refusal::from_json(&error))?;
        let [lat, lng, ts, speed, heading, alt, acc, seq, .., driver] = found;
        let Fields { speed: speed_at, alt: alt_at, .. } = &self.fields;
        let speed_factor = speed_at.as_ref().map_or(1.0, |(_, unit)| unit.metres_per_second());
        let alt_factor = alt_at.as_ref().map_or(1.0, |(_, unit)| unit.metres());
        let point = Point {
            lat: lat.or_number_in_text(),
            lng: lng.or_number_in_text(),
            ts: if points.reading.ts_unit == TimeUnit::Rfc3339 { ts } else { ts.or_number_in_text() },
            seq: seq.or_number_in_text(),
            speed: speed.or_number_in_text().times(speed_factor),
            heading: heading.or_number_in_text(),
            alt: alt.or_number_in_text().times(alt_factor),
            acc: acc.or_number_in_text(),
            ..Point::default()
        };
        points.add(&point, &Origin { driver, within, ..Origin::whole(json) })
    }
}

impl Fields {
    /// Slot by slot.
    pub(crate) fn pointers(&self) -> [Option<&Pointer>; 8] {
        let Self { lat, lng, ts, speed, heading, alt, acc, seq, points: _, driver: _ } = self;
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
