//! How far a limit is exceeded: eight workers run jobs of one tenant, whose limit is five, and one of them is killed
//! each second.
//!
//! Invariants
//! - A job runs from the begin that its handler reports until its end, or until its process is killed. The limit counts
//!   jobs that run, whatever the tables say.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use store::access::key::Secret;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::forebay;
use super::known::{LIMIT, TenantLimit};
use super::program::{PeerEvent, Program};
use super::queue::Queue;
use crate::measure::world::World;
use crate::random::Random;
use crate::service::{Fleet, Part, Spec, now_us};

const WORKERS: usize = 8;
/// Jobs at a time in one worker. A worker of a peer without a limit over processes runs one.
const CONCURRENCY: usize = 4;
const HOLD_MS: u64 = 200;
const KILL_EVERY: Duration = Duration::from_secs(1);
/// More than can run in time.
const WAITING: usize = 10_000;
/// How long a worker's pipe is read before the next look at the clock.
const LOOK: Duration = Duration::from_millis(50);
/// Connections of one process of Forebay, for each of its two pools.
const CONNECTIONS: u32 = 8;

/// What ran at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capped {
    pub(super) most: usize,
    pub(super) begun: usize,
    pub(super) kills: usize,
}

impl Capped {
    pub(super) fn json(&self) -> Value {
        json!({
            "limit": LIMIT,
            "most": self.most,
            "exceeded_by": self.most.saturating_sub(LIMIT),
            "begun": self.begun,
            "kills": self.kills,
        })
    }
}

/// When jobs of one worker began and ended, in microseconds.
type Intervals = Vec<(i64, i64)>;

/// Measures a peer.
pub(super) async fn measure(queue: &Queue<'_>, seconds: u64) -> Result<Capped> {
    queue.fill(WAITING, &json!({ "tenant": "capped", "hold": HOLD_MS })).await?;
    let concurrency = if queue.peer.limit == TenantLimit::Nothing { 1 } else { CONCURRENCY };
    let options = json!({ "trace": true, "concurrency": concurrency });
    let (mut intervals, mut kills, mut random) = (Intervals::new(), 0, Random::new(1));
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(Watched::start(queue.work(false, &options)?));
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        tokio::time::sleep(KILL_EVERY).await;
        let at = random.below(workers.len());
        let killed = std::mem::replace(&mut workers[at], Watched::start(queue.work(false, &options)?));
        intervals.extend(killed.stop().await?);
        kills += 1;
    }
    for worker in workers {
        intervals.extend(worker.stop().await?);
    }
    Ok(Capped { most: most_at_once(&intervals), begun: intervals.len(), kills })
}

/// A worker whose reports are collected.
struct Watched {
    stop: CancellationToken,
    task: JoinSet<Result<Intervals>>,
}

impl Watched {
    fn start(program: Program) -> Watched {
        let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
        task.spawn(watch(program, stop.clone()));
        Watched { stop, task }
    }

    /// Kills the worker. Its running jobs end at that time.
    async fn stop(mut self) -> Result<Intervals> {
        self.stop.cancel();
        self.task.join_next().await.context("a worker was stopped twice")?.context("watching a worker failed")?
    }
}

async fn watch(mut program: Program, stop: CancellationToken) -> Result<Intervals> {
    let mut events = Vec::new();
    while !stop.is_cancelled() {
        events.extend(program.next(LOOK).await?);
    }
    let killed_at = now_us();
    events.extend(program.kill().await?);
    let (mut running, mut intervals) = (HashMap::new(), Intervals::new());
    for event in events {
        match event {
            PeerEvent::Begins { id, at } => drop(running.insert(id, at)),
            PeerEvent::Ends { id, at } => intervals.extend(running.remove(&id).map(|began| (began, at))),
            _ => {}
        }
    }
    intervals.extend(running.into_values().filter(|began| *began < killed_at).map(|began| (began, killed_at)));
    Ok(intervals)
}

/// Measures Forebay: eight processes, each of which may do everything.
pub(super) async fn measure_ours(binary: &Path, world: &World, seconds: u64) -> Result<Capped> {
    let receiver = forebay::holding(HOLD_MS).await?;
    forebay::capped(world, &receiver, i64::try_from(WAITING)?).await?;
    let logs = std::env::temp_dir().join(format!("forebay-peers-{}", store::new_id().simple()));
    let spec = Spec {
        program: binary.to_owned(),
        part: Part::Everything,
        database_url: world.url.clone(),
        root_key: Secret::generate()?.expose().to_owned(),
        settings: vec![
            forebay::allowed(&receiver),
            format!("database.api_connections={CONNECTIONS}"),
            format!("database.work_connections={CONNECTIONS}"),
        ],
        order: Value::Null,
        environment: Vec::new(),
        logs: logs.clone(),
    };
    let fleet = Fleet::start(spec, WORKERS).await?;
    let (began, mut random, mut kills) = (Instant::now(), Random::new(1), 0);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + KILL_EVERY, KILL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while began.elapsed() < Duration::from_secs(seconds) {
        ticks.tick().await;
        let place = random.below(WORKERS);
        if fleet.kill(place).is_some() {
            kills += 1;
        }
        fleet.restart(place).await?;
    }
    let until = now_us();
    fleet.stop();
    std::fs::remove_dir_all(&logs).with_context(|| format!("remove {}", logs.display()))?;
    let intervals: Intervals =
        receiver.deliveries().iter().map(|request| (request.begin, request.end.unwrap_or(until))).collect();
    Ok(Capped { most: most_at_once(&intervals), begun: intervals.len(), kills })
}

/// How many intervals overlap, at most. One that ends when another begins does not overlap it.
fn most_at_once(intervals: &Intervals) -> usize {
    let mut changes: Vec<(i64, i32)> = intervals.iter().flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intervals_that_overlap_are_counted_together() {
        assert_eq!(most_at_once(&vec![(0, 10), (10, 20), (10, 30), (19, 40), (40, 50)]), 3);
        assert_eq!(most_at_once(&Vec::new()), 0);
    }
}
