//! Writes that are requested at the same time share a statement, and none fails because of another.

use std::sync::Arc;
use std::time::Duration;

use engine::gather::Gather;
use futures_util::future::join_all;
use parking_lot::Mutex;
use store::Error;
use tokio::sync::Semaphore;

/// The statements that were sent.
type Sent = Arc<Mutex<Vec<Vec<u32>>>>;

/// Doubles numbers, except 13. Each statement needs a permit.
fn doubling(linger: Duration) -> (Gather<u32, u32>, Sent, Arc<Semaphore>) {
    let (sent, permits) = (Sent::default(), Arc::new(Semaphore::new(0)));
    let (recorded, gate) = (Arc::clone(&sent), Arc::clone(&permits));
    let gather = Gather::new(linger, move |numbers: Vec<u32>| {
        recorded.lock().push(numbers.clone());
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.expect("open").forget();
            match numbers.contains(&13) {
                true => Err(Error::Conflict("13".to_owned())),
                false => Ok(numbers.into_iter().map(|number| number * 2).collect()),
            }
        }
    });
    (gather, sent, permits)
}

async fn write(gather: &Gather<u32, u32>, numbers: &[u32]) -> Vec<Option<u32>> {
    join_all(numbers.iter().map(async |number| gather.write(*number, 1).await.ok())).await
}

#[tokio::test]
async fn writes_that_arrive_together_or_during_a_statement_share_the_next_one() {
    let (gather, sent, permits) = doubling(Duration::ZERO);
    let first = tokio::spawn({
        let gather = gather.clone();
        async move { write(&gather, &[1, 2]).await }
    });
    while sent.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let (second, ()) = tokio::join!(write(&gather, &[3, 4, 5]), async { permits.add_permits(9) });
    assert_eq!(second, [Some(6), Some(8), Some(10)]);
    assert_eq!(first.await.expect("no panic"), [Some(2), Some(4)]);
    assert_eq!(*sent.lock(), [vec![1, 2], vec![3, 4, 5]]);
}

#[tokio::test]
async fn a_write_that_fails_fails_alone() {
    let (gather, sent, permits) = doubling(Duration::ZERO);
    permits.add_permits(9);
    assert_eq!(write(&gather, &[1, 13, 2]).await, [Some(2), None, Some(4)]);
    assert_eq!(*sent.lock(), [vec![1, 13, 2], vec![1], vec![13], vec![2]]);
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_lingers_for_others() {
    let (gather, sent, permits) = doubling(Duration::from_millis(500));
    permits.add_permits(9);
    let later = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        write(&gather, &[2]).await
    };
    assert_eq!(tokio::join!(write(&gather, &[1]), later), (vec![Some(2)], vec![Some(4)]));
    assert_eq!(*sent.lock(), [vec![1, 2]]);
}

#[tokio::test]
async fn large_writes_are_sent_alone() {
    let (gather, sent, permits) = doubling(Duration::ZERO);
    permits.add_permits(9);
    let large = [1, 2].map(|number| gather.write(number, 7 << 20));
    assert!(join_all(large).await.iter().all(Result::is_ok));
    assert_eq!(*sent.lock(), [vec![1], vec![2]]);
}
