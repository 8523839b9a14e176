//! Brings the database up to this build: migrations once, functions when they changed.
//!
//! ```text
//! forebay      tables, trigger functions, functions that other programs call   replaced by the newest release only
//! forebay_rN   functions that only processes of release N call                 made by that release, for itself
//! ```
//!
//! Invariants
//! - One process migrates, the others wait for it: an advisory lock is held around everything.
//! - Nobody else waits: no statement waits for a lock for more than 100 ms, and none is held between two attempts
//!   (`patience`). A start of a build whose functions are in place changes nothing at all.
//! - Two releases run side by side: each has functions of its own, and no table, trigger, view or default refers to
//!   them.
//! - The older of two releases leaves what it finds in `forebay`. What is there stays backward compatible: a function
//!   whose parameters change stands beside the one before.
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

/// The schema of what exists once: tables, trigger functions, and the functions that other programs call.
pub const SCHEMA: &str = "forebay";

/// The functions of the schema, in the order in which they are applied.
pub const SHARED: [(&str, &str); 9] = [
    // First: the others use its names.
    ("names", include_str!("../functions/shared/names.sql")),
    ("backlog", include_str!("../functions/shared/backlog.sql")),
    ("unblock", include_str!("../functions/shared/unblock.sql")),
    ("enqueue", include_str!("../functions/shared/enqueue.sql")),
    ("limit", include_str!("../functions/shared/limit.sql")),
    ("event", include_str!("../functions/shared/event.sql")),
    ("job", include_str!("../functions/shared/job.sql")),
    ("triggers", include_str!("../functions/shared/triggers.sql")),
    // Last, and with the others in one commit: nobody may call them in between who may not afterwards.
    ("rights", include_str!("../functions/shared/rights.sql")),
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

/// How often a process that restores its functions asks for the lock.
const RESTORE_EVERY: Duration = Duration::from_millis(100);

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
        "the database was migrated by another build, whose {0} differs from this one's: use the build that migrated \
         it, or a database of this one's own"
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
    #[error(
        "{found} in the schema public, made by another program or by another installation of Forebay: two cannot share \
         them. Everything is left as it is. Create another database, and name it in database.url"
    )]
    Taken { found: String },
    #[error(
        "a newer release has raised the database's protocol to {theirs}, and this one claims by protocol {ours}: its \
         claims would be refused, so it does not start. Everything is left as it is. Start the newer release instead"
    )]
    Protocol { ours: i32, theirs: i32 },
    #[error("the migration {name} failed")]
    Failed {
        name: String,
        #[source]
        source: Error,
    },
}

/// Migrates the database at `target`. Functions that are in place already are not touched.
pub async fn migrate(target: &Target) -> Result<Report, MigrateError> {
    run(target, Functions::IfChanged).await
}

/// The same, and puts every function in place again, whatever somebody did to them.
pub async fn migrate_again(target: &Target) -> Result<Report, MigrateError> {
    run(target, Functions::Always).await
}

/// When functions are put in place.
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
    // The lock goes with the session; unlocking early only lets the others go on sooner.
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

/// Was the database made by the migrations from before the first release? They are known by the name of their history,
/// and of its first line where a product may have one too.
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

/// Is the database one that this build can work with? For those who migrate apart from serving.
pub async fn check(target: &Target) -> Result<(), MigrateError> {
    let client = target.connect().await?;
    check_version(&client).await?;
    let history = History::read(&client).await?;
    match history.pending().is_empty() {
        _ if history.is_empty() && is_before_release(&client).await? => Err(MigrateError::BeforeRelease),
        true if InPlace::read(&client, &history).await?.own.is_empty() => Err(MigrateError::Behind),
        true => refuse_newer_protocol(&client).await,
        false => Err(MigrateError::Behind),
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

async fn apply(session: &Session, functions: Functions) -> Result<Report, MigrateError> {
    let client = &session.client;
    // Before anything is changed: a table that cannot be shared is somebody's decision.
    if let Some(found) = lease::misfit(client).await? {
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
    if history.is_newer() || in_place.newest > release::number() {
        tracing::info!("The database was migrated by a newer release; this one leaves it as it is");
        make_release(session, &in_place, functions).await?;
        return Ok(Report { applied: Vec::new() });
    }
    if let Some(migration) = history.diverged() {
        return Err(MigrateError::Diverged(migration.to_string()));
    }
    let applied = apply_migrations(session, &history).await?;
    let (shared, number) = (shared(), release::number());
    let digest = digest(&shared);
    if functions == Functions::Always || in_place.shared != digest {
        session.transaction("the shared functions", &shared, history.is_empty()).await?;
    }
    make_release(session, &in_place, functions).await?;
    if (in_place.newest, &in_place.shared) != (number, &digest) {
        client.execute(sql!("release/note_shared"), &[&number, &digest]).await.map_err(Error::from)?;
    }
    Ok(Report { applied })
}

/// Refuses a database in which something else has the names that other programs know ours by.
async fn refuse_to_share(client: &Client) -> Result<(), MigrateError> {
    let found: Option<String> = client.query_one(sql!("release/taken_names"), &[]).await.map_err(Error::from)?.get(0);
    found.map_or(Ok(()), |found| Err(MigrateError::Taken { found }))
}

/// Refuses a database whose claims go by rules that this release does not know.
async fn refuse_newer_protocol(client: &Client) -> Result<(), MigrateError> {
    let theirs = client.query_one(sql!("release/protocol"), &[]).await.map_err(Error::from)?.get(0);
    match release::compared(release::protocol(), theirs) {
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
                    session.client.batch_execute(&migration.noted()).await?;
                }
            }
            Ok(())
        };
        done.await.map_err(|source| MigrateError::Failed { name: name.clone(), source })?;
        applied.push(name);
    }
    Ok(applied)
}

/// Which functions are in place.
#[derive(Default)]
struct InPlace {
    /// The newest release that has any.
    newest: i32,
    /// The digest of the functions that exist once, and of this release's own.
    shared: String,
    own: String,
}

impl InPlace {
    async fn read(client: &Client, history: &History) -> Result<InPlace, Error> {
        if history.is_empty() {
            return Ok(InPlace::default());
        }
        let row =
            client.query_one(sql!("release/in_place"), &[&release::number(), &release::text(release::SCHEMA)]).await?;
        Ok(InPlace { newest: row.try_get(0)?, shared: row.try_get(1)?, own: row.try_get(2)? })
    }
}

/// Puts the functions of this release in place again, for a process whose release was taken for unused.
pub(crate) async fn restore(client: &Client) -> Result<(), Error> {
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
        // The transaction that failed is still open.
        drop(client.batch_execute("ROLLBACK").await);
    }
    // The lock goes with the session, should this fail.
    drop(client.execute(&format!("SELECT pg_advisory_unlock({LOCK})"), &[]).await);
    restored
}

/// Puts the functions of this release in place, unless they are.
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
    client.execute(sql!("release/note"), &[&release::number(), &digest(&texts(&FUNCTIONS))]).await?;
    Ok(())
}

/// The texts of functions, one after the other.
fn texts(functions: &[(&str, &'static str)]) -> String {
    functions.iter().map(|(_, text)| format!("{}\n", release::text(text))).collect()
}

/// The functions that exist once.
fn shared() -> String {
    #[cfg(feature = "test-release")]
    if release::is_next() {
        return texts(&SHARED) + include_str!("../tests/next/shared.sql");
    }
    texts(&SHARED)
}
