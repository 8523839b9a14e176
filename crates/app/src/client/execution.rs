//! Executions: started, looked at, canceled.
//!
//! Invariants
//! - A start carries an idempotency key, given or made up, so that repeating it after a lost answer
//!   starts nothing twice.
//! - An execution's output is the only thing on stdout when it is watched.
//!
//! Not here: following one to its end (`client::watch`), reading its input (`client::input`).

use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::{ExecutionId, QueueItemId};
use kernel::node;
use kernel::queue::Priority;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::connection::Session;
use super::input::{self, Setting};
use super::{Exit, definition, watch};
use crate::output::{self, Cell, Look};

/// Start a workflow, and watch it if you like
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --watch the output goes to stdout, progress to stderr, and the exit code says how it ended.

Examples:
  forebay run hello -i name=World --watch
  forebay run order-enrichment --input @order.json -i priority.level=2 --priority 1
  forebay run nightly --at 2030-01-31T02:00:00Z --idempotency-key nightly-2030-01-31
  forebay run report --watch --timeout 60s -o json | jq .output")]
pub(crate) struct Run {
    /// The workflow, by name or id
    #[arg(value_name = "NAME|ID")]
    workflow: String,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input: JSON if it reads as JSON, else text; dots lead into objects
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// 1 goes first, 3 is usual, 5 goes last
    #[arg(long, value_name = "N", value_parser = read_priority)]
    priority: Option<Priority>,
    /// Not before this time: 2030-01-31T09:00:00Z, or how long from now, such as 10m
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    at: Option<Timestamp>,
    /// Executions with the same key take turns
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// The same key starts the same execution only once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Follow it to its end
    #[arg(short, long)]
    watch: bool,
    /// How long to watch, such as 60s; the execution goes on
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse, requires = "watch")]
    timeout: Option<Duration>,
}

/// Show an execution: how it stands, what it made, why it failed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --nodes")]
pub(crate) struct Get {
    /// Its id
    #[arg(value_parser = read_id::<ExecutionId>)]
    execution: ExecutionId,
    /// Its nodes instead; with -o json their inputs and outputs too
    #[arg(long)]
    nodes: bool,
}

/// Follow an execution to its end
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay watch 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --timeout 5m")]
pub(crate) struct Watch {
    /// Its id
    #[arg(value_parser = read_id::<ExecutionId>)]
    execution: ExecutionId,
    /// How long to watch, such as 60s; the execution goes on
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse)]
    timeout: Option<Duration>,
}

/// Show a queue item: its place in line, and why it waits
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay queue 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Queue {
    /// The queue item's id; an execution's is the same
    #[arg(value_name = "QUEUE_ID", value_parser = read_id::<QueueItemId>)]
    item: QueueItemId,
}

/// Cancel an execution, waiting or running
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay cancel 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Cancel {
    /// Its id
    #[arg(value_parser = read_id::<ExecutionId>)]
    execution: ExecutionId,
}

fn read_id<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write its id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a".to_owned())
}

fn read_priority(text: &str) -> Result<Priority, String> {
    let number = text.parse().map_err(|_| "write a number from 1 to 5".to_owned())?;
    Priority::new(number).map_err(|bad| bad.to_string())
}

impl Run {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        let input = input::assemble(self.input.as_deref(), &self.settings)?;
        let definition = definition::find(session, &self.workflow).await?;
        let body = wire::StartExecution {
            workflow_definition_id: definition.id,
            workspace_id: Some(definition.workspace_id),
            input,
            priority: self.priority,
            run_at: self.at,
            concurrency_key: self.concurrency_key,
        };
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        let started: Answer<wire::Started> = session
            .api
            .post_once("workflow/executions/start", &body, &key)
            .await
            .with_context(|| format!("start {}", self.workflow))?;
        let id = started.value.execution_id;
        if self.watch {
            output::note(format!("execution {id}"))?;
            return watch::follow(session, id, self.timeout).await;
        }
        session.show(&started, |started| announce(started, session.stdout))?;
        output::note(format!("watch it: forebay watch {id}\nwhy it waits: forebay queue {}", started.value.queue_id))?;
        Ok(Exit::Done)
    }
}

impl Get {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        let path = path(self.execution);
        if self.nodes {
            let nodes: Answer<wire::Nodes> = session.api.get(&format!("{path}/nodes"), &[]).await?;
            session.show(&nodes, |nodes| list(nodes, session.stdout))?;
        } else {
            let execution: Answer<wire::Execution> = session.api.get(&path, &[]).await?;
            session.show(&execution, |execution| card(execution, session.stdout))?;
        }
        Ok(Exit::Done)
    }
}

impl Watch {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        watch::follow(session, self.execution, self.timeout).await
    }
}

impl Queue {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        let item: Answer<wire::QueueItem> = session.api.get(&format!("workflow/queue/{}", self.item), &[]).await?;
        session.show(&item, |item| ticket(item, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Cancel {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("{}/cancel", path(self.execution));
        let canceled: Answer<wire::Canceled> = session.api.post(&path, &serde_json::json!({})).await?;
        session.show(&canceled, |canceled| output::line(told(canceled)))?;
        Ok(Exit::Done)
    }
}

/// Where an execution is, below `/api/v1/`.
pub(super) fn path(execution: ExecutionId) -> String {
    format!("workflow/executions/{execution}")
}

fn told(canceled: &wire::Canceled) -> String {
    let id = canceled.execution_id;
    match canceled.status {
        Status::Canceled => format!("{id}: CANCELED"),
        status if status.is_terminal() => format!("{id}: had ended already, {}", status.name()),
        status => format!("{id}: {}, its nodes are being stopped", status.name()),
    }
}

fn announce(started: &wire::Started, look: Look) -> anyhow::Result<()> {
    let pairs = [
        ("execution", Cell::new(started.execution_id)),
        ("queue", Cell::new(started.queue_id)),
        ("status", Cell::status(started.status.name())),
    ];
    output::record(&pairs, look)
}

fn ticket(item: &wire::QueueItem, look: Look) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("queue", Cell::new(item.queue_id)),
        ("status", Cell::status(item.status.name())),
        ("execution", Cell::status(item.execution_status.name())),
        ("priority", Cell::new(item.priority)),
        ("created", Cell::new(output::time(item.created_at))),
    ];
    pairs.extend(item.position.map(|position| ("position", Cell::new(output::count(position)))));
    pairs.extend(item.waiting.as_ref().map(|waiting| ("waiting", Cell::new(&waiting.message))));
    pairs.extend((item.attempts > 0).then(|| ("attempts", Cell::new(item.attempts))));
    pairs.extend(item.last_error.as_ref().map(|error| ("last error", Cell::new(error))));
    output::record(&pairs, look)
}

fn card(execution: &wire::Execution, look: Look) -> anyhow::Result<()> {
    let name = execution.workflow_name.clone().unwrap_or_else(|| execution.workflow_definition_id.to_string());
    let version = execution.version.map(|version| format!(", version {version}")).unwrap_or_default();
    let mut pairs = vec![
        ("execution", Cell::new(execution.id)),
        ("workflow", Cell::new(format!("{name}{version}"))),
        ("status", Cell::status(execution.status.name())),
        ("created", Cell::new(output::time(execution.created_at))),
    ];
    pairs.extend(execution.started_at.map(|at| ("started", Cell::new(output::time(at)))));
    pairs.extend(execution.completed_at.map(|at| ("ended", Cell::new(output::time(at)))));
    pairs.extend(execution.duration_ms.map(|ms| ("took", Cell::new(output::took(ms)))));
    let is_open = !execution.status.is_terminal();
    pairs.extend(execution.cancel_requested_at.filter(|_| is_open).map(|_| ("cancel", Cell::new("asked for"))));
    pairs.extend(execution.concurrency_key.as_ref().map(|key| ("key", Cell::new(key))));
    pairs.extend(execution.error.as_ref().map(|error| ("error", Cell::new(output::failure(error)))));
    output::record(&pairs, look)?;
    match execution.output.as_ref().filter(|output| !output.is_null()) {
        Some(value) => output::line("output").and_then(|()| output::value(value)),
        None => Ok(()),
    }
}

fn list(nodes: &wire::Nodes, look: Look) -> anyhow::Result<()> {
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
    output::table(&head, nodes.items.iter().map(row).collect(), look)
}
