//! Tests the outbound rules of a workspace, which apply in addition to the rules of the service.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::http::{Reply, send};
use crate::support::receiver::Receiver;
use crate::support::{Server, Tenant, World, until};

async fn set(world: &World, tenant: &Tenant, rules: Value) -> Reply {
    let path = format!("workspaces/{}/outbound", tenant.id);
    send(world.server.api().request(Method::PUT, &path).json(&rules)).await
}

/// The end of an execution that calls the receiver.
async fn called(tenant: &Tenant, receiver: &Receiver) -> Value {
    let definition = tenant.apply("call", json!({ "call": receiver.node("/count/a") })).await;
    tenant.ended(&tenant.start(&definition).await).await
}

/// Calls again until it ends so.
async fn ends(tenant: &Tenant, receiver: &Receiver, status: &str) -> Value {
    until(&format!("calls end {status}"), async || {
        let ended = called(tenant, receiver).await;
        (ended["status"] == status).then_some(ended)
    })
    .await
}

#[tokio::test]
async fn a_workspace_is_opened_to_hosts_and_kept_from_others_by_rules_of_its_own() {
    let database = store::testing::Database::new().await;
    let receiver = Receiver::start().await;
    let server = Server::start(&database.url, &[]).await;
    let world = World { database, receiver, server };
    let (tenant, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let address = world.receiver.url("").trim_start_matches("http://").to_owned();
    let refused = called(&tenant, &world.receiver).await;
    assert_eq!(refused["error"]["type"], "SECURITY_ERROR", "{refused}");
    assert_eq!(set(&world, &tenant, json!({ "allow": [address] })).await.expect(200)["allow"], json!([address]));
    ends(&tenant, &world.receiver, "COMPLETED").await;
    assert_eq!(called(&other, &world.receiver).await["error"]["type"], "SECURITY_ERROR", "nobody else is opened to it");
    set(&world, &tenant, json!({ "allow": [address], "deny": ["127.0.0.0/8"] })).await.expect(200);
    let closed = ends(&tenant, &world.receiver, "FAILED").await;
    assert!(closed["error"]["message"].as_str().is_some_and(|text| text.contains("outbound.deny")), "{closed}");
    let hook = json!({ "url": world.receiver.url("/count/hook") });
    assert_eq!(tenant.api.post("webhooks", hook).await.status, 422, "webhooks go by the same rules");
    for bad in [json!({ "allow": ["*.x"] }), json!({ "deny": ["http://x"] }), json!({ "deny": vec!["a.example"; 101] })]
    {
        assert_eq!(set(&world, &tenant, bad.clone()).await.problem(422), "validation_failed", "{bad}");
    }
    let path = format!("workspaces/{}/outbound", tenant.id);
    let own = send(tenant.api.request(Method::PUT, &path).json(&json!({ "allow": ["10.0.0.1"] }))).await;
    assert_eq!(own.problem(403), "forbidden", "a workspace does not open hosts to itself");
    let cli = Cli::of(&world.server.base, world.server.root_key().expose());
    assert!(cli.ok(&["workspace", "outbound", &tenant.name]).await.contains("127.0.0.0/8"));
    assert_eq!(cli.ok(&["workspace", "outbound", &tenant.name, "--clear"]).await, "the workspace has no rules\n");
}

#[tokio::test]
async fn what_the_service_denies_no_workspace_is_opened_to() {
    let database = store::testing::Database::new().await;
    let receiver = Receiver::start().await;
    let settings = receiver.allowed(&["outbound.deny=127.0.0.1"]);
    let server = Server::start(&database.url, &settings).await;
    let world = World { database, receiver, server };
    let tenant = world.tenant("PRO").await;
    let address = world.receiver.url("").trim_start_matches("http://").to_owned();
    set(&world, &tenant, json!({ "allow": [address] })).await.expect(200);
    let closed = called(&tenant, &world.receiver).await;
    assert_eq!(closed["error"]["type"], "SECURITY_ERROR", "{closed}");
    assert!(closed["error"]["message"].as_str().is_some_and(|text| text.contains("outbound.deny")), "{closed}");
    assert!(world.receiver.calls("/count/a").is_empty(), "nothing was sent");
}
