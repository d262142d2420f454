//! What a vendor wants to see again with an answer, kept unread: whose it is, which model's, and what. What another model made is not
//! shown to this one; its words and calls are rebuilt from the thread.

use segue_core::prompt::Message;
use serde_json::{Value, json};

use super::Connection;
use crate::model::Chunk;

/// Seals what the reader of a format wants back.
pub(super) fn sealed(format: &str, connection: &Connection, content: Value) -> Chunk {
    let seal = json!({ "by": connection.provider, "model": connection.model, "content": content });
    Chunk::Seal(json!({ format: seal }).to_string())
}

/// What stands sealed in a message, if the model that is asked made it.
pub(super) fn opened(format: &str, connection: &Connection, message: &Message) -> Option<Value> {
    let mut seal: Value = serde_json::from_str(message.seal.as_deref()?).ok()?;
    let seal = seal.get_mut(format)?;
    let is_ours = seal["by"] == connection.provider && seal["model"] == connection.model;
    is_ours.then(|| seal.get_mut("content").map(Value::take)).flatten()
}

/// The part of a message's calls that stands in a list of what an answer held, by their ids. Calls may have been left out since.
pub(super) fn is_kept(message: &Message, id: Option<&str>) -> bool {
    id.is_some_and(|id| message.tool_calls.iter().any(|call| call.id == id))
}
