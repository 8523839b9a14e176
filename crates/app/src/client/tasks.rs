//! Tasks: work that nodes hand to programs of the user's own; listed, shown, and done by a command.
//!
//! Not here: claiming and keeping (`tasks::worker`).

mod worker;

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use kernel::exact;
use kernel::wait::Status;
use serde_json::Value;
use server::wire;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command as Program;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Place, Session};
use super::page::Selection;
use super::{Act, On};
use crate::exit::Exit;
use crate::output::{self, Cell};
use worker::{Done, Worker};

/// A command that ends so says that another attempt could not help.
const NEVER: i32 = 65;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(On<List>),
    Get(On<Get>),
    Work(On<Work>),
}

/// List tasks, the oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A node of kind TASK offers its work in a queue, where your own programs claim it: see docs/long-running.md.

Examples:
  forebay tasks ls --status open
  forebay tasks ls --queue invoices --workspace acme --all")]
pub(crate) struct List {
    /// Only those of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only those with this status
    #[arg(long, value_name = "STATUS", value_parser = read_status)]
    status: Option<Status>,
    #[command(flatten)]
    selection: Selection,
}

/// Show a task: who has it, how far it is, how it ended
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay tasks get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Get {
    #[arg(value_name = "TASK")]
    id: Uuid,
}

/// Do the tasks of a queue by running a command for each
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command gets the task's input as JSON on stdin; what it prints is the output, as JSON if it reads as JSON and as \
text otherwise. It \
fails by its exit code, with what it wrote to stderr last as the reason; exit code 65 says that another attempt could \
not help. While it \
works, heartbeats keep the task. The variables FOREBAY_TASK_ID, FOREBAY_EXECUTION_ID, FOREBAY_NODE and FOREBAY_ATTEMPT \
say which it is. Told to \
stop, it finishes the task in hand.

Examples:
  forebay tasks work invoices -- ./print-invoice
  forebay tasks work invoices letters --lease 5m -- python3 print.py")]
pub(crate) struct Work {
    /// The queues to serve
    #[arg(value_name = "QUEUE", required = true)]
    queues: Vec<String>,
    /// The command, behind --
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
    /// How long a silent worker keeps a task, 1s to 1h [default: what the task says]
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse)]
    lease: Option<Duration>,
    /// Whom the tasks name [default: this process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// End when the queues are empty
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    place: Place,
}

fn read_status(text: &str) -> Result<Status, String> {
    let all = || Status::ALL.map(Status::name).join(", ");
    Status::parse(&text.to_uppercase()).ok_or_else(|| format!("write one of {}", all()))
}

commands!(Ls, Get, Work);

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [("queue", self.queue), ("status", self.status.map(|status| status.name().to_owned()))];
        let listed = self.selection.fetch(session, "tasks", &given).await?;
        listed.show(session, &["STATUS", "QUEUE", "NODE", "WORKER", "ATTEMPT", "SINCE", "EXECUTION", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(task: &wire::Task) -> Vec<Cell> {
    vec![
        Cell::status(task.status.name()),
        Cell::new(&task.queue),
        Cell::new(place(task)),
        Cell::maybe(task.worker.as_ref()),
        Cell::new(task.attempt),
        Cell::new(output::time(task.opened_at)),
        Cell::new(task.execution_id),
        Cell::new(task.id),
    ]
}

fn place(task: &wire::Task) -> String {
    if task.iteration > 0 { format!("{}[{}]", task.node, task.iteration) } else { task.node.clone() }
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let task: Answer<wire::Task> = session.api.get(&format!("tasks/{}", self.id), &[]).await?;
        session.show(&task, |task| {
            let mut pairs = vec![
                ("task", Cell::new(task.id)),
                ("queue", Cell::new(&task.queue)),
                ("status", Cell::status(task.status.name())),
                ("execution", Cell::new(task.execution_id)),
                ("node", Cell::new(format!("{}, attempt {}", place(task), task.attempt))),
                ("handed out", Cell::new(format!("{} times, lost {}", task.deliveries, task.lost))),
            ];
            pairs.extend(task.worker.as_ref().map(|worker| ("worker", Cell::new(worker))));
            pairs.extend(task.lease_until.map(|until| ("until", Cell::new(output::time(until)))));
            pairs.extend(task.progress.as_ref().map(|progress| ("progress", Cell::new(progress))));
            pairs.push(("since", Cell::new(output::time(task.opened_at))));
            pairs.extend(task.ended_at.map(|at| ("ended", Cell::new(output::time(at)))));
            pairs.extend(task.error.as_ref().map(|error| ("error", Cell::new(output::failure(error)))));
            output::record(&pairs, session.stdout)?;
            match task.output.as_ref().filter(|output| !output.is_null()) {
                Some(value) => output::line("output").and_then(|()| output::value(value)),
                None => Ok(()),
            }
        })?;
        Ok(Exit::Done)
    }
}

impl Act for Work {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let worker = Worker {
            api: &session.api,
            queues: self.queues,
            name: self.name.unwrap_or_else(|| format!("forebay-{}", std::process::id())),
            lease: self.lease,
            workspace: session.workspace(&self.place).await?,
            drain: self.drain,
        };
        let say = |text: String| drop(session.tell(output::clean(&text)));
        let command = &self.command;
        worker.serve(crate::serve::stopped(), say, async |task| work(command, task).await).await?;
        Ok(Exit::Done)
    }
}

/// Variables of ours that say where a server is, and hold nothing secret.
const PASSED_ON: [&str; 3] = ["FOREBAY_SERVER", "FOREBAY_PROFILE", "FOREBAY_WORKSPACE"];

/// Is this a variable of ours that may hold a key, a password or a database's address?
fn is_withheld(name: &str) -> bool {
    name.starts_with("FOREBAY_") && !PASSED_ON.contains(&name)
}

/// Runs the command on a task.
async fn work(command: &[OsString], task: &wire::ClaimedTask) -> Done {
    let [program, arguments @ ..] = command else { return failed("there is no command".to_owned(), false) };
    let mut command = Program::new(program);
    // The command does a task's work; it gets what the task needs and not what this worker may.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_withheld) {
            command.env_remove(name);
        }
    }
    let child = command
        .args(arguments)
        .env("FOREBAY_TASK_ID", task.id.to_string())
        .env("FOREBAY_EXECUTION_ID", task.execution_id.to_string())
        .env("FOREBAY_NODE", &task.node)
        .env("FOREBAY_ATTEMPT", task.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return failed(format!("the command cannot be run: {error}"), true),
    };
    let input = task.input.to_string();
    let stdin = child.stdin.take();
    let give = async {
        if let Some(mut stdin) = stdin {
            // A command that reads nothing closes it early.
            drop(stdin.write_all(input.as_bytes()).await);
        }
    };
    let ((), ended) = tokio::join!(give, child.wait_with_output());
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return failed(format!("the command was lost: {error}"), true),
    };
    if ended.status.success() {
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let text = text.trim();
        return Done::Completed(exact::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.to_owned())));
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    failed(
        last.unwrap_or_else(|| format!("the command ended with {}", ended.status)),
        ended.status.code() != Some(NEVER),
    )
}

fn failed(message: String, retryable: bool) -> Done {
    Done::Failed { message, retryable }
}
