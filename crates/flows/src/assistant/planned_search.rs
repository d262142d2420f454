//! What a planned read step looks for. A model may ask for the wrong field, so a search that finds nothing is widened: first
//! its words may stand in any field, then all records of the type are returned.

use serde_json::{Map, Value};

use super::domain::{
    RecordFieldCondition, RecordFieldKind, RecordFilterOperator, RecordSort, RecordType, is_empty_value,
};
use super::facts::AssistantPlanStep;
use super::tools::ReturnedDomainRecord;
use crate::limits::PLANNED_FILTERS_MAX;

/// Parses the conditions of a planned read. Unusable ones are left out: the read then returns more, never less.
pub(super) fn parse_filters(kind: &RecordType, conditions: &[Value]) -> Vec<RecordFieldCondition> {
    let parsed = conditions.iter().filter_map(|condition| {
        let filter = parse_filter(kind, condition)?;
        (!is_empty_value(&filter.value)).then_some(filter)
    });
    let mut filters: Vec<RecordFieldCondition> = Vec::new();
    for filter in parsed.take(PLANNED_FILTERS_MAX) {
        if !filters.contains(&filter) {
            filters.push(filter);
        }
    }
    filters
}

fn parse_filter(kind: &RecordType, condition: &Value) -> Option<RecordFieldCondition> {
    let mut condition = condition.clone();
    let field = condition.get("field").and_then(Value::as_str).and_then(|name| kind.expect_field(name).ok())?;
    // A list equals nothing, but it can contain a value.
    if field.kind == RecordFieldKind::List && condition["op"] == RecordFilterOperator::Equal.as_str() {
        condition["op"] = Value::from(RecordFilterOperator::Contains.as_str());
    }
    // References stay as they are until the step runs.
    RecordFieldCondition::parse(kind, &condition, &|_, reference| Ok(reference.to_owned())).ok()
}

/// Parses the order of a planned read; `None` if it is missing or unusable.
pub(super) fn parse_sort(kind: &RecordType, sort: Option<&Value>) -> Option<RecordSort> {
    RecordSort::parse(kind, sort.filter(|sort| !sort.is_null())?).ok()
}

/// Returns the records in which each text that the step looks for occurs in some field. Other conditions are checked in
/// the fields that they name.
pub(super) fn find_loosely_matching_rows<'r>(
    step: &AssistantPlanStep,
    rows: &'r [ReturnedDomainRecord],
) -> Vec<&'r ReturnedDomainRecord> {
    rows.iter().filter(|row| step.filters.iter().all(|filter| matches_loosely(filter, &row.fields))).collect()
}

fn matches_loosely(filter: &RecordFieldCondition, fields: &Map<String, Value>) -> bool {
    let value = fields.get(&filter.field).unwrap_or(&Value::Null);
    let compared = || compare_values(value, &filter.value);
    match filter.op {
        RecordFilterOperator::Contains | RecordFilterOperator::Equal if filter.value.is_string() => {
            let wanted = filter.value.as_str().unwrap_or_default().to_lowercase();
            fields.values().any(|field| contains_text(field, &wanted))
        }
        RecordFilterOperator::LessThan => compared().is_some_and(std::cmp::Ordering::is_lt),
        RecordFilterOperator::LessOrEqual => compared().is_some_and(std::cmp::Ordering::is_le),
        RecordFilterOperator::GreaterThan => compared().is_some_and(std::cmp::Ordering::is_gt),
        RecordFilterOperator::GreaterOrEqual => compared().is_some_and(std::cmp::Ordering::is_ge),
        RecordFilterOperator::Equal | RecordFilterOperator::Contains => *value == filter.value,
        RecordFilterOperator::NotEqual | RecordFilterOperator::In | RecordFilterOperator::NotIn => {
            let listed = filter.value.as_array().map_or_else(
                || contains_value(value, &filter.value),
                |values| values.iter().any(|wanted| contains_value(value, wanted)),
            );
            listed == (filter.op == RecordFilterOperator::In)
        }
    }
}

/// Returns whether a field, or one item of a list, is this value. Upper and lower case are the same.
fn contains_value(field: &Value, wanted: &Value) -> bool {
    match (field, wanted) {
        (Value::Array(items), wanted) => items.iter().any(|item| contains_value(item, wanted)),
        (Value::String(text), Value::String(wanted)) => text.to_lowercase() == wanted.to_lowercase(),
        (field, wanted) => field == wanted,
    }
}

fn contains_text(field: &Value, wanted: &str) -> bool {
    match field {
        Value::String(text) => text.to_lowercase().contains(wanted),
        Value::Array(items) => items.iter().any(|item| contains_text(item, wanted)),
        _ => false,
    }
}

/// Compares numbers, or dates in their usual form.
fn compare_values(value: &Value, other: &Value) -> Option<std::cmp::Ordering> {
    match (value, other) {
        (Value::Number(_), Value::Number(_)) => value.as_f64()?.partial_cmp(&other.as_f64()?),
        (Value::String(value), Value::String(other)) => Some(value.cmp(other)),
        _ => None,
    }
}

/// Describes what a step looks for, such as `minutes <= 20 and tags contains “quick”, in the order of minutes`.
pub(super) fn describe_search(step: &AssistantPlanStep) -> Option<String> {
    let filters = step.filters.iter().map(|filter| {
        let value = filter.value.as_str().map_or_else(|| filter.value.to_string(), |text| format!("“{text}”"));
        format!("{} {} {value}", filter.field, filter.op.as_str())
    });
    let filters: Vec<String> = filters.collect();
    let order = step.sort.as_ref().map(|sort| {
        let direction = if sort.descending { "descending " } else { "" };
        format!("in {direction}order of {}", sort.field)
    });
    let parts: Vec<String> = (!filters.is_empty()).then(|| filters.join(" and ")).into_iter().chain(order).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
