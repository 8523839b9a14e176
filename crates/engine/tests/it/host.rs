//! The embedded engine for the scenarios. Every one is played twice: straight, and, unless somebody interferes, by a row
//! of processes that die after each fact, each taking up what the last one stored.

use std::sync::Arc;
use std::time::Duration;

use engine::embedded::{Embedded, NAME, Settings};
use engine::pulse::Pulse;
use engine::vault::Keys;
use expect_test::Expect;
use kernel::ids::{ExecutionId, ProcessId};
use store::admission::Silence;

use crate::world::{Act, Scenario, World};

pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) engine: Embedded,
}

/// Plays a scenario and compares its trace.
pub(crate) async fn check(scenario: Scenario, expected: Expect) {
    let world = World::new().await;
    let process = world.process().await;
    let (_, straight) = world.play(process.id, &process.engine, &scenario).await;
    expected.assert_eq(&straight);
    match scenario.act {
        Act::Nothing => {
            let interrupted = interrupted(&scenario).await;
            assert_eq!(interrupted, straight, "a run that changes hands after every fact ends the same");
        }
        Act::Rerun { from } => {
            let again = straight.split_once("again\n").map_or("", |(_, again)| again);
            let interrupted = interrupted_again(&scenario, from).await;
            assert_eq!(interrupted, again, "so does one that keeps nodes, and changes hands before its first fact too");
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
    let mut seen = 0;
    loop {
        let execution = world.until(id, |execution| execution.status.is_terminal() || execution.last_seq > seen).await;
        if execution.status.is_terminal() {
            return;
        }
        seen = execution.last_seq;
        process = world.take_over(process).await;
    }
}

impl World {
    /// A process of its own, with its engine.
    pub(crate) async fn process(&self) -> Process {
        let (id, outbound) = self.register().await;
        let settings = Settings { max_runs: 100, max_calls: 100 };
        let pulse = Arc::new(Pulse::new(Duration::from_secs(3600)));
        let (store, keys) = (self.database.store.clone(), Keys::default());
        let engine = Embedded::new(store, outbound, keys, settings, pulse, Arc::new(|_, _| {}));
        engine.assume(id);
        Process { id, engine }
    }

    /// Claims what is ready and hands it to the process's engine.
    pub(crate) async fn dispatch(&self, process: &Process) {
        self.claim(process.id, &process.engine).await;
    }

    /// The process is gone; another takes its runs over.
    pub(crate) async fn take_over(&self, from: Process) -> Process {
        from.engine.abandon();
        from.engine.gone().await;
        self.database.store.end_process(from.id).await.expect("ended");
        let to = self.process().await;
        let silence = Silence { dead_after: Duration::from_secs(15), steady: false };
        let store = &self.database.store;
        let orphans = store.adopt_orphans(&[self.workspace.shard()], to.id, silence, NAME, 100).await.expect("orphans");
        let ids: Vec<ExecutionId> = orphans.iter().map(|orphan| orphan.execution).collect();
        to.engine.resume(to.id, &ids, false).await.expect("resumed");
        to
    }
}
