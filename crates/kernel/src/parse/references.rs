//! Who may see whom: every path in every template leads to something that exists by then.
//!
//! Invariants
//! - A node sees only what certainly came before it: its ancestors. The outputs see every node.
//! - A secret may be looked at only in the fields that its node's kind marks for it.
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
        let survey = kind::references(node.kind, &node.with);
        let ancestors = if survey.paths.is_empty() { Vec::new() } else { graph.ancestors(at) };
        let with = child(&draft.node_at[at], "with");
        let marked = kind::secret_fields(node.kind);
        tell(&with, &survey, problems, |pointer, path, problems| {
            let out_of_place = || misplaced(pointer, path, marked);
            graph.refusal(path, Some((at, &ancestors)), problems).or_else(out_of_place)
        });
    }
    let outputs = template::survey(&draft.definition.outputs);
    tell("/outputs", &outputs, problems, |pointer, path, problems| {
        graph.refusal(path, None, problems).or_else(|| misplaced(pointer, path, &[]))
    });
}

/// Why a secret may not be looked at here.
fn misplaced(pointer: &str, path: &Path, marked: &[&str]) -> Option<String> {
    let Ok((Root::Secret { name }, _)) = path.root() else { return None };
    let field = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
    (!marked.contains(&field)).then(|| {
        format!("secrets.{name} cannot be used here: only in headers, query, body, form and text of an HTTP_REQUEST")
    })
}

fn tell(
    at: &str,
    survey: &Survey,
    problems: &mut Vec<Problem>,
    refusal: impl Fn(&str, &Path, &[Problem]) -> Option<String>,
) {
    for (pointer, error) in &survey.errors {
        problems.push(Problem { pointer: format!("{at}{pointer}"), message: error.to_string() });
    }
    for (pointer, path) in &survey.paths {
        if let Some(message) = refusal(pointer, path, problems) {
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
