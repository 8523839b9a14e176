//! Tasks: work that TASK nodes offer to your own programs. They are listed, shown, and performed by a command.
//!
//! Not here: claims and heartbeats (`task::worker`).

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
use super::connection::{Session, WorkspaceArg};
use super::page::ListArgs;
use super::{Connected, Execute};
use crate::exit::Exit;
use crate::output::{self, Cell};
use worker::{TaskResult, Worker};

/// The exit code with which a command reports that a retry would not help.
const NOT_RETRYABLE: i32 = 65;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TaskCommand {
    Ls(Connected<ListTasksArgs>),
    Get(Connected<GetTaskArgs>),
    Work(Connected<WorkTasksArgs>),
}

/// List tasks, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A TASK node offers a task in a queue, where your own programs claim it: see docs/reference/long-running.md.

Examples:
  forebay task ls --status open
  forebay task ls --queue invoices --workspace acme --all")]
pub(crate) struct ListTasksArgs {
    /// Only tasks of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only tasks with this status
    #[arg(long, value_name = "STATUS", value_parser = read_status)]
    status: Option<Status>,
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a task: its worker, its progress and its result
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay task get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetTaskArgs {
    /// The task's id, as `task ls` shows it
    #[arg(value_name = "TASK")]
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Claim the tasks of a queue, and run a command for each
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command reads the task's input as JSON from stdin. Its stdout is the task's output: JSON if it can be read as \
JSON, else text. With a nonzero exit code the task fails, and the last line on stderr is the reason; exit code 65 \
says that a retry would not help. Heartbeats extend the lease while the command runs. The variables FOREBAY_TASK_ID, \
FOREBAY_EXECUTION_ID, FOREBAY_NODE and FOREBAY_ATTEMPT identify the task. After Ctrl-C or SIGTERM the current task \
is finished first.

Examples:
  forebay task work invoices -- ./print-invoice
  forebay task work invoices reminders --lease 5m -- python3 print.py")]
pub(crate) struct WorkTasksArgs {
    /// The queues to claim tasks from
    #[arg(value_name = "QUEUE", required = true)]
    queues: Vec<String>,
    /// The command and its arguments, after --
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
    /// How long a task stays claimed without a heartbeat, 1s to 1h [default: the lease of the task]
    #[arg(long, value_name = "DURATION", value_parser = kernel::duration::parse)]
    lease: Option<Duration>,
    /// The name of this worker, shown with its tasks [default: forebay-PID]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Exit when the queues are empty
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

fn read_status(text: &str) -> Result<Status, String> {
    let all = || Status::ALL.map(Status::name).join(", ");
    Status::parse(&text.to_uppercase()).ok_or_else(|| format!("write one of {}", all()))
}

commands!(TaskCommand: Ls, Get, Work);

impl Execute for ListTasksArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [("queue", self.queue), ("status", self.status.map(|status| status.name().to_owned()))];
        let listed = self.selection.fetch(session, "tasks", &given).await?;
        listed.show(session, &["STATUS", "QUEUE", "NODE", "WORKER", "ATTEMPT", "OPENED", "EXECUTION", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(task: &wire::Task) -> Vec<Cell> {
    vec![
        Cell::status(task.status.name()),
        Cell::new(&task.queue),
        Cell::new(node_name(task)),
        Cell::optional(task.worker_id.as_ref()),
        Cell::new(task.attempt),
        Cell::new(output::format_time(task.opened_at)),
        Cell::new(task.execution_id),
        Cell::new(task.id),
    ]
}

fn node_name(task: &wire::Task) -> String {
    if task.iteration > 0 { format!("{}[{}]", task.node, task.iteration) } else { task.node.clone() }
}

impl Execute for GetTaskArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let task: Answer<wire::Task> = session.api.get(&format!("tasks/{}", self.id), &[]).await?;
        session.show(&task, |task| {
            let mut pairs = vec![
                ("task", Cell::new(task.id)),
                ("queue", Cell::new(&task.queue)),
                ("status", Cell::status(task.status.name())),
                ("execution", Cell::new(task.execution_id)),
                ("node", Cell::new(format!("{}, attempt {}", node_name(task), task.attempt))),
                ("claims", Cell::new(format!("{}, of which {} lost their lease", task.deliveries, task.lost_leases))),
            ];
            pairs.extend(task.worker_id.as_ref().map(|worker| ("worker", Cell::new(worker))));
            pairs.extend(task.lease_expires_at.map(|at| ("lease expires", Cell::new(output::format_time(at)))));
            pairs.extend(task.progress.as_ref().map(|progress| ("progress", Cell::new(progress))));
            pairs.push(("opened", Cell::new(output::format_time(task.opened_at))));
            pairs.extend(task.ended_at.map(|at| ("ended", Cell::new(output::format_time(at)))));
            pairs.extend(task.error.as_ref().map(|error| ("error", Cell::new(output::format_failure(error)))));
            output::print_record(&pairs, session.stdout)?;
            match task.output.as_ref().filter(|output| !output.is_null()) {
                Some(value) => output::print_line("output").and_then(|()| output::print_value(value)),
                None => Ok(()),
            }
        })?;
        Ok(Exit::Done)
    }
}

impl Execute for WorkTasksArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let worker = Worker {
            api: &session.api,
            queues: self.queues,
            name: self.name.unwrap_or_else(|| format!("forebay-{}", std::process::id())),
            lease: self.lease,
            workspace: session.workspace(&self.workspace).await?,
            drain: self.drain,
        };
        let say = |text: String| drop(session.note(output::clean(&text)));
        let command = &self.command;
        worker.serve(crate::serve::stopped(), say, async |task| work(command, task).await).await?;
        Ok(Exit::Done)
    }
}

/// Forebay's environment variables that the command still gets: they name a server and contain nothing secret.
const PASSED_ON: [&str; 3] = ["FOREBAY_SERVER", "FOREBAY_PROFILE", "FOREBAY_WORKSPACE"];

/// Whether the command does not get this environment variable, because it may contain a key, a password or the address
/// of a database.
fn is_withheld(name: &str) -> bool {
    name.starts_with("FOREBAY_") && !PASSED_ON.contains(&name)
}

/// Runs the command for one task.
async fn work(command: &[OsString], task: &wire::ClaimedTask) -> TaskResult {
    let [program, arguments @ ..] = command else { return failed("no command is given".to_owned(), false) };
    let mut command = Program::new(program);
    // The command gets the data of the task, but not the credentials of this worker.
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
        Err(error) => return failed(format!("the command cannot be started: {error}"), true),
    };
    let input = task.input.to_string();
    let stdin = child.stdin.take();
    let give = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input closes stdin early.
            drop(stdin.write_all(input.as_bytes()).await);
        }
    };
    let ((), ended) = tokio::join!(give, child.wait_with_output());
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return failed(format!("waiting for the command failed: {error}"), true),
    };
    if ended.status.success() {
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        let text = text.trim();
        return TaskResult::Completed(exact::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.to_owned())));
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    failed(
        last.unwrap_or_else(|| format!("the command failed with {}", ended.status)),
        ended.status.code() != Some(NOT_RETRYABLE),
    )
}

fn failed(message: String, retryable: bool) -> TaskResult {
    TaskResult::Failed { message, retryable }
}
