//! `get --items`: the items of a loop, each shown as a node.
//!
//! Not here: the execution of the loop (`execution`), child executions (`tree`).

use kernel::ids::ExecutionId;
use server::wire;

use super::Format;
use super::connection::Session;
use super::execution::{path, print_nodes};
use super::page::PageArgs;
use crate::exit::Exit;

/// Shows the status of each item of a loop.
pub(super) async fn show(session: &Session, id: ExecutionId, node: &str) -> anyhow::Result<Exit> {
    let payloads = if session.format == Format::Json { "true" } else { "false" };
    let query = [("node", node), ("iterations", "true"), ("payloads", payloads)];
    let listed =
        PageArgs::every().fetch::<wire::ExecutionNode>(session, &format!("{}/nodes", path(id)), &query).await?;
    match session.format {
        Format::Json => listed.show(session, &[], |_| Vec::new())?,
        Format::Table => print_nodes(&listed.items, session.stdout)?,
    }
    Ok(Exit::Done)
}
