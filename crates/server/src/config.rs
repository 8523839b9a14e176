//! Every setting, with its default and its description.
//!
//! Invariants
//! - The service does not start with an unknown key, or with values that contradict each other. The error names the
//!   key, the value and what to write instead.
//! - Neither `Debug` nor `masked` shows a secret.
//!
//! Not here: where values come from (`app` reads flags, environment variables and the configuration file).

mod auth;
mod descriptions;
mod engine_kind;
mod http;
mod origins;
mod retention;
mod retry;
mod secrets;
mod temporal;

use std::time::Duration;

use engine::outbound::{AllowEntry, DenyEntry};
use serde::{Deserialize, Serialize};

pub use auth::Auth;
pub use descriptions::DESCRIPTIONS;
pub use engine_kind::EngineKind;
pub use http::Http;
pub use retention::Retention;
pub use retry::Retry;
pub use secrets::Secrets;
pub use temporal::Temporal;

/// All settings of the service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    pub http: Http,
    pub database: Database,
    pub auth: Auth,
    pub workflow: Workflow,
    pub queue: Queue,
    pub dispatch: Dispatch,
    pub process: Process,
    pub engine: Engine,
    pub retry: Retry,
    pub outbound: Outbound,
    pub secrets: Secrets,
    pub log: Log,
    pub metrics: Metrics,
    pub retention: Retention,
    pub job: Job,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    pub url: String,
    pub direct_url: Option<String>,
    pub api_connections: usize,
    pub work_connections: usize,
    pub migrate: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workflow {
    pub engine: WorkflowEngine,
    pub max_generations: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowEngine {
    pub enabled: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    pub max_backlog: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dispatch {
    pub poll_interval_ms: u64,
    pub batch_min: i32,
    pub batch_max: i32,
    pub start_timeout_ms: u64,
    pub parallel_starts: usize,
    pub max_attempts: u32,
    pub stale_after_ms: u64,
    pub notifications: bool,
    pub exclusive: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    pub heartbeat_ms: u64,
    pub shard_lease_ms: u64,
    pub claim_lease_ms: u64,
    pub run_lease_ms: u64,
    pub drain_timeout_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Engine {
    pub kind: EngineKind,
    pub max_runs: usize,
    pub max_calls: usize,
    pub reconcile_after_ms: u64,
    pub temporal: Temporal,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Outbound {
    pub allow: Vec<AllowEntry>,
    pub allow_loopback: bool,
    pub deny: Vec<DenyEntry>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub filter: Option<String>,
    pub format: LogFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    pub sample_interval_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    pub retry_after_ms: u64,
}

impl Default for Job {
    fn default() -> Self {
        Job { retry_after_ms: 10_000 }
    }
}

impl Default for Database {
    fn default() -> Self {
        Database { url: String::new(), direct_url: None, api_connections: 8, work_connections: 8, migrate: true }
    }
}

impl Default for Workflow {
    fn default() -> Self {
        Workflow { engine: WorkflowEngine::default(), max_generations: 32 }
    }
}

impl Default for WorkflowEngine {
    fn default() -> Self {
        WorkflowEngine { enabled: true }
    }
}

impl Default for Dispatch {
    fn default() -> Self {
        Dispatch {
            poll_interval_ms: 5_000,
            batch_min: 10,
            batch_max: 100,
            start_timeout_ms: 10_000,
            parallel_starts: 16,
            max_attempts: 3,
            stale_after_ms: 300_000,
            notifications: true,
            exclusive: false,
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Process {
            heartbeat_ms: 1_000,
            shard_lease_ms: 3_000,
            claim_lease_ms: 10_000,
            run_lease_ms: 15_000,
            drain_timeout_ms: 1_000,
        }
    }
}

impl Default for Engine {
    fn default() -> Self {
        Engine {
            kind: EngineKind::default(),
            max_runs: 1_000,
            max_calls: 256,
            reconcile_after_ms: 30_000,
            temporal: Temporal::default(),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { sample_interval_ms: 15_000 }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("api_connections", &self.api_connections).finish_non_exhaustive()
    }
}

/// The maximum number of attempts that a definition may set.
const MAX_ATTEMPTS: u32 = 100;

/// A setting with an invalid value: what is wrong, and what to write instead.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Invalid {
    pub key: &'static str,
    pub problem: String,
}

impl Settings {
    /// Checks the settings before anything is started.
    pub fn check(&self) -> Result<(), Invalid> {
        self.process.check()?;
        self.dispatch.check()?;
        at_least("metrics.sample_interval_ms", self.metrics.sample_interval_ms, 100)?;
        if let Some(backlog) = self.queue.max_backlog {
            at_least("queue.max_backlog", backlog, 0)?;
        }
        at_least("database.api_connections", self.database.api_connections, 1)?;
        at_least("database.work_connections", self.database.work_connections, 4)?;
        at_least("engine.max_runs", self.engine.max_runs, 1)?;
        at_least("engine.max_calls", self.engine.max_calls, 1)?;
        self.retention.check()?;
        self.http.check()?;
        self.secrets.check()?;
        self.retry.check()?;
        self.auth.check()?;
        self.engine.temporal.check()
    }

    /// The URL for connections that need a session of their own: `database.direct_url`, or else `database.url`.
    pub fn direct_url(&self) -> &str {
        self.database.direct_url.as_deref().unwrap_or(&self.database.url)
    }

    /// The same settings with every secret masked.
    pub fn masked(&self) -> Settings {
        let mut shown = self.clone();
        shown.auth.mask();
        shown.engine.temporal.mask();
        shown.secrets.mask();
        shown.database.url = mask_url(&shown.database.url);
        shown.database.direct_url = shown.database.direct_url.as_deref().map(mask_url);
        shown
    }
}

/// Refuses a value below its minimum.
fn at_least<T: PartialOrd + std::fmt::Display>(key: &'static str, value: T, min: T) -> Result<(), Invalid> {
    match value < min {
        true => Err(Invalid { key, problem: format!("must be at least {min}, but is {value}") }),
        false => Ok(()),
    }
}

impl Dispatch {
    fn check(&self) -> Result<(), Invalid> {
        at_least("dispatch.poll_interval_ms", self.poll_interval_ms, 10)?;
        at_least("dispatch.parallel_starts", self.parallel_starts, 1)?;
        at_least("dispatch.batch_min", self.batch_min, 1)?;
        let (min, max) = (self.batch_min, self.batch_max);
        if max < min {
            let problem = format!("must be at least dispatch.batch_min ({min}), but is {max}");
            return Err(Invalid { key: "dispatch.batch_max", problem });
        }
        match self.max_attempts {
            1..=MAX_ATTEMPTS => Ok(()),
            attempts => {
                let problem = format!("must be from 1 to {MAX_ATTEMPTS}, but is {attempts}");
                Err(Invalid { key: "dispatch.max_attempts", problem })
            }
        }
    }
}

impl Process {
    fn check(&self) -> Result<(), Invalid> {
        let heartbeat = self.heartbeat_ms;
        at_least("process.heartbeat_ms", heartbeat, 1)?;
        let relations = [
            ("process.shard_lease_ms", self.shard_lease_ms, 3 * heartbeat, "3 times process.heartbeat_ms"),
            ("process.claim_lease_ms", self.claim_lease_ms, 5 * heartbeat, "5 times process.heartbeat_ms"),
            (
                "process.run_lease_ms",
                self.run_lease_ms,
                self.claim_lease_ms + self.claim_lease_ms / 4,
                "1.25 times process.claim_lease_ms",
            ),
        ];
        match relations.into_iter().find(|(_, lease, min, _)| lease < min) {
            Some((key, lease, min, relation)) => {
                Err(Invalid { key, problem: format!("must be at least {min} ({relation}), but is {lease}") })
            }
            None => Ok(()),
        }
    }

    /// How long a process that shuts down waits for calls in flight. The wait is shorter than `process.claim_lease_ms`,
    /// so that it ends before other processes consider this process dead.
    pub(crate) fn drain_timeout(&self) -> Duration {
        ms(self.drain_timeout_ms.min(self.claim_lease_ms / 2))
    }
}

/// The URL with its password masked.
fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return mask_passwords(url, char::is_whitespace) };
    let masked = match rest.rsplit_once('@') {
        Some((credentials, host)) => {
            let user = credentials.split_once(':').map(|(user, _)| format!("{user}:***"));
            format!("{scheme}://{}@{host}", user.as_deref().unwrap_or(credentials))
        }
        None => url.to_owned(),
    };
    mask_passwords(&masked, |c| c == '&')
}

/// Masks the value of every `password = …`: a quoted value, or everything up to the first character for which `ends` is
/// true.
fn mask_passwords(text: &str, ends: fn(char) -> bool) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.to_ascii_lowercase().find("password") {
        let (head, tail) = rest.split_at(at + "password".len());
        shown.push_str(head);
        let value = tail.trim_start();
        let Some(value) = value.strip_prefix('=').map(str::trim_start) else {
            rest = tail;
            continue;
        };
        shown.push_str("=***");
        rest = match value.strip_prefix('\'') {
            Some(quoted) => after_quote(quoted),
            None => value.find(ends).map_or("", |end| &value[end..]),
        };
    }
    shown + rest
}

/// The text after the closing quote; empty if there is none. A backslash escapes the next character.
fn after_quote(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\'' if !escaped => return &text[at + 1..],
            _ => escaped = c == '\\' && !escaped,
        }
    }
    ""
}

/// A number of milliseconds as a duration.
pub(crate) fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str, value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    keys(&format!("{prefix}{}{name}", if prefix.is_empty() { "" } else { "." }), value, found);
                }
            }
            _ => found.push(prefix.to_owned()),
        }
    }

    #[test]
    fn every_setting_has_a_description_and_every_description_a_setting() {
        let mut found = Vec::new();
        keys("", &serde_json::to_value(Settings::default()).expect("settings are data"), &mut found);
        found.sort();
        let mut named: Vec<&str> = DESCRIPTIONS.iter().map(|(key, _)| *key).collect();
        named.sort_unstable();
        assert_eq!(found, named);
    }

    #[test]
    fn defaults_are_valid_and_contradicting_values_are_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let mut bad = Settings::default();
        bad.process.run_lease_ms = 5_000;
        let error = bad.check().expect_err("shorter than the lease of claims").to_string();
        let expected = "process.run_lease_ms: must be at least 12500 (1.25 times process.claim_lease_ms), but is 5000";
        assert_eq!(error, expected);
        let mut idle = Settings::default();
        idle.dispatch.parallel_starts = 0;
        assert_eq!(idle.check().expect_err("nothing could ever start").key, "dispatch.parallel_starts");
    }

    /// In the worst case the run ended right after its start, each pass just missed it, and one of its nodes was
    /// running.
    #[test]
    fn by_default_a_run_lost_by_its_engine_frees_its_slot_within_a_minute() {
        let Settings { dispatch, engine, .. } = Settings::default();
        let lingers = engine.temporal.heartbeat_ms.max(engine.temporal.local_activity_below_ms);
        let worst = engine.reconcile_after_ms + dispatch.poll_interval_ms + lingers + dispatch.poll_interval_ms;
        assert!(worst <= 50_000, "{worst} ms, and passes themselves take time");
    }

    #[test]
    fn no_secret_is_shown() {
        let mut settings = Settings::default();
        settings.auth.root_key = Some("fbk_secret".to_owned());
        settings.engine.temporal.api_key = Some("hunter2".to_owned());
        settings.engine.temporal.encryption_key = Some("hunter2".to_owned());
        settings.secrets.keys = Some("k:hunter2".to_owned());
        settings.database.url = "postgresql://user:hunter2@db/forebay?sslmode=require".to_owned();
        settings.database.direct_url = Some(settings.database.url.clone());
        let shown = format!("{settings:?} {}", serde_json::to_string(&settings.masked()).expect("json"));
        assert!(!shown.contains("hunter2") && !shown.contains("fbk_secret"), "{shown}");
        for (url, shown) in [
            ("postgresql:///x?password=p&host=/s", "postgresql:///x?password=***&host=/s"),
            ("postgresql://u:p@h/db", "postgresql://u:***@h/db"),
            ("postgresql://u@h/db", "postgresql://u@h/db"),
            ("host=h user=u password=p dbname=d", "host=h user=u password=*** dbname=d"),
            ("PASSWORD = 'a \\' b' host=h", "PASSWORD=*** host=h"),
            ("host=h password='never closed", "host=h password=***"),
        ] {
            assert_eq!(mask_url(url), shown);
        }
    }

    #[test]
    fn the_settings_page_is_current() {
        let defaults = serde_json::to_value(Settings::default()).expect("settings are data");
        let mut page = PAGE.to_owned();
        for (key, description) in DESCRIPTIONS {
            let value = key.split('.').fold(&defaults, |at, part| &at[part]);
            let value = if value.is_null() { "not set".to_owned() } else { format!("`{value}`") };
            let variable = format!("FOREBAY_{}", key.replace('.', "_").to_uppercase());
            page += &format!("| `{key}` | {value} | `{variable}` | {description} |\n");
        }
        expect_test::expect_file!["../../../docs/reference/settings.md"].assert_eq(&page);
    }

    const PAGE: &str = "\
# Settings

Generated from `crates/server/src/config.rs` by a test in that file. Do not edit it by hand: run the test with
`UPDATE_EXPECT=1`.

A value comes from the first of these that sets it: a flag (`--set KEY=VALUE`), its environment variable, the TOML file
that `--config` names, the default. An unknown key stops the start, and so do values that contradict each other.
`forebay config` prints every setting with its value and its source; secrets are masked.

| key | default | environment variable | description |
|---|---|---|---|
";
}
