//! Waits: what nodes wait for outside the engine, and the answers. Waits for people, callbacks and events, and tasks
//! for workers.
//!
//!     (not opened yet) ANSWERED ◀─answer
//!     OPEN ─claim▶ CLAIMED ─lease expired▶ OPEN   OPEN, CLAIMED ─answer▶ ANSWERED ─receive▶ RECEIVED
//!     OPEN, CLAIMED ─time is up▶ EXPIRED          OPEN, CLAIMED ─the execution ended▶ CLOSED
//!
//! Invariants
//! - Opening a wait is fenced by the run that holds it, and repeatable. If a node is performed again after a crash, it
//!   gets the current state of its wait.
//! - A wait gets one answer. If answers, timeouts and the end of the execution arrive at the same moment, the row's
//!   status decides which comes first.
//! - An answer and the flag that wakes its run are one commit. After a crash before the commit, the wait is unchanged.
//!   After the commit, the owner's heartbeat or the waker wakes the run, even if the notification is lost.
//! - An execution row is locked before its waits.
//!
//! Not here: tasks and their claims (`task`), validating the data (`kernel::definition::inputs`), notifying (`server`).

mod event;
pub mod task;
mod token;
mod tree;

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ExecutionId, NodeKey, ProcessId, WorkspaceId};
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

pub use event::{Candidate, CandidatePage};
pub use token::{NewToken, Token, TokenWait};

use crate::run::attempt::Ownership;
use crate::run::{failure_json, failure_of};
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// The node, and iteration, that waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitKey {
    pub execution: ExecutionId,
    pub node: NodeKey,
    pub iteration: i32,
}

/// What the node waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// An answer. If `event` is given, an event of this type answers too, if `matches` is true for it.
    Wait { event: Option<String>, matches: Option<String> },
    /// A worker's result. The task is offered in `queue`, and a worker loses it after `lease` without a heartbeat.
    Task { queue: String, lease: Duration },
}

/// A wait that a node opens.
#[derive(Clone, Debug, PartialEq)]
pub struct NewWait {
    pub key: WaitKey,
    pub workspace: WorkspaceId,
    pub attempt: u32,
    pub kind: WaitKind,
    pub input: Value,
    pub expires_in: Option<Duration>,
}

/// The state of a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitState {
    Open { expires_in: Option<Duration> },
    Answered(WaitAnswer),
    Expired,
}

/// The answer's data, its author and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitAnswer {
    pub result: Result<Value, Failure>,
    pub by: String,
    pub at: Timestamp,
}

/// A wait that was answered or has expired.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedWait {
    pub key: WaitKey,
    pub attempt: u32,
    /// Never open.
    pub state: WaitState,
}

/// A run to wake, because its wait was answered or has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunToWake {
    pub engine: String,
    pub holder: ExecutionId,
    /// Its owner; None: it is parked.
    pub owner: Option<ProcessId>,
}

/// The result of answering a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerOutcome {
    Accepted(Option<RunToWake>),
    /// The wait is not open yet: the answer is kept until it is.
    Early,
    /// The wait already has another answer.
    AlreadyAnswered,
    /// This token was already used.
    TokenUsed,
    Expired(Option<RunToWake>),
    /// The execution has ended.
    ExecutionEnded,
    /// The node, or the loop that contains it, settled without an answer.
    NodeSettled,
    /// The loop's list has no such item.
    NoSuchItem,
}

/// A wait for display.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub key: WaitKey,
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

/// The result of expiring waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryOutcome {
    /// Tasks that are offered again, because their workers were silent.
    pub lost: usize,
    /// Tasks that failed, because too many workers in a row were silent.
    pub failed: usize,
    pub expired: usize,
    pub to_wake: Vec<RunToWake>,
}

impl Store {
    /// Opens a wait, or returns its state. None if this process no longer owns the run, or the execution has ended.
    /// Repeating the same attempt changes nothing; a later attempt opens the wait again. An answer that arrived before
    /// the wait was opened is returned immediately. An answer that an earlier call returned is returned again.
    pub async fn open_wait(&self, ownership: Ownership, wait: &NewWait) -> Result<Option<WaitState>, Error> {
        let NewWait { key, workspace, attempt, kind, input, expires_in } = wait;
        let (kind_name, event, matches, queue, lease) = match kind {
            WaitKind::Wait { event, matches } => ("WAIT", event.as_deref(), matches.as_deref(), None, None),
            WaitKind::Task { queue, lease } => ("TASK", None, None, Some(queue.as_str()), Some(lease.as_secs_f64())),
        };
        let attempt = i32::try_from(*attempt).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql!("workflow_execution_wait/open"),
                &[
                    &ownership.execution.0,
                    &ownership.owner.0,
                    &ownership.epoch,
                    &key.execution.0,
                    &key.node.as_str(),
                    &key.iteration,
                    &workspace.0,
                    &attempt,
                    &kind_name,
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
            return Err(Error::Conflict("a later attempt of the node has opened this wait".to_owned()));
        }
        let expires_in: Option<f64> = row.try_get("expires_in_s")?;
        match parsed(&row, "status", kernel::wait::Status::parse)? {
            status if status.is_open() => {
                let expires_in = expires_in.map(|left| Duration::try_from_secs_f64(left).unwrap_or_default());
                Ok(Some(WaitState::Open { expires_in }))
            }
            status => finished_state(status, &row).map(Some),
        }
    }

    /// Returns the waits of a holder's tree that were answered or expired since the last call. Answered waits become
    /// RECEIVED, and the wake flag is cleared. None if this process no longer owns the run. If the reply is lost,
    /// `reread_answers` returns the waits again.
    pub async fn read_answers(&self, ownership: Ownership) -> Result<Option<Vec<FinishedWait>>, Error> {
        let Ownership { execution, owner, epoch } = ownership;
        let rows = self.query(sql!("workflow_execution_wait/read_answers"), &[&execution.0, &owner.0, &epoch]).await?;
        let mut finished = Vec::new();
        for row in &rows {
            if !row.try_get::<_, bool>("held")? {
                return Ok(None);
            }
            let Some(execution) = row.try_get::<_, Option<Uuid>>("execution")? else { continue };
            finished.push(finished_wait(row, ExecutionId(execution))?);
        }
        Ok(Some(finished))
    }

    /// Waits of a holder's tree that `read_answers` has returned, but whose result no node record contains yet: the
    /// reply may have been lost. May be repeated, and may include waits that the caller has already received.
    pub async fn reread_answers(&self, holder: ExecutionId) -> Result<Vec<FinishedWait>, Error> {
        let rows = self.query(sql!("workflow_execution_wait/reread_answers"), &[&holder.0]).await?;
        rows.iter().map(|row| finished_wait(row, ExecutionId(row.try_get("execution")?))).collect()
    }

    /// Answers a wait of a workspace (None: any), even before it is open. The caller must have checked that the node is
    /// a wait in the execution's version. Repeating an answer returns `AlreadyAnswered`.
    pub async fn answer(
        &self,
        key: &WaitKey,
        workspace: Option<WorkspaceId>,
        data: &Value,
        by: &str,
    ) -> Result<AnswerOutcome, Error> {
        self.answer_with(key, workspace, None, data, (by, false)).await
    }

    async fn answer_with(
        &self,
        key: &WaitKey,
        workspace: Option<WorkspaceId>,
        token: Option<&Token>,
        data: &Value,
        (by, only_open): (&str, bool),
    ) -> Result<AnswerOutcome, Error> {
        let (workspace, token) = (workspace.map(|id| id.0), token.map(Token::hash));
        let WaitKey { execution, node, iteration } = key;
        let row = self
            .one(
                sql!("workflow_execution_wait/answer"),
                &[&execution.0, &node.as_str(), iteration, &workspace, &token, &data, &by, &only_open],
            )
            .await?;
        match row.try_get("result")? {
            "accepted" => Ok(AnswerOutcome::Accepted(run_to_wake(&row)?)),
            "early" => Ok(AnswerOutcome::Early),
            "already_answered" => Ok(AnswerOutcome::AlreadyAnswered),
            "token_used" => Ok(AnswerOutcome::TokenUsed),
            "expired" => Ok(AnswerOutcome::Expired(run_to_wake(&row)?)),
            "execution_ended" => Ok(AnswerOutcome::ExecutionEnded),
            "node_settled" => Ok(AnswerOutcome::NodeSettled),
            "no_such_item" => Ok(AnswerOutcome::NoSuchItem),
            "missing" => Err(Error::NotFound),
            other => Err(Error::Corrupt(format!("an answer returned the unknown result {other}"))),
        }
    }

    /// The waits of an execution, by node and iteration, after a position.
    pub async fn waits(
        &self,
        execution: ExecutionId,
        workspace: Option<WorkspaceId>,
        after: Option<(&str, i32)>,
        limit: i64,
    ) -> Result<Vec<Wait>, Error> {
        let (workspace, node, iteration) = (workspace.map(|id| id.0), after.map(|at| at.0), after.map(|at| at.1));
        let rows = self
            .query(sql!("workflow_execution_wait/list"), &[&execution.0, &workspace, &node, &iteration, &limit])
            .await?;
        rows.iter().map(|row| wait_of(row, execution)).collect()
    }

    /// Runs of an external engine that were flagged to wake at least `ago` ago and have not read their waits since.
    pub async fn unread_wakes(&self, engine: &str, ago: Duration, limit: i64) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/unread_wakes"), &[&engine, &ago.as_secs_f64(), &limit]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get("id")?))).collect()
    }

    /// Expires waits whose time is up, and takes tasks back from silent workers, at most `limit` of each.
    pub async fn expire_waits(&self, limit: i32) -> Result<ExpiryOutcome, Error> {
        let error = failure_json(&kernel::kind::task::abandoned());
        let rows = self
            .query(sql!("workflow_execution_wait/expire"), &[&limit, &kernel::kind::task::MAX_DELIVERIES, &error])
            .await?;
        let mut outcome = ExpiryOutcome::default();
        for row in &rows {
            match row.try_get("kind")? {
                "lost" => outcome.lost += 1,
                "failed" => outcome.failed += 1,
                "expired" => outcome.expired += 1,
                other => return Err(Error::Corrupt(format!("a sweep of waits returned the unknown result {other}"))),
            }
            outcome.to_wake.extend(run_to_wake(row)?);
        }
        Ok(outcome)
    }
}

/// The run to wake, if it is running.
pub(crate) fn run_to_wake(row: &Row) -> Result<Option<RunToWake>, Error> {
    let (engine, holder): (Option<String>, Option<Uuid>) = (row.try_get("engine")?, row.try_get("holder")?);
    let owner = row.try_get::<_, Option<Uuid>>("owner")?.map(ProcessId);
    Ok(engine.zip(holder).map(|(engine, holder)| RunToWake { engine, holder: ExecutionId(holder), owner }))
}

pub(crate) fn wait_key(row: &Row, execution: ExecutionId) -> Result<WaitKey, Error> {
    let node = NodeKey::new(row.try_get("node")?).map_err(|bad| Error::Corrupt(format!("wait row: {bad}")))?;
    Ok(WaitKey { execution, node, iteration: row.try_get("iteration")? })
}

fn finished_wait(row: &Row, execution: ExecutionId) -> Result<FinishedWait, Error> {
    let attempt: i32 = row.try_get("attempt")?;
    Ok(FinishedWait {
        key: wait_key(row, execution)?,
        attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("wait row: {bad}")))?,
        state: finished_state(parsed(row, "status", kernel::wait::Status::parse)?, row)?,
    })
}

/// The state of a wait that is not open.
pub(crate) fn finished_state(status: kernel::wait::Status, row: &Row) -> Result<WaitState, Error> {
    match status {
        kernel::wait::Status::Answered | kernel::wait::Status::Received => Ok(WaitState::Answered(answer_of(row)?)),
        kernel::wait::Status::Expired => Ok(WaitState::Expired),
        _ => Err(Error::Conflict("the execution of this wait has ended".to_owned())),
    }
}

fn answer_of(row: &Row) -> Result<WaitAnswer, Error> {
    let output: Option<Value> = row.try_get("output")?;
    let result = match row.try_get::<_, Option<Value>>("error")? {
        Some(error) => Err(failure_of(error)),
        None => Ok(output.unwrap_or_default()),
    };
    Ok(WaitAnswer { result, by: row.try_get("answered_by")?, at: row.try_get("answered_at")? })
}

fn wait_of(row: &Row, execution: ExecutionId) -> Result<Wait, Error> {
    Ok(Wait {
        key: wait_key(row, execution)?,
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
