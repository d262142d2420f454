//! Finds the session that a request belongs to: the named session, the session that holds exactly this conversation, or a new
//! one. If a client went back and continued differently, the session is forked where the two differ.

use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{Event, SessionOpened, TurnOutcome};
use segue_core::ids::{FlowName, IdempotencyKey, MessageId, Seq, SessionId};
use segue_engine::{SessionOptions, SessionQuery};
use serde_json::{Value, json};

use super::SessionRequestHeaders;
use super::conversation::{ClientConversation, ConversationPrefix, MessageContent, trim_for_comparison};
use super::fingerprint::ConversationFingerprint;
use crate::api::session_view::with_session_history;
use crate::api::sessions::open_new_session;
use crate::api::transfer::branch_session;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::RequestedSession;
use crate::history::{MessageEntry, SessionHistory, TurnHistoryEntry};
use crate::limits::{CANDIDATE_SESSIONS_MAX, SEARCH_TEXT_CHARS_MAX};
use crate::problem::HttpProblem;

/// The setting of a flow that holds a system prompt.
const INSTRUCTION_SETTING: &str = "instruction";

/// The session and message that a request was resolved to.
#[derive(Debug)]
pub(crate) struct ResolvedClientRequest {
    pub session_ref: RequestedSession,
    /// The message to send.
    pub content: MessageContent,
    /// The key under which a repeated request is recognized.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The message, if it was sent before and only its reply is wanted.
    pub existing_message: Option<MessageId>,
    /// The fingerprint of the conversation before this message; unknown for a session found by name.
    pub prior_fingerprint: Option<ConversationFingerprint>,
}

/// Finds or creates the session of a request.
///
/// # Errors
/// The caller may not see the session, or it cannot be created.
pub(crate) async fn resolve_request(
    app: &AppState,
    caller: &Caller,
    flow: &FlowName,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<ResolvedClientRequest, HttpProblem> {
    let instruction = session_instruction(app, flow, conversation);
    let separated = instruction.is_some().then(|| conversation.without_instructions());
    let conversation = separated.as_ref().unwrap_or(conversation);
    let target = &ClientFlow { name: flow, instruction };
    if let Some(name) = &hints.session_name {
        return resolve_named_session(app, caller, target, conversation, hints, name).await;
    }
    if conversation.has_prior_messages() {
        for prefix in conversation.possible_prefixes() {
            let fingerprint = prefix.fingerprint(caller, flow);
            for session in app.conversation_cache.find_sessions(fingerprint.id()) {
                let Some(candidate) = CandidateSession::load(app, caller, target, session).await? else { continue };
                if let Some(resolved) = match_session(candidate, flow, prefix, conversation, hints).await? {
                    return Ok(resolved);
                }
            }
        }
        if let Some(resolved) = search_by_last_reply(app, caller, target, conversation, hints).await? {
            return Ok(resolved);
        }
    } else if hints.is_retry
        && let Some(resolved) = find_retried_first_message(app, caller, target, conversation, hints).await?
    {
        return Ok(resolved);
    }
    let session_ref = open_flow_session(app, caller, target, None).await?;
    let content = conversation.flattened_message();
    let key = hints
        .idempotency_key
        .clone()
        .or_else(|| Some(derive_idempotency_key(ConversationFingerprint::empty(caller, flow), &content, 0)));
    Ok(ResolvedClientRequest {
        session_ref,
        content,
        idempotency_key: key,
        existing_message: None,
        prior_fingerprint: Some(ConversationFingerprint::empty(caller, flow)),
    })
}

/// The flow that a client asks for, with the client's system prompt if the flow has a setting for it.
struct ClientFlow<'c> {
    name: &'c FlowName,
    instruction: Option<String>,
}

impl ClientFlow<'_> {
    /// Returns whether a session of this flow was opened with the same instruction.
    fn has_same_instruction(&self, app: &AppState, settings: &Value) -> bool {
        let default = app.engine.default_settings(self.name).and_then(|defaults| defaults.get(INSTRUCTION_SETTING));
        let wanted = self.instruction.as_deref().or(default.and_then(Value::as_str));
        settings.get(INSTRUCTION_SETTING).and_then(Value::as_str) == wanted
    }
}

/// Returns the client's instructions as a setting of the flow; `None` if there are none, or the flow does not accept them.
fn session_instruction(app: &AppState, flow: &FlowName, conversation: &ClientConversation) -> Option<String> {
    let text = Some(&conversation.instructions).filter(|text| !text.trim().is_empty())?;
    let spec = app.engine.flows().map(|known| known.spec()).find(|spec| spec.name == *flow)?;
    let has_setting = spec.settings.iter().any(|setting| setting.name == INSTRUCTION_SETTING);
    let is_valid = spec.invalid_settings(&json!({ INSTRUCTION_SETTING: text })).is_empty();
    (has_setting && is_valid).then(|| text.clone())
}

/// Resolves a request that names its session. The earlier messages are not compared.
async fn resolve_named_session(
    app: &AppState,
    caller: &Caller,
    target: &ClientFlow<'_>,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
    name: &str,
) -> Result<ResolvedClientRequest, HttpProblem> {
    let flow = target.name;
    // An invalid name is rejected before any lookup.
    caller.full_session_id(name).map_err(|problem| problem.with_extension("field", "metadata.session"))?;
    let found = match RequestedSession::resolve(app, caller.clone(), name).await {
        Ok(session_ref) => match with_session_history(&session_ref, None, session_flow).await {
            Ok(session_flow_name) => Some((session_ref, session_flow_name)),
            Err(problem) if problem.code == "no-such-session" => None,
            Err(problem) => return Err(problem),
        },
        Err(problem) if problem.code == "no-such-session" => None,
        Err(problem) => return Err(problem),
    };
    let Some((session_ref, session_flow_name)) = found else {
        let session_ref = open_flow_session(app, caller, target, Some(name)).await?;
        return Ok(ResolvedClientRequest {
            session_ref,
            content: conversation.flattened_message(),
            idempotency_key: hints.idempotency_key.clone(),
            existing_message: None,
            prior_fingerprint: None,
        });
    };
    if session_flow_name.as_ref() != Some(flow) {
        let session_flow_name = session_flow_name.map(|name| name.to_string()).unwrap_or_default();
        let detail = format!(
            "the session `{name}` uses the flow `{session_flow_name}`, not `{flow}`; use that name as the model"
        );
        return Err(HttpProblem::bad_request(detail).with_extension("field", "model"));
    }
    let content = conversation.new_message().clone();
    let existing_message = if hints.is_retry && hints.idempotency_key.is_none() {
        last_message_if_equal(&session_ref, &content).await?
    } else {
        None
    };
    Ok(ResolvedClientRequest {
        session_ref,
        content,
        idempotency_key: hints.idempotency_key.clone(),
        existing_message,
        prior_fingerprint: None,
    })
}

async fn open_flow_session(
    app: &AppState,
    caller: &Caller,
    target: &ClientFlow<'_>,
    name: Option<&str>,
) -> Result<RequestedSession, HttpProblem> {
    let mid_turn_policy = app.options.default_mid_turn_policy;
    let mut options = SessionOptions { mid_turn_policy, ..SessionOptions::default() };
    if let Some(instruction) = &target.instruction {
        options.settings = json!({ INSTRUCTION_SETTING: instruction });
    }
    open_new_session(app, caller.clone(), target.name, name, options).await
}

/// Returns the last message of a session if it has this content.
async fn last_message_if_equal(
    session_ref: &RequestedSession,
    content: &MessageContent,
) -> Result<Option<MessageId>, HttpProblem> {
    let last =
        with_session_history(session_ref, None, |history| history.messages.values().next_back().cloned()).await?;
    let Some(last) = last else { return Ok(None) };
    let is_equal = content_matches(session_ref, &StoredMessageRefs::from_messages(&[&last]), content).await?;
    Ok(Some(last.message).filter(|_| is_equal))
}

/// Searches for a session that contains the last reply and the same conversation.
async fn search_by_last_reply(
    app: &AppState,
    caller: &Caller,
    target: &ClientFlow<'_>,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<Option<ResolvedClientRequest>, HttpProblem> {
    let flow = target.name;
    let Some(reply) = conversation.last_assistant_text() else { return Ok(None) };
    for session in list_candidate_sessions(app, caller, flow, reply).await? {
        let Some(candidate) = CandidateSession::load(app, caller, target, session).await? else { continue };
        let first_message_hash = candidate.first_message_hash().await?;
        // The comparison of a first message reads it as a whole, so it is only made where the hashes are equal. The client's own
        // first message is always compared, because its instructions may have changed.
        let possible = conversation
            .possible_prefixes()
            .filter(|prefix| prefix.is_whole() || Some(prefix.first_message_hash()) == first_message_hash);
        for prefix in possible {
            let resolved = match_session(candidate.clone(), flow, prefix, conversation, hints).await?;
            if resolved.is_some() {
                return Ok(resolved);
            }
        }
    }
    Ok(None)
}

/// Searches for the session that an earlier attempt of the same request created. Its reply may have been sent without
/// arriving.
async fn find_retried_first_message(
    app: &AppState,
    caller: &Caller,
    target: &ClientFlow<'_>,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<Option<ResolvedClientRequest>, HttpProblem> {
    let flow = target.name;
    let content = conversation.flattened_message();
    for session in list_candidate_sessions(app, caller, flow, &conversation.new_message().text).await? {
        let session_ref = RequestedSession { app: app.clone(), caller: caller.clone(), session };
        let first = with_session_history(&session_ref, None, |history| {
            let has_same_instruction =
                opened_event(history).is_some_and(|opened| target.has_same_instruction(app, &opened.settings));
            let first = history.messages.values().next().cloned();
            first.filter(|_| history.messages.len() == 1 && has_same_instruction)
        });
        let Some(first) = first.await? else { continue };
        if content_matches(&session_ref, &StoredMessageRefs::from_messages(&[&first]), &content).await? {
            let fingerprint = Some(ConversationFingerprint::empty(caller, flow));
            return Ok(Some(ResolvedClientRequest {
                session_ref,
                content,
                idempotency_key: hints.idempotency_key.clone(),
                existing_message: Some(first.message),
                prior_fingerprint: fingerprint,
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
    // One line is enough; line breaks may have been changed.
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let search_text: String = line.chars().take(SEARCH_TEXT_CHARS_MAX).collect();
    if search_text.is_empty() {
        return Ok(Vec::new());
    }
    let query = SessionQuery {
        text: Some(search_text),
        flows: vec![flow.to_string()],
        ..SessionQuery::newest(CANDIDATE_SESSIONS_MAX)
    };
    let _permit = app.rate_limiter.acquire_search_permit(caller).await;
    let page = app
        .engine
        .list_sessions(&caller.restrict_query(query))
        .await
        .map_err(|error| HttpProblem::from_engine_error(&error, caller))?;
    Ok(page.entries.into_iter().map(|row| row.session).collect())
}

/// A session that may hold the conversation, with its turns.
#[derive(Clone)]
struct CandidateSession {
    session_ref: RequestedSession,
    turns: Arc<[TurnTranscript]>,
}

impl CandidateSession {
    /// Loads a session. Returns `None` if it has another flow or instruction, or was deleted after it was cached.
    async fn load(
        app: &AppState,
        caller: &Caller,
        target: &ClientFlow<'_>,
        session: SessionId,
    ) -> Result<Option<Self>, HttpProblem> {
        let session_ref = RequestedSession { app: app.clone(), caller: caller.clone(), session };
        let turns = with_session_history(&session_ref, None, |history| {
            let is_wanted = opened_event(history).is_some_and(|opened| {
                opened.flow == *target.name && target.has_same_instruction(app, &opened.settings)
            });
            is_wanted.then(|| history.turns.values().map(|turn| TurnTranscript::from_turn(history, turn)).collect())
        });
        match turns.await {
            Ok(turns) => Ok(turns.map(|turns| Self { session_ref, turns })),
            Err(problem) if problem.code == "no-such-session" => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Returns the content hash of the first message that the client knows of.
    async fn first_message_hash(&self) -> Result<Option<BodyId>, HttpProblem> {
        let Some(turn) = self.turns.iter().find(|turn| !turn.is_unknown_to_client()) else { return Ok(None) };
        let text = read_joined_text(&self.session_ref, &turn.user_content.texts).await?;
        let text_hash = BodyId::hash_text(trim_for_comparison(&text));
        Ok(Some(turn.user_content.images.iter().copied().fold(text_hash, BodyId::chain_hash)))
    }
}

/// Resolves a request to a session if that session holds exactly these earlier messages.
async fn match_session(
    candidate: CandidateSession,
    flow: &FlowName,
    prefix: ConversationPrefix<'_>,
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<Option<ResolvedClientRequest>, HttpProblem> {
    let CandidateSession { session_ref, turns } = candidate;
    let mut later = &turns[..];
    let mut fingerprint = ConversationFingerprint::empty(&session_ref.caller, flow);
    let mut end = Seq(0);
    for (asked, answered) in prefix.exchanges() {
        while later.first().is_some_and(TurnTranscript::is_unknown_to_client) {
            later = &later[1..];
        }
        let Some((turn, rest)) = later.split_first() else { return Ok(None) };
        if !content_matches(&session_ref, &turn.user_content, &asked).await?
            || !texts_match(&session_ref, &turn.reply_texts, answered).await?
        {
            return Ok(None);
        }
        fingerprint = fingerprint.extend(asked.content_hash(), answered);
        end = turn.ended_seq.unwrap_or(end);
        later = rest;
    }
    continue_or_fork(session_ref, (fingerprint, end), later, conversation, hints).await.map(Some)
}

/// Continues the session if the matched messages are its last ones; otherwise forks it after them.
async fn continue_or_fork(
    session_ref: RequestedSession,
    (fingerprint, end): (ConversationFingerprint, Seq),
    later: &[TurnTranscript],
    conversation: &ClientConversation,
    hints: &SessionRequestHeaders,
) -> Result<ResolvedClientRequest, HttpProblem> {
    let content = conversation.new_message().clone();
    let mut failed = 0;
    let mut needs_fork = false;
    for turn in later {
        let is_same_message = content_matches(&session_ref, &turn.user_content, &content).await?;
        let was_delivered = !hints.is_retry
            && turn
                .first_message
                .is_some_and(|message| session_ref.app.conversation_cache.was_delivered(&session_ref.session, message));
        if turn.has_ended() && turn.reply_texts.is_empty() {
            failed += usize::from(is_same_message);
        } else if !is_same_message || was_delivered || later.len() > failed + 1 {
            needs_fork = true;
        }
    }
    let key = hints.idempotency_key.clone().or_else(|| Some(derive_idempotency_key(fingerprint, &content, failed)));
    if needs_fork {
        let session_ref = branch_session(&session_ref, Some(end), None).await?;
        return Ok(ResolvedClientRequest {
            session_ref,
            content,
            idempotency_key: key,
            existing_message: None,
            prior_fingerprint: Some(fingerprint),
        });
    }
    Ok(ResolvedClientRequest {
        session_ref,
        content,
        idempotency_key: key,
        existing_message: None,
        prior_fingerprint: Some(fingerprint),
    })
}

fn derive_idempotency_key(
    fingerprint: ConversationFingerprint,
    content: &MessageContent,
    failed: usize,
) -> IdempotencyKey {
    IdempotencyKey::from(format!("openai-{}-{failed}", fingerprint.id().chain_hash(content.content_hash())))
}

/// The messages and replies of a turn.
struct TurnTranscript {
    first_message: Option<MessageId>,
    user_content: StoredMessageRefs,
    reply_texts: Vec<TextRef>,
    ended_seq: Option<Seq>,
    outcome: Option<TurnOutcome>,
}

impl TurnTranscript {
    fn from_turn(history: &SessionHistory, turn: &TurnHistoryEntry) -> Self {
        let messages: Vec<&MessageEntry> =
            turn.messages.iter().filter_map(|message| history.messages.get(message)).collect();
        Self {
            first_message: turn.messages.first().copied(),
            user_content: StoredMessageRefs::from_messages(&messages),
            reply_texts: turn.replies.iter().map(|reply| reply.text).collect(),
            ended_seq: turn.ended.map(|position| position.seq),
            outcome: turn.outcome.clone(),
        }
    }

    fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns whether the turn ended without a reply, so that the client cannot know of it.
    fn is_unknown_to_client(&self) -> bool {
        self.has_ended() && self.reply_texts.is_empty()
    }
}

/// The references of stored messages, for comparison.
pub(crate) struct StoredMessageRefs {
    texts: Vec<TextRef>,
    images: Vec<BodyId>,
}

impl StoredMessageRefs {
    /// Combines the content of several messages.
    pub(crate) fn from_messages(messages: &[&MessageEntry]) -> Self {
        let images = messages.iter().flat_map(|message| &message.images);
        Self {
            texts: messages.iter().map(|message| message.text).collect(),
            images: images.map(|image| image.body).collect(),
        }
    }
}

/// Returns whether stored messages have the given content.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn content_matches(
    session_ref: &RequestedSession,
    stored: &StoredMessageRefs,
    content: &MessageContent,
) -> Result<bool, HttpProblem> {
    Ok(content.image_hashes().eq(stored.images.iter().copied())
        && texts_match(session_ref, &stored.texts, &content.text).await?)
}

/// Returns whether stored texts, joined, equal the given text.
async fn texts_match(session_ref: &RequestedSession, texts: &[TextRef], expected: &str) -> Result<bool, HttpProblem> {
    match texts {
        [] => return Ok(trim_for_comparison(expected).is_empty()),
        // Equal hashes mean equal texts.
        [only] if only.body == BodyId::hash_text(expected) => return Ok(true),
        _ => {}
    }
    let joined = read_joined_text(session_ref, texts).await?;
    // If several attempts were streamed, the client holds their texts too, before the final one.
    Ok(trim_for_comparison(expected) == trim_for_comparison(&joined)
        || (!joined.is_empty()
            && trim_for_comparison(expected).ends_with(&format!("\n\n{}", trim_for_comparison(&joined)))))
}

/// Reads texts and joins them as clients do.
async fn read_joined_text(session_ref: &RequestedSession, texts: &[TextRef]) -> Result<String, HttpProblem> {
    let ids: Vec<BodyId> = texts.iter().map(|text| text.body).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(texts.iter().map(|text| trim_for_comparison(text)).collect::<Vec<_>>().join("\n\n"))
}

fn session_flow(history: &SessionHistory) -> Option<FlowName> {
    opened_event(history).map(|opened| opened.flow.clone())
}

fn opened_event(history: &SessionHistory) -> Option<&SessionOpened> {
    match history.first_event.as_ref().map(|first| &first.event) {
        Some(Event::SessionOpened(opened)) => Some(opened),
        _ => None,
    }
}
