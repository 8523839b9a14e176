//! Every waiting item has one reason: the first condition that has to change before the item can start.

use expect_test::{Expect, expect};
use kernel::execution::{self, Termination, terminate};
use kernel::ids::ExecutionId;
use kernel::queue::explain::{EngineState, Facts, RunProblem, explain};
use kernel::queue::{Stage, Status};

/// A ready item with room for it.
fn ready() -> Facts {
    Facts {
        status: Status::Pending,
        stage: Stage::Ready,
        available_at: "noon".to_owned(),
        attempts: 0,
        last_error: None,
        workspace_paused: false,
        workspace_deleted: false,
        workspace_running: 1,
        workspace_limit: 5,
        definition_paused: false,
        definition_deleted: false,
        definition_running: 1,
        definition_limit: Some(1),
        key: Some("k".to_owned()),
        key_running: 2,
        key_limit: 2,
        ahead: Some(0),
        held_by: vec![ExecutionId(uuid::Uuid::nil())],
        begun: false,
        engine: EngineState::Available,
        stuck: None,
    }
}

fn unavailable() -> EngineState {
    EngineState::Unavailable { since: "noon".to_owned(), error: "connection refused".to_owned() }
}

/// Each change of the facts beside the reason it leads to.
fn check(cases: &[(&str, Facts)], expected: Expect) {
    let observed = |facts: &Facts| explain(facts).map_or_else(|| "nothing".to_owned(), |reason| reason.message());
    let lines: String = cases.iter().map(|(case, facts)| format!("{case}: {}\n", observed(facts))).collect();
    expected.assert_eq(&lines);
}

#[test]
fn a_run_without_progress_has_a_reason() {
    let stuck = Facts {
        status: Status::Dispatched,
        begun: true,
        stuck: Some(RunProblem::WorkFails("its task fails".to_owned())),
        ..ready()
    };
    let idle = Facts { stuck: Some(RunProblem::NoWorker("nobody polls q".to_owned())), ..stuck.clone() };
    check(
        &[("stuck", stuck.clone()), ("idle", idle), ("ended", Facts { status: Status::Gone, ..stuck })],
        expect![[r#"
            stuck: the engine makes no progress with it: its task fails
            idle: no worker polls for it: nobody polls q
            ended: nothing
        "#]],
    );
}

#[test]
fn each_state_has_its_reason() {
    let at = |stage| Facts { stage, ..ready() };
    let engine = |engine| Facts { engine, ..ready() };
    let full = Facts { workspace_running: 5, ..ready() };
    let refused = Facts { attempts: 2, last_error: Some("too large".to_owned()), ..at(Stage::Delayed) };
    check(
        &[
            ("ready", ready()),
            ("workspace deleted", Facts { workspace_deleted: true, ..ready() }),
            ("definition deleted", Facts { definition_deleted: true, ..at(Stage::WaitsForKey) }),
            ("workspace paused", Facts { workspace_paused: true, ..full.clone() }),
            ("definition paused", Facts { definition_paused: true, ..at(Stage::WaitsForDefinition) }),
            ("delayed", at(Stage::Delayed)),
            ("refused", refused),
            ("engine off", engine(EngineState::Off)),
            ("engine unavailable", engine(unavailable())),
            ("engine unavailable, claimed", Facts { status: Status::Claimed, ..engine(unavailable()) }),
            ("nobody dispatches", engine(EngineState::NoDispatcher { error: "a is gone".to_owned() })),
            ("engine full", engine(EngineState::Full)),
            ("key full", at(Stage::WaitsForKey)),
            ("definition full", at(Stage::WaitsForDefinition)),
            ("workspace full", full),
            ("claimed", Facts { status: Status::Claimed, ..ready() }),
            ("dispatched", Facts { status: Status::Dispatched, ..ready() }),
            ("begun", Facts { status: Status::Dispatched, begun: true, ..ready() }),
            ("failed", Facts { status: Status::Failed, ..ready() }),
        ],
        expect![[r#"
            ready: a slot is free, and it starts when its turn comes
            workspace deleted: its workspace was deleted, so the execution will be marked FAILED
            definition deleted: its definition was deleted, so the execution will be marked FAILED
            workspace paused: its workspace is paused
            definition paused: its definition is paused
            delayed: it was scheduled to start no earlier than noon
            refused: the engine refused the start 2 time(s); next attempt at noon: too large
            engine off: the workflow engine is disabled (workflow.engine.enabled = false)
            engine unavailable: the engine has been unavailable since noon: connection refused
            engine unavailable, claimed: the engine has been unavailable since noon: connection refused
            nobody dispatches: no process dispatches items now: a is gone
            engine full: the engine is full: it runs as many executions as it can
            key full: its concurrency key "k" is full: 2 of 2 executions are running
            definition full: its definition is full: 1 of 1 executions are running
            workspace full: the workspace is full: 5 of 5 executions are running
            claimed: it was sent to the engine, and no worker has started it yet
            dispatched: it was sent to the engine, and no worker has started it yet
            begun: nothing
            failed: nothing
        "#]],
    );
}

#[test]
fn a_full_limit_names_the_executions_that_use_it() {
    for stage in [Stage::WaitsForKey, Stage::WaitsForDefinition, Stage::Ready] {
        let observed = explain(&Facts { stage, workspace_running: 5, ..ready() }).expect("a reason");
        let observed = serde_json::to_value(observed).expect("json");
        assert_eq!(observed["heldByExecutionIds"][0], "00000000-0000-0000-0000-000000000000", "{observed}");
    }
}

#[test]
fn terminating_waits_only_for_a_living_owner() {
    for status in execution::Status::ALL {
        for owned in [true, false] {
            let expected = match (status.is_terminal(), status, owned) {
                (true, _, _) => Termination::AlreadyEnded,
                (false, execution::Status::Running, true) => Termination::AbortOwner,
                (false, _, _) => Termination::EndNow,
            };
            assert_eq!(terminate(status, owned), expected, "{status:?}, owned: {owned}");
        }
    }
}
