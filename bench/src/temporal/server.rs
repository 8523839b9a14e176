//! Temporal's development server. Each part of a measurement starts its own server, and stops it at the end.
//!
//! Invariants
//! - The server runs in memory, because the measurement must not depend on the speed of its disk.
//! - The server ends when this process ends in any way.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use temporal::{PayloadKeys, TemporalSettings, Tls, WorkflowStarter};
use temporalio_client::{Client, ClientOptions, Connection, ConnectionOptions, GrpcCompression, Url};
use tokio::process::Child;

use crate::measure::cpu::used_by_ms;
use crate::service::command_tied_to_parent;

/// The arguments of the server, without the address: the search attributes that Forebay uses, and settings with which
/// no side waits for a poll.
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

/// How long the server may take to answer. Usually it takes far less.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub(super) struct TemporalServer {
    child: Child,
    address: String,
}

impl TemporalServer {
    pub(super) async fn start() -> Result<TemporalServer> {
        let program = std::env::var_os("FOREBAY_TEMPORAL_BIN")
            .context("FOREBAY_TEMPORAL_BIN is not set: start this through ./dev/bench")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let child = command_tied_to_parent(program.as_ref())
            .args(FLAGS)
            .args(["--log-level", "error", "--ip", "127.0.0.1", "--port", &port])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start Temporal's development server")?;
        let server = TemporalServer { child, address: format!("http://127.0.0.1:{port}") };
        let answers = async {
            while WorkflowStarter::connect(&server.settings()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(READY_WITHIN, answers).await.is_err() {
            bail!("Temporal's development server did not answer within {READY_WITHIN:?}");
        }
        Ok(server)
    }

    /// The service's default settings, for this server.
    pub(super) fn settings(&self) -> TemporalSettings {
        TemporalSettings {
            address: self.address.clone(),
            namespace: "default".to_owned(),
            task_queue: "workflows.default".to_owned(),
            api_key: None,
            tls: Tls::default(),
            keys: PayloadKeys::default(),
            local_below: Duration::ZERO,
            max_generations: 32,
            max_calls: 1,
            heartbeat: Duration::from_secs(10),
            drain: Duration::ZERO,
        }
    }

    /// In the format of `--set`.
    pub(super) fn service_settings(&self) -> Vec<String> {
        vec!["engine.kind=temporal".to_owned(), format!("engine.temporal.address={}", self.address)]
    }

    /// A separate client, configured like the service's.
    pub(super) async fn client(&self) -> Result<Client> {
        let options = ConnectionOptions::new(Url::parse(&self.address)?)
            .identity("bench".to_owned())
            .grpc_compression(GrpcCompression::None)
            .build();
        Ok(Client::new(Connection::connect(options).await?, ClientOptions::new("default").build())?)
    }

    /// The processor time it has used so far.
    pub(super) fn cpu_ms(&self) -> Result<f64> {
        used_by_ms(self.child.id().context("Temporal's server ended by itself")?)
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        // It has no data worth saving.
        self.child.kill().await.context("stop Temporal's server")
    }
}
