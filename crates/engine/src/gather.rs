//! Gathers writes that are requested at the same time into one statement, and so into one commit.
//!
//! Invariants
//! - A write is sent as soon as every ready task of the runtime had the chance to add its own, or when the statement
//!   before it has ended. So an idle process waits for nothing, and a busy one needs fewer commits. Only a write that
//!   nobody waits for lingers, so that others join it.
//! - A second statement runs at the same time only for a full batch, or if the first is slow.
//! - If a batch fails, its writes are sent one by one, and each caller gets its own result. So a write with bad data,
//!   or of a locked row, delays the others but never fails them.
//!
//! Not here: what is written (the callers), records of the embedded engine (`embedded::writer`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use store::Error;
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};

/// The most writes in one statement.
const BATCH: usize = 100;
/// The approximate maximum size of one statement, in bytes. A larger write is sent alone.
const BYTES: usize = 8 << 20;
/// How many statements may run at a time.
const WRITERS: usize = 2;
/// The next batch does not wait for a statement that takes longer than this.
const SLOW: Duration = Duration::from_millis(20);

/// Gathers writes of one sort: what is written, and the result of each. Cheap to clone.
pub struct Gather<W, R>(Arc<Shared<W, R>>);

struct Shared<W, R> {
    linger: Duration,
    statement: Statement<W, R>,
    state: Mutex<State<W, R>>,
}

/// Sends many writes as one statement. The results are in the order of the writes.
type Statement<W, R> = Box<dyn Fn(Vec<W>) -> BoxFuture<'static, Result<Vec<R>, Error>> + Send + Sync>;

struct State<W, R> {
    pending: Vec<Pending<W, R>>,
    writers: usize,
    last: Instant,
}

struct Pending<W, R> {
    write: W,
    bytes: usize,
    /// The caller's span; the statement belongs to the first of its callers.
    span: Span,
    reply: oneshot::Sender<Result<R, Error>>,
}

impl<W, R> Clone for Gather<W, R> {
    fn clone(&self) -> Self {
        Gather(Arc::clone(&self.0))
    }
}

impl<W, R> std::fmt::Debug for Gather<W, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<W: Clone + Send + 'static, R: Send + 'static> Gather<W, R> {
    /// `linger`: how long the first write of a batch waits for others.
    pub fn new<F>(linger: Duration, statement: impl Fn(Vec<W>) -> F + Send + Sync + 'static) -> Gather<W, R>
    where
        F: Future<Output = Result<Vec<R>, Error>> + Send + 'static,
    {
        let state = State { pending: Vec::new(), writers: 0, last: Instant::now() };
        let statement: Statement<W, R> = Box::new(move |writes| Box::pin(statement(writes)));
        Gather(Arc::new(Shared { linger, statement, state: Mutex::new(state) }))
    }

    /// Writes, together with the writes of other callers. `bytes` is the approximate size of this one. A caller that
    /// drops this future does not stop the write.
    pub async fn write(&self, write: W, bytes: usize) -> Result<R, Error> {
        let (reply, answer) = oneshot::channel();
        if self.0.add(Pending { write, bytes, span: Span::current(), reply }) {
            let writer = Writer { shared: Arc::clone(&self.0), counted: true };
            tokio::spawn(async move { writer.run().await });
        }
        answer.await.unwrap_or_else(|_| Err(Error::Unavailable("the process is shutting down".into())))
    }
}

impl<W, R> Shared<W, R> {
    /// Adds a write. True if another writer has to be started for it.
    fn add(&self, write: Pending<W, R>) -> bool {
        let mut state = self.state.lock();
        state.pending.push(write);
        let late = state.pending.len() >= BATCH || state.last.elapsed() >= SLOW;
        let more = state.writers == 0 || (state.writers < WRITERS && late);
        state.writers += usize::from(more);
        more
    }

    /// Removes the next batch, within the limits. None if nothing is pending: the writer then no longer counts.
    fn take(&self) -> Option<Vec<Pending<W, R>>> {
        let mut state = self.state.lock();
        if state.pending.is_empty() {
            state.writers -= 1;
            return None;
        }
        let mut bytes = 0;
        let mut fits = |pending: &Pending<W, R>| {
            bytes += pending.bytes;
            bytes <= BYTES
        };
        let count = state.pending.iter().take(BATCH).take_while(|one| fits(one)).count();
        state.last = Instant::now();
        Some(state.pending.drain(..count.max(1)).collect())
    }
}

/// Sends batches until none is pending.
struct Writer<W, R> {
    shared: Arc<Shared<W, R>>,
    /// It counts as one of `State::writers`.
    counted: bool,
}

impl<W, R> Drop for Writer<W, R> {
    fn drop(&mut self) {
        self.shared.state.lock().writers -= usize::from(self.counted);
    }
}

impl<W: Clone + Send + 'static, R: Send + 'static> Writer<W, R> {
    async fn run(mut self) {
        loop {
            if !self.shared.linger.is_zero() && self.pending() < BATCH {
                tokio::time::sleep(self.shared.linger).await;
            }
            let mut before = 0;
            // Callers that the last batch woke up add their next writes first.
            while before < self.pending() {
                before = self.pending();
                tokio::task::yield_now().await;
            }
            let Some(batch) = self.shared.take() else {
                self.counted = false;
                return;
            };
            let span = batch[0].span.clone();
            self.send(batch).instrument(span).await;
        }
    }

    fn pending(&self) -> usize {
        self.shared.state.lock().pending.len().min(BATCH)
    }

    async fn send(&self, mut batch: Vec<Pending<W, R>>) {
        if batch.len() > 1
            && let Ok(results) = (self.shared.statement)(batch.iter().map(|one| one.write.clone()).collect()).await
            && results.len() == batch.len()
        {
            batch.drain(..).zip(results).for_each(|(one, result)| drop(one.reply.send(Ok(result))));
        }
        join_all(batch.into_iter().map(async |one| {
            let result = (self.shared.statement)(vec![one.write]).await.and_then(|results| {
                results.into_iter().next().ok_or_else(|| Error::Corrupt("a write returned no row".to_owned()))
            });
            drop(one.reply.send(result));
        }))
        .await;
    }
}
