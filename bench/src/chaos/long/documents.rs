//! The workflows of the run: children, loops, waits, tasks. Each workspace has all of them.
//!
//! Invariants
//! - A call tells the receiver its execution, node and iteration: the key of its node row.

use serde_json::{Value, json};

use crate::receiver::Receiver;

/// A workflow, by its place among the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document(pub(super) usize);

pub(super) const LEAF: Document = Document(0);
pub(super) const FAMILY: Document = Document(2);
pub(super) const LOOP: Document = Document(3);
pub(super) const BROOD: Document = Document(4);
pub(super) const APPROVAL: Document = Document(5);
pub(super) const STEWARD: Document = Document(6);
pub(super) const EVENT: Document = Document(7);
pub(super) const IDLE: Document = Document(8);
pub(super) const TASK: Document = Document(9);
pub(super) const GANG: Document = Document(10);
pub(super) const DETACHES: Document = Document(11);
pub(super) const ENDLESS: Document = Document(13);

/// The node of a wait, and the type of event that one waits for.
pub(super) const WAIT: &str = "ask";
pub(super) const EVENT_TYPE: &str = "long.paid";
/// Where tasks are offered.
pub(super) const QUEUE: &str = "long";

/// The parameters of the documents.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitTimes<'a> {
    /// How long a wait waits that nobody answers.
    pub(super) patience: &'a str,
    /// How long a worker may be silent.
    pub(super) lease: &'a str,
}

/// All of them, in the order of their places.
pub(super) fn all(receiver: &Receiver, times: WaitTimes<'_>) -> Vec<Value> {
    let nodes = Nodes { receiver, times };
    vec![
        document(
            "leaf",
            json!({ "call": nodes.call_of("call", "inputs") }),
            json!({ "value": "${{ nodes.call.output.body.value }}" }),
        ),
        document(
            "branch",
            json!({ "below": child("leaf", "inputs") }),
            json!({ "value": "${{ nodes.below.output.output.value }}" }),
        ),
        nodes.family(),
        nodes.looped("loop", &nodes.item_call(), "x.body.value"),
        nodes.looped("brood", &child("leaf", "item"), "x.output.value"),
        nodes.approval("approval", json!({ "data": { "choice": { "type": "integer", "required": true } } }), None),
        document(
            "steward",
            json!({ "below": child("approval", "inputs") }),
            passed_on(&["choice", "timed_out", "after"]),
        ),
        nodes.event(),
        nodes.approval(
            "idle",
            json!({ "on_timeout": "${{ inputs.on_timeout }}", "default": { "choice": 0 } }),
            Some(times.patience),
        ),
        document(
            "task",
            json!({ "work": nodes.task("inputs.work") }),
            json!({ "value": "${{ nodes.work.output.value }}", "claim": "${{ nodes.work.output.claim }}" }),
        ),
        nodes.looped("gang", &nodes.task("item"), "x.value"),
        nodes.detaches(),
        nodes.approval("sleeper", json!({}), None),
        document(
            "endless",
            begun(json!({ "below": child("sleeper", "inputs"), "work": nodes.task("inputs.work") })),
            json!({}),
        ),
    ]
}

struct Nodes<'a> {
    receiver: &'a Receiver,
    times: WaitTimes<'a>,
}

impl Nodes<'_> {
    /// A call configured by an input with the fields `i`, `flaky` and `refused`.
    fn call_of(&self, node: &str, of: &str) -> Value {
        let field = |name: &str| format!("${{{{ {of}.{name} }}}}");
        self.call(node, json!("0"), json!(field("i")), &field("flaky"), &field("refused"))
    }

    /// A call that succeeds.
    fn plain(&self, node: &str, i: i64, needs: Value) -> Value {
        let mut call = self.call(node, json!("0"), json!(i), "false", "false");
        if !needs.is_null() {
            call["needs"] = needs;
        }
        call
    }

    fn item_call(&self) -> Value {
        self.call("loop", json!("${{ index + 1 }}"), json!("${{ item.i }}"), "${{ item.flaky }}", "${{ item.refused }}")
    }

    fn call(&self, node: &str, iteration: Value, i: Value, flaky: &str, refused: &str) -> Value {
        json!({
            "kind": "HTTP_REQUEST",
            "retry": { "max_attempts": 5, "initial": "100ms", "max": "300ms" },
            "with": { "url": self.receiver.url("/hit"), "query": {
                "execution": "${{ execution.id }}", "workspace": "${{ workspace.id }}", "n": "${{ inputs.n }}",
                "node": node, "iteration": iteration, "i": i, "flaky": flaky, "refused": refused,
            }},
        })
    }

    fn task(&self, input: &str) -> Value {
        json!({
            "kind": "TASK",
            "retry": { "max_attempts": 3, "initial": "100ms", "max": "300ms" },
            "with": { "queue": QUEUE, "lease": self.times.lease, "input": format!("${{{{ {input} }}}}") },
        })
    }

    fn family(&self) -> Value {
        let mut third = child("branch", "inputs.children[2]");
        third["on_error"] = json!("continue");
        let nodes = begun(json!({
            "first": child("leaf", "inputs.children[0]"),
            "second": child("leaf", "inputs.children[1]"),
            "third": third,
            "end": self.plain("end", 4, json!(["first", "second"])),
        }));
        let outputs = json!({
            "first": "${{ nodes.first.output.output.value }}",
            "second": "${{ nodes.second.output.output.value }}",
            "third": "${{ nodes.third.status }}",
            "third_value": "${{ nodes.third.output.output.value }}",
            "end": "${{ nodes.end.output.body.value }}",
        });
        document("family", nodes, outputs)
    }

    /// A loop over `inputs.items`. `value` is the expression that reports an item's output `x`.
    fn looped(&self, name: &str, does: &Value, value: &str) -> Value {
        let mut with = json!({ "items": "${{ inputs.items }}", "on_item_error": "collect", "parallel": 3, "do": does });
        if name == "loop" {
            with["parallel"] = json!("${{ inputs.parallel }}");
            with["on_item_error"] = json!("${{ inputs.mode }}");
        }
        let outputs = json!({
            "values": format!("${{{{ nodes.loop.output.items.map(x, {value}) }}}}"),
            "failed": "${{ nodes.loop.output.failed }}",
            "errors": "${{ nodes.loop.output.errors == null ? [] : nodes.loop.output.errors.map(e, e.index) }}",
        });
        document(name, json!({ "loop": { "kind": "FOR_EACH", "with": with } }), outputs)
    }

    /// A call, a wait, a call.
    fn approval(&self, name: &str, with: Value, timeout: Option<&str>) -> Value {
        let mut wait = json!({ "kind": "WAIT_FOR_EVENT", "needs": "before", "with": with });
        if let Some(timeout) = timeout {
            wait["timeout"] = json!(timeout);
        }
        let nodes = json!({
            "before": self.plain("before", 1, Value::Null), WAIT: wait, "after": self.plain("after", 2, json!(WAIT)),
        });
        let outputs = json!({
            "choice": "${{ nodes.ask.output.data.choice }}",
            "timed_out": "${{ nodes.ask.output.timed_out }}",
            "after": "${{ nodes.after.output.body.value }}",
        });
        document(name, nodes, outputs)
    }

    fn event(&self) -> Value {
        let wait = json!({
            "kind": "WAIT_FOR_EVENT", "needs": "before",
            "with": { "event": EVENT_TYPE, "match": "event.data.n == inputs.n" },
        });
        let nodes = json!({
            "before": self.plain("before", 1, Value::Null), WAIT: wait, "after": self.plain("after", 2, json!(WAIT)),
        });
        let outputs =
            json!({ "mark": "${{ nodes.ask.output.data.mark }}", "after": "${{ nodes.after.output.body.value }}" });
        document("event", nodes, outputs)
    }

    fn detaches(&self) -> Value {
        let mut starts = child("leaf", "inputs.child");
        starts["with"]["detached"] = json!(true);
        let nodes = json!({ "starts": starts, "end": self.plain("end", 4, json!("starts")) });
        document("detaches", nodes, json!({ "status": "${{ nodes.starts.status }}" }))
    }
}

fn child(workflow: &str, input: &str) -> Value {
    json!({ "kind": "WORKFLOW", "with": { "workflow": workflow, "input": format!("${{{{ {input} }}}}") } })
}

/// Starts all independent nodes side by side, because a graph must be connected.
fn begun(mut nodes: Value) -> Value {
    for node in nodes.as_object_mut().into_iter().flat_map(|nodes| nodes.values_mut()) {
        if node["needs"].is_null() {
            node["needs"] = json!("begin");
        }
    }
    nodes["begin"] = json!({ "kind": "TRANSFORM", "with": { "value": true } });
    nodes
}

/// Passes a child's output on as its parent's.
fn passed_on(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!(format!("${{{{ nodes.below.output.output.{name} }}}}"))))
        .collect()
}

fn document(name: &str, nodes: Value, outputs: Value) -> Value {
    json!({ "version": 1, "name": name, "nodes": nodes, "outputs": outputs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::Policy;

    #[tokio::test]
    async fn every_document_can_be_published_and_has_the_place_its_name_says() {
        let policy = Policy { seed: 1, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: std::time::Duration::ZERO };
        let receiver = Receiver::start(policy).await.expect("a receiver");
        let documents = all(&receiver, WaitTimes { patience: "2s", lease: "1s" });
        for document in &documents {
            kernel::definition::parse::check(document)
                .unwrap_or_else(|problems| panic!("{}: {problems:?}", document["name"]));
        }
        let named = [
            (LEAF, "leaf"),
            (FAMILY, "family"),
            (LOOP, "loop"),
            (BROOD, "brood"),
            (APPROVAL, "approval"),
            (STEWARD, "steward"),
            (EVENT, "event"),
            (IDLE, "idle"),
            (TASK, "task"),
            (GANG, "gang"),
            (DETACHES, "detaches"),
            (ENDLESS, "endless"),
        ];
        for (Document(place), name) in named {
            assert_eq!(documents[place]["name"], name);
        }
    }
}
