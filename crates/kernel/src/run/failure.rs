//! Why a node or an execution failed, whether that is worth another try, and how long to wait first.
//!
//! Invariants
//! - A failure is data: stored, shown, and never re-classified on its way.
//! - Only failures of the node's own work are attempts; crashes and outages never come here.
//! - The wait before an attempt depends on nothing but policy, execution, node and attempt.
//!
//! Not here: when to look again (a shell keeps the time), what a failure does to a graph (`run`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::{ExecutionId, NodeKey};
use crate::run::node;

/// What kind of failure it was; the wire name is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Class {
    /// The other side answered 4xx.
    HttpClientError,
    /// The other side answered 5xx.
    HttpServerError,
    /// The graph itself cannot go on: a branch that does not exist, a FAIL node.
    ControlFlowError,
    /// The node's configuration or input is not acceptable.
    ValidationError,
    /// The call is not allowed to be made.
    SecurityError,
    /// The work took longer than it may.
    Timeout,
    /// Anything else that went wrong while doing the work.
    ExecutionError,
    /// The node's work broke off in the middle: a fault of ours, never of the user.
    Panicked,
    /// The result cannot be stored.
    UnstorableOutput,
    /// A graph that ended with unsettled nodes: a fault of ours, never of the user.
    Stalled,
    /// Every process that ran it died.
    CrashLoop,
    /// The engine no longer knows the run.
    EngineLost,
    /// The engine refused the start too often.
    DispatchRefused,
    /// The workspace was deleted before the execution could start.
    WorkspaceGone,
    /// The definition or its version was deleted before the execution could start.
    DefinitionGone,
    /// The stored graph cannot be run by this build's semantics.
    BadGraph,
    /// The execution's deadline passed.
    DeadlinePassed,
    /// Somebody ended the execution by force.
    Terminated,
    /// It may be performed at most once, and was interrupted while it was: whether it took effect is not known.
    ResultUnknown,
    /// Too many executions already started each other in a row.
    GenerationLimit,
}

impl Class {
    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Class::HttpClientError => "HTTP_CLIENT_ERROR",
            Class::HttpServerError => "HTTP_SERVER_ERROR",
            Class::ControlFlowError => "CONTROL_FLOW_ERROR",
            Class::ValidationError => "VALIDATION_ERROR",
            Class::SecurityError => "SECURITY_ERROR",
            Class::Timeout => "TIMEOUT",
            Class::ExecutionError => "EXECUTION_ERROR",
            Class::Panicked => "PANICKED",
            Class::UnstorableOutput => "UNSTORABLE_OUTPUT",
            Class::Stalled => "STALLED",
            Class::CrashLoop => "CRASH_LOOP",
            Class::EngineLost => "ENGINE_LOST",
            Class::DispatchRefused => "DISPATCH_REFUSED",
            Class::WorkspaceGone => "WORKSPACE_GONE",
            Class::DefinitionGone => "DEFINITION_GONE",
            Class::BadGraph => "BAD_GRAPH",
            Class::DeadlinePassed => "DEADLINE_PASSED",
            Class::Terminated => "TERMINATED",
            Class::ResultUnknown => "RESULT_UNKNOWN",
            Class::GenerationLimit => "GENERATION_LIMIT",
        }
    }
}

/// A failure as it is recorded: on the node, on the execution, in every answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    #[serde(rename = "type")]
    pub class: Class,
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the other side asked us to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The node that failed; absent when the execution itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeKey>,
    /// The expression that failed; absent when none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<Box<Blame>>,
}

/// The expression to blame for a failure, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    /// The text of the expression.
    pub source: String,
    /// Where in the text, in bytes.
    pub offset: usize,
    /// A JSON pointer to where it stood in the node's `with`, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
}

/// The longest message that is kept.
pub const MAX_MESSAGE_LEN: usize = 4_096;

impl Failure {
    /// A failure of a class, with a message cut to what is kept and freed of what cannot be stored.
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

    /// The failure that an HTTP status means, or none for a status that is no failure.
    pub fn from_status(status: u16, message: impl AsRef<str>, retry_after: Option<Duration>) -> Option<Self> {
        let class = match status {
            400..=499 => Class::HttpClientError,
            500..=599 => Class::HttpServerError,
            _ => return None,
        };
        let retry_after_ms = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Some(Self { status: Some(status), retry_after_ms, ..Self::new(class, message) })
    }

    /// The same failure, told of a node.
    pub fn at(self, node: NodeKey) -> Self {
        Self { node: Some(node), ..self }
    }

    /// What is said of a node that may be performed at most once and was interrupted: its process died, or it was
    /// stopped.
    pub fn unknown() -> Self {
        let message = "it was interrupted while it was being performed, and it may be performed at most once: \
                       find out whether it took effect, then rerun with resolve done or repeat";
        Self::new(Class::ResultUnknown, message)
    }

    /// What is said of a node whose work panicked. It is not tried again: it would panic again.
    pub fn panicked() -> Self {
        Self::new(Class::Panicked, "the node's work broke off unexpectedly: a fault of Forebay's, look into its log")
    }

    /// How a node ends that fails so and is not tried again.
    pub fn leaves(&self) -> node::Status {
        match self.class {
            Class::ResultUnknown => node::Status::Unknown,
            _ => node::Status::Failed,
        }
    }

    /// Is another try worth it? The first line that matches decides.
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

/// How often and how patiently a node is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub max_attempts: u32,
    pub initial_ms: u64,
    pub factor: u32,
    pub max_ms: u64,
}

/// How nodes are retried whose authors do not say: those that call over the network, and all others.
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
    /// For work inside the service.
    pub const DEFAULT: Policy = Policy { max_attempts: 3, initial_ms: 1_000, factor: 2, max_ms: 30_000 };
    /// For calls over the network.
    pub const HTTP: Policy = Policy { max_attempts: 3, initial_ms: 2_000, factor: 2, max_ms: 60_000 };
    /// For what is not tried again unless its author says so.
    pub const ONCE: Policy = Policy { max_attempts: 1, ..Policy::DEFAULT };
    /// The most attempts a user may ask for.
    pub const MOST_ATTEMPTS: u32 = 100;

    /// The same, for what is tried once.
    pub fn once(self) -> Policy {
        Policy { max_attempts: 1, ..self }
    }

    /// How long to wait before the next attempt, or none if this failure ends the node.
    ///
    /// `attempt` is the one that just failed, from 1. The wait grows by `factor`, is cut at
    /// `max_ms`, is never shorter than what the other side asked for, and is spread over the
    /// upper half of itself by a hash of execution, node and attempt.
    pub fn wait_after(
        &self,
        failure: &Failure,
        attempt: u32,
        execution: ExecutionId,
        node: &NodeKey,
    ) -> Option<Duration> {
        self.wait_after_item(failure, attempt, execution, node, 0)
    }

    /// The same for one iteration of a loop, from 1: items that fail together do not come back together.
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

/// The longest wait another side may impose on a node.
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

/// How long a queue item whose start was refused waits before the next try.
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
        assert_eq!(wait(&failure, 1), Some(first), "the same question has the same answer");
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
