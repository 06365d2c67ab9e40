//! Reads the fixes of a KML file: the tracks `gx:Track`, and each Placemark with a TimeStamp and a
//! Point. A line without times is no track.

use std::collections::BTreeSet;
use std::io::BufRead;

use anyhow::{Result, anyhow, bail, ensure};
use quick_xml::events::Event;

use super::read::Take;
use super::record::Record;
use super::xml::{GPX_TIME, XML_BYTES_MAX, reader, referred};

/// Most points of a track: its times come before its places, so it is in memory whole.
const TRACK_POINTS_MAX: usize = 500_000;

/// The parts of the open Placemark that were read.
#[derive(Default)]
struct Placemark {
    when: Option<String>,
    /// `lon,lat,alt` of a Point.
    place: Option<String>,
    /// Times and places of a `gx:Track`.
    times: Vec<Box<str>>,
    places: Vec<Box<str>>,
    has_track: bool,
    has_line: bool,
    /// `altitudeMode`: the height counts from the sea, or is ignored by the map.
    mode: String,
}

/// Passes each fix with the names of GPX. Returns what has no time, or is not read.
pub(super) fn kml(input: impl BufRead, take: Take<'_>) -> Result<BTreeSet<String>> {
    let mut xml = reader(input, "KML")?;
    let (mut buffer, mut record, mut text) = (Vec::new(), Record::default(), String::new());
    let (mut mark, mut unread) = (Placemark::default(), BTreeSet::new());
    // Names of the open elements.
    let mut open: Vec<String> = Vec::new();
    let (mut has_root, mut fixes, mut untimed) = (false, 0_u64, [0_u64; 2]);
    loop {
        let event = xml.read_event_into(&mut buffer);
        let event = event.map_err(|error| anyhow!("line {}: {error}", xml.get_ref().line))?;
        match event {
            Event::Start(element) => {
                let name = element.local_name().as_ref().to_owned();
                ensure!(has_root || name == "kml", "not KML: it begins with <{name}>");
                has_root = true;
                text.clear();
                match &*name {
                    "Placemark" => mark = Placemark::default(),
                    "Track" => mark.has_track = true,
                    "LineString" => mark.has_line = true,
                    "SimpleArrayData" | "angles" => drop(unread.insert(name.clone())),
                    _ => {}
                }
                ensure!(open.len() < 1_000, "line {}: nested too deeply", xml.get_ref().line);
                open.push(name);
            }
            Event::Empty(element) => match element.local_name().as_ref() {
                "when" if mark.has_track => mark.times.push("".into()),
                "coord" => mark.places.push("".into()),
                _ => {}
            },
            Event::End(element) => {
                let name = element.local_name();
                // Elements without an end tag end with the one around them.
                if let Some(at) = open.iter().rposition(|known| known == name.as_ref()) {
                    open.truncate(at);
                }
                let value = text.trim();
                let is_in = |outer: &str| open.last().is_some_and(|known| known == outer);
                match name.as_ref() {
                    "when" if is_in("Track") => mark.times.push(value.into()),
                    "when" if is_in("TimeStamp") => mark.when = Some(value.to_owned()),
                    "coord" if is_in("Track") => mark.places.push(value.into()),
                    "coordinates" if is_in("Point") => mark.place = Some(value.to_owned()),
                    "altitudeMode" => value.clone_into(&mut mark.mode),
                    "Track" => {
                        let (times, places) =
                            (std::mem::take(&mut mark.times), std::mem::take(&mut mark.places));
                        ensure!(
                            times.len() == places.len(),
                            "line {}: a track has {} times and {} places",
                            xml.get_ref().line,
                            times.len(),
                            places.len()
                        );
                        for (time, place) in times.iter().zip(&places) {
                            fixes += 1;
                            pass(&mut record, (time, place), &mark.mode, take)?;
                        }
                    }
                    "Placemark" if !mark.times.is_empty() || !mark.places.is_empty() => {
                        bail!("line {}: a track has no end", xml.get_ref().line);
                    }
                    "Placemark" => match (&mark.when, &mark.place) {
                        (Some(when), Some(place)) => {
                            fixes += 1;
                            pass(&mut record, (when, place), &mark.mode, take)?;
                        }
                        (None, Some(_)) => untimed[0] += 1,
                        (_, None) => untimed[1] += u64::from(mark.has_line && !mark.has_track),
                    },
                    _ => {}
                }
                ensure!(
                    mark.times.len().max(mark.places.len()) <= TRACK_POINTS_MAX,
                    "line {}: a track of more than {TRACK_POINTS_MAX} points",
                    xml.get_ref().line
                );
                text.clear();
            }
            Event::Text(part) => text.push_str(&part.xml10_content()),
            Event::CData(part) => text.push_str(&part.xml10_content()),
            Event::GeneralRef(name) => text.extend(referred(&name)),
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
        ensure!(
            text.len() <= XML_BYTES_MAX,
            "line {}: a text is longer than 1 MiB",
            xml.get_ref().line
        );
        buffer.clear();
        xml.get_mut().left = XML_BYTES_MAX;
    }
    ensure!(has_root, "not KML: it has no element at all");
    ensure!(open.is_empty(), "the file ends before its last element does");
    let [points, lines] = untimed;
    if points + lines > 0 {
        let without = format!("{points} points and {lines} lines without times");
        ensure!(fixes > 0, "it has no track: {without} are not read");
        unread.insert(without);
    }
    Ok(unread)
}

/// Passes a fix. `place`: longitude, latitude and metres, with commas or spaces.
fn pass(
    record: &mut Record,
    (time, place): (&str, &str),
    mode: &str,
    take: Take<'_>,
) -> Result<()> {
    record.clear();
    let mut numbers =
        place.split(|c: char| c == ',' || c.is_whitespace()).filter(|number| !number.is_empty());
    for name in ["lon", "lat", "ele"] {
        let Some(number) = numbers.next() else { break };
        // A height of 0 that the map ignores, or one above the ground, is no altitude.
        let is_zero = number.parse::<f64>().is_ok_and(|number| number == 0.0);
        let is_altitude = mode == "absolute" || !is_zero && mode != "relativeToGround";
        if name != "ele" || is_altitude {
            record.put(name, number);
        }
    }
    record.put(GPX_TIME, time);
    let payload = record.finish();
    take(payload, payload.len())
}
