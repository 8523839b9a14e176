//! Completes the document with what code generators need and the types of the handlers do not provide.
//!
//! Invariants
//! - Every response has a description: OpenAPI requires one.
//! - A tagged union has a schema for each variant, and a discriminator that names these schemas.
//! - No schema is an `allOf` that contains a union, because generators drop such schemas.
//!
//! Not here: examples of bodies (`examples`).

use serde_json::{Map, Value, json};

const SCHEMAS: &str = "#/components/schemas/";

/// Adds a description to the responses of an operation that have none.
pub(super) fn describe_responses(operation: &mut Value) {
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let is_described =
            response.get("$ref").is_some() || response["description"].as_str().is_some_and(|d| !d.is_empty());
        if let Some(meaning) = meaning(status).filter(|_| !is_described) {
            response["description"] = json!(meaning);
        }
    }
}

fn meaning(status: &str) -> Option<&'static str> {
    Some(match status {
        "200" => "Success.",
        "201" => "Created.",
        "202" => "Accepted. The work continues after this response.",
        "204" => "Success, without a body.",
        _ => return None,
    })
}

/// Gives each variant of each tagged union a schema of its own.
pub(super) fn name_variants(document: &mut Value) {
    merge_unions(document);
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in &names {
        let Some(tag) = tag(&schemas[name]) else { continue };
        let variants = std::mem::take(&mut schemas[name]["oneOf"]);
        let (mut references, mut mapping) = (Vec::new(), Map::new());
        for mut variant in variants.as_array().cloned().unwrap_or_default() {
            let value = variant["properties"][&tag]["enum"][0].as_str().unwrap_or_default().to_owned();
            let own = format!("{name}{}", pascal(&value));
            variant["title"] = json!(own);
            references.push(json!({ "$ref": format!("{SCHEMAS}{own}") }));
            mapping.insert(value, json!(format!("{SCHEMAS}{own}")));
            schemas.insert(own, variant);
        }
        schemas[name]["title"] = json!(name);
        schemas[name]["oneOf"] = json!(references);
        schemas[name]["discriminator"] = json!({ "propertyName": tag, "mapping": mapping });
    }
    schemas.sort_keys();
}

/// Moves the fields beside a union into its variants.
fn merge_unions(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let names: Vec<String> = schemas.keys().cloned().collect();
    let mut merged = Vec::new();
    for name in &names {
        if let Some((union, of)) = merge(&schemas[name], schemas) {
            schemas[name] = union;
            merged.push(of);
        }
    }
    remove_unused(document, &merged);
}

/// Converts a schema that has both fields and a union: each variant of the new union also has the fields. Also returns
/// the name of the original union.
fn merge(schema: &Value, schemas: &Map<String, Value>) -> Option<(Value, String)> {
    let [union, beside] = schema["allOf"].as_array()?.as_slice() else { return None };
    let of = union["$ref"].as_str()?.strip_prefix(SCHEMAS)?;
    let mut variants = schemas.get(of)?["oneOf"].as_array()?.clone();
    for variant in &mut variants {
        let fields = variant["properties"].as_object_mut()?;
        fields.extend(beside["properties"].as_object()?.clone());
        let required = beside["required"].as_array().cloned().unwrap_or_default();
        variant["required"].as_array_mut()?.extend(required);
    }
    let mut merged = schema.clone();
    merged.as_object_mut()?.remove("allOf");
    merged["oneOf"] = json!(variants);
    Some((merged, of.to_owned()))
}

/// The field whose value names the variant of a union.
fn tag(schema: &Value) -> Option<String> {
    let variants = schema["oneOf"].as_array()?;
    let is_tag = |name: &&String| {
        variants.iter().all(|variant| {
            variant["properties"][name.as_str()]["enum"].as_array().is_some_and(|values| values.len() == 1)
        })
    };
    variants.first()?["properties"].as_object()?.keys().find(is_tag).cloned()
}

fn remove_unused(document: &mut Value, names: &[String]) {
    for name in names {
        let reference = json!(format!("{SCHEMAS}{name}")).to_string();
        if !document.to_string().contains(&reference)
            && let Some(schemas) = document["components"]["schemas"].as_object_mut()
        {
            schemas.remove(name);
        }
    }
}

/// `engine_full` as a part of a type's name: `EngineFull`.
pub(super) fn pascal(name: &str) -> String {
    let word = |word: &str| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)).collect();
    name.split(['_', '-']).map(word).collect::<Vec<String>>().concat()
}
