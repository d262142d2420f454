//! Tool calls that arrive in pieces, put together within bounds. What cannot be read as JSON stays a text, and is for whoever
//! runs the tool to refuse: the answer was paid for. In an answer that was cut off, a call that is not whole is none.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::prompt::{CallFailure, FailureKind, StopReason, ToolCall};
use segue_core::signal::json;
use serde_json::{Map, Value};

use super::tool_names::ToolNameMap;
use super::wire_format::is_truncated;
use crate::limits::{REPLY_BYTES_MAX, REPLY_TOOL_CALLS_MAX};

/// The tool calls of one answer, so far.
#[derive(Debug, Default)]
pub(crate) struct ToolCallAssembler {
    /// By their place, and where a server gives several the same, in their order there.
    calls: BTreeMap<(u64, usize), PartialToolCall>,
    /// How often a place was given anew.
    index_reuses: BTreeMap<u64, usize>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct PartialToolCall {
    id: String,
    name: String,
    arguments: String,
}

impl ToolCallAssembler {
    /// Adds to the call at a place.
    ///
    /// # Errors
    /// `Unusable` if there are too many, or too much of them.
    pub fn add_fragment(
        &mut self,
        index: u64,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Result<(), CallFailure> {
        self.bytes += id.map_or(0, str::len) + name.map_or(0, str::len) + arguments.len();
        let mut turn = self.index_reuses.get(&index).copied().unwrap_or(0);
        if self.calls.get(&(index, turn)).is_some_and(|piece| piece.starts_new_call(id, name, arguments)) {
            turn += 1;
        }
        let place = (index, turn);
        let is_new = !self.calls.contains_key(&place);
        if self.bytes > REPLY_BYTES_MAX || (is_new && self.calls.len() == REPLY_TOOL_CALLS_MAX) {
            return Err(CallFailure::new(
                FailureKind::UnusableReply,
                "the answer holds more tool calls than anybody can use",
            ));
        }
        if turn > 0 {
            self.index_reuses.insert(place.0, turn);
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

    /// The calls in their order, each with an id of its own: no other of this answer, nor of those before it, has one that was made up
    /// here. There is nothing in the place of a call that was cut off.
    pub fn finish_calls(
        &mut self,
        names: &ToolNameMap,
        known_ids: &BTreeSet<String>,
        stop: StopReason,
    ) -> Vec<Option<ToolCall>> {
        let mut calls: Vec<Option<ToolCall>> = Vec::new();
        for piece in std::mem::take(&mut self.calls).into_values() {
            let mut id = piece.id;
            let Some(arguments) = parse_complete_arguments(&piece.arguments, stop) else {
                calls.push(None);
                continue;
            };
            let taken = |id: &str| calls.iter().flatten().any(|call| call.id == id);
            if id.is_empty() || taken(&id) {
                let numbered = (known_ids.len() + calls.len() + 1..).map(|number| format!("call_{number}"));
                id = numbered.into_iter().find(|id| !taken(id) && !known_ids.contains(id)).unwrap_or_default();
            }
            calls.push(Some(ToolCall { id, name: names.tool_name(&piece.name), arguments }));
        }
        calls
    }
}

impl PartialToolCall {
    /// Whether what comes now begins another call, though the server gives it the place of this one: it has another id, or names a tool
    /// once more when this one is whole.
    fn starts_new_call(&self, id: Option<&str>, name: Option<&str>, arguments: &str) -> bool {
        match id {
            Some(id) if !self.id.is_empty() => id != self.id,
            _ => {
                let is_whole = || serde_json::from_str::<Value>(&self.arguments).is_ok_and(|value| value.is_object());
                name.is_some() && !self.name.is_empty() && !arguments.is_empty() && is_whole()
            }
        }
    }
}

/// The arguments of a call, unless the answer ended within them.
fn parse_complete_arguments(text: &str, stop: StopReason) -> Option<Value> {
    match is_truncated(stop) {
        true => serde_json::from_str(text).ok().filter(Value::is_object),
        false => Some(parse_arguments_leniently(text)),
    }
}

/// Arguments as a model wrote them.
fn parse_arguments_leniently(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| !value.is_null())
        .or_else(|| json::find_json(text).value)
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finished(pieces: &mut ToolCallAssembler) -> Vec<(String, String, Value)> {
        let calls = pieces.finish_calls(&ToolNameMap::default(), &BTreeSet::new(), StopReason::ToolCalls).into_iter();
        calls.flatten().map(|call| (call.id, call.name.to_string(), call.arguments)).collect()
    }

    #[test]
    fn pieces_become_calls_in_their_order() {
        let mut pieces = ToolCallAssembler::default();
        for (place, id, name, arguments) in
            [(1, Some("b"), Some("late"), ""), (0, Some("a"), Some("look"), "{\"at\":"), (0, None, None, "\"sky\"}")]
        {
            pieces.add_fragment(place, id, name, arguments).expect("small");
        }
        assert_eq!(
            finished(&mut pieces),
            [("a".into(), "look".into(), json!({"at": "sky"})), ("b".into(), "late".into(), json!({}))]
        );
    }

    #[test]
    fn broken_arguments_are_mended_or_stay_a_text() {
        assert_eq!(parse_arguments_leniently("{\"a\": 1,}"), json!({"a": 1}));
        assert_eq!(parse_arguments_leniently("no json at all"), json!("no json at all"));
        assert_eq!(parse_arguments_leniently("null"), json!("null"));
        assert_eq!(parse_arguments_leniently("  "), json!({}));
    }

    #[test]
    fn in_an_answer_that_was_cut_off_only_whole_calls_are_calls() {
        let pieces = || {
            let mut pieces = ToolCallAssembler::default();
            for (place, arguments) in ["{\"n\": 1}", "", "{\"n\": 1,}", "12", "{\"n\": \"half"].into_iter().enumerate()
            {
                pieces.add_fragment(place as u64, None, Some("write"), arguments).expect("small");
            }
            pieces
        };
        for stop in [StopReason::Length, StopReason::ContentFilter] {
            let calls = pieces().finish_calls(&ToolNameMap::default(), &BTreeSet::new(), stop);
            let arguments: Vec<_> = calls.into_iter().map(|call| call.map(|call| call.arguments)).collect();
            assert_eq!(arguments, [Some(json!({"n": 1})), None, None, None, None], "{stop:?}");
        }
        assert_eq!(finished(&mut pieces()).len(), 5, "whoever was done is taken at its word");
    }

    #[test]
    fn calls_without_an_id_or_with_the_same_get_one_each() {
        let mut pieces = ToolCallAssembler::default();
        for place in 0..3 {
            pieces.add_fragment(place, (place == 1).then_some("call_1"), Some("x"), "").expect("small");
        }
        pieces.add_fragment(7, Some("call_1"), Some("x"), "").expect("small");
        let ids: std::collections::BTreeSet<String> = finished(&mut pieces).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn an_id_that_is_made_up_is_new_to_the_conversation() {
        let before = BTreeSet::from(["call_1".to_owned(), "call_3".to_owned()]);
        let mut pieces = ToolCallAssembler::default();
        pieces.add_fragment(0, None, Some("x"), "").expect("small");
        pieces.add_fragment(1, None, Some("y"), "").expect("small");
        let calls = pieces.finish_calls(&ToolNameMap::default(), &before, StopReason::ToolCalls).into_iter().flatten();
        let ids: Vec<String> = calls.map(|call| call.id).collect();
        assert_eq!(ids, ["call_4", "call_5"]);
    }

    #[test]
    fn calls_that_are_given_the_same_place_stay_apart() {
        let mut pieces = ToolCallAssembler::default();
        for (id, name, arguments) in [
            (Some("a"), Some("look"), "{\"at\":\"sky\"}"),
            (Some("b"), Some("look"), "{\"at\":"),
            (None, None, "\"sea\"}"),
            (Some("b"), None, ""),
            (None, Some("hear"), "{}"),
        ] {
            pieces.add_fragment(0, id, name, arguments).expect("small");
        }
        let found = finished(&mut pieces);
        assert_eq!(
            found[..2],
            [("a".into(), "look".into(), json!({"at": "sky"})), ("b".into(), "look".into(), json!({"at": "sea"}))]
        );
        assert_eq!((found.len(), found[2].1.as_str()), (3, "hear"));
    }

    #[test]
    fn a_flood_is_refused_whatever_place_it_names() {
        let mut pieces = ToolCallAssembler::default();
        assert!(pieces.add_fragment(u64::MAX, None, Some("x"), "{}").is_ok(), "a place costs nothing by itself");
        let flood = (0..1_000).find_map(|place| pieces.add_fragment(place, None, Some("x"), "").err());
        assert_eq!(flood.expect("too many").kind, FailureKind::UnusableReply);
        let mut pieces = ToolCallAssembler::default();
        let long = "x".repeat(1 << 20);
        let flood = (0..100).find_map(|_| pieces.add_fragment(0, None, None, &long).err());
        assert_eq!(flood.expect("too much").kind, FailureKind::UnusableReply);
    }
}
