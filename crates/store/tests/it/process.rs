//! Tests heartbeats, what a heartbeat returns, and how shards are distributed.

use std::time::Duration;

use kernel::ids::ProcessId;
use store::process::{HeartbeatReply, HeartbeatReport};

use crate::support::{DEAD_AFTER, ENGINE, UNSTEADY, World};

const LEASE: Duration = Duration::from_secs(3);

const WITH_ROOM: HeartbeatReport = HeartbeatReport { dispatches: true, has_room: true, waiting: 0 };
const FULL: HeartbeatReport = HeartbeatReport { dispatches: true, has_room: false, waiting: 0 };
const API_ONLY: HeartbeatReport = HeartbeatReport { dispatches: false, has_room: false, waiting: 0 };

async fn heartbeat(world: &World, process: ProcessId) -> HeartbeatReply {
    heartbeat_as(world, process, WITH_ROOM).await
}

async fn heartbeat_as(world: &World, process: ProcessId, report: HeartbeatReport) -> HeartbeatReply {
    store::process::heartbeat(&world.client, process, report, LEASE, DEAD_AFTER).await.expect("a heartbeat")
}

/// Sends heartbeats in turn until the shards are distributed.
async fn settle(world: &World, processes: &[ProcessId]) -> Vec<Vec<i16>> {
    let mut shards = Vec::new();
    for _ in 0..64 {
        shards.clear();
        for process in processes {
            let mut held = heartbeat(world, *process).await.shards;
            held.sort_unstable();
            shards.push(held);
        }
    }
    shards
}

#[tokio::test]
async fn a_heartbeat_keeps_a_process_alive() {
    let world = World::new().await;
    world.silence(world.me).await;
    assert!(!heartbeat(&world, world.me).await.declared_dead);
    assert_eq!(world.store.end_silent(DEAD_AFTER).await.expect("an answer"), []);
}

#[tokio::test]
async fn a_process_declared_dead_learns_so_by_its_next_heartbeat_and_stays_dead() {
    let world = World::new().await;
    let zombie = world.process().await;
    world.silence(zombie).await;
    assert_eq!(world.store.end_silent(DEAD_AFTER).await.expect("an answer"), [zombie]);
    assert_eq!(world.store.end_silent(DEAD_AFTER).await.expect("an answer"), [], "once");
    for _ in 0..2 {
        let reply = heartbeat(&world, zombie).await;
        assert_eq!(reply, HeartbeatReply { declared_dead: true, ..HeartbeatReply::default() }, "and it gets no shards");
    }
    let unknown = ProcessId(store::new_id());
    assert!(heartbeat(&world, unknown).await.declared_dead);
}

#[tokio::test]
async fn one_process_owns_every_shard() {
    let world = World::new().await;
    let mut shards = heartbeat(&world, world.me).await.shards;
    shards.sort_unstable();
    assert_eq!(shards, (0..64).collect::<Vec<i16>>());
}

#[tokio::test]
async fn a_process_that_does_not_dispatch_gets_no_shard() {
    let world = World::new().await;
    assert_eq!(heartbeat_as(&world, world.me, API_ONLY).await, HeartbeatReply::default());
}

#[tokio::test]
async fn full_processes_own_every_shard() {
    let world = World::new().await;
    let other = world.process().await;
    settle(&world, &[world.me, other]).await;
    let mut owned = Vec::new();
    for process in [world.me, other] {
        let reply = heartbeat_as(&world, process, FULL).await;
        assert!(reply.claim_shards.is_empty(), "a full process claims for nobody else");
        owned.extend(reply.shards);
    }
    owned.sort_unstable();
    assert_eq!(owned, (0..64).collect::<Vec<i16>>());
}

#[tokio::test]
async fn processes_with_room_share_the_claims_for_shards_of_full_owners() {
    let world = World::new().await;
    let (full, other) = (world.process().await, world.process().await);
    settle(&world, &[world.me, full, other]).await;
    let owned = heartbeat_as(&world, full, FULL).await.shards;
    assert!(owned.len() >= 20, "{owned:?}");
    let mut claimed_for = Vec::new();
    for process in [world.me, other] {
        let reply = heartbeat(&world, process).await;
        assert!(reply.claim_shards.len() >= owned.len() / 4, "shared out: {:?}", reply.claim_shards);
        claimed_for.extend(reply.claim_shards);
    }
    claimed_for.sort_unstable();
    let mut expected = owned.clone();
    expected.sort_unstable();
    assert_eq!(claimed_for, expected);
    assert_eq!(heartbeat(&world, full).await.shards.len(), owned.len(), "it has kept them all");
    assert!(heartbeat(&world, world.me).await.claim_shards.is_empty(), "and claims for them itself again");
}

#[tokio::test]
async fn every_process_learns_how_many_runs_of_dead_processes_wait_for_room() {
    let world = World::new().await;
    let (other, dead) = (world.process().await, world.process().await);
    heartbeat_as(&world, world.me, HeartbeatReport { waiting: 3, ..FULL }).await;
    heartbeat_as(&world, dead, HeartbeatReport { waiting: 50, ..FULL }).await;
    world.silence(dead).await;
    assert_eq!(heartbeat_as(&world, other, HeartbeatReport { waiting: 4, ..FULL }).await.waiting, 7);
    assert_eq!(heartbeat(&world, world.me).await.waiting, 4, "runs that were taken over no longer wait");
}

#[tokio::test]
async fn two_processes_settle_at_half_of_the_shards_each_and_never_share_one() {
    let world = World::new().await;
    let other = world.process().await;
    assert_eq!(heartbeat(&world, world.me).await.shards.len(), 32, "both are known to be alive");
    let shards = settle(&world, &[world.me, other]).await;
    assert_eq!((shards[0].len(), shards[1].len()), (32, 32));
    let mut all = shards.concat();
    all.sort_unstable();
    assert_eq!(all, (0..64).collect::<Vec<i16>>());
}

#[tokio::test]
async fn a_newcomer_gets_its_share_from_those_who_have_too_many() {
    let world = World::new().await;
    assert_eq!(heartbeat(&world, world.me).await.shards.len(), 64);
    let mut processes = vec![world.me];
    for count in 2..=3 {
        processes.push(world.process().await);
        let shards = settle(&world, &processes).await;
        let held: Vec<usize> = shards.iter().map(Vec::len).collect();
        let share = 64_usize.div_ceil(count);
        assert!(held.iter().all(|held| (share - 2..=share).contains(held)), "{held:?}");
        assert_eq!(held.iter().sum::<usize>(), 64);
    }
}

#[tokio::test]
async fn the_shards_of_a_dead_process_are_taken_after_their_lease_and_of_an_ended_one_at_once() {
    let world = World::new().await;
    let (dead, ended) = (world.process().await, world.process().await);
    settle(&world, &[world.me, dead, ended]).await;
    world.store.end_process(ended).await.expect("it ends");
    let after_the_end = settle(&world, &[world.me, dead]).await;
    assert_eq!((after_the_end[0].len(), after_the_end[1].len()), (32, 32));
    world.silence(dead).await;
    assert_eq!(heartbeat(&world, world.me).await.shards.len(), 32, "its lease has not expired");
    world.run_sql("UPDATE shard_owner SET until = now() WHERE owner = $1", &[&dead.0]).await;
    assert_eq!(heartbeat(&world, world.me).await.shards.len(), 64);
}

#[tokio::test]
async fn a_heartbeat_returns_own_runs_to_end_and_dead_processes() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 3).await;
    let (silent, ended) = (world.process().await, world.process().await);
    let mine = world.run(workspace, 2).await;
    let theirs = world.run_as(ended, workspace, 1).await;
    for run in [&mine[0], &theirs[0]] {
        world.store.cancel(run.execution, workspace, "test").await.expect("canceled");
    }
    world.silence(silent).await;
    world.store.end_process(ended).await.expect("it ends");
    let mut reply = heartbeat(&world, world.me).await;
    reply.dead.sort();
    let mut dead = [silent, ended];
    dead.sort();
    assert_eq!((reply.cancel, &reply.dead[..]), (vec![mine[0].execution], &dead[..]));
}

#[tokio::test]
async fn the_only_process_on_a_database_declares_all_others_ended() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let others = [world.process().await, world.process().await];
    let run = world.run_as(others[0], workspace, 1).await.remove(0);
    assert_eq!(world.store.end_all_but(world.me).await.expect("an answer"), 2);
    assert!(heartbeat(&world, others[0]).await.declared_dead && heartbeat(&world, others[1]).await.declared_dead);
    assert!(!heartbeat(&world, world.me).await.declared_dead);
    let taken_over =
        world.store.take_over_orphans(&[workspace.shard()], world.me, UNSTEADY, ENGINE, 10).await.expect("an answer");
    assert_eq!(taken_over[0].execution, run.execution, "without waiting for a lease");
}

/// An older release with a function, created this many days ago.
async fn older_release(world: &World, days: i32) {
    let made = format!(
        "CREATE SCHEMA forebay_r0; CREATE FUNCTION forebay_r0.claim() RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE PROCEDURE forebay_r0.tidy() LANGUAGE sql AS 'SELECT 1';
         INSERT INTO release VALUES (0, now() - interval '{days} days')"
    );
    world.client.batch_execute(&made).await.expect("an older release");
}

#[tokio::test]
async fn the_functions_of_a_release_are_dropped_a_day_after_its_last_heartbeat() {
    let world = World::new().await;
    let dropped = async || -> Vec<i32> { world.store.drop_unused_releases().await.expect("an answer") };
    older_release(&world, 0).await;
    assert_eq!(dropped().await, [0; 0], "they were created today");
    world.run_sql("UPDATE release SET made_at = made_at - interval '2 days' WHERE number = 0", &[]).await;
    let old = world.process().await;
    world.run_sql("UPDATE process SET release = 0, ended_at = now() WHERE id = $1", &[&old.0]).await;
    assert_eq!(dropped().await, [0; 0], "a process used them today");
    world.run_sql("UPDATE process SET heartbeat_at = now() - interval '25 hours' WHERE id = $1", &[&old.0]).await;
    let view = "CREATE VIEW public.theirs AS SELECT forebay_r0.claim()";
    world.client.batch_execute(view).await.expect("a view that depends on them");
    assert_eq!(dropped().await, [0; 0], "without CASCADE");
    world.client.batch_execute("DROP VIEW public.theirs").await.expect("no view");
    assert_eq!(dropped().await, [0]);
    assert_eq!(world.count("pg_namespace WHERE nspname = 'forebay_r0'").await, 0);
    assert_eq!(world.count("release").await, 1, "this release is in use");
}

#[tokio::test]
async fn a_release_that_cannot_be_dropped_does_not_block_the_deletion_of_processes() {
    let world = World::new().await;
    older_release(&world, 2).await;
    let ended = world.process().await;
    world.store.end_process(ended).await.expect("it ends");
    world.run_sql("UPDATE process SET ended_at = ended_at - interval '2 days' WHERE id = $1", &[&ended.0]).await;
    let broken = "CREATE OR REPLACE FUNCTION forebay_r1.drop_unused_releases(p_own int, p_unused_s float8) \
                  RETURNS SETOF int LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$";
    world.client.batch_execute(broken).await.expect("a function that fails");
    assert_eq!(world.store.delete_old_processes().await.expect("an answer"), 1);
}

#[tokio::test]
async fn a_process_whose_functions_were_dropped_recreates_them_and_registers_under_a_new_id() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    world.client.batch_execute(&format!("DROP SCHEMA {} CASCADE", store::release::SCHEMA)).await.expect("a schema");
    let connection = world.database.target.connect().await.expect("a connection");
    let heartbeat = async |process| {
        store::process::heartbeat(&connection, process, WITH_ROOM, LEASE, DEAD_AFTER).await.expect("a heartbeat")
    };
    assert!(heartbeat(world.me).await.declared_dead);
    let again = world.process().await;
    assert!(!heartbeat(again).await.declared_dead);
    assert_eq!(world.run_as(again, workspace, 1).await.len(), 1);
}

#[tokio::test]
async fn a_process_is_deleted_a_day_after_its_end_unless_something_refers_to_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 2).await;
    let (owner, claimer, idle) = (world.process().await, world.process().await, world.process().await);
    world.run_as(owner, workspace, 1).await;
    world.claim_one(claimer, workspace).await;
    for process in [owner, claimer, idle] {
        world.store.end_process(process).await.expect("it ends");
    }
    assert_eq!(world.store.delete_old_processes().await.expect("an answer"), 0, "too early");
    let sql = "UPDATE process SET ended_at = ended_at - interval '2 days' WHERE ended_at IS NOT NULL";
    world.run_sql(sql, &[]).await;
    assert_eq!(world.store.delete_old_processes().await.expect("an answer"), 1);
    assert_eq!(world.count(&format!("process WHERE id = '{idle}'")).await, 0);
}
