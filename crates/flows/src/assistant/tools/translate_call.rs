//! What a model asks for, in the host's terms; or what is wrong with it, by name.

use serde_json::{Map, Value, json};

use super::{AvailableTool, DomainOperation, DomainToolRequest, ToolRunPurpose, list_available_tools};
use crate::assistant::domain::format_name_list;
use crate::assistant::domain::{
    DomainSchema, FieldKind, FilterOperator, ID_FIELD, RecordCompleteness, RecordField, RecordFilter, RecordQuery,
    RecordType, check_record,
};
use crate::assistant::facts::{PlannedStep, StepKind};
use crate::assistant::registry::{DetailLevel, EntityRegistry, RecordSource};
use crate::assistant::state::AssistantState;
use crate::limits::{REFERENCES_MAX, WRITE_ROWS_MAX};

/// The tools over tables, and what each is given.
pub const RECORD_TOOLS: [(&str, DomainOperation); 6] = [
    ("read", DomainOperation::Read),
    ("create", DomainOperation::Create),
    ("update", DomainOperation::Update),
    ("delete", DomainOperation::Delete),
    ("link", DomainOperation::Link),
    ("unlink", DomainOperation::Unlink),
];

/// What a wish for a tool comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum TranslatedToolCall {
    /// This is to be run.
    Run(Box<DomainToolRequest>),
    /// These were asked for, and all of each is at hand.
    AlreadyLoaded(Vec<String>),
}

/// Puts a model's wish in the host's terms.
///
/// # Errors
/// What is wrong with it, one by one; nothing is run then.
pub fn translate_tool_call(
    domain: &DomainSchema,
    state: &AssistantState,
    step: (u32, &PlannedStep),
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<TranslatedToolCall, Vec<String>> {
    let wish = ToolCallTranslator { domain, entities: &state.entities, turn: step.0, step: step.1 };
    if let Some(server) = &domain.server {
        let offers = list_available_tools(server, &state.server_tools);
        return match offers.iter().find(|offer| offer.name == tool) {
            Some(offer) => wish.translate_mcp_call(offer, arguments),
            None => Err(vec![unknown_tool_error(tool, offers.iter().map(|offer| offer.name))]),
        };
    }
    let Some((_, operation)) = RECORD_TOOLS.iter().find(|(name, _)| *name == tool) else {
        return Err(vec![unknown_tool_error(tool, RECORD_TOOLS.iter().map(|(name, _)| *name))]);
    };
    if operation.is_write() && step.1.kind != StepKind::Write {
        return Err(vec![format!(
            "`{tool}` changes records, and this step was planned as `{}`; only a `write` step may do that",
            step.1.kind.as_str()
        )]);
    }
    match operation {
        DomainOperation::Read => wish.translate_read(arguments),
        DomainOperation::Create => wish.translate_create(arguments),
        DomainOperation::Update => wish.translate_update(arguments),
        DomainOperation::Delete => wish.translate_delete(arguments),
        _ => wish.translate_link_change(*operation, arguments),
    }
}

fn unknown_tool_error<'n>(tool: &str, known: impl Iterator<Item = &'n str>) -> String {
    format!("there is no tool `{tool}`; there are {}", format_name_list(known))
}

struct ToolCallTranslator<'w> {
    domain: &'w DomainSchema,
    entities: &'w EntityRegistry,
    turn: u32,
    step: &'w PlannedStep,
}

impl<'w> ToolCallTranslator<'w> {
    fn build_run(&self, op: DomainOperation, rest: Value) -> TranslatedToolCall {
        let rest = match rest {
            Value::Object(rest) => rest,
            _ => Map::new(),
        };
        TranslatedToolCall::Run(Box::new(DomainToolRequest {
            domain: self.domain.name.clone(),
            operation: op,
            purpose: ToolRunPurpose::StepToolCall,
            turn: self.turn,
            step: Some(self.step.step),
            step_kind: Some(self.step.kind),
            parameters: rest,
        }))
    }

    /// The type that is meant: the one named, or that of the step.
    fn requested_type(&self, arguments: &Map<String, Value>) -> Result<&'w RecordType, Vec<String>> {
        let name = arguments.get("type").and_then(Value::as_str).unwrap_or(&self.step.subdomain);
        self.domain.expect_type(name).map_err(|why| vec![why])
    }

    /// What stands in a link: a reference, never an id.
    fn resolve_link(&self, field: &RecordField, reference: &str) -> Result<String, String> {
        self.entities.resolve_id(reference, field.to.as_deref().unwrap_or_default())
    }

    fn translate_read(&self, arguments: &Map<String, Value>) -> Result<TranslatedToolCall, Vec<String>> {
        let mut asked = arguments.clone();
        // Those who know what they want name it.
        if let Some(refs) = asked.remove("refs") {
            let own = json!({"field": ID_FIELD, "op": "in", "value": refs});
            match asked.entry("where").or_insert_with(|| json!([])) {
                Value::Array(filters) => filters.push(own),
                other => *other = json!([other.clone(), own]),
            }
        }
        let kind = match requested_references(arguments).first() {
            Some(first) if !arguments.contains_key("type") => {
                let entity = self.entities.expect_entity(first, None).map_err(|why| vec![why])?;
                self.domain.expect_type(&entity.kind).map_err(|why| vec![why])?
            }
            _ => self.requested_type(arguments)?,
        };
        asked.insert("type".to_owned(), Value::String(kind.name.clone()));
        let query = RecordQuery::parse(kind, &asked, &|field, name| self.resolve_link(field, name))?;
        if let Some(references) = self.find_loaded_references(kind, &query) {
            return Ok(TranslatedToolCall::AlreadyLoaded(references));
        }
        Ok(self.build_run(DomainOperation::Read, json!(query)))
    }

    /// The references a read is for, if it names them and all of each is at hand.
    fn find_loaded_references(&self, kind: &RecordType, query: &RecordQuery) -> Option<Vec<String>> {
        let [RecordFilter { field, op: FilterOperator::Equal | FilterOperator::In, value }] = query.filters.as_slice()
        else {
            return None;
        };
        if field != ID_FIELD {
            return None;
        }
        let ids: Vec<&str> = match value {
            Value::Array(ids) => ids.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let references = ids.iter().map(|id| {
            let reference = self.entities.find_reference(&kind.name, id)?;
            let is_full = self.entities.get(reference).is_some_and(|entity| entity.detail == DetailLevel::Full);
            is_full.then(|| reference.to_owned())
        });
        references.collect::<Option<Vec<_>>>().filter(|references| !references.is_empty())
    }

    fn translate_create(&self, arguments: &Map<String, Value>) -> Result<TranslatedToolCall, Vec<String>> {
        let mut wrong = Vec::new();
        let drafts = parse_reference_list(arguments, "drafts");
        let mut records: Vec<Value> = match arguments.get("records").or_else(|| arguments.get("record")) {
            Some(Value::Array(records)) => records.clone(),
            Some(record @ Value::Object(_)) => vec![record.clone()],
            None | Some(Value::Null) => Vec::new(),
            Some(other) => return Err(vec![format!("`records` must be a list of records, not {other}")]),
        };
        let kind = match drafts.first().filter(|_| !arguments.contains_key("type")) {
            Some(first) => {
                let entity = self.entities.expect_entity(first, None).map_err(|why| vec![why])?;
                self.domain.expect_type(&entity.kind).map_err(|why| vec![why])?
            }
            None => self.requested_type(arguments)?,
        };
        let mut from: Vec<Option<String>> = vec![None; records.len()];
        for draft in drafts {
            match self.draft_fields(&draft, kind) {
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
            match check_record(kind, values, RecordCompleteness::AllRequired, &|field, name| {
                self.resolve_link(field, name)
            }) {
                Ok(values) => checked.push(Value::Object(values)),
                Err(complaints) => wrong.extend(complaints),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(self.build_run(DomainOperation::Create, json!({"type": kind.name, "records": checked, "drafts": from})))
    }

    /// What a draft says, if it is one that can be saved.
    fn draft_fields(&self, reference: &str, kind: &RecordType) -> Result<Value, String> {
        let entity = self.entities.expect_entity(reference, Some(&kind.name))?;
        match &entity.source {
            _ if entity.is_saved() => Err(format!("`{reference}` is saved already; use `update` to change it")),
            Some(RecordSource::Draft(content)) => Ok(Value::Object(content.clone())),
            _ => Err(format!("nothing of `{reference}` is at hand any more")),
        }
    }

    fn translate_update(&self, arguments: &Map<String, Value>) -> Result<TranslatedToolCall, Vec<String>> {
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
            match self.translate_single_update(update) {
                Ok(update) => checked.push(update),
                Err(complaints) => wrong.extend(complaints),
            }
        }
        if wrong.is_empty() {
            Ok(self.build_run(DomainOperation::Update, json!({"updates": checked})))
        } else {
            Err(wrong)
        }
    }

    fn translate_single_update(&self, update: &Value) -> Result<Value, Vec<String>> {
        let usage = || vec!["an update is {\"ref\": …, \"set\": {field: value, …}}".to_owned()];
        let reference = update.get("ref").and_then(Value::as_str).ok_or_else(usage)?;
        let Some(Value::Object(set)) = update.get("set") else { return Err(usage()) };
        let (kind, id) = self.find_stored_record(reference).map_err(|why| vec![why])?;
        if set.is_empty() {
            return Err(vec![format!("nothing is to be set in `{reference}`")]);
        }
        let set =
            check_record(kind, set, RecordCompleteness::PartialUpdate, &|field, name| self.resolve_link(field, name))?;
        Ok(json!({"type": kind.name, "id": id, "set": set}))
    }

    fn translate_delete(&self, arguments: &Map<String, Value>) -> Result<TranslatedToolCall, Vec<String>> {
        let references = requested_references(arguments);
        if references.is_empty() || references.len() > WRITE_ROWS_MAX {
            return Err(vec![format!("`refs` must name 1 to {WRITE_ROWS_MAX} records")]);
        }
        let mut wrong = Vec::new();
        let mut items = Vec::new();
        for reference in &references {
            match self.find_stored_record(reference) {
                Ok((kind, id)) => items.push(json!({"type": kind.name, "id": id})),
                Err(why) => wrong.push(why),
            }
        }
        if wrong.is_empty() { Ok(self.build_run(DomainOperation::Delete, json!({"items": items}))) } else { Err(wrong) }
    }

    fn translate_link_change(
        &self,
        operation: DomainOperation,
        arguments: &Map<String, Value>,
    ) -> Result<TranslatedToolCall, Vec<String>> {
        let reference = arguments.get("ref").and_then(Value::as_str).unwrap_or_default();
        let (kind, id) = self.find_stored_record(reference).map_err(|why| vec![why])?;
        let name = arguments.get("field").and_then(Value::as_str).unwrap_or_default();
        let field = kind.expect_field(name).map_err(|why| vec![why])?;
        if field.kind != FieldKind::Links {
            let links =
                kind.fields.iter().filter(|field| field.kind == FieldKind::Links).map(|field| field.name.as_str());
            return Err(vec![format!(
                "`{name}` does not hold several links; of `{}`, {} do (one link is set with `update`)",
                kind.name,
                format_name_list(links)
            )]);
        }
        let to = parse_reference_list(arguments, "to");
        if to.is_empty() {
            return Err(vec!["`to` must name at least one reference".to_owned()]);
        }
        let ids: Vec<Result<String, String>> = to.iter().map(|to| self.resolve_link(field, to)).collect();
        let wrong: Vec<String> = ids.iter().filter_map(|id| id.clone().err()).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let ids: Vec<String> = ids.into_iter().flatten().collect();
        Ok(self.build_run(operation, json!({"type": kind.name, "id": id, "field": name, "to": ids})))
    }

    /// The type and id of a reference that is stored.
    fn find_stored_record(&self, reference: &str) -> Result<(&'w RecordType, String), String> {
        let entity = self.entities.expect_entity(reference, None)?;
        let id = self.entities.resolve_id(reference, &entity.kind)?;
        Ok((self.domain.expect_type(&entity.kind)?, id))
    }

    /// A tool of the server: ids where it was given references, everything else as it is.
    fn translate_mcp_call(
        &self,
        tool: &AvailableTool<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<TranslatedToolCall, Vec<String>> {
        if tool.is_write && self.step.kind != StepKind::Write {
            return Err(vec![format!(
                "`{}` changes something, and this step was planned as `{}`; only a `write` step may do that",
                tool.name,
                self.step.kind.as_str()
            )]);
        }
        let mut wrong = Vec::new();
        let mut given = arguments.clone();
        for (name, value) in &mut given {
            let kind = tool.config.and_then(|declared| declared.references.get(name));
            match kind {
                Some(kind) => self.replace_reference_argument(name, kind, value).unwrap_or_else(|why| wrong.push(why)),
                None => self.replace_references_with_ids(value),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(self.build_run(
            DomainOperation::CallTool,
            json!({"tool": tool.name, "arguments": given, "writes": tool.is_write}),
        ))
    }

    /// Puts ids in place of the references of an argument that takes nothing else.
    fn replace_reference_argument(&self, name: &str, kind: &str, value: &mut Value) -> Result<(), String> {
        let id = |value: &Value| match value.as_str() {
            Some(reference) => self.entities.resolve_id(reference, kind).map(Value::String),
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
    fn replace_references_with_ids(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(id) = self.entities.get(text).and_then(|entity| entity.id.clone()) {
                    *text = id;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_references_with_ids(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.replace_references_with_ids(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The references that a wish names.
fn requested_references(arguments: &Map<String, Value>) -> Vec<String> {
    let many = parse_reference_list(arguments, "refs");
    if many.is_empty() { parse_reference_list(arguments, "ref") } else { many }
}

fn parse_reference_list(arguments: &Map<String, Value>, name: &str) -> Vec<String> {
    match arguments.get(name) {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => {
            let texts = many.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned));
            texts.take(REFERENCES_MAX).collect()
        }
        _ => Vec::new(),
    }
}
