//! Converts a flow's own fact enum to and from recorded events. Each variant becomes a kind and a JSON value.

use segue_core::event::Event;
use segue_core::flow::FlowStep;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns the step that records `fact`, an enum that is serialized with the tag `kind` and the content `value`.
pub(crate) fn record_fact_step(fact: &impl Serialize) -> FlowStep {
    let mut tagged = serde_json::to_value(fact).unwrap_or_default();
    let kind = tagged.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let value = tagged.get_mut("value").map(Value::take).unwrap_or_default();
    FlowStep::RecordFact { kind, value }
}

/// Returns the fact in `event`, or `None` if the event is not a fact of type `F`.
pub(crate) fn parse_fact_event<F: DeserializeOwned>(event: &Event) -> Option<F> {
    let Event::FlowFactRecorded { kind, value } = event else { return None };
    parse_fact(kind, value)
}

/// Returns the fact with this kind and value, or `None` if `F` has no such variant.
pub(crate) fn parse_fact<F: DeserializeOwned>(kind: &str, value: &Value) -> Option<F> {
    serde_json::from_value(json!({"kind": kind, "value": value})).ok()
}
