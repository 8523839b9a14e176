//! Schedules: each tick fires once, in the same commit as its start, whichever process polls. A tick that cannot start
//! an execution stores the reason.

use std::time::Duration;

use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::schedule::{CatchUp, Overlap, Rule, Status, TickStatus, Timing};
use serde_json::{Value, json};
use store::definition::NewVersion;
use store::queue::enqueue::EnqueueOutcome;
use store::retention::Section;
use store::schedule::fire::{DueSchedule, FireOutcome, InputCheck, ManualRunOutcome};
use store::workspace::WorkspaceChange;
use store::{Error, new_id};
use uuid::Uuid;

use crate::support::{Limits, World, new_version, race, start};

const GOOD: InputCheck = Ok((None, None));

fn hourly(overlap: Overlap, catch_up: CatchUp) -> Rule {
    Rule {
        timing: Timing::Cron { cron: "0 * * * *".to_owned(), timezone: "UTC".to_owned() },
        input: None,
        priority: Priority::default(),
        concurrency_key: None,
        overlap,
        catch_up,
    }
}

/// A schedule with this many due ticks, in the last hours.
async fn due(world: &World, workspace: WorkspaceId, definition: DefinitionId, rule: &Rule, ticks: i32) -> Uuid {
    let later = world.store.now().await.expect("a time") + jiff::SignedDuration::from_hours(1);
    let id = world.store.create_schedule(workspace, definition, rule, later, "test").await.expect("a schedule");
    back(world, id, ticks).await;
    id
}

/// Makes ticks of the last hours due.
async fn back(world: &World, id: Uuid, ticks: i32) {
    let hours =
        "UPDATE schedule SET next_at = date_trunc('hour', now()) - make_interval(hours => $2 - 1) WHERE id = $1";
    world.run_sql(hours, &[&id, &ticks]).await;
}

async fn looks(world: &World) -> Vec<DueSchedule> {
    let mut due = world.store.due_schedules(100).await.expect("a look");
    due.extend(world.store.buffered_schedules(None, 100).await.expect("a page").0);
    due
}

async fn fire(world: &World, verdict: &InputCheck) -> Vec<TickStatus> {
    let mut outcome = Vec::new();
    for due in looks(world).await {
        match world.store.fire(&due, verdict, None).await.expect("a tick") {
            FireOutcome::Done(ticks) => outcome.extend(ticks.into_iter().map(|(status, _)| status)),
            other => panic!("{other:?}"),
        }
    }
    outcome
}

async fn executions(world: &World) -> Vec<ExecutionId> {
    let sql = "SELECT array_agg(execution_id ORDER BY tick_at) FROM schedule_tick WHERE status = 'STARTED'";
    world.get::<Option<Vec<Uuid>>>(sql, &[]).await.unwrap_or_default().into_iter().map(ExecutionId).collect()
}

use TickStatus::{Buffered, Failed, Refused, Skipped, Started};

#[tokio::test]
async fn of_eight_concurrent_polls_one_fires_each_tick() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let rule = hourly(Overlap::Allow, CatchUp::All);
    for _ in 0..10 {
        due(&world, workspace, definition, &rule, 5).await;
    }
    let outcome = race(&world.store, 8, |_, store| async move {
        let mut started = 0;
        for due in store.due_schedules(100).await.expect("a look") {
            if let FireOutcome::Done(ticks) = store.fire(&due, &GOOD, None).await.expect("a tick") {
                started += ticks.len();
            }
        }
        started
    })
    .await;
    assert_eq!(outcome.iter().sum::<usize>(), 50, "{outcome:?}");
    assert_eq!((world.count("workflow_execution").await, world.count("execution_queue").await), (50, 50));
    assert_eq!(world.count("schedule_tick WHERE status = 'STARTED'").await, 50);
    assert!(looks(&world).await.is_empty(), "all have advanced");
    let apart = "(SELECT DISTINCT trigger->>'schedule', trigger->>'tick' FROM workflow_execution WHERE trigger->>'type' = 'schedule') x";
    assert_eq!(world.count(apart).await, 50);
}

#[tokio::test]
async fn a_tick_fires_once_even_if_its_schedule_is_set_back() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::Allow, CatchUp::Last), 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    back(&world, id, 1).await;
    assert_eq!(fire(&world, &GOOD).await, [], "it is stored, and skipped");
    back(&world, id, 1).await;
    // Without the tick's row, the execution's idempotency key still prevents a second start.
    world.run_sql("DELETE FROM schedule_tick WHERE schedule_id = $1", &[&id]).await;
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    assert_eq!(world.count("workflow_execution").await, 1);
}

#[tokio::test]
async fn missed_ticks_follow_the_policy_and_are_written_once() {
    for (catch_up, expected) in
        [(CatchUp::All, vec![Started, Started, Started]), (CatchUp::Last, vec![Skipped, Started])]
    {
        let world = World::new().await;
        let (workspace, definition) = world.tenant("PRO").await;
        due(&world, workspace, definition, &hourly(Overlap::Allow, catch_up), 3).await;
        assert_eq!(fire(&world, &GOOD).await, expected, "{catch_up:?}");
    }
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let yearly = Rule {
        timing: Timing::Cron { cron: "0 0 1 1 *".to_owned(), timezone: "Europe/Berlin".to_owned() },
        ..hourly(Overlap::Allow, CatchUp::Skip)
    };
    let id = due(&world, workspace, definition, &yearly, 1).await;
    world.run_sql("UPDATE schedule SET next_at = now() - interval '5 years' WHERE id = $1", &[&id]).await;
    assert_eq!(fire(&world, &GOOD).await, [Skipped]);
    assert_eq!((world.count("workflow_execution").await, world.count("schedule_tick").await), (0, 1));
    let reason: String = world.get("SELECT reason FROM schedule_tick", &[]).await;
    assert!(reason.starts_with("missed, as were all later ticks before"), "{reason}");
}

#[tokio::test]
async fn a_tick_beside_an_open_execution_is_skipped_buffered_or_started() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::BufferOne, CatchUp::All), 4).await;
    assert_eq!(fire(&world, &GOOD).await, [Started, Buffered, Skipped, Skipped]);
    assert!(looks(&world).await.is_empty(), "it waits for the end of the first");
    let first = executions(&world).await[0];
    world.finish(first, execution::Status::Completed).await;
    assert_eq!(fire(&world, &GOOD).await, [Started], "the buffered one");
    assert_eq!(world.store.schedule(id, None).await.expect("it").buffered_at, None);
    let second = executions(&world).await[1];
    let tick: String = world.get("SELECT trigger->>'tick' FROM workflow_execution WHERE id = $1", &[&second.0]).await;
    let buffered =
        world.store.ticks(id, None, 10).await.expect("ticks").into_iter().nth(2).expect("the second of four");
    assert_eq!((buffered.at.to_string(), buffered.execution), (tick, Some(second)));

    let other = due(&world, workspace, definition, &hourly(Overlap::Skip, CatchUp::All), 2).await;
    assert_eq!(fire(&world, &GOOD).await, [Started, Skipped], "another schedule's executions are not its own");
    world.run_sql("DELETE FROM schedule_tick WHERE schedule_id = $1 AND status = 'SKIPPED'", &[&other]).await;
    back(&world, other, 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Skipped], "the one it started is open");
}

#[tokio::test]
async fn a_tick_that_cannot_start_says_why_and_the_schedule_continues() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let rule = hourly(Overlap::Skip, CatchUp::All);
    let id = due(&world, workspace, definition, &rule, 2).await;
    let bad: InputCheck = Err("input/region: is missing".to_owned());
    assert_eq!(fire(&world, &bad).await, [Failed, Failed], "an execution that did not start is not open");
    let outcome = world.store.ticks(id, None, 10).await.expect("ticks");
    assert_eq!(outcome[0].reason.as_deref(), Some("input/region: is missing"));
    assert_eq!(world.store.schedule(id, None).await.expect("it").status, Status::Active);

    let change = WorkspaceChange { max_backlog: Some(Some(1)), ..WorkspaceChange::default() };
    world.store.change_workspace(workspace, &change, "test").await.expect("changed");
    world.accept_many(workspace, definition, 1).await;
    due(&world, workspace, definition, &hourly(Overlap::Allow, CatchUp::All), 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Refused]);
    assert_eq!(world.count("workflow_execution").await, 1);

    let (draft, _) = world
        .store
        .create_definition(workspace, "draft", &new_version(Limits::default()), "test")
        .await
        .expect("a draft");
    due(&world, workspace, draft, &rule, 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Failed]);
}

#[tokio::test]
async fn a_start_checked_against_another_version_is_checked_again() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    due(&world, workspace, definition, &hourly(Overlap::Allow, CatchUp::All), 2).await;
    let look = looks(&world).await;
    let stale: InputCheck = Ok((None, Some(VersionId(new_id()))));
    assert_eq!(world.store.fire(&look[0], &stale, None).await.expect("an answer"), FireOutcome::VersionChanged);
    assert_eq!((world.count("schedule_tick").await, world.count("workflow_execution").await), (0, 0));
    assert_eq!(fire(&world, &GOOD).await, [Started, Started]);
    assert_eq!(
        world.store.fire(&look[0], &GOOD, None).await.expect("an answer"),
        FireOutcome::Done(vec![]),
        "nothing is due"
    );
    let changed = DueSchedule { revision: 2, ..look[0].clone() };
    assert_eq!(world.store.fire(&changed, &GOOD, None).await.expect("an answer"), FireOutcome::Lost);
}

#[tokio::test]
async fn a_pause_keeps_what_was_missed_and_a_single_time_ends_its_schedule() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::Allow, CatchUp::All), 2).await;
    assert!(world.store.pause_schedule(id, Some(workspace), true, "test").await.expect("paused"));
    assert!(!world.store.pause_schedule(id, None, true, "test").await.expect("paused already"));
    assert!(looks(&world).await.is_empty());
    assert!(world.store.pause_schedule(id, None, false, "test").await.expect("resumed"));
    assert_eq!(fire(&world, &GOOD).await, [Started, Started]);

    let at = world.store.now().await.expect("a time");
    let once = Rule { timing: Timing::At { at }, ..hourly(Overlap::Allow, CatchUp::Last) };
    let once = world.store.create_schedule(workspace, definition, &once, at, "test").await.expect("a schedule");
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    let over = world.store.schedule(once, None).await.expect("it");
    assert_eq!(
        (over.status, over.next_at, over.reason.as_deref()),
        (Status::Ended, None, Some("the schedule has no more ticks"))
    );
    assert!(matches!(world.store.pause_schedule(once, None, true, "test").await, Err(Error::Conflict(_))));
    assert_eq!(
        world.store.retire(Section::Schedules, Duration::from_secs(3600), None, 10).await.expect("none yet").retired,
        0
    );
    assert_eq!(world.store.retire(Section::Schedules, Duration::ZERO, None, 10).await.expect("it goes").retired, 1);
}

#[tokio::test]
async fn a_deleted_definition_ends_its_schedules_and_a_deleted_workspace_ends_them_at_the_next_tick() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::BufferOne, CatchUp::All), 2).await;
    assert_eq!(fire(&world, &GOOD).await, [Started, Buffered]);
    world.store.delete_definition(workspace, definition, "test").await.expect("deleted");
    let over = world.store.schedule(id, None).await.expect("it is kept");
    assert_eq!((over.status, over.buffered_at), (Status::Ended, None));
    assert_eq!(world.count("schedule_tick WHERE reason = 'the definition was deleted'").await, 1);
    let (other, definition) = world.tenant("PRO").await;
    let id = due(&world, other, definition, &hourly(Overlap::Allow, CatchUp::Last), 1).await;
    world.store.delete_workspace(other, "test").await.expect("deleted");
    assert_eq!(fire(&world, &GOOD).await, [Failed]);
    assert_eq!(world.store.schedule(id, None).await.expect("it").status, Status::Ended);
}

#[tokio::test]
async fn a_manual_run_starts_now_once_per_key_and_counts_as_a_run() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::Skip, CatchUp::Last), 1).await;
    let look = looks(&world).await.remove(0);
    let asked = || {
        let idempotency = Some(("k".to_owned(), vec![1]));
        store::queue::enqueue::Start { idempotency, ..start(workspace, definition) }
    };
    let outcome = world.store.run_schedule(&look, asked(), None, None, "key:1").await.expect("an answer");
    let ManualRunOutcome::Enqueued(EnqueueOutcome::New { execution, .. }) = outcome else { panic!("{outcome:?}") };
    let again = world.store.run_schedule(&look, asked(), None, None, "key:1").await.expect("an answer");
    assert_eq!(again, ManualRunOutcome::Enqueued(EnqueueOutcome::Existing { execution }));
    let changed = DueSchedule { revision: 9, ..look };
    assert_eq!(
        world.store.run_schedule(&changed, asked(), None, None, "key:1").await.expect("an answer"),
        ManualRunOutcome::Changed
    );
    let ticks = world.store.ticks(id, None, 10).await.expect("ticks");
    assert_eq!((ticks.len(), ticks[0].by_hand, ticks[0].execution), (1, true, Some(execution)));
    assert_eq!(world.count("activity WHERE action = 'schedule.run'").await, 1);
    assert_eq!(fire(&world, &GOOD).await, [Skipped], "it is already running");
}

async fn published(world: &World, workspace: WorkspaceId, id: DefinitionId, rules: Value) -> Result<String, Error> {
    let graph = json!({ "nodes": [], "edges": [], "on": { "schedule": rules } });
    let version = NewVersion { graph, ..new_version(Limits::default()) };
    let stored = world.store.add_version(workspace, id, &version, "test").await.expect("a version");
    world.store.publish(workspace, id, stored.id, &version, "test").await
}

#[tokio::test]
async fn publishing_replaces_schedules_and_keeps_the_next_tick_of_unchanged_ones() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let own = due(&world, workspace, definition, &hourly(Overlap::Skip, CatchUp::Last), 1).await;
    let rule = |cron: &str, zone: &str| json!({ "cron": cron, "timezone": zone });
    published(&world, workspace, definition, json!([rule("0 6 * * *", "UTC"), rule("0 6 * * *", "Europe/Berlin")]))
        .await
        .expect("published");
    let of = async || world.store.schedules(Some(workspace), Some(definition), None, 10).await.expect("a list").rows;
    let first: Vec<Uuid> = of().await.iter().filter(|it| it.by_definition).map(|it| it.id).collect();
    assert_eq!(first.len(), 2);
    back(&world, first[0], 2).await;
    let kept = world.store.schedule(first[0], None).await.expect("it").next_at;
    let more = json!([{ "cron": "0 6 * * *", "timezone": "UTC", "input": { "a": 1 }, "overlap": "allow" }, rule("5 6 * * *", "UTC")]);
    published(&world, workspace, definition, more).await.expect("published");
    let now = world.store.schedule(first[0], None).await.expect("it stays");
    assert_eq!((now.next_at, now.rule.input, now.revision), (kept, Some(json!({ "a": 1 })), 2));
    assert!(matches!(world.store.schedule(first[1], None).await, Err(Error::NotFound)));
    for refused in [
        world.store.delete_schedule(first[0], None, "test").await,
        world
            .store
            .change_schedule((first[0], 2), None, &hourly(Overlap::Skip, CatchUp::Last), now.created_at, "test")
            .await,
    ] {
        assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("on: schedule")), "{refused:?}");
    }
    published(&world, workspace, definition, json!([])).await.expect("published");
    assert_eq!(of().await.iter().map(|it| it.id).collect::<Vec<_>>(), [own], "created through the API, it stays");
    let outcome = world.count("activity WHERE subject_type = 'schedule'").await;
    assert_eq!(outcome, 1 + 3 + 3, "each creation and each deletion");
}

#[tokio::test]
async fn schedules_per_workspace_and_ticks_per_schedule_are_bounded() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let rule = hourly(Overlap::Allow, CatchUp::Last);
    let id = due(&world, workspace, definition, &rule, 1).await;
    let more = "INSERT INTO schedule (id, workspace_id, workflow_definition_id, cron, timezone, overlap, catch_up, next_at)
                SELECT gen_random_uuid(), $1, $2, '0 0 * * *', 'UTC', 'skip', 'last', now() + interval '1 day' FROM generate_series(1, $3::int)";
    let missing = i32::try_from(store::schedule::MAX_SCHEDULES).expect("a small number") - 1;
    world.run_sql(more, &[&workspace.0, &definition.0, &missing]).await;
    let at = world.store.now().await.expect("a time");
    let refused = world.store.create_schedule(workspace, definition, &rule, at, "test").await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let old = "INSERT INTO schedule_tick (schedule_id, tick_at, status, reason) SELECT $1, now() - make_interval(days => n), 'SKIPPED', 'old' FROM generate_series(1, 1200) n";
    world.run_sql(old, &[&id]).await;
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    assert_eq!(world.count("schedule_tick").await, 1001);
}

#[tokio::test]
async fn a_changed_schedule_drops_its_buffered_tick_and_fires_at_its_new_time() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::BufferOne, CatchUp::All), 2).await;
    assert_eq!(fire(&world, &GOOD).await, [Started, Buffered]);
    let at = world.store.now().await.expect("a time");
    let once = Rule { timing: Timing::At { at }, ..hourly(Overlap::Allow, CatchUp::Last) };
    let revision = world.store.schedule(id, None).await.expect("it").revision;
    world.store.change_schedule((id, revision), None, &once, at, "test").await.expect("changed");
    let outdated = world.store.change_schedule((id, revision), None, &once, at, "test").await;
    assert!(matches!(&outdated, Err(Error::Conflict(_))), "another request changed it: {outdated:?}");
    let changed = world.store.schedule(id, None).await.expect("it");
    assert_eq!((changed.buffered_at, world.count("schedule_tick WHERE status = 'BUFFERED'").await), (None, 0));
    assert_eq!(
        world.count("schedule_tick WHERE reason = 'the schedule was changed while the tick was buffered'").await,
        1
    );
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    assert_eq!(world.store.schedule(id, None).await.expect("it").status, Status::Ended);

    // The last tick of a schedule has nothing to wait for.
    let at = world.store.now().await.expect("a time");
    let last = Rule { timing: Timing::At { at }, ..hourly(Overlap::BufferOne, CatchUp::Last) };
    let revision = world.store.schedule(id, None).await.expect("it").revision;
    world.store.change_schedule((id, revision), None, &last, at, "test").await.expect("changed");
    assert_eq!(fire(&world, &GOOD).await, [Buffered, Skipped]);
    assert_eq!(world.store.schedule(id, None).await.expect("it").status, Status::Ended);
    assert_eq!(world.count("schedule_tick WHERE status = 'BUFFERED'").await, 0);
}

#[tokio::test]
async fn a_failing_schedule_backs_off_and_delays_no_other() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let rule = hourly(Overlap::Allow, CatchUp::Last);
    let mut troubled = Vec::new();
    for _ in 0..3 {
        troubled.push(due(&world, workspace, definition, &rule, 2).await);
    }
    let fine = due(&world, workspace, definition, &rule, 1).await;
    let look = async || world.store.due_schedules(3).await.expect("a look");
    let first = look().await;
    assert_eq!(first.iter().filter(|due| troubled.contains(&due.id)).count(), 3, "they fill the page");
    for due in &first {
        world.store.back_off_schedule(due).await.expect("put off");
    }
    assert_eq!(look().await.iter().map(|due| due.id).collect::<Vec<_>>(), [fine]);
    let wait = "SELECT extract(epoch FROM retry_at - now())::float8 FROM schedule WHERE id = $1";
    let longest: f64 = world.get(wait, &[&troubled[0]]).await;
    assert!((590.0..=600.0).contains(&longest), "an hour late, it waits for the maximum: {longest}");
    assert!(
        world.store.next_tick().await.expect("a time").is_some_and(|seconds| seconds < 0.0),
        "the healthy one is due"
    );
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    let next = world.store.next_tick().await.expect("a time").expect("one");
    assert!(next > 0.0, "nothing is due: {next}");

    world
        .run_sql(
            "UPDATE schedule SET next_at = now() - interval '1 s', retry_at = now() WHERE id = $1",
            &[&troubled[0]],
        )
        .await;
    let again = look().await.remove(0);
    world.store.back_off_schedule(&again).await.expect("put off");
    let shortest: f64 = world.get(wait, &[&troubled[0]]).await;
    assert!((4.0..=5.0).contains(&shortest), "{shortest}");
    world.run_sql("UPDATE schedule SET retry_at = now() - interval '1 s' WHERE id = $1", &[&troubled[0]]).await;
    let stale = DueSchedule { revision: 9, ..again.clone() };
    world.store.back_off_schedule(&stale).await.expect("nothing to put off");
    assert_eq!(look().await.len(), 1, "a schedule changed since then is not delayed");
    back(&world, troubled[0], 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    let off: bool = world.get("SELECT retry_at IS NULL FROM schedule WHERE id = $1", &[&troubled[0]]).await;
    assert!(off, "it has recovered");
}

#[tokio::test]
async fn an_open_execution_is_found_behind_thousands_of_ticks() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let id = due(&world, workspace, definition, &hourly(Overlap::Skip, CatchUp::Last), 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Started]);
    let open = executions(&world).await[0];
    world.run_sql("UPDATE schedule_tick SET tick_at = now() - interval '90 days'", &[]).await;
    let ticks = "INSERT INTO schedule_tick (schedule_id, tick_at, status, reason, execution_id)
        SELECT $1, now() - make_interval(hours => n + 1), CASE WHEN n % 2 = 0 THEN 'SKIPPED' ELSE 'STARTED' END,
               CASE WHEN n % 2 = 0 THEN 'x' END, CASE WHEN n % 2 = 1 THEN gen_random_uuid() END
          FROM generate_series(1, 1500) n";
    world.run_sql(ticks, &[&id]).await;
    back(&world, id, 1).await;
    assert_eq!(fire(&world, &GOOD).await, [Skipped], "the one it started is open");
    assert_eq!(world.count("schedule_tick").await, 1001 + 1, "and its tick is kept");
    back(&world, id, 1).await;
    world.run_sql("DELETE FROM schedule_tick WHERE tick_at >= date_trunc('hour', now())", &[]).await;
    assert_eq!(fire(&world, &GOOD).await, [Skipped], "again");

    world.finish(open, execution::Status::Completed).await;
    back(&world, id, 1).await;
    let look = looks(&world).await.remove(0);
    let outcome =
        world.store.run_schedule(&look, start(workspace, definition), None, None, "key:1").await.expect("an answer");
    assert!(matches!(outcome, ManualRunOutcome::Enqueued(EnqueueOutcome::New { .. })), "{outcome:?}");
    assert_eq!(world.count("schedule_tick").await, 1001, "a manual run prunes too");
}

#[tokio::test]
async fn buffered_ticks_are_read_in_pages_and_none_is_missed() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    for _ in 0..5 {
        due(&world, workspace, definition, &hourly(Overlap::BufferOne, CatchUp::All), 2).await;
    }
    assert_eq!(fire(&world, &GOOD).await.len(), 10);
    let page = async |from| world.store.buffered_schedules(from, 2).await.expect("a page");
    let pages = async || {
        let (mut turns, mut from) = (Vec::new(), None);
        for at in 0.. {
            let (some, next) = page(from).await;
            turns.extend(some);
            if next.is_none() {
                return (turns, at + 1);
            }
            from = next;
        }
        unreachable!("pages end");
    };
    let (turns, count) = pages().await;
    assert_eq!((turns.len(), count), (0, 3), "all wait");
    for execution in executions(&world).await.into_iter().take(3) {
        world.finish(execution, execution::Status::Completed).await;
    }
    let (turns, count) = pages().await;
    assert_eq!((turns.len(), count), (3, 3));
    world.store.back_off_schedule(&turns[0]).await.expect("put off");
    assert_eq!(pages().await.0.len(), 2, "one is failing");
}
