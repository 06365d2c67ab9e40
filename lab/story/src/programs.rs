//! Finds the programs that the plan names, and installs or builds those of other projects.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use lab_bench::peers;

use crate::plan::Consumer;

/// A program that can be started.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) version: String,
    /// Size in bytes of the program and, for Node and Bun, of the packages shipped with it.
    pub(crate) bytes: u64,
}

/// Returns each consumer's program, or the reason why the program is unavailable, by the consumer's
/// name.
pub(crate) fn find(
    consumers: &[Consumer],
    logs: &Path,
) -> BTreeMap<String, Result<Program, String>> {
    let find = |consumer: &Consumer| {
        let found = find_program(&consumer.program, logs).map_err(|error| format!("{error:#}"));
        (consumer.name.clone(), found)
    };
    consumers.iter().map(find).collect()
}

/// Finds a program by its name in the plan, such as `node`. An unknown name is a path.
fn find_program(name: &str, logs: &Path) -> Result<Program> {
    let sibling = |name: &str| -> Result<PathBuf> {
        let path = std::env::current_exe()?.with_file_name(name);
        fs::canonicalize(&path)
            .with_context(|| format!("no {}: run cargo build -p {name}", path.display()))
    };
    let packages = || folder_bytes(&peers::folder().join("node_modules"), &["@oven", "bun"]);
    Ok(match name {
        "milepost" => {
            let path = sibling(name)?;
            Program { version: peers::version(&path)?, bytes: file_bytes(&path)?, path }
        }
        "afternoon" => {
            let path = sibling(name)?;
            Program {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                bytes: file_bytes(&path)?,
                path,
            }
        }
        "lab" => {
            let path = std::env::current_exe()?;
            Program { version: String::new(), bytes: file_bytes(&path)?, path }
        }
        "node" => {
            let path = peers::node(logs)?;
            let binary = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                .map(|folder| folder.join(&path))
                .find(|path| path.is_file())
                .context("no node on the PATH")?;
            Program {
                version: peers::version(&path)?,
                bytes: file_bytes(&binary)? + packages()?,
                path,
            }
        }
        "bun" => {
            let path = peers::bun(logs)?;
            Program {
                version: peers::version(&path)?,
                bytes: file_bytes(&path)? + packages()?,
                path,
            }
        }
        "telegraf" => {
            let path = peers::telegraf(logs)?;
            Program { version: peers::telegraf_version()?, bytes: file_bytes(&path)?, path }
        }
        path => {
            let path = fs::canonicalize(path).with_context(|| format!("no program {path}"))?;
            Program { version: String::new(), bytes: file_bytes(&path)?, path }
        }
    })
}

fn file_bytes(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}

/// Returns the size of a folder's files. `without`: names of entries to leave out; entries of
/// subfolders always count.
fn folder_bytes(folder: &Path, without: &[&str]) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        if without.iter().any(|left_out| name == **left_out) {
            continue;
        }
        let metadata = entry.path().symlink_metadata()?;
        bytes += if metadata.is_dir() { folder_bytes(&entry.path(), &[])? } else { metadata.len() };
    }
    Ok(bytes)
}
