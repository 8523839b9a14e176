//! Asks of children and of loops: fenced by their root and by themselves, locked root first, and refused where nobody
//! would hear.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ExecutionId, NodeKey, WorkspaceId};
use kernel::signals::trace::TraceParent;
use serde_json::{Value, json};
use store::run::Record;
use store::run::attempt::Hold;
use store::run::child::{NewChild, Place as Child, Spawned};
use store::wait::task::Wanted;
use store::wait::{Ask, Place, Told, What};
use uuid::Uuid;

use crate::support::{ENGINE, World, end, record};

struct Tree {
    world: World,
    hold: Hold,
    workspace: WorkspaceId,
    child: ExecutionId,
    /// The child as its parent's run has it.
    begun: store::queue::claim::Begun,
}

impl Tree {
    /// A root and a child with this id.
    async fn new(child: Uuid) -> Tree {
        let world = World::new().await;
        let (workspace, definition) = world.tenant("FREE").await;
        world.accept_many(workspace, definition, 1).await;
        let root = world.run(workspace, 1).await.remove(0);
        let hold = Hold { execution: root.execution, owner: world.me, epoch: root.epoch };
        let execution = ExecutionId(child);
        let new = NewChild {
            execution,
            definition,
            version: root.version,
            input: json!({}),
            trigger: json!({}),
            timeout: None,
            trace: TraceParent::of_execution(execution),
            engine: ENGINE,
            begins: true,
        };
        let place = Child { parent: root.execution, node: key("call"), iteration: 0, attempt: 1 };
        match world.store.spawn_child(hold, &place, &new).await.expect("an answer") {
            Some(Spawned::Running { begun, .. }) => Tree { world, hold, workspace, child: execution, begun: *begun },
            other => panic!("{other:?}"),
        }
    }

    fn ask(&self, what: What) -> Ask {
        let place = Place { execution: self.child, node: key("work"), iteration: 0 };
        Ask { place, workspace: self.workspace, attempt: 1, what, input: json!({}), expires_in: None }
    }
}

fn key(name: &str) -> NodeKey {
    NodeKey::new(name).expect("a key")
}

fn wait() -> What {
    What::Wait { event: None, matches: None }
}

fn task() -> What {
    What::Task { queue: "mail".to_owned(), lease: Duration::from_secs(60) }
}

#[tokio::test]
async fn a_child_that_ended_asks_nothing_and_one_of_another_tree_neither() {
    let tree = Tree::new(store::new_id()).await;
    let Tree { world, hold, child, .. } = &tree;
    assert!(world.store.ask(*hold, &tree.ask(wait())).await.expect("an answer").is_some(), "it runs");
    let over = record(&tree.begun, vec![]);
    let end = Some(end(Status::Canceled));
    let over = Record { execution: *child, holder: hold.execution, epoch: hold.epoch, end, ..over };
    let told = world.store.record(world.me, &[over], "test").await.expect("a record");
    assert!(told[0].held && told[0].ended);
    let mut late = tree.ask(task());
    late.place.node = key("later");
    assert_eq!(world.store.ask(*hold, &late).await.expect("an answer"), None, "it is over");
    let (_, other) = crate::asks::held(world).await;
    let (stranger, _) = crate::asks::held(world).await;
    let foreign =
        Ask { place: Place { execution: stranger.execution, ..late.place }, workspace: other, ..tree.ask(task()) };
    assert_eq!(world.store.ask(*hold, &foreign).await.expect("an answer"), None, "it is not below the holder");
    assert_eq!(world.count("workflow_execution_ask WHERE node = 'later'").await, 0);
}

#[tokio::test]
async fn an_answer_locks_the_root_before_its_child_whatever_their_ids() {
    // An id below that of any root.
    let tree = Tree::new(Uuid::from_u128(7)).await;
    let asked = tree.ask(wait());
    tree.world.store.ask(tree.hold, &asked).await.expect("an answer").expect("held");
    let mut holder = tree.world.database.client().await;
    let held = holder.transaction().await.expect("a transaction");
    let lock = "SELECT id FROM workflow_execution WHERE id = $1 FOR UPDATE SKIP LOCKED";
    held.query_one(lock, &[&tree.hold.execution.0]).await.expect("the root");
    let (store, place) = (tree.world.store.clone(), asked.place.clone());
    let answer = tokio::spawn(async move { store.answer(&place, None, &json!(1), "ada").await });
    tree.world.somebody_is_blocked().await;
    let free = tree.world.client.query(lock, &[&tree.child.0]).await.expect("rows").len();
    assert_eq!(free, 1, "whoever waits for the root has not locked the child");
    held.commit().await.expect("a commit");
    assert!(matches!(answer.await.expect("a task").expect("an answer"), Told::Accepted(_)));
}

#[tokio::test]
async fn a_worker_of_a_child_hears_that_its_root_is_to_end() {
    let tree = Tree::new(store::new_id()).await;
    let store = &tree.world.store;
    store.ask(tree.hold, &tree.ask(task())).await.expect("an answer").expect("held");
    let queues = ["mail".to_owned()];
    let wanted = Wanted { queues: &queues, worker: "w", most: 1, lease: None, workspace: None, after: None };
    let task = store.claim_tasks(&wanted).await.expect("a claim").0.remove(0);
    let claim = task.claim.expect("a claim");
    assert!(!store.keep_task(task.id, None, claim, None).await.expect("kept").canceling);
    store.cancel(tree.hold.execution, tree.workspace, "ada").await.expect("a request");
    assert!(store.keep_task(task.id, None, claim, None).await.expect("kept").canceling);
}

/// A node row as an engine leaves it.
#[tokio::test]
async fn a_root_whose_row_was_deleted_ends_its_children_and_closes_their_waits_and_tasks() {
    let tree = Tree::new(store::new_id()).await;
    let Tree { world, hold, child, workspace, .. } = &tree;
    let asked = async |execution: ExecutionId, node: &str, what: What| {
        let place = Place { execution, node: key(node), iteration: 0 };
        let ask = Ask { place, ..tree.ask(what) };
        world.store.ask(*hold, &ask).await.expect("an answer").expect("held");
    };
    asked(hold.execution, "approve", wait()).await;
    asked(hold.execution, "mail", task()).await;
    asked(*child, "approve", wait()).await;
    asked(*child, "mail", task()).await;
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&hold.execution.0]).await;
    assert_eq!(world.store.lose(&[hold.execution], "test").await.expect("an answer"), [*workspace]);
    assert_eq!(world.state(*child).await, "CANCELED, no ticket");
    assert_eq!(world.count("workflow_execution_ask WHERE status = 'CLOSED'").await, 4);
    assert_eq!(world.count("workflow_execution_ask").await, 4);
}

async fn node(tree: &Tree, name: &str, iteration: i32, status: &str, input: Value) {
    let sql = "INSERT INTO workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt, seq, input, started_at,
            completed_at, duration_ms)
        SELECT $1, $2, $3, $4, $5::text, 1, s.seq, $6, CASE WHEN $5::text <> 'SKIPPED' THEN now() END,
               CASE WHEN s.seq IS NOT NULL THEN now() END, CASE WHEN s.seq IS NOT NULL THEN 0 END
          FROM (SELECT CASE WHEN $5::text <> 'RUNNING' THEN 1::bigint END AS seq) s";
    let (execution, workspace) = (tree.child.0, tree.workspace.0);
    tree.world.run_sql(sql, &[&execution, &name, &iteration, &workspace, &status, &input]).await;
}

#[tokio::test]
async fn an_answer_that_nobody_would_hear_is_refused_and_says_why() {
    let tree = Tree::new(store::new_id()).await;
    node(&tree, "skipped", 0, "SKIPPED", Value::Null).await;
    node(&tree, "kept", 0, "COMPLETED", Value::Null).await;
    node(&tree, "over", 0, "COMPLETED", json!({ "items": [1, 2] })).await;
    node(&tree, "loop", 0, "RUNNING", json!({ "items": [1, 2, 3] })).await;
    node(&tree, "loop", 1, "COMPLETED", Value::Null).await;
    for (name, iteration, expected) in [
        ("skipped", 0, Told::Settled),
        ("kept", 0, Told::Settled),
        ("over", 1, Told::Settled),
        ("loop", 1, Told::Settled),
        ("loop", 3, Told::Early),
        ("loop", 4, Told::Past),
        ("not_begun", 9, Told::Early),
    ] {
        let place = Place { execution: tree.child, node: key(name), iteration };
        let told = tree.world.store.answer(&place, None, &json!(1), "ada").await.expect("an answer");
        assert_eq!(told, expected, "{name} {iteration}");
    }
    // One that was asked and whose node was stopped since.
    let asked = tree.ask(wait());
    tree.world.store.ask(tree.hold, &asked).await.expect("an answer").expect("held");
    node(&tree, "work", 0, "CANCELED", Value::Null).await;
    assert_eq!(tree.world.store.answer(&asked.place, None, &json!(1), "ada").await.expect("an answer"), Told::Settled);
    assert_eq!(tree.world.count("workflow_execution_ask WHERE status = 'ANSWERED'").await, 2);
}
