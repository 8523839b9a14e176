//! A drawing as SVG, for a separate document or for a part of a page.
//!
//! Invariants
//! - The result is well-formed XML, and every text is escaped. It contains no script and no external URL.
//! - The only style is the sheet `STYLE`. So a page may allow only the sheet with `STYLE_HASH`, and forbid all others.
//! - A node is a link, `<a id="node-KEY" data-status="…">`, that can be reached by keyboard. Its `<title>` describes in
//!   words everything that is drawn. A status is shown by a sign and a word, not only by its colour.
//! - Colours are CSS custom properties, for light and dark pages. A page may set its own values.

use std::fmt::Write as _;

use super::{Drawing, Edge, LABEL_CHAR_WIDTH, LABEL_CHARS, Node, Point, plain, short};
use crate::run::node::Status;

/// The only style sheet. After a change, a test reports the new `STYLE_HASH`.
const STYLE: &str = "\
.forebay-graph{--fb-back:#ffffff;--fb-ink:#111827;--fb-faint:#4b5563;--fb-edge:#6b7280;--fb-box:#ffffff;\
--fb-grey:#f3f4f6;--fb-grey-line:#6b7280;--fb-blue:#dbeafe;--fb-blue-line:#1d4ed8;--fb-green:#dcfce7;\
--fb-green-line:#15803d;--fb-red:#fee2e2;--fb-red-line:#b91c1c;--fb-amber:#fef3c7;--fb-amber-line:#b45309;\
--fb-purple:#f3e8ff;--fb-purple-line:#7e22ce;font-family:system-ui,sans-serif}\
@media (prefers-color-scheme:dark){.forebay-graph{--fb-back:#111827;--fb-ink:#f9fafb;--fb-faint:#d1d5db;\
--fb-edge:#9ca3af;--fb-box:#1f2937;--fb-grey:#1f2937;--fb-grey-line:#9ca3af;--fb-blue:#1e3a8a;--fb-blue-line:#93c5fd;\
--fb-green:#14532d;--fb-green-line:#86efac;--fb-red:#7f1d1d;--fb-red-line:#fca5a5;--fb-amber:#78350f;\
--fb-amber-line:#fcd34d;--fb-purple:#581c87;--fb-purple-line:#d8b4fe}}\
.forebay-graph .back{fill:var(--fb-back)}\
.forebay-graph .node{--fill:var(--fb-box);--line:var(--fb-grey-line);text-decoration:none}\
.forebay-graph .node rect{fill:var(--fill);stroke:var(--line);stroke-width:1.5}\
.forebay-graph .node:focus-visible{outline:none}\
.forebay-graph .node:focus-visible rect,.forebay-graph .node:hover rect{stroke-width:3}\
.forebay-graph .key{fill:var(--fb-ink);font-size:13px;font-weight:600}\
.forebay-graph .kind{fill:var(--fb-faint);font-size:10px}\
.forebay-graph .status{fill:var(--line);font-size:10px;font-weight:600}\
.forebay-graph .sign{fill:none;stroke:var(--line);stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}\
.forebay-graph [data-status=PENDING],.forebay-graph \
[data-status=SKIPPED]{--fill:var(--fb-grey);--line:var(--fb-grey-line)}\
.forebay-graph [data-status=RUNNING]{--fill:var(--fb-blue);--line:var(--fb-blue-line)}\
.forebay-graph [data-status=RETRYING]{--fill:var(--fb-amber);--line:var(--fb-amber-line)}\
.forebay-graph [data-status=COMPLETED]{--fill:var(--fb-green);--line:var(--fb-green-line)}\
.forebay-graph [data-status=FAILED],.forebay-graph \
[data-status=UNKNOWN]{--fill:var(--fb-red);--line:var(--fb-red-line)}\
.forebay-graph [data-status=CANCELED]{--fill:var(--fb-purple);--line:var(--fb-purple-line)}\
.forebay-graph [data-status=SKIPPED] rect,.forebay-graph [data-status=CANCELED] rect,\
.forebay-graph [data-status=UNKNOWN] rect{stroke-dasharray:6 4}\
.forebay-graph .edge path{fill:none;stroke:var(--fb-edge);stroke-width:1.5}\
.forebay-graph .edge .head{fill:var(--fb-edge);stroke:none}\
.forebay-graph .edge text{fill:var(--fb-ink);font-size:11px;text-anchor:middle}\
.forebay-graph .edge .back{stroke:none}\
.forebay-graph [data-taken=true] path{stroke:var(--fb-green-line);stroke-width:2.5}\
.forebay-graph [data-taken=true] .head{fill:var(--fb-green-line)}\
.forebay-graph [data-taken=false] path{stroke-dasharray:4 4}\
.forebay-graph [data-taken=false] .head{fill:var(--fb-back);stroke:var(--fb-edge);stroke-width:1;\
stroke-dasharray:none}";

/// The style sheet as a source of `style-src` in a Content-Security-Policy.
pub const STYLE_HASH: &str = "sha256-gY1WKIl1pj9vnrwNNf/vujU1YvSPD1njpN5P5ny39yo=";

/// How many characters of a name fit into a box.
const KEY_CHARS: usize = 22;
/// The distance from the side of a box to its text.
const PAD: i32 = 14;

/// The drawing as a document.
pub fn svg(drawing: &Drawing) -> String {
    let (width, height) = (drawing.width, drawing.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"forebay-graph\" role=\"graphics-document document\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n"
    );
    let name = drawing.name.as_deref().unwrap_or("workflow");
    let _ = writeln!(out, "<title>{}</title>\n<desc>{}</desc>", escaped(name), escaped(&summary(drawing)));
    let _ = writeln!(out, "<style>{STYLE}</style>");
    let _ = writeln!(out, "<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n<g class=\"edges\">");
    drawing.edges.iter().for_each(|edge| write_edge(&mut out, edge));
    out.push_str("</g>\n<g class=\"nodes\">\n");
    drawing.nodes.iter().for_each(|node| write_node(&mut out, node));
    out + "</g>\n</svg>\n"
}

/// A summary in words: the size of the graph, and how many nodes are in each status.
fn summary(drawing: &Drawing) -> String {
    let counted = Status::ALL.into_iter().filter_map(|status| {
        let count = drawing.nodes.iter().filter(|node| node.status == Some(status)).count();
        (count > 0).then(|| format!("{} {count}", status.name()))
    });
    let size = format!("From top to bottom; nodes: {}, edges: {}", drawing.nodes.len(), drawing.edges.len());
    std::iter::once(size).chain(counted).collect::<Vec<_>>().join(", ")
}

fn write_node(out: &mut String, node: &Node) {
    let key = escaped(node.key.as_str());
    let status = node.status.map(|status| format!(" data-status=\"{}\"", status.name())).unwrap_or_default();
    let _ = writeln!(out, "<a id=\"node-{key}\" class=\"node\" href=\"#node-{key}\"{status}>");
    let (x, y, right) = (node.x, node.y, node.x + node.width);
    // A node that branches is drawn with round ends.
    let round = if node.is_branching() { node.height / 2 } else { 6 };
    let (width, height) = (node.width, node.height);
    let _ = writeln!(out, "<title>{}</title>", escaped(&node.words()));
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{round}\"/>");
    let shown = escaped(&short(node.key.as_str(), KEY_CHARS));
    let _ = writeln!(out, "<text class=\"key\" x=\"{}\" y=\"{}\">{shown}</text>", x + PAD, y + 22);
    let kind = escaped(&short(&node.kind, 16));
    let below = y + 40;
    match node.status.zip(node.standing()) {
        None => {
            let _ = writeln!(out, "<text class=\"kind\" x=\"{}\" y=\"{below}\">{kind}</text>", x + PAD);
        }
        Some((status, standing)) => {
            let (at, standing) = (x + PAD, escaped(&standing));
            let sign = sign(status);
            let _ = writeln!(out, "<path class=\"sign\" transform=\"translate({at} {})\" d=\"{sign}\"/>", below - 10);
            let _ = writeln!(out, "<text class=\"status\" x=\"{}\" y=\"{below}\">{standing}</text>", at + 18);
            let end = right - PAD;
            let _ = writeln!(out, "<text class=\"kind\" x=\"{end}\" y=\"{below}\" text-anchor=\"end\">{kind}</text>");
        }
    }
    out.push_str("</a>\n");
}

fn write_edge(out: &mut String, edge: &Edge) {
    let taken = edge.taken.map(|taken| format!(" data-taken=\"{taken}\"")).unwrap_or_default();
    let (from, to) = (escaped(edge.from.as_str()), escaped(edge.to.as_str()));
    let _ = writeln!(out, "<g class=\"edge\" data-from=\"{from}\" data-to=\"{to}\"{taken}>");
    let on = edge.label.as_ref().map(|label| format!(" on {label}")).unwrap_or_default();
    let observed = match edge.taken {
        None => "",
        Some(true) => ", taken",
        Some(false) => ", not taken",
    };
    let _ = writeln!(out, "<title>{from} to {to}{}{observed}</title>", escaped(&on));
    let _ = writeln!(out, "<path d=\"{}\"/>", way(&edge.points));
    if let Some(Point { x, y }) = edge.points.last() {
        let _ = writeln!(out, "<path class=\"head\" d=\"M{x} {y}l-4 -8h8z\"/>");
    }
    if let (Some(label), Some(Point { x, y })) = (&edge.label, edge.label_at) {
        let shown = short(label.as_str(), LABEL_CHARS);
        let width = shown.chars().count() as i32 * LABEL_CHAR_WIDTH + 4;
        let left = x - width / 2;
        let _ = writeln!(out, "<rect class=\"back\" x=\"{left}\" y=\"{}\" width=\"{width}\" height=\"16\"/>", y - 8);
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{}\">{}</text>", y + 4, escaped(&shown));
    }
    out.push_str("</g>\n");
}

/// The path of a line through points. Between points in one column it is straight. Between two columns it is a curve
/// that is vertical at both ends, so it stays between the two points.
fn way(points: &[Point]) -> String {
    let mut way = points.first().map(|Point { x, y }| format!("M{x} {y}")).unwrap_or_default();
    for pair in points.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        let middle = (from.y + to.y) / 2;
        let _ = match from.x == to.x {
            true => write!(way, "V{}", to.y),
            false => write!(way, "C{} {middle} {} {middle} {} {}", from.x, to.x, to.x, to.y),
        };
    }
    way
}

/// The path that draws a status's sign, in a square of 12 by 12.
fn sign(status: Status) -> &'static str {
    match status {
        Status::Pending => "M6 1a5 5 0 1 0 .01 0z",
        Status::Running => "M3 1l7 5l-7 5z",
        Status::Retrying => "M10.5 7a4.7 4.7 0 1 1 -.6 -3.4M10.4 .8v3.2h-3.2",
        Status::Completed => "M1 6.5l3.5 3.5L11 2",
        Status::Failed => "M2 2l8 8M10 2l-8 8",
        Status::Skipped => "M1 2l4 4l-4 4M6.5 2l4 4l-4 4",
        Status::Canceled => "M6 1a5 5 0 1 0 .01 0zM2.5 2.5l7 7",
        Status::Unknown => "M3.5 3.5a2.5 2.5 0 1 1 2.5 3v1.5M6 10.9v.2",
    }
}

/// Escapes a text for use in an element or an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    /// Encodes a hash of 32 bytes in base64: 43 characters and one character of padding.
    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for three in bytes.chunks(3) {
            let number = (0..3).fold(0u32, |number, at| number << 8 | u32::from(*three.get(at).unwrap_or(&0)));
            let letters = (0..=three.len()).map(|at| LETTERS[(number >> (18 - 6 * at) & 63) as usize] as char);
            out.extend(letters.chain(std::iter::repeat_n('=', 3 - three.len())));
        }
        out
    }

    #[test]
    fn the_hash_is_the_sheets_own() {
        assert_eq!(base64(b"any carnal pleas"), "YW55IGNhcm5hbCBwbGVhcw==");
        assert_eq!(STYLE_HASH, format!("sha256-{}", base64(&Sha256::digest(STYLE))));
    }
}
