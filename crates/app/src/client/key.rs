//! Keys: made and shown once, listed by how they begin, revoked.
//!
//! Invariants
//! - A new key is the only thing on stdout, so that it can be piped to where it is kept.

use anyhow::{Context, bail};
use jiff::Timestamp;
use kernel::access::Scope;
use kernel::ids::{KeyId, WorkspaceId};
use server::wire;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::page::{Paging, Selection};
use super::{Act, On, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(On<Create>),
    Ls(On<List>),
    Revoke(On<Revoke>),
}

/// Make a key for a workspace and show it, this once
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A key may do no more than the one that makes it: read looks, run starts and ends executions, manage publishes \
workflows \
and makes keys. Without --scope it has all that the one which makes it has. It works no longer than that one, and is \
revoked with it.

Examples:
  export FOREBAY_KEY=$(forebay key create ci --workspace acme)
  forebay key create dashboard --workspace acme --scope read --expires 90d")]
pub(crate) struct Create {
    /// What to call it in lists
    name: String,
    /// What it may do: read, run, manage, separated by commas
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', value_parser = read_scope)]
    scope: Vec<Scope>,
    /// When it stops working: 2030-01-31T09:00:00Z, or how long from now, such as 90d [default: with the key that makes
    /// it]
    #[arg(long, value_name = "TIME", value_parser = input::read_time)]
    expires: Option<Timestamp>,
    #[command(flatten)]
    place: Place,
}

/// List the keys that work, by how they begin
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay key ls --workspace acme")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
}

/// Revoke a key and every key made with it: within five seconds they open nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay key revoke fbk_3f9a01cd
  forebay key revoke 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct Revoke {
    /// Its id, or how it begins, as `key ls` shows them
    #[arg(value_name = "ID|START")]
    which: String,
    #[command(flatten)]
    sure: Sure,
}

fn read_scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| format!("write one of {}", Scope::ALL.map(Scope::name).join(", ")))
}

commands!(Create, Ls, Revoke);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let workspace_id = session.workspace(&self.place).await?;
        let scopes = Some(self.scope).filter(|scopes| !scopes.is_empty());
        make(session, wire::CreateKey { name: self.name, workspace_id, scopes, expires_at: self.expires }).await
    }
}

/// Makes a key that has every scope and never ends.
pub(super) async fn plain(session: &Session, workspace: WorkspaceId, name: String) -> anyhow::Result<Exit> {
    make(session, wire::CreateKey { name, workspace_id: Some(workspace), scopes: None, expires_at: None }).await
}

async fn make(session: &Session, body: wire::CreateKey) -> anyhow::Result<Exit> {
    let made: Answer<wire::CreatedKey> = session.api.post("keys", &body).await?;
    session.show(&made, |made| output::line(output::clean(&made.key)))?;
    session.tell("Keep this key now: it is shown this once and stored nowhere. Use it as FOREBAY_KEY.")?;
    Ok(Exit::Done)
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "keys", &[]).await?;
        listed.show(
            session,
            &["NAME", "BEGINS", "SCOPES", "WORKSPACE", "EXPIRES", "LAST USED", "MADE BY", "ID"],
            row,
        )?;
        Ok(Exit::Done)
    }
}

impl Act for Revoke {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = match self.which.parse() {
            Ok(id) => id,
            Err(_) => beginning(session, &self.which).await?,
        };
        if !self.sure.confirm(&format!("Revoke key {id} and every key made with it? Whoever uses one is refused."))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("keys/{id}")).await?;
        session.tell(format!("{id}: revoked"))?;
        Ok(Exit::Done)
    }
}

/// The one key that begins so.
async fn beginning(session: &Session, start: &str) -> anyhow::Result<KeyId> {
    let all: Vec<wire::Key> = Paging::every().fetch(session, "keys", &[]).await.context("find the key")?.items;
    let begins = |key: &&wire::Key| key.prefix.as_deref() == Some(start);
    let found: Vec<&wire::Key> = all.iter().filter(begins).collect();
    match found.as_slice() {
        [one] => Ok(one.id),
        [] => bail!(
            "there is no key that begins with {start} and that this key can see; list them: {}",
            session.hint(&["key", "ls"])
        ),
        many => bail!("{} keys begin with {start}: give the id", many.len()),
    }
}

fn row(key: &wire::Key) -> Vec<Cell> {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    vec![
        Cell::new(&key.name),
        Cell::maybe(key.prefix.as_ref()),
        Cell::new(scopes.join(",")),
        Cell::new(key.workspace_id.map_or_else(|| "all: a root key".to_owned(), |id| id.to_string())),
        Cell::maybe(key.expires_at.map(output::time)),
        Cell::maybe(key.last_used_at.map(output::time)),
        Cell::maybe(key.created_by.as_ref()),
        Cell::new(key.id),
    ]
}
