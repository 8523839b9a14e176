//! The measurements, by name: `./dev/bench admission`.
//!
//! Exit codes: 0 done; 3 a promise was broken by what was measured; anything else, the harness failed.

use std::process::ExitCode;

use bench::{admission, dispatch, events, long, retention, temporal};
use clap::{Parser, Subcommand};

/// Measures Forebay on this machine. Figures go to standard output as one line of JSON.
#[derive(Parser, Debug)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Is admission flat, whatever waits, and fair, whoever floods?
    Admission {
        /// 1 is a million waiting items; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = admission::PARTS)]
        only: Vec<String>,
    },
    /// How fast is the whole life of an execution, beside what the database alone can do?
    Dispatch {
        /// 1 is the full length; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = dispatch::PARTS)]
        only: Vec<String>,
    },
    /// How soon is a change told, and what does telling cost?
    Events {
        /// 1 is the full length; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = events::PARTS)]
        only: Vec<String>,
    },
    /// Loops over many items, and executions that sleep: what do they cost, and how soon is one woken?
    Long {
        /// 1 is the full length; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = long::PARTS)]
        only: Vec<String>,
    },
    /// Is as much deleted as ends, while executions are kept for seconds?
    Retention {
        /// 1 is five minutes; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
    },
    /// What does the service cost beside a bare client of Temporal, and a workflow written by hand?
    Temporal {
        /// 1 is the full length; less is for trying it out.
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = temporal::PARTS)]
        only: Vec<String>,
    },
}

const BROKEN_PROMISE: u8 = 3;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let held = match Cli::parse().what {
        What::Admission { scale, only } => {
            runtime.block_on(admission::run(&admission::Options { scale, parts: only }))?
        }
        What::Dispatch { scale, only } => runtime.block_on(dispatch::run(&dispatch::Options { scale, parts: only }))?,
        What::Events { scale, only } => runtime.block_on(events::run(&events::Options { scale, parts: only }))?,
        What::Long { scale, only } => runtime.block_on(long::run(&long::Options { scale, parts: only }))?,
        What::Retention { scale } => runtime.block_on(retention::run(&retention::Options { scale }))?,
        What::Temporal { scale, only } => runtime.block_on(temporal::run(&temporal::Options { scale, parts: only }))?,
    };
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(BROKEN_PROMISE) })
}
