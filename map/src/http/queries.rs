//! Handles the requests that query ClickHouse: lists, tracks, history, fences, alerts. Each answer
//! is limited to the viewer's scope.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State as StateExtractor};
use axum::http::header::CONTENT_DISPOSITION;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use milepost_observe::now;
use serde_json::json;

use super::answers::{
    Answer, BINARY, JSON, as_json, bad, check_scope, compressible, header_value, newest_fix,
    unavailable,
};
use super::refusal::Refusal;
use super::state::{State, Viewer};
use super::writes::put_fence;
use crate::fleet::directory::fold;
use crate::fleet::filter::Selection;
use crate::params::{self, Params};
use crate::store::Error;
// The aliases avoid the names of the handlers below.
use crate::{
    alerts as events, driver, fences as areas, history, list as filtered, standing as stays, tiles,
};

/// Maximum time that a query waits for one of `clickhouse.queries_max` permits.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/api/drivers/{id}/attributes", get(attributes))
        .route("/api/drivers/{id}/track", get(track))
        .route("/api/drivers/{id}/days", get(days))
        .route("/api/drivers/{id}/standing", get(standing))
        .route("/api/list", get(list))
        .route("/api/fences", get(fences).post(put_fence))
        .route("/api/visits", get(visits))
        .route("/api/alerts", get(alerts))
        .route("/api/past", get(past))
        .route("/api/cells", get(cells))
}

async fn attributes(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    check_scope(&state, &viewer, id)?;
    // The key contains the time of the fix that the page shows, so the page cannot get a shared
    // answer about an older fix.
    let fix_ms = state.live.fleet().find(id).map(|fix| fix.ts_ms);
    let load = async {
        let properties =
            run_query(&state, driver::properties(&state.store, &state.columns, id)).await?;
        Ok(Bytes::from(as_json(&properties)?))
    };
    let json = state.answers.answer(format!("attributes {fix_ms:?} {id}"), Box::pin(load)).await?;
    Ok(compressible(&headers, JSON, json))
}

async fn list(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let known =
        ["prefix", "find", "group", "silent", "faster", "stopped", "attribute", "fence", "hidden"];
    let params = Params::new(query.as_deref(), &known).map_err(bad)?;
    let filter = params.filter().map_err(bad)?;
    let folded = fold(&filter.find);
    // Wait, because the names and ids in memory are stale after an idle time, and missing after a
    // start.
    let fresh = state.live.wait_until_fresh().await;
    let named = if filter.find.is_empty() {
        Vec::new()
    } else {
        fresh.map_err(unavailable)?;
        let fleet = state.live.fleet();
        let selection = Selection { scope: Arc::clone(&viewer.scope), ..Selection::default() };
        let scope = state.live.filter(&fleet, &selection);
        // Ask for one more than the list may have, to see whether the list is complete.
        fleet.find_by_name(&folded, |number| scope.allows(number), filtered::DRIVERS_MAX + 1)
    };
    let load = async {
        let find = filtered::Find { folded, named };
        let list = filtered::list(&state.store, &viewer.scope, &filter, find, state.live.ages);
        let (mut found, truncated) = run_query(&state, list).await?;
        let fleet = state.live.fleet();
        found.iter_mut().for_each(|driver| driver.add_name(fleet.directory()));
        Ok(Bytes::from(json!({ "drivers": found, "truncated": truncated }).to_string()))
    };
    let json = state.answers.answer(format!("list {:?} {filter:?}", viewer.scope), load).await?;
    Ok(compressible(&headers, JSON, json))
}

async fn fences(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let found =
        run_query(&state, areas::all(&state.store, &viewer.scope, &state.unreadable_fences))
            .await?;
    Ok(compressible(&headers, "application/geo+json", found.to_string().into_bytes()))
}

/// Returns the visits to a fence.
async fn visits(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["fence", "from", "to"]).map_err(bad)?;
    let (fence, span) = (params.fence().map_err(bad)?, params.span(now().unix_ms()).map_err(bad)?);
    let load = async {
        let visits =
            run_query(&state, history::visits(&state.store, &viewer.scope, fence, span)).await?;
        Ok(Bytes::from(json!({ "visits": visits }).to_string()))
    };
    // Pages request ranges that end now. Round the end, so that pages share an answer for a few
    // seconds.
    let key = format!("visits {:?} {} {} {fence}", viewer.scope, span.from_ms, span.to_ms / 5_000);
    let json = state.answers.answer(key, load).await?;
    Ok(compressible(&headers, JSON, json))
}

/// Returns the time since which a driver has stayed at the place of the newest fix.
async fn standing(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    Params::new(query.as_deref(), &[]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    let fix = newest_fix(&state, &viewer, id).await?;
    let load = async {
        let standing = run_query(&state, stays::standing(&state.store, id, &fix)).await?;
        Ok(Bytes::from(as_json(&standing)?))
    };
    let json = state.answers.answer(format!("standing {} {id}", fix.ts_ms), Box::pin(load)).await?;
    Ok(compressible(&headers, JSON, json))
}

/// Returns the days on which a driver has fixes.
async fn days(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["from", "to", "tz"]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    let (span, zone) = (params.span(now().unix_ms()).map_err(bad)?, params.zone().map_err(bad)?);
    check_scope(&state, &viewer, id)?;
    let days = run_query(&state, history::days(&state.store, id, span, zone)).await?;
    Ok(compressible(&headers, JSON, json!({ "days": days }).to_string().into_bytes()))
}

async fn alerts(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["hours", "group"]).map_err(bad)?;
    let hours = params.hours(24).map_err(bad)?;
    let scope = viewer.scope.in_named_group(&state.live.fleet(), params.group().map_err(bad)?);
    let load = async {
        let alerts = run_query(&state, events::recent(&state.store, &scope, hours)).await?;
        let mut found = json!({ "alerts": alerts });
        if let Some(hint) = state.store.hint(&["events", "alerts_seen"]) {
            found["hint"] = hint.into();
        }
        Ok(Bytes::from(found.to_string()))
    };
    let key = format!("alerts {scope:?} {hours} {}", state.acknowledged.load(Ordering::Relaxed));
    let json = state.answers.answer(key, load).await?;
    Ok(compressible(&headers, JSON, json))
}

async fn past(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params = Params::new(query.as_deref(), &["bbox", "from", "to", "group"]).map_err(bad)?;
    let scope = viewer.scope.in_named_group(&state.live.fleet(), params.group().map_err(bad)?);
    let (bbox, span) = (params.bbox().map_err(bad)?, params.span(now().unix_ms()).map_err(bad)?);
    let past = run_query(&state, history::past(&state.store, &scope, bbox, span)).await?;
    Ok(compressible(&headers, JSON, as_json(&past)?))
}

async fn track(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params =
        Params::new(query.as_deref(), &["from", "to", "simplify", "format"]).map_err(bad)?;
    let id = params::driver(&id).map_err(bad)?;
    let (span, metres) =
        (params.span(now().unix_ms()).map_err(bad)?, params.simplify().map_err(bad)?);
    let format = params.format().map_err(bad)?;
    check_scope(&state, &viewer, id)?;
    if let Some(format) = format {
        let file = run_query(&state, history::file(&state.store, id, span, format)).await?;
        let mut answer = compressible(&headers, format.content_type(), file.into_bytes());
        let name =
            format!("attachment; filename=\"{}.{}\"", id.replace(':', "_"), format.extension());
        answer
            .headers_mut()
            .extend(HeaderValue::from_str(&name).ok().map(|name| (CONTENT_DISPOSITION, name)));
        return Ok(answer);
    }
    let track = run_query(&state, history::track(&state.store, id, span, metres)).await?;
    Ok(compressible(&headers, JSON, as_json(&track)?))
}

async fn cells(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let params =
        Params::new(query.as_deref(), &["bbox", "zoom", "from", "to", "group"]).map_err(bad)?;
    let scope = viewer.scope.in_named_group(&state.live.fleet(), params.group().map_err(bad)?);
    let (bbox, zoom) = (params.bbox().map_err(bad)?, params.zoom().map_err(bad)?);
    let span = params.span(now().unix_ms()).map_err(bad)?;
    let (cells, truncated) =
        run_query(&state, history::cells(&state.store, &scope, bbox, zoom, span)).await?;
    let mut answer = compressible(&headers, BINARY, tiles::cells(&cells, now().unix_ms()));
    if truncated {
        answer.headers_mut().insert(HeaderName::from_static("x-truncated"), header_value("true"));
    }
    Ok(answer)
}

/// Runs a query for a viewer once a permit is free. If the client disconnects, the query is dropped
/// with the request, and ClickHouse cancels it.
pub(super) async fn run_query<T>(
    state: &State,
    query: impl Future<Output = Result<T, Error>>,
) -> Result<T, Refusal> {
    let permit = tokio::time::timeout(PERMIT_TIMEOUT, state.query_permits.acquire()).await;
    let Ok(Ok(_permit)) = permit else {
        let message = "too many requests query ClickHouse at once (clickhouse.queries_max): try \
                       again in a few seconds";
        return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, message.to_owned()));
    };
    let _timer = state.live.metrics.viewer_queries.start_timer();
    // ClickHouse enforces a shorter limit itself. This timeout covers a network that does not
    // respond.
    let timeout = state.config.clickhouse.query_timeout + PERMIT_TIMEOUT;
    match tokio::time::timeout(timeout, query).await {
        Ok(answer) => answer.map_err(|error| match error {
            Error::LimitExceeded(message) | Error::Invalid(message) => bad(message),
            Error::Unavailable(message) => unavailable(message),
        }),
        Err(_) => Err(unavailable(
            "ClickHouse did not answer in time (clickhouse.query_timeout)".to_owned(),
        )),
    }
}
