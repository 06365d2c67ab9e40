//! Defines the file in which a run records its fixes, and which of them the broker acknowledged.
//! `loadgen verify` reads this file.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::format::Format;

/// Record of one run. A driver's fixes are numbered 1, 2, 3, …, so the manifest stores only the
/// highest number of each driver, and the fixes that were never acknowledged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Drivers are `sim-{run}-{n}`.
    pub run: String,
    /// Format of the payloads.
    #[serde(default)]
    pub format: Format,
    /// QoS of the messages: 0 or 1.
    pub qos: u8,
    /// Per driver, the highest `seq` sent.
    pub last_seq: Vec<u32>,
    /// (driver, seq) of the fixes that were never acknowledged. Such a fix may or may not be
    /// stored.
    pub unacked: Vec<(u32, u32)>,
    /// MQTT messages sent, with intended duplicates but without retries.
    pub messages: u64,
    /// Points sent twice on purpose.
    pub duplicates: u64,
    /// Number of PUBACKs with reason 0x10: the broker dropped the message because no client was
    /// subscribed. Each of these messages was sent again.
    pub no_subscriber: u64,
    /// Refusals of a starting broker, each followed by a retry.
    #[serde(default)]
    pub starting: u64,
    /// Messages sent per second.
    pub rate_held: f64,
}

impl Manifest {
    /// Returns the number of distinct points sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.last_seq.iter().map(|seq| u64::from(*seq)).sum()
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let written = || -> Result<()> {
            let mut file = BufWriter::new(File::create(path)?);
            serde_json::to_writer(&mut file, self)?;
            // A writer that is dropped hides that the disk was full.
            Ok(file.flush()?)
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_reader(BufReader::new(file))
            .with_context(|| format!("{} is not a manifest", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_an_error() {
        let error = Manifest::default().save(Path::new("/dev/full")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write /dev/full: No space"), "{error:#}");
    }
}
