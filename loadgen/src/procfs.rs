//! CPU and memory of a process, from the operating system (Linux).

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The kernel's unit of CPU time in /proc: USER_HZ, 100 on every Linux architecture in use.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of all threads so far, user and system.
///
/// # Errors
/// The process is gone.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the fields are counted from behind it.
    let fields: Vec<&str> =
        stat.rsplit_once(')').context("unexpected /proc/pid/stat")?.1.split_whitespace().collect();
    let ticks =
        |index: usize| -> Result<u64> { Ok(fields.get(index).context("short /proc/pid/stat")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / TICKS_PER_SECOND))
}

/// Resident memory now, and its peak, in bytes.
///
/// # Errors
/// The process is gone.
pub fn resident_bytes(pid: u32) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| -> Result<u64> {
        let line =
            status.lines().find(|line| line.starts_with(name)).context("no such line in /proc/pid/status")?;
        Ok(line.split_whitespace().nth(1).context("no value")?.parse()?)
    };
    Ok((kib("VmRSS:")? * 1024, kib("VmHWM:")? * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_to_be_busy() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        assert!(cpu_time(pid).unwrap() - before >= Duration::from_millis(100));
        let (now, peak) = resident_bytes(pid).unwrap();
        assert!(now > 1 << 20 && peak >= now);
    }
}
