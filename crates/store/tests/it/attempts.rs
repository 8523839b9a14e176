//! Workers begin attempts at nodes and report their results. Each write is fenced by the run and by the attempt, and a
//! worker's death does not count as an attempt.

use std::time::Duration;

use kernel::ids::{Label, NodeKey, ProcessId};
use kernel::run::node::Status;
use serde_json::json;
use store::run::attempt::{AttemptReport, AttemptStart, NewAttempt, Ownership, ReportOutcome};
use store::run::{End, NodeFact};
use store::wait::{NewWait, WaitKey, WaitKind, WaitState};

use crate::support::{World, fact, failure};

fn call() -> NodeKey {
    NodeKey::new("call").expect("a good name")
}

/// A run that any worker may act for.
async fn hold(world: &World) -> Ownership {
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1).await;
    let begun = world.run(workspace, 1).await.remove(0);
    Ownership { execution: begun.execution, owner: world.me, epoch: begun.epoch }
}

async fn take(world: &World, hold: Ownership) -> AttemptStart {
    take_item(world, hold, 0).await
}

async fn take_item(world: &World, ownership: Ownership, iteration: i32) -> AttemptStart {
    let new = NewAttempt { ownership, node: call(), iteration, input: Some(json!({ "url": "x" })) };
    world.store.start_attempts(&[new]).await.expect("an answer").remove(0)
}

async fn tell(world: &World, ownership: Ownership, fence: i32, fact: NodeFact) -> ReportOutcome {
    let report = AttemptReport { ownership, fence, fact, end: None };
    world.store.report_attempts(&[report]).await.expect("an answer").remove(0)
}

fn go(attempt: u32, fence: i32) -> AttemptStart {
    AttemptStart::Perform { attempt, fence, wait: None, begun: false }
}

#[tokio::test]
async fn a_dead_worker_costs_no_attempt_and_its_late_report_is_refused() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert_eq!(take(&world, hold).await, go(1, 2), "the next worker gets the same attempt");
    let late = NodeFact { output: Some(json!("late")), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, late).await, ReportOutcome::Superseded);
    let done = NodeFact { attempt: 1, output: Some(json!("done")), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 2, done.clone()).await, ReportOutcome::Stored);
    assert_eq!(tell(&world, hold, 2, done).await, ReportOutcome::Superseded, "a repeat changes nothing");
    let stored = world.store.some_nodes(hold.execution, &["call"]).await.expect("nodes");
    assert_eq!((stored[0].status, stored[0].attempt, &stored[0].output), (Status::Completed, 1, &Some(json!("done"))));
    assert!(matches!(take(&world, hold).await, AttemptStart::Settled { status: Status::Completed, .. }));
}

#[tokio::test]
async fn the_next_attempt_is_taken_when_it_is_due_and_not_before() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let (next_in, error) = (Some(Duration::from_secs(60)), Some(failure("no")));
    let later = NodeFact { attempt: 2, next_in, error, ..fact("call", Status::Retrying) };
    assert_eq!(tell(&world, hold, 1, later).await, ReportOutcome::Stored);
    assert!(matches!(take(&world, hold).await, AttemptStart::NotDue(wait) if wait > Duration::from_secs(50)));
    world.client.batch_execute("UPDATE workflow_execution_node SET next_at = clock_timestamp()").await.expect("due");
    assert_eq!(take(&world, hold).await, go(2, 2));
}

#[tokio::test]
async fn a_stored_delay_is_kept_however_often_the_node_is_taken() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let waits = NodeFact { attempt: 1, next_in: Some(Duration::from_secs(60)), ..fact("call", Status::Running) };
    assert_eq!(tell(&world, hold, 1, waits).await, ReportOutcome::Stored);
    let again = take(&world, hold).await;
    assert!(
        matches!(again, AttemptStart::Perform { attempt: 1, fence: 2, wait: Some(wait), begun: false } if wait > Duration::from_secs(50))
    );
}

#[tokio::test]
async fn iterations_are_taken_and_reported_one_by_one() {
    let world = World::new().await;
    let hold = hold(&world).await;
    for iteration in [0, 1, 2] {
        let taken = take_item(&world, hold, iteration).await;
        assert_eq!(taken, go(1, 1), "iteration {iteration}");
    }
    let done = NodeFact { iteration: 2, attempt: 1, output: Some(json!(2)), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, done).await, ReportOutcome::Stored);
    let key = call();
    let rows = world.store.nodes_at(hold.execution, &[(&key, 1), (&key, 2), (&key, 3)]).await.expect("rows");
    let stand: Vec<(i32, Status)> = rows.iter().map(|(iteration, row)| (*iteration, row.status)).collect();
    assert_eq!(stand, [(1, Status::Running), (2, Status::Completed)]);
    assert_eq!(take_item(&world, hold, 1).await, go(1, 2));
}

#[tokio::test]
async fn an_at_most_once_call_begins_under_its_fence_and_not_before() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert_eq!(take(&world, hold).await, go(1, 2), "a worker that only took it may have died before it sent anything");
    let begin = async |hold, fence| world.store.begin_once(hold, &call(), 0, fence).await.expect("an answer");
    assert!(!begin(hold, 1).await, "it was overtaken");
    assert!(!begin(Ownership { epoch: hold.epoch + 1, ..hold }, 2).await, "another owner holds the run");
    assert!(begin(hold, 2).await && begin(hold, 2).await, "it may be repeated");
    assert_eq!(take(&world, hold).await, AttemptStart::Perform { attempt: 1, fence: 3, wait: None, begun: true });
    assert_eq!(
        take(&world, hold).await,
        AttemptStart::Perform { attempt: 1, fence: 4, wait: None, begun: true },
        "it stays so"
    );
    let later = NodeFact { attempt: 2, next_in: Some(Duration::ZERO), ..fact("call", Status::Retrying) };
    assert_eq!(tell(&world, hold, 4, later).await, ReportOutcome::Stored);
    assert_eq!(take(&world, hold).await, go(2, 5), "the next attempt has begun nothing");
}

#[tokio::test]
async fn a_withdrawn_at_most_once_call_counts_as_not_begun() {
    let world = World::new().await;
    let hold = hold(&world).await;
    let begin = async |fence| world.store.begin_once(hold, &call(), 0, fence).await.expect("an answer");
    let withdraw = async |hold, fence| world.store.withdraw_once(hold, &call(), 0, fence).await.expect("an answer");
    assert_eq!(take(&world, hold).await, go(1, 1));
    assert!(begin(1).await);
    assert!(!withdraw(Ownership { epoch: hold.epoch + 1, ..hold }, 1).await, "another owner holds the run");
    assert!(withdraw(hold, 1).await);
    assert!(!withdraw(hold, 1).await && !begin(1).await, "a late call of that take changes nothing");
    assert_eq!(take(&world, hold).await, go(1, 3), "the same attempt, and no call has begun");
    assert!(begin(3).await && !withdraw(hold, 1).await);
    assert_eq!(take(&world, hold).await, AttemptStart::Perform { attempt: 1, fence: 4, wait: None, begun: true });
    assert!(!withdraw(hold, 3).await, "it was overtaken");
}

/// A worker read an answer and died before it reported it. The next one finds it, until the node's row holds the
/// result.
#[tokio::test]
async fn an_answer_that_was_read_is_found_until_its_node_has_settled() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let place = WaitKey { execution: hold.execution, node: call(), iteration: 0 };
    let workspace = world.store.execution(hold.execution, None).await.expect("it").workspace;
    let what = WaitKind::Wait { event: None, matches: None };
    let ask = NewWait { key: place.clone(), workspace, attempt: 1, kind: what, input: json!({}), expires_in: None };
    world.store.open_wait(hold, &ask).await.expect("an answer").expect("held");
    let unheard = async || world.store.undelivered_results(hold.execution, 10).await.expect("rows");
    assert_eq!(unheard().await, []);
    world.store.answer(&place, None, &json!({ "yes": true }), "key:test").await.expect("an answer");
    assert_eq!(unheard().await, [], "nobody has read it yet");
    assert_eq!(world.store.read_answers(hold).await.expect("an answer").expect("held").len(), 1);
    assert_eq!(world.store.read_answers(hold).await.expect("an answer").expect("held").len(), 0, "it was read");
    let found = unheard().await;
    assert_eq!((found.len(), &found[0].node, found[0].attempt, found[0].fence), (1, &call(), 1, 1));
    assert!(matches!(&found[0].state, WaitState::Answered(answer) if answer.result == Ok(json!({ "yes": true }))));
    let done = NodeFact { attempt: 1, output: Some(json!(1)), ..fact("call", Status::Completed) };
    assert_eq!(tell(&world, hold, 1, done).await, ReportOutcome::Stored);
    assert_eq!(unheard().await, []);
}

#[tokio::test]
async fn nothing_is_taken_or_reported_for_a_run_of_another_owner_or_epoch() {
    let world = World::new().await;
    let hold = hold(&world).await;
    assert_eq!(take(&world, hold).await, go(1, 1));
    let label = Some(Label::new("true").expect("a good name"));
    let done = || NodeFact { label: label.clone(), output: Some(json!(1)), ..fact("call", Status::Completed) };
    for other in [Ownership { epoch: hold.epoch + 1, ..hold }, Ownership { owner: ProcessId(store::new_id()), ..hold }]
    {
        assert_eq!(take(&world, other).await, AttemptStart::Lost);
        assert_eq!(tell(&world, other, 1, done()).await, ReportOutcome::Lost);
    }
    let workspace = world.store.execution(hold.execution, None).await.expect("it").workspace;
    world.store.terminate(hold.execution, workspace, "test").await.expect("fenced");
    assert_eq!(
        (take(&world, hold).await, tell(&world, hold, 1, done()).await),
        (AttemptStart::Lost, ReportOutcome::Lost)
    );
    let owned = world.store.owned_run(hold.execution, hold.owner).await.expect("an answer").expect("still running");
    assert!(owned.terminating && owned.begun.epoch > hold.epoch);
}

/// The attempts of many runs are started, and reported, in one commit each. A run that is lost changes nothing for the
/// others, and one of the reports ends its run.
#[tokio::test]
async fn the_attempts_of_many_runs_share_a_commit() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 3).await;
    let begun = world.run(workspace, 3).await;
    let holds: Vec<Ownership> = begun
        .iter()
        .map(|begun| Ownership { execution: begun.execution, owner: world.me, epoch: begun.epoch })
        .collect();
    let lost = Ownership { epoch: holds[2].epoch + 1, ..holds[2] };
    let places = [(holds[1], 1), (holds[0], 0), (holds[1], 2), (lost, 0)];
    let new = |(ownership, iteration)| NewAttempt { ownership, node: call(), iteration, input: None };
    let started = world.store.start_attempts(&places.map(new)).await.expect("an answer");
    assert_eq!(started, [go(1, 1), go(1, 1), go(1, 1), AttemptStart::Lost]);
    let report = |(ownership, iteration): (Ownership, i32), fence, end| {
        let fact =
            NodeFact { iteration, attempt: 1, output: Some(json!(iteration)), ..fact("call", Status::Completed) };
        AttemptReport { ownership, fence, fact, end }
    };
    let end = End { outcome: kernel::execution::Status::Completed, output: Some(json!("over")), error: None };
    let reports = [
        report(places[0], 1, None),
        report(places[1], 1, Some(end)),
        report(places[2], 7, None),
        report(places[3], 1, None),
    ];
    let reported = world.store.report_attempts(&reports).await.expect("an answer");
    let ended = ReportOutcome::Ended { freed: Some(workspace) };
    assert_eq!(reported, [ReportOutcome::Stored, ended, ReportOutcome::Superseded, ReportOutcome::Lost]);
    let over = world.store.execution(holds[0].execution, None).await.expect("it");
    assert_eq!((over.status, over.output), (kernel::execution::Status::Completed, Some(json!("over"))));
    assert_eq!(world.store.report_attempts(&reports[1..2]).await.expect("an answer"), [ReportOutcome::Lost]);
}
