//! Tests ClickHouse's summary of an INSERT. milepost relies on this summary: if the summary reports
//! fewer rows than milepost sent, the outcome counts as unknown (crates/clickhouse/src/insert.rs).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, ensure};

use crate::world::{World, world};

/// Sends an INSERT of these lines as milepost does, and returns its `written_rows`.
fn written(world: &World, table: &str, token: &str, lines: &str) -> Result<u64> {
    let url = world.engine.server.url();
    let host = url.trim_start_matches("http://");
    let statement = format!("INSERT%20INTO%20{}.{table}%20FORMAT%20JSONEachRow", world.database);
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "POST /?wait_end_of_query=1&send_progress_in_http_headers=0&async_insert=0\
         &deduplicate_blocks_in_dependent_materialized_views=1&insert_deduplication_token={token}&query={statement} HTTP/1.1\r\n\
         Host: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{lines}",
        lines.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, rest) = answer.split_once("\"written_rows\": \"").with_context(|| answer.clone())?;
    Ok(rest.split('"').next().unwrap_or_default().parse()?)
}

#[test]
fn written_rows_is_at_least_the_rows_sent_unless_the_body_is_missing() -> Result<()> {
    let world = world("written_rows")?;
    world.query(
        "CREATE TABLE {db}.plain (n UInt32) ENGINE = MergeTree ORDER BY n \
         SETTINGS non_replicated_deduplication_window = 100",
    )?;
    world.query("CREATE TABLE {db}.target (n UInt32) ENGINE = MergeTree ORDER BY n")?;
    let rows = "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n";
    ensure!(written(&world, "plain", "a", rows)? == 3);
    ensure!(
        written(&world, "plain", "a", rows)? == 3,
        "an insert with a known token must report all rows"
    );
    ensure!(
        world.query("SELECT count() FROM {db}.plain")? == "3",
        "an insert with a known token must store nothing"
    );
    ensure!(
        written(&world, "plain", "b", "")? == 0,
        "an insert without its body must report no rows"
    );
    world.query(
        "CREATE MATERIALIZED VIEW {db}.view TO {db}.target AS SELECT n FROM {db}.plain WHERE n > 1",
    )?;
    let with_view = written(&world, "plain", "c", rows)?;
    ensure!(with_view >= 3, "the rows of views may only add to the count: {with_view}");
    Ok(())
}
