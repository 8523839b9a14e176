//! Runs the long computations of handlers on separate threads, so that they do not delay other requests.
//!
//! Invariants
//! - Every computation that can take more than a few milliseconds for a large request runs here: documents,
//!   expressions, inputs, large bodies, calendars. Small inputs are computed directly, because a switch of threads
//!   costs more.
//! - A workspace with too many waiting computations gets 429. Other workspaces do not wait for it.
//!
//! Not here: threads and their fair use (`engine::compute`), limits of a computation (`kernel`).

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
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Inputs with fewer bytes are computed directly.
pub(crate) const SMALL: usize = 32 << 10;

/// The id under which computations of root keys are scheduled. No workspace has this id, and the background loops use
/// another one.
const ROOT_KEYS: WorkspaceId = WorkspaceId(Uuid::max());

/// Runs a computation on another thread. Workspaces take turns; all root keys together count as one workspace.
pub(crate) async fn run<T: Send + 'static>(
    workspace: Option<WorkspaceId>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let workspace = workspace.unwrap_or(ROOT_KEYS);
    compute::run_within(workspace, TIMEOUT, work).await.map_err(|compute::Busy| busy())
}

/// The error if too many computations of the workspace wait.
pub(crate) fn busy() -> Problem {
    let detail = "too many computations of this workspace are waiting: try again in a few seconds, and send fewer \
         or smaller requests";
    Problem { retry_after_s: Some(2), ..Problem::new(Code::RateLimited, detail) }
}

/// Parses and checks a stored graph, on another thread if the graph is large.
pub(crate) async fn check_stored(
    workspace: Option<WorkspaceId>,
    graph: Value,
) -> Result<Result<(Definition, Plan), Vec<parse::Problem>>, Problem> {
    if engine::nodes::size(&graph) < SMALL {
        return Ok(parse::check_stored(&graph));
    }
    run(workspace, move || parse::check_stored(&graph)).await
}
