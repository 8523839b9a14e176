//! The kinds of nodes, and the configuration of each kind: the field `with` of a node.
//!
//!     with ──check──▶ problems, when a version is published
//!     with ──resolve(scope)──▶ input ──prepare──▶ Config, at run time
//!
//! Invariants
//! - Each kind is one file. The file has the kind's `SPEC`, its typed configuration, one reader for publishing and run
//!   time, and its decisions. Each kind has one line in `kinds!` below.
//! - At publishing, a field that contains a template is not checked; at run time every field is checked.
//! - Every problem at run time is a `VALIDATION_ERROR`, and no message repeats a value.
//!
//! Not here: performing nodes (`engine`), which nodes an expression may refer to (`parse`).

pub mod condition;
pub mod delay;
pub mod emit_event;
pub mod fail;
pub mod for_each;
pub mod http_request;
pub mod log;
pub mod registry;
pub(crate) mod schema;
pub mod switch;
pub mod task;
pub mod transform;
pub mod wait_for_event;
pub mod workflow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::Node;
use crate::definition::fields::{CheckTime, Fields, Problem};
use crate::expression::template::{Survey, Template};
use crate::expression::{Expression, Scope};
use crate::run::failure::{Class, Failure};
use registry::{Spec, kinds};

kinds! {
    HttpRequest => http_request,
    Condition => condition,
    Switch => switch,
    Transform => transform,
    Delay => delay,
    Log => log,
    Fail => fail,
    EmitEvent => emit_event,
    Workflow => workflow,
    ForEach => for_each,
    WaitForEvent => wait_for_event,
    Task => task,
}

/// The branches that a node of this kind may take; empty for a kind that does not branch.
pub fn labels(kind: Kind, with: &Value) -> Vec<String> {
    (kind.spec().labels)(with)
}

/// The branches that this configuration names; empty if every node of the kind has the same branches.
pub fn own_labels(kind: Kind, with: &Value) -> Vec<String> {
    Some(labels(kind, with)).filter(|own| *own != labels(kind, &Value::Null)).unwrap_or_default()
}

/// The fields of a configuration that may hold secrets.
pub fn secret_fields(kind: Kind) -> &'static [&'static str] {
    kind.spec().secret_fields
}

/// The paths that a configuration uses, with pointers from `with`.
pub fn references(kind: Kind, with: &Value) -> Survey {
    (kind.spec().references)(with)
}

/// A node's input: its configuration with every template resolved.
pub fn resolve(kind: Kind, with: &Value, scope: &Scope) -> Result<Value, Failure> {
    (kind.spec().resolve)(with, scope)
}

/// The description of a kind, for people and for editors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Kind))]
#[serde(rename_all = "camelCase")]
pub struct Description {
    pub kind: String,
    /// What it does.
    pub summary: String,
    /// How engines perform a node of this kind: `computes`, `calls`, `waits` (for a time), `waits_for_answer`,
    /// `spawns` (starts a child) or `loops`.
    pub manner: String,
    /// The branches that every node of the kind may take, for `needs: node.branch`; empty if it does not branch.
    pub labels: Vec<String>,
    /// The fields of `with` that may contain secrets.
    pub secret_fields: Vec<String>,
    /// JSON Schema of `with`.
    pub schema: Value,
}

/// Describes a kind.
pub fn describe(kind: Kind) -> Description {
    Description {
        kind: kind.name().to_owned(),
        summary: kind.spec().summary.to_owned(),
        manner: kind.manner().name().to_owned(),
        labels: labels(kind, &Value::Null),
        secret_fields: secret_fields(kind).iter().map(|name| (*name).to_owned()).collect(),
        schema: schema(kind),
    }
}

/// The paths that the `if` of a node uses.
pub fn condition_references(node: &Node) -> Survey {
    let source = node.condition.clone().map(Value::String);
    condition::references("", source.as_ref())
}

/// The paths that the configuration of a node uses, and those that its `if` uses.
pub fn surveys(node: &Node) -> [Survey; 2] {
    [references(node.kind, &node.with), condition_references(node)]
}

/// Is the `if` of the node true? A node without `if` may always start.
pub fn may_start(node: &Node, scope: &Scope) -> Result<bool, Failure> {
    let Some(source) = &node.condition else { return Ok(true) };
    let expression = Expression::parse(source);
    let expression = expression.map_err(|error| Failure::new(Class::ValidationError, format!("/if: {error}")))?;
    Ok(expression.test(scope)?)
}

/// A configuration without some of its fields.
fn without(with: &Value, names: &[&str]) -> Value {
    match with {
        Value::Object(fields) => {
            let rest = fields.iter().filter(|(name, _)| !names.contains(&name.as_str()));
            Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

fn resolve_all(templates: &Value, scope: &Scope) -> Result<Value, Failure> {
    if templates.is_null() {
        return Ok(Value::Null);
    }
    let template = Template::parse(templates).map_err(|errors| {
        let all: Vec<String> = errors.iter().map(|(pointer, error)| format!("{pointer}: {error}")).collect();
        Failure::new(Class::ValidationError, all.join("; "))
    })?;
    Ok(template.resolve(scope)?)
}

/// How a kind reads its configuration. Returns `None` if a field is wrong, or if its value is not known yet.
type Read<T> = fn(&mut Fields<'_, '_>) -> Option<T>;

fn check_with<T>(with: &Value, known: &[&str], read: Read<T>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(mut fields) = Fields::open(with, "", known, CheckTime::Publish, &mut problems) {
        read(&mut fields);
    }
    problems
}

fn prepare_with<T>(input: &Value, known: &[&str], read: Read<T>) -> Result<T, Failure> {
    let mut problems = Vec::new();
    let config = Fields::open(input, "", known, CheckTime::Run, &mut problems).and_then(|mut fields| read(&mut fields));
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => {
            let all: Vec<String> = problems.iter().map(Problem::to_string).collect();
            Err(Failure::new(Class::ValidationError, all.join("; ")))
        }
    }
}

/// Reads a required field as text for people; a value that is not text is written as JSON.
fn message(fields: &mut Fields<'_, '_>, name: &str) -> Option<String> {
    if !fields.has(name) {
        fields.require(name);
    }
    Some(match fields.get(name) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use serde_json::json;
    use std::sync::Arc;

    fn scope() -> Scope {
        let inputs = json!({
            "host": "example.test", "n": 7, "none": null, "wait": "2m", "crlf": "a\r\nb: c", "status": [200, 404],
            "object": {"a": 1}, "yes": true, "word": "x",
        });
        Scope { inputs: Arc::new(inputs), ..Scope::default() }
    }

    /// At publishing, then at run time.
    fn check(kind: Kind, configs: &[Value], expected: Expect) {
        let mut seen = String::new();
        for with in configs {
            seen.push_str(&format!("{with}\n"));
            for problem in super::check(kind, with) {
                seen.push_str(&format!("  publish  {problem}\n"));
            }
            match resolve(kind, with, &scope()).and_then(|input| prepare(kind, &input)) {
                Ok(config) => seen.push_str(&format!("  run      {config:?}\n")),
                Err(failure) => seen.push_str(&format!("  run      {:?} {}\n", failure.class, failure.message)),
            }
        }
        expected.assert_eq(&seen);
    }

    #[test]
    fn http_requests() {
        check(
            Kind::HttpRequest,
            &[
                json!({"url": "https://example.test/a"}),
                json!({
                    "method": "POST", "url": "http://${{ inputs.host }}/", "headers": {"X-N": "${{ inputs.n }}", "x-no": null},
                    "query": {"q": ["a", 1], "none": "${{ inputs.none }}"}, "body": {"n": "${{ inputs.n }}"},
                    "expect_status": "${{ inputs.status }}", "max_response_bytes": 5,
                }),
                json!({"url": "HTTPS://e.test", "form": {"a": true}, "expect_status": 201}),
                json!({"url": "https://e.test", "text": "hi ${{ inputs.n }}", "method": "${{ inputs.word }}"}),
                json!({}),
                json!([]),
                json!({
                    "method": "get", "url": "ftp://e.test", "headers": {"a b": "x", "c": "d\ne", "Content-Length": "1", "o": {}},
                    "query": [], "body": 1, "form": {}, "expect_status": [99], "max_response_bytes": 1 << 30, "timeot": 1, "querry": {},
                }),
                json!({"url": "https://e.test", "headers": {"a": "${{ inputs.crlf }}"}}),
                json!({"url": "https:///x"}),
                json!({"url": "${{ inputs.none }}"}),
                json!({"url": "${{ inputs.object }}"}),
                json!({"url": "https://e.test/${{ inputs.crlf }}", "query": "${{ inputs.n }}"}),
            ],
            expect![[r#"
                {"url":"https://example.test/a"}
                  run      HttpRequest(Config { method: Get, url: "https://example.test/a", headers: [], query: [], body: Empty, expect_status: [], max_response_bytes: 1048576 })
                {"method":"POST","url":"http://${{ inputs.host }}/","headers":{"X-N":"${{ inputs.n }}","x-no":null},"query":{"q":["a",1],"none":"${{ inputs.none }}"},"body":{"n":"${{ inputs.n }}"},"expect_status":"${{ inputs.status }}","max_response_bytes":5}
                  run      HttpRequest(Config { method: Post, url: "http://example.test/", headers: [("X-N", "7")], query: [("q", "a"), ("q", "1")], body: Json(Object {"n": Number(7)}), expect_status: [200, 404], max_response_bytes: 5 })
                {"url":"HTTPS://e.test","form":{"a":true},"expect_status":201}
                  run      HttpRequest(Config { method: Get, url: "HTTPS://e.test", headers: [], query: [], body: Form([("a", "true")]), expect_status: [201], max_response_bytes: 1048576 })
                {"url":"https://e.test","text":"hi ${{ inputs.n }}","method":"${{ inputs.word }}"}
                  run      ValidationError /method: must be one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS
                {}
                  publish  url is missing
                  run      ValidationError url is missing
                []
                  publish  must be an object, not a list
                  run      ValidationError must be an object, not a list
                {"method":"get","url":"ftp://e.test","headers":{"a b":"x","c":"d\ne","Content-Length":"1","o":{}},"query":[],"body":1,"form":{},"expect_status":[99],"max_response_bytes":1073741824,"timeot":1,"querry":{}}
                  publish  /timeot: unknown field timeot: use one of method, url, headers, query, body, form, text, expect_status, max_response_bytes
                  publish  /querry: unknown field querry, did you mean query?
                  publish  /method: must be one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS
                  publish  /url: must start with http:// or https://
                  publish  /headers/o: must be text, a number or a boolean, not an object
                  publish  /headers/a b: is not a header name
                  publish  /headers/Content-Length: is set by the service and cannot be given
                  publish  /headers/c: holds a line break or another control character
                  publish  /query: must be an object, not a list
                  publish  /form: give only one of body, form and text
                  publish  /expect_status: must be a status from 100 to 599 or a list of them
                  publish  /max_response_bytes: must be a whole number from 1 to 10485760
                  run      ValidationError /timeot: unknown field timeot: use one of method, url, headers, query, body, form, text, expect_status, max_response_bytes; /querry: unknown field querry, did you mean query?; /method: must be one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS; /headers/o: must be text, a number or a boolean, not an object; /headers/a b: is not a header name; /headers/Content-Length: is set by the service and cannot be given; /headers/c: holds a line break or another control character; /query: must be an object, not a list; /form: give only one of body, form and text; /expect_status: must be a status from 100 to 599 or a list of them; /max_response_bytes: must be a whole number from 1 to 10485760
                {"url":"https://e.test","headers":{"a":"${{ inputs.crlf }}"}}
                  run      ValidationError /headers/a: holds a line break or another control character
                {"url":"https:///x"}
                  publish  /url: names no host
                  run      HttpRequest(Config { method: Get, url: "https:///x", headers: [], query: [], body: Empty, expect_status: [], max_response_bytes: 1048576 })
                {"url":"${{ inputs.none }}"}
                  run      ValidationError /url: url is null
                {"url":"${{ inputs.object }}"}
                  run      ValidationError /url: must be text, not an object
                {"url":"https://e.test/${{ inputs.crlf }}","query":"${{ inputs.n }}"}
                  run      ValidationError /query: must be an object, not a number
            "#]],
        );
    }

    #[test]
    fn switches() {
        let case = |case: Value| json!({"value": "${{ inputs.word }}", "cases": [case], "default": "d"});
        check(
            Kind::Switch,
            &[
                case(json!({"equals": "x", "label": "a"})),
                case(json!({"equals": ["x", null], "label": "a"})),
                case(json!({"if": "inputs.n > 5", "label": "a"})),
                json!({"cases": [{"if": "inputs.yes", "label": "a"}]}),
                json!({"cases": [{"equals": 1, "label": "a"}]}),
                json!({}),
                json!({"cases": {"x": "a"}}),
                json!({"cases": []}),
                case(json!({"equals": 1, "if": "inputs.n", "label": "error"})),
                case(json!({"label": "a b"})),
                case(json!({"if": "inputs.n >", "lable": "a"})),
            ],
            expect![[r#"
                {"value":"${{ inputs.word }}","cases":[{"equals":"x","label":"a"}],"default":"d"}
                  run      Switch(Config { value: String("x"), cases: [Case { test: Equals([String("x")]), label: Label("a") }], default: Some(Label("d")) })
                {"value":"${{ inputs.word }}","cases":[{"equals":["x",null],"label":"a"}],"default":"d"}
                  run      Switch(Config { value: String("x"), cases: [Case { test: Equals([String("x"), Null]), label: Label("a") }], default: Some(Label("d")) })
                {"value":"${{ inputs.word }}","cases":[{"if":"inputs.n > 5","label":"a"}],"default":"d"}
                  run      Switch(Config { value: String("x"), cases: [Case { test: If(Expression("inputs.n > 5")), label: Label("a") }], default: Some(Label("d")) })
                {"cases":[{"if":"inputs.yes","label":"a"}]}
                  run      Switch(Config { value: Null, cases: [Case { test: If(Expression("inputs.yes")), label: Label("a") }], default: None })
                {"cases":[{"equals":1,"label":"a"}]}
                  publish  value is missing
                  run      ValidationError value is missing
                {}
                  publish  cases is missing
                  run      ValidationError cases is missing
                {"cases":{"x":"a"}}
                  publish  /cases: must be a list of cases, each with a label and equals or if
                  run      ValidationError /cases: must be a list of cases, each with a label and equals or if
                {"cases":[]}
                  publish  /cases: must have 1 to 100 cases
                  run      ValidationError /cases: must have 1 to 100 cases
                {"value":"${{ inputs.word }}","cases":[{"equals":1,"if":"inputs.n","label":"error"}],"default":"d"}
                  publish  /cases/0/label: error is the branch of a failed node: choose another word
                  publish  /cases/0/if: give either equals or if, not both
                  run      ValidationError /cases/0/label: error is the branch of a failed node: choose another word; /cases/0/if: give either equals or if, not both
                {"value":"${{ inputs.word }}","cases":[{"label":"a b"}],"default":"d"}
                  publish  /cases/0/label: "a b" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'
                  publish  /cases/0: equals or if is missing
                  run      ValidationError /cases/0/label: "a b" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'; /cases/0: equals or if is missing
                {"value":"${{ inputs.word }}","cases":[{"if":"inputs.n >","lable":"a"}],"default":"d"}
                  publish  /cases/0/lable: unknown field lable, did you mean label?
                  publish  /cases/0/if: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 10)
                  run      ValidationError /cases/0/lable: unknown field lable, did you mean label?; /cases/0/if: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 10)
            "#]],
        );
        let with = json!({"cases": [{"label": "a"}, {"label": "b"}, {"label": "a"}], "default": "c"});
        assert_eq!(labels(Kind::Switch, &with), ["a", "b", "c"]);
    }

    #[test]
    fn events() {
        check(
            Kind::EmitEvent,
            &[
                json!({"type": "order.placed", "data": {"n": "${{ inputs.n }}"}}),
                json!({"type": "${{ inputs.word }}", "stream_type": "order", "stream_id": "00000000-0000-0000-0000-000000000007", "metadata": {"a": 1}}),
                json!({}),
                json!({"type": "${{ inputs.crlf }}", "stream_id": "7", "stream_type": "workflow_queue", "metadata": 1, "dta": 1}),
            ],
            expect![[r#"
                {"type":"order.placed","data":{"n":"${{ inputs.n }}"}}
                  run      EmitEvent(Config { event_type: "order.placed", data: Object {"n": Number(7)}, metadata: None, stream_id: None, stream_type: "execution" })
                {"type":"${{ inputs.word }}","stream_type":"order","stream_id":"00000000-0000-0000-0000-000000000007","metadata":{"a":1}}
                  run      EmitEvent(Config { event_type: "x", data: Object {}, metadata: Some({"a": Number(1)}), stream_id: Some(00000000-0000-0000-0000-000000000007), stream_type: "order" })
                {}
                  publish  type is missing
                  run      ValidationError type is missing
                {"type":"${{ inputs.crlf }}","stream_id":"7","stream_type":"workflow_queue","metadata":1,"dta":1}
                  publish  /dta: unknown field dta, did you mean data?
                  publish  /stream_type: workflow_queue is reserved for the queue: choose another
                  publish  /stream_id: must be a UUID
                  publish  /metadata: must be an object, not a number
                  run      ValidationError /dta: unknown field dta, did you mean data?; /type: must be one line of 1 to 200 bytes; /stream_type: workflow_queue is reserved for the queue: choose another; /stream_id: must be a UUID; /metadata: must be an object, not a number
            "#]],
        );
    }

    #[test]
    fn children() {
        check(
            Kind::Workflow,
            &[
                json!({"workflow": "resize", "input": {"n": "${{ inputs.n }}"}}),
                json!({"workflow": "${{ inputs.word }}", "version": 3, "detached": true}),
                json!({}),
                json!({"workflow": " ", "version": 0, "detached": "yes", "inputs": {}}),
            ],
            expect![[r#"
                {"workflow":"resize","input":{"n":"${{ inputs.n }}"}}
                  run      Workflow(Config { workflow: "resize", version: None, input: Some(Object {"n": Number(7)}), detached: false })
                {"workflow":"${{ inputs.word }}","version":3,"detached":true}
                  run      Workflow(Config { workflow: "x", version: Some(3), input: None, detached: true })
                {}
                  publish  workflow is missing
                  run      ValidationError workflow is missing
                {"workflow":" ","version":0,"detached":"yes","inputs":{}}
                  publish  /inputs: unknown field inputs, did you mean input?
                  publish  /workflow: must be the name of a workflow
                  publish  /version: must be a whole number from 1 to 4294967295
                  publish  /detached: must be true or false, not text
                  run      ValidationError /inputs: unknown field inputs, did you mean input?; /workflow: must be the name of a workflow; /version: must be a whole number from 1 to 4294967295; /detached: must be true or false, not text
            "#]],
        );
    }

    #[test]
    fn loops() {
        check(
            Kind::ForEach,
            &[
                json!({"items": "${{ inputs.status }}", "do": {"kind": "LOG", "with": {"message": "${{ item }}"}}}),
                json!({"items": [1], "parallel": "${{ inputs.n }}", "on_item_error": "collect", "do": {"kind": "LOG"}}),
                json!({"items": "${{ inputs.word }}", "do": {"kind": "LOG"}}),
                json!({"items": {}, "parallel": 101, "on_item_error": "stop"}),
                json!({}),
            ],
            expect![[r#"
                {"items":"${{ inputs.status }}","do":{"kind":"LOG","with":{"message":"${{ item }}"}}}
                  run      ForEach(Config { items: [Number(200), Number(404)], parallel: 10, on_item_error: Fail })
                {"items":[1],"parallel":"${{ inputs.n }}","on_item_error":"collect","do":{"kind":"LOG"}}
                  run      ForEach(Config { items: [Number(1)], parallel: 7, on_item_error: Collect })
                {"items":"${{ inputs.word }}","do":{"kind":"LOG"}}
                  run      ValidationError /items: must be a list, not text
                {"items":{},"parallel":101,"on_item_error":"stop"}
                  publish  do is missing
                  publish  /items: must be a list, not an object
                  publish  /parallel: must be a whole number from 1 to 100
                  publish  /on_item_error: must be one of fail, continue, collect
                  run      ValidationError /items: must be a list, not an object; /parallel: must be a whole number from 1 to 100; /on_item_error: must be one of fail, continue, collect
                {}
                  publish  do is missing
                  publish  items is missing
                  run      ValidationError items is missing
            "#]],
        );
        let with = json!({"items": "${{ nodes.a.output }}", "do": {
            "kind": "HTTP_REQUEST", "if": "item.ok", "with": {"url": "${{ item.url }}", "headers": {"x": "${{ secrets.s }}"}},
        }});
        let seen = references(Kind::ForEach, &with).paths;
        let seen: Vec<String> = seen.iter().map(|(at, path)| format!("{at} {path}")).collect();
        let expected =
            ["/items nodes.a.output", "/do/if item.ok", "/do/with/url item.url", "/do/with/headers/x secrets.s"];
        assert_eq!(seen, expected);
    }

    #[test]
    fn waits() {
        check(
            Kind::WaitForEvent,
            &[
                json!({}),
                json!({"data": {"ok": {"type": "boolean", "required": true}}, "on_timeout": "continue", "default": {"n": "${{ inputs.n }}"}}),
                json!({"event": "order.paid", "match": "event.data.id == inputs.n"}),
                json!({"data": {"ok": {"type": "bool"}}, "event": "a", "match": "event.", "on_timeout": "skip"}),
                json!({"match": "true"}),
                json!({"data": {"ok": {"type": "boolean"}}, "default": {"ok": true}}),
                json!({"data": {"ok": {"type": "boolean", "required": true}}, "on_timeout": "continue", "default": {"more": 1}}),
                json!({"data": {"ok": {"type": "boolean"}}, "on_timeout": "${{ inputs.word }}", "default": {"ok": "no"}}),
            ],
            expect![[r#"
                {}
                  run      WaitForEvent(Config { event: None, matches: None, data: Null, on_timeout: Fail, default: Null })
                {"data":{"ok":{"type":"boolean","required":true}},"on_timeout":"continue","default":{"n":"${{ inputs.n }}"}}
                  run      WaitForEvent(Config { event: None, matches: None, data: Object {"ok": Object {"type": String("boolean"), "required": Bool(true)}}, on_timeout: Continue, default: Object {"n": Number(7)} })
                {"event":"order.paid","match":"event.data.id == inputs.n"}
                  run      WaitForEvent(Config { event: Some("order.paid"), matches: Some("event.data.id == inputs.n"), data: Null, on_timeout: Fail, default: Null })
                {"data":{"ok":{"type":"bool"}},"event":"a","match":"event.","on_timeout":"skip"}
                  publish  /data/ok/type: unknown type bool, did you mean boolean?
                  publish  /data: give either data or event, not both
                  publish  /match: expected a field name, found the end (at offset 6)
                  publish  /on_timeout: must be one of fail, continue
                  run      ValidationError /data/ok/type: unknown type bool, did you mean boolean?; /data: give either data or event, not both; /match: expected a field name, found the end (at offset 6); /on_timeout: must be one of fail, continue
                {"match":"true"}
                  publish  /match: the field `event` is missing: set it to the type of the event to wait for
                  run      ValidationError /match: the field `event` is missing: set it to the type of the event to wait for
                {"data":{"ok":{"type":"boolean"}},"default":{"ok":true}}
                  publish  /default: is used only with on_timeout: continue; otherwise the node fails when its timeout ends
                  run      WaitForEvent(Config { event: None, matches: None, data: Object {"ok": Object {"type": String("boolean")}}, on_timeout: Fail, default: Object {"ok": Bool(true)} })
                {"data":{"ok":{"type":"boolean","required":true}},"on_timeout":"continue","default":{"more":1}}
                  publish  /default: ok is missing
                  publish  /default/more: unknown input more: use one of ok
                  run      WaitForEvent(Config { event: None, matches: None, data: Object {"ok": Object {"type": String("boolean"), "required": Bool(true)}}, on_timeout: Continue, default: Object {"more": Number(1)} })
                {"data":{"ok":{"type":"boolean"}},"on_timeout":"${{ inputs.word }}","default":{"ok":"no"}}
                  publish  /default/ok: must be a boolean, not text
                  run      ValidationError /on_timeout: must be one of fail, continue
            "#]],
        );
        let with =
            json!({"data": {"ok": {"type": "boolean", "required": true}, "why": {"type": "string", "default": "-"}}});
        let judge = |data: Value| wait_for_event::check_answer(&with, Some(data)).map_err(|problems| problems.len());
        assert_eq!(judge(json!({"ok": true})), Ok(json!({"ok": true, "why": "-"})));
        assert_eq!(judge(json!({"ok": "yes", "more": 1})), Err(2));
        assert_eq!(wait_for_event::check_answer(&json!({}), Some(json!([1]))), Ok(json!([1])), "nothing is asked for");
        let late = |default: Value| {
            let mut with = with.clone();
            (with["on_timeout"], with["default"]) = (json!("continue"), default);
            let Ok(Config::WaitForEvent(config)) = prepare(Kind::WaitForEvent, &with) else { panic!("a wait") };
            config.expired().map_err(|failure| failure.message)
        };
        assert_eq!(late(json!({"ok": false})), Ok(json!({"timed_out": true, "data": {"ok": false, "why": "-"}})));
        assert_eq!(late(Value::Null), Ok(json!({"timed_out": true, "data": null})), "nothing was said");
        assert!(late(json!({"ok": 1})).is_err_and(|message| message.starts_with("/default/ok: ")));
        let mut scope = scope();
        scope.event = Arc::new(json!({"type": "a", "data": {"id": 7}}));
        let fits = |source| wait_for_event::fits(Some(source), &scope).map_err(|failure| failure.class);
        assert_eq!(fits("event.data.id == inputs.n"), Ok(true));
        assert_eq!(fits("event.data.id == 8"), Ok(false));
        assert_eq!(fits("event.data.id"), Err(Class::ValidationError));
    }

    #[test]
    fn tasks() {
        check(
            Kind::Task,
            &[
                json!({"queue": "thumbs", "input": {"n": "${{ inputs.n }}"}}),
                json!({"queue": "${{ inputs.word }}", "lease": "5m"}),
                json!({"activity": {"task_queue": "py", "type": "resize"}, "input": 1}),
                json!({}),
                json!({"queue": "a", "activity": {"task_queue": "${{ inputs.word }}"}}),
                json!({"queue": "", "lease": "10ms"}),
                json!({"queue": "a", "lease": "2h"}),
            ],
            expect![[r#"
                {"queue":"thumbs","input":{"n":"${{ inputs.n }}"}}
                  run      Task(Config { queue: "thumbs", input: Object {"n": Number(7)}, lease: 60s, activity: None })
                {"queue":"${{ inputs.word }}","lease":"5m"}
                  run      Task(Config { queue: "x", input: Null, lease: 300s, activity: None })
                {"activity":{"task_queue":"py","type":"resize"},"input":1}
                  run      Task(Config { queue: "py", input: Number(1), lease: 60s, activity: Some(Activity { task_queue: "py", name: "resize" }) })
                {}
                  publish  queue is missing
                  run      ValidationError queue is missing
                {"queue":"a","activity":{"task_queue":"${{ inputs.word }}"}}
                  publish  /activity/task_queue: must be one line of 1 to 128 bytes, and no template
                  publish  /activity: type is missing
                  publish  /activity: give either queue or activity, not both
                  run      ValidationError /activity: type is missing; /activity: give either queue or activity, not both
                {"queue":"","lease":"10ms"}
                  publish  /queue: must be one line of 1 to 128 bytes
                  publish  /lease: is shorter than 1s
                  run      ValidationError /queue: must be one line of 1 to 128 bytes; /lease: is shorter than 1s
                {"queue":"a","lease":"2h"}
                  publish  /lease: is longer than 1h
                  run      ValidationError /lease: is longer than 1h
            "#]],
        );
    }

    #[test]
    fn conditions() {
        check(
            Kind::Condition,
            &[
                json!({"if": "inputs.n > 5"}),
                json!({"if": " ${{ inputs.n > 5 }} "}),
                json!({"if": true}),
                json!({"if": "inputs.n >"}),
                json!({"if": "${{ inputs.a }} && ${{ inputs.b }}"}),
                json!({"if": "${{ inputs.a-b }}"}),
                json!({"if": "inputs.a == '{{ b }}'"}),
                json!({"if": 5}),
                json!({}),
                json!({"if": null, "unless": "x"}),
            ],
            expect![[r#"
                {"if":"inputs.n > 5"}
                  run      Condition(Config { expression: Expression("inputs.n > 5") })
                {"if":" ${{ inputs.n > 5 }} "}
                  run      Condition(Config { expression: Expression("inputs.n > 5") })
                {"if":true}
                  run      Condition(Config { expression: Expression("true") })
                {"if":"inputs.n >"}
                  publish  /if: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 10)
                  run      ValidationError /if: expected a value or a path such as inputs.order_id or nodes.fetch.output, found the end (at offset 10)
                {"if":"${{ inputs.a }} && ${{ inputs.b }}"}
                  publish  /if: must be one expression: put ${{ }} around all of it, or omit it (at offset 0)
                  run      ValidationError /if: must be one expression: put ${{ }} around all of it, or omit it (at offset 0)
                {"if":"${{ inputs.a-b }}"}
                  publish  /if: - means minus here: write inputs["a-b"] (at offset 12)
                  run      ValidationError /if: - means minus here: write inputs["a-b"] (at offset 12)
                {"if":"inputs.a == '{{ b }}'"}
                  run      Condition(Config { expression: Expression("inputs.a == '{{ b }}'") })
                {"if":5}
                  publish  /if: must be an expression such as inputs.total > 10 (at offset 0)
                  run      ValidationError /if: must be an expression such as inputs.total > 10 (at offset 0)
                {}
                  publish  if is missing
                  run      ValidationError if is missing
                {"if":null,"unless":"x"}
                  publish  /unless: unknown field unless: use one of if
                  publish  /if: if is null
                  run      ValidationError /unless: unknown field unless: use one of if; /if: if is null
            "#]],
        );
    }

    #[test]
    fn a_condition_takes_true_or_false_or_fails() {
        let table = [
            ("inputs.n > 5", Ok("true")),
            ("inputs.n > 7", Ok("false")),
            ("inputs.yes", Ok("true")),
            ("inputs.none", Ok("false")),
            ("inputs.word", Err("a condition must be true or false, not text")),
        ];
        for (source, expected) in table {
            let Ok(Config::Condition(config)) = prepare(Kind::Condition, &json!({"if": source})) else {
                panic!("{source}")
            };
            let decided = condition::decide(&config.expression, &scope());
            let decided = decided.map(String::from).map_err(|failure| {
                assert_eq!(failure.class, Class::ValidationError);
                failure.message
            });
            assert_eq!(decided, expected.map(str::to_owned).map_err(str::to_owned), "{source}");
        }
    }

    #[test]
    fn delays() {
        check(
            Kind::Delay,
            &[
                json!({"for": "1m30s"}),
                json!({"for": "${{ inputs.wait }}"}),
                json!({"for": "${{ inputs.n }}s"}),
                json!({"until": "2030-01-31T09:00:00+01:00"}),
                json!({"for": 5}),
                json!({"for": "5"}),
                json!({"for": "31d"}),
                json!({"for": "${{ inputs.word }}"}),
                json!({"until": "tomorrow"}),
                json!({"for": "1s", "until": "2030-01-31T09:00:00Z"}),
                json!({}),
            ],
            expect![[r#"
                {"for":"1m30s"}
                  run      Delay(For(90s))
                {"for":"${{ inputs.wait }}"}
                  run      Delay(For(120s))
                {"for":"${{ inputs.n }}s"}
                  run      Delay(For(7s))
                {"until":"2030-01-31T09:00:00+01:00"}
                  run      Delay(Until(2030-01-31T08:00:00Z))
                {"for":5}
                  publish  /for: must be a duration such as 5s, 1m30s or 250ms, not a number
                  run      ValidationError /for: must be a duration such as 5s, 1m30s or 250ms, not a number
                {"for":"5"}
                  publish  /for: has no unit: write s for seconds or ms for milliseconds after the number
                  run      ValidationError /for: has no unit: write s for seconds or ms for milliseconds after the number
                {"for":"31d"}
                  publish  /for: is longer than 30d
                  run      ValidationError /for: is longer than 30d
                {"for":"${{ inputs.word }}"}
                  run      ValidationError /for: must be whole numbers with units, such as 5s, 1m30s, 250ms, 2h or 1d
                {"until":"tomorrow"}
                  publish  /until: must be an RFC 3339 time such as 2030-01-31T09:00:00Z
                  run      ValidationError /until: must be an RFC 3339 time such as 2030-01-31T09:00:00Z
                {"for":"1s","until":"2030-01-31T09:00:00Z"}
                  publish  /until: give either for or until, not both
                  run      ValidationError /until: give either for or until, not both
                {}
                  publish  for is missing
                  run      ValidationError for is missing
            "#]],
        );
    }

    #[test]
    fn a_delay_lasts_no_longer_than_it_may() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let wait = |config: delay::Config| config.wait(now).map_err(|failure| failure.message);
        let days = |days: u64| Ok(std::time::Duration::from_secs(days * 24 * 60 * 60));
        let at = |text: &str| delay::Config::Until(text.parse().expect("a time"));
        assert_eq!(wait(delay::Config::For(delay::LONGEST)), days(30));
        assert_eq!(wait(at("2026-01-02T00:00:00Z")), days(1));
        assert_eq!(wait(at("2020-01-01T00:00:00Z")), days(0));
        assert_eq!(wait(at("2026-01-31T00:00:01Z")), Err("/until: is more than 30d away".to_owned()));
    }

    #[test]
    fn transforms_logs_and_fails() {
        check(
            Kind::Transform,
            &[
                json!({"value": {"n": "${{ inputs.n }}"}}),
                json!({"value": "${{ inputs.none }}"}),
                json!({}),
                json!({"valeu": 1}),
            ],
            expect![[r#"
                {"value":{"n":"${{ inputs.n }}"}}
                  run      Transform(Config { value: Object {"n": Number(7)} })
                {"value":"${{ inputs.none }}"}
                  run      Transform(Config { value: Null })
                {}
                  publish  value is missing
                  run      ValidationError value is missing
                {"valeu":1}
                  publish  /valeu: unknown field valeu, did you mean value?
                  run      ValidationError /valeu: unknown field valeu, did you mean value?
            "#]],
        );
        check(
            Kind::Log,
            &[
                json!({"message": "n is ${{ inputs.n }}"}),
                json!({"message": "${{ inputs.object }}", "level": "warn", "data": [1]}),
                json!({"message": "${{ inputs.none }}"}),
                json!({"level": "loud"}),
            ],
            expect![[r#"
                {"message":"n is ${{ inputs.n }}"}
                  run      Log(Config { level: Info, message: "n is 7", data: None })
                {"message":"${{ inputs.object }}","level":"warn","data":[1]}
                  run      Log(Config { level: Warn, message: "{\"a\":1}", data: Some(Array [Number(1)]) })
                {"message":"${{ inputs.none }}"}
                  run      Log(Config { level: Info, message: "", data: None })
                {"level":"loud"}
                  publish  /level: must be one of debug, info, warn, error
                  publish  message is missing
                  run      ValidationError /level: must be one of debug, info, warn, error; message is missing
            "#]],
        );
        check(
            Kind::Fail,
            &[json!({"message": "no ${{ inputs.word }}"}), json!({}), json!("x")],
            expect![[r#"
                {"message":"no ${{ inputs.word }}"}
                  run      Fail(Config { message: "no x" })
                {}
                  publish  message is missing
                  run      ValidationError message is missing
                "x"
                  publish  must be an object, not text
                  run      ValidationError must be an object, not text
            "#]],
        );
        let failure = fail::Config { message: "stop".to_owned() }.failure();
        assert_eq!((failure.class, failure.is_retryable()), (Class::ControlFlowError, false));
    }
}
