//! Measures expressions: the cost of typical expressions compared with the interpreter of the crate `cel`, which parses
//! them, and how soon attacks are stopped.
//!
//! Invariants
//! - Both sides evaluate the same parsed expressions over the same data, in the same run.
//! - An attack that is not stopped, or takes more memory than promised, is a broken promise.
//!
//! Not here: the attacks themselves (`crates/kernel/tests/it/attacks.rs`).

#[path = "../../crates/kernel/tests/it/attacks.rs"]
mod attacks;
mod typical;

use std::time::Instant;

use anyhow::Result;
use kernel::expression::Expression;
use serde_json::json;

use crate::measure::stats::round;
use crate::report::{self, say};

/// The promise is broken if an attack uses more memory than this, in MB.
const MOST_MB: f64 = 16.0;
const ATTACK_ROUNDS: usize = 5;

/// How the process counts its allocations.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes allocated now.
    pub now: fn() -> usize,
    /// The maximum number of bytes allocated since the last reset.
    pub peak: fn() -> usize,
    /// Resets the peak.
    pub reset: fn(),
}

/// How an attack ended.
struct Ended {
    stopped: bool,
    ms: f64,
    mb: f64,
}

/// Runs the measurement and prints it. True if every attack was stopped.
pub fn run(scale: f64, memory: Memory) -> Result<bool> {
    let machine = report::machine();
    let typical = typical::measure(scale)?;
    let scope = attacks::scope();
    let (mut count, mut stopped, mut worst_ms, mut worst_mb) = (0, 0, 0_f64, 0_f64);
    for attack in attacks::attacks() {
        let ended = attack_once(&attack.source, &scope, memory);
        say(format_args!("{:<32} {:>9.3} ms {:>7.2} MB  {:?}", attack.name, ended.ms, ended.mb, attack.stop));
        count += 1;
        stopped += usize::from(ended.stopped);
        worst_ms = worst_ms.max(ended.ms);
        worst_mb = worst_mb.max(ended.mb);
    }
    report::print_figures(&json!({
        "ours_us": round(typical.ours_us),
        "crate_us": round(typical.crate_us),
        "ours_parse_us": round(typical.ours_parse_us),
        "crate_parse_us": round(typical.crate_parse_us),
        "template_us": round(typical.template_us),
        "attacks": count,
        "attacks_stopped": stopped,
        "worst_stop_ms": round(worst_ms),
        "worst_stop_mb": round(worst_mb),
        "machine": machine,
    }))?;
    Ok(stopped == count && worst_mb <= MOST_MB)
}

/// The median time of a few rounds, and the maximum memory of any.
fn attack_once(source: &str, scope: &kernel::expression::Scope, memory: Memory) -> Ended {
    let mut times = Vec::new();
    let (mut stopped, mut most) = (true, 0);
    for _ in 0..ATTACK_ROUNDS {
        let before = (memory.now)();
        (memory.reset)();
        let start = Instant::now();
        let value = Expression::parse(source).ok().map(|expression| expression.eval(scope));
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
        most = most.max((memory.peak)().saturating_sub(before));
        stopped &= !matches!(value, Some(Ok(_)));
    }
    Ended { stopped, ms: crate::measure::stats::median(&times), mb: most as f64 / f64::from(1 << 20) }
}
