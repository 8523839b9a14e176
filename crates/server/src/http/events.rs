//! Domain events: appends and lists events, and retries or dismisses events whose processing failed.
//!
//! Invariants
//! - When the response to an append is sent, its events and their jobs are durable. A repeated append gets the same
//!   response and appends nothing.
//!
//! Not here: which workflow an event starts (`bindings`), its job (`http::jobs`).

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json as Reply};
use kernel::access::Scope;
use kernel::event::id_by_key;
use kernel::execution::generation;
use kernel::ids::WorkspaceId;
use kernel::job::FACTS;
use serde_json::{Map, Value, json};
use store::event::{EventFilter, StoredEvent};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::no_such;
use super::{Api, Code, Problem, page, starts};
use crate::wire::{AppendEvents, AppendedEvent, AppendedEvents, DomainEvent, NewEvent, Page};

/// The largest number of events of one request.
const MOST: usize = 1_000;
/// The longest type of an event or a stream, in bytes.
const LONGEST_TYPE: usize = 200;

list_params! {
    pub(crate) struct ListEventsParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only events of this type. Wildcards are not supported.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// List only events of this stream.
        stream_id: Option<Uuid>,
        /// List only events of this type of stream.
        stream_type: Option<String>,
        /// True: list only events whose processing failed.
        failed: Option<bool>,
    }
}

/// Appends up to 1,000 events in order, all or none.
///
/// An event with the same id (or the same idempotency key) and the same content is appended once. If a stream is not at
/// its `expectedVersion`, the response is 409.
#[utoipa::path(post, path = "/events", tag = "events", request_body = AppendEvents,
    params(("Idempotency-Key" = Option<String>, Header,
    description = "Events without an id get one that is derived from this key.", min_length = 1, max_length = 200)),
    responses((status = 200, body = AppendedEvents)))]
pub(crate) async fn append(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<AppendEvents>,
) -> Result<Reply<AppendedEvents>, Problem> {
    if body.events.is_empty() || body.events.len() > MOST {
        return Err(Problem::new(Code::ValidationFailed, format!("events: must have 1 to {MOST} events")));
    }
    let workspace = caller.listed_workspace(body.workspace_id)?;
    let (key, trace) =
        (starts::read_idempotency_key(&headers)?, starts::trace_parent(&headers).map(|trace| trace.to_string()));
    let mut events = Vec::new();
    for (index, event) in body.events.into_iter().enumerate() {
        let new_id = || key.map_or_else(store::new_id, |key| id_by_key(workspace.map(|id| id.0), key, index));
        let derived = event.id.is_none() && key.is_some();
        let id = event.id.unwrap_or_else(new_id);
        let event = read(event, id, index, workspace, &caller, trace.as_deref())?;
        events.push(store::event::NewEvent { derived, ..event });
    }
    let keyed = key.is_some();
    let appended = api.store.append(&events).await.map_err(|error| match error {
        store::Error::Conflict(why) if keyed && why.ends_with("other content") => {
            Problem::new(Code::IdempotencyConflict, why)
        }
        other => other.into(),
    })?;
    api.wakeups.jobs.notify_one();
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
    index: usize,
    workspace: Option<WorkspaceId>,
    caller: &Caller,
    trace: Option<&str>,
) -> Result<store::event::NewEvent, Problem> {
    let wrong = |field: &str, why: &str| Problem::new(Code::ValidationFailed, format!("events/{index}/{field}: {why}"));
    let is_name = |text: &str| !text.is_empty() && text.len() <= LONGEST_TYPE && !text.chars().any(char::is_control);
    for (field, text) in [("type", &event.kind), ("streamType", &event.stream_type)] {
        if !is_name(text) {
            return Err(wrong(field, "must be one line of 1 to 200 bytes"));
        }
    }
    if event.stream_type == FACTS {
        return Err(wrong("streamType", "this type is reserved for events of the service; choose another"));
    }
    if event.expected_version.is_some_and(|version| version < 0) {
        return Err(wrong("expectedVersion", "must be 0 or greater"));
    }
    let mut metadata = event.metadata.unwrap_or_default();
    // Only an execution may set the generation of an event, which ends endless chains of executions. A caller of the
    // API may not.
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

/// Lists events, the newest first, including the events that jobs append. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/events", tag = "events", params(ListEventsParams),
    responses((status = 200, body = Page<DomainEvent>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListEventsParams>,
) -> Result<Reply<Page<DomainEvent>>, Problem> {
    let (limit, before) =
        params.page(page::ListKind::Events, |bytes| Some(i64::from_be_bytes(bytes.try_into().ok()?)))?;
    let which = EventFilter {
        workspace: caller.listed_workspace(params.workspace_id)?,
        event_type: params.kind.as_deref(),
        stream_id: params.stream_id,
        stream_type: params.stream_type.as_deref(),
        failed: params.failed.unwrap_or_default(),
        before,
    };
    let found = api.store.events(&which, limit + 1).await?;
    let cursor = |row: &StoredEvent| page::write(page::ListKind::Events, &row.sequence.to_be_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// Reads an event.
#[utoipa::path(get, path = "/events/{id}", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 200, body = DomainEvent)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<DomainEvent>, Problem> {
    Ok(Reply(wire(api.store.event(id, caller.workspace).await.map_err(no_such("event"))?)))
}

/// Retries an event whose processing failed.
#[utoipa::path(post, path = "/events/{id}/retry", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 200, body = DomainEvent,
    description = "The event, with its processingError if it failed again. Its data and metadata are null unless the \
        key has the scope read.")))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<DomainEvent>, Problem> {
    if api.store.retry_event(id, caller.workspace, &caller.actor).await.map_err(no_such("event"))? {
        api.wakeups.jobs.notify_one();
    }
    let event = wire(api.store.event(id, caller.workspace).await.map_err(no_such("event"))?);
    if caller.scopes.allows(Scope::Read) {
        return Ok(Reply(event));
    }
    Ok(Reply(DomainEvent { data: Value::Null, metadata: Value::Null, ..event }))
}

/// Dismisses an event whose processing failed. The event stays and creates no job.
#[utoipa::path(post, path = "/events/{id}/dismiss", tag = "events", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn dismiss(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.dismiss_event(id, caller.workspace, &caller.actor).await.map_err(no_such("event"))?;
    Ok(StatusCode::NO_CONTENT)
}

fn wire(stored: StoredEvent) -> DomainEvent {
    let (processing_error, processing_failed_at) = stored.failure.unzip();
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
