//! Finds arrays of fixes that a message holds beside the point or array that the format reads, such
//! as `buffered` or `history`.

use std::collections::HashSet;

use super::field_names::{TIME_NAMES, normalised};
use super::fix_arrays::is_name_of_fixes;
use super::json::number;
use super::keep::{Keep, Value, visit_values};
use super::reader::elements;
use super::refusal::Refusal;
use super::schema::Schema;
use crate::reject::Reason;

/// Maximum elements of an array that are counted.
const ELEMENTS_MAX: usize = 100_000;

/// Searches an object for arrays of fixes that the format does not read. Returns an error that
/// names the first such array. An array counts only if it has a fix that the format does not read,
/// and if it is a member of an object around the values that the format reads. `read`: the JSON of
/// the array that the format reads; empty if the format reads one point.
#[cold]
pub(super) fn other_points(json: &[u8], read: &[u8], schema: &Schema) -> Option<Refusal> {
    let mut others = Vec::new();
    let mut read_at = None;
    visit_values(json, &[], &mut |path, value| {
        let Value::Array(array) = value else { return };
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_used = schema.used.iter().any(|used| used == path);
        if array.as_bytes() == read {
            read_at = Some(path.to_owned());
        } else if !is_used && is_name_of_fixes(name.as_bytes()) && !is_kept(&schema.keep, path) {
            others.push((path.to_owned(), array.to_owned()));
        }
    });
    if others.is_empty() {
        return None;
    }
    let names = FixNames::of(schema);
    let mut fixes = HashSet::new();
    if read.is_empty() {
        if let Some((path, fix)) = names.fix(json) {
            (read_at, fixes) = (Some(path), HashSet::from([fix]));
        }
    } else if let Some((all, _)) = elements(read, ELEMENTS_MAX) {
        fixes = all.into_iter().filter_map(|element| Some(names.fix(element)?.1)).collect();
    }
    let read_at = read_at.unwrap_or_default();
    let (path, count) = others.iter().find_map(|(path, array)| {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let rest = read_at.strip_prefix(parent);
        if !parent.is_empty() && !rest.is_some_and(|rest| rest.starts_with('/')) {
            return None;
        }
        let (all, count) = elements(array.as_bytes(), ELEMENTS_MAX)?;
        let mut found = all.into_iter().filter_map(|element| names.fix(element));
        found.any(|(_, fix)| !fixes.contains(&fix)).then_some((path, count))
    })?;
    let keep = match &schema.keep {
        Keep::All => "name the members in keep instead of \"*\", with",
        Keep::Nothing | Keep::Named(_) => "set keep =",
    };
    Some(Refusal::new(
        Reason::WrongShape,
        format!(
            "{path:.40} has {count} points, which are not read: send all fixes in one array, \
             or, if other messages have them, too, {keep} [\"{path:.40}\"]"
        ),
    ))
}

/// Returns whether the operator has named the array in `keep`. `keep` stores no arrays, so `*` does
/// not count.
fn is_kept(keep: &Keep, path: &str) -> bool {
    *keep != Keep::All && keep.has(path)
}

/// The format's names of the values that make a fix.
struct FixNames {
    /// Paths of lat and lng.
    place: [Vec<String>; 2],
    /// Path of the time; `None`: any usual name.
    ts: Option<String>,
}

impl FixNames {
    fn of(schema: &Schema) -> Self {
        let path = |name: &String| name.strip_prefix('/').unwrap_or(name).to_owned();
        let mut place = schema.lat_lng_names.each_ref().map(|name| vec![path(name)]);
        if schema.is_own {
            place[1].push("lon".to_owned());
        }
        let ts = schema.ts_name.as_ref().map(path).filter(|_| !schema.is_own);
        Self { place, ts }
    }

    /// Returns the path of the latitude, and the latitude, longitude and time of an object that has
    /// all three. Finds the values by their names, even if their paths differ from the format's.
    fn fix(&self, object: &[u8]) -> Option<(String, [String; 3])> {
        let mut found = [const { None::<(String, String)> }; 3];
        visit_values(object, &[], &mut |path, value| {
            let Value::Scalar(text) = value else { return };
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_at = |own: &String| own == path;
            let is_called = |own: &String| own.rsplit('/').next() == Some(name);
            let [lat, lng] = &self.place;
            let is_time = || TIME_NAMES.contains(&&*normalised(name));
            let matches = [
                (lat.iter().any(is_at), lat.iter().any(is_called)),
                (lng.iter().any(is_at), lng.iter().any(is_called)),
                (
                    self.ts.as_ref().is_some_and(is_at),
                    self.ts.as_ref().map_or_else(is_time, is_called),
                ),
            ];
            for (slot, (is_at, is_called)) in found.iter_mut().zip(matches) {
                if is_at || is_called && slot.is_none() {
                    *slot = Some((path.to_owned(), comparable(text)));
                }
            }
        });
        let [lat, lng, ts] = found;
        let ((path, lat), (_, lng), (_, ts)) = (lat?, lng?, ts?);
        Some((path, [lat, lng, ts]))
    }
}

/// Returns the same string for equal numbers, such as `12.5` and `12.50`.
fn comparable(text: &str) -> String {
    let number = number(text).and_then(|number| number.as_f64());
    number.map_or_else(|| text.trim().to_owned(), |number| number.to_string())
}
