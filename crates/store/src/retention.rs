//! Retention: deletes records that ended long ago, one bounded slice at a time.
//!
//! Invariants
//! - Only ended records are deleted. A root with an open descendant is kept, and so is an execution while its
//!   idempotency key must be remembered.
//! - A slice is one commit, bounded by the rows it reads and the rows it deletes. After a crash between two slices, a
//!   later walk continues.
//! - A walk continues where its last slice ended. So records that are kept are read once per walk, not once per slice.
//! - Of the queue items, only dead letters are deleted.
//!
//! Not here: when it runs, and the ages (`server::retention`).

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store};

/// An idempotency key is remembered for at least this long.
pub const KEYS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A slice may delete this many rows of other tables for each execution that it may read.
const ROWS_EACH: i32 = 10;

/// A kind of record with its own retention age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Executions,
    Jobs,
    Deliveries,
    Schedules,
    Activity,
}

impl Section {
    pub const ALL: [Section; 5] =
        [Section::Executions, Section::Jobs, Section::Deliveries, Section::Schedules, Section::Activity];

    pub fn name(self) -> &'static str {
        match self {
            Section::Executions => "executions",
            Section::Jobs => "jobs",
            Section::Deliveries => "deliveries",
            Section::Schedules => "schedules",
            Section::Activity => "activity",
        }
    }
}

/// Where the next slice of a walk begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursor(SlicePosition);

#[derive(Clone, Copy, Debug, PartialEq)]
enum SlicePosition {
    /// At the oldest record. After a slice, the oldest record is a later one.
    Oldest,
    Id(Uuid),
    Number(i64),
    Delivery(Timestamp, Uuid),
    /// Completed jobs come first, then failed ones.
    Job {
        status: &'static str,
        from: Option<(Timestamp, Uuid)>,
    },
}

const COMPLETED: &str = "completed";
const FAILED: &str = "failed";

/// The result of one slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Records of the section that were deleted.
    pub retired: u64,
    /// Where to continue; None: the walk is complete.
    pub next: Option<Cursor>,
}

const OVER: Slice = Slice { retired: 0, next: None };

impl Store {
    /// Deletes records that ended longer ago than `age` among the next `most` records of a section. A cursor of another
    /// section is ignored.
    pub async fn retire(
        &self,
        section: Section,
        age: Duration,
        from: Option<Cursor>,
        most: i32,
    ) -> Result<Slice, Error> {
        let age = age.as_secs_f64();
        match (section, from.map(|cursor| cursor.0)) {
            (Section::Executions, Some(SlicePosition::Id(from))) => self.retire_executions(age, from, most).await,
            (Section::Executions, _) => self.retire_executions(age, Uuid::nil(), most).await,
            (Section::Jobs, Some(SlicePosition::Job { status, from })) => {
                self.retire_jobs(age, status, from, most).await
            }
            (Section::Jobs, _) => self.retire_jobs(age, COMPLETED, None, most).await,
            (Section::Deliveries, Some(SlicePosition::Delivery(at, id))) => {
                self.retire_deliveries(age, Some((at, id)), most).await
            }
            (Section::Deliveries, _) => self.retire_deliveries(age, None, most).await,
            (Section::Schedules, _) => self.retire_schedules(age, most).await,
            (Section::Activity, Some(SlicePosition::Number(from))) => self.retire_activity(age, from, most).await,
            (Section::Activity, _) => self.retire_activity(age, i64::MIN, most).await,
        }
    }

    async fn retire_executions(&self, age: f64, from: Uuid, most: i32) -> Result<Slice, Error> {
        let (keys, rows) = (KEYS_KEPT.as_secs_f64(), most.saturating_mul(ROWS_EACH));
        let row = self.one(sql!("workflow_execution/retire"), &[&age, &keys, &from, &most, &rows]).await?;
        let next: Option<Uuid> = row.try_get("next")?;
        Ok(Slice { retired: retired(&row)?, next: next.map(|id| Cursor(SlicePosition::Id(id))) })
    }

    async fn retire_jobs(
        &self,
        age: f64,
        status: &'static str,
        from: Option<(Timestamp, Uuid)>,
        most: i32,
    ) -> Result<Slice, Error> {
        let (at, id) = (from.map(|from| from.0), from.map_or(Uuid::nil(), |from| from.1));
        let rows = self.query(sql!("workflow_queue_projection/retire"), &[&age, &status, &at, &id, &most]).await?;
        let Some(row) = rows.first() else {
            let next = (status == COMPLETED).then_some(Cursor(SlicePosition::Job { status: FAILED, from: None }));
            return Ok(Slice { next, ..OVER });
        };
        let from = Some((row.try_get("at")?, row.try_get("id")?));
        Ok(Slice { retired: retired(row)?, next: Some(Cursor(SlicePosition::Job { status, from })) })
    }

    async fn retire_deliveries(&self, age: f64, from: Option<(Timestamp, Uuid)>, most: i32) -> Result<Slice, Error> {
        let (at, id) = (from.map(|from| from.0), from.map_or(Uuid::nil(), |from| from.1));
        let rows = self.query(sql!("webhook_delivery/retire"), &[&age, &i64::from(most), &at, &id]).await?;
        let Some(row) = rows.first() else { return Ok(OVER) };
        let next = SlicePosition::Delivery(row.try_get("at")?, row.try_get("id")?);
        Ok(Slice { retired: retired(row)?, next: Some(Cursor(next)) })
    }

    async fn retire_schedules(&self, age: f64, most: i32) -> Result<Slice, Error> {
        let retired = self.execute(sql!("schedule/retire"), &[&age, &i64::from(most)]).await?;
        Ok(Slice { retired, next: (retired > 0).then_some(Cursor(SlicePosition::Oldest)) })
    }

    async fn retire_activity(&self, age: f64, from: i64, most: i32) -> Result<Slice, Error> {
        let rows = self.query(sql!("activity/retire"), &[&age, &i64::from(most), &from]).await?;
        let Some(row) = rows.first() else { return Ok(OVER) };
        Ok(Slice { retired: retired(row)?, next: Some(Cursor(SlicePosition::Number(row.try_get("id")?))) })
    }
}

fn retired(row: &Row) -> Result<u64, Error> {
    Ok(row.try_get::<_, i64>("retired")?.unsigned_abs())
}
