//! Bindings: which events create a job, and what the job starts. The rule of a binding is checked when it is created,
//! and evaluated for each event.
//!
//! Invariants
//! - A rule can use its event (`trigger.event` or `inputs.event`), `trigger.type` and `trigger.retry_count`. A rule
//!   that uses another path is refused, because no node has run and no secret is available.
//! - An event type is exact, or ends in `.*` and matches every type with that prefix. The types of the events that jobs
//!   themselves write (`workflow.queue.*`) cannot be bound.
//! - A workflow id is text with `{…}` in it: `executionId`, `eventId`, `streamId`, `retryCount`, or a field of the
//!   event's data.
//!
//! Not here: which of several bindings applies (`functions/shared/event.sql` of the store), running the job
//! (`server::job::projector`).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::DomainEvent;
use crate::definition::fields::{CheckTime, Code, Fields, Problem, unknown_word, unreadable};
use crate::expression::template::{self, Template};
use crate::expression::{Expression, Path, Root, Scope, Segment};
use crate::ids::ExecutionId;
use crate::job::LONGEST_LEASE;
use crate::run::failure::{Class, Failure};

/// The longest event type.
pub const MAX_TYPE_LEN: usize = 200;
const MAX_WORKFLOW_ID_LEN: usize = 500;
/// The prefix of the types of the events that jobs themselves write.
const FACTS: &str = "workflow.queue.";
/// The fields of `trigger`, of `inputs` and of the event that a rule can use. `decide` and [`DomainEvent::scope`] set
/// these fields.
const TRIGGER: [&str; 3] = ["type", "event", "retry_count"];
const INPUTS: [&str; 1] = ["event"];
const FIELDS: [&str; 8] =
    ["id", "type", "data", "metadata", "stream_id", "stream_type", "stream_version", "created_at"];
const SEEN: &str = "use trigger.event (also inputs.event), trigger.type or trigger.retry_count";

/// What happens with events of one type.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// An exact event type, or a prefix such as `order.*`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// An expression. An event starts a workflow only if the expression is true; otherwise its job completes as
    /// skipped.
    pub filter: Option<String>,
    /// The input of the execution, with templates that can use the event; `{event: …}` if absent.
    pub input: Option<Value>,
    /// A pattern for the workflow id of the job.
    pub workflow_id: Option<String>,
    /// The lease of a worker, in seconds.
    pub lease_s: Option<u32>,
}

/// The decision on one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Start {
        input: Value,
        trigger: Value,
        /// `None` stands for the default name of an execution.
        workflow_id: Option<String>,
    },
    /// The filter is false.
    Skip,
}

/// Reads `on: {event: …}` of a document.
pub(crate) fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Rule> {
    let known = &["type", "filter", "input", "workflow_id", "lease", "lease_s"];
    let mut fields = Fields::open(value, at, known, CheckTime::Run, problems)?;
    fields.require("type");
    let (kind, filter, workflow_id) = (fields.text("type"), fields.text("filter"), fields.text("workflow_id"));
    let lease_s = match fields.duration("lease", LONGEST_LEASE) {
        Some(lease) => u32::try_from(lease.as_secs()).ok(),
        None => fields.integer("lease_s", 1..=LONGEST_LEASE.as_secs()).and_then(|lease| u32::try_from(lease).ok()),
    };
    let rule = Rule {
        event_type: kind?.to_owned(),
        filter: filter.map(str::to_owned),
        input: fields.get("input").cloned(),
        workflow_id: workflow_id.map(str::to_owned),
        lease_s,
    };
    problems.extend(
        check(&rule).into_iter().map(|problem| Problem { pointer: format!("{at}{}", problem.pointer), ..problem }),
    );
    Some(rule)
}

/// The problems of a rule. Each has a pointer to a field of the rule, such as `/filter`.
pub fn check(rule: &Rule) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong =
        |pointer: &str, message: String| problems.push(Problem::new(Code::BadValue, pointer.to_owned(), message));
    if let Some(why) = bad_type(&rule.event_type) {
        wrong("/type", why.to_owned());
    }
    if let Some(Err(why)) = rule.workflow_id.as_deref().map(pieces) {
        wrong("/workflow_id", why);
    }
    if rule.lease_s.is_some_and(|lease| !(1..=LONGEST_LEASE.as_secs()).contains(&u64::from(lease))) {
        wrong("/lease_s", format!("must be 1 to {}", LONGEST_LEASE.as_secs()));
    }
    match rule.filter.as_deref().map(Expression::parse) {
        Some(Err(error)) => problems.push(unreadable("/filter".to_owned(), &error)),
        Some(Ok(filter)) => {
            problems.extend(filter.references().into_iter().filter_map(|path| elsewhere(path, "/filter".to_owned())));
            problems.extend(filter.uses_statuses().then(|| no_nodes("/filter")));
        }
        None => {}
    }
    if let Some(input) = &rule.input {
        let survey = template::survey(input);
        problems.extend(survey.errors.iter().map(|(pointer, error)| unreadable(format!("/input{pointer}"), error)));
        let looks = |(pointer, path): &(String, Path)| elsewhere(path, format!("/input{pointer}"));
        problems.extend(survey.paths.iter().filter_map(looks));
        problems.extend(survey.statuses.then(|| no_nodes("/input")));
    }
    problems
}

/// Refuses a path that a rule cannot use.
fn elsewhere(path: &Path, pointer: String) -> Option<Problem> {
    let refused = |code| Some(Problem::new(code, pointer.clone(), format!("{path} cannot be used here: {SEEN}")));
    let (known, way): (&[&str], _) = match path.root() {
        Ok((Root::Trigger, way)) => (&TRIGGER, way),
        Ok((Root::Inputs, way)) => (&INPUTS, way),
        Ok((Root::Secret { .. }, _)) => return refused(Code::MisplacedSecret),
        _ => return refused(Code::UnknownRoot),
    };
    match way {
        [Segment::Field(first), ..] if !known.contains(&first.as_str()) => refused(Code::UnknownField),
        [Segment::Field(first), Segment::Field(field), ..] if first == "event" && !FIELDS.contains(&field.as_str()) => {
            let (message, meant) = unknown_word("field of an event", field, FIELDS.into_iter());
            Some(Problem::new(Code::UnknownField, pointer, format!("{path}: {message}")).suggest(meant))
        }
        _ => None,
    }
}

fn no_nodes(pointer: &str) -> Problem {
    let message = "success() and failure() are about nodes, and no node has run yet";
    Problem::new(Code::BadValue, pointer.to_owned(), message.to_owned())
}

/// Why an event type cannot be bound, or used to list jobs. Returns `None` if the type is valid.
pub fn bad_type(text: &str) -> Option<&'static str> {
    let body = text.strip_suffix(".*").unwrap_or(text);
    if body.is_empty() || text.len() > MAX_TYPE_LEN || body.chars().any(|c| c.is_control() || c == '*') {
        return Some("must be an event type or a prefix with .* (such as order.*), of at most 200 bytes");
    }
    let below = text.strip_suffix('*').unwrap_or(text);
    (below.starts_with(FACTS) || FACTS.starts_with(below) && below != text)
        .then_some("must not match workflow.queue.*: these types are reserved for the events that jobs write")
}

/// Decides for one event. A rule that cannot be evaluated fails the job.
pub fn decide(rule: &Rule, event: &DomainEvent, execution: ExecutionId, retry_count: i32) -> Result<Decision, Failure> {
    let seen = event.scope();
    let trigger = json!({ "type": "event", "event": seen, "retry_count": retry_count });
    let input = json!({ "event": seen });
    let scope = Scope { inputs: Arc::new(input.clone()), trigger: Arc::new(trigger.clone()), ..Scope::default() };
    if let Some(filter) = &rule.filter {
        let filter = Expression::parse(filter).map_err(|error| bad(format!("filter: {error}")))?;
        if !filter.test(&scope).map_err(|error| bad(format!("filter: {error}")))? {
            return Ok(Decision::Skip);
        }
    }
    let input = match &rule.input {
        None => input,
        Some(template) => {
            let template = Template::parse(template).map_err(|_| bad("input: cannot be parsed".to_owned()))?;
            template.resolve(&scope).map_err(|error| bad(format!("input: {error}")))?
        }
    };
    let named = |pattern: &String| name(pattern, event, execution, retry_count);
    let workflow_id = rule.workflow_id.as_ref().map(named).transpose()?;
    Ok(Decision::Start { input, trigger, workflow_id })
}

fn bad(message: String) -> Failure {
    Failure::new(Class::ValidationError, message)
}

/// A part of a workflow id pattern: plain text, or a `{field}`.
enum Piece<'a> {
    Text(&'a str),
    Field(&'a str),
}

/// Splits a workflow id pattern, such as `org-bootstrap-{subdomain}`, into its parts.
fn pieces(pattern: &str) -> Result<Vec<Piece<'_>>, String> {
    if pattern.is_empty() || pattern.len() > MAX_WORKFLOW_ID_LEN {
        return Err(format!("must be 1 to {MAX_WORKFLOW_ID_LEN} bytes"));
    }
    let (mut all, mut rest) = (Vec::new(), pattern);
    while let Some((text, behind)) = rest.split_once('{') {
        let (field, behind) = behind.split_once('}').ok_or("a { is not closed")?;
        if field.is_empty() || field.contains('{') || field.split('.').any(str::is_empty) {
            return Err("write {field} or {field.of.a.field}".to_owned());
        }
        all.extend([Piece::Text(text), Piece::Field(field)]);
        rest = behind;
    }
    all.push(Piece::Text(rest));
    Ok(all)
}

fn name(pattern: &str, event: &DomainEvent, execution: ExecutionId, retry_count: i32) -> Result<String, Failure> {
    let mut all = String::new();
    for piece in pieces(pattern).map_err(|why| bad(format!("workflow_id: {why}")))? {
        match piece {
            Piece::Text(text) => all.push_str(text),
            Piece::Field("executionId") => all.push_str(&execution.to_string()),
            Piece::Field("eventId") => all.push_str(&event.id.to_string()),
            Piece::Field("streamId") => all.push_str(&event.stream_id.to_string()),
            Piece::Field("retryCount") => all.push_str(&retry_count.to_string()),
            Piece::Field(path) => {
                let found = path.split('.').try_fold(&event.data, |value, field| value.get(field));
                match found {
                    Some(Value::String(text)) => all.push_str(text),
                    Some(value @ (Value::Number(_) | Value::Bool(_))) => all.push_str(&value.to_string()),
                    _ => return Err(bad(format!("workflow_id: the event's data has no {path}"))),
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use std::collections::BTreeSet;
    use uuid::Uuid;

    fn rule(event_type: &str) -> Rule {
        Rule { event_type: event_type.to_owned(), filter: None, input: None, workflow_id: None, lease_s: None }
    }

    fn event() -> DomainEvent {
        DomainEvent {
            id: Uuid::from_u128(1),
            kind: "organization.bootstrap.initiated".to_owned(),
            data: json!({ "subdomain": "acme", "plan": { "name": "pro", "seats": 3 } }),
            metadata: json!({}),
            stream_id: Uuid::from_u128(2),
            stream_type: "organization".to_owned(),
            stream_version: Some(1),
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn decided(rule: &Rule) -> Result<Decision, String> {
        decide(rule, &event(), ExecutionId(Uuid::from_u128(7)), 1).map_err(|failure| failure.message)
    }

    #[test]
    fn a_type_is_exact_or_a_prefix_and_never_the_queues_own() {
        for good in ["order.placed", "order.*", "workflow.done", "workflow", "a b"] {
            assert_eq!(check(&rule(good)), [], "{good}");
        }
        let long = "x".repeat(201);
        for bad in
            ["", "*", ".*", "a.*.b", "a*", "workflow.queue.pending", "workflow.queue.*", "workflow.*", "a\n", &long]
        {
            assert_eq!(check(&rule(bad)).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_problem_of_a_rule_has_a_pointer() {
        let bad = Rule {
            filter: Some("trigger.event >".to_owned()),
            input: Some(json!({ "a": ["${{ inputs. }}"] })),
            workflow_id: Some("a-{b".to_owned()),
            lease_s: Some(0),
            ..rule("order.*")
        };
        let pointers: Vec<String> = check(&bad).into_iter().map(|problem| problem.pointer).collect();
        assert_eq!(pointers, ["/workflow_id", "/lease_s", "/filter", "/input/a/0"]);
    }

    #[test]
    fn a_rule_with_an_unknown_path_is_refused() {
        let observed = |filter: &str, input: Value| {
            let rule = Rule { filter: Some(filter.to_owned()), input: Some(input), ..rule("x") };
            check(&rule).iter().map(|problem| format!("{problem}\n")).collect::<String>()
        };
        let all = "trigger.type == 'event' && trigger.retry_count < 2 && trigger.event['data'].a[0].b == inputs.event.stream_id";
        assert_eq!(observed(all, json!({ "all": "${{ inputs }}", "one": "${{ trigger }}" })), "");
        expect_test::expect![[r#"
            /filter: secrets.KEY cannot be used here: use trigger.event (also inputs.event), trigger.type or trigger.retry_count
            /filter: nodes.a.output.x cannot be used here: use trigger.event (also inputs.event), trigger.type or trigger.retry_count
            /filter: inputs.total cannot be used here: use trigger.event (also inputs.event), trigger.type or trigger.retry_count
            /filter: success() and failure() are about nodes, and no node has run yet
            /input/a/0: trigger.event.streamId: unknown field of an event streamId, did you mean stream_id?
            /input/b: inputs.event.payload.x: unknown field of an event payload: use one of id, type, data, metadata, stream_id, stream_type, stream_version, created_at
            /input/c: vars.y cannot be used here: use trigger.event (also inputs.event), trigger.type or trigger.retry_count
        "#]]
        .assert_eq(&observed(
            "secrets.KEY == nodes.a.output.x && inputs.total > 1 && success()",
            json!({ "a": ["${{ trigger.event.streamId }}"], "b": "${{ inputs.event.payload.x }}", "c": "${{ vars.y }}" }),
        ));
    }

    #[test]
    fn what_a_rule_may_name_is_what_there_is() {
        let Ok(Decision::Start { input, trigger, .. }) = decided(&rule("x")) else { panic!("a start") };
        let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!((names(&trigger), names(&input)), (listed(&TRIGGER), listed(&INPUTS)));
        assert_eq!(names(&trigger["event"]), listed(&FIELDS));
    }

    #[test]
    fn an_event_is_the_input_unless_a_mapping_says_otherwise() {
        let Ok(Decision::Start { input, trigger, workflow_id }) = decided(&rule("x")) else { panic!("a start") };
        assert_eq!((&input["event"], workflow_id), (&trigger["event"], None));
        assert_eq!((&trigger["type"], &input["event"]["data"]["subdomain"]), (&json!("event"), &json!("acme")));
        let mapped = Rule { input: Some(json!({ "seats": "${{ inputs.event.data.plan.seats }}" })), ..rule("x") };
        let Ok(Decision::Start { input, .. }) = decided(&mapped) else { panic!("a start") };
        assert_eq!(input, json!({ "seats": 3 }));
    }

    #[test]
    fn a_filter_skips_or_starts_or_fails() {
        let with = |filter: &str| decided(&Rule { filter: Some(filter.to_owned()), ..rule("x") });
        assert!(matches!(with("trigger.event.data.plan.name == 'pro'"), Ok(Decision::Start { .. })));
        assert_eq!(with("inputs.event.data.plan.name == 'free'"), Ok(Decision::Skip));
        assert!(with("inputs.event.data.plan").is_err());
    }

    #[test]
    fn a_workflow_id_takes_fields_of_the_event() {
        let named = |pattern: &str| match decided(&Rule { workflow_id: Some(pattern.to_owned()), ..rule("x") }) {
            Ok(Decision::Start { workflow_id, .. }) => workflow_id.ok_or_else(|| "none".to_owned()),
            Ok(Decision::Skip) => Err("skipped".to_owned()),
            Err(why) => Err(why),
        };
        assert_eq!(named("org-bootstrap-{subdomain}"), Ok("org-bootstrap-acme".to_owned()));
        assert_eq!(named("{plan.name}/{plan.seats}#{retryCount}"), Ok("pro/3#1".to_owned()));
        assert_eq!(named("e-{executionId}"), Ok(format!("e-{}", Uuid::from_u128(7))));
        assert_eq!(named("{nothing}"), Err("workflow_id: the event's data has no nothing".to_owned()));
        assert!(named("{plan}").is_err(), "an object is no name");
    }
}
