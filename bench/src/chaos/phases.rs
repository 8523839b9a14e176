//! Two phases that several runs share: the load with faults beside it, and the quiet until everything has ended.
//!
//! Invariants
//! - A process of the harness that stops early, or a process of the service that falls by itself, fails the run.
//!
//! Not here: the load, the faults, and what is open (each run has its own).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ms;
use crate::report::{progress, say};

/// How often a line of progress stays.
const EVERY: Duration = Duration::from_secs(15);

/// The line that shows how far a run is.
pub(super) struct Shown(Instant);

impl Shown {
    pub(super) fn new() -> Shown {
        Shown(Instant::now())
    }

    pub(super) fn show(&mut self, text: String) {
        if self.0.elapsed() > EVERY {
            self.0 = Instant::now();
            say(text);
        } else {
            progress(text);
        }
    }
}

/// Lets the tasks run until `look` returns whether it found what a mutant broke, or that the faults are over. Then
/// stops the tasks. True if something was found.
pub(super) async fn faults(
    mut tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    (one_falls, logs): (impl AsyncFn() -> String, &Path),
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<bool>>,
) -> anyhow::Result<bool> {
    let is_found = loop {
        tokio::select! {
            Some(done) = tasks.join_next() => done.context("a task of the harness stopped early")??,
            fallen = one_falls() => bail!("{fallen}; the logs are in {}", logs.display()),
            () = tokio::time::sleep(ms(200)) => {}
        }
        if let Some(is_found) = look().await? {
            break is_found;
        }
    };
    stop.cancel();
    if is_found {
        tasks.abort_all();
        return Ok(true);
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task of the harness stopped early")??;
    }
    Ok(false)
}

/// Waits until nothing is open, or until that number has not fallen for this long. `what`: what is open.
pub(super) async fn quiet(
    (what, patience): (&str, Duration),
    (one_falls, logs): (impl AsyncFn() -> String, &Path),
    mut open: impl AsyncFnMut() -> anyhow::Result<usize>,
) -> anyhow::Result<()> {
    let (mut last, mut since) = (usize::MAX, Instant::now());
    loop {
        let open = open().await?;
        if open < last {
            (last, since) = (open, Instant::now());
        }
        if open == 0 {
            return Ok(());
        }
        if since.elapsed() > patience {
            say(format!("{open} {what} have not ended and no longer make progress"));
            return Ok(());
        }
        tokio::select! {
            fallen = one_falls() => bail!("{fallen}; the logs are in {}", logs.display()),
            () = tokio::time::sleep(ms(100)) => {}
        }
    }
}
