//! Converts the result of an MCP tool into records, as the domain declares them. The size of what is passed on is limited.

use segue_flows::assistant::domain::{DomainSchema, McpToolConfig};
use segue_flows::assistant::tools::{DomainToolResult, ReturnedDomainRecord};
use segue_flows::limits::RECORD_TEXT_CHARS_MAX;
use segue_mcp::{CallToolResult, tool_result_text, truncate_server_text};
use serde_json::{Map, Value, json};

use crate::limits::{MCP_ROWS_MAX, READ_BYTES_MAX};

/// Converts a result. If no records are declared or found, the text is passed on.
pub(super) fn convert_tool_result(
    domain: &DomainSchema,
    tool: Option<&McpToolConfig>,
    result: &CallToolResult,
) -> DomainToolResult {
    let text = tool_result_text(result);
    if result.is_error == Some(true) {
        let why = if text.is_empty() { "the server reports a failure".to_owned() } else { text };
        return DomainToolResult { refusal: Some(truncate_server_text(why)), ..DomainToolResult::default() };
    }
    let value = result.structured_content.clone().or_else(|| serde_json::from_str(&text).ok());
    match value.as_ref().and_then(|value| extract_rows(domain, tool?, value)) {
        Some(rows) => {
            let total = u64::try_from(rows.len()).ok();
            let mut bytes = 0;
            let fits = |row: &ReturnedDomainRecord| {
                bytes += serde_json::to_string(row).map_or(0, |row| row.len());
                bytes <= READ_BYTES_MAX
            };
            let rows = rows.into_iter().take(MCP_ROWS_MAX).take_while(fits).collect();
            DomainToolResult { rows, total, ..DomainToolResult::default() }
        }
        None => {
            let text = if text.is_empty() { value.map(|value| value.to_string()).unwrap_or_default() } else { text };
            DomainToolResult { text: Some(truncate_server_text(text)), ..DomainToolResult::default() }
        }
    }
}

fn extract_rows(domain: &DomainSchema, tool: &McpToolConfig, value: &Value) -> Option<Vec<ReturnedDomainRecord>> {
    let kind = domain.find_type(tool.returned_type.as_deref()?)?;
    let items = match value.pointer(&tool.at)? {
        Value::Array(items) => items.as_slice(),
        one @ Value::Object(_) => std::slice::from_ref(one),
        _ => return None,
    };
    let row = |item: &Value| {
        let id = match item.get(&tool.id)? {
            Value::Null => return None,
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        let fields: Map<String, Value> = kind
            .fields
            .iter()
            .filter_map(|field| {
                Some((field.name.clone(), convert_server_field_value(field.kind.is_link(), item.get(&field.name)?)))
            })
            .collect();
        let label = match item.get(&kind.label) {
            Some(Value::String(label)) => label.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        Some(ReturnedDomainRecord { kind: kind.name.clone(), id, label, fields })
    };
    Some(items.iter().filter_map(row).collect())
}

/// Converts a field value. A server gives a link as a bare id; results contain `{"id", "label"}`.
fn convert_server_field_value(is_link: bool, value: &Value) -> Value {
    let one = |value: &Value| match value {
        Value::Object(_) => value.clone(),
        Value::String(id) => json!({"id": id, "label": ""}),
        other => json!({"id": other.to_string(), "label": ""}),
    };
    match value {
        Value::String(text) if !is_link => Value::String(text.chars().take(RECORD_TEXT_CHARS_MAX).collect()),
        _ if !is_link => value.clone(),
        Value::Null => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(one).collect()),
        value => one(value),
    }
}

/// Converts ids to numbers where the server's schema asks for numbers. Ids are texts everywhere else.
pub(super) fn coerce_ids_to_schema<'n>(
    arguments: &mut Map<String, Value>,
    names: impl Iterator<Item = &'n String>,
    schema: &Map<String, Value>,
) {
    let is_number = |schema: Option<&Value>| {
        let kind = schema.and_then(|schema| schema.get("type"));
        let is = |word: &str| {
            kind.is_some_and(|kind| kind == word || kind.as_array().is_some_and(|kinds| kinds.contains(&json!(word))))
        };
        (is("integer") || is("number")) && !is("string")
    };
    let to_number = |id: &mut Value| {
        if let Some(number) = id.as_str().and_then(|id| id.parse::<i64>().ok()) {
            *id = json!(number);
        }
    };
    let declared = schema.get("properties");
    for name in names {
        let declared = declared.and_then(|declared| declared.get(name));
        match arguments.get_mut(name) {
            Some(Value::Array(ids)) if is_number(declared.and_then(|declared| declared.get("items"))) => {
                ids.iter_mut().for_each(to_number);
            }
            Some(id) if is_number(declared) => to_number(id),
            _ => {}
        }
    }
}
