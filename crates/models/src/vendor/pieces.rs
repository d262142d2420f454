//! Tool calls that arrive in pieces, put together within bounds. What cannot be read as JSON stays a text, and is for whoever
//! runs the tool to refuse: the answer was paid for.

use std::collections::BTreeMap;

use segue_core::prompt::{Failure, FailureKind, ToolCall};
use segue_core::signal::json;
use serde_json::{Map, Value};

use super::names::Names;
use crate::limits::{REPLY_BYTES_MAX, REPLY_TOOL_CALLS_MAX};
use crate::model::Chunk;

/// The tool calls of one answer, so far.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    calls: BTreeMap<u64, Piece>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Piece {
    id: String,
    name: String,
    arguments: String,
}

impl Pieces {
    /// Adds to the call at a place.
    ///
    /// # Errors
    /// `Malformed` if there are too many, or too much of them.
    pub fn add(&mut self, place: u64, id: Option<&str>, name: Option<&str>, arguments: &str) -> Result<(), Failure> {
        self.bytes += id.map_or(0, str::len) + name.map_or(0, str::len) + arguments.len();
        let is_new = !self.calls.contains_key(&place);
        if self.bytes > REPLY_BYTES_MAX || (is_new && self.calls.len() == REPLY_TOOL_CALLS_MAX) {
            return Err(Failure::new(FailureKind::Malformed, "the answer holds more tool calls than anybody can use"));
        }
        let piece = self.calls.entry(place).or_default();
        if let Some(id) = id.filter(|_| piece.id.is_empty()) {
            id.clone_into(&mut piece.id);
        }
        if let Some(name) = name.filter(|_| piece.name.is_empty()) {
            name.clone_into(&mut piece.name);
        }
        piece.arguments.push_str(arguments);
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// The calls, whole, each with an id of its own.
    pub fn finish(&mut self, names: &Names) -> Vec<Chunk> {
        let mut calls: Vec<ToolCall> = Vec::new();
        for piece in std::mem::take(&mut self.calls).into_values() {
            let mut id = piece.id;
            let taken = |id: &str| calls.iter().any(|call| call.id == id);
            if id.is_empty() || taken(&id) {
                let numbered = (calls.len() + 1..).map(|number| format!("call_{number}")).find(|id| !taken(id));
                id = numbered.unwrap_or_default();
            }
            let arguments = arguments(&piece.arguments);
            calls.push(ToolCall { id, name: names.ours(&piece.name), arguments });
        }
        calls.into_iter().map(Chunk::ToolCall).collect()
    }
}

/// Arguments as a model wrote them.
fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| !value.is_null())
        .or_else(|| json::find(text).value)
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finished(pieces: &mut Pieces) -> Vec<(String, String, Value)> {
        let calls = pieces.finish(&Names::default()).into_iter().map(|chunk| match chunk {
            Chunk::ToolCall(call) => (call.id, call.name.to_string(), call.arguments),
            other => panic!("{other:?}"),
        });
        calls.collect()
    }

    #[test]
    fn pieces_become_calls_in_their_order() {
        let mut pieces = Pieces::default();
        for (place, id, name, arguments) in
            [(1, Some("b"), Some("late"), ""), (0, Some("a"), Some("look"), "{\"at\":"), (0, None, None, "\"sky\"}")]
        {
            pieces.add(place, id, name, arguments).expect("small");
        }
        assert_eq!(
            finished(&mut pieces),
            [("a".into(), "look".into(), json!({"at": "sky"})), ("b".into(), "late".into(), json!({}))]
        );
    }

    #[test]
    fn broken_arguments_are_mended_or_stay_a_text() {
        assert_eq!(arguments("{\"a\": 1,}"), json!({"a": 1}));
        assert_eq!(arguments("no json at all"), json!("no json at all"));
        assert_eq!(arguments("null"), json!("null"));
        assert_eq!(arguments("  "), json!({}));
    }

    #[test]
    fn calls_without_an_id_or_with_the_same_get_one_each() {
        let mut pieces = Pieces::default();
        for place in 0..3 {
            pieces.add(place, (place == 1).then_some("call_1"), Some("x"), "").expect("small");
        }
        pieces.add(7, Some("call_1"), Some("x"), "").expect("small");
        let ids: std::collections::BTreeSet<String> = finished(&mut pieces).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn a_flood_is_refused_whatever_place_it_names() {
        let mut pieces = Pieces::default();
        assert!(pieces.add(u64::MAX, None, Some("x"), "{}").is_ok(), "a place costs nothing by itself");
        let flood = (0..1_000).find_map(|place| pieces.add(place, None, Some("x"), "").err());
        assert_eq!(flood.expect("too many").kind, FailureKind::Malformed);
        let mut pieces = Pieces::default();
        let long = "x".repeat(1 << 20);
        let flood = (0..100).find_map(|_| pieces.add(0, None, None, &long).err());
        assert_eq!(flood.expect("too much").kind, FailureKind::Malformed);
    }
}
