//! What handlers compute apart from the threads that answer requests.
//!
//! Invariants
//! - Whatever takes time in proportion to what a client sent, beyond a few milliseconds, is computed here: documents,
//!   expressions, inputs, large bodies, calendars. Small ones are computed at once, because a thread apart costs more.
//! - A workspace that asks for too much is told to come again; others do not wait for it.
//!
//! Not here: turns and threads (`engine::compute`), what a computation may cost (`kernel`).

use std::time::Duration;

use engine::compute;
use kernel::definition::Definition;
use kernel::definition::parse;
use kernel::definition::plan::Plan;
use kernel::ids::WorkspaceId;
use serde_json::Value;
use uuid::Uuid;

use super::{Code, Problem};

/// How long a request waits for its computation.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);
/// What has fewer bytes is computed at once.
pub(crate) const SMALL: usize = 32 << 10;

/// Whose turn a computation for a root key is: that of no workspace, and not that of the background loops.
const ROOT_KEYS: WorkspaceId = WorkspaceId(Uuid::max());

/// Computes on a thread apart, in turns by workspace. All root keys together count as one workspace.
pub(crate) async fn run<T: Send + 'static>(
    workspace: Option<WorkspaceId>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let workspace = workspace.unwrap_or(ROOT_KEYS);
    compute::run_within(workspace, WITHIN, work).await.map_err(|compute::Busy| busy())
}

/// Too much is being computed for a workspace.
pub(crate) fn busy() -> Problem {
    let detail = "too much is being computed for this workspace; try again shortly, and send less at once";
    Problem { retry_after_s: Some(2), ..Problem::new(Code::RateLimited, detail) }
}

/// A stored graph, checked.
pub(crate) async fn check_stored(
    workspace: Option<WorkspaceId>,
    graph: Value,
) -> Result<Result<(Definition, Plan), Vec<parse::Problem>>, Problem> {
    if engine::nodes::size(&graph) < SMALL {
        return Ok(parse::check_stored(&graph));
    }
    run(workspace, move || parse::check_stored(&graph)).await
}
