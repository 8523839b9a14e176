//! Where settings come from: flags over environment over file over default.
//!
//! Invariants
//! - Only the binary reads arguments and environment.
//! - An unknown key, wherever it stands, stops the start and is named.
//!
//! Not here: what the keys mean (`server::config`).

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;
use server::config::{REASONS, Settings};
use toml::{Table, Value};

/// Flags that any command with settings takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct SettingFlags {
    /// A TOML file of settings; `forebay config` shows every key.
    #[arg(long, value_name = "FILE", env = "FOREBAY_CONFIG")]
    config: Option<PathBuf>,
    /// One setting, such as dispatch.batch_max=200; may be given often.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// PostgreSQL 15 or later (the setting database.url).
    #[arg(long, value_name = "URL", hide_env_values = true, env = "FOREBAY_DATABASE_URL")]
    database_url: Option<String>,
    /// Where the API listens (the setting http.listen).
    #[arg(long, value_name = "ADDRESS", env = "FOREBAY_HTTP_LISTEN")]
    listen: Option<String>,
}

impl SettingFlags {
    /// A database URL was given, by flag or environment.
    pub(crate) fn names_a_database(&self) -> bool {
        self.database_url.is_some()
    }

    /// The effective settings.
    pub(crate) fn load(&self) -> anyhow::Result<Settings> {
        let mut table = match &self.config {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("read settings from {}", path.display()))?;
                text.parse::<Table>().with_context(|| format!("read settings from {}", path.display()))?
            }
            None => Table::new(),
        };
        for (key, _) in REASONS {
            let name = format!("FOREBAY_{}", key.replace('.', "_").to_uppercase());
            if let Ok(text) = std::env::var(&name) {
                put(&mut table, key, &text).with_context(|| format!("read {name}"))?;
            }
        }
        for (key, value) in [("database.url", &self.database_url), ("http.listen", &self.listen)] {
            if let Some(text) = value {
                put(&mut table, key, text)?;
            }
        }
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("--set {pair}: write KEY=VALUE, such as dispatch.batch_max=200");
            };
            put(&mut table, key.trim(), value.trim())?;
        }
        let settings =
            Settings::deserialize(Value::Table(table)).map_err(|error| anyhow::anyhow!("settings: {error}"))?;
        settings.check().context("check the settings")?;
        Ok(settings)
    }
}

/// Puts a value at a dotted key. It is read as TOML where that works, else as text; a list may be
/// written with commas.
fn put(table: &mut Table, key: &str, text: &str) -> anyhow::Result<()> {
    if !REASONS.iter().any(|(known, _)| *known == key) {
        bail!("there is no setting {key}; `forebay config` lists them");
    }
    let value = match format!("value = {text}").parse::<Table>() {
        Ok(mut parsed) => parsed.remove("value").unwrap_or_else(|| Value::String(text.to_owned())),
        Err(_) if key == "outbound.allow" => {
            Value::Array(text.split(',').map(|entry| Value::String(entry.trim().to_owned())).collect())
        }
        Err(_) => Value::String(text.to_owned()),
    };
    let mut at = table;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            at.insert(part.to_owned(), value);
            return Ok(());
        }
        let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = next else { bail!("settings: {part} of {key} is not a section") };
        at = inner;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_land_at_their_keys_and_unknown_ones_are_named() {
        let mut table = Table::new();
        put(&mut table, "dispatch.batch_max", "200").expect("a number");
        put(&mut table, "http.listen", "127.0.0.1:0").expect("an address");
        put(&mut table, "outbound.allow", "a.test:80,b.test:81").expect("a list");
        let settings = Settings::deserialize(Value::Table(table.clone())).expect("good settings");
        assert_eq!((settings.dispatch.batch_max, settings.outbound.allow.len()), (200, 2));
        let error = put(&mut table, "dispatch.batchmax", "1").expect_err("an unknown key");
        assert!(error.to_string().contains("dispatch.batchmax"), "{error}");
    }
}
