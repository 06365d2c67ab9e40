//! Reads files that consist of lines: CSV, GeoJSON lines, and the files of OwnTracks Recorder. Each
//! reader emits a fix as a payload for the decoder before it reads the next fix, so no file is held
//! in memory as a whole.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, BufRead};

use anyhow::{Result, bail, ensure};

use super::ending::LastByteReader;
use super::names::{is_latitude, is_name_of, placeholder_name, visible, visible_name};
use super::numbers::{Decimals, NumberColumns, decimals, plain_number, without_fraction};
use super::record::Record;
use super::row_checks::RowChecks;
use super::text::windows_1252;
use milepost_command::lines;
use milepost_decode::PAYLOAD_BYTES_MAX;

/// Receives the fixes of a reader: each fix's payload, the length of the payload in bytes, and the
/// fix's line in the file. The length is larger than the payload if only its beginning was kept.
pub(super) type Emit<'t> = &'t mut dyn FnMut(&[u8], usize, u64) -> Result<()>;

/// Skips a byte order mark at the beginning of UTF-8.
pub(super) fn skip_bom(input: &mut impl BufRead) -> io::Result<()> {
    let bom = "\u{feff}".as_bytes();
    if input.fill_buf()?.starts_with(bom) {
        input.consume(bom.len());
    }
    Ok(())
}

/// Maximum lines of a CSV row; a quoted value may contain line ends.
const ROW_LINES_MAX: usize = 20;
/// Maximum number of comments above the names that are searched for a zone.
const COMMENTS_MAX: usize = 100;
/// Number of rows that are sampled for the values of the columns before the file is read.
const SAMPLED_ROWS: usize = 100;
/// Error for a quote that is still open at the end of the file: the rest of the row may not be
/// written yet.
pub(super) const UNCLOSED_AT_END: &str =
    "a quote in this row is not closed before the end of the file";

/// A CSV file whose first row names its columns. The separator is the most frequent of `,`, `;`,
/// tab and `|` in the first row, unless a line such as `sep=;` before that row names another one.
///
/// An unclosed quote invalidates only its own line. For this, a row of several lines counts as one
/// row only if it has every column, and only a separator follows each closing quote.
pub(super) struct Table<R> {
    input: LastByteReader<R>,
    separator: u8,
    pub(super) columns: Vec<String>,
    /// The comments above the names, without `#`.
    pub(super) comments: Vec<String>,
    /// Rows that were not UTF-8 and were read as windows-1252.
    pub(super) windows_1252: u64,
    /// Number of the last line, if it has all values but no line end: its last value may be cut
    /// off.
    pub(super) unended_line: Option<u64>,
    /// Rows so far that have a value for every named column, and rows that have fewer values.
    whole_rows: u64,
    short_rows: u64,
    /// The search for a closing quote reached the end of the file.
    is_at_end: bool,
    /// Number of the line that was read last.
    line: u64,
    /// Lines that were read ahead in search of a closing quote, with their lengths.
    ahead: VecDeque<(Vec<u8>, usize)>,
}

impl<R: BufRead> Table<R> {
    /// Reads the names of the columns.
    pub(super) fn open(input: R) -> Result<Self> {
        let mut input = LastByteReader::new(input);
        let mut line = Vec::new();
        let (mut given_separator, mut line_number, mut comments) = (None, 0, Vec::new());
        // Some programs write `sep=;` for Excel, comments or blank lines before the names.
        let head = loop {
            line_number += 1;
            if lines::next_line(&mut input, &mut line)?.is_none() {
                bail!("the first row must name the columns, but there is no row");
            }
            let text = decode_text(&line).trim_start_matches('\u{feff}').to_owned();
            let lower = text.to_ascii_lowercase();
            if let Some(separator) = lower.trim().trim_matches('"').strip_prefix("sep=") {
                given_separator = separator.bytes().next().or(Some(b'\t'));
            } else if let Some(comment) = text.strip_prefix('#') {
                // Some files, such as those of the Danish AIS archive, have a `#` before the names.
                if comment.split([',', ';', '\t', '|']).any(|name| is_latitude(name.trim())) {
                    break comment.trim_start().to_owned();
                }
                if comments.len() < COMMENTS_MAX {
                    let comment = comment.trim_matches([' ', '\t', '#']);
                    comments.push(comment.chars().take(200).collect());
                }
            } else if !text.trim().is_empty() {
                break text;
            }
        };
        ensure!(
            !head.trim_end().contains('\r'),
            "its lines end in CR alone; convert them: tr '\\r' '\\n' < FILE | milepost import \
             --format csv -"
        );
        let count = |separator: u8| head.bytes().filter(|byte| *byte == separator).count();
        // Of equally frequent separators, `max_by_key` takes the last, so reverse the order.
        let most_frequent = || {
            *b",;\t|"
                .iter()
                .rev()
                .max_by_key(|separator| count(**separator))
                .expect("four separators")
        };
        let separator = given_separator.unwrap_or_else(most_frequent);
        let mut row = Row::default();
        row.add(head.as_bytes(), separator);
        // A name in quotes may have several lines.
        let first_line_number = line_number;
        while row.is_open
            && line_number - first_line_number < ROW_LINES_MAX as u64
            && lines::next_line(&mut input, &mut line)?.is_some_and(|length| length == line.len())
        {
            line_number += 1;
            row.text.push(b' ');
            row.add(decode_text(&line).as_bytes(), separator);
        }
        let is_closed = !row.is_open && (line_number == first_line_number || !row.is_ragged);
        ensure!(is_closed, "a quote in the first row is never closed");
        let columns = row.values().map(|name| visible_name(&String::from_utf8_lossy(name)));
        let mut columns: Vec<String> = columns.collect();
        for (n, name) in columns.iter_mut().enumerate().filter(|(_, name)| name.is_empty()) {
            *name = placeholder_name(n);
        }
        Ok(Self {
            input,
            separator,
            columns,
            comments,
            windows_1252: 0,
            unended_line: None,
            whole_rows: 0,
            short_rows: 0,
            is_at_end: false,
            line: line_number,
            ahead: VecDeque::new(),
        })
    }

    /// Returns the values of the first [`SAMPLED_ROWS`] rows. `is_cut`: the input may end within a
    /// row.
    pub(super) fn sample(mut self, is_cut: bool) -> Vec<Vec<String>> {
        let (mut line, mut row, mut rows) = (Vec::new(), Row::default(), Vec::new());
        while rows.len() < SAMPLED_ROWS
            && let Ok(Some(length)) = self.next_line(&mut line)
        {
            if length == 0 {
                continue;
            }
            row.clear();
            row.add(&line, self.separator);
            // A quoted value may have several lines. Leave out a row whose quote is never closed:
            // `each` rejects it.
            if row.is_open && !matches!(self.complete(&mut row), Ok(true)) {
                if is_cut && self.is_at_end {
                    return rows;
                }
                continue;
            }
            let text = |value: &[u8]| String::from_utf8_lossy(value).trim().to_owned();
            rows.push(row.values().take(self.columns.len()).map(text).collect());
        }
        if is_cut && rows.len() < SAMPLED_ROWS {
            rows.pop();
        }
        rows
    }

    /// Emits each row as JSON, without invisible characters. `numbers`: the columns of numbers, in
    /// which a comma may be a decimal comma. A row that cannot be parsed or fails the checks is
    /// emitted unchanged, which is not JSON; `fault` then holds the error message.
    pub(super) fn each(
        &mut self,
        numbers: &NumberColumns,
        checks: &RowChecks,
        fault: &RefCell<Cow<'static, str>>,
        emit: Emit<'_>,
    ) -> Result<()> {
        let (mut line, mut row, mut record) = (Vec::new(), Row::default(), Record::default());
        while let Some(length) = self.next_line(&mut line)? {
            if length == 0 {
                continue;
            }
            row.clear();
            let first_line = self.line;
            self.is_at_end = false;
            row.add(&line, self.separator);
            let is_whole = length == line.len() && (!row.is_open || self.complete(&mut row)?);
            // Reject a row with more values than columns. For example, a decimal comma in the
            // latitude may count as a separator. Then every value after it is in the wrong column.
            let has_more =
                row.values().skip(self.columns.len()).any(|value| !value.trim_ascii().is_empty());
            // The message for a row that turns out to be invalid below.
            fault.replace(Cow::Borrowed(match (is_whole, self.is_at_end) {
                (true, _) => TOO_MANY_VALUES,
                (false, false) => "a quote in this row is never closed",
                (false, true) => UNCLOSED_AT_END,
            }));
            if let [lat, lng, ..] = numbers.fields[..]
                && is_word(row.value(lat))
            {
                self.check_names_again(&row, [lat, lng], first_line)?;
            }
            let is_cut = is_whole && self.count_row(&row, &line);
            if is_cut {
                fault.replace(Cow::Borrowed(CUT_OFF));
            }
            let mut is_valid = is_whole && !has_more && !is_cut;
            if is_valid && !checks.is_empty() {
                let value = |at| String::from_utf8_lossy(row.value(at));
                if let Some(why) = checks.fault(value) {
                    fault.replace(why);
                    is_valid = false;
                } else if let Some(offsets) = &checks.offsets {
                    offsets.check(value, first_line)?;
                }
            }
            if !is_valid {
                emit(&line, length, first_line)?;
                continue;
            }
            let is_utf8 = str::from_utf8(&row.text).is_ok();
            self.windows_1252 += u64::from(!is_utf8);
            let is_ascii = row.text.is_ascii();
            let decimals = if row.text.contains(&b',') {
                decimals(numbers.fields.iter().filter_map(|n| row.values().nth(*n)))
            } else {
                Decimals::Points
            };
            record.clear();
            for (n, (name, value)) in self.columns.iter().zip(row.values()).enumerate() {
                let value = decode_text(value);
                let value = if is_ascii { Cow::Borrowed(&*value) } else { visible(&value) };
                let value = value.trim();
                if numbers.fields.contains(&n) {
                    record.put(name, &plain_number(value, decimals));
                } else if numbers.ids == Some(n) {
                    record.put(name, without_fraction(value));
                } else {
                    record.put(name, value);
                }
            }
            let payload = record.finish();
            emit(payload, payload.len(), first_line)?;
        }
        Ok(())
    }

    /// Counts a row. Returns whether the file was cut off within it: the row has no line end, and
    /// fewer values than each row before it. Sets `unended_line` if a row without a line end has
    /// all values, but its last value may be incomplete.
    fn count_row(&mut self, row: &Row, line: &[u8]) -> bool {
        let is_named = |(at, name): (usize, &String)| *name != placeholder_name(at);
        let last_named = self.columns.iter().enumerate().rposition(is_named);
        let values_expected = last_named.map_or(0, |at| at + 1);
        let is_last = self.ahead.is_empty() && self.input.is_within_line();
        // White space at the end of a line is removed, and so is a tab before an empty last value.
        let is_tab_removed =
            is_last && self.input.ends_with(self.separator) && !line.ends_with(&[self.separator]);
        let is_short = row.ends.len() + usize::from(is_tab_removed) < values_expected;
        // After a separator, the last value is empty, and after a quote it is whole.
        let is_last_whole = self.input.ends_with(self.separator) || self.input.ends_with(b'"');
        if is_last && !is_short && !is_last_whole {
            self.unended_line = Some(self.line);
        }
        let is_cut = is_last && is_short && self.whole_rows > 0 && self.short_rows == 0;
        (self.whole_rows, self.short_rows) =
            (self.whole_rows + u64::from(!is_short), self.short_rows + u64::from(is_short));
        is_cut
    }

    /// Checks whether a row without a latitude names columns. A file that was joined from several
    /// files has such rows in the middle. `coordinates`: the columns of lat and lng.
    ///
    /// # Errors
    /// The row names other columns than the first row. The rows below it would be read with the
    /// wrong columns.
    #[cold]
    fn check_names_again(&self, row: &Row, coordinates: [usize; 2], line: u64) -> Result<()> {
        // Parse the names as `open` does. A byte order mark that precedes a quote made the quotes a
        // part of the value, so remove both here.
        let name = |value: &[u8]| {
            let text = decode_text(value);
            visible_name(text.replace('\n', " ").trim_start_matches('\u{feff}').trim_matches('"'))
        };
        let mut names: Vec<String> = row.values().map(name).collect();
        if let Some(first) = names.first_mut() {
            *first = first.trim_start_matches(['#', ' ', '"']).to_owned();
        }
        let has_name_of = |field: &str, at: usize| {
            let column = &self.columns[at];
            names.iter().any(|name| is_name_of(field, name) || name.eq_ignore_ascii_case(column))
        };
        let [lat, lng] = coordinates;
        let are_names = has_name_of("lat", lat) && has_name_of("lng", lng);
        let is_same = |(at, column): (usize, &String)| {
            let name = names.get(at).map_or("", String::as_str);
            name.eq_ignore_ascii_case(column) || name.is_empty() && *column == placeholder_name(at)
        };
        ensure!(
            !are_names || self.columns.iter().enumerate().all(is_same),
            "line {line} names the columns again, and not as the first row does: split the file \
             before this line, and import the parts one by one"
        );
        Ok(())
    }

    /// Reads the next line, from the lines that were read ahead if there are any. Returns the
    /// line's length; `None` at the end of the file.
    fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
        self.line += 1;
        match self.ahead.pop_front() {
            None => lines::next_line(&mut self.input, line),
            Some((next, length)) => {
                *line = next;
                Ok(Some(length))
            }
        }
    }

    /// Adds the next lines to the row, up to the line that closes the open quote. Returns `false`
    /// if the lines do not form one row. Then the next lines are read again, as other rows.
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
                    self.line += self.ahead.drain(..=n).len() as u64;
                }
                return Ok(is_row);
            }
        }
        Ok(false)
    }
}

/// Decodes text as UTF-8 or, if it is not valid UTF-8, as windows-1252.
fn decode_text(text: &[u8]) -> Cow<'_, str> {
    str::from_utf8(text).map_or_else(|_| windows_1252(text).into(), Cow::Borrowed)
}

/// Returns whether a value begins like a word, not like a number.
fn is_word(value: &[u8]) -> bool {
    let first = value.trim_ascii_start().first();
    first.is_some_and(|first| first.is_ascii_alphabetic() || *first >= 0x80)
}

const TOO_MANY_VALUES: &str = "the row has more values than columns, perhaps because of decimal \
                               commas: save the file with ; or tab as the separator";

const CUT_OFF: &str = "the file ends within this row: it has no line end, and fewer values than \
                       the rows above it; copy the file again, delete this row, or, if it is \
                       complete, give it a line end";

/// The values of a row.
#[derive(Default)]
struct Row {
    /// All values, without separators and quotes.
    text: Vec<u8>,
    /// End of each value in `text`. While a quote is open, the last value has no end yet.
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

    /// Returns a value; empty if the row is shorter.
    fn value(&self, at: usize) -> &[u8] {
        let begin = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let bounds = begin.zip(self.ends.get(at));
        bounds.map_or(&[], |(begin, end)| &self.text[begin..*end])
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

/// Emits each line as a payload.
pub(super) fn each_line(mut input: impl BufRead, emit: Emit<'_>) -> Result<()> {
    let (mut line, mut number) = (Vec::new(), 0);
    while let Some(length) = lines::next_line(&mut input, &mut line)? {
        number += 1;
        if length > 0 {
            emit(&line, length, number)?;
        }
    }
    Ok(())
}

/// Emits each line of GeoJSON, without the brackets and commas of an array of lines.
pub(super) fn json_lines(input: impl BufRead, emit: Emit<'_>) -> Result<()> {
    each_line(input, &mut |line, length, number| {
        let bare = without_array(line);
        if bare.is_empty() {
            return Ok(());
        }
        emit(bare, length - line.len() + bare.len(), number)
    })
}

/// Removes the comma at the end of a line, and the bracket of an array that begins or ends on
/// another line.
fn without_array(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    let line = line.strip_suffix(b",").unwrap_or(line).trim_ascii_end();
    match line {
        [b'[' | b']'] => &[],
        [b'[', rest @ ..] if !line.ends_with(b"]") => rest,
        [b'{', .., b']'] => &line[..line.len() - 1],
        _ => line,
    }
}

/// Emits the messages in a monthly file of OwnTracks Recorder. A line has a time, the kind of the
/// message, and the message, separated by tabs.
pub(super) fn owntracks(input: impl BufRead, emit: Emit<'_>) -> Result<()> {
    each_line(input, &mut |line, length, number| {
        // Tabs become spaces when lines are copied from a terminal, so search for the brace.
        match line.iter().position(|byte| *byte == b'{') {
            Some(begin) => emit(&line[begin..], length - begin, number),
            None => emit(line, length, number),
        }
    })
}

/// Returns all payloads that a reader emits, and its error or an empty string.
#[cfg(test)]
pub(super) fn collect_payloads(read: impl FnOnce(Emit<'_>) -> Result<()>) -> (Vec<String>, String) {
    let mut payloads = Vec::new();
    let end = read(&mut |payload, _, _| {
        payloads.push(String::from_utf8_lossy(payload).into_owned());
        Ok(())
    });
    (payloads, end.map_or_else(|error| format!("{error:#}"), |()| String::new()))
}

#[cfg(test)]
mod tests {
    use super::super::features::features;
    use super::*;

    #[test]
    fn csv_rows_may_be_short_quoted_or_not_utf_8() {
        let table = |file: &[u8]| {
            let mut table = Table::open(file).unwrap();
            let columns = table.columns.clone();
            let first = NumberColumns { fields: vec![0], ids: None };
            (
                columns,
                collect_payloads(|emit| {
                    table.each(&first, &RowChecks::default(), &RefCell::default(), emit)
                })
                .0,
            )
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
        // Decimal commas give more values than columns; a separator at the end of a line does not.
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
    fn geojson_lines_may_form_one_array() {
        let read =
            |text: &str| collect_payloads(|emit| json_lines(text.as_bytes(), emit)).0.join("|");
        assert_eq!(read("[{\"a\":1},\n{\"a\":2},\n{\"a\":3}]\n"), r#"{"a":1}|{"a":2}|{"a":3}"#);
        assert_eq!(read("[\n{\"a\":1},\n {\"a\":[2]}\n]\n"), r#"{"a":1}|{"a":[2]}"#);
        assert_eq!(read("{\"a\":1}\n[{\"a\":2},{\"a\":3}]\n"), r#"{"a":1}|[{"a":2},{"a":3}]"#);
    }

    #[test]
    fn unclosed_quote_invalidates_only_its_line() {
        let rows = |text: &str| {
            let mut table = Table::open(text.as_bytes()).unwrap();
            collect_payloads(|emit| {
                table.each(
                    &NumberColumns::default(),
                    &RowChecks::default(),
                    &RefCell::default(),
                    emit,
                )
            })
            .0
        };
        let (row_1, row_2) = (r#"{"a":"1","b":"x"}"#, r#"{"a":"2","b":"x"}"#);
        for next in ["2,x\n".to_owned(), "2,\"x\"\n".to_owned(), "2,x\n".repeat(2 * ROW_LINES_MAX)]
        {
            let next_rows = std::iter::repeat_n(row_2, next.lines().count());
            for begin in ["", "1,x\n"] {
                let found = rows(&format!("a,b\n{begin}1,\"x\n{next}"));
                let expected =
                    begin.lines().map(|_| row_1).chain(["1,\"x"]).chain(next_rows.clone());
                assert!(found.iter().map(String::as_str).eq(expected), "{begin}{next}: {found:?}");
            }
        }
        // Two unclosed quotes do not join the lines between them.
        assert_eq!(rows("a,b\n1,\"x\n2,x\n1,\"x\n2,x\n"), ["1,\"x", row_2, "1,\"x", row_2]);
        assert_eq!(rows("a,b\n1,\"x\n\"2\",\"x\"\n"), ["1,\"x", row_2]);
    }

    #[test]
    fn features_and_lines_are_emitted_unchanged() {
        let file = br#"{"name":{"features":[1]},"type":"FeatureCollection",
"features":[{"a" : 1}, {"b":[2]}],"more":0}"#;
        assert_eq!(
            collect_payloads(|emit| features(&file[..], &|_, _| Ok(()), emit)).0,
            [r#"{"a":1}"#, r#"{"b":[2]}"#]
        );
        let (found, end) = collect_payloads(|emit| features(&file[..80], &|_, _| Ok(()), emit));
        assert!(found.len() == 1 && end.contains("EOF"), "{found:?} {end}");
        assert!(
            collect_payloads(|emit| features(&b"{}"[..], &|_, _| Ok(()), emit))
                .1
                .contains("has no features")
        );
        // Two files one after the other, as `cat` joins them, and then something else.
        let joined = [&file[..], b"\n \n", &file[..]].concat();
        let (found, end) = collect_payloads(|emit| features(&joined[..], &|_, _| Ok(()), emit));
        assert!(found.len() == 4 && end.is_empty(), "{found:?} {end}");
        for garbage in ["]", "404", "{\"a\":1}", "{"] {
            let (found, end) = collect_payloads(|emit| {
                features([&file[..], garbage.as_bytes()].concat().as_slice(), &|_, _| Ok(()), emit)
            });
            assert!(
                found.len() == 2 && end.contains("not a FeatureCollection"),
                "{garbage}: {end}"
            );
        }
        let stopped = features(&file[..], &|_, _| Ok(()), &mut |_, _, _| anyhow::bail!("enough"))
            .unwrap_err();
        assert!(stopped.to_string().contains("enough"), "{stopped}");

        let rec = b"2026-01-31T08:00:00Z\t*                 \t\
                    {\"_type\":\"location\",\"x\":\"a\\tb\"}\nbroken\n\n";
        let (messages, end) = collect_payloads(|emit| owntracks(&rec[..], emit));
        assert_eq!(
            (messages, end),
            (
                vec![r#"{"_type":"location","x":"a\tb"}"#.to_owned(), "broken".to_owned()],
                String::new()
            )
        );
    }
}
