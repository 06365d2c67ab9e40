//! `/api`, `/livez`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State as StateExtractor};
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::stream;
use milepost_observe::now;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch;

use super::answers::{
    Answer, BINARY, JSON, accepts_gzip, answer, bad, compressible, header_value, newest_fix,
    unavailable,
};
use super::files;
use super::refusal::Refusal;
use super::state::{State, Viewer, until_shutdown};
use super::writes::{may_edit_fences, may_write};
use crate::fleet::filter::{Scope, Selection};
use crate::fleet::{Fix, Fleet, UNKNOWN};
use crate::live::Tick;
use crate::params::{self, Params};
use crate::wire;

/// Maximum number of positions in one response.
const POSITIONS_MAX: usize = 10_000;
/// Default number of drivers in one response.
const DRIVERS_DEFAULT: usize = 20;
/// Time without an iteration after which the query loop counts as hung. One query takes at most
/// about a minute.
const SILENT_MAX: Duration = Duration::from_secs(120);
/// Interval at which an idle stream sends a comment, so that proxies keep the stream open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/api/config", get(config))
        .route("/api/tiles", get(live_tiles))
        .route("/api/stream", get(stream))
        .route("/api/positions", get(positions))
        .route("/api/drivers", get(drivers))
        .route("/api/drivers/{id}", get(driver))
        .route("/api/names", get(names))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
}

/// Returns the settings that the page needs, and what the viewer may see and do.
async fn config(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let map = &state.config.map;
    // A viewer with a limited scope gets only the groups of this scope.
    let groups: Vec<String> = {
        let fleet = state.live.fleet();
        let is_shown = |group: &&str| match &*viewer.scope {
            Scope::All => true,
            Scope::Only { groups, .. } => groups.contains(*group),
        };
        fleet.directory().groups().into_iter().filter(is_shown).map(str::to_owned).collect()
    };
    Ok(answer(&json!({
        "style_url": map.style_url,
        "has_basemap": map.basemap.is_some(),
        "points_max": map.points_max,
        "silent_after_s": map.silent_after.as_secs(),
        "hidden_after_s": map.hidden_after.as_secs(),
        "groups": groups,
        "name": viewer.name,
        "link_until": viewer.link_until_ms,
        "sees_all": viewer.scope.is_all(),
        "makes_links": state.config.access.links_key.is_some() && !viewer.is_link(),
        "writes": may_write(&state, &viewer),
        "edits_fences": may_edit_fences(&state, &viewer),
        "is_full": state.viewers.available_permits() == 0,
        "version": env!("CARGO_PKG_VERSION"),
    })))
}

/// Returns those of the requested tiles whose versions differ from the client's. All are in one
/// response, because a request costs more than the bytes of a tile.
async fn live_tiles(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["of", "states", "group"]).map_err(bad)?;
    let wanted = params.tiles().map_err(bad)?;
    let (states, group) = (params.states().map_err(bad)?, params.group().map_err(bad)?);
    state.live.wait_until_fresh().await.map_err(unavailable)?;
    let selection = Selection { scope: viewer.scope.in_group(&state.live.fleet(), group), states };
    let tile_kind = state.live.kind(wanted.iter().map(|(tile, _)| *tile), &selection);
    let current = wanted
        .into_iter()
        .map(|(tile, known)| (state.live.tile(tile, tile_kind, &selection), known));
    let changed: Vec<_> = current
        .filter(|(part, known)| *known != Some(part.version))
        .map(|(part, _)| part)
        .collect();
    let is_compressed = accepts_gzip(&headers);
    let pieces = wire::joined(&changed, is_compressed);
    let length = pieces.iter().map(Bytes::len).sum::<usize>();
    // Send the pieces one after the other. Viewers share them, so joining them would copy each
    // piece for each viewer.
    let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let headers = [(CONTENT_TYPE, BINARY), (CACHE_CONTROL, "no-store"), (VARY, "Accept-Encoding")];
    let mut answer = (headers, body).into_response();
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    if is_compressed {
        answer.headers_mut().insert(CONTENT_ENCODING, header_value("gzip"));
    }
    Ok(answer)
}

/// Streams one tick a second as server-sent events, until the client disconnects.
async fn stream(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::new(query.as_deref(), &["group"]).map_err(bad)?;
    let group = params.group().map_err(bad)?.to_owned();
    let permit = Arc::clone(&state.viewers).try_acquire_owned().map_err(|_| {
        let viewers_max = state.config.http.viewers_max;
        Refusal(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{viewers_max} pages are open already (http.viewers_max): try again later"),
        )
    })?;
    state.live.metrics.viewers.inc();
    let listener = Listener {
        scope: viewer.scope,
        group,
        link_until_ms: viewer.link_until_ms,
        ticks: state.live.ticks(),
        shutdown: state.shutdown.clone(),
        state,
        is_new: true,
        _permit: permit,
    };
    let events = stream::unfold(listener, async |mut listener| {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let mut answer = Body::from_stream(events).into_response();
    answer.headers_mut().insert(CONTENT_TYPE, header_value("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, header_value("no-store"));
    // nginx would buffer the stream otherwise.
    answer.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), header_value("no"));
    Ok(answer)
}

/// An open page. Dropping it frees one of the `http.viewers_max` permits.
struct Listener {
    scope: Arc<Scope>,
    /// Group that the counts are limited to; empty: every group.
    group: String,
    /// Expiry of the viewer's link, in milliseconds since 1970; `None`: a login.
    link_until_ms: Option<i64>,
    ticks: watch::Receiver<Tick>,
    shutdown: watch::Receiver<bool>,
    state: Arc<State>,
    is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl Listener {
    /// Waits for the next event. A slow client gets only the newest tick. Returns `None` if the
    /// link has expired, or the process shuts down.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_new) {
            // Ignore the error: if nothing has been read yet, the tick has the state `away`.
            let _ = self.state.live.wait_until_fresh().await;
            return Some(self.event());
        }
        let has_tick = tokio::select! {
            changed = self.ticks.changed() => {
                changed.ok()?;
                true
            }
            () = tokio::time::sleep(KEEP_ALIVE) => false,
            () = until_shutdown(&mut self.shutdown) => return None,
        };
        if self.link_until_ms.is_some_and(|until_ms| now().unix_ms() >= until_ms) {
            return None;
        }
        Some(if has_tick { self.event() } else { Bytes::from_static(b": still here\n\n") })
    }

    fn event(&mut self) -> Bytes {
        let tick = self.ticks.borrow_and_update().clone();
        // Apply the group again for each event: the groups may have changed since the last one.
        let scope = self.scope.in_group(&self.state.live.fleet(), &self.group);
        event(&self.state.live.tick_for(&scope, &tick))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.state.live.metrics.viewers.dec();
    }
}

fn event(tick: &Tick) -> Bytes {
    let json = serde_json::to_string(tick).unwrap_or_default();
    Bytes::from(format!("event: tick\ndata: {json}\n\n"))
}

/// A fix in degrees, metres, metres per second and milliseconds since 1970.
#[derive(Serialize)]
struct Position {
    driver_id: String,
    ts: i64,
    lat: f64,
    lng: f64,
    speed: Option<f64>,
    heading: Option<f64>,
    alt: Option<f64>,
    acc: Option<f64>,
    received_at: i64,
}

impl Position {
    fn new(driver_id: &str, fix: &Fix) -> Self {
        let scaled = |value: u16, by: f64| (value != UNKNOWN).then(|| f64::from(value) / by);
        Self {
            driver_id: driver_id.to_owned(),
            ts: fix.ts_ms,
            lat: f64::from(fix.lat_e7) / 1e7,
            lng: f64::from(fix.lng_e7) / 1e7,
            speed: scaled(fix.speed_cms, 100.0),
            heading: scaled(fix.heading_cdeg, 100.0),
            alt: (fix.alt_dm != i32::MAX).then(|| f64::from(fix.alt_dm) / 10.0),
            acc: scaled(fix.acc_dm, 10.0),
            received_at: fix.received_ms,
        }
    }
}

/// Returns the positions in `bbox`. With `since`, only those that were received at that time or
/// later.
async fn positions(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["bbox", "since"]).map_err(bad)?;
    let (bbox, since) = (params.bbox().map_err(bad)?, params.time_ms("since", 0).map_err(bad)?);
    state.live.wait_until_fresh().await.map_err(unavailable)?;
    let mut points = Vec::new();
    {
        let fleet = state.live.fleet();
        let selection = Selection { scope: viewer.scope, ..Selection::default() };
        let filter = state.live.filter(&fleet, &selection);
        let inside = fleet.rows().iter().filter(|row| bbox.contains(row.lat_e7, row.lng_e7));
        let inside = inside.filter(|row| filter.allows(row.number()));
        let inside = inside.map(|row| (fleet.id(row.number()), fleet.fix(row.number())));
        let received_since = inside.filter(|(_, fix)| fix.received_ms >= since);
        points.extend(
            received_since
                .take(POSITIONS_MAX + 1)
                .map(|(id, fix)| Position::new(&String::from_utf8_lossy(id), fix)),
        );
    }
    let truncated = points.len() > POSITIONS_MAX;
    points.truncate(POSITIONS_MAX);
    let json = json!({ "now": now().unix_ms(), "points": points, "truncated": truncated });
    Ok(compressible(&headers, JSON, json.to_string().into_bytes()))
}

/// Searches drivers: `prefix` is the beginning of the id, `find` a part of the id or the name.
async fn drivers(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
) -> Answer {
    let params = Params::new(query.as_deref(), &["prefix", "find", "limit"]).map_err(bad)?;
    let (prefix, limit) =
        (params.prefix().map_err(bad)?, params.limit(DRIVERS_DEFAULT).map_err(bad)?);
    let text = params.find().map_err(bad)?;
    state.live.wait_until_fresh().await.map_err(unavailable)?;
    let fleet = state.live.fleet();
    let filter =
        state.live.filter(&fleet, &Selection { scope: viewer.scope, ..Selection::default() });
    let drivers = match text {
        Some(text) => fleet.find_anywhere(text, |number| filter.allows(number), limit),
        None => fleet.search(prefix, |number| filter.allows(number), limit),
    };
    let found: Vec<_> = drivers.iter().map(|id| named_driver(&fleet, id)).collect();
    Ok(answer(&json!({ "drivers": drivers, "found": found })))
}

/// Returns a driver's id, name and group as JSON.
fn named_driver(fleet: &Fleet, id: &str) -> serde_json::Value {
    let directory = fleet.directory();
    let group = directory.group_name(directory.group(id.as_bytes()));
    json!({ "driver_id": id, "name": directory.name(id), "group": group })
}

/// Returns a driver's newest fix.
async fn driver(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    let fix = newest_fix(&state, &viewer, id).await?;
    Ok(answer(&Position::new(id, &fix)))
}

/// Returns the names and groups of the requested drivers that are in the viewer's scope.
async fn names(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["of"]).map_err(bad)?;
    let ids = params.drivers().map_err(bad)?;
    // This call records the request, so that the map goes on reading names while a client asks for
    // them. Ignore its error: names may be known before the first position.
    let _ = state.live.wait_until_fresh().await;
    let fleet = state.live.fleet();
    let seen = ids.iter().filter(|id| viewer.scope.has(&fleet, id));
    let names: Vec<_> = seen.map(|id| named_driver(&fleet, id)).collect();
    Ok(compressible(&headers, JSON, json!({ "names": names }).to_string().into_bytes()))
}

async fn livez(StateExtractor(state): StateExtractor<Arc<State>>) -> Response {
    let silent = state.live.silent_for();
    let reason = (silent > SILENT_MAX)
        .then(|| format!("live: the query loop has been hung for {} s", silent.as_secs()));
    verdict("alive", &reason.into_iter().collect::<Vec<_>>())
}

async fn readyz(StateExtractor(state): StateExtractor<Arc<State>>) -> Response {
    let unready_reasons: Vec<_> =
        files::unready_reason().into_iter().chain(state.live.unready_reasons()).collect();
    verdict("ready", &unready_reasons)
}

/// Returns 200 with the text `good` if there are no `reasons` against it, else 503 with one reason
/// per line.
fn verdict(good: &str, reasons: &[String]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = if reasons.is_empty() { good.to_owned() } else { reasons.join("\n") };
    (status, text + "\n").into_response()
}

async fn metrics(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
) -> Response {
    if !viewer.scope.is_all() {
        let message = "metrics cover all drivers, and you may see only some of them".to_owned();
        return Refusal(StatusCode::FORBIDDEN, message).into_response();
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], state.live.metrics.render()).into_response()
}
