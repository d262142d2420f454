//! Executes writes, each completely or not at all, and returns the previous values. Refusals contain no ids, since models read
//! them.

use rusqlite::Connection;
use segue_core::signal::canonical_json;
use segue_flows::assistant::domain::{
    DomainSchema, LinkDeletePolicy, RecordField, RecordFieldKind, RecordType, RecordValidationMode, check_record,
};
use segue_flows::assistant::tools::{DomainOperation, DomainToolRequest, DomainToolResult, RecordChange, RecordKey};
use serde_json::{Map, Value};

use super::run_log::ToolRunKey;
use super::{RecordsError, labels, links, record_store};
use crate::limits::BLOCKING_LABELS_MAX;

/// Executes a write.
pub(super) fn execute_write(
    connection: &Connection,
    domain: &DomainSchema,
    request: &DomainToolRequest,
    run: &ToolRunKey,
) -> Result<DomainToolResult, RecordsError> {
    let writer = DomainRecordWriter { connection, domain };
    let changes = match request.operation {
        DomainOperation::Create => writer.create_records(request, run)?,
        DomainOperation::Update => writer.update_records(request)?,
        DomainOperation::Delete => writer.delete_records(request)?,
        DomainOperation::Link | DomainOperation::Unlink => writer.change_links(request)?,
        DomainOperation::Undo => writer.undo_changes(request)?,
        operation => return Err(RecordsError::refused(format!("`{}` is not a write", operation.as_str()))),
    };
    let mut result = DomainToolResult { changes, ..DomainToolResult::default() };
    for change in &result.changes {
        let kind = domain.expect_type(&change.kind).map_err(RecordsError::refused)?;
        if let Some(values) = &change.after {
            let fields: Vec<&RecordField> = kind.fields.iter().collect();
            result.rows.push(labels::build_record_row(connection, domain, kind, &change.id, values, &fields)?);
        }
    }
    Ok(result)
}

struct DomainRecordWriter<'w> {
    connection: &'w Connection,
    domain: &'w DomainSchema,
}

impl<'w> DomainRecordWriter<'w> {
    fn expect_type(&self, name: &str) -> Result<&'w RecordType, RecordsError> {
        self.domain.expect_type(name).map_err(RecordsError::refused)
    }

    /// Returns the id if the linked record exists.
    fn check_link_target(&self, field: &RecordField, id: &str) -> Result<String, String> {
        let to = field.to.as_deref().and_then(|to| self.domain.find_type(to));
        let found = to.map(|to| record_store::record_exists(self.connection, self.domain, to, id));
        match found {
            Some(Ok(true)) => Ok(id.to_owned()),
            Some(Err(error)) => Err(format!("`{}` could not be looked up: {error}", field.name)),
            _ => Err(format!("`{}` links to a record that does not exist", field.name)),
        }
    }

    /// Checks that all linked records exist.
    fn check_record_links(&self, kind: &RecordType, values: &Map<String, Value>) -> Result<(), RecordsError> {
        for field in kind.fields.iter().filter(|field| field.kind.is_link()) {
            let ids = match values.get(&field.name) {
                Some(Value::Array(ids)) => ids.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for id in ids.iter().filter_map(Value::as_str) {
                self.check_link_target(field, id).map_err(RecordsError::refused)?;
            }
        }
        Ok(())
    }

    fn check_record_fields(
        &self,
        kind: &RecordType,
        values: &Value,
        completeness: RecordValidationMode,
    ) -> Result<Map<String, Value>, RecordsError> {
        let values = values.as_object().ok_or_else(|| RecordsError::refused("a record must be an object of fields"))?;
        let link = |field: &RecordField, id: &str| self.check_link_target(field, id);
        check_record(kind, values, completeness, &link).map_err(|wrong| RecordsError::refused(wrong.join("; ")))
    }

    /// Stores a record and returns the change.
    fn save_record(
        &self,
        kind: &RecordType,
        id: &str,
        before: Option<Map<String, Value>>,
        values: &Map<String, Value>,
    ) -> Result<RecordChange, RecordsError> {
        record_store::upsert_record(self.connection, self.domain, kind, id, values)?;
        // Read back, so that an undo compares with what is really stored.
        let after = record_store::load_record(self.connection, self.domain, kind, id)?;
        let label = labels::load_label(self.connection, self.domain, kind, id)?;
        Ok(RecordChange { kind: kind.name.clone(), id: id.to_owned(), label, before, after })
    }

    fn create_records(&self, request: &DomainToolRequest, run: &ToolRunKey) -> Result<Vec<RecordChange>, RecordsError> {
        let kind = self.expect_type(text_parameter(request, "type"))?;
        let records = request.parameters.get("records").and_then(Value::as_array);
        let records = records.ok_or_else(|| RecordsError::refused("the request has no `records` to create"))?;
        let mut changes = Vec::new();
        for (index, values) in records.iter().enumerate() {
            let values = self.check_record_fields(kind, values, RecordValidationMode::AllRequired)?;
            changes.push(self.save_record(kind, &run.record_id(index), None, &values)?);
        }
        Ok(changes)
    }

    fn update_records(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, RecordsError> {
        let updates = request.parameters.get("updates").and_then(Value::as_array);
        let updates = updates.ok_or_else(|| RecordsError::refused("the request has no `updates`"))?;
        let mut changes = Vec::new();
        for update in updates {
            let kind = self.expect_type(update.get("type").and_then(Value::as_str).unwrap_or_default())?;
            let id = update.get("id").and_then(Value::as_str).unwrap_or_default();
            let before = self.load_existing(kind, id)?;
            let set = self.check_record_fields(
                kind,
                update.get("set").unwrap_or(&Value::Null),
                RecordValidationMode::PartialUpdate,
            )?;
            let mut values = before.clone();
            values.extend(set);
            changes.push(self.save_record(kind, id, Some(before), &values)?);
        }
        Ok(changes)
    }

    fn load_existing(&self, kind: &RecordType, id: &str) -> Result<Map<String, Value>, RecordsError> {
        record_store::load_record(self.connection, self.domain, kind, id)?
            .ok_or_else(|| RecordsError::refused(format!("a requested {} does not exist any more", kind.name)))
    }

    fn delete_records(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, RecordsError> {
        let items: Vec<RecordKey> = request
            .parameters
            .get("items")
            .and_then(|items| serde_json::from_value(items.clone()).ok())
            .ok_or_else(|| RecordsError::refused("the request has no `items` to delete"))?;
        let mut changes = Vec::new();
        for item in &items {
            changes.extend(self.clear_incoming_links(item, &items)?);
        }
        for item in &items {
            let kind = self.expect_type(&item.kind)?;
            changes.push(self.delete_one(kind, &item.id)?);
        }
        Ok(changes)
    }

    fn delete_one(&self, kind: &RecordType, id: &str) -> Result<RecordChange, RecordsError> {
        let before = self.load_existing(kind, id)?;
        let label = labels::load_label(self.connection, self.domain, kind, id)?;
        record_store::delete_record(self.connection, self.domain, kind, id)?;
        Ok(RecordChange { kind: kind.name.clone(), id: id.to_owned(), label, before: Some(before), after: None })
    }

    /// Clears the links to a record that will be deleted, or refuses the deletion. Links from records in `deleted` do not count.
    fn clear_incoming_links(&self, item: &RecordKey, deleted: &[RecordKey]) -> Result<Vec<RecordChange>, RecordsError> {
        let mut changes = Vec::new();
        for (kind, field) in self.domain.fields_linking_to(&item.kind) {
            let leading = links::find_ids_linking_to(self.connection, self.domain, kind, field, &item.id)?;
            let is_going = |id: &String| deleted.iter().any(|other| other.kind == kind.name && other.id == *id);
            let staying: Vec<String> = leading.into_iter().filter(|id| !is_going(id)).collect();
            if field.on_delete == LinkDeletePolicy::Refuse && !staying.is_empty() {
                return Err(self.blocked_delete_error(kind, item, &staying)?);
            }
            for id in &staying {
                let before = self.load_existing(kind, id)?;
                let mut values = before.clone();
                let emptied = match values.get(&field.name) {
                    Some(Value::Array(ids)) => {
                        Value::Array(ids.iter().filter(|to| to.as_str() != Some(&item.id)).cloned().collect())
                    }
                    _ => Value::Null,
                };
                values.insert(field.name.clone(), emptied);
                changes.push(self.save_record(kind, id, Some(before), &values)?);
            }
        }
        Ok(changes)
    }

    fn blocked_delete_error(
        &self,
        kind: &RecordType,
        item: &RecordKey,
        ids: &[String],
    ) -> Result<RecordsError, RecordsError> {
        let deleted = labels::load_label(self.connection, self.domain, self.expect_type(&item.kind)?, &item.id)?;
        let names: Result<Vec<String>, _> = ids
            .iter()
            .take(BLOCKING_LABELS_MAX)
            .map(|id| labels::load_label(self.connection, self.domain, kind, id))
            .collect();
        let more = if ids.len() > BLOCKING_LABELS_MAX { " and others" } else { "" };
        let count = ids.len();
        Ok(RecordsError::refused(format!(
            "“{deleted}” cannot be deleted while {count} of type `{}` link to it ({}{more}); change or delete those first",
            kind.name,
            names?.join(", ")
        )))
    }

    fn change_links(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, RecordsError> {
        let kind = self.expect_type(text_parameter(request, "type"))?;
        let field = kind.expect_field(text_parameter(request, "field")).map_err(RecordsError::refused)?;
        if field.kind != RecordFieldKind::Links {
            return Err(RecordsError::refused(format!("`{}` is not a field of several links", field.name)));
        }
        let before = self.load_existing(kind, text_parameter(request, "id"))?;
        let to = request.parameters.get("to").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut ids: Vec<Value> = before.get(&field.name).and_then(Value::as_array).cloned().unwrap_or_default();
        for id in to {
            ids.retain(|known| *known != id);
            if request.operation == DomainOperation::Link {
                self.check_link_target(field, id.as_str().unwrap_or_default()).map_err(RecordsError::refused)?;
                ids.push(id);
            }
        }
        let mut values = before.clone();
        values.insert(field.name.clone(), Value::Array(ids));
        Ok(vec![self.save_record(kind, text_parameter(request, "id"), Some(before), &values)?])
    }

    /// Reverses changes, the last one first. Refuses if a record was changed since.
    fn undo_changes(&self, request: &DomainToolRequest) -> Result<Vec<RecordChange>, RecordsError> {
        let changes: Vec<RecordChange> = request
            .parameters
            .get("changes")
            .and_then(|changes| serde_json::from_value(changes.clone()).ok())
            .ok_or_else(|| RecordsError::refused("the request has no `changes` to undo"))?;
        let mut undone = Vec::new();
        for change in changes.iter().rev() {
            let kind = self.expect_type(&change.kind)?;
            let now = record_store::load_record(self.connection, self.domain, kind, &change.id)?;
            if !is_same_record(now.as_ref(), change.after.as_ref()) {
                return Err(RecordsError::refused(format!(
                    "{} “{}” was changed since the write",
                    kind.name, change.label
                )));
            }
            match &change.before {
                Some(before) => undone.push(self.save_record(kind, &change.id, now, before)?),
                None if now.is_none() => {}
                None => {
                    let item = RecordKey { kind: kind.name.clone(), id: change.id.clone() };
                    undone.extend(self.clear_incoming_links(&item, &[])?);
                    undone.push(self.delete_one(kind, &change.id)?);
                }
            }
        }
        // Links are checked at the end, because restored records may link to each other.
        for change in changes.iter().filter(|change| change.before.is_some()) {
            let kind = self.expect_type(&change.kind)?;
            self.check_record_links(kind, &self.load_existing(kind, &change.id)?)?;
        }
        Ok(undone)
    }
}

fn text_parameter<'t>(request: &'t DomainToolRequest, name: &str) -> &'t str {
    request.parameters.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether a record is unchanged. Empty fields are ignored, because a column may have been added since.
fn is_same_record(current: Option<&Map<String, Value>>, expected: Option<&Map<String, Value>>) -> bool {
    let canonical = |values: &Map<String, Value>| {
        let present = values.iter().filter(|(_, value)| !value.is_null() && **value != Value::Array(Vec::new()));
        canonical_json(&Value::Object(present.map(|(name, value)| (name.clone(), value.clone())).collect()))
    };
    current.map(canonical) == expected.map(canonical)
}
