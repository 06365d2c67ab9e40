//! Defines the arguments of `milepost import`, and recognises kinds of files.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use twox_hash::XxHash3_128;

use super::text::{conversion_advice, head_text, root};
use milepost_decode::formats::unknown;
use milepost_decode::{Quantity, Zone};

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gpx,
    /// A FeatureCollection.
    GeoJson,
    /// One Feature per line.
    GeoJsonLines,
    Csv,
    /// OwnTracks Recorder.
    OwnTracks,
    Tcx,
    Kml,
    /// An export of Google's Timeline.
    Timeline,
}

impl Kind {
    /// Returns whether programs append lines to a file of this kind.
    pub(super) fn is_line_based(self) -> bool {
        match self {
            Self::Csv | Self::GeoJsonLines | Self::OwnTracks => true,
            Self::Gpx | Self::GeoJson | Self::Tcx | Self::Kml | Self::Timeline => false,
        }
    }

    /// Returns whether the reader of this kind emits fixes with GPX's field names.
    pub(super) fn uses_gpx_names(self) -> bool {
        matches!(self, Self::Gpx | Self::Tcx | Self::Kml | Self::Timeline)
    }

    pub(super) fn is_xml(self) -> bool {
        matches!(self, Self::Gpx | Self::Tcx | Self::Kml)
    }

    const NAMES: [(&'static str, Self); 10] = [
        ("gpx", Self::Gpx),
        ("geojson", Self::GeoJson),
        ("json", Self::GeoJson),
        ("geojsonl", Self::GeoJsonLines),
        ("csv", Self::Csv),
        ("tsv", Self::Csv),
        ("rec", Self::OwnTracks),
        ("tcx", Self::Tcx),
        ("kml", Self::Kml),
        ("timeline", Self::Timeline),
    ];

    /// Returns the kind that `--format` or a file extension names, in any case.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(listed, _)| listed.eq_ignore_ascii_case(name))
            .map(|(_, kind)| *kind)
    }

    /// Returns the kind of a file. `head`: the file's first bytes. `named`: the kind that the name
    /// of the file states. The content of an XML or JSON file overrides `named`.
    pub(super) fn from_content(head: &[u8], named: Self) -> Self {
        let text = head_text(head);
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        match named {
            Self::Gpx | Self::Tcx | Self::Kml => {
                let roots =
                    [("TrainingCenterDatabase", Self::Tcx), ("kml", Self::Kml), ("gpx", Self::Gpx)];
                let name = root(&text).and_then(|name| name.rsplit(':').next());
                let by_root = roots.into_iter().find(|(root, _)| Some(*root) == name);
                by_root.map_or(named, |(_, kind)| kind)
            }
            Self::GeoJson if text.starts_with(['{', '[']) => {
                const TIMELINE_KEYS: [&str; 6] = [
                    "\"semanticSegments\"",
                    "\"rawSignals\"",
                    "\"timelineObjects\"",
                    "\"timelinePath\"",
                    "\"placeLocation\"",
                    "\"latitudeE7\"",
                ];
                // The properties of a Feature may have the same keys as a Timeline file.
                let has_features = has(&["\"FeatureCollection\"", "\"Feature\""]);
                if !has_features && has(&TIMELINE_KEYS) { Self::Timeline } else { named }
            }
            Self::GeoJson | Self::GeoJsonLines | Self::Csv | Self::OwnTracks | Self::Timeline => {
                named
            }
        }
    }

    /// Returns the kind of a file by its extension.
    ///
    /// # Errors
    /// `import` does not read files with this extension. The error says what to do instead.
    pub(super) fn from_path(path: &Path) -> Result<Self> {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some((_, cat)) = COMPRESSED.iter().find(|(extension, _)| *extension == ending) {
            bail!(
                "it is compressed: unpack it, or pipe it in: {cat} {name} | milepost import - \
                 --format …"
            );
        }
        if ending == "kmz" {
            bail!(
                "it is a zip file with KML; unpack it: unzip -p {name} doc.kml | milepost import - \
                 --format kml --driver ID"
            );
        }
        if ["xls", "xlsx", "ods"].contains(&&*ending) {
            bail!("it is a spreadsheet: save it as CSV, and import that");
        }
        if ["shp", "gpkg", "sqlite", "fgb"].contains(&&*ending) {
            bail!(
                "it is a map's data; convert it: ogr2ogr -t_srs EPSG:4326 -f GeoJSON out.geojson \
                 {name}"
            );
        }
        let gpsbabel_formats = [
            ("nmea", "NMEA", "nmea"),
            ("fit", "FIT", "garmin_fit"),
            ("igc", "IGC", "igc"),
            ("plt", "an OziExplorer track", "ozi"),
            ("gdb", "Garmin MapSource data", "gdb"),
        ];
        if let Some((_, kind, format)) =
            gpsbabel_formats.iter().find(|(extension, ..)| *extension == ending)
        {
            bail!("{}", conversion_advice(kind, format, &name));
        }
        Self::from_name(&ending)
            .ok_or_else(|| anyhow!("the name does not say which kind of file it is: give --format"))
    }
}

/// Extensions of compressed files, each with the program that unpacks it to standard output.
const COMPRESSED: [(&str, &str); 5] =
    [("gz", "zcat"), ("zst", "zstdcat"), ("bz2", "bzcat"), ("xz", "xzcat"), ("zip", "unzip -p")];

#[derive(Debug, Default, clap::Args)]
pub struct ImportArgs {
    /// gpx, tcx, kml, geojson (a FeatureCollection), geojsonl (a Feature per line), timeline
    /// (Google's), csv or rec [default: by the file's name]; or a format of the configuration,
    /// [formats.NAME], that says where the fields are. May be given twice: a kind of file and a
    /// format
    #[arg(long = "format", value_name = "FORMAT")]
    pub formats: Vec<String>,
    /// Id of the driver, in which {file} stands for the file's name without its extension; or a
    /// JSON pointer such as /properties/device, or /COLUMN [default: /driver_id; for rec the driver
    /// of owntracks/USER/DEVICE in the configuration]
    #[arg(long)]
    pub driver: Option<String>,
    /// Place of a field. FIELD: lat, lng, ts, speed, heading, alt, acc, seq, lat_hemisphere or
    /// lng_hemisphere; WHERE: a column, an element of trkpt, or a JSON pointer. ts=DATE+TIME joins
    /// two of them
    #[arg(long = "field", value_name = "FIELD=WHERE", value_parser = parse_field)]
    pub fields: Vec<(String, String)>,
    /// Unit of the file's speeds: m/s, km/h, mph or knots [default: m/s for GPX, TCX and timeline;
    /// always km/h for rec; for CSV what a column's name states, such as "Speed (km/h)"; none for
    /// GeoJSON]
    #[arg(long, value_parser = |unit: &str| Quantity::Speed.factor(unit))]
    pub speed_unit: Option<f64>,
    /// Unit of the file's altitudes: m or ft [default: what a column's name states, such as
    /// "Altitude (ft)", else m]
    #[arg(long, value_parser = |unit: &str| Quantity::Length.factor(unit))]
    pub alt_unit: Option<f64>,
    /// Unit of another field. FIELD: lat (also sets that of lng, without a sign), lng, heading or
    /// acc; UNIT: for example deg, 1e-7 deg, ddmm.mmmm, "-1 deg", m or ft. For ts also a pattern
    /// such as "%d/%m/%Y %H:%M:%S"
    #[arg(long = "unit", value_name = "FIELD=UNIT", value_parser = parse_field)]
    pub units: Vec<(String, String)>,
    /// A value that means "not available", before any unit, such as speed=102.3
    #[arg(long, value_name = "FIELD=VALUE", value_parser = unknown)]
    pub unknown: Vec<(usize, f64)>,
    /// Zone of times without one, such as Europe/Berlin or +02:00 [default: Z in GPX and CSV;
    /// elsewhere such a time is refused]
    #[arg(long, value_parser = Zone::new, allow_hyphen_values = true)]
    pub zone: Option<Zone>,
    /// Names of other fields to store as attributes, separated by commas; * for all
    #[arg(long, value_delimiter = ',')]
    pub keep: Vec<String>,
    /// Only read and decode; contacts no server; exit 1 on rejects
    #[arg(long)]
    pub dry_run: bool,
    /// Record in this file how much of each file is stored, and skip that part the next time
    #[arg(long, value_name = "STATE", conflicts_with = "dry_run")]
    pub resume: Option<PathBuf>,
    /// Files, or - for standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

impl ImportArgs {
    /// Returns the UNIT of `--unit FIELD=UNIT`; the last one wins.
    pub(super) fn unit_of(&self, field: &str) -> Option<&str> {
        self.units.iter().rev().find(|(name, _)| name == field).map(|(_, unit)| unit.as_str())
    }

    /// Returns the name of the configured format: the `--format` that is not a kind of file.
    pub(super) fn format_name(&self) -> Option<&String> {
        self.formats.iter().find(|name| Kind::from_name(name).is_none())
    }

    /// Checks that `--format` names at most one kind of file, and at most one configured format.
    pub(super) fn check_formats(&self) -> Result<()> {
        let is_kind = |name: &&String| Kind::from_name(name).is_some();
        let (kinds, names): (Vec<&String>, Vec<&String>) = self.formats.iter().partition(is_kind);
        for (mut same, what) in [(kinds, "kinds of files"), (names, "names of formats")] {
            same.dedup();
            if let [first, second, ..] = same[..] {
                bail!("--format {first} and --format {second} are both {what}: give only one");
            }
        }
        Ok(())
    }

    /// Returns the fields whose unit an option states. Leaves out the speed of GeoJSON:
    /// `--speed-unit` is mandatory for GeoJSON, so this option does not show that the operator
    /// knows of a unit that the file states.
    pub(super) fn settled_units(&self, kind: Kind) -> Vec<&str> {
        let alt = self.alt_unit.map(|_| "alt");
        let speed = self.speed_unit.filter(|_| kind != Kind::GeoJson).map(|_| "speed");
        self.units.iter().map(|(field, _)| &**field).chain(alt).chain(speed).collect()
    }

    /// Returns a hash, never 0, of the options that change what is stored for a file. The same file
    /// gives different fixes if it is read for another driver or in another zone.
    #[expect(clippy::cast_possible_truncation, reason = "a hash")]
    pub(super) fn hash(&self) -> u64 {
        let Self { formats, driver, fields, units, unknown, zone, keep, .. } = self;
        let factors = (self.speed_unit, self.alt_unit);
        // The order in `--keep` changes nothing: kept values have the order of the file.
        let mut keep = keep.clone();
        keep.sort();
        let options =
            format!("{:?}", (formats, driver, fields, factors, units, unknown, zone, keep));
        (XxHash3_128::oneshot(options.as_bytes()) as u64).max(1)
    }
}

/// Splits `FIELD=VALUE`.
fn parse_field(text: &str) -> Result<(String, String), String> {
    let parts =
        text.split_once('=').filter(|(field, value)| !field.is_empty() && !value.is_empty());
    let (field, value) =
        parts.ok_or_else(|| "must be FIELD=VALUE, such as speed=velocity".to_owned())?;
    Ok((field.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_determines_the_kind_or_the_advice() {
        assert!(matches!(Kind::from_path(Path::new("a/B.GPX")), Ok(Kind::Gpx)));
        for (name, message) in [
            ("a.csv.gz", "zcat"),
            ("a.txt", "--format"),
            ("folder", "--format"),
            ("t.KMZ", "doc.kml | milepost import"),
            ("t.KMZ", "--format kml --driver ID"),
            ("t.shp", "ogr2ogr -t_srs EPSG:4326 -f GeoJSON out.geojson t.shp"),
            ("t.fit", "-i garmin_fit"),
            ("t.igc", "-i igc"),
            ("t.xlsx", "save it as CSV"),
            ("t.gpkg", "ogr2ogr"),
        ] {
            let why = Kind::from_path(Path::new(name))
                .err()
                .map(|why| why.to_string())
                .unwrap_or_default();
            assert!(why.contains(message), "{name}: {why}");
        }
    }

    #[test]
    fn content_overrides_the_name() {
        for (head, named, kind) in [
            (&b"<?xml version=\"1.0\"?>\n<kml xmlns=\"x\">"[..], Kind::Gpx, Kind::Kml),
            (b"<TrainingCenterDatabase/>", Kind::Gpx, Kind::Tcx),
            (b"\xef\xbb\xbf <gpx>", Kind::Kml, Kind::Gpx),
            (b"{\"semanticSegments\":[]}", Kind::GeoJson, Kind::Timeline),
            (b"{\"locations\":[{\"latitudeE7\":1}]}", Kind::GeoJson, Kind::Timeline),
            (b"{\"type\":\"FeatureCollection\"", Kind::GeoJson, Kind::GeoJson),
            (b"lat,lon,\"latitudeE7\"", Kind::Csv, Kind::Csv),
            // Names inside comments, text and properties do not decide the kind.
            (b"<!-- <kml> --><gpx><name>&lt;kml</name>", Kind::Gpx, Kind::Gpx),
            (b"<gpx><name><![CDATA[<kml>]]></name>", Kind::Gpx, Kind::Gpx),
            (b"<?xml version='1.0'?><g:gpx xmlns:g='g'>", Kind::Kml, Kind::Gpx),
            (
                b"{\"type\":\"FeatureCollection\",\"features\":\
                  [{\"properties\":{\"latitudeE7\":1}}]}",
                Kind::GeoJson,
                Kind::GeoJson,
            ),
            (b"[{\"type\":\"Feature\",\"timelinePath\":1}]", Kind::GeoJson, Kind::GeoJson),
        ] {
            assert_eq!(Kind::from_content(head, named), kind, "{named:?}");
        }
    }

    #[test]
    fn order_of_kept_names_does_not_change_what_is_stored() {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            args: ImportArgs,
        }
        let hash = |keep: &str| {
            let line = ["import", "--driver", "d7", "--keep", keep, "a.csv"];
            <CommandLine as clap::Parser>::try_parse_from(line).unwrap().args.hash()
        };
        assert_eq!(hash("batt,ign"), hash("ign,batt"));
        assert_ne!(hash("batt,ign"), hash("batt"));
    }
}
