//! Workspaces: who may use the service, and how much of it.
//!
//! Invariants
//! - A new key is the only thing on stdout, so that it can be piped to where it is kept.
//!
//! Not here: what a tier allows (the server's database).

use server::wire;

use super::Exit;
use super::api::Answer;
use super::connection::Session;
use crate::output::{self, Cell, Look};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(Create),
    Ls(List),
    Get(Get),
    Set(Change),
    Key(MakeKey),
}

/// Create a workspace; needs the root key
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace create acme --tier pro")]
pub(crate) struct Create {
    name: String,
    /// What it may use: free, pro or enterprise [default: free]
    #[arg(long)]
    tier: Option<String>,
    /// How many executions may run at once, instead of what the tier says
    #[arg(long, value_name = "N")]
    limit: Option<i32>,
    /// Its share of turns beside other workspaces, 1 to 100
    #[arg(long, value_name = "N")]
    weight: Option<i16>,
}

/// List the workspaces that the key can see
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace ls")]
pub(crate) struct List {
    /// The most to list
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
    /// Go on behind an earlier page
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// Show a workspace and how full it is
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace get acme")]
pub(crate) struct Get {
    #[arg(value_name = "NAME|ID")]
    workspace: String,
}

/// Change a workspace's tier, limit or weight
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("change").args(["tier", "limit", "weight"]).required(true).multiple(true),
    after_help = "\
Lowering a limit stops nothing that runs; it only keeps more from starting.

Examples:
  forebay workspace set acme --limit 50
  forebay workspace set acme --tier enterprise --limit none"
)]
pub(crate) struct Change {
    #[arg(value_name = "NAME|ID")]
    workspace: String,
    /// What it may use: free, pro or enterprise
    #[arg(long)]
    tier: Option<String>,
    /// How many executions may run at once; none goes back to the tier's
    #[arg(long, value_name = "N|none", value_parser = read_limit, allow_hyphen_values = true)]
    limit: Option<Limit>,
    /// Its share of turns beside other workspaces, 1 to 100
    #[arg(long, value_name = "N")]
    weight: Option<i16>,
}

/// Make a key for a workspace and show it, this once
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  export FOREBAY_KEY=$(forebay workspace key acme --name ci)")]
pub(crate) struct MakeKey {
    #[arg(value_name = "NAME|ID")]
    workspace: String,
    /// What to call it in lists
    #[arg(long, default_value = "cli")]
    name: String,
}

/// A limit of its own, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<i32>);

fn read_limit(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.map(|number| Limit(Some(number))).ok_or_else(|| "write a number, or none for the tier's limit".to_owned())
}

impl Command {
    pub(super) async fn run(self, session: &Session) -> anyhow::Result<Exit> {
        match self {
            Command::Create(create) => create.run(session).await,
            Command::Ls(list) => list.run(session).await,
            Command::Get(get) => get.run(session).await,
            Command::Set(change) => change.run(session).await,
            Command::Key(make) => make.run(session).await,
        }?;
        Ok(Exit::Done)
    }
}

impl Create {
    async fn run(self, session: &Session) -> anyhow::Result<()> {
        let Create { name, tier, limit, weight } = self;
        let tier = tier.map(|tier| tier.to_uppercase());
        let body = wire::CreateWorkspace { name, tier, limit, weight, max_backlog: None };
        let created: Answer<wire::Workspace> = session.api.post("workspaces", &body).await?;
        session.show(&created, |workspace| card(workspace, session.stdout))?;
        let name = output::clean(&created.value.name);
        output::note(format!("A key for it: forebay workspace key {name}"))
    }
}

impl List {
    async fn run(self, session: &Session) -> anyhow::Result<()> {
        let limit = self.limit.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(self.after.as_deref().map(|after| ("cursor", after)));
        let page: Answer<wire::Page<wire::Workspace>> = session.api.get("workspaces", &query).await?;
        session.show(&page, |page| {
            let head = ["NAME", "TIER", "RUNNING", "LIMIT", "READY", "WEIGHT", "STATE", "ID"];
            output::table(&head, page.items.iter().map(row).collect(), session.stdout)
        })?;
        if let Some(next) = &page.value.next_cursor {
            output::note(format!("There are more: forebay workspace ls --after {}", output::clean(next)))?;
        }
        Ok(())
    }
}

impl Get {
    async fn run(self, session: &Session) -> anyhow::Result<()> {
        let id = session.find_workspace(&self.workspace).await?;
        let answer: Answer<wire::Workspace> = session.api.get(&format!("workspaces/{id}"), &[]).await?;
        session.show(&answer, |workspace| card(workspace, session.stdout))
    }
}

impl Change {
    async fn run(self, session: &Session) -> anyhow::Result<()> {
        let id = session.find_workspace(&self.workspace).await?;
        let body = wire::ChangeWorkspace {
            tier: self.tier.map(|tier| tier.to_uppercase()),
            limit: self.limit.map(|limit| limit.0),
            weight: self.weight,
            max_backlog: None,
        };
        let changed: Answer<wire::Workspace> = session.api.patch(&format!("workspaces/{id}"), &body).await?;
        session.show(&changed, |workspace| card(workspace, session.stdout))
    }
}

impl MakeKey {
    async fn run(self, session: &Session) -> anyhow::Result<()> {
        let workspace_id = Some(session.find_workspace(&self.workspace).await?);
        let body = wire::CreateKey { name: self.name, workspace_id, scopes: None, expires_at: None };
        let made: Answer<wire::CreatedKey> = session.api.post("keys", &body).await?;
        session.show(&made, |made| output::line(output::clean(&made.key)))?;
        output::note("Keep this key now: it is shown this once and stored nowhere. Use it as FOREBAY_KEY.")
    }
}

fn state(workspace: &wire::Workspace) -> &'static str {
    if workspace.paused { "PAUSED" } else { "ACTIVE" }
}

fn row(workspace: &wire::Workspace) -> Vec<Cell> {
    vec![
        Cell::new(&workspace.name),
        Cell::new(&workspace.tier),
        Cell::new(workspace.running),
        Cell::new(workspace.limit),
        Cell::new(output::count(workspace.ready)),
        Cell::new(workspace.weight),
        Cell::status(state(workspace)),
        Cell::new(workspace.id),
    ]
}

fn card(workspace: &wire::Workspace, look: Look) -> anyhow::Result<()> {
    let own = if workspace.limit_override.is_some() { "its own" } else { "from the tier" };
    let pairs = [
        ("name", Cell::new(&workspace.name)),
        ("id", Cell::new(workspace.id)),
        ("tier", Cell::new(&workspace.tier)),
        ("state", Cell::status(state(workspace))),
        ("running", Cell::new(format!("{} of {} ({own})", workspace.running, workspace.limit))),
        ("ready", Cell::new(output::count(workspace.ready))),
        ("weight", Cell::new(workspace.weight)),
        ("created", Cell::new(output::time(workspace.created_at))),
    ];
    output::record(&pairs, look)
}
