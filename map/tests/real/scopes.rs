//! Tests scopes: every response, tile and stream is limited to the viewer's drivers.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Map, Settings, unix_ms, wait_until};
use milepost_map::access::Link;

use crate::tile_format::read_all;
use crate::world::{Answer, SOON, World, get, world};

/// Creates two drivers in two groups, each with ten minutes of fixes, an event and a visit.
fn fleet(name: &str) -> Result<World> {
    let world = world(name)?;
    for (driver, lng) in [("north-1", 11.0), ("south-1", 11.001)] {
        for minute in 0..10 {
            world.insert(driver, unix_ms() - minute * 60_000, 48.0, lng)?;
        }
        world.query(&format!(
            "INSERT INTO {{db}}.events (driver_id, ts, seq, kind, fence, lat, lng, known_at) \
             VALUES ('{driver}', now64(3), 0, 'entered', 'yard', 48, {lng}, now64(3))"
        ))?;
    }
    world.query(
        "INSERT INTO {db}.drivers (driver_id, name, `group`) \
         VALUES ('north-1', 'Nora', 'north'), ('south-1', 'Sam', 'south')",
    )?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) \
         VALUES ('yard', [[[(10.9, 47.9), (11.1, 47.9), (11.1, 48.1), (10.9, 48.1)]]])",
    )?;
    Ok(world)
}

/// Returns a request to every route that returns data of drivers.
fn paths() -> Vec<String> {
    let hour = format!("from={}", unix_ms() - 3_500_000);
    [
        "/api/tiles?of=0/0/0,14/8692/5693",
        "/api/tiles?of=0/0/0&states=moving,standing,silent,unknown,hidden",
        "/api/tiles?of=0/0/0&group=south",
        "/api/positions?bbox=-180,-90,180,90",
        "/api/drivers?limit=100",
        "/api/drivers?find=a",
        "/api/drivers?find=1",
        "/api/drivers/south-1",
        "/api/drivers/south-1/attributes",
        "/api/drivers/south-1/track",
        "/api/drivers/south-1/track?format=csv",
        "/api/drivers/south-1/days",
        "/api/drivers/south-1/standing",
        "/api/names?of=north-1,south-1",
        "/api/list",
        "/api/list?find=s",
        "/api/list?fence=yard",
        "/api/list?group=south",
        "/api/visits?fence=yard",
        "/api/alerts",
        "/api/past?bbox=-180,-90,180,90",
        "/api/past?bbox=-180,-90,180,90&group=south",
        "/api/config",
    ]
    .map(|path| if path.contains("past") { format!("{path}&{hour}") } else { path.to_owned() })
    .into()
}

/// Checks that the response contains neither id, name nor place of the other group's driver.
fn check_that_south_is_absent(path: &str, answer: &Answer) -> Result<()> {
    ensure!(answer.status == 200 || answer.status == 404, "{path}: {}", answer.status);
    if answer.status == 404 {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&answer.body);
    ensure!(
        !text.contains("south-1\"") && !text.contains("Sam") && !text.contains("11.001"),
        "{path}: {text}"
    );
    if path.contains("tiles") {
        for part in read_all(&answer.body) {
            ensure!(part.tile.ids.iter().all(|id| id == "north-1"), "{path}: {:?}", part.tile.ids);
        }
    } else {
        ensure!(!text.contains("\"south\""), "{path}: {text}");
    }
    Ok(())
}

fn proxied(world: &World) -> Settings {
    let settings = world
        .settings
        .clone()
        .with("HTTP__BEHIND_PROXY", "true")
        .with("HTTP__USER_HEADER", "X-User");
    settings
        .with("ACCESS__VIEWERS", "ada: *,eve: north,bob: driver:south-1")
        .with("ACCESS__LINKS_KEY", "s3cret")
}

/// Returns the first tick of a stream.
fn first_tick(map: &Map, header: (&str, &str)) -> Result<serde_json::Value> {
    first_tick_of(map, "/api/stream", header)
}

/// Returns the first tick of the stream at this path.
fn first_tick_of(map: &Map, path: &str, (name, value): (&str, &str)) -> Result<serde_json::Value> {
    let config = ureq::Agent::config_builder().timeout_global(Some(SOON));
    let request = config.build().new_agent().get(format!("{}{path}", map.url()));
    let response = request.header(name, value).call()?;
    let lines = BufReader::new(response.into_body().into_reader()).lines();
    let line =
        lines.map_while(Result::ok).find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    Ok(serde_json::from_str(&line.context("a tick")?)?)
}

fn wait_for_names(map: &Map) -> Result<()> {
    wait_until("names are read", SOON, || {
        let found = get(map, "/api/drivers?find=nora", &[("X-User", "ada")])?;
        Ok(found.status == 200 && found.json()?["drivers"][0] == "north-1")
    })
}

#[test]
fn viewer_of_a_group_sees_no_driver_outside_it() -> Result<()> {
    let world = fleet("map_scopes")?;
    let map = proxied(&world).run()?;
    wait_for_names(&map)?;
    let eve = ("X-User", "eve");
    for path in paths() {
        check_that_south_is_absent(&path, &get(&map, &path, &[eve])?)?;
    }
    for path in [
        "/api/drivers/south-1",
        "/api/drivers/south-1/attributes",
        "/api/drivers/south-1/track",
        "/api/drivers/south-1/days",
        "/api/drivers/south-1/standing",
    ] {
        ensure!(get(&map, path, &[eve])?.status == 404, "{path}");
        ensure!(get(&map, &path.replace("south", "north"), &[eve])?.status == 200, "{path}");
        ensure!(get(&map, path, &[("X-User", "bob")])?.status == 200, "{path}");
    }
    let cells = |user: &str| -> Result<u32> {
        let path = format!("/api/cells?bbox=10,47,12,49&zoom=10&from={}", unix_ms() - 3_500_000);
        Ok(crate::tile_format::read(&get(&map, &path, &[("X-User", user)])?.body)
            .counts
            .iter()
            .sum())
    };
    ensure!((cells("ada")?, cells("eve")?, cells("bob")?) == (20, 10, 10));
    let (all, north) = (first_tick(&map, ("X-User", "ada"))?, first_tick(&map, eve)?);
    ensure!(all["drivers"] == 2 && all["rate"].is_number(), "{all}");
    ensure!(
        north["drivers"] == 1 && north["rate"].is_null() && north["states"]["moving"] == 1,
        "{north}"
    );
    // Nothing is missing for the drivers that eve may see.
    let visits = get(&map, "/api/visits?fence=yard", &[eve])?.json()?;
    ensure!(
        visits["visits"][0]["driver_id"] == "north-1" && visits["visits"][0]["is_inside"] == true,
        "{visits}"
    );
    let alerts = get(&map, "/api/alerts", &[eve])?.json()?;
    ensure!(
        alerts["alerts"][0]["driver_id"] == "north-1" && alerts["alerts"][1].is_null(),
        "{alerts}"
    );
    ensure!(get(&map, "/api/config", &[("X-User", "mallory")])?.status == 403, "not listed");
    ensure!(
        get(&map, "/metrics", &[eve])?.status == 403
            && get(&map, "/metrics", &[("X-User", "ada")])?.status == 200
    );
    Ok(())
}

#[test]
fn driver_who_leaves_a_group_leaves_its_scope_while_no_page_is_open() -> Result<()> {
    let world = fleet("map_scope_idle")?;
    let map = proxied(&world).run()?;
    wait_for_names(&map)?;
    let status = || -> Result<u16> {
        Ok(get(&map, "/api/drivers/north-1/track", &[("X-User", "eve")])?.status)
    };
    ensure!(status()? == 200);
    // After 10 s without a page the map stops reading positions. A track does not change that.
    std::thread::sleep(Duration::from_secs(15));
    world.query("INSERT INTO {db}.drivers (driver_id, `group`) VALUES ('north-1', 'south')")?;
    wait_until("the driver has left the scope", SOON, || Ok(status()? == 404))
}

#[test]
fn group_limits_tiles_counts_replays_and_cells() -> Result<()> {
    let world = fleet("map_group")?;
    let map = proxied(&world).run()?;
    wait_for_names(&map)?;
    let hour = unix_ms() - 3_500_000;
    for (user, group, ids) in [
        ("ada", "north", &["north-1"][..]),
        ("ada", "", &["north-1", "south-1"]),
        ("ada", "nowhere", &[]),
        ("eve", "north", &["north-1"]),
        ("eve", "south", &[]),
        // bob may see a driver of the group, but not the group.
        ("bob", "south", &["south-1"]),
        ("bob", "north", &[]),
    ] {
        let header = ("X-User", user);
        let ask = |path: &str| get(&map, &format!("{path}&group={group}"), &[header]);
        let tiles = read_all(&ask("/api/tiles?of=0/0/0")?.body);
        let mut shown: Vec<&str> = tiles[0].tile.ids.iter().map(String::as_str).collect();
        shown.sort_unstable();
        ensure!(shown == ids, "{user} {group}: {shown:?}");
        let tick = first_tick_of(&map, &format!("/api/stream?group={group}"), header)?;
        let (count, states) = (ids.len(), &tick["states"]);
        ensure!(tick["drivers"] == count && states["moving"] == count, "{user} {group}: {tick}");
        let alerts = ask("/api/alerts?hours=1")?.json()?;
        let alerts = alerts["alerts"].as_array().map(Vec::len);
        ensure!(alerts == Some(count), "{user} {group}: {alerts:?}");
        let past = ask(&format!("/api/past?bbox=-180,-90,180,90&from={hour}"))?.json()?;
        ensure!(past["ids"].as_array().map(Vec::len) == Some(count), "{user} {group}: {past}");
        let cells = ask(&format!("/api/cells?bbox=10,47,12,49&zoom=10&from={hour}"))?.body;
        let fixes: u32 = crate::tile_format::read(&cells).counts.iter().sum();
        ensure!(fixes as usize == 10 * count, "{user} {group}: {fixes}");
    }
    Ok(())
}

#[test]
fn link_shows_its_drivers_until_it_expires_and_writes_nothing() -> Result<()> {
    let world = fleet("map_links")?;
    let map = proxied(&world).with("FENCES__USER", "default").run()?;
    wait_for_names(&map)?;
    let post = |path: &str, (name, value): (&str, &str), body: &str| -> Result<Answer> {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
        let request = config.build().new_agent().post(format!("{}{path}", map.url()));
        let mut answer =
            request.header(name, value).header("Content-Type", "application/json").send(body)?;
        Ok(Answer {
            status: answer.status().as_u16(),
            headers: answer.headers().clone(),
            body: answer.body_mut().read_to_vec()?,
        })
    };
    let eve = ("X-User", "eve");
    let north = r#"{"drivers":["north-1"],"hours":1}"#;
    for (body, status) in [
        (north, 200),
        (r#"{"drivers":["south-1"]}"#, 404),
        (r#"{"groups":["south"]}"#, 403),
        ("{}", 400),
        (r#"{"groups":["north"],"hours":0}"#, 400),
    ] {
        let answer = post("/api/links", eve, body)?;
        ensure!(answer.status == status, "{body}: {}", answer.status);
    }
    let made = post("/api/links", eve, north)?.json()?;
    let link = made["link"].as_str().context("a link")?.to_owned();
    let page = get(&map, &format!("/api/config?link={link}"), &[])?;
    ensure!(page.status == 400, "a route of the API has no such parameter: {}", page.status);
    let page = get(&map, &format!("/?link={link}"), &[])?;
    let cookie = page.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    ensure!(
        cookie == format!("milepost_link={link}") && page.header("set-cookie").contains("HttpOnly"),
        "{cookie}"
    );
    let by_link = ("Cookie", cookie.as_str());
    for path in paths() {
        check_that_south_is_absent(&path, &get(&map, &path, &[by_link])?)?;
    }
    let config = get(&map, "/api/config", &[by_link])?.json()?;
    ensure!(config["writes"] == false && config["makes_links"] == false, "{config}");
    ensure!(made["until"].is_i64() && config["link_until"] == made["until"], "{config}");
    ensure!(get(&map, "/api/config", &[eve])?.json()?["link_until"].is_null());
    ensure!(first_tick(&map, by_link)?["drivers"] == 1);
    for path in ["/api/fences", "/api/links", "/api/cards", "/api/alerts/seen"] {
        ensure!(post(path, by_link, north)?.status == 403, "{path}");
    }
    // A login by the proxy overrides the cookie of a link.
    ensure!(get(&map, "/api/drivers/south-1", &[by_link, ("X-User", "ada")])?.status == 200);
    let changed = format!("milepost_link=0{}", &link[1..]);
    ensure!(get(&map, "/api/config", &[("Cookie", &changed)])?.status == 401);
    ensure!(get(&map, "/api/config", &[])?.status == 401);
    let log = map.process.log()?;
    ensure!(
        log.contains("a link was made") && !log.contains("s3cret") && !log.contains(&link),
        "{log}"
    );
    Ok(())
}

#[test]
fn open_stream_ends_when_its_link_expires() -> Result<()> {
    let world = fleet("map_link_stream")?;
    let map = proxied(&world).run()?;
    wait_for_names(&map)?;
    let drivers = BTreeSet::from(["north-1".to_owned()]);
    let until = unix_ms() + 4_000;
    let link = Link { groups: BTreeSet::new(), drivers, until, by: "eve".to_owned() };
    let cookie = format!("milepost_link={}", link.sign("s3cret"));
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60)));
    let request = config.build().new_agent().get(format!("{}/api/stream", map.url()));
    let response = request.header("Cookie", &cookie).call()?;
    let lines = BufReader::new(response.into_body().into_reader()).lines();
    // Reading fails after 60 s if the server does not end the stream.
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    ensure!(lines.iter().any(|line| line.starts_with("data: ")), "{lines:?}");
    ensure!(unix_ms() >= until, "the stream ended early");
    ensure!(get(&map, "/api/config", &[("Cookie", &cookie)])?.status == 401);
    Ok(())
}

#[test]
fn expired_link_of_a_viewer_of_the_proxy_reads_only_the_page() -> Result<()> {
    let world = fleet("map_expired_link")?;
    let settings = world.settings.clone().with("ACCESS__LINKS_KEY", "s3cret");
    let map = settings.clone().with("HTTP__BEHIND_PROXY", "true").run()?;
    let drivers = BTreeSet::from(["north-1".to_owned()]);
    let link = Link { groups: BTreeSet::new(), drivers, until: 1, by: "eve".to_owned() };
    let expired = format!("milepost_link={}", link.sign("s3cret"));
    for cookie in ["milepost_link=x", &expired] {
        let with_cookie = ("Cookie", cookie);
        for path in ["/metrics", "/basemap.pmtiles", "/api/config", "/nothing"] {
            for more in [&[][..], &[("Authorization", "Basic eDp5")]] {
                let answer = get(&map, path, &[&[with_cookie], more].concat())?;
                ensure!(answer.status == 401, "{path}: {}", answer.status);
                ensure!(answer.header("set-cookie").is_empty(), "{path}: the page is still open");
            }
        }
        let page = get(&map, "/", &[with_cookie])?;
        ensure!(page.status == get(&map, "/", &[])?.status, "{}", page.status);
        let cookie = page.header("set-cookie");
        ensure!(cookie.starts_with("milepost_link=; Max-Age=0;"), "{cookie}");
    }
    drop(map);

    // With a login, only the page itself asks for it.
    let map = settings.with("HTTP__USERNAME", "map").with("HTTP__PASSWORD", "secret").run()?;
    for (path, challenges) in [("/", true), ("/basemap.pmtiles", false), ("/theme.js", false)] {
        let answer = get(&map, path, &[("Cookie", &expired)])?;
        ensure!(answer.status == 401, "{path}: {}", answer.status);
        ensure!(answer.header("www-authenticate").is_empty() != challenges, "{path}");
        ensure!(answer.header("set-cookie").is_empty() != challenges, "{path}");
    }
    let login = ("Authorization", "Basic bWFwOnNlY3JldA==");
    ensure!(get(&map, "/api/config", &[("Cookie", &expired), login])?.status == 200);
    Ok(())
}

#[test]
fn link_is_invalid_while_its_key_cannot_be_read() -> Result<()> {
    let world = fleet("map_link_key")?;
    let key = world.folder.path().join("key");
    std::fs::write(&key, "a key of this test alone, 32 letters\n")?;
    let settings = world.settings.clone().with("HTTP__BEHIND_PROXY", "true");
    let map = settings.with("ACCESS__LINKS_KEY_FILE", key.display().to_string()).run()?;
    let drivers = BTreeSet::from(["north-1".to_owned()]);
    let until = unix_ms() + 3_600_000;
    let link = Link { groups: BTreeSet::new(), drivers, until, by: String::new() };
    let status = |secret: &str| {
        let cookie = format!("milepost_link={}", link.sign(secret));
        Ok::<_, anyhow::Error>(get(&map, "/api/list", &[("Cookie", &cookie)])?.status)
    };
    ensure!(status("a key of this test alone, 32 letters")? == 200);
    std::fs::write(&key, "")?;
    ensure!(status("")? == 401, "an empty file counts as a key");
    std::fs::remove_file(&key)?;
    ensure!(status("x")? == 401, "a missing file counts as a key");
    Ok(())
}

#[test]
fn scope_stays_closed_when_the_table_drivers_is_lost() -> Result<()> {
    let world = fleet("map_lost_drivers")?;
    // The attributes of both drivers say north; the table moved one of them to the south.
    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, \
         alt_dm, acc_dm, received_at, attributes) \
         SELECT concat(name, '-1'), now64(3), 1, 480000000, 110000000, 0, 0, 0, 0, now64(3), \
         map('team', 'north') \
         FROM (SELECT arrayJoin(['north', 'south']) AS name)",
    )?;
    let map = proxied(&world).with("MAP__GROUP_ATTRIBUTE", "team").run()?;
    wait_for_names(&map)?;
    let eve = [("X-User", "eve")];
    ensure!(get(&map, "/api/list", &eve)?.json()?["drivers"].as_array().map(Vec::len) == Some(1));
    // The list of a group has the drivers of that group, also for a viewer of all drivers.
    for (group, driver) in [("north", "north-1"), ("south", "south-1")] {
        let path = format!("/api/list?group={group}");
        let list = get(&map, &path, &[("X-User", "ada")])?.json()?;
        let first = &list["drivers"][0];
        ensure!(first["driver_id"] == driver && first["in_group"] == group, "{list}");
        ensure!(list["drivers"][1].is_null(), "{list}");
    }
    world.query("DROP TABLE {db}.drivers SYNC")?;
    wait_until("the loss is noticed", SOON, || {
        Ok(map.process.log()?.contains("the names of drivers cannot be read"))
    })?;
    for path in ["/api/list", "/api/alerts", "/api/list?group=north"] {
        let answer = get(&map, path, &eve)?;
        let why = answer.json()?.to_string();
        ensure!(answer.status == 503 && why.contains("milepost migrate"), "{path}: {why}");
    }
    ensure!(get(&map, "/api/drivers/south-1", &eve)?.status == 404);
    let names = get(&map, "/api/names?of=north-1", &eve)?.json()?;
    ensure!(names["names"][0]["name"] == "Nora", "the names are gone: {names}");
    Ok(())
}
