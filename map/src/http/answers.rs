//! Building blocks of responses: JSON, compression, errors.

use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use serde::Serialize;

use super::refusal::Refusal;
use super::state::{State, Viewer};
use crate::fleet::Fix;
use crate::wire::{GZIP_BYTES_MIN, gzip};

pub(super) const JSON: &str = "application/json";
pub(super) const BINARY: &str = "application/octet-stream";

/// Returns a 400 for an invalid request. `message`: what is valid.
pub(super) fn bad(message: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, message)
}

/// Returns a 503, because ClickHouse cannot answer the request now.
pub(super) fn unavailable(why: String) -> Refusal {
    Refusal(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(super) type Answer = Result<Response, Refusal>;

/// Refuses a driver outside the viewer's scope with 404, as if the driver did not exist.
pub(super) fn check_scope(state: &State, viewer: &Viewer, id: &str) -> Result<(), Refusal> {
    if viewer.scope.has(&state.live.fleet(), id) { Ok(()) } else { Err(unknown(id)) }
}

/// Returns the newest fix of a driver. After an idle time, waits for new positions first.
///
/// # Errors
/// There is no such driver in the viewer's scope, or no position has been read yet.
pub(super) async fn newest_fix(state: &State, viewer: &Viewer, id: &str) -> Result<Fix, Refusal> {
    state.live.wait_until_fresh().await.map_err(unavailable)?;
    check_scope(state, viewer, id)?;
    state.live.fleet().find(id).copied().ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no driver {id}"))
}

/// Returns the value as JSON, or a refusal with 500 if it cannot be serialised: an empty 200 would
/// read as "no data".
pub(super) fn as_json(value: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "a response cannot be serialised");
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the response cannot be serialised".to_owned())
    })
}

/// Builds a short JSON response that must not be cached.
pub(super) fn answer(value: &impl Serialize) -> Response {
    let answer =
        as_json(value).map(|json| ([(CONTENT_TYPE, JSON), (CACHE_CONTROL, "no-store")], json));
    answer.into_response()
}

/// Builds a response of any length. Compresses it from [`GZIP_BYTES_MIN`] on if the client accepts
/// gzip.
pub(super) fn compressible(
    headers: &HeaderMap,
    kind: &'static str,
    bytes: impl Into<Bytes>,
) -> Response {
    let bytes = bytes.into();
    let is_compressed = bytes.len() >= GZIP_BYTES_MIN && accepts_gzip(headers);
    let bytes = if is_compressed { gzip(&bytes, Compression::fast()).into() } else { bytes };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store"), (VARY, "Accept-Encoding")];
    let mut answer = (headers, bytes).into_response();
    if is_compressed {
        answer.headers_mut().insert(CONTENT_ENCODING, header_value("gzip"));
    }
    answer
}

/// Returns whether the client accepts a response compressed with gzip.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        let mut codings = value.split(',').map(|coding| coding.trim().split(';'));
        codings.any(|mut coding| {
            coding.next() == Some("gzip") && coding.next().is_none_or(|q| q.trim() != "q=0")
        })
    })
}

pub(super) fn header_value(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn answer_that_cannot_be_json_is_an_error() {
        assert_eq!(answer(&BTreeMap::from([("a", 1)])).status(), StatusCode::OK);
        // The keys of an object must be strings.
        let status = answer(&BTreeMap::from([([1, 2], 3)])).status();
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
