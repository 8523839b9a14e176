//! The root keys of the settings: one in `auth.root_key`, any number in the file that `auth.root_key_file` names.
//!
//! Invariants
//! - At start, the service does not start if the file cannot be read, contains no key, or contains a line that is no
//!   key.
//! - If the file becomes invalid later, the keys that were read before stay valid, and one log line reports the
//!   problem.
//! - A key that was removed from the file is refused after at most `EVERY` plus the time of one read.
//! - No key is logged.
//!
//! Not here: keys that are stored in the database (`store::access::key`), which key a request has (`http::auth`).

use parking_lot::RwLock;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use store::access::key::Secret;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::config::{Auth, Invalid};

/// How often the file is read again.
const EVERY: Duration = Duration::from_secs(2);
/// The most bytes of a file that are read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The valid root keys. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RootKeys {
    file: Option<Arc<str>>,
    /// From `auth.root_key`, valid for the life of the process.
    configured: Option<Secret>,
    in_file: Arc<RwLock<Vec<Secret>>>,
}

impl RootKeys {
    /// Reads the keys that the settings name.
    pub(crate) fn read(settings: &Auth) -> Result<RootKeys, Invalid> {
        let configured = settings.root_key.as_deref().map(Secret::parse).transpose();
        let configured = configured.map_err(|bad| Invalid {
            key: "auth.root_key",
            problem: format!("{bad}; `forebay root-key` generates one"),
        })?;
        let in_file = match &settings.root_key_file {
            Some(path) => {
                parse(path).map_err(|problem| Invalid { key: "auth.root_key_file", problem: problem.to_string() })?
            }
            None => Vec::new(),
        };
        let file = settings.root_key_file.as_deref().map(Arc::from);
        Ok(RootKeys { file, configured, in_file: Arc::new(RwLock::new(in_file)) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.configured.is_none() && self.in_file.read().is_empty()
    }

    /// True if this is one of the root keys. The check takes the same time for every wrong key.
    pub(crate) fn contains(&self, secret: &Secret) -> bool {
        let in_file = self.in_file.read();
        self.configured.iter().chain(in_file.iter()).fold(false, |found, key| found | key.is(secret))
    }

    /// Reads the file again at an interval, until `stop` is cancelled.
    pub(crate) async fn reload_periodically(self, stop: CancellationToken) {
        let Some(path) = self.file.clone() else { return };
        let mut reported = None;
        loop {
            tokio::select! { () = tokio::time::sleep(EVERY) => {}, () = stop.cancelled() => return }
            let read = tokio::task::spawn_blocking({
                let path = Arc::clone(&path);
                move || parse(&path).map_err(|problem| problem.to_string())
            });
            match read.await {
                Ok(Ok(keys)) => {
                    reported = None;
                    self.replace(keys);
                }
                Ok(Err(problem)) if reported.as_ref() != Some(&problem) => {
                    tracing::warn!(problem, "Could not read auth.root_key_file; the root keys read earlier stay valid");
                    reported = Some(problem);
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    fn replace(&self, keys: Vec<Secret>) {
        let mut in_file = self.in_file.write();
        let hashes = |keys: &[Secret]| keys.iter().map(Secret::hash).collect::<Vec<_>>();
        if hashes(&keys) != hashes(&in_file) {
            tracing::info!(keys = keys.len(), "Root keys changed, because auth.root_key_file has changed");
            *in_file = keys;
        }
    }
}

/// Why a file of root keys cannot be used. The message names the line, never its content.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path} is larger than {MAX_FILE_BYTES} bytes: write only root keys, one per line")]
    TooLarge { path: String },
    #[error("{path}, line {line} is not a root key; `forebay root-key` generates one")]
    Malformed { path: String, line: usize },
    #[error("{path} contains no key: write one per line; `forebay root-key` generates one")]
    Empty { path: String },
}

/// Reads one key per line; blank lines and lines that begin with `#` are ignored.
fn parse(path: &str) -> Result<Vec<Secret>, Problem> {
    let path = || path.to_owned();
    let unreadable = |source| Problem::Unreadable { path: path(), source };
    let mut text = Zeroizing::new(String::new());
    let file = std::fs::File::open(path()).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Problem::TooLarge { path: path() });
    }
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys = lines.map(|(line, text)| Secret::parse(text).map_err(|_| Problem::Malformed { path: path(), line }));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(Problem::Empty { path: path() }) } else { Ok(keys) }
}
