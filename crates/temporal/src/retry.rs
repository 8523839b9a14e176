//! The retry policies of an execution's nodes, as its workflow receives them at the start.
//!
//! Invariants
//! - The policies come from the version, node by node. An execution pins its version, so its policies never change.
//!
//! Not here: retrying (`workflow`, whose activities read each node's row), the settings behind it (`server::config`).

use std::collections::BTreeMap;

use kernel::definition::{Definition, Kind, Node};
use kernel::kind::for_each;
use kernel::run::failure::Policy;
use serde::{Deserialize, Serialize};

/// One policy for all nodes except those listed in `nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryConfig {
    #[serde(flatten)]
    usual: Policy,
    /// Nodes with another policy, by key. The items of a loop have the loop's key followed by `[]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, Policy>,
}

impl RetryConfig {
    /// The policies of a version. A version that cannot be read retries nothing, because it never runs.
    pub(crate) fn of(version: Option<&Definition>) -> RetryConfig {
        let mut nodes: BTreeMap<String, Policy> = BTreeMap::new();
        for node in version.iter().flat_map(|definition| &definition.nodes) {
            nodes.insert(node.key.to_string(), node.retry);
            if let Some(item) = item_of(node) {
                nodes.insert(format!("{}[]", node.key), item.retry);
            }
        }
        // The most frequent policy is stored once. Of two equally frequent ones, the policy of the earlier node is
        // used.
        let mut tally: Vec<(Policy, usize)> = Vec::new();
        for policy in nodes.values() {
            match tally.iter_mut().find(|(known, _)| known == policy) {
                Some((_, count)) => *count += 1,
                None => tally.push((*policy, 1)),
            }
        }
        let most = tally.iter().rev().max_by_key(|(_, count)| *count).map_or(Policy::ONCE, |(policy, _)| *policy);
        nodes.retain(|_, policy| *policy != most);
        RetryConfig { usual: most, nodes }
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
    fn the_policies_of_a_version_are_sent_and_the_frequent_one_once() {
        let document = json!({ "nodes": {
            "log": { "kind": "LOG", "with": { "message": "a" } },
            "set": { "kind": "TRANSFORM", "needs": "log", "with": { "value": 1 } },
            "call": { "kind": "HTTP_REQUEST", "needs": "log", "with": { "url": "https://a.example" },
                "retry": { "max_attempts": 7 } },
            "each": { "kind": "FOR_EACH", "needs": "log", "with": { "items": [1], "do": {
                "kind": "HTTP_REQUEST", "with": { "url": "https://a.example" } } } },
        } });
        let (definition, _) = kernel::definition::parse::check(&document).expect("a good document");
        let config = RetryConfig::of(Some(&definition));
        let observed = serde_json::to_value(&config).expect("JSON");
        assert_eq!(serde_json::from_value::<RetryConfig>(observed.clone()).expect("as it was sent"), config);
        assert_eq!(RetryConfig::of(None).usual, Policy::ONCE);
        assert_eq!(
            observed,
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
}
