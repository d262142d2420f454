//! Writing: all of a request or nothing of it, with what stood there before. Refusals name no ids: models read them.

use rusqlite::Connection;
use segue_core::signal::json::canonical;
use segue_flows::assistant::domain::{Domain, Field, Kind, Need, OnDelete, RecordType, check_record};
use segue_flows::assistant::tools::{Change, Item, Operation, Reported, Told};
use serde_json::{Map, Value};

use super::runs::Run;
use super::{Refusal, label, links, stored};
use crate::limits::NAMED_MAX;

/// Carries out a write.
pub(super) fn carry_out(connection: &Connection, domain: &Domain, told: &Told, run: &Run) -> Result<Reported, Refusal> {
    let writer = Writer { connection, domain };
    let changes = match told.op {
        Operation::Create => writer.create(told, run)?,
        Operation::Update => writer.update(told)?,
        Operation::Delete => writer.delete(told)?,
        Operation::Link | Operation::Unlink => writer.link(told)?,
        Operation::Undo => writer.undo(told)?,
        op => return Err(Refusal::because(format!("`{}` is no write", op.word()))),
    };
    let mut reported = Reported { changes, ..Reported::default() };
    for change in &reported.changes {
        let kind = domain.expect_type(&change.kind).map_err(Refusal::because)?;
        if let Some(values) = &change.after {
            let fields: Vec<&Field> = kind.fields.iter().collect();
            reported.rows.push(label::row(connection, domain, kind, &change.id, values, &fields)?);
        }
    }
    Ok(reported)
}

struct Writer<'w> {
    connection: &'w Connection,
    domain: &'w Domain,
}

impl<'w> Writer<'w> {
    fn kind(&self, name: &str) -> Result<&'w RecordType, Refusal> {
        self.domain.expect_type(name).map_err(Refusal::because)
    }

    /// Whether what a link leads to is there.
    fn leads(&self, field: &Field, id: &str) -> Result<String, String> {
        let to = field.to.as_deref().and_then(|to| self.domain.find(to));
        let found = to.map(|to| stored::is_there(self.connection, self.domain, to, id));
        match found {
            Some(Ok(true)) => Ok(id.to_owned()),
            Some(Err(error)) => Err(format!("`{}` could not be looked up: {error}", field.name)),
            _ => Err(format!("`{}` leads to a record that is not there any more", field.name)),
        }
    }

    /// Whether all that a record led to is still there.
    fn leads_somewhere(&self, kind: &RecordType, values: &Map<String, Value>) -> Result<(), Refusal> {
        for field in kind.fields.iter().filter(|field| field.kind.is_link()) {
            let ids = match values.get(&field.name) {
                Some(Value::Array(ids)) => ids.as_slice(),
                Some(one) => std::slice::from_ref(one),
                None => &[],
            };
            for id in ids.iter().filter_map(Value::as_str) {
                self.leads(field, id).map_err(Refusal::because)?;
            }
        }
        Ok(())
    }

    fn checked(&self, kind: &RecordType, values: &Value, need: Need) -> Result<Map<String, Value>, Refusal> {
        let values = values.as_object().ok_or_else(|| Refusal::because("a record must be an object of fields"))?;
        let link = |field: &Field, id: &str| self.leads(field, id);
        check_record(kind, values, need, &link).map_err(|wrong| Refusal::because(wrong.join("; ")))
    }

    /// Puts a record and says what changed.
    fn put(
        &self,
        kind: &RecordType,
        id: &str,
        before: Option<Map<String, Value>>,
        values: &Map<String, Value>,
    ) -> Result<Change, Refusal> {
        stored::put(self.connection, self.domain, kind, id, values)?;
        // Read back, so that it is compared with what is stored and not with what was meant.
        let after = stored::get(self.connection, self.domain, kind, id)?;
        let label = label::of(self.connection, self.domain, kind, id)?;
        Ok(Change { kind: kind.name.clone(), id: id.to_owned(), label, before, after })
    }

    fn create(&self, told: &Told, run: &Run) -> Result<Vec<Change>, Refusal> {
        let kind = self.kind(text(told, "type"))?;
        let records = told.rest.get("records").and_then(Value::as_array);
        let records = records.ok_or_else(|| Refusal::because("nothing is to be created"))?;
        let mut changes = Vec::new();
        for (place, values) in records.iter().enumerate() {
            let values = self.checked(kind, values, Need::All)?;
            changes.push(self.put(kind, &run.new_id(place), None, &values)?);
        }
        Ok(changes)
    }

    fn update(&self, told: &Told) -> Result<Vec<Change>, Refusal> {
        let updates = told.rest.get("updates").and_then(Value::as_array);
        let updates = updates.ok_or_else(|| Refusal::because("nothing is to be changed"))?;
        let mut changes = Vec::new();
        for update in updates {
            let kind = self.kind(update.get("type").and_then(Value::as_str).unwrap_or_default())?;
            let id = update.get("id").and_then(Value::as_str).unwrap_or_default();
            let before = self.there(kind, id)?;
            let set = self.checked(kind, update.get("set").unwrap_or(&Value::Null), Need::Given)?;
            let mut values = before.clone();
            values.extend(set);
            changes.push(self.put(kind, id, Some(before), &values)?);
        }
        Ok(changes)
    }

    fn there(&self, kind: &RecordType, id: &str) -> Result<Map<String, Value>, Refusal> {
        stored::get(self.connection, self.domain, kind, id)?
            .ok_or_else(|| Refusal::because(format!("a {} that is meant is not there any more", kind.name)))
    }

    fn delete(&self, told: &Told) -> Result<Vec<Change>, Refusal> {
        let items: Vec<Item> = told
            .rest
            .get("items")
            .and_then(|items| serde_json::from_value(items.clone()).ok())
            .ok_or_else(|| Refusal::because("nothing is to be deleted"))?;
        let mut changes = Vec::new();
        for item in &items {
            changes.extend(self.clear_links(item, &items)?);
        }
        for item in &items {
            let kind = self.kind(&item.kind)?;
            changes.push(self.remove(kind, &item.id)?);
        }
        Ok(changes)
    }

    fn remove(&self, kind: &RecordType, id: &str) -> Result<Change, Refusal> {
        let before = self.there(kind, id)?;
        let label = label::of(self.connection, self.domain, kind, id)?;
        stored::remove(self.connection, self.domain, kind, id)?;
        Ok(Change { kind: kind.name.clone(), id: id.to_owned(), label, before: Some(before), after: None })
    }

    /// What leads to a record that goes is emptied, or stands in the way; what goes with it does neither.
    fn clear_links(&self, item: &Item, going: &[Item]) -> Result<Vec<Change>, Refusal> {
        let mut changes = Vec::new();
        for (kind, field) in self.domain.links_to(&item.kind) {
            let leading = links::leading_to(self.connection, self.domain, kind, field, &item.id)?;
            let is_going = |id: &String| going.iter().any(|other| other.kind == kind.name && other.id == *id);
            let staying: Vec<String> = leading.into_iter().filter(|id| !is_going(id)).collect();
            if field.on_delete == OnDelete::Refuse && !staying.is_empty() {
                return Err(self.in_the_way(kind, item, &staying)?);
            }
            for id in &staying {
                let before = self.there(kind, id)?;
                let mut values = before.clone();
                let emptied = match values.get(&field.name) {
                    Some(Value::Array(ids)) => {
                        Value::Array(ids.iter().filter(|to| to.as_str() != Some(&item.id)).cloned().collect())
                    }
                    _ => Value::Null,
                };
                values.insert(field.name.clone(), emptied);
                changes.push(self.put(kind, id, Some(before), &values)?);
            }
        }
        Ok(changes)
    }

    fn in_the_way(&self, kind: &RecordType, item: &Item, ids: &[String]) -> Result<Refusal, Refusal> {
        let gone = label::of(self.connection, self.domain, self.kind(&item.kind)?, &item.id)?;
        let names: Result<Vec<String>, _> =
            ids.iter().take(NAMED_MAX).map(|id| label::of(self.connection, self.domain, kind, id)).collect();
        let more = if ids.len() > NAMED_MAX { " and others" } else { "" };
        let count = ids.len();
        Ok(Refusal::because(format!(
            "“{gone}” cannot be deleted while {count} of type `{}` lead to it ({}{more}); change or delete those first",
            kind.name,
            names?.join(", ")
        )))
    }

    fn link(&self, told: &Told) -> Result<Vec<Change>, Refusal> {
        let kind = self.kind(text(told, "type"))?;
        let field = kind.expect_field(text(told, "field")).map_err(Refusal::because)?;
        if field.kind != Kind::Links {
            return Err(Refusal::because(format!("`{}` does not hold several links", field.name)));
        }
        let before = self.there(kind, text(told, "id"))?;
        let to = told.rest.get("to").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut ids: Vec<Value> = before.get(&field.name).and_then(Value::as_array).cloned().unwrap_or_default();
        for id in to {
            ids.retain(|known| *known != id);
            if told.op == Operation::Link {
                self.leads(field, id.as_str().unwrap_or_default()).map_err(Refusal::because)?;
                ids.push(id);
            }
        }
        let mut values = before.clone();
        values.insert(field.name.clone(), Value::Array(ids));
        Ok(vec![self.put(kind, text(told, "id"), Some(before), &values)?])
    }

    /// Takes changes back, the last one first. What was changed since is not overwritten.
    fn undo(&self, told: &Told) -> Result<Vec<Change>, Refusal> {
        let changes: Vec<Change> = told
            .rest
            .get("changes")
            .and_then(|changes| serde_json::from_value(changes.clone()).ok())
            .ok_or_else(|| Refusal::because("there is nothing to take back"))?;
        let mut undone = Vec::new();
        for change in changes.iter().rev() {
            let kind = self.kind(&change.kind)?;
            let now = stored::get(self.connection, self.domain, kind, &change.id)?;
            if !is_same(now.as_ref(), change.after.as_ref()) {
                return Err(Refusal::because(format!("{} “{}” was changed since", kind.name, change.label)));
            }
            match &change.before {
                Some(before) => undone.push(self.put(kind, &change.id, now, before)?),
                None if now.is_none() => {}
                None => {
                    let item = Item { kind: kind.name.clone(), id: change.id.clone() };
                    undone.extend(self.clear_links(&item, &[])?);
                    undone.push(self.remove(kind, &change.id)?);
                }
            }
        }
        // Looked at when all are back: what went together may have led to one another.
        for change in changes.iter().filter(|change| change.before.is_some()) {
            let kind = self.kind(&change.kind)?;
            self.leads_somewhere(kind, &self.there(kind, &change.id)?)?;
        }
        Ok(undone)
    }
}

fn text<'t>(told: &'t Told, name: &str) -> &'t str {
    told.rest.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a record is as it was left. A column that came later is empty in what was left before.
fn is_same(now: Option<&Map<String, Value>>, then: Option<&Map<String, Value>>) -> bool {
    let plain = |values: &Map<String, Value>| {
        let given = values.iter().filter(|(_, value)| !value.is_null() && **value != Value::Array(Vec::new()));
        canonical(&Value::Object(given.map(|(name, value)| (name.clone(), value.clone())).collect()))
    };
    now.map(plain) == then.map(plain)
}
