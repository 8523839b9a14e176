//! Drawings of graphs: one layout, five output formats.
//!
//!     definition + plan (+ node states of an execution) ──▶ Drawing ──▶ JSON, SVG, mermaid, DOT, text
//!
//! Invariants
//! - Every format is made from the same `Drawing`: the same nodes in the same order, the same layers, the same words.
//! - The layout depends only on the graph, so the progress of a run does not move anything.
//! - A status is never shown by colour alone: its name and a symbol are shown too.
//! - Texts may be hostile. Each format escapes all of them and removes control characters.
//!
//! Not here: which statuses an execution has (the store), who may see them (the server).

mod dot;
mod layout;
mod mermaid;
mod svg;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definition::plan::Plan;
use crate::definition::{Definition, Join};
use crate::ids::{Label, NodeKey};
use crate::kind;
use crate::names::names;
use crate::run::node::{self, Status};
use layout::{BOX, Link, lay_out};

pub use dot::dot;
pub use mermaid::mermaid;
pub use svg::{STYLE_HASH, svg};
pub use text::{Page, text};

names! {
    /// The output format of a drawing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = GraphFormat))]
    #[serde(rename_all = "lowercase")]
    pub enum Format { Json = "json", Svg = "svg", Mermaid = "mermaid", Dot = "dot", Text = "text" }
}

/// The state of a node in an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    pub status: Status,
    pub attempt: u32,
    /// The branch that the node took.
    pub took: Option<Label>,
}

/// The states of the nodes of an execution; a missing node has not begun.
pub type NodeStates = BTreeMap<NodeKey, NodeState>;

/// A graph with its layout.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Graph))]
#[serde(rename_all = "camelCase")]
pub struct Drawing {
    /// The name of the workflow.
    pub name: Option<String>,
    pub width: i32,
    pub height: i32,
    /// Layer by layer from the top, each from left to right.
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

/// A node's box.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = GraphNode))]
#[serde(rename_all = "camelCase")]
pub struct Node {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub key: NodeKey,
    pub kind: String,
    pub description: Option<String>,
    /// The branches that a node of its kind may take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<String>,
    /// Which of its incoming edges must be taken.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub when: Join,
    /// Its own condition.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    /// The layer, from 0 at the top.
    pub layer: usize,
    /// Its left side.
    pub x: i32,
    /// Its upper side.
    pub y: i32,
    pub width: i32,
    pub height: i32,
    /// Its status, in the drawing of an execution.
    pub status: Option<Status>,
    pub attempt: Option<u32>,
    /// The branch it took.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub took: Option<Label>,
}

/// The line of an edge, from top to bottom.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = GraphEdge))]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub from: NodeKey,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub to: NodeKey,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub label: Option<Label>,
    /// The middle of its label.
    pub label_at: Option<Point>,
    /// From the lower side of one box to the upper side of the other.
    pub points: Vec<Point>,
    /// Whether the execution took it; absent until that is decided.
    pub taken: Option<bool>,
}

/// A point; `y` grows downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = GraphPoint))]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

impl Drawing {
    /// Lays out a graph, with the node states if it is the graph of an execution.
    pub fn new(definition: &Definition, plan: &Plan, standings: Option<&NodeStates>) -> Drawing {
        let layout = lay_out(plan.nodes().len(), &links(definition, plan), plan.order());
        let mut drawn: Vec<(usize, i32, Node)> = Vec::with_capacity(layout.nodes.len());
        for (node, (layer, corner)) in definition.nodes.iter().zip(&layout.nodes) {
            let standing = standings.map(|all| all.get(&node.key));
            let of = Node {
                key: node.key.clone(),
                kind: node.kind.name().to_owned(),
                description: node.description.clone(),
                branches: kind::labels(node.kind, &node.with),
                when: node.when,
                condition: node.condition.clone(),
                layer: *layer,
                x: corner.x,
                y: corner.y,
                width: BOX.0,
                height: BOX.1,
                status: standing.map(|known| known.map_or(Status::Pending, |standing| standing.status)),
                attempt: standing.flatten().map(|standing| standing.attempt).filter(|attempt| *attempt > 0),
                took: standing.flatten().and_then(|standing| standing.took.clone()),
            };
            drawn.push((*layer, corner.x, of));
        }
        drawn.sort_by_key(|(layer, x, _)| (*layer, *x));
        let ends = ends(definition, standings);
        let edges = definition.edges.iter().zip(layout.lines).map(|(edge, (points, label_at))| Edge {
            from: edge.from.clone(),
            to: edge.to.clone(),
            label: edge.label.clone(),
            label_at,
            points,
            taken: ends.get(&edge.from).map(|end| end.takes(edge.label.as_ref())),
        });
        Drawing {
            name: definition.name.clone(),
            width: layout.size.x,
            height: layout.size.y,
            edges: edges.collect(),
            nodes: drawn.into_iter().map(|(.., node)| node).collect(),
        }
    }

    /// Renders the drawing in a format; text is rendered for a page of fixed width without colours.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Json => serde_json::to_string(self).unwrap_or_default(),
            Format::Svg => svg(self),
            Format::Mermaid => mermaid(self),
            Format::Dot => dot(self),
            Format::Text => text(self, &Page::default()),
        }
    }

    /// The edges that lead to each node, in the order in which the author wrote them.
    fn incoming(&self) -> BTreeMap<&NodeKey, Vec<&Edge>> {
        let mut incoming: BTreeMap<&NodeKey, Vec<&Edge>> = BTreeMap::new();
        for edge in &self.edges {
            incoming.entry(&edge.to).or_default().push(edge);
        }
        incoming
    }
}

impl Node {
    /// The full description of the node, for titles.
    fn words(&self) -> String {
        let mut words = vec![self.kind.clone()];
        words.extend(self.status.map(|status| status.name().to_owned()));
        words.extend(self.took.as_ref().map(|label| format!("took {label}")));
        words.extend(self.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!("attempt {attempt}")));
        words.extend(rule(self.when).map(|rule| format!("when {rule}")));
        words.extend(self.condition.as_ref().map(|condition| format!("if {condition}")));
        words.extend(self.description.clone());
        format!("{}: {}", self.key, words.join(", "))
    }

    fn is_branching(&self) -> bool {
        !self.branches.is_empty()
    }

    /// The node's status, with the number of the attempt if it is not the first.
    fn standing(&self) -> Option<String> {
        let attempt = self.attempt.filter(|attempt| *attempt > 1).map(|attempt| format!(" ×{attempt}"));
        self.status.map(|status| format!("{}{}", status.name(), attempt.unwrap_or_default()))
    }
}

/// The join rule, if it is not the default.
fn rule(join: Join) -> Option<&'static str> {
    match join {
        Join::AllSuccess => None,
        Join::AnySuccess => Some("any_success"),
        Join::AllDone => Some("all_done"),
    }
}

/// The longest label that is drawn in full, and the width of a character in it.
const LABEL_CHARS: usize = 24;
const LABEL_CHAR_WIDTH: i32 = 7;

fn links(definition: &Definition, plan: &Plan) -> Vec<Link> {
    let width = |label: &Label| short(label.as_str(), LABEL_CHARS).chars().count() as i32 * LABEL_CHAR_WIDTH + 12;
    let link = |edge: &crate::definition::Edge| {
        let (from, to) = (plan.index_of(&edge.from)?, plan.index_of(&edge.to)?);
        Some(Link { from, to, label: edge.label.as_ref().map(width) })
    };
    definition.edges.iter().filter_map(link).collect()
}

/// How each node ended, for the nodes that have ended.
fn ends<'a>(definition: &'a Definition, standings: Option<&NodeStates>) -> BTreeMap<&'a NodeKey, node::NodeEnd> {
    let end = |node: &'a crate::definition::Node| {
        let standing = standings?.get(&node.key)?;
        Some((&node.key, node::NodeEnd::stored(standing.status, standing.took.clone(), node.on_error)?))
    };
    definition.nodes.iter().filter_map(end).collect()
}

/// A text, cut to a number of characters.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Replaces with spaces: control characters, characters that change the text direction, and those that XML forbids.
fn plain(text: &str) -> String {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_odd(c) { ' ' } else { c }).collect()
}

/// The look of a status without a style sheet: symbol, ASCII symbol, fill, line, dashed.
struct Look {
    sign: char,
    ascii: char,
    fill: &'static str,
    line: &'static str,
    is_dashed: bool,
}

impl Look {
    fn of(status: Status) -> Look {
        let (sign, ascii, fill, line, is_dashed) = match status {
            Status::Pending => ('○', 'o', "#f3f4f6", "#6b7280", false),
            Status::Running => ('▶', '>', "#dbeafe", "#1d4ed8", false),
            Status::Retrying => ('↻', '~', "#fef3c7", "#b45309", false),
            Status::Completed => ('✓', '+', "#dcfce7", "#15803d", false),
            Status::Failed => ('✗', 'x', "#fee2e2", "#b91c1c", false),
            Status::Skipped => ('»', '-', "#f3f4f6", "#6b7280", true),
            Status::Canceled => ('⊘', '/', "#f3e8ff", "#7e22ce", true),
            Status::Unknown => ('?', '?', "#fee2e2", "#b91c1c", true),
        };
        Look { sign, ascii, fill, line, is_dashed }
    }
}
