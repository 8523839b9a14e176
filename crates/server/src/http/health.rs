//! Liveness, readiness and metrics of this process.

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
use crate::signals::recorder::{global_recorder, publish_pool_metrics};
use crate::wire::Readiness;

/// What the readiness check needs to know in addition to the state of the API.
#[derive(Debug)]
pub(crate) struct Parts {
    /// This process runs nodes.
    pub(crate) runs_nodes: bool,
    /// In a process with a worker of an external engine: whether that worker polls.
    pub(crate) polls: Option<Arc<AtomicBool>>,
    /// Whether this process is announced: `dev` first writes the profile with which commands find it.
    pub(crate) announced: Arc<AtomicBool>,
}

/// Responds if the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Responds with 200 if the process can do its work, else with 503. Lists the checks.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Readiness),
        (status = 503, description = "The process is not ready: `checks` says why.", body = Readiness)))]
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let mut checks = BTreeMap::new();
    let ping = tokio::time::timeout(Duration::from_secs(2), api.store.ping()).await;
    let database = matches!(ping, Ok(Ok(())));
    checks.insert("database".to_owned(), if database { "ok" } else { "not reachable" }.to_owned());
    let alive = api.liveness.is_live();
    checks.insert("heartbeat".to_owned(), if alive { "ok" } else { "no recent heartbeat" }.to_owned());
    checks.insert("engine".to_owned(), engine(&api));
    if api.settings.dispatch.exclusive && database {
        checks.insert("dispatch".to_owned(), dispatch(&api).await);
    }
    if api.engine.local.as_ref().is_some_and(|engine| engine.location().is_some()) {
        let found = api.engine.findings.problem().unwrap_or_else(|| "ok".to_owned());
        checks.insert("reconciler".to_owned(), found);
    }
    // This process claims no items as long as it has this problem, but it still answers requests, and other processes
    // claim. So it stays ready.
    if let Some(trouble) = api.engine.claim_protocol.problem() {
        checks.insert("claims".to_owned(), trouble);
    }
    if let Some(trouble) = api.engine.other_engine_runs.problem() {
        checks.insert("other engine".to_owned(), trouble);
    }
    if let Some(polls) = &api.health.polls {
        let polls = polls.load(Ordering::Relaxed);
        let found = if polls { "ok" } else { "Temporal is unreachable: this worker receives no work" };
        checks.insert("worker".to_owned(), found.to_owned());
    }
    let secrets = secrets(&api).await;
    // Only nodes use secrets, so a process that runs no nodes needs no encryption key.
    let opens = secrets.is_ok() || !api.health.runs_nodes;
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

/// Checks whether this process can decrypt the stored secrets. If not, nodes that use a secret wait, so a process that
/// runs nodes is not ready.
async fn secrets(api: &Api) -> Result<(), String> {
    let looked =
        tokio::time::timeout(Duration::from_secs(2), crate::access::secrets::describe_missing_keys(&api.vault)).await;
    match looked {
        Ok(Ok(Some(trouble))) => Err(trouble),
        Ok(Ok(None)) => Ok(()),
        Ok(Err(error)) if !error.is_unavailable() => {
            tracing::error!(error = &error as &dyn std::error::Error, "Keys of stored secrets could not be checked");
            Err("the keys of stored secrets could not be checked: see the log for the cause".to_owned())
        }
        // The check `database` reports an unavailable database.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// The state of the engine, for people. An unavailable engine does not make this process unready: it still accepts
/// start requests, and an outage of the engine must not become an outage of the API.
fn engine(api: &Api) -> String {
    match api.engine_state() {
        EngineState::Off => "off: items wait (workflow.engine.enabled = false)".to_owned(),
        EngineState::Full => "full".to_owned(),
        EngineState::Unavailable { since, error } => format!("unavailable since {since}: {error}"),
        EngineState::NoDispatcher { error } => error,
        EngineState::Available if api.engine.local.is_none() => api
            .engine
            .findings
            .problem()
            .map_or_else(|| "elsewhere".to_owned(), |trouble| format!("elsewhere: {trouble}")),
        EngineState::Available => "ok".to_owned(),
    }
}

/// The result of the check `dispatch`: which process dispatches, if only one process dispatches at a time.
async fn dispatch(api: &Api) -> String {
    match api.dispatch_state().await {
        EngineState::NoDispatcher { error } => error,
        _ => "ok".to_owned(),
    }
}

/// The metrics of this process, in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    publish_pool_metrics("api", &api.store);
    publish_pool_metrics("work", &api.work);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], global_recorder().render()).into_response()
}
