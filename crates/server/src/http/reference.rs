//! What a definition may be: the kinds of nodes, and the schema of documents.

use axum::Json as Reply;
use kernel::definition::Kind;
use kernel::definition::parse;
use kernel::kind;
use serde_json::Value;

use crate::wire::Kinds;

/// Every kind of node, with a JSON Schema of what it takes.
#[utoipa::path(get, path = "/workflow/nodes", tag = "definitions", operation_id = "kinds",
    responses((status = 200, body = Kinds)))]
pub(crate) async fn kinds() -> Reply<Kinds> {
    Reply(Kinds { items: Kind::ALL.into_iter().map(kind::describe).collect() })
}

/// The JSON Schema of a document, for editors.
#[utoipa::path(get, path = "/workflow/schema", tag = "definitions", operation_id = "schema",
    responses((status = 200, description = "JSON Schema, draft 2020-12", body = serde_json::Value)))]
pub(crate) async fn schema() -> Reply<Value> {
    Reply(parse::schema::workflow())
}
