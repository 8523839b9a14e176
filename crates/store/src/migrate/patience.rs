//! Runs statements that lock tables in use, without blocking other sessions for long.
//!
//!     attempt ──got the lock within 100 ms──▶ done
//!        ▲  └──did not──▶ logs who holds it, waits without a lock until that transaction ends ──┐
//!        └──────────────────────────────────────────────────────────────────────────────────────┘
//!
//! A session that waits for a lock blocks every session that asks for the lock later. If a `pg_dump` held a table for
//! an hour, the service would stop for an hour. So an attempt to lock waits for at most 100 ms. The next one starts
//! when the blocking transaction has ended, or after a minute.
//!
//! Invariants
//! - Between two attempts no lock and no snapshot is held.
//! - A migration retries without limit. It logs which sessions block it: immediately, and then every ten seconds.
//! - If an interrupted CREATE INDEX CONCURRENTLY left an invalid index, that index is dropped before it is built again.
//!
//! Not here: what is run (`step`), in which order (`migrate`).

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use super::step;
use crate::Error;
use crate::connect::Target;
use crate::sql::sql;

/// Timeouts of a session that migrates: 100 ms for a lock, none for statements.
const SESSION: &str = "SET lock_timeout = '100ms'; SET statement_timeout = 0";
/// How long one statement of a transaction may run, while the transaction holds its locks.
const HOLDS_AT_MOST: &str = "SET LOCAL statement_timeout = '1s'";

/// How long after its start, and then how often, an attempt is checked for sessions that block it.
const LOOK_EVERY: Duration = Duration::from_millis(30);
/// The shortest and the longest pause between attempts. With the longest pause, the migration waits for locks 1% of the
/// time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long to wait for a blocking transaction to end before the next attempt.
const GIVES_WAY_FOR: Duration = Duration::from_secs(60);
/// How often to check whether the blocking transaction has ended.
const OVER_EVERY: Duration = Duration::from_millis(200);
/// How often to log which sessions block the migration.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// How often to try for the lock of `migrate`.
const LOCK_EVERY: Duration = Duration::from_millis(100);

/// A session that migrates, and a second session that watches which other sessions block the first.
pub(super) struct Session {
    pub(super) client: Client,
    watcher: Client,
    pid: i32,
}

/// A transaction that blocks the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blocker {
    /// Identifies the transaction while it lasts.
    transaction: String,
    /// A description for people.
    description: String,
}

/// How an attempt ended.
enum Attempt {
    Done,
    InTheWay(Vec<Blocker>),
}

/// One wait for other sessions: what waits, since when, and when it was last logged.
struct Waiting<'a> {
    what: &'a str,
    since: Instant,
    said_at: Option<Instant>,
    pause: Duration,
}

impl Session {
    pub(super) async fn open(target: &Target) -> Result<Session, Error> {
        let (client, watcher) = (target.connect().await?, target.connect().await?);
        client.batch_execute(SESSION).await?;
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        Ok(Session { client, watcher, pid })
    }

    /// Waits for the migration lock by polling. A session that blocks on an advisory lock holds a snapshot all the
    /// time, and a concurrent index build in another session would wait for that snapshot.
    pub(super) async fn lock(&self, lock: &str) -> Result<(), Error> {
        let mut waiting = Waiting::new("the migration lock");
        let ask = format!("SELECT pg_try_advisory_lock({lock})");
        while !self.client.query_one(&ask, &[]).await?.try_get::<_, bool>(0)? {
            if waiting.is_due() {
                let holders = self.watcher.query(sql!("pg_locks/migrating"), &[]).await?;
                waiting.say(&holders.iter().map(Blocker::read).collect::<Result<Vec<_>, _>>()?);
            }
            tokio::time::sleep(LOCK_EVERY).await;
        }
        Ok(())
    }

    /// Runs statements in one transaction. No process uses a `fresh` database yet, so there are no timeouts.
    pub(super) async fn transaction(&self, what: &str, text: &str, fresh: bool) -> Result<(), Error> {
        let bound = if fresh { "" } else { HOLDS_AT_MOST };
        self.patiently(what, &format!("BEGIN; {bound};\n{text}\nCOMMIT;")).await
    }

    /// Runs one statement outside a transaction.
    pub(super) async fn online(&self, what: &str, statement: &str) -> Result<(), Error> {
        let Some(index) = step::index_of(statement) else { return self.patiently(what, statement).await };
        let mut waiting = Waiting::new(what);
        loop {
            // A concurrent index build cannot finish before every older snapshot ends. So it does not start while there
            // is one.
            while let old @ [_, ..] = self.old_snapshots().await?.as_slice() {
                self.give_way(&mut waiting, old).await?;
            }
            self.drop_invalid(what, &index).await?;
            match self.attempt(statement).await? {
                Attempt::Done => return Ok(()),
                Attempt::InTheWay(blockers) => self.give_way(&mut waiting, &blockers).await?,
            }
        }
    }

    async fn drop_invalid(&self, what: &str, index: &str) -> Result<(), Error> {
        let invalid = "SELECT EXISTS (SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid)";
        if self.client.query_one(invalid, &[&index]).await?.try_get(0)? {
            tracing::info!(index, "Dropping an index whose build was interrupted; it is built again");
            self.patiently(what, &format!("DROP INDEX CONCURRENTLY IF EXISTS {index}")).await?;
        }
        Ok(())
    }

    async fn patiently(&self, what: &str, text: &str) -> Result<(), Error> {
        let mut waiting = Waiting::new(what);
        loop {
            match self.attempt(text).await? {
                Attempt::Done => return Ok(()),
                Attempt::InTheWay(blockers) => self.give_way(&mut waiting, &blockers).await?,
            }
        }
    }

    /// Makes one attempt, and watches it: only while it waits can the blocking sessions be seen.
    async fn attempt(&self, text: &str) -> Result<Attempt, Error> {
        let mut blockers = Vec::new();
        let watch = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Ok(found @ [_, ..]) = self.blockers().await.as_deref() {
                    blockers = found.to_vec();
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = self.client.batch_execute(text) => ended,
            () = watch => Ok(()),
        };
        let Err(error) = ended else { return Ok(Attempt::Done) };
        // If no transaction is open, ROLLBACK only warns.
        self.client.batch_execute("ROLLBACK").await?;
        let again = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];
        match error.code() {
            // No session blocked the attempt. It was stopped because it would have blocked other sessions for too long.
            Some(&SqlState::QUERY_CANCELED) => Ok(Attempt::InTheWay(vec![Blocker::itself()])),
            Some(code) if again.contains(code) => Ok(Attempt::InTheWay(blockers)),
            _ => Err(error.into()),
        }
    }

    /// Waits, without a lock or a snapshot, until the blocking transactions end.
    async fn give_way(&self, waiting: &mut Waiting<'_>, blockers: &[Blocker]) -> Result<(), Error> {
        waiting.say(blockers);
        let (began, pause) = (Instant::now(), waiting.next_pause());
        let transactions: Vec<&str> = blockers.iter().map(|blocker| blocker.transaction.as_str()).collect();
        loop {
            tokio::time::sleep(OVER_EVERY.min(pause)).await;
            waiting.say(blockers);
            let open = self.watcher.query_one(sql!("pg_locks/open"), &[&transactions]).await?.try_get::<_, bool>(0)?;
            if began.elapsed() >= if open { GIVES_WAY_FOR } else { pause } {
                return Ok(());
            }
        }
    }

    async fn blockers(&self) -> Result<Vec<Blocker>, Error> {
        let rows = self.watcher.query(sql!("pg_locks/blocking"), &[&self.pid]).await?;
        rows.iter().map(Blocker::read).collect()
    }

    async fn old_snapshots(&self) -> Result<Vec<Blocker>, Error> {
        let rows = self.watcher.query(sql!("pg_locks/old_snapshots"), &[&self.pid]).await?;
        rows.iter().map(Blocker::read).collect()
    }
}

impl Blocker {
    /// Stands for an attempt that reached its own timeout, or that an operator canceled.
    fn itself() -> Blocker {
        Blocker {
            transaction: String::new(),
            description:
                "no other session: the attempt was canceled, or ran for more than a second while it held locks"
                    .to_owned(),
        }
    }

    fn read(row: &Row) -> Result<Blocker, Error> {
        let (pid, name, state): (i32, String, String) =
            (row.try_get("pid")?, row.try_get("application_name")?, row.try_get("state")?);
        let open = match row.try_get::<_, Option<f64>>("open_s")? {
            Some(seconds) => format!(", in a transaction for {seconds:.0} s"),
            None => String::new(),
        };
        let query = match row.try_get::<_, Option<String>>("query_start")? {
            Some(at) => format!(", its query since {at}"),
            None => String::new(),
        };
        let name = if name.is_empty() { "an unnamed session" } else { &name };
        Ok(Blocker {
            transaction: row.try_get("transaction")?,
            description: format!("{name} (pid {pid}, {state}{open}{query})"),
        })
    }
}

impl<'a> Waiting<'a> {
    fn new(what: &'a str) -> Waiting<'a> {
        Waiting { what, since: Instant::now(), said_at: None, pause: FIRST_PAUSE }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    fn is_due(&self) -> bool {
        self.said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY)
    }

    fn say(&mut self, blockers: &[Blocker]) {
        if !self.is_due() {
            return;
        }
        self.said_at = Some(Instant::now());
        let descriptions: Vec<&str> = blockers.iter().map(|blocker| blocker.description.as_str()).collect();
        let waits_for = if descriptions.is_empty() { "unknown".to_owned() } else { descriptions.join("; ") };
        let (step, waited_s) = (self.what, self.since.elapsed().as_secs());
        tracing::warn!(
            step,
            waited_s,
            waits_for,
            "Migration is waiting for other sessions; it blocks nobody meanwhile"
        );
    }
}
