//! The past: a driver's track and episodes, and cells of an area. Each is a ClickHouse query, which ends when the client disconnects.

use std::collections::HashMap;

use clickhouse::Row;
use clickhouse::error::Error as ClientError;
use clickhouse::query::Query;
use serde::{Deserialize, Serialize};

use crate::params::{Bbox, Span};
use crate::simplify::{Point, simplify};
use crate::store::{Error, Store};
use crate::tiles::Cell;

/// Fixes of one track: slightly more than a day at one fix per second.
const POINTS_MAX: usize = 100_000;
const EPISODES_MAX: usize = 10_000;
/// About as many as a screen shows.
const CELLS_MAX: usize = 50_000;
/// Steps of a span that is played back, and rows of one answer.
const STEPS: i64 = 240;
const PAST_MAX: usize = 100_000;
/// The fixes of a span in an area. Qualified: an alias of a SELECT may have the name of a column.
const WITHIN: &str = "fix.ts >= parseDateTime64BestEffort({from:String}, 3, 'UTC') AND fix.ts < parseDateTime64BestEffort({to:String}, 3, 'UTC')
            AND fix.lat BETWEEN {south:Float64} AND {north:Float64}
            AND if({west:Float64} <= {east:Float64}, fix.lng BETWEEN {west:Float64} AND {east:Float64},
                fix.lng >= {west:Float64} OR fix.lng <= {east:Float64})";
/// Cells per side of a tile, as a power of two; the same as in a live tile.
const CELL_BITS: u8 = 5;

#[derive(Row, Serialize, Deserialize)]
struct TrackRow {
    ms: i64,
    lat: f64,
    lng: f64,
    speed: Option<f32>,
}

/// A trip, a stop or a gap.
#[derive(Debug, Row, Serialize, Deserialize)]
pub struct Episode {
    /// trip, stop or gap
    kind: String,
    from: i64,
    to: i64,
    /// Its beginning; the middle of a stop.
    lat: f64,
    lng: f64,
    distance_m: f64,
}

/// The points of a track, column by column.
#[derive(Debug, Default, Serialize)]
pub struct Points {
    ts: Vec<i64>,
    lat: Vec<f64>,
    lng: Vec<f64>,
    speed: Vec<Option<f64>>,
}

/// The answer to a request for a track.
#[derive(Debug, Serialize)]
pub struct Track {
    driver_id: String,
    from: i64,
    to: i64,
    /// Returns the same points in any client.
    sql: String,
    /// Points were left out at the limit.
    truncated: bool,
    points: Points,
    episodes: Vec<Episode>,
}

/// A driver's track, simplified to within `metres`.
///
/// # Errors
/// In words.
pub async fn track(store: &Store, driver: &str, span: Span, metres: f64) -> Result<Track, Error> {
    const VIEW: &str = "(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = 'UTC')";
    let (from, to) = (iso(span.from_ms), iso(span.to_ms));
    let question = |select: &str, view: &str, order: &str, limit: usize| {
        let sql = format!("SELECT {select} FROM {{db}}_ask.{view}{VIEW} ORDER BY {order} LIMIT {limit}");
        store.ask(&sql).param("driver", driver).param("from", &from).param("to", &to)
    };
    let points =
        question("toUnixTimestamp64Milli(ts) AS ms, lat, lng, speed", "track", "ts, seq", POINTS_MAX + 1);
    let episodes = question(
        "kind, toUnixTimestamp64Milli(began) AS `from`, toUnixTimestamp64Milli(ended) AS `to`, lat, lng, \
         metres + untracked_m AS distance_m",
        "episodes",
        "began",
        EPISODES_MAX + 1,
    );
    let both = async { tokio::try_join!(points.fetch_all::<TrackRow>(), episodes.fetch_all::<Episode>()) };
    let (mut rows, mut episodes) = both.await.map_err(|error| failed(store, &error))?;
    let truncated = rows.len() > POINTS_MAX || episodes.len() > EPISODES_MAX;
    rows.truncate(POINTS_MAX);
    episodes.truncate(EPISODES_MAX);
    let sql = format!(
        "SELECT ts, lat, lng, speed FROM {}_ask.track(driver = '{driver}', from = '{from}', to = '{to}', tz = 'UTC') ORDER BY ts, seq",
        store.database()
    );
    let points = tokio::task::spawn_blocking(move || fewer(&rows, metres)).await;
    let points = points.map_err(|_| Error::Away("simplifying failed".to_owned()))?;
    Ok(Track {
        driver_id: driver.to_owned(),
        from: span.from_ms,
        to: span.to_ms,
        sql,
        truncated,
        points,
        episodes,
    })
}

fn fewer(rows: &[TrackRow], metres: f64) -> Points {
    let places: Vec<Point> =
        rows.iter().map(|row| Point { ms: row.ms, lat: row.lat, lng: row.lng }).collect();
    let mut points = Points::default();
    for row in simplify(&places, metres).into_iter().map(|at| &rows[at]) {
        points.ts.push(row.ms);
        points.lat.push(row.lat);
        points.lng.push(row.lng);
        // Speeds are stored in cm/s.
        points.speed.push(row.speed.map(|speed| (f64::from(speed) * 100.0).round() / 100.0));
    }
    points
}

#[derive(Row, Serialize, Deserialize)]
struct CellRow {
    lat_e7: i32,
    lng_e7: i32,
    ts_s: u32,
    fixes: u32,
    speed_cms: u16,
}

/// Fixes of an area and a time, in cells of the live tiles' size at this zoom, the fullest first, and whether there are more.
///
/// # Errors
/// In words.
pub async fn cells(store: &Store, bbox: Bbox, zoom: u8, span: Span) -> Result<(Vec<Cell>, bool), Error> {
    let sql = format!(
        "SELECT toInt32(round(avg(lat) * 1e7)) AS lat_e7, toInt32(round(avg(lng) * 1e7)) AS lng_e7,
            toUInt32(toUnixTimestamp(max(ts))) AS ts_s, toUInt32(least(count(), 4294967295)) AS fixes,
            toUInt16(least(round(ifNull(avg(speed) * 100, 65535)), 65535)) AS speed_cms
        FROM {{db}}.fixes AS fix
        WHERE {WITHIN}
        GROUP BY
            toInt32(floor((lng + 180) / 360 * {{side:UInt32}})),
            toInt32(floor((0.5 - asinh(tan(radians(least(greatest(lat, -85.06), 85.06)))) / (2 * pi())) * {{side:UInt32}}))
        ORDER BY fixes DESC, lat_e7, lng_e7 LIMIT {}",
        CELLS_MAX + 1
    );
    let question = store.ask(&sql).param("from", iso(span.from_ms)).param("to", iso(span.to_ms));
    let question = within(question.param("side", 1_u32 << (zoom + CELL_BITS)), bbox);
    let mut rows = question.fetch_all::<CellRow>().await.map_err(|error| failed(store, &error))?;
    let truncated = rows.len() > CELLS_MAX;
    rows.truncate(CELLS_MAX);
    let cell = |row: CellRow| Cell {
        lat_e7: row.lat_e7,
        lng_e7: row.lng_e7,
        ts_s: row.ts_s,
        count: row.fixes,
        speed_cms: row.speed_cms,
    };
    Ok((rows.into_iter().map(cell).collect(), truncated))
}

/// The fleet in steps of time: columns of one row for each driver and step in which it has a fix.
#[derive(Debug, Default, Serialize)]
pub struct Past {
    from: i64,
    to: i64,
    step: i64,
    /// Rows were left out at the limit.
    truncated: bool,
    ids: Vec<String>,
    /// Index in `ids`.
    driver: Vec<usize>,
    /// Time of the fix.
    ts: Vec<i64>,
    lat: Vec<f64>,
    lng: Vec<f64>,
    speed: Vec<Option<f32>>,
}

#[derive(Row, Serialize, Deserialize)]
struct PastRow {
    driver_id: String,
    ms: i64,
    at_lat: f64,
    at_lng: f64,
    mps: Option<f32>,
}

/// The newest fix of each driver in each of `STEPS` steps of a span, of drivers with fixes in the area then, in the order of time.
///
/// # Errors
/// In words.
pub async fn past(store: &Store, bbox: Bbox, span: Span) -> Result<Past, Error> {
    let sql = format!(
        "SELECT driver_id, toUnixTimestamp64Milli(max(fix.ts)) AS ms, argMax(fix.lat, (fix.ts, seq)) AS at_lat,
            argMax(fix.lng, (fix.ts, seq)) AS at_lng, argMax(tuple(fix.speed), (fix.ts, seq)).1 AS mps
        FROM {{db}}.fixes AS fix
        WHERE {WITHIN}
        GROUP BY driver_id, intDiv(toUnixTimestamp64Milli(fix.ts) - {{from_ms:Int64}}, {{step:Int64}}) AS step_number
        ORDER BY step_number, driver_id LIMIT {}",
        PAST_MAX + 1
    );
    let step = ((span.to_ms - span.from_ms) / STEPS).max(1_000);
    let question = store.ask(&sql).param("from", iso(span.from_ms)).param("to", iso(span.to_ms));
    let question = question.param("from_ms", span.from_ms).param("step", step);
    let rows = within(question, bbox).fetch_all::<PastRow>().await.map_err(|error| failed(store, &error))?;
    let mut past = Past {
        from: span.from_ms,
        to: span.to_ms,
        step,
        truncated: rows.len() > PAST_MAX,
        ..Past::default()
    };
    let mut known = HashMap::new();
    for row in rows.into_iter().take(PAST_MAX) {
        let next = past.ids.len();
        let driver = *known.entry(row.driver_id).or_insert_with_key(|id| {
            past.ids.push(id.clone());
            next
        });
        past.driver.push(driver);
        past.ts.push(row.ms);
        past.lat.push(row.at_lat);
        past.lng.push(row.at_lng);
        past.speed.push(row.mps);
    }
    Ok(past)
}

/// Logs what ClickHouse said, and puts it in words.
pub fn failed(store: &Store, error: &ClientError) -> Error {
    tracing::warn!(%error, "a question of a viewer failed");
    store.error(error)
}

fn within(question: Query, bbox: Bbox) -> Query {
    let question = question.param("west", bbox.west).param("east", bbox.east);
    question.param("south", bbox.south).param("north", bbox.north)
}

/// Formats a time as ClickHouse parses it.
fn iso(ms: i64) -> String {
    let since = std::time::Duration::from_millis(ms.unsigned_abs());
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since).to_string()
}
