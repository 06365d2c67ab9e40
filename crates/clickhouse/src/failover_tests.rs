//! Tests against scripted servers: which requests move to the next endpoint, when the client
//! returns to its own endpoint, which queries stay on one host, and what an interrupted `migrate`
//! leaves to the next call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::client::ClickHouse;
use super::endpoints::Cause;
use super::files::MIGRATIONS;
use super::scripted_server::{Answer, ScriptedServer};
use milepost_config::Config;
use milepost_core::delivery::sink::{Attempt, FailureKind, Sink as _, error_chain};
use milepost_core::encode::Insert;
use milepost_core::screened::{ErasedSnapshot, LIST_AGE_MAX, Screened};

const TIMEOUT: Duration = Duration::from_secs(5);
/// The answer to `SELECT 1`.
const ONE: Answer = Some((200, "1\n"));
const READ_ONLY: Answer =
    Some((500, "Code: 242. DB::Exception: Table is in readonly mode. (TABLE_IS_READ_ONLY)"));

/// Returns a client whose own endpoint is the first one.
fn client_for(urls: &[&str]) -> ClickHouse {
    let urls = urls.join("', '");
    let toml = format!(
        "mqtt.client_id = 'm-0'\nclickhouse = {{ url = ['{urls}'], replication = 'macros' }}"
    );
    ClickHouse::new(&Config::parse(&toml).unwrap().clickhouse).unwrap()
}

/// Returns the index of the endpoint in use, and the failovers from each endpoint for this cause.
fn state(clickhouse: &ClickHouse, cause: Cause) -> (Option<usize>, Vec<u64>) {
    let status = clickhouse.endpoints();
    let failovers = status.iter().map(|endpoint| endpoint.failovers[cause as usize]).collect();
    (status.iter().position(|endpoint| endpoint.in_use), failovers)
}

/// Starts a server that answers every request with these bytes, and returns its URL.
async fn raw_server(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
        }
    });
    url
}

fn one_row() -> Screened {
    one_row_at(Instant::now())
}

/// Returns a row after its check against a list of erased drivers. `now`: the time of the check,
/// and the time at which the list was read.
fn one_row_at(now: Instant) -> Screened {
    let statement = "INSERT INTO fleet.positions (driver_id) FORMAT RowBinary".to_owned();
    let insert = Insert { statement, body: Bytes::from_static(b"\x01a"), rows: 1 };
    ErasedSnapshot::new(Arc::default(), now).screen(insert, now).unwrap()
}

/// Simulates a process that was paused after its rows were checked and before they were sent.
#[tokio::test]
async fn insert_is_not_sent_if_the_erased_list_is_too_old() {
    let server = ScriptedServer::start(Some((200, ""))).await;
    *server.header.lock().unwrap() = "x-clickhouse-summary: {\"written_rows\":\"1\"}\r\n";
    let clickhouse = client_for(&[&server.url]);
    let attempt = Attempt { token: "t".to_owned(), timeout: TIMEOUT };
    clickhouse.insert(&one_row(), &attempt).await.unwrap();
    assert_eq!(server.request_count(), 1);
    let checked_at = Instant::now().checked_sub(LIST_AGE_MAX).unwrap();
    let error = clickhouse.insert(&one_row_at(checked_at), &attempt).await.unwrap_err();
    assert_eq!(error.kind, FailureKind::Transient, "{}", error_chain(&error));
    let chain = error_chain(&error);
    assert!(chain.contains("the list of erased drivers is 35 s old"), "{chain}");
    assert_eq!(server.request_count(), 1);
    assert_eq!(
        state(&clickhouse, Cause::Unreachable),
        (Some(0), vec![0]),
        "the endpoint must stay in use"
    );
}

/// Returns the URL of a port on which no server listens.
async fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn query_moves_to_the_next_endpoint_if_the_first_is_unreachable() {
    let (unreachable, other) = (closed_port().await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&unreachable, &other.url]);
    assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1);
    assert_eq!(state(&clickhouse, Cause::Unreachable), (Some(1), vec![1, 0]));
    assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1);
    assert_eq!(other.request_count(), 2, "the second query stays at the other endpoint");
}

#[tokio::test]
async fn unanswered_query_fails_after_one_try_per_endpoint() {
    let urls = [closed_port().await, closed_port().await, closed_port().await];
    let clickhouse = client_for(&[&urls[0], &urls[1], &urls[2]]);
    assert!(clickhouse.number("asking", "SELECT 1").await.unwrap_err().may_succeed_on_retry());
    assert_eq!(state(&clickhouse, Cause::Unreachable), (Some(2), vec![1, 1, 0]));
}

#[tokio::test]
async fn refused_query_stays_at_its_endpoint() {
    let unknown = Some((404, "Code: 60. DB::Exception: Table does not exist. (UNKNOWN_TABLE)"));
    let (home, other) = (ScriptedServer::start(unknown).await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&home.url, &other.url]);
    let error = clickhouse.number("asking", "SELECT 1").await.unwrap_err();
    assert_eq!((error.code(), home.request_count(), other.request_count()), (Some(60), 1, 0));
}

#[tokio::test]
async fn query_leaves_an_endpoint_that_hangs_up_or_is_not_clickhouse() {
    let page = Some((502, "<html>Bad Gateway</html>"));
    for (answer, cause) in [(None, Cause::Unreachable), (page, Cause::NotClickHouse)] {
        let (home, other) = (ScriptedServer::start(answer).await, ScriptedServer::start(ONE).await);
        let clickhouse = client_for(&[&home.url, &other.url]);
        assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1, "{cause:?}");
        assert_eq!(state(&clickhouse, cause), (Some(1), vec![1, 0]), "{cause:?}");
    }
}

/// The answer would be too long at every endpoint. If its length counted as a failure of the
/// endpoint, milepost would leave one endpoint after the other, and log a wrong cause for each.
#[tokio::test]
async fn too_long_answer_is_no_reason_to_leave_the_endpoint() {
    let long = Some((200, &*"1\n".repeat(5 << 20).leak()));
    let (home, other) = (ScriptedServer::start(long).await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&home.url, &other.url]);
    let error = clickhouse.number("asking", "SELECT 1").await.unwrap_err();
    let chain = error_chain(&error);
    assert!(chain.contains("the answer is longer than"), "{chain}");
    assert_eq!((home.request_count(), other.request_count()), (1, 0));
}

/// A proxy may answer a query with an empty 200 while ClickHouse is down.
#[tokio::test]
async fn reading_the_migrations_fails_on_an_empty_answer() {
    let home = ScriptedServer::start(Some((200, ""))).await;
    let error = client_for(&[&home.url]).pending().await.unwrap_err();
    assert!(error.to_string().contains("reading the recorded migrations"), "{error}");
}

#[tokio::test]
async fn endpoint_that_does_not_speak_http_is_left_as_not_clickhouse() {
    let other = ScriptedServer::start(ONE).await;
    let ssh = raw_server(b"SSH-2.0-OpenSSH_9.6\r\n").await;
    let clickhouse = client_for(&[&ssh, &other.url]);
    assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1);
    assert_eq!(state(&clickhouse, Cause::NotClickHouse), (Some(1), vec![1, 0]));
}

#[tokio::test]
async fn insert_leaves_a_failing_endpoint_and_records_the_cause() {
    let (silent, ssh) =
        (ScriptedServer::start(None).await.url, raw_server(b"SSH-2.0-OpenSSH_9.6\r\n").await);
    for (home, cause) in [(silent, Cause::Unreachable), (ssh, Cause::NotClickHouse)] {
        let other = ScriptedServer::start(ONE).await;
        let clickhouse = client_for(&[&home, &other.url]);
        let attempt = Attempt { token: "t".to_owned(), timeout: TIMEOUT };
        assert!(clickhouse.insert(&one_row(), &attempt).await.is_err());
        assert_eq!(state(&clickhouse, cause), (Some(1), vec![1, 0]), "{cause:?}");
    }
}

/// Several queries run at once. One query may report a failure of the old endpoint after another
/// query has already moved to the next endpoint.
#[tokio::test]
async fn late_failure_of_the_old_endpoint_keeps_the_new_one() {
    let (unreachable, other) = (closed_port().await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&unreachable, &other.url]);
    let index = clickhouse.endpoint_in_use();
    assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1);
    clickhouse.leave_endpoint(index, Cause::NoAnswer, "no answer within 3 s");
    assert_eq!(state(&clickhouse, Cause::NoAnswer), (Some(1), vec![0, 0]));
    let index = clickhouse.endpoint_in_use();
    clickhouse.leave_endpoint(index, Cause::NoTables, "not migrated");
    assert_eq!(state(&clickhouse, Cause::NoTables), (Some(0), vec![0, 1]));
}

#[tokio::test]
async fn cause_to_leave_follows_from_the_answer() {
    let refuses = |code: u32| Some((500, &*format!("Code: {code}. DB::Exception: No.").leak()));
    for (answer, cause) in [
        (None, Some(Cause::Unreachable)),
        (Some((502, "<html>")), Some(Cause::NotClickHouse)),
        (Some((200, "a page\n")), Some(Cause::NotClickHouse)),
        (refuses(516), Some(Cause::Login)),
        (refuses(241), None),
    ] {
        let server = ScriptedServer::start(answer).await;
        let error = client_for(&[&server.url]).clock().await.unwrap_err();
        assert_eq!(error.cause_to_leave(), cause, "{error:?}");
    }
}

/// A 200 from a proxy does not prove that ClickHouse got a body of this size.
#[tokio::test]
async fn body_size_check_requires_an_answer_from_clickhouse() {
    let proxy = ScriptedServer::start(Some((200, ""))).await;
    *proxy.header.lock().unwrap() = "";
    let error = client_for(&[&proxy.url]).accepts_body_size(1 << 20).await.unwrap_err();
    let chain = error_chain(&error);
    assert!(chain.contains("X-ClickHouse-Summary"), "{chain}");
    let clickhouse = ScriptedServer::start(Some((200, ""))).await;
    assert!(client_for(&[&clickhouse.url]).accepts_body_size(1 << 20).await.unwrap());
}

#[tokio::test]
async fn statement_moves_to_the_next_endpoint_if_the_first_is_read_only() {
    let read_only_profile =
        Some((500, "Code: 164. DB::Exception: Cannot execute query. (READONLY)"));
    for answer in [READ_ONLY, read_only_profile] {
        let (home, other) =
            (ScriptedServer::start(answer).await, ScriptedServer::start(Some((200, ""))).await);
        let clickhouse = client_for(&[&home.url, &other.url]);
        clickhouse.statement("deleting", "DELETE").await.unwrap();
        assert_eq!((home.request_count(), other.request_count()), (1, 1));
        assert_eq!(state(&clickhouse, Cause::ReadOnly), (Some(1), vec![1, 0]));
    }
}

/// The first endpoint may have executed the statement without answering.
#[tokio::test]
async fn statement_without_an_answer_is_not_repeated_elsewhere() {
    let (home, other) = (ScriptedServer::start(None).await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&home.url, &other.url]);
    assert!(clickhouse.statement("deleting", "DELETE").await.is_err());
    assert_eq!(other.request_count(), 0);
}

async fn answers_one(clickhouse: &ClickHouse) -> bool {
    clickhouse.number("asking", "SELECT 1").await.is_ok_and(|number| number == 1)
}

#[tokio::test]
async fn unusable_endpoint_is_left_only_for_a_usable_one() {
    let others = [ScriptedServer::start(READ_ONLY).await, ScriptedServer::start(READ_ONLY).await];
    let clickhouse = client_for(&[&closed_port().await, &others[0].url, &others[1].url]);
    let leave = async || {
        let cause = Cause::NoTables;
        clickhouse.leave_for_usable_endpoint(cause, "not migrated", TIMEOUT, answers_one).await
    };
    assert!(!leave().await);
    assert_eq!(state(&clickhouse, Cause::NoTables), (Some(0), vec![0, 0, 0]));
    others[1].set_answer(ONE);
    assert!(leave().await);
    assert_eq!(state(&clickhouse, Cause::NoTables), (Some(2), vec![1, 0, 0]));
}

/// The password that was read at the start is still valid.
#[tokio::test]
async fn endpoint_is_left_and_used_again_while_the_password_file_is_missing() {
    let (home, other) = (ScriptedServer::start(READ_ONLY).await, ScriptedServer::start(ONE).await);
    let password_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password_file.path(), "secret\n").unwrap();
    let toml = format!(
        "mqtt.client_id = 'm-0'\n[clickhouse]\nurl = ['{}', '{}']\nreplication = 'macros'\n\
         password_file = '{}'",
        home.url,
        other.url,
        password_file.path().display()
    );
    let clickhouse = ClickHouse::new(&Config::parse(&toml).unwrap().clickhouse).unwrap();
    password_file.close().unwrap();
    let cause = Cause::NoTables;
    let left_at = Instant::now();
    assert!(
        clickhouse.leave_for_usable_endpoint(cause, "not migrated", TIMEOUT, answers_one).await
    );
    assert!(other.request().contains("x-clickhouse-key: secret"), "{}", other.request());
    home.set_answer(ONE);
    let due = left_at + Duration::from_secs(31);
    assert!(clickhouse.return_to_own_endpoint(due, TIMEOUT, answers_one).await);
}

#[tokio::test]
async fn own_endpoint_is_used_again_once_it_answers() {
    let (home, other) = (ScriptedServer::start(READ_ONLY).await, ScriptedServer::start(ONE).await);
    let clickhouse = client_for(&[&home.url, &other.url]);
    clickhouse.statement("deleting", "DELETE").await.unwrap();
    let left_at = Instant::now();
    clickhouse
        .return_to_own_endpoint(left_at + Duration::from_secs(29), TIMEOUT, answers_one)
        .await;
    assert_eq!(
        (home.request_count(), clickhouse.endpoint_in_use()),
        (1, 1),
        "after 29 s the home must not be queried yet"
    );
    clickhouse
        .return_to_own_endpoint(left_at + Duration::from_secs(31), TIMEOUT, answers_one)
        .await;
    assert_eq!(
        (home.request_count(), clickhouse.endpoint_in_use()),
        (2, 1),
        "a home that refuses the query must not be used"
    );
    home.set_answer(ONE);
    clickhouse
        .return_to_own_endpoint(left_at + Duration::from_secs(62), TIMEOUT, answers_one)
        .await;
    assert_eq!(clickhouse.endpoint_in_use(), 0);
    assert_eq!(clickhouse.number("asking", "SELECT 1").await.unwrap(), 1);
    assert_eq!(home.request_count(), 4, "the home must answer the query");
}

#[test]
fn single_host_migrations_use_only_the_own_endpoint() {
    let config = |settings: &str| {
        let urls = "url = ['http://a:1', 'http://b:1'], replication = ";
        let toml = format!("mqtt.client_id = 'm-1'\nclickhouse = {{ {urls}{settings} }}");
        Config::parse(&toml).unwrap().clickhouse
    };
    let changes_one_host = config("'macros'");
    assert!(!changes_one_host.changes_all_hosts());
    let pinned = changes_one_host.pinned();
    assert_eq!((pinned.urls, pinned.home), (vec!["http://b:1".to_owned()], 0));
    assert!(config("'macros', cluster = 'c'").changes_all_hosts());
    assert!(config("'managed'").changes_all_hosts());
}

/// `clusterAllReplicas` requires the grant REMOTE, which a writer may lack. Only `migrate` queries
/// all hosts.
#[tokio::test]
async fn field_changes_are_read_from_one_host_only() {
    let server = ScriptedServer::start(Some((200, ""))).await;
    let toml = format!(
        "[clickhouse]\nurl = '{}'\nreplication = 'macros'\ncluster = 'c'\n\
         [fields.battery]\nfrom = 'batt'\ntype = 'UInt8'",
        server.url
    );
    let clickhouse = ClickHouse::new(&Config::parse(&toml).unwrap().clickhouse).unwrap();
    clickhouse.field_changes().await.unwrap();
    assert!(server.request().contains("system.columns"), "{}", server.request());
    assert!(!server.request().contains("clusterallreplicas"), "{}", server.request());
}

/// Makes the server answer the queries of `schema_migrations` from these rows, after adding those
/// that `requests` inserts. The key is the version, the value has name and checksum.
fn record(
    server: &ScriptedServer,
    rows: &mut BTreeMap<u32, (String, String)>,
    requests: &[String],
) {
    for request in requests.iter().filter(|text| text.contains("insert into fleet.schema_mig")) {
        let (_, values) = request.split_once("values (").unwrap();
        for row in values.trim_end_matches(')').split("), (") {
            let (version, row) = row.split_once(", '").unwrap();
            let (name, checksum) = row.trim_end_matches('\'').split_once("', '").unwrap();
            rows.insert(version.parse().unwrap(), (name.to_owned(), checksum.to_owned()));
        }
    }
    let line = |(version, (name, checksum)): (&u32, &(String, String))| {
        [format!("{version}\t{name}\n"), format!("{version}\t{checksum}\n")]
    };
    let [names, checksums] = [0, 1]
        .map(|index| rows.iter().map(line).map(|lines| lines[index].clone()).collect::<String>());
    let checksums = format!("0\t\n{checksums}");
    server.set_answer_to("select version, name", Some((200, names.leak())));
    server.set_answer_to("select version, checksum", Some((200, checksums.leak())));
}

/// Without the fill, the table would lack all rows stored before. Without the later files, the view
/// would keep the query of the file that creates it.
#[tokio::test]
async fn recreation_that_was_interrupted_continues_with_the_fill_and_the_later_files() {
    const MISSING: &str = "select object, sum(hosts)";
    let server = ScriptedServer::start(Some((200, ""))).await;
    let clickhouse = client_for(&[&server.url]);
    let row = |file: &super::Migration| (file.version, (file.name.to_owned(), file.checksum()));
    let mut rows: BTreeMap<_, _> = MIGRATIONS.iter().map(row).collect();
    let recorded = rows.clone();
    record(&server, &mut rows, &[]);
    server.set_answer_to(MISSING, Some((200, "fleet.last_positions_state\t1\n")));
    let fill = "insert into fleet.last_positions_state";
    server.set_answer_to(fill, Some((504, "Gateway Time-out")));
    let error = clickhouse.migrate().await.unwrap_err();
    assert!(error.may_succeed_on_retry(), "{error:?}");
    record(&server, &mut rows, &server.take_requests());
    assert!(
        clickhouse.pending().await.unwrap().is_empty(),
        "`milepost run` must go on inserting during the fill"
    );

    server.set_answer_to(MISSING, Some((200, "")));
    server.set_answer_to(fill, Some((200, "")));
    let applied = clickhouse.migrate().await.unwrap();
    let requests = server.take_requests();
    let count = |text: &str| requests.iter().filter(|request| request.contains(text)).count();
    assert_eq!(count(fill), 1, "{applied:?}");
    assert_eq!(count("insert into fleet.event_states"), 0, "this table was not created again");
    assert!(!applied.contains(&"020_last_positions_state"), "{applied:?}");
    assert!(applied.contains(&"306_last_positions_mv"), "{applied:?}");
    record(&server, &mut rows, &requests);
    assert_eq!(rows, recorded);
    assert!(clickhouse.migrate().await.unwrap().is_empty());
}
