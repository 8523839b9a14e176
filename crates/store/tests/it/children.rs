//! Child executions are created once, fenced by the owner of their root, limited in number, and end with their parent.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, NodeKey, VersionId};
use kernel::kind::workflow::MAX_DEPTH;
use kernel::run::node;
use kernel::signals::trace::TraceParent;
use serde_json::json;
use store::execution::Canceled;
use store::queue::claim::Begun;
use store::run::attempt::Ownership;
use store::run::child::{ChildRefusal, ChildState, NewChild, ParentAttempt};
use store::run::{NodeFact, Record};
use store::{Error, new_id};
use uuid::Uuid;

use crate::support::{ENGINE, World, end, fact, race, record};

struct Tree {
    world: World,
    root: Begun,
    definition: DefinitionId,
}

impl Tree {
    async fn new() -> Tree {
        let world = World::new().await;
        let (workspace, definition) = world.tenant("FREE").await;
        world.accept_many(workspace, definition, 1).await;
        let root = world.run(workspace, 1).await.remove(0);
        Tree { world, root, definition }
    }

    fn hold(&self) -> Ownership {
        Ownership { execution: self.root.execution, owner: self.world.me, epoch: self.root.epoch }
    }

    fn place(&self, parent: ExecutionId, iteration: i32) -> ParentAttempt {
        ParentAttempt { execution: parent, node: NodeKey::new("call").expect("a key"), iteration, attempt: 1 }
    }

    fn new_child(&self) -> NewChild {
        let execution = ExecutionId(new_id());
        NewChild {
            execution,
            definition: self.definition,
            version: self.root.version,
            input: json!({ "n": 1 }),
            trigger: json!({ "type": "workflow" }),
            timeout: Some(Duration::from_secs(60)),
            trace: TraceParent::of_execution(execution),
            engine: ENGINE,
            begins: true,
        }
    }

    async fn spawn(&self, parent: ExecutionId, iteration: i32) -> Begun {
        let place = self.place(parent, iteration);
        match self.world.store.spawn_child(self.hold(), &place, &self.new_child()).await.expect("an answer") {
            Some(ChildState::Running { begun, .. }) => *begun,
            other => panic!("{other:?}"),
        }
    }

    fn below(&self, child: &Begun, record: Record) -> Record {
        Record { execution: child.execution, holder: self.root.execution, epoch: self.root.epoch, ..record }
    }
}

#[tokio::test]
async fn a_node_has_one_child_however_often_it_is_performed() {
    let tree = Tree::new().await;
    let place = tree.place(tree.root.execution, 0);
    let (hold, new_child) = (tree.hold(), tree.new_child());
    let result = race(&tree.world.store, 6, |_, store| {
        let (place, new) = (place.clone(), NewChild { execution: ExecutionId(new_id()), ..new_child.clone() });
        async move {
            match store.spawn_child(hold, &place, &new).await.expect("an answer") {
                Some(ChildState::Running { begun, made, .. }) => (begun.execution, made),
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    assert_eq!(result.iter().filter(|(_, made)| *made).count(), 1);
    assert!(result.iter().all(|(id, _)| *id == result[0].0), "{result:?}");
    assert_eq!(
        tree.world.count("workflow_execution WHERE parent IS NOT NULL AND status = 'RUNNING' AND owner IS NULL").await,
        1
    );
    assert_eq!(tree.world.count("workflow_execution WHERE descendants = 1 AND parent IS NULL").await, 1);
    assert_eq!(tree.world.count("execution_queue").await, 1, "it has no queue item");
    let again = ParentAttempt { attempt: 2, ..place };
    let next = tree.world.store.spawn_child(hold, &again, &tree.new_child()).await.expect("an answer");
    assert!(matches!(next, Some(ChildState::Running { made: true, .. })), "each attempt has its own child: {next:?}");
}

#[tokio::test]
async fn a_child_ends_no_later_than_its_parent_may() {
    let tree = Tree::new().await;
    let soon = "UPDATE workflow_execution SET deadline_at = now() + interval '20 seconds' WHERE id = $1";
    tree.world.run_sql(soon, &[&tree.root.execution.0]).await;
    let child = tree.spawn(tree.root.execution, 0).await;
    assert!(child.deadline_in <= Duration::from_secs(20), "{:?}", child.deadline_in);
    assert_eq!(child.workspace, tree.root.workspace);
}

#[tokio::test]
async fn a_childs_record_is_fenced_by_its_roots_owner() {
    let tree = Tree::new().await;
    let child = tree.spawn(tree.root.execution, 0).await;
    let done = || tree.below(&child, record(&child, vec![fact("a", node::Status::Completed)]));
    let store = &tree.world.store;
    for stranger in [
        Record { epoch: tree.root.epoch + 1, ..done() },
        Record { holder: child.execution, ..done() },
        Record { execution: ExecutionId(new_id()), ..done() },
    ] {
        assert!(!store.record(tree.world.me, &[stranger], "test").await.expect("an answer")[0].held);
    }
    let both = [record(&tree.root, vec![fact("call", node::Status::Running)]), done()];
    let result = store.record(tree.world.me, &both, "test").await.expect("an answer");
    assert!(result.iter().all(|result| result.held && !result.ended), "{result:?}");
    let progress = "workflow_execution WHERE parent IS NULL AND last_seq = 0 AND tree_seq = 1";
    assert_eq!(tree.world.count(progress).await, 1, "it counts as progress of its root");

    let last = Record { end: Some(end(Status::Completed)), ..done() };
    let result = store.record(tree.world.me, std::slice::from_ref(&last), "test").await.expect("an answer")[0];
    assert_eq!((result.held, result.ended, result.freed), (true, true, None), "a child frees no slot");
    assert_eq!(tree.world.state(tree.root.execution).await, "RUNNING, DISPATCHED");
    assert!(!store.record(tree.world.me, &[last], "test").await.expect("an answer")[0].held, "the execution has ended");
    match store.find_child(tree.hold(), &tree.place(tree.root.execution, 0)).await.expect("an answer") {
        Some(ChildState::Ended { execution, end, unknown: false }) => {
            assert_eq!((execution, end.outcome), (child.execution, Status::Completed));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn only_the_holder_makes_a_child_and_finding_makes_none() {
    let tree = Tree::new().await;
    let place = tree.place(tree.root.execution, 0);
    let store = &tree.world.store;
    let found = store.find_child(tree.hold(), &place).await.expect("an answer");
    assert!(matches!(found, Some(ChildState::Missing)), "{found:?}");
    let late = Ownership { epoch: tree.root.epoch - 1, ..tree.hold() };
    assert!(store.spawn_child(late, &place, &tree.new_child()).await.expect("an answer").is_none());
    let elsewhere = tree.place(ExecutionId(new_id()), 0);
    assert!(store.spawn_child(tree.hold(), &elsewhere, &tree.new_child()).await.expect("an answer").is_none());
    assert_eq!(tree.world.count("workflow_execution WHERE parent IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_tree_is_neither_too_deep_nor_too_wide() {
    let tree = Tree::new().await;
    let store = &tree.world.store;
    let mut parent = tree.root.execution;
    for _ in 0..MAX_DEPTH {
        parent = tree.spawn(parent, 0).await.execution;
    }
    let deeper = store.spawn_child(tree.hold(), &tree.place(parent, 0), &tree.new_child()).await.expect("an answer");
    assert!(matches!(deeper, Some(ChildState::Refused(ChildRefusal::TooDeep))), "{deeper:?}");
    let full = "UPDATE workflow_execution SET descendants = 20000 WHERE id = $1";
    tree.world.run_sql(full, &[&tree.root.execution.0]).await;
    let place = tree.place(tree.root.execution, 7);
    let wider = store.spawn_child(tree.hold(), &place, &tree.new_child()).await.expect("an answer");
    assert!(matches!(wider, Some(ChildState::Refused(ChildRefusal::TooMany))), "{wider:?}");
    let known = store.spawn_child(tree.hold(), &tree.place(tree.root.execution, 0), &tree.new_child()).await;
    assert!(
        matches!(known.expect("an answer"), Some(ChildState::Running { made: false, .. })),
        "an existing child is found"
    );
}

/// A root whose node made a child, whose loop performs a node at most once, beside nodes that may be repeated.
#[tokio::test]
async fn an_unknown_result_in_a_child_makes_every_node_above_it_unknown() {
    for once in [false, true] {
        let tree = Tree::new().await;
        let child = tree.spawn(tree.root.execution, 0).await;
        let running = |node: &str, iteration| NodeFact { iteration, ..fact(node, node::Status::Running) };
        let item = NodeFact { once, ..running("each", 2) };
        let waits = NodeFact { next_in: Some(Duration::from_secs(60)), ..fact("later", node::Status::Retrying) };
        let below = vec![running("each", 0), running("each", 1), item, running("other", 0), waits];
        let records = [
            record(&tree.root, vec![running("call", 0), running("beside", 0)]),
            tree.below(&child, record(&child, below)),
        ];
        let store = &tree.world.store;
        store.record(tree.world.me, &records, "test").await.expect("an answer");
        let last = Record { end: Some(end(Status::Canceled)), ..record(&tree.root, vec![]) };
        assert!(store.record(tree.world.me, &[last], "test").await.expect("an answer")[0].ended);
        let sql = "SELECT node || iteration FROM workflow_execution_node WHERE status = $1 ORDER BY 1";
        let mut result = Vec::new();
        for status in ["UNKNOWN", "CANCELED"] {
            let rows = tree.world.client.query(sql, &[&status]).await.expect("nodes");
            result.push(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join(" "));
        }
        let expected = match once {
            true => ["call0 each0 each2", "beside0 each1 later0 other0"],
            false => ["", "beside0 call0 each0 each1 each2 later0 other0"],
        };
        assert_eq!(result, expected);
        let known =
            "workflow_execution_node WHERE status = 'UNKNOWN' AND error ->> 'type' IS DISTINCT FROM 'RESULT_UNKNOWN'";
        assert_eq!(tree.world.count(known).await, 0, "each says so");
    }
}

#[tokio::test]
async fn the_end_of_a_root_ends_what_is_open_below_it() {
    for forced in [false, true] {
        let tree = Tree::new().await;
        let child = tree.spawn(tree.root.execution, 0).await;
        let over = tree.spawn(tree.root.execution, 1).await;
        let grandchild = tree.spawn(child.execution, 0).await;
        let store = &tree.world.store;
        let open = tree.below(&grandchild, record(&grandchild, vec![fact("a", node::Status::Running)]));
        let ended = Record { end: Some(end(Status::Completed)), ..tree.below(&over, record(&over, vec![])) };
        store.record(tree.world.me, &[open, ended], "test").await.expect("an answer");
        if forced {
            store.terminate(tree.root.execution, tree.root.workspace, "test").await.expect("fenced");
            let sql = "UPDATE workflow_execution SET owner = NULL WHERE parent IS NULL";
            tree.world.run_sql(sql, &[]).await;
            store.terminate(tree.root.execution, tree.root.workspace, "test").await.expect("ended");
        } else {
            let last = Record { end: Some(end(Status::Failed)), ..record(&tree.root, vec![]) };
            assert!(store.record(tree.world.me, &[last], "test").await.expect("an answer")[0].ended);
        }
        let below = "workflow_execution WHERE parent IS NOT NULL AND status =";
        assert_eq!(tree.world.count(&format!("{below} 'CANCELED'")).await, 2, "forced: {forced}");
        assert_eq!(tree.world.count(&format!("{below} 'COMPLETED'")).await, 1, "an ended execution is unchanged");
        assert_eq!(tree.world.count("workflow_execution_node WHERE status = 'CANCELED'").await, 1, "its nodes too");
        assert_eq!(tree.world.count("execution_queue WHERE stage = 5").await, 0);
    }
}

#[tokio::test]
async fn the_end_of_a_child_ends_what_is_open_below_it_and_nothing_beside_it() {
    let tree = Tree::new().await;
    let child = tree.spawn(tree.root.execution, 0).await;
    let beside = tree.spawn(tree.root.execution, 1).await;
    let grandchild = tree.spawn(child.execution, 0).await;
    let failed = Record { end: Some(end(Status::Failed)), ..tree.below(&child, record(&child, vec![])) };
    tree.world.store.record(tree.world.me, &[failed], "test").await.expect("an answer");
    let status = async |id: ExecutionId| tree.world.store.execution(id, None).await.expect("it").status;
    assert_eq!(status(grandchild.execution).await, Status::Canceled);
    assert_eq!(status(beside.execution).await, Status::Running);
    assert_eq!(status(tree.root.execution).await, Status::Running);
}

#[tokio::test]
async fn a_child_is_canceled_through_its_root_and_never_terminated() {
    let tree = Tree::new().await;
    let child = tree.spawn(tree.root.execution, 0).await;
    let store = &tree.world.store;
    let refused = store.terminate(child.execution, child.workspace, "test").await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let result = store.cancel(child.execution, child.workspace, "test").await.expect("an answer");
    assert_eq!(result, Canceled::Requested(Some(tree.world.me)), "its root's owner has to stop it");
    assert_eq!(store.canceling_below(tree.root.execution).await.expect("an answer"), [child.execution]);
    assert_eq!(tree.world.count("run_request WHERE execution_id = root AND wake_at <= now()").await, 1);
    assert_eq!(tree.world.count("run_request WHERE execution_id <> root AND wake_at IS NOT NULL").await, 0);
    assert_eq!(tree.world.count("workflow_execution WHERE cancel_requested_at IS NOT NULL").await, 1, "it alone");
}

#[tokio::test]
async fn the_loops_see_only_roots() {
    let tree = Tree::new().await;
    let child = tree.spawn(tree.root.execution, 0).await;
    let store = &tree.world.store;
    let late = "UPDATE workflow_execution SET deadline_at = now() - interval '1 second' WHERE parent IS NOT NULL";
    tree.world.run_sql(late, &[]).await;
    assert_eq!(store.overdue_executions().await.expect("an answer"), [], "a child is ended by its root");
    assert_eq!(
        store.owned_runs(tree.world.me, ENGINE).await.expect("an answer"),
        [(tree.root.execution, tree.root.epoch)]
    );
    let park = Record { park: Some(Duration::from_secs(60)), ..record(&tree.root, vec![]) };
    assert!(store.record(tree.world.me, &[park], "test").await.expect("an answer")[0].held);
    assert_eq!(store.wake_due(tree.world.me, ENGINE, 10).await.expect("an answer"), []);
    store.cancel(child.execution, child.workspace, "test").await.expect("an answer");
    assert_eq!(store.wake_due(tree.world.me, ENGINE, 10).await.expect("an answer"), [tree.root.execution]);
}

#[tokio::test]
async fn a_child_that_runs_elsewhere_begins_while_its_root_runs() {
    let tree = Tree::new().await;
    let new = NewChild { begins: false, ..tree.new_child() };
    let place = tree.place(tree.root.execution, 0);
    let store = &tree.world.store;
    let made = store.spawn_child(tree.hold(), &place, &new).await.expect("an answer");
    assert!(matches!(made, Some(ChildState::Running { .. })), "{made:?}");
    assert_eq!(tree.world.count("workflow_execution WHERE status = 'PENDING' AND parent IS NOT NULL").await, 1);
    let run = kernel::ids::ProcessId(Uuid::now_v7());
    let begun =
        store.begin_on_engine(&[new.execution], "elsewhere", Some("there"), run).await.expect("an answer").remove(0);
    let store::run::BeginOutcome::Granted(begun) = begun.1 else { panic!("{begun:?}") };
    let own = Record { end: Some(end(Status::Completed)), ..record(&begun, vec![fact("a", node::Status::Completed)]) };
    let result = store.record(run, &[own], "test").await.expect("an answer")[0];
    assert_eq!((result.held, result.ended, result.freed), (true, true, None));

    let second = NewChild { execution: ExecutionId(new_id()), ..new };
    let place = tree.place(tree.root.execution, 1);
    store.spawn_child(tree.hold(), &place, &second).await.expect("an answer");
    let last = Record { end: Some(end(Status::Failed)), ..record(&tree.root, vec![]) };
    store.record(tree.world.me, &[last], "test").await.expect("an answer");
    let late =
        store.begin_on_engine(&[second.execution], "elsewhere", Some("there"), run).await.expect("an answer").remove(0);
    assert!(matches!(late.1, store::run::BeginOutcome::Ended), "it ended with its root: {late:?}");
}

#[tokio::test]
async fn a_tree_is_shown_in_the_order_in_which_it_was_made() {
    let tree = Tree::new().await;
    let (first, second) = (tree.spawn(tree.root.execution, 0).await, tree.spawn(tree.root.execution, 1).await);
    let store = &tree.world.store;
    let members = store.tree(tree.root.execution, 10).await.expect("a tree");
    let ids: Vec<ExecutionId> = members.iter().map(|member| member.execution).collect();
    assert_eq!(ids, [tree.root.execution, first.execution, second.execution]);
    let places: Vec<_> = members.iter().map(|one| (one.parent.as_ref().map(|at| at.iteration), one.depth)).collect();
    assert_eq!(places, [(None, 0), (Some(0), 1), (Some(1), 1)]);
    assert_eq!(store.tree(tree.root.execution, 1).await.expect("a tree").len(), 2, "the root, and one more");
    let child = store.execution(first.execution, None).await.expect("it");
    assert_eq!((child.parent, child.root), (Some(tree.root.execution), tree.root.execution));
    assert_eq!((child.parent_node.as_deref(), child.parent_iteration), (Some("call"), Some(0)));
    assert_eq!(child.version, VersionId(tree.root.version.0));
}
