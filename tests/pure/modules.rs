//! A crate's modules and what they import, read from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module: `[]` is lib.rs, `["proxy", "pump"]` is proxy/pump.rs.
pub type Name = Vec<String>;

/// Returns the folders of the workspace's crates, milepost's first.
pub fn crates() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    let mut folders = vec![here.to_owned()];
    for member in members.trim_end_matches(']').split(", ").map(|member| member.trim_matches('"')) {
        match member.strip_suffix("/*") {
            None => folders.push(here.join(member)),
            Some(parent) => folders.extend(below(&here.join(parent))),
        }
    }
    folders
}

fn below(parent: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Reads the files of a crate, each up to its tests.
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
pub fn of_crate(folder: &Path) -> BTreeMap<Name, String> {
    let mut found = BTreeMap::<Name, String>::new();
    for (path, text) in files(folder) {
        let path = path.strip_prefix(folder.join("src")).unwrap().with_extension("");
        let mut name: Name = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        name.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let code: Vec<&str> = text.lines().filter(is_code).collect();
        found.entry(name).or_default().push_str(&code.join("\n"));
    }
    found
}

/// Returns the modules that a module imports: after `crate::`, `super::` or `self::`, alone or in
/// braces, or as its own child.
pub fn imports(of: &Name, known: &BTreeMap<Name, String>) -> BTreeSet<Name> {
    let code = &known[of];
    let mut found = BTreeSet::new();
    for (word, up) in [("crate::", of.len()), ("super::", 1), ("self::", 0)] {
        let starts = code.match_indices(word).map(|(at, _)| at);
        for at in starts
            .filter(|at| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)))
        {
            let rest = &code[at + word.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            let base = &of[..of.len().saturating_sub(up)];
            found.extend(names.into_iter().map(|name| target(base, name, known)));
        }
    }
    let children = known.keys().filter(|name| name.len() == of.len() + 1 && name.starts_with(of));
    let is_named = |child: &&Name| {
        let path = format!("{}::", child[of.len()]);
        let mut at = code.match_indices(&path).map(|(at, _)| &code[..at]);
        at.any(|before| !before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)))
    };
    found.extend(children.filter(is_named).cloned());
    found.remove(of);
    found
}

/// Returns the innermost module on the path `name`.
fn target(base: &[String], name: &str, known: &BTreeMap<Name, String>) -> Name {
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let mut target = base.to_vec();
    target.extend(name[..end.unwrap_or(name.len())].split("::").map(str::to_owned));
    while !known.contains_key(&target) {
        target.pop();
    }
    target
}

/// Returns the modules in import cycles, each with its imports that are in a cycle as well.
pub fn circles(known: &BTreeMap<Name, String>) -> BTreeMap<Name, BTreeSet<Name>> {
    let mut left: BTreeMap<_, _> =
        known.keys().map(|name| (name.clone(), imports(name, known))).collect();
    // A module whose imports are all removed is in no cycle.
    while let Some(name) =
        left.iter().find(|(_, uses)| uses.is_empty()).map(|(name, _)| name.clone())
    {
        left.remove(&name);
        for uses in left.values_mut() {
            uses.remove(&name);
        }
    }
    // In the other direction: a module that no remaining module imports only leads to a cycle.
    while let Some(name) =
        left.keys().find(|name| !left.values().any(|uses| uses.contains(*name))).cloned()
    {
        left.remove(&name);
    }
    left
}
