//! Translates a model's tool call into a request for a domain tool, or reports what is wrong with it.

use serde_json::{Map, Value, json};

use super::write_binding::StepRecordWritePermissions;
use super::{AvailableMcpTool, DomainOperation, DomainToolRequest, DomainToolRunPurpose, list_available_tools};
use crate::assistant::domain::{
    DomainSchema, ID_FIELD, RecordField, RecordFieldCondition, RecordFieldKind, RecordFilterOperator, RecordQuery,
    RecordType, RecordValidationMode, check_record, format_name_list,
};
use crate::assistant::facts::{AssistantPlanStep, AssistantPlanStepKind};
use crate::assistant::registry::{KnownEntities, LoadedRecordSource, RecordLoadLevel};
use crate::assistant::state::AssistantState;
use crate::limits::{REFERENCES_MAX, WRITE_ROWS_MAX};

/// The argument of `read` that reads again what is already loaded.
pub(in crate::assistant) const REFRESH_ARGUMENT: &str = "refresh";

/// The tools over tables, by the names that models use.
const RECORD_TOOLS: [(&str, DomainOperation); 6] = [
    ("read", DomainOperation::Read),
    ("create", DomainOperation::Create),
    ("update", DomainOperation::Update),
    ("delete", DomainOperation::Delete),
    ("link", DomainOperation::Link),
    ("unlink", DomainOperation::Unlink),
];

/// What a tool call results in.
#[derive(Debug, Clone, PartialEq)]
pub enum DomainRequestOrAlreadyLoaded {
    /// A request to run.
    Run(Box<DomainToolRequest>),
    /// No request: the records with these references are fully loaded.
    AlreadyLoaded(Vec<String>),
}

/// Translates a tool call of a step (given with its turn) into a request.
///
/// # Errors
/// The call is invalid; the list says what is wrong.
pub fn translate_tool_call(
    domain: &DomainSchema,
    state: &AssistantState,
    step: (u32, &AssistantPlanStep),
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
    let read_references =
        state.current_turn.as_ref().map(|running| running.references_returned_by_reads()).unwrap_or_default();
    let binding = StepRecordWritePermissions { step: step.1, entities: &state.entities, read_references };
    let translator =
        DomainToolCallTranslator { domain, state, entities: &state.entities, turn: step.0, step: step.1, binding };
    if let Some(server) = &domain.server {
        let tools = list_available_tools(server, &state.server_tools);
        return match tools.iter().find(|available| available.name == tool) {
            Some(available) => translator.translate_mcp_call(available, arguments),
            None => Err(vec![unknown_tool_error(tool, tools.iter().map(|available| available.name))]),
        };
    }
    let Some((_, operation)) = RECORD_TOOLS.iter().find(|(name, _)| *name == tool) else {
        return Err(vec![unknown_tool_error(tool, RECORD_TOOLS.iter().map(|(name, _)| *name))]);
    };
    if operation.is_table_write() && step.1.kind != AssistantPlanStepKind::Write {
        return Err(vec![format!(
            "`{tool}` changes records, but this is a `{}` step; only a `write` step may call it",
            step.1.kind.as_str()
        )]);
    }
    if operation.is_table_write() {
        translator.binding.check_planned_operation(tool).map_err(|why| vec![why])?;
    }
    match operation {
        DomainOperation::Read => translator.translate_read(arguments),
        DomainOperation::Create => translator.translate_create(arguments),
        DomainOperation::Update => translator.translate_update(arguments),
        DomainOperation::Delete => translator.translate_delete(arguments),
        _ => translator.translate_link_change(*operation, arguments),
    }
}

fn unknown_tool_error<'n>(tool: &str, known: impl Iterator<Item = &'n str>) -> String {
    format!("there is no tool `{tool}`; the tools are {}", format_name_list(known))
}

struct DomainToolCallTranslator<'w> {
    domain: &'w DomainSchema,
    state: &'w AssistantState,
    entities: &'w KnownEntities,
    turn: u32,
    step: &'w AssistantPlanStep,
    binding: StepRecordWritePermissions<'w>,
}

impl<'w> DomainToolCallTranslator<'w> {
    fn build_run(&self, operation: DomainOperation, parameters: Value) -> DomainRequestOrAlreadyLoaded {
        let parameters = match parameters {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        };
        DomainRequestOrAlreadyLoaded::Run(Box::new(DomainToolRequest {
            domain: self.domain.name.clone(),
            operation,
            purpose: DomainToolRunPurpose::StepToolCall,
            turn: self.turn,
            step: Some(self.step.step),
            step_kind: Some(self.step.kind),
            parameters,
        }))
    }

    /// Returns the type that the call names, or the type of the step.
    fn requested_type(&self, arguments: &Map<String, Value>) -> Result<&'w RecordType, Vec<String>> {
        let name = arguments.get("type").and_then(Value::as_str).unwrap_or(&self.step.subdomain);
        self.domain.expect_type(name).map_err(|why| vec![why])
    }

    /// Returns the id behind a reference in a link field. Ids are not accepted.
    fn resolve_link(&self, field: &RecordField, reference: &str) -> Result<String, String> {
        self.entities.resolve_id(reference, field.to.as_deref().unwrap_or_default())
    }

    /// Like [`Self::resolve_link`], for a record that is written: the target must be part of the step.
    fn resolve_written_link(&self, field: &RecordField, reference: &str) -> Result<String, String> {
        let id = self.resolve_link(field, reference)?;
        self.binding.check_may_link_or_save(reference, field.to.as_deref().unwrap_or_default())?;
        Ok(id)
    }

    fn translate_read(&self, arguments: &Map<String, Value>) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        let mut query = arguments.clone();
        let refresh = query.remove(REFRESH_ARGUMENT).and_then(|refresh| refresh.as_bool()).unwrap_or(false);
        // `refs` is a shorthand for a filter on the id.
        if let Some(refs) = query.remove("refs") {
            let id_filter = json!({"field": ID_FIELD, "op": "in", "value": refs});
            match query.entry("where").or_insert_with(|| json!([])) {
                Value::Array(filters) => filters.push(id_filter),
                other => *other = json!([other.clone(), id_filter]),
            }
        }
        let kind = match requested_references(arguments).first() {
            Some(first) if !arguments.contains_key("type") => {
                let entity = self.entities.expect_entity(first, None).map_err(|why| vec![why])?;
                self.domain.expect_type(&entity.kind).map_err(|why| vec![why])?
            }
            _ => self.requested_type(arguments)?,
        };
        query.insert("type".to_owned(), Value::String(kind.name.clone()));
        let query = RecordQuery::parse(kind, &query, &|field, name| self.resolve_link(field, name))?;
        let loaded = self.find_loaded_references(kind, &query).or_else(|| self.references_for_full_read(kind, &query));
        if let Some(references) = loaded.filter(|_| !refresh) {
            return Ok(DomainRequestOrAlreadyLoaded::AlreadyLoaded(references));
        }
        Ok(self.build_run(DomainOperation::Read, json!(query)))
    }

    /// Returns the records of a type, if a read asks for all of them and they are known completely and unchanged.
    fn references_for_full_read(&self, kind: &RecordType, query: &RecordQuery) -> Option<Vec<String>> {
        let level = if query.full { RecordLoadLevel::Full } else { RecordLoadLevel::Summary };
        let asks_for_all = query.filters.is_empty() && query.sort.is_none();
        let references = self.state.references_of_loaded_type(&kind.name, level).filter(|_| asks_for_all)?;
        (!references.is_empty() && references.len() <= query.limit).then_some(references)
    }

    /// Returns the references that a read names, if all their records are fully loaded.
    fn find_loaded_references(&self, kind: &RecordType, query: &RecordQuery) -> Option<Vec<String>> {
        let [RecordFieldCondition { field, op: RecordFilterOperator::Equal | RecordFilterOperator::In, value }] =
            query.filters.as_slice()
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
            let is_full = self.entities.get(reference).is_some_and(|entity| entity.detail == RecordLoadLevel::Full);
            is_full.then(|| reference.to_owned())
        });
        references.collect::<Option<Vec<_>>>().filter(|references| !references.is_empty())
    }

    fn translate_create(&self, arguments: &Map<String, Value>) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        let mut complaints = Vec::new();
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
        self.binding.check_created_type(&kind.name).map_err(|why| vec![why])?;
        let mut source_drafts: Vec<Option<String>> = vec![None; records.len()];
        for draft in drafts {
            let fields = self.savable_draft_fields(&draft, kind);
            match fields.and_then(|fields| self.binding.check_may_link_or_save(&draft, &kind.name).map(|()| fields)) {
                Ok(content) => {
                    records.push(content);
                    source_drafts.push(Some(draft));
                }
                Err(why) => complaints.push(why),
            }
        }
        if records.is_empty() && complaints.is_empty() {
            complaints.push("nothing to create; give `records`, or `drafts` to save".to_owned());
        }
        if records.len() > WRITE_ROWS_MAX {
            complaints.push(format!("{} records at once; at most {WRITE_ROWS_MAX} are allowed", records.len()));
        }
        let mut checked = Vec::new();
        for record in &records {
            let Value::Object(values) = record else {
                complaints.push(format!("a record must be an object of fields, not {record}"));
                continue;
            };
            match check_record(kind, values, RecordValidationMode::AllRequired, &|field, name| {
                self.resolve_written_link(field, name)
            }) {
                Ok(values) => checked.push(Value::Object(values)),
                Err(wrong) => complaints.extend(wrong),
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        Ok(self.build_run(
            DomainOperation::Create,
            json!({"type": kind.name, "records": checked, "drafts": source_drafts}),
        ))
    }

    /// Returns the fields of a draft that can be saved.
    fn savable_draft_fields(&self, reference: &str, kind: &RecordType) -> Result<Value, String> {
        let entity = self.entities.expect_entity(reference, Some(&kind.name))?;
        match &entity.source {
            _ if entity.is_saved() => Err(format!("`{reference}` is already saved; use `update` to change it")),
            Some(LoadedRecordSource::Draft(content)) => Ok(Value::Object(content.clone())),
            _ => Err(format!("the content of `{reference}` is no longer loaded")),
        }
    }

    fn translate_update(&self, arguments: &Map<String, Value>) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        let updates: Vec<Value> = match arguments.get("updates") {
            Some(Value::Array(updates)) => updates.clone(),
            _ => vec![Value::Object(arguments.clone())],
        };
        if updates.len() > WRITE_ROWS_MAX {
            return Err(vec![format!("{} changes at once; at most {WRITE_ROWS_MAX} are allowed", updates.len())]);
        }
        let mut complaints = Vec::new();
        let mut checked = Vec::new();
        for update in &updates {
            match self.translate_single_update(update) {
                Ok(update) => checked.push(update),
                Err(wrong) => complaints.extend(wrong),
            }
        }
        if complaints.is_empty() {
            Ok(self.build_run(DomainOperation::Update, json!({"updates": checked})))
        } else {
            Err(complaints)
        }
    }

    fn translate_single_update(&self, update: &Value) -> Result<Value, Vec<String>> {
        let usage = || vec!["an update must be {\"ref\": …, \"set\": {field: value, …}}".to_owned()];
        let reference = update.get("ref").and_then(Value::as_str).ok_or_else(usage)?;
        let Some(Value::Object(set)) = update.get("set") else { return Err(usage()) };
        let (kind, id) = self.find_stored_record(reference).map_err(|why| vec![why])?;
        if set.is_empty() {
            return Err(vec![format!("`set` for `{reference}` is empty")]);
        }
        let set = check_record(kind, set, RecordValidationMode::PartialUpdate, &|field, name| {
            self.resolve_written_link(field, name)
        })?;
        Ok(json!({"type": kind.name, "id": id, "set": set}))
    }

    fn translate_delete(&self, arguments: &Map<String, Value>) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        let references = requested_references(arguments);
        if references.is_empty() || references.len() > WRITE_ROWS_MAX {
            return Err(vec![format!("`refs` must name 1 to {WRITE_ROWS_MAX} records")]);
        }
        let mut complaints = Vec::new();
        let mut items = Vec::new();
        for reference in &references {
            match self.find_stored_record(reference) {
                Ok((kind, id)) => items.push(json!({"type": kind.name, "id": id})),
                Err(why) => complaints.push(why),
            }
        }
        if complaints.is_empty() {
            Ok(self.build_run(DomainOperation::Delete, json!({"items": items})))
        } else {
            Err(complaints)
        }
    }

    fn translate_link_change(
        &self,
        operation: DomainOperation,
        arguments: &Map<String, Value>,
    ) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        let reference = arguments.get("ref").and_then(Value::as_str).unwrap_or_default();
        let (kind, id) = self.find_stored_record(reference).map_err(|why| vec![why])?;
        let name = arguments.get("field").and_then(Value::as_str).unwrap_or_default();
        let field = kind.expect_field(name).map_err(|why| vec![why])?;
        if field.kind != RecordFieldKind::Links {
            let links = kind
                .fields
                .iter()
                .filter(|field| field.kind == RecordFieldKind::Links)
                .map(|field| field.name.as_str());
            return Err(vec![format!(
                "`{name}` is not a field of several links; in `{}` these are: {} (set a single link with `update`)",
                kind.name,
                format_name_list(links)
            )]);
        }
        let to = parse_reference_list(arguments, "to");
        if to.is_empty() {
            return Err(vec!["`to` must name at least one reference".to_owned()]);
        }
        let ids: Vec<Result<String, String>> = to.iter().map(|to| self.resolve_written_link(field, to)).collect();
        let complaints: Vec<String> = ids.iter().filter_map(|id| id.clone().err()).collect();
        if !complaints.is_empty() {
            return Err(complaints);
        }
        let ids: Vec<String> = ids.into_iter().flatten().collect();
        Ok(self.build_run(operation, json!({"type": kind.name, "id": id, "field": name, "to": ids})))
    }

    /// Returns the type and id of a saved record that the step may change.
    fn find_stored_record(&self, reference: &str) -> Result<(&'w RecordType, String), String> {
        let entity = self.entities.expect_entity(reference, None)?;
        let id = self.entities.resolve_id(reference, &entity.kind)?;
        self.binding.check_may_change_record(reference)?;
        Ok((self.domain.expect_type(&entity.kind)?, id))
    }

    /// Translates a call of an MCP tool: references become ids, other arguments stay as they are.
    fn translate_mcp_call(
        &self,
        tool: &AvailableMcpTool<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<DomainRequestOrAlreadyLoaded, Vec<String>> {
        if tool.is_write && self.step.kind != AssistantPlanStepKind::Write {
            return Err(vec![format!(
                "`{}` changes data, but this is a `{}` step; only a `write` step may call it",
                tool.name,
                self.step.kind.as_str()
            )]);
        }
        if tool.is_write {
            self.binding.check_planned_operation(tool.name).map_err(|why| vec![why])?;
        }
        let mut complaints = Vec::new();
        if tool.is_write {
            self.check_mentioned_references(arguments.values(), &mut complaints);
        }
        let mut given = arguments.clone();
        for (name, value) in &mut given {
            let kind = tool.config.and_then(|declared| declared.references.get(name));
            match kind {
                Some(kind) => {
                    self.replace_reference_argument(name, kind, value).unwrap_or_else(|why| complaints.push(why))
                }
                None => self.replace_references_with_ids(value),
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        Ok(self.build_run(
            DomainOperation::CallTool,
            json!({"tool": tool.name, "arguments": given, "writes": tool.is_write}),
        ))
    }

    /// Checks that every known reference among the arguments of a server's tool is part of the step.
    fn check_mentioned_references<'v>(&self, values: impl Iterator<Item = &'v Value>, complaints: &mut Vec<String>) {
        for value in values {
            match value {
                Value::String(text) => {
                    let entity = self.entities.get(text).filter(|entity| entity.id.is_some());
                    let checked = entity.map(|entity| self.binding.check_reference_is_planned(text, &entity.kind));
                    complaints.extend(checked.and_then(Result::err));
                }
                Value::Array(items) => self.check_mentioned_references(items.iter(), complaints),
                Value::Object(members) => self.check_mentioned_references(members.values(), complaints),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
    }

    /// Replaces references by ids in an argument that is declared to hold references.
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

    /// Replaces every string that is exactly a known reference by its id.
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

/// Returns the references in `refs` or `ref`.
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
