//! Running an execution again: which nodes are done anew and which keep what they produced.
//!
//! Invariants
//! - A node keeps its end only if it, its edges and all that comes before it are kept too: what it
//!   worked with is then what it would work with again.
//! - A failure that failed the execution is never kept, nor a node that was stopped or lost.
//! - In another version only nodes that are the same there keep anything.
//! - A loop that did not complete goes on with the list it had, and its items keep their ends, under the same
//!   conditions.
//!
//! Not here: copying what is kept (`store`), running it (`run` takes it up from its stored nodes).

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
pub enum From {
    /// Everything anew.
    Start,
    /// What failed, was stopped or never came, and what follows from it.
    Failed,
    /// This node, what follows from it, and what never came to an end before.
    Node(NodeKey),
}

/// Why there is nothing to run from there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "nothing failed it: every node came to its end, or its failure was gone on from; run it from the start, or \
         from a node"
    )]
    NothingFailed,
    #[error("it has no node {0} in that version")]
    UnknownNode(NodeKey),
    #[error(
        "whether {0} took effect is not known, and it may be performed at most once: find out, then say resolve done \
         or repeat for it"
    )]
    Unresolved(NodeKey),
    #[error("there is nothing to resolve about {0}: only a node that ended UNKNOWN can be")]
    NothingToResolve(NodeKey),
    #[error(
        "{0} cannot count as done: what comes before it is done anew, or it is not the same in that version, or its \
         list is another"
    )]
    CannotKeep(NodeKey),
}

/// What a person found out about a node whose end is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolve {
    /// It took effect: it counts as completed, and produced nothing. Of a loop: those of its items that are not known.
    Done,
    /// It did not: it is performed again.
    Repeat,
}

/// What a rerun keeps of the execution that it repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The nodes that keep what they produced, in the plan's order.
    pub nodes: Vec<NodeKey>,
    /// The loops that go on: they are performed with the list they had, and their items that came to an end keep it.
    pub loops: Vec<NodeKey>,
    /// Those of both that took effect although it was not known: what is UNKNOWN of them counts as completed.
    pub done: Vec<NodeKey>,
}

impl Kept {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many nodes keep something.
    pub fn len(&self) -> usize {
        self.nodes.len() + self.loops.len()
    }
}

/// What the new execution keeps.
///
/// `old` is the version that ran, with how its nodes ended; `new` the one that is to run, with the same input or
/// another. Every node whose end is not known must be resolved, wherever the rerun begins: one that is done is kept as
/// if it had completed, and a loop goes on.
pub fn kept(
    old: &Definition,
    ended: &BTreeMap<NodeKey, Status>,
    (new, plan): (&Definition, &Plan),
    same_input: bool,
    from: &From,
    resolve: &BTreeMap<NodeKey, Resolve>,
) -> Result<Kept, Refused> {
    let is_unknown = |key: &NodeKey| ended.get(key) == Some(&Status::Unknown);
    if let Some(key) = resolve.keys().find(|key| !is_unknown(key)) {
        return Err(Refused::NothingToResolve(key.clone()));
    }
    if let Some((key, _)) = ended.iter().find(|(key, status)| **status == Status::Unknown && !resolve.contains_key(key))
    {
        return Err(Refused::Unresolved(key.clone()));
    }
    let done = |key: &NodeKey| resolve.get(key) == Some(&Resolve::Done);
    let chosen = match from {
        From::Start => match resolve.keys().find(|key| done(key)) {
            Some(key) => return Err(Refused::CannotKeep(key.clone())),
            None => return Ok(Kept::default()),
        },
        From::Failed => None,
        From::Node(key) => Some(plan.index_of(key).ok_or_else(|| Refused::UnknownNode(key.clone()))?),
    };
    let (mut keeps, mut kept) = (vec![false; plan.nodes().len()], Kept::default());
    for &at in plan.order() {
        let node = plan.node(at);
        // What followed from a lost node does not follow from one that is done.
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
        return Err(Refused::CannotKeep(key.clone()));
    }
    // Whoever resolves something says that it did not complete.
    if *from == From::Failed && resolve.is_empty() && keeps.iter().all(|keeps| *keeps) {
        return Err(Refused::NothingFailed);
    }
    kept.done = resolve.keys().filter(|key| done(key)).cloned().collect();
    Ok(kept)
}

/// A failure that the graph went on from is part of what happened; any other is what a rerun is for.
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

/// Does a node look at the definition's constants, or at the execution's input?
fn looks_at(root: Root<'_>, key: &NodeKey, definition: &Definition) -> bool {
    let Some(node) = definition.nodes.iter().find(|node| node.key == *key) else { return true };
    let surveys = [kind::references(node.kind, &node.with), kind::condition_references(node)];
    surveys
        .iter()
        .flat_map(|survey| &survey.paths)
        .any(|(_, path)| matches!(path.root(), Ok((known, _)) if known == root))
}

/// What a node does, without how patiently and what is said of it.
fn work(node: &Node) -> Node {
    Node { description: None, retry: node.kind.retry(), timeout_ms: None, ..node.clone() }
}

/// What is noted of how such an execution came to be.
pub fn trigger(of: ExecutionId, actor: &str, from: &From, kept: usize) -> Value {
    let name = match from {
        From::Start => "start",
        From::Failed => "failed",
        From::Node(_) => "node",
    };
    let mut trigger = json!({ "type": "rerun", "of": of, "actor": actor, "from": name });
    if let From::Node(key) = from {
        trigger["node"] = json!(key);
    }
    if kept > 0 {
        trigger["kept"] = json!(kept);
    }
    trigger
}

/// Does an execution with this trigger have nodes before it begins?
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

    fn check(old: Value, new: Value, ended: &[(&str, Status)], from: From) -> Result<String, Refused> {
        check_resolved(old, new, ended, from, &[])
    }

    fn check_resolved(
        old: Value,
        new: Value,
        ended: &[(&str, Status)],
        from: From,
        resolve: &[(&str, Resolve)],
    ) -> Result<String, Refused> {
        let (old, _) = graph(old);
        let (new, plan) = graph(new);
        let key = |name: &str| NodeKey::new(name).expect("a good name");
        let ended = ended.iter().map(|(name, status)| (key(name), *status)).collect();
        let resolve = resolve.iter().map(|(name, resolve)| (key(name), *resolve)).collect();
        kept(&old, &ended, (&new, &plan), true, &from, &resolve).map(|kept| told(&kept))
    }

    /// The nodes that are kept, then the loops that go on, then what is done.
    fn told(kept: &Kept) -> String {
        let names = |keys: &[NodeKey]| keys.iter().map(NodeKey::as_str).collect::<Vec<_>>().join(" ");
        let mut told = names(&kept.nodes);
        for (what, keys) in [("go on", &kept.loops), ("done", &kept.done)] {
            if !keys.is_empty() {
                told = format!("{told}; {what}: {}", names(keys));
            }
        }
        told
    }

    use Status::{Canceled, Completed, Failed, Skipped};

    #[test]
    fn from_the_start_nothing_is_kept() {
        let ended = [("a", Completed), ("b", Completed)];
        assert_eq!(check(order(), order(), &ended, From::Start), Ok(String::new()));
    }

    #[test]
    fn from_what_failed_it_and_what_follows_is_done_anew() {
        let ended = [("a", Completed), ("b", Failed), ("c", Completed), ("d", Skipped), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, From::Failed), Ok("a c e".to_owned()));
        let ended = [("a", Failed), ("b", Skipped), ("c", Skipped), ("d", Skipped), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, From::Failed), Ok(String::new()));
    }

    #[test]
    fn a_failure_that_was_gone_on_from_is_kept_and_a_stopped_node_is_not() {
        let ended = [("a", Completed), ("b", Canceled), ("c", Failed), ("d", Canceled), ("e", Completed)];
        assert_eq!(check(order(), order(), &ended, From::Failed), Ok("a c e".to_owned()));
    }

    #[test]
    fn where_nothing_failed_that_is_said() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Completed), ("e", Skipped)];
        assert_eq!(check(order(), order(), &ended, From::Failed), Err(Refused::NothingFailed));
    }

    #[test]
    fn from_a_node_it_and_what_follows_is_done_anew() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Completed), ("e", Skipped)];
        let key = NodeKey::new("c").expect("a good name");
        assert_eq!(check(order(), order(), &ended, From::Node(key)), Ok("a b".to_owned()));
        let key = NodeKey::new("z").expect("a good name");
        assert_eq!(check(order(), order(), &ended, From::Node(key.clone())), Err(Refused::UnknownNode(key)));
    }

    #[test]
    fn what_another_version_changes_is_done_anew() {
        let ended = [("a", Completed), ("b", Completed), ("c", Completed), ("d", Failed), ("e", Skipped)];
        let mut new = order();
        new["nodes"]["b"]["with"]["message"] = json!("ho");
        new["nodes"]["a"]["retry"] = json!({ "max_attempts": 9 });
        assert_eq!(check(order(), new, &ended, From::Failed), Ok("a c e".to_owned()));
        let mut new = order();
        new["vars"] = json!({ "word": "new" });
        assert_eq!(check(order(), new.clone(), &ended, From::Failed), Ok("a b c e".to_owned()), "none looks at them");
        new["nodes"]["b"]["with"]["message"] = json!("${{ vars.word }}");
        let mut old = new.clone();
        old["vars"] = json!({ "word": "old" });
        assert_eq!(check(old, new, &ended, From::Failed), Ok("a c e".to_owned()));
        let mut new = order();
        new["nodes"]["b"]["needs"] = json!(["a", "c"]);
        assert_eq!(check(order(), new, &ended, From::Failed), Ok("a c e".to_owned()));
    }

    #[test]
    fn a_node_whose_end_is_not_known_is_resolved_first() {
        let ended = [("a", Completed), ("b", Status::Unknown), ("c", Completed), ("d", Skipped), ("e", Skipped)];
        let resolved = |from, resolve: &[(&str, Resolve)]| check_resolved(order(), order(), &ended, from, resolve);
        let key = |name| NodeKey::new(name).expect("a good name");
        for from in [From::Start, From::Failed, From::Node(key("d"))] {
            assert_eq!(resolved(from, &[]), Err(Refused::Unresolved(key("b"))));
        }
        assert_eq!(resolved(From::Failed, &[("b", Resolve::Repeat)]), Ok("a c e".to_owned()));
        assert_eq!(resolved(From::Failed, &[("b", Resolve::Done)]), Ok("a b c e; done: b".to_owned()));
        assert_eq!(resolved(From::Start, &[("b", Resolve::Repeat)]), Ok(String::new()));
        assert_eq!(resolved(From::Start, &[("b", Resolve::Done)]), Err(Refused::CannotKeep(key("b"))));
        assert_eq!(resolved(From::Node(key("a")), &[("b", Resolve::Done)]), Err(Refused::CannotKeep(key("b"))));
        let both = [("b", Resolve::Done), ("c", Resolve::Done)];
        assert_eq!(resolved(From::Failed, &both), Err(Refused::NothingToResolve(key("c"))));
    }

    #[test]
    fn what_was_lost_last_is_resolved_although_nothing_follows_it() {
        let once = json!({ "nodes": { "x": { "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "https://x.test" } } } });
        let resolved = |resolve| {
            check_resolved(once.clone(), once.clone(), &[("x", Status::Unknown)], From::Failed, &[("x", resolve)])
        };
        assert_eq!(resolved(Resolve::Done), Ok("x; done: x".to_owned()));
        assert_eq!(resolved(Resolve::Repeat), Ok(String::new()));
    }

    fn looping(items: &str) -> Value {
        json!({ "nodes": {
            "a": { "kind": "LOG", "with": { "message": "hi" } },
            "each": { "kind": "FOR_EACH", "needs": "a", "with": { "items": items, "do": { "kind": "LOG", "with": { "message": "hi" } } } },
            "after": { "kind": "LOG", "needs": "each", "with": { "message": "hi" } },
        } })
    }

    #[test]
    fn a_loop_that_did_not_complete_goes_on() {
        let document = || looping("${{ inputs.all }}");
        let lost = [("a", Completed), ("each", Status::Unknown), ("after", Skipped)];
        let resolved = |resolve| check_resolved(document(), document(), &lost, From::Failed, &[("each", resolve)]);
        assert_eq!(resolved(Resolve::Done), Ok("a; go on: each; done: each".to_owned()));
        assert_eq!(resolved(Resolve::Repeat), Ok("a; go on: each".to_owned()));
        for status in [Failed, Canceled] {
            let ended = [("a", Completed), ("each", status), ("after", Skipped)];
            assert_eq!(check(document(), document(), &ended, From::Failed), Ok("a; go on: each".to_owned()));
            let before = [("a", Failed), ("each", status), ("after", Skipped)];
            assert_eq!(check(document(), document(), &before, From::Failed), Ok(String::new()), "another list");
            let changed = looping("${{ inputs.others }}");
            assert_eq!(check(document(), changed, &ended, From::Failed), Ok("a".to_owned()));
            let from = From::Node(NodeKey::new("each").expect("a good name"));
            assert_eq!(check(document(), document(), &ended, from), Ok("a".to_owned()), "all of it, if that is asked");
        }
    }

    #[test]
    fn a_loop_over_another_input_begins_anew() {
        let key = |name| NodeKey::new(name).expect("a good name");
        let ended = [("a", Completed), ("each", Status::Unknown), ("after", Skipped)];
        let ended = ended.iter().map(|(name, status)| (key(name), *status)).collect();
        let with_another = |items, resolve| {
            let (definition, plan) = graph(looping(items));
            let resolve = [(key("each"), resolve)].into_iter().collect();
            let kept = kept(&definition, &ended, (&definition, &plan), false, &From::Failed, &resolve);
            kept.map(|kept| told(&kept))
        };
        assert_eq!(with_another("${{ inputs.all }}", Resolve::Repeat), Ok("a".to_owned()));
        assert_eq!(with_another("${{ inputs.all }}", Resolve::Done), Err(Refused::CannotKeep(key("each"))));
        assert_eq!(with_another("${{ nodes.a.output }}", Resolve::Repeat), Ok("a; go on: each".to_owned()));
    }

    #[test]
    fn a_trigger_says_whether_nodes_are_there_already() {
        let of = ExecutionId(uuid::Uuid::nil());
        assert!(is_seeded(&trigger(of, "root", &From::Failed, 2)));
        assert!(!is_seeded(&trigger(of, "root", &From::Failed, 0)));
        assert!(!is_seeded(&json!({ "type": "api" })));
    }
}
