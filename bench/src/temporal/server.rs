//! Temporal's own server for development, one for each part of a measurement, gone at its end.
//!
//! Invariants
//! - It runs in memory: its disk is not what is measured.
//! - However this process ends, so does the server.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use temporal::{Bare, Keys, Settings, Tls};
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, GrpcCompression, Url};
use tokio::process::Child;

use crate::measure::cpu::used_by_ms;
use crate::service::tied;

/// What it is started with, its address apart: what Forebay registers, and nothing that makes either side wait for a
/// poll.
pub(super) const FLAGS: [&str; 19] = [
    "server",
    "start-dev",
    "--headless",
    "--search-attribute",
    "ForebayWorkspace=Keyword",
    "--search-attribute",
    "ForebayDefinition=Keyword",
    "--search-attribute",
    "ForebayQueueItem=Keyword",
    "--dynamic-config-value",
    "history.timerProcessorMaxTimeShift=\"10ms\"",
    "--dynamic-config-value",
    "history.transferProcessorMaxPollRPS=1000",
    "--dynamic-config-value",
    "matching.enableFairness=true",
    "--dynamic-config-value",
    "matching.numTaskqueueReadPartitions=1",
    "--dynamic-config-value",
    "matching.numTaskqueueWritePartitions=1",
];

/// How long it may take to answer; far more than it needs.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub(super) async fn start() -> Result<Server> {
        let program = std::env::var_os("FOREBAY_TEMPORAL_BIN")
            .context("FOREBAY_TEMPORAL_BIN is not set: start this through ./dev/bench")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let child = tied(program.as_ref())
            .args(FLAGS)
            .args(["--log-level", "error", "--ip", "127.0.0.1", "--port", &port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start Temporal's development server")?;
        let server = Server { child, address: format!("http://127.0.0.1:{port}") };
        let answers = async {
            while Bare::connect(&server.settings()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(READY_WITHIN, answers).await.is_err() {
            bail!("Temporal's development server did not answer within {READY_WITHIN:?}");
        }
        Ok(server)
    }

    /// What the service uses by default, here.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            address: self.address.clone(),
            namespace: "default".to_owned(),
            task_queue: "workflows.default".to_owned(),
            api_key: None,
            tls: Tls::default(),
            keys: Keys::default(),
            local_below: Duration::ZERO,
            max_generations: 32,
            max_calls: 1,
            heartbeat: Duration::from_secs(10),
            drain: Duration::ZERO,
        }
    }

    /// As `--set` takes them.
    pub(super) fn service_settings(&self) -> Vec<String> {
        vec!["engine.kind=temporal".to_owned(), format!("engine.temporal.address={}", self.address)]
    }

    /// A client of its own, set up like the service's.
    pub(super) async fn client(&self) -> Result<Client> {
        let options = ConnectionOptions::new(Url::parse(&self.address)?)
            .identity("bench".to_owned())
            .grpc_compression(GrpcCompression::None)
            .build();
        Ok(Client::new(Connection::connect(options).await?, ClientOptions::new("default").build())?)
    }

    /// What it has used of the processors so far.
    pub(super) fn cpu_ms(&self) -> Result<f64> {
        used_by_ms(self.child.id().context("Temporal's server ended by itself")?)
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        // Nothing in it is worth saving.
        self.child.kill().await.context("stop Temporal's server")
    }
}
