//! Checks every path in every template: its value must exist when the template is resolved.
//!
//! Invariants
//! - A node may use the values of its ancestors only, because only they have certainly settled before it. `outputs` may
//!   use every node.
//! - A secret may be used only in the fields that the node's kind allows (`secret_fields`).
//! - The check also works on an invalid graph, so that its problems are in the same response as those of `plan`.
//!
//! Not here: the syntax of paths (`expression`), which fields contain templates (`kind`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Draft;
use crate::definition::fields::{Code, GUESSES, Problem, child, unknown, unreadable};
use crate::definition::problem::Part;
use crate::definition::{Kind, Node};
use crate::expression::template::{self, Survey};
use crate::expression::{Path, Root, Unavailable};
use crate::kind;

/// Adds a problem for every expression that cannot be parsed, and for every path that may not be used.
pub(super) fn check(draft: &Draft, problems: &mut Vec<Problem>) {
    let graph = Graph::new(draft);
    for (at, node) in draft.definition.nodes.iter().enumerate() {
        let (survey, condition) = (kind::references(node.kind, &node.with), kind::condition_references(node));
        let looks = !survey.paths.is_empty() || !condition.paths.is_empty();
        let ancestors = if looks { graph.ancestors(at) } else { Vec::new() };
        let source = node.condition.clone().map_or(Value::Null, Value::String);
        for (field, value, survey) in [("with", &node.with, survey), ("if", &source, condition)] {
            let field = child(&draft.node_at[at], field);
            let marked: &[&str] = if field.ends_with("/with") { kind::secret_fields(node.kind) } else { &[] };
            report(&field, value, &survey, problems, |pointer, path, place, problems| {
                let refusal = graph.refusal(path, place.clone(), Some((at, &ancestors)), problems);
                let inside = if field.ends_with("/with") { Inside::of(node, pointer) } else { Inside::default() };
                let marked = inside.marked.unwrap_or(marked);
                let refusal = refusal.or_else(|| elsewhere(path, place.clone(), &inside));
                let refusal = refusal.or_else(|| unanswered(draft, path, place.clone()));
                refusal.or_else(|| misplaced(inside.pointer.unwrap_or(pointer), path, place, marked))
            });
        }
    }
    let outputs = template::survey(&draft.definition.outputs);
    report("/outputs", &draft.definition.outputs, &outputs, problems, |pointer, path, place, problems| {
        let refusal = graph.refusal(path, place.clone(), None, problems);
        let refusal = refusal.or_else(|| elsewhere(path, place.clone(), &Inside::default()));
        refusal.or_else(|| misplaced(pointer, path, place, &[]))
    });
}

/// Suggests `nodes.KEY` for each expression that begins with the key of a node.
pub(super) fn suggest_nodes(document: &Value, draft: &Draft, problems: &mut [Problem]) {
    let keys: BTreeSet<&str> = draft.definition.nodes.iter().map(|node| node.key.as_str()).collect();
    for problem in problems.iter_mut().filter(|problem| problem.message.starts_with("unknown root ")) {
        let Part::Piece { start, .. } = problem.part else { continue };
        let text = document.pointer(&problem.pointer).and_then(Value::as_str).and_then(|text| text.get(start..));
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let root = text.and_then(|text| text.split(|c: char| !is_part(c)).next()).unwrap_or_default();
        if keys.contains(root) {
            problem.message = format!("unknown root {root}, did you mean nodes.{root}? (at offset {start})");
            problem.suggestion = Some(format!("nodes.{root}"));
        }
    }
}

/// The roots that exist only in some fields, for one field.
#[derive(Default)]
struct Inside<'p> {
    /// Is the field in the `do` of a FOR_EACH? Then `item` and `index` exist.
    item: bool,
    /// Is the field the `match` of a WAIT_FOR_EVENT? Then `event` exists.
    event: bool,
    /// In the `do` of a FOR_EACH: the pointer from the `with` in `do`.
    pointer: Option<&'p str>,
    /// In the `do` of a FOR_EACH: the fields of the `with` in `do` that may contain secrets.
    marked: Option<&'static [&'static str]>,
}

impl<'p> Inside<'p> {
    /// The roots that exist in the field at a pointer from a node's `with`.
    fn of(node: &Node, pointer: &'p str) -> Inside<'p> {
        if node.kind == Kind::WaitForEvent {
            return Inside { event: pointer == "/match", ..Inside::default() };
        }
        let (Kind::ForEach, true) = (node.kind, pointer.starts_with("/do/")) else { return Inside::default() };
        let inner = kind::for_each::inner(&node.with).map(|(kind, _)| kind);
        let within = pointer.strip_prefix("/do/with");
        Inside {
            item: true,
            event: inner == Some(Kind::WaitForEvent) && within == Some("/match"),
            pointer: within,
            marked: Some(within.and(inner).map_or(&[][..], kind::secret_fields)),
        }
    }
}

/// The problem if a path uses `item`, `index` or `event` where it does not exist.
fn elsewhere(path: &Path, place: String, inside: &Inside<'_>) -> Option<Problem> {
    let (name, only) = match path.root() {
        Ok((Root::Item, _)) if !inside.item => ("item", "in do of a FOR_EACH"),
        Ok((Root::Index, _)) if !inside.item => ("index", "in do of a FOR_EACH"),
        Ok((Root::Event, _)) if !inside.event => ("event", "in match of a WAIT_FOR_EVENT"),
        _ => return None,
    };
    Some(Problem::new(Code::UnknownRoot, place, format!("{name} can only be used {only}")))
}

/// The problem if a path uses the callback of a node that does not exist or does not wait for an answer.
fn unanswered(draft: &Draft, path: &Path, place: String) -> Option<Problem> {
    let Ok((Root::Callback { node }, _)) = path.root() else { return None };
    let waits = |known: &&Node| known.kind == Kind::WaitForEvent && known.with.get("event").is_none();
    match draft.definition.nodes.iter().find(|known| known.key.as_str() == node) {
        Some(known) if waits(&known) => None,
        Some(_) => {
            let message = format!("{path}: {node} does not wait for an answer: name a WAIT_FOR_EVENT without event");
            Some(Problem::new(Code::BadValue, place, message))
        }
        None => Some(Problem::new(Code::UnknownNode, place, format!("{path}: there is no node {node}"))),
    }
}

/// The problem if a secret or a callback is used in a field that may not contain secrets. A callback is a secret too.
fn misplaced(pointer: &str, path: &Path, place: String, marked: &[&str]) -> Option<Problem> {
    let Ok((Root::Secret { .. } | Root::Callback { .. }, _)) = path.root() else { return None };
    let field = pointer.trim_start_matches('/').split('/').next().unwrap_or_default();
    let message = format!("{path} cannot be used here: only in headers, query, body, form and text of an HTTP_REQUEST");
    (!marked.contains(&field)).then(|| Problem::new(Code::MisplacedSecret, place, message))
}

fn report(
    at: &str,
    value: &Value,
    survey: &Survey,
    problems: &mut Vec<Problem>,
    refusal: impl Fn(&str, &Path, String, &[Problem]) -> Option<Problem>,
) {
    for (pointer, error) in &survey.errors {
        problems.push(unreadable(format!("{at}{pointer}"), error));
    }
    for (pointer, path) in &survey.paths {
        if let Some(problem) = refusal(pointer, path, format!("{at}{pointer}"), problems) {
            let text = value.pointer(pointer).and_then(Value::as_str).filter(|_| problems.len() < GUESSES);
            problems.push(match text.and_then(|text| piece(text, path)) {
                Some((start, length)) => problem.within(start, Some(length)),
                None => problem,
            });
        }
    }
}

/// The longest text in which a path is looked for.
const LONGEST_TEXT: usize = 4_096;

/// The position and length of a path in the text of its expression. Returns `None` if the author wrote the path in
/// another form, such as with brackets.
fn piece(text: &str, path: &Path) -> Option<(usize, usize)> {
    let written = path.to_string();
    let other = written.strip_prefix("nodes").map(|rest| format!("steps{rest}"));
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let find = |written: &str| {
        let whole = |at: &usize| {
            !is_part(text[..*at].chars().next_back()) && !is_part(text[at + written.len()..].chars().next())
        };
        let at = text.match_indices(written).map(|(at, _)| at).find(whole)?;
        Some((at, written.len()))
    };
    (text.len() <= LONGEST_TEXT).then(|| find(&written).or_else(|| other.as_deref().and_then(find)))?
}

struct Graph<'d> {
    by_key: BTreeMap<&'d str, usize>,
    sources: Vec<Vec<usize>>,
    /// Some edges could not be read. Then a node that seems not to be an ancestor may be one.
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

    /// Returns for each node whether it is an ancestor of the node `of`.
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

    /// The problem if a path may not be used. `from` is the node that uses the path, with its ancestors; `None` stands
    /// for `outputs`.
    fn refusal(
        &self,
        path: &Path,
        at: String,
        from: Option<(usize, &[bool])>,
        problems: &[Problem],
    ) -> Option<Problem> {
        let key = match path.root() {
            Err(why) => {
                let is_root = matches!(why, Unavailable::UnknownRoot(_));
                let code = if is_root { Code::UnknownRoot } else { Code::BadExpression };
                return Some(Problem::new(code, at, why.to_string()));
            }
            Ok((Root::Node { key, .. }, _)) => key,
            Ok(_) => return None,
        };
        let Some(&target) = self.by_key.get(key) else {
            return Some(unknown(Code::UnknownNode, "node", at, key, self.by_key.keys().copied(), problems));
        };
        let message = match from {
            Some((own, _)) if own == target => format!("{key} cannot use its own values"),
            Some((_, ancestors)) if !ancestors[target] && !self.lost_edges => {
                format!("{key} does not come before this node: add it to needs, or an edge from it")
            }
            _ => return None,
        };
        Some(Problem::new(Code::NotAnAncestor, at, message))
    }
}
