//! Waits are opened, answered once, expired and closed. A wait can also be answered before it is opened.

use std::time::Duration;

use kernel::execution;
use kernel::ids::{DefinitionId, NodeKey, WorkspaceId};
use kernel::wait::Status;
use serde_json::{Value, json};
use store::process::heartbeat;
use store::retention::Section;
use store::run::attempt::Ownership;
use store::wait::{AnswerOutcome, NewWait, RunToWake, Token, WaitKey, WaitKind, WaitState};

use crate::support::{ENGINE, World, race};

/// A run that this process holds, and its workspace.
pub(crate) async fn held(world: &World) -> (Ownership, WorkspaceId) {
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    held_of(world, workspace, definition).await
}

pub(crate) async fn held_of(world: &World, workspace: WorkspaceId, of: DefinitionId) -> (Ownership, WorkspaceId) {
    world.accept_many(workspace, of, 1).await;
    let begun = world.run(workspace, 1).await.remove(0);
    (Ownership { execution: begun.execution, owner: world.me, epoch: begun.epoch }, workspace)
}

pub(crate) fn place(hold: Ownership, node: &str, iteration: i32) -> WaitKey {
    WaitKey { execution: hold.execution, node: NodeKey::new(node).expect("a node key"), iteration }
}

/// A wait of the node `approve`, with this timeout.
fn wait(hold: Ownership, workspace: WorkspaceId, expires_in: Option<Duration>) -> NewWait {
    NewWait {
        key: place(hold, "approve", 0),
        workspace,
        attempt: 1,
        kind: WaitKind::Wait { event: None, matches: None },
        input: json!({ "message": "May we?" }),
        expires_in,
    }
}

pub(crate) async fn open_wait(world: &World, hold: Ownership, wait: &NewWait) -> WaitState {
    world.store.open_wait(hold, wait).await.expect("an answer").expect("the hold is valid")
}

async fn answer(world: &World, place: &WaitKey, data: Value) -> AnswerOutcome {
    world.store.answer(place, None, &data, "ada").await.expect("an answer")
}

/// The result of an answered wait, as text.
pub(crate) fn brought(state: &WaitState) -> String {
    match state {
        WaitState::Open { .. } => "open".to_owned(),
        WaitState::Expired => "expired".to_owned(),
        WaitState::Answered(answer) => match &answer.result {
            Ok(value) => format!("{value} by {}", answer.by),
            Err(failure) => format!("{}: {}", failure.class.name(), failure.message),
        },
    }
}

async fn came(world: &World, hold: Ownership) -> Vec<String> {
    let came = world.store.read_answers(hold).await.expect("an answer").expect("the hold is valid");
    came.iter().map(|came| format!("{} {}", came.key.node, brought(&came.state))).collect()
}

async fn overdue(world: &World) {
    world.run_sql("UPDATE workflow_execution_wait SET expires_at = now() - interval '1 second'", &[]).await;
}

fn called(hold: Ownership) -> Option<RunToWake> {
    Some(RunToWake { engine: ENGINE.to_owned(), holder: hold.execution, owner: Some(hold.owner) })
}

#[tokio::test]
async fn an_answer_is_taken_once_returned_again_on_repeat_and_audited() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, Some(Duration::from_secs(3_600)));
    let WaitState::Open { expires_in: Some(left) } = open_wait(&world, hold, &wait).await else { panic!("not open") };
    assert!((3_590..=3_600).contains(&left.as_secs()), "{left:?}");
    assert_eq!(came(&world, hold).await, Vec::<String>::new());
    assert_eq!(answer(&world, &wait.key, json!({ "ok": true })).await, AnswerOutcome::Accepted(called(hold)));
    assert_eq!(
        answer(&world, &wait.key, json!({ "ok": false })).await,
        AnswerOutcome::AlreadyAnswered,
        "one answer per wait"
    );
    assert_eq!(came(&world, hold).await, [r#"approve {"ok":true} by ada"#]);
    assert_eq!(came(&world, hold).await, Vec::<String>::new(), "seen");
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), r#"{"ok":true} by ada"#, "opened again after a crash");
    let audited = "SELECT actor || ' ' || action || ' ' || detail::text FROM activity WHERE action = 'wait.answer'";
    assert_eq!(world.get::<String>(audited, &[]).await, r#"ada wait.answer {"node": "approve", "iteration": 0}"#);
}

#[tokio::test]
async fn an_early_answer_is_returned_when_its_wait_opens() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    assert_eq!(answer(&world, &wait.key, json!("early")).await, AnswerOutcome::Early);
    assert_eq!(answer(&world, &wait.key, json!("second")).await, AnswerOutcome::AlreadyAnswered);
    assert_eq!(came(&world, hold).await, Vec::<String>::new(), "nobody waits");
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), r#""early" by ada"#);
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), r#""early" by ada"#, "and again");
    let again = NewWait { attempt: 2, ..wait };
    assert_eq!(brought(&open_wait(&world, hold, &again).await), "open", "a later attempt opens the wait again");
}

#[tokio::test]
async fn an_early_answer_is_kept_while_the_execution_is_queued() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let place = WaitKey { execution, node: NodeKey::new("approve").expect("a key"), iteration: 0 };
    assert_eq!(answer(&world, &place, json!(1)).await, AnswerOutcome::Early);
    let begun = world.run(workspace, 1).await.remove(0);
    let hold = Ownership { execution, owner: world.me, epoch: begun.epoch };
    assert_eq!(brought(&open_wait(&world, hold, &wait(hold, workspace, None)).await), "1 by ada");
}

#[tokio::test]
async fn a_previous_owner_opens_no_wait_and_reads_no_answer() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (wait, old) = (wait(hold, workspace, None), Ownership { epoch: hold.epoch - 1, ..hold });
    assert_eq!(world.store.open_wait(old, &wait).await.expect("an answer"), None);
    assert_eq!(world.count("workflow_execution_wait").await, 0);
    open_wait(&world, hold, &wait).await;
    answer(&world, &wait.key, json!(1)).await;
    assert_eq!(world.store.read_answers(old).await.expect("an answer"), None);
    assert_eq!(came(&world, hold).await, ["approve 1 by ada"]);
    world.finish(hold.execution, execution::Status::Completed).await;
    assert_eq!(world.store.open_wait(hold, &wait).await.expect("an answer"), None);
    assert_eq!(world.store.read_answers(hold).await.expect("an answer"), None);
}

#[tokio::test]
async fn a_timeout_is_reported_once_and_a_later_answer_is_refused() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, Some(Duration::from_secs(60)));
    open_wait(&world, hold, &wait).await;
    overdue(&world).await;
    assert_eq!(
        answer(&world, &wait.key, json!(1)).await,
        AnswerOutcome::Expired(called(hold)),
        "the answer finds it expired"
    );
    assert_eq!(came(&world, hold).await, ["approve expired"]);
    assert_eq!(came(&world, hold).await, Vec::<String>::new());
    assert_eq!(answer(&world, &wait.key, json!(1)).await, AnswerOutcome::Expired(called(hold)), "and again");
    assert_eq!(open_wait(&world, hold, &wait).await, WaitState::Expired);
    let second = NewWait { attempt: 2, ..wait.clone() };
    open_wait(&world, hold, &second).await;
    overdue(&world).await;
    assert_eq!(came(&world, hold).await, ["approve expired"], "the run finds it expired");
    let third = NewWait { attempt: 3, ..wait };
    open_wait(&world, hold, &third).await;
    overdue(&world).await;
    let swept = world.store.expire_waits(10).await.expect("a sweep");
    assert_eq!((swept.expired, swept.to_wake), (1, vec![called(hold).expect("a call")]), "and so does the sweep");
    assert_eq!(came(&world, hold).await, ["approve expired"]);
}

#[tokio::test]
async fn an_answer_and_a_deadline_at_the_same_moment_have_one_outcome() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for round in 0..40 {
        let mut wait = wait(hold, workspace, Some(Duration::from_millis(4)));
        wait.key.iteration = round;
        if open_wait(&world, hold, &wait).await == WaitState::Expired {
            // On a busy machine it may expire, and be reported, before it is opened.
            continue;
        }
        let place = wait.key.clone();
        let outcome = race(&world.store, 2, |racer, store| {
            let place = place.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(3)).await;
                if racer == 0 {
                    let outcome = store.answer(&place, None, &json!(1), "ada").await.expect("an answer");
                    (matches!(outcome, AnswerOutcome::Accepted(_)), Vec::new())
                } else {
                    (false, store.read_answers(hold).await.expect("an answer").expect("held"))
                }
            }
        })
        .await;
        let accepted = outcome.iter().any(|outcome| outcome.0);
        overdue_of(&world, round).await;
        let mut seen: Vec<WaitState> =
            outcome.into_iter().flat_map(|outcome| outcome.1).map(|came| came.state).collect();
        seen.extend(
            world.store.read_answers(hold).await.expect("an answer").expect("held").into_iter().map(|c| c.state),
        );
        let expected = if accepted { "1 by ada" } else { "expired" };
        assert_eq!(seen.iter().map(brought).collect::<Vec<_>>(), [expected], "round {round}");
    }
}

async fn overdue_of(world: &World, iteration: i32) {
    let sql = "UPDATE workflow_execution_wait SET expires_at = now() - interval '1 second' WHERE iteration = $1";
    world.run_sql(sql, &[&iteration]).await;
}

#[tokio::test]
async fn of_twenty_answers_at_once_one_is_taken_early_or_not() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for early in [true, false] {
        let mut wait = wait(hold, workspace, None);
        wait.key.iteration = i32::from(early);
        if !early {
            open_wait(&world, hold, &wait).await;
        }
        let place = wait.key.clone();
        let outcome = race(&world.store, 20, |racer, store| {
            let place = place.clone();
            async move { store.answer(&place, None, &json!(racer), "ada").await.expect("an answer") }
        })
        .await;
        assert_eq!(
            outcome.iter().filter(|outcome| **outcome == AnswerOutcome::AlreadyAnswered).count(),
            19,
            "{outcome:?}"
        );
        let winner = outcome.iter().position(|outcome| *outcome != AnswerOutcome::AlreadyAnswered).expect("one");
        assert_eq!(brought(&open_wait(&world, hold, &wait).await), format!("{winner} by ada"));
    }
}

#[tokio::test]
async fn an_answer_that_races_the_opening_of_its_wait_is_not_lost() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for round in 0..40 {
        let mut wait = wait(hold, workspace, None);
        wait.key.iteration = round;
        let opened = wait.clone();
        let outcome = race(&world.store, 2, |racer, store| {
            let opened = opened.clone();
            async move {
                if racer == 0 {
                    store.answer(&opened.key, None, &json!(1), "ada").await.map(|_| None)
                } else {
                    store.open_wait(hold, &opened).await
                }
            }
        })
        .await;
        let outcome: Vec<Option<WaitState>> = outcome.into_iter().map(|outcome| outcome.expect("no trouble")).collect();
        let state = outcome[1].as_ref().expect("held");
        let later = came(&world, hold).await;
        match brought(state).as_str() {
            "open" => assert_eq!(later, ["approve 1 by ada"], "round {round}"),
            at_once => assert_eq!((at_once, later.len()), ("1 by ada", 0), "round {round}"),
        }
    }
}

#[tokio::test]
async fn an_answer_wakes_a_parked_run_and_an_owned_one_by_its_heartbeat() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let woken = async || {
        let (lease, dead) = (Duration::from_secs(3), Duration::from_secs(10));
        let state = store::process::HeartbeatReport { dispatches: false, has_room: false, waiting: 0 };
        heartbeat(&world.client, world.me, state, lease, dead).await.expect("a heartbeat").wake
    };
    let wait = wait(hold, workspace, None);
    open_wait(&world, hold, &wait).await;
    assert_eq!(woken().await, []);
    answer(&world, &wait.key, json!(1)).await;
    assert_eq!(woken().await, [hold.execution]);
    assert_eq!(woken().await, [hold.execution], "until it has read its waits");
    came(&world, hold).await;
    assert_eq!(woken().await, []);
    // If it parks before it reads the answer, it wakes immediately: parking keeps an earlier wake time.
    let mut next = wait.clone();
    next.key.iteration = 1;
    open_wait(&world, hold, &next).await;
    answer(&world, &next.key, json!(2)).await;
    let park = "SELECT forebay_r1.park_runs(ARRAY[$1::uuid], ARRAY[3600000::bigint])";
    world.run_sql(park, &[&hold.execution.0]).await;
    assert_eq!(woken().await, []);
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), [hold.execution]);
}

#[tokio::test]
async fn reading_answers_does_not_clear_a_requested_cancel() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    world.store.cancel(hold.execution, workspace, "ada").await.expect("a request");
    came(&world, hold).await;
    let wake = "SELECT wake_at IS NOT NULL FROM run_request WHERE execution_id = $1 AND ends";
    assert!(world.get::<bool>(wake, &[&hold.execution.0]).await);
}

#[tokio::test]
async fn the_end_of_an_execution_closes_its_waits_and_refuses_answers() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    open_wait(&world, hold, &wait).await;
    let minted = mint(&world, &wait.key).await;
    world.finish(hold.execution, execution::Status::Failed).await;
    let waits = world.store.waits(hold.execution, None, None, 10).await.expect("waits");
    assert_eq!(waits.iter().map(|wait| wait.status).collect::<Vec<_>>(), [Status::Closed]);
    assert_eq!(answer(&world, &wait.key, json!(1)).await, AnswerOutcome::ExecutionEnded);
    assert!(world.store.wait_of_token(&minted).await.is_err(), "like an unknown token");
    assert_eq!(
        world.store.answer_by_token(&minted, &wait.key, &json!(1)).await.expect("an answer"),
        AnswerOutcome::ExecutionEnded
    );
    assert!(world.store.create_token(&wait.key, None, Duration::from_secs(60), "ada").await.is_err());
}

async fn mint(world: &World, place: &WaitKey) -> Token {
    world.store.create_token(place, None, Duration::from_secs(60), "ada").await.expect("a token").token
}

#[tokio::test]
async fn a_token_answers_its_own_wait_once() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (first, mut other) = (wait(hold, workspace, None), wait(hold, workspace, None));
    other.key.iteration = 1;
    let token = mint(&world, &first.key).await;
    let pass = world.store.wait_of_token(&token).await.expect("a pass");
    assert_eq!((pass.key.clone(), pass.used, pass.status), (first.key.clone(), false, None));
    open_wait(&world, hold, &other).await;
    let elsewhere = world.store.answer_by_token(&token, &other.key, &json!(1)).await;
    assert!(matches!(elsewhere, Err(store::Error::NotFound)), "{elsewhere:?}");
    open_wait(&world, hold, &first).await;
    let outcome = race(&world.store, 20, |racer, store| {
        let (token, place) = (token.clone(), first.key.clone());
        async move { store.answer_by_token(&token, &place, &json!(racer)).await.expect("an answer") }
    })
    .await;
    assert_eq!(outcome.iter().filter(|outcome| **outcome == AnswerOutcome::TokenUsed).count(), 19, "{outcome:?}");
    assert!(world.store.wait_of_token(&token).await.expect("a pass").used);
    assert!(came(&world, hold).await[0].ends_with("by token"));
    let shown = format!("{token:?}");
    assert!(!shown.contains("fba_"), "{shown}");
    let stored = "SELECT encode(hash, 'hex') FROM workflow_execution_token";
    assert!(!token.expose().contains(&world.get::<String>(stored, &[]).await));
}

#[tokio::test]
async fn an_expired_or_mistyped_token_is_refused() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    open_wait(&world, hold, &wait).await;
    let token = mint(&world, &wait.key).await;
    let mut mistyped = token.expose().to_owned();
    mistyped.replace_range(10..11, if &mistyped[10..11] == "0" { "1" } else { "0" });
    assert!(Token::parse(&mistyped).is_none() && Token::parse(token.expose()).is_some());
    world.run_sql("UPDATE workflow_execution_token SET expires_at = now()", &[]).await;
    assert!(matches!(world.store.wait_of_token(&token).await, Err(store::Error::NotFound)));
    let outcome = world.store.answer_by_token(&token, &wait.key, &json!(1)).await;
    assert!(matches!(outcome, Err(store::Error::NotFound)), "{outcome:?}");
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), "open");
}

#[tokio::test]
async fn another_workspace_finds_no_wait() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let stranger = world.workspace("PRO").await;
    let wait = wait(hold, workspace, None);
    open_wait(&world, hold, &wait).await;
    let outcome = world.store.answer(&wait.key, Some(stranger), &json!(1), "eve").await;
    assert!(matches!(outcome, Err(store::Error::NotFound)), "{outcome:?}");
    assert_eq!(world.store.waits(hold.execution, Some(stranger), None, 10).await.expect("waits"), []);
    assert_eq!(world.store.waits(hold.execution, Some(workspace), None, 10).await.expect("waits").len(), 1);
    assert!(world.store.create_token(&wait.key, Some(stranger), Duration::from_secs(60), "eve").await.is_err());
}

#[tokio::test]
async fn waits_and_tokens_are_deleted_with_their_execution() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    open_wait(&world, hold, &wait).await;
    mint(&world, &wait.key).await;
    world.finish(hold.execution, execution::Status::Completed).await;
    world.run_sql("UPDATE workflow_execution SET completed_at = now() - interval '40 days'", &[]).await;
    let retired = world.store.retire(Section::Executions, Duration::ZERO, None, 100).await.expect("retired");
    assert_eq!(retired.retired, 1);
    assert_eq!((world.count("workflow_execution_wait").await, world.count("workflow_execution_token").await), (0, 0));
}
