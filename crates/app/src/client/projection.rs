//! Jobs of events: listed and tried again through the API; checked and rebuilt against the database itself.
//!
//! Invariants
//! - `check` changes nothing and says with its exit code whether the table is what its facts say.

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
use super::page::Selection;
use super::{Act, On};
use crate::exit::{Exit, settle, usage};
use crate::output::{self, Cell};
use crate::settings::{Database, Service, Sources};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(On<List>),
    Retry(On<Retry>),
    Check(Check),
    Rebuild(Rebuild),
}

/// List jobs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  forebay projection ls --status failed --workspace acme\n  forebay projection ls \
        --stream 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct List {
    /// pending, processing, completed or failed
    #[arg(long, value_name = "STATUS", value_parser = read_status)]
    status: Option<Status>,
    /// Only this type of event
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only those about this
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    #[command(flatten)]
    selection: Selection,
}

/// Try a failed job again at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay projection retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Retry {
    id: Uuid,
}

/// Compare the table of jobs with what its facts say; change nothing
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay projection check --database-url postgresql://localhost/forebay")]
pub(crate) struct Check {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
}

/// Make the table of jobs what its facts say
#[derive(Args, Debug)]
#[command(after_help = "\
Nobody can write to the table meanwhile; only rows that differ are written.

Example:
  forebay projection rebuild --database-url postgresql://localhost/forebay")]
pub(crate) struct Rebuild {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
}

fn read_status(text: &str) -> Result<Status, String> {
    Status::parse(text).ok_or_else(|| format!("write one of {}", Status::ALL.map(Status::name).join(", ")))
}

impl Command {
    pub(super) async fn run(self) -> Exit {
        match self {
            Command::Ls(list) => list.run().await,
            Command::Retry(retry) => retry.run().await,
            Command::Check(check) => settle(check.run().await, Format::Table),
            Command::Rebuild(rebuild) => settle(rebuild.run().await, Format::Table),
        }
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("status", self.status.map(|status| status.name().to_owned())),
            ("eventType", self.kind),
            ("streamId", self.stream.map(|id| id.to_string())),
        ];
        let listed = self.selection.fetch(session, "projection", &given).await?;
        listed.show(session, &["STATUS", "TYPE", "WORKER", "WORKFLOW", "RETRIES", "CREATED", "ID", "ERROR"], row)?;
        Ok(Exit::Done)
    }
}

fn row(job: &wire::Job) -> Vec<Cell> {
    vec![
        Cell::status(job.status.name()),
        Cell::new(&job.event_type),
        Cell::maybe(job.worker_id.as_ref()),
        Cell::maybe(job.workflow_id.as_ref()),
        Cell::new(job.retry_count),
        Cell::new(output::time(job.created_at)),
        Cell::new(job.id),
        Cell::maybe(job.error_message.as_ref()),
    ]
}

impl Act for Retry {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let job: Answer<wire::Job> = session.api.post(&format!("projection/{}/retry", self.id), &json!({})).await?;
        session.show(&job, |job| output::line(job.status.name()))?;
        Ok(Exit::Done)
    }
}

impl Check {
    async fn run(self) -> anyhow::Result<Exit> {
        let found = open(&self.sources, &self.database)?.check_jobs().await?;
        output::line(told(&found))?;
        Ok(if found.is_none() { Exit::Done } else { Exit::Error })
    }
}

impl Rebuild {
    async fn run(self) -> anyhow::Result<Exit> {
        let found = open(&self.sources, &self.database)?.rebuild_jobs().await?;
        output::line(format!("{}; rebuilt", told(&found)))?;
        Ok(Exit::Done)
    }
}

fn open(sources: &Sources, database: &Database) -> anyhow::Result<Store> {
    let settings = sources.load(database, &Service::default())?.settings;
    if settings.database.url.is_empty() {
        return Err(usage("which database? Give --database-url, or set FOREBAY_DATABASE_URL"));
    }
    Ok(Store::new(&Target::new(settings.direct_url())?, 1)?)
}

fn told(found: &Difference) -> String {
    let Difference { jobs, missing, extra, changed } = found;
    let (missing, extra, changed) = (missing.len(), extra.len(), changed.len());
    match found.is_none() {
        true => format!("{jobs} jobs, as their facts say"),
        false => format!("{jobs} jobs; against their facts {missing} missing, {extra} too many, {changed} changed"),
    }
}
