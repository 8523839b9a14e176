//! Bindings: which events make a job, and which definition runs it.
//!
//! Invariants
//! - An event type has at most one binding per workspace, and one for the whole platform.
//! - A binding made by a definition's `on: event` belongs to the definition. Only publishing and deleting the
//!   definition change it.
//! - A built-in binding applies only if no other binding does, and is never changed or deleted.
//! - Every accepted change writes an audit row in its own transaction.
//!
//! Not here: what a rule means (`kernel::event::binding`), which of several applies (`functions/shared/event.sql`).

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::event::binding::Rule;
use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::workspace::{audit, changed_meanwhile, conflict_on};
use crate::{Error, Store, new_id};

/// A stored binding.
#[derive(Clone, Debug)]
pub struct Binding {
    pub id: Uuid,
    /// None: for the whole platform.
    pub workspace: Option<WorkspaceId>,
    pub definition: Option<DefinitionId>,
    pub definition_name: Option<String>,
    /// The binding is built in: every installation has it (`functions/shared/event.sql`).
    pub built_in: bool,
    /// Made by the definition's `on: event`.
    pub by_definition: bool,
    pub rule: Rule,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Store {
    /// Creates a binding. If the event type already has a binding there, the result is a `Conflict`.
    pub async fn bind(
        &self,
        workspace: Option<WorkspaceId>,
        definition: Option<DefinitionId>,
        rule: &Rule,
        actor: &str,
    ) -> Result<Uuid, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let id = new_id();
        let (of, run_by) = (workspace.map(|id| id.0), definition.map(|id| id.0));
        let lease = lease(rule);
        transaction
            .execute(
                sql!("event_binding/add"),
                &[&id, &of, &rule.event_type, &run_by, &rule.filter, &rule.input, &rule.workflow_id, &lease],
            )
            .await
            .map_err(Error::from)
            .map_err(|error| conflict_on(error, "event_binding_type", || bound(&rule.event_type)))?;
        let detail = json!({ "eventType": rule.event_type, "workflowDefinitionId": definition });
        audit(&transaction, workspace, actor, "binding.create", "binding", id, &detail).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// Changes a binding, except its event type. Its pending jobs follow the new rule. If another request changed the
    /// binding since `known` was read, the result is a `Conflict`.
    pub async fn change_binding(
        &self,
        known: &Binding,
        workspace: Option<WorkspaceId>,
        definition: Option<DefinitionId>,
        rule: &Rule,
        actor: &str,
    ) -> Result<(), Error> {
        let id = known.id;
        self.changeable(id, workspace).await?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, run_by) = (workspace.map(|id| id.0), definition.map(|id| id.0));
        let lease = lease(rule);
        let row = transaction
            .query_opt(
                sql!("event_binding/change"),
                &[&id, &of, &run_by, &rule.filter, &rule.input, &rule.workflow_id, &lease, &known.updated_at],
            )
            .await?;
        let owner = row.ok_or_else(changed_meanwhile)?.try_get::<_, Option<Uuid>>(0)?.map(WorkspaceId);
        transaction.execute(sql!("event_binding/route"), &[&id]).await?;
        let detail = json!({ "workflowDefinitionId": definition });
        audit(&transaction, owner, actor, "binding.update", "binding", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Deletes a binding. Its jobs stay, for external workers.
    pub async fn unbind(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        self.changeable(id, workspace).await?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("event_binding/delete"), &[&id, &of]).await?.ok_or(Error::NotFound)?;
        transaction.execute(sql!("event_binding/route"), &[&id]).await?;
        let owner = row.try_get::<_, Option<Uuid>>(0)?.map(WorkspaceId);
        let detail = json!({ "eventType": row.try_get::<_, String>(1)? });
        audit(&transaction, owner, actor, "binding.delete", "binding", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Lists bindings of a workspace (None: all), after an id.
    pub async fn bindings(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Binding>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.unwrap_or(Uuid::nil()));
        let one = None::<Uuid>;
        let rows = self.query(sql!("event_binding/list"), &[&after, &workspace, &one, &limit]).await?;
        rows.iter().map(binding_of).collect()
    }

    /// One binding, if this workspace (None: any) may see it.
    pub async fn binding(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Binding, Error> {
        let workspace = workspace.map(|id| id.0);
        binding_of(&self.one(sql!("event_binding/list"), &[&Uuid::nil(), &workspace, &Some(id), &1_i64]).await?)
    }

    async fn changeable(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<(), Error> {
        let known = self.binding(id, workspace).await?;
        match (known.built_in, known.by_definition) {
            (true, _) => Err(Error::Conflict(
                "this binding is built in: create your own binding of the type, which takes precedence".to_owned(),
            )),
            (_, true) => Err(Error::Conflict(
                "this binding belongs to its definition (`on: event`): change it there, and publish".to_owned(),
            )),
            (false, false) => Ok(()),
        }
    }
}

/// Makes the stored binding of a definition that of its published version, in the transaction that publishes it.
/// Deletes the binding if that version binds no event. A `Conflict` if another binding has the event type.
pub(crate) async fn store_published_binding(
    transaction: &Transaction<'_>,
    definition: DefinitionId,
) -> Result<(), Error> {
    let bound_to = transaction.query_opt(sql!("event_binding/published_type"), &[&definition.0]).await?;
    let made = transaction.query_opt(sql!("event_binding/publish"), &[&definition.0, &new_id()]).await?;
    match (bound_to, made) {
        (Some(row), None) => Err(Error::Conflict(bound(row.try_get(0)?))),
        (_, Some(row)) => {
            let id: Uuid = row.try_get(0)?;
            transaction.execute(sql!("event_binding/route"), &[&id]).await?;
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

fn bound(event_type: &str) -> String {
    format!(
        "the event type {event_type:?} is already bound, here or by another definition: change or delete that binding"
    )
}

fn lease(rule: &Rule) -> Option<i32> {
    rule.lease_s.and_then(|lease| i32::try_from(lease).ok())
}

fn binding_of(row: &Row) -> Result<Binding, Error> {
    Ok(Binding {
        id: row.try_get("id")?,
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        definition: row.try_get::<_, Option<Uuid>>("workflow_definition_id")?.map(DefinitionId),
        definition_name: row.try_get("definition_name")?,
        built_in: row.try_get("built_in")?,
        by_definition: row.try_get("by_definition")?,
        rule: Rule {
            event_type: row.try_get("event_type")?,
            filter: row.try_get("filter")?,
            input: row.try_get("input")?,
            workflow_id: row.try_get("workflow_id")?,
            lease_s: u32::try_from(row.try_get::<_, i32>("lease_s")?).ok(),
        },
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
