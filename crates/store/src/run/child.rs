//! Child executions: made by a node of another execution, and run in its root's slot.
//!
//! Invariants
//! - One child per attempt at a node: a repeated call finds it, running or ended.
//! - Creating a child is fenced by the holder, as every fact is. If the child is refused, or another process owns the
//!   run, nothing is stored.
//! - A child's row is locked after its root's.
//!
//! If the process dies before the commit, there is no child. The start of the node was stored before, so the node is
//! performed again and creates the child. After the commit, performing the node again finds the child.
//!
//! Not here: what a child's end means for its node (`kernel::kind::workflow`), what ends with its parent
//! (`functions/complete.sql`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, NodeKey, VersionId, WorkspaceId};
use kernel::kind::workflow::{MAX_DEPTH, MAX_DESCENDANTS};
use kernel::run::failure::Failure;
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::{Begun, begun, millis};
use crate::run::attempt::Ownership;
use crate::run::{End, failure_of, whole_ms};
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// The parent of a child: an attempt at a node of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentAttempt {
    pub execution: ExecutionId,
    pub node: NodeKey,
    pub iteration: i32,
    pub attempt: u32,
}

/// A child to create, if the attempt has none yet.
#[derive(Clone, Debug)]
pub struct NewChild {
    /// The id of the child, unless the attempt already has a child.
    pub execution: ExecutionId,
    pub definition: DefinitionId,
    pub version: VersionId,
    pub input: Value,
    pub trigger: Value,
    /// How long the child may run. The parent's deadline applies too.
    pub timeout: Option<Duration>,
    pub trace: TraceParent,
    pub engine: &'static str,
    /// The holder also runs the child, so the child is RUNNING immediately. Otherwise it is PENDING until the engine
    /// begins it.
    pub begins: bool,
}

/// The state of a node's child.
#[derive(Clone, Debug)]
pub enum ChildState {
    /// The child is open. `made`: this call created it, so it has no nodes yet. `inherits`: its deadline is the
    /// parent's, so the parent ends the child in time and the child needs no timer of its own.
    Running {
        begun: Box<Begun>,
        canceling: bool,
        made: bool,
        inherits: bool,
    },
    /// The child has ended. `unknown`: at least one of its nodes is UNKNOWN, so nobody knows whether that node took
    /// effect.
    Ended {
        execution: ExecutionId,
        end: End,
        unknown: bool,
    },
    Refused(ChildRefusal),
    /// There is no child, and the call was not asked to create one.
    Missing,
}

/// Why a child was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildRefusal {
    TooDeep,
    TooMany,
}

/// The version of a workflow that a node refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedVersion {
    pub definition: DefinitionId,
    pub version: VersionId,
    pub timeout: Option<Duration>,
}

/// One execution of a tree, for display.
#[derive(Clone, Debug)]
pub struct TreeMember {
    pub execution: ExecutionId,
    /// The attempt that created it; None for the root.
    pub parent: Option<ParentAttempt>,
    pub definition: DefinitionId,
    pub definition_name: Option<String>,
    pub status: execution::Status,
    pub error: Option<Value>,
    pub depth: i16,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
}

impl Store {
    /// Creates the child of an attempt at a node, or finds the existing one. None if another process owns the run.
    pub async fn spawn_child(
        &self,
        ownership: Ownership,
        parent: &ParentAttempt,
        new: &NewChild,
    ) -> Result<Option<ChildState>, Error> {
        self.child(ownership, parent, Some(new)).await
    }

    /// Finds the child of an attempt at a node, without creating one.
    pub async fn find_child(&self, ownership: Ownership, parent: &ParentAttempt) -> Result<Option<ChildState>, Error> {
        self.child(ownership, parent, None).await
    }

    async fn child(
        &self,
        ownership: Ownership,
        parent: &ParentAttempt,
        new: Option<&NewChild>,
    ) -> Result<Option<ChildState>, Error> {
        let attempt = i32::try_from(parent.attempt).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql!("workflow_execution/child"),
                &[
                    &ownership.execution.0,
                    &ownership.owner.0,
                    &ownership.epoch,
                    &new.map(|new| new.execution.0),
                    &parent.execution.0,
                    &parent.node.as_str(),
                    &parent.iteration,
                    &attempt,
                    &new.map(|new| new.definition.0),
                    &new.map(|new| new.version.0),
                    &new.map(|new| &new.input),
                    &new.map(|new| &new.trigger),
                    &new.map(|new| new.trace.to_string()),
                    &new.and_then(|new| new.timeout).map(whole_ms),
                    &new.map(|new| new.engine),
                    &new.map(|new| new.begins),
                    &kernel::SEMANTICS,
                    &MAX_DEPTH,
                    &MAX_DESCENDANTS,
                ],
            )
            .await?;
        spawned(&row, ownership.epoch)
    }

    /// A version of a workflow that is published and not deleted, by name: version `number`, or the published version.
    /// None if it does not exist.
    pub async fn named_version(
        &self,
        workspace: WorkspaceId,
        name: &str,
        number: Option<u32>,
    ) -> Result<Option<NamedVersion>, Error> {
        let number = number.map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        let rows = self.query(sql!("workflow_definition_version/named"), &[&workspace.0, &name, &number]).await?;
        let named = |row: &Row| {
            Ok(NamedVersion {
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                version: VersionId(row.try_get("id")?),
                timeout: row.try_get::<_, Option<i64>>("timeout_ms")?.map(millis),
            })
        };
        rows.first().map(named).transpose()
    }

    /// The open descendants of a root whose own cancellation was requested.
    pub async fn canceling_below(&self, root: ExecutionId) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/canceling_below"), &[&root.0]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }

    /// The open descendants of a root.
    pub async fn open_below(&self, root: ExecutionId) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/open_below"), &[&root.0]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get("id")?))).collect()
    }

    /// The children of an execution after `after` (None: from the first), in the order in which they were created.
    pub async fn children(
        &self,
        parent: ExecutionId,
        after: Option<ExecutionId>,
        limit: i64,
    ) -> Result<Vec<TreeMember>, Error> {
        let after = after.map_or(Uuid::nil(), |after| after.0);
        let rows = self.query(sql!("workflow_execution/children"), &[&parent.0, &after, &limit]).await?;
        rows.iter().map(member).collect()
    }

    /// A tree: its root first, then at most `most` descendants, in the order in which they were made.
    pub async fn tree(&self, root: ExecutionId, most: i64) -> Result<Vec<TreeMember>, Error> {
        let rows = self.query(sql!("workflow_execution/tree"), &[&root.0, &most]).await?;
        rows.iter().map(member).collect()
    }
}

fn spawned(row: &Row, epoch: i64) -> Result<Option<ChildState>, Error> {
    Ok(Some(match row.try_get("answer")? {
        "lost" => return Ok(None),
        "missing" => ChildState::Missing,
        "too_deep" => ChildState::Refused(ChildRefusal::TooDeep),
        "too_many" => ChildState::Refused(ChildRefusal::TooMany),
        "ended" => ChildState::Ended {
            execution: ExecutionId(row.try_get("execution")?),
            end: End {
                outcome: parsed(row, "status", execution::Status::parse)?,
                output: row.try_get("output")?,
                error: row.try_get::<_, Option<Value>>("error")?.map(failure_of) as Option<Failure>,
            },
            unknown: row.try_get("unknown")?,
        },
        "running" => {
            let execution = ExecutionId(row.try_get("execution")?);
            let workspace = WorkspaceId(row.try_get("workspace")?);
            let definition = DefinitionId(row.try_get("definition")?);
            let begun = Box::new(begun(row, execution, workspace, definition, epoch)?);
            let (canceling, made, inherits) =
                (row.try_get("canceling")?, row.try_get("made")?, row.try_get("inherits")?);
            ChildState::Running { begun, canceling, made, inherits }
        }
        other => return Err(Error::Corrupt(format!("a child returned the unknown state {other}"))),
    }))
}

fn member(row: &Row) -> Result<TreeMember, Error> {
    let parent = match row.try_get::<_, Option<Uuid>>("parent")? {
        None => None,
        Some(parent) => Some(ParentAttempt {
            execution: ExecutionId(parent),
            node: NodeKey::new(row.try_get("parent_node")?).map_err(|bad| Error::Corrupt(bad.to_string()))?,
            iteration: row.try_get("parent_iteration")?,
            attempt: u32::try_from(row.try_get::<_, i32>("parent_attempt")?).unwrap_or_default(),
        }),
    };
    Ok(TreeMember {
        execution: ExecutionId(row.try_get("id")?),
        parent,
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        status: parsed(row, "status", execution::Status::parse)?,
        error: row.try_get("error")?,
        depth: row.try_get("depth")?,
        created_at: row.try_get("created_at")?,
        started_at: row.try_get("started_at")?,
        completed_at: row.try_get("completed_at")?,
        duration_ms: row.try_get("duration_ms")?,
    })
}
