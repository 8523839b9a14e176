//! Accepts start requests: execution, queue item and audit row in one commit.
//!
//! Invariants
//! - A start that was answered with 202 is never lost: when this returns `New`, the request is durable.
//! - Repeating a call with the same ids, or the same idempotency keys and content, changes nothing.
//!
//! Not here: parsing requests (`server::http`), claiming (`claim`).

use std::time::Duration;

use deadpool_postgres::GenericClient;
use jiff::Timestamp;
use kernel::execution::rerun::KeptNodes;
use kernel::ids::{DefinitionId, ExecutionId, NodeKey, VersionId, WorkspaceId};
use kernel::queue::{PRIORITY_STEP_MS, Priority};
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use tokio_postgres::Row;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use crate::signals::span;
use crate::sql::sql;
use crate::{Error, Store};

/// A request to execute.
#[derive(Clone, Debug)]
pub struct Start {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub input: Option<Value>,
    pub priority: Priority,
    pub run_at: Option<Timestamp>,
    pub concurrency_key: Option<String>,
    /// The caller's idempotency key, and the hash of the request's content.
    pub idempotency: Option<(String, Vec<u8>)>,
    pub trigger: Value,
    pub trace: Option<TraceParent>,
    /// The version to run; None: the published one.
    pub version: Option<VersionId>,
    /// The execution that this one reruns.
    pub rerun_of: Option<ExecutionId>,
}

/// The result of a start request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// The execution is queued. `ready`: only its turn holds it back.
    New { execution: ExecutionId, ready: bool },
    /// The same request was accepted before.
    Existing { execution: ExecutionId },
    /// The idempotency key was used with other content.
    Conflict,
    /// The workspace has no such definition, or it was deleted.
    NotFound,
    /// The definition was never published.
    Draft,
    /// The workspace's backlog limit is reached; nothing was stored.
    BacklogFull,
    /// Another version was published than the expected one; nothing was stored.
    VersionChanged,
}

/// A start request whose input was checked against a version.
#[derive(Clone, Copy, Debug)]
pub struct CheckedStart<'s> {
    pub start: &'s Start,
    /// The published version against which the input was checked. The execution runs that version, or the request is
    /// not accepted. None: not checked.
    pub published: Option<VersionId>,
    /// Who started it, for the audit log.
    pub actor: &'s str,
}

/// How long a call for starts of several clients waits for a lock. Then the caller stores each start alone, so that a
/// start whose row is locked delays no other for longer.
const GATHERED_LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// The span of a start request that waits for `enqueue_gathered`, as a child of the current span.
pub fn span() -> Span {
    span::for_statement(sql!("workflow_execution/enqueue"))
}

impl Store {
    /// Accepts start requests; each has its own result, in order. If a workspace has no backlog limit of its own, its
    /// tier's limit applies.
    pub async fn enqueue(&self, starts: &[Start], actor: &str) -> Result<Vec<EnqueueOutcome>, Error> {
        self.enqueue_within(starts, None, actor).await
    }

    /// Accepts start requests as `enqueue` does. If a workspace has no backlog limit of its own, `max_backlog` applies.
    pub async fn enqueue_within(
        &self,
        starts: &[Start],
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<Vec<EnqueueOutcome>, Error> {
        let checked: Vec<CheckedStart<'_>> =
            starts.iter().map(|start| CheckedStart { start, published: None, actor }).collect();
        self.enqueue_checked(&checked, max_backlog).await
    }

    /// Accepts start requests as `enqueue_within` does, but each only if the version it was checked against is still
    /// published.
    pub async fn enqueue_checked(
        &self,
        checked: &[CheckedStart<'_>],
        max_backlog: Option<i32>,
    ) -> Result<Vec<EnqueueOutcome>, Error> {
        let accepted = async {
            let client = self.pool.get().await?;
            enqueue_on(&client, checked, max_backlog, None).await
        };
        accepted.instrument(span()).await
    }

    /// Accepts start requests of several clients as `enqueue_checked` does, but waits only a moment for a lock. If this
    /// fails, nothing is known about any of them; the caller stores each alone.
    pub async fn enqueue_gathered(
        &self,
        checked: &[CheckedStart<'_>],
        max_backlog: Option<i32>,
    ) -> Result<Vec<EnqueueOutcome>, Error> {
        let client = self.pool.get().await?;
        enqueue_on(&client, checked, max_backlog, Some(GATHERED_LOCK_TIMEOUT)).await
    }

    /// The results of earlier start requests with the same idempotency keys: `Existing` or `Conflict`. None for a
    /// request without a key, or with a new key.
    pub async fn accepted_before(&self, starts: &[&Start]) -> Result<Vec<Option<EnqueueOutcome>>, Error> {
        let mut before = vec![None; starts.len()];
        if starts.iter().all(|start| start.idempotency.is_none()) {
            return Ok(before);
        }
        let workspaces: Vec<Uuid> = starts.iter().map(|start| start.workspace.0).collect();
        let (keys, fingerprints) = keys_of(starts);
        for row in
            self.query(sql!("workflow_execution/by_idempotency_key"), &[&workspaces, &keys, &fingerprints]).await?
        {
            let (position, execution): (i64, Uuid) = (row.try_get("ord")?, row.try_get("execution")?);
            let position = usize::try_from(position - 1).ok().and_then(|position| before.get_mut(position));
            let position = position.ok_or_else(|| {
                Error::Corrupt("the database returned an idempotency key that was not in the batch".to_owned())
            })?;
            let existing = EnqueueOutcome::Existing { execution: ExecutionId(execution) };
            *position = Some(if row.try_get("same")? { existing } else { EnqueueOutcome::Conflict });
        }
        Ok(before)
    }

    /// Accepts one start request that reruns another execution and keeps results of that execution.
    pub async fn rerun(
        &self,
        start: &Start,
        kept: &KeptNodes,
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<EnqueueOutcome, Error> {
        let names = |keys: &[NodeKey]| keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<String>>();
        let (nodes, done, loops) = (names(&kept.nodes), names(&kept.done), names(&kept.loops));
        let (key, fingerprint) = start.idempotency.clone().unzip();
        let trace = start.trace.map(|trace| trace.to_string());
        let row = self
            .query(
                sql!("workflow_execution/rerun"),
                &[
                    &start.execution.0,
                    &start.workspace.0,
                    &start.definition.0,
                    &start.input,
                    &start.priority.value(),
                    &start.concurrency_key,
                    &key,
                    &fingerprint,
                    &start.trigger,
                    &trace,
                    &start.version.map(|version| version.0),
                    &start.rerun_of.map(|of| of.0),
                    &nodes,
                    &actor,
                    &kernel::SEMANTICS,
                    &PRIORITY_STEP_MS,
                    &max_backlog,
                    &done,
                    &loops,
                ],
            )
            .await?;
        let row = row.first().ok_or_else(|| Error::Corrupt("a rerun returned no row".to_owned()))?;
        accepted(row)
    }
}

/// Accepts start requests as `enqueue_checked` does, on a given connection, and in its transaction if one is open.
pub(crate) async fn enqueue_on(
    client: &impl GenericClient,
    checked: &[CheckedStart<'_>],
    max_backlog: Option<i32>,
    lock_timeout: Option<Duration>,
) -> Result<Vec<EnqueueOutcome>, Error> {
    let starts: Vec<&Start> = checked.iter().map(|checked| checked.start).collect();
    let expected: Vec<Option<Uuid>> =
        checked.iter().map(|checked| checked.published.map(|version| version.0)).collect();
    let ids: Vec<Uuid> = starts.iter().map(|start| start.execution.0).collect();
    let workspaces: Vec<Uuid> = starts.iter().map(|start| start.workspace.0).collect();
    let definitions: Vec<Uuid> = starts.iter().map(|start| start.definition.0).collect();
    let inputs: Vec<Option<&Value>> = starts.iter().map(|start| start.input.as_ref()).collect();
    let priorities: Vec<i16> = starts.iter().map(|start| start.priority.value()).collect();
    let run_at: Vec<Option<Timestamp>> = starts.iter().map(|start| start.run_at).collect();
    let keys: Vec<Option<&str>> = starts.iter().map(|start| start.concurrency_key.as_deref()).collect();
    let (idempotency, fingerprints) = keys_of(&starts);
    let triggers: Vec<&Value> = starts.iter().map(|start| &start.trigger).collect();
    let traces: Vec<Option<String>> = starts.iter().map(|start| start.trace.map(|trace| trace.to_string())).collect();
    let versions: Vec<Option<Uuid>> = starts.iter().map(|start| start.version.map(|version| version.0)).collect();
    let reruns: Vec<Option<Uuid>> = starts.iter().map(|start| start.rerun_of.map(|of| of.0)).collect();
    let actors: Vec<&str> = checked.iter().map(|checked| checked.actor).collect();
    let lock_timeout_ms = lock_timeout.map(|timeout| i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
    let statement = client.prepare_cached(sql!("workflow_execution/enqueue")).await?;
    let rows = client
        .query(
            &statement,
            &[
                &ids,
                &workspaces,
                &definitions,
                &inputs,
                &priorities,
                &run_at,
                &keys,
                &idempotency,
                &fingerprints,
                &triggers,
                &traces,
                &versions,
                &reruns,
                &actors,
                &kernel::SEMANTICS,
                &PRIORITY_STEP_MS,
                &max_backlog,
                &expected,
                &lock_timeout_ms,
            ],
        )
        .await?;
    rows.iter().map(accepted).collect()
}

/// The idempotency keys of starts, and their content hashes.
fn keys_of<'s>(starts: &[&'s Start]) -> (Vec<Option<&'s str>>, Vec<Option<&'s [u8]>>) {
    starts
        .iter()
        .map(|start| start.idempotency.as_ref().map(|(key, hash)| (key.as_str(), hash.as_slice())).unzip())
        .unzip()
}

fn accepted(row: &Row) -> Result<EnqueueOutcome, Error> {
    let execution = row.try_get::<_, Option<Uuid>>("execution")?.map(ExecutionId);
    let ready = row.try_get::<_, Option<i16>>("stage")? == Some(0);
    Ok(match (row.try_get("outcome")?, execution) {
        ("accepted", Some(execution)) => EnqueueOutcome::New { execution, ready },
        ("existing", Some(execution)) => EnqueueOutcome::Existing { execution },
        ("conflict", _) => EnqueueOutcome::Conflict,
        ("draft", _) => EnqueueOutcome::Draft,
        ("backlog_full", _) => EnqueueOutcome::BacklogFull,
        ("version_changed", _) => EnqueueOutcome::VersionChanged,
        ("not_found", _) => EnqueueOutcome::NotFound,
        (other, _) => return Err(Error::Corrupt(format!("enqueue returned the unknown result {other}"))),
    })
}
