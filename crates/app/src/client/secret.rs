//! Secrets of a workspace: set, list and delete them.
//!
//! Invariants
//! - A value is never an argument, because other users of this machine can see arguments. A typed value is not echoed,
//!   and no command shows a value.
//! - The value is wiped from memory after use. Its last line break is removed, unless it came from `--from-file`.

mod rotate_keys;

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use kernel::ids::WorkspaceId;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use server::access::secrets::MAX_VALUE_BYTES;
use server::wire;
use zeroize::Zeroizing;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::PageArgs;
use super::{Connected, Execute};
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell};
use rotate_keys::RotateKeysArgs;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SecretCommand {
    Set(Connected<SetSecretArgs>),
    Ls(Connected<ListSecretsArgs>),
    Delete(Connected<DeleteSecretArgs>),
    RotateKeys(RotateKeysArgs),
}

/// Set a secret, with the value from stdin, a file or a prompt
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A workflow uses the secret as ${{ secrets.NAME }} in the headers, query and body of an HTTP_REQUEST. Nobody can read \
it back. Each set creates a new version. The value is never an argument, because others on this machine could see \
it; its last line break is removed.

Examples:
  forebay secret set STOCK_API_KEY --workspace acme
  printf %s \"$KEY\" | forebay secret set STOCK_API_KEY --workspace acme
  forebay secret set CLIENT_CERT --from-file client.pem --workspace acme
  forebay secret set STOCK_API_KEY --host stock.example.com --workspace acme")]
pub(crate) struct SetSecretArgs {
    /// The name of the secret: letters, digits and _
    name: String,
    /// Read the whole value from this file
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// A host that the secret may be sent to, such as api.example.com; may be repeated [default: unchanged; any host
    /// for a new secret]
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Allow the secret to be sent to any host
    #[arg(long, conflicts_with = "hosts")]
    any_host: bool,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List secrets; their values are never shown
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay secret ls --workspace acme")]
pub(crate) struct ListSecretsArgs {
    #[command(flatten)]
    paging: PageArgs,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Delete a secret, after asking; nodes that use it then fail
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay secret delete STOCK_API_KEY --workspace acme")]
pub(crate) struct DeleteSecretArgs {
    /// The name of the secret
    name: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
    #[command(flatten)]
    confirmation: Confirmation,
}

commands!(SecretCommand: Set, Ls, Delete, RotateKeys);

impl Execute for SetSecretArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let path = path(session, &self.workspace, &self.name).await?;
        let hosts = (self.any_host || !self.hosts.is_empty()).then(|| self.hosts.clone());
        let body = wire::SetSecret { value: wire::SecretValue(self.value()?), hosts };
        let set: Answer<wire::Secret> = session.api.put(&path, &body).await?;
        session
            .show(&set, |set| output::print_line(format!("{}: version {}", output::clean(&set.name), set.version)))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListSecretsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("workspaces/{}/secrets", workspace_id(session, &self.workspace).await?);
        let listed = self.paging.fetch(session, &path, &[]).await?;
        listed.show(session, &["NAME", "VERSION", "HOSTS", "UPDATED", "CREATED BY", "CREATED"], row)?;
        Ok(Exit::Done)
    }
}

impl Execute for DeleteSecretArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let path = path(session, &self.workspace, &self.name).await?;
        let name = output::clean(&self.name);
        if !self.confirmation.confirm(&format!("Delete secret {name}? Nodes that use it then fail."))? {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&path).await?;
        session.note(format!("{name}: deleted"))?;
        Ok(Exit::Done)
    }
}

impl SetSecretArgs {
    fn value(&self) -> anyhow::Result<Zeroizing<String>> {
        if let Some(file) = &self.from_file {
            let what = || format!("read {}", file.display());
            return read(std::fs::File::open(file).with_context(what)?).with_context(what);
        }
        let mut value = match io::stdin().is_terminal() {
            true => prompt(&self.name)?,
            false => read(io::stdin().lock()).context("read the value from stdin")?,
        };
        let length = value.strip_suffix('\n').map_or(value.len(), |rest| rest.strip_suffix('\r').unwrap_or(rest).len());
        value.truncate(length);
        Ok(value)
    }
}

/// Reads a value, up to a little more than a secret may have. The server refuses a value that is too long.
fn read(from: impl Read) -> anyhow::Result<Zeroizing<String>> {
    let most = u64::try_from(MAX_VALUE_BYTES)? + 2;
    // The text is allocated at its full size, because a text that grows leaves copies in memory.
    let mut value = Zeroizing::new(String::with_capacity(MAX_VALUE_BYTES + 3));
    from.take(most + 1).read_to_string(&mut value).context("the value must be UTF-8 text")?;
    Ok(value)
}

/// Asks for the value at the terminal, with echo off.
fn prompt(name: &str) -> anyhow::Result<Zeroizing<String>> {
    let mut screen = io::stderr().lock();
    write!(screen, "{}: ", output::clean(name)).and_then(|()| screen.flush()).context("write the prompt")?;
    let before = tcgetattr(io::stdin()).context("read the terminal's settings")?;
    let mut unseen = before.clone();
    unseen.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &unseen).context("turn off echo")?;
    let mut value = Zeroizing::new(String::with_capacity(MAX_VALUE_BYTES + 3));
    let typed = io::stdin().lock().read_line(&mut value);
    tcsetattr(io::stdin(), SetArg::TCSANOW, &before).context("turn on echo")?;
    writeln!(screen).context("write the prompt")?;
    typed.context("read the value")?;
    Ok(value)
}

async fn path(session: &Session, workspace: &WorkspaceArg, name: &str) -> anyhow::Result<String> {
    let fine = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !fine {
        return Err(usage_error(
            "the name of a secret has letters, digits and _, and does not start with a digit, such as STOCK_API_KEY",
        ));
    }
    Ok(format!("workspaces/{}/secrets/{name}", workspace_id(session, workspace).await?))
}

/// The given workspace, or the only one that the key can access.
async fn workspace_id(session: &Session, workspace: &WorkspaceArg) -> anyhow::Result<WorkspaceId> {
    if let Some(id) = session.workspace(workspace).await? {
        return Ok(id);
    }
    let seen: Answer<wire::Page<wire::Workspace>> = session.api.get("workspaces", &[("limit", "2")]).await?;
    match seen.value.items.as_slice() {
        [one] => Ok(one.id),
        _ => bail!("name the workspace with --workspace NAME; list workspaces: {}", session.hint(&["workspace", "ls"])),
    }
}

fn row(secret: &wire::Secret) -> Vec<Cell> {
    vec![
        Cell::new(&secret.name),
        Cell::new(secret.version),
        Cell::new(secret.hosts.as_ref().map_or_else(|| "any".to_owned(), |hosts| hosts.join(","))),
        Cell::new(output::format_time(secret.updated_at)),
        Cell::new(&secret.created_by),
        Cell::new(output::format_time(secret.created_at)),
    ]
}
