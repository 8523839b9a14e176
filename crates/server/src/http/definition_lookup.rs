//! Finds a definition, and explains why it was not found in the workspace that a request names.
//!
//! Invariants
//! - Only a root key, which may access every workspace, learns that a definition exists in another workspace.
//!
//! Not here: the query (`store::definition`).

use kernel::ids::{DefinitionId, WorkspaceId};
use store::definition::{Definition, DefinitionRef};

use super::auth::Caller;
use super::{Api, Code, Problem};

/// Finds a definition of that workspace. Without a workspace it finds a definition of any workspace.
pub(crate) async fn find(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    id: DefinitionId,
) -> Result<Definition, Problem> {
    match (api.store.definition(DefinitionRef::Id(id), workspace).await, workspace) {
        (Err(store::Error::NotFound), Some(workspace)) => Err(not_found(api, caller, workspace, id).await),
        (Err(store::Error::NotFound), None) => Err(Problem::not_found("definition")),
        (found, _) => Ok(found?),
    }
}

/// The error for a definition that is not in that workspace.
pub(crate) async fn not_found(api: &Api, caller: &Caller, workspace: WorkspaceId, id: DefinitionId) -> Problem {
    let problem = Problem::not_found("definition in this workspace");
    if caller.workspace.is_some() {
        return problem;
    }
    match api.store.definition(DefinitionRef::Id(id), None).await {
        Ok(known) if known.workspace != workspace => {
            let actual = known.workspace;
            let detail = format!(
                "the definition belongs to workspace {actual}, but the request names {workspace}: send workspaceId \
                 {actual}"
            );
            Problem::new(Code::WorkspaceMismatch, detail)
        }
        Ok(_) | Err(store::Error::NotFound) => problem,
        Err(error) => error.into(),
    }
}
