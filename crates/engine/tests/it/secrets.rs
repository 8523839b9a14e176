//! Calls that use secrets: which permits they hold, and which outbound rules they follow, while they are prepared.

use std::sync::Arc;
use std::time::Duration;

use engine::compute::{self, ComputePermit};
use engine::liveness::Liveness;
use engine::nodes::call::{Call, CallResources, Caller};
use engine::nodes::{self, Work};
use engine::vault::{OuterKeys, Vault};
use kernel::definition::parse;
use kernel::expression::Scope;
use kernel::ids::{DefinitionId, ExecutionId, VersionId};
use kernel::signals::trace::TraceParent;
use serde_json::json;
use store::new_id;
use store::queue::claim::Begun;

use crate::world::{World, until};

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A world whose workspace has a secret, and the vault that opens it.
async fn with_secret() -> (World, Vault) {
    let world = World::new().await;
    let keys = OuterKeys::parse("test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    let vault = Vault::new(world.database.store.clone(), keys);
    vault.set(world.workspace, "API_KEY", "hunter2", None, "test").await.expect("a secret");
    (world, vault)
}

/// A call that sends the secret, and whose configuration takes long to compute.
fn call(world: &World) -> Box<dyn Call> {
    let with = json!({ "url": format!("http://{}/ok", world.address), "headers": { "X-Key": "${{ secrets.API_KEY }}" },
        "body": "${{ [1].map(n, n + 1) }}", "method": "POST" });
    let document = json!({ "nodes": { "send": { "kind": "HTTP_REQUEST", "with": with } } });
    let (definition, _) = parse::check(&document).unwrap_or_else(|problems| panic!("{problems:?}"));
    let (spec, scope) = (&definition.nodes[0], Scope::default());
    let Ok((_, Work::Call(make))) = nodes::prepare(spec, &scope) else { panic!("the node makes a call") };
    let trace = TraceParent { trace_id: 1, span_id: 1, sampled: false };
    let begun = Begun {
        execution: ExecutionId(new_id()),
        workspace: world.workspace,
        definition: DefinitionId(new_id()),
        version: VersionId(new_id()),
        epoch: 1,
        input: json!({}),
        trigger: json!({}),
        created_at: jiff::Timestamp::now(),
        deadline_in: Duration::from_secs(60),
        trace,
    };
    make.call(&Caller { spec, scope: &scope, begun: &begun, iteration: 0, trace })
}

/// Every computing permit that the workspace may have.
async fn all_turns(world: &World) -> Vec<ComputePermit> {
    let mut turns = vec![compute::acquire(world.workspace).await];
    while let Ok(turn) = tokio::time::timeout(Duration::from_millis(100), compute::acquire(world.workspace)).await {
        turns.push(turn);
    }
    turns
}

async fn ruled(world: &World, vault: Vault) -> CallResources {
    let store = world.database.store.clone();
    let outbound = world.register().await.1.ruled_by(store.clone());
    CallResources { store, outbound, vault, liveness: Arc::new(Liveness::new(PATIENCE)) }
}

#[tokio::test]
async fn a_call_that_waits_to_compute_follows_the_rules_in_force_when_it_is_sent() {
    let (world, vault) = with_secret().await;
    let (resources, turns) = (ruled(&world, vault).await, all_turns(&world).await);
    let preparing = {
        let (call, resources) = (call(&world), resources.clone());
        tokio::spawn(async move { call.prepare(&resources).await })
    };
    // Rules that were read before the permit is available would already be cached.
    for _ in 0..30 {
        if resources.outbound.cached_policy(world.workspace).is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let deny = store::access::outbound::Outbound { deny: vec!["127.0.0.1".to_owned()], ..Default::default() };
    world.database.store.set_workspace_outbound(world.workspace, &deny, "test").await.expect("rules");
    drop(turns);
    let prepared = preparing.await.expect("no panic").expect("prepared");
    let refused = prepared.send().await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(world.receiver.calls("/ok"), 0);
}

#[tokio::test]
async fn no_compute_permit_is_held_while_secrets_are_read() {
    let (world, vault) = with_secret().await;
    let resources = ruled(&world, vault).await;
    let mut other = world.database.client().await;
    let lock = other.transaction().await.expect("a transaction");
    lock.batch_execute("LOCK TABLE secret").await.expect("a lock");
    // More than may compute at the same time on any machine.
    let preparing: Vec<_> = (0..64)
        .map(|_| {
            let (call, resources) = (call(&world), resources.clone());
            tokio::spawn(async move { drop(call.prepare(&resources).await) })
        })
        .collect();
    let asks = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'secret'::regclass";
    let client = world.database.client().await;
    let count = async || client.query_one(asks, &[]).await.expect("a count").get::<_, i64>(0);
    until("one of them queries the secrets", async || count().await > 0).await;
    let turn = tokio::time::timeout(Duration::from_secs(2), compute::acquire(world.workspace)).await;
    assert!(turn.is_ok(), "others may compute in the meantime");
    drop(turn);
    lock.rollback().await.expect("unlocked");
    for prepared in preparing {
        prepared.await.expect("no panic");
    }
}
