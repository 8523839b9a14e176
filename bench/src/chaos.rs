//! The chaos harness: breaks the real service on purpose, and then checks the records in the database for violated
//! invariants.
//!
//!     warm ──▶ faults (safety is judged) ──▶ heal ──▶ quiet (liveness is judged) ──▶ audit
//!
//! Invariants
//! - The judge reads only the log of its own triggers and its own HTTP receiver, never results that the service
//!   reports.
//! - Every random choice comes from the seed, which is printed. Two runs with one seed still differ in their timing.
//! - A run has one of three results: all invariants held, some were broken (they are listed), or the harness itself
//!   failed.

mod api;
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
mod phases;
pub mod poison;
mod proxy;
mod retrying_client;
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

/// The options of a run, from the command line.
#[derive(Clone, Debug)]
pub struct ChaosOptions {
    pub forebay: PathBuf,
    pub seed: u64,
    /// The share of the full load, such as 0.1.
    pub scale: f64,
    /// The short form: seconds instead of minutes, and every lease at a tenth of its default.
    pub short: bool,
    /// Keep the processes' logs even if all invariants hold.
    pub keep_logs: bool,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The invariants that did not hold.
    pub broken: Vec<String>,
    pub figures: Value,
}

/// The times after which processes are declared dead, in ms.
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
            format!("process.shard_lease_ms={}", self.shards),
            format!("process.claim_lease_ms={}", self.claims),
            format!("process.run_lease_ms={}", self.runs),
            format!("dispatch.poll_interval_ms={}", self.poll),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "heartbeat_ms": self.heartbeat,
            "shard_lease_ms": self.shards,
            "claim_lease_ms": self.claims,
            "run_lease_ms": self.runs,
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
