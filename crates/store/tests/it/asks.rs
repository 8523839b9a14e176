//! Waits: asked, answered once, expired, closed, and answered before anybody asked.

use std::time::Duration;

use kernel::execution;
use kernel::ids::{NodeKey, WorkspaceId};
use kernel::wait::Status;
use serde_json::{Value, json};
use store::process::beat;
use store::retention::Section;
use store::run::attempt::Hold;
use store::wait::{Ask, Call, Place, Standing, Token, Told, What};

use crate::support::{ENGINE, World, race};

/// A run that this process holds, and its workspace.
pub(crate) async fn held(world: &World) -> (Hold, WorkspaceId) {
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    held_of(world, workspace, definition).await
}

pub(crate) async fn held_of(
    world: &World,
    workspace: WorkspaceId,
    definition: kernel::ids::DefinitionId,
) -> (Hold, WorkspaceId) {
    world.accept_many(workspace, definition, 1).await;
    let begun = world.run(workspace, 1).await.remove(0);
    (Hold { execution: begun.execution, owner: world.me, epoch: begun.epoch }, workspace)
}

pub(crate) fn place(hold: Hold, node: &str, iteration: i32) -> Place {
    Place { execution: hold.execution, node: NodeKey::new(node).expect("a node key"), iteration }
}

/// A wait of the node `approve`, for so long.
fn wait(hold: Hold, workspace: WorkspaceId, expires_in: Option<Duration>) -> Ask {
    Ask {
        place: place(hold, "approve", 0),
        workspace,
        attempt: 1,
        what: What::Wait { event: None, matches: None },
        input: json!({ "message": "May we?" }),
        expires_in,
    }
}

pub(crate) async fn ask(world: &World, hold: Hold, ask: &Ask) -> Standing {
    world.store.ask(hold, ask).await.expect("an answer").expect("the hold is good")
}

async fn answer(world: &World, place: &Place, data: Value) -> Told {
    world.store.answer(place, None, &data, "ada").await.expect("an answer")
}

/// What an answered ask brought, in words.
pub(crate) fn brought(standing: &Standing) -> String {
    match standing {
        Standing::Open { .. } => "open".to_owned(),
        Standing::Expired => "expired".to_owned(),
        Standing::Answered(answer) => match &answer.result {
            Ok(value) => format!("{value} by {}", answer.by),
            Err(failure) => format!("{}: {}", failure.class.name(), failure.message),
        },
    }
}

async fn came(world: &World, hold: Hold) -> Vec<String> {
    let came = world.store.answers(hold).await.expect("an answer").expect("the hold is good");
    came.iter().map(|came| format!("{} {}", came.place.node, brought(&came.standing))).collect()
}

async fn overdue(world: &World) {
    world.run_sql("UPDATE workflow_execution_ask SET expires_at = now() - interval '1 second'", &[]).await;
}

fn called(hold: Hold) -> Option<Call> {
    Some(Call { engine: ENGINE.to_owned(), holder: hold.execution, owner: Some(hold.owner) })
}

#[tokio::test]
async fn an_answer_is_taken_once_told_again_to_whoever_asks_again_and_audited() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, Some(Duration::from_secs(3_600)));
    let Standing::Open { expires_in: Some(left) } = ask(&world, hold, &wait).await else { panic!("not open") };
    assert!((3_590..=3_600).contains(&left.as_secs()), "{left:?}");
    assert_eq!(came(&world, hold).await, Vec::<String>::new());
    assert_eq!(answer(&world, &wait.place, json!({ "ok": true })).await, Told::Accepted(called(hold)));
    assert_eq!(answer(&world, &wait.place, json!({ "ok": false })).await, Told::Answered, "one answer an ask");
    assert_eq!(came(&world, hold).await, [r#"approve {"ok":true} by ada"#]);
    assert_eq!(came(&world, hold).await, Vec::<String>::new(), "seen");
    assert_eq!(brought(&ask(&world, hold, &wait).await), r#"{"ok":true} by ada"#, "after a crash it is asked again");
    let audited = "SELECT actor || ' ' || action || ' ' || detail::text FROM activity WHERE action = 'wait.answer'";
    assert_eq!(world.get::<String>(audited, &[]).await, r#"ada wait.answer {"node": "approve", "iteration": 0}"#);
}

#[tokio::test]
async fn an_answer_that_came_before_its_question_is_there_at_once() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    assert_eq!(answer(&world, &wait.place, json!("early")).await, Told::Early);
    assert_eq!(answer(&world, &wait.place, json!("second")).await, Told::Answered);
    assert_eq!(came(&world, hold).await, Vec::<String>::new(), "nobody asked");
    assert_eq!(brought(&ask(&world, hold, &wait).await), r#""early" by ada"#);
    assert_eq!(brought(&ask(&world, hold, &wait).await), r#""early" by ada"#, "and again");
    let again = Ask { attempt: 2, ..wait };
    assert_eq!(brought(&ask(&world, hold, &again).await), "open", "a later attempt asks anew");
}

#[tokio::test]
async fn an_answer_waits_for_its_question_also_while_the_execution_waits_for_its_slot() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let place = Place { execution, node: NodeKey::new("approve").expect("a key"), iteration: 0 };
    assert_eq!(answer(&world, &place, json!(1)).await, Told::Early);
    let begun = world.run(workspace, 1).await.remove(0);
    let hold = Hold { execution, owner: world.me, epoch: begun.epoch };
    assert_eq!(brought(&ask(&world, hold, &wait(hold, workspace, None)).await), "1 by ada");
}

#[tokio::test]
async fn whoever_lost_the_run_asks_nothing_and_is_told_nothing() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (wait, old) = (wait(hold, workspace, None), Hold { epoch: hold.epoch - 1, ..hold });
    assert_eq!(world.store.ask(old, &wait).await.expect("an answer"), None);
    assert_eq!(world.count("workflow_execution_ask").await, 0);
    ask(&world, hold, &wait).await;
    answer(&world, &wait.place, json!(1)).await;
    assert_eq!(world.store.answers(old).await.expect("an answer"), None);
    assert_eq!(came(&world, hold).await, ["approve 1 by ada"]);
    world.finish(hold.execution, execution::Status::Completed).await;
    assert_eq!(world.store.ask(hold, &wait).await.expect("an answer"), None);
    assert_eq!(world.store.answers(hold).await.expect("an answer"), None);
}

#[tokio::test]
async fn time_that_is_up_is_told_once_and_an_answer_after_it_is_refused() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, Some(Duration::from_secs(60)));
    ask(&world, hold, &wait).await;
    overdue(&world).await;
    assert_eq!(answer(&world, &wait.place, json!(1)).await, Told::Expired(called(hold)), "the answer notices it");
    assert_eq!(came(&world, hold).await, ["approve expired"]);
    assert_eq!(came(&world, hold).await, Vec::<String>::new());
    assert_eq!(answer(&world, &wait.place, json!(1)).await, Told::Expired(called(hold)), "and again");
    assert_eq!(ask(&world, hold, &wait).await, Standing::Expired);
    let second = Ask { attempt: 2, ..wait.clone() };
    ask(&world, hold, &second).await;
    overdue(&world).await;
    assert_eq!(came(&world, hold).await, ["approve expired"], "the run's own look notices it");
    let third = Ask { attempt: 3, ..wait };
    ask(&world, hold, &third).await;
    overdue(&world).await;
    let swept = world.store.sweep_asks(10).await.expect("a sweep");
    assert_eq!((swept.expired, swept.calls), (1, vec![called(hold).expect("a call")]), "and so does the sweep");
    assert_eq!(came(&world, hold).await, ["approve expired"]);
}

#[tokio::test]
async fn an_answer_and_a_deadline_at_the_same_moment_have_one_outcome() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for round in 0..40 {
        let mut wait = wait(hold, workspace, Some(Duration::from_millis(4)));
        wait.place.iteration = round;
        if ask(&world, hold, &wait).await == Standing::Expired {
            // On a busy machine its time may be up, and told, before it is asked.
            continue;
        }
        let place = wait.place.clone();
        let told = race(&world.store, 2, |racer, store| {
            let place = place.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(3)).await;
                if racer == 0 {
                    let told = store.answer(&place, None, &json!(1), "ada").await.expect("an answer");
                    (matches!(told, Told::Accepted(_)), Vec::new())
                } else {
                    (false, store.answers(hold).await.expect("an answer").expect("held"))
                }
            }
        })
        .await;
        let accepted = told.iter().any(|told| told.0);
        overdue_of(&world, round).await;
        let mut seen: Vec<Standing> = told.into_iter().flat_map(|told| told.1).map(|came| came.standing).collect();
        seen.extend(world.store.answers(hold).await.expect("an answer").expect("held").into_iter().map(|c| c.standing));
        let expected = if accepted { "1 by ada" } else { "expired" };
        assert_eq!(seen.iter().map(brought).collect::<Vec<_>>(), [expected], "round {round}");
    }
}

async fn overdue_of(world: &World, iteration: i32) {
    let sql = "UPDATE workflow_execution_ask SET expires_at = now() - interval '1 second' WHERE iteration = $1";
    world.run_sql(sql, &[&iteration]).await;
}

#[tokio::test]
async fn of_twenty_answers_at_once_one_is_taken_early_or_not() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for early in [true, false] {
        let mut wait = wait(hold, workspace, None);
        wait.place.iteration = i32::from(early);
        if !early {
            ask(&world, hold, &wait).await;
        }
        let place = wait.place.clone();
        let told = race(&world.store, 20, |racer, store| {
            let place = place.clone();
            async move { store.answer(&place, None, &json!(racer), "ada").await.expect("an answer") }
        })
        .await;
        assert_eq!(told.iter().filter(|told| **told == Told::Answered).count(), 19, "{told:?}");
        let winner = told.iter().position(|told| *told != Told::Answered).expect("one");
        assert_eq!(brought(&ask(&world, hold, &wait).await), format!("{winner} by ada"));
    }
}

#[tokio::test]
async fn an_answer_and_its_question_at_the_same_moment_meet() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for round in 0..40 {
        let mut wait = wait(hold, workspace, None);
        wait.place.iteration = round;
        let asked = wait.clone();
        let told = race(&world.store, 2, |racer, store| {
            let asked = asked.clone();
            async move {
                if racer == 0 {
                    store.answer(&asked.place, None, &json!(1), "ada").await.map(|_| None)
                } else {
                    store.ask(hold, &asked).await
                }
            }
        })
        .await;
        let told: Vec<Option<Standing>> = told.into_iter().map(|told| told.expect("no trouble")).collect();
        let standing = told[1].as_ref().expect("held");
        let later = came(&world, hold).await;
        match brought(standing).as_str() {
            "open" => assert_eq!(later, ["approve 1 by ada"], "round {round}"),
            at_once => assert_eq!((at_once, later.len()), ("1 by ada", 0), "round {round}"),
        }
    }
}

#[tokio::test]
async fn an_answer_wakes_a_parked_run_and_calls_an_owned_one_by_its_heartbeat() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let news = async || {
        let (lease, dead) = (Duration::from_secs(3), Duration::from_secs(10));
        let standing = store::process::Standing { dispatches: false, has_room: false, waiting: 0 };
        beat(&world.client, world.me, standing, lease, dead).await.expect("a beat").wake
    };
    let wait = wait(hold, workspace, None);
    ask(&world, hold, &wait).await;
    assert_eq!(news().await, []);
    answer(&world, &wait.place, json!(1)).await;
    assert_eq!(news().await, [hold.execution]);
    assert_eq!(news().await, [hold.execution], "until it has looked");
    came(&world, hold).await;
    assert_eq!(news().await, []);
    // Parked before the answer is seen, it wakes at once: parking keeps an earlier time.
    let mut next = wait.clone();
    next.place.iteration = 1;
    ask(&world, hold, &next).await;
    answer(&world, &next.place, json!(2)).await;
    let park = "UPDATE workflow_execution SET owner = NULL, owner_epoch = owner_epoch + 1 WHERE id = $1";
    world.run_sql(park, &[&hold.execution.0]).await;
    assert_eq!(news().await, []);
    assert_eq!(world.store.wake(world.me, ENGINE, 10).await.expect("woken"), [hold.execution]);
}

#[tokio::test]
async fn looking_for_answers_does_not_make_a_run_sleep_over_a_wish_to_cancel() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    world.store.cancel(hold.execution, workspace, "ada").await.expect("a request");
    came(&world, hold).await;
    let wake = "SELECT wake_at IS NOT NULL FROM workflow_execution WHERE id = $1";
    assert!(world.get::<bool>(wake, &[&hold.execution.0]).await);
}

#[tokio::test]
async fn an_execution_that_ends_closes_its_asks_and_takes_no_answer() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    ask(&world, hold, &wait).await;
    let minted = mint(&world, &wait.place).await;
    world.finish(hold.execution, execution::Status::Failed).await;
    let waits = world.store.waits(hold.execution, None, None, 10).await.expect("waits");
    assert_eq!(waits.iter().map(|wait| wait.status).collect::<Vec<_>>(), [Status::Closed]);
    assert_eq!(answer(&world, &wait.place, json!(1)).await, Told::Over);
    assert!(world.store.open_token(&minted).await.is_err(), "like an address that does not exist");
    assert_eq!(world.store.answer_by_token(&minted, &wait.place, &json!(1)).await.expect("an answer"), Told::Over);
    assert!(world.store.mint_token(&wait.place, None, Duration::from_secs(60), "ada").await.is_err());
}

async fn mint(world: &World, place: &Place) -> Token {
    world.store.mint_token(place, None, Duration::from_secs(60), "ada").await.expect("a token").token
}

#[tokio::test]
async fn a_token_answers_its_place_once_and_nothing_else() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (first, mut other) = (wait(hold, workspace, None), wait(hold, workspace, None));
    other.place.iteration = 1;
    let token = mint(&world, &first.place).await;
    let pass = world.store.open_token(&token).await.expect("a pass");
    assert_eq!((pass.place.clone(), pass.used, pass.status), (first.place.clone(), false, None));
    ask(&world, hold, &other).await;
    let elsewhere = world.store.answer_by_token(&token, &other.place, &json!(1)).await;
    assert!(matches!(elsewhere, Err(store::Error::NotFound)), "{elsewhere:?}");
    ask(&world, hold, &first).await;
    let told = race(&world.store, 20, |racer, store| {
        let (token, place) = (token.clone(), first.place.clone());
        async move { store.answer_by_token(&token, &place, &json!(racer)).await.expect("an answer") }
    })
    .await;
    assert_eq!(told.iter().filter(|told| **told == Told::Used).count(), 19, "{told:?}");
    assert!(world.store.open_token(&token).await.expect("a pass").used);
    assert!(came(&world, hold).await[0].ends_with("by token"));
    let shown = format!("{token:?}");
    assert!(!shown.contains("fba_"), "{shown}");
    let stored = "SELECT encode(hash, 'hex') FROM workflow_execution_token";
    assert!(!token.expose().contains(&world.get::<String>(stored, &[]).await));
}

#[tokio::test]
async fn a_token_whose_time_is_up_or_that_was_mistyped_opens_nothing() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    ask(&world, hold, &wait).await;
    let token = mint(&world, &wait.place).await;
    let mut mistyped = token.expose().to_owned();
    mistyped.replace_range(10..11, if &mistyped[10..11] == "0" { "1" } else { "0" });
    assert!(Token::parse(&mistyped).is_none() && Token::parse(token.expose()).is_some());
    world.run_sql("UPDATE workflow_execution_token SET expires_at = now()", &[]).await;
    assert!(matches!(world.store.open_token(&token).await, Err(store::Error::NotFound)));
    let told = world.store.answer_by_token(&token, &wait.place, &json!(1)).await;
    assert!(matches!(told, Err(store::Error::NotFound)), "{told:?}");
    assert_eq!(brought(&ask(&world, hold, &wait).await), "open");
}

#[tokio::test]
async fn another_workspace_finds_no_wait() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let stranger = world.workspace("PRO").await;
    let wait = wait(hold, workspace, None);
    ask(&world, hold, &wait).await;
    let told = world.store.answer(&wait.place, Some(stranger), &json!(1), "eve").await;
    assert!(matches!(told, Err(store::Error::NotFound)), "{told:?}");
    assert_eq!(world.store.waits(hold.execution, Some(stranger), None, 10).await.expect("waits"), []);
    assert_eq!(world.store.waits(hold.execution, Some(workspace), None, 10).await.expect("waits").len(), 1);
    assert!(world.store.mint_token(&wait.place, Some(stranger), Duration::from_secs(60), "eve").await.is_err());
}

#[tokio::test]
async fn asks_and_tokens_go_with_their_execution() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace, None);
    ask(&world, hold, &wait).await;
    mint(&world, &wait.place).await;
    world.finish(hold.execution, execution::Status::Completed).await;
    world.run_sql("UPDATE workflow_execution SET completed_at = now() - interval '40 days'", &[]).await;
    let retired = world.store.retire(Section::Executions, Duration::ZERO, None, 100).await.expect("retired");
    assert_eq!(retired.retired, 1);
    assert_eq!((world.count("workflow_execution_ask").await, world.count("workflow_execution_token").await), (0, 0));
}
