//! Limits how many bytes a workspace may read per second. Large responses cost processor time in the database and in
//! this process, which all workspaces share.
//!
//! Invariants
//! - A workspace may read `BURST` bytes at once, and `PER_SECOND` from then on, in each process. Responses of up to
//!   `SMALL` bytes are free, and so are streams, which have their own limits.
//! - Only GET and HEAD requests are delayed. Such a request is refused with 429 if it would wait longer than `LONGEST`.
//!   Responses to other methods are counted but not delayed: large reads do not slow down starts and changes of the
//!   same workspace.
//! - An admitted read is charged an estimate immediately, so that simultaneous requests do not all pass. When the size
//!   of the response is known, it replaces the estimate. If the request breaks off before that, the estimate stays.
//! - However much a workspace has read, it may read again after at most twice `LONGEST`.
//! - Root keys are not limited.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use http_body::Body;
use kernel::ids::WorkspaceId;

use super::{Code, Problem};

const SMALL: u64 = 64 << 10;
const BURST: u64 = 16 << 20;
const PER_SECOND: u64 = 8 << 20;
const LONGEST: Duration = Duration::from_secs(5);
/// The largest charge for a read before its size is known.
const LARGEST_ESTIMATE: u64 = 1 << 20;
/// How long the size of the last large response of a workspace is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How much each workspace has read recently.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    accounts: Mutex<BTreeMap<WorkspaceId, Account>>,
}

#[derive(Debug)]
struct Account {
    /// When the workspace would have read all its bytes at the rate `PER_SECOND`. A time in the past means no debt.
    paid_at: Instant,
    /// The size of the last large response, which is the estimate for the next read.
    last_bytes: u64,
}

impl Pace {
    /// Waits until the workspace may read, runs the request, and counts the response.
    pub(crate) async fn run(
        &self,
        workspace: Option<WorkspaceId>,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        let Some(workspace) = workspace else { return Ok(next.run(request).await) };
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let estimate = if reads { self.admitted(workspace).await? } else { 0 };
        let answer = next.run(request).await;
        // A stream has no known size and counts as 0.
        let bytes = answer.body().size_hint().exact().unwrap_or(0);
        self.settle(workspace, estimate, bytes, Instant::now());
        Ok(answer)
    }

    /// Waits until a read is admitted. Another read may be admitted during the wait, so it checks again after the wait.
    async fn admitted(&self, workspace: WorkspaceId) -> Result<u64, Problem> {
        let latest = Instant::now() + LONGEST;
        loop {
            let now = Instant::now();
            match self.admit(workspace, now) {
                Ok(estimate) => return Ok(estimate),
                Err(wait) if now + wait > latest => return Err(too_fast(wait)),
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// Admits a read and returns its charge. The error is how long the workspace must wait.
    fn admit(&self, workspace: WorkspaceId, now: Instant) -> Result<u64, Duration> {
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(&workspace) else { return Ok(0) };
        let wait = account.paid_at.saturating_duration_since(now).saturating_sub(time_for(BURST));
        if !wait.is_zero() {
            return Err(wait);
        }
        let estimate = account.last_bytes.min(LARGEST_ESTIMATE);
        account.charge(estimate, now);
        Ok(estimate)
    }

    /// Replaces the charge of a request by the size of its response.
    fn settle(&self, workspace: WorkspaceId, estimate: u64, bytes: u64, now: Instant) {
        let bytes = if bytes > SMALL { bytes } else { 0 };
        if estimate == 0 && bytes == 0 {
            return;
        }
        let mut accounts = self.accounts.lock();
        accounts.retain(|_, account| account.paid_at + REMEMBERED > now);
        let account = accounts.entry(workspace).or_insert(Account { paid_at: now, last_bytes: 0 });
        account.paid_at = account.paid_at.checked_sub(time_for(estimate)).unwrap_or(now);
        account.charge(bytes, now);
        if bytes > 0 {
            account.last_bytes = bytes;
        }
    }
}

impl Account {
    fn charge(&mut self, bytes: u64, now: Instant) {
        let latest = now + time_for(BURST) + 2 * LONGEST;
        self.paid_at = (self.paid_at.max(now) + time_for(bytes)).min(latest);
    }
}

/// The time that reading this many bytes takes at `PER_SECOND`.
fn time_for(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / PER_SECOND)
}

fn too_fast(wait: Duration) -> Problem {
    let detail = format!(
        "this workspace has read too much at once: each process answers with up to {} MiB per second; ask for smaller \
         pages, or try again later",
        PER_SECOND >> 20
    );
    let wait = u32::try_from(wait.as_secs()).unwrap_or(60).max(1);
    Problem { retry_after_s: Some(wait), ..Problem::new(Code::RateLimited, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use axum::http::StatusCode;
    use axum::{Router, middleware};
    use tower::ServiceExt as _;
    use uuid::Uuid;

    fn workspace(n: u128) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n))
    }

    fn wait(pace: &Pace, n: u128, now: Instant) -> Duration {
        let accounts = pace.accounts.lock();
        let paid_at = accounts.get(&workspace(n)).map_or(now, |account| account.paid_at);
        paid_at.saturating_duration_since(now).saturating_sub(time_for(BURST))
    }

    #[test]
    fn a_workspace_that_reads_too_much_waits_and_others_do_not() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.settle(workspace(1), 0, BURST, now);
        assert_eq!(wait(&pace, 1, now), Duration::ZERO, "all of the burst is free");
        pace.settle(workspace(1), 0, PER_SECOND, now);
        assert_eq!(pace.admit(workspace(1), now), Err(Duration::from_secs(1)));
        assert_eq!(pace.admit(workspace(2), now), Ok(0));
        let later = now + Duration::from_secs(1);
        assert!(pace.admit(workspace(1), later).is_ok(), "it waited long enough");
    }

    #[test]
    fn requests_that_come_together_are_charged_before_they_are_answered() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.settle(workspace(1), 0, 4 << 20, now);
        let mut admitted = 0;
        while let Ok(estimate) = pace.admit(workspace(1), now) {
            assert_eq!(estimate, LARGEST_ESTIMATE);
            admitted += 1;
        }
        assert_eq!(admitted, 13, "what was read, and a mebibyte each, until the burst is passed");
        // After the wait the first read is admitted, and the second must wait again.
        let later = now + wait(&pace, 1, now);
        assert!(pace.admit(workspace(1), later).is_ok());
        assert!(pace.admit(workspace(1), later).is_err());
    }

    #[test]
    fn the_charge_of_a_read_is_corrected_to_its_size() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.settle(workspace(1), 0, BURST, now);
        let estimate = pace.admit(workspace(1), now).expect("admitted");
        assert_eq!(wait(&pace, 1, now), time_for(LARGEST_ESTIMATE));
        pace.settle(workspace(1), estimate, SMALL, now);
        assert_eq!(wait(&pace, 1, now), Duration::ZERO);
        let estimate = pace.admit(workspace(1), now).expect("admitted");
        pace.settle(workspace(1), estimate, 4 << 20, now);
        assert_eq!(wait(&pace, 1, now), time_for(4 << 20));
    }

    #[tokio::test]
    async fn only_reads_of_a_workspace_are_delayed() {
        let pace = Arc::new(Pace::default());
        let of_one = Arc::clone(&pace);
        let paced = move |request: Request, next: Next| {
            let pace = Arc::clone(&of_one);
            async move { pace.run(Some(workspace(1)), request, next).await }
        };
        let app = Router::new().fallback(|| async { "done" }).layer(middleware::from_fn(paced));
        for (method, status) in [
            (Method::POST, StatusCode::OK),
            (Method::PUT, StatusCode::OK),
            (Method::PATCH, StatusCode::OK),
            (Method::DELETE, StatusCode::OK),
            (Method::GET, StatusCode::TOO_MANY_REQUESTS),
            (Method::HEAD, StatusCode::TOO_MANY_REQUESTS),
        ] {
            // So much that a read would wait for longer than it may.
            pace.settle(workspace(1), 0, u64::MAX, Instant::now());
            let request = Request::builder().method(&method).uri("/").body(axum::body::Body::empty());
            let answer = app.clone().oneshot(request.expect("a request")).await.expect("an answer");
            assert_eq!(answer.status(), status, "{method}");
        }
    }

    #[test]
    fn a_workspace_waits_for_a_bounded_time_after_any_read() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..1_000 {
            pace.settle(workspace(1), 0, BURST, now);
        }
        assert_eq!(pace.admit(workspace(1), now), Err(2 * LONGEST));
    }

    #[test]
    fn small_responses_are_free_and_idle_workspaces_are_forgotten() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..100_000 {
            pace.settle(workspace(1), 0, SMALL, now);
        }
        assert_eq!(wait(&pace, 1, now), Duration::ZERO);
        for n in 0..1_000 {
            let later = now + 2 * REMEMBERED * u32::try_from(n).unwrap_or_default();
            pace.settle(workspace(n), 0, PER_SECOND, later);
        }
        assert_eq!(pace.accounts.lock().len(), 1);
    }
}
