//! The input is `milepost.toml`.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use milepost_config::{Config, Error};

/// The password in seeds and dictionary.
const SECRET: &str = "hunter2";

/// The file that [`Config::load`] reads; `fuzz/run` keeps it in memory.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::temp_dir().join(format!("milepost-fuzz-{}.toml", std::process::id()))
});

fuzz_target!(|toml: &[u8]| -> Corpus {
    let text = String::from_utf8_lossy(toml);
    // A password file is read whole, and /dev/zero has no end.
    if text.contains("_file") && (text.contains("/dev") || text.contains("/proc")) {
        return Corpus::Reject;
    }
    let (shown, config) = match load(toml) {
        Ok(config) => (format!("{config}\n{config:?}"), Some(config)),
        Err(error) => (error.to_string(), None),
    };
    if must_be_hidden(&text) {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    if let Some(config) = config {
        let again = load(config.to_string().as_bytes());
        let again = again.unwrap_or_else(|error| {
            panic!("the shown configuration cannot be loaded: {error}\n{config}")
        });
        assert_eq!(config.effective(), again.effective());
    }
    Corpus::Keep
});

fn load(toml: &[u8]) -> Result<Config, Error> {
    std::fs::write(&*FILE, toml).expect("a file can be written");
    Config::load(Some(&FILE))
}

/// Returns whether [`SECRET`] occurs only as a password or as the password in a URL, at least once.
/// In any other place it is not secret (`group = "hunter2"`). Returns `false` for a configuration
/// with multi-line strings, because a line of such a string can look like a setting.
fn must_be_hidden(text: &str) -> bool {
    let is_password = |line: &str| {
        let line = line.trim_start();
        let prefixes = ["password = \"", "password = '", "url = \"mqtt://u:", "url = \"http://u:"];
        let rest =
            prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)?.strip_prefix(SECRET));
        rest.is_some_and(|rest| !rest.contains(SECRET))
    };
    let lines_with_secret = || text.lines().filter(|line| line.contains(SECRET));
    !text.contains("\"\"\"")
        && !text.contains("'''")
        && lines_with_secret().count() > 0
        && lines_with_secret().all(is_password)
}
