//! Calls that may be made at most once. If the outcome of a call is unknown, the outcomes of its node and of all
//! executions above the node are unknown too. The call is made again only after a person decides so.

use std::time::Duration;

use engine::Engine;
use kernel::execution::Status;
use kernel::execution::rerun::{RerunError, Resolution};
use kernel::ids::{DefinitionId, ExecutionId, NodeKey};
use serde_json::{Value, json};
use store::testing::Database;

use crate::host::Process;
use crate::world::{World, until};

fn once(path: &str) -> Value {
    json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": format!("BASE{path}") } })
}

fn each(items: Value, mode: &str, does: &Value) -> Value {
    json!({ "kind": "FOR_EACH", "with": { "items": items, "parallel": 1, "on_item_error": mode, "do": does } })
}

/// A root whose node runs a child, whose loop runs another child, which makes a call.
fn deep() -> Value {
    let child = |workflow: &str| json!({ "kind": "WORKFLOW", "with": { "workflow": workflow } });
    json!({
        "workflows": {
            "bottom": { "nodes": { "call": once("/slow") } },
            "middle": { "nodes": { "each": each(json!([1]), "collect", &child("bottom")) } },
        },
        "nodes": { "down": child("middle") },
    })
}

struct Played {
    world: World,
    definition: DefinitionId,
    id: ExecutionId,
    process: Process,
}

impl Played {
    /// Starts a document, and waits until it calls `/slow`.
    async fn new(document: &Value) -> Played {
        let world = World::new().await;
        let definition = world.publish(document).await;
        let id = world.enqueue(definition, json!(null)).await;
        let process = world.process().await;
        world.dispatch(&process).await;
        let played = Played { world, definition, id, process };
        played.world.receiver.until_called("/slow", 1).await;
        played
    }

    async fn crash(mut self) -> Played {
        self.process = self.world.take_over(self.process).await;
        self
    }

    async fn ask_to_cancel(&self) {
        self.world.database.store.cancel(self.id, self.world.workspace, "test").await.expect("a cancel");
    }

    /// Every node of the tree and how it ended, from the root down.
    async fn nodes(&self) -> String {
        let sql = "SELECT n.node || CASE WHEN n.iteration > 0 THEN '/' || n.iteration ELSE '' END || ' ' || n.status
                     FROM workflow_execution_node n JOIN workflow_execution e ON e.id = n.execution_id
                    WHERE e.root = $1 ORDER BY e.depth, n.node, n.iteration";
        let rows = self.world.database.client().await.query(sql, &[&self.id.0]).await.expect("nodes");
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join(", ")
    }

    async fn again(&mut self, resolve: &[(&str, Resolution)]) -> Result<(), RerunError> {
        self.id = self.world.rerun_resolved(self.id, self.definition, "failed", resolve).await?;
        self.world.dispatch(&self.process).await;
        Ok(())
    }
}

const ALL_UNKNOWN: &str = "down UNKNOWN, each UNKNOWN, each/1 UNKNOWN, call UNKNOWN";

async fn reads_before_it_is_refreshed(mut played: Played) {
    assert_eq!(played.nodes().await, ALL_UNKNOWN);
    let down = NodeKey::new("down").expect("a good name");
    assert_eq!(played.again(&[]).await, Err(RerunError::Unresolved(down)));
    assert_eq!(played.world.receiver.calls("/slow"), 1, "it is not repeated automatically");
}

#[tokio::test]
async fn what_is_lost_below_is_not_known_of_the_root_and_is_made_again_when_a_person_says_so() {
    let mut played = Played::new(&deep()).await.crash().await;
    let ended = played.world.ended(played.id).await;
    let class = ended.error.map(|error| error["type"].clone());
    assert_eq!((ended.status, class), (Status::Failed, Some(json!("RESULT_UNKNOWN"))));
    let failed = played.id;
    assert_eq!(played.nodes().await, ALL_UNKNOWN);

    played.again(&[("down", Resolution::Done)]).await.expect("something to run");
    assert_eq!(played.world.ended(played.id).await.status, Status::Completed);
    assert_eq!((played.nodes().await.as_str(), played.world.receiver.calls("/slow")), ("down COMPLETED", 1));

    played.id = failed;
    played.again(&[("down", Resolution::Repeat)]).await.expect("something to run");
    played.world.receiver.until_called("/slow", 2).await;
    played.process.engine.drop_all();
}

#[tokio::test]
async fn a_cancel_of_what_is_in_flight_leaves_it_unknown_all_the_way_up() {
    let played = Played::new(&deep()).await;
    played.ask_to_cancel().await;
    played.process.engine.cancel(played.id);
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled, "the cancel comes first");
    reads_before_it_is_refreshed(played).await;
}

#[tokio::test]
async fn a_deadline_leaves_what_is_in_flight_unknown() {
    let mut document = deep();
    document["timeout"] = json!("1s");
    let played = Played::new(&document).await;
    assert_eq!(played.world.ended(played.id).await.status, Status::TimedOut);
    reads_before_it_is_refreshed(played).await;
}

#[tokio::test]
async fn a_forced_end_leaves_what_is_in_flight_unknown() {
    let played = Played::new(&deep()).await;
    played.world.database.store.terminate(played.id, played.world.workspace, "test").await.expect("fenced");
    played.process.engine.terminate(played.id);
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled);
    reads_before_it_is_refreshed(played).await;
}

/// The next owner finds the call that was in flight before it stops the run.
#[tokio::test]
async fn a_run_that_is_resumed_to_be_canceled_settles_what_its_process_left_in_flight() {
    let played = Played::new(&deep()).await;
    played.process.engine.drop_all();
    played.ask_to_cancel().await;
    let played = played.crash().await;
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled);
    reads_before_it_is_refreshed(played).await;
}

#[tokio::test]
async fn a_child_that_is_canceled_on_its_own_is_not_known_either() {
    let played = Played::new(&deep()).await;
    let sql = "SELECT id FROM workflow_execution WHERE depth = 1";
    let row = played.world.database.client().await.query_one(sql, &[]).await.expect("the child");
    let child = ExecutionId(row.get(0));
    played.world.database.store.cancel(child, played.world.workspace, "test").await.expect("a cancel");
    played.process.engine.signal(played.id);
    let ended = played.world.ended(played.id).await;
    let class = ended.error.map(|error| error["type"].clone());
    assert_eq!((ended.status, class), (Status::Failed, Some(json!("RESULT_UNKNOWN"))));
    assert_eq!(played.nodes().await, ALL_UNKNOWN);
}

/// How many calls of one workspace a process makes at once: a quarter of all permits.
const AT_ONCE: usize = 25;

/// This many calls side by side. The last ones wait for a permit or for room.
async fn side_by_side(count: usize) -> Played {
    let nodes = (0..count).map(|n| {
        let mut call = once("/slow");
        call["needs"] = json!("start");
        (format!("c{n}"), call)
    });
    let mut nodes: serde_json::Map<String, Value> = nodes.collect();
    nodes.insert("start".to_owned(), json!({ "kind": "LOG", "with": { "message": "start" } }));
    let world = World::new().await;
    let definition = world.publish(&json!({ "nodes": nodes })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    let played = Played { world, definition, id, process };
    played.world.receiver.until_called("/slow", AT_ONCE).await;
    played
}

impl Played {
    /// How many nodes are UNKNOWN, and how many are CANCELED.
    async fn unknown_and_canceled(&self) -> (i64, i64) {
        let sql = "SELECT count(*) FILTER (WHERE status = 'UNKNOWN'), count(*) FILTER (WHERE status = 'CANCELED') FROM workflow_execution_node";
        let row = self.world.database.client().await.query_one(sql, &[]).await.expect("counts");
        (row.get(0), row.get(1))
    }
}

#[tokio::test]
async fn what_only_waits_for_a_permit_or_for_room_is_canceled() {
    let played = side_by_side(70).await;
    played.ask_to_cancel().await;
    played.process.engine.cancel(played.id);
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled);
    assert_eq!(played.unknown_and_canceled().await, (25, 45));
    assert_eq!(played.world.receiver.calls("/slow"), AT_ONCE);
}

#[tokio::test]
async fn a_shutdown_leaves_what_only_waits_for_a_permit_to_the_next_process() {
    let played = side_by_side(30).await;
    played.process.engine.drain(Duration::from_millis(50)).await;
    let played = played.crash().await;
    played.world.receiver.until_called("/slow", 30).await;
    assert_eq!(played.unknown_and_canceled().await, (25, 0), "only calls that were sent are unknown");
    played.process.engine.drop_all();
}

#[tokio::test]
async fn a_forced_end_cancels_what_only_waits_for_a_permit() {
    let played = side_by_side(30).await;
    played.world.database.store.terminate(played.id, played.world.workspace, "test").await.expect("fenced");
    played.process.engine.terminate(played.id);
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled);
    assert_eq!(played.unknown_and_canceled().await.0, 25);
}

/// Waits until somebody has tried to read a workspace's rules here.
async fn until_asked_for_rules(rules: &Database) {
    let client = rules.client().await;
    let asked = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle' AND query <> ''";
    until("the rules are asked for", async || {
        client.query_one(asked, &[]).await.expect("a count").get::<_, i64>(0) > 0
    })
    .await;
}

/// Rules that cannot be read: there is no such table.
#[tokio::test]
async fn a_call_is_not_recorded_as_begun_before_the_rules_of_its_workspace_are_read() {
    let world = World::new().await;
    let definition = world.publish(&json!({ "nodes": { "call": once("/ok") } })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let rules = Database::empty().await;
    let process = world.process_ruled_by(rules.store.clone()).await;
    world.dispatch(&process).await;
    until_asked_for_rules(&rules).await;
    let played = Played { world, definition, id, process };
    assert_eq!(played.nodes().await, "", "it recorded nothing");
    let played = played.crash().await;
    assert_eq!(played.world.ended(id).await.status, Status::Completed, "the next process makes the call");
    assert_eq!(played.world.receiver.calls("/ok"), 1);
}

#[tokio::test]
async fn a_shutdown_leaves_a_call_that_waits_for_the_rules_of_its_workspace_to_the_next_process() {
    let world = World::new().await;
    let definition = world.publish(&json!({ "nodes": { "call": once("/ok") } })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let rules = Database::empty().await;
    let process = world.process_ruled_by(rules.store.clone()).await;
    world.dispatch(&process).await;
    until_asked_for_rules(&rules).await;
    process.engine.drain(Duration::from_secs(60)).await;
    let played = Played { world, definition, id, process }.crash().await;
    assert_eq!(played.world.ended(id).await.status, Status::Completed);
    assert_eq!(played.world.receiver.calls("/ok"), 1);
}

/// Items that completed, failed and were skipped, then one that is lost, then one that was not begun.
async fn lost_in_a_loop(mode: &str) -> Played {
    let mut does = once("/${{ item }}");
    does["if"] = json!("item != 'no'");
    let items = json!(["ok/1", "status/400", "no", "slow", "ok/5"]);
    let items = if mode == "fail" { json!(["ok/1", "ok/2", "no", "slow", "ok/5"]) } else { items };
    let after = json!({ "kind": "TRANSFORM", "needs": "each", "with": { "value": "${{ nodes.each.output }}" } });
    let document = json!({ "nodes": { "each": each(items, mode, &does), "after": after } });
    let played = Played::new(&document).await.crash().await;
    assert_eq!(played.world.ended(played.id).await.status, Status::Failed);
    played
}

impl Played {
    /// How often each item was called.
    fn calls(&self) -> [usize; 5] {
        ["/ok/1", "/ok/2", "/status/400", "/slow", "/ok/5"].map(|path| self.world.receiver.calls(path))
    }
}

#[tokio::test]
async fn a_loop_goes_on_after_an_item_that_took_effect() {
    let mut played = lost_in_a_loop("collect").await;
    assert_eq!(played.calls(), [1, 0, 1, 1, 0]);
    played.again(&[("each", Resolution::Done)]).await.expect("something to run");
    assert_eq!(played.world.ended(played.id).await.status, Status::Completed);
    assert_eq!(played.calls(), [1, 0, 1, 1, 1], "only unfinished items are called again");
    assert_eq!(
        played.nodes().await,
        "after COMPLETED, each COMPLETED, each/1 COMPLETED, each/2 FAILED, each/3 SKIPPED, each/4 COMPLETED, each/5 COMPLETED"
    );
    let nodes = played.world.database.store.nodes(played.id).await.expect("nodes");
    let each = nodes.iter().find(|row| row.node == "each").expect("the loop");
    let output = each.output.clone().expect("an output");
    assert_eq!((&output["count"], &output["failed"], &output["items"][3]), (&json!(5), &json!(1), &Value::Null));
    assert_eq!(output["items"][4]["body"]["path"], json!("/ok/5"));
    assert!(each.started_at.is_some(), "the resumed loop has a start time");
}

#[tokio::test]
async fn a_loop_goes_on_with_an_item_that_did_not_take_effect() {
    let mut played = lost_in_a_loop("fail").await;
    assert_eq!(played.calls(), [1, 1, 0, 1, 0]);
    played.again(&[("each", Resolution::Repeat)]).await.expect("something to run");
    played.world.receiver.until_called("/slow", 2).await;
    // A crash on the way changes nothing: the item is lost again, and the kept items stay.
    let mut played = played.crash().await;
    assert_eq!(played.world.ended(played.id).await.status, Status::Failed);
    played.again(&[("each", Resolution::Done)]).await.expect("something to run");
    assert_eq!(played.world.ended(played.id).await.status, Status::Completed);
    assert_eq!(played.calls(), [1, 1, 0, 2, 1]);
}

#[tokio::test]
async fn a_loop_that_was_canceled_before_it_went_on_keeps_what_it_kept() {
    let mut played = lost_in_a_loop("fail").await;
    played.id = played
        .world
        .rerun_resolved(played.id, played.definition, "failed", &[("each", Resolution::Done)])
        .await
        .expect("");
    played.ask_to_cancel().await;
    assert_eq!(played.world.ended(played.id).await.status, Status::Canceled, "before any process resumed it");
    played.again(&[]).await.expect("something to run");
    assert_eq!(played.world.ended(played.id).await.status, Status::Completed);
    assert_eq!(played.calls(), [1, 1, 0, 1, 1]);
}

#[tokio::test]
async fn what_took_effect_last_is_all_there_was_to_do() {
    let mut played = Played::new(&json!({ "nodes": { "call": once("/slow") } })).await.crash().await;
    assert_eq!(played.world.ended(played.id).await.status, Status::Failed);
    played.again(&[("call", Resolution::Done)]).await.expect("something to run");
    assert_eq!(played.world.ended(played.id).await.status, Status::Completed);
    assert_eq!(played.world.receiver.calls("/slow"), 1);
}
