//! Webhooks: where the ends of a workspace's executions are sent, and the secrets that sign the messages.
//!
//! Invariants
//! - A secret arrives here encrypted, bound to its webhook and version. The newest is valid, and the previous one for a
//!   time.
//! - Every accepted change writes an audit row in its own transaction, without the secret.
//!
//! If the process dies before the commit, nothing was changed. After it, the response with the secret may be lost;
//! rotating again makes a new one.
//!
//! Not here: what is sent, and when (`webhook::delivery`), encrypting (`engine::vault`).

pub mod delivery;

use std::time::Duration;

use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::secret::Sealed;
use crate::sql::sql;
use crate::workspace::{audit, conflict_on};
use crate::{Error, Store};

/// The maximum number of webhooks in a workspace.
pub const MAX_WEBHOOKS: i64 = 100;

/// A stored webhook.
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
    /// Every delivery since then has failed.
    pub failing_since: Option<Timestamp>,
    /// It is disabled: since when, and why.
    pub disabled: Option<(Timestamp, String)>,
    pub secret_version: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
}

/// A webhook to create.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    pub id: Uuid,
    pub workspace: WorkspaceId,
    pub url: String,
    pub events: Vec<Status>,
    pub definition: Option<DefinitionId>,
    pub description: Option<String>,
}

/// What to change; None leaves a field unchanged.
#[derive(Clone, Debug, Default)]
pub struct WebhookChange {
    pub url: Option<String>,
    pub events: Option<Vec<Status>>,
    /// A new description; Some(None) removes it.
    pub description: Option<Option<String>>,
    pub enabled: Option<bool>,
}

/// The name under which a webhook's secret is encrypted. No secret of a workspace can have it.
pub fn secret_name(webhook: Uuid) -> String {
    format!("webhook:{webhook}")
}

impl Store {
    /// Creates a webhook with its first secret. An unknown workspace is `NotFound`; one at its limit is a `Conflict`.
    pub async fn create_webhook(&self, new: &NewWebhook, sealed: &Sealed, actor: &str) -> Result<(), Error> {
        let NewWebhook { id, workspace, url, events, definition, description } = new;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (names, of) = (names(events), definition.map(|id| id.0));
        let made = transaction
            .execute(sql!("webhook/add"), &[id, &workspace.0, url, &names, &of, description, &actor, &MAX_WEBHOOKS])
            .await?;
        if made == 0 {
            drop(transaction);
            drop(client);
            self.workspace(*workspace).await?;
            return Err(Error::Conflict(format!(
                "the workspace's limit of {MAX_WEBHOOKS} webhooks is reached; delete one first"
            )));
        }
        add_secret(&transaction, *id, sealed).await?;
        let detail = json!({ "host": host(url), "events": names, "workflowDefinitionId": definition });
        audit(&transaction, Some(*workspace), actor, "webhook.create", "webhook", *id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Lists webhooks of a workspace (None: all), after an id.
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

    /// One webhook, if this workspace (None: any) may see it.
    pub async fn webhook(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Webhook, Error> {
        let workspace = workspace.map(|id| id.0);
        webhook_of(&self.one(sql!("webhook/list"), &[&Uuid::nil(), &workspace, &Some(id), &1_i64]).await?)
    }

    pub async fn change_webhook(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        change: &WebhookChange,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (of, names) = (workspace.map(|id| id.0), change.events.as_deref().map(names));
        let (describes, description) =
            (change.description.is_some(), change.description.as_ref().and_then(Option::as_deref));
        let off = format!("disabled by {actor}");
        let row = transaction
            .query_opt(
                sql!("webhook/change"),
                &[&id, &of, &change.url, &names, &describes, &description, &change.enabled, &off],
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

    /// Sets the next version of a webhook's secret; the previous one stays valid for `grace_period`. If another
    /// rotation was first, a `Conflict`.
    pub async fn rotate_webhook(
        &self,
        id: Uuid,
        sealed: &Sealed,
        grace_period: Duration,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let before = sealed.version - 1;
        let ended =
            transaction.execute(sql!("webhook_secret/end"), &[&id, &before, &grace_period.as_secs_f64()]).await?;
        if ended == 0 {
            return Err(rotation_conflict());
        }
        add_secret(&transaction, id, sealed).await?;
        let detail = json!({ "version": sealed.version, "gracePeriodSeconds": grace_period.as_secs() });
        audit(&transaction, Some(sealed.workspace), actor, "webhook.rotate", "webhook", id, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// The secrets that sign messages of these webhooks now, newest first.
    pub async fn webhook_secrets(&self, webhooks: &[Uuid]) -> Result<Vec<(Uuid, Sealed)>, Error> {
        let rows = self.query(sql!("webhook_secret/sealed"), &[&webhooks]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// Secrets of any webhook whose data key is encrypted with another outer key than this, after a position in a
    /// stable order.
    pub async fn webhook_secrets_to_reencrypt(
        &self,
        key_id: &str,
        after: (Uuid, i32),
        limit: i64,
    ) -> Result<Vec<(Uuid, Sealed)>, Error> {
        let rows = self.query(sql!("webhook_secret/under_other_keys"), &[&key_id, &after.0, &after.1, &limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// One webhook secret per outer key in use, for at most `limit` outer keys.
    pub async fn webhook_key_samples(&self, limit: i64) -> Result<Vec<Sealed>, Error> {
        let rows = self.query(sql!("webhook_secret/key_samples"), &[&limit]).await?;
        rows.iter().map(|row| sealed_of(row).map(|(_, sealed)| sealed)).collect()
    }

    /// Re-encrypts the data key of a webhook's secret. False if it has changed since `was` was read.
    pub async fn reencrypt_webhook_secret(
        &self,
        id: Uuid,
        was: &Sealed,
        key: &[u8],
        key_id: &str,
    ) -> Result<bool, Error> {
        let changed =
            self.execute(sql!("webhook_secret/reencrypt"), &[&id, &was.version, &was.key_id, &key, &key_id]).await?;
        Ok(changed == 1)
    }
}

async fn add_secret(transaction: &deadpool_postgres::Transaction<'_>, id: Uuid, sealed: &Sealed) -> Result<(), Error> {
    let Sealed { workspace, version, value, key, key_id, .. } = sealed;
    let added =
        transaction.execute(sql!("webhook_secret/add"), &[&id, version, &workspace.0, value, key, key_id]).await;
    added.map_err(Error::from).map_err(|error| conflict_on(error, "webhook_secret_pkey", rotation_message)).map(drop)
}

fn rotation_conflict() -> Error {
    Error::Conflict(rotation_message())
}

fn rotation_message() -> String {
    "another request is rotating the secret; try again".to_owned()
}

/// The host of a URL. Its path and query may contain secrets.
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
