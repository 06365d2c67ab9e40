//! Reads and writes geofences. Every viewer sees the fences that are valid now. Editors write
//! fences with a separate ClickHouse login, which cannot read positions.
//!
//! Guarantee: an outline, name or rule of a request is stored only if `milepost fences import`
//! would accept it. Every ring that this module returns is closed.

pub mod rules;
pub mod versions;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use clickhouse::Row;
use clickhouse::query::Query;
use milepost_clickhouse::{FetchWhole as _, Reader};
use milepost_events::fences::{MOMENTS_MS, closed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::versions::{Change, Outline, Polygons, Version, conflict, fingerprint, plan};
use crate::fleet::filter::Scope;
use crate::history::failed;
use crate::store::{Error, Store};

/// Maximum number of fences in one response.
const FENCES_MAX: usize = 5_000;

/// Maximum length of one part of a [`LongText`], in bytes. By default ClickHouse accepts 128 KiB in
/// a parameter, in which each character may be escaped.
const PART_BYTES_MAX: usize = 60_000;

/// A row of `fences`. Times are in milliseconds since 1970.
#[derive(Row, Serialize, Deserialize)]
struct Stored {
    name: String,
    valid_from: i64,
    valid_until: i64,
    /// A JSON array.
    polygons: String,
    /// A JSON object with one key for each column of [`RULES`]; `{}` if the table lacks any of
    /// them.
    rules: String,
}

impl Stored {
    /// Converts the row to a version. Closes rings that SQL left open, because GeoJSON and the
    /// map's editor need closed rings.
    ///
    /// # Errors
    /// The stored outline or rules cannot be read; the message names the fence. A fence is never
    /// returned in part, because an edit would then store this part as the whole fence.
    fn version(self) -> Result<Version, String> {
        let unreadable = |part: &str, error: serde_json::Error| {
            format!("the {part} of the stored fence \"{}\" cannot be read ({error})", self.name)
        };
        let polygons: Polygons =
            serde_json::from_str(&self.polygons).map_err(|error| unreadable("outline", error))?;
        let polygons =
            polygons.into_iter().map(|rings| rings.into_iter().map(closed).collect()).collect();
        let rules =
            serde_json::from_str(&self.rules).map_err(|error| unreadable("rules", error))?;
        let (from_ms, until_ms) = (self.valid_from, self.valid_until);
        Ok(Version { name: self.name, from_ms, until_ms, polygons, rules })
    }
}

/// Columns of [`Stored`] before `rules`.
const COLUMNS: &str = "name, toUnixTimestamp64Milli(fences.valid_from) AS valid_from,
    toUnixTimestamp64Milli(fences.valid_until) AS valid_until,
    toJSONString(arrayMap(polygon -> arrayMap(ring ->
        arrayMap(point -> [point.1, point.2], ring), polygon), polygons)) AS polygons, ";
/// Column `rules` of [`Stored`]. `toJSONString` writes NULL as null.
const RULES: &str = "toJSONString(CAST(
    (speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers),
    'Tuple(speed_limit_kmh Nullable(Float64), stay_max_s Nullable(UInt32),
    silent_for_s Nullable(UInt32), hours Nullable(String), hours_zone Nullable(String),
    drivers Array(String))')) AS rules";
/// Stands in for [`RULES`] if an older `milepost migrate` created the table without columns of
/// rules.
const NO_RULES: &str = "'{}' AS rules";

/// Reasons why stored fences were missing from the last response. Each reason is logged once, not
/// for every request.
#[derive(Debug, Default)]
pub struct Unreadable(Mutex<BTreeSet<String>>);

impl Unreadable {
    /// Replaces the reasons, and returns those that are new.
    fn replace(&self, reasons: BTreeSet<String>) -> Vec<String> {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = reasons.difference(&before).cloned().collect();
        *before = reasons;
        new
    }
}

/// Returns the fences that are valid now, as a GeoJSON FeatureCollection. Only a viewer of all
/// drivers gets the ids of the drivers to which a fence applies.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn all(store: &Store, scope: &Scope, unreadable: &Unreadable) -> Result<Value, Error> {
    let fetch = async |rules: &str| {
        let sql = format!(
            "SELECT {COLUMNS}{rules} FROM {{db}}.fences FINAL
            WHERE fences.valid_from <= now64(3) AND fences.valid_until > now64(3)
            ORDER BY name, valid_from LIMIT {}",
            FENCES_MAX + 1
        );
        store.fetch_all::<Stored>(|| store.query(&sql)).await
    };
    let stored = match fetch(RULES).await {
        Err(error) if store.reader().lacks_column(&error) => fetch(NO_RULES).await,
        stored => stored,
    };
    let mut stored = stored.map_err(|error| failed(store, &error))?;
    let is_cut = stored.len() > FENCES_MAX;
    stored.truncate(FENCES_MAX);
    let feature = |fence: Version| {
        let mut properties = Map::new();
        properties.insert("name".to_owned(), json!(fence.name));
        properties.insert("valid_from".to_owned(), json!(fence.from_ms));
        properties.insert("valid_until".to_owned(), json!(fence.until_ms));
        properties.insert("outline".to_owned(), json!(fingerprint(&fence.polygons)));
        rules::show(&fence.rules, &mut properties, scope.is_all());
        json!({
            "type": "Feature",
            "properties": properties,
            "geometry": { "type": "MultiPolygon", "coordinates": fence.polygons },
        })
    };
    let (mut features, mut reasons) = (Vec::with_capacity(stored.len()), BTreeSet::new());
    for stored in stored {
        match stored.version() {
            Ok(fence) => features.push(feature(fence)),
            Err(why) => {
                reasons.insert(why);
            }
        }
    }
    for why in unreadable.replace(reasons) {
        tracing::warn!(why, "a fence is not shown: import it again");
    }
    let mut found = json!({ "type": "FeatureCollection", "features": features });
    let is_cut = is_cut.then(|| format!("only the first {FENCES_MAX} fences by name are shown"));
    if let Some(hint) = store.hint(&["fences"]).or(is_cut) {
        found["hint"] = hint.into();
    }
    Ok(found)
}

/// Stores the rows that [`plan`] derives from a GeoJSON Feature, and logs `user` as the author. The
/// caller must run one change at a time, because the rows are read before they are written.
///
/// # Errors
/// The feature is invalid, conflicts with another user's change, or ClickHouse did not store it.
pub async fn put(
    writer: &Reader,
    database: &str,
    feature: &Value,
    user: Option<&str>,
) -> Result<(), Refused> {
    let change = change(feature).await?;
    let names = [&change.name_before, &change.name];
    let (now_ms, stored) =
        read(writer, database, &names).await.map_err(|error| unavailable(writer, &error))?;
    let stored = stored.into_iter().map(Stored::version).collect::<Result<Vec<_>, _>>();
    let stored = stored.map_err(|why| Refused::Invalid(format!("{why}: import it again")))?;
    if let Some(why) = conflict(&change, &stored, now_ms) {
        return Err(Refused::Conflict(why));
    }
    let rows = plan(&change, &stored, now_ms).map_err(Refused::Invalid)?;
    if rows.is_empty() {
        return Ok(());
    }
    write(writer, database, &rows).await.map_err(|error| unavailable(writer, &error))?;
    let action = if change.outline == Outline::Ended { "ended" } else { "stored" };
    let Change { name, rewrites_past, .. } = change;
    tracing::info!(user, fence = ?name, rewrites_past, "a fence was {action}");
    Ok(())
}

/// Validates a GeoJSON Feature and converts it to a [`Change`].
async fn change(feature: &Value) -> Result<Change, Refused> {
    let properties = &feature["properties"];
    let name = properties["name"].as_str().unwrap_or_default().to_owned();
    if feature["type"] != "Feature" || name.is_empty() {
        return Err(Refused::Invalid("expected a GeoJSON Feature with properties.name".to_owned()));
    }
    let (from_ms, until_ms) =
        (moment(properties, "valid_from")?, moment(properties, "valid_until")?);
    if from_ms.zip(until_ms).is_some_and(|(from_ms, until_ms)| from_ms >= until_ms) {
        return Err(Refused::Invalid(
            "properties.valid_until: expected a time after valid_from".to_owned(),
        ));
    }
    let refused = |key: &str, expected: &str| {
        Refused::Invalid(format!("properties.{key}: expected {expected}"))
    };
    let given = |key: &str| properties.get(key).filter(|value| !value.is_null());
    let name_before = given("was")
        .map(|name| name.as_str().ok_or_else(|| refused("was", "the name before this change")));
    let name_before = name_before.transpose()?.unwrap_or(&name).to_owned();
    let outline_seen = given("outline").map(|outline| {
        outline.as_str().ok_or_else(|| refused("outline", "the string that /api/fences returned"))
    });
    let outline_seen = outline_seen.transpose()?.map(str::to_owned);
    let rewrites_past = given("rewrite_past")
        .map(|rewrites| rewrites.as_bool().ok_or_else(|| refused("rewrite_past", "true or false")));
    let rewrites_past = rewrites_past.transpose()?.unwrap_or_default();
    if given("valid_to").is_some() {
        // `valid_to` is the key in a file of `milepost fences import`.
        return Err(refused("valid_to", "valid_until, in milliseconds since 1970"));
    }
    let outline = match feature.get("geometry") {
        None => Outline::Same,
        Some(Value::Null) => Outline::Ended,
        Some(geometry) => Outline::New(polygons(&name, geometry).await?),
    };
    if outline == Outline::Same {
        milepost_events::fences::check_name(&name).map_err(Refused::Invalid)?;
    }
    let properties = properties.clone();
    Ok(Change {
        name,
        name_before,
        from_ms,
        until_ms,
        rewrites_past,
        outline,
        outline_seen,
        properties,
    })
}

/// Returns a time of the properties; `None`: not given.
fn moment(properties: &Value, key: &str) -> Result<Option<i64>, Refused> {
    let given = &properties[key];
    if given.is_null() {
        return Ok(None);
    }
    let ms = given.as_i64().filter(|ms| MOMENTS_MS.contains(ms));
    ms.map(Some).ok_or_else(|| {
        Refused::Invalid(format!(
            "properties.{key}: expected milliseconds since 1970, in the years 1900 to 2299"
        ))
    })
}

/// Reads and checks a geometry.
async fn polygons(name: &str, geometry: &Value) -> Result<Polygons, Refused> {
    let feature =
        json!({ "type": "Feature", "properties": { "name": name }, "geometry": geometry });
    // Check the geometry in a blocking thread: comparing all sides of a polygon takes long, and
    // must not delay the updates of the live map.
    let read =
        tokio::task::spawn_blocking(move || milepost_events::fences::read(&feature.to_string()));
    let mut read =
        read.await.expect("reading a feature does not panic").map_err(Refused::Invalid)?;
    if read.fences.is_empty() {
        let prefix = format!("feature 0 \"{}\": ", name.escape_debug());
        let faults = read.invalid.iter().map(|fault| fault.strip_prefix(&prefix).unwrap_or(fault));
        return Err(Refused::Invalid(faults.map(in_editor_terms).collect::<Vec<_>>().join("; ")));
    }
    Ok(read.fences.swap_remove(0).polygons)
}

/// Rewords a fault of the first ring: a file has "ring 0", the map's editor shows "the outline".
fn in_editor_terms(fault: &str) -> String {
    let Some(fault) = fault.strip_prefix("ring 0: ") else { return fault.to_owned() };
    if fault.contains("points; a ring has at least 4") || fault == "has no area" {
        return "the outline needs at least three corners that are not on one line".to_owned();
    }
    format!("the outline {fault}")
}

/// Reads all versions of the named fences, and ClickHouse's time in milliseconds since 1970.
async fn read(
    writer: &Reader,
    database: &str,
    names: &[&String],
) -> Result<(i64, Vec<Stored>), clickhouse::error::Error> {
    let client = writer.client();
    let fetch = async |rules: &str| {
        let sql = format!(
            "SELECT {COLUMNS}{rules} FROM {database}.fences FINAL \
             WHERE has({{names:Array(String)}}, name)"
        );
        client.query(&sql).param("names", names).fetch_whole::<Stored>().await
    };
    let now = client.query("SELECT toUnixTimestamp64Milli(now64(3))").fetch_one::<i64>();
    let stored = async {
        match fetch(RULES).await {
            Err(error) if writer.lacks_column(&error) => fetch(NO_RULES).await,
            stored => stored,
        }
    };
    tokio::try_join!(now, stored)
}

/// Writes all rows in one insert, so that no reader sees the old version without the new one.
async fn write(
    writer: &Reader,
    database: &str,
    rows: &[Version],
) -> Result<(), clickhouse::error::Error> {
    // Without rules the insert also works on a table that has no columns of rules.
    let (columns, values) = if rows.iter().all(|row| row.rules.is_empty()) {
        ("", "")
    } else {
        (
            ", speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers",
            ", JSONExtract(row.5, 'speed_limit_kmh', 'Nullable(Float64)'),
            JSONExtract(row.5, 'stay_max_s', 'Nullable(UInt32)'),
            JSONExtract(row.5, 'silent_for_s', 'Nullable(UInt32)'),
            JSONExtract(row.5, 'hours', 'Nullable(String)'),
            JSONExtract(row.5, 'hours_zone', 'Nullable(String)'),
            JSONExtract(row.5, 'drivers', 'Array(String)')",
        )
    };
    let polygons: Vec<String> = rows.iter().map(|row| json!(row.polygons).to_string()).collect();
    let rules: Vec<String> = rows.iter().map(|row| json!(row.rules).to_string()).collect();
    let polygons = LongText::new("polygons", &json!(polygons).to_string());
    let rules = LongText::new("rules", &json!(rules).to_string());
    let sql = format!(
        "INSERT INTO {database}.fences (name, valid_from, valid_until, polygons{columns})
        SELECT row.1, fromUnixTimestamp64Milli(row.2), fromUnixTimestamp64Milli(row.3),
            JSONExtract(row.4, 'Array(Array(Array(Tuple(Float64, Float64))))'){values}
        FROM (SELECT arrayJoin(arrayZip({{names:Array(String)}}, {{from:Array(Int64)}},
            {{until:Array(Int64)}}, JSONExtract({}, 'Array(String)'),
            JSONExtract({}, 'Array(String)'))) AS row)",
        polygons.sql(),
        rules.sql()
    );
    let column = |value: fn(&Version) -> i64| rows.iter().map(value).collect::<Vec<_>>();
    let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
    let query = writer.client().query(&sql).param("names", names);
    let query = rules.set(polygons.set(query));
    let query =
        query.param("from", column(|row| row.from_ms)).param("until", column(|row| row.until_ms));
    query.insert_whole(rows.len()).await
}

/// A string for a query that may be longer than ClickHouse accepts in one parameter. It is sent as
/// several parameters, which the query joins.
struct LongText {
    name: &'static str,
    parts: Vec<String>,
}

impl LongText {
    fn new(name: &'static str, text: &str) -> Self {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let longest = rest.len().min(PART_BYTES_MAX);
            let end = (0..=longest).rev().find(|end| rest.is_char_boundary(*end));
            let (part, after) = rest.split_at(end.unwrap_or(longest));
            parts.push(part.to_owned());
            rest = after;
        }
        Self { name, parts }
    }

    /// Returns the SQL of the text.
    fn sql(&self) -> String {
        let part = |number| format!(", {{{}_{number}:String}}", self.name);
        format!("concat(''{})", (0..self.parts.len()).map(part).collect::<String>())
    }

    /// Sets the parameters of [`Self::sql`].
    fn set(self, query: Query) -> Query {
        let Self { name, parts } = self;
        let numbered = parts.into_iter().enumerate();
        numbered.fold(query, |query, (number, part)| query.param(&format!("{name}_{number}"), part))
    }
}

/// Logs a failure of ClickHouse, and converts it to a message for the viewer.
fn unavailable(writer: &Reader, error: &clickhouse::error::Error) -> Refused {
    tracing::warn!(%error, "a fence was not stored");
    let (code, advice) = writer.code_and_advice(error);
    let why = advice
        .map(|advice| about_writer(&advice))
        .or_else(|| code.map(|code| format!("code {code}")));
    Refused::Unavailable(format!(
        "ClickHouse did not store the fence: {}",
        why.unwrap_or_else(|| "no answer".to_owned())
    ))
}

/// Rewords the client's advice for the login that writes. The client names the options of the login
/// that reads.
pub(crate) fn about_writer(advice: &str) -> String {
    let advice = advice.replace("clickhouse.user", "fences.user");
    advice.replace("clickhouse.password_file", "fences.password_file")
}

/// Reason why a fence was not stored, with a message for the viewer.
#[derive(Debug)]
pub enum Refused {
    /// The request is invalid.
    Invalid(String),
    /// Another viewer changed the outline after this one had read it.
    Conflict(String),
    /// ClickHouse did not store the fence.
    Unavailable(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn stored(polygons: &str, rules: &str) -> Stored {
        let (name, polygons, rules) = ("yard".to_owned(), polygons.to_owned(), rules.to_owned());
        Stored { name, valid_from: 0, valid_until: 1, polygons, rules }
    }

    #[test]
    fn stored_fence_keeps_its_rules_and_its_rings_are_closed() {
        let version = stored("[[[[0,0],[1,0],[1,1]]]]", r#"{"stay_max_s":60}"#).version().unwrap();
        assert_eq!(version.polygons[0][0].len(), 4);
        assert_eq!((version.rules.stay_max_s, version.rules.drivers.len()), (Some(60), 0));
        let old = stored("[]", NO_RULES.trim_end_matches(" AS rules").trim_matches('\'')).version();
        assert!(old.unwrap().rules.is_empty());
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = format!("a{}", "é".repeat(PART_BYTES_MAX / 2));
        let long = LongText::new("rules", &text);
        assert_eq!(long.sql(), "concat('', {rules_0:String}, {rules_1:String})");
        assert!(long.parts.iter().all(|part| part.len() <= PART_BYTES_MAX));
        assert_eq!(long.parts.concat(), text);
    }

    #[tokio::test]
    async fn invalid_property_is_refused_by_name() {
        for (key, value) in [
            ("rewrite_past", json!("true")),
            ("was", json!(7)),
            ("valid_until", json!("2027-01-01")),
            ("valid_to", json!("2027-01-01")),
        ] {
            let mut feature = json!({ "type": "Feature", "properties": { "name": "yard" } });
            feature["properties"][key] = value;
            let Err(Refused::Invalid(why)) = change(&feature).await else { panic!("{key}") };
            assert!(why.starts_with(&format!("properties.{key}: ")), "{why}");
        }
        let nulls = json!({ "name": "yard", "was": null, "rewrite_past": null, "valid_to": null });
        let change = change(&json!({ "type": "Feature", "properties": nulls })).await.unwrap();
        assert_eq!((&*change.name_before, change.rewrites_past), ("yard", false));
    }

    #[tokio::test]
    async fn wrong_login_that_is_named_is_the_one_that_writes() {
        let server = Config::parse("").expect("defaults").clickhouse.server;
        let writer = Reader::new(&server, 1 << 20).unwrap();
        for (code, expected) in [
            (516, "set fences.user and fences.password_file"),
            (497, "grant fences.user what it lacks"),
        ] {
            let answer = format!("Code: {code}. DB::Exception: refused");
            let error = clickhouse::error::Error::BadResponse(answer);
            let Refused::Unavailable(why) = unavailable(&writer, &error) else { panic!("{error}") };
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn unreadable_fence_is_logged_once_until_it_is_fixed() {
        let unreadable = Unreadable::default();
        let reasons = |reasons: &[&str]| reasons.iter().map(|why| (*why).to_owned()).collect();
        for (found, logged) in [
            (&["yard"][..], &["yard"][..]),
            (&["yard"], &[]),
            (&["gate", "yard"], &["gate"]),
            (&["gate"], &[]),
            (&["gate", "yard"], &["yard"]),
        ] {
            assert_eq!(unreadable.replace(reasons(found)), logged, "{found:?}");
        }
    }

    #[test]
    fn unreadable_fence_is_an_error_with_its_name() {
        let polygons = "[[[[0,0],[1,0],[1,1]]]]";
        for (polygons, rules) in [
            ("[[[[0,0],[1,null],[1,1]]]]", "{}"),
            (polygons, ""),
            (polygons, r#"{"stay_max_s":"long"}"#),
            (polygons, r#"{"drivers":null}"#),
        ] {
            let error = stored(polygons, rules).version().unwrap_err();
            assert!(error.contains("\"yard\""), "{error}");
        }
    }
}
