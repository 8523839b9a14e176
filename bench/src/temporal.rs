//! Temporal measured: what the service around it costs, beside a client and a workflow that do without.
//!
//! Invariants
//! - Both sides of a comparison take turns on one server, and the ratio is the median over pairs: what drifts decides
//!   nothing.
//! - Commits of PostgreSQL are flushed; the server is Temporal's own for development, in memory, with the flags that
//!   are told.
//! - Two promises are judged: starts at no less than 0.8 of a bare client's rate, on a full run, and outputs that stay
//!   out of history. The other figures are told.
//!
//! Not here: faults (`chaos`), what the database alone can do (`dispatch`).

mod end_to_end;
mod handwritten;
mod history;
mod server;
mod site;
mod starts;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay};
use crate::report::{self, say};

/// Starts, or runs, under way at once in every arm: what the service does by default.
const AT_ONCE: usize = 16;
/// Less than this of the bare client's rate, and the promise is broken.
const LEAST: f64 = 0.8;
/// The most history that an execution with an output of a megabyte may have.
const MOST_HISTORY: usize = 100_000;
const CONNECTIONS: u32 = 100;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Options {
    /// 1 is the full length; less is for trying the harness out.
    pub scale: f64,
    /// Parts to measure; none: all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 3] = ["starts", "e2e", "history"];

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &Options) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale: above 0, at most 10");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay(None)?, Commits::Flushed, CONNECTIONS).await?;
    let (measured, settings) = (measure(&cluster, options).await, cluster.settings().await);
    cluster.stop().await?;
    let (mut figures, held) = measured?;
    figures.insert("bench".to_owned(), json!("temporal"));
    figures.insert("machine".to_owned(), machine);
    figures.insert("settings".to_owned(), Value::Object(settings?));
    figures.insert("server_flags".to_owned(), json!(server::FLAGS));
    figures.insert("at_once".to_owned(), json!(AT_ONCE));
    figures.insert("scale".to_owned(), json!(options.scale));
    figures.insert("held".to_owned(), json!(held));
    report::figures(&Value::Object(figures))?;
    Ok(held)
}

async fn measure(cluster: &Cluster, options: &Options) -> Result<(Map<String, Value>, bool)> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let count = |full: usize| ((full as f64 * options.scale) as usize).max(AT_ONCE * 2);
    let (mut figures, mut held) = (Map::new(), true);
    say(format!("server: temporal {}", server::FLAGS.join(" ")));
    if wanted("starts") {
        let starts = starts::measure(cluster, count(starts::ITEMS)).await.context("starts")?;
        let ratio = starts.tell(&mut figures);
        // A short run is for trying it out, and says little.
        held &= ratio >= LEAST || options.scale < 1.0;
    }
    if wanted("e2e") {
        end_to_end::measure(cluster, count(end_to_end::ITEMS)).await.context("end to end")?.tell(&mut figures);
    }
    if wanted("history") {
        let bytes = history::of_a_megabyte(cluster).await.context("history")?;
        say(format!("history of an execution with an output of 1 MB: {bytes} bytes"));
        figures.insert("history_bytes_1mb_output".to_owned(), json!(bytes));
        held &= bytes <= MOST_HISTORY;
    }
    Ok((figures, held))
}
