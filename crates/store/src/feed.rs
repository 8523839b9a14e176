//! The change log: what is new in it, what a reader missed, and pruning.
//!
//! Invariants
//! - What is new, and below which place everything is finished, come of one statement.
//! - A log that was pruned or emptied beyond a reader's place is noticed, never taken for silence.
//!
//! Not here: the order in which changes are told (`kernel::change::cursor`), who writes them (triggers, `functions/`).

use std::time::Duration;

use kernel::change::cursor::Place;
use kernel::change::{Change, Op, Topic};
use kernel::ids::WorkspaceId;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// The channel on which a write may ring.
pub const BELL: &str = "forebay_change";

/// About the most bytes of rows that are read at once.
const BYTES: i64 = 4 * 1024 * 1024;

/// How the log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Every transaction below it has ended.
    pub horizon: u64,
    /// Of this transaction and older ones entries may be missing. None: a crash emptied the log.
    pub gone: Option<u64>,
}

/// What a drain found.
#[derive(Debug)]
pub struct Drained {
    pub extent: Extent,
    /// In order.
    pub changes: Vec<Change>,
    /// Was there no more?
    pub all: bool,
}

/// Some of what one who comes back missed.
#[derive(Debug)]
pub struct Page {
    pub changes: Vec<Change>,
    /// Where to go on; none: that was all.
    pub next: Option<Place>,
}

/// Which changes one who comes back asks for.
#[derive(Clone, Copy, Debug)]
pub struct Missed<'a> {
    pub after: Place,
    /// Its feed tells what lies at or above it.
    pub below: u64,
    /// None: all.
    pub workspace: Option<WorkspaceId>,
    pub topics: &'a [Topic],
    /// None: every row.
    pub id: Option<Uuid>,
}

impl Store {
    /// Says from when on the log is whole, if that is not known, and how it stands.
    pub async fn open_log(&self) -> Result<Extent, Error> {
        self.execute(sql!("change_log_kept/note"), &[]).await?;
        self.log_extent().await
    }

    pub async fn log_extent(&self) -> Result<Extent, Error> {
        extent(&self.one(sql!("change_log_kept/get"), &[]).await?)
    }

    /// What is at or above `low`, less the entries that were drained before; at most so many entries, and about so many
    /// bytes as a page.
    pub async fn drain(&self, low: u64, drained: &[i64], most: usize) -> Result<Drained, Error> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.query(sql!("change_log/drain"), &[&low.to_string(), &drained, &limit, &BYTES]).await?;
        let first = rows.first().ok_or_else(|| Error::Corrupt("a drain answers at least one row".to_owned()))?;
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

    /// A page of what one who comes back missed, in order; at most so many entries are looked at for it.
    pub async fn missed(&self, missed: &Missed<'_>, most: i64) -> Result<Page, Error> {
        let Missed { after, below, workspace, topics, id } = missed;
        let topics: Vec<&str> = topics.iter().map(|topic| topic.name()).collect();
        let (xid, below, workspace) = (after.xid.to_string(), below.to_string(), workspace.map(|id| id.0));
        let rows = self
            .query(
                sql!("change_log/after"),
                &[&xid, &after.seq, &below, &workspace, &topics, id, &most, &after.entry(), &BYTES],
            )
            .await?;
        let first = rows.first().ok_or_else(|| Error::Corrupt("a page answers at least one row".to_owned()))?;
        let mut changes = Vec::new();
        for row in &rows {
            if row.try_get::<_, Option<i64>>("seq")?.is_some() {
                changes.push(change(row)?);
            }
        }
        let next = match (first.try_get::<_, bool>("cut")?, first.try_get::<_, Option<&str>>("last_xid")?) {
            (true, Some(xid)) => Some(Place { xid: number(xid)?, seq: first.try_get("last_seq")? }.end_of_entry()),
            _ => None,
        };
        Ok(Page { changes, next })
    }

    /// Forgets finished entries older than this, at most `most`; answers how many.
    pub async fn prune_log(&self, age: Duration, most: i64) -> Result<i64, Error> {
        Ok(self.one(sql!("change_log/prune"), &[&age.as_secs_f64(), &most]).await?.try_get(0)?)
    }
}

fn extent(row: &Row) -> Result<Extent, Error> {
    let gone = row.try_get::<_, Option<&str>>("gone")?.map(number).transpose()?;
    Ok(Extent { horizon: number(row.try_get("horizon")?)?, gone })
}

fn number(xid: &str) -> Result<u64, Error> {
    xid.parse().map_err(|_| Error::Corrupt(format!("a transaction id is {xid:?}")))
}

fn change(row: &Row) -> Result<Change, Error> {
    Ok(Change {
        place: Place { xid: number(row.try_get("xid")?)?, seq: row.try_get("seq")? },
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
