//! Which session a request belongs to: the one it names, the one in which exactly this was said, or a new one. Where a client went back
//! and says something else, the session is forked where the two part.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::TurnResult;
use segue_core::ids::{FlowName, IdempotencyKey, MessageId, Seq, SessionId};
use segue_engine::{SessionOptions, SessionQuery};

use super::SessionHints;
use super::conversation::{
    ClientConversation, ConversationPrefix, MessageContent, empty_fingerprint, extend_fingerprint, trim_for_comparison,
};
use crate::api::session_view::with_session_history;
use crate::api::sessions::open_new_session;
use crate::api::transfer::branch_session;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::SessionRef;
use crate::history::{MessageEntry, SessionHistory, TurnEntry};
use crate::limits::{CANDIDATE_SESSIONS_MAX, SEARCH_TEXT_CHARS_MAX};
use crate::problem::HttpProblem;

/// Where a request belongs.
#[derive(Debug)]
pub struct ResolvedRequest {
    /// The session.
    pub session_ref: SessionRef,
    /// What is to be said there.
    pub content: MessageContent,
    /// What to call it, so that the same request again is the same message.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The message, if it was said there before and only its answer is wanted.
    pub existing_message: Option<MessageId>,
    /// What the conversation is known by before this; not known where only its name is.
    pub prior_fingerprint: Option<BodyId>,
}

/// Finds or begins the session.
///
/// # Errors
/// It is not there for the caller, or cannot be begun.
pub async fn resolve_request(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<ResolvedRequest, HttpProblem> {
    if let Some(name) = &hints.session_name {
        return resolve_named_session(app, caller, flow, conversation, hints, name).await;
    }
    if conversation.has_prior_messages() {
        for past in conversation.possible_prefixes() {
            let known = past.fingerprint(caller, flow);
            for session in app.conversation_cache.find_sessions(known) {
                if let Some(landing) = match_session(app, caller, flow, session, &past, conversation, hints).await? {
                    return Ok(landing);
                }
            }
        }
        if let Some(landing) = search_by_last_reply(app, caller, flow, conversation, hints).await? {
            return Ok(landing);
        }
    } else if hints.is_retry
        && let Some(landing) = find_retried_first_message(app, caller, flow, conversation, hints).await?
    {
        return Ok(landing);
    }
    let held = open_flow_session(app, caller, flow, None).await?;
    let words = conversation.flattened_message();
    let key = hints
        .idempotency_key
        .clone()
        .or_else(|| Some(derive_idempotency_key(empty_fingerprint(caller, flow), &words, 0)));
    Ok(ResolvedRequest {
        session_ref: held,
        content: words,
        idempotency_key: key,
        existing_message: None,
        prior_fingerprint: Some(empty_fingerprint(caller, flow)),
    })
}

/// The session that the client names; what was said before is taken to be known there.
async fn resolve_named_session(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    conversation: &ClientConversation,
    hints: &SessionHints,
    name: &str,
) -> Result<ResolvedRequest, HttpProblem> {
    // A name that cannot be a session's is refused before anything is looked for.
    caller.full_session_id(name).map_err(|problem| problem.with_extension("field", "metadata.session"))?;
    let found = match SessionRef::resolve(app, caller.clone(), name).await {
        Ok(held) => match with_session_history(&held, None, session_flow).await {
            Ok(its) => Some((held, its)),
            Err(problem) if problem.code == "no-such-session" => None,
            Err(problem) => return Err(problem),
        },
        Err(problem) if problem.code == "no-such-session" => None,
        Err(problem) => return Err(problem),
    };
    let Some((held, its)) = found else {
        let held = open_flow_session(app, caller, flow, Some(name)).await?;
        return Ok(ResolvedRequest {
            session_ref: held,
            content: conversation.flattened_message(),
            idempotency_key: hints.idempotency_key.clone(),
            existing_message: None,
            prior_fingerprint: None,
        });
    };
    if its.as_ref() != Some(flow) {
        let its = its.map(|its| its.to_string()).unwrap_or_default();
        let detail = format!("the session `{name}` is of the flow `{its}`, not `{flow}`; use that as the model");
        return Err(HttpProblem::bad_request(detail).with_extension("field", "model"));
    }
    let words = conversation.new_message().clone();
    let known = if hints.is_retry && hints.idempotency_key.is_none() {
        last_message_if_equal(&held, &words).await?
    } else {
        None
    };
    Ok(ResolvedRequest {
        session_ref: held,
        content: words,
        idempotency_key: hints.idempotency_key.clone(),
        existing_message: known,
        prior_fingerprint: None,
    })
}

async fn open_flow_session(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    name: Option<&str>,
) -> Result<SessionRef, HttpProblem> {
    let opening = SessionOptions { mid_turn_policy: app.options.default_mid_turn_policy, ..SessionOptions::default() };
    open_new_session(app, caller.clone(), flow, name, opening).await
}

/// The last message of a session, if it says this.
async fn last_message_if_equal(
    session_ref: &SessionRef,
    content: &MessageContent,
) -> Result<Option<MessageId>, HttpProblem> {
    let last =
        with_session_history(session_ref, None, |chronicle| chronicle.messages.values().next_back().cloned()).await?;
    let Some(last) = last else { return Ok(None) };
    let says = content_matches(session_ref, &StoredContent::from_messages(&[&last]), content).await?;
    Ok(Some(last.message).filter(|_| says))
}

/// Looks for sessions in which the last reply was given.
async fn search_by_last_reply(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<Option<ResolvedRequest>, HttpProblem> {
    let Some(reply) = conversation.last_assistant_text() else { return Ok(None) };
    for session in list_candidate_sessions(app, caller, flow, reply).await? {
        for past in conversation.possible_prefixes() {
            let landing = match_session(app, caller, flow, session.clone(), &past, conversation, hints).await?;
            if landing.is_some() {
                return Ok(landing);
            }
        }
    }
    Ok(None)
}

/// The session that an earlier try of the same request began. That its answer was sent does not mean that it arrived.
async fn find_retried_first_message(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<Option<ResolvedRequest>, HttpProblem> {
    let words = conversation.flattened_message();
    for session in list_candidate_sessions(app, caller, flow, &conversation.new_message().text).await? {
        let held = SessionRef { app: app.clone(), caller: caller.clone(), session };
        let first = with_session_history(&held, None, |chronicle| {
            let first = chronicle.messages.values().next().cloned();
            first.filter(|_| chronicle.messages.len() == 1)
        });
        let Some(first) = first.await? else { continue };
        if content_matches(&held, &StoredContent::from_messages(&[&first]), &words).await? {
            let so_far = Some(empty_fingerprint(caller, flow));
            return Ok(Some(ResolvedRequest {
                session_ref: held,
                content: words,
                idempotency_key: hints.idempotency_key.clone(),
                existing_message: Some(first.message),
                prior_fingerprint: so_far,
            }));
        }
    }
    Ok(None)
}

async fn list_candidate_sessions(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    text: &str,
) -> Result<Vec<SessionId>, HttpProblem> {
    // One line of it will do; a line break may have been written in another way.
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let needle: String = line.chars().take(SEARCH_TEXT_CHARS_MAX).collect();
    if needle.is_empty() {
        return Ok(Vec::new());
    }
    let query = SessionQuery {
        text: Some(needle),
        flows: vec![flow.to_string()],
        ..SessionQuery::newest(CANDIDATE_SESSIONS_MAX)
    };
    let page = app
        .engine
        .list_sessions(&caller.restrict_query(query))
        .await
        .map_err(|error| HttpProblem::from_engine_error(&error, caller))?;
    Ok(page.entries.into_iter().map(|row| row.session).collect())
}

/// Where a request belongs in a session, if exactly this past was held there.
async fn match_session(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    session: SessionId,
    past: &ConversationPrefix<'_>,
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<Option<ResolvedRequest>, HttpProblem> {
    let held = SessionRef { app: app.clone(), caller: caller.clone(), session };
    let turns = with_session_history(&held, None, |chronicle| {
        let is_open = session_flow(chronicle).as_ref() == Some(flow);
        is_open.then(|| {
            chronicle.turns.values().map(|turn| TurnTranscript::from_turn(chronicle, turn)).collect::<Vec<_>>()
        })
    });
    let turns = match turns.await {
        Ok(Some(turns)) => turns,
        Ok(None) => return Ok(None),
        // It may have been deleted since it was remembered.
        Err(problem) if problem.code == "no-such-session" => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let mut later = turns.as_slice();
    let mut so_far = empty_fingerprint(caller, flow);
    let mut end = Seq(0);
    for (asked, answered) in past.exchanges() {
        // A turn that brought no reply is none that the client could know.
        while later.first().is_some_and(|turn| turn.has_ended() && turn.reply_texts.is_empty()) {
            later = &later[1..];
        }
        let Some((turn, rest)) = later.split_first() else { return Ok(None) };
        if !content_matches(&held, &turn.user_content, asked).await?
            || !texts_match(&held, &turn.reply_texts, answered).await?
        {
            return Ok(None);
        }
        so_far = extend_fingerprint(so_far, asked.content_hash(), answered);
        end = turn.ended_seq.unwrap_or(end);
        later = rest;
    }
    continue_or_fork(held, (so_far, end), later, conversation, hints).await.map(Some)
}

/// Goes on where the past ends: in the session itself if nothing else was said there since.
async fn continue_or_fork(
    session_ref: SessionRef,
    (so_far, end): (BodyId, Seq),
    later: &[TurnTranscript],
    conversation: &ClientConversation,
    hints: &SessionHints,
) -> Result<ResolvedRequest, HttpProblem> {
    let words = conversation.new_message().clone();
    let mut failed = 0;
    let mut is_elsewhere = false;
    for turn in later {
        let is_same = content_matches(&session_ref, &turn.user_content, &words).await?;
        let is_heard = !hints.is_retry
            && turn
                .first_message
                .is_some_and(|message| session_ref.app.conversation_cache.was_delivered(&session_ref.session, message));
        if turn.has_ended() && turn.reply_texts.is_empty() {
            failed += usize::from(is_same);
        } else if !is_same || is_heard || later.len() > failed + 1 {
            is_elsewhere = true;
        }
    }
    let key = hints.idempotency_key.clone().or_else(|| Some(derive_idempotency_key(so_far, &words, failed)));
    if is_elsewhere {
        let held = branch_session(&session_ref, Some(end), None).await?;
        return Ok(ResolvedRequest {
            session_ref: held,
            content: words,
            idempotency_key: key,
            existing_message: None,
            prior_fingerprint: Some(so_far),
        });
    }
    Ok(ResolvedRequest {
        session_ref,
        content: words,
        idempotency_key: key,
        existing_message: None,
        prior_fingerprint: Some(so_far),
    })
}

fn derive_idempotency_key(fingerprint: BodyId, content: &MessageContent, failed: usize) -> IdempotencyKey {
    IdempotencyKey::from(format!("door-{}-{failed}", fingerprint.chain_hash(content.content_hash())))
}

/// A turn, by what was asked and said in it.
struct TurnTranscript {
    first_message: Option<MessageId>,
    user_content: StoredContent,
    reply_texts: Vec<TextRef>,
    ended_seq: Option<Seq>,
    outcome: Option<TurnResult>,
}

impl TurnTranscript {
    fn from_turn(history: &SessionHistory, turn: &TurnEntry) -> Self {
        let messages: Vec<&MessageEntry> =
            turn.messages.iter().filter_map(|message| history.messages.get(message)).collect();
        Self {
            first_message: turn.messages.first().copied(),
            user_content: StoredContent::from_messages(&messages),
            reply_texts: turn.replies.iter().map(|said| said.text).collect(),
            ended_seq: turn.ended.map(|place| place.seq),
            outcome: turn.outcome.clone(),
        }
    }

    fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }
}

/// What messages of a session ask.
pub struct StoredContent {
    texts: Vec<TextRef>,
    images: Vec<BodyId>,
}

impl StoredContent {
    /// What these ask together.
    pub fn from_messages(messages: &[&MessageEntry]) -> Self {
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
pub async fn content_matches(
    session_ref: &SessionRef,
    stored: &StoredContent,
    content: &MessageContent,
) -> Result<bool, HttpProblem> {
    Ok(content.image_hashes().eq(stored.images.iter().copied())
        && texts_match(session_ref, &stored.texts, &content.text).await?)
}

/// Whether texts of a session, joined, say what a client says they do.
async fn texts_match(session_ref: &SessionRef, texts: &[TextRef], told: &str) -> Result<bool, HttpProblem> {
    match texts {
        [] => return Ok(trim_for_comparison(told).is_empty()),
        // A text is known by its hash.
        [only] if only.body == BodyId::hash_text(told) => return Ok(true),
        _ => {}
    }
    let ids: Vec<BodyId> = texts.iter().map(|text| text.body).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let joined = texts.iter().map(|text| trim_for_comparison(text)).collect::<Vec<_>>().join("\n\n");
    // What came in several tries was heard with its false starts.
    Ok(trim_for_comparison(told) == trim_for_comparison(&joined)
        || (!joined.is_empty()
            && trim_for_comparison(told).ends_with(&format!("\n\n{}", trim_for_comparison(&joined)))))
}

fn session_flow(history: &SessionHistory) -> Option<FlowName> {
    match history.first_event.as_ref().map(|first| &first.event) {
        Some(segue_core::event::Event::SessionOpened(opened)) => Some(opened.flow.clone()),
        _ => None,
    }
}
