//! Measures how long executions of the load waited for their start, by process.
//!
//! Invariants
//! - The time runs from the creation of the execution's row to its start, both by the database's clock.
//! - A start counts for the process that began the execution, and at the time when the execution was accepted. Starts
//!   at the poisoned process are left out of the comparison.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Value, json};
use store::connect::Client;
use uuid::Uuid;

use crate::measure::stats::{Sample, round};
use crate::service::Fleet;

/// One start of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Started {
    pub(super) at: i64,
    pub(super) took_ms: f64,
    pub(super) place: usize,
}

/// The places that were poisoned, each with the time from which on it was, in order.
pub(super) type Poisoned = Vec<(i64, usize)>;

/// The figures for one period.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    all: Sample,
    by_place: BTreeMap<usize, Sample>,
}

/// Reads when each of these was accepted and begun, and by which process.
pub(super) async fn read_starts(client: &Client, accepted: &[Uuid]) -> anyhow::Result<Vec<Started>> {
    let sql = "SELECT (extract(epoch FROM e.created_at) * 1000000)::bigint,
                      (extract(epoch FROM e.started_at - e.created_at) * 1000)::float8, p.name
                 FROM unnest($1::uuid[]) AS a (id) JOIN workflow_execution e ON e.id = a.id
                 JOIN chaos_log l ON l.id = e.id AND l.what = 'begun' JOIN chaos_process p ON p.id = l.owner";
    let rows = client.query(sql, &[&accepted]).await.context("read when the load began")?;
    rows.iter()
        .map(|row| {
            let place = Fleet::place_in(row.get(2)).context("a process of the fleet")?;
            Ok(Started { at: row.get(0), took_ms: row.get(1), place })
        })
        .collect()
}

impl Pace {
    /// The starts that began in this period at processes that were not poisoned.
    pub(super) fn of(starts: &[Started], (from, to): (i64, i64), poisoned: &Poisoned) -> Pace {
        let beside = |start: &&Started| {
            let then = poisoned.iter().rev().find(|(since, _)| *since <= start.at);
            (from..to).contains(&start.at) && then.is_none_or(|(_, place)| *place != start.place)
        };
        let mut by_place: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for start in starts.iter().filter(beside) {
            by_place.entry(start.place).or_default().push(start.took_ms);
        }
        let all = Sample::new(by_place.values().flatten().copied().collect());
        Pace { all, by_place: by_place.into_iter().map(|(place, values)| (place, Sample::new(values))).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.len() == 0
    }

    pub(super) fn p50(&self) -> f64 {
        round(self.all.p50())
    }

    pub(super) fn p99(&self) -> f64 {
        round(self.all.p99())
    }

    /// The ratio of this 99th percentile to that of `other`.
    pub(super) fn over(&self, other: &Pace) -> f64 {
        if other.all.p99() > 0.0 { round(self.all.p99() / other.all.p99()) } else { 0.0 }
    }

    /// The figures by process.
    pub(super) fn processes(&self) -> Value {
        self.by_place
            .iter()
            .map(|(place, sample)| (format!("p{place}"), sample.json()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    pub(super) fn json(&self) -> Value {
        json!({ "p50_ms": self.p50(), "p99_ms": self.p99(), "processes": self.processes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_where_and_when_it_began_and_not_where_the_poison_was_then() {
        let start = |at: i64, took_ms: f64, place: usize| Started { at, took_ms, place };
        let starts = [start(1, 9.0, 0), start(5, 1.0, 0), start(6, 3.0, 1), start(7, 80.0, 2), start(9, 70.0, 1)];
        // The poison is at 2 from the beginning, and at 1 from 8 on.
        let pace = Pace::of(&starts, (5, 20), &vec![(0, 2), (8, 1)]);
        assert_eq!((pace.p50(), pace.p99(), pace.is_empty()), (1.0, 3.0, false));
        let sample = |ms: f64| json!({ "p50": ms, "p99": ms, "n": 1 });
        assert_eq!(pace.processes(), json!({ "p0": sample(1.0), "p1": sample(3.0) }));
        assert_eq!(pace.over(&Pace::of(&starts, (1, 2), &Poisoned::new())), 0.333);
        assert!(Pace::of(&starts, (10, 20), &Poisoned::new()).is_empty());
    }
}
