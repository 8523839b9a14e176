//! Brings the database up to this build: migrations once, functions every time.
//!
//! ```text
//! forebay      tables, trigger functions, functions that other programs call   replaced by the newest build only
//! forebay_rN   functions that only processes of release N call                 made by that release, for itself
//! ```
//!
//! Invariants
//! - One process migrates, the others wait for it: an advisory lock is held around everything.
//! - Two releases run side by side: each has functions of its own, and no table, trigger, view or default refers to
//!   them.
//! - The older of two builds leaves what it finds in `forebay`. What is there stays backward compatible: a function
//!   whose parameters change stands beside the one before.
//!
//! Not here: the schema itself (`migrations/`, `functions/`), which release this is (`release`).

use tokio_postgres::Client;

use crate::Error;
use crate::connect::Target;
use crate::process::lease;
use crate::release;
use crate::sql::sql;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The schema of what exists once: tables, trigger functions, and the functions that other programs call.
pub const SCHEMA: &str = "forebay";

/// Which migrations were applied.
const HISTORY: &str = "forebay.refinery_schema_history";

/// The functions of the schema, in the order in which they are applied.
pub const SHARED: [(&str, &str); 8] = [
    // First: the others use its names.
    ("names", include_str!("../functions/shared/names.sql")),
    ("backlog", include_str!("../functions/shared/backlog.sql")),
    ("unblock", include_str!("../functions/shared/unblock.sql")),
    ("enqueue", include_str!("../functions/shared/enqueue.sql")),
    ("limit", include_str!("../functions/shared/limit.sql")),
    ("event", include_str!("../functions/shared/event.sql")),
    ("job", include_str!("../functions/shared/job.sql")),
    ("triggers", include_str!("../functions/shared/triggers.sql")),
];

/// The functions of this release, in the order in which they are applied.
pub const FUNCTIONS: [(&str, &str); 20] = [
    ("rerun", include_str!("../functions/rerun.sql")),
    ("append", include_str!("../functions/append.sql")),
    ("work", include_str!("../functions/work.sql")),
    ("retire", include_str!("../functions/retire.sql")),
    ("webhook", include_str!("../functions/webhook.sql")),
    ("ask", include_str!("../functions/ask.sql")),
    ("candidate", include_str!("../functions/candidate.sql")),
    ("task", include_str!("../functions/task.sql")),
    ("claim", include_str!("../functions/claim.sql")),
    ("begin", include_str!("../functions/begin.sql")),
    ("complete", include_str!("../functions/complete.sql")),
    ("record", include_str!("../functions/record.sql")),
    ("gather", include_str!("../functions/gather.sql")),
    ("child", include_str!("../functions/child.sql")),
    ("node", include_str!("../functions/node.sql")),
    ("beat", include_str!("../functions/beat.sql")),
    ("lists", include_str!("../functions/lists.sql")),
    ("sample", include_str!("../functions/sample.sql")),
    ("release", include_str!("../functions/release.sql")),
    // Last: it speaks of all the others.
    ("rights", include_str!("../functions/rights.sql")),
];

/// Serialises migrations over all processes of one database.
const LOCK: &str = "hashtextextended('forebay.migrate', 0)";

/// What a migration did.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// The migrations that were new, by name.
    pub applied: Vec<String>,
}

/// Why the database could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error("PostgreSQL {found} is too old: Forebay needs 15 or later")]
    TooOld { found: String },
    #[error(
        "the database was migrated by another build, whose {0} differs from this one's: use the build that migrated it, or a database of this one's own"
    )]
    Diverged(String),
    #[error("the database is not migrated to this build, and database.migrate is false: run `forebay migrate` first")]
    Behind,
    #[error(
        "the table shedlock was made by another program with a layout that cannot be shared; it is left as it is.\n\
         It has\n{found}\nand must be: name varchar(64) primary key, lock_until timestamp, locked_at timestamp, \
         locked_by varchar(255), all not null and nothing else"
    )]
    Shedlock { found: String },
    #[error(
        "the database was made by a build from before the first release, whose tables cannot be carried over: \
         it is left as it is. Create another database, and name it in database.url"
    )]
    BeforeRelease,
    #[error("a migration failed")]
    Failed(#[source] Box<refinery::Error>),
}

/// Migrates the database at `target`.
pub async fn migrate(target: &Target) -> Result<Report, MigrateError> {
    let mut client = target.connect().await?;
    check_version(&client).await?;
    client.batch_execute("SET lock_timeout = 0; SET statement_timeout = 0").await.map_err(Error::from)?;
    client.execute(&format!("SELECT pg_advisory_lock({LOCK})"), &[]).await.map_err(Error::from)?;
    let done = apply(&mut client).await;
    // The lock goes with the session; unlocking early only lets the others go on sooner.
    drop(client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[]).await);
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

/// The newest migration that was applied; none if there was none at all.
async fn applied(client: &Client) -> Result<Option<i32>, MigrateError> {
    let known = "SELECT to_regclass($1) IS NOT NULL";
    if !client.query_one(known, &[&HISTORY]).await.map_err(Error::from)?.get::<_, bool>(0) {
        return Ok(None);
    }
    let newest = format!("SELECT max(version) FROM {HISTORY}");
    Ok(client.query_one(&newest, &[]).await.map_err(Error::from)?.get(0))
}

/// Was the database made by the migrations from before the first release? They are known by the name of their first.
async fn is_before_release(client: &Client) -> Result<bool, MigrateError> {
    let known = "SELECT to_regclass('public.refinery_schema_history') IS NOT NULL";
    if !client.query_one(known, &[]).await.map_err(Error::from)?.get::<_, bool>(0) {
        return Ok(false);
    }
    let ours = "SELECT EXISTS (SELECT 1 FROM public.refinery_schema_history WHERE version = 1 AND name = 'spine')";
    Ok(client.query_one(ours, &[]).await.map_err(Error::from)?.get(0))
}

fn runner() -> refinery::Runner {
    let mut runner = embedded::migrations::runner().set_abort_missing(false);
    runner.set_migration_table_name(HISTORY);
    runner
}

fn newest() -> Option<i32> {
    runner().get_migrations().iter().map(refinery::Migration::version).max()
}

/// Is the database one that this build can work with? For those who migrate apart from serving.
pub async fn check(target: &Target) -> Result<(), MigrateError> {
    let client = target.connect().await?;
    check_version(&client).await?;
    let applied = applied(&client).await?;
    match applied {
        None if is_before_release(&client).await? => Err(MigrateError::BeforeRelease),
        _ if applied < newest() => Err(MigrateError::Behind),
        _ => Ok(()),
    }
}

/// Makes a schema unless it is there: its owner may have made it, for a role that may not.
async fn make_schema(client: &Client, schema: &str) -> Result<bool, Error> {
    let there = "SELECT to_regnamespace($1) IS NOT NULL";
    if client.query_one(there, &[&schema]).await?.get::<_, bool>(0) {
        return Ok(false);
    }
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    Ok(true)
}

async fn apply(client: &mut Client) -> Result<Report, MigrateError> {
    // Before anything is changed: a table that cannot be shared is somebody's decision.
    if let Some(found) = lease::misfit(client).await? {
        return Err(MigrateError::Shedlock { found });
    }
    let applied = applied(client).await?;
    if applied.is_none() && is_before_release(client).await? {
        return Err(MigrateError::BeforeRelease);
    }
    // Two builds run side by side during an upgrade.
    if applied > newest() {
        tracing::info!("The database was migrated by a newer build; this one leaves it as it is");
        if make_schema(client, release::SCHEMA).await? {
            make_release(client).await?;
        }
        return Ok(Report { applied: Vec::new() });
    }
    make_schema(client, SCHEMA).await?;
    let report = runner().run_async(client).await.map_err(|error| match error.kind() {
        refinery::error::Kind::DivergentVersion(ours, _) => MigrateError::Diverged(ours.to_string()),
        _ => MigrateError::Failed(Box::new(error)),
    })?;
    replace(client, &SHARED).await?;
    make_schema(client, release::SCHEMA).await?;
    make_release(client).await?;
    let applied = report.applied_migrations().iter().map(ToString::to_string).collect();
    Ok(Report { applied })
}

/// Puts the functions of this release in place again, for a process whose release was taken for unused.
pub(crate) async fn restore(client: &Client) -> Result<(), Error> {
    client.execute(&format!("SELECT pg_advisory_lock({LOCK})"), &[]).await?;
    let restored = async {
        make_schema(client, release::SCHEMA).await?;
        make_release(client).await
    };
    let restored = restored.await;
    client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[]).await?;
    restored
}

async fn make_release(client: &Client) -> Result<(), Error> {
    replace(client, &FUNCTIONS).await?;
    client.execute(sql!("release/note"), &[&release::NUMBER]).await?;
    Ok(())
}

/// Puts functions in place, all or none.
async fn replace(client: &Client, functions: &[(&str, &str)]) -> Result<(), Error> {
    let functions: String = functions.iter().map(|(_, text)| format!("{text}\n")).collect();
    Ok(client.batch_execute(&format!("BEGIN;\n{functions}COMMIT;")).await?)
}
