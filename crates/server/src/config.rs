//! Every setting, with its default and its reason.
//!
//! Invariants
//! - Unknown keys and values that cannot work together stop the start, with the key's name.
//! - Nothing is unbounded, and no secret is shown by `Debug` or by `masked`.
//!
//! Not here: where values come from (`app` reads flags, environment and file, in that order).

mod auth;
mod engine_kind;
mod http;
mod origins;
mod reasons;
mod retention;
mod retry;
mod secrets;
mod temporal;

use std::time::Duration;

use engine::outbound::{Allow, Deny};
use serde::{Deserialize, Serialize};

pub use auth::Auth;
pub use engine_kind::EngineKind;
pub use http::Http;
pub use reasons::REASONS;
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
    pub signals: Signals,
    pub retention: Retention,
    pub projection: Projection,
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
    pub hints: bool,
    pub exclusive: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    pub heartbeat_ms: u64,
    pub shards_after_ms: u64,
    pub claims_after_ms: u64,
    pub runs_after_ms: u64,
    pub drain_ms: u64,
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
    pub allow: Vec<Allow>,
    pub allow_loopback: bool,
    pub deny: Vec<Deny>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub filter: Option<String>,
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signals {
    pub sample_interval_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Projection {
    pub retry_after_ms: u64,
}

impl Default for Projection {
    fn default() -> Self {
        Projection { retry_after_ms: 10_000 }
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
            hints: true,
            exclusive: false,
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Process {
            heartbeat_ms: 1_000,
            shards_after_ms: 3_000,
            claims_after_ms: 10_000,
            runs_after_ms: 15_000,
            drain_ms: 1_000,
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

impl Default for Signals {
    fn default() -> Self {
        Signals { sample_interval_ms: 15_000 }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("api_connections", &self.api_connections).finish_non_exhaustive()
    }
}

/// The most attempts that a definition may ask for.
const MOST_ATTEMPTS: u32 = 100;

/// A setting that cannot work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Invalid {
    pub key: &'static str,
    pub problem: String,
}

impl Settings {
    /// Checks what can be checked before anything is started.
    pub fn check(&self) -> Result<(), Invalid> {
        let fail = |key, problem: &str| Err(Invalid { key, problem: problem.to_owned() });
        let Process { heartbeat_ms, shards_after_ms, claims_after_ms, runs_after_ms, .. } = self.process;
        if heartbeat_ms == 0 || shards_after_ms < heartbeat_ms * 3 {
            return fail("process.shards_after_ms", "must be at least three heartbeats");
        }
        if claims_after_ms < heartbeat_ms * 5 {
            return fail("process.claims_after_ms", "must be at least five heartbeats");
        }
        if runs_after_ms < claims_after_ms + claims_after_ms / 4 {
            return fail("process.runs_after_ms", "must be a quarter longer than process.claims_after_ms");
        }
        if self.dispatch.batch_min < 1 || self.dispatch.batch_max < self.dispatch.batch_min {
            return fail("dispatch.batch_max", "must be at least dispatch.batch_min, which must be at least 1");
        }
        if self.dispatch.max_attempts == 0 || self.dispatch.max_attempts > MOST_ATTEMPTS {
            return fail("dispatch.max_attempts", "must be 1 to 100");
        }
        if self.dispatch.parallel_starts == 0 {
            return fail("dispatch.parallel_starts", "must be at least 1");
        }
        if self.signals.sample_interval_ms < 100 {
            return fail("signals.sample_interval_ms", "must be at least 100");
        }
        if self.dispatch.poll_interval_ms < 10 {
            return fail("dispatch.poll_interval_ms", "must be at least 10");
        }
        if self.queue.max_backlog.is_some_and(|most| most < 0) {
            return fail("queue.max_backlog", "must be 0 or more");
        }
        if self.database.api_connections == 0 || self.database.work_connections < 4 {
            return fail("database.work_connections", "must be at least 4, and database.api_connections at least 1");
        }
        if self.engine.max_runs == 0 || self.engine.max_calls == 0 {
            return fail("engine.max_runs", "must be at least 1, as must engine.max_calls");
        }
        self.retention.check()?;
        self.http.check()?;
        self.secrets.check()?;
        self.retry.check()?;
        self.auth.check()?;
        self.engine.temporal.check()
    }

    /// The database for what needs a session of its own.
    pub fn direct_url(&self) -> &str {
        self.database.direct_url.as_deref().unwrap_or(&self.database.url)
    }

    /// The same settings as they may be shown.
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

impl Process {
    /// How long a process that is to stop waits for what is in flight: others must not call it dead meanwhile.
    pub(crate) fn drain(&self) -> Duration {
        ms(self.drain_ms.min(self.claims_after_ms / 2))
    }
}

/// A URL without its password.
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

/// Hides the value of every `password = …`, quoted or up to what ends it.
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

/// What follows the closing quote; a backslash takes the next character with it.
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
    fn every_setting_has_a_reason_and_every_reason_a_setting() {
        let mut found = Vec::new();
        keys("", &serde_json::to_value(Settings::default()).expect("settings are data"), &mut found);
        found.sort();
        let mut named: Vec<&str> = REASONS.iter().map(|(key, _)| *key).collect();
        named.sort_unstable();
        assert_eq!(found, named);
    }

    #[test]
    fn defaults_work_together_and_bad_relations_are_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let mut bad = Settings::default();
        bad.process.runs_after_ms = 5_000;
        assert_eq!(bad.check().expect_err("a bad relation").key, "process.runs_after_ms");
        let mut idle = Settings::default();
        idle.dispatch.parallel_starts = 0;
        assert_eq!(idle.check().expect_err("nothing would ever start").key, "dispatch.parallel_starts");
    }

    /// At worst it ended as soon as it was handed over, each pass just missed it, and a node of it was under way.
    #[test]
    fn as_shipped_a_run_lost_by_its_engine_frees_its_slot_within_a_minute() {
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
    fn the_page_of_settings_is_written_down() {
        let defaults = serde_json::to_value(Settings::default()).expect("settings are data");
        let mut page = PAGE.to_owned();
        for (key, reason) in REASONS {
            let value = key.split('.').fold(&defaults, |at, part| &at[part]);
            let value = if value.is_null() { "not set".to_owned() } else { format!("`{value}`") };
            let variable = format!("FOREBAY_{}", key.replace('.', "_").to_uppercase());
            page += &format!("| `{key}` | {value} | `{variable}` | {reason} |\n");
        }
        expect_test::expect_file!["../../../docs/settings.md"].assert_eq(&page);
    }

    const PAGE: &str = "\
# Settings

Made from `crates/server/src/config.rs` by a test beside it; do not edit by hand. `UPDATE_EXPECT=1` writes this page anew.

A value comes from a flag (`--set KEY=VALUE`), else from its variable, else from the file that `--config` names (TOML),
else it is the default. An unknown key stops the start, wherever it stands, and so do values that cannot work together.
`forebay config` prints every key with its value and where it came from; secrets are masked.

| key | default | variable | what for |
|---|---|---|---|
";
}
