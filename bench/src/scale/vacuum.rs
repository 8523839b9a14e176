//! Deletes old executions as retention does, and measures the deletion and the vacuums that follow it.
//!
//! Invariants
//! - The older executions are deleted, all of them and nothing else. The newer ones stay, so a vacuum finds live rows.
//! - Each table is vacuumed twice: when few rows are dead, and when most are. A vacuum reads each index as a whole, so
//!   its time has a part per dead row and a part per row of the table. Two vacuums give both parts.
//! - A vacuum uses one process and does not pause. Autovacuum also uses one, but pauses by default.
//!
//! Not here: which executions retention may delete (the store's tests).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use store::retention::{Cursor, Section};

use super::filled::{EXECUTIONS, Filled, NODES};
use super::meter::{Meter, Spent};
use crate::measure::stats::round;

/// How many executions one slice of retention reads.
const SLICE: i32 = 500;
/// The first vacuum follows when this share of the old executions is deleted.
const FIRST_SHARE: f64 = 0.05;

/// What deletion cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deleted {
    pub(super) executions: f64,
    pub(super) delete: Spent,
    /// All vacuums of both tables.
    pub(super) vacuum: Spent,
    pub(super) of_executions: Vacuumed,
    pub(super) of_nodes: Vacuumed,
}

impl Deleted {
    pub(super) fn json(&self) -> Value {
        json!({
            "executions": self.executions,
            "delete": self.delete.json(),
            "vacuum": self.vacuum.json(),
            "vacuum_of_executions": self.of_executions.json(),
            "vacuum_of_nodes": self.of_nodes.json(),
        })
    }
}

/// The vacuums of one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vacuumed {
    /// The second vacuum: dead rows, rows in all, seconds.
    pub(super) dead: f64,
    pub(super) rows: f64,
    pub(super) took_s: f64,
    /// The two parts of the time, in seconds per row.
    pub(super) per_dead_s: f64,
    pub(super) per_row_s: f64,
    /// Autovacuum starts when this share of the table is dead.
    pub(super) starts_at: f64,
}

impl Vacuumed {
    /// Two vacuums, each as dead rows, rows in all, and seconds.
    fn of(first: (f64, f64, f64), second: (f64, f64, f64), starts_at: f64) -> Vacuumed {
        let ((dead_1, rows_1, s_1), (dead_2, rows_2, s_2)) = (first, second);
        let determinant = dead_2 * rows_1 - dead_1 * rows_2;
        let per_dead = (s_2 * rows_1 - s_1 * rows_2) / determinant;
        let per_row = (s_1 * dead_2 - s_2 * dead_1) / determinant;
        // Noise may make a part negative. The other part then is the whole time.
        let (per_dead_s, per_row_s) = match (per_dead, per_row) {
            (dead, _) if dead < 0.0 => (0.0, s_2 / rows_2),
            (_, row) if row < 0.0 => (s_2 / dead_2, 0.0),
            both => both,
        };
        Vacuumed { dead: dead_2, rows: rows_2, took_s: s_2, per_dead_s, per_row_s, starts_at }
    }

    /// Seconds of vacuum per deleted row, if autovacuum starts whenever `starts_at` of the table is dead.
    pub(super) fn steady_s(&self) -> f64 {
        self.per_dead_s + self.per_row_s / self.starts_at
    }

    fn json(&self) -> Value {
        json!({
            "dead_rows": self.dead,
            "rows": self.rows,
            "took_s": round(self.took_s),
            "per_million_dead_s": round(self.took_s / self.dead * 1e6),
            "part_per_million_dead_s": round(self.per_dead_s * 1e6),
            "part_per_million_rows_s": round(self.per_row_s * 1e6),
            "starts_at": self.starts_at,
        })
    }
}

/// Deletes the executions that ended before `cut`, and vacuums.
pub(super) async fn measure(filled: &Filled, cut: Instant) -> Result<Deleted> {
    let nodes = filled.chain.nodes as f64;
    let before = filled.count().await? as f64;
    let old = u64::try_from(filled.executions)?;
    let first = ((old as f64 * FIRST_SHARE) as u64).max(1);
    let mut walk = Walk { cut, from: None, deleted: 0 };
    let delete_1 = walk.delete(filled, first).await?;
    let dead_1 = walk.deleted as f64;
    let executions_1 = vacuum(filled, EXECUTIONS).await?;
    let nodes_1 = vacuum(filled, NODES).await?;
    let delete_2 = walk.delete(filled, old).await?;
    let dead_2 = walk.deleted as f64 - dead_1;
    let executions_2 = vacuum(filled, EXECUTIONS).await?;
    let nodes_2 = vacuum(filled, NODES).await?;
    let left = filled.count().await? as f64;
    ensure!(walk.deleted == old && left == before - old as f64, "{left} executions are left of {before}");
    let parts = |first: Spent, second: Spent, each: f64, starts_at: f64| {
        let (first, second) = ((dead_1, before, first.took_s), (dead_2, before - dead_1, second.took_s));
        let rows = |(dead, rows, took_s): (f64, f64, f64)| (dead * each, rows * each, took_s);
        Vacuumed::of(rows(first), rows(second), starts_at)
    };
    Ok(Deleted {
        executions: old as f64,
        delete: delete_1 + delete_2,
        vacuum: executions_1 + nodes_1 + executions_2 + nodes_2,
        of_executions: parts(executions_1, executions_2, 1.0, starts_at(filled, EXECUTIONS).await?),
        of_nodes: parts(nodes_1, nodes_2, nodes, starts_at(filled, NODES).await?),
    })
}

/// A walk of retention through the old executions.
struct Walk {
    cut: Instant,
    from: Option<Cursor>,
    deleted: u64,
}

impl Walk {
    /// Deletes until this many are deleted, without the pauses that retention makes.
    async fn delete(&mut self, filled: &Filled, until: u64) -> Result<Spent> {
        let meter = Meter::start(&filled.world).await?;
        while self.deleted < until {
            let age: Duration = self.cut.elapsed();
            let slice = filled.world.store.retire(Section::Executions, age, self.from, SLICE).await?;
            self.deleted += slice.retired;
            self.from = slice.next;
            ensure!(slice.next.is_some() || self.deleted >= until, "only {} executions were deleted", self.deleted);
        }
        meter.stop(&filled.world).await
    }
}

async fn vacuum(filled: &Filled, table: &str) -> Result<Spent> {
    let meter = Meter::start(&filled.world).await?;
    let sql = format!("VACUUM (INDEX_CLEANUP ON, PARALLEL 0) {table}");
    filled.world.client.batch_execute(&sql).await.with_context(|| format!("vacuum {table}"))?;
    meter.stop(&filled.world).await
}

async fn starts_at(filled: &Filled, table: &str) -> Result<f64> {
    let sql = "SELECT option_value::float8 FROM pg_options_to_table((SELECT reloptions FROM pg_class
                WHERE oid = ('forebay.' || $1::text)::regclass))
                WHERE option_name = 'autovacuum_vacuum_scale_factor'";
    Ok(filled.world.client.query_one(sql, &[&table]).await.context("read when autovacuum starts")?.try_get(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_vacuums_give_the_time_per_dead_row_and_per_row() {
        let took = |dead: f64, rows: f64| (dead, rows, dead * 3.0 + rows * 2.0);
        let vacuumed = Vacuumed::of(took(5.0, 150.0), took(95.0, 145.0), 0.02);
        assert!((vacuumed.per_dead_s - 3.0).abs() < 1e-9 && (vacuumed.per_row_s - 2.0).abs() < 1e-9);
        assert!((vacuumed.steady_s() - 103.0).abs() < 1e-9);
    }

    #[test]
    fn no_part_of_the_time_is_negative() {
        let slow_first = Vacuumed::of((5.0, 150.0, 100.0), (95.0, 145.0, 10.0), 0.02);
        assert_eq!((slow_first.per_dead_s, slow_first.per_row_s), (0.0, 10.0 / 145.0));
        let fast_first = Vacuumed::of((5.0, 150.0, 0.0), (95.0, 145.0, 95.0), 0.02);
        assert_eq!((fast_first.per_dead_s, fast_first.per_row_s), (1.0, 0.0));
    }
}
