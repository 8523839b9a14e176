//! Schedules and their ticks: creates, changes, pauses and lists schedules, and replaces those of a definition when it
//! is published.
//!
//! Invariants
//! - A schedule made by a definition's `on: schedule` belongs to the definition. Only publishing and deleting the
//!   definition change it.
//! - A pause keeps `next_at`, so that after a resume the ticks missed during the pause are known.
//! - Every accepted change writes an audit row in its own transaction.
//!
//! Not here: what a rule means (`kernel::schedule`), firing ticks (`fire`).

pub mod fire;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::schedule::{Calendar, CatchUp, Overlap, Rule, Status, TickStatus, Timing};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::page::Paged;
use crate::sql::sql;
use crate::workspace::{audit, changed_meanwhile};
use crate::{Error, Store, new_id, parsed};

/// The maximum number of schedules in a workspace that have not ended.
pub const MAX_SCHEDULES: i64 = 1_000;
/// The reason that is stored on a schedule that ended because its definition was deleted.
const DELETED: &str = "the definition was deleted";
/// The reason that is stored on a buffered tick that was skipped.
const CHANGED: &str = "the schedule was changed while the tick was buffered";

/// A stored schedule.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: String,
    /// Made by the definition's `on: schedule`.
    pub by_definition: bool,
    pub rule: Rule,
    pub status: Status,
    /// Why it ended.
    pub reason: Option<String>,
    pub next_at: Option<Timestamp>,
    /// A tick that waits until an earlier execution of the schedule has ended.
    pub buffered_at: Option<Timestamp>,
    pub revision: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The record of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    pub at: Timestamp,
    pub by_hand: bool,
    pub status: TickStatus,
    pub reason: Option<String>,
    pub execution: Option<ExecutionId>,
    pub decided_at: Timestamp,
}

impl Store {
    /// The database's time.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.one(sql!("schedule/now"), &[]).await?.try_get(0)?)
    }

    /// Creates a schedule whose first tick is `next_at`.
    pub async fn create_schedule(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        rule: &Rule,
        next_at: Timestamp,
        actor: &str,
    ) -> Result<Uuid, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (id, columns) = (new_id(), Columns::of(rule));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&id, &workspace.0, &definition.0];
        params.extend(columns.params());
        params.push(&next_at);
        transaction.execute(sql!("schedule/add"), &params).await?;
        check_limit(&transaction, workspace).await?;
        let detail = json!({ "workflowDefinitionId": definition, "when": rule.timing });
        audit(&transaction, Some(workspace), actor, "schedule.create", "schedule", id, &detail).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// Changes a schedule, except its definition. If its revision is no longer `revision`, the result is a `Conflict`.
    pub async fn change_schedule(
        &self,
        (id, revision): (Uuid, i32),
        workspace: Option<WorkspaceId>,
        rule: &Rule,
        next_at: Timestamp,
        actor: &str,
    ) -> Result<(), Error> {
        self.changeable_schedule(id, workspace).await?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, columns) = (workspace.map(|id| id.0), Columns::of(rule));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&id, &of];
        params.extend(columns.params());
        params.push(&next_at);
        params.push(&revision);
        let row = transaction.query_opt(sql!("schedule/change"), &params).await?.ok_or_else(changed_meanwhile)?;
        let owner = WorkspaceId(row.try_get(0)?);
        transaction.execute(sql!("schedule_tick/skip_buffered"), &[&id, &CHANGED]).await?;
        check_limit(&transaction, owner).await?;
        let detail = json!({ "when": rule.timing });
        audit(&transaction, Some(owner), actor, "schedule.update", "schedule", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Deletes a schedule with its ticks. Executions that it started continue.
    pub async fn delete_schedule(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        self.changeable_schedule(id, workspace).await?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("schedule/delete"), &[&id, &of]).await?.ok_or(Error::NotFound)?;
        let owner = WorkspaceId(row.try_get(0)?);
        audit(&transaction, Some(owner), actor, "schedule.delete", "schedule", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }

    /// Pauses or resumes a schedule. Returns whether that changed anything. For an ended schedule, the result is a
    /// `Conflict`.
    pub async fn pause_schedule(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        paused: bool,
        actor: &str,
    ) -> Result<bool, Error> {
        let (from, to) = if paused { (Status::Active, Status::Paused) } else { (Status::Paused, Status::Active) };
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("schedule/pause"), &[&id, &of, &from.name(), &to.name()]).await?;
        let Some(row) = row else {
            drop(transaction);
            drop(client);
            return match self.schedule(id, workspace).await?.status {
                status if status == to => Ok(false),
                _ => Err(Error::Conflict("the schedule has ended: change it to start it again".to_owned())),
            };
        };
        let owner = WorkspaceId(row.try_get(0)?);
        let action = if paused { "schedule.pause" } else { "schedule.resume" };
        audit(&transaction, Some(owner), actor, action, "schedule", id, &json!({})).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Lists schedules of a workspace (None: all), by id after `after`. If `definition` is given, only its schedules.
    pub async fn schedules(
        &self,
        workspace: Option<WorkspaceId>,
        definition: Option<DefinitionId>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Paged<Schedule>, Error> {
        let (workspace, definition) = (workspace.map(|id| id.0), definition.map(|id| id.0));
        let (after, one) = (after.unwrap_or(Uuid::nil()), None::<Uuid>);
        self.paged(sql!("schedule/list"), &[&after, &workspace, &definition, &one, &limit], schedule_of).await
    }

    /// One schedule, if this workspace (None: any) may see it.
    pub async fn schedule(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Schedule, Error> {
        let (workspace, any) = (workspace.map(|id| id.0), None::<Uuid>);
        schedule_of(&self.one(sql!("schedule/list"), &[&Uuid::nil(), &workspace, &any, &Some(id), &1_i64]).await?)
    }

    /// Lists ticks of a schedule before a position (None: all), newest first.
    pub async fn ticks(&self, id: Uuid, before: Option<(Timestamp, bool)>, limit: i64) -> Result<Vec<Tick>, Error> {
        let (at, by_hand) = before.unwrap_or((Timestamp::MAX, true));
        let rows = self.query(sql!("schedule_tick/list"), &[&id, &at, &by_hand, &limit]).await?;
        rows.iter().map(tick_of).collect()
    }

    async fn changeable_schedule(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<(), Error> {
        match self.schedule(id, workspace).await? {
            Schedule { by_definition: true, .. } => Err(Error::Conflict(
                "this schedule belongs to its definition (`on: schedule`): change it there, and publish".to_owned(),
            )),
            Schedule { reason: Some(reason), .. } if reason == DELETED => Err(Error::Conflict(reason)),
            _ => Ok(()),
        }
    }
}

/// Makes the stored schedules of a definition those of its published version, in the transaction that publishes it.
/// Adds, changes and deletes schedules as needed.
pub(crate) async fn store_published_schedules(
    transaction: &Transaction<'_>,
    id: DefinitionId,
    actor: &str,
) -> Result<(), Error> {
    let row = transaction.query_one(sql!("schedule/published"), &[&id.0]).await?;
    let (workspace, now): (WorkspaceId, Timestamp) = (WorkspaceId(row.try_get("workspace_id")?), row.try_get("now")?);
    let rules = row.try_get::<_, Option<Value>>("rules")?.unwrap_or_else(|| json!([]));
    let corrupt = |why: String| Error::Corrupt(format!("the schedules of definition {id}: {why}"));
    let rules: Vec<Rule> = serde_json::from_value(rules).map_err(|error| corrupt(error.to_string()))?;
    let columns: Vec<Columns<'_>> = rules.iter().map(Columns::of).collect();
    let crons: Vec<Option<&str>> = columns.iter().map(|of| of.cron).collect();
    let zones: Vec<Option<&str>> = columns.iter().map(|of| of.timezone).collect();
    for row in transaction.query(sql!("schedule/replace"), &[&id.0, &crons, &zones]).await? {
        let gone: Uuid = row.try_get(0)?;
        audit(transaction, Some(workspace), actor, "schedule.delete", "schedule", gone, &json!({ "of": id })).await?;
    }
    for (rule, of) in rules.iter().zip(&columns) {
        let calendar = Calendar::read(&rule.timing, now).map_err(|bad| corrupt(bad.to_string()))?;
        let next_at = calendar.after(now).ok_or_else(|| corrupt("the calendar has no future tick".to_owned()))?;
        let made = new_id();
        let kept: Uuid = transaction
            .query_one(
                sql!("schedule/publish"),
                &[
                    &made,
                    &workspace.0,
                    &id.0,
                    &of.cron,
                    &of.timezone,
                    &rule.input,
                    &of.priority,
                    &rule.concurrency_key,
                    &of.overlap,
                    &of.catch_up,
                    &next_at,
                ],
            )
            .await?
            .try_get(0)?;
        if kept == made {
            let detail = json!({ "workflowDefinitionId": id, "when": rule.timing });
            audit(transaction, Some(workspace), actor, "schedule.create", "schedule", made, &detail).await?;
        }
    }
    check_limit(transaction, workspace).await
}

/// Ends the schedules of a definition, in the transaction that deletes it.
pub(crate) async fn end_schedules_of(transaction: &Transaction<'_>, definition: DefinitionId) -> Result<(), Error> {
    transaction.execute(sql!("schedule/end"), &[&definition.0, &DELETED]).await?;
    Ok(())
}

async fn check_limit(transaction: &Transaction<'_>, workspace: WorkspaceId) -> Result<(), Error> {
    let row = transaction.query_one(sql!("schedule/count"), &[&workspace.0, &(MAX_SCHEDULES + 1)]).await?;
    match row.try_get::<_, i64>(0)? <= MAX_SCHEDULES {
        true => Ok(()),
        false => Err(Error::Conflict(format!(
            "the workspace's limit of {MAX_SCHEDULES} schedules is reached: delete some first"
        ))),
    }
}

/// A rule as columns.
struct Columns<'r> {
    cron: Option<&'r str>,
    timezone: Option<&'r str>,
    run_at: Option<Timestamp>,
    input: &'r Option<Value>,
    priority: i16,
    key: &'r Option<String>,
    overlap: &'static str,
    catch_up: &'static str,
}

impl<'r> Columns<'r> {
    fn of(rule: &'r Rule) -> Columns<'r> {
        let (cron, timezone, run_at) = match &rule.timing {
            Timing::Cron { cron, timezone } => (Some(cron.as_str()), Some(timezone.as_str()), None),
            Timing::At { at } => (None, None, Some(*at)),
        };
        Columns {
            cron,
            timezone,
            run_at,
            input: &rule.input,
            priority: rule.priority.value(),
            key: &rule.concurrency_key,
            overlap: rule.overlap.name(),
            catch_up: rule.catch_up.name(),
        }
    }

    /// In the order of the statements' parameters.
    fn params(&self) -> [&(dyn ToSql + Sync); 8] {
        let Columns { cron, timezone, run_at, input, priority, key, overlap, catch_up } = self;
        [cron, timezone, run_at, *input, priority, *key, overlap, catch_up]
    }
}

fn rule_of(row: &Row) -> Result<Rule, Error> {
    let cron: Option<String> = row.try_get("cron")?;
    let timing = match (cron, row.try_get("timezone")?, row.try_get("run_at")?) {
        (Some(cron), Some(timezone), _) => Timing::Cron { cron, timezone },
        (_, _, Some(at)) => Timing::At { at },
        _ => return Err(Error::Corrupt("a schedule has neither a cron expression nor a time".to_owned())),
    };
    Ok(Rule {
        timing,
        input: row.try_get("input")?,
        priority: Priority::new(row.try_get("priority")?).map_err(|error| Error::Corrupt(error.to_string()))?,
        concurrency_key: row.try_get("concurrency_key")?,
        overlap: parsed(row, "overlap", Overlap::parse)?,
        catch_up: parsed(row, "catch_up", CatchUp::parse)?,
    })
}

fn schedule_of(row: &Row) -> Result<Schedule, Error> {
    Ok(Schedule {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        by_definition: row.try_get("by_definition")?,
        rule: rule_of(row)?,
        status: parsed(row, "status", Status::parse)?,
        reason: row.try_get("reason")?,
        next_at: row.try_get("next_at")?,
        buffered_at: row.try_get("buffered_at")?,
        revision: row.try_get("revision")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}

fn tick_of(row: &Row) -> Result<Tick, Error> {
    Ok(Tick {
        at: row.try_get("tick_at")?,
        by_hand: row.try_get("by_hand")?,
        status: parsed(row, "status", TickStatus::parse)?,
        reason: row.try_get("reason")?,
        execution: row.try_get::<_, Option<Uuid>>("execution_id")?.map(ExecutionId),
        decided_at: row.try_get("decided_at")?,
    })
}
