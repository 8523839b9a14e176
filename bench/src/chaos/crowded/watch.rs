//! Polls the database: which process owns each run and each shard, and how many slots each workspace holds.
//!
//! Invariants
//! - Times come from the harness's clock, which is also the database's: both are on one machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Context;
use store::connect::Client;
use tokio_util::sync::CancellationToken;

use super::super::setup::Setup;
use super::super::{Leases, ms};
use crate::service::{Kill, now_us};

const EVERY: Duration = Duration::from_millis(200);
/// How much a busy machine may add to a lease.
const SPARE: Duration = Duration::from_secs(3);

pub(super) struct Watch {
    client: Client,
    /// A shard without an owner for longer than this counts as unowned.
    unowned_after: Duration,
    limit: i64,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) looks: u64,
    /// When each process was last seen to own a run.
    owned_until: BTreeMap<String, i64>,
    pub(super) unowned_shards: BTreeSet<i16>,
    /// Polls at which a workspace held more slots than its limit.
    pub(super) over_cap: u64,
}

impl Observed {
    /// The longest time that a run of a killed process had no other owner.
    pub(super) fn taken_over_max(&self, kills: &[Kill]) -> Duration {
        let longest = kills.iter().filter_map(|kill| Some(self.owned_until.get(&kill.name)? - kill.at)).max();
        Duration::from_micros(longest.and_then(|longest| u64::try_from(longest).ok()).unwrap_or_default())
    }

    /// True if a killed process owned runs when it was killed.
    pub(super) fn interrupted(&self, kills: &[Kill]) -> bool {
        kills.iter().any(|kill| self.owned_until.get(&kill.name).is_some_and(|until| *until > kill.at))
    }
}

impl Watch {
    pub(super) async fn new(setup: &Setup, leases: Leases, limit: i32) -> anyhow::Result<Watch> {
        let client = setup.cluster.target()?.connect().await?;
        let unowned_after = ms(leases.shards + 2 * leases.heartbeat) + SPARE;
        Ok(Watch { client, unowned_after, limit: i64::from(limit) })
    }

    /// Polls until stopped, and records since when a shard has had no owner.
    pub(super) async fn run(self, stop: CancellationToken, found: CancellationToken) -> anyhow::Result<Observed> {
        let (mut seen, mut unowned) = (Observed::default(), BTreeMap::new());
        while !stop.is_cancelled() {
            self.look(&mut seen, &mut unowned).await.context("read owners and slots")?;
            if !seen.unowned_shards.is_empty() {
                found.cancel();
            }
            tokio::time::sleep(EVERY).await;
        }
        Ok(seen)
    }

    async fn look(&self, seen: &mut Observed, unowned: &mut BTreeMap<i16, Instant>) -> anyhow::Result<()> {
        seen.looks += 1;
        let owners = "SELECT DISTINCT p.name FROM workflow_execution e JOIN chaos_process p ON p.id = e.owner
                       WHERE e.status = 'RUNNING'";
        let now = now_us();
        for row in self.client.query(owners, &[]).await? {
            seen.owned_until.insert(row.get(0), now);
        }
        let shards = "SELECT shard FROM shard_owner WHERE until <= clock_timestamp()";
        let free: BTreeSet<i16> = self.client.query(shards, &[]).await?.iter().map(|row| row.get(0)).collect();
        unowned.retain(|shard, _| free.contains(shard));
        for shard in free {
            if unowned.entry(shard).or_insert_with(Instant::now).elapsed() > self.unowned_after {
                seen.unowned_shards.insert(shard);
            }
        }
        let slots = "SELECT count(*) FROM (SELECT 1 FROM execution_queue WHERE stage = 5
                      GROUP BY workspace_id HAVING count(*) > $1) over";
        seen.over_cap += u64::from(self.client.query_one(slots, &[&self.limit]).await?.get::<_, i64>(0) > 0);
        Ok(())
    }
}
