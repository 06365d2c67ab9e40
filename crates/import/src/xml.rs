//! Reads GPX and TCX files, and parses XML in bounded memory: emits each point as a payload for the
//! decoder before it reads the next one.

use std::borrow::Cow;
use std::io::{BufRead as _, Read};

use anyhow::{Context as _, Result, anyhow, ensure};
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::bounded::Bounded;
use super::read::Emit;
use super::record::Record;
use super::stated_zone::{
    StatedZone, in_zone_of_element, is_zone_name, states_something, zone_attribute,
};

/// Name of a fix's time in the JSON that the readers of GPX, TCX, KML and Timeline build.
pub(super) const GPX_TIME: &str = "time";

/// Maximum bytes of a point, and of a tag or text outside points: each is in memory as a whole.
pub(super) const XML_BYTES_MAX: usize = 1 << 20;

/// Maximum number of open elements of a point, and of a KML file.
pub(super) const OPEN_MAX: usize = 1_000;

/// A kind of XML file with an element for each point.
struct Dialect {
    name: &'static str,
    root: &'static str,
    point: &'static str,
    /// Name of the element whose points are planned, not recorded.
    plan: Option<&'static str>,
    /// Names of elements, each with its name in GPX.
    names: &'static [(&'static str, &'static str)],
    /// The text of an element `Value` is stored under the name of the parent element.
    has_values: bool,
}

const GPX: Dialect =
    Dialect { name: "GPX", root: "gpx", point: "trkpt", plan: None, names: &[], has_values: false };
const TCX: Dialect = Dialect {
    name: "TCX",
    root: "TrainingCenterDatabase",
    point: "Trackpoint",
    plan: Some("Course"),
    names: &[
        ("LatitudeDegrees", "lat"),
        ("LongitudeDegrees", "lon"),
        ("AltitudeMeters", "ele"),
        ("Time", GPX_TIME),
        ("Speed", "speed"),
    ],
    has_values: true,
};

/// Emits every `trkpt` of a GPX file: its attributes `lat` and `lon`, and its elements by name,
/// without their prefix. An element of an extension never replaces the point's own element of the
/// same name.
pub(super) fn gpx(input: impl Read, zone: StatedZone<'_>, emit: Emit<'_>) -> Result<()> {
    points(input, &GPX, zone, emit)
}

/// Emits every `Trackpoint` of the activities of a TCX file, with the names of GPX. Skips the
/// points of a `Course`, whose times are planned.
pub(super) fn tcx(input: impl Read, zone: StatedZone<'_>, emit: Emit<'_>) -> Result<()> {
    points(input, &TCX, zone, emit)
}

/// Returns the name in GPX of an element of TCX, or of KML's `when`; other names unchanged.
pub(super) fn gpx_name(name: &str) -> &str {
    let names = TCX.names.iter().chain(&[("when", GPX_TIME)]);
    let plain = name.strip_prefix('/').unwrap_or(name);
    let mut translated = names.filter(|(own_name, _)| *own_name == plain);
    translated.next().map_or(name, |(_, gpx_name)| gpx_name)
}

/// Returns a tolerant reader that uses bounded memory. `name`: the kind of file, for errors.
pub(super) fn reader<R: Read>(input: R, name: &str) -> Result<quick_xml::Reader<Bounded<R>>> {
    let mut input = Bounded::new(input, XML_BYTES_MAX);
    // Without this check, the reader would buffer a file of any length in search of the first `<`.
    let first = input.fill_buf()?.trim_ascii_start().first().copied();
    ensure!(first.is_none_or(|byte| byte == b'<'), "not {name}: it does not begin with <");
    let mut xml = quick_xml::Reader::from_reader(input);
    // Accept a bare & in a name.
    xml.config_mut().allow_dangling_amp = true;
    // Accept HTML or a < in a description.
    xml.config_mut().check_end_names = false;
    xml.config_mut().allow_unmatched_ends = true;
    Ok(xml)
}

/// Checks that the first element of a file is the expected root, and sets `has_root`. `file_kind`:
/// the kind of file.
///
/// # Errors
/// The first element is not `root`.
pub(super) fn check_root(
    element: &BytesStart<'_>,
    (file_kind, root): (&str, &str),
    has_root: &mut bool,
) -> Result<()> {
    if !*has_root {
        let name = element.local_name();
        let name = name.as_ref();
        ensure!(name == root, "not {file_kind}: it begins with <{name}>");
        *has_root = true;
    }
    Ok(())
}

/// Emits every point of a dialect.
fn points(
    input: impl Read,
    dialect: &Dialect,
    mut zone: StatedZone<'_>,
    emit: Emit<'_>,
) -> Result<()> {
    let Dialect { name: file_kind, root, point, plan, names, has_values } = *dialect;
    let mut xml = reader(input, file_kind)?;
    let (mut track_points, mut route_points, mut waypoints) = (0_u64, 0_u64, 0_u64);
    // The open elements of a point, each with the unit or zone that its attribute states.
    let (mut open, mut is_planned) = (Vec::<(String, Option<String>)>::new(), false);
    let (mut buffer, mut record, mut text) = (Vec::new(), Record::default(), String::new());
    let mut extensions = Extensions::default();
    // The open element outside of points that may state a zone or a unit.
    let mut zone_element: Option<String> = None;
    // Number of open elements when an element `units` outside of points began, including it.
    let mut units_depth: Option<i32> = None;
    // Number of open elements, now and when the current point began, including the point.
    let (mut depth, mut point_depth): (i32, Option<i32>) = (0, None);
    // Line of the open point.
    let mut line = 0;
    let (mut has_root, mut is_ended) = (false, false);
    loop {
        let event = xml.read_event_into(&mut buffer);
        let event = event.map_err(|error| anyhow!("line {}: {error}", xml.get_mut().line()))?;
        let local_name = match &event {
            Event::Start(element) | Event::Empty(element) => Some(element.local_name()),
            Event::End(element) => Some(element.local_name()),
            Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_)
            | Event::Eof => None,
        };
        let local = local_name.as_ref().map_or("", |name| name.as_ref());
        if let Event::Start(element) | Event::Empty(element) = &event {
            check_root(element, (file_kind, root), &mut has_root)?;
            match local {
                "rtept" => route_points += 1,
                "wpt" => waypoints += 1,
                name if name == point && is_planned => route_points += 1,
                name if name == point => track_points += 1,
                name if Some(name) == plan && point_depth.is_none() => {
                    is_planned = matches!(event, Event::Start(_));
                }
                _ => {}
            }
        }
        depth +=
            i32::from(matches!(event, Event::Start(_))) - i32::from(matches!(event, Event::End(_)));
        units_depth = units_depth.filter(|open| depth >= *open);
        // A point without an end tag ends where the next point begins.
        if matches!(event, Event::Start(_) | Event::Empty(_))
            && local == point
            && !is_planned
            && let Some(unended) = point_depth.take()
        {
            depth = unended - i32::from(matches!(event, Event::Empty(_)));
            extensions.add_to(&mut record);
            emit_record(&mut record, line, emit)?;
            text.clear();
            xml.get_mut().remaining = XML_BYTES_MAX;
        }
        match &event {
            // A point begins.
            Event::Start(element) if local == point && !is_planned => {
                begin_record(element, &mut record)?;
                line = xml.get_mut().line();
                extensions = Extensions::default();
                open.clear();
                point_depth = Some(depth);
            }
            // A point has attributes, but no elements.
            Event::Empty(element) if local == point && !is_planned => {
                begin_record(element, &mut record)?;
                emit_record(&mut record, xml.get_mut().line(), emit)?;
            }
            Event::End(_) if local == point && point_depth.is_some() => {
                // Elements of the point without an end tag end here.
                depth = point_depth.take().unwrap_or(depth) - 1;
                extensions.add_to(&mut record);
                emit_record(&mut record, line, emit)?;
            }
            // An element of a point ends: its text is a value.
            Event::End(_) if point_depth.is_some() => {
                let is_own = point_depth == Some(depth);
                let mut unit = None;
                // An element without an end tag ends with the element around it.
                if let Some(at) = open.iter().rposition(|(name, _)| name == local) {
                    unit = open.drain(at..).next().and_then(|(_, unit)| unit);
                }
                let parent = open.last().map_or("", |(parent, _)| parent);
                let is_value = has_values && local == "Value" && !parent.is_empty();
                let name = if is_value { parent } else { local };
                let translated = names.iter().find(|(own_name, _)| *own_name == name);
                let name = translated.map_or(name, |(_, gpx_name)| *gpx_name);
                let mut value = Cow::Borrowed(text.trim());
                if name == GPX_TIME {
                    value = in_zone_of_element(value, unit.as_deref());
                    if is_own {
                        zone.check_time(&value, line)?;
                    }
                } else if is_zone_name(name, &value) {
                    zone.add_value(name, &value, xml.get_mut().line())?;
                } else if let Some(unit) = unit {
                    value = Cow::Owned(format!("{value} {unit}").trim().to_owned());
                }
                if is_own && matches!(name, "lat" | "lon" | GPX_TIME) && record.has(name) {
                    // Neither value is known to be right, so emit a text that the decoder rejects.
                    if !record.has_value(name, &value) {
                        record.put(name, &format!("two values, the second {value}"));
                    }
                } else if is_own {
                    record.put(name, &value);
                } else {
                    extensions.push(extension_in(&open), name, value.into_owned());
                }
                text.clear();
            }
            Event::End(_) if local == root => is_ended = true,
            // An element outside of points ends: its text may be a zone or a unit.
            Event::End(_) if zone_element.is_some() => {
                let name = zone_element.take().unwrap_or_default();
                zone.add_value(&name, text.trim(), xml.get_mut().line())?;
                text.clear();
            }
            Event::End(_) if Some(local) == plan => is_planned = false,
            Event::Start(element) => {
                is_ended = false;
                text.clear();
                // Push an element only if it may be a parent, or may state a unit or a zone.
                let has_inner = has_values || !open.is_empty() || is_extensions(local);
                let translated = names.iter().find(|(own_name, _)| *own_name == local);
                let gpx_name = translated.map_or(local, |(_, gpx_name)| *gpx_name);
                let is_field = Extensions::FIELDS.contains(&gpx_name);
                let is_time = gpx_name == GPX_TIME;
                if point_depth.is_none() {
                    if !is_time {
                        zone.add_attributes(element, xml.get_mut().line())?;
                    }
                    zone_element = match units_depth {
                        Some(_) => Some(format!("units/{local}")),
                        None => states_something(local).then(|| local.to_owned()),
                    };
                    units_depth = units_depth.or_else(|| is_units(local).then_some(depth));
                } else if is_time && !element.attributes_raw().is_empty() {
                    open.push((local.to_owned(), zone_attribute(element).map(|(_, zone)| zone)));
                } else if has_inner || is_field || is_units(local) {
                    open.push((local.to_owned(), is_field.then(|| unit_of(element)).flatten()));
                }
                // Each end tag is compared with the names of the open elements.
                ensure!(open.len() < OPEN_MAX, "line {}: nested too deeply", xml.get_mut().line());
            }
            Event::Empty(element) if point_depth.is_none() => {
                zone.add_attributes(element, xml.get_mut().line())?;
            }
            Event::Text(part) if point_depth.is_some() || zone_element.is_some() => {
                text.push_str(&part.xml10_content())
            }
            Event::CData(part) if point_depth.is_some() || zone_element.is_some() => {
                text.push_str(&part.xml10_content())
            }
            Event::GeneralRef(name) if point_depth.is_some() => match entity_char(name) {
                Some(c) => text.push(c),
                None => text.extend(["&", name, ";"]),
            },
            Event::Comment(comment) => {
                zone.add_comment(&comment.xml10_content(), xml.get_mut().line())?;
            }
            Event::Eof => break,
            Event::End(_)
            | Event::Empty(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
        buffer.clear();
        if point_depth.is_none() {
            xml.get_mut().remaining = XML_BYTES_MAX;
        }
    }
    ensure!(has_root, "not {file_kind}: it has no element at all");
    ensure!(
        is_ended || depth == 0 && point_depth.is_none(),
        "the file ends before its last element does"
    );
    ensure!(
        track_points > 0 || route_points == 0 || plan.is_none(),
        "it has no track: {route_points} points of Courses are not read, because their times are \
         planned"
    );
    let kind = if route_points > waypoints { "rte" } else { "wpt" };
    ensure!(
        track_points > 0 || route_points + waypoints == 0,
        "it has no track: {route_points} points of routes and {waypoints} waypoints are not read; \
         if these have the times at which a device was there, make a track of them: gpsbabel -i \
         gpx -f FILE -x transform,trk={kind} -o gpx -F track.gpx"
    );
    Ok(())
}

/// Values of a point's extensions.
#[derive(Default)]
struct Extensions {
    /// At most one value for each of [`Self::FIELDS`].
    fields: Vec<(&'static str, String)>,
    others: Vec<(String, String)>,
}

impl Extensions {
    /// Names of fields that may be in extensions. Extensions use these names for other things, too.
    const FIELDS: [&str; 3] = ["speed", "course", "ele"];

    /// Adds the value of an element. `parent`: the element around it, unless that is the point or
    /// its extensions. For example, the speed of the wind is in an element `wind`.
    fn push(&mut self, parent: Option<&str>, name: &str, value: String) {
        if value.is_empty() {
            return;
        }
        // An element in an element `units` states the unit of a field, whatever its own name is.
        let is_unit = parent.is_some_and(is_units);
        let Some(field) = Self::FIELDS.into_iter().find(|field| *field == name || is_unit) else {
            return self.others.push((name.to_owned(), value));
        };
        if let Some(parent) = parent {
            return self.others.push((format!("{parent} {name}"), value));
        }
        match self.fields.iter_mut().find(|(name, _)| *name == field) {
            None => self.fields.push((field, value)),
            Some((_, first)) if first.contains(ANOTHER) || are_near(first, &value) => {}
            // The speeds of a receiver and of an engine may have the same name. Join the two
            // values, so that the decoder does not read them as one number.
            Some((_, first)) => first.extend([ANOTHER, &value]),
        }
    }

    /// Moves the values to the record of the point, whose own elements override them.
    fn add_to(&mut self, record: &mut Record) {
        for (name, value) in self.fields.drain(..) {
            if !record.has(name) {
                record.put(name, &value);
            }
        }
        for (name, value) in self.others.drain(..) {
            if !record.has(&name) {
                record.put(&name, &value);
            }
        }
    }
}

/// Text between two values of one field, neither of which is known to be right.
const ANOTHER: &str = ", and another one: ";

/// Returns whether an element holds extensions, in GPX or TCX.
fn is_extensions(name: &str) -> bool {
    name.eq_ignore_ascii_case("extensions")
}

/// Returns whether an element holds the units of fields, as in
/// `<units><speed>km/h</speed></units>`.
fn is_units(name: &str) -> bool {
    name.eq_ignore_ascii_case("units")
}

/// Returns the innermost open element, if it belongs to an extension whose values are not the
/// point's, or if it is `units`. Other elements do not count, such as those of a description in
/// HTML.
fn extension_in(open: &[(String, Option<String>)]) -> Option<&str> {
    if let Some((units, _)) = open.last().filter(|(name, _)| is_units(name)) {
        return Some(units);
    }
    let begin = open.iter().rposition(|(name, _)| is_extensions(name))? + 1;
    let (inner, _) = open[begin..].last()?;
    // Garmin's `TrackPointExtension`, and `TPX` in TCX.
    let is_of_point = inner == "TPX" || inner.to_ascii_lowercase().contains("trackpoint");
    (!is_of_point).then_some(inner.as_str())
}

/// Returns whether two values are equal, or are numbers that are close: they differ by at most 0.5,
/// or by at most a tenth of the first.
fn are_near(a: &str, b: &str) -> bool {
    let numbers = a.parse::<f64>().ok().zip(b.parse::<f64>().ok());
    let is_near = |(a, b): (f64, f64)| (a - b).abs() <= (a.abs() * 0.1).max(0.5);
    a == b || numbers.is_some_and(is_near)
}

/// Returns the unit that an attribute of an element states, such as `<speed unit="km/h">`.
fn unit_of(element: &BytesStart<'_>) -> Option<String> {
    if element.attributes_raw().is_empty() {
        return None;
    }
    let mut attributes = element.attributes().flatten();
    let unit = attributes.find(|attribute| {
        ["unit", "units", "uom"].contains(&attribute.key.local_name().as_ref())
    })?;
    let value = unit.normalized_value(XmlVersion::Implicit1_0).ok()?;
    Some(value.trim().to_owned())
}

/// Returns the character of a reference such as `&amp;` or `&#58;`; `None` for a reference that the
/// file itself defines.
pub(super) fn entity_char(name: &BytesRef<'_>) -> Option<char> {
    let named = || resolve_predefined_entity(name).and_then(|text| text.chars().next());
    name.resolve_char_ref().ok().flatten().or_else(named)
}

/// Begins a record with the attributes of a point.
fn begin_record(point: &BytesStart<'_>, record: &mut Record) -> Result<()> {
    record.clear();
    for attribute in point.attributes() {
        let context = || format!("an attribute of {}", point.local_name().as_ref());
        let attribute = attribute.with_context(context)?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).with_context(context)?;
        record.put(attribute.key.local_name().as_ref(), value.trim());
    }
    Ok(())
}

/// Emits the record of a point. `line`: the point's line in the file.
fn emit_record(record: &mut Record, line: u64, emit: Emit<'_>) -> Result<()> {
    let payload = record.finish();
    emit(payload, payload.len(), line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::collect_payloads;

    #[test]
    fn track_points_are_read_and_waypoints_are_not() {
        let file = r#"<?xml version="1.0"?><gpx xmlns:g="x"><wpt lat="9" lon="9"><name>home</name>
            </wpt><trk><name>a &amp; b</name><trkseg><trkpt lat="1.5" lon="-2"><ele>3</ele>
            <time>2026-01-31T08:00:00Z</time><extensions><g:TrackPointExtension>
            <g:speed>4.5</g:speed></g:TrackPointExtension></extensions></trkpt>
            <trkpt lat="1" lon="2"/></trkseg></trk></gpx>"#;
        let (points, end) =
            collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
        assert_eq!(
            points,
            [
                r#"{"lat":"1.5","lon":"-2","ele":"3","time":"2026-01-31T08:00:00Z","speed":"4.5"}"#,
                r#"{"lat":"1","lon":"2"}"#
            ]
        );
        assert_eq!(end, "");
        let (points, end) = collect_payloads(|emit| {
            gpx(&file.as_bytes()[..file.len() - 40], StatedZone::default(), emit)
        });
        assert!(points.len() == 1 && !end.is_empty(), "{points:?} {end}");
        let (points, end) = collect_payloads(|emit| {
            gpx(&file.as_bytes()[..file.len() - 12], StatedZone::default(), emit)
        });
        assert!(points.len() == 2 && end.contains("ends before"), "{points:?} {end}");
        // An extension may hold the altitude and time of a phone's sensors, which are not the
        // point's.
        let file = "<gpx><trkpt lat='1' lon='2'><extensions><x:ele>99</x:ele><x:lat>9</x:lat>\
            <x:hr>80</x:hr><time>2026-01-01T00:00:00Z</time></extensions><ele>34</ele>\
            <time>2026-01-31T08:00:00Z</time></trkpt></gpx>";
        let (points, _) =
            collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
        assert_eq!(
            points,
            [r#"{"lat":"1","lon":"2","ele":"34","time":"2026-01-31T08:00:00Z","hr":"80"}"#]
        );
    }

    #[test]
    fn speed_in_an_unrelated_extension_is_ignored() {
        for (inner, expected) in [
            ("<x:TrackPointExtension><speed>4</speed></x:TrackPointExtension>", r#""speed":"4""#),
            ("<wind><speed>12</speed></wind><speed>4</speed>", r#""speed":"4","wind speed":"12""#),
            ("<wind><speed>12</speed></wind>", r#""wind speed":"12""#),
            ("<obd:speed>0</obd:speed><speed>10</speed>", r#""speed":"0, and another one: 10""#),
            ("<a:speed>10.1</a:speed><speed>10</speed>", r#""speed":"10.1""#),
            (r#"<speed unit="km/h">36</speed>"#, r#""speed":"36 km/h""#),
            (r#"<hr unit="bpm">80</hr>"#, r#""hr":"80""#),
        ] {
            let file = format!(
                "<gpx><trkpt lat='1' lon='2'><extensions>{inner}</extensions></trkpt></gpx>"
            );
            let (points, end) =
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
            let expected = format!(r#"{{"lat":"1","lon":"2",{expected}}}"#);
            assert_eq!((&*points, &*end), (&[expected][..], ""));
        }
    }

    #[test]
    fn value_is_named_by_its_parent_in_tcx_only() {
        let file = "<gpx><trkpt lat='1' lon='2'><time>2026-01-31T08:00:00Z</time>\
                    <Value>7</Value></trkpt></gpx>";
        let (points, end) =
            collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
        let expected = r#"{"lat":"1","lon":"2","time":"2026-01-31T08:00:00Z","Value":"7"}"#;
        assert_eq!((&*points, &*end), (&[expected.to_owned()][..], ""));
        let file = |inner: &str| {
            format!(
                "<TrainingCenterDatabase><Trackpoint>{inner}</Trackpoint></TrainingCenterDatabase>"
            )
        };
        for (inner, expected) in [
            (
                "<HeartRateBpm><Flags>1</Flags><Value>150</Value></HeartRateBpm>",
                r#"{"Flags":"1","HeartRateBpm":"150"}"#,
            ),
            (
                "<Time>2026-01-31T08:00:00Z</Time><Value>7</Value>",
                r#"{"time":"2026-01-31T08:00:00Z","Value":"7"}"#,
            ),
        ] {
            let (points, end) =
                collect_payloads(|emit| tcx(file(inner).as_bytes(), StatedZone::default(), emit));
            assert_eq!((&*points, &*end), (&[expected.to_owned()][..], ""));
        }
    }

    #[test]
    fn conflicting_place_or_time_of_a_point_becomes_invalid() {
        for (inner, expected) in [
            ("<time>1</time><time>1</time>", r#""time":"1"}"#),
            ("<time>1</time><time>2</time>", r#""time":"1","time":"two values, the second 2"}"#),
            ("<lat>1</lat>", r#""lon":"2"}"#),
            ("<lon>3</lon>", r#""lon":"two values, the second 3"}"#),
        ] {
            let file = format!("<gpx><trkpt lat='1' lon='2'>{inner}</trkpt></gpx>");
            let (points, end) =
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
            assert!(points[0].ends_with(expected) && end.is_empty(), "{points:?} {end}");
        }
    }

    #[test]
    fn course_element_inside_a_point_is_not_a_planned_course() {
        for course in ["<Course>90</Course>", "<Course>90"] {
            let file = format!(
                "<TrainingCenterDatabase><Trackpoint><Time>1</Time>{course}</Trackpoint>\
                 <Trackpoint><Time>2</Time></Trackpoint></TrainingCenterDatabase>"
            );
            let (points, end) =
                collect_payloads(|emit| tcx(file.as_bytes(), StatedZone::default(), emit));
            assert!(points.len() == 2 && end.is_empty(), "{course}: {points:?} {end}");
        }
    }

    #[test]
    fn point_without_an_end_tag_ends_at_the_next_point() {
        let point =
            |lat: u8, end: &str| format!("<trkpt lat='{lat}' lon='2'><ele>{lat}</ele>{end}");
        let extension = "<extensions><hr>80</hr>";
        for (points, expected) in [
            ([point(1, ""), point(2, "</trkpt>")], ""),
            ([point(1, "<name>a"), point(2, "</trkpt>")], ""),
            ([point(1, extension), point(2, "</trkpt>")], r#","hr":"80""#),
        ] {
            let file = format!("<gpx><trkseg>{}</trkseg></gpx>", points.concat());
            let (points, end) =
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
            let first = format!(r#"{{"lat":"1","lon":"2","ele":"1"{expected}}}"#);
            let second = r#"{"lat":"2","lon":"2","ele":"2"}"#.to_owned();
            assert_eq!((points, &*end), (vec![first, second], ""), "{file}");
        }
        let file = format!("<gpx>{}<trkpt lat='2' lon='2'/></gpx>", point(1, ""));
        let (points, end) =
            collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
        assert!(points.len() == 2 && end.is_empty(), "{points:?} {end}");
    }

    #[test]
    fn broken_attribute_is_named_with_its_element() {
        let file = "<TrainingCenterDatabase><Trackpoint a=1></Trackpoint></TrainingCenterDatabase>";
        let (_, end) = collect_payloads(|emit| tcx(file.as_bytes(), StatedZone::default(), emit));
        assert!(end.contains("an attribute of Trackpoint"), "{end}");
        let (_, end) = collect_payloads(|emit| {
            gpx("<gpx><trkpt lat=1/></gpx>".as_bytes(), StatedZone::default(), emit)
        });
        assert!(end.contains("an attribute of trkpt"), "{end}");
    }

    #[test]
    fn unclosed_point_or_tag_is_bounded_in_memory() {
        let long = "x".repeat(XML_BYTES_MAX);
        let parts = format!("<a>{}</a>", &long[..1_000]).repeat(XML_BYTES_MAX / 1_000);
        let point = "<trkpt lat='1' lon='2'>";
        for file in [
            format!("<gpx>{point}<name>{long}</name></trkpt></gpx>"),
            format!("<gpx>{point}{parts}</trkpt></gpx>"),
            format!("<gpx {long}='1'/>"),
        ] {
            let (points, end) =
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
            assert!(points.is_empty() && end.contains("longer than 1 MiB"), "{end}");
        }
        // Any number of points is allowed, and any amount of text between them.
        let file = format!(
            "<gpx>{}</gpx>",
            format!("{point}{}</trkpt><a/>", &parts[..8 * 1_007]).repeat(200)
        );
        let (points, end) =
            collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
        assert!(points.len() == 200 && end.is_empty(), "{end}");
    }

    #[test]
    fn number_of_open_elements_of_a_point_is_bounded() {
        let file = |depth: usize| {
            let inner = "<a>".repeat(depth);
            format!("<gpx><trkpt lat='1' lon='2'><extensions>{inner}</extensions></trkpt></gpx>")
        };
        for (depth, points_read, message) in [(900, 1, ""), (2_000, 0, "line 1: nested too")] {
            let (points, end) =
                collect_payloads(|emit| gpx(file(depth).as_bytes(), StatedZone::default(), emit));
            assert!(points.len() == points_read && end.contains(message), "{points:?} {end}");
        }
    }

    #[test]
    fn file_without_a_track_is_an_error() {
        let html = "<!DOCTYPE html>\n<html><body><p>Not found</p></body></html>";
        for (file, message) in [
            ("404 page not found\n", "begin with <"),
            (html, "<html>"),
            ("", "no element"),
            ("\n", "no element"),
        ] {
            let (points, end) =
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit));
            assert!(
                points.is_empty() && end.contains("not GPX") && end.contains(message),
                "{file}: {end}"
            );
        }
        for file in
            ["<gpx/>", "<?xml version='1.0'?><!-- x --><g:gpx xmlns:g='g'><g:trk/></g:gpx>\n"]
        {
            assert_eq!(
                collect_payloads(|emit| gpx(file.as_bytes(), StatedZone::default(), emit)),
                (Vec::new(), String::new()),
                "{file}"
            );
        }
    }
}
