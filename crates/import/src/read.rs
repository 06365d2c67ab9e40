//! Reads the files: passes each fix as a payload to the decoder before it reads the next one. No
//! file is in memory whole.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::record::Record;
use super::text::windows_1252;
use milepost_command::lines;
use milepost_decode::PAYLOAD_BYTES_MAX;

/// A consumer of payloads. The length is larger than the payload if only its beginning was kept.
pub(super) type Take<'t> = &'t mut dyn FnMut(&[u8], usize) -> Result<()>;

/// The name of a point's time in the JSON that [`gpx`] builds.
pub(super) const GPX_TIME: &str = "time";

/// Skips a byte order mark at the beginning of a UTF-8 text.
pub(super) fn skip_mark(input: &mut impl BufRead) -> io::Result<()> {
    let mark = "\u{feff}".as_bytes();
    if input.fill_buf()?.starts_with(mark) {
        input.consume(mark.len());
    }
    Ok(())
}

/// Longest point, and longest tag or text outside points, in bytes: each is in memory whole.
const XML_BYTES_MAX: usize = 1 << 20;

/// A reader that fails once `left` bytes were read. `io::Take` would instead end the file there, in
/// the middle of a text.
struct Bounded<R> {
    input: R,
    left: usize,
    line: u64,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Err(io::Error::other("a point, tag or text is longer than 1 MiB"));
        }
        let here = self.input.fill_buf()?;
        Ok(&here[..here.len().min(self.left)])
    }

    fn consume(&mut self, bytes: usize) {
        self.left -= bytes;
        if let Ok(here) = self.input.fill_buf() {
            self.line += here[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        self.input.consume(bytes);
    }
}

/// Reads every `trkpt` of a GPX file: its attributes `lat` and `lon`, and its elements by name,
/// without their prefix. An element of an extension never replaces the point's own element of the
/// same name.
pub(super) fn gpx(mut input: impl BufRead, take: Take<'_>) -> Result<()> {
    // Otherwise the reader would search for the first < in memory, however long the file is.
    let first = input.fill_buf()?.trim_ascii_start().first().copied();
    ensure!(first.is_none_or(|byte| byte == b'<'), "not GPX: it does not begin with <");
    let mut xml = quick_xml::Reader::from_reader(Bounded { input, left: XML_BYTES_MAX, line: 1 });
    // Accept a bare & in a name.
    xml.config_mut().allow_dangling_amp = true;
    // Accept HTML or a < in a description.
    xml.config_mut().check_end_names = false;
    xml.config_mut().allow_unmatched_ends = true;
    let (mut tracks, mut others) = (0_u64, [0_u64; 2]);
    let (mut buffer, mut record, mut text) = (Vec::new(), Record::default(), String::new());
    let mut extensions: Vec<(String, String)> = Vec::new();
    // Depth of open elements, in the file and in the current point, itself included.
    let (mut depth, mut point_depth) = (0, None);
    let (mut is_gpx, mut is_ended) = (false, false);
    loop {
        let event = xml.read_event_into(&mut buffer);
        let event = event.map_err(|error| anyhow!("line {}: {error}", xml.get_ref().line))?;
        if let Event::Start(element) | Event::Empty(element) = &event {
            match element.local_name().as_ref() {
                "trkpt" => tracks += 1,
                "rtept" => others[0] += 1,
                "wpt" => others[1] += 1,
                _ => {}
            }
        }
        if let (false, Event::Start(root) | Event::Empty(root)) = (is_gpx, &event) {
            is_gpx = root.local_name().as_ref() == "gpx";
            ensure!(is_gpx, "not GPX: it begins with <{}>", root.local_name().as_ref());
        }
        depth +=
            i32::from(matches!(event, Event::Start(_))) - i32::from(matches!(event, Event::End(_)));
        match event {
            Event::Start(element) if element.local_name().as_ref() == "trkpt" => {
                begin(&element, &mut record)?;
                extensions.clear();
                point_depth = Some(depth);
            }
            Event::Empty(element) if element.local_name().as_ref() == "trkpt" => {
                begin(&element, &mut record)?;
                finish(&mut record, take)?;
            }
            Event::End(element)
                if element.local_name().as_ref() == "trkpt" && point_depth.is_some() =>
            {
                // Elements of the point without an end tag end here.
                depth = point_depth.take().unwrap_or(depth) - 1;
                for (name, value) in extensions.drain(..) {
                    if !record.has(&name) {
                        record.put(&name, &value);
                    }
                }
                finish(&mut record, take)?;
            }
            Event::End(element) if point_depth.is_some() => {
                let (name, is_own) = (element.local_name(), point_depth == Some(depth));
                let name = name.as_ref();
                let value = text.trim().to_owned();
                if is_own {
                    record.put(name, &value);
                } else if !value.is_empty() {
                    extensions.push((name.to_owned(), value));
                }
                text.clear();
            }
            Event::End(element) if element.local_name().as_ref() == "gpx" => is_ended = true,
            Event::Start(_) => {
                is_ended = false;
                text.clear();
            }
            Event::Text(part) if point_depth.is_some() => text.push_str(&part.xml10_content()),
            Event::CData(part) if point_depth.is_some() => text.push_str(&part.xml10_content()),
            Event::GeneralRef(name) if point_depth.is_some() => match referred(&name) {
                Some(c) => text.push(c),
                None => text.extend(["&", &name, ";"]),
            },
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
        if point_depth.is_none() {
            xml.get_mut().left = XML_BYTES_MAX;
        }
    }
    ensure!(is_gpx, "not GPX: it has no element at all");
    ensure!(
        is_ended || depth == 0 && point_depth.is_none(),
        "the file ends before its last element does"
    );
    let [routes, waypoints] = others;
    ensure!(
        tracks > 0 || routes + waypoints == 0,
        "it has no track: {routes} points of routes and {waypoints} waypoints are not read"
    );
    Ok(())
}

/// Returns the character of a reference such as `&amp;` or `&#58;`; `None` for one that the file
/// defines itself.
fn referred(name: &BytesRef<'_>) -> Option<char> {
    let named = || resolve_predefined_entity(name).and_then(|text| text.chars().next());
    name.resolve_char_ref().ok().flatten().or_else(named)
}

fn begin(point: &BytesStart<'_>, record: &mut Record) -> Result<()> {
    record.clear();
    for attribute in point.attributes() {
        let attribute = attribute.context("an attribute of trkpt")?;
        let value =
            attribute.normalized_value(XmlVersion::Implicit1_0).context("an attribute of trkpt")?;
        record.put(attribute.key.local_name().as_ref(), value.trim());
    }
    Ok(())
}

fn finish(record: &mut Record, take: Take<'_>) -> Result<()> {
    let payload = record.finish();
    take(payload, payload.len())
}

/// Most lines of a CSV row: a quoted value may contain line ends.
const ROW_LINES_MAX: usize = 20;
/// Rows that are sampled for the columns' values before the file is read.
const SAMPLED_ROWS: usize = 100;
/// Fault of a row at the end of the file, the rest of which may not be written yet.
pub(super) const OPEN_AT_END: &str = "a quote of this row has no end up to the end of the file";

/// A CSV file whose first row names its columns. The separator is `,`, `;` or tab, whichever is the
/// most frequent in the first row.
///
/// An unclosed quote costs one line: a row of several lines must have every column, and only a
/// separator after a closing quote.
pub(super) struct Table<R> {
    input: R,
    separator: u8,
    pub(super) columns: Vec<String>,
    /// Rows that were not UTF-8 and were read as windows-1252.
    pub(super) windows_1252: u64,
    /// The search for the end of a quote reached the end of the file.
    is_at_end: bool,
    /// Lines that were read ahead in search of the end of a quote, with their lengths.
    ahead: VecDeque<(Vec<u8>, usize)>,
}

impl<R: BufRead> Table<R> {
    pub(super) fn open(mut input: R) -> Result<Self> {
        let mut line = Vec::new();
        let mut given = None;
        // Some programs write `sep=;` for Excel, comments or blank lines before the names.
        let head = loop {
            if lines::next_line(&mut input, &mut line)?.is_none() {
                bail!("the first row must name the columns, and is empty");
            }
            let text = str::from_utf8(&line).map_or_else(|_| windows_1252(&line), str::to_owned);
            let text = text.trim_start_matches('\u{feff}').to_owned();
            let lower = text.to_ascii_lowercase();
            if let Some(separator) = lower.trim().trim_matches('"').strip_prefix("sep=") {
                given = separator.bytes().next().or(Some(b'\t'));
            } else if !text.trim().is_empty() && !text.starts_with('#') {
                break text;
            }
        };
        let count = |separator: u8| head.bytes().filter(|byte| *byte == separator).count();
        let counted =
            || *b",;\t|".iter().rev().max_by_key(|separator| count(**separator)).expect("four");
        let separator = given.unwrap_or_else(counted);
        let mut row = Row::default();
        row.add(head.as_bytes(), separator);
        ensure!(!row.is_open, "the first row: a quote has no end");
        let columns =
            row.values().map(|name| String::from_utf8_lossy(name).trim_matches(' ').to_owned());
        let mut columns: Vec<String> = columns.collect();
        for (n, name) in columns.iter_mut().enumerate().filter(|(_, name)| name.is_empty()) {
            *name = format!("column {}", n + 1);
        }
        Ok(Self {
            input,
            separator,
            columns,
            windows_1252: 0,
            is_at_end: false,
            ahead: VecDeque::new(),
        })
    }

    /// Returns the first value of each column that is not empty, from the first [`SAMPLED_ROWS`].
    pub(super) fn sample(mut self) -> Vec<String> {
        let mut sample = vec![String::new(); self.columns.len()];
        let (mut line, mut row, mut rows) = (Vec::new(), Row::default(), 0);
        while rows < SAMPLED_ROWS
            && let Ok(Some(length)) = self.next_line(&mut line)
        {
            if length == 0 {
                continue;
            }
            row.clear();
            row.add(&line, self.separator);
            for (known, value) in sample.iter_mut().zip(row.values()) {
                if known.is_empty() {
                    String::from_utf8_lossy(value).trim().clone_into(known);
                }
            }
            rows += 1;
        }
        sample
    }

    /// Passes each row to `take` as JSON. `numbers`: the columns of numbers, in which a comma is a
    /// decimal comma if the row has no point. A row that cannot be parsed is passed as it is, which
    /// is not JSON; `fault` then holds the reason.
    pub(super) fn each(
        &mut self,
        numbers: &[usize],
        fault: &Cell<&'static str>,
        take: Take<'_>,
    ) -> Result<()> {
        let (mut line, mut row, mut record) = (Vec::new(), Row::default(), Record::default());
        while let Some(length) = self.next_line(&mut line)? {
            if length == 0 {
                continue;
            }
            row.clear();
            self.is_at_end = false;
            row.add(&line, self.separator);
            let is_whole = length == line.len() && (!row.is_open || self.complete(&mut row)?);
            // If a latitude's decimal comma counted as a separator, every value would move to the
            // next column.
            let has_more =
                row.values().skip(self.columns.len()).any(|value| !value.trim_ascii().is_empty());
            fault.set(match (is_whole, self.is_at_end) {
                (true, _) => MORE_VALUES,
                (false, false) => "a quote of this row has no end",
                (false, true) => OPEN_AT_END,
            });
            if !is_whole || has_more {
                take(&line, length)?;
                continue;
            }
            let is_utf8 = str::from_utf8(&row.text).is_ok();
            self.windows_1252 += u64::from(!is_utf8);
            let has_commas = row.text.contains(&b',') && row.has_decimal_commas(numbers);
            record.clear();
            for (n, (name, value)) in self.columns.iter().zip(row.values()).enumerate() {
                match str::from_utf8(value) {
                    Ok(value) if has_commas && numbers.contains(&n) => {
                        record.put(name, &value.trim().replacen(',', ".", 1));
                    }
                    Ok(value) => record.put(name, value.trim()),
                    Err(_) => record.put(name, windows_1252(value).trim()),
                }
            }
            let payload = record.finish();
            take(payload, payload.len())?;
        }
        Ok(())
    }

    fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
        match self.ahead.pop_front() {
            None => lines::next_line(&mut self.input, line),
            Some((next, length)) => {
                *line = next;
                Ok(Some(length))
            }
        }
    }

    /// Adds the lines up to the one that closes the open quote. Returns `false`, and adds none, if
    /// there is no such line.
    fn complete(&mut self, row: &mut Row) -> io::Result<bool> {
        for n in 0..ROW_LINES_MAX - 1 {
            if n == self.ahead.len() {
                let mut line = Vec::new();
                let Some(length) = lines::next_line(&mut self.input, &mut line)? else {
                    self.is_at_end = true;
                    return Ok(false);
                };
                self.ahead.push_back((line, length));
            }
            let (line, length) = &self.ahead[n];
            if *length > line.len() || row.text.len() > PAYLOAD_BYTES_MAX {
                return Ok(false);
            }
            row.text.push(b'\n');
            row.add(line, self.separator);
            if !row.is_open {
                let is_row = !row.is_ragged && row.ends.len() == self.columns.len();
                if is_row {
                    self.ahead.drain(..=n);
                }
                return Ok(is_row);
            }
        }
        Ok(false)
    }
}

const MORE_VALUES: &str = "more values than columns: decimal commas between commas? save the file with ; or tab as the separator";

/// The values of a row.
#[derive(Default)]
struct Row {
    /// All values, without separators and quotes.
    text: Vec<u8>,
    /// End of each value in `text`; without the last one while a quote is open.
    ends: Vec<usize>,
    is_open: bool,
    /// Something other than a separator follows a closing quote.
    is_ragged: bool,
}

impl Row {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        (self.is_open, self.is_ragged) = (false, false);
    }

    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.text[begin..*end])
    }

    /// Returns whether a number of these columns has a decimal comma, and none has a point.
    fn has_decimal_commas(&self, numbers: &[usize]) -> bool {
        let mut found = false;
        for value in numbers.iter().filter_map(|n| self.values().nth(*n)) {
            let commas = value.iter().filter(|byte| **byte == b',').count();
            if value.contains(&b'.') || commas > 1 {
                return false;
            }
            found |= commas == 1;
        }
        found
    }

    /// Adds a line. It continues the open quote, if there is one. A quote inside an unquoted value
    /// belongs to the value.
    fn add(&mut self, mut line: &[u8], separator: u8) {
        loop {
            if self.is_open {
                let Some(quote) = line.iter().position(|byte| *byte == b'"') else {
                    return self.text.extend_from_slice(line);
                };
                self.text.extend_from_slice(&line[..quote]);
                line = &line[quote + 1..];
                if line.first() == Some(&b'"') {
                    self.text.push(b'"');
                    line = &line[1..];
                    continue;
                }
                self.is_open = false;
                self.is_ragged |= line.first().is_some_and(|byte| *byte != separator);
            } else if line.first() == Some(&b'"') {
                self.is_open = true;
                line = &line[1..];
                continue;
            }
            let end = line.iter().position(|byte| *byte == separator);
            self.text.extend_from_slice(&line[..end.unwrap_or(line.len())]);
            self.ends.push(self.text.len());
            let Some(end) = end else { return };
            line = &line[end + 1..];
        }
    }
}

/// Passes each line to `take` as a payload.
pub(super) fn each_line(mut input: impl BufRead, take: Take<'_>) -> Result<()> {
    let mut line = Vec::new();
    while let Some(length) = lines::next_line(&mut input, &mut line)? {
        if length > 0 {
            take(&line, length)?;
        }
    }
    Ok(())
}

/// Reads a monthly file of OwnTracks Recorder. A line has a time, the kind of the message, and the
/// message, separated by tabs.
pub(super) fn owntracks(input: impl BufRead, take: Take<'_>) -> Result<()> {
    each_line(input, &mut |line, length| {
        // Tabs become spaces when lines are copied from a terminal, so search for the brace.
        match line.iter().position(|byte| *byte == b'{') {
            Some(begin) => take(&line[begin..], length - begin),
            None => take(line, length),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::features::features;
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
    fn track_points_are_read_and_waypoints_are_not() {
        let file = r#"<?xml version="1.0"?><gpx xmlns:g="x"><wpt lat="9" lon="9"><name>home</name></wpt><trk><name>a &amp; b</name><trkseg>
            <trkpt lat="1.5" lon="-2"><ele>3</ele><time>2026-01-31T08:00:00Z</time><extensions><g:TrackPointExtension><g:speed>4.5</g:speed>
            </g:TrackPointExtension></extensions></trkpt><trkpt lat="1" lon="2"/></trkseg></trk></gpx>"#;
        let (points, end) = all(|take| gpx(file.as_bytes(), take));
        assert_eq!(
            points,
            [
                r#"{"lat":"1.5","lon":"-2","ele":"3","time":"2026-01-31T08:00:00Z","speed":"4.5"}"#,
                r#"{"lat":"1","lon":"2"}"#
            ]
        );
        assert_eq!(end, "");
        let (points, end) = all(|take| gpx(&file.as_bytes()[..file.len() - 40], take));
        assert!(points.len() == 1 && !end.is_empty(), "{points:?} {end}");
        let (points, end) = all(|take| gpx(&file.as_bytes()[..file.len() - 12], take));
        assert!(points.len() == 2 && end.contains("ends before"), "{points:?} {end}");
        // An extension's altitude and time, of a phone's sensors, are not the point's.
        let file = "<gpx><trkpt lat='1' lon='2'><extensions><x:ele>99</x:ele><x:lat>9</x:lat><x:hr>80</x:hr><time>2026-01-01T00:00:00Z</time>\
            </extensions><ele>34</ele><time>2026-01-31T08:00:00Z</time></trkpt></gpx>";
        let (points, _) = all(|take| gpx(file.as_bytes(), take));
        assert_eq!(
            points,
            [r#"{"lat":"1","lon":"2","ele":"34","time":"2026-01-31T08:00:00Z","hr":"80"}"#]
        );
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
            let (points, end) = all(|take| gpx(file.as_bytes(), take));
            assert!(points.is_empty() && end.contains("longer than 1 MiB"), "{end}");
        }
        // Any number of points is allowed, and any amount of text between them.
        let file = format!(
            "<gpx>{}</gpx>",
            format!("{point}{}</trkpt><a/>", &parts[..8 * 1_007]).repeat(200)
        );
        let (points, end) = all(|take| gpx(file.as_bytes(), take));
        assert!(points.len() == 200 && end.is_empty(), "{end}");
    }

    #[test]
    fn file_without_a_track_is_an_error() {
        let html = "<!DOCTYPE html>\n<html><body><p>Not found</p></body></html>";
        for (file, said) in [
            ("404 page not found\n", "begin with <"),
            (html, "<html>"),
            ("", "no element"),
            ("\n", "no element"),
        ] {
            let (points, end) = all(|take| gpx(file.as_bytes(), take));
            assert!(
                points.is_empty() && end.contains("not GPX") && end.contains(said),
                "{file}: {end}"
            );
        }
        for file in
            ["<gpx/>", "<?xml version='1.0'?><!-- x --><g:gpx xmlns:g='g'><g:trk/></g:gpx>\n"]
        {
            assert_eq!(
                all(|take| gpx(file.as_bytes(), take)),
                (Vec::new(), String::new()),
                "{file}"
            );
        }
    }

    #[test]
    fn csv_separator_is_found_and_rows_may_be_short_or_not_utf_8() {
        let table = |file: &[u8]| {
            let mut table = Table::open(file).unwrap();
            let columns = table.columns.clone();
            (columns, all(|take| table.each(&[0], &Cell::default(), take)).0)
        };
        let (columns, rows) =
            table(b"\xef\xbb\xbflat;when\r\n1;2026-01-31 08:00:00\r\n2\r\n\"3;4\";;\r\n4;\xff\r\n");
        assert_eq!(columns, ["lat", "when"]);
        assert_eq!(
            rows,
            [
                r#"{"lat":"1","when":"2026-01-31 08:00:00"}"#,
                r#"{"lat":"2"}"#,
                r#"{"lat":"3;4"}"#,
                r#"{"lat":"4","when":"ÿ"}"#
            ]
        );
        assert_eq!(table(b"lat,when\n1,2\n").1, [r#"{"lat":"1","when":"2"}"#]);
        assert_eq!(table(b"lat\n1\n").1, [r#"{"lat":"1"}"#]);
        // Decimal commas; a separator at the end of every line is not one.
        assert_eq!(
            table(b"lat,lon,ts\n52,5,13,4,1\n1,2,3,, \n").1,
            ["52,5,13,4,1", r#"{"lat":"1","lon":"2","ts":"3"}"#]
        );
        let (columns, rows) =
            table(b"\"lat\",\"a \"\"b\"\"\",c\n\"1\",\"x\"\"y\",5\"\n\n2,\"a\nb\n\",3\n");
        assert_eq!(columns, ["lat", "a \"b\"", "c"]);
        assert_eq!(
            rows,
            [
                r#"{"lat":"1","a \"b\"":"x\"y","c":"5\""}"#,
                r#"{"lat":"2","a \"b\"":"a\nb","c":"3"}"#
            ]
        );
    }

    #[test]
    fn unclosed_quote_costs_one_line() {
        let rows = |text: &str| {
            let mut table = Table::open(text.as_bytes()).unwrap();
            all(|take| table.each(&[], &Cell::default(), take)).0
        };
        let (one, two) = (r#"{"a":"1","b":"x"}"#, r#"{"a":"2","b":"x"}"#);
        for next in ["2,x\n".to_owned(), "2,\"x\"\n".to_owned(), "2,x\n".repeat(2 * ROW_LINES_MAX)]
        {
            let n = next.lines().count();
            for begin in ["", "1,x\n"] {
                let found = rows(&format!("a,b\n{begin}1,\"x\n{next}"));
                let expected =
                    begin.lines().map(|_| one).chain(["1,\"x"]).chain(std::iter::repeat_n(two, n));
                assert!(found.iter().map(String::as_str).eq(expected), "{begin}{next}: {found:?}");
            }
        }
        // Two unclosed quotes do not join the lines between them.
        assert_eq!(rows("a,b\n1,\"x\n2,x\n1,\"x\n2,x\n"), ["1,\"x", two, "1,\"x", two]);
        assert_eq!(rows("a,b\n1,\"x\n\"2\",\"x\"\n"), ["1,\"x", two]);
    }

    #[test]
    fn features_and_lines_are_passed_unchanged() {
        let file = br#"{"name":{"features":[1]},"type":"FeatureCollection","features":[{"a" : 1}, {"b":[2]}],"more":0}"#;
        assert_eq!(all(|take| features(&file[..], take)).0, [r#"{"a":1}"#, r#"{"b":[2]}"#]);
        let (found, end) = all(|take| features(&file[..80], take));
        assert!(found.len() == 1 && end.contains("EOF"), "{found:?} {end}");
        assert!(all(|take| features(&b"{}"[..], take)).1.contains("has no features"));
        // Two files one after the other, as `cat` joins them, and then something else.
        let two = [&file[..], b"\n \n", &file[..]].concat();
        let (found, end) = all(|take| features(&two[..], take));
        assert!(found.len() == 4 && end.is_empty(), "{found:?} {end}");
        for garbage in ["]", "404", "{\"a\":1}", "{"] {
            let (found, end) =
                all(|take| features([&file[..], garbage.as_bytes()].concat().as_slice(), take));
            assert!(
                found.len() == 2 && end.contains("not a FeatureCollection"),
                "{garbage}: {end}"
            );
        }
        let stopped = features(&file[..], &mut |_, _| anyhow::bail!("enough")).unwrap_err();
        assert!(stopped.to_string().contains("enough"), "{stopped}");

        let rec =
            b"2026-01-31T08:00:00Z\t*                 \t{\"_type\":\"location\",\"x\":\"a\\tb\"}\nbroken\n\n";
        let (messages, end) = all(|take| owntracks(&rec[..], take));
        assert_eq!(
            (messages, end),
            (
                vec![r#"{"_type":"location","x":"a\tb"}"#.to_owned(), "broken".to_owned()],
                String::new()
            )
        );
    }
}
