//! Tests the spool, its commands, and the replay of rejects.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::{Fault, Proxy};
use lab_harness::scripted_clickhouse::{Behaviour, ScriptedClickHouse};
use lab_stack::{Milepost, Process, Settings, unix_ms, wait_until};

use crate::secure::{ProxyAction, scripted_clickhouse};
use crate::world::{
    EXIT_INCOMPLETE, SOON, World, finish, publish_in_background, wait_for_metric, world,
};

/// A world whose milepost has a spool. A proxy in front of ClickHouse can refuse connections.
struct Scene {
    world: World,
    proxy: Proxy,
    settings: Settings,
    /// The directory of the spool.
    dir: PathBuf,
}

fn scene(name: &str) -> Result<Scene> {
    let world = world(name)?;
    let proxy = Proxy::start(world.engine.server.port)?;
    let dir = world.folder.path().join("spool");
    let settings = world
        .settings
        .clone()
        .with("CLICKHOUSE__URL", format!("http://127.0.0.1:{}", proxy.port))
        .with("MQTT__SESSION_EXPIRY", "5m")
        .with("SPOOL__DIR", dir.display().to_string());
    Ok(Scene { world, proxy, settings, dir })
}

impl Scene {
    /// Starts a milepost, and makes it spool this many messages of d1. Each message goes into its
    /// own file. ClickHouse stays unreachable.
    fn spool_messages(&self, messages: u32) -> Result<Milepost> {
        let milepost = self.settings.run()?;
        self.proxy.set(Fault::Refuse);
        for seq in 1..=messages {
            let fix = format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#);
            self.world.publish(&[("drivers/d1/gps", fix.as_bytes())])?;
            wait_for_metric(&milepost, "positions_in_spool", f64::from(seq))?;
        }
        Ok(milepost)
    }
}

/// Asserts that the positions add up in one scrape: each position that was received, or that was in
/// the spool at the start, has exactly one outcome.
fn assert_positions_add_up(milepost: &Milepost) -> Result<()> {
    let text = milepost.get("/metrics")?;
    let sum = |name: &str| -> u64 {
        let value = |line: &str| -> Option<u64> {
            let after_name = line.strip_prefix("milepost_positions_")?.strip_prefix(name)?;
            let is_whole_name = after_name.starts_with([' ', '{']);
            is_whole_name.then(|| after_name.rsplit_once(' ')?.1.parse().ok())?
        };
        text.lines().filter_map(value).sum()
    };
    let entered = sum("received_total") + sum("in_spool_at_start");
    let outcomes = [
        "inserted_total",
        "rejected_total",
        "ignored_total",
        "shed_total",
        "erased_total",
        "abandoned_total",
        "quarantined_total",
        "dropped_total",
        "in_spool",
        "in_flight",
    ];
    let ended: u64 = outcomes.iter().map(|outcome| sum(outcome)).sum();
    ensure!(entered == ended, "{entered} ≠ {ended}: {:?}", outcomes.map(|name| (name, sum(name))));
    Ok(())
}

#[test]
fn messages_acked_in_an_outage_survive_a_kill() -> Result<()> {
    const SPOOLED_BEFORE_KILL: f64 = 3_000.0;
    // Positions move between the outcomes all the time, so a single scrape would prove little.
    const SCRAPES: usize = 50;
    let scene = scene("spool_away")?;
    let mut milepost = scene.settings.run()?;
    let fleet = publish_in_background(scene.world.plan("away", 2_000, 6));
    wait_for_metric(&milepost, "positions_inserted_total", 1.0)?;
    scene.proxy.set(Fault::Refuse);
    wait_for_metric(&milepost, "positions_in_spool", SPOOLED_BEFORE_KILL)?;
    for _ in 0..SCRAPES {
        assert_positions_add_up(&milepost)?;
    }
    milepost.process.kill()?;

    // A start does not wait for ClickHouse: the process finds the earlier files and accepts more
    // messages.
    milepost = scene.settings.start()?;
    wait_until("milepost acknowledges messages", SOON, || {
        Ok(milepost.metric("acks_total").unwrap_or(0.0) > 1_000.0)
    })?;
    assert_positions_add_up(&milepost)?;
    ensure!(milepost.metric("positions_in_spool_at_start")? >= SPOOLED_BEFORE_KILL);
    let why = milepost
        .get("/readyz")
        .err()
        .context("/readyz does not report that ClickHouse is away")?
        .to_string();
    ensure!(why.contains("clickhouse"), "{why}");

    scene.proxy.set(Fault::None);
    let manifest = finish(fleet)?;
    wait_until("the spool is empty", SOON, || {
        assert_positions_add_up(&milepost)?;
        Ok(milepost.metric("spool_batches")? == 0.0)
    })?;
    let verdict = scene.world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict}");
    ensure!(milepost.get("/readyz").is_ok());
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn spool_lists_exports_and_replays_files_left_by_run() -> Result<()> {
    let scene = scene("spool_commands")?;
    let mut milepost = scene.settings.run()?;
    scene.proxy.set(Fault::Refuse);
    let manifest = finish(publish_in_background(scene.world.plan("left", 1_000, 2)))?;
    // Messages that milepost has not read when it shuts down stay in the broker's session; this
    // test needs all of them in the spool.
    wait_for_metric(&milepost, "positions_received_total", manifest.sent() as f64)?;
    wait_for_metric(&milepost, "positions_in_spool", 1.0)?;
    assert_eq!(milepost.terminate(SOON)?, EXIT_INCOMPLETE);
    let log = std::fs::read_to_string(scene.world.folder.path().join("milepost.log"))?;
    ensure!(log.contains(&format!("dir={}", scene.dir.display())), "{log}");
    ensure!(log.contains("adds_up=true"), "{log}");

    let (code, listed) = scene.settings.call(&["spool", "list"])?;
    ensure!(code == 0 && listed.contains(".batch"), "{listed}");
    ensure!(listed.contains(&format!("with {} positions", manifest.sent())), "{listed}");
    let exported = scene.world.folder.path().join("exported");
    let (code, printed) =
        scene.settings.call(&["spool", "export", &exported.display().to_string()])?;
    ensure!(code == 0 && printed.contains(" rows\n"), "{printed}");
    let sql = std::fs::read_dir(&exported)?
        .filter_map(Result::ok)
        .find(|f| f.path().extension() == Some("sql".as_ref()));
    let sql = std::fs::read_to_string(sql.context("no statement was exported")?.path())?;
    ensure!(sql.starts_with("INSERT INTO spool_commands.positions ("), "{sql}");
    let mode =
        |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    ensure!(mode(&exported)? == 0o700, "only the owner may read positions");
    for file in std::fs::read_dir(&exported)? {
        ensure!(mode(&file?.path())? == 0o600);
    }
    // Put two files into quarantine. The first has the name of a file with a single row, and is
    // exported too. The second is damaged, and the export only names it.
    let mut names =
        std::fs::read_dir(&scene.dir)?.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let name = names.find(|name| name.ends_with(".batch")).context("no batch")?;
    let row_file = name.replace(".batch", ".row");
    std::fs::copy(scene.dir.join(&name), scene.dir.join(format!("1{row_file}")))?;
    std::fs::write(scene.dir.join(format!("2{}", name.replace(".batch", ".damaged"))), "torn")?;
    let (code, printed) =
        scene.settings.call(&["spool", "export", &exported.display().to_string()])?;
    ensure!(code == EXIT_INCOMPLETE && printed.contains("1 file not exported"), "{code} {printed}");
    ensure!(
        printed.contains(".damaged: not exported") && printed.contains(", too large"),
        "{printed}"
    );
    for name in [format!("1{row_file}"), format!("2{}", name.replace(".batch", ".damaged"))] {
        std::fs::remove_file(scene.dir.join(name))?;
    }

    scene.proxy.set(Fault::None);
    let (code, printed) = scene.settings.call(&["spool", "replay"])?;
    ensure!(code == 0, "{printed}");
    ensure!(scene.settings.call(&["spool", "list"])?.1.contains("0 batches"));
    let (code, printed) =
        scene.settings.call(&["spool", "export", &exported.display().to_string()])?;
    ensure!((code, &*printed) == (0, "no insert to export\n"), "{code} {printed}");
    let verdict = scene.world.verify(&manifest)?;
    assert!(verdict.is_exact(), "{verdict}");
    Ok(())
}

#[test]
fn replay_inserts_nothing_before_the_schema_check() -> Result<()> {
    let scene = scene("spool_unready")?;
    assert_eq!(scene.spool_messages(1)?.terminate(SOON)?, EXIT_INCOMPLETE);
    scene.proxy.set(Fault::None);

    let check_replay_waits = |cause: &str| -> Result<()> {
        let log = scene.world.folder.path().join(format!("replay-{cause}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command
            .args(["spool", "replay"])
            .env("MILEPOST__CLICKHOUSE__URL", scene.world.engine.server.url())
            .env("MILEPOST__CLICKHOUSE__DATABASE", &scene.world.database)
            .env("MILEPOST__SPOOL__DIR", &scene.dir);
        let mut replay = Process::start("milepost spool replay", &mut command, log)?;
        wait_until("the replay waits for ClickHouse", SOON, || {
            replay.ensure_alive()?;
            Ok(replay.log()?.contains("waiting for ClickHouse"))
        })?;
        ensure!(replay.log()?.contains(cause), "{}", replay.log()?);
        replay.signal("TERM")?;
        let code = replay.wait(SOON)?.code();
        ensure!(code == Some(EXIT_INCOMPLETE), "{code:?}: {}", replay.log()?);
        ensure!(scene.world.query("SELECT count() FROM {db}.positions")? == "0");
        ensure!(scene.settings.call(&["spool", "list"])?.1.contains("1 batch with 1 position;"));
        Ok(())
    };
    scene.world.query(
        "ALTER TABLE {db}.schema_migrations DELETE WHERE version = 30 SETTINGS mutations_sync = 2",
    )?;
    check_replay_waits("030_")?;
    scene.world.settings.migrate()?;
    scene
        .world
        .query("ALTER TABLE {db}.rejects MODIFY COLUMN count UInt32 SETTINGS mutations_sync = 2")?;
    check_replay_waits("rejects.count")?;
    let (code, printed) = scene.settings.call(&["rejects", "replay", "--reason", "too_new"])?;
    ensure!(code == 1 && printed.contains("rejects.count is UInt32"), "{code}: {printed}");
    scene
        .world
        .query("ALTER TABLE {db}.rejects MODIFY COLUMN count UInt64 SETTINGS mutations_sync = 2")?;
    let (code, printed) = scene.settings.call(&["spool", "replay"])?;
    ensure!(code == 0, "{printed}");
    ensure!(scene.world.query("SELECT count() FROM {db}.fixes")? == "1");
    Ok(())
}

#[test]
fn replay_retries_a_file_after_a_permanent_error() -> Result<()> {
    let scene = scene("spool_refused")?;
    assert_eq!(scene.spool_messages(3)?.terminate(SOON)?, EXIT_INCOMPLETE);
    let server = ScriptedClickHouse::start(&[scene.world.engine.server.url()])?;
    server.set_for(1, Behaviour::ClickHouseError { code: 516, stored: false });
    let mut command =
        scene.settings.clone().with("CLICKHOUSE__URL", server.url()).command(&["spool", "replay"]);
    let log = scene.world.folder.path().join("replay.log");
    let mut replay = Process::start("milepost spool replay", &mut command, log)?;
    let code = replay.wait(SOON).with_context(|| replay.log().unwrap_or_default())?.code();
    ensure!(code == Some(0), "{code:?}: {}", replay.log()?);
    ensure!(scene.world.query("SELECT count() FROM {db}.fixes")? == "3");
    // A file without the name of a batch is not replayed, and the exit code reports it.
    std::fs::write(scene.dir.join("00000000000000000001-0000000000000001-1 (1).batch"), "a copy")?;
    let (code, printed) =
        scene.settings.clone().with("CLICKHOUSE__URL", server.url()).call(&["spool", "replay"])?;
    ensure!(code == EXIT_INCOMPLETE && printed.contains("left unreplayed"), "{code} {printed}");
    scene.proxy.set(Fault::None);
    let mut milepost = scene.settings.run()?;
    let log = milepost.process.log()?;
    ensure!(log.contains("the spool has files that are never inserted"), "{log}");
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn replay_ends_when_the_erased_list_is_too_old() -> Result<()> {
    let scene = scene("spool_old_list")?;
    assert_eq!(scene.spool_messages(1)?.terminate(SOON)?, EXIT_INCOMPLETE);
    // Refuse every insert. From the first insert on, also refuse queries for the list of erased
    // drivers: the replay retries until its list is too old.
    let is_refused = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&is_refused);
    let url = scripted_clickhouse(scene.world.engine.server.port, move |statement| {
        let is_insert = statement.contains("query=INSERT");
        let was_refused = refused.fetch_or(is_insert, Ordering::SeqCst);
        if is_insert || was_refused && statement.contains(".erased FINAL") {
            ProxyAction::Answer(500, "Code: 241. DB::Exception: Memory limit exceeded.".to_owned())
        } else {
            ProxyAction::Pass
        }
    })?;
    let mut command =
        scene.settings.clone().with("CLICKHOUSE__URL", url).command(&["spool", "replay"]);
    let log = scene.world.folder.path().join("replay.log");
    let mut replay = Process::start("milepost spool replay", &mut command, log)?;
    let (code, printed) = (replay.wait(SOON)?.code(), replay.log()?);
    ensure!(
        code == Some(1) && printed.contains("reading the list of erased drivers failed"),
        "{code:?} {printed}"
    );
    ensure!(printed.matches("could not be read; retrying").count() == 1, "{printed}");
    scene.proxy.set(Fault::None);
    let (code, printed) = scene.settings.call(&["spool", "replay"])?;
    ensure!(code == 0, "{printed}");
    ensure!(scene.world.query("SELECT count() FROM {db}.fixes")? == "1");
    Ok(())
}

/// Logins are refused for 40 s, as if an operator had changed the password in ClickHouse before the
/// file. By then, the list of erased drivers is too old to insert with, and the next query for the
/// list fails because the server is busy.
#[test]
fn replay_survives_refused_logins_and_then_a_busy_server() -> Result<()> {
    const REFUSED_FOR: Duration = Duration::from_secs(40);
    let scene = scene("spool_rotated")?;
    assert_eq!(scene.spool_messages(2)?.terminate(SOON)?, EXIT_INCOMPLETE);
    let (refused_since, was_busy) = (OnceLock::<Instant>::new(), Arc::new(AtomicBool::new(false)));
    let busy = Arc::clone(&was_busy);
    let url = scripted_clickhouse(scene.world.engine.server.port, move |statement| {
        let is_insert = statement.contains("query=INSERT");
        let is_list = statement.contains(".erased FINAL");
        if !is_insert && refused_since.get().is_none() {
            return ProxyAction::Pass;
        }
        if refused_since.get_or_init(Instant::now).elapsed() < REFUSED_FOR {
            let why = "Code: 516. DB::Exception: milepost: Authentication failed.";
            return ProxyAction::Answer(403, why.to_owned());
        }
        // The server is busy: refuse inserts until the list is queried, and refuse that query too.
        if (is_insert || is_list) && !busy.fetch_or(is_list, Ordering::SeqCst) {
            let why = "Code: 241. DB::Exception: Memory limit exceeded.";
            return ProxyAction::Answer(500, why.to_owned());
        }
        ProxyAction::Pass
    })?;
    let password = scene.world.folder.path().join("password");
    std::fs::write(&password, "secret\n")?;
    let settings = scene.settings.clone().with("CLICKHOUSE__URL", url);
    let settings = settings.with("CLICKHOUSE__PASSWORD_FILE", password.display().to_string());
    let (code, printed) = settings.call(&["spool", "replay"])?;
    ensure!(code == 0, "{code} {printed}");
    ensure!(was_busy.load(Ordering::SeqCst), "the list was not read again: {printed}");
    ensure!(scene.world.query("SELECT count() FROM {db}.fixes")? == "2");
    Ok(())
}

#[test]
fn answer_without_an_erased_list_is_not_an_empty_list() -> Result<()> {
    let scene = scene("spool_no_list")?;
    assert_eq!(scene.spool_messages(1)?.terminate(SOON)?, EXIT_INCOMPLETE);
    scene.world.query("INSERT INTO {db}.erased (driver_id) VALUES ('d1')")?;
    for answer in ["", "<html>"] {
        let url = scripted_clickhouse(scene.world.engine.server.port, move |statement| {
            if statement.contains(".erased FINAL") {
                ProxyAction::Answer(200, answer.to_owned())
            } else {
                ProxyAction::Pass
            }
        })?;
        let (code, printed) =
            scene.settings.clone().with("CLICKHOUSE__URL", url).call(&["spool", "replay"])?;
        ensure!(
            code == 1 && printed.contains("reading the list of erased drivers failed"),
            "{answer}: {code} {printed}"
        );
        ensure!(scene.world.query("SELECT count() FROM {db}.positions")? == "0", "{answer}");
    }
    Ok(())
}

#[test]
fn spool_directory_admits_one_process() -> Result<()> {
    let scene = scene("spool_lock")?;
    let _milepost = scene.settings.run()?;
    let second =
        scene.settings.clone().with("MQTT__CLIENT_ID", "other").with("HTTP__LISTEN", "127.0.0.1:0");
    for command in [vec!["run"], vec!["spool", "replay"]] {
        let (code, printed) = second.call(&command)?;
        ensure!(code == 1 && printed.contains("in use by another process"), "{code}: {printed}");
    }
    ensure!(scene.settings.call(&["spool", "list"])?.0 == 0, "`spool list` needs no lock");
    Ok(())
}

#[test]
fn torn_file_is_quarantined_and_the_others_are_replayed() -> Result<()> {
    let scene = scene("spool_torn")?;
    scene.spool_messages(3)?.process.kill()?;
    let second = std::fs::read_dir(&scene.dir)?
        .filter_map(Result::ok)
        .map(|file| file.path())
        .find(|path| path.to_string_lossy().contains("0001-1-"))
        .context("no second batch")?;
    let complete = std::fs::read(&second)?;
    std::fs::write(&second, &complete[..complete.len() - 1])?;

    scene.proxy.set(Fault::None);
    let milepost = scene.settings.run()?;
    wait_for_metric(&milepost, "positions_quarantined_total", 1.0)?;
    scene.world.wait_for(
        "SELECT groupArray(seq) FROM (SELECT seq FROM {db}.fixes ORDER BY seq)",
        "[1,3]",
        SOON,
    )?;
    assert_positions_add_up(&milepost)?;
    ensure!(scene.settings.call(&["spool", "list"])?.1.contains("damaged, in quarantine"));
    Ok(())
}

#[test]
fn full_spool_stops_acks_and_loses_nothing() -> Result<()> {
    // Limit the spool, so that it fills soon, and the batch, which must fit into the spool.
    const SPOOL_BYTES_MAX: u32 = 1 << 20;
    let scene = scene("spool_full")?;
    let settings = scene
        .settings
        .clone()
        .with("SPOOL__BYTES_MAX", SPOOL_BYTES_MAX.to_string())
        .with("LAB__BATCH_BYTES_MAX", SPOOL_BYTES_MAX.to_string());
    let milepost = settings.run()?;
    scene.proxy.set(Fault::Refuse);
    let fleet = publish_in_background(scene.world.plan("full", 5_000, 6));
    wait_for_metric(&milepost, "spool_refused_total", 1.0)?;
    wait_until("/readyz names the limit", SOON, || {
        Ok(milepost
            .get("/readyz")
            .is_err_and(|error| error.to_string().contains("spool.bytes_max")))
    })?;
    ensure!(milepost.metric("spool_bytes")? <= f64::from(SPOOL_BYTES_MAX));
    assert_positions_add_up(&milepost)?;
    scene.proxy.set(Fault::None);
    let verdict = scene.world.verify(&finish(fleet)?)?;
    assert!(verdict.is_exact(), "{verdict}");
    Ok(())
}

#[test]
fn rejects_replayed_twice_store_each_fix_once() -> Result<()> {
    let world = world("rejects_replay")?;
    let milepost = world.settings.run()?;
    let ahead = unix_ms() + 3_600_000;
    let fix = |seq: u32| format!(r#"{{"lat":1,"lng":2,"ts":{ahead},"seq":{seq}}}"#);
    let truncated =
        format!("{{\"lat\":1,\"lng\":2,\"ts\":{ahead},\"x\":\"{}\"}}", "y".repeat(70_000));
    let array = format!("[{},{}]", fix(2), fix(3));
    world.publish(&[
        ("drivers/d1/gps", fix(1).as_bytes()),
        ("drivers/d2/gps", array.as_bytes()),
        ("drivers/d3/gps", truncated.as_bytes()),
        ("drivers/d4/gps", br#"{"lat":91,"lng":2}"#),
    ])?;
    wait_for_metric(&milepost, "acks_total", 4.0)?;
    // Add a row that stands for 41 rejects but has one payload, as under the flood limit. The first
    // three messages have four more fixes that are too new. Of these 45 rejects, one is truncated,
    // and 40 have no payload of their own.
    world.query(
        "INSERT INTO {db}.rejects (received_at, topic, reason, payload, payload_bytes, count) \
         SELECT received_at, topic, reason, payload, payload_bytes, 41 FROM {rejects} \
         WHERE reason = 'too_new' AND topic = 'drivers/d1/gps'",
    )?;
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "0");

    let settings = world.settings.clone().with("DECODE__FIX_FUTURE_MAX", "2h");
    for _ in 0..2 {
        let (code, printed) =
            settings.call(&["rejects", "replay", "--reason", "too_new", "--since", "1h"])?;
        ensure!(code == 0, "{printed}");
        let has_count = |label: &str, count: &str| {
            let mut values = printed.lines().filter_map(|line| line.strip_prefix(label));
            values.any(|value| value.trim_start().starts_with(count))
        };
        ensure!(has_count("rejects", "45"), "{printed}");
        ensure!(has_count("positions inserted", "4"), "{printed}");
        ensure!(
            has_count("not replayable: truncated", "1")
                && has_count("not replayable: sampled", "40"),
            "{printed}"
        );
        assert_eq!(
            world.query("SELECT count(), uniqExact(driver_id, seq) FROM {db}.fixes")?,
            "3\t3"
        );
    }
    let (_, again) = world.settings.call(&["rejects", "replay", "--reason", "too_new"])?;
    ensure!(
        again.contains("too_new") && again.contains("rejected again"),
        "the configuration still rejects them: {again}"
    );
    let (code, printed) = settings.call(&["rejects", "replay", "--reason", "no_such"])?;
    ensure!(code == 64 && printed.contains("null_island"), "{printed}");
    Ok(())
}

/// The driver id is outside the array, so the stored payload of a point lacks the driver id.
#[test]
fn rejected_points_of_an_array_are_replayed_for_their_driver() -> Result<()> {
    let world = world("rejects_arrays")?;
    let settings = world
        .settings
        .clone()
        .with("SOURCE__TOPIC", "traccar/client")
        .with("SOURCE__DRIVER", "/device_id")
        .with("SOURCE__FORMAT", "traccar-client");
    let milepost = settings.run()?;
    let payload = r#"{"device_id":"d7","location":[
        {"timestamp":"2001-01-01T00:00:00Z","coords":{"latitude":1,"longitude":2}},
        {"timestamp":"2001-01-01T00:00:01Z","coords":{"latitude":1,"longitude":2}}]}"#;
    world.publish(&[("traccar/client", payload.as_bytes())])?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(
        world.query("SELECT groupUniqArray((driver_id, reason)), count() FROM {rejects}")?,
        "[('d7','too_old')]\t2"
    );
    // No configuration accepts fixes of 2001, so replay copies with a recent time.
    world.query(
        "INSERT INTO {db}.rejects (received_at, topic, driver_id, reason, payload, payload_bytes, \
         count) SELECT received_at, topic, driver_id, 'bad_ts', replaceOne(payload, \
         '2001-01-01T00:00', formatDateTime(now() - 600, '%FT%H:%i', 'UTC')), length(payload), 1 \
         FROM {rejects}",
    )?;
    let (code, printed) =
        settings.call(&["rejects", "replay", "--reason", "bad_ts", "--since", "1h"])?;
    ensure!(code == 0 && !printed.contains("rejected again"), "{printed}");
    assert_eq!(
        world.query("SELECT driver_id, count() FROM {db}.fixes GROUP BY driver_id")?,
        "d7\t2"
    );
    Ok(())
}

#[test]
fn missing_table_stops_acks_and_spools_qos_0() -> Result<()> {
    let scene = scene("spool_permanent")?;
    let mut milepost = scene.settings.run()?;
    scene.world.query("RENAME TABLE {db}.positions TO {db}.elsewhere")?;
    let at_least_once = finish(publish_in_background(scene.world.plan("one", 500, 2)))?;
    wait_for_metric(&milepost, "insert_errors_total", 1.0)?;
    let why =
        milepost.get("/readyz").err().context("/readyz does not report the failure")?.to_string();
    ensure!(why.contains("positions"), "{why}");
    assert_eq!(
        milepost.metric("acks_total")?,
        0.0,
        "messages that cannot be inserted stay with the broker"
    );
    assert_eq!(milepost.metric("positions_in_spool")?, 0.0);
    milepost.process.kill()?;

    // The same failure at QoS 0, where the broker does not keep the messages.
    let settings = scene.settings.clone().with("LAB__QOS", "0").with("MQTT__GROUP", "zero");
    let dir = scene.world.folder.path().join("zero").display().to_string();
    let zero = settings.with("MQTT__CLIENT_ID", "zero").with("SPOOL__DIR", dir).start()?;
    wait_until("milepost is subscribed, though not ready", SOON, || {
        Ok(zero.metric("mqtt_connected").unwrap_or(0.0) == 4.0)
    })?;
    let plan = loadgen::publish::Plan { qos: 0, ..scene.world.plan("zero", 500, 2) };
    let at_most_once = publish_in_background(plan);
    wait_for_metric(&zero, "positions_in_spool", 1.0)?;
    let at_most_once = finish(at_most_once)?;
    assert_eq!(zero.metric("positions_shed_total")?, 0.0);
    assert_positions_add_up(&zero)?;

    scene.world.query("RENAME TABLE {db}.elsewhere TO {db}.positions")?;
    let milepost = scene.settings.run()?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    let verdict = scene.world.verify(&at_least_once)?;
    assert!(verdict.is_exact(), "{verdict}");
    let verdict = scene.world.verify(&at_most_once)?;
    assert!(verdict.is_exact(), "{verdict}");
    Ok(())
}
