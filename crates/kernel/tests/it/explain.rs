//! Every item that waits has one reason: the first that would have to change.

use expect_test::{Expect, expect};
use kernel::execution::{self, Terminate, terminate};
use kernel::ids::ExecutionId;
use kernel::queue::explain::{EngineState, Facts, Stuck, explain};
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
        engine: EngineState::Takes,
        stuck: None,
    }
}

fn unavailable() -> EngineState {
    EngineState::Unavailable { since: "noon".to_owned(), error: "connection refused".to_owned() }
}

/// Each change of the facts beside the reason it leads to.
fn check(cases: &[(&str, Facts)], expected: Expect) {
    let told = |facts: &Facts| explain(facts).map_or_else(|| "nothing".to_owned(), |reason| reason.message());
    let lines: String = cases.iter().map(|(case, facts)| format!("{case}: {}\n", told(facts))).collect();
    expected.assert_eq(&lines);
}

#[test]
fn a_run_that_its_engine_cannot_go_on_with_says_why() {
    let stuck = Facts {
        status: Status::Dispatched,
        begun: true,
        stuck: Some(Stuck::Failing("its task fails".to_owned())),
        ..ready()
    };
    let idle = Facts { stuck: Some(Stuck::Idle("nobody polls q".to_owned())), ..stuck.clone() };
    check(
        &[("stuck", stuck.clone()), ("idle", idle), ("ended", Facts { status: Status::Gone, ..stuck })],
        expect![[r#"
            stuck: the engine cannot go on with it: its task fails
            idle: there is no worker to go on with it: nobody polls q
            ended: nothing
        "#]],
    );
}

#[test]
fn each_state_of_things_has_its_reason() {
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
            ready: it is about to start
            workspace deleted: its workspace was deleted; it will be failed
            definition deleted: its definition was deleted; it will be failed
            workspace paused: its workspace is paused
            definition paused: its definition is paused
            delayed: it is not to start before noon
            refused: the engine refused it 2 time(s), next try at noon: too large
            engine off: the workflow engine is turned off (workflow.engine.enabled = false)
            engine unavailable: the engine has been unavailable since noon: connection refused
            engine unavailable, claimed: the engine has been unavailable since noon: connection refused
            nobody dispatches: no process dispatches now: a is gone
            engine full: the engine holds as many runs as it can
            key full: 2 of 2 executions with concurrency key "k" are running
            definition full: 1 of 1 executions of its definition are running
            workspace full: the workspace is full: 5 of 5 executions are running
            claimed: it was handed to the engine and no worker has picked it up yet
            dispatched: it was handed to the engine and no worker has picked it up yet
            begun: nothing
            failed: nothing
        "#]],
    );
}

#[test]
fn who_holds_what_it_waits_for_is_told() {
    for stage in [Stage::WaitsForKey, Stage::WaitsForDefinition, Stage::Ready] {
        let told = explain(&Facts { stage, workspace_running: 5, ..ready() }).expect("a reason");
        let told = serde_json::to_value(told).expect("json");
        assert_eq!(told["heldBy"][0], "00000000-0000-0000-0000-000000000000", "{told}");
    }
}

#[test]
fn a_forced_end_waits_for_whoever_runs_it_and_for_nobody_else() {
    for status in execution::Status::ALL {
        for owned in [true, false] {
            let expected = match (status.is_terminal(), status, owned) {
                (true, _, _) => Terminate::Over,
                (false, execution::Status::Running, true) => Terminate::Fence,
                (false, _, _) => Terminate::AtOnce,
            };
            assert_eq!(terminate(status, owned), expected, "{status:?}, owned: {owned}");
        }
    }
}
