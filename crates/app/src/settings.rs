//! Where settings come from. A flag takes precedence over an environment variable, which takes precedence over the
//! file, which takes precedence over the default.
//!
//! Invariants
//! - Only the binary reads arguments and environment.
//! - An unknown key from any source makes the command fail. The error names the key, and the most similar known key.
//!
//! Not here: what the keys mean (`server::config`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;
use server::config::{DESCRIPTIONS, Settings};
use toml::{Table, Value};

use crate::exit::as_usage_error;

/// Where settings are read from.
#[derive(Args, Clone, Debug)]
pub(crate) struct SettingsArgs {
    /// A TOML file of settings; `forebay config` shows every key
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// One setting, such as dispatch.batch_max=200; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The database that a command uses.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DatabaseArgs {
    /// The PostgreSQL database, version 15 or later (the setting database.url)
    #[arg(long, value_name = "URL", hide_env_values = true, env = "FOREBAY_DATABASE_URL")]
    database_url: Option<String>,
}

/// The address of the service, and its logging.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServiceArgs {
    /// The address of the API, such as 127.0.0.1:7400 (the setting http.listen)
    #[arg(long, value_name = "ADDRESS", env = "FOREBAY_HTTP_LISTEN", value_parser = read_address)]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) logging: LoggingArgs,
}

/// What is logged, and how.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LoggingArgs {
    /// The log level or filter: error, warn, info, debug, or a filter such as info,store=debug (the setting log.filter)
    #[arg(long, value_name = "FILTER", env = "FOREBAY_LOG")]
    log: Option<String>,
    /// The format of log lines (the setting log.format)
    #[arg(long, value_name = "FORMAT", env = "FOREBAY_LOG_FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
}

fn read_address(text: &str) -> Result<String, String> {
    let expected = |_| "write an address and a port, such as 127.0.0.1:7400".to_owned();
    text.parse().map(|_: SocketAddr| text.to_owned()).map_err(expected)
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Environment(String),
    File,
    Default,
}

/// The effective settings, and where each value came from.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) settings: Settings,
    origins: BTreeMap<String, Origin>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag => f.write_str("flag"),
            Origin::Environment(name) => f.write_str(name),
            Origin::File => f.write_str("file"),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl Effective {
    pub(crate) fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }
}

impl SettingsArgs {
    /// The effective settings. An invalid setting from any source is a usage error.
    pub(crate) fn load(&self, database: &DatabaseArgs, service: &ServiceArgs) -> anyhow::Result<Effective> {
        self.gather(database, service).map_err(|error| as_usage_error(&error))
    }

    fn gather(&self, database: &DatabaseArgs, service: &ServiceArgs) -> anyhow::Result<Effective> {
        let mut gathered = CollectedSettings::default();
        if let Some(path) = &self.config {
            let what = || format!("read settings from {}", path.display());
            let text = std::fs::read_to_string(path).with_context(what)?;
            gathered.file(text.parse::<Table>().with_context(what)?).with_context(what)?;
        }
        gathered.environment(std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            name.starts_with(PREFIX).then_some((name, value))
        }))?;
        let named = [
            ("database.url", variable("database.url"), database.database_url.as_ref()),
            ("http.listen", variable("http.listen"), service.listen.as_ref()),
            ("log.filter", "FOREBAY_LOG".to_owned(), service.logging.log.as_ref()),
            ("log.format", variable("log.format"), service.logging.log_format.as_ref()),
        ];
        for (key, variable, value) in named {
            let Some(text) = value else { continue };
            // clap fills these flags from their variables. The origin is the variable if it has the same value.
            let by_variable = std::env::var(&variable).as_ref() == Ok(text);
            gathered.put(key, text, if by_variable { Origin::Environment(variable) } else { Origin::Flag })?;
        }
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("--set {pair}: write KEY=VALUE, such as dispatch.batch_max=200");
            };
            gathered.put(key.trim(), value.trim(), Origin::Flag)?;
        }
        let CollectedSettings { table, origins } = gathered;
        let settings = Settings::deserialize(Value::Table(table))
            .map_err(|error| anyhow::anyhow!("read the settings: {error}"))?;
        settings.check().context("check the settings")?;
        Ok(Effective { settings, origins })
    }
}

const PREFIX: &str = "FOREBAY_";
/// Settings that are lists of texts. In a flag or a variable the texts may be separated by commas.
const LISTS: [&str; 4] = ["outbound.allow", "outbound.deny", "http.trusted_proxies", "http.cors_origins"];

/// The environment variable of a key.
pub(crate) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// The settings that were read so far, each with its origin.
#[derive(Default)]
struct CollectedSettings {
    table: Table,
    origins: BTreeMap<String, Origin>,
}

impl CollectedSettings {
    fn file(&mut self, table: Table) -> anyhow::Result<()> {
        let mut keys = Vec::new();
        leaves("", &table, &mut keys);
        for key in keys {
            known(&key)?;
            self.origins.insert(key, Origin::File);
        }
        self.table = table;
        Ok(())
    }

    /// Reads the environment. A variable that begins like a section of the settings must be the variable of a setting.
    /// Variables that Kubernetes sets for a service named `forebay` are ignored.
    fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<()> {
        for (name, text) in variables {
            if let Some((key, _)) = DESCRIPTIONS.iter().find(|(key, _)| variable(key) == name) {
                self.put(key, &text, Origin::Environment(name.clone())).with_context(|| format!("read {name}"))?;
                continue;
            }
            let sections = DESCRIPTIONS.iter().filter_map(|(key, _)| key.split_once('.')).map(|(section, _)| section);
            let ours = sections.into_iter().any(|section| name.starts_with(&format!("{}_", variable(section))));
            if ours && !name.contains("_SERVICE_") && !name.contains("_PORT") {
                let all: Vec<String> = DESCRIPTIONS.iter().map(|(key, _)| variable(key)).collect();
                bail!(unknown(&name, &all));
            }
        }
        Ok(())
    }

    /// Sets the value of a dotted key. The text is read as TOML if possible, otherwise as a string. A list may be
    /// separated by commas.
    fn put(&mut self, key: &str, text: &str, origin: Origin) -> anyhow::Result<()> {
        known(key)?;
        let value = match format!("value = {text}").parse::<Table>() {
            Ok(mut parsed) => parsed.remove("value").unwrap_or_else(|| Value::String(text.to_owned())),
            Err(_) if LISTS.contains(&key) => {
                Value::Array(text.split(',').map(|entry| Value::String(entry.trim().to_owned())).collect())
            }
            Err(_) => Value::String(text.to_owned()),
        };
        let mut at = &mut self.table;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                at.insert(part.to_owned(), value);
                break;
            }
            let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = next else {
                bail!("{key}: {part} is set to a value, but it is a section of settings")
            };
            at = inner;
        }
        self.origins.insert(key.to_owned(), origin);
        Ok(())
    }
}

/// Collects the keys of all values in a TOML table, with dots between the names.
fn leaves(prefix: &str, table: &Table, found: &mut Vec<String>) {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => leaves(&key, inner, found),
            _ => found.push(key),
        }
    }
}

fn known(key: &str) -> anyhow::Result<()> {
    if DESCRIPTIONS.iter().any(|(known, _)| *known == key) {
        return Ok(());
    }
    let all: Vec<String> = DESCRIPTIONS.iter().map(|(known, _)| (*known).to_owned()).collect();
    bail!(unknown(key, &all))
}

/// The error for an unknown setting. It names the most similar setting, if one is similar enough.
fn unknown(name: &str, all: &[String]) -> String {
    let nearest = all.iter().min_by_key(|known| distance(name, known));
    match nearest.filter(|known| distance(name, known) <= 1 + name.len() / 6) {
        Some(known) => format!("there is no setting {name}: did you mean {known}?"),
        None => format!("there is no setting {name}; `forebay config` lists them"),
    }
}

/// The edit distance: how many letters must be inserted, deleted or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: &str,
        environment: &[(&str, &str)],
        flags: &[(&str, &str)],
    ) -> anyhow::Result<(Settings, CollectedSettings)> {
        let mut gathered = CollectedSettings::default();
        gathered.file(file.parse()?)?;
        gathered.environment(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))?;
        for (key, value) in flags {
            gathered.put(key, value, Origin::Flag)?;
        }
        Ok((Settings::deserialize(Value::Table(gathered.table.clone()))?, gathered))
    }

    #[test]
    fn flags_go_before_environment_before_file_before_default() {
        let file = "[dispatch]\nbatch_max = 20\nbatch_min = 2\npoll_interval_ms = 100\n";
        let environment = [("FOREBAY_DISPATCH_BATCH_MAX", "30"), ("FOREBAY_DISPATCH_BATCH_MIN", "3")];
        let (settings, gathered) = load(file, &environment, &[("dispatch.batch_max", "40")]).expect("good settings");
        let dispatch = settings.dispatch;
        assert_eq!((dispatch.batch_max, dispatch.batch_min, dispatch.poll_interval_ms), (40, 3, 100));
        assert_eq!(dispatch.stale_after_ms, 300_000);
        let origin = |key: &str| gathered.origins.get(key).cloned();
        assert_eq!(origin("dispatch.batch_max"), Some(Origin::Flag));
        assert_eq!(origin("dispatch.batch_min"), Some(Origin::Environment("FOREBAY_DISPATCH_BATCH_MIN".to_owned())));
        assert_eq!(origin("dispatch.poll_interval_ms"), Some(Origin::File));
        assert_eq!(origin("dispatch.stale_after_ms"), None);
    }

    #[test]
    fn values_are_set_at_their_keys() {
        let flags = [("http.listen", "127.0.0.1:0"), ("outbound.allow", "a.test:80,b.test:81"), ("log.format", "json")];
        let (settings, _) = load("", &[], &flags).expect("good settings");
        assert_eq!(settings.http.listen.port(), 0);
        assert_eq!(settings.outbound.allow.len(), 2);
        assert_eq!(settings.log.format, server::config::LogFormat::Json);
    }

    #[test]
    fn unknown_keys_from_any_source_are_refused_and_a_similar_key_is_named() {
        let text = |loaded: anyhow::Result<(Settings, CollectedSettings)>| loaded.err().map(|error| error.to_string());
        let flag = text(load("", &[], &[("dispatch.batchmax", "1")]));
        assert_eq!(flag.as_deref(), Some("there is no setting dispatch.batchmax: did you mean dispatch.batch_max?"));
        let file = text(load("[dispatch]\npoll_intervall_ms = 1\n", &[], &[]));
        assert!(file.is_some_and(|said| said.contains("did you mean dispatch.poll_interval_ms?")));
        let variable = text(load("", &[("FOREBAY_DISPATCH_BATCHMAX", "1")], &[]));
        assert!(variable.is_some_and(|said| said.contains("did you mean FOREBAY_DISPATCH_BATCH_MAX?")));
        let far = text(load("", &[], &[("nonsense", "1")]));
        assert_eq!(far.as_deref(), Some("there is no setting nonsense; `forebay config` lists them"));
        let others = [("FOREBAY_KEY", "x"), ("FOREBAY_HTTP_SERVICE_HOST", "10.0.0.1"), ("FOREBAY_HTTP_PORT", "tcp://")];
        assert!(load("", &others, &[]).is_ok(), "variables that are not settings are ignored");
    }
}
