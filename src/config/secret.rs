//! Passwords.

use std::fmt;
use std::path::PathBuf;

/// A password, or the file that holds it. Never shown.
#[derive(Clone)]
pub enum Secret {
    /// Given as it is.
    Inline(String),
    /// Read when it is needed, so that it can change without a restart.
    File(PathBuf),
}

impl Secret {
    /// The secret; a trailing newline of the file does not belong to it. Blocks for as long as the disk takes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self) -> std::io::Result<String> {
        match self {
            Self::Inline(secret) => Ok(secret.clone()),
            Self::File(path) => Ok(std::fs::read_to_string(path)?.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("***"),
            Self::File(path) => write!(f, "in {}", path.display()),
        }
    }
}
