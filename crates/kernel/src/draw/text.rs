//! A drawing for terminals: a line of text for each node. Rails beside the lines lead to the nodes below.
//!
//!     ●    order     TRANSFORM
//!     ◆    is_large  CONDITION  ← order
//!     ├─╮
//!     ● │  review    LOG        ← is_large.true
//!     │ ●  approve   LOG        ← is_large.false
//!     ├─╯
//!     ●    ship      TRANSFORM  ← review, approve (any_success)
//!
//! Invariants
//! - A rail leads to one node from all of its sources. It begins below the first source and ends at the node.
//! - No line is longer than the page is wide. If a graph needs too many rails, its nodes are listed by layers instead.
//!
//! Not here: whether a terminal shows colours, and how wide it is (the caller says so in `Page`).

mod rails;

use std::collections::BTreeMap;

use super::{Drawing, Edge, Look, Node, plain, rule, short};
use crate::ids::NodeKey;
use crate::run::node::Status;
use rails::Rail;

/// The properties of the page that the text is written for.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub width: usize,
    /// Use only ASCII characters, which every terminal can show.
    pub is_ascii: bool,
    /// Gives a text the colour of a status, without changing its width.
    pub paint: Option<fn(Status, &str) -> String>,
}

impl Default for Page {
    fn default() -> Page {
        Page { width: 100, is_ascii: false, paint: None }
    }
}

/// A name may take a third of the page's width, and so may the rails.
const PART_OF_NAME: usize = 3;
const PART_OF_RAILS: usize = 3;

/// The drawing as text, with one or more lines for each node.
pub fn text(drawing: &Drawing, page: &Page) -> String {
    match rails::rails(drawing, page.width / PART_OF_RAILS) {
        Some(lines) => beside_rails(drawing, page, &lines),
        None => by_layers(drawing, page),
    }
}

fn beside_rails(drawing: &Drawing, page: &Page, lines: &[(Vec<Rail>, Option<usize>)]) -> String {
    let wide = lines.iter().map(|(rails, _)| rails.len()).max().unwrap_or(0);
    let columns = Columns::new(drawing, page);
    let mut out = String::new();
    for (rails, at) in lines {
        let node = at.map(|at| &drawing.nodes[at]);
        let mut line = Line { text: String::new(), left: page.width };
        for rail in rails {
            let status = node.and_then(|node| node.status).filter(|_| *rail == Rail::Node);
            line.add(page, status, &rail.sign(page, node).to_string());
        }
        if let Some(node) = node {
            line.add(page, None, &" ".repeat(wide - rails.len()));
            columns.write(&mut line, page, node);
        }
        out.push_str(&format!("{}\n", line.text.trim_end()));
    }
    out
}

fn by_layers(drawing: &Drawing, page: &Page) -> String {
    let columns = Columns::new(drawing, page);
    let mut out = String::new();
    for node in &drawing.nodes {
        let mut line = Line { text: String::new(), left: page.width };
        line.add(page, None, &format!("{:<4}", node.layer + 1));
        line.add(page, node.status, &Rail::Node.sign(page, Some(node)).to_string());
        columns.write(&mut line, page, node);
        out.push_str(&format!("{}\n", line.text.trim_end()));
    }
    out
}

/// A line of text, and how many columns of the page are left in it.
struct Line {
    text: String,
    left: usize,
}

impl Line {
    /// Adds as much of a text as fits into the line.
    fn add(&mut self, page: &Page, status: Option<Status>, text: &str) {
        if self.left < 2 {
            return;
        }
        let mut shown = short(&plain(text), self.left);
        if page.is_ascii {
            shown = shown.replace('×', "x").replace('…', ".");
        }
        self.left -= shown.chars().count();
        match status.zip(page.paint).filter(|_| !shown.trim().is_empty()) {
            Some((status, paint)) => self.text.push_str(&paint(status, &shown)),
            None => self.text.push_str(&shown),
        }
    }
}

/// The widths of the columns after the rails, and the incoming edges of each node.
struct Columns<'a> {
    incoming: BTreeMap<&'a NodeKey, Vec<&'a Edge>>,
    key: usize,
    kind: usize,
    standing: usize,
}

impl Columns<'_> {
    fn new<'a>(drawing: &'a Drawing, page: &Page) -> Columns<'a> {
        let widest = |width: fn(&Node) -> usize| drawing.nodes.iter().map(width).max().unwrap_or(0);
        Columns {
            incoming: drawing.incoming(),
            key: widest(|node| node.key.as_str().len()).min(page.width / PART_OF_NAME),
            kind: widest(|node| node.kind.chars().count()),
            standing: widest(|node| node.standing().map_or(0, |standing| standing.chars().count())),
        }
    }

    fn write(&self, line: &mut Line, page: &Page, node: &Node) {
        let (key, kind) = (self.key, self.kind);
        line.add(page, None, &format!("  {:<key$}", short(node.key.as_str(), key)));
        line.add(page, None, &format!("  {:<kind$}", node.kind));
        if let Some(standing) = node.standing() {
            line.add(page, None, "  ");
            line.add(page, node.status, &standing);
            line.add(page, None, &" ".repeat(self.standing - standing.chars().count()));
        }
        if let Some(incoming) = self.incoming.get(&node.key) {
            let arrow = if page.is_ascii { "<-" } else { "←" };
            line.add(page, None, &format!("  {arrow} {}", needs(node, incoming)));
        }
    }
}

/// The `needs` of a node, as its author wrote them.
fn needs(node: &Node, incoming: &[&Edge]) -> String {
    let named = |edge: &&Edge| match &edge.label {
        Some(label) => format!("{}.{label}", edge.from),
        None => edge.from.to_string(),
    };
    let all = incoming.iter().map(named).collect::<Vec<_>>().join(", ");
    rule(node.when).map_or(all.clone(), |rule| format!("{all} ({rule})"))
}

impl Rail {
    fn sign(self, page: &Page, node: Option<&Node>) -> char {
        let (sign, ascii) = match self {
            Rail::None => (' ', ' '),
            Rail::Node => marker(node),
            Rail::Line { up, down, left, right } => match (up, down, left, right) {
                (true, true, false, false) => ('│', '|'),
                (false, false, ..) => ('─', '-'),
                (true, true, false, true) => ('├', '+'),
                (true, true, true, false) => ('┤', '+'),
                (true, true, true, true) => ('┼', '+'),
                (false, true, false, _) => ('╭', '.'),
                (false, true, true, false) => ('╮', '.'),
                (false, true, true, true) => ('┬', '.'),
                (true, false, false, _) => ('╰', '\''),
                (true, false, true, false) => ('╯', '\''),
                (true, false, true, true) => ('┴', '\''),
            },
        };
        if page.is_ascii { ascii } else { sign }
    }
}

fn marker(node: Option<&Node>) -> (char, char) {
    match node.map(|node| (node.status, node.is_branching())) {
        Some((Some(status), _)) => (Look::of(status).sign, Look::of(status).ascii),
        Some((None, true)) => ('◆', '?'),
        _ => ('●', '*'),
    }
}

/// The numbers of the successors of each node, in the order of the drawing.
fn targets(drawing: &Drawing) -> Vec<Vec<usize>> {
    let numbers: BTreeMap<_, usize> = drawing.nodes.iter().enumerate().map(|(at, node)| (&node.key, at)).collect();
    let mut targets = vec![Vec::new(); drawing.nodes.len()];
    for edge in &drawing.edges {
        if let (Some(&from), Some(&to)) = (numbers.get(&edge.from), numbers.get(&edge.to)) {
            targets[from].push(to);
        }
    }
    for all in &mut targets {
        all.sort_unstable();
        all.dedup();
    }
    targets
}
