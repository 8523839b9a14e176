//! Runs Forebay on a real Temporal: one process serves the API and dispatches, and each worker has its own process.

use tokio::net::TcpStream;

use super::process::{Process, forebay};
use super::proxy::Way;
use super::server::{FAST, Server};
use super::{Receiver, Tenant, until};

/// Where the test server is, and the program that talks to it.
const SERVER: &str = "FOREBAY_TEST_TEMPORAL";
const PROGRAM: &str = "FOREBAY_TEST_TEMPORAL_BIN";

/// An API that dispatches to Temporal, and a tenant.
pub(crate) struct Cluster {
    pub(crate) database: store::testing::Database,
    pub(crate) receiver: Receiver,
    pub(crate) server: Server,
    pub(crate) tenant: Tenant,
    pub(crate) way: Way,
    settings: Vec<String>,
}

impl Cluster {
    /// A task queue of its own on the shared server, which is reached by a way that can be cut.
    pub(crate) async fn new(settings: &[&str]) -> Cluster {
        let way = way().await;
        let address = format!("engine.temporal.address=http://{}", way.address);
        Cluster::by(way, &[&[address.as_str()], settings].concat()).await
    }

    /// The same, reached as these settings say.
    pub(crate) async fn at(settings: &[&str]) -> Cluster {
        Cluster::by(way().await, settings).await
    }

    /// One process that does everything and sends its spans where this environment says.
    pub(crate) async fn traced(environment: &[(&str, String)]) -> Cluster {
        let way = way().await;
        let address = format!("engine.temporal.address=http://{}", way.address);
        Cluster::made(way, &[address.as_str()], Some(environment)).await
    }

    async fn by(way: Way, settings: &[&str]) -> Cluster {
        Cluster::made(way, settings, None).await
    }

    async fn made(way: Way, settings: &[&str], environment: Option<&[(&str, String)]>) -> Cluster {
        let queue = format!("engine.temporal.task_queue=test-{}", store::new_id());
        // Slots are free again after a second, and calls are activities of their own.
        let own = [
            "engine.kind=temporal",
            &queue,
            "engine.temporal.heartbeat_ms=1000",
            "engine.temporal.local_activity_below_ms=0",
            "engine.reconcile_after_ms=1000",
        ];
        let (database, receiver) = (store::testing::Database::new().await, Receiver::start().await);
        let settings = receiver.allowed(&[&own, settings].concat());
        let key = store::access::key::Secret::generate().expect("randomness");
        let mut server = match environment {
            Some(environment) => Server::spawn_in(&database.url, &key, &settings, environment),
            None => Server::spawn_as("api,dispatcher", &database.url, &key, &settings),
        };
        server.ready().await;
        let tenant = Tenant::new(server.api(), "PRO").await;
        Cluster { database, receiver, server, tenant, way, settings }
    }

    /// A process that only answers requests.
    pub(crate) async fn api_only(&self) -> Server {
        let mut server = Server::spawn_as("api", &self.database.url, self.server.root_key(), &self.settings);
        server.ready().await;
        server
    }

    /// Its task queue.
    pub(crate) fn queue(&self) -> &str {
        self.setting("engine.temporal.task_queue")
    }

    /// What a setting of its own is.
    pub(crate) fn setting(&self, key: &str) -> &str {
        let named = self.settings.iter().find_map(|setting| setting.strip_prefix(key)?.strip_prefix('='));
        named.expect("it has one")
    }

    /// A worker that polls.
    pub(crate) async fn worker(&self) -> Process {
        self.worker_with(&[]).await
    }

    pub(crate) async fn worker_with(&self, settings: &[&str]) -> Process {
        let mut command = forebay();
        command.args(["worker", "--database-url", &self.database.url, "--log", "info,temporal=debug"]);
        let settings = self.settings.iter().map(String::as_str).chain(settings.iter().copied());
        for setting in FAST.into_iter().chain(settings) {
            command.args(["--set", setting]);
        }
        let mut worker = Process::spawn("worker", command);
        worker.says("ready").await;
        until("it polls", async || worker.stderr.contain("Temporal worker started polling").then_some(())).await;
        worker
    }

    /// What one check of readiness says.
    pub(crate) async fn check(&self, name: &str) -> String {
        check(&self.server, name).await
    }

    pub(crate) async fn until_check(&self, name: &str, holds: impl Fn(&str) -> bool) -> String {
        until_check(&self.server, name, holds).await
    }
}

/// What one check of a server's readiness says; trouble with the engine leaves it ready.
pub(crate) async fn check(server: &Server, name: &str) -> String {
    let ready = server.anonymous().get("/readyz").await.expect(200);
    ready["checks"][name].as_str().unwrap_or_default().to_owned()
}

pub(crate) async fn until_check(server: &Server, name: &str, holds: impl Fn(&str) -> bool) -> String {
    until(&format!("{name} says so"), async || Some(check(server, name).await).filter(|text| holds(text))).await
}

/// A Temporal of a test's own, with a file: what is killed comes back as it was.
pub(crate) struct Own {
    pub(crate) port: u16,
    files: tempfile::TempDir,
    process: Option<Process>,
}

impl Own {
    pub(crate) async fn start() -> Own {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let mut own = Own { port, files: tempfile::tempdir().expect("a directory"), process: None };
        own.come_back().await;
        own
    }

    pub(crate) async fn come_back(&mut self) {
        let mut command = std::process::Command::new(std::env::var(PROGRAM).expect("./dev/test names it"));
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]);
        command.args(["--port", &self.port.to_string(), "--db-filename"]).arg(self.files.path().join("temporal.db"));
        self.process = Some(Process::spawn("temporal", command));
        until("it answers", async || TcpStream::connect(("127.0.0.1", self.port)).await.ok()).await;
    }

    pub(crate) fn sigkill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.sigkill();
        }
    }
}

/// Talks to Temporal behind Forebay's back.
pub(crate) async fn behind_our_back(arguments: &[&str]) -> String {
    let program = std::env::var(PROGRAM).expect("./dev/test names it");
    let address = server();
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).args(["--address", address.trim_start_matches("http://")]);
    let output = command.output().await.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn server() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| panic!("{SERVER} is not set: run tests with ./dev/test"))
}

/// The way to Temporal, which can be cut.
async fn way() -> Way {
    let target = server().trim_start_matches("http://").to_owned();
    Way::to(move || TcpStream::connect(target.clone())).await
}
