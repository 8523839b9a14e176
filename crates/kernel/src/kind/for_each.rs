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
//! - The list is resolved once and stored; what is done for an item is resolved for that item, with `item` and `index`.
//! - What is done is stored with all that goes without saying, as a node's own fields are.
//!
//! Not here: which item is next (`each`), performing it (the engines).

use serde_json::{Map, Value, json};

use super::registry::Spec;
use super::schema::{late, object};
use crate::definition::fields::{Code, Fields, Problem};
use crate::definition::{Kind, Manner, Node};
use crate::expression::Scope;
use crate::expression::template::{self, Survey};
use crate::run::failure::{Class, Failure};

/// The most items of one loop.
pub const MAX_ITEMS: usize = 10_000;
/// The most items in flight at once.
pub const MAX_PARALLEL: u64 = 100;
/// How many, if not said.
const PARALLEL: u32 = 10;
/// The most bytes of all outputs together.
pub const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// What to do for each of what.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub items: Vec<Value>,
    pub parallel: u32,
    pub on_item_error: OnItemError,
}

/// What an item that failed does to the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnItemError {
    /// Nothing more is begun, and the node fails.
    #[default]
    Fail,
    /// Every item is performed; one that failed leaves null.
    Continue,
    /// The same, and the errors are part of the output.
    Collect,
}

const FIELDS: &[&str] = &["items", "parallel", "on_item_error", "do"];
const ON_ITEM_ERROR: &[(&str, OnItemError)] =
    &[("fail", OnItemError::Fail), ("continue", OnItemError::Continue), ("collect", OnItemError::Collect)];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    references,
    resolve,
    retry: |profiles| profiles.work.once(),
    is_tried_once: true,
    is_action: false,
    ..Spec::new("FOR_EACH", Manner::Loops, "Performs one node for each item of a list.", schema, check)
};

/// What `with` must look like.
pub fn schema() -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().filter(|kind| kind.spec().is_action).map(|kind| kind.name()).collect();
    let does = json!({
        "description": "What is done for each item: a node without key, needs, when and on_error, with item and index \
            to look at.",
        "type": "object", "required": ["kind"], "properties": { "kind": { "enum": kinds }, "with": {} },
    });
    object(
        &["items", "do"],
        &[
            ("items", late("The list.", json!({ "type": "array", "maxItems": MAX_ITEMS }))),
            (
                "parallel",
                late(
                    "How many at once; 10 if absent.",
                    json!({ "type": "integer", "minimum": 1, "maximum": MAX_PARALLEL }),
                ),
            ),
            (
                "on_item_error",
                late(
                    "What an item that failed does: fail, continue or collect.",
                    json!({ "enum": ["fail", "continue", "collect"] }),
                ),
            ),
            ("do", does),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, |fields| {
        fields.require("do");
        read(fields)
    })
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

/// What is done for each item, as a node; it has the loop's own key. None if the loop is no loop.
pub fn action(node: &Node) -> Option<Node> {
    let mut fields = node.with.get("do")?.as_object()?.clone();
    fields.insert("key".to_owned(), json!(node.key));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The same, as a node that was read is stored.
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

/// The kind of what is done, and its configuration; none if it cannot be told.
pub(crate) fn inner(with: &Value) -> Option<(Kind, &Value)> {
    static NONE: Value = Value::Null;
    let does = with.get("do")?;
    let kind = Kind::parse(does.get("kind")?.as_str()?).filter(|kind| kind.spec().is_action)?;
    Some((kind, does.get("with").unwrap_or(&NONE)))
}

/// What it looks at: its list, and what is done for each item.
pub(super) fn references(with: &Value) -> Survey {
    let mut survey = template::survey(&super::without(with, &["do"]));
    let condition = super::condition::references("/do/if", with.pointer("/do/if"));
    let mut add = |below: &str, inner: Survey| {
        survey.paths.extend(inner.paths.into_iter().map(|(at, path)| (format!("{below}{at}"), path)));
        survey.errors.extend(inner.errors.into_iter().map(|(at, error)| (format!("{below}{at}"), error)));
        survey.statuses |= inner.statuses;
    };
    add("", condition);
    if let Some((kind, with)) = inner(with) {
        add("/do/with", super::references(kind, with));
    }
    survey
}

/// Its input: the list and how it is gone through.
pub(super) fn resolve(with: &Value, scope: &Scope) -> Result<Value, Failure> {
    super::resolve_all(&super::without(with, &["do"]), scope)
}

/// The outputs are larger than a loop's may be.
pub fn too_large() -> Failure {
    let most = MAX_OUTPUT_BYTES >> 20;
    let message = format!("the items' outputs are larger than {most} MiB together: let each produce less");
    Failure::new(Class::ValidationError, message)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
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
        Some(_) => fields.integer("parallel", 1..=MAX_PARALLEL).and_then(|number| u32::try_from(number).ok()),
    };
    let on_item_error = fields.choice("on_item_error", ON_ITEM_ERROR).unwrap_or_default();
    Some(Config { items: items?, parallel: parallel?, on_item_error })
}
