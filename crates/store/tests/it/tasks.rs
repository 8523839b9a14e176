//! Tasks: handed out fairly, kept by heartbeats, lost with their lease, and ended by whoever holds the claim.

use std::collections::BTreeMap;
use std::time::Duration;

use kernel::execution;
use kernel::ids::{ClaimId, WorkspaceId};
use kernel::kind::task::{MAX_DELIVERIES, failed};
use kernel::wait::Status;
use serde_json::{Value, json};
use store::new_id;
use store::run::attempt::Hold;
use store::wait::task::{Depth, Ended, Task, Wanted};
use store::wait::{Ask, Call, Standing, What};

use crate::asks::{ask, brought, held, held_of, place};
use crate::plans::touched;
use crate::support::{ENGINE, World, race};

/// A task of this queue.
fn task(hold: Hold, workspace: WorkspaceId, queue: &str, iteration: i32) -> Ask {
    Ask {
        place: place(hold, "work", iteration),
        workspace,
        attempt: 1,
        what: What::Task { queue: queue.to_owned(), lease: Duration::from_secs(60) },
        input: json!({ "n": iteration }),
        expires_in: None,
    }
}

async fn open(world: &World, hold: Hold, workspace: WorkspaceId, queue: &str, count: i32) {
    for iteration in 0..count {
        ask(world, hold, &task(hold, workspace, queue, iteration)).await;
    }
}

async fn claim(world: &World, queues: &[&str], most: i32, workspace: Option<WorkspaceId>) -> Vec<Task> {
    let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
    let wanted = Wanted { queues: &queues, worker: "w", most, lease: None, workspace, after: None };
    world.store.claim_tasks(&wanted).await.expect("a claim").0
}

async fn complete(world: &World, task: &Task, claim: Option<ClaimId>, output: Value) -> Ended {
    let claim = claim.or(task.claim).expect("a claim");
    world.store.end_task(task.id, None, claim, Ok(&output)).await.expect("an answer")
}

async fn lapse(world: &World) {
    let sql = "UPDATE workflow_execution_ask SET lease_until = now() - interval '1 second' WHERE status = 'CLAIMED'";
    world.run_sql(sql, &[]).await;
}

fn accepted(hold: Hold) -> Ended {
    Ended::Accepted(Some(Call { engine: ENGINE.to_owned(), holder: hold.execution, owner: Some(hold.owner) }))
}

#[tokio::test]
async fn a_task_is_claimed_kept_and_completed_and_a_repeat_is_answered_as_the_first() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    assert_eq!(claim(&world, &["other"], 10, None).await, []);
    let taken = claim(&world, &["other", "mail"], 10, None).await.remove(0);
    assert_eq!((taken.status, taken.deliveries, &taken.input), (Status::Claimed, 1, &Some(json!({ "n": 0 }))));
    assert_eq!(claim(&world, &["mail"], 10, None).await, [], "one worker has it");
    let progress = json!({ "done": 3 });
    let claimed = taken.claim.expect("a claim");
    let kept = world.store.keep_task(taken.id, None, claimed, Some(&progress)).await.expect("kept");
    assert!(kept.lease_until >= taken.lease_until.expect("a lease") && !kept.canceling);
    assert_eq!(world.store.task(taken.id, None).await.expect("a task").progress, Some(progress));
    assert_eq!(complete(&world, &taken, Some(ClaimId(new_id())), json!(1)).await, Ended::Lost);
    assert_eq!(complete(&world, &taken, None, json!("done")).await, accepted(hold));
    assert_eq!(complete(&world, &taken, None, json!("done")).await, Ended::Repeat);
    let failure = failed("no", true);
    let otherwise = world.store.end_task(taken.id, None, claimed, Err(&failure)).await.expect("an answer");
    assert_eq!(otherwise, Ended::Otherwise);
    let came = world.store.answers(hold).await.expect("an answer").expect("held");
    assert_eq!(brought(&came[0].standing), r#""done" by w"#);
    assert_eq!(complete(&world, &taken, None, json!("done")).await, Ended::Repeat, "also after the run has seen it");
}

#[tokio::test]
async fn a_lost_lease_gives_the_task_to_the_next_and_refuses_the_late_completion() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let first = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!(world.store.sweep_asks(10).await.expect("a sweep").lost, 0);
    lapse(&world).await;
    assert_eq!(world.store.sweep_asks(10).await.expect("a sweep").lost, 1);
    let second = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!(
        (second.id, second.deliveries, second.lost, second.attempt),
        (first.id, 2, 1, 1),
        "no attempt is counted"
    );
    assert_eq!(complete(&world, &first, None, json!("late")).await, Ended::Lost);
    let late = world.store.keep_task(first.id, None, first.claim.expect("a claim"), None).await;
    assert!(matches!(late, Err(store::Error::Conflict(_))), "{late:?}");
    assert_eq!(complete(&world, &second, None, json!("good")).await, accepted(hold));
    assert_eq!(complete(&world, &first, None, json!("good")).await, Ended::Lost);
}

#[tokio::test]
async fn a_worker_that_is_late_but_still_holds_the_claim_is_heard() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let taken = claim(&world, &["mail"], 1, None).await.remove(0);
    lapse(&world).await;
    assert_eq!(complete(&world, &taken, None, json!(1)).await, accepted(hold));
    assert_eq!(world.store.sweep_asks(10).await.expect("a sweep").lost, 0);
}

#[tokio::test]
async fn the_tenth_worker_in_a_row_that_is_lost_fails_the_attempt_and_the_next_attempt_counts_anew() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let asked = task(hold, workspace, "mail", 0);
    ask(&world, hold, &asked).await;
    for turn in 1..=MAX_DELIVERIES {
        assert_eq!(claim(&world, &["mail"], 1, None).await.len(), 1, "turn {turn}");
        lapse(&world).await;
        let swept = world.store.sweep_asks(10).await.expect("a sweep");
        assert_eq!((swept.lost, swept.failed), if turn < MAX_DELIVERIES { (1, 0) } else { (0, 1) }, "turn {turn}");
    }
    let standing = ask(&world, hold, &asked).await;
    assert_eq!(brought(&standing), "EXECUTION_ERROR: 10 workers took the task and fell silent");
    let again = Ask { attempt: 2, ..asked };
    assert!(matches!(ask(&world, hold, &again).await, Standing::Open { .. }));
    let taken = claim(&world, &["mail"], 1, None).await.remove(0);
    assert_eq!((taken.attempt, taken.deliveries, taken.lost), (2, 1, 0));
}

#[tokio::test]
async fn a_failure_told_twice_is_known_also_when_the_next_attempt_is_open() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let asked = task(hold, workspace, "mail", 0);
    ask(&world, hold, &asked).await;
    let taken = claim(&world, &["mail"], 1, None).await.remove(0);
    let (failure, claimed) = (failed("smtp is away", true), taken.claim.expect("a claim"));
    let fail = async || world.store.end_task(taken.id, None, claimed, Err(&failure)).await.expect("an answer");
    assert_eq!(fail().await, accepted(hold));
    assert_eq!(brought(&ask(&world, hold, &asked).await), "EXECUTION_ERROR: smtp is away");
    ask(&world, hold, &Ask { attempt: 2, ..asked.clone() }).await;
    assert_eq!(fail().await, Ended::Repeat);
    let stale = world.store.ask(hold, &asked).await;
    assert!(matches!(stale, Err(store::Error::Conflict(_))), "an older attempt asks nothing: {stale:?}");
}

#[tokio::test]
async fn workers_that_race_share_the_tasks_and_none_is_given_twice() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 60).await;
    let claims = race(&world.store, 10, |racer, store| async move {
        let (queues, worker) = (["mail".to_owned()], format!("w{racer}"));
        let mut mine = Vec::new();
        loop {
            let wanted =
                Wanted { queues: &queues, worker: &worker, most: 3, lease: None, workspace: None, after: None };
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
    let taken = claim(&world, &["mail"], 8, None).await;
    let mut of: BTreeMap<WorkspaceId, usize> = BTreeMap::new();
    for task in &taken {
        *of.entry(task.workspace).or_default() += 1;
    }
    assert!(quiet.iter().all(|workspace| of.get(workspace) == Some(&1)), "{of:?}");
    assert_eq!(of.get(&flooding), Some(&5), "what nobody else wants is the flood's");
}

#[tokio::test]
async fn a_claim_goes_on_where_the_one_before_ended() {
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
        let wanted = Wanted { queues: &queues, worker: "w", most: 1, lease: None, workspace: None, after };
        let (tasks, place) = world.store.claim_tasks(&wanted).await.expect("a claim");
        served.push(tasks[0].workspace);
        after = place;
    }
    assert_eq!(served[..3], served[3..], "round and round");
    assert_eq!(served.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[tokio::test]
async fn a_key_of_a_workspace_sees_its_own_tasks_only() {
    let world = World::new().await;
    let (hold, mine) = held(&world).await;
    open(&world, hold, mine, "mail", 1).await;
    let stranger = world.workspace("PRO").await;
    assert_eq!(claim(&world, &["mail"], 10, Some(stranger)).await, []);
    let taken = claim(&world, &["mail"], 10, Some(mine)).await.remove(0);
    let claimed = taken.claim.expect("a claim");
    for told in [
        world.store.task(taken.id, Some(stranger)).await.map(drop),
        world.store.keep_task(taken.id, Some(stranger), claimed, None).await.map(drop),
        world.store.end_task(taken.id, Some(stranger), claimed, Ok(&json!(1))).await.map(drop),
    ] {
        assert!(matches!(told, Err(store::Error::NotFound)), "{told:?}");
    }
    let listed =
        world.store.tasks(Some(mine), (Some("mail"), Some(Status::Claimed)), None, 10).await.expect("tasks").rows;
    assert_eq!(listed.len(), 1);
    assert_eq!(world.store.tasks(Some(stranger), (None, None), None, 10).await.expect("tasks").rows, []);
    assert_eq!(world.store.task_depth().await.expect("a depth"), Depth { open: 0, claimed: 1 });
}

#[tokio::test]
async fn a_task_of_an_execution_that_ended_is_nobodys_and_one_that_cancels_says_so() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    let (hold, _) = held_of(&world, workspace, definition).await;
    open(&world, hold, workspace, "mail", 2).await;
    let taken = claim(&world, &["mail"], 1, None).await.remove(0);
    world.store.cancel(hold.execution, workspace, "ada").await.expect("a request");
    let claimed = taken.claim.expect("a claim");
    assert!(world.store.keep_task(taken.id, None, claimed, None).await.expect("kept").canceling);
    world.finish(hold.execution, execution::Status::Canceled).await;
    assert_eq!(claim(&world, &["mail"], 10, None).await, []);
    assert_eq!(complete(&world, &taken, None, json!(1)).await, Ended::Lost);
}

/// Open tasks of one run, made behind the store's back.
async fn many(world: &World, hold: Hold, workspace: WorkspaceId, queue: &str, count: i32) {
    let sql = "INSERT INTO workflow_execution_ask (execution_id, node, iteration, id, workspace_id, holder, kind, attempt, status, queue,
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
        .batch_execute("ALTER TABLE workflow_execution_ask SET (autovacuum_enabled = off)")
        .await
        .expect("no autovacuum");
    let sql = "SELECT task, claim, place FROM forebay_r1.claim_tasks($1::text[], $2::uuid, NULL, 'w', $3::int, NULL)";
    for (queue, count) in [("few", 100), ("many", 100_000), ("more", 1_000)] {
        many(&world, hold, workspace, queue, count).await;
    }
    for analysed in [false, true] {
        if analysed {
            world.client.batch_execute("ANALYZE workflow_execution_ask").await.expect("statistics");
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
        ask(&world, hold, &task(hold, workspace, queue, iteration)).await;
    }
    let mut taken = claim(&world, &["b", "a", "b"], 3, Some(workspace)).await;
    taken.sort_by_key(|task| task.opened_at);
    assert_eq!(taken.iter().map(|task| task.place.iteration).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(claim(&world, &["b", "a"], 9, Some(workspace)).await.len(), 2);
}

#[tokio::test]
async fn workers_of_the_same_name_never_have_the_same_claim() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    many(&world, hold, workspace, "mail", 200).await;
    // Leases that are over at once, and somebody who takes them: between a claim and its answer the next one may have
    // the task.
    let told = race(&world.store, 6, |racer, store| async move {
        let (queues, mut mine) = (["mail".to_owned()], Vec::new());
        for _ in 0..150 {
            if racer < 2 {
                store.sweep_asks(100).await.expect("a sweep");
                continue;
            }
            let lease = Some(Duration::from_micros(1));
            let wanted = Wanted { queues: &queues, worker: "w", most: 20, lease, workspace: None, after: None };
            let (tasks, _) = store.claim_tasks(&wanted).await.expect("a claim");
            mine.extend(tasks.into_iter().filter_map(|task| task.claim));
        }
        mine
    })
    .await;
    let mut claims: Vec<ClaimId> = told.into_iter().flatten().collect();
    claims.sort_unstable();
    let given = claims.len();
    claims.dedup();
    assert!(given > 100, "{given} were told");
    assert_eq!(claims.len(), given, "a claim is one worker's");
}

#[tokio::test]
async fn a_claim_says_whom_it_served_last_and_nobody_if_it_found_nothing() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    open(&world, hold, workspace, "mail", 1).await;
    let (other, mail) = (["other".to_owned()], ["mail".to_owned()]);
    for (queues, served) in [(&other, None), (&mail, Some(workspace)), (&mail, None)] {
        let wanted = Wanted { queues, worker: "w", most: 1, lease: None, workspace: None, after: None };
        assert_eq!(world.store.claim_tasks(&wanted).await.expect("a claim").1, served);
    }
}
