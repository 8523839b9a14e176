//! Runs a measurement on a PostgreSQL server of its own, and prints or returns its figures.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay_binary};
use crate::report;

const CONNECTIONS: u32 = 100;

/// Runs a measurement and prints its figures. `measure` also returns whether the promises held, and so does this.
pub(crate) async fn run(
    bench: &str,
    (scale, largest): (f64, f64),
    measure: impl AsyncFnOnce(&Cluster) -> Result<(Map<String, Value>, bool)>,
) -> Result<bool> {
    let (figures, held) = figures(bench, (scale, largest), measure).await?;
    report::print_figures(&Value::Object(figures))?;
    Ok(held)
}

/// Runs a measurement and returns its figures, with the machine and the settings behind them.
pub(crate) async fn figures(
    bench: &str,
    (scale, largest): (f64, f64),
    measure: impl AsyncFnOnce(&Cluster) -> Result<(Map<String, Value>, bool)>,
) -> Result<(Map<String, Value>, bool)> {
    if !(scale > 0.0 && scale <= largest) {
        bail!("--scale must be greater than 0 and at most {largest}");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay_binary(None)?, Commits::Flushed, CONNECTIONS).await?;
    let (measured, settings) = (measure(&cluster).await, cluster.settings().await);
    cluster.stop().await?;
    let (mut figures, held) = measured?;
    figures.insert("bench".to_owned(), json!(bench));
    figures.insert("machine".to_owned(), machine);
    figures.insert("settings".to_owned(), Value::Object(settings?));
    figures.insert("scale".to_owned(), json!(scale));
    figures.insert("held".to_owned(), json!(held));
    Ok((figures, held))
}
