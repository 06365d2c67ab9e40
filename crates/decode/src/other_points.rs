//! Finds arrays of fixes that a message holds beside the point or array that the format reads, such
//! as `buffered` or `history`.

use memchr::memmem;

use super::fix_arrays::is_name;
use super::keep::{Keep, Value, visit_values};
use super::reader::{as_text, elements};
use super::refusal::Refusal;
use super::schema::Schema;
use crate::reject::Reason;

/// Maximum elements of an array that are counted.
const ELEMENTS_MAX: usize = 100_000;

/// Returns an error that names the first array of fixes in an object that the format does not read.
/// `read`: the array that it reads; empty if it reads one point.
#[cold]
pub(super) fn other_points(json: &[u8], read: &[u8], schema: &Schema) -> Option<Refusal> {
    let mut found = None;
    visit_values(json, &[], &mut |path, value| {
        let Value::Array(array) = value else { return };
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_read = schema.used.iter().any(|used| used == path);
        if found.is_some()
            || array.as_bytes() == read
            || is_read
            || !is_name(name.as_bytes())
            || is_kept(&schema.keep, path)
        {
            return;
        }
        let Some((all, count)) = elements(array.as_bytes(), ELEMENTS_MAX) else { return };
        let is_new = |element: &&[u8]| {
            is_fix(as_text(element), schema) && memmem::find(read, element).is_none()
        };
        if all.iter().copied().filter(is_new).count() > 0 {
            found = Some((path.to_owned(), count));
        }
    });
    let (path, count) = found?;
    Some(Refusal::new(
        Reason::WrongShape,
        format!(
            "{path:.40} has {count} points, which are not read: send all fixes in one array; or keep = \
             [\"{path:.40}\"], if other messages have them, too"
        ),
    ))
}

/// Returns whether the operator names the array in `keep`, which stores no arrays.
fn is_kept(keep: &Keep, path: &str) -> bool {
    *keep != Keep::All && keep.has(path)
}

/// Returns whether an object has numbers as lat and lng, and a time, under the format's names.
fn is_fix(object: &str, schema: &Schema) -> bool {
    let last = |name: &'_ str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let [lat, lng] = schema.lat_lng_names.each_ref().map(|name| last(name));
    let ts = schema.ts_name.as_deref().map_or_else(String::new, last);
    let has = |name: &str| {
        let key = format!("\"{name}\"");
        let rest = object.split_once(&key).map(|(_, rest)| rest.trim_start());
        let value = rest.and_then(|rest| rest.strip_prefix(':')).map(str::trim_start);
        value.is_some_and(|value| !value.starts_with(['{', '[', 'n']))
    };
    object.starts_with('{')
        && has(&lat)
        && (has(&lng) || schema.is_own && has("lon"))
        && (ts.is_empty() || has(&ts))
}
