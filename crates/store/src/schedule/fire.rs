//! Fires ticks. A tick is one time at which a schedule is due. The tick's row, its execution and the schedule's next
//! tick are one commit.
//!
//! A tick is missed if no process polled in time, or if the schedule was paused. `catch_up` decides about missed ticks
//! (`kernel::schedule`). With `skip`, no missed tick runs. With `last`, only the newest missed tick runs. With `all`,
//! the newest `MOST_CAUGHT_UP` missed ticks run.
//!
//! Invariants
//! - The result of a tick is written once: the schedule's row is locked, the update names the tick that it leaves, and
//!   the key of a tick is unique.
//! - An execution runs the version against which its input was checked; if another version was published, the input is
//!   checked again. If a tick cannot start an execution, the tick's row has the reason.
//! - Whether an execution of the schedule is open is read after the lock is held. So an execution that was just
//!   committed is seen.
//!
//! If the process dies before the commit, nothing changes and the schedule is still due. After the commit, the
//! executions are in the queue like all others, and the next poll finds the schedule at its next tick.
//!
//! Not here: which ticks are run (`kernel::schedule`), when to poll (`server::schedule`).

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::schedule::{self, Calendar, Overlap, Rule, TickDecision, TickStatus};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::rule_of;
use crate::queue::enqueue::{CheckedStart, EnqueueOutcome, Start, enqueue_on};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// How many ticks of a schedule are kept.
const MAX_TICKS_KEPT: i64 = 1_000;
const GONE: &str = "the definition or its workspace was deleted";

/// A schedule with a due tick.
#[derive(Clone, Debug)]
pub struct DueSchedule {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub input: Option<Value>,
    pub revision: i32,
}

/// The result of checking a schedule's input against the published version: the input with defaults, or why it is
/// invalid.
pub type InputCheck = Result<(Option<Value>, Option<VersionId>), String>;

/// The result of firing a due schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum FireOutcome {
    /// The ticks whose results were written, with how many seconds late each was.
    Done(Vec<(TickStatus, f64)>),
    /// Another process has locked the schedule, or the schedule changed. The next poll finds what remains to do.
    Lost,
    /// Another version was published since the input was checked; nothing was done.
    VersionChanged,
}

/// The result of a manual run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManualRunOutcome {
    Enqueued(EnqueueOutcome),
    /// The schedule was changed since its input was checked; nothing was done.
    Changed,
}

/// The result of one tick.
struct TickResult {
    status: TickStatus,
    reason: Option<String>,
    execution: Option<ExecutionId>,
}

/// A schedule that this transaction has locked.
struct LockedSchedule<'a> {
    due: &'a DueSchedule,
    rule: Rule,
    check: &'a InputCheck,
    max_backlog: Option<i32>,
    now: Timestamp,
    written: Vec<(TickStatus, f64)>,
    /// The schedule's definition or workspace was deleted.
    gone: bool,
}

impl Store {
    /// Schedules with a due tick, the longest due first.
    pub async fn due_schedules(&self, limit: i64) -> Result<Vec<DueSchedule>, Error> {
        let rows = self.query(sql!("schedule/due"), &[&limit]).await?;
        rows.iter().map(due_of).collect()
    }

    /// Reads the next `most` schedules with a buffered tick after a position, and returns those that may start that
    /// tick now. Also returns the position to continue from; None: from the beginning.
    pub async fn buffered_schedules(
        &self,
        after: Option<Uuid>,
        most: i64,
    ) -> Result<(Vec<DueSchedule>, Option<Uuid>), Error> {
        let rows = self.query(sql!("schedule/buffered"), &[&after.unwrap_or(Uuid::nil()), &most]).await?;
        let (mut turns, mut place) = (Vec::new(), None);
        for row in &rows {
            if row.try_get::<_, i64>("rows_read")? >= most {
                place = row.try_get("last")?;
            }
            if row.try_get::<_, Option<Uuid>>("id")?.is_some() {
                turns.push(due_of(row)?);
            }
        }
        Ok((turns, place))
    }

    /// Delays a failing schedule, with a growing backoff.
    pub async fn back_off_schedule(&self, due: &DueSchedule) -> Result<(), Error> {
        self.execute(sql!("schedule/back_off"), &[&due.id, &due.revision]).await.map(drop)
    }

    /// How many seconds until the next tick of any schedule; None if there is none.
    pub async fn next_tick(&self) -> Result<Option<f64>, Error> {
        Ok(self.one(sql!("schedule/next_due"), &[]).await?.try_get(0)?)
    }

    /// Fires the due ticks of a schedule and starts their executions.
    pub async fn fire(
        &self,
        due: &DueSchedule,
        check: &InputCheck,
        max_backlog: Option<i32>,
    ) -> Result<FireOutcome, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("schedule/lock_due"), &[&due.id, &due.revision]).await?;
        let Some(row) = row else { return Ok(FireOutcome::Lost) };
        let (next_at, buffered): (Timestamp, _) = (row.try_get("next_at")?, row.try_get("buffered_at")?);
        let rule = rule_of(&row)?;
        let now = row.try_get("now")?;
        let calendar = Calendar::read(&rule.timing, now).map_err(|bad| Error::Corrupt(bad.to_string()))?;
        let mut locked = LockedSchedule { due, rule, check, max_backlog, now, written: Vec::new(), gone: false };
        let plan = schedule::due(&calendar, locked.rule.catch_up, next_at, now);
        let plan = unknown(&transaction, due.id, plan).await?;
        let Some(mut buffered) = locked.ticks(&transaction, &plan, buffered).await? else {
            return Ok(FireOutcome::VersionChanged);
        };
        let next = if locked.gone { None } else { plan.next_at };
        let over = next.is_none().then_some(if locked.gone { GONE } else { "the schedule has no more ticks" });
        if let (Some(over), Some(at)) = (over, buffered) {
            locked.write(&transaction, at, TickResult::skipped(over)).await?;
            buffered = None;
        }
        let moved = transaction.execute(sql!("schedule/settle"), &[&due.id, &next_at, &next, &buffered, &over]).await?;
        if moved != 1 {
            return Ok(FireOutcome::Lost);
        }
        transaction.execute(sql!("schedule_tick/prune"), &[&due.id, &MAX_TICKS_KEPT]).await?;
        transaction.commit().await?;
        Ok(FireOutcome::Done(locked.written))
    }

    /// Starts an execution of the schedule now, whatever its ticks are. If the request has an idempotency key, at most
    /// one execution starts.
    pub async fn run_schedule(
        &self,
        due: &DueSchedule,
        start: Start,
        published: Option<VersionId>,
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<ManualRunOutcome, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("schedule/lock"), &[&due.id, &Some(due.workspace.0)]).await?;
        let row = row.ok_or(Error::NotFound)?;
        if row.try_get::<_, i32>("revision")? != due.revision {
            return Ok(ManualRunOutcome::Changed);
        }
        let now: Timestamp = row.try_get("now")?;
        let mut trigger = trigger(due.id, now);
        trigger["actor"] = json!(actor);
        let start = Start { trigger, ..start };
        let checked = [CheckedStart { start: &start, published, actor }];
        let accepted = enqueue_on(&transaction, &checked, max_backlog, None).await?;
        let accepted = *accepted.first().ok_or_else(unanswered)?;
        if let EnqueueOutcome::New { execution, .. } = accepted {
            let status = TickStatus::Started.name();
            let none = None::<&str>;
            transaction
                .execute(sql!("schedule_tick/add"), &[&due.id, &now, &true, &status, &none, &Some(execution.0)])
                .await?;
            transaction.execute(sql!("schedule_tick/prune"), &[&due.id, &MAX_TICKS_KEPT]).await?;
            let detail = json!({ "executionId": execution });
            audit(&transaction, Some(due.workspace), actor, "schedule.run", "schedule", due.id, &detail).await?;
            transaction.commit().await?;
        }
        Ok(ManualRunOutcome::Enqueued(accepted))
    }
}

impl LockedSchedule<'_> {
    /// Writes the result of every due tick. Returns the tick that stays buffered. None: the input must be checked
    /// again.
    async fn ticks(
        &mut self,
        transaction: &Transaction<'_>,
        plan: &schedule::DueTicks,
        mut buffered: Option<Timestamp>,
    ) -> Result<Option<Option<Timestamp>>, Error> {
        let row = transaction.query_one(sql!("schedule/open"), &[&self.due.id]).await?;
        let mut open: bool = row.try_get("open")?;
        if let Some(at) = buffered.filter(|_| !open) {
            let Some(started) = self.start(transaction, &[at]).await? else { return Ok(None) };
            (open, buffered) = (started, None);
        }
        if let Some((from, before)) = plan.missed {
            let why = format!(
                "missed, as were all later ticks before {before}: no process polled in time, or the schedule was paused"
            );
            self.write(transaction, from, TickResult::skipped(&why)).await?;
        }
        if self.rule.overlap == Overlap::Allow {
            return Ok(self.start(transaction, &plan.run).await?.map(|_| buffered));
        }
        for at in plan.run.iter().copied() {
            match schedule::decide_tick(self.rule.overlap, open, buffered.is_some()) {
                TickDecision::Start => {
                    let Some(started) = self.start(transaction, &[at]).await? else { return Ok(None) };
                    open = started;
                }
                TickDecision::Buffer => {
                    let made = TickResult { status: TickStatus::Buffered, reason: None, execution: None };
                    self.write(transaction, at, made).await?;
                    buffered = Some(at);
                }
                TickDecision::Skip(why) => self.write(transaction, at, TickResult::skipped(why)).await?,
            }
        }
        Ok(Some(buffered))
    }

    /// Starts an execution for each of these ticks, and writes their results. Returns whether any started. None: the
    /// input must be checked again.
    async fn start(&mut self, transaction: &Transaction<'_>, ticks: &[Timestamp]) -> Result<Option<bool>, Error> {
        let made = match self.check {
            Err(why) => ticks.iter().map(|_| TickResult::failed(why)).collect(),
            Ok((input, published)) => {
                let starts: Vec<Start> = ticks.iter().map(|at| self.request(*at, input.clone())).collect();
                let actor = format!("schedule:{}", self.due.id);
                let of = |start| CheckedStart { start, published: *published, actor: &actor };
                let checked: Vec<CheckedStart<'_>> = starts.iter().map(of).collect();
                let answers = enqueue_on(transaction, &checked, self.max_backlog, None).await?;
                if answers.contains(&EnqueueOutcome::VersionChanged) {
                    return Ok(None);
                }
                self.gone |= answers.contains(&EnqueueOutcome::NotFound);
                answers.into_iter().map(TickResult::of).collect::<Vec<_>>()
            }
        };
        let mut any = false;
        for (at, made) in ticks.iter().zip(made) {
            any |= made.execution.is_some();
            self.write(transaction, *at, made).await?;
        }
        Ok(Some(any))
    }

    fn request(&self, at: Timestamp, input: Option<Value>) -> Start {
        let key = format!("schedule:{}/{at}", self.due.id);
        let fingerprint = Sha256::digest(key.as_bytes()).to_vec();
        Start {
            execution: ExecutionId(new_id()),
            workspace: self.due.workspace,
            definition: self.due.definition,
            input,
            priority: self.rule.priority,
            run_at: None,
            concurrency_key: self.rule.concurrency_key.clone(),
            idempotency: Some((key, fingerprint)),
            trigger: trigger(self.due.id, at),
            trace: None,
            version: None,
            rerun_of: None,
        }
    }

    async fn write(&mut self, transaction: &Transaction<'_>, at: Timestamp, made: TickResult) -> Result<(), Error> {
        let execution = made.execution.map(|id| id.0);
        let new = transaction
            .execute(
                sql!("schedule_tick/add"),
                &[&self.due.id, &at, &false, &made.status.name(), &made.reason, &execution],
            )
            .await?;
        self.written.push((made.status, self.now.duration_since(at).as_secs_f64()));
        if new == 1 { Ok(()) } else { Err(Error::Conflict(format!("the tick {at} was already fired"))) }
    }
}

impl TickResult {
    fn skipped(why: &str) -> TickResult {
        TickResult { status: TickStatus::Skipped, reason: Some(why.to_owned()), execution: None }
    }

    fn failed(why: &str) -> TickResult {
        TickResult { status: TickStatus::Failed, reason: Some(why.to_owned()), execution: None }
    }

    fn of(accepted: EnqueueOutcome) -> TickResult {
        match accepted {
            EnqueueOutcome::New { execution, .. } | EnqueueOutcome::Existing { execution } => {
                TickResult { status: TickStatus::Started, reason: None, execution: Some(execution) }
            }
            EnqueueOutcome::BacklogFull => {
                let why = "the workspace's backlog limit is reached".to_owned();
                TickResult { status: TickStatus::Refused, reason: Some(why), execution: None }
            }
            EnqueueOutcome::Conflict => {
                TickResult::failed("the idempotency key of this tick was used for another request")
            }
            EnqueueOutcome::Draft => TickResult::failed("the definition was never published"),
            EnqueueOutcome::NotFound | EnqueueOutcome::VersionChanged => TickResult::failed(GONE),
        }
    }
}

/// Leaves out ticks whose results are already stored. So ticks are not repeated if the schedule is set back in time.
async fn unknown(
    transaction: &Transaction<'_>,
    id: Uuid,
    plan: schedule::DueTicks,
) -> Result<schedule::DueTicks, Error> {
    let asked: Vec<Timestamp> = plan.run.iter().copied().chain(plan.missed.map(|(from, _)| from)).collect();
    let rows = transaction.query(sql!("schedule_tick/stored"), &[&id, &asked]).await?;
    let known = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<Timestamp>, Error>>()?;
    Ok(schedule::DueTicks {
        missed: plan.missed.filter(|(from, _)| !known.contains(from)),
        run: plan.run.into_iter().filter(|tick| !known.contains(tick)).collect(),
        next_at: plan.next_at,
    })
}

fn due_of(row: &tokio_postgres::Row) -> Result<DueSchedule, Error> {
    Ok(DueSchedule {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        input: row.try_get("input")?,
        revision: row.try_get("revision")?,
    })
}

/// The trigger data of an execution that a tick started.
fn trigger(schedule: Uuid, tick: Timestamp) -> Value {
    json!({ "type": "schedule", "schedule": schedule, "tick": tick })
}

fn unanswered() -> Error {
    Error::Corrupt("a start returned no row".to_owned())
}
