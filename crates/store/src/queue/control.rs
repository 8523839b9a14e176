//! Operator commands: pause, resume, delete, terminate.
//!
//! Invariants
//! - Every change names the status it leaves, may be repeated, and writes its audit row in the same commit. A
//!   repetition that changes nothing writes no audit row.
//! - Pausing or deleting a workspace or definition takes the shard's lock (in a trigger), so no claim overlaps the
//!   change.
//! - To terminate a run that a process owns, the owner is fenced first. The run keeps its slot until the owner confirms
//!   or is dead. After a crash before the commit, the run continues. After the commit, the owner ends the run at its
//!   next poll; if the owner is dead, the next owner does.
//!
//! Not here: carrying a deletion through (`deletion`), requesting a cancel (`execution`).

use kernel::execution::{self, Termination};
use kernel::ids::{DefinitionId, ExecutionId, ProcessId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::run::{EndResult, end_result_of};
use crate::schedule;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, parsed};

/// The result of a termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminated {
    /// No process owned the execution, so this call ended it.
    AtOnce(EndResult),
    /// The owner is fenced and has to abort the run.
    Fenced(ProcessId),
    /// The execution had already ended.
    AlreadyEnded,
}

impl Store {
    /// Pauses or resumes a workspace. Returns whether that changed anything.
    pub async fn pause_workspace(&self, id: WorkspaceId, paused: bool, actor: &str) -> Result<bool, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if transaction.query(sql!("workspace/pause"), &[&id.0, &paused]).await?.is_empty() {
            drop(transaction);
            drop(client);
            return self.workspace(id).await.map(|_| false);
        }
        let action = if paused { "workspace.pause" } else { "workspace.resume" };
        audit(&transaction, Some(id), actor, action, "workspace", id.0, &json!({})).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Pauses or resumes a definition. Returns whether that changed anything. For a draft, the result is a `Conflict`.
    pub async fn pause_definition(
        &self,
        workspace: WorkspaceId,
        id: DefinitionId,
        paused: bool,
        actor: &str,
    ) -> Result<bool, Error> {
        let (from, to) = if paused { ("ACTIVE", "PAUSED") } else { ("PAUSED", "ACTIVE") };
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if transaction.query(sql!("workflow_definition/pause"), &[&id.0, &workspace.0, &from, &to]).await?.is_empty() {
            drop(transaction);
            drop(client);
            let known = self.definition(crate::definition::DefinitionRef::Id(id), Some(workspace)).await?;
            return match known.status == to {
                true => Ok(false),
                false => Err(Error::Conflict(format!("the definition is {}: publish a version first", known.status))),
            };
        }
        let action = if paused { "definition.pause" } else { "definition.resume" };
        audit(&transaction, Some(workspace), actor, action, "definition", id.0, &json!({})).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Marks a workspace deleted, and deletes its secrets, webhooks and triggers. Background loops end its items and
    /// executions.
    pub async fn delete_workspace(&self, id: WorkspaceId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("workspace/delete"), &[&id.0]).await?.ok_or(Error::NotFound)?;
        transaction.execute(sql!("secret/delete_all"), &[&id.0]).await?;
        transaction.execute(sql!("webhook/delete_all"), &[&id.0]).await?;
        transaction.execute(sql!("trigger/delete_all"), &[&id.0]).await?;
        let detail = json!({ "name": row.try_get::<_, String>(0)? });
        audit(&transaction, Some(id), actor, "workspace.delete", "workspace", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Marks a definition deleted. Background loops fail its queued items.
    pub async fn delete_definition(&self, workspace: WorkspaceId, id: DefinitionId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let rows = transaction.query_opt(sql!("workflow_definition/delete"), &[&id.0, &workspace.0]).await?;
        let detail = json!({ "name": rows.ok_or(Error::NotFound)?.try_get::<_, String>(0)? });
        transaction.execute(sql!("event_binding/delete_of_definition"), &[&id.0]).await?;
        transaction.execute(sql!("trigger/delete_of_definition"), &[&id.0]).await?;
        schedule::end_schedules_of(&transaction, id).await?;
        audit(&transaction, Some(workspace), actor, "definition.delete", "definition", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Terminates an execution: immediately if no process owns it, otherwise by fencing its owner. Repeatable.
    pub async fn terminate(&self, id: ExecutionId, workspace: WorkspaceId, actor: &str) -> Result<Terminated, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("workflow_execution/lock_run"), &[&id.0, &workspace.0]).await?;
        let row = row.ok_or(Error::NotFound)?;
        if row.try_get("child")? {
            return Err(Error::Conflict("a child cannot be terminated: cancel it, or terminate its root".to_owned()));
        }
        let status = parsed(&row, "status", execution::Status::parse)?;
        let terminated = match execution::terminate(status, row.try_get("owned")?) {
            Termination::AlreadyEnded => return Ok(Terminated::AlreadyEnded),
            Termination::EndNow => Terminated::AtOnce(end_now(&transaction, id, status, actor).await?),
            Termination::AbortOwner => {
                let row = transaction.query_one(sql!("workflow_execution/fence"), &[&id.0, &workspace.0]).await?;
                let fenced = Terminated::Fenced(ProcessId(row.try_get("owner")?));
                if !row.try_get::<_, bool>("is_new")? {
                    return Ok(fenced);
                }
                fenced
            }
        };
        audit(&transaction, Some(workspace), actor, "execution.terminate", "execution", id.0, &json!({})).await?;
        transaction.commit().await?;
        Ok(terminated)
    }
}

/// The failure of a terminated execution.
pub fn terminated() -> Failure {
    Failure::new(Class::Terminated, "the execution was terminated on request")
}

/// Ends an execution whose row the caller has locked.
async fn end_now(
    transaction: &deadpool_postgres::Transaction<'_>,
    id: ExecutionId,
    from: execution::Status,
    actor: &str,
) -> Result<EndResult, Error> {
    let error = serde_json::to_value(terminated()).unwrap_or_default();
    let (outcome, from) = (execution::Status::Canceled.name(), from.name());
    let row: Row = transaction
        .query_one(
            sql!("workflow_execution/complete"),
            &[
                &vec![id.0],
                &vec![outcome],
                &vec![None::<Value>],
                &vec![Some(error)],
                &vec![None::<Uuid>],
                &from,
                &actor,
            ],
        )
        .await?;
    end_result_of(&row)
}
