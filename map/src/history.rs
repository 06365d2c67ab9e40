//! Queries the history: a driver's track and episodes, and cells of an area. ClickHouse cancels a
//! query when the client disconnects.

use std::collections::HashMap;
use std::fmt::Write as _;

use clickhouse::Row;
use clickhouse::error::Error as ClientError;
use clickhouse::query::Query;
use milepost_clickhouse::FetchWhole as _;
use serde::{Deserialize, Serialize};

use crate::fleet::filter::Scope;
use crate::params::{Bbox, Format, Span};
use crate::simplify::{Point, eastward, simplify};
use crate::store::{Error, Store};
use crate::tiles::Cell;

/// Maximum number of fixes in one track: slightly more than a day at one fix per second.
const POINTS_MAX: usize = 100_000;
/// Time without a fix after which the route is unknown, in milliseconds: a gap, as in the stored
/// episodes (docs/trips.md).
const GAP_MS: i64 = 3_600_000;
/// A leg is a jump of the receiver if it is longer than this many metres, plus [`LEAP_MPS`] times
/// its duration.
const LEAP_M: f64 = 100.0;
/// Speed above which a leg is a jump, whatever the vehicle, in m/s. Stored days use the limit of
/// the vehicle, `speed_max` (docs/trips.md).
const LEAP_MPS: f64 = 100.0;
/// Longest leg, in milliseconds, for which the speed at its end counts as the speed of the whole
/// leg.
const SPEED_VALID_MS: i64 = 60_000;
/// Metres per degree of longitude at the equator.
const METRES_PER_DEGREE: f64 = 111_320.0;
/// Speed below which a driver counts as standing, in m/s.
const MOVING_MPS: f64 = 0.5;
/// Maximum number of episodes in one track.
const EPISODES_MAX: usize = 10_000;
/// Maximum number of visits in one response.
const VISITS_MAX: usize = 500;
/// Maximum number of fixes in a track file.
const FILE_ROWS_MAX: usize = 1_000_000;
/// Maximum number of cells in one response.
const CELLS_MAX: usize = 50_000;
/// Number of time steps into which a replay divides its span; a step is at least a second.
const STEPS: i64 = 240;
/// Maximum number of rows in a replay.
const PAST_MAX: usize = 100_000;
/// A replay begins with each driver's last fix before the span, if it is at most this many
/// milliseconds old. After a longer silence, the driver's place is unknown.
const BEFORE_MS: i64 = GAP_MS;
/// Condition for the fixes of a span. Columns are qualified, because an alias of the SELECT may
/// have the name of a column.
const IN_SPAN: &str = "fix.ts >= parseDateTime64BestEffort({from:String}, 3, 'UTC') \
                       AND fix.ts < parseDateTime64BestEffort({to:String}, 3, 'UTC')";
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
    /// Place where the episode begins; for a stop, its centre.
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
    /// SQL that returns the same points, before simplification, in any client.
    sql: String,
    /// The track has more points or episodes than the limits; the rest is missing.
    truncated: bool,
    points: Points,
    episodes: Vec<Episode>,
    /// Sums over the fixes after the last stored episode; `None`: there are no such fixes.
    tail: Option<Tail>,
}

/// Returns a driver's track, simplified to within `metres`.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn track(store: &Store, driver: &str, span: Span, metres: f64) -> Result<Track, Error> {
    const VIEW: &str =
        "(driver = {driver:String}, from = {from:String}, to = {to:String}, tz = 'UTC')";
    let (from, to) = (iso(span.from_ms), iso(span.to_ms));
    let query = |select: &str, view: &str, order: &str, limit: usize| {
        let sql =
            format!("SELECT {select} FROM {{db}}_ask.{view}{VIEW} ORDER BY {order} LIMIT {limit}");
        store.query(&sql).param("driver", driver).param("from", &from).param("to", &to)
    };
    let points = query(
        "toUnixTimestamp64Milli(ts) AS ms, lat, lng, speed",
        "track",
        "ts, seq",
        POINTS_MAX + 1,
    );
    let episodes = query(
        "kind, toUnixTimestamp64Milli(began) AS `from`, toUnixTimestamp64Milli(ended) AS `to`, \
         lat, lng, metres + untracked_m AS distance_m",
        "episodes",
        "began",
        EPISODES_MAX + 1,
    );
    let queries = async {
        tokio::try_join!(points.fetch_whole::<TrackRow>(), episodes.fetch_whole::<Episode>())
    };
    let (mut rows, mut episodes) = queries.await.map_err(|error| failed(store, &error))?;
    let truncated = rows.len() > POINTS_MAX || episodes.len() > EPISODES_MAX;
    rows.truncate(POINTS_MAX);
    episodes.truncate(EPISODES_MAX);
    let sql = format!(
        "SELECT ts, lat, lng, speed \
         FROM {}_ask.track(driver = '{driver}', from = '{from}', to = '{to}', tz = 'UTC') \
         ORDER BY ts, seq",
        store.database()
    );
    let counted_ms = episodes.iter().map(|episode| episode.to).max();
    let compute = move || (simplified_points(&rows, metres), tail(&rows, counted_ms));
    let points = tokio::task::spawn_blocking(compute).await;
    let (points, tail) = points.map_err(|_| Error::Unavailable("simplifying failed".to_owned()))?;
    Ok(Track {
        driver_id: driver.to_owned(),
        from: span.from_ms,
        to: span.to_ms,
        sql,
        truncated,
        points,
        episodes,
        tail,
    })
}

/// Distance and moving time after the last stored episode. ClickHouse computes episodes only every
/// five minutes, so the newest fixes belong to none.
#[derive(Debug, PartialEq, Serialize)]
pub struct Tail {
    /// Start, in milliseconds since 1970.
    from: i64,
    metres: f64,
    moving_ms: i64,
}

/// Sums distance and moving time since `counted_ms`, the end of the last stored episode. Leaves out
/// legs whose route is unknown: gaps, and legs that are too fast for any vehicle.
fn tail(rows: &[TrackRow], counted_ms: Option<i64>) -> Option<Tail> {
    let first =
        counted_ms.map_or(0, |ms| rows.partition_point(|row| row.ms < ms).saturating_sub(1));
    let rows = rows.get(first..).filter(|rows| rows.len() > 1)?;
    let counted_ms = counted_ms.unwrap_or(rows[0].ms).max(rows[0].ms);
    let mut tail = Tail { from: counted_ms, metres: 0.0, moving_ms: 0 };
    for pair in rows.windows(2) {
        let (begin, end) = (&pair[0], &pair[1]);
        let leg_ms = end.ms - begin.ms;
        // The part of the leg that the episodes do not count.
        let ms = end.ms - begin.ms.max(counted_ms);
        if leg_ms > GAP_MS || ms <= 0 {
            continue;
        }
        let east = eastward(begin.lng, end.lng) * begin.lat.to_radians().cos();
        let leg_m = (end.lat - begin.lat).hypot(east) * METRES_PER_DEGREE;
        if leg_m > LEAP_M + LEAP_MPS * leg_ms as f64 / 1_000.0 {
            continue;
        }
        let metres = leg_m * ms as f64 / leg_ms as f64;
        // On a short leg, the device's own speed is more accurate than one computed from its
        // positions. At the end of a long leg, the device may just stand at a red light.
        let speed = end.speed.filter(|_| leg_ms <= SPEED_VALID_MS).map(f64::from);
        if speed.unwrap_or(metres * 1_000.0 / ms as f64) >= MOVING_MPS {
            tail.metres += metres;
            tail.moving_ms += ms;
        }
    }
    Some(tail)
}

fn simplified_points(rows: &[TrackRow], metres: f64) -> Points {
    let places: Vec<Point> =
        rows.iter().map(|row| Point { ms: row.ms, lat: row.lat, lng: row.lng }).collect();
    let mut points = Points::default();
    for row in simplify(&places, metres).into_iter().map(|index| &rows[index]) {
        points.ts.push(row.ms);
        points.lat.push(row.lat);
        points.lng.push(row.lng);
        // Speeds are stored in cm/s: two decimals are exact.
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

/// Returns the fixes of an area and a span, grouped into cells of the live tiles' size at this
/// zoom, fullest first; `true`: more cells exist than `CELLS_MAX`.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn cells(
    store: &Store,
    scope: &Scope,
    bbox: Bbox,
    zoom: u8,
    span: Span,
) -> Result<(Vec<Cell>, bool), Error> {
    let sql = format!(
        "SELECT toInt32(round(avg(lat) * 1e7)) AS lat_e7, toInt32(round(avg(lng) * 1e7)) AS lng_e7,
            toUInt32(toUnixTimestamp(max(ts))) AS ts_s,
            toUInt32(least(count(), 4294967295)) AS fixes,
            toUInt16(least(round(ifNull(avg(speed) * 100, 65535)), 65535)) AS speed_cms
        FROM {{db}}.fixes AS fix
        WHERE {IN_SPAN} AND {} AND {{in_scope}}
        GROUP BY
            toInt32(floor((lng + 180) / 360 * {{side:UInt32}})),
            toInt32(floor((0.5 - asinh(tan(radians(least(greatest(lat, -85.06), 85.06))))
                / (2 * pi())) * {{side:UInt32}}))
        ORDER BY fixes DESC, lat_e7, lng_e7 LIMIT {}",
        in_area("fix.lat", "fix.lng"),
        CELLS_MAX + 1
    );
    let query = || {
        let query = store.query_in_scope(scope, &sql).param("from", iso(span.from_ms));
        let query = query.param("to", iso(span.to_ms));
        with_area(query.param("side", 1_u32 << (zoom + CELL_BITS)), bbox)
    };
    let rows = store.fetch_all::<CellRow>(query).await;
    let mut rows = rows.map_err(|error| failed(store, &error))?;
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

/// A replay of the fleet in time steps, column by column. First comes one row for each driver who
/// was in the area when the span began. Then each step has one row for each driver with a fix in
/// this step.
#[derive(Debug, Default, Serialize)]
pub struct Past {
    /// Start and end of the span, in milliseconds since 1970.
    from: i64,
    to: i64,
    /// Length of a step, in milliseconds.
    step: i64,
    /// The replay has more rows than `PAST_MAX`; the rest is missing.
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

/// Returns each driver's newest fix in the area, for each step of a span, ordered by step. There
/// are about `STEPS` steps of at least a second. The first rows are for the drivers who were in the
/// area when the span began: their last fixes in the `BEFORE_MS` before the span.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn past(store: &Store, scope: &Scope, bbox: Bbox, span: Span) -> Result<Past, Error> {
    // Before the span, also read fixes outside the area: a driver whose last fix is outside has
    // left it. Reading this extra hour makes the query of a short span several times as long.
    let sql = format!(
        "SELECT driver_id, toUnixTimestamp64Milli(max(fix.ts)) AS ms,
            argMax(fix.lat, (fix.ts, seq)) AS at_lat,
            argMax(fix.lng, (fix.ts, seq)) AS at_lng,
            argMax(tuple(fix.speed), (fix.ts, seq)).1 AS mps
        FROM {{db}}.fixes AS fix
        WHERE {IN_SPAN} AND {{in_scope}}
            AND (toUnixTimestamp64Milli(fix.ts) < {{from_ms:Int64}} OR {})
        GROUP BY driver_id, if(toUnixTimestamp64Milli(fix.ts) < {{from_ms:Int64}}, -1,
            intDiv(toUnixTimestamp64Milli(fix.ts) - {{from_ms:Int64}},
                {{step:Int64}})) AS step_number
        HAVING step_number >= 0 OR {}
        ORDER BY step_number, driver_id LIMIT {}",
        in_area("fix.lat", "fix.lng"),
        in_area("at_lat", "at_lng"),
        PAST_MAX + 1
    );
    let step = ((span.to_ms - span.from_ms) / STEPS).max(1_000);
    let begin_ms = (span.from_ms - BEFORE_MS).max(0);
    let query = || {
        let query = store.query_in_scope(scope, &sql).param("from", iso(begin_ms));
        let query = query.param("to", iso(span.to_ms)).param("from_ms", span.from_ms);
        with_area(query.param("step", step), bbox)
    };
    let rows = store.fetch_all::<PastRow>(query).await.map_err(|error| failed(store, &error))?;
    let mut past = Past {
        from: span.from_ms,
        to: span.to_ms,
        step,
        truncated: rows.len() > PAST_MAX,
        ..Past::default()
    };
    let mut indexes = HashMap::new();
    for row in rows.into_iter().take(PAST_MAX) {
        let next = past.ids.len();
        let driver = *indexes.entry(row.driver_id).or_insert_with_key(|id| {
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

/// A visit to a fence, from the driver's first fix inside to the last. An ongoing visit ends at the
/// driver's newest fix.
#[derive(Debug, Row, Serialize, Deserialize)]
pub struct Visit {
    driver_id: String,
    entered: i64,
    left_at: i64,
    /// The driver's newest fix belongs to the visit. Fixes less accurate than 200 m do not count.
    is_inside: bool,
}

/// Returns the visits to a fence in a span: first the ongoing ones, then the newest.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn visits(
    store: &Store,
    scope: &Scope,
    fence: &str,
    span: Span,
) -> Result<Vec<Visit>, Error> {
    // The view reads fixes up to twelve hours after `to`. If that time is in the future, the view
    // has read the newest fix, so use `is_open`: `last_positions` may already have a later fix.
    // Otherwise the view may lack the newest fix, so compare with the fix in `last_positions`.
    let sql = format!(
        "SELECT driver_id, toUnixTimestamp64Milli(visit.entered) AS entered,
            toUnixTimestamp64Milli(visit.left_at) AS left_at,
            toBool(if(
                parseDateTime64BestEffort({{to:String}}, 3, 'UTC') + INTERVAL 12 HOUR > now64(3),
                visit.is_open, visit.left_at >= last.ts)) AS is_inside
        FROM {{db}}_ask.fence_visits(fence = {{fence:String}}, driver = '',
            from = {{from:String}}, to = {{to:String}}, tz = 'UTC') AS visit
        LEFT JOIN (SELECT driver_id, ts FROM {{db}}.last_positions) AS last USING (driver_id)
        WHERE {{in_scope}}
        ORDER BY is_inside DESC, visit.left_at DESC, driver_id LIMIT {VISITS_MAX}"
    );
    let query = || {
        let query = store.query_in_scope(scope, &sql).param("fence", fence);
        query.param("from", iso(span.from_ms)).param("to", iso(span.to_ms))
    };
    store.fetch_all(query).await.map_err(|error| failed(store, &error))
}

/// Returns the days of a span on which a driver has fixes, in order, such as `2026-11-22`.
///
/// # Errors
/// The query failed or exceeded a limit; the message is for the viewer.
pub async fn days(
    store: &Store,
    driver: &str,
    span: Span,
    zone: &str,
) -> Result<Vec<String>, Error> {
    // Not `positions`, which has only the drivers of one shard.
    const SQL: &str = "SELECT DISTINCT toString(toDate(ts, {tz:String})) AS day FROM {db}.fixes
        WHERE driver_id = {driver:String} AND ts >= fromUnixTimestamp64Milli({from:Int64})
            AND ts < fromUnixTimestamp64Milli({to:Int64})
            AND toDate(ts) >= toDate(fromUnixTimestamp64Milli({from:Int64}, 'UTC'))
            AND toDate(ts) <= toDate(fromUnixTimestamp64Milli({to:Int64}, 'UTC'))
        ORDER BY day";
    let query = store.query(SQL).param("driver", driver).param("tz", zone);
    let query = query.param("from", span.from_ms).param("to", span.to_ms);
    query.fetch_whole().await.map_err(|error| {
        // ClickHouse's code for this is a general one, which depends on the version.
        if error.to_string().contains("Cannot load time zone") {
            let why =
                format!("tz: \"{zone}\" is not a time zone; expected one such as Europe/Berlin");
            return Error::Invalid(why);
        }
        failed(store, &error)
    })
}

#[derive(Row, Serialize, Deserialize)]
struct FileRow {
    ms: i64,
    lat: f64,
    lng: f64,
    alt: Option<f32>,
    speed: Option<f32>,
    heading: Option<f32>,
}

/// Returns a driver's fixes of a span as a file.
///
/// # Errors
/// The query failed, or the span has more than `FILE_ROWS_MAX` fixes; the message is for the
/// viewer.
pub async fn file(
    store: &Store,
    driver: &str,
    span: Span,
    format: Format,
) -> Result<String, Error> {
    let sql = format!(
        "SELECT toUnixTimestamp64Milli(fixes.ts) AS ms, lat, lng, alt, speed, heading
        FROM {{db}}.fixes
        WHERE driver_id = {{driver:String}}
            AND fixes.ts >= parseDateTime64BestEffort({{from:String}}, 3, 'UTC')
            AND fixes.ts < parseDateTime64BestEffort({{to:String}}, 3, 'UTC')
        ORDER BY fixes.ts, seq LIMIT {}",
        FILE_ROWS_MAX + 1
    );
    let query = store.query(&sql).param("driver", driver);
    let query = query.param("from", iso(span.from_ms)).param("to", iso(span.to_ms));
    let rows: Vec<FileRow> = query.fetch_whole().await.map_err(|error| failed(store, &error))?;
    if rows.len() > FILE_ROWS_MAX {
        return Err(Error::LimitExceeded(format!(
            "a file has at most {FILE_ROWS_MAX} fixes: choose a shorter time"
        )));
    }
    Ok(match format {
        Format::Csv => as_csv(driver, &rows),
        Format::Gpx => as_gpx(driver, &rows),
    })
}

fn as_csv(driver: &str, rows: &[FileRow]) -> String {
    let number = |value: Option<f32>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut text = "driver_id,ts,lat,lng,alt,speed,heading\n".to_owned();
    for row in rows {
        let (alt, speed, heading) = (number(row.alt), number(row.speed), number(row.heading));
        let _ = writeln!(
            text,
            "{driver},{},{},{},{alt},{speed},{heading}",
            iso(row.ms),
            row.lat,
            row.lng
        );
    }
    text
}

/// Formats the fixes as GPX 1.1. A driver's id contains no character that XML must escape.
fn as_gpx(driver: &str, rows: &[FileRow]) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <gpx version=\"1.1\" creator=\"milepost\" xmlns=\"http://www.topografix.com/GPX/1/1\">\n\
         <trk><name>{driver}</name><trkseg>\n"
    );
    for row in rows {
        let alt = row.alt.map(|alt| format!("<ele>{alt}</ele>")).unwrap_or_default();
        let _ = writeln!(
            text,
            "<trkpt lat=\"{}\" lon=\"{}\">{alt}<time>{}</time></trkpt>",
            row.lat,
            row.lng,
            iso(row.ms)
        );
    }
    text + "</trkseg></trk>\n</gpx>\n"
}

/// Logs a ClickHouse error, and converts it to an error with a message for the viewer.
pub fn failed(store: &Store, error: &ClientError) -> Error {
    tracing::warn!(%error, "a viewer's query failed");
    store.error(error)
}

/// Returns the condition for a place in the area of [`with_area`].
fn in_area(lat: &str, lng: &str) -> String {
    format!(
        "{lat} BETWEEN {{south:Float64}} AND {{north:Float64}}
            AND if({{west:Float64}} <= {{east:Float64}},
                {lng} BETWEEN {{west:Float64}} AND {{east:Float64}},
                {lng} >= {{west:Float64}} OR {lng} <= {{east:Float64}})"
    )
}

/// Sets the parameters of [`in_area`].
fn with_area(query: Query, bbox: Bbox) -> Query {
    let query = query.param("west", bbox.west).param("east", bbox.east);
    query.param("south", bbox.south).param("north", bbox.north)
}

/// Formats a time as RFC 3339 with milliseconds, which ClickHouse parses.
pub fn iso(ms: i64) -> String {
    let since = std::time::Duration::from_millis(ms.unsigned_abs());
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(second: i64, lat: f64, speed: Option<f32>) -> TrackRow {
        TrackRow { ms: second * 1_000, lat, lng: 11.0, speed }
    }

    #[test]
    fn tail_counts_fixes_outside_all_episodes() {
        // The driver drives 100 m in each 10 s, then stands, then sends no fix for a while: a gap.
        let step = 100.0 / METRES_PER_DEGREE;
        let mut rows: Vec<TrackRow> =
            (0..7).map(|n| row(n * 10, n as f64 * step, Some(10.0))).collect();
        rows.extend([row(70, 6.0 * step, Some(0.0)), row(3_671, 9.0 * step, Some(10.0))]);
        let counted = |from_s: Option<i64>| {
            let tail = tail(&rows, from_s.map(|s| s * 1_000)).unwrap();
            (tail.from / 1_000, tail.metres.round(), tail.moving_ms / 1_000)
        };
        assert_eq!(counted(None), (0, 600.0, 60));
        assert_eq!(counted(Some(30)), (30, 300.0, 30));
        assert_eq!(counted(Some(35)), (35, 250.0, 25));
        // This leg crosses the antimeridian.
        let lng = [179.999, -179.999];
        let across = [0, 1].map(|n| TrackRow { lng: lng[n], ..row(n as i64 * 10, 0.0, None) });
        assert_eq!(tail(&across, None).unwrap().metres.round(), 223.0);
        assert_eq!(tail(&rows[..1], None), None);
        assert_eq!(tail(&rows, Some(9_000_000)), None);
    }

    #[test]
    fn tail_grows_for_a_driver_who_reports_every_ten_minutes() {
        let km = 1_000.0 / METRES_PER_DEGREE;
        // The driver drives 5 km, of which the last metres are at a red light. Then the driver is
        // parked, with noise in the positions. Then the position leaps by 100 km.
        let rows = [
            row(0, 0.0, Some(0.0)),
            row(600, 5.0 * km, Some(0.0)),
            row(1_200, 5.02 * km, Some(0.7)),
            row(1_500, 105.0 * km, Some(10.0)),
        ];
        let counted = |rows| tail(rows, None).map(|tail| (tail.metres.round(), tail.moving_ms));
        assert_eq!(counted(&rows), Some((5_000.0, 600_000)));
    }

    #[test]
    fn tail_without_speeds_uses_distances() {
        let step = 100.0 / METRES_PER_DEGREE;
        let rows = [row(0, 0.0, None), row(10, step, None), row(20, step, None)];
        assert_eq!(
            tail(&rows, None).map(|tail| (tail.metres.round(), tail.moving_ms)),
            Some((100.0, 10_000))
        );
    }
}
