//! Serves the turns of a session, with everything that happened in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::{BodyId, TextRef};
use segue_core::flow::FlowSpec;
use segue_core::ids::TurnId;
use segue_core::prompt::ImageMediaType;
use segue_core::tool::ToolArtifact;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallSummaryView, read_flow_spec, summarize_call};
use super::common_types::{CallTotalsView, MidTurnPolicyView, TurnOutcomeView, serialized_name};
use super::phases::{PhaseEventView, phase_event_view};
use super::session_view::with_session_history;
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{self, CallerSessionRef, QueryParams};
use crate::history::{SessionHistory, ToolRunEndHistoryEntry, TurnHistoryEntry, UserMessageHistoryEntry};
use crate::limits::{TURNS_PAGE_DEFAULT, TURNS_PAGE_MAX};
use crate::problem::HttpProblem;

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnView {
    pub turn: String,
    /// The sequence number of its first message.
    pub first_seq: u64,
    /// The sequence number of its end.
    pub end_seq: Option<u64>,
    pub started: u64,
    pub ended: Option<u64>,
    /// `null` while the turn is running.
    pub outcome: Option<TurnOutcomeView>,
    /// The messages that the turn answers.
    pub messages: Vec<UserMessageView>,
    pub replies: Vec<TurnReplyView>,
    pub calls: Vec<CallSummaryView>,
    pub tool_runs: Vec<ToolRunView>,
    pub phase_events: Vec<PhaseEventView>,
    /// The ids of the handovers created in the turn.
    pub handovers: Vec<String>,
    /// The facts recorded in the turn.
    pub facts: Vec<FlowFactRefView>,
    /// Steps of the flow that the engine refused.
    pub refused_steps: Vec<RefusedFlowStepView>,
    pub spent: CallTotalsView,
}

/// A message of the user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UserMessageView {
    pub message: String,
    pub seq: u64,
    pub at: u64,
    pub text: String,
    pub images: Vec<MessageImageView>,
    /// The idempotency key.
    pub key: Option<String>,
    pub mid_turn_policy: MidTurnPolicyView,
}

/// An image attached to a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageImageView {
    /// The id of the text that holds the image in base64.
    pub body: String,
    #[schema(examples("image/png"))]
    pub media_type: String,
}

impl MessageImageView {
    /// Creates the view of an image.
    #[must_use]
    pub(crate) fn new(body: BodyId, media: ImageMediaType) -> Self {
        Self { body: body.to_string(), media_type: media.to_string() }
    }
}

/// A reply to the user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnReplyView {
    pub seq: u64,
    pub at: u64,
    pub text: String,
    pub role: Option<String>,
    /// The call that produced the reply.
    pub call: Option<String>,
}

/// A tool run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolRunView {
    pub run: String,
    pub seq: u64,
    /// When the run started.
    pub at: u64,
    pub tool: String,
    pub arguments: Value,
    /// The arguments that were requested, if a person changed them.
    pub requested_arguments: Option<Value>,
    /// Why the run waits for a person: `approval`, `unknown_outcome` or `client_result`; `null` if it does not.
    pub held: Option<String>,
    /// The call that requested the run.
    pub call: Option<String>,
    /// The agent on whose behalf the tool runs.
    pub agent: Option<String>,
    pub phase: Option<String>,
    pub ended: Option<u64>,
    /// `done`, `failed`, `refused`, `unknown` or `cancelled`; `null` until the run has ended.
    pub outcome: Option<String>,
    /// The tool's result, or the reason of its failure.
    pub text: Option<String>,
    /// The result as data, if the tool returned any.
    pub value: Option<Value>,
    /// Files and diffs that the run produced.
    pub artifacts: Vec<ToolArtifactView>,
}

/// A file or a diff that a tool run produced.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolArtifactView {
    /// `file` or `diff`.
    pub kind: String,
    pub name: String,
    pub media_type: String,
    pub text: String,
}

/// A fact without its value.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowFactRefView {
    pub seq: u64,
    pub kind: String,
}

/// A step of the flow that the engine refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedFlowStepView {
    pub seq: u64,
    pub at: u64,
    pub step: String,
    pub reason: String,
}

/// Paging of a list of turns.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListTurnsParams {
    /// Only turns before this one.
    before: Option<String>,
    /// The maximum number of turns.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
    /// Shows the session as it was right after this event.
    #[param(minimum = 1)]
    at: Option<u64>,
}

/// A page of turns.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnsPage {
    /// In order.
    pub turns: Vec<TurnView>,
    /// The value of `before` for the previous page; `null` on the first page.
    pub next: Option<String>,
    /// Messages without a turn.
    pub queued_messages: Vec<UserMessageView>,
    /// The sequence number of the session's last event.
    pub last_seq: u64,
}

/// List the turns of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/turns", tag = "turns", params(SessionPathParamDocs, ListTurnsParams), responses((status = 200, body = TurnsPage)))]
pub(crate) async fn list_turns(
    session_ref: CallerSessionRef,
    QueryParams(params): QueryParams<ListTurnsParams>,
) -> Result<Json<TurnsPage>, HttpProblem> {
    let limit = super::page_limit(params.limit, TURNS_PAGE_DEFAULT, TURNS_PAGE_MAX)?;
    let before =
        params.before.as_deref().map(extract::parse_numbered_id::<TurnId>).transpose()?.unwrap_or(TurnId(u32::MAX));
    let at = AtEventParams { at: params.at }.to_seq()?;
    let spec = read_flow_spec(&session_ref).await?;
    let page = with_session_history(&session_ref, at, |history| {
        let mut entries: Vec<&TurnHistoryEntry> =
            history.turns.range(..before).rev().take(limit).map(|(_, entry)| entry).collect();
        entries.reverse();
        let first = entries.first().map(|entry| entry.turn);
        let has_more = first.is_some_and(|first| history.turns.range(..first).next().is_some());
        let queued_messages: Vec<UserMessageHistoryEntry> =
            history.messages.values().filter(|entry| entry.turn.is_none()).cloned().collect();
        let turns: Vec<TurnViewWithoutTexts> =
            entries.into_iter().map(|entry| build_turn_without_texts(history, entry, &spec)).collect();
        (turns, first.filter(|_| has_more), queued_messages, history.last_seq)
    });
    let (turns, next, queued_messages, seq) = page.await?;
    let mut texts = BTreeSet::new();
    turns.iter().for_each(|turn| turn.collect_body_ids(&mut texts));
    texts.extend(queued_messages.iter().map(|entry| entry.text.body));
    let texts = LoadedSessionTexts::load(&session_ref, texts).await?;
    Ok(Json(TurnsPage {
        turns: turns.into_iter().map(|turn| turn.fill_texts(&texts)).collect(),
        next: next.map(|turn| turn.to_string()),
        queued_messages: queued_messages.iter().map(|entry| message_view(entry, &texts)).collect(),
        last_seq: seq.0,
    }))
}

/// Get one turn
#[utoipa::path(get, path = "/v1/sessions/{session}/turns/{turn}", tag = "turns",
    params(SessionPathParamDocs, ("turn" = String, Path, description = "The id of the turn, such as `t3`."), AtEventParams), responses((status = 200, body = TurnView)))]
pub(crate) async fn get_turn(
    session_ref: CallerSessionRef,
    Path((_, turn)): Path<(String, String)>,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<TurnView>, HttpProblem> {
    let turn: TurnId = extract::parse_numbered_id(&turn)?;
    let (at, spec) = (at.to_seq()?, read_flow_spec(&session_ref).await?);
    let turn_view = with_session_history(&session_ref, at, |history| {
        history.turns.get(&turn).map(|entry| build_turn_without_texts(history, entry, &spec))
    });
    let none = || HttpProblem::not_found(format!("the session has no turn {turn}"));
    let turn_view = turn_view.await?.ok_or_else(none)?;
    let mut texts = BTreeSet::new();
    turn_view.collect_body_ids(&mut texts);
    let texts = LoadedSessionTexts::load(&session_ref, texts).await?;
    Ok(Json(turn_view.fill_texts(&texts)))
}

/// A turn whose texts have not been read yet.
struct TurnViewWithoutTexts {
    view: TurnView,
    messages: Vec<UserMessageHistoryEntry>,
    reply_texts: Vec<TextRef>,
    tool_ends: Vec<Option<ToolRunEndHistoryEntry>>,
}

fn build_turn_without_texts(
    history: &SessionHistory,
    entry: &TurnHistoryEntry,
    spec: &FlowSpec,
) -> TurnViewWithoutTexts {
    let messages: Vec<UserMessageHistoryEntry> =
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
            .map(|reply| TurnReplyView {
                seq: reply.position.seq.0,
                at: reply.position.at.0,
                text: String::new(),
                role: reply.role.as_ref().map(ToString::to_string),
                call: reply.call.map(|call| call.to_string()),
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
            .filter_map(|index| history.phase_events.get(*index))
            .map(phase_event_view)
            .collect(),
        handovers: entry
            .handovers
            .iter()
            .filter_map(|index| history.handovers.get(*index))
            .map(|entry| entry.handover.id.to_string())
            .collect(),
        facts: entry
            .facts
            .iter()
            .filter_map(|index| history.facts.get(*index))
            .map(|fact| FlowFactRefView { seq: fact.position.seq.0, kind: fact.kind.clone() })
            .collect(),
        refused_steps: entry
            .refused_steps
            .iter()
            .map(|step| RefusedFlowStepView {
                seq: step.position.seq.0,
                at: step.position.at.0,
                step: step.step.clone(),
                reason: step.reason.clone(),
            })
            .collect(),
        spent: entry.spent.into(),
    };
    let tool_ends = tools.iter().map(|tool| tool.end.clone()).collect();
    TurnViewWithoutTexts {
        view,
        messages,
        reply_texts: entry.replies.iter().map(|reply| reply.text).collect(),
        tool_ends,
    }
}

fn tool_run_view(tool: &crate::history::ToolRunHistoryEntry) -> ToolRunView {
    ToolRunView {
        run: tool.run.to_string(),
        seq: tool.position.seq.0,
        at: tool.position.at.0,
        tool: tool.tool.to_string(),
        arguments: tool.arguments.clone(),
        requested_arguments: tool.requested_arguments.clone(),
        held: tool.hold_reason.as_ref().map(serialized_name),
        call: tool.call.map(|call| call.to_string()),
        agent: tool.agent.as_ref().map(ToString::to_string),
        phase: tool.phase.as_ref().map(ToString::to_string),
        ended: tool.end.as_ref().map(|end| end.position.at.0),
        outcome: tool.end.as_ref().map(|end| serialized_name(&end.outcome)),
        text: None,
        value: tool.end.as_ref().and_then(|end| end.value.clone()),
        artifacts: Vec::new(),
    }
}

impl TurnViewWithoutTexts {
    fn collect_body_ids(&self, texts: &mut BTreeSet<BodyId>) {
        texts.extend(self.messages.iter().map(|message| message.text.body));
        texts.extend(self.reply_texts.iter().map(|text| text.body));
        for end in self.tool_ends.iter().flatten() {
            texts.insert(end.text.body);
            texts.extend(end.artifacts.iter().map(|artifact| artifact.text.body));
        }
    }

    fn fill_texts(self, texts: &LoadedSessionTexts) -> TurnView {
        let Self { mut view, messages, reply_texts: reply, tool_ends } = self;
        view.messages = messages.iter().map(|entry| message_view(entry, texts)).collect();
        view.replies.iter_mut().zip(reply).for_each(|(reply, text)| reply.text = texts.lookup(text));
        for (tool, end) in view.tool_runs.iter_mut().zip(tool_ends) {
            let Some(end) = end else { continue };
            tool.text = Some(texts.lookup(end.text));
            tool.artifacts = end.artifacts.iter().map(|artifact| artifact_view(artifact, texts)).collect();
        }
        view
    }
}

fn artifact_view(artifact: &ToolArtifact<TextRef>, texts: &LoadedSessionTexts) -> ToolArtifactView {
    ToolArtifactView {
        kind: serialized_name(&artifact.kind),
        name: artifact.name.clone(),
        media_type: artifact.media_type.clone(),
        text: texts.lookup(artifact.text),
    }
}

fn message_view(entry: &UserMessageHistoryEntry, texts: &LoadedSessionTexts) -> UserMessageView {
    UserMessageView {
        message: entry.message.to_string(),
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        text: texts.lookup(entry.text),
        images: entry.images.iter().map(|image| MessageImageView::new(image.body, image.media_type)).collect(),
        key: entry.idempotency_key.as_ref().map(ToString::to_string),
        mid_turn_policy: entry.mid_turn_policy.into(),
    }
}

/// Texts of a session that have been read.
#[derive(Debug)]
pub(crate) struct LoadedSessionTexts(BTreeMap<BodyId, Arc<str>>);

impl LoadedSessionTexts {
    /// Reads texts of a session.
    ///
    /// # Errors
    /// One of the texts does not exist.
    pub(crate) async fn load(session_ref: &CallerSessionRef, ids: BTreeSet<BodyId>) -> Result<Self, HttpProblem> {
        let ids: Vec<BodyId> = ids.into_iter().collect();
        let texts = session_ref
            .app
            .engine
            .read_texts(&session_ref.session, &ids)
            .await
            .map_err(|error| session_ref.to_problem(error))?;
        Ok(Self(ids.into_iter().zip(texts).collect()))
    }

    /// Returns a text; an empty string if it was not loaded.
    #[must_use]
    pub(crate) fn lookup(&self, text: TextRef) -> String {
        self.0.get(&text.body).map(|text| text.to_string()).unwrap_or_default()
    }
}
