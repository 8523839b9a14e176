//! One execution: as it stands, and as it goes.
//!
//! Invariants
//! - One that waits says why, and one that runs says at which nodes it is.
//!
//! Not here: following one to its end (`watch`), starting (`run`), ending (`ends`), lists (`list`).

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::run::node;
use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};
use super::page::Paging;
use super::which::{self, Which};
use super::{Act, Format, items, queue, watch};
use crate::exit::Exit;
use crate::output::{self, Cell, Look};

/// Show an execution: how it stands, what it made, why it failed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay get @latest
  forebay get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --nodes
  forebay get @latest --items each          how each item of the loop `each` went")]
pub(crate) struct Get {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    /// Its nodes instead; with -o json their inputs and outputs too
    #[arg(long)]
    nodes: bool,
    /// The items of this FOR_EACH node instead, each as a node
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    items: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// Follow an execution to its end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line begins with the end of the execution's id, so that several can be followed in one terminal.

Examples:
  forebay watch @latest:order
  forebay watch 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --timeout 5m")]
pub(crate) struct Watch {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    /// How long to watch, such as 60s; the execution goes on
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    place: Place,
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let path = path(id);
        if self.nodes {
            let nodes =
                Paging::every().fetch::<wire::Node>(session, &format!("{path}/nodes"), &[]).await?.into_answer();
            session.show(&nodes, |nodes| list(&nodes.items, session.stdout))?;
            return Ok(Exit::Done);
        }
        if let Some(node) = &self.items {
            return items::show(session, id, node).await;
        }
        let execution: Answer<wire::Execution> = session.api.get(&path, &[]).await?;
        let now = if session.format == Format::Table { standing(session, &execution.value).await? } else { Vec::new() };
        session.show(&execution, |execution| card(execution, now, session.stdout))?;
        if execution.value.status == Status::Pending {
            session.tell(format!("more on why it waits: {}", session.hint(&["queue", &id.to_string()])))?;
        }
        Ok(Exit::Done)
    }
}

impl Act for Watch {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        watch::follow(session, id, self.timeout).await
    }
}

/// Where an execution is, below `/api/v1/`.
pub(super) fn path(execution: ExecutionId) -> String {
    format!("workflow/executions/{execution}")
}

/// What an execution that has not ended is at: why it waits, or the nodes that run.
async fn standing(session: &Session, execution: &wire::Execution) -> anyhow::Result<Vec<(&'static str, Cell)>> {
    match execution.status {
        Status::Pending => {
            let path = format!("workflow/queue/{}", execution.queue_id);
            let item: Answer<wire::QueueItem> = session.api.get(&path, &[]).await?;
            Ok(queue::why(&item.value))
        }
        Status::Running => {
            let path = format!("{}/nodes", path(execution.id));
            let nodes: Answer<wire::Nodes> = session.api.get(&path, &[("payloads", "false")]).await?;
            let moving = nodes.value.items.iter().filter(|node| watch::is_moving(node));
            Ok(moving.map(|node| ("at node", Cell::new(at(node)))).collect())
        }
        _ => Ok(Vec::new()),
    }
}

fn at(node: &wire::Node) -> String {
    let detail = Some(watch::detail(node)).filter(|detail| !detail.is_empty());
    let rest = [Some(output::clean(&node.kind)), detail].into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("{} ({rest})", watch::name(node))
}

fn card(execution: &wire::Execution, now: Vec<(&'static str, Cell)>, look: Look) -> anyhow::Result<()> {
    let name = execution.workflow_name.clone().unwrap_or_else(|| execution.workflow_definition_id.to_string());
    let version = execution.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let mut pairs = vec![
        ("execution", Cell::new(execution.id)),
        ("workflow", Cell::new(format!("{name}{version}"))),
        ("status", Cell::status(execution.status.name())),
    ];
    pairs.extend(now);
    pairs.push(("created", Cell::new(output::time(execution.created_at))));
    pairs.extend(execution.started_at.map(|at| ("started", Cell::new(output::time(at)))));
    pairs.extend(execution.completed_at.map(|at| ("ended", Cell::new(output::time(at)))));
    pairs.extend(execution.duration_ms.map(|ms| ("took", Cell::new(output::took(ms)))));
    let is_open = !execution.status.is_terminal();
    pairs.extend(execution.cancel_requested_at.filter(|_| is_open).map(|_| ("cancel", Cell::new("asked for"))));
    pairs.extend(execution.concurrency_key.as_ref().map(|key| ("key", Cell::new(key))));
    pairs.extend(execution.rerun_of.map(|old| ("rerun of", Cell::new(old))));
    pairs.extend(execution.parent_execution_id.map(|parent| ("made by", Cell::new(made_by(parent, execution)))));
    pairs.extend(execution.error.as_ref().map(|error| ("error", Cell::new(output::failure(error)))));
    output::record(&pairs, look)?;
    match execution.output.as_ref().filter(|output| !output.is_null()) {
        Some(value) => output::line("output").and_then(|()| output::value(value)),
        None => Ok(()),
    }
}

/// The execution and node that made a child.
fn made_by(parent: ExecutionId, child: &wire::Execution) -> String {
    let node = child.parent_node.as_deref().map(output::clean).unwrap_or_default();
    match child.parent_iteration {
        Some(iteration) if iteration > 0 => format!("{parent}, node {node}[{iteration}]"),
        _ => format!("{parent}, node {node}"),
    }
}

fn list(nodes: &[wire::Node], look: Look) -> anyhow::Result<()> {
    table(nodes, look)
}

/// Nodes as a table.
pub(super) fn table(nodes: &[wire::Node], look: Look) -> anyhow::Result<()> {
    let row = |node: &wire::Node| {
        vec![
            Cell::new(watch::name(node)),
            Cell::new(&node.kind),
            Cell::status(node.status.name()),
            Cell::new(node.attempt),
            Cell::maybe(node.duration_ms.filter(|_| node.status != node::Status::Skipped).map(output::took)),
            Cell::new(watch::detail(node)),
        ]
    };
    let head = ["NODE", "KIND", "STATUS", "ATTEMPT", "TOOK", "DETAIL"];
    output::table(&head, nodes.iter().map(row).collect(), look)
}
