//! Accepting starts: execution, ticket and audit row in one commit.
//!
//! Invariants
//! - A 202 is kept: when this answers *accepted*, the request is durable.
//! - Repeating a call with the same ids, or the same idempotency keys and content, changes nothing.
//!
//! Not here: reading requests (`server::http`), claiming (`claim`).

use deadpool_postgres::GenericClient;
use jiff::Timestamp;
use kernel::execution::rerun::Kept;
use kernel::ids::{DefinitionId, ExecutionId, NodeKey, VersionId, WorkspaceId};
use kernel::queue::{PRIORITY_STEP_MS, Priority};
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use tokio_postgres::Row;
use tracing::Instrument as _;
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
    /// The caller's key and what its content hashes to.
    pub idempotency: Option<(String, Vec<u8>)>,
    pub trigger: Value,
    pub trace: Option<TraceParent>,
    /// The version to run; none for the published one.
    pub version: Option<VersionId>,
    /// The execution this one repeats.
    pub rerun_of: Option<ExecutionId>,
}

/// What became of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It waits its turn. `ready` says that nothing but its turn keeps it.
    New { execution: ExecutionId, ready: bool },
    /// The same request was accepted before.
    Existing { execution: ExecutionId },
    /// The idempotency key was used with other content.
    Conflict,
    /// No such living definition in that workspace.
    NotFound,
    /// The definition was never published.
    Draft,
    /// The workspace's backlog has no room for it; nothing was stored.
    Full,
    /// Another version is published than the one that was expected; nothing was stored.
    Moved,
}

/// A start whose input was judged by a version.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'s> {
    pub start: &'s Start,
    /// The published version by which it was judged: it runs that, or is not accepted. None if it was not judged.
    pub published: Option<VersionId>,
}

impl Store {
    /// Accepts starts, each answered on its own, in order; a workspace without a backlog limit of its
    /// own has its tier's.
    pub async fn enqueue(&self, starts: &[Start], actor: &str) -> Result<Vec<Accepted>, Error> {
        self.enqueue_within(starts, None, actor).await
    }

    /// The same, with a backlog limit for workspaces that have none of their own.
    pub async fn enqueue_within(
        &self,
        starts: &[Start],
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<Vec<Accepted>, Error> {
        let judged: Vec<Judged<'_>> = starts.iter().map(|start| Judged { start, published: None }).collect();
        self.enqueue_judged(&judged, max_backlog, actor).await
    }

    /// The same, each only if the version is still published by which it was judged.
    pub async fn enqueue_judged(
        &self,
        judged: &[Judged<'_>],
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<Vec<Accepted>, Error> {
        let accepted = async {
            let client = self.pool.get().await?;
            enqueue_on(&client, judged, max_backlog, actor).await
        };
        accepted.instrument(span::of(sql!("workflow_execution/enqueue"))).await
    }

    /// What became of earlier starts with the same idempotency keys: existing or conflict. None for one without a key,
    /// or with a key that was never accepted.
    pub async fn accepted_before(&self, starts: &[&Start]) -> Result<Vec<Option<Accepted>>, Error> {
        let mut before = vec![None; starts.len()];
        if starts.iter().all(|start| start.idempotency.is_none()) {
            return Ok(before);
        }
        let workspaces: Vec<Uuid> = starts.iter().map(|start| start.workspace.0).collect();
        let (keys, fingerprints) = keys_of(starts);
        for row in self.query(sql!("workflow_execution/keyed"), &[&workspaces, &keys, &fingerprints]).await? {
            let (place, execution): (i64, Uuid) = (row.try_get("ord")?, row.try_get("execution")?);
            let place = usize::try_from(place - 1).ok().and_then(|place| before.get_mut(place));
            let place = place.ok_or_else(|| Error::Corrupt("a key was answered that nobody asked for".to_owned()))?;
            let existing = Accepted::Existing { execution: ExecutionId(execution) };
            *place = Some(if row.try_get("same")? { existing } else { Accepted::Conflict });
        }
        Ok(before)
    }

    /// Accepts one start that repeats another execution and keeps something of it.
    pub async fn rerun(
        &self,
        start: &Start,
        kept: &Kept,
        max_backlog: Option<i32>,
        actor: &str,
    ) -> Result<Accepted, Error> {
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
        let row = row.first().ok_or_else(|| Error::Corrupt("a rerun was not answered".to_owned()))?;
        accepted(row)
    }
}

/// The same on a connection, as a part of its transaction if it is in one.
pub(crate) async fn enqueue_on(
    client: &impl GenericClient,
    judged: &[Judged<'_>],
    max_backlog: Option<i32>,
    actor: &str,
) -> Result<Vec<Accepted>, Error> {
    let starts: Vec<&Start> = judged.iter().map(|judged| judged.start).collect();
    let expected: Vec<Option<Uuid>> = judged.iter().map(|judged| judged.published.map(|version| version.0)).collect();
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
                &actor,
                &kernel::SEMANTICS,
                &PRIORITY_STEP_MS,
                &max_backlog,
                &expected,
            ],
        )
        .await?;
    rows.iter().map(accepted).collect()
}

/// The idempotency keys of starts, and what each stands for.
fn keys_of<'s>(starts: &[&'s Start]) -> (Vec<Option<&'s str>>, Vec<Option<&'s [u8]>>) {
    starts
        .iter()
        .map(|start| start.idempotency.as_ref().map(|(key, hash)| (key.as_str(), hash.as_slice())).unzip())
        .unzip()
}

fn accepted(row: &Row) -> Result<Accepted, Error> {
    let execution = row.try_get::<_, Option<Uuid>>("execution")?.map(ExecutionId);
    let ready = row.try_get::<_, Option<i16>>("stage")? == Some(0);
    Ok(match (row.try_get("outcome")?, execution) {
        ("accepted", Some(execution)) => Accepted::New { execution, ready },
        ("existing", Some(execution)) => Accepted::Existing { execution },
        ("conflict", _) => Accepted::Conflict,
        ("draft", _) => Accepted::Draft,
        ("full", _) => Accepted::Full,
        ("moved", _) => Accepted::Moved,
        ("not_found", _) => Accepted::NotFound,
        (other, _) => return Err(Error::Corrupt(format!("enqueue answered {other}"))),
    })
}
