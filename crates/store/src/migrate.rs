//! Brings the database up to this build: migrations once, functions every time.
//!
//! Invariants
//! - One process migrates, the others wait for it: an advisory lock is held around everything.
//! - Migrations only grow; functions are re-applied, and one whose signature changes gets a new
//!   name, so that two builds can run side by side. The older of two leaves what it finds.
//!
//! Not here: the schema itself (`migrations/`, `functions/`).

use tokio_postgres::Client;

use crate::Error;
use crate::connect::Target;
use crate::process::lease;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The functions, in the order in which they are applied.
pub const FUNCTIONS: [(&str, &str); 23] = [
    ("backlog", include_str!("../functions/backlog.sql")),
    ("open", include_str!("../functions/open.sql")),
    ("enqueue", include_str!("../functions/enqueue.sql")),
    ("rerun", include_str!("../functions/rerun.sql")),
    ("event", include_str!("../functions/event.sql")),
    ("job", include_str!("../functions/job.sql")),
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
    // Last: it speaks of all the others.
    ("rights", include_str!("../functions/rights.sql")),
];

/// The path of functions that run with their owner's rights (`SET search_path FROM CURRENT`). Tables of a session come last: nobody puts one
/// before ours.
const PATH: &str = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);";

/// Serialises migrations over all processes of one database.
const LOCK: i64 = 0x0f0e_ba40;

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
    #[error("a migration failed")]
    Failed(#[source] Box<refinery::Error>),
}

/// Migrates the database at `target`.
pub async fn migrate(target: &Target) -> Result<Report, MigrateError> {
    let mut client = target.connect().await?;
    check_version(&client).await?;
    client.batch_execute("SET lock_timeout = 0; SET statement_timeout = 0").await.map_err(Error::from)?;
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(Error::from)?;
    let done = apply(&mut client).await;
    // The lock goes with the session; unlocking early only lets the others go on sooner.
    drop(client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await);
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

/// Has a newer build been here? Two builds run side by side during an upgrade.
async fn is_newer(client: &Client, newest: Option<i32>) -> Result<bool, MigrateError> {
    let known = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
    if !client.query_one(known, &[]).await.map_err(Error::from)?.get::<_, bool>(0) {
        return Ok(false);
    }
    let newer = "SELECT EXISTS (SELECT 1 FROM refinery_schema_history WHERE version > $1)";
    Ok(client.query_one(newer, &[&newest]).await.map_err(Error::from)?.get(0))
}

/// Is the database one that this build can work with? For those who migrate apart from serving.
pub async fn check(target: &Target) -> Result<(), MigrateError> {
    let client = target.connect().await?;
    check_version(&client).await?;
    let newest = embedded::migrations::runner().get_migrations().iter().map(refinery::Migration::version).max();
    let known = "SELECT to_regclass('refinery_schema_history') IS NOT NULL";
    let migrated = client.query_one(known, &[]).await.map_err(Error::from)?.get::<_, bool>(0);
    let at = "SELECT max(version) FROM refinery_schema_history";
    let version: Option<i32> = match migrated {
        true => client.query_one(at, &[]).await.map_err(Error::from)?.get(0),
        false => None,
    };
    if version < newest { Err(MigrateError::Behind) } else { Ok(()) }
}

async fn apply(client: &mut Client) -> Result<Report, MigrateError> {
    // Before anything is changed: a table that cannot be shared is somebody's decision.
    if let Some(found) = lease::misfit(client).await? {
        return Err(MigrateError::Shedlock { found });
    }
    let runner = embedded::migrations::runner().set_abort_missing(false);
    let newest = runner.get_migrations().iter().map(refinery::Migration::version).max();
    if is_newer(client, newest).await? {
        tracing::info!("The database was migrated by a newer build; this one leaves it as it is");
        return Ok(Report { applied: Vec::new() });
    }
    let report = runner.run_async(client).await.map_err(|error| match error.kind() {
        refinery::error::Kind::DivergentVersion(ours, _) => MigrateError::Diverged(ours.to_string()),
        _ => MigrateError::Failed(Box::new(error)),
    })?;
    let functions: String = FUNCTIONS.iter().map(|(_, text)| format!("{text}\n")).collect();
    client.batch_execute(&format!("BEGIN;\n{PATH}\n{functions}COMMIT;")).await.map_err(Error::from)?;
    let applied = report.applied_migrations().iter().map(ToString::to_string).collect();
    Ok(Report { applied })
}
