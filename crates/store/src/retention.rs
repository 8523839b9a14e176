//! Forgetting what ended long ago, a bounded number at a time.
//!
//! Invariants
//! - Only what has ended goes, with all that belongs to it, in one commit; never under a descendant
//!   that lives, nor while its idempotency key must be remembered.
//! - The queue's own rows go only as dead letters.
//!
//! Not here: when, and how old is old (`server::retention`).

use std::time::Duration;

use kernel::ids::ExecutionId;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store};

/// An idempotency key is remembered for at least so long.
pub const KEYS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// What one call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    pub executions: i64,
    /// Where to go on; none at the end.
    pub next: Option<ExecutionId>,
}

impl Store {
    /// Deletes what ended longer ago than `age` among the next `most` executions behind `from`.
    pub async fn retire(&self, age: Duration, from: Option<ExecutionId>, most: i64) -> Result<Retired, Error> {
        let from = from.map_or(Uuid::nil(), |from| from.0);
        let rows = self
            .query(sql!("workflow_execution/retire"), &[&age.as_secs_f64(), &from, &most, &KEYS_KEPT.as_secs_f64()])
            .await?;
        let Some(row) = rows.first() else { return Ok(Retired { executions: 0, next: None }) };
        Ok(Retired { executions: row.try_get("retired")?, next: Some(ExecutionId(row.try_get("last")?)) })
    }

    /// Deletes activity older than `age`; answers how much.
    pub async fn retire_activity(&self, age: Duration, most: i64) -> Result<u64, Error> {
        self.execute(sql!("activity/retire"), &[&age.as_secs_f64(), &most]).await
    }
}
