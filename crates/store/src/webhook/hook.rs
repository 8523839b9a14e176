//! Hooks: the secret address of each definition that has `on: webhook`.
//!
//! Invariants
//! - Publishing makes and takes away hooks; a token is made by a request, shown once, and kept as a hash.
//! - A token is 256 random bits, so a fast hash keeps it safe; its check sum refuses what was mistyped without asking
//!   the database.
//! - Every accepted change leaves an audit row in its own transaction, without the token.
//!
//! Not here: what a rule means (`kernel::webhook::hook`), what is done with a request (`server::http::hooks`).

use std::time::Duration;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::webhook::hook::Rule;
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::token::{self, Kind};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// Tokens of hooks.
#[derive(Debug)]
pub enum Hooks {}

impl Kind for Hooks {
    const PREFIX: &'static str = "fbh_";
}

pub type Token = token::Token<Hooks>;

/// A hook as people read it.
#[derive(Clone, Debug)]
pub struct Hook {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: String,
    pub rule: Rule,
    /// How its token begins; none if it has none.
    pub token_prefix: Option<String>,
    /// Until when the token before opens too.
    pub previous_until: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What a token opens.
#[derive(Clone, Debug)]
pub struct Opened {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub rule: Rule,
}

impl Store {
    /// The hook that a token opens. Whatever keeps it shut is not found.
    pub async fn open_hook(&self, token: &Token) -> Result<Opened, Error> {
        let row = self.one(sql!("hook/find"), &[&token.hash()]).await?;
        Ok(Opened {
            id: row.try_get("id")?,
            workspace: WorkspaceId(row.try_get("workspace_id")?),
            definition: DefinitionId(row.try_get("workflow_definition_id")?),
            rule: rule_of(&row)?,
        })
    }

    /// Hooks of a workspace (none: all there are), after an id.
    pub async fn hooks(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Hook>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.unwrap_or(Uuid::nil()));
        let none = None::<Uuid>;
        let rows = self.query(sql!("hook/list"), &[&after, &workspace, &none, &none, &limit]).await?;
        rows.iter().map(hook_of).collect()
    }

    /// One hook, if this workspace (none: any) may see it.
    pub async fn hook(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Hook, Error> {
        let (workspace, none) = (workspace.map(|id| id.0), None::<Uuid>);
        hook_of(&self.one(sql!("hook/list"), &[&Uuid::nil(), &workspace, &Some(id), &none, &1_i64]).await?)
    }

    /// The hook of a definition.
    pub async fn hook_of(&self, definition: DefinitionId, workspace: Option<WorkspaceId>) -> Result<Hook, Error> {
        let (workspace, none, of) = (workspace.map(|id| id.0), None::<Uuid>, Some(definition.0));
        hook_of(&self.one(sql!("hook/list"), &[&Uuid::nil(), &workspace, &none, &of, &1_i64]).await?)
    }

    /// Gives a hook its first token; one that has a token is a conflict.
    pub async fn give_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        actor: &str,
    ) -> Result<(), Error> {
        match self.set_token(id, workspace, token, (Duration::ZERO, true), ("hook.create", actor)).await {
            Err(Error::NotFound) => {
                self.hook(id, workspace).await?;
                Err(Error::Conflict("this hook has a token: rotate it for another".to_owned()))
            }
            done => done,
        }
    }

    /// Gives a hook another token; the one before opens for `overlap` more.
    pub async fn rotate_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        overlap: Duration,
        actor: &str,
    ) -> Result<(), Error> {
        self.set_token(id, workspace, token, (overlap, false), ("hook.rotate", actor)).await
    }

    async fn set_token(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        token: &Token,
        (overlap, first): (Duration, bool),
        (action, actor): (&str, &str),
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction
            .query_opt(sql!("hook/rotate"), &[&id, &of, &token.hash(), &token.prefix(), &overlap.as_secs_f64(), &first])
            .await?;
        let owner = WorkspaceId(row.ok_or(Error::NotFound)?.try_get(0)?);
        let detail = json!({ "prefix": token.prefix(), "overlapSeconds": overlap.as_secs() });
        audit(&transaction, Some(owner), actor, action, "hook", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Takes a hook's tokens away: its address opens no more. One without any is not found.
    pub async fn revoke_token(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("hook/revoke"), &[&id, &of]).await?.ok_or(Error::NotFound)?;
        let owner = WorkspaceId(row.try_get(0)?);
        audit(&transaction, Some(owner), actor, "hook.revoke", "hook", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

/// Makes the hook that the definition's published version asks for, in the transaction that publishes it.
pub(crate) async fn publish(transaction: &Transaction<'_>, definition: DefinitionId) -> Result<(), Error> {
    transaction.execute(sql!("hook/publish"), &[&definition.0, &new_id()]).await?;
    Ok(())
}

fn rule_of(row: &Row) -> Result<Rule, Error> {
    let rule: Value = row.try_get("rule")?;
    serde_json::from_value(rule).map_err(|error| Error::Corrupt(format!("rule of a hook: {error}")))
}

fn hook_of(row: &Row) -> Result<Hook, Error> {
    Ok(Hook {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        rule: rule_of(row)?,
        token_prefix: row.try_get("token_prefix")?,
        previous_until: row.try_get("previous_until")?,
        rotated_at: row.try_get("rotated_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
