//! Schedules: when a workflow starts by itself.
//!
//! Invariants
//! - A trigger carries an idempotency key, given or made up, so that a lost answer starts nothing twice.

use jiff::Timestamp;
use kernel::queue::Priority;
use kernel::schedule::{CatchUp, Overlap};
use serde_json::json;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::input::{self, Setting};
use super::page::Selection;
use super::run::read_priority;
use super::{Act, On, definition};
use crate::exit::Exit;
use crate::output::{self, Cell, time};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(Box<On<Create>>),
    Ls(On<List>),
    Get(On<Get>),
    Next(On<Next>),
    Pause(On<Pause>),
    Resume(On<Resume>),
    Trigger(On<Trigger>),
    Rm(On<Remove>),
}

/// Start a workflow at times, or at one
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["cron", "at"])))]
#[command(after_help = "\
A cron expression has five fields: minute hour day month weekday. With six, the first is the second; ticks are at \
least \
ten seconds apart. * is every, 1-5 a range, 1,3 a list, */15 a step; names (MON, JAN), L (last), 15W (the weekday \
nearest) \
and MON#1 (the first Monday) work too. `forebay schedule next` shows when an expression comes.

A time of day that a clock change leaves out comes right after the gap, and one that it repeats comes once.

--overlap says what a tick does while an execution that this schedule started has not ended: skip, buffer_one (one \
tick \
waits for its end) or allow. --catch-up says which ticks are run that nobody was there for, or that a pause kept: \
skip, \
last or all (the newest 100).

A workflow file has schedules of its own: on: {schedule: [{cron: '0 6 * * *', timezone: Europe/Berlin}]}.

Examples:
  forebay schedule create report --cron '0 6 * * MON-FRI' --timezone Europe/Berlin --workspace acme
  forebay schedule create sync --cron '*/15 * * * *' --overlap buffer_one -i region=eu --workspace acme
  forebay schedule create renew --at 2030-01-31T09:00:00Z --input @renew.json --workspace acme")]
pub(crate) struct Create {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// Again and again: minute hour day month weekday
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,
    /// Whose clock, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "at")]
    timezone: Option<String>,
    /// Once: 2030-01-31T09:00:00Z, or how long from now, such as 10m
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    at: Option<Timestamp>,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input: JSON if it reads as JSON, else text; dots lead into objects
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    settings: Vec<Setting>,
    /// 1 goes first, 3 is usual, 5 goes last
    #[arg(long, value_name = "N", value_parser = read_priority)]
    priority: Option<Priority>,
    /// Executions with the same key take turns
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// skip, buffer_one or allow [default: skip]
    #[arg(long, value_name = "POLICY", value_parser = read_overlap, conflicts_with = "at")]
    overlap: Option<Overlap>,
    /// skip, last or all [default: last]
    #[arg(long, value_name = "POLICY", value_parser = read_catch_up)]
    catch_up: Option<CatchUp>,
    #[command(flatten)]
    place: Place,
}

/// List schedules
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  forebay schedule ls --workspace acme\n  forebay schedule ls --workflow report \
        --workspace acme")]
pub(crate) struct List {
    /// Only those of this workflow, by name or id
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    #[command(flatten)]
    selection: Selection,
}

/// Show a schedule and what became of its last ticks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With -o json it is the schedule alone; GET /api/v1/schedules/{id}/ticks has its ticks.

Example:
  forebay schedule get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Get {
    id: Uuid,
}

/// Show when a cron expression comes next
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Nothing is made of it: this is for trying an expression.

Examples:
  forebay schedule next '0 6 * * MON-FRI' --timezone Europe/Berlin
  forebay schedule next '0 9 L * *' -n 3")]
pub(crate) struct Next {
    /// minute hour day month weekday
    #[arg(value_name = "CRON")]
    cron: String,
    /// Whose clock, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// From when on: 2030-01-31T09:00:00Z, or how long from now, such as 10d [default: now]
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    after: Option<Timestamp>,
}

/// Take no tick of a schedule any more, until it is resumed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay schedule pause 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Pause {
    id: Uuid,
}

/// Let a paused schedule go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Which ticks of the meantime are run is for its catch-up policy to say.

Example:
  forebay schedule resume 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Resume {
    id: Uuid,
}

/// Start what a schedule starts, now; its ticks stay as they are
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints the execution's id.

Example:
  forebay watch $(forebay schedule trigger 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a)")]
pub(crate) struct Trigger {
    id: Uuid,
    /// The same key starts once, however often it is sent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Take a schedule away with its ticks, after asking; what it started goes on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
One that a workflow file made goes with the file's next version.

Example:
  forebay schedule rm 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct Remove {
    id: Uuid,
    #[command(flatten)]
    sure: Sure,
}

fn read_overlap(text: &str) -> Result<Overlap, String> {
    Overlap::parse(text).ok_or_else(|| format!("write one of {}", Overlap::ALL.map(Overlap::name).join(", ")))
}

fn read_catch_up(text: &str) -> Result<CatchUp, String> {
    CatchUp::parse(text).ok_or_else(|| format!("write one of {}", CatchUp::ALL.map(CatchUp::name).join(", ")))
}

commands!(Create, Ls, Get, Next, Pause, Resume, Trigger, Rm);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.place).await?;
        let body = wire::CreateSchedule {
            workspace_id: Some(found.workspace_id),
            workflow_definition_id: found.id,
            cron: self.cron,
            timezone: self.timezone,
            run_at: self.at,
            input: input::assemble(self.input.as_deref(), &self.settings)?,
            priority: self.priority,
            concurrency_key: self.concurrency_key,
            overlap: self.overlap,
            catch_up: self.catch_up,
        };
        let made: Answer<wire::Schedule> = session.api.post("schedules", &body).await?;
        session.show(&made, |made| output::line(made.id))?;
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let definition = definition::find_id(session, self.workflow.as_deref(), &self.selection.place).await?;
        let given = [("workflowDefinitionId", definition.map(|id| id.to_string()))];
        let listed = self.selection.fetch(session, "schedules", &given).await?;
        listed.show(session, &["STATUS", "WORKFLOW", "WHEN", "NEXT", "FROM", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(schedule: &wire::Schedule) -> Vec<Cell> {
    vec![
        Cell::status(schedule.status.name()),
        Cell::new(&schedule.workflow_name),
        Cell::new(when(schedule)),
        Cell::maybe(schedule.next_at.map(time)),
        Cell::new(if schedule.by_definition { "the workflow" } else { "a person" }),
        Cell::new(schedule.id),
    ]
}

fn when(schedule: &wire::Schedule) -> String {
    match (&schedule.cron, &schedule.timezone, schedule.run_at) {
        (Some(cron), Some(zone), _) => format!("{cron} {zone}"),
        (_, _, at) => at.map(time).unwrap_or_default(),
    }
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::Schedule> = session.api.get(&format!("schedules/{}", self.id), &[]).await?;
        let path = format!("schedules/{}/ticks", self.id);
        let ticks: Answer<wire::Page<wire::Tick>> = session.api.get(&path, &[("limit", "10")]).await?;
        session.show(&known, |schedule| {
            let input = schedule.input.as_ref().map(ToString::to_string);
            output::record(
                &[
                    ("status", Cell::status(schedule.status.name())),
                    ("reason", Cell::maybe(schedule.reason.as_ref())),
                    ("workflow", Cell::new(&schedule.workflow_name)),
                    ("when", Cell::new(when(schedule))),
                    ("next", Cell::maybe(schedule.next_at.map(time))),
                    ("input", Cell::maybe(input)),
                    ("overlap", Cell::new(schedule.overlap.name())),
                    ("catch-up", Cell::new(schedule.catch_up.name())),
                ],
                session.stdout,
            )?;
            if ticks.value.items.is_empty() {
                return output::line("\nno tick yet");
            }
            output::line("")?;
            let rows = ticks.value.items.iter().map(tick).collect();
            output::table(&["TICK", "STATUS", "EXECUTION", "REASON"], rows, session.stdout)
        })?;
        Ok(Exit::Done)
    }
}

fn tick(tick: &wire::Tick) -> Vec<Cell> {
    let by_hand = if tick.by_hand { " by hand" } else { "" };
    vec![
        Cell::new(format!("{}{by_hand}", time(tick.at))),
        Cell::status(tick.status.name()),
        Cell::maybe(tick.execution_id),
        Cell::maybe(tick.reason.as_ref()),
    ]
}

impl Act for Next {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("cron", Some(self.cron)),
            ("timezone", self.timezone.clone()),
            ("after", self.after.map(|after| after.to_string())),
            ("count", Some(self.count.to_string())),
        ];
        let query: Vec<(&str, &str)> =
            given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let told: Answer<wire::NextTicks> = session.api.get("schedules/next", &query).await?;
        session.show(&told, |told| {
            for at in &told.items {
                let here = self.timezone.as_deref().and_then(|zone| at.in_tz(zone).ok());
                let here = here.map(|here| here.strftime("  %a %F %T %:z").to_string()).unwrap_or_default();
                output::line(format!("{}{here}", time(*at)))?;
            }
            Ok(())
        })?;
        Ok(Exit::Done)
    }
}

impl Act for Pause {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        set(session, self.id, "pause").await
    }
}

impl Act for Resume {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        set(session, self.id, "resume").await
    }
}

async fn set(session: &Session, id: Uuid, what: &str) -> anyhow::Result<Exit> {
    let known: Answer<wire::Schedule> = session.api.post(&format!("schedules/{id}/{what}"), &json!({})).await?;
    session.show(&known, |schedule| output::line(format!("{id}: {}", schedule.status.name())))?;
    Ok(Exit::Done)
}

impl Act for Trigger {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        let path = format!("schedules/{}/trigger", self.id);
        let started: Answer<wire::Started> = session.api.post_once(&path, &json!({}), &key).await?;
        session.show(&started, |started| output::line(started.execution_id))?;
        Ok(Exit::Done)
    }
}

impl Act for Remove {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        if !self.sure.confirm(&format!("Delete schedule {}? What became of its ticks goes with it.", self.id))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("schedules/{}", self.id)).await?;
        session.tell(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
