//! The order of the tools: in no crate do two modules import each other, by whatever way round, and no file is long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of code, without tests and comments.
const LINES_MAX: usize = 400;

/// The crates around milepost; lab/strict-broker is a workspace of its own.
fn crates() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    members.trim_end_matches(']').split(", ").map(|member| here.join(member.trim_matches('"'))).collect()
}

/// The code of each module of a crate, by its path: `[]` is lib.rs, `["proxy", "pump"]` is proxy/pump.rs.
fn modules(folder: &Path, path: &[String], found: &mut BTreeMap<Vec<String>, String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_string_lossy().into_owned();
        let mut inner = path.to_vec();
        if !["lib", "main"].contains(&name.as_str()) {
            inner.push(name);
        }
        if entry.is_dir() {
            modules(&entry, &inner, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") && !entry.ends_with("tests.rs")
        {
            let text = fs::read_to_string(&entry).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            assert!(code.len() <= LINES_MAX, "{}: {} lines of code", entry.display(), code.len());
            found.insert(inner, code.join("\n"));
        }
    }
}

/// The modules that a piece of code names: after `crate::`, `super::` or `self::`, alone or in braces.
fn imports(of: &[String], code: &str, known: &BTreeMap<Vec<String>, String>) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (word, up) in [("crate::", of.len()), ("super::", 1), ("self::", 0)] {
        for (at, _) in code
            .match_indices(word)
            .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
        {
            let rest = &code[at + word.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap().split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            for name in names {
                let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
                let words = name[..end.unwrap_or(name.len())].split("::").map(str::to_owned);
                let mut target: Vec<String> = of[..of.len().saturating_sub(up)].to_vec();
                target.extend(words);
                while !known.contains_key(&target) {
                    target.pop();
                }
                found.insert(target);
            }
        }
    }
    found.remove(of);
    found
}

#[test]
fn modules_import_one_way() {
    for folder in crates() {
        let mut code = BTreeMap::new();
        modules(&folder.join("src"), &[], &mut code);
        assert!(!code.is_empty(), "{}", folder.display());
        let mut left: BTreeMap<_, _> =
            code.iter().map(|(name, text)| (name.clone(), imports(name, text, &code))).collect();
        // Whoever imports nobody that is left is in order; what remains in the end imports itself round about.
        while let Some(name) = left.iter().find(|(_, uses)| uses.is_empty()).map(|(name, _)| name.clone()) {
            left.remove(&name);
            for uses in left.values_mut() {
                uses.remove(&name);
            }
        }
        assert!(left.is_empty(), "{}: a circle among {left:?}", folder.display());
    }
}
