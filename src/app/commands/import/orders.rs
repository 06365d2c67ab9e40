//! What to import, as the command line says it.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::pipeline::decode::{SpeedUnit, rfc3339};

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

    /// # Errors
    /// There is no such kind.
    pub fn named(name: &str) -> Result<Self, String> {
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

#[derive(Debug)]
pub struct Orders {
    pub files: Vec<PathBuf>,
    pub kind: Option<Kind>,
    /// An id, with `{file}` for the file's name, or a JSON pointer.
    pub driver: Option<String>,
    /// Fields of a fix, and where they are in the file.
    pub fields: Vec<(String, String)>,
    pub speed_unit: Option<SpeedUnit>,
    /// The zone of times without one; UTC if it is not given.
    pub zone: Option<String>,
    pub keep: Vec<String>,
    pub dry_run: bool,
    /// Where the number of fixes of each file that are stored is kept.
    pub resume: Option<PathBuf>,
}

/// The units of `--speed-unit`.
///
/// # Errors
/// There is no such unit.
pub fn speed_unit(name: &str) -> Result<SpeedUnit, String> {
    let unit = SpeedUnit::NAMES.iter().find(|(known, _)| *known == name);
    unit.map(|(_, unit)| *unit).ok_or_else(|| "must be one of m/s, km/h, mph, knots".to_owned())
}

/// # Errors
/// It is no zone.
pub fn zone(text: &str) -> Result<String, String> {
    let is_zone = rfc3339(&format!("2026-01-01T00:00:00{text}")).is_some();
    if is_zone { Ok(text.to_owned()) } else { Err("must be such as +02:00 or Z".to_owned()) }
}

/// # Errors
/// It is not `NAME=WHERE`.
pub fn field(text: &str) -> Result<(String, String), String> {
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
