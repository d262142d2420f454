//! Calls: which were made, and how each stands.

use std::collections::BTreeMap;

use axum::Json;
use segue_core::context::PrefixMatch;
use segue_core::event::{CallOpened, Event, RetryDecision, UsageSource};
use segue_core::flow::FlowSpec;
use segue_core::ids::{CallId, Seq, ThreadId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::common_types::serialized_name;
use super::session_view::with_session_history;
use super::{AtEventParams, SessionPath};
use crate::extract::{self, QueryParams, SessionRef};
use crate::history::{CallEndEntry, CallEntry};
use crate::limits::{CALLS_PAGE_DEFAULT, CALLS_PAGE_MAX};
use crate::problem::HttpProblem;

/// A call, without its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallSummaryView {
    /// Which.
    pub call: String,
    /// The place where it was opened.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// Who speaks.
    pub role: String,
    /// What the role is asked.
    pub ask: String,
    /// Which individual.
    pub agent: Option<String>,
    /// With whom.
    pub peer: Option<String>,
    /// Which model.
    pub model: String,
    /// Which sample of it.
    pub sample: u16,
    /// In which phase.
    pub phase: Option<String>,
    /// Whether the user hears the answer.
    pub visible_to_user: bool,
    /// In which thread.
    pub thread: String,
    /// Whether that was opened for it.
    pub opened_thread: bool,
    /// Why it was opened or continued, in a few words.
    pub thread_reason: String,
    /// Tokens of the prompt, by our count.
    pub prompt_tokens: u32,
    /// Tokens of its fragments, by kind of context.
    pub tokens_by_layer: BTreeMap<String, u32>,
    /// The model's window.
    pub window_tokens: u32,
    /// How the prompt relates to the one before it.
    pub prefix: PromptPrefixView,
    /// The call whose tool results it brings.
    pub follows: Option<String>,
    /// The thread it writes a summary for.
    pub compacts: Option<String>,
    /// The past call it makes once more.
    pub recomputes: Option<String>,
    /// Tries so far.
    pub attempts: u32,
    /// Those of unknown end: maybe billed.
    pub unknown_attempts: u32,
    /// `open`, `waiting`, `held`, `answered`, `failed`, `cancelled` or `late`.
    pub status: String,
    /// Why it failed or was cancelled, or what ended the last try.
    pub problem: Option<String>,
    /// When it ended.
    pub ended: Option<u64>,
    /// How long the answer took.
    pub duration_ms: Option<u64>,
    /// Why the answer stopped: `done`, `length`, `tools` or `filtered`.
    pub stop_reason: Option<String>,
    /// Tokens.
    pub usage: Option<TokenUsageView>,
    /// `vendor` or `us`: whose figures those are.
    pub counted_by: Option<String>,
    /// What it cost, where that is known.
    pub cost_microusd: Option<u64>,
}

/// How a prompt relates to the one before it in the same place.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptPrefixView {
    /// There was none.
    First,
    /// It begins with all of the one before.
    Extends {
        /// Whose prompt that was.
        previous_call: String,
    },
    /// It parts from the one before.
    Broken {
        /// Whose prompt that was.
        previous_call: String,
        /// Tokens that are still the same.
        kept_tokens: u32,
        /// The first fragment that differs.
        cause: String,
    },
}

/// Tokens of one call.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenUsageView {
    /// Sent.
    pub input: u32,
    /// Received.
    pub output: u32,
    /// Sent, and cached by the vendor.
    pub cached: u32,
    /// Received, and only thought.
    pub reasoning: u32,
}

/// A call as it is listed.
#[must_use]
pub fn summarize_call(entry: &CallEntry, spec: &FlowSpec) -> CallSummaryView {
    let heard = spec.roles.get(&entry.role).is_some_and(|role| role.hidden_blocks(&entry.ask).is_some());
    let (status, problem) = call_status(entry);
    let mut brief = CallSummaryView {
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
        visible_to_user: heard && entry.recomputes.is_none(),
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
        Some(CallEndEntry::Answered {
            position: place,
            stop_reason: stop,
            usage,
            counted_by,
            cost_microusd,
            duration_ms: ms,
            ..
        }) => {
            brief.ended = Some(place.at.0);
            brief.duration_ms = *ms;
            brief.stop_reason = stop.map(|stop| serialized_name(&stop));
            brief.usage = Some(TokenUsageView {
                input: usage.input_tokens,
                output: usage.output_tokens,
                cached: usage.cached_tokens,
                reasoning: usage.reasoning_tokens,
            });
            brief.counted_by = Some(match counted_by {
                UsageSource::Vendor => "vendor".to_owned(),
                UsageSource::Estimated => "us".to_owned(),
            });
            brief.cost_microusd = *cost_microusd;
        }
        Some(CallEndEntry::Failed { position: place, .. } | CallEndEntry::Cancelled { position: place, .. }) => {
            brief.ended = Some(place.at.0)
        }
        None => {}
    }
    brief
}

fn count_attempts(entry: &CallEntry) -> u32 {
    let tried = u32::try_from(entry.failed_attempts.iter().filter(|attempt| attempt.attempt.is_some()).count())
        .unwrap_or(u32::MAX);
    match &entry.end {
        Some(CallEndEntry::Failed { .. }) => tried,
        Some(CallEndEntry::Answered { is_late: true, .. }) => tried.max(1),
        // The try that was under way when it was cancelled has failed since.
        Some(CallEndEntry::Cancelled { position: place, .. })
            if entry.failed_attempts.last().is_some_and(|last| last.position.seq > place.seq) =>
        {
            tried
        }
        Some(_) => tried + 1,
        None if matches!(last_next_step(entry), Some(RetryDecision::Retry { .. } | RetryDecision::AwaitOperator)) => {
            tried
        }
        None => tried + 1,
    }
}

fn last_next_step(entry: &CallEntry) -> Option<RetryDecision> {
    entry.failed_attempts.last().and_then(|attempt| attempt.next)
}

fn call_status(entry: &CallEntry) -> (&'static str, Option<String>) {
    let last = entry.failed_attempts.last().map(|attempt| attempt.summary.clone());
    match (&entry.end, last_next_step(entry)) {
        (Some(CallEndEntry::Answered { is_late: true, .. }), _) => ("late", last),
        (Some(CallEndEntry::Answered { .. }), _) => ("answered", None),
        (Some(CallEndEntry::Failed { reason: why, .. }), _) => ("failed", Some(why.clone())),
        (Some(CallEndEntry::Cancelled { reason: why, .. }), _) => ("cancelled", Some(why.clone())),
        (None, Some(RetryDecision::AwaitOperator)) => ("held", last),
        (None, Some(RetryDecision::Retry { .. })) => ("waiting", last),
        (None, _) => ("open", last),
    }
}

fn prefix_view(prefix: &PrefixMatch) -> PromptPrefixView {
    match prefix {
        PrefixMatch::First => PromptPrefixView::First,
        PrefixMatch::Extends(from) => PromptPrefixView::Extends { previous_call: from.to_string() },
        PrefixMatch::Broken { from, kept_tokens: kept, cause: by } => {
            PromptPrefixView::Broken { previous_call: from.to_string(), kept_tokens: *kept, cause: by.to_string() }
        }
    }
}

/// Which calls.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListCallsParams {
    /// Only those of this turn.
    turn: Option<String>,
    /// Only those of this role.
    role: Option<String>,
    /// Only those on this model.
    model: Option<String>,
    /// Only those in this thread.
    thread: Option<String>,
    /// Only those after this call.
    after: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// As it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// A page of calls.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallsPage {
    /// In order.
    pub calls: Vec<CallSummaryView>,
    /// The call after which to go on, if there is more.
    pub next: Option<String>,
}

/// Which calls were made
#[utoipa::path(get, path = "/v1/sessions/{session}/calls", tag = "calls", params(SessionPath, ListCallsParams), responses((status = 200, body = CallsPage)))]
pub async fn list_calls(
    session_ref: SessionRef,
    QueryParams(params): QueryParams<ListCallsParams>,
) -> Result<Json<CallsPage>, HttpProblem> {
    let limit = super::page_limit(params.limit, CALLS_PAGE_DEFAULT, CALLS_PAGE_MAX)?;
    let turn = params.turn.as_deref().map(extract::parse_numbered_id::<TurnId>).transpose()?;
    let thread = params.thread.as_deref().map(extract::parse_numbered_id::<ThreadId>).transpose()?;
    let after = params.after.as_deref().map(extract::parse_numbered_id::<CallId>).transpose()?.unwrap_or_default();
    let at = AtEventParams { at: params.at }.to_seq()?;
    let spec = read_flow_spec(&session_ref).await?;
    let is_wanted = |note: &&CallEntry| {
        turn.is_none_or(|turn| note.turn == Some(turn))
            && thread.is_none_or(|thread| note.thread == thread)
            && params.role.as_ref().is_none_or(|role| note.role == role.as_str())
            && params.model.as_ref().is_none_or(|model| note.model == model.as_str())
    };
    let mut calls = with_session_history(&session_ref, at, |chronicle| {
        let later = chronicle.calls.range(CallId(after.0.saturating_add(1))..).map(|(_, note)| note);
        later.filter(is_wanted).take(limit + 1).map(|note| summarize_call(note, &spec)).collect::<Vec<_>>()
    })
    .await?;
    let more = calls.len() > limit;
    calls.truncate(limit);
    let next = calls.last().filter(|_| more).map(|call| call.call.clone());
    Ok(Json(CallsPage { calls, next }))
}

/// The data of the session's flow.
///
/// # Errors
/// The session cannot be read.
pub async fn read_flow_spec(session_ref: &SessionRef) -> Result<FlowSpec, HttpProblem> {
    let flow = with_session_history(session_ref, None, |chronicle| {
        match chronicle.first_event.as_ref().map(|first| &first.event) {
            Some(Event::SessionOpened(opened)) => Some(opened.flow.clone()),
            _ => None,
        }
    });
    let flow = flow.await?.unwrap_or_else(|| "".into());
    let found =
        session_ref.app.engine.flows().find(|rules| rules.spec().name == flow).map(|rules| rules.spec().clone());
    found.ok_or_else(|| session_ref.to_problem(Error::NoSuchFlow { name: flow, known: String::new() }))
}

/// A call in a path.
///
/// # Errors
/// It is none, or not there.
pub async fn find_call(session_ref: &SessionRef, call: &str, at: Option<Seq>) -> Result<CallEntry, HttpProblem> {
    let call: CallId = extract::parse_numbered_id(call)?;
    let note = with_session_history(session_ref, at, |chronicle| chronicle.calls.get(&call).cloned()).await?;
    note.ok_or_else(|| session_ref.to_problem(Error::NoSuchCall { session: session_ref.session.clone(), call }))
}

/// A call as it was opened, receipt and all.
///
/// # Errors
/// The session cannot be read.
pub async fn read_call_opened(
    session_ref: &SessionRef,
    entry: &CallEntry,
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
