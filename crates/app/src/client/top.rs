//! `top`: shows the current load of the workspaces, the busiest first.
//!
//! Invariants
//! - A poll requests a bounded number of workspaces and capacities.
//! - The command polls after each change of an execution, at most once a second, and also at the interval `--every`.
//! - Without a terminal, or with `-o json`, it polls once.
//!
//! Not here: the terminal itself (`top::screen`).

mod screen;

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use server::wire::{BoundedCount, Capacity, Page, Workspace};
use tokio::time::Instant;

use super::api::{Answer, Error, EventStream, Wake};
use super::connection::Session;
use super::{Execute, Format};
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell, StreamStyle};
use screen::{Screen, ScreenCommand};

/// How many pages of workspaces are searched for the busiest ones.
const PAGES: usize = 5;
const PAGE: &str = "200";
/// How many capacities are requested at the same time.
const AT_ONCE: usize = 8;
const SHORTEST: Duration = Duration::from_millis(200);
/// The shortest time between two polls.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two polls while the event stream is not open.
const MAX_PAUSE_WITHOUT_STREAM: Duration = Duration::from_secs(2);
/// The stream of events about every execution.
const STREAM: &str = "workflow/executions/events";

/// Watch the load of the workspaces: running, waiting and failed executions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The busiest workspaces are on top. Press q or Ctrl-C to quit. Without a terminal, and with -o json, the list is \
printed once. WAITING counts executions that could start now if there were a free slot, OLDEST is how long the first \
of them has waited, DELAYED counts executions that wait for a time, and FAILED counts dead letters.

Examples:
  forebay top
  forebay top --every 10s --limit 5")]
pub(crate) struct TopArgs {
    /// How often to refresh even if no change was reported
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = kernel::duration::parse)]
    every: Duration,
    /// The maximum number of workspaces
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=200))]
    limit: u8,
}

/// A workspace and its capacity.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    tier: String,
    #[serde(flatten)]
    capacity: Capacity,
}

impl Execute for TopArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if self.every < SHORTEST {
            return Err(usage_error("--every must be at least 200ms"));
        }
        if session.format == Format::Json {
            let rows = fetch_rows(session, usize::from(self.limit)).await?;
            output::print_json(&serde_json::to_string(&serde_json::json!({ "items": rows }))?, session.stdout)?;
            return Ok(Exit::Done);
        }
        if !session.stdout.terminal {
            output::print_line(table(&fetch_rows(session, usize::from(self.limit)).await?, session.stdout))?;
            return Ok(Exit::Done);
        }
        self.watch(session).await
    }
}

impl TopArgs {
    async fn watch(self, session: &Session) -> anyhow::Result<Exit> {
        let mut screen = Screen::open()?;
        let mut live = EventStream::new(STREAM.to_owned());
        loop {
            live.open(&session.api).await;
            let polled_at = Instant::now();
            let text = match fetch_rows(session, usize::from(self.limit)).await {
                Ok(rows) => table(&rows, session.stdout),
                Err(error) if error.is_transient() => format!("{}; retrying", output::clean(&error.to_string())),
                Err(error) => return Err(error.into()),
            };
            screen.draw(&format!("{text}\n\nq quits"))?;
            let changed = async {
                let most = if live.is_open() { self.every } else { self.every.min(MAX_PAUSE_WITHOUT_STREAM) };
                if live.wait(most).await == Wake::Changed {
                    tokio::time::sleep_until(polled_at + MIN_PAUSE.min(self.every)).await;
                }
            };
            match screen.wait(changed).await? {
                Some(ScreenCommand::Quit) => return Ok(Exit::Done),
                Some(ScreenCommand::Interrupt) => return Ok(Exit::Interrupted),
                None => {}
            }
        }
    }
}

/// The busiest workspaces, each with its capacity.
async fn fetch_rows(session: &Session, limit: usize) -> Result<Vec<Row>, Error> {
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

/// The row of a workspace. None: the workspace was deleted after the list was read.
async fn row(session: &Session, workspace: Workspace) -> Result<Option<Row>, Error> {
    let path = format!("workspaces/{}/capacity", workspace.id);
    let answer: Result<Answer<Capacity>, Error> = session.api.get(&path, &[]).await;
    match answer {
        Ok(answer) => Ok(Some(Row { name: workspace.name, tier: workspace.tier, capacity: answer.value })),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn table(rows: &[Row], style: StreamStyle) -> String {
    let head = ["WORKSPACE", "TIER", "STATE", "RUNNING", "LIMIT", "WAITING", "OLDEST", "DELAYED", "FAILED"];
    let row = |row: &Row| {
        let Capacity { running, limit, paused, waiting, oldest_waiting_seconds, failed, .. } = &row.capacity;
        let free = i64::from(*limit) > running.count;
        let state = if *paused {
            "PAUSED"
        } else if free {
            "ACTIVE"
        } else {
            "FULL"
        };
        #[expect(clippy::cast_possible_truncation, reason = "an age in milliseconds fits")]
        let oldest = oldest_waiting_seconds.map(|seconds| output::format_duration((seconds * 1_000.0) as i64));
        vec![
            Cell::new(&row.name),
            Cell::new(&row.tier),
            Cell::status(state),
            Cell::new(counted(&[*running])),
            Cell::new(limit),
            Cell::new(counted(&[waiting.ready, waiting.key, waiting.definition])),
            Cell::optional(oldest),
            Cell::new(counted(&[waiting.delayed])),
            Cell::new(counted(&[*failed])),
        ]
    };
    output::render_table(&head, rows.iter().map(row).collect(), style)
}

/// The sum of counts. A `+` after it means that there are more: the server stops counting at a maximum.
fn counted(counts: &[BoundedCount]) -> String {
    let more = if counts.iter().any(|count| count.more) { "+" } else { "" };
    format!("{}{more}", counts.iter().map(|count| count.count).sum::<i64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use server::wire::WaitingCounts;

    #[test]
    fn a_table_shows_running_waiting_and_failed_executions() {
        let count = |count| BoundedCount { count, more: false };
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
                    ready: BoundedCount { count: 1_000, more: true },
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
            WORKSPACE  TIER  STATE   RUNNING  LIMIT  WAITING  OLDEST  DELAYED  FAILED
            acme       PRO   FULL    5        5      1003+    1m03s   2        7
            b          PRO   ACTIVE  1        5      1003+    -       2        7
            c          PRO   PAUSED  0        5      1003+    -       2        7"#]]
        .assert_eq(&table(&rows, StreamStyle::PLAIN));
    }
}
