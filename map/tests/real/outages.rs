//! Tests the map while ClickHouse stops, hangs and recovers.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use lab_stack::{unix_ms, wait_until};

use crate::live::Viewer;
use crate::world::{SOON, get, insert, settings, start_engine, wait_for, whole_world};

#[test]
fn map_starts_without_clickhouse_and_recovers() -> Result<()> {
    let (_engine_folder, mut server) = start_engine()?.folder_and_server();
    server.create_tables("fleet")?;
    let put = |server: &lab_stack::ClickHouse, driver: &str| {
        server.query(&insert(driver, unix_ms(), 1.0, 1.0).replace("{db}", "fleet"))
    };
    put(&server, "d1")?;
    server.kill()?;

    let folder = lab_stack::folder()?;
    let map = settings(folder.path(), &server.url()).listen()?;
    let mut viewer = Viewer::open(&map)?;
    let away = viewer.wait_for_tick(|tick| tick["state"] == "away")?;
    ensure!(away["generation"] == 0, "{away}");
    let ready = get(&map, "/readyz", &[])?;
    let reasons = String::from_utf8_lossy(&ready.body).into_owned();
    ensure!(ready.status == 503 && reasons.contains("clickhouse: "), "{reasons}");
    ensure!(
        get(&map, "/livez", &[])?.status == 200,
        "/livez fails, but a restart of the map would not help"
    );
    let tile = get(&map, "/api/tiles?of=0/0/0", &[])?;
    ensure!(
        tile.status == 503
            && tile.json()?["error"].as_str().is_some_and(|error| error.contains("ClickHouse"))
    );

    server = server.restart()?;
    viewer.wait_for_tick(|tick| tick["state"] != "away" && tick["drivers"] == 1)?;
    wait_for("d1 is on the map", &map, |tile| tile.ids == ["d1"])?;

    server.kill()?;
    let away = viewer.wait_for_tick(|tick| tick["state"] == "away")?;
    ensure!(away["drivers"] == 1 && away["since"].as_i64() > Some(unix_ms() - 600_000), "{away}");
    ensure!(whole_world(&map)?.ids == ["d1"], "the last positions are gone");
    let track = get(&map, "/api/drivers/d1/track", &[])?;
    ensure!(track.status == 503 && track.json()?["error"] == "ClickHouse does not answer");

    server = server.restart()?;
    put(&server, "d2")?;
    wait_for("d2 is on the map", &map, |tile| tile.ids.len() == 2)?;
    ensure!(get(&map, "/readyz", &[])?.status == 200);
    let log = map.process.log()?;
    ensure!(
        log.matches("trying again every second").count() == 2,
        "not one line per outage: {log}"
    );
    Ok(())
}

#[test]
fn hung_clickhouse_is_reported() -> Result<()> {
    let (_engine_folder, server) = start_engine()?.folder_and_server();
    server.create_tables("fleet")?;
    server.query(&insert("d1", unix_ms(), 1.0, 1.0).replace("{db}", "fleet"))?;
    let folder = lab_stack::folder()?;
    let map = settings(folder.path(), &server.url()).with("MAP__REREAD", "5s").listen()?;
    let mut viewer = Viewer::open(&map)?;
    viewer.wait_for_tick(|tick| tick["state"] != "away" && tick["drivers"] == 1)?;
    // Wait until the next full read is due: the map must also report an outage that begins then.
    let ticks = Cell::new(0);
    viewer.wait_for_tick(|_| ticks.replace(ticks.get() + 1) == 4)?;
    server.hang()?;
    let ticks = Cell::new(0);
    let reported = viewer.wait_for_tick(|tick| {
        ticks.set(ticks.get() + 1);
        tick["state"] == "away"
    });
    // Another loop reads the names. It must also stop waiting, and log the failed read.
    let names_failure = wait_until("the log reports the failed read of names", SOON, || {
        Ok(map.process.log()?.contains("the names of drivers cannot be read"))
    });
    server.resume()?;
    reported?;
    names_failure?;
    ensure!(
        ticks.get() > 5,
        "only {} ticks: a page that gets no ticks reports that the map is down",
        ticks.get()
    );
    viewer.wait_for_tick(|tick| tick["state"] != "away")?;
    Ok(())
}

/// Reads a request and its body. Content-Length or the last chunk marks the end of the body.
fn read_request(stream: &mut TcpStream) -> Result<String> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the request is cut off");
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let is_whole = match length {
            Some(bytes) => body.len() >= bytes,
            None => !head.contains("transfer-encoding: chunked") || body.ends_with("0\r\n\r\n"),
        };
        if is_whole {
            return Ok(text.into_owned());
        }
    }
}

/// Starts a proxy, which removes the header Accept-Encoding. Returns the proxy's URL. While
/// `is_cutting` is set, the proxy forwards only the first half of each answer about the last
/// positions. It sets Content-Length to match, so the cut answer looks complete.
fn cutting_proxy(clickhouse: &str, is_cutting: Arc<AtomicBool>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let target = clickhouse.trim_start_matches("http://").to_owned();
    let pass = move |mut client: TcpStream| -> Result<()> {
        let request = read_request(&mut client)?;
        let (head, body) = request.split_once("\r\n\r\n").context("a request has a head")?;
        let lines = head.lines().filter(|line| !line.starts_with("accept-encoding:"));
        let head = lines.collect::<Vec<_>>().join("\r\n");
        let mut server = TcpStream::connect(&target)?;
        write!(server, "{head}\r\nConnection: close\r\n\r\n{body}")?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        let (head, body) = answer.split_at(end.context("an answer has a head")? + 4);
        let is_cut = is_cutting.load(Ordering::SeqCst) && request.contains("last_positions_state");
        let body = &body[..if is_cut { body.len() / 2 } else { body.len() }];
        let head = String::from_utf8_lossy(head).into_owned();
        let lines = head.lines().filter(|line| {
            let line = line.to_ascii_lowercase();
            !line.is_empty()
                && !line.starts_with("content-length")
                && !line.starts_with("connection")
        });
        let head = lines.collect::<Vec<_>>().join("\r\n");
        let length = format!("Content-Length: {}\r\nConnection: close", body.len());
        client.write_all(format!("{head}\r\n{length}\r\n\r\n").as_bytes())?;
        Ok(client.write_all(body)?)
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let pass = pass.clone();
            std::thread::spawn(move || drop(pass(client)));
        }
    });
    Ok(url)
}

#[test]
fn truncated_full_read_removes_no_driver() -> Result<()> {
    let (_engine_folder, server) = start_engine()?.folder_and_server();
    server.create_tables("fleet")?;
    for driver in ["d1", "d2"] {
        server.query(&insert(driver, unix_ms(), 1.0, 1.0).replace("{db}", "fleet"))?;
    }
    let is_cutting = Arc::new(AtomicBool::new(false));
    let url = cutting_proxy(&server.url(), Arc::clone(&is_cutting))?;
    let folder = lab_stack::folder()?;
    let map = settings(folder.path(), &url).with("MAP__REREAD", "5s").listen()?;
    let mut viewer = Viewer::open(&map)?;
    viewer.wait_for_tick(|tick| tick["state"] != "away" && tick["drivers"] == 2)?;
    is_cutting.store(true, Ordering::SeqCst);
    let away = viewer.wait_for_tick(|tick| tick["state"] == "away" || tick["drivers"] != 2)?;
    ensure!(away["state"] == "away" && away["drivers"] == 2, "{away}");
    let log = map.process.log()?;
    ensure!(log.contains("the answer was cut off"), "{log}");
    is_cutting.store(false, Ordering::SeqCst);
    viewer.wait_for_tick(|tick| tick["state"] != "away" && tick["drivers"] == 2)?;
    Ok(())
}

#[test]
fn query_is_cancelled_when_its_client_disconnects() -> Result<()> {
    // The listener stands in for a ClickHouse that never answers.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let folder = lab_stack::folder()?;
    let map = settings(folder.path(), &format!("http://{}", listener.local_addr()?)).listen()?;
    let mut client = TcpStream::connect(("127.0.0.1", map.port))?;
    write!(client, "GET /api/drivers/d1/track HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    // A track needs two queries: points and episodes. Other connections belong to the query loop.
    let mut track_connections = Vec::new();
    while track_connections.len() < 2 {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(SOON))?;
        let text = read_request(&mut stream)?;
        for setting in [
            "readonly=2",
            "cancel_http_readonly_queries_on_client_close=1",
            "max_execution_time=",
            "max_memory_usage=",
        ] {
            ensure!(text.contains(setting), "{setting}: {text}");
        }
        if text.contains("_ask.") {
            ensure!(
                text.contains("max_rows_to_read=") && text.contains("max_execution_time=10"),
                "{text}"
            );
            track_connections.push(stream);
        }
    }
    drop(client);
    for mut stream in track_connections {
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received);
        ensure!(ended.is_ok() && received.is_empty(), "not closed by the map: {ended:?}");
    }
    // The map counts a query's duration when the query ends, and releases the query's permit then.
    wait_until("the map has ended the track's query", SOON, || {
        Ok(map.metric("question_seconds_count")? == 1.0)
    })?;
    ensure!(map.process.log()?.len() < 100_000, "{}", map.process.log()?);
    Ok(())
}

#[test]
fn view_that_reads_a_missing_table_is_retried_once() -> Result<()> {
    const MESSAGE: &str = "Code: 60. DB::Exception: Unknown table expression identifier \
                           'fleet.fences' in scope SELECT * FROM fleet.fences. (UNKNOWN_TABLE)";
    // The listener stands in for a ClickHouse without this table.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let folder = lab_stack::folder()?;
    let map = settings(folder.path(), &format!("http://{}", listener.local_addr()?)).listen()?;
    let queries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&queries);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Ok(text) = read_request(&mut stream) else { continue };
            counted.fetch_add(u32::from(text.contains("_ask.fence_visits")), Ordering::Relaxed);
            let length = MESSAGE.len();
            let _ = write!(
                stream,
                "HTTP/1.1 404 Not Found\r\nX-ClickHouse-Exception-Code: 60\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n{MESSAGE}"
            );
        }
    });
    let answer = get(&map, "/api/visits?fence=yard", &[])?;
    let why = answer.json()?.to_string();
    ensure!(answer.status == 503 && why.contains("milepost migrate"), "{why}");
    ensure!(queries.load(Ordering::Relaxed) == 2, "{queries:?}");
    Ok(())
}
