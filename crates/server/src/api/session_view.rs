//! A session as it is shown: everything about it but what happened in it.

use segue_core::ids::Seq;
use segue_core::session::{CallStatus, SessionState};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, MidTurnPolicyView};
use crate::extract::SessionRef;
use crate::history::SessionHistory;
use crate::problem::HttpProblem;

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    /// Its name.
    pub session: String,
    /// Its flow.
    pub flow: String,
    /// Its title.
    pub title: String,
    /// What happens to a message while a turn runs.
    pub mid_turn_policy: MidTurnPolicyView,
    /// The flow's settings for it.
    pub settings: Value,
    /// When it began.
    pub created: u64,
    /// When it last changed.
    pub updated: u64,
    /// Why it takes no more messages, if it does not.
    pub closed_reason: Option<String>,
    /// The place of its last event.
    pub seq: u64,
    /// Where its phase graphs stand, in a few words.
    pub phase: String,
    /// Turns so far.
    pub turns: u32,
    /// Calls so far.
    pub calls: u32,
    /// The turn that runs.
    pub running_turn: Option<RunningTurnView>,
    /// Messages that wait for a turn.
    pub queued_messages: Vec<QueuedMessageView>,
    /// Calls that are owed.
    pub open_calls: Vec<OpenCallView>,
    /// Which session it is a copy of.
    pub forked_from: Option<ForkOriginView>,
    /// What there is to see.
    pub available_sections: Vec<String>,
    /// What it cost.
    pub spent: CallTotalsView,
}

/// A turn that runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunningTurnView {
    /// Which.
    pub turn: String,
    /// Since when.
    pub started: u64,
    /// What it answers.
    pub messages: Vec<String>,
}

/// A message that waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueuedMessageView {
    /// Which.
    pub message: String,
    /// What it says.
    pub text: String,
    /// What was to happen to it.
    pub mid_turn_policy: MidTurnPolicyView,
}

/// A call that is owed.
#[derive(Debug, Serialize, ToSchema)]
pub struct OpenCallView {
    /// Which.
    pub call: String,
    /// Who speaks.
    pub role: String,
    /// On which model.
    pub model: String,
    /// Which try.
    pub attempt: u32,
    /// How it stands.
    pub status: OpenCallStatusView,
    /// Since when.
    pub since: u64,
}

/// How an owed call stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OpenCallStatusView {
    /// It is being made.
    InProgress,
    /// It is tried again then.
    Waiting {
        /// When.
        until: u64,
    },
    /// A person must decide.
    AwaitingOperator,
}

/// Where a session was forked from.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForkOriginView {
    /// Which session.
    pub session: String,
    /// Up to which event.
    pub at: u64,
}

/// Does something with the account of a session.
///
/// # Errors
/// It cannot be read.
pub async fn with_session_history<T>(
    session_ref: &SessionRef,
    at: Option<Seq>,
    read: impl FnOnce(&SessionHistory) -> T,
) -> Result<T, HttpProblem> {
    let SessionRef { app, session, .. } = session_ref;
    app.histories.with_history(&app.engine, session, at, read).await.map_err(|error| session_ref.to_problem(error))
}

/// A session's state now, or after an event.
///
/// # Errors
/// It cannot be read.
pub async fn read_session_state(
    session_ref: &SessionRef,
    at: Option<Seq>,
) -> Result<(std::sync::Arc<dyn segue_core::flow::DynFlow>, SessionState), HttpProblem> {
    let engine = &session_ref.app.engine;
    let state = match at {
        Some(at) => engine.load_session_at(&session_ref.session, at).await,
        None => engine.load_session(&session_ref.session).await,
    };
    state.map_err(|error| session_ref.to_problem(error))
}

/// Everything about a session but what happened in it.
///
/// # Errors
/// It cannot be read.
pub async fn build_session_view(session_ref: &SessionRef, at: Option<Seq>) -> Result<SessionView, HttpProblem> {
    let (rules, state) = read_session_state(session_ref, at).await?;
    let engine = &session_ref.app.engine;
    let exhibits =
        engine.artifacts(&session_ref.session, &*rules, &state).await.map_err(|error| session_ref.to_problem(error))?;
    let has_phases = !rules.spec().graphs.is_empty();
    // Up to the same event, whatever was recorded since.
    let seen = |chronicle: &SessionHistory| {
        (chronicle.forked_from.clone(), list_available_sections(chronicle, has_phases, !exhibits.is_empty()))
    };
    let (forked, holds) = with_session_history(session_ref, at, seen).await?;
    let session = &state.session;
    let ids: Vec<_> = session.queued_messages.iter().map(|waiting| waiting.text.body).collect();
    let texts = engine.read_texts(&session_ref.session, &ids).await.map_err(|error| session_ref.to_problem(error))?;
    let queue = session.queued_messages.iter().zip(texts).map(|(waiting, text)| QueuedMessageView {
        message: waiting.message.to_string(),
        text: text.to_string(),
        mid_turn_policy: waiting.mid_turn_policy.into(),
    });
    Ok(SessionView {
        session: session_ref.public_name(),
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
        queued_messages: queue.collect(),
        open_calls: open_call_views(session),
        forked_from: forked
            .map(|(from, at)| ForkOriginView { session: session_ref.caller.public_session_name(&from), at: at.0 }),
        available_sections: holds,
        spent: session.ledger.total.into(),
    })
}

fn open_call_views(session: &segue_core::session::Session) -> Vec<OpenCallView> {
    let view = |(call, open): (&segue_core::ids::CallId, &segue_core::session::OpenCall)| OpenCallView {
        call: call.to_string(),
        role: open.opened.role.to_string(),
        model: open.opened.model.to_string(),
        attempt: open.attempt,
        status: match open.status {
            CallStatus::Due | CallStatus::Inherited(_) => OpenCallStatusView::InProgress,
            CallStatus::WaitingUntil(until) => OpenCallStatusView::Waiting { until: until.0 },
            CallStatus::AwaitingOperator => OpenCallStatusView::AwaitingOperator,
        },
        since: open.opened_at.0,
    };
    session.open_calls.iter().map(view).collect()
}

fn list_available_sections(history: &SessionHistory, has_phases: bool, has_exhibits: bool) -> Vec<String> {
    let has = [
        ("turns", true),
        ("calls", !history.calls.is_empty()),
        ("threads", !history.threads.is_empty()),
        ("phases", has_phases),
        ("handovers", !history.handovers.is_empty()),
        ("tools", !history.tool_runs.is_empty()),
        ("facts", !history.facts.is_empty()),
        ("exhibits", has_exhibits),
        ("recomputations", history.calls.values().any(|call| call.recomputes.is_some())),
        ("inboxes", history.has_agent_messages),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}
