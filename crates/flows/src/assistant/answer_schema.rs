//! The JSON schema of each answer, with what is known when the call is made: references, types, fields, tools and steps.
//! A server that enforces schemas cannot invent any of them; for other servers the reply is checked against the schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::answer::STEP_ACTION_NAMES;
use super::assistant_context::AssistantSessionContext;
use super::domain::{DomainSchema, ID_FIELD, RecordField, RecordFieldKind, RecordFilterOperator, RecordType};
use super::facts::{AssistantPlanStep, AssistantPlanStepKind};
use super::prompt_context::{self, PendingQuestionForPrompt};
use super::registry::RecordLoadLevel;
use super::tools::{REFRESH_ARGUMENT, TABLE_WRITE_OPERATIONS, list_available_tools};
use crate::limits::{ASSISTANT_PLAN_STEPS_MAX, PLANNED_FILTERS_MAX, SCHEMA_REFERENCES_MAX};

/// The names that a schema lists. What is not known allows any value.
#[derive(Debug, Default)]
pub(super) struct NamesAllowedInAnswer {
    references: Option<Vec<String>>,
    types: Vec<String>,
    operations: Option<Vec<String>>,
    /// The fields by which records can be searched; none if the records are not in tables.
    fields: BTreeSet<String>,
    /// How a message can answer an open question; nothing is open if empty.
    pending_answers: Option<&'static [&'static str]>,
}

/// How a message can answer an open question.
const PENDING_ANSWERS: [&str; 4] = ["accepted", "declined", "answered", "ignored"];

impl NamesAllowedInAnswer {
    /// Returns what is known in a session.
    pub(super) fn from_session(context: &AssistantSessionContext<'_>) -> Self {
        let operations = match &context.domain.server {
            Some(server) => {
                let tools = list_available_tools(server, &context.state().server_tools);
                tools.iter().filter(|tool| tool.is_write).map(|tool| tool.name.to_owned()).collect()
            }
            None => TABLE_WRITE_OPERATIONS.map(str::to_owned).into(),
        };
        let is_pending = PendingQuestionForPrompt::from_state(context.state()).is_some();
        Self {
            references: Some(known_references(context)),
            types: context.domain.type_names().map(str::to_owned).collect(),
            operations: Some(operations),
            fields: if context.domain.server.is_some() { BTreeSet::new() } else { all_field_names(context.domain) },
            pending_answers: Some(if is_pending { &PENDING_ANSWERS } else { &[] }),
        }
    }

    fn reference_list_schema(&self) -> Value {
        self.references
            .as_deref()
            .map_or_else(|| json!({"type": "array", "items": {"type": "string"}}), reference_list_schema)
    }

    fn reasoned_reference_list_schema(&self) -> Value {
        let mut list = self.reference_list_schema();
        let reference = list["items"].take();
        list["items"] = json!({"type": "object", "required": ["ref", "reason"],
            "properties": {"ref": reference, "reason": {"type": "string"}}});
        list
    }
}

/// Returns the schema of an answer of Understand.
pub(super) fn understand_schema(known: &NamesAllowedInAnswer) -> Value {
    let answers = known.pending_answers.unwrap_or(&PENDING_ANSWERS).iter().map(|answer| json!(answer));
    let answers: Vec<Value> = answers.chain([Value::Null]).collect();
    json!({
        "type": "object",
        "required": ["expressed", "references", "retain", "demote", "drop", "clear", "pending"],
        "properties": {
            "expressed": {"type": "string"},
            "references": known.reference_list_schema(),
            "retain": known.reasoned_reference_list_schema(),
            "demote": known.reasoned_reference_list_schema(),
            "drop": known.reference_list_schema(),
            "clear": {"type": "boolean"},
            "pending": {"enum": answers},
        },
    })
}

/// Returns the schema of an answer of Think.
pub(super) fn think_schema(known: &NamesAllowedInAnswer) -> Value {
    let kinds: Vec<&str> = AssistantPlanStepKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let types: Vec<&str> = known.types.iter().map(String::as_str).collect();
    let operation = match &known.operations {
        Some(names) => json!({"enum": names.iter().map(|name| json!(name)).chain([Value::Null]).collect::<Vec<_>>()}),
        None => json!({"type": ["string", "null"]}),
    };
    let mut step = Map::from_iter([
        ("description".to_owned(), json!({"type": "string"})),
        ("type".to_owned(), json!({"enum": kinds})),
        ("operation".to_owned(), operation),
        ("subdomain".to_owned(), enum_schema(&types)),
        ("group".to_owned(), json!({"type": "integer"})),
        ("refs".to_owned(), known.reference_list_schema()),
        (REFRESH_ARGUMENT.to_owned(), json!({"type": "boolean"})),
    ]);
    if !known.fields.is_empty() {
        let condition = filter_schema(&known.fields, &json!({"type": ["string", "number", "boolean"]}));
        let order = known.fields.iter().map(|field| json!(field)).chain([Value::Null]);
        step.insert("where".to_owned(), json!({"type": "array", "maxItems": PLANNED_FILTERS_MAX, "items": condition}));
        step.insert("sort".to_owned(), json!({"enum": order.collect::<Vec<_>>()}));
    }
    let required: Vec<&String> = step.keys().collect();
    json!({
        "type": "object",
        "required": ["asks_for", "decision", "goal", "steps", "say"],
        "properties": {
            "asks_for": {"enum": ["information", "change", "text"]},
            "decision": {"enum": ["plan_direct", "propose", "clarify"]},
            "goal": {"type": "string"},
            "steps": {"type": "array", "maxItems": ASSISTANT_PLAN_STEPS_MAX,
                "items": {"type": "object", "required": required, "properties": step}},
            "say": {"type": ["string", "null"]},
        },
    })
}

fn all_field_names(domain: &DomainSchema) -> BTreeSet<String> {
    domain.types.iter().flat_map(|kind| &kind.fields).map(|field| field.name.clone()).collect()
}

fn filter_schema(fields: &BTreeSet<String>, value: &Value) -> Value {
    let operators: Vec<&str> = RecordFilterOperator::ALL.iter().map(|(word, _)| *word).collect();
    json!({"type": "object", "required": ["field", "op", "value"], "properties": {
        "field": {"enum": fields}, "op": {"enum": operators}, "value": value,
    }})
}

/// Returns the schema of an answer of Act for any step.
pub(super) fn any_act_schema() -> Value {
    json!({"type": "object", "required": ["action"], "properties": {"action": {"enum": STEP_ACTION_NAMES}}})
}

/// What the step of a call has done so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepReadWriteProgress {
    pub(super) is_read: bool,
    pub(super) is_written: bool,
}

/// Returns the schema of an answer of Act for a step. `received` are the references of records that the call shows and
/// the state does not know yet.
pub(super) fn act_schema(
    context: &AssistantSessionContext<'_>,
    step: &AssistantPlanStep,
    received: &[String],
    done: StepReadWriteProgress,
) -> Value {
    let entities = &context.state().entities.entities;
    let is_loaded = |reference: &&String| entities[*reference].detail != RecordLoadLevel::None;
    let mut loaded: BTreeSet<String> = entities.keys().filter(is_loaded).cloned().collect();
    loaded.extend(received.iter().cloned());
    let loaded: Vec<String> = loaded.into_iter().collect();
    let results = retrievable_steps(context);
    let mut actions = possible_actions(context, step, done);
    actions.retain(|action| *action != "retrieve_step" || !results.is_empty());
    let required: &[&str] = if actions == ["step_complete"] { &["action", "outcome"] } else { &["action"] };
    let mut properties = Map::from_iter([
        ("action".to_owned(), json!({"enum": actions})),
        ("tool".to_owned(), enum_schema(&callable_tools(context, step))),
        ("arguments".to_owned(), arguments_schema(context, step, received)),
        ("outcome".to_owned(), json!({"type": "string"})),
        ("result".to_owned(), json!({})),
        ("refs".to_owned(), reference_list_schema(&loaded)),
        ("note_for_next_step".to_owned(), json!({"type": ["string", "null"]})),
        ("question".to_owned(), json!({"type": "string"})),
        ("partial".to_owned(), json!({})),
        ("reason".to_owned(), json!({"type": "string"})),
        ("next".to_owned(), json!({"type": ["string", "null"]})),
    ]);
    if step.kind == AssistantPlanStepKind::Generate {
        properties.insert("drafts".to_owned(), drafts_schema(context, step));
    }
    if !results.is_empty() {
        let turns: BTreeSet<u32> = results.iter().map(|(turn, _)| *turn).collect();
        let steps: BTreeSet<u32> = results.iter().map(|(_, step)| *step).collect();
        properties.insert("turn".to_owned(), json!({"type": "integer", "enum": turns}));
        properties.insert("step".to_owned(), json!({"type": "integer", "enum": steps}));
    }
    // Some vendors limit the number of optional members, of which this schema has many. They cannot enforce
    // `propertyNames` and so get the schema as a text; the reply is checked in any case.
    json!({"type": "object", "propertyNames": {"type": "string"}, "required": required, "properties": properties})
}

/// Returns the actions that make sense now: a read or write step ends only after it was done, a write is made once, and what is
/// loaded need not be looked up.
fn possible_actions(
    context: &AssistantSessionContext<'_>,
    step: &AssistantPlanStep,
    done: StepReadWriteProgress,
) -> Vec<&'static str> {
    let has_tables = context.domain.server.is_none();
    let is_link = step.operation.as_deref().is_some_and(|operation| operation.ends_with("link"));
    let excluded = match step.kind {
        AssistantPlanStepKind::Write if done.is_written && has_tables && !is_link => return vec!["step_complete"],
        AssistantPlanStepKind::Write if !done.is_written => "step_complete",
        AssistantPlanStepKind::Read if !done.is_read => "step_complete",
        AssistantPlanStepKind::Analyze | AssistantPlanStepKind::Generate if has_records_in_prompt(context, step) => {
            "tool_call"
        }
        _ => "",
    };
    STEP_ACTION_NAMES.into_iter().filter(|action| *action != excluded).collect()
}

/// Returns whether a step of a domain with tables is shown records, so that it needs no tool to look them up.
pub(super) fn has_records_in_prompt(context: &AssistantSessionContext<'_>, step: &AssistantPlanStep) -> bool {
    context.domain.server.is_none() && !prompt_context::references_shown_to_step(context.view, step).is_empty()
}

/// Returns the turns and steps whose results can be retrieved.
fn retrievable_steps(context: &AssistantSessionContext<'_>) -> BTreeSet<(u32, u32)> {
    let past = context.state().step_results.iter().map(|result| (result.turn, result.step));
    let running = context.current_turn();
    let own = running.into_iter().flat_map(|running| {
        let ended =
            running.steps.iter().filter(|(_, state)| state.end.as_ref().is_some_and(|end| end.answer.is_some()));
        ended.map(|(step, _)| (running.turn, *step))
    });
    past.chain(own).collect()
}

/// Returns the tools that a step may call.
fn callable_tools<'a>(context: &AssistantSessionContext<'a>, step: &'a AssistantPlanStep) -> Vec<&'a str> {
    let planned = step.operation.as_deref();
    match &context.domain.server {
        Some(server) => {
            let tools = list_available_tools(server, &context.state().server_tools);
            tools.iter().filter(|tool| !tool.is_write || planned == Some(tool.name)).map(|tool| tool.name).collect()
        }
        None => vec![planned.filter(|_| step.kind == AssistantPlanStepKind::Write).unwrap_or("read")],
    }
}

/// Returns the schema of a tool's arguments: the members of all tools that the step may call.
fn arguments_schema(context: &AssistantSessionContext<'_>, step: &AssistantPlanStep, received: &[String]) -> Value {
    if context.domain.server.is_some() {
        return json!({"type": "object"});
    }
    let domain = context.domain;
    let mut known: BTreeSet<String> = known_references(context).into_iter().collect();
    known.extend(received.iter().cloned());
    let known: Vec<String> = known.into_iter().collect();
    let types: Vec<&str> = domain.types.iter().map(|kind| kind.name.as_str()).collect();
    let about = domain.find_type(&step.subdomain);
    let fields: BTreeSet<String> = match about {
        Some(about) => {
            about.fields.iter().map(|field| field.name.as_str()).chain([ID_FIELD]).map(str::to_owned).collect()
        }
        None => all_field_names(domain),
    };
    let filter = filter_schema(&fields, &json!({}));
    let mut properties = Map::from_iter([("type".to_owned(), enum_schema(&types))]);
    if step.kind != AssistantPlanStepKind::Write {
        properties.insert("where".to_owned(), json!({"type": "array", "items": filter}));
        properties.insert("refs".to_owned(), reference_list_schema(&known));
        properties.insert("limit".to_owned(), json!({"type": "integer", "minimum": 1}));
        properties.insert("full".to_owned(), json!({"type": "boolean"}));
        properties.insert(REFRESH_ARGUMENT.to_owned(), json!({"type": "boolean"}));
    }
    let drafts: Vec<String> = known.iter().filter(|name| name.starts_with("gen_")).cloned().collect();
    let own_prefix = format!("{}_", step.subdomain);
    let own: Vec<String> = known.iter().filter(|name| name.contains(&own_prefix)).cloned().collect();
    let mut required: Vec<&str> = Vec::new();
    match (step.operation.as_deref(), about) {
        (Some("create"), Some(about)) => {
            properties.insert(
                "records".to_owned(),
                json!({"type": "array", "items": record_schema(about, &known, AllRecordFieldsRequired::Yes)}),
            );
            properties.insert("drafts".to_owned(), reference_list_schema(&drafts));
            required.extend(drafts.is_empty().then_some("records"));
        }
        (Some("update"), Some(about)) => {
            properties.insert("ref".to_owned(), reference_schema(&own));
            properties.insert("set".to_owned(), record_schema(about, &known, AllRecordFieldsRequired::No));
        }
        (Some("delete"), Some(_)) => {
            properties.insert("refs".to_owned(), reference_list_schema(&own));
            required.push("refs");
        }
        (Some("link" | "unlink"), Some(about)) => {
            let links = about.fields.iter().filter(|field| field.kind == RecordFieldKind::Links);
            let links: Vec<&str> = links.map(|field| field.name.as_str()).collect();
            properties.insert("ref".to_owned(), reference_schema(&own));
            properties.insert("field".to_owned(), enum_schema(&links));
            properties.insert("to".to_owned(), reference_list_schema(&known));
        }
        _ => {}
    }
    json!({"type": "object", "required": required, "properties": properties})
}

fn drafts_schema(context: &AssistantSessionContext<'_>, step: &AssistantPlanStep) -> Value {
    let known = known_references(context);
    let types: Vec<&str> = context.domain.types.iter().map(|kind| kind.name.as_str()).collect();
    let content = context.domain.find_type(&step.subdomain).map_or_else(
        || json!({"type": "object"}),
        // A draft of another type has other fields.
        |about| {
            if types.len() == 1 {
                record_schema(about, &known, AllRecordFieldsRequired::Yes)
            } else {
                json!({"type": "object"})
            }
        },
    );
    json!({"type": "array", "items": {"type": "object", "required": ["type", "content"], "properties": {
        "type": enum_schema(&types), "ref": {"type": "string"}, "content": content,
    }}})
}

/// Whether all fields must be present, optional ones perhaps as null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllRecordFieldsRequired {
    Yes,
    No,
}

fn record_schema(about: &RecordType, known: &[String], required: AllRecordFieldsRequired) -> Value {
    let fields = about.fields.iter().map(|field| (field.name.clone(), field_schema(field, known)));
    // A field that may be absent is asked for too, so that no value of the user's is forgotten.
    let needed = about.fields.iter().filter(|_| required == AllRecordFieldsRequired::Yes);
    let needed: Vec<&str> = needed.map(|field| field.name.as_str()).collect();
    json!({"type": "object", "required": needed, "properties": fields.collect::<Map<_, _>>()})
}

fn field_schema(field: &RecordField, known: &[String]) -> Value {
    let prefix = field.to.as_ref().map(|to| (format!("{to}_"), format!("gen_{to}_")));
    let is_target = |name: &&String| {
        prefix.as_ref().is_some_and(|(saved, draft)| name.starts_with(saved) || name.starts_with(draft))
    };
    let targets: Vec<String> = known.iter().filter(is_target).cloned().collect();
    match field.kind {
        RecordFieldKind::Link if field.required => reference_schema(&targets),
        RecordFieldKind::Link => json!({"anyOf": [reference_schema(&targets), {"type": "null"}]}),
        RecordFieldKind::Links => reference_list_schema(&targets),
        // Other values are checked with the declaration, which knows more than a schema can say.
        RecordFieldKind::Text if !field.one_of.is_empty() => {
            let values = field.one_of.iter().map(|value| json!(value));
            // An optional field can be cleared.
            json!({"enum": values.chain((!field.required).then_some(Value::Null)).collect::<Vec<_>>()})
        }
        RecordFieldKind::Text | RecordFieldKind::Date => optional_type_schema("string", field),
        RecordFieldKind::Integer => optional_type_schema("integer", field),
        RecordFieldKind::Number => optional_type_schema("number", field),
        RecordFieldKind::YesNo => optional_type_schema("boolean", field),
        RecordFieldKind::List => json!({"type": "array", "items": {"type": "string"}}),
    }
}

fn optional_type_schema(name: &str, field: &RecordField) -> Value {
    if field.required { json!({"type": name}) } else { json!({"type": [name, "null"]}) }
}

/// Returns all references that exist.
fn known_references(context: &AssistantSessionContext<'_>) -> Vec<String> {
    context.state().entities.entities.keys().cloned().collect()
}

fn reference_schema(known: &[String]) -> Value {
    if known.is_empty() || known.len() > SCHEMA_REFERENCES_MAX {
        return json!({"type": "string"});
    }
    json!({"type": "string", "enum": known})
}

/// Returns the schema of a list of references. If none is known, only the empty list is valid.
fn reference_list_schema(known: &[String]) -> Value {
    match known {
        [] => json!({"type": "array", "items": {"type": "string"}, "maxItems": 0}),
        known => json!({"type": "array", "items": reference_schema(known)}),
    }
}

fn enum_schema(names: &[&str]) -> Value {
    if names.is_empty() { json!({"type": "string"}) } else { json!({"type": "string", "enum": names}) }
}
