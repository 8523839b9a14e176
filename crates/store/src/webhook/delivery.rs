//! Deliveries: one end of an execution, to be told to one webhook, from due to delivered or given up.
//!
//! Invariants
//! - A delivery is added by the transaction that ends its execution, once for each webhook that asked
//!   (`functions/webhook.sql`).
//! - Only the current claim settles a delivery; a claim whose time is up is somebody else's to take.
//! - A workspace has only so many being sent, however many wait.
//!
//! What happens if the process dies: before it sends, or between sending and settling, the delivery falls due when its
//! time is up and is sent again under the same id; after it is settled nothing is left to do.
//!
//! Not here: sending (`server::webhook`), what an answer means (`kernel::webhook`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::webhook::{Ended, MAX_PART_BYTES, Status, Verdict, gives_up};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::execution::list::Place;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id, parsed};

/// Who turns a webhook off that takes nothing.
const ACTOR: &str = "webhooks";
/// How much of what went wrong is kept.
const MAX_ERROR_CHARS: usize = 500;

/// How much may be claimed at once.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Being sent at once for one workspace, by all processes together.
    pub each: i32,
    pub limit: i32,
    /// Workspaces looked at.
    pub steps: i32,
    /// For how long nobody else takes them.
    pub lease: Duration,
}

/// Deliveries of one claim.
#[derive(Clone, Debug)]
pub struct Claim {
    pub deliveries: Vec<Claimed>,
    /// The workspace to go on behind; none at the end.
    pub next: Option<WorkspaceId>,
}

/// A delivery to be sent.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: Uuid,
    pub claim: Uuid,
    pub webhook: Uuid,
    pub workspace: WorkspaceId,
    /// From 1.
    pub attempt: u32,
    /// For how long it is tried.
    pub age: Duration,
    /// Where to; none if the webhook is gone or off.
    pub url: Option<String>,
    /// None if the execution is no longer kept.
    pub ended: Option<Ended>,
}

/// What an attempt came to, for people.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub status: Option<u16>,
    /// Without secrets; cut if it is long.
    pub error: Option<String>,
    /// Nothing was sent: the receiver is not to blame.
    pub unsent: bool,
}

/// A delivery as people read it.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: Uuid,
    pub webhook: Uuid,
    pub execution: ExecutionId,
    pub event: execution::Status,
    pub status: Status,
    pub attempts: i32,
    pub due_at: Option<Timestamp>,
    pub last_status: Option<i32>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

impl Store {
    /// Claims what is due, workspace by workspace behind one.
    pub async fn claim_deliveries(&self, after: Option<WorkspaceId>, room: Room) -> Result<Claim, Error> {
        let (claim, after) = (new_id(), after.map_or(Uuid::nil(), |id| id.0));
        let Room { each, limit, steps, lease } = room;
        let rows = self
            .query(sql!("webhook_delivery/claim"), &[&claim, &after, &each, &limit, &steps, &lease.as_secs_f64()])
            .await?;
        let (mut ids, mut next) = (Vec::new(), None);
        for row in &rows {
            match row.try_get::<_, Option<Uuid>>("delivery")? {
                Some(id) => ids.push(id),
                None => next = row.try_get::<_, Option<Uuid>>("place")?.map(WorkspaceId),
            }
        }
        if ids.is_empty() {
            return Ok(Claim { deliveries: Vec::new(), next });
        }
        let most = i32::try_from(MAX_PART_BYTES).unwrap_or(i32::MAX);
        let rows = self.query(sql!("webhook_delivery/claimed"), &[&ids, &claim, &most]).await?;
        let deliveries = rows.iter().map(|row| claimed_of(row, claim)).collect::<Result<_, _>>()?;
        Ok(Claim { deliveries, next })
    }

    /// Settles an attempt; false if the claim was lost. A webhook that takes nothing for too long, or is gone, is
    /// turned off.
    pub async fn settle_delivery(&self, of: &Claimed, verdict: Verdict, told: &Told) -> Result<bool, Error> {
        let (status, wait) = match verdict {
            Verdict::Delivered => (Status::Delivered, None),
            Verdict::Later(wait) => (Status::Pending, Some(wait.as_secs_f64())),
            Verdict::Failed | Verdict::Gone => (Status::Failed, None),
        };
        let error = told.error.as_ref().map(|text| text.chars().take(MAX_ERROR_CHARS).collect::<String>());
        let code = told.status.map(i32::from);
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let settled = transaction
            .execute(sql!("webhook_delivery/settle"), &[&of.id, &of.claim, &status.name(), &wait, &code, &error])
            .await?;
        if settled == 0 {
            return Ok(false);
        }
        if verdict == Verdict::Delivered {
            transaction.execute(sql!("webhook/taken"), &[&of.webhook]).await?;
        } else if !told.unsent
            && let Some(row) = transaction.query_opt(sql!("webhook/failing"), &[&of.webhook]).await?
        {
            let failing = Duration::try_from_secs_f64(row.try_get("failing_s")?).unwrap_or_default();
            let reason = match verdict {
                Verdict::Gone => Some("the receiver answered 410: it is gone".to_owned()),
                _ if gives_up(failing) => {
                    Some(format!("nothing was taken for {} days", failing.as_secs() / (24 * 60 * 60)))
                }
                _ => None,
            };
            if let Some(reason) = reason {
                turn_off(&transaction, of.webhook, &reason).await?;
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Deliveries of a webhook of a status (none: any), the newest first, before a place.
    pub async fn deliveries(
        &self,
        webhook: Uuid,
        status: Option<Status>,
        before: Option<Place<Uuid>>,
        limit: i64,
    ) -> Result<Vec<Delivery>, Error> {
        let (at, id) = before.map(|place| (place.at, place.id)).unzip();
        let status = status.map(Status::name);
        let one = None::<Uuid>;
        let rows = self.query(sql!("webhook_delivery/list"), &[&webhook, &status, &at, &id, &one, &limit]).await?;
        rows.iter().map(delivery_of).collect()
    }

    pub async fn delivery(&self, webhook: Uuid, id: Uuid) -> Result<Delivery, Error> {
        let (status, at, before) = (None::<&str>, None::<Timestamp>, None::<Uuid>);
        let row =
            self.one(sql!("webhook_delivery/list"), &[&webhook, &status, &at, &before, &Some(id), &1_i64]).await?;
        delivery_of(&row)
    }

    /// Has a delivery sent now, and tried for another day. One that is being sent is a conflict.
    pub async fn retry_delivery(
        &self,
        webhook: Uuid,
        workspace: WorkspaceId,
        id: Uuid,
        actor: &str,
    ) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if transaction.execute(sql!("webhook_delivery/retry"), &[&id, &webhook]).await? == 0 {
            drop(transaction);
            drop(client);
            self.delivery(webhook, id).await?;
            return Err(Error::Conflict("it is being sent right now".to_owned()));
        }
        let detail = json!({ "deliveryId": id });
        audit(&transaction, Some(workspace), actor, "webhook.retry", "webhook", webhook, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// For how long the oldest delivery that is due has been, in seconds.
    pub async fn oldest_delivery_s(&self) -> Result<f64, Error> {
        Ok(self.one(sql!("webhook_delivery/oldest"), &[]).await?.try_get(0)?)
    }
}

async fn turn_off(transaction: &deadpool_postgres::Transaction<'_>, webhook: Uuid, reason: &str) -> Result<(), Error> {
    let Some(row) = transaction.query_opt(sql!("webhook/turn_off"), &[&webhook, &reason]).await? else {
        return Ok(());
    };
    let owner = WorkspaceId(row.try_get(0)?);
    audit(transaction, Some(owner), ACTOR, "webhook.disable", "webhook", webhook, &json!({ "reason": reason })).await
}

fn claimed_of(row: &Row, claim: Uuid) -> Result<Claimed, Error> {
    let live: bool = row.try_get("live")?;
    let execution = ExecutionId(row.try_get("execution_id")?);
    let workspace = WorkspaceId(row.try_get("workspace_id")?);
    let ended = match row.try_get::<_, Option<Uuid>>("workflow_definition_id")? {
        None => None,
        Some(definition) => Some(Ended {
            execution,
            workspace,
            definition: DefinitionId(definition),
            workflow_name: row.try_get::<_, Option<String>>("workflow_name")?.unwrap_or_default(),
            status: parsed(row, "ended", execution::Status::parse)?,
            output: row.try_get("output")?,
            error: row.try_get("error")?,
            cut: row.try_get("cut")?,
            created_at: row.try_get("created_at")?,
            started_at: row.try_get("started_at")?,
            completed_at: row.try_get("completed_at")?,
            duration_ms: row.try_get("duration_ms")?,
        }),
    };
    Ok(Claimed {
        id: row.try_get("id")?,
        claim,
        webhook: row.try_get("webhook_id")?,
        workspace,
        attempt: u32::try_from(row.try_get::<_, i32>("attempts")?).unwrap_or(1),
        age: Duration::try_from_secs_f64(row.try_get("age_s")?).unwrap_or_default(),
        url: row.try_get::<_, Option<String>>("url")?.filter(|_| live),
        ended,
    })
}

fn delivery_of(row: &Row) -> Result<Delivery, Error> {
    Ok(Delivery {
        id: row.try_get("id")?,
        webhook: row.try_get("webhook_id")?,
        execution: ExecutionId(row.try_get("execution_id")?),
        event: parsed(row, "event", execution::Status::parse)?,
        status: parsed(row, "status", Status::parse)?,
        attempts: row.try_get("attempts")?,
        due_at: row.try_get("due_at")?,
        last_status: row.try_get("last_status")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        ended_at: row.try_get("ended_at")?,
    })
}
