//! Tests the verifier: it detects lost, duplicate and unsent fixes, and accepts a complete store.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab_stack::{Broker, ClickHouse, Settings};
use loadgen::manifest::Manifest;
use loadgen::publish::{self, Plan, Progress};
use loadgen::verify::{Verdict, verify};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{Client, Event, Incoming, MqttOptions};
use tempfile::TempDir;

/// A ClickHouse with milepost's tables, and the manifest of a fleet that never ran: 20 drivers with
/// 500 fixes each.
struct TestStore {
    engine: ClickHouse,
    manifest: Manifest,
    _folder: TempDir,
}

impl TestStore {
    fn open() -> Result<Self> {
        let folder = TempDir::new()?;
        let engine = ClickHouse::start(folder.path())?;
        engine.create_tables("fleet")?;
        let manifest = Manifest {
            run: "verify".to_owned(),
            qos: 1,
            last_seq: vec![500; 20],
            messages: 10_000,
            ..Manifest::default()
        };
        Ok(Self { engine, manifest, _folder: folder })
    }

    /// Inserts each fix whose number in `numbers(10000)` satisfies `condition`. The `ts` of the
    /// fixes is `age_s` seconds ago.
    fn insert(&self, condition: &str, age_s: u32) -> Result<()> {
        self.engine.query(&format!(
            "INSERT INTO fleet.positions (driver_id, ts, seq, lat_e7, lng_e7, speed_cms, \
             heading_cdeg, alt_dm, acc_dm, received_at) \
             SELECT 'sim-verify-' || toString(intDiv(number, 500)), \
             now64(3) - INTERVAL {age_s} SECOND, number % 500 + 1, \
             1, 1, 1, 1, 1, 50, now64(3) FROM numbers(10000) AS n WHERE {condition}"
        ))?;
        Ok(())
    }

    /// Verifies what is stored now, without waiting for further rows.
    fn verdict(&self) -> Result<Verdict> {
        verify(&self.engine.store("fleet"), &self.manifest, Duration::ZERO)
    }
}

#[test]
fn lost_and_duplicate_fixes_are_found() -> Result<()> {
    let mut store = TestStore::open()?;
    store.insert("number % 1000 != 999", 0)?;
    let verdict = store.verdict()?;
    assert_eq!(
        (verdict.sent, verdict.stored, verdict.lost, verdict.duplicates_in_fixes),
        (10_000, 9_990, 10, 0)
    );
    assert_eq!(verdict.examples[0], (1, 500));
    assert!(!verdict.is_exact());

    // Fixes that were never acknowledged may be missing.
    store.manifest.unacked = (0..20).filter(|n| n % 2 == 1).map(|n| (n, 500)).collect();
    assert!(store.verdict()?.is_exact());
    store.manifest.unacked.clear();

    // The missing fixes arrive late: now the result is exact.
    store.insert("number % 1000 = 999", 0)?;
    let verdict = store.verdict()?;
    assert!(verdict.is_exact(), "{verdict}");
    assert!(verdict.freshness_ms.is_some());

    // If a consumer stores a redelivered fix with a different `ts`, the fix counts as a duplicate.
    store.insert("number % 1000 = 7", 60)?;
    let verdict = store.verdict()?;
    assert_eq!((verdict.lost, verdict.duplicates_in_fixes), (0, 10));
    assert!(!verdict.is_exact());
    Ok(())
}

#[test]
fn unsent_fix_and_unknown_driver_are_found() -> Result<()> {
    let mut store = TestStore::open()?;
    store.insert("1", 0)?;
    store.manifest.last_seq = vec![500; 19];
    store.manifest.last_seq[3] = 499;
    let verdict = store.verdict()?;
    assert_eq!((verdict.lost, verdict.never_sent), (0, 501));
    assert!(!verdict.is_exact());
    Ok(())
}

#[test]
fn run_whose_name_only_begins_with_this_name_is_not_counted() -> Result<()> {
    let store = TestStore::open()?;
    store.insert("1", 0)?;
    let columns = "ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at";
    store.engine.query(&format!(
        "INSERT INTO fleet.positions (driver_id, {columns}) \
         SELECT 'sim-verify-2-7', {columns} FROM fleet.positions LIMIT 10"
    ))?;
    let verdict = store.verdict()?;
    assert_eq!((verdict.stored, verdict.is_exact()), (10_000, true), "{verdict}");
    Ok(())
}

#[test]
fn unreachable_store_gives_no_verdict() -> Result<()> {
    let folder = TempDir::new()?;
    let manifest = folder.path().join("manifest.json");
    let one_fix =
        Manifest { run: "x".into(), qos: 1, last_seq: vec![1], messages: 1, ..Manifest::default() };
    one_fix.save(&manifest)?;
    let exit = |path: &Path| -> Result<Option<i32>> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command
            .args(["verify", "--wait", "1s", "--clickhouse", "http://127.0.0.1:1", "--manifest"])
            .arg(path);
        Ok(command.output()?.status.code())
    };
    assert_eq!(exit(&manifest)?, Some(2));
    assert_eq!(exit(Path::new("nowhere.json"))?, Some(2));
    Ok(())
}

/// Subscribes a client. Without a subscriber, the broker drops the messages (PUBACK 0x10).
fn subscribe(port: u16) -> Result<()> {
    let mut options = MqttOptions::new("listener", "127.0.0.1", port);
    options.set_connection_timeout(20);
    let (client, mut connection) = Client::new(options, 10);
    client.subscribe("drivers/+/gps", QoS::AtLeastOnce)?;
    let (grant_sender, grant) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _client = client;
        // The loop ends when the broker stops, at the end of the test.
        for event in connection.iter() {
            match event {
                Ok(Event::Incoming(Incoming::SubAck(_))) => drop(grant_sender.send(Ok(()))),
                Ok(_) => {}
                Err(error) => return drop(grant_sender.send(Err(error))),
            }
        }
    });
    Ok(grant.recv_timeout(Duration::from_secs(120))??)
}

#[test]
fn manifest_matches_what_the_fleet_sent() -> Result<()> {
    let folder = TempDir::new()?;
    let broker = Broker::start(folder.path())?;
    subscribe(broker.port)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let plan = |qos, connections| Plan {
        broker: format!("127.0.0.1:{}", broker.port),
        run: format!("manifest-{qos}-{connections}"),
        drivers: 100,
        connections,
        qos,
        rate: 5_000.0,
        messages: 5_000,
        burst_share: 0.1,
        burst_points: 10,
        late_share: 0.02,
        duplicate_share: 0.1,
        ..Plan::default()
    };
    for (qos, connections) in [(0, 1), (1, 3), (1, 100)] {
        let progress = Arc::new(Progress::default());
        let manifest =
            runtime.block_on(publish::run(&plan(qos, connections), Arc::clone(&progress)))?;
        let load = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        assert_eq!(load(&progress.sent), manifest.messages);
        let sent = manifest.messages;
        assert!(sent > 5_300, "5,000 messages, about a tenth of them sent twice: {sent}");
        assert!(manifest.sent() > 7_000, "bursts hold more than one fix: {}", manifest.sent());
        assert!(manifest.unacked.is_empty());
        assert_eq!(load(&progress.acked), if qos == 1 { manifest.messages } else { 0 });
    }
    Ok(())
}

#[test]
fn exit_code_of_verify_reports_loss() -> Result<()> {
    let binary = Path::new(env!("CARGO_BIN_EXE_loadgen")).with_file_name("milepost");
    ensure!(
        binary.exists(),
        "milepost is not built: run `cargo test --workspace`, or `cargo build` first"
    );
    let folder = TempDir::new()?;
    let (broker, engine) = (Broker::start(folder.path())?, ClickHouse::start(folder.path())?);
    let settings = Settings::new(&binary, folder.path(), broker.port, &engine.url());
    settings.migrate()?;
    let _milepost = settings.run()?;
    let mut fleet = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    let arguments =
        "fleet --rate 3000 --count 6000 --drivers 60 --late 0.01 --bursts 0.05 --duplicates 0.05";
    fleet.args(arguments.split(' ')).args(["--broker", &format!("127.0.0.1:{}", broker.port)]);
    fleet.current_dir(folder.path());
    assert_eq!(fleet.output()?.status.code(), Some(0));
    let mut verify = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    verify.args(["verify", "--clickhouse", &engine.url()]).current_dir(folder.path());
    let output = verify.output()?;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    engine.query("ALTER TABLE fleet.positions DELETE WHERE seq = 3 SETTINGS mutations_sync = 2")?;
    assert_eq!(verify.args(["--wait", "1s"]).output()?.status.code(), Some(1));
    Ok(())
}
