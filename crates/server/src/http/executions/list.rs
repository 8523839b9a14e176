//! Lists of executions: of a workspace, of a definition, or all that a key may see.
//!
//! Invariants
//! - Every filter is served by an index; a text that no index could find is not looked for.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, WorkspaceId};
use store::definition::Which;
use store::execution::list::{Filter, Listed, Place};
use uuid::Uuid;

use crate::http::auth::Caller;
use crate::http::body::{Id, Params};
use crate::http::page::list_params;
use crate::http::workspaces;
use crate::http::{Api, Code, Problem, page};
use crate::wire::{ListedExecution, Page};

/// An id says its millisecond in so many characters: shorter texts would name too many.
const ID_PREFIX: usize = 13;
/// How many executions, and how many definitions, a text may mean.
const MEANT: i64 = 200;
const DEFINITIONS_MEANT: i64 = 20;

list_params! {
    pub(crate) struct Everywhere {
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        /// True: of one workspace only. With a root key `workspaceId` is then required, so that the newest of all
        /// workspaces is never taken for the newest of one.
        in_one_workspace: Option<bool>,
        /// A definition's id; or its name, which with a root key needs `workspaceId`.
        definition: Option<String>,
        /// One status or several, separated by commas.
        #[param(example = "FAILED,TIMED_OUT")]
        status: Option<String>,
        /// Created at this time or later.
        created_after: Option<Timestamp>,
        /// Created before this time.
        created_before: Option<Timestamp>,
        /// Whatever of these finds something first: the first 13 characters or more of an id, a whole idempotency
        /// key, the start of a definition's name. With a root key it needs `workspaceId`.
        #[param(min_length = 1, max_length = 200)]
        text: Option<String>,
    }
}

list_params! {
    /// The same filters where the address names the workspace or the definition.
    pub(crate) struct Narrowed {
        /// One status or several, separated by commas.
        #[param(example = "FAILED,TIMED_OUT")]
        status: Option<String>,
        /// Created at this time or later.
        created_after: Option<Timestamp>,
        /// Created before this time.
        created_before: Option<Timestamp>,
    }
}

/// Executions, newest first.
#[utoipa::path(get, path = "/workflow/executions", tag = "executions", params(Everywhere),
    responses((status = 200, body = Page<ListedExecution>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<Everywhere>,
) -> Result<Reply<Page<ListedExecution>>, Problem> {
    let workspace = match params.in_one_workspace {
        Some(true) => Some(caller.workspace(params.workspace_id)?),
        _ => caller.sees(params.workspace_id)?,
    };
    let created = (params.created_after, params.created_before);
    let page = params.page(page::List::Executions, place_of)?;
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

/// The executions of a definition, newest first; also after it was deleted.
#[utoipa::path(get, path = "/workflow/executions/workflow/{definitionId}", tag = "executions",
    params(("definitionId" = DefinitionId, Path), Narrowed), responses((status = 200, body = Page<ListedExecution>)))]
pub(crate) async fn of_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<Narrowed>,
) -> Result<Reply<Page<ListedExecution>>, Problem> {
    let filter = Filter { definitions: Some(vec![id]), ..params.filter(caller.workspace)? };
    if !api.store.knows_definition(id, caller.workspace).await? {
        return Err(Problem::not_found("definition"));
    }
    answer(&api, filter).await
}

/// The executions of a workspace, newest first.
#[utoipa::path(get, path = "/workflow/executions/workspace/{workspaceId}", tag = "executions",
    params(("workspaceId" = WorkspaceId, Path), Narrowed), responses((status = 200, body = Page<ListedExecution>)))]
pub(crate) async fn of_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Params(params): Params<Narrowed>,
) -> Result<Reply<Page<ListedExecution>>, Problem> {
    workspaces::visible(&caller, id)?;
    let filter = params.filter(Some(id))?;
    api.store.workspace(id).await.map_err(workspaces::not_found)?;
    answer(&api, filter).await
}

impl Narrowed {
    fn filter(&self, workspace: Option<WorkspaceId>) -> Result<Filter, Problem> {
        let page = self.page(page::List::Executions, place_of)?;
        filter(workspace, self.status.as_deref(), (self.created_after, self.created_before), page)
    }
}

fn filter(
    workspace: Option<WorkspaceId>,
    status: Option<&str>,
    (from, until): (Option<Timestamp>, Option<Timestamp>),
    (limit, after): (i64, Option<Place<Uuid>>),
) -> Result<Filter, Problem> {
    Ok(Filter { workspace, statuses: statuses(status)?, from, until, after, limit, definitions: None, ids: None })
}

fn place_of(bytes: &[u8]) -> Option<Place<Uuid>> {
    page::place_of(bytes, Uuid::from_bytes)
}

fn statuses(text: Option<&str>) -> Result<Vec<Status>, Problem> {
    let known = |name: &str| {
        Status::parse(name).ok_or_else(|| {
            let all: Vec<&str> = Status::ALL.into_iter().map(Status::name).collect();
            Problem::new(Code::ValidationFailed, format!("status: any of {}, separated by commas", all.join(", ")))
        })
    };
    text.into_iter().flat_map(|text| text.split(',')).map(known).collect()
}

/// The definition of an id, or of a name; nothing is found of one that is not there.
async fn definitions(
    api: &Api,
    caller: &Caller,
    params: &Everywhere,
    definition: &str,
) -> Result<Vec<DefinitionId>, Problem> {
    if let Ok(id) = definition.parse() {
        return Ok(vec![id]);
    }
    let workspace = caller.workspace(params.workspace_id)?;
    match api.store.definition(Which::Name(definition), Some(workspace)).await {
        Ok(found) => Ok(vec![found.id]),
        Err(store::Error::NotFound) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// What a text means: executions by id or idempotency key, else definitions by the start of their names.
async fn narrow(api: &Api, workspace: WorkspaceId, text: &str, filter: &mut Filter) -> Result<(), Problem> {
    if text.is_empty() || text.chars().count() > 200 {
        return Err(Problem::new(Code::ValidationFailed, "text: 1 to 200 characters"));
    }
    // No id is after the last and before the first.
    let ids = range(text).unwrap_or((Uuid::max(), Uuid::nil()));
    let found = api.store.search_executions(workspace, ids, text, MEANT).await?;
    if !found.is_empty() {
        filter.ids = Some(found);
        return Ok(());
    }
    let meant = api.store.search_definitions(workspace, text, DEFINITIONS_MEANT).await?;
    let both = |id: &DefinitionId| filter.definitions.as_ref().is_none_or(|asked| asked.contains(id));
    filter.definitions = Some(meant.into_iter().filter(both).collect());
    Ok(())
}

/// The first and the last id that begin so.
fn range(text: &str) -> Option<(Uuid, Uuid)> {
    let shape = "00000000-0000-0000-0000-000000000000";
    let fits = |(given, shape): (char, char)| if shape == '-' { given == '-' } else { given.is_ascii_hexdigit() };
    let is_prefix = (ID_PREFIX..=shape.len()).contains(&text.len()) && text.chars().zip(shape.chars()).all(fits);
    let fill = |digit: &str| format!("{text}{}", shape[text.len()..].replace('0', digit)).parse().ok();
    if is_prefix { Some((fill("0")?, fill("f")?)) } else { None }
}

async fn answer(api: &Api, filter: Filter) -> Result<Reply<Page<ListedExecution>>, Problem> {
    let rows = api.store.executions(&Filter { limit: filter.limit + 1, ..filter.clone() }).await?;
    let cursor = |row: &Listed| page::write(page::List::Executions, &page::timed(row.created_at, *row.id.0.as_bytes()));
    Ok(Reply(page::page(rows, filter.limit, cursor, wire)))
}

fn wire(row: Listed) -> ListedExecution {
    ListedExecution {
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
    fn statuses_are_told_apart_by_commas() {
        assert_eq!(statuses(None).ok(), Some(vec![]));
        assert_eq!(statuses(Some("FAILED,TIMED_OUT")).ok(), Some(vec![Status::Failed, Status::TimedOut]));
        for bad in ["", "failed", "FAILED,", "FAILED RUNNING"] {
            assert_eq!(statuses(Some(bad)).expect_err(bad).code, Code::ValidationFailed);
        }
    }
}
