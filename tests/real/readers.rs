//! Tests milepost with readers that do not read the log, an HTTP response or the output of a
//! command, or that close it early.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Settings, free_port, get, wait_until};

use crate::world::{SOON, World, world};

/// Default capacity of a pipe on Linux, in bytes.
const PIPE_BYTES: usize = 65_536;
/// More sockets than milepost serves at the same time.
const SOCKETS: usize = 80;

/// A process that is killed when the value is dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn unread_log_stops_nothing_and_is_reported() -> Result<()> {
    let world = world("unread_log")?;
    let (mut reader, mut writer) = std::io::pipe()?;
    writer.write_all(&[b'x'; PIPE_BYTES])?; // fill the pipe: the first line of the log does not fit
    let port = free_port()?;
    let settings = world.settings.clone().with("HTTP__LISTEN", format!("127.0.0.1:{port}"));
    let mut command = settings.with("LAB__LOG_QUEUE_BYTES_MAX", "1000").command(&["run"]);
    let mut milepost = KilledOnDrop(command.stderr(writer).spawn()?);
    drop(command); // the command holds the write end of the pipe
    let ask = |path: &str| get(&format!("http://127.0.0.1:{port}{path}"));
    wait_until("milepost is ready", SOON, || Ok(ask("/readyz").is_ok()))?;
    for seq in 1..=3 {
        let payload = format!(r#"{{"lat":1,"lng":2,"ts":{},"seq":{seq}}}"#, lab_stack::unix_ms());
        world.publish(&[("drivers/d1/gps", payload.as_bytes())])?;
    }
    world.wait_for(
        "SELECT groupArray(seq) FROM (SELECT seq FROM {db}.fixes ORDER BY seq)",
        "[1,2,3]",
        SOON,
    )?;
    let answer = ask("/readyz")?;
    ensure!(answer.starts_with("ready\n") && answer.contains("nobody reads stderr"), "{answer}");
    let dropped = lab_stack::prom::value(&ask("/metrics")?, "milepost_log_lines_dropped_total");
    ensure!(dropped.is_some_and(|lines| lines > 0.0), "{dropped:?}");

    let began = Instant::now();
    ensure!(
        std::process::Command::new("kill").arg(milepost.0.id().to_string()).status()?.success()
    );
    wait_until("milepost has ended", SOON, || Ok(milepost.0.try_wait()?.is_some()))?;
    let status = milepost.0.wait()?;
    ensure!(status.code() == Some(0), "{status} after {:?}", began.elapsed());
    let mut text = Vec::new();
    reader.read_to_end(&mut text)?;
    ensure!(text.len() >= PIPE_BYTES, "{}", text.len());
    Ok(())
}

/// Requests `/metrics` until the socket is full, and reads no response. Returns the open
/// connection.
fn connect_and_never_read(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nonblocking(true)?;
    for _ in 0..20_000 {
        match stream.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => break, // milepost closed this connection in favour of a newer one
        }
    }
    Ok(stream)
}

#[test]
fn clients_that_never_read_do_not_block_probes_and_are_closed() -> Result<()> {
    let world = world("unread_http")?;
    let mut milepost = world.settings.run()?;
    let port: u16 = milepost.address().rsplit_once(':').context("host:port")?.1.parse()?;
    let _sockets: Vec<TcpStream> =
        (0..SOCKETS).map(|_| connect_and_never_read(port)).collect::<Result<_>>()?;
    for _ in 0..20 {
        for path in ["/livez", "/readyz"] {
            let began = Instant::now();
            milepost.get(path)?;
            ensure!(began.elapsed() < Duration::from_secs(20), "{path} took {:?}", began.elapsed());
        }
    }
    let mut last = connect_and_never_read(port)?;
    wait_until("the connection is closed", SOON, || {
        Ok(last.write(b"GET").is_err_and(|error| error.kind() != ErrorKind::WouldBlock))
    })?;
    ensure!(milepost.terminate(SOON)? == 0);
    Ok(())
}

/// Runs a command whose output is not read; returns its exit code and stderr.
fn run_with_closed_output(
    settings: &Settings,
    arguments: &[&str],
) -> Result<(Option<i32>, String)> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = settings.command(arguments);
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn closed_output_pipe_is_not_a_failure() -> Result<()> {
    let world = world("closed_pipe")?;
    let settings = settings_with_spool(&world)?;
    for arguments in [
        &["migrate", "--plan"][..],
        &["config"],
        &["check"],
        &["check", "--json"],
        &["spool", "list"],
        &["erase", "--driver", "d1"],
        &["rejects", "replay", "--reason", "too_new"],
        &["--help"],
    ] {
        let (code, stderr) = run_with_closed_output(&settings, arguments)?;
        ensure!(
            code == Some(0) && !stderr.contains("panicked"),
            "{arguments:?}: {code:?} {stderr}"
        );
    }
    // A failing command keeps its exit code, even if nobody reads its output.
    let unreachable = settings.clone().with("CLICKHOUSE__URL", "http://127.0.0.1:1");
    let (code, stderr) = run_with_closed_output(&unreachable, &["check"])?;
    ensure!(code == Some(1) && stderr.is_empty(), "{code:?} {stderr}");
    Ok(())
}

/// Returns settings with a spool of one file. The file is named like a batch of seven positions,
/// but its content is not a batch.
fn settings_with_spool(world: &World) -> Result<Settings> {
    let dir = world.folder.path().join("spool");
    std::fs::create_dir(&dir)?;
    std::fs::write(dir.join("00000000000000000042-7-730194.batch"), b"not a batch")?;
    Ok(world.settings.clone().with("SPOOL__DIR", dir.to_string_lossy()))
}

#[test]
fn every_printed_table_is_available_as_json() -> Result<()> {
    let world = world("tables_as_json")?;
    let settings = settings_with_spool(&world)?;
    let fences = world.folder.path().join("fences.json");
    std::fs::write(&fences, r#"{"type":"FeatureCollection","features":[]}"#)?;
    let fences = fences.to_string_lossy();
    let json = |arguments: &[&str]| -> Result<serde_json::Value> {
        let output = settings.command(arguments).arg("--json").output()?;
        let text = String::from_utf8(output.stdout)?;
        serde_json::from_str(&text).with_context(|| format!("{arguments:?}: {text}"))
    };
    let list = json(&["spool", "list"])?;
    ensure!(list["batches"] == 1 && list["files"][0]["positions"] == 7, "{list}");
    ensure!(json(&["check"])?["checks"].is_array());
    let erase = json(&["erase", "--driver", "d1"])?;
    ensure!(
        erase["dry_run"] == true
            && erase["tables"].as_array().is_some_and(|tables| !tables.is_empty()),
        "{erase}"
    );
    ensure!(json(&["rejects", "replay", "--reason", "too_new"])?["rejects"] == 0);
    ensure!(json(&["fences", "import", "--dry-run", &fences])?["imported"] == false);
    let drain = json(&["drain", "--client-id", "nobody", "--leave", "--within", "1m"])?;
    ensure!(drain["sessions_found"] == 0 && drain["done"] == true, "{drain}");
    Ok(())
}
