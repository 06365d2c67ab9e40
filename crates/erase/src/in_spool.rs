//! The driver's rows in the spool on this machine.

use anyhow::{Context as _, Result, anyhow};
use tokio::task::spawn_blocking;

use milepost_config::Config;
use milepost_core::counted::counted;
use milepost_decode::position::DriverId;
use milepost_spool as spool;
use milepost_spool::erase::{EraseCounts, count};
use milepost_spool::{Kind, OpenError, Spool};

/// Data of the driver in this machine's spool.
#[derive(Debug)]
pub(crate) struct InSpool {
    pub description: String,
    /// Whether the spool certainly holds no data of the driver.
    pub is_clean: bool,
}

/// Counts the driver's rows in this machine's spool or, with `remove`, removes them. If a running
/// member uses the spool, removes nothing and counts only files.
pub(crate) async fn count_or_erase_in_spool(
    config: &Config,
    driver_id: DriverId,
    remove: bool,
) -> Result<InSpool> {
    let Some(settings) = config.spool.clone() else {
        let description = "spool.dir is not set here".to_owned();
        return Ok(InSpool { description, is_clean: true });
    };
    let dir = settings.dir.display().to_string();
    let cannot_read = format!("spool.dir: cannot read {dir}; run the command as milepost's user");
    // Not `Path::exists`, which is also false if this user may not look into a parent directory.
    if !settings.dir.try_exists().context(cannot_read.clone())? {
        let description = format!("{dir} does not exist");
        return Ok(InSpool { description, is_clean: true });
    }
    if !remove {
        let found =
            spawn_blocking(move || count(&settings.dir, |id| id == driver_id.as_bytes())).await?;
        let found = found.context(cannot_read)?;
        let description = format!(
            "{dir}: {}, {} that cannot be read",
            counted(found.rows, "row"),
            counted(found.unreadable, "file")
        );
        return Ok(InSpool { description, is_clean: found == EraseCounts::default() });
    }
    // Rewritten files are smaller than the ones they replace, so no bound is needed.
    let is_erased = move |id: &[u8]| id == driver_id.as_bytes();
    let erased = spawn_blocking(move || match Spool::open(&settings.dir, u64::MAX) {
        Ok((spool, inventory)) => {
            let found = spool
                .erase(&inventory, is_erased)
                .with_context(|| format!("spool.dir: {}", settings.dir.display()))?;
            Ok((
                format!(
                    "{} removed, {} that cannot be read",
                    counted(found.rows, "row"),
                    counted(found.unreadable, "file")
                ),
                found.unreadable == 0,
            ))
        }
        Err(OpenError::InUse(_)) => {
            let listed = spool::list(&settings.dir).context(cannot_read)?;
            let count =
                |kinds: &[Kind]| listed.iter().filter(|file| kinds.contains(&file.kind)).count();
            let (batches, quarantined) =
                (count(&[Kind::Batch]), count(&[Kind::Row, Kind::Damaged]));
            let mut text = format!(
                "a running member uses it; {}, from which it drops the rows when it inserts them",
                counted(batches, "batch")
            );
            if quarantined > 0 {
                text += &format!(
                    "; {} in quarantine, which it does not change: stop it, and run the command \
                     again",
                    counted(quarantined, "file")
                );
            }
            Ok((text, batches + quarantined == 0))
        }
        Err(error @ OpenError::Io { .. }) => Err(anyhow!(error)),
    });
    let (text, is_clean) = erased.await??;
    Ok(InSpool { description: format!("{dir}: {text}"), is_clean })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path below a file stands for a directory that this user may not look for: neither proves
    /// that there is no spool.
    #[tokio::test]
    async fn spool_that_cannot_be_looked_for_is_an_error() {
        let erase_in = async |dir: &str, remove| {
            let dir = format!("{}/{dir}", env!("CARGO_MANIFEST_DIR"));
            let config = Config::parse(&format!("spool.dir = '{dir}'")).unwrap();
            count_or_erase_in_spool(&config, DriverId::new("7").unwrap(), remove).await
        };
        for remove in [false, true] {
            let missing = erase_in("no-such-directory", remove).await.unwrap();
            assert!(missing.is_clean && missing.description.ends_with("does not exist"));
            let error = erase_in("Cargo.toml/spool", remove).await.unwrap_err();
            let text = format!("{error:#}");
            assert!(
                text.starts_with("spool.dir: cannot read ") && text.contains("/spool"),
                "{text}"
            );
        }
    }
}
