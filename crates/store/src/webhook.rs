//! Webhooks: who is told when executions of a workspace end, and the secrets that messages are signed with.
//!
//! Invariants
//! - A secret is sealed before it comes here, bound to its webhook and version; the newest is good, and the one before
//!   for a time.
//! - Every accepted change leaves an audit row in its own transaction, without the secret.
//!
//! What happens if the process dies: before the commit nothing was changed; after it the answer with the secret may be
//! lost, and another rotation makes one that is known.
//!
//! Not here: what is told, and when (`webhook::delivery`), sealing (`engine::vault`).

pub mod delivery;
pub mod hook;

use std::time::Duration;

use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::secret::Sealed;
use crate::sql::sql;
use crate::workspace::{audit, taken};
use crate::{Error, Store};

/// The most webhooks of one workspace.
pub const MOST: i64 = 100;

/// A webhook as stored.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub url: String,
    pub events: Vec<Status>,
    /// None: of every definition.
    pub definition: Option<DefinitionId>,
    pub definition_name: Option<String>,
    pub description: Option<String>,
    /// Nothing was taken since then.
    pub failing_since: Option<Timestamp>,
    /// It is off, since then and for that reason.
    pub disabled: Option<(Timestamp, String)>,
    pub secret_version: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
}

/// A webhook to be made.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub url: String,
    pub events: Vec<Status>,
    pub definition: Option<DefinitionId>,
    pub description: Option<String>,
}

/// What to change; nothing leaves a thing as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub url: Option<String>,
    pub events: Option<Vec<Status>>,
    pub description: Option<String>,
    pub enabled: Option<bool>,
}

/// Where a webhook's secret belongs: no secret of a workspace is called so.
pub fn secret_name(webhook: Uuid) -> String {
    format!("webhook:{webhook}")
}

impl Store {
    /// Makes a webhook with its first secret. An unknown workspace is not found, one that is full a conflict.
    pub async fn create_webhook(&self, new: &NewWebhook, sealed: &Sealed, actor: &str) -> Result<(), Error> {
        let NewWebhook { id, workspace, url, events, definition, description } = new;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (names, of) = (names(events), definition.map(|id| id.0));
        let made = transaction
            .execute(sql!("webhook/add"), &[id, &workspace.0, url, &names, &of, description, &actor, &MOST])
            .await?;
        if made == 0 {
            drop(transaction);
            drop(client);
            self.workspace(*workspace).await?;
            return Err(Error::Conflict(format!("a workspace has at most {MOST} webhooks")));
        }
        add_secret(&transaction, *id, sealed).await?;
        let detail = json!({ "host": host(url), "events": names, "workflowDefinitionId": definition });
        audit(&transaction, Some(*workspace), actor, "webhook.create", "webhook", *id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Webhooks of a workspace (none: all there are), after an id.
    pub async fn webhooks(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Webhook>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.unwrap_or(Uuid::nil()));
        let rows = self.query(sql!("webhook/list"), &[&after, &workspace, &None::<Uuid>, &limit]).await?;
        rows.iter().map(webhook_of).collect()
    }

    /// One webhook, if this workspace (none: any) may see it.
    pub async fn webhook(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Webhook, Error> {
        let workspace = workspace.map(|id| id.0);
        webhook_of(&self.one(sql!("webhook/list"), &[&Uuid::nil(), &workspace, &Some(id), &1_i64]).await?)
    }

    pub async fn change_webhook(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        change: &Change,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, names) = (workspace.map(|id| id.0), change.events.as_deref().map(names));
        let off = format!("turned off by {actor}");
        let row = transaction
            .query_opt(
                sql!("webhook/change"),
                &[&id, &of, &change.url, &names, &change.description, &change.enabled, &off],
            )
            .await?;
        let owner = WorkspaceId(row.ok_or(Error::NotFound)?.try_get(0)?);
        let to = change.url.as_deref().map(host);
        let detail = json!({ "host": to, "events": names, "enabled": change.enabled });
        audit(&transaction, Some(owner), actor, "webhook.update", "webhook", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    pub async fn delete_webhook(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("webhook/delete"), &[&id, &of]).await?.ok_or(Error::NotFound)?;
        let owner = WorkspaceId(row.try_get(0)?);
        let detail = json!({ "host": host(row.try_get(1)?) });
        audit(&transaction, Some(owner), actor, "webhook.delete", "webhook", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Sets the next version of a webhook's secret; the one before is good for `overlap` more. One that was overtaken
    /// is a conflict.
    pub async fn rotate_webhook(&self, id: Uuid, sealed: &Sealed, overlap: Duration, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let before = sealed.version - 1;
        let ended = transaction.execute(sql!("webhook_secret/end"), &[&id, &before, &overlap.as_secs_f64()]).await?;
        if ended == 0 {
            return Err(overtaken());
        }
        add_secret(&transaction, id, sealed).await?;
        let detail = json!({ "version": sealed.version, "overlapSeconds": overlap.as_secs() });
        audit(&transaction, Some(sealed.workspace), actor, "webhook.rotate", "webhook", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// What messages of these webhooks are signed with now, the newest first.
    pub async fn webhook_secrets(&self, webhooks: &[Uuid]) -> Result<Vec<(Uuid, Sealed)>, Error> {
        let rows = self.query(sql!("webhook_secret/sealed"), &[&webhooks]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// Secrets of any webhook whose key is under another outer key than this, after a place in a stable order.
    pub async fn webhook_secrets_under_others(
        &self,
        key_id: &str,
        after: (Uuid, i32),
        limit: i64,
    ) -> Result<Vec<(Uuid, Sealed)>, Error> {
        let rows = self.query(sql!("webhook_secret/under_others"), &[&key_id, &after.0, &after.1, &limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// One webhook secret of each outer key that seals any, so many keys at most.
    pub async fn webhook_key_samples(&self, limit: i64) -> Result<Vec<Sealed>, Error> {
        let rows = self.query(sql!("webhook_secret/key_samples"), &[&limit]).await?;
        rows.iter().map(|row| sealed_of(row).map(|(_, sealed)| sealed)).collect()
    }

    /// Puts the data key of a webhook's secret under another outer key; false if it is another by now.
    pub async fn reseal_webhook_secret(&self, id: Uuid, was: &Sealed, key: &[u8], key_id: &str) -> Result<bool, Error> {
        let changed =
            self.execute(sql!("webhook_secret/reseal"), &[&id, &was.version, &was.key_id, &key, &key_id]).await?;
        Ok(changed == 1)
    }
}

async fn add_secret(transaction: &deadpool_postgres::Transaction<'_>, id: Uuid, sealed: &Sealed) -> Result<(), Error> {
    let Sealed { workspace, version, value, key, key_id, .. } = sealed;
    let added =
        transaction.execute(sql!("webhook_secret/add"), &[&id, version, &workspace.0, value, key, key_id]).await;
    added.map_err(Error::from).map_err(|error| taken(error, "webhook_secret_pkey", told)).map(drop)
}

fn overtaken() -> Error {
    Error::Conflict(told())
}

fn told() -> String {
    "the secret is being rotated by others; try again".to_owned()
}

/// Where a URL leads: its path and query may hold what is somebody's secret.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn names(events: &[Status]) -> Vec<&'static str> {
    events.iter().map(|status| status.name()).collect()
}

fn webhook_of(row: &Row) -> Result<Webhook, Error> {
    let known = |name: &String| Status::parse(name).ok_or_else(|| Error::Corrupt(format!("event is {name:?}")));
    let (disabled_at, reason): (Option<Timestamp>, Option<String>) =
        (row.try_get("disabled_at")?, row.try_get("disabled_reason")?);
    Ok(Webhook {
        id: row.try_get("id")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        url: row.try_get("url")?,
        events: row.try_get::<_, Vec<String>>("events")?.iter().map(known).collect::<Result<_, _>>()?,
        definition: row.try_get::<_, Option<Uuid>>("workflow_definition_id")?.map(DefinitionId),
        definition_name: row.try_get("definition_name")?,
        description: row.try_get("description")?,
        failing_since: row.try_get("failing_since")?,
        disabled: disabled_at.zip(reason),
        secret_version: row.try_get::<_, Option<i32>>("secret_version")?.unwrap_or_default(),
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        created_by: row.try_get("created_by")?,
    })
}

fn sealed_of(row: &Row) -> Result<(Uuid, Sealed), Error> {
    let webhook: Uuid = row.try_get("webhook_id")?;
    let sealed = Sealed {
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        name: secret_name(webhook),
        version: row.try_get("version")?,
        value: row.try_get("value_sealed")?,
        key: row.try_get("key_sealed")?,
        key_id: row.try_get("key_id")?,
        hosts: None,
    };
    Ok((webhook, sealed))
}
