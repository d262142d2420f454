//! Reads an entry of `knowledge_add` from a tool call.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    KnowledgeKind, KnowledgeLevel, KnowledgeNode, KnowledgePriority, KnowledgeRelation, KnowledgeRelationKind,
    KnowledgeStatus,
};

/// Returns the JSON schema of the arguments of `knowledge_add`: one parameter, with every list of allowed values.
#[must_use]
pub fn knowledge_add_schema() -> Value {
    json!({
        "type": "object",
        "required": ["knowledge"],
        "properties": {"knowledge": {
            "type": "object",
            "description": "one entry of the project's knowledge graph",
            "required": ["id", "type", "level", "description"],
            "properties": {
                "id": {"type": "string", "description": "a short name, such as `auth-service`"},
                "type": {"enum": KnowledgeKind::NAMES},
                "level": {"enum": KnowledgeLevel::NAMES},
                "status": {"enum": KnowledgeStatus::NAMES, "description": "`current` if not given"},
                "description": {"type": "string", "description": "what a later reader needs to know"},
                "priority": {"enum": KnowledgePriority::NAMES, "description": "required for a rule"},
                "relations": {"type": "array", "items": {
                    "type": "object",
                    "required": ["relation", "to"],
                    "properties": {
                        "relation": {"enum": KnowledgeRelationKind::NAMES},
                        "to": {"type": "string", "description": "the id of a node that exists"},
                    },
                }},
            },
        }},
    })
}

/// Reads an entry from the arguments of `knowledge_add`, or from the entry itself.
///
/// # Errors
/// Fails with all reasons if the entry cannot be read. What can be read is validated when it is added to a graph.
pub fn parse_knowledge_entry(arguments: &Value) -> Result<KnowledgeNode, Vec<String>> {
    let entry = arguments.get("knowledge").unwrap_or(arguments);
    // Some models send the object as a text.
    let parsed = entry.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let entry = parsed.as_ref().unwrap_or(entry);
    let Some(fields) = entry.as_object() else {
        return Err(vec!["`knowledge` must be an object with `id`, `type`, `level` and `description`".to_owned()]);
    };
    let mut problems = Vec::new();
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let kind = read_name(&text("type"), "type", KnowledgeKind::from_name, KnowledgeKind::NAMES, &mut problems);
    let level = read_name(&text("level"), "level", KnowledgeLevel::from_name, KnowledgeLevel::NAMES, &mut problems);
    let status = match text("status").as_str() {
        "" => Some(KnowledgeStatus::Current),
        name => read_name(name, "status", KnowledgeStatus::from_name, KnowledgeStatus::NAMES, &mut problems),
    };
    let priority = match text("priority").as_str() {
        "" => None,
        name => read_name(name, "priority", KnowledgePriority::from_name, KnowledgePriority::NAMES, &mut problems),
    };
    let relations = read_relations(fields.get("relations"), &mut problems);
    match (kind, level, status) {
        (Some(kind), Some(level), Some(status)) if problems.is_empty() => Ok(KnowledgeNode {
            id: text("id"),
            kind,
            level,
            status,
            description: text("description"),
            priority,
            relations,
            other_attributes: Default::default(),
        }),
        _ => Err(problems),
    }
}

fn read_relations(value: Option<&Value>, problems: &mut Vec<String>) -> BTreeSet<KnowledgeRelation> {
    let mut relations = BTreeSet::new();
    let listed = match value {
        None | Some(Value::Null) => return relations,
        Some(Value::Array(listed)) => listed,
        Some(_) => {
            problems.push("`relations` must be a list of objects with `relation` and `to`".to_owned());
            return relations;
        }
    };
    for item in listed {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        let names = KnowledgeRelationKind::NAMES;
        let relation = read_name(&text("relation"), "relation", KnowledgeRelationKind::from_name, names, problems);
        let to = text("to");
        if to.is_empty() {
            problems.push("each relation needs `to`, the id of another node".to_owned());
        } else if let Some(relation) = relation {
            relations.insert(KnowledgeRelation { relation, to });
        }
    }
    relations
}

/// Reads one of a list of names, or records what is allowed.
pub(super) fn read_name<T>(
    name: &str,
    field: &str,
    from_name: impl Fn(&str) -> Option<T>,
    names: &[&str],
    problems: &mut Vec<String>,
) -> Option<T> {
    let value = from_name(name);
    if value.is_none() {
        let given = if name.is_empty() { "missing".to_owned() } else { format!("`{name}`") };
        problems.push(format!("`{field}` is {given}; it must be one of {}", names.join(", ")));
    }
    value
}
