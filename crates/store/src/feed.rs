//! Reads and prunes the change log: new entries, and entries that a reconnecting reader missed.
//!
//! Invariants
//! - One statement returns the new entries and the horizon; every transaction below the horizon has ended.
//! - The database stores up to which transaction the log was pruned, so that a reader never mistakes a gap for "no
//!   changes".
//!
//! Not here: the order in which changes are delivered (`kernel::change::cursor`), who writes them (triggers,
//! `functions/`).

use std::time::Duration;

use kernel::change::cursor::Position;
use kernel::change::{Change, Op, Topic};
use kernel::ids::WorkspaceId;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// The channel on which a write may notify readers.
pub const CHANGE_CHANNEL: &str = "forebay_change";

/// About the maximum number of bytes of rows read at once.
const BYTES: i64 = 4 * 1024 * 1024;

/// Which part of the log is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// Every transaction below it has ended.
    pub horizon: u64,
    /// Entries of this transaction and older ones may be missing. None: a crash emptied the log.
    pub pruned: Option<u64>,
}

/// The result of a drain.
#[derive(Debug)]
pub struct Drained {
    pub extent: LogExtent,
    /// In commit-safe order.
    pub changes: Vec<Change>,
    /// There were no more entries.
    pub all: bool,
}

/// A page of the changes that a reconnecting reader missed.
#[derive(Debug)]
pub struct MissedPage {
    pub changes: Vec<Change>,
    /// Where the next page starts; None: there are no more entries.
    pub next: Option<Position>,
}

/// Which changes a reconnecting reader asks for.
#[derive(Clone, Copy, Debug)]
pub struct MissedQuery<'a> {
    pub after: Position,
    /// The reader's live feed delivers changes of this transaction and later ones.
    pub below: u64,
    /// None: all.
    pub workspace: Option<WorkspaceId>,
    pub topics: &'a [Topic],
    /// None: every row.
    pub id: Option<Uuid>,
}

impl Store {
    /// Records from which transaction on the log is complete, if that is unknown. Returns the log's extent.
    pub async fn open_log(&self) -> Result<LogExtent, Error> {
        self.execute(sql!("change_log_pruned/init"), &[]).await?;
        self.log_extent().await
    }

    pub async fn log_extent(&self) -> Result<LogExtent, Error> {
        extent(&self.one(sql!("change_log_pruned/get"), &[]).await?)
    }

    /// Entries of transaction `low` and later ones, without the entries in `drained`: at most `most` entries and about
    /// `BYTES` bytes.
    pub async fn drain_log(&self, low: u64, drained: &[i64], most: usize) -> Result<Drained, Error> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.query(sql!("change_log/drain"), &[&low.to_string(), &drained, &limit, &BYTES]).await?;
        let first = rows.first().ok_or_else(|| Error::Corrupt("a drain returned no row".to_owned()))?;
        let extent = extent(first)?;
        let mut changes = Vec::new();
        for row in &rows {
            if row.try_get::<_, Option<i64>>("seq")?.is_some() {
                changes.push(change(row)?);
            }
        }
        let all = !first.try_get::<_, bool>("cut")?;
        Ok(Drained { extent, changes, all })
    }

    /// A page of changes that a reconnecting reader missed, in order. Reads at most `most` entries.
    pub async fn missed_changes(&self, missed: &MissedQuery<'_>, most: i64) -> Result<MissedPage, Error> {
        let MissedQuery { after, below, workspace, topics, id } = missed;
        let topics: Vec<&str> = topics.iter().map(|topic| topic.name()).collect();
        let (xid, below, workspace) = (after.xid.to_string(), below.to_string(), workspace.map(|id| id.0));
        let rows = self
            .query(
                sql!("change_log/missed"),
                &[&xid, &after.seq, &below, &workspace, &topics, id, &most, &after.entry(), &BYTES],
            )
            .await?;
        let first = rows.first().ok_or_else(|| Error::Corrupt("a page returned no row".to_owned()))?;
        let mut changes = Vec::new();
        for row in &rows {
            if row.try_get::<_, Option<i64>>("seq")?.is_some() {
                changes.push(change(row)?);
            }
        }
        let next = match (first.try_get::<_, bool>("cut")?, first.try_get::<_, Option<&str>>("last_xid")?) {
            (true, Some(xid)) => Some(Position { xid: number(xid)?, seq: first.try_get("last_seq")? }.end_of_entry()),
            _ => None,
        };
        Ok(MissedPage { changes, next })
    }

    /// Deletes entries of ended transactions that are older than `age`, at most `most`. Returns how many.
    pub async fn prune_log(&self, age: Duration, most: i64) -> Result<i64, Error> {
        Ok(self.one(sql!("change_log/prune"), &[&age.as_secs_f64(), &most]).await?.try_get(0)?)
    }
}

fn extent(row: &Row) -> Result<LogExtent, Error> {
    let pruned = row.try_get::<_, Option<&str>>("pruned_xid")?.map(number).transpose()?;
    Ok(LogExtent { horizon: number(row.try_get("horizon")?)?, pruned })
}

fn number(xid: &str) -> Result<u64, Error> {
    xid.parse().map_err(|_| Error::Corrupt(format!("a transaction id is {xid:?}")))
}

fn change(row: &Row) -> Result<Change, Error> {
    Ok(Change {
        position: Position { xid: number(row.try_get("xid")?)?, seq: row.try_get("seq")? },
        at: row.try_get("at")?,
        topic: parsed(row, "topic", Topic::parse)?,
        op: parsed(row, "op", Op::parse)?,
        id: row.try_get("ref")?,
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        status: row.try_get("status")?,
        record: row.try_get("record")?,
        old: row.try_get("old_record")?,
    })
}
