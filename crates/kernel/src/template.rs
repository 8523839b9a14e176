//! Expressions inside a JSON value: `${{ … }}` in any text, read once, resolved per execution.
//!
//! `{{ … }}` is read as well. `$${{` stands for a plain `${{`; a plain `{{` is written `${{ '{{' }}`.
//!
//! Invariants
//! - A text that is exactly one expression keeps the type of its value; among other text a value
//!   becomes text: null is nothing, lists and objects are compact JSON.
//! - A result is never looked at again, so data cannot bring an expression in.
//! - Bytes are charged before they are copied; a result can be stored: no NUL, not too deep.
//! - Keys of objects are plain text.
//!
//! Not here: putting values in (`template::resolve`), what an expression means (`expression`), which
//! fields hold templates (`kind`).

mod resolve;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use zeroize::Zeroizing;

use crate::expression::{EvalError, Expression, ParseError, Path, Root, Scope};
use crate::failure::{Class, Failure};
use crate::secret::Secrets;

/// The most bytes that one template may resolve to, unless its caller says otherwise.
pub const MAX_RESOLVED_BYTES: usize = 1 << 20;
/// How deep a resolved value may nest: what is stored is read back by a parser that stops at 128.
pub const MAX_RESOLVED_DEPTH: usize = 100;

/// A JSON value with its expressions parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    root: Shape,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// No expression anywhere inside.
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

/// What is in the expressions of a value, each with a JSON pointer to its text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Every path that is looked at.
    pub paths: Vec<(String, Path)>,
    /// Every expression that cannot be read.
    pub errors: Vec<(String, ParseError)>,
}

/// Why a template has no value, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}{}{cause}", if pointer.is_empty() { "" } else { ": " })]
pub struct ResolveError {
    /// A JSON pointer into the template.
    pub pointer: String,
    pub cause: Cause,
}

/// What was wrong there.
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
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Failure {
        Failure::new(Class::ValidationError, error.to_string())
    }
}

impl Template {
    /// Reads every expression of a value; all that cannot be read is in the answer, each with a
    /// JSON pointer to its text.
    pub fn parse(value: &Value) -> Result<Template, Vec<(String, ParseError)>> {
        let mut errors = Vec::new();
        let root = shape(value, &mut String::new(), &mut errors);
        if errors.is_empty() { Ok(Template { root }) } else { Err(errors) }
    }

    /// Every path that is looked at, each with a JSON pointer to its text.
    pub fn references(&self) -> Vec<(String, &Path)> {
        let mut found = Vec::new();
        self.root.references(&mut String::new(), &mut found);
        found
    }

    /// The one expression that the whole value is, if it is.
    pub fn expression(&self) -> Option<&Expression> {
        if let Shape::Whole(expression) = &self.root { Some(expression) } else { None }
    }

    /// The secrets that are looked at, by name.
    pub fn secrets(&self) -> BTreeSet<String> {
        let named = |path: &Path| match path.root() {
            Ok((Root::Secret { name }, _)) => Some(name.to_owned()),
            _ => None,
        };
        self.references().into_iter().filter_map(|(_, path)| named(path)).collect()
    }

    /// The value with its secrets in it, and every text that an expression made with one.
    pub fn resolve_revealing(
        &self,
        scope: &Scope,
        secrets: &Arc<Secrets>,
    ) -> Result<(Value, Vec<Zeroizing<String>>), ResolveError> {
        let scope = Scope { secrets: Some(Arc::clone(secrets)), ..scope.clone() };
        resolve::resolve(&self.root, &scope, MAX_RESOLVED_BYTES)
    }

    /// The value with every expression replaced by what it yields; one that mentions a secret, which is not at hand
    /// here, by `***`.
    pub fn resolve(&self, scope: &Scope) -> Result<Value, ResolveError> {
        self.resolve_within(scope, MAX_RESOLVED_BYTES)
    }

    /// [`Template::resolve`] with a budget of the caller's.
    pub fn resolve_within(&self, scope: &Scope, limit: usize) -> Result<Value, ResolveError> {
        resolve::resolve(&self.root, scope, limit).map(|(value, _)| value)
    }
}

/// Looks through a value whose expressions may not all be readable.
pub fn survey(value: &Value) -> Survey {
    let mut errors = Vec::new();
    let root = shape(value, &mut String::new(), &mut errors);
    let template = Template { root };
    let paths = template.references().into_iter().map(|(pointer, path)| (pointer, path.clone()));
    Survey { paths: paths.collect(), errors }
}

/// Might this text hold an expression? If so its final value is only known at run time.
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
        Value::String(text) => text_shape(text).unwrap_or_else(|error| {
            errors.push((pointer.clone(), error));
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

/// What holds no expression is kept as one value, to be copied at once.
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

fn text_shape(text: &str) -> Result<Shape, ParseError> {
    let mut parts = split(text)?;
    if parts.len() == 1 {
        return Ok(match parts.remove(0) {
            Part::Text(text) => Shape::Plain(Value::String(text)),
            Part::Expression(expression) => Shape::Whole(expression),
        });
    }
    Ok(if parts.is_empty() { Shape::Plain(Value::String(String::new())) } else { Shape::Mixed(parts) })
}

/// Cuts a text into plain text and expressions.
fn split(text: &str) -> Result<Vec<Part>, ParseError> {
    let mut parts = Vec::new();
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
        let end = close(text, start)?;
        let expression = Expression::parse(&text[start..end])
            .map_err(|error| ParseError { offset: error.offset + start, ..error })?;
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(Part::Expression(expression));
        rest = end + 2;
    }
    plain.push_str(&text[rest..]);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(parts)
}

/// Where the expression ends that starts here: braces inside quotes are text.
fn close(text: &str, start: usize) -> Result<usize, ParseError> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text[start..].char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[start + at..].starts_with("}}") => return Ok(start + at),
            None => {}
        }
    }
    Err(ParseError { offset: start - 2, message: "the expression is never closed: add }}".to_owned() })
}

impl Shape {
    fn references<'t>(&'t self, pointer: &mut String, found: &mut Vec<(String, &'t Path)>) {
        let length = pointer.len();
        let mut inner = |segment: &str, shape: &'t Shape, found: &mut Vec<_>| {
            push_segment(pointer, segment);
            shape.references(pointer, found);
            pointer.truncate(length);
        };
        match self {
            Shape::Plain(_) => {}
            Shape::List(items) => items.iter().enumerate().for_each(|(at, item)| inner(&at.to_string(), item, found)),
            Shape::Object(fields) => fields.iter().for_each(|(name, field)| inner(name, field, found)),
            Shape::Whole(expression) => {
                found.extend(expression.references().into_iter().map(|path| (pointer.clone(), path)))
            }
            Shape::Mixed(parts) => {
                let expressions = parts.iter().filter_map(|part| match part {
                    Part::Text(_) => None,
                    Part::Expression(expression) => Some(expression),
                });
                found.extend(expressions.flat_map(Expression::references).map(|path| (pointer.clone(), path)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

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
                {"a":"x ${{ inputs. }}","b":["${{ 'open }}"],"c/d":"{{ ","e":"${{ }}","ok":"${{ inputs.n }}"}  =>  refused: /a: expected a field name, found the end (at offset 14) | /b/0: the expression is never closed: add }} (at offset 1) | /c~1d: the expression is never closed: add }} (at offset 0) | /e: expected a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 4)
                "{{{ inputs.n }}}"  =>  refused: : expected a path such as inputs.order_id or nodes.fetch.output, found { (at offset 2)
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
                {"a":[0,"${{ inputs.name.first }}"]}  =>  failed: /a/1: inputs.name.first: cannot take field first of text
                {"a":"${{ inputs.nul }}"}  =>  failed: /a: the result holds a NUL character, which cannot be stored
                {"a":"x${{ inputs.nul }}"}  =>  failed: /a: the result holds a NUL character, which cannot be stored
                ["${{ inputs.big }}","${{ inputs.big }}"]  =>  failed: /1: the result is larger than 1000 bytes
                "${{ inputs.big }}${{ inputs.big }}"  =>  failed: the result is larger than 1000 bytes
                "${{ secrets.a }}"  =>  "***"
            "#]],
        );
    }

    #[test]
    fn secrets_are_masked_until_they_are_revealed() {
        let template = json!({"a": "Bearer ${{ secrets.A }}", "b": "${{ secrets.B }}", "c": "${{ inputs.n }}"});
        let template = Template::parse(&template).expect("readable");
        assert_eq!(template.secrets(), BTreeSet::from(["A".to_owned(), "B".to_owned()]));
        assert_eq!(template.resolve(&scope()), Ok(json!({"a": "Bearer ***", "b": "***", "c": 3})));
        let pair = |name: &str, value: &str| (name.to_owned(), Zeroizing::new(value.to_owned()));
        let secrets: Arc<Secrets> = Arc::new([pair("A", "s3cret"), pair("B", "t0ken")].into_iter().collect());
        let (value, revealed) = template.resolve_revealing(&scope(), &secrets).expect("a value");
        assert_eq!(value, json!({"a": "Bearer s3cret", "b": "t0ken", "c": 3}));
        assert_eq!(revealed, [Zeroizing::new("s3cret".to_owned()), Zeroizing::new("t0ken".to_owned())]);
        let one: Arc<Secrets> = Arc::new([pair("A", "s3cret")].into_iter().collect());
        let missing = template.resolve_revealing(&scope(), &one).expect_err("no B");
        assert_eq!(missing.to_string(), "/b: there is no secret B here");
        assert_eq!(format!("{secrets:?}"), r#"{"A", "B"}"#);
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
    fn references_are_listed_with_their_places() {
        let template =
            Template::parse(&json!({"a": ["x${{ inputs.b }}{{ nodes.c.output }}"], "d": "${{ trigger.e }}"}));
        let template = template.expect("readable");
        let found: Vec<String> = template.references().iter().map(|(at, path)| format!("{at} {path}")).collect();
        assert_eq!(found, ["/a/0 inputs.b", "/a/0 nodes.c.output", "/d trigger.e"]);
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
