//! Classifies ClickHouse's errors by how to retry, and names the setting to change.

use std::error::Error as StdError;

use clickhouse::error::Error as ClientError;
use hyper_util::client::legacy;

use super::endpoints::Cause;
use milepost_core::delivery::sink::FailureKind;

/// ClickHouse's error codes for faults that an operator must fix.
///
/// CANNOT_READ_ALL_DATA (33) is not in the list. milepost sends whole bodies. So if the server
/// received only a part of a body, a proxy truncated the body, and a retry may succeed.
const PERMANENT: [u32; 19] = [
    16, // NO_SUCH_COLUMN_IN_TABLE
    27, // CANNOT_PARSE_INPUT_ASSERTION_FAILED
    36, // BAD_ARGUMENTS, for example a storage policy that does not fit the table
    53, // TYPE_MISMATCH
    UNKNOWN_TABLE,
    62, // SYNTAX_ERROR
    73, // UNKNOWN_FORMAT
    UNKNOWN_DATABASE,
    115, // UNKNOWN_SETTING
    117, // INCORRECT_DATA
    READ_ONLY_PROFILE,
    192, // UNKNOWN_USER
    193, // WRONG_PASSWORD
    194, // REQUIRED_PASSWORD
    NOT_SUPPORTED,
    452, // SETTING_CONSTRAINT_VIOLATION
    478, // UNKNOWN_POLICY
    NO_GRANT,
    AUTHENTICATION_FAILED,
];
/// Further codes for faults that an operator must fix. Only statements and queries other than
/// inserts get them. Without this list, `migrate` would wait for ever.
const PERMANENT_OF_STATEMENTS: [u32; 5] = [
    122, // INCOMPATIBLE_COLUMNS: the other replicas have other columns
    139, // NO_ELEMENTS_IN_CONFIG: the server lacks the macro {shard} or {replica}
    450, // BAD_TTL_EXPRESSION: the storage policy has no such volume
    524, // ALTER_OF_COLUMN_IS_FORBIDDEN: a materialized view of the operator uses the column
    CLUSTER_DOES_NOT_EXIST,
];
/// Error codes of a server that does not know whether it committed the rows.
const AMBIGUOUS: [u32; 2] = [UNKNOWN_STATUS_OF_INSERT, KEEPER_EXCEPTION];
/// The code for a query that uses a column which is in none of the query's tables.
pub(super) const UNKNOWN_IDENTIFIER: u32 = 47;
/// The code for a query that reads a parameterised view which does not exist.
pub(super) const UNKNOWN_FUNCTION: u32 = 46;
pub(super) const UNKNOWN_TABLE: u32 = 60;
pub(super) const UNKNOWN_DATABASE: u32 = 81;
pub(super) const AUTHENTICATION_FAILED: u32 = 516;
pub(super) const NO_GRANT: u32 = 497;
/// CLUSTER_DOESNT_EXIST: `remote_servers` has no cluster of this name.
const CLUSTER_DOES_NOT_EXIST: u32 = 701;
/// The code of a replica without its Keeper, or without its metadata there.
const TABLE_IS_READ_ONLY: u32 = 242;
/// The code of an insert with fewer live replicas than the quorum.
const TOO_FEW_LIVE_REPLICAS: u32 = 285;
/// The code of an insert that the quorum did not confirm in time.
const UNKNOWN_STATUS_OF_INSERT: u32 = 319;
/// SUPPORT_IS_DISABLED: the server's version does not allow a setting, or the query, here.
const NOT_SUPPORTED: u32 = 344;
/// READONLY: the login's profile forbids the statement.
const READ_ONLY_PROFILE: u32 = 164;
const KEEPER_EXCEPTION: u32 = 999;

/// Error codes that a server returns before it writes an insert, or a part of one, into replicated
/// tables. If a quorum is set, the retry may use the same token, even at another replica, and even
/// if an earlier part of the insert was already written.
const BEFORE_THE_WRITE: [u32; 6] = [
    202, // TOO_MANY_SIMULTANEOUS_QUERIES
    TABLE_IS_READ_ONLY,
    252, // TOO_MANY_PARTS
    TOO_FEW_LIVE_REPLICAS,
    286, // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    745, // SERVER_OVERLOADED
];

/// Returns why another replica may accept a request that this replica refused with `code`. Returns
/// `None` if the replica is not the cause of the refusal.
pub(super) fn cause_of_code(code: u32) -> Option<Cause> {
    Some(match code {
        // This replica is not migrated.
        UNKNOWN_TABLE | UNKNOWN_DATABASE => Cause::NoTables,
        // Each replica may have its own users.
        AUTHENTICATION_FAILED | NO_GRANT => Cause::Login,
        TABLE_IS_READ_ONLY | READ_ONLY_PROFILE => Cause::ReadOnly,
        243 => Cause::NoSpace, // NOT_ENOUGH_SPACE
        KEEPER_EXCEPTION => Cause::NoKeeper,
        _ => return None,
    })
}

/// Returns why the endpoint did not answer a query; another endpoint may then be tried. Returns
/// `None` if the endpoint answered.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum is non-exhaustive; its other errors are not about the endpoint"
)]
pub(super) fn cause_of_silence(error: &ClientError) -> Option<Cause> {
    match error {
        ClientError::TimedOut => Some(Cause::NoAnswer),
        // An answer above the connector's bound would be too long at every endpoint.
        ClientError::Network(source) if is_too_long(source.as_ref()) => None,
        ClientError::Network(source) => Some(cause_of_break(source.as_ref())),
        ClientError::BadResponse(_) if code(error).is_none() => Some(Cause::NotClickHouse),
        _ => None,
    }
}

fn is_too_long(error: &(dyn StdError + 'static)) -> bool {
    let mut sources = std::iter::successors(Some(error), |&error| error.source());
    sources.any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::FileTooLarge)
    })
}

/// Returns the cause of a connection that failed or broke. Bytes that are not HTTP come from a
/// program other than ClickHouse.
pub(super) fn cause_of_break(error: &(dyn StdError + 'static)) -> Cause {
    let mut sources = std::iter::successors(Some(error), |&error| error.source());
    let is_not_http = sources.any(|error| error.downcast_ref().is_some_and(hyper::Error::is_parse));
    if is_not_http { Cause::NotClickHouse } else { Cause::Unreachable }
}

/// Returns why a statement may be repeated at another endpoint: this endpoint was not reached or is
/// read-only, so it certainly did not execute the statement. Otherwise returns `None`.
pub(super) fn cause_of_refusal(error: &ClientError) -> Option<Cause> {
    if is_unconnected(error) {
        return Some(Cause::Unreachable);
    }
    code(error).and_then(cause_of_code).filter(|cause| *cause == Cause::ReadOnly)
}

/// Returns whether no connection was established, so that the server got nothing.
fn is_unconnected(error: &ClientError) -> bool {
    matches!(error, ClientError::Network(source) if never_connected(source.as_ref()))
}

/// The kind of servers that inserts are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topology {
    /// Inserts go to the only server, which answers after the write.
    SingleServer,
    /// Inserts go to one of several replicas. The next attempt may reach another one.
    Replicated,
    /// Inserts go to one of several hosts, which forwards each row to its shard. If one shard
    /// refuses its rows, another shard may have written its own rows.
    Sharded,
}

/// Classifies an error code of ClickHouse. A single server that answers knows whether it committed
/// the rows, except with the codes in [`AMBIGUOUS`].
///
/// If there are replicas, an error after the write can leave the rows on only one replica. The next
/// attempt may reach another replica, which refuses the same token while the first replica is
/// unreachable. Therefore such an error is ambiguous, and the next attempt gets another token.
pub(super) fn kind_of_code(code: u32, topology: Topology) -> FailureKind {
    if PERMANENT.contains(&code) {
        return FailureKind::Permanent;
    }
    let is_ambiguous = match topology {
        Topology::SingleServer => AMBIGUOUS.contains(&code),
        Topology::Replicated => !BEFORE_THE_WRITE.contains(&code),
        Topology::Sharded => true,
    };
    if is_ambiguous { FailureKind::Ambiguous } else { FailureKind::Transient }
}

/// Returns the setting to change for this code, if one is known.
pub(super) fn advice(code: u32) -> Option<&'static str> {
    Some(match code {
        AUTHENTICATION_FAILED => "wrong login; set clickhouse.user and clickhouse.password_file",
        NO_GRANT => "grant clickhouse.user what it lacks, see deploy/clickhouse",
        NOT_SUPPORTED => {
            "this server's version does not support what the insert asks for: update ClickHouse"
        }
        CLUSTER_DOES_NOT_EXIST => {
            "set clickhouse.cluster to a name in the server's remote_servers (system.clusters)"
        }
        TABLE_IS_READ_ONLY => {
            "this replica is read-only: check that it reaches its Keeper, and see system.replicas \
             there"
        }
        TOO_FEW_LIVE_REPLICAS => {
            "fewer replicas are alive than clickhouse.insert_quorum requires: bring one back, or \
             add a third one"
        }
        UNKNOWN_STATUS_OF_INSERT => {
            "not enough replicas received the insert in time: one is down or lags, see \
             system.replicas and system.replication_queue"
        }
        _ => return None,
    })
}

/// Returns the `N` of `Code: N. DB::Exception: …`, if the text begins with it. A page that only
/// mentions such a code does not come from ClickHouse.
pub(super) fn code_in(text: &str) -> Option<u32> {
    let digits = text.trim_start().strip_prefix("Code: ")?;
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[end..].starts_with(". DB::").then(|| digits[..end].parse().ok())?
}

/// Returns ClickHouse's error code in an error of the client library.
pub(super) fn code(error: &ClientError) -> Option<u32> {
    let ClientError::BadResponse(text) = error else { return None };
    code_in(text)
}

/// Classifies the error of a statement that is not an insert.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the crate's enum is non-exhaustive; unknown errors are ambiguous"
)]
pub(super) fn kind(error: &ClientError) -> FailureKind {
    match error {
        ClientError::BadResponse(_) => {
            let kind = |code| {
                if PERMANENT_OF_STATEMENTS.contains(&code) {
                    return FailureKind::Permanent;
                }
                kind_of_code(code, Topology::SingleServer)
            };
            code(error).map_or(FailureKind::Ambiguous, kind)
        }
        ClientError::TimedOut => FailureKind::TimedOut,
        ClientError::Network(source) if never_connected(source.as_ref()) => FailureKind::Transient,
        ClientError::InvalidParams(_) | ClientError::Unsupported(_) => FailureKind::Permanent,
        _ => FailureKind::Ambiguous,
    }
}

/// Returns whether the connection could not be established.
pub(super) fn never_connected(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
}

/// Returns whether the connection was established but brought no complete HTTP answer.
pub(super) fn got_no_http_answer(error: &ClientError) -> bool {
    matches!(error, ClientError::Network(source) if !never_connected(source.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_classified_by_how_to_retry() {
        for (text, expected) in [
            (
                "Code: 60. DB::Exception: Table fleet.positions does not exist.",
                FailureKind::Permanent,
            ),
            ("Code: 497. DB::Exception: default: Not enough privileges.", FailureKind::Permanent),
            ("Code: 701. DB::Exception: Requested cluster 'c' not found.", FailureKind::Permanent),
            ("Code: 139. DB::Exception: No macro 'shard' in config", FailureKind::Permanent),
            ("Code: 450. DB::Exception: No such volume `cold`", FailureKind::Permanent),
            ("Code: 241. DB::Exception: Memory limit exceeded", FailureKind::Transient),
            ("Code: 12345. DB::Exception: a code in no list", FailureKind::Transient),
            ("502 Bad Gateway", FailureKind::Ambiguous),
            ("<p>see Code: 60. DB::Exception</p>", FailureKind::Ambiguous),
        ] {
            assert_eq!(kind(&ClientError::BadResponse(text.to_owned())), expected, "{text}");
        }
        assert_eq!(kind(&ClientError::TimedOut), FailureKind::TimedOut);
        assert_eq!(kind(&ClientError::Network("reset".into())), FailureKind::Ambiguous);
    }

    #[test]
    fn replicated_errors_are_ambiguous_unless_before_the_write() {
        use FailureKind::{Ambiguous, Permanent, Transient};
        for (codes, expected) in [
            (&[60, 73, 115, 164, 344, 452, 497, 516][..], [Permanent; 3]),
            (&[202, 242, 252, 285, 286, 745], [Transient, Transient, Ambiguous]),
            (
                &[33, 159, 209, 210, 225, 236, 241, 254, 394, 12_345],
                [Transient, Ambiguous, Ambiguous],
            ),
            (&[319, 999], [Ambiguous; 3]),
        ] {
            for code in codes {
                let topologies = [Topology::SingleServer, Topology::Replicated, Topology::Sharded];
                let kinds = topologies.map(|topology| kind_of_code(*code, topology));
                assert_eq!(kinds, expected, "{code}");
            }
        }
    }

    #[test]
    fn advice_names_the_cause_of_an_error_code() {
        for (code, expected) in [
            (242, "Keeper"),
            (285, "insert_quorum"),
            (319, "system.replicas"),
            (344, "update ClickHouse"),
            (701, "clickhouse.cluster"),
        ] {
            assert!(advice(code).is_some_and(|advice| advice.contains(expected)), "{code}");
        }
    }
}
