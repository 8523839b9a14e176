//! Jobs of events. `ls`, `get` and `retry` use the API; `check` and `rebuild` work directly in the database.
//!
//! Invariants
//! - `check` changes nothing. Its exit code reports whether the table of jobs agrees with the recorded events.

use clap::Args;
use kernel::job::Status;
use serde_json::json;
use server::wire;
use store::Store;
use store::connect::Target;
use store::job::Difference;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Format, Session};
use super::page::ListArgs;
use super::{Connected, Execute};
use crate::exit::{Exit, report_result, usage_error};
use crate::output::{self, Cell};
use crate::settings::{DatabaseArgs, ServiceArgs, SettingsArgs};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum JobCommand {
    Ls(Connected<ListJobsArgs>),
    Get(Connected<GetJobArgs>),
    Retry(Connected<RetryJobArgs>),
    Check(CheckJobsArgs),
    Rebuild(RebuildJobsArgs),
}

/// List jobs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  forebay job ls --status failed --workspace acme\n  forebay job ls \
        --stream 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct ListJobsArgs {
    /// Only jobs with this status: pending, processing, completed or failed
    #[arg(long, value_name = "STATUS", value_parser = read_status)]
    status: Option<Status>,
    /// Only jobs of events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only jobs of events of this stream
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a job: its event, its worker and its result
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay job get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetJobArgs {
    /// The job's id, as `job ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Retry a failed job now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay job retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct RetryJobArgs {
    /// The job's id, as `job ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Compare the table of jobs with the recorded events; change nothing
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay job check --database-url postgresql://localhost/forebay")]
pub(crate) struct CheckJobsArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Rebuild the table of jobs from the recorded events
#[derive(Args, Debug)]
#[command(after_help = "\
The table is locked against other writers until the command ends. Only rows that differ are written.

Example:
  forebay job rebuild --database-url postgresql://localhost/forebay")]
pub(crate) struct RebuildJobsArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

fn read_status(text: &str) -> Result<Status, String> {
    Status::parse(text).ok_or_else(|| format!("write one of {}", Status::ALL.map(Status::name).join(", ")))
}

impl JobCommand {
    pub(super) async fn run(self) -> Exit {
        match self {
            JobCommand::Ls(list) => list.run().await,
            JobCommand::Get(get) => get.run().await,
            JobCommand::Retry(retry) => retry.run().await,
            JobCommand::Check(check) => report_result(check.run().await, Format::Table),
            JobCommand::Rebuild(rebuild) => report_result(rebuild.run().await, Format::Table),
        }
    }
}

impl Execute for ListJobsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("status", self.status.map(|status| status.name().to_owned())),
            ("eventType", self.kind),
            ("streamId", self.stream.map(|id| id.to_string())),
        ];
        let listed = self.selection.fetch(session, "jobs", &given).await?;
        listed.show(session, &["STATUS", "TYPE", "WORKER", "WORKFLOW", "RETRIES", "CREATED", "ID", "ERROR"], row)?;
        Ok(Exit::Done)
    }
}

fn row(job: &wire::Job) -> Vec<Cell> {
    vec![
        Cell::status(job.status.name()),
        Cell::new(&job.event_type),
        Cell::optional(job.worker_id.as_ref()),
        Cell::optional(job.workflow_id.as_ref()),
        Cell::new(job.retry_count),
        Cell::new(output::format_time(job.created_at)),
        Cell::new(job.id),
        Cell::optional(job.error_message.as_ref()),
    ]
}

impl Execute for GetJobArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::Job> = session.api.get(&format!("jobs/{}", self.id), &[]).await?;
        session.show(&known, |job| card(job, session))?;
        Ok(Exit::Done)
    }
}

fn card(job: &wire::Job, session: &Session) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("job", Cell::new(job.id)),
        ("status", Cell::status(job.status.name())),
        ("event", Cell::new(format!("{} {}", job.event_type, job.event_id))),
        ("stream", Cell::new(format!("{} {}", job.stream_type, job.stream_id))),
        ("worker", Cell::optional(job.worker_id.as_ref())),
        ("workflow", Cell::optional(job.workflow_id.as_ref())),
        ("retries", Cell::new(job.retry_count)),
        ("created", Cell::new(output::format_time(job.created_at))),
    ];
    pairs.extend(job.completed_at.map(|at| ("completed", Cell::new(output::format_time(at)))));
    pairs.extend(job.failed_at.map(|at| ("failed", Cell::new(output::format_time(at)))));
    pairs.extend(job.error_message.as_ref().map(|error| ("error", Cell::new(error))));
    output::print_record(&pairs, session.stdout)?;
    match job.result.as_ref().filter(|result| !result.is_null()) {
        Some(result) => output::print_line("result").and_then(|()| output::print_value(result)),
        None => Ok(()),
    }
}

impl Execute for RetryJobArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let job: Answer<wire::Job> = session.api.post(&format!("jobs/{}/retry", self.id), &json!({})).await?;
        session.show(&job, |job| output::print_line(job.status.name()))?;
        Ok(Exit::Done)
    }
}

impl CheckJobsArgs {
    async fn run(self) -> anyhow::Result<Exit> {
        let found = open(&self.sources, &self.database)?.check_jobs().await?;
        output::print_line(describe(&found))?;
        Ok(if found.is_none() { Exit::Done } else { Exit::Error })
    }
}

impl RebuildJobsArgs {
    async fn run(self) -> anyhow::Result<Exit> {
        let found = open(&self.sources, &self.database)?.rebuild_jobs().await?;
        output::print_line(format!("{}; rebuilt", describe(&found)))?;
        Ok(Exit::Done)
    }
}

fn open(sources: &SettingsArgs, database: &DatabaseArgs) -> anyhow::Result<Store> {
    let settings = sources.load(database, &ServiceArgs::default())?.settings;
    if settings.database.url.is_empty() {
        return Err(usage_error("no database is given: use --database-url or FOREBAY_DATABASE_URL"));
    }
    Ok(Store::new(&Target::new(settings.direct_url())?, 1)?)
}

fn describe(found: &Difference) -> String {
    let Difference { jobs, missing, extra, changed } = found;
    let (missing, extra, changed) = (missing.len(), extra.len(), changed.len());
    match found.is_none() {
        true => format!("{jobs} jobs agree with the recorded events"),
        false => format!(
            "{jobs} jobs; {missing} are missing, {extra} should not exist, {changed} differ from the recorded events"
        ),
    }
}
