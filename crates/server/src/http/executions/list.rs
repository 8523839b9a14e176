//! Lists of executions: of a workspace, of a definition, or all that a key may see.
//!
//! Invariants
//! - Every filter uses an index. A text search matches only values with an index: ids, idempotency keys and the
//!   beginnings of names.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use store::definition::DefinitionRef;
use store::execution::list::{ExecutionFilter, ExecutionSummary};
use uuid::Uuid;

use crate::http::auth::Caller;
use crate::http::body::{Id, Params};
use crate::http::page::list_params;
use crate::http::problem::no_such;
use crate::http::workspaces;
use crate::http::{Api, Code, Problem, page};
use crate::wire::{ExecutionListItem, Page};

/// The shortest prefix of an id to search for. It contains the creation time to the millisecond; shorter prefixes would
/// match too many ids.
const ID_PREFIX: usize = 13;
/// The largest number of executions, and of definitions, that a search text may match.
const MAX_MATCHES: i64 = 200;
const MAX_MATCHING_DEFINITIONS: i64 = 20;

list_params! {
    pub(crate) struct ListExecutionsParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// True: list one workspace only. With a root key, `workspaceId` is then required.
        in_one_workspace: Option<bool>,
        /// List only executions of this definition: its id or its name. With a root key, a name needs `workspaceId`.
        definition: Option<String>,
        /// List only executions with one of these statuses, separated by commas.
        #[param(example = "FAILED,TIMED_OUT")]
        status: Option<String>,
        /// List only executions created at this time or later.
        created_after: Option<Timestamp>,
        /// List only executions created before this time.
        created_before: Option<Timestamp>,
        /// Searches by id (at least its first 13 characters) or by idempotency key; if none matches, by the beginning
        /// of the name of the definition. With a root key it needs `workspaceId`.
        #[param(min_length = 1, max_length = 200)]
        text: Option<String>,
    }
}

list_params! {
    /// The filters of a list whose path names the workspace or the definition.
    pub(crate) struct NestedListParams {
        /// List only executions with one of these statuses, separated by commas.
        #[param(example = "FAILED,TIMED_OUT")]
        status: Option<String>,
        /// List only executions created at this time or later.
        created_after: Option<Timestamp>,
        /// List only executions created before this time.
        created_before: Option<Timestamp>,
    }
}

/// Lists executions, the newest first.
///
/// With a filter, a page searches at most 2,000 executions. It may have fewer items than `limit`, or none, and still
/// have a `nextCursor`: follow it to search on. A list without COMPLETED reads only what is open and what ended in
/// another way.
#[utoipa::path(get, path = "/workflow/executions", tag = "executions", params(ListExecutionsParams),
    responses((status = 200, body = Page<ExecutionListItem>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListExecutionsParams>,
) -> Result<Reply<Page<ExecutionListItem>>, Problem> {
    let workspace = match params.in_one_workspace {
        Some(true) => Some(caller.workspace(params.workspace_id)?),
        _ => caller.listed_workspace(params.workspace_id)?,
    };
    let created = (params.created_after, params.created_before);
    let page = params.page(page::ListKind::Executions, position_of)?;
    let mut filter = filter(workspace, params.status.as_deref(), created, page)?;
    if let Some(definition) = &params.definition {
        filter.definitions = Some(definitions(&api, &caller, &params, definition).await?);
    }
    if let Some(text) = &params.text {
        let workspace = caller.workspace(params.workspace_id)?;
        narrow(&api, workspace, text, &mut filter).await?;
    }
    answer(&api, filter).await
}

/// Lists the executions of a definition, the newest first. Also works for a deleted definition.
#[utoipa::path(get, path = "/workflow/executions/workflow/{definitionId}", tag = "executions",
    operation_id = "of_definition", params(("definitionId" = DefinitionId, Path), NestedListParams),
    responses((status = 200, body = Page<ExecutionListItem>)))]
pub(crate) async fn list_by_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<NestedListParams>,
) -> Result<Reply<Page<ExecutionListItem>>, Problem> {
    let filter = ExecutionFilter { definitions: Some(vec![id]), ..params.filter(caller.workspace)? };
    if !api.store.knows_definition(id, caller.workspace).await? {
        return Err(Problem::not_found("definition"));
    }
    answer(&api, filter).await
}

/// Lists the executions of a workspace, the newest first.
#[utoipa::path(get, path = "/workflow/executions/workspace/{workspaceId}", tag = "executions",
    operation_id = "of_workspace", params(("workspaceId" = WorkspaceId, Path), NestedListParams),
    responses((status = 200, body = Page<ExecutionListItem>)))]
pub(crate) async fn list_by_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Params(params): Params<NestedListParams>,
) -> Result<Reply<Page<ExecutionListItem>>, Problem> {
    workspaces::visible(&caller, id)?;
    let filter = params.filter(Some(id))?;
    api.store.workspace(id).await.map_err(no_such("workspace"))?;
    answer(&api, filter).await
}

impl NestedListParams {
    fn filter(&self, workspace: Option<WorkspaceId>) -> Result<ExecutionFilter, Problem> {
        let page = self.page(page::ListKind::Executions, position_of)?;
        filter(workspace, self.status.as_deref(), (self.created_after, self.created_before), page)
    }
}

fn filter(
    workspace: Option<WorkspaceId>,
    status: Option<&str>,
    (from, until): (Option<Timestamp>, Option<Timestamp>),
    (limit, after): (i64, Option<ExecutionId>),
) -> Result<ExecutionFilter, Problem> {
    Ok(ExecutionFilter {
        workspace,
        statuses: statuses(status)?,
        from,
        until,
        after,
        limit,
        definitions: None,
        ids: None,
    })
}

fn position_of(bytes: &[u8]) -> Option<ExecutionId> {
    page::uuid_of(bytes).map(ExecutionId)
}

fn statuses(text: Option<&str>) -> Result<Vec<Status>, Problem> {
    let known = |name: &str| {
        Status::parse(name).ok_or_else(|| {
            let all: Vec<&str> = Status::ALL.into_iter().map(Status::name).collect();
            Problem::new(
                Code::ValidationFailed,
                format!("status: must be one or more of {}, separated by commas", all.join(", ")),
            )
        })
    };
    text.into_iter().flat_map(|text| text.split(',')).map(known).collect()
}

/// The definition with this id or name. Empty if there is none with this name.
async fn definitions(
    api: &Api,
    caller: &Caller,
    params: &ListExecutionsParams,
    definition: &str,
) -> Result<Vec<DefinitionId>, Problem> {
    if let Ok(id) = definition.parse() {
        return Ok(vec![id]);
    }
    let workspace = caller.workspace(params.workspace_id)?;
    match api.store.definition(DefinitionRef::Name(definition), Some(workspace)).await {
        Ok(found) => Ok(vec![found.id]),
        Err(store::Error::NotFound) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Applies a search text: executions by id or idempotency key, else definitions by the beginning of their names.
async fn narrow(api: &Api, workspace: WorkspaceId, text: &str, filter: &mut ExecutionFilter) -> Result<(), Problem> {
    if text.is_empty() || text.chars().count() > 200 {
        return Err(Problem::new(Code::ValidationFailed, "text: must have 1 to 200 characters"));
    }
    // A text that is no prefix of an id gets an empty range: no id is both after the last and before the first id.
    let ids = range(text).unwrap_or((Uuid::max(), Uuid::nil()));
    let found = api.store.search_executions(workspace, ids, text, MAX_MATCHES).await?;
    if !found.is_empty() {
        filter.ids = Some(found);
        return Ok(());
    }
    let matching = api.store.search_definitions(workspace, text, MAX_MATCHING_DEFINITIONS).await?;
    let both = |id: &DefinitionId| filter.definitions.as_ref().is_none_or(|asked| asked.contains(id));
    filter.definitions = Some(matching.into_iter().filter(both).collect());
    Ok(())
}

/// The first and the last id with this prefix.
fn range(text: &str) -> Option<(Uuid, Uuid)> {
    let shape = "00000000-0000-0000-0000-000000000000";
    let fits = |(given, shape): (char, char)| if shape == '-' { given == '-' } else { given.is_ascii_hexdigit() };
    let is_prefix = (ID_PREFIX..=shape.len()).contains(&text.len()) && text.chars().zip(shape.chars()).all(fits);
    let fill = |digit: &str| format!("{text}{}", shape[text.len()..].replace('0', digit)).parse().ok();
    if is_prefix { Some((fill("0")?, fill("f")?)) } else { None }
}

async fn answer(api: &Api, filter: ExecutionFilter) -> Result<Reply<Page<ExecutionListItem>>, Problem> {
    let (rows, next) = api.store.executions(&filter).await?;
    let next_cursor = next.map(|id| page::write(page::ListKind::Executions, id.0.as_bytes()));
    Ok(Reply(Page { items: rows.into_iter().map(wire).collect(), next_cursor }))
}

fn wire(row: ExecutionSummary) -> ExecutionListItem {
    ExecutionListItem {
        id: row.id,
        queue_id: row.id.queue_item(),
        workspace_id: row.workspace,
        workflow_definition_id: row.definition,
        workflow_name: row.definition_name,
        version_id: row.version,
        version: row.version_number,
        status: row.status,
        error: row.error,
        priority: row.priority,
        concurrency_key: row.concurrency_key,
        created_at: row.created_at,
        started_at: row.started_at,
        completed_at: row.completed_at,
        duration_ms: row.duration_ms,
        cancel_requested_at: row.cancel_requested_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_id_names_a_range_once_it_is_long_enough() {
        let whole = "019a8f2c-1b3d-7c4e-8a5f-0123456789ab";
        for length in 0..=whole.len() {
            let found = range(&whole[..length]);
            assert_eq!(found.is_some(), length >= ID_PREFIX, "{length}");
            if let Some((first, last)) = found {
                let id: Uuid = whole.parse().expect("an id");
                assert!(first <= id && id <= last);
                assert!(first.to_string().starts_with(&whole[..length]));
            }
        }
        for text in [
            "order-12345678",
            "019a8f2c_1b3d-7",
            "019a8f2c-1b3d-7c4e-8a5f-0123456789abc",
            "ééééééé",
            "0123456789abcdef",
        ] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn statuses_are_separated_by_commas() {
        assert_eq!(statuses(None).ok(), Some(vec![]));
        assert_eq!(statuses(Some("FAILED,TIMED_OUT")).ok(), Some(vec![Status::Failed, Status::TimedOut]));
        for bad in ["", "failed", "FAILED,", "FAILED RUNNING"] {
            assert_eq!(statuses(Some(bad)).expect_err(bad).code, Code::ValidationFailed);
        }
    }
}
