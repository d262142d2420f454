//! Turns: what was said, with everything that happened on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::{BodyId, TextRef};
use segue_core::flow::FlowSpec;
use segue_core::ids::TurnId;
use segue_core::prompt::ImageMediaType;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallSummaryView, read_flow_spec, summarize_call};
use super::common_types::{CallTotalsView, MidTurnPolicyView, TurnResultView, serialized_name};
use super::phases::{PhaseEventView, phase_event_view};
use super::session_view::with_session_history;
use super::{AtEventParams, SessionPath};
use crate::extract::{self, QueryParams, SessionRef};
use crate::history::{MessageEntry, SessionHistory, TurnEntry};
use crate::limits::{TURNS_PAGE_DEFAULT, TURNS_PAGE_MAX};
use crate::problem::HttpProblem;

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnView {
    /// Which.
    pub turn: String,
    /// The place of its first message.
    pub first_seq: u64,
    /// The place of its end.
    pub end_seq: Option<u64>,
    /// When it began.
    pub started: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// How.
    pub outcome: Option<TurnResultView>,
    /// What it answers.
    pub messages: Vec<MessageView>,
    /// What was said in it.
    pub replies: Vec<TurnReplyView>,
    /// Its calls.
    pub calls: Vec<CallSummaryView>,
    /// Its tool runs.
    pub tool_runs: Vec<ToolRunView>,
    /// What happened to phases in it.
    pub phase_events: Vec<PhaseEventView>,
    /// Handovers made in it.
    pub handovers: Vec<String>,
    /// The flow's facts noted in it.
    pub facts: Vec<FactRefView>,
    /// Steps of the flow that were not allowed.
    pub refused_steps: Vec<RefusedStepView>,
    /// What it cost.
    pub spent: CallTotalsView,
}

/// A message of the user.
#[derive(Debug, Serialize, ToSchema)]
pub struct MessageView {
    /// Which.
    pub message: String,
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// What it says.
    pub text: String,
    /// What it shows.
    pub images: Vec<ImageView>,
    /// What the client calls it.
    pub key: Option<String>,
    /// What was to happen to it if a turn ran.
    pub mid_turn_policy: MidTurnPolicyView,
}

/// An image shown with a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImageView {
    /// Its bytes, in base64, are this text of the session.
    pub body: String,
    /// Its form.
    #[schema(examples("image/png"))]
    pub media_type: String,
}

impl ImageView {
    /// An image by what it is known by.
    #[must_use]
    pub fn new(body: BodyId, media: ImageMediaType) -> Self {
        Self { body: body.to_string(), media_type: media.mime_type().to_owned() }
    }
}

/// Something said to the user.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnReplyView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// What.
    pub text: String,
    /// By whom.
    pub role: Option<String>,
    /// The call it came from.
    pub call: Option<String>,
}

/// A tool run.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolRunView {
    /// Which.
    pub run: String,
    /// Its place.
    pub seq: u64,
    /// When it began.
    pub at: u64,
    /// Which tool.
    pub tool: String,
    /// With what.
    pub arguments: Value,
    /// The call that asked for it.
    pub call: Option<String>,
    /// On whose behalf.
    pub agent: Option<String>,
    /// In which phase.
    pub phase: Option<String>,
    /// When it ended.
    pub ended: Option<u64>,
    /// `done`, `failed`, `refused`, `unknown` or `cancelled`.
    pub outcome: Option<String>,
    /// What it returned, or why it did not.
    pub text: Option<String>,
}

/// That a fact was noted.
#[derive(Debug, Serialize, ToSchema)]
pub struct FactRefView {
    /// Its place.
    pub seq: u64,
    /// Its kind.
    pub kind: String,
}

/// A step that was not allowed.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedStepView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// What was tried.
    pub step: String,
    /// Why not.
    pub reason: String,
}

/// Which turns.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListTurnsParams {
    /// Only those before this turn.
    before: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// As it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// A stretch of turns.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnsPage {
    /// In the order they happened.
    pub turns: Vec<TurnView>,
    /// Give this as `before` for the turns before these.
    pub next: Option<String>,
    /// Messages that have no turn yet.
    pub queued_messages: Vec<MessageView>,
    /// The place of the session's last event.
    pub last_seq: u64,
}

/// What was said, with everything that happened on the way
#[utoipa::path(get, path = "/v1/sessions/{session}/turns", tag = "turns", params(SessionPath, ListTurnsParams), responses((status = 200, body = TurnsPage)))]
pub async fn list_turns(
    session_ref: SessionRef,
    QueryParams(params): QueryParams<ListTurnsParams>,
) -> Result<Json<TurnsPage>, HttpProblem> {
    let limit = super::page_limit(params.limit, TURNS_PAGE_DEFAULT, TURNS_PAGE_MAX)?;
    let before =
        params.before.as_deref().map(extract::parse_numbered_id::<TurnId>).transpose()?.unwrap_or(TurnId(u32::MAX));
    let at = AtEventParams { at: params.at }.to_seq()?;
    let spec = read_flow_spec(&session_ref).await?;
    let page = with_session_history(&session_ref, at, |chronicle| {
        let mut notes: Vec<&TurnEntry> =
            chronicle.turns.range(..before).rev().take(limit).map(|(_, note)| note).collect();
        notes.reverse();
        let first = notes.first().map(|note| note.turn);
        let more = first.is_some_and(|first| chronicle.turns.range(..first).next().is_some());
        let waiting: Vec<MessageEntry> =
            chronicle.messages.values().filter(|note| note.turn.is_none()).cloned().collect();
        let turns: Vec<TurnWithoutTexts> = notes.into_iter().map(|note| collect_turn(chronicle, note, &spec)).collect();
        (turns, first.filter(|_| more), waiting, chronicle.last_seq)
    });
    let (turns, next, waiting, seq) = page.await?;
    let mut texts = BTreeSet::new();
    turns.iter().for_each(|turn| turn.collect_body_ids(&mut texts));
    texts.extend(waiting.iter().map(|note| note.text.body));
    let texts = SessionTexts::load(&session_ref, texts).await?;
    Ok(Json(TurnsPage {
        turns: turns.into_iter().map(|turn| turn.fill_texts(&texts)).collect(),
        next: next.map(|turn| turn.to_string()),
        queued_messages: waiting.iter().map(|note| message_view(note, &texts)).collect(),
        last_seq: seq.0,
    }))
}

/// One turn
#[utoipa::path(get, path = "/v1/sessions/{session}/turns/{turn}", tag = "turns",
    params(SessionPath, ("turn" = String, Path, description = "Such as `t3`."), AtEventParams), responses((status = 200, body = TurnView)))]
pub async fn get_turn(
    session_ref: SessionRef,
    Path((_, turn)): Path<(String, String)>,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<TurnView>, HttpProblem> {
    let turn: TurnId = extract::parse_numbered_id(&turn)?;
    let (at, spec) = (at.to_seq()?, read_flow_spec(&session_ref).await?);
    let gathered = with_session_history(&session_ref, at, |chronicle| {
        chronicle.turns.get(&turn).map(|note| collect_turn(chronicle, note, &spec))
    });
    let none = || HttpProblem::not_found(format!("the session has no turn {turn}"));
    let gathered = gathered.await?.ok_or_else(none)?;
    let mut texts = BTreeSet::new();
    gathered.collect_body_ids(&mut texts);
    let texts = SessionTexts::load(&session_ref, texts).await?;
    Ok(Json(gathered.fill_texts(&texts)))
}

/// A turn whose texts are still to be read.
struct TurnWithoutTexts {
    view: TurnView,
    messages: Vec<MessageEntry>,
    reply_texts: Vec<TextRef>,
    tool_texts: Vec<Option<TextRef>>,
}

fn collect_turn(history: &SessionHistory, entry: &TurnEntry, spec: &FlowSpec) -> TurnWithoutTexts {
    let messages: Vec<MessageEntry> =
        entry.messages.iter().filter_map(|message| history.messages.get(message).cloned()).collect();
    let first = messages.iter().map(|message| message.position.seq).min();
    let tools: Vec<_> = entry.tool_runs.iter().filter_map(|run| history.tool_runs.get(run)).collect();
    let view = TurnView {
        turn: entry.turn.to_string(),
        first_seq: first.map_or(entry.started.seq, |first| first.min(entry.started.seq)).0,
        end_seq: entry.ended.map(|ended| ended.seq.0),
        started: entry.started.at.0,
        ended: entry.ended.map(|ended| ended.at.0),
        outcome: entry.outcome.clone().map(Into::into),
        messages: Vec::new(),
        replies: entry
            .replies
            .iter()
            .map(|said| TurnReplyView {
                seq: said.position.seq.0,
                at: said.position.at.0,
                text: String::new(),
                role: said.role.as_ref().map(ToString::to_string),
                call: said.call.map(|call| call.to_string()),
            })
            .collect(),
        calls: entry
            .calls
            .iter()
            .filter_map(|call| history.calls.get(call))
            .map(|call| summarize_call(call, spec))
            .collect(),
        tool_runs: tools.iter().map(|tool| tool_run_view(tool)).collect(),
        phase_events: entry
            .phase_events
            .iter()
            .filter_map(|place| history.phase_events.get(*place))
            .map(phase_event_view)
            .collect(),
        handovers: entry
            .handovers
            .iter()
            .filter_map(|place| history.handovers.get(*place))
            .map(|note| note.handover.id.to_string())
            .collect(),
        facts: entry
            .facts
            .iter()
            .filter_map(|place| history.facts.get(*place))
            .map(|fact| FactRefView { seq: fact.position.seq.0, kind: fact.kind.clone() })
            .collect(),
        refused_steps: entry
            .refused_steps
            .iter()
            .map(|refusal| RefusedStepView {
                seq: refusal.position.seq.0,
                at: refusal.position.at.0,
                step: refusal.step.clone(),
                reason: refusal.reason.clone(),
            })
            .collect(),
        spent: entry.spent.into(),
    };
    let tool_texts = tools.iter().map(|tool| tool.end.map(|(_, _, text)| text)).collect();
    TurnWithoutTexts { view, messages, reply_texts: entry.replies.iter().map(|said| said.text).collect(), tool_texts }
}

fn tool_run_view(tool: &crate::history::ToolRunEntry) -> ToolRunView {
    ToolRunView {
        run: tool.run.to_string(),
        seq: tool.position.seq.0,
        at: tool.position.at.0,
        tool: tool.tool.to_string(),
        arguments: tool.arguments.clone(),
        call: tool.call.map(|call| call.to_string()),
        agent: tool.agent.as_ref().map(ToString::to_string),
        phase: tool.phase.as_ref().map(ToString::to_string),
        ended: tool.end.map(|(place, ..)| place.at.0),
        outcome: tool.end.map(|(_, outcome, _)| serialized_name(&outcome)),
        text: None,
    }
}

impl TurnWithoutTexts {
    fn collect_body_ids(&self, texts: &mut BTreeSet<BodyId>) {
        texts.extend(self.messages.iter().map(|message| message.text.body));
        texts.extend(self.reply_texts.iter().map(|text| text.body));
        texts.extend(self.tool_texts.iter().flatten().map(|text| text.body));
    }

    fn fill_texts(self, texts: &SessionTexts) -> TurnView {
        let Self { mut view, messages, reply_texts: said, tool_texts: tools } = self;
        view.messages = messages.iter().map(|note| message_view(note, texts)).collect();
        view.replies.iter_mut().zip(said).for_each(|(said, text)| said.text = texts.lookup(text));
        view.tool_runs.iter_mut().zip(tools).for_each(|(tool, text)| tool.text = text.map(|text| texts.lookup(text)));
        view
    }
}

fn message_view(entry: &MessageEntry, texts: &SessionTexts) -> MessageView {
    MessageView {
        message: entry.message.to_string(),
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        text: texts.lookup(entry.text),
        images: entry.images.iter().map(|image| ImageView::new(image.body, image.media_type)).collect(),
        key: entry.idempotency_key.as_ref().map(ToString::to_string),
        mid_turn_policy: entry.mid_turn_policy.into(),
    }
}

/// Texts at hand.
#[derive(Debug)]
pub struct SessionTexts(BTreeMap<BodyId, Arc<str>>);

impl SessionTexts {
    /// Reads texts of a session.
    ///
    /// # Errors
    /// One of them is not there.
    pub async fn load(session_ref: &SessionRef, ids: BTreeSet<BodyId>) -> Result<Self, HttpProblem> {
        let ids: Vec<BodyId> = ids.into_iter().collect();
        let texts = session_ref
            .app
            .engine
            .read_texts(&session_ref.session, &ids)
            .await
            .map_err(|error| session_ref.to_problem(error))?;
        Ok(Self(ids.into_iter().zip(texts).collect()))
    }

    /// The words of a text.
    #[must_use]
    pub fn lookup(&self, text: TextRef) -> String {
        self.0.get(&text.body).map(|words| words.to_string()).unwrap_or_default()
    }
}
