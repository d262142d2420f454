//! Opaque data that a vendor expects back with a reply, stored with its provider and model. It is never sent to another model;
//! there the text and calls are rebuilt from the thread.

use segue_core::prompt::PromptMessage;
use serde_json::{Value, json};

use super::ModelEndpoint;
use crate::model::ReplyChunk;

/// Wraps the data that a stream reader wants back.
pub(super) fn encode_vendor_state(format: &str, endpoint: &ModelEndpoint, content: Value) -> ReplyChunk {
    let state = json!({ "provider": endpoint.provider, "model": endpoint.model, "content": content });
    ReplyChunk::VendorState(json!({ format: state }).to_string())
}

/// Returns the vendor state of a message, if it was made by this model.
pub(super) fn decode_vendor_state(format: &str, endpoint: &ModelEndpoint, message: &PromptMessage) -> Option<Value> {
    // State that is not JSON was made by another version; the vendor accepts messages without it.
    let mut state: Value = serde_json::from_str(message.vendor_state.as_deref()?).ok()?;
    let state = state.get_mut(format)?;
    let is_own = state["provider"] == endpoint.provider && state["model"] == endpoint.model;
    is_own.then(|| state.get_mut("content").map(Value::take)).flatten()
}

/// Returns whether the message still has the tool call with this id; calls may have been removed since.
pub(super) fn has_tool_call(message: &PromptMessage, id: Option<&str>) -> bool {
    id.is_some_and(|id| message.tool_calls.iter().any(|call| call.id == id))
}
