//! Measures how soon subscribers receive a change: rows written at a steady rate, and sockets that wait for them.
//!
//! Invariants
//! - Writers and subscribers share one process, and so one clock. A row carries the number under which its time was
//!   recorded.
//! - Every subscriber must get every row, or the case fails.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use store::connect::Target;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::measure::served::Service;
use crate::measure::stats::Sample;
use crate::measure::world::World;
use crate::report::say;

/// The number of subscribers, and of rows written per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) subscribers: usize,
    pub(super) rate: u32,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}/s", self.subscribers, self.rate)
    }
}

const CASES: [Case; 5] = [
    Case { subscribers: 1, rate: 100 },
    Case { subscribers: 1, rate: 1_000 },
    Case { subscribers: 100, rate: 100 },
    Case { subscribers: 100, rate: 1_000 },
    Case { subscribers: 1_000, rate: 100 },
];
const SECONDS: f64 = 10.0;
/// The first rows are a warm-up and do not count.
const WARM: f64 = 1.0;
const WRITERS: usize = 4;
/// How long to wait for the last message.
const PATIENCE: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

/// When each row was sent, in microseconds since the beginning.
struct Times {
    began: Instant,
    sent: Vec<AtomicU64>,
}

impl Times {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

pub(super) async fn measure(world: &World, scale: f64) -> Result<Vec<(Case, Sample)>> {
    world.leave_to_service().await?;
    let service = Service::start_as("api", world, &["http.max_streams_per_workspace=2000".to_owned()]).await?;
    let mut measured = Vec::new();
    for case in CASES {
        let sample = one(world, &service, case, scale).await.with_context(|| case.to_string())?;
        say(format!("{case}: p50 {:.1} ms, p99 {:.1} ms of {}", sample.p50(), sample.p99(), sample.len()));
        measured.push((case, sample));
    }
    service.stop().await?;
    Ok(measured)
}

async fn one(world: &World, service: &Service, case: Case, scale: f64) -> Result<Sample> {
    let seconds = (SECONDS * scale).max(2.0) + WARM;
    let per_writer = (f64::from(case.rate) * seconds) as usize / WRITERS;
    let rows = per_writer * WRITERS;
    let times = Arc::new(Times { began: Instant::now(), sent: (0..rows).map(|_| AtomicU64::new(0)).collect() });
    let warm = (f64::from(case.rate) * WARM) as usize;
    let mut subscribers = JoinSet::new();
    for number in 0..case.subscribers {
        let socket = subscribe(&service.socket(), number).await?;
        let times = Arc::clone(&times);
        subscribers.spawn(async move { receive(socket, &times, warm).await });
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (client, times) = (Target::new(&world.url)?.connect().await?, Arc::clone(&times));
        let every = Duration::from_secs(1) * u32::try_from(WRITERS)? / case.rate;
        writers.spawn(async move {
            let insert =
                "INSERT INTO public.workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
                VALUES (gen_random_uuid(), 'bench.row', '{}', gen_random_uuid(), $1)";
            let insert = client.prepare(insert).await?;
            let mut next = tokio::time::interval(every);
            for at in 0..per_writer {
                next.tick().await;
                let number = at * WRITERS + writer;
                times.sent[number].store(times.now(), Ordering::Relaxed);
                client.execute(&insert, &[&number.to_string()]).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done.context("a writer stopped early")??;
    }
    let all = async {
        let mut latencies = Vec::new();
        while let Some(done) = subscribers.join_next().await {
            latencies.extend(done.context("a subscriber stopped early")??);
        }
        anyhow::Ok(latencies)
    };
    let latencies = tokio::time::timeout(PATIENCE, all).await.context("some subscribers missed messages")??;
    ensure!(latencies.len() == case.subscribers * (rows - warm), "some subscribers missed messages");
    Ok(Sample::new(latencies))
}

/// Joins a channel as the Supabase client does, and waits for the reply.
pub(crate) async fn subscribe(url: &str, number: usize) -> Result<Socket> {
    let (mut socket, _) = connect_async(url).await.map_err(|error| anyhow::anyhow!("open a socket: {error}"))?;
    let wanted = json!([{ "event": "INSERT", "schema": "public", "table": "workflow_queue_projection",
        "filter": "status=eq.pending" }]);
    let join =
        json!(["1", "1", format!("realtime:bench-{number}"), "phx_join", { "config": { "postgres_changes": wanted } }]);
    socket.send(Message::text(join.to_string())).await?;
    while let Some(message) = socket.next().await {
        let message = message?.into_text()?;
        if message.contains("phx_reply") {
            ensure!(message.contains("\"ok\""), "a join was answered {message}");
            return Ok(socket);
        }
    }
    bail!("a socket was closed")
}

/// Reads until every row was received. Returns the latencies of those that count, in ms.
async fn receive(mut socket: Socket, times: &Times, warm: usize) -> Result<Vec<f64>> {
    let (mut latencies, mut received) = (Vec::with_capacity(times.sent.len()), 0);
    while received < times.sent.len() {
        let message = socket.next().await.context("a socket was closed")??;
        let now = times.now();
        let Message::Text(text) = message else { continue };
        let Some(number) = number(&text) else { continue };
        received += 1;
        if number >= warm {
            latencies.push((now - times.sent[number].load(Ordering::Relaxed)) as f64 / 1e3);
        }
    }
    Ok(latencies)
}

/// The number of the row in a message.
fn number(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("\"stream_type\":\"")?;
    rest.split('"').next()?.parse().ok()
}
