//! Is it alive, is it ready, how is it doing.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Api, recorder};
use crate::wire::Readiness;

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// The process can do its work; says what cannot.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)))]
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let mut checks = BTreeMap::new();
    let ping = tokio::time::timeout(Duration::from_secs(2), api.store.ping()).await;
    let database = matches!(ping, Ok(Ok(())));
    checks.insert("database".to_owned(), if database { "ok" } else { "not reachable" }.to_owned());
    let alive = api.pulse.is_fresh();
    checks.insert("heartbeat".to_owned(), if alive { "ok" } else { "no recent heartbeat" }.to_owned());
    let engine = match api.engine_state() {
        kernel::explain::EngineState::Off => "off: items wait (workflow.engine.enabled = false)",
        kernel::explain::EngineState::Full => "full",
        _ if api.engine.is_none() => "elsewhere",
        _ => "ok",
    };
    checks.insert("engine".to_owned(), engine.to_owned());
    let ready = database && alive && !api.stop.is_cancelled();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, checks })).into_response()
}

/// Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()), responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics() -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], recorder().render()).into_response()
}
