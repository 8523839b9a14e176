//! A node that may be performed at most once: after a crash its outcome is unknown, and a person decides what follows.

use serde_json::{Value, json};

use crate::support::World;
use crate::support::cli::Cli;
use crate::support::server::MORTAL;
use crate::support::tenant::{Tenant, text};

async fn rerun(tenant: &Tenant, of: &str, body: Value) -> String {
    text(&tenant.api.post(&format!("workflow/executions/{of}/rerun"), body).await.expect(202)["executionId"])
}

#[tokio::test]
async fn what_a_crash_interrupts_is_never_called_again_until_somebody_says_so() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let mut charge = world.receiver.after("a", "/hold/charge");
    charge["delivery"] = json!("at_most_once");
    let after = json!({ "kind": "LOG", "needs": "charge", "with": { "message": "${{ nodes.charge.status }}" } });
    let nodes = json!({ "a": world.receiver.node("/count/a"), "charge": charge, "after": after });
    let definition = tenant.apply("charge", nodes).await;
    let id = tenant.start(&definition).await;
    world.receiver.until_called("/hold/charge", 1).await;
    world.server.process.sigkill();
    let next = world.another(&MORTAL).await;
    let tenant = tenant.at(&next.base);
    let ended = tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("RESULT_UNKNOWN")), "{ended}");
    assert_eq!(tenant.nodes(&id).await, json!({ "a": "COMPLETED", "charge": "UNKNOWN", "after": "SKIPPED" }));
    assert_eq!(world.receiver.calls("/hold/charge").len(), 1, "it is not called again");
    assert_eq!(tenant.running().await, 0, "the slot is free");

    // Whatever is rerun, it must be said what became of it.
    for from in ["start", "failed"] {
        let path = format!("workflow/executions/{id}/rerun");
        let refused = tenant.api.post(&path, json!({ "from": from })).await;
        assert_eq!(refused.status, 422);
        assert!(refused.text.contains("resolve: it is not known whether charge took effect"), "{}", refused.text);
    }
    let path = format!("workflow/executions/{id}/rerun");
    tenant.api.post(&path, json!({ "from": "failed", "resolve": { "a": "done" } })).await.problem(422);
    tenant.api.post(&path, json!({ "from": "failed", "resolve": { "charge": "maybe" } })).await.problem(422);

    // It took effect: it counts as done, and is not called.
    let done = rerun(&tenant, &id, json!({ "from": "failed", "resolve": { "charge": "done" } })).await;
    tenant.completed(&done).await;
    assert_eq!(tenant.nodes(&done).await, json!({ "a": "COMPLETED", "charge": "COMPLETED", "after": "COMPLETED" }));
    assert_eq!(world.receiver.calls("/hold/charge").len(), 1);

    // It did not: it is called once more.
    world.receiver.open();
    let cli = Cli::of(&next.base, tenant.api.key.as_deref().expect("a key"));
    cli.ok(&["rerun", &id, "--from", "failed", "--resolve", "charge=repeat", "--watch"]).await;
    assert_eq!(world.receiver.calls("/hold/charge").len(), 2);
    assert_eq!(world.receiver.calls("/count/a").len(), 1, "what completed is kept");
}
