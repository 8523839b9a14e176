//! How many bytes a workspace may read per second. Large answers cost processor time in the database and in this
//! process, which all workspaces share.
//!
//! Invariants
//! - A workspace may read `BURST` bytes at once, and `PER_SECOND` from then on, in each process. Answers of up to
//!   `SMALL` bytes are free, and so are streams, which have bounds of their own.
//! - A request that comes too early is delayed. It is refused with 429 only if it would wait longer than `LONGEST`.
//! - Requests with the method POST are counted but never delayed: large reads do not slow down the starts of the same
//!   workspace.
//! - Root keys are not limited.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
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

/// What each workspace has read lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When all that a workspace read would have been read at `PER_SECOND`. A time in the past is as good as none.
    paid_at: Mutex<BTreeMap<WorkspaceId, Instant>>,
}

impl Pace {
    /// Answers a request when its workspace may read again, and counts the answer.
    pub(crate) async fn run(
        &self,
        workspace: Option<WorkspaceId>,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        let Some(workspace) = workspace else { return Ok(next.run(request).await) };
        if request.method() != Method::POST {
            let wait = self.wait(workspace, Instant::now());
            if wait > LONGEST {
                return Err(too_fast(wait));
            }
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        let answer = next.run(request).await;
        // A stream does not know its size.
        if let Some(bytes) = answer.body().size_hint().exact() {
            self.count(workspace, bytes, Instant::now());
        }
        Ok(answer)
    }

    /// How long this workspace must wait before it may read again.
    fn wait(&self, workspace: WorkspaceId, now: Instant) -> Duration {
        let paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = paid_at.get(&workspace).map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        behind.saturating_sub(time_for(BURST))
    }

    fn count(&self, workspace: WorkspaceId, bytes: u64, now: Instant) {
        if bytes <= SMALL {
            return;
        }
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        paid_at.retain(|_, paid| *paid > now);
        let paid = paid_at.entry(workspace).or_insert(now);
        *paid += time_for(bytes);
    }
}

/// How long reading so many bytes may take.
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
    use uuid::Uuid;

    fn workspace(n: u128) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n))
    }

    #[test]
    fn a_workspace_that_reads_too_much_waits_and_others_do_not() {
        let (pace, now) = (Pace::default(), Instant::now());
        pace.count(workspace(1), BURST, now);
        assert_eq!(pace.wait(workspace(1), now), Duration::ZERO, "all of the burst is free");
        pace.count(workspace(1), PER_SECOND, now);
        assert_eq!(pace.wait(workspace(1), now), Duration::from_secs(1));
        assert_eq!(pace.wait(workspace(2), now), Duration::ZERO);
        assert_eq!(pace.wait(workspace(1), now + Duration::from_secs(1)), Duration::ZERO, "it waited long enough");
    }

    #[test]
    fn small_answers_are_free_and_workspaces_that_read_nothing_are_forgotten() {
        let (pace, now) = (Pace::default(), Instant::now());
        for _ in 0..100_000 {
            pace.count(workspace(1), SMALL, now);
        }
        assert_eq!(pace.wait(workspace(1), now), Duration::ZERO);
        for n in 0..1_000 {
            pace.count(workspace(n), PER_SECOND, now + Duration::from_secs(2 * u64::try_from(n).unwrap_or_default()));
        }
        assert_eq!(pace.paid_at.lock().unwrap_or_else(PoisonError::into_inner).len(), 1);
    }
}
