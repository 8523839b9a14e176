//! Poison: executions that break the code that handles them. Each ends with its own reason, and no other execution is
//! affected.

use serde_json::{Value, json};
use store::testing::Database;

use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Receiver, Server, Tenant, World, until};

/// What a build with the feature `test-engine` panics of.
const PANIC: &str = "forebay-test-panic";
/// How many deaths without progress end a run, and from which on it is resumed alone.
const GIVEN_UP: usize = 10;
const ALONE: usize = 3;

/// The type and the message of what failed an execution.
async fn failure(tenant: &Tenant, id: &str) -> (String, String) {
    let ended = tenant.ended(id).await;
    assert_eq!(ended["status"], "FAILED", "{ended}");
    (text(&ended["error"]["type"]), text(&ended["error"]["message"]))
}

/// A poison of each sort, and the type and the words of its end.
fn poisons(receiver: &Receiver) -> [(&'static str, Value, &'static str, &'static str); 4] {
    let log = |message: &str| json!({ "say": { "kind": "LOG", "with": { "message": message } } });
    let call = |path: &str| json!({ "call": receiver.node(path) });
    [
        ("nul", call("/nul/a"), "UNSTORABLE_OUTPUT", "NUL"),
        ("graph", log("spoilt below"), "BAD_GRAPH", "cannot be run"),
        ("call panics", call(&format!("/count/{PANIC}")), "PANICKED", "the node's work panicked"),
        ("computing panics", log(PANIC), "PANICKED", "the node's work panicked"),
    ]
}

#[tokio::test]
async fn each_poison_ends_with_its_own_reason_and_spoils_nothing_beside_it() {
    let world = World::new().await;
    let (innocent, receiver) = (world.tenant("PRO").await, &world.receiver);
    let held = innocent.apply("held", json!({ "call": receiver.node("/hold/a") })).await;
    let beside = innocent.start_many(&held, 2).await;
    receiver.until_called("/hold/a", 2).await;
    let light = innocent.light().await;
    let mut quick = Vec::new();
    let mut doses = Vec::new();
    for (name, nodes, kind, words) in poisons(receiver) {
        let tenant = world.tenant("PRO").await;
        let definition = tenant.apply(name, nodes).await;
        if name == "graph" {
            let sql = "UPDATE workflow_definition_version SET graph = '{\"nodes\": [{\"key\": \"a\"}]}' WHERE workflow_definition_id";
            world.run_sql(&format!("{sql} = '{definition}'")).await;
        }
        // Twice: what broke once is there to break again.
        for id in tenant.start_many(&definition, 2).await {
            doses.push((tenant.clone(), id, name, kind, words));
            quick.push(innocent.start(&light).await);
        }
    }
    for (tenant, id, name, kind, words) in &doses {
        let (found, message) = failure(tenant, id).await;
        assert_eq!(&found, kind, "{name}: {message}");
        assert!(message.contains(words), "{name}: {message}");
        let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await;
        assert_eq!(nodes.status, 200, "{name}: it can still be looked at: {}", nodes.text);
    }
    for (tenant, _, name, ..) in &doses {
        assert_eq!(tenant.running().await, 0, "{name}: its slots are free");
    }
    receiver.open();
    for id in quick.iter().chain(&beside) {
        innocent.completed(id).await;
    }
    assert_eq!(receiver.calls("/hold/a").len(), 2, "what ran beside them was not begun again");
    assert_eq!(world.count("workflow_execution WHERE deaths > 0").await, 0);
    assert_eq!(world.count("process WHERE died").await, 0, "no process fell");
}

/// Servers that run executions, on a database whose API belongs to another server.
struct Workers {
    database: Database,
    api: Server,
    settings: Vec<String>,
    alive: Vec<Server>,
}

impl Workers {
    async fn start(settings: Vec<String>) -> Workers {
        let database = Database::new().await;
        let without_engine = [settings.clone(), vec!["workflow.engine.enabled=false".to_owned()]].concat();
        let api = Server::start(&database.url, &without_engine).await;
        let mut workers = Workers { database, api, settings, alive: Vec::new() };
        for _ in 0..2 {
            workers.add();
        }
        for worker in &mut workers.alive {
            worker.ready().await;
        }
        workers
    }

    fn add(&mut self) {
        self.alive.push(Server::spawn(&self.database.url, self.api.root_key(), &self.settings));
    }

    /// Kills the process that runs this execution; another comes in its place.
    async fn kill_owner(&mut self, execution: &str) {
        let sql = "SELECT p.pid FROM workflow_execution e JOIN process p ON p.id = e.owner WHERE e.id::text = $1";
        let owner = self.database.client().await.query_one(sql, &[&execution]).await.expect("an owner");
        let owner: i32 = owner.get(0);
        let at = self.alive.iter().position(|worker| worker.process.pid() == owner).expect("one of ours");
        self.alive.remove(at).process.sigkill();
        self.add();
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.client().await.query_one(sql, &[]).await.expect("a number").get(0)
    }
}

#[tokio::test]
async fn a_run_that_kills_its_processes_is_given_up_and_those_beside_it_are_not() {
    let (receiver, deadly) = (Receiver::start().await, Receiver::start().await);
    let mut workers = Workers::start(receiver.allowed_beside(&deadly, &MORTAL)).await;
    let (tenant, other) = (Tenant::new(workers.api.api(), "PRO").await, Tenant::new(workers.api.api(), "PRO").await);
    let beside = |path: &str| json!({ "call": receiver.node(path) });
    let (older, younger) =
        (tenant.apply("older", beside("/hold/o")).await, tenant.apply("younger", beside("/hold/y")).await);
    let killer = tenant.apply("killer", json!({ "call": deadly.node("/hold/kill") })).await;
    let light = other.light().await;
    let older = tenant.start(&older).await;
    let killer = tenant.start(&killer).await;
    let younger = tenant.start(&younger).await;
    receiver.until_called("/hold/y", 1).await;
    let mut quick = Vec::new();
    for death in 1..=GIVEN_UP {
        deadly.until_called("/hold/kill", death).await;
        quick.push(other.start(&light).await);
        workers.kill_owner(&killer).await;
        if death == ALONE {
            // All three are suspects now and take turns: the ones in front of the killer end.
            receiver.open();
        }
    }
    let (kind, message) = failure(&tenant, &killer).await;
    assert_eq!(kind, "CRASH_LOOP", "{message}");
    for id in [&older, &younger] {
        tenant.completed(id).await;
    }
    for id in &quick {
        other.completed(id).await;
    }
    let deaths = format!("SELECT coalesce(max(deaths), 0)::bigint FROM workflow_execution WHERE id <> '{killer}'");
    let most = i64::try_from(ALONE).expect("a number");
    assert!(workers.number(&deaths).await <= most, "deaths of the killer's own are not held against others");
    assert_eq!(deadly.calls("/hold/kill").len(), GIVEN_UP, "it is not begun again");
    assert_eq!(workers.number("SELECT count(*) FROM workflow_execution WHERE status = 'FAILED'").await, 1);
    until("the slots are free", async || (tenant.running().await == 0).then_some(())).await;
    workers.alive.iter_mut().for_each(|worker| worker.process.sigkill());
}
