//! A model that answers from a scenario: the testing tool for flow authors. It decides only which entry answers a call (the
//! first in the file that is for it and not used up), keeps what it was asked, and draws nothing from clock or chance.
//!
//! The file format is described in `docs/scripted-model.md`.

mod answer;
mod entry;
mod glob;
mod matching;
mod miss;
mod reader;
mod scenario;
mod span;

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use segue_core::prompt::Prompt;

pub use self::entry::Entry;
pub use self::reader::ScenarioError;
pub use self::scenario::{Expect, Say, Scenario};

use self::matching::Call;
use crate::limits::{SEEN_MAX, STAND_IN_WINDOW_TOKENS};
use crate::model::{CallFacts, ChunkStream, Description, Kind, Model, Request};
use crate::playback::{Beat, Playback};
use crate::text;

/// A model that answers from a scenario. Clones share what was used and seen.
#[derive(Debug, Clone)]
pub struct Scripted {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    scenario: Scenario,
    window_tokens: u32,
    seen_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uses: Vec<u32>,
    default_uses: u32,
    calls: u64,
    seen: VecDeque<Seen>,
}

/// A request the model got.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What it was sent.
    pub prompt: Arc<Prompt>,
    /// What the call was to the engine.
    pub call: CallFacts,
    /// Who answered.
    pub answered: Answered,
}

/// Who answered a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// The entry with this number, counted from 1.
    Reply(usize),
    /// The default.
    Default,
    /// Nobody: the call failed.
    Nobody,
}

impl Seen {
    /// The last user message.
    #[must_use]
    pub fn last(&self) -> String {
        text::last_user(&self.prompt)
    }

    /// The standing instructions.
    #[must_use]
    pub fn system(&self) -> String {
        text::system(&self.prompt)
    }
}

/// Puts a scripted model together in code.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    scenario: Scenario,
    window_tokens: Option<u32>,
    seen_max: Option<usize>,
}

impl Builder {
    /// What to call it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.scenario.name = Some(name.into());
        self
    }

    /// Adds an answer, after those already there.
    #[must_use]
    pub fn reply(mut self, entry: Entry) -> Self {
        self.scenario.replies.push(entry);
        self
    }

    /// The answer to calls no other entry is for; its own conditions are not looked at.
    #[must_use]
    pub fn otherwise(mut self, entry: Entry) -> Self {
        self.scenario.default = Some(entry);
        self
    }

    /// The window it claims.
    #[must_use]
    pub fn window_tokens(mut self, tokens: u32) -> Self {
        self.window_tokens = Some(tokens);
        self
    }

    /// How many requests it remembers; the oldest are forgotten first.
    #[must_use]
    pub fn seen_max(mut self, requests: usize) -> Self {
        self.seen_max = Some(requests);
        self
    }

    /// The model.
    #[must_use]
    pub fn build(self) -> Scripted {
        let uses = vec![0; self.scenario.replies.len()];
        Scripted {
            inner: Arc::new(Inner {
                scenario: self.scenario,
                window_tokens: self.window_tokens.unwrap_or(STAND_IN_WINDOW_TOKENS),
                seen_max: self.seen_max.unwrap_or(SEEN_MAX),
                state: Mutex::new(State { uses, ..State::default() }),
            }),
        }
    }
}

impl From<Scenario> for Builder {
    fn from(scenario: Scenario) -> Self {
        Self { scenario, ..Self::default() }
    }
}

impl FromStr for Scripted {
    type Err = ScenarioError;

    /// Reads a scenario file's text.
    fn from_str(toml: &str) -> Result<Self, ScenarioError> {
        toml.parse::<Scenario>().map(Self::new)
    }
}

impl Scripted {
    /// A model that plays this scenario.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        Builder::from(scenario).build()
    }

    /// A model put together in code.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What it plays.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.inner.scenario
    }

    /// The requests it got, oldest first, as far as it remembers.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.iter().cloned().collect()
    }

    /// How many requests it got.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// The entries that never answered a call, such as `[[reply]] 3 (line 12)`: what a finished test may want to be empty.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let state = self.state();
        let entries = self.inner.scenario.replies.iter().zip(&state.uses).enumerate();
        entries.filter(|(_, (_, used))| **used == 0).map(|(index, (entry, _))| miss::place(index, entry)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, state: &mut State, call: &Call<'_>) -> (Answered, Playback) {
        let Scenario { replies, default, .. } = &self.inner.scenario;
        let found = replies.iter().zip(&mut state.uses).enumerate().find(|(_, (entry, used))| {
            entry.times.is_none_or(|times| **used < times) && entry.when.mismatches(call).next().is_none()
        });
        if let Some((index, (entry, used))) = found {
            *used = used.saturating_add(1);
            let number = index + 1;
            return (Answered::Reply(number), answer::prepare(&entry.then, call, &number.to_string(), *used));
        }
        match default {
            Some(entry) => {
                state.default_uses = state.default_uses.saturating_add(1);
                (Answered::Default, answer::prepare(&entry.then, call, "default", state.default_uses))
            }
            None => (Answered::Nobody, Playback::new([Beat::Fail(miss::failure(call, replies, &state.uses))])),
        }
    }
}

impl Model for Scripted {
    /// The entry is chosen here, not when the stream is polled, so the order of calls alone decides who gets what.
    fn stream(&self, request: Request) -> ChunkStream {
        let mut state = self.state();
        let (answered, playback) = self.answer(&mut state, &Call::of(&request));
        state.calls += 1;
        state.seen.push_back(Seen { prompt: request.prompt, call: request.call, answered });
        while state.seen.len() > self.inner.seen_max {
            state.seen.pop_front();
        }
        playback.into_stream()
    }

    fn describe(&self) -> Description {
        let label = match &self.inner.scenario.name {
            Some(name) => format!("scripted: {name}"),
            None => "scripted".to_owned(),
        };
        Description { kind: Kind::Scripted, label, window_tokens: self.inner.window_tokens }
    }
}
