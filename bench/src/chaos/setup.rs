//! Sets up a run: the database with the judge's triggers, the receiver, the processes and the tenants.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use store::Store;
use store::access::key::Secret;
use store::connect::Client;
use uuid::Uuid;

use super::api::Api;
use super::proxy::Proxy;
use super::strays::Saboteur;
use super::{ChaosOptions, Leases, log};
use crate::cluster::{Cluster, Commits};
use crate::receiver::{Policy, Receiver};
use crate::service::{Fleet, Part, Spec};

/// Connections of one process, for each of its two pools.
const CONNECTIONS: u32 = 8;
/// How many tenants are created at a time.
const SIDE_BY_SIDE: usize = 8;

/// Everything that a run started.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) cluster: Cluster,
    pub(super) receiver: Receiver,
    pub(super) proxy: Option<Proxy>,
    pub(super) fleet: Arc<Fleet>,
    /// The processes that only perform nodes. Empty if the processes of `fleet` perform nodes themselves.
    pub(super) workers: Arc<Fleet>,
    pub(super) api: Api,
    pub(super) store: Store,
    /// For the harness's own statements.
    pub(super) client: Client,
    /// How the processes are started.
    pub(super) spec: Spec,
}

/// A definition in a workspace, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TenantDefinition {
    pub(super) id: Uuid,
    pub(super) keyed: bool,
    pub(super) limited: bool,
}

/// A workspace with its definitions.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) id: Uuid,
    pub(super) tier: &'static str,
    pub(super) definitions: Vec<TenantDefinition>,
}

/// The requirements of a run.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) processes: usize,
    /// The number of additional processes that only perform nodes. If it is not zero, the other processes perform no
    /// nodes.
    pub(super) workers: usize,
    /// The number of processes that are started later.
    pub(super) later: usize,
    pub(super) leases: Leases,
    pub(super) policy: Policy,
    /// Install the judge's triggers, which record every change of a slot and of an owner.
    pub(super) noted: bool,
    /// How durable commits are: in memory only, unless the run kills the database server.
    pub(super) commits: Commits,
    /// The processes reach the database through a proxy that can cut them off.
    pub(super) proxied: bool,
    /// The processes reach the database through this proxy, which makes their statements fail.
    pub(super) saboteur: Option<Saboteur>,
    /// Addresses that workflows may call in addition to the receiver.
    pub(super) allow: Vec<String>,
    /// More settings for the processes.
    pub(super) settings: Vec<String>,
}

impl Stage {
    pub(super) fn new(processes: usize, leases: Leases, policy: Policy) -> Stage {
        Stage {
            processes,
            workers: 0,
            later: 0,
            leases,
            policy,
            noted: true,
            commits: Commits::Fast,
            proxied: false,
            saboteur: None,
            allow: Vec::new(),
            settings: Vec::new(),
        }
    }
}

impl Setup {
    pub(super) async fn start(options: &ChaosOptions, stage: Stage) -> anyhow::Result<Setup> {
        let Stage { processes, workers, leases, policy, .. } = stage;
        let most =
            u32::try_from(processes + workers + stage.later).context("count processes")? * (2 * CONNECTIONS + 4) + 40;
        let cluster = Cluster::start(&options.forebay, stage.commits, most).await?;
        let client = cluster.target()?.connect().await?;
        if stage.noted {
            log::install(&client).await?;
        }
        let proxy = match stage.proxied {
            true => Some(Proxy::start(&cluster.url()).await?),
            false => None,
        };
        if let Some(saboteur) = &stage.saboteur {
            saboteur.serve(&cluster.url())?;
        }
        let receiver = Receiver::start(policy).await?;
        let root_key = Secret::generate()?.expose().to_owned();
        let logs = std::env::temp_dir().join(format!("forebay-chaos-{}", store::new_id().simple()));
        let mut settings = leases.settings();
        settings.extend([
            "database.migrate=false".to_owned(),
            format!("database.api_connections={CONNECTIONS}"),
            format!("database.work_connections={CONNECTIONS}"),
            format!(
                "outbound.allow={}",
                std::iter::once(receiver.address.to_string()).chain(stage.allow).collect::<Vec<_>>().join(",")
            ),
        ]);
        settings.extend(stage.settings);
        let spec = Spec {
            program: options.forebay.clone(),
            part: if workers == 0 { Part::Everything } else { Part::Dispatch },
            database_url: match (&stage.saboteur, &proxy) {
                (Some(saboteur), _) => saboteur.url(),
                (None, Some(proxy)) => proxy.url(),
                (None, None) => cluster.url(),
            },
            root_key: root_key.clone(),
            settings,
            order: Value::Null,
            environment: Vec::new(),
            logs,
        };
        let workers = Arc::new(Fleet::start(Spec { part: Part::Work, ..spec.clone() }, workers).await?);
        let fleet = Arc::new(Fleet::start(spec.clone(), processes).await?);
        let api = Api::new(Arc::clone(&fleet), root_key)?;
        let store = Store::new(&cluster.target()?, 8)?;
        Ok(Setup { cluster, receiver, proxy, fleet, workers, api, store, client, spec })
    }

    /// Creates this many workspaces with these documents in each, in all tiers in turn.
    pub(super) async fn tenants(&self, count: usize, documents: &[Value]) -> anyhow::Result<Vec<Tenant>> {
        let tiers = ["FREE", "PRO", "ENTERPRISE", "PRO", "FREE"];
        stream::iter(0..count)
            .map(|n| self.tenant(n, tiers[n % tiers.len()], documents))
            .buffered(SIDE_BY_SIDE)
            .try_collect()
            .await
    }

    async fn tenant(&self, n: usize, tier: &'static str, documents: &[Value]) -> anyhow::Result<Tenant> {
        let place = n % self.fleet.len();
        let made = self.api.post(place, "workspaces", &json!({ "name": format!("tenant {n}"), "tier": tier })).await?;
        let id: Uuid = read_id(&made["id"])?;
        let mut definitions = Vec::new();
        for document in documents {
            let body = json!({ "document": document, "workspaceId": id });
            let applied = self.api.post(place, "workflow/definitions/apply", &body).await?;
            definitions.push(TenantDefinition {
                id: read_id(&applied["definition"]["id"])?,
                keyed: !document["key_concurrency"].is_null(),
                limited: !document["concurrency"].is_null(),
            });
        }
        Ok(Tenant { id, tier, definitions })
    }

    /// Runs the work. Fails if a process ends by itself meanwhile, because clients would wait for that process forever.
    pub(super) async fn while_all_live<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => done,
            fallen = self.fleet.one_falls() => bail!("{fallen}; the processes' logs are in {}",
                self.spec.logs.display()),
            fallen = self.workers.one_falls() => bail!("{fallen}; the processes' logs are in {}",
                self.spec.logs.display()),
        }
    }

    /// How many accepted executions have not ended.
    pub(super) async fn open(&self) -> anyhow::Result<usize> {
        let row =
            self.client.query_one("SELECT count(*) FROM workflow_execution WHERE completed_at IS NULL", &[]).await?;
        Ok(usize::try_from(row.get::<_, i64>(0))?)
    }

    /// How many queue rows hold a slot.
    pub(super) async fn slots(&self) -> anyhow::Result<i64> {
        Ok(self.client.query_one("SELECT count(*) FROM execution_queue WHERE stage = 5", &[]).await?.get(0))
    }

    /// How many of these accepted executions have not ended.
    pub(super) async fn count_unended(&self, accepted: &[Uuid]) -> anyhow::Result<i64> {
        let row = self
            .client
            .query_one(
                "SELECT count(*) FROM unnest($1::uuid[]) AS a (id) LEFT JOIN workflow_execution e ON e.id = a.id
                 WHERE e.completed_at IS NULL",
                &[&accepted],
            )
            .await?;
        Ok(row.get(0))
    }

    /// Stops everything. Keeps the logs of the processes if something must be investigated.
    pub(super) async fn stop(self, keep_logs: bool) -> anyhow::Result<Option<PathBuf>> {
        drop(self.api);
        drop(self.fleet);
        drop(self.workers);
        drop(self.client);
        drop(self.store);
        self.cluster.stop().await?;
        if keep_logs {
            return Ok(Some(self.spec.logs));
        }
        std::fs::remove_dir_all(&self.spec.logs).with_context(|| format!("remove {}", self.spec.logs.display()))?;
        Ok(None)
    }
}

fn read_id(value: &Value) -> anyhow::Result<Uuid> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("an id, not {value}"))
}
