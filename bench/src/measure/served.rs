//! The real service as a child process, and requests to it.
//!
//! Invariants
//! - The service is the release binary next to this program. Settings have their defaults, except those that a
//!   measurement passes.
//! - A measurement stops the service with SIGTERM and waits until it has ended. If this program dies, the service is
//!   killed.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kernel::ids::ExecutionId;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use store::access::key::Secret;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::connection::Connection;
use super::stats::round;
use super::world::{Tenant, World};
use crate::report::resident_mb;

/// Every role of the service.
const ROLES: &str = "api,dispatcher,worker";
/// How long a start or a stop may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the service is idle before its memory is read.
const REST: Duration = Duration::from_secs(3);
/// How often `/readyz` is requested until it answers 200.
const LOOK: Duration = Duration::from_millis(1);

/// A running `forebay serve`.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    launched_at: Instant,
    address: String,
    key: Secret,
    http: reqwest::Client,
}

impl Service {
    /// Starts the service over a world's database. Returns when it is ready.
    pub(crate) async fn start(world: &World, settings: &[String]) -> Result<Service> {
        Service::start_as(ROLES, world, settings).await
    }

    /// Starts the service with only these roles.
    pub(crate) async fn start_as(roles: &str, world: &World, settings: &[String]) -> Result<Service> {
        Service::launch(roles, &world.url, settings).await
    }

    /// Starts the service over a database that may be empty. The service migrates it.
    pub(crate) async fn start_over(url: &str) -> Result<Service> {
        Service::launch(ROLES, url, &[]).await
    }

    async fn launch(roles: &str, url: &str, settings: &[String]) -> Result<Service> {
        let key = Secret::generate()?;
        // A client takes some milliseconds to build, which must not count as a part of the start.
        let http = reqwest::Client::new();
        let mut command = Command::new(binary()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", "warn", "--database-url", url]);
        command.args(["--roles", roles]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let ours =
            std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("FOREBAY_"));
        for name in ours {
            command.env_remove(name);
        }
        command.env("FOREBAY_AUTH_ROOT_KEY", key.expose());
        let launched_at = Instant::now();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().context("start forebay")?;
        let mut lines = BufReader::new(child.stdout.take().context("take the output of forebay")?).lines();
        let mut address = None;
        loop {
            let line =
                tokio::time::timeout(PATIENCE, lines.next_line()).await.context("wait for forebay to be ready")??;
            match line.as_deref() {
                None => bail!("forebay ended before it was ready"),
                Some("ready") => break,
                Some(line) => address = line.split_once("http://").map(|(_, address)| address.to_owned()).or(address),
            }
        }
        // The rest of its output is ignored, but must be read so that the pipe does not fill.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Service { child, launched_at, address: address.context("forebay did not print its address")?, key, http })
    }

    /// Waits until `/readyz` answers 200. Returns the time since the process was launched.
    pub(crate) async fn ready_after(&self) -> Result<Duration> {
        let request = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        let mut connection = Connection::open(&self.address).await?;
        while connection.send(request.as_bytes()).await.context("request /readyz")? != 200 {
            ensure!(self.launched_at.elapsed() < PATIENCE, "/readyz did not answer 200 in time");
            tokio::time::sleep(LOOK).await;
        }
        Ok(self.launched_at.elapsed())
    }

    /// The resident memory of the service after some idle seconds, in MB.
    pub(crate) async fn resident_mb_at_rest(&self) -> Result<f64> {
        tokio::time::sleep(REST).await;
        resident_mb(self.pid()?).map(round).context("read the memory of a process")
    }

    /// Accepts one execution.
    pub(crate) async fn enqueue(&self, tenant: Tenant) -> Result<ExecutionId> {
        self.enqueue_with(tenant, json!({})).await
    }

    /// Accepts one execution with this input.
    pub(crate) async fn enqueue_with(&self, tenant: Tenant, input: Value) -> Result<ExecutionId> {
        let body =
            json!({ "workflowDefinitionId": tenant.definition, "workspaceId": tenant.workspace, "input": input });
        let answer = self
            .http
            .post(format!("http://{}/api/v1/workflow/executions/start", self.address))
            .bearer_auth(self.key.expose())
            .json(&body)
            .send()
            .await
            .context("enqueue over HTTP")?;
        ensure!(answer.status().as_u16() == 202, "a start was answered {}", answer.status());
        let started: Value = answer.json().await?;
        started["executionId"].as_str().context("an execution id")?.parse().context("an execution id")
    }

    /// The address at which it serves HTTP.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A whole request that starts one execution.
    pub(crate) fn start_request(&self, tenant: Tenant) -> Vec<u8> {
        let body = json!({ "workflowDefinitionId": tenant.definition, "workspaceId": tenant.workspace, "input": {} });
        let body = body.to_string();
        let request = format!(
            "POST /api/v1/workflow/executions/start HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            self.key.expose(),
            body.len()
        );
        request.into_bytes()
    }

    /// Starts many executions in one request. Returns how many were accepted.
    pub(crate) async fn enqueue_bulk(&self, tenant: Tenant, count: usize) -> Result<usize> {
        let item = json!({ "workflowDefinitionId": tenant.definition, "workspaceId": tenant.workspace, "input": {} });
        let answer = self
            .http
            .post(format!("http://{}/api/v1/workflow/executions/bulk", self.address))
            .bearer_auth(self.key.expose())
            .json(&json!({ "items": vec![item; count] }))
            .send()
            .await
            .context("enqueue in bulk over HTTP")?;
        ensure!(answer.status().is_success(), "a bulk start was answered {}", answer.status());
        let answers: Value = answer.json().await?;
        let accepted = answers["items"].as_array().context("an answer for each item")?;
        Ok(accepted.iter().filter(|item| item["started"]["executionId"].is_string()).count())
    }

    /// Answers a wait of an execution.
    pub(crate) async fn answer(&self, execution: Uuid, node: &str) -> Result<()> {
        let url = format!("http://{}/api/v1/workflow/executions/{execution}/waits/{node}/answer", self.address);
        let request = self.http.post(url).bearer_auth(self.key.expose()).json(&json!({ "data": {} }));
        let answer = request.send().await.context("answer over HTTP")?;
        ensure!(answer.status().is_success(), "answering a wait returned {}", answer.status());
        Ok(())
    }

    /// Reads an event stream until the returned handle is dropped.
    pub(crate) async fn follow(&self, path: &str) -> Result<AbortOnDropHandle<()>> {
        let request = self.http.get(format!("http://{}{path}", self.address)).bearer_auth(self.key.expose());
        let mut stream = request.send().await.context("open an event stream")?.error_for_status()?;
        Ok(AbortOnDropHandle::new(tokio::spawn(async move { while let Ok(Some(_)) = stream.chunk().await {} })))
    }

    /// The URL of the Supabase client's socket, with its key.
    pub(crate) fn socket(&self) -> String {
        format!("ws://{}/realtime/v1/websocket?apikey={}&vsn=2.0.0", self.address, self.key.expose())
    }

    /// The process id of the service.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.id().context("forebay ended by itself")
    }

    /// Kills the service with SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill forebay")
    }

    /// Stops the service with SIGTERM and waits until it has ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = self.pid()?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM).context("stop forebay")?;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.context("wait for forebay to stop")??;
        ensure!(status.success(), "forebay ended with {status}");
        Ok(())
    }
}

fn binary() -> Result<PathBuf> {
    let path = std::env::current_exe().context("find this program")?.with_file_name("forebay");
    ensure!(path.exists(), "{} is missing: start this through ./dev/bench", path.display());
    Ok(path)
}
