//! Which server a command talks to, with which key, and how its answers are shown.
//!
//! Invariants
//! - The key of a profile is sent only to the server of that profile.
//! - A flag takes precedence over a variable, and both take precedence over the profile.
//! - A key appears in no message and in no `Debug` output.
//!
//! Not here: the requests themselves (`client::api`), the files (`profile`).

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use kernel::ids::WorkspaceId;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use server::wire;

use super::api::{Answer, Api, Query};
use crate::exit::{not_found_error, usage_error};
use crate::output::{self, StreamStyle, hint};
use crate::profile::{Profile, Profiles, read_name};

/// The server's address if neither a flag, a variable nor a profile names one.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7400";
const HEADING: &str = "Connection";
const SERVER: &str = "FOREBAY_SERVER";
const KEY: &str = "FOREBAY_KEY";
const PROFILE: &str = "FOREBAY_PROFILE";

/// The arguments of every command that talks to a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// The server's address [default: the profile's, or http://127.0.0.1:7400]
    #[arg(long, help_heading = HEADING, value_name = "URL", env = SERVER, value_parser = read_given)]
    server: Option<String>,
    /// The API key [default: the profile's, for its own server only]
    #[arg(long, help_heading = HEADING, value_name = "KEY", env = KEY, hide_env_values = true)]
    key: Option<ApiKey>,
    /// The profile that names server and key [default: the one chosen with `forebay profile use`, or dev]
    #[arg(long, help_heading = HEADING, value_name = "NAME", env = PROFILE, value_parser = read_profile)]
    profile: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The arguments of every command that shows data.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// How to show answers and errors: as tables for people, or as the JSON that the server sent
    #[arg(short, long, help_heading = HEADING, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Do not use colors; the variable NO_COLOR does the same
    #[arg(long, help_heading = HEADING)]
    no_color: bool,
}

/// The workspace that a command is about.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WorkspaceArg {
    /// The workspace, by name or id; not needed with a key of a workspace
    #[arg(long, help_heading = HEADING, value_name = "NAME|ID", env = "FOREBAY_WORKSPACE")]
    pub(crate) workspace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// An API key: sent to the server, stored in the profile, never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

impl FromStr for ApiKey {
    type Err = Infallible;
    /// A key read from a file often ends with a line break.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(ApiKey(text.trim().to_owned()))
    }
}

impl OutputArgs {
    pub(crate) fn format(&self) -> Format {
        self.output
    }

    pub(crate) fn stdout(&self) -> StreamStyle {
        StreamStyle::stdout(self.no_color)
    }
}

impl Connection {
    pub(crate) fn format(&self) -> Format {
        self.output.output
    }

    pub(crate) fn stdout(&self) -> StreamStyle {
        self.output.stdout()
    }

    /// Chooses the server and the key, and creates the session in which the command sends requests.
    pub(crate) fn open(&self) -> anyhow::Result<Session> {
        let given = self.given();
        let profile = kept(&given)?;
        let mut flags = Vec::new();
        for (flag, value) in [("--server", &given.server), ("--profile", &given.profile)] {
            flags.extend(
                value.iter().filter(|value| value.by_flag).flat_map(|value| [flag.to_owned(), value.text.clone()]),
            );
        }
        let (server, key) = choose(given, profile)?;
        if key.is_some() && is_sent_unencrypted(&server) {
            output::print_note(format!(
                "warning: the key is sent to {server} unencrypted, so others on the network can read it; use https"
            ))?;
        }
        Ok(Session {
            api: Api::new(&server, key)?,
            format: self.output.output,
            stdout: self.output.stdout(),
            stderr: StreamStyle::stderr(self.output.no_color),
            flags,
        })
    }

    fn given(&self) -> Given {
        let value = |text: Option<&str>, variable: &str| {
            let text = text.filter(|text| !text.is_empty())?.to_owned();
            let by_flag = std::env::var(variable).ok().as_deref().map(str::trim) != Some(text.as_str());
            Some(Value { text, by_flag })
        };
        Given {
            server: value(self.server.as_deref(), SERVER),
            key: value(self.key.as_ref().map(ApiKey::expose), KEY),
            profile: value(self.profile.as_deref(), PROFILE),
        }
    }
}

/// The server, the key and the profile that the user gave, each by a flag or a variable.
#[derive(Clone, Debug, Default)]
struct Given {
    server: Option<Value>,
    key: Option<Value>,
    profile: Option<Value>,
}

#[derive(Clone)]
struct Value {
    text: String,
    by_flag: bool,
}

/// Omits the text, which may be a key.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

/// The profile to use: the profile that the user named, which must exist, or else the current profile.
fn kept(given: &Given) -> anyhow::Result<Option<Profile>> {
    let profiles = Profiles::of_user();
    let Some(named) = &given.profile else {
        let current = |profiles: Profiles| profiles.load(&profiles.current()?);
        return match profiles {
            // With a key given, only the server of the profile matters: an unreadable profile is ignored.
            Some(profiles) if given.key.is_some() => Ok(current(profiles).ok().flatten()),
            Some(profiles) => current(profiles),
            None => Ok(None),
        };
    };
    let found = profiles.map(|profiles| profiles.load(&named.text)).transpose()?.flatten();
    let missing = || {
        usage_error(format!("there is no profile {}; list profiles: {}", named.text, hint::command(&["profile", "ls"])))
    };
    found.map(Some).ok_or_else(missing)
}

/// The server and the key to use: those that the user gave, else those of the profile, else the default server.
fn choose(mut given: Given, profile: Option<Profile>) -> anyhow::Result<(String, Option<ApiKey>)> {
    let named = given.profile.take();
    if named.as_ref().is_some_and(|named| named.by_flag) {
        given.server = given.server.filter(|server| server.by_flag);
        given.key = given.key.filter(|key| key.by_flag);
    }
    let (server, key) = (given.server.map(|server| server.text), given.key.map(|key| ApiKey(key.text)));
    let fallback = || DEFAULT_SERVER.to_owned();
    Ok(match (server, key, profile, named) {
        (Some(server), None, Some(profile), Some(named)) if named.by_flag && server != profile.server => {
            bail!(usage_error(format!(
                "the key of profile {} is only for {}: omit --server, or give --key too",
                named.text, profile.server
            )))
        }
        (None, Some(key), Some(profile), _) => (profile.server, Some(key)),
        (server, Some(key), _, _) => (server.unwrap_or_else(fallback), Some(key)),
        (None, None, Some(profile), _) => (profile.server, Some(profile.key)),
        (Some(server), None, Some(profile), _) if server == profile.server => (server, Some(profile.key)),
        (server, None, _, _) => (server.unwrap_or_else(fallback), None),
    })
}

/// Whether requests to the server leave this machine unencrypted.
fn is_sent_unencrypted(server: &str) -> bool {
    let Ok(url) = Url::parse(server) else { return false };
    let host = url.host_str().unwrap_or_default();
    let is_here = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    };
    url.scheme() == "http" && !is_here
}

/// An address, or an empty text: an empty variable counts as not set.
fn read_given(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { read_server(text) }
}

fn read_profile(text: &str) -> Result<String, String> {
    if text.is_empty() { Ok(String::new()) } else { read_name(text) }
}

/// Checks an address and removes a trailing slash.
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

/// A server to talk to, and how to show its answers.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) api: Api,
    pub(crate) format: Format,
    pub(crate) stdout: StreamStyle,
    pub(crate) stderr: StreamStyle,
    /// The flags with which another command reaches the same server; never the key.
    flags: Vec<String>,
}

impl Session {
    /// Shows an answer: with `-o json` as the JSON that the server sent, else with `view`.
    pub(crate) fn show<T>(
        &self,
        answer: &Answer<T>,
        view: impl FnOnce(&T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::print_json(&answer.body, self.stdout)?,
            Format::Table => view(&answer.value)?,
        }
        Ok(())
    }

    /// Prints a message, unless the output is JSON.
    pub(crate) fn note(&self, text: impl fmt::Display) -> anyhow::Result<()> {
        if self.format == Format::Table { output::print_note(text) } else { Ok(()) }
    }

    /// A command line that the user can paste. It talks to the same server.
    pub(crate) fn hint(&self, words: &[&str]) -> String {
        let flags = self.flags.iter().map(String::as_str);
        hint::command(&words.iter().copied().chain(flags).collect::<Vec<_>>())
    }

    /// The workspace that `--workspace` names, if it was given.
    pub(crate) async fn workspace(&self, workspace: &WorkspaceArg) -> anyhow::Result<Option<WorkspaceId>> {
        match workspace.workspace.as_deref().filter(|workspace| !workspace.is_empty()) {
            Some(workspace) => self.find_workspace(workspace).await.map(Some),
            None => Ok(None),
        }
    }

    /// The id of a workspace that is given by name or id.
    pub(crate) async fn find_workspace(&self, workspace: &str) -> anyhow::Result<WorkspaceId> {
        if let Ok(id) = workspace.parse() {
            return Ok(id);
        }
        let query: Query<'_> = &[("name", workspace)];
        let page: Answer<wire::Page<wire::Workspace>> =
            self.api.get("workspaces", query).await.with_context(|| format!("find workspace {workspace}"))?;
        match page.value.items.iter().find(|item| item.name == workspace) {
            Some(found) => Ok(found.id),
            None => {
                let list = self.hint(&["workspace", "ls"]);
                Err(not_found_error(format!(
                    "there is no workspace {workspace}, or this key cannot access it; list workspaces: {list}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "http://127.0.0.1:7500";
    const THERE: &str = "https://prod.example.test";

    fn kept() -> Profile {
        Profile { server: HERE.to_owned(), key: ApiKey("kept".to_owned()), dev: None }
    }

    /// Reads `flag:…` and `variable:…`.
    fn value(text: &str) -> Option<Value> {
        let (from, text) = text.split_once(' ')?;
        Some(Value { text: text.to_owned(), by_flag: from == "flag" })
    }

    fn check(given: [&str; 3], profile: Option<Profile>, expected: Result<(&str, Option<&str>), ()>) {
        let [server, key, named] = given.map(value);
        let chosen = choose(Given { server, key, profile: named }, profile);
        let chosen = chosen.as_ref().map(|(server, key)| (server.as_str(), key.as_ref().map(ApiKey::expose)));
        assert_eq!(chosen.map_err(|_| ()), expected, "{given:?}");
    }

    #[test]
    fn the_key_of_a_profile_goes_only_to_its_own_server() {
        let there = format!("flag {THERE}");
        check(["", "", ""], Some(kept()), Ok((HERE, Some("kept"))));
        check([&format!("variable {HERE}"), "", ""], Some(kept()), Ok((HERE, Some("kept"))));
        check([&there, "", ""], Some(kept()), Ok((THERE, None)));
        check([&there, "flag own", ""], Some(kept()), Ok((THERE, Some("own"))));
        check(["", "flag own", ""], None, Ok((DEFAULT_SERVER, Some("own"))));
        check(["", "variable own", ""], Some(kept()), Ok((HERE, Some("own"))));
        check(["", "", ""], None, Ok((DEFAULT_SERVER, None)));
    }

    #[test]
    fn a_named_profile_takes_precedence_over_variables_but_not_over_flags() {
        let (there, flag) = (format!("variable {THERE}"), format!("flag {THERE}"));
        check([&there, "variable own", "flag p"], Some(kept()), Ok((HERE, Some("kept"))));
        check(["", "flag own", "flag p"], Some(kept()), Ok((HERE, Some("own"))));
        check([&flag, "", "flag p"], Some(kept()), Err(()));
        check([&flag, "flag own", "flag p"], Some(kept()), Ok((THERE, Some("own"))));
        check([&there, "variable own", "variable p"], Some(kept()), Ok((THERE, Some("own"))));
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
    fn an_unencrypted_key_for_another_machine_is_warned_about() {
        for here in ["http://127.0.0.1:7400", "http://localhost", "http://[::1]:1", "http://dev.localhost:1", THERE] {
            assert!(!is_sent_unencrypted(here), "{here}");
        }
        for away in
            ["http://10.0.0.1:7400", "http://forebay:7400", "http://localhost.evil.test", "http://[2001:db8::1]"]
        {
            assert!(is_sent_unencrypted(away), "{away}");
        }
    }

    #[test]
    fn a_key_is_not_shown_by_accident() {
        let key: ApiKey = " fb_secret\n".parse().unwrap_or_else(|never| match never {});
        assert_eq!(key.expose(), "fb_secret");
        assert_eq!(format!("{key:?}"), "ApiKey(…)");
    }
}
