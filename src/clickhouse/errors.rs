//! What an answer that is not a success means, and what to do about it.

use std::error::Error as StdError;

use clickhouse::error::Error as ClientError;
use hyper_util::client::legacy;

use crate::delivery::sink::FailureKind;

/// ClickHouse's error codes that only a person can mend: unknown column, table, database, format, setting or user, wrong
/// types, a read-only or constrained profile, a setting that the server's version does not allow here, no grant, failed
/// login.
///
/// Not CANNOT_READ_ALL_DATA (33): our bytes are whole, so something on the way has cut them, and may not the next time.
const PERMANENT: [u32; 17] = [16, 27, 53, 60, 62, 73, 81, 115, 117, 164, 192, 193, 194, 344, 452, 497, 516];
/// The server itself does not know whether it committed: UNKNOWN_STATUS_OF_INSERT, KEEPER_EXCEPTION.
const AMBIGUOUS: [u32; 2] = [319, 999];
/// TIMEOUT_EXCEEDED: of an asynchronous insert, which the server may still flush.
const TIMEOUT_EXCEEDED: u32 = 159;
pub(super) const UNKNOWN_TABLE: u32 = 60;
pub(super) const UNKNOWN_DATABASE: u32 = 81;
pub(super) const AUTHENTICATION_FAILED: u32 = 516;
const NO_GRANT: u32 = 497;
/// SUPPORT_IS_DISABLED.
const NOT_SUPPORTED: u32 = 344;

/// What to do after ClickHouse answered with this code. A server that answers is alive and knows whether it committed,
/// unless the code says otherwise.
pub(super) fn kind_of_code(code: u32, async_insert: bool) -> FailureKind {
    if PERMANENT.contains(&code) {
        FailureKind::Permanent
    } else if AMBIGUOUS.contains(&code) || async_insert && code == TIMEOUT_EXCEEDED {
        FailureKind::Ambiguous
    } else {
        FailureKind::Transient
    }
}

/// What to change.
pub(super) fn advice(code: u32) -> Option<String> {
    match code {
        AUTHENTICATION_FAILED => Some("wrong login; set clickhouse.user and clickhouse.password_file".to_owned()),
        NO_GRANT => Some("grant clickhouse.user what it lacks, see deploy/clickhouse".to_owned()),
        NOT_SUPPORTED => Some(
            "this server's version does not support what the insert asks for; to deduplicate asynchronous inserts into \
             views it must be 26.1 or later, or clickhouse.async_insert = false"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The `N` of ClickHouse's `Code: N. DB::Exception: …`, which begins its answer: a page that only mentions one is
/// somebody else's.
pub(super) fn code_in(text: &str) -> Option<u32> {
    let digits = text.trim_start().strip_prefix("Code: ")?;
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[end..].starts_with(". DB::").then(|| digits[..end].parse().ok())?
}

/// The same, for what the client library makes of an answer.
pub(super) fn code(error: &ClientError) -> Option<u32> {
    let ClientError::BadResponse(text) = error else { return None };
    code_in(text)
}

/// What to do after a statement that is no insert has failed.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum is non-exhaustive; unknown ends are ambiguous"
)]
pub(super) fn kind(error: &ClientError) -> FailureKind {
    match error {
        ClientError::BadResponse(_) => {
            code(error).map_or(FailureKind::Ambiguous, |code| kind_of_code(code, false))
        }
        ClientError::TimedOut => FailureKind::TimedOut,
        ClientError::Network(source) if never_connected(source.as_ref()) => FailureKind::Transient,
        ClientError::InvalidParams(_) | ClientError::Unsupported(_) => FailureKind::Permanent,
        _ => FailureKind::Ambiguous,
    }
}

pub(super) fn never_connected(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
}

/// It was connected, and what came back was nothing, or no HTTP.
pub(super) fn speaks_no_http(error: &ClientError) -> bool {
    matches!(error, ClientError::Network(source) if !never_connected(source.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(text: &str) -> FailureKind {
        kind(&ClientError::BadResponse(text.to_owned()))
    }

    #[test]
    fn failures_are_sorted_by_what_to_do_about_them() {
        assert_eq!(
            bad("Code: 60. DB::Exception: Table fleet.positions does not exist."),
            FailureKind::Permanent
        );
        assert_eq!(bad("Code: 497. DB::Exception: default: Not enough privileges."), FailureKind::Permanent);
        assert_eq!(bad("Code: 241. DB::Exception: Memory limit exceeded"), FailureKind::Transient);
        assert_eq!(bad("Code: 12345. DB::Exception: what nobody listed"), FailureKind::Transient);
        assert_eq!(bad("502 Bad Gateway"), FailureKind::Ambiguous, "a proxy's answer");
        assert_eq!(
            bad("<p>see Code: 60. DB::Exception</p>"),
            FailureKind::Ambiguous,
            "also if it mentions a code"
        );
        assert_eq!(kind(&ClientError::TimedOut), FailureKind::TimedOut);
        assert_eq!(kind(&ClientError::Network("reset".into())), FailureKind::Ambiguous);
    }

    #[test]
    fn a_code_means_what_it_means_for_the_way_of_inserting() {
        for (code, synchronous, asynchronous) in [
            (159, FailureKind::Transient, FailureKind::Ambiguous),
            (319, FailureKind::Ambiguous, FailureKind::Ambiguous),
            (344, FailureKind::Permanent, FailureKind::Permanent),
            (252, FailureKind::Transient, FailureKind::Transient),
            (33, FailureKind::Transient, FailureKind::Transient),
            (73, FailureKind::Permanent, FailureKind::Permanent),
            (115, FailureKind::Permanent, FailureKind::Permanent),
        ] {
            assert_eq!(kind_of_code(code, false), synchronous, "{code}");
            assert_eq!(kind_of_code(code, true), asynchronous, "{code}");
        }
        assert!(advice(344).is_some_and(|advice| advice.contains("async_insert = false")));
    }
}
