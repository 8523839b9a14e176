//! Termination ends an execution immediately if no process runs it. If a process does, a fence stops its writes, and
//! the slot is not freed early.

use kernel::execution::Status;
use kernel::run::node;
use store::queue::control::Terminated;
use store::run::{End, EndResult, Record};
use store::{Error, new_id};

use crate::support::{ENGINE, STEADY, World, fact, record};

#[tokio::test]
async fn terminating_an_execution_without_an_owner_ends_it_at_once_and_frees_its_slot() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 2).await;
    let mut runs = world.run(workspace, 1).await;
    let parked = runs.remove(0);
    let park = Record {
        park: Some(std::time::Duration::from_secs(60)),
        ..record(&parked, vec![fact("a", node::Status::Running)])
    };
    assert!(world.store.record(world.me, &[park], "test").await.expect("parked")[0].held);
    let waiting = world.accept_many(workspace, definition, 1).await[0];
    for (execution, freed) in [(parked.execution, true), (waiting, false)] {
        let result = world.store.terminate(execution, workspace, "me").await.expect("an answer");
        assert_eq!(
            result,
            Terminated::AtOnce(EndResult { execution, applied: true, had_queue_item: true, workspace, freed })
        );
        assert_eq!(world.state(execution).await, "CANCELED, no item");
        let error = world.store.execution(execution, None).await.expect("it").error.expect("a reason");
        assert_eq!(error["type"], "TERMINATED");
        let again = world.store.terminate(execution, workspace, "me").await.expect("an answer");
        assert_eq!(again, Terminated::AlreadyEnded);
    }
    assert_eq!(world.count("activity WHERE action = 'execution.terminate' AND actor = 'me'").await, 2);
}

#[tokio::test]
async fn an_owner_is_fenced_out_and_keeps_the_slot_until_it_confirms() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 2).await;
    let run = world.run(workspace, 1).await.remove(0);
    for _ in 0..2 {
        let result = world.store.terminate(run.execution, workspace, "me").await.expect("an answer");
        assert_eq!(result, Terminated::Fenced(world.me), "repeatable");
    }
    assert_eq!(world.count("activity WHERE action = 'execution.terminate'").await, 1);
    let late = record(&run, vec![fact("a", node::Status::Completed)]);
    assert!(!world.store.record(world.me, &[late], "test").await.expect("an answer")[0].held, "fenced");
    assert_eq!(world.run(workspace, 1).await.len(), 0, "the slot stays taken");
    let loaded = world.store.load_runs(world.me, &[run.execution]).await.expect("a run").remove(0);
    assert!(loaded.terminating && loaded.begun.epoch == run.epoch + 1, "one step of the epoch");
    let end = End { outcome: Status::Canceled, output: None, error: Some(store::queue::control::terminated()) };
    let confirm = Record { end: Some(end), ..record(&loaded.begun, vec![]) };
    let result = world.store.record(world.me, &[confirm], "test").await.expect("confirmed").remove(0);
    assert!(result.held && result.ended && result.freed == Some(workspace), "{result:?}");
    assert_eq!(world.run(workspace, 1).await.len(), 1);
}

#[tokio::test]
async fn the_next_owner_of_a_terminated_run_ends_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1).await;
    let dead = world.process().await;
    let run = world.run_as(dead, workspace, 1).await.remove(0);
    world.store.terminate(run.execution, workspace, "me").await.expect("fenced");
    world.silence(dead).await;
    let taken_over =
        world.store.take_over_orphans(&[workspace.shard()], world.me, STEADY, ENGINE, 10).await.expect("an answer");
    assert_eq!(taken_over.len(), 1);
    let loaded = world.store.load_runs(world.me, &[run.execution]).await.expect("a run").remove(0);
    assert!(loaded.terminating);
}

#[tokio::test]
async fn an_execution_of_another_workspace_is_not_found() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let (stranger, _) = world.tenant("FREE").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    for id in [execution, kernel::ids::ExecutionId(new_id())] {
        assert!(matches!(world.store.terminate(id, stranger, "me").await, Err(Error::NotFound)));
    }
    assert_eq!(world.state(execution).await, "PENDING, PENDING");
}
