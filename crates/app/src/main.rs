//! The one binary: the service, and the commands that talk to it.
//!
//! Invariants
//! - Only here are arguments and environment read.
//! - Data goes to standard output, messages to standard error, and the exit code says how it went.

mod client;
mod dev;
mod output;
mod serve;
mod settings;
mod telemetry;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::telemetry::Telemetry;

/// Runs your customers' workflows, each customer within its limit, and loses nothing.
#[derive(Parser, Debug)]
#[command(name = "forebay", version, propagate_version = true, disable_help_subcommand = true)]
#[command(long_about = "Runs your customers' workflows: graphs of HTTP calls, conditions and waits. Each customer, a \
workspace, has paid for a number of concurrent executions; Forebay queues what comes, starts it fairly and never above \
that number, records every node, and goes on where it was after any crash.\n\nStart with `forebay dev`: it needs no \
database set up by hand.", after_help = client::EXIT_CODES_HELP)]
struct Cli {
    #[command(flatten)]
    connection: client::Connection,
    /// What the service logs: error, warn, info, debug, or a filter such as info,store=debug.
    #[arg(long, global = true, env = "FOREBAY_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How the service logs (the setting log.format).
    #[arg(long, global = true, env = "FOREBAY_LOG_FORMAT", value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Dev(dev::DevArgs),
    Serve(serve::ServeArgs),
    Migrate(serve::MigrateArgs),
    Config(serve::ConfigArgs),
    /// Make a root key for `serve`, on standard output; Forebay stores it nowhere
    #[command(
        after_help = "Example:\n  FOREBAY_AUTH_ROOT_KEY=$(forebay root-key) forebay serve --database-url …\n\nThe root key may do everything. Keys of one workspace come from `forebay workspace key`."
    )]
    RootKey,
    #[command(flatten)]
    Client(client::Command),
    /// Starts the database server of `dev` so that it never outlives its parent.
    #[command(hide = true)]
    PostgresChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// What `serve` logs unless told otherwise: libraries speak up only when something is wrong.
const SERVE_LOGS: &str = "info,refinery_core=warn,tokio_postgres=warn";

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            let exit = client::report(&error).unwrap_or(client::Exit::Error);
            exit.into()
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Command::PostgresChild { args } = cli.command {
        match store::embedded::child_main(args)? {}
    }
    // Two TLS providers in one process would make the first TLS connection panic: this is the one.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Dev(args) => {
            let settings = args.settings(cli.log_format.as_ref())?;
            let telemetry = Telemetry::start(&settings.log, cli.log.as_deref(), "warn")?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Serve(args) => {
            let settings = args.settings(cli.log_format.as_ref())?;
            let telemetry = Telemetry::start(&settings.log, cli.log.as_deref(), SERVE_LOGS)?;
            let ended = runtime.block_on(args.run(settings));
            telemetry.stop();
            ended.map(done)
        }
        Command::Migrate(args) => runtime.block_on(args.run()).map(done),
        Command::Config(args) => args.run(cli.log_format.as_ref()).map(done),
        Command::RootKey => output::line(store::key::Secret::generate()?.expose()).map(done),
        Command::Client(command) => runtime.block_on(command.run(cli.connection)),
        Command::PostgresChild { .. } => Ok(ExitCode::FAILURE),
    }
}
