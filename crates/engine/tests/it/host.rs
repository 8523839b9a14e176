//! Runs the scenarios on the embedded engine. Each scenario runs once without a crash. Unless a test interferes, it
//! runs a second time by a series of processes that die after each fact. Each process resumes the run from the rows.

use std::sync::Arc;
use std::time::Duration;

use engine::embedded::{Embedded, EmbeddedSettings, NAME};
use engine::liveness::Liveness;
use engine::outbound::Outbound;
use engine::vault::OuterKeys;
use expect_test::Expect;
use kernel::ids::{ExecutionId, ProcessId};
use store::Store;
use store::queue::claim::LivenessRule;

use crate::world::{Act, Scenario, World};

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) engine: Embedded,
}

/// Runs a scenario and compares its trace.
pub(crate) async fn check(scenario: Scenario, expected: Expect) {
    let world = World::new().await;
    let process = world.process().await;
    let awake = world.keep_awake(&process);
    let (_, straight) = world.play(process.id, &process.engine, &scenario).await;
    expected.assert_eq(&straight);
    drop(awake);
    match scenario.act {
        Act::Nothing => {
            let interrupted = interrupted(&scenario).await;
            assert_eq!(interrupted, straight, "a run whose owner changes after every fact ends the same");
        }
        Act::Rerun { from } => {
            let again = straight.split_once("again\n").map_or("", |(_, again)| again);
            let interrupted = interrupted_again(&scenario, from).await;
            assert_eq!(interrupted, again, "so does a rerun whose owner also changes before its first fact");
        }
        _ => {}
    }
}

async fn interrupted_again(scenario: &Scenario, from: &str) -> String {
    let world = World::new().await;
    let process = world.process().await;
    let definition = world.publish(&scenario.document).await;
    let first = world.enqueue(definition, scenario.input.clone()).await;
    world.dispatch(&process).await;
    world.end_of(first).await;
    let id = world.rerun(first, definition, from).await;
    world.dispatch(&process).await;
    interrupt_after_every_fact(&world, id, process).await;
    world.end_of(id).await
}

async fn interrupted(scenario: &Scenario) -> String {
    let world = World::new().await;
    let definition = world.publish(&scenario.document).await;
    let id = world.enqueue(definition, scenario.input.clone()).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    interrupt_after_every_fact(&world, id, process).await;
    world.end_of(id).await
}

async fn interrupt_after_every_fact(world: &World, id: ExecutionId, mut process: Process) {
    let client = world.database.client().await;
    // Settled nodes of its children count as progress too.
    let sql = "SELECT last_seq + tree_seq, completed_at IS NOT NULL FROM workflow_execution WHERE id = $1";
    let mut seen = 0;
    loop {
        let awake = world.keep_awake(&process);
        let mut looks = 0;
        loop {
            let row = client.query_one(sql, &[&id.0]).await.expect("the execution");
            if row.get(1) {
                return;
            }
            if row.get::<_, i64>(0) > seen {
                seen = row.get(0);
                break;
            }
            looks += 1;
            assert!(looks < 3_000, "{id} makes no progress");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(awake);
        process = world.take_over(process).await;
    }
}

/// Wakes parked runs for a process while it is alive.
pub(crate) struct Awake(tokio::task::JoinHandle<()>);

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl World {
    /// A separate process with its engine.
    pub(crate) async fn process(&self) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(id, outbound)
    }

    /// The same, with its outbound rules in a separate database.
    pub(crate) async fn process_ruled_by(&self, rules: Store) -> Process {
        let (id, outbound) = self.register().await;
        self.process_of(id, outbound.ruled_by(rules))
    }

    fn process_of(&self, id: ProcessId, outbound: Outbound) -> Process {
        let settings = EmbeddedSettings { max_runs: 100, max_calls: 100, max_generations: 3 };
        let liveness = Arc::new(Liveness::new(Duration::from_secs(3600)));
        let (store, keys) = (self.database.store.clone(), OuterKeys::default());
        let engine = Embedded::new(store, outbound, keys, settings, liveness, Arc::new(|_, _| {}));
        engine.set_process(id);
        Process { id, engine }
    }

    /// Wakes parked runs that are due, as the waker does.
    pub(crate) fn keep_awake(&self, process: &Process) -> Awake {
        let (store, engine, id) = (self.database.store.clone(), process.engine.clone(), process.id);
        Awake(tokio::spawn(async move {
            loop {
                let woken = store.wake_due(id, NAME, 10).await.expect("an answer");
                engine.resume(id, &woken, false).await.expect("resumed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }))
    }

    /// Claims ready items and hands them to the process's engine.
    pub(crate) async fn dispatch(&self, process: &Process) {
        self.claim(process.id, &process.engine).await;
    }

    /// The process dies, and another takes over its runs.
    pub(crate) async fn take_over(&self, from: Process) -> Process {
        from.engine.drop_all();
        from.engine.wait_until_ended().await;
        self.database.store.end_process(from.id).await.expect("ended");
        let to = self.process().await;
        let silence = LivenessRule { dead_after: Duration::from_secs(15), steady: false };
        let store = &self.database.store;
        let orphans =
            store.take_over_orphans(&[self.workspace.shard()], to.id, silence, NAME, 100).await.expect("orphans");
        let ids: Vec<ExecutionId> = orphans.iter().map(|orphan| orphan.execution).collect();
        to.engine.resume(to.id, &ids, false).await.expect("resumed");
        to
    }
}
