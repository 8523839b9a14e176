//! Reruns: which nodes run again, and which keep their outputs.
//!
//! Invariants
//! - A node keeps its result only if the node and its edges are unchanged and all nodes before it are kept too. So its
//!   input would be the same again.
//! - A node whose failure failed the execution is never kept, and neither is a canceled node. A node that ended UNKNOWN
//!   is kept only if a person resolved it as done.
//! - If the rerun uses another version, only nodes that are the same in both versions are kept.
//! - Under the same conditions, a loop that did not complete continues with its list, and its ended items keep their
//!   results.
//!
//! Not here: copying the kept nodes (`store`), running the new execution (`run` resumes from stored nodes).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::definition::plan::Plan;
use crate::definition::{Definition, Edge, Kind, Node, OnError};
use crate::expression::Root;
use crate::ids::{ExecutionId, NodeKey};
use crate::kind;
use crate::run::node::Status;

/// Where a rerun begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// From the beginning: every node runs again.
    Start,
    /// From the nodes that failed, were canceled or never ran.
    Failed,
    /// From this node, and from nodes that never ended.
    Node(NodeKey),
}

/// Why this rerun is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    #[error(
        "no node failed this execution: every node completed, was skipped, or failed with `on_error: continue`. Rerun \
         it from the start or from a node"
    )]
    NothingFailed,
    #[error("that version has no node {0}")]
    UnknownNode(NodeKey),
    #[error(
        "it is not known whether {0} took effect, and it may be performed at most once: find out, then set its resolve \
         to done or repeat"
    )]
    Unresolved(NodeKey),
    #[error("{0} cannot be resolved: only a node that ended UNKNOWN can")]
    NothingToResolve(NodeKey),
    #[error(
        "{0} cannot count as done: a node before it runs again, or the node or the list of its loop is different in \
         this rerun"
    )]
    CannotKeep(NodeKey),
}

/// What a person found out about a node that ended UNKNOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The node took effect: it counts as completed with an empty output. For a loop, this applies to its UNKNOWN
    /// items.
    Done,
    /// The node did not take effect: it is performed again.
    Repeat,
}

/// The nodes that a rerun keeps from the execution that it repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptNodes {
    /// The nodes that keep their outputs, in the plan's order.
    pub nodes: Vec<NodeKey>,
    /// The loops that continue: they keep their list, and their ended items keep their results.
    pub loops: Vec<NodeKey>,
    /// Nodes and loops that a person resolved as done: an UNKNOWN node, or UNKNOWN items of a loop, count as completed.
    pub done: Vec<NodeKey>,
}

impl KeptNodes {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many nodes and loops are kept.
    pub fn len(&self) -> usize {
        self.nodes.len() + self.loops.len()
    }
}

/// Decides what the new execution keeps.
///
/// `old` is the version that ran, and `ended` has the status of each of its nodes that ended. `new` is the version to
/// run, with the same or another input. Every UNKNOWN node must be resolved, wherever the rerun begins. A node that is
/// resolved as done is kept as if it had completed; a loop that is resolved as done continues.
pub fn keep_nodes(
    old: &Definition,
    ended: &BTreeMap<NodeKey, Status>,
    (new, plan): (&Definition, &Plan),
    same_input: bool,
    from: &StartFrom,
    resolve: &BTreeMap<NodeKey, Resolution>,
) -> Result<KeptNodes, RerunError> {
    let is_unknown = |key: &NodeKey| ended.get(key) == Some(&Status::Unknown);
    if let Some(key) = resolve.keys().find(|key| !is_unknown(key)) {
        return Err(RerunError::NothingToResolve(key.clone()));
    }
    if let Some((key, _)) = ended.iter().find(|(key, status)| **status == Status::Unknown && !resolve.contains_key(key))
    {
        return Err(RerunError::Unresolved(key.clone()));
    }
    let done = |key: &NodeKey| resolve.get(key) == Some(&Resolution::Done);
    let chosen = match from {
        StartFrom::Start => match resolve.keys().find(|key| done(key)) {
            Some(key) => return Err(RerunError::CannotKeep(key.clone())),
            None => return Ok(KeptNodes::default()),
        },
        StartFrom::Failed => None,
        StartFrom::Node(key) => Some(plan.index_of(key).ok_or_else(|| RerunError::UnknownNode(key.clone()))?),
    };
    let (mut keeps, mut kept) = (vec![false; plan.nodes().len()], KeptNodes::default());
    for &at in plan.order() {
        let node = plan.node(at);
        // Nodes after an UNKNOWN node were skipped. If that node is resolved as done, they run now.
        let whole = node.incoming.iter().all(|edge| keeps[edge.from] && !done(&plan.node(edge.from).key));
        let (Some(status), true) = (ended.get(&node.key), whole && chosen != Some(at) && is_same(&node.key, old, new))
        else {
            continue;
        };
        let is_loop = node.kind == Kind::ForEach;
        keeps[at] = is_kept(*status, node.on_error) || (done(&node.key) && !is_loop);
        if keeps[at] {
            kept.nodes.push(node.key.clone());
        } else if is_loop && (same_input || !looks_at(Root::Inputs, &node.key, new)) {
            kept.loops.push(node.key.clone());
        }
    }
    let keeps_something = |key: &NodeKey| kept.nodes.contains(key) || kept.loops.contains(key);
    if let Some(key) = resolve.keys().find(|key| done(key) && !keeps_something(key)) {
        return Err(RerunError::CannotKeep(key.clone()));
    }
    // A resolved node did not complete in the old execution, so there is something to rerun.
    if *from == StartFrom::Failed && resolve.is_empty() && keeps.iter().all(|keeps| *keeps) {
        return Err(RerunError::NothingFailed);
    }
    kept.done = resolve.keys().filter(|key| done(key)).cloned().collect();
    Ok(kept)
}

/// Is a node with this status kept? A failure with `on_error: continue` is kept; any other failure is not, because it
/// is the reason for the rerun.
fn is_kept(status: Status, on_error: OnError) -> bool {
    match status {
        Status::Completed | Status::Skipped => true,
        Status::Failed => on_error == OnError::Continue,
        Status::Pending | Status::Running | Status::Retrying | Status::Canceled | Status::Unknown => false,
    }
}

fn is_same(key: &NodeKey, old: &Definition, new: &Definition) -> bool {
    let node = |definition: &Definition| definition.nodes.iter().find(|node| node.key == *key).map(work);
    let edges = |definition: &Definition| {
        let mut edges: Vec<Edge> = definition.edges.iter().filter(|edge| edge.to == *key).cloned().collect();
        edges.sort_by(|a, b| (&a.from, &a.label).cmp(&(&b.from, &b.label)));
        edges
    };
    let same = node(old) == node(new) && edges(old) == edges(new);
    same && (old.vars == new.vars || !looks_at(Root::Vars, key, new))
}

/// Does a node use this root in its configuration or its `if`? The callers ask for `vars` and for `inputs`.
fn looks_at(root: Root<'_>, key: &NodeKey, definition: &Definition) -> bool {
    let Some(node) = definition.nodes.iter().find(|node| node.key == *key) else { return true };
    kind::surveys(node)
        .iter()
        .flat_map(|survey| &survey.paths)
        .any(|(_, path)| matches!(path.root(), Ok((known, _)) if known == root))
}

/// A node without its retry policy, timeout and description, which do not change its result.
fn work(node: &Node) -> Node {
    Node { description: None, retry: node.kind.retry(), timeout_ms: None, ..node.clone() }
}

/// The trigger to store with the new execution.
pub fn trigger(of: ExecutionId, actor: &str, from: &StartFrom, kept: usize) -> Value {
    let name = match from {
        StartFrom::Start => "start",
        StartFrom::Failed => "failed",
        StartFrom::Node(_) => "node",
    };
    let mut trigger = json!({ "type": "rerun", "of": of, "actor": actor, "from": name });
    if let StartFrom::Node(key) = from {
        trigger["node"] = json!(key);
    }
    if kept > 0 {
        trigger["kept"] = json!(kept);
    }
    trigger
}

/// Does an execution with this trigger have kept nodes, which are settled before it begins?
pub fn is_seeded(trigger: &Value) -> bool {
    trigger["kept"].as_u64().is_some_and(|kept| kept > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse;

    fn graph(document: Value) -> (Definition, Plan) {
        parse::check(&document).expect("a good document")
    }

    fn order() -> Value {
        let log = |needs: Value| json!({ "kind": "LOG", "needs": needs, "with": { "message": "hi" } });
        json!({ "nodes": {
            "a": log(json!([])),
            "b": log(json!("a")),
            "c": { "kind": "LOG", "needs": "a", "on_error": "continue", "with": { "message": "hi" } },
            "d": log(json!(["b", "c"])),
            "e": log(json!("c.error")),
        } })
    }

    fn check(old: Value, new: Value, ended: &[(&str, Status)], from: StartFrom) -> Result<String, RerunError> {
        check_resolved(old, new, ended, from, &[])
    }

    fn check_resolved(
        old: Value,
        new: Value,
        ended: &[(&str, Status)],
        from: StartFrom,
        resolve: &[(&str, Resolution)],
    ) -> Result<String, RerunError> {
        let (old, _) = graph(old);
        let (new, plan) = graph(new);
        let key = |name: &str| NodeKey::new(name).expect("a good name");
        let ended = ended.iter().map(|(name, status)| (key(name), *status)).collect();
        let resolve = resolve.iter().map(|(name, resolve)| (key(name), *resolve)).collect();
        keep_nodes(&old, &ended, (&new, &plan), true, &from, &resolve).map(|kept| shown(&kept))
    }

    /// The kept nodes, then the loops that continue, then the nodes that count as done.
    fn shown(kept: &KeptNodes) -> String {
        let names = |keys: &[NodeKey]| keys.iter().map(NodeKey::as_str).collect::<Vec<_>>().join(" ");
        let mut text = names(&kept.nodes);
        for (what, keys) in [("go on", &kept.loops), ("done", &kept.done)] {
            if !keys.is_empty() {
                text = format!("{text}; {what}: {}", names(keys));
            }
        }
        text
    }

    use Status::{Canceled, Completed, Failed, Skipped};

    #[test]
    fn from_the_start_nothing_is_kept() {
        let ended = [("a", Completed), ("b", Completed)];
        assert_eq!(check(order(), order(), &ended, StartFrom::Start), Ok(String::new()));
    }

    #[test]
    fn a_rerun_from_the_failed_nodes_runs_them_and_their_successors_again() {
        let ended = [("a", Completed), ("b", Failed), ("c", Completed), ("d", Skipped), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, StartFrom::Failed), Ok("a c e".to_owned()));
        let ended = [("a", Failed), ("b", Skipped), ("c", Skipped), ("d", Skipped), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, StartFrom::Failed), Ok(String::new()));
    }

    #[test]
    fn a_continued_failure_is_kept_and_a_canceled_node_is_not() {
        let ended = [("a", Completed), ("b", Canceled), ("c", Failed), ("d", Canceled), ("e", Completed)];
        assert_eq!(check(order(), order(), &ended, StartFrom::Failed), Ok("a c e".to_owned()));
    }

    #[test]
    fn a_rerun_from_failed_nodes_is_refused_if_none_failed() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Completed), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, StartFrom::Failed), Err(RerunError::NothingFailed));
    }

    #[test]
    fn a_rerun_from_a_node_runs_it_and_its_successors_again() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Completed), ("e", Skipped)];
        let key = NodeKey::new("c").expect("a good name");
        assert_eq!(check(order(), order(), &ended, StartFrom::Node(key)), Ok("a b".to_owned()));
        let key = NodeKey::new("z").expect("a good name");
        assert_eq!(check(order(), order(), &ended, StartFrom::Node(key.clone())), Err(RerunError::UnknownNode(key)));
    }

    #[test]
    fn a_node_that_another_version_changes_runs_again() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Failed), ("e", Skipped)];
        let mut new = order();
        new["nodes"]["b"]["with"]["message"] = json!("ho");
        new["nodes"]["a"]["retry"] = json!({ "max_attempts": 9 });
        assert_eq!(check(order(), new, &ended, StartFrom::Failed), Ok("a c e".to_owned()));
        let mut new = order();
        new["vars"] = json!({ "word": "new" });
        assert_eq!(
            check(order(), new.clone(), &ended, StartFrom::Failed),
            Ok("a b c e".to_owned()),
            "none looks at them"
        );
        new["nodes"]["b"]["with"]["message"] = json!("${{ vars.word }}");
        let mut old = new.clone();
        old["vars"] = json!({ "word": "old" });
        assert_eq!(check(old, new, &ended, StartFrom::Failed), Ok("a c e".to_owned()));
        let mut new = order();
        new["nodes"]["b"]["needs"] = json!(["a", "c"]);
        assert_eq!(check(order(), new, &ended, StartFrom::Failed), Ok("a c e".to_owned()));
    }

    #[test]
    fn an_unknown_node_must_be_resolved_first() {
        let ended = [("a", Completed), ("b", Status::Unknown), ("c", Completed), ("d", Skipped), ("e", Skipped)];
        let resolved = |from, resolve: &[(&str, Resolution)]| check_resolved(order(), order(), &ended, from, resolve);
        let key = |name| NodeKey::new(name).expect("a good name");
        for from in [StartFrom::Start, StartFrom::Failed, StartFrom::Node(key("d"))] {
            assert_eq!(resolved(from, &[]), Err(RerunError::Unresolved(key("b"))));
        }
        assert_eq!(resolved(StartFrom::Failed, &[("b", Resolution::Repeat)]), Ok("a c e".to_owned()));
        assert_eq!(resolved(StartFrom::Failed, &[("b", Resolution::Done)]), Ok("a b c e; done: b".to_owned()));
        assert_eq!(resolved(StartFrom::Start, &[("b", Resolution::Repeat)]), Ok(String::new()));
        assert_eq!(resolved(StartFrom::Start, &[("b", Resolution::Done)]), Err(RerunError::CannotKeep(key("b"))));
        assert_eq!(
            resolved(StartFrom::Node(key("a")), &[("b", Resolution::Done)]),
            Err(RerunError::CannotKeep(key("b")))
        );
        let both = [("b", Resolution::Done), ("c", Resolution::Done)];
        assert_eq!(resolved(StartFrom::Failed, &both), Err(RerunError::NothingToResolve(key("c"))));
    }

    #[test]
    fn an_unknown_last_node_must_be_resolved_too() {
        let once = json!({ "nodes": { "x": { "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "https://x.test" } } } });
        let resolved = |resolve| {
            check_resolved(once.clone(), once.clone(), &[("x", Status::Unknown)], StartFrom::Failed, &[("x", resolve)])
        };
        assert_eq!(resolved(Resolution::Done), Ok("x; done: x".to_owned()));
        assert_eq!(resolved(Resolution::Repeat), Ok(String::new()));
    }

    fn looping(items: &str) -> Value {
        json!({ "nodes": {
            "a": { "kind": "LOG", "with": { "message": "hi" } },
            "each": { "kind": "FOR_EACH", "needs": "a", "with": { "items": items, "do": { "kind": "LOG", "with": { "message": "hi" } } } },
            "after": { "kind": "LOG", "needs": "each", "with": { "message": "hi" } },
        } })
    }

    #[test]
    fn a_loop_that_did_not_complete_continues() {
        let document = || looping("${{ inputs.all }}");
        let lost = [("a", Completed), ("each", Status::Unknown), ("after", Skipped)];
        let resolved = |resolve| check_resolved(document(), document(), &lost, StartFrom::Failed, &[("each", resolve)]);
        assert_eq!(resolved(Resolution::Done), Ok("a; go on: each; done: each".to_owned()));
        assert_eq!(resolved(Resolution::Repeat), Ok("a; go on: each".to_owned()));
        for status in [Failed, Canceled] {
            let ended = [("a", Completed), ("each", status), ("after", Skipped)];
            assert_eq!(check(document(), document(), &ended, StartFrom::Failed), Ok("a; go on: each".to_owned()));
            let before = [("a", Failed), ("each", status), ("after", Skipped)];
            assert_eq!(check(document(), document(), &before, StartFrom::Failed), Ok(String::new()), "another list");
            let changed = looping("${{ inputs.others }}");
            assert_eq!(check(document(), changed, &ended, StartFrom::Failed), Ok("a".to_owned()));
            let from = StartFrom::Node(NodeKey::new("each").expect("a good name"));
            assert_eq!(check(document(), document(), &ended, from), Ok("a".to_owned()), "all of it, if that is asked");
        }
    }

    #[test]
    fn a_loop_over_another_input_starts_over() {
        let key = |name| NodeKey::new(name).expect("a good name");
        let ended = [("a", Completed), ("each", Status::Unknown), ("after", Skipped)];
        let ended = ended.iter().map(|(name, status)| (key(name), *status)).collect();
        let with_another = |items, resolve| {
            let (definition, plan) = graph(looping(items));
            let resolve = [(key("each"), resolve)].into_iter().collect();
            let kept = keep_nodes(&definition, &ended, (&definition, &plan), false, &StartFrom::Failed, &resolve);
            kept.map(|kept| shown(&kept))
        };
        assert_eq!(with_another("${{ inputs.all }}", Resolution::Repeat), Ok("a".to_owned()));
        assert_eq!(with_another("${{ inputs.all }}", Resolution::Done), Err(RerunError::CannotKeep(key("each"))));
        assert_eq!(with_another("${{ nodes.a.output }}", Resolution::Repeat), Ok("a; go on: each".to_owned()));
    }

    #[test]
    fn a_trigger_says_whether_nodes_were_kept() {
        let of = ExecutionId(uuid::Uuid::nil());
        assert!(is_seeded(&trigger(of, "root", &StartFrom::Failed, 2)));
        assert!(!is_seeded(&trigger(of, "root", &StartFrom::Failed, 0)));
        assert!(!is_seeded(&json!({ "type": "api" })));
    }
}
