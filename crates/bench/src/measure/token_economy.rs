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

use super::{MeasurementResult, MeasurementSpec};
use crate::sample_text;
use crate::stats::round_significant;

const USER_TOKENS: usize = 60;
const REPLY_TOKENS: usize = 200;
const EXPERTS: usize = 3;
/// The first two turns: a question, and the reply to its answer.
const FIRST_MESSAGES: [&str; 2] = ["Should I open a small bakery?", "I have some savings and a free year."];
/// What follows, repeatedly: talk, a plan, its three steps with an obstacle, and the end of the plan.
const CYCLE: [&str; 21] = [
    "What about the neighbourhood?",
    "My partner has doubts.",
    "What about the rent?",
    "I like bread more than cake.",
    "What would you ask a baker?",
    "I have never had employees.",
    "Mornings are fine with me.",
    "What about the oven?",
    "I'm going to do it, give me a plan.",
    "How long may this take?",
    "I wrote some notes.",
    "What belongs into it?",
    "It is done.",
    "How small is small?",
    "I asked a friend.",
    "I am stuck: the landlord says no.",
    "What now?",
    "It is done.",
    "How do I choose the day?",
    "What about advertising?",
    "It is done.",
];
const SIGNAL_FORMS: [&str; 2] = ["inline", "structured"];
const BATCH_RULES: [&str; 2] = ["on_signal", "every_turn"];
/// Events read at a time.
const EVENTS_PAGE: usize = 512;

/// The prompt tokens of a conversation.
#[derive(Debug, Default)]
struct PromptTokens {
    calls: usize,
    sent: f64,
    /// The part that a prompt has in common with the one before it in its thread, so that a vendor can cache it.
    cacheable: f64,
    sent_by_role: BTreeMap<String, f64>,
}

pub(crate) async fn measure_token_economy(measurement: &MeasurementSpec) -> Result<Vec<MeasurementResult>> {
    let naive = naive_tokens(measurement.turns as f64);
    let mut rows = Vec::new();
    for batch in BATCH_RULES {
        let mut inline_tokens = None;
        for signals in SIGNAL_FORMS {
            let tokens = run_conversation(measurement.turns, signals, batch).await?;
            let to_inline = tokens.sent / *inline_tokens.get_or_insert(tokens.sent);
            let fields = json!({
                "shape": format!("{signals} {batch}"), "turns": measurement.turns, "calls": tokens.calls,
                "tokens": tokens.sent, "naive_tokens": naive, "of_naive": round_significant(tokens.sent / naive),
                "cacheable": round_significant(tokens.cacheable / tokens.sent), "to_inline": round_significant(to_inline),
                "tokens_by_role": tokens.sent_by_role,
            });
            rows.push(
                measurement.metric_row(if batch == "on_signal" { "tokens" } else { "tokens_every_turn" }, fields),
            );
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

async fn run_conversation(turns: usize, signals: &str, batch: &str) -> Result<PromptTokens> {
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
    let messages = FIRST_MESSAGES.into_iter().chain(CYCLE.into_iter().cycle());
    for (index, message) in messages.take(turns).enumerate() {
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

async fn count_prompt_tokens(engine: &Engine, session: &SessionId) -> Result<PromptTokens> {
    let mut tokens = PromptTokens::default();
    let mut sizes: BTreeMap<CallId, f64> = BTreeMap::new();
    let mut after = Seq(0);
    loop {
        let events = engine.read_events(session, after, EVENTS_PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for recorded in &events {
            let Event::CallOpened(opened) = &recorded.event else { continue };
            let size = f64::from(opened.receipt.tokens);
            tokens.calls += 1;
            tokens.sent += size;
            tokens.cacheable += match &opened.receipt.prefix {
                PreviousPromptComparison::First => 0.0,
                PreviousPromptComparison::Extends(previous) => sizes.get(previous).copied().unwrap_or_default(),
                PreviousPromptComparison::Broken { kept_tokens, .. } => f64::from(*kept_tokens),
            };
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
    fn naive_design_sends_the_whole_history() {
        // Two turns by hand: 4 calls with the first message, one of them with 3 replies; then 4 calls with the history
        // of a message and 4 replies, and the second message.
        let first = 4.0 * 60.0 + 3.0 * 200.0;
        let second = 4.0 * (60.0 + 4.0 * 200.0 + 60.0) + 3.0 * 200.0;
        assert_eq!((naive_tokens(1.0), naive_tokens(2.0)), (first, first + second));
    }
}
