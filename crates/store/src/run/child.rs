//! Children: executions that a node of another one makes, in its root's slot.
//!
//! Invariants
//! - One child for each attempt at a node: making it again finds it, running or ended.
//! - Making is fenced by the holder, as every fact is; what is refused or lost stores nothing.
//! - A child's row is locked after its root's.
//!
//! What happens if the process dies: before the commit there is no child, and the node, whose start was stored before,
//! makes it when it is performed again; after it the node finds the child.
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
use crate::run::attempt::Hold;
use crate::run::{End, failure, whole_ms};
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// Whose child it is: an attempt at a node of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub parent: ExecutionId,
    pub node: NodeKey,
    pub iteration: i32,
    pub attempt: u32,
}

/// What a child that does not exist yet is to be.
#[derive(Clone, Debug)]
pub struct NewChild {
    /// Its id, unless there is a child at its place already.
    pub execution: ExecutionId,
    pub definition: DefinitionId,
    pub version: VersionId,
    pub input: Value,
    pub trigger: Value,
    /// How long it may run; its parent's deadline holds in any case.
    pub timeout: Option<Duration>,
    pub trace: TraceParent,
    pub engine: &'static str,
    /// The holder runs it too: it is RUNNING at once. Otherwise it is PENDING until it begins.
    pub begins: bool,
}

/// How the child of a node stands.
#[derive(Clone, Debug)]
pub enum Spawned {
    /// It runs, or is about to. `made`: by this very call, so that it has no nodes yet. `inherits`: its deadline is its
    /// parent's, which ends it in time; it needs none of its own.
    Running {
        begun: Box<Begun>,
        canceling: bool,
        made: bool,
        inherits: bool,
    },
    /// `unknown`: of one of its nodes it is not known whether it took effect.
    Ended {
        execution: ExecutionId,
        end: End,
        unknown: bool,
    },
    Refused(Refusal),
    /// There is none, and none was to be made.
    Missing,
}

/// Why a child is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    TooDeep,
    TooMany,
}

/// The version of a workflow that a node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub definition: DefinitionId,
    pub version: VersionId,
    pub timeout: Option<Duration>,
}

/// One execution of a tree, as people read it.
#[derive(Clone, Debug)]
pub struct Member {
    pub execution: ExecutionId,
    /// Whose child it is; none for the root.
    pub place: Option<Place>,
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
    /// Makes the child at this place, or finds it. None if the hold is lost.
    pub async fn spawn_child(&self, hold: Hold, place: &Place, new: &NewChild) -> Result<Option<Spawned>, Error> {
        self.child(hold, place, Some(new)).await
    }

    /// Finds the child at this place, and makes none.
    pub async fn find_child(&self, hold: Hold, place: &Place) -> Result<Option<Spawned>, Error> {
        self.child(hold, place, None).await
    }

    async fn child(&self, hold: Hold, place: &Place, new: Option<&NewChild>) -> Result<Option<Spawned>, Error> {
        let attempt = i32::try_from(place.attempt).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql!("workflow_execution/child"),
                &[
                    &hold.execution.0,
                    &hold.owner.0,
                    &hold.epoch,
                    &new.map(|new| new.execution.0),
                    &place.parent.0,
                    &place.node.as_str(),
                    &place.iteration,
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
        spawned(&row, hold.epoch)
    }

    /// A version of a living, published workflow by its name: the numbered one, or the published. None if there is
    /// none.
    pub async fn named_version(
        &self,
        workspace: WorkspaceId,
        name: &str,
        number: Option<u32>,
    ) -> Result<Option<Named>, Error> {
        let number = number.map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        let rows = self.query(sql!("workflow_definition_version/named"), &[&workspace.0, &name, &number]).await?;
        let named = |row: &Row| {
            Ok(Named {
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                version: VersionId(row.try_get("id")?),
                timeout: row.try_get::<_, Option<i64>>("timeout_ms")?.map(millis),
            })
        };
        rows.first().map(named).transpose()
    }

    /// The open descendants of a root that somebody asked to end.
    pub async fn canceling_below(&self, root: ExecutionId) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/canceling_below"), &[&root.0]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }

    /// The open descendants of a root.
    pub async fn open_below(&self, root: ExecutionId) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/open_below"), &[&root.0]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get("id")?))).collect()
    }

    /// The children of an execution after one of them (none: from the first), in the order in which they were made.
    pub async fn children(
        &self,
        parent: ExecutionId,
        after: Option<ExecutionId>,
        limit: i64,
    ) -> Result<Vec<Member>, Error> {
        let after = after.map_or(Uuid::nil(), |after| after.0);
        let rows = self.query(sql!("workflow_execution/children"), &[&parent.0, &after, &limit]).await?;
        rows.iter().map(member).collect()
    }

    /// A tree: its root first, then at most so many of what is below it, in the order in which they were made.
    pub async fn tree(&self, root: ExecutionId, most: i64) -> Result<Vec<Member>, Error> {
        let rows = self.query(sql!("workflow_execution/tree"), &[&root.0, &most]).await?;
        rows.iter().map(member).collect()
    }
}

fn spawned(row: &Row, epoch: i64) -> Result<Option<Spawned>, Error> {
    Ok(Some(match row.try_get("answer")? {
        "lost" => return Ok(None),
        "missing" => Spawned::Missing,
        "deep" => Spawned::Refused(Refusal::TooDeep),
        "many" => Spawned::Refused(Refusal::TooMany),
        "ended" => Spawned::Ended {
            execution: ExecutionId(row.try_get("execution")?),
            end: End {
                outcome: parsed(row, "status", execution::Status::parse)?,
                output: row.try_get("output")?,
                error: row.try_get::<_, Option<Value>>("error")?.map(failure) as Option<Failure>,
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
            Spawned::Running { begun, canceling, made, inherits }
        }
        other => return Err(Error::Corrupt(format!("a child was answered {other}"))),
    }))
}

fn member(row: &Row) -> Result<Member, Error> {
    let place = match row.try_get::<_, Option<Uuid>>("parent")? {
        None => None,
        Some(parent) => Some(Place {
            parent: ExecutionId(parent),
            node: NodeKey::new(row.try_get("parent_node")?).map_err(|bad| Error::Corrupt(bad.to_string()))?,
            iteration: row.try_get("parent_iteration")?,
            attempt: u32::try_from(row.try_get::<_, i32>("parent_attempt")?).unwrap_or_default(),
        }),
    };
    Ok(Member {
        execution: ExecutionId(row.try_get("id")?),
        place,
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
