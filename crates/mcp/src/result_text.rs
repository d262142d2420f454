//! The text of a tool's result, cut to a limit.

use rmcp::model::{CallToolResult, ContentBlock, EmbeddedResource, ResourceContents};

use crate::limits::MCP_TEXT_BYTES_MAX;

/// Returns the text of a result; other content is named by its type.
#[must_use]
pub fn tool_result_text(result: &CallToolResult) -> String {
    let block_text = |block: &ContentBlock| match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Resource(EmbeddedResource {
            resource: ResourceContents::TextResourceContents { text, .. },
            ..
        }) => text.clone(),
        other => {
            let kind = serde_json::to_value(other).ok().and_then(|value| Some(value.get("type")?.as_str()?.to_owned()));
            format!("[{}]", kind.as_deref().unwrap_or("content that is not text"))
        }
    };
    result.content.iter().map(block_text).collect::<Vec<_>>().join("\n")
}

/// Cuts a text to the allowed length.
#[must_use]
pub fn truncate_server_text(mut text: String) -> String {
    if text.len() > MCP_TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MCP_TEXT_BYTES_MAX));
        text.push('…');
    }
    text
}
