//! The input is `milepost.toml`.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::{Corpus, fuzz_target};
use milepost_config::{Config, Error};

/// Stands for a password in seeds and dictionary.
const SECRET: &str = "hunter2";

/// The file that [`Config::load`] reads; `fuzz/run` keeps it in memory.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("milepost-fuzz-{}.toml", std::process::id())));

fuzz_target!(|toml: &[u8]| -> Corpus {
    let text = String::from_utf8_lossy(toml);
    // A password file is read at once, and /dev/zero has no end.
    if text.contains("_file") && (text.contains("/dev") || text.contains("/proc")) {
        return Corpus::Reject;
    }
    let (shown, config) = match load(toml) {
        Ok(config) => (format!("{config}\n{config:?}"), Some(config)),
        Err(error) => (error.to_string(), None),
    };
    if is_secret(&text) {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    if let Some(config) = config {
        let again = load(config.to_string().as_bytes());
        let again = again.unwrap_or_else(|error| panic!("what is shown is not usable: {error}\n{config}"));
        assert_eq!(config.effective(), again.effective());
    }
    Corpus::Keep
});

fn load(toml: &[u8]) -> Result<Config, Error> {
    std::fs::write(&*FILE, toml).expect("a file can be written");
    Config::load(Some(&FILE))
}

/// Whether the secret is only where one may be expected: as a password, or in a URL. Elsewhere it
/// is no secret (`group = "hunter2"`); and in a text of many lines, a line is not what it seems.
fn is_secret(text: &str) -> bool {
    let secret_place = |line: &str| {
        let line = line.trim_start();
        let place = ["password = \"", "password = '", "url = \"mqtt://u:", "url = \"http://u:"];
        let rest = place.iter().find_map(|place| line.strip_prefix(place)?.strip_prefix(SECRET));
        rest.is_some_and(|rest| !rest.contains(SECRET))
    };
    let lines_with_it = || text.lines().filter(|line| line.contains(SECRET));
    !text.contains("\"\"\"")
        && !text.contains("'''")
        && lines_with_it().count() > 0
        && lines_with_it().all(secret_place)
}
