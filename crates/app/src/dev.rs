//! `dev`: everything on this machine with nothing to set up, and a demo to watch.
//!
//! Invariants
//! - Data survives a restart unless asked not to; nothing that was started outlives this process.
//! - The root key is printed when it is made; afterwards only a file of this user holds it.
//!
//! Not here: the database server's life (`store::embedded`).

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use kernel::access::Scopes;
use serde_json::json;
use server::config::Settings;
use server::{Options, Role, Server, wire};
use store::Store;
use store::connect::Target;
use store::embedded::{self, Embedded, Launcher};
use store::key::{NewKey, Secret};

use crate::client::api::Api;
use crate::client::document::Document;
use crate::client::profile;
use crate::output;
use crate::serve::stopped;
use crate::settings::SettingFlags;

/// Run everything on this machine: a database of its own, the API, the engine, a demo.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  forebay dev                 data is kept between starts\n  forebay dev --ephemeral     data is gone at the end\n\nIt needs PostgreSQL 15 or later installed (Debian: apt-get install postgresql), but no database set up: it runs a private one over a socket that only this user can reach."
)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    settings: SettingFlags,
    /// Where data is kept.
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Keep nothing: a temporary database, faster and gone at the end.
    #[arg(long)]
    ephemeral: bool,
    /// Leave the demo workspaces and workflows out.
    #[arg(long)]
    no_demo: bool,
    /// Where PostgreSQL's programs are, if not in a usual place.
    #[arg(long, value_name = "DIRECTORY", env = "FOREBAY_PG_BIN")]
    postgres_bin: Option<PathBuf>,
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

impl DevArgs {
    pub(crate) fn settings(&self, log_format: Option<&String>) -> anyhow::Result<Settings> {
        if self.settings.names_a_database() {
            bail!("`dev` runs a database of its own; for yours use `forebay serve --database-url …`");
        }
        Ok(self.settings.load(log_format)?.settings)
    }

    pub(crate) async fn run(self, mut settings: Settings) -> anyhow::Result<()> {
        let database = Embedded::start(self.database()?).await?;
        settings.database.url = database.url();
        let started = self.start(settings, &database).await;
        let (service, server, key) = match started {
            Ok(started) => started,
            Err(error) => {
                database.stop().await?;
                return Err(error);
            }
        };
        let demo = if self.no_demo { Ok(()) } else { demo(&server, key.expose()).await };
        if let Err(error) = &demo {
            output::note(format!("the demo could not be made: {error:#}"))?;
        }
        self.welcome(&server, &database)?;
        stopped().await;
        output::note("stopping…")?;
        service.stop().await;
        database.stop().await?;
        if self.ephemeral {
            profile::remove(&server)?;
        }
        Ok(())
    }

    fn database(&self) -> anyhow::Result<embedded::Options> {
        let program = std::env::current_exe().context("find this program's own file")?;
        let launcher = Launcher { program, args: vec!["postgres-child".into()] };
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/"));
        let data_dir = match (&self.data_dir, self.ephemeral) {
            (Some(given), _) => given.clone(),
            (None, true) => std::env::temp_dir(),
            (None, false) => embedded::default_data_dir(&home, nix::unistd::geteuid().is_root()),
        };
        let mut options = embedded::Options::new(data_dir, launcher);
        options.ephemeral = self.ephemeral;
        options.postgres_bin.clone_from(&self.postgres_bin);
        options.search_path = std::env::var_os("PATH");
        options.runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        options.progress = Box::new(|line| output::note(line).unwrap_or_default());
        Ok(options)
    }

    async fn start(&self, settings: Settings, database: &Embedded) -> anyhow::Result<(Server, String, Secret)> {
        let target = Target::new(&database.url())?;
        store::migrate::migrate(&target).await?;
        let store = Store::new(&target, 1)?;
        let roles = Role::ALL.into_iter().collect();
        let (key, new) = root_key(&store).await?;
        // The example that makes an HTTP call asks this very server: its own address is allowed.
        let service = Server::start(settings, Options { roles, alone: true, allow_own: true }).await?;
        let address = service.address.context("the API listens")?;
        let server = format!("http://{address}");
        let kept = profile::save(&server, key.expose());
        if new {
            output::line(format!("root key, shown this once: {}", key.expose()))?;
        }
        match kept {
            Ok(path) => output::line(format!("this user's commands find it in {}", path.display()))?,
            Err(error) => output::note(format!("{error:#}; give the key with --key or FOREBAY_KEY"))?,
        }
        Ok((service, server, key))
    }

    fn welcome(&self, server: &str, database: &Embedded) -> anyhow::Result<()> {
        let program = shown_program();
        output::line(format!("\nForebay runs at {server}"))?;
        output::line(format!("its database: psql '{}'", database.psql_url()))?;
        if !self.no_demo {
            output::line("\nNow paste, in another terminal:\n")?;
            output::line(format!("  {program} run hello --workspace demo-pro -i name=Ada --watch"))?;
            output::line(format!(
                "  {program} run patience --workspace demo-free --watch & {program} run patience --workspace demo-free --watch"
            ))?;
            output::line(format!("  {program} workspace ls"))?;
        }
        output::line("\nCtrl-C stops everything.")?;
        Ok(())
    }
}

/// The key of earlier starts, if this user still has it and it still opens the store; else a new one.
async fn root_key(store: &Store) -> anyhow::Result<(Secret, bool)> {
    if let Ok(Some(kept)) = profile::load()
        && let Ok(secret) = Secret::parse(kept.key.expose())
        && let Ok(found) = store.find_key(&secret).await
        && found.workspace.is_none()
    {
        return Ok((secret, false));
    }
    let secret = Secret::generate()?;
    let root = NewKey { workspace: None, name: "dev", scopes: Scopes::all(), expires_at: None };
    store.create_key(&root, &secret, "dev").await?;
    Ok((secret, true))
}

/// Makes what is missing of the demo, through the API like anybody else.
async fn demo(server: &str, key: &str) -> anyhow::Result<()> {
    let api = Api::new(server, Some(key.parse()?))?;
    for (name, tier) in DEMO {
        let known: wire::Page<wire::Workspace> = api.get("workspaces", &[("name", name)]).await?.value;
        let workspace = match known.items.into_iter().next() {
            Some(workspace) => workspace,
            None => api.post("workspaces", &json!({ "name": name, "tier": tier })).await?.value,
        };
        for (file, text) in EXAMPLES {
            let document = Document { file: file.to_owned(), text: text.to_owned() };
            let parsed = document.parse().map_err(|finding| anyhow::anyhow!("{file}: {}", finding.message))?;
            let body = json!({ "document": parsed, "source": text, "workspaceId": workspace.id });
            let _applied: wire::Applied = api.post("workflow/definitions/apply", &body).await?.value;
        }
    }
    Ok(())
}

/// How a person at this directory calls this program.
fn shown_program() -> String {
    let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("forebay"));
    let here = std::env::current_dir().unwrap_or_default();
    match exe.strip_prefix(&here) {
        Ok(relative) if !relative.as_os_str().is_empty() => Path::new(".").join(relative).display().to_string(),
        _ => exe.display().to_string(),
    }
}
