//! One server for all tests that need none of their own: a test makes its own workspaces there and looks only at them.
//!
//!     lock ─▶ is it running? ─ no ─▶ start it, wait until it is ready, write where it is ─▶ unlock
//!                            └ yes ─▶ read where it is ─▶ unlock
//!
//! A test has a server of its own (`World`) if it kills or configures one, reads its log or its metrics, changes the
//! schema, or looks at more than its own workspaces.
//!
//! Invariants
//! - It belongs to one call of `dev/test`, which sets `FOREBAY_TEST_SHARED` to a new directory, and stops what the
//!   directory's file `pids` lists. So it always is the binary that was just built. Without the variable, each test
//!   starts a server of its own.
//! - A runner that stops a test does not stop it, because it is in a process group of its own.
//! - If a test fails, what the server logged since the beginning of the test is shown.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use store::access::key::Secret;
use store::testing::Database;

use super::server::{Address, Server, configure, serve};
use super::tenant::text;
use super::{Receiver, Tenant, until};
use crate::secrets::KEY;

/// The environment variable with the directory of one call of `dev/test`.
const DIRECTORY: &str = "FOREBAY_TEST_SHARED";

/// Calls to every test's receiver are allowed, secrets can be set, and no test is limited by what others do wrong.
const SETTINGS: [&str; 3] = ["outbound.allow_loopback=true", KEY, "auth.max_failures_per_address=100000"];

/// The shared server, as one test sees it, and a receiver that its workflows may call.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) receiver: Receiver,
    pub(crate) server: Address,
    _life: Life,
}

/// What shows the log if the test fails.
enum Life {
    Own(#[expect(dead_code, reason = "stops it when dropped")] Server),
    Shared(#[expect(dead_code, reason = "shows it when dropped")] Log),
}

impl Shared {
    pub(crate) async fn new() -> Shared {
        let receiver = Receiver::start_apart().await;
        let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
            let database = Database::new().await;
            let server = Server::start(&database.url, &SETTINGS.map(str::to_owned)).await;
            return Shared { database, receiver, server: server.address.clone(), _life: Life::Own(server) };
        };
        let (database, server) = find_or_start(&directory).await;
        Shared { database, receiver, server, _life: Life::Shared(Log::from_now(directory.join("log"))) }
    }

    pub(crate) async fn tenant(&self, tier: &str) -> Tenant {
        Tenant::new(self.server.api(), tier).await
    }

    /// How many rows of a tenant are in a table, or fulfil a condition: `table` or `table WHERE condition`.
    pub(crate) async fn count(&self, tenant: &Tenant, what: &str) -> i64 {
        let (table, condition) = what.split_once(" WHERE ").unwrap_or((what, "true"));
        let sql = format!("SELECT count(*) FROM {table} WHERE ({condition}) AND workspace_id = '{}'", tenant.id);
        self.database.client().await.query_one(&sql, &[]).await.expect("a count").get(0)
    }

    /// Runs a statement, which must change rows of the test's own workspaces only.
    pub(crate) async fn run_sql(&self, sql: &str) {
        self.database.client().await.batch_execute(sql).await.expect("a statement");
    }
}

async fn find_or_start(directory: &Path) -> (Database, Address) {
    fs::create_dir_all(directory).expect("a directory");
    let lock = File::create(directory.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    let address = directory.join("address");
    if let Ok(written) = fs::read(&address) {
        let written: Value = serde_json::from_slice(&written).expect("JSON");
        let key = Secret::parse(&text(&written["root_key"])).expect("a key");
        return (Database::at(text(&written["database"])), Address::new(text(&written["base"]), key));
    }
    let database = Database::new().await;
    let key = Secret::generate().expect("randomness");
    let server = Address::new(start(directory, &database, &key).await, key);
    let written = json!({ "database": database.url, "base": server.base, "root_key": server.root_key().expose() });
    let new = directory.join("new");
    fs::write(&new, written.to_string()).expect("a file");
    fs::rename(new, address).expect("a file in its place");
    (database, server)
}

/// Starts a server that outlives this test, and returns its address once it is ready.
async fn start(directory: &Path, database: &Database, key: &Secret) -> String {
    let append = |name: &str| OpenOptions::new().create(true).append(true).open(directory.join(name)).expect("a file");
    let mut command = serve();
    configure(&mut command, &database.url, key, &SETTINGS.map(str::to_owned));
    command.stdin(Stdio::null()).stdout(append("said")).stderr(append("log")).process_group(0);
    let mut child: Child = command.spawn().expect("the binary starts");
    writeln!(append("pids"), "{}", child.id()).expect("written");
    until("the shared server is ready", async || {
        let said = fs::read_to_string(directory.join("said")).expect("a file");
        let ended = child.try_wait().expect("the process is ours");
        assert!(
            ended.is_none(),
            "the shared server ended: {ended:?} {said} {:?}",
            fs::read_to_string(directory.join("log"))
        );
        let base = said.lines().find_map(|line| line.strip_prefix("Forebay listens on "))?;
        said.lines().any(|line| line.starts_with("ready")).then(|| base.to_owned())
    })
    .await
}

/// The log of the shared server, from a moment on.
struct Log {
    path: PathBuf,
    from: usize,
}

impl Log {
    fn from_now(path: PathBuf) -> Log {
        let from = fs::metadata(&path).map_or(0, |file| file.len());
        Log { path, from: usize::try_from(from).unwrap_or(0) }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read(&self.path).unwrap_or_default();
            let log = String::from_utf8_lossy(log.get(self.from..).unwrap_or_default());
            let mut out = std::io::stderr().lock();
            for line in log.lines() {
                let _closed = writeln!(out, "[shared serve] {line}");
            }
        }
    }
}
