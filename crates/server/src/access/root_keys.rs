//! The root keys of the settings: one in `auth.root_key`, any number in the file that `auth.root_key_file` names.
//!
//! Invariants
//! - At start, a file that cannot be read, holds no key or holds a line that is no key stops the start.
//! - Later, such a file changes nothing: the keys read before stay valid, and the log says so once.
//! - A key that was removed from the file is refused within `EVERY` plus the time of one read.
//! - No key is logged.
//!
//! Not here: keys that are stored in the database (`store::access::key`), who shows a key (`http::auth`).

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
const LARGEST: u64 = 64 << 10;

/// The root keys in force. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RootKeys {
    file: Option<Arc<str>>,
    /// From `auth.root_key`, valid for the life of the process.
    configured: Option<Secret>,
    in_file: Arc<RwLock<Vec<Secret>>>,
}

impl RootKeys {
    /// Reads what the settings name.
    pub(crate) fn read(settings: &Auth) -> Result<RootKeys, Invalid> {
        let configured = settings.root_key.as_deref().map(Secret::parse).transpose();
        let configured =
            configured.map_err(|bad| Invalid { key: "auth.root_key", problem: format!("cannot be used: {bad}") })?;
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

    /// Is this one of them? Takes the same time for every key that is not.
    pub(crate) fn contain(&self, secret: &Secret) -> bool {
        let in_file = self.in_file.read();
        self.configured.iter().chain(in_file.iter()).fold(false, |found, key| found | key.is(secret))
    }

    /// Reads the file again and again until told to stop.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        let Some(path) = self.file.clone() else { return };
        let mut told = None;
        loop {
            tokio::select! { () = tokio::time::sleep(EVERY) => {}, () = stop.cancelled() => return }
            let read = tokio::task::spawn_blocking({
                let path = Arc::clone(&path);
                move || parse(&path).map_err(|problem| problem.to_string())
            });
            match read.await {
                Ok(Ok(keys)) => {
                    told = None;
                    self.replace(keys);
                }
                Ok(Err(problem)) if told.as_ref() != Some(&problem) => {
                    tracing::warn!(problem, "Could not read auth.root_key_file; the root keys read before stay valid");
                    told = Some(problem);
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    fn replace(&self, keys: Vec<Secret>) {
        let mut in_file = self.in_file.write();
        let hashes = |keys: &[Secret]| keys.iter().map(Secret::hash).collect::<Vec<_>>();
        if hashes(&keys) != hashes(&in_file) {
            tracing::info!(keys = keys.len(), "Root keys changed: auth.root_key_file was read again");
            *in_file = keys;
        }
    }
}

/// Why a file of root keys cannot be used. Says the line, never what it holds.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path} is larger than {LARGEST} bytes")]
    TooLarge { path: String },
    #[error("{path}, line {line}: not a root key; `forebay root-key` makes one")]
    Malformed { path: String, line: usize },
    #[error("{path} holds no key: write one per line; `forebay root-key` makes one")]
    Empty { path: String },
}

/// One key a line; blank lines and those that begin with # do not count.
fn parse(path: &str) -> Result<Vec<Secret>, Problem> {
    let path = || path.to_owned();
    let unreadable = |source| Problem::Unreadable { path: path(), source };
    let mut text = Zeroizing::new(String::new());
    let file = std::fs::File::open(path()).map_err(unreadable)?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LARGEST {
        return Err(Problem::TooLarge { path: path() });
    }
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let keys = lines.map(|(line, text)| Secret::parse(text).map_err(|_| Problem::Malformed { path: path(), line }));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if keys.is_empty() { Err(Problem::Empty { path: path() }) } else { Ok(keys) }
}
