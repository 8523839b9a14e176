//! The first act: dispatchers die between Temporal's answer and their commit, and workers die during a node.
//!
//!     all named ──▶ one is about to commit ──immediately, or after a workflow ended──▶ SIGKILL, its sessions ended ──▶ started again
//!
//! Invariants
//! - A kill counts only if the dispatcher was about to commit. A trigger (`hold.sql`) blocks the commit until the kill,
//!   and then the commit is rolled back.
//! - At some kills no worker is alive. Then the started workflow does not begin, and another dispatcher takes over the
//!   item and repeats the start. At the other kills the workflow begins, and usually ends, before another dispatcher
//!   takes over.
//! - A worker is killed while calls are in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use store::connect::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::server::TemporalServer;
use super::{Act, Size, Stand, WORKERS};
use crate::chaos::mutant::{self, Mutant};
use crate::chaos::phases::Shown;
use crate::chaos::{ChaosOptions, Leases, ms};
use crate::random::Random;
use crate::report::say;
use crate::service::Fleet;

/// How often to check whether a dispatcher is held.
const LOOK: Duration = Duration::from_millis(3);
/// How long to wait until a dispatcher is about to commit. After that time the harness fails.
const HELD_WITHIN: Duration = Duration::from_secs(60);
/// How long to wait for calls in flight.
const CALLED_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait for the end of a workflow that ends immediately.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn act(options: &ChaosOptions, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("kills: {} dispatchers between the engine's answer and their commit", size.kills));
    let server = TemporalServer::start().await?;
    let port = server.port;
    let stand = Stand::start(options, size, server, port).await?;
    let client = &stand.setup.client;
    client
        .batch_execute(include_str!("../../../sql/hold.sql"))
        .await
        .context("install the trigger that blocks dispatchers")?;
    mutant::mutate(client, mutant).await?;
    let mut kills = Kills {
        stand: &stand,
        leases: Leases::of(options.short),
        random: Random::new(options.seed),
        found: Found::default(),
    };
    stand.setup.while_all_live(kills.trouble()).await?;
    let found = kills.found;
    let tally = stand.tally().await?;
    let repeated = stand.setup.receiver.deliveries().iter().filter(|delivery| delivery.nth > 0).count();
    // Dispatchers really died late enough, calls were really interrupted, and starts were really repeated.
    let staged = [
        ("never_killed", found.dispatchers < size.kills),
        ("never_mid_node", repeated == 0),
        ("never_taken_over", found.taken_over == 0),
        ("never_ended_before_the_commit", found.ended == 0),
    ];
    let broken = tally.broken("kills", if mutant.is_none() { &staged } else { &[] });
    let figures = json!({
        "kills": found.dispatchers + found.workers,
        "dispatchers_killed": found.dispatchers,
        "workers_killed": found.workers,
        "ended_before_the_commit": found.ended,
        "taken_over": found.taken_over,
        "calls_repeated": repeated,
    });
    let act = Act { tally, figures, broken };
    stand.stop(options, &act, mutant).await?;
    Ok(act)
}

/// Counts of the faults and of their effects.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    dispatchers: usize,
    workers: usize,
    /// Dispatchers that died after an execution had ended whose start they were about to commit.
    ended: usize,
    /// Items that another dispatcher took over.
    taken_over: usize,
}

struct Kills<'a> {
    stand: &'a Stand,
    leases: Leases,
    random: Random,
    found: Found,
}

impl Kills<'_> {
    /// Runs the load and kills one process after another. Then restarts every process.
    async fn trouble(&mut self) -> anyhow::Result<()> {
        let (stop, size) = (CancellationToken::new(), self.stand.size);
        let loads = self.stand.load(&stop);
        let mut returns: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut shown = Shown::new();
        for kill in 1..=size.kills {
            let alone = kill.is_multiple_of(size.alone_every);
            if alone {
                // All workers die, so a call in flight is certainly interrupted.
                self.wait_for_calls(1).await;
                self.found.workers += (0..WORKERS).filter(|place| self.workers().kill(*place).is_some()).count();
            } else if kill.is_multiple_of(size.worker_every) {
                self.kill_worker(&mut returns).await?;
            }
            let items = self.kill_dispatcher(&mut returns).await?;
            if alone {
                self.see_taken_over(&items).await?;
                self.workers().heal().await?;
            }
            self.show(kill, &mut shown);
            while let Some(done) = returns.try_join_next() {
                done.context("a process did not come back")??;
            }
        }
        while let Some(done) = returns.join_next().await {
            done.context("a process did not come back")??;
        }
        stop.cancel();
        loads.join_all().await;
        Ok(())
    }

    /// Kills a dispatcher that is about to commit. Returns what it had claimed.
    async fn kill_dispatcher(&mut self, returns: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<Vec<Uuid>> {
        let fleet = &self.stand.setup.fleet;
        let name = self.hold().await?;
        let place = fleet.place_of(&name).with_context(|| format!("{name} is not running"))?;
        let claimed = self.claimed_by(&name).await?;
        // Half of the dispatchers are killed immediately, when the workflow has hardly begun.
        if self.random.one_in(2) && self.one_ends(&claimed).await? {
            self.found.ended += 1;
        }
        fleet.kill(place);
        self.end_sessions(&name).await?;
        self.found.dispatchers += 1;
        returns.spawn(back(Arc::clone(fleet), place, ms(self.random.between(0, self.leases.shards / 3))));
        Ok(claimed)
    }

    /// Waits until a dispatcher is about to commit, and holds it there. Returns its name.
    async fn hold(&self) -> anyhow::Result<String> {
        let (client, fleet) = (&self.stand.setup.client, &self.stand.setup.fleet);
        let name = "INSERT INTO chaos_hold (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
        let held = "SELECT a.application_name FROM pg_stat_activity a JOIN chaos_hold h ON h.name = a.application_name
                     WHERE a.wait_event = 'PgSleep' LIMIT 1";
        let began = Instant::now();
        while began.elapsed() < HELD_WITHIN {
            // The names are read again each time, because a dispatcher may have been restarted under a new name.
            let names: Vec<String> = fleet.healthy().into_iter().filter_map(|place| fleet.name(place)).collect();
            client.execute(name, &[&names]).await.context("store the names of the dispatchers to block")?;
            if let Some(row) = client.query_opt(held, &[]).await.context("look for a blocked dispatcher")? {
                let one: String = row.get(0);
                client
                    .execute("DELETE FROM chaos_hold WHERE name <> $1", &[&one])
                    .await
                    .context("unblock the other dispatchers")?;
                return Ok(one);
            }
            tokio::time::sleep(LOOK).await;
        }
        bail!("no dispatcher was about to commit within 60 s")
    }

    /// The items that the killed dispatcher claimed and can no longer mark as dispatched. Only items that the engine
    /// accepted can end without a takeover.
    async fn claimed_by(&self, name: &str) -> anyhow::Result<Vec<Uuid>> {
        let claimed = "SELECT q.id FROM execution_queue q JOIN chaos_process p ON p.id = q.claimed_by
                        WHERE p.name = $1 AND q.status = 'CLAIMED'";
        let rows = self
            .stand
            .setup
            .client
            .query(claimed, &[&name])
            .await
            .context("read the items that the dispatcher has claimed")?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Waits until one of these has ended. False if none does.
    async fn one_ends(&self, executions: &[Uuid]) -> anyhow::Result<bool> {
        let ended = "SELECT 1 FROM workflow_execution WHERE id = ANY ($1) AND completed_at IS NOT NULL LIMIT 1";
        let began = Instant::now();
        while began.elapsed() < ENDS_WITHIN {
            if self
                .stand
                .setup
                .client
                .query_opt(ended, &[&executions])
                .await
                .context("check whether an execution has ended")?
                .is_some()
            {
                return Ok(true);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(false)
    }

    /// Ends the database sessions of a dead process, so that none of them commits.
    async fn end_sessions(&self, name: &str) -> anyhow::Result<()> {
        let client = &self.stand.setup.client;
        let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = $1";
        client.query_one(end, &[&name]).await.context("end the sessions of the killed dispatcher")?;
        client
            .execute("DELETE FROM chaos_hold WHERE name = $1", &[&name])
            .await
            .context("unblock the killed dispatcher's name")?;
        Ok(())
    }

    /// Waits until other dispatchers have taken over these items of the killed dispatcher.
    async fn see_taken_over(&mut self, items: &[Uuid]) -> anyhow::Result<()> {
        let (client, began) = (&self.stand.setup.client, Instant::now());
        let longest = 2 * ms(self.leases.claims) + Duration::from_secs(5);
        let mut over = 0;
        while over < items.len() && began.elapsed() < longest {
            over = taken_over(client, items).await?;
            tokio::time::sleep(ms(50)).await;
        }
        self.found.taken_over += over;
        Ok(())
    }

    /// Waits until so many calls are in flight, but not for long.
    async fn wait_for_calls(&self, count: usize) {
        let began = Instant::now();
        while self.stand.setup.receiver.in_flight() < count && began.elapsed() < CALLED_WITHIN {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills a worker while calls are in flight.
    async fn kill_worker(&mut self, returns: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
        self.wait_for_calls(WORKERS).await;
        let healthy = self.workers().healthy();
        // Another worker must continue the work.
        if healthy.len() < 2 {
            return Ok(());
        }
        let place = healthy[self.random.below(healthy.len())];
        self.workers().kill(place);
        self.found.workers += 1;
        returns.spawn(back(Arc::clone(self.workers()), place, ms(self.random.between(0, 2_000))));
        Ok(())
    }

    fn workers(&self) -> &Arc<Fleet> {
        &self.stand.setup.workers
    }

    fn show(&self, kill: usize, shown: &mut Shown) {
        let Found { workers, taken_over, .. } = self.found;
        let (all, accepted) = (self.stand.size.kills, self.stand.load.count());
        let text =
            format!("kill {kill} of {all}, workers killed {workers}, taken over {taken_over}, accepted {accepted}");
        shown.show(text);
    }
}

/// How many of these items have a new claim and a start that was repeated under it.
async fn taken_over(client: &Client, items: &[Uuid]) -> anyhow::Result<usize> {
    let sql =
        "SELECT count(*) FROM execution_queue WHERE id = ANY ($1) AND takeover_count > 0 AND status = 'DISPATCHED'";
    let row = client.query_one(sql, &[&items]).await.context("count the items that were taken over")?;
    Ok(usize::try_from(row.get::<_, i64>(0))?)
}

async fn back(fleet: Arc<Fleet>, place: usize, after: Duration) -> anyhow::Result<()> {
    tokio::time::sleep(after).await;
    fleet.restart(place).await
}
