//! `/basemap.pmtiles`: ranges of the basemap file.

use std::sync::Arc;

use axum::Router;
use axum::extract::State as StateExtractor;
use axum::http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::refusal::Refusal;
use super::state::State;
use crate::basemap;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/basemap.pmtiles", get(range))
}

/// Returns one range. A request without a range is refused, because the file may be gigabytes long.
async fn range(
    StateExtractor(state): StateExtractor<Arc<State>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let refused = |status, message: &str| Refusal(status, message.to_owned());
    let path = state.config.map.basemap.clone();
    let path =
        path.ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is no basemap (map.basemap)"))?;
    let range = headers.get(RANGE).and_then(|range| basemap::parse(range.to_str().ok()?));
    let (first, last) = range.ok_or_else(|| {
        refused(StatusCode::RANGE_NOT_SATISFIABLE, "expected one range: Range: bytes=FIRST-LAST")
    })?;
    let read = tokio::task::spawn_blocking(move || basemap::read(&path, first, last)).await;
    let read = read.expect("basemap::read does not panic").map_err(|error| {
        tracing::warn!(%error, "the basemap cannot be read");
        refused(StatusCode::SERVICE_UNAVAILABLE, "the basemap cannot be read (map.basemap)")
    })?;
    let Some(range) = read else {
        return Err(refused(StatusCode::RANGE_NOT_SATISFIABLE, "the file ends before this range"));
    };
    let last = range.first + range.bytes.len() as u64 - 1;
    let content = format!("bytes {}-{last}/{}", range.first, range.total);
    let headers = [
        (CONTENT_TYPE, "application/vnd.pmtiles".to_owned()),
        (CONTENT_RANGE, content),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (ETAG, range.tag),
        // Ranges may be cached although the file may be replaced: the page's reader compares their
        // ETags.
        (CACHE_CONTROL, "private, max-age=3600".to_owned()),
    ];
    let mut answer = (StatusCode::PARTIAL_CONTENT, range.bytes).into_response();
    for (name, value) in headers {
        answer.headers_mut().extend(HeaderValue::from_str(&value).ok().map(|value| (name, value)));
    }
    Ok(answer)
}
