//! Triggers: the secret address of each definition that has `on: http`.
//!
//! Invariants
//! - Publishing a definition creates and deletes its trigger. A separate request creates the trigger's token, which is
//!   shown once and stored as a hash.
//! - A token has 256 random bits, so a fast hash is safe. A checksum rejects a mistyped token without a database query.
//! - Every accepted change writes an audit row in its own transaction, without the token.
//!
//! Not here: what a rule means (`kernel::trigger`), handling a request (`server::http::triggers`).

use std::time::Duration;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::trigger::Rule;
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::token::{self, Kind};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// The kind of tokens that open a trigger.
#[derive(Debug)]
pub enum TriggerTokens {}

impl Kind for TriggerTokens {
    const PREFIX: &'static str = "fbt_";
}

pub type Token = token::Token<TriggerTokens>;

/// A trigger for display.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: String,
    pub rule: Rule,
    /// The first characters of its token; None if it has no token.
    pub token_prefix: Option<String>,
    /// Until when the previous token also works.
    pub previous_expires_at: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The trigger that a token belongs to: what a request with this token may start.
#[derive(Clone, Debug)]
pub struct ActiveTrigger {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub rule: Rule,
}

impl Store {
    /// Finds the trigger that a token belongs to. If the token may not be used, for whatever reason, the result is
    /// `NotFound`.
    pub async fn trigger_of_token(&self, token: &Token) -> Result<ActiveTrigger, Error> {
        let row = self.one(sql!("trigger/find"), &[&token.hash()]).await?;
        Ok(ActiveTrigger {
            id: row.try_get("id")?,
            workspace: WorkspaceId(row.try_get("workspace_id")?),
            definition: DefinitionId(row.try_get("workflow_definition_id")?),
            rule: rule_of(&row)?,
        })
    }

    /// Lists triggers of a workspace (None: all), after an id.
    pub async fn triggers(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Trigger>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.unwrap_or(Uuid::nil()));
        let none = None::<Uuid>;
        let rows = self.query(sql!("trigger/list"), &[&after, &workspace, &none, &none, &limit]).await?;
        rows.iter().map(trigger_of).collect()
    }

    /// One trigger, if this workspace (None: any) may see it.
    pub async fn trigger(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Trigger, Error> {
        let (workspace, none) = (workspace.map(|id| id.0), None::<Uuid>);
        trigger_of(&self.one(sql!("trigger/list"), &[&Uuid::nil(), &workspace, &Some(id), &none, &1_i64]).await?)
    }

    /// The trigger of a definition.
    pub async fn trigger_of_definition(
        &self,
        definition: DefinitionId,
        workspace: Option<WorkspaceId>,
    ) -> Result<Trigger, Error> {
        let (workspace, none, of) = (workspace.map(|id| id.0), None::<Uuid>, Some(definition.0));
        trigger_of(&self.one(sql!("trigger/list"), &[&Uuid::nil(), &workspace, &none, &of, &1_i64]).await?)
    }

    /// Gives a trigger its first token. If it already has a token, the result is a `Conflict`.
    pub async fn create_trigger_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        actor: &str,
    ) -> Result<(), Error> {
        match self.set_token(id, workspace, token, (Duration::ZERO, true), ("trigger.create", actor)).await {
            Err(Error::NotFound) => {
                self.trigger(id, workspace).await?;
                Err(Error::Conflict("this trigger already has a token: rotate it to get another".to_owned()))
            }
            done => done,
        }
    }

    /// Gives a trigger another token. The previous token works for another `grace_period`.
    pub async fn rotate_trigger_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        grace_period: Duration,
        actor: &str,
    ) -> Result<(), Error> {
        self.set_token(id, workspace, token, (grace_period, false), ("trigger.rotate", actor)).await
    }

    async fn set_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        (grace_period, first): (Duration, bool),
        (action, actor): (&str, &str),
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction
            .query_opt(
                sql!("trigger/rotate"),
                &[&id, &of, &token.hash(), &token.prefix(), &grace_period.as_secs_f64(), &first],
            )
            .await?;
        let owner = WorkspaceId(row.ok_or(Error::NotFound)?.try_get(0)?);
        let detail = json!({ "prefix": token.prefix(), "gracePeriodSeconds": grace_period.as_secs() });
        audit(&transaction, Some(owner), actor, action, "trigger", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Revokes a trigger's tokens: its address stops working. A trigger without a token is `NotFound`.
    pub async fn revoke_trigger_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("trigger/revoke"), &[&id, &of]).await?.ok_or(Error::NotFound)?;
        let owner = WorkspaceId(row.try_get(0)?);
        audit(&transaction, Some(owner), actor, "trigger.revoke", "trigger", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

/// Makes the stored trigger of a definition that of its published version, in the transaction that publishes it.
/// Deletes the trigger if that version declares none.
pub(crate) async fn store_published_trigger(
    transaction: &Transaction<'_>,
    definition: DefinitionId,
) -> Result<(), Error> {
    transaction.execute(sql!("trigger/publish"), &[&definition.0, &new_id()]).await?;
    Ok(())
}

fn rule_of(row: &Row) -> Result<Rule, Error> {
    let rule: Value = row.try_get("rule")?;
    serde_json::from_value(rule).map_err(|error| Error::Corrupt(format!("rule of a trigger: {error}")))
}

fn trigger_of(row: &Row) -> Result<Trigger, Error> {
    Ok(Trigger {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        rule: rule_of(row)?,
        token_prefix: row.try_get("token_prefix")?,
        previous_expires_at: row.try_get("previous_expires_at")?,
        rotated_at: row.try_get("rotated_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
