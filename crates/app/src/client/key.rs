//! API keys: create, list and revoke them.
//!
//! Invariants
//! - A new key is the only output on stdout, so that it can be piped. It is shown only once.

use anyhow::{Context, bail};
use jiff::Timestamp;
use kernel::access::Scope;
use kernel::ids::KeyId;
use server::wire;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::{ListArgs, PageArgs};
use super::{Connected, Execute, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeyCommand {
    Create(Connected<CreateKeyArgs>),
    Ls(Connected<ListKeysArgs>),
    Revoke(Connected<RevokeKeyArgs>),
}

/// Create a key for a workspace; it is shown only once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The scope read allows reading, run starts and ends executions, and manage publishes workflows and creates keys. The \
commands of this program look names up, so they need read as well. A new \
key cannot have more scopes than the key that creates it, and has the same scopes without --scope. It expires at the \
latest with that key, and is revoked with it.

Examples:
  export FOREBAY_KEY=$(forebay key create ci --workspace acme)
  forebay key create dashboard --workspace acme --scope read --expires 90d")]
pub(crate) struct CreateKeyArgs {
    /// The name of the key in lists
    name: String,
    /// Its scopes: read, run, manage, separated by commas
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', value_parser = read_scope)]
    scope: Vec<Scope>,
    /// When the key expires: 2030-01-31T09:00:00Z, or how long from now, such as 90d [default: when the key
    /// that you use expires]
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    expires: Option<Timestamp>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List keys that are neither revoked nor expired; only their prefix is shown
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay key ls --workspace acme")]
pub(crate) struct ListKeysArgs {
    #[command(flatten)]
    selection: ListArgs,
}

/// Revoke a key and every key created with it; takes effect within five seconds
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay key revoke fbk_3f9a01cd
  forebay key revoke 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct RevokeKeyArgs {
    /// The key's id or prefix, as `key ls` shows them
    #[arg(value_name = "ID|PREFIX")]
    id_or_prefix: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

fn read_scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| format!("write one of {}", Scope::ALL.map(Scope::name).join(", ")))
}

commands!(KeyCommand: Create, Ls, Revoke);

impl Execute for CreateKeyArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let workspace_id = session.workspace(&self.workspace).await?;
        let scopes = Some(self.scope).filter(|scopes| !scopes.is_empty());
        let body = wire::CreateApiKey { name: self.name, workspace_id, scopes, expires_at: self.expires };
        let created: Answer<wire::CreatedApiKey> = session.api.post("keys", &body).await?;
        session.show(&created, |created| output::print_line(output::clean(&created.key)))?;
        session.note("Save this key now: it is shown only once. Commands read it from FOREBAY_KEY.")?;
        Ok(Exit::Done)
    }
}

impl Execute for ListKeysArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "keys", &[]).await?;
        listed.show(
            session,
            &["NAME", "PREFIX", "SCOPES", "WORKSPACE", "EXPIRES", "LAST USED", "CREATED BY", "ID"],
            row,
        )?;
        Ok(Exit::Done)
    }
}

impl Execute for RevokeKeyArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = match self.id_or_prefix.parse() {
            Ok(id) => id,
            Err(_) => find_by_prefix(session, &self.id_or_prefix).await?,
        };
        if !self
            .confirmation
            .confirm(&format!("Revoke key {id} and every key created with it? Requests with these keys are refused."))?
        {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.post_empty(&format!("keys/{id}/revoke")).await?;
        session.note(format!("{id}: revoked"))?;
        Ok(Exit::Done)
    }
}

/// The id of the only key with this prefix.
async fn find_by_prefix(session: &Session, prefix: &str) -> anyhow::Result<KeyId> {
    let all: Vec<wire::ApiKey> = PageArgs::every().fetch(session, "keys", &[]).await.context("find the key")?.items;
    let has_prefix = |key: &&wire::ApiKey| key.prefix.as_deref() == Some(prefix);
    let found: Vec<&wire::ApiKey> = all.iter().filter(has_prefix).collect();
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => bail!(
            "there is no key with the prefix {prefix}, or this key cannot access it; list keys: {}",
            session.hint(&["key", "ls"])
        ),
        many => bail!("{} keys have the prefix {prefix}: give the id instead", many.len()),
    }
}

fn row(key: &wire::ApiKey) -> Vec<Cell> {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    vec![
        Cell::new(&key.name),
        Cell::optional(key.prefix.as_ref()),
        Cell::new(scopes.join(",")),
        Cell::new(key.workspace_id.map_or_else(|| "all: a root key".to_owned(), |id| id.to_string())),
        Cell::optional(key.expires_at.map(output::format_time)),
        Cell::optional(key.last_used_at.map(output::format_time)),
        Cell::optional(key.created_by.as_ref()),
        Cell::new(key.id),
    ]
}
