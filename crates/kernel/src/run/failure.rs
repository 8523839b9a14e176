//! Why a node or an execution failed, whether the failure is retried, and how long to wait first.
//!
//! Invariants
//! - A failure is data: it is stored and shown, and its class never changes.
//! - Only failures of a node's own work use up attempts. Crashes of processes and outages do not.
//! - The wait before an attempt depends only on policy, failure, execution, node, loop item and attempt.
//!
//! Not here: the timer for the retry (the shells), what a failure does to a graph (`run`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{ExecutionId, NodeKey};
use crate::names::names;
use crate::run::node;

names! {
    /// The class of a failure. The names never change, because clients see them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Class {
        /// The called service answered with a status 4xx.
        HttpClientError = "HTTP_CLIENT_ERROR",
        /// The called service answered with a status 5xx.
        HttpServerError = "HTTP_SERVER_ERROR",
        /// The graph cannot continue: a node chose a branch that does not exist, or a FAIL node was performed.
        ControlFlowError = "CONTROL_FLOW_ERROR",
        /// The node's configuration or input is invalid.
        ValidationError = "VALIDATION_ERROR",
        /// The call is not allowed.
        SecurityError = "SECURITY_ERROR",
        /// The work took longer than its timeout allows.
        Timeout = "TIMEOUT",
        /// Any other failure of the work.
        ExecutionError = "EXECUTION_ERROR",
        /// The node's work panicked: a bug in Forebay.
        Panicked = "PANICKED",
        /// The database cannot store the node's output.
        UnstorableOutput = "UNSTORABLE_OUTPUT",
        /// The graph ended with unsettled nodes: a bug in Forebay.
        Stalled = "STALLED",
        /// Every process that ran the execution died.
        CrashLoop = "CRASH_LOOP",
        /// The engine no longer knows the run.
        EngineLost = "ENGINE_LOST",
        /// The engine refused too often to start the execution.
        DispatchRefused = "DISPATCH_REFUSED",
        /// The workspace was deleted before the execution could start.
        WorkspaceGone = "WORKSPACE_GONE",
        /// The definition or its version was deleted before the execution could start.
        DefinitionGone = "DEFINITION_GONE",
        /// This build cannot run the stored graph, or cannot read the stored state of the run.
        BadGraph = "BAD_GRAPH",
        /// The execution's deadline passed.
        DeadlinePassed = "DEADLINE_PASSED",
        /// A person terminated the execution.
        Terminated = "TERMINATED",
        /// A node that may be performed at most once was interrupted: it is not known whether it took effect.
        ResultUnknown = "RESULT_UNKNOWN",
        /// Too many executions have started one another in a chain.
        GenerationLimit = "GENERATION_LIMIT",
    }
}

/// A failure as Forebay stores it with the node and the execution, and returns it in API responses.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    #[serde(rename = "type")]
    pub class: Class,
    pub message: String,
    /// The HTTP status, if the failure comes from an HTTP response.
    pub status: Option<u16>,
    /// How long the called service asked to wait before a retry.
    pub retry_after_ms: Option<u64>,
    /// The node that failed; absent if no single node caused the failure.
    pub node: Option<NodeKey>,
    /// The expression that failed; absent if no expression failed.
    pub expression: Option<Box<FailedExpression>>,
}

/// The expression that failed, and where in its text.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedExpression {
    /// The text of the expression.
    pub source: String,
    /// The position of the failure in the text, in bytes.
    pub offset: usize,
    /// A JSON pointer to the expression in the node's `with`, if known.
    pub pointer: Option<String>,
}

/// The maximum length of a failure's message, in bytes.
pub const MAX_MESSAGE_LEN: usize = 4_096;

impl Failure {
    /// Creates a failure. Cuts the message to `MAX_MESSAGE_LEN`, and removes NUL characters, because PostgreSQL cannot
    /// store them.
    pub fn new(class: Class, message: impl AsRef<str>) -> Self {
        let message = message.as_ref().chars().filter(|c| *c != '\0');
        let mut kept = String::new();
        for c in message {
            if kept.len() + c.len_utf8() > MAX_MESSAGE_LEN {
                break;
            }
            kept.push(c);
        }
        Self { class, message: kept, status: None, retry_after_ms: None, node: None, expression: None }
    }

    /// The failure for an HTTP status; none unless the status is 4xx or 5xx.
    pub fn from_status(status: u16, message: impl AsRef<str>, retry_after: Option<Duration>) -> Option<Self> {
        let class = match status {
            400..=499 => Class::HttpClientError,
            500..=599 => Class::HttpServerError,
            _ => return None,
        };
        let retry_after_ms = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Some(Self { status: Some(status), retry_after_ms, ..Self::new(class, message) })
    }

    /// The same failure, attributed to a node.
    pub fn at(self, node: NodeKey) -> Self {
        Self { node: Some(node), ..self }
    }

    /// The failure of a node that may be performed at most once and was interrupted: its process died, or it was
    /// stopped.
    pub fn unknown() -> Self {
        let message = "the node was interrupted during its work, and it may be performed at most once: find out \
                       whether it took effect, then rerun with resolve done or repeat";
        Self::new(Class::ResultUnknown, message)
    }

    /// A failure that only a bug in Forebay can cause.
    pub fn bug(what: &str) -> Self {
        Self::new(Class::ExecutionError, format!("{what}: a bug in Forebay, please report it"))
    }

    /// The database refused the output of a node.
    pub fn unstorable_output() -> Self {
        let message = "the database cannot store the output of this node; check it for NUL characters and its size";
        Self::new(Class::UnstorableOutput, message)
    }

    /// The database refused the input of a node.
    pub fn unstorable_input() -> Self {
        let message = "the database cannot store a value of this node; check it for NUL characters and its size";
        Self::new(Class::ValidationError, message)
    }

    /// The database refused the outputs of an execution.
    pub fn unstorable_outputs() -> Self {
        let message = "the database cannot store the workflow's outputs; check them for NUL characters and their size";
        Self::new(Class::UnstorableOutput, message)
    }

    /// The stored state of a node is corrupt.
    pub fn unreadable_state() -> Self {
        let message = "the node's stored state cannot be read; ask the operator to check the log";
        Self::new(Class::ExecutionError, message)
    }

    /// The failure of a node whose work panicked. It is not retried: it would panic again.
    pub fn panicked() -> Self {
        Self::new(Class::Panicked, "the node's work panicked. This is a bug in Forebay: see the log of the process")
    }

    /// The final status of a node that fails with this failure and is not retried.
    pub fn node_status(&self) -> node::Status {
        match self.class {
            Class::ResultUnknown => node::Status::Unknown,
            _ => node::Status::Failed,
        }
    }

    /// May the work be retried after this failure? The first matching line decides: 408, 425 and 429 are retried, other
    /// 4xx are not.
    pub fn is_retryable(&self) -> bool {
        match (self.class, self.status) {
            (_, Some(408 | 425 | 429)) => true,
            (Class::HttpClientError, _) => false,
            (Class::HttpServerError, _) => true,
            (Class::Timeout | Class::ExecutionError, _) => true,
            _ => false,
        }
    }
}

/// How often a node is attempted, and how long it waits between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub max_attempts: u32,
    pub initial_ms: u64,
    pub factor: u32,
    pub max_ms: u64,
}

/// The default retry policies: `http` for nodes that call over the network, `work` for all other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    pub work: Policy,
    pub http: Policy,
}

impl Default for Profiles {
    fn default() -> Profiles {
        Profiles { work: Policy::DEFAULT, http: Policy::HTTP }
    }
}

impl Policy {
    /// For work inside Forebay.
    pub const DEFAULT: Policy = Policy { max_attempts: 3, initial_ms: 1_000, factor: 2, max_ms: 30_000 };
    /// For calls over the network.
    pub const HTTP: Policy = Policy { max_attempts: 3, initial_ms: 2_000, factor: 2, max_ms: 60_000 };
    /// For work that is not retried unless the workflow's author configures it.
    pub const ONCE: Policy = Policy { max_attempts: 1, ..Policy::DEFAULT };
    /// The highest number of attempts that a user may configure.
    pub const MOST_ATTEMPTS: u32 = 100;

    /// The same policy with one attempt.
    pub fn once(self) -> Policy {
        Policy { max_attempts: 1, ..self }
    }

    /// How long to wait before the next attempt; none if this failure ends the node.
    ///
    /// `attempt` is the attempt that just failed, counted from 1. The wait grows by `factor` with each attempt, up to
    /// `max_ms`. A hash of execution, node and attempt then picks a value between half of that and all of it. The wait
    /// is never shorter than the called service asked for, up to `MAX_RETRY_AFTER_MS`.
    pub fn wait_after(
        &self,
        failure: &Failure,
        attempt: u32,
        execution: ExecutionId,
        node: &NodeKey,
    ) -> Option<Duration> {
        self.wait_after_item(failure, attempt, execution, node, 0)
    }

    /// Like `wait_after`, for one item of a loop. `iteration` counts the items from 1; 0 is the node itself. The hash
    /// includes the iteration, so that items that fail together are not retried together.
    pub fn wait_after_item(
        &self,
        failure: &Failure,
        attempt: u32,
        execution: ExecutionId,
        node: &NodeKey,
        iteration: u32,
    ) -> Option<Duration> {
        if !failure.is_retryable() || attempt >= self.max_attempts {
            return None;
        }
        let grown = u64::from(self.factor).saturating_pow(attempt.saturating_sub(1)).saturating_mul(self.initial_ms);
        let full = grown.min(self.max_ms);
        let spread = full - full / 2;
        let jittered =
            full / 2 + if spread == 0 { 0 } else { jitter(execution, node, attempt, iteration) % (spread + 1) };
        let asked = failure.retry_after_ms.unwrap_or(0).min(MAX_RETRY_AFTER_MS);
        Some(Duration::from_millis(jittered.max(asked)))
    }
}

/// The longest wait that a called service can impose on a node.
pub const MAX_RETRY_AFTER_MS: u64 = 3_600_000;

fn jitter(execution: ExecutionId, node: &NodeKey, attempt: u32, iteration: u32) -> u64 {
    let mut hash = Sha256::new();
    hash.update(execution.0.as_bytes());
    hash.update(node.as_str().as_bytes());
    hash.update(attempt.to_be_bytes());
    if iteration > 0 {
        hash.update(iteration.to_be_bytes());
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte))
}

/// How long a queue item waits before the next try, after the engine refused to start its execution.
pub fn dispatch_backoff(attempt: u32) -> Duration {
    Duration::from_secs(5u64.saturating_mul(2u64.saturating_pow(attempt.saturating_sub(1))).min(300))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn wait(failure: &Failure, attempt: u32) -> Option<u128> {
        let node = NodeKey::new("a").expect("a good name");
        Policy::DEFAULT.wait_after(failure, attempt, ExecutionId(Uuid::nil()), &node).map(|d| d.as_millis())
    }

    #[test]
    fn statuses_are_classified_first_match_wins() {
        let table = [
            (400, "HTTP_CLIENT_ERROR", false),
            (404, "HTTP_CLIENT_ERROR", false),
            (408, "HTTP_CLIENT_ERROR", true),
            (425, "HTTP_CLIENT_ERROR", true),
            (429, "HTTP_CLIENT_ERROR", true),
            (500, "HTTP_SERVER_ERROR", true),
            (503, "HTTP_SERVER_ERROR", true),
        ];
        for (status, class, retry) in table {
            let failure = Failure::from_status(status, "x", None).expect("a failure");
            assert_eq!(serde_json::to_value(failure.class).expect("json"), class, "{status}");
            assert_eq!(failure.is_retryable(), retry, "{status}");
        }
        assert_eq!(Failure::from_status(204, "x", None), None);
    }

    #[test]
    fn classes_without_a_status_are_retried_or_not() {
        for (class, retry) in [
            (Class::ControlFlowError, false),
            (Class::ValidationError, false),
            (Class::SecurityError, false),
            (Class::Timeout, true),
            (Class::ExecutionError, true),
        ] {
            assert_eq!(Failure::new(class, "x").is_retryable(), retry, "{class:?}");
        }
    }

    #[test]
    fn waits_grow_are_spread_and_end() {
        let failure = Failure::new(Class::ExecutionError, "x");
        let first = wait(&failure, 1).expect("a second attempt");
        let second = wait(&failure, 2).expect("a third attempt");
        assert!((500..=1_000).contains(&first), "{first}");
        assert!((1_000..=2_000).contains(&second), "{second}");
        assert_eq!(wait(&failure, 3), None);
        assert_eq!(wait(&failure, 1), Some(first), "the same arguments give the same wait");
    }

    #[test]
    fn what_the_other_side_asks_for_is_honoured() {
        let failure = Failure::from_status(429, "slow down", Some(Duration::from_secs(7))).expect("a failure");
        assert_eq!(wait(&failure, 1), Some(7_000));
    }

    #[test]
    fn a_message_is_cut_and_freed_of_nul() {
        let failure = Failure::new(Class::ExecutionError, format!("a\0b{}", "é".repeat(5_000)));
        assert!(failure.message.starts_with("abé"));
        assert!(failure.message.len() <= MAX_MESSAGE_LEN);
    }
}
