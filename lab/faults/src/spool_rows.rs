//! Outages of ClickHouse in which more messages arrive than a broker queues, and disks that fail.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::Fault;
use lab_stack::procfs;
use lab_stack::wait_until;

use crate::row::{Row, SETTLE, row};
use crate::scene::Scene;

const MIB: u64 = 1 << 20;
/// Options of a broker that queues 1,000 messages beyond its window and drops further messages, as
/// EMQX does by default.
const SHALLOW: &str = "--max-queue 1000";
/// Lowest replay rate of a spool, as a multiple of the rate of live messages.
const REPLAY_PER_LIVE: f64 = 5.0;

pub(crate) fn all() -> Vec<Row> {
    vec![
        row(
            "spool-away",
            "ClickHouse away 60 s at 10,000 msg/s, a broker that queues 1,000",
            (10_000, 90),
            away,
        )
        .spool()
        .on_strict_broker(SHALLOW),
        row(
            "spool-slow",
            "ClickHouse takes 2 s an insert at 20,000 msg/s, a broker that queues 1,000",
            (20_000, 25),
            slow,
        )
        .spool()
        .on_strict_broker(SHALLOW),
        row(
            "spool-disk-full",
            "ClickHouse away, and the spool's disk full",
            (5_000, 20),
            disk_full,
        )
        .spool(),
        row(
            "spool-damaged",
            "a spool file torn, another flipped, while milepost is down",
            (4_000, 15),
            damaged,
        )
        .spool()
        .quick(),
        row(
            "spool-kill",
            "kill -9 while spooling, three times, and while replaying, three times",
            (4_000, 30),
            kill,
        )
        .spool(),
        row(
            "soak",
            "ten minutes at 20,000 msg/s, ClickHouse away 5 s in each",
            (20_000, 600),
            soak,
        )
        .spool()
        .by_name_only(),
    ]
}

/// Waits until the first member has replayed its spool.
fn wait_until_empty(scene: &Scene, within: Duration) -> Result<()> {
    wait_until("the spool is empty", within, || {
        Ok(scene.metric("spool_batches").unwrap_or(1.0) == 0.0)
    })
}

/// Refuses inserts for a minute, and measures how fast the spool is replayed afterwards.
fn away(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Refuse);
    sleep(Duration::from_secs(60));
    let spooled = scene.metric("positions_in_spool")?;
    ensure!(spooled > 50.0 * scene.rate(), "only {spooled} positions in the spool");
    let began = Instant::now();
    scene.http.set(Fault::None);
    wait_until_empty(scene, 4 * SETTLE)?;
    let ratio = spooled / began.elapsed().as_secs_f64() / scene.rate();
    eprintln!(
        "    {spooled} positions replayed at {ratio:.1} × the live rate, in addition to live \
         messages"
    );
    ensure!(
        ratio >= REPLAY_PER_LIVE,
        "the replay had {ratio:.1} × the live rate, less than {REPLAY_PER_LIVE}"
    );
    Ok(())
}

/// Makes each insert take two seconds. Some batches must then go to the spool, and the connection
/// to the broker must last.
fn slow(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    scene.http.set(Fault::Delay(Duration::from_secs(1))); // each way
    sleep(Duration::from_secs(15));
    let (reconnects, spooled) =
        (scene.metric("mqtt_reconnects_total")?, scene.metric("positions_in_spool")?);
    scene.http.set(Fault::None);
    ensure!(reconnects == 0.0, "a slow ClickHouse caused {reconnects} reconnects to the broker");
    ensure!(spooled > 0.0, "no batch went to the spool while ClickHouse was slow");
    wait_until_empty(scene, 2 * SETTLE)
}

/// A disk of 2 MiB in memory, mounted at the spool of the only member.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Result<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "milepost"])
            .arg(&at)
            .status()?;
        ensure!(status.success(), "cannot mount a small disk: this row needs root");
        Ok(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Unmount lazily, because milepost still holds its lock on this disk.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Fills the spool's disk. milepost must then leave messages unacknowledged, and report the spool.
fn disk_full(scene: &mut Scene) -> Result<()> {
    scene.wait_for_unacked(0)?;
    let code = scene.members[0].milepost.terminate(SETTLE)?;
    ensure!(code == 0, "a drain ended with exit code {code}");
    let dir = scene.spool_dir("member-0");
    let disk = SmallDisk::mount(dir)?;
    scene.restart_member(0)?;
    scene.wait_until_recovered(SETTLE)?;

    scene.http.set(Fault::Refuse);
    wait_until("the disk is full", SETTLE, || Ok(scene.metric("spool_refused_total")? >= 1.0))?;
    sleep(Duration::from_secs(3));
    let reason = scene.members[0]
        .milepost
        .get("/readyz")
        .err()
        .context("/readyz reports ready")?
        .to_string();
    ensure!(reason.contains("spool"), "/readyz does not name the spool: {reason}");
    let unacked = scene.metric("mqtt_unacked")?;
    ensure!(unacked > 0.0, "messages were acknowledged, although the disk is full");
    scene.http.set(Fault::None);
    wait_until_empty(scene, SETTLE)?;
    drop(disk);
    Ok(())
}

/// Returns the batch files in the spool of the only member, in the order of their names.
fn batch_files(scene: &Scene) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(scene.spool_dir("member-0"))?;
    let mut batches: Vec<PathBuf> = files.filter_map(Result::ok).map(|file| file.path()).collect();
    batches.retain(|path| path.extension().is_some_and(|extension| extension == "batch"));
    batches.sort();
    Ok(batches)
}

/// Truncates a spool file, and flips a bit in another, while milepost is down. milepost must count
/// their positions as quarantined.
fn damaged(scene: &mut Scene) -> Result<()> {
    scene.http.set(Fault::Refuse);
    wait_until("four batches are in the spool", SETTLE, || {
        Ok(scene.metric("spool_batches")? >= 4.0)
    })?;
    scene.wait_for_unacked(0)?;
    scene.members[0].milepost.process.kill()?;
    let batches = batch_files(scene)?;
    for (path, tear) in [(&batches[1], true), (&batches[2], false)] {
        let mut bytes = std::fs::read(path)?;
        let middle = bytes.len() / 2;
        if tear {
            bytes.truncate(middle)
        } else {
            bytes[middle] ^= 4
        }
        std::fs::write(path, bytes)?;
        // The second part of a file's name is its number of positions.
        let name =
            path.file_name().and_then(|name| name.to_str()).context("a file without a name")?;
        scene.allowed_losses +=
            name.split('-').nth(1).context("a file name without a number")?.parse::<u64>()?;
    }
    scene.restart_member(0)?;
    // Metrics answer before milepost has read its spool.
    wait_until("milepost has read its spool", SETTLE, || {
        Ok(scene.metric("spool_batches").unwrap_or(0.0) > 0.0)
    })?;
    scene.http.set(Fault::None);
    wait_until_empty(scene, SETTLE)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let quarantined = scene.metric("positions_quarantined_total")? as u64;
    ensure!(
        quarantined == scene.allowed_losses,
        "{quarantined} positions counted as quarantined, {} damaged",
        scene.allowed_losses
    );
    Ok(())
}

/// Kills milepost while it writes spool files, and while it replays them.
fn kill(scene: &mut Scene) -> Result<()> {
    scene.http.set(Fault::Refuse);
    for _ in 0..3 {
        wait_until("batches go to the spool", SETTLE, || {
            Ok(scene.metric("positions_in_spool").unwrap_or(0.0) > 0.0)
        })?;
        scene.wait_for_unacked(0)?;
        scene.kill_and_restart(0)?;
    }
    wait_until("milepost spools again", SETTLE, || {
        Ok(scene.metric("acks_total").unwrap_or(0.0) > 0.0)
    })?;
    scene.http.set(Fault::Delay(Duration::from_millis(150)));
    for _ in 0..3 {
        wait_until("a batch has been replayed", SETTLE, || {
            Ok(scene.metric("batch_rows_count").unwrap_or(0.0) > 0.0)
        })?;
        scene.kill_and_restart(0)?;
    }
    scene.http.set(Fault::None);
    wait_until_empty(scene, 2 * SETTLE)
}

/// Interrupts ClickHouse once a minute. The memory must not grow.
fn soak(scene: &mut Scene) -> Result<()> {
    let mut bytes_at_first = None;
    for minute in 1..=9 {
        sleep(Duration::from_secs(45));
        let (bytes, _) = procfs::resident_bytes(scene.members[0].milepost.process.pid())?;
        eprintln!("    minute {minute}: {:.1} MiB", bytes as f64 / MIB as f64);
        let first_bytes = *bytes_at_first.get_or_insert(bytes);
        ensure!(
            bytes < first_bytes + 4 * MIB,
            "memory grows: {first_bytes} bytes after the first minute, {bytes} now"
        );
        scene.http.set(Fault::Refuse);
        sleep(Duration::from_secs(5));
        scene.http.set(Fault::None);
        sleep(Duration::from_secs(10));
    }
    wait_until_empty(scene, 2 * SETTLE)
}
