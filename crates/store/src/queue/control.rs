//! What people decide about what waits and runs: pausing, resuming, deleting, ending by force.
//!
//! Invariants
//! - Every change is guarded by the state it leaves, may be repeated, and has its audit row in the
//!   same commit; a repetition that changes nothing leaves none.
//! - A pause or a deletion of a workspace or definition takes the shard's lock (a trigger): no claim
//!   straddles it.
//! - A run that a process holds is fenced before anything else; its slot stays taken until that
//!   process confirms or is dead. Dying before the commit leaves it running; after it, the owner's
//!   next look at its rows, or the next owner, ends it.
//!
//! Not here: carrying a deletion through (`deletion`), asking a run to end by itself (`execution`).

use kernel::execution::{self, Terminate};
use kernel::ids::{DefinitionId, ExecutionId, ProcessId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::run::{Ended, ended};
use crate::schedule;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, parsed};

/// What a forced end did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminated {
    /// Nobody ran it: it is over.
    AtOnce(Ended),
    /// Its owner is fenced out and is to abort it.
    Fenced(ProcessId),
    /// It had already ended.
    AlreadyEnded,
}

impl Store {
    /// Pauses or resumes a workspace; answers whether that changed anything.
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

    /// Pauses or resumes a definition; answers whether that changed anything. A draft is neither: a conflict.
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
            let known = self.definition(crate::definition::Which::Id(id), Some(workspace)).await?;
            return match known.status == to {
                true => Ok(false),
                false => Err(Error::Conflict(format!("the definition is {}", known.status))),
            };
        }
        let action = if paused { "definition.pause" } else { "definition.resume" };
        audit(&transaction, Some(workspace), actor, action, "definition", id.0, &json!({})).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Marks a workspace deleted, its secrets, webhooks and hooks gone with it; the rest follows by itself.
    pub async fn delete_workspace(&self, id: WorkspaceId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("workspace/delete"), &[&id.0]).await?.ok_or(Error::NotFound)?;
        transaction.execute(sql!("secret/delete_all"), &[&id.0]).await?;
        transaction.execute(sql!("webhook/delete_all"), &[&id.0]).await?;
        transaction.execute(sql!("hook/delete_all"), &[&id.0]).await?;
        let detail = json!({ "name": row.try_get::<_, String>(0)? });
        audit(&transaction, Some(id), actor, "workspace.delete", "workspace", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Marks a definition deleted; the rest follows by itself.
    pub async fn delete_definition(&self, workspace: WorkspaceId, id: DefinitionId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let rows = transaction.query_opt(sql!("workflow_definition/delete"), &[&id.0, &workspace.0]).await?;
        let detail = json!({ "name": rows.ok_or(Error::NotFound)?.try_get::<_, String>(0)? });
        transaction.execute(sql!("event_binding/forget"), &[&id.0]).await?;
        transaction.execute(sql!("hook/forget"), &[&id.0]).await?;
        schedule::end(&transaction, id).await?;
        audit(&transaction, Some(workspace), actor, "definition.delete", "definition", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Ends an execution by force: at once if nobody runs it, else by fencing its owner out. Repeatable.
    pub async fn terminate(&self, id: ExecutionId, workspace: WorkspaceId, actor: &str) -> Result<Terminated, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("workflow_execution/lock_run"), &[&id.0, &workspace.0]).await?;
        let row = row.ok_or(Error::NotFound)?;
        if row.try_get("child")? {
            return Err(Error::Conflict("a child ends with its root: cancel it, or end the root by force".to_owned()));
        }
        let status = parsed(&row, "status", execution::Status::parse)?;
        let terminated = match execution::terminate(status, row.try_get("owned")?) {
            Terminate::Over => return Ok(Terminated::AlreadyEnded),
            Terminate::AtOnce => Terminated::AtOnce(end_now(&transaction, id, status, actor).await?),
            Terminate::Fence => {
                let row = transaction.query_one(sql!("workflow_execution/fence"), &[&id.0, &workspace.0]).await?;
                let fenced = Terminated::Fenced(ProcessId(row.try_get("owner")?));
                if !row.try_get::<_, bool>("news")? {
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

/// How an execution ends that somebody ended by force.
pub fn terminated() -> Failure {
    Failure::new(Class::Terminated, "it was ended by force, on request")
}

/// Ends an execution whose row the caller has locked.
async fn end_now(
    transaction: &deadpool_postgres::Transaction<'_>,
    id: ExecutionId,
    from: execution::Status,
    actor: &str,
) -> Result<Ended, Error> {
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
    ended(&row)
}
