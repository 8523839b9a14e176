//! `dev`: everything on this machine with nothing to set up, and a demo to watch.
//!
//! Invariants
//! - Data survives a restart unless asked not to; nothing that was started outlives this process.
//! - The root key is printed when it is made; afterwards only files of this user hold it.
//!
//! Not here: the database server's life (`private_postgres`), the key's (`dev::root_key`), where commands find it
//! (`dev::keep`).

mod keep;
mod root_key;
mod secret_key;
mod temporal;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kernel::ids::WorkspaceId;
use private_postgres::{self, Launcher, PrivatePostgres};
use serde_json::json;
use server::config::{EngineKind, Settings};
use server::{Options, Role, Server, wire};
use store::Store;
use store::access::key::Secret;
use store::connect::Target;

use crate::client::api::Api;
use crate::exit::usage;
use crate::output::{self, hint};
use crate::profile::{Dev, Profile};
use crate::serve::{hung_up, start_error, stopped};
use crate::settings::{Database, Origin, Service, Sources};
use keep::Kept;
pub(crate) use temporal::child_main as temporal_child;

/// Run everything on this machine: a database of its own, the API, the engine, a demo
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  forebay dev                 data is kept between starts\n  forebay dev --ephemeral     \
        data is gone at the end\n\nIt needs PostgreSQL 15 or later installed (Debian: apt-get install postgresql), but \
        no database set up: it runs a private one over a socket that only this user can reach. To begin anew, stop it \
        and remove the data directory."
)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    service: Service,
    /// Where data is kept [default: ~/.local/share/forebay, or /var/lib/forebay for root]
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Keep nothing: a temporary database, faster and gone at the end
    #[arg(long)]
    ephemeral: bool,
    /// Leave the demo workspaces and workflows out
    #[arg(long)]
    no_demo: bool,
    /// Where PostgreSQL's programs are, if not in a usual place
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_PG_BIN")]
    postgres_bin: Option<PathBuf>,
    /// What runs executions: embedded, or temporal, which is used if it runs and else started if it is installed
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

/// What events start in the demo, whosever they are.
const PLATFORM: (&str, &str) = ("platform", "ENTERPRISE");
const BOOTSTRAP: (&str, &str) = ("bootstrap.yaml", include_str!("../../../examples/bootstrap.yaml"));

/// What runs.
struct Running {
    service: Server,
    server: String,
    key: Secret,
    /// Where commands find it, if anywhere.
    kept: Option<Kept>,
}

impl DevArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let mut effective = self.sources.load(&Database::default(), &self.service)?;
        // What a workflow calls while it is written runs on the same machine.
        if *effective.origin("outbound.allow_loopback") == Origin::Default {
            effective.settings.outbound.allow_loopback = true;
        }
        if let Some(engine) = &self.engine {
            effective.settings.engine.kind = engine.clone().try_into().map_err(usage)?;
        }
        let program = hint::program();
        match effective.origin("database.url") {
            Origin::Default => Ok(effective.settings),
            Origin::Environment(name) => Err(usage(format!(
                "{name} is set, and `dev` runs a database of its own: unset it, or use that database: {program} serve"
            ))),
            Origin::Flag | Origin::File => Err(usage(format!(
                "database.url is given, and `dev` runs a database of its own: leave it out, or use that database: \
                 {program} serve"
            ))),
        }
    }

    pub(crate) async fn run(self, mut settings: Settings) -> anyhow::Result<()> {
        let database = PrivatePostgres::start(self.database()?).await.map_err(|error| self.explained(error))?;
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
            output::note(format!("the demo could not be made: {error:#}"))?;
        }
        // The profile is written and the demo is there: whoever waits for /readyz can paste commands now.
        running.service.announce();
        if let Some(temporal) = &temporal {
            output::line(format!("\nTemporal's own UI: {}", temporal.ui))?;
        }
        self.welcome(&running, &database)?;
        tokio::select! {
            () = stopped() => {}
            () = hung_up() => {}
        }
        // Whoever read this may be gone, as a terminal that was closed is: all the same it must stop in order.
        let _ = output::note("stopping…");
        running.service.stop().await;
        drop(temporal);
        let left = running.kept.as_ref().map_or(Ok(()), Kept::leave);
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
        options.progress = Box::new(|line| output::note(line).unwrap_or_default());
        Ok(options)
    }

    /// The database server's reasons, with the flags of this command.
    fn explained(&self, error: private_postgres::Error) -> anyhow::Error {
        match error {
            private_postgres::Error::InUse { data_dir, pid } => {
                let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                anyhow::anyhow!(
                    "the data directory {} is in use by {holder}: stop that one, or start this one with a directory of \
                     its own (--data-dir DIRECTORY) or none (--ephemeral), and with an address of its own (--listen \
                     127.0.0.1:0)",
                    data_dir.display()
                )
            }
            private_postgres::Error::NotInGivenDir { dir } => {
                let by_variable = std::env::var_os("FOREBAY_PG_BIN").is_some_and(|given| given == dir.as_os_str());
                let what = if by_variable { "FOREBAY_PG_BIN" } else { "--postgres-bin" };
                let dir = dir.display();
                usage(format!("{what} {dir}: there is no postgres and initdb of version 15 or later"))
            }
            private_postgres::Error::NotFound => anyhow::anyhow!(
                "install PostgreSQL 15 or later (Debian: apt-get install postgresql), or say where it is with \
                 --postgres-bin; {} serve --database-url uses a server elsewhere",
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
        let (key, is_new) = root_key::find_or_make(&store, file.as_deref()).await?;
        let options = Options { roles, alone: true, local: true, unannounced: true };
        let service = Server::start(settings, options).await.map_err(start_error)?;
        let address = service.address.context("the API listens")?;
        // The address of every network is none that a client can use.
        let reached =
            if address.ip().is_unspecified() { (Ipv4Addr::LOCALHOST, address.port()).into() } else { address };
        let server = format!("http://{reached}");
        if !address.ip().is_loopback() {
            output::note(format!(
                "{address} can be reached from other machines, and workflows may call programs of this machine"
            ))?;
        }
        if is_new {
            output::line(format!("root key, shown this once: {}", key.expose()))?;
        }
        if let Some(file) = &file {
            output::line(format!("The root key is kept in {}", file.display()))?;
        }
        let own = Profile { server: server.clone(), key: key.expose().parse()?, dev: Some(Dev { data_dir }) };
        let kept = match keep::keep(own, &format!("dev-{}", address.port())).await {
            Ok(kept) => Some(kept),
            Err(error) => {
                output::note(format!("{error:#}; give the root key with --key or FOREBAY_KEY"))?;
                None
            }
        };
        Ok(Running { service, server, key, kept })
    }

    fn welcome(&self, running: &Running, database: &PrivatePostgres) -> anyhow::Result<()> {
        let program = hint::program();
        output::line(format!("\nForebay runs at {}", running.server))?;
        output::line(format!("Its database: psql '{}'", database.psql_url()))?;
        let mut flags = String::new();
        if let Some(kept) = &running.kept {
            output::line(format!(
                "Commands find its address and root key in the profile {} ({})",
                kept.name,
                kept.path()
            ))?;
            if !kept.is_current {
                flags = format!(" --profile {}", hint::quote(&kept.name));
                output::line(format!(
                    "That is not the profile they use by themselves: add{flags}, or export FOREBAY_PROFILE={}",
                    kept.name
                ))?;
            }
        }
        if !self.no_demo {
            let patience = format!("{program} run patience --workspace demo-free --watch{flags}");
            output::line("\nNow paste, in another terminal:\n")?;
            output::line(format!("  {program} run hello --workspace demo-pro -i name=Ada --watch{flags}"))?;
            output::line(format!("  {patience} & {patience}"))?;
            output::line(format!("  {program} workspace ls{flags}"))?;
        }
        output::line("\nCtrl-C stops everything.")?;
        Ok(())
    }
}

/// Makes what is missing of the demo, through the API like anybody else.
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
    let applied = api.post::<wire::Applied>("workflow/definitions/apply", &body).await;
    applied.with_context(|| format!("apply {file}"))?;
    Ok(())
}
