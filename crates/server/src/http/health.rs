//! Is it alive, is it ready, how is it doing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::queue::explain::EngineState;

use super::Api;
use crate::signals::recorder::{pool, recorder};
use crate::wire::Readiness;

/// What readiness looks at beside the rest of the API.
#[derive(Debug)]
pub(crate) struct Parts {
    /// This process performs the calls of nodes.
    pub(crate) performs: bool,
    /// Whether the worker of an engine elsewhere polls, in a process that is one.
    pub(crate) polls: Option<Arc<AtomicBool>>,
    /// Whoever waits for this process may go on.
    pub(crate) announced: Arc<AtomicBool>,
}

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// The process can do its work; says what cannot.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Readiness),
        (status = 503, description = "It is not ready: `checks` says why.", body = Readiness)))]
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let mut checks = BTreeMap::new();
    let ping = tokio::time::timeout(Duration::from_secs(2), api.store.ping()).await;
    let database = matches!(ping, Ok(Ok(())));
    checks.insert("database".to_owned(), if database { "ok" } else { "not reachable" }.to_owned());
    let alive = api.pulse.is_fresh();
    checks.insert("heartbeat".to_owned(), if alive { "ok" } else { "no recent heartbeat" }.to_owned());
    checks.insert("engine".to_owned(), engine(&api));
    if api.settings.dispatch.exclusive && database {
        checks.insert("dispatch".to_owned(), dispatch(&api).await);
    }
    if api.engine.local.as_ref().is_some_and(|engine| engine.place().is_some()) {
        let found = api.engine.findings.trouble().unwrap_or_else(|| "ok".to_owned());
        checks.insert("reconciler".to_owned(), found);
    }
    // Others claim meanwhile, and this process answers: it is told of, and does not make it unready.
    if let Some(trouble) = api.engine.rules.trouble() {
        checks.insert("claims".to_owned(), trouble);
    }
    if let Some(trouble) = api.engine.foreign.trouble() {
        checks.insert("other engine".to_owned(), trouble);
    }
    if let Some(polls) = &api.health.polls {
        let polls = polls.load(Ordering::Relaxed);
        let found = if polls { "ok" } else { "Temporal cannot be reached: nothing is picked up here" };
        checks.insert("worker".to_owned(), found.to_owned());
    }
    let secrets = secrets(&api).await;
    // Whoever only passes work on needs no key.
    let opens = secrets.is_ok() || !api.health.performs;
    checks.insert("secrets".to_owned(), secrets.err().unwrap_or_else(|| "ok".to_owned()));
    let announced = api.health.announced.load(Ordering::Relaxed);
    if !announced {
        checks.insert(
            "startup".to_owned(),
            "commands cannot find this server yet: its profile is not written".to_owned(),
        );
    }
    let ready = database && alive && opens && announced && !api.stop.is_cancelled();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, checks })).into_response()
}

/// Can this process open what is sealed? In a process that cannot, calls that take a secret wait, so it is not ready.
async fn secrets(api: &Api) -> Result<(), String> {
    let looked = tokio::time::timeout(Duration::from_secs(2), crate::access::secrets::trouble(&api.vault)).await;
    match looked {
        Ok(Ok(Some(trouble))) => Err(trouble),
        Ok(Ok(None)) => Ok(()),
        Ok(Err(error)) if !error.is_unavailable() => {
            tracing::error!(error = &error as &dyn std::error::Error, "Could not check the keys of secrets");
            Err("the keys of stored secrets could not be checked: the log says why".to_owned())
        }
        // A database that does not answer is told of by its own check.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// An engine that takes nothing keeps nobody from being accepted, so it is told of and does not
/// make this process unready: otherwise an outage of the engine would be one of the API.
fn engine(api: &Api) -> String {
    match api.engine_state() {
        EngineState::Off => "off: items wait (workflow.engine.enabled = false)".to_owned(),
        EngineState::Full => "full".to_owned(),
        EngineState::Unavailable { since, error } => format!("unavailable since {since}: {error}"),
        EngineState::NoDispatcher { error } => error,
        EngineState::Takes if api.engine.local.is_none() => api
            .engine
            .findings
            .trouble()
            .map_or_else(|| "elsewhere".to_owned(), |trouble| format!("elsewhere: {trouble}")),
        EngineState::Takes => "ok".to_owned(),
    }
}

/// Who dispatches, of processes of which one does at a time.
async fn dispatch(api: &Api) -> String {
    match api.dispatch_state().await {
        EngineState::NoDispatcher { error } => error,
        _ => "ok".to_owned(),
    }
}

/// Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    pool("api", &api.store);
    pool("work", &api.work);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], recorder().render()).into_response()
}
