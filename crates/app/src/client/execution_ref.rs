//! How an execution is named on the command line: by its id, or `@latest`.
//!
//! Invariants
//! - `@latest` is resolved to an id once, at the start of the command.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use kernel::ids::ExecutionId;
use server::wire;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};

/// The help for an argument that names an execution.
pub(crate) const HELP: &str =
    "The execution: its id, @latest for the newest of the workspace, or @latest:WORKFLOW for the newest of a workflow";

/// An execution as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExecutionRef {
    Id(ExecutionId),
    Latest { workflow: Option<String> },
}

impl FromStr for ExecutionRef {
    type Err = String;
    fn from_str(text: &str) -> Result<ExecutionRef, String> {
        let expected =
            || "write an execution id such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a, @latest, or @latest:WORKFLOW";
        match text.strip_prefix("@latest") {
            Some("") => Ok(ExecutionRef::Latest { workflow: None }),
            Some(rest) => {
                let workflow = rest.strip_prefix(':').filter(|workflow| !workflow.is_empty()).ok_or_else(expected)?;
                Ok(ExecutionRef::Latest { workflow: Some(workflow.to_owned()) })
            }
            None => text.parse().map(ExecutionRef::Id).map_err(|_| expected().to_owned()),
        }
    }
}

impl fmt::Display for ExecutionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExecutionRef::Id(id) => write!(f, "{id}"),
            ExecutionRef::Latest { workflow: None } => f.write_str("@latest"),
            ExecutionRef::Latest { workflow: Some(workflow) } => write!(f, "@latest:{workflow}"),
        }
    }
}

impl ExecutionRef {
    /// Resolves the id. `@latest` is the latest execution of one workspace. So the user of a key with access to several
    /// workspaces must name one: otherwise a command could end or show an execution of another tenant.
    pub(crate) async fn find(&self, session: &Session, workspace: &WorkspaceArg) -> anyhow::Result<ExecutionId> {
        let workflow = match self {
            ExecutionRef::Id(id) => return Ok(*id),
            ExecutionRef::Latest { workflow } => workflow,
        };
        let workspace = session.workspace(workspace).await?.map(|id| id.to_string());
        let mut query = vec![("limit", "1"), ("inOneWorkspace", "true")];
        query.extend(workspace.as_deref().map(|id| ("workspaceId", id)));
        query.extend(workflow.as_deref().map(|workflow| ("definition", workflow)));
        let page: Answer<wire::Page<wire::ExecutionListItem>> =
            session.api.get("workflow/executions", &query).await.with_context(|| format!("find {self}"))?;
        let found = page.value.items.first().map(|execution| execution.id);
        found.with_context(|| format!("{self}: there is no execution yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_an_id_or_the_newest() {
        for text in ["019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a", "@latest", "@latest:order", "@latest:a:b"] {
            assert_eq!(text.parse::<ExecutionRef>().map(|which| which.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "@", "@late", "@latest:", "@latestorder", "latest", "order"] {
            assert!(text.parse::<ExecutionRef>().is_err(), "{text}");
        }
    }
}
