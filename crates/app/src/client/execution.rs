//! `get` and `watch`: one execution.
//!
//! Invariants
//! - A waiting execution is shown with its reason, and a running one with its running nodes.
//!
//! Not here: following an execution to its end (`watch`), starting (`run`), ending (`end`), lists (`execution_list`).

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::run::node;
use server::wire;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution_ref::{self, ExecutionRef};
use super::page::PageArgs;
use super::{Execute, Format, loop_items, queue, watch};
use crate::exit::Exit;
use crate::output::{self, Cell, StreamStyle};

/// Show an execution: its status, its output, or why it waits or failed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay get @latest
  forebay get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --nodes
  forebay get @latest --items each          the items of the loop `each`")]
pub(crate) struct GetExecutionArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    /// Show its nodes; with -o json also their inputs and outputs
    #[arg(long)]
    nodes: bool,
    /// Show the items of this FOR_EACH node
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    items: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Watch an execution until it ends
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line starts with the last characters of the execution's id, so that several executions can be watched in one \
terminal.

Examples:
  forebay watch @latest:order
  forebay watch 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --timeout 5m")]
pub(crate) struct WatchArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    /// Stop watching after this time, such as 60s; the execution continues
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for GetExecutionArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let path = path(id);
        if self.nodes {
            let nodes = PageArgs::every()
                .fetch::<wire::ExecutionNode>(session, &format!("{path}/nodes"), &[])
                .await?
                .into_answer();
            session.show(&nodes, |nodes| list(&nodes.items, session.stdout))?;
            return Ok(Exit::Done);
        }
        if let Some(node) = &self.items {
            return loop_items::show(session, id, node).await;
        }
        let execution: Answer<wire::Execution> = session.api.get(&path, &[]).await?;
        let now = if session.format == Format::Table { standing(session, &execution.value).await? } else { Vec::new() };
        session.show(&execution, |execution| card(execution, now, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Execute for WatchArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        watch::follow(session, id, self.timeout).await
    }
}

/// The path of an execution, below `/api/v1/`.
pub(super) fn path(execution: ExecutionId) -> String {
    format!("workflow/executions/{execution}")
}

/// Why an execution waits, or which of its nodes run.
async fn standing(session: &Session, execution: &wire::Execution) -> anyhow::Result<Vec<(&'static str, Cell)>> {
    match execution.status {
        Status::Pending => {
            let path = format!("workflow/queue/{}", execution.queue_id);
            let item: Answer<wire::QueueItem> = session.api.get(&path, &[]).await?;
            Ok(queue::describe_waiting(&item.value))
        }
        Status::Running => {
            let path = format!("{}/nodes", path(execution.id));
            let nodes: Answer<wire::ExecutionNodes> = session.api.get(&path, &[("payloads", "false")]).await?;
            let moving = nodes.value.items.iter().filter(|node| watch::is_active(node));
            Ok(moving.map(|node| ("running", Cell::new(at(node)))).collect())
        }
        _ => Ok(Vec::new()),
    }
}

fn at(node: &wire::ExecutionNode) -> String {
    let detail = Some(watch::node_detail(node)).filter(|detail| !detail.is_empty());
    let rest = [Some(output::clean(&node.kind)), detail].into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("{} ({rest})", watch::node_name(node))
}

fn card(execution: &wire::Execution, now: Vec<(&'static str, Cell)>, style: StreamStyle) -> anyhow::Result<()> {
    let name = execution.workflow_name.clone().unwrap_or_else(|| execution.workflow_definition_id.to_string());
    let version = execution.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let mut pairs = vec![
        ("execution", Cell::new(execution.id)),
        ("workflow", Cell::new(format!("{name}{version}"))),
        ("status", Cell::status(execution.status.name())),
    ];
    pairs.extend(now);
    pairs.push(("created", Cell::new(output::format_time(execution.created_at))));
    pairs.extend(execution.started_at.map(|at| ("started", Cell::new(output::format_time(at)))));
    pairs.extend(execution.completed_at.map(|at| ("ended", Cell::new(output::format_time(at)))));
    pairs.extend(execution.duration_ms.map(|ms| ("took", Cell::new(output::format_duration(ms)))));
    let is_open = !execution.status.is_terminal();
    pairs.extend(execution.cancel_requested_at.filter(|_| is_open).map(|_| ("cancel", Cell::new("requested"))));
    pairs.extend(execution.concurrency_key.as_ref().map(|key| ("key", Cell::new(key))));
    pairs.extend(execution.rerun_of_execution_id.map(|old| ("rerun of", Cell::new(old))));
    pairs.extend(execution.parent_execution_id.map(|parent| ("started by", Cell::new(started_by(parent, execution)))));
    pairs.extend(execution.error.as_ref().map(|error| ("error", Cell::new(output::format_failure(error)))));
    output::print_record(&pairs, style)?;
    match execution.output.as_ref().filter(|output| !output.is_null()) {
        Some(value) => output::print_line("output").and_then(|()| output::print_value(value)),
        None => Ok(()),
    }
}

/// The execution and node that started a child execution.
fn started_by(parent: ExecutionId, child: &wire::Execution) -> String {
    let node = child.parent_node.as_deref().map(output::clean).unwrap_or_default();
    match child.parent_iteration {
        Some(iteration) if iteration > 0 => format!("{parent}, node {node}[{iteration}]"),
        _ => format!("{parent}, node {node}"),
    }
}

fn list(nodes: &[wire::ExecutionNode], style: StreamStyle) -> anyhow::Result<()> {
    print_nodes(nodes, style)
}

/// Prints nodes as a table.
pub(super) fn print_nodes(nodes: &[wire::ExecutionNode], style: StreamStyle) -> anyhow::Result<()> {
    let row = |node: &wire::ExecutionNode| {
        vec![
            Cell::new(watch::node_name(node)),
            Cell::new(&node.kind),
            Cell::status(node.status.name()),
            Cell::new(node.attempt),
            Cell::optional(
                node.duration_ms.filter(|_| node.status != node::Status::Skipped).map(output::format_duration),
            ),
            Cell::new(watch::node_detail(node)),
        ]
    };
    let head = ["NODE", "KIND", "STATUS", "ATTEMPT", "TOOK", "DETAIL"];
    output::print_table(&head, nodes.iter().map(row).collect(), style)
}
