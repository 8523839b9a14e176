//! Expressions: what stands between `${{` and `}}`, and in a condition.
//!
//! A subset of CEL over JSON, so that every file stays valid when the whole language comes:
//!
//!     expression = term { "&&" term }
//!     term       = literal | path | "!" path | path ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) literal
//!     path       = name { "." name | "[" number "]" | "[" text "]" }
//!
//! Invariants
//! - Evaluation is deterministic and bounded by the length of the source; it clones nothing large.
//! - A missing field is null, and so is whatever is selected from null.
//! - Numbers are JSON's: two integers compare exactly, anything else as floating point.
//! - An error names types and paths, never values: a value may be a secret.
//!
//! Not here: reading the text (`expression::parser`), expressions inside other text (`template`),
//! whether a node that is named exists (`parse`).

mod parser;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Number, Value};

use crate::failure::{Class, Failure};
use crate::ids::NodeKey;
use crate::secret::Secrets;

/// The longest source of one expression, in bytes.
pub const MAX_SOURCE_LEN: usize = 4_096;
/// The most segments of one path.
pub const MAX_SEGMENTS: usize = 64;

/// Why a text is no expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at offset {offset})")]
pub struct ParseError {
    /// In bytes, from the start of the text that was read.
    pub offset: usize,
    pub message: String,
}

/// Why an expression has no value; types and paths only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    #[error("{path}: cannot take {segment} of {found}")]
    NotSelectable { path: String, segment: String, found: &'static str },
    #[error("{path}: {op} cannot order {left} and {right}")]
    Unordered { path: String, op: Op, left: &'static str, right: &'static str },
    #[error("a condition must be true or false, not {found}")]
    NotBoolean { found: &'static str },
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Failure {
        Failure::new(Class::ValidationError, error.to_string())
    }
}

/// Why a path leads nowhere that an expression may look.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("unknown root {0}: use one of inputs, nodes, trigger, execution, workspace")]
    UnknownRoot(String),
    #[error("{0} is not available yet")]
    NotYet(String),
    #[error("name a node and what of it to take, such as nodes.fetch.output")]
    NoNode,
    #[error("nodes.{node} must be followed by output, status or error")]
    NoPart { node: String },
    #[error("name a secret, such as secrets.API_KEY")]
    NoSecret,
    #[error("there is no secret {0} here")]
    UnknownSecret(String),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Field(String),
    Index(usize),
}

/// Where a value is to be found: a root and the way from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    root: String,
    segments: Vec<Segment>,
}

/// What of a node may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Output,
    Status,
    Error,
}

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root<'a> {
    Inputs,
    Trigger,
    Execution,
    Workspace,
    Node { key: &'a str, part: Part },
    Secret { name: &'a str },
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Literal(Value),
    Path(Path),
    Not(Path),
    Compare(Path, Op, Value),
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    source: String,
    /// Never empty; more than one are joined by `&&`.
    terms: Vec<Term>,
}

/// What a template may see of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeScope {
    /// The wire name, such as `COMPLETED`.
    pub status: String,
    pub output: Arc<Value>,
    pub error: Arc<Value>,
}

/// All that a template may see. Large values are shared, so building one is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub inputs: Arc<Value>,
    /// Settled nodes; one that is not here reads as null.
    pub nodes: BTreeMap<NodeKey, NodeScope>,
    pub trigger: Arc<Value>,
    pub execution: Value,
    pub workspace: Value,
    /// None everywhere but in the call that sends them: what mentions them resolves to `***`.
    pub secrets: Option<Arc<Secrets>>,
}

static NULL: Value = Value::Null;

impl Expression {
    /// Reads an expression.
    pub fn parse(source: &str) -> Result<Expression, ParseError> {
        let terms = parser::parse(source)?;
        Ok(Expression { source: source.trim().to_owned(), terms })
    }

    /// The text it was read from, without the space around it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Every path it looks at, in order.
    pub fn references(&self) -> Vec<&Path> {
        self.terms.iter().filter_map(Term::path).collect()
    }

    /// Does it look at a secret?
    pub fn mentions_secrets(&self) -> bool {
        self.references().iter().any(|path| path.root == "secrets")
    }

    /// Its value.
    pub fn eval(&self, scope: &Scope) -> Result<Value, EvalError> {
        self.view(scope).map(Cow::into_owned)
    }

    /// Its value as a condition; see [`truthy`].
    pub fn test(&self, scope: &Scope) -> Result<bool, EvalError> {
        truthy(self.view(scope)?.as_ref())
    }

    /// Its value without a copy, so that a caller can weigh it before it takes it.
    pub fn view<'s>(&'s self, scope: &'s Scope) -> Result<Cow<'s, Value>, EvalError> {
        match self.terms.as_slice() {
            [term] => term.view(scope),
            terms => all(terms, scope).map(|holds| Cow::Owned(Value::Bool(holds))),
        }
    }
}

/// The truth of a condition's result: only `true` is true, null is false, all else is an error.
pub fn truthy(value: &Value) -> Result<bool, EvalError> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        Value::Null => Ok(false),
        other => Err(EvalError::NotBoolean { found: type_name(other) }),
    }
}

/// What a value is, in words that fit behind "must be text, not".
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// CEL's `&&` does not care for order: one term that is false makes it false whatever the others
/// do, and only otherwise does an error count.
fn all(terms: &[Term], scope: &Scope) -> Result<bool, EvalError> {
    let mut error = None;
    for term in terms {
        match term.view(scope).and_then(|value| truthy(&value)) {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(why) => error = error.or(Some(why)),
        }
    }
    error.map_or(Ok(true), Err)
}

impl Term {
    fn path(&self) -> Option<&Path> {
        match self {
            Term::Literal(_) => None,
            Term::Path(path) | Term::Not(path) | Term::Compare(path, ..) => Some(path),
        }
    }

    fn view<'s>(&'s self, scope: &'s Scope) -> Result<Cow<'s, Value>, EvalError> {
        Ok(match self {
            Term::Literal(value) => Cow::Borrowed(value),
            Term::Path(path) => scope.find(path)?,
            Term::Not(path) => Cow::Owned(Value::Bool(!truthy(scope.find(path)?.as_ref())?)),
            Term::Compare(path, op, literal) => {
                let left = scope.find(path)?;
                Cow::Owned(Value::Bool(op.holds(path, &left, literal)?))
            }
        })
    }
}

impl Op {
    fn holds(self, path: &Path, left: &Value, right: &Value) -> Result<bool, EvalError> {
        match self {
            Op::Equal => return Ok(same(left, right)),
            Op::NotEqual => return Ok(!same(left, right)),
            Op::Less | Op::LessOrEqual | Op::Greater | Op::GreaterOrEqual => {}
        }
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => compare(left, right),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            _ => None,
        };
        let (left, right) = (type_name(left), type_name(right));
        let order = order.ok_or_else(|| EvalError::Unordered { path: path.to_string(), op: self, left, right })?;
        Ok(match self {
            Op::Equal => order.is_eq(),
            Op::NotEqual => order.is_ne(),
            Op::Less => order.is_lt(),
            Op::LessOrEqual => order.is_le(),
            Op::Greater => order.is_gt(),
            Op::GreaterOrEqual => order.is_ge(),
        })
    }

    /// Longest first, so that a reader never takes half of one.
    const SYMBOLS: [(&'static str, Op); 6] = [
        ("==", Op::Equal),
        ("!=", Op::NotEqual),
        ("<=", Op::LessOrEqual),
        (">=", Op::GreaterOrEqual),
        ("<", Op::Less),
        (">", Op::Greater),
    ];
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbol = Op::SYMBOLS.iter().find(|(_, op)| op == self).map_or("", |(symbol, _)| symbol);
        f.write_str(symbol)
    }
}

/// Values of different types are different, never an error: `x == null` must work for every x.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        (left, right) => left == right,
    }
}

fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

impl Path {
    /// Where it starts and the way from there, or why it may not be looked at.
    pub fn root(&self) -> Result<(Root<'_>, &[Segment]), Unavailable> {
        let rest = self.segments.as_slice();
        Ok(match self.root.as_str() {
            "inputs" => (Root::Inputs, rest),
            "trigger" => (Root::Trigger, rest),
            "execution" => (Root::Execution, rest),
            "workspace" => (Root::Workspace, rest),
            "nodes" => self.node()?,
            "secrets" => self.secret()?,
            "vars" | "item" | "index" => return Err(Unavailable::NotYet(self.root.clone())),
            _ => return Err(Unavailable::UnknownRoot(self.root.clone())),
        })
    }

    fn secret(&self) -> Result<(Root<'_>, &[Segment]), Unavailable> {
        match self.segments.as_slice() {
            [Segment::Field(name)] => Ok((Root::Secret { name }, &[])),
            _ => Err(Unavailable::NoSecret),
        }
    }

    fn node(&self) -> Result<(Root<'_>, &[Segment]), Unavailable> {
        let [Segment::Field(key), rest @ ..] = self.segments.as_slice() else { return Err(Unavailable::NoNode) };
        let part = match rest.first() {
            Some(Segment::Field(name)) if name == "output" => Part::Output,
            Some(Segment::Field(name)) if name == "status" => Part::Status,
            Some(Segment::Field(name)) if name == "error" => Part::Error,
            _ => return Err(Unavailable::NoPart { node: key.clone() }),
        };
        Ok((Root::Node { key, part }, &rest[1..]))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Field(name) if parser::is_selector(name) => write!(f, ".{name}"),
            Segment::Field(name) => write!(f, "[{name:?}]"),
            Segment::Index(at) => write!(f, "[{at}]"),
        })
    }
}

impl Scope {
    fn find(&self, path: &Path) -> Result<Cow<'_, Value>, EvalError> {
        let (root, rest) = path.root()?;
        let start = match root {
            Root::Inputs => &*self.inputs,
            Root::Trigger => &*self.trigger,
            Root::Execution => &self.execution,
            Root::Workspace => &self.workspace,
            Root::Secret { name } => return self.secret(name),
            Root::Node { key, part } => match (self.node(key), part) {
                (None, _) => &NULL,
                (Some(node), Part::Output) => &*node.output,
                (Some(node), Part::Error) => &*node.error,
                (Some(node), Part::Status) => {
                    let status = Value::String(node.status.clone());
                    return walk(&status, rest, path).map(|value| Cow::Owned(value.clone()));
                }
            },
        };
        walk(start, rest, path).map(Cow::Borrowed)
    }

    fn secret(&self, name: &str) -> Result<Cow<'_, Value>, EvalError> {
        let found = self.secrets.as_ref().and_then(|secrets| secrets.get(name));
        let value = found.ok_or_else(|| Unavailable::UnknownSecret(name.to_owned()))?;
        Ok(Cow::Owned(Value::String(value.to_owned())))
    }

    fn node(&self, key: &str) -> Option<&NodeScope> {
        NodeKey::new(key).ok().and_then(|key| self.nodes.get(&key))
    }
}

fn walk<'v>(start: &'v Value, way: &[Segment], path: &Path) -> Result<&'v Value, EvalError> {
    way.iter().try_fold(start, |value, segment| match (value, segment) {
        (Value::Null, _) => Ok(&NULL),
        (Value::Object(fields), Segment::Field(name)) => Ok(fields.get(name).unwrap_or(&NULL)),
        (Value::Array(items), Segment::Index(at)) => Ok(items.get(*at).unwrap_or(&NULL)),
        (other, segment) => Err(EvalError::NotSelectable {
            path: path.to_string(),
            segment: match segment {
                Segment::Field(name) => format!("field {name}"),
                Segment::Index(at) => format!("item {at}"),
            },
            found: type_name(other),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    fn scope() -> Scope {
        let fetch = NodeScope {
            status: "COMPLETED".to_owned(),
            output: Arc::new(json!({"items": [{"x": 7}], "total": 12.5, "body": "hello"})),
            error: Arc::default(),
        };
        let odd = NodeScope { output: Arc::new(json!("odd")), ..NodeScope::default() };
        let key = |name| NodeKey::new(name).expect("a good name");
        Scope {
            inputs: Arc::new(json!({
                "yes": true, "no": false, "none": null, "n": 5, "name": "ann", "a-b": 1, "true": "kw",
                "max": u64::MAX, "min": i64::MIN, "big": 9_007_199_254_740_993_i64, "list": [1, 2],
            })),
            nodes: BTreeMap::from([(key("fetch"), fetch), (key("a-b"), odd)]),
            trigger: Arc::new(json!({"kind": "manual"})),
            execution: json!({"id": "e1"}),
            workspace: json!({"id": "w1"}),
            secrets: None,
        }
    }

    fn check(sources: &[&str], expected: Expect) {
        let mut seen = String::new();
        for source in sources {
            let value = match Expression::parse(source) {
                Err(error) => format!("refused: {error}"),
                Ok(expression) => match expression.eval(&scope()) {
                    Ok(value) => value.to_string(),
                    Err(error) => format!("failed: {error}"),
                },
            };
            seen.push_str(&format!("{source}  =>  {value}\n"));
        }
        expected.assert_eq(&seen);
    }

    #[test]
    fn literals_stand_for_themselves() {
        check(
            &["true", "null", " -1.5e3 ", "18446744073709551615", r#"'it\'s'"#, r#""a\n\u00e9""#, "'${{'"],
            expect![[r#"
                true  =>  true
                null  =>  null
                 -1.5e3   =>  -1500.0
                18446744073709551615  =>  18446744073709551615
                'it\'s'  =>  "it's"
                "a\n\u00e9"  =>  "a\né"
                '${{'  =>  "${{"
            "#]],
        );
    }

    #[test]
    fn paths_lead_to_values_and_what_is_missing_is_null() {
        check(
            &[
                "inputs.n",
                "inputs . list [ 1 ]",
                "inputs.list[9]",
                "inputs.gone.deeper[3].still",
                r#"inputs["a-b"]"#,
                r#"inputs['true']"#,
                "nodes.fetch.output.items[0].x",
                "steps.fetch.output.total",
                "nodes.fetch.status",
                "nodes.fetch.error.message",
                r#"nodes["a-b"].output"#,
                "nodes.not_yet.output",
                "trigger.kind",
                "execution.id",
                "workspace.id",
                "nodes.fetch.output.body.total",
                "inputs.list.length",
                "inputs[0]",
                "nodes.fetch.status.x",
            ],
            expect![[r#"
                inputs.n  =>  5
                inputs . list [ 1 ]  =>  2
                inputs.list[9]  =>  null
                inputs.gone.deeper[3].still  =>  null
                inputs["a-b"]  =>  1
                inputs['true']  =>  "kw"
                nodes.fetch.output.items[0].x  =>  7
                steps.fetch.output.total  =>  12.5
                nodes.fetch.status  =>  "COMPLETED"
                nodes.fetch.error.message  =>  null
                nodes["a-b"].output  =>  "odd"
                nodes.not_yet.output  =>  null
                trigger.kind  =>  "manual"
                execution.id  =>  "e1"
                workspace.id  =>  "w1"
                nodes.fetch.output.body.total  =>  failed: nodes.fetch.output.body.total: cannot take field total of text
                inputs.list.length  =>  failed: inputs.list.length: cannot take field length of a list
                inputs[0]  =>  failed: inputs[0]: cannot take item 0 of an object
                nodes.fetch.status.x  =>  failed: nodes.fetch.status.x: cannot take field x of text
            "#]],
        );
    }

    #[test]
    fn roots_that_may_not_be_looked_at_are_told_apart() {
        check(
            &["secrets.token", "item", "env.HOME", "nodes", "nodes[0]", "nodes.fetch", "nodes.fetch.outputs"],
            expect![[r#"
            secrets.token  =>  failed: there is no secret token here
            item  =>  failed: item is not available yet
            env.HOME  =>  failed: unknown root env: use one of inputs, nodes, trigger, execution, workspace
            nodes  =>  failed: name a node and what of it to take, such as nodes.fetch.output
            nodes[0]  =>  failed: name a node and what of it to take, such as nodes.fetch.output
            nodes.fetch  =>  failed: nodes.fetch must be followed by output, status or error
            nodes.fetch.outputs  =>  failed: nodes.fetch must be followed by output, status or error
        "#]],
        );
    }

    #[test]
    fn comparisons_know_numbers_texts_and_booleans() {
        check(
            &[
                "inputs.n == 5",
                "inputs.n == 5.0",
                "inputs.n != '5'",
                "inputs.max == 18446744073709551615",
                "inputs.max > -1",
                "inputs.min < 18446744073709551615",
                "inputs.big == 9007199254740992",
                "nodes.fetch.output.total >= 12.5",
                "inputs.name < 'bob'",
                "inputs.no < true",
                "inputs.none == null",
                "inputs.list == null",
                "inputs.none > 1",
                "inputs.name <= 1",
            ],
            expect![[r#"
                inputs.n == 5  =>  true
                inputs.n == 5.0  =>  true
                inputs.n != '5'  =>  true
                inputs.max == 18446744073709551615  =>  true
                inputs.max > -1  =>  true
                inputs.min < 18446744073709551615  =>  true
                inputs.big == 9007199254740992  =>  false
                nodes.fetch.output.total >= 12.5  =>  true
                inputs.name < 'bob'  =>  true
                inputs.no < true  =>  true
                inputs.none == null  =>  true
                inputs.list == null  =>  false
                inputs.none > 1  =>  failed: inputs.none: > cannot order null and a number
                inputs.name <= 1  =>  failed: inputs.name: <= cannot order text and a number
            "#]],
        );
    }

    #[test]
    fn terms_are_joined_as_cel_does() {
        check(
            &[
                "inputs.yes && inputs.n > 1",
                "inputs.yes && !inputs.no && inputs.none != 1",
                "inputs.name > 1 && inputs.no",
                "inputs.name > 1 && inputs.yes",
                "inputs.none && inputs.yes",
                "inputs.n && inputs.yes",
                "!inputs.none",
                "!inputs.n",
                "true && inputs.yes",
            ],
            expect![[r#"
                inputs.yes && inputs.n > 1  =>  true
                inputs.yes && !inputs.no && inputs.none != 1  =>  true
                inputs.name > 1 && inputs.no  =>  false
                inputs.name > 1 && inputs.yes  =>  failed: inputs.name: > cannot order text and a number
                inputs.none && inputs.yes  =>  false
                inputs.n && inputs.yes  =>  failed: a condition must be true or false, not a number
                !inputs.none  =>  true
                !inputs.n  =>  failed: a condition must be true or false, not a number
                true && inputs.yes  =>  true
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_place_and_a_cure() {
        check(
            &[
                "",
                "inputs.",
                "inputs.a-b",
                "nodes.a-b.output",
                "inputs-a",
                "inputs.true",
                "inputs.a ||  inputs.b",
                "inputs.a + 1",
                "(inputs.a)",
                "size(inputs.a)",
                "inputs.a == inputs.b",
                "1 < inputs.a",
                "!inputs.a == 1",
                "!!inputs.a",
                "inputs.a = 1",
                "inputs[-1]",
                "inputs[0",
                "inputs[99999999999999999999]",
                "'open",
                r"'\x'",
                r"'\u0000'",
                r"'\ud800'",
                "007",
                "1u",
                "18446744073709551616",
                "1e999",
                "inputs.é",
                "in",
            ],
            expect![[r#"
                  =>  refused: expected a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 0)
                inputs.  =>  refused: expected a field name, found the end (at offset 7)
                inputs.a-b  =>  refused: - means minus here: write inputs["a-b"] (at offset 8)
                nodes.a-b.output  =>  refused: - means minus here: write nodes["a-b"] (at offset 7)
                inputs-a  =>  refused: - is not available yet (at offset 6)
                inputs.true  =>  refused: true is a word of the language: write ["true"] for a field (at offset 7)
                inputs.a ||  inputs.b  =>  refused: expected && or the end, found |, which is not available yet (at offset 9)
                inputs.a + 1  =>  refused: expected && or the end, found +, which is not available yet (at offset 9)
                (inputs.a)  =>  refused: expected a path such as inputs.order_id or nodes.fetch.output, found (, which is not available yet (at offset 0)
                size(inputs.a)  =>  refused: functions are not available yet (at offset 4)
                inputs.a == inputs.b  =>  refused: expected text in quotes, a number, true, false or null, found i (at offset 12)
                1 < inputs.a  =>  refused: the path comes first: write inputs.count > 1 (at offset 3)
                !inputs.a == 1  =>  refused: ! takes a path only: write path != literal (at offset 12)
                !!inputs.a  =>  refused: expected a path such as inputs.order_id or nodes.fetch.output, found ! (at offset 1)
                inputs.a = 1  =>  refused: expected && or the end, found = (at offset 9)
                inputs[-1]  =>  refused: expected a position such as [0] or a field such as ["a-b"], found -, which is not available yet (at offset 7)
                inputs[0  =>  refused: expected ], found the end (at offset 8)
                inputs[99999999999999999999]  =>  refused: the position is too large (at offset 7)
                'open  =>  refused: the text is never closed: add ' (at offset 0)
                '\x'  =>  refused: unknown escape: use \\ \" \' \n \r \t or \u0041 (at offset 2)
                '\u0000'  =>  refused: \u takes four hex digits of a character other than NUL (at offset 2)
                '\ud800'  =>  refused: \u takes four hex digits of a character other than NUL (at offset 2)
                007  =>  refused: is not a number that can be read: write it as in JSON, such as -1.5 or 2e3 (at offset 0)
                1u  =>  refused: is not a number that can be read: write it as in JSON, such as -1.5 or 2e3 (at offset 0)
                18446744073709551616  =>  refused: the number is too large to be exact (at offset 0)
                1e999  =>  refused: is not a number that can be read: write it as in JSON, such as -1.5 or 2e3 (at offset 0)
                inputs.é  =>  refused: expected a field name, found é (at offset 7)
                in  =>  refused: in is a word of the language: write ["in"] for a field (at offset 0)
            "#]],
        );
    }

    #[test]
    fn sizes_are_bounded() {
        let long = format!("'{}'", "x".repeat(MAX_SOURCE_LEN));
        assert!(Expression::parse(&long).is_err());
        let path = |segments| format!("inputs{}", ".a".repeat(segments));
        assert!(Expression::parse(&path(MAX_SEGMENTS)).is_ok());
        assert!(Expression::parse(&path(MAX_SEGMENTS + 1)).is_err());
    }

    #[test]
    fn only_true_is_true_and_null_is_false() {
        let table =
            [(json!(true), Some(true)), (json!(false), Some(false)), (json!(null), Some(false)), (json!(1), None)];
        for (value, truth) in table {
            assert_eq!(truthy(&value).ok(), truth, "{value}");
        }
        assert_eq!(
            truthy(&json!("secret")).map_err(Failure::from).map_err(|failure| (failure.class, failure.message)),
            Err((Class::ValidationError, "a condition must be true or false, not text".to_owned()))
        );
    }

    #[test]
    fn references_are_listed_as_they_would_be_written() {
        let expression =
            Expression::parse(r#"inputs.a && !steps["x-y"].output[0] && trigger.b == 'c'"#).expect("readable");
        let paths: Vec<String> = expression.references().into_iter().map(Path::to_string).collect();
        assert_eq!(paths, ["inputs.a", r#"nodes["x-y"].output[0]"#, "trigger.b"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(source in r#"(inputs|nodes|\.|\[|\]|"|'|\\|u00|é|-|1|e|!|=|<|&&| |a|\x00){0,24}"#) {
            if let Ok(expression) = Expression::parse(&source) {
                let _ = expression.eval(&scope());
            }
        }

        #[test]
        fn a_path_is_written_so_that_it_reads_as_itself(names in prop::collection::vec("[a-z_\\-\"\\\\]{1,6}", 0..5), at: u16) {
            let mut segments: Vec<Segment> = names.into_iter().map(Segment::Field).collect();
            segments.push(Segment::Index(usize::from(at)));
            let path = Path { root: "inputs".to_owned(), segments };
            let expression = Expression::parse(&path.to_string()).expect("readable");
            prop_assert_eq!(expression.references(), [&path]);
        }
    }
}
