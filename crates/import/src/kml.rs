//! Reads the fixes of a KML file: the points of each `gx:Track`, and each Placemark with a
//! TimeStamp and a Point. A line without times is not a track.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::{Result, anyhow, bail, ensure};
use quick_xml::events::Event;

use super::read::Emit;
use super::record::Record;
use super::stated_zone::{in_zone_of_element, zone_attribute};
use super::xml::{GPX_TIME, OPEN_MAX, XML_BYTES_MAX, check_root, entity_char, reader};

/// Maximum points of a track. All times of a track may precede its places, so the whole track is in
/// memory.
const TRACK_POINTS_MAX: usize = 500_000;

/// Maximum bytes of the coordinates of a line or an area. These coordinates are not kept, but the
/// parser holds them as one string. The line of a day with one fix per second has some 3 MiB.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of a time, of a place in a track, and of an element's name.
const SHORT_BYTES_MAX: usize = 200;

/// The parts of the open Placemark that were read so far.
#[derive(Default)]
struct Placemark {
    when: Option<String>,
    /// `lon,lat,alt` of a Point.
    place: Option<String>,
    /// `altitudeMode` of that Point.
    place_mode: String,
    /// Times of the open `gx:Track`.
    times: Vec<Box<str>>,
    /// Places of the open `gx:Track`, with their lines in the file.
    places: Vec<(Box<str>, u64)>,
    has_track: bool,
    has_line: bool,
    /// `altitudeMode` of the open Point or Track. It says whether the height is above the sea or
    /// above the ground, or whether the map ignores the height.
    mode: String,
    /// `altitudeMode` of the open MultiTrack, for its tracks without one.
    tracks_mode: String,
}

/// Emits each fix with the names of GPX. Returns descriptions of the parts that are not read, for
/// example because they have no time.
pub(super) fn kml(input: impl Read, emit: Emit<'_>) -> Result<BTreeSet<String>> {
    let mut xml = reader(input, "KML")?;
    let (mut buffer, mut record, mut text) = (Vec::new(), Record::default(), String::new());
    let (mut placemark, mut unread) = (Placemark::default(), BTreeSet::new());
    // Names of the open elements.
    let mut open: Vec<String> = Vec::new();
    // The zone that an attribute of the open `when` states.
    let mut when_zone: Option<String> = None;
    let (mut has_root, mut fixes) = (false, 0_u64);
    let (mut untimed_points, mut untimed_lines) = (0_u64, 0_u64);
    loop {
        let event = xml.read_event_into(&mut buffer);
        let event = event.map_err(|error| {
            let line = xml.get_mut().line();
            if is_in_line(&open) && xml.get_mut().remaining == 0 {
                return anyhow!("line {line}: the coordinates of a line are longer than 16 MiB");
            }
            anyhow!("line {line}: {error}")
        })?;
        match event {
            Event::Start(element) => {
                check_root(&element, ("KML", "kml"), &mut has_root)?;
                let name = element.local_name().as_ref().to_owned();
                check_short(&name, "the name of an element", xml.get_mut().line())?;
                text.clear();
                match &*name {
                    "Placemark" => placemark = Placemark::default(),
                    "MultiTrack" => placemark.tracks_mode.clear(),
                    "Point" => placemark.mode.clear(),
                    "Track" => {
                        placemark.mode.clear();
                        placemark.has_track = true;
                    }
                    "LineString" => placemark.has_line = true,
                    "when" => when_zone = zone_attribute(&element).map(|(_, zone)| zone),
                    "SimpleArrayData" | "angles" => drop(unread.insert(name.clone())),
                    _ => {}
                }
                ensure!(open.len() < OPEN_MAX, "line {}: nested too deeply", xml.get_mut().line());
                open.push(name);
            }
            Event::Empty(element) => {
                check_root(&element, ("KML", "kml"), &mut has_root)?;
                let is_of_track = open.last().is_some_and(|outer| outer == "Track");
                match element.local_name().as_ref() {
                    "when" if is_of_track => placemark.times.push("".into()),
                    "coord" if is_of_track => {
                        placemark.places.push(("".into(), xml.get_mut().line()))
                    }
                    _ => {}
                }
            }
            Event::End(element) => {
                let name = element.local_name();
                // An element without an end tag ends with the element around it.
                if let Some(at) = open.iter().rposition(|open| open == name.as_ref()) {
                    let is_lost = open[at + 1..].iter().any(|inner| inner == "Placemark");
                    ensure!(!is_lost, "line {}: a Placemark has no end", xml.get_mut().line());
                    open.truncate(at);
                }
                let value = text.trim();
                let is_in = |outer: &str| open.last().is_some_and(|last| last == outer);
                if matches!(name.as_ref(), "when" | "coord") {
                    check_short(value, name.as_ref(), xml.get_mut().line())?;
                }
                let time = || in_zone_of_element(value.into(), when_zone.as_deref());
                match name.as_ref() {
                    "when" if is_in("Track") => placemark.times.push(time().into()),
                    // Ignore the TimeStamp of a view (LookAt or Camera): it is not the time of the
                    // Placemark.
                    "when"
                        if is_in("TimeStamp")
                            && open
                                .iter()
                                .nth_back(1)
                                .is_some_and(|outer| outer == "Placemark") =>
                    {
                        placemark.when = Some(time().into_owned());
                    }
                    "coord" if is_in("Track") => {
                        placemark.places.push((value.into(), xml.get_mut().line()))
                    }
                    "coordinates" if is_in("Point") => {
                        if placemark.place.is_some() {
                            unread.insert(
                                "a Point that is followed by another one in its Placemark"
                                    .to_owned(),
                            );
                        }
                        placemark.place = Some(value.to_owned());
                    }
                    "altitudeMode" if is_in("Point") || is_in("Track") => {
                        value.clone_into(&mut placemark.mode);
                    }
                    "altitudeMode" if is_in("MultiTrack") => {
                        value.clone_into(&mut placemark.tracks_mode);
                    }
                    "Point" => placemark.place_mode = std::mem::take(&mut placemark.mode),
                    "Track" => {
                        let (times, places) = (
                            std::mem::take(&mut placemark.times),
                            std::mem::take(&mut placemark.places),
                        );
                        ensure!(
                            times.len() == places.len(),
                            "line {}: a track has {} times and {} places",
                            xml.get_mut().line(),
                            times.len(),
                            places.len()
                        );
                        let mode = if placemark.mode.is_empty() {
                            &placemark.tracks_mode
                        } else {
                            &placemark.mode
                        };
                        for (time, (place, line)) in times.iter().zip(&places) {
                            fixes += 1;
                            emit_fix(&mut record, (time, place), (mode, *line), emit)?;
                        }
                    }
                    "Placemark" if !placemark.times.is_empty() || !placemark.places.is_empty() => {
                        bail!("line {}: a track has no end", xml.get_mut().line());
                    }
                    "Placemark" => match (&placemark.when, &placemark.place) {
                        (Some(when), Some(place)) => {
                            fixes += 1;
                            let line = xml.get_mut().line();
                            emit_fix(
                                &mut record,
                                (when, place),
                                (&placemark.place_mode, line),
                                emit,
                            )?;
                        }
                        (None, Some(_)) => untimed_points += 1,
                        (_, None) => {
                            untimed_lines += u64::from(placemark.has_line && !placemark.has_track)
                        }
                    },
                    _ => {}
                }
                text.clear();
            }
            Event::Text(_) if is_in_line(&open) => {}
            Event::Text(part) => text.push_str(&part.xml10_content()),
            Event::CData(part) => text.push_str(&part.xml10_content()),
            Event::GeneralRef(name) => text.extend(entity_char(&name)),
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
        ensure!(
            placemark.times.len().max(placemark.places.len()) <= TRACK_POINTS_MAX,
            "line {}: a track of more than {TRACK_POINTS_MAX} points",
            xml.get_mut().line()
        );
        ensure!(
            text.len() <= XML_BYTES_MAX,
            "line {}: a text is longer than 1 MiB",
            xml.get_mut().line()
        );
        buffer.clear();
        xml.get_mut().remaining = if is_in_line(&open) { LINE_BYTES_MAX } else { XML_BYTES_MAX };
    }
    ensure!(has_root, "not KML: it has no element at all");
    ensure!(open.is_empty(), "the file ends before its last element does");
    if untimed_points + untimed_lines > 0 {
        let untimed = format!("{untimed_points} points and {untimed_lines} lines without times");
        ensure!(fixes > 0, "it has no track: {untimed} are not read");
        unread.insert(untimed);
    }
    Ok(unread)
}

/// Returns whether the innermost open element has the coordinates of a line or an area.
fn is_in_line(open: &[String]) -> bool {
    matches!(open, [.., outer, inner] if inner == "coordinates" && outer != "Point")
}

/// Checks the length of a string, because many strings of this kind are in memory at once. `name`:
/// the kind of string, for the error.
fn check_short(text: &str, name: &str, line: u64) -> Result<()> {
    let is_short = text.len() <= SHORT_BYTES_MAX;
    ensure!(is_short, "line {line}: {name} is longer than {SHORT_BYTES_MAX} bytes");
    Ok(())
}

/// Emits a fix. `place`: longitude, latitude and height in metres, separated by commas or spaces;
/// `mode`: the `altitudeMode`; `line`: the fix's line in the file.
fn emit_fix(
    record: &mut Record,
    (time, place): (&str, &str),
    (mode, line): (&str, u64),
    emit: Emit<'_>,
) -> Result<()> {
    record.clear();
    let is_separator = |c: char| c == ',' || c.is_whitespace();
    let is_some = |number: &&str| !number.is_empty();
    let mut numbers = place.split(is_separator).filter(is_some);
    if numbers.clone().count() > 3 {
        // The text has decimal commas, or holds several places. Emit the whole text as the
        // latitude, which the decoder rejects. Emit no longitude and no height.
        record.put("lat", place);
        numbers = "".split(is_separator).filter(is_some);
    }
    for name in ["lon", "lat", "ele"] {
        let Some(number) = numbers.next() else { break };
        // A height above the ground, or a height of 0 that the map ignores, is not an altitude.
        let is_zero = number.parse::<f64>().is_ok_and(|number| number == 0.0);
        let is_altitude = mode == "absolute" || !is_zero && mode != "relativeToGround";
        if name != "ele" || is_altitude {
            record.put(name, number);
        }
    }
    record.put(GPX_TIME, time);
    let payload = record.finish();
    emit(payload, payload.len(), line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::collect_payloads;

    const WHEN: &str = "<when>2026-01-31T08:00:00Z</when>";

    fn read(file: &str) -> (Vec<String>, String) {
        collect_payloads(|emit| kml(file.as_bytes(), emit).map(drop))
    }

    #[test]
    fn track_without_an_end_is_bounded_in_memory() {
        for element in ["<gx:coord/>", "<when/>", "<gx:coord>1 2</gx:coord>"] {
            let elements = element.repeat(TRACK_POINTS_MAX + 2);
            let (points, end) = read(&format!("<kml><Placemark><gx:Track>{elements}"));
            let message = "line 1: a track of more than 500000 points";
            assert!(points.is_empty() && end.contains(message), "{element}: {end}");
        }
    }

    #[test]
    fn long_times_places_and_names_are_refused() {
        let long = "1".repeat(SHORT_BYTES_MAX + 1);
        for inner in [
            format!("<when>{long}</when>"),
            format!("<gx:coord>{long}</gx:coord>"),
            format!("<a{long}>"),
        ] {
            let file = format!("<kml><Placemark>\n<gx:Track>{inner}");
            let (points, end) = read(&file);
            assert!(points.is_empty() && end.contains("line 2: "), "{end}");
            assert!(end.contains("longer than 200 bytes"), "{end}");
        }
        // A description may be long.
        let file = format!("<kml><Placemark><description>{long}</description></Placemark></kml>");
        assert_eq!(read(&file), (Vec::new(), String::new()));
    }

    #[test]
    fn long_line_does_not_end_the_reading() {
        let stamp = format!("<TimeStamp>{WHEN}</TimeStamp>");
        let point =
            format!("<Placemark>{stamp}<Point><coordinates>1,2</coordinates></Point></Placemark>");
        let places = "13.404954,52.520008,34.00\n".repeat(XML_BYTES_MAX / 20);
        for outer in ["LineString", "LinearRing"] {
            let line = format!("<{outer}><coordinates>{places}</coordinates></{outer}>");
            let file = format!("<kml>{point}<Placemark>{line}</Placemark>{point}</kml>");
            let (points, end) = read(&file);
            assert!(points.len() == 2 && end.is_empty(), "{outer}: {points:?} {end}");
        }
        let line = "1,2 ".repeat(LINE_BYTES_MAX / 4 + 1);
        let (_, end) = read(&format!("<kml><LineString><coordinates>{line}"));
        assert!(end.contains("longer than 16 MiB"), "{end}");
        // The text of another element is bounded, too.
        for begin in ["<Point><coordinates>", "<description>"] {
            let (_, end) = read(&format!("<kml><Placemark>{begin}{places}"));
            assert!(end.contains("longer than 1 MiB"), "{begin}: {end}");
        }
    }

    #[test]
    fn placemark_without_an_end_is_not_lost_in_silence() {
        let placed = format!(
            "<TimeStamp>{WHEN}</TimeStamp><Point><coordinates>13.4,52.5</coordinates></Point>"
        );
        let whole = format!("<Placemark>{placed}</Placemark>");
        let file = format!("<kml><Document>\n{whole}<Placemark>{placed}</Document></kml>");
        let (points, end) = read(&file);
        assert_eq!(points.len(), 1, "{points:?}");
        assert!(end.contains("line 2: a Placemark has no end"), "{end}");
    }

    #[test]
    fn timestamp_of_a_view_is_ignored() {
        let view = "<LookAt><gx:TimeStamp><when>2020-01-01</when></gx:TimeStamp></LookAt>";
        let stamp = format!("<TimeStamp>{WHEN}</TimeStamp>");
        let point = "<Point><coordinates>13.4,52.5</coordinates></Point>";
        for inner in [format!("{view}{stamp}{point}"), format!("{stamp}{view}{point}")] {
            let (points, end) = read(&format!("<kml><Placemark>{inner}</Placemark></kml>"));
            let expected = r#"{"lon":"13.4","lat":"52.5","time":"2026-01-31T08:00:00Z"}"#;
            assert_eq!((points, end), (vec![expected.to_owned()], String::new()));
        }
        let (points, end) = read(&format!("<kml><Placemark>{view}{point}</Placemark></kml>"));
        assert!(points.is_empty() && end.contains("1 points and 0 lines without times"), "{end}");
    }

    #[test]
    fn place_of_more_than_three_numbers_is_emitted_unchanged() {
        let stamp = format!("<TimeStamp>{WHEN}</TimeStamp>");
        for (place, expected) in [
            ("13.4, 52.5, 7", r#"{"lon":"13.4","lat":"52.5","ele":"7","time":"#),
            ("13,4 52,5", r#"{"lat":"13,4 52,5","time":"#),
            ("13.4,52.5,0 13.5,52.5,0", r#"{"lat":"13.4,52.5,0 13.5,52.5,0","time":"#),
        ] {
            let point = format!("<Point><coordinates>{place}</coordinates></Point>");
            let track = format!("<gx:Track>{WHEN}<gx:coord>{place}</gx:coord></gx:Track>");
            for inner in [format!("{stamp}{point}"), track] {
                let (points, end) = read(&format!("<kml><Placemark>{inner}</Placemark></kml>"));
                assert!(points[0].starts_with(expected) && end.is_empty(), "{points:?} {end}");
            }
        }
        let points = "<Point><coordinates>1,2</coordinates></Point>".repeat(2);
        let file = format!("<kml><Placemark>{stamp}<Multi>{points}</Multi></Placemark></kml>");
        let mut unread = BTreeSet::new();
        collect_payloads(|emit| kml(file.as_bytes(), emit).map(|names| unread = names));
        assert_eq!(unread.len(), 1, "{unread:?}");
    }

    #[test]
    fn empty_time_outside_a_track_is_ignored() {
        let track = format!("<gx:Track>{WHEN}<gx:coord>13.4 52.5</gx:coord></gx:Track>");
        for inner in [
            format!("<gx:Track/><TimeStamp><when/></TimeStamp>{track}"),
            format!("{track}<TimeStamp><when/></TimeStamp>"),
            format!("{track}<x><gx:coord/></x>"),
        ] {
            let (points, end) = read(&format!("<kml><Placemark>{inner}</Placemark></kml>"));
            assert!(points.len() == 1 && end.is_empty(), "{inner}: {points:?} {end}");
        }
    }

    #[test]
    fn altitude_mode_of_the_geometry_applies() {
        let ground = "<altitudeMode>relativeToGround</altitudeMode>";
        let absolute = "<altitudeMode>absolute</altitudeMode>";
        let stamp = format!("<TimeStamp>{WHEN}</TimeStamp>");
        let point = |mode: &str, height: &str| {
            format!("<Point>{mode}<coordinates>13.4,52.5,{height}</coordinates></Point>")
        };
        let track = |mode: &str, height: &str| {
            format!("<gx:Track>{mode}{WHEN}<gx:coord>13.4 52.5 {height}</gx:coord></gx:Track>")
        };
        for (inner, heights) in [
            (format!("{stamp}{}<Camera>{ground}</Camera>", point("", "34")), &["34"][..]),
            (format!("<LookAt>{absolute}</LookAt>{stamp}{}", point("", "0")), &[""]),
            (format!("{stamp}{}<LineString>{ground}</LineString>", point(absolute, "0")), &["0"]),
            (format!("<MultiTrack>{absolute}{}</MultiTrack>", track("", "0")), &["0"]),
            (
                format!("<MultiTrack>{}{}</MultiTrack>", track(ground, "5"), track("", "34")),
                &["", "34"],
            ),
        ] {
            let (points, end) = read(&format!("<kml><Placemark>{inner}</Placemark></kml>"));
            let found = points.iter().map(|point| {
                let point: serde_json::Value = serde_json::from_str(point).unwrap_or_default();
                point["ele"].as_str().unwrap_or_default().to_owned()
            });
            let found: Vec<String> = found.collect();
            assert_eq!((found.join(" "), &*end), (heights.join(" "), ""), "{inner}");
        }
    }

    #[test]
    fn root_is_checked_with_and_without_content() {
        for file in ["<kml/>", "<kml></kml>", "<?xml version='1.0'?><k:kml xmlns:k='k'/>\n"] {
            assert_eq!(read(file), (Vec::new(), String::new()), "{file}");
        }
        for (file, message) in [
            ("<html/>", "not KML: it begins with <html>"),
            ("<gpx></gpx>", "not KML: it begins with <gpx>"),
            ("", "no element"),
        ] {
            let (points, end) = read(file);
            assert!(points.is_empty() && end.contains(message), "{file}: {end}");
        }
    }
}
