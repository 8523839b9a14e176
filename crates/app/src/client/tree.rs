//! What is below an execution: the children of its nodes, and theirs; and the items of a loop.
//!
//! Invariants
//! - A tree is shown from the top, each child before what it made; what is left out is said.
//!
//! Not here: an execution itself (`execution`).

use kernel::ids::ExecutionId;
use serde_json::json;
use server::wire;

use super::Format;
use super::connection::Session;
use super::execution::{path, table};
use super::page::Paging;
use crate::exit::Exit;
use crate::output::{self, Cell};

/// The most that are shown of a tree.
const MOST: usize = 1_000;

/// Shows how each item of a loop went.
pub(super) async fn items(session: &Session, id: ExecutionId, node: &str) -> anyhow::Result<Exit> {
    let payloads = if session.format == Format::Json { "true" } else { "false" };
    let query = [("node", node), ("iterations", "true"), ("payloads", payloads)];
    let listed = Paging::every().fetch::<wire::Node>(session, &format!("{}/nodes", path(id)), &query).await?;
    match session.format {
        Format::Json => listed.show(session, &[], |_| Vec::new())?,
        Format::Table => table(&listed.items, session.stdout)?,
    }
    Ok(Exit::Done)
}

/// Shows what the nodes of an execution made, and what those made.
pub(super) async fn children(session: &Session, id: ExecutionId) -> anyhow::Result<Exit> {
    let mut shown: Vec<wire::Child> = Vec::new();
    let mut open = of(session, id).await?;
    open.reverse();
    while let Some(child) = open.pop() {
        if shown.len() == MOST {
            session.tell(format!("There are more: only {MOST} are shown"))?;
            break;
        }
        let below = of(session, child.execution_id).await?;
        open.extend(below.into_iter().rev());
        shown.push(child);
    }
    match session.format {
        Format::Json => output::json(&json!({ "items": shown }).to_string(), session.stdout)?,
        Format::Table => {
            let head = ["EXECUTION", "MADE BY", "WORKFLOW", "STATUS", "TOOK", "DETAIL"];
            output::table(&head, shown.iter().map(row).collect(), session.stdout)?;
        }
    }
    Ok(Exit::Done)
}

async fn of(session: &Session, id: ExecutionId) -> anyhow::Result<Vec<wire::Child>> {
    Ok(Paging::every().fetch(session, &format!("{}/children", path(id)), &[]).await?.items)
}

fn row(child: &wire::Child) -> Vec<Cell> {
    let indent = "  ".repeat(usize::try_from(child.depth - 1).unwrap_or(0));
    let place = if child.iteration > 0 { format!("[{}]", child.iteration) } else { String::new() };
    vec![
        Cell::new(child.execution_id),
        Cell::new(format!("{indent}{}{place}", output::clean(&child.node))),
        Cell::new(child.workflow_name.as_deref().unwrap_or_default()),
        Cell::status(child.status.name()),
        Cell::maybe(child.duration_ms.map(output::took)),
        Cell::maybe(child.error.as_ref().map(output::failure)),
    ]
}
