//! The formats, one file each: where values are in a payload, and which units they have.

mod geojson;
mod mapped;
mod milepost;
mod nmea;
mod owntracks;
mod teltonika;
mod thingsboard;
mod traccar;
mod traccar_client;
mod w3c;

use std::sync::Arc;

pub(crate) use self::mapped::{Fields, Mapping};
use crate::pipeline::decode::driver::Driver;
use crate::pipeline::decode::extract::Paths;
use crate::pipeline::decode::keep::Keep;
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::reading::Reading;
use crate::pipeline::decode::refusal::Refusal;
use crate::pipeline::decode::unit::{SpeedUnit, TimeUnit};

/// What a source's messages are written in.
#[derive(Debug, Clone)]
pub(crate) enum Format {
    Milepost,
    OwnTracks,
    Traccar,
    TraccarClient,
    Teltonika,
    /// Speeds have no unit of their own there.
    ThingsBoard(SpeedUnit),
    /// The same.
    GeoJson(SpeedUnit),
    Nmea,
    W3c,
    /// Somebody's own: `[formats.NAME]`.
    Mapped(Arc<Mapping>),
}

impl Format {
    /// The names of those that need no `[formats.NAME]`.
    pub(crate) const NAMES: [&'static str; 9] = [
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

    /// How messages in it are read.
    pub(super) fn reading(&self, driver: Driver, keep: Keep) -> Reading {
        let of = |root: &str, fields: &[&str], lat_lng: [&str; 2], ts_unit| {
            let used = fields.iter().map(|path| path.strip_prefix(root).unwrap_or(path).to_owned()).collect();
            (Paths::new(fields), used, lat_lng.map(str::to_owned), ts_unit)
        };
        let (seconds, ms, text) = (TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Rfc3339);
        let coords = ["coords/latitude", "coords/longitude"];
        let (mut paths, used, called, ts_unit) = match self {
            Self::Milepost => of("", milepost::FIELDS, ["lat", "lng"], TimeUnit::BySize),
            Self::OwnTracks => of("", owntracks::FIELDS, ["lat", "lon"], seconds),
            Self::Traccar => {
                of("position/", traccar::FIELDS, ["position/latitude", "position/longitude"], text)
            }
            Self::TraccarClient => of("", traccar_client::FIELDS, coords, text),
            Self::Teltonika => of("state/reported/", teltonika::FIELDS, ["lat", "lng"], ms),
            Self::ThingsBoard(_) => of("", thingsboard::FIELDS, ["latitude", "longitude"], ms),
            Self::GeoJson(_) => {
                let lat_lng = ["geometry/coordinates/1", "geometry/coordinates/0"];
                of("properties/", geojson::FIELDS, lat_lng, TimeUnit::BySize)
            }
            Self::Nmea => of("", &[], ["lat", "lng"], ms),
            Self::W3c => of("", w3c::FIELDS, coords, ms),
            Self::Mapped(mapping) => mapping.reading(),
        };
        match self {
            Self::TraccarClient => traccar_client::add_paths(&mut paths),
            Self::ThingsBoard(_) => thingsboard::add_paths(&mut paths),
            Self::Milepost | Self::OwnTracks | Self::Traccar | Self::Teltonika => {}
            Self::GeoJson(_) | Self::Nmea | Self::W3c | Self::Mapped(_) => {}
        }
        if let Driver::Payload(pointer) = &driver {
            paths.add_driver(pointer);
        }
        Reading { driver, keep, paths, used, called, ts_unit }
    }
}

/// Hands over everything that a payload holds.
pub(super) fn read(format: &Format, points: &mut Points<'_>, text: &str) -> Result<(), Refusal> {
    match format {
        Format::Milepost => points.documents(text, milepost::read),
        Format::OwnTracks => points.documents(text, owntracks::read),
        Format::Traccar => points.documents(text, traccar::read),
        Format::TraccarClient => points.documents(text, traccar_client::read),
        Format::Teltonika => points.documents(text, teltonika::read),
        Format::ThingsBoard(unit) => {
            points.documents(text, |points, json| thingsboard::read(points, json, *unit))
        }
        Format::GeoJson(unit) => points.documents(text, |points, json| geojson::read(points, json, *unit)),
        Format::Nmea => nmea::read(points, text),
        Format::W3c => points.documents(text, w3c::read),
        Format::Mapped(mapping) => points.documents(text, |points, json| mapping.read(points, json)),
    }
}
