//! `run`: starts one execution, or one for each line of a file.
//!
//! Invariants
//! - Every start request has an idempotency key, given or generated, so that a repeated request starts nothing twice.
//! - With `--watch`, stdout holds only the output of the execution.
//!
//! Not here: following an execution to its end (`watch`), reading inputs (`input`), many starts (`bulk`).

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kernel::queue::Priority;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::input::{self, InputField};
use super::{Execute, bulk, definition, watch};
use crate::exit::Exit;
use crate::output::{self, Cell, StreamStyle};

/// Start an execution of a workflow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --watch the execution's output goes to stdout, its progress to stderr, and the exit code says how it ended.

With --bulk every line of the file is the input of one execution, as JSON. All lines are read before the first start. \
Each line has its own result, and the exit code is 1 if any line was refused. The same file with the same \
--idempotency-key starts nothing twice.

Examples:
  forebay run hello -i name=World --watch
  forebay run order-enrichment --input @order.json -i priority.level=2 --priority 1
  forebay run nightly --at 2030-01-31T02:00:00Z --idempotency-key nightly-2030-01-31
  forebay run report --watch --timeout 60s -o json | jq .output
  forebay run order --bulk orders.jsonl --idempotency-key orders-2030-01-31")]
pub(crate) struct RunArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input, as JSON or else text; outer.inner=value sets a nested field, id='"7"' a text of
    /// digits
    #[arg(short = 'i', long = "field", value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<InputField>,
    /// Start one execution for each line of this file, with the line as its input; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "fields", "watch"])]
    bulk: Option<String>,
    /// The priority: 1 (first) to 5 (last) [default: 3]
    #[arg(long, value_name = "N", value_parser = read_priority)]
    priority: Option<Priority>,
    /// Do not start before this time: 2030-01-31T09:00:00Z, or how long from now, such as 10m
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    at: Option<Timestamp>,
    /// Executions with the same key run one after the other
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// The same key starts only one execution [default: a new key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    follow: Follow,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Whether to watch the started execution.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Follow {
    /// Watch the execution until it ends
    #[arg(short, long)]
    watch: bool,
    /// Stop watching after this time, such as 60s; the execution continues
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse, requires = "watch")]
    timeout: Option<Duration>,
}

pub(super) fn read_priority(text: &str) -> Result<Priority, String> {
    let number = text.parse().map_err(|_| "write a number from 1 to 5".to_owned())?;
    Priority::new(number).map_err(|bad| bad.to_string())
}

impl Execute for RunArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let lines = self.bulk.as_deref().map(bulk::load).transpose()?;
        let input = input::assemble(self.input.as_deref(), &self.fields)?;
        let definition = definition::find(session, &self.workflow, &self.workspace).await?;
        let body = wire::StartExecution {
            workflow_definition_id: definition.id,
            workspace_id: Some(definition.workspace_id),
            input,
            priority: self.priority,
            run_at: self.at,
            concurrency_key: self.concurrency_key,
        };
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        if let Some(lines) = lines {
            return bulk::start(session, &lines, &body, &key).await;
        }
        let started: Answer<wire::StartedExecution> = session
            .api
            .post_once("workflow/executions/start", &body, &key)
            .await
            .map_err(|error| error.explain(|problem| input::how_to_write(&self.fields, problem)))
            .with_context(|| format!("start {}", self.workflow))?;
        self.follow.started(session, &started).await
    }
}

impl Follow {
    /// Shows the started execution, or watches it until it ends.
    pub(super) async fn started(
        self,
        session: &Session,
        started: &Answer<wire::StartedExecution>,
    ) -> anyhow::Result<Exit> {
        let id = started.value.execution_id;
        if self.watch {
            output::print_note(format!("execution {id}"))?;
            return watch::follow(session, id, self.timeout).await;
        }
        session.show(started, |started| announce(started, session.stdout))?;
        let id = id.to_string();
        session.note(format!("watch it: {}", session.hint(&["watch", &id])))?;
        session.note(format!("why it waits: {}", session.hint(&["queue", &id])))?;
        Ok(Exit::Done)
    }
}

fn announce(started: &wire::StartedExecution, style: StreamStyle) -> anyhow::Result<()> {
    let pairs = [("execution", Cell::new(started.execution_id)), ("status", Cell::status(started.status.name()))];
    output::print_record(&pairs, style)
}
