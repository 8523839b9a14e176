//! `forebay serve` as a process.

use store::access::key::Secret;

use super::http::Api;
use super::process::{Process, forebay};

/// Lease times at a tenth, so that a death is noticed in a second and a half.
pub(crate) const FAST: [&str; 5] = [
    "process.heartbeat_ms=100",
    "process.shards_after_ms=300",
    "process.claims_after_ms=1000",
    "process.runs_after_ms=1500",
    "dispatch.poll_interval_ms=500",
];

/// Longer leases, for tests that count calls while nobody dies: a busy machine is no death.
pub(crate) const STEADY: [&str; 2] = ["process.claims_after_ms=20000", "process.runs_after_ms=25000"];

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) base: String,
    root_key: Secret,
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
        let mut command = std::process::Command::new("sh");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_forebay")).arg("serve");
        let mut server = Server::run(command, database_url, &Secret::generate().expect("randomness"), settings);
        server.ready().await;
        server
    }

    /// Starts one with these roles, and does not wait.
    pub(crate) fn spawn_as(roles: &str, database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        let mut command = forebay();
        command.args(["serve", "--roles", roles]);
        Server::run(command, database_url, root_key, settings)
    }

    /// Starts one in an environment, and does not wait.
    pub(crate) fn spawn_in(
        database_url: &str,
        root_key: &Secret,
        settings: &[String],
        environment: &[(&str, String)],
    ) -> Server {
        let mut command = forebay();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.arg("serve");
        Server::run(command, database_url, root_key, settings)
    }

    fn run(mut command: std::process::Command, database_url: &str, root_key: &Secret, settings: &[String]) -> Server {
        command.args(["--database-url", database_url, "--listen", "127.0.0.1:0"]);
        command.args(["--log", "info,server=debug"]);
        command.env("FOREBAY_AUTH_ROOT_KEY", root_key.expose());
        for setting in FAST.into_iter().chain(settings.iter().map(String::as_str)) {
            command.args(["--set", setting]);
        }
        Server { process: Process::spawn("serve", command), base: String::new(), root_key: root_key.clone() }
    }

    pub(crate) async fn ready(&mut self) {
        self.base = self.process.says("Forebay listens on ").await;
        self.process.says("ready").await;
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
