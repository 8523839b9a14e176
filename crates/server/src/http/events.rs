//! Domain events: appended once, listed, and what became of handling them.
//!
//! Invariants
//! - An append that is answered is durable, with the jobs of its bound events; repeated, it is answered the same.
//!
//! Not here: what an event starts (`bindings`), its job (`http::projection`).

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json as Reply};
use kernel::access::Scope;
use kernel::event::id_by_key;
use kernel::execution::generation;
use kernel::ids::WorkspaceId;
use kernel::job::FACTS;
use serde_json::{Map, Value, json};
use store::event::{Stored, Which};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::{Api, Code, Problem, page, starts};
use crate::wire::{AppendEvents, AppendedEvent, AppendedEvents, DomainEvent, NewEvent, Page};

/// The most events of one request.
const MOST: usize = 1_000;
/// The longest type of an event or a stream.
const LONGEST_TYPE: usize = 200;

list_params! {
    pub(crate) struct List {
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        /// Exactly this type.
        #[serde(rename = "type")]
        kind: Option<String>,
        stream_id: Option<Uuid>,
        stream_type: Option<String>,
        /// true: only those whose handling failed.
        failed: Option<bool>,
    }
}

/// Appends up to a thousand events in order, all or none.
///
/// The same id, or the same idempotency key, with the same content is appended once. A stream that is not at
/// `expectedVersion` is 409.
#[utoipa::path(post, path = "/events", tag = "events", request_body = AppendEvents,
    params(("Idempotency-Key" = Option<String>, Header,
    description = "Events without an id have one that follows from it.", min_length = 1, max_length = 200)),
    responses((status = 200, body = AppendedEvents)))]
pub(crate) async fn append(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<AppendEvents>,
) -> Result<Reply<AppendedEvents>, Problem> {
    if body.events.is_empty() || body.events.len() > MOST {
        return Err(Problem::new(Code::ValidationFailed, format!("events: 1 to {MOST} events")));
    }
    let workspace = caller.sees(body.workspace_id)?;
    let (key, trace) = (starts::key(&headers)?, starts::trace(&headers).map(|trace| trace.to_string()));
    let mut events = Vec::new();
    for (place, event) in body.events.into_iter().enumerate() {
        let made = || key.map_or_else(store::new_id, |key| id_by_key(workspace.map(|id| id.0), key, place));
        let derived = event.id.is_none() && key.is_some();
        let id = event.id.unwrap_or_else(made);
        let event = read(event, id, place, workspace, &caller, trace.as_deref())?;
        events.push(store::event::NewEvent { derived, ..event });
    }
    let keyed = key.is_some();
    let appended = api.store.append(&events).await.map_err(|error| match error {
        store::Error::Conflict(why) if keyed && why.ends_with("other content") => {
            Problem::new(Code::IdempotencyConflict, why)
        }
        other => other.into(),
    })?;
    api.wakes.jobs.notify_one();
    let wire = |appended: store::event::Appended| AppendedEvent {
        id: appended.id,
        sequence: appended.sequence,
        stream_version: appended.version,
        created_at: appended.created_at,
        repeated: !appended.added,
        bound: appended.bound,
    };
    Ok(Reply(AppendedEvents { events: appended.into_iter().map(wire).collect() }))
}

fn read(
    event: NewEvent,
    id: Uuid,
    place: usize,
    workspace: Option<WorkspaceId>,
    caller: &Caller,
    trace: Option<&str>,
) -> Result<store::event::NewEvent, Problem> {
    let wrong = |field: &str, why: &str| Problem::new(Code::ValidationFailed, format!("events/{place}/{field}: {why}"));
    let is_name = |text: &str| !text.is_empty() && text.len() <= LONGEST_TYPE && !text.chars().any(char::is_control);
    for (field, text) in [("type", &event.kind), ("streamType", &event.stream_type)] {
        if !is_name(text) {
            return Err(wrong(field, "one line of 1 to 200 bytes"));
        }
    }
    if event.stream_type == FACTS {
        return Err(wrong("streamType", "this is the queue's own: choose another"));
    }
    if event.expected_version.is_some_and(|version| version < 0) {
        return Err(wrong("expectedVersion", "0 or more"));
    }
    let mut metadata = event.metadata.unwrap_or_default();
    // Only executions have generations; an event from outside is of none.
    metadata.remove(generation::IN_METADATA);
    metadata.entry("actor").or_insert_with(|| json!(caller.actor));
    if let Some(trace) = trace {
        metadata.entry("traceparent").or_insert_with(|| json!(trace));
    }
    Ok(store::event::NewEvent {
        id,
        derived: false,
        workspace,
        stream_id: event.stream_id,
        stream_type: event.stream_type,
        expected: event.expected_version,
        event_type: event.kind,
        data: event.data.unwrap_or_else(|| Value::Object(Map::new())),
        metadata: Value::Object(metadata),
    })
}

/// Events, the newest first; a root key sees all workspaces'. The steps of jobs are among them.
#[utoipa::path(get, path = "/events", tag = "events", params(List),
    responses((status = 200, body = Page<DomainEvent>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<DomainEvent>>, Problem> {
    let (limit, before) = params.page(page::List::Events, |bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)))?;
    let which = Which {
        workspace: caller.sees(params.workspace_id)?,
        event_type: params.kind.as_deref(),
        stream_id: params.stream_id,
        stream_type: params.stream_type.as_deref(),
        failed: params.failed.unwrap_or_default(),
        before,
    };
    let found = api.store.events(&which, limit + 1).await?;
    let cursor = |row: &Stored| page::write(page::List::Events, &row.sequence.to_be_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// One event.
#[utoipa::path(get, path = "/events/{id}", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 200, body = DomainEvent)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<DomainEvent>, Problem> {
    Ok(Reply(wire(api.store.event(id, caller.workspace).await.map_err(unknown)?)))
}

/// Handles an event again whose handling failed.
#[utoipa::path(post, path = "/events/{id}/retry", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 200, body = DomainEvent,
    description = "With its processingError, if it failed again. Its data and metadata are null unless the key has the \
        scope read.")))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<DomainEvent>, Problem> {
    if api.store.retry_event(id, caller.workspace, &caller.actor).await.map_err(unknown)? {
        api.wakes.jobs.notify_one();
    }
    let event = wire(api.store.event(id, caller.workspace).await.map_err(unknown)?);
    if caller.scopes.allow(Scope::Read) {
        return Ok(Reply(event));
    }
    Ok(Reply(DomainEvent { data: Value::Null, metadata: Value::Null, ..event }))
}

/// Lets go of an event whose handling failed: it stays, and makes no job.
#[utoipa::path(post, path = "/events/{id}/dismiss", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn dismiss(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.dismiss_event(id, caller.workspace, &caller.actor).await.map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT)
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("event"),
        other => other.into(),
    }
}

fn wire(stored: Stored) -> DomainEvent {
    let (processing_error, processing_failed_at) = stored.trouble.unzip();
    let event = stored.event;
    DomainEvent {
        id: event.id,
        sequence: stored.sequence,
        workspace_id: stored.workspace,
        kind: event.kind,
        stream_id: event.stream_id,
        stream_type: event.stream_type,
        stream_version: event.stream_version,
        data: event.data,
        metadata: event.metadata,
        created_at: event.created_at,
        bound: stored.bound,
        processing_error,
        processing_failed_at,
    }
}
