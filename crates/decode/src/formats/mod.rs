//! Reads payloads in their formats. Most formats are mappings; milepost's own, GeoJSON and NMEA are
//! code, because a mapping cannot describe them.

mod degrees;
mod feature;
mod geojson;
mod mapped;
mod milepost;
mod more;
mod nmea;
mod shipped;

use std::sync::Arc;

pub use self::degrees::Degrees;
pub use self::mapped::{Fields, Mapping};
pub use self::more::{FIELDS, More, unknown};
pub use self::shipped::shipped;
use crate::driver::Driver;
use crate::extract::Paths;
use crate::keep::Keep;
use crate::points::Points;
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::unit::{SpeedUnit, TimeUnit};
use crate::unread_unit::{check_units_of_frame, own_fields};

/// The format of a source's payloads.
#[derive(Debug, Clone)]
pub enum Format {
    Milepost,
    /// GeoJSON defines no unit of speed, so the source states the unit.
    GeoJson(SpeedUnit),
    Nmea,
    Mapped(Arc<Mapping>),
}

impl Format {
    /// The formats that need no `[formats.NAME]`.
    pub const NAMES: [&'static str; 9] = [
        "milepost",
        "owntracks",
        "traccar",
        "traccar-client",
        "teltonika",
        "thingsboard",
        "geojson",
        "nmea",
        "w3c",
    ];

    pub(super) const fn is_json(&self) -> bool {
        !matches!(self, Self::Nmea)
    }

    /// Checks the object around an array of points for units. `frame`: the object's JSON without
    /// the array; `settled`: the fields whose unit is already known.
    ///
    /// # Errors
    /// A stated unit differs from the unit in which the format reads the numbers of the points.
    pub(super) fn check_frame(&self, frame: &[u8], settled: &[&str]) -> Result<(), Refusal> {
        let fields = match self {
            Self::GeoJson(unit) => geojson::measured(*unit),
            Self::Mapped(mapping) => mapping.measured(),
            Self::Milepost => own_fields(),
            Self::Nmea => return Ok(()),
        };
        check_units_of_frame(frame, fields, settled)
    }

    /// Returns the schema of a source with this format.
    pub(super) fn schema(&self, driver: Driver, keep: Keep) -> Schema {
        let parts = |root: &str, fields: &[&str], lat_lng: [&str; 2], ts_unit| {
            let used = fields
                .iter()
                .map(|path| path.strip_prefix(root).unwrap_or(path).to_owned())
                .collect();
            let paths = if matches!(self, Self::GeoJson(_)) {
                Paths::default()
            } else {
                Paths::new(fields)
            };
            (paths, used, lat_lng.map(str::to_owned), ts_unit)
        };
        let (mut paths, used, lat_lng_names, ts_unit) = match self {
            Self::Milepost => parts("", &milepost::fields(), ["lat", "lng"], TimeUnit::BySize),
            Self::GeoJson(_) => {
                let lat_lng = ["geometry/coordinates/1", "geometry/coordinates/0"];
                let aliases = geojson::ALIASES.iter().map(|(path, _)| *path);
                let fields: Vec<&str> = geojson::FIELDS.iter().copied().chain(aliases).collect();
                let (_, used, lat_lng_names, ts_unit) =
                    parts("properties/", &fields, lat_lng, TimeUnit::BySize);
                (geojson::paths(), used, lat_lng_names, ts_unit)
            }
            Self::Nmea => parts("", &[], ["lat", "lng"], TimeUnit::Milliseconds),
            Self::Mapped(mapping) => mapping.schema_parts(),
        };
        if let Driver::Payload(pointer) = &driver {
            paths.add_driver(pointer);
        }
        let ts_name = match self {
            Self::Milepost => Some("ts".to_owned()),
            Self::GeoJson(_) => Some("properties/ts".to_owned()),
            Self::Nmea => None,
            Self::Mapped(mapping) => mapping.ts_name(),
        };
        let local = if let Self::Mapped(mapping) = self { mapping.local() } else { None };
        let is_own = matches!(self, Self::Milepost);
        let parents = if let Self::Mapped(mapping) = self {
            mapping.parents_of_optional_fields()
        } else {
            Default::default()
        };
        Schema {
            driver,
            keep,
            paths,
            used,
            parents,
            lat_lng_names,
            ts_name,
            ts_unit,
            local,
            is_own,
            lists_unread: false,
            checks_hemispheres: false,
        }
    }
}

/// Adds every point of a payload to `points`. The same pass also checks that JSON is UTF-8.
#[inline(always)]
pub(super) fn read(
    format: &Format,
    points: &mut Points<'_>,
    payload: &[u8],
) -> Result<(), Refusal> {
    if let Format::Milepost = format
        && let Some(read) = milepost::read_in_one_pass(points, payload)
    {
        return read;
    }
    read_others(format, points, payload)
}

#[inline(never)]
fn read_others(format: &Format, points: &mut Points<'_>, payload: &[u8]) -> Result<(), Refusal> {
    match format {
        Format::Milepost => milepost::read(points, payload),
        Format::GeoJson(unit) => {
            points.documents(payload, |points, json| geojson::read(points, json, json, *unit))
        }
        Format::Nmea => nmea::read(points, payload),
        Format::Mapped(mapping) => {
            points.documents(payload, |points, json| mapping.read(points, json))
        }
    }
}
