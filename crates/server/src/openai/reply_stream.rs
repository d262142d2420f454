//! Streams the reply to one message as text that only grows. Streamed text cannot be taken back: if an attempt starts over
//! with another text, that text follows after a paragraph break. No text is sent twice.

use segue_core::body::BodyId;
use segue_core::decide::{InputRefusal, OperatorCommand};
use segue_core::event::{ClientToolResult, ClientTurnOptions, Event, ToolRunHoldReason, TurnOutcome};
use segue_core::ids::{CallId, Seq, TurnId};
use segue_core::prompt::StopReason;
use segue_engine::{Error, SessionSubscription, SessionUpdate, UserMessage};

use super::conversation::{ClientHistoryToolCall, ClientMessageContent};
use super::fingerprint::ConversationFingerprint;
use super::session_lookup::{ClientMessageAction, ResolvedOpenAiRequest};
use super::transcript::{ClientExchangeTokenUsage, RecordedClientExchange, ReplyKey, client_call_id};
use crate::api::session_view::with_session_history;
use crate::extract::CallerSessionRef;
use crate::history::ToolRunHistoryEntry;
use crate::problem::HttpProblem;
use crate::usage::admit_turn;

/// The next part of a reply.
#[derive(Debug)]
pub(crate) enum ReplyUpdate {
    /// More text.
    TextDelta(String),
    /// The reply is complete: the turn has ended, or waits for the client's tools.
    Finished(Box<ReplyToClient>),
}

/// A complete reply.
#[derive(Debug)]
pub(crate) struct ReplyToClient {
    /// The session's name as the caller knows it.
    pub session: String,
    pub point: ReplyKey,
    pub turn: TurnId,
    /// The text and the tool calls.
    pub content: ClientMessageContent,
    pub usage: ClientExchangeTokenUsage,
    /// Why the reply ended, as OpenAI's `finish_reason`.
    pub finish_reason: &'static str,
}

/// A message that is being answered.
#[derive(Debug)]
pub(crate) struct TurnReplyStream {
    session_ref: CallerSessionRef,
    pub point: ReplyKey,
    content_hash: BodyId,
    prior_fingerprint: Option<ConversationFingerprint>,
    subscription: SessionSubscription,
    turn: Option<TurnId>,
    delta_merger: MultiCallTextMerger,
    wants_deltas: bool,
    is_finished: bool,
}

impl TurnReplyStream {
    /// Sends the message or the tool results, unless the session has them already, and subscribes to the session.
    ///
    /// # Errors
    /// The message or the results are not accepted.
    pub(crate) async fn start(
        request: ResolvedOpenAiRequest,
        options: ClientTurnOptions,
        wants_deltas: bool,
    ) -> Result<Self, HttpProblem> {
        let ResolvedOpenAiRequest { session_ref, input, content_hash, prior_fingerprint } = request;
        let point = match input {
            ClientMessageAction::Recorded(point) => point,
            ClientMessageAction::Message { content, idempotency_key } => {
                let _admitted = admit_turn(&session_ref).await?;
                let ClientMessageContent { text, images, .. } = content;
                let message = UserMessage { idempotency_key, images, options, ..UserMessage::from(text) };
                let sent = session_ref.app.engine.send_message(&session_ref.session, message).await;
                ReplyKey { message: sent.map_err(|error| session_ref.to_problem(error))?, first_run: None }
            }
            ClientMessageAction::ToolResults(results) => give_results(&session_ref, results, options).await?,
        };
        let position = with_session_history(&session_ref, None, |history| {
            if point.first_run.is_none() {
                return history.messages.get(&point.message).map(|entry| (entry.position.seq, None));
            }
            let turn = history.messages.get(&point.message).and_then(|entry| history.turns.get(&entry.turn?))?;
            let exchanges = RecordedClientExchange::list_of_turn(history, turn);
            let exchange = exchanges.iter().find(|exchange| exchange.point == Some(point))?;
            Some((exchange.input_seq, Some(exchange.turn)))
        });
        let (input_seq, turn) = position.await?.unwrap_or_default();
        let after = Seq(input_seq.0.saturating_sub(1));
        let subscription = session_ref
            .app
            .engine
            .subscribe(&session_ref.session, after)
            .await
            .map_err(|error| session_ref.to_problem(error))?;
        Ok(Self {
            session_ref,
            point,
            content_hash,
            prior_fingerprint,
            subscription,
            turn,
            delta_merger: MultiCallTextMerger::default(),
            wants_deltas,
            is_finished: false,
        })
    }

    /// Returns the session's name as the caller knows it.
    #[must_use]
    pub(crate) fn session_name(&self) -> String {
        self.session_ref.public_name()
    }

    /// Returns the next part of the reply; `None` after its end.
    ///
    /// # Errors
    /// The turn produced no reply, or the session can no longer be read.
    pub(crate) async fn next_update(&mut self) -> Result<Option<ReplyUpdate>, HttpProblem> {
        while !self.is_finished {
            let app = self.session_ref.app.clone();
            let update = tokio::select! {
                biased;
                () = app.keys.wait_for_revocation(&self.session_ref.caller) => return Err(HttpProblem::key_revoked()),
                () = app.wait_for_shutdown(), if self.wants_deltas => return Err(self.session_ref.to_problem(Error::ShuttingDown)),
                update = self.subscription.next_update() => update.map_err(|error| self.session_ref.to_problem(error))?,
            };
            match update {
                SessionUpdate::TextDelta { call, attempt, offset, text }
                    if self.wants_deltas && self.turn.is_some() =>
                {
                    if let Some(text) = self.delta_merger.push_delta(call, attempt, offset, &text) {
                        return Ok(Some(ReplyUpdate::TextDelta(text)));
                    }
                }
                SessionUpdate::TextDelta { .. } | SessionUpdate::ToolProgress { .. } => {}
                SessionUpdate::Event(recorded) => {
                    if let Some(update) = self.handle_event(&recorded.event).await? {
                        return Ok(Some(update));
                    }
                }
            }
        }
        Ok(None)
    }

    async fn handle_event(&mut self, event: &Event) -> Result<Option<ReplyUpdate>, HttpProblem> {
        match event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&self.point.message) => {
                self.turn = Some(*turn);
            }
            // All tool runs of an answer are recorded in one commit.
            Event::ToolRunHeld { reason: ToolRunHoldReason::ClientResult, .. } if self.turn.is_some() => {
                self.is_finished = true;
                return self.build_finished_reply().await.map(|ended| Some(ReplyUpdate::Finished(Box::new(ended))));
            }
            Event::ReplySent(reply) if self.turn.is_some() && self.wants_deltas => {
                let engine = &self.session_ref.app.engine;
                let texts = engine.read_texts(&self.session_ref.session, &[reply.text.body]).await;
                let texts = texts.map_err(|error| self.session_ref.to_problem(error))?;
                let text = texts.first().map(ToString::to_string).unwrap_or_default();
                return Ok(self.delta_merger.push_final_text(reply.call, &text).map(ReplyUpdate::TextDelta));
            }
            Event::TurnEnded { turn, .. } if self.turn == Some(*turn) => {
                self.is_finished = true;
                return self.build_finished_reply().await.map(|ended| Some(ReplyUpdate::Finished(Box::new(ended))));
            }
            Event::SessionClosed { reason } if self.turn.is_none() => {
                let refusal = segue_core::decide::InputRefusal::Closed { reason: reason.clone() };
                return Err(self.session_ref.to_problem(Error::Refused(refusal)));
            }
            _ => {}
        }
        Ok(None)
    }

    async fn build_finished_reply(&self) -> Result<ReplyToClient, HttpProblem> {
        let reply = read_client_reply(&self.session_ref, self.point).await?;
        reply.ok_or_else(|| self.session_ref.to_problem(Error::Stopped(self.session_ref.session.clone())))
    }

    /// Records that the reply was delivered.
    pub(crate) fn mark_delivered(&self, reply: &ClientMessageContent) {
        let conversation = self
            .prior_fingerprint
            .map(|prior| prior.extend(self.content_hash, reply.content_hash()).to_fingerprint_hash());
        self.session_ref.app.conversation_cache.record_delivery(conversation, &self.session_ref.session, self.point);
    }
}

/// Gives the results of the client's tools to the session. If another request gave the same results just now, the reply
/// to that is used.
async fn give_results(
    session_ref: &CallerSessionRef,
    results: Vec<ClientToolResult>,
    options: ClientTurnOptions,
) -> Result<ReplyKey, HttpProblem> {
    let _admitted = admit_turn(session_ref).await?;
    let named = results.first().map(|result| result.run);
    let given: Vec<(_, BodyId)> = results.iter().map(|result| (result.run, BodyId::hash_text(&result.text))).collect();
    let command = OperatorCommand::ProvideToolResults { results, options };
    let applied = session_ref.app.engine.apply_command(&session_ref.session, command).await;
    let recorded = with_session_history(session_ref, None, |history| {
        let run = history.tool_runs.get(&named?)?;
        let turn = history.calls.get(&run.call?).and_then(|call| history.turns.get(&call.turn?))?;
        let mut runs = turn.tool_runs.iter().filter_map(|id| history.tool_runs.get(id));
        let is_of_round = |other: &&ToolRunHistoryEntry| other.call == run.call && other.client_held_seq.is_some();
        let first_run = runs.find(is_of_round)?.run;
        let is_recorded = given.iter().all(|(run, text)| {
            let end = history.tool_runs.get(run).and_then(|run| run.end.as_ref());
            end.is_some_and(|end| end.text.body == *text)
        });
        Some((ReplyKey { message: *turn.messages.first()?, first_run: Some(first_run) }, is_recorded))
    });
    match (applied, recorded.await?) {
        (Ok(()), Some((point, _)))
        | (Err(Error::Refused(InputRefusal::ToolRunNotHeld { .. })), Some((point, true))) => Ok(point),
        (Ok(()), None) => Err(HttpProblem::new("internal", "the tool results have no turn")),
        (Err(error), _) => Err(session_ref.to_problem(error)),
    }
}

/// Reads a complete reply; `None` if it is not complete.
///
/// # Errors
/// There is no reply, because the turn failed, or the session cannot be read.
pub(crate) async fn read_client_reply(
    session_ref: &CallerSessionRef,
    point: ReplyKey,
) -> Result<Option<ReplyToClient>, HttpProblem> {
    let exchange = with_session_history(session_ref, None, |history| {
        let turn = history.messages.get(&point.message).and_then(|entry| history.turns.get(&entry.turn?))?;
        let same_turn = |exchange: &RecordedClientExchange| {
            // A message may share its turn with an earlier one.
            exchange.point.is_some_and(|other| other.first_run == point.first_run)
        };
        RecordedClientExchange::list_of_turn(history, turn).into_iter().find(same_turn)
    });
    let Some(exchange) = exchange.await?.filter(RecordedClientExchange::has_ended) else { return Ok(None) };
    let ids: Vec<BodyId> = exchange.reply_texts.iter().map(|text| text.body).collect();
    let texts = session_ref.app.engine.read_texts(&session_ref.session, &ids).await;
    let text = texts.map_err(|error| session_ref.to_problem(error))?.join(PARAGRAPH_BREAK);
    if text.is_empty() && exchange.tool_calls.is_empty() {
        return Err(no_reply_problem(exchange.outcome.as_ref()));
    }
    let session = session_ref.public_name();
    let calls = exchange.tool_calls.iter().map(|call| ClientHistoryToolCall {
        id: client_call_id(&session, call.run),
        name: call.tool.clone(),
        arguments: call.arguments.to_string(),
    });
    let content = ClientMessageContent { text, tool_calls: calls.collect(), ..ClientMessageContent::default() };
    let finish_reason = match exchange.stop_reason {
        _ if !content.tool_calls.is_empty() => "tool_calls",
        Some(StopReason::Length | StopReason::Repetition) => "length",
        Some(StopReason::ContentFilter) => "content_filter",
        _ => "stop",
    };
    Ok(Some(ReplyToClient { session, point, turn: exchange.turn, content, usage: exchange.usage, finish_reason }))
}

/// Builds the problem for a turn without a reply. Repeating the request at once would not help.
fn no_reply_problem(outcome: Option<&TurnOutcome>) -> HttpProblem {
    let reason = match outcome {
        Some(TurnOutcome::Failed { reason }) => reason.clone(),
        Some(TurnOutcome::Cancelled) => "it was cancelled".to_owned(),
        Some(TurnOutcome::Interrupted) => "another message replaced it".to_owned(),
        Some(TurnOutcome::Done) | None => "the flow sent no reply".to_owned(),
    };
    HttpProblem::new("turn-failed", format!("the turn produced no reply: {reason}"))
        .with_extension("should_retry", false)
}

/// Merges the text deltas of several calls and attempts into one growing text.
#[derive(Debug, Default)]
struct MultiCallTextMerger {
    has_output: bool,
    current_call: Option<StreamedCall>,
}

#[derive(Debug)]
struct StreamedCall {
    call: CallId,
    attempt: u32,
    /// The text of the current attempt.
    text: String,
    /// The text sent for this call so far.
    sent_text: String,
}

const PARAGRAPH_BREAK: &str = "\n\n";

impl MultiCallTextMerger {
    fn push_delta(&mut self, call: CallId, attempt: u32, offset: usize, text: &str) -> Option<String> {
        let is_first = self.current_call.is_none();
        let current = self.current_call.get_or_insert_with(|| StreamedCall {
            call,
            attempt,
            text: String::new(),
            sent_text: String::new(),
        });
        if current.call != call {
            // The text of a second call is sent as a whole with its reply event.
            return None;
        }
        if current.attempt != attempt {
            current.attempt = attempt;
            current.text.clear();
        }
        if current.text.is_char_boundary(offset) {
            current.text.truncate(offset);
        }
        current.text.push_str(text);
        let more = current.take_unsent_text()?;
        let before = if is_first && self.has_output { PARAGRAPH_BREAK } else { "" };
        self.has_output = true;
        Some(format!("{before}{more}"))
    }

    fn push_final_text(&mut self, call: Option<CallId>, text: &str) -> Option<String> {
        let current = self.current_call.take_if(|current| Some(current.call) == call);
        let more = match current {
            Some(mut current) if !current.sent_text.is_empty() => {
                text.clone_into(&mut current.text);
                // Trailing white space may have been trimmed.
                if current.sent_text.trim_end() == text.trim_end() { None } else { current.take_unsent_text() }
            }
            _ if text.is_empty() => None,
            _ => Some(format!("{}{text}", if self.has_output { PARAGRAPH_BREAK } else { "" })),
        };
        self.has_output |= more.is_some();
        more
    }
}

impl StreamedCall {
    /// Returns the text to send so that all of the current attempt has been sent.
    fn take_unsent_text(&mut self) -> Option<String> {
        if let Some(more) = self.text.strip_prefix(self.sent_text.as_str()) {
            let more = more.to_owned();
            self.sent_text.clone_from(&self.text);
            return Some(more).filter(|more| !more.is_empty());
        }
        // The attempt started over and repeats what was sent.
        if self.sent_text.starts_with(self.text.as_str()) {
            return None;
        }
        self.sent_text.clone_from(&self.text);
        Some(format!("{PARAGRAPH_BREAK}{}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: CallId = CallId(1);
    const B: CallId = CallId(2);

    fn all(parts: impl IntoIterator<Item = Option<String>>) -> String {
        parts.into_iter().flatten().collect()
    }

    #[test]
    fn streamed_text_is_not_sent_again() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "Hel"),
            merger.push_delta(A, 1, 3, "lo"),
            merger.push_final_text(Some(A), "Hello there"),
        ];
        assert_eq!(all(update), "Hello there");
        let update = [
            merger.push_delta(B, 1, 0, "And"),
            merger.push_final_text(Some(B), "And so on"),
            merger.push_final_text(None, "Bye"),
        ];
        assert_eq!(all(update), "\n\nAnd so on\n\nBye");
    }

    #[test]
    fn repeated_text_of_a_retry_is_sent_once() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "Once upon"),
            merger.push_delta(A, 2, 0, "Once"),
            merger.push_delta(A, 2, 4, " upon a time"),
            merger.push_final_text(Some(A), "Once upon a time"),
        ];
        assert_eq!(all(update), "Once upon a time");
    }

    #[test]
    fn different_text_of_a_retry_follows_a_paragraph_break() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "On"),
            merger.push_delta(A, 2, 0, "Never"),
            merger.push_final_text(Some(A), "Never mind"),
        ];
        assert_eq!(all(update), "On\n\nNever mind");
    }

    #[test]
    fn texts_of_two_calls_are_not_interleaved() {
        let mut merger = MultiCallTextMerger::default();
        let update = [
            merger.push_delta(A, 1, 0, "one "),
            merger.push_delta(B, 1, 0, "two"),
            merger.push_delta(A, 1, 4, "three"),
            merger.push_final_text(Some(A), "one three"),
            merger.push_final_text(Some(B), "two"),
        ];
        assert_eq!(all(update), "one three\n\ntwo");
    }
}
