//! Which execution is meant: by id, or the newest.
//!
//! Invariants
//! - `@latest` is looked up once, and the command goes on with that id.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use kernel::ids::ExecutionId;
use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};

/// What to write for an execution.
pub(crate) const HELP: &str =
    "Its id, or @latest for the newest one of the workspace, or @latest:WORKFLOW for the newest of that workflow";

/// An execution as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Id(ExecutionId),
    Latest { workflow: Option<String> },
}

impl FromStr for Which {
    type Err = String;
    fn from_str(text: &str) -> Result<Which, String> {
        let expected = || "write its id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a, or @latest, or @latest:WORKFLOW";
        match text.strip_prefix("@latest") {
            Some("") => Ok(Which::Latest { workflow: None }),
            Some(rest) => {
                let workflow = rest.strip_prefix(':').filter(|workflow| !workflow.is_empty()).ok_or_else(expected)?;
                Ok(Which::Latest { workflow: Some(workflow.to_owned()) })
            }
            None => text.parse().map(Which::Id).map_err(|_| expected().to_owned()),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Id(id) => write!(f, "{id}"),
            Which::Latest { workflow: None } => f.write_str("@latest"),
            Which::Latest { workflow: Some(workflow) } => write!(f, "@latest:{workflow}"),
        }
    }
}

impl Which {
    /// The id that is meant. The newest is that of one workspace: a key that sees several must name one, or a command
    /// could end or show an execution of another tenant.
    pub(crate) async fn find(&self, session: &Session, place: &Place) -> anyhow::Result<ExecutionId> {
        let workflow = match self {
            Which::Id(id) => return Ok(*id),
            Which::Latest { workflow } => workflow,
        };
        let workspace = session.workspace(place).await?.map(|id| id.to_string());
        let mut query = vec![("limit", "1"), ("inOneWorkspace", "true")];
        query.extend(workspace.as_deref().map(|id| ("workspaceId", id)));
        query.extend(workflow.as_deref().map(|workflow| ("definition", workflow)));
        let page: Answer<wire::Page<wire::ListedExecution>> =
            session.api.get("workflow/executions", &query).await.with_context(|| format!("find {self}"))?;
        let found = page.value.items.first().map(|execution| execution.id);
        found.with_context(|| format!("there is no execution for {self} to mean"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_an_id_or_the_newest() {
        for text in ["019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a", "@latest", "@latest:order", "@latest:a:b"] {
            assert_eq!(text.parse::<Which>().map(|which| which.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "@", "@late", "@latest:", "@latestorder", "latest", "order"] {
            assert!(text.parse::<Which>().is_err(), "{text}");
        }
    }
}
