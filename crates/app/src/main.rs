//! The only binary: the service, and the commands that send requests to it.
//!
//! Invariants
//! - Only this crate reads arguments and environment variables.
//! - Data goes to standard output, messages to standard error, and the exit code reports how the command ended.

mod client;
mod command_list;
mod dev;
mod exit;
mod output;
mod profile;
mod serve;
mod settings;
mod telemetry;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::client::Format;
use crate::exit::Exit;
use crate::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run workflows for many customers, each within its own concurrency limit
#[derive(Parser, Debug)]
#[command(name = "forebay", version, disable_help_subcommand = true)]
#[command(
    long_about = "\
Forebay runs workflows for many customers. A workflow is a graph of HTTP calls, conditions and waits. Each customer is \
a workspace with a limit on concurrent executions. Forebay queues every requested execution, starts it fairly within \
that limit, records every node, and resumes after a crash.

Start with `forebay dev`: it needs no database that you set up yourself.",
    after_help = exit::HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dev(dev::DevArgs),
    Serve(serve::ServeArgs),
    Worker(serve::WorkerArgs),
    Migrate(serve::MigrateArgs),
    Config(serve::ConfigArgs),
    /// Print a new root key for `serve`; Forebay does not store it
    #[command(
        after_help = "Example:\n  FOREBAY_AUTH_ROOT_KEY=$(forebay root-key) forebay serve --database-url …\n\nThe \
            root key may do everything. `forebay key create` creates keys that are limited to one workspace."
    )]
    RootKey,
    #[command(flatten)]
    Client(client::ClientCommand),
    /// Print a completion script for your shell
    #[command(
        after_help = "Examples:\n  forebay completion bash > ~/.local/share/bash-completion/completions/forebay\n  \
            forebay completion zsh > ~/.zfunc/_forebay\n  forebay completion fish > \
            ~/.config/fish/completions/forebay.fish"
    )]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Run the Temporal server of `dev`, which ends with its parent
    #[command(hide = true)]
    TemporalChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run the database server of `dev`, which ends with its parent
    #[command(hide = true)]
    PostgresChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// The default log filter of `serve`: libraries log only warnings and errors.
const SERVE_LOGS: &str = "info,tokio_postgres=warn,temporalio_client=warn,temporalio_common=warn,\
temporalio_sdk=warn,temporalio_sdk_core=warn";

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => {
            let arguments: Vec<String> = std::env::args().collect();
            return exit::report_usage(&error, client::requested_format(&arguments)).unwrap_or(ExitCode::FAILURE);
        }
    };
    exit::report_result(run(cli), Format::Table).into()
}

fn parse() -> Result<Cli, clap::Error> {
    let matches = command_list::grouped(Cli::command()).try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    if let Command::PostgresChild { args } = cli.command {
        match private_postgres::child_main(args)? {}
    }
    if let Command::TemporalChild { args } = cli.command {
        match dev::temporal_child(args)? {}
    }
    // The first TLS connection panics if a process has two TLS providers and no default: this sets the default.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let done = |()| Exit::Done;
    match cli.command {
        Command::Dev(args) => {
            let settings = args.settings()?;
            let telemetry = Telemetry::start(&settings.log, "warn")?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Serve(args) => {
            let settings = args.settings()?;
            let telemetry = Telemetry::start(&settings.log, SERVE_LOGS)?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Worker(args) => {
            let settings = args.settings()?;
            let telemetry = Telemetry::start(&settings.log, SERVE_LOGS)?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Migrate(args) => {
            let settings = args.settings()?;
            // While the migration waits for a lock, it logs a warning that names the process with the lock.
            let telemetry = Telemetry::start(&settings.log, "warn")?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Config(args) => args.run().map(done),
        Command::RootKey => output::print_line(store::access::key::Secret::generate()?.expose()).map(done),
        Command::Client(command) => Ok(runtime.block_on(command.run())),
        Command::Completion { shell } => complete(shell).map(done),
        Command::PostgresChild { .. } | Command::TemporalChild { .. } => Ok(Exit::Error),
    }
}

/// Writes the script with one call: a reader such as `head` may close the pipe after the first line.
fn complete(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script).context("write to stdout")
}
