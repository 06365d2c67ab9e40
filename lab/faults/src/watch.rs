//! Watches every member during all rows: its memory, and whether `/readyz` reports that the member
//! has stopped acknowledging.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab_stack::{Milepost, get, lock, procfs, prom};

/// Interval between two samples of the memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of samples of the memory between two checks for a stall, which cost more.
const SAMPLES_PER_STALL_CHECK: u64 = 10;
/// Once messages have waited this long without any acknowledgement, `/readyz` must report the
/// stall.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// Handle of the watching thread, which ends when the handle is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Process ids and addresses of the running members.
    members: Mutex<Vec<(u32, String)>>,
    peak_rss_bytes: AtomicU64,
    silent_stall: Mutex<Option<String>>,
    stop: AtomicBool,
}

/// A member's last known number of acknowledgements, and the time of the first check at which this
/// number had not changed although messages waited. The time is `None` while there is progress.
type Progress = (f64, Option<Instant>);

impl Watch {
    pub(crate) fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let watched = Arc::clone(&shared);
        std::thread::spawn(move || watched.run());
        Self { shared }
    }

    pub(crate) fn add(&self, member: &Milepost) {
        lock(&self.shared.members).push((member.process.pid(), member.address().to_owned()));
    }

    /// Returns the largest resident set of any member, in bytes.
    pub(crate) fn peak_rss_bytes(&self) -> u64 {
        self.shared.peak_rss_bytes.load(Ordering::Relaxed)
    }

    /// Returns the first stall of a member that reported itself ready.
    pub(crate) fn silent_stall(&self) -> Option<String> {
        lock(&self.shared.silent_stall).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn run(&self) {
        let mut progress = HashMap::new();
        for sample in 0_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let mut members = lock(&self.members).clone();
            members.retain(|(pid, _)| match procfs::resident_bytes(*pid) {
                Ok((_, peak_bytes)) => {
                    self.peak_rss_bytes.fetch_max(peak_bytes, Ordering::Relaxed);
                    true
                }
                Err(_) => false, // the process has ended
            });
            if sample.is_multiple_of(SAMPLES_PER_STALL_CHECK) {
                for (_, address) in &members {
                    self.check_for_stall(address, &mut progress);
                }
            }
            sleep(SAMPLE_INTERVAL);
        }
    }

    /// Records a stall if messages have waited at a member for [`STALLED_AFTER`] without an
    /// acknowledgement, and the member reports itself ready.
    fn check_for_stall(&self, address: &str, progress: &mut HashMap<String, Progress>) {
        let Ok(metrics) = get(&format!("http://{address}/metrics")) else { return };
        let value = |name| prom::value(&metrics, name).unwrap_or(0.0);
        let (acks, unacked) = (value("milepost_acks_total"), value("milepost_mqtt_unacked"));
        let (before, since) = progress.entry(address.to_owned()).or_insert((acks, None));
        // A smaller number means that the member was restarted at its address.
        if acks != *before || unacked == 0.0 {
            (*before, *since) = (acks, None);
            return;
        }
        let since = *since.get_or_insert_with(Instant::now);
        if since.elapsed() >= STALLED_AFTER && get(&format!("http://{address}/readyz")).is_ok() {
            let seconds = since.elapsed().as_secs();
            let stall =
                format!("{unacked} messages waited for {seconds} s while /readyz reported ready");
            lock(&self.silent_stall).get_or_insert(stall);
        }
    }
}
