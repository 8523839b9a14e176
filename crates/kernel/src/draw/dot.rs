//! A drawing in Graphviz's language.
//!
//! Invariants
//! - Every text is a quoted string. Quotes and backslashes in it are escaped, so the string cannot end early.
//! - Nodes of one layer have the same rank.
//!
//! Not here: positions. Graphviz computes its own layout from nodes and edges in the order of the drawing.

use std::fmt::Write as _;

use super::{Drawing, Edge, Look, Node, plain, rule};

/// The drawing as a `digraph`.
pub fn dot(drawing: &Drawing) -> String {
    let name = drawing.name.as_deref().unwrap_or("workflow");
    let mut out = format!("digraph {} {{\n", quoted(&[name]));
    out.push_str("  graph [rankdir=TB, fontname=\"sans-serif\"]\n");
    out.push_str("  node [shape=box, style=\"rounded,filled\", fillcolor=\"#ffffff\", fontname=\"sans-serif\"]\n");
    out.push_str("  edge [fontname=\"sans-serif\"]\n");
    for layer in drawing.nodes.chunk_by(|a, b| a.layer == b.layer) {
        out.push_str("  {\n    rank=same\n");
        for node in layer {
            let _ = writeln!(out, "    {} [{}]", quoted(&[node.key.as_str()]), node_attributes(node));
        }
        out.push_str("  }\n");
    }
    for edge in &drawing.edges {
        let (from, to) = (quoted(&[edge.from.as_str()]), quoted(&[edge.to.as_str()]));
        let _ = writeln!(out, "  {from} -> {to}{}", edge_attributes(edge));
    }
    out + "}\n"
}

fn node_attributes(node: &Node) -> String {
    let when = rule(node.when).map(|rule| format!("when {rule}"));
    let look = node.status.map(Look::of);
    let standing = look.as_ref().zip(node.standing()).map(|(look, standing)| format!("{} {standing}", look.sign));
    let mut lines = vec![node.key.as_str(), &node.kind];
    lines.extend(when.as_deref());
    lines.extend(standing.as_deref());
    let mut all = format!("label={}, tooltip={}", quoted(&lines), quoted(&[&node.words()]));
    if node.is_branching() {
        all.push_str(", shape=hexagon, style=filled");
    }
    if let Some(look) = look {
        let _ = write!(all, ", fillcolor=\"{}\", color=\"{}\"", look.fill, look.line);
        if look.is_dashed {
            all.push_str(", style=\"filled,dashed\"");
        }
    }
    all
}

fn edge_attributes(edge: &Edge) -> String {
    let mut all = Vec::new();
    all.extend(edge.label.as_ref().map(|label| format!("label={}", quoted(&[label.as_str()]))));
    all.extend(edge.taken.map(|taken| if taken { "style=bold" } else { "style=dashed" }.to_owned()));
    if all.is_empty() { String::new() } else { format!(" [{}]", all.join(", ")) }
}

/// Joins several lines into one quoted string.
fn quoted(lines: &[&str]) -> String {
    let escape = |line: &&str| plain(line).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", lines.iter().map(escape).collect::<Vec<_>>().join("\\n"))
}
