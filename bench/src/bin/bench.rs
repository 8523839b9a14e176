//! Runs the measurements by name: `./dev/bench admission`.
//!
//! Exit codes: 0 done; 3 a measured promise was broken; anything else, the harness failed.

use std::process::ExitCode;

use bench::{admission, dispatch, events, long, memory, peers, retention, scale, temporal};
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
    /// Is admission fast whatever backlog waits, and fair whichever workspace floods?
    Admission {
        /// Scale; 1 means a million waiting items. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = admission::PARTS)]
        only: Vec<String>,
    },
    /// How fast is the whole life of an execution, compared with the database alone?
    Dispatch {
        /// Scale; 1 means the full length. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = dispatch::PARTS)]
        only: Vec<String>,
    },
    /// How soon do subscribers receive a change, and what does that cost?
    Events {
        /// Scale; 1 means the full length. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = events::PARTS)]
        only: Vec<String>,
    },
    /// Loops over many items, and executions that wait: what do they cost, and how soon is one woken?
    Long {
        /// Scale; 1 means the full length. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = long::PARTS)]
        only: Vec<String>,
    },
    /// How much memory does a process use: idle, for each run and subscriber, after a burst? How soon is it ready?
    Memory {
        /// Scale; 1 means the full counts. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = memory::PARTS)]
        only: Vec<String>,
    },
    /// How does Forebay compare with other queues on PostgreSQL?
    Peers {
        /// Scale; 1 means a million waiting jobs. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = peers::PARTS)]
        only: Vec<String>,
        /// Write the tables into docs/reference/peers.md
        #[arg(long)]
        write_page: bool,
    },
    /// Does retention delete as many executions as end, if they are kept only for seconds?
    Retention {
        /// Scale; 1 means five minutes. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
    },
    /// What can one PostgreSQL carry: cost of an execution, bytes kept, vacuum, replication lag, and partitions?
    Scale {
        /// Scale; 1 means 100,000 executions of each graph. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = scale::PARTS)]
        only: Vec<String>,
        /// Write the tables into docs/explanation/scale.md
        #[arg(long)]
        write_page: bool,
    },
    /// What does the service cost compared with a bare Temporal client and a handwritten workflow?
    Temporal {
        /// Scale; 1 means the full length. Use less to try it
        #[arg(long, value_name = "F", default_value_t = 1.0)]
        scale: f64,
        /// Measure only these parts
        #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = temporal::PARTS)]
        only: Vec<String>,
    },
}

const BROKEN_PROMISE: u8 = 3;

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let held = match Cli::parse().what {
        What::Admission { scale, only } => {
            runtime.block_on(admission::run(&admission::AdmissionOptions { scale, parts: only }))?
        }
        What::Dispatch { scale, only } => {
            runtime.block_on(dispatch::run(&dispatch::DispatchOptions { scale, parts: only }))?
        }
        What::Events { scale, only } => runtime.block_on(events::run(&events::EventsOptions { scale, parts: only }))?,
        What::Long { scale, only } => runtime.block_on(long::run(&long::LongOptions { scale, parts: only }))?,
        What::Memory { scale, only } => runtime.block_on(memory::run(&memory::MemoryOptions { scale, parts: only }))?,
        What::Peers { scale, only, write_page } => {
            runtime.block_on(peers::run(&peers::PeersOptions { scale, parts: only, write_page }))?
        }
        What::Retention { scale } => runtime.block_on(retention::run(&retention::RetentionOptions { scale }))?,
        What::Scale { scale, only, write_page } => {
            runtime.block_on(scale::run(&scale::ScaleOptions { scale, parts: only, write_page }))?
        }
        What::Temporal { scale, only } => {
            runtime.block_on(temporal::run(&temporal::TemporalOptions { scale, parts: only }))?
        }
    };
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(BROKEN_PROMISE) })
}
