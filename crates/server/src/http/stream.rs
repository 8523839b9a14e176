//! Sends changes as server-sent events. A client that loses its connection can continue where the stream stopped.
//!
//! Invariants
//! - The id of an event is a position in the change log. A client that reconnects with it (`Last-Event-ID`) misses
//!   nothing and gets nothing twice, from any process. If the log no longer reaches back that far, the client gets a
//!   `reset` event and must read the current state.
//! - The heartbeats of a stream without changes advance its position, so that a reconnect does not read old entries.
//! - A key sees the changes of its workspace. Streams of a revoked or expired key end within seconds.
//!
//! Not here: the order of changes (`kernel::change::cursor`), the socket of the Supabase client (`realtime`).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use kernel::change::cursor::Position;
use kernel::change::{Change, Topic};
use kernel::ids::ExecutionId;
use kernel::queue;
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::access::key::Secret;
use store::feed::MissedQuery;
use tokio::time::Instant;

use super::auth::{self, Caller};
use super::body::Id;
use super::problem::no_such;
use super::{Api, Code, Problem};
use crate::execution::waiters::WaitPermit;
use crate::feed::{DeliveryOrder, Subscription};

/// How often the key is checked again.
const TICK: Duration = Duration::from_secs(1);
/// How long a stream may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many entries of the change log are read in one query for a client that reconnects.
const PAGE: i64 = 500;

/// The paths of the streams, below `/api/v1`.
pub(super) const PATHS: [&str; 4] =
    ["/jobs/events", "/workflow/executions/events", "/workflow/executions/{id}/events", "/workflow/queue/events"];

/// Example events for the OpenAPI document.
const EXECUTION: &str = "event: execution\nid: 1042:1048576\ndata: \
    {\"executionId\":\"019a8f00-0000-7000-8000-000000000005\",\
    \"workspaceId\":\"019a8f00-0000-7000-8000-000000000001\",\"status\":\"RUNNING\",\
    \"at\":\"2026-01-05T12:00:00Z\"}\n\n";
const QUEUE: &str = "event: queue\nid: 1042:1048576\ndata: {\"queueId\":\"019a8f00-0000-7000-8000-000000000005\",\
    \"executionId\":\"019a8f00-0000-7000-8000-000000000005\",\"workspaceId\":\"019a8f00-0000-7000-8000-000000000001\",\
    \"status\":\"DISPATCHED\",\"at\":\"2026-01-05T12:00:00Z\"}\n\n";
const JOB: &str = "event: job\nid: 1042:1048576\ndata: \
    {\"type\":\"INSERT\",\"id\":\"019a8f00-0000-7000-8000-000000000006\",\
    \"workspaceId\":null,\"at\":\"2026-01-05T12:00:00Z\",\"record\":{\"status\":\"pending\"}}\n\n";

/// Which changes a stream sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// One execution and its nodes.
    Execution,
    Executions,
    Queue,
    Jobs,
}

impl View {
    fn topics(self) -> &'static [Topic] {
        match self {
            View::Execution => &[Topic::Execution, Topic::Nodes],
            View::Executions | View::Queue => &[Topic::Execution],
            View::Jobs => &[Topic::Job],
        }
    }
}

/// Streams the status of one execution, and an event when its nodes change.
#[utoipa::path(get, path = "/workflow/executions/{id}/events", tag = "streams", operation_id = "of_execution",
    params(("id" = ExecutionId, Path), ("Last-Event-ID" = Option<String>, Header,
            description = "The id of the last event that was received. The stream begins with the events after it.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(EXECUTION))))]
pub(crate) async fn stream_execution(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    api.store.execution_status(id, caller.workspace).await.map_err(no_such("execution"))?;
    open(api, caller, View::Execution, Some(id), &headers).await
}

/// Streams the status of every execution that the key sees.
#[utoipa::path(get, path = "/workflow/executions/events", tag = "streams", operation_id = "of_executions",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The id of the last event that was received. The stream begins with the events after it.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(EXECUTION))))]
pub(crate) async fn stream_executions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Executions, None, &headers).await
}

/// Streams the status of every queue item that the key sees.
#[utoipa::path(get, path = "/workflow/queue/events", tag = "streams", operation_id = "of_queue",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The id of the last event that was received. The stream begins with the events after it.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(QUEUE))))]
pub(crate) async fn stream_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Queue, None, &headers).await
}

/// Streams every change of a job (a row of `workflow_queue_projection`).
#[utoipa::path(get, path = "/jobs/events", tag = "streams", operation_id = "of_jobs",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The id of the last event that was received. The stream begins with the events after it.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(JOB))))]
pub(crate) async fn stream_jobs(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Jobs, None, &headers).await
}

/// The error when a workspace has too many streams.
pub(super) fn too_many(most: usize) -> Problem {
    let detail = format!(
        "the workspace's limit of {most} open streams and sockets is reached in this process: close one, then \
             connect again"
    );
    Problem { retry_after_s: Some(5), ..Problem::new(Code::RateLimited, detail) }
}

async fn open(
    api: Api,
    caller: Caller,
    view: View,
    id: Option<ExecutionId>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let secret = auth::bearer(headers).ok_or_else(|| Problem::of(Code::Unauthenticated))?;
    let position = match headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse().ok())) {
        None => None,
        Some(Some(position)) => Some(position),
        Some(None) => {
            return Err(Problem::new(Code::Malformed, "Last-Event-ID: must be the id of an event of this stream"));
        }
    };
    let most = api.settings.http.max_streams_per_workspace;
    let permit = api.streams.try_permit(&caller.limit_name(), most).ok_or_else(|| too_many(most))?;
    let topics = view.topics();
    let (workspace, one) = (caller.workspace, id.map(|id| id.0));
    let wants = move |change: &Change| {
        topics.contains(&change.topic) && change.is_visible_to(workspace) && one.is_none_or(|id| id == change.id)
    };
    let subscription = api.feed.subscribe(DeliveryOrder::Settled, Box::new(wants)).await.map_err(|_unavailable| {
        let problem = Problem::new(Code::Unavailable, "the change feed is unavailable: try again in a few seconds");
        Problem { retry_after_s: Some(2), ..problem }
    })?;
    let below = subscription.from;
    let missed = position.map(|after| MissedQuery { after, below, workspace, topics, id: one });
    let sent_to = position.unwrap_or(Position::start_of(below));
    let now = Instant::now();
    let mut ready = VecDeque::from([event("ready", sent_to, &json!({}))]);
    if let (Some(id), None) = (id, position) {
        // The status is read after the subscription began, so every later change follows this event.
        let status = api.store.execution_status(id, caller.workspace).await?;
        let data = json!({ "executionId": id, "status": status.name() });
        ready.push_back(event("execution", sent_to, &data));
    }
    let state = Stream {
        api,
        secret,
        view,
        subscription,
        missed,
        sent_to,
        ready,
        closed: false,
        checked_at: now,
        sent_at: now,
        _permit: permit,
    };
    ::metrics::gauge!(metrics::CHANGE_SUBSCRIBERS.name, "transport" => "sse").increment(1);
    let events = stream::unfold(state, async |mut stream| {
        let next = stream.next().await?;
        Some((Ok::<Event, Infallible>(next), stream))
    });
    Ok(([("x-accel-buffering", "no")], Sse::new(Box::pin(events))).into_response())
}

/// One open stream.
struct Stream {
    api: Api,
    secret: Secret,
    view: View,
    subscription: Subscription,
    /// The query for changes that must still be read from the log before live changes are sent. None: there are none.
    missed: Option<MissedQuery<'static>>,
    /// The position up to which the client has received everything. Earlier changes from the feed are skipped.
    sent_to: Position,
    ready: VecDeque<Event>,
    /// The stream ends after the events in `ready`.
    closed: bool,
    /// When the key was last checked, and when something was last sent.
    checked_at: Instant,
    sent_at: Instant,
    _permit: WaitPermit,
}

impl Drop for Stream {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::CHANGE_SUBSCRIBERS.name, "transport" => "sse").decrement(1);
    }
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.closed && self.checked_at.elapsed() >= TICK {
                self.check().await;
            }
            if let Some(event) = self.ready.pop_front() {
                self.sent_at = Instant::now();
                return Some(event);
            }
            if self.closed {
                return None;
            }
            match self.missed {
                Some(missed) => self.catch_up(missed).await,
                None => self.wait().await,
            }
        }
    }

    /// Checks the key again. If it is no longer valid, pending events are dropped and the stream closes.
    async fn check(&mut self) {
        self.checked_at = Instant::now();
        match self.api.keys.caller(&self.api.store, &self.secret).await {
            Err(problem) if problem.code == Code::Unauthenticated => {
                self.ready.clear();
                self.close("the key is no longer valid");
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Adds a change to the events to send, unless it was sent before.
    fn push(&mut self, change: &Change) {
        if change.position > self.sent_to {
            self.sent_to = change.position;
            self.ready.push_back(change_event(self.view, change));
        }
    }

    /// Reads a page of missed changes. The oldest entry of the log is read after the page, so that entries that were
    /// pruned meanwhile are noticed.
    async fn catch_up(&mut self, missed: MissedQuery<'static>) {
        let read = async {
            let page = self.api.store.missed_changes(&missed, PAGE).await?;
            Ok::<_, store::Error>((page, self.api.store.log_extent().await?))
        };
        let (page, extent) = match read.await {
            Ok(read) => read,
            Err(_) => return self.close("the database is unavailable: connect again"),
        };
        if !extent.pruned.is_some_and(|gone| missed.after.is_retained(gone, extent.horizon)) {
            self.missed = None;
            let reason = "the change log no longer reaches back to that event: read the current state, then \
                 continue with this stream";
            self.sent_to = Position::start_of(missed.below);
            self.ready.push_back(event("reset", self.sent_to, &json!({ "reason": reason })));
            return;
        }
        self.missed = page.next.map(|after| MissedQuery { after, ..missed });
        page.changes.iter().for_each(|change| self.push(change));
    }

    /// Waits for a change, for the next check of the key, or for the next heartbeat.
    async fn wait(&mut self) {
        tokio::select! {
            followed = self.subscription.next() => match followed {
                Ok(published) => self.push(&published.change),
                Err(reason) => self.close(reason.message()),
            },
            () = tokio::time::sleep_until(self.sent_at + HEARTBEAT) => {
                let heartbeat = Event::default().comment("");
                let position = self.subscription.position().filter(|position| *position > self.sent_to);
                self.sent_to = position.unwrap_or(self.sent_to);
                self.ready.push_back(heartbeat.id(self.sent_to.to_string()));
            }
            () = tokio::time::sleep_until(self.checked_at + TICK) => {}
        }
    }

    fn close(&mut self, reason: &str) {
        self.closed = true;
        self.ready.push_back(Event::default().event("closed").data(json!({ "reason": reason }).to_string()));
    }
}

fn event(name: &str, position: Position, data: &Value) -> Event {
    Event::default().event(name).id(position.to_string()).data(data.to_string())
}

/// The event of a change in a stream of this view.
fn change_event(view: View, change: &Change) -> Event {
    let status = change.status.as_deref();
    let (id, workspace, at) = (change.id, change.workspace, change.at);
    let (name, data) = match view {
        View::Execution if change.topic == Topic::Nodes => {
            ("nodes", json!({ "executionId": id, "workspaceId": workspace, "at": at }))
        }
        View::Execution | View::Executions => {
            ("execution", json!({ "executionId": id, "workspaceId": workspace, "status": status, "at": at }))
        }
        View::Queue => {
            let status = queue_status(status).map(queue::Status::name);
            ("queue", json!({ "queueId": id, "executionId": id, "workspaceId": workspace, "status": status, "at": at }))
        }
        View::Jobs => {
            let op = change.op.name();
            ("job", json!({ "type": op, "id": id, "workspaceId": workspace, "at": at, "record": change.record }))
        }
    };
    event(name, change.position, &data)
}

/// The status of the queue item of an execution with this status.
fn queue_status(status: Option<&str>) -> Option<queue::Status> {
    Some(match status? {
        "PENDING" => queue::Status::Pending,
        "RUNNING" => queue::Status::Dispatched,
        "COMPLETED" | "CANCELED" => queue::Status::Gone,
        _ => queue::Status::Failed,
    })
}
