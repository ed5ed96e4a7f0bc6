//! The JSON Schema of packs, made of the same types that read them.

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use super::DomainPack;

const COMPONENTS: &str = "#/components/schemas/";

pub(super) fn json_schema() -> Value {
    let mut parts = Vec::new();
    DomainPack::schemas(&mut parts);
    let mut definitions = Map::new();
    for (name, schema) in parts {
        definitions.insert(name, adapted(serde_json::to_value(schema).unwrap_or_default()));
    }
    // Whole numbers may stand without quotes (`injection_count`).
    definitions["AxisValue"]["properties"]["id"]["type"] = json!(["string", "integer"]);
    let mut root = adapted(serde_json::to_value(DomainPack::schema()).unwrap_or_default());
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Domain pack");
    root["$defs"] = Value::Object(definitions);
    root
}

/// References inside of the document, and objects with just the members that are named.
fn adapted(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(name) = reference.strip_prefix(COMPONENTS)
            {
                *reference = format!("#/$defs/{name}");
            }
            for member in members.values_mut() {
                *member = adapted(member.take());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = adapted(item.take())),
        _ => {}
    }
    schema
}
