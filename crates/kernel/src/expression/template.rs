//! Templates: JSON values with expressions, `${{ … }}`, in any of their texts. A template is parsed once, and resolved
//! for each execution.
//!
//! `{{ … }}` is an expression as well. `$${{` stands for the text `${{`, and `${{ '{{' }}` for the text `{{`.
//!
//! Invariants
//! - A text that is exactly one expression becomes the value of the expression, with its type. In a longer text, the
//!   value becomes text: null becomes the empty text, and a list or object becomes compact JSON.
//! - A result is never parsed again, so data cannot inject an expression.
//! - Bytes are charged before they are copied. Every result can be stored: it has no NUL character and is not too deep.
//! - Keys of objects are never templates.
//!
//! Not here: inserting values (`template::resolve`), evaluating expressions (`expression`), which fields may contain
//! templates (`kind`).

mod resolve;

use std::collections::BTreeSet;

use serde_json::Value;
use zeroize::Zeroizing;

pub use resolve::HIDDEN;

use crate::access::secret::Secrets;
use crate::expression::scan::{self, Quoted};
use crate::expression::{EvalError, Expression, ParseError, Path, Scope};
use crate::run::failure::{Class, Failure};
use resolve::Resolver;

/// The most bytes that one template may resolve to, unless its caller sets another limit.
pub const MAX_RESOLVED_BYTES: usize = 1 << 20;
/// How deep a resolved value may nest. Stored values are read by a parser that stops at a depth of 128.
pub const MAX_RESOLVED_DEPTH: usize = 100;

/// A JSON value with its expressions parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    root: Shape,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// A value without any expression.
    Plain(Value),
    Whole(Expression),
    Mixed(Vec<Part>),
    List(Vec<Shape>),
    Object(Vec<(String, Shape)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Expression(Expression),
}

/// The contents of the expressions in a value, each with a JSON pointer to its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Every path that is used.
    pub paths: Vec<(String, Path)>,
    /// Every expression that cannot be parsed.
    pub errors: Vec<(String, ParseError)>,
    /// Does any expression use the status of nodes, with `success()` or `failure()`?
    pub statuses: bool,
}

/// Why a template cannot be resolved, and the place in the template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}{}{cause}", if pointer.is_empty() { "" } else { ": " })]
pub struct ResolveError {
    /// A JSON pointer into the template.
    pub pointer: String,
    pub cause: Cause,
}

/// The reason of a `ResolveError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("{0}")]
    Eval(#[from] EvalError),
    #[error("the result is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the result nests deeper than {MAX_RESOLVED_DEPTH}")]
    TooDeep,
    #[error("the result holds a NUL character, which cannot be stored")]
    Nul,
    #[error("expressions with secrets produce too many texts: do not combine secrets with other data in them")]
    Revealed,
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Failure {
        let blame =
            if let Cause::Eval(eval) = &error.cause { eval.failed_expression(Some(&error.pointer)) } else { None };
        Failure { expression: blame, ..Failure::new(Class::ValidationError, error.to_string()) }
    }
}

impl Survey {
    /// Adds what another value uses, with pointers from `below`.
    pub(crate) fn add(&mut self, below: &str, other: Survey) {
        self.paths.extend(other.paths.into_iter().map(|(at, path)| (format!("{below}{at}"), path)));
        self.errors.extend(other.errors.into_iter().map(|(at, error)| (format!("{below}{at}"), error)));
        self.statuses |= other.statuses;
    }
}

impl Template {
    /// Parses every expression of a value. An error has all parse errors, each with a JSON pointer to its text.
    pub fn parse(value: &Value) -> Result<Template, Vec<(String, ParseError)>> {
        let mut errors = Vec::new();
        let root = shape(value, &mut String::new(), &mut errors);
        if errors.is_empty() { Ok(Template { root }) } else { Err(errors) }
    }

    /// Every path that is used, each with a JSON pointer to its text.
    pub fn references(&self) -> Vec<(String, &Path)> {
        let mut found = Vec::new();
        self.root.each_expression(&mut String::new(), &mut |pointer, expression| {
            found.extend(expression.references().into_iter().map(|path| (pointer.to_owned(), path)));
        });
        found
    }

    /// The expression, if the whole value is exactly one expression.
    pub fn expression(&self) -> Option<&Expression> {
        if let Shape::Whole(expression) = &self.root { Some(expression) } else { None }
    }

    /// The value with every expression replaced by the value of the expression.
    pub fn resolve(&self, scope: &Scope) -> Result<Value, ResolveError> {
        self.resolve_within(scope, MAX_RESOLVED_BYTES)
    }

    /// The same as [`Template::resolve`], with the caller's limit in bytes.
    pub fn resolve_within(&self, scope: &Scope, limit: usize) -> Result<Value, ResolveError> {
        Resolver::new(scope, scope.secrets.as_deref(), limit).shape(&self.root, 0)
    }

    /// The names of the secrets that are mentioned.
    pub fn secrets(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.root.each_expression(&mut String::new(), &mut |_, expression| {
            names.extend(expression.secrets());
        });
        names
    }

    /// The value with its secrets in clear text, and every text that contains a secret. The caller must mask these
    /// texts wherever they appear.
    pub fn resolve_revealing(
        &self,
        scope: &Scope,
        secrets: &Secrets,
    ) -> Result<(Value, Vec<Zeroizing<String>>), ResolveError> {
        let mut resolver = Resolver::new(scope, Some(secrets), MAX_RESOLVED_BYTES);
        let value = resolver.shape(&self.root, 0)?;
        Ok((value, resolver.revealed))
    }
}

/// Collects the expressions of a value, also if some of them cannot be parsed.
pub fn survey(value: &Value) -> Survey {
    let mut errors = Vec::new();
    let root = shape(value, &mut String::new(), &mut errors);
    let template = Template { root };
    let mut statuses = false;
    template.root.each_expression(&mut String::new(), &mut |_, expression| {
        statuses |= expression.uses_statuses();
    });
    let paths = template.references().into_iter().map(|(pointer, path)| (pointer, path.clone()));
    Survey { paths: paths.collect(), errors, statuses }
}

/// May this text contain an expression? Then its value is known only at run time.
pub fn is_templated(text: &str) -> bool {
    text.contains("{{")
}

/// Adds a segment to a JSON pointer.
pub(crate) fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

fn shape(value: &Value, pointer: &mut String, errors: &mut Vec<(String, ParseError)>) -> Shape {
    let length = pointer.len();
    let mut inner = |segment: &str, value: &Value| {
        push_segment(pointer, segment);
        let shape = shape(value, pointer, errors);
        pointer.truncate(length);
        shape
    };
    match value {
        Value::String(text) => text_shape(text).unwrap_or_else(|found| {
            errors.extend(found.into_iter().map(|error| (pointer.clone(), error)));
            Shape::Plain(Value::Null)
        }),
        Value::Array(items) => {
            let shapes = items.iter().enumerate().map(|(at, item)| inner(&at.to_string(), item));
            gather(shapes.collect(), Value::Array, Shape::List)
        }
        Value::Object(fields) => {
            let (names, shapes): (Vec<String>, Vec<Shape>) =
                fields.iter().map(|(name, field)| (name.clone(), inner(name, field))).unzip();
            let names = &names;
            gather(
                shapes,
                |values| Value::Object(names.iter().cloned().zip(values).collect()),
                |shapes| Shape::Object(names.iter().cloned().zip(shapes).collect()),
            )
        }
        other => Shape::Plain(other.clone()),
    }
}

/// Parses a value. A part without expressions is stored as one plain value.
fn gather(
    shapes: Vec<Shape>,
    plain: impl FnOnce(Vec<Value>) -> Value,
    mixed: impl FnOnce(Vec<Shape>) -> Shape,
) -> Shape {
    if shapes.iter().any(|shape| !matches!(shape, Shape::Plain(_))) {
        return mixed(shapes);
    }
    let values =
        shapes.into_iter().filter_map(|shape| if let Shape::Plain(value) = shape { Some(value) } else { None });
    Shape::Plain(plain(values.collect()))
}

fn text_shape(text: &str) -> Result<Shape, Vec<ParseError>> {
    let mut parts = split(text)?;
    if parts.len() == 1 {
        return Ok(match parts.remove(0) {
            Part::Text(text) => Shape::Plain(Value::String(text)),
            Part::Expression(expression) => Shape::Whole(expression),
        });
    }
    Ok(if parts.is_empty() { Shape::Plain(Value::String(String::new())) } else { Shape::Mixed(parts) })
}

/// Splits a text into plain text and expressions, or returns all parse errors.
fn split(text: &str) -> Result<Vec<Part>, Vec<ParseError>> {
    let (mut parts, mut errors) = (Vec::new(), Vec::new());
    let mut plain = String::new();
    let mut rest = 0;
    while let Some(found) = text[rest..].find("{{") {
        let braces = rest + found;
        let before = &text[rest..braces];
        if let Some(before) = before.strip_suffix("$$") {
            plain.push_str(before);
            plain.push_str("${{");
            rest = braces + 2;
            continue;
        }
        plain.push_str(before.strip_suffix('$').unwrap_or(before));
        let start = braces + 2;
        let end = match close(text, start) {
            Ok(end) => end,
            Err(error) => {
                errors.push(error);
                return Err(errors);
            }
        };
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        match Expression::parse(&text[start..end]) {
            Ok(expression) => parts.push(Part::Expression(expression)),
            Err(error) => errors.push(error.shifted(start)),
        }
        rest = end + 2;
    }
    plain.push_str(&text[rest..]);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    if errors.is_empty() { Ok(parts) } else { Err(errors) }
}

/// The end of the expression that starts at `start`. Braces inside quotes are text, and the braces of an object are
/// part of the expression.
fn close(text: &str, start: usize) -> Result<usize, ParseError> {
    let mut open = 0_usize;
    let mut at = start;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        match c {
            '{' => open += 1,
            '}' if open == 0 && rest.starts_with("}}") => return Ok(at),
            '}' => open = open.saturating_sub(1),
            _ => {}
        }
        at += match scan::quoted(rest, text[start..at].chars().next_back()) {
            Some(Quoted::Closed(length)) => length,
            Some(Quoted::Open(quote)) => {
                return Err(ParseError::new(at, format!("the text is never closed: add {quote}")));
            }
            None => c.len_utf8(),
        };
    }
    Err(ParseError::new(start - 2, "the expression is never closed: add }}"))
}

impl Shape {
    /// Calls `see` for every expression, with a JSON pointer to its text.
    fn each_expression<'t>(&'t self, pointer: &mut String, see: &mut dyn FnMut(&str, &'t Expression)) {
        let length = pointer.len();
        let mut inner = |segment: &str, shape: &'t Shape| {
            push_segment(pointer, segment);
            shape.each_expression(pointer, see);
            pointer.truncate(length);
        };
        match self {
            Shape::Plain(_) => {}
            Shape::List(items) => items.iter().enumerate().for_each(|(at, item)| inner(&at.to_string(), item)),
            Shape::Object(fields) => fields.iter().for_each(|(name, field)| inner(name, field)),
            Shape::Whole(expression) => see(pointer, expression),
            Shape::Mixed(parts) => parts.iter().for_each(|part| match part {
                Part::Text(_) => {}
                Part::Expression(expression) => see(pointer, expression),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;
    use std::sync::Arc;

    fn scope() -> Scope {
        let inputs = json!({
            "name": "ann", "n": 3, "none": null, "list": [1, {"a": "b"}],
            "evil": "${{ inputs.name }}", "nul": "a\0b", "big": "x".repeat(600),
        });
        Scope { inputs: Arc::new(inputs), ..Scope::default() }
    }

    fn check(values: &[Value], expected: Expect) {
        let mut seen = String::new();
        for value in values {
            let answer = match Template::parse(value) {
                Err(errors) => {
                    let all: Vec<String> = errors.iter().map(|(at, error)| format!("{at}: {error}")).collect();
                    format!("refused: {}", all.join(" | "))
                }
                Ok(template) => match template.resolve_within(&scope(), 1_000) {
                    Ok(value) => value.to_string(),
                    Err(error) => format!("failed: {error}"),
                },
            };
            seen.push_str(&format!("{value}  =>  {answer}\n"));
        }
        expected.assert_eq(&seen);
    }

    #[test]
    fn one_expression_keeps_its_type_and_mixed_text_becomes_text() {
        check(
            &[
                json!("${{ inputs.n }}"),
                json!("{{inputs.list}}"),
                json!("n=${{ inputs.n }}, list={{ inputs.list }}, none=${{ inputs.none }}."),
                json!(" ${{ inputs.n }}"),
                json!("${{inputs.n}}${{inputs.n}}"),
                json!({"a": ["${{ inputs.name }}", 1, {"b": "plain"}], "${{ inputs.n }}": "key"}),
                json!(""),
                json!("a } b }} c { d"),
            ],
            expect![[r#"
                "${{ inputs.n }}"  =>  3
                "{{inputs.list}}"  =>  [1,{"a":"b"}]
                "n=${{ inputs.n }}, list={{ inputs.list }}, none=${{ inputs.none }}."  =>  "n=3, list=[1,{\"a\":\"b\"}], none=."
                " ${{ inputs.n }}"  =>  " 3"
                "${{inputs.n}}${{inputs.n}}"  =>  "33"
                {"a":["${{ inputs.name }}",1,{"b":"plain"}],"${{ inputs.n }}":"key"}  =>  {"a":["ann",1,{"b":"plain"}],"${{ inputs.n }}":"key"}
                ""  =>  ""
                "a } b }} c { d"  =>  "a } b }} c { d"
            "#]],
        );
    }

    #[test]
    fn a_result_is_never_expanded_again() {
        check(
            &[json!("${{ inputs.evil }}"), json!("<${{ inputs.evil }}>")],
            expect![[r#"
            "${{ inputs.evil }}"  =>  "${{ inputs.name }}"
            "<${{ inputs.evil }}>"  =>  "<${{ inputs.name }}>"
        "#]],
        );
    }

    #[test]
    fn braces_can_be_written_plainly() {
        check(
            &[
                json!("$${{ inputs.n }}"),
                json!("a $${{ b }} ${{ inputs.n }}"),
                json!("$$${{ inputs.n }}"),
                json!("${{ '{{' }}x}}"),
                json!("${{ '}}' }}"),
                json!(r#"${{ "\"}}" }}"#),
            ],
            expect![[r#"
                "$${{ inputs.n }}"  =>  "${{ inputs.n }}"
                "a $${{ b }} ${{ inputs.n }}"  =>  "a ${{ b }} 3"
                "$$${{ inputs.n }}"  =>  "$${{ inputs.n }}"
                "${{ '{{' }}x}}"  =>  "{{x}}"
                "${{ '}}' }}"  =>  "}}"
                "${{ \"\\\"}}\" }}"  =>  "\"}}"
            "#]],
        );
    }

    #[test]
    fn every_unreadable_expression_is_reported_with_its_place() {
        check(
            &[
                json!({"a": "x ${{ inputs. }}", "b": ["${{ 'open }}"], "c/d": "{{ ", "e": "${{ }}", "ok": "${{ inputs.n }}"}),
                json!("{{{ inputs.n }}}"),
            ],
            expect![[r#"
                {"a":"x ${{ inputs. }}","b":["${{ 'open }}"],"c/d":"{{ ","e":"${{ }}","ok":"${{ inputs.n }}"}  =>  refused: /a: expected a field name, found the end (at offset 13) | /b/0: the text is never closed: add ' (at offset 4) | /c~1d: the expression is never closed: add }} (at offset 0) | /e: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 4)
                "{{{ inputs.n }}}"  =>  refused: : expected :, found } (at offset 13)
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_resolved_names_its_place_and_no_value() {
        check(
            &[
                json!({"a": [0, "${{ inputs.name.first }}"]}),
                json!({"a": "${{ inputs.nul }}"}),
                json!({"a": "x${{ inputs.nul }}"}),
                json!(["${{ inputs.big }}", "${{ inputs.big }}"]),
                json!("${{ inputs.big }}${{ inputs.big }}"),
                json!("${{ secrets.a }}"),
            ],
            expect![[r#"
                {"a":[0,"${{ inputs.name.first }}"]}  =>  failed: /a/1: inputs.name.first: cannot read field first of text
                {"a":"${{ inputs.nul }}"}  =>  failed: /a: the result holds a NUL character, which cannot be stored
                {"a":"x${{ inputs.nul }}"}  =>  failed: /a: the result holds a NUL character, which cannot be stored
                ["${{ inputs.big }}","${{ inputs.big }}"]  =>  failed: /1: the result is larger than 1000 bytes
                "${{ inputs.big }}${{ inputs.big }}"  =>  failed: the result is larger than 1000 bytes
                "${{ secrets.a }}"  =>  "***"
            "#]],
        );
    }

    #[test]
    fn a_result_does_not_nest_deeper_than_can_be_read_back() {
        let deep = (0..MAX_RESOLVED_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        let scope = Scope { inputs: Arc::new(json!(deep)), ..Scope::default() };
        let resolve = |value| Template::parse(&value).expect("readable").resolve(&scope).map_err(|error| error.cause);
        assert!(resolve(json!("${{ inputs }}")).is_ok());
        assert_eq!(resolve(json!(["${{ inputs }}"])), Err(Cause::TooDeep));
    }

    #[test]
    fn braces_of_objects_do_not_end_an_expression() {
        check(
            &[json!("${{ {'a': {'b': inputs.n}} }}"), json!("x${{ {'a': {'b': 1}}}}y"), json!(r"${{ r'\' + '}}' }}")],
            expect![[r#"
                "${{ {'a': {'b': inputs.n}} }}"  =>  {"a":{"b":3}}
                "x${{ {'a': {'b': 1}}}}y"  =>  "x{\"a\":{\"b\":1}}y"
                "${{ r'\\' + '}}' }}"  =>  "\\}}"
            "#]],
        );
    }

    #[test]
    fn a_secret_is_hidden_unless_it_is_asked_for() {
        let value = json!({
            "auth": "Bearer ${{ secrets.token }}", "all": "${{ {'k': secrets.token, 'n': int(secrets.pin)} }}",
            "plain": "${{ inputs.n }}", "fails": "${{ secrets.token.size() / 0 == 1 || true }}",
        });
        let template = Template::parse(&value).expect("readable");
        assert_eq!(template.secrets(), BTreeSet::from(["pin".to_owned(), "token".to_owned()]));
        let hidden = json!({"auth": "Bearer ***", "all": "***", "plain": 3, "fails": "***"});
        assert_eq!(template.resolve(&scope()), Ok(hidden));

        let mut secrets = Secrets::default();
        secrets.insert("token", Zeroizing::new("canary".to_owned()));
        let error = template.resolve_revealing(&scope(), &secrets).expect_err("one is missing");
        assert_eq!(error.to_string(), "/all: there is no secret pin");
        secrets.insert("pin", Zeroizing::new("4711".to_owned()));
        let (clear, revealed) = template.resolve_revealing(&scope(), &secrets).expect("all are there");
        let shown = json!({"auth": "Bearer canary", "all": {"k": "canary", "n": 4711}, "plain": 3, "fails": true});
        assert_eq!(clear, shown);
        let revealed: BTreeSet<&str> = revealed.iter().map(|text| text.as_str()).collect();
        assert_eq!(revealed, BTreeSet::from(["canary", "k", "n", "4711"]));
        let open = Scope { secrets: Some(Arc::new(secrets)), ..scope() };
        assert_eq!(template.resolve(&open), Ok(shown));
    }

    #[test]
    fn a_failure_names_the_expression_its_place_and_no_value() {
        let template = Template::parse(&json!({"a": ["x ${{ 1 + inputs.name }}"]})).expect("readable");
        let failure = Failure::from(template.resolve(&scope()).expect_err("no sum"));
        assert_eq!(failure.message, "/a/0: + does not work on a number and text");
        let blame = json!({"source": "1 + inputs.name", "offset": 2, "pointer": "/a/0"});
        assert_eq!(serde_json::to_value(&failure.expression).ok(), Some(blame));
        let other = serde_json::to_value(Failure::new(Class::Timeout, "late")).expect("JSON");
        assert_eq!(other, json!({"type": "TIMEOUT", "message": "late"}));
    }

    #[test]
    fn references_are_listed_with_their_places() {
        let template =
            Template::parse(&json!({"a": ["x${{ inputs.b }}{{ nodes.c.output }}"], "d": "${{ trigger.e }}"}));
        let template = template.expect("readable");
        let found: Vec<String> = template.references().iter().map(|(at, path)| format!("{at} {path}")).collect();
        assert_eq!(found, ["/a/0 inputs.b", "/a/0 nodes.c.output", "/d trigger.e"]);
    }

    #[test]
    fn data_is_kept_out_of_expressions_with_secrets() {
        let ids: Vec<u64> = (0..1_000).collect();
        let scope = Scope { inputs: Arc::new(json!({ "ids": ids })), ..Scope::default() };
        let secrets = Secrets::from_iter([("KEY".to_owned(), Zeroizing::new("canary".to_owned()))]);
        let reveal =
            |source: &str| Template::parse(&json!(source)).expect("a template").resolve_revealing(&scope, &secrets);
        assert!(reveal("${{ [secrets.KEY, inputs.ids[1]] }}").is_ok());
        let refused = reveal("${{ {'key': secrets.KEY, 'ids': inputs.ids} }}").expect_err("too much to mask");
        assert!(refused.to_string().contains("do not combine secrets with other data"), "{refused}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in r#"(\$|\{\{|\}\}|'|"|\\|inputs|\.n|é| ){0,16}"#) {
            if let Ok(template) = Template::parse(&json!(text)) {
                let _ = template.resolve(&scope());
            }
        }

        #[test]
        fn text_without_double_braces_is_left_alone(text in r"[a-z$ '\\}é]{0,30}") {
            let template = Template::parse(&json!([text])).expect("readable");
            prop_assert_eq!(template.resolve(&scope()), Ok(json!([text])));
        }

        #[test]
        fn no_result_is_larger_than_its_budget(repeats in 0usize..8, limit in 0usize..3_000) {
            let template = Template::parse(&json!(vec!["${{ inputs.big }}"; repeats])).expect("readable");
            if let Ok(value) = template.resolve_within(&scope(), limit) {
                prop_assert!(value.to_string().len() <= limit);
            }
        }
    }
}
