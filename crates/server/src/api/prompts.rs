//! The exact prompt of any call, and what changed since another.

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::diff::{TextDiffLine, diff_lines};
use segue_core::ids::CallId;
use segue_core::prompt::{OutputFormat, Prompt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{find_call, read_call_opened};
use super::session_view::with_session_history;
use super::turns::ImageView;
use super::{CallPath, SessionPath};
use crate::extract::{QueryParams, ResponseFormat, SessionRef};
use crate::problem::HttpProblem;

/// An exact prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptView {
    /// Whose.
    pub call: String,
    /// For which model.
    pub model: String,
    /// In order.
    pub messages: Vec<PromptMessageView>,
    /// The tools it was told of.
    pub tools: Vec<PromptToolView>,
    /// A JSON schema of the answer; plain text if absent.
    pub output: Option<Value>,
    /// The longest answer it may give.
    pub reply_tokens_max: u32,
    /// Fingerprint of all of it.
    pub digest: String,
}

/// A message of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptMessageView {
    /// `system`, `user`, `assistant` or `tool`.
    pub speaker: String,
    /// What it says.
    pub text: String,
    /// What the user showed with it.
    pub images: Vec<ImageView>,
    /// What the assistant asked to run.
    pub tool_calls: Vec<ToolCallView>,
    /// Which of those a tool's message answers.
    pub tool_call_id: Option<String>,
    /// For a tool's message: whether the tool did not do what was asked, and the model is told so.
    pub failed: bool,
}

/// A model's wish to run a tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolCallView {
    /// The model's own id for it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// With what.
    pub arguments: Value,
}

/// A tool as a model is told of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptToolView {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// The exact prompt of a call
///
/// With `Accept: text/plain` as text.
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/prompt", tag = "calls", params(SessionPath, CallPath),
    responses((status = 200, content((PromptView = "application/json"), (String = "text/plain")))))]
pub async fn get_prompt(
    session_ref: SessionRef,
    format: ResponseFormat,
    Path((_, call)): Path<(String, String)>,
) -> Result<Response, HttpProblem> {
    let note = find_call(&session_ref, &call, None).await?;
    let prompt = read_prompt(&session_ref, note.call).await?;
    if format == ResponseFormat::Text {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], prompt.to_plain_text()).into_response());
    }
    let opened = read_call_opened(&session_ref, &note).await?;
    Ok(Json(prompt_view(note.call, prompt, opened.receipt.digest.to_string())).into_response())
}

async fn read_prompt(session_ref: &SessionRef, call: CallId) -> Result<Prompt, HttpProblem> {
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
            .map(|image| ImageView::new(BodyId::hash_text(&image.data), image.media_type))
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
            OutputFormat::Text => None,
            OutputFormat::Json(schema) => Some(schema),
        },
        reply_tokens_max: prompt.reply_tokens_max,
        digest,
    }
}

/// A wish as it is shown.
pub fn tool_call_view(tool_call: &segue_core::prompt::ToolCall) -> ToolCallView {
    ToolCallView { id: tool_call.id.clone(), name: tool_call.name.to_string(), arguments: tool_call.arguments.clone() }
}

/// A tool as it is shown.
pub fn prompt_tool_view(tool: &segue_core::prompt::ToolSpec) -> PromptToolView {
    PromptToolView {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    }
}

/// What to compare with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PromptDiffParams {
    /// Another call; the same role's call before if absent.
    with: Option<String>,
}

/// What differs between two prompts.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptDiffView {
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// Line by line.
    pub lines: Vec<PromptDiffLine>,
}

/// A line of a comparison.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptDiffLine {
    /// `same`, `gone` or `new`.
    pub kind: String,
    /// The line.
    pub text: String,
}

/// What changed since another call
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/diff", tag = "calls", params(SessionPath, CallPath, PromptDiffParams), responses((status = 200, body = PromptDiffView)))]
pub async fn get_prompt_diff(
    session_ref: SessionRef,
    Path((_, call)): Path<(String, String)>,
    QueryParams(params): QueryParams<PromptDiffParams>,
) -> Result<Json<PromptDiffView>, HttpProblem> {
    let note = find_call(&session_ref, &call, None).await?;
    let with = match params.with {
        Some(with) => find_call(&session_ref, &with, None).await?.call,
        None => {
            let before = with_session_history(&session_ref, None, |chronicle| {
                chronicle.previous_calls_of_role(&note).next().map(|note| note.call)
            });
            let none = || {
                HttpProblem::not_found(format!(
                    "{} is the first call of {}; name another with `with`",
                    note.call, note.role
                ))
            };
            before.await?.ok_or_else(none)?
        }
    };
    let before = read_prompt(&session_ref, with).await?.to_plain_text();
    let after = read_prompt(&session_ref, note.call).await?.to_plain_text();
    let lines = diff_lines(&before, &after).into_iter().map(|line| {
        let (is, text) = match line {
            TextDiffLine::Unchanged(text) => ("same", text),
            TextDiffLine::Removed(text) => ("gone", text),
            TextDiffLine::Added(text) => ("new", text),
        };
        PromptDiffLine { kind: is.to_owned(), text: text.to_owned() }
    });
    Ok(Json(PromptDiffView { from: with.to_string(), to: note.call.to_string(), lines: lines.collect() }))
}
