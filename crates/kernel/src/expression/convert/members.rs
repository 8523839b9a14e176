//! Chains of members, such as `a.b[0].c`. A chain that begins with a root becomes one path. A chain after any other
//! expression stays a chain of selections.
//!
//! Invariants
//! - A path is as long as possible: it ends at the first segment that is computed.
//! - `nodes` and `secrets` are not values themselves. An expression must name one node and its part, or one secret.

use cel::IdedExpr;
use cel::common::ast::{Expr, LiteralValue, operators};

use super::{Converter, ParseError};
use crate::access::secret;
use crate::expression::ast::{ExpressionNode, Kind, PathLookup, Start};
use crate::expression::path::{MAX_SEGMENTS, Path, ROOTS, Root, Segment, Unavailable};
use crate::expression::syntax;
use crate::ids::NodeKey;

/// One link of a chain.
enum Link<'t> {
    Static(u64, Segment),
    Computed(u64, &'t IdedExpr),
    /// `has(…)`: does the field exist? Only the last link of a chain can be this.
    Has(u64, &'t str),
}

impl Converter<'_> {
    pub(super) fn member(&mut self, tree: &IdedExpr) -> Result<Kind, ParseError> {
        let (base, links) = unchain(tree);
        let mut links = links.into_iter().peekable();
        let start = match &base.expr {
            Expr::Ident(name) => match self.variables.iter().rev().position(|known| known == name) {
                Some(up) => ExpressionNode { place: base.id, kind: Kind::Variable(up) },
                None => {
                    let mut path = Path { root: root(name), segments: Vec::new() };
                    let mut has = false;
                    while let Some(link) = links.next_if(|link| !matches!(link, Link::Computed(..))) {
                        has = matches!(link, Link::Has(..));
                        path.segments.push(link.segment());
                    }
                    let place = self.place(base, path)?;
                    ExpressionNode { place: base.id, kind: if has { Kind::HasPath(place) } else { Kind::Path(place) } }
                }
            },
            _ => self.node(base)?,
        };
        let mut node = start;
        let depth = self.depth;
        for link in links {
            self.depth += 1;
            node = match link {
                Link::Static(place, segment) => ExpressionNode { place, kind: Kind::Select(Box::new(node), segment) },
                Link::Computed(place, index) => {
                    ExpressionNode { place, kind: Kind::Index(Box::new([node, self.node(index)?])) }
                }
                Link::Has(place, field) => ExpressionNode { place, kind: Kind::Has(Box::new(node), field.to_owned()) },
            };
        }
        if self.depth > super::MAX_DEPTH {
            return Err(self.fail(tree, format!("nests deeper than {}: split the expression", super::MAX_DEPTH)));
        }
        self.depth = depth;
        Ok(node.kind)
    }

    fn place(&mut self, base: &IdedExpr, path: Path) -> Result<PathLookup, ParseError> {
        if path.segments.len() > MAX_SEGMENTS {
            return Err(self.fail(base, format!("a path has at most {MAX_SEGMENTS} segments")));
        }
        let (root, rest) = path.root().map_err(|why| match why {
            Unavailable::UnknownRoot(name) => self.unknown_root(base, &name),
            why => self.fail(base, why.to_string()),
        })?;
        let skip = path.segments.len() - rest.len();
        let start = match root {
            Root::Inputs => Start::Inputs,
            Root::Trigger => Start::Trigger,
            Root::Execution => Start::Execution,
            Root::Workspace => Start::Workspace,
            Root::Vars => Start::Vars,
            Root::Node { key, part } => NodeKey::new(key).map_or(Start::Nowhere, |key| Start::Node(key, part)),
            Root::Secret { name } => Start::Secret(name.to_owned()),
            Root::Callback { node } => Start::Secret(secret::callback(node)),
            Root::Item => Start::Item,
            Root::Index => Start::Index,
            Root::Event => Start::Event,
        };
        self.paths.push(path);
        Ok(PathLookup { path: self.paths.len() - 1, start, skip })
    }

    /// Refuses a name with a minus, such as `inputs.order-id`, which the parser reads as a subtraction. The mistake is
    /// common, so the message shows what to write.
    pub(super) fn refuse_minus(&self, tree: &IdedExpr, left: &IdedExpr, right: &IdedExpr) -> Result<(), ParseError> {
        let (Expr::Ident(name), _) = (&unchain(right).0.expr, ()) else { return Ok(()) };
        if ROOTS.contains(&root(name).as_str()) || self.variables.contains(name) {
            return Ok(());
        }
        let (base, mut links) = unchain(left);
        let (Expr::Ident(first), Some(Link::Static(_, Segment::Field(last)))) = (&base.expr, links.pop()) else {
            return Ok(());
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let offset = syntax::locate(self.source, tree.id);
        let tail = &self.source[offset..];
        if !self.source[..offset].ends_with(word) || !tail[1..].starts_with(word) {
            return Ok(());
        }
        let tail = &tail[..tail.find(|c| !word(c) && c != '-').unwrap_or(tail.len())];
        let before = Path { root: root(first), segments: links.iter().map(Link::segment).collect() };
        Err(ParseError::new(offset, format!("- means minus here: write {before}[\"{last}{tail}\"]")))
    }
}

/// Reads the root `steps`, which documents of other products use, as `nodes`.
fn root(name: &str) -> String {
    if name == "steps" { "nodes" } else { name }.to_owned()
}

/// The expression at which a chain of members begins, and the links of the chain in order.
fn unchain(tree: &IdedExpr) -> (&IdedExpr, Vec<Link<'_>>) {
    let mut links = Vec::new();
    let mut at = tree;
    loop {
        at = match &at.expr {
            Expr::Select(select) if select.test && links.is_empty() => {
                links.push(Link::Has(at.id, &select.field));
                &select.operand
            }
            Expr::Select(select) if !select.test => {
                links.push(Link::Static(at.id, Segment::Field(select.field.clone())));
                &select.operand
            }
            Expr::Call(call) if call.func_name == operators::INDEX && call.args.len() == 2 => {
                links.push(index(at.id, &call.args[1]));
                &call.args[0]
            }
            _ => break,
        };
    }
    links.reverse();
    (at, links)
}

fn index(place: u64, tree: &IdedExpr) -> Link<'_> {
    match &tree.expr {
        Expr::Literal(LiteralValue::String(name)) if !name.inner().contains('\0') => {
            Link::Static(place, Segment::Field(name.inner().to_owned()))
        }
        Expr::Literal(LiteralValue::Int(at)) if *at.inner() >= 0 => {
            Link::Static(place, Segment::Index(usize::try_from(*at.inner()).unwrap_or(usize::MAX)))
        }
        _ => Link::Computed(place, tree),
    }
}

impl Link<'_> {
    fn segment(&self) -> Segment {
        match self {
            Link::Static(_, segment) => segment.clone(),
            Link::Has(_, field) => Segment::Field((*field).to_owned()),
            Link::Computed(..) => Segment::Index(0),
        }
    }
}
