//! What nodes ask of the world outside, and its answers: waits for people, callbacks and events, and tasks for workers.
//!
//!     (nobody asked yet) ANSWERED ◀─answer
//!     OPEN ─claim▶ CLAIMED ─lease lost▶ OPEN      OPEN, CLAIMED ─answer▶ ANSWERED ─seen by the run▶ TAKEN
//!     OPEN, CLAIMED ─time is up▶ EXPIRED          OPEN, CLAIMED ─the execution ended▶ CLOSED
//!
//! Invariants
//! - Asking is fenced by the run that holds the ask, and repeatable: whoever performs a node again after a crash is
//!   told how it stands.
//! - One answer an ask: the row's status decides between answers, deadlines and ends that come at the same moment.
//! - An answer and the call of the run that listens are one commit. Dying before it leaves the ask as it was; after it,
//!   the run is woken by its owner's heartbeat or by the waker, whatever becomes of the hint.
//! - An execution row is locked before its asks.
//!
//! Not here: tasks and their claims (`task`), what the data must be (`kernel::definition::inputs`), who is told
//! (`server`).

mod below;
mod event;
pub mod task;
mod token;

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ExecutionId, NodeKey, ProcessId, WorkspaceId};
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

pub use event::{Candidate, Page};
pub use token::{Minted, Pass, Token};

use crate::run::attempt::Hold;
use crate::run::{failure, json};
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// Where it is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub execution: ExecutionId,
    pub node: NodeKey,
    pub iteration: i32,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An answer; of events of this type, if one is given, one for which `matches` holds.
    Wait { event: Option<String>, matches: Option<String> },
    /// Work, offered in a queue. A worker may be silent for `lease`.
    Task { queue: String, lease: Duration },
}

/// What a node asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub place: Place,
    pub workspace: WorkspaceId,
    pub attempt: u32,
    pub what: What,
    pub input: Value,
    pub expires_in: Option<Duration>,
}

/// How an ask stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    Open { expires_in: Option<Duration> },
    Answered(Answer),
    Expired,
}

/// What came, from whom and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub result: Result<Value, Failure>,
    pub by: String,
    pub at: Timestamp,
}

/// An ask that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Came {
    pub place: Place,
    pub attempt: u32,
    /// Never open.
    pub standing: Standing,
}

/// A run to be told that something came for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub engine: String,
    pub holder: ExecutionId,
    /// Who has it; none: it is parked.
    pub owner: Option<ProcessId>,
}

/// What became of an answer to a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Accepted(Option<Call>),
    /// Nobody asked yet: it is kept until somebody does.
    Early,
    /// Somebody else was first.
    Answered,
    /// This token was used.
    Used,
    Expired(Option<Call>),
    /// The execution has ended.
    Over,
    /// The node has settled without it, or the loop that it is an item of.
    Settled,
    /// The loop's list ends before this item.
    Past,
}

/// A wait as people read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub place: Place,
    pub attempt: i32,
    pub status: kernel::wait::Status,
    pub event: Option<String>,
    pub matches: Option<String>,
    pub input: Option<Value>,
    pub opened_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub answered_by: Option<String>,
    pub answered_at: Option<Timestamp>,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Tasks that are offered again, because their workers were silent.
    pub lost: usize,
    /// Tasks that failed, because too many were.
    pub failed: usize,
    pub expired: usize,
    pub calls: Vec<Call>,
}

impl Store {
    /// Opens what a node asks, or says how it stands. None if the hold is lost, or the execution that asks is over. The
    /// same attempt again changes nothing; a later one opens it anew. An answer that came early is returned at once,
    /// and one that was returned before again.
    pub async fn ask(&self, hold: Hold, ask: &Ask) -> Result<Option<Standing>, Error> {
        let Ask { place, workspace, attempt, what, input, expires_in } = ask;
        let (kind, event, matches, queue, lease) = match what {
            What::Wait { event, matches } => ("WAIT", event.as_deref(), matches.as_deref(), None, None),
            What::Task { queue, lease } => ("TASK", None, None, Some(queue.as_str()), Some(lease.as_secs_f64())),
        };
        let attempt = i32::try_from(*attempt).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql!("workflow_execution_ask/ask"),
                &[
                    &hold.execution.0,
                    &hold.owner.0,
                    &hold.epoch,
                    &place.execution.0,
                    &place.node.as_str(),
                    &place.iteration,
                    &workspace.0,
                    &attempt,
                    &kind,
                    &event,
                    &matches,
                    &queue,
                    &lease,
                    &input,
                    &expires_in.map(|left| left.as_secs_f64()),
                ],
            )
            .await?;
        if !row.try_get::<_, bool>("held")? {
            return Ok(None);
        }
        if row.try_get::<_, i32>("attempt")? != attempt {
            return Err(Error::Conflict("a later attempt has asked".to_owned()));
        }
        let expires_in: Option<f64> = row.try_get("expires_in_s")?;
        match parsed(&row, "status", kernel::wait::Status::parse)? {
            status if status.is_open() => {
                let expires_in = expires_in.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default());
                Ok(Some(Standing::Open { expires_in }))
            }
            status => over(status, &row).map(Some),
        }
    }

    /// What came for the asks of a holder's tree since the last look, which counts as seen then; that the run was
    /// called counts as heard. None if the hold is lost. What a lost reply said is in `answers_taken`.
    pub async fn answers(&self, hold: Hold) -> Result<Option<Vec<Came>>, Error> {
        let Hold { execution, owner, epoch } = hold;
        let rows = self.query(sql!("workflow_execution_ask/answers"), &[&execution.0, &owner.0, &epoch]).await?;
        let mut came = Vec::new();
        for row in &rows {
            if !row.try_get::<_, bool>("held")? {
                return Ok(None);
            }
            let Some(execution) = row.try_get::<_, Option<Uuid>>("execution")? else { continue };
            came.push(came_of(row, ExecutionId(execution))?);
        }
        Ok(Some(came))
    }

    /// What `answers` took for a holder's tree before, as far as no record of its node says so: the reply that told it
    /// may have been lost. It may be repeated, and may tell what was heard.
    pub async fn answers_taken(&self, holder: ExecutionId) -> Result<Vec<Came>, Error> {
        let rows = self.query(sql!("workflow_execution_ask/taken_below"), &[&holder.0]).await?;
        rows.iter().map(|row| came_of(row, ExecutionId(row.try_get("execution")?))).collect()
    }

    /// Answers a wait of a workspace (none: any), also one that nobody asked for yet. That the node is a wait of the
    /// execution's version is the caller's to know. Repeated it is told that somebody was first.
    pub async fn answer(
        &self,
        place: &Place,
        workspace: Option<WorkspaceId>,
        data: &Value,
        by: &str,
    ) -> Result<Told, Error> {
        self.answer_with(place, workspace, None, data, (by, false)).await
    }

    async fn answer_with(
        &self,
        place: &Place,
        workspace: Option<WorkspaceId>,
        token: Option<&Token>,
        data: &Value,
        (by, only_open): (&str, bool),
    ) -> Result<Told, Error> {
        let (workspace, token) = (workspace.map(|id| id.0), token.map(Token::hash));
        let Place { execution, node, iteration } = place;
        let row = self
            .one(
                sql!("workflow_execution_ask/answer"),
                &[&execution.0, &node.as_str(), iteration, &workspace, &token, &data, &by, &only_open],
            )
            .await?;
        match row.try_get("told")? {
            "accepted" => Ok(Told::Accepted(call_of(&row)?)),
            "early" => Ok(Told::Early),
            "answered" => Ok(Told::Answered),
            "used" => Ok(Told::Used),
            "expired" => Ok(Told::Expired(call_of(&row)?)),
            "over" => Ok(Told::Over),
            "settled" => Ok(Told::Settled),
            "past" => Ok(Told::Past),
            "missing" => Err(Error::NotFound),
            other => Err(Error::Corrupt(format!("an answer was told {other}"))),
        }
    }

    /// The waits of an execution, by node and iteration, after a place.
    pub async fn waits(
        &self,
        execution: ExecutionId,
        workspace: Option<WorkspaceId>,
        after: Option<(&str, i32)>,
        limit: i64,
    ) -> Result<Vec<Wait>, Error> {
        let (workspace, node, iteration) = (workspace.map(|id| id.0), after.map(|at| at.0), after.map(|at| at.1));
        let rows = self
            .query(sql!("workflow_execution_ask/list"), &[&execution.0, &workspace, &node, &iteration, &limit])
            .await?;
        rows.iter().map(|row| wait_of(row, execution)).collect()
    }

    /// Runs of an engine elsewhere that were called `ago` or earlier and have not looked since.
    pub async fn called(&self, engine: &str, ago: Duration, limit: i64) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/called"), &[&engine, &ago.as_secs_f64(), &limit]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get("id")?))).collect()
    }

    /// Takes the time from what is overdue and tasks from workers that are silent, at most `limit` of each.
    pub async fn sweep_asks(&self, limit: i32) -> Result<Swept, Error> {
        let error = json(&kernel::kind::task::abandoned());
        let rows = self
            .query(sql!("workflow_execution_ask/sweep"), &[&limit, &kernel::kind::task::MAX_DELIVERIES, &error])
            .await?;
        let mut swept = Swept::default();
        for row in &rows {
            match row.try_get("what")? {
                "lost" => swept.lost += 1,
                "failed" => swept.failed += 1,
                "expired" => swept.expired += 1,
                other => return Err(Error::Corrupt(format!("a sweep of asks told {other}"))),
            }
            swept.calls.extend(call_of(row)?);
        }
        Ok(swept)
    }
}

/// The run to be told, if it runs.
pub(crate) fn call_of(row: &Row) -> Result<Option<Call>, Error> {
    let (engine, holder): (Option<String>, Option<Uuid>) = (row.try_get("engine")?, row.try_get("holder")?);
    let owner = row.try_get::<_, Option<Uuid>>("owner")?.map(ProcessId);
    Ok(engine.zip(holder).map(|(engine, holder)| Call { engine, holder: ExecutionId(holder), owner }))
}

pub(crate) fn place_of(row: &Row, execution: ExecutionId) -> Result<Place, Error> {
    let node = NodeKey::new(row.try_get("node")?).map_err(|bad| Error::Corrupt(format!("an ask: {bad}")))?;
    Ok(Place { execution, node, iteration: row.try_get("iteration")? })
}

fn came_of(row: &Row, execution: ExecutionId) -> Result<Came, Error> {
    let attempt: i32 = row.try_get("attempt")?;
    Ok(Came {
        place: place_of(row, execution)?,
        attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("an ask: {bad}")))?,
        standing: over(parsed(row, "status", kernel::wait::Status::parse)?, row)?,
    })
}

/// How an ask that is not open stands.
pub(crate) fn over(status: kernel::wait::Status, row: &Row) -> Result<Standing, Error> {
    match status {
        kernel::wait::Status::Answered | kernel::wait::Status::Taken => Ok(Standing::Answered(answer_of(row)?)),
        kernel::wait::Status::Expired => Ok(Standing::Expired),
        _ => Err(Error::Conflict("the execution of this ask has ended".to_owned())),
    }
}

fn answer_of(row: &Row) -> Result<Answer, Error> {
    let output: Option<Value> = row.try_get("output")?;
    let result = match row.try_get::<_, Option<Value>>("error")? {
        Some(error) => Err(failure(error)),
        None => Ok(output.unwrap_or_default()),
    };
    Ok(Answer { result, by: row.try_get("answered_by")?, at: row.try_get("answered_at")? })
}

fn wait_of(row: &Row, execution: ExecutionId) -> Result<Wait, Error> {
    Ok(Wait {
        place: place_of(row, execution)?,
        attempt: row.try_get("attempt")?,
        status: parsed(row, "status", kernel::wait::Status::parse)?,
        event: row.try_get("event_type")?,
        matches: row.try_get("match")?,
        input: row.try_get("input")?,
        opened_at: row.try_get("opened_at")?,
        expires_at: row.try_get("expires_at")?,
        answered_by: row.try_get("answered_by")?,
        answered_at: row.try_get("answered_at")?,
    })
}
