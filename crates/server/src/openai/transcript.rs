//! A session as its client knows it: what the client sent, messages and results of its tools, and what it got back,
//! texts and calls of its tools. One turn has several such exchanges if the model called the client's tools.

use std::str::FromStr;

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{ToolRunOutcome, TurnOutcome};
use segue_core::ids::{CallId, MessageId, Seq, ToolRunId, TurnId};
use segue_core::prompt::StopReason;
use serde_json::Value;

use crate::history::{
    CallEndHistoryEntry, SessionHistory, ToolRunEndHistoryEntry, ToolRunHistoryEntry, TurnHistoryEntry,
    UserMessageHistoryEntry,
};

/// Names a reply: the one to a message, or the one to the tool results that begin with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReplyKey {
    pub message: MessageId,
    pub first_run: Option<ToolRunId>,
}

/// Writes `m3`, or `m3x2` for the reply to tool results.
impl std::fmt::Display for ReplyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.message)?;
        self.first_run.map_or(Ok(()), |run| write!(f, "{run}"))
    }
}

impl FromStr for ReplyKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let numbers = text.strip_prefix('m').ok_or(())?;
        let (message, run) = numbers.split_once('x').map_or((numbers, None), |(message, run)| (message, Some(run)));
        let number = |digits: &str| {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_plain).ok_or(())
        };
        let first_run = run.map(number).transpose()?.map(ToolRunId);
        Ok(Self { message: MessageId(number(message)?), first_run })
    }
}

/// What a client sent, as the session holds it.
#[derive(Debug, Clone)]
pub(crate) enum RecordedMessageOrToolResults {
    Message(StoredMessageRefs),
    ToolResults(Vec<(ToolRunId, TextRef)>),
}

/// A call of a client's tool.
#[derive(Debug, Clone)]
pub(crate) struct RecordedClientToolCall {
    pub run: ToolRunId,
    pub tool: String,
    pub arguments: Value,
}

/// What a client sent, and what it got back.
#[derive(Debug, Clone)]
pub(crate) struct RecordedClientExchange {
    pub turn: TurnId,
    /// `None` if the turn answers no message.
    pub point: Option<ReplyKey>,
    pub input: RecordedMessageOrToolResults,
    /// The first event of the input.
    pub input_seq: Seq,
    pub reply_texts: Vec<TextRef>,
    pub tool_calls: Vec<RecordedClientToolCall>,
    /// The last event of the reply; `None` while there is no complete reply.
    pub end_seq: Option<Seq>,
    /// How the turn ended, if the exchange is its last.
    pub outcome: Option<TurnOutcome>,
    pub stop_reason: Option<StopReason>,
    pub usage: ClientExchangeTokenUsage,
}

/// The tokens that an exchange used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientExchangeTokenUsage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
}

/// The references of stored messages, for comparison.
#[derive(Debug, Clone)]
pub(crate) struct StoredMessageRefs {
    pub texts: Vec<TextRef>,
    pub images: Vec<BodyId>,
}

impl StoredMessageRefs {
    /// Combines the content of several messages.
    pub(crate) fn from_messages(messages: &[&UserMessageHistoryEntry]) -> Self {
        let images = messages.iter().flat_map(|message| &message.images);
        Self {
            texts: messages.iter().map(|message| message.text).collect(),
            images: images.map(|image| image.body).collect(),
        }
    }
}

impl RecordedClientExchange {
    /// Returns all exchanges of a session.
    pub(crate) fn list_of_session(history: &SessionHistory) -> Vec<Self> {
        history.turns.values().flat_map(|turn| Self::list_of_turn(history, turn)).collect()
    }

    /// Returns the exchanges of a turn: one for the message, and one for each round of tool results.
    pub(crate) fn list_of_turn(history: &SessionHistory, turn: &TurnHistoryEntry) -> Vec<Self> {
        let messages: Vec<&UserMessageHistoryEntry> =
            turn.messages.iter().filter_map(|message| history.messages.get(message)).collect();
        let message = turn.messages.first().copied();
        let rounds = client_tool_rounds(history, turn);
        let round_calls: Vec<CallId> = rounds.iter().map(|(call, _)| *call).collect();
        let mut exchanges = Vec::with_capacity(rounds.len() + 1);
        let mut next = (
            RecordedMessageOrToolResults::Message(StoredMessageRefs::from_messages(&messages)),
            messages.first().map_or(turn.started.seq, |message| message.position.seq),
            message.map(|message| ReplyKey { message, first_run: None }),
        );
        for (call, runs) in &rounds {
            let (input, input_seq, point) = next;
            let end_seq = runs.iter().filter_map(|run| run.client_held_seq).max();
            exchanges.push(Self {
                turn: turn.turn,
                point,
                input,
                input_seq,
                reply_texts: reply_texts(turn, |of| of == Some(*call)),
                tool_calls: runs.iter().map(|run| RecordedClientToolCall::from_run(run)).collect(),
                end_seq,
                outcome: None,
                stop_reason: None,
                usage: usage_between(history, turn, input_seq, end_seq),
            });
            let Some((results, first)) = client_results(runs) else { return exchanges };
            let first_run = runs.first().map(|run| run.run);
            next = (
                RecordedMessageOrToolResults::ToolResults(results),
                first,
                message.map(|message| ReplyKey { message, first_run }),
            );
        }
        let (input, input_seq, point) = next;
        let end_seq = turn.ended.map(|position| position.seq);
        let last_call = turn.replies.last().and_then(|reply| history.calls.get(&reply.call?));
        let stop_reason = match last_call.and_then(|call| call.end.as_ref()) {
            Some(CallEndHistoryEntry::Answered { stop_reason, .. }) => *stop_reason,
            _ => None,
        };
        exchanges.push(Self {
            turn: turn.turn,
            point,
            input,
            input_seq,
            reply_texts: reply_texts(turn, |of| of.is_none_or(|call| !round_calls.contains(&call))),
            tool_calls: Vec::new(),
            end_seq,
            outcome: turn.outcome.clone(),
            stop_reason,
            usage: match rounds.is_empty() {
                true => {
                    let spent = crate::api::common_types::CallTotalsView::from(turn.spent);
                    ClientExchangeTokenUsage { input: spent.input, output: spent.output, cached: spent.cached }
                }
                false => usage_between(history, turn, input_seq, end_seq),
            },
        });
        exchanges
    }

    /// Returns whether the client has got, or can get, everything that follows from its input.
    pub(crate) fn has_ended(&self) -> bool {
        self.end_seq.is_some()
    }

    /// Returns whether the exchange ended without a reply, so that the client cannot know of it.
    pub(crate) fn has_ended_without_reply(&self) -> bool {
        self.has_ended() && self.reply_texts.is_empty() && self.tool_calls.is_empty()
    }
}

impl RecordedClientToolCall {
    fn from_run(run: &ToolRunHistoryEntry) -> Self {
        Self { run: run.run, tool: run.tool.to_string(), arguments: run.arguments.clone() }
    }
}

/// Returns the tool runs of a turn that were passed to the client, by the call that requested them.
fn client_tool_rounds<'h>(
    history: &'h SessionHistory,
    turn: &TurnHistoryEntry,
) -> Vec<(CallId, Vec<&'h ToolRunHistoryEntry>)> {
    let mut rounds: Vec<(CallId, Vec<&ToolRunHistoryEntry>)> = Vec::new();
    let runs = turn.tool_runs.iter().filter_map(|run| history.tool_runs.get(run));
    for run in runs.filter(|run| run.client_held_seq.is_some()) {
        let Some(call) = run.call else { continue };
        match rounds.last_mut() {
            Some((last, runs)) if *last == call => runs.push(run),
            _ => rounds.push((call, vec![run])),
        }
    }
    rounds
}

/// Returns the client's results and the first event about them; `None` unless the client gave all of them.
fn client_results(runs: &[&ToolRunHistoryEntry]) -> Option<(Vec<(ToolRunId, TextRef)>, Seq)> {
    let ends: Vec<(ToolRunId, &ToolRunEndHistoryEntry)> =
        runs.iter().map(|run| Some((run.run, run.end.as_ref()?))).collect::<Option<_>>()?;
    if ends.iter().any(|(_, end)| end.outcome != ToolRunOutcome::Done) {
        return None;
    }
    let first = ends.iter().map(|(_, end)| end.position.seq).min()?;
    Some((ends.into_iter().map(|(run, end)| (run, end.text)).collect(), first))
}

fn reply_texts(turn: &TurnHistoryEntry, is_of: impl Fn(Option<CallId>) -> bool) -> Vec<TextRef> {
    turn.replies.iter().filter(|reply| is_of(reply.call)).map(|reply| reply.text).collect()
}

/// Sums the tokens of the calls that were answered between two events.
fn usage_between(
    history: &SessionHistory,
    turn: &TurnHistoryEntry,
    from: Seq,
    to: Option<Seq>,
) -> ClientExchangeTokenUsage {
    let mut sum = ClientExchangeTokenUsage::default();
    for call in turn.calls.iter().filter_map(|call| history.calls.get(call)) {
        if let Some(CallEndHistoryEntry::Answered { position, usage, .. }) = &call.end
            && position.seq > from
            && to.is_none_or(|to| position.seq <= to)
        {
            sum.input += u64::from(usage.input_tokens);
            sum.output += u64::from(usage.output_tokens);
            sum.cached += u64::from(usage.cached_tokens);
        }
    }
    sum
}

const CALL_ID_PREFIX: &str = "call_";

/// Returns the id by which a client knows a tool run. It names the session, so that the result finds its way.
#[must_use]
pub(crate) fn client_call_id(session: &str, run: ToolRunId) -> String {
    format!("{CALL_ID_PREFIX}{run}_{session}")
}

/// Returns the session's name and the run of an id that a client sends back.
#[must_use]
pub(crate) fn parse_client_call_id(id: &str) -> Option<(&str, ToolRunId)> {
    let (run, session) = id.strip_prefix(CALL_ID_PREFIX)?.split_once('_')?;
    let number = run.strip_prefix('x').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((session, ToolRunId(number.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_points_and_call_ids_survive_a_round_trip() {
        for point in [
            ReplyKey { message: MessageId(3), first_run: None },
            ReplyKey { message: MessageId(12), first_run: Some(ToolRunId(7)) },
        ] {
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        for invalid in ["", "m", "3", "m3x", "mx2", "m3x2x1", "m-1", "m+1"] {
            assert!(invalid.parse::<ReplyKey>().is_err(), "{invalid}");
        }
        assert_eq!(parse_client_call_id(&client_call_id("a_b.c", ToolRunId(4))), Some(("a_b.c", ToolRunId(4))));
        for foreign in ["", "call_", "call_abc", "call_x_a", "call_y1_a", "toolu_1"] {
            assert_eq!(parse_client_call_id(foreign), None, "{foreign}");
        }
    }
}
