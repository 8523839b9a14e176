//! Taking ticks: the tick's row, the start of its execution and the schedule's next time in one commit.
//!
//! Invariants
//! - A tick is written once: the schedule's row is locked, the next time it leaves is named, and the tick's key is
//!   unique.
//! - A start runs the version that its input was judged by, or is judged anew; what cannot start is written on its
//!   tick.
//! - Whether something of the schedule is open is asked after the lock is had: what another started just now is seen.
//!
//! What happens if the process dies: before the commit nothing happened, and the schedule is still due; after it, the
//! executions wait in the queue like any other. A second look finds the next time moved on.
//!
//! Not here: which ticks are run (`kernel::schedule`), when to look (`server::schedule`).

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::schedule::{self, Calendar, Fate, Overlap, Rule, TickStatus};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::rule_of;
use crate::queue::enqueue::{Accepted, Judged, Start, enqueue_on};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// How many ticks of a schedule are kept.
const KEPT: i64 = 1_000;
const GONE: &str = "the definition or its workspace is gone";

/// A schedule with a tick to look at.
#[derive(Clone, Debug)]
pub struct Due {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub input: Option<Value>,
    pub revision: i32,
}

/// What was said of its input: with its defaults, by the version that is published; or why it is refused.
pub type Verdict = Result<(Option<Value>, Option<VersionId>), String>;

/// What a look at a due schedule did.
#[derive(Clone, Debug, PartialEq)]
pub enum Fired {
    /// The ticks it wrote, with how late each was in seconds.
    Done(Vec<(TickStatus, f64)>),
    /// Another has it, or it changed: whoever looks next sees what is to do.
    Lost,
    /// Another version is published than the one it was judged by; nothing was done.
    Moved,
}

/// What a trigger by hand did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triggered {
    Accepted(Accepted),
    /// The schedule was changed since it was judged; nothing was done.
    Changed,
}

/// What becomes of one tick.
struct Made {
    status: TickStatus,
    reason: Option<String>,
    execution: Option<ExecutionId>,
}

/// A schedule that this transaction has locked.
struct Taken<'a> {
    due: &'a Due,
    rule: Rule,
    verdict: &'a Verdict,
    max_backlog: Option<i32>,
    now: Timestamp,
    written: Vec<(TickStatus, f64)>,
    /// What it starts is no more.
    gone: bool,
}

impl Store {
    /// Schedules with a tick to look at, the longest due first.
    pub async fn due_schedules(&self, limit: i64) -> Result<Vec<Due>, Error> {
        let rows = self.query(sql!("schedule/due"), &[&limit]).await?;
        rows.iter().map(due_of).collect()
    }

    /// Of the next `most` schedules after a place with a tick that waits, those whose turn has come; and the place to
    /// go on from, none when that is the beginning.
    pub async fn buffered_schedules(&self, after: Option<Uuid>, most: i64) -> Result<(Vec<Due>, Option<Uuid>), Error> {
        let rows = self.query(sql!("schedule/buffered"), &[&after.unwrap_or(Uuid::nil()), &most]).await?;
        let (mut turns, mut place) = (Vec::new(), None);
        for row in &rows {
            if row.try_get::<_, i64>("looked_at")? >= most {
                place = row.try_get("last")?;
            }
            if row.try_get::<_, Option<Uuid>>("id")?.is_some() {
                turns.push(due_of(row)?);
            }
        }
        Ok((turns, place))
    }

    /// Lets a schedule in trouble be, for a while that grows.
    pub async fn put_off_schedule(&self, due: &Due) -> Result<(), Error> {
        self.execute(sql!("schedule/put_off"), &[&due.id, &due.revision]).await.map(drop)
    }

    /// How many seconds until the next tick of any schedule; none without one.
    pub async fn next_tick(&self) -> Result<Option<f64>, Error> {
        Ok(self.one(sql!("schedule/next_due"), &[]).await?.try_get(0)?)
    }

    /// Takes the ticks of a schedule that are due, and starts what they start.
    pub async fn fire(&self, due: &Due, verdict: &Verdict, max_backlog: Option<i32>) -> Result<Fired, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("schedule/take"), &[&due.id, &due.revision]).await?;
        let Some(row) = row else { return Ok(Fired::Lost) };
        let (next_at, buffered): (Timestamp, _) = (row.try_get("next_at")?, row.try_get("buffered_at")?);
        let rule = rule_of(&row)?;
        let now = row.try_get("now")?;
        let calendar = Calendar::read(&rule.timing, now).map_err(|bad| Error::Corrupt(bad.to_string()))?;
        let mut taken = Taken { due, rule, verdict, max_backlog, now, written: Vec::new(), gone: false };
        let plan = schedule::due(&calendar, taken.rule.catch_up, next_at, now);
        let plan = unknown(&transaction, due.id, plan).await?;
        let Some(mut buffered) = taken.ticks(&transaction, &plan, buffered).await? else { return Ok(Fired::Moved) };
        let next = if taken.gone { None } else { plan.next_at };
        let over = next.is_none().then_some(if taken.gone { GONE } else { "its time has come and gone" });
        if let (Some(over), Some(at)) = (over, buffered) {
            taken.write(&transaction, at, Made::skipped(over)).await?;
            buffered = None;
        }
        let moved = transaction.execute(sql!("schedule/settle"), &[&due.id, &next_at, &next, &buffered, &over]).await?;
        if moved != 1 {
            return Ok(Fired::Lost);
        }
        transaction.execute(sql!("schedule_tick/prune"), &[&due.id, &KEPT]).await?;
        transaction.commit().await?;
        Ok(Fired::Done(taken.written))
    }

    /// Starts what a schedule starts, now, whatever it started before. With a key, once.
    pub async fn trigger(
        &self,
        due: &Due,
        start: Start,
        published: Option<VersionId>,
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<Triggered, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("schedule/lock"), &[&due.id, &Some(due.workspace.0)]).await?;
        let row = row.ok_or(Error::NotFound)?;
        if row.try_get::<_, i32>("revision")? != due.revision {
            return Ok(Triggered::Changed);
        }
        let now: Timestamp = row.try_get("now")?;
        let mut trigger = trigger(due.id, now);
        trigger["actor"] = json!(actor);
        let start = Start { trigger, ..start };
        let judged = [Judged { start: &start, published }];
        let accepted = enqueue_on(&transaction, &judged, max_backlog, actor).await?;
        let accepted = *accepted.first().ok_or_else(unanswered)?;
        if let Accepted::New { execution, .. } = accepted {
            let status = TickStatus::Started.name();
            let none = None::<&str>;
            transaction
                .execute(sql!("schedule_tick/add"), &[&due.id, &now, &true, &status, &none, &Some(execution.0)])
                .await?;
            transaction.execute(sql!("schedule_tick/prune"), &[&due.id, &KEPT]).await?;
            let detail = json!({ "executionId": execution });
            audit(&transaction, Some(due.workspace), actor, "schedule.trigger", "schedule", due.id, &detail).await?;
            transaction.commit().await?;
        }
        Ok(Triggered::Accepted(accepted))
    }
}

impl Taken<'_> {
    /// Writes what becomes of every tick; answers the one that waits. None: it must be judged anew.
    async fn ticks(
        &mut self,
        transaction: &Transaction<'_>,
        plan: &schedule::Due,
        mut buffered: Option<Timestamp>,
    ) -> Result<Option<Option<Timestamp>>, Error> {
        let row = transaction.query_one(sql!("schedule/open"), &[&self.due.id]).await?;
        let mut open: bool = row.try_get("open")?;
        if let Some(at) = buffered.filter(|_| !open) {
            let Some(started) = self.start(transaction, &[at]).await? else { return Ok(None) };
            (open, buffered) = (started, None);
        }
        if let Some((from, before)) = plan.missed {
            let why = format!("missed, with those until {before}: nobody looked in time, or it was paused");
            self.write(transaction, from, Made::skipped(&why)).await?;
        }
        if self.rule.overlap == Overlap::Allow {
            return Ok(self.start(transaction, &plan.run).await?.map(|_| buffered));
        }
        for at in plan.run.iter().copied() {
            match schedule::meet(self.rule.overlap, open, buffered.is_some()) {
                Fate::Start => {
                    let Some(started) = self.start(transaction, &[at]).await? else { return Ok(None) };
                    open = started;
                }
                Fate::Buffer => {
                    let made = Made { status: TickStatus::Buffered, reason: None, execution: None };
                    self.write(transaction, at, made).await?;
                    buffered = Some(at);
                }
                Fate::Skip(why) => self.write(transaction, at, Made::skipped(why)).await?,
            }
        }
        Ok(Some(buffered))
    }

    /// Starts ticks, and writes how that went; answers whether any did. None: they must be judged anew.
    async fn start(&mut self, transaction: &Transaction<'_>, ticks: &[Timestamp]) -> Result<Option<bool>, Error> {
        let made = match self.verdict {
            Err(why) => ticks.iter().map(|_| Made::failed(why)).collect(),
            Ok((input, published)) => {
                let starts: Vec<Start> = ticks.iter().map(|at| self.request(*at, input.clone())).collect();
                let judged: Vec<Judged<'_>> =
                    starts.iter().map(|start| Judged { start, published: *published }).collect();
                let actor = format!("schedule:{}", self.due.id);
                let answers = enqueue_on(transaction, &judged, self.max_backlog, &actor).await?;
                if answers.contains(&Accepted::Moved) {
                    return Ok(None);
                }
                self.gone |= answers.contains(&Accepted::NotFound);
                answers.into_iter().map(Made::of).collect::<Vec<_>>()
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

    async fn write(&mut self, transaction: &Transaction<'_>, at: Timestamp, made: Made) -> Result<(), Error> {
        let execution = made.execution.map(|id| id.0);
        let new = transaction
            .execute(
                sql!("schedule_tick/add"),
                &[&self.due.id, &at, &false, &made.status.name(), &made.reason, &execution],
            )
            .await?;
        self.written.push((made.status, self.now.duration_since(at).as_secs_f64()));
        if new == 1 { Ok(()) } else { Err(Error::Conflict(format!("the tick {at} was taken before"))) }
    }
}

impl Made {
    fn skipped(why: &str) -> Made {
        Made { status: TickStatus::Skipped, reason: Some(why.to_owned()), execution: None }
    }

    fn failed(why: &str) -> Made {
        Made { status: TickStatus::Failed, reason: Some(why.to_owned()), execution: None }
    }

    fn of(accepted: Accepted) -> Made {
        match accepted {
            Accepted::New { execution, .. } | Accepted::Existing { execution } => {
                Made { status: TickStatus::Started, reason: None, execution: Some(execution) }
            }
            Accepted::Full => {
                let why = "as many executions wait in this workspace as may".to_owned();
                Made { status: TickStatus::Refused, reason: Some(why), execution: None }
            }
            Accepted::Conflict => Made::failed("the idempotency key of this tick was used for something else"),
            Accepted::Draft => Made::failed("the definition was never published"),
            Accepted::NotFound | Accepted::Moved => Made::failed(GONE),
        }
    }
}

/// The same without ticks that are there: a schedule that was set back does not repeat them.
async fn unknown(transaction: &Transaction<'_>, id: Uuid, plan: schedule::Due) -> Result<schedule::Due, Error> {
    let asked: Vec<Timestamp> = plan.run.iter().copied().chain(plan.missed.map(|(from, _)| from)).collect();
    let rows = transaction.query(sql!("schedule_tick/known"), &[&id, &asked]).await?;
    let known = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<Timestamp>, Error>>()?;
    Ok(schedule::Due {
        missed: plan.missed.filter(|(from, _)| !known.contains(from)),
        run: plan.run.into_iter().filter(|tick| !known.contains(tick)).collect(),
        next_at: plan.next_at,
    })
}

fn due_of(row: &tokio_postgres::Row) -> Result<Due, Error> {
    Ok(Due {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        input: row.try_get("input")?,
        revision: row.try_get("revision")?,
    })
}

/// What an execution is told of the tick that started it.
fn trigger(schedule: Uuid, tick: Timestamp) -> Value {
    json!({ "type": "schedule", "schedule": schedule, "tick": tick })
}

fn unanswered() -> Error {
    Error::Corrupt("a start was not answered".to_owned())
}
