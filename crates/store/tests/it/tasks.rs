//! Tasks are handed out fairly. A worker keeps its claim with heartbeats, loses it with its lease, and only the holder
//! of the claim ends the task.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::execution;
use kernel::ids::{ClaimId, WorkspaceId};
use kernel::kind::task::{MAX_DELIVERIES, failed};
use kernel::wait::Status;
use serde_json::{Value, json};
use store::new_id;
use store::run::attempt::Ownership;
use store::wait::task::{EndTaskOutcome, Task, TaskCounts, TaskRequest};
use store::wait::{NewWait, RunToWake, WaitKind, WaitState};

use crate::plans::touched;
use crate::support::{ENGINE, World, race};
use crate::waits::{brought, held, held_of, open_wait, place};

/// A task of this queue.
fn task(hold: Ownership, workspace: WorkspaceId, queue: &str, iteration: i32) -> NewWait {
    NewWait {
        key: place(hold, "work", iteration),
        workspace,
        attempt: 1,
        kind: WaitKind::Task { queue: queue.to_owned(), lease: Duration::from_secs(60) },
        input: json!({ "n": iteration }),
        expires_in: None,
    }
}

async fn open(world: &World, hold: Ownership, workspace: WorkspaceId, queue: &str, count: i32) {
    for iteration in 0..count {
        open_wait(world, hold, &task(hold, workspace, queue, iteration)).await;
    }
}

async fn claim(world: &World, queues: &[&str], most: i32, workspace: Option<WorkspaceId>) -> Vec<Task> {
    let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    let wanted = TaskRequest { queues: &queues, worker: "w", most, lease: None, workspace, after: None };
    world.store.claim_tasks(&wanted).await.expect("a claim").0
}

async fn complete(world: &World, task: &Task, claim: Option<ClaimId>, output: Value) -> EndTaskOutcome {
    let claim = claim.or(task.claim).expect("a claim");
    world.store.end_task(task.id, None, claim, Ok(&output)).await.expect("an answer")
}

async fn lapse(world: &World) {
    let sql = "UPDATE workflow_execution_wait SET lease_until = now() - interval '1 second' WHERE status = 'CLAIMED'";
    world.run_sql(sql, &[]).await;
}

fn accepted(hold: Ownership) -> EndTaskOutcome {
    EndTaskOutcome::Accepted(Some(RunToWake {
        engine: ENGINE.to_owned(),
        holder: hold.execution,
        owner: Some(hold.owner),
    }))
}

#[tokio::test]
async fn a_task_is_claimed_kept_and_completed_and_a_repeat_is_answered_as_the_first() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    assert_eq!(claim(&world, &["other"], 10, None).await, []);
    let task = claim(&world, &["other", "mail"], 10, None).await.remove(0);
    assert_eq!((task.status, task.deliveries, &task.input), (Status::Claimed, 1, &Some(json!({ "n": 0 }))));
    assert_eq!(claim(&world, &["mail"], 10, None).await, [], "one worker has it");
    let progress = json!({ "done": 3 });
    let claimed = task.claim.expect("a claim");
    let kept = world.store.heartbeat_task(task.id, None, claimed, Some(&progress)).await.expect("kept");
    assert!(kept.lease_until >= task.lease_until.expect("a lease") && !kept.canceling);
    assert_eq!(world.store.task(task.id, None).await.expect("a task").progress, Some(progress));
    assert_eq!(complete(&world, &task, Some(ClaimId(new_id())), json!(1)).await, EndTaskOutcome::Lost);
    assert_eq!(complete(&world, &task, None, json!("done")).await, accepted(hold));
    assert_eq!(complete(&world, &task, None, json!("done")).await, EndTaskOutcome::Repeated);
    let failure = failed("no", true);
    let otherwise = world.store.end_task(task.id, None, claimed, Err(&failure)).await.expect("an answer");
    assert_eq!(otherwise, EndTaskOutcome::OtherResult);
    let came = world.store.read_answers(hold).await.expect("an answer").expect("held");
    assert_eq!(brought(&came[0].state), r#""done" by w"#);
    assert_eq!(
        complete(&world, &task, None, json!("done")).await,
        EndTaskOutcome::Repeated,
        "also after the run has read it"
    );
}

#[tokio::test]
async fn a_lost_lease_gives_the_task_to_the_next_and_refuses_the_late_completion() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let first = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!(world.store.expire_waits(10).await.expect("a sweep").lost, 0);
    lapse(&world).await;
    assert_eq!(world.store.expire_waits(10).await.expect("a sweep").lost, 1);
    let second = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!(
        (second.id, second.deliveries, second.lost, second.attempt),
        (first.id, 2, 1, 1),
        "no attempt is counted"
    );
    assert_eq!(complete(&world, &first, None, json!("late")).await, EndTaskOutcome::Lost);
    let late = world.store.heartbeat_task(first.id, None, first.claim.expect("a claim"), None).await;
    assert!(matches!(late, Err(store::Error::Conflict(_))), "{late:?}");
    assert_eq!(complete(&world, &second, None, json!("good")).await, accepted(hold));
    assert_eq!(complete(&world, &first, None, json!("good")).await, EndTaskOutcome::Lost);
}

#[tokio::test]
async fn a_late_worker_that_still_holds_the_claim_is_accepted() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let task = claim(&world, &["mail"], 1, None).await.remove(0);
    lapse(&world).await;
    assert_eq!(complete(&world, &task, None, json!(1)).await, accepted(hold));
    assert_eq!(world.store.expire_waits(10).await.expect("a sweep").lost, 0);
}

#[tokio::test]
async fn the_tenth_silent_worker_in_a_row_fails_the_attempt_and_the_next_attempt_counts_from_zero() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = task(hold, workspace, "mail", 0);
    open_wait(&world, hold, &wait).await;
    for turn in 1..=MAX_DELIVERIES {
        assert_eq!(claim(&world, &["mail"], 1, None).await.len(), 1, "turn {turn}");
        lapse(&world).await;
        let swept = world.store.expire_waits(10).await.expect("a sweep");
        assert_eq!((swept.lost, swept.failed), if turn < MAX_DELIVERIES { (1, 0) } else { (0, 1) }, "turn {turn}");
    }
    let state = open_wait(&world, hold, &wait).await;
    assert_eq!(brought(&state), "EXECUTION_ERROR: 10 workers claimed the task and stopped sending heartbeats");
    let again = NewWait { attempt: 2, ..wait };
    assert!(matches!(open_wait(&world, hold, &again).await, WaitState::Open { .. }));
    let task = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!((task.attempt, task.deliveries, task.lost), (2, 1, 0));
}

#[tokio::test]
async fn a_repeated_failure_is_recognized_even_while_the_next_attempt_is_open() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = task(hold, workspace, "mail", 0);
    open_wait(&world, hold, &wait).await;
    let task = claim(&world, &["mail"], 1, None).await.remove(0);
    let (failure, claimed) = (failed("smtp is away", true), task.claim.expect("a claim"));
    let fail = async || world.store.end_task(task.id, None, claimed, Err(&failure)).await.expect("an answer");
    assert_eq!(fail().await, accepted(hold));
    assert_eq!(brought(&open_wait(&world, hold, &wait).await), "EXECUTION_ERROR: smtp is away");
    open_wait(&world, hold, &NewWait { attempt: 2, ..wait.clone() }).await;
    assert_eq!(fail().await, EndTaskOutcome::Repeated);
    let stale = world.store.open_wait(hold, &wait).await;
    assert!(matches!(stale, Err(store::Error::Conflict(_))), "an older attempt opens nothing: {stale:?}");
}

#[tokio::test]
async fn concurrent_workers_share_the_tasks_and_none_is_handed_out_twice() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 60).await;
    let claims = race(&world.store, 10, |racer, store| async move {
        let (queues, worker) = (["mail".to_owned()], format!("w{racer}"));
        let mut mine = Vec::new();
        loop {
            let wanted =
                TaskRequest { queues: &queues, worker: &worker, most: 3, lease: None, workspace: None, after: None };
            let (tasks, _) = store.claim_tasks(&wanted).await.expect("a claim");
            if tasks.is_empty() {
                return mine;
            }
            mine.extend(tasks.into_iter().map(|task| task.id));
        }
    })
    .await;
    let mut all: Vec<_> = claims.into_iter().flatten().collect();
    all.sort_unstable();
    let given = all.len();
    all.dedup();
    assert_eq!((given, all.len()), (60, 60));
}

#[tokio::test]
async fn workspaces_are_served_in_turn_however_much_one_of_them_offers() {
    let world = World::new().await;
    let (flood, flooding) = held(&world).await;
    open(&world, flood, flooding, "mail", 40).await;
    let mut quiet = Vec::new();
    for _ in 0..3 {
        let (hold, workspace) = held(&world).await;
        open(&world, hold, workspace, "mail", 1).await;
        quiet.push(workspace);
    }
    let tasks = claim(&world, &["mail"], 8, None).await;
    let mut of: BTreeMap<WorkspaceId, usize> = BTreeMap::new();
    for task in &tasks {
        *of.entry(task.workspace).or_default() += 1;
    }
    assert!(quiet.iter().all(|workspace| of.get(workspace) == Some(&1)), "{of:?}");
    assert_eq!(of.get(&flooding), Some(&5), "the flooding workspace gets what nobody else wants");
}

#[tokio::test]
async fn a_claim_continues_where_the_previous_one_ended() {
    let world = World::new().await;
    let mut workspaces = Vec::new();
    for _ in 0..3 {
        let (hold, workspace) = held(&world).await;
        open(&world, hold, workspace, "mail", 2).await;
        workspaces.push(workspace);
    }
    let queues = ["mail".to_owned()];
    let (mut after, mut served) = (None, Vec::new());
    for _ in 0..6 {
        let wanted = TaskRequest { queues: &queues, worker: "w", most: 1, lease: None, workspace: None, after };
        let (tasks, place) = world.store.claim_tasks(&wanted).await.expect("a claim");
        served.push(tasks[0].workspace);
        after = place;
    }
    assert_eq!(served[..3], served[3..], "in turn");
    assert_eq!(served.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[tokio::test]
async fn a_key_of_a_workspace_sees_its_own_tasks_only() {
    let world = World::new().await;
    let (hold, mine) = held(&world).await;
    open(&world, hold, mine, "mail", 1).await;
    let stranger = world.workspace("PRO").await;
    assert_eq!(claim(&world, &["mail"], 10, Some(stranger)).await, []);
    let task = claim(&world, &["mail"], 10, Some(mine)).await.remove(0);
    let claimed = task.claim.expect("a claim");
    for outcome in [
        world.store.task(task.id, Some(stranger)).await.map(drop),
        world.store.heartbeat_task(task.id, Some(stranger), claimed, None).await.map(drop),
        world.store.end_task(task.id, Some(stranger), claimed, Ok(&json!(1))).await.map(drop),
    ] {
        assert!(matches!(outcome, Err(store::Error::NotFound)), "{outcome:?}");
    }
    let listed =
        world.store.tasks(Some(mine), (Some("mail"), Some(Status::Claimed)), None, 10).await.expect("tasks").rows;
    assert_eq!(listed.len(), 1);
    assert_eq!(world.store.tasks(Some(stranger), (None, None), None, 10).await.expect("tasks").rows, []);
    assert_eq!(world.store.task_counts().await.expect("a depth"), TaskCounts { open: 0, claimed: 1 });
}

#[tokio::test]
async fn a_task_of_an_ended_execution_is_lost_and_one_of_a_canceling_execution_says_so() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    let (hold, _) = held_of(&world, workspace, definition).await;
    open(&world, hold, workspace, "mail", 2).await;
    let task = claim(&world, &["mail"], 1, None).await.remove(0);
    world.store.cancel(hold.execution, workspace, "ada").await.expect("a request");
    let claimed = task.claim.expect("a claim");
    assert!(world.store.heartbeat_task(task.id, None, claimed, None).await.expect("kept").canceling);
    world.finish(hold.execution, execution::Status::Canceled).await;
    assert_eq!(claim(&world, &["mail"], 10, None).await, []);
    assert_eq!(complete(&world, &task, None, json!(1)).await, EndTaskOutcome::Lost);
}

/// Open tasks of one run, inserted with plain SQL.
async fn many(world: &World, hold: Ownership, workspace: WorkspaceId, queue: &str, count: i32) {
    let sql = "INSERT INTO workflow_execution_wait (execution_id, node, iteration, id, workspace_id, holder, kind, attempt, status, queue,
            lease_s, input, opened_at)
        SELECT $1, $3, n, gen_random_uuid(), $2, $1, 'TASK', 1, 'OPEN', $3, 60, '{}', now() + n * interval '1 ms'
          FROM generate_series(1, $4::int) n";
    world.run_sql(sql, &[&hold.execution.0, &workspace.0, &queue, &count]).await;
}

#[tokio::test]
async fn a_claim_touches_as_few_buffers_beside_a_hundred_thousand_tasks_as_beside_a_hundred() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    world
        .client
        .batch_execute("ALTER TABLE workflow_execution_wait SET (autovacuum_enabled = off)")
        .await
        .expect("no autovacuum");
    let sql = "SELECT task, claim, last_workspace FROM forebay_r1.claim_tasks($1::text[], $2::uuid, NULL, 'w', $3::int, NULL)";
    for (queue, count) in [("few", 100), ("many", 100_000), ("more", 1_000)] {
        many(&world, hold, workspace, queue, count).await;
    }
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE workflow_execution_wait").await.expect("statistics");
        }
        for of in [Some(workspace.0), None] {
            for (queues, want) in [(vec!["few"], 1), (vec!["many"], 1), (vec!["few", "many", "more"], 3)] {
                let bound = i64::from(want) * 300;
                let buffers = touched(&world, sql, &[&queues, &of, &want]).await;
                assert!(buffers < bound, "{buffers} buffers for {want} of {queues:?}, analysed: {analysed}, of {of:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_claim_of_several_queues_has_the_oldest_of_them_and_each_once() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    for (queue, iteration) in [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4)] {
        open_wait(&world, hold, &task(hold, workspace, queue, iteration)).await;
    }
    let mut tasks = claim(&world, &["b", "a", "b"], 3, Some(workspace)).await;
    tasks.sort_by_key(|task| task.opened_at);
    assert_eq!(tasks.iter().map(|task| task.key.iteration).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(claim(&world, &["b", "a"], 9, Some(workspace)).await.len(), 2);
}

#[tokio::test]
async fn workers_of_the_same_name_never_have_the_same_claim() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    many(&world, hold, workspace, "mail", 200).await;
    // Leases that expire immediately, and a worker that claims the tasks: between a claim and its reply, another worker
    // may have the task.
    let outcome = race(&world.store, 6, |racer, store| async move {
        let (queues, mut mine) = (["mail".to_owned()], Vec::new());
        for _ in 0..150 {
            if racer < 2 {
                store.expire_waits(100).await.expect("a sweep");
                continue;
            }
            let lease = Some(Duration::from_micros(1));
            let wanted = TaskRequest { queues: &queues, worker: "w", most: 20, lease, workspace: None, after: None };
            let (tasks, _) = store.claim_tasks(&wanted).await.expect("a claim");
            mine.extend(tasks.into_iter().filter_map(|task| task.claim));
        }
        mine
    })
    .await;
    let mut claims: Vec<ClaimId> = outcome.into_iter().flatten().collect();
    claims.sort_unstable();
    let given = claims.len();
    claims.dedup();
    assert!(given > 100, "{given} were handed out");
    assert_eq!(claims.len(), given, "each claim is one worker's");
}

#[tokio::test]
async fn a_claim_returns_the_last_workspace_served_or_none() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let (other, mail) = (["other".to_owned()], ["mail".to_owned()]);
    for (queues, served) in [(&other, None), (&mail, Some(workspace)), (&mail, None)] {
        let wanted = TaskRequest { queues, worker: "w", most: 1, lease: None, workspace: None, after: None };
        assert_eq!(world.store.claim_tasks(&wanted).await.expect("a claim").1, served);
    }
}
