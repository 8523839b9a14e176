//! Runs `forebay serve` as a process.

use std::ops::Deref;
use std::process::Command;

use store::access::key::Secret;

use super::http::Api;
use super::process::{Process, forebay};

/// Polls and heartbeats at a tenth. Leases are long: on a busy machine a process may be late, and is not dead.
pub(crate) const FAST: [&str; 6] = [
    "process.heartbeat_ms=100",
    "process.shard_lease_ms=300",
    "process.claim_lease_ms=40000",
    "process.run_lease_ms=50000",
    "process.drain_timeout_ms=500",
    "dispatch.poll_interval_ms=500",
];

/// Leases at a tenth, for tests in which a process dies or is stopped: it is noticed in a second and a half.
pub(crate) const MORTAL: [&str; 2] = ["process.claim_lease_ms=1000", "process.run_lease_ms=1500"];

/// Where a server is, and its root key.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) base: String,
    root_key: Secret,
}

impl Address {
    pub(crate) fn new(base: String, root_key: Secret) -> Address {
        Address { base, root_key }
    }

    pub(crate) fn root_key(&self) -> &Secret {
        &self.root_key
    }

    /// Asks it as root.
    pub(crate) fn api(&self) -> Api {
        Api::new(&self.base, Some(self.root_key.expose()))
    }

    /// Asks it without a key.
    pub(crate) fn anonymous(&self) -> Api {
        Api::new(&self.base, None)
    }
}

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: Address,
}

impl Deref for Server {
    type Target = Address;

    fn deref(&self) -> &Address {
        &self.address
    }
}

impl Server {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start(database_url: &str, settings: &[String]) -> Server {
        let key = Secret::generate().expect("randomness");
        Server::start_with(database_url, &key, settings).await
    }

    pub(crate) async fn start_with(database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        let mut server = Server::spawn(database_url, root_key, settings);
        server.ready().await;
        server
    }

    /// Starts one and does not wait.
    pub(crate) fn spawn(database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        Server::spawn_in(database_url, root_key, settings, &[])
    }

    /// Starts one that may have only so many descriptors open, and waits until it is ready.
    pub(crate) async fn start_with_files(files: usize, database_url: &str, settings: &[String]) -> Server {
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_forebay")).arg("serve");
        let mut server = Server::run(command, database_url, &Secret::generate().expect("randomness"), settings);
        server.ready().await;
        server
    }

    /// Starts one with these roles, and does not wait.
    pub(crate) fn spawn_as(roles: &str, database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        let mut command = serve();
        command.args(["--roles", roles]);
        Server::run(command, database_url, root_key, settings)
    }

    /// Starts one in an environment, and does not wait.
    pub(crate) fn spawn_in(
        database_url: &str,
        root_key: &Secret,
        settings: &[String],
        environment: &[(&str, String)],
    ) -> Server {
        let mut command = serve();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Server::run(command, database_url, root_key, settings)
    }

    fn run(mut command: Command, database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        configure(&mut command, database_url, root_key, settings);
        let address = Address::new(String::new(), root_key.clone());
        Server { process: Process::spawn("serve", command), address }
    }

    pub(crate) async fn ready(&mut self) {
        self.address.base = self.process.says("Forebay listens on ").await;
        self.process.says("ready").await;
    }

    /// The value of a series, which is a name with its labels.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        value(&self.anonymous().get("/metrics").await.text, series)
    }
}

pub(crate) fn serve() -> Command {
    let mut command = forebay();
    command.arg("serve");
    command
}

/// Adds what a server of tests is run with.
pub(crate) fn configure(command: &mut Command, database_url: &str, root_key: &Secret, settings: &[String]) {
    command.args(["--database-url", database_url, "--listen", "127.0.0.1:0"]);
    command.args(["--log", "info,server=debug"]);
    command.env("FOREBAY_AUTH_ROOT_KEY", root_key.expose());
    for setting in FAST.into_iter().chain(settings.iter().map(String::as_str)) {
        command.args(["--set", setting]);
    }
}

/// The value of a series in a page of metrics.
pub(crate) fn value(metrics: &str, series: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{series} has no value:\n{metrics}"))
}
