//! A session as it is shown: everything about it but what happened in it.

use segue_core::ids::Seq;
use segue_core::session::{CallStatus, State as SessionState};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::shapes::{BusyPolicy, Spent};
use crate::chronicle::Chronicle;
use crate::extract::Held;
use crate::problem::Problem;

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
    pub busy: BusyPolicy,
    /// The flow's settings for it.
    pub settings: Value,
    /// When it began.
    pub created: u64,
    /// When it last changed.
    pub updated: u64,
    /// Why it takes no more messages, if it does not.
    pub closed: Option<String>,
    /// The place of its last event.
    pub seq: u64,
    /// Where its phase graphs stand, in a few words.
    pub phase: String,
    /// Turns so far.
    pub turns: u32,
    /// Calls so far.
    pub calls: u32,
    /// The turn that runs.
    pub running: Option<Running>,
    /// Messages that wait for a turn.
    pub queue: Vec<Queued>,
    /// Calls that are owed.
    pub open_calls: Vec<OpenCallView>,
    /// Which session it is a copy of.
    pub forked_from: Option<ForkedFrom>,
    /// What there is to see.
    pub holds: Vec<String>,
    /// What it cost.
    pub spent: Spent,
}

/// A turn that runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Running {
    /// Which.
    pub turn: String,
    /// Since when.
    pub started: u64,
    /// What it answers.
    pub messages: Vec<String>,
}

/// A message that waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct Queued {
    /// Which.
    pub message: String,
    /// What it says.
    pub text: String,
    /// What was to happen to it.
    pub busy: BusyPolicy,
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
    pub status: CallStands,
    /// Since when.
    pub since: u64,
}

/// How an owed call stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CallStands {
    /// It is being made.
    Due,
    /// It is tried again then.
    Waiting {
        /// When.
        until: u64,
    },
    /// A person must decide.
    Held,
}

/// Where a session was forked from.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForkedFrom {
    /// Which session.
    pub session: String,
    /// Up to which event.
    pub at: u64,
}

/// Does something with the account of a session.
///
/// # Errors
/// It cannot be read.
pub async fn chronicle<T>(held: &Held, at: Option<Seq>, look: impl FnOnce(&Chronicle) -> T) -> Result<T, Problem> {
    let Held { app, session, .. } = held;
    app.chronicles.look(&app.engine, session, at, look).await.map_err(|error| held.problem(error))
}

/// A session's state now, or after an event.
///
/// # Errors
/// It cannot be read.
pub async fn state(
    held: &Held,
    at: Option<Seq>,
) -> Result<(std::sync::Arc<dyn segue_core::flow::Rules>, SessionState), Problem> {
    let engine = &held.app.engine;
    let state = match at {
        Some(at) => engine.state_at(&held.session, at).await,
        None => engine.state(&held.session).await,
    };
    state.map_err(|error| held.problem(error))
}

/// Everything about a session but what happened in it.
///
/// # Errors
/// It cannot be read.
pub async fn view(held: &Held, at: Option<Seq>) -> Result<SessionView, Problem> {
    let (rules, state) = state(held, at).await?;
    let engine = &held.app.engine;
    let exhibits = engine.exhibits(&held.session, &*rules, &state).await.map_err(|error| held.problem(error))?;
    let has_phases = !rules.spec().graphs.is_empty();
    // Up to the same event, whatever was recorded since.
    let seen =
        |chronicle: &Chronicle| (chronicle.forked_from.clone(), holds(chronicle, has_phases, !exhibits.is_empty()));
    let (forked, holds) = chronicle(held, at, seen).await?;
    let session = &state.session;
    let ids: Vec<_> = session.queue.iter().map(|waiting| waiting.text.body).collect();
    let texts = engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
    let queue = session.queue.iter().zip(texts).map(|(waiting, text)| Queued {
        message: waiting.message.to_string(),
        text: text.to_string(),
        busy: waiting.busy.into(),
    });
    Ok(SessionView {
        session: held.name(),
        flow: session.flow.as_ref().map(ToString::to_string).unwrap_or_default(),
        title: session.title.clone(),
        busy: session.busy.into(),
        settings: (*session.settings).clone(),
        created: session.opened.0,
        updated: session.at.0,
        closed: session.closed.clone(),
        seq: session.seq.0,
        phase: session.phase_label(),
        turns: session.last.turn.0,
        calls: session.last.call.0,
        running: session.turn.as_ref().map(|turn| Running {
            turn: turn.id.to_string(),
            started: turn.started.0,
            messages: turn.messages.iter().map(|waiting| waiting.message.to_string()).collect(),
        }),
        queue: queue.collect(),
        open_calls: open_calls(session),
        forked_from: forked.map(|(from, at)| ForkedFrom { session: held.caller.public(&from), at: at.0 }),
        holds,
        spent: session.ledger.total.into(),
    })
}

fn open_calls(session: &segue_core::session::Session) -> Vec<OpenCallView> {
    let view = |(call, open): (&segue_core::ids::CallId, &segue_core::session::OpenCall)| OpenCallView {
        call: call.to_string(),
        role: open.opened.role.to_string(),
        model: open.opened.model.to_string(),
        attempt: open.attempt,
        status: match open.status {
            CallStatus::Due | CallStatus::Left(_) => CallStands::Due,
            CallStatus::Waiting(until) => CallStands::Waiting { until: until.0 },
            CallStatus::Held => CallStands::Held,
        },
        since: open.since.0,
    };
    session.calls.iter().map(view).collect()
}

fn holds(chronicle: &Chronicle, has_phases: bool, has_exhibits: bool) -> Vec<String> {
    let has = [
        ("turns", true),
        ("calls", !chronicle.calls.is_empty()),
        ("threads", !chronicle.threads.is_empty()),
        ("phases", has_phases),
        ("handovers", !chronicle.handovers.is_empty()),
        ("tools", !chronicle.tools.is_empty()),
        ("facts", !chronicle.facts.is_empty()),
        ("exhibits", has_exhibits),
        ("recomputations", chronicle.calls.values().any(|call| call.recomputes.is_some())),
        ("inboxes", chronicle.has_mail),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}
