//! Why a definition was not found in the workspace that a request names.
//!
//! Invariants
//! - Only a caller who may see every workspace learns that a definition exists in another one.
//!
//! Not here: finding it (`store::definition`).

use kernel::ids::{DefinitionId, WorkspaceId};
use store::definition::{Definition, Which};

use super::auth::Caller;
use super::{Api, Code, Problem};

/// The definition, if it is in that workspace; none for any workspace.
pub(crate) async fn definition(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    id: DefinitionId,
) -> Result<Definition, Problem> {
    match (api.store.definition(Which::Id(id), workspace).await, workspace) {
        (Err(store::Error::NotFound), Some(workspace)) => Err(why(api, caller, workspace, id).await),
        (Err(store::Error::NotFound), None) => Err(Problem::not_found("definition")),
        (found, _) => Ok(found?),
    }
}

/// What a caller is told of a definition that is not in that workspace.
pub(crate) async fn why(api: &Api, caller: &Caller, workspace: WorkspaceId, id: DefinitionId) -> Problem {
    let not_found = Problem::not_found("definition in this workspace");
    if caller.workspace.is_some() {
        return not_found;
    }
    match api.store.definition(Which::Id(id), None).await {
        Ok(known) if known.workspace != workspace => {
            let theirs = known.workspace;
            let detail = format!(
                "the definition belongs to workspace {theirs}, but the request names {workspace}: send workspaceId \
                 {theirs}"
            );
            Problem::new(Code::WorkspaceMismatch, detail)
        }
        Ok(_) | Err(store::Error::NotFound) => not_found,
        Err(error) => error.into(),
    }
}
