//! `serve`, `migrate` and `config`: the service over a database that somebody else runs.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use clap::Args;
use server::config::{REASONS, Settings};
use server::{Options, Role, Server, StartError};
use store::connect::Target;
use tokio_util::sync::CancellationToken;

use crate::exit::{as_usage, usage};
use crate::output;
use crate::settings::{Database, Logging, Service, Sources};

/// Run Forebay over a PostgreSQL of your own
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay serve --database-url postgresql://forebay@db/forebay --roles \
        api,dispatcher,worker\n\nSeveral processes may run side by side on one database; each says its roles.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    service: Service,
    /// What this process does: api, dispatcher, worker
    #[arg(long, value_delimiter = ',', default_value = "api,dispatcher,worker", value_parser = read_role)]
    roles: Vec<Role>,
}

/// Do the work of executions that run on Temporal, beside other workers
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forebay worker --database-url postgresql://forebay@db/forebay --set engine.kind=temporal \
        --set engine.temporal.address=http://temporal:7233\n\nAs many as you like, anywhere that reaches the database \
        and Temporal. It is `forebay serve --roles worker`. Told to stop, it takes nothing more; what it cannot \
        finish, another worker does. With --set http.admin_listen=ADDRESS it answers /healthz, /readyz and /metrics."
)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    log: Logging,
}

/// Bring the database up to this version, and stop
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forebay migrate --database-url postgresql://forebay@db/forebay\n\n`serve` and `dev` \
        migrate by themselves; this is for those who want it as a step of its own."
)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
}

/// Print the effective settings as TOML, each with its reason; secrets are masked
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay config --config forebay.toml --set dispatch.batch_max=200")]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    service: Service,
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
        let service = Service { logging: self.log.clone(), ..Service::default() };
        Ok(self.sources.load(&self.database, &service)?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        serve(settings, BTreeSet::from([Role::Worker])).await
    }
}

/// Runs the service until it is told to stop.
async fn serve(settings: Settings, roles: BTreeSet<Role>) -> anyhow::Result<()> {
    let started = Server::start(settings, Options { roles, ..Options::default() }).await;
    let service = started.map_err(start_error)?;
    if let Some(address) = service.address {
        output::line(format!("Forebay listens on http://{address}"))?;
    }
    if let Some(address) = service.admin_address {
        output::line(format!("Metrics and readiness are on http://{address}"))?;
    }
    output::line("ready")?;
    let broken = tokio::select! {
        () = stopped() => false,
        () = service.broken() => true,
    };
    service.stop().await;
    if broken {
        bail!("a part of the service broke off; the log says which");
    }
    Ok(())
}

/// Why the service does not start; what was given wrongly is wrong usage.
pub(crate) fn start_error(error: StartError) -> anyhow::Error {
    let program = output::hint::program();
    match error {
        StartError::NoDatabase => usage(format!(
            "give a database: --database-url postgresql://user@host/database, or FOREBAY_DATABASE_URL; \
             {program} dev runs one of its own"
        )),
        StartError::Setting(_) | StartError::Url(_) | StartError::NoRootKey { .. } | StartError::SplitRoles => {
            as_usage(&error.into())
        }
        other => other.into(),
    }
}

impl MigrateArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        Ok(self.sources.load(&self.database, &Service::default())?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        if settings.database.url.is_empty() {
            return Err(start_error(StartError::NoDatabase));
        }
        let target = Target::new(settings.direct_url()).map_err(|error| start_error(error.into()))?;
        let report = store::migrate::migrate_again(&target).await?;
        match report.applied.as_slice() {
            [] => output::line("the database is up to date")?,
            applied => output::line(format!("applied {}", applied.join(", ")))?,
        }
        Ok(())
    }
}

impl ConfigArgs {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let effective = self.sources.load(&self.database, &self.service)?;
        let shown = toml::Table::try_from(effective.settings.masked()).context("print the settings")?;
        for (key, reason) in REASONS {
            let value = key.split('.').try_fold(None, |at: Option<&toml::Value>, part| {
                let table = match at {
                    None => &shown,
                    Some(toml::Value::Table(table)) => table,
                    Some(_) => return None,
                };
                table.get(part).map(Some)
            });
            // TOML has no word for "not set".
            let line = match value.flatten() {
                Some(value) => format!("{key} = {value} # {}", effective.origin(key)),
                None => format!("# {key} is not set"),
            };
            output::line(format!("# {reason}\n{line}\n"))?;
        }
        Ok(())
    }
}

/// Waits for Ctrl-C or a polite request to end.
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

/// Waits for the terminal to be closed; for ever where that is to be ignored, as `nohup` asks.
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

/// What this process was started with; where the system does not say, nothing is ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is the first signal.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
