//! `chaos NAME`: breaks the service on purpose and says what did not hold.
//!
//! Exit codes: 0 all invariants held, 3 one broke, 2 a wrong call, 1 the harness itself failed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::chaos::mutant::Mutant;
use bench::chaos::{
    Outcome, Request, crowded, durable, long, mixed, outage, poison, short, soak, strangers, strays, strict, temporal,
    upgrade,
};
use bench::cluster;
use bench::report::{figures, say};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

/// Break the service on purpose, and judge what it left behind.
#[derive(Parser, Debug)]
#[command(name = "chaos")]
struct Args {
    /// What to run.
    name: Name,
    /// Where every choice comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much of the full load, such as 0.1.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A wrong version of the service, which must be found out; always in the short form.
    #[arg(long)]
    mutant: Option<Mutant>,
    /// The short form: seconds instead of minutes, leases at a tenth.
    #[arg(long)]
    short: bool,
    /// How long a soak lasts.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Keep the processes' logs even if all is well; FOREBAY_LOG says how much they log.
    #[arg(long)]
    keep_logs: bool,
    /// The service's binary, if not the one beside this program.
    #[arg(long, value_name = "FILE", env = "FOREBAY_BIN")]
    forebay: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Limits hold, nothing starts twice, nothing is lost.
    Strict,
    /// A killed process's runs go on where they were.
    Durable,
    /// The database crashes, connections are cut, the engine is away: nothing is lost, nothing fails by it.
    Outage,
    /// Executions that break what runs them: each ends with its reason, the others do not notice.
    Poison,
    /// Minutes of load: nothing wears out.
    Soak,
    /// On a real Temporal: dispatchers, workers and the server die, answers never come: one run, one result.
    Temporal,
    /// Workers of ours, over HTTP and in plain SQL take the same jobs and die: each job ends once.
    MixedWorkers,
    /// Children, loops, approvals and tasks, while servers and workers die: each ends once, as it was planned to.
    Long,
    /// Every process is full and one after the other is killed: their runs and a quiet workspace do not wait.
    Crowded,
    /// Rows are deleted by hand, the engine is another, every statement fails in every way that passes: nothing is
    /// lost, doubled or failed by it.
    Strays,
    /// Clients that mean no good: others are served as before, and no border is crossed.
    Strangers,
    /// The next release takes over a database with a long history, under load and beside a dump: nobody notices.
    Upgrade,
    /// A short form of each, and of each mutant.
    Short,
    /// One of the workers that `mixed-workers` starts.
    #[value(hide = true)]
    JobWorker,
    /// One of the workers that `long` starts.
    #[value(hide = true)]
    TaskWorker,
}

impl Name {
    /// The mutants that it must find.
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
        Args::command().error(ErrorKind::ArgumentConflict, "this run does not know that mutant").exit();
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
    let request = Request {
        forebay: cluster::forebay(args.forebay)?,
        seed: args.seed,
        scale: args.scale,
        short: args.short || args.mutant.is_some(),
        keep_logs: args.keep_logs,
    };
    let mut outcome = runtime()?.block_on(async {
        match args.name {
            Name::Strict => strict::run(&request, args.mutant).await,
            Name::Durable => durable::run(&request).await,
            Name::Outage => outage::run(&request, args.mutant).await,
            Name::Poison => poison::run(&request).await,
            Name::Soak => soak::run(&request, args.minutes).await,
            Name::Temporal => temporal::run(&request, args.mutant).await,
            Name::MixedWorkers => mixed::run(&request, args.mutant).await,
            Name::Short => short::run(&request).await,
            Name::Long => long::run(&request, args.mutant).await,
            Name::Crowded => crowded::run(&request, args.mutant).await,
            Name::Strays => strays::run(&request, args.mutant).await,
            Name::Strangers => strangers::run(&request, args.mutant).await,
            Name::Upgrade => upgrade::run(&request, args.mutant).await,
            Name::JobWorker | Name::TaskWorker => anyhow::bail!("a worker is no run"),
        }
    })?;
    outcome.figures["broken"] = outcome.broken.clone().into();
    figures(&outcome.figures).context("print the figures")?;
    Ok(outcome)
}

/// Works until it is killed. Whatever it says goes to its log.
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
