//! Strangers: clients that mean no good, one attack after the other, beside a steady load of others.
//!
//!     warm ──▶ before: the load alone ──▶ attack ──▶ rest ──▶ attack ──▶ rest … ──▶ audit
//!
//! Invariants
//! - Attacks come from addresses of their own (127.0.0.66 and up), and the load from 127.0.0.1: as in life, an attacker
//!   is not its victim. All traffic stays on the loopback interface, and each attack is bounded in count and time.
//! - What is judged: how long `/healthz` and other workspaces' executions take during each attack, how much memory the
//!   process takes in all, whether anything forbidden was called, whether a workspace's border was crossed, and how
//!   much `/metrics` grew.
//! - Times are judged in the full form only, on a machine that does nothing else; the short form shows them.
//! - An attack that was not sent is a failure of the harness, not a success.
//!
//! Not here: the attacks themselves (`attacks`), how the others fare (`watch`).

mod attacks;
mod borders;
mod ground;
mod sockets;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::mutant::Mutant;
use super::setup::{Setup, Stage};
use super::{Leases, Outcome, Request, ms, seconds};
use crate::measure::stats::{Sample, round};
use crate::receiver::Policy;
use crate::report::{machine, say};
use attacks::Attack;
use ground::{Canary, Ground};
use watch::{Seen, Watch};

/// What must hold, whatever strangers do.
const HEALTHZ_P99_MS: f64 = 250.0;
const RSS_GROWTH_MB: f64 = 200.0;
const OTHERS_P99_RATIO: f64 = 2.0;
const METRICS_GROWTH_KB: usize = 200;
/// Below this the others' pace is the machine's noise: a ratio is taken to at least so much.
const NOISE_MS: f64 = 50.0;

/// How long each part lasts.
#[derive(Clone, Copy, Debug)]
struct Size {
    before: Duration,
    attack: Duration,
    rest: Duration,
}

impl Size {
    fn of(short: bool) -> Size {
        let (before, attack, rest) = if short { (5, 3, 1) } else { (20, 20, 5) };
        let seconds = Duration::from_secs;
        Size { before: seconds(before), attack: seconds(attack), rest: seconds(rest) }
    }
}

/// How one attack went.
struct Attacked {
    name: &'static str,
    sent: usize,
    crossed: usize,
    seen: Seen,
}

/// Runs it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases, machine) = (Size::of(request.short), Leases::of(false), machine());
    say(format!(
        "strangers: {} attacks of {} s each, seed {}",
        attacks::ALL.len(),
        size.attack.as_secs(),
        request.seed
    ));
    let canary = Canary::start().await?;
    let policy = Policy { seed: request.seed, fast: (5, 20), slow: (5, 20), slow_every: 1, repeat: ms(0) };
    let mut stage = Stage { noted: false, ..Stage::new(1, leases, policy) };
    if mutant == Some(Mutant::OpenOutbound) {
        stage.allow = canary.addresses();
    }
    let setup = Setup::start(request, stage).await?;
    let ground = Arc::new(Ground::prepare(&setup, &canary).await?);
    let began = Instant::now();
    let (before, attacked) = setup.while_all_live(all(&setup, &ground, size)).await?;
    let metrics_kb = ground.metrics_bytes().await?.saturating_sub(ground.metrics_before) / 1024;
    let (mut figures, mut broken) = judge(&before, &attacked, canary.hits(), !request.short);
    if metrics_kb > METRICS_GROWTH_KB {
        broken.push(format!("/metrics grew by {metrics_kb} kB"));
    }
    figures["metrics_growth_kb"] = json!(metrics_kb);
    figures["run"] = json!("strangers");
    figures["seed"] = json!(request.seed);
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["seconds"] = json!(seconds(began.elapsed()));
    figures["machine"] = machine;
    figures["settings"] =
        json!({ "processes": 1, "attack_s": size.attack.as_secs(), "short": request.short, "leases": leases.json() });
    drop(ground);
    if let Some(logs) = setup.stop(request.keep_logs || !broken.is_empty()).await? {
        say(format!("the process's logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

/// The load alone, then each attack beside it.
async fn all(setup: &Setup, ground: &Arc<Ground>, size: Size) -> anyhow::Result<(Seen, Vec<Attacked>)> {
    let pid = setup.fleet.pids().first().copied().unwrap_or_default();
    let watch = Watch::start(ground, pid);
    // The first two seconds warm up.
    tokio::time::sleep(ms(2_000)).await;
    watch.take();
    tokio::time::sleep(size.before).await;
    let before = watch.take();
    ensure!(before.others.len() > 10, "the load does not run: {} executions ended", before.others.len());
    let mut attacked = Vec::new();
    for attack in attacks::ALL {
        let (sent, crossed) = commit(attack, ground, size.attack).await;
        // What came after the end of an attack because of it counts, too.
        tokio::time::sleep(size.rest).await;
        let seen = watch.take();
        say(format!(
            "{}: {sent} sent, /healthz p99 {} ms, others p99 {} ms, {} MB",
            attack.name,
            round(seen.health.p99()),
            round(seen.others.p99()),
            seen.memory_mb
        ));
        ensure!(sent > 0, "the attack {} was not sent", attack.name);
        attacked.push(Attacked { name: attack.name, sent, crossed, seen });
        ground.clean_up(setup).await?;
    }
    watch.stop().await;
    Ok((before, attacked))
}

/// Sends one attack for a while; how often, and how often it got across a border.
async fn commit(attack: &Attack, ground: &Arc<Ground>, lasts: Duration) -> (usize, usize) {
    let (sent, crossed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let until = tokio::time::Instant::now() + lasts;
    let mut strangers = tokio::task::JoinSet::new();
    for n in 0..attack.strangers {
        let (ground, sent, crossed) = (Arc::clone(ground), Arc::clone(&sent), Arc::clone(&crossed));
        let (shot, every) = (attack.shot, attack.every);
        strangers.spawn(async move {
            while tokio::time::Instant::now() < until {
                let shot = shot(Arc::clone(&ground), n);
                // A stranger gives up in time, and counts what it began.
                if let Ok(across) = tokio::time::timeout_at(until, shot).await {
                    crossed.fetch_add(usize::from(across), Ordering::Relaxed);
                }
                sent.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(every).await;
            }
        });
    }
    strangers.join_all().await;
    (sent.load(Ordering::Relaxed), crossed.load(Ordering::Relaxed))
}

fn judge(before: &Seen, attacked: &[Attacked], hits: usize, timed: bool) -> (Value, Vec<String>) {
    let usual = before.others.p99().max(NOISE_MS);
    let ratio = |sample: &Sample| round(sample.p99() / usual);
    let most = |of: &dyn Fn(&Attacked) -> f64| attacked.iter().map(of).fold(0.0, f64::max);
    let healthz = round(most(&|attacked| attacked.seen.health.p99()));
    let others = most(&|attacked| ratio(&attacked.seen.others));
    let growth = round(most(&|attacked| attacked.seen.memory_mb) - before.memory_mb).max(0.0);
    let crossed: usize = attacked.iter().map(|attacked| attacked.crossed).sum();
    let lost: usize = attacked.iter().map(|attacked| attacked.seen.failed).sum();
    let mut broken = Vec::new();
    let mut bound = |holds: bool, what: String| {
        if !holds {
            broken.push(what)
        }
    };
    bound(!timed || healthz <= HEALTHZ_P99_MS, format!("/healthz took {healthz} ms"));
    bound(growth <= RSS_GROWTH_MB, format!("memory grew by {growth} MB"));
    bound(!timed || others <= OTHERS_P99_RATIO, format!("others took {others} times as long"));
    bound(hits == 0, format!("{hits} forbidden calls arrived"));
    bound(crossed == 0, format!("{crossed} requests crossed a workspace's border"));
    bound(lost == 0, format!("{lost} executions of others did not complete"));
    let each: Vec<Value> = attacked
        .iter()
        .map(|attacked| {
            json!({
                "attack": attacked.name, "sent": attacked.sent, "crossed": attacked.crossed,
                "healthz_p99_ms": round(attacked.seen.health.p99()), "others_ms": attacked.seen.others.json(),
                "others_p99_ratio": ratio(&attacked.seen.others), "rss_mb": attacked.seen.memory_mb,
            })
        })
        .collect();
    let figures = json!({
        "healthz_p99_ms": healthz, "rss_growth_mb": growth, "others_p99_ratio": others, "hits": hits,
        "crossed": crossed,
        "others_failed": lost, "attacks": each,
        "before": {
            "others_ms": before.others.json(), "healthz_ms": before.health.json(), "rss_mb": before.memory_mb,
        },
    });
    (figures, broken)
}
