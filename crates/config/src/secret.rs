//! Passwords.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A password, or the file that contains the password. The password is never printed.
#[derive(Clone)]
pub enum Secret {
    Inline(String),
    /// A file that is read on each use, so that the password can change without a restart.
    File(PathBuf),
}

impl Secret {
    /// Returns the secret, without the byte order mark and the trailing newline of a file. Blocks
    /// for as long as the disk takes.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or has more than one line. An HTTP header could not
    /// carry several lines.
    pub fn read(&self) -> io::Result<String> {
        let secret = match self {
            Self::Inline(secret) => secret.clone(),
            Self::File(path) => {
                // Editors of Windows begin a file in UTF-8 with a byte order mark.
                let text = std::fs::read_to_string(path)?;
                let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
        };
        if secret.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty"));
        }
        if secret.chars().any(char::is_control) {
            let why = "it has several lines or another control character; it must be one line \
                       with only the password";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(secret)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_must_be_one_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Secret::File(file.path().into()).read().map_err(|error| error.to_string())
        };
        assert_eq!(read("pässword \r\n\n").unwrap(), "pässword ");
        assert_eq!(read("\u{feff}password\r\n").unwrap(), "password");
        for text in ["old\nnew\n", "a\rb", "a\tb", "a\u{7f}"] {
            assert!(read(text).unwrap_err().contains("one line"), "{text:?}");
            assert!(Secret::Inline(text.trim_end().into()).read().is_err(), "{text:?}");
        }
        for text in ["", "\n", "\u{feff}\r\n"] {
            assert_eq!(
                read(text).unwrap_err(),
                "it is empty",
                "an empty file may be one that is being written, or was never filled"
            );
        }
    }
}
