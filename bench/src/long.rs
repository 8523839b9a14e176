//! Measures long-running work: loops over many items, and executions that wait for an answer.
//!
//! Invariants
//! - Every loop has its own server process, so the peak of memory belongs to that loop.
//! - Baselines come from the same run: calls to the same receiver without the service, an idle server, and a wake-up
//!   while few executions wait.
//! - Two promises are judged: memory does not grow with the list, and finished items are not repeated after a kill. The
//!   other figures are reported.
//!
//! Not here: that every execution ends correctly while processes die (`chaos::long`).

mod loops;
pub(crate) mod sleeping;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::measure::run;
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::say;

/// The maximum ratio of a loop's memory peak to that of a loop a tenth as long.
const MOST_GROWTH: f64 = 1.3;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct LongOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 2] = ["loops", "sleeping"];

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &LongOptions) -> Result<bool> {
    run::run("long", (options.scale, 1.0), async |cluster| measure(cluster, options).await).await
}

async fn measure(cluster: &Cluster, options: &LongOptions) -> Result<(Map<String, Value>, bool)> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let (mut figures, mut held) = (Map::new(), true);
    if wanted("loops") {
        figures.insert("parallel".to_owned(), json!(loops::PARALLEL));
        let world = World::create(cluster, "loops").await?;
        let loops = loops::measure(&world, options.scale).await.context("loops")?;
        held &= loops.ratio() <= MOST_GROWTH && loops.killed.redone == 0;
        tell_loops(&loops, &mut figures);
    }
    if wanted("sleeping") {
        for (few, name) in [(true, "few"), (false, "many")] {
            let world = World::create(cluster, name).await?;
            let slept = sleeping::measure(&world, sleeping::Size::of(few, options.scale)).await.context("sleeping")?;
            tell_sleeping(&slept, few, &mut figures);
        }
    }
    Ok((figures, held))
}

fn tell_loops(loops: &loops::Loops, figures: &mut Map<String, Value>) {
    let (small, large, killed) = (&loops.small, &loops.large, &loops.killed);
    say(format!(
        "a loop of {} items: {:.0} items/s, {:.1} MB at its peak; one of {}: {:.1} MB: {:.2} times; an idle server \
         {:.1} MB; bare calls {:.0}/s",
        large.items,
        large.per_s,
        large.peak_mb,
        small.items,
        small.peak_mb,
        loops.ratio(),
        loops.idle_mb,
        loops.bare_per_s
    ));
    say(format!(
        "killed when {} items were done: {} done again, {} in flight were repeated, {:.1} s to its end",
        killed.done, killed.redone, killed.repeated, killed.took_s
    ));
    let named = [
        ("foreach_items_per_s", json!(large.per_s.round())),
        ("bare_calls_per_s", json!(loops.bare_per_s.round())),
        ("rss_ratio", json!(round(loops.ratio()))),
        (
            "rss_peak_mb",
            json!({ "idle": loops.idle_mb, "small": small.peak_mb, "large": large.peak_mb,
                "large_looked_at": loops.looked_at.peak_mb }),
        ),
        ("items", json!({ "small": small.items, "large": large.items })),
        ("redone", json!(killed.redone)),
        ("repeated_in_flight", json!(killed.repeated)),
        ("done_at_kill", json!(killed.done)),
        ("killed_loop_s", json!(round(killed.took_s))),
    ];
    figures.extend(named.map(|(name, value)| (name.to_owned(), value)));
}

fn tell_sleeping(slept: &sleeping::Slept, few: bool, figures: &mut Map<String, Value>) {
    say(format!(
        "{} sleep in {} workspaces, {:.0} s after the start: {:.1} MB resident, {:.1} in a new process, an idle one \
         has {:.1}; woken after p50 {:.1} ms, p99 {:.1} ms of {}",
        slept.sleeping,
        slept.workspaces,
        slept.parked_s,
        slept.rss_mb,
        slept.rss_new_mb,
        slept.rss_idle_mb,
        slept.wake.p50(),
        slept.wake.p99(),
        slept.wake.len()
    ));
    let wake = json!(round(slept.wake.p99()));
    if few {
        figures.insert(
            "few".to_owned(),
            json!({ "sleeping": slept.sleeping, "rss_mb_sleeping": slept.rss_mb, "wake_p99_ms": wake }),
        );
        return;
    }
    let named = [
        ("sleeping", json!(slept.sleeping)),
        ("sleeping_workspaces", json!(slept.workspaces)),
        ("parked_after_s", json!(round(slept.parked_s))),
        ("rss_mb_sleeping", json!(slept.rss_mb)),
        ("rss_mb_sleeping_new_process", json!(slept.rss_new_mb)),
        ("rss_mb_idle", json!(slept.rss_idle_mb)),
        ("wake_p99_ms", wake),
        ("wake_ms", slept.wake.json()),
    ];
    figures.extend(named.map(|(name, value)| (name.to_owned(), value)));
}
