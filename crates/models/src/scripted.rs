//! A model that answers from a scenario: the test tool for flow authors. For each call it uses the first entry that matches
//! and is not used up. It records its requests and is fully deterministic.
//!
//! The file format is described in `docs/scripted-model.md`.

mod glob;
mod matching;
mod mismatch_report;
mod number_range;
mod playback_builder;
mod scenario;
mod scenario_reader;
mod scripted_reply;

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::prompt::Prompt;

pub use self::scenario::{Scenario, ScenarioTurnExpectation, ScenarioUserTurn};
pub use self::scenario_reader::ScenarioError;
pub use self::scripted_reply::ScriptedReply;

use self::matching::ScriptedReplyConditionInputs;
use crate::limits::{RECEIVED_REQUESTS_MAX, SIMULATED_WINDOW_TOKENS};
use crate::model::{
    LanguageModel, ModelBackendKind, ModelCallOrigin, ModelDescription, ModelRequest, ReplyChunkStream,
};
use crate::playback::{ReplyPlayback, ReplyPlaybackStep};
use crate::text;

/// A model that answers from a scenario. Clones share their state.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    inner: Arc<ScriptedModelInner>,
}

#[derive(Debug)]
struct ScriptedModelInner {
    scenario: Scenario,
    window_tokens: u32,
    received_requests_max: usize,
    state: Mutex<ScriptedModelState>,
}

#[derive(Debug, Default)]
struct ScriptedModelState {
    reply_uses: Vec<u32>,
    default_uses: u32,
    call_count: u64,
    received_requests: VecDeque<ScriptedModelReceivedRequest>,
}

/// A request that the model received.
#[derive(Debug, Clone)]
pub struct ScriptedModelReceivedRequest {
    pub prompt: Arc<Prompt>,
    pub metadata: ModelCallOrigin,
    pub answered_by: MatchedScriptedReply,
}

/// Which entry answered a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchedScriptedReply {
    /// The `[[reply]]` with this number, counted from 1.
    Reply(usize),
    /// The `[default]` entry.
    Default,
    /// None matched, so the call failed.
    NoReply,
}

impl ScriptedModelReceivedRequest {
    /// Returns the last user message.
    #[must_use]
    pub fn last_user_text(&self) -> String {
        text::last_user_text(&self.prompt)
    }

    /// Returns the system prompt.
    #[must_use]
    pub fn system_text(&self) -> String {
        text::system_text(&self.prompt)
    }
}

/// Builds a scripted model in code.
#[derive(Debug, Clone, Default)]
pub struct ScriptedModelBuilder {
    scenario: Scenario,
    window_tokens: Option<u32>,
    received_requests_max: Option<usize>,
}

impl ScriptedModelBuilder {
    /// Sets the name shown in the model's label.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.scenario.name = Some(name.into());
        self
    }

    /// Adds an entry after the existing ones.
    #[must_use]
    pub fn reply(mut self, entry: ScriptedReply) -> Self {
        self.scenario.replies.push(entry);
        self
    }

    /// Sets the reply for calls that no entry matches; its own conditions are ignored.
    #[must_use]
    pub fn default_reply(mut self, entry: ScriptedReply) -> Self {
        self.scenario.default = Some(entry);
        self
    }

    /// Sets the reported context window.
    #[must_use]
    pub fn window_tokens(mut self, tokens: u32) -> Self {
        self.window_tokens = Some(tokens);
        self
    }

    /// Sets how many requests are kept; the oldest are dropped first.
    #[must_use]
    pub fn received_requests_max(mut self, requests: usize) -> Self {
        self.received_requests_max = Some(requests);
        self
    }

    #[must_use]
    pub fn build(self) -> ScriptedModel {
        let uses = vec![0; self.scenario.replies.len()];
        ScriptedModel {
            inner: Arc::new(ScriptedModelInner {
                scenario: self.scenario,
                window_tokens: self.window_tokens.unwrap_or(SIMULATED_WINDOW_TOKENS),
                received_requests_max: self.received_requests_max.unwrap_or(RECEIVED_REQUESTS_MAX),
                state: Mutex::new(ScriptedModelState { reply_uses: uses, ..ScriptedModelState::default() }),
            }),
        }
    }
}

impl From<Scenario> for ScriptedModelBuilder {
    fn from(scenario: Scenario) -> Self {
        Self { scenario, ..Self::default() }
    }
}

impl FromStr for ScriptedModel {
    type Err = ScenarioError;

    /// Parses a scenario file.
    fn from_str(toml: &str) -> Result<Self, ScenarioError> {
        toml.parse::<Scenario>().map(Self::new)
    }
}

impl ScriptedModel {
    /// Creates a model that plays this scenario.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        ScriptedModelBuilder::from(scenario).build()
    }

    /// Returns a builder for a model defined in code.
    #[must_use]
    pub fn builder() -> ScriptedModelBuilder {
        ScriptedModelBuilder::default()
    }

    /// Returns the scenario.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.inner.scenario
    }

    /// Returns the received requests, oldest first; old ones may have been dropped.
    #[must_use]
    pub fn received_requests(&self) -> Vec<ScriptedModelReceivedRequest> {
        self.lock_state().received_requests.iter().cloned().collect()
    }

    /// Returns the number of requests received.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.lock_state().call_count
    }

    /// Returns the entries that never answered a call, such as `[[reply]] 3 (line 12)`, so a test can check that all were used.
    #[must_use]
    pub fn unused_replies(&self) -> Vec<String> {
        let state = self.lock_state();
        let entries = self.inner.scenario.replies.iter().zip(&state.reply_uses).enumerate();
        entries
            .filter(|(_, (_, used))| **used == 0)
            .map(|(index, (entry, _))| mismatch_report::reply_label(index, entry))
            .collect()
    }

    fn lock_state(&self) -> MutexGuard<'_, ScriptedModelState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn select_reply(
        &self,
        state: &mut ScriptedModelState,
        call: &ScriptedReplyConditionInputs<'_>,
    ) -> (MatchedScriptedReply, ReplyPlayback) {
        let Scenario { replies, default, .. } = &self.inner.scenario;
        let found = replies.iter().zip(&mut state.reply_uses).enumerate().find(|(_, (entry, used))| {
            entry.times.is_none_or(|times| **used < times) && entry.when.mismatches(call).next().is_none()
        });
        if let Some((index, (entry, used))) = found {
            *used = used.saturating_add(1);
            let number = index + 1;
            return (
                MatchedScriptedReply::Reply(number),
                playback_builder::build_playback(&entry.then, call, &number.to_string(), *used),
            );
        }
        match default {
            Some(entry) => {
                state.default_uses = state.default_uses.saturating_add(1);
                (
                    MatchedScriptedReply::Default,
                    playback_builder::build_playback(&entry.then, call, "default", state.default_uses),
                )
            }
            None => (
                MatchedScriptedReply::NoReply,
                ReplyPlayback::new([ReplyPlaybackStep::Fail(mismatch_report::no_matching_reply_failure(
                    call,
                    replies,
                    &state.reply_uses,
                ))]),
            ),
        }
    }
}

impl LanguageModel for ScriptedModel {
    /// Selects the entry here, not when the stream is polled, so that only the order of calls matters.
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let mut state = self.lock_state();
        let (answered_by, playback) = self.select_reply(&mut state, &ScriptedReplyConditionInputs::new(&request));
        state.call_count += 1;
        state.received_requests.push_back(ScriptedModelReceivedRequest {
            prompt: request.prompt,
            metadata: request.metadata,
            answered_by,
        });
        while state.received_requests.len() > self.inner.received_requests_max {
            state.received_requests.pop_front();
        }
        playback.into_stream()
    }

    fn describe(&self) -> ModelDescription {
        let label = match &self.inner.scenario.name {
            Some(name) => format!("scripted: {name}"),
            None => "scripted".to_owned(),
        };
        ModelDescription { kind: ModelBackendKind::Scripted, label, window_tokens: self.inner.window_tokens }
    }
}
