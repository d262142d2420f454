//! What a vendor wants to see again with an answer, kept unread: whose it is, which model's, and what. What another model made is not
//! shown to this one; its words and calls are rebuilt from the thread.

use segue_core::prompt::PromptMessage;
use serde_json::{Value, json};

use super::ModelEndpoint;
use crate::model::ReplyChunk;

/// Seals what the reader of a format wants back.
pub(super) fn encode_vendor_state(format: &str, endpoint: &ModelEndpoint, content: Value) -> ReplyChunk {
    let seal = json!({ "by": endpoint.provider, "model": endpoint.model, "content": content });
    ReplyChunk::VendorState(json!({ format: seal }).to_string())
}

/// What stands sealed in a message, if the model that is asked made it.
pub(super) fn decode_vendor_state(format: &str, endpoint: &ModelEndpoint, message: &PromptMessage) -> Option<Value> {
    let mut seal: Value = serde_json::from_str(message.vendor_state.as_deref()?).ok()?;
    let seal = seal.get_mut(format)?;
    let is_ours = seal["by"] == endpoint.provider && seal["model"] == endpoint.model;
    is_ours.then(|| seal.get_mut("content").map(Value::take)).flatten()
}

/// The part of a message's calls that stands in a list of what an answer held, by their ids. Calls may have been left out since.
pub(super) fn has_tool_call(message: &PromptMessage, id: Option<&str>) -> bool {
    id.is_some_and(|id| message.tool_calls.iter().any(|call| call.id == id))
}
