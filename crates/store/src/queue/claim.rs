//! Who may start next: the claim, and what feeds it.
//!
//! Invariants
//! - A slot is a queue row at stage 5; nothing else counts slots, so nothing can drift.
//! - Only `claim` makes rows hold a slot, under the shard's lock; whatever changes a limit takes
//!   the same lock (a trigger); freeing needs none.
//! - Everything else here only routes: it may race, be repeated or be late without harm.
//!
//! Not here: whose turn it is (`kernel::queue::ring`), starting engines (`server::queue::dispatch`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, ProcessId, QueueItemId, VersionId, WorkspaceId};
use kernel::queue::ring::Ask;
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::sql::sql;
use crate::{Error, Store, release};

/// A run that was claimed and begun in one commit, or begun, resumed or woken later: all it needs.
#[derive(Clone, Debug)]
pub struct Begun {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub version: VersionId,
    pub epoch: i64,
    pub input: Value,
    pub trigger: Value,
    pub created_at: Timestamp,
    /// How long it may still run; zero if its time is over.
    pub deadline_in: Duration,
    /// The trace it belongs to.
    pub trace: TraceParent,
}

/// A claimed item.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub attempts: u32,
    /// An earlier start of it may have happened.
    pub in_doubt: bool,
    /// Its definition was deleted.
    pub gone: bool,
    /// It was enqueued by a build with newer rules than this one.
    pub newer: bool,
    /// The trace it belongs to.
    pub trace: TraceParent,
    /// How long it could have started before it was claimed; unknown for one that was taken over.
    pub waited: Option<Duration>,
    /// It runs already, here.
    pub begun: Option<Begun>,
}

/// How a workspace that was asked stands after the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub workspace: WorkspaceId,
    pub running: i32,
    pub limit: i32,
    pub more: bool,
    /// Something was put back behind its gate.
    pub put_back: bool,
    /// Definitions whose items may not start, and are to be moved out of its way.
    pub blocked_definitions: Vec<DefinitionId>,
    pub weight: i32,
}

impl Asked {
    /// There is a slot, and something for it.
    pub fn could_go_on(&self) -> bool {
        self.more && self.running < self.limit
    }

    /// Full, with something waiting.
    pub fn at_capacity(&self) -> bool {
        self.more && self.running >= self.limit
    }
}

/// What a claim brought.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub items: Vec<Claimed>,
    pub asked: Vec<Asked>,
    /// Those whose shard somebody else was claiming from: to be asked again, shard by shard.
    pub busy: Vec<WorkspaceId>,
}

/// Something that waits for room: a definition, or one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gate {
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub key: Option<String>,
}

/// Where a look at a shard's gates goes on.
#[derive(Clone, Debug, Default)]
pub struct GatesFrom {
    definition: Option<Gate>,
    key: Option<Gate>,
}

impl GatesFrom {
    /// Does the next look begin at the first gate?
    pub fn is_start(&self) -> bool {
        self.definition.is_none() && self.key.is_none()
    }
}

/// The most definitions, and the most keys, one look finds.
const GATES: usize = 5_000;

/// Who may be called dead, and when.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Silent for so long is dead.
    pub dead_after: Duration,
    /// The caller's own heartbeats were steady all that time.
    pub steady: bool,
}

impl Store {
    /// Claims up to what each ask wants and its limits leave. With `engine` the claimer is the
    /// runner, and what can be is begun in the same commit. Asks of one shard wait for its lock; asks of
    /// several wait for none, and those of a shard that was not to be had are answered `busy`.
    pub async fn claim(
        &self,
        asks: &[Ask],
        claim: ClaimId,
        process: ProcessId,
        engine: Option<&str>,
    ) -> Result<Claims, Error> {
        let workspaces: Vec<Uuid> = asks.iter().map(|ask| ask.workspace.0).collect();
        let wanted: Vec<i32> = asks.iter().map(|ask| ask.want).collect();
        let rows = self
            .query(
                sql!("execution_queue/claim"),
                &[&workspaces, &wanted, &claim.0, &process.0, &engine, &kernel::SEMANTICS, &release::protocol()],
            )
            .await?;
        let mut claims = Claims::default();
        for row in rows {
            match row.try_get("kind")? {
                "item" => claims.items.push(claimed(&row)?),
                "busy" => claims.busy.push(WorkspaceId(row.try_get("workspace")?)),
                _ => claims.asked.push(asked(&row)?),
            }
        }
        Ok(claims)
    }

    /// The workspaces of a shard with something ready and a free slot, with their weights.
    pub async fn sweep(&self, shard: i16) -> Result<Vec<(WorkspaceId, i32)>, Error> {
        let rows = self.query(sql!("execution_queue/sweep"), &[&shard]).await?;
        rows.iter().map(|row| Ok((WorkspaceId(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    /// Keys and definitions of a shard for which something waits, a bounded number; the next call
    /// goes on behind them, and after the last begins anew.
    pub async fn sweep_gates(&self, shard: i16, from: &mut GatesFrom) -> Result<Vec<Gate>, Error> {
        let nil = Gate { workspace: WorkspaceId(Uuid::nil()), definition: DefinitionId(Uuid::nil()), key: None };
        let (definition, key) = (from.definition.as_ref().unwrap_or(&nil), from.key.as_ref().unwrap_or(&nil));
        let after_key = key.key.as_deref().unwrap_or_default();
        let rows = self
            .query(
                sql!("execution_queue/sweep_gates"),
                &[
                    &shard,
                    &definition.workspace.0,
                    &definition.definition.0,
                    &key.workspace.0,
                    &key.definition.0,
                    &after_key,
                ],
            )
            .await?;
        let gate = |row: &Row| -> Result<Gate, Error> {
            Ok(Gate {
                workspace: WorkspaceId(row.try_get(0)?),
                definition: DefinitionId(row.try_get(1)?),
                key: row.try_get(2)?,
            })
        };
        let gates: Vec<Gate> = rows.iter().map(gate).collect::<Result<_, _>>()?;
        let (keys, definitions): (Vec<&Gate>, Vec<&Gate>) = gates.iter().partition(|gate| gate.key.is_some());
        let next = |some: &[&Gate]| if some.len() < GATES { None } else { some.last().map(|gate| (*gate).clone()) };
        *from = GatesFrom { definition: next(&definitions), key: next(&keys) };
        Ok(gates)
    }

    /// Lets what waits at these gates through as far as there is room; answers whom to ask.
    pub async fn open(&self, gates: &[Gate]) -> Result<Vec<WorkspaceId>, Error> {
        if gates.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = gates.iter().map(|gate| gate.workspace.0).collect();
        let definitions: Vec<Uuid> = gates.iter().map(|gate| gate.definition.0).collect();
        let keys: Vec<Option<&str>> = gates.iter().map(|gate| gate.key.as_deref()).collect();
        let rows = self.query(sql!("execution_queue/open"), &[&workspaces, &definitions, &keys]).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.try_get(0)?))).collect()
    }

    /// Moves delayed items whose time has come on; answers whom to ask, and how many moved.
    pub async fn ripen(&self) -> Result<(Vec<WorkspaceId>, usize), Error> {
        let rows = self.query(sql!("execution_queue/ripen"), &[]).await?;
        let mut ready = std::collections::BTreeSet::new();
        let mut gates = std::collections::BTreeSet::new();
        for row in &rows {
            let workspace = WorkspaceId(row.try_get(0)?);
            let definition = DefinitionId(row.try_get(2)?);
            match row.try_get::<_, i16>(1)? {
                0 => drop(ready.insert(workspace)),
                2 => drop(gates.insert(Gate { workspace, definition, key: row.try_get(3)? })),
                _ => drop(gates.insert(Gate { workspace, definition, key: None })),
            }
        }
        ready.extend(self.open(&gates.into_iter().collect::<Vec<_>>()).await?);
        Ok((ready.into_iter().collect(), rows.len()))
    }

    /// How long until the next delayed item is due.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("execution_queue/next_due"), &[]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// Claimed → dispatched; answers the items that this claim still held.
    pub async fn dispatched(&self, items: &[QueueItemId], claim: ClaimId) -> Result<Vec<QueueItemId>, Error> {
        let ids: Vec<Uuid> = items.iter().map(|item| item.0).collect();
        let rows = self.query(sql!("execution_queue/dispatched"), &[&ids, &claim.0]).await?;
        rows.iter().map(|row| Ok(QueueItemId(row.try_get(0)?))).collect()
    }

    /// Claimed → pending, no attempt: the start was never sent.
    pub async fn give_back(
        &self,
        items: &[QueueItemId],
        claim: ClaimId,
        delay: Duration,
    ) -> Result<Vec<QueueItemId>, Error> {
        let ids: Vec<Uuid> = items.iter().map(|item| item.0).collect();
        let rows = self.query(sql!("execution_queue/give_back"), &[&ids, &claim.0, &delay.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(QueueItemId(row.try_get(0)?))).collect()
    }

    /// Claimed → pending, one attempt spent: the engine refused it.
    pub async fn requeue(
        &self,
        item: QueueItemId,
        claim: ClaimId,
        reason: &str,
        backoff: Duration,
    ) -> Result<u32, Error> {
        let reason = kernel::run::failure::Failure::new(kernel::run::failure::Class::DispatchRefused, reason).message;
        let row = self
            .query(sql!("execution_queue/requeue"), &[&item.0, &claim.0, &reason, &backoff.as_secs_f64()])
            .await?
            .pop()
            .ok_or_else(|| Error::Conflict(format!("claim {claim} no longer holds {item}")))?;
        attempts(&row, "attempt_count")
    }

    /// What a claim took, when its answer was lost.
    pub async fn claimed_under(&self, shards: &[i16], claim: ClaimId) -> Result<Vec<Claimed>, Error> {
        let rows = self.query(sql!("execution_queue/claimed_under"), &[&shards, &claim.0]).await?;
        let item = |row: &Row| {
            Ok(Claimed {
                item: QueueItemId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                attempts: attempts(row, "attempt_count")?,
                in_doubt: row.try_get("in_doubt")?,
                gone: row.try_get("gone")?,
                newer: false,
                trace: TraceParent::of_execution(ExecutionId(row.try_get("id")?)),
                waited: None,
                begun: None,
            })
        };
        rows.iter().map(item).collect()
    }
}

fn claimed(row: &Row) -> Result<Claimed, Error> {
    let item = QueueItemId(row.try_get("item")?);
    let workspace = WorkspaceId(row.try_get("workspace")?);
    let definition = DefinitionId(row.try_get("definition")?);
    let begun = match row.try_get("begun")? {
        true => Some(begun(row, item.execution(), workspace, definition, row.try_get("epoch")?)?),
        false => None,
    };
    Ok(Claimed {
        item,
        workspace,
        definition,
        attempts: attempts(row, "attempts")?,
        in_doubt: row.try_get("in_doubt")?,
        gone: row.try_get("gone")?,
        newer: row.try_get("newer")?,
        trace: trace(row.try_get("trace")?, item.execution()),
        waited: Some(millis(row.try_get("waited_ms")?)),
        begun,
    })
}

pub(crate) fn begun(
    row: &Row,
    execution: ExecutionId,
    workspace: WorkspaceId,
    definition: DefinitionId,
    epoch: i64,
) -> Result<Begun, Error> {
    Ok(Begun {
        execution,
        workspace,
        definition,
        version: VersionId(row.try_get("version")?),
        epoch,
        input: row.try_get::<_, Option<Json>>("input")?.unwrap_or_default().0,
        trigger: row.try_get::<_, Json>("trigger")?.0,
        created_at: row.try_get("created")?,
        deadline_in: millis(row.try_get("deadline_in_ms")?),
        trace: trace(row.try_get("trace")?, execution),
    })
}

/// The trace of an execution: the one its start came with, else its own.
pub(crate) fn trace(stored: Option<&str>, execution: ExecutionId) -> TraceParent {
    stored.and_then(TraceParent::parse).unwrap_or_else(|| TraceParent::of_execution(execution))
}

fn asked(row: &Row) -> Result<Asked, Error> {
    let blocked_definitions: Option<Vec<Uuid>> = row.try_get("blocked_definitions")?;
    Ok(Asked {
        workspace: WorkspaceId(row.try_get("workspace")?),
        running: row.try_get("running")?,
        limit: row.try_get("max_running")?,
        more: row.try_get("more")?,
        put_back: row.try_get("put_back")?,
        blocked_definitions: blocked_definitions.unwrap_or_default().into_iter().map(DefinitionId).collect(),
        weight: row.try_get("weight")?,
    })
}

pub(crate) fn attempts(row: &Row, column: &str) -> Result<u32, Error> {
    let count: i32 = row.try_get(column)?;
    u32::try_from(count).map_err(|_| Error::Corrupt(format!("{column} is {count}")))
}

/// Milliseconds from the database; what lies in the past is now.
pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
