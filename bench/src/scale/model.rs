//! Extends what was measured to other machines and rates: docs/explanation/scale.md explains the formulas.
//!
//! Invariants
//! - Plain arithmetic over measured costs. Everything it returns is extrapolated.

use serde_json::{Value, json};

use super::Taken;
use crate::measure::stats::round;

/// Numbers of cores for which a rate is given.
pub(super) const CORES: [u32; 5] = [2, 4, 8, 16, 32];
/// The share of the server's processor time that is planned for. The rest is for peaks and other queries.
pub(super) const BUSY: f64 = 0.7;
/// The example: executions per second, and days for which they are kept.
pub(super) const RATE: f64 = 1_000.0;
pub(super) const DAYS: f64 = 30.0;
const DAY_S: f64 = 86_400.0;

/// What one execution costs over its whole life: run, kept, deleted, vacuumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WholeCost {
    /// Processor time of the database: until the end, for the deletion, and for vacuums.
    pub(super) server_us: f64,
    pub(super) service_us: f64,
    pub(super) wal_bytes: f64,
    pub(super) commits: f64,
    pub(super) kept_bytes: f64,
    pub(super) index_bytes: f64,
    /// Time of vacuums in seconds: of the table of executions, and of the table of nodes.
    pub(super) vacuum_s: [f64; 2],
}

impl WholeCost {
    /// None if a part that it needs was not measured.
    pub(super) fn of(taken: &Taken) -> Option<WholeCost> {
        let (life, kept, deleted) = (taken.life.as_ref()?, taken.kept.as_ref()?, taken.deleted.as_ref()?);
        let nodes = taken.chain.nodes as f64;
        let vacuum_s = [deleted.of_executions.steady_s(), deleted.of_nodes.steady_s() * nodes];
        let delete_us = deleted.delete.server_s * 1e6 / deleted.executions;
        Some(WholeCost {
            server_us: life.database_us + delete_us + vacuum_s.iter().sum::<f64>() * 1e6,
            service_us: life.service_us,
            wal_bytes: life.wal_bytes + (deleted.delete.wal_bytes + deleted.vacuum.wal_bytes) / deleted.executions,
            commits: life.commits,
            kept_bytes: kept.bytes(),
            index_bytes: kept.index_bytes(),
            vacuum_s,
        })
    }

    /// Executions per second that so many cores of the database carry.
    pub(super) fn per_s(&self, cores: u32) -> f64 {
        f64::from(cores) * BUSY * 1e6 / self.server_us
    }

    /// Cores that the rate keeps busy: of the database, and of the service.
    pub(super) fn busy_cores(&self) -> [f64; 2] {
        [self.server_us, self.service_us].map(|us| RATE * us / 1e6)
    }

    /// How many executions are kept, and how many bytes they take: in all, and indexes alone.
    pub(super) fn kept(&self) -> (f64, f64, f64) {
        let executions = RATE * DAY_S * DAYS;
        (executions, executions * self.kept_bytes, executions * self.index_bytes)
    }

    pub(super) fn wal_bytes_per_day(&self) -> f64 {
        RATE * DAY_S * self.wal_bytes
    }

    /// Hours per day that one vacuum process works on each of the two tables.
    pub(super) fn vacuum_hours_per_day(&self) -> [f64; 2] {
        self.vacuum_s.map(|each| RATE * DAY_S * each / 3_600.0)
    }

    pub(super) fn json(&self) -> Value {
        let (executions, bytes, index_bytes) = self.kept();
        let per_s: Vec<Value> =
            CORES.iter().map(|cores| json!({ "cores": cores, "per_s": self.per_s(*cores).round() })).collect();
        json!({
            "server_us": self.server_us.round(),
            "executions_per_s": per_s,
            "at_per_s": RATE,
            "days": DAYS,
            "kept_executions": executions,
            "kept_gb": (bytes / 1e9).round(),
            "index_gb": (index_bytes / 1e9).round(),
            "wal_gb_per_day": (self.wal_bytes_per_day() / 1e9).round(),
            "busy_cores": self.busy_cores().map(round),
            "vacuum_hours_per_day": self.vacuum_hours_per_day().map(round),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_size_follow_from_the_cost_of_one_execution() {
        let cost = WholeCost { server_us: 700.0, wal_bytes: 2_000.0, kept_bytes: 1_000.0, ..WholeCost::default() };
        assert_eq!(cost.per_s(2).round(), 2_000.0);
        let (executions, bytes, _) = cost.kept();
        assert_eq!((executions, bytes), (2.592e9, 2.592e12));
        assert_eq!(cost.wal_bytes_per_day(), 172.8e9);
        assert_eq!(cost.busy_cores()[0], 0.7);
    }
}
