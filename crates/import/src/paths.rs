//! The paths of files: for `{file}` in a driver's id, and for `--resume`.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::args::ImportArgs;

/// Returns the key of a file for `--resume`: its resolved path. If the name of a symbolic link
/// names another driver than the file's own name does, the link's name is added, because one file
/// may belong to several drivers.
pub(super) fn key(file: &Path, args: &ImportArgs) -> io::Result<PathBuf> {
    let is_driver = args.driver.as_ref().is_some_and(|driver| driver.contains("{file}"));
    let resolved = file.canonicalize()?;
    match file.file_stem() {
        Some(name) if is_driver && resolved.file_stem() != Some(name) => Ok(resolved.join(name)),
        _ => Ok(resolved),
    }
}

/// Returns the absolute path of a file. Resolves symbolic links only in a path with `..`.
pub(super) fn absolute(file: &Path) -> io::Result<PathBuf> {
    let goes_up = file.components().any(|part| part == Component::ParentDir);
    let (true, Some(folder), Some(name)) = (goes_up, file.parent(), file.file_name()) else {
        return std::path::absolute(file);
    };
    Ok(folder.canonicalize()?.join(name))
}
