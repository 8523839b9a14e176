//! The first act: dispatchers die between Temporal's answer and their commit, workers in the middle of a node.
//!
//!     all named ──▶ one is about to commit ──at once, or after a workflow ended──▶ SIGKILL, its sessions ended ──▶ started again
//!
//! Invariants
//! - A dispatcher is killed where it is to be killed, or the kill does not count: the database holds it there
//!   (`hold.sql`), and what it was about to commit is rolled back.
//! - Now and then no worker lives meanwhile: nobody begins what was started, so that another dispatcher takes the item
//!   over and repeats the start. At all other times the workflow begins, and mostly ends, without any dispatcher.
//! - A worker is killed while calls are in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use store::connect::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::server::Server;
use super::{Act, Size, Stand, WORKERS};
use crate::chaos::mutant::{self, Mutant};
use crate::chaos::{Leases, Request, ms};
use crate::random::Random;
use crate::report::{progress, say};
use crate::service::Fleet;

/// How often it is looked whether a dispatcher stands where it is to die.
const LOOK: Duration = Duration::from_millis(3);
/// One must have something to dispatch within so long, or the harness has failed.
const HELD_WITHIN: Duration = Duration::from_secs(60);
/// How long calls in flight are waited for.
const CALLED_WITHIN: Duration = Duration::from_secs(5);
/// A workflow that ends at once has ended after so long, or is not waited for any more.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

pub(super) async fn act(request: &Request, size: Size, mutant: Option<Mutant>) -> anyhow::Result<Act> {
    say(format!("kills: {} dispatchers between the engine's answer and their commit", size.kills));
    let server = Server::start().await?;
    let port = server.port;
    let stand = Stand::start(request, size, server, port).await?;
    let client = &stand.setup.client;
    client.batch_execute(include_str!("../../../sql/hold.sql")).await.context("let dispatchers be held")?;
    mutant::mutate(client, mutant).await?;
    let mut kills = Kills {
        stand: &stand,
        leases: Leases::of(request.short),
        random: Random::new(request.seed),
        found: Found::default(),
    };
    stand.setup.while_all_live(kills.trouble()).await?;
    let found = kills.found;
    let tally = stand.tally().await?;
    let repeated = stand.setup.receiver.deliveries().iter().filter(|delivery| delivery.nth > 0).count();
    // Dispatchers really died late enough, calls were really cut short, and starts really repeated.
    let staged = [
        ("never_killed", found.dispatchers < size.kills),
        ("never_mid_node", repeated == 0),
        ("never_taken_over", found.taken_over == 0),
        ("never_ended_before_the_commit", found.ended == 0),
    ];
    let broken = tally.broken("kills", if mutant.is_none() { &staged } else { &[] });
    let told = json!({
        "kills": found.dispatchers + found.workers,
        "dispatchers_killed": found.dispatchers,
        "workers_killed": found.workers,
        "ended_before_the_commit": found.ended,
        "taken_over": found.taken_over,
        "calls_repeated": repeated,
    });
    let act = Act { tally, told, broken };
    stand.stop(request, &act, mutant).await?;
    Ok(act)
}

/// What was done, and what it met.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    dispatchers: usize,
    workers: usize,
    /// Dispatchers that died after an execution had ended whose start they were about to note.
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
    /// The load, and beside it death after death; then everybody is back.
    async fn trouble(&mut self) -> anyhow::Result<()> {
        let (stop, size) = (CancellationToken::new(), self.stand.size);
        let loads = self.stand.load(&stop);
        let mut returns: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut shown = Instant::now();
        for kill in 1..=size.kills {
            let alone = kill.is_multiple_of(size.alone_every);
            if alone {
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

    /// Kills a dispatcher where it is about to commit; answers what it had claimed then.
    async fn kill_dispatcher(&mut self, returns: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<Vec<Uuid>> {
        let fleet = &self.stand.setup.fleet;
        let name = self.hold().await?;
        let place = fleet.place_of(&name).with_context(|| format!("{name} is not running"))?;
        let claimed = self.claimed_by(&name).await?;
        // Half of them at once: the workflow has hardly begun then.
        if self.random.one_in(2) && self.one_ends(&claimed).await? {
            self.found.ended += 1;
        }
        fleet.kill(place);
        self.end_sessions(&name).await?;
        self.found.dispatchers += 1;
        returns.spawn(back(Arc::clone(fleet), place, ms(self.random.between(0, self.leases.shards / 3))));
        Ok(claimed)
    }

    /// Waits until a dispatcher is about to commit, and keeps it there; answers which.
    async fn hold(&self) -> anyhow::Result<String> {
        let (client, fleet) = (&self.stand.setup.client, &self.stand.setup.fleet);
        let name = "INSERT INTO chaos_hold (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING";
        let held = "SELECT a.application_name FROM pg_stat_activity a JOIN chaos_hold h ON h.name = a.application_name
                     WHERE a.wait_event = 'PgSleep' LIMIT 1";
        let began = Instant::now();
        while began.elapsed() < HELD_WITHIN {
            // One that came back meanwhile is as good as any.
            let names: Vec<String> = fleet.healthy().into_iter().filter_map(|place| fleet.name(place)).collect();
            client.execute(name, &[&names]).await.context("name the dispatchers")?;
            if let Some(row) = client.query_opt(held, &[]).await.context("look for one that is held")? {
                let one: String = row.get(0);
                client.execute("DELETE FROM chaos_hold WHERE name <> $1", &[&one]).await.context("let the rest go")?;
                return Ok(one);
            }
            tokio::time::sleep(LOOK).await;
        }
        bail!("no dispatcher had anything to dispatch")
    }

    /// What it has claimed and cannot note as dispatched any more: only what the engine took can end from now on.
    async fn claimed_by(&self, name: &str) -> anyhow::Result<Vec<Uuid>> {
        let claimed = "SELECT q.id FROM execution_queue q JOIN chaos_process p ON p.id = q.claimed_by
                        WHERE p.name = $1 AND q.status = 'CLAIMED'";
        let rows = self.stand.setup.client.query(claimed, &[&name]).await.context("look for what it has claimed")?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Waits until one of these has ended. False if none does.
    async fn one_ends(&self, executions: &[Uuid]) -> anyhow::Result<bool> {
        let ended = "SELECT 1 FROM workflow_execution WHERE id = ANY ($1) AND completed_at IS NOT NULL LIMIT 1";
        let began = Instant::now();
        while began.elapsed() < ENDS_WITHIN {
            if self.stand.setup.client.query_opt(ended, &[&executions]).await.context("look for its end")?.is_some() {
                return Ok(true);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(false)
    }

    /// Ends the sessions of a process that is dead, so that none commits any more.
    async fn end_sessions(&self, name: &str) -> anyhow::Result<()> {
        let client = &self.stand.setup.client;
        let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = $1";
        client.query_one(end, &[&name]).await.context("end its sessions")?;
        client.execute("DELETE FROM chaos_hold WHERE name = $1", &[&name]).await.context("forget it")?;
        Ok(())
    }

    /// Waits until others have these items, whose claimer is dead.
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

    /// Kills a worker while calls are in flight.
    async fn kill_worker(&mut self, returns: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.stand.setup.receiver.in_flight() < WORKERS && began.elapsed() < CALLED_WITHIN {
            tokio::time::sleep(LOOK).await;
        }
        let healthy = self.workers().healthy();
        // Somebody is to go on with the work.
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

    fn show(&self, kill: usize, shown: &mut Instant) {
        let Found { workers, taken_over, .. } = self.found;
        let (all, accepted) = (self.stand.size.kills, self.stand.load.count());
        let text =
            format!("kill {kill} of {all}, workers killed {workers}, taken over {taken_over}, accepted {accepted}");
        if shown.elapsed() > Duration::from_secs(15) {
            *shown = Instant::now();
            say(text);
        } else {
            progress(text);
        }
    }
}

/// How many of these have a new claimer, and a start that was repeated after its claim.
async fn taken_over(client: &Client, items: &[Uuid]) -> anyhow::Result<usize> {
    let sql =
        "SELECT count(*) FROM execution_queue WHERE id = ANY ($1) AND takeover_count > 0 AND status = 'DISPATCHED'";
    let row = client.query_one(sql, &[&items]).await.context("look for what was taken over")?;
    Ok(usize::try_from(row.get::<_, i64>(0))?)
}

async fn back(fleet: Arc<Fleet>, place: usize, after: Duration) -> anyhow::Result<()> {
    tokio::time::sleep(after).await;
    fleet.restart(place).await
}
