//! Executions: started, watched, canceled; listed by `list`.

pub(crate) mod list;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::{duration, node, parse, run};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use store::enqueue::{Accepted, Start};
use store::execution::Canceled;
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::{Api, Code, Problem};
use crate::wire;

/// The longest `?wait=`.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a waiting request looks by itself: another process may have ended the execution.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The year 9999 in seconds: a deadline is later than its start, and later times cannot be written.
const LATEST_START: i64 = 253_370_764_800;

/// Accepts a start. When this answers 202, the request is durable.
#[utoipa::path(post, path = "/workflow/executions/start", tag = "executions", request_body = wire::StartExecution,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body starts once.", min_length = 1, max_length = 200)),
    responses((status = 202, body = wire::Started, headers(("Location" = String, description = "The execution's address.")))))]
pub(crate) async fn start(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<wire::StartExecution>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = caller.workspace(body.workspace_id)?;
    let idempotency = idempotency(&headers, &body)?;
    if body.concurrency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::new(Code::ValidationFailed, "concurrencyKey: 1 to 200 characters"));
    }
    if body.run_at.is_some_and(|at| at.as_second() >= LATEST_START) {
        return Err(Problem::new(Code::ValidationFailed, "runAt: before the year 9999"));
    }
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace,
        definition: body.workflow_definition_id,
        input: body.input,
        priority: body.priority.unwrap_or_default(),
        run_at: body.run_at,
        concurrency_key: body.concurrency_key,
        idempotency,
        trigger: json!({ "type": "api", "actor": caller.actor }),
        trace: headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned),
    };
    let keyed = start.idempotency.is_some();
    let accepted = api.store.enqueue(&[start], &caller.actor).await.map_err(|error| busy(error, keyed))?;
    let (execution, status) = match accepted.first() {
        Some(Accepted::New { execution, .. }) => {
            api.hints.enqueued(workspace);
            ::metrics::counter!(crate::metrics::ENQUEUED).increment(1);
            (*execution, Status::Pending)
        }
        Some(Accepted::Existing { execution }) => {
            (*execution, api.store.execution(*execution, Some(workspace)).await?.status)
        }
        Some(Accepted::Conflict) => return Err(Problem::of(Code::IdempotencyConflict)),
        Some(Accepted::Draft) => {
            return Err(Problem::new(
                Code::DefinitionNotPublished,
                "publish the definition first, or use `forebay apply`",
            ));
        }
        Some(Accepted::NotFound) | None => return Err(Problem::not_found("definition in this workspace")),
    };
    let location = format!("/api/v1/workflow/executions/{execution}");
    let started = wire::Started { queue_id: execution.queue_item(), execution_id: execution, status };
    let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, headers, Reply(started)))
}

/// The first request with that key is still in its transaction.
fn busy(error: store::Error, keyed: bool) -> Problem {
    if keyed && error.is_lock_timeout() {
        let problem = Problem::new(Code::Conflict, "another request with this idempotency key is under way");
        return Problem { retry_after_s: Some(1), ..problem };
    }
    error.into()
}

fn idempotency(headers: &HeaderMap, body: &wire::StartExecution) -> Result<Option<(String, Vec<u8>)>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default().trim();
    if key.is_empty() || key.len() > 200 {
        return Err(Problem::new(Code::ValidationFailed, "Idempotency-Key: 1 to 200 printable characters"));
    }
    let content = serde_json::to_vec(&sorted(&serde_json::to_value(body).map_err(|_| Problem::of(Code::Internal))?));
    let content = content.map_err(|_| Problem::of(Code::Internal))?;
    Ok(Some((key.to_owned(), Sha256::digest(content).to_vec())))
}

/// The same content in any order of keys is the same content.
fn sorted(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(fields) => {
            let ordered: BTreeMap<&String, serde_json::Value> =
                fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            serde_json::Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        serde_json::Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// How long to wait for its end, such as `30s`; a minute at most.
    #[param(example = "30s")]
    wait: Option<String>,
}

/// One execution; with `?wait=30s` as soon as it ends, or after that long as it stands.
#[utoipa::path(get, path = "/workflow/executions/{id}", tag = "executions", params(("id" = ExecutionId, Path), Wait),
    responses((status = 200, body = wire::Execution)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<Wait>,
) -> Result<Reply<wire::Execution>, Problem> {
    let wait = match params.wait.as_deref().map(duration::parse) {
        None => Duration::ZERO,
        Some(Ok(wait)) => wait.min(LONGEST_WAIT).min(api.timeout() * 9 / 10),
        Some(Err(error)) => return Err(Problem::new(Code::ValidationFailed, format!("wait: {error}"))),
    };
    let until = Instant::now() + wait;
    let waiter = api.waiters.on(id);
    loop {
        let woken = waiter.notify.notified();
        // Whoever waits looks at the status only; what the execution holds may be large.
        let status = api.store.execution_status(id, caller.workspace).await.map_err(unknown)?;
        if status.is_terminal() || Instant::now() >= until || api.stop.is_cancelled() {
            return Ok(Reply(execution_of(find(&api, &caller, id).await?)));
        }
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
            () = api.stop.cancelled() => {}
        }
    }
}

/// Every node of the execution's graph.
#[utoipa::path(get, path = "/workflow/executions/{id}/nodes", tag = "executions", params(("id" = ExecutionId, Path), NodesParams),
    responses((status = 200, body = wire::Nodes)))]
pub(crate) async fn nodes(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<NodesParams>,
) -> Result<Reply<wire::Nodes>, Problem> {
    let execution = find(&api, &caller, id).await?;
    let items = all_nodes(&api, &execution, params.payloads.unwrap_or(true)).await?;
    Ok(Reply(wire::Nodes { items }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodesParams {
    /// False leaves inputs and outputs out, for those who only watch.
    payloads: Option<bool>,
}

/// How far it is: its nodes, counted by status.
#[utoipa::path(get, path = "/workflow/executions/{id}/summary", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::Summary)))]
pub(crate) async fn summary(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<Reply<wire::Summary>, Problem> {
    let execution = find(&api, &caller, id).await?;
    let all = all_nodes(&api, &execution, false).await?;
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for node in &all {
        *nodes.entry(node.status.name().to_owned()).or_default() += 1;
    }
    let begun = all.iter().any(|node| node.status != node::Status::Pending);
    let phase = match execution.status {
        Status::Completed => run::Phase::Completed,
        Status::Failed | Status::Canceled | Status::TimedOut => run::Phase::Failed,
        Status::Running if begun => run::Phase::ExecutingNodes,
        Status::Running | Status::Pending => run::Phase::Initializing,
    };
    Ok(Reply(wire::Summary {
        id,
        status: execution.status,
        phase,
        duration_ms: execution.duration_ms,
        total_nodes: all.len(),
        nodes,
        error: execution.error,
    }))
}

/// Ends an execution that waits, asks one that runs to end, and repeats nothing.
#[utoipa::path(post, path = "/workflow/executions/{id}/cancel", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::Canceled), (status = 202, body = wire::Canceled, description = "It is being stopped.")))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<impl IntoResponse, Problem> {
    let execution = find(&api, &caller, id).await?;
    let status = match api.store.cancel(id, execution.workspace, &caller.actor).await? {
        Canceled::AtOnce(ended) => {
            if ended.freed {
                api.hints.ready(ended.workspace);
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Canceled::Requested(_) => {
            use engine::Engine as _;
            if let Some(engine) = &api.engine {
                engine.cancel(id);
            }
            api.rouse.notify_waiters();
            Status::Running
        }
        Canceled::AlreadyEnded => find(&api, &caller, id).await?.status,
    };
    let answer = wire::Canceled { execution_id: id, status };
    Ok((if status == Status::Running { StatusCode::ACCEPTED } else { StatusCode::OK }, Reply(answer)))
}

async fn find(api: &Api, caller: &Caller, id: ExecutionId) -> Result<store::execution::Execution, Problem> {
    api.store.execution(id, caller.workspace).await.map_err(unknown)
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("execution"),
        other => other.into(),
    }
}

/// The stored nodes, then those that have not begun, in the graph's order.
async fn all_nodes(
    api: &Api,
    execution: &store::execution::Execution,
    payloads: bool,
) -> Result<Vec<wire::Node>, Problem> {
    let stored = api.store.list_nodes(execution.id, payloads).await?;
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let (definition, plan) = parse::check_stored(&graph).map_err(|_| Problem::of(Code::Internal))?;
    let kind = |key: &str| {
        definition.nodes.iter().find(|node| node.key.as_str() == key).map_or("", |node| node.kind.name()).to_owned()
    };
    let mut all: Vec<wire::Node> = stored.into_iter().map(|node| node_of(kind(&node.node), node)).collect();
    // What an ended execution never came to will not come any more.
    let rest = if execution.status.is_terminal() { node::Status::Canceled } else { node::Status::Pending };
    for at in plan.order() {
        let node = plan.node(*at);
        if !all.iter().any(|known| known.node == node.key.as_str()) {
            all.push(unbegun(node.key.as_str(), node.kind.name(), rest));
        }
    }
    Ok(all)
}

fn unbegun(key: &str, kind: &str, status: node::Status) -> wire::Node {
    wire::Node {
        node: key.to_owned(),
        kind: kind.to_owned(),
        iteration: 0,
        status,
        attempt: 0,
        label: None,
        input: None,
        output: None,
        error: None,
        earlier: None,
        next_at: None,
        started_at: None,
        completed_at: None,
        duration_ms: None,
    }
}

fn node_of(kind: String, node: store::execution::NodeRecord) -> wire::Node {
    wire::Node {
        node: node.node,
        kind,
        iteration: node.iteration,
        status: node.status,
        attempt: node.attempt,
        label: node.label,
        input: node.input,
        output: node.output,
        error: node.error,
        earlier: node.earlier,
        next_at: node.next_at,
        started_at: node.started_at,
        completed_at: node.completed_at,
        duration_ms: node.duration_ms,
    }
}

fn execution_of(execution: store::execution::Execution) -> wire::Execution {
    wire::Execution {
        id: execution.id,
        queue_id: execution.id.queue_item(),
        workspace_id: execution.workspace,
        workflow_definition_id: execution.definition,
        workflow_name: execution.definition_name,
        version_id: execution.version,
        version: execution.version_number,
        status: execution.status,
        engine: execution.engine,
        trigger: execution.trigger,
        input: execution.input,
        output: execution.output,
        error: execution.error,
        priority: execution.priority,
        concurrency_key: execution.concurrency_key,
        created_at: execution.created_at,
        started_at: execution.started_at,
        completed_at: execution.completed_at,
        duration_ms: execution.duration_ms,
        deadline_at: execution.deadline_at,
        cancel_requested_at: execution.cancel_requested_at,
    }
}
