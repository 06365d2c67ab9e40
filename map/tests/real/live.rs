//! Tests live positions: inserted fixes appear on the map, and all viewers share one query.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use lab_stack::{Map, unix_ms, wait_until};
use serde_json::Value;

use crate::tile_format::{NamedTile, read_all};
use crate::world::{SOON, get, tiles, wait_for, whole_world, world};

/// An open page, as the server sees it: a client that reads the stream.
pub struct Viewer(BufReader<TcpStream>);

impl Viewer {
    /// Opens a stream; fails if the map refuses it.
    pub fn open(map: &Map) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", map.port))?;
        stream.set_read_timeout(Some(SOON))?;
        write!(stream, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut viewer = Self(BufReader::new(stream));
        let status = viewer.line()?;
        ensure!(status.contains(" 200 "), "{status}");
        Ok(viewer)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line)? > 0, "the stream ended");
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the next tick.
    pub fn tick(&mut self) -> Result<Value> {
        loop {
            if let Some(data) = self.line()?.strip_prefix("data: ") {
                return serde_json::from_str(data).with_context(|| data.to_owned());
            }
        }
    }

    /// Waits for the first tick for which the condition holds.
    pub fn wait_for_tick(&mut self, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let began = Instant::now();
        loop {
            let tick = self.tick()?;
            if holds(&tick) {
                return Ok(tick);
            }
            ensure!(began.elapsed() < SOON, "no such tick; the last one was {tick}");
        }
    }
}

#[test]
fn late_fix_does_not_replace_the_last_position_in_its_tile() -> Result<()> {
    let world = world("map_fix")?;
    let map = world.settings.run()?;
    ensure!(whole_world(&map)?.ids.is_empty());
    let now = unix_ms();
    world.insert("d1", now - 5_000, 25.7617, -80.1918)?;
    wait_for("d1 is there", &map, |tile| tile.ids == ["d1"] && tile.lat_e7 == [257_617_000])?;
    // A late fix does not replace the last position, whichever part of the table the fix is in. A
    // newer fix does.
    world.insert("d1", now - 60_000, 10.0, 10.0)?;
    world.insert("d2", now - 60_000, 48.0, 11.0)?;
    world.query("OPTIMIZE TABLE {db}.last_positions_state FINAL")?;
    wait_for("d2 is there, and d1 where it was", &map, |tile| {
        tile.ids.len() == 2 && tile.lat_e7.contains(&257_617_000)
    })?;
    world.insert("d1", now, 25.8, -80.1918)?;
    wait_for("d1 has moved", &map, |tile| tile.lat_e7.contains(&258_000_000))?;
    ensure!(whole_world(&map)?.speed_cms == [1_240; 2]);

    let fix = get(&map, "/api/drivers/d1", &[])?.json()?;
    ensure!(
        fix["ts"] == now && fix["speed"] == 12.4 && fix["alt"].is_null() && fix["acc"] == 3.5,
        "{fix}"
    );
    ensure!(get(&map, "/api/drivers/d3", &[])?.status == 404);
    ensure!(
        get(&map, "/api/drivers?prefix=d", &[])?.json()?["drivers"]
            == serde_json::json!(["d1", "d2"])
    );
    let in_box = get(&map, "/api/positions?bbox=-81,25,-80,26", &[])?.json()?;
    ensure!(in_box["points"].as_array().is_some_and(|points| points.len() == 1), "{in_box}");
    let since = get(
        &map,
        &format!("/api/positions?bbox=-180,-90,180,90&since={}", unix_ms() + 1_000),
        &[],
    )?
    .json()?;
    ensure!(since["points"] == serde_json::json!([]), "{since}");

    // Unchanged tiles are not sent again.
    let names =
        |parts: &[NamedTile]| parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    let first = tiles(&map, "3/2/3,3/4/2,3/0/0")?;
    ensure!(names(&first) == ["3/2/3", "3/4/2", "3/0/0"], "{first:?}");
    ensure!(first[0].tile.ids == ["d1"] && first[1].tile.ids == ["d2"], "{first:?}");
    let known = |with: &str| {
        let of = first.iter().map(|part| format!("{}:{}", part.name, part.version));
        of.chain([with.to_owned()]).collect::<Vec<_>>().join(",")
    };
    ensure!(names(&tiles(&map, &known("3/1/1"))?) == ["3/1/1"]);
    world.insert("d2", now, 48.1, 11.0)?;
    wait_for("d2 has moved", &map, |tile| tile.lat_e7.contains(&481_000_000))?;
    ensure!(
        names(&tiles(&map, &known("3/2/3:1"))?) == ["3/4/2", "3/2/3"],
        "only tiles whose version differs"
    );
    // The compressed body is the same, and has its length in the header.
    let plain = get(&map, "/api/tiles?of=3/2/3,3/4/2", &[("Accept-Encoding", "identity")])?;
    ensure!(plain.header("content-length") == plain.body.len().to_string());
    let gzip = get(&map, "/api/tiles?of=3/2/3,3/4/2", &[("Accept-Encoding", "gzip")])?;
    ensure!(gzip.header("content-encoding") == "gzip", "{:?}", gzip.headers);
    let mut unpacked = Vec::new();
    GzDecoder::new(gzip.body.as_slice()).read_to_end(&mut unpacked)?;
    ensure!(read_all(&unpacked).len() == 2);
    Ok(())
}

#[test]
fn full_read_removes_erased_drivers() -> Result<()> {
    let world = world("map_erased")?;
    world.insert("d1", unix_ms(), 1.0, 1.0)?;
    world.insert("d2", unix_ms(), 2.0, 2.0)?;
    let map = world.settings.clone().with("MAP__REREAD", "5s").run()?;
    wait_for("both are there", &map, |tile| tile.ids.len() == 2)?;
    world.query(
        "ALTER TABLE {db}.last_positions_state DELETE WHERE driver_id = 'd1' \
         SETTINGS mutations_sync = 2",
    )?;
    wait_for("d1 is gone", &map, |tile| tile.ids == ["d2"])
}

#[test]
fn twenty_viewers_cost_one_query_per_second() -> Result<()> {
    let world = world("map_viewers")?;
    world.insert("d1", unix_ms(), 1.0, 1.0)?;
    let map = world.settings.clone().with("HTTP__VIEWERS_MAX", "20").run()?;
    let mut viewers: Vec<Viewer> = (0..20).map(|_| Viewer::open(&map)).collect::<Result<_>>()?;
    let first = viewers[0].wait_for_tick(|tick| tick["generation"].as_u64() > Some(0))?;
    ensure!(first["drivers"] == 1 && first["state"] != "away", "{first}");
    let queries = || map.metric("read_seconds_count");
    let (before, began) = (queries()?, Instant::now());
    for viewer in &mut viewers {
        for _ in 0..5 {
            viewer.tick()?;
        }
    }
    let (count, seconds) = (queries()? - before, began.elapsed().as_secs_f64());
    ensure!(count <= seconds + 2.0, "{count} queries in {seconds} s");
    ensure!(map.metric("viewers")? == 20.0);
    // One more page is refused, until one of the open pages leaves.
    let refused = get(&map, "/api/stream", &[])?;
    ensure!(
        refused.status == 429
            && refused.json()?["error"].as_str().is_some_and(|error| error.contains("viewers_max"))
            && get(&map, "/api/config", &[])?.json()?["is_full"] == true
    );
    viewers.pop();
    wait_until("a permit of http.viewers_max is free", SOON, || Ok(Viewer::open(&map).is_ok()))?;
    // Tiles are cut once for all viewers.
    let cut = map.metric("tiles_cut_total")?;
    let tick = viewers[0].tick()?;
    for _ in 0..50 {
        tiles(&map, "5/16/15,5/16/16")?;
    }
    ensure!(
        viewers[0].tick()?["generation"] == tick["generation"],
        "the generation changed without an insert"
    );
    ensure!(map.metric("tiles_cut_total")? - cut <= 2.0);
    Ok(())
}

#[test]
fn stale_since_is_the_last_insert_for_later_viewers_too() -> Result<()> {
    let world = world("map_stopped")?;
    let hour_ms = 3_600_000;
    // The fix and its arrival are newer than the insert, as with wrong clocks of the device and of
    // milepost: only the time of the insert counts.
    let stopped = unix_ms() - hour_ms;
    world.query(&format!(
        "INSERT INTO {{db}}.positions (driver_id, ts, lat_e7, lng_e7, received_at, inserted_at) \
         SELECT 'd1', now64(3), 1, 1, now64(3), fromUnixTimestamp64Milli({stopped})"
    ))?;
    let map = world.settings.run()?;
    let is_stopped = |tick: &Value| {
        let off_ms = tick["since"].as_i64().unwrap_or_default() - stopped;
        tick["state"] == "stale" && off_ms.abs() < hour_ms / 10
    };
    for _ in 0..2 {
        let mut viewer = Viewer::open(&map)?;
        let mut tick = viewer.wait_for_tick(|tick| tick["generation"].as_u64() > Some(0))?;
        for _ in 0..3 {
            ensure!(is_stopped(&tick), "{tick}");
            tick = viewer.tick()?;
        }
        drop(viewer);
        wait_until_idle(&map)?;
    }
    let mut viewer = Viewer::open(&map)?;
    ensure!(is_stopped(&viewer.tick()?));
    // A late fix of a driver with newer fixes counts as a new insert, too.
    world.insert("d1", unix_ms() - hour_ms, 1.0, 1.0)?;
    let live = viewer.wait_for_tick(|tick| tick["state"] == "ok")?;
    ensure!(live["since"].as_i64() > Some(unix_ms() - hour_ms / 2), "{live}");
    Ok(())
}

/// Waits until the map reads no more positions, because no page is open.
fn wait_until_idle(map: &Map) -> Result<()> {
    let mut queries = f64::NAN;
    wait_until("the map stops querying", SOON, || {
        sleep(Duration::from_secs(3));
        let before = std::mem::replace(&mut queries, map.metric("read_seconds_count")?);
        Ok(queries == before)
    })
}

#[test]
fn names_stay_current_for_a_program_that_requests_only_names() -> Result<()> {
    let world = world("map_names_idle")?;
    let map = world.settings.run()?;
    wait_until_idle(&map)?;
    world.query("INSERT INTO {db}.drivers (driver_id, name) VALUES ('d1', 'Zoe')")?;
    wait_until("the name is read", SOON, || {
        let names = get(&map, "/api/names?of=d1", &[])?.json()?;
        Ok(names["names"][0]["name"] == "Zoe")
    })
}

#[test]
fn list_finds_a_driver_who_came_while_no_page_was_open() -> Result<()> {
    let world = world("map_list_idle")?;
    world.insert("d1", unix_ms(), 1.0, 1.0)?;
    let map = world.settings.run()?;
    wait_until_idle(&map)?;
    world.insert("d2", unix_ms(), 1.0, 1.0)?;
    world.query("INSERT INTO {db}.drivers (driver_id, name) VALUES ('d2', 'Zoe')")?;
    // The map finds names in its memory. Only the list is requested, so this request must make the
    // map renew its memory.
    wait_until("the new driver is found by name", SOON, || {
        let list = get(&map, "/api/list?find=zoe", &[])?.json()?;
        Ok(list["drivers"][0]["driver_id"] == "d2")
    })
}

#[test]
fn sigterm_ends_the_map_while_pages_are_open() -> Result<()> {
    let world = world("map_end")?;
    let mut map = world.settings.run()?;
    let mut viewer = Viewer::open(&map)?;
    viewer.tick()?;
    ensure!(map.terminate(SOON)? == 0, "{}", map.process.log()?);
    ensure!(viewer.wait_for_tick(|_| false).is_err(), "the stream has not ended");
    Ok(())
}
