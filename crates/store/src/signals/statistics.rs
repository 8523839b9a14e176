//! Updates the planner's statistics when tables grow fast.
//!
//! A queue is empty most of the time. While it is empty, reading the whole table is the cheapest plan. Sessions keep
//! such plans. In the first minutes of a burst they would use them on a full table, until autovacuum analyzes it.
//!
//! Invariants
//! - A table is analyzed each time it has doubled, until its statistics say that it is large. After that, this does
//!   nothing.
//!
//! Not here: when to poll (`server::signals::statistics`).

use crate::sql::sql;
use crate::{Error, Store};

impl Store {
    /// Analyzes tables that grew. Returns how many.
    pub async fn analyze_grown_tables(&self) -> Result<usize, Error> {
        let rows = self.query(sql!("pg_class/grown"), &[]).await?;
        for row in &rows {
            let analyze = match row.try_get(0)? {
                "execution_queue" => sql!("execution_queue/analyze"),
                "workflow_execution" => sql!("workflow_execution/analyze"),
                "workflow_execution_node" => sql!("workflow_execution_node/analyze"),
                _ => sql!("activity/analyze"),
            };
            self.execute(analyze, &[]).await?;
        }
        Ok(rows.len())
    }
}
