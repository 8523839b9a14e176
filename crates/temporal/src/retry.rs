//! How an execution's nodes are retried, as its workflow is told at the start.
//!
//! Invariants
//! - It is the version's, node by node: an execution pins its version, so this is the snapshot that holds for all of
//!   its life.
//! - Histories of older builds, which hold one policy and no nodes, can still be read.
//!
//! Not here: retrying (`workflow`, which asks the activities for each node's row), the settings behind it
//! (`server::config`).

use std::collections::BTreeMap;

use kernel::definition::{Definition, Kind, Node};
use kernel::kind::for_each;
use kernel::run::failure::Policy;
use serde::{Deserialize, Serialize};

/// One policy that holds for all nodes but those that are named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryConfig {
    max_attempts: u32,
    initial_ms: u64,
    factor: u32,
    max_ms: u64,
    /// Nodes that are retried otherwise, by key; what a loop does for each item has `[]` behind the loop's key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, Policy>,
}

impl RetryConfig {
    /// What a version says. One that cannot be read retries nothing, for it is never run.
    pub(crate) fn of(version: Option<&Definition>) -> RetryConfig {
        let mut nodes: BTreeMap<String, Policy> = BTreeMap::new();
        for node in version.iter().flat_map(|definition| &definition.nodes) {
            nodes.insert(node.key.to_string(), node.retry);
            if let Some(item) = item_of(node) {
                nodes.insert(format!("{}[]", node.key), item.retry);
            }
        }
        // What most nodes have is said once. Of two that are equally frequent, the one whose node comes first.
        let mut tally: Vec<(Policy, usize)> = Vec::new();
        for policy in nodes.values() {
            match tally.iter_mut().find(|(known, _)| known == policy) {
                Some((_, count)) => *count += 1,
                None => tally.push((*policy, 1)),
            }
        }
        let most = tally.iter().rev().max_by_key(|(_, count)| *count).map_or(Policy::ONCE, |(policy, _)| *policy);
        nodes.retain(|_, policy| *policy != most);
        let Policy { max_attempts, initial_ms, factor, max_ms } = most;
        RetryConfig { max_attempts, initial_ms, factor, max_ms, nodes }
    }
}

fn item_of(node: &Node) -> Option<Node> {
    (node.kind == Kind::ForEach).then(|| for_each::action(node)).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_policies_of_a_version_are_told_the_frequent_one_once() {
        let document = json!({ "nodes": {
            "log": { "kind": "LOG", "with": { "message": "a" } },
            "set": { "kind": "TRANSFORM", "needs": "log", "with": { "value": 1 } },
            "call": { "kind": "HTTP_REQUEST", "needs": "log", "with": { "url": "https://a.example" }, "retry": { "max_attempts": 7 } },
            "each": { "kind": "FOR_EACH", "needs": "log", "with": { "items": [1], "do": {
                "kind": "HTTP_REQUEST", "with": { "url": "https://a.example" } } } },
        } });
        let (definition, _) = kernel::definition::parse::check(&document).expect("a good document");
        let told = serde_json::to_value(RetryConfig::of(Some(&definition))).expect("JSON");
        assert_eq!(
            told,
            json!({
                "max_attempts": 3, "initial_ms": 1000, "factor": 2, "max_ms": 30000,
                "nodes": {
                    "call": { "max_attempts": 7, "initial_ms": 2000, "factor": 2, "max_ms": 60000 },
                    "each": { "max_attempts": 1, "initial_ms": 1000, "factor": 2, "max_ms": 30000 },
                    "each[]": { "max_attempts": 3, "initial_ms": 2000, "factor": 2, "max_ms": 60000 },
                },
            })
        );
    }

    #[test]
    fn what_older_builds_sent_is_read() {
        let old = serde_json::to_value(Policy::DEFAULT).expect("JSON");
        let read: RetryConfig = serde_json::from_value(old).expect("an older build's");
        assert_eq!((read.max_attempts, read.nodes.len()), (3, 0));
        assert_eq!(RetryConfig::of(None).max_attempts, 1);
    }
}
