//! Runs whose owner died are taken over once and fenced from their last owner, and the death is counted.

use kernel::execution;
use kernel::ids::{ProcessId, WorkspaceId};
use kernel::run::crash::{AfterDeath, after_death};
use kernel::run::node::Status;
use store::Store;
use store::queue::claim::{Begun, LivenessRule};
use store::run::Record;
use store::run::owner::TakenOverRun;

use crate::support::{ENGINE, STEADY, UNSTEADY, World, end, fact, race, record};

async fn take_over(
    store: &Store,
    workspace: WorkspaceId,
    process: ProcessId,
    silence: LivenessRule,
) -> Vec<TakenOverRun> {
    store.take_over_orphans(&[workspace.shard()], process, silence, ENGINE, 100).await.expect("an answer")
}

/// Two runs of one workspace, each with its own owner.
async fn two_runs(world: &World) -> (WorkspaceId, [(ProcessId, Begun); 2]) {
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 2).await;
    let owners = [world.process().await, world.process().await];
    let first = world.run_as(owners[0], workspace, 1).await.remove(0);
    let second = world.run_as(owners[1], workspace, 1).await.remove(0);
    (workspace, [(owners[0], first), (owners[1], second)])
}

#[tokio::test]
async fn only_runs_of_dead_owners_are_taken_over() {
    let world = World::new().await;
    let (workspace, [(dead, run), (living, other)]) = two_runs(&world).await;
    assert!(take_over(&world.store, workspace, world.me, STEADY).await.is_empty(), "both live");
    world.silence(dead).await;
    assert!(
        take_over(&world.store, workspace, world.me, UNSTEADY).await.is_empty(),
        "the caller's own heartbeats were not steady"
    );
    let taken_over = take_over(&world.store, workspace, world.me, STEADY).await;
    assert_eq!((taken_over.len(), taken_over[0].execution, taken_over[0].epoch), (1, run.execution, run.epoch + 1));
    assert_eq!(world.store.owned_runs(world.me, ENGINE).await.expect("owned"), [(run.execution, run.epoch + 1)]);
    world.store.end_process(living).await.expect("it ends");
    let taken_over = take_over(&world.store, workspace, world.me, UNSTEADY).await;
    assert_eq!(
        (taken_over.len(), taken_over[0].execution),
        (1, other.execution),
        "a process that ended is dead immediately"
    );
    assert_eq!(world.stages(workspace).await, "slot 2", "slots are kept");
}

#[tokio::test]
async fn the_takeover_of_runs_is_limited_by_room_engine_and_rules() {
    let world = World::new().await;
    let (workspace, [(dead, _), (also_dead, newer)]) = two_runs(&world).await;
    for process in [dead, also_dead] {
        world.store.end_process(process).await.expect("it ends");
    }
    let ask = async |engine, room| {
        let orphans = world.store.take_over_orphans(&[workspace.shard()], world.me, STEADY, engine, room).await;
        orphans.expect("an answer").len()
    };
    assert_eq!(ask(ENGINE, 0).await, 0);
    assert_eq!(ask("temporal", 10).await, 0);
    let sql = "UPDATE workflow_execution SET semantics = semantics + 1 WHERE id = $1";
    world.run_sql(sql, &[&newer.execution.0]).await;
    assert_eq!(ask(ENGINE, 10).await, 1);
}

#[tokio::test]
async fn a_dead_owners_record_is_fenced_after_the_takeover() {
    let world = World::new().await;
    let (workspace, [(zombie, run), _]) = two_runs(&world).await;
    world.silence(zombie).await;
    let taken_over = take_over(&world.store, workspace, world.me, STEADY).await.remove(0);
    let late =
        Record { end: Some(end(execution::Status::Completed)), ..record(&run, vec![fact("a", Status::Completed)]) };
    let outcome = world.store.record(zombie, std::slice::from_ref(&late), "test").await.expect("an answer");
    assert!(!outcome[0].held);
    let outcome = world.store.record(world.me, &[late], "test").await.expect("an answer");
    assert!(!outcome[0].held, "nor by the new owner under the old epoch");
    let now = Record { epoch: taken_over.epoch, ..record(&run, vec![fact("a", Status::Completed)]) };
    assert!(world.store.record(world.me, &[now], "test").await.expect("an answer")[0].held);
    assert!(world.store.load_runs(zombie, &[run.execution]).await.expect("loaded").is_empty());
}

#[tokio::test]
async fn of_several_claimants_at_once_one_gets_the_run() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    for round in 0..100 {
        // New processes in each round: on a slow machine the first ones would be declared dead as silent.
        let processes = [world.process().await, world.process().await, world.process().await, world.process().await];
        let accepted = world.accept_many(workspace, definition, 10).await;
        let dead = world.process().await;
        world.run_as(dead, workspace, 10).await;
        world.store.end_process(dead).await.expect("it ends");
        let taken_over = race(&world.store, 4, |racer, store| async move {
            take_over(&store, workspace, processes[racer], STEADY).await.len()
        })
        .await;
        // One may skip a row that another has locked; no run is taken over twice.
        assert_eq!(taken_over.iter().sum::<usize>(), 10, "round {round}: {taken_over:?}");
        assert_eq!(world.count("workflow_execution WHERE status = 'RUNNING' AND owner_epoch = 2").await, 10);
        for execution in accepted {
            world.finish(execution, execution::Status::Completed).await;
        }
    }
}

#[tokio::test]
async fn deaths_without_progress_are_counted_and_progress_starts_again() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let mut owner = world.process().await;
    let run = world.run_as(owner, workspace, 1).await.remove(0);
    let mut outcome = Vec::new();
    for death in 0..12 {
        world.store.end_process(owner).await.expect("it ends");
        owner = world.process().await;
        let orphan = take_over(&world.store, workspace, owner, UNSTEADY).await.remove(0);
        let (deaths, verdict) = after_death(orphan.deaths, orphan.progressed);
        outcome.push((deaths, verdict));
        assert!(world.store.record_deaths(owner, &orphan, deaths).await.expect("noted"));
        if verdict == ResumeAlone {
            assert!(world.store.mark_alone(owner, orphan.execution, orphan.epoch).await.expect("noted"));
        }
        if death == 3 {
            let progress = Record { epoch: orphan.epoch, ..record(&run, vec![fact("a", Status::Completed)]) };
            assert!(world.store.record(owner, &[progress], "test").await.expect("an answer")[0].held);
        }
    }
    use AfterDeath::{Resume, ResumeAlone};
    let mut expected = vec![(1, Resume), (2, Resume), (3, ResumeAlone), (4, ResumeAlone), (1, Resume), (2, Resume)];
    expected.extend((3..=8).map(|count| (count, ResumeAlone)));
    assert_eq!(outcome, expected);
}

#[tokio::test]
async fn deaths_are_recorded_only_by_the_current_owner() {
    let world = World::new().await;
    let (workspace, [(dead, _), _]) = two_runs(&world).await;
    world.store.end_process(dead).await.expect("it ends");
    let orphan = take_over(&world.store, workspace, world.me, UNSTEADY).await.remove(0);
    let older = TakenOverRun { epoch: orphan.epoch - 1, ..orphan };
    for (owner, orphan, noted) in [(dead, &orphan, false), (world.me, &older, false), (world.me, &orphan, true)] {
        let outcome = world.store.record_deaths(owner, orphan, 1).await.expect("an answer");
        assert_eq!(outcome, noted);
        let outcome = world.store.mark_alone(owner, orphan.execution, orphan.epoch).await.expect("an answer");
        assert_eq!(outcome, noted);
    }
}

#[tokio::test]
async fn a_death_before_the_suspect_runs_alone_is_not_counted() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let mut owner = world.process().await;
    world.run_as(owner, workspace, 1).await;
    let mut outcome = Vec::new();
    for had_its_turn in [false, false, false, false, true, false, true] {
        world.store.end_process(owner).await.expect("it ends");
        owner = world.process().await;
        let orphan = take_over(&world.store, workspace, owner, UNSTEADY).await.remove(0);
        let (deaths, _) = after_death(orphan.deaths, orphan.progressed);
        outcome.push(deaths);
        assert!(world.store.record_deaths(owner, &orphan, deaths).await.expect("noted"));
        if had_its_turn {
            assert!(world.store.mark_alone(owner, orphan.execution, orphan.epoch).await.expect("noted"));
        }
    }
    assert_eq!(outcome, [1, 2, 3, 3, 3, 4, 4]);
}

#[tokio::test]
async fn no_fact_of_a_previous_owner_is_stored_after_the_new_owner_has_read() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (mut before, mut after) = (0, 0);
    for round in 0..200 {
        world.accept_many(workspace, definition, 1).await;
        let (zombie, successor) = (world.process().await, world.process().await);
        let run = world.run_as(zombie, workspace, 1).await.remove(0);
        world.silence(zombie).await;
        let (run, execution) = (&run, run.execution);
        let outcome = race(&world.store, 2, |racer, store| {
            let fact = record(run, vec![fact("a", Status::Completed)]);
            async move {
                if racer == 0 {
                    return store.record(zombie, &[fact], "test").await.expect("an answer")[0].held;
                }
                // The old owner's record may hold the row's lock: then the next pass finds it.
                while take_over(&store, workspace, successor, STEADY).await.is_empty() {}
                let loaded = store.load_runs(successor, &[execution]).await.expect("loaded");
                !loaded[0].nodes.as_ref().expect("readable").is_empty()
            }
        })
        .await;
        let (stored, read) = (outcome[0], outcome[1]);
        assert_eq!(stored, read, "round {round}: what was stored is what the new owner read");
        let rows: i64 =
            world.get("SELECT count(*) FROM workflow_execution_node WHERE execution_id = $1", &[&execution.0]).await;
        assert_eq!(rows, i64::from(stored));
        if stored {
            before += 1
        } else {
            after += 1
        }
        world.finish(execution, execution::Status::Completed).await;
    }
    assert_eq!(before + after, 200);
}
