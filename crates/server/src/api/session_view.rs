//! Builds the view of a session without its history.

use segue_core::ids::Seq;
use segue_core::session::{OpenCallStatus, SessionState};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, MidTurnPolicyView};
use super::tool_runs::{HeldToolRunView, held_tool_run_views};
use crate::extract::CallerSessionRef;
use crate::history::SessionHistory;
use crate::problem::HttpProblem;

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    pub session: String,
    /// The session that started this one.
    pub parent: Option<String>,
    pub flow: String,
    pub title: String,
    /// What happens to a message that arrives while a turn is running.
    pub mid_turn_policy: MidTurnPolicyView,
    /// The flow's settings of this session.
    pub settings: Value,
    pub created: u64,
    pub updated: u64,
    /// Why the session accepts no more messages; `null` while it is open.
    pub closed_reason: Option<String>,
    /// The sequence number of the last event.
    pub seq: u64,
    /// The current phases, in a few words.
    pub phase: String,
    /// The number of turns.
    pub turns: u32,
    /// The number of calls.
    pub calls: u32,
    pub running_turn: Option<RunningTurnView>,
    /// Messages that wait for a turn.
    pub queued_messages: Vec<QueuedMessageView>,
    /// Calls without an answer.
    pub open_calls: Vec<OpenCallView>,
    /// Tool runs that wait for a person.
    pub held_tool_runs: Vec<HeldToolRunView>,
    /// The session that this one was forked from.
    pub forked_from: Option<ForkOriginView>,
    /// The views that have something to show.
    pub available_sections: Vec<String>,
    /// The usage of this session alone.
    pub spent: CallTotalsView,
    /// Child sessions that have not ended.
    pub children: Vec<OpenChildSessionView>,
    /// The usage of child sessions and their descendants that have ended.
    pub descendants: DescendantUsageView,
}

/// A child session that has not ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenChildSessionView {
    pub session: String,
    pub flow: String,
    /// The flow's own name for the child.
    pub key: String,
    /// When the parent stops waiting for the child.
    pub deadline: u64,
    /// True if the child was told to close.
    pub is_closing: bool,
}

/// What descendants used.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DescendantUsageView {
    /// The number of sessions.
    pub sessions: u32,
    pub calls: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The cost of calls with a known price.
    pub cost_microusd: u64,
    /// Answers without a known price.
    pub unpriced_answers: u32,
}

/// A running turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunningTurnView {
    pub turn: String,
    pub started: u64,
    /// The messages that the turn answers.
    pub messages: Vec<String>,
}

/// A message that waits for a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuedMessageView {
    pub message: String,
    pub text: String,
    pub mid_turn_policy: MidTurnPolicyView,
}

/// A call without an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenCallView {
    pub call: String,
    pub role: String,
    pub model: String,
    /// The number of the current attempt.
    pub attempt: u32,
    pub status: OpenCallStatusView,
    /// When the call was opened.
    pub since: u64,
}

/// The status of a call without an answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OpenCallStatusView {
    /// The call is in progress.
    InProgress,
    /// The call waits for its next attempt.
    Waiting {
        /// The time of the next attempt.
        until: u64,
    },
    /// A caller who may use the session must decide whether to retry.
    AwaitingOperator,
}

/// The origin of a forked session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForkOriginView {
    pub session: String,
    /// The last event that both sessions share.
    pub at: u64,
}

/// Reads the history of a session, as it is now or after the event `at`.
///
/// # Errors
/// The session cannot be read.
pub(crate) async fn with_session_history<T>(
    session_ref: &CallerSessionRef,
    at: Option<Seq>,
    read: impl FnOnce(&SessionHistory) -> T,
) -> Result<T, HttpProblem> {
    let CallerSessionRef { app, session, .. } = session_ref;
    app.histories.with_history(&app.engine, session, at, read).await.map_err(|error| session_ref.to_problem(error))
}

/// Loads the flow and the state of a session, as it is now or after the event `at`.
///
/// # Errors
/// The session cannot be read.
pub(crate) async fn read_session_state(
    session_ref: &CallerSessionRef,
    at: Option<Seq>,
) -> Result<(std::sync::Arc<dyn segue_core::flow::DynFlow>, SessionState), HttpProblem> {
    let engine = &session_ref.app.engine;
    let state = match at {
        Some(at) => engine.load_session_at(&session_ref.session, at).await,
        None => engine.load_session(&session_ref.session).await,
    };
    state.map_err(|error| session_ref.to_problem(error))
}

/// Builds the view of a session.
///
/// # Errors
/// The session cannot be read.
pub(crate) async fn build_session_view(
    session_ref: &CallerSessionRef,
    at: Option<Seq>,
) -> Result<SessionView, HttpProblem> {
    let (flow, state) = read_session_state(session_ref, at).await?;
    let engine = &session_ref.app.engine;
    let artifacts =
        engine.artifacts(&session_ref.session, &*flow, &state).await.map_err(|error| session_ref.to_problem(error))?;
    let has_phases = !flow.spec().graphs.is_empty();
    // The history must end at the same event as the state.
    let read = |history: &SessionHistory| {
        (history.forked_from.clone(), list_available_sections(history, has_phases, !artifacts.is_empty()))
    };
    let (forked_from, available_sections) = with_session_history(session_ref, at, read).await?;
    let session = &state.session;
    let ids: Vec<_> = session.queued_messages.iter().map(|waiting| waiting.text.body).collect();
    let texts = engine.read_texts(&session_ref.session, &ids).await.map_err(|error| session_ref.to_problem(error))?;
    let queued_messages = session.queued_messages.iter().zip(texts).map(|(waiting, text)| QueuedMessageView {
        message: waiting.message.to_string(),
        text: text.to_string(),
        mid_turn_policy: waiting.mid_turn_policy.into(),
    });
    Ok(SessionView {
        session: session_ref.public_name(),
        parent: session.child_origin.as_ref().map(|origin| session_ref.caller.public_session_name(&origin.parent)),
        flow: session.flow.as_ref().map(ToString::to_string).unwrap_or_default(),
        title: session.title.clone(),
        mid_turn_policy: session.mid_turn_policy.into(),
        settings: (*session.settings).clone(),
        created: session.opened_at.0,
        updated: session.last_event_at.0,
        closed_reason: session.closed_reason.clone(),
        seq: session.last_seq.0,
        phase: session.phases_label(),
        turns: session.last_ids.turn.0,
        calls: session.last_ids.call.0,
        running_turn: session.current_turn.as_ref().map(|turn| RunningTurnView {
            turn: turn.id.to_string(),
            started: turn.started_at.0,
            messages: turn.messages.iter().map(|waiting| waiting.message.to_string()).collect(),
        }),
        queued_messages: queued_messages.collect(),
        open_calls: open_call_views(session),
        held_tool_runs: held_tool_run_views(session),
        forked_from: forked_from
            .map(|(from, at)| ForkOriginView { session: session_ref.caller.public_session_name(&from), at: at.0 }),
        available_sections,
        spent: session.ledger.total.into(),
        children: session.open_children.values().map(|open| child_session_view(session_ref, open)).collect(),
        descendants: descendant_usage_view(&session.ledger.descendants),
    })
}

fn child_session_view(
    session_ref: &CallerSessionRef,
    open: &segue_core::session::OpenChildSession,
) -> OpenChildSessionView {
    OpenChildSessionView {
        session: session_ref.caller.public_session_name(&open.spawned.session),
        flow: open.spawned.flow.to_string(),
        key: open.spawned.key.clone(),
        deadline: open.spawned.deadline.0,
        is_closing: open.close_requested,
    }
}

fn descendant_usage_view(usage: &segue_core::session::ChildSessionUsage) -> DescendantUsageView {
    DescendantUsageView {
        sessions: usage.descendants,
        calls: usage.calls,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cost_microusd: usage.cost_microusd,
        unpriced_answers: usage.unpriced_answers,
    }
}

fn open_call_views(session: &segue_core::session::Session) -> Vec<OpenCallView> {
    let view = |(call, open): (&segue_core::ids::CallId, &segue_core::session::OpenCall)| OpenCallView {
        call: call.to_string(),
        role: open.opened.role.to_string(),
        model: open.opened.model.to_string(),
        attempt: open.attempt,
        status: match open.status {
            OpenCallStatus::Due | OpenCallStatus::Inherited(_) => OpenCallStatusView::InProgress,
            OpenCallStatus::WaitingUntil(until) => OpenCallStatusView::Waiting { until: until.0 },
            OpenCallStatus::AwaitingOperator => OpenCallStatusView::AwaitingOperator,
        },
        since: open.opened_at.0,
    };
    session.open_calls.iter().map(view).collect()
}

fn list_available_sections(history: &SessionHistory, has_phases: bool, has_artifacts: bool) -> Vec<String> {
    let has = [
        ("turns", true),
        ("calls", !history.calls.is_empty()),
        ("threads", !history.threads.is_empty()),
        ("phases", has_phases),
        ("handovers", !history.handovers.is_empty()),
        ("tools", !history.tool_runs.is_empty()),
        ("facts", !history.facts.is_empty()),
        ("artifacts", has_artifacts),
        ("recomputations", history.calls.values().any(|call| call.recomputes.is_some())),
        ("inboxes", history.has_agent_messages),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}
