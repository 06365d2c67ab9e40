//! `/api`, `/livez`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, State as From};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use futures_util::stream;
use milepost_observe::now;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch;

use super::files;
use super::refusal::Refusal;
use super::state::{State, end};
use crate::fleet::{Fix, UNKNOWN};
use crate::live::Tick;
use crate::params::{self, Params};
use crate::store::Error;
use crate::wire::{self, GZIP_BYTES_MIN, gzip};
use crate::{fences as areas, history, list as filtered, tiles};

/// A fence that is sent: its size, and how long that may take.
const FENCE_BYTES_MAX: usize = 1 << 20;
const FENCE_WITHIN: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";
/// Positions in one answer.
const POSITIONS_MAX: usize = 10_000;
/// Drivers in one answer, if nobody says how many.
const DRIVERS: usize = 20;
/// A loop that has not turned for this long hangs: a question of it takes at most a minute.
const SILENT_MAX: Duration = Duration::from_secs(120);
/// A question about the past waits so long for a place.
const PLACE_WITHIN: Duration = Duration::from_secs(2);
/// A stream without news sends a comment after this, so that what is between keeps it open.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What is wrong with a parameter.
fn bad(what: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, what)
}

fn away(why: String) -> Refusal {
    Refusal(StatusCode::SERVICE_UNAVAILABLE, why)
}

type Answer = Result<Response, Refusal>;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/api/config", get(config))
        .route("/api/tiles", get(live_tiles))
        .route("/api/stream", get(stream))
        .route("/api/positions", get(positions))
        .route("/api/drivers", get(drivers))
        .route("/api/drivers/{id}", get(driver))
        .route("/api/drivers/{id}/attributes", get(attributes))
        .route("/api/drivers/{id}/track", get(track))
        .route("/api/list", get(list))
        .route("/api/fences", get(fences).post(put_fence))
        .route("/api/past", get(past))
        .route("/api/cells", get(cells))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
}

async fn config(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let map = &state.config.map;
    Ok(answer(&json!({
        "style_url": map.style_url,
        "points_max": map.points_max,
        "edits_fences": edits_fences(&state, &headers),
        "version": env!("CARGO_PKG_VERSION"),
    })))
}

/// Those of the tiles that have changed since who asks got them, in one answer: a request costs more than what is in it.
async fn live_tiles(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let params = Params::new(query.as_deref(), &["of"]).map_err(bad)?;
    let wanted = params.tiles().map_err(bad)?;
    state.live.look().await.map_err(away)?;
    let kind = state.live.kind(wanted.iter().map(|(tile, _)| *tile));
    let now = wanted.into_iter().map(|(tile, known)| (state.live.tile(tile, kind), known));
    let changed: Vec<_> =
        now.filter(|(part, known)| *known != Some(part.version)).map(|(part, _)| part).collect();
    let is_packed = takes_gzip(&headers);
    let pieces = wire::joined(&changed, is_packed);
    let length = pieces.iter().map(Bytes::len).sum::<usize>();
    // Not put together: the pieces are those of all viewers.
    let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
    let headers = [(CONTENT_TYPE, BINARY), (CACHE_CONTROL, "no-store"), (VARY, "Accept-Encoding")];
    let mut answer = (headers, body).into_response();
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    if is_packed {
        answer.headers_mut().insert(CONTENT_ENCODING, value("gzip"));
    }
    Ok(answer)
}

/// Server-sent events: a tick a second, from now until the viewer leaves.
async fn stream(From(state): From<Arc<State>>, RawQuery(query): RawQuery) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let place = Arc::clone(&state.viewers).try_acquire_owned().map_err(|_| {
        let most = state.config.http.viewers_max;
        Refusal(
            StatusCode::TOO_MANY_REQUESTS,
            format!("{most} pages are open already (http.viewers_max): try again later"),
        )
    })?;
    state.live.metrics.viewers.inc();
    let viewer = Viewer {
        ticks: state.live.ticks(),
        ending: state.ending.clone(),
        state,
        is_new: true,
        _place: place,
    };
    let events = stream::unfold(viewer, async |mut viewer| {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let mut answer = Body::from_stream(events).into_response();
    answer.headers_mut().insert(CONTENT_TYPE, value("text/event-stream"));
    answer.headers_mut().insert(CACHE_CONTROL, value("no-store"));
    answer.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), value("no")); // nginx would keep it back
    Ok(answer)
}

/// A stream; its place is free again when it is dropped.
struct Viewer {
    ticks: watch::Receiver<Tick>,
    ending: watch::Receiver<bool>,
    state: Arc<State>,
    is_new: bool,
    _place: OwnedSemaphorePermit,
}

impl Viewer {
    /// The newest tick: who reads slowly misses those between. `None`: the process ends.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_new) {
            let _ = self.state.live.look().await; // if it cannot, the tick says so
            return Some(event(&self.ticks.borrow_and_update()));
        }
        tokio::select! {
            changed = self.ticks.changed() => {
                changed.ok()?;
                Some(event(&self.ticks.borrow_and_update()))
            }
            () = tokio::time::sleep(KEEP_ALIVE) => Some(Bytes::from_static(b": still here\n\n")),
            () = end(&mut self.ending) => None,
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.state.live.metrics.viewers.dec();
    }
}

fn event(tick: &Tick) -> Bytes {
    let json = serde_json::to_string(tick).unwrap_or_default();
    Bytes::from(format!("event: tick\ndata: {json}\n\n"))
}

/// A fix in plain units.
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

async fn positions(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let params = Params::new(query.as_deref(), &["bbox", "since"]).map_err(bad)?;
    let (bbox, since) = (params.bbox().map_err(bad)?, params.time_ms("since", 0).map_err(bad)?);
    state.live.look().await.map_err(away)?;
    let mut points = Vec::new();
    {
        let fleet = state.live.fleet();
        let inside = fleet.rows().iter().filter(|row| bbox.holds(row.lat_e7, row.lng_e7));
        let inside = inside.map(|row| (fleet.name(row.number()), fleet.fix(row.number())));
        let newer = inside.filter(|(_, fix)| fix.received_ms >= since);
        points.extend(
            newer.take(POSITIONS_MAX + 1).map(|(id, fix)| Position::new(&String::from_utf8_lossy(id), fix)),
        );
    }
    let truncated = points.len() > POSITIONS_MAX;
    points.truncate(POSITIONS_MAX);
    let json = json!({ "now": now().unix_ms(), "points": points, "truncated": truncated });
    Ok(packed(&headers, JSON, json.to_string().into_bytes()))
}

async fn drivers(From(state): From<Arc<State>>, RawQuery(query): RawQuery) -> Answer {
    let params = Params::new(query.as_deref(), &["prefix", "limit"]).map_err(bad)?;
    let (prefix, limit) = (params.prefix().map_err(bad)?, params.limit(DRIVERS).map_err(bad)?);
    state.live.look().await.map_err(away)?;
    let found = state.live.fleet().search(prefix, limit);
    Ok(answer(&json!({ "drivers": found })))
}

async fn driver(From(state): From<Arc<State>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    state.live.look().await.map_err(away)?;
    let fix = state.live.fleet().find(id).copied();
    let fix =
        fix.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("nobody has heard of a driver {id}")))?;
    Ok(answer(&Position::new(id, &fix)))
}

async fn attributes(
    From(state): From<Arc<State>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    // Of this fix, which the page has: an older answer will not do.
    let of = state.live.fleet().find(id).map(|fix| fix.ts_ms);
    let question = async {
        let (ts, attributes) = asked(&state, filtered::attributes(&state.store, id)).await?;
        Ok(Bytes::from(json!({ "ts": ts, "attributes": attributes }).to_string()))
    };
    let json = state.answers.answer(format!("attributes {of:?} {id}"), question).await?;
    Ok(packed(&headers, JSON, json))
}

async fn list(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let known = ["prefix", "silent", "faster", "stopped", "attribute", "fence"];
    let params = Params::new(query.as_deref(), &known).map_err(bad)?;
    let filter = params.filter().map_err(bad)?;
    let question = async {
        let (found, truncated) = asked(&state, filtered::list(&state.store, &filter)).await?;
        Ok(Bytes::from(json!({ "drivers": found, "truncated": truncated }).to_string()))
    };
    let json = state.answers.answer(format!("list {filter:?}"), question).await?;
    Ok(packed(&headers, JSON, json))
}

async fn fences(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let found = asked(&state, areas::all(&state.store)).await?;
    Ok(packed(&headers, "application/geo+json", found.to_string().into_bytes()))
}

fn edits_fences(state: &State, headers: &HeaderMap) -> bool {
    let editors = &state.config.fences.editors;
    let is_editor =
        || state.config.http.user(headers).is_some_and(|name| editors.iter().any(|one| one == name));
    state.fence_writer.is_some() && (editors.is_empty() || is_editor())
}

/// The content type keeps foreign pages out: a browser asks before it sends this one to another site, and there is no CORS.
async fn put_fence(From(state): From<Arc<State>>, headers: HeaderMap, body: Body) -> Answer {
    let writer = state.fence_writer.as_ref().filter(|_| edits_fences(&state, &headers));
    let writer = writer.ok_or_else(|| {
        Refusal(StatusCode::FORBIDDEN, "you may not change fences (fences.user, fences.editors)".to_owned())
    })?;
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != "application/geo+json") {
        return Err(bad("Content-Type: expected application/geo+json".to_owned()));
    }
    let body = tokio::time::timeout(FENCE_WITHIN, to_bytes(body, FENCE_BYTES_MAX)).await;
    let body = body.ok().and_then(Result::ok).ok_or_else(|| {
        bad(format!("expected a body of at most {FENCE_BYTES_MAX} bytes within {FENCE_WITHIN:?}"))
    })?;
    let feature = serde_json::from_slice(&body).map_err(|error| bad(format!("not JSON: {error}")))?;
    let user = state.config.http.user(&headers);
    let stored = async {
        let _one_at_a_time = state.fence_changes.lock().await;
        areas::put(writer, state.store.database(), &feature, user).await
    };
    match tokio::time::timeout(state.config.clickhouse.query_timeout, stored).await {
        Ok(Ok(())) => Ok(answer(&json!({}))),
        Ok(Err(areas::Refused::Invalid(why))) => Err(bad(why)),
        Ok(Err(areas::Refused::Away(why))) => Err(away(why)),
        Err(_) => Err(away("ClickHouse does not answer in time (clickhouse.query_timeout)".to_owned())),
    }
}

async fn past(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let params = Params::new(query.as_deref(), &["bbox", "from", "to"]).map_err(bad)?;
    let (bbox, span) = (params.bbox().map_err(bad)?, params.span(now().unix_ms()).map_err(bad)?);
    let past = asked(&state, history::past(&state.store, bbox, span)).await?;
    Ok(packed(&headers, JSON, serde_json::to_vec(&past).unwrap_or_default()))
}

async fn track(
    From(state): From<Arc<State>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["from", "to", "simplify"]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    let (span, metres) = (params.span(now().unix_ms()).map_err(bad)?, params.simplify().map_err(bad)?);
    let track = asked(&state, history::track(&state.store, id, span, metres)).await?;
    Ok(packed(&headers, JSON, serde_json::to_vec(&track).unwrap_or_default()))
}

async fn cells(From(state): From<Arc<State>>, RawQuery(query): RawQuery, headers: HeaderMap) -> Answer {
    let params = Params::new(query.as_deref(), &["bbox", "zoom", "from", "to"]).map_err(bad)?;
    let (bbox, zoom) = (params.bbox().map_err(bad)?, params.zoom().map_err(bad)?);
    let span = params.span(now().unix_ms()).map_err(bad)?;
    let (cells, truncated) = asked(&state, history::cells(&state.store, bbox, zoom, span)).await?;
    let mut answer = packed(&headers, BINARY, tiles::cells(&cells, now().unix_ms()));
    if truncated {
        answer.headers_mut().insert(HeaderName::from_static("x-truncated"), value("true"));
    }
    Ok(answer)
}

/// The answer to a question about the past, when there is a place for it. Dropped with the request: ClickHouse ends it then.
async fn asked<T>(state: &State, question: impl Future<Output = Result<T, Error>>) -> Result<T, Refusal> {
    let place = tokio::time::timeout(PLACE_WITHIN, state.questions.acquire()).await;
    let Ok(Ok(_place)) = place else {
        let what =
            "too many questions about the past at once (clickhouse.queries_max): try again in some seconds";
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, what.to_owned()));
    };
    let _timer = state.live.metrics.questions.start_timer();
    // The server's own limit comes first; this one is for a network that answers nothing.
    let within = state.config.clickhouse.query_timeout + PLACE_WITHIN;
    match tokio::time::timeout(within, question).await {
        Ok(answer) => answer.map_err(|error| match error {
            Error::TooMuch(words) => bad(words),
            Error::Away(words) => away(words),
        }),
        Err(_) => Err(away("ClickHouse does not answer in time (clickhouse.query_timeout)".to_owned())),
    }
}

async fn livez(From(state): From<Arc<State>>) -> Response {
    let silent = state.live.silent_for();
    let wrong = (silent > SILENT_MAX).then(|| format!("live: has not turned for {} s", silent.as_secs()));
    verdict("alive", &wrong.into_iter().collect::<Vec<_>>())
}

async fn readyz(From(state): From<Arc<State>>) -> Response {
    let troubles: Vec<_> = files::trouble().into_iter().chain(state.live.troubles()).collect();
    verdict("ready", &troubles)
}

fn verdict(good: &str, wrong: &[String]) -> Response {
    let status = if wrong.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = if wrong.is_empty() { good.to_owned() } else { wrong.join("\n") };
    (status, text + "\n").into_response()
}

async fn metrics(From(state): From<Arc<State>>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], state.live.metrics.render()).into_response()
}

/// JSON that nobody keeps.
fn answer(value: &impl Serialize) -> Response {
    let json = serde_json::to_vec(value).unwrap_or_default();
    ([(CONTENT_TYPE, JSON), (CACHE_CONTROL, "no-store")], json).into_response()
}

/// The same of what may be long.
fn packed(headers: &HeaderMap, kind: &'static str, bytes: impl Into<Bytes>) -> Response {
    let bytes = bytes.into();
    let is_packed = bytes.len() >= GZIP_BYTES_MIN && takes_gzip(headers);
    let bytes = if is_packed { gzip(&bytes, Compression::fast()).into() } else { bytes };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store"), (VARY, "Accept-Encoding")];
    let mut answer = (headers, bytes).into_response();
    if is_packed {
        answer.headers_mut().insert(CONTENT_ENCODING, value("gzip"));
    }
    answer
}

pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let mut codings = value.split(',').map(|coding| coding.trim().split(';'));
        codings.any(|mut coding| {
            coding.next() == Some("gzip") && coding.next().is_none_or(|q| q.trim() != "q=0")
        })
    })
}

fn value(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}
