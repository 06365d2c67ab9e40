//! Summarises a file: the column or key of each field that is read, the names that are not read,
//! and warnings about implausible fixes.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::json;

use super::args::Kind;
use super::known::DAY_MS;
use milepost_command::rows::{fix as fix_json, rfc3339};
use milepost_decode::metres as metres_between;
use milepost_decode::position::{DriverId, Position, Speed, Timestamp};

/// Speed in m/s that no vehicle reaches: 1,200 km/h.
const IMPOSSIBLE_MPS: f64 = 333.0;
/// Largest plausible distance in metres between two fixes with the same time. Neither the noise of
/// receivers nor a second of driving explains a larger distance.
const SAME_TIME_METRES: f64 = 1_000.0;
/// Maximum number of names that are listed.
const NAMES_MAX: usize = 12;

/// The summary of a file, shown under `understood` in the result.
#[derive(Debug, Default)]
pub(super) struct FileSummary {
    file: String,
    kind: Option<Kind>,
    /// Description of each field that is read: its name, place and unit.
    read: Vec<String>,
    unread: BTreeSet<String>,
    payloads: u64,
    positions: u64,
    rejects: u64,
    times: Option<(Timestamp, Timestamp)>,
    /// South, north, west, east in 1e-7 degrees.
    area: Option<[i32; 4]>,
    fastest_cms: Option<u16>,
    /// Highest speed in m/s between consecutive fixes of the file.
    highest_mps: f64,
    /// Number of pairs of consecutive fixes that would need more than [`IMPOSSIBLE_MPS`].
    impossible: u64,
    /// Number of pairs of consecutive fixes that have the same time and are far apart.
    same_time: u64,
    /// Number of fixes whose time is about 12 hours before that of the previous fix.
    half_days_back: u64,
    /// Time of day of the first fix, in milliseconds.
    clock: Option<i64>,
    /// Some fix has another time of day than the first fix.
    has_other_clock: bool,
    /// Number of fixes whose degrees have a fraction.
    with_fraction: u64,
    /// Distance in metres between consecutive fixes while moving.
    metres_moved: f64,
    /// Distance in metres that the device's speeds imply for the pairs of fixes in `metres_moved`.
    metres_by_speed: f64,
    /// Driver, time, latitude and longitude of the previous fix.
    last: Option<(DriverId, Timestamp, f64, f64)>,
    /// Rows that are not UTF-8.
    windows_1252_rows: u64,
    /// The last line of a CSV file, if it has no line end.
    unended_line: Option<u64>,
    /// `--resume` skipped fixes of the file.
    is_resumed: bool,
    /// Reading ended before the end of the file; another line of the result has the error.
    has_failed: bool,
    is_logged: bool,
    /// The first fix, as `milepost decode` shows it.
    example: Option<serde_json::Value>,
}

impl FileSummary {
    pub(super) fn new(file: String, kind: Kind, read: Vec<String>, unread: Vec<String>) -> Self {
        let unread = unread.into_iter().collect();
        Self { file, kind: Some(kind), read, unread, ..Self::default() }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Returns whether the file was read to its end, and has neither a valid nor an invalid fix.
    pub(super) fn has_no_fix(&self) -> bool {
        self.positions == 0 && self.rejects == 0 && !self.is_resumed && !self.has_failed
    }

    /// Adds names that are not read, unless 64 are known already.
    pub(super) fn add_unread(&mut self, names: &BTreeSet<String>) {
        if !names.is_empty() && self.unread.len() < 64 {
            self.unread.extend(names.iter().cloned());
        }
    }

    /// Notes that the last line of a CSV file has no line end, so that its last value may be cut
    /// off. Ignores this if `column`, the last column, is not read.
    pub(super) fn set_unended_line(&mut self, column: &str, line: u64) {
        // A name in the list of unread columns may have advice in brackets.
        let is_column = |name: &String| {
            let advice = name.strip_prefix(column);
            advice.is_some_and(|advice| advice.is_empty() || advice.starts_with(" ("))
        };
        self.unended_line = (!self.unread.iter().any(is_column)).then_some(line);
    }

    pub(super) fn set_windows_1252_rows(&mut self, rows: u64) {
        self.windows_1252_rows = rows;
    }

    /// Sets the number of payloads that were read, the number of those that `--resume` skipped, and
    /// whether an error ended the reading.
    pub(super) fn set_payloads(&mut self, payloads: u64, skipped: u64, has_failed: bool) {
        (self.payloads, self.is_resumed, self.has_failed) = (payloads, skipped > 0, has_failed);
    }

    /// Returns the detail of a reject after the file and line of the fix, `FILE:LINE`.
    pub(super) fn with_file_and_line(&self, line: u64, detail: &str) -> String {
        // The decoder advises to set the zone in the source or the format. For a file, advise
        // `--zone`.
        let detail =
            detail.replace("`zone` of the source or `ts_zone` of the format", "--zone").replace(
                "`zone` of the source, `ts_zone` of the format, or --zone of import",
                "--zone",
            );
        format!("{}: {detail}", self.file_and_line(line))
    }

    /// Returns the file and line of a fix, `FILE:LINE`.
    pub(super) fn file_and_line(&self, line: u64) -> String {
        format!("{}:{line}", self.file)
    }

    pub(super) fn add_rejects(&mut self, count: u64) {
        self.rejects += count;
    }

    pub(super) fn mark_logged(&mut self) {
        self.is_logged = true;
    }

    /// Returns whether the summary has positions and was not logged yet.
    pub(super) fn needs_log(&self) -> bool {
        !self.is_logged && self.positions > 0
    }

    pub(super) fn add_position(&mut self, fix: &Position) {
        self.positions += 1;
        if self.example.is_none() {
            self.example = Some(fix_json(fix));
        }
        let (lat, lng) = (fix.lat.e7(), fix.lng.e7());
        let [south, north, west, east] = self.area.unwrap_or([lat, lat, lng, lng]);
        self.area = Some([south.min(lat), north.max(lat), west.min(lng), east.max(lng)]);
        let (first, last) = self.times.unwrap_or((fix.ts, fix.ts));
        self.times = Some((first.min(fix.ts), last.max(fix.ts)));
        let has_speed = fix.speed != Speed::UNKNOWN;
        if has_speed {
            self.fastest_cms = self.fastest_cms.max(Some(fix.speed.cms()));
        }
        let clock = fix.ts.unix_ms().rem_euclid(DAY_MS);
        self.has_other_clock |= *self.clock.get_or_insert(clock) != clock;
        self.with_fraction += u64::from(lat % 10_000_000 != 0 || lng % 10_000_000 != 0);
        let (lat, lng) = (f64::from(lat) / 1e7, f64::from(lng) / 1e7);
        if let Some((driver, ts, previous_lat, previous_lng)) = self.last
            && driver == fix.driver_id
        {
            let elapsed_ms = fix.ts.unix_ms() - ts.unix_ms();
            // If AM and PM are lost, the time goes back by 12 hours, less the real time between the
            // two fixes.
            self.half_days_back += u64::from((-43_200_000..-42_000_000).contains(&elapsed_ms));
            let seconds = elapsed_ms.abs() as f64 / 1e3;
            let metres = metres_between([previous_lat, previous_lng], [lat, lng]);
            self.same_time += u64::from(seconds == 0.0 && metres > SAME_TIME_METRES);
            // Within less than a second, a receiver's noise would look like a speed.
            if seconds >= 1.0 {
                let mps = metres / seconds;
                self.highest_mps = self.highest_mps.max(mps);
                self.impossible += u64::from(mps > IMPOSSIBLE_MPS);
                if has_speed && mps > 2.0 && seconds <= 60.0 {
                    self.metres_moved += metres;
                    self.metres_by_speed += f64::from(fix.speed.cms()) / 100.0 * seconds;
                }
            }
        }
        self.last = Some((fix.driver_id, fix.ts, lat, lng));
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.payloads == 0 && !self.has_failed {
            let lacks = self.kind.map_or("", |kind| match kind {
                Kind::Gpx => ": it has no trkpt",
                Kind::Tcx => ": it has no Trackpoint of an Activity",
                Kind::Kml => ": it has no gx:Track, and no Point with a time",
                Kind::GeoJson => ": it has no features",
                Kind::Timeline => ": it has no places with times",
                Kind::Csv => ": it has names of columns, and no row",
                Kind::GeoJsonLines | Kind::OwnTracks => ": it has no lines",
            });
            warnings.push(format!("no fix was found in the file{lacks}"));
        }
        if self.payloads > 0 && self.has_no_fix() {
            warnings.push(format!(
                "none of the {} objects in the file has a fix: are its coordinates in another \
                 structure?",
                self.payloads
            ));
        }
        if self.impossible > 0 {
            let (count, kmh) = (self.impossible, self.highest_mps * 3.6);
            warnings.push(format!(
                "{count} pairs of consecutive fixes would need more than 1,200 km/h, up to \
                 {kmh:.0} km/h: are coordinates swapped, is a sign lost, or is the unit of time \
                 wrong?"
            ));
        }
        if self.same_time > 0 {
            warnings.push(format!(
                "{} pairs of consecutive fixes have the same time, but are more than 1 km apart: \
                 did a spreadsheet round the times, or are there several drivers?",
                self.same_time
            ));
        }
        if self.half_days_back > 0 {
            warnings.push(format!(
                "{} times are about 12 hours before the one in the row above: have the times lost \
                 AM and PM?",
                self.half_days_back
            ));
        }
        if self.positions > 1 && !self.has_other_clock {
            warnings.push(
                "all times have the same time of day: is the time of day in another column?"
                    .to_owned(),
            );
        }
        if self.positions > 1 && self.with_fraction == 0 {
            warnings.push(
                "all places are whole degrees: are decimal commas taken for separators?".to_owned(),
            );
        }
        if let (2.., Some(area)) = (self.positions, self.area)
            && may_be_radians(area)
        {
            warnings.push(
                "all latitudes are within 1.57° and all longitudes within 3.14° of 0: are they \
                 radians? Then give --unit lat=rad"
                    .to_owned(),
            );
        }
        // Judge the unit of speed only after enough driving to tell it from noise.
        let ratio = self.metres_by_speed / self.metres_moved.max(1.0);
        let units = [
            (3.6, "km/h read as m/s"),
            (1.944, "knots read as m/s"),
            (2.237, "mph read as m/s"),
            (1.0 / 3.6, "m/s read as km/h"),
            (0.514, "m/s read as knots"),
            (0.447, "m/s read as mph"),
        ];
        if self.metres_moved > 2_000.0
            && let Some((_, mix_up)) =
                units.iter().find(|(factor, _)| (ratio / factor - 1.0).abs() < 0.08)
        {
            warnings.push(format!(
                "the speeds are {ratio:.2} times those computed from positions and times: are they \
                 {mix_up}?"
            ));
        }
        if self.windows_1252_rows > 0 {
            warnings.push(format!(
                "{} rows are not UTF-8 and were read as windows-1252",
                self.windows_1252_rows
            ));
        }
        if let Some(line) = self.unended_line {
            warnings.push(format!(
                "line {line}, the last one, has no line end: if the file was cut off, the last \
                 value of this line may be incomplete"
            ));
        }
        warnings
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "file": self.file, "read": self.read, "unread": self.unread,
            "payloads": self.payloads, "positions": self.positions, "rejected": self.rejects,
            "area_e7": self.area, "fastest_cms": self.fastest_cms,
            "first": self.times.map(|(first, _)| first.unix_ms()),
            "last": self.times.map(|(_, last)| last.unix_ms()),
            "warnings": self.warnings(), "example": self.example,
        })
    }
}

/// Returns whether all coordinates may be radians: latitudes up to π / 2, longitudes up to π. A
/// real fleet hardly stays within so few degrees: that area, around 0° N 0° E, is almost all sea.
fn may_be_radians([south, north, west, east]: [i32; 4]) -> bool {
    let is_within = |e7: [i32; 2], max: f64| e7.iter().all(|e7| f64::from(*e7).abs() / 1e7 <= max);
    is_within([south, north], std::f64::consts::FRAC_PI_2)
        && is_within([west, east], std::f64::consts::PI)
}

/// Formats a coordinate, such as `33.9° S`.
fn degrees(e7: i32, [positive, negative]: [char; 2]) -> String {
    let letter = if e7 < 0 { negative } else { positive };
    format!("{:.4}° {letter}", f64::from(e7).abs() / 1e7)
}

impl fmt::Display for FileSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, read, unread, positions, rejects, .. } = self;
        write!(f, "{file}: {positions} fixes")?;
        if *rejects > 0 {
            write!(f, ", {rejects} rejected")?;
        }
        if !read.is_empty() {
            write!(f, "\n  read       {}", read.join("; "))?;
        }
        if !unread.is_empty() {
            let names: Vec<&str> = unread.iter().take(NAMES_MAX).map(String::as_str).collect();
            let count = unread.len() - names.len();
            let more = if count > 0 { format!(", and {count} more") } else { String::new() };
            write!(f, "\n  not read   {}{more}", names.join(", "))?;
        }
        if let Some((first, last)) = self.times {
            let [first, last] = [first, last].map(|time| rfc3339(time).to_string());
            write!(f, "\n  times      {} to {}", first.trim_matches('"'), last.trim_matches('"'))?;
        }
        if let Some([south, north, west, east]) = self.area {
            let [south, north] = [south, north].map(|lat| degrees(lat, ['N', 'S']));
            let [west, east] = [west, east].map(|lng| degrees(lng, ['E', 'W']));
            write!(f, "\n  places     {south} to {north}, {west} to {east}")?;
        }
        if let Some(cms) = self.fastest_cms {
            let mps = f64::from(cms) / 100.0;
            write!(f, "\n  fastest    {mps:.1} m/s, {:.0} km/h", mps * 3.6)?;
        }
        if let Some(example) = &self.example {
            write!(f, "\n  first fix  {example}")?;
        }
        self.warnings().iter().try_for_each(|warning| write!(f, "\n  warning    {warning}"))
    }
}
