//! Finds the session that a request belongs to: the named session, the session that holds exactly this conversation, or a new
//! one. If a client went back and continued differently, the session is forked where the two differ.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::event::{ClientToolResult, Event, SessionOpened, ToolRunHoldReason};
use segue_core::ids::{FlowName, IdempotencyKey, MessageId, Seq, SessionId, ToolRunId};
use segue_core::session::Session;
use segue_engine::{SessionOptions, SessionQuery};
use serde_json::{Value, json};

use super::OpenAiSessionHeaders;
use super::client_options::flow_accepts_options;
use super::conversation::{ClientConversation, ClientHistoryAsExchanges, ClientMessageContent, trim_for_comparison};
use super::fingerprint::ConversationFingerprint;
use super::transcript::{
    RecordedClientExchange, RecordedMessageOrToolResults, ReplyKey, StoredMessageRefs, client_call_id,
    parse_client_call_id,
};
use super::transcript_match::{content_matches, input_matches, read_joined_text, reply_matches};
use crate::api::session_view::with_session_history;
use crate::api::sessions::open_new_session;
use crate::api::transfer::create_fork;
use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::CallerSessionRef;
use crate::history::SessionHistory;
use crate::limits::{CALLED_SESSIONS_MAX, CANDIDATE_SESSIONS_MAX, SEARCH_TEXT_CHARS_MAX};
use crate::problem::HttpProblem;

/// The setting of a flow that holds a system prompt.
const INSTRUCTION_SETTING: &str = "instruction";

/// The session and message that a request was resolved to.
#[derive(Debug)]
pub(crate) struct ResolvedOpenAiRequest {
    pub session_ref: CallerSessionRef,
    pub input: ClientMessageAction,
    /// The hash of the new message.
    pub content_hash: BodyId,
    /// The fingerprint of the conversation before this message; unknown for a session found by name.
    pub prior_fingerprint: Option<ConversationFingerprint>,
}

/// What is to be done with the new message of a request.
#[derive(Debug)]
pub(crate) enum ClientMessageAction {
    /// It is sent to the session.
    Message {
        content: ClientMessageContent,
        /// The key under which a repeated request is recognized.
        idempotency_key: Option<IdempotencyKey>,
    },
    /// It consists of results for tool runs that wait for them.
    ToolResults(Vec<ClientToolResult>),
    /// The session has it already, and only its reply is wanted.
    Recorded(ReplyKey),
}

impl ResolvedOpenAiRequest {
    /// Resolves to a message that is sent to the session, unless the session has it already.
    pub(crate) fn with_message(
        session_ref: CallerSessionRef,
        content: ClientMessageContent,
        idempotency_key: Option<IdempotencyKey>,
        recorded: Option<MessageId>,
    ) -> Self {
        let content_hash = content.content_hash();
        let input = match recorded {
            Some(message) => ClientMessageAction::Recorded(ReplyKey { message, first_run: None }),
            None => ClientMessageAction::Message { content, idempotency_key },
        };
        Self { session_ref, input, content_hash, prior_fingerprint: None }
    }

    fn with_fingerprint(self, prior: ConversationFingerprint) -> Self {
        Self { prior_fingerprint: Some(prior), ..self }
    }
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
    hints: &OpenAiSessionHeaders,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let instruction = client_instruction_setting(app, flow, conversation);
    let separated = instruction.is_some().then(|| conversation.without_instructions());
    let conversation = separated.as_ref().unwrap_or(conversation);
    let target = &RequestedFlow { name: flow, instruction };
    if conversation.has_tool_messages() && !flow_accepts_options(app, flow) {
        let detail = format!("the flow `{flow}` uses its own tools; send no tool calls or results, or use `chat`");
        return Err(HttpProblem::bad_request(detail).with_extension("field", "messages"));
    }
    if let Some(name) = &hints.session_name {
        return resolve_named_session(app, caller, target, conversation, hints, name).await;
    }
    if conversation.has_prior_messages() {
        for prefix in conversation.possible_prefixes() {
            let fingerprint = prefix.fingerprint(caller, flow);
            for session in app.conversation_cache.find_sessions(fingerprint.to_fingerprint_hash()) {
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
    check_results_have_calls(conversation)?;
    let session_ref = open_flow_session(app, caller, target, None).await?;
    let content = conversation.flattened_message();
    let empty = ConversationFingerprint::empty(caller, flow);
    let key = hints.idempotency_key.clone().or_else(|| Some(derive_idempotency_key(empty, &content, 0)));
    Ok(ResolvedOpenAiRequest::with_message(session_ref, content, key, None).with_fingerprint(empty))
}

/// Refuses a new conversation that begins with tool results.
fn check_results_have_calls(conversation: &ClientConversation) -> Result<(), HttpProblem> {
    if conversation.has_prior_messages() || !conversation.ends_with_tool_results() {
        return Ok(());
    }
    let detail = "tool results need the tool calls before them, a `previous_response_id`, or the name of their session";
    Err(HttpProblem::bad_request(detail).with_extension("field", "messages"))
}

/// The flow that a client asks for, with the client's system prompt if the flow has a setting for it.
struct RequestedFlow<'c> {
    name: &'c FlowName,
    instruction: Option<String>,
}

impl RequestedFlow<'_> {
    /// Returns whether a session of this flow was opened with the same instruction.
    fn has_same_instruction(&self, app: &AppState, settings: &Value) -> bool {
        let default = app.engine.default_settings(self.name).and_then(|defaults| defaults.get(INSTRUCTION_SETTING));
        let wanted = self.instruction.as_deref().or(default.and_then(Value::as_str));
        settings.get(INSTRUCTION_SETTING).and_then(Value::as_str) == wanted
    }
}

/// Returns the client's instructions as a setting of the flow; `None` if there are none, or the flow does not accept them.
fn client_instruction_setting(app: &AppState, flow: &FlowName, conversation: &ClientConversation) -> Option<String> {
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
    target: &RequestedFlow<'_>,
    conversation: &ClientConversation,
    hints: &OpenAiSessionHeaders,
    name: &str,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let flow = target.name;
    // An invalid name is rejected before any lookup.
    caller.full_session_id(name).map_err(|problem| problem.with_extension("field", "metadata.session"))?;
    let found = match CallerSessionRef::resolve(app, caller.clone(), name).await {
        Ok(session_ref) => match with_session_history(&session_ref, None, session_flow).await {
            Ok(session_flow_name) => Some((session_ref, session_flow_name)),
            Err(problem) if problem.code == "no-such-session" => None,
            Err(problem) => return Err(problem),
        },
        Err(problem) if problem.code == "no-such-session" => None,
        Err(problem) => return Err(problem),
    };
    let Some((session_ref, session_flow_name)) = found else {
        check_results_have_calls(conversation)?;
        let session_ref = open_flow_session(app, caller, target, Some(name)).await?;
        let (content, key) = (conversation.flattened_message(), hints.idempotency_key.clone());
        return Ok(ResolvedOpenAiRequest::with_message(session_ref, content, key, None));
    };
    if session_flow_name.as_ref() != Some(flow) {
        let session_flow_name = session_flow_name.map(|name| name.to_string()).unwrap_or_default();
        let detail = format!(
            "the session `{name}` uses the flow `{session_flow_name}`, not `{flow}`; send the name of its flow as `model`"
        );
        return Err(HttpProblem::bad_request(detail).with_extension("field", "model"));
    }
    let content = conversation.new_message().clone();
    if conversation.ends_with_tool_results() {
        return resolve_results_in_session(session_ref, content).await;
    }
    let recorded = if hints.is_retry && hints.idempotency_key.is_none() {
        last_message_if_equal(&session_ref, &content).await?
    } else {
        None
    };
    if recorded.is_none() {
        check_awaits_message(&session_ref).await?;
    }
    Ok(ResolvedOpenAiRequest::with_message(session_ref, content, hints.idempotency_key.clone(), recorded))
}

/// Refuses a message to a session that waits for tool results: it would only be answered after them.
///
/// # Errors
/// The session waits for the client's tools.
pub(crate) async fn check_awaits_message(session_ref: &CallerSessionRef) -> Result<(), HttpProblem> {
    let state = crate::api::session_view::read_session_state(session_ref, None).await?.1;
    let Some(run) = first_run_for_client(&state.session) else { return Ok(()) };
    let id = client_call_id(&session_ref.public_name(), run);
    let detail = format!("the session waits for the result of the tool call `{id}`; send it first");
    Err(HttpProblem::bad_request(detail).with_extension("field", "messages"))
}

/// Returns the first tool run that waits for the client's result.
fn first_run_for_client(session: &Session) -> Option<ToolRunId> {
    let mut held = session.held_tool_runs.iter();
    held.find(|(_, held)| held.reason == ToolRunHoldReason::ClientResult).map(|(run, _)| *run)
}

/// Resolves tool results for a session that is known by name or by an earlier response. Results that the session has
/// already are not given again.
///
/// # Errors
/// The results are not for tool runs of this session.
pub(crate) async fn resolve_results_in_session(
    session_ref: CallerSessionRef,
    content: ClientMessageContent,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let content_hash = content.content_hash();
    let exchanges = with_session_history(&session_ref, None, RecordedClientExchange::list_of_session).await?;
    for exchange in exchanges.iter().rev() {
        if let (RecordedMessageOrToolResults::ToolResults(_), Some(point)) = (&exchange.input, exchange.point)
            && input_matches(&session_ref, &exchange.input, &content).await?
        {
            let input = ClientMessageAction::Recorded(point);
            return Ok(ResolvedOpenAiRequest { session_ref, input, content_hash, prior_fingerprint: None });
        }
    }
    let input = ClientMessageAction::ToolResults(to_client_results(&content)?);
    Ok(ResolvedOpenAiRequest { session_ref, input, content_hash, prior_fingerprint: None })
}

/// Returns the results by tool run.
fn to_client_results(content: &ClientMessageContent) -> Result<Vec<ClientToolResult>, HttpProblem> {
    let results = content.tool_results.iter().map(|result| match parse_client_call_id(&result.tool_call_id) {
        Some((_, run)) => Ok(ClientToolResult { run, text: result.text.clone() }),
        None => {
            let detail = format!("`{}` is not the id of a tool call of this server", result.tool_call_id);
            Err(HttpProblem::bad_request(detail).with_extension("field", "messages"))
        }
    });
    results.collect()
}

async fn open_flow_session(
    app: &AppState,
    caller: &Caller,
    target: &RequestedFlow<'_>,
    name: Option<&str>,
) -> Result<CallerSessionRef, HttpProblem> {
    let mid_turn_policy = app.options.default_mid_turn_policy;
    let mut options = SessionOptions { mid_turn_policy, ..SessionOptions::default() };
    if let Some(instruction) = &target.instruction {
        options.settings = json!({ INSTRUCTION_SETTING: instruction });
    }
    open_new_session(app, caller.clone(), target.name, name, options).await
}

/// Returns the last message of a session if it has this content.
async fn last_message_if_equal(
    session_ref: &CallerSessionRef,
    content: &ClientMessageContent,
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
    target: &RequestedFlow<'_>,
    conversation: &ClientConversation,
    hints: &OpenAiSessionHeaders,
) -> Result<Option<ResolvedOpenAiRequest>, HttpProblem> {
    let flow = target.name;
    let mut sessions = list_sessions_of_tool_calls(caller, conversation);
    if let Some(reply) = conversation.last_assistant_text() {
        sessions.extend(list_candidate_sessions(app, caller, flow, reply).await?);
    }
    for session in sessions {
        let Some(candidate) = CandidateSession::load(app, caller, target, session).await? else { continue };
        let first_message_hash = candidate.first_message_hash().await?;
        // The comparison of a first message reads it as a whole, so it is only made where the hashes are equal. The client's own
        // first message is always compared, because its instructions may have changed.
        let possible = conversation
            .possible_prefixes()
            .filter(|prefix| prefix.is_from_first_message() || Some(prefix.first_message_hash()) == first_message_hash);
        for prefix in possible {
            let resolved = match_session(candidate.clone(), flow, prefix, conversation, hints).await?;
            if resolved.is_some() {
                return Ok(resolved);
            }
        }
    }
    Ok(None)
}

/// Returns the sessions that the newest tool calls of the conversation name.
fn list_sessions_of_tool_calls(caller: &Caller, conversation: &ClientConversation) -> Vec<SessionId> {
    let names = conversation.tool_call_ids().filter_map(parse_client_call_id).map(|(session, _)| session);
    let mut sessions: Vec<SessionId> = Vec::new();
    for session in names.take(CALLED_SESSIONS_MAX).filter_map(|name| caller.full_session_id(name).ok()) {
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }
    sessions
}

/// Searches for the session that an earlier attempt of the same request created. Its reply may have been sent without
/// arriving.
async fn find_retried_first_message(
    app: &AppState,
    caller: &Caller,
    target: &RequestedFlow<'_>,
    conversation: &ClientConversation,
    hints: &OpenAiSessionHeaders,
) -> Result<Option<ResolvedOpenAiRequest>, HttpProblem> {
    let flow = target.name;
    let content = conversation.flattened_message();
    for session in list_candidate_sessions(app, caller, flow, &conversation.new_message().text).await? {
        let session_ref = CallerSessionRef { app: app.clone(), caller: caller.clone(), session };
        let first = with_session_history(&session_ref, None, |history| {
            let has_same_instruction =
                opened_event(history).is_some_and(|opened| target.has_same_instruction(app, &opened.settings));
            let first = history.messages.values().next().cloned();
            first.filter(|_| history.messages.len() == 1 && has_same_instruction)
        });
        let Some(first) = first.await? else { continue };
        if content_matches(&session_ref, &StoredMessageRefs::from_messages(&[&first]), &content).await? {
            let key = hints.idempotency_key.clone();
            let resolved = ResolvedOpenAiRequest::with_message(session_ref, content, key, Some(first.message));
            return Ok(Some(resolved.with_fingerprint(ConversationFingerprint::empty(caller, flow))));
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
    session_ref: CallerSessionRef,
    exchanges: Arc<[RecordedClientExchange]>,
}

impl CandidateSession {
    /// Loads a session. Returns `None` if it has another flow or instruction, or was deleted after it was cached.
    async fn load(
        app: &AppState,
        caller: &Caller,
        target: &RequestedFlow<'_>,
        session: SessionId,
    ) -> Result<Option<Self>, HttpProblem> {
        let session_ref = CallerSessionRef { app: app.clone(), caller: caller.clone(), session };
        let exchanges = with_session_history(&session_ref, None, |history| {
            let is_wanted = opened_event(history).is_some_and(|opened| {
                opened.flow == *target.name && target.has_same_instruction(app, &opened.settings)
            });
            is_wanted.then(|| RecordedClientExchange::list_of_session(history).into())
        });
        match exchanges.await {
            Ok(exchanges) => Ok(exchanges.map(|exchanges| Self { session_ref, exchanges })),
            Err(problem) if problem.code == "no-such-session" => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Returns the content hash of the first message that the client knows of.
    async fn first_message_hash(&self) -> Result<Option<BodyId>, HttpProblem> {
        let first = self.exchanges.iter().find(|exchange| !exchange.has_ended_without_reply());
        let Some(RecordedMessageOrToolResults::Message(content)) = first.map(|first| &first.input) else {
            return Ok(None);
        };
        let text = read_joined_text(&self.session_ref, &content.texts).await?;
        let text_hash = BodyId::hash_text(trim_for_comparison(&text));
        Ok(Some(content.images.iter().copied().fold(text_hash, BodyId::chain_hash)))
    }
}

/// Resolves a request to a session if that session holds exactly these earlier messages.
async fn match_session(
    candidate: CandidateSession,
    flow: &FlowName,
    prefix: ClientHistoryAsExchanges<'_>,
    conversation: &ClientConversation,
    hints: &OpenAiSessionHeaders,
) -> Result<Option<ResolvedOpenAiRequest>, HttpProblem> {
    let CandidateSession { session_ref, exchanges } = candidate;
    let mut later = &exchanges[..];
    let mut fingerprint = ConversationFingerprint::empty(&session_ref.caller, flow);
    let mut end = Seq(0);
    for (asked, answered) in prefix.exchanges() {
        while later.first().is_some_and(RecordedClientExchange::has_ended_without_reply) {
            later = &later[1..];
        }
        let Some((exchange, rest)) = later.split_first() else { return Ok(None) };
        if !input_matches(&session_ref, &exchange.input, &asked).await?
            || !reply_matches(&session_ref, exchange, answered).await?
        {
            return Ok(None);
        }
        fingerprint = fingerprint.extend(asked.content_hash(), answered.content_hash());
        end = exchange.end_seq.unwrap_or(end);
        later = rest;
    }
    let content = conversation.new_message().clone();
    let resolved = match (conversation.ends_with_tool_results(), content.tool_results.is_empty()) {
        (true, _) => give_results_or_fork(session_ref, end, later, content, hints).await?,
        (false, true) => continue_or_fork(session_ref, (fingerprint, end), later, content, hints).await?,
        // A message that follows tool results directly: the turn that waits for them cannot be continued with it.
        (false, false) => return Ok(None),
    };
    Ok(Some(resolved.with_fingerprint(fingerprint)))
}

/// Gives the results to the session if it waits for them; otherwise to a fork that does. Results that the session has
/// already, and whose reply may not have arrived, are not given again.
///
/// # Errors
/// The results are not for tool runs, or the session cannot be forked.
pub(crate) async fn give_results_or_fork(
    session_ref: CallerSessionRef,
    end: Seq,
    later: &[RecordedClientExchange],
    content: ClientMessageContent,
    hints: &OpenAiSessionHeaders,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let content_hash = content.content_hash();
    let resolved =
        |session_ref, input| ResolvedOpenAiRequest { session_ref, input, content_hash, prior_fingerprint: None };
    if let [only] = later
        && let Some(point) = only.point.filter(|_| !only.has_ended_without_reply())
        && (hints.is_retry || !session_ref.app.conversation_cache.was_delivered(&session_ref.session, point))
        && input_matches(&session_ref, &only.input, &content).await?
    {
        return Ok(resolved(session_ref, ClientMessageAction::Recorded(point)));
    }
    let input = ClientMessageAction::ToolResults(to_client_results(&content)?);
    let state = crate::api::session_view::read_session_state(&session_ref, None).await?.1;
    if later.is_empty() && first_run_for_client(&state.session).is_some() {
        return Ok(resolved(session_ref, input));
    }
    Ok(resolved(create_fork(&session_ref, Some(end), None).await?, input))
}

/// Continues the session if the matched messages are its last ones; otherwise forks it after them.
async fn continue_or_fork(
    session_ref: CallerSessionRef,
    (fingerprint, end): (ConversationFingerprint, Seq),
    later: &[RecordedClientExchange],
    content: ClientMessageContent,
    hints: &OpenAiSessionHeaders,
) -> Result<ResolvedOpenAiRequest, HttpProblem> {
    let mut failed = 0;
    let mut needs_fork = false;
    for exchange in later {
        let is_same_message = input_matches(&session_ref, &exchange.input, &content).await?;
        let was_delivered = !hints.is_retry
            && exchange
                .point
                .is_some_and(|point| session_ref.app.conversation_cache.was_delivered(&session_ref.session, point));
        if exchange.has_ended_without_reply() {
            failed += usize::from(is_same_message);
        } else if !is_same_message || was_delivered || later.len() > failed + 1 {
            needs_fork = true;
        }
    }
    let key = hints.idempotency_key.clone().or_else(|| Some(derive_idempotency_key(fingerprint, &content, failed)));
    let session_ref = if needs_fork { create_fork(&session_ref, Some(end), None).await? } else { session_ref };
    Ok(ResolvedOpenAiRequest::with_message(session_ref, content, key, None))
}

fn derive_idempotency_key(
    fingerprint: ConversationFingerprint,
    content: &ClientMessageContent,
    failed: usize,
) -> IdempotencyKey {
    IdempotencyKey::from(format!(
        "openai-{}-{failed}",
        fingerprint.to_fingerprint_hash().chain_hash(content.content_hash())
    ))
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
