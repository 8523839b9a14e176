//! Schedules: times at which a workflow starts.
//!
//! Invariants
//! - `schedule run` sends an idempotency key, given or generated, so that a repeated request starts nothing twice.

use jiff::Timestamp;
use kernel::queue::Priority;
use kernel::schedule::{CatchUp, Overlap};
use serde_json::json;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::input::{self, InputField};
use super::page::ListArgs;
use super::run::read_priority;
use super::{Connected, Execute, definition};
use crate::exit::Exit;
use crate::output::{self, Cell, format_time};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ScheduleCommand {
    Create(Box<Connected<CreateScheduleArgs>>),
    Ls(Connected<ListSchedulesArgs>),
    Get(Connected<GetScheduleArgs>),
    Next(Connected<NextTicksArgs>),
    Pause(Connected<PauseScheduleArgs>),
    Resume(Connected<ResumeScheduleArgs>),
    Run(Connected<RunScheduleArgs>),
    Delete(Connected<DeleteScheduleArgs>),
}

/// Create a schedule: start a workflow at recurring times, or once
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["cron", "at"])))]
#[command(after_help = "\
A cron expression has five fields: minute hour day month weekday. With six fields the first is the second; ticks must \
be at least ten seconds apart. * means every, 1-5 is a range, 1,3 a list, */15 a step. Names (MON, JAN), L (last), 15W \
(the nearest weekday) and MON#1 (the first Monday) work too. `forebay schedule next` shows the times of an expression.

If a clock change skips a time of day, the tick happens right after the gap. If it repeats a time, the tick happens \
once.

--overlap decides about a tick while an execution of this schedule still runs: skip it, buffer_one (one tick waits for \
the end) or allow it. --catch-up decides about ticks that were missed while the service was down or the schedule was \
paused: skip them, run the last, or all (at most the newest 100).

A workflow file can declare its own schedules: on: {schedule: [{cron: '0 6 * * *', timezone: Europe/Berlin}]}.

Examples:
  forebay schedule create report --cron '0 6 * * MON-FRI' --timezone Europe/Berlin --workspace acme
  forebay schedule create sync --cron '*/15 * * * *' --overlap buffer_one -i region=eu --workspace acme
  forebay schedule create renew --at 2030-01-31T09:00:00Z --input @renew.json --workspace acme")]
pub(crate) struct CreateScheduleArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// Recurring times, as a cron expression: minute hour day month weekday
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,
    /// The time zone, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "at")]
    timezone: Option<String>,
    /// A single time: 2030-01-31T09:00:00Z, or how long from now, such as 10m
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    at: Option<Timestamp>,
    /// The input: JSON, @FILE (YAML or JSON), or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<String>,
    /// One field of the input, as JSON or else text; outer.inner=value sets a nested field
    #[arg(short = 'i', long = "field", value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<InputField>,
    /// The priority: 1 (first) to 5 (last) [default: 3]
    #[arg(long, value_name = "N", value_parser = read_priority)]
    priority: Option<Priority>,
    /// Executions with the same key run one after the other
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// What to do if the last execution still runs: skip, buffer_one or allow [default: skip]
    #[arg(long, value_name = "POLICY", value_parser = read_overlap, conflicts_with = "at")]
    overlap: Option<Overlap>,
    /// Which missed ticks to run: skip, last or all [default: last]
    #[arg(long, value_name = "POLICY", value_parser = read_catch_up)]
    catch_up: Option<CatchUp>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List schedules
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  forebay schedule ls --workspace acme\n  forebay schedule ls --workflow report \
        --workspace acme")]
pub(crate) struct ListSchedulesArgs {
    /// Only schedules of this workflow, by name or id
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a schedule and the results of its last ticks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With -o json only the schedule is shown; GET /api/v1/schedules/{id}/ticks returns its ticks.

Example:
  forebay schedule get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetScheduleArgs {
    /// The schedule's id, as `schedule ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Show the next times of a cron expression
#[derive(Debug, clap::Args)]
#[command(after_help = "\
This only tries an expression: no schedule is created.

Examples:
  forebay schedule next '0 6 * * MON-FRI' --timezone Europe/Berlin
  forebay schedule next '0 9 L * *' -n 3")]
pub(crate) struct NextTicksArgs {
    /// The cron expression: minute hour day month weekday
    #[arg(value_name = "CRON")]
    cron: String,
    /// The time zone, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// How many times to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Only times after this: 2030-01-31T09:00:00Z, or how long from now, such as 10d [default: now]
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    after: Option<Timestamp>,
}

/// Pause a schedule: it starts nothing until it is resumed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay schedule pause 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct PauseScheduleArgs {
    /// The schedule's id, as `schedule ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Resume a paused schedule
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Its catch-up policy decides which of the missed ticks are run.

Example:
  forebay schedule resume 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct ResumeScheduleArgs {
    /// The schedule's id, as `schedule ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Start the workflow of a schedule now; its regular ticks are not affected
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command prints the id of the execution.

Example:
  forebay watch $(forebay schedule run 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a)")]
pub(crate) struct RunScheduleArgs {
    /// The schedule's id, as `schedule ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    /// The same key starts only one execution [default: a new key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Delete a schedule, after asking; executions that it started continue
#[derive(Debug, clap::Args)]
#[command(after_help = "\
To delete a schedule that a workflow file declares, remove it from the file and apply the file.

Example:
  forebay schedule delete 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct DeleteScheduleArgs {
    /// The schedule's id, as `schedule ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    #[command(flatten)]
    confirmation: Confirmation,
}

fn read_overlap(text: &str) -> Result<Overlap, String> {
    Overlap::parse(text).ok_or_else(|| format!("write one of {}", Overlap::ALL.map(Overlap::name).join(", ")))
}

fn read_catch_up(text: &str) -> Result<CatchUp, String> {
    CatchUp::parse(text).ok_or_else(|| format!("write one of {}", CatchUp::ALL.map(CatchUp::name).join(", ")))
}

commands!(ScheduleCommand: Create, Ls, Get, Next, Pause, Resume, Run, Delete);

impl Execute for CreateScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.workspace).await?;
        let body = wire::CreateSchedule {
            workspace_id: Some(found.workspace_id),
            workflow_definition_id: found.id,
            cron: self.cron,
            timezone: self.timezone,
            run_at: self.at,
            input: input::assemble(self.input.as_deref(), &self.fields)?,
            priority: self.priority,
            concurrency_key: self.concurrency_key,
            overlap: self.overlap,
            catch_up: self.catch_up,
        };
        let made: Answer<wire::Schedule> = session.api.post("schedules", &body).await?;
        session.show(&made, |made| output::print_line(made.id))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListSchedulesArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let definition = definition::find_id(session, self.workflow.as_deref(), &self.selection.workspace).await?;
        let given = [("workflowDefinitionId", definition.map(|id| id.to_string()))];
        let listed = self.selection.fetch(session, "schedules", &given).await?;
        listed.show(session, &["STATUS", "WORKFLOW", "WHEN", "NEXT", "CREATED BY", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(schedule: &wire::Schedule) -> Vec<Cell> {
    vec![
        Cell::status(schedule.status.name()),
        Cell::new(&schedule.workflow_name),
        Cell::new(when(schedule)),
        Cell::optional(schedule.next_at.map(format_time)),
        Cell::new(if schedule.by_definition { "workflow file" } else { "user" }),
        Cell::new(schedule.id),
    ]
}

fn when(schedule: &wire::Schedule) -> String {
    match (&schedule.cron, &schedule.timezone, schedule.run_at) {
        (Some(cron), Some(zone), _) => format!("{cron} {zone}"),
        (_, _, at) => at.map(format_time).unwrap_or_default(),
    }
}

impl Execute for GetScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::Schedule> = session.api.get(&format!("schedules/{}", self.id), &[]).await?;
        let path = format!("schedules/{}/ticks", self.id);
        let ticks: Answer<wire::Page<wire::Tick>> = session.api.get(&path, &[("limit", "10")]).await?;
        session.show(&known, |schedule| {
            let input = schedule.input.as_ref().map(ToString::to_string);
            output::print_record(
                &[
                    ("status", Cell::status(schedule.status.name())),
                    ("reason", Cell::optional(schedule.reason.as_ref())),
                    ("workflow", Cell::new(&schedule.workflow_name)),
                    ("when", Cell::new(when(schedule))),
                    ("next", Cell::optional(schedule.next_at.map(format_time))),
                    ("input", Cell::optional(input)),
                    ("overlap", Cell::new(schedule.overlap.name())),
                    ("catch-up", Cell::new(schedule.catch_up.name())),
                ],
                session.stdout,
            )?;
            if ticks.value.items.is_empty() {
                return output::print_line("\nno tick yet");
            }
            output::print_line("")?;
            let rows = ticks.value.items.iter().map(tick).collect();
            output::print_table(&["TICK", "STATUS", "EXECUTION", "REASON"], rows, session.stdout)
        })?;
        Ok(Exit::Done)
    }
}

fn tick(tick: &wire::Tick) -> Vec<Cell> {
    let by_hand = if tick.manual { " (run by hand)" } else { "" };
    vec![
        Cell::new(format!("{}{by_hand}", format_time(tick.at))),
        Cell::status(tick.status.name()),
        Cell::optional(tick.execution_id),
        Cell::optional(tick.reason.as_ref()),
    ]
}

impl Execute for NextTicksArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("cron", Some(self.cron)),
            ("timezone", self.timezone.clone()),
            ("after", self.after.map(|after| after.to_string())),
            ("count", Some(self.count.to_string())),
        ];
        let query: Vec<(&str, &str)> =
            given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let observed: Answer<wire::NextTicks> = session.api.get("schedules/next", &query).await?;
        session.show(&observed, |observed| {
            for at in &observed.items {
                let here = self.timezone.as_deref().and_then(|zone| at.in_tz(zone).ok());
                let here = here.map(|here| here.strftime("  %a %F %T %:z").to_string()).unwrap_or_default();
                output::print_line(format!("{}{here}", format_time(*at)))?;
            }
            Ok(())
        })?;
        Ok(Exit::Done)
    }
}

impl Execute for PauseScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        set(session, self.id, "pause").await
    }
}

impl Execute for ResumeScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        set(session, self.id, "resume").await
    }
}

async fn set(session: &Session, id: Uuid, what: &str) -> anyhow::Result<Exit> {
    let known: Answer<wire::Schedule> = session.api.post(&format!("schedules/{id}/{what}"), &json!({})).await?;
    session.show(&known, |schedule| output::print_line(format!("{id}: {}", schedule.status.name())))?;
    Ok(Exit::Done)
}

impl Execute for RunScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let key = self.idempotency_key.unwrap_or_else(|| Uuid::new_v4().to_string());
        let path = format!("schedules/{}/run", self.id);
        let started: Answer<wire::StartedExecution> = session.api.post_once(&path, &json!({}), &key).await?;
        session.show(&started, |started| output::print_line(started.execution_id))?;
        Ok(Exit::Done)
    }
}

impl Execute for DeleteScheduleArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if !self
            .confirmation
            .confirm(&format!("Delete schedule {}? The history of its ticks is deleted too.", self.id))?
        {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("schedules/{}", self.id)).await?;
        session.note(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
