//! Tests the queries of the history. A track has the fixes and episodes that the views return, and
//! no parameter is inserted into SQL.

use anyhow::{Result, ensure};
use lab_stack::unix_ms;

use crate::tile_format::read;
use crate::world::{get, world};

const DAY_MS: i64 = 86_400_000;

#[test]
fn track_equals_the_result_of_its_sql() -> Result<()> {
    let world = world("map_track")?;
    // Ten minutes north, ten minutes of standing, ten minutes north, with a fix every two seconds.
    // The drive begins at yesterday's noon, because a midnight would begin a new trip.
    let began = (unix_ms() / DAY_MS - 1) * DAY_MS + DAY_MS / 2;
    world.query(&format!(
        "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
         heading_cdeg, alt_dm, acc_dm, received_at) \
         WITH least(number, 300) + greatest(number, 600) - 600 AS steps \
         SELECT 'd1', fromUnixTimestamp64Milli({began}) + \
         toIntervalSecond(number * 2), number, 480000000 + steps * 2000, 110000000, \
         if(number % 2, 65535, 1111), 0, 0, 0, now64(3) \
         FROM numbers(900)"
    ))?;
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    let map = world.settings.run()?;
    let get_track = |more: &str| {
        get(&map, &format!("/api/drivers/d1/track?from={}{more}", began - 1), &[])?.json()
    };
    let track = get_track("")?;
    let points = &track["points"];
    let count = |column: &str| points[column].as_array().map_or(0, Vec::len);
    ensure!(["ts", "lat", "lng", "speed"].map(count) == [900; 4], "{track}");
    ensure!(
        points["speed"][0] == 11.11 && points["speed"][1].is_null() && points["ts"][0] == began,
        "{points}"
    );
    let kinds: Vec<&str> = track["episodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|episode| episode["kind"].as_str())
        .collect();
    ensure!(kinds == ["trip", "stop", "trip"], "{track}");
    let metres = &track["episodes"][0]["distance_m"];
    ensure!(metres.as_f64().is_some_and(|metres| (6_000.0..7_500.0).contains(&metres)), "{metres}");
    // The SQL in the response gives the same points.
    let sql = track["sql"].as_str().unwrap_or_default();
    ensure!(
        world
            .query(&format!("SELECT count(), round(sum(lat), 6) FROM ({sql})"))?
            .starts_with("900\t"),
        "{sql}"
    );
    ensure!(track["truncated"] == false);
    let simplified = get_track("&simplify=5")?;
    let points = simplified["points"]["ts"].as_array().map_or(0, Vec::len);
    ensure!((4..20).contains(&points), "{points}");
    // An unknown driver or an empty period gives an empty track.
    let nobody = get(&map, "/api/drivers/nobody/track", &[])?.json()?;
    ensure!(
        nobody["points"]["ts"] == serde_json::json!([])
            && nobody["episodes"] == serde_json::json!([]),
        "{nobody}"
    );

    let cells = get(&map, &format!("/api/cells?bbox=10,47,12,49&zoom=10&from={began}"), &[])?;
    ensure!(cells.status == 200, "{}", String::from_utf8_lossy(&cells.body));
    let tile = read(&cells.body);
    ensure!(
        tile.is_cells && tile.counts.iter().sum::<u32>() == 900 && tile.counts.len() > 3,
        "{tile:?}"
    );
    ensure!(
        tile.counts.is_sorted_by(|a, b| a >= b)
            && tile.speed_cms.iter().all(|speed| *speed == 1_111),
        "{tile:?}"
    );
    ensure!(cells.header("x-truncated").is_empty());
    for (bbox, fixes) in [
        ("-180,-90,180,90", 900),
        ("170,-90,-170,90", 0),
        ("12,-90,11,90", 900),
        ("10,48.2,12,49", 0),
    ] {
        let tile =
            read(&get(&map, &format!("/api/cells?bbox={bbox}&zoom=0&from={began}"), &[])?.body);
        ensure!(tile.counts.iter().sum::<u32>() == fixes, "{bbox}: {tile:?}");
    }
    Ok(())
}

#[test]
fn standing_begins_with_the_stop_or_the_only_fix() -> Result<()> {
    const MINUTE_MS: i64 = 60_000;
    let world = world("map_standing")?;
    // A whole second, because the devices send whole seconds.
    let now = unix_ms() / 1_000 * 1_000;
    // Inserts a driver who drives to a place for ten minutes and then stands there for `minutes`.
    // The driver has a fix every half minute.
    let arrive = |driver: &str, minutes: i64| {
        let began = now - (minutes + 10) * MINUTE_MS;
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at) \
             SELECT '{driver}', fromUnixTimestamp64Milli({began}) + toIntervalSecond(number * 30), \
             number, \
             480000000 + least(number, 20) * 20000, 110000000 + number % 2 * 100, \
             if(number < 20, 740, 0), 0, 0, 0, now64(3) \
             FROM numbers({})",
            (minutes + 10) * 2 + 1
        ))
    };
    arrive("rolled-up", 200)?;
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    // A single wrong fix, 2 km away, among the newest ones.
    world.insert("rolled-up", now - 3 * MINUTE_MS - 1_000, 48.06, 11.0)?;
    arrive("not-rolled-up", 7)?;
    world.insert("one-fix", now, 48.0, 11.0)?;
    let map = world.settings.run()?;
    let standing = |driver: &str| get(&map, &format!("/api/drivers/{driver}/standing"), &[]);
    // `is_at_least`: the driver may have stood there before `since`.
    for (driver, minutes, is_at_least) in
        [("rolled-up", 200, false), ("not-rolled-up", 7, false), ("one-fix", 0, true)]
    {
        let answer = standing(driver)?.json()?;
        let since = answer["since"].as_i64().unwrap_or_default();
        let difference_ms = (now - minutes * MINUTE_MS - since).abs();
        // A stop begins up to a minute before the first fix without speed.
        ensure!(
            difference_ms <= MINUTE_MS && answer["is_at_least"] == is_at_least,
            "{driver}: {answer}"
        );
        ensure!(answer["ts"] == now, "{driver}: {answer}");
    }
    ensure!(standing("nobody")?.status == 404);
    Ok(())
}

#[test]
fn too_expensive_query_is_refused_with_an_explanation() -> Result<()> {
    let world = world("map_limits")?;
    for n in 0..20 {
        world.insert(&format!("d{n}"), unix_ms() - n, 1.0, 1.0)?;
    }
    let map = world.settings.clone().with("CLICKHOUSE__QUERY_ROWS_MAX", "3").run()?;
    let refused = get(&map, "/api/cells?bbox=0,0,2,2&zoom=3", &[])?;
    ensure!(refused.status == 400, "{}", refused.status);
    ensure!(
        refused.json()?["error"]
            .as_str()
            .is_some_and(|error| error.contains("choose a shorter time")),
        "{:?}",
        refused.json()
    );
    Ok(())
}

#[test]
fn parameters_are_never_interpolated_into_sql() -> Result<()> {
    let world = world("map_sql")?;
    world.insert("d1", unix_ms(), 1.0, 1.0)?;
    let map = world.settings.run()?;
    let attacks = [
        "'",
        "d1' OR '1'='1",
        "d1'; DROP TABLE positions; --",
        "d1') UNION ALL SELECT 1, 2, 3, 4 --",
        "\\' OR 1=1 --",
        "{driver:String}",
        "d1,d2",
        "*",
        "-1e400'",
        "0; SELECT 1",
        "d1\u{0}",
        "(SELECT 1)",
    ];
    for attack in attacks {
        let attack: String = url::form_urlencoded::byte_serialize(attack.as_bytes()).collect();
        let in_path = attack.replace('+', "%20");
        for path in [
            format!("/api/drivers/{in_path}"),
            format!("/api/drivers/{in_path}/track"),
            format!("/api/drivers/d1/track?from={attack}"),
            format!("/api/drivers/d1/track?to={attack}"),
            format!("/api/drivers/d1/track?simplify={attack}"),
            format!("/api/drivers?prefix={attack}"),
            format!("/api/drivers?limit={attack}"),
            format!("/api/positions?bbox={attack}"),
            format!("/api/positions?bbox=0,0,1,1&since={attack}"),
            format!("/api/cells?bbox={attack}&zoom=1"),
            format!("/api/cells?bbox=0,0,1,{attack}&zoom=1"),
            format!("/api/cells?bbox=0,0,1,1&zoom={attack}"),
            format!("/api/cells?bbox=0,0,1,1&zoom=1&from={attack}"),
            format!("/api/cells?bbox=0,0,1,1&zoom=1&to={attack}"),
            format!("/api/cells?bbox=0,0,1,1&zoom=1&database={attack}"),
            format!("/api/tiles?of={attack}"),
            format!("/api/tiles?of=0/0/{attack}"),
            format!("/api/tiles?of=0/0/0:{attack}"),
        ] {
            let answer = get(&map, &path, &[])?;
            ensure!(
                answer.status == 400,
                "{path}: {} {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
            ensure!(
                answer.json()?["error"]
                    .as_str()
                    .is_some_and(|error| error.len() > 10 && !error.contains("DB::")),
                "{path}"
            );
        }
    }
    ensure!(map.metric("question_seconds_count")? == 0.0, "a request reached ClickHouse");
    ensure!(world.query("SELECT count() FROM {db}.positions")? == "1");
    Ok(())
}

#[test]
fn list_has_the_drivers_that_meet_every_condition() -> Result<()> {
    let world = world("map_list")?;
    let now = unix_ms();
    for (driver, lat, speed_cms, received, attributes) in [
        ("van-1", 48.0, 0, now, "map('battery', '80', 'ignition', 'off')"),
        ("van-2", 48.5, 2_000, now, "map('ignition', 'on')"),
        ("car-1", 50.0, 65_535, now - 3_600_000, "map()"),
    ] {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at, \
             attributes) SELECT '{driver}', fromUnixTimestamp64Milli({now}), 0, {lat} * 1e7, \
             110000000, {speed_cms}, 0, 0, 0, \
             fromUnixTimestamp64Milli({received}), {attributes}"
        ))?;
    }
    world.query(
        "INSERT INTO {db}.fences (name, polygons) \
         VALUES ('depot', [[[(10, 47), (12, 47), (12, 48.2), (10, 48.2), (10, 47)]]])",
    )?;
    let map = world.settings.run()?;
    for (filter, expected) in [
        ("", "car-1 van-1 van-2"),
        ("?prefix=van", "van-1 van-2"),
        ("?silent=1800", "car-1"),
        ("?faster=10", "van-2"),
        ("?stopped=true", "van-1"),
        ("?attribute=ignition", "van-1 van-2"),
        ("?attribute=ignition%3Doff&prefix=van", "van-1"),
        ("?fence=depot", "van-1"),
        ("?fence=nowhere", ""),
        ("?prefix=van&faster=10&fence=depot", ""),
    ] {
        let list = get(&map, &format!("/api/list{filter}"), &[])?.json()?;
        let found: Vec<&str> = list["drivers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|driver| driver["driver_id"].as_str())
            .collect();
        ensure!(found.join(" ") == expected && list["truncated"] == false, "{filter}: {list}");
    }
    for wrong in ["silent=-1", "faster=fast", "stopped=1", "prefix=%27", "speed=1"] {
        ensure!(get(&map, &format!("/api/list?{wrong}"), &[])?.status == 400, "{wrong}");
    }
    let past = get(
        &map,
        &format!("/api/past?bbox=10,47,12,49&from={}&to={}", now - 7_200_000, now + 1),
        &[],
    )?
    .json()?;
    ensure!(
        past["ids"] == serde_json::json!(["van-1", "van-2"])
            && past["ts"] == serde_json::json!([now, now])
            && past["lat"] == serde_json::json!([48.0, 48.5])
            && past["speed"] == serde_json::json!([0.0, 20.0])
            && past["truncated"] == false,
        "{past}"
    );
    let properties = get(&map, "/api/drivers/van-1/attributes", &[])?.json()?;
    ensure!(
        properties["ts"] == now
            && properties["attributes"]
                == serde_json::json!({ "battery": "80", "ignition": "off" }),
        "{properties}"
    );
    let nobody = get(&map, "/api/drivers/nobody/attributes", &[])?.json()?;
    ensure!(nobody["attributes"] == serde_json::json!({}), "{nobody}");
    Ok(())
}

#[test]
fn replay_begins_with_last_fixes_up_to_an_hour_old() -> Result<()> {
    let world = world("map_before")?;
    let from = unix_ms() / 1_000 * 1_000 - 7_200_000;
    const MINUTE_MS: i64 = 60_000;
    for (driver, ms, lat, speed_cms) in [
        // Stands in the area. The driver's next fix is in the replayed span.
        ("parked", from - 30 * MINUTE_MS, 48.0, 500),
        ("parked", from - 20 * MINUTE_MS, 48.1, 0),
        ("parked", from + 10 * MINUTE_MS, 48.1, 0),
        // Leaves the area before the span.
        ("gone", from - 20 * MINUTE_MS, 48.0, 1_500),
        ("gone", from - 10 * MINUTE_MS, 60.0, 1_500),
        // These two have no fix in the span. Only the first has one in the hour before the span.
        ("asleep", from - 59 * MINUTE_MS, 48.2, 65_535),
        ("long-ago", from - 61 * MINUTE_MS, 48.3, 0),
        // Has the first fix exactly when the span begins.
        ("starts", from, 48.4, 0),
    ] {
        world.query(&format!(
            "INSERT INTO {{db}}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at, \
             attributes) SELECT '{driver}', fromUnixTimestamp64Milli({ms}), 0, {lat} * 1e7, \
             110000000, {speed_cms}, 0, 0, 0, \
             fromUnixTimestamp64Milli({ms}), map()"
        ))?;
    }
    let map = world.settings.run()?;
    let to = from + 60 * MINUTE_MS;
    let past = |bbox: &str| -> Result<serde_json::Value> {
        let past = get(&map, &format!("/api/past?bbox={bbox}&from={from}&to={to}"), &[])?.json()?;
        ensure!(past["from"] == from && past["truncated"] == false, "{past}");
        Ok(past)
    };
    let here = past("10,47,12,49")?;
    ensure!(here["ids"] == serde_json::json!(["asleep", "parked", "starts"]), "{here}");
    ensure!(here["driver"] == serde_json::json!([0, 1, 2, 1]), "{here}");
    let minutes = [-59, -20, 0, 10].map(|minute| from + minute * MINUTE_MS);
    ensure!(here["ts"] == serde_json::json!(minutes), "{here}");
    ensure!(here["lat"] == serde_json::json!([48.2, 48.1, 48.4, 48.1]), "{here}");
    ensure!(here["speed"] == serde_json::json!([null, 0.0, 0.0, 0.0]), "{here}");
    // This area crosses the antimeridian. Its eastern edge, 12°, is east of the drivers, at 11°.
    let across = past("170,47,12,49")?;
    ensure!(across["ids"] == here["ids"], "{across}");
    let north = past("10,59,12,61")?;
    ensure!(north["ids"] == serde_json::json!(["gone"]), "{north}");
    Ok(())
}
