//! Calls: which were made, and how each stands.

use std::collections::BTreeMap;

use axum::Json;
use segue_core::context::Prefix;
use segue_core::event::{CallOpened, CountedBy, Event, Next};
use segue_core::flow::FlowSpec;
use segue_core::ids::{CallId, Seq, ThreadId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::session_view::chronicle;
use super::shapes::word;
use super::{At, Named};
use crate::chronicle::{CallEnd, CallNote};
use crate::extract::{self, Held, Params};
use crate::limits::{CALLS_PAGE, CALLS_PAGE_MAX};
use crate::problem::Problem;

/// A call, without its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallBrief {
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
    pub heard: bool,
    /// In which thread.
    pub thread: String,
    /// Whether that was opened for it.
    pub opened_thread: bool,
    /// Why it was opened or continued, in a few words.
    pub why: String,
    /// Tokens of the prompt, by our count.
    pub tokens: u32,
    /// Tokens of its fragments, by kind of context.
    pub layers: BTreeMap<String, u32>,
    /// The model's window.
    pub window: u32,
    /// How the prompt relates to the one before it.
    pub prefix: PrefixView,
    /// The call whose tool results it brings.
    pub follows: Option<String>,
    /// The thread it writes a summary for.
    pub compacts: Option<String>,
    /// The past call it makes once more.
    pub recomputes: Option<String>,
    /// Tries so far.
    pub attempts: u32,
    /// Those of unknown end: maybe billed.
    pub unknown: u32,
    /// `open`, `waiting`, `held`, `answered`, `failed`, `cancelled` or `late`.
    pub status: String,
    /// Why it failed or was cancelled, or what ended the last try.
    pub problem: Option<String>,
    /// When it ended.
    pub ended: Option<u64>,
    /// How long the answer took.
    pub ms: Option<u64>,
    /// Why the answer stopped: `done`, `length`, `tools` or `filtered`.
    pub stop: Option<String>,
    /// Tokens.
    pub usage: Option<UsageView>,
    /// `vendor` or `us`: whose figures those are.
    pub counted_by: Option<String>,
    /// What it cost, where that is known.
    pub cost_microusd: Option<u64>,
}

/// How a prompt relates to the one before it in the same place.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum PrefixView {
    /// There was none.
    First,
    /// It begins with all of the one before.
    Extends {
        /// Whose prompt that was.
        from: String,
    },
    /// It parts from the one before.
    Broken {
        /// Whose prompt that was.
        from: String,
        /// Tokens that are still the same.
        kept: u32,
        /// The first fragment that differs.
        by: String,
    },
}

/// Tokens of one call.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageView {
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
pub fn brief(note: &CallNote, spec: &FlowSpec) -> CallBrief {
    let heard = spec.roles.get(&note.role).is_some_and(|role| role.heard(&note.ask).is_some());
    let (status, problem) = stands(note);
    let mut brief = CallBrief {
        call: note.call.to_string(),
        seq: note.place.seq.0,
        at: note.place.at.0,
        turn: note.turn.map(|turn| turn.to_string()),
        role: note.role.to_string(),
        ask: note.ask.to_string(),
        agent: note.agent.as_ref().map(ToString::to_string),
        peer: note.peer.as_ref().map(ToString::to_string),
        model: note.model.to_string(),
        sample: note.sample,
        phase: note.phase.as_ref().map(ToString::to_string),
        heard: heard && note.recomputes.is_none(),
        thread: note.thread.to_string(),
        opened_thread: note.opened.is_some(),
        why: note.opened.as_ref().map_or_else(|| "continued".to_owned(), ToString::to_string),
        tokens: note.tokens,
        layers: note.layers.iter().map(|(layer, tokens)| (layer.to_string(), *tokens)).collect(),
        window: note.window,
        prefix: prefix(&note.prefix),
        follows: note.follows.map(|call| call.to_string()),
        compacts: note.compacts.map(|thread| thread.to_string()),
        recomputes: note.recomputes.as_ref().map(|(call, _)| call.to_string()),
        attempts: attempts(note),
        unknown: note.unknown,
        status: status.to_owned(),
        problem,
        ended: None,
        ms: None,
        stop: None,
        usage: None,
        counted_by: None,
        cost_microusd: None,
    };
    match &note.end {
        Some(CallEnd::Answered { place, stop, usage, counted_by, cost_microusd, ms, .. }) => {
            brief.ended = Some(place.at.0);
            brief.ms = *ms;
            brief.stop = stop.map(|stop| word(&stop));
            brief.usage = Some(UsageView {
                input: usage.input,
                output: usage.output,
                cached: usage.cached,
                reasoning: usage.reasoning,
            });
            brief.counted_by = Some(match counted_by {
                CountedBy::Vendor => "vendor".to_owned(),
                CountedBy::Us => "us".to_owned(),
            });
            brief.cost_microusd = *cost_microusd;
        }
        Some(CallEnd::Failed { place, .. } | CallEnd::Cancelled { place, .. }) => brief.ended = Some(place.at.0),
        None => {}
    }
    brief
}

fn attempts(note: &CallNote) -> u32 {
    let tried =
        u32::try_from(note.tries.iter().filter(|attempt| attempt.attempt.is_some()).count()).unwrap_or(u32::MAX);
    match &note.end {
        Some(CallEnd::Failed { .. }) => tried,
        Some(CallEnd::Answered { late: true, .. }) => tried.max(1),
        // The try that was under way when it was cancelled has failed since.
        Some(CallEnd::Cancelled { place, .. }) if note.tries.last().is_some_and(|last| last.place.seq > place.seq) => {
            tried
        }
        Some(_) => tried + 1,
        None if matches!(last_next(note), Some(Next::Retry { .. } | Next::Ask)) => tried,
        None => tried + 1,
    }
}

fn last_next(note: &CallNote) -> Option<Next> {
    note.tries.last().and_then(|attempt| attempt.next)
}

fn stands(note: &CallNote) -> (&'static str, Option<String>) {
    let last = note.tries.last().map(|attempt| attempt.line.clone());
    match (&note.end, last_next(note)) {
        (Some(CallEnd::Answered { late: true, .. }), _) => ("late", last),
        (Some(CallEnd::Answered { .. }), _) => ("answered", None),
        (Some(CallEnd::Failed { why, .. }), _) => ("failed", Some(why.clone())),
        (Some(CallEnd::Cancelled { why, .. }), _) => ("cancelled", Some(why.clone())),
        (None, Some(Next::Ask)) => ("held", last),
        (None, Some(Next::Retry { .. })) => ("waiting", last),
        (None, _) => ("open", last),
    }
}

fn prefix(prefix: &Prefix) -> PrefixView {
    match prefix {
        Prefix::First => PrefixView::First,
        Prefix::Extends(from) => PrefixView::Extends { from: from.to_string() },
        Prefix::Broken { from, kept, by } => {
            PrefixView::Broken { from: from.to_string(), kept: *kept, by: by.to_string() }
        }
    }
}

/// Which calls.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallsParams {
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
    pub calls: Vec<CallBrief>,
    /// The call after which to go on, if there is more.
    pub next: Option<String>,
}

/// Which calls were made
#[utoipa::path(get, path = "/v1/sessions/{session}/calls", tag = "calls", params(Named, CallsParams), responses((status = 200, body = CallsPage)))]
pub async fn list(held: Held, Params(params): Params<CallsParams>) -> Result<Json<CallsPage>, Problem> {
    let limit = super::page(params.limit, CALLS_PAGE, CALLS_PAGE_MAX)?;
    let turn = params.turn.as_deref().map(extract::number::<TurnId>).transpose()?;
    let thread = params.thread.as_deref().map(extract::number::<ThreadId>).transpose()?;
    let after = params.after.as_deref().map(extract::number::<CallId>).transpose()?.unwrap_or_default();
    let at = At { at: params.at }.seq()?;
    let spec = spec(&held).await?;
    let is_wanted = |note: &&CallNote| {
        turn.is_none_or(|turn| note.turn == Some(turn))
            && thread.is_none_or(|thread| note.thread == thread)
            && params.role.as_ref().is_none_or(|role| note.role == role.as_str())
            && params.model.as_ref().is_none_or(|model| note.model == model.as_str())
    };
    let mut calls = chronicle(&held, at, |chronicle| {
        let later = chronicle.calls.range(CallId(after.0.saturating_add(1))..).map(|(_, note)| note);
        later.filter(is_wanted).take(limit + 1).map(|note| brief(note, &spec)).collect::<Vec<_>>()
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
pub async fn spec(held: &Held) -> Result<FlowSpec, Problem> {
    let flow = chronicle(held, None, |chronicle| match chronicle.first.as_ref().map(|first| &first.event) {
        Some(Event::SessionOpened(opened)) => Some(opened.flow.clone()),
        _ => None,
    });
    let flow = flow.await?.unwrap_or_else(|| "".into());
    let found = held.app.engine.flows().find(|rules| rules.spec().name == flow).map(|rules| rules.spec().clone());
    found.ok_or_else(|| held.problem(Error::NoSuchFlow { name: flow, known: String::new() }))
}

/// A call in a path.
///
/// # Errors
/// It is none, or not there.
pub async fn find(held: &Held, call: &str, at: Option<Seq>) -> Result<CallNote, Problem> {
    let call: CallId = extract::number(call)?;
    let note = chronicle(held, at, |chronicle| chronicle.calls.get(&call).cloned()).await?;
    note.ok_or_else(|| held.problem(Error::NoSuchCall { session: held.session.clone(), call }))
}

/// A call as it was opened, receipt and all.
///
/// # Errors
/// The session cannot be read.
pub async fn opened(held: &Held, note: &CallNote) -> Result<std::sync::Arc<CallOpened>, Problem> {
    let before = Seq(note.place.seq.0.saturating_sub(1));
    let events = held.app.engine.events(&held.session, before, 1).await.map_err(|error| held.problem(error))?;
    match events.into_iter().next().map(|recorded| recorded.event) {
        Some(Event::CallOpened(opened)) => Ok(opened),
        _ => Err(held.problem(Error::NoSuchCall { session: held.session.clone(), call: note.call })),
    }
}
