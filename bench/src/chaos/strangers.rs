//! Strangers: malicious clients send one attack after the other, next to a steady load of other clients.
//!
//!     warm ──▶ before: the load alone ──▶ attack ──▶ rest ──▶ attack ──▶ rest … ──▶ audit
//!
//! Invariants
//! - Attacks come from their own addresses (127.0.0.66 and up), and the load from 127.0.0.1, as attackers and victims
//!   differ in reality. All traffic stays on the loopback interface, and each attack is bounded in count and time.
//! - The run judges the response time of `/healthz`, the duration of other workspaces' executions, memory, forbidden
//!   calls, access to other workspaces, and the growth of `/metrics`.
//! - Times are judged only in the full form, on an otherwise idle machine. The short form just reports them.
//! - If an attack was not sent, the harness fails; the attack does not count as withstood.
//!
//! Not here: the attacks themselves (`attacks`), measuring how other clients are served (`watch`).

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
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::measure::stats::{Sample, round};
use crate::receiver::Policy;
use crate::report::{machine, say};
use attacks::Attack;
use ground::{Canary, Ground};
use watch::{Observed, Watch};

/// The limits that must hold during every attack.
const HEALTHZ_P99_MS: f64 = 250.0;
const RSS_GROWTH_MB: f64 = 200.0;
const OTHERS_P99_RATIO: f64 = 2.0;
const METRICS_GROWTH_KB: usize = 200;
/// Times below this are noise: a ratio is computed with at least this value.
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
        let (before, attack, rest) = if short { (3, 2, 1) } else { (20, 20, 5) };
        let seconds = Duration::from_secs;
        Size { before: seconds(before), attack: seconds(attack), rest: seconds(rest) }
    }
}

/// The measurements during one attack.
struct Attacked {
    name: &'static str,
    sent: usize,
    crossed: usize,
    seen: Observed,
}

/// Runs all attacks.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases, machine) = (Size::of(options.short), Leases::of(false), machine());
    let name = mutant.map_or("none", Mutant::name);
    say(format!("strangers: attacks of {} s each, seed {}, mutant {name}", size.attack.as_secs(), options.seed));
    let canary = Canary::start().await?;
    let policy = Policy { seed: options.seed, fast: (5, 20), slow: (5, 20), slow_every: 1, repeat: ms(0) };
    let mut stage = Stage { noted: false, ..Stage::new(1, leases, policy) };
    if mutant == Some(Mutant::OpenOutbound) {
        stage.allow = canary.addresses();
    }
    let setup = Setup::start(options, stage).await?;
    let ground = Arc::new(Ground::prepare(&setup, &canary).await?);
    let began = Instant::now();
    let (before, attacked) = setup.while_all_live(all(&setup, &ground, size, mutant)).await?;
    let metrics_kb = ground.metrics_bytes().await?.saturating_sub(ground.metrics_before) / 1024;
    let (mut figures, mut broken) = judge(&before, &attacked, canary.hits(), !options.short);
    if metrics_kb > METRICS_GROWTH_KB {
        broken.push(format!("/metrics grew by {metrics_kb} kB"));
    }
    figures["metrics_growth_kb"] = json!(metrics_kb);
    figures["run"] = json!("strangers");
    figures["seed"] = json!(options.seed);
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["seconds"] = json!(seconds(began.elapsed()));
    figures["machine"] = machine;
    figures["settings"] =
        json!({ "processes": 1, "attack_s": size.attack.as_secs(), "short": options.short, "leases": leases.json() });
    drop(ground);
    if let Some(logs) = setup.stop(options.keep_logs || !broken.is_empty()).await? {
        say(format!("the process's logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

/// Measures the load alone, then next to each attack. With a mutant, sends only the attack that must detect it.
async fn all(
    setup: &Setup,
    ground: &Arc<Ground>,
    size: Size,
    mutant: Option<Mutant>,
) -> anyhow::Result<(Observed, Vec<Attacked>)> {
    let pid = setup.fleet.pids().first().copied().unwrap_or_default();
    let watch = Watch::start(ground, pid);
    // The first two seconds are a warm-up.
    tokio::time::sleep(ms(2_000)).await;
    watch.take();
    tokio::time::sleep(size.before).await;
    let before = watch.take();
    ensure!(before.others.len() > 10, "the load does not run: {} executions ended", before.others.len());
    let mut attacked = Vec::new();
    for attack in attacks::ALL.iter().filter(|attack| mutant.is_none() || attack.name == attacks::OPEN_OUTBOUND) {
        let (sent, crossed) = commit(attack, ground, size.attack).await;
        // Effects that come after the end of an attack count too.
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

/// Sends one attack for a while. Returns how often it was sent, and how often it reached another workspace.
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
                // At the end of its time, an attacker stops waiting; the attack that it had begun still counts.
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

fn judge(before: &Observed, attacked: &[Attacked], hits: usize, timed: bool) -> (Value, Vec<String>) {
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
    bound(crossed == 0, format!("{crossed} requests reached another workspace"));
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
