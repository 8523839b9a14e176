//! FOR_EACH: performs one node for each item of a list.
//!
//!     items: ${{ inputs.orders }}
//!     parallel: 5
//!     on_item_error: collect
//!     do:
//!       kind: HTTP_REQUEST
//!       with: { url: "https://shop.test/orders/${{ item.id }}" }
//!
//! Invariants
//! - The list is resolved once and stored. The action is resolved for each item, with `item` and `index`.
//! - The action is stored with its defaults filled in, like a node.
//!
//! Not here: which item is next (`run::item_loop`), performing it (the engines).

use serde_json::{Map, Value, json};

use super::registry::Spec;
use super::schema::{count, late, object};
use crate::definition::fields::{Code, Fields};
use crate::definition::{Kind, Manner, Node};
use crate::expression::Scope;
use crate::expression::template::{self, Survey};
use crate::run::failure::{Class, Failure};

/// The most items of one loop.
pub const MAX_ITEMS: usize = 10_000;
/// The most items in flight at once.
pub const MAX_PARALLEL: u32 = 100;
/// How many by default.
const PARALLEL: u32 = 10;
/// The largest size of all outputs together, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// The list, and the action for each item.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub items: Vec<Value>,
    pub parallel: u32,
    pub on_item_error: OnItemError,
}

/// The consequence of a failed item for the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnItemError {
    /// No further item begins, and the node fails.
    #[default]
    Fail,
    /// Every item is performed; the output of a failed one is null.
    Continue,
    /// The same, and the output contains the errors.
    Collect,
}

pub(super) const FIELDS: &[&str] = &["items", "parallel", "on_item_error", "do"];
const ON_ITEM_ERROR: &[(&str, OnItemError)] =
    &[("fail", OnItemError::Fail), ("continue", OnItemError::Continue), ("collect", OnItemError::Collect)];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    references,
    resolve,
    retry: |profiles| profiles.work.once(),
    is_tried_once: true,
    is_action: false,
    ..Spec::new("FOR_EACH", Manner::Loops, "Performs one node for each item of a list.")
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().filter(|kind| kind.spec().is_action).map(|kind| kind.name()).collect();
    let does = json!({
        "description": "The node to perform for each item. It has no `key`, `needs`, `when` or `on_error`, and its \
            templates can use `item` and `index`.",
        "type": "object", "required": ["kind"], "properties": { "kind": { "enum": kinds }, "with": {} },
    });
    let modes: Vec<&str> = ON_ITEM_ERROR.iter().map(|(name, _)| *name).collect();
    object(
        &["items", "do"],
        &[
            late("items", "The list.", json!({ "type": "array", "maxItems": MAX_ITEMS })),
            late("parallel", "How many items at once; 10 if absent.", count(MAX_PARALLEL)),
            late(
                "on_item_error",
                "The consequence of a failed item: fail, continue or collect.",
                json!({ "enum": modes }),
            ),
            ("do", does),
        ],
    )
}

/// The action of a loop, or the failure of a loop whose action cannot be read.
pub fn readable_action(node: &Node) -> Result<Node, Failure> {
    let message = "the node to perform for each item cannot be read; correct the FOR_EACH node";
    action(node).ok_or_else(|| Failure::new(Class::BadGraph, message))
}

/// The action of a loop, as a node with the loop's key. None if the node is not a loop.
pub fn action(node: &Node) -> Option<Node> {
    let mut fields = node.with.get("do")?.as_object()?.clone();
    fields.insert("key".to_owned(), json!(node.key));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The action as it is stored, with its defaults.
pub(crate) fn stored(action: &Node) -> Value {
    let mut fields = match serde_json::to_value(action) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    for name in ["key", "when", "on_error"] {
        fields.remove(name);
    }
    Value::Object(fields)
}

/// The kind of the action, and its configuration; none if the kind is not known.
pub(crate) fn inner(with: &Value) -> Option<(Kind, &Value)> {
    static NONE: Value = Value::Null;
    let does = with.get("do")?;
    let kind = Kind::parse(does.get("kind")?.as_str()?).filter(|kind| kind.spec().is_action)?;
    Some((kind, does.get("with").unwrap_or(&NONE)))
}

/// The paths that its list and its action use.
pub(super) fn references(with: &Value) -> Survey {
    let mut survey = template::survey(&super::without(with, &["do"]));
    survey.add("", super::condition::references("/do/if", with.pointer("/do/if")));
    if let Some((kind, with)) = inner(with) {
        survey.add("/do/with", super::references(kind, with));
    }
    survey
}

/// Its input: the list, `parallel` and `on_item_error`.
pub(super) fn resolve(with: &Value, scope: &Scope) -> Result<Value, Failure> {
    super::resolve_all(&super::without(with, &["do"]), scope)
}

/// The failure of a loop whose outputs are too large.
pub fn too_large() -> Failure {
    let most = MAX_OUTPUT_BYTES >> 20;
    let message = format!("the outputs of all items are larger than {most} MiB together: return less from each item");
    Failure::new(Class::ValidationError, message)
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    if !fields.is_final() {
        fields.require("do");
    }
    fields.require("items");
    let items = match fields.value("items") {
        None => None,
        Some(Value::Array(items)) if items.len() > MAX_ITEMS => {
            let message = format!("there are {} items, more than {MAX_ITEMS}", items.len());
            fields.refuse(Code::TooLarge, "items", message);
            None
        }
        Some(Value::Array(items)) => Some(items.clone()),
        Some(other) => {
            let message = format!("must be a list, not {}", crate::expression::type_name(other));
            fields.refuse(Code::WrongType, "items", message);
            None
        }
    };
    let parallel = match fields.get("parallel") {
        None => Some(PARALLEL),
        Some(_) => fields.count("parallel", MAX_PARALLEL),
    };
    let on_item_error = fields.choice("on_item_error", ON_ITEM_ERROR).unwrap_or_default();
    Some(Config { items: items?, parallel: parallel?, on_item_error })
}
