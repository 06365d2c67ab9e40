//! Reads the files: each fix as a payload for the decoder, and the next one only when that is done. No file is in memory whole.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context as _, Result, anyhow, ensure};
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::record::{Record, time};
use crate::app::commands::lines;

/// Takes a payload and its length, which is more if only its beginning was kept.
pub(super) type Take<'t> = &'t mut dyn FnMut(&[u8], usize) -> Result<()>;

/// The name of a point's time in what [`gpx`] makes of it.
pub(super) const GPX_TIME: &str = "time";

/// Every `trkpt`: its attributes `lat` and `lon`, and each element in it by its name, without a prefix.
pub(super) fn gpx(input: impl BufRead, zone: &str, take: Take<'_>) -> Result<()> {
    let mut xml = quick_xml::Reader::from_reader(input);
    let (mut buffer, mut record, mut text, mut is_in_point) =
        (Vec::new(), Record::default(), String::new(), false);
    let mut depth = 0;
    loop {
        let event = xml.read_event_into(&mut buffer);
        let event = event.with_context(|| format!("byte {}", xml.error_position()))?;
        depth += i32::from(matches!(event, Event::Start(_))) - i32::from(matches!(event, Event::End(_)));
        match event {
            Event::Start(element) if element.local_name().as_ref() == "trkpt" => {
                begin(&element, &mut record)?;
                is_in_point = true;
            }
            Event::Empty(element) if element.local_name().as_ref() == "trkpt" => {
                begin(&element, &mut record)?;
                finish(&mut record, take)?;
            }
            Event::End(element) if element.local_name().as_ref() == "trkpt" => {
                is_in_point = false;
                finish(&mut record, take)?;
            }
            Event::End(element) if is_in_point => {
                match element.local_name().as_ref() {
                    GPX_TIME => record.put(GPX_TIME, &time(&text, zone)),
                    name => record.put(name, text.trim()),
                }
                text.clear();
            }
            Event::Start(_) => text.clear(),
            Event::Text(part) if is_in_point => text.push_str(&part.xml10_content()),
            Event::CData(part) if is_in_point => text.push_str(&part.xml10_content()),
            Event::Eof => break,
            Event::End(_)
            | Event::Empty(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
        buffer.clear();
    }
    ensure!(depth == 0, "the file ends before its last element does");
    Ok(())
}

fn begin(point: &BytesStart<'_>, record: &mut Record) -> Result<()> {
    record.clear();
    for attribute in point.attributes() {
        let attribute = attribute.context("an attribute of trkpt")?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).context("an attribute of trkpt")?;
        record.put(attribute.key.local_name().as_ref(), value.trim());
    }
    Ok(())
}

fn finish(record: &mut Record, take: Take<'_>) -> Result<()> {
    let payload = record.finish();
    take(payload, payload.len())
}

/// A CSV file whose first row names its columns. The separator is the one of `,` `;` and tab that the first row has most of.
pub(super) struct Table<R> {
    rows: csv::Reader<R>,
    pub(super) columns: Vec<String>,
}

impl<R: Read> Table<BufReader<R>> {
    pub(super) fn open(input: R) -> Result<Self> {
        let mut input = BufReader::with_capacity(64 * 1024, input);
        let head = input.fill_buf()?;
        let head = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let count = |separator: u8| head.iter().filter(|byte| **byte == separator).count();
        let separator = *b",;\t".iter().rev().max_by_key(|separator| count(**separator)).expect("three");
        let mut rows = csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(input);
        let columns = rows.headers().context("the first row")?;
        let columns = columns.iter().map(|name| name.trim_matches(['\u{feff}', ' ']).to_owned()).collect();
        Ok(Self { rows, columns })
    }

    /// `time_column`: whose values are times.
    pub(super) fn each(mut self, time_column: Option<usize>, zone: &str, take: Take<'_>) -> Result<()> {
        let (mut row, mut record) = (csv::ByteRecord::new(), Record::default());
        while self.rows.read_byte_record(&mut row)? {
            record.clear();
            for (n, (name, value)) in self.columns.iter().zip(&row).enumerate() {
                let Ok(value) = str::from_utf8(value) else {
                    record.clear();
                    break;
                };
                if Some(n) == time_column {
                    record.put(name, &time(value, zone));
                } else {
                    record.put(name, value.trim());
                }
            }
            // A row that is not UTF-8 is rejected as it is.
            let payload =
                if str::from_utf8(row.as_slice()).is_ok() { record.finish() } else { row.as_slice() };
            take(payload, payload.len())?;
        }
        Ok(())
    }
}

/// Every feature of a FeatureCollection.
pub(super) fn geojson(input: impl BufRead, take: Take<'_>) -> Result<()> {
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let mut failure = None;
    let read = (&mut deserializer).deserialize_map(Collection(take, &mut failure));
    match failure {
        Some(failure) => Err(failure),
        None => read.map_err(|error| anyhow!("not a FeatureCollection: {error}")),
    }
}

/// A line is a payload.
pub(super) fn each_line(mut input: impl BufRead, take: Take<'_>) -> Result<()> {
    let mut line = Vec::new();
    while let Some(length) = lines::next_line(&mut input, &mut line)? {
        if length > 0 {
            take(&line, length)?;
        }
    }
    Ok(())
}

/// OwnTracks Recorder's monthly files: a time, the kind of the message, and the message, between tabs.
pub(super) fn owntracks(input: impl BufRead, take: Take<'_>) -> Result<()> {
    each_line(input, &mut |line, length| {
        let columns = &mut line.splitn(3, |byte| *byte == b'\t');
        match columns.nth(2) {
            Some(message) => take(message, length - (line.len() - message.len())),
            None => take(line, length),
        }
    })
}

/// The members of the collection; and the failure of who takes a feature.
struct Collection<'t, 'f>(Take<'t>, &'f mut Option<anyhow::Error>);

impl<'de> Visitor<'de> for Collection<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a FeatureCollection")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut is_collection = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "features" {
                map.next_value_seed(Features(&mut *self.0, &mut *self.1))?;
                is_collection = true;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if is_collection { Ok(()) } else { Err(serde::de::Error::custom("it has no features")) }
    }
}

struct Features<'t, 'f>(Take<'t>, &'f mut Option<anyhow::Error>);

impl<'de> DeserializeSeed<'de> for Features<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Features<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut features: A) -> Result<(), A::Error> {
        while let Some(feature) = features.next_element::<Box<RawValue>>()? {
            let feature = feature.get().as_bytes();
            if let Err(failure) = (self.0)(feature, feature.len()) {
                *self.1 = Some(failure);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(read: impl FnOnce(Take<'_>) -> Result<()>) -> (Vec<String>, String) {
        let mut payloads = Vec::new();
        let end = read(&mut |payload, _| {
            payloads.push(String::from_utf8_lossy(payload).into_owned());
            Ok(())
        });
        (payloads, end.map_or_else(|error| format!("{error:#}"), |()| String::new()))
    }

    #[test]
    fn a_track_is_read_point_by_point_and_waypoints_are_not() {
        let file = r#"<?xml version="1.0"?><gpx xmlns:g="x"><wpt lat="9" lon="9"><name>home</name></wpt><trk><name>a &amp; b</name><trkseg>
            <trkpt lat="1.5" lon="-2"><ele>3</ele><time>2026-01-31T08:00:00Z</time><extensions><g:TrackPointExtension><g:speed>4.5</g:speed>
            </g:TrackPointExtension></extensions></trkpt><trkpt lat="1" lon="2"/></trkseg></trk></gpx>"#;
        let (points, end) = all(|take| gpx(file.as_bytes(), "Z", take));
        assert_eq!(
            points,
            [
                r#"{"lat":"1.5","lon":"-2","ele":"3","time":"2026-01-31T08:00:00Z","speed":"4.5"}"#,
                r#"{"lat":"1","lon":"2"}"#
            ]
        );
        assert_eq!(end, "");
        let (points, end) = all(|take| gpx(&file.as_bytes()[..file.len() - 40], "Z", take));
        assert!(points.len() == 1 && !end.is_empty(), "{points:?} {end}");
        let (points, end) = all(|take| gpx(&file.as_bytes()[..file.len() - 12], "Z", take));
        assert!(points.len() == 2 && end.contains("ends before"), "{points:?} {end}");
    }

    #[test]
    fn a_tables_separator_is_found_and_a_row_may_be_short_or_not_utf_8() {
        let table = |file: &[u8]| {
            let table = Table::open(file).unwrap();
            let columns = table.columns.clone();
            (columns, all(|take| table.each(Some(1), "Z", take)).0)
        };
        let (columns, rows) =
            table(b"\xef\xbb\xbflat;when\r\n1;2026-01-31 08:00:00\r\n2\r\n\"3\";;\"x;y\"\r\n4;\xff\r\n");
        assert_eq!(columns, ["lat", "when"]);
        assert_eq!(
            rows,
            [r#"{"lat":"1","when":"2026-01-31T08:00:00Z"}"#, r#"{"lat":"2"}"#, r#"{"lat":"3"}"#, "4\u{fffd}"]
        );
        assert_eq!(table(b"lat,when\n1,2\n").1, [r#"{"lat":"1","when":"2"}"#]);
        assert_eq!(table(b"lat\n1\n").1, [r#"{"lat":"1"}"#]);
    }

    #[test]
    fn features_and_lines_come_as_they_stand_there() {
        let file = br#"{"name":{"features":[1]},"type":"FeatureCollection","features":[{"a" : 1}, {"b":[2]}],"more":0}"#;
        assert_eq!(all(|take| geojson(&file[..], take)).0, [r#"{"a" : 1}"#, r#"{"b":[2]}"#]);
        let (features, end) = all(|take| geojson(&file[..80], take));
        assert!(features.len() == 1 && end.contains("EOF"), "{features:?} {end}");
        assert!(all(|take| geojson(&b"{}"[..], take)).1.contains("has no features"));
        let stopped = geojson(&file[..], &mut |_, _| anyhow::bail!("enough")).unwrap_err();
        assert_eq!(stopped.to_string(), "enough");

        let rec =
            b"2026-01-31T08:00:00Z\t*                 \t{\"_type\":\"location\",\"x\":\"a\\tb\"}\nbroken\n\n";
        let (messages, end) = all(|take| owntracks(&rec[..], take));
        assert_eq!(
            (messages, end),
            (vec![r#"{"_type":"location","x":"a\tb"}"#.to_owned(), "broken".to_owned()], String::new())
        );
    }
}
