//! HTTP: the API under `/api/v1`, health, readiness and metrics.
//!
//! Invariants
//! - The router denies by default: every request under `/api` passes `auth` before its body is read.
//! - Every error is an RFC 9457 problem with a stable code, including errors of the framework. Below `/rest/v1` errors
//!   have the form of PostgREST instead, because the Supabase client expects that form.
//!
//! Not here: the types of bodies (`crate::wire`), decisions about queue items and runs (`kernel`).

#![expect(unused_qualifications, reason = "utoipa writes parameter types out in full")]

mod access;
mod activity;
mod auth;
mod bindings;
mod body;
mod bulk;
mod control;
mod cors;
mod dead_letters;
mod definition_lookup;
mod definitions;
mod events;
mod executions;
mod expressions;
mod failures;
mod graph;
pub(crate) mod headers;
pub(crate) mod health;
mod jobs;
mod keys;
mod logs;
mod measure;
mod offload;
mod openapi;
mod outbound;
mod pace;
mod page;
mod problem;
mod queue;
mod realtime;
mod reference;
mod rerun;
mod rest;
mod routes;
mod schedules;
mod secrets;
mod starts;
mod stream;
mod strict;
mod tasks;
mod triggers;
mod waits;
mod webhooks;
mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use engine::Engine;
use engine::liveness::Liveness;
use engine::vault::Vault;
use engine::versions::VersionCache;
use kernel::queue::explain::EngineState;
use store::Store;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::root_keys::RootKeys;
use crate::config::{Settings, ms};
use crate::definition::inputs::{ComputeShare, InputRules};
use crate::execution::waiters::Waiters;
use crate::feed::Feed;
use crate::process::notifications::Notifier;
use crate::process::protocol::ClaimProtocol;
use crate::process::wakeups::Wakeups;
use crate::queue::breaker::Breaker;
use crate::queue::strays::OtherEngineRuns;
use crate::run::notify::RunNotifier;
use crate::run::reconcile::EngineFindings;
use crate::wait::last_served::LastServed;

pub use problem::{Code, Problem};

/// The state that all handlers share.
pub(crate) type Api = Arc<ApiParts>;

pub(crate) struct ApiParts {
    pub(crate) store: Store,
    pub(crate) vault: Vault,
    /// The store that the background loops use. Handlers read only the metrics of its connection pool.
    pub(crate) work: Store,
    pub(crate) settings: Arc<Settings>,
    pub(crate) keys: auth::Keys,
    pub(crate) failures: failures::Failures,
    pub(crate) pace: pace::Pace,
    pub(crate) notifier: Notifier,
    pub(crate) waiters: Waiters,
    /// The open streams and sockets of each workspace.
    pub(crate) streams: Waiters,
    pub(crate) feed: Feed,
    /// The asynchronous tasks whose end a stopping process waits for.
    pub(crate) tasks: TaskTracker,
    /// The rules that a version declares for its input, cached by version.
    pub(crate) input_rules: InputRules,
    /// Stores starts of different requests together.
    pub(crate) start_gather: starts::StartGather,
    pub(crate) engine: EngineParts,
    /// Wakes the background loops.
    pub(crate) wakeups: Wakeups,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) health: health::Parts,
    /// The rate limits of triggers and answer links, with their recent requests.
    pub(crate) rates: triggers::RateLimits,
    /// Notifies a run when its wait got an answer or its task ended.
    pub(crate) run_notifier: RunNotifier,
    /// The workspace that was served last, for claims for which workspaces take turns.
    pub(crate) last_served: LastServed,
    /// The versions against which answers are checked.
    pub(crate) versions: VersionCache,
    pub(crate) stop: CancellationToken,
}

/// What the handlers know about the engine.
pub(crate) struct EngineParts {
    /// The engine to which this process dispatches items. None: this process does not dispatch.
    pub(crate) local: Option<Arc<dyn Engine>>,
    /// The engine to which this process sends cancellations. None: this process cannot reach the engine.
    pub(crate) control: Option<Arc<dyn Engine>>,
    pub(crate) breaker: Breaker,
    pub(crate) findings: EngineFindings,
    pub(crate) other_engine_runs: OtherEngineRuns,
    pub(crate) claim_protocol: ClaimProtocol,
    /// Limits how many runs an external engine is asked to describe at once.
    pub(crate) describe_permits: Semaphore,
}

impl ApiParts {
    /// The longest time that a request may take.
    pub(crate) fn timeout(&self) -> Duration {
        ms(self.settings.http.request_timeout_ms)
    }

    /// The state of the engine, as far as this process knows.
    pub(crate) fn engine_state(&self) -> EngineState {
        match &self.engine.local {
            _ if !self.settings.workflow.engine.enabled => EngineState::Off,
            _ if let Some(unavailable) = self.engine.breaker.unavailability() => unavailable,
            Some(engine) if engine.capacity() == 0 => EngineState::Full,
            _ => EngineState::Available,
        }
    }
}

/// Creates the cache of the rules for inputs, empty.
pub(crate) fn input_rules() -> InputRules {
    InputRules::new(ComputeShare::Workspace { within: offload::TIMEOUT })
}

/// Starts the tasks that store starts of different requests together.
pub(crate) fn start_gather(store: &Store, notifier: &Notifier, settings: &Settings) -> starts::StartGather {
    starts::StartGather::spawn(store, notifier, settings.queue.max_backlog)
}

/// Creates the rate limits of triggers and answer links.
pub(crate) fn rates() -> triggers::RateLimits {
    triggers::RateLimits::default()
}

/// Creates the counts of failed authentications, empty.
pub(crate) fn failures(settings: &Settings) -> failures::Failures {
    failures::Failures::new(settings.auth.max_failures_per_address)
}

/// Creates the limiter of bytes that workspaces read, empty.
pub(crate) fn pace() -> pace::Pace {
    pace::Pace::default()
}

/// Creates the keys of this process: the configured root keys, and an empty cache of stored keys.
pub(crate) fn keys(root: RootKeys) -> auth::Keys {
    auth::Keys::new(root)
}

/// Routes that need no key. The paths of triggers and answer links contain a secret token. Each handler declares its
/// method, path and types, so `openapi` describes every route.
fn public() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(openapi::get))
        .routes(routes!(triggers::receive::receive))
        .routes(routes!(waits::by_token::describe, waits::by_token::receive))
        .routes(routes!(health::live))
}

/// Readiness and metrics.
fn health() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(health::ready)).routes(routes!(health::metrics))
}

/// Which health routes are served at the address of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthRoutes {
    /// Liveness only. Readiness and metrics are at `http.admin_listen`.
    Liveness,
    All,
}

/// Routes below `/api/v1`, which need a key.
fn v1() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(workspaces::create, workspaces::list))
        .routes(routes!(workspaces::change, workspaces::get, control::delete_workspace))
        .routes(routes!(workspaces::capacity))
        .routes(routes!(control::pause_workspace))
        .routes(routes!(control::resume_workspace))
        .routes(routes!(outbound::get, outbound::set))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::delete))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(activity::list))
        .routes(routes!(definitions::create, definitions::list))
        .routes(routes!(definitions::validate))
        .routes(routes!(definitions::apply))
        .routes(routes!(definitions::get, control::delete_definition))
        .routes(routes!(control::pause_definition))
        .routes(routes!(control::resume_definition))
        .routes(routes!(definitions::add_version, definitions::versions))
        .routes(routes!(definitions::get_version))
        .routes(routes!(definitions::diff))
        .routes(routes!(definitions::publish))
        .routes(routes!(reference::kinds))
        .routes(routes!(reference::schema))
        .routes(routes!(graph::definition_graph))
        .routes(routes!(executions::list::list))
        .routes(routes!(executions::list::list_by_definition))
        .routes(routes!(executions::list::list_by_workspace))
        .routes(routes!(executions::start))
        .routes(routes!(bulk::start))
        .routes(routes!(executions::get))
        .routes(routes!(executions::nodes))
        .routes(routes!(executions::tree::children))
        .routes(routes!(executions::summary))
        .routes(routes!(logs::logs))
        .routes(routes!(executions::tree::tree))
        .routes(routes!(expressions::evaluate))
        .routes(routes!(graph::execution_graph))
        .routes(routes!(executions::cancel))
        .routes(routes!(control::terminate))
        .routes(routes!(rerun::rerun))
        .routes(routes!(dead_letters::list))
        .routes(routes!(queue::get))
        .routes(routes!(dead_letters::dismiss))
        .routes(routes!(events::append, events::list))
        .routes(routes!(events::get))
        .routes(routes!(events::retry))
        .routes(routes!(events::dismiss))
        .routes(routes!(bindings::create, bindings::list))
        .routes(routes!(bindings::get, bindings::change, bindings::delete))
        .merge(routes::webhooks())
        .merge(routes::jobs())
        .merge(routes::schedules())
        .merge(routes::waits())
}

/// Streams below `/api/v1`.
fn streams() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(stream::stream_executions))
        .routes(routes!(stream::stream_execution))
        .routes(routes!(stream::stream_queue))
        .routes(routes!(stream::stream_jobs))
}

/// The WebSocket for the Supabase client, which sends its key in the query string. The OpenAPI document contains
/// neither this route nor those of `table`: their protocols are Supabase's.
fn socket() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(realtime::connect))
}

/// The published table for the Supabase client, below `/rest/v1`.
fn table(api: &Api) -> Router<Api> {
    let (table, _) = OpenApiRouter::new().routes(routes!(rest::select, rest::change)).split_for_parts();
    table
        .fallback(rest::unknown)
        .method_not_allowed_fallback(rest::other_method)
        .layer(from_fn_with_state(Arc::clone(api), rest::authenticate))
}

/// The whole router.
pub(crate) fn router(api: Api, health_routes: HealthRoutes) -> Router {
    let (v1, _) = v1().split_for_parts();
    let v1 = v1
        .merge(streams().split_for_parts().0)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&api), auth::authenticate));
    let public = if health_routes == HealthRoutes::All { public().merge(health()) } else { public() };
    let (public, _) = public.split_for_parts();
    let all = public.nest("/api/v1", v1).nest("/rest/v1", table(&api)).merge(socket().split_for_parts().0);
    let all = all.layer(from_fn_with_state(Arc::clone(&api), cors::allow));
    with_layers(all, api)
}

/// The router of the admin address: health and metrics only.
pub(crate) fn signals(api: Api) -> Router {
    let (health, _) = health().routes(routes!(health::live)).split_for_parts();
    with_layers(health, api)
}

fn with_layers(router: Router<Api>, api: Api) -> Router {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            tracing::error!("Request failed: its handler panicked");
            Problem::of(Code::Internal).into_response()
        }))
        .layer(from_fn_with_state(Arc::clone(&api), limit_time))
        .layer(from_fn(measure::measure))
        .layer(map_response(headers::add_security_headers))
        .with_state(api)
}

async fn not_found() -> Problem {
    Problem::new(Code::NotFound, "this address does not exist: check the path and the method")
}

async fn method_not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this address does not accept this method")
}

/// Ends a request that takes longer than the setting `http.request_timeout_ms` allows.
async fn limit_time(State(api): State<Api>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(api.timeout(), next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let problem = Problem::new(Code::Unavailable, "the request took too long: try again in a few seconds");
            Problem { retry_after_s: Some(2), ..problem }.into_response()
        }
    }
}
