//! Waits for events: no event is missed, however late it commits and whatever isolation level its writer uses.

use std::time::Duration;

use kernel::ids::{NodeKey, WorkspaceId};
use serde_json::json;
use store::run::attempt::Ownership;
use store::wait::{AnswerOutcome, CandidatePage, NewWait, WaitKey, WaitKind, WaitState};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::plans::touched;
use crate::support::{World, eventually, race};
use crate::waits::{brought, held, open_wait};

/// A wait for payments.
fn wait(hold: Ownership, workspace: WorkspaceId) -> NewWait {
    let place = WaitKey { execution: hold.execution, node: NodeKey::new("paid").expect("a key"), iteration: 0 };
    let what = WaitKind::Wait { event: Some("payment.made".to_owned()), matches: Some("event.data.n > 1".to_owned()) };
    NewWait { key: place, workspace, attempt: 1, kind: what, input: json!({}), expires_in: None }
}

async fn append(client: &Client, workspace: WorkspaceId, kind: &str, n: i32) {
    let sql = "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
               VALUES ($1, $2, 'payment', 1, $3, jsonb_build_object('n', $4::int))";
    client.execute(sql, &[&workspace.0, &Uuid::now_v7(), &kind, &n]).await.expect("an event");
}

const LEASE: Duration = Duration::from_secs(60);

async fn take(world: &World, after: Option<WorkspaceId>, limit: i32) -> Option<CandidatePage> {
    world.store.claim_candidates(after, limit, LEASE).await.expect("a page")
}

fn numbers(page: &CandidatePage) -> Vec<i64> {
    page.candidates.iter().map(|candidate| candidate.event.data["n"].as_i64().expect("a number")).collect()
}

/// The events that would be evaluated now, by number, each once.
async fn noted(world: &World) -> Vec<i64> {
    let mut seen = Vec::new();
    while let Some(page) = take(world, None, 100).await {
        assert!(page.candidates.iter().all(|candidate| candidate.matches.as_deref() == Some("event.data.n > 1")));
        for number in numbers(&page) {
            if !seen.contains(&number) {
                seen.push(number);
            }
        }
    }
    lapse(world).await;
    seen
}

/// Lets the lease of every taken page expire.
async fn lapse(world: &World) {
    let sql = "UPDATE workflow_execution_candidate SET claimed_until = now() - interval '1 second' WHERE claimed_by IS NOT NULL";
    world.client.execute(sql, &[]).await.expect("candidates");
}

/// Evaluates all candidates, without a match.
async fn judge_all(world: &World, limit: i32) -> Vec<Vec<i64>> {
    let mut pages = Vec::new();
    while let Some(page) = take(world, None, limit).await {
        pages.push(numbers(&page));
        world.store.finish_candidates(page.claim).await.expect("judged");
    }
    pages
}

/// Runs the second check once.
async fn look(world: &World) {
    world.store.recheck_events(100).await.expect("a look");
}

/// Repeats the second check until every transaction of that moment has ended; other databases of the server have some
/// too.
async fn looked(world: &World) {
    eventually("no wait has a second check left", async || {
        look(world).await;
        world.count(RECHECKS).await == 0
    })
    .await;
}

const RECHECKS: &str = "workflow_execution_wait WHERE recheck";

#[tokio::test]
async fn an_event_is_a_candidate_of_the_waits_for_its_type_in_its_workspace_and_of_no_other() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (_, stranger) = held(&world).await;
    append(&world.client, workspace, "payment.made", 1).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 0, "nobody waits");
    open_wait(&world, hold, &wait(hold, workspace)).await;
    assert_eq!(noted(&world).await, [1], "events from before it opened");
    append(&world.client, workspace, "payment.made", 2).await;
    append(&world.client, workspace, "payment.refused", 3).await;
    append(&world.client, stranger, "payment.made", 4).await;
    assert_eq!(noted(&world).await, [1, 2]);
    open_wait(&world, hold, &wait(hold, workspace)).await;
    assert_eq!(noted(&world).await, [1, 2], "opening it again adds no candidate");
}

#[tokio::test]
async fn an_event_older_than_the_execution_is_no_answer() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    append(&world.client, workspace, "payment.made", 1).await;
    let definition = world.definition(workspace, crate::support::Limits::default()).await;
    let (hold, _) = crate::waits::held_of(&world, workspace, definition).await;
    open_wait(&world, hold, &wait(hold, workspace)).await;
    looked(&world).await;
    assert_eq!(noted(&world).await, Vec::<i64>::new());
}

#[tokio::test]
async fn the_matching_event_is_the_answer_and_other_candidates_are_deleted() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace);
    open_wait(&world, hold, &wait).await;
    for n in 1..=3 {
        append(&world.client, workspace, "payment.made", n).await;
    }
    let outcome = world.store.answer_with_event(&wait.key, &json!({ "n": 2 })).await.expect("an answer");
    assert!(matches!(outcome, AnswerOutcome::Accepted(Some(_))), "{outcome:?}");
    let second = world.store.answer_with_event(&wait.key, &json!({ "n": 3 })).await.expect("an answer");
    assert_eq!(second, AnswerOutcome::AlreadyAnswered);
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), r#"{"n":2} by event"#);
    assert_eq!(noted(&world).await, Vec::<i64>::new());
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}

#[tokio::test]
async fn an_event_whose_writer_commits_late_is_found_once_every_older_transaction_has_ended() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (mut writer, mut other) = (world.database.client().await, world.database.client().await);
    // Both are written while there is no wait, as far as their writers can see.
    let late = writer.transaction().await.expect("a transaction");
    append(late.client(), workspace, "payment.made", 7).await;
    open_wait(&world, hold, &wait(hold, workspace)).await;
    look(&world).await;
    look(&world).await;
    assert_eq!(noted(&world).await, Vec::<i64>::new(), "its writer has not committed");
    assert_eq!(world.count(RECHECKS).await, 1, "so the wait keeps checking");
    late.commit().await.expect("a commit");
    looked(&world).await;
    assert_eq!(noted(&world).await, [7]);
    // From now on writers see the wait, whatever else is open.
    let open = other.transaction().await.expect("a transaction");
    append(open.client(), workspace, "payment.made", 8).await;
    open.commit().await.expect("a commit");
    assert_eq!(noted(&world).await, [7, 8]);
}

#[tokio::test]
async fn an_event_whose_writer_has_an_older_snapshot_is_found_too() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let mut writer = world.database.client().await;
    let build = writer.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let old = build.start().await.expect("a transaction");
    // Its snapshot is of now, when there is no wait; its transaction id is drawn when it writes.
    old.query_one("SELECT count(*) FROM workflow_execution_wait", &[]).await.expect("a view");
    open_wait(&world, hold, &wait(hold, workspace)).await;
    // No transaction id of that moment is open.
    looked(&world).await;
    let sql = "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data, created_at)
               VALUES ($1, $2, 'payment', 1, 'payment.made', '{\"n\": 9}', clock_timestamp())";
    old.execute(sql, &[&workspace.0, &Uuid::now_v7()]).await.expect("an event");
    old.commit().await.expect("a commit");
    assert_eq!(noted(&world).await, [9]);
}

#[tokio::test]
async fn an_early_answer_needs_no_event_and_no_event_answers_early() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace);
    let outcome = world.store.answer_with_event(&wait.key, &json!(1)).await;
    assert!(matches!(outcome, Err(store::Error::NotFound)), "{outcome:?}");
    world.store.answer(&wait.key, None, &json!(1), "ada").await.expect("an answer");
    assert!(matches!(open_wait(&world, hold, &wait).await, WaitState::Answered(_)));
    append(&world.client, workspace, "payment.made", 5).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}

/// Open waits for payments of one run, inserted with plain SQL.
async fn many_waits(world: &World, hold: Ownership, workspace: WorkspaceId, count: i32) {
    let sql = "INSERT INTO workflow_execution_wait (execution_id, node, iteration, id, workspace_id, holder, kind, attempt, status, event_type,
            match, events_from, input, opened_at)
        SELECT $1, 'paid', n, forebay.new_id(), $2, $1, 'WAIT', 1, 'OPEN', 'payment.made', 'event.data.n > 1', now() - interval '1 hour', '{}', now()
          FROM generate_series(1, $3::int) n";
    world.run_sql(sql, &[&hold.execution.0, &workspace.0, &count]).await;
}

#[tokio::test]
async fn an_unreadable_event_is_dropped_and_does_not_block_the_next() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open_wait(&world, hold, &wait(hold, workspace)).await;
    for (n, at) in ["infinity", "294000-01-01", "9999-12-31 23:59:59+00"].into_iter().enumerate() {
        let sql = format!(
            "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data, created_at)
             VALUES ($1, gen_random_uuid(), 'payment', 1, 'payment.made', jsonb_build_object('n', 90 + {n}), '{at}')"
        );
        world.run_sql(&sql, &[&workspace.0]).await;
    }
    append(&world.client, workspace, "payment.made", 5).await;
    let page = take(&world, None, 100).await.expect("a page");
    assert_eq!(page.unreadable.len(), 3, "{:?}", page.unreadable);
    assert!(page.candidates.iter().all(|candidate| candidate.event.data["n"] == 5), "{:?}", numbers(&page));
    world.store.finish_candidates(page.claim).await.expect("judged");
    assert_eq!(world.count("workflow_execution_candidate").await, 0, "nothing is left behind, whatever the cursor was");
}

#[tokio::test]
async fn an_append_beside_many_waits_adds_one_row_and_touches_few_buffers() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let sql = "SELECT added FROM forebay_r1.append_events(ARRAY[gen_random_uuid()], ARRAY[false], ARRAY[$1::uuid], ARRAY[gen_random_uuid()], ARRAY['payment'],
        ARRAY[NULL::int], ARRAY['payment.made'], ARRAY['{}'::jsonb], ARRAY[NULL::jsonb])";
    many_waits(&world, hold, workspace, 20_000).await;
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE").await.expect("statistics");
        }
        let buffers = touched(&world, sql, &[&workspace.0]).await;
        assert!(buffers < 150, "{buffers} buffers, analysed: {analysed}");
    }
    world.run_sql(sql, &[&workspace.0]).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 1);
}

#[tokio::test]
async fn the_waits_of_an_event_are_evaluated_in_pages_each_once_and_a_page_touches_few_buffers() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    many_waits(&world, hold, workspace, 20_000).await;
    append(&world.client, workspace, "payment.made", 5).await;
    let take = "SELECT claim FROM forebay_r1.claim_candidates(NULL::uuid, 100, 60)";
    let buffers = touched(&world, take, &[]).await;
    assert!(buffers < 1_000, "{buffers} buffers for a hundred of many");
    world.run_sql("DELETE FROM workflow_execution_wait WHERE iteration > 250", &[]).await;
    assert_eq!(judge_all(&world, 100).await.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}

#[tokio::test]
async fn a_wait_checks_all_earlier_events_however_many() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let sql = "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
               SELECT $1, gen_random_uuid(), 'payment', 1, 'payment.made', jsonb_build_object('n', n) FROM generate_series(1, 10001) n";
    world.run_sql(sql, &[&workspace.0]).await;
    open_wait(&world, hold, &wait(hold, workspace)).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 1, "opening a wait writes one row");
    let seen: Vec<i64> = judge_all(&world, 500).await.into_iter().flatten().collect();
    assert_eq!(seen, (1..=10_001).collect::<Vec<_>>(), "all of them, in order");
}

#[tokio::test]
async fn a_flood_in_one_workspace_delays_others_by_one_page_and_a_taken_page_is_not_handed_out_again() {
    let world = World::new().await;
    let (flood, flooding) = held(&world).await;
    let (quiet, other) = held(&world).await;
    many_waits(&world, flood, flooding, 1_000).await;
    append(&world.client, flooding, "payment.made", 1).await;
    open_wait(&world, quiet, &wait(quiet, other)).await;
    append(&world.client, other, "payment.made", 7).await;
    let (mut after, mut turns) = (None, Vec::new());
    for _ in 0..2 {
        let page = take(&world, after, 100).await.expect("a page");
        world.store.finish_candidates(page.claim).await.expect("judged");
        after = Some(page.workspace);
        turns.push(page.workspace);
    }
    assert_ne!(turns[0], turns[1], "each in turn");
    // Two processes at once get different workspaces, and a third gets none.
    append(&world.client, other, "payment.made", 8).await;
    let (first, second) =
        (take(&world, None, 100).await.expect("a page"), take(&world, None, 100).await.expect("a page"));
    assert_ne!(first.workspace, second.workspace);
    assert!(take(&world, None, 100).await.is_none(), "a page in evaluation is not handed out");
    lapse(&world).await;
    assert!(
        take(&world, None, 100).await.is_some() && take(&world, None, 100).await.is_some(),
        "until its lease expires"
    );
    world.store.finish_candidates(first.claim).await.expect("judged");
    let kept = world.count("workflow_execution_candidate WHERE claimed_by IS NOT NULL").await;
    assert!(kept > 0, "a page that another process has claimed is not changed");
}

#[tokio::test]
async fn concurrent_evaluators_share_the_waits_and_evaluate_each() {
    let world = World::new().await;
    for _ in 0..6 {
        let (hold, workspace) = held(&world).await;
        many_waits(&world, hold, workspace, 50).await;
        append(&world.client, workspace, "payment.made", 1).await;
    }
    let judged = race(&world.store, 6, |_, store| async move {
        let (mut judged, mut after) = (Vec::new(), None);
        while let Some(page) = store.claim_candidates(after, 20, LEASE).await.expect("a page") {
            judged.extend(page.candidates.iter().map(|candidate| candidate.key.clone()));
            store.finish_candidates(page.claim).await.expect("judged");
            after = Some(page.workspace);
        }
        judged
    })
    .await;
    let mut all: Vec<WaitKey> = judged.into_iter().flatten().collect();
    all.sort();
    let given = all.len();
    all.dedup();
    assert_eq!((given, all.len()), (300, 300));
}

/// Evaluates everything in pages of three, and marks only the first two of each as evaluated.
async fn judge_in_part(world: &World) -> Vec<Vec<i64>> {
    let mut pages = Vec::new();
    while let Some(page) = take(world, None, 3).await {
        pages.push(numbers(&page));
        match page.candidates.get(1) {
            Some(second) if page.candidates.len() > 2 => world.store.finish_candidates_up_to(page.claim, second).await,
            _ => world.store.finish_candidates(page.claim).await,
        }
        .expect("judged");
    }
    pages
}

#[tokio::test]
async fn the_unevaluated_rest_of_a_page_starts_the_next_one() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for n in 1..=5 {
        append(&world.client, workspace, "payment.made", n).await;
    }
    open_wait(&world, hold, &wait(hold, workspace)).await;
    looked(&world).await;
    // A wait checks events twice: when it opens, and a little later.
    let twice = [vec![1, 2, 3], vec![3, 4, 5], vec![5, 1, 2], vec![2, 3, 4], vec![4, 5]];
    assert_eq!(judge_in_part(&world).await, twice, "the events of a wait");
    for n in 6..=9 {
        append(&world.client, workspace, "payment.made", n).await;
    }
    assert_eq!(judge_in_part(&world).await, [vec![6, 7, 8], vec![8, 9]], "events that arrived after it opened");
    many_waits(&world, hold, workspace, 5).await;
    append(&world.client, workspace, "payment.made", 10).await;
    let mut judged = Vec::new();
    while let Some(page) = take(&world, None, 4).await {
        let Some(first) = page.candidates.first() else { continue };
        judged.push(first.key.clone());
        world.store.finish_candidates_up_to(page.claim, first).await.expect("judged");
    }
    let mut each = judged.clone();
    each.sort();
    each.dedup();
    assert_eq!((judged.len(), each.len()), (6, 6), "the waits of one event: each once");
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}
