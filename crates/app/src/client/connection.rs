//! Which server to ask, as whom, and how to show its answers.
//!
//! Invariants
//! - The key that `forebay dev` keeps is only ever sent to the server it belongs to.
//! - A key appears in no message and no `Debug`.
//!
//! Not here: the requests themselves (`client::api`).

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use kernel::ids::WorkspaceId;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use server::wire;

use super::api::{Answer, Api, Query};
use super::profile::{self, Profile};
use crate::output::{self, Look};

/// Where a server is unless somebody says otherwise.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7400";
const HEADING: &str = "Connection";

/// The arguments that every client command takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The server's address [default: what `forebay dev` runs, or http://127.0.0.1:7400]
    #[arg(long, global = true, help_heading = HEADING, value_name = "URL", env = "FOREBAY_SERVER", value_parser = read_given)]
    server: Option<String>,
    /// The key to show [default: the one `forebay dev` keeps for its own server]
    #[arg(long, global = true, help_heading = HEADING, value_name = "KEY", env = "FOREBAY_KEY", hide_env_values = true)]
    key: Option<Secret>,
    /// The workspace, by name or id; needed with the root key only
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME|ID", env = "FOREBAY_WORKSPACE")]
    workspace: Option<String>,
    /// How to show answers: for people, or as the server sent them
    #[arg(short, long, global = true, help_heading = HEADING, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
    /// No colours; the variable NO_COLOR does the same
    #[arg(long, global = true, help_heading = HEADING)]
    no_color: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// A key: sent, stored for its owner, never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl FromStr for Secret {
    type Err = Infallible;
    /// A key read from a file often ends with a line break.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Secret(text.trim().to_owned()))
    }
}

impl Connection {
    pub(crate) fn format(&self) -> Format {
        self.output
    }

    pub(crate) fn stdout(&self) -> Look {
        Look::stdout(self.no_color)
    }

    /// Settles server and key, and gets ready to ask.
    pub(crate) fn open(&self) -> anyhow::Result<Session> {
        let key = self.key.clone().filter(|key| !key.0.is_empty());
        let profile = if key.is_none() { profile::load()? } else { None };
        let server = self.server.clone().filter(|server| !server.is_empty());
        let (server, key) = choose(server, key, profile);
        Ok(Session {
            api: Api::new(&server, key)?,
            format: self.output,
            stdout: self.stdout(),
            stderr: Look::stderr(self.no_color),
            workspace: self.workspace.clone().filter(|workspace| !workspace.is_empty()),
        })
    }
}

/// The server and the key to use: what was given, then what `forebay dev` left, then the default.
fn choose(server: Option<String>, key: Option<Secret>, profile: Option<Profile>) -> (String, Option<Secret>) {
    match (server, key, profile) {
        (server, Some(key), _) => (server.unwrap_or_else(|| DEFAULT_SERVER.to_owned()), Some(key)),
        (None, None, Some(profile)) => (profile.server, Some(profile.key)),
        (Some(server), None, Some(profile)) if server == profile.server => (server, Some(profile.key)),
        (server, None, _) => (server.unwrap_or_else(|| DEFAULT_SERVER.to_owned()), None),
    }
}

/// An address, or nothing at all: an empty variable is the same as none.
fn read_given(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { read_server(text) }
}

/// Checks an address and drops a slash at its end.
pub(super) fn read_server(text: &str) -> Result<String, String> {
    let example = || format!("write an address such as {DEFAULT_SERVER}");
    let url = Url::parse(text.trim()).map_err(|_| example())?;
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if matches!(url.scheme(), "http" | "https") && url.has_host() && plain && url.fragment().is_none() {
        Ok(url.as_str().trim_end_matches('/').to_owned())
    } else {
        Err(example())
    }
}

/// A server to talk to, and how to show what it says.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) api: Api,
    pub(crate) format: Format,
    pub(crate) stdout: Look,
    pub(crate) stderr: Look,
    workspace: Option<String>,
}

impl Session {
    /// Shows an answer: as it came, or as its own view.
    pub(crate) fn show<T>(
        &self,
        answer: &Answer<T>,
        view: impl FnOnce(&T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::json(&answer.body, self.stdout)?,
            Format::Table => view(&answer.value)?,
        }
        Ok(())
    }

    /// The workspace that `--workspace` names, if it was given.
    pub(crate) async fn workspace(&self) -> anyhow::Result<Option<WorkspaceId>> {
        match &self.workspace {
            Some(workspace) => self.find_workspace(workspace).await.map(Some),
            None => Ok(None),
        }
    }

    /// The id of a workspace given by name or id.
    pub(crate) async fn find_workspace(&self, workspace: &str) -> anyhow::Result<WorkspaceId> {
        if let Ok(id) = workspace.parse() {
            return Ok(id);
        }
        let query: Query<'_> = &[("name", workspace)];
        let page: Answer<wire::Page<wire::Workspace>> =
            self.api.get("workspaces", query).await.with_context(|| format!("find workspace {workspace}"))?;
        match page.value.items.iter().find(|item| item.name == workspace) {
            Some(found) => Ok(found.id),
            None => bail!("there is no workspace {workspace} that this key can see; `forebay workspace ls` lists them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_key_goes_only_to_its_own_server() {
        let here = || Some("http://127.0.0.1:7500".to_owned());
        let there = || Some("https://prod.example.test".to_owned());
        let key = |text: &str| Some(Secret(text.to_owned()));
        let kept = || Some(Profile { server: "http://127.0.0.1:7500".to_owned(), key: Secret("kept".to_owned()) });
        let table = [
            (choose(None, None, kept()), (here(), key("kept"))),
            (choose(here(), None, kept()), (here(), key("kept"))),
            (choose(there(), None, kept()), (there(), None)),
            (choose(there(), key("own"), kept()), (there(), key("own"))),
            (choose(None, key("own"), kept()), (Some(DEFAULT_SERVER.to_owned()), key("own"))),
            (choose(None, None, None), (Some(DEFAULT_SERVER.to_owned()), None)),
        ];
        for (at, ((server, key), expected)) in table.into_iter().enumerate() {
            assert_eq!((Some(server), key), expected, "row {at}");
        }
    }

    #[test]
    fn an_address_is_http_with_a_host_and_nothing_secret() {
        let good =
            [("http://127.0.0.1:7400/", "http://127.0.0.1:7400"), (" https://e.test/base/ ", "https://e.test/base")];
        for (text, server) in good {
            assert_eq!(read_server(text).as_deref(), Ok(server));
        }
        for text in
            ["", "127.0.0.1:7400", "localhost", "ftp://e.test", "http://u:p@e.test", "http://e.test?a", "http://"]
        {
            assert!(read_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_is_not_shown_by_accident() {
        let key: Secret = " fb_secret\n".parse().unwrap_or_else(|never| match never {});
        assert_eq!(key.expose(), "fb_secret");
        assert_eq!(format!("{key:?}"), "Secret(…)");
    }
}
