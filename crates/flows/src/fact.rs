//! Facts of a flow's own: an enum whose variants are written down as a kind and a value, and read from them again.

use segue_core::event::Event;
use segue_core::flow::FlowStep;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The step that records a fact; `fact` is an enum with `kind` as its tag and `value` as its content.
pub(crate) fn fact_step(fact: &impl Serialize) -> FlowStep {
    let mut whole = serde_json::to_value(fact).unwrap_or_default();
    let kind = whole.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let value = whole.get_mut("value").map(Value::take).unwrap_or_default();
    FlowStep::RecordFact { kind, value }
}

/// The fact that an event is, if it is one of this flow's.
pub(crate) fn parse_fact_event<F: DeserializeOwned>(event: &Event) -> Option<F> {
    let Event::FlowFactRecorded { kind, value } = event else { return None };
    parse_fact(kind, value)
}

/// The fact of a kind with a value, if it is one of this flow's.
pub(crate) fn parse_fact<F: DeserializeOwned>(kind: &str, value: &Value) -> Option<F> {
    serde_json::from_value(json!({"kind": kind, "value": value})).ok()
}
