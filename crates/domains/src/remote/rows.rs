//! What a server's tool returns, as records: found where the declaration says they are, with the fields it declares.

use rmcp::model::CallToolResult;
use segue_flows::assistant::domain::{Domain, ServerTool};
use segue_flows::assistant::tools::{Reported, Row};
use serde_json::{Map, Value};

use super::words;
use crate::limits::REMOTE_ROWS_MAX;

/// A result in the terms of the flow. Words are passed on where no records are declared or none are found.
pub(super) fn reported(domain: &Domain, tool: &ServerTool, result: &CallToolResult) -> Reported {
    let words = words(result);
    if result.is_error == Some(true) {
        let why = if words.is_empty() { "the server says that it failed".to_owned() } else { words };
        return Reported { refused: Some(why), ..Reported::default() };
    }
    let value = result.structured_content.clone().or_else(|| serde_json::from_str(&words).ok());
    let rows = value.as_ref().and_then(|value| rows(domain, tool, value));
    match rows {
        Some(rows) => {
            let total = u64::try_from(rows.len()).ok();
            Reported { rows: rows.into_iter().take(REMOTE_ROWS_MAX).collect(), total, ..Reported::default() }
        }
        None => {
            let said = if words.is_empty() { value.map(|value| value.to_string()).unwrap_or_default() } else { words };
            Reported { said: Some(said), ..Reported::default() }
        }
    }
}

fn rows(domain: &Domain, tool: &ServerTool, value: &Value) -> Option<Vec<Row>> {
    let kind = domain.find(tool.returned.as_deref()?)?;
    let items = match value.pointer(&tool.at)? {
        Value::Array(items) => items.as_slice(),
        one @ Value::Object(_) => std::slice::from_ref(one),
        _ => return None,
    };
    let row = |item: &Value| {
        let id = match item.get(&tool.id)? {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        let fields: Map<String, Value> = kind
            .fields
            .iter()
            .filter_map(|field| Some((field.name.clone(), linked(field.kind.is_link(), item.get(&field.name)?))))
            .collect();
        let label = match item.get(&kind.label) {
            Some(Value::String(label)) => label.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        Some(Row { kind: kind.name.clone(), id, label, fields })
    };
    Some(items.iter().filter_map(row).collect())
}

/// A link is reported with what it leads to; a server gives the bare id.
fn linked(is_link: bool, value: &Value) -> Value {
    let one = |value: &Value| match value {
        Value::Object(_) => value.clone(),
        Value::String(id) => serde_json::json!({"id": id, "label": ""}),
        other => serde_json::json!({"id": other.to_string(), "label": ""}),
    };
    match value {
        _ if !is_link => value.clone(),
        Value::Null => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(one).collect()),
        value => one(value),
    }
}
