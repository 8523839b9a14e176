//! `chaos NAME`: breaks the service on purpose and reports which invariants did not hold.
//!
//! Exit codes: 0 all invariants held, 3 one was broken, 2 wrong arguments, 1 the harness itself failed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::chaos::mutant::Mutant;
use bench::chaos::{
    ChaosOptions, Outcome, crowded, durable, long, mixed, outage, poison, short, soak, strangers, strays, strict,
    temporal, upgrade,
};
use bench::cluster;
use bench::report::{print_figures, say};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

/// Break the service on purpose, and check which invariants did not hold.
#[derive(Parser, Debug)]
#[command(name = "chaos")]
struct Args {
    /// What to run.
    name: Name,
    /// The seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The share of the full load, such as 0.1
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A wrong version of the service, which the judge must detect. Always runs in the short form
    #[arg(long)]
    mutant: Option<Mutant>,
    /// The short form: seconds instead of minutes, leases at a tenth.
    #[arg(long)]
    short: bool,
    /// How long a soak lasts.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Keep the processes' logs even if all invariants hold. FOREBAY_LOG sets how much they log
    #[arg(long)]
    keep_logs: bool,
    /// The service's binary, if it is not the one beside this program
    #[arg(long, value_name = "FILE", env = "FOREBAY_BIN")]
    forebay: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Limits hold, nothing starts twice, nothing is lost.
    Strict,
    /// The runs of a killed process are resumed where they were.
    Durable,
    /// The database crashes, connections are cut, the engine is unavailable: nothing is lost and nothing fails.
    Outage,
    /// Executions that break their process: each ends with its own reason, and the others are not affected.
    Poison,
    /// Minutes of load: throughput and memory stay stable.
    Soak,
    /// On a real Temporal, dispatchers, workers and the server die, and answers are lost: one run, one result.
    Temporal,
    /// Forebay's worker, HTTP workers and SQL workers share the same jobs and die: each job ends once.
    MixedWorkers,
    /// Children, loops, approvals and tasks, while servers and workers die: each ends once, as planned.
    Long,
    /// Every process is full and one after the other is killed: their runs and a quiet workspace do not wait.
    Crowded,
    /// Rows are deleted by hand, the engine is changed, every statement fails in every transient way: nothing is lost,
    /// duplicated or failed.
    Strays,
    /// Malicious clients: others are served as before, and no client sees another workspace.
    Strangers,
    /// The next release takes over a database with a long history, under load and during a dump: no request fails.
    Upgrade,
    /// A short form of every run, and of every mutant.
    Short,
    /// One of the workers that `mixed-workers` starts.
    #[value(hide = true)]
    JobWorker,
    /// One of the workers that `long` starts.
    #[value(hide = true)]
    TaskWorker,
}

impl Name {
    /// The mutants that this run must detect.
    fn mutants(self) -> &'static [Mutant] {
        match self {
            Name::Strict => &Mutant::OF_STRICT,
            Name::Outage => &Mutant::OF_OUTAGE,
            Name::Temporal => &Mutant::OF_TEMPORAL,
            Name::MixedWorkers => &Mutant::OF_MIXED,
            Name::Long => &Mutant::OF_LONG,
            Name::Crowded => &Mutant::OF_CROWDED,
            Name::Strays => &Mutant::OF_STRAYS,
            Name::Strangers => &Mutant::OF_STRANGERS,
            Name::Upgrade => &Mutant::OF_UPGRADE,
            Name::Durable | Name::Poison | Name::Soak | Name::Short | Name::JobWorker | Name::TaskWorker => &[],
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.mutant.is_some_and(|mutant| !args.name.mutants().contains(&mutant)) {
        Args::command().error(ErrorKind::ArgumentConflict, "this run has no such mutant").exit();
    }
    match args.name {
        Name::JobWorker => return work(mixed::worker::work()),
        Name::TaskWorker => return work(long::worker::work()),
        _ => {}
    }
    match run(args) {
        Ok(outcome) if outcome.broken.is_empty() => ExitCode::SUCCESS,
        Ok(outcome) => {
            say(format!("broken: {}", outcome.broken.join(", ")));
            ExitCode::from(3)
        }
        Err(error) => {
            say(format!("the harness failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<Outcome> {
    let options = ChaosOptions {
        forebay: cluster::forebay_binary(args.forebay)?,
        seed: args.seed,
        scale: args.scale,
        short: args.short || args.mutant.is_some(),
        keep_logs: args.keep_logs,
    };
    let mut outcome = runtime()?.block_on(async {
        match args.name {
            Name::Strict => strict::run(&options, args.mutant).await,
            Name::Durable => durable::run(&options).await,
            Name::Outage => outage::run(&options, args.mutant).await,
            Name::Poison => poison::run(&options).await,
            Name::Soak => soak::run(&options, args.minutes).await,
            Name::Temporal => temporal::run(&options, args.mutant).await,
            Name::MixedWorkers => mixed::run(&options, args.mutant).await,
            Name::Short => short::run(&options).await,
            Name::Long => long::run(&options, args.mutant).await,
            Name::Crowded => crowded::run(&options, args.mutant).await,
            Name::Strays => strays::run(&options, args.mutant).await,
            Name::Strangers => strangers::run(&options, args.mutant).await,
            Name::Upgrade => upgrade::run(&options, args.mutant).await,
            Name::JobWorker | Name::TaskWorker => anyhow::bail!("a worker cannot be run this way"),
        }
    })?;
    outcome.figures["broken"] = outcome.broken.clone().into();
    print_figures(&outcome.figures).context("print the figures")?;
    Ok(outcome)
}

/// Runs a worker until it is killed. The worker's output goes to its log.
fn work(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let worked = runtime().and_then(|runtime| runtime.block_on(work));
    if let Err(error) = worked {
        say(format!("the worker failed: {error:#}"));
    }
    ExitCode::FAILURE
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")
}
