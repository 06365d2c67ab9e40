//! Tests logins, proxies and TLS of the map, and the security headers of its responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_stack::{Map, wait_until};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::world::{SOON, get, world};

/// `map:secret` in base 64.
const RIGHT: &str = "Basic bWFwOnNlY3JldA==";
/// `map:wrong` in base 64.
const WRONG: &str = "Basic bWFwOndyb25n";

#[test]
fn every_request_needs_the_configured_login() -> Result<()> {
    let world = world("map_login")?;
    let (password, token) =
        (world.folder.path().join("password"), world.folder.path().join("token"));
    std::fs::write(&password, "secret\n")?;
    std::fs::write(&token, "t0ken\n")?;
    let settings = world.settings.clone().with("HTTP__USERNAME", "map");
    let settings = settings.with("HTTP__PASSWORD_FILE", password.display().to_string());
    let map = settings.with("HTTP__TOKEN_FILE", token.display().to_string()).run()?;
    let all = [
        "/",
        "/api/config",
        "/api/tiles?of=0/0/0",
        "/api/stream",
        "/api/positions?bbox=0,0,1,1",
        "/api/drivers",
        "/api/drivers/d1",
        "/api/drivers/d1/track",
        "/api/drivers/d1/attributes",
        "/api/list",
        "/api/fences",
        "/api/past?bbox=0,0,1,1",
        "/api/cells?bbox=0,0,1,1&zoom=1",
        "/metrics",
        "/nothing",
    ];
    for path in all {
        let refused = get(&map, path, &[])?;
        ensure!(
            refused.status == 401 && refused.header("www-authenticate").starts_with("Basic realm="),
            "{path}: {}",
            refused.status
        );
    }
    for path in ["/livez", "/readyz"] {
        ensure!(get(&map, path, &[])?.status == 200, "{path}");
    }
    let status = |login: &str| {
        Ok::<_, anyhow::Error>(get(&map, "/api/config", &[("Authorization", login)])?.status)
    };
    for login in [WRONG, "Basic", "Basic ", "Bearer wrong", "Bearer ", "Bearer", "Digest x"] {
        ensure!(status(login)? == 401, "{login}");
    }
    for login in [RIGHT, "basic bWFwOnNlY3JldA==", "Bearer t0ken"] {
        ensure!(status(login)? == 200, "{login}");
    }
    // A new secret needs no restart.
    std::fs::write(&password, "wrong\n")?;
    ensure!((status(RIGHT)?, status(WRONG)?) == (401, 200));
    // A file is empty for a moment while it is being rewritten.
    std::fs::write(&password, "")?;
    std::fs::write(&token, "")?;
    for login in ["Basic bWFwOg==", "Bearer "] {
        ensure!(status(login)? == 401, "{login}");
    }
    let log = map.process.log()?;
    ensure!(!log.contains("secret") && !log.contains("t0ken"), "{log}");
    Ok(())
}

#[test]
fn password_guesses_are_limited_to_one_per_second() -> Result<()> {
    let world = world("map_guesses")?;
    let settings =
        world.settings.clone().with("HTTP__USERNAME", "map").with("HTTP__PASSWORD", "secret");
    let map = settings.run()?;
    let status = |login: &str| {
        Ok::<_, anyhow::Error>(get(&map, "/api/config", &[("Authorization", login)])?.status)
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..5).map(|_| scope.spawn(|| status(WRONG))).collect();
        guesses.into_iter().try_for_each(|guess| {
            ensure!(guess.join().expect("does not panic")? == 401);
            Ok(())
        })
    })?;
    ensure!(began.elapsed() >= Duration::from_secs(5), "5 guesses took {:?}", began.elapsed());

    // Closing the connection does not give a client its next guess earlier.
    let began = Instant::now();
    for _ in 0..3 {
        let mut stream = std::net::TcpStream::connect(map.url().trim_start_matches("http://"))?;
        let request = format!(
            "GET /api/config HTTP/1.1\r\nHost: localhost\r\nAuthorization: {WRONG}\r\n\r\n"
        );
        std::io::Write::write_all(&mut stream, request.as_bytes())?;
        std::thread::sleep(Duration::from_millis(300)); // until the password is compared
    }
    ensure!(status(RIGHT)? == 200);
    ensure!(began.elapsed() >= Duration::from_secs(1), "3 guesses took {:?}", began.elapsed());
    Ok(())
}

#[test]
fn cross_site_request_is_refused() -> Result<()> {
    let world = world("map_host")?;
    let map = world.settings.run()?;
    for (host, status) in [
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.1", 403),
        ("localhost:1", 200),
        ("[::1]:9480", 200),
    ] {
        ensure!(get(&map, "/api/config", &[("Host", host)])?.status == status, "{host}");
    }
    for path in ["/", "/api/config", "/api/tiles?of=9/9/9", "/nothing"] {
        let answer = get(&map, path, &[("Origin", "https://evil.example")])?;
        let policy = answer.header("content-security-policy");
        ensure!(
            policy.starts_with("default-src 'none'; script-src 'self';")
                && !policy.contains("unsafe"),
            "{path}: {policy}"
        );
        ensure!(
            answer.header("x-content-type-options") == "nosniff"
                && answer.header("referrer-policy") == "no-referrer",
            "{path}"
        );
        ensure!(answer.header("access-control-allow-origin").is_empty(), "{path}");
    }
    ensure!(get(&map, "/nothing", &[])?.status == 404);
    Ok(())
}

#[test]
fn public_address_is_refused_without_login_or_proxy() -> Result<()> {
    let world = world("map_listen")?;
    let settings = world.settings.clone().with("HTTP__LISTEN", "0.0.0.0:0");
    let (code, message) = settings.call(&["run"])?;
    ensure!(
        code == 64
            && message.contains("http.listen: 0.0.0.0:0 can be reached from other machines")
            && message.contains("--behind-proxy"),
        "{message}"
    );
    let (code, shown) = settings.call(&["config", "--behind-proxy"])?;
    ensure!(code == 0 && shown.contains("listen = \"0.0.0.0:0\""), "{shown}");
    Ok(())
}

#[test]
fn map_serves_https() -> Result<()> {
    let world = world("map_tls")?;
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (cert_file, key_file) =
        (world.folder.path().join("cert.pem"), world.folder.path().join("key.pem"));
    std::fs::write(&cert_file, cert.pem())?;
    std::fs::write(&key_file, signing_key.serialize_pem())?;
    let settings = world.settings.clone().with("HTTP__CERT_FILE", cert_file.display().to_string());
    let settings = settings.with("HTTP__KEY_FILE", key_file.display().to_string());
    let settings = settings.with("HTTP__USERNAME", "map").with("HTTP__PASSWORD", "secret");
    let map = settings.listen()?;
    let here = settings.with("HTTP__LISTEN", format!("127.0.0.1:{}", map.port));
    wait_until("health reports ready", SOON, || Ok(here.call(&["health"])?.0 == 0))?;
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone())?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(over_tls(&map, TlsConnector::from(Arc::new(config))))?;
    ensure!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("points_max"), "{answer}");
    ensure!(get(&map, "/api/config", &[]).is_err(), "plain text is not answered");
    Ok(())
}

async fn over_tls(map: &Map, tls: TlsConnector) -> Result<String> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", map.port)).await?;
    let mut stream =
        tls.connect(ServerName::try_from("localhost")?, stream).await.context("no handshake")?;
    let request = format!(
        "GET /api/config HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: {RIGHT}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await; // a close without close_notify is fine
    Ok(answer)
}

#[test]
fn only_editors_named_by_the_proxy_write_fences() -> Result<()> {
    const YARD: &str = r#"{"type":"Feature","properties":{"name":"yard"},"geometry":{"type":"Polygon","coordinates":[[[10,47],[12,47],[12,49],[10,47]]]}}"#;
    let world = world("map_fences")?;
    let post = |map: &Map, user: &str, kind: &str, body: &str| -> Result<(u16, String)> {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
        let agent = config.build().new_agent();
        let request = agent
            .post(format!("{}/api/fences", map.url()))
            .header("X-User", user)
            .header("Content-Type", kind);
        let mut answer = request.send(body)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    };
    let geojson = "application/geo+json";
    let proxied = || {
        world
            .settings
            .clone()
            .with("HTTP__BEHIND_PROXY", "true")
            .with("HTTP__USER_HEADER", "X-User")
    };
    {
        let map = proxied().run()?;
        for headers in [vec![], vec![("X-User", " ")]] {
            ensure!(get(&map, "/api/config", &headers)?.status == 401, "{headers:?}");
        }
        let config = get(&map, "/api/config", &[("X-User", "ada")])?;
        ensure!(config.status == 200 && config.json()?["edits_fences"] == false);
        let (status, _) = post(&map, "ada", geojson, YARD)?;
        ensure!(status == 403, "without fences.user");
    }
    let map =
        proxied().with("FENCES__USER", "default").with("FENCES__EDITORS", "ada,grace").run()?;
    let status_of = |user: &str, kind: &str, body: &str| -> Result<u16> {
        let (status, _) = post(&map, user, kind, body)?;
        Ok(status)
    };
    let names = || -> Result<String> {
        let all = get(&map, "/api/fences", &[("X-User", "eve")])?.json()?;
        let names = all["features"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|feature| feature["properties"]["name"].as_str());
        Ok(names.collect::<Vec<_>>().join(" "))
    };
    ensure!(get(&map, "/api/config", &[("X-User", "ada")])?.json()?["edits_fences"] == true);
    ensure!(status_of("eve", geojson, YARD)? == 403);
    ensure!(
        status_of("ada", "text/plain", YARD)? == 400,
        "a content type that a foreign page can send"
    );
    for wrong in ["", "{}", &YARD.replace("yard", ""), &YARD.replace("[12,47],[12,49],", "")] {
        let (status, why) = post(&map, "ada", geojson, wrong)?;
        ensure!(status == 400 && why.contains("error"), "{wrong}: {status} {why}");
    }
    let config =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
    let foreign = config
        .build()
        .new_agent()
        .post(format!("{}/api/fences", map.url()))
        .header("X-User", "ada")
        .header("Content-Type", geojson)
        .header("Origin", "https://evil.example")
        .send(YARD)?;
    ensure!(foreign.status() == 403, "another site's page in the editor's browser");
    ensure!(names()?.is_empty());
    ensure!(post(&map, "ada", geojson, YARD)? == (200, "{}".to_owned()));
    ensure!(names()? == "yard");
    let fence = get(&map, "/api/fences", &[("X-User", "eve")])?.json()?;
    ensure!(
        fence["features"][0]["geometry"]["coordinates"][0][0][1] == serde_json::json!([12.0, 47.0]),
        "{fence}"
    );
    let end = r#"{"type":"Feature","properties":{"name":"yard","valid_from":0},"geometry":null}"#;
    ensure!(status_of("grace", geojson, end)? == 200);
    wait_until("the fence has ended", SOON, || Ok(names()?.is_empty()))?;
    ensure!(
        world.query("SELECT length(polygons[1][1]) FROM {db}.fences FINAL")? == "4",
        "the ended version is kept"
    );

    // A new fence of the same name begins where the former one ended; an edit begins a new version;
    // then the fence ends.
    ensure!(post(&map, "grace", geojson, YARD)? == (200, "{}".to_owned()));
    ensure!(names()? == "yard");
    ensure!(status_of("ada", geojson, &YARD.replace("[12,49]", "[12,49],[11,49]"))? == 200);
    ensure!(names()? == "yard");
    let spans = "SELECT groupArray((length(polygons[1][1]), toUnixTimestamp(valid_from) > 0, \
                 valid_until > now() + 3600)) FROM \
                 (SELECT * FROM {db}.fences FINAL ORDER BY valid_from)";
    ensure!(world.query(spans)? == "[(4,0,0),(4,1,0),(5,1,1)]", "{}", world.query(spans)?);
    let joined = "SELECT arraySlice(groupArray(valid_until), 1, 2) \
                  = arraySlice(groupArray(valid_from), 2) FROM \
                  (SELECT * FROM {db}.fences FINAL ORDER BY valid_from)";
    ensure!(world.query(joined)? == "1");
    ensure!(status_of("ada", geojson, &end.replace(r#","valid_from":0"#, ""))? == 200);
    wait_until("the second fence has ended", SOON, || Ok(names()?.is_empty()))?;

    // A planned version keeps its period and outline: a fence drawn now is valid until the planned
    // one begins.
    let in_2100_ms = 4_102_444_800_000_i64;
    let planned =
        YARD.replace(r#""name":"yard""#, &format!(r#""name":"yard","valid_from":{in_2100_ms}"#));
    ensure!(status_of("ada", geojson, &planned)? == 200);
    ensure!(status_of("ada", geojson, &YARD.replace("[12,49]", "[12,49],[11,49]"))? == 200);
    ensure!(names()? == "yard");
    let last = "SELECT groupArray((length(polygons[1][1]), toYear(valid_from) = 2100, \
                toYear(valid_until) = 2100)) FROM \
                (SELECT * FROM {db}.fences FINAL ORDER BY valid_from DESC LIMIT 2)";
    ensure!(world.query(last)? == "[(4,1,0),(5,0,1)]", "{}", world.query(last)?);
    let never = planned.replace(r#""valid_from""#, r#""valid_until":1000,"valid_from""#);
    ensure!(status_of("ada", geojson, &never)? == 400);

    // A fence valid from 1965 to 2250 keeps these moments when it is edited; visits before keep its
    // old outline.
    world.query(
        "INSERT INTO {db}.fences (name, valid_from, valid_until, polygons) \
         SELECT 'old town', toDateTime64('1965-03-01', 3, 'UTC'), \
         toDateTime64('2250-01-01', 3, 'UTC'), polygons FROM {db}.fences ORDER BY valid_from \
         LIMIT 1",
    )?;
    let shown = |name: &str| -> Result<serde_json::Value> {
        let all = get(&map, "/api/fences", &[("X-User", "eve")])?.json()?;
        let mut features = all["features"].as_array().into_iter().flatten();
        features.find(|feature| feature["properties"]["name"] == name).cloned().context("shown")
    };
    let mut edited = shown("old town")?;
    edited["geometry"]["coordinates"][0][0][1] = serde_json::json!([12.5, 47]);
    ensure!(post(&map, "ada", geojson, &edited.to_string())? == (200, "{}".to_owned()));
    let old = "SELECT groupArray((toYear(valid_from) = 1965, toYear(valid_until) = 2250, \
               polygons[1][1][2].1)) FROM \
               (SELECT * FROM {db}.fences FINAL WHERE name IN ('old town', 'new town') \
               ORDER BY valid_from, name)";
    ensure!(world.query(old)? == "[(1,0,12),(0,1,12.5)]", "{}", world.query(old)?);
    // A page that still shows the former version gets a conflict.
    edited["geometry"]["coordinates"][0][0][1] = serde_json::json!([12.7, 47]);
    let (status, why) = post(&map, "ada", geojson, &edited.to_string())?;
    ensure!(status == 409 && why.contains("changed this outline"), "{status} {why}");
    // A client that does not send the outline from which it started cannot edit an ended version,
    // unless the client rewrites the past.
    edited["properties"].as_object_mut().context("properties")?.remove("outline");
    let (status, why) = post(&map, "ada", geojson, &edited.to_string())?;
    ensure!(status == 400 && why.contains("has ended"), "{status} {why}");
    edited["properties"]["rewrite_past"] = true.into();
    edited["properties"]["valid_until"] = serde_json::Value::Null;
    ensure!(post(&map, "ada", geojson, &edited.to_string())? == (200, "{}".to_owned()));
    ensure!(world.query(old)? == "[(1,0,12.7),(0,1,12.5)]", "{}", world.query(old)?);
    // A rename ends the old name and begins the new one.
    let mut renamed = shown("old town")?;
    renamed["properties"]["was"] = "old town".into();
    renamed["properties"]["name"] = "new town".into();
    ensure!(post(&map, "ada", geojson, &renamed.to_string())? == (200, "{}".to_owned()));
    ensure!(names()? == "new town yard", "{}", names()?);
    let mut ended = shown("new town")?;
    ended["geometry"] = serde_json::Value::Null;
    ensure!(post(&map, "ada", geojson, &ended.to_string())? == (200, "{}".to_owned()));
    wait_until("the renamed fence has ended", SOON, || Ok(names()? == "yard"))?;
    ensure!(world.query(old)? == "[(1,0,12.7),(0,0,12.5),(0,0,12.5)]", "{}", world.query(old)?);
    let log = map.process.log()?;
    for line in [
        r#"a fence was stored user="ada" fence="yard""#,
        r#"a fence was ended user="grace" fence="yard""#,
    ] {
        ensure!(log.contains(line), "{line}: {log}");
    }
    Ok(())
}

#[test]
fn open_ring_from_sql_is_served_closed_and_survives_an_edit() -> Result<()> {
    let world = world("map_open_ring")?;
    world.query(
        "INSERT INTO {db}.fences (name, polygons) VALUES ('centre', \
         [[[(13.40, 52.515), (13.41, 52.515), (13.41, 52.525), (13.40, 52.525)], \
         [(13.404, 52.518), (13.406, 52.518), (13.406, 52.52)]]])",
    )?;
    let map = world.settings.clone().with("FENCES__USER", "default").run()?;
    let all = get(&map, "/api/fences", &[])?.json()?;
    let rings =
        all["features"][0]["geometry"]["coordinates"][0].as_array().context("rings")?.clone();
    for (ring, points) in rings.iter().zip([5, 4]) {
        let ring = ring.as_array().context("a ring")?;
        ensure!(ring.len() == points && ring.first() == ring.last(), "{all}");
    }
    // A feature that is sent back unchanged writes nothing.
    let send = |feature: &serde_json::Value| -> Result<u16> {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(SOON));
        let request = config.build().new_agent().post(format!("{}/api/fences", map.url()));
        Ok(request
            .header("Content-Type", "application/geo+json")
            .send(feature.to_string())?
            .status()
            .as_u16())
    };
    ensure!(send(&all["features"][0])? == 200);
    ensure!(
        world.query("SELECT count(), any(length(polygons[1][1])) FROM {db}.fences FINAL")?
            == "1\t4"
    );
    Ok(())
}

#[test]
fn only_the_proxy_can_name_the_viewer() -> Result<()> {
    let world = world("map_proxy")?;
    let proxied = world
        .settings
        .clone()
        .with("HTTP__BEHIND_PROXY", "true")
        .with("HTTP__USER_HEADER", "X-User");
    let (code, message) = proxied.clone().with("HTTP__LISTEN", "0.0.0.0:0").call(&["run"])?;
    ensure!(
        code == 64 && message.contains("http.user_header: anyone who reaches 0.0.0.0:0"),
        "{message}"
    );
    let map = proxied.with("HTTP__TOKEN", "t0ken").run()?;
    let (ada, right) = (("X-User", "ada"), ("Authorization", "Bearer t0ken"));
    for (headers, status) in [
        (vec![ada], 401),
        (vec![ada, ("Authorization", "Bearer token")], 401),
        (vec![right], 401),
        (vec![ada, right], 200),
    ] {
        ensure!(get(&map, "/api/config", &headers)?.status == status, "{headers:?}");
    }
    Ok(())
}
