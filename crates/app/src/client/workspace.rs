//! Workspaces: the tenants of the service, and their limits.
//!
//! Invariants
//! - A workspace is deleted only after the user confirmed it.
//!
//! Not here: what a tier allows (the server's database), keys (`key`).

use serde_json::json;
use server::wire;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::Session;
use super::page::PageArgs;
use super::{Connected, Execute};
use crate::exit::Exit;
use crate::output::{self, Cell, StreamStyle};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WorkspaceCommand {
    Create(Connected<CreateWorkspaceArgs>),
    Ls(Connected<ListWorkspacesArgs>),
    Get(Connected<GetWorkspaceArgs>),
    Set(Connected<SetWorkspaceArgs>),
    Pause(Connected<PauseWorkspaceArgs>),
    Resume(Connected<ResumeWorkspaceArgs>),
    Delete(Connected<DeleteWorkspaceArgs>),
    Outbound(Connected<OutboundRulesArgs>),
}

/// Create a workspace; needs the root key
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace create acme --tier pro")]
pub(crate) struct CreateWorkspaceArgs {
    /// The name of the workspace; it must be unique
    name: String,
    /// The tier: free, pro or enterprise [default: free]
    #[arg(long)]
    tier: Option<String>,
    /// How many executions may run at once, instead of what the tier allows
    #[arg(long, value_name = "N")]
    concurrency_limit: Option<i32>,
    /// Its share when several workspaces have executions to start, 1 to 100
    #[arg(long, value_name = "N")]
    weight: Option<i16>,
    /// How many executions may wait [default: the limit of the service]
    #[arg(long, value_name = "N")]
    max_backlog: Option<i32>,
}

/// List the workspaces that the key can access
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace ls")]
pub(crate) struct ListWorkspacesArgs {
    #[command(flatten)]
    paging: PageArgs,
}

/// Show a workspace, its limits and its load
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workspace get acme")]
pub(crate) struct GetWorkspaceArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
}

/// Change a workspace's tier, limit, weight or backlog
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forebay workspace set [OPTIONS] <WORKSPACE>",
    group = clap::ArgGroup::new("change").args(["tier", "concurrency_limit", "weight",
        "max_backlog"]).required(true).multiple(true),
    after_help = "\
At least one of --tier, --concurrency-limit, --weight and --max-backlog is required. A lower limit does not \
stop running executions: it only delays new ones.

Examples:
  forebay workspace set acme --concurrency-limit 50
  forebay workspace set acme --tier enterprise --concurrency-limit none"
)]
pub(crate) struct SetWorkspaceArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
    /// The tier: free, pro or enterprise
    #[arg(long)]
    tier: Option<String>,
    /// How many executions may run at once; none restores what the tier allows
    #[arg(long, value_name = "N|none", value_parser = read_limit, allow_hyphen_values = true)]
    concurrency_limit: Option<LimitArg>,
    /// Its share when several workspaces have executions to start, 1 to 100
    #[arg(long, value_name = "N")]
    weight: Option<i16>,
    /// How many executions may wait; none restores the limit of the service
    #[arg(long, value_name = "N|none", value_parser = read_limit, allow_hyphen_values = true)]
    max_backlog: Option<LimitArg>,
}

/// Pause a workspace: it starts no more executions; running ones continue
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Executions can still be requested: they wait until the workspace is resumed. This needs the root key.

Example:
  forebay workspace pause acme")]
pub(crate) struct PauseWorkspaceArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
}

/// Resume a paused workspace: its waiting executions start again
#[derive(Debug, clap::Args)]
#[command(after_help = "This needs the root key.\n\nExample:\n  forebay workspace resume acme")]
pub(crate) struct ResumeWorkspaceArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
}

/// Delete a workspace, after asking
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Its waiting executions fail, with the deletion as their reason, its running executions are canceled, and its keys \
stop working. This needs the root key.

Example:
  forebay workspace delete acme --yes")]
pub(crate) struct DeleteWorkspaceArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// Show or replace the hosts that a workspace may call
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --allow, --deny and --clear the rules are shown. With any of them both lists are replaced, which needs the \
root key. --allow permits this workspace to call hosts that are not public. Hosts that the setting outbound.deny \
lists stay denied.

Examples:
  forebay workspace outbound acme
  forebay workspace outbound acme --allow stock.internal:8080 --deny tracker.example
  forebay workspace outbound acme --clear")]
pub(crate) struct OutboundRulesArgs {
    /// The workspace, by name or id
    #[arg(value_name = "WORKSPACE")]
    workspace: String,
    /// Allow this host:port or range, such as 10.1.0.0/16:443; may be repeated
    #[arg(long, value_name = "ENTRY")]
    allow: Vec<String>,
    /// Deny this host, address or range, on every port; may be repeated
    #[arg(long, value_name = "ENTRY")]
    deny: Vec<String>,
    /// Remove all rules of the workspace
    #[arg(long, conflicts_with_all = ["allow", "deny"])]
    clear: bool,
}

/// A limit of the workspace, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LimitArg(Option<i32>);

fn read_limit(text: &str) -> Result<LimitArg, String> {
    if text == "none" {
        return Ok(LimitArg(None));
    }
    let number = text.parse().ok().filter(|number| *number >= 0);
    number
        .map(|number| LimitArg(Some(number)))
        .ok_or_else(|| "write a number of 0 or more, or none for the default".to_owned())
}

commands!(WorkspaceCommand: Create, Ls, Get, Set, Pause, Resume, Delete, Outbound);

impl Execute for CreateWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let CreateWorkspaceArgs { name, tier, concurrency_limit: limit, weight, max_backlog } = self;
        let tier = tier.map(|tier| tier.to_uppercase());
        let body = wire::CreateWorkspace { name, tier, limit, weight, max_backlog };
        let created: Answer<wire::Workspace> = session.api.post("workspaces", &body).await?;
        session.show(&created, |workspace| card(workspace, session.stdout))?;
        let words = ["key", "create", "cli", "--workspace", &created.value.name];
        session.note(format!("to create a key for it: {}", session.hint(&words)))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListWorkspacesArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.paging.fetch(session, "workspaces", &[]).await?;
        listed.show(session, &["NAME", "TIER", "RUNNING", "LIMIT", "READY", "WEIGHT", "STATE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

impl Execute for GetWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let answer: Answer<wire::Workspace> = session.api.get(&format!("workspaces/{id}"), &[]).await?;
        session.show(&answer, |workspace| card(workspace, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Execute for SetWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let body = wire::ChangeWorkspace {
            tier: self.tier.map(|tier| Some(tier.to_uppercase())),
            limit: self.concurrency_limit.map(|limit| limit.0),
            weight: self.weight.map(Some),
            max_backlog: self.max_backlog.map(|limit| limit.0),
        };
        let changed: Answer<wire::Workspace> = session.api.patch(&format!("workspaces/{id}"), &body).await?;
        session.show(&changed, |workspace| card(workspace, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Execute for PauseWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        post(session, &self.workspace, "pause").await
    }
}

impl Execute for ResumeWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        post(session, &self.workspace, "resume").await
    }
}

async fn post(session: &Session, workspace: &str, verb: &str) -> anyhow::Result<Exit> {
    let path = format!("workspaces/{}/{verb}", session.find_workspace(workspace).await?);
    let changed: Answer<wire::Workspace> = session.api.post(&path, &json!({})).await?;
    session.show(&changed, |workspace| card(workspace, session.stdout))?;
    Ok(Exit::Done)
}

impl Execute for DeleteWorkspaceArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = session.find_workspace(&self.workspace).await?;
        let name = output::clean(&self.workspace);
        let question = format!(
            "Delete workspace {name}? Its waiting executions fail, its running executions are canceled, and its keys \
             stop working."
        );
        if !self.confirmation.confirm(&question)? {
            output::print_note("nothing was deleted")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("workspaces/{id}")).await?;
        session.note(format!("{name}: deleted"))?;
        Ok(Exit::Done)
    }
}

impl Execute for OutboundRulesArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
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
                true => output::print_line("the workspace has no rules"),
                false => output::print_record(&pairs, session.stdout),
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
        Cell::new(output::format_count(workspace.ready)),
        Cell::new(workspace.weight),
        Cell::status(state(workspace)),
        Cell::new(workspace.id),
    ]
}

fn card(workspace: &wire::Workspace, style: StreamStyle) -> anyhow::Result<()> {
    let own = if workspace.limit_override.is_some() { "set for this workspace" } else { "from the tier" };
    let mut pairs = vec![
        ("name", Cell::new(&workspace.name)),
        ("id", Cell::new(workspace.id)),
        ("tier", Cell::new(&workspace.tier)),
        ("state", Cell::status(state(workspace))),
        ("running", Cell::new(format!("{} of {} ({own})", workspace.running, workspace.limit))),
        ("ready", Cell::new(output::format_count(workspace.ready))),
        ("weight", Cell::new(workspace.weight)),
    ];
    pairs.extend(workspace.max_backlog.map(|most| ("max backlog", Cell::new(most))));
    pairs.push(("created", Cell::new(output::format_time(workspace.created_at))));
    output::print_record(&pairs, style)
}
