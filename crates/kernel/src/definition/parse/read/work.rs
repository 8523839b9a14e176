//! What a node does and how patiently: the fields that a node shares with what a FOR_EACH does for each item.
//!
//! Invariants
//! - What is left out gets its default here; what is done for each item is written back with all of it.
//!
//! Not here: the fields of its `with` (`kind`), its place in the graph (`node`).

use serde_json::{Map, Value};

use super::node::STAND_IN;
use super::{Defaults, LONGEST_NODE_TIMEOUT, LONGEST_TIMEOUT, MAX_DESCRIPTION_LEN, milliseconds, retry, short_text};
use crate::definition::fields::{CheckTime, Code, Fields, Problem, child, unknown};
use crate::definition::{Delivery, Kind, Node};
use crate::ids::NodeKey;
use crate::kind::{self, for_each};
use crate::run::failure::Policy;

const ACTION_FIELDS: &[&str] = &["kind", "if", "with", "retry", "timeout", "timeout_ms", "delivery", "description"];
const DELIVERY: &[(&str, Delivery)] =
    &[("at_least_once", Delivery::AtLeastOnce), ("at_most_once", Delivery::AtMostOnce)];

/// What was read; no kind if it is not known.
pub(super) struct Work {
    pub(super) kind: Option<Kind>,
    pub(super) with: Value,
    condition: Option<String>,
    retry: Policy,
    timeout_ms: Option<u64>,
    delivery: Delivery,
}

impl Work {
    /// A node that does it, and says nothing else.
    pub(super) fn node(self, key: NodeKey) -> Node {
        Node {
            with: self.with,
            condition: self.condition,
            retry: self.retry,
            timeout_ms: self.timeout_ms,
            delivery: self.delivery,
            ..Node::new(key, self.kind.unwrap_or(STAND_IN))
        }
    }
}

pub(super) fn read(fields: &mut Fields<'_, '_>, defaults: Defaults) -> Work {
    let kind = read_kind(fields);
    let delivery = delivery(fields, kind);
    let retry = tries(fields, kind, delivery, defaults);
    let timeout_ms = timeout(fields, kind, defaults);
    let with = with(fields, kind);
    Work { kind, with, condition: condition(fields), retry, timeout_ms, delivery }
}

/// Reads what a FOR_EACH does for each item, and writes it back with all that goes without saying.
pub(super) fn read_action(with: &mut Value, at: &str, defaults: Defaults, problems: &mut Vec<Problem>) {
    let Some(given) = with.get("do").filter(|given| !given.is_null()) else { return };
    let at = child(at, "do");
    let Some(mut fields) = Fields::open(given, &at, ACTION_FIELDS, CheckTime::Run, problems) else { return };
    let before = fields.problems.len();
    let work = read(&mut fields, defaults);
    let description = short_text(&mut fields, "description", MAX_DESCRIPTION_LEN);
    if let Some(kind) = work.kind.filter(|kind| !kind.spec().is_action) {
        let all: Vec<&str> = Kind::ALL.iter().filter(|kind| kind.spec().is_action).map(|kind| kind.name()).collect();
        let message = format!("{} cannot be done for each item: use one of {}", kind.name(), all.join(", "));
        fields.refuse(Code::BadConfig, "kind", message);
    }
    let sound = fields.problems.len() == before;
    let Ok(key) = NodeKey::new("item") else { return };
    let stored = for_each::stored(&Node { description, ..work.node(key) });
    if let (true, Some(with)) = (sound, with.as_object_mut()) {
        with.insert("do".to_owned(), stored);
    }
}

/// How often it is tried. A node that is tried once, or that others repeat, does not take the document's default.
fn tries(fields: &mut Fields<'_, '_>, kind: Option<Kind>, delivery: Delivery, defaults: Defaults) -> Policy {
    let own = retry::read(fields);
    let kind = kind.unwrap_or(STAND_IN);
    let once = kind.spec().is_tried_once || delivery == Delivery::AtMostOnce;
    if once && fields.get("retry").is_some() && own.tries_again() {
        let why = match delivery {
            Delivery::AtMostOnce => "a node that is performed at most once is not tried again",
            Delivery::AtLeastOnce if kind == Kind::ForEach => "belongs to the node in do: move it into do",
            Delivery::AtLeastOnce => "a wait whose time is up is not tried again: give it a longer timeout",
        };
        fields.wrong("retry", why);
    }
    match (once, kind) {
        (true, _) => own.policy(defaults.profiles.work).once(),
        (false, Kind::Workflow) => own.policy(kind.retry_by(&defaults.profiles)),
        (false, _) => own.or(defaults.retry).policy(kind.retry_by(&defaults.profiles)),
    }
}

fn delivery(fields: &mut Fields<'_, '_>, kind: Option<Kind>) -> Delivery {
    let delivery = fields.choice("delivery", DELIVERY).unwrap_or_default();
    if delivery == Delivery::AtMostOnce && kind.is_some_and(|kind| !kind.spec().may_be_at_most_once) {
        let may = Kind::ALL.into_iter().filter(|kind| kind.spec().may_be_at_most_once);
        let may = may.map(Kind::name).collect::<Vec<_>>().join(", ");
        fields.wrong("delivery", format!("at_most_once is for {may}: other kinds take effect once by themselves"));
    }
    delivery
}

/// The default is not for what waits for others: waiting is its work, not a fault.
fn timeout(fields: &mut Fields<'_, '_>, kind: Option<Kind>, defaults: Defaults) -> Option<u64> {
    let patient = kind.is_some_and(|kind| kind.is_patient() && kind != Kind::Delay);
    let longest = if patient { LONGEST_TIMEOUT } else { LONGEST_NODE_TIMEOUT };
    let own = milliseconds(fields, "timeout", "timeout_ms", 1, longest);
    if kind == Some(Kind::ForEach) && own.is_some() {
        let name = if fields.get("timeout").is_some() { "timeout" } else { "timeout_ms" };
        fields.wrong(name, "belongs to the node in do: move it into do");
    }
    own.or(if kind.is_some_and(Kind::is_patient) { None } else { defaults.timeout_ms })
}

fn read_kind(fields: &mut Fields<'_, '_>) -> Option<Kind> {
    fields.require("kind");
    let text = fields.text("kind")?;
    let kind = Kind::parse(text);
    if kind.is_none() {
        let known = Kind::ALL.iter().map(|kind| kind.name());
        let problem = unknown(Code::UnknownKind, "kind", fields.pointer("kind"), text, known, fields.problems);
        fields.problems.push(problem);
    }
    kind
}

fn with(fields: &mut Fields<'_, '_>, kind: Option<Kind>) -> Value {
    let with = fields.get("with").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if let Some(kind) = kind {
        let at = fields.pointer("with");
        let found = kind::check(kind, &with).into_iter();
        fields.problems.extend(found.map(|found| refused(found).below(&at)));
    }
    with
}

/// The expression that must be true for the node to start.
fn condition(fields: &mut Fields<'_, '_>) -> Option<String> {
    kind::condition::field(fields, "if").map(|expression| expression.source().to_owned())
}

/// Gives a problem in the settings of a kind its own code, unlike one in the document around it.
fn refused(found: Problem) -> Problem {
    if found.code == Code::BadValue { Problem { code: Code::BadConfig, ..found } } else { found }
}
