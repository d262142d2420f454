//! Serves the receipt of a call: each fragment of the prompt, its source, and why it was included or left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::BodyId;
use segue_core::context::{CallThread, FragmentContentKind, FragmentReceipt, FragmentSource, PreviousPromptComparison};
use segue_core::event::{CallAnswered, CallOpened, Event, RetryDecision};
use segue_core::ids::{CallId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallSummaryView, find_call, read_call_opened, read_flow_spec, summarize_call};
use super::prompts::{PromptToolView, ToolCallView, prompt_tool_view, tool_call_view};
use super::session_view::with_session_history;
use super::{CallPathParamDocs, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, QueryParams};
use crate::history::{CallEndHistoryEntry, CallHistoryEntry, FailedCallAttemptHistoryEntry};
use crate::problem::HttpProblem;

/// A call with its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallReceiptView {
    pub call: CallSummaryView,
    /// Why the thread was opened or continued, in one sentence.
    pub thread_reason: String,
    /// Which part of the prompt can be cached, in one sentence.
    pub cache_summary: String,
    /// The tokens at the start that equal the previous prompt.
    pub cached_tokens: u32,
    /// A description of the role's scope.
    pub memory: String,
    /// The fragments in the order of the prompt.
    pub fragments: Vec<FragmentReceiptView>,
    /// The fragments that were left out.
    pub omitted_fragments: Vec<FragmentReceiptView>,
    /// The previous call of the same role.
    pub previous_call: Option<String>,
    /// Attempts without an answer.
    pub failed_attempts: Vec<FailedCallAttemptView>,
    pub answer: Option<ModelAnswerView>,
    /// The prompt's tokens as the vendor would count them, estimated from its earlier reports; `null` if that equals our
    /// count.
    pub vendor_tokens_estimate: Option<u32>,
    /// The maximum length of the answer.
    pub reply_tokens_max: u32,
    /// The tools offered to the model.
    pub tools: Vec<PromptToolView>,
    /// The JSON schema of the answer; `null` for plain text.
    pub output: Option<Value>,
    /// For a recomputation, the fragments that differ from the original.
    pub changed_fragments: Vec<String>,
    /// The hash of the prompt.
    pub digest: String,
}

/// A fragment of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FragmentReceiptView {
    /// The name of the fragment; `(thread)` for the messages of the thread.
    pub name: String,
    /// `opening`, `carried` or `ask`.
    pub part: String,
    /// The context layer.
    pub layer: String,
    pub source: Option<FragmentSourceView>,
    /// The source in words.
    pub source_summary: String,
    /// Why the fragment was included or left out.
    pub reason: String,
    pub tokens: u32,
    /// The tokens before the fragment was cut or left out.
    pub tokens_before_cut: Option<u32>,
    /// Whether compaction keeps the fragment.
    pub pinned: bool,
    /// The earlier call that added the fragment to the thread.
    pub since_call: Option<String>,
    /// The id of the text.
    pub body: Option<String>,
    pub text: Option<String>,
    /// For `carried`, the number of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    /// For `carried`, the number of older messages that were replaced by a summary or by a notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_folded: Option<u32>,
}

/// The source of a fragment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FragmentSourceView {
    /// `template`, `message`, `handover`, `call`, `tool`, `thread`, `state` or `phase`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For `message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For `handover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// For `call`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// For `tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_run: Option<String>,
    /// For `thread`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// An attempt without an answer, or a decision about one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailedCallAttemptView {
    pub seq: u64,
    pub at: u64,
    /// The number of the attempt; `null` for a decision.
    pub attempt: Option<u32>,
    /// What happened, in one line.
    pub summary: String,
    pub next: Option<RetryDecisionView>,
}

/// What follows an attempt without an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum RetryDecisionView {
    /// The call is retried.
    Retry {
        /// The earliest time of the next attempt.
        at: u64,
    },
    /// The call waits for an operator's decision.
    AwaitOperator,
    /// The call has failed.
    GiveUp,
}

/// The answer of a model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelAnswerView {
    /// The whole answer, including signal blocks.
    pub text: Option<String>,
    /// The id of the text.
    pub body: String,
    /// The tokens of the text, by the engine's count.
    pub tokens: u32,
    pub reasoning: Option<String>,
    /// Tool calls that the model requested.
    pub tool_calls: Vec<ToolCallView>,
}

/// The content of a receipt.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallReceiptParams {
    /// Whether texts are included; `true` by default.
    texts: Option<bool>,
}

/// Get a call with its receipt
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}", tag = "calls", params(SessionPathParamDocs, CallPathParamDocs, CallReceiptParams), responses((status = 200, body = CallReceiptView)))]
pub(crate) async fn get_call_receipt(
    session_ref: CallerSessionRef,
    Path((_, call)): Path<(String, String)>,
    QueryParams(params): QueryParams<CallReceiptParams>,
) -> Result<Json<CallReceiptView>, HttpProblem> {
    let entry = find_call(&session_ref, &call, None).await?;
    let opened = read_call_opened(&session_ref, &entry).await?;
    let spec = read_flow_spec(&session_ref).await?;
    let scope = spec.roles.get(&opened.role).map(|role| &role.scope);
    let context = read_receipt_context(&session_ref, &entry, &opened).await?;
    let answered = read_call_answered(&session_ref, &entry).await?;
    let texts = match params.texts {
        Some(false) => BTreeMap::new(),
        Some(true) | None => read_receipt_texts(&session_ref, &opened, &context, answered.as_deref()).await?,
    };
    let (fragments, omitted_fragments) = fragment_views(&opened, &context, &texts);
    let (tools, output) = read_tools_and_output(&session_ref, &opened).await?;
    Ok(Json(CallReceiptView {
        call: summarize_call(&entry, &spec),
        thread_reason: opened.explain_thread_use(scope),
        cache_summary: opened.receipt.prefix.to_string(),
        cached_tokens: context.cached_tokens,
        memory: scope.map(ToString::to_string).unwrap_or_default(),
        fragments,
        omitted_fragments,
        previous_call: context.previous_call.map(|call| call.to_string()),
        failed_attempts: entry.failed_attempts.iter().map(failed_attempt_view).collect(),
        answer: model_answer_view(&entry, answered.as_deref(), &texts),
        vendor_tokens_estimate: opened.receipt.vendor_tokens_estimate,
        reply_tokens_max: opened.reply_tokens_max,
        tools,
        output,
        changed_fragments: entry.recomputes.iter().flat_map(|(_, changed)| changed).map(ToString::to_string).collect(),
        digest: opened.receipt.digest.to_string(),
    }))
}

/// The parts of a receipt that other events hold: the thread's opening, and what was compacted.
struct ReceiptPartsFromOtherEvents {
    thread_opening: Option<(CallId, Vec<FragmentReceipt>)>,
    messages_folded: u32,
    previous_call: Option<CallId>,
    cached_tokens: u32,
}

async fn read_receipt_context(
    session_ref: &CallerSessionRef,
    entry: &CallHistoryEntry,
    call: &CallOpened,
) -> Result<ReceiptPartsFromOtherEvents, HttpProblem> {
    let seen = with_session_history(session_ref, None, |history| {
        let thread = history.threads.get(&entry.thread);
        let opener = thread.map(|thread| thread.opened.2).filter(|opener| *opener != entry.call);
        let opener = opener.and_then(|opener| history.calls.get(&opener).cloned());
        let earlier =
            |compaction: &crate::history::ThreadCompactionHistoryEntry| compaction.position.seq < entry.position.seq;
        let messages_folded = thread.map_or(0, |thread| {
            thread
                .compactions
                .iter()
                .filter(|compaction| earlier(compaction))
                .map(|compaction| compaction.messages_folded)
                .sum()
        });
        let cached = match &entry.prefix {
            PreviousPromptComparison::First => 0,
            PreviousPromptComparison::Extends(from) => history.calls.get(from).map_or(0, |from| from.prompt_tokens),
            PreviousPromptComparison::Broken { kept_tokens: kept, .. } => *kept,
        };
        (opener, messages_folded, history.previous_calls_of_role(entry).next().map(|entry| entry.call), cached)
    });
    let (opener, messages_folded, previous_call, cached_tokens) = seen.await?;
    let is_continued = matches!(call.receipt.thread, CallThread::Continued(_)) || call.recomputation.is_some();
    let thread_opening = match opener.filter(|_| is_continued && call.receipt.opening.is_empty()) {
        Some(opener) => Some((opener.call, read_call_opened(session_ref, &opener).await?.receipt.opening.clone())),
        None => None,
    };
    Ok(ReceiptPartsFromOtherEvents {
        thread_opening,
        messages_folded,
        previous_call,
        cached_tokens: cached_tokens.min(call.receipt.tokens),
    })
}

async fn read_call_answered(
    session_ref: &CallerSessionRef,
    entry: &CallHistoryEntry,
) -> Result<Option<Box<CallAnswered>>, HttpProblem> {
    let Some(CallEndHistoryEntry::Answered { position, is_late: false, .. }) = &entry.end else { return Ok(None) };
    let before = Seq(position.seq.0.saturating_sub(1));
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
    session_ref: &CallerSessionRef,
    opened: &CallOpened,
    context: &ReceiptPartsFromOtherEvents,
    answered: Option<&CallAnswered>,
) -> Result<TextsById, HttpProblem> {
    let thread_opening = context.thread_opening.iter().flat_map(|(_, fragments)| fragments);
    let fragments = opened.receipt.opening.iter().chain(&opened.receipt.ask).chain(thread_opening);
    let answer_texts = answered.into_iter().flat_map(|answered| [Some(answered.text), answered.reasoning]);
    let ids = fragments.map(|fragment| fragment.text).chain(answer_texts).flatten().map(|text| text.body);
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
    context: &ReceiptPartsFromOtherEvents,
    texts: &TextsById,
) -> (Vec<FragmentReceiptView>, Vec<FragmentReceiptView>) {
    let receipt = &opened.receipt;
    let mut all: Vec<FragmentReceiptView> =
        receipt.opening.iter().map(|fragment| shown_fragment_view(fragment, "opening", None, texts)).collect();
    let mut carried = receipt.carried.tokens;
    if let Some((by, fragments)) = &context.thread_opening {
        for fragment in fragments {
            carried = carried.saturating_sub(fragment.text.map_or(0, |text| text.tokens));
            all.push(shown_fragment_view(fragment, "opening", Some(*by), texts));
        }
    }
    if receipt.carried.entries > 0 {
        all.push(FragmentReceiptView {
            name: "(thread)".to_owned(),
            part: "carried".to_owned(),
            layer: FragmentContentKind::Conversation.to_string(),
            source: Some(fragment_source_view(&FragmentSource::Thread(receipt.thread.thread_id()))),
            source_summary: FragmentSource::Thread(receipt.thread.thread_id()).to_string(),
            reason: "the messages of the thread".to_owned(),
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
    all.extend(receipt.ask.iter().map(|fragment| shown_fragment_view(fragment, "ask", None, texts)));
    all.into_iter().partition(|view| view.body.is_some() || view.part == "carried")
}

fn shown_fragment_view(
    fragment: &FragmentReceipt,
    part: &str,
    since_call: Option<CallId>,
    texts: &TextsById,
) -> FragmentReceiptView {
    FragmentReceiptView {
        name: fragment.name.to_string(),
        part: part.to_owned(),
        layer: fragment.layer.to_string(),
        source: fragment.source.as_ref().map(fragment_source_view),
        source_summary: fragment.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        reason: fragment.why.clone(),
        tokens: fragment.text.map_or(0, |text| text.tokens),
        tokens_before_cut: fragment.tokens_before_cut,
        pinned: fragment.pinned,
        since_call: since_call.map(|call| call.to_string()),
        body: fragment.text.map(|text| text.body.to_string()),
        text: fragment.text.and_then(|text| texts.get(&text.body)).map(|text| text.to_string()),
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
    session_ref: &CallerSessionRef,
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
        let index = ids.iter().position(|known| Some(*known) == id)?;
        texts.get(index)
    };
    // The texts were written by this program. If a newer version wrote them, the view is shown without them.
    let tools: Vec<segue_core::prompt::ModelToolSpec> =
        find(opened.tools_body).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let output = find(opened.output_schema).and_then(|text| serde_json::from_str(text).ok());
    Ok((tools.iter().map(prompt_tool_view).collect(), output))
}

fn failed_attempt_view(attempt: &FailedCallAttemptHistoryEntry) -> FailedCallAttemptView {
    FailedCallAttemptView {
        seq: attempt.position.seq.0,
        at: attempt.position.at.0,
        attempt: attempt.attempt,
        summary: attempt.summary.clone(),
        next: attempt.next.map(|next| match next {
            RetryDecision::Retry { at } => RetryDecisionView::Retry { at: at.0 },
            RetryDecision::AwaitOperator => RetryDecisionView::AwaitOperator,
            RetryDecision::GiveUp => RetryDecisionView::GiveUp,
        }),
    }
}

fn model_answer_view(
    entry: &CallHistoryEntry,
    answered: Option<&CallAnswered>,
    texts: &TextsById,
) -> Option<ModelAnswerView> {
    let Some(CallEndHistoryEntry::Answered { text, .. }) = &entry.end else { return None };
    let lookup = |text: segue_core::body::TextRef| texts.get(&text.body).map(|text| text.to_string());
    Some(ModelAnswerView {
        text: lookup(*text),
        body: text.body.to_string(),
        tokens: text.tokens,
        reasoning: answered.and_then(|answered| answered.reasoning).and_then(lookup),
        tool_calls: answered
            .map(|answered| answered.tool_calls.iter().map(tool_call_view).collect())
            .unwrap_or_default(),
    })
}
