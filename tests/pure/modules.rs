//! Reads the modules of a crate and their imports from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module: `[]` is lib.rs, `["proxy", "pump"]` is proxy/pump.rs.
pub type ModulePath = Vec<String>;

/// Returns the folders of the workspace's crates, milepost's first.
pub fn crates() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let mut folders = vec![here.to_owned()];
    for member in members.trim_end_matches(']').split(", ").map(|member| member.trim_matches('"')) {
        match member.strip_suffix("/*") {
            None => folders.push(here.join(member)),
            Some(parent) => folders.extend(subfolders(&here.join(parent))),
        }
    }
    folders
}

fn subfolders(parent: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Returns the source files of a crate: path and code, without unit tests.
pub fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
                found.push((path, code));
            }
        }
    }
    assert!(!found.is_empty(), "{}", folder.display());
    found
}

/// Returns the code of each module of a crate, without tests, comments and empty lines.
pub fn module_code(folder: &Path) -> BTreeMap<ModulePath, String> {
    let mut found = BTreeMap::<ModulePath, String>::new();
    for (path, text) in files(folder) {
        let path = path.strip_prefix(folder.join("src")).unwrap().with_extension("");
        let mut module: ModulePath =
            path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let code: Vec<&str> = text.lines().filter(is_code).collect();
        found.entry(module).or_default().push_str(&code.join("\n"));
    }
    found
}

/// Returns the modules that `importer` imports. These are the modules named after `crate::`,
/// `super::` or `self::`, alone or in braces, and the named child modules.
pub fn imports(
    importer: &ModulePath,
    modules: &BTreeMap<ModulePath, String>,
) -> BTreeSet<ModulePath> {
    let code = &modules[importer];
    let mut found = BTreeSet::new();
    for (word, levels_up) in [("crate::", importer.len()), ("super::", 1), ("self::", 0)] {
        let starts = code.match_indices(word).map(|(at, _)| at);
        for at in starts
            .filter(|at| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)))
        {
            let rest = &code[at + word.len()..];
            let paths = match rest.strip_prefix('{') {
                Some(group) => {
                    // A group of several lines ends with a comma, so its last part is empty.
                    let parts = group.split('}').next().unwrap().split(',').map(str::trim);
                    parts.filter(|path| !path.is_empty()).collect()
                }
                None => vec![rest],
            };
            let base = &importer[..importer.len().saturating_sub(levels_up)];
            found.extend(paths.into_iter().map(|path| resolve(base, path, modules)));
        }
    }
    let children = modules
        .keys()
        .filter(|module| module.len() == importer.len() + 1 && module.starts_with(importer));
    let is_named = |child: &&ModulePath| {
        let path = format!("{}::", child[importer.len()]);
        let mut at = code.match_indices(&path).map(|(at, _)| &code[..at]);
        at.any(|before| !before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)))
    };
    found.extend(children.filter(is_named).cloned());
    found.remove(importer);
    found
}

/// Returns the innermost module on `path`, which is relative to `base`.
fn resolve(base: &[String], path: &str, modules: &BTreeMap<ModulePath, String>) -> ModulePath {
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let mut module = base.to_vec();
    module.extend(path[..end.unwrap_or(path.len())].split("::").map(str::to_owned));
    while !modules.contains_key(&module) {
        module.pop();
    }
    module
}

/// Returns the modules that are part of an import cycle. Each module has those of its imports that
/// are also part of a cycle.
pub fn cycles(
    modules: &BTreeMap<ModulePath, String>,
) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mut remaining: BTreeMap<_, _> =
        modules.keys().map(|module| (module.clone(), imports(module, modules))).collect();
    // A module whose imports are all removed is not part of a cycle.
    while let Some(module) =
        remaining.iter().find(|(_, imports)| imports.is_empty()).map(|(module, _)| module.clone())
    {
        remaining.remove(&module);
        for imports in remaining.values_mut() {
            imports.remove(&module);
        }
    }
    // A module that no remaining module imports is not part of a cycle either: such a module only
    // leads to a cycle.
    while let Some(module) = remaining
        .keys()
        .find(|module| !remaining.values().any(|imports| imports.contains(*module)))
        .cloned()
    {
        remaining.remove(&module);
    }
    remaining
}
