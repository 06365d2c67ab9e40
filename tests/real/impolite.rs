//! Tests impolite servers: servers and proxies that send false confirmations, hang, cut connections
//! or refuse inserts. The real binary runs between a real broker and a scripted proxy in front of
//! the real engine.
//!
//! Expected in every case: milepost acknowledges a message only after it is stored, and its memory
//! and log stay small. If the fault prevents inserts, the log and `/readyz` name the cause in time.
//! After the fault, everything is stored and acknowledged. To run one case: `IMPOLITE=huge_error
//! cargo test --test real impolite -- --nocapture`.

mod judge;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lab_harness::scripted_clickhouse::{Behaviour, HangAt, TooLarge};

/// Number of cases that run concurrently. It may exceed the number of CPU cores, because a case
/// mostly waits.
const CASES_AT_ONCE: usize = 6;

/// A fault, and the behaviour that is expected of milepost.
#[derive(Debug)]
struct Case {
    name: &'static str,
    fault: Fault,
    expect: Expect,
    /// Sets `clickhouse.replication`, so the inserting process treats this server as a replica.
    on_replicas: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// The scripted server behaves like this.
    Script(Behaviour),
    /// Statements that make the engine itself refuse inserts (`begin`) and accept them again
    /// (`end`); `{db}` is the case's database.
    Engine { begin: &'static str, end: &'static str },
}

#[derive(Debug, Clone, Copy)]
enum Expect {
    /// Every message is stored during the fault.
    StoresAll,
    /// No message can be stored; the log and `/readyz` name the cause.
    Refused {
        /// Error kinds that a failed insert may be counted as.
        kinds: &'static [&'static str],
        /// The log and `/readyz` contain one of these strings, in upper or lower case.
        causes: &'static [&'static str],
    },
}

impl Case {
    fn hangs(&self) -> bool {
        matches!(self.fault, Fault::Script(Behaviour::Hang(_)))
    }

    /// Minimum duration of the fault. A hang must last longer than other faults, because milepost
    /// reports a hang after half a minute.
    fn fault_duration(&self) -> Duration {
        Duration::from_secs(if self.hangs() { 35 } else { 20 })
    }

    /// Time within which the log and `/readyz` must name the cause, even on a busy machine. The
    /// models simulate the clock, and test a shorter time.
    fn report_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }
}

const fn script(name: &'static str, behaviour: Behaviour, expect: Expect) -> Case {
    Case { name, fault: Fault::Script(behaviour), expect, on_replicas: false }
}

/// Expects an unknown outcome: the rows may be stored.
const fn ambiguous(causes: &'static [&'static str]) -> Expect {
    Expect::Refused { kinds: &["ambiguous"], causes }
}

/// Builds a case in which the scripted server answers with an error of ClickHouse itself.
const fn error(
    name: &'static str,
    code: u32,
    kinds: &'static [&'static str],
    causes: &'static [&'static str],
) -> Case {
    let fault = Fault::Script(Behaviour::ClickHouseError { code, stored: false });
    Case { name, fault, expect: Expect::Refused { kinds, causes }, on_replicas: false }
}

const EXCEPTION: Expect = ambiguous(&["Code: 241", "exception"]);
const NO_SUMMARY: Expect = ambiguous(&["summary"]);
const NO_ANSWER: Expect = ambiguous(&["timed out", "timeout", "no answer", "does not answer"]);
/// Kind of a fault that passes by itself.
const TRANSIENT: &[&str] = &["transient"];
/// Kind of a fault that an operator must fix.
const PERMANENT: &[&str] = &["permanent"];
/// Kinds of a refusal that passes by itself or that an operator must fix.
const TRANSIENT_OR_PERMANENT: &[&str] = &["transient", "permanent"];
/// Kinds of an error of ClickHouse after which the rows may be stored nevertheless.
const POSSIBLY_STORED: &[&str] = &["ambiguous", "transient"];

/// Responses with status 200 that do not confirm the insert.
static LIES: [Case; 8] = [
    script("body_dropped", Behaviour::BodyDropped, ambiguous(&["ClickHouse counted 0"])),
    script("without_summary", Behaviour::HonestWithoutSummary, NO_SUMMARY),
    script("empty_without_summary", Behaviour::EmptyWithoutSummary, NO_SUMMARY),
    script("exception_in_chunks", Behaviour::ExceptionInChunks, EXCEPTION),
    script(
        "exception_cut_in_marker",
        Behaviour::ExceptionCutInMarker,
        ambiguous(&["__excep", "HTTP 200", "status 200", "body"]),
    ),
    script("exception_cut_in_text", Behaviour::ExceptionCutInText, EXCEPTION),
    script("exception_in_old_format", Behaviour::ExceptionInOldFormat, EXCEPTION),
    script(
        "page_with_status_200",
        Behaviour::PageWithStatus200,
        ambiguous(&["html", "HTTP 200", "status 200"]),
    ),
];

/// Responses of proxies: error pages, some of them very long, and a redirect.
static PROXIES: [Case; 7] = [
    script(
        "endless_error",
        Behaviour::EndlessError,
        ambiguous(&["HTTP 500", "status 500", "500 Internal Server Error"]),
    ),
    script(
        "huge_error",
        Behaviour::HugeError,
        ambiguous(&["HTTP 500", "status 500", "500 Internal Server Error"]),
    ),
    script(
        "proxy_404",
        Behaviour::ProxyError { status: 404 },
        ambiguous(&["404 Not Found", "HTTP 404", "status 404"]),
    ),
    script(
        "proxy_502",
        Behaviour::ProxyError { status: 502 },
        ambiguous(&["502 Bad Gateway", "HTTP 502", "status 502"]),
    ),
    script(
        "proxy_503",
        Behaviour::ProxyError { status: 503 },
        ambiguous(&["503 Service Temporarily Unavailable", "HTTP 503", "status 503"]),
    ),
    // The proxy is misconfigured, with a limit of 8 bytes instead of 8 MiB. No row is too large.
    script(
        "nothing_passes",
        Behaviour::TooLarge { body_bytes_max: 8, then: TooLarge::AnswersAfterBody },
        Expect::Refused {
            kinds: &["ambiguous", "too_large"],
            causes: &["413 Payload Too Large", "HTTP 413", "status 413"],
        },
    ),
    script(
        "redirect",
        Behaviour::Redirect { port: 9 },
        ambiguous(&["307 Temporary Redirect", "HTTP 307", "status 307"]),
    ),
];

const fn too_large(name: &'static str, then: TooLarge, expect: Expect) -> Case {
    // 1,000 bytes are about twenty rows.
    script(name, Behaviour::TooLarge { body_bytes_max: 1000, then }, expect)
}

/// Servers that milepost can work with although they are slow or have limits.
static LIMITS: [Case; 5] = [
    too_large("too_large", TooLarge::AnswersAfterBody, Expect::StoresAll),
    too_large("too_large_at_once", TooLarge::AnswersAtOnce, Expect::StoresAll),
    too_large("too_large_reset", TooLarge::Resets, ambiguous(&["reset", "broken pipe", "closed"])),
    script("slow", Behaviour::Slow(Duration::from_secs(2)), Expect::StoresAll),
    script("in_turn", Behaviour::RoundRobin, Expect::StoresAll),
];

/// Servers that hang; every timeout has its default.
static HANGS: [Case; 5] = [
    script("hang_before_body", Behaviour::Hang(HangAt::BeforeBody), NO_ANSWER),
    script("hang_in_body", Behaviour::Hang(HangAt::InBody), NO_ANSWER),
    script("hang_after_body", Behaviour::Hang(HangAt::AfterBody), NO_ANSWER),
    script("hang_after_storing", Behaviour::Hang(HangAt::AfterStoring), NO_ANSWER),
    script("hang_for_good", Behaviour::Hang(HangAt::Forever), NO_ANSWER),
];

/// ClickHouse's own errors.
static ERRORS: [Case; 12] = [
    error("error_60", 60, PERMANENT, &["Code: 60.", "UNKNOWN_TABLE"]),
    error("error_81", 81, PERMANENT, &["Code: 81.", "UNKNOWN_DATABASE"]),
    error("error_159", 159, POSSIBLY_STORED, &["Code: 159.", "TIMEOUT_EXCEEDED"]),
    error("error_164", 164, PERMANENT, &["Code: 164.", "READONLY"]),
    error("error_241", 241, TRANSIENT, &["Code: 241.", "MEMORY_LIMIT_EXCEEDED"]),
    error("error_242", 242, TRANSIENT, &["Code: 242.", "TABLE_IS_READ_ONLY"]),
    error("error_252", 252, TRANSIENT, &["Code: 252.", "TOO_MANY_PARTS"]),
    error("error_319", 319, POSSIBLY_STORED, &["Code: 319.", "UNKNOWN_STATUS_OF_INSERT"]),
    error("error_344", 344, PERMANENT, &["update ClickHouse"]),
    error("error_516", 516, PERMANENT, &["Code: 516.", "AUTHENTICATION_FAILED"]),
    script(
        "error_159_stored",
        Behaviour::ClickHouseError { code: 159, stored: true },
        Expect::Refused { kinds: POSSIBLY_STORED, causes: &["Code: 159.", "TIMEOUT_EXCEEDED"] },
    ),
    script(
        "error_319_stored",
        Behaviour::ClickHouseError { code: 319, stored: true },
        Expect::Refused {
            kinds: POSSIBLY_STORED,
            causes: &["Code: 319.", "UNKNOWN_STATUS_OF_INSERT"],
        },
    ),
];

/// Failures of the commit, or of a materialized view of the table.
static COMMITS: [Case; 4] = [
    script(
        "view_failed",
        Behaviour::ViewFailed,
        Expect::Refused {
            kinds: TRANSIENT_OR_PERMANENT,
            causes: &["Code: 469.", "VIOLATED_CONSTRAINT"],
        },
    ),
    Case {
        name: "view_refuses",
        fault: Fault::Engine {
            begin: "ALTER TABLE {db}.last_positions_state ADD CONSTRAINT nobody CHECK driver_id = \
                    ''",
            end: "ALTER TABLE {db}.last_positions_state DROP CONSTRAINT nobody",
        },
        expect: Expect::Refused {
            kinds: TRANSIENT_OR_PERMANENT,
            causes: &["Code: 469.", "VIOLATED_CONSTRAINT"],
        },
        on_replicas: false,
    },
    Case {
        name: "view_without_target",
        fault: Fault::Engine {
            begin: "RENAME TABLE {db}.last_positions_state TO {db}.elsewhere",
            end: "RENAME TABLE {db}.elsewhere TO {db}.last_positions_state",
        },
        expect: Expect::Refused { kinds: PERMANENT, causes: &["Code: 60.", "UNKNOWN_TABLE"] },
        on_replicas: false,
    },
    Case {
        name: "too_many_parts",
        fault: Fault::Engine {
            begin: "ALTER TABLE {db}.positions MODIFY SETTING parts_to_delay_insert = 1, \
                    parts_to_throw_insert = 1",
            end: "ALTER TABLE {db}.positions RESET SETTING parts_to_delay_insert, \
                  parts_to_throw_insert",
        },
        expect: Expect::Refused { kinds: TRANSIENT, causes: &["Code: 252.", "TOO_MANY_PARTS"] },
        on_replicas: false,
    },
];

const fn on_replicas(case: Case) -> Case {
    Case { on_replicas: true, ..case }
}

const fn replica_dies(name: &'static str, code: u32) -> Case {
    on_replicas(script(name, Behaviour::ReplicaDies { code }, Expect::StoresAll))
}

/// A load balancer that switches from one replica to another.
static REPLICAS: [Case; 7] = [
    replica_dies("replica_dies_319", 319),
    replica_dies("replica_dies_999", 999),
    replica_dies("replica_dies_241", 241),
    on_replicas(error("replicas_285", 285, TRANSIENT, &["clickhouse.insert_quorum"])),
    on_replicas(error("replicas_242", 242, TRANSIENT, &["Code: 242.", "TABLE_IS_READ_ONLY"])),
    on_replicas(error("replicas_164", 164, PERMANENT, &["Code: 164.", "READONLY"])),
    on_replicas(error("replicas_159", 159, &["ambiguous"], &["Code: 159.", "TIMEOUT_EXCEEDED"])),
];

#[test]
fn balancer_switching_replicas_loses_nothing() {
    check_all(&REPLICAS);
}

#[test]
fn http_200_without_success_acknowledges_nothing() {
    check_all(&LIES);
}

#[test]
fn proxy_error_pages_bound_memory_and_log() {
    check_all(&PROXIES);
}

#[test]
fn proxy_limits_do_not_stop_the_flow() {
    check_all(&LIMITS);
}

#[test]
fn hang_is_reported_and_recovery_is_immediate() {
    check_all(&HANGS);
}

#[test]
fn clickhouse_errors_are_classified_by_code() {
    check_all(&ERRORS);
}

#[test]
fn failed_commit_or_view_acknowledges_nothing() {
    check_all(&COMMITS);
}

/// Asserts that all cases meet their expectations. Runs several cases at a time, and prints a row
/// for each case. The environment variable `IMPOLITE` selects a single case.
fn check_all(cases: &'static [Case]) {
    let only = std::env::var("IMPOLITE").ok();
    let cases: Vec<&'static Case> =
        cases.iter().filter(|case| only.as_ref().is_none_or(|only| only == case.name)).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..CASES_AT_ONCE.min(cases.len()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (row, holds) = match judge::judge(case) {
                        Ok(figures) => (figures.to_string(), figures.problems.is_empty()),
                        Err(error) => (format!("{error:#}"), false),
                    };
                    eprintln!("{} | {row}", case.name);
                    if !holds {
                        failed
                            .lock()
                            .expect("no thread panicked with the lock")
                            .push(format!("{} | {row}", case.name));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panicked with the lock");
    assert!(failed.is_empty(), "{}\n{}", judge::COLUMNS, failed.join("\n"));
}
