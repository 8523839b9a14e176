//! Reads a document into a definition and its plan, and reports all of its problems.
//!
//!     text ──source──▶ document ──read──▶ Definition ──Plan::new──▶ Plan
//!                         │                   └──references──▶ checks the paths in templates
//!                         └── every step adds its problems; only a document without problems becomes a version
//!
//! There are two forms. In documents by authors, `nodes` is a map, and each node lists the nodes that it `needs`. In
//! the stored form, `nodes` is a list, and `edges` connect the nodes. One document may mix both forms, and a stored
//! graph can be published again.
//!
//! Invariants
//! - All problems are reported at once, each with a JSON pointer into the document.
//! - One mistake is reported as one problem. For example, a node that cannot be read still exists, so edges to it are
//!   no further problems.
//! - The work is proportional to the size of the document, because depth, pointer length and suggestions are limited.
//!
//! Not here: YAML, lines and columns (`source`), the fields of each kind (`kind`).

mod read;
mod references;
pub mod schema;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::definition::fields::{child, unknown};
use crate::definition::plan::{Invalid, Plan};
pub use crate::definition::problem::{Code, Problem};
use crate::definition::source;
use crate::definition::{Definition, Edge, MAX_DEPTH};
use crate::expression::template::push_segment;
use crate::ids::NodeKey;
use crate::run::failure::Profiles;
pub use read::LONGEST_TIMEOUT;

/// The most problems that are reported at once.
pub const MAX_PROBLEMS: usize = 1_000;
/// The longest pointer to a value, in bytes. Every problem has such a pointer.
pub const MAX_POINTER_LEN: usize = 1_024;

/// Checks a document in either form.
pub fn check(document: &Value) -> Result<(Definition, Plan), Vec<Problem>> {
    check_by(document, &Profiles::default())
}

/// The same as [`check`]; nodes without `retry` use these profiles.
pub fn check_by(document: &Value, profiles: &Profiles) -> Result<(Definition, Plan), Vec<Problem>> {
    let mut problems = Vec::new();
    if !is_sound(document, &mut String::new(), 1, &mut problems) {
        return Err(cut(problems));
    }
    let draft = read::document(document, profiles, &mut problems);
    let plan = Plan::new(&draft.definition);
    for why in plan.as_ref().err().into_iter().flatten().filter(|why| !draft.is_consequence(why)) {
        problems.push(draft.problem_of(why, &problems));
    }
    references::check(&draft, &mut problems);
    references::suggest_nodes(document, &draft, &mut problems);
    match plan {
        Ok(plan) if problems.is_empty() => Ok((draft.definition, plan)),
        _ => Err(cut(problems)),
    }
}

/// Checks a document as text, YAML or JSON. Problems have a line and a column, and are sorted by them.
pub fn check_text(text: &str) -> Result<(Definition, Plan), Vec<Problem>> {
    check_text_by(text, &Profiles::default())
}

/// The same as [`check_text`]; nodes without `retry` use these profiles.
pub fn check_text_by(text: &str, profiles: &Profiles) -> Result<(Definition, Plan), Vec<Problem>> {
    let source = source::read(text);
    let mut problems = source.problems.clone();
    let found = match source.value.as_ref().map(|document| check_by(document, profiles)) {
        Some(Ok(good)) if problems.is_empty() => return Ok(good),
        Some(Err(found)) => found,
        Some(Ok(_)) | None => Vec::new(),
    };
    problems.extend(found.into_iter().map(|problem| source.locate(problem)));
    // The problem "and N more" has no location, and stays last.
    problems.sort_by_key(|problem| (problem.code == Code::TooMany, problem.line, problem.column));
    Err(cut(problems))
}

/// Reads a stored graph, as `serde_json::to_value` of a definition made it.
///
/// The configurations of its nodes were checked when it was published, and are not checked again. A build with stricter
/// rules must still run graphs that an older build accepted.
pub fn check_stored(graph: &Value) -> Result<(Definition, Plan), Vec<Problem>> {
    let problem = |message: String| Problem::new(Code::BadValue, "", message);
    let definition: Definition = serde::Deserialize::deserialize(graph)
        .map_err(|error: serde_json::Error| vec![problem(format!("is not a stored graph: {error}"))])?;
    let plan = Plan::new(&definition);
    let plan = plan.map_err(|invalid| invalid.iter().map(|why| problem(why.to_string())).collect::<Vec<_>>())?;
    Ok((definition, plan))
}

/// A hash of the content of a definition. The order of keys, nodes and edges does not change it.
pub fn content_hash(definition: &Definition) -> String {
    let mut sorted = definition.clone();
    sorted.nodes.sort_by(|a, b| a.key.cmp(&b.key));
    sorted.edges.sort_by(|a, b| (&a.from, &a.to, &a.label).cmp(&(&b.from, &b.to, &b.label)));
    let value = serde_json::to_value(&sorted).expect("a definition is plain JSON");
    let digest = Sha256::digest(canonical(value).to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(canonical).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, field)| (name, canonical(field))).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(fields.into_iter().collect())
        }
        other => other,
    }
}

/// A document that was read as far as possible, with the pointers of its parts.
#[derive(Debug, Default)]
struct Draft {
    definition: Definition,
    /// The pointer of each node, in the order of the definition's nodes.
    node_at: Vec<String>,
    /// The pointer of each edge, in the order of the definition's edges.
    edge_at: Vec<String>,
    /// Nodes whose kind or `on_error` is not known: their branches cannot be checked.
    unclear: Vec<NodeKey>,
    /// An edge could not be read, so a piece that seems disconnected may be connected.
    lost_edges: bool,
}

impl Draft {
    /// Does this problem only follow from another problem that is reported already?
    fn is_consequence(&self, invalid: &Invalid) -> bool {
        match invalid {
            Invalid::UnknownLabel { node, .. } => self.unclear.contains(node),
            Invalid::Disconnected(_) => self.lost_edges,
            _ => false,
        }
    }

    fn problem_of(&self, invalid: &Invalid, problems: &[Problem]) -> Problem {
        let at = self.place(invalid);
        let code = match invalid {
            Invalid::Dangling { missing, .. } => {
                let known = self.definition.nodes.iter().map(|node| node.key.as_str());
                return unknown(Code::DanglingEdge, "node", at, missing.as_str(), known, problems);
            }
            Invalid::DuplicateNode(_) => Code::DuplicateNode,
            Invalid::DuplicateEdge { .. } => Code::DuplicateEdge,
            Invalid::Cycle(_) => Code::Cycle,
            Invalid::Disconnected(_) => Code::Disconnected,
            Invalid::UnknownLabel { .. } => Code::UnknownBranch,
        };
        Problem::new(code, at, invalid.to_string())
    }

    fn place(&self, invalid: &Invalid) -> String {
        let node = |key: &NodeKey| {
            let at = self.definition.nodes.iter().rposition(|node| node.key == *key);
            at.map_or_else(String::new, |at| self.node_at[at].clone())
        };
        let mut edges = self.definition.edges.iter().zip(&self.edge_at);
        // In `edges`, an edge is an object with two ends. In `needs`, an edge is one text.
        let end = |at: &String, name: &str| if at.starts_with("/edges/") { child(at, name) } else { at.clone() };
        let edge = match invalid {
            Invalid::DuplicateNode(key) => return node(key),
            Invalid::Cycle(keys) | Invalid::Disconnected(keys) => return keys.first().map(node).unwrap_or_default(),
            Invalid::Dangling { from, to, missing } => {
                let name = if from == missing { "from" } else { "to" };
                let found = edges.find(|(edge, _)| edge.from == *from && edge.to == *to);
                return found.map(|(_, at)| end(at, name)).unwrap_or_default();
            }
            Invalid::DuplicateEdge { from, to } => edges.rfind(|(edge, _)| edge.from == *from && edge.to == *to),
            Invalid::UnknownLabel { node, to, label, .. } => {
                let is_it = |edge: &Edge| edge.from == *node && edge.to == *to && edge.label.as_ref() == Some(label);
                return edges.find(|(edge, _)| is_it(edge)).map(|(_, at)| end(at, "label")).unwrap_or_default();
            }
        };
        edge.map_or_else(String::new, |(_, at)| at.clone())
    }
}

/// Can the document be read? A value that nests too deeply, or whose pointer is too long, makes it unreadable. A NUL
/// character is a problem too, but the document can still be read.
fn is_sound(value: &Value, pointer: &mut String, depth: usize, problems: &mut Vec<Problem>) -> bool {
    let mut problem = |code: Code, message: &str| {
        let shown: String = pointer.replace('\0', "\u{fffd}").chars().take(MAX_POINTER_LEN).collect();
        problems.push(Problem::new(code, shown, message));
    };
    if pointer.len() > MAX_POINTER_LEN {
        problem(
            Code::TooLarge,
            &format!("is at a pointer longer than {MAX_POINTER_LEN} bytes: shorten the names or nest less"),
        );
        return false;
    }
    let nul = match value {
        Value::String(text) => text.contains('\0'),
        Value::Object(fields) => fields.keys().any(|name| name.contains('\0')),
        _ => false,
    };
    if nul {
        problem(Code::Nul, "holds a NUL character, which cannot be stored");
    }
    if depth > MAX_DEPTH && (value.is_array() || value.is_object()) {
        problem(Code::TooDeep, &format!("nests deeper than {MAX_DEPTH}"));
        return false;
    }
    let length = pointer.len();
    let mut inner = |segment: &str, value: &Value| {
        push_segment(pointer, segment);
        let sound = is_sound(value, pointer, depth + 1, problems);
        pointer.truncate(length);
        sound
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().fold(true, |all, (at, item)| inner(&at.to_string(), item) && all)
        }
        Value::Object(fields) => fields.iter().fold(true, |all, (name, field)| inner(name, field) && all),
        _ => true,
    }
}

/// Cuts a long list of problems and adds how many more there are.
fn cut(mut problems: Vec<Problem>) -> Vec<Problem> {
    if problems.len() > MAX_PROBLEMS {
        let message = format!("and {} more problems", problems.len() - MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem::new(Code::TooMany, "", message));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Kind, MAX_EDGES, MAX_NODES};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    fn accept(document: &Value) -> Definition {
        match check(document) {
            Ok((definition, _)) => definition,
            Err(problems) => panic!("{problems:#?}"),
        }
    }

    fn refuse(document: &Value, expected: Expect) {
        let seen = match check(document) {
            Ok(_) => "accepted\n".to_owned(),
            Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
        };
        expected.assert_eq(&seen);
    }

    fn authored() -> Value {
        json!({
            "version": 1,
            "name": "order-enrichment",
            "description": "Fetch an order, branch on amount, notify.",
            "inputs": {"order_id": {"type": "string", "required": true}},
            "defaults": {"retry": {"max_attempts": 5, "backoff": "exponential", "initial": "1s", "max": "1m"}, "timeout": "30s"},
            "timeout": "1h",
            "concurrency": 10,
            "key_concurrency": 1,
            "max_attempts": 4,
            "nodes": {
                "fetch": {
                    "kind": "HTTP_REQUEST",
                    "with": {"url": "https://api.example.test/orders/${{ inputs.order_id }}"},
                    "retry": {"max_attempts": 2, "factor": 3},
                },
                "is_large": {
                    "kind": "CONDITION",
                    "needs": "fetch",
                    "with": {"if": "nodes.fetch.output.body.total > 1000"},
                },
                "wait": {"kind": "DELAY", "needs": ["is_large.true"], "with": {"for": "5s"}, "timeout": null},
                "notify": {
                    "kind": "LOG",
                    "description": "Tell someone.",
                    "needs": ["is_large.false", "wait"],
                    "when": "any_success",
                    "on_error": "continue",
                    "with": {"message": "${{ nodes.fetch.output.body }}"},
                },
            },
            "outputs": {"total": "${{ steps.fetch.output.body.total }}"},
        })
    }

    fn wired() -> Value {
        let mut wired = authored();
        let nodes = wired["nodes"].take();
        let nodes = nodes.as_object().expect("a map").iter().map(|(key, node)| {
            let mut node = node.clone();
            node["key"] = json!(key);
            node.as_object_mut().expect("an object").remove("needs");
            node
        });
        wired["nodes"] = nodes.collect();
        wired["edges"] = json!([
            {"from": "fetch", "to": "is_large"},
            {"from": "is_large", "to": "wait", "label": true},
            {"from": "is_large", "to": "notify", "label": "false"},
            {"from": "wait", "to": "notify"},
        ]);
        wired
    }

    #[test]
    fn both_forms_make_one_definition() {
        let definition = accept(&authored());
        assert_eq!(definition, accept(&wired()));
        let shown = serde_json::to_string_pretty(&definition).expect("JSON");
        expect![[r#"
            {
              "name": "order-enrichment",
              "description": "Fetch an order, branch on amount, notify.",
              "nodes": [
                {
                  "key": "fetch",
                  "kind": "HTTP_REQUEST",
                  "with": {
                    "url": "https://api.example.test/orders/${{ inputs.order_id }}"
                  },
                  "when": "all_success",
                  "on_error": "fail",
                  "retry": {
                    "max_attempts": 2,
                    "initial_ms": 1000,
                    "factor": 3,
                    "max_ms": 60000
                  },
                  "timeout_ms": 30000
                },
                {
                  "key": "is_large",
                  "kind": "CONDITION",
                  "with": {
                    "if": "nodes.fetch.output.body.total > 1000"
                  },
                  "when": "all_success",
                  "on_error": "fail",
                  "retry": {
                    "max_attempts": 5,
                    "initial_ms": 1000,
                    "factor": 2,
                    "max_ms": 60000
                  },
                  "timeout_ms": 30000
                },
                {
                  "key": "wait",
                  "kind": "DELAY",
                  "with": {
                    "for": "5s"
                  },
                  "when": "all_success",
                  "on_error": "fail",
                  "retry": {
                    "max_attempts": 5,
                    "initial_ms": 1000,
                    "factor": 2,
                    "max_ms": 60000
                  }
                },
                {
                  "key": "notify",
                  "kind": "LOG",
                  "description": "Tell someone.",
                  "with": {
                    "message": "${{ nodes.fetch.output.body }}"
                  },
                  "when": "any_success",
                  "on_error": "continue",
                  "retry": {
                    "max_attempts": 5,
                    "initial_ms": 1000,
                    "factor": 2,
                    "max_ms": 60000
                  },
                  "timeout_ms": 30000
                }
              ],
              "edges": [
                {
                  "from": "fetch",
                  "to": "is_large"
                },
                {
                  "from": "is_large",
                  "to": "wait",
                  "label": "true"
                },
                {
                  "from": "is_large",
                  "to": "notify",
                  "label": "false"
                },
                {
                  "from": "wait",
                  "to": "notify"
                }
              ],
              "outputs": {
                "total": "${{ steps.fetch.output.body.total }}"
              },
              "timeout_ms": 3600000,
              "inputs": {
                "order_id": {
                  "type": "string",
                  "required": true
                }
              },
              "concurrency": 10,
              "key_concurrency": 1,
              "max_attempts": 4
            }"#]]
        .assert_eq(&shown);
    }

    #[test]
    fn what_was_read_can_be_stored_read_back_and_published_again() {
        let (definition, plan) = check(&authored()).expect("a good document");
        let stored = serde_json::to_value(&definition).expect("JSON");
        assert_eq!(check_stored(&stored), Ok((definition.clone(), plan.clone())));
        assert_eq!(check(&stored), Ok((definition, plan)));
    }

    #[test]
    fn an_empty_graph_is_valid() {
        for document in
            [json!({"nodes": {}}), json!({"nodes": []}), json!({"nodes": null}), json!({"nodes": [], "edges": []})]
        {
            assert_eq!(check(&document), Ok((Definition::default(), Plan::default())), "{document}");
        }
        assert_eq!(check_stored(&json!({"nodes": [], "edges": []})), Ok((Definition::default(), Plan::default())));
    }

    #[test]
    fn a_document_that_is_no_object_is_refused() {
        refuse(
            &json!([]),
            expect![[r#"
            must be an object, not a list
        "#]],
        );
        refuse(
            &json!(null),
            expect![[r#"
            must be an object, not null
        "#]],
        );
        refuse(
            &json!({}),
            expect![[r#"
            nodes is missing
        "#]],
        );
        refuse(
            &json!({"nodes": 5, "edges": [{"from": "a", "to": "b"}]}),
            expect![[r#"
            /nodes: must be a map of nodes or a list of them, not a number
        "#]],
        );
    }

    #[test]
    fn every_problem_of_a_document_is_reported_at_once() {
        refuse(
            &json!({
                "version": 2,
                "nam": "x",
                "name": " ",
                "inputs": [],
                "timeout": "0s",
                "concurrency": 0,
                "key_concurrency": "many",
                "max_attempts": 1.5,
                "defaults": {"retry": {"max_attempts": 101, "initial": "2m", "max": "1m", "factor": 2, "backoff": "linear"}, "tiemout": "1s"},
                "nodes": {
                    "a": {"kind": "HTP_REQUEST", "with": {"url": "${{ inputs. }}"}},
                    "b": {"knid": "LOG", "needs": ["a.true", "aa", 5, "x y"], "when": "sometimes", "on_error": "ignore", "retry": 3},
                    "c": {"kind": "LOG", "needs": "b", "with": {"mesage": "x"}, "timeout": 5, "timeout_ms": 5},
                    "d": {"kind": "CONDITION", "needs": ["b.error", "c.error"], "with": {"if": "inputs.a-b"}},
                    "e f": {"kind": "LOG", "with": {"message": "m"}},
                    "g": [],
                },
                "edges": {},
                "outputs": {"x": "${{ nodes.cc.output }}", "y": "${{ secrets.k }}", "z": "{{"},
            }),
            expect![[r#"
                /nam: unknown field nam, did you mean name?
                /version: must be 1
                /name: must not be blank and must be one line
                /inputs: must be an object, not a list
                /timeout: must be greater than zero
                /concurrency: must be a whole number from 1 to 100000
                /key_concurrency: must be a whole number from 1 to 100000
                /max_attempts: must be a whole number from 1 to 100
                /defaults/tiemout: unknown field tiemout, did you mean timeout?
                /defaults/retry/backoff: must be one of exponential, fixed
                /defaults/retry/backoff: give either factor or backoff, not both
                /defaults/retry/max_attempts: must be a whole number from 1 to 100
                /defaults/retry/initial: is longer than max
                /nodes/a/kind: unknown kind HTP_REQUEST, did you mean HTTP_REQUEST?
                /nodes/b/knid: unknown field knid, did you mean kind?
                /nodes/b/retry: must be an object, not a number
                /nodes/b/on_error: must be one of fail, continue
                /nodes/b/when: must be one of all_success, any_success, all_done
                /nodes/b/needs/2: must be the name of a node, or node.branch, not a number
                /nodes/b/needs/3: "x y" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'
                /nodes/c/timeout_ms: give either timeout or timeout_ms, not both
                /nodes/c/with/mesage: unknown field mesage, did you mean message?
                /nodes/d/with/if: - means minus here: write inputs["a-b"] (at offset 8)
                /nodes/e f: "e f" is not a name: use 1 to 64 letters, digits, '_' or '-', starting with a letter or '_'
                /nodes/g: must be an object, not a list
                /edges: must be a list of edges, not an object
                /nodes/b/needs/1: unknown node aa, did you mean a?
                /nodes/d/needs/1: c has no branch error; with on_error: continue it takes the branch error when it fails
                /nodes/a/with/url: expected a field name, found the end (at offset 11)
                /outputs/z: the expression is never closed: add }} (at offset 0)
                /outputs/x: unknown node cc, did you mean c?
                /outputs/y: secrets.k cannot be used here: only in headers, query, body, form and text of an HTTP_REQUEST
            "#]],
        );
    }

    #[test]
    fn problems_of_the_graph_have_their_places() {
        let log = |needs: Value| json!({"kind": "LOG", "with": {"message": "m"}, "needs": needs});
        refuse(
            &json!({"nodes": {"a": log(json!("c")), "b": log(json!("a")), "c": log(json!(["b", "x"]))}}),
            expect![[r#"
                /nodes/c/needs/1: unknown node x: use one of a, b, c
                /nodes/a: nodes a -> b -> c -> a form a cycle
            "#]],
        );
        refuse(
            &json!({"nodes": {"a": log(json!([])), "b": log(json!("a")), "c": log(json!([]))}}),
            expect![[r#"
            /nodes/c: nodes c are not connected with the rest of the graph
        "#]],
        );
        refuse(
            &json!({"nodes": {"a": log(json!([])), "b": log(json!(["a.true", "a", "a"])), "c": log(json!("a.true"))}}),
            expect![[r#"
                /nodes/b/needs/0: a has no branch true; it does not branch
                /nodes/b/needs/2: the edge a -> b is given twice
                /nodes/c/needs: a has no branch true; it does not branch
            "#]],
        );
        let node = |key: &str| json!({"id": key, "kind": "LOG", "with": {"message": "m"}});
        refuse(
            &json!({
                "nodes": [node("a"), node("b"), node("a"), {"kind": "LOG", "with": {"message": "m"}}, {"key": "k", "id": "k", "kind": "FAIL"}, 7],
                "edges": [{"from": "a", "to": "b"}, {"from": "a"}, {"from": "b", "to": "z", "lable": "x"}, {"from": "a", "to": "b", "label": 5}, 3],
            }),
            expect![[r#"
                /nodes/3: key is missing
                /nodes/4/id: give either key or id, not both
                /nodes/4/with: message is missing
                /nodes/5: must be an object, not a number
                /edges/1: to is missing
                /edges/2/lable: unknown field lable, did you mean label?
                /edges/3/label: must be text, not a number
                /edges/4: must be an object, not a number
                /nodes/2: two nodes have the key a
                /edges/2/to: unknown node z: use one of a, b, a, k
            "#]],
        );
    }

    #[test]
    fn a_policy_is_inherited_field_by_field() {
        let policy = |defaults: Value, retry: Value| {
            let node = json!({"kind": "TRANSFORM", "with": {"value": 1}, "retry": retry});
            let policy = accept(&json!({"nodes": {"a": node}, "defaults": {"retry": defaults}})).nodes[0].retry;
            (policy.max_attempts, policy.initial_ms, policy.factor, policy.max_ms)
        };
        let table = [
            (json!(null), json!(null), (3, 1_000, 2, 30_000)),
            (json!({"max_attempts": 7, "max": "1m"}), json!({"max_attempts": 1}), (1, 1_000, 2, 60_000)),
            (json!({"backoff": "fixed"}), json!({"initial": "5s"}), (3, 5_000, 1, 30_000)),
            (json!({"backoff": "fixed"}), json!({"backoff": "exponential", "initial_ms": 0}), (3, 0, 2, 30_000)),
            (json!(null), json!({"initial": "10m"}), (3, 600_000, 2, 600_000)),
            (json!({"max": "1s"}), json!({"initial": "10m"}), (3, 600_000, 2, 1_000)),
        ];
        for (defaults, retry, expected) in table {
            assert_eq!(policy(defaults.clone(), retry.clone()), expected, "{defaults} {retry}");
        }
    }

    #[test]
    fn a_template_sees_only_what_came_before() {
        let see = |path: &str| json!({"kind": "TRANSFORM", "with": {"value": ["x", format!("<${{{{ {path} }}}}>")]}});
        let with = |path: &str, needs: &str| {
            let mut node = see(path);
            node["needs"] = json!(needs);
            node
        };
        refuse(
            &json!({
                "nodes": {
                    "a": see("nodes.c.output"),
                    "b": with("nodes.a.output && nodes.b.status", "a"),
                    "c": with("nodes.a.output && nodes.b.error && nodes.cc.output", "b"),
                    "d": with("nodes.a.output && nodes.c.output", "b"),
                    "e": {"kind": "CONDITION", "needs": "a", "with": {"if": "nodes.d.output && inputs.x"}},
                    "h": {"kind": "CONDITION", "needs": "a", "with": {"if": "env.x"}},
                    "i": {"kind": "CONDITION", "needs": "a", "with": {"if": "inputs.x && nodes.a"}},
                    "j": {"kind": "CONDITION", "needs": "a", "with": {"if": "inputs.x && a.output"}},
                },
                "outputs": ["${{ nodes.d.output }}", "${{ nodes.zzz.output }}"],
            }),
            expect![[r#"
                /nodes/h/with/if: unknown root env: use one of inputs, nodes, vars, secrets, trigger, execution, workspace (at offset 0)
                /nodes/i/with/if: nodes.a must be followed by output, status or error (at offset 12)
                /nodes/j/with/if: unknown root a, did you mean nodes.a? (at offset 12)
                /nodes/a/with/value/1: c does not come before this node: add it to needs, or an edge from it
                /nodes/b/with/value/1: b cannot use its own values
                /nodes/c/with/value/1: unknown node cc, did you mean c?
                /nodes/d/with/value/1: c does not come before this node: add it to needs, or an edge from it
                /nodes/e/with/if: d does not come before this node: add it to needs, or an edge from it
                /outputs/1: unknown node zzz: use one of a, b, c, d, e, h, i, j
            "#]],
        );
    }

    #[test]
    fn limits_are_refused_with_their_numbers() {
        let node = json!({"kind": "TRANSFORM", "with": {"value": 1}});
        let nodes: serde_json::Map<String, Value> =
            (0..=MAX_NODES).map(|at| (format!("n{at}"), node.clone())).collect();
        refuse(
            &json!({"nodes": nodes, "edges": [{"from": "x", "to": "y"}]}),
            expect![[r#"
            /nodes: there are 2001 nodes, more than 2000
        "#]],
        );
        let edges = vec![json!({"from": "a", "to": "b"}); MAX_EDGES + 1];
        refuse(
            &json!({"nodes": {"a": node, "b": node}, "edges": edges}),
            expect![[r#"
            /edges: there are 10001 edges, more than 10000
        "#]],
        );
        let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(check(&json!({"nodes": {}, "outputs": deep(MAX_DEPTH - 1)})).is_ok());
        let problems = check(&json!({"nodes": 5, "outputs": deep(500)})).expect_err("too deep");
        let ends: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(ends, ["nests deeper than 64"]);
        let long = "x".repeat(MAX_POINTER_LEN);
        let problems = check(&json!({"nodes": {}, "outputs": {long: [1]}})).expect_err("too long");
        assert_eq!(problems[0].message, "is at a pointer longer than 1024 bytes: shorten the names or nest less");
        let many: serde_json::Map<String, Value> = (0..5_000).map(|at| (format!("f{at}"), json!(1))).collect();
        let problems = check(&Value::Object(many)).expect_err("unknown fields");
        assert_eq!(problems.last().map(Problem::to_string).as_deref(), Some("and 4001 more problems"));
    }

    #[test]
    fn a_nul_is_refused_wherever_it_hides() {
        refuse(
            &json!({"nodes": {"a": {"kind": "LOG", "with": {"message": "a\0b", "data": [{"k\0": "v\0"}]}}}}),
            expect![[r#"
                /nodes/a/with/message: holds a NUL character, which cannot be stored
                /nodes/a/with/data/0: holds a NUL character, which cannot be stored
                /nodes/a/with/data/0/k�: holds a NUL character, which cannot be stored
            "#]],
        );
    }

    #[test]
    fn a_stored_graph_that_cannot_be_read_is_refused() {
        for (graph, part) in [
            (json!({}), "missing field `nodes`"),
            (json!(5), "is not a stored graph"),
            (json!({"nodes": [], "edges": [{"from": "a", "to": "b"}]}), "names an unknown node a"),
            (json!({"nodes": [{"key": "a", "kind": "NEW_KIND", "retry": {}}], "edges": []}), "NEW_KIND"),
        ] {
            let problems = check_stored(&graph).expect_err("a bad graph");
            assert!(problems[0].message.contains(part), "{problems:?}");
        }
    }

    #[test]
    fn a_hash_depends_on_content_and_not_on_order() {
        let hash = content_hash(&accept(&authored()));
        assert_eq!(hash.len(), 64);
        assert_eq!(hash, content_hash(&accept(&reversed(&authored()))));
        assert_eq!(hash, content_hash(&accept(&wired())));
        let mut other = authored();
        other["nodes"]["wait"]["with"]["for"] = json!("6s");
        assert_ne!(hash, content_hash(&accept(&other)));
        expect!["ed8816a1a63ab59e8f14fe8f8fd9e1c75701240befe0f1d208c18e33aba448a1"].assert_eq(&hash);
    }

    fn reversed(value: &Value) -> Value {
        match value {
            Value::Object(fields) => fields.iter().rev().map(|(name, field)| (name.clone(), reversed(field))).collect(),
            Value::Array(items) => items.iter().map(reversed).collect(),
            other => other.clone(),
        }
    }

    fn any_with() -> impl Strategy<Value = (Kind, Value)> {
        let data = any_json();
        prop_oneof![
            Just((
                Kind::HttpRequest,
                json!({"url": "https://e.test/${{ inputs.a }}", "headers": {"a": 1}, "body": [null]})
            )),
            Just((Kind::Condition, json!({"if": "inputs.a == 1.50"}))),
            Just((Kind::Delay, json!({"for": "1m30s"}))),
            data.clone().prop_map(|value| (Kind::Transform, json!({"value": value}))),
            data.prop_map(|value| (Kind::Log, json!({"message": "m", "data": value}))),
            Just((Kind::Fail, json!({"message": "no"}))),
        ]
    }

    fn any_json() -> impl Strategy<Value = Value> + Clone {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            // Through text, serde_json keeps only short fractions exact unless `float_roundtrip` is on.
            any::<i32>().prop_map(|number| Value::from(f64::from(number) / 16.0)),
            "[a-zé~/ \"$}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[a-z~/]{0,4}", inner), 0..3).prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    /// A document in which each node needs some earlier nodes. The other fields of a node are set or absent.
    fn any_document() -> impl Strategy<Value = Value> {
        let retry = prop_oneof![
            Just(Value::Null),
            (1u32..=100, 0u64..100_000, 1u32..=100).prop_map(|(attempts, initial, factor)| {
                json!({"max_attempts": attempts, "initial": format!("{initial}ms"), "factor": factor})
            }),
            Just(json!({"backoff": "fixed", "max": "2m"})),
        ];
        let timeout = prop_oneof![Just(Value::Null), Just(json!("30s")), Just(json!("59m1ms"))];
        let join = prop_oneof![Just("all_success"), Just("any_success"), Just("all_done")];
        let on_error = prop_oneof![Just(Value::Null), Just(json!("fail")), Just(json!("continue"))];
        let node = (
            any_with(),
            prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            retry.clone(),
            timeout.clone(),
            join,
            on_error,
        );
        let nodes = prop::collection::vec(node, 0..8);
        (nodes, retry, timeout, any_json(), prop::option::of(1u32..50), prop::option::of("[a-z]{1,9}")).prop_map(
            |(nodes, retry, timeout, outputs, limit, name)| {
                let mut map = serde_json::Map::new();
                for (at, ((kind, with), needs, retry, timeout, when, on_error)) in nodes.into_iter().enumerate() {
                    let needs: std::collections::BTreeSet<usize> =
                        needs.iter().filter(|_| at > 0).map(|need| need.index(at)).collect();
                    let needs: Vec<String> = needs.into_iter().map(|need| format!("n{need}")).collect();
                    let node = json!({
                        "kind": kind.name(), "with": with, "needs": needs, "retry": retry, "timeout": timeout,
                        "when": when, "on_error": on_error,
                    });
                    map.insert(format!("n{at}"), node);
                }
                json!({
                    "name": name, "nodes": map, "outputs": outputs, "concurrency": limit, "key_concurrency": limit,
                    "max_attempts": limit, "timeout": timeout, "defaults": {"retry": retry, "timeout": timeout},
                    "inputs": {"a": {"type": ["string", "object"], "default": {"x": outputs}}}, "vars": {"a": outputs},
                    "additional_inputs": false,
                })
            },
        )
    }

    proptest! {
        #[test]
        fn a_definition_survives_being_stored(document in any_document()) {
            let (definition, plan) = check(&document).expect("a good document");
            let stored = serde_json::to_value(&definition).expect("JSON");
            let text = serde_json::to_string(&stored).expect("JSON");
            let read: Value = serde_json::from_str(&text).expect("JSON");
            prop_assert_eq!(&read, &stored);
            prop_assert_eq!(check_stored(&stored), Ok((definition.clone(), plan.clone())));
            prop_assert_eq!(check(&stored), Ok((definition.clone(), plan)));
            let (turned, _) = check(&reversed(&document)).expect("the same document");
            prop_assert_eq!(content_hash(&turned), content_hash(&definition));
        }

        #[test]
        fn a_missing_or_strange_part_never_makes_the_reader_panic(
            document in any_document(), strange in any_json(), field in "(nodes|edges|outputs|defaults|inputs|name)",
            node in 0usize..3, part in "(kind|with|needs|retry|timeout|when|on_error)",
        ) {
            let mut broken = document.clone();
            broken[field.as_str()] = strange.clone();
            let _ = check(&broken);
            let _ = check_stored(&broken);
            let mut broken = document;
            if let Some(node) = broken["nodes"].get_mut(format!("n{node}")) {
                node[part.as_str()] = strange;
            }
            let _ = check(&broken);
        }
    }

    #[test]
    fn a_large_graph_is_checked_with_all_that_its_nodes_see() {
        let nodes: serde_json::Map<String, Value> = (0..MAX_NODES)
            .map(|at| {
                let needs: Vec<String> = (at.saturating_sub(5)..at).map(|need| format!("n{need}")).collect();
                (format!("n{at}"), json!({"kind": "TRANSFORM", "needs": needs, "with": {"value": if at > 0 { "${{ nodes.n0.output }}" } else { "" }}}))
            })
            .collect();
        let (definition, plan) = check(&json!({"nodes": nodes})).expect("a good document");
        assert_eq!(plan.order().len(), MAX_NODES);
        let last = Edge {
            from: NodeKey::new("n1998").expect("a name"),
            to: NodeKey::new("n1999").expect("a name"),
            label: None,
        };
        assert!(definition.edges.contains(&last));
    }
}
