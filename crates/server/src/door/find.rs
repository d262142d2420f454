//! Which session a request belongs to: the one it names, the one in which exactly this was said, or a new one. Where a client went back
//! and says something else, the session is forked where the two part.

use segue_core::body::{BodyId, Text};
use segue_core::event::Outcome;
use segue_core::ids::{FlowName, IdempotencyKey, MessageId, Seq, SessionId};
use segue_engine::{Opening, Query};

use super::Told;
use super::history::{History, Past, Words, beginning, further, plain};
use crate::api::session_view::chronicle;
use crate::api::sessions::begin;
use crate::api::transfer::branch;
use crate::app::App;
use crate::caller::Caller;
use crate::chronicle::{Chronicle, MessageNote, TurnNote};
use crate::extract::Held;
use crate::limits::{CANDIDATES_MAX, NEEDLE_CHARS_MAX};
use crate::problem::Problem;

/// Where a request belongs.
#[derive(Debug)]
pub struct Landing {
    /// The session.
    pub held: Held,
    /// What is to be said there.
    pub words: Words,
    /// What to call it, so that the same request again is the same message.
    pub key: Option<IdempotencyKey>,
    /// The message, if it was said there before and only its answer is wanted.
    pub known: Option<MessageId>,
    /// What the conversation is known by before this; not known where only its name is.
    pub so_far: Option<BodyId>,
}

/// Finds or begins the session.
///
/// # Errors
/// It is not there for the caller, or cannot be begun.
pub async fn find(
    app: &App,
    caller: &Caller,
    flow: &FlowName,
    history: &History,
    told: &Told,
) -> Result<Landing, Problem> {
    if let Some(name) = &told.session {
        return named(app, caller, flow, history, told, name).await;
    }
    if history.has_past() {
        for past in history.pasts() {
            let known = past.fingerprint(caller, flow);
            for session in app.heard.sessions(known) {
                if let Some(landing) = in_session(app, caller, flow, session, &past, history, told).await? {
                    return Ok(landing);
                }
            }
        }
        if let Some(landing) = search(app, caller, flow, history, told).await? {
            return Ok(landing);
        }
    } else if told.is_retry
        && let Some(landing) = repeated_opening(app, caller, flow, history, told).await?
    {
        return Ok(landing);
    }
    let held = open(app, caller, flow, None).await?;
    let words = history.opening();
    let key = told.key.clone().or_else(|| Some(key_of(beginning(caller, flow), &words, 0)));
    Ok(Landing { held, words, key, known: None, so_far: Some(beginning(caller, flow)) })
}

/// The session that the client names; what was said before is taken to be known there.
async fn named(
    app: &App,
    caller: &Caller,
    flow: &FlowName,
    history: &History,
    told: &Told,
    name: &str,
) -> Result<Landing, Problem> {
    // A name that cannot be a session's is refused before anything is looked for.
    caller.full(name).map_err(|problem| problem.with("field", "metadata.session"))?;
    let found = match Held::of(app, caller.clone(), name).await {
        Ok(held) => match chronicle(&held, None, flow_of).await {
            Ok(its) => Some((held, its)),
            Err(problem) if problem.code == "no-such-session" => None,
            Err(problem) => return Err(problem),
        },
        Err(problem) if problem.code == "no-such-session" => None,
        Err(problem) => return Err(problem),
    };
    let Some((held, its)) = found else {
        let held = open(app, caller, flow, Some(name)).await?;
        return Ok(Landing { held, words: history.opening(), key: told.key.clone(), known: None, so_far: None });
    };
    if its.as_ref() != Some(flow) {
        let its = its.map(|its| its.to_string()).unwrap_or_default();
        let detail = format!("the session `{name}` is of the flow `{its}`, not `{flow}`; use that as the model");
        return Err(Problem::bad_request(detail).with("field", "model"));
    }
    let words = history.new_words().clone();
    let known = if told.is_retry && told.key.is_none() { last_if_it_says(&held, &words).await? } else { None };
    Ok(Landing { held, words, key: told.key.clone(), known, so_far: None })
}

async fn open(app: &App, caller: &Caller, flow: &FlowName, name: Option<&str>) -> Result<Held, Problem> {
    let opening = Opening { busy: app.options.busy, ..Opening::default() };
    begin(app, caller.clone(), flow, name, opening).await
}

/// The last message of a session, if it says this.
async fn last_if_it_says(held: &Held, words: &Words) -> Result<Option<MessageId>, Problem> {
    let last = chronicle(held, None, |chronicle| chronicle.messages.values().next_back().cloned()).await?;
    let Some(last) = last else { return Ok(None) };
    let says = asks(held, &Asking::of(&[&last]), words).await?;
    Ok(Some(last.message).filter(|_| says))
}

/// Looks for sessions in which the last reply was given.
async fn search(
    app: &App,
    caller: &Caller,
    flow: &FlowName,
    history: &History,
    told: &Told,
) -> Result<Option<Landing>, Problem> {
    let Some(reply) = history.last_reply() else { return Ok(None) };
    for session in candidates(app, caller, flow, reply).await? {
        for past in history.pasts() {
            let landing = in_session(app, caller, flow, session.clone(), &past, history, told).await?;
            if landing.is_some() {
                return Ok(landing);
            }
        }
    }
    Ok(None)
}

/// The session that an earlier try of the same request began. That its answer was sent does not mean that it arrived.
async fn repeated_opening(
    app: &App,
    caller: &Caller,
    flow: &FlowName,
    history: &History,
    told: &Told,
) -> Result<Option<Landing>, Problem> {
    let words = history.opening();
    for session in candidates(app, caller, flow, &history.new_words().text).await? {
        let held = Held { app: app.clone(), caller: caller.clone(), session };
        let first = chronicle(&held, None, |chronicle| {
            let first = chronicle.messages.values().next().cloned();
            first.filter(|_| chronicle.messages.len() == 1)
        });
        let Some(first) = first.await? else { continue };
        if asks(&held, &Asking::of(&[&first]), &words).await? {
            let so_far = Some(beginning(caller, flow));
            return Ok(Some(Landing { held, words, key: told.key.clone(), known: Some(first.message), so_far }));
        }
    }
    Ok(None)
}

async fn candidates(app: &App, caller: &Caller, flow: &FlowName, text: &str) -> Result<Vec<SessionId>, Problem> {
    // One line of it will do; a line break may have been written in another way.
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let needle: String = line.chars().take(NEEDLE_CHARS_MAX).collect();
    if needle.is_empty() {
        return Ok(Vec::new());
    }
    let query = Query { text: Some(needle), flows: vec![flow.to_string()], ..Query::newest(CANDIDATES_MAX) };
    let page = app.engine.list(&caller.narrowed(query)).await.map_err(|error| Problem::of(&error, caller))?;
    Ok(page.rows.into_iter().map(|row| row.session).collect())
}

/// Where a request belongs in a session, if exactly this past was held there.
async fn in_session(
    app: &App,
    caller: &Caller,
    flow: &FlowName,
    session: SessionId,
    past: &Past<'_>,
    history: &History,
    told: &Told,
) -> Result<Option<Landing>, Problem> {
    let held = Held { app: app.clone(), caller: caller.clone(), session };
    let turns = chronicle(&held, None, |chronicle| {
        let is_open = flow_of(chronicle).as_ref() == Some(flow);
        is_open.then(|| chronicle.turns.values().map(|turn| Asked::of(chronicle, turn)).collect::<Vec<_>>())
    });
    let turns = match turns.await {
        Ok(Some(turns)) => turns,
        Ok(None) => return Ok(None),
        // It may have been deleted since it was remembered.
        Err(problem) if problem.code == "no-such-session" => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let mut later = turns.as_slice();
    let mut so_far = beginning(caller, flow);
    let mut end = Seq(0);
    for (asked, answered) in past.exchanges() {
        // A turn that brought no reply is none that the client could know.
        while later.first().is_some_and(|turn| turn.is_over() && turn.said.is_empty()) {
            later = &later[1..];
        }
        let Some((turn, rest)) = later.split_first() else { return Ok(None) };
        if !asks(&held, &turn.asked, asked).await? || !says(&held, &turn.said, answered).await? {
            return Ok(None);
        }
        so_far = further(so_far, asked.id(), answered);
        end = turn.ended.unwrap_or(end);
        later = rest;
    }
    go_on(held, (so_far, end), later, history, told).await.map(Some)
}

/// Goes on where the past ends: in the session itself if nothing else was said there since.
async fn go_on(
    held: Held,
    (so_far, end): (BodyId, Seq),
    later: &[Asked],
    history: &History,
    told: &Told,
) -> Result<Landing, Problem> {
    let words = history.new_words().clone();
    let mut failed = 0;
    let mut is_elsewhere = false;
    for turn in later {
        let is_same = asks(&held, &turn.asked, &words).await?;
        let is_heard =
            !told.is_retry && turn.message.is_some_and(|message| held.app.heard.was_heard(&held.session, message));
        if turn.is_over() && turn.said.is_empty() {
            failed += usize::from(is_same);
        } else if !is_same || is_heard || later.len() > failed + 1 {
            is_elsewhere = true;
        }
    }
    let key = told.key.clone().or_else(|| Some(key_of(so_far, &words, failed)));
    if is_elsewhere {
        let held = branch(&held, Some(end), None).await?;
        return Ok(Landing { held, words, key, known: None, so_far: Some(so_far) });
    }
    Ok(Landing { held, words, key, known: None, so_far: Some(so_far) })
}

fn key_of(so_far: BodyId, words: &Words, failed: usize) -> IdempotencyKey {
    IdempotencyKey::from(format!("door-{}-{failed}", so_far.chain(words.id())))
}

/// A turn, by what was asked and said in it.
struct Asked {
    message: Option<MessageId>,
    asked: Asking,
    said: Vec<Text>,
    ended: Option<Seq>,
    outcome: Option<Outcome>,
}

impl Asked {
    fn of(chronicle: &Chronicle, turn: &TurnNote) -> Self {
        let messages: Vec<&MessageNote> =
            turn.messages.iter().filter_map(|message| chronicle.messages.get(message)).collect();
        Self {
            message: turn.messages.first().copied(),
            asked: Asking::of(&messages),
            said: turn.said.iter().map(|said| said.text).collect(),
            ended: turn.ended.map(|place| place.seq),
            outcome: turn.outcome.clone(),
        }
    }

    fn is_over(&self) -> bool {
        self.outcome.is_some()
    }
}

/// What messages of a session ask.
pub struct Asking {
    texts: Vec<Text>,
    images: Vec<BodyId>,
}

impl Asking {
    /// What these ask together.
    pub fn of(messages: &[&MessageNote]) -> Self {
        let images = messages.iter().flat_map(|message| &message.images);
        Self {
            texts: messages.iter().map(|message| message.text).collect(),
            images: images.map(|image| image.body).collect(),
        }
    }
}

/// Whether messages of a session ask what a client says they do.
///
/// # Errors
/// They cannot be read.
pub async fn asks(held: &Held, asking: &Asking, told: &Words) -> Result<bool, Problem> {
    Ok(told.image_ids().eq(asking.images.iter().copied()) && says(held, &asking.texts, &told.text).await?)
}

/// Whether texts of a session, joined, say what a client says they do.
async fn says(held: &Held, texts: &[Text], told: &str) -> Result<bool, Problem> {
    match texts {
        [] => return Ok(plain(told).is_empty()),
        // A text is known by its hash.
        [only] if only.body == BodyId::of(told) => return Ok(true),
        _ => {}
    }
    let ids: Vec<BodyId> = texts.iter().map(|text| text.body).collect();
    let texts = held.app.engine.texts(&held.session, &ids).await.map_err(|error| held.problem(error))?;
    let joined = texts.iter().map(|text| plain(text)).collect::<Vec<_>>().join("\n\n");
    // What came in several tries was heard with its false starts.
    Ok(plain(told) == plain(&joined)
        || (!joined.is_empty() && plain(told).ends_with(&format!("\n\n{}", plain(&joined)))))
}

fn flow_of(chronicle: &Chronicle) -> Option<FlowName> {
    match chronicle.first.as_ref().map(|first| &first.event) {
        Some(segue_core::event::Event::SessionOpened(opened)) => Some(opened.flow.clone()),
        _ => None,
    }
}
