//! Tests the promises P1 to P3 and P5 with real processes that are killed, stopped, or cut off from the database.

use nix::sys::signal::Signal;
use serde_json::json;
use store::testing::Database;

use crate::support::proxy::Proxy;
use crate::support::server::MORTAL;
use crate::support::{Receiver, Server, Tenant, World, until};

/// An execution in the middle of its graph: `a` is done, `b` is held, `c` is to come.
async fn in_the_middle(tenant: &Tenant, receiver: &Receiver) -> String {
    let nodes = json!({
        "a": receiver.node("/count/a"),
        "b": receiver.after("a", "/hold/b"),
        "c": receiver.after("b", "/count/c"),
    });
    let definition = tenant.apply("middle", nodes).await;
    let id = tenant.start(&definition).await;
    receiver.until_called("/hold/b", 1).await;
    id
}

/// It was finished by another: nothing that was done is done again, and nothing is left.
async fn finished(tenant: &Tenant, receiver: &Receiver, id: &str) {
    tenant.completed(id).await;
    assert_eq!(tenant.nodes(id).await, json!({ "a": "COMPLETED", "b": "COMPLETED", "c": "COMPLETED" }));
    assert_eq!(receiver.calls("/count/a").len(), 1, "a completed node never runs again");
    assert_eq!(receiver.calls("/count/c").len(), 1);
    let tokens = receiver.calls("/hold/b");
    assert!(tokens.len() >= 2, "the interrupted one runs again");
    let same = |token: &String| !token.is_empty() && *token == tokens[0];
    assert!(tokens.iter().all(same), "with the same token: {tokens:?}");
    assert_eq!(tenant.running().await, 0, "the slot is free");
}

#[tokio::test]
async fn the_only_server_is_killed_and_the_next_one_goes_on_where_it_was() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let id = in_the_middle(&tenant, &world.receiver).await;
    let waiting = tenant.start(&tenant.light().await).await;
    world.server.process.sigkill();
    let next = world.another(&MORTAL).await;
    let tenant = tenant.at(&next.base);
    assert_eq!(tenant.status(&id).await, "RUNNING", "a crash is no end");
    world.receiver.until_called("/hold/b", 2).await;
    world.receiver.open();
    // It gets the slot the moment the other ends.
    tenant.completed(&waiting).await;
    finished(&tenant, &world.receiver, &id).await;
    assert_eq!(tenant.queue(&id).await["attempts"], 0, "a crash is no attempt");
}

#[tokio::test]
async fn of_two_servers_one_is_killed_and_the_other_resumes_its_runs() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let id = in_the_middle(&tenant, &world.receiver).await;
    let other = world.another(&MORTAL).await;
    world.server.process.sigkill();
    world.receiver.until_called("/hold/b", 2).await;
    world.receiver.open();
    finished(&tenant.at(&other.base), &world.receiver, &id).await;
}

#[tokio::test]
async fn a_server_that_shuts_down_hands_its_runs_over_without_waiting_for_a_lease() {
    // Longer than this test waits for anything.
    let lease = ["process.claim_lease_ms=400000", "process.run_lease_ms=500000"];
    let mut world = World::with(&lease).await;
    let tenant = world.tenant("FREE").await;
    let id = in_the_middle(&tenant, &world.receiver).await;
    let other = world.another(&lease).await;
    world.server.process.signal(Signal::SIGTERM);
    assert!(world.server.process.ended().await.success());
    world.receiver.until_called("/hold/b", 2).await;
    world.receiver.open();
    finished(&tenant.at(&other.base), &world.receiver, &id).await;
}

#[tokio::test]
async fn a_server_that_was_stopped_past_its_lease_stores_nothing_and_works_again_under_a_new_id() {
    let world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let id = in_the_middle(&tenant, &world.receiver).await;
    let mut other = world.another(&MORTAL).await;
    world.server.process.signal(Signal::SIGSTOP);
    world.receiver.until_called("/hold/b", 2).await;
    // The stopped one finds the answer to its own request when it wakes.
    world.receiver.open();
    finished(&tenant.at(&other.base), &world.receiver, &id).await;
    let stored = stored(&world).await;
    world.server.process.signal(Signal::SIGCONT);
    let logs = &world.server.process.stderr;
    until("it notices", async || logs.contain("Process lease expired; runs dropped").then_some(())).await;
    let registered = || logs.all().iter().filter(|line| line.contains("Process registered")).count();
    until("it comes back", async || (registered() == 2).then_some(())).await;
    assert_eq!(self::stored(&world).await, stored, "the zombie stored nothing");
    finished(&tenant, &world.receiver, &id).await;
    other.process.sigkill();
    let again = tenant.start(&tenant.light().await).await;
    tenant.completed(&again).await;
}

/// All that is stored of executions and their nodes.
async fn stored(world: &World) -> Vec<String> {
    let sql = "SELECT to_jsonb(e)::text FROM workflow_execution e
               UNION ALL SELECT to_jsonb(n)::text FROM workflow_execution_node n ORDER BY 1";
    let rows = world.database.client().await.query(sql, &[]).await.expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn with_the_database_away_the_api_says_so_and_nothing_is_lost() {
    let database = Database::new().await;
    let receiver = Receiver::start().await;
    let proxy = Proxy::to(&database.url).await;
    let server = Server::start(&proxy.url(&database.url), &receiver.allowed(&MORTAL)).await;
    let tenant = Tenant::new(server.api(), "FREE").await;
    let id = in_the_middle(&tenant, &receiver).await;
    let light = tenant.light().await;
    let waiting = tenant.start(&light).await;

    proxy.cut();
    let start = tenant.try_start(&light).await;
    assert_eq!(start.problem(503), "unavailable");
    assert!(start.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{:?}", start.headers);
    let path = format!("workflow/executions/{id}");
    assert_eq!(tenant.api.get(&path).await.problem(503), "unavailable");
    let key = server.api().post("keys", json!({ "name": "k", "workspaceId": tenant.id })).await;
    assert_eq!(key.problem(503), "unavailable", "a workspace that cannot be looked for is not missing");
    let ready = server.anonymous().get("/readyz").await;
    assert_eq!((ready.status, &ready.body["ready"]), (503, &json!(false)), "{}", ready.text);
    assert_eq!(ready.body["checks"]["database"], "not reachable");
    assert_eq!(server.anonymous().get("/healthz").await.status, 200, "the process itself is well");
    let logs = &server.process.stderr;
    until("it lapses", async || logs.contain("Process lease expired; runs dropped").then_some(())).await;

    proxy.mend();
    until("it is ready again", async || (server.anonymous().get("/readyz").await.status == 200).then_some(())).await;
    receiver.open();
    tenant.completed(&id).await;
    assert_eq!(receiver.calls("/count/a").len(), 1, "a completed node never runs again");
    assert_eq!(receiver.calls("/count/c").len(), 1);
    tenant.completed(&waiting).await;
    let after = tenant.start(&light).await;
    tenant.completed(&after).await;
    assert_eq!(tenant.running().await, 0);
}
