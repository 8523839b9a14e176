//! Measures what Forebay adds to the cost of Temporal, compared with a bare client and a handwritten workflow.
//!
//! Invariants
//! - Both sides of a comparison take turns on one server. The ratio is the median over pairs of measurements, so that a
//!   slow change of the machine's speed has no influence.
//! - Commits of PostgreSQL are flushed. The server is Temporal's own development server, in memory, with the flags that
//!   are printed.
//! - The handwritten workflow does the same writes: like Forebay, it records in PostgreSQL what began, with which
//!   input, and what each call returned. Before, it wrote nothing, and the ratio compared records with no records.
//! - Judged on a full run: `temporal_ratio`, the start rate compared with a bare client's; `ten_ratio`, a run of ten
//!   calls as activities compared with the handwritten workflow; `light_ratio`, the same ten calls as local activities.
//!   And on each run: outputs stay out of Temporal's history. The other figures are only reported.
//!
//! Not here: faults (`chaos`), the database alone (`dispatch`).

mod end_to_end;
mod handwritten;
mod history;
mod records;
mod server;
mod site;
mod starts;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::measure::run;
use crate::report::say;

/// The number of starts or runs in progress at a time, for every variant: the service's default.
const AT_ONCE: usize = 16;
/// A promise is broken if a ratio is lower: starts, runs with calls as activities, and with calls as local activities.
const LEAST_STARTS: f64 = 0.95;
const LEAST_TEN: f64 = 1.0;
const LEAST_LIGHT: f64 = 3.0;
/// The maximum history size of an execution with an output of a megabyte.
const MOST_HISTORY: usize = 100_000;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct TemporalOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 3] = ["starts", "e2e", "history"];

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &TemporalOptions) -> Result<bool> {
    run::run("temporal", (options.scale, 10.0), async |cluster| measure(cluster, options).await).await
}

async fn measure(cluster: &Cluster, options: &TemporalOptions) -> Result<(Map<String, Value>, bool)> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let count = |full: usize| ((full as f64 * options.scale) as usize).max(AT_ONCE * 2);
    // A short run is only for trying the harness, and proves little.
    let is_short = options.scale < 1.0;
    let (mut figures, mut held) = (Map::new(), true);
    figures.insert("server_flags".to_owned(), json!(server::FLAGS));
    figures.insert("at_once".to_owned(), json!(AT_ONCE));
    say(format!("server: temporal {}", server::FLAGS.join(" ")));
    if wanted("starts") {
        let starts = starts::measure(cluster, count(starts::ITEMS)).await.context("starts")?;
        held &= starts.add_to(&mut figures) >= LEAST_STARTS || is_short;
    }
    if wanted("e2e") {
        let runs = end_to_end::measure(cluster, count(end_to_end::ITEMS)).await.context("end to end")?;
        let (ten, light) = runs.add_to(&mut figures);
        held &= (ten >= LEAST_TEN && light >= LEAST_LIGHT) || is_short;
    }
    if wanted("history") {
        let bytes = history::measure_megabyte_output(cluster).await.context("history")?;
        say(format!("history of an execution with an output of 1 MB: {bytes} bytes"));
        figures.insert("history_bytes_1mb_output".to_owned(), json!(bytes));
        held &= bytes <= MOST_HISTORY;
    }
    Ok((figures, held))
}
