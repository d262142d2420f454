//! Assembles tool calls from streamed fragments, within limits. Arguments that are not JSON stay a string, which the tool
//! runner refuses. In a truncated reply, incomplete calls are dropped.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::prompt::{CallFailure, CallFailureKind, StopReason, ToolCall};
use segue_core::signal::find_json_where;
use serde_json::{Map, Value};

use super::tool_names::VendorToolNameMap;
use super::wire_format::is_truncated;
use crate::limits::{REPLY_BYTES_MAX, REPLY_TOOL_CALLS_MAX};

/// The tool calls of one reply, so far.
#[derive(Debug, Default)]
pub(crate) struct ToolCallAssembler {
    /// By index, and by order where a server uses an index several times.
    calls: BTreeMap<(u64, usize), PartialToolCall>,
    /// How often an index was used for another call.
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
    /// Adds a fragment to the call at an index.
    ///
    /// # Errors
    /// `UnusableReply` if there are too many calls or they are too long.
    pub(super) fn add_fragment(
        &mut self,
        index: u64,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Result<(), CallFailure> {
        self.bytes += id.map_or(0, str::len) + name.map_or(0, str::len) + arguments.len();
        let mut reuse = self.index_reuses.get(&index).copied().unwrap_or(0);
        if self.calls.get(&(index, reuse)).is_some_and(|call| call.starts_new_call(id, name, arguments)) {
            reuse += 1;
        }
        let key = (index, reuse);
        let is_new = !self.calls.contains_key(&key);
        if self.bytes > REPLY_BYTES_MAX || (is_new && self.calls.len() == REPLY_TOOL_CALLS_MAX) {
            return Err(CallFailure::new(
                CallFailureKind::UnusableReply,
                "the reply contains too many or too long tool calls",
            ));
        }
        if reuse > 0 {
            self.index_reuses.insert(key.0, reuse);
        }
        let call = self.calls.entry(key).or_default();
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            id.clone_into(&mut call.id);
        }
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            name.clone_into(&mut call.name);
        }
        call.arguments.push_str(arguments);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the calls in order. Calls without a unique id get a new one, which is unique in this reply and in the
    /// conversation. A truncated call is `None`.
    pub(super) fn finish_calls(
        &mut self,
        names: &VendorToolNameMap,
        known_ids: &BTreeSet<String>,
        stop: StopReason,
    ) -> Vec<Option<ToolCall>> {
        let mut calls: Vec<Option<ToolCall>> = Vec::new();
        for partial in std::mem::take(&mut self.calls).into_values() {
            let mut id = partial.id;
            let Some(arguments) = parse_complete_arguments(&partial.arguments, stop) else {
                calls.push(None);
                continue;
            };
            let is_taken = |id: &str| calls.iter().flatten().any(|call| call.id == id);
            if id.is_empty() || is_taken(&id) {
                let numbered = (known_ids.len() + calls.len() + 1..).map(|number| format!("call_{number}"));
                id = numbered.into_iter().find(|id| !is_taken(id) && !known_ids.contains(id)).unwrap_or_default();
            }
            calls.push(Some(ToolCall { id, name: names.tool_name(&partial.name), arguments }));
        }
        calls
    }
}

impl PartialToolCall {
    /// Returns whether a fragment begins another call although it has the same index: its id differs, or it names a tool again
    /// after this call is complete.
    fn starts_new_call(&self, id: Option<&str>, name: Option<&str>, arguments: &str) -> bool {
        match id {
            Some(id) if !self.id.is_empty() => id != self.id,
            _ => {
                let is_complete =
                    || serde_json::from_str::<Value>(&self.arguments).is_ok_and(|value| value.is_object());
                name.is_some() && !self.name.is_empty() && !arguments.is_empty() && is_complete()
            }
        }
    }
}

/// Parses the arguments of a call; `None` if the reply was truncated within them.
fn parse_complete_arguments(text: &str, stop: StopReason) -> Option<Value> {
    match is_truncated(stop) {
        true => serde_json::from_str(text).ok().filter(Value::is_object),
        false => Some(parse_arguments_leniently(text)),
    }
}

/// Parses arguments, repairing common mistakes; a string if that fails.
fn parse_arguments_leniently(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| !value.is_null())
        .or_else(|| find_json_where(text, |_| true).value)
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finish(assembler: &mut ToolCallAssembler) -> Vec<(String, String, Value)> {
        let calls =
            assembler.finish_calls(&VendorToolNameMap::default(), &BTreeSet::new(), StopReason::ToolCalls).into_iter();
        calls.flatten().map(|call| (call.id, call.name.to_string(), call.arguments)).collect()
    }

    #[test]
    fn fragments_become_calls_in_order() {
        let mut assembler = ToolCallAssembler::default();
        for (index, id, name, arguments) in
            [(1, Some("b"), Some("late"), ""), (0, Some("a"), Some("look"), "{\"at\":"), (0, None, None, "\"sky\"}")]
        {
            assembler.add_fragment(index, id, name, arguments).expect("small");
        }
        assert_eq!(
            finish(&mut assembler),
            [("a".into(), "look".into(), json!({"at": "sky"})), ("b".into(), "late".into(), json!({}))]
        );
    }

    #[test]
    fn broken_arguments_are_repaired_or_stay_a_string() {
        assert_eq!(parse_arguments_leniently("{\"a\": 1,}"), json!({"a": 1}));
        assert_eq!(parse_arguments_leniently("no json at all"), json!("no json at all"));
        assert_eq!(parse_arguments_leniently("null"), json!("null"));
        assert_eq!(parse_arguments_leniently("  "), json!({}));
    }

    #[test]
    fn only_complete_calls_of_a_truncated_reply_are_kept() {
        let assembler = || {
            let mut assembler = ToolCallAssembler::default();
            for (index, arguments) in ["{\"n\": 1}", "", "{\"n\": 1,}", "12", "{\"n\": \"half"].into_iter().enumerate()
            {
                assembler.add_fragment(index as u64, None, Some("write"), arguments).expect("small");
            }
            assembler
        };
        for stop in [StopReason::Length, StopReason::ContentFilter] {
            let calls = assembler().finish_calls(&VendorToolNameMap::default(), &BTreeSet::new(), stop);
            let arguments: Vec<_> = calls.into_iter().map(|call| call.map(|call| call.arguments)).collect();
            assert_eq!(arguments, [Some(json!({"n": 1})), None, None, None, None], "{stop:?}");
        }
        assert_eq!(finish(&mut assembler()).len(), 5, "a reply that was not truncated keeps all calls");
    }

    #[test]
    fn calls_with_a_missing_or_repeated_id_get_a_unique_one() {
        let mut assembler = ToolCallAssembler::default();
        for index in 0..3 {
            assembler.add_fragment(index, (index == 1).then_some("call_1"), Some("x"), "").expect("small");
        }
        assembler.add_fragment(7, Some("call_1"), Some("x"), "").expect("small");
        let ids: std::collections::BTreeSet<String> = finish(&mut assembler).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids.len(), 4);
    }

    #[test]
    fn a_generated_id_is_new_to_the_conversation() {
        let known_ids = BTreeSet::from(["call_1".to_owned(), "call_3".to_owned()]);
        let mut assembler = ToolCallAssembler::default();
        assembler.add_fragment(0, None, Some("x"), "").expect("small");
        assembler.add_fragment(1, None, Some("y"), "").expect("small");
        let calls = assembler
            .finish_calls(&VendorToolNameMap::default(), &known_ids, StopReason::ToolCalls)
            .into_iter()
            .flatten();
        let ids: Vec<String> = calls.map(|call| call.id).collect();
        assert_eq!(ids, ["call_4", "call_5"]);
    }

    #[test]
    fn calls_with_the_same_index_stay_separate() {
        let mut assembler = ToolCallAssembler::default();
        for (id, name, arguments) in [
            (Some("a"), Some("look"), "{\"at\":\"sky\"}"),
            (Some("b"), Some("look"), "{\"at\":"),
            (None, None, "\"sea\"}"),
            (Some("b"), None, ""),
            (None, Some("hear"), "{}"),
        ] {
            assembler.add_fragment(0, id, name, arguments).expect("small");
        }
        let found = finish(&mut assembler);
        assert_eq!(
            found[..2],
            [("a".into(), "look".into(), json!({"at": "sky"})), ("b".into(), "look".into(), json!({"at": "sea"}))]
        );
        assert_eq!((found.len(), found[2].1.as_str()), (3, "hear"));
    }

    #[test]
    fn too_many_or_too_long_calls_are_refused_at_any_index() {
        let mut assembler = ToolCallAssembler::default();
        assert!(assembler.add_fragment(u64::MAX, None, Some("x"), "{}").is_ok(), "a large index costs no memory");
        let flood = (0..1_000).find_map(|index| assembler.add_fragment(index, None, Some("x"), "").err());
        assert_eq!(flood.expect("too many").kind, CallFailureKind::UnusableReply);
        let mut assembler = ToolCallAssembler::default();
        let long = "x".repeat(1 << 20);
        let flood = (0..100).find_map(|_| assembler.add_fragment(0, None, None, &long).err());
        assert_eq!(flood.expect("too much").kind, CallFailureKind::UnusableReply);
    }
}
