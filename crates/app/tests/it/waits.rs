//! Tests waits and tasks over HTTP and from the command line: answers with keys and with tokens, and tasks for workers.
//!
//! The tests create waits as an engine does, in an execution that waits for its slot.
//!
//! Not here: how a run continues after the answer.

use std::time::Duration;

use kernel::ids::{ExecutionId, NodeKey, ProcessId, WorkspaceId};
use reqwest::Method;
use serde_json::{Value, json};
use store::run::attempt::Ownership;
use store::testing::Database;
use store::wait::{FinishedWait, NewWait, WaitKey, WaitKind, WaitState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::cli::Cli;
use crate::support::http::{Api, send};
use crate::support::process::Process;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

/// An execution that this test holds as its engine would.
struct Held<W> {
    world: W,
    database: Database,
    tenant: Tenant,
    hold: Ownership,
}

impl Held<World> {
    async fn new(settings: &[&str], nodes: Value) -> Held<World> {
        let world = World::with(settings).await;
        let (tenant, database) = (world.tenant("PRO").await, Database::at(world.database.url.clone()));
        let hold = hold(&database, &tenant, nodes).await;
        Held { world, database, tenant, hold }
    }
}

impl Held<Shared> {
    async fn shared(nodes: Value) -> Held<Shared> {
        let world = Shared::new().await;
        let (tenant, database) = (world.tenant("PRO").await, Database::at(world.database.url.clone()));
        let hold = hold(&database, &tenant, nodes).await;
        Held { world, database, tenant, hold }
    }
}

impl<W> Held<W> {
    fn place(&self, node: &str, iteration: i32) -> WaitKey {
        WaitKey { execution: self.hold.execution, node: NodeKey::new(node).expect("a key"), iteration }
    }

    async fn ask(&self, node: &str, iteration: i32, what: WaitKind, input: Value) -> WaitState {
        let workspace = WorkspaceId(self.tenant.id.parse().expect("an id"));
        let ask =
            NewWait { key: self.place(node, iteration), workspace, attempt: 1, kind: what, input, expires_in: None };
        self.database.store.open_wait(self.hold, &ask).await.expect("an answer").expect("held")
    }

    async fn task(&self, queue: &str, iteration: i32, input: Value) {
        let what = WaitKind::Task { queue: queue.to_owned(), lease: Duration::from_secs(60) };
        self.ask("work", iteration, what, input).await;
    }

    async fn came(&self) -> Vec<FinishedWait> {
        self.database.store.read_answers(self.hold).await.expect("an answer").expect("held")
    }

    /// What came, once something did.
    async fn result(&self) -> Value {
        let came = until("something comes", async || self.came().await.pop()).await;
        match came.state {
            WaitState::Answered(answer) => match answer.result {
                Ok(value) => json!({ "value": value, "by": answer.by }),
                Err(failure) => json!({ "type": failure.class.name(), "message": failure.message }),
            },
            other => panic!("{other:?}"),
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("workflow/executions/{}/{rest}", self.hold.execution)
    }
}

/// Starts an execution that stays in line, and takes it as an engine would.
async fn hold(database: &Database, tenant: &Tenant, nodes: Value) -> Ownership {
    let definition = tenant.apply("asking", nodes).await;
    tenant.api.post(&format!("workflow/definitions/{definition}/pause"), json!({})).await.expect(200);
    let execution: ExecutionId = tenant.start(&definition).await.parse().expect("an id");
    let owner = ProcessId(store::new_id());
    let sql = format!(
        "UPDATE workflow_execution SET status = 'RUNNING', engine = 'test', started_at = now(), owner = '{owner}', owner_epoch = 1
          WHERE id = '{execution}'"
    );
    database.client().await.batch_execute(&sql).await.expect("a statement");
    Ownership { execution, owner, epoch: 1 }
}

fn approve() -> Value {
    json!({ "approve": { "kind": "WAIT_FOR_EVENT", "with": { "data": {
        "approved": { "type": "boolean", "required": true }, "note": { "type": "string", "default": "none" },
    } } }, "say": { "kind": "LOG", "needs": "approve", "with": { "message": "x" } } })
}

fn wait() -> WaitKind {
    WaitKind::Wait { event: None, matches: None }
}

#[tokio::test]
async fn an_answer_is_judged_by_the_versions_data_and_taken_once() {
    let held = Held::shared(approve()).await;
    let api = &held.tenant.api;
    let path = held.path("waits/approve/answer");
    let refused = api.post(&path, json!({ "data": { "approved": "yes" } })).await;
    assert_eq!(refused.problem(422), "validation_failed", "early answers too");
    assert_eq!(refused.body["problems"][0]["pointer"], "/data/approved", "{}", refused.text);
    for node in ["say", "nobody", "approve%00"] {
        let reply = api.post(&held.path(&format!("waits/{node}/answer")), json!({})).await;
        assert_eq!(reply.problem(404), "not_found", "{node} is no wait");
    }
    let observed = api.post(&held.path("waits/nobody/answer"), json!({})).await;
    assert!(text(&observed.body["detail"]).contains("the waits of the workflow are approve"), "{}", observed.text);
    let observed = api.post(&path, json!({ "data": {}, "iteration": 1 })).await;
    assert_eq!(observed.problem(404), "not_found");
    assert_eq!(observed.body["detail"], "approve is not a loop: omit the iteration");
    held.ask("approve", 0, wait(), json!({ "data": {} })).await;
    let waits = api.get(&held.path("waits")).await.expect(200);
    assert_eq!((&waits["items"][0]["node"], &waits["items"][0]["status"]), (&json!("approve"), &json!("OPEN")));
    let answered = api.post(&path, json!({ "data": { "approved": true } })).await.expect(200);
    assert_eq!(answered["early"], false);
    assert_eq!(held.result().await["value"], json!({ "approved": true, "note": "none" }), "with its defaults");
    assert_eq!(api.post(&path, json!({ "data": { "approved": false } })).await.problem(409), "conflict");
    let activity = api.get(&format!("activity?subject={}", held.hold.execution)).await.expect(200);
    let entry = &activity["items"][0];
    assert_eq!((&entry["action"], &entry["detail"]["node"]), (&json!("wait.answer"), &json!("approve")), "{entry}");
    assert!(text(&entry["actor"]).starts_with("key:"), "{entry}");
}

#[tokio::test]
async fn an_answer_before_its_question_is_kept_and_one_after_the_end_refused() {
    let held = Held::shared(approve()).await;
    let (api, path) = (&held.tenant.api, held.path("waits/approve/answer"));
    let answered = api.post(&path, json!({ "data": { "approved": true } })).await.expect(200);
    assert_eq!(answered["early"], true);
    let standing = held.ask("approve", 0, wait(), json!({})).await;
    assert!(matches!(standing, WaitState::Answered(_)), "{standing:?}");
    let own = format!("execution_id = '{}'", held.hold.execution);
    let sql = "UPDATE workflow_execution SET status = 'COMPLETED', completed_at = now(), owner = NULL WHERE id";
    held.world.run_sql(&format!("{sql} = '{}'", held.hold.execution)).await;
    let token = held.path("waits/approve/token");
    for (path, body) in [(&path, json!({ "data": { "approved": true } })), (&token, json!({}))] {
        let refused = api.post(path, body).await;
        assert_eq!(refused.problem(409), "conflict");
        assert_eq!(refused.body["detail"], "this wait already has an answer", "of an execution that has ended");
    }
    held.world.run_sql(&format!("DELETE FROM workflow_execution_wait WHERE {own}")).await;
    let refused = api.post(&path, json!({ "data": { "approved": true } })).await;
    assert_eq!(refused.body["detail"], "the execution has ended: its waits take no answers", "{}", refused.text);
}

#[tokio::test]
async fn a_token_needs_no_body_and_is_good_no_longer_than_its_wait() {
    let held = Held::shared(approve()).await;
    held.ask("approve", 0, wait(), json!({})).await;
    let path = held.path("waits/approve/token");
    let plain = send(held.tenant.api.request(Method::POST, &path)).await.expect(201);
    let sql = "UPDATE workflow_execution_wait SET expires_at = now() + interval '1 hour' WHERE execution_id";
    held.world.run_sql(&format!("{sql} = '{}'", held.hold.execution)).await;
    let minted = held.tenant.api.post(&path, json!({ "expiresInSeconds": 172_800 })).await.expect(201);
    let waits = held.tenant.api.get(&held.path("waits")).await.expect(200);
    assert_eq!(minted["expiresAt"], waits["items"][0]["expiresAt"], "{minted}");
    assert!(text(&plain["expiresAt"]) > text(&minted["expiresAt"]), "{plain}");
}

#[tokio::test]
async fn the_waits_of_a_loop_in_a_child_are_listed_and_answered_by_item() {
    let world = World::with(&["http.public_url=https://forebay.example.com"]).await;
    let tenant = world.tenant("PRO").await;
    let each = json!({ "kind": "FOR_EACH", "with": { "items": [1, 2, 3], "do": { "kind": "WAIT_FOR_EVENT" } } });
    tenant.apply("asks", json!({ "each": each })).await;
    let definition =
        tenant.apply("above", json!({ "below": { "kind": "WORKFLOW", "with": { "workflow": "asks" } } })).await;
    let id = tenant.start(&definition).await;
    let base = format!("workflow/executions/{id}/waits");
    let child = until("all three wait", async || {
        let waits = tenant.api.get(&base).await.expect(200);
        let items = waits["items"].as_array().expect("a list").clone();
        (items.len() == 3).then(|| text(&items[0]["executionId"]))
    })
    .await;
    assert_ne!(child, id);
    let first = tenant.api.get(&format!("{base}?limit=2")).await.expect(200);
    let rest = tenant.api.get(&format!("{base}?limit=2&cursor={}", text(&first["nextCursor"]))).await.expect(200);
    assert_eq!((&rest["items"][0]["iteration"], rest["items"].as_array().map(Vec::len)), (&json!(3), Some(1)));
    let refused = tenant.api.post(&format!("workflow/executions/{child}/waits/each/answer"), json!({})).await;
    assert!(text(&refused.body["detail"]).starts_with("each is a loop: name an item"), "{}", refused.text);

    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let shown = cli.ok(&["wait", "ls", &id]).await;
    assert!(shown.contains("each[2]") && shown.contains(&child), "{shown}");
    cli.ok(&["wait", "answer", &child, "each[1]", "n=1"]).await;
    cli.ok(&["wait", "answer", &child, "each", "--iteration", "2"]).await;
    for wrong in ["each[0]", "each[x]", "[1]"] {
        assert_eq!(cli.run(&["wait", "answer", &child, wrong]).await.code, 2, "{wrong}");
    }
    assert_eq!(cli.run(&["wait", "answer", &child, "each[3]", "--iteration", "2"]).await.code, 2, "two items");
    let address = cli.ok(&["wait", "answer", &child, "each[3]", "--token", "--expires-in", "2d"]).await;
    let path = address.trim().strip_prefix("https://forebay.example.com").expect("an address").to_owned();
    world.server.anonymous().post(&path, json!({})).await.expect(200);
    tenant.completed(&id).await;
}

#[tokio::test]
async fn a_link_answers_once_a_look_at_it_answers_nothing_and_it_is_written_nowhere() {
    let held = Held::new(&["http.public_url=https://forebay.example.com/"], approve()).await;
    held.ask("approve", 0, wait(), json!({})).await;
    let minted =
        held.tenant.api.post(&held.path("waits/approve/token"), json!({ "expiresInSeconds": 3_600 })).await.expect(201);
    let (path, token) = (text(&minted["path"]), text(&minted["token"]));
    assert_eq!(minted["url"], format!("https://forebay.example.com{path}"));
    let anonymous = held.world.server.anonymous();
    let shown = anonymous.get(&path).await.expect(200);
    assert_eq!((&shown["open"], &shown["used"]), (&json!(true), &json!(false)));
    assert_eq!((&shown["node"], &shown["data"]["approved"]["type"]), (&json!("approve"), &json!("boolean")));
    assert_eq!(anonymous.post(&path, json!({ "data": {} })).await.problem(422), "validation_failed", "it stays good");
    let mut racing = Vec::new();
    for _ in 0..20 {
        let (anonymous, path) = (anonymous.clone(), path.clone());
        racing.push(tokio::spawn(async move {
            anonymous.post(&path, json!({ "data": { "approved": true } })).await.status
        }));
    }
    let mut observed = Vec::new();
    for racer in racing {
        observed.push(racer.await.expect("an answer"));
    }
    observed.sort_unstable();
    assert_eq!((observed[0], observed[1], observed[19]), (200, 409, 409), "{observed:?}");
    assert_eq!(held.result().await["by"], "token");
    assert_eq!(anonymous.get(&path).await.expect(200)["used"], true);
    let logs = held.world.server.process.stdout.all().join("\n") + &held.world.server.process.stderr.all().join("\n");
    assert!(!logs.contains(&token), "no log holds it");
}

#[tokio::test]
async fn whatever_is_wrong_with_a_token_is_an_address_that_does_not_exist() {
    let held = Held::shared(approve()).await;
    let anonymous = held.world.server.anonymous();
    let nowhere = anonymous.get("/answers-of-nobody").await.text;
    let minted = held.tenant.api.post(&held.path("waits/approve/token"), json!({})).await.expect(201);
    let path = text(&minted["path"]);
    let mut unknown = path.clone();
    unknown.replace_range(14..15, if &path[14..15] == "a" { "b" } else { "a" });
    let sql = "UPDATE workflow_execution_token SET expires_at = now() WHERE execution_id";
    held.world.run_sql(&format!("{sql} = '{}'", held.hold.execution)).await;
    for wrong in [path.as_str(), &unknown, "/answers/x", "/answers/%ff"] {
        for method in [Method::GET, Method::POST] {
            let reply = send(anonymous.request(method.clone(), wrong).json(&json!({ "data": {} }))).await;
            assert_eq!((reply.status, &reply.text), (404, &nowhere), "{method} {wrong}");
        }
    }
}

#[tokio::test]
async fn a_wait_for_an_event_is_answered_by_the_first_that_matches_and_by_nobody_in_its_place() {
    let matches = "event.data.order == inputs.order && nodes.fetch.output.body == null";
    let nodes = json!({
        "fetch": { "kind": "LOG", "with": { "message": "x" } },
        "paid": { "kind": "WAIT_FOR_EVENT", "needs": "fetch", "with": { "event": "order.paid", "match": matches } },
    });
    let held = Held::shared(nodes).await;
    let api = &held.tenant.api;
    let sql = "UPDATE workflow_execution SET input = '{\"order\": \"A42\"}' WHERE id";
    held.world.run_sql(&format!("{sql} = '{}'", held.hold.execution)).await;
    let what = WaitKind::Wait { event: Some("order.paid".to_owned()), matches: Some(matches.to_owned()) };
    held.ask("paid", 0, what, json!({})).await;
    assert_eq!(api.post(&held.path("waits/paid/answer"), json!({})).await.problem(409), "conflict");
    assert_eq!(api.post(&held.path("waits/paid/token"), json!({})).await.problem(409), "conflict");
    let event =
        |data: Value| json!({ "type": "order.paid", "streamId": store::new_id(), "streamType": "order", "data": data });
    let events = [event(json!({ "order": "B1" })), event(json!("no object")), event(json!({ "order": "A42", "n": 1 }))];
    api.post("events", json!({ "events": events })).await.expect(200);
    let result = held.result().await;
    assert_eq!((&result["by"], &result["value"]["data"]), (&json!("event"), &json!({ "order": "A42", "n": 1 })));
    assert_eq!(result["value"]["type"], "order.paid");
    until("nothing is left to judge", async || {
        (held.world.count(&held.tenant, "workflow_execution_candidate").await == 0).then_some(())
    })
    .await;
}

fn event_of(kind: &str, data: &Value) -> Value {
    json!({ "type": kind, "streamId": store::new_id(), "streamType": "order", "data": data })
}

#[tokio::test]
async fn an_event_that_a_failing_statement_could_not_judge_is_judged_again() {
    let matches = "event.data.n == 1 && nodes.fetch.output.body == null";
    let nodes = json!({
        "fetch": { "kind": "LOG", "with": { "message": "x" } },
        "paid": { "kind": "WAIT_FOR_EVENT", "needs": "fetch", "with": { "event": "order.paid", "match": matches } },
    });
    let held = Held::new(&[], nodes).await;
    let what = WaitKind::Wait { event: Some("order.paid".to_owned()), matches: Some(matches.to_owned()) };
    held.ask("paid", 0, what, json!({})).await;
    held.world.run_sql("ALTER TABLE workflow_execution_node RENAME COLUMN output TO output_gone").await;
    let events = json!({ "events": [event_of("order.paid", &json!({ "n": 1 }))] });
    held.tenant.api.post("events", events).await.expect(200);
    until("judging fails", async || {
        let observed = |text: &str| held.world.server.process.stderr.contain(text);
        (observed("Background loop failed") || observed("Event could not be matched with a wait")).then_some(())
    })
    .await;
    held.world.run_sql("ALTER TABLE workflow_execution_node RENAME COLUMN output_gone TO output").await;
    assert_eq!(held.result().await["by"], "event");
}

#[tokio::test]
async fn a_wait_of_which_nothing_can_be_read_stops_no_other_wait_of_its_workspace() {
    let matches = "event.data == 1 && nodes.fetch.output.body == null";
    let nodes = json!({
        "fetch": { "kind": "LOG", "with": { "message": "x" } },
        "paid": { "kind": "WAIT_FOR_EVENT", "needs": "fetch", "with": { "event": "order.paid", "match": matches } },
    });
    let held = Held::new(&[], nodes.clone()).await;
    let (world, workspace) = (&held.world, WorkspaceId(held.tenant.id.parse().expect("an id")));
    let mut holds = vec![held.hold];
    for _ in 0..3 {
        holds.push(hold(&world.database, &held.tenant, nodes.clone()).await);
    }
    for hold in &holds {
        let place = WaitKey { execution: hold.execution, node: NodeKey::new("paid").expect("a key"), iteration: 0 };
        let what = WaitKind::Wait { event: Some("order.paid".to_owned()), matches: Some(matches.to_owned()) };
        let ask = NewWait { key: place, workspace, attempt: 1, kind: what, input: json!({}), expires_in: None };
        world.database.store.open_wait(*hold, &ask).await.expect("an answer").expect("held");
    }
    // They are judged in this order. Of the second the row cannot be read, of the third the statement fails.
    let broken = format!(
        "UPDATE workflow_execution SET created_at = 'infinity' WHERE id = '{}';
         CREATE FUNCTION broken() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
         ALTER TABLE workflow_execution_node RENAME TO node_kept;
         CREATE VIEW workflow_execution_node AS SELECT * FROM node_kept UNION ALL
           SELECT * FROM (SELECT (jsonb_populate_record(NULL::node_kept,
             '{{\"execution_id\": \"{}\", \"node\": \"fetch\", \"iteration\": 0}}')).*) one WHERE broken();",
        holds[1].execution, holds[2].execution
    );
    world.run_sql(&broken).await;
    let events = json!({ "events": [event_of("order.paid", &json!(1))] });
    held.tenant.api.post("events", events).await.expect(200);
    for hold in [holds[0], holds[3]] {
        until("it has its answer", async || {
            world.database.store.read_answers(hold).await.expect("an answer").expect("held").pop()
        })
        .await;
    }
    let logged = "Wait cannot be read; it does not receive the event";
    until("it is logged", async || world.server.process.stderr.contain(logged).then_some(())).await;
}

#[tokio::test]
async fn slow_judging_of_one_workspace_leaves_room_for_the_waits_of_others() {
    let paid = json!({ "paid": { "kind": "WAIT_FOR_EVENT", "with": { "event": "order.paid" } } });
    let held = Held::new(&[], paid.clone()).await;
    let (world, api) = (&held.world, &held.tenant.api);
    let what = || WaitKind::Wait { event: Some("order.paid".to_owned()), matches: None };
    for iteration in 0..60 {
        held.ask("paid", iteration, what(), json!({})).await;
    }
    let other = world.tenant("PRO").await;
    let quick = hold(&world.database, &other, paid).await;
    let place = WaitKey { execution: quick.execution, node: NodeKey::new("paid").expect("a key"), iteration: 0 };
    let workspace = WorkspaceId(other.id.parse().expect("an id"));
    let ask = NewWait { key: place, workspace, attempt: 1, kind: what(), input: json!({}), expires_in: None };
    world.database.store.open_wait(quick, &ask).await.expect("an answer").expect("held");
    // One page of twelve seconds, however fast the machine is.
    let slow = format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON workflow_execution_wait FOR EACH ROW
           WHEN (NEW.workspace_id = '{}' AND NEW.status = 'ANSWERED') EXECUTE FUNCTION slow();",
        held.tenant.id
    );
    world.run_sql(&slow).await;
    api.post("events", json!({ "events": [event_of("order.paid", &json!(1))] })).await.expect(200);
    let open = format!("workflow_execution_wait WHERE workspace_id = '{}' AND status = 'OPEN'", held.tenant.id);
    until("they are judged", async || (world.count(&open).await < 60).then_some(())).await;
    other.api.post("events", json!({ "events": [event_of("order.paid", &json!(7))] })).await.expect(200);
    until("the other has its answer", async || {
        world.database.store.read_answers(quick).await.expect("an answer").expect("held").pop()
    })
    .await;
    assert!(world.count(&open).await > 0, "the other did not wait for all of them");
}

/// Calls out with a callback, and waits for the answer a while later.
fn calling(url: &str) -> Value {
    json!({
        "tell": { "kind": "HTTP_REQUEST", "with": {
            "url": url, "method": "POST", "headers": { "X-Key": "${{ callbacks.approve }}" }, "body": { "answer": "${{ callbacks.approve }}" },
        } },
        "later": { "kind": "DELAY", "needs": "tell", "with": { "for": "10m" } },
        "approve": { "kind": "WAIT_FOR_EVENT", "needs": "later" },
    })
}

#[tokio::test]
async fn a_call_may_carry_the_address_that_answers_a_wait_and_nothing_that_is_kept_shows_it() {
    let world = World::with(&["http.public_url=https://forebay.example.com"]).await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.apply("calling", calling(&world.receiver.url("/echo/200"))).await;
    let id = tenant.start(&definition).await;
    let observed = until("it was called", async || world.receiver.echo.requests().pop()).await;
    let address = observed.lines().find_map(|line| line.strip_prefix("x-key: ")).expect("a header").to_owned();
    assert!(observed.contains(&format!("{{\"answer\":\"{address}\"}}")), "one address a call: {observed}");
    let path = address.strip_prefix("https://forebay.example.com").expect("the public address").to_owned();
    let token = path.strip_prefix("/answers/").expect("a token").to_owned();
    until("the call has ended", async || (tenant.nodes(&id).await["tell"] == "COMPLETED").then_some(())).await;
    let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await;
    assert!(nodes.text.contains("***") && !nodes.text.contains(&token), "{}", nodes.text);
    let kept: String = {
        let sql = "SELECT string_agg(t::text, ' ') FROM (SELECT to_jsonb(n) FROM workflow_execution_node n
                   UNION ALL SELECT to_jsonb(t) FROM workflow_execution_token t UNION ALL SELECT to_jsonb(a) FROM activity a) t";
        world.database.client().await.query_one(sql, &[]).await.expect("rows").get(0)
    };
    assert!(!kept.contains(&token));
    let anonymous = world.server.anonymous();
    anonymous.post(&path, json!({ "data": { "ok": true } })).await.expect(200);
    assert_eq!(anonymous.post(&path, json!({ "data": { "ok": true } })).await.problem(409), "conflict");
    let waits = tenant.api.get(&format!("workflow/executions/{id}/waits")).await.expect(200);
    assert_eq!((&waits["items"][0]["status"], &waits["items"][0]["answeredBy"]), (&json!("ANSWERED"), &json!("token")));
}

#[tokio::test]
async fn a_callback_without_an_address_of_ours_fails_its_node_and_one_that_leads_nowhere_is_not_published() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.apply("calling", calling(&world.receiver.url("/echo/200"))).await;
    let ended = tenant.ended(&tenant.start(&definition).await).await;
    assert_eq!(ended["error"]["type"], "VALIDATION_ERROR", "{ended}");
    assert!(text(&ended["error"]["message"]).contains("http.public_url"), "{ended}");
    let mut nodes = calling("https://example.com/${{ callbacks.approve }}");
    nodes["tell"]["with"]["headers"] = json!({ "X-A": "${{ callbacks.nobody }}", "X-B": "${{ callbacks.later }}" });
    nodes["tell"]["with"]["body"] = json!("${{ callbacks }}");
    let body = json!({ "document": { "name": "bad", "nodes": nodes } });
    let refused = tenant.api.post("workflow/definitions/apply", body).await;
    assert_eq!(refused.problem(422), "definition_invalid");
    let mut codes: Vec<String> =
        refused.body["problems"].as_array().expect("problems").iter().map(|problem| text(&problem["code"])).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["bad_expression", "bad_value", "misplaced_secret", "unknown_node"], "{}", refused.text);
}

async fn claim(api: &Api, more: Value) -> Value {
    let mut body = json!({ "queues": ["mail"], "workerId": "w" });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    api.post("tasks/claim", body).await.expect(200)["items"].clone()
}

#[tokio::test]
async fn a_task_is_claimed_kept_and_completed_and_a_lost_lease_is_reported() {
    let held = Held::shared(approve()).await;
    let api = &held.tenant.api;
    held.task("mail", 0, json!({ "to": "ada" })).await;
    let first = claim(api, json!({ "leaseSeconds": 1 })).await[0].clone();
    assert_eq!((&first["input"]["to"], &first["delivery"], &first["attempt"]), (&json!("ada"), &json!(1), &json!(1)));
    let path = format!("tasks/{}", text(&first["id"]));
    // No worker sends a heartbeat, so the task is offered again; the claim that waits for it has it immediately.
    let second = claim(api, json!({ "waitSeconds": 20 })).await[0].clone();
    assert_eq!((&second["id"], &second["delivery"]), (&first["id"], &json!(2)));
    let (old, new) = (json!({ "claimId": first["claimId"] }), json!({ "claimId": second["claimId"] }));
    for verb in ["heartbeat", "complete"] {
        assert_eq!(api.post(&format!("{path}/{verb}"), old.clone()).await.problem(409), "lease_lost", "{verb}");
    }
    let mut progress = new.clone();
    progress["progress"] = json!({ "done": 3 });
    assert_eq!(api.post(&format!("{path}/heartbeat"), progress).await.expect(200)["canceling"], false);
    let shown = api.get(&path).await.expect(200);
    assert_eq!(
        (&shown["status"], &shown["progress"]["done"], &shown["lostLeases"]),
        (&json!("CLAIMED"), &json!(3), &json!(1))
    );
    let mut done = new.clone();
    done["output"] = json!({ "sent": true });
    for _ in 0..2 {
        let ended = api.post(&format!("{path}/complete"), done.clone()).await.expect(200);
        assert_eq!(ended["output"]["sent"], true, "a repeat is answered as the first was");
    }
    let mut otherwise = new;
    otherwise["message"] = json!("no");
    assert_eq!(api.post(&format!("{path}/fail"), otherwise).await.problem(409), "conflict");
    assert_eq!(held.result().await, json!({ "value": { "sent": true }, "by": "w" }));
}

#[tokio::test]
async fn a_failed_task_says_whether_another_attempt_could_help() {
    let held = Held::shared(approve()).await;
    for (retryable, class) in [(json!(null), "EXECUTION_ERROR"), (json!(false), "VALIDATION_ERROR")] {
        held.task("mail", i32::from(retryable.is_null()), json!({})).await;
        let task = claim(&held.tenant.api, json!({})).await[0].clone();
        let body = json!({ "claimId": task["claimId"], "message": "no paper", "retryable": retryable });
        held.tenant.api.post(&format!("tasks/{}/fail", text(&task["id"])), body).await.expect(200);
        assert_eq!(held.result().await, json!({ "type": class, "message": "no paper" }));
    }
}

#[tokio::test]
async fn a_claim_that_waits_has_a_task_as_soon_as_it_is_offered() {
    let held = Held::new(&[], approve()).await;
    let api = held.tenant.api.clone();
    let waiting = tokio::spawn(async move { claim(&api, json!({ "waitSeconds": 30 })).await });
    // It has looked, and waits.
    let looked =
        "pg_stat_activity WHERE datname = current_database() AND query LIKE '%claim_tasks%' AND state = 'idle'";
    until("it waits", async || (held.world.count(looked).await > 0).then_some(())).await;
    held.task("mail", 0, json!({})).await;
    assert_eq!(waiting.await.expect("an answer").as_array().map(Vec::len), Some(1));
    let nothing = claim(&held.tenant.api, json!({ "waitSeconds": 1 })).await;
    assert_eq!(nothing, json!([]), "none are no error");
}

#[tokio::test]
async fn a_root_key_serves_all_workspaces_in_turn_and_a_claim_that_makes_no_sense_is_refused() {
    let held = Held::new(&[], approve()).await;
    let other = held.world.tenant("PRO").await;
    let second = hold(&held.database, &other, approve()).await;
    for n in 0..10 {
        held.task("mail", n, json!({})).await;
    }
    let theirs = Held { tenant: other, hold: second, ..held };
    theirs.task("mail", 0, json!({})).await;
    let root = theirs.world.server.api();
    let claimed = claim(&root, json!({ "limit": 4 })).await;
    let of: Vec<&Value> = claimed.as_array().expect("tasks").iter().map(|task| &task["workspaceId"]).collect();
    assert!(of.contains(&&json!(theirs.tenant.id)), "the quiet one is not behind the other's ten: {of:?}");
    for bad in [
        json!({ "queues": [] }),
        json!({ "queues": [""] }),
        json!({ "workerId": " " }),
        json!({ "limit": 0 }),
        json!({ "limit": 101 }),
        json!({ "leaseSeconds": 7200 }),
        json!({ "waitSeconds": "soon" }),
        json!({ "waitSeconds": 61 }),
    ] {
        let mut body = json!({ "queues": ["mail"], "workerId": "w" });
        for (name, value) in bad.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(root.post("tasks/claim", body).await.problem(422), "validation_failed", "{bad}");
    }
    let listed = root.get("tasks?queue=mail&status=OPEN&limit=2").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    let next =
        root.get(&format!("tasks?queue=mail&status=OPEN&cursor={}", text(&listed["nextCursor"]))).await.expect(200);
    assert_eq!(next["items"].as_array().map(Vec::len), Some(5), "eleven, of which four are claimed");
}

#[tokio::test]
async fn commands_list_and_answer_waits_and_perform_tasks() {
    let held = Held::shared(approve()).await;
    let key = held.tenant.api.key.clone().expect("a key");
    let (cli, id) = (Cli::of(&held.world.server.base, &key), held.hold.execution.to_string());
    held.ask("approve", 0, wait(), json!({})).await;
    assert!(cli.ok(&["wait", "ls", &id]).await.contains("approve"), "the wait is shown");
    assert_eq!(cli.ok(&["wait", "answer", &id, "approve", "approved=true", "note=fine"]).await, "approve: answered\n");
    assert_eq!(held.result().await["value"], json!({ "approved": true, "note": "fine" }));
    assert_eq!(cli.run(&["wait", "answer", &id, "approve", "--data", "{\"approved\": true}"]).await.code, 1, "once");
    held.task("mail", 0, json!({ "n": 1 })).await;
    let listed = cli.ok(&["task", "ls", "--queue", "mail", "--status", "open"]).await;
    let task = listed.split_whitespace().last().expect("an id").to_owned();
    assert!(cli.ok(&["task", "get", &task]).await.contains("OPEN"));
    cli.ok(&["task", "work", "mail", "--drain", "--", "cat"]).await;
    assert_eq!(held.result().await["value"], json!({ "n": 1 }), "what a command prints is the output");
    held.task("mail", 1, json!({})).await;
    cli.ok(&["task", "work", "mail", "--drain", "--", "sh", "-c", "echo no paper >&2; exit 65"]).await;
    assert_eq!(held.result().await, json!({ "type": "VALIDATION_ERROR", "message": "no paper" }));
    held.task("mail", 2, json!({})).await;
    let mut work =
        cli.command(&["task", "work", "mail", "--drain", "--", "sh", "-c", "env | cut -d= -f1 | sort | tr '\\n' ' '"]);
    work.env("FOREBAY_AUTH_ROOT_KEY", "fbk_x").env("FOREBAY_DATABASE_URL", "postgresql://u:p@h/d").env("OWN", "1");
    assert!(tokio::process::Command::from(work).status().await.expect("it ran").success());
    let seen = text(&held.result().await["value"]);
    for name in ["FOREBAY_KEY", "FOREBAY_AUTH_ROOT_KEY", "FOREBAY_DATABASE_URL"] {
        assert!(!seen.split(' ').any(|known| known == name), "{name} is not handed on: {seen}");
    }
    for name in ["FOREBAY_TASK_ID", "FOREBAY_SERVER", "OWN"] {
        assert!(seen.split(' ').any(|known| known == name), "{name}: {seen}");
    }
}

#[tokio::test]
async fn the_example_worker_completes_fails_outlives_a_lease_and_stops_after_the_task_in_hand() {
    let held = Held::shared(approve()).await;
    let mut command = std::process::Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/worker.py")).arg("mail");
    command.env("FOREBAY_SERVER", &held.world.server.base).env("FOREBAY_LEASE_SECONDS", "1");
    command.env("FOREBAY_KEY", held.tenant.api.key.clone().expect("a key"));
    let worker = Process::spawn("worker.py", command);
    held.task("mail", 0, json!({ "a": 1 })).await;
    assert_eq!(held.result().await["value"]["given"], json!({ "a": 1 }));
    held.task("mail", 1, json!({ "fail": "out of paper" })).await;
    assert_eq!(held.result().await, json!({ "type": "EXECUTION_ERROR", "message": "out of paper" }));
    held.task("mail", 2, json!({ "fail": "not for me", "never": true })).await;
    assert_eq!(held.result().await["type"], "VALIDATION_ERROR");
    // Longer than its lease: heartbeats keep it.
    held.task("mail", 3, json!({ "steps": 8, "seconds": 0.25 })).await;
    assert_eq!(held.result().await["value"]["given"]["steps"], 8);
    // Stopped for longer than its lease, the worker learns of it when it continues, and its output is dropped.
    held.task("mail", 4, json!({ "steps": 12, "seconds": 0.25 })).await;
    let claimed = "workflow_execution_wait WHERE status = 'CLAIMED'";
    until("it has the task", async || (held.world.count(&held.tenant, claimed).await == 1).then_some(())).await;
    worker.signal(nix::sys::signal::Signal::SIGSTOP);
    let second = claim(&held.tenant.api, json!({ "waitSeconds": 20 })).await[0].clone();
    worker.signal(nix::sys::signal::Signal::SIGCONT);
    until("the worker logs the lost lease", async || worker.stdout.contain("the lease was lost").then_some(())).await;
    let done = json!({ "claimId": second["claimId"], "output": "mine" });
    held.tenant.api.post(&format!("tasks/{}/complete", text(&second["id"])), done).await.expect(200);
    assert_eq!(held.result().await["value"], "mine");
    held.task("mail", 5, json!({ "steps": 4, "seconds": 0.25 })).await;
    until("it has the task", async || (held.world.count(&held.tenant, claimed).await == 1).then_some(())).await;
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(held.result().await["value"]["given"]["steps"], 4, "it finishes what it has");
    until("it ends", async || worker.stdout.contain("stopped").then_some(())).await;
}

/// Stands between a worker and the server: the first answers are its own, and none that a worker can use.
async fn bad_gateway(server: &str, bad: usize) -> String {
    let server = server.trim_start_matches("http://").to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        for turn in 0.. {
            let Ok((mut near, _)) = listener.accept().await else { return };
            let server = server.clone();
            tokio::spawn(async move {
                if turn >= bad {
                    let mut far = tokio::net::TcpStream::connect(server).await.expect("the server");
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                    return;
                }
                let status = ["500 Oh", "200 OK", "404 Not here"][turn % 3];
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>");
                let mut request = [0; 4096];
                drop(near.read(&mut request).await);
                drop(near.write_all(answer.as_bytes()).await);
                drop(near.shutdown().await);
            });
        }
    });
    format!("http://{address}")
}

/// What a worker must get through, whichever it is: a gateway that answers for the server, an output that is not taken,
/// and failures without a word or with too many.
async fn gets_through(held: &Held<World>, long: &str, blank: &str) {
    held.task("mail", 0, json!({ "a": 1 })).await;
    assert_ne!(held.result().await["value"], Value::Null);
    held.task("mail", 1, json!({ "a": "x".repeat(100_000) })).await;
    let refused = held.result().await;
    assert_eq!(refused["type"], "VALIDATION_ERROR", "{refused}");
    assert!(text(&refused["message"]).contains("refused the output"), "{refused}");
    held.task("mail", 2, json!({ "fail": "y".repeat(9_000) })).await;
    assert_eq!(text(&held.result().await["message"]).chars().count(), 4_000, "{long}");
    held.task("mail", 3, json!({ "fail": " \n" })).await;
    assert_eq!(held.result().await["message"], blank);
    held.task("mail", 4, json!({ "a": 2 })).await;
    assert_ne!(held.result().await["value"], Value::Null, "and it goes on");
}

#[tokio::test]
async fn the_example_worker_gets_through_gateways_refusals_and_failures_of_any_length() {
    let held = Held::new(&["http.max_body_bytes=65536"], approve()).await;
    let mut command = std::process::Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/worker.py")).arg("mail");
    command.env("FOREBAY_SERVER", bad_gateway(&held.world.server.base, 3).await).env("FOREBAY_LEASE_SECONDS", "3");
    command.env("FOREBAY_KEY", held.tenant.api.key.clone().expect("a key"));
    let _worker = Process::spawn("worker.py", command);
    gets_through(&held, "worker.py", "RuntimeError").await;
}

#[tokio::test]
async fn the_command_that_works_gets_through_gateways_refusals_and_failures_of_any_length() {
    let held = Held::new(&["http.max_body_bytes=65536"], approve()).await;
    let script = "import json, sys; given = json.load(sys.stdin); fail = given.get('fail'); \
        sys.exit(fail.strip() or '\\0') if fail else print(json.dumps(given))";
    let mut command = crate::support::process::forebay();
    command.args(["task", "work", "mail", "--", "python3", "-c", script]);
    command.env("FOREBAY_SERVER", bad_gateway(&held.world.server.base, 3).await);
    command.env("FOREBAY_KEY", held.tenant.api.key.clone().expect("a key"));
    let _worker = Process::spawn("forebay task work", command);
    gets_through(&held, "task work", "the command failed without a message").await;
}

#[tokio::test]
async fn a_claim_of_other_queues_does_not_change_whose_turn_it_is() {
    let held = Held::new(&[], approve()).await;
    let (root, mut of) = (held.world.server.api(), Vec::new());
    let mut tenants = vec![(held.world.tenant("PRO").await, 0), (held.world.tenant("PRO").await, 0)];
    for (tenant, _) in &tenants {
        let second = hold(&held.database, tenant, approve()).await;
        for n in 0..4 {
            let place =
                WaitKey { execution: second.execution, node: NodeKey::new("work").expect("a key"), iteration: n };
            let what = WaitKind::Task { queue: "mail".to_owned(), lease: Duration::from_secs(60) };
            let workspace = WorkspaceId(tenant.id.parse().expect("an id"));
            let ask = NewWait { key: place, workspace, attempt: 1, kind: what, input: json!({}), expires_in: None };
            held.world.database.store.open_wait(second, &ask).await.expect("an answer").expect("held");
        }
    }
    for _ in 0..6 {
        assert_eq!(claim(&root, json!({ "queues": ["idle"] })).await, json!([]));
        of.push(text(&claim(&root, json!({})).await[0]["workspaceId"]));
    }
    for (tenant, served) in &mut tenants {
        *served = of.iter().filter(|workspace| **workspace == tenant.id).count();
    }
    assert_eq!((tenants[0].1, tenants[1].1), (3, 3), "{of:?}");
}

#[tokio::test]
async fn the_number_of_waiting_claims_is_limited_per_workspace_not_per_key() {
    let held = Held::shared(approve()).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..80 {
        let api = held.tenant.api.clone();
        let body = json!({ "queues": ["mail"], "workerId": "w", "waitSeconds": 5 });
        waiting.spawn(async move { api.post("tasks/claim", body).await.status });
    }
    let mut refused = 0;
    while let Some(status) = waiting.join_next().await {
        refused += usize::from(status.expect("an answer") == 429);
    }
    assert_eq!(refused, 16, "64 wait");
}
