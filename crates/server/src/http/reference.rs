//! The reference for writing definitions: the kinds of nodes, and the JSON Schema of workflow documents.

use axum::Json as Reply;
use kernel::definition::Kind;
use kernel::definition::parse;
use kernel::kind;
use serde_json::Value;

use crate::wire::NodeKinds;

/// Lists the kinds of nodes, each with the JSON Schema of its configuration.
#[utoipa::path(get, path = "/workflow/nodes", tag = "definitions", operation_id = "kinds",
    responses((status = 200, body = NodeKinds)))]
pub(crate) async fn kinds() -> Reply<NodeKinds> {
    Reply(NodeKinds { items: Kind::ALL.into_iter().map(kind::describe).collect() })
}

/// The JSON Schema of workflow documents, for editors.
#[utoipa::path(get, path = "/workflow/schema", tag = "definitions", operation_id = "schema",
    responses((status = 200, description = "JSON Schema, draft 2020-12", body = serde_json::Value)))]
pub(crate) async fn schema() -> Reply<Value> {
    Reply(parse::schema::workflow())
}
