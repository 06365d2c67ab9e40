//! CPU time and memory of processes, as Linux reports them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The unit of time in /proc/stat: USER_HZ, 100 on every Linux architecture in use.
const TICKS_PER_SECOND: u64 = 100;

/// Returns the CPU time of all threads so far, user and system, from a clock with nanoseconds. The
/// ticks of 10 ms in /proc are too coarse: a consumer may use as little as 30 ms of CPU per second.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed()))?;
    Ok(clock_gettime(clock)?.into())
}

/// Returns the CPU time of the calling thread so far.
pub fn thread_cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Returns the resident memory now, and its peak, in bytes.
pub fn resident_bytes(pid: u32) -> Result<(u64, u64)> {
    memory(pid).map(|memory| (memory.resident_bytes, memory.peak_bytes))
}

/// Memory of one process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory now, including pages of files.
    pub resident_bytes: u64,
    /// Peak of the resident memory so far.
    pub peak_bytes: u64,
    /// Resident memory now, without pages of files.
    pub private_bytes: u64,
}

/// Returns the memory of one process, without its descendants.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| -> Result<u64> {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .context("no such line in /proc/pid/status")?;
        Ok(line.split_whitespace().nth(1).context("no value")?.parse()?)
    };
    Ok(Memory {
        resident_bytes: kib("VmRSS:")? * 1024,
        peak_bytes: kib("VmHWM:")? * 1024,
        private_bytes: (kib("RssAnon:")? + kib("RssShmem:")?) * 1024,
    })
}

/// CPU and memory of a process and all its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time so far.
    pub cpu: Duration,
    /// The part of `cpu` spent in the kernel, in steps of 10 ms.
    pub kernel: Duration,
    /// Sum of the peaks of all processes, in bytes.
    pub peak_bytes: u64,
    /// Resident memory now, in bytes.
    pub resident_bytes: u64,
    /// Resident memory now, without pages of files, in bytes.
    pub private_bytes: u64,
}

/// Adds up a process and its descendants. Descendants that end meanwhile are left out.
pub fn usage_of_tree(pid: u32) -> Result<Usage> {
    let mut usage = usage(pid)?;
    for child in descendants(pid) {
        if let Ok(child_usage) = self::usage(child) {
            usage.cpu += child_usage.cpu;
            usage.kernel += child_usage.kernel;
            usage.peak_bytes += child_usage.peak_bytes;
            usage.resident_bytes += child_usage.resident_bytes;
            usage.private_bytes += child_usage.private_bytes;
        }
    }
    Ok(usage)
}

/// Returns the CPU time of everything on this machine so far, including the time that a hypervisor
/// gave to other machines (steal).
pub fn busy_time_of_machine() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // Columns: user, nice, system, idle, iowait, irq, softirq, steal. The columns after these
    // (guest, guest_nice) are already in user and nice.
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    let all: u64 = ticks.iter().take(8).sum();
    Ok(Duration::from_millis((all - idle) * 1000 / TICKS_PER_SECOND))
}

fn usage(pid: u32) -> Result<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Skip the command name, which is in brackets and may contain any character.
    let fields = stat.rsplit_once(')').context("no command in /proc/pid/stat")?.1;
    let ticks: u64 =
        fields.split_whitespace().nth(12).context("no stime in /proc/pid/stat")?.parse()?;
    let kernel = Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
    let Memory { resident_bytes, peak_bytes, private_bytes } = memory(pid)?;
    Ok(Usage { cpu: cpu_time(pid)?, kernel, peak_bytes, resident_bytes, private_bytes })
}

/// Returns the running descendants of a process.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut unvisited = vec![pid];
    while let Some(pid) = unvisited.pop() {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children =
                std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children =
                children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
            unvisited.extend(children.inspect(|child| found.push(*child)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_busy_process_grows() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let began = std::time::Instant::now();
        while cpu_time(pid).unwrap() - before < Duration::from_millis(100) {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "the process is busy, but its CPU time does not grow"
            );
        }
        let memory = memory(pid).unwrap();
        assert!(memory.private_bytes > 1 << 16 && memory.resident_bytes > 1 << 20);
        assert!(
            memory.peak_bytes >= memory.resident_bytes
                && memory.resident_bytes > memory.private_bytes
        );
        assert!(busy_time_of_machine().unwrap() > cpu_time(pid).unwrap());
        let usage = usage_of_tree(pid).unwrap();
        assert!(
            usage.kernel > Duration::ZERO && usage.kernel < usage.cpu,
            "the loop above makes system calls: {usage:?}"
        );
    }

    #[test]
    fn usage_includes_the_children() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 30 & sleep 30"]).spawn().unwrap();
        let began = std::time::Instant::now();
        while descendants(shell.id()).len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(20), "the two sleeps are not found");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (alone, tree) = (usage(shell.id()).unwrap(), usage_of_tree(shell.id()).unwrap());
        assert!(tree.peak_bytes > alone.peak_bytes);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
