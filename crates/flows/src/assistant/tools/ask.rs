//! What a model asks for, in the host's terms; or what is wrong with it, by name.

use serde_json::{Map, Value, json};

use super::{Offer, Operation, Purpose, Told, offers};
use crate::assistant::domain::listed;
use crate::assistant::domain::{Domain, Field, Filter, ID, Kind, Need, Op, Query, RecordType, check_record};
use crate::assistant::facts::{PlannedStep, StepKind};
use crate::assistant::registry::{Detail, Held, Registry};
use crate::assistant::state::Memory;
use crate::limits::{REFERENCES_MAX, WRITE_ROWS_MAX};

/// The tools over tables, and what each is given.
pub const TOOLS: [(&str, Operation); 6] = [
    ("read", Operation::Read),
    ("create", Operation::Create),
    ("update", Operation::Update),
    ("delete", Operation::Delete),
    ("link", Operation::Link),
    ("unlink", Operation::Unlink),
];

/// What a wish for a tool comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// This is to be run.
    Run(Box<Told>),
    /// These were asked for, and all of each is at hand.
    AtHand(Vec<String>),
}

/// Puts a model's wish in the host's terms.
///
/// # Errors
/// What is wrong with it, one by one; nothing is run then.
pub fn wanted(
    domain: &Domain,
    memory: &Memory,
    step: (u32, &PlannedStep),
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Wanted, Vec<String>> {
    let wish = Wish { domain, entities: &memory.entities, turn: step.0, step: step.1 };
    if let Some(server) = &domain.server {
        let offers = offers(server, &memory.tools);
        return match offers.iter().find(|offer| offer.name == tool) {
            Some(offer) => wish.call(offer, arguments),
            None => Err(vec![no_tool(tool, offers.iter().map(|offer| offer.name))]),
        };
    }
    let Some((_, operation)) = TOOLS.iter().find(|(name, _)| *name == tool) else {
        return Err(vec![no_tool(tool, TOOLS.iter().map(|(name, _)| *name))]);
    };
    if operation.writes() && step.1.kind != StepKind::Write {
        return Err(vec![format!(
            "`{tool}` changes records, and this step was planned as `{}`; only a `write` step may do that",
            step.1.kind.word()
        )]);
    }
    match operation {
        Operation::Read => wish.read(arguments),
        Operation::Create => wish.create(arguments),
        Operation::Update => wish.update(arguments),
        Operation::Delete => wish.delete(arguments),
        _ => wish.link(*operation, arguments),
    }
}

fn no_tool<'n>(tool: &str, known: impl Iterator<Item = &'n str>) -> String {
    format!("there is no tool `{tool}`; there are {}", listed(known))
}

struct Wish<'w> {
    domain: &'w Domain,
    entities: &'w Registry,
    turn: u32,
    step: &'w PlannedStep,
}

impl<'w> Wish<'w> {
    fn told(&self, op: Operation, rest: Value) -> Wanted {
        let rest = match rest {
            Value::Object(rest) => rest,
            _ => Map::new(),
        };
        Wanted::Run(Box::new(Told {
            domain: self.domain.name.clone(),
            op,
            purpose: Purpose::Call,
            turn: self.turn,
            step: Some(self.step.step),
            step_type: Some(self.step.kind),
            rest,
        }))
    }

    /// The type that is meant: the one named, or that of the step.
    fn kind(&self, arguments: &Map<String, Value>) -> Result<&'w RecordType, Vec<String>> {
        let name = arguments.get("type").and_then(Value::as_str).unwrap_or(&self.step.subdomain);
        self.domain.expect_type(name).map_err(|why| vec![why])
    }

    /// What stands in a link: a reference, never an id.
    fn resolve(&self, field: &Field, reference: &str) -> Result<String, String> {
        self.entities.id_of(reference, field.to.as_deref().unwrap_or_default())
    }

    fn read(&self, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        let mut asked = arguments.clone();
        // Those who know what they want name it.
        if let Some(refs) = asked.remove("refs") {
            let own = json!({"field": ID, "op": "in", "value": refs});
            match asked.entry("where").or_insert_with(|| json!([])) {
                Value::Array(filters) => filters.push(own),
                other => *other = json!([other.clone(), own]),
            }
        }
        let kind = match named(arguments).first() {
            Some(first) if !arguments.contains_key("type") => {
                let entity = self.entities.expect(first, None).map_err(|why| vec![why])?;
                self.domain.expect_type(&entity.kind).map_err(|why| vec![why])?
            }
            _ => self.kind(arguments)?,
        };
        asked.insert("type".to_owned(), Value::String(kind.name.clone()));
        let query = Query::read(kind, &asked, &|field, name| self.resolve(field, name))?;
        if let Some(references) = self.at_hand(kind, &query) {
            return Ok(Wanted::AtHand(references));
        }
        Ok(self.told(Operation::Read, json!(query)))
    }

    /// The references a read is for, if it names them and all of each is at hand.
    fn at_hand(&self, kind: &RecordType, query: &Query) -> Option<Vec<String>> {
        let [Filter { field, op: Op::Is | Op::In, value }] = query.filters.as_slice() else { return None };
        if field != ID {
            return None;
        }
        let ids: Vec<&str> = match value {
            Value::Array(ids) => ids.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let references = ids.iter().map(|id| {
            let reference = self.entities.reference_of(&kind.name, id)?;
            let is_full = self.entities.get(reference).is_some_and(|entity| entity.detail == Detail::Full);
            is_full.then(|| reference.to_owned())
        });
        references.collect::<Option<Vec<_>>>().filter(|references| !references.is_empty())
    }

    fn create(&self, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        let mut wrong = Vec::new();
        let drafts = named_in(arguments, "drafts");
        let mut records: Vec<Value> = match arguments.get("records").or_else(|| arguments.get("record")) {
            Some(Value::Array(records)) => records.clone(),
            Some(record @ Value::Object(_)) => vec![record.clone()],
            None | Some(Value::Null) => Vec::new(),
            Some(other) => return Err(vec![format!("`records` must be a list of records, not {other}")]),
        };
        let kind = match drafts.first().filter(|_| !arguments.contains_key("type")) {
            Some(first) => {
                let entity = self.entities.expect(first, None).map_err(|why| vec![why])?;
                self.domain.expect_type(&entity.kind).map_err(|why| vec![why])?
            }
            None => self.kind(arguments)?,
        };
        let mut from: Vec<Option<String>> = vec![None; records.len()];
        for draft in drafts {
            match self.draft(&draft, kind) {
                Ok(content) => {
                    records.push(content);
                    from.push(Some(draft));
                }
                Err(why) => wrong.push(why),
            }
        }
        if records.is_empty() && wrong.is_empty() {
            wrong.push("nothing is to be created: give `records`, or `drafts` to be saved".to_owned());
        }
        if records.len() > WRITE_ROWS_MAX {
            wrong.push(format!("{} records at once; at most {WRITE_ROWS_MAX} are taken", records.len()));
        }
        let mut checked = Vec::new();
        for record in &records {
            let Value::Object(values) = record else {
                wrong.push(format!("a record must be an object of fields, not {record}"));
                continue;
            };
            match check_record(kind, values, Need::All, &|field, name| self.resolve(field, name)) {
                Ok(values) => checked.push(Value::Object(values)),
                Err(complaints) => wrong.extend(complaints),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(self.told(Operation::Create, json!({"type": kind.name, "records": checked, "drafts": from})))
    }

    /// What a draft says, if it is one that can be saved.
    fn draft(&self, reference: &str, kind: &RecordType) -> Result<Value, String> {
        let entity = self.entities.expect(reference, Some(&kind.name))?;
        match &entity.held {
            _ if entity.is_saved() => Err(format!("`{reference}` is saved already; use `update` to change it")),
            Some(Held::Draft(content)) => Ok(Value::Object(content.clone())),
            _ => Err(format!("nothing of `{reference}` is at hand any more")),
        }
    }

    fn update(&self, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        let updates: Vec<Value> = match arguments.get("updates") {
            Some(Value::Array(updates)) => updates.clone(),
            _ => vec![Value::Object(arguments.clone())],
        };
        if updates.len() > WRITE_ROWS_MAX {
            return Err(vec![format!("{} changes at once; at most {WRITE_ROWS_MAX} are taken", updates.len())]);
        }
        let mut wrong = Vec::new();
        let mut checked = Vec::new();
        for update in &updates {
            match self.one_update(update) {
                Ok(update) => checked.push(update),
                Err(complaints) => wrong.extend(complaints),
            }
        }
        if wrong.is_empty() { Ok(self.told(Operation::Update, json!({"updates": checked}))) } else { Err(wrong) }
    }

    fn one_update(&self, update: &Value) -> Result<Value, Vec<String>> {
        let usage = || vec!["an update is {\"ref\": …, \"set\": {field: value, …}}".to_owned()];
        let reference = update.get("ref").and_then(Value::as_str).ok_or_else(usage)?;
        let Some(Value::Object(set)) = update.get("set") else { return Err(usage()) };
        let (kind, id) = self.stored(reference).map_err(|why| vec![why])?;
        if set.is_empty() {
            return Err(vec![format!("nothing is to be set in `{reference}`")]);
        }
        let set = check_record(kind, set, Need::Given, &|field, name| self.resolve(field, name))?;
        Ok(json!({"type": kind.name, "id": id, "set": set}))
    }

    fn delete(&self, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        let references = named(arguments);
        if references.is_empty() || references.len() > WRITE_ROWS_MAX {
            return Err(vec![format!("`refs` must name 1 to {WRITE_ROWS_MAX} records")]);
        }
        let mut wrong = Vec::new();
        let mut items = Vec::new();
        for reference in &references {
            match self.stored(reference) {
                Ok((kind, id)) => items.push(json!({"type": kind.name, "id": id})),
                Err(why) => wrong.push(why),
            }
        }
        if wrong.is_empty() { Ok(self.told(Operation::Delete, json!({"items": items}))) } else { Err(wrong) }
    }

    fn link(&self, operation: Operation, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        let reference = arguments.get("ref").and_then(Value::as_str).unwrap_or_default();
        let (kind, id) = self.stored(reference).map_err(|why| vec![why])?;
        let name = arguments.get("field").and_then(Value::as_str).unwrap_or_default();
        let field = kind.expect_field(name).map_err(|why| vec![why])?;
        if field.kind != Kind::Links {
            let links = kind.fields.iter().filter(|field| field.kind == Kind::Links).map(|field| field.name.as_str());
            return Err(vec![format!(
                "`{name}` does not hold several links; of `{}`, {} do (one link is set with `update`)",
                kind.name,
                listed(links)
            )]);
        }
        let to = named_in(arguments, "to");
        if to.is_empty() {
            return Err(vec!["`to` must name at least one reference".to_owned()]);
        }
        let ids: Vec<Result<String, String>> = to.iter().map(|to| self.resolve(field, to)).collect();
        let wrong: Vec<String> = ids.iter().filter_map(|id| id.clone().err()).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let ids: Vec<String> = ids.into_iter().flatten().collect();
        Ok(self.told(operation, json!({"type": kind.name, "id": id, "field": name, "to": ids})))
    }

    /// The type and id of a reference that is stored.
    fn stored(&self, reference: &str) -> Result<(&'w RecordType, String), String> {
        let entity = self.entities.expect(reference, None)?;
        let id = self.entities.id_of(reference, &entity.kind)?;
        Ok((self.domain.expect_type(&entity.kind)?, id))
    }

    /// A tool of the server: ids where it was given references, everything else as it is.
    fn call(&self, tool: &Offer<'_>, arguments: &Map<String, Value>) -> Result<Wanted, Vec<String>> {
        if tool.writes && self.step.kind != StepKind::Write {
            return Err(vec![format!(
                "`{}` changes something, and this step was planned as `{}`; only a `write` step may do that",
                tool.name,
                self.step.kind.word()
            )]);
        }
        let mut wrong = Vec::new();
        let mut given = arguments.clone();
        for (name, value) in &mut given {
            let kind = tool.declared.and_then(|declared| declared.references.get(name));
            match kind {
                Some(kind) => self.identify(name, kind, value).unwrap_or_else(|why| wrong.push(why)),
                None => self.unmask(value),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(self.told(Operation::Call, json!({"tool": tool.name, "arguments": given, "writes": tool.writes})))
    }

    /// Puts ids in place of the references of an argument that takes nothing else.
    fn identify(&self, name: &str, kind: &str, value: &mut Value) -> Result<(), String> {
        let id = |value: &Value| match value.as_str() {
            Some(reference) => self.entities.id_of(reference, kind).map(Value::String),
            None => Err(format!("`{name}` must be a reference of type `{kind}`")),
        };
        *value = match &*value {
            Value::Null => return Ok(()),
            Value::Array(values) => Value::Array(values.iter().map(id).collect::<Result<_, _>>()?),
            one => id(one)?,
        };
        Ok(())
    }

    /// Puts ids in place of references wherever one stands alone: the model was shown nothing else.
    fn unmask(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(id) = self.entities.get(text).and_then(|entity| entity.id.clone()) {
                    *text = id;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.unmask(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.unmask(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The references that a wish names.
fn named(arguments: &Map<String, Value>) -> Vec<String> {
    let many = named_in(arguments, "refs");
    if many.is_empty() { named_in(arguments, "ref") } else { many }
}

fn named_in(arguments: &Map<String, Value>, name: &str) -> Vec<String> {
    match arguments.get(name) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => {
            let texts = many.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
            texts.take(REFERENCES_MAX).collect()
        }
        _ => Vec::new(),
    }
}
