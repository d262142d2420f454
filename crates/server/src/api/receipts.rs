//! The receipt of a call: what the model was shown, and why, fragment by fragment.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::BodyId;
use segue_core::context::{ContextLayer, FragmentReceipt, FragmentSource, PrefixMatch, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, Event, RetryDecision};
use segue_core::ids::{CallId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallSummaryView, find_call, read_call_opened, read_flow_spec, summarize_call};
use super::prompts::{PromptToolView, ToolCallView, prompt_tool_view, tool_call_view};
use super::session_view::with_session_history;
use super::{CallPath, SessionPath};
use crate::extract::{QueryParams, SessionRef};
use crate::history::{CallEndEntry, CallEntry, FailedAttemptEntry};
use crate::problem::HttpProblem;

/// A call with its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallReceiptView {
    /// The call as it is listed.
    pub call: CallSummaryView,
    /// Why it has the thread it has, in a sentence.
    pub thread_reason: String,
    /// What of the prompt can be cached, in a sentence.
    pub cache_summary: String,
    /// Tokens from the start that were the same in the prompt before.
    pub cached_tokens: u32,
    /// How far its role's memory reaches, in words.
    pub memory: String,
    /// What the model was shown, in the order of the prompt.
    pub fragments: Vec<ShownFragmentView>,
    /// What it was not shown.
    pub omitted_fragments: Vec<ShownFragmentView>,
    /// The same role's call before.
    pub previous_call: Option<String>,
    /// Tries that brought no answer.
    pub failed_attempts: Vec<FailedAttemptView>,
    /// What it answered.
    pub answer: Option<ModelAnswerView>,
    /// Tokens of the prompt as the model's vendor counts, by what it reported so far; absent where that comes to the same as our count.
    pub vendor_tokens_estimate: Option<u32>,
    /// The longest answer it may give.
    pub reply_tokens_max: u32,
    /// The tools it was told of.
    pub tools: Vec<PromptToolView>,
    /// A JSON schema of the answer; plain text if absent.
    pub output: Option<Value>,
    /// For a call made once more: the fragments that differ from those of then.
    pub changed_fragments: Vec<String>,
    /// Fingerprint of the prompt.
    pub digest: String,
}

/// A fragment of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShownFragmentView {
    /// Its name; `(thread)` for what the thread held.
    pub name: String,
    /// `opening`, `carried` or `ask`.
    pub part: String,
    /// What kind of context it is.
    pub layer: String,
    /// Where it came from.
    pub source: Option<FragmentSourceView>,
    /// The same in words.
    pub source_summary: String,
    /// Why it is in, or why it is not.
    pub reason: String,
    /// Its tokens.
    pub tokens: u32,
    /// Its tokens before it was cut or left out for its length.
    pub tokens_before_cut: Option<u32>,
    /// Whether compaction must keep it.
    pub pinned: bool,
    /// The call that it is shown since, if that is an earlier one.
    pub since_call: Option<String>,
    /// The id of its text.
    pub body: Option<String>,
    /// Its text.
    pub text: Option<String>,
    /// For `carried`: how many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    /// For `carried`: how many older ones were folded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_folded: Option<u32>,
}

/// Where a fragment came from.
#[derive(Debug, Serialize, ToSchema)]
pub struct FragmentSourceView {
    /// `template`, `message`, `handover`, `call`, `tool`, `thread`, `state` or `phase`.
    pub kind: String,
    /// The name of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The handover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// The call whose answer it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The tool run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_run: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// A try that brought no answer, or a decision about one.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailedAttemptView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// Which try; none for a decision.
    pub attempt: Option<u32>,
    /// What happened, in one line.
    pub summary: String,
    /// What followed.
    pub next: Option<FailureActionView>,
}

/// What follows a try that brought no answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FailureActionView {
    /// Another try.
    Retry {
        /// Not before then.
        at: u64,
    },
    /// A person decides.
    AwaitOperator,
    /// The call has failed.
    GiveUp,
}

/// What a model answered.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelAnswerView {
    /// What it said, blocks and all.
    pub text: Option<String>,
    /// The id of that text.
    pub body: String,
    /// Its tokens, by our count.
    pub tokens: u32,
    /// What it thought aloud.
    pub reasoning: Option<String>,
    /// What it wants run.
    pub tool_calls: Vec<ToolCallView>,
}

/// How much of a receipt.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReceiptParams {
    /// Whether texts come along; they do if this is absent.
    texts: Option<bool>,
}

/// What a model was shown in a call, and why
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}", tag = "calls", params(SessionPath, CallPath, ReceiptParams), responses((status = 200, body = CallReceiptView)))]
pub async fn get_call_receipt(
    session_ref: SessionRef,
    Path((_, call)): Path<(String, String)>,
    QueryParams(params): QueryParams<ReceiptParams>,
) -> Result<Json<CallReceiptView>, HttpProblem> {
    let note = find_call(&session_ref, &call, None).await?;
    let opened = read_call_opened(&session_ref, &note).await?;
    let spec = read_flow_spec(&session_ref).await?;
    let scope = spec.roles.get(&opened.role).map(|role| &role.scope);
    let around = read_receipt_context(&session_ref, &note, &opened).await?;
    let answered = read_call_answered(&session_ref, &note).await?;
    let texts = match params.texts {
        Some(false) => BTreeMap::new(),
        Some(true) | None => read_receipt_texts(&session_ref, &opened, &around, answered.as_deref()).await?,
    };
    let (fragments, left_out) = fragment_views(&opened, &around, &texts);
    let (tools, output) = read_tools_and_output(&session_ref, &opened).await?;
    Ok(Json(CallReceiptView {
        call: summarize_call(&note, &spec),
        thread_reason: opened.explain_thread_use(scope),
        cache_summary: opened.receipt.prefix.describe(),
        cached_tokens: around.cached_tokens,
        memory: scope.map(segue_core::scope::Scope::describe).unwrap_or_default(),
        fragments,
        omitted_fragments: left_out,
        previous_call: around.previous_call.map(|call| call.to_string()),
        failed_attempts: note.failed_attempts.iter().map(failed_attempt_view).collect(),
        answer: model_answer_view(&note, answered.as_deref(), &texts),
        vendor_tokens_estimate: opened.receipt.vendor_tokens_estimate,
        reply_tokens_max: opened.reply_tokens_max,
        tools,
        output,
        changed_fragments: note.recomputes.iter().flat_map(|(_, changed)| changed).map(ToString::to_string).collect(),
        digest: opened.receipt.digest.to_string(),
    }))
}

/// What a call's receipt leaves to others: what its thread opened with, and what was folded.
struct ReceiptContext {
    thread_opening: Option<(CallId, Vec<FragmentReceipt>)>,
    messages_folded: u32,
    previous_call: Option<CallId>,
    cached_tokens: u32,
}

async fn read_receipt_context(
    session_ref: &SessionRef,
    entry: &CallEntry,
    call: &CallOpened,
) -> Result<ReceiptContext, HttpProblem> {
    let seen = with_session_history(session_ref, None, |chronicle| {
        let thread = chronicle.threads.get(&entry.thread);
        let opener = thread.map(|thread| thread.opened.2).filter(|opener| *opener != entry.call);
        let opener = opener.and_then(|opener| chronicle.calls.get(&opener).cloned());
        let earlier = |place: &crate::history::CompactionEntry| place.position.seq < entry.position.seq;
        let folded = thread.map_or(0, |thread| {
            thread
                .compactions
                .iter()
                .filter(|compacted| earlier(compacted))
                .map(|compacted| compacted.messages_folded)
                .sum()
        });
        let cached = match &entry.prefix {
            PrefixMatch::First => 0,
            PrefixMatch::Extends(from) => chronicle.calls.get(from).map_or(0, |from| from.prompt_tokens),
            PrefixMatch::Broken { kept_tokens: kept, .. } => *kept,
        };
        (opener, folded, chronicle.previous_calls_of_role(entry).next().map(|note| note.call), cached)
    });
    let (opener, folded, previous, cached_tokens) = seen.await?;
    let is_continued = matches!(call.receipt.thread, ThreadUse::Continued(_)) || call.recomputation.is_some();
    let opening = match opener.filter(|_| is_continued && call.receipt.opening.is_empty()) {
        Some(opener) => Some((opener.call, read_call_opened(session_ref, &opener).await?.receipt.opening.clone())),
        None => None,
    };
    Ok(ReceiptContext {
        thread_opening: opening,
        messages_folded: folded,
        previous_call: previous,
        cached_tokens: cached_tokens.min(call.receipt.tokens),
    })
}

async fn read_call_answered(
    session_ref: &SessionRef,
    entry: &CallEntry,
) -> Result<Option<Box<CallAnswered>>, HttpProblem> {
    let Some(CallEndEntry::Answered { position: place, is_late: false, .. }) = &entry.end else { return Ok(None) };
    let before = Seq(place.seq.0.saturating_sub(1));
    let events = session_ref
        .app
        .engine
        .read_events(&session_ref.session, before, 1)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(events.into_iter().find_map(|recorded| match recorded.event {
        Event::CallAnswered(answered) => Some(answered),
        _ => None,
    }))
}

type TextsById = BTreeMap<BodyId, Arc<str>>;

async fn read_receipt_texts(
    session_ref: &SessionRef,
    opened: &CallOpened,
    context: &ReceiptContext,
    answered: Option<&CallAnswered>,
) -> Result<TextsById, HttpProblem> {
    let opening = context.thread_opening.iter().flat_map(|(_, pieces)| pieces);
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask).chain(opening);
    let said = answered.into_iter().flat_map(|answered| [Some(answered.text), answered.reasoning]);
    let ids = pieces.map(|piece| piece.text).chain(said).flatten().map(|text| text.body);
    let ids: Vec<BodyId> = ids.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let found = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(ids.into_iter().zip(found).collect())
}

fn fragment_views(
    opened: &CallOpened,
    context: &ReceiptContext,
    texts: &TextsById,
) -> (Vec<ShownFragmentView>, Vec<ShownFragmentView>) {
    let receipt = &opened.receipt;
    let mut all: Vec<ShownFragmentView> =
        receipt.opening.iter().map(|piece| shown_fragment_view(piece, "opening", None, texts)).collect();
    let mut carried = receipt.carried.tokens;
    if let Some((by, pieces)) = &context.thread_opening {
        for piece in pieces {
            carried = carried.saturating_sub(piece.text.map_or(0, |text| text.tokens));
            all.push(shown_fragment_view(piece, "opening", Some(*by), texts));
        }
    }
    if receipt.carried.entries > 0 {
        all.push(ShownFragmentView {
            name: "(thread)".to_owned(),
            part: "carried".to_owned(),
            layer: ContextLayer::Conversation.to_string(),
            source: Some(fragment_source_view(&FragmentSource::Thread(receipt.thread.thread_id()))),
            source_summary: FragmentSource::Thread(receipt.thread.thread_id()).to_string(),
            reason: "what the thread held".to_owned(),
            tokens: carried,
            tokens_before_cut: None,
            pinned: false,
            since_call: None,
            body: None,
            text: None,
            messages: Some(receipt.carried.entries),
            messages_folded: Some(context.messages_folded),
        });
    }
    all.extend(receipt.ask.iter().map(|piece| shown_fragment_view(piece, "ask", None, texts)));
    all.into_iter().partition(|shown| shown.body.is_some() || shown.part == "carried")
}

fn shown_fragment_view(
    piece: &FragmentReceipt,
    part: &str,
    since: Option<CallId>,
    texts: &TextsById,
) -> ShownFragmentView {
    ShownFragmentView {
        name: piece.name.to_string(),
        part: part.to_owned(),
        layer: piece.layer.to_string(),
        source: piece.source.as_ref().map(fragment_source_view),
        source_summary: piece.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        reason: piece.why.clone(),
        tokens: piece.text.map_or(0, |text| text.tokens),
        tokens_before_cut: piece.tokens_before_cut,
        pinned: piece.pinned,
        since_call: since.map(|call| call.to_string()),
        body: piece.text.map(|text| text.body.to_string()),
        text: piece.text.and_then(|text| texts.get(&text.body)).map(|text| text.to_string()),
        messages: None,
        messages_folded: None,
    }
}

fn fragment_source_view(source: &FragmentSource) -> FragmentSourceView {
    let mut view = FragmentSourceView {
        kind: String::new(),
        name: None,
        message: None,
        handover: None,
        call: None,
        tool_run: None,
        thread: None,
    };
    view.kind = match source {
        FragmentSource::Template(name) => {
            view.name = Some(name.clone());
            "template"
        }
        FragmentSource::Message(message) => {
            view.message = Some(message.to_string());
            "message"
        }
        FragmentSource::Handover(handover) => {
            view.handover = Some(handover.to_string());
            "handover"
        }
        FragmentSource::Call(call) => {
            view.call = Some(call.to_string());
            "call"
        }
        FragmentSource::Tool(run) => {
            view.tool_run = Some(run.to_string());
            "tool"
        }
        FragmentSource::Thread(thread) => {
            view.thread = Some(thread.to_string());
            "thread"
        }
        FragmentSource::State => "state",
        FragmentSource::Phase => "phase",
    }
    .to_owned();
    view
}

async fn read_tools_and_output(
    session_ref: &SessionRef,
    opened: &CallOpened,
) -> Result<(Vec<PromptToolView>, Option<Value>), HttpProblem> {
    let ids: Vec<BodyId> = opened.tools_body.into_iter().chain(opened.output_schema).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let find = |id: Option<BodyId>| {
        let place = ids.iter().position(|known| Some(*known) == id)?;
        texts.get(place)
    };
    let tools: Vec<segue_core::prompt::ToolSpec> =
        find(opened.tools_body).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let output = find(opened.output_schema).and_then(|text| serde_json::from_str(text).ok());
    Ok((tools.iter().map(prompt_tool_view).collect(), output))
}

fn failed_attempt_view(attempt: &FailedAttemptEntry) -> FailedAttemptView {
    FailedAttemptView {
        seq: attempt.position.seq.0,
        at: attempt.position.at.0,
        attempt: attempt.attempt,
        summary: attempt.summary.clone(),
        next: attempt.next.map(|next| match next {
            RetryDecision::Retry { at } => FailureActionView::Retry { at: at.0 },
            RetryDecision::AwaitOperator => FailureActionView::AwaitOperator,
            RetryDecision::GiveUp => FailureActionView::GiveUp,
        }),
    }
}

fn model_answer_view(entry: &CallEntry, answered: Option<&CallAnswered>, texts: &TextsById) -> Option<ModelAnswerView> {
    let Some(CallEndEntry::Answered { text, .. }) = &entry.end else { return None };
    let words = |text: segue_core::body::TextRef| texts.get(&text.body).map(|text| text.to_string());
    Some(ModelAnswerView {
        text: words(*text),
        body: text.body.to_string(),
        tokens: text.tokens,
        reasoning: answered.and_then(|answered| answered.reasoning).and_then(words),
        tool_calls: answered
            .map(|answered| answered.tool_calls.iter().map(tool_call_view).collect())
            .unwrap_or_default(),
    })
}
