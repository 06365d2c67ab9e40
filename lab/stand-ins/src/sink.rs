//! A stand-in for ClickHouse that accepts inserts and only counts their rows, so that ClickHouse is
//! not the bottleneck.
//!
//! The sink reads inserts as RowBinary or JSONEachRow, whole or chunked, plain or in ClickHouse's
//! LZ4 blocks. It also answers the statements of `milepost migrate` and `milepost run`: it keeps
//! the rows of `schema_migrations`, and every CREATE succeeds. It answers other statements,
//! formats, columns and codecs with an error.

mod bytes;
mod rows;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hyper::StatusCode;
use lab_stack::{lock, unix_ms};

use self::bytes::{columns, decompress};
use crate::http::{self, Answer, ReceivedRequest};
use crate::tally::Tally;

/// Number of threads: a consumer has two inserts in flight.
const THREADS: usize = 2;
/// Maximum number of recorded durations. A benchmark makes a few hundred inserts per second.
const DURATIONS_MAX: usize = 1 << 20;

/// A running sink; its threads end with the process.
#[derive(Debug)]
pub struct Sink {
    /// Port of the listener on the loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Name and type of each column of positions.
    positions: Vec<(String, String)>,
    tally: Mutex<Tally>,
    rows: AtomicU64,
    durations: Mutex<Vec<Duration>>,
    /// Version and checksum of each recorded migration.
    migrations: Mutex<Vec<(u32, String)>>,
}

impl Sink {
    /// Listens on a free port. `drivers` is the number of drivers, which number their fixes from
    /// `first`.
    pub fn start(drivers: u32, first: u32) -> Result<Self> {
        let shared = Arc::new(Shared {
            positions: columns("positions")?,
            tally: Mutex::new(Tally::new(drivers, first)),
            rows: AtomicU64::new(0),
            durations: Mutex::default(),
            migrations: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let port = http::listen(THREADS, move |request| serving.serve(request))
            .context("cannot listen")?;
        Ok(Self { port, shared })
    }

    /// Returns the URL, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the number of positions inserted so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.shared.rows.load(Ordering::Relaxed)
    }

    /// Returns the duration of each insert of positions, from its head to its answer, as seen by
    /// the sink.
    #[must_use]
    pub fn insert_durations(&self) -> Vec<Duration> {
        lock(&self.shared.durations).clone()
    }

    /// Returns the stored fixes. The next insert waits until the guard is dropped.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.shared.tally)
    }
}

impl Shared {
    fn serve(&self, request: &ReceivedRequest) -> Answer {
        match self.answer(request) {
            Ok(answer) => answer,
            Err(error) => {
                // Do not print unknown statements: milepost probes features of the server with
                // them, and logs a failed probe itself.
                if !error.is::<UnknownStatement>() {
                    eprintln!("sink: {error:#}");
                }
                let body = format!("Code: 1. DB::Exception: {error:#}\n").into_bytes();
                Answer { status: StatusCode::INTERNAL_SERVER_ERROR, written_rows: None, body }
            }
        }
    }

    fn answer(&self, request: &ReceivedRequest) -> Result<Answer> {
        if request.path == "/ping" {
            return Ok(Answer::ok("Ok.\n"));
        }
        let (statement, data) = match request.parameter("query") {
            Some(statement) => (statement, &request.body[..]),
            None => {
                (std::str::from_utf8(&request.body).context("the statement is not UTF-8")?, &[][..])
            }
        };
        let statement = without_comment(statement);
        if statement.to_ascii_uppercase().starts_with("INSERT") && !data.is_empty() {
            let is_packed = request.parameter("decompress") == Some("1");
            let plain = if is_packed { decompress(data)? } else { Vec::new() };
            let rows = self.insert(statement, if is_packed { &plain } else { data }, request)?;
            return Ok(Answer { written_rows: Some(rows), ..Answer::ok("") });
        }
        self.answer_statement(statement).map(Answer::ok)
    }

    /// Counts the rows of an INSERT, and returns the number of positions among them.
    fn insert(&self, statement: &str, data: &[u8], request: &ReceivedRequest) -> Result<u64> {
        let target = rows::Target::parse(statement)?;
        if target.table != "positions" {
            return Ok(0);
        }
        let mut tally = lock(&self.tally);
        let before = tally.rows;
        target.read(&self.positions, data, |driver_id, seq| tally.add(driver_id, seq))?;
        let added = tally.rows - before;
        drop(tally);
        let mut durations = lock(&self.durations);
        if durations.len() < DURATIONS_MAX {
            durations.push(request.began.elapsed());
        }
        drop(durations);
        self.rows.fetch_add(added, Ordering::Relaxed);
        Ok(added)
    }

    /// Answers the statements of `milepost migrate` and `milepost run`.
    fn answer_statement(&self, statement: &str) -> Result<Vec<u8>> {
        let mut migrations = lock(&self.migrations);
        if statement.starts_with("INSERT") && statement.contains(".schema_migrations") {
            let values = statement.split_once("VALUES (").context("VALUES are missing")?.1;
            let mut values = values.trim_end_matches(')').split(',').map(str::trim);
            let version = values.next().context("a version is missing")?.parse()?;
            let checksum = values.next_back().context("a checksum is missing")?.trim_matches('\'');
            migrations.push((version, checksum.to_owned()));
        } else if statement.starts_with("SELECT toUnixTimestamp64Milli") {
            return Ok(format!("{}\n", unix_ms()).into_bytes());
        } else if statement.starts_with("SELECT table, name, type FROM system.columns") {
            return all_columns();
        } else if statement.starts_with("SELECT table, name, arrayStringConcat(") {
            return Ok(Vec::new()); // no table has a field of the configuration
        } else if statement.starts_with("SELECT version, checksum") {
            let row = |(version, checksum): &(u32, String)| format!("{version}\t{checksum}\n");
            let rows: String = migrations.iter().map(row).collect();
            return Ok(format!("0\t\n{rows}").into_bytes());
        } else if statement.starts_with("SELECT count() > 0 FROM system.databases") {
            return Ok(b"1\n".to_vec());
        } else if statement.starts_with("SELECT name, engine_full FROM system.tables") {
            return Ok(Vec::new()); // no table has a time to live
        } else if statement.starts_with("SELECT arrayJoin(arrayPushFront(ids")
            && statement.contains(".erased ")
        {
            return Ok(b"\t0\t0\t0\n".to_vec()); // no driver is erased
        } else {
            ensure!(
                ["CREATE", "ALTER", "INSERT INTO", "DROP VIEW"]
                    .iter()
                    .any(|keyword| statement.starts_with(keyword)),
                UnknownStatement(statement.to_owned())
            );
        }
        Ok(Vec::new())
    }
}

/// Returns the columns of milepost's tables, as tab-separated values.
fn all_columns() -> Result<Vec<u8>> {
    let mut out = String::new();
    for table in ["positions", "rejects"] {
        for (name, kind) in columns(table)? {
            let _ = writeln!(out, "{table}\t{name}\t{kind}");
        }
    }
    Ok(out.into_bytes())
}

/// The error for a statement that the sink does not know.
#[derive(Debug)]
struct UnknownStatement(String);

impl fmt::Display for UnknownStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sink does not support this: {}", self.0)
    }
}

impl std::error::Error for UnknownStatement {}

/// Returns the statement without its leading comments, with which every file of sql/ begins.
fn without_comment(mut statement: &str) -> &str {
    while statement.trim_start().starts_with("--") {
        statement = statement.split_once('\n').map_or("", |(_, after)| after);
    }
    statement.trim()
}
