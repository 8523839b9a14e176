//! Executions: starts, reads and cancels an execution.
//!
//! Not here: lists (`list`), child executions (`tree`), reruns (`http::rerun`).

pub(crate) mod list;
pub(crate) mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::definition::Kind;
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::run::node;
use kernel::{duration, run};
use serde::Deserialize;
use store::execution::{Canceled, NodeRecord};
use tokio::time::Instant;
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::problem::no_such;
use super::{Api, Code, Problem, offload, page, starts};
use crate::wire;

/// The longest time of `?wait=`.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a waiting request polls. It must poll because another process may end the execution.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Starts an execution.
///
/// With the response 202 the request is stored durably and waits in the queue.
#[utoipa::path(post, path = "/workflow/executions/start", tag = "executions", request_body = wire::StartExecution,
    params(("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key and the same body \
         start one execution.",
    min_length = 1, max_length = 200)),
    responses((status = 202, body = wire::StartedExecution,
    headers(("Location" = String, description = "The path of the execution.")))))]
pub(crate) async fn start(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<wire::StartExecution>,
) -> Result<impl IntoResponse, Problem> {
    let key = starts::read_idempotency_key(&headers)?.map(str::to_owned);
    let start = starts::read(&caller, body, key, starts::trace_parent(&headers))?;
    let answer = starts::accept(&api, &caller, vec![start]).await?.pop();
    let started = answer.unwrap_or_else(|| Err(Problem::of(Code::Internal)))?;
    let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
    let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, headers, Reply(started)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetExecutionParams {
    /// How long to wait for the end of the execution, such as `30s`. At most one minute.
    #[param(example = "30s")]
    wait: Option<String>,
}

/// Reads an execution.
///
/// With `?wait=30s` the response comes as soon as the execution ends, at the latest after that time.
#[utoipa::path(get, path = "/workflow/executions/{id}", tag = "executions",
    params(("id" = ExecutionId, Path), GetExecutionParams),
    responses((status = 200, body = wire::Execution)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<GetExecutionParams>,
) -> Result<Reply<wire::Execution>, Problem> {
    let wait = match params.wait.as_deref().map(duration::parse) {
        None => Duration::ZERO,
        Some(Ok(wait)) => wait.min(LONGEST_WAIT).min(api.timeout() * 9 / 10),
        Some(Err(error)) => return Err(Problem::new(Code::ValidationFailed, format!("wait: {error}"))),
    };
    let most = api.settings.http.max_waits_per_workspace;
    let _permit = match wait.is_zero() {
        true => None,
        false => Some(api.waiters.try_permit(&caller.limit_name(), most).ok_or_else(|| too_many(most))?),
    };
    let until = Instant::now() + wait;
    let waiter = api.waiters.register(id);
    loop {
        let woken = waiter.notify.notified();
        // A waiting request reads only the status: the whole execution may be large.
        let status = api.store.execution_status(id, caller.workspace).await.map_err(no_such("execution"))?;
        if status.is_terminal() || Instant::now() >= until || api.stop.is_cancelled() {
            return Ok(Reply(execution_of(find(&api, &caller, id).await?)));
        }
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + POLL_INTERVAL)) => {}
            () = api.stop.cancelled() => {}
        }
    }
}

fn too_many(most: usize) -> Problem {
    let detail =
        format!("the limit of {most} waiting requests of this workspace is reached: omit ?wait=, or try again later");
    Problem { retry_after_s: Some(1), ..Problem::new(Code::RateLimited, detail) }
}

/// Lists the nodes of an execution, including those that have not begun.
///
/// With `?node=KEY&iterations=true`: the iterations of that loop, in pages.
#[utoipa::path(get, path = "/workflow/executions/{id}/nodes", tag = "executions",
    params(("id" = ExecutionId, Path), NodesParams),
    responses((status = 200, body = wire::ExecutionNodes)))]
pub(crate) async fn nodes(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<NodesParams>,
) -> Result<Reply<wire::ExecutionNodes>, Problem> {
    let execution = find(&api, &caller, id).await?;
    let payloads = params.payloads.unwrap_or(true);
    if params.iterations.unwrap_or(false) {
        let paging = (params.limit, params.cursor.as_deref());
        return Ok(Reply(tree::iterations(&api, &execution, params.node.as_deref(), paging, payloads).await?));
    }
    let skip = page::read(page::ListKind::Nodes, params.cursor.as_deref(), page::skip_of)?.unwrap_or(0);
    let found = api.store.nodes_page(id, payloads, params.node.as_deref(), skip).await?;
    let next = skip + i64::try_from(found.rows.len()).unwrap_or(0);
    let next_cursor = found.cut.then(|| page::write(page::ListKind::Nodes, &next.to_be_bytes()));
    // Nodes that have not begun come last, so only the last page has them.
    let begun = match (found.cut, skip) {
        (true, _) => None,
        (false, 0) => Some(names(&found.rows)),
        (false, _) => Some(names(&api.store.list_nodes(id, false).await?)),
    };
    let mut items = in_graph(&api, &execution, found.rows, begun).await?;
    if let Some(node) = &params.node {
        items.retain(|known| known.node == *node);
    }
    Ok(Reply(wire::ExecutionNodes { items, next_cursor }))
}

fn names(nodes: &[NodeRecord]) -> BTreeSet<String> {
    nodes.iter().map(|node| node.node.clone()).collect()
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodesParams {
    /// False: without inputs and outputs. Default: true.
    payloads: Option<bool>,
    /// List only this node.
    node: Option<String>,
    /// True: list the iterations of that node, which must be a loop.
    iterations: Option<bool>,
    /// The largest number of items. Default: 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// The progress of an execution: its nodes, counted by status.
#[utoipa::path(get, path = "/workflow/executions/{id}/summary", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::ExecutionSummary)))]
pub(crate) async fn summary(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<Reply<wire::ExecutionSummary>, Problem> {
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
    Ok(Reply(wire::ExecutionSummary {
        id,
        status: execution.status,
        phase,
        duration_ms: execution.duration_ms,
        total_nodes: all.len(),
        nodes,
        error: execution.error,
    }))
}

/// Cancels an execution.
///
/// A waiting execution ends immediately. The nodes of a running execution are asked to stop. Canceling an ended
/// execution changes nothing.
#[utoipa::path(post, path = "/workflow/executions/{id}/cancel", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::CanceledExecution),
    (status = 202, body = wire::CanceledExecution, description = "The execution is running and is being stopped.")))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<impl IntoResponse, Problem> {
    let execution = find(&api, &caller, id).await?;
    let status = match api.store.cancel(id, execution.workspace, &caller.actor).await? {
        Canceled::AtOnce(ended) => {
            if ended.freed {
                api.notifier.notify_ready(ended.workspace);
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Canceled::Requested(_) => {
            if let Some(engine) = &api.engine.control {
                engine.cancel(id);
                if execution.root != id {
                    engine.signal(execution.root);
                }
            }
            api.wakeups.all.notify_waiters();
            Status::Running
        }
        Canceled::AlreadyEnded => find(&api, &caller, id).await?.status,
    };
    let answer = wire::CanceledExecution { execution_id: id, status };
    Ok((if status == Status::Running { StatusCode::ACCEPTED } else { StatusCode::OK }, Reply(answer)))
}

pub(crate) async fn find(api: &Api, caller: &Caller, id: ExecutionId) -> Result<store::execution::Execution, Problem> {
    api.store.execution(id, caller.workspace).await.map_err(no_such("execution"))
}

/// The stored nodes, followed by the nodes that have not begun, in the order of the graph. If this build cannot read
/// the graph, only the stored nodes are returned; the error of the execution contains the reason.
pub(crate) async fn all_nodes(
    api: &Api,
    execution: &store::execution::Execution,
    payloads: bool,
) -> Result<Vec<wire::ExecutionNode>, Problem> {
    let stored = api.store.list_nodes(execution.id, payloads).await?;
    let begun = names(&stored);
    in_graph(api, execution, stored, Some(begun)).await
}

/// Converts stored nodes to the form of the API. If `begun` is given, the nodes that have not begun follow.
async fn in_graph(
    api: &Api,
    execution: &store::execution::Execution,
    stored: Vec<NodeRecord>,
    begun: Option<BTreeSet<String>>,
) -> Result<Vec<wire::ExecutionNode>, Problem> {
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let known = offload::check_stored(Some(execution.workspace), graph).await?.ok();
    let kind = |key: &str| {
        let nodes = known.iter().flat_map(|(definition, _)| &definition.nodes);
        nodes.into_iter().find(|node| node.key.as_str() == key).map_or("", |node| node.kind.name()).to_owned()
    };
    let mut all: Vec<wire::ExecutionNode> = stored.into_iter().map(|node| node_of(kind(&node.node), node)).collect();
    let Some(begun) = begun else { return Ok(all) };
    // Nodes that an ended execution did not reach are shown as canceled.
    let rest = if execution.status.is_terminal() { node::Status::Canceled } else { node::Status::Pending };
    for node in known.iter().flat_map(|(_, plan)| plan.order().iter().map(|at| plan.node(*at))) {
        if !begun.contains(node.key.as_str()) {
            all.push(unbegun(node.key.as_str(), node.kind.name(), rest));
        }
    }
    Ok(all)
}

/// The kind of the action of a loop. Empty if the graph cannot be read. `not_found` if the node is no loop.
async fn item_kind(
    api: &Api,
    execution: &store::execution::Execution,
    node: &kernel::ids::NodeKey,
) -> Result<String, Problem> {
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let known = offload::check_stored(Some(execution.workspace), graph).await?.ok();
    let Some((definition, _)) = known else { return Ok(String::new()) };
    let spec = definition.nodes.iter().find(|known| known.key == *node && known.kind == Kind::ForEach);
    let action = spec.and_then(kernel::kind::for_each::action);
    let none = || Problem::new(Code::NotFound, format!("node {node} is not a loop of this workflow"));
    action.map(|action| action.kind.name().to_owned()).ok_or_else(none)
}

fn unbegun(key: &str, kind: &str, status: node::Status) -> wire::ExecutionNode {
    wire::ExecutionNode {
        node: key.to_owned(),
        kind: kind.to_owned(),
        iteration: 0,
        status,
        attempt: 0,
        label: None,
        input: None,
        output: None,
        error: None,
        earlier_attempts: None,
        next_at: None,
        started_at: None,
        completed_at: None,
        duration_ms: None,
        kept_from_execution_id: None,
    }
}

fn node_of(kind: String, node: store::execution::NodeRecord) -> wire::ExecutionNode {
    wire::ExecutionNode {
        node: node.node,
        kind,
        iteration: node.iteration,
        status: node.status,
        attempt: node.attempt,
        label: node.label,
        input: node.input,
        output: node.output,
        error: node.error,
        earlier_attempts: node.earlier,
        next_at: node.next_at,
        started_at: node.started_at,
        completed_at: node.completed_at,
        duration_ms: node.duration_ms,
        kept_from_execution_id: node.kept_from,
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
        parent_execution_id: execution.parent,
        root_execution_id: execution.parent.map(|_| execution.root),
        parent_node: execution.parent_node,
        parent_iteration: execution.parent_iteration,
        rerun_of_execution_id: execution.rerun_of,
    }
}
