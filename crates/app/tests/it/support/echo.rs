//! The part of the receiver that returns everything it receives: every header, the query and the body, in every
//! encoding.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

/// Longer than any call in a test may take.
const NEVER: Duration = Duration::from_secs(20);

/// What it received, request by request.
#[derive(Clone, Default)]
pub(crate) struct Echo(Arc<Mutex<Vec<String>>>);

impl Echo {
    /// Below `/echo/`: a status to answer with, or `cut`, `binary`, `never`.
    pub(crate) fn router(&self) -> Router {
        Router::new().route("/echo/{how}", any(answer)).with_state(self.clone())
    }

    /// Everything that it received.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

async fn answer(
    State(echo): State<Echo>,
    Path(how): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (query, body) = (query.unwrap_or_default(), String::from_utf8_lossy(&body).into_owned());
    let lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect();
    let all = format!("{how}\n{query}\n{}\n\n{body}", lines.join("\n"));
    echo.0.lock().push(all.clone());
    let key = headers.get("x-key").cloned();
    let raw = key.as_ref().map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()).unwrap_or_default();
    match how.as_str() {
        "never" => {
            tokio::time::sleep(NEVER).await;
            StatusCode::OK.into_response()
        }
        // What a failure quotes of it ends within the first of them.
        "cut" => (StatusCode::BAD_REQUEST, format!("{}{raw}{all}", "x".repeat(490))).into_response(),
        "binary" => [b"\xff\xfe".as_slice(), all.as_bytes(), b"\xff"].concat().into_response(),
        status => {
            let status = status.parse().ok().and_then(|status| StatusCode::from_u16(status).ok());
            let hexadecimal: String = raw.bytes().map(|byte| format!("{byte:02X}")).collect();
            let observed = json!({
                "raw": raw, raw.clone(): "as a key", "all": all, "query": query, "body": body, "hex": hexadecimal,
                "base64": STANDARD.encode(&raw), "url_safe": URL_SAFE_NO_PAD.encode(&raw),
                "within": STANDARD.encode(format!("user:{raw}!")), "quoted": json!([raw]).to_string(),
            });
            let mut response = (status.unwrap_or(StatusCode::OK), axum::Json(observed)).into_response();
            response.headers_mut().extend(key.map(|key| (axum::http::HeaderName::from_static("x-echo"), key)));
            response
        }
    }
}
