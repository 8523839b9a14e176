//! `top`: the workspaces as they are now, the busiest first.
//!
//! Invariants
//! - A look asks for a bounded number of workspaces and of capacities.
//! - It looks when an execution changed, at most once a second, and now and then in any case.
//! - Without a terminal, or for JSON, it looks once.
//!
//! Not here: the terminal itself (`top::screen`).

mod screen;

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use server::wire::{Capacity, Count, Page, Workspace};
use tokio::time::Instant;

use super::api::{Answer, Error, Live, Waited};
use super::connection::Session;
use super::{Act, Format};
use crate::exit::{Exit, usage};
use crate::output::{self, Cell, Look};
use screen::{Key, Screen};

/// How many pages of workspaces are looked at for the busiest.
const PAGES: usize = 5;
const PAGE: &str = "200";
/// How many capacities are asked for at once.
const AT_ONCE: usize = 8;
const SHORTEST: Duration = Duration::from_millis(200);
/// The shortest between two looks, however much changes.
const BREATH: Duration = Duration::from_secs(1);
/// The longest, while nothing tells of changes.
const UNTOLD: Duration = Duration::from_secs(2);
/// What tells of every execution that changes.
const STREAM: &str = "workflow/executions/events";

/// Watch the workspaces: what runs, what may, what waits and for how long
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The busiest are on top. q or Ctrl-C ends it; without a terminal, and with -o json, it looks once. WAITING is what \
could \
start if there were room, OLDEST how long the first of it has waited, LATER what waits for a time, FAILED the dead \
letter.

Examples:
  forebay top
  forebay top --every 10s --limit 5")]
pub(crate) struct Top {
    /// How often to look even if nothing is told to have changed
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = kernel::duration::parse)]
    every: Duration,
    /// The most workspaces to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=200))]
    limit: u8,
}

/// A workspace and what it has room for.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    tier: String,
    #[serde(flatten)]
    capacity: Capacity,
}

impl Act for Top {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        if self.every < SHORTEST {
            return Err(usage("--every: look every 200ms at most"));
        }
        if session.format == Format::Json {
            let rows = look(session, usize::from(self.limit)).await?;
            output::json(&serde_json::to_string(&serde_json::json!({ "items": rows }))?, session.stdout)?;
            return Ok(Exit::Done);
        }
        if !session.stdout.terminal {
            output::line(table(&look(session, usize::from(self.limit)).await?, session.stdout))?;
            return Ok(Exit::Done);
        }
        self.watch(session).await
    }
}

impl Top {
    async fn watch(self, session: &Session) -> anyhow::Result<Exit> {
        let mut screen = Screen::open()?;
        let mut live = Live::new(STREAM.to_owned());
        loop {
            live.open(&session.api).await;
            let looked = Instant::now();
            let text = match look(session, usize::from(self.limit)).await {
                Ok(rows) => table(&rows, session.stdout),
                Err(error) if error.is_passing() => format!("{}; trying again", output::clean(&error.to_string())),
                Err(error) => return Err(error.into()),
            };
            screen.draw(&format!("{text}\n\nq ends"))?;
            let changed = async {
                let most = if live.is_open() { self.every } else { self.every.min(UNTOLD) };
                if live.wait(most).await == Waited::Told {
                    tokio::time::sleep_until(looked + BREATH.min(self.every)).await;
                }
            };
            match screen.wait(changed).await? {
                Some(Key::Quit) => return Ok(Exit::Done),
                Some(Key::Interrupt) => return Ok(Exit::Interrupted),
                None => {}
            }
        }
    }
}

/// The busiest workspaces, each with its capacity.
async fn look(session: &Session, limit: usize) -> Result<Vec<Row>, Error> {
    let mut all: Vec<Workspace> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut query = vec![("limit", PAGE)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page: Answer<Page<Workspace>> = session.api.get("workspaces", &query).await?;
        all.extend(page.value.items);
        cursor = page.value.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    all.sort_by(|a, b| (b.ready, b.running, &a.name).cmp(&(a.ready, a.running, &b.name)));
    all.truncate(limit);
    let asked = stream::iter(all).map(async |workspace| row(session, workspace).await).buffered(AT_ONCE);
    let rows: Vec<Option<Row>> = asked.try_collect().await?;
    Ok(rows.into_iter().flatten().collect())
}

/// One that was deleted meanwhile has no row.
async fn row(session: &Session, workspace: Workspace) -> Result<Option<Row>, Error> {
    let path = format!("workspaces/{}/capacity", workspace.id);
    let answer: Result<Answer<Capacity>, Error> = session.api.get(&path, &[]).await;
    match answer {
        Ok(answer) => Ok(Some(Row { name: workspace.name, tier: workspace.tier, capacity: answer.value })),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn table(rows: &[Row], look: Look) -> String {
    let head = ["WORKSPACE", "TIER", "STATE", "RUNNING", "LIMIT", "WAITING", "OLDEST", "LATER", "FAILED"];
    let row = |row: &Row| {
        let Capacity { running, limit, paused, waiting, oldest_waiting_seconds, failed, .. } = &row.capacity;
        let free = i64::from(*limit) > running.count;
        let state = if *paused {
            "PAUSED"
        } else if free {
            "FREE"
        } else {
            "FULL"
        };
        #[expect(clippy::cast_possible_truncation, reason = "an age in milliseconds fits")]
        let oldest = oldest_waiting_seconds.map(|seconds| output::took((seconds * 1_000.0) as i64));
        vec![
            Cell::new(&row.name),
            Cell::new(&row.tier),
            Cell::status(state),
            Cell::new(counted(&[*running])),
            Cell::new(limit),
            Cell::new(counted(&[waiting.ready, waiting.key, waiting.definition])),
            Cell::maybe(oldest),
            Cell::new(counted(&[waiting.delayed])),
            Cell::new(counted(&[*failed])),
        ]
    };
    output::render(&head, rows.iter().map(row).collect(), look)
}

/// A sum of numbers that were counted only so far.
fn counted(counts: &[Count]) -> String {
    let more = if counts.iter().any(|count| count.more) { "+" } else { "" };
    format!("{}{more}", counts.iter().map(|count| count.count).sum::<i64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use server::wire::WaitingCounts;

    #[test]
    fn a_table_says_what_runs_what_may_and_what_waits() {
        let count = |count| Count { count, more: false };
        let row = |name: &str, running, oldest, paused| Row {
            name: name.to_owned(),
            tier: "PRO".to_owned(),
            capacity: Capacity {
                workspace_id: "019a0000-0000-7000-8000-000000000000".parse().expect("an id"),
                limit: 5,
                running: count(running),
                free: 5 - running,
                paused,
                waiting: WaitingCounts {
                    ready: Count { count: 1_000, more: true },
                    delayed: count(2),
                    key: count(3),
                    definition: count(0),
                },
                oldest_waiting_seconds: oldest,
                failed: count(7),
            },
        };
        let rows = [row("acme", 5, Some(63.25), false), row("b\u{1b}[2J", 1, None, false), row("c", 0, None, true)];
        expect![[r#"
            WORKSPACE  TIER  STATE   RUNNING  LIMIT  WAITING  OLDEST  LATER  FAILED
            acme       PRO   FULL    5        5      1003+    1m03s   2      7
            b          PRO   FREE    1        5      1003+    -       2      7
            c          PRO   PAUSED  0        5      1003+    -       2      7"#]]
        .assert_eq(&table(&rows, Look::PLAIN));
    }
}
