//! Tests everything that the page shows besides positions: states, names, days, files, visits,
//! alerts, streets.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Map, unix_ms, wait_until};

use crate::world::{Answer, SOON, get, insert, tiles, world};

fn post(map: &Map, path: &str, kind: &str, body: &str) -> Result<Answer> {
    post_as(map, "", path, kind, body)
}

/// Sends a POST request as a viewer whom a proxy names.
fn post_as(map: &Map, user: &str, path: &str, kind: &str, body: &str) -> Result<Answer> {
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
    let request = config.build().new_agent().post(format!("{}{path}", map.url()));
    let mut answer = request.header("Content-Type", kind).header("X-User", user).send(body)?;
    Ok(Answer {
        status: answer.status().as_u16(),
        headers: answer.headers().clone(),
        body: answer.body_mut().read_to_vec()?,
    })
}

#[test]
fn long_silent_drivers_are_hidden_unless_asked_for() -> Result<()> {
    let world = world("map_states")?;
    world.insert("now", unix_ms(), 48.0, 11.0)?;
    world.insert("hour", unix_ms() - 3_600_000, 48.1, 11.0)?;
    world.insert("year", unix_ms() - 200 * 86_400_000, 48.2, 11.0)?;
    let map = world.settings.run()?;
    let shown = |states: &str| -> Result<String> {
        let mut ids = tiles(&map, &format!("0/0/0{states}"))?.pop().context("a tile")?.tile.ids;
        ids.sort();
        Ok(ids.join(" "))
    };
    ensure!(shown("")? == "hour now", "{}", shown("")?);
    ensure!(shown("&states=silent")? == "hour");
    ensure!(shown("&states=moving,hidden")? == "now year");
    ensure!(get(&map, "/api/tiles?of=0/0/0&states=asleep", &[])?.status == 400);
    // All three were last seen at 12.4 m/s, but only a driver with a recent fix counts as driving.
    let listed = |query: &str| -> Result<Vec<String>> {
        let list = get(&map, &format!("/api/list?{query}"), &[])?.json()?;
        let drivers = list["drivers"].as_array().context("drivers")?.clone();
        Ok(drivers
            .iter()
            .filter_map(|driver| driver["driver_id"].as_str().map(str::to_owned))
            .collect())
    };
    ensure!(listed("faster=5")? == ["now"], "{:?}", listed("faster=5")?);
    ensure!(listed("silent=0")? == ["hour", "now"]);
    ensure!(listed("hidden=true")? == ["hour", "now", "year"]);
    Ok(())
}

#[test]
fn stored_names_are_found_in_searches_and_lists() -> Result<()> {
    let world = world("map_names")?;
    for driver in ["van-1", "van-2", "TRUCK-7"] {
        world.insert(driver, unix_ms(), 48.0, 11.0)?;
    }
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let csv = "driver_id,name,group,phone\nvan-1,\"Müller, Anna\",north,+49 1\nvan-2,Ben,south,\n";
    let stored = post(&map, "/api/cards", "text/csv", csv)?;
    ensure!(
        stored.status == 200 && stored.json()?["stored"] == 2,
        "{}",
        String::from_utf8_lossy(&stored.body)
    );
    let json = r#"[{"driver_id":"van-2","name":"Benno","group":"south"}]"#;
    ensure!(post(&map, "/api/cards", "application/json", json)?.status == 200);
    let many = format!("[{}]", vec![r#"{"driver_id":"x"}"#; 20_001].join(","));
    for (kind, wrong) in [
        ("text/csv", "driver_id\na b"),
        ("application/json", r#"[{"id":"x"}]"#),
        ("application/json", &*many),
        ("text/plain", ""),
    ] {
        ensure!(post(&map, "/api/cards", kind, wrong)?.status == 400, "{kind} {wrong}");
    }
    let found = |text: &str| -> Result<String> {
        let found = get(&map, &format!("/api/drivers?find={text}"), &[])?.json()?;
        let ids = found["drivers"].as_array().context("drivers")?.clone();
        Ok(ids.iter().filter_map(|id| id.as_str()).collect::<Vec<_>>().join(" "))
    };
    wait_until("the names are read", SOON, || Ok(found("benno")? == "van-2"))?;
    ensure!(
        found("m%C3%9CLL")? == "van-1"
            && found("ruck")? == "TRUCK-7"
            && found("AN")? == "van-1 van-2"
    );
    ensure!(found("7")? == "TRUCK-7" && found("nobody")?.is_empty());
    let names = get(&map, "/api/names?of=van-1,TRUCK-7", &[])?.json()?;
    ensure!(
        names["names"][0]["name"] == "Müller, Anna" && names["names"][1]["name"] == "",
        "{names}"
    );
    let list = get(&map, "/api/list?group=north", &[])?.json()?;
    ensure!(list["drivers"][0]["name"] == "Müller, Anna" && list["drivers"][1].is_null(), "{list}");
    let list = get(&map, "/api/list?find=benno", &[])?.json()?;
    ensure!(list["drivers"][0]["driver_id"] == "van-2" && list["drivers"][1].is_null(), "{list}");
    // A file without a column keeps the stored values of that column.
    let names = "driver_id,name\nvan-1,\"Müller, Anna\"\nvan-3,Cem\n";
    ensure!(post(&map, "/api/cards", "text/csv", names)?.status == 200);
    let card = get(&map, "/api/drivers/van-1/attributes", &[])?.json()?;
    ensure!(card["card"]["phone"] == "+49 1" && card["card"]["group"] == "north", "{card}");
    let config = get(&map, "/api/config", &[])?.json()?;
    ensure!(config["groups"] == serde_json::json!(["north", "south"]), "{config}");
    Ok(())
}

#[test]
fn list_finds_a_driver_among_more_than_an_answer_holds() -> Result<()> {
    let world = world("map_long_list")?;
    // 600 drivers, of whom only the last is fast.
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, \
         alt_dm, acc_dm, received_at) \
         SELECT concat('van-', toString(1000 + number)), now64(3), 0, 480000000, 110000000, \
         if(number = 599, 3000, 500), 0, 2147483647, 35, now64(3) FROM numbers(600)",
    )?;
    world.query(
        "INSERT INTO {db}.drivers (driver_id, name) \
         SELECT concat('van-', toString(1000 + number)), concat('Anna ', toString(number)) \
         FROM numbers(600)",
    )?;
    let map = world.settings.run()?;
    wait_until("the names are read", SOON, || {
        let found = get(&map, "/api/drivers?find=anna+599", &[])?.json()?;
        Ok(found["drivers"][0] == "van-1599")
    })?;
    let list = get(&map, "/api/list?find=VAN&faster=20", &[])?.json()?;
    ensure!(list["drivers"][0]["driver_id"] == "van-1599" && list["truncated"] == false, "{list}");
    // More names match than an answer may hold, so the answer says that drivers may be missing.
    for path in ["/api/list?find=van", "/api/list?find=anna", "/api/list?find=anna&faster=20"] {
        let list = get(&map, path, &[])?.json()?;
        ensure!(list["truncated"] == true, "{path}: {list}");
    }
    Ok(())
}

#[test]
fn concurrent_changes_of_one_card_are_all_stored() -> Result<()> {
    let world = world("map_card_changes")?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let send = |csv: String| {
        let url = format!("{}/api/cards", map.url());
        std::thread::spawn(move || {
            let answer = ureq::post(url).header("Content-Type", "text/csv").send(csv.as_str());
            answer.map(|answer| answer.status().as_u16())
        })
    };
    for round in 0..20 {
        let changes = [
            send(format!("driver_id,name\nvan-1,Anna {round}\n")),
            send(format!("driver_id,phone\nvan-1,{round}\n")),
        ];
        for change in changes {
            ensure!(change.join().expect("the thread does not panic")? == 200);
        }
        let stored =
            world.query("SELECT name, phone FROM {db}.drivers FINAL WHERE driver_id = 'van-1'")?;
        ensure!(stored == format!("Anna {round}\t{round}"), "{stored}");
    }
    Ok(())
}

#[test]
fn names_come_from_attributes_where_the_table_has_none() -> Result<()> {
    let world = world("map_attribute_names")?;
    for (driver, name) in [("d1", "Anna"), ("d2", "Ben")] {
        world.insert(driver, unix_ms() - 1_000, 48.0, 11.0)?;
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at, attributes) \
             SELECT '{driver}', now64(3), 1, 480000000, 110000000, 0, 0, 0, 0, now64(3), \
             map('who', '{name}', 'team', 'north')"
        ))?;
    }
    world.query("INSERT INTO {db}.drivers (driver_id, name) VALUES ('d2', 'Benno')")?;
    let settings = world
        .settings
        .clone()
        .with("MAP__NAME_ATTRIBUTE", "who")
        .with("MAP__GROUP_ATTRIBUTE", "team");
    let map = settings.run()?;
    wait_until("the names are read", SOON, || {
        let names = get(&map, "/api/names?of=d1,d2", &[])?.json()?;
        let name = |index: usize| {
            (names["names"][index]["name"].clone(), names["names"][index]["group"].clone())
        };
        Ok(name(0) == ("Anna".into(), "north".into())
            && name(1) == ("Benno".into(), "north".into()))
    })?;
    let list = get(&map, "/api/list?group=north", &[])?.json()?;
    ensure!(list["drivers"].as_array().is_some_and(|drivers| drivers.len() == 2), "{list}");
    Ok(())
}

#[test]
fn field_has_its_comment_and_unit() -> Result<()> {
    let world = world("map_fields")?;
    // The columns that `milepost migrate` creates for two `[fields.NAME]`.
    world.query(
        "ALTER TABLE {db}.last_positions_state \
         ADD COLUMN battery Nullable(UInt8) MATERIALIZED toUInt8OrNull(attributes['batt']), \
         ADD COLUMN due Nullable(DateTime64(3, 'UTC')) \
         MATERIALIZED parseDateTime64BestEffortOrNull(attributes['due'], 3, 'UTC')",
    )?;
    world.query(
        "CREATE OR REPLACE VIEW {db}.last_positions (driver_id String, ts DateTime64(3, 'UTC'), \
         attributes Map(String, String), \
         battery Nullable(UInt8) COMMENT 'Charge, in per cent [field from batt; max 100]', \
         due Nullable(DateTime64(3, 'UTC')) COMMENT '[field from due]') \
         AS SELECT driver_id, ts, attributes, battery, due FROM {db}.last_positions_state FINAL",
    )?;
    let report = |driver: &str, attributes: &str| {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at, attributes) \
             SELECT '{driver}', now64(3), 1, 480000000, 110000000, 0, 0, 0, 0, now64(3), \
             {attributes}"
        ))
    };
    report("d1", "map('batt', '80', 'due', '2026-11-26T08:00:00Z')")?;
    report("d2", "map('batt', 'full')")?;
    let map = world.settings.run()?;
    let attributes_of =
        |driver: &str| get(&map, &format!("/api/drivers/{driver}/attributes"), &[])?.json();
    let [known, unknown] = [attributes_of("d1")?, attributes_of("d2")?];
    let battery = serde_json::json!({
        "name": "battery", "type": "UInt8", "comment": "Charge", "unit": "per cent",
        "from": ["batt"], "value": "80",
    });
    ensure!(known["fields"][0] == battery, "{known}");
    ensure!(known["fields"][1]["value"] == "1795680000000", "{known}");
    ensure!(known["attributes"]["batt"] == "80", "{known}");
    ensure!(unknown["fields"][0]["value"].is_null(), "{unknown}");
    // `milepost migrate --drop-field battery`, while the map knows the columns.
    world.query(
        "CREATE OR REPLACE VIEW {db}.last_positions (driver_id String, ts DateTime64(3, 'UTC'), \
         attributes Map(String, String), \
         due Nullable(DateTime64(3, 'UTC')) COMMENT '[field from due]') \
         AS SELECT driver_id, ts, attributes, due FROM {db}.last_positions_state FINAL",
    )?;
    report("d1", "map('due', '2026-11-26T08:00:00Z')")?;
    wait_until("the response is about the newest fix", SOON, || {
        let known = attributes_of("d1")?;
        Ok(known["fields"].as_array().is_some_and(|fields| fields.len() == 1)
            && known["fields"][0]["value"] == "1795680000000")
    })
}

#[test]
fn track_file_has_all_fixes() -> Result<()> {
    let world = world("map_files")?;
    let noon = 1_790_000_000_000_i64 / 86_400_000 * 86_400_000 + 43_200_000;
    for n in 0..5 {
        world.insert("d1", noon + n * 1_000, 48.0, 11.0)?;
        world.insert("d1", noon - 2 * 86_400_000 + n * 1_000, 48.0, 11.0)?;
    }
    let map = world.settings.run()?;
    let span = format!("from={}&to={}", noon - 1, noon + 10_000);
    let csv = get(&map, &format!("/api/drivers/d1/track?{span}&format=csv"), &[])?;
    let text = String::from_utf8(csv.body.clone())?;
    ensure!(
        text.lines().count() == 6
            && text.lines().nth(1).is_some_and(|line| line.contains(",48,11,,12.4,271")),
        "{text}"
    );
    ensure!(csv.header("content-disposition") == "attachment; filename=\"d1.csv\"");
    let gpx = get(&map, &format!("/api/drivers/d1/track?{span}&format=gpx"), &[])?;
    let text = String::from_utf8(gpx.body.clone())?;
    ensure!(
        text.matches("<trkpt lat=\"48\" lon=\"11\"><time>").count() == 5
            && text.ends_with("</gpx>\n"),
        "{text}"
    );
    ensure!(get(&map, "/api/drivers/d1/track?format=doc", &[])?.status == 400);
    let month = format!("from={}&to={}", noon - 10 * 86_400_000, noon + 86_400_000);
    let days = get(&map, &format!("/api/drivers/d1/days?{month}&tz=Asia/Tokyo"), &[])?.json()?;
    ensure!(days["days"].as_array().is_some_and(|days| days.len() == 2), "{days}");
    ensure!(get(&map, &format!("/api/drivers/d1/days?{month}&tz=no'where"), &[])?.status == 400);
    let unknown = get(&map, &format!("/api/drivers/d1/days?{month}&tz=Mars/Base"), &[])?;
    let why = unknown.json()?.to_string();
    ensure!(unknown.status == 400 && why.contains("not a time zone"), "{why}");
    Ok(())
}

/// A list of all drivers, which a company uploads every week, still names an erased driver.
#[test]
fn nothing_of_an_erased_driver_is_stored() -> Result<()> {
    let world = world("map_erased_writes")?;
    world.query(
        "INSERT INTO {db}.erased (driver_id, is_lifted, written_at) VALUES ('gone', 0, now64(3)), \
         ('back', 0, now64(3) - 60), ('back', 1, now64(3))",
    )?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let csv = "driver_id,name\nvan-1,Anna\ngone,Ben\nback,Cem\n";
    let stored = post(&map, "/api/cards", "text/csv", csv)?;
    ensure!(
        stored.status == 200
            && stored.json()? == serde_json::json!({"stored": 2, "erased": ["gone"]}),
        "{}",
        String::from_utf8_lossy(&stored.body)
    );
    let acknowledge = |driver: &str| {
        let alert = format!(
            r#"{{"driver_id":"{driver}","ts":1795514400000,"seq":1,"kind":"fast","fence":""}}"#
        );
        post(&map, "/api/alerts/seen", "application/json", &alert)
    };
    let refused = acknowledge("gone")?;
    ensure!(refused.status == 409 && String::from_utf8_lossy(&refused.body).contains("is erased"));
    ensure!(acknowledge("back")?.status == 200);
    for (table, expected) in [("drivers", "['back','van-1']"), ("alerts_seen", "['back']")] {
        let ids =
            world.query(&format!("SELECT groupArraySorted(9)(driver_id) FROM {{db}}.{table}"))?;
        ensure!(ids.trim() == expected, "{table}: {ids}");
    }
    Ok(())
}

/// Starts a proxy to the engine that delays each statement that contains `text`. Drops the
/// statement if its client has closed the connection meanwhile. Returns the proxy's URL.
fn slow_proxy(engine: u16, text: &'static [u8], delay: Duration) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || -> Result<()> {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(("127.0.0.1", engine))?;
            let (mut answers, mut to_client) = (server.try_clone()?, client.try_clone()?);
            std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut buffer = [0; 65_536];
                loop {
                    let read = client.read(&mut buffer)?;
                    if read == 0 {
                        return server.shutdown(Shutdown::Both);
                    }
                    if buffer[..read].windows(text.len()).any(|bytes| bytes == text) {
                        std::thread::sleep(delay);
                        client.set_nonblocking(true)?;
                        if client.peek(&mut [0]).is_ok_and(|read| read == 0) {
                            return server.shutdown(Shutdown::Both);
                        }
                        client.set_nonblocking(false)?;
                    }
                    server.write_all(&buffer[..read])?;
                }
            });
        }
        Ok(())
    });
    Ok(url)
}

/// `milepost erase` finds rows that are written up to 40 s after it wrote the list.
#[test]
fn nothing_is_stored_with_a_late_list_of_erased_drivers() -> Result<()> {
    let world = world("map_late_list")?;
    let url = slow_proxy(world.engine.server.port, b".erased FINAL", Duration::from_secs(30))?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let settings = settings.with("CLICKHOUSE__QUERY_TIMEOUT", "2m").with("FENCES__USER", "default");
    let map = settings.run()?;
    let seen = r#"{"driver_id":"van-1","ts":1795514400000,"seq":1,"kind":"fast","fence":""}"#;
    for (path, kind, body) in [
        ("/api/cards", "text/csv", "driver_id,name\nvan-1,Anna\n"),
        ("/api/alerts/seen", "application/json", seen),
    ] {
        let refused = post(&map, path, kind, body)?;
        let why = String::from_utf8_lossy(&refused.body);
        ensure!(
            refused.status == 503 && why.contains("could not be read in time"),
            "{path}: {} {why}",
            refused.status
        );
    }
    for table in ["drivers", "alerts_seen"] {
        assert_eq!(world.query(&format!("SELECT count() FROM {{db}}.{table}"))?, "0", "{table}");
    }
    Ok(())
}

/// The proxy holds the insert for a minute, unless the map closes the connection before.
#[test]
fn nothing_is_stored_long_after_the_list_of_erased_drivers_was_read() -> Result<()> {
    let world = world("map_old_list")?;
    let delay = Duration::from_secs(60);
    let url = slow_proxy(world.engine.server.port, b".drivers (driver_id, name", delay)?;
    let settings = world.settings.clone().with("CLICKHOUSE__URL", url);
    let settings = settings.with("CLICKHOUSE__QUERY_TIMEOUT", "2m").with("FENCES__USER", "default");
    let map = settings.run()?;
    let refused = post(&map, "/api/cards", "text/csv", "driver_id,name\nvan-1,Anna\n")?;
    let why = String::from_utf8_lossy(&refused.body);
    ensure!(refused.status == 503 && why.contains("did not answer within 3"), "{why}");
    std::thread::sleep(Duration::from_secs(30));
    assert_eq!(world.query("SELECT count() FROM {db}.drivers")?, "0");
    Ok(())
}

#[test]
fn alert_is_acknowledged_for_every_viewer() -> Result<()> {
    let world = world("map_alerts")?;
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, seq, kind, fence, lat, lng, speed, \
         known_at) VALUES \
         ('d1', '2026-11-01 08:00:00.5', 3, 'fast', '', 48, 11, 40, now64(3)), \
         ('d2', '2026-11-01 08:00:00', 0, 'left', 'yard', 48, 11, NULL, now64(3) - 5)",
    )?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let alerts = || get(&map, "/api/alerts", &[])?.json();
    let before = alerts()?;
    ensure!(
        before["alerts"][0]["kind"] == "fast" && before["alerts"][0]["seen_at"] == 0,
        "{before}"
    );
    ensure!(before["alerts"][1]["fence"] == "yard" && before["alerts"][2].is_null(), "{before}");
    let seen = before["alerts"][0].to_string();
    ensure!(post(&map, "/api/alerts/seen", "application/json", &seen)?.status == 200);
    let after = alerts()?;
    ensure!(
        after["alerts"][0]["seen_at"].as_i64() > Some(0) && after["alerts"][1]["seen_at"] == 0,
        "{after}"
    );
    Ok(())
}

#[test]
fn missing_optional_table_disables_only_its_own_part() -> Result<()> {
    let world = world("map_missing_tables")?;
    world.insert("d1", unix_ms() - 1_000, 48.0, 11.0)?;
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, \
         alt_dm, acc_dm, received_at, attributes) \
         SELECT 'd1', now64(3), 1, 480000000, 110000000, 0, 0, 0, 0, now64(3), \
         map('who', 'Anna', 'team', 'north')",
    )?;
    world.query(
        "INSERT INTO {db}.events (driver_id, ts, seq, kind, fence, lat, lng, speed, \
         known_at) VALUES \
         ('d1', '2026-11-01 08:00:00', 0, 'left', 'yard', 48, 11, NULL, now64(3))",
    )?;
    for table in ["alerts_seen", "drivers", "fences"] {
        world.query(&format!("DROP TABLE {{db}}.{table} SYNC"))?;
    }
    let settings = world.settings.clone().with("MAP__NAME_ATTRIBUTE", "who");
    let settings = settings.with("MAP__GROUP_ATTRIBUTE", "team").with("FENCES__USER", "default");
    let settings = settings.with("HTTP__BEHIND_PROXY", "true").with("HTTP__USER_HEADER", "X-User");
    let map = settings.with("ACCESS__VIEWERS", "ada: *,ben: north").run()?;
    let as_user = |name: &'static str, path: &str| get(&map, path, &[("X-User", name)]);
    wait_until("the names are read", SOON, || {
        Ok(as_user("ada", "/api/names?of=d1")?.json()?["names"][0]["name"] == "Anna")
    })?;
    for user in ["ada", "ben"] {
        let alerts = as_user(user, "/api/alerts")?.json()?;
        let first = &alerts["alerts"][0];
        ensure!(first["fence"] == "yard" && first["seen_at"] == 0, "{user}: {alerts}");
        ensure!(
            alerts["hint"].as_str().is_some_and(|hint| hint.contains("alerts_seen")),
            "{alerts}"
        );
        for path in ["/api/list?group=north", "/api/list"] {
            let list = as_user(user, path)?.json()?;
            ensure!(list["drivers"][0]["driver_id"] == "d1", "{user} {path}: {list}");
        }
        let past =
            as_user(user, &format!("/api/past?bbox=10,47,12,49&from={}", unix_ms() - 60_000))?
                .json()?;
        ensure!(past["ids"][0] == "d1", "{user}: {past}");
        let fences = as_user(user, "/api/fences")?.json()?;
        ensure!(fences["features"].as_array().is_some_and(Vec::is_empty), "{user}: {fences}");
        ensure!(fences["hint"].as_str().is_some_and(|hint| hint.contains("fences")), "{fences}");
        ensure!(as_user(user, "/api/drivers/d1/attributes")?.status == 200);
    }
    let fence = r#"{"type":"Feature","properties":{"name":"yard"},"geometry":
        {"type":"Polygon","coordinates":[[[11,48],[11.1,48],[11.1,48.1],[11,48]]]}}"#;
    let seen = r#"{"driver_id":"d1","ts":1,"seq":0,"kind":"left","fence":"yard"}"#;
    for (path, kind, body) in [
        ("/api/alerts/seen", "application/json", seen),
        ("/api/cards", "text/csv", "driver_id,name\nd1,Anne"),
        ("/api/fences", "application/geo+json", fence),
    ] {
        let answer = post_as(&map, "ada", path, kind, body)?;
        let why = answer.json()?;
        ensure!(
            answer.status == 503 && why.to_string().contains("milepost migrate"),
            "{path}: {} {why}",
            answer.status
        );
    }
    world.query("DROP TABLE {db}.events SYNC")?;
    wait_until("the shared answer ages", SOON, || {
        let alerts = as_user("ada", "/api/alerts")?.json()?;
        Ok(alerts["alerts"].as_array().is_some_and(Vec::is_empty)
            && alerts["hint"].as_str().is_some_and(|hint| hint.contains("events")))
    })?;
    let log = map.process.log()?;
    for table in ["alerts_seen", "drivers", "fences", "events"] {
        let lines = log.lines().filter(|line| {
            line.contains("milepost migrate") && line.contains(&format!("table={table:?}"))
        });
        ensure!(lines.count() == 1, "{table}: {log}");
    }
    Ok(())
}

#[test]
fn fence_rules_are_edited_and_survive_a_rename() -> Result<()> {
    let world = world("map_fence_rules")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons, silent_for_s) \
         VALUES ('yard', [[[(10, 47), (12, 47), (12, 48)]]], 900)",
    )?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let put = |properties: &str| {
        let ring = "[[[10,47],[12,47],[12,48],[10,47]]]";
        let feature = format!(
            r#"{{"type":"Feature","properties":{properties},"geometry":{{"type":"Polygon","coordinates":{ring}}}}}"#
        );
        post(&map, "/api/fences", "application/geo+json", &feature)
    };
    let rules = r#"{"name":"yard","speed_limit_kmh":30.5,"stay_max_s":600,"hours":"Mo-Fr 06:00-18:00","hours_zone":"Europe/Berlin","drivers":["d1"]}"#;
    let answer = put(rules)?;
    ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    ensure!(put(r#"{"name":"gate","was":"yard","stay_max_s":null}"#)?.status == 200);
    let stored = "SELECT name, speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, \
                  drivers, valid_until > now64(3) \
                  FROM (SELECT * FROM {db}.fences FINAL ORDER BY valid_until)";
    let yard = "yard\t30.5\t600\t900\tMo-Fr 06:00-18:00\tEurope/Berlin\t['d1']\t0";
    let gate = "gate\t30.5\t\\N\t900\tMo-Fr 06:00-18:00\tEurope/Berlin\t['d1']\t1";
    assert_eq!(world.query(stored)?, format!("{yard}\n{gate}"));
    let shown = get(&map, "/api/fences", &[])?.json()?;
    let properties = &shown["features"][0]["properties"];
    ensure!(properties["speed_limit_kmh"] == 30.5 && properties["drivers"][0] == "d1", "{shown}");
    ensure!(properties["stay_max_s"].is_null() && properties["silent_for_s"] == 900, "{shown}");
    // Omitted rules stay, and so does an omitted outline.
    let feature = r#"{"type":"Feature","properties":{"name":"gate","silent_for_s":60}}"#;
    ensure!(post(&map, "/api/fences", "application/geo+json", feature)?.status == 200);
    let gate = "SELECT silent_for_s, stay_max_s, hours, length(polygons[1][1]) \
                FROM {db}.fences FINAL WHERE name = 'gate'";
    assert_eq!(world.query(gate)?, "60\t\\N\tMo-Fr 06:00-18:00\t4");
    for wrong in [
        r#"{"name":"gate","hours_zone":"Mars/Olympus"}"#,
        r#"{"name":"gate","hours":"8 to 5"}"#,
        r#"{"name":"gate","drivers":["a b"]}"#,
    ] {
        ensure!(put(wrong)?.status == 400, "{wrong}");
    }
    Ok(())
}

#[test]
fn fence_with_thousands_of_points_and_drivers_is_stored() -> Result<()> {
    let world = world("map_long_fence")?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let point = |index: i32| {
        let angle = f64::from(index % 4_500) / 4_500.0 * std::f64::consts::TAU;
        [11.0 + 0.1 * angle.cos(), 48.0 + 0.1 * angle.sin()]
    };
    let ring: Vec<[f64; 2]> = (0..=4_500).map(point).collect();
    let drivers: Vec<String> = (0..10_000).map(|id| format!("driver-{id}")).collect();
    let feature = serde_json::json!({
        "type": "Feature",
        "properties": { "name": "city", "drivers": drivers },
        "geometry": { "type": "Polygon", "coordinates": [ring] },
    });
    let feature = feature.to_string();
    let renamed =
        r#"{"type":"Feature","properties":{"name":"town","was":"city","stay_max_s":600}}"#;
    for body in [feature.as_str(), renamed] {
        let answer = post(&map, "/api/fences", "application/geo+json", body)?;
        ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    }
    let stored = "SELECT name, length(polygons[1][1]), length(drivers), drivers[10000] \
                  FROM {db}.fences FINAL ORDER BY valid_until";
    let row = |name: &str| format!("{name}\t4501\t10000\tdriver-9999");
    assert_eq!(world.query(stored)?, format!("{}\n{}", row("city"), row("town")));
    Ok(())
}

#[test]
fn answer_without_all_fences_says_so() -> Result<()> {
    let world = world("map_many_fences")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) \
         SELECT toString(100000 + number), [[[(10, 47), (12, 47), (12, 48)]]] FROM numbers(5000)",
    )?;
    let map = world.settings.run()?;
    let shown = || get(&map, "/api/fences", &[])?.json();
    let all = shown()?;
    ensure!(all["features"].as_array().is_some_and(|all| all.len() == 5_000));
    ensure!(all["hint"].is_null(), "{}", all["hint"]);
    world.query(
        "INSERT INTO {db}.fences (name, polygons) \
         VALUES ('yard', [[[(10, 47), (12, 47), (12, 48)]]])",
    )?;
    let cut = shown()?;
    ensure!(cut["features"].as_array().is_some_and(|cut| cut.len() == 5_000));
    let hint = cut["hint"].as_str().unwrap_or_default();
    ensure!(hint.contains("first 5000 fences"), "{hint}");
    Ok(())
}

#[test]
fn fences_without_columns_of_rules_are_shown_and_edited() -> Result<()> {
    let world = world("map_no_rules")?;
    let drops = ["speed_limit_kmh", "stay_max_s", "silent_for_s", "hours", "hours_zone", "drivers"]
        .map(|column| format!("DROP COLUMN {column}"));
    world.query(&format!("ALTER TABLE {{db}}.fences {}", drops.join(", ")))?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let yard = r#"{"type":"Feature","properties":{"name":"yard"},"geometry":{"type":"Polygon","coordinates":[[[10,47],[12,47],[12,48],[10,47]]]}}"#;
    let answer = post(&map, "/api/fences", "application/geo+json", yard)?;
    ensure!(answer.status == 200, "{}", String::from_utf8_lossy(&answer.body));
    let shown = get(&map, "/api/fences", &[])?.json()?;
    ensure!(shown["features"][0]["properties"]["name"] == "yard", "{shown}");
    Ok(())
}

#[test]
fn driver_inside_stays_inside_when_a_newer_fix_is_not_counted() -> Result<()> {
    let world = world("map_inside")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) \
         VALUES ('yard', [[[(10.9, 47.9), (11.1, 47.9), (11.1, 48.1), (10.9, 48.1)]]])",
    )?;
    let now = unix_ms();
    for driver in ["newer", "inaccurate", "left"] {
        world.insert(driver, now - 60_000, 48.0, 11.0)?;
        world.insert(driver, now - 50_000, 48.0, 11.0)?;
    }
    // A fix that was inserted after the query had begun to read `positions`.
    world.query(
        &insert("newer", now - 1_000, 48.0, 11.0)
            .replace(".positions (", ".last_positions_state ("),
    )?;
    world.query(&insert("inaccurate", now - 1_000, 48.0, 11.0).replace(" 35,", " 3500,"))?;
    world.insert("left", now - 1_000, 49.0, 11.0)?;
    let map = world.settings.run()?;
    let inside = |path: &str| -> Result<Vec<(String, bool)>> {
        let visits = get(&map, path, &[])?.json()?;
        let visits = visits["visits"].as_array().context("visits")?.clone();
        let row = |visit: &serde_json::Value| {
            (visit["driver_id"].as_str().unwrap_or("").to_owned(), visit["is_inside"] == true)
        };
        Ok(visits.iter().map(row).collect())
    };
    let expected = [("inaccurate", true), ("newer", true), ("left", false)];
    let found = inside("/api/visits?fence=yard")?;
    ensure!(found == expected.map(|(id, inside)| (id.to_owned(), inside)), "{found:?}");
    // A span of the past: a driver who has moved since then is not inside.
    world.insert("past", now - 90 * 3_600_000, 48.0, 11.0)?;
    world.insert("past", now - 60_000, 49.0, 11.0)?;
    let path =
        format!("/api/visits?fence=yard&from={}&to={}", now - 91 * 3_600_000, now - 89 * 3_600_000);
    ensure!(inside(&path)? == [("past".to_owned(), false)], "{:?}", inside(&path)?);
    Ok(())
}

#[test]
fn basemap_is_served_in_ranges_only() -> Result<()> {
    let world = world("map_basemap")?;
    let path = world.folder.path().join("streets.pmtiles");
    std::fs::write(&path, b"no tiles")?;
    let settings = world.settings.clone().with("MAP__BASEMAP", path.display().to_string());
    let (code, message) = settings.call(&["run"])?;
    ensure!(code == 1 && message.contains("not a PMTiles file"), "{code} {message}");
    std::fs::write(&path, b"PMTiles\x03 and what follows")?;
    let map = settings.run()?;
    let range = |range: &str| get(&map, "/basemap.pmtiles", &[("Range", range)]);
    let answer = range("bytes=12-18")?;
    ensure!(answer.status == 206 && answer.body == b" what f", "{:?}", answer.body);
    ensure!(
        answer.header("content-range").starts_with("bytes 12-18/")
            && !answer.header("etag").is_empty()
    );
    ensure!(
        get(&map, "/basemap.pmtiles", &[])?.status == 416
            && range("bytes=9999-10000")?.status == 416
    );
    ensure!(get(&map, "/api/config", &[])?.json()?["has_basemap"] == true);
    Ok(())
}

#[test]
fn answer_without_its_view_names_the_remedy() -> Result<()> {
    let world = world("map_missing_views")?;
    world.insert("d1", unix_ms() - 1_000, 48.0, 11.0)?;
    for view in ["episodes", "fence_visits"] {
        world.query(&format!("DROP VIEW {{db}}_ask.{view}"))?;
    }
    let map = world.settings.run()?;
    for path in ["/api/visits?fence=yard", "/api/drivers/d1/track"] {
        let answer = get(&map, path, &[])?;
        let why = answer.json()?.to_string();
        ensure!(answer.status == 503 && why.contains("run milepost migrate"), "{path}: {why}");
    }
    // The view of an older `milepost migrate` lacks a column.
    world.query(
        "CREATE VIEW {db}_ask.fence_visits AS \
         SELECT {fence:String} AS fence, {driver:String} AS driver_id, now64(3) AS entered, \
         now64(3) AS left_at, {from:String} AS began, {to:String} AS ended, {tz:String} AS zone",
    )?;
    let why = get(&map, "/api/visits?fence=depot", &[])?.json()?.to_string();
    ensure!(why.contains("a column is missing: run milepost migrate"), "{why}");
    Ok(())
}
