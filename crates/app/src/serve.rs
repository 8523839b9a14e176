//! `serve`, `worker`, `migrate` and `config`: the commands that run or prepare the service with an existing database.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use clap::Args;
use server::config::{DESCRIPTIONS, Settings};
use server::{Role, Server, ServerOptions, StartError};
use store::connect::Target;
use tokio_util::sync::CancellationToken;

use crate::exit::{as_usage_error, usage_error};
use crate::output;
use crate::settings::{DatabaseArgs, LoggingArgs, ServiceArgs, SettingsArgs};

/// Run the service over your own PostgreSQL
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay serve --database-url postgresql://forebay@db/forebay --roles \
        api,dispatcher,worker\n\nSeveral processes can share one database, each with its own roles.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// The roles of this process: api, dispatcher, worker
    #[arg(long, value_delimiter = ',', default_value = "api,dispatcher,worker", value_parser = read_role)]
    roles: Vec<Role>,
}

/// Run a worker process for executions that run on Temporal
#[derive(Args, Debug)]
#[command(after_help = "\
Run any number of workers, on any machine that reaches the database and Temporal. The command is the same as `forebay \
serve --roles worker`. After Ctrl-C or SIGTERM a worker takes no more work; another worker continues what it does not \
finish. With --set http.admin_listen=ADDRESS it answers /healthz, /readyz and /metrics.

Example:
  forebay worker --database-url postgresql://forebay@db/forebay --set engine.kind=temporal \
                 --set engine.temporal.address=http://temporal:7233")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    log: LoggingArgs,
}

/// Migrate the database to this version, then exit
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forebay migrate --database-url postgresql://forebay@db/forebay\n\n`serve` and `dev` \
        migrate when they start. Use this command to migrate as a separate step."
)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Print the effective settings as TOML, each with its description; secrets are masked
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay config --config forebay.toml --set dispatch.batch_max=200")]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

fn read_role(name: &str) -> Result<Role, String> {
    let known = || Role::ALL.map(Role::name).join(", ");
    Role::parse(name).ok_or_else(|| format!("use {}", known()))
}

impl ServeArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        Ok(self.sources.load(&self.database, &self.service)?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        serve(settings, self.roles.into_iter().collect()).await
    }
}

impl WorkerArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let service = ServiceArgs { logging: self.log.clone(), ..ServiceArgs::default() };
        Ok(self.sources.load(&self.database, &service)?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        serve(settings, BTreeSet::from([Role::Worker])).await
    }
}

/// Runs the service until a signal asks it to stop.
async fn serve(settings: Settings, roles: BTreeSet<Role>) -> anyhow::Result<()> {
    let started = Server::start(settings, ServerOptions { roles, ..ServerOptions::default() }).await;
    let service = started.map_err(start_error)?;
    if let Some(address) = service.address {
        output::print_line(format!("Forebay listens on http://{address}"))?;
    }
    if let Some(address) = service.admin_address {
        output::print_line(format!("Metrics and readiness are on http://{address}"))?;
    }
    output::print_line("ready")?;
    let broken = tokio::select! {
        () = stopped() => false,
        () = service.wait_for_failure() => true,
    };
    service.shut_down().await;
    if broken {
        bail!("a part of the service failed, so this process stopped: the log says which part, and why");
    }
    Ok(())
}

/// Converts the error of a start. Invalid settings become a usage error.
pub(crate) fn start_error(error: StartError) -> anyhow::Error {
    let program = output::hint::program();
    match error {
        StartError::NoDatabase => usage_error(format!(
            "no database is given: use --database-url postgresql://user@host/database or FOREBAY_DATABASE_URL, or \
             start a private database with: {program} dev"
        )),
        StartError::Setting(_) | StartError::Url(_) | StartError::NoRootKey { .. } | StartError::SplitRoles => {
            as_usage_error(&error.into())
        }
        other => other.into(),
    }
}

impl MigrateArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        Ok(self.sources.load(&self.database, &ServiceArgs::default())?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        if settings.database.url.is_empty() {
            return Err(start_error(StartError::NoDatabase));
        }
        let target = Target::new(settings.direct_url()).map_err(|error| start_error(error.into()))?;
        let report = store::migrate::migrate_again(&target).await?;
        match report.applied.as_slice() {
            [] => output::print_line("the database is up to date")?,
            applied => output::print_line(format!("applied {}", applied.join(", ")))?,
        }
        Ok(())
    }
}

impl ConfigArgs {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let effective = self.sources.load(&self.database, &self.service)?;
        let shown = toml::Table::try_from(effective.settings.masked()).context("print the settings")?;
        for (key, description) in DESCRIPTIONS {
            let value = key.split('.').try_fold(None, |at: Option<&toml::Value>, part| {
                let table = match at {
                    None => &shown,
                    Some(toml::Value::Table(table)) => table,
                    Some(_) => return None,
                };
                table.get(part).map(Some)
            });
            // TOML has no value for "not set", so such a key is written as a comment.
            let line = match value.flatten() {
                Some(value) => format!("{key} = {value} # {}", effective.origin(key)),
                None => format!("# {key} is not set"),
            };
            output::print_line(format!("# {description}\n{line}\n"))?;
        }
        Ok(())
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn stopped() {
    let stop = CancellationToken::new();
    let by_term = stop.clone();
    if let Ok(mut term) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::spawn(async move {
            term.recv().await;
            by_term.cancel();
        });
    }
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = stop.cancelled() => {}
    }
}

/// Waits for the signal SIGHUP, which a closed terminal sends. Waits forever if the process ignores it, as with
/// `nohup`.
pub(crate) async fn hung_up() {
    let hangup = tokio::signal::unix::SignalKind::hangup();
    if !ignores_hangup()
        && let Ok(mut hung_up) = tokio::signal::unix::signal(hangup)
    {
        hung_up.recv().await;
        return;
    }
    std::future::pending().await
}

/// Whether this process was started with SIGHUP ignored. If that cannot be found out, the answer is no.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1, so it is the lowest bit of the mask.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
