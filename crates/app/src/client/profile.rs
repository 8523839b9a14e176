//! `profile`: servers and their keys, kept under names.
//!
//! Invariants
//! - A key is read and kept, and never shown.
//!
//! Not here: the files (`crate::profile`), which profile a command uses (`connection`).

use std::io::{self, Read};

use anyhow::Context;
use serde_json::json;

use super::Format;
use super::confirm::Sure;
use super::connection::{Secret, Shown, read_server};
use crate::exit::{Exit, settle, usage};
use crate::output::{self, Cell, hint};
use crate::profile::{Profile, Profiles, read_name};

/// The most that is read of a key from stdin.
const LONGEST: u64 = 1_000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(List),
    Add(Add),
    Use(Use),
    Rm(Remove),
}

/// List the profiles; a star is the one in use
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile ls")]
pub(crate) struct List {
    #[command(flatten)]
    shown: Shown,
}

/// Keep a server and its key under a name, in a file that only you can read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A key on the command line can be seen by others on this machine; - reads it from stdin.

Examples:
  forebay profile add prod --server https://forebay.example.com --key - < key.txt
  forebay ls --profile prod")]
pub(crate) struct Add {
    /// What to call it
    #[arg(value_parser = read_name)]
    name: String,
    /// The server's address
    #[arg(long, value_name = "URL", value_parser = read_server)]
    server: String,
    /// The key to show; - reads it from stdin
    #[arg(long, value_name = "KEY", env = "FOREBAY_KEY", hide_env_values = true)]
    key: Secret,
}

/// Use a profile unless a command says otherwise
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile use prod")]
pub(crate) struct Use {
    /// The profile's name
    #[arg(value_parser = read_name)]
    name: String,
}

/// Remove a profile
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay profile rm prod")]
pub(crate) struct Remove {
    /// The profile's name
    #[arg(value_parser = read_name)]
    name: String,
    #[command(flatten)]
    sure: Sure,
}

impl Command {
    pub(super) fn run(self) -> Exit {
        let format = if let Command::Ls(list) = &self { list.shown.format() } else { Format::Table };
        let done = Profiles::needed().and_then(|profiles| match self {
            Command::Ls(list) => list.run(&profiles),
            Command::Add(add) => add.run(&profiles),
            Command::Use(choice) => choice.run(&profiles),
            Command::Rm(remove) => remove.run(&profiles),
        });
        settle(done.map(|()| Exit::Done), format)
    }
}

impl List {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let current = profiles.current()?;
        let mut found = Vec::new();
        for name in profiles.names()? {
            found.extend(profiles.load(&name)?.map(|profile| (name, profile)));
        }
        if self.shown.format() == Format::Json {
            let item = |(name, profile): &(String, Profile)| {
                json!({ "name": name, "server": profile.server, "current": *name == current,
                "dev": profile.dev.is_some() })
            };
            let all = json!({ "items": found.iter().map(item).collect::<Vec<_>>() });
            return output::json(&all.to_string(), self.shown.stdout());
        }
        let row = |(name, profile): &(String, Profile)| {
            let by = if profile.dev.is_some() { "forebay dev" } else { "you" };
            let star = if *name == current { "*" } else { "" };
            vec![Cell::new(star), Cell::new(name), Cell::new(&profile.server), Cell::new(by)]
        };
        output::table(&["", "NAME", "SERVER", "MADE BY"], found.iter().map(row).collect(), self.shown.stdout())
    }
}

impl Add {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let key = if self.key.expose() == "-" { from_stdin()? } else { self.key };
        if key.expose().is_empty() {
            return Err(usage("the key is empty"));
        }
        let _lock = profiles.lock()?;
        let path = profiles.save(&self.name, &Profile { server: self.server, key, dev: None })?;
        output::note(format!("kept in {}; use it: {}", path.display(), hint::command(&["profile", "use", &self.name])))
    }
}

fn from_stdin() -> anyhow::Result<Secret> {
    let mut text = String::new();
    io::stdin().lock().take(LONGEST).read_to_string(&mut text).context("read the key from stdin")?;
    Ok(text.parse().unwrap_or_else(|never| match never {}))
}

impl Use {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let _lock = profiles.lock()?;
        match profiles.load(&self.name)? {
            Some(profile) => {
                profiles.choose(&self.name)?;
                output::note(format!("commands now ask {}", profile.server))
            }
            None => Err(missing(&self.name)),
        }
    }
}

impl Remove {
    fn run(self, profiles: &Profiles) -> anyhow::Result<()> {
        let in_use = self.name == profiles.current()? && profiles.load(&self.name)?.is_some();
        if in_use && !self.sure.confirm(&format!("{} is the profile in use. Remove it?", self.name))? {
            return Ok(());
        }
        let _lock = profiles.lock()?;
        if profiles.remove(&self.name)? {
            output::note(format!("{}: removed", self.name))
        } else {
            Err(missing(&self.name))
        }
    }
}

fn missing(name: &str) -> anyhow::Error {
    usage(format!("there is no profile {name}; list them: {}", hint::command(&["profile", "ls"])))
}
