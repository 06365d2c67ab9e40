//! Handles the requests that write: fences, names of drivers, acknowledgements of alerts, links. A
//! viewer with a link may not write.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::extract::State as StateExtractor;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use milepost_clickhouse::{Reader, now_with_suspends};
use milepost_core::screened::LIST_AGE_MAX;
use milepost_observe::now;
use serde::Deserialize;
use serde_json::json;

use super::answers::{Answer, JSON, answer, bad, check_scope, unavailable};
use super::refusal::Refusal;
use super::state::{State, Viewer};
use crate::access::{LINK_HOURS_MAX, Link};
use crate::erased::erased_among;
use crate::names::{self, CardChange};
use crate::{alerts, fences as areas, params};

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Timeout of reading a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Validity of a link without `hours`.
const LINK_HOURS: u32 = 24;
/// Maximum time to read the list of erased drivers before a row is written.
const ERASED_WITHIN: Duration = Duration::from_secs(20);
const ERASED_TOO_SLOW: &str = "the list of erased drivers could not be read in time, so nothing \
                               was stored: try again; send fewer cards at once";

/// Maximum time to wait for other changes of cards, and to read the stored cards.
const CARDS_WITHIN: Duration = Duration::from_secs(60);
const CARDS_TOO_SLOW: &str = "the stored cards could not be read in time, so nothing was stored: \
                              try again; send fewer cards at once";

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new()
        .route("/api/alerts/seen", post(acknowledge_alert))
        .route("/api/links", post(make_link))
        .route("/api/cards", post(put_cards))
}

/// Returns whether the viewer may acknowledge alerts and name drivers.
pub(super) fn may_write(state: &State, viewer: &Viewer) -> bool {
    state.writer.is_some() && !viewer.is_link()
}

/// Returns whether the viewer may edit fences.
pub(super) fn may_edit_fences(state: &State, viewer: &Viewer) -> bool {
    let editors = &state.config.fences.editors;
    let is_editor = || viewer.name.as_ref().is_some_and(|name| editors.contains(name));
    may_write(state, viewer) && (editors.is_empty() || is_editor())
}

/// Reads the body of a request. Requires a content type that a page of another site cannot send:
/// the browser would first send a CORS preflight, and the map allows none.
async fn read_body(headers: &HeaderMap, body: Body, kind: &str) -> Result<Bytes, Refusal> {
    if media_type(headers) != kind {
        return Err(bad(format!("Content-Type: expected {kind}")));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BODY_BYTES_MAX)).await;
    body.ok().and_then(Result::ok).ok_or_else(|| {
        bad(format!("expected a body of at most {BODY_BYTES_MAX} bytes within {BODY_TIMEOUT:?}"))
    })
}

/// Returns the content type in lower case, without parameters such as `charset`; empty: none.
fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
    let kind = given.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

fn forbidden(message: &str) -> Refusal {
    Refusal(StatusCode::FORBIDDEN, message.to_owned())
}

/// Returns the client with the ClickHouse login that writes, if the viewer may use it.
fn writer<'a>(state: &'a State, viewer: &Viewer) -> Result<&'a Reader, Refusal> {
    let writer = state.writer.as_ref().filter(|_| may_write(state, viewer));
    writer.ok_or_else(|| {
        forbidden("you cannot write: fences.user is not set, or you use a read-only link")
    })
}

/// The erased drivers among those of a request. No card or acknowledgement of these drivers may be
/// stored.
struct ErasedList {
    ids: HashSet<String>,
    /// Time at which the read began.
    read_at: Instant,
}

/// Returns the erased drivers among `ids`.
///
/// # Errors
/// The list cannot be read within [`ERASED_WITHIN`].
async fn erased(state: &State, ids: &[&str]) -> Result<ErasedList, Refusal> {
    let read_at = now_with_suspends();
    let read = tokio::time::timeout(ERASED_WITHIN, erased_among(&state.store, ids)).await;
    let ids = read.map_err(|_| unavailable(ERASED_TOO_SLOW.to_owned()))?.map_err(|error| {
        tracing::warn!(%error, "the list of erased drivers cannot be read");
        unavailable(state.store.error(&error).to_string())
    })?;
    Ok(ErasedList { ids, read_at })
}

/// Waits for a write, at most for `clickhouse.query_timeout`. The write must end before the list is
/// [`LIST_AGE_MAX`] old, because `milepost erase` does not expect a later row. If the process was
/// paused, and the list is too old already, nothing is written.
async fn wait_for_write(
    state: &State,
    writer: &Reader,
    list: &ErasedList,
    write: impl Future<Output = Result<(), clickhouse::error::Error>>,
) -> Result<(), Refusal> {
    let age = now_with_suspends().saturating_duration_since(list.read_at);
    let remaining = LIST_AGE_MAX.saturating_sub(age);
    if remaining.is_zero() {
        return Err(unavailable(ERASED_TOO_SLOW.to_owned()));
    }
    let timeout = state.config.clickhouse.query_timeout.min(remaining);
    match tokio::time::timeout(timeout, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "ClickHouse did not store a viewer's change");
            let (_, advice) = writer.code_and_advice(&error);
            let why = advice.map(|advice| areas::about_writer(&advice));
            let why = why.unwrap_or_else(|| "it refused the insert".to_owned());
            Err(unavailable(format!("ClickHouse did not store this: {why}")))
        }
        Err(_) => {
            let limit = state.config.clickhouse.query_timeout;
            Err(unavailable(too_slow(timeout, limit)))
        }
    }
}

/// Returns the message for a write that ClickHouse did not answer within `timeout`. `limit`:
/// `clickhouse.query_timeout`.
fn too_slow(timeout: Duration, limit: Duration) -> String {
    let seconds = timeout.as_millis().div_ceil(1_000);
    let option = if timeout == limit { " (clickhouse.query_timeout)" } else { "" };
    format!("ClickHouse did not answer within {seconds} s{option}")
}

/// Stores, changes or ends a fence, from a GeoJSON Feature.
pub(super) async fn put_fence(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let writer = state.writer.as_ref().filter(|_| may_edit_fences(&state, &viewer));
    let writer = writer.ok_or_else(|| {
        Refusal(
            StatusCode::FORBIDDEN,
            "you may not change fences (fences.user, fences.editors)".to_owned(),
        )
    })?;
    let body = read_body(&headers, body, "application/geo+json").await?;
    let feature: serde_json::Value =
        serde_json::from_slice(&body).map_err(|error| bad(format!("not JSON: {error}")))?;
    if feature["properties"].get("drivers").is_some() && !viewer.scope.is_all() {
        return Err(forbidden("only a viewer of all drivers may choose the drivers of a fence"));
    }
    let user = viewer.name.as_deref();
    let store = async {
        let _one_at_a_time = state.fence_changes.lock().await;
        areas::put(writer, state.store.database(), &feature, user).await
    };
    match tokio::time::timeout(state.config.clickhouse.query_timeout, store).await {
        Ok(Ok(())) => Ok(answer(&json!({}))),
        Ok(Err(areas::Refused::Invalid(why))) => Err(bad(why)),
        Ok(Err(areas::Refused::Conflict(why))) => Err(Refusal(StatusCode::CONFLICT, why)),
        Ok(Err(areas::Refused::Unavailable(why))) => Err(unavailable(why)),
        Err(_) => Err(unavailable(
            "ClickHouse did not answer in time (clickhouse.query_timeout)".to_owned(),
        )),
    }
}

/// Records that the viewer has seen an alert.
async fn acknowledge_alert(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let writer = writer(&state, &viewer)?;
    let body = read_body(&headers, body, JSON).await?;
    let alert: alerts::AlertKey =
        serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
    alert.check().map_err(bad)?;
    check_scope(&state, &viewer, &alert.driver_id)?;
    let erased = erased(&state, &[&alert.driver_id]).await?;
    if erased.ids.contains(&alert.driver_id) {
        return Err(Refusal(
            StatusCode::CONFLICT,
            "this driver is erased, so nothing is stored".to_owned(),
        ));
    }
    let by = viewer.name.as_deref().unwrap_or_default();
    let write = alerts::acknowledge(writer, state.store.database(), &alert, by);
    wait_for_write(&state, writer, &erased, write).await?;
    state.acknowledged.fetch_add(1, Ordering::Relaxed);
    Ok(answer(&json!({})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRequest {
    #[serde(default)]
    drivers: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    hours: Option<u32>,
}

/// Signs a link that shows these drivers and groups, if the viewer may see them.
async fn make_link(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let secret = state.config.access.links_key.clone().filter(|_| !viewer.is_link());
    let secret = secret.ok_or_else(|| {
        forbidden("you cannot make links: access.links_key is not set, or you use a link")
    })?;
    let body = read_body(&headers, body, JSON).await?;
    let request: LinkRequest =
        serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
    let hours = request.hours.unwrap_or(LINK_HOURS);
    if !(1..=LINK_HOURS_MAX).contains(&hours) {
        return Err(bad(format!("hours: expected 1 to {LINK_HOURS_MAX}")));
    }
    let until = now().unix_ms() + i64::from(hours) * 3_600_000;
    let by = viewer.name.clone().unwrap_or_default();
    let link = Link {
        groups: request.groups.into_iter().collect(),
        drivers: request.drivers.into_iter().collect(),
        until,
        by,
    };
    link.check().map_err(bad)?;
    link.drivers.iter().try_for_each(|id| check_scope(&state, &viewer, id))?;
    if !link.groups.iter().all(|group| viewer.scope.has_group(group)) {
        return Err(forbidden("you may not see all of these groups"));
    }
    let secret = tokio::task::spawn_blocking(move || secret.read()).await;
    let secret = secret.ok().and_then(Result::ok);
    let secret =
        secret.ok_or_else(|| unavailable("access.links_key_file cannot be read".to_owned()))?;
    let (drivers, groups) = (&link.drivers, &link.groups);
    tracing::info!(user = viewer.name, ?drivers, ?groups, hours, "a link was made");
    Ok(answer(&json!({ "link": link.sign(&secret), "until": until })))
}

/// Stores cards of drivers, from CSV or a JSON array.
async fn put_cards(
    StateExtractor(state): StateExtractor<Arc<State>>,
    Extension(viewer): Extension<Viewer>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let writer = writer(&state, &viewer)?;
    if !viewer.scope.is_all() {
        return Err(forbidden("only a viewer of all drivers may name them"));
    }
    let changes: Vec<CardChange> = if media_type(&headers) == "text/csv" {
        let body = read_body(&headers, body, "text/csv").await?;
        let text = str::from_utf8(&body).map_err(|_| bad("the CSV is not UTF-8".to_owned()))?;
        names::csv(text).map_err(bad)?
    } else {
        let body = read_body(&headers, body, JSON).await?;
        serde_json::from_slice(&body)
            .map_err(|error| bad(format!("expected an array of cards: {error}")))?
    };
    names::check_count(changes.len()).map_err(bad)?;
    changes.iter().try_for_each(|card| params::driver(&card.driver_id).map(drop)).map_err(bad)?;
    // Two requests may change different values of one driver. Each request writes the whole card,
    // so the second request must read the card that the first one wrote.
    let read = async {
        let guard = state.card_changes.lock().await;
        (guard, names::merged(&state.store, changes).await)
    };
    let read = tokio::time::timeout(CARDS_WITHIN, read).await;
    let (_one_at_a_time, cards) = read.map_err(|_| unavailable(CARDS_TOO_SLOW.to_owned()))?;
    let cards = cards.map_err(|error| {
        tracing::warn!(%error, "the stored cards cannot be read");
        unavailable(state.store.error(&error).to_string())
    })?;
    // Read the list of erased drivers last, so that it is as new as possible when the cards are
    // written.
    let ids: Vec<&str> = cards.iter().map(|card| &*card.driver_id).collect();
    let erased = erased(&state, &ids).await?;
    let (skipped, cards): (Vec<_>, Vec<_>) =
        cards.into_iter().partition(|card| erased.ids.contains(&card.driver_id));
    let count = cards.len();
    let write = names::write(writer, state.store.database(), &cards);
    wait_for_write(&state, writer, &erased, write).await?;
    state.live.read_names();
    tracing::info!(user = viewer.name, count, skipped = skipped.len(), "drivers were named");
    Ok(answer(&if skipped.is_empty() {
        json!({ "stored": count })
    } else {
        let ids: BTreeSet<String> = skipped.into_iter().map(|card| card.driver_id).collect();
        json!({ "stored": count, "erased": ids })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_type_counts_without_its_parameters() {
        for (given, expected) in [
            ("text/csv", "text/csv"),
            ("Text/CSV; charset=utf-8", "text/csv"),
            ("application/json;charset=UTF-8", "application/json"),
            ("text/plain; application/json", "text/plain"),
        ] {
            let value = axum::http::HeaderValue::from_static(given);
            assert_eq!(media_type(&HeaderMap::from_iter([(CONTENT_TYPE, value)])), expected);
        }
        assert_eq!(media_type(&HeaderMap::new()), "");
    }

    #[test]
    fn slow_write_names_its_limit_in_whole_seconds() {
        let message =
            |timeout, limit| too_slow(Duration::from_millis(timeout), Duration::from_millis(limit));
        assert_eq!(message(200, 30_000), "ClickHouse did not answer within 1 s");
        let option = "ClickHouse did not answer within 30 s (clickhouse.query_timeout)";
        assert_eq!(message(30_000, 30_000), option);
    }
}
