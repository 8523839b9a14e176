//! The items of a loop, each as a node.
//!
//! Not here: an execution itself (`execution`), what its nodes made (`tree`).

use kernel::ids::ExecutionId;
use server::wire;

use super::Format;
use super::connection::Session;
use super::execution::{path, table};
use super::page::Paging;
use crate::exit::Exit;

/// Shows how each item of a loop went.
pub(super) async fn show(session: &Session, id: ExecutionId, node: &str) -> anyhow::Result<Exit> {
    let payloads = if session.format == Format::Json { "true" } else { "false" };
    let query = [("node", node), ("iterations", "true"), ("payloads", payloads)];
    let listed = Paging::every().fetch::<wire::Node>(session, &format!("{}/nodes", path(id)), &query).await?;
    match session.format {
        Format::Json => listed.show(session, &[], |_| Vec::new())?,
        Format::Table => table(&listed.items, session.stdout)?,
    }
    Ok(Exit::Done)
}
