//! What to import, as the command line says it.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use milepost_decode::{SpeedUnit, rfc3339};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gpx,
    /// A FeatureCollection.
    GeoJson,
    /// A Feature a line.
    GeoJsonLines,
    Csv,
    /// OwnTracks Recorder.
    OwnTracks,
}

impl Kind {
    /// Programs add to the end of such a file.
    pub(super) fn has_lines(self) -> bool {
        match self {
            Self::Csv | Self::GeoJsonLines | Self::OwnTracks => true,
            Self::Gpx | Self::GeoJson => false,
        }
    }

    const NAMES: [(&'static str, Self); 7] = [
        ("gpx", Self::Gpx),
        ("geojson", Self::GeoJson),
        ("json", Self::GeoJson),
        ("geojsonl", Self::GeoJsonLines),
        ("csv", Self::Csv),
        ("tsv", Self::Csv),
        ("rec", Self::OwnTracks),
    ];

    fn named(name: &str) -> Result<Self, String> {
        let kind = Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        kind.map(|(_, kind)| *kind)
            .ok_or_else(|| "must be one of gpx, geojson, geojsonl, csv, rec".to_owned())
    }

    pub(super) fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        if ["gz", "zst", "bz2", "xz", "zip"].contains(&&*ending) {
            bail!("it is compressed: unpack it, or pipe it in: zcat FILE | milepost import - --format …");
        }
        Self::named(&ending).map_err(|_| anyhow!("the name does not say what it is: give --format"))
    }
}

#[derive(Debug, clap::Args)]
pub struct Orders {
    /// gpx, geojson (a FeatureCollection), geojsonl (a Feature a line), csv or rec [default: by the file's name]
    #[arg(long = "format", value_parser = Kind::named)]
    pub kind: Option<Kind>,
    /// Id of the driver, in which {file} stands for the file's name without its extension; or a JSON pointer such as /properties/device, or
    /// /COLUMN [default: /driver_id; of rec: the driver of owntracks/USER/DEVICE in the configuration]
    #[arg(long)]
    pub driver: Option<String>,
    /// Where a field is: lat, lng, ts, speed, heading, alt, acc or seq, = and a column, an element of trkpt, or a JSON pointer
    #[arg(long = "field", value_name = "FIELD=WHERE", value_parser = field)]
    pub fields: Vec<(String, String)>,
    /// Unit of the file's speeds: m/s, km/h, mph or knots [default: m/s of GPX; of rec always km/h; others do not state it]
    #[arg(long, value_parser = speed_unit)]
    pub speed_unit: Option<SpeedUnit>,
    /// Zone of times without one in GPX and CSV, such as +02:00 [default: Z]
    #[arg(long, value_parser = zone, allow_hyphen_values = true)]
    pub zone: Option<String>,
    /// Names of other fields to store as attributes, with commas; * for all
    #[arg(long, value_delimiter = ',')]
    pub keep: Vec<String>,
    /// Only read and decode; contacts no server; exit 1 on rejects
    #[arg(long)]
    pub dry_run: bool,
    /// Note in this file how much of each file is stored, and skip that the next time
    #[arg(long, value_name = "STATE", conflicts_with = "dry_run")]
    pub resume: Option<PathBuf>,
    /// Files, or - for standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

fn speed_unit(name: &str) -> Result<SpeedUnit, String> {
    let unit = SpeedUnit::NAMES.iter().find(|(known, _)| *known == name);
    unit.map(|(_, unit)| *unit).ok_or_else(|| "must be one of m/s, km/h, mph, knots".to_owned())
}

fn zone(text: &str) -> Result<String, String> {
    let is_zone = rfc3339(&format!("2026-01-01T00:00:00{text}")).is_some();
    if is_zone { Ok(text.to_owned()) } else { Err("must be such as +02:00 or Z".to_owned()) }
}

fn field(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(field, at)| !field.is_empty() && !at.is_empty());
    let (field, at) = parts.ok_or_else(|| "must be such as speed=velocity".to_owned())?;
    Ok((field.to_owned(), at.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_name_says_what_it_is_or_what_to_do() {
        assert!(matches!(Kind::of(Path::new("a/B.GPX")), Ok(Kind::Gpx)));
        for (name, said) in [("a.csv.gz", "zcat"), ("a.txt", "--format"), ("folder", "--format")] {
            let why = Kind::of(Path::new(name)).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(why.contains(said), "{name}: {why}");
        }
    }
}
