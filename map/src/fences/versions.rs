//! Versions of a fence: an edit ends the valid version and begins the next one, so that earlier
//! visits stay as they were counted. Only an explicit request rewrites the past. Pure.

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::rules;
use crate::access::encode_hex;
use milepost_events::fences::rules::FenceRules;

/// Rings of `[lng, lat]`, each polygon's outline first; closed.
pub type Polygons = Vec<Vec<Vec<[f64; 2]>>>;

/// 2200-01-01, which the table `fences` uses for "no end".
const NO_END_MS: i64 = 7_258_118_400_000;

/// A row of `fences`; its key is name and `from_ms`.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    pub name: String,
    pub from_ms: i64,
    /// End of the validity, exclusive. A version with `until_ms == from_ms` applies to no fix.
    pub until_ms: i64,
    pub polygons: Polygons,
    pub rules: FenceRules,
}

/// Effect of a request on the outline.
#[derive(Debug, Clone, PartialEq)]
pub enum Outline {
    New(Polygons),
    /// The geometry is omitted: the stored outline stays, even if another viewer has changed it
    /// meanwhile.
    Same,
    /// The geometry is null: the fence ends.
    Ended,
}

/// A request to store or to end a fence.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub name: String,
    /// Name before this change; differs from `name` if the change renames the fence.
    pub name_before: String,
    /// The version to change; `None`: the one that is valid now.
    pub from_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// The version is replaced instead of ended, so that earlier visits are recounted.
    pub rewrites_past: bool,
    pub outline: Outline,
    /// [`fingerprint`] of the outline that the editor started from; `None`: unknown.
    pub outline_seen: Option<String>,
    /// Properties of the request: the rules in them replace those of the version.
    pub properties: Value,
}

/// Returns the rows to insert; empty if nothing changes. `stored`: the rows with the name before or
/// after the change.
///
/// # Errors
/// The version to change does not exist or has ended, the new name is taken, or a rule is invalid.
pub fn plan(change: &Change, stored: &[Version], now_ms: i64) -> Result<Vec<Version>, String> {
    let versions_of =
        |name: &str| stored.iter().filter(move |row| row.name == name).collect::<Vec<_>>();
    let is_valid = |row: &&&Version| row.from_ms <= now_ms && now_ms < row.until_ms;
    let versions = versions_of(&change.name_before);
    let target = match change.from_ms {
        Some(from_ms) => versions.iter().find(|row| row.from_ms == from_ms),
        None => versions.iter().filter(is_valid).max_by_key(|row| row.from_ms),
    };
    let is_renamed = change.name != change.name_before;
    if is_renamed
        && versions_of(&change.name)
            .iter()
            .any(|row| row.until_ms > now_ms && row.until_ms > row.from_ms)
    {
        return Err(format!("there is already a fence \"{}\"", change.name));
    }
    if change.outline == Outline::Ended {
        let target = target.filter(|row| row.until_ms > now_ms);
        let target = target.ok_or_else(|| {
            format!("there is no fence \"{}\" that could end", change.name_before)
        })?;
        return Ok(vec![Version { until_ms: now_ms.max(target.from_ms), ..(**target).clone() }]);
    }
    let Some(target) = target else {
        if is_renamed {
            return Err(format!("there is no fence \"{}\" to rename", change.name_before));
        }
        let Outline::New(polygons) = &change.outline else {
            return Err(format!(
                "there is no fence \"{}\": send its geometry to create it",
                change.name_before
            ));
        };
        let (from_ms, until_ms) = match change.from_ms {
            Some(from_ms) => (from_ms, change.until_ms.unwrap_or(NO_END_MS)),
            None => free_span(&versions, change.until_ms.unwrap_or(NO_END_MS), now_ms),
        };
        let new = Version {
            name: change.name.clone(),
            from_ms,
            until_ms,
            polygons: polygons.clone(),
            rules: rules::changed(&FenceRules::default(), &change.properties)?,
        };
        check_span(&new, None, stored)?;
        return Ok(vec![new]);
    };
    let until_ms = change.until_ms.unwrap_or(target.until_ms);
    let next = Version {
        name: change.name.clone(),
        from_ms: now_ms,
        until_ms,
        polygons: match &change.outline {
            Outline::New(polygons) => polygons.clone(),
            Outline::Same | Outline::Ended => target.polygons.clone(),
        },
        rules: rules::changed(&target.rules, &change.properties)?,
    };
    let is_same_except_rules =
        !is_renamed && target.polygons == next.polygons && target.until_ms == until_ms;
    if is_same_except_rules && next.rules == target.rules {
        return Ok(Vec::new());
    }
    let is_in_place = is_same_except_rules || change.rewrites_past;
    if target.until_ms <= now_ms && (!change.rewrites_past || until_ms > target.until_ms) {
        return Err(
            "this version of the fence has ended; another user may have changed it: reload the \
             fence"
                .to_owned(),
        );
    }
    // Replaces the version instead of beginning a new one in three cases: only rules change, which
    // have no effect on earlier visits; the request rewrites the past; the version has not begun.
    if is_in_place || target.from_ms >= now_ms {
        let next = Version { from_ms: target.from_ms, ..next };
        check_span(&next, Some(target), stored)?;
        let mut rows = vec![next];
        if is_renamed {
            rows.push(Version { until_ms: target.from_ms, ..(**target).clone() });
        }
        return Ok(rows);
    }
    check_span(&next, Some(target), stored)?;
    Ok(vec![Version { until_ms: now_ms, ..(**target).clone() }, next])
}

/// Returns 16 hexadecimal digits that identify an outline.
#[must_use]
pub fn fingerprint(polygons: &Polygons) -> String {
    let hash = digest(&SHA256, json!(polygons).to_string().as_bytes());
    encode_hex(&hash.as_ref()[..8])
}

/// Returns the reason why a new outline conflicts with a change that its editor has not seen;
/// `None`: no conflict.
#[must_use]
pub fn conflict(change: &Change, stored: &[Version], now_ms: i64) -> Option<String> {
    let (Some(outline_seen), Outline::New(_)) = (&change.outline_seen, &change.outline) else {
        return None;
    };
    let versions = stored.iter().filter(|row| row.name == change.name_before);
    let valid = versions
        .filter(|row| row.from_ms <= now_ms && now_ms < row.until_ms)
        .max_by_key(|row| row.from_ms);
    let Some(valid) = valid else {
        return Some("another user removed or renamed this fence after you opened it".to_owned());
    };
    (fingerprint(&valid.polygons) != *outline_seen)
        .then(|| "another user changed this outline after you opened it".to_owned())
}

/// Rejects a version that ends before it begins, or that would replace or overlap another version
/// of its name. `target`: the version that it follows or replaces; an overlap that `target` already
/// has is allowed.
fn check_span(next: &Version, target: Option<&Version>, stored: &[Version]) -> Result<(), String> {
    if next.until_ms <= next.from_ms {
        return Err("properties.valid_until: expected a time in the future".to_owned());
    }
    let overlaps = |first: &Version, second: &Version| {
        first.name == second.name
            && first.from_ms < second.until_ms
            && second.from_ms < first.until_ms
    };
    let is_target = |row: &Version| {
        target.is_some_and(|target| target.name == row.name && target.from_ms == row.from_ms)
    };
    let is_new_overlap = |row: &&Version| {
        !is_target(row)
            && overlaps(next, row)
            && !target.is_some_and(|target| overlaps(target, row))
    };
    match stored.iter().find(is_new_overlap) {
        None => Ok(()),
        Some(row) => Err(format!(
            "another version of the fence \"{}\" is valid in a part of that time: reload the \
             fences, or choose another name",
            row.name
        )),
    }
}

/// Returns the validity of a new fence. It begins at the end of the version that ended last, or in
/// 1970. It ends at the beginning of the next planned version, at most at `until_ms`.
fn free_span(versions: &[&Version], until_ms: i64, now_ms: i64) -> (i64, i64) {
    let ended = versions.iter().map(|row| row.until_ms).filter(|until_ms| *until_ms <= now_ms);
    let planned = versions.iter().filter(|row| row.until_ms > row.from_ms).map(|row| row.from_ms);
    let planned = planned.filter(|from_ms| *from_ms > now_ms);
    (ended.max().unwrap_or_default(), planned.min().unwrap_or(until_ms).min(until_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn ring(size: f64) -> Polygons {
        vec![vec![vec![[0.0, 0.0], [size, 0.0], [size, size], [0.0, 0.0]]]]
    }

    fn version(name: &str, from_ms: i64, until_ms: i64, size: f64) -> Version {
        let (name, polygons) = (name.to_owned(), ring(size));
        Version { name, from_ms, until_ms, polygons, rules: FenceRules::default() }
    }

    fn edit(name: &str, name_before: &str, from_ms: Option<i64>, size: f64) -> Change {
        let outline = Outline::New(ring(size));
        Change {
            name: name.to_owned(),
            name_before: name_before.to_owned(),
            from_ms,
            until_ms: None,
            rewrites_past: false,
            outline,
            outline_seen: None,
            properties: json!({}),
        }
    }

    #[test]
    fn outline_that_another_user_changed_is_a_conflict() {
        let before = version("yard", 0, NO_END_MS, 1.0);
        let outline_seen = Some(fingerprint(&before.polygons));
        let change = Change { outline_seen, ..edit("yard", "yard", Some(0), 3.0) };
        let why = |stored: &[Version]| conflict(&change, stored, NOW);
        assert_eq!(why(std::slice::from_ref(&before)), None);
        // Another user redrew the outline: in one case from that time on, in the other case for the
        // past too.
        let ended = version("yard", 0, 500, 1.0);
        let next = version("yard", 500, NO_END_MS, 2.0);
        assert!(why(&[ended.clone(), next]).unwrap().contains("changed this outline"));
        let rewritten = version("yard", 0, NO_END_MS, 2.0);
        assert!(why(std::slice::from_ref(&rewritten)).unwrap().contains("changed this outline"));
        assert!(why(&[ended]).unwrap().contains("removed or renamed"));
        // A request without the fingerprint that it started from, or without an outline, never
        // conflicts.
        for change in [
            Change { outline_seen: None, ..change.clone() },
            Change { outline: Outline::Same, ..change.clone() },
        ] {
            assert_eq!(conflict(&change, std::slice::from_ref(&rewritten), NOW), None);
        }
    }

    #[test]
    fn edit_begins_a_new_version() {
        let stored = [version("yard", 0, NO_END_MS, 1.0)];
        let rows = plan(&edit("yard", "yard", Some(0), 2.0), &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 0, NOW, 1.0), version("yard", NOW, NO_END_MS, 2.0)]);
        // A request that changes nothing creates no version.
        assert_eq!(plan(&edit("yard", "yard", Some(0), 1.0), &stored, NOW), Ok(vec![]));
    }

    #[test]
    fn rewriting_the_past_keeps_the_start() {
        let stored = [version("yard", 0, NO_END_MS, 1.0)];
        let change = Change { rewrites_past: true, ..edit("depot", "yard", None, 2.0) };
        let rows = plan(&change, &stored, NOW).unwrap();
        assert_eq!(rows, [version("depot", 0, NO_END_MS, 2.0), version("yard", 0, 0, 1.0)]);
    }

    #[test]
    fn rules_survive_an_edit_and_change_without_a_new_version() {
        let rules = FenceRules { stay_max_s: Some(600), ..FenceRules::default() };
        let stored = [Version { rules: rules.clone(), ..version("yard", 0, NO_END_MS, 1.0) }];
        let rows = plan(&edit("depot", "yard", None, 2.0), &stored, NOW).unwrap();
        assert_eq!(rows.iter().map(|row| &row.rules).collect::<Vec<_>>(), [&rules, &rules]);
        let change =
            Change { properties: json!({ "stay_max_s": 60 }), ..edit("yard", "yard", None, 1.0) };
        let rows = plan(&change, &stored, NOW).unwrap();
        let rules = FenceRules { stay_max_s: Some(60), ..FenceRules::default() };
        assert_eq!(rows, [Version { rules, ..version("yard", 0, NO_END_MS, 1.0) }]);
        let change = Change { properties: json!({ "hours": "late" }), ..change };
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("opening hours"));
    }

    #[test]
    fn rename_ends_the_old_name() {
        let stored = [version("yard", 0, NO_END_MS, 1.0), version("gate", 0, 500, 1.0)];
        let rows = plan(&edit("gate", "yard", Some(0), 1.0), &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 0, NOW, 1.0), version("gate", NOW, NO_END_MS, 1.0)]);
        let taken = [stored[0].clone(), version("gate", 0, NO_END_MS, 1.0)];
        assert!(
            plan(&edit("gate", "yard", Some(0), 1.0), &taken, NOW).unwrap_err().contains("already")
        );
        assert!(
            plan(&edit("gate", "shed", None, 1.0), &stored, NOW).unwrap_err().contains("no fence")
        );
    }

    #[test]
    fn edit_of_an_ended_version_is_refused() {
        let stored = [version("yard", 0, 500, 1.0), version("yard", 500, NO_END_MS, 2.0)];
        assert!(
            plan(&edit("yard", "yard", Some(0), 3.0), &stored, NOW)
                .unwrap_err()
                .contains("has ended")
        );
    }

    #[test]
    fn planned_version_is_changed_in_place() {
        let stored = [version("yard", 2_000, NO_END_MS, 1.0)];
        let rows = plan(&edit("yard", "yard", Some(2_000), 2.0), &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 2_000, NO_END_MS, 2.0)]);
    }

    #[test]
    fn new_fence_fills_the_time_between_versions() {
        assert_eq!(
            plan(&edit("yard", "yard", None, 1.0), &[], NOW),
            Ok(vec![version("yard", 0, NO_END_MS, 1.0)])
        );
        let stored = [version("yard", 0, 500, 1.0), version("yard", 2_000, 3_000, 1.0)];
        let rows = plan(&edit("yard", "yard", None, 2.0), &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 500, 2_000, 2.0)]);
    }

    #[test]
    fn ended_fence_keeps_its_past() {
        let end = Change { outline: Outline::Ended, ..edit("yard", "yard", None, 1.0) };
        let rows = plan(&end, &[version("yard", 0, NO_END_MS, 1.0)], NOW).unwrap();
        assert_eq!(rows, [version("yard", 0, NOW, 1.0)]);
        assert!(plan(&end, &[version("yard", 0, 500, 1.0)], NOW).is_err());
    }

    #[test]
    fn rename_of_the_past_is_refused_if_it_would_overlap() {
        let stored = [version("yard", 0, NO_END_MS, 1.0), version("gate", 0, 500, 3.0)];
        let change = Change { rewrites_past: true, ..edit("gate", "yard", Some(0), 1.0) };
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("another version"));
        // A fence that begins later also conflicts: visits at that time would count twice.
        let stored = [stored[0].clone(), version("gate", 100, 500, 3.0)];
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("another version"));
    }

    #[test]
    fn rewriting_the_past_keeps_versions_of_other_users() {
        // Another viewer ended the version that this viewer's page still shows.
        let stored = [version("yard", 0, 500, 1.0), version("yard", 500, NO_END_MS, 2.0)];
        let change = Change {
            rewrites_past: true,
            until_ms: Some(NO_END_MS),
            ..edit("yard", "yard", Some(0), 3.0)
        };
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("has ended"));
        let rows = plan(&Change { until_ms: None, ..change }, &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 0, 500, 3.0)]);
        // Neither a new version inside a valid one nor an end after a planned start is allowed.
        let new = edit("yard", "yard", Some(700), 3.0);
        assert!(plan(&new, &stored, NOW).unwrap_err().contains("another version"));
        let planned = [version("yard", 0, 2_000, 1.0), version("yard", 2_000, 3_000, 2.0)];
        let longer = Change { until_ms: Some(NO_END_MS), ..edit("yard", "yard", Some(0), 1.0) };
        assert!(plan(&longer, &planned, NOW).unwrap_err().contains("another version"));
        // A page that was opened earlier does not restore a fence that another viewer removed.
        let removed = [version("yard", 0, 500, 1.0)];
        for rewrites_past in [true, false] {
            let stale = Change { rewrites_past, ..longer.clone() };
            assert!(plan(&stale, &removed, NOW).unwrap_err().contains("has ended"));
        }
    }

    #[test]
    fn imported_overlap_stays_editable() {
        let stored = [version("yard", 0, NO_END_MS, 1.0), version("yard", 500, NO_END_MS, 2.0)];
        let rows = plan(&edit("yard", "yard", Some(500), 3.0), &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 500, NOW, 2.0), version("yard", NOW, NO_END_MS, 3.0)]);
    }

    #[test]
    fn validity_that_ends_before_it_begins_is_refused() {
        let stored = [version("yard", 0, NO_END_MS, 1.0)];
        for size in [1.0, 2.0] {
            let change = Change { until_ms: Some(900), ..edit("yard", "yard", Some(0), size) };
            assert!(plan(&change, &stored, NOW).unwrap_err().contains("valid_until"));
        }
        let stored = [version("yard", 0, 500, 1.0)];
        let change = Change { until_ms: Some(400), ..edit("yard", "yard", None, 1.0) };
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("valid_until"));
    }

    #[test]
    fn rules_of_an_ended_version_are_refused() {
        let stored = [version("yard", 0, 500, 1.0), version("yard", 500, NO_END_MS, 1.0)];
        let properties = json!({ "stay_max_s": 60 });
        let change = Change { properties, ..edit("yard", "yard", Some(0), 1.0) };
        assert!(plan(&change, &stored, NOW).unwrap_err().contains("has ended"));
    }

    #[test]
    fn omitted_outline_stays() {
        let outline = Outline::Same;
        let rename = Change { outline: outline.clone(), ..edit("gate", "yard", Some(0), 9.0) };
        let stored = [version("yard", 0, NO_END_MS, 1.0)];
        let rows = plan(&rename, &stored, NOW).unwrap();
        assert_eq!(rows, [version("yard", 0, NOW, 1.0), version("gate", NOW, NO_END_MS, 1.0)]);
        let new = Change { outline, ..edit("shed", "shed", None, 9.0) };
        assert!(plan(&new, &stored, NOW).unwrap_err().contains("geometry"));
    }
}
