//! Expressions: the text between `${{` and `}}`, and conditions.
//!
//!     text ──syntax──▶ the parser's tree ──convert──▶ Expression, at publishing
//!     Expression ──eval(scope, budget)──▶ value, at run time
//!
//! The syntax is that of CEL (Common Expression Language), and the values are JSON. `docs/reference/expressions.md`
//! describes the language for users.
//!
//! Invariants
//! - Evaluation is deterministic, and limited by a budget. It does not copy large values.
//! - A missing field is null, and a field of null is null. An unknown root or function is a parse error.
//! - An error contains types and paths, never values, because a value may be a secret.
//!
//! Not here: expressions inside other text (`template`), checking that a named node exists (`parse`).

mod ast;
mod budget;
mod convert;
mod error;
mod eval;
mod function;
pub(crate) mod meter;
mod operator;
mod path;
pub(crate) mod pattern;
pub(crate) mod scan;
mod syntax;
pub mod template;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use budget::{Budget, MAX_BYTES, MAX_RESULT_BYTES, MAX_STEPS};
pub use convert::MAX_DEPTH;
pub use error::{EvalError, Fault, ParseError};
pub use path::{MAX_SEGMENTS, Part, Path, Root, Segment, Unavailable};
pub use syntax::{MAX_NESTING, MAX_SOURCE_LEN};

use crate::access::secret::Secrets;
use crate::ids::NodeKey;
use crate::run::node;

/// A parsed expression.
#[derive(Clone, PartialEq)]
pub struct Expression {
    source: Arc<str>,
    root: ast::ExpressionNode,
    paths: Vec<Path>,
    statuses: bool,
}

/// The parts of a node that a template may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeScope {
    /// The wire name, such as `COMPLETED`.
    pub status: String,
    pub output: Arc<Value>,
    pub error: Arc<Value>,
}

/// Everything that a template may use. Large values are shared, so building a scope is cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub inputs: Arc<Value>,
    /// The settled nodes. A node that is not in the map has the value null.
    pub nodes: BTreeMap<NodeKey, NodeScope>,
    pub trigger: Arc<Value>,
    pub vars: Arc<Value>,
    pub execution: Value,
    pub workspace: Value,
    /// `None` if secrets must stay hidden.
    pub secrets: Option<Arc<Secrets>>,
    /// The current item of a loop, and its index; null outside a loop.
    pub item: Arc<Value>,
    pub index: Value,
    /// The event that the `match` of a WAIT_FOR_EVENT checks; null elsewhere.
    pub event: Arc<Value>,
}

impl Expression {
    /// Reads an expression.
    pub fn parse(source: &str) -> Result<Expression, ParseError> {
        let text = source.trim();
        let before = source.len() - source.trim_start().len();
        let shift = |error: ParseError| error.shifted(before);
        let tree = syntax::parse(text).map_err(shift)?;
        let converted = convert::convert(text, &tree).map_err(shift)?;
        Ok(Expression {
            source: text.into(),
            root: converted.root,
            paths: converted.paths,
            statuses: converted.statuses,
        })
    }

    /// The source text, without surrounding spaces.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Every path that the expression uses, in order.
    pub fn references(&self) -> Vec<&Path> {
        self.paths.iter().collect()
    }

    /// The names of the secrets that the expression mentions. [`crate::access::secret::callback`] defines the names of
    /// callbacks.
    pub fn secrets(&self) -> BTreeSet<String> {
        let secret = |path| match Path::root(path) {
            Ok((Root::Secret { name }, _)) => Some(name.to_owned()),
            Ok((Root::Callback { node }, _)) => Some(crate::access::secret::callback(node)),
            _ => None,
        };
        self.paths.iter().filter_map(secret).collect()
    }

    /// Does the expression mention a secret or a callback? The URL of a callback is a secret too.
    pub fn mentions_secrets(&self) -> bool {
        self.paths.iter().any(|path| path.root == "secrets" || path.root == "callbacks")
    }

    /// Does the expression use the status of nodes, with `success()` or `failure()`?
    pub fn uses_statuses(&self) -> bool {
        self.statuses
    }

    /// The names of all functions.
    pub fn functions() -> impl Iterator<Item = &'static str> {
        function::names()
    }

    /// The value of the expression.
    pub fn eval(&self, scope: &Scope) -> Result<Value, EvalError> {
        self.eval_within(scope, &mut Budget::default())
    }

    /// The same as [`Expression::eval`], with the caller's budget.
    pub fn eval_within(&self, scope: &Scope, budget: &mut Budget) -> Result<Value, EvalError> {
        let value = self.view_within(scope, budget)?;
        if meter::weigh(&value, MAX_RESULT_BYTES).is_none() {
            return Err(EvalError::TooLarge { limit: MAX_RESULT_BYTES });
        }
        Ok(value.into_owned())
    }

    /// The value of the expression as a condition; see [`truthy`].
    pub fn test(&self, scope: &Scope) -> Result<bool, EvalError> {
        truthy(self.view(scope)?.as_ref()).map_err(|cause| self.at(0, cause))
    }

    /// The value of the expression, borrowed if possible, so that a caller can check its size before copying it.
    pub fn view<'s>(&'s self, scope: &'s Scope) -> Result<Cow<'s, Value>, EvalError> {
        self.view_within(scope, &mut Budget::default())
    }

    /// The same as [`Expression::view`], with the caller's budget.
    pub fn view_within<'s>(&'s self, scope: &'s Scope, budget: &mut Budget) -> Result<Cow<'s, Value>, EvalError> {
        self.reveal(scope, scope.secrets.as_deref(), budget)
    }

    /// The value of the expression with these secrets instead of those of the scope.
    pub(crate) fn reveal<'s>(
        &'s self,
        scope: &'s Scope,
        secrets: Option<&'s Secrets>,
        budget: &mut Budget,
    ) -> Result<Cow<'s, Value>, EvalError> {
        eval::eval(self, scope, secrets, budget)
            .map_err(|fault| self.at(syntax::locate(&self.source, fault.place), fault.cause))
    }

    fn at(&self, offset: usize, cause: EvalError) -> EvalError {
        EvalError::At { source_text: Arc::clone(&self.source), offset, cause: Box::new(cause) }
    }
}

/// Shows only the source text, because the tree contains the same information.
impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

impl Scope {
    fn has_failed(&self) -> bool {
        self.nodes.values().any(|node| node.status == node::Status::Failed.name())
    }
}

/// Functions that may read their argument many times: loops and patterns.
const REPEATING: [&str; 6] = ["matches", "map", "filter", "all", "exists", "exists_one"];

/// May a text contain an expression that takes long to evaluate? Without loops and patterns, the time is proportional
/// to the length of the expression and the bytes of its result, which are limited.
pub fn may_take_long(text: &str) -> bool {
    let calls = |word: &&str| {
        let mut after = text.match_indices(*word).map(|(at, _)| text[at + word.len()..].trim_start());
        after.any(|rest| rest.starts_with('('))
    };
    REPEATING.iter().any(calls)
}

/// Whether a condition is true: only `true` is true, null is false, any other value is an error.
pub fn truthy(value: &Value) -> Result<bool, EvalError> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        Value::Null => Ok(false),
        other => Err(EvalError::NotBoolean { found: type_name(other) }),
    }
}

/// The type of a value, in words that fit after "must be text, not".
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

/// Are two values equal, as for `==`? Values of different types are not equal; that is not an error.
pub(crate) fn is_same(left: &Value, right: &Value) -> Result<bool, EvalError> {
    operator::same(left, right, &mut Budget::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::failure::{Class, Failure};
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
            vars: Arc::new(json!({"region": "eu"})),
            secrets: None,
            ..Scope::default()
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
    fn numbers_are_exact_or_refused() {
        check(
            &[
                "9223372036854775808.0",
                "-9223372036854775808.0",
                "9223372036854775808e3",
                "0.9223372036854775808",
                "18446744073709551615u",
                "18446744073709551615",
                "18446744073709551616",
                "18446744073709551616u",
                "0xFFFFFFFFFFFFFFFFu",
                "0xFFFFFFFFFFFFFFFF",
                "-9223372036854775808",
                "-9223372036854775809",
                "5 - 9223372036854775808",
                "inputs.n-9223372036854775808",
                "inputs.n * -9223372036854775808",
                "[18446744073709551615,9223372036854775808]",
                "inputs.x9223372036854775808",
                "1e400",
                "18446744073709551615 + 1",
                "-9223372036854775807 - 2",
                "4294967296 * 4294967296",
                "sum([18446744073709551615, 1])",
                "int('18446744073709551616')",
                "int(1e20)",
                "round(1e20)",
                "parseJson('[18446744073709551615, 18446744073709551616, 1e2]')",
                "parseJson('{18446744073709551616: 1}')",
                "parseJson('18446744073709551616') + 1",
                "{'a': 1, 'a': 2}",
                "{'a': 1, 'b': 2}['a']",
            ],
            expect![[r#"
                9223372036854775808.0  =>  9.223372036854776e+18
                -9223372036854775808.0  =>  -9.223372036854776e+18
                9223372036854775808e3  =>  9.223372036854776e+21
                0.9223372036854775808  =>  0.9223372036854776
                18446744073709551615u  =>  18446744073709551615
                18446744073709551615  =>  18446744073709551615
                18446744073709551616  =>  refused: the number does not fit into 64 bits (at offset 0)
                18446744073709551616u  =>  refused: the number does not fit into 64 bits (at offset 0)
                0xFFFFFFFFFFFFFFFFu  =>  18446744073709551615
                0xFFFFFFFFFFFFFFFF  =>  refused: the number does not fit into 64 bits (at offset 0)
                -9223372036854775808  =>  -9223372036854775808
                -9223372036854775809  =>  refused: the number does not fit into 64 bits (at offset 1)
                5 - 9223372036854775808  =>  -9223372036854775803
                inputs.n-9223372036854775808  =>  -9223372036854775803
                inputs.n * -9223372036854775808  =>  failed: *: the result is too large for a number
                [18446744073709551615,9223372036854775808]  =>  [18446744073709551615,9223372036854775808]
                inputs.x9223372036854775808  =>  null
                1e400  =>  refused: the number is too large (at offset 0)
                18446744073709551615 + 1  =>  failed: +: the result is too large for a number
                -9223372036854775807 - 2  =>  failed: -: the result is too large for a number
                4294967296 * 4294967296  =>  failed: *: the result is too large for a number
                sum([18446744073709551615, 1])  =>  failed: +: the result is too large for a number
                int('18446744073709551616')  =>  failed: int: the text is not a whole number of at most 64 bits
                int(1e20)  =>  failed: int: the number is too large
                round(1e20)  =>  failed: round: the number is too large
                parseJson('[18446744073709551615, 18446744073709551616, 1e2]')  =>  [18446744073709551615,"18446744073709551616",100.0]
                parseJson('{18446744073709551616: 1}')  =>  failed: parseJson: the text is not JSON
                parseJson('18446744073709551616') + 1  =>  failed: + does not work on text and a number
                {'a': 1, 'a': 2}  =>  failed: a key of the object is given twice
                {'a': 1, 'b': 2}['a']  =>  1
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
                nodes.fetch.output.body.total  =>  failed: nodes.fetch.output.body.total: cannot read field total of text
                inputs.list.length  =>  failed: inputs.list.length: cannot read field length of a list
                inputs[0]  =>  failed: inputs[0]: cannot read item 0 of an object
                nodes.fetch.status.x  =>  failed: nodes.fetch.status.x: cannot read field x of text
            "#]],
        );
    }

    #[test]
    fn roots_that_may_not_be_read_are_named_in_the_error() {
        check(
            &["secrets.token", "item", "env.HOME", "nodes", "nodes[0]", "nodes.fetch", "nodes.fetch.outputs"],
            expect![[r#"
                secrets.token  =>  failed: secrets cannot be used here
                item  =>  null
                env.HOME  =>  refused: unknown root env: use one of inputs, nodes, vars, secrets, trigger, execution, workspace (at offset 0)
                nodes  =>  refused: name a node and one of its parts, such as nodes.fetch.output (at offset 0)
                nodes[0]  =>  refused: name a node and one of its parts, such as nodes.fetch.output (at offset 0)
                nodes.fetch  =>  refused: nodes.fetch must be followed by output, status or error (at offset 0)
                nodes.fetch.outputs  =>  refused: nodes.fetch must be followed by output, status or error (at offset 0)
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
                  =>  refused: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 0)
                inputs.  =>  refused: expected a field name, found the end (at offset 7)
                inputs.a-b  =>  refused: - means minus here: write inputs["a-b"] (at offset 8)
                nodes.a-b.output  =>  refused: - means minus here: write nodes["a-b"] (at offset 7)
                inputs-a  =>  refused: unknown root a: use one of inputs, nodes, vars, secrets, trigger, execution, workspace (at offset 7)
                inputs.true  =>  refused: true is a reserved word: write ["true"] for a field (at offset 7)
                inputs.a ||  inputs.b  =>  false
                inputs.a + 1  =>  failed: + does not work on null and a number
                (inputs.a)  =>  null
                size(inputs.a)  =>  failed: size needs text, a list or an object, not null
                inputs.a == inputs.b  =>  true
                1 < inputs.a  =>  failed: < cannot order a number and null
                !inputs.a == 1  =>  false
                !!inputs.a  =>  null
                inputs.a = 1  =>  refused: expected an operator or the end, found =: to compare, write == (at offset 9)
                inputs[-1]  =>  failed: [ ] does not work on a position below 0 or between items
                inputs[0  =>  refused: expected ], found the end (at offset 8)
                inputs[99999999999999999999]  =>  refused: the number does not fit into 64 bits (at offset 7)
                'open  =>  refused: the text is never closed: add ' (at offset 0)
                '\x'  =>  refused: unknown escape: use \\ \" \' \n \r \t or \u0041 (at offset 0)
                '\u0000'  =>  refused: text cannot hold a NUL character (at offset 0)
                '\ud800'  =>  refused: invalid unicode code point (at offset 0)
                007  =>  7
                1u  =>  1
                18446744073709551616  =>  refused: the number does not fit into 64 bits (at offset 0)
                1e999  =>  refused: the number is too large (at offset 0)
                inputs.é  =>  refused: unexpected character (at offset 7)
                in  =>  refused: in is a reserved word: write ["in"] for a field (at offset 0)
            "#]],
        );
    }

    #[test]
    fn what_does_not_exist_is_refused_with_what_may_have_been_meant() {
        check(
            &[
                "input.n",
                "inputs.list.sise()",
                "lowercase('A')",
                "'a'.substring()",
                "coalesce()",
                "now()",
                "inputs.list.map(x)",
                "inputs.list.map(1, x)",
                "has(inputs)",
                "inputs.list.all(x, y)",
                "nodes[inputs.name].output",
                "nodes.fetch[inputs.name]",
                "secrets",
                "secrets[inputs.name]",
                "secrets.a.b",
                "b'x'",
                "inputs.a?.b",
                "a.b{c: 1}",
                "{'a' 1}",
                "f(1,)",
            ],
            expect![[r#"
                input.n  =>  refused: unknown root input, did you mean inputs? (at offset 0)
                inputs.list.sise()  =>  refused: unknown function sise, did you mean size? (at offset 16)
                lowercase('A')  =>  refused: unknown function lowercase: use one of size, lower, upper, trim, split, join, replace, contains, startsWith, endsWith, substring, matches, string, int, double, bool, json, parseJson, base64, urlEncode (at offset 0)
                'a'.substring()  =>  refused: substring takes 2 to 3 arguments, not 1 (at offset 13)
                coalesce()  =>  refused: coalesce takes at least 1 arguments, not 0 (at offset 0)
                now()  =>  refused: expressions have no clock: use execution.created_at (at offset 0)
                inputs.list.map(x)  =>  refused: map is written list.map(x, x.name) or list.map(x, x.ok, x.name) (at offset 15)
                inputs.list.map(1, x)  =>  refused: the first argument of a loop must be a name for the item, such as x (at offset 16)
                has(inputs)  =>  refused: has is written has(inputs.field) (at offset 4)
                inputs.list.all(x, y)  =>  refused: unknown root y: use one of inputs, nodes, vars, secrets, trigger, execution, workspace (at offset 19)
                nodes[inputs.name].output  =>  refused: name a node and one of its parts, such as nodes.fetch.output (at offset 0)
                nodes.fetch[inputs.name]  =>  refused: nodes.fetch must be followed by output, status or error (at offset 0)
                secrets  =>  refused: name one secret, such as secrets.api_key (at offset 0)
                secrets[inputs.name]  =>  refused: name one secret, such as secrets.api_key (at offset 0)
                secrets.a.b  =>  refused: name one secret, such as secrets.api_key (at offset 0)
                b'x'  =>  refused: bytes are not supported: leave out the b (at offset 0)
                inputs.a?.b  =>  refused: ?. is not needed: a missing field is null (at offset 11)
                a.b{c: 1}  =>  refused: an object has no type here: remove the name before the brace (at offset 1)
                {'a' 1}  =>  refused: expected :, found 1 (at offset 5)
                f(1,)  =>  refused: expected a value or a path such as inputs.order_id or nodes.fetch.output, found ) (at offset 4)
            "#]],
        );
    }

    #[test]
    fn types_that_do_not_fit_are_named_with_their_place() {
        let sources = [
            "inputs.n + inputs.name",
            "1 + (2 - null)",
            "[1, 2 * inputs.list]",
            "inputs.list.map(x, x + 'a')",
            "-inputs.name",
            "1 / 0",
            "1 % 0",
            "1.5 % 2",
            "9223372036854775807 * 9",
            "18446744073709551615 + 0",
            "1e308 * 10",
            "{1: 2}",
            "1 in 2",
            "size(1)",
            "int('x')",
            "int(true)",
            "parseJson('{')",
            "'a'.matches('(')",
            "sort([1, 'a'])",
            "inputs.none.map(x, x)",
            "inputs.list[-1]",
            "[1][true]",
            "inputs.n ? 1 : 2",
            "sum(['a'])",
            "formatDate('x', '%Y')",
            "'a'.replace('', 'b')",
            "min(1, 'a')",
            "'abc'.substring(-1)",
        ];
        let mut seen = String::new();
        for source in sources {
            let value = Expression::parse(source).expect("readable").eval(&scope());
            let answer = match value {
                Ok(value) => value.to_string(),
                Err(error) => format!("failed at {:?}: {error}", error.offset().expect("a place")),
            };
            seen.push_str(&format!("{source}  =>  {answer}\n"));
        }
        expect![[r#"
            inputs.n + inputs.name  =>  failed at 9: + does not work on a number and text
            1 + (2 - null)  =>  failed at 7: - does not work on a number and null
            [1, 2 * inputs.list]  =>  failed at 6: * does not work on a number and a list
            inputs.list.map(x, x + 'a')  =>  failed at 21: + does not work on a number and text
            -inputs.name  =>  failed at 0: - does not work on text
            1 / 0  =>  failed at 2: /: cannot divide by zero
            1 % 0  =>  failed at 2: %: cannot divide by zero
            1.5 % 2  =>  failed at 4: % does not work on a fraction and a number
            9223372036854775807 * 9  =>  failed at 20: *: the result is too large for a number
            18446744073709551615 + 0  =>  18446744073709551615
            1e308 * 10  =>  failed at 6: *: the result is too large for a number
            {1: 2}  =>  failed at 1: the key of an object must be text, not a number
            1 in 2  =>  failed at 2: in does not work on a number and a number
            size(1)  =>  failed at 0: size needs text, a list or an object, not a number
            int('x')  =>  failed at 0: int: the text is not a whole number of at most 64 bits
            int(true)  =>  failed at 0: int needs a number or text, not a boolean
            parseJson('{')  =>  failed at 0: parseJson: the text is not JSON
            'a'.matches('(')  =>  failed at 11: matches: the pattern cannot be read
            sort([1, 'a'])  =>  failed at 0: sort needs a list of numbers, or a list of texts, not text
            inputs.none.map(x, x)  =>  failed at 15: map needs a list or an object, not null
            inputs.list[-1]  =>  failed at 11: [ ] does not work on a position below 0 or between items
            [1][true]  =>  failed at 3: [ ] does not work on a boolean
            inputs.n ? 1 : 2  =>  failed at 6: a condition must be true or false, not a number
            sum(['a'])  =>  failed at 0: sum needs a list of numbers, not text
            formatDate('x', '%Y')  =>  failed at 0: formatDate: the text is not a date in the expected format
            'a'.replace('', 'b')  =>  failed at 11: replace: the text to find is empty
            min(1, 'a')  =>  failed at 0: min needs only numbers, or only texts, not text
            'abc'.substring(-1)  =>  failed at 15: substring: a position is a whole number from 0
        "#]]
        .assert_eq(&seen);
    }

    #[test]
    fn what_nodes_came_to_can_be_asked_for() {
        let check = |status: &str, expected: [bool; 3]| {
            let mut scope = scope();
            let key = NodeKey::new("late").expect("a good name");
            scope.nodes.insert(key, NodeScope { status: status.to_owned(), ..NodeScope::default() });
            let seen = ["success()", "failure()", "always()"].map(|source| {
                let expression = Expression::parse(source).expect("readable");
                assert_eq!(expression.uses_statuses(), source != "always()");
                expression.test(&scope).expect("a truth")
            });
            assert_eq!(seen, expected, "{status}");
        };
        check("COMPLETED", [true, false, true]);
        check("SKIPPED", [true, false, true]);
        check("FAILED", [false, true, true]);
    }

    #[test]
    fn variables_are_no_paths_and_hide_what_has_their_name() {
        let paths = |source: &str| {
            let expression = Expression::parse(source).expect("readable");
            expression.references().into_iter().map(Path::to_string).collect::<Vec<_>>()
        };
        assert_eq!(paths("inputs.xs.map(x, x.a + vars.b)"), ["inputs.xs", "vars.b"]);
        assert_eq!(paths("inputs.xs.map(item, item.a.filter(index, index == item.b))"), ["inputs.xs"]);
        assert_eq!(paths("inputs.xs[inputs.at].y"), ["inputs.xs", "inputs.at"]);
        assert_eq!(paths("has(nodes.a.output.b) && secrets['c-d'] == ''"), ["nodes.a.output.b", r#"secrets["c-d"]"#]);
        check(
            &[
                "[1, 2].map(inputs, inputs + 1)",
                "[[1, 2], [3]].map(x, x.map(y, [x[0], y]))",
                "inputs.list.map(x, [7].map(x, x))",
            ],
            expect![[r#"
                [1, 2].map(inputs, inputs + 1)  =>  [2,3]
                [[1, 2], [3]].map(x, x.map(y, [x[0], y]))  =>  [[[1,1],[1,2]],[[3,3]]]
                inputs.list.map(x, [7].map(x, x))  =>  [[7],[7]]
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

    #[test]
    fn what_was_computed_is_not_named_in_an_error() {
        let scope = Scope { inputs: Arc::new(json!({"word": "x", "list": [1], "key": "canary"})), ..Scope::default() };
        for source in ["inputs.word[inputs.key]", "inputs.list[inputs.key]"] {
            let error = Expression::parse(source).expect("an expression").eval(&scope).expect_err("no such field");
            let observed = Failure::from(error);
            assert!(observed.message.contains("cannot read a field of"), "{}", observed.message);
            assert!(!format!("{observed:?}").contains("canary"), "{observed:?}");
        }
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
