//! Nodes that workers take and tell of: fenced by the run and by the taking, and a death is no attempt.

use std::time::Duration;

use kernel::ids::{Label, NodeKey, ProcessId};
use kernel::run::node::Status;
use serde_json::json;
use store::run::NodeFact;
use store::run::attempt::{Hold, Taken, Told};
use store::wait::{Ask, Place, Standing, What};

use crate::support::{World, fact, failure};

fn call() -> NodeKey {
    NodeKey::new("call").expect("a good name")
}

/// A run that any worker may act for.
async fn hold(world: &World) -> Hold {
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1).await;
    let begun = world.run(workspace, 1).await.remove(0);
    Hold { execution: begun.execution, owner: world.me, epoch: begun.epoch }
}

async fn take(world: &World, hold: Hold) -> Taken {
    world.store.take_node(hold, &call(), 0, Some(&json!({ "url": "x" }))).await.expect("an answer")
}

async fn tell(world: &World, hold: Hold, fence: i32, told: NodeFact) -> Told {
    world.store.tell_node(hold, fence, &told).await.expect("an answer")
}

fn go(attempt: u32, fence: i32) -> Taken {
    Taken::Go { attempt, fence, wait: None, begun: false }
}

#[tokio::test]
async fn a_worker_that_died_costs_no_attempt_and_what_it_tells_late_is_refused() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert_eq!(take(&world, hold).await, go(1, 2), "the next worker has the same attempt");
    let late = NodeFact { output: Some(json!("late")), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, late).await, Told::Overtaken);
    let done = NodeFact { attempt: 1, output: Some(json!("done")), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 2, done.clone()).await, Told::Stored);
    assert_eq!(tell(&world, hold, 2, done).await, Told::Overtaken, "a repeat changes nothing");
    let stored = world.store.some_nodes(hold.execution, &["call"]).await.expect("nodes");
    assert_eq!((stored[0].status, stored[0].attempt, &stored[0].output), (Status::Completed, 1, &Some(json!("done"))));
    assert!(matches!(take(&world, hold).await, Taken::Settled { status: Status::Completed, .. }));
}

#[tokio::test]
async fn the_next_attempt_is_taken_when_it_is_due_and_not_before() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let (next_in, error) = (Some(Duration::from_secs(60)), Some(failure("no")));
    let later = NodeFact { attempt: 2, next_in, error, ..fact("call", Status::Retrying) };
    assert_eq!(tell(&world, hold, 1, later).await, Told::Stored);
    assert!(matches!(take(&world, hold).await, Taken::Early(wait) if wait > Duration::from_secs(50)));
    world.client.batch_execute("UPDATE workflow_execution_node SET next_at = clock_timestamp()").await.expect("due");
    assert_eq!(take(&world, hold).await, go(2, 2));
}

#[tokio::test]
async fn a_wait_that_was_noted_stands_however_often_it_is_taken() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let waits = NodeFact { attempt: 1, next_in: Some(Duration::from_secs(60)), ..fact("call", Status::Running) };
    assert_eq!(tell(&world, hold, 1, waits).await, Told::Stored);
    let again = take(&world, hold).await;
    assert!(
        matches!(again, Taken::Go { attempt: 1, fence: 2, wait: Some(wait), begun: false } if wait > Duration::from_secs(50))
    );
}

#[tokio::test]
async fn iterations_are_taken_and_told_of_one_by_one() {
    let world = World::new().await;
    let hold = hold(&world).await;
    for iteration in [0, 1, 2] {
        let taken = world.store.take_node(hold, &call(), iteration, None).await.expect("an answer");
        assert_eq!(taken, go(1, 1), "iteration {iteration}");
    }
    let done = NodeFact { iteration: 2, attempt: 1, output: Some(json!(2)), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, done).await, Told::Stored);
    let key = call();
    let rows = world.store.placed_nodes(hold.execution, &[(&key, 1), (&key, 2), (&key, 3)]).await.expect("rows");
    let stand: Vec<(i32, Status)> = rows.iter().map(|(iteration, row)| (*iteration, row.status)).collect();
    assert_eq!(stand, [(1, Status::Running), (2, Status::Completed)]);
    assert_eq!(world.store.take_node(hold, &call(), 1, None).await.expect("an answer"), go(1, 2));
}

#[tokio::test]
async fn a_call_that_may_be_made_once_is_begun_under_its_fence_and_not_before() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert_eq!(take(&world, hold).await, go(1, 2), "who only took it may have died before anything was sent");
    let begin = async |hold, fence| world.store.begin_once(hold, &call(), 0, fence).await.expect("an answer");
    assert!(!begin(hold, 1).await, "it was overtaken");
    assert!(!begin(Hold { epoch: hold.epoch + 1, ..hold }, 2).await, "it is another's");
    assert!(begin(hold, 2).await && begin(hold, 2).await, "it may be repeated");
    assert_eq!(take(&world, hold).await, Taken::Go { attempt: 1, fence: 3, wait: None, begun: true });
    assert_eq!(take(&world, hold).await, Taken::Go { attempt: 1, fence: 4, wait: None, begun: true }, "it stays so");
    let later = NodeFact { attempt: 2, next_in: Some(Duration::ZERO), ..fact("call", Status::Retrying) };
    assert_eq!(tell(&world, hold, 4, later).await, Told::Stored);
    assert_eq!(take(&world, hold).await, go(2, 5), "the next attempt has begun nothing");
}

#[tokio::test]
async fn a_call_that_was_not_sent_is_not_begun_once_its_note_is_withdrawn() {
    let world = World::new().await;
    let hold = hold(&world).await;
    let begin = async |fence| world.store.begin_once(hold, &call(), 0, fence).await.expect("an answer");
    let withdraw = async |hold, fence| world.store.withdraw_once(hold, &call(), 0, fence).await.expect("an answer");
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert!(begin(1).await);
    assert!(!withdraw(Hold { epoch: hold.epoch + 1, ..hold }, 1).await, "it is another's");
    assert!(withdraw(hold, 1).await);
    assert!(!withdraw(hold, 1).await && !begin(1).await, "whatever is late of that taking changes nothing");
    assert_eq!(take(&world, hold).await, go(1, 3), "the same attempt, and nothing is begun");
    assert!(begin(3).await && !withdraw(hold, 1).await);
    assert_eq!(take(&world, hold).await, Taken::Go { attempt: 1, fence: 4, wait: None, begun: true });
    assert!(!withdraw(hold, 3).await, "it was overtaken");
}

/// Whoever saw an answer died before it told: the next one finds it, until the node's row says it.
#[tokio::test]
async fn an_answer_that_was_seen_is_found_until_its_node_is_settled() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let place = Place { execution: hold.execution, node: call(), iteration: 0 };
    let workspace = world.store.execution(hold.execution, None).await.expect("it").workspace;
    let what = What::Wait { event: None, matches: None };
    let ask = Ask { place: place.clone(), workspace, attempt: 1, what, input: json!({}), expires_in: None };
    world.store.ask(hold, &ask).await.expect("an answer").expect("held");
    let unheard = async || world.store.unheard(hold.execution, 10).await.expect("rows");
    assert_eq!(unheard().await, []);
    world.store.answer(&place, None, &json!({ "yes": true }), "key:test").await.expect("an answer");
    assert_eq!(unheard().await, [], "nobody saw it yet");
    assert_eq!(world.store.answers(hold).await.expect("an answer").expect("held").len(), 1);
    assert_eq!(world.store.answers(hold).await.expect("an answer").expect("held").len(), 0, "it was seen");
    let found = unheard().await;
    assert_eq!((found.len(), &found[0].node, found[0].attempt, found[0].fence), (1, &call(), 1, 1));
    assert!(matches!(&found[0].standing, Standing::Answered(answer) if answer.result == Ok(json!({ "yes": true }))));
    let done = NodeFact { attempt: 1, output: Some(json!(1)), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, done).await, Told::Stored);
    assert_eq!(unheard().await, []);
}

#[tokio::test]
async fn nothing_is_taken_or_told_for_a_run_that_is_anothers_or_was_fenced() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let label = Some(Label::new("true").expect("a good name"));
    let done = || NodeFact { label: label.clone(), output: Some(json!(1)), ..fact("call", Status::Completed) };
    for other in [Hold { epoch: hold.epoch + 1, ..hold }, Hold { owner: ProcessId(store::new_id()), ..hold }] {
        assert_eq!(take(&world, other).await, Taken::Lost);
        assert_eq!(tell(&world, other, 1, done()).await, Told::Lost);
    }
    let workspace = world.store.execution(hold.execution, None).await.expect("it").workspace;
    world.store.terminate(hold.execution, workspace, "test").await.expect("fenced");
    assert_eq!((take(&world, hold).await, tell(&world, hold, 1, done()).await), (Taken::Lost, Told::Lost));
    let owned = world.store.owned_run(hold.execution, hold.owner).await.expect("an answer").expect("still running");
    assert!(owned.terminating && owned.begun.epoch > hold.epoch);
}
