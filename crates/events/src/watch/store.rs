//! The queries and inserts of `milepost events`.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use clickhouse::Row;
use clickhouse::error::Error as ClientError;
use serde::Deserialize;

use crate::fences::rules::put_nullable;
use crate::watch::reader::{ENDLESS_MS, Inserted, STEP_MS, Span};
use crate::watch::{ACCURACY_M_MAX, Event, Fix, Kind};
use milepost_clickhouse::{ClickHouse, Error, FetchWhole as _, QUERY_TIMEOUT, within};
use milepost_core::encode::Insert;
use milepost_decode::row_binary::{EVENTS, put_text};

/// driver_id, ts, seq, lat, lng, speed, acc, inserted_at; times in milliseconds.
type FixRow = (String, i64, u32, f64, f64, Option<f32>, Option<f32>, i64);
/// First and last time, in milliseconds, at which events became known.
type KnownSpan = (i64, i64);

/// A row of `event_states` or `recent_events`. Times are in milliseconds since 1970.
#[derive(Row, Deserialize)]
struct EventRow {
    driver_id: String,
    kind: String,
    fence: String,
    ts: i64,
    seq: u32,
    lat: f64,
    lng: f64,
    speed: Option<f32>,
    known_at: i64,
    mqtt_at: Option<i64>,
    webhook_at: Option<i64>,
}

/// An event, with the time in milliseconds at which each channel accepted it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeliveredEvent {
    pub(crate) event: Event,
    pub(crate) mqtt_at: Option<i64>,
    pub(crate) webhook_at: Option<i64>,
}

impl DeliveredEvent {
    /// Appends a row of [`EVENTS`].
    #[expect(clippy::cast_possible_truncation, reason = "the column is a Float32")]
    fn encode(&self, row: &mut Vec<u8>) {
        let Self { event, mqtt_at, webhook_at } = self;
        let Event { driver_id, kind, fence, ts, seq, lat, lng, speed, known_at } = event;
        put_text(driver_id.as_bytes(), row);
        row.extend_from_slice(&ts.to_le_bytes());
        row.extend_from_slice(&seq.to_le_bytes());
        put_text(kind.name().as_bytes(), row);
        put_text(fence.as_bytes(), row);
        row.extend_from_slice(&lat.to_le_bytes());
        row.extend_from_slice(&lng.to_le_bytes());
        put_nullable(speed.map(|speed| (speed as f32).to_le_bytes()), row);
        row.extend_from_slice(&known_at.to_le_bytes());
        put_nullable(mqtt_at.map(i64::to_le_bytes), row);
        put_nullable(webhook_at.map(i64::to_le_bytes), row);
    }
}

/// Columns of a [`FixRow`].
const FIX_COLUMNS: &str = "driver_id, toUnixTimestamp64Milli(ts) AS t, seq, lat, lng, speed, acc, \
                           toUnixTimestamp64Milli(inserted_at) AS i";
/// Maximum number of fixes in one answer, which is held in memory.
pub(crate) const FIXES_MAX: usize = 200_000;
/// Maximum difference between the clocks of replicas, in seconds. Rows further ahead of the
/// server's clock were inserted before the clock was set back. Spans without an end leave such rows
/// out; all spans of the first poll have no end. Spans before a step of the clock (`watch::reader`)
/// may include them.
const AHEAD_S_MAX: i64 = STEP_MS / 1_000;
/// Maximum number of events without a state that a start reads to publish them: half of a channel's
/// queue, so that newer events find room in it.
const UNPUBLISHED_MAX: usize = 5_000;
/// Timeout of the queries at the start, and of the query that reads all states again. One of them
/// sorts the positions of two hours. Sorting 8 million positions took 1.7 s; at 10,000 positions a
/// second, two hours have 72 million.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Age beyond which a fix causes no event.
const FIX_AGE_MAX: &str = "1 DAY";

/// The queries of `milepost events`.
pub(crate) struct EventStore<'a>(pub(crate) &'a ClickHouse);

impl Deref for EventStore<'_> {
    type Target = ClickHouse;

    fn deref(&self) -> &ClickHouse {
        self.0
    }
}

impl EventStore<'_> {
    /// Reads the fixes that were inserted in these spans, at most [`FIXES_MAX`].
    pub(crate) async fn fixes_inserted_in(
        &self,
        spans: impl Iterator<Item = Span>,
    ) -> Result<Inserted, Error> {
        let spans = spans.map(condition).collect::<Vec<_>>().join(" OR ");
        let lag = format!(
            "ifNull((SELECT max(absolute_delay) FROM system.replicas WHERE database = '{}' \
             AND table = 'positions'), 0) * 1000",
            self.database
        );
        // Read the fixes, the time and the lag with one query: behind a load balancer, the next
        // query may reach another replica. The row with an empty driver id holds the time and the
        // lag.
        let sql = format!(
            "SELECT * FROM ((SELECT {FIX_COLUMNS} FROM {} WHERE ({spans}) \
             AND toDate(ts) >= toDate(now('UTC') - INTERVAL {FIX_AGE_MAX}) \
             AND ts > now64(3) - INTERVAL {FIX_AGE_MAX} \
             ORDER BY i, driver_id, t, seq, lat_e7, lng_e7 LIMIT {FIXES_MAX}) UNION ALL \
             (SELECT '', toInt64({lag}), 0, 0., 0., NULL, NULL, toUnixTimestamp64Milli(now64(3)))) \
             ORDER BY i, driver_id, t, seq, lat, lng",
            self.table_on_all_shards("positions")
        );
        let mut fixes = self.fixes(&sql, QUERY_TIMEOUT).await?;
        let clock_row = fixes.iter().position(|fix| fix.driver_id.is_empty());
        let clock_row =
            clock_row.ok_or_else(|| self.failed("reading fixes", ClientError::RowNotFound))?;
        let Fix { inserted_at: now, ts: lag_ms, .. } = fixes.remove(clock_row);
        Ok(Inserted { is_cut: fixes.len() >= FIXES_MAX, fixes, now, lag_ms })
    }

    /// Reads fixes that were inserted up to this time, in the order of their own times. For each
    /// driver heard within the last day plus `silence_limit`, reads the newest fix. Also reads the
    /// last three accurate fixes that were inserted within two hours, which decide where the driver
    /// is. For drivers heard rarely, also reads one fix from each of the last five minutes that
    /// have fixes, within six hours: the gaps between these fixes are the driver's rhythm.
    pub(crate) async fn last_fixes_before(
        &self,
        inserted_at: i64,
        silence_limit: Duration,
    ) -> Result<Vec<Fix>, Error> {
        let before = format!("inserted_at <= fromUnixTimestamp64Milli({inserted_at})");
        let sql = format!(
            "SELECT {FIX_COLUMNS} FROM {db}.last_positions WHERE {before} \
             AND inserted_at > now64(3) - INTERVAL {FIX_AGE_MAX} - INTERVAL {} SECOND \
             UNION ALL \
             SELECT {FIX_COLUMNS} FROM {positions} WHERE {before} \
             AND inserted_at > now64(3) - INTERVAL 2 HOUR \
             AND ifNull(acc, 0) <= {ACCURACY_M_MAX} \
             AND toDate(ts) >= toDate(now('UTC') - INTERVAL {FIX_AGE_MAX}) \
             ORDER BY t DESC, seq DESC LIMIT 3 BY driver_id \
             UNION ALL \
             SELECT * FROM (SELECT {FIX_COLUMNS} FROM {positions} WHERE {before} \
             AND inserted_at > now64(3) - INTERVAL 6 HOUR \
             AND toDate(ts) >= toDate(now('UTC') - INTERVAL {FIX_AGE_MAX}) \
             AND driver_id GLOBAL IN (SELECT driver_id \
             FROM {db}.last_positions WHERE {before} AND inserted_at > now64(3) - INTERVAL 3 HOUR) \
             AND driver_id GLOBAL NOT IN (SELECT driver_id FROM {positions} WHERE {before} \
             AND inserted_at > now64(3) - INTERVAL 2 HOUR \
             AND toDate(ts) >= toDate(now('UTC') - INTERVAL {FIX_AGE_MAX}) \
             GROUP BY driver_id HAVING uniqExact(toStartOfMinute(inserted_at)) >= 12) \
             ORDER BY i DESC, t DESC, seq DESC LIMIT 1 BY driver_id, intDiv(i, 60000)) \
             ORDER BY i DESC LIMIT 5 BY driver_id",
            silence_limit.as_secs(),
            positions = self.table_on_all_shards("positions"),
            db = self.database,
        );
        let mut fixes = self.fixes(&sql, BEGIN_TIMEOUT).await?;
        fixes.sort_by_key(|fix| (fix.ts, fix.seq));
        Ok(fixes)
    }

    /// Reads the newest event of each driver, state and fence, oldest first.
    pub(crate) async fn states(&self) -> Result<Vec<DeliveredEvent>, Error> {
        self.events("event_states", "1").await
    }

    /// Returns the time of the first event that the broker accepted; 0 if that was more than two
    /// days ago; `None` if it has accepted none. Reads only the newest states and the events of the
    /// last two days, because the history of `events` grows for ever.
    pub(crate) async fn first_published_at(&self) -> Result<Option<i64>, Error> {
        let sql = format!(
            "SELECT t FROM (SELECT toInt64(0) AS t \
             FROM (SELECT 1 FROM {db}.event_states \
             WHERE mqtt_at < now64(3) - INTERVAL 2 DAY LIMIT 1) \
             UNION ALL SELECT toUnixTimestamp64Milli(assumeNotNull(mqtt_at)) AS t \
             FROM {db}.recent_events WHERE mqtt_at IS NOT NULL) \
             ORDER BY t LIMIT 1",
            db = self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_whole::<i64>();
        let rows = within(BEGIN_TIMEOUT, rows)
            .await
            .map_err(|error| self.failed("looking for the first published event", error))?;
        Ok(rows.first().copied())
    }

    /// Counts the events written in the last two days that became known by this time and that no
    /// webhook accepted, by kind.
    pub(crate) async fn unposted_before(
        &self,
        known_at: i64,
    ) -> Result<BTreeMap<String, u64>, Error> {
        self.count_by_kind("webhook_at IS NULL", (0, known_at)).await
    }

    /// Counts the events written in the last two days that became known in this span and that the
    /// broker did not acknowledge, by kind. Leaves out the newest event of each state.
    pub(crate) async fn unpublished_in(
        &self,
        known: KnownSpan,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let condition = format!(
            "mqtt_at IS NULL AND (driver_id, ts, seq, kind, fence) NOT IN \
             (SELECT driver_id, ts, seq, kind, fence \
             FROM {}.event_states FINAL WHERE mqtt_at IS NULL AND {})",
            self.database,
            is_known_in(known)
        );
        self.count_by_kind(&condition, known).await
    }

    async fn count_by_kind(
        &self,
        condition: &str,
        known: KnownSpan,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let sql = format!(
            "SELECT CAST(kind AS String) AS k, count() FROM {}.recent_events FINAL \
             WHERE {} AND {condition} GROUP BY k",
            self.database,
            is_known_in(known)
        );
        let rows = self.unbounded().query_raw(&sql).fetch_whole::<(String, u64)>();
        let rows = within(BEGIN_TIMEOUT, rows)
            .await
            .map_err(|error| self.failed("counting the events that were not delivered", error))?;
        Ok(rows.into_iter().collect())
    }

    /// Reads the events without a state (`jump`, `off_hours`) that the broker did not acknowledge.
    /// Considers the events that were written in the last two days and became known in this span.
    /// Reads the newest ones, at most [`UNPUBLISHED_MAX`].
    pub(crate) async fn unpublished_without_state_in(
        &self,
        known: KnownSpan,
    ) -> Result<Vec<DeliveredEvent>, Error> {
        let kinds = Kind::ALL.into_iter().filter(|kind| !kind.changes_state());
        let kinds: Vec<_> = kinds.map(|kind| format!("'{}'", kind.name())).collect();
        let (key, kinds) = ("known_at, driver_id, ts, seq, kind, fence", kinds.join(", "));
        let condition = format!(
            "({key}) IN (SELECT {key} FROM {}.recent_events FINAL WHERE mqtt_at IS NULL \
             AND kind IN ({kinds}) \
             AND {} ORDER BY known_at DESC LIMIT {UNPUBLISHED_MAX})",
            self.database,
            is_known_in(known)
        );
        self.events("recent_events", &condition).await
    }

    /// Reads all events that became known after this time, at most two days ago.
    pub(crate) async fn events_since(&self, known_at: i64) -> Result<Vec<DeliveredEvent>, Error> {
        self.events("recent_events", &format!("known_at > fromUnixTimestamp64Milli({known_at})"))
            .await
    }

    /// Returns the insert that writes these events. Their rows replace earlier ones with the same
    /// key.
    pub(crate) fn events_insert(&self, delivered: &[DeliveredEvent]) -> Insert {
        let mut body = Vec::with_capacity(delivered.len() * 128);
        delivered.iter().for_each(|delivered| delivered.encode(&mut body));
        Insert {
            statement: EVENTS.statement(&self.database),
            body: body.into(),
            rows: delivered.len(),
        }
    }

    async fn fixes(&self, sql: &str, timeout: Duration) -> Result<Vec<Fix>, Error> {
        let rows = self.unbounded().query_raw(sql).fetch_whole::<FixRow>();
        let rows =
            within(timeout, rows).await.map_err(|error| self.failed("reading fixes", error))?;
        let fix = |(driver_id, ts, seq, lat, lng, speed, acc, inserted_at): FixRow| Fix {
            driver_id,
            ts,
            seq,
            lat,
            lng,
            speed: speed.map(metres_per_second),
            acc: acc.map(f64::from),
            inserted_at,
        };
        Ok(rows.into_iter().map(fix).collect())
    }

    /// Reads events, oldest first by `known_at`. Events of one fix that became known at the same
    /// time are in the alphabetical order of their kinds, so that `entered` precedes `overstayed`.
    async fn events(&self, table: &str, condition: &str) -> Result<Vec<DeliveredEvent>, Error> {
        let sql = format!(
            "SELECT driver_id, CAST(kind AS String) AS kind, fence, \
             toUnixTimestamp64Milli(ts) AS ts, seq, lat, lng, speed, \
             toUnixTimestamp64Milli(known_at) AS known_at, \
             toUnixTimestamp64Milli(mqtt_at) AS mqtt_at, \
             toUnixTimestamp64Milli(webhook_at) AS webhook_at FROM {}.{table} FINAL \
             WHERE {condition} \
             ORDER BY known_at, ts, seq, kind SETTINGS prefer_column_name_to_alias = 1",
            self.database
        );
        let rows = self.unbounded().query_raw(&sql).fetch_whole::<EventRow>();
        let rows = within(BEGIN_TIMEOUT, rows)
            .await
            .map_err(|error| self.failed("reading events", error))?;
        let delivered = |row: EventRow| {
            let EventRow {
                driver_id,
                kind,
                fence,
                ts,
                seq,
                lat,
                lng,
                speed,
                known_at,
                mqtt_at,
                webhook_at,
            } = row;
            let kind = Kind::from_name(&kind)?; // skip kinds of a later version
            let event = Event {
                driver_id,
                kind,
                fence,
                ts,
                seq,
                lat,
                lng,
                speed: speed.map(metres_per_second),
                known_at,
            };
            Some(DeliveredEvent { event, mqtt_at, webhook_at })
        };
        Ok(rows.into_iter().filter_map(delivered).collect())
    }
}

/// Returns the condition for the events that became known in a span.
fn is_known_in((since, until): KnownSpan) -> String {
    let time = |ms| format!("fromUnixTimestamp64Milli({ms})");
    format!("known_at BETWEEN {} AND {}", time(since), time(until))
}

/// Returns the condition for the rows of a span.
fn condition((after, until): Span) -> String {
    let datetime = |ms| format!("fromUnixTimestamp64Milli({ms})");
    let until = if until > ENDLESS_MS {
        format!("now64(3) + INTERVAL {AHEAD_S_MAX} SECOND")
    } else {
        datetime(until)
    };
    format!("inserted_at > {} AND inserted_at <= {until}", datetime(after))
}

/// Converts a speed to f64, rounded to hundredths of m/s as in `positions`. Without rounding, the
/// Float32 nearest to 27.78 would be larger than 27.78.
fn metres_per_second(speed: f32) -> f64 {
    (f64::from(speed) * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::reader::Reader;

    #[test]
    fn first_poll_reads_no_row_far_ahead_of_the_clock() {
        let mut reader = Reader::new(1_760_000_000_000);
        reader.begin(0);
        let conditions: Vec<_> = reader.wanted().map(condition).collect();
        assert_eq!(conditions.len(), 3);
        for condition in conditions {
            assert!(condition.ends_with(" <= now64(3) + INTERVAL 30 SECOND"), "{condition}");
        }
    }
}
