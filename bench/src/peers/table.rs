//! The table of a run, as text and as JSON, and its place in the page about peers.
//!
//! Not here: how a page is written (`page`).

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::cap::Capped;
use super::known::{LIMIT, Peer, TenantLimit};
use super::{Drained, PickUp, Rows, median_of};
use crate::measure::stats::{Sample, round};
use crate::page::{self, grouped, markdown};

const PAGE: &str = "docs/reference/peers.md";
const OURS: &str = "40 workspaces with limits of 20, defaults";

/// What was measured of one queue.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    version: String,
    pub(super) is_ours: bool,
    pub(super) keeps_history: bool,
    settings: &'static str,
    limit: TenantLimit,
    means: &'static str,
    pub(super) drains: Vec<Drained>,
    pub(super) pick_ups: Vec<PickUp>,
    /// How soon Forebay claimed what was sent: an earlier moment than the begin of a node.
    pub(super) claims: Vec<Sample>,
    pub(super) flood: Option<PickUp>,
    /// How many jobs waited, and the rate at which some of them were drained.
    pub(super) deep: Option<(usize, f64)>,
    pub(super) deep_flood: Option<PickUp>,
    pub(super) cap: Option<Capped>,
}

impl Row {
    pub(super) fn of(peer: &'static Peer, version: String) -> Row {
        Row {
            name: peer.name,
            version,
            keeps_history: peer.keeps_history,
            settings: peer.settings,
            limit: peer.limit,
            means: peer.means,
            is_ours: false,
            ..Row::ours()
        }
    }

    pub(super) fn ours() -> Row {
        Row {
            name: "Forebay",
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_ours: true,
            keeps_history: true,
            settings: OURS,
            limit: TenantLimit::Any,
            means: "limit of a workspace",
            drains: Vec::new(),
            pick_ups: Vec::new(),
            claims: Vec::new(),
            flood: None,
            deep: None,
            deep_flood: None,
            cap: None,
        }
    }

    pub(super) fn drain_per_s(&self) -> Option<f64> {
        median_of(&self.drains, |drained| drained.per_s)
    }

    pub(super) fn pick_up_p99(&self) -> Option<f64> {
        median_of(&self.pick_ups, |picked| picked.sample.p99())
    }

    pub(super) fn claimed_p99(&self) -> Option<f64> {
        median_of(&self.claims, Sample::p99)
    }

    pub(super) fn json(&self) -> Value {
        let drained = |of: fn(&Drained) -> f64| median_of(&self.drains, of).map(f64::round);
        let picked = |of: fn(&PickUp) -> f64| median_of(&self.pick_ups, of).map(round);
        let waited = |picked: &PickUp| {
            let (p50, p99) = (round(picked.sample.p50()), round(picked.sample.p99()));
            json!({ "p50": p50, "p99": p99, "never": picked.never })
        };
        json!({
            "name": self.name,
            "version": self.version,
            "settings": self.settings,
            "keeps_history": self.keeps_history,
            "tenant_limit": self.means,
            "drain_per_s": drained(|drained| drained.per_s),
            "server_us": drained(|drained| drained.server_us),
            "worker_us": drained(|drained| drained.worker_us),
            "pick_up_p50_ms": picked(|picked| picked.sample.p50()),
            "pick_up_p99_ms": picked(|picked| picked.sample.p99()),
            "pick_up_never": self.pick_ups.iter().map(|picked| picked.never).sum::<usize>(),
            "claimed_p50_ms": median_of(&self.claims, Sample::p50).map(round),
            "claimed_p99_ms": self.claimed_p99().map(round),
            "flood_ms": self.flood.as_ref().map(waited),
            "deep_waiting": self.deep.map(|(waiting, _)| waiting),
            "deep_per_s": self.deep.map(|(_, per_s)| per_s.round()),
            "deep_flood_ms": self.deep_flood.as_ref().map(waited),
            "cap": self.cap.map(|capped| capped.json()),
        })
    }

    /// The cells of the table of speed.
    fn speed(&self) -> Vec<String> {
        let number = |value: Option<f64>, digits| value.map_or("–".to_owned(), |value| grouped(value, digits));
        let p50 = median_of(&self.pick_ups, |picked| picked.sample.p50());
        let deep = self.deep.map(|(waiting, per_s)| format!("{} ({})", grouped(per_s, 0), grouped(waiting as f64, 0)));
        vec![
            format!("{} {}", self.name, self.version),
            number(self.drain_per_s(), 0),
            number(median_of(&self.drains, |drained| drained.server_us), 0),
            number(median_of(&self.drains, |drained| drained.worker_us), 0),
            format!("{} / {}", number(p50, 1), number(self.pick_up_p99(), 1)),
            deep.unwrap_or("–".to_owned()),
            if self.keeps_history { "yes" } else { "no" }.to_owned(),
            self.settings.to_owned(),
        ]
    }

    /// The cells of the table of limits.
    fn limits(&self) -> Vec<String> {
        let waited = |picked: Option<&PickUp>| {
            picked.map_or("–".to_owned(), |picked| match picked.never {
                0 => format!("{} / {}", grouped(picked.sample.p50(), 1), grouped(picked.sample.p99(), 1)),
                never => format!("{} / {}, {never} never", fmt(picked.sample.p50()), fmt(picked.sample.p99())),
            })
        };
        let says = match self.limit {
            TenantLimit::Any => LIMIT.to_string(),
            TenantLimit::One => "1".to_owned(),
            TenantLimit::Nothing => "none".to_owned(),
        };
        vec![
            self.name.to_owned(),
            self.means.to_owned(),
            says,
            self.cap.map_or("–".to_owned(), |capped| capped.most.to_string()),
            self.cap.map_or("–".to_owned(), |capped| grouped(capped.begun as f64, 0)),
            waited(self.flood.as_ref()),
            waited(self.deep_flood.as_ref()),
        ]
    }
}

/// A time that may be only the patience of the harness.
fn fmt(ms: f64) -> String {
    format!("≥ {}", grouped(ms, 1))
}

/// Both tables, as Markdown.
pub(super) fn text(rows: &Rows) -> String {
    let speed = [
        "queue",
        "drain, jobs/s",
        "server µs a job",
        "worker µs a job",
        "pick-up p50 / p99, ms",
        "drain, jobs/s (of so many)",
        "keeps what it did",
        "settings of the drain",
    ];
    let limits = [
        "queue",
        "limit of a tenant",
        "set to",
        "most that ran",
        "jobs in that time",
        "quiet tenant p50 / p99, ms",
        "the same, deep",
    ];
    let of = |names: &[&str], cells: fn(&Row) -> Vec<String>| {
        let rows: Vec<Vec<String>> = rows.values().map(cells).collect();
        markdown(names, &rows)
    };
    format!("{}\n\n{}\n", of(&speed, Row::speed), of(&limits, Row::limits))
}

/// Writes the tables into the page.
pub(super) fn write_page(table: &str, figures: &Map<String, Value>) -> Result<()> {
    page::write(PAGE, "peers", table, figures)
}
