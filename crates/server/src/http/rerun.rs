//! Reruns: starts a new execution that is linked to an old execution. It waits in the queue like any other execution.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::definition;
use kernel::definition::{parse, plan};
use kernel::execution::rerun::{self, KeptNodes, RerunError, Resolution, StartFrom};
use kernel::ids::{ExecutionId, NodeKey};
use kernel::queue::Priority;
use serde_json::json;
use store::definition::DefinitionRef;
use store::execution::Execution;
use store::queue::enqueue::Start;

use super::auth::Caller;
use super::body::{Id, Json};
use super::{Api, Code, Problem, executions, starts};
use crate::wire::{RerunExecution, RerunFrom, RerunVersion, StartedExecution};

/// Reruns an ended execution as a new execution: from the start, from the failed nodes, or from one node.
///
/// It may have another input and run the published version. Nodes that do not run again keep their outputs.
#[utoipa::path(post, path = "/workflow/executions/{id}/rerun", tag = "executions", request_body = RerunExecution,
    params(("id" = ExecutionId, Path),
    ("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key and the same body start \
         one execution.",
    min_length = 1, max_length = 200)),
    responses((status = 202, body = StartedExecution,
    headers(("Location" = String, description = "The path of the new execution.")))))]
pub(crate) async fn rerun(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    headers: HeaderMap,
    Json(body): Json<RerunExecution>,
) -> Result<impl IntoResponse, Problem> {
    let from = from(&body)?;
    let old = executions::find(&api, &caller, id).await?;
    if !old.status.is_terminal() {
        return Err(Problem::new(Code::Conflict, "the execution has not ended: cancel or terminate it first"));
    }
    let resolve = resolve(&body)?;
    let same_input = body.input.is_none() || body.input == old.input;
    let (version, kept) = kept(&api, &old, (body.version, same_input), &from, &resolve).await?;
    let key = starts::read_idempotency_key(&headers)?.map(str::to_owned);
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace: old.workspace,
        definition: old.definition,
        idempotency: starts::idempotency(key, &json!({ "rerun": id, "body": body }))?,
        input: body.input.or(old.input),
        priority: Priority::new(old.priority).unwrap_or_default(),
        run_at: None,
        concurrency_key: old.concurrency_key,
        trigger: rerun::trigger(id, &caller.actor, &from, kept.len()),
        trace: starts::trace_parent(&headers),
        version,
        rerun_of: Some(id),
    };
    let started = match kept.is_empty() {
        true => starts::accept(&api, &caller, vec![start]).await?.pop(),
        false => Some(starts::accept_rerun(&api, &caller, &start, &kept).await?),
    };
    let started: StartedExecution = started.unwrap_or_else(|| Err(Problem::of(Code::Internal)))?;
    let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
    let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, headers, Reply(started)))
}

fn from(body: &RerunExecution) -> Result<StartFrom, Problem> {
    let refuse = |detail: &str| Err(Problem::new(Code::ValidationFailed, detail));
    match (body.from, &body.node) {
        (RerunFrom::Start, None) => Ok(StartFrom::Start),
        (RerunFrom::Failed, None) => Ok(StartFrom::Failed),
        (RerunFrom::Node, Some(node)) => match NodeKey::new(node.as_str()) {
            Ok(key) => Ok(StartFrom::Node(key)),
            Err(bad) => refuse(&format!("node: {bad}")),
        },
        (RerunFrom::Node, None) => refuse("node: required with from: node"),
        (_, Some(_)) => refuse("node: allowed only with from: node"),
    }
}

/// Whether each node with the status `UNKNOWN` took effect, as the caller states it.
fn resolve(body: &RerunExecution) -> Result<BTreeMap<NodeKey, Resolution>, Problem> {
    let named = body.resolve.iter().map(|(name, resolve)| {
        let key = NodeKey::new(name.as_str());
        let key = key.map_err(|bad| Problem::new(Code::ValidationFailed, format!("resolve: {bad}")))?;
        Ok((key, Resolution::from(*resolve)))
    });
    named.collect()
}

/// The version to run (None: the published version), and the nodes whose outputs the rerun keeps.
async fn kept(
    api: &Api,
    old: &Execution,
    (version, same_input): (RerunVersion, bool),
    from: &StartFrom,
    resolve: &BTreeMap<NodeKey, Resolution>,
) -> Result<(Option<kernel::ids::VersionId>, KeptNodes), Problem> {
    let same = (version == RerunVersion::Same).then_some(old.version);
    let rows = api.store.node_states(old.id).await?;
    let ended: BTreeMap<NodeKey, kernel::run::node::Status> =
        rows.into_iter().map(|row| (row.node, row.status)).collect();
    let is_known = ended.values().all(|status| *status != kernel::run::node::Status::Unknown);
    if *from == StartFrom::Start && resolve.is_empty() && is_known {
        return Ok((same, KeptNodes::default()));
    }
    // The kept outputs are valid for this version only. So it is pinned: another version may be published meanwhile.
    let wanted = match same {
        Some(version) => version,
        None => {
            let known = api.store.definition(DefinitionRef::Id(old.definition), Some(old.workspace)).await?;
            known.published_version.ok_or_else(|| Problem::of(Code::DefinitionNotPublished))?
        }
    };
    let graphs = api.store.graphs(&[old.version, wanted]).await?;
    let graph = |id| {
        let found = graphs.iter().find(|(known, _)| *known == id).map(|(_, graph)| graph);
        found.and_then(|graph| parse::check_stored(graph).ok()).ok_or_else(|| {
            Problem::new(
                Code::Conflict,
                "this build cannot read the graph of the old version: rerun from the start, with the latest version",
            )
        })
    };
    let (ran, _): (definition::Definition, plan::Plan) = graph(old.version)?;
    let (wants, plan) = graph(wanted)?;
    let kept = rerun::keep_nodes(&ran, &ended, (&wants, &plan), same_input, from, resolve).map_err(|refused| {
        let field = match &refused {
            RerunError::NothingFailed | RerunError::UnknownNode(_) => "from",
            RerunError::Unresolved(_) | RerunError::NothingToResolve(_) | RerunError::CannotKeep(_) => "resolve",
        };
        Problem::new(Code::ValidationFailed, format!("{field}: {refused}"))
    })?;
    Ok((if kept.is_empty() && *from == StartFrom::Start { same } else { Some(wanted) }, kept))
}
