//! Waits of children and of loops are fenced by their root and by their own execution. The root is locked first, and an
//! answer that no run would read is refused.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ExecutionId, NodeKey, WorkspaceId};
use kernel::signals::trace::TraceParent;
use serde_json::{Value, json};
use store::run::Record;
use store::run::attempt::Ownership;
use store::run::child::{ChildState, NewChild, ParentAttempt as Child};
use store::wait::task::TaskRequest;
use store::wait::{AnswerOutcome, NewWait, WaitKey, WaitKind};
use uuid::Uuid;

use crate::support::{ENGINE, World, end, record};

struct Tree {
    world: World,
    hold: Ownership,
    workspace: WorkspaceId,
    child: ExecutionId,
    /// The child as its parent's run sees it.
    begun: store::queue::claim::Begun,
}

impl Tree {
    /// A root and a child with this id.
    async fn new(child: Uuid) -> Tree {
        let world = World::new().await;
        let (workspace, definition) = world.tenant("FREE").await;
        world.accept_many(workspace, definition, 1).await;
        let root = world.run(workspace, 1).await.remove(0);
        let hold = Ownership { execution: root.execution, owner: world.me, epoch: root.epoch };
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
        let place = Child { execution: root.execution, node: key("call"), iteration: 0, attempt: 1 };
        match world.store.spawn_child(hold, &place, &new).await.expect("an answer") {
            Some(ChildState::Running { begun, .. }) => Tree { world, hold, workspace, child: execution, begun: *begun },
            other => panic!("{other:?}"),
        }
    }

    fn new_wait(&self, what: WaitKind) -> NewWait {
        let place = WaitKey { execution: self.child, node: key("work"), iteration: 0 };
        NewWait { key: place, workspace: self.workspace, attempt: 1, kind: what, input: json!({}), expires_in: None }
    }
}

fn key(name: &str) -> NodeKey {
    NodeKey::new(name).expect("a key")
}

fn wait() -> WaitKind {
    WaitKind::Wait { event: None, matches: None }
}

fn task() -> WaitKind {
    WaitKind::Task { queue: "mail".to_owned(), lease: Duration::from_secs(60) }
}

#[tokio::test]
async fn an_ended_child_and_one_of_another_tree_open_no_wait() {
    let tree = Tree::new(store::new_id()).await;
    let Tree { world, hold, child, .. } = &tree;
    assert!(world.store.open_wait(*hold, &tree.new_wait(wait())).await.expect("an answer").is_some(), "it runs");
    let over = record(&tree.begun, vec![]);
    let end = Some(end(Status::Canceled));
    let over = Record { execution: *child, holder: hold.execution, epoch: hold.epoch, end, ..over };
    let outcome = world.store.record(world.me, &[over], "test").await.expect("a record");
    assert!(outcome[0].held && outcome[0].ended);
    let mut late = tree.new_wait(task());
    late.key.node = key("later");
    assert_eq!(world.store.open_wait(*hold, &late).await.expect("an answer"), None, "the execution has ended");
    let (_, other) = crate::waits::held(world).await;
    let (stranger, _) = crate::waits::held(world).await;
    let foreign = NewWait {
        key: WaitKey { execution: stranger.execution, ..late.key },
        workspace: other,
        ..tree.new_wait(task())
    };
    assert_eq!(
        world.store.open_wait(*hold, &foreign).await.expect("an answer"),
        None,
        "the execution is not below the holder"
    );
    assert_eq!(world.count("workflow_execution_wait WHERE node = 'later'").await, 0);
}

#[tokio::test]
async fn an_answer_locks_the_root_before_its_child_whatever_their_ids() {
    // An id below that of any root.
    let tree = Tree::new(Uuid::from_u128(7)).await;
    let opened = tree.new_wait(wait());
    tree.world.store.open_wait(tree.hold, &opened).await.expect("an answer").expect("held");
    let mut holder = tree.world.database.client().await;
    let held = holder.transaction().await.expect("a transaction");
    let lock = "SELECT id FROM workflow_execution WHERE id = $1 FOR UPDATE SKIP LOCKED";
    held.query_one(lock, &[&tree.hold.execution.0]).await.expect("the root");
    let (store, place) = (tree.world.store.clone(), opened.key.clone());
    let answer = tokio::spawn(async move { store.answer(&place, None, &json!(1), "ada").await });
    tree.world.somebody_is_blocked().await;
    let free = tree.world.client.query(lock, &[&tree.child.0]).await.expect("rows").len();
    assert_eq!(free, 1, "a session that waits for the root has not locked the child");
    held.commit().await.expect("a commit");
    assert!(matches!(answer.await.expect("a task").expect("an answer"), AnswerOutcome::Accepted(_)));
}

#[tokio::test]
async fn a_childs_worker_learns_that_its_root_is_being_canceled() {
    let tree = Tree::new(store::new_id()).await;
    let store = &tree.world.store;
    store.open_wait(tree.hold, &tree.new_wait(task())).await.expect("an answer").expect("held");
    let queues = ["mail".to_owned()];
    let wanted = TaskRequest { queues: &queues, worker: "w", most: 1, lease: None, workspace: None, after: None };
    let task = store.claim_tasks(&wanted).await.expect("a claim").0.remove(0);
    let claim = task.claim.expect("a claim");
    assert!(!store.heartbeat_task(task.id, None, claim, None).await.expect("kept").canceling);
    store.cancel(tree.hold.execution, tree.workspace, "ada").await.expect("a request");
    assert!(store.heartbeat_task(task.id, None, claim, None).await.expect("kept").canceling);
}

/// A node row as an engine leaves it.
#[tokio::test]
async fn a_root_whose_row_was_deleted_ends_its_children_and_closes_their_waits_and_tasks() {
    let tree = Tree::new(store::new_id()).await;
    let Tree { world, hold, child, workspace, .. } = &tree;
    let open = async |execution: ExecutionId, node: &str, what: WaitKind| {
        let place = WaitKey { execution, node: key(node), iteration: 0 };
        let new_wait = NewWait { key: place, ..tree.new_wait(what) };
        world.store.open_wait(*hold, &new_wait).await.expect("an answer").expect("held");
    };
    open(hold.execution, "approve", wait()).await;
    open(hold.execution, "mail", task()).await;
    open(*child, "approve", wait()).await;
    open(*child, "mail", task()).await;
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&hold.execution.0]).await;
    assert_eq!(world.store.fail_items_of_missing(&[hold.execution], "test").await.expect("an answer"), [*workspace]);
    assert_eq!(world.state(*child).await, "CANCELED, no item");
    assert_eq!(world.count("workflow_execution_wait WHERE status = 'CLOSED'").await, 4);
    assert_eq!(world.count("workflow_execution_wait").await, 4);
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
async fn an_answer_that_nobody_would_read_is_refused_with_the_reason() {
    let tree = Tree::new(store::new_id()).await;
    node(&tree, "skipped", 0, "SKIPPED", Value::Null).await;
    node(&tree, "kept", 0, "COMPLETED", Value::Null).await;
    node(&tree, "over", 0, "COMPLETED", json!({ "items": [1, 2] })).await;
    node(&tree, "loop", 0, "RUNNING", json!({ "items": [1, 2, 3] })).await;
    node(&tree, "loop", 1, "COMPLETED", Value::Null).await;
    for (name, iteration, expected) in [
        ("skipped", 0, AnswerOutcome::NodeSettled),
        ("kept", 0, AnswerOutcome::NodeSettled),
        ("over", 1, AnswerOutcome::NodeSettled),
        ("loop", 1, AnswerOutcome::NodeSettled),
        ("loop", 3, AnswerOutcome::Early),
        ("loop", 4, AnswerOutcome::NoSuchItem),
        ("not_begun", 9, AnswerOutcome::Early),
    ] {
        let place = WaitKey { execution: tree.child, node: key(name), iteration };
        let outcome = tree.world.store.answer(&place, None, &json!(1), "ada").await.expect("an answer");
        assert_eq!(outcome, expected, "{name} {iteration}");
    }
    // A wait that was opened, and whose node was canceled since.
    let opened = tree.new_wait(wait());
    tree.world.store.open_wait(tree.hold, &opened).await.expect("an answer").expect("held");
    node(&tree, "work", 0, "CANCELED", Value::Null).await;
    assert_eq!(
        tree.world.store.answer(&opened.key, None, &json!(1), "ada").await.expect("an answer"),
        AnswerOutcome::NodeSettled
    );
    assert_eq!(tree.world.count("workflow_execution_wait WHERE status = 'ANSWERED'").await, 2);
}
