//! Turns: what was said, with everything that happened on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::{BodyId, Text};
use segue_core::flow::FlowSpec;
use segue_core::ids::TurnId;
use segue_core::prompt::Media;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallBrief, brief, spec};
use super::phases::{HistoryItem, history_item};
use super::session_view::chronicle;
use super::shapes::{BusyPolicy, Spent, TurnOutcome, word};
use super::{At, Named};
use crate::chronicle::{Chronicle, MessageNote, TurnNote};
use crate::extract::{self, Held, Params};
use crate::limits::{TURNS_PAGE, TURNS_PAGE_MAX};
use crate::problem::Problem;

/// A turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnView {
    /// Which.
    pub turn: String,
    /// The place of its first message.
    pub from: u64,
    /// The place of its end.
    pub to: Option<u64>,
    /// When it began.
    pub started: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// How.
    pub outcome: Option<TurnOutcome>,
    /// What it answers.
    pub messages: Vec<MessageView>,
    /// What was said in it.
    pub said: Vec<SaidView>,
    /// Its calls.
    pub calls: Vec<CallBrief>,
    /// Its tool runs.
    pub tools: Vec<ToolRunView>,
    /// What happened to phases in it.
    pub phases: Vec<HistoryItem>,
    /// Handovers made in it.
    pub handovers: Vec<String>,
    /// The flow's facts noted in it.
    pub facts: Vec<FactMark>,
    /// Steps of the flow that were not allowed.
    pub refusals: Vec<RefusedStep>,
    /// What it cost.
    pub spent: Spent,
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
    pub busy: BusyPolicy,
}

/// An image shown with a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct ImageView {
    /// Its bytes, in base64, are this text of the session.
    pub body: String,
    /// Its form.
    #[schema(examples("image/png"))]
    pub media: String,
}

impl ImageView {
    /// An image by what it is known by.
    #[must_use]
    pub fn named(body: BodyId, media: Media) -> Self {
        Self { body: body.to_string(), media: media.name().to_owned() }
    }
}

/// Something said to the user.
#[derive(Debug, Serialize, ToSchema)]
pub struct SaidView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// What.
    pub text: String,
    /// By whom.
    pub by: Option<String>,
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
pub struct FactMark {
    /// Its place.
    pub seq: u64,
    /// Its kind.
    pub kind: String,
}

/// A step that was not allowed.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedStep {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// What was tried.
    pub step: String,
    /// Why not.
    pub why: String,
}

/// Which turns.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TurnsParams {
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
    pub waiting: Vec<MessageView>,
    /// The place of the session's last event.
    pub seq: u64,
}

/// What was said, with everything that happened on the way
#[utoipa::path(get, path = "/v1/sessions/{session}/turns", tag = "turns", params(Named, TurnsParams), responses((status = 200, body = TurnsPage)))]
pub async fn list(held: Held, Params(params): Params<TurnsParams>) -> Result<Json<TurnsPage>, Problem> {
    let limit = super::page(params.limit, TURNS_PAGE, TURNS_PAGE_MAX)?;
    let before = params.before.as_deref().map(extract::number::<TurnId>).transpose()?.unwrap_or(TurnId(u32::MAX));
    let at = At { at: params.at }.seq()?;
    let spec = spec(&held).await?;
    let page = chronicle(&held, at, |chronicle| {
        let mut notes: Vec<&TurnNote> =
            chronicle.turns.range(..before).rev().take(limit).map(|(_, note)| note).collect();
        notes.reverse();
        let first = notes.first().map(|note| note.turn);
        let more = first.is_some_and(|first| chronicle.turns.range(..first).next().is_some());
        let waiting: Vec<MessageNote> =
            chronicle.messages.values().filter(|note| note.turn.is_none()).cloned().collect();
        let turns: Vec<Gathered> = notes.into_iter().map(|note| gather(chronicle, note, &spec)).collect();
        (turns, first.filter(|_| more), waiting, chronicle.seq)
    });
    let (turns, next, waiting, seq) = page.await?;
    let mut texts = BTreeSet::new();
    turns.iter().for_each(|turn| turn.needs(&mut texts));
    texts.extend(waiting.iter().map(|note| note.text.body));
    let texts = Texts::read(&held, texts).await?;
    Ok(Json(TurnsPage {
        turns: turns.into_iter().map(|turn| turn.filled(&texts)).collect(),
        next: next.map(|turn| turn.to_string()),
        waiting: waiting.iter().map(|note| message_view(note, &texts)).collect(),
        seq: seq.0,
    }))
}

/// One turn
#[utoipa::path(get, path = "/v1/sessions/{session}/turns/{turn}", tag = "turns",
    params(Named, ("turn" = String, Path, description = "Such as `t3`."), At), responses((status = 200, body = TurnView)))]
pub async fn get(
    held: Held,
    Path((_, turn)): Path<(String, String)>,
    Params(at): Params<At>,
) -> Result<Json<TurnView>, Problem> {
    let turn: TurnId = extract::number(&turn)?;
    let (at, spec) = (at.seq()?, spec(&held).await?);
    let gathered =
        chronicle(&held, at, |chronicle| chronicle.turns.get(&turn).map(|note| gather(chronicle, note, &spec)));
    let none = || Problem::no_such_thing(format!("the session has no turn {turn}"));
    let gathered = gathered.await?.ok_or_else(none)?;
    let mut texts = BTreeSet::new();
    gathered.needs(&mut texts);
    let texts = Texts::read(&held, texts).await?;
    Ok(Json(gathered.filled(&texts)))
}

/// A turn whose texts are still to be read.
struct Gathered {
    view: TurnView,
    messages: Vec<MessageNote>,
    said: Vec<Text>,
    tools: Vec<Option<Text>>,
}

fn gather(chronicle: &Chronicle, note: &TurnNote, spec: &FlowSpec) -> Gathered {
    let messages: Vec<MessageNote> =
        note.messages.iter().filter_map(|message| chronicle.messages.get(message).cloned()).collect();
    let first = messages.iter().map(|message| message.place.seq).min();
    let tools: Vec<_> = note.tools.iter().filter_map(|run| chronicle.tools.get(run)).collect();
    let view = TurnView {
        turn: note.turn.to_string(),
        from: first.map_or(note.started_at.seq, |first| first.min(note.started_at.seq)).0,
        to: note.ended.map(|ended| ended.seq.0),
        started: note.started_at.at.0,
        ended: note.ended.map(|ended| ended.at.0),
        outcome: note.outcome.clone().map(Into::into),
        messages: Vec::new(),
        said: note
            .said
            .iter()
            .map(|said| SaidView {
                seq: said.place.seq.0,
                at: said.place.at.0,
                text: String::new(),
                by: said.by.as_ref().map(ToString::to_string),
                call: said.call.map(|call| call.to_string()),
            })
            .collect(),
        calls: note.calls.iter().filter_map(|call| chronicle.calls.get(call)).map(|call| brief(call, spec)).collect(),
        tools: tools.iter().map(|tool| tool_view(tool)).collect(),
        phases: note.moves.iter().filter_map(|place| chronicle.moves.get(*place)).map(history_item).collect(),
        handovers: note
            .handovers
            .iter()
            .filter_map(|place| chronicle.handovers.get(*place))
            .map(|note| note.handover.id.to_string())
            .collect(),
        facts: note
            .facts
            .iter()
            .filter_map(|place| chronicle.facts.get(*place))
            .map(|fact| FactMark { seq: fact.place.seq.0, kind: fact.kind.clone() })
            .collect(),
        refusals: note
            .refusals
            .iter()
            .map(|refusal| RefusedStep {
                seq: refusal.place.seq.0,
                at: refusal.place.at.0,
                step: refusal.step.clone(),
                why: refusal.why.clone(),
            })
            .collect(),
        spent: note.spent.into(),
    };
    let tool_texts = tools.iter().map(|tool| tool.end.map(|(_, _, text)| text)).collect();
    Gathered { view, messages, said: note.said.iter().map(|said| said.text).collect(), tools: tool_texts }
}

fn tool_view(tool: &crate::chronicle::ToolNote) -> ToolRunView {
    ToolRunView {
        run: tool.run.to_string(),
        seq: tool.place.seq.0,
        at: tool.place.at.0,
        tool: tool.tool.to_string(),
        arguments: tool.arguments.clone(),
        call: tool.call.map(|call| call.to_string()),
        agent: tool.agent.as_ref().map(ToString::to_string),
        phase: tool.phase.as_ref().map(ToString::to_string),
        ended: tool.end.map(|(place, ..)| place.at.0),
        outcome: tool.end.map(|(_, outcome, _)| word(&outcome)),
        text: None,
    }
}

impl Gathered {
    fn needs(&self, texts: &mut BTreeSet<BodyId>) {
        texts.extend(self.messages.iter().map(|message| message.text.body));
        texts.extend(self.said.iter().map(|text| text.body));
        texts.extend(self.tools.iter().flatten().map(|text| text.body));
    }

    fn filled(self, texts: &Texts) -> TurnView {
        let Self { mut view, messages, said, tools } = self;
        view.messages = messages.iter().map(|note| message_view(note, texts)).collect();
        view.said.iter_mut().zip(said).for_each(|(said, text)| said.text = texts.words(text));
        view.tools.iter_mut().zip(tools).for_each(|(tool, text)| tool.text = text.map(|text| texts.words(text)));
        view
    }
}

fn message_view(note: &MessageNote, texts: &Texts) -> MessageView {
    MessageView {
        message: note.message.to_string(),
        seq: note.place.seq.0,
        at: note.place.at.0,
        text: texts.words(note.text),
        images: note.images.iter().map(|image| ImageView::named(image.body, image.media)).collect(),
        key: note.key.as_ref().map(ToString::to_string),
        busy: note.busy.into(),
    }
}

/// Texts at hand.
#[derive(Debug)]
pub struct Texts(BTreeMap<BodyId, Arc<str>>);

impl Texts {
    /// Reads texts of a session.
    ///
    /// # Errors
    /// One of them is not there.
    pub async fn read(held: &Held, ids: BTreeSet<BodyId>) -> Result<Self, Problem> {
        let ids: Vec<BodyId> = ids.into_iter().collect();
        let texts = held.app.engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
        Ok(Self(ids.into_iter().zip(texts).collect()))
    }

    /// The words of a text.
    #[must_use]
    pub fn words(&self, text: Text) -> String {
        self.0.get(&text.body).map(|words| words.to_string()).unwrap_or_default()
    }
}
