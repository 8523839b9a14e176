//! Changes as server-sent events, for whoever may lose its connection and come back.
//!
//! Invariants
//! - An event's id is a place in the log. Who comes back with it (`Last-Event-ID`) misses nothing and is told nothing
//!   twice, on any process, while the log is kept that far; else it is told so by a `reset`, and must look for itself.
//! - A quiet stream's place moves on with its heartbeats.
//! - A key sees its own workspace's changes; one that was revoked or has expired ends its streams within seconds.
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
use kernel::change::cursor::Place;
use kernel::change::{Change, Topic};
use kernel::ids::ExecutionId;
use kernel::queue;
use kernel::signals::metrics;
use serde_json::{Value, json};
use store::access::key::Secret;
use store::feed::Missed;
use tokio::time::Instant;

use super::auth::{self, Caller};
use super::body::Id;
use super::{Api, Code, Problem};
use crate::execution::waiters::Turn;
use crate::feed::{Following, Order};

/// How often the key is looked at again.
const TICK: Duration = Duration::from_secs(1);
/// How long a stream may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Entries of the log looked at at once for one who comes back.
const PAGE: i64 = 500;

/// Where the streams are, below `/api/v1`.
pub(super) const PATHS: [&str; 4] =
    ["/projection/events", "/workflow/executions/events", "/workflow/executions/{id}/events", "/workflow/queue/events"];

/// What each of them says, for its description.
const EXECUTION: &str = "event: execution\nid: 1042:1048576\ndata: \
    {\"executionId\":\"019a8f00-0000-7000-8000-000000000005\",\
    \"workspaceId\":\"019a8f00-0000-7000-8000-000000000001\",\"status\":\"RUNNING\",\
    \"at\":\"2026-01-05T12:00:00Z\"}\n\n";
const QUEUE: &str = "event: queue\nid: 1042:1048576\ndata: {\"queueId\":\"019a8f00-0000-7000-8000-000000000005\",\
    \"executionId\":\"019a8f00-0000-7000-8000-000000000005\",\"workspaceId\":\"019a8f00-0000-7000-8000-000000000001\",\
    \"status\":\"DISPATCHED\",\"at\":\"2026-01-05T12:00:00Z\"}\n\n";
const PROJECTION: &str = "event: projection\nid: 1042:1048576\ndata: \
    {\"type\":\"INSERT\",\"id\":\"019a8f00-0000-7000-8000-000000000006\",\
    \"workspaceId\":null,\"at\":\"2026-01-05T12:00:00Z\",\"record\":{\"status\":\"pending\"}}\n\n";

/// What a stream is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// One execution, with its nodes.
    Run,
    Executions,
    Queue,
    Projection,
}

impl View {
    fn topics(self) -> &'static [Topic] {
        match self {
            View::Run => &[Topic::Execution, Topic::Nodes],
            View::Executions | View::Queue => &[Topic::Execution],
            View::Projection => &[Topic::Projection],
        }
    }
}

/// The status of one execution, and when nodes of it have moved, from now on.
#[utoipa::path(get, path = "/workflow/executions/{id}/events", tag = "streams", params(("id" = ExecutionId, Path),
        ("Last-Event-ID" = Option<String>, Header,
            description = "The last event that was heard: what followed it comes first.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(EXECUTION))))]
pub(crate) async fn of_execution(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    api.store.execution_status(id, caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("execution"),
        other => other.into(),
    })?;
    open(api, caller, View::Run, Some(id), &headers).await
}

/// The status of every execution that the key sees.
#[utoipa::path(get, path = "/workflow/executions/events", tag = "streams",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The last event that was heard: what followed it comes first.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(EXECUTION))))]
pub(crate) async fn of_executions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Executions, None, &headers).await
}

/// The same as their tickets' status.
#[utoipa::path(get, path = "/workflow/queue/events", tag = "streams",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The last event that was heard: what followed it comes first.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(QUEUE))))]
pub(crate) async fn of_queue(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Queue, None, &headers).await
}

/// Every change of a row of `workflow_queue_projection`.
#[utoipa::path(get, path = "/projection/events", tag = "streams",
    params(("Last-Event-ID" = Option<String>, Header,
    description = "The last event that was heard: what followed it comes first.")),
    responses((status = 200, content_type = "text/event-stream", body = String, example = json!(PROJECTION))))]
pub(crate) async fn of_projection(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    open(api, caller, View::Projection, None, &headers).await
}

/// What a workspace with too many of them is told.
pub(super) fn too_many(most: usize) -> Problem {
    let detail = format!("{most} streams and sockets of this workspace are open in this process; close one first");
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
    let place = match headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse().ok())) {
        None => None,
        Some(Some(place)) => Some(place),
        Some(None) => return Err(Problem::new(Code::Malformed, "Last-Event-ID is the id of an event of this stream")),
    };
    let most = api.settings.http.max_streams_per_workspace;
    let turn = api.streams.turn(&caller.share(), most).ok_or_else(|| too_many(most))?;
    let topics = view.topics();
    let (workspace, one) = (caller.workspace, id.map(|id| id.0));
    let wants = move |change: &Change| {
        topics.contains(&change.topic) && change.is_seen_by(workspace) && one.is_none_or(|id| id == change.id)
    };
    let following = api.feed.follow(Order::Settled, Box::new(wants)).await.map_err(|_away| {
        let problem = Problem::new(Code::Unavailable, "changes cannot be followed now; try again shortly");
        Problem { retry_after_s: Some(2), ..problem }
    })?;
    let below = following.from;
    let missed = place.map(|after| Missed { after, below, workspace, topics, id: one });
    let told = place.unwrap_or(Place::before(below));
    let now = Instant::now();
    let mut ready = VecDeque::from([event("ready", told, &json!({}))]);
    if let (Some(id), None) = (id, place) {
        // Asked after it is followed: what changes from now on comes behind this.
        let status = api.store.execution_status(id, caller.workspace).await?;
        let data = json!({ "executionId": id, "status": status.name() });
        ready.push_back(event("execution", told, &data));
    }
    let following = Stream {
        api,
        secret,
        view,
        following,
        missed,
        told,
        ready,
        over: false,
        checked: now,
        beaten: now,
        _turn: turn,
    };
    ::metrics::gauge!(metrics::FEED_FOLLOWERS.name, "face" => "stream").increment(1);
    let events = stream::unfold(following, async |mut stream| {
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
    following: Following,
    /// What is to be read of the log before what comes live; none: nothing.
    missed: Option<Missed<'static>>,
    /// Up to where it was told everything, here or elsewhere: a feed that is behind that tells it nothing again.
    told: Place,
    ready: VecDeque<Event>,
    /// Nothing follows what is ready.
    over: bool,
    /// When the key was last looked at, and when something was last sent.
    checked: Instant,
    beaten: Instant,
    _turn: Turn,
}

impl Drop for Stream {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::FEED_FOLLOWERS.name, "face" => "stream").decrement(1);
    }
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.over && self.checked.elapsed() >= TICK {
                self.check().await;
            }
            if let Some(event) = self.ready.pop_front() {
                self.beaten = Instant::now();
                return Some(event);
            }
            if self.over {
                return None;
            }
            match self.missed {
                Some(missed) => self.catch_up(missed).await,
                None => self.wait().await,
            }
        }
    }

    /// Looks at the key again: however much there is to tell, one that is not valid any more is told nothing.
    async fn check(&mut self) {
        self.checked = Instant::now();
        match self.api.keys.caller(&self.api.store, &self.secret).await {
            Err(problem) if problem.code == Code::Unauthenticated => {
                self.ready.clear();
                self.close("the key is not valid any more");
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Tells of a change, unless it was told before.
    fn tell(&mut self, change: &Change) {
        if change.place > self.told {
            self.told = change.place;
            self.ready.push_back(told(self.view, change));
        }
    }

    /// Reads a page of what was missed. The log is asked how far it reaches after that: what was pruned meanwhile
    /// counts.
    async fn catch_up(&mut self, missed: Missed<'static>) {
        let read = async {
            let page = self.api.store.missed(&missed, PAGE).await?;
            Ok::<_, store::Error>((page, self.api.store.log_extent().await?))
        };
        let (page, extent) = match read.await {
            Ok(read) => read,
            Err(_) => return self.close("the database is not available; connect again"),
        };
        if !extent.gone.is_some_and(|gone| missed.after.is_kept(gone, extent.horizon)) {
            self.missed = None;
            let reason = "what followed that event is not kept any more: look for what is missing, then read on";
            self.told = Place::before(missed.below);
            self.ready.push_back(event("reset", self.told, &json!({ "reason": reason })));
            return;
        }
        self.missed = page.next.map(|after| Missed { after, ..missed });
        page.changes.iter().for_each(|change| self.tell(change));
    }

    /// Waits for a change, for the time to look at the key, or until it was silent for too long.
    async fn wait(&mut self) {
        tokio::select! {
            followed = self.following.next() => match followed {
                Ok(shown) => self.tell(&shown.change),
                Err(gone) => self.close(gone.message()),
            },
            () = tokio::time::sleep_until(self.beaten + HEARTBEAT) => {
                let beat = Event::default().comment("");
                let place = self.following.place().filter(|place| *place > self.told);
                self.told = place.unwrap_or(self.told);
                self.ready.push_back(beat.id(self.told.to_string()));
            }
            () = tokio::time::sleep_until(self.checked + TICK) => {}
        }
    }

    fn close(&mut self, reason: &str) {
        self.over = true;
        self.ready.push_back(Event::default().event("closed").data(json!({ "reason": reason }).to_string()));
    }
}

fn event(name: &str, place: Place, data: &Value) -> Event {
    Event::default().event(name).id(place.to_string()).data(data.to_string())
}

/// A change as a stream of this view tells it.
fn told(view: View, change: &Change) -> Event {
    let status = change.status.as_deref();
    let (id, workspace, at) = (change.id, change.workspace, change.at);
    let (name, data) = match view {
        View::Run if change.topic == Topic::Nodes => {
            ("nodes", json!({ "executionId": id, "workspaceId": workspace, "at": at }))
        }
        View::Run | View::Executions => {
            ("execution", json!({ "executionId": id, "workspaceId": workspace, "status": status, "at": at }))
        }
        View::Queue => {
            let status = ticket(status).map(queue::Status::name);
            ("queue", json!({ "queueId": id, "executionId": id, "workspaceId": workspace, "status": status, "at": at }))
        }
        View::Projection => {
            let op = change.op.name();
            ("projection", json!({ "type": op, "id": id, "workspaceId": workspace, "at": at, "record": change.record }))
        }
    };
    event(name, change.place, &data)
}

/// How the ticket of an execution stands whose status just became this one.
fn ticket(status: Option<&str>) -> Option<queue::Status> {
    Some(match status? {
        "PENDING" => queue::Status::Pending,
        "RUNNING" => queue::Status::Dispatched,
        "COMPLETED" | "CANCELED" => queue::Status::Gone,
        _ => queue::Status::Failed,
    })
}
