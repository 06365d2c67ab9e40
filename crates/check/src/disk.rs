//! Checks the spool's directory: whether it is writable, has enough free space, and survives a
//! restart.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use rustix::fs::{StatFs, statfs};

use super::report::Report;
use milepost_config::Spool;

const SUBJECT: &str = "spool";
/// File system types (Linux, `statfs(2)`).
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58F6;
/// The writable layer of a container.
const OVERLAYFS: u32 = 0x794C_7630;

/// Checks the directory of the spool, if one is configured.
pub(super) fn check(report: &mut Report, spool: Option<&Spool>) {
    let Some(spool) = spool else {
        return report.ok(
            SUBJECT,
            "none (spool.dir): while ClickHouse is down, only the broker's queue holds messages",
        );
    };
    let dir = spool.dir.display();
    // `run` creates missing directories, so check the nearest existing ancestor.
    let absolute = std::path::absolute(&spool.dir).unwrap_or_else(|_| spool.dir.clone());
    let Some(existing) = absolute.ancestors().find(|path| path.exists()) else {
        return report.error(
            SUBJECT,
            format!("{dir} does not exist"),
            "set spool.dir to a directory",
        );
    };
    if let Err(error) = try_to_write(existing) {
        return report.error(
            SUBJECT,
            format!("{}: {error}", existing.display()),
            format!("set spool.dir ({dir}) to a directory that this user can write to"),
        );
    }
    match statfs(existing) {
        Ok(found) => report_kind_and_space(report, spool, &found),
        Err(error) => report.warning(
            SUBJECT,
            format!("{dir}: the file system does not report its free space: {error}"),
            "compare the free space with spool.bytes_max by hand",
        ),
    }
}

/// Writes and removes a file. The spool ignores the file because of its name.
fn try_to_write(dir: &Path) -> std::io::Result<()> {
    let path = dir.join(format!("check-{:016x}", fastrand::u64(..)));
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(b"milepost check")?;
        file.sync_all()
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

/// Returns the number of free bytes. `f_bavail` counts units of `f_frsize`. On FUSE, `f_bsize`, the
/// preferred size of a transfer, can be many times as large.
fn free_bytes(found: &StatFs) -> u64 {
    let unit = if found.f_frsize == 0 { found.f_bsize } else { found.f_frsize };
    found.f_bavail.saturating_mul(u64::try_from(unit).unwrap_or(0))
}

fn report_kind_and_space(report: &mut Report, spool: &Spool, found: &StatFs) {
    let dir = spool.dir.display();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "f_type holds 32 bits in a wider type"
    )]
    let kind = found.f_type as u32;
    match kind {
        TMPFS | RAMFS => report.error(
            SUBJECT,
            format!(
                "{dir} is memory: a restart of the machine or container loses acknowledged messages"
            ),
            "set spool.dir to a directory on a disk; in Kubernetes, on a volume that is not an \
             emptyDir with medium Memory",
        ),
        OVERLAYFS => report.warning(
            SUBJECT,
            format!("{dir} is in the container's own layer, which is deleted with the container"),
            "mount a volume, and set spool.dir to a directory on it",
        ),
        _ => report.ok(SUBJECT, format!("{dir}: can be written")),
    }
    let free = free_bytes(found);
    // If the spool does not exist yet, its usage is 0.
    let used = std::fs::read_dir(&spool.dir).map_or(0, |files| {
        files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len()).sum::<u64>()
    });
    let wanted = spool.bytes_max.saturating_sub(used);
    if free < wanted {
        report.error(
            "spool space",
            format!("{free} bytes are free, but spool.bytes_max allows the spool {wanted} more"),
            "free some space, mount a larger volume, or lower spool.bytes_max",
        );
    } else {
        report.ok(
            "spool space",
            format!("{free} bytes are free, spool.bytes_max allows the spool {wanted} more"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_counted_in_fragments() {
        let mut found = statfs(".").unwrap();
        (found.f_bsize, found.f_frsize, found.f_bavail) = (1 << 20, 4_096, 10);
        assert_eq!(free_bytes(&found), 40_960);
        found.f_frsize = 0; // an old kernel leaves it at 0
        assert_eq!(free_bytes(&found), 10 << 20);
    }
}
