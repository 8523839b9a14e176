//! HTTP: the API under `/api/v1`, health, readiness and metrics.
//!
//! Invariants
//! - The router denies by default: everything under `/api` passes `auth` first, and bodies are read after that.
//! - Every answer that is no success is an RFC 9457 problem with a stable code, the framework's own
//!   included; but below `/rest/v1`, where a client of PostgREST expects PostgREST's.
//!
//! Not here: what crosses the wire (`crate::wire`), any decision.

#![expect(unused_qualifications, reason = "utoipa writes parameter types out in full")]

mod absent;
mod access;
mod activity;
mod answers;
mod apart;
mod auth;
mod bindings;
mod body;
mod bulk;
mod control;
mod cors;
mod definitions;
mod events;
mod executions;
mod expressions;
mod failures;
mod graph;
pub(crate) mod headers;
pub(crate) mod health;
mod hooks;
mod keys;
mod letters;
mod logs;
mod measure;
mod openapi;
mod outbound;
mod pace;
mod page;
mod problem;
mod projection;
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
mod webhooks;
mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use engine::Engine;
use engine::pulse::Pulse;
use engine::vault::Vault;
use engine::versions::Versions;
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
use crate::definition::inputs::{InputRules, Turn};
use crate::execution::waiters::Waiters;
use crate::feed::Feed;
use crate::process::hints::Hints;
use crate::process::protocol::Rules;
use crate::process::wakes::Wakes;
use crate::queue::breaker::Breaker;
use crate::queue::strays::Foreign;
use crate::run::notify::Calls;
use crate::run::reconcile::Findings;
use crate::wait::turns::Places;

pub use problem::{Code, Problem};

/// What the handlers share.
pub(crate) type Api = Arc<ApiParts>;

pub(crate) struct ApiParts {
    pub(crate) store: Store,
    pub(crate) vault: Vault,
    /// The store of the background work, to tell how its pool is used.
    pub(crate) work: Store,
    pub(crate) settings: Arc<Settings>,
    pub(crate) keys: auth::Keys,
    pub(crate) failures: failures::Failures,
    pub(crate) pace: pace::Pace,
    pub(crate) hints: Hints,
    pub(crate) waiters: Waiters,
    /// How many streams and sockets each workspace has open.
    pub(crate) streams: Waiters,
    pub(crate) feed: Feed,
    /// What is waited for when the process stops.
    pub(crate) tasks: TaskTracker,
    /// What starts must bring, by version.
    pub(crate) input_rules: InputRules,
    pub(crate) engine: EngineParts,
    /// Wakes the background loops.
    pub(crate) wakes: Wakes,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) health: health::Parts,
    /// How many requests hooks took lately.
    pub(crate) rates: hooks::Rates,
    /// Tells runs that something came for them.
    pub(crate) calls: Calls,
    /// The workspaces that were served last, of those that take turns.
    pub(crate) places: Places,
    /// The graphs that answers were judged by.
    pub(crate) versions: Versions,
    pub(crate) stop: CancellationToken,
}

/// What the handlers know of the engine.
pub(crate) struct EngineParts {
    /// In a process that hands items to it.
    pub(crate) local: Option<Arc<dyn Engine>>,
    /// The engine, in any process that can reach it: cancels are sent to it.
    pub(crate) told: Option<Arc<dyn Engine>>,
    pub(crate) breaker: Breaker,
    pub(crate) findings: Findings,
    pub(crate) foreign: Foreign,
    pub(crate) rules: Rules,
    /// How many questions about single runs an engine elsewhere is asked at once.
    pub(crate) asked: Semaphore,
}

impl ApiParts {
    /// The longest a request may take.
    pub(crate) fn timeout(&self) -> Duration {
        ms(self.settings.http.request_timeout_ms)
    }

    /// What the engine of this installation can do, as far as this process knows.
    pub(crate) fn engine_state(&self) -> EngineState {
        match &self.engine.local {
            _ if !self.settings.workflow.engine.enabled => EngineState::Off,
            _ if let Some(trouble) = self.engine.breaker.trouble() => trouble,
            Some(engine) if engine.capacity() == 0 => EngineState::Full,
            _ => EngineState::Takes,
        }
    }
}

/// The rules for inputs of starts that come over HTTP; none is known yet.
pub(crate) fn input_rules() -> InputRules {
    InputRules::new(Turn::Workspace { within: apart::WITHIN })
}

/// What hooks of this process took lately: nothing yet.
pub(crate) fn rates() -> hooks::Rates {
    hooks::Rates::default()
}

/// The failed authentication of this process: none yet.
pub(crate) fn failures(settings: &Settings) -> failures::Failures {
    failures::Failures::new(settings.auth.max_failures_per_address)
}

/// What workspaces read from this process lately: nothing yet.
pub(crate) fn pace() -> pace::Pace {
    pace::Pace::default()
}

/// The keys of this process; `root` are the configured ones beside those that are stored.
pub(crate) fn keys(root: RootKeys) -> auth::Keys {
    auth::Keys::new(root)
}

/// What needs no key; a hook's or answer's address holds a secret. A handler says its method, path and types itself:
/// what is served is what `openapi` describes.
fn open() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(openapi::get))
        .routes(routes!(hooks::receive::receive))
        .routes(routes!(answers::receive::describe, answers::receive::receive))
        .routes(routes!(health::live))
}

/// What tells how this process is doing, beside that it is alive.
fn health() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(health::ready)).routes(routes!(health::metrics))
}

/// How much of its health a process tells at the API's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// That it is alive; the rest is at `http.admin_listen`.
    Alive,
    All,
}

/// What needs one, below `/api/v1`.
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
        .routes(routes!(definitions::whole_version))
        .routes(routes!(definitions::diff))
        .routes(routes!(definitions::publish))
        .routes(routes!(reference::kinds))
        .routes(routes!(reference::schema))
        .routes(routes!(graph::of_definition))
        .routes(routes!(executions::list::list))
        .routes(routes!(executions::list::of_definition))
        .routes(routes!(executions::list::of_workspace))
        .routes(routes!(executions::start))
        .routes(routes!(bulk::start))
        .routes(routes!(executions::get))
        .routes(routes!(executions::nodes))
        .routes(routes!(executions::tree::children))
        .routes(routes!(executions::summary))
        .routes(routes!(logs::logs))
        .routes(routes!(executions::tree::tree))
        .routes(routes!(expressions::evaluate))
        .routes(routes!(graph::of_execution))
        .routes(routes!(executions::cancel))
        .routes(routes!(control::terminate))
        .routes(routes!(rerun::rerun))
        .routes(routes!(letters::list))
        .routes(routes!(queue::get))
        .routes(routes!(letters::dismiss))
        .routes(routes!(events::append, events::list))
        .routes(routes!(events::get))
        .routes(routes!(events::retry))
        .routes(routes!(events::dismiss))
        .routes(routes!(bindings::create, bindings::list))
        .routes(routes!(bindings::get, bindings::change, bindings::delete))
        .merge(routes::webhooks())
        .merge(routes::jobs())
        .merge(routes::times())
        .merge(routes::asks())
}

/// What never ends, below `/api/v1` as well.
fn streams() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(stream::of_executions))
        .routes(routes!(stream::of_execution))
        .routes(routes!(stream::of_queue))
        .routes(routes!(stream::of_projection))
}

/// The socket of the Supabase client, which shows its key in its own way. This protocol and the next are not ours to
/// describe.
fn socket() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(realtime::connect))
}

/// The published table as that client asks and changes it, below `/rest/v1`.
fn table(api: &Api) -> Router<Api> {
    let (table, _) = OpenApiRouter::new().routes(routes!(rest::ask, rest::change)).split_for_parts();
    table
        .fallback(rest::unknown)
        .method_not_allowed_fallback(rest::other_method)
        .layer(from_fn_with_state(Arc::clone(api), rest::require))
}

/// The whole router.
pub(crate) fn router(api: Api, told: Health) -> Router {
    let (v1, _) = v1().split_for_parts();
    let v1 = v1
        .merge(streams().split_for_parts().0)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&api), auth::require));
    let open = if told == Health::All { open().merge(health()) } else { open() };
    let (open, _) = open.split_for_parts();
    let all = open.nest("/api/v1", v1).nest("/rest/v1", table(&api)).merge(socket().split_for_parts().0);
    let all = all.layer(from_fn_with_state(Arc::clone(&api), cors::allow));
    finished(all, api)
}

/// How this process is doing, and nothing else.
pub(crate) fn signals(api: Api) -> Router {
    let (health, _) = health().routes(routes!(health::live)).split_for_parts();
    finished(health, api)
}

fn finished(router: Router<Api>, api: Api) -> Router {
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            tracing::error!("A request handler panicked");
            Problem::of(Code::Internal).into_response()
        }))
        .layer(from_fn_with_state(Arc::clone(&api), limit_time))
        .layer(from_fn(measure::measure))
        .layer(map_response(headers::guard))
        .with_state(api)
}

async fn not_found() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this address")
}

async fn method_not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this address does not take that method")
}

/// No request is waited for longer than the setting says.
async fn limit_time(State(api): State<Api>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(api.timeout(), next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let problem = Problem::new(Code::Unavailable, "there was no answer in time; try again shortly");
            Problem { retry_after_s: Some(2), ..problem }.into_response()
        }
    }
}
