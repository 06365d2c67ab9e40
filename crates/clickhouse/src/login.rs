//! The login at ClickHouse. The password file is read again when the server refuses the login.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tracing::warn;

use super::errors::AUTHENTICATION_FAILED;
use milepost_config::Secret;
use milepost_core::throttle::Throttle;

/// Interval between log lines about an unreadable password file.
const UNREADABLE_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The user and password, shared by all clients of the server.
pub(super) struct Login {
    user: String,
    secret: Option<Secret>,
    password: RwLock<Option<String>>,
    /// Whether a task is reading the password file. Only one such task runs at a time, so that
    /// tasks do not pile up on a hung disk.
    reading: AtomicBool,
    unreadable_log: Mutex<Throttle>,
}

impl Login {
    /// Reads the password file. Blocks for as long as the disk takes, so call it only at startup.
    pub(super) fn new(user: &str, secret: Option<&Secret>) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            user: user.to_owned(),
            secret: secret.cloned(),
            password: RwLock::new(secret.map(Secret::read).transpose()?),
            reading: AtomicBool::new(false),
            unreadable_log: Mutex::new(Throttle::every(UNREADABLE_LOGGED_EVERY)),
        }))
    }

    /// Returns the password that was last read.
    pub(super) fn password(&self) -> Option<String> {
        self.password.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the client with the login that was last read.
    pub(super) fn log_in(&self, client: clickhouse::Client) -> clickhouse::Client {
        let client = client.with_user(&self.user);
        match self.password() {
            Some(password) => client.with_password(password),
            None => client,
        }
    }

    /// Returns the login as headers of the HTTP interface.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        let user = ("X-ClickHouse-User", self.user.clone());
        [user]
            .into_iter()
            .chain(self.password().map(|password| ("X-ClickHouse-Key", password)))
            .collect()
    }

    /// Returns whether a retry may succeed after an answer with this code: the login failed, and
    /// the password comes from a file, which [`Self::reread_if_login_failed`] reads again.
    pub(super) fn may_change_after(&self, code: Option<u32>) -> bool {
        code == Some(AUTHENTICATION_FAILED) && matches!(self.secret, Some(Secret::File(_)))
    }

    /// Reads the password file again if `code` means a failed login, because the file may have
    /// changed. Does not wait for the disk.
    pub(super) fn reread_if_login_failed(self: &Arc<Self>, code: u32) {
        let Some(secret) = self.secret.clone().filter(|_| code == AUTHENTICATION_FAILED) else {
            return;
        };
        if self.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        spawn_blocking(move || {
            match secret.read() {
                Ok(password) => {
                    *this.password.write().unwrap_or_else(PoisonError::into_inner) = Some(password);
                }
                Err(error) => {
                    let mut log =
                        this.unreadable_log.lock().unwrap_or_else(PoisonError::into_inner);
                    if log.allow(Instant::now()) {
                        warn!(
                            %error,
                            "clickhouse.password_file cannot be read; keeping the last password"
                        );
                    }
                }
            }
            this.reading.store(false, Ordering::Release);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::header::HeaderValue;

    use super::*;

    #[tokio::test]
    async fn unreadable_password_file_keeps_the_last_password() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old\n").unwrap();
        let login = Login::new("reader", Some(&Secret::File(file.path().into()))).unwrap();
        for (text, expected) in [("new\nold\n", "old"), ("new\n", "new")] {
            std::fs::write(file.path(), text).unwrap();
            login.reread_if_login_failed(AUTHENTICATION_FAILED);
            while login.reading.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(login.password().unwrap(), expected, "{text:?}");
            for (name, value) in login.headers() {
                assert!(HeaderValue::try_from(value).is_ok(), "{name}");
            }
        }
    }
}
