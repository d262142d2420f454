//! The exact prompt of any call, and what changed since another.

use axum::Json;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use segue_core::body::BodyId;
use segue_core::diff::{Line, compare};
use segue_core::ids::CallId;
use segue_core::prompt::{Output, Prompt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{find, opened};
use super::session_view::chronicle;
use super::turns::ImageView;
use super::{CallNamed, Named};
use crate::extract::{Held, Params, Wanted};
use crate::problem::Problem;

/// An exact prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptView {
    /// Whose.
    pub call: String,
    /// For which model.
    pub model: String,
    /// In order.
    pub messages: Vec<PromptMessage>,
    /// The tools it was told of.
    pub tools: Vec<PromptTool>,
    /// A JSON schema of the answer; plain text if absent.
    pub output: Option<Value>,
    /// The longest answer it may give.
    pub reply_tokens_max: u32,
    /// Fingerprint of all of it.
    pub digest: String,
}

/// A message of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub speaker: String,
    /// What it says.
    pub text: String,
    /// What the user showed with it.
    pub images: Vec<ImageView>,
    /// What the assistant asked to run.
    pub tool_calls: Vec<ToolWish>,
    /// Which of those a tool's message answers.
    pub answers: Option<String>,
    /// For a tool's message: whether the tool did not do what was asked, and the model is told so.
    pub failed: bool,
}

/// A model's wish to run a tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolWish {
    /// The model's own id for it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// With what.
    pub arguments: Value,
}

/// A tool as a model is told of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PromptTool {
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
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/prompt", tag = "calls", params(Named, CallNamed),
    responses((status = 200, content((PromptView = "application/json"), (String = "text/plain")))))]
pub async fn prompt(held: Held, wanted: Wanted, Path((_, call)): Path<(String, String)>) -> Result<Response, Problem> {
    let note = find(&held, &call, None).await?;
    let prompt = read_prompt(&held, note.call).await?;
    if wanted == Wanted::Text {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], prompt.written()).into_response());
    }
    let opened = opened(&held, &note).await?;
    Ok(Json(prompt_view(note.call, prompt, opened.receipt.digest.to_string())).into_response())
}

async fn read_prompt(held: &Held, call: CallId) -> Result<Prompt, Problem> {
    held.app.engine.prompt(&held.session, call).await.map_err(|error| held.problem(error))
}

fn prompt_view(call: CallId, prompt: Prompt, digest: String) -> PromptView {
    let messages = prompt.messages.iter().map(|message| PromptMessage {
        speaker: message.speaker.to_string(),
        text: message.text(),
        images: message.images.iter().map(|image| ImageView::named(BodyId::of(&image.data), image.media)).collect(),
        tool_calls: message.tool_calls.iter().map(tool_wish).collect(),
        answers: message.answers.clone(),
        failed: message.failed,
    });
    PromptView {
        call: call.to_string(),
        model: prompt.model.to_string(),
        messages: messages.collect(),
        tools: prompt.tools.iter().map(prompt_tool).collect(),
        output: match prompt.output {
            Output::Text => None,
            Output::Json(schema) => Some(schema),
        },
        reply_tokens_max: prompt.reply_tokens_max,
        digest,
    }
}

/// A wish as it is shown.
pub fn tool_wish(wish: &segue_core::prompt::ToolCall) -> ToolWish {
    ToolWish { id: wish.id.clone(), name: wish.name.to_string(), arguments: wish.arguments.clone() }
}

/// A tool as it is shown.
pub fn prompt_tool(tool: &segue_core::prompt::ToolSpec) -> PromptTool {
    PromptTool {
        name: tool.name.to_string(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
    }
}

/// What to compare with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffParams {
    /// Another call; the same role's call before if absent.
    with: Option<String>,
}

/// What differs between two prompts.
#[derive(Debug, Serialize, ToSchema)]
pub struct Diff {
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// Line by line.
    pub lines: Vec<DiffLine>,
}

/// A line of a comparison.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiffLine {
    /// `same`, `gone` or `new`.
    pub is: String,
    /// The line.
    pub text: String,
}

/// What changed since another call
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}/diff", tag = "calls", params(Named, CallNamed, DiffParams), responses((status = 200, body = Diff)))]
pub async fn diff(
    held: Held,
    Path((_, call)): Path<(String, String)>,
    Params(params): Params<DiffParams>,
) -> Result<Json<Diff>, Problem> {
    let note = find(&held, &call, None).await?;
    let with = match params.with {
        Some(with) => find(&held, &with, None).await?.call,
        None => {
            let before = chronicle(&held, None, |chronicle| chronicle.calls_before(&note).next().map(|note| note.call));
            let none = || {
                Problem::no_such_thing(format!(
                    "{} is the first call of {}; name another with `with`",
                    note.call, note.role
                ))
            };
            before.await?.ok_or_else(none)?
        }
    };
    let before = read_prompt(&held, with).await?.written();
    let after = read_prompt(&held, note.call).await?.written();
    let lines = compare(&before, &after).into_iter().map(|line| {
        let (is, text) = match line {
            Line::Same(text) => ("same", text),
            Line::Gone(text) => ("gone", text),
            Line::New(text) => ("new", text),
        };
        DiffLine { is: is.to_owned(), text: text.to_owned() }
    });
    Ok(Json(Diff { from: with.to_string(), to: note.call.to_string(), lines: lines.collect() }))
}
