//! A drawing as a mermaid flowchart, which many pages and editors show as a picture.
//!
//! Invariants
//! - Nodes are named `n0`, `n1` and so on, which are not keywords of mermaid. Texts are quoted. A character with a
//!   meaning in mermaid is written as its character code.
//!
//! Not here: positions. Mermaid computes its own layout from nodes and edges in the order of the drawing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Drawing, Edge, Look, Node, plain, rule};
use crate::run::node::Status;

/// The drawing as a flowchart.
pub fn mermaid(drawing: &Drawing) -> String {
    let mut out = "flowchart TD\n".to_owned();
    if let Some(name) = &drawing.name {
        // A title cannot be quoted, so every character that may have a meaning in mermaid becomes a space.
        let harmless = |c: char| if c.is_alphanumeric() || "-_.,()".contains(c) { c } else { ' ' };
        let title: String = name.chars().map(harmless).collect();
        let title = title.trim();
        if !title.is_empty() {
            let _ = writeln!(out, "  accTitle: {title}");
        }
    }
    let mut numbers = BTreeMap::new();
    for (number, node) in drawing.nodes.iter().enumerate() {
        numbers.insert(&node.key, number);
        let _ = writeln!(out, "  n{number}{}", boxed(node));
    }
    let number = |key| numbers.get(key).copied().unwrap_or_default();
    for edge in &drawing.edges {
        let label = edge.label.as_ref().map(|label| format!("|\"{}\"|", escaped(label.as_str()))).unwrap_or_default();
        let _ = writeln!(out, "  n{} {}{label} n{}", number(&edge.from), arrow(edge), number(&edge.to));
    }
    out + &classes(drawing)
}

fn boxed(node: &Node) -> String {
    let mut lines = vec![escaped(node.key.as_str()), escaped(&node.kind)];
    lines.extend(rule(node.when).map(|rule| format!("when {rule}")));
    if let (Some(status), Some(standing)) = (node.status, node.standing()) {
        lines.push(format!("{} {}", Look::of(status).sign, escaped(&standing)));
    }
    let (open, close) = if node.is_branching() { ("{{", "}}") } else { ("[", "]") };
    format!("{open}\"{}\"{close}", lines.join("<br/>"))
}

fn arrow(edge: &Edge) -> &'static str {
    match edge.taken {
        None => "-->",
        Some(true) => "==>",
        Some(false) => "-.->",
    }
}

/// The colours of the statuses in use.
fn classes(drawing: &Drawing) -> String {
    let mut out = String::new();
    for status in Status::ALL {
        let of = |(number, node): (usize, &Node)| (node.status == Some(status)).then(|| format!("n{number}"));
        let members: Vec<String> = drawing.nodes.iter().enumerate().filter_map(of).collect();
        if members.is_empty() {
            continue;
        }
        let (look, class) = (Look::of(status), status.name().to_lowercase());
        let dashes = if look.is_dashed { ",stroke-dasharray:5 3" } else { "" };
        let (fill, line) = (look.fill, look.line);
        let _ = writeln!(out, "  classDef {class} fill:{fill},stroke:{line},color:#111827{dashes}");
        let _ = writeln!(out, "  class {} {class}", members.join(","));
    }
    out
}

/// Escapes a text for use between quotes.
fn escaped(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || " _-.,()×…".contains(c);
    let written = |c: char| if is_plain(c) { c.to_string() } else { format!("#{};", u32::from(c)) };
    plain(text).chars().map(written).collect()
}
