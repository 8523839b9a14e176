//! Brings the database up to date with this build. Each migration is applied once; functions are replaced when they
//! have changed.
//!
//! ```text
//! forebay      tables, trigger functions, functions that other programs call   replaced by the newest release only
//! forebay_rN   functions that only processes of release N call                 made by that release, for itself
//! ```
//!
//! Invariants
//! - One process migrates at a time, and other processes wait for it: it holds an advisory lock throughout.
//! - Other statements wait only for a short time. A migration's statement waits for a lock for at most 100 ms, and
//!   holds no lock between two attempts (`patience`). If the functions are up to date, starting a process changes
//!   nothing.
//! - Two releases can run side by side. Each has its own functions, and no table, trigger, view or default refers to
//!   them.
//! - The older of two releases does not change the schema `forebay`. The newer release keeps that schema compatible
//!   with the older one: if the parameters of a function change, a new function is added beside the old one.
//!
//! Not here: the schema itself (`migrations/`, `functions/`), which release this is (`release`).

mod patience;
mod step;

use std::time::Duration;

use tokio_postgres::Client;

use crate::Error;
use crate::connect::Target;
use crate::process::lease;
use crate::release::{self, Protocol};
use crate::sql::sql;
use patience::Session;
use step::{HISTORY, History, Kind, digest};

/// The shared schema: tables, trigger functions, and the functions that other programs call.
pub const SCHEMA: &str = "forebay";

/// The functions of the shared schema, in the order in which they are applied.
pub const SHARED: [(&str, &str); 9] = [
    // First, because the other functions use these names.
    ("names", include_str!("../functions/shared/names.sql")),
    ("backlog", include_str!("../functions/shared/backlog.sql")),
    ("unblock", include_str!("../functions/shared/unblock.sql")),
    ("enqueue", include_str!("../functions/shared/enqueue.sql")),
    ("limit", include_str!("../functions/shared/limit.sql")),
    ("event", include_str!("../functions/shared/event.sql")),
    ("job", include_str!("../functions/shared/job.sql")),
    ("triggers", include_str!("../functions/shared/triggers.sql")),
    // Last, and in the same commit as the functions: otherwise a role without the right could call a function in
    // between.
    ("rights", include_str!("../functions/shared/rights.sql")),
];

/// The functions of this release, in the order in which they are applied.
pub const FUNCTIONS: [(&str, &str); 25] = [
    ("rerun", include_str!("../functions/rerun.sql")),
    ("append", include_str!("../functions/append.sql")),
    ("jobs", include_str!("../functions/jobs.sql")),
    ("job_workers", include_str!("../functions/job_workers.sql")),
    ("job_recovery", include_str!("../functions/job_recovery.sql")),
    ("job_rebuild", include_str!("../functions/job_rebuild.sql")),
    ("retire", include_str!("../functions/retire.sql")),
    ("webhook", include_str!("../functions/webhook.sql")),
    ("request", include_str!("../functions/request.sql")),
    ("wait", include_str!("../functions/wait.sql")),
    ("candidate", include_str!("../functions/candidate.sql")),
    ("task", include_str!("../functions/task.sql")),
    // Before the claim, which uses it.
    ("mark", include_str!("../functions/mark.sql")),
    ("claim", include_str!("../functions/claim.sql")),
    ("begin", include_str!("../functions/begin.sql")),
    ("complete", include_str!("../functions/complete.sql")),
    ("record", include_str!("../functions/record.sql")),
    ("collect", include_str!("../functions/collect.sql")),
    ("child", include_str!("../functions/child.sql")),
    ("node", include_str!("../functions/node.sql")),
    ("heartbeat", include_str!("../functions/heartbeat.sql")),
    ("lists", include_str!("../functions/lists.sql")),
    ("sample", include_str!("../functions/sample.sql")),
    ("release", include_str!("../functions/release.sql")),
    // Last, because it sets the rights on all other functions.
    ("rights", include_str!("../functions/rights.sql")),
];

/// How often a process tries to get the lock in order to restore its functions.
const RESTORE_EVERY: Duration = Duration::from_millis(100);

/// Serializes migrations across all processes of a database.
const LOCK: &str = "hashtextextended('forebay.migrate', 0)";

/// The result of a migration.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// The names of the migrations that were applied.
    pub applied: Vec<String>,
}

/// Why the database could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("PostgreSQL {found} is too old: Forebay needs 15 or later")]
    TooOld { found: String },
    #[error("another build migrated the database, and its {0} differs: use that build, or another database")]
    Diverged(String),
    #[error("the database is not migrated to this build, and database.migrate is false: run `forebay migrate` first")]
    Behind,
    #[error(
        "the table shedlock has a layout that Forebay cannot share; another program created it. Nothing was changed.\n\
         It has\n{found}\nand must be: name varchar(64) primary key, lock_until timestamp, locked_at timestamp, \
         locked_by varchar(255), all not null and nothing else"
    )]
    Shedlock { found: String },
    #[error(
        "the database was created by a build from before the first release, and its tables cannot be migrated. \
         Nothing was changed. Create another database and set database.url to it"
    )]
    BeforeRelease,
    #[error(
        "{found} in the schema public, made by another program or by another installation of Forebay: two cannot share \
         them. Nothing was changed. Create another database and set database.url to it"
    )]
    Taken { found: String },
    #[error(
        "the database uses claim protocol {theirs}, set by a newer release; this release uses protocol {ours} and \
         cannot claim. It does not start, and nothing was changed. Start the newer release instead"
    )]
    Protocol { ours: i32, theirs: i32 },
    #[error("migration {name} failed")]
    Failed {
        name: String,
        #[source]
        source: Error,
    },
}

/// Migrates the database at `target`. Functions that are up to date are not changed.
pub async fn migrate(target: &Target) -> Result<Report, MigrateError> {
    run(target, Functions::IfChanged).await
}

/// Migrates, and replaces every function even if it is up to date, in case somebody changed a function.
pub async fn migrate_again(target: &Target) -> Result<Report, MigrateError> {
    run(target, Functions::Always).await
}

/// When functions are replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Functions {
    IfChanged,
    Always,
}

async fn run(target: &Target, functions: Functions) -> Result<Report, MigrateError> {
    let session = Session::open(target).await?;
    check_version(&session.client).await?;
    session.lock(LOCK).await?;
    let done = apply(&session, functions).await;
    // The lock would be released when the session ends; unlocking now lets other processes continue sooner.
    drop(session.client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[]).await);
    done
}

async fn check_version(client: &Client) -> Result<(), MigrateError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int AS number, current_setting('server_version')",
            &[],
        )
        .await
        .map_err(Error::from)?;
    if row.get::<_, i32>(0) < 150_000 {
        return Err(MigrateError::TooOld { found: row.get(1) });
    }
    Ok(())
}

/// Was the database created by the migrations from before the first release? They are recognized by the name of their
/// history table. Another product may use that name, so the table's first row is checked too.
async fn is_before_release(client: &Client) -> Result<bool, MigrateError> {
    let there = "SELECT to_regclass('forebay.refinery_schema_history') IS NOT NULL, \
                        to_regclass('public.refinery_schema_history') IS NOT NULL";
    let row = client.query_one(there, &[]).await.map_err(Error::from)?;
    if row.get(0) || !row.get::<_, bool>(1) {
        return Ok(row.get(0));
    }
    let ours = "SELECT EXISTS (SELECT 1 FROM public.refinery_schema_history WHERE version = 1 AND name = 'spine')";
    Ok(client.query_one(ours, &[]).await.map_err(Error::from)?.get(0))
}

/// Can this build work with the database? For installations that migrate in a separate step.
pub async fn check(target: &Target) -> Result<(), MigrateError> {
    let client = target.connect().await?;
    check_version(&client).await?;
    let history = History::read(&client).await?;
    if history.is_empty() && is_before_release(&client).await? {
        return Err(MigrateError::BeforeRelease);
    }
    let in_place = InPlace::read(&client, &history).await?;
    if !is_of_newer_release(&history, &in_place) {
        refuse_diverged(&history)?;
    }
    match history.pending().is_empty() && !in_place.own.is_empty() {
        true => refuse_newer_protocol(&client).await,
        false => Err(MigrateError::Behind),
    }
}

/// Creates a schema unless it exists. The database's owner may have created it for a role that may not create schemas.
async fn make_schema(client: &Client, schema: &str) -> Result<bool, Error> {
    let there = "SELECT to_regnamespace($1) IS NOT NULL";
    if client.query_one(there, &[&schema]).await?.get::<_, bool>(0) {
        return Ok(false);
    }
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    Ok(true)
}

async fn apply(session: &Session, functions: Functions) -> Result<Report, MigrateError> {
    let client = &session.client;
    // Checked before any change, because the operator has to decide what to do about a table that cannot be shared.
    if let Some(found) = lease::layout_difference(client).await? {
        return Err(MigrateError::Shedlock { found });
    }
    let history = History::read(client).await?;
    if history.is_empty() {
        if is_before_release(client).await? {
            return Err(MigrateError::BeforeRelease);
        }
        refuse_to_share(client).await?;
    } else {
        refuse_newer_protocol(client).await?;
    }
    // Two releases run side by side during an upgrade.
    let in_place = InPlace::read(client, &history).await?;
    if is_of_newer_release(&history, &in_place) {
        tracing::info!("Database was migrated by a newer release; this release does not change it");
        make_release(session, &in_place, functions).await?;
        return Ok(Report { applied: Vec::new() });
    }
    refuse_diverged(&history)?;
    let applied = apply_migrations(session, &history).await?;
    let (shared, number) = (shared(), release::number());
    let digest = digest(&shared);
    if functions == Functions::Always || in_place.shared != digest {
        session.transaction("the shared functions", &shared, history.is_empty()).await?;
    }
    make_release(session, &in_place, functions).await?;
    if (in_place.newest, &in_place.shared) != (number, &digest) {
        client.execute(sql!("release/record_shared"), &[&number, &digest]).await.map_err(Error::from)?;
    }
    Ok(Report { applied })
}

fn is_of_newer_release(history: &History, in_place: &InPlace) -> bool {
    history.is_newer() || in_place.newest > release::number()
}

/// Refuses a database to which a migration with another text was applied.
fn refuse_diverged(history: &History) -> Result<(), MigrateError> {
    history.diverged().map_or(Ok(()), |migration| Err(MigrateError::Diverged(migration.to_string())))
}

/// Refuses a database in which other objects have the public names of our tables.
async fn refuse_to_share(client: &Client) -> Result<(), MigrateError> {
    let found: Option<String> =
        client.query_one(sql!("release/occupied_names"), &[]).await.map_err(Error::from)?.get(0);
    found.map_or(Ok(()), |found| Err(MigrateError::Taken { found }))
}

/// Refuses a database whose claim protocol this release does not know.
async fn refuse_newer_protocol(client: &Client) -> Result<(), MigrateError> {
    let theirs = client.query_one(sql!("release/protocol"), &[]).await.map_err(Error::from)?.get(0);
    match release::compare_protocols(release::protocol(), theirs) {
        Protocol::Behind { ours, theirs } => Err(MigrateError::Protocol { ours, theirs }),
        Protocol::Same | Protocol::Ahead { .. } => Ok(()),
    }
}

async fn apply_migrations(session: &Session, history: &History) -> Result<Vec<String>, MigrateError> {
    let made = format!(
        "CREATE TABLE IF NOT EXISTS {HISTORY} (version int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, \
         applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    );
    if history.is_empty() {
        make_schema(&session.client, SCHEMA).await?;
        session.client.batch_execute(&made).await.map_err(Error::from)?;
    }
    let mut applied = Vec::new();
    for migration in history.pending() {
        let name = migration.to_string();
        let done = async {
            match migration.kind() {
                Kind::Transaction => {
                    session.transaction(&name, &migration.transaction(), history.is_empty()).await?;
                }
                Kind::Online(statements) => {
                    for statement in statements {
                        session.online(&name, &statement).await?;
                    }
                    session.client.batch_execute(&migration.history_insert()).await?;
                }
            }
            Ok(())
        };
        done.await.map_err(|source| MigrateError::Failed { name: name.clone(), source })?;
        applied.push(name);
    }
    Ok(applied)
}

/// Which functions the database has.
#[derive(Default)]
struct InPlace {
    /// The newest release that has functions.
    newest: i32,
    /// The digests of the shared functions, and of this release's own functions.
    shared: String,
    own: String,
}

impl InPlace {
    async fn read(client: &Client, history: &History) -> Result<InPlace, Error> {
        if history.is_empty() {
            return Ok(InPlace::default());
        }
        let row =
            client.query_one(sql!("release/installed"), &[&release::number(), &release::text(release::SCHEMA)]).await?;
        Ok(InPlace { newest: row.try_get(0)?, shared: row.try_get(1)?, own: row.try_get(2)? })
    }
}

/// Restores the functions of this release, for a process that was silent until they were dropped as unused.
pub(crate) async fn restore_functions(client: &Client) -> Result<(), Error> {
    let ask = format!("SELECT pg_try_advisory_lock({LOCK})");
    while !client.query_one(&ask, &[]).await?.try_get::<_, bool>(0)? {
        tokio::time::sleep(RESTORE_EVERY).await;
    }
    let restored = async {
        make_schema(client, release::text(release::SCHEMA)).await?;
        client.batch_execute(&format!("BEGIN;\n{}COMMIT;", texts(&FUNCTIONS))).await?;
        note(client).await
    };
    let restored = restored.await;
    if restored.is_err() {
        // The failed transaction is still open.
        drop(client.batch_execute("ROLLBACK").await);
    }
    // If this fails, the lock is released when the session ends.
    drop(client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[]).await);
    restored
}

/// Creates the functions of this release, unless they are up to date.
async fn make_release(session: &Session, in_place: &InPlace, functions: Functions) -> Result<(), Error> {
    let own = texts(&FUNCTIONS);
    if functions == Functions::IfChanged && in_place.own == digest(&own) {
        return Ok(());
    }
    make_schema(&session.client, release::text(release::SCHEMA)).await?;
    session.transaction("the functions of this release", &own, false).await?;
    note(&session.client).await
}

async fn note(client: &Client) -> Result<(), Error> {
    client.execute(sql!("release/record"), &[&release::number(), &digest(&texts(&FUNCTIONS))]).await?;
    Ok(())
}

/// The text of these functions, one after the other.
fn texts(functions: &[(&str, &'static str)]) -> String {
    functions.iter().map(|(_, text)| format!("{}\n", release::text(text))).collect()
}

/// The text of the shared functions.
fn shared() -> String {
    #[cfg(feature = "test-release")]
    if release::is_next() {
        return texts(&SHARED) + include_str!("../tests/next/shared.sql");
    }
    texts(&SHARED)
}
