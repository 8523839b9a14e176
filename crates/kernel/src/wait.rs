//! The life of a wait: a node that waits for an answer or for a worker. Also says which nodes of a version are waits.
//!
//!     OPEN ─claim▶ CLAIMED ─requeue▶ OPEN   OPEN, CLAIMED ─answer▶ ANSWERED ─receive▶ RECEIVED
//!     OPEN, CLAIMED ─expire▶ EXPIRED        OPEN, CLAIMED ─close▶ CLOSED
//!     ANSWERED, RECEIVED, EXPIRED ─reopen, for a later attempt▶ OPEN
//!
//! Invariants
//! - A wait accepts one answer. An answered, expired or closed wait refuses every other answer.
//! - If a worker misses its heartbeats, its task becomes OPEN again, with the same input and time limit.
//!
//! Not here: the rows, and the claims that protect them (`store::wait`), what a wait asks for (`kind`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::{Kind, Node};
use crate::kind::for_each;
use crate::names::names;

/// The longest name of a worker, in characters.
pub const MAX_WORKER_LEN: usize = 200;

/// If a wait has expired by an engine's clock but not by the database's clock, it is checked again after this time.
pub const RECHECK_AFTER: Duration = Duration::from_millis(500);

/// A text from a worker of tasks or jobs is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {longest} characters, not only spaces, without NUL")]
pub struct InvalidText {
    longest: usize,
}

/// Checks a text from a worker of tasks or jobs.
pub fn check_text(text: &str, longest: usize) -> Result<(), InvalidText> {
    let fine = !text.trim().is_empty() && text.chars().count() <= longest && !text.contains('\0');
    if fine { Ok(()) } else { Err(InvalidText { longest }) }
}

names! {
    /// The status of a wait, as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = WaitStatus))]
    #[serde(rename_all = "UPPERCASE")]
    pub enum Status {
        Open = "OPEN",
        /// A worker holds the task.
        Claimed = "CLAIMED",
        /// The answer is stored; the run has not received it yet.
        Answered = "ANSWERED",
        /// The run has received the answer.
        Received = "RECEIVED",
        /// The time limit passed before an answer.
        Expired = "EXPIRED",
        /// The execution ended before an answer.
        Closed = "CLOSED",
    }
}

names! {
    /// What may happen to a wait.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Step {
        Claim,
        /// The worker missed its heartbeats, so another worker may claim the task.
        Requeue,
        Answer,
        /// The run received the answer.
        Receive,
        Expire,
        Close,
        /// A later attempt at the node opens the wait again.
        Reopen,
    }
}

impl Status {
    /// Does a wait in this status still accept an answer?
    pub fn is_open(self) -> bool {
        self.after(Step::Answer).is_some()
    }

    /// The whole life of a wait. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use Status::{Answered, Claimed, Closed, Expired, Open, Received};
        Some(match (self, step) {
            (Open, Step::Claim) => Claimed,
            (Claimed, Step::Requeue) => Open,
            (Open | Claimed, Step::Answer) => Answered,
            (Answered, Step::Receive) => Received,
            (Open | Claimed, Step::Expire) => Expired,
            (Open | Claimed, Step::Close) => Closed,
            (Answered | Received | Expired, Step::Reopen) => Open,
            _ => return None,
        })
    }
}

/// The configuration of the wait at this node and iteration, as written in the definition; `None` if it is no wait.
pub fn config_of(node: &Node, iteration: i32) -> Option<&Value> {
    let items = i32::try_from(for_each::MAX_ITEMS).unwrap_or(i32::MAX);
    match node.kind {
        Kind::WaitForEvent if iteration == 0 => Some(&node.with),
        Kind::ForEach if (1..=items).contains(&iteration) => {
            for_each::inner(&node.with).filter(|(kind, _)| *kind == Kind::WaitForEvent).map(|(_, with)| with)
        }
        _ => None,
    }
}

/// Why a node and iteration have no wait: a message for the client that addressed it.
pub fn explain_no_wait(nodes: &[Node], key: &str, iteration: i32) -> String {
    match nodes.iter().find(|node| node.key.as_str() == key) {
        None => format!("this workflow has no node {key}: {}", waits_of(nodes)),
        Some(node) if config_of(node, 0).is_some() => format!("{key} is not a loop: omit the iteration"),
        Some(node) if config_of(node, 1).is_some() && iteration == 0 => {
            format!("{key} is a loop: name an item with its iteration, from 1 (--iteration)")
        }
        Some(node) if config_of(node, 1).is_some() => {
            format!("{key} is a loop: its iterations are 1 to {} at most", for_each::MAX_ITEMS)
        }
        Some(node) => format!("{key} is of kind {}, which waits for no answer: {}", node.kind.name(), waits_of(nodes)),
    }
}

fn waits_of(nodes: &[Node]) -> String {
    let alone = |node: &Node| config_of(node, 0).map(|_| node.key.to_string());
    let looped = |node: &Node| config_of(node, 1).map(|_| format!("{}[n]", node.key));
    let names: Vec<String> = nodes.iter().filter_map(|node| alone(node).or_else(|| looped(node))).collect();
    if names.is_empty() {
        "the workflow has no waits".to_owned()
    } else {
        format!("the waits of the workflow are {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(key: &str, mut node: Node) -> Node {
        node.key = crate::ids::NodeKey::new(key).expect("a key");
        node
    }

    fn node(kind: &str, with: Value) -> Node {
        let policy = json!({ "max_attempts": 1, "initial_ms": 1, "factor": 1, "max_ms": 1 });
        let node = json!({ "key": "n", "kind": kind, "with": with, "retry": policy });
        serde_json::from_value(node).expect("a node")
    }

    #[test]
    fn a_wait_is_a_node_or_what_a_loop_does_and_nothing_else() {
        let with = json!({ "data": {} });
        let each = |kind: &str| node("FOR_EACH", json!({ "items": [1], "do": { "kind": kind, "with": with } }));
        let alone = node("WAIT_FOR_EVENT", with.clone());
        let found = |node: &Node, iteration| config_of(node, iteration) == Some(&with);
        assert!(found(&alone, 0) && !found(&alone, 1));
        let looped = each("WAIT_FOR_EVENT");
        assert_eq!([0, 1, 10_000, 10_001, -1].map(|n| found(&looped, n)), [false, true, true, false, false]);
        assert!(!found(&each("TASK"), 1) && !found(&node("LOG", with.clone()), 0));
    }

    #[test]
    fn a_text_of_a_worker_says_something_and_can_be_stored() {
        for (text, fine) in [("w", true), ("wörk", true), ("", false), (" \t", false), ("a\0", false), ("works", false)]
        {
            assert_eq!(check_text(text, 4).is_ok(), fine, "{text:?}");
        }
    }

    #[test]
    fn a_missing_wait_is_explained_with_those_that_exist() {
        let nodes = [
            named("approve", node("WAIT_FOR_EVENT", json!({}))),
            named("each", node("FOR_EACH", json!({ "items": [1], "do": { "kind": "WAIT_FOR_EVENT" } }))),
            named("say", node("LOG", json!({ "message": "x" }))),
        ];
        let explain = |key: &str, iteration| explain_no_wait(&nodes, key, iteration);
        assert_eq!(explain("approve", 2), "approve is not a loop: omit the iteration");
        assert_eq!(explain("each", 0), "each is a loop: name an item with its iteration, from 1 (--iteration)");
        assert_eq!(explain("each", 10_001), "each is a loop: its iterations are 1 to 10000 at most");
        assert_eq!(
            explain("say", 0),
            "say is of kind LOG, which waits for no answer: the waits of the workflow are approve, each[n]"
        );
        assert_eq!(
            explain("nobody", 0),
            "this workflow has no node nobody: the waits of the workflow are approve, each[n]"
        );
        assert_eq!(
            explain_no_wait(&nodes[2..], "nobody", 0),
            "this workflow has no node nobody: the workflow has no waits"
        );
    }
}
