//! `profile`: servers and their keys, saved under names.
//!
//! Invariants
//! - A key is read and saved, and never shown.
//!
//! Not here: the files (`crate::profile`), which profile a command uses (`connection`).

use std::io::{self, Read};

use anyhow::Context;
use serde_json::json;

use super::Format;
use super::confirmation::Confirmation;
use super::connection::{ApiKey, OutputArgs, read_server};
use crate::exit::{Exit, report_result, usage_error};
use crate::output::{self, Cell, hint};
use crate::profile::{Profile, Profiles, read_name};

/// The maximum length of a key that is read from stdin.
const LONGEST: u64 = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ProfileCommand {
    Ls(ListProfilesArgs),
    Set(SetProfileArgs),
    Use(UseProfileArgs),
    Delete(DeleteProfileArgs),
}

/// List profiles; * marks the one in use
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile ls")]
pub(crate) struct ListProfilesArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Save a server and its key under a name, in a file that only you can read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Other users of this machine can see a key on the command line; --key - reads it from stdin. A profile of the same name \
is replaced.

Examples:
  forebay profile set prod --server https://forebay.example.com --key - < key.txt
  forebay ls --profile prod")]
pub(crate) struct SetProfileArgs {
    /// The profile's name
    #[arg(value_parser = read_name)]
    name: String,
    /// The server's address
    #[arg(long, value_name = "URL", value_parser = read_server)]
    server: String,
    /// The API key; - reads it from stdin
    #[arg(long, value_name = "KEY", env = "FOREBAY_KEY", hide_env_values = true)]
    key: ApiKey,
}

/// Choose the profile that commands use by default
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile use prod")]
pub(crate) struct UseProfileArgs {
    /// The profile's name
    #[arg(value_parser = read_name)]
    name: String,
}

/// Delete a profile
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile delete prod")]
pub(crate) struct DeleteProfileArgs {
    /// The profile's name
    #[arg(value_parser = read_name)]
    name: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

impl ProfileCommand {
    pub(super) fn run(self) -> Exit {
        let format = if let ProfileCommand::Ls(list) = &self { list.output.format() } else { Format::Table };
        let done = Profiles::required().and_then(|profiles| match self {
            ProfileCommand::Ls(list) => list.run(&profiles),
            ProfileCommand::Set(set) => set.run(&profiles),
            ProfileCommand::Use(choice) => choice.run(&profiles),
            ProfileCommand::Delete(delete) => delete.run(&profiles),
        });
        report_result(done.map(|()| Exit::Done), format)
    }
}

impl ListProfilesArgs {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let current = profiles.current()?;
        let mut found = Vec::new();
        for name in profiles.names()? {
            found.extend(profiles.load(&name)?.map(|profile| (name, profile)));
        }
        if self.output.format() == Format::Json {
            let item = |(name, profile): &(String, Profile)| {
                json!({ "name": name, "server": profile.server, "current": *name == current,
                "dev": profile.dev.is_some() })
            };
            let all = json!({ "items": found.iter().map(item).collect::<Vec<_>>() });
            return output::print_json(&all.to_string(), self.output.stdout());
        }
        let row = |(name, profile): &(String, Profile)| {
            let by = if profile.dev.is_some() { "forebay dev" } else { "you" };
            let star = if *name == current { "*" } else { "" };
            vec![Cell::new(star), Cell::new(name), Cell::new(&profile.server), Cell::new(by)]
        };
        output::print_table(
            &["", "NAME", "SERVER", "CREATED BY"],
            found.iter().map(row).collect(),
            self.output.stdout(),
        )
    }
}

impl SetProfileArgs {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let key = if self.key.expose() == "-" { from_stdin()? } else { self.key };
        if key.expose().is_empty() {
            return Err(usage_error("the key is empty: give it with --key KEY, or --key - to read it from stdin"));
        }
        let _lock = profiles.lock()?;
        let path = profiles.save(&self.name, &Profile { server: self.server, key, dev: None })?;
        output::print_note(format!(
            "saved in {}; to use it by default: {}",
            path.display(),
            hint::command(&["profile", "use", &self.name])
        ))
    }
}

fn from_stdin() -> anyhow::Result<ApiKey> {
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text).context("read the key from stdin")?;
    Ok(text.parse().unwrap_or_else(|never| match never {}))
}

impl UseProfileArgs {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let _lock = profiles.lock()?;
        match profiles.load(&self.name)? {
            Some(profile) => {
                profiles.choose(&self.name)?;
                output::print_note(format!("commands now use {}", profile.server))
            }
            None => Err(missing(&self.name)),
        }
    }
}

impl DeleteProfileArgs {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let in_use = self.name == profiles.current()? && profiles.load(&self.name)?.is_some();
        if in_use && !self.confirmation.confirm(&format!("Delete profile {}? It is the profile in use.", self.name))? {
            return Ok(());
        }
        let _lock = profiles.lock()?;
        if profiles.remove(&self.name)? {
            output::print_note(format!("{}: deleted", self.name))
        } else {
            Err(missing(&self.name))
        }
    }
}

fn missing(name: &str) -> anyhow::Error {
    usage_error(format!("there is no profile {name}; list profiles: {}", hint::command(&["profile", "ls"])))
}
