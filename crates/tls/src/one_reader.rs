//! Reads files on a thread for blocking work, one read at a time. So a hung disk blocks only one
//! thread, even if many callers wait.

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs one read at a time. Holds the read that is running, if any.
#[derive(Debug)]
pub struct OneReader<T>(Mutex<Option<JoinHandle<T>>>);

impl<T> Default for OneReader<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> OneReader<T> {
    /// Runs `read` on a blocking thread and returns its result. If an earlier caller's future was
    /// dropped while its read was running, waits for that read, and returns the earlier read's
    /// result instead.
    pub async fn read(&self, read: impl FnOnce() -> T + Send + 'static) -> T {
        let mut running = self.0.lock().await;
        let result = running.get_or_insert_with(|| spawn_blocking(read)).await;
        *running = None;
        result.expect("reading a file does not panic")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn hung_disk_blocks_only_one_thread() {
        let (reader, (disk, answer)) = (OneReader::default(), mpsc::sync_channel::<u8>(1));
        let mut answer = Some(answer);
        for _ in 0..20 {
            let answer = answer.take();
            let read =
                reader.read(move || answer.expect("only the first read runs").recv().unwrap());
            assert!(timeout(Duration::from_millis(1), read).await.is_err());
        }
        disk.send(7).unwrap();
        assert_eq!(reader.read(|| unreachable!("the first read still runs")).await, 7);
        assert_eq!(reader.read(|| 8).await, 8);
    }
}
