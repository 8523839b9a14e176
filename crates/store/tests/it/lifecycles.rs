//! Tries every step in every status of every lifecycle, with the statements that ship. A legal step leads to the status
//! that the kernel defines, and an illegal step leaves the row unchanged.
//!
//! Not here: jobs, which other programs may change with plain SQL (`jobs`), and nodes, which settle once (`record`).

use std::time::Duration;

use kernel::ids::{ClaimId, DefinitionId, ExecutionId, ProcessId, WorkspaceId};
use kernel::webhook::DeliveryDecision;
use kernel::{execution, queue, webhook};
use store::access::secret::Sealed;
use store::queue::enqueue::Start;
use store::retention::Section;
use store::run::Ending;
use store::webhook::delivery::{AttemptResult, ClaimLimits, ClaimedDelivery};
use store::webhook::{NewWebhook, secret_name};
use store::{Error, new_id};
use uuid::{NoContext, Timestamp, Uuid};

use crate::support::{ENGINE, STALE_AFTER, STEADY, World, end, start};

const DAY: u64 = 24 * 60 * 60;

/// The row with an id, as the database has it.
async fn row(world: &World, table: &str, id: Uuid) -> Option<String> {
    let sql = format!("SELECT max(to_jsonb(stored)::text) FROM {table} stored WHERE stored.id = $1");
    world.get(&sql, &[&id]).await
}

async fn status(world: &World, table: &str, id: Uuid) -> String {
    let sql = format!("SELECT coalesce((SELECT stored.status FROM {table} stored WHERE stored.id = $1), 'GONE')");
    world.get(&sql, &[&id]).await
}

/// Compares the effect of a step with the kernel's rule.
async fn judge(world: &World, table: &str, id: Uuid, before: Option<String>, legal: Option<&str>, pair: &str) {
    let after = row(world, table, id).await;
    match legal {
        Some(to) => {
            assert_eq!(status(world, table, id).await, to, "{table}: {pair}");
            assert_ne!(after, before, "{table}: {pair} changes the row");
        }
        None => assert_eq!(after, before, "{table}: {pair} changes nothing"),
    }
}

/// A step was done, or its statement found no row: the schema had nothing to refuse.
fn decided<T>(done: Result<T, Error>) {
    if let Err(error) = done {
        assert!(matches!(error, Error::Conflict(_) | Error::NotFound), "{error:?}");
    }
}

/// One execution alone in its workspace, started long ago, and its last claimer.
struct Item {
    workspace: WorkspaceId,
    execution: ExecutionId,
    claimer: ProcessId,
    claim: ClaimId,
}

impl Item {
    async fn accepted(world: &World) -> Item {
        let (workspace, definition) = world.tenant("FREE").await;
        let then = jiff::Timestamp::now().as_second().unsigned_abs() - 40 * DAY;
        let id = Uuid::new_v7(Timestamp::from_unix(NoContext, then, 0));
        let execution = world.accept(&[Start { execution: ExecutionId(id), ..start(workspace, definition) }]).await[0];
        Item { workspace, execution, claimer: world.process().await, claim: ClaimId(new_id()) }
    }

    async fn claimed(self, world: &World) -> Item {
        let (_, claim) = world.claim_one(self.claimer, self.workspace).await;
        Item { claim, ..self }
    }

    async fn running(self, world: &World) -> Item {
        world.claim_as(self.claimer, self.claim, Some(ENGINE), self.workspace, 1).await;
        self
    }

    async fn ended(self, world: &World, outcome: execution::Status) -> Item {
        let item = self.running(world).await;
        world.finish(item.execution, outcome).await;
        item
    }

    async fn of_queue(world: &World, status: queue::Status) -> Item {
        let item = Item::accepted(world).await;
        match status {
            queue::Status::Pending => item,
            queue::Status::Claimed => item.claimed(world).await,
            queue::Status::Dispatched => item.running(world).await,
            queue::Status::Failed => item.ended(world, execution::Status::Failed).await,
            queue::Status::Gone => item.ended(world, execution::Status::Completed).await,
        }
    }

    async fn of_execution(world: &World, status: execution::Status) -> Item {
        let item = Item::accepted(world).await;
        match status {
            execution::Status::Pending => item.claimed(world).await,
            execution::Status::Running => item.running(world).await,
            outcome => item.ended(world, outcome).await,
        }
    }
}

/// Does a step of a queue item, or tries to.
async fn step_item(world: &World, of: &Item, step: queue::Step) {
    let (item, store) = (of.execution.queue_item(), &world.store);
    match step {
        queue::Step::Claim => drop(world.claim(of.workspace, 1).await),
        queue::Step::Takeover => {
            store.end_process(of.claimer).await.expect("it ends");
            let (shards, claim) = ([of.workspace.shard()], ClaimId(new_id()));
            store.take_over_items(&shards, STEADY, STALE_AFTER, claim, world.me).await.expect("an answer");
        }
        queue::Step::Dispatch => drop(store.mark_dispatched(&[item], of.claim).await.expect("an answer")),
        queue::Step::Requeue => decided(store.requeue_refused(item, of.claim, "refused", Duration::ZERO).await),
        queue::Step::Complete => drop(world.finish(of.execution, execution::Status::Completed).await),
        queue::Step::Cancel => drop(world.finish(of.execution, execution::Status::Canceled).await),
        queue::Step::Fail => drop(world.finish(of.execution, execution::Status::Failed).await),
        queue::Step::Dismiss => decided(store.dismiss(item, of.workspace, "test").await),
        queue::Step::Retire => {
            let sql = "UPDATE workflow_execution
                       SET completed_at = CASE WHEN completed_at IS NOT NULL THEN now() - interval '35 days' END
                       WHERE id = $1";
            world.run_sql(sql, &[&of.execution.0]).await;
            let age = Duration::from_secs(30 * DAY);
            store.retire(Section::Executions, age, None, 1_000).await.expect("an answer");
        }
    }
}

#[tokio::test]
async fn a_queue_item_moves_exactly_as_the_kernel_says() {
    let world = World::new().await;
    for from in queue::Status::ALL {
        for step in queue::Step::ALL {
            let of = Item::of_queue(&world, from).await;
            let (id, pair) = (of.execution.0, format!("{from:?}, {step:?}"));
            assert_eq!(status(&world, "execution_queue", id).await, from.name(), "before {pair}");
            let before = row(&world, "execution_queue", id).await;
            step_item(&world, &of, step).await;
            let legal = from.after(step).map(queue::Status::name);
            judge(&world, "execution_queue", id, before, legal, &pair).await;
        }
    }
}

/// Does a step of an execution. Only running ones complete, as with every engine.
async fn step_execution(world: &World, of: &Item, step: execution::Step) {
    match step {
        execution::Step::Begin => {
            world.store.begin(&[of.execution], ENGINE, of.claimer).await.expect("an answer");
        }
        execution::Step::Complete => {
            let ending = Ending { execution: of.execution, claim: None, end: end(execution::Status::Completed) };
            let running = Some(execution::Status::Running);
            world.store.complete(&[ending], running, "test").await.expect("an answer");
        }
        execution::Step::Fail => drop(world.finish(of.execution, execution::Status::Failed).await),
        execution::Step::Cancel => drop(world.finish(of.execution, execution::Status::Canceled).await),
        execution::Step::TimeOut => drop(world.finish(of.execution, execution::Status::TimedOut).await),
    }
}

#[tokio::test]
async fn an_execution_moves_exactly_as_the_kernel_says() {
    let world = World::new().await;
    for from in execution::Status::ALL {
        for step in execution::Step::ALL {
            let of = Item::of_execution(&world, from).await;
            let (id, pair) = (of.execution.0, format!("{from:?}, {step:?}"));
            assert_eq!(status(&world, "workflow_execution", id).await, from.name(), "before {pair}");
            let before = row(&world, "workflow_execution", id).await;
            step_execution(&world, &of, step).await;
            let legal = from.after(step).map(execution::Status::name);
            judge(&world, "workflow_execution", id, before, legal, &pair).await;
        }
    }
}

const ROOM: ClaimLimits = ClaimLimits { each: 8, limit: 32, steps: 100, lease: Duration::from_secs(60) };

async fn claim_due(world: &World) -> Vec<ClaimedDelivery> {
    let due = "UPDATE webhook_delivery SET due_at = now() - interval '1 s' WHERE due_at IS NOT NULL";
    world.run_sql(due, &[]).await;
    world.store.claim_deliveries(None, ROOM).await.expect("a claim").deliveries
}

async fn settle(world: &World, of: &ClaimedDelivery, verdict: DeliveryDecision) {
    let result = AttemptResult { status: Some(500), error: None, unsent: false };
    world.store.settle_delivery(of, verdict, &result).await.expect("an answer");
}

/// A delivery with this status and its last claim, and its webhook.
async fn delivery(world: &World, status: webhook::Status) -> (Uuid, ClaimedDelivery) {
    let (workspace, definition): (WorkspaceId, DefinitionId) = world.tenant("FREE").await;
    let (id, url) = (new_id(), "https://x.example/".to_owned());
    let events = vec![execution::Status::Completed];
    let new = NewWebhook { id, workspace, url, events, definition: None, description: None };
    let (value, key, key_id) = (b"value".to_vec(), b"key".to_vec(), "old".to_owned());
    let sealed = Sealed { workspace, name: secret_name(id), version: 1, value, key, key_id, hosts: None };
    world.store.create_webhook(&new, &sealed, "ann").await.expect("a webhook");
    let execution = world.accept_many(workspace, definition, 1).await[0];
    world.run(workspace, 1).await;
    world.finish(execution, execution::Status::Completed).await;
    let claimed =
        claim_due(world).await.into_iter().find(|claimed| claimed.workspace == workspace).expect("a delivery");
    match status {
        webhook::Status::Sending => {}
        webhook::Status::Pending => settle(world, &claimed, DeliveryDecision::RetryAfter(Duration::ZERO)).await,
        webhook::Status::Delivered => settle(world, &claimed, DeliveryDecision::Delivered).await,
        webhook::Status::Failed => settle(world, &claimed, DeliveryDecision::Failed).await,
    }
    (id, claimed)
}

#[tokio::test]
async fn a_delivery_moves_exactly_as_the_kernel_says() {
    let world = World::new().await;
    for from in webhook::Status::ALL {
        for step in webhook::Step::ALL {
            let (hook, of) = delivery(&world, from).await;
            let (id, pair) = (of.id, format!("{from:?}, {step:?}"));
            assert_eq!(status(&world, "webhook_delivery", id).await, from.name(), "before {pair}");
            let before = row(&world, "webhook_delivery", id).await;
            match step {
                webhook::Step::Claim => drop(claim_due(&world).await),
                webhook::Step::Deliver => settle(&world, &of, DeliveryDecision::Delivered).await,
                webhook::Step::Requeue => settle(&world, &of, DeliveryDecision::RetryAfter(Duration::ZERO)).await,
                webhook::Step::Fail => settle(&world, &of, DeliveryDecision::Failed).await,
                webhook::Step::Retry => decided(world.store.retry_delivery(hook, of.workspace, id, "ann").await),
            }
            let legal = from.after(step).map(webhook::Status::name);
            judge(&world, "webhook_delivery", id, before, legal, &pair).await;
        }
    }
}
