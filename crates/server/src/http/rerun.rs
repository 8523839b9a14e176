//! Running an execution again: a new one, linked to the old, through the queue like any other.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::definition;
use kernel::definition::{parse, plan};
use kernel::execution::rerun::{self, From, Kept, Refused, Resolve};
use kernel::ids::{ExecutionId, NodeKey};
use kernel::queue::Priority;
use serde_json::json;
use store::definition::Which;
use store::execution::Execution;
use store::queue::enqueue::Start;

use super::auth::Caller;
use super::body::{Id, Json};
use super::{Api, Code, Problem, executions, starts};
use crate::wire::{Rerun, RerunFrom, RerunVersion, Started};

/// Starts an ended execution anew, from its start, from what failed or from a node, with its input or another, in its
/// version or the published one. Nodes that are not done anew keep what they produced.
#[utoipa::path(post, path = "/workflow/executions/{id}/rerun", tag = "executions", request_body = Rerun,
    params(("id" = ExecutionId, Path),
    ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body starts once.",
    min_length = 1, max_length = 200)),
    responses((status = 202, body = Started,
    headers(("Location" = String, description = "The new execution's address.")))))]
pub(crate) async fn rerun(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    headers: HeaderMap,
    Json(body): Json<Rerun>,
) -> Result<impl IntoResponse, Problem> {
    let from = from(&body)?;
    let old = executions::find(&api, &caller, id).await?;
    if !old.status.is_terminal() {
        return Err(Problem::new(Code::Conflict, "it has not ended yet: cancel or terminate it first"));
    }
    let resolve = resolve(&body)?;
    let same_input = body.input.is_none() || body.input == old.input;
    let (version, kept) = kept(&api, &old, (body.version, same_input), &from, &resolve).await?;
    let key = starts::key(&headers)?.map(str::to_owned);
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
        trace: starts::trace(&headers),
        version,
        rerun_of: Some(id),
    };
    let started = match kept.is_empty() {
        true => starts::accept(&api, &caller, vec![start]).await?.pop(),
        false => Some(starts::accept_rerun(&api, &caller, &start, &kept).await?),
    };
    let started: Started = started.unwrap_or_else(|| Err(Problem::of(Code::Internal)))?;
    let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
    let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, headers, Reply(started)))
}

fn from(body: &Rerun) -> Result<From, Problem> {
    let refuse = |detail: &str| Err(Problem::new(Code::ValidationFailed, detail));
    match (body.from, &body.node) {
        (RerunFrom::Start, None) => Ok(From::Start),
        (RerunFrom::Failed, None) => Ok(From::Failed),
        (RerunFrom::Node, Some(node)) => match NodeKey::new(node.as_str()) {
            Ok(key) => Ok(From::Node(key)),
            Err(bad) => refuse(&format!("node: {bad}")),
        },
        (RerunFrom::Node, None) => refuse("node: say from which node"),
        (_, Some(_)) => refuse("node: only with from: node"),
    }
}

/// What was found out about nodes whose end is not known.
fn resolve(body: &Rerun) -> Result<BTreeMap<NodeKey, Resolve>, Problem> {
    let named = body.resolve.iter().map(|(name, resolve)| {
        let key = NodeKey::new(name.as_str());
        let key = key.map_err(|bad| Problem::new(Code::ValidationFailed, format!("resolve: {bad}")))?;
        Ok((key, Resolve::from(*resolve)))
    });
    named.collect()
}

/// The version to run, if it is not simply the published one, and what is kept.
async fn kept(
    api: &Api,
    old: &Execution,
    (version, same_input): (RerunVersion, bool),
    from: &From,
    resolve: &BTreeMap<NodeKey, Resolve>,
) -> Result<(Option<kernel::ids::VersionId>, Kept), Problem> {
    let same = (version == RerunVersion::Same).then_some(old.version);
    let rows = api.store.node_states(old.id).await?;
    let ended: BTreeMap<NodeKey, kernel::run::node::Status> =
        rows.into_iter().map(|row| (row.node, row.status)).collect();
    let is_known = ended.values().all(|status| *status != kernel::run::node::Status::Unknown);
    if *from == From::Start && resolve.is_empty() && is_known {
        return Ok((same, Kept::default()));
    }
    // What is kept follows from this very version, so it is pinned even where it is the latest.
    let wanted = match same {
        Some(version) => version,
        None => {
            let known = api.store.definition(Which::Id(old.definition), Some(old.workspace)).await?;
            known.published_version.ok_or_else(|| Problem::of(Code::DefinitionNotPublished))?
        }
    };
    let graphs = api.store.graphs(&[old.version, wanted]).await?;
    let graph = |id| {
        let found = graphs.iter().find(|(known, _)| *known == id).map(|(_, graph)| graph);
        found.and_then(|graph| parse::check_stored(graph).ok()).ok_or_else(|| {
            Problem::new(
                Code::Conflict,
                "its graph cannot be read any more: run it from the start, in the latest version",
            )
        })
    };
    let (ran, _): (definition::Definition, plan::Plan) = graph(old.version)?;
    let (wants, plan) = graph(wanted)?;
    let kept = rerun::kept(&ran, &ended, (&wants, &plan), same_input, from, resolve).map_err(|refused| {
        let field = match &refused {
            Refused::NothingFailed | Refused::UnknownNode(_) => "from",
            Refused::Unresolved(_) | Refused::NothingToResolve(_) | Refused::CannotKeep(_) => "resolve",
        };
        Problem::new(Code::ValidationFailed, format!("{field}: {refused}"))
    })?;
    Ok((if kept.is_empty() && *from == From::Start { same } else { Some(wanted) }, kept))
}
