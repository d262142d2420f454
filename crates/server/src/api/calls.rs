//! Lists the calls of a session, with their status.

use std::collections::BTreeMap;

use axum::Json;
use segue_core::context::PreviousPromptComparison;
use segue_core::event::{CallOpened, Event, RetryDecision, UsageSource};
use segue_core::flow::FlowSpec;
use segue_core::ids::{CallId, Seq, ThreadId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::common_types::serialized_name;
use super::session_view::with_session_history;
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{self, CallerSessionRef, QueryParams};
use crate::history::{CallEndHistoryEntry, CallHistoryEntry};
use crate::limits::{CALLS_PAGE_DEFAULT, CALLS_PAGE_MAX};
use crate::problem::HttpProblem;

/// A call, without its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallSummaryView {
    pub call: String,
    /// The sequence number of the event that opened the call.
    pub seq: u64,
    pub at: u64,
    pub turn: Option<String>,
    pub role: String,
    /// The name of the ask in the role's recipe.
    pub ask: String,
    /// The agent that makes the call, if the flow has agents.
    pub agent: Option<String>,
    /// The agent or user that the role talks to.
    pub peer: Option<String>,
    pub model: String,
    /// The number of the sample, where a model is asked several times.
    pub sample: u16,
    pub phase: Option<String>,
    /// Whether the user sees the answer.
    pub visible_to_user: bool,
    pub thread: String,
    /// Whether the call opened the thread.
    pub opened_thread: bool,
    /// Why the thread was opened or continued, in a few words.
    pub thread_reason: String,
    /// The tokens of the prompt, by the engine's count.
    pub prompt_tokens: u32,
    /// The tokens of the prompt's fragments by context layer.
    pub tokens_by_layer: BTreeMap<String, u32>,
    /// The size of the model's context window.
    pub window_tokens: u32,
    /// How the prompt compares with the previous one in the same thread slot.
    pub prefix: PreviousPromptComparisonView,
    /// The call whose tool results this call sends.
    pub follows: Option<String>,
    /// The thread that this call summarizes.
    pub compacts: Option<String>,
    /// The earlier call that this call recomputes.
    pub recomputes: Option<String>,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The number of attempts whose outcome is unknown; they may have been billed.
    pub unknown_attempts: u32,
    /// `open`, `waiting`, `awaiting_operator`, `answered`, `failed`, `cancelled` or `late`.
    pub status: String,
    /// Why the call failed or was cancelled, or how the last attempt ended.
    pub problem: Option<String>,
    pub ended: Option<u64>,
    pub duration_ms: Option<u64>,
    /// Why the answer ended: `done`, `length`, `tool_calls`, `content_filter` or `repetition`.
    pub stop_reason: Option<String>,
    pub usage: Option<CallTokenUsageView>,
    /// Who counted the tokens: `vendor` or `estimated`.
    pub counted_by: Option<String>,
    /// The cost in millionths of a dollar, if the price is known.
    pub cost_microusd: Option<u64>,
}

/// How a prompt compares with the previous one in the same thread slot.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum PreviousPromptComparisonView {
    /// There is no previous prompt.
    First,
    /// The prompt begins with the whole previous prompt.
    Extends { previous_call: String },
    /// The prompt differs from the previous one before its end.
    Broken {
        previous_call: String,
        /// The tokens at the start that are equal.
        kept_tokens: u32,
        /// The name of the first fragment that differs, or `compaction`, `tools` (the role's tools changed) or `thread`
        /// (another thread replaced the previous one).
        cause: String,
    },
}

/// The token usage of one call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallTokenUsageView {
    pub input: u32,
    pub output: u32,
    /// Input tokens that the vendor served from its cache.
    pub cached: u32,
    /// Output tokens that were spent on reasoning.
    pub reasoning: u32,
}

/// Builds the list view of a call.
#[must_use]
pub(crate) fn summarize_call(entry: &CallHistoryEntry, spec: &FlowSpec) -> CallSummaryView {
    let is_visible = spec.roles.get(&entry.role).is_some_and(|role| role.hidden_blocks(&entry.ask).is_some());
    let (status, problem) = call_status(entry);
    let mut view = CallSummaryView {
        call: entry.call.to_string(),
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        turn: entry.turn.map(|turn| turn.to_string()),
        role: entry.role.to_string(),
        ask: entry.ask.to_string(),
        agent: entry.agent.as_ref().map(ToString::to_string),
        peer: entry.peer.as_ref().map(ToString::to_string),
        model: entry.model.to_string(),
        sample: entry.sample,
        phase: entry.phase.as_ref().map(ToString::to_string),
        visible_to_user: is_visible && entry.recomputes.is_none(),
        thread: entry.thread.to_string(),
        opened_thread: entry.thread_opening.is_some(),
        thread_reason: entry.thread_opening.as_ref().map_or_else(|| "continued".to_owned(), ToString::to_string),
        prompt_tokens: entry.prompt_tokens,
        tokens_by_layer: entry.tokens_by_layer.iter().map(|(layer, tokens)| (layer.to_string(), *tokens)).collect(),
        window_tokens: entry.window_tokens,
        prefix: prefix_view(&entry.prefix),
        follows: entry.follows.map(|call| call.to_string()),
        compacts: entry.compacts.map(|thread| thread.to_string()),
        recomputes: entry.recomputes.as_ref().map(|(call, _)| call.to_string()),
        attempts: count_attempts(entry),
        unknown_attempts: entry.unknown_attempts,
        status: status.to_owned(),
        problem,
        ended: None,
        duration_ms: None,
        stop_reason: None,
        usage: None,
        counted_by: None,
        cost_microusd: None,
    };
    match &entry.end {
        Some(CallEndHistoryEntry::Answered {
            position,
            stop_reason,
            usage,
            counted_by,
            cost_microusd,
            duration_ms,
            ..
        }) => {
            view.ended = Some(position.at.0);
            view.duration_ms = *duration_ms;
            view.stop_reason = stop_reason.map(|stop_reason| serialized_name(&stop_reason));
            view.usage = Some(CallTokenUsageView {
                input: usage.input_tokens,
                output: usage.output_tokens,
                cached: usage.cached_tokens,
                reasoning: usage.reasoning_tokens,
            });
            view.counted_by = Some(match counted_by {
                UsageSource::Vendor => "vendor".to_owned(),
                UsageSource::Estimated => "estimated".to_owned(),
            });
            view.cost_microusd = *cost_microusd;
        }
        Some(CallEndHistoryEntry::Failed { position, .. } | CallEndHistoryEntry::Cancelled { position, .. }) => {
            view.ended = Some(position.at.0)
        }
        None => {}
    }
    view
}

fn count_attempts(entry: &CallHistoryEntry) -> u32 {
    let failed = u32::try_from(entry.failed_attempts.iter().filter(|attempt| attempt.attempt.is_some()).count())
        .unwrap_or(u32::MAX);
    match &entry.end {
        Some(CallEndHistoryEntry::Failed { .. }) => failed,
        Some(CallEndHistoryEntry::Answered { is_late: true, .. }) => failed.max(1),
        // The attempt that was running when the call was cancelled has failed since.
        Some(CallEndHistoryEntry::Cancelled { position, .. })
            if entry.failed_attempts.last().is_some_and(|last| last.position.seq > position.seq) =>
        {
            failed
        }
        Some(_) => failed + 1,
        None if matches!(
            last_retry_decision(entry),
            Some(RetryDecision::Retry { .. } | RetryDecision::AwaitOperator)
        ) =>
        {
            failed
        }
        None => failed + 1,
    }
}

fn last_retry_decision(entry: &CallHistoryEntry) -> Option<RetryDecision> {
    entry.failed_attempts.last().and_then(|attempt| attempt.next)
}

fn call_status(entry: &CallHistoryEntry) -> (&'static str, Option<String>) {
    let last = entry.failed_attempts.last().map(|attempt| attempt.summary.clone());
    match (&entry.end, last_retry_decision(entry)) {
        (Some(CallEndHistoryEntry::Answered { is_late: true, .. }), _) => ("late", last),
        (Some(CallEndHistoryEntry::Answered { .. }), _) => ("answered", None),
        (Some(CallEndHistoryEntry::Failed { reason, .. }), _) => ("failed", Some(reason.clone())),
        (Some(CallEndHistoryEntry::Cancelled { reason, .. }), _) => ("cancelled", Some(reason.clone())),
        (None, Some(RetryDecision::AwaitOperator)) => ("awaiting_operator", last),
        (None, Some(RetryDecision::Retry { .. })) => ("waiting", last),
        (None, _) => ("open", last),
    }
}

fn prefix_view(prefix: &PreviousPromptComparison) -> PreviousPromptComparisonView {
    match prefix {
        PreviousPromptComparison::First => PreviousPromptComparisonView::First,
        PreviousPromptComparison::Extends(previous) => {
            PreviousPromptComparisonView::Extends { previous_call: previous.to_string() }
        }
        PreviousPromptComparison::Broken { from: previous, kept_tokens, cause } => {
            PreviousPromptComparisonView::Broken {
                previous_call: previous.to_string(),
                kept_tokens: *kept_tokens,
                cause: cause.to_string(),
            }
        }
    }
}

/// Filters and paging of a list of calls.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListCallsParams {
    /// Only calls of this turn.
    turn: Option<String>,
    /// Only calls of this role.
    role: Option<String>,
    /// Only calls to this model.
    model: Option<String>,
    /// Only calls in this thread.
    thread: Option<String>,
    /// Only calls after this one.
    after: Option<String>,
    /// The maximum number of calls.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Shows the session as it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// A page of calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallsPage {
    pub calls: Vec<CallSummaryView>,
    /// The value of `after` for the next page; `null` on the last page.
    pub next: Option<String>,
}

/// List the calls of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/calls", tag = "calls", params(SessionPathParamDocs, ListCallsParams), responses((status = 200, body = CallsPage)))]
pub(crate) async fn list_calls(
    session_ref: CallerSessionRef,
    QueryParams(params): QueryParams<ListCallsParams>,
) -> Result<Json<CallsPage>, HttpProblem> {
    let limit = super::page_limit(params.limit, CALLS_PAGE_DEFAULT, CALLS_PAGE_MAX)?;
    let turn = params.turn.as_deref().map(extract::parse_numbered_id::<TurnId>).transpose()?;
    let thread = params.thread.as_deref().map(extract::parse_numbered_id::<ThreadId>).transpose()?;
    let after = params.after.as_deref().map(extract::parse_numbered_id::<CallId>).transpose()?.unwrap_or_default();
    let at = AtEventParams { at: params.at }.to_seq()?;
    let spec = read_flow_spec(&session_ref).await?;
    let is_wanted = |entry: &&CallHistoryEntry| {
        turn.is_none_or(|turn| entry.turn == Some(turn))
            && thread.is_none_or(|thread| entry.thread == thread)
            && params.role.as_ref().is_none_or(|role| entry.role == role.as_str())
            && params.model.as_ref().is_none_or(|model| entry.model == model.as_str())
    };
    let mut calls = with_session_history(&session_ref, at, |history| {
        let later = history.calls.range(CallId(after.0.saturating_add(1))..).map(|(_, entry)| entry);
        later.filter(is_wanted).take(limit + 1).map(|entry| summarize_call(entry, &spec)).collect::<Vec<_>>()
    })
    .await?;
    let has_more = calls.len() > limit;
    calls.truncate(limit);
    let next = calls.last().filter(|_| has_more).map(|call| call.call.clone());
    Ok(Json(CallsPage { calls, next }))
}

/// Returns the spec of the session's flow.
///
/// # Errors
/// The session cannot be read, or the flow does not exist.
pub(crate) async fn read_flow_spec(session_ref: &CallerSessionRef) -> Result<FlowSpec, HttpProblem> {
    let flow = with_session_history(session_ref, None, |history| {
        match history.first_event.as_ref().map(|first| &first.event) {
            Some(Event::SessionOpened(opened)) => Some(opened.flow.clone()),
            _ => None,
        }
    });
    let flow = flow.await?.unwrap_or_else(|| "".into());
    let found = session_ref.app.engine.flows().map(|known| known.spec()).find(|spec| spec.name == flow).cloned();
    found.ok_or_else(|| session_ref.to_problem(Error::NoSuchFlow { name: flow, known: String::new() }))
}

/// Parses a call id and returns the call.
///
/// # Errors
/// The id is malformed, or the session has no such call.
pub(crate) async fn find_call(
    session_ref: &CallerSessionRef,
    call: &str,
    at: Option<Seq>,
) -> Result<CallHistoryEntry, HttpProblem> {
    let call: CallId = extract::parse_numbered_id(call)?;
    let entry = with_session_history(session_ref, at, |history| history.calls.get(&call).cloned()).await?;
    entry.ok_or_else(|| session_ref.to_problem(Error::NoSuchCall { session: session_ref.session.clone(), call }))
}

/// Reads the event that opened a call, with its receipt.
///
/// # Errors
/// The session cannot be read.
pub(crate) async fn read_call_opened(
    session_ref: &CallerSessionRef,
    entry: &CallHistoryEntry,
) -> Result<std::sync::Arc<CallOpened>, HttpProblem> {
    let before = Seq(entry.position.seq.0.saturating_sub(1));
    let events = session_ref
        .app
        .engine
        .read_events(&session_ref.session, before, 1)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    match events.into_iter().next().map(|recorded| recorded.event) {
        Some(Event::CallOpened(opened)) => Ok(opened),
        _ => Err(session_ref.to_problem(Error::NoSuchCall { session: session_ref.session.clone(), call: entry.call })),
    }
}
