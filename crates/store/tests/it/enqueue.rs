//! Each accepted start request has its own result, in the order of the requests, and creates one execution.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kernel::ids::ExecutionId;
use serde_json::json;
use store::batch::{BatchResult, by_halves};
use store::connect::Target;
use store::definition::DefinitionRef;
use store::queue::enqueue::{CheckedStart, EnqueueOutcome, Start};
use store::{Error, Store};

use crate::support::{Limits, World, keyed, new_version, race, start};

fn with_key(start: Start, key: &str, content: &str) -> Start {
    Start { idempotency: Some((key.to_owned(), content.as_bytes().to_vec())), ..start }
}

fn in_an_hour() -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(1)
}

#[tokio::test]
async fn a_hundred_starts_are_answered_in_order() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let starts: Vec<Start> = (0..100).map(|_| start(workspace, definition)).collect();
    let answers = world.store.enqueue(&starts, "test").await.expect("an enqueue");
    let expected: Vec<EnqueueOutcome> =
        starts.iter().map(|start| EnqueueOutcome::New { execution: start.execution, ready: true }).collect();
    assert_eq!(answers, expected);
    assert_eq!(world.stages(workspace).await, "ready 100");
    assert_eq!(world.count("audit WHERE action = 'execution.start' AND actor = 'test'").await, 100);
}

#[tokio::test]
async fn a_start_runs_the_version_its_input_was_checked_against_or_is_not_accepted() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let known = world.store.definition(DefinitionRef::Id(definition), Some(workspace)).await.expect("a definition");
    let first = known.published_version.expect("a version");
    let starts = [with_key(start(workspace, definition), "k", "a"), start(workspace, definition)];
    let judged = |start, published| CheckedStart { start, published, actor: "test" };
    let accepted = world.store.enqueue_checked(&[judged(&starts[0], Some(first))], None).await.expect("an enqueue");
    assert_eq!(accepted, [EnqueueOutcome::New { execution: starts[0].execution, ready: true }]);

    let version = new_version(Limits::default());
    let second = world.store.add_version(workspace, definition, &version, "test").await.expect("a version").id;
    world.store.publish(workspace, definition, second, &version, "test").await.expect("published");
    let repeated = Start { execution: ExecutionId(store::new_id()), ..starts[0].clone() };
    let other = with_key(start(workspace, definition), "k", "b");
    let all = [judged(&repeated, Some(first)), judged(&other, Some(first)), judged(&starts[1], Some(first))];
    let answers = world.store.enqueue_checked(&all, None).await.expect("an enqueue");
    let existing = EnqueueOutcome::Existing { execution: starts[0].execution };
    assert_eq!(answers, [existing, EnqueueOutcome::Conflict, EnqueueOutcome::VersionChanged]);
    assert_eq!(world.count("workflow_execution").await, 1, "nothing of it was stored");

    let again = world.store.enqueue_checked(&[judged(&starts[1], Some(second))], None).await.expect("an enqueue");
    assert_eq!(again, [EnqueueOutcome::New { execution: starts[1].execution, ready: true }]);
    assert_eq!(world.count(&format!("workflow_execution WHERE version_id = '{second}'")).await, 1);
}

#[tokio::test]
async fn each_start_of_one_call_has_its_own_actor() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let starts = [start(workspace, definition), start(workspace, definition)];
    let of = |start, actor| CheckedStart { start, published: None, actor };
    let gathered = [of(&starts[0], "key:a"), of(&starts[1], "key:b")];
    world.store.enqueue_gathered(&gathered, None).await.expect("an enqueue");
    for (start, actor) in starts.iter().zip(["key:a", "key:b"]) {
        let audited = format!("audit WHERE subject_id = '{}' AND actor = '{actor}'", start.execution.0);
        assert_eq!(world.count(&audited).await, 1, "{actor}");
    }
}

#[tokio::test]
async fn starts_of_several_clients_wait_only_a_moment_for_a_key_that_is_in_use() {
    let mut world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let store = world.store.clone();
    let transaction = world.client.transaction().await.expect("a transaction");
    let sql = "SELECT forebay.enqueue($1, $2, idempotency_key => 'k')";
    transaction.query_one(sql, &[&workspace.0, &definition.0]).await.expect("an open transaction with the key");
    let keyed = with_key(start(workspace, definition), "k", "a");
    let free = start(workspace, definition);
    let of = |start| CheckedStart { start, published: None, actor: "test" };
    for (gathered, range) in [(true, 50..1_500), (false, 2_000..60_000)] {
        let began = Instant::now();
        let outcome = match gathered {
            true => store.enqueue_gathered(&[of(&free), of(&keyed)], None).await,
            false => store.enqueue_checked(&[of(&keyed)], None).await,
        };
        assert!(outcome.is_err_and(|error| error.is_lock_timeout()));
        assert!(range.contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }
    transaction.rollback().await.expect("the key is free");
    assert_eq!(world.count("workflow_execution").await, 0, "nothing of a failed call is stored");
}

#[tokio::test]
async fn looking_up_an_idempotency_key_is_per_workspace_and_stores_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (other_workspace, _) = world.tenant("PRO").await;
    let known = with_key(start(workspace, definition), "k", "a");
    world.store.enqueue(std::slice::from_ref(&known), "test").await.expect("an enqueue");
    let asked = [
        start(workspace, definition),
        with_key(start(workspace, definition), "unknown", "a"),
        with_key(start(workspace, definition), "k", "b"),
        with_key(start(workspace, definition), "k", "a"),
        with_key(start(other_workspace, definition), "k", "a"),
    ];
    let before = world.store.accepted_before(&asked.iter().collect::<Vec<_>>()).await.expect("an answer");
    let existing = EnqueueOutcome::Existing { execution: known.execution };
    assert_eq!(before, [None, None, Some(EnqueueOutcome::Conflict), Some(existing), None]);
    assert_eq!(world.store.accepted_before(&[&asked[0]]).await.expect("an answer"), [None]);
    assert_eq!(world.count("workflow_execution").await, 1);
}

#[tokio::test]
async fn a_start_that_cannot_be_accepted_does_not_affect_the_others() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (_, of_another) = world.tenant("PRO").await;
    let deleted = world.definition(workspace, Limits::default()).await;
    world.run_sql("UPDATE workflow_definition SET deleted_at = now() WHERE id = $1", &[&deleted.0]).await;
    let version = new_version(Limits::default());
    let (draft, _) = world.store.create_definition(workspace, "draft", &version, "test").await.expect("a draft");
    let good = [start(workspace, definition), start(workspace, definition)];
    let starts = [
        good[0].clone(),
        start(workspace, kernel::ids::DefinitionId(store::new_id())),
        start(workspace, of_another),
        start(workspace, deleted),
        start(workspace, draft),
        good[1].clone(),
    ];
    let answers = world.store.enqueue(&starts, "test").await.expect("an enqueue");
    let new = |start: &Start| EnqueueOutcome::New { execution: start.execution, ready: true };
    use EnqueueOutcome::{Draft, NotFound};
    assert_eq!(answers, [new(&good[0]), NotFound, NotFound, NotFound, Draft, new(&good[1])]);
    assert_eq!(world.count("workflow_execution").await, 2);
    assert_eq!(world.count("audit WHERE action = 'execution.start'").await, 2);
}

#[tokio::test]
async fn a_deleted_workspace_accepts_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    let answers = world.store.enqueue(&[start(workspace, definition)], "test").await.expect("an enqueue");
    assert_eq!(answers, [EnqueueOutcome::NotFound]);
}

#[tokio::test]
async fn an_idempotency_key_stands_for_one_content_in_one_workspace() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (elsewhere, its_definition) = world.tenant("PRO").await;
    let first = with_key(start(workspace, definition), "k", "content");
    let same = with_key(start(workspace, definition), "k", "content");
    let other = with_key(start(workspace, definition), "k", "other content");
    let theirs = with_key(start(elsewhere, its_definition), "k", "content");
    let new = |start: &Start| EnqueueOutcome::New { execution: start.execution, ready: true };
    let existing = EnqueueOutcome::Existing { execution: first.execution };
    let expected = [new(&first), existing, EnqueueOutcome::Conflict, new(&theirs)];
    let batch = [first.clone(), same.clone(), other.clone(), theirs.clone()];
    assert_eq!(world.store.enqueue(&batch, "test").await.expect("an enqueue"), expected, "within one call");
    for (start, expected) in [(same, existing), (other, EnqueueOutcome::Conflict), (first, existing)] {
        assert_eq!(world.store.enqueue(&[start], "test").await.expect("an enqueue"), [expected], "in a later call");
    }
    assert_eq!(world.count("workflow_execution").await, 2);
    assert_eq!(world.count("execution_queue").await, 2);
}

#[tokio::test]
async fn an_idempotency_key_names_its_execution_also_after_the_end() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let first = with_key(start(workspace, definition), "k", "content");
    let execution = world.accept(std::slice::from_ref(&first)).await[0];
    world.finish(execution, kernel::execution::Status::Canceled).await;
    let again = with_key(start(workspace, definition), "k", "content");
    let answers = world.store.enqueue(&[again], "test").await.expect("an enqueue");
    assert_eq!(answers, [EnqueueOutcome::Existing { execution }]);
    assert_eq!(world.stages(workspace).await, "nothing");
}

#[tokio::test]
async fn a_call_repeated_with_the_same_ids_changes_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let starts = [start(workspace, definition), start(workspace, definition)];
    world.accept(&starts).await;
    let again = world.store.enqueue(&starts, "test").await.expect("an enqueue");
    let expected = starts.each_ref().map(|start| EnqueueOutcome::Existing { execution: start.execution });
    assert_eq!(again, expected);
    assert_eq!(world.stages(workspace).await, "ready 2");
    assert_eq!(world.count("audit WHERE action = 'execution.start'").await, 2);
}

#[tokio::test]
async fn of_twenty_calls_at_once_with_one_key_one_is_accepted() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let answers = race(&world.store, 20, |_, store| async move {
        let start = with_key(start(workspace, definition), "k", "content");
        store.enqueue(&[start], "test").await.expect("an enqueue")[0]
    })
    .await;
    let new = |answer: &&EnqueueOutcome| matches!(answer, EnqueueOutcome::New { .. });
    assert_eq!(answers.iter().filter(new).count(), 1, "{answers:?}");
    let mut outcome: Vec<ExecutionId> = answers
        .iter()
        .map(|answer| match answer {
            EnqueueOutcome::New { execution, .. } | EnqueueOutcome::Existing { execution } => *execution,
            other => panic!("{other:?}"),
        })
        .collect();
    outcome.dedup();
    assert_eq!(outcome.len(), 1, "all get the same execution");
    assert_eq!(world.stages(workspace).await, "ready 1");
}

#[tokio::test]
async fn a_key_whose_first_use_is_not_committed_yet_is_waited_for_and_then_given_up() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let mut first = world.database.client().await;
    let transaction = first.transaction().await.expect("begin");
    let call = "SELECT forebay.enqueue($1, $2, idempotency_key => 'k')";
    let row = transaction.query_one(call, &[&workspace.0, &definition.0]).await.expect("a start in flight");
    let hasty = format!("{}&options=-c%20lock_timeout%3D50ms", world.database.url);
    let hasty = Store::new(&Target::new(&hasty).expect("a URL"), 1).expect("a pool");
    let second = move || with_key(start(workspace, definition), "k", "content");
    let error = hasty.enqueue(&[second()], "test").await.expect_err("the first is in flight");
    assert!(error.is_lock_timeout(), "{error:?}");
    let store = world.store.clone();
    let patient = tokio::spawn(async move { store.enqueue(&[second()], "test").await });
    world.somebody_is_blocked().await;
    transaction.commit().await.expect("commit");
    let outcome = patient.await.expect("a call").expect("an answer");
    assert_eq!(
        outcome,
        [EnqueueOutcome::Conflict],
        "the first has other content, under {:?}",
        row.get::<_, uuid::Uuid>(0)
    );
}

#[tokio::test]
async fn batches_that_share_keys_in_opposite_orders_do_not_deadlock() {
    let world = World::new().await;
    let tenants = [world.tenant("PRO").await, world.tenant("PRO").await];
    for round in 0..20 {
        let accepted = race(&world.store, 8, |racer, store| async move {
            let mut starts: Vec<Start> = (0..20)
                .flat_map(|n| tenants.map(|(ws, def)| with_key(start(ws, def), &format!("{round}/{n}"), "content")))
                .collect();
            if racer % 2 == 1 {
                starts.reverse();
            }
            let answers = store.enqueue(&starts, "test").await.expect("no deadlock");
            answers.iter().filter(|answer| matches!(answer, EnqueueOutcome::New { .. })).count()
        })
        .await;
        assert_eq!(accepted.iter().sum::<usize>(), 40);
    }
}

#[tokio::test]
async fn a_start_gets_the_stage_of_what_blocks_it() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let free = world.definition(workspace, Limits::default()).await;
    let limited = world.definition(workspace, Limits { concurrency: Some(0), ..Limits::default() }).await;
    let closed = world.definition(workspace, Limits { key_concurrency: Some(0), ..Limits::default() }).await;
    let paused = world.definition(workspace, Limits::default()).await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&paused.0]).await;
    let later = |start: Start| Start { run_at: Some(in_an_hour()), ..start };
    let past = Start { run_at: Some(Timestamp::now() - SignedDuration::from_hours(1)), ..start(workspace, free) };
    let table = [
        (start(workspace, free), 0),
        (past, 0),
        (later(start(workspace, free)), 1),
        (later(keyed(workspace, free, "a")), 1),
        (keyed(workspace, free, "b"), 0),
        (keyed(workspace, free, "b"), 2),
        (keyed(workspace, closed, "c"), 2),
        (start(workspace, limited), 3),
        (later(start(workspace, limited)), 1),
        (start(workspace, paused), 3),
        (later(start(workspace, paused)), 1),
    ];
    for (at, (start, expected)) in table.into_iter().enumerate() {
        let ready = expected == 0;
        let answer = world.store.enqueue(std::slice::from_ref(&start), "test").await.expect("an enqueue");
        let stage: i16 = world.get("SELECT stage FROM execution_queue WHERE id = $1", &[&start.execution.0]).await;
        assert_eq!(stage, expected, "line {at}");
        assert_eq!(answer, [EnqueueOutcome::New { execution: start.execution, ready }], "line {at}");
    }
}

#[tokio::test]
async fn starts_with_a_key_of_a_paused_definition_are_not_ready() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&definition.0]).await;
    let starts: Vec<Start> = (0..10).map(|n| keyed(workspace, definition, &format!("key {n}"))).collect();
    world.accept(&starts).await;
    assert_eq!(world.stages(workspace).await, "definition 10");
}

#[tokio::test]
async fn a_start_pins_the_version_published_at_that_moment() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let before = world.accept_many(workspace, definition, 1).await[0];
    let version = new_version(Limits::default());
    let stored = world.store.add_version(workspace, definition, &version, "test").await.expect("a version");
    world.store.publish(workspace, definition, stored.id, &version, "test").await.expect("published");
    let after = world.accept_many(workspace, definition, 1).await[0];
    let number = async |id| world.store.execution(id, None).await.expect("an execution").version_number;
    assert_eq!((number(before).await, number(after).await), (Some(1), Some(2)));
}

#[tokio::test]
async fn an_input_that_cannot_be_stored_is_found_by_halves_and_refused_alone() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let mut starts: Vec<Start> =
        (0..16).map(|n| Start { input: Some(json!({ "n": n })), ..start(workspace, definition) }).collect();
    starts[11].input = Some(json!({ "n": "a\0b" }));
    let whole = world.store.enqueue(&starts, "test").await.expect_err("one of them is bad");
    assert!(matches!(&whole, Error::Refused { code, .. } if code == "22P05"), "{whole:?}");
    assert_eq!(world.count("workflow_execution").await, 0, "a refused batch leaves nothing");
    let fates = by_halves(&starts, |some| world.store.enqueue(some, "test")).await.expect("the others are accepted");
    for (at, fate) in fates.iter().enumerate() {
        match fate {
            BatchResult::Done(EnqueueOutcome::New { execution, .. }) => assert_eq!(*execution, starts[at].execution),
            BatchResult::Refused(_) => assert_eq!(at, 11),
            other => panic!("{at}: {other:?}"),
        }
    }
    assert_eq!(world.stages(workspace).await, "ready 15");
}
