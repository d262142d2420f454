//! Counts the prompt tokens of sixty turns with the concierge and three experts, compared with sending every call the
//! whole history. Measures no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use futures_util::{StreamExt, stream};
use segue_core::context::{PreviousPromptComparison, TokenCounter as _};
use segue_core::event::{Event, TurnOutcome};
use segue_core::ids::{CallId, Seq, SessionId};
use segue_core::prompt::ModelOutputFormat;
use segue_engine::{Engine, EngineConfig, O200kTokenCounter, SessionOptions, UserMessage};
use segue_models::{
    LanguageModel, ModelDescription, ModelRegistry, ModelRequest, RehearsalModel, ReplyChunk, ReplyChunkStream,
};
use segue_store::memory::InMemoryStore;
use serde_json::json;

use super::{BenchMeasurementFigures, BenchMeasurementSpec};
use crate::sample_text;
use crate::stats::round_significant;

const USER_TOKENS: usize = 60;
const REPLY_TOKENS: usize = 200;
const EXPERTS: usize = 3;
/// The first two turns: a question, and the reply to its answer.
const FIRST_MESSAGES: [&str; 2] = ["Should I open a small bakery?", "I have some savings and a free year."];
/// Talk, for any phase.
const TALK: [&str; 14] = [
    "What about the neighbourhood?",
    "My partner has doubts.",
    "What about the rent?",
    "I like bread more than cake.",
    "What would you ask a baker?",
    "I have never had employees.",
    "Mornings are fine with me.",
    "What about the oven?",
    "How long may this take?",
    "I wrote some notes.",
    "How small is small?",
    "I asked a friend.",
    "How do I choose the day?",
    "What about advertising?",
];
const PLAN_REQUEST: &str = "I'm going to do it, give me a plan.";
const STEP_DONE: &str = "It is done.";
/// The turn in which the user of long visits asks for a plan, so that explorer and executor have equally many turns.
const PLAN_TURN: usize = 31;
/// The other turns of long visits that are not talk: the obstacle, and the steps of the plan.
const LONG_VISIT_EVENTS: [(usize, &str); 5] =
    [(40, STEP_DONE), (46, "I am stuck: the landlord says no."), (47, "What now?"), (52, STEP_DONE), (60, STEP_DONE)];
/// How much of the talk precedes a request for a plan with short visits.
const SHORT_VISIT_TALK: usize = 8;
/// What follows that talk with short visits, repeatedly: a plan, its three steps with an obstacle, and the end of the plan.
const SHORT_VISIT_PLAN: [&str; 13] = [
    PLAN_REQUEST,
    "How long may this take?",
    "I wrote some notes.",
    "What belongs into it?",
    STEP_DONE,
    "How small is small?",
    "I asked a friend.",
    "I am stuck: the landlord says no.",
    "What now?",
    STEP_DONE,
    "How do I choose the day?",
    "What about advertising?",
    STEP_DONE,
];
const SIGNAL_FORMS: [&str; 2] = ["inline", "structured"];
const BATCH_RULES: [&str; 2] = ["on_signal", "every_turn"];
/// The shortest prefix that several vendors cache.
const SHORTEST_CACHED_PREFIX_TOKENS: f64 = 1_024.0;
/// Events read at a time.
const EVENTS_PAGE: usize = 512;

/// How long the user stays in a phase.
#[derive(Debug, Clone, Copy)]
enum VisitLength {
    /// One plan, half of the turns before it and half of them with it.
    Long,
    /// A plan every 21 turns.
    Short,
}

impl VisitLength {
    fn metric(self, batch: &str) -> &'static str {
        match (self, batch == "on_signal") {
            (Self::Long, true) => "tokens",
            (Self::Long, false) => "tokens_every_turn",
            (Self::Short, true) => "tokens_short_visits",
            (Self::Short, false) => "tokens_short_visits_every_turn",
        }
    }

    fn messages(self, turns: usize) -> Vec<&'static str> {
        let followers: Box<dyn Iterator<Item = &'static str>> = match self {
            Self::Short => Box::new(TALK.into_iter().take(SHORT_VISIT_TALK).chain(SHORT_VISIT_PLAN).cycle()),
            Self::Long => Box::new((FIRST_MESSAGES.len() + 1..).map(|turn| {
                let event = LONG_VISIT_EVENTS.into_iter().find(|(at, _)| *at == turn).map(|(_, message)| message);
                let talk = TALK[turn % TALK.len()];
                if turn == PLAN_TURN { PLAN_REQUEST } else { event.unwrap_or(talk) }
            })),
        };
        FIRST_MESSAGES.into_iter().chain(followers).take(turns).collect()
    }
}

/// The prompt tokens of a conversation.
#[derive(Debug, Default)]
struct BenchConversationPromptTokens {
    calls: usize,
    sent: f64,
    /// The part of each prompt that the model has read or written before: the earlier prompt that it begins with, and the
    /// answers that its thread has had since then. A vendor that caches answers, too, can serve it from its cache.
    cacheable: f64,
    /// The same for a vendor that caches only what it was sent.
    cacheable_without_answers: f64,
    /// The same as `cacheable` for a vendor that caches only prefixes of this size: [`SHORTEST_CACHED_PREFIX_TOKENS`].
    cacheable_from_minimum: f64,
    sent_by_role: BTreeMap<String, f64>,
}

pub(crate) async fn measure_token_economy(measurement: &BenchMeasurementSpec) -> Result<Vec<BenchMeasurementFigures>> {
    let naive = naive_tokens(measurement.turns as f64);
    let mut rows = Vec::new();
    for (visits, batch) in
        [VisitLength::Long, VisitLength::Short].into_iter().flat_map(|visits| BATCH_RULES.map(|batch| (visits, batch)))
    {
        let mut inline_tokens = None;
        for signals in SIGNAL_FORMS {
            let tokens = run_conversation(&visits.messages(measurement.turns), signals, batch).await?;
            let to_inline = tokens.sent / *inline_tokens.get_or_insert(tokens.sent);
            let fields = json!({
                "shape": format!("{signals} {batch}"), "turns": measurement.turns, "calls": tokens.calls,
                "tokens": tokens.sent, "naive_tokens": naive, "of_naive": round_significant(tokens.sent / naive),
                "cacheable": tokens.cacheable / tokens.sent,
                "cacheable_without_answers": tokens.cacheable_without_answers / tokens.sent,
                "cacheable_from_minimum": tokens.cacheable_from_minimum / tokens.sent,
                "to_inline": round_significant(to_inline), "tokens_by_role": tokens.sent_by_role,
            });
            rows.push(measurement.metric_row(visits.metric(batch), fields));
        }
    }
    Ok(rows)
}

/// Returns the tokens of a design in which three experts and the role that replies get the whole history in every turn:
/// all messages and all replies, the experts' too.
fn naive_tokens(turns: f64) -> f64 {
    let (user, reply, experts) = (USER_TOKENS as f64, REPLY_TOKENS as f64, EXPERTS as f64);
    let calls = experts + 1.0;
    let added_per_turn = user + calls * reply;
    calls * added_per_turn * turns * (turns - 1.0) / 2.0 + turns * (calls * user + experts * reply)
}

async fn run_conversation(messages: &[&str], signals: &str, batch: &str) -> Result<BenchConversationPromptTokens> {
    let model = PaddedRehearsal(RehearsalModel::instant());
    let config = EngineConfig::new(
        Arc::new(InMemoryStore::with_own_disk()),
        segue_flows::built_in_flows(),
        ModelRegistry::from_single_model(Arc::new(model)),
        "rehearsal",
    );
    let engine = Engine::start(config).await?;
    let settings = json!({ "signals": signals, "batch": batch, "samples": EXPERTS });
    let options = SessionOptions { settings, ..SessionOptions::default() };
    let session = engine.open_session(&"concierge".into(), options).await?;
    for (index, message) in messages.iter().enumerate() {
        let text = format!(
            "{message} {}",
            sample_text::words_of_tokens(USER_TOKENS.saturating_sub(count_o200k_tokens(message)))
        );
        let report = engine.send_and_wait(&session, UserMessage::from(text.as_str())).await?;
        if report.outcome != TurnOutcome::Done {
            bail!("turn {} ended with {:?}", index + 1, report.outcome);
        }
    }
    let tokens = count_prompt_tokens(&engine, &session).await?;
    engine.shutdown().await;
    Ok(tokens)
}

async fn count_prompt_tokens(engine: &Engine, session: &SessionId) -> Result<BenchConversationPromptTokens> {
    let mut tokens = BenchConversationPromptTokens::default();
    let mut sizes: BTreeMap<CallId, f64> = BTreeMap::new();
    let mut after = Seq(0);
    loop {
        let events = engine.read_events(session, after, EVENTS_PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for recorded in &events {
            let Event::CallOpened(opened) = &recorded.event else { continue };
            let size = f64::from(opened.receipt.tokens);
            let carried = f64::from(opened.receipt.carried.tokens);
            tokens.calls += 1;
            tokens.sent += size;
            let (with_answers, without_answers) = match &opened.receipt.prefix {
                PreviousPromptComparison::First => (0.0, 0.0),
                PreviousPromptComparison::Extends(previous) => {
                    let previous = sizes.get(previous).copied().unwrap_or_default();
                    (carried.max(previous), previous)
                }
                PreviousPromptComparison::Broken { kept_tokens, .. } => {
                    (f64::from(*kept_tokens), f64::from(*kept_tokens))
                }
            };
            tokens.cacheable += with_answers;
            tokens.cacheable_without_answers += without_answers;
            tokens.cacheable_from_minimum +=
                if with_answers < SHORTEST_CACHED_PREFIX_TOKENS { 0.0 } else { with_answers };
            *tokens.sent_by_role.entry(opened.role.to_string()).or_default() += size;
            sizes.insert(opened.call, size);
        }
    }
    Ok(tokens)
}

fn count_o200k_tokens(text: &str) -> usize {
    O200kTokenCounter.count_tokens(text) as usize
}

/// The rehearsal model, with replies of a usual length. Answers to questions with a schema keep theirs.
#[derive(Debug)]
struct PaddedRehearsal(RehearsalModel);

impl LanguageModel for PaddedRehearsal {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let is_text = request.prompt.output_format == ModelOutputFormat::Text;
        let reply = self.0.stream(request);
        let padded = async move {
            let (mut text, mut others) = (String::new(), Vec::new());
            for chunk in reply.collect::<Vec<_>>().await {
                match chunk {
                    Ok(ReplyChunk::Text(part)) => text.push_str(&part),
                    other => others.push(other),
                }
            }
            let missing = if is_text { REPLY_TOKENS.saturating_sub(count_o200k_tokens(&text)) } else { 0 };
            // Before the reply, because blocks are at its end.
            let padding = sample_text::words_of_tokens(missing);
            let text = if padding.is_empty() { text } else { format!("{padding}\n\n{text}") };
            stream::iter(std::iter::once(Ok(ReplyChunk::Text(text))).chain(others))
        };
        stream::once(padded).flatten().boxed()
    }

    fn describe(&self) -> ModelDescription {
        self.0.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_visits_have_one_plan_in_the_middle_and_three_steps() {
        let messages = VisitLength::Long.messages(60);
        let turns_of = |wanted: &str| {
            let turns = messages.iter().zip(1..).filter(|(message, _)| **message == wanted).map(|(_, turn)| turn);
            turns.collect::<Vec<usize>>()
        };
        assert_eq!((messages.len(), turns_of(PLAN_REQUEST)), (60, vec![31]));
        assert_eq!(turns_of(STEP_DONE), [40, 52, 60]);
        assert_eq!(VisitLength::Short.messages(60).iter().filter(|message| **message == PLAN_REQUEST).count(), 3);
    }

    #[test]
    fn naive_design_sends_the_whole_history() {
        // Two turns by hand: 4 calls with the first message, one of them with 3 replies; then 4 calls with the history
        // of a message and 4 replies, and the second message.
        let first = 4.0 * 60.0 + 3.0 * 200.0;
        let second = 4.0 * (60.0 + 4.0 * 200.0 + 60.0) + 3.0 * 200.0;
        assert_eq!((naive_tokens(1.0), naive_tokens(2.0)), (first, first + second));
    }
}
