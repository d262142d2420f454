//! Serves the exact prompt of a call, and the difference between two prompts.

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::ids::CallId;
use segue_core::prompt::{ModelOutputFormat, Prompt};
use segue_engine::{TextDiffLine, diff_lines};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{find_call, read_call_opened};
use super::session_view::with_session_history;
use super::turns::MessageImageView;
use super::{CallPathParamDocs, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, NegotiatedResponseFormat, QueryParams};
use crate::problem::HttpProblem;

/// The exact prompt of a call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptView {
    pub call: String,
    pub model: String,
    pub messages: Vec<PromptMessageView>,
    /// The tools offered to the model.
    pub tools: Vec<PromptToolView>,
    /// The JSON schema of the answer; `null` for plain text.
    pub output: Option<Value>,
    /// The maximum length of the answer.
    pub reply_tokens_max: u32,
    /// The hash of the prompt.
    pub digest: String,
}

/// A message of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptMessageView {
    /// `system`, `user`, `assistant` or `tool`.
    pub speaker: String,
    pub text: String,
    /// Images that the user attached.
    pub images: Vec<MessageImageView>,
    /// Tool calls that the assistant requested.
    pub tool_calls: Vec<ToolCallView>,
    /// The tool call that a tool message answers.
    pub tool_call_id: Option<String>,
    /// Whether the tool reported a failure.
    pub failed: bool,
}

/// A tool call that a model requested.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolCallView {
    /// The id that the model chose.
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// A tool as offered to a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptToolView {
    pub name: String,
    pub description: String,
    /// The JSON schema of the arguments.
    pub parameters: Value,
}

/// Get the exact prompt of a call
///
/// With `Accept: text/plain` the prompt is returned as text.
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/prompt", tag = "calls", params(SessionPathParamDocs, CallPathParamDocs),
    responses((status = 200, content((PromptView = "application/json"), (String = "text/plain")))))]
pub(crate) async fn get_prompt(
    session_ref: CallerSessionRef,
    format: NegotiatedResponseFormat,
    Path((_, call)): Path<(String, String)>,
) -> Result<Response, HttpProblem> {
    let entry = find_call(&session_ref, &call, None).await?;
    let prompt = read_prompt(&session_ref, entry.call).await?;
    if format == NegotiatedResponseFormat::Text {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], prompt.to_string()).into_response());
    }
    let opened = read_call_opened(&session_ref, &entry).await?;
    Ok(Json(prompt_view(entry.call, prompt, opened.receipt.digest.to_string())).into_response())
}

async fn read_prompt(session_ref: &CallerSessionRef, call: CallId) -> Result<Prompt, HttpProblem> {
    session_ref
        .app
        .engine
        .rebuild_prompt(&session_ref.session, call)
        .await
        .map_err(|error| session_ref.to_problem(error))
}

fn prompt_view(call: CallId, prompt: Prompt, digest: String) -> PromptView {
    let messages = prompt.messages.iter().map(|message| PromptMessageView {
        speaker: message.chat_role.to_string(),
        text: message.text(),
        images: message
            .images
            .iter()
            .map(|image| MessageImageView::new(BodyId::hash_text(&image.data), image.media_type))
            .collect(),
        tool_calls: message.tool_calls.iter().map(tool_call_view).collect(),
        tool_call_id: message.tool_call_id.clone(),
        failed: message.failed,
    });
    PromptView {
        call: call.to_string(),
        model: prompt.model.to_string(),
        messages: messages.collect(),
        tools: prompt.tools.iter().map(prompt_tool_view).collect(),
        output: match prompt.output_format {
            ModelOutputFormat::Text => None,
            ModelOutputFormat::Json(schema) => Some(schema),
        },
        reply_tokens_max: prompt.reply_tokens_max,
        digest,
    }
}

/// Builds the view of a tool call.
pub(crate) fn tool_call_view(tool_call: &segue_core::prompt::ToolCall) -> ToolCallView {
    ToolCallView { id: tool_call.id.clone(), name: tool_call.name.to_string(), arguments: tool_call.arguments.clone() }
}

/// Builds the view of a tool.
pub(crate) fn prompt_tool_view(tool: &segue_core::prompt::ModelToolSpec) -> PromptToolView {
    PromptToolView {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    }
}

/// The prompt to compare with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PromptDiffParams {
    /// Another call; the previous call of the same role by default.
    with: Option<String>,
}

/// The difference between two prompts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptDiffView {
    /// The older call.
    pub from: String,
    /// The newer call.
    pub to: String,
    pub lines: Vec<PromptDiffLine>,
}

/// A line of a diff.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptDiffLine {
    /// `same`, `removed` or `added`.
    #[serde(rename = "type")]
    pub kind: String,
    pub text: String,
}

/// Compare the prompt of a call with another one
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/diff", tag = "calls", params(SessionPathParamDocs, CallPathParamDocs, PromptDiffParams), responses((status = 200, body = PromptDiffView)))]
pub(crate) async fn get_prompt_diff(
    session_ref: CallerSessionRef,
    Path((_, call)): Path<(String, String)>,
    QueryParams(params): QueryParams<PromptDiffParams>,
) -> Result<Json<PromptDiffView>, HttpProblem> {
    let entry = find_call(&session_ref, &call, None).await?;
    let with = match params.with {
        Some(with) => find_call(&session_ref, &with, None).await?.call,
        None => {
            let before = with_session_history(&session_ref, None, |history| {
                history.previous_calls_of_role(&entry).next().map(|entry| entry.call)
            });
            let none = || {
                HttpProblem::not_found(format!(
                    "{} is the first call of {}; name another with `with`",
                    entry.call, entry.role
                ))
            };
            before.await?.ok_or_else(none)?
        }
    };
    let before = read_prompt(&session_ref, with).await?.to_string();
    let after = read_prompt(&session_ref, entry.call).await?.to_string();
    let lines = diff_lines(&before, &after).into_iter().map(|line| {
        let (kind, text) = match line {
            TextDiffLine::Unchanged(text) => ("same", text),
            TextDiffLine::Removed(text) => ("removed", text),
            TextDiffLine::Added(text) => ("added", text),
        };
        PromptDiffLine { kind: kind.to_owned(), text: text.to_owned() }
    });
    Ok(Json(PromptDiffView { from: with.to_string(), to: entry.call.to_string(), lines: lines.collect() }))
}
