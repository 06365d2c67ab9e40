//! Rules of a fence, in the table and as properties of GeoJSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hours::Hours;
use milepost_decode::position::DriverId;
use milepost_decode::row_binary::{put_count, put_text};

/// Maximum of `speed_limit_kmh`.
pub const SPEED_LIMIT_KMH_MAX: f64 = 1_000.0;
/// Maximum of `stay_max_s` and `silent_for_s`: a year.
pub const SECONDS_MAX: u32 = 31_536_000;
/// Maximum length of `hours` and `hours_zone`.
const TEXT_BYTES_MAX: usize = 1_024;
/// Maximum number of ids in `drivers`.
pub const DRIVERS_MAX: usize = 10_000;

/// The rules of a fence, named like the columns of `fences`. `None` or an empty list means that
/// there is no such rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FenceRules {
    /// Above 0.
    pub speed_limit_kmh: Option<f64>,
    /// Seconds inside after which a driver has overstayed.
    pub stay_max_s: Option<u32>,
    /// Seconds without a fix after which a driver inside is silent; 0: never.
    pub silent_for_s: Option<u32>,
    /// Opening hours, as [`Hours::parse`] reads them.
    pub hours: Option<String>,
    /// Time zone of `hours`; `None`: UTC.
    pub hours_zone: Option<String>,
    /// Ids of the drivers that the fence is for; empty: all.
    pub drivers: Vec<String>,
}

impl FenceRules {
    /// Reads the properties of a GeoJSON feature, and appends their errors to `faults`. A property
    /// that is null counts as absent.
    #[must_use]
    pub fn read(properties: &Value, faults: &mut Vec<String>) -> Self {
        let mut rules = Self::default();
        let given = |key: &str| properties.get(key).filter(|value| !value.is_null());
        if let Some(value) = given("speed_limit_kmh") {
            rules.speed_limit_kmh =
                value.as_f64().filter(|kmh| *kmh > 0.0 && *kmh <= SPEED_LIMIT_KMH_MAX);
            if rules.speed_limit_kmh.is_none() {
                faults.push(format!(
                    "speed_limit_kmh: {value} is not a number above 0 and at most \
                     {SPEED_LIMIT_KMH_MAX}"
                ));
            }
        }
        let mut seconds = |key: &str, min: u32| {
            let value = given(key)?;
            let seconds = value.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
            let seconds = seconds.filter(|seconds| (min..=SECONDS_MAX).contains(seconds));
            if seconds.is_none() {
                faults.push(format!(
                    "{key}: {value} is not a whole number of seconds from {min} to {SECONDS_MAX}"
                ));
            }
            seconds
        };
        (rules.stay_max_s, rules.silent_for_s) =
            (seconds("stay_max_s", 1), seconds("silent_for_s", 0));
        let mut text = |key: &str| {
            let value = given(key)?;
            let text = value.as_str().filter(|text| text.len() <= TEXT_BYTES_MAX);
            if text.is_none() {
                faults.push(format!(
                    "{key}: {value} is not a string of at most {TEXT_BYTES_MAX} bytes"
                ));
            }
            text.map(str::to_owned)
        };
        (rules.hours, rules.hours_zone) = (text("hours"), text("hours_zone"));
        match rules.parsed_hours() {
            Err(fault) => faults.push(format!("hours: {fault}")),
            Ok(None) if rules.hours_zone.is_some() => {
                faults.push("hours_zone: is set, but hours is not".to_owned());
            }
            Ok(_) => {}
        }
        if let Some(value) = given("drivers") {
            let ids = value.as_array().filter(|ids| ids.len() <= DRIVERS_MAX);
            let ids = ids.map(|ids| {
                ids.iter().map_while(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
            });
            // `map_while` stops at the first value that is not a string.
            match ids.filter(|ids| value.as_array().map(Vec::len) == Some(ids.len())) {
                Some(ids) => match ids.iter().find(|id| DriverId::new(id).is_err()) {
                    None => rules.drivers = ids,
                    Some(id) => faults.push(format!("drivers: {id:?} is not a valid driver id")),
                },
                None => {
                    faults.push(format!("drivers: must be a list of at most {DRIVERS_MAX} strings"))
                }
            }
        }
        rules
    }

    /// Returns whether the fence has no rule. Only such a fence can be written to a table without
    /// the columns for rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Parses the opening hours.
    ///
    /// # Errors
    /// The opening hours are invalid, or their time zone is unknown.
    pub fn parsed_hours(&self) -> Result<Option<Hours>, String> {
        let parse = |hours: &String| Hours::parse(hours, self.hours_zone.as_deref());
        self.hours.as_ref().map(parse).transpose()
    }

    /// Appends the columns of a row of `fences`.
    pub(super) fn encode(&self, row: &mut Vec<u8>) {
        let Self { speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers } = self;
        put_nullable(speed_limit_kmh.map(f64::to_le_bytes), row);
        put_nullable(stay_max_s.map(u32::to_le_bytes), row);
        put_nullable(silent_for_s.map(u32::to_le_bytes), row);
        for text in [hours, hours_zone] {
            row.push(u8::from(text.is_none()));
            text.iter().for_each(|text| put_text(text.as_bytes(), row));
        }
        put_count(drivers.len(), row);
        drivers.iter().for_each(|id| put_text(id.as_bytes(), row));
    }
}

/// Appends a value that may be NULL in RowBinary: the byte 1 for NULL, or the byte 0 and the value.
pub(crate) fn put_nullable<const BYTES: usize>(value: Option<[u8; BYTES]>, row: &mut Vec<u8>) {
    row.push(u8::from(value.is_none()));
    row.extend(value.into_iter().flatten());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_become_rules_and_null_counts_as_absent() {
        let mut faults = Vec::new();
        let all = json!({
            "speed_limit_kmh": 30, "stay_max_s": 2700, "silent_for_s": 0,
            "hours": "Mo-Fr 06:00-18:00", "hours_zone": "Europe/Berlin", "drivers": ["d1", "d2"],
        });
        let rules = FenceRules::read(&all, &mut faults);
        assert_eq!(
            serde_json::to_value(&rules).ok(),
            Some(json!({
                "speed_limit_kmh": 30.0, "stay_max_s": 2700, "silent_for_s": 0,
                "hours": "Mo-Fr 06:00-18:00", "hours_zone": "Europe/Berlin",
                "drivers": ["d1", "d2"],
            }))
        );
        for none in [json!({}), json!({ "stay_max_s": null, "hours": null, "drivers": [] })] {
            assert_eq!(FenceRules::read(&none, &mut faults), FenceRules::default());
        }
        assert_eq!(faults, Vec::<String>::new());
    }

    #[test]
    fn each_wrong_rule_is_reported() {
        for (properties, fault) in [
            (json!({ "speed_limit_kmh": 0 }), "speed_limit_kmh: 0 is not a number above 0"),
            (json!({ "speed_limit_kmh": "30" }), "speed_limit_kmh: \"30\" is not a number"),
            (
                json!({ "stay_max_s": 0 }),
                "stay_max_s: 0 is not a whole number of seconds from 1 to",
            ),
            (json!({ "stay_max_s": 1.5 }), "stay_max_s: 1.5 is not a whole number"),
            (json!({ "silent_for_s": -1 }), "silent_for_s: -1 is not a whole number"),
            (json!({ "hours": "always" }), "hours: \"always\" is not a list of opening hours"),
            (json!({ "hours": 8 }), "hours: 8 is not a string"),
            (
                json!({ "hours": "08:00-09:00", "hours_zone": "Mars" }),
                "hours: \"Mars\" is not a time zone",
            ),
            (json!({ "hours_zone": "UTC" }), "hours_zone: is set, but hours is not"),
            (json!({ "drivers": "d1" }), "drivers: must be a list"),
            (json!({ "drivers": ["d1", 2] }), "drivers: must be a list"),
            (json!({ "drivers": ["d1", "a b"] }), "drivers: \"a b\" is not a valid driver id"),
            (json!({ "drivers": [""] }), "drivers: \"\" is not a valid driver id"),
        ] {
            let mut faults = Vec::new();
            let _ = FenceRules::read(&properties, &mut faults);
            assert_eq!(faults.len(), 1, "{properties}: {faults:?}");
            assert!(faults[0].starts_with(fault), "{faults:?} does not begin with {fault:?}");
        }
    }
}
