//! The tables of a run, in Markdown: for people, and for docs/explanation/scale.md.
//!
//! Invariants
//! - A part that was not measured shows dashes.

use super::filled::CHAINS;
use super::lag::{Lag, Probed, RATE};
use super::meter::Spent;
use super::model::{self, BUSY, CORES, DAYS, WholeCost};
use super::partitions::Partitions;
use super::vacuum::Vacuumed;
use super::{Figures, Taken};
use crate::page::{grouped, markdown};

const NONE: &str = "–";

/// All tables, each under a line that says what it shows.
pub(super) fn text(figures: &Figures) -> String {
    let sections = [
        ("**One execution** (measured)", costs(figures)),
        ("**Deletion and vacuum** (measured)", deletion(figures)),
        ("**Standby** (measured)", standby(figures.lag.as_ref())),
        ("**Partitions** (measured)", partitions(figures)),
        ("**Executions per second by cores of the database** (extrapolated)", rates(figures)),
        ("**1,000 executions per second, kept for 30 days** (extrapolated)", month(figures)),
    ];
    sections.map(|(title, table)| format!("{title}\n\n{table}\n")).join("\n")
}

/// A table with a column for each chain, and a function that fills a row.
struct ByChain<'a> {
    figures: &'a Figures,
    rows: Vec<Vec<String>>,
}

impl<'a> ByChain<'a> {
    fn new(figures: &'a Figures) -> ByChain<'a> {
        ByChain { figures, rows: Vec::new() }
    }

    fn row(mut self, title: impl Into<String>, cell: impl Fn(&Taken) -> Option<String>) -> ByChain<'a> {
        let mut cells = vec![title.into()];
        cells.extend(CHAINS.iter().map(|chain| {
            let taken = self.figures.taken.iter().find(|taken| taken.chain == chain);
            taken.and_then(&cell).unwrap_or_else(|| NONE.to_owned())
        }));
        self.rows.push(cells);
        self
    }

    fn markdown(self) -> String {
        markdown(&["", "1 node", "10 nodes"], &self.rows)
    }
}

fn number(value: f64) -> Option<String> {
    Some(grouped(value, 0))
}

fn costs(figures: &Figures) -> String {
    ByChain::new(figures)
        .row("executions per second in this run", |taken| number(taken.life.as_ref()?.per_s))
        .row("processor time of the database, µs", |taken| number(taken.life.as_ref()?.database_us))
        .row("processor time of the service, µs", |taken| number(taken.life.as_ref()?.service_us))
        .row("write-ahead log, bytes", |taken| number(taken.life.as_ref()?.wal_bytes))
        .row("commits", |taken| Some(grouped(taken.life.as_ref()?.commits, 2)))
        .row("kept on disk, bytes", |taken| number(taken.kept.as_ref()?.bytes()))
        .row("the execution's row: heap / indexes / toast", |taken| {
            let bytes = taken.kept.as_ref()?.execution;
            Some([bytes.heap, bytes.indexes, bytes.toast].map(|bytes| grouped(bytes, 0)).join(" / "))
        })
        .row("the rows of its nodes: heap / indexes / toast", |taken| {
            let bytes = taken.kept.as_ref()?.nodes;
            Some([bytes.heap, bytes.indexes, bytes.toast].map(|bytes| grouped(bytes, 0)).join(" / "))
        })
        .row("executions behind these sizes", |taken| number(taken.kept.as_ref()?.executions))
        .markdown()
}

fn deletion(figures: &Figures) -> String {
    let each = |spent: Spent, executions: f64| {
        let (us, wal) = (spent.server_s * 1e6 / executions, spent.wal_bytes / executions);
        format!("{} / {}", grouped(us, 0), grouped(wal, 0))
    };
    let whole = |vacuumed: Vacuumed| {
        format!("{} ({})", seconds(vacuumed.took_s / vacuumed.dead * 1e6), grouped(vacuumed.dead / vacuumed.rows, 2))
    };
    let parts =
        |vacuumed: Vacuumed| [vacuumed.per_dead_s, vacuumed.per_row_s].map(|each| seconds(each * 1e6)).join(" / ");
    ByChain::new(figures)
        .row("deletion of an execution: database µs / WAL bytes", |taken| {
            taken.deleted.as_ref().map(|deleted| each(deleted.delete, deleted.executions))
        })
        .row("vacuum after it, for each execution: database µs / WAL bytes", |taken| {
            taken.deleted.as_ref().map(|deleted| each(deleted.vacuum, deleted.executions))
        })
        .row("vacuum of executions, s per million dead rows (share of dead rows)", |taken| {
            taken.deleted.as_ref().map(|deleted| whole(deleted.of_executions))
        })
        .row("vacuum of nodes, s per million dead rows (share of dead rows)", |taken| {
            taken.deleted.as_ref().map(|deleted| whole(deleted.of_nodes))
        })
        .row("its parts, executions: s per million dead rows / per million rows of the table", |taken| {
            taken.deleted.as_ref().map(|deleted| parts(deleted.of_executions))
        })
        .row("its parts, nodes: s per million dead rows / per million rows of the table", |taken| {
            taken.deleted.as_ref().map(|deleted| parts(deleted.of_nodes))
        })
        .markdown()
}

fn standby(lag: Option<&Lag>) -> String {
    let cells = |title: String, probed: Option<&Probed>| {
        let sample = |of: fn(&Probed) -> [f64; 3], digits: usize| {
            probed.map_or(NONE.to_owned(), |probed| of(probed).map(|value| grouped(value, digits)).join(" / "))
        };
        let ms = sample(|probed| [probed.ms.p50(), probed.ms.p99(), probed.ms.percentile(1.0)], 1);
        let bytes = sample(|probed| [probed.bytes.p50(), probed.bytes.p99(), probed.bytes.percentile(1.0)], 0);
        vec![title, ms, bytes]
    };
    let reached = lag.map_or(String::new(), |lag| {
        format!("; {} ended, {} MB of WAL per second", grouped(lag.ended_per_s, 0), grouped(lag.wal_per_s / 1e6, 1))
    });
    let rows = [
        cells("idle servers".to_owned(), lag.map(|lag| &lag.idle)),
        cells(format!("{} executions sent per second{reached}", grouped(RATE as f64, 0)), lag.map(|lag| &lag.loaded)),
    ];
    let names = ["", "until a commit is visible, ms: p50 / p99 / most", "not yet replayed, bytes: p50 / p99 / most"];
    markdown(&names, &rows)
}

fn partitions(figures: &Figures) -> String {
    let parted = |taken: &Taken| -> Option<(f64, Spent, Spent)> {
        let (deleted, dropped) = (taken.deleted.as_ref()?, taken.partitions.as_ref()?.dropped?);
        Some((deleted.executions, deleted.delete + deleted.vacuum, dropped))
    };
    let shown = |spent: Spent| format!("{} s, {} MB of WAL", seconds(spent.took_s), grouped(spent.wal_bytes / 1e6, 3));
    let mut table = ByChain::new(figures)
        .row("old executions", |taken| number(parted(taken)?.0))
        .row("deleted by retention's statements, then vacuumed", |taken| Some(shown(parted(taken)?.1)))
        .row("dropped with their partitions", |taken| Some(shown(parted(taken)?.2)))
        .row("ratio: time, WAL", |taken| {
            let (_, deleted, dropped) = parted(taken)?;
            let wal = deleted.wal_bytes / dropped.wal_bytes.max(1.0);
            Some([deleted.took_s / dropped.took_s, wal].map(|ratio| format!("{}×", grouped(ratio, 0))).join(", "))
        })
        .row("partitions", |taken| number(taken.partitions.as_ref()?.count as f64))
        .row("unique indexes that cannot stay unique", |taken| number(lost(taken.partitions.as_ref()?)));
    let cases = figures.taken.iter().find_map(|taken| taken.partitions.as_ref()).map(|found| found.times.clone());
    for (case, _) in cases.unwrap_or_default() {
        table = table.row(format!("{}, times as long with partitions", case.title()), |taken| {
            let times = taken.partitions.as_ref()?.times.iter().find(|(measured, _)| *measured == case)?.1;
            Some(format!(
                "{} ({} → {} µs)",
                grouped(times.ratio(), 2),
                grouped(times.plain_us, 0),
                grouped(times.parted_us, 0)
            ))
        });
    }
    table.markdown()
}

fn lost(partitions: &Partitions) -> f64 {
    partitions.not_unique.len() as f64
}

fn rates(figures: &Figures) -> String {
    let mut table = ByChain::new(figures)
        .row("whole cost of an execution, database µs", |taken| number(WholeCost::of(taken)?.server_us));
    for cores in CORES {
        let title = format!("{cores} cores, {:.0} % busy: executions per second", BUSY * 100.0);
        table = table.row(title, |taken| number(WholeCost::of(taken)?.per_s(cores)));
    }
    table.markdown()
}

fn month(figures: &Figures) -> String {
    let gb = |bytes: f64| grouped(bytes / 1e9, 0);
    let hours = |[executions, nodes]: [f64; 2]| format!("{} / {}", grouped(executions, 1), grouped(nodes, 1));
    ByChain::new(figures)
        .row("executions kept, million", |taken| number(WholeCost::of(taken)?.kept().0 / 1e6))
        .row(format!("size after {DAYS:.0} days, GB (of it indexes)"), |taken| {
            let (_, bytes, index_bytes) = WholeCost::of(taken)?.kept();
            Some(format!("{} ({})", gb(bytes), gb(index_bytes)))
        })
        .row("write-ahead log per day, GB, with deletion and vacuum", |taken| {
            Some(gb(WholeCost::of(taken)?.wal_bytes_per_day()))
        })
        .row("to a standby, MB per second", |taken| {
            Some(grouped(model::RATE * WholeCost::of(taken)?.wal_bytes / 1e6, 1))
        })
        .row("busy cores: database / service", |taken| {
            Some(WholeCost::of(taken)?.busy_cores().map(|cores| grouped(cores, 1)).join(" / "))
        })
        .row("commits per second", |taken| number(model::RATE * WholeCost::of(taken)?.commits))
        .row("vacuum, hours per day of one process: executions / nodes", |taken| {
            Some(hours(WholeCost::of(taken)?.vacuum_hours_per_day()))
        })
        .markdown()
}

/// Seconds, with enough digits for a short time.
fn seconds(value: f64) -> String {
    grouped(value, if value < 1.0 { 3 } else { 1 })
}
