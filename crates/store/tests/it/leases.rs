//! The lease table, shared with programs that use the ShedLock library.
//!
//! Invariants
//! - The other program is emulated by the statements of its JdbcTemplate provider, with its own clock and with the
//!   database's. Each side must respect what the other locks and unlocks.

use std::time::Duration;

use store::migrate::{MigrateError, migrate};
use store::process::lease::{Lease, LeaseHolder};
use store::testing::Database;
use tokio_postgres::Client;

use crate::support::{DEAD_AFTER, STEADY, UNSTEADY, World};

const LEASE: Lease =
    Lease { name: "processExecutionQueue", at_most: Duration::from_secs(240), at_least: Duration::from_secs(10) };

/// A Java program: the provider in its default form, which sends the program's clock.
struct Java<'c>(&'c Client);

impl Java<'_> {
    const NOW: &'static str = "timezone('utc', now())";

    async fn changed(&self, sql: &str) -> bool {
        let sql = sql.replace(":now", Self::NOW).replace(":name", "'processExecutionQueue'").replace(":me", "'java'");
        self.0.execute(&sql, &[]).await.expect("a statement of the library") == 1
    }

    /// It inserts once, and only updates from then on.
    async fn lock(&self) -> bool {
        let insert = "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) \
                      VALUES(:name, :now + interval '4 minutes', :now, :me) ON CONFLICT (name) DO NOTHING";
        self.changed(insert).await || self.update().await
    }

    async fn update(&self) -> bool {
        self.changed(
            "UPDATE shedlock SET lock_until = :now + interval '4 minutes', locked_at = :now, locked_by = :me \
             WHERE name = :name AND lock_until <= :now",
        )
        .await
    }

    /// With `usingDbTime`: one statement, the database's time.
    async fn lock_by_database_time(&self) -> bool {
        self.changed(
            "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) \
             VALUES(:name, timezone('utc', CURRENT_TIMESTAMP) + cast('PT4M' as interval), timezone('utc', CURRENT_TIMESTAMP), :me) \
             ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + cast('PT4M' as interval), \
             locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = :me \
             WHERE shedlock.name = :name AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)",
        )
        .await
    }

    async fn extend(&self) -> bool {
        self.changed(
            "UPDATE shedlock SET lock_until = :now + interval '4 minutes' \
             WHERE name = :name AND locked_by = :me AND lock_until > :now",
        )
        .await
    }

    async fn unlock(&self) -> bool {
        self.changed("UPDATE shedlock SET lock_until = :now WHERE name = :name").await
    }
}

/// Seconds until the lease expires.
async fn left(world: &World) -> f64 {
    let sql = "SELECT extract(epoch FROM lock_until - timezone('utc', clock_timestamp()))::float8 FROM shedlock";
    world.client.query_one(sql, &[]).await.expect("a lease").get(0)
}

/// Ages the lease by this many seconds.
async fn pass(world: &World, seconds: i32) {
    let sql = format!(
        "UPDATE shedlock SET lock_until = lock_until - interval '{seconds} s', locked_at = locked_at - interval '{seconds} s'"
    );
    world.client.batch_execute(&sql).await.expect("time passes");
}

#[tokio::test]
async fn a_lease_has_one_holder_who_extends_it_and_expires_by_itself() {
    let world = World::new().await;
    assert!(world.store.lock(LEASE, "a").await.expect("an answer"));
    assert!((239.0..=240.0).contains(&left(&world).await), "{}", left(&world).await);
    assert!(!world.store.lock(LEASE, "b").await.expect("an answer"), "a held lease is not taken");
    assert!(!world.store.lock(LEASE, "a").await.expect("an answer"), "not even by its holder");
    pass(&world, 200).await;
    assert!(!world.store.extend(LEASE, "b").await.expect("an answer"));
    assert!(world.store.extend(LEASE, "a").await.expect("an answer"));
    assert!(left(&world).await > 239.0);
    pass(&world, 241).await;
    assert!(!world.store.extend(LEASE, "a").await.expect("an answer"), "an expired lease is not extended");
    assert!(world.store.lock(LEASE, "b").await.expect("an answer"));
    assert!(!world.store.unlock(LEASE, "a").await.expect("an answer"), "the lease of another process is not released");
    assert!(left(&world).await > 239.0);
}

#[tokio::test]
async fn a_lease_released_early_stays_held_for_its_minimum_time() {
    let world = World::new().await;
    assert!(world.store.lock(LEASE, "a").await.expect("an answer"));
    pass(&world, 4).await;
    assert!(world.store.unlock(LEASE, "a").await.expect("an answer"));
    assert!((5.0..=6.0).contains(&left(&world).await), "{}", left(&world).await);
    assert!(!world.store.lock(LEASE, "b").await.expect("an answer"));
    pass(&world, 7).await;
    assert!(world.store.lock(LEASE, "b").await.expect("an answer"));
    pass(&world, 20).await;
    assert!(world.store.unlock(LEASE, "b").await.expect("an answer"));
    assert!(world.store.lock(LEASE, "a").await.expect("an answer"), "after the minimum time it is free immediately");
}

#[tokio::test]
async fn we_and_java_programs_exclude_each_other() {
    let world = World::new().await;
    // A session in another time zone: only UTC is compared.
    world.client.batch_execute("SET TIME ZONE 'Pacific/Auckland'").await.expect("a setting");
    let java = Java(&world.client);
    assert!(java.lock().await);
    assert!(!world.store.lock(LEASE, "a").await.expect("an answer"), "their lease keeps us out");
    assert!(!world.store.extend(LEASE, "a").await.expect("an answer"));
    assert!(!world.store.unlock(LEASE, "a").await.expect("an answer"), "and we cannot release it");
    assert!(java.extend().await, "they still hold it");
    assert!(java.unlock().await);
    assert!(world.store.lock(LEASE, "a").await.expect("an answer"), "after they released it we can take it");
    assert!(
        !java.update().await && !java.lock().await && !java.lock_by_database_time().await,
        "our lease keeps them out"
    );
    assert!(!java.extend().await);
    pass(&world, 11).await;
    assert!(world.store.unlock(LEASE, "a").await.expect("an answer"));
    assert!(java.lock_by_database_time().await, "after we released it they can take it");
    assert!(!world.store.lock(LEASE, "a").await.expect("an answer"));
    pass(&world, 241).await;
    assert!(world.store.lock(LEASE, "a").await.expect("an answer"), "and so is a lease whose holder died");
}

#[tokio::test]
async fn of_many_concurrent_requests_one_gets_the_lease() {
    let world = World::new().await;
    let holders: Vec<String> = (0..16).map(|n| format!("holder {n}")).collect();
    let asked = holders.iter().map(|holder| world.store.lock(LEASE, holder));
    let got = futures_util::future::join_all(asked).await.into_iter().filter(|got| *got.as_ref().expect("an answer"));
    assert_eq!(got.count(), 1);
}

#[tokio::test]
async fn a_table_that_another_program_made_is_used_as_it_is() {
    let database = Database::empty().await;
    let theirs = "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
                  locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); \
                  INSERT INTO shedlock VALUES ('nightly report', 'infinity', 'epoch', 'java')";
    database.client().await.batch_execute(theirs).await.expect("their table");
    migrate(&database.target).await.expect("a migration");
    let kept = database.client().await.query_one("SELECT locked_by FROM shedlock", &[]).await.expect("their row");
    assert_eq!(kept.get::<_, &str>(0), "java");
    assert!(database.store.lock(LEASE, "a").await.expect("an answer"));
}

#[tokio::test]
async fn a_table_with_another_layout_is_refused_and_left_alone() {
    for (columns, missing) in [
        (
            "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMPTZ NOT NULL, locked_at TIMESTAMPTZ NOT NULL, locked_by VARCHAR(255) NOT NULL",
            "with time zone",
        ),
        (
            "name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL",
            "name character varying(64) not null",
        ),
        (
            "name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP, locked_at TIMESTAMP, locked_by VARCHAR(255), host TEXT",
            "host text",
        ),
    ] {
        let database = Database::empty().await;
        let client = database.client().await;
        client.batch_execute(&format!("CREATE TABLE shedlock({columns})")).await.expect("their table");
        let error = migrate(&database.target).await.expect_err("it cannot be shared");
        assert!(matches!(error, MigrateError::Shedlock { .. }), "{error:?}");
        assert!(
            error.to_string().contains(missing) && error.to_string().contains("name varchar(64) primary key"),
            "{error}"
        );
        let made = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'";
        let tables: i64 = client.query_one(made, &[]).await.expect("a catalogue").get(0);
        assert_eq!(tables, 1, "nothing was made beside it");
    }
}

#[tokio::test]
async fn only_the_lease_of_a_dead_process_is_taken_before_it_expires() {
    let world = World::new().await;
    let holder = world.process().await;
    let (theirs, ours) = (format!("a/{holder}"), format!("b/{}", world.me));
    let take = async |silence| world.store.take_over_lease(LEASE, &ours, silence).await.expect("an answer");
    let held_by = async || world.store.lease_holder(LEASE, DEAD_AFTER).await.expect("an answer");
    assert_eq!(held_by().await, None);
    assert!(world.store.lock(LEASE, &theirs).await.expect("an answer"));
    assert!(!take(STEADY).await, "its holder lives");
    world.silence(holder).await;
    assert_eq!(held_by().await, Some(LeaseHolder { name: theirs.clone(), is_forebay: true, dead: true }));
    assert!(!take(UNSTEADY).await, "the caller's own heartbeats were not steady");
    assert!(take(STEADY).await && !take(STEADY).await, "once");
    assert_eq!(held_by().await, Some(LeaseHolder { name: ours.clone(), is_forebay: true, dead: false }));
    assert!(!world.store.extend(LEASE, &theirs).await.expect("an answer"), "the dead process has lost it");
    world.run_sql("UPDATE shedlock SET locked_by = 'java'", &[]).await;
    assert!(!take(STEADY).await, "another program's lease is never touched");
    assert_eq!(held_by().await, Some(LeaseHolder { name: "java".to_owned(), is_forebay: false, dead: false }));
}
