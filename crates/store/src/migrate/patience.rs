//! Runs statements that lock tables in use, without keeping anybody waiting for long.
//!
//!     attempt ──the lock is free within 100 ms──▶ done
//!        ▲  └──it is not──▶ says who holds it, waits without a lock until that transaction is over ──┐
//!        └───────────────────────────────────────────────────────────────────────────────────────────┘
//!
//! Whoever waits for a lock keeps everybody waiting who comes after: a `pg_dump` that holds a table for an hour would
//! stop the service for an hour. So nobody waits here for more than 100 ms, and while the transaction that was in the
//! way is open there is no second attempt.
//!
//! Invariants
//! - Between two attempts no lock and no snapshot is held.
//! - It is tried for as long as it takes, and said who is in the way: at first, and every ten seconds.
//! - An index that a cut CREATE INDEX CONCURRENTLY left invalid is dropped before it is built again.
//!
//! Not here: what is run (`step`), in which order (`migrate`).

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use super::step;
use crate::Error;
use crate::connect::Target;
use crate::sql::sql;

/// How a session that migrates waits: 100 ms for a lock, and for nothing else.
const SESSION: &str = "SET lock_timeout = '100ms'; SET statement_timeout = 0";
/// How long a statement of a transaction may hold what the transaction has locked.
const HOLDS_AT_MOST: &str = "SET LOCAL statement_timeout = '1s'";

/// When it is first looked who is in the way, and then how often.
const LOOK_EVERY: Duration = Duration::from_millis(30);
/// The shortest and the longest time between two attempts: at its longest, a hundredth of the time is spent waiting.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// For how long a transaction that was in the way keeps the next attempt from being made.
const GIVES_WAY_FOR: Duration = Duration::from_secs(60);
/// How often it is looked whether that transaction is over.
const OVER_EVERY: Duration = Duration::from_millis(200);
/// How often it is said who is in the way.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// How often the lock of `migrate` is asked for.
const LOCK_EVERY: Duration = Duration::from_millis(100);

/// A session that migrates, and one that watches it.
pub(super) struct Session {
    pub(super) client: Client,
    watcher: Client,
    pid: i32,
}

/// A transaction that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blocker {
    /// Known as long as it lasts.
    transaction: String,
    /// Who it is, for people.
    told: String,
}

/// How an attempt ended.
enum Attempt {
    Done,
    InTheWay(Vec<Blocker>),
}

/// One wait: since when, and when it was last said.
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

    /// Waits for its turn to migrate. Asked for again and again: a session that waits for an advisory lock holds a
    /// snapshot all the while, which an index that another session builds would wait for.
    pub(super) async fn lock(&self, lock: &str) -> Result<(), Error> {
        let mut waiting = Waiting::new("the lock of those who migrate");
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

    /// Runs statements in one transaction. Nobody has used a `fresh` database, so there nobody is kept waiting.
    pub(super) async fn transaction(&self, what: &str, text: &str, fresh: bool) -> Result<(), Error> {
        let bound = if fresh { "" } else { HOLDS_AT_MOST };
        self.patiently(what, &format!("BEGIN; {bound};\n{text}\nCOMMIT;")).await
    }

    /// Runs one statement outside of transactions.
    pub(super) async fn online(&self, what: &str, statement: &str) -> Result<(), Error> {
        let Some(index) = step::index_of(statement) else { return self.patiently(what, statement).await };
        let mut waiting = Waiting::new(what);
        loop {
            // The end of a concurrent build waits for every snapshot that is older. It is not begun in vain.
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
            tracing::info!(index, "Dropping an index whose build was cut off, to build it again");
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

    /// One attempt, watched: who was in the way is known only while it waits.
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
        // Does nothing outside of a transaction but warn.
        self.client.batch_execute("ROLLBACK").await?;
        let again = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];
        match error.code() {
            // Nobody kept it waiting: it would have kept others waiting.
            Some(&SqlState::QUERY_CANCELED) => Ok(Attempt::InTheWay(vec![Blocker::itself()])),
            Some(code) if again.contains(code) => Ok(Attempt::InTheWay(blockers)),
            _ => Err(error.into()),
        }
    }

    /// Waits, without a lock or a snapshot, until those in the way are over.
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
    /// What cut itself off, or was canceled by an operator.
    fn itself() -> Blocker {
        Blocker {
            transaction: String::new(),
            told: "nobody: it was canceled, or held its locks for more than a second".to_owned(),
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
        let name = if name.is_empty() { "a session without a name" } else { &name };
        Ok(Blocker {
            transaction: row.try_get("transaction")?,
            told: format!("{name} (pid {pid}, {state}{open}{query})"),
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
        let told: Vec<&str> = blockers.iter().map(|blocker| blocker.told.as_str()).collect();
        let in_the_way = if told.is_empty() { "unknown".to_owned() } else { told.join("; ") };
        let (step, waited_s) = (self.what, self.since.elapsed().as_secs());
        tracing::warn!(step, waited_s, in_the_way, "The migration waits, and keeps nobody else waiting");
    }
}
