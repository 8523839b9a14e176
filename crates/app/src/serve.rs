//! `serve`, `migrate` and `config`: the service over a database that somebody else runs.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use clap::Args;
use server::config::{REASONS, Settings};
use server::{Options, Role, Server};
use store::connect::Target;
use tokio_util::sync::CancellationToken;

use crate::output;
use crate::settings::SettingFlags;

/// Run Forebay over a PostgreSQL of your own.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forebay serve --database-url postgresql://forebay@db/forebay --roles api,dispatcher,worker\n\nSeveral processes may run side by side on one database; each says its roles."
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: SettingFlags,
    /// What this process does: api, dispatcher, worker.
    #[arg(long, value_delimiter = ',', default_value = "api,dispatcher,worker")]
    roles: Vec<String>,
}

/// Bring the database up to this version, and stop.
#[derive(Args, Debug)]
#[command(after_help = "`serve` and `dev` migrate by themselves; this is for those who want it as a step of its own.")]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    settings: SettingFlags,
}

/// Print the effective settings as TOML, each with its reason; secrets are masked.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    settings: SettingFlags,
}

impl ServeArgs {
    pub(crate) fn settings(&self, log_format: Option<&String>) -> anyhow::Result<Settings> {
        Ok(self.settings.load(log_format)?.settings)
    }

    pub(crate) async fn run(self, settings: Settings) -> anyhow::Result<()> {
        let roles = roles(&self.roles)?;
        let service = Server::start(settings, Options { roles, ..Options::default() }).await?;
        if let Some(address) = service.address {
            output::line(format!("Forebay listens on http://{address}"))?;
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
}

impl MigrateArgs {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let settings = self.settings.load(None)?.settings;
        if settings.database.url.is_empty() {
            bail!("give a database: --database-url postgresql://user@host/database");
        }
        let report = store::migrate::migrate(&Target::new(settings.direct_url())?).await?;
        match report.applied.as_slice() {
            [] => output::line("the database is up to date")?,
            applied => output::line(format!("applied {}", applied.join(", ")))?,
        }
        Ok(())
    }
}

impl ConfigArgs {
    pub(crate) fn run(self, log_format: Option<&String>) -> anyhow::Result<()> {
        let effective = self.settings.load(log_format)?;
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

fn roles(names: &[String]) -> anyhow::Result<BTreeSet<Role>> {
    let known = || Role::ALL.map(Role::name).join(", ");
    names
        .iter()
        .map(|name| Role::parse(name).with_context(|| format!("there is no role {name:?}: use {}", known())))
        .collect()
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
