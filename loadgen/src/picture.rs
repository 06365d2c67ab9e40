//! The stored tracks as one self-contained SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use lab_stack::ClickHouse;

/// Side of the square with the tracks, in units of the picture.
const SIZE: f64 = 1_000.0;
/// Distance of the tracks from the sides of the square, in units of the picture.
const MARGIN: f64 = 40.0;
const KM_PER_DEGREE: f64 = 111.32;
/// Maximum number of drivers in the picture: more would make it unreadable.
const DRIVERS_MAX: u32 = 2_500;
/// Bands of mean speed: each has an upper limit in m/s, and the colour of its tracks.
const SPEEDS: [(f64, &str); 4] =
    [(2.0, "#5b6b8c"), (10.0, "#3fa7d6"), (18.0, "#59cd90"), (f64::MAX, "#fac05e")];

struct Track {
    /// Longitude and latitude of each fix.
    points: Vec<(f64, f64)>,
    /// Metres per second.
    mean_speed: f64,
}

/// Draws the tracks of a run into the file at `path`.
pub(crate) fn draw(clickhouse: &ClickHouse, run: &str, path: &Path) -> Result<()> {
    let tracks = tracks(clickhouse, run)?;
    std::fs::write(path, svg(&tracks)?).with_context(|| format!("cannot write {}", path.display()))
}

fn tracks(clickhouse: &ClickHouse, run: &str) -> Result<Vec<Track>> {
    let sql = format!(
        "SELECT driver_id, lat, lng, ifNull(speed, 0) FROM fleet.fixes \
         WHERE driver_id >= 'sim-{run}-' AND driver_id < 'sim-{run}.' \
         AND toUInt32(splitByChar('-', driver_id)[3]) < {DRIVERS_MAX} ORDER BY driver_id, ts"
    );
    let mut by_driver: BTreeMap<String, (Vec<(f64, f64)>, f64)> = BTreeMap::new();
    for line in clickhouse.query(&sql)?.lines() {
        let mut columns = line.split('\t');
        let mut next = || columns.next().context("a column is missing");
        let driver = next()?.to_owned();
        let (lat, lng, speed): (f64, f64, f64) =
            (next()?.parse()?, next()?.parse()?, next()?.parse()?);
        let (points, speed_sum) = by_driver.entry(driver).or_default();
        points.push((lng, lat));
        *speed_sum += speed;
    }
    ensure!(!by_driver.is_empty(), "run {run} has no fixes to draw");
    Ok(by_driver
        .into_values()
        .map(|(points, speed_sum)| Track { mean_speed: speed_sum / points.len() as f64, points })
        .collect())
}

fn svg(tracks: &[Track]) -> Result<String> {
    let points = || tracks.iter().flat_map(|track| &track.points);
    let bounds = |coordinate: fn(&(f64, f64)) -> f64| {
        points()
            .map(coordinate)
            .fold((f64::MAX, f64::MIN), |(min, max), value| (min.min(value), max.max(value)))
    };
    let ((west, east), (south, north)) = (bounds(|(lng, _)| *lng), bounds(|(_, lat)| *lat));
    // A degree of longitude is shorter than a degree of latitude, by the cosine of the latitude.
    let shrink = ((south + north) / 2.0).to_radians().cos();
    let degrees = (north - south).max((east - west) * shrink).max(1e-6);
    let scale = (SIZE - 2.0 * MARGIN) / degrees;
    let place = |(lng, lat): (f64, f64)| {
        (MARGIN + (lng - west) * shrink * scale, MARGIN + (north - lat) * scale)
    };

    let mut out = String::new();
    write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {height}" font-family="system-ui, sans-serif" font-size="15">
<rect width="100%" height="100%" fill="#10141f"/>
"##,
        height = SIZE + 50.0
    )?;
    for (index, (_, colour)) in SPEEDS.iter().enumerate() {
        let (mut lines, mut dots) = (String::new(), String::new());
        for track in tracks.iter().filter(|track| band(track.mean_speed) == index) {
            for (step, point) in track.points.iter().enumerate() {
                let (x, y) = place(*point);
                write!(lines, "{}{x:.1} {y:.1}", if step == 0 { "M" } else { "L" })?;
            }
            let (x, y) = place(*track.points.last().context("a track has points")?);
            write!(dots, "M{x:.1} {y:.1}h0")?;
        }
        writeln!(
            out,
            r#"<path d="{lines}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-opacity="0.75"/>"#
        )?;
        writeln!(
            out,
            r#"<path d="{dots}" stroke="{colour}" stroke-width="3.2" stroke-linecap="round"/>"#
        )?;
    }
    let fixes = points().count();
    writeln!(
        out,
        r##"<text x="{MARGIN}" y="{y}" fill="#c8d0e0">{drivers} drivers, {fixes} fixes, {km:.1} km across; dots are last positions. Mean speed:</text>"##,
        y = SIZE + 15.0,
        drivers = tracks.len(),
        km = degrees * KM_PER_DEGREE
    )?;
    let mut x = MARGIN;
    for ((_, colour), label) in
        SPEEDS.iter().zip(["standing", "below 10 m/s", "below 18 m/s", "faster"])
    {
        writeln!(out, r#"<text x="{x}" y="{}" fill="{colour}">● {label}</text>"#, SIZE + 38.0)?;
        x += 150.0;
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// Returns the index in [`SPEEDS`] of a mean speed.
fn band(speed: f64) -> usize {
    SPEEDS.iter().position(|(below, _)| speed < *below).unwrap_or(SPEEDS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_track_is_inside_the_picture() {
        let track = |lng: f64, lat: f64, mean_speed| Track {
            points: vec![(lng, lat), (lng + 0.01, lat)],
            mean_speed,
        };
        let svg = svg(&[track(-80.0, 25.0, 0.0), track(-80.1, 25.3, 30.0)]).unwrap();
        let numbers = svg.split("d=\"").skip(1).flat_map(|path| {
            let path = path.split('"').next().unwrap();
            path.split(['M', 'L', 'h', ' '])
                .filter_map(|number| number.parse::<f64>().ok())
                .collect::<Vec<_>>()
        });
        let (mut count, mut outside) = (0, 0);
        for number in numbers {
            count += 1;
            outside += usize::from(!(0.0..=SIZE).contains(&number));
        }
        assert!(count > 8 && outside == 0, "{svg}");
    }
}
