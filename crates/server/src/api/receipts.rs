//! The receipt of a call: what the model was shown, and why, fragment by fragment.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use segue_core::body::BodyId;
use segue_core::context::{Layer, Piece, Prefix, Source, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, Event, Next};
use segue_core::ids::{CallId, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::calls::{CallBrief, brief, find, opened, spec};
use super::prompts::{PromptTool, ToolWish, prompt_tool, tool_wish};
use super::session_view::chronicle;
use super::{CallNamed, Named};
use crate::chronicle::{CallEnd, CallNote, Try};
use crate::extract::{Held, Params};
use crate::problem::Problem;

/// A call with its receipt.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallView {
    /// The call as it is listed.
    pub call: CallBrief,
    /// Why it has the thread it has, in a sentence.
    pub why: String,
    /// What of the prompt can be cached, in a sentence.
    pub cache: String,
    /// Tokens from the start that were the same in the prompt before.
    pub cached_tokens: u32,
    /// How far its role's memory reaches, in words.
    pub memory: String,
    /// What the model was shown, in the order of the prompt.
    pub fragments: Vec<Shown>,
    /// What it was not shown.
    pub left_out: Vec<Shown>,
    /// The same role's call before.
    pub previous: Option<String>,
    /// Tries that brought no answer.
    pub attempts: Vec<AttemptView>,
    /// What it answered.
    pub answer: Option<AnswerView>,
    /// Tokens of the prompt as the model's vendor counts, by what it reported so far; absent where that comes to the same as our count.
    pub corrected_tokens: Option<u32>,
    /// The longest answer it may give.
    pub reply_tokens_max: u32,
    /// The tools it was told of.
    pub tools: Vec<PromptTool>,
    /// A JSON schema of the answer; plain text if absent.
    pub output: Option<Value>,
    /// For a call made once more: the fragments that differ from those of then.
    pub changed: Vec<String>,
    /// Fingerprint of the prompt.
    pub digest: String,
}

/// A fragment of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub struct Shown {
    /// Its name; `(thread)` for what the thread held.
    pub name: String,
    /// `opening`, `carried` or `ask`.
    pub part: String,
    /// What kind of context it is.
    pub layer: String,
    /// Where it came from.
    pub source: Option<SourceView>,
    /// The same in words.
    pub source_words: String,
    /// Why it is in, or why it is not.
    pub why: String,
    /// Its tokens.
    pub tokens: u32,
    /// Its tokens before it was cut or left out for its length.
    pub cut_from: Option<u32>,
    /// Whether compaction must keep it.
    pub pinned: bool,
    /// The call that it is shown since, if that is an earlier one.
    pub since: Option<String>,
    /// The id of its text.
    pub body: Option<String>,
    /// Its text.
    pub text: Option<String>,
    /// For `carried`: how many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    /// For `carried`: how many older ones were folded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<u32>,
}

/// Where a fragment came from.
#[derive(Debug, Serialize, ToSchema)]
pub struct SourceView {
    /// `template`, `message`, `handover`, `call`, `tool`, `thread`, `state` or `phase`.
    pub is: String,
    /// The name of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The handover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// The call whose answer it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The tool run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// A try that brought no answer, or a decision about one.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// Which try; none for a decision.
    pub attempt: Option<u32>,
    /// What happened, in one line.
    pub line: String,
    /// What followed.
    pub next: Option<NextView>,
}

/// What follows a try that brought no answer.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum NextView {
    /// Another try.
    Retry {
        /// Not before then.
        at: u64,
    },
    /// A person decides.
    Ask,
    /// The call has failed.
    GiveUp,
}

/// What a model answered.
#[derive(Debug, Serialize, ToSchema)]
pub struct AnswerView {
    /// What it said, blocks and all.
    pub text: Option<String>,
    /// The id of that text.
    pub body: String,
    /// Its tokens, by our count.
    pub tokens: u32,
    /// What it thought aloud.
    pub reasoning: Option<String>,
    /// What it wants run.
    pub tool_calls: Vec<ToolWish>,
}

/// How much of a receipt.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReceiptParams {
    /// Whether texts come along; they do if this is absent.
    texts: Option<bool>,
}

/// What a model was shown in a call, and why
#[utoipa::path(get, path = "/v1/sessions/{session}/calls/{call}", tag = "calls", params(Named, CallNamed, ReceiptParams), responses((status = 200, body = CallView)))]
pub async fn get(
    held: Held,
    Path((_, call)): Path<(String, String)>,
    Params(params): Params<ReceiptParams>,
) -> Result<Json<CallView>, Problem> {
    let note = find(&held, &call, None).await?;
    let opened = opened(&held, &note).await?;
    let spec = spec(&held).await?;
    let scope = spec.roles.get(&opened.role).map(|role| &role.scope);
    let around = around(&held, &note, &opened).await?;
    let answered = answered(&held, &note).await?;
    let texts = match params.texts {
        Some(false) => BTreeMap::new(),
        Some(true) | None => texts(&held, &opened, &around, answered.as_deref()).await?,
    };
    let (fragments, left_out) = fragments(&opened, &around, &texts);
    let (tools, output) = forms(&held, &opened).await?;
    Ok(Json(CallView {
        call: brief(&note, &spec),
        why: opened.why_thread(scope),
        cache: opened.receipt.prefix.words(),
        cached_tokens: around.cached_tokens,
        memory: scope.map(segue_core::scope::Scope::words).unwrap_or_default(),
        fragments,
        left_out,
        previous: around.previous.map(|call| call.to_string()),
        attempts: note.tries.iter().map(attempt).collect(),
        answer: answer(&note, answered.as_deref(), &texts),
        corrected_tokens: opened.receipt.corrected,
        reply_tokens_max: opened.reply_tokens_max,
        tools,
        output,
        changed: note.recomputes.iter().flat_map(|(_, changed)| changed).map(ToString::to_string).collect(),
        digest: opened.receipt.digest.to_string(),
    }))
}

/// What a call's receipt leaves to others: what its thread opened with, and what was folded.
struct Around {
    opening: Option<(CallId, Vec<Piece>)>,
    folded: u32,
    previous: Option<CallId>,
    cached_tokens: u32,
}

async fn around(held: &Held, note: &CallNote, call: &CallOpened) -> Result<Around, Problem> {
    let seen = chronicle(held, None, |chronicle| {
        let thread = chronicle.threads.get(&note.thread);
        let opener = thread.map(|thread| thread.opened.2).filter(|opener| *opener != note.call);
        let opener = opener.and_then(|opener| chronicle.calls.get(&opener).cloned());
        let earlier = |place: &crate::chronicle::Compacted| place.place.seq < note.place.seq;
        let folded = thread.map_or(0, |thread| {
            thread.compactions.iter().filter(|compacted| earlier(compacted)).map(|compacted| compacted.folded).sum()
        });
        let cached = match &note.prefix {
            Prefix::First => 0,
            Prefix::Extends(from) => chronicle.calls.get(from).map_or(0, |from| from.tokens),
            Prefix::Broken { kept, .. } => *kept,
        };
        (opener, folded, chronicle.calls_before(note).next().map(|note| note.call), cached)
    });
    let (opener, folded, previous, cached_tokens) = seen.await?;
    let is_continued = matches!(call.receipt.thread, ThreadUse::Continued(_)) || call.recomputes.is_some();
    let opening = match opener.filter(|_| is_continued && call.receipt.opening.is_empty()) {
        Some(opener) => Some((opener.call, opened(held, &opener).await?.receipt.opening.clone())),
        None => None,
    };
    Ok(Around { opening, folded, previous, cached_tokens: cached_tokens.min(call.receipt.tokens) })
}

async fn answered(held: &Held, note: &CallNote) -> Result<Option<Box<CallAnswered>>, Problem> {
    let Some(CallEnd::Answered { place, late: false, .. }) = &note.end else { return Ok(None) };
    let before = Seq(place.seq.0.saturating_sub(1));
    let events = held.app.engine.events(&held.session, before, 1).await.map_err(|error| held.problem(error))?;
    Ok(events.into_iter().find_map(|recorded| match recorded.event {
        Event::CallAnswered(answered) => Some(answered),
        _ => None,
    }))
}

type Texts = BTreeMap<BodyId, Arc<str>>;

async fn texts(
    held: &Held,
    opened: &CallOpened,
    around: &Around,
    answered: Option<&CallAnswered>,
) -> Result<Texts, Problem> {
    let opening = around.opening.iter().flat_map(|(_, pieces)| pieces);
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask).chain(opening);
    let said = answered.into_iter().flat_map(|answered| [Some(answered.text), answered.reasoning]);
    let ids = pieces.map(|piece| piece.text).chain(said).flatten().map(|text| text.body);
    let ids: Vec<BodyId> = ids.collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let found = held.app.engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
    Ok(ids.into_iter().zip(found).collect())
}

fn fragments(opened: &CallOpened, around: &Around, texts: &Texts) -> (Vec<Shown>, Vec<Shown>) {
    let receipt = &opened.receipt;
    let mut all: Vec<Shown> = receipt.opening.iter().map(|piece| shown(piece, "opening", None, texts)).collect();
    let mut carried = receipt.carried.tokens;
    if let Some((by, pieces)) = &around.opening {
        for piece in pieces {
            carried = carried.saturating_sub(piece.text.map_or(0, |text| text.tokens));
            all.push(shown(piece, "opening", Some(*by), texts));
        }
    }
    if receipt.carried.entries > 0 {
        all.push(Shown {
            name: "(thread)".to_owned(),
            part: "carried".to_owned(),
            layer: Layer::Conversation.to_string(),
            source: Some(source(&Source::Thread(receipt.thread.thread()))),
            source_words: Source::Thread(receipt.thread.thread()).to_string(),
            why: "what the thread held".to_owned(),
            tokens: carried,
            cut_from: None,
            pinned: false,
            since: None,
            body: None,
            text: None,
            messages: Some(receipt.carried.entries),
            folded: Some(around.folded),
        });
    }
    all.extend(receipt.ask.iter().map(|piece| shown(piece, "ask", None, texts)));
    all.into_iter().partition(|shown| shown.body.is_some() || shown.part == "carried")
}

fn shown(piece: &Piece, part: &str, since: Option<CallId>, texts: &Texts) -> Shown {
    Shown {
        name: piece.name.to_string(),
        part: part.to_owned(),
        layer: piece.layer.to_string(),
        source: piece.source.as_ref().map(source),
        source_words: piece.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        why: piece.why.clone(),
        tokens: piece.text.map_or(0, |text| text.tokens),
        cut_from: piece.cut_from,
        pinned: piece.pinned,
        since: since.map(|call| call.to_string()),
        body: piece.text.map(|text| text.body.to_string()),
        text: piece.text.and_then(|text| texts.get(&text.body)).map(|text| text.to_string()),
        messages: None,
        folded: None,
    }
}

fn source(source: &Source) -> SourceView {
    let mut view = SourceView {
        is: String::new(),
        name: None,
        message: None,
        handover: None,
        call: None,
        run: None,
        thread: None,
    };
    view.is = match source {
        Source::Template(name) => {
            view.name = Some(name.clone());
            "template"
        }
        Source::Message(message) => {
            view.message = Some(message.to_string());
            "message"
        }
        Source::Handover(handover) => {
            view.handover = Some(handover.to_string());
            "handover"
        }
        Source::Call(call) => {
            view.call = Some(call.to_string());
            "call"
        }
        Source::Tool(run) => {
            view.run = Some(run.to_string());
            "tool"
        }
        Source::Thread(thread) => {
            view.thread = Some(thread.to_string());
            "thread"
        }
        Source::State => "state",
        Source::Phase => "phase",
    }
    .to_owned();
    view
}

async fn forms(held: &Held, opened: &CallOpened) -> Result<(Vec<PromptTool>, Option<Value>), Problem> {
    let ids: Vec<BodyId> = opened.tools.into_iter().chain(opened.output).collect();
    let texts = held.app.engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
    let find = |id: Option<BodyId>| {
        let place = ids.iter().position(|known| Some(*known) == id)?;
        texts.get(place)
    };
    let tools: Vec<segue_core::prompt::ToolSpec> =
        find(opened.tools).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let output = find(opened.output).and_then(|text| serde_json::from_str(text).ok());
    Ok((tools.iter().map(prompt_tool).collect(), output))
}

fn attempt(attempt: &Try) -> AttemptView {
    AttemptView {
        seq: attempt.place.seq.0,
        at: attempt.place.at.0,
        attempt: attempt.attempt,
        line: attempt.line.clone(),
        next: attempt.next.map(|next| match next {
            Next::Retry { at } => NextView::Retry { at: at.0 },
            Next::Ask => NextView::Ask,
            Next::GiveUp => NextView::GiveUp,
        }),
    }
}

fn answer(note: &CallNote, answered: Option<&CallAnswered>, texts: &Texts) -> Option<AnswerView> {
    let Some(CallEnd::Answered { text, .. }) = &note.end else { return None };
    let words = |text: segue_core::body::Text| texts.get(&text.body).map(|text| text.to_string());
    Some(AnswerView {
        text: words(*text),
        body: text.body.to_string(),
        tokens: text.tokens,
        reasoning: answered.and_then(|answered| answered.reasoning).and_then(words),
        tool_calls: answered.map(|answered| answered.tool_calls.iter().map(tool_wish).collect()).unwrap_or_default(),
    })
}
