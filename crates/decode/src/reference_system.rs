//! Finds the reference system of the coordinates that a payload states beside them, such as
//! `"coordType":"gcj02"`. Coordinates of another system than WGS 84 may be hundreds of metres off.

use super::field_names::normalised;
use super::hemisphere::is_parent;
use super::keep::{Keep, Value, visit_values};
use super::refusal::{Refusal, refuse};
use crate::reject::Reason;

/// Names of members that state a reference system.
const NAMES: [&str; 12] = [
    "datum",
    "geodeticdatum",
    "crs",
    "srs",
    "coordtype",
    "coordinatetype",
    "coordstype",
    "coordsys",
    "coordsystem",
    "coordinatesystem",
    "coordinatesys",
    "coordinatereferencesystem",
];
/// Beginnings of names of systems that differ from WGS 84 by about 100 m or more: those of Chinese
/// maps, and older national ones.
const SYSTEMS: [&str; 10] =
    ["gcj", "bd09", "osgb36", "nad27", "ed50", "tokyo", "sk42", "ск42", "pulkovo1942", "agd66"];

/// Returns whether a key may name a member that states a reference system; reads only a few bytes.
#[inline]
pub(super) fn may_be_name(key: &[u8]) -> bool {
    let lower = |at: usize| key.get(at).map_or(0, |byte| byte | 0x20);
    match (lower(0), lower(1), lower(2)) {
        (b'd', b'a', b't') => key.len() == 5 && lower(3) == b'u',
        (b'g', b'e', b'o') => lower(3) == b'd',
        (b'c' | b's', b'r', b's') => key.len() == 3,
        // Not `coords` and `coordinates`.
        (b'c', b'o', b'o') => key.len() > 6 && key.len() != 11,
        _ => false,
    }
}

/// Returns whether a key names a member that states a reference system.
pub(super) fn is_name(key: &[u8]) -> bool {
    may_be_name(key) && NAMES.contains(&&*normalised(&String::from_utf8_lossy(key)))
}

/// Checks a point for a reference system of its coordinates. `root`: the object whose members `keep`
/// names.
///
/// # Errors
/// The system is one of those that differ from WGS 84, and the configuration does not keep its name.
#[cold]
pub(super) fn check_system(
    json: &[u8],
    root: &'static [&'static str],
    keep: &Keep,
) -> Result<(), Refusal> {
    let mut found = None;
    let prefix: String = root.iter().map(|name| format!("{name}/")).collect();
    visit_values(json, &[], &mut |path, value| {
        let mut names = path.rsplit('/');
        if let Value::Scalar(text) = value
            && is_name(names.next().unwrap_or_default().as_bytes())
            && names.all(is_parent)
            && SYSTEMS.iter().any(|system| normalised(text).starts_with(system))
        {
            let name = path.strip_prefix(&prefix).unwrap_or(path);
            if !keep.has(name) {
                found = Some((name.to_owned(), text.to_owned()));
            }
        }
    });
    let Some((name, text)) = found else { return Ok(()) };
    refuse(
        Reason::WrongType,
        format!(
            "{name:.40} says {text:.20}, but lat and lng are read in WGS 84: convert them, or store \
             them as they are with keep = [\"{name:.40}\"] (import: --keep)"
        ),
    )
}
