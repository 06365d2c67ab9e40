//! Error responses: a status and a message as JSON.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A status, and a message that says what is wrong and what to do.
#[derive(Debug, Clone)]
pub struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        (status, [(CONTENT_TYPE, "application/json")], json!({ "error": message }).to_string())
            .into_response()
    }
}
