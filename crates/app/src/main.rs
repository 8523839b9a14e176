//! The one binary: the service, and the commands that talk to it.
//!
//! Invariants
//! - Only here are arguments and environment read.
//! - Data goes to standard output, messages to standard error, and the exit code says how it went.

mod client;
mod dev;
mod exit;
mod output;
mod profile;
mod rotate;
mod serve;
mod settings;
mod telemetry;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

use crate::client::Format;
use crate::exit::Exit;
use crate::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs your customers' workflows, each customer within its limit, and loses nothing
#[derive(Parser, Debug)]
#[command(name = "forebay", version, disable_help_subcommand = true)]
#[command(long_about = "Runs your customers' workflows: graphs of HTTP calls, conditions and waits. Each customer, a \
workspace, has paid for a number of concurrent executions; Forebay queues what comes, starts it fairly and never above \
that number, records every node, and goes on where it was after any crash.\n\nStart with `forebay dev`: it needs no \
database set up by hand.", after_help = exit::HELP)]
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
    /// Look after the keys that seal secrets
    #[command(subcommand)]
    Secrets(rotate::Command),
    /// Make a root key for `serve`, on standard output; Forebay stores it nowhere
    #[command(
        after_help = "Example:\n  FOREBAY_AUTH_ROOT_KEY=$(forebay root-key) forebay serve --database-url …\n\nThe root \
            key may do everything. Keys of one workspace come from `forebay key create`."
    )]
    RootKey,
    #[command(flatten)]
    Client(client::Command),
    /// Print a script that completes commands in your shell
    #[command(
        after_help = "Examples:\n  forebay completion bash > ~/.local/share/bash-completion/completions/forebay\n  \
            forebay completion zsh > ~/.zfunc/_forebay\n  forebay completion fish > \
            ~/.config/fish/completions/forebay.fish"
    )]
    Completion {
        shell: clap_complete::Shell,
    },
    /// Starts the Temporal of `dev` so that it never outlives its parent
    #[command(hide = true)]
    TemporalChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Starts the database server of `dev` so that it never outlives its parent
    #[command(hide = true)]
    PostgresChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// What `serve` logs unless told otherwise: libraries speak up only when something is wrong.
const SERVE_LOGS: &str = "info,tokio_postgres=warn,temporalio_client=warn,temporalio_common=warn,\
temporalio_sdk=warn,temporalio_sdk_core=warn";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let arguments: Vec<String> = std::env::args().collect();
            return exit::refuse(&error, client::wanted(&arguments)).unwrap_or(ExitCode::FAILURE);
        }
    };
    exit::settle(run(cli), Format::Table).into()
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    if let Command::PostgresChild { args } = cli.command {
        match private_postgres::child_main(args)? {}
    }
    if let Command::TemporalChild { args } = cli.command {
        match dev::temporal_child(args)? {}
    }
    // Two TLS providers in one process would make the first TLS connection panic: this is the one.
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
            // Whom it waits for is told as it waits.
            let telemetry = Telemetry::start(&settings.log, "warn")?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Config(args) => args.run().map(done),
        Command::Secrets(command) => runtime.block_on(command.run()).map(done),
        Command::RootKey => output::line(store::access::key::Secret::generate()?.expose()).map(done),
        Command::Client(command) => Ok(runtime.block_on(command.run())),
        Command::Completion { shell } => complete(shell).map(done),
        Command::PostgresChild { .. } | Command::TemporalChild { .. } => Ok(Exit::Error),
    }
}

/// Writes the script at once: whoever reads it may be gone after its first line.
fn complete(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script).context("write to stdout")
}
