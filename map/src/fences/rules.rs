//! Rules of a fence, which `milepost events` applies. Pure.
//!
//! Rules have no effect on visits, so a change of rules alone does not begin a new version.

use milepost_events::fences::rules::{FenceRules, SPEED_LIMIT_KMH_MAX};
use serde_json::{Map, Value, json};

/// Keys in a feature's properties: the names of the table's columns.
const KEYS: [&str; 6] =
    ["speed_limit_kmh", "stay_max_s", "silent_for_s", "hours", "hours_zone", "drivers"];

/// Adds the rules to a feature's properties. `has_drivers` is false for a viewer who sees
/// only part of the fleet, and may not see the ids of other drivers.
pub fn show(rules: &FenceRules, properties: &mut Map<String, Value>, has_drivers: bool) {
    if let Ok(Value::Object(rules)) = serde_json::to_value(rules) {
        properties.extend(rules.into_iter().filter(|(key, _)| has_drivers || key != "drivers"));
    }
}

/// Returns the rules of `before` with the properties of a request applied. A key that the request
/// leaves out keeps its rule; null removes it.
///
/// # Errors
/// A rule is invalid; the message names the property and what is expected.
pub fn changed(before: &FenceRules, properties: &Value) -> Result<FenceRules, String> {
    let mut rules = json!(before);
    for key in KEYS {
        if let Some(value) = properties.get(key) {
            let is_emptied = key == "drivers" && value.is_null();
            rules[key] = if is_emptied { json!([]) } else { value.clone() };
            // Parse after each key, so that the error names the property.
            serde_json::from_value::<FenceRules>(rules.clone())
                .map_err(|error| format!("properties.{key}: {error}"))?;
        }
    }
    // A zone without hours has no meaning, so remove it. Perhaps this request removes the hours, or
    // they were never stored.
    if rules["hours"].is_null() && properties.get("hours_zone").is_none_or(Value::is_null) {
        rules["hours_zone"] = Value::Null;
    }
    check(&rules)?;
    serde_json::from_value(rules).map_err(|error| error.to_string())
}

/// Rejects the rules that [`FenceRules::read`] rejects. Errors about numbers use the labels of the
/// page's form.
fn check(rules: &Value) -> Result<(), String> {
    let mut faults = Vec::new();
    let _ = FenceRules::read(rules, &mut faults);
    let Some(fault) = faults.first() else { return Ok(()) };
    Err(match fault.split(':').next() {
        Some("speed_limit_kmh") => {
            format!("the speed limit must be above 0 and at most {SPEED_LIMIT_KMH_MAX} km/h")
        }
        Some("stay_max_s") => "the longest stay must be from a second to a year".to_owned(),
        Some("silent_for_s") => "\"silent after\" must be at most a year".to_owned(),
        _ => fault.clone(),
    })
}

#[cfg(test)]
mod tests {
    use milepost_events::fences::rules::{DRIVERS_MAX, SECONDS_MAX};

    use super::*;

    #[test]
    fn omitted_rules_stay_and_null_removes_a_rule() {
        let before = FenceRules {
            speed_limit_kmh: Some(30.0),
            stay_max_s: Some(600),
            drivers: vec!["d1".to_owned()],
            ..FenceRules::default()
        };
        assert_eq!(changed(&before, &json!({ "name": "yard" })), Ok(before.clone()));
        let after = changed(
            &before,
            &json!({ "speed_limit_kmh": null, "drivers": null, "hours": "08:00-16:00" }),
        );
        let expected = FenceRules {
            stay_max_s: Some(600),
            hours: Some("08:00-16:00".to_owned()),
            ..FenceRules::default()
        };
        assert_eq!(after, Ok(expected));
        assert!(FenceRules::default().is_empty() && !before.is_empty());
    }

    #[test]
    fn invalid_rule_is_refused_by_name() {
        let error = |properties: Value| changed(&FenceRules::default(), &properties).unwrap_err();
        assert!(error(json!({ "stay_max_s": "long" })).starts_with("properties.stay_max_s: "));
        assert!(error(json!({ "stay_max_s": 0 })).contains("longest stay"));
        assert!(error(json!({ "speed_limit_kmh": -1 })).contains("speed limit"));
        assert!(error(json!({ "hours": "8 to 5" })).contains("Mo-Fr 06:00-18:00"));
        assert!(error(json!({ "drivers": ["a b"] })).contains("a b"));
    }

    #[test]
    fn map_refuses_the_rules_that_an_import_refuses() {
        let many: Vec<String> = (0..=DRIVERS_MAX).map(|number| format!("d{number}")).collect();
        for (properties, expected) in [
            (json!({ "hours_zone": "UTC" }), "is set, but hours is not"),
            (json!({ "hours": "08:00-09:00,".repeat(90) + "08:00-09:00" }), "1024 bytes"),
            (json!({ "hours": "08:00-09:00", "hours_zone": "Mars" }), "not a time zone"),
            (json!({ "drivers": many }), "at most 10000"),
            (json!({ "silent_for_s": SECONDS_MAX + 1 }), "a year"),
        ] {
            let mut faults = Vec::new();
            let _ = FenceRules::read(&properties, &mut faults);
            assert_eq!(faults.len(), 1, "{faults:?}");
            let error = changed(&FenceRules::default(), &properties).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn removing_hours_removes_their_zone() {
        let (hours, zone) = (Some("08:00-16:00".to_owned()), Some("Europe/Berlin".to_owned()));
        let before = FenceRules { hours, hours_zone: zone, ..FenceRules::default() };
        assert_eq!(changed(&before, &json!({ "hours": null })), Ok(FenceRules::default()));
        let zone_alone = json!({ "hours": null, "hours_zone": "UTC" });
        assert!(changed(&before, &zone_alone).unwrap_err().contains("is set, but hours is not"));
    }

    #[test]
    fn driver_ids_are_shown_only_to_a_viewer_of_all_drivers() {
        let rules = FenceRules { drivers: vec!["d1".to_owned()], ..FenceRules::default() };
        for has_drivers in [true, false] {
            let mut properties = Map::new();
            show(&rules, &mut properties, has_drivers);
            assert_eq!(properties.contains_key("drivers"), has_drivers);
            assert!(properties["stay_max_s"].is_null());
        }
    }
}
