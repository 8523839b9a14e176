//! The marks from which claims count slots: the count stays exact, and the cost of a claim does not grow under an old
//! snapshot. Each rule is also broken, and the break must be noticed.
//!
//! Not here: the ready items (`marks_ready`).

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, DefinitionId, WorkspaceId};
use kernel::queue::round_robin::Quota;
use store::new_id;
use store::release::is_other_protocol;
use store::run::Ending;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::plans::touched;
use crate::support::{Limits, World, end};

const CLAIM: &str = include_str!("../../functions/claim.sql");
const MARK: &str = include_str!("../../functions/mark.sql");
/// How a claim resets a mark that its number is not above.
const RESET: &str = "SET slots_after = 0, slots_known = '{}'";
/// The limit of the workspaces here.
const LIMIT: i64 = 5;

/// A text of ours with one rule broken.
pub(crate) fn broken(text: &str, rule: &str, instead: &str) -> String {
    assert_eq!(text.matches(rule).count(), 1, "{rule}");
    text.replace(rule, instead)
}

/// A workspace with ten ready items. Each claim moves its mark.
pub(crate) async fn ten_ready() -> (World, WorkspaceId, DefinitionId) {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 10).await;
    world.move_marks(true).await;
    (world, workspace, definition)
}

/// Claims as much as the limit allows. Returns how many slots are in use after that.
async fn filled(world: &World, workspace: WorkspaceId) -> i64 {
    world.claim(workspace, 20).await;
    world.count(&format!("execution_queue WHERE stage = 5 AND workspace_id = '{workspace}'")).await
}

/// Claims in a session of one's own.
async fn claim_in(session: &Client, workspace: WorkspaceId, want: i32) {
    let sql = "SELECT kind FROM forebay_r1.claim($1, $2, $3, $3, NULL, $4, $5)";
    let (asked, wanted, id) = (vec![workspace.0], vec![want], new_id());
    let params: [&(dyn ToSql + Sync); 5] = [&asked, &wanted, &id, &kernel::SEMANTICS, &store::release::PROTOCOL];
    session.query(sql, &params).await.expect("a claim");
}

async fn two_claims(world: &World, workspace: WorkspaceId) -> i64 {
    world.claim(workspace, 3).await;
    filled(world, workspace).await
}

#[tokio::test]
async fn a_count_that_starts_at_the_mark_misses_no_slot() {
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(two_claims(&world, workspace).await, LIMIT);
}

#[tokio::test]
async fn a_mark_that_covers_the_number_of_its_own_claim_is_noticed() {
    let (world, workspace, _) = ten_ready().await;
    let mutant = broken(MARK, "ELSE p_number END - 1", "ELSE p_number + 1 END - 1");
    world.client.batch_execute(&mutant).await.expect("a mutant");
    world.move_marks(true).await;
    assert_eq!(two_claims(&world, workspace).await, LIMIT + 3);
}

/// An item gets its slot back after the mark has passed its first number.
async fn claimed_again(world: &World, workspace: WorkspaceId) -> i64 {
    let (item, claim) = world.claim_one(world.me, workspace).await;
    let later = Duration::from_secs(3_600);
    assert_eq!(world.store.requeue_unsent(&[item], claim, later).await.expect("requeued"), [item]);
    world.claim(workspace, 2).await;
    world.run_sql("UPDATE execution_queue SET stage = 0 WHERE id = $1", &[&item.0]).await;
    world.move_marks(false).await;
    assert_eq!(world.claim_one(world.me, workspace).await.0, item);
    filled(world, workspace).await
}

#[tokio::test]
async fn an_item_that_was_requeued_is_counted_under_a_new_number() {
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(claimed_again(&world, workspace).await, LIMIT);
}

#[tokio::test]
async fn a_number_that_is_kept_over_a_requeue_is_noticed() {
    let (world, workspace, _) = ten_ready().await;
    let mutant = "ALTER TABLE execution_queue DROP CONSTRAINT execution_queue_check;
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN NEW.claim_number := OLD.claim_number; RETURN NEW; END';
        CREATE TRIGGER keep BEFORE UPDATE ON execution_queue FOR EACH ROW
            WHEN (OLD.claim_number IS NOT NULL) EXECUTE FUNCTION keep()";
    world.client.batch_execute(mutant).await.expect("a mutant");
    let (item, claim) = world.claim_one(world.me, workspace).await;
    let later = Duration::from_secs(3_600);
    assert_eq!(world.store.requeue_unsent(&[item], claim, later).await.expect("requeued"), [item]);
    assert_eq!(filled(&world, workspace).await, LIMIT - 1, "it counts as a slot while it waits");
}

/// Two sessions claim in turns; only the second moves the mark.
async fn two_sessions(world: &World, workspace: WorkspaceId) -> i64 {
    let (one, other) = (world.database.client().await, world.database.client().await);
    world.move_marks(false).await;
    claim_in(&one, workspace, 1).await;
    world.move_marks(true).await;
    claim_in(&other, workspace, 1).await;
    world.move_marks(false).await;
    claim_in(&one, workspace, 1).await;
    claim_in(&other, workspace, 20).await;
    filled(world, workspace).await
}

#[tokio::test]
async fn sessions_draw_their_numbers_in_the_order_of_their_claims() {
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(two_sessions(&world, workspace).await, LIMIT);
}

/// Two sessions claim in turns, and each draws ten numbers at once.
async fn cached(world: &World, workspace: WorkspaceId) -> i64 {
    world.client.batch_execute("ALTER SEQUENCE claim_number CACHE 10").await.expect("a mutant");
    two_sessions(world, workspace).await
}

/// A mark is moved while a claim is open, or after it.
async fn moved_beside_a_claim(world: &World, workspace: WorkspaceId, locked: bool) -> i64 {
    world.move_marks(false).await;
    let claimer = world.database.client().await;
    let mover = world.database.client().await;
    claimer.batch_execute("BEGIN").await.expect("begin");
    claim_in(&claimer, workspace, 3).await;
    let lock = "SELECT pg_advisory_xact_lock(lock_shard(), shard_of($1))";
    let moving = tokio::spawn(async move {
        mover.batch_execute("BEGIN").await.expect("begin");
        if locked {
            mover.query(lock, &[&workspace.0]).await.expect("the lock");
        }
        let sql = "SELECT forebay_r1.move_mark($1, nextval('claim_number'), clock_timestamp())";
        mover.query(sql, &[&workspace.0]).await.expect("a moved mark");
        mover.batch_execute("COMMIT").await.expect("commit");
    });
    if locked {
        world.somebody_is_blocked().await;
        claimer.batch_execute("COMMIT").await.expect("commit");
        moving.await.expect("no panic");
    } else {
        moving.await.expect("no panic");
        claimer.batch_execute("COMMIT").await.expect("commit");
    }
    filled(world, workspace).await
}

#[tokio::test]
async fn a_mark_that_moves_outside_the_lock_is_noticed() {
    for locked in [true, false] {
        let (world, workspace, _) = ten_ready().await;
        let expected = if locked { LIMIT } else { LIMIT + 3 };
        assert_eq!(moved_beside_a_claim(&world, workspace, locked).await, expected, "locked: {locked}");
    }
}

/// Is a claim accepted that waited for its lock while the protocol was raised?
async fn accepted_behind_a_raise(world: &World, workspace: WorkspaceId) -> bool {
    let raiser = world.database.client().await;
    let lock = "BEGIN; SELECT pg_advisory_xact_lock(lock_shard(), shard) FROM generate_series(0, 63) AS shard";
    raiser.batch_execute(lock).await.expect("every lock");
    let (store, me) = (world.store.clone(), world.me);
    let asks = [Quota { workspace, limit: 1 }];
    let claiming = tokio::spawn(async move { store.claim(&asks, ClaimId(new_id()), me, None).await });
    world.somebody_is_blocked().await;
    raiser.batch_execute("UPDATE protocol SET number = number + 1; COMMIT").await.expect("a raise");
    match claiming.await.expect("no panic") {
        Ok(claims) => claims.items.len() == 1,
        Err(error) if is_other_protocol(&error) => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_protocol_that_is_checked_before_the_lock_is_noticed() {
    let (world, workspace, _) = ten_ready().await;
    assert!(!accepted_behind_a_raise(&world, workspace).await);
    let (world, workspace, _) = ten_ready().await;
    let from = CLAIM.find("    IF p_protocol IS DISTINCT").expect("the check");
    let check = &CLAIM[from..from + CLAIM[from..].find("END IF;\n").expect("its end") + "END IF;\n".len()];
    let lock = "    IF cardinality(v_shards) = 1 THEN\n";
    let mutant = broken(&broken(CLAIM, check, ""), lock, &format!("{check}{lock}"));
    world.client.batch_execute(&mutant).await.expect("a mutant");
    assert!(accepted_behind_a_raise(&world, workspace).await);
}

#[tokio::test]
async fn a_mark_that_would_list_too_many_numbers_stays_before_the_smallest() {
    let (world, workspace, _) = ten_ready().await;
    world.list_numbers(2).await;
    let mark =
        "SELECT (SELECT min(claim_number) FROM execution_queue) - slots_after || ', ' || cardinality(slots_known)
        FROM claim_mark WHERE workspace_id = $1";
    for expected in ["1, 0", "0, 1", "-1, 2", "1, 0"] {
        world.claim(workspace, 1).await;
        assert_eq!(world.get::<String>(mark, &[&workspace.0]).await, expected);
    }
    assert_eq!(filled(&world, workspace).await, LIMIT);
}

/// The next claim draws the number after this one.
async fn set_number(world: &World, last: i64) {
    assert_eq!(world.get::<i64>("SELECT setval('claim_number', $1)", &[&last]).await, last);
}

/// The sequence is reset, as by a copy of the rows without it, and then the mark moves.
async fn reset(world: &World, workspace: WorkspaceId) -> i64 {
    set_number(world, 1_000).await;
    world.claim(workspace, 2).await;
    world.move_marks(false).await;
    set_number(world, 1).await;
    world.claim(workspace, 1).await;
    world.move_marks(true).await;
    world.claim(workspace, 1).await;
    filled(world, workspace).await
}

/// The sequence is reset, and later passes the old mark.
async fn reset_and_caught_up(world: &World, workspace: WorkspaceId) -> i64 {
    set_number(world, 1_000).await;
    let (item, _) = world.claim_one(world.me, workspace).await;
    world.finish(item.execution(), Status::Completed).await;
    world.move_marks(false).await;
    set_number(world, 1).await;
    world.claim(workspace, 3).await;
    set_number(world, 1_000).await;
    filled(world, workspace).await
}

#[tokio::test]
async fn numbers_that_are_not_above_the_mark_exceed_no_limit() {
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(reset(&world, workspace).await, LIMIT);
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(reset_and_caught_up(&world, workspace).await, LIMIT);
    let (world, workspace, _) = ten_ready().await;
    assert_eq!(cached(&world, workspace).await, LIMIT);
}

#[tokio::test]
async fn a_mark_that_a_smaller_number_does_not_reset_is_noticed() {
    let mutant = broken(CLAIM, RESET, "SET slots_after = slots_after");
    let (world, workspace, _) = ten_ready().await;
    world.client.batch_execute(&mutant).await.expect("a mutant");
    assert_eq!(reset(&world, workspace).await, LIMIT + 1);
    let (world, workspace, _) = ten_ready().await;
    world.client.batch_execute(&mutant).await.expect("a mutant");
    assert_eq!(reset_and_caught_up(&world, workspace).await, LIMIT + 3);
    let (world, workspace, _) = ten_ready().await;
    world.client.batch_execute(&mutant).await.expect("a mutant");
    assert_eq!(cached(&world, workspace).await, LIMIT + 1);
}

/// After a reset, claims draw the number of slots in a shard that is busy.
#[tokio::test]
async fn the_mark_of_a_busy_shard_does_not_move() {
    let (world, [free, busy]) = (World::new().await, [3, 4]);
    let free = world.workspace_weighing("PRO", 1, Some(free)).await;
    let busy = world.workspace_weighing("PRO", 1, Some(busy)).await;
    for workspace in [free, busy] {
        world.limit(workspace, 20).await;
        let definition = world.definition(workspace, Limits::default()).await;
        world.accept_many(workspace, definition, 20).await;
    }
    world.move_marks(false).await;
    set_number(&world, 1_000).await;
    world.claim(busy, 20).await;
    let holder = world.database.client().await;
    holder.query("SELECT pg_advisory_lock(lock_shard(), shard_of($1))", &[&busy.0]).await.expect("a lock");
    world.move_marks(true).await;
    let asks = [free, busy].map(|workspace| Quota { workspace, limit: 1 });
    // Chance picks an item of the claim: each round, the busy workspace has more of them.
    for _ in 0..5 {
        set_number(&world, 1_000).await;
        let claims = world.store.claim(&asks, ClaimId(new_id()), world.me, None).await.expect("a claim");
        assert_eq!(claims.items.len(), 1);
    }
    let marked: Vec<uuid::Uuid> = world.get("SELECT array_agg(workspace_id) FROM claim_mark", &[]).await;
    assert_eq!(marked, [free.0]);
}

/// Runs and ends this many executions, a thousand at a time.
async fn end_many(world: &World, workspace: WorkspaceId, definition: DefinitionId, thousands: usize) {
    for _ in 0..thousands {
        world.accept_many(workspace, definition, 1_000).await;
        let begun = world.run(workspace, 1_000).await;
        let ending = |run: &store::queue::claim::Begun| Ending {
            execution: run.execution,
            claim: None,
            end: end(Status::Completed),
        };
        let endings: Vec<Ending> = begun.iter().map(ending).collect();
        assert_eq!(endings.len(), 1_000);
        world.store.complete(&endings, None, "test").await.expect("endings");
    }
}

/// How many buffers a claim of one item touches, with one slot taken before the snapshot.
async fn buffers_of_a_claim(world: &World, workspace: WorkspaceId) -> i64 {
    let claim = include_str!("../../sql/execution_queue/claim.sql");
    let (asked, wanted, id, engine) = (vec![workspace.0], vec![1], new_id(), None::<&str>);
    let (semantics, protocol) = (kernel::SEMANTICS, store::release::PROTOCOL);
    let params: [&(dyn ToSql + Sync); 7] = [&asked, &wanted, &id, &world.me.0, &engine, &semantics, &protocol];
    touched(world, claim, &params).await
}

#[tokio::test]
async fn a_claim_under_an_old_snapshot_reads_past_nothing_that_ended() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.limit(workspace, 2_000).await;
    world.move_marks(true).await;
    world.keep_marks_close().await;
    world.accept_many(workspace, definition, 1).await;
    world.run(workspace, 1).await;
    let dump = world.database.client().await;
    dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM workspace").await.expect("a snapshot");
    end_many(&world, workspace, definition, 1).await;
    world.accept_many(workspace, definition, 10).await;
    world.run(workspace, 1).await;
    world.move_marks(false).await;
    let before = buffers_of_a_claim(&world, workspace).await;
    world.move_marks(true).await;
    world.run(workspace, 9).await;
    end_many(&world, workspace, definition, 4).await;
    world.accept_many(workspace, definition, 10).await;
    world.run(workspace, 1).await;
    world.move_marks(false).await;
    let after = buffers_of_a_claim(&world, workspace).await;
    assert!(after < before + 100, "{before} buffers after 1,000 ended executions, {after} after 5,000");
    world.client.batch_execute("DELETE FROM claim_mark").await.expect("no marks");
    let unmarked = buffers_of_a_claim(&world, workspace).await;
    assert!(unmarked > after + 300, "without a mark a claim reads past all of them: {unmarked} buffers");
}
