//! The version of the claim protocol: which process raises it, when, and what happens to processes with another one.

use std::time::Duration;

use kernel::ids::{ClaimId, WorkspaceId};
use kernel::queue::round_robin::Quota;
use store::migrate::{MigrateError, migrate};
use store::new_id;
use store::release::{Protocol, RaiseOutcome, is_other_protocol};

use crate::support::World;

const DEAD_AFTER: Duration = Duration::from_secs(15);

/// A database upgraded to the synthetic next release, which this process acts as from then on.
async fn upgraded() -> World {
    let world = World::new().await;
    store::release::play(2);
    migrate(&world.database.target).await.expect("an upgrade");
    world
}

async fn number(world: &World) -> i32 {
    world.get("SELECT number FROM protocol", &[]).await
}

async fn raise(world: &World) -> RaiseOutcome {
    world.store.raise_protocol(DEAD_AFTER).await.expect("an answer")
}

/// Is a claim of this release accepted?
async fn claims(world: &World, workspace: WorkspaceId) -> bool {
    match world.store.claim(&[Quota { workspace, limit: 1 }], ClaimId(new_id()), world.me, None).await {
        Ok(claims) => claims.items.len() == 1,
        Err(error) if is_other_protocol(&error) => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn two_releases_run_side_by_side_and_the_protocol_is_raised_when_the_older_one_is_gone() {
    let world = upgraded().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 4).await;
    assert_eq!(world.store.protocol().await.expect("an answer"), Protocol::Ahead { ours: 2, theirs: 1 });
    assert!(!claims(&world, workspace).await, "the newer one waits");
    let RaiseOutcome::Older(who) = raise(&world).await else { panic!("an older process lives") };
    assert!(who.contains("release 1"), "{who}");
    store::release::play(1);
    assert!(claims(&world, workspace).await, "the older one continues");
    store::release::play(2);
    world.store.end_process(world.me).await.expect("it shuts down");
    assert_eq!(raise(&world).await, RaiseOutcome::Raised);
    assert_eq!(number(&world).await, 2);
    assert!(claims(&world, workspace).await);
    store::release::play(1);
    assert!(!claims(&world, workspace).await, "an older process that comes back claims nothing");
    assert_eq!(world.stages(workspace).await, "ready 2, slot 2");
}

#[tokio::test]
async fn a_silent_process_does_not_keep_the_protocol_from_being_raised() {
    let world = upgraded().await;
    world.silence(world.me).await;
    assert_eq!(raise(&world).await, RaiseOutcome::Raised);
}

#[tokio::test]
async fn the_protocol_is_not_raised_while_a_claim_is_under_way_and_nothing_stays_locked() {
    let world = upgraded().await;
    world.store.end_process(world.me).await.expect("it shuts down");
    let claimer = world.database.client().await;
    claimer.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(lock_shard(), 63)").await.expect("a claim");
    assert_eq!(raise(&world).await, RaiseOutcome::Busy);
    assert_eq!(number(&world).await, 1);
    let own = "pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(world.count(own).await, 1, "only the claim's");
    claimer.batch_execute("COMMIT").await.expect("the claim ends");
    assert_eq!(raise(&world).await, RaiseOutcome::Raised);
}

#[tokio::test]
async fn an_older_release_is_refused_with_a_reason_once_the_protocol_is_raised() {
    let world = upgraded().await;
    world.store.end_process(world.me).await.expect("it shuts down");
    assert_eq!(raise(&world).await, RaiseOutcome::Raised);
    store::release::play(1);
    let functions = "SELECT md5(string_agg(own.oid::text || own.prosrc, '' ORDER BY own.oid)) FROM pg_proc own
        WHERE own.pronamespace::regnamespace::text LIKE 'forebay%'";
    let before: String = world.get(functions, &[]).await;
    let target = &world.database.target;
    for refused in [migrate(target).await.map(drop), store::migrate::check(target).await] {
        let error = refused.expect_err("it would claim with other rules");
        assert!(matches!(error, MigrateError::Protocol { ours: 1, theirs: 2 }), "{error:?}");
        assert!(error.to_string().contains("Start the newer release"), "{error}");
    }
    assert_eq!(world.get::<String>(functions, &[]).await, before, "nothing was overwritten");
}
