//! Opens the files. Then reads them on a separate thread, which decodes their fixes into positions
//! and rejects, and collects these in batches.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::args::{ImportArgs, Kind};
use super::features::features;
use super::frames::Frames;
use super::kml::kml;
use super::paths::{absolute, key};
use super::plan::{FileInfo, Plan, plan};
use super::progress::{Mark, Progress, Resume, Stored};
use super::read::{self, Table};
use super::stated_unit::unit_frames;
use super::stated_zone::StatedZone;
use super::summary::FileSummary;
use super::text;
use super::timeline::timeline;
use super::xml;
use milepost_command::lines;
use milepost_config::{Config, STORED_DAYS_MIN};
use milepost_core::batch::{Batch, Batcher, Limits};
use milepost_decode as decode;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::{Reason, Reject};
use milepost_decode::{Decoded, Decoder, Field, Omissions};
use milepost_observe::now;

/// Maximum rows of a batch. ClickHouse needs few merges for parts of this size.
const ROWS_MAX: usize = 50_000;
/// Maximum bytes of a batch.
const BYTES_MAX: usize = 24 * 1024 * 1024;
/// Maximum number of spans of 28 days that a batch touches. A partition is a month, and ClickHouse
/// refuses inserts that touch more than 100 partitions.
const SPANS_MAX: usize = 40;
/// Length of a span: 28 days, the shortest month.
const SPAN_MS: i64 = 28 * 24 * 3_600_000;

/// Error for a file whose beginning changed since the last run. No more of the file is stored.
const CHANGED: &str = "it no longer begins with the fixes that --resume noted as stored: it was \
                       changed or replaced, or is read with other options; import it without \
                       --resume, or with another state file";
/// Error for a file that an earlier run read with other settings of the configuration.
const RECONFIGURED: &str = "--resume noted a part of it as stored, and the configuration says \
                            since then how to read it differently ([formats.NAME], [fields.NAME] \
                            or [[sources]]): import it without --resume, or with another state \
                            file, to read all of it anew; or restore the configuration";

/// A file to read.
#[derive(Debug)]
pub(super) struct Input {
    path: PathBuf,
    /// The key of the file for `--resume`, see [`key`].
    key: PathBuf,
    kind: Kind,
    plan: Plan,
    /// The part of the file that is stored already.
    stored: Option<Stored>,
    /// Length of the file; 0 for a pipe.
    pub(super) bytes: u64,
    /// For a pipe: the bytes that were already read, and the pipe.
    piped: Option<Piped>,
}

/// The bytes that were read from a pipe, and the pipe.
struct Piped(Vec<u8>, Box<dyn Read + Send>);

impl std::fmt::Debug for Piped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes and a pipe", self.0.len())
    }
}

/// A batch, and the part of each file that is stored once the batch is inserted.
#[derive(Debug)]
pub(super) struct ClosedBatch {
    pub(super) batch: Batch,
    pub(super) stored: Vec<(PathBuf, Mark)>,
}

/// Counts and summaries of all files that were read.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) fixes: u64,
    /// Fixes that `--resume` skipped.
    pub(super) skipped: u64,
    pub(super) positions: u64,
    /// Payloads, and parts of payloads, that have no fix.
    pub(super) ignored: u64,
    /// Missing and invalid fields of the positions.
    pub(super) omissions: Omissions,
    /// File and line at which each invalid field occurred first.
    pub(super) unusable: BTreeMap<&'static str, String>,
    /// Number of rejects by reason, with the file, line and detail of the first one.
    pub(super) rejects: BTreeMap<Reason, (u64, String)>,
    pub(super) oldest: Option<Timestamp>,
    pub(super) newest: Option<Timestamp>,
    /// Number of files that have no fix.
    pub(super) files_without_fix: u64,
    /// Names of the first [`SUMMARIES_MAX`] files that have no fix.
    pub(super) names_without_fix: Vec<String>,
    /// Files that were not read to their end.
    pub(super) failures: Vec<String>,
    /// Summaries of the first [`SUMMARIES_MAX`] files.
    pub(super) summaries: Vec<FileSummary>,
}

/// Opens each file once and plans its decoding, so that a wrong name or a missing unit is an error
/// before anything is imported.
pub(super) fn open_all(
    config: &Config,
    args: &ImportArgs,
    resume: Option<&Resume>,
) -> Result<Vec<Input>> {
    args.check_formats()?;
    let open = |path: &PathBuf| {
        let is_stdin = path == Path::new("-");
        let metadata = if is_stdin { None } else { Some(fs::metadata(path)?) };
        ensure!(!metadata.as_ref().is_some_and(fs::Metadata::is_dir), "it is a directory");
        let is_file = metadata.as_ref().is_some_and(fs::Metadata::is_file);
        // A pipe that a shell makes for `<(zcat a.gz)`, such as `/dev/fd/63`, has no name in the
        // file system. A pipe that `mkfifo` made has one.
        let has_name = !is_stdin && path.canonicalize().is_ok();
        ensure!(
            has_name || resume.is_none(),
            "--resume needs a file, not standard input or a pipe without a name"
        );
        let given = args.formats.iter().find_map(|name| Kind::from_name(name));
        let kind = given.map_or_else(|| Kind::from_path(path), Ok)?;
        // Opening a pipe a second time would lose the bytes that were read from it.
        let mut input: Box<dyn Read + Send> =
            if is_stdin { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
        let head = text::head(&mut input)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text::refuse_foreign(&head, &name)?;
        let kind = Kind::from_content(&head, kind);
        if kind == Kind::GeoJson {
            text::refuse_other_json(&head, &name)?;
        }
        let (mut columns, mut comments, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        if kind == Kind::Csv {
            text::refuse_json(&head)?;
            let table = || Table::open(as_text(Cursor::new(head.clone()), &head));
            Table { columns, comments, .. } = table()?;
            // A head of the maximum length may end within a row.
            rows = table()?.sample(head.len() == text::HEAD_BYTES);
        }
        let first_value = |at: usize| {
            let mut values = rows.iter().filter_map(|row: &Vec<String>| row.get(at));
            values.find(|value| !value.is_empty()).cloned().unwrap_or_default()
        };
        let sample: Vec<String> = (0..columns.len()).map(first_value).collect();
        let bytes = if is_file { File::open(path)?.metadata()?.len() } else { 0 };
        let absolute_path = if is_stdin { path.clone() } else { absolute(path)? };
        let key = if has_name { key(&absolute_path, args)? } else { path.clone() };
        ensure!(resume.is_none() || key.to_str().is_some(), "--resume needs a path in UTF-8");
        let (columns, comments, sample, rows) = (&columns, &comments, &sample, &rows);
        let file = FileInfo { kind, path: &absolute_path, columns, comments, sample, rows };
        let plan = plan(&file, args, config)?;
        let stored = resume.and_then(|resume| resume.stored(&key));
        let piped = (!is_file).then(|| Piped(head, input));
        Ok::<_, anyhow::Error>(Input { path: path.clone(), key, kind, plan, stored, bytes, piped })
    };
    args.files.iter().map(|path| open(path).with_context(|| path.display().to_string())).collect()
}

/// Returns a reader of the input as UTF-8. `head`: the first bytes, which show the encoding.
fn as_text<'t>(input: impl Read + 't, head: &[u8]) -> Box<dyn BufRead + 't> {
    match text::encoding(head) {
        Some(encoding) => Box::new(text::utf8(input, encoding)),
        None => Box::new(BufReader::with_capacity(256 * 1024, input)),
    }
}

/// Reads all files; stops early if the receiver of the batches closes.
pub(super) fn read_all(
    files: Vec<Input>,
    config: &Config,
    args: &ImportArgs,
    began: Instant,
    progress: &Arc<Progress>,
    batch_sender: mpsc::Sender<ClosedBatch>,
) -> Counts {
    let limits = Limits { rows_max: ROWS_MAX, age_max: Duration::MAX, bytes_max: BYTES_MAX };
    let day = Duration::from_secs(24 * 3_600);
    let mut reader = FileReader {
        is_dry_run: args.dry_run,
        summary: FileSummary::default(),
        batcher: Batcher::new(limits),
        decoded: Decoded::default(),
        spans: Vec::new(),
        // The tables' TTL would remove older fixes.
        decode: decode::Limits {
            fix_age_max: day
                * config.clickhouse.retention.positions_days.saturating_sub(STORED_DAYS_MIN),
            // `mqtt.max_packet_bytes` limits messages, not the points of files.
            payload_bytes_max: decode::Limits::default().payload_bytes_max,
            ..config.decode.clone()
        },
        received_at: now(),
        instant: began,
        counts: Counts::default(),
        marks: Vec::new(),
        progress,
        batch_sender,
    };
    for file in files {
        let name = file.path.display().to_string();
        if let Err(error) = reader.read_file(file, args) {
            if reader.batch_sender.is_closed() {
                break;
            }
            reader.counts.failures.push(format!("{name}: not read to its end: {error:#}"));
        }
    }
    // If the receiver is closed, an insert has failed, and its error is reported instead.
    let _ = reader.close_batch();
    reader.counts
}

/// Returns the offset after the last complete line. `encoding`: the file's encoding, if it is not
/// UTF-8. In UTF-16 a newline is two bytes, and other characters contain the byte 0x0A, too.
fn end_of_lines(file: &File, length: u64, encoding: Option<&'static Encoding>) -> io::Result<u64> {
    let newline: &[u8] = match encoding {
        Some(encoding) if encoding == UTF_16LE => b"\n\0",
        Some(encoding) if encoding == UTF_16BE => b"\0\n",
        Some(_) | None => b"\n",
    };
    let width = newline.len() as u64;
    let mut end = length - length % width;
    let mut piece = vec![0; 64 * 1024];
    while end > 0 {
        let begin = end.saturating_sub(piece.len() as u64);
        let read = &mut piece[..usize::try_from(end - begin).expect("a piece has at most 64 KiB")];
        file.read_exact_at(read, begin)?;
        if let Some(last) = read.chunks_exact(newline.len()).rposition(|unit| unit == newline) {
            return Ok(begin + (last as u64 + 1) * width);
        }
        end = begin;
    }
    Ok(0)
}

/// Number of fixes at the beginning of a file that are searched for unread names.
const EXPLAINED_POINTS: u64 = 1_000;
/// Maximum number of files with a summary in the result.
const SUMMARIES_MAX: usize = 20;

/// The reader of all files, one after the other.
struct FileReader<'s> {
    is_dry_run: bool,
    /// Summary of the file that is being read.
    summary: FileSummary,
    batcher: Batcher,
    decoded: Decoded,
    /// Spans of 28 days that the open batch touches.
    spans: Vec<i64>,
    decode: decode::Limits,
    received_at: Timestamp,
    /// The batcher's clock. It advances by one second per batch, not in real time. So the same
    /// files give the same rows of `rejects`, however fast they are read.
    instant: Instant,
    counts: Counts,
    /// How far each file was read, for the files that were read since the last batch was closed.
    marks: Vec<(PathBuf, Mark)>,
    progress: &'s Progress,
    batch_sender: mpsc::Sender<ClosedBatch>,
}

impl FileReader<'_> {
    /// Adds the rows of a file to the open batch. Closes a batch whenever it is full. Skips the
    /// fixes that `--resume` noted as stored.
    fn read_file(&mut self, file: Input, args: &ImportArgs) -> Result<()> {
        let Input { path, key, kind, plan, stored, bytes: _, piped } = file;
        // Open a file again. A pipe cannot be opened again: first read the bytes that `open_all`
        // has taken from the pipe, and then the rest of the pipe.
        let (head, input): (Vec<u8>, Box<dyn Read>) = match piped {
            Some(Piped(head, pipe)) => (head.clone(), Box::new(Cursor::new(head).chain(pipe))),
            None => {
                let mut file = File::open(&path)?;
                let head = text::head(&mut file)?;
                file.rewind()?;
                // A file that still grows may end in half a line, which the next run will read.
                let length = file.metadata()?.len();
                let end = if args.resume.is_some() && kind.is_line_based() {
                    end_of_lines(&file, length, text::encoding(&head))?
                } else {
                    u64::MAX
                };
                if end < length {
                    warn!(
                        "{}: its last line has no end yet; the next run will read it",
                        path.display()
                    );
                }
                (head, Box::new(file.take(end)))
            }
        };
        let input = Counted { input, progress: self.progress };
        // A name in an XML file may have invalid bytes, which must not stop the import.
        let mut input = match (kind, text::encoding(&head)) {
            (kind, None) if kind.is_xml() => Box::new(text::utf8(input, encoding_rs::UTF_8)),
            _ => as_text(input, &head),
        };
        read::skip_bom(&mut input)?;
        self.summary = FileSummary::new(path.display().to_string(), kind, plan.read, plan.unread);
        let decoder = Decoder::new(&plan.sources, self.decode.clone())
            .with_age_key("clickhouse.retention.positions_days and rollups_days");
        // This decoder also lists the unread names. The plan of a CSV file has done so already.
        let explaining_decoder =
            (kind != Kind::Csv).then(|| decoder.clone().listing_unread().checking_hemispheres());
        let frames = Frames::new(&decoder, args.settled_units(kind));
        // Why the CSV reader emits a row unchanged, as invalid. Becomes the detail of the reject.
        let fault = RefCell::<Cow<'static, str>>::default();
        let (mut windows_1252_rows, mut unread, mut unended) = (0, BTreeSet::new(), None);
        let (mut mark, mut leaves_open_row, mut has_hemisphere) =
            (Mark::new(args.hash(), &plan.configuration), false, false);
        let mut configuration = plan.configuration;
        let skipped = stored.map_or(0, Stored::fixes);
        self.marks.push((key, mark));
        let mut emit = |payload: &[u8], length: usize, line: u64| {
            // The program that writes the file may not have finished this row. So stop before the
            // row: the next run will read it.
            leaves_open_row = args.resume.is_some()
                && kind == Kind::Csv
                && *fault.borrow() == read::UNCLOSED_AT_END;
            ensure!(!leaves_open_row, "the next run will read the rest");
            mark.add(payload);
            if args.resume.is_some() && configuration.add(payload) {
                mark.set_configuration(&configuration);
            }
            self.counts.fixes += 1;
            if mark.fixes <= skipped {
                self.counts.skipped += 1;
                // At the last skipped fix, compare all skipped fixes with the state file.
                let is_last = mark.fixes == skipped;
                let is_configured = stored.is_some_and(|stored| stored.has_configuration_of(mark));
                ensure!(!is_last || is_configured, RECONFIGURED);
                ensure!(!is_last || stored.is_some_and(|stored| stored.matches(mark)), CHANGED);
                // A batch may close within the next fix. The mark of the batch must not be behind
                // the state file.
                if let Some((_, noted)) = self.marks.last_mut().filter(|_| is_last) {
                    *noted = mark;
                }
                return Ok(());
            }
            self.decoded.clear();
            // The first fixes show which names of the file are not read. If a hemisphere is among
            // these names, every fix is checked for it.
            let is_explained = mark.fixes <= EXPLAINED_POINTS || has_hemisphere;
            let decoder = explaining_decoder.as_ref().filter(|_| is_explained).unwrap_or(&decoder);
            decoder.decode(
                lines::message(&plan.topic, payload, length),
                self.received_at,
                &mut self.decoded,
            );
            has_hemisphere |= self.decoded.has_hemisphere;
            self.summary.add_unread(&self.decoded.unread);
            if kind == Kind::Csv {
                // The reader emits valid rows as JSON objects, and other rows unchanged. So a row
                // that the decoder rejects as invalid JSON could not be parsed, or failed a check.
                // An unchanged row may be in another encoding than UTF-8. An unchanged row of one
                // number is JSON, but no object.
                let is_row = payload.starts_with(b"{");
                for reject in &mut self.decoded.rejects {
                    if matches!(reject.reason, Reason::InvalidJson | Reason::InvalidUtf8)
                        || !is_row && reject.reason == Reason::WrongShape
                    {
                        reject.reason = Reason::InvalidJson;
                        fault.borrow().as_ref().clone_into(&mut reject.detail);
                    }
                }
            }
            frames.add(&self.decoded.positions, mark.fixes == 1)?;
            self.add_decoded(payload, line)?;
            // Set the mark only now: a batch that was closed within this payload lacks some of the
            // payload's rows.
            if let Some((_, stored)) = self.marks.last_mut() {
                *stored = mark;
            }
            Ok(())
        };
        let has_format = args.format_name().is_some();
        let check_frame = |frame: &[u8], place: &str| {
            // Skip this check if a format is given: the operator has decided how to read the file.
            if has_format { Ok(()) } else { frames.check(frame, place) }
        };
        let read = match kind {
            Kind::Gpx => xml::gpx(input, StatedZone::new(kind, args, &check_frame), &mut emit),
            Kind::Tcx => xml::tcx(input, StatedZone::new(kind, args, &check_frame), &mut emit),
            Kind::Kml => kml(input, &mut emit).map(|names| unread = names),
            Kind::Timeline => timeline(input, &mut emit).map(|names| unread = names),
            Kind::GeoJson => features(input, &check_frame, &mut emit),
            Kind::GeoJsonLines => read::json_lines(input, &mut emit),
            Kind::Csv => Table::open(input).and_then(|mut table| {
                for comment in &table.comments {
                    let place = format!("the comment \"{comment:.60}\"");
                    unit_frames(comment).iter().try_for_each(|unit| check_frame(unit, &place))?;
                }
                table.each(&plan.numbers, &plan.checks, &fault, &mut emit)?;
                windows_1252_rows = table.windows_1252;
                // The name of the last column, and the line whose last value may be cut off.
                unended = Some(table.columns.pop().unwrap_or_default()).zip(table.unended_line);
                Ok(())
            }),
            Kind::OwnTracks => read::owntracks(input, &mut emit),
        };
        self.summary.add_unread(&unread);
        if let Some((column, line)) = unended {
            self.summary.set_unended_line(&column, line);
        }
        self.summary.set_windows_1252_rows(windows_1252_rows);
        self.summary.set_payloads(mark.fixes, skipped, read.is_err());
        self.log_summary();
        // If no new fix was read, the state of `--resume` keeps its entry for the file.
        if mark.fixes <= skipped {
            self.marks.pop();
        }
        if !leaves_open_row {
            read?;
        }
        ensure!(mark.fixes >= skipped, CHANGED);
        if leaves_open_row {
            warn!(
                "{}: a quote in its last rows has no end yet; the next run will read these rows",
                path.display()
            );
        }
        Ok(())
    }

    /// Adds the summary of a file that was read to the result. Logs it if it has positions, unless
    /// [`Self::close_batch`] has logged it already or this is a dry run.
    fn log_summary(&mut self) {
        let summary = &self.summary;
        if !self.is_dry_run && summary.needs_log() {
            info!("{summary}");
        }
        if summary.has_no_fix() {
            self.counts.files_without_fix += 1;
            if self.counts.names_without_fix.len() < SUMMARIES_MAX {
                self.counts.names_without_fix.push(summary.file().to_owned());
            }
        }
        if self.counts.summaries.len() < SUMMARIES_MAX {
            self.counts.summaries.push(std::mem::take(&mut self.summary));
        }
    }

    /// Records the file and line at which each field that cannot be used occurred first.
    #[cold]
    fn note_unusable(&mut self, omissions: Omissions, line: u64) {
        for (field, _) in Field::ALL.iter().zip(omissions.fields).filter(|(_, count)| *count > 0) {
            let first = self.counts.unusable.entry(field.name());
            first.or_insert_with(|| self.summary.file_and_line(line));
        }
    }

    /// Adds the rows of the decoded payload to the open batch.
    fn add_decoded(&mut self, payload: &[u8], line: u64) -> Result<()> {
        let mut decoded = std::mem::take(&mut self.decoded);
        if decoded.omissions.undated > 0 {
            // The decoder gives a fix without a time the time of receipt. One reject counts all
            // such fixes of the payload, because each reject would hold the whole payload.
            let received_at = self.received_at;
            let mut undated =
                decoded.positions.extract_if(.., |position| position.ts == received_at);
            let first = undated.next();
            let count = 1 + undated.count() as u64;
            let beginning = &payload[..payload.len().min(decode::PAYLOAD_BYTES_MAX)];
            decoded.rejects.extend(first.map(|position| {
                Reject {
                    received_at,
                    topic: "import".to_owned(),
                    driver_id: position.driver_id.as_str().to_owned(),
                    reason: Reason::BadTs,
                    detail:
                        "the point has no time, so a second import would store it again; if its \
                         time has another name, give --field ts="
                            .to_owned(),
                    payload: beginning.to_vec(),
                    payload_bytes: payload.len() as u64,
                    count,
                }
            }));
        }
        // Do not count the fields of a payload if all of its fixes lack a time: none is stored.
        if decoded.omissions.undated == 0 || !decoded.positions.is_empty() {
            if decoded.omissions.fields.iter().any(|count| *count > 0) {
                self.note_unusable(decoded.omissions, line);
            }
            self.counts.omissions.add(decoded.omissions);
        }
        self.counts.ignored += decoded.ignored.len() as u64;
        for mut position in decoded.positions.drain(..) {
            self.counts.positions += 1;
            self.summary.add_position(&position);
            self.counts.oldest =
                Some(self.counts.oldest.map_or(position.ts, |oldest| oldest.min(position.ts)));
            self.counts.newest = self.counts.newest.max(Some(position.ts));
            position.received_at = position.ts;
            let span = position.ts.unix_ms().div_euclid(SPAN_MS);
            let is_far = self.spans.len() == SPANS_MAX && !self.spans.contains(&span);
            if is_far || self.batcher.is_full() || !self.batcher.fits_position(&position) {
                self.close_batch()?;
            }
            if !self.spans.contains(&span) {
                self.spans.push(span);
            }
            self.batcher.push_position(position, true, self.instant);
        }
        for reject in decoded.rejects.drain(..) {
            self.summary.add_rejects(reject.count);
            let (count, _) = self
                .counts
                .rejects
                .entry(reject.reason)
                .or_insert_with(|| (0, self.summary.with_file_and_line(line, &reject.detail)));
            *count += reject.count;
            if self.batcher.is_full() || !self.batcher.fits_reject(&reject) {
                self.close_batch()?;
            }
            self.batcher.push_reject(reject, true, self.instant);
        }
        self.decoded = decoded;
        self.progress.fixes.store(self.counts.fixes, Ordering::Relaxed);
        Ok(())
    }

    /// Closes the batch and sends it to the inserting task. Fails if that task has ended.
    fn close_batch(&mut self) -> Result<()> {
        if !self.is_dry_run && self.summary.needs_log() {
            info!("{}", self.summary);
            self.summary.mark_logged();
        }
        self.spans.clear();
        self.instant += Duration::from_secs(1);
        // The next batch may have more of the file that is being read.
        let last = self.marks.last().cloned();
        let stored = std::mem::replace(&mut self.marks, last.into_iter().collect());
        Ok(self.batch_sender.blocking_send(ClosedBatch { batch: self.batcher.close(), stored })?)
    }
}

/// A reader that counts the bytes read, for the progress bar.
struct Counted<'s, R> {
    input: R,
    progress: &'s Progress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(buffer)?;
        self.progress.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_last_line_is_not_read() {
        for (text, end) in [
            ("", 0),
            ("half", 0),
            ("a\nhalf", 2),
            ("a\nb\n", 4),
            (&*format!("a\n{}", "x".repeat(200_000)), 2),
        ] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            assert_eq!(end_of_lines(&file, text.len() as u64, None).unwrap(), end);
        }
    }

    #[test]
    fn batch_that_closes_at_the_first_new_fix_notes_the_skipped_fixes() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let now_ms = now().unix_ms();
        let write = |name: &str, spans: std::ops::RangeInclusive<i64>| {
            let rows = spans.map(|span| format!("1,2,{}\n", now_ms - span * SPAN_MS));
            let path = folder.join(name);
            fs::write(&path, format!("lat,lng,ts\n{}", rows.collect::<String>())).unwrap();
            path
        };
        // The fixes of the first file touch as many spans as a batch may have.
        let full = write("a.csv", 1..=40);
        let grown = write("b.csv", 50..=51);
        let state = folder.join("state.json");
        fs::write(&state, format!(r#"{{"{}":1}}"#, grown.display())).unwrap();
        let args = ImportArgs {
            driver: Some("d7".to_owned()),
            resume: Some(state.clone()),
            files: vec![full, grown.clone()],
            ..ImportArgs::default()
        };
        let config = "clickhouse.retention = { positions_days = 2000, rollups_days = 2000 }";
        let config = Config::parse(config).unwrap();
        let resume = Resume::open(&state).unwrap();
        let files = open_all(&config, &args, Some(&resume)).unwrap();
        let (batch_sender, mut batches) = mpsc::channel(8);
        let progress = Arc::<Progress>::default();
        let counts = read_all(files, &config, &args, Instant::now(), &progress, batch_sender);
        assert_eq!((counts.positions, counts.skipped), (41, 1));
        let mut noted = Vec::new();
        while let Ok(ClosedBatch { stored, .. }) = batches.try_recv() {
            let of_grown = stored.into_iter().filter(|(path, _)| *path == grown);
            noted.extend(of_grown.map(|(_, mark)| mark.fixes));
        }
        assert_eq!(noted, [1, 2]);
    }

    #[test]
    fn newline_in_utf_16_is_two_bytes() {
        // U+0A0A and U+010A contain the byte of a newline, but are other characters.
        let text = "id,name\n1,\u{a0a}\u{10a}\n2,half\u{10a}";
        let complete = text.rfind('\n').unwrap() + 1;
        type ToBytes = fn(u16) -> [u8; 2];
        let to_bytes: [(_, ToBytes); 2] =
            [(UTF_16LE, u16::to_le_bytes), (UTF_16BE, u16::to_be_bytes)];
        for (encoding, to_bytes) in to_bytes {
            let bytes = |text: &str| text.encode_utf16().flat_map(to_bytes).collect::<Vec<_>>();
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&bytes(text), 0).unwrap();
            let (length, expected) = (bytes(text).len(), bytes(&text[..complete]).len());
            // The last character may be incomplete, too.
            for length in [length, length - 1] {
                let end = end_of_lines(&file, length as u64, Some(encoding)).unwrap();
                assert_eq!(end, expected as u64, "{} {length}", encoding.name());
            }
        }
    }
}
