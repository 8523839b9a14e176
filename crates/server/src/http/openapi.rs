//! The OpenAPI 3.1 document of the API, made from the handlers and the types in `wire`.
//!
//! Invariants
//! - The same macro registers and describes a route, so every served route is described.
//! - Every body has an example, and every route has an error response.
//! - `docs/reference/openapi.json` is this document; a test compares them. `dev/api-clients` lints the file, generates
//!   clients from it and compiles them.
//!
//! Not here: descriptions of routes (at their handlers), the two protocols of Supabase (docs/reference/realtime.md).

mod complete;
mod examples;

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{public, streams, v1};

/// The description of the whole API.
const ABOUT: &str = "Forebay runs workflows for workspaces, each within its limit. Lists come in pages: send the \
    `nextCursor` of a page as `?cursor=` to get the next page; the last page has none. Every error is an RFC 9457 \
    problem with a stable `code`. Times are RFC 3339 in UTC. Unknown fields and parameters are refused. Operations \
    tagged `streams` send server-sent events and do not end. In addition to this API, `/realtime/v1/websocket` and \
    `/rest/v1` use protocols of Supabase: see docs/reference/realtime.md.";

/// Reads this OpenAPI document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub(crate) async fn get() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

/// The whole document.
pub(crate) fn document() -> Value {
    let routes = public().merge(super::health()).nest("/api/v1", v1().merge(streams())).into_openapi();
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    document["info"] = json!({
        "title": "Forebay", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    document["servers"] = json!([{ "url": "/" }]);
    document["security"] = json!([{ "key": [] }]);
    document["components"]["securitySchemes"] = json!({
        "key": { "type": "http", "scheme": "bearer", "description": "An API key: `fbk_` and 72 letters and digits." },
    });
    for (name, schema) in problem_schemas() {
        document["components"]["schemas"][name] = schema;
    }
    shorten_pages(&mut document["components"]["schemas"]);
    complete::name_variants(&mut document);
    document["components"]["responses"] = json!({ "Problem": {
        "description": "The request was refused or failed. `code` is the stable reason; `detail` explains it.",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/ProblemBody" } } },
    } });
    let schemas = document["components"]["schemas"].clone();
    for (path, operations) in document["paths"].as_object_mut().into_iter().flatten() {
        for operation in operations.as_object_mut().into_iter().flatten().map(|(_, operation)| operation) {
            if path.starts_with("/api/v1/") {
                operation["responses"]["default"] = json!({ "$ref": "#/components/responses/Problem" });
            }
            // Handlers of different resources have the same name, such as `list`, so the tag is added to the name.
            let part = |name: &Value| name.as_str().unwrap_or_default().to_owned();
            operation["operationId"] =
                json!(format!("{}_{}", part(&operation["tags"][0]), part(&operation["operationId"])));
            complete::describe_responses(operation);
            add_examples(operation, &schemas);
        }
    }
    add_examples(&mut document["components"]["responses"]["Problem"], &schemas);
    document
}

/// The schemas of errors. No handler has them in its signature, so they are added here.
fn problem_schemas() -> Vec<(String, Value)> {
    use utoipa::{PartialSchema as _, ToSchema as _};
    let mut schemas = vec![("ProblemBody".to_owned(), crate::wire::ProblemBody::schema())];
    crate::wire::ProblemBody::schemas(&mut schemas);
    schemas.into_iter().map(|(name, schema)| (name, serde_json::to_value(schema).unwrap_or_default())).collect()
}

/// Makes each page refer to the schema of its items instead of repeating the schema.
fn shorten_pages(schemas: &mut Value) {
    for (name, schema) in schemas.as_object_mut().into_iter().flatten() {
        if let Some(item) = name.strip_prefix("Page_") {
            schema["properties"]["items"]["items"] = json!({ "$ref": format!("#/components/schemas/{item}") });
        }
    }
}

/// Puts an example beside the schema of every body.
fn add_examples(value: &mut Value, schemas: &Value) {
    if let Some(bodies) = value.get_mut("content").and_then(Value::as_object_mut) {
        for (_, body) in bodies {
            if body.get("example").is_none()
                && let Some(example) = example_of(&body["schema"], schemas)
            {
                body["example"] = example;
            }
        }
    }
    for below in ["requestBody", "responses"] {
        match value.get_mut(below) {
            Some(below @ Value::Object(_)) if below.get("content").is_some() => add_examples(below, schemas),
            Some(Value::Object(answers)) => answers.iter_mut().for_each(|(_, answer)| add_examples(answer, schemas)),
            _ => {}
        }
    }
}

/// The example for a schema: that of its type, or for a page a list with the example of its items.
fn example_of(schema: &Value, schemas: &Value) -> Option<Value> {
    let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) else {
        return match schema["type"].as_str() {
            Some("string") => Some(json!("ok")),
            _ => schema.as_object().is_some_and(Map::is_empty).then(|| json!({ "openapi": "3.1.0" })),
        };
    };
    if name.starts_with("Page_") {
        let item = example_of(&schemas[name]["properties"]["items"]["items"], schemas)?;
        let page = [("items", json!([item])), ("nextCursor", json!(examples::CURSOR))];
        return Some(Value::Object(
            page.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<Map<_, _>>(),
        ));
    }
    examples::of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything below a value, with the way to it.
    fn walk<'a>(value: &'a Value, way: &str, found: &mut Vec<(String, &'a Value)>) {
        found.push((way.to_owned(), value));
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, below)| walk(below, &format!("{way}/{name}"), found))
            }
            Value::Array(items) => items.iter().for_each(|below| walk(below, way, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_that_is_checked_in_is_this_one() {
        let text = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
        expect_test::expect_file!["../../../../docs/reference/openapi.json"].assert_eq(&text);
    }

    #[test]
    fn every_reference_resolves_and_every_operation_id_is_unique() {
        let document = document();
        let mut found = Vec::new();
        walk(&document, "", &mut found);
        for (way, value) in &found {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{way}: {reference}");
            }
        }
        let mut names: Vec<&str> = found.iter().filter_map(|(_, value)| value.get("operationId")?.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_response_has_a_description() {
        let document = document();
        let mut found = Vec::new();
        walk(&document["paths"], "", &mut found);
        let responses = found.iter().filter(|(way, _)| way.ends_with("/responses"));
        for (way, response) in responses.flat_map(|(way, all)| {
            all.as_object()
                .expect("responses")
                .iter()
                .map(move |(status, response)| (format!("{way}/{status}"), response))
        }) {
            let described = response["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described || response.get("$ref").is_some(), "{way}: give it `description = \"…\"` in its handler");
        }
    }

    #[test]
    fn every_union_has_a_discriminator() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let mut tagged = 0;
        for (name, schema) in schemas {
            let of_union = schema["allOf"].as_array().into_iter().flatten().any(|part| {
                let of = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
                of.is_some_and(|of| schemas[of].get("oneOf").is_some())
            });
            assert!(!of_union, "{name}: generators drop an allOf of a union");
            let Some(variants) = schema.get("oneOf").and_then(Value::as_array) else { continue };
            tagged += 1;
            let mapping =
                schema["discriminator"]["mapping"].as_object().unwrap_or_else(|| panic!("{name}: no mapping"));
            let tag = schema["discriminator"]["propertyName"].as_str().expect("the tag's name");
            assert_eq!(mapping.len(), variants.len(), "{name}");
            for (value, reference) in mapping {
                let variant = reference.as_str().and_then(|way| document.pointer(way.trim_start_matches('#')));
                let variant = variant.unwrap_or_else(|| panic!("{name}: {reference} leads nowhere"));
                assert_eq!(variant["properties"][tag]["enum"], json!([value]), "{name}");
                assert!(variant["title"].is_string(), "{name}: {value} has no title");
            }
        }
        assert!(tagged > 0, "the reasons to wait are a union");
        let waiting = &schemas["WaitingReasonDelayedUntil"];
        assert_eq!(waiting["required"], json!(["availableAt", "reason", "message"]));
        assert_eq!(waiting["properties"]["availableAt"]["format"], "date-time");
    }

    /// The description does not know every attribute that renames a field on the wire.
    #[test]
    fn every_field_has_its_name_in_json() {
        let document = document();
        for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
            for field in schema["properties"].as_object().into_iter().flatten().map(|(field, _)| field) {
                assert!(!field.contains('_'), "{name}.{field} is no field of this API: give it #[serde(rename = …)]");
            }
        }
        let full = kernel::queue::explain::Waiting::WorkspaceFull { running: 1, limit: 1, held_by: Vec::new() };
        let sent = serde_json::to_value(full).expect("JSON");
        let known =
            document["components"]["schemas"]["WaitingReasonWorkspaceFull"]["properties"].as_object().expect("fields");
        assert!(sent.as_object().expect("an object").keys().all(|field| known.contains_key(field)), "{sent}");
    }

    /// Generators call the type of a field that is described in place by its owner's name and its own.
    #[test]
    fn no_inline_type_gets_the_name_of_another_type() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for (owner, schema) in schemas {
            for (field, below) in schema["properties"].as_object().into_iter().flatten() {
                let in_place = below["type"] == "object" || below.get("enum").is_some() || below.get("oneOf").is_some();
                let name = format!("{owner}{}", complete::pascal(field));
                let hint = "rename the type with #[schema(as = …)]";
                assert!(
                    !in_place || !schemas.contains_key(&name),
                    "{owner}.{field} and {name} would be one type: {hint}"
                );
            }
        }
    }

    #[test]
    fn no_two_types_share_a_name() {
        let mut names = Vec::new();
        for folder in ["../kernel/src", "src"] {
            names_below(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut names);
        }
        assert!(names.len() > 100, "the search finds the types: {}", names.len());
        names.sort_unstable();
        let twice: Vec<&String> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).filter_map(|pair| pair.first()).collect();
        assert!(twice.is_empty(), "the later would replace the earlier: {twice:?}; use #[schema(as = …)]");
    }

    /// The names under which types below a folder are described.
    fn names_below(folder: &std::path::Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                names_below(&entry, names);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&entry).expect("a file");
                names.extend(text.split("ToSchema").skip(1).filter_map(name_of).filter(|name| !name.is_empty()));
            }
        }
    }

    /// The name of the type whose derive stands before this text.
    fn name_of(text: &str) -> Option<String> {
        let word = |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
        let item = ["pub struct ", "pub enum ", "struct ", "enum "].iter().filter_map(|kind| text.find(kind)).min()?;
        let (attributes, item) = text.split_at(item);
        // Only attributes may stand between: all else is no derive.
        if !attributes.starts_with([')', ',']) {
            return None;
        }
        match attributes.split_once("schema(as = ") {
            Some((_, name)) => word(name),
            None => word(item.trim_start_matches("pub ").split_once(' ')?.1),
        }
    }

    #[test]
    fn every_body_has_an_example_that_fits_it() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let mut found = Vec::new();
        walk(&document, "", &mut found);
        let bodies: Vec<_> =
            found.iter().filter(|(_, value)| value.get("schema").is_some() && value.get("in").is_none()).collect();
        assert!(bodies.len() > 40, "the walk finds the bodies: {}", bodies.len());
        // A field that is called schema is no body.
        let is_body =
            |way: &str| !["/headers/", "/example", "/components/schemas/"].iter().any(|part| way.contains(part));
        for (way, body) in bodies.into_iter().filter(|(way, _)| is_body(way)) {
            let example = body.get("example");
            let hint = "add one to crates/server/src/http/openapi/examples.rs";
            let example = example.unwrap_or_else(|| panic!("{way} has no example: {hint}"));
            fits(example, &body["schema"], &document["components"]["schemas"], way);
        }
    }

    /// An example has every field that is required, and none that is not there.
    fn fits(example: &Value, schema: &Value, schemas: &Value, way: &str) {
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        let schema = name.map_or(schema, |name| &schemas[name]);
        if let (Value::Object(fields), Some(known)) = (example, schema["properties"].as_object()) {
            for (name, value) in fields {
                let below = known.get(name).unwrap_or_else(|| panic!("{way}: the example has a field {name}"));
                fits(value, below, schemas, &format!("{way}/{name}"));
            }
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                assert!(fields.contains_key(name), "{way}: the example has no field {name}");
            }
        }
        for (item, below) in example.as_array().into_iter().flatten().zip(std::iter::repeat(&schema["items"])) {
            fits(item, below, schemas, way);
        }
    }

    #[test]
    fn every_route_says_what_it_is_for_and_may_answer_with_a_problem() {
        let document = document();
        let paths = document["paths"].as_object().expect("paths");
        for (path, method, operation) in paths.iter().flat_map(|(path, operations)| {
            operations.as_object().expect("operations").iter().map(move |(method, operation)| (path, method, operation))
        }) {
            let route = format!("{method} {path}");
            assert!(
                operation["summary"].as_str().is_some_and(|text| text.len() > 5),
                "{route}: a `///` on its handler"
            );
            let is_open = operation["security"] == json!([{}]);
            assert_eq!(
                is_open,
                !path.starts_with("/api/v1/"),
                "{route}: a key is needed below /api/v1 and nowhere else"
            );
            assert!(is_open || operation["responses"]["default"].is_object(), "{route}");
            for name in path.split(['{', '}']).skip(1).step_by(2) {
                let is_it = |given: &Value| given["name"] == name && given["in"] == "path";
                assert!(operation["parameters"].as_array().is_some_and(|all| all.iter().any(is_it)), "{route}: {name}");
            }
        }
    }
}
