//! `run`: one start, or many from a file.
//!
//! Invariants
//! - A start carries an idempotency key, given or made up, so that repeating it after a lost answer
//!   starts nothing twice.
//! - An execution's output is the only thing on stdout when it is watched.
//!
//! Not here: following one to its end (`watch`), reading inputs (`input`), many starts (`bulk`).

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kernel::queue::Priority;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Place, Session};
use super::input::{self, Setting};
use super::{Act, bulk, definition, watch};
use crate::exit::Exit;
use crate::output::{self, Cell, Look};

/// Start a workflow, and watch it if you like
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --watch the output goes to stdout, progress to stderr, and the exit code says how it ended.

With --bulk every line of the file is the input of one execution, as JSON. All lines are read before anything is \
started; then each is answered on its own, and the exit code is 1 if any was refused. The same file with the same \
--idempotency-key starts nothing twice.

Examples:
  forebay run hello -i name=World --watch
  forebay run order-enrichment --input @order.json -i priority.level=2 --priority 1
  forebay run nightly --at 2030-01-31T02:00:00Z --idempotency-key nightly-2030-01-31
  forebay run report --watch --timeout 60s -o json | jq .output
  forebay run order --bulk orders.jsonl --idempotency-key orders-2030-01-31")]
pub(crate) struct Run {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input: JSON if it reads as JSON, else text; dots lead into objects
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// A file of inputs, one JSON value a line, to start one execution each; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "settings", "watch"])]
    bulk: Option<String>,
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
    #[command(flatten)]
    follow: Follow,
    #[command(flatten)]
    place: Place,
}

/// Whether to follow what was started.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Follow {
    /// Follow it to its end
    #[arg(short, long)]
    watch: bool,
    /// How long to watch, such as 60s; the execution goes on
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse, requires = "watch")]
    timeout: Option<Duration>,
}

pub(super) fn read_priority(text: &str) -> Result<Priority, String> {
    let number = text.parse().map_err(|_| "write a number from 1 to 5".to_owned())?;
    Priority::new(number).map_err(|bad| bad.to_string())
}

impl Act for Run {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let lines = self.bulk.as_deref().map(bulk::load).transpose()?;
        let input = input::assemble(self.input.as_deref(), &self.settings)?;
        let definition = definition::find(session, &self.workflow, &self.place).await?;
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
        let started: Answer<wire::Started> = session
            .api
            .post_once("workflow/executions/start", &body, &key)
            .await
            .with_context(|| format!("start {}", self.workflow))?;
        self.follow.started(session, &started).await
    }
}

impl Follow {
    /// Tells of what was started, or follows it to its end.
    pub(super) async fn started(self, session: &Session, started: &Answer<wire::Started>) -> anyhow::Result<Exit> {
        let id = started.value.execution_id;
        if self.watch {
            output::note(format!("execution {id}"))?;
            return watch::follow(session, id, self.timeout).await;
        }
        session.show(started, |started| announce(started, session.stdout))?;
        let id = id.to_string();
        session.tell(format!("watch it: {}", session.hint(&["watch", &id])))?;
        session.tell(format!("why it waits: {}", session.hint(&["queue", &id])))?;
        Ok(Exit::Done)
    }
}

fn announce(started: &wire::Started, look: Look) -> anyhow::Result<()> {
    let pairs = [("execution", Cell::new(started.execution_id)), ("status", Cell::status(started.status.name()))];
    output::record(&pairs, look)
}
