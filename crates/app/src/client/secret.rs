//! Secrets of a workspace: set from stdin, a file or a prompt, listed by name, deleted.
//!
//! Invariants
//! - A value is never an argument: others on this machine could see it. It is typed unseen, and shown by nothing.
//! - What was read is wiped; the end of its last line is not part of it, unless it came from `--from-file`.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use kernel::ids::WorkspaceId;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use server::access::secrets::MAX_VALUE_BYTES;
use server::wire;
use zeroize::Zeroizing;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::page::Paging;
use super::{Act, On};
use crate::exit::{Exit, usage};
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Set(On<Set>),
    Ls(On<List>),
    Rm(On<Remove>),
}

/// Set a secret, from stdin or a prompt: its first version, or the next
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A workflow uses it as ${{ secrets.NAME }}, in headers, query and body of an HTTP_REQUEST. Nobody can read it back. The \
value is never an argument, which others on this machine could see; the end of its last line is left out.

Examples:
  forebay secret set STOCK_API_KEY --workspace acme
  printf %s \"$KEY\" | forebay secret set STOCK_API_KEY --workspace acme
  forebay secret set CLIENT_CERT --from-file client.pem --workspace acme
  forebay secret set STOCK_API_KEY --host stock.example.com --workspace acme")]
pub(crate) struct Set {
    /// What workflows call it: letters, digits and _
    name: String,
    /// Take the value from a file, all of it
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
    /// A host it may be sent to, such as api.example.com; may be given often [default: as before, any for a new one]
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// It may be sent to any host again
    #[arg(long, conflicts_with = "hosts")]
    any_host: bool,
    #[command(flatten)]
    place: Place,
}

/// List secrets by name; what they hold is never shown
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay secret ls --workspace acme")]
pub(crate) struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    place: Place,
}

/// Delete a secret, after asking: nodes that use it fail from then on
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay secret rm STOCK_API_KEY --workspace acme")]
pub(crate) struct Remove {
    name: String,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    sure: Sure,
}

commands!(Set, Ls, Rm);

impl Act for Set {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = path(session, &self.place, &self.name).await?;
        let hosts = (self.any_host || !self.hosts.is_empty()).then(|| self.hosts.clone());
        let body = wire::SetSecret { value: wire::Hidden(self.value()?), hosts };
        let set: Answer<wire::Secret> = session.api.put(&path, &body).await?;
        session.show(&set, |set| output::line(format!("{}: version {}", output::clean(&set.name), set.version)))?;
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("workspaces/{}/secrets", workspace(session, &self.place).await?);
        let listed = self.paging.fetch(session, &path, &[]).await?;
        listed.show(session, &["NAME", "VERSION", "HOSTS", "SET AT", "BY", "SINCE"], row)?;
        Ok(Exit::Done)
    }
}

impl Act for Remove {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = path(session, &self.place, &self.name).await?;
        let name = output::clean(&self.name);
        if !self.sure.confirm(&format!("Delete secret {name}? Nodes that use it fail from then on."))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&path).await?;
        session.tell(format!("{name}: deleted"))?;
        Ok(Exit::Done)
    }
}

impl Set {
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

/// All that comes, up to one byte more than a secret may have: the server refuses that.
fn read(from: impl Read) -> anyhow::Result<Zeroizing<String>> {
    let most = u64::try_from(MAX_VALUE_BYTES)? + 2;
    // Room for all of it at once: a text that grows leaves copies behind.
    let mut value = Zeroizing::new(String::with_capacity(MAX_VALUE_BYTES + 3));
    from.take(most + 1).read_to_string(&mut value).context("it must be text in UTF-8")?;
    Ok(value)
}

/// Asks for a line without showing it.
fn prompt(name: &str) -> anyhow::Result<Zeroizing<String>> {
    let mut screen = io::stderr().lock();
    write!(screen, "{}: ", output::clean(name)).and_then(|()| screen.flush()).context("ask")?;
    let before = tcgetattr(io::stdin()).context("look at the terminal")?;
    let mut unseen = before.clone();
    unseen.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &unseen).context("hide what is typed")?;
    let mut value = Zeroizing::new(String::with_capacity(MAX_VALUE_BYTES + 3));
    let typed = io::stdin().lock().read_line(&mut value);
    tcsetattr(io::stdin(), SetArg::TCSANOW, &before).context("show again what is typed")?;
    writeln!(screen).context("ask")?;
    typed.context("read the value")?;
    Ok(value)
}

async fn path(session: &Session, place: &Place, name: &str) -> anyhow::Result<String> {
    let fine = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !fine {
        return Err(usage("a secret is called by letters, digits and _, no digit first, such as STOCK_API_KEY"));
    }
    Ok(format!("workspaces/{}/secrets/{name}", workspace(session, place).await?))
}

/// The workspace that was named, or the only one that this key sees.
async fn workspace(session: &Session, place: &Place) -> anyhow::Result<WorkspaceId> {
    if let Some(id) = session.workspace(place).await? {
        return Ok(id);
    }
    let seen: Answer<wire::Page<wire::Workspace>> = session.api.get("workspaces", &[("limit", "2")]).await?;
    match seen.value.items.as_slice() {
        [one] => Ok(one.id),
        _ => bail!("say which workspace: --workspace NAME; list them: {}", session.hint(&["workspace", "ls"])),
    }
}

fn row(secret: &wire::Secret) -> Vec<Cell> {
    vec![
        Cell::new(&secret.name),
        Cell::new(secret.version),
        Cell::new(secret.hosts.as_ref().map_or_else(|| "any".to_owned(), |hosts| hosts.join(","))),
        Cell::new(output::time(secret.updated_at)),
        Cell::new(&secret.created_by),
        Cell::new(output::time(secret.created_at)),
    ]
}
