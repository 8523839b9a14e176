//! Keeps the planner's idea of the tables in step with a burst.
//!
//! A queue is empty most of the time, and a plan that a session made then reads the whole table, which
//! costs nothing while there is none. Such plans are kept: without being told, the database would go
//! on with them through the first minutes of a flood, until it looks at its statistics by itself.
//!
//! Invariants
//! - A table is analysed when it has doubled, until it is known to be large: what follows costs nothing.
//!
//! Not here: when to look (`server::signals::statistics`).

use crate::sql::sql;
use crate::{Error, Store};

impl Store {
    /// Tells the planner of tables that grew; answers how many.
    pub async fn tell_planner(&self) -> Result<usize, Error> {
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
