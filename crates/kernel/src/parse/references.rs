//! Who may see whom: every path in every template leads to something that exists by then.
//!
//! Invariants
//! - A node sees only what certainly came before it: its ancestors. The outputs see every node.
//! - It works on graphs that are no plan, so that its problems come in the same answer.
//!
//! Not here: what a path may look like (`expression`), which templates there are (`kind`).

use std::collections::BTreeMap;

use super::Draft;
use crate::expression::{Path, Root};
use crate::fields::{Problem, child, unknown};
use crate::kind;
use crate::template::{self, Survey};

/// Adds a problem for every expression that cannot be read or looks where it must not.
pub(super) fn check(draft: &Draft, problems: &mut Vec<Problem>) {
    let graph = Graph::new(draft);
    for (at, node) in draft.definition.nodes.iter().enumerate() {
        let (survey, condition) = (kind::references(node.kind, &node.with), kind::condition_references(node));
        let looks = !survey.paths.is_empty() || !condition.paths.is_empty();
        let ancestors = if looks { graph.ancestors(at) } else { Vec::new() };
        for (field, survey) in [("with", survey), ("if", condition)] {
            let field = child(&draft.node_at[at], field);
            tell(&field, &survey, problems, |path, problems| graph.refusal(path, Some((at, &ancestors)), problems));
        }
    }
    let outputs = template::survey(&draft.definition.outputs);
    tell("/outputs", &outputs, problems, |path, problems| graph.refusal(path, None, problems));
}

fn tell(at: &str, survey: &Survey, problems: &mut Vec<Problem>, refusal: impl Fn(&Path, &[Problem]) -> Option<String>) {
    for (pointer, error) in &survey.errors {
        problems.push(Problem { pointer: format!("{at}{pointer}"), message: error.to_string() });
    }
    for (pointer, path) in &survey.paths {
        if let Some(message) = refusal(path, problems) {
            problems.push(Problem { pointer: format!("{at}{pointer}"), message });
        }
    }
}

struct Graph<'d> {
    by_key: BTreeMap<&'d str, usize>,
    sources: Vec<Vec<usize>>,
    /// Some order is not known, so nothing can be said to be out of it.
    lost_edges: bool,
}

impl<'d> Graph<'d> {
    fn new(draft: &'d Draft) -> Self {
        let nodes = &draft.definition.nodes;
        let by_key: BTreeMap<&str, usize> =
            nodes.iter().enumerate().map(|(at, node)| (node.key.as_str(), at)).collect();
        let mut sources = vec![Vec::new(); nodes.len()];
        for edge in &draft.definition.edges {
            if let (Some(from), Some(to)) = (by_key.get(edge.from.as_str()), by_key.get(edge.to.as_str())) {
                sources[*to].push(*from);
            }
        }
        Self { by_key, sources, lost_edges: draft.lost_edges }
    }

    /// For each node: does it come before this one?
    fn ancestors(&self, of: usize) -> Vec<bool> {
        let mut seen = vec![false; self.sources.len()];
        let mut open = vec![of];
        while let Some(at) = open.pop() {
            for &from in &self.sources[at] {
                if !std::mem::replace(&mut seen[from], true) {
                    open.push(from);
                }
            }
        }
        seen
    }

    /// Why a path may not be looked at, from a node with its ancestors or from the outputs.
    fn refusal(&self, path: &Path, from: Option<(usize, &[bool])>, problems: &[Problem]) -> Option<String> {
        let key = match path.root() {
            Err(unavailable) => return Some(unavailable.to_string()),
            Ok((Root::Node { key, .. }, _)) => key,
            // Until a field can be marked for them.
            Ok((Root::Secret { .. }, _)) => return Some("secrets cannot be used here".to_owned()),
            Ok(_) => return None,
        };
        let Some(&target) = self.by_key.get(key) else {
            return Some(unknown("node", key, self.by_key.keys().copied(), problems));
        };
        match from {
            Some((at, _)) if at == target => Some(format!("{key} cannot see itself")),
            Some((_, ancestors)) if !ancestors[target] && !self.lost_edges => {
                Some(format!("{key} does not come before this node: add it to needs, or an edge from it"))
            }
            _ => None,
        }
    }
}
