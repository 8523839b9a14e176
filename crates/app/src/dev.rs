//! `dev`: runs the whole service on this machine, with a private database and a demo.
//!
//! Invariants
//! - Data survives a restart unless `--ephemeral` is given. No program that `dev` started outlives this process.
//! - The root key is printed when it is created. Afterwards it exists only in files that this user alone can read.
//!
//! Not here: starting and stopping the database server (`private_postgres`), the root key (`dev::root_key`), the
//! profile that commands use (`dev::own_profile`).

mod own_profile;
mod root_key;
mod secret_key;
mod temporal;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kernel::ids::WorkspaceId;
use private_postgres::{self, Launcher, PrivatePostgres};
use serde_json::json;
use server::config::{EngineKind, Settings};
use server::{Role, Server, ServerOptions, StartError, wire};
use store::Store;
use store::access::key::Secret;
use store::connect::Target;

use crate::client::api::Api;
use crate::exit::usage_error;
use crate::output::{self, hint};
use crate::profile::{Dev, Profile};
use crate::serve::{hung_up, start_error, stopped};
use crate::settings::{DatabaseArgs, Origin, ServiceArgs, SettingsArgs};
use own_profile::OwnProfile;
pub(crate) use temporal::child_main as temporal_child;

/// Run the whole service on this machine, with a private database and a demo
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forebay dev                 keeps its data between starts
  forebay dev --ephemeral     deletes its data at the end

PostgreSQL 15 or later must be installed (Debian: apt-get install postgresql). You need not set up a database: `dev` \
runs a private server behind a socket that only this user can reach. To start over, stop it and remove the data \
directory.")]
pub(crate) struct DevArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// The directory for data [default: ~/.local/share/forebay, or /var/lib/forebay for root]
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Use a temporary database, which is faster and deleted at the end
    #[arg(long)]
    ephemeral: bool,
    /// Do not create the demo workspaces and workflows
    #[arg(long)]
    no_demo: bool,
    /// The directory of PostgreSQL's programs, if they are not found by themselves
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_PG_BIN")]
    postgres_bin: Option<PathBuf>,
    /// The engine: embedded, or temporal (uses a running Temporal server, else starts an installed one)
    #[arg(long, value_name = "ENGINE", value_parser = ["embedded", "temporal"])]
    engine: Option<String>,
}

/// The demo: a workspace per tier, and the example workflows in each.
const DEMO: [(&str, &str); 3] = [("demo-free", "FREE"), ("demo-pro", "PRO"), ("demo-enterprise", "ENTERPRISE")];
const EXAMPLES: [(&str, &str); 5] = [
    ("hello.yaml", include_str!("../../../examples/hello.yaml")),
    ("branches.yaml", include_str!("../../../examples/branches.yaml")),
    ("patience.yaml", include_str!("../../../examples/patience.yaml")),
    ("failure.yaml", include_str!("../../../examples/failure.yaml")),
    ("orders.yaml", include_str!("../../../examples/orders.yaml")),
];

/// The workspace of the workflow that the demo's events start.
const PLATFORM: (&str, &str) = ("platform", "ENTERPRISE");
const BOOTSTRAP: (&str, &str) = ("bootstrap.yaml", include_str!("../../../examples/bootstrap.yaml"));

/// The running service.
struct Running {
    service: Server,
    server: String,
    key: Secret,
    /// The profile for commands, if one was written.
    kept: Option<OwnProfile>,
}

impl DevArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let mut effective = self.sources.load(&DatabaseArgs::default(), &self.service)?;
        // During development, the services that a workflow calls run on the same machine.
        if *effective.origin("outbound.allow_loopback") == Origin::Default {
            effective.settings.outbound.allow_loopback = true;
        }
        if let Some(engine) = &self.engine {
            effective.settings.engine.kind = engine.clone().try_into().map_err(usage_error)?;
        }
        let program = hint::program();
        match effective.origin("database.url") {
            Origin::Default => Ok(effective.settings),
            Origin::Environment(name) => Err(usage_error(format!(
                "{name} is set, but `dev` runs a private database: unset the variable, or use your database with \
                 {program} serve"
            ))),
            Origin::Flag | Origin::File => Err(usage_error(format!(
                "database.url is set, but `dev` runs a private database: remove the setting, or use your database with \
                 {program} serve"
            ))),
        }
    }

    pub(crate) async fn run(self, mut settings: Settings) -> anyhow::Result<()> {
        let options = self.database()?;
        // No database is created for nothing. If there is one, its error names the process that uses it.
        if options.ephemeral || !options.data_dir.exists() {
            let address = settings.http.listen;
            TcpListener::bind(address).map_err(|source| start_error(StartError::Listen { address, source }))?;
        }
        let database = PrivatePostgres::start(options).await.map_err(|error| self.explain(error))?;
        settings.database.url = database.url();
        let temporal = match settings.engine.kind {
            EngineKind::Temporal => {
                let kept = (!self.ephemeral).then(|| database.data_dir().to_owned());
                match temporal::ensure(&mut settings, kept.as_deref()).await {
                    Ok(started) => started,
                    Err(error) => {
                        database.stop().await?;
                        return Err(error);
                    }
                }
            }
            _ => None,
        };
        let running = match self.start(settings, &database).await {
            Ok(running) => running,
            Err(error) => {
                database.stop().await?;
                return Err(error);
            }
        };
        let demo = if self.no_demo { Ok(()) } else { demo(&running.server, running.key.expose()).await };
        if let Err(error) = &demo {
            output::print_note(format!("the demo could not be created: {error:#}"))?;
        }
        // The profile and the demo exist now: commands work as soon as /readyz answers.
        running.service.mark_ready();
        if let Some(temporal) = &temporal {
            output::print_line(format!("\nTemporal's UI: {}", temporal.ui))?;
        }
        self.welcome(&running, &database)?;
        tokio::select! {
            () = stopped() => {}
            () = hung_up() => {}
        }
        // If the terminal was closed, this message cannot be written. That must not prevent an orderly stop.
        let _ = output::print_note("stopping…");
        running.service.shut_down().await;
        drop(temporal);
        let left = running.kept.as_ref().map_or(Ok(()), OwnProfile::remove_at_exit);
        database.stop().await?;
        left
    }

    fn database(&self) -> anyhow::Result<private_postgres::Options> {
        let program = std::env::current_exe().context("find this program's own file")?;
        let launcher = Launcher { program, args: vec!["postgres-child".into()] };
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/"));
        let data_dir = match (&self.data_dir, self.ephemeral) {
            (Some(given), _) => given.clone(),
            (None, true) => std::env::temp_dir(),
            (None, false) => private_postgres::default_data_dir(&home, nix::unistd::geteuid().is_root()),
        };
        let mut options = private_postgres::Options::new(data_dir, launcher);
        options.ephemeral = self.ephemeral;
        options.postgres_bin.clone_from(&self.postgres_bin);
        options.search_path = std::env::var_os("PATH");
        options.runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        options.progress = Box::new(|line| output::print_note(line).unwrap_or_default());
        Ok(options)
    }

    /// Adds to an error of the database server which flag of this command helps.
    fn explain(&self, error: private_postgres::Error) -> anyhow::Error {
        match error {
            private_postgres::Error::InUse { data_dir, pid } => {
                let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                anyhow::anyhow!(
                    "the data directory {} is in use by {holder}: stop that process, or start this one with another \
                     directory (--data-dir DIRECTORY) or none (--ephemeral), and with another address (--listen \
                     127.0.0.1:0)",
                    data_dir.display()
                )
            }
            private_postgres::Error::NotInGivenDir { dir } => {
                let by_variable = std::env::var_os("FOREBAY_PG_BIN").is_some_and(|given| given == dir.as_os_str());
                let what = if by_variable { "FOREBAY_PG_BIN" } else { "--postgres-bin" };
                let dir = dir.display();
                usage_error(format!("{what} {dir}: the directory has no postgres and initdb of version 15 or later"))
            }
            private_postgres::Error::NotFound => anyhow::anyhow!(
                "PostgreSQL 15 or later was not found: install it (Debian: apt-get install postgresql), or name its \
                 directory with --postgres-bin; {} serve --database-url uses a server elsewhere",
                hint::program()
            ),
            other => other.into(),
        }
    }

    async fn start(&self, mut settings: Settings, database: &PrivatePostgres) -> anyhow::Result<Running> {
        let target = Target::new(&database.url())?;
        store::migrate::migrate(&target).await?;
        let store = Store::new(&target, 1)?;
        let roles = Role::ALL.into_iter().collect();
        let data_dir = (!self.ephemeral).then(|| database.data_dir().to_owned());
        let file = data_dir.as_ref().map(|dir| dir.join(root_key::FILE));
        secret_key::ensure(&mut settings, data_dir.as_deref())?;
        let (key, is_new) = root_key::find_or_create(&store, file.as_deref()).await?;
        let options = ServerOptions { roles, only_process: true, local: true, wait_for_mark_ready: true };
        let service = Server::start(settings, options).await.map_err(start_error)?;
        let address = service.address.context("the API listens")?;
        // A client cannot connect to the unspecified address.
        let reached =
            if address.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, address.port()).into() } else { address };
        let server = format!("http://{reached}");
        if !address.ip().is_loopback() {
            output::print_note(format!(
                "warning: other machines can reach {address}, and workflows may call services on this machine"
            ))?;
        }
        if is_new {
            output::print_line(format!("root key (shown only once): {}", key.expose()))?;
        }
        if let Some(file) = &file {
            output::print_line(format!("The root key is saved in {}", file.display()))?;
        }
        let own = Profile { server: server.clone(), key: key.expose().parse()?, dev: Some(Dev { data_dir }) };
        let kept = match own_profile::write(own, &format!("dev-{}", address.port())).await {
            Ok(kept) => Some(kept),
            Err(error) => {
                output::print_note(format!("{error:#}; give the root key with --key or FOREBAY_KEY"))?;
                None
            }
        };
        Ok(Running { service, server, key, kept })
    }

    fn welcome(&self, running: &Running, database: &PrivatePostgres) -> anyhow::Result<()> {
        let program = hint::program();
        output::print_line(format!("\nForebay is running at {}", running.server))?;
        output::print_line(format!("Database: psql '{}'", database.psql_url()))?;
        let mut flags = String::new();
        if let Some(kept) = &running.kept {
            output::print_line(format!(
                "Commands read its address and root key from the profile {} ({})",
                kept.name,
                kept.path()
            ))?;
            if !kept.is_current {
                flags = format!(" --profile {}", hint::quote(&kept.name));
                output::print_line(format!(
                    "That is not the default profile: add{flags} to commands, or export FOREBAY_PROFILE={}",
                    kept.name
                ))?;
            }
        }
        if !self.no_demo {
            let patience = format!("{program} run patience --workspace demo-free --watch{flags}");
            output::print_line("\nTo try it, paste these commands in another terminal:\n")?;
            output::print_line(format!("  {program} run hello --workspace demo-pro -i name=Ada --watch{flags}"))?;
            output::print_line(format!("  {patience} & {patience}"))?;
            output::print_line(format!("  {program} workspace ls{flags}"))?;
        }
        output::print_line("\nPress Ctrl-C to stop everything.")?;
        Ok(())
    }
}

/// Creates the missing parts of the demo through the API.
async fn demo(server: &str, key: &str) -> anyhow::Result<()> {
    let api = Api::new(server, Some(key.parse()?))?;
    for (name, tier) in DEMO {
        let workspace = demo_workspace(&api, name, tier).await?;
        for example in EXAMPLES {
            publish(&api, workspace, example).await?;
        }
    }
    let platform = demo_workspace(&api, PLATFORM.0, PLATFORM.1).await?;
    publish(&api, platform, BOOTSTRAP).await
}

async fn demo_workspace(api: &Api, name: &str, tier: &str) -> anyhow::Result<WorkspaceId> {
    let known: wire::Page<wire::Workspace> = api.get("workspaces", &[("name", name)]).await?.value;
    match known.items.into_iter().next() {
        Some(workspace) => Ok(workspace.id),
        None => {
            let made: wire::Workspace = api.post("workspaces", &json!({ "name": name, "tier": tier })).await?.value;
            Ok(made.id)
        }
    }
}

async fn publish(api: &Api, workspace: WorkspaceId, (file, text): (&str, &str)) -> anyhow::Result<()> {
    let body = json!({ "source": text, "workspaceId": workspace });
    let applied = api.post::<wire::AppliedDefinition>("workflow/definitions/apply", &body).await;
    applied.with_context(|| format!("apply {file}"))?;
    Ok(())
}
