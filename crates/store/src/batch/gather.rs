//! Gathers the items of many callers into batches, each stored by one commit.
//!
//! Invariants
//! - A batch is sent as soon as no commit is in progress and every ready task of the runtime had the chance to add its
//!   item. This adds no delay, and a busy process needs fewer commits per item.
//! - While a commit is in progress, items collect in the next batch.
//! - A second commit runs at the same time only for a full batch, or for a batch that a slow commit delayed.
//!   Measurements show why: two half-full batches wait for each other when the database flushes, and delay all other
//!   commits.
//!
//! Not here: which items share a batch and what a failed batch means (the caller), bad items (`by_halves`).

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many commits may be in progress at a time, if their batches are full.
const WRITERS: usize = 2;
/// The next batch does not wait for a commit that takes longer than this.
const SLOW: Duration = Duration::from_millis(20);

/// How many items a batch has.
#[derive(Clone, Copy, Debug)]
pub struct GatherLimits {
    /// A batch with this many items is full.
    pub batch: usize,
    /// How many waiting items are known to the caller that chooses a batch. Later items stay in the channel.
    pub waiting: usize,
}

/// Writes batches of the items of `inbox` until all senders are dropped and the last batch is written. `take` removes
/// the next batch from the waiting items, and may drop items that nobody waits for. `write` stores a batch and answers
/// its callers; if it panics, they are not answered.
pub async fn gather<T, F>(
    mut inbox: mpsc::UnboundedReceiver<T>,
    limits: GatherLimits,
    mut take: impl FnMut(&mut Vec<T>) -> Vec<T>,
    mut write: impl FnMut(Vec<T>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut waiting = Vec::new();
    let mut under_way = JoinSet::new();
    let (mut open, mut last) = (true, Instant::now());
    while open || !waiting.is_empty() {
        let slow = last.elapsed() >= SLOW;
        let enough = match under_way.len() {
            0 => 1,
            1..WRITERS if slow => 1,
            1..WRITERS => limits.batch,
            _ => usize::MAX,
        };
        if waiting.len() >= enough {
            under_way.spawn(write(take(&mut waiting)));
            last = Instant::now();
            continue;
        }
        let room = limits.waiting.saturating_sub(waiting.len());
        let waits = !waiting.is_empty() && under_way.len() < WRITERS && !slow;
        tokio::select! {
            got = inbox.recv_many(&mut waiting, room), if open && room > 0 => {
                open = got > 0;
                // Callers whose items share a commit continue at the same time. Yield, so that each can add its next
                // item.
                let mut more = true;
                while more && waiting.len() < limits.batch {
                    tokio::task::yield_now().await;
                    more = collect_arrived(&mut inbox, &mut waiting, limits.waiting);
                }
            }
            () = tokio::time::sleep_until(last + SLOW), if waits => {}
            Some(done) = under_way.join_next() => {
                if done.is_err() {
                    tracing::error!("Failed to store a batch: the code panicked");
                }
            }
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Collects the items that already arrived. True if there was at least one.
fn collect_arrived<T>(inbox: &mut mpsc::UnboundedReceiver<T>, waiting: &mut Vec<T>, most: usize) -> bool {
    let before = waiting.len();
    while waiting.len() < most
        && let Ok(item) = inbox.try_recv()
    {
        waiting.push(item);
    }
    waiting.len() > before
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn an_item_is_sent_at_once_and_those_that_arrive_during_its_commit_share_the_next() {
        let (items, inbox) = mpsc::unbounded_channel();
        let (sent, mut batches) = mpsc::unbounded_channel();
        let commits = Arc::new(Semaphore::new(0));
        let allowed = Arc::clone(&commits);
        let limits = GatherLimits { batch: 100, waiting: 100 };
        let gathered = tokio::spawn(gather(inbox, limits, std::mem::take, move |batch: Vec<u32>| {
            let (sent, commits) = (sent.clone(), Arc::clone(&commits));
            async move {
                let _test_ended = sent.send(batch);
                commits.acquire().await.expect("open").forget();
            }
        }));
        let send = |some: &[u32]| some.iter().for_each(|item| items.send(*item).expect("the inbox is open"));
        send(&[1]);
        assert_eq!(batches.recv().await, Some(vec![1]));
        send(&[2, 3]);
        allowed.add_permits(1);
        assert_eq!(batches.recv().await, Some(vec![2, 3]));
        send(&[4]);
        drop(items);
        allowed.add_permits(2);
        gathered.await.expect("it ends with its last batch");
        assert_eq!((batches.recv().await, batches.recv().await), (Some(vec![4]), None));
    }
}
