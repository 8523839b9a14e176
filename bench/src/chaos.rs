//! The chaos harness: the real service, broken on purpose, and judged by what it left behind.
//!
//!     warm ──▶ faults (safety is judged) ──▶ heal ──▶ quiet (liveness is judged) ──▶ audit
//!
//! Invariants
//! - The judge trusts triggers and its own receiver, never the code it judges.
//! - Every choice comes from the seed, which is printed; what the machine does with it is its own.
//! - A run ends held, broken (an invariant did not hold, and which) or as an error (the harness failed).

mod api;
mod asking;
pub mod crowded;
pub mod durable;
mod journal;
mod judge;
mod limits;
mod load;
mod log;
pub mod long;
pub mod mixed;
pub mod mutant;
mod nemesis;
pub mod outage;
pub mod poison;
mod proxy;
mod setup;
pub mod short;
pub mod soak;
pub mod strangers;
pub mod strays;
pub mod strict;
pub mod temporal;
pub mod upgrade;
mod zombies;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

/// What a caller decides of a run.
#[derive(Clone, Debug)]
pub struct Request {
    pub forebay: PathBuf,
    pub seed: u64,
    /// How much of the full load.
    pub scale: f64,
    /// The short form: seconds, and every lease at a tenth.
    pub short: bool,
    /// Keep the processes' logs whatever happens.
    pub keep_logs: bool,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The invariants that did not hold.
    pub broken: Vec<String>,
    pub figures: Value,
}

/// The times by which processes are told dead, in ms.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    pub heartbeat: u64,
    pub shards: u64,
    pub claims: u64,
    pub runs: u64,
    pub poll: u64,
}

impl Leases {
    /// The defaults of the service, or a tenth of them.
    pub fn of(short: bool) -> Leases {
        let leases = Leases { heartbeat: 1_000, shards: 3_000, claims: 10_000, runs: 15_000, poll: 5_000 };
        let Leases { heartbeat, shards, claims, runs, poll } = leases;
        match short {
            false => leases,
            true => Leases {
                heartbeat: heartbeat / 10,
                shards: shards / 10,
                claims: claims / 10,
                runs: runs / 10,
                poll: poll / 10,
            },
        }
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!("process.heartbeat_ms={}", self.heartbeat),
            format!("process.shards_after_ms={}", self.shards),
            format!("process.claims_after_ms={}", self.claims),
            format!("process.runs_after_ms={}", self.runs),
            format!("dispatch.poll_interval_ms={}", self.poll),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "heartbeat_ms": self.heartbeat,
            "shards_after_ms": self.shards,
            "claims_after_ms": self.claims,
            "runs_after_ms": self.runs,
            "poll_interval_ms": self.poll,
        })
    }
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}
