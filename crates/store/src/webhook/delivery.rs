//! Deliveries: messages about the end of one execution to one webhook, until they are delivered or given up.
//!
//! Invariants
//! - The transaction that ends an execution adds its deliveries, one for each webhook that subscribes to that terminal
//!   status (`functions/webhook.sql`).
//! - Only the current claim settles a delivery. If a claim has expired, another process may claim the delivery.
//! - The number of deliveries in flight per workspace is bounded, however many are due.
//!
//! If the process dies before it settles a delivery, the claim expires and the delivery is sent again under the same
//! id. After it is settled, nothing is left to do.
//!
//! Not here: sending (`server::webhook`), what a response means (`kernel::webhook`).

use std::time::Duration;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::webhook::{DeliveryDecision, EndedExecution, MAX_PART_BYTES, Status, must_disable};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::execution::list::TimeCursor;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id, parsed};

/// The actor in the audit log when a failing webhook is disabled.
const ACTOR: &str = "webhooks";
/// How much of an error message is kept.
const MAX_ERROR_CHARS: usize = 500;

/// How many deliveries a claim may take.
#[derive(Clone, Copy, Debug)]
pub struct ClaimLimits {
    /// The maximum number in flight for one workspace, by all processes together.
    pub each: i32,
    pub limit: i32,
    /// The maximum number of workspaces read.
    pub steps: i32,
    /// How long the claim is valid; then another process may claim the delivery.
    pub lease: Duration,
}

/// The deliveries that one claim took.
#[derive(Clone, Debug)]
pub struct ClaimedDeliveries {
    pub deliveries: Vec<ClaimedDelivery>,
    /// The workspace to continue after; None: there are no more.
    pub next: Option<WorkspaceId>,
}

/// A delivery to send.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    pub id: Uuid,
    pub claim: Uuid,
    pub webhook: Uuid,
    pub workspace: WorkspaceId,
    /// Starts at 1.
    pub attempt: u32,
    /// How long ago the delivery was added, or last retried on request.
    pub age: Duration,
    /// The receiver's URL; None if the webhook was deleted or disabled.
    pub url: Option<String>,
    /// None if the execution was deleted.
    pub ended: Option<EndedExecution>,
}

/// The result of an attempt, for display.
#[derive(Clone, Debug, Default)]
pub struct AttemptResult {
    pub status: Option<u16>,
    /// Without secrets; truncated if it is long.
    pub error: Option<String>,
    /// Nothing was sent, so the failure is not the receiver's fault.
    pub unsent: bool,
}

/// A delivery for display.
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
    /// Claims due deliveries, workspace by workspace after `after`.
    pub async fn claim_deliveries(
        &self,
        after: Option<WorkspaceId>,
        limits: ClaimLimits,
    ) -> Result<ClaimedDeliveries, Error> {
        let (claim, after) = (new_id(), after.map_or(Uuid::nil(), |id| id.0));
        let ClaimLimits { each, limit, steps, lease } = limits;
        let rows = self
            .query(sql!("webhook_delivery/claim"), &[&claim, &after, &each, &limit, &steps, &lease.as_secs_f64()])
            .await?;
        let (mut ids, mut next) = (Vec::new(), None);
        for row in &rows {
            match row.try_get::<_, Option<Uuid>>("delivery")? {
                Some(id) => ids.push(id),
                None => next = row.try_get::<_, Option<Uuid>>("last_workspace")?.map(WorkspaceId),
            }
        }
        if ids.is_empty() {
            return Ok(ClaimedDeliveries { deliveries: Vec::new(), next });
        }
        let most = i32::try_from(MAX_PART_BYTES).unwrap_or(i32::MAX);
        let rows = self.query(sql!("webhook_delivery/claimed"), &[&ids, &claim, &most]).await?;
        let deliveries = rows.iter().map(|row| claimed_of(row, claim)).collect::<Result<_, _>>()?;
        Ok(ClaimedDeliveries { deliveries, next })
    }

    /// Stores the result of an attempt; false if the claim was lost. Disables a webhook whose deliveries have failed
    /// for too long, or that answered 410.
    pub async fn settle_delivery(
        &self,
        of: &ClaimedDelivery,
        verdict: DeliveryDecision,
        result: &AttemptResult,
    ) -> Result<bool, Error> {
        let (status, wait) = match verdict {
            DeliveryDecision::Delivered => (Status::Delivered, None),
            DeliveryDecision::RetryAfter(wait) => (Status::Pending, Some(wait.as_secs_f64())),
            DeliveryDecision::Failed | DeliveryDecision::ReceiverGone => (Status::Failed, None),
        };
        let error = result.error.as_ref().map(|text| text.chars().take(MAX_ERROR_CHARS).collect::<String>());
        let code = result.status.map(i32::from);
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let settled = transaction
            .execute(sql!("webhook_delivery/settle"), &[&of.id, &of.claim, &status.name(), &wait, &code, &error])
            .await?;
        if settled == 0 {
            return Ok(false);
        }
        if verdict == DeliveryDecision::Delivered {
            transaction.execute(sql!("webhook/succeeded"), &[&of.webhook]).await?;
        } else if !result.unsent
            && let Some(row) = transaction.query_opt(sql!("webhook/failed"), &[&of.webhook]).await?
        {
            let failing = Duration::try_from_secs_f64(row.try_get("failing_s")?).unwrap_or_default();
            let reason = match verdict {
                DeliveryDecision::ReceiverGone => Some("the receiver answered 410 Gone".to_owned()),
                _ if must_disable(failing) => {
                    Some(format!("every delivery failed for {} days", failing.as_secs() / (24 * 60 * 60)))
                }
                _ => None,
            };
            if let Some(reason) = reason {
                disable(&transaction, of.webhook, &reason).await?;
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Deliveries of a webhook with a status (None: any), newest first, before a position.
    pub async fn deliveries(
        &self,
        webhook: Uuid,
        status: Option<Status>,
        before: Option<TimeCursor<Uuid>>,
        limit: i64,
    ) -> Result<Vec<Delivery>, Error> {
        let (at, id) = before.map(|cursor| (cursor.at, cursor.id)).unzip();
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

    /// Makes a delivery due now, and retries it for another day. If it is being sent right now, the result is a
    /// `Conflict`.
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
            return Err(Error::Conflict("the delivery is being sent right now; try again later".to_owned()));
        }
        let detail = json!({ "deliveryId": id });
        audit(&transaction, Some(workspace), actor, "webhook.retry", "webhook", webhook, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// How long the oldest due delivery has been due, in seconds.
    pub async fn oldest_delivery_s(&self) -> Result<f64, Error> {
        Ok(self.one(sql!("webhook_delivery/oldest"), &[]).await?.try_get(0)?)
    }
}

async fn disable(transaction: &deadpool_postgres::Transaction<'_>, webhook: Uuid, reason: &str) -> Result<(), Error> {
    let Some(row) = transaction.query_opt(sql!("webhook/disable"), &[&webhook, &reason]).await? else {
        return Ok(());
    };
    let owner = WorkspaceId(row.try_get(0)?);
    audit(transaction, Some(owner), ACTOR, "webhook.disable", "webhook", webhook, &json!({ "reason": reason })).await
}

fn claimed_of(row: &Row, claim: Uuid) -> Result<ClaimedDelivery, Error> {
    let live: bool = row.try_get("live")?;
    let execution = ExecutionId(row.try_get("execution_id")?);
    let workspace = WorkspaceId(row.try_get("workspace_id")?);
    let ended = match row.try_get::<_, Option<Uuid>>("workflow_definition_id")? {
        None => None,
        Some(definition) => Some(EndedExecution {
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
    Ok(ClaimedDelivery {
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
