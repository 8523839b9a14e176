//! Measures expressions in a separate program: it counts allocations, which would slow down the other benchmarks.
//!
//! Exit codes: 0 done; 3 an attack was not stopped; anything else, the harness failed.

use std::process::ExitCode;

use bench::expressions::{self, Memory};
use clap::Parser;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// What do expressions cost, and how soon are attacks stopped?
#[derive(Parser, Debug)]
#[command(name = "expressions")]
struct Cli {
    /// Scale; 1 means the full length. Use less to try it
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
}

const BROKEN_PROMISE: u8 = 3;

fn main() -> anyhow::Result<ExitCode> {
    let memory = Memory {
        now: || ALLOCATED.current_usage(),
        peak: || ALLOCATED.peak_usage(),
        reset: || ALLOCATED.reset_peak_usage(),
    };
    let held = expressions::run(Cli::parse().scale, memory)?;
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(BROKEN_PROMISE) })
}
