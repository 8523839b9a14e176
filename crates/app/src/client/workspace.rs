//! Workspaces: who may use the service, and how much of it.
//!
//! Not here: what a tier allows (the server's database), keys with scopes (`key`), pausing and deleting (`control`).

use server::wire;

use super::api::Answer;
use super::connection::Session;
use super::page::Paging;
use super::{Act, On, key};
use crate::exit::Exit;
use crate::output::{self, Cell, Look};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(On<Create>),
    Ls(On<List>),
    Get(On<Get>),
    Set(On<Change>),
    Key(On<MakeKey>),
    Outbound(On<Outbound>),
}

/// Create a workspace; needs the root key
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace create acme --tier pro")]
pub(crate) struct Create {
    /// What to call it; no other workspace has this name
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
    /// How many executions may wait; without it, what the service allows
    #[arg(long, value_name = "N")]
    max_backlog: Option<i32>,
}

/// List the workspaces that the key can see
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace ls")]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
}

/// Show a workspace and how full it is
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace get acme")]
pub(crate) struct Get {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
}

/// Change a workspace's tier, limit, weight or backlog
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forebay workspace set [OPTIONS] <WORKSPACE>",
    group = clap::ArgGroup::new("change").args(["tier", "limit", "weight",
        "max_backlog"]).required(true).multiple(true),
    after_help = "\
At least one of the first four options says what to change. Lowering a limit stops nothing that runs; it only keeps \
more from starting.

Examples:
  forebay workspace set acme --limit 50
  forebay workspace set acme --tier enterprise --limit none"
)]
pub(crate) struct Change {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
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
    /// How many executions may wait; none goes back to what the service allows
    #[arg(long, value_name = "N|none", value_parser = read_limit, allow_hyphen_values = true)]
    max_backlog: Option<Limit>,
}

/// Make a key for a workspace and show it, this once; `key create` can do more
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  export FOREBAY_KEY=$(forebay workspace key acme --name ci)")]
pub(crate) struct MakeKey {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
    /// What to call it in lists
    #[arg(long, default_value = "cli")]
    name: String,
}

/// Show or replace the hosts that a workspace may call, or may not
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --allow, --deny and --clear they are shown. With any of them both lists are replaced, which needs the root \
key. \
--allow opens hosts that are not public, to this workspace alone; what the service denies (outbound.deny) stays denied.

Examples:
  forebay workspace outbound acme
  forebay workspace outbound acme --allow stock.internal:8080 --deny tracker.example
  forebay workspace outbound acme --clear")]
pub(crate) struct Outbound {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
    /// Open this: host:port, or a range, 10.1.0.0/16:port; may be given often
    #[arg(long, value_name = "ENTRY")]
    allow: Vec<String>,
    /// Close this: a host, an address or a range, with or without a port; may be given often
    #[arg(long, value_name = "ENTRY")]
    deny: Vec<String>,
    /// Leave it no rules of its own
    #[arg(long, conflicts_with_all = ["allow", "deny"])]
    clear: bool,
}

/// A limit of its own, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<i32>);

fn read_limit(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let number = text.parse().ok().filter(|number| *number >= 0);
    number
        .map(|number| Limit(Some(number)))
        .ok_or_else(|| "write a number, or none for what stands without it".to_owned())
}

commands!(Create, Ls, Get, Set, Key, Outbound);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let Create { name, tier, limit, weight, max_backlog } = self;
        let tier = tier.map(|tier| tier.to_uppercase());
        let body = wire::CreateWorkspace { name, tier, limit, weight, max_backlog };
        let created: Answer<wire::Workspace> = session.api.post("workspaces", &body).await?;
        session.show(&created, |workspace| card(workspace, session.stdout))?;
        let words = ["key", "create", "cli", "--workspace", &created.value.name];
        session.tell(format!("a key for it: {}", session.hint(&words)))?;
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.paging.fetch(session, "workspaces", &[]).await?;
        listed.show(session, &["NAME", "TIER", "RUNNING", "LIMIT", "READY", "WEIGHT", "STATE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let answer: Answer<wire::Workspace> = session.api.get(&format!("workspaces/{id}"), &[]).await?;
        session.show(&answer, |workspace| card(workspace, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Act for Change {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let body = wire::ChangeWorkspace {
            tier: self.tier.map(|tier| tier.to_uppercase()),
            limit: self.limit.map(|limit| limit.0),
            weight: self.weight,
            max_backlog: self.max_backlog.map(|limit| limit.0),
        };
        let changed: Answer<wire::Workspace> = session.api.patch(&format!("workspaces/{id}"), &body).await?;
        session.show(&changed, |workspace| card(workspace, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Act for MakeKey {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let workspace = session.find_workspace(&self.workspace).await?;
        key::plain(session, workspace, self.name).await
    }
}

impl Act for Outbound {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let path = format!("workspaces/{id}/outbound");
        let answer: Answer<wire::OutboundRules> = match self.clear || !self.allow.is_empty() || !self.deny.is_empty() {
            true => session.api.put(&path, &wire::OutboundRules { allow: self.allow, deny: self.deny }).await?,
            false => session.api.get(&path, &[]).await?,
        };
        session.show(&answer, |rules| {
            let lists = [("allow", &rules.allow), ("deny", &rules.deny)];
            let entries = lists.into_iter().flat_map(|(list, all)| all.iter().map(move |entry| (list, entry)));
            let pairs: Vec<(&str, Cell)> = entries.map(|(list, entry)| (list, Cell::new(entry))).collect();
            match pairs.is_empty() {
                true => output::line("no rules of its own"),
                false => output::record(&pairs, session.stdout),
            }
        })?;
        Ok(Exit::Done)
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

pub(super) fn card(workspace: &wire::Workspace, look: Look) -> anyhow::Result<()> {
    let own = if workspace.limit_override.is_some() { "its own" } else { "from the tier" };
    let mut pairs = vec![
        ("name", Cell::new(&workspace.name)),
        ("id", Cell::new(workspace.id)),
        ("tier", Cell::new(&workspace.tier)),
        ("state", Cell::status(state(workspace))),
        ("running", Cell::new(format!("{} of {} ({own})", workspace.running, workspace.limit))),
        ("ready", Cell::new(output::count(workspace.ready))),
        ("weight", Cell::new(workspace.weight)),
    ];
    pairs.extend(workspace.max_backlog.map(|most| ("may wait", Cell::new(most))));
    pairs.push(("created", Cell::new(output::time(workspace.created_at))));
    output::record(&pairs, look)
}
