//! The claim, which decides which items start next; what a claimer does with its items (mark, requeue, read again); and
//! the functions that make items ready for a claim.
//!
//! Invariants
//! - A slot is a queue row with stage 5. No counter counts slots, so none can be wrong.
//! - Only `claim` gives a slot to a queue row, under the shard's lock. A change of a limit takes the same lock (in a
//!   trigger); freeing a slot needs no lock.
//! - Every other function here only moves items between stages. It may run concurrently, be repeated or be late without
//!   harm.
//!
//! Not here: whose turn it is (`kernel::queue::round_robin`), the statement (functions/claim.sql), how starts are sent
//! (`server::queue::starter`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, ProcessId, QueueItemId, VersionId, WorkspaceId};
use kernel::queue::Stage;
use kernel::queue::round_robin::Quota;
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::sql::sql;
use crate::{Error, Store, release};

/// What a run needs to perform its nodes: a run that begins in the commit of its claim or later, or one that is resumed
/// or woken.
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
    /// How long the run may still take; zero if its deadline has passed.
    pub deadline_in: Duration,
    /// The trace it belongs to.
    pub trace: TraceParent,
}

/// A claimed item.
#[derive(Clone, Debug)]
pub struct ClaimedItem {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub attempts: u32,
    /// The item may have been started before under another claim.
    pub in_doubt: bool,
    /// The item's definition was deleted.
    pub definition_deleted: bool,
    /// The item was enqueued by a newer build, with rules (`kernel::SEMANTICS`) that this build does not know.
    pub newer: bool,
    /// The trace it belongs to.
    pub trace: TraceParent,
    /// How long the item was ready before it was claimed; None after a takeover.
    pub waited: Option<Duration>,
    /// The run, if it has already begun in this process.
    pub begun: Option<Begun>,
}

/// The state of a requested workspace after the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceState {
    pub workspace: WorkspaceId,
    pub running: i32,
    pub limit: i32,
    pub more: bool,
    /// An item that had passed a limit was blocked again, because that limit is full now.
    pub blocked_again: bool,
    /// Definitions whose ready items may not start; these items have to be moved to blocked.
    pub blocked_definitions: Vec<DefinitionId>,
    pub weight: i32,
}

impl WorkspaceState {
    /// The workspace has a free slot and another ready item.
    pub fn can_claim_more(&self) -> bool {
        self.more && self.running < self.limit
    }

    /// All slots of the workspace are taken, and more items are ready.
    pub fn is_full_with_items_waiting(&self) -> bool {
        self.more && self.running >= self.limit
    }
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    pub items: Vec<ClaimedItem>,
    pub workspaces: Vec<WorkspaceState>,
    /// Workspaces whose shard was locked by another process's claim. The caller claims for them again, shard by shard.
    pub busy: Vec<WorkspaceId>,
}

/// A limit that blocks items: that of a definition, or that of one of its concurrency keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockingLimit {
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub key: Option<String>,
}

/// Where the next scan of the limits that block items of a shard continues.
#[derive(Clone, Debug, Default)]
pub struct LimitCursor {
    definition: Option<BlockingLimit>,
    key: Option<BlockingLimit>,
}

impl LimitCursor {
    /// Does the next scan begin at the first limit?
    pub fn is_start(&self) -> bool {
        self.definition.is_none() && self.key.is_none()
    }
}

/// The maximum number of definitions, and of keys, that one scan finds: the `LIMIT` in blocking_limits.sql.
const MAX_LIMITS: usize = 5_000;

/// When a process may be declared dead.
#[derive(Clone, Copy, Debug)]
pub struct LivenessRule {
    /// A process that has been silent for this long is dead.
    pub dead_after: Duration,
    /// The caller's own heartbeats were steady during that time; if not, silence proves nothing.
    pub steady: bool,
}

impl Store {
    /// Claims as many items as each request wants and its limits allow. If `engine` is given, the claimer itself runs
    /// the items, and they begin in the same commit where possible. Requests of one shard wait for the lock of that
    /// shard. Requests of several shards wait for no lock: a workspace whose shard is locked is returned as `busy`.
    pub async fn claim(
        &self,
        quotas: &[Quota],
        claim: ClaimId,
        process: ProcessId,
        engine: Option<&str>,
    ) -> Result<Claims, Error> {
        let workspaces: Vec<Uuid> = quotas.iter().map(|quota| quota.workspace.0).collect();
        let wanted: Vec<i32> = quotas.iter().map(|quota| quota.limit).collect();
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
                _ => claims.workspaces.push(workspace_state(&row)?),
            }
        }
        Ok(claims)
    }

    /// The workspaces of these shards that have a ready item and a free slot, with their weights.
    pub async fn sweep(&self, shards: &[i16]) -> Result<Vec<(WorkspaceId, i32)>, Error> {
        let rows = self.query(sql!("execution_queue/sweep"), &[&shards]).await?;
        rows.iter().map(|row| Ok((WorkspaceId(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    /// Of these shards, those with something for a pass that unblocks items, or ends items of what was deleted.
    pub async fn shards_in_use(&self, shards: &[i16]) -> Result<Vec<i16>, Error> {
        let rows = self.query(sql!("execution_queue/shards_in_use"), &[&shards]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Definitions and keys of a shard that block items, a bounded number. The next call continues after them; after
    /// the last one it starts again with the first.
    pub async fn blocking_limits(&self, shard: i16, from: &mut LimitCursor) -> Result<Vec<BlockingLimit>, Error> {
        let nil =
            BlockingLimit { workspace: WorkspaceId(Uuid::nil()), definition: DefinitionId(Uuid::nil()), key: None };
        let (definition, key) = (from.definition.as_ref().unwrap_or(&nil), from.key.as_ref().unwrap_or(&nil));
        let after_key = key.key.as_deref().unwrap_or_default();
        let rows = self
            .query(
                sql!("execution_queue/blocking_limits"),
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
        let limit_of = |row: &Row| -> Result<BlockingLimit, Error> {
            Ok(BlockingLimit {
                workspace: WorkspaceId(row.try_get(0)?),
                definition: DefinitionId(row.try_get(1)?),
                key: row.try_get(2)?,
            })
        };
        let limits: Vec<BlockingLimit> = rows.iter().map(limit_of).collect::<Result<_, _>>()?;
        let (keys, definitions): (Vec<&BlockingLimit>, Vec<&BlockingLimit>) =
            limits.iter().partition(|limit| limit.key.is_some());
        let next = |some: &[&BlockingLimit]| {
            if some.len() < MAX_LIMITS { None } else { some.last().map(|limit| (*limit).clone()) }
        };
        *from = LimitCursor { definition: next(&definitions), key: next(&keys) };
        Ok(limits)
    }

    /// Unblocks items of these limits as far as there is room. Returns the workspaces to claim for.
    pub async fn unblock(&self, limits: &[BlockingLimit]) -> Result<Vec<WorkspaceId>, Error> {
        if limits.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = limits.iter().map(|limit| limit.workspace.0).collect();
        let definitions: Vec<Uuid> = limits.iter().map(|limit| limit.definition.0).collect();
        let keys: Vec<Option<&str>> = limits.iter().map(|limit| limit.key.as_deref()).collect();
        let rows = self.query(sql!("execution_queue/unblock"), &[&workspaces, &definitions, &keys]).await?;
        rows.iter().map(|row| Ok(WorkspaceId(row.try_get(0)?))).collect()
    }

    /// Makes delayed items ready once they are due. Returns the workspaces to claim for, and how many items moved.
    pub async fn promote(&self) -> Result<(Vec<WorkspaceId>, usize), Error> {
        let rows = self.query(sql!("execution_queue/promote"), &[]).await?;
        let mut ready = std::collections::BTreeSet::new();
        let mut limits = std::collections::BTreeSet::new();
        for row in &rows {
            let workspace = WorkspaceId(row.try_get(0)?);
            let definition = DefinitionId(row.try_get(2)?);
            let stage = Stage::from_code(row.try_get(1)?);
            if stage == Some(Stage::Ready) {
                ready.insert(workspace);
                continue;
            }
            let key = if stage == Some(Stage::WaitsForKey) { row.try_get(3)? } else { None };
            limits.insert(BlockingLimit { workspace, definition, key });
        }
        ready.extend(self.unblock(&limits.into_iter().collect::<Vec<_>>()).await?);
        Ok((ready.into_iter().collect(), rows.len()))
    }

    /// How long until the next delayed item is due.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("execution_queue/next_due"), &[]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// Claimed → dispatched. Returns the items that this claim still held.
    pub async fn mark_dispatched(&self, items: &[QueueItemId], claim: ClaimId) -> Result<Vec<QueueItemId>, Error> {
        self.mark_dispatched_by_claims(&items.iter().map(|item| (*item, claim)).collect::<Vec<_>>()).await
    }

    /// Like `mark_dispatched`, for items of several claims.
    pub async fn mark_dispatched_by_claims(&self, items: &[(QueueItemId, ClaimId)]) -> Result<Vec<QueueItemId>, Error> {
        let (ids, claims): (Vec<Uuid>, Vec<Uuid>) = items.iter().map(|(item, claim)| (item.0, claim.0)).unzip();
        let rows = self.query(sql!("execution_queue/mark_dispatched"), &[&ids, &claims]).await?;
        rows.iter().map(|row| Ok(QueueItemId(row.try_get(0)?))).collect()
    }

    /// Claimed → pending, because the start was certainly never sent. This does not count as an attempt.
    pub async fn requeue_unsent(
        &self,
        items: &[QueueItemId],
        claim: ClaimId,
        delay: Duration,
    ) -> Result<Vec<QueueItemId>, Error> {
        let ids: Vec<Uuid> = items.iter().map(|item| item.0).collect();
        let rows = self.query(sql!("execution_queue/requeue_unsent"), &[&ids, &claim.0, &delay.as_secs_f64()]).await?;
        rows.iter().map(|row| Ok(QueueItemId(row.try_get(0)?))).collect()
    }

    /// Claimed → pending, because the engine refused the item. This counts as an attempt.
    pub async fn requeue_refused(
        &self,
        item: QueueItemId,
        claim: ClaimId,
        reason: &str,
        backoff: Duration,
    ) -> Result<u32, Error> {
        let reason = kernel::run::failure::Failure::new(kernel::run::failure::Class::DispatchRefused, reason).message;
        let row = self
            .query(sql!("execution_queue/requeue_refused"), &[&item.0, &claim.0, &reason, &backoff.as_secs_f64()])
            .await?
            .pop()
            .ok_or_else(|| Error::Conflict(format!("claim {claim} no longer holds queue item {item}")))?;
        attempts(&row, "attempt_count")
    }

    /// The items of a claim whose reply was lost; they still have to be started.
    pub async fn items_of_claim(&self, shards: &[i16], claim: ClaimId) -> Result<Vec<ClaimedItem>, Error> {
        let rows = self.query(sql!("execution_queue/items_of_claim"), &[&shards, &claim.0]).await?;
        let item = |row: &Row| {
            Ok(ClaimedItem {
                item: QueueItemId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                attempts: attempts(row, "attempt_count")?,
                in_doubt: row.try_get("in_doubt")?,
                definition_deleted: row.try_get("definition_deleted")?,
                newer: false,
                trace: TraceParent::of_execution(ExecutionId(row.try_get("id")?)),
                waited: None,
                begun: None,
            })
        };
        rows.iter().map(item).collect()
    }
}

fn claimed(row: &Row) -> Result<ClaimedItem, Error> {
    let item = QueueItemId(row.try_get("item")?);
    let workspace = WorkspaceId(row.try_get("workspace")?);
    let definition = DefinitionId(row.try_get("definition")?);
    let begun = match row.try_get("begun")? {
        true => Some(begun(row, item.execution(), workspace, definition, row.try_get("epoch")?)?),
        false => None,
    };
    Ok(ClaimedItem {
        item,
        workspace,
        definition,
        attempts: attempts(row, "attempts")?,
        in_doubt: row.try_get("in_doubt")?,
        definition_deleted: row.try_get("definition_deleted")?,
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

/// The trace of an execution: the one that its start request named, otherwise one of its own.
pub(crate) fn trace(stored: Option<&str>, execution: ExecutionId) -> TraceParent {
    stored.and_then(TraceParent::parse).unwrap_or_else(|| TraceParent::of_execution(execution))
}

fn workspace_state(row: &Row) -> Result<WorkspaceState, Error> {
    let blocked_definitions: Option<Vec<Uuid>> = row.try_get("blocked_definitions")?;
    Ok(WorkspaceState {
        workspace: WorkspaceId(row.try_get("workspace")?),
        running: row.try_get("running")?,
        limit: row.try_get("max_running")?,
        more: row.try_get("more")?,
        blocked_again: row.try_get("blocked_again")?,
        blocked_definitions: blocked_definitions.unwrap_or_default().into_iter().map(DefinitionId).collect(),
        weight: row.try_get("weight")?,
    })
}

pub(crate) fn attempts(row: &Row, column: &str) -> Result<u32, Error> {
    let count: i32 = row.try_get(column)?;
    u32::try_from(count).map_err(|_| Error::Corrupt(format!("{column} is {count}")))
}

/// Milliseconds from the database; a negative value becomes zero.
pub(crate) fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
