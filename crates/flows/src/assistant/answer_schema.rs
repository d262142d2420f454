//! The JSON schema of each answer, with what is known when the call is made: references, types, fields, tools and steps.
//! A server that enforces schemas cannot invent any of them; for other servers the reply is checked against the schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::answer::STEP_ACTION_NAMES;
use super::assistant_context::AssistantSessionContext;
use super::domain::{FilterOperator, ID_FIELD, RecordField, RecordFieldKind, RecordType};
use super::facts::{AssistantPlanStep, AssistantPlanStepKind};
use super::prompt_context::PromptPendingQuestion;
use super::registry::RecordLoadLevel;
use super::tools::{TABLE_WRITE_OPERATIONS, list_available_tools};
use crate::limits::SCHEMA_REFERENCES_MAX;

/// Returns the schema of an answer of Understand.
pub(super) fn understand_schema(context: &AssistantSessionContext<'_>) -> Value {
    let known = known_references(context);
    let reasoned = || {
        let mut list = json!({"type": "array", "items": {
            "type": "object",
            "required": ["ref", "reason"],
            "properties": {"ref": reference(&known), "reason": {"type": "string"}},
        }});
        if known.is_empty() {
            list["maxItems"] = json!(0);
        }
        list
    };
    let pending = match PromptPendingQuestion::from_state(context.state()) {
        Some(_) => json!({"enum": ["accepted", "declined", "answered", "ignored", null]}),
        None => json!({"enum": [null]}),
    };
    json!({
        "type": "object",
        "required": ["expressed", "references", "retain", "demote", "drop", "clear", "pending"],
        "properties": {
            "expressed": {"type": "string"},
            "references": reference_list(&known),
            "retain": reasoned(),
            "demote": reasoned(),
            "drop": reference_list(&known),
            "clear": {"type": "boolean"},
            "pending": pending,
        },
    })
}

/// Returns the schema of an answer of Think.
pub(super) fn think_schema(context: &AssistantSessionContext<'_>) -> Value {
    let domain = context.domain;
    let kinds: Vec<&str> = AssistantPlanStepKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let types: Vec<&str> = domain.types.iter().map(|kind| kind.name.as_str()).collect();
    let operations: Vec<String> = match &domain.server {
        Some(server) => {
            let tools = list_available_tools(server, &context.state().server_tools);
            tools.iter().filter(|tool| tool.is_write).map(|tool| tool.name.to_owned()).collect()
        }
        None => TABLE_WRITE_OPERATIONS.map(str::to_owned).into(),
    };
    let operations: Vec<Value> = operations.into_iter().map(Value::String).chain([Value::Null]).collect();
    json!({
        "type": "object",
        "required": ["decision", "goal", "steps", "say"],
        "properties": {
            "decision": {"enum": ["plan_direct", "propose", "clarify"]},
            "goal": {"type": "string"},
            "steps": {"type": "array", "items": {
                "type": "object",
                "required": ["description", "type", "operation", "subdomain", "group", "refs"],
                "properties": {
                    "description": {"type": "string"},
                    "type": {"enum": kinds},
                    "operation": {"enum": operations},
                    "subdomain": one_of(&types),
                    "group": {"type": "integer"},
                    "refs": reference_list(&known_references(context)),
                },
            }},
            "say": {"type": ["string", "null"]},
        },
    })
}

/// Returns the schema of an answer of Act for a step. `received` are the references of records that the call shows and
/// the state does not know yet.
pub(super) fn act_schema(
    context: &AssistantSessionContext<'_>,
    step: &AssistantPlanStep,
    received: &[String],
) -> Value {
    let entities = &context.state().entities.entities;
    let is_loaded = |reference: &&String| entities[*reference].detail != RecordLoadLevel::None;
    let mut loaded: BTreeSet<String> = entities.keys().filter(is_loaded).cloned().collect();
    loaded.extend(received.iter().cloned());
    let loaded: Vec<String> = loaded.into_iter().collect();
    let results = retrievable_steps(context);
    let is_possible = |action: &&&str| **action != "retrieve_step" || !results.is_empty();
    let actions: Vec<&str> = STEP_ACTION_NAMES.iter().filter(is_possible).copied().collect();
    let mut properties = Map::from_iter([
        ("action".to_owned(), json!({"enum": actions})),
        ("tool".to_owned(), one_of(&callable_tools(context, step))),
        ("arguments".to_owned(), arguments_schema(context, step, received)),
        ("outcome".to_owned(), json!({"type": "string"})),
        ("result".to_owned(), json!({})),
        ("refs".to_owned(), reference_list(&loaded)),
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
    json!({"type": "object", "propertyNames": {"type": "string"}, "required": ["action"], "properties": properties})
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
        None => ["read"].into_iter().chain(planned.filter(|_| step.kind == AssistantPlanStepKind::Write)).collect(),
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
    let fields: BTreeSet<&str> = match about {
        Some(about) => about.fields.iter().map(|field| field.name.as_str()).chain([ID_FIELD]).collect(),
        None => domain.types.iter().flat_map(|kind| &kind.fields).map(|field| field.name.as_str()).collect(),
    };
    let operators: Vec<&str> = FilterOperator::ALL.iter().map(|(word, _)| *word).collect();
    let filter = json!({"type": "object", "required": ["field", "op", "value"], "properties": {
        "field": {"enum": fields}, "op": {"enum": operators}, "value": {},
    }});
    let mut properties = Map::from_iter([
        ("type".to_owned(), one_of(&types)),
        ("where".to_owned(), json!({"type": "array", "items": filter})),
        ("refs".to_owned(), reference_list(&known)),
        ("limit".to_owned(), json!({"type": "integer", "minimum": 1})),
        ("full".to_owned(), json!({"type": "boolean"})),
    ]);
    let drafts: Vec<String> = known.iter().filter(|name| name.starts_with("gen_")).cloned().collect();
    match (step.operation.as_deref(), about) {
        (Some("create"), Some(about)) => {
            properties.insert(
                "records".to_owned(),
                json!({"type": "array", "items": record_schema(about, &known, Required::Yes)}),
            );
            properties.insert("drafts".to_owned(), reference_list(&drafts));
        }
        (Some("update"), Some(about)) => {
            properties.insert("ref".to_owned(), reference(&known));
            properties.insert("set".to_owned(), record_schema(about, &known, Required::No));
        }
        (Some("link" | "unlink"), Some(about)) => {
            let links = about.fields.iter().filter(|field| field.kind == RecordFieldKind::Links);
            let links: Vec<&str> = links.map(|field| field.name.as_str()).collect();
            properties.insert("ref".to_owned(), reference(&known));
            properties.insert("field".to_owned(), one_of(&links));
            properties.insert("to".to_owned(), reference_list(&known));
        }
        _ => {}
    }
    json!({"type": "object", "properties": properties})
}

fn drafts_schema(context: &AssistantSessionContext<'_>, step: &AssistantPlanStep) -> Value {
    let known = known_references(context);
    let types: Vec<&str> = context.domain.types.iter().map(|kind| kind.name.as_str()).collect();
    let content = context.domain.find_type(&step.subdomain).map_or_else(
        || json!({"type": "object"}),
        // A draft of another type has other fields.
        |about| if types.len() == 1 { record_schema(about, &known, Required::Yes) } else { json!({"type": "object"}) },
    );
    json!({"type": "array", "items": {"type": "object", "required": ["type", "content"], "properties": {
        "type": one_of(&types), "ref": {"type": "string"}, "content": content,
    }}})
}

/// Whether required fields must be present.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    Yes,
    No,
}

fn record_schema(about: &RecordType, known: &[String], required: Required) -> Value {
    let fields = about.fields.iter().map(|field| (field.name.clone(), field_schema(field, known)));
    let needed = about.fields.iter().filter(|field| field.required && required == Required::Yes);
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
        RecordFieldKind::Link => reference(&targets),
        RecordFieldKind::Links => reference_list(&targets),
        // Other values are checked with the declaration, which knows more than a schema can say.
        RecordFieldKind::Text if !field.one_of.is_empty() => {
            let values = field.one_of.iter().map(|value| json!(value));
            // An optional field can be cleared.
            json!({"enum": values.chain((!field.required).then_some(Value::Null)).collect::<Vec<_>>()})
        }
        _ => json!({}),
    }
}

/// Returns all references that exist.
fn known_references(context: &AssistantSessionContext<'_>) -> Vec<String> {
    context.state().entities.entities.keys().cloned().collect()
}

fn reference(known: &[String]) -> Value {
    if known.is_empty() || known.len() > SCHEMA_REFERENCES_MAX {
        return json!({"type": "string"});
    }
    json!({"type": "string", "enum": known})
}

/// Returns the schema of a list of references. If none is known, only the empty list is valid.
fn reference_list(known: &[String]) -> Value {
    match known {
        [] => json!({"type": "array", "items": {"type": "string"}, "maxItems": 0}),
        known => json!({"type": "array", "items": reference(known)}),
    }
}

fn one_of(names: &[&str]) -> Value {
    if names.is_empty() { json!({"type": "string"}) } else { json!({"type": "string", "enum": names}) }
}
