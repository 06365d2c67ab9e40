//! Serves the page, which is built beforehand and embedded in the binary. Each file is compressed
//! once, at its first request.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;

use super::answers::accepts_gzip;
use super::files::{FILES, MISSING};
use super::refusal::Refusal;
use super::state::State;
use crate::wire::gzip;

/// The compressed files, by index in [`FILES`]; `None`: compression saves less than a tenth.
static COMPRESSED: [OnceLock<Option<Bytes>>; FILES.len()] =
    [const { OnceLock::new() }; FILES.len()];

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().fallback(file)
}

/// Returns whether the page has a file at this path of a URL.
pub(super) fn is_file_of_page(path: &str) -> bool {
    position(name_of(path)).is_some()
}

/// Returns the name of the file at a path of a URL.
fn name_of(path: &str) -> &str {
    if path == "/" { "index.html" } else { path.trim_start_matches('/') }
}

/// Returns the index of a file in [`FILES`].
fn position(name: &str) -> Option<usize> {
    FILES.iter().position(|(file, _)| *file == name)
}

async fn file(uri: Uri, headers: HeaderMap) -> Response {
    let path = name_of(uri.path());
    let Some(index) = position(path) else {
        if FILES.is_empty() && path == "index.html" {
            return Refusal(StatusCode::SERVICE_UNAVAILABLE, MISSING.to_owned()).into_response();
        }
        return Refusal(
            StatusCode::NOT_FOUND,
            "there is nothing here; docs/map.md has the API".to_owned(),
        )
        .into_response();
    };
    let (name, bytes) = FILES[index];
    let mut answer = Bytes::from_static(bytes).into_response();
    let headers_out = answer.headers_mut();
    headers_out.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    // Vite names the files in assets/ by the hash of their content.
    let caching = if name.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    headers_out.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers_out.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if !accepts_gzip(&headers) {
        return answer;
    }
    // Compress in a blocking thread, so that the streams of open pages do not stall: the largest
    // file, the map's finest coastline, takes a second even in a release build. Keep the result
    // only if it saves a tenth.
    let compressed = tokio::task::spawn_blocking(move || {
        let gzip = || Bytes::from(gzip(bytes, Compression::best()));
        let compressed = COMPRESSED[index]
            .get_or_init(|| Some(gzip()).filter(|gzip| gzip.len() < bytes.len() / 10 * 9));
        compressed.clone()
    });
    if let Ok(Some(gzip)) = compressed.await {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        *answer.body_mut() = gzip.into();
    }
    answer
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" | "geojson" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
