//! A disk whose fsync takes as long as a file says: by a library that is loaded before libc.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use lab_stack::Settings;

const SOURCE: &str = include_str!("slow_disk.c");

/// A milepost with that library, compiled into `folder`; `file` says how many milliseconds an fsync takes.
pub(crate) fn load(settings: Settings, folder: &Path, file: &Path) -> Result<Settings> {
    let (source, library) = (folder.join("slow_disk.c"), folder.join("slow_disk.so"));
    std::fs::write(&source, SOURCE)?;
    std::fs::write(file, "0")?;
    let compiler = ["-shared", "-fPIC", "-Wall", "-Werror", "-o"];
    let compiled = Command::new("cc").args(compiler).arg(&library).arg(&source).arg("-ldl").status()?;
    ensure!(compiled.success(), "cc failed");
    Ok(settings
        .with_variable("LD_PRELOAD", library.display().to_string())
        .with_variable("SLOW_DISK", file.display().to_string()))
}
