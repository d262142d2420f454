//! A session held in the hand: inputs go in one by one, and after each the promises of core are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, Text};
use segue_core::codec;
use segue_core::decide::{Catalog, Change, Command, Decision, Doing, Env, Input, Refusal, Undecided, decide, frozen};
use segue_core::event::{Busy, Event, Recorded, SessionOpened};
use segue_core::flow::{Flow, Lookup, Rules};
use segue_core::ids::{CallId, FlowName, Millis, ModelName, PhaseName, RoleName, ThreadId, ToolRunId};
use segue_core::prompt::{Failure, FailureKind, Prompt, Reply, ToolCall};
use segue_core::session::{Filled, Session, State};

use crate::check;
use crate::words::{Shelf, Words};

/// The model that answers where a test names none.
pub const MODEL: &str = "plain";

/// Rounds of fetching texts before one decision.
const FETCH_ROUNDS: u32 = 64;

/// A session held in the hand.
pub struct Stage {
    rules: Arc<dyn Rules>,
    state: State,
    journal: Vec<Recorded>,
    shelf: Shelf,
    casting: Casting,
    now: Millis,
    chance: u64,
    shown: usize,
    checked: Checked,
    doing: Doing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checked {
    AfterEachInput,
    AtTheEnd,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("events", &self.journal.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Casting {
    models: BTreeMap<RoleName, ModelName>,
    fallbacks: BTreeMap<RoleName, ModelName>,
    window: u32,
    windows: BTreeMap<ModelName, u32>,
}

impl Catalog for Casting {
    fn model_for(&self, _flow: &FlowName, role: &RoleName, _phase: Option<&PhaseName>) -> ModelName {
        self.models.get(role).cloned().unwrap_or_else(|| MODEL.into())
    }

    fn window_tokens(&self, model: &ModelName) -> u32 {
        self.windows.get(model).copied().unwrap_or(self.window)
    }

    fn fallback_for(&self, _flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        self.fallbacks.get(role).cloned()
    }
}

impl Stage {
    /// Opens a session of this flow.
    #[must_use]
    pub fn open(flow: impl Flow) -> Self {
        Self::open_with(flow, Busy::Queue)
    }

    /// Opens a session of this flow with a policy for messages that arrive while a turn runs.
    #[must_use]
    pub fn open_with(flow: impl Flow, busy: Busy) -> Self {
        Self::opened(flow, busy, serde_json::Value::Null)
    }

    /// Opens a session of this flow with these settings.
    #[must_use]
    pub fn open_set(flow: impl Flow, settings: serde_json::Value) -> Self {
        Self::opened(flow, Busy::Queue, settings)
    }

    fn opened(flow: impl Flow, busy: Busy, settings: serde_json::Value) -> Self {
        let opened = SessionOpened {
            format: codec::FORMAT,
            session: "test".into(),
            flow: Flow::spec(&flow).name.clone(),
            title: None,
            busy,
            settings,
            cast: std::collections::BTreeMap::new(),
        };
        Self::open_as(flow, opened)
    }

    /// Opens this session of this flow.
    ///
    /// # Panics
    /// The flow has faults.
    #[must_use]
    pub fn open_as(flow: impl Flow, opened: SessionOpened) -> Self {
        let faults = Flow::spec(&flow).faults();
        assert!(faults.is_empty(), "the flow has faults: {faults:#?}");
        let rules: Arc<dyn Rules> = Arc::new(flow);
        let mut stage = Self {
            state: State::fresh(&*rules),
            rules,
            journal: Vec::new(),
            shelf: Shelf::default(),
            casting: Casting {
                models: BTreeMap::new(),
                fallbacks: BTreeMap::new(),
                window: 100_000,
                windows: BTreeMap::new(),
            },
            now: Millis(1_000),
            chance: 7,
            shown: 0,
            checked: Checked::AfterEachInput,
            doing: Doing::Here,
        };
        stage.give(Input::Open(opened));
        stage
    }

    /// Has a role played by this model from now on.
    pub fn cast(&mut self, role: &str, model: &str) {
        self.casting.models.insert(role.into(), model.into());
    }

    /// Has this model step in for a role from now on.
    pub fn fallback(&mut self, role: &str, model: &str) {
        self.casting.fallbacks.insert(role.into(), model.into());
    }

    /// Gives one model this window.
    pub fn window_of(&mut self, model: &str, tokens: u32) {
        self.casting.windows.insert(model.into(), tokens);
    }

    /// The number that spreads retries from now on.
    pub fn chance(&mut self, chance: u64) {
        self.chance = chance;
    }

    /// The time of the last input.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Gives every model this window.
    pub fn window(&mut self, tokens: u32) {
        self.casting.window = tokens;
    }

    /// Hands in an input that must be accepted.
    pub fn give(&mut self, input: Input) -> &mut Self {
        if let Err(refusal) = self.try_give(input) {
            panic!("refused: {refusal}");
        }
        self
    }

    /// Hands in an input.
    ///
    /// # Errors
    /// It was refused; then nothing has changed.
    pub fn try_give(&mut self, input: Input) -> Result<Decision, Refusal> {
        self.now = self.now.after(1);
        if self.checked == Checked::AtTheEnd {
            return self.try_quickly(input);
        }
        let thrifty = self.decide_thriftily(input.clone());
        let decision = match self.decide(input, &self.shelf) {
            Ok(decision) => decision,
            Err(Undecided::Refused(refusal)) => {
                assert_eq!(thrifty.err(), Some(refusal.clone()), "the same arguments give the same refusal");
                return Err(refusal);
            }
            Err(Undecided::NeedTexts(ids)) => panic!("a stage has every text, yet {ids:?} were wanted"),
        };
        let thrifty = thrifty.expect("the same arguments give the same decision");
        assert_eq!(thrifty.events, decision.events, "it does not matter when the texts were fetched");
        assert_eq!(thrifty.bodies, decision.bodies, "nor for what is stored");
        let before = self.state.clone();
        self.take(&decision);
        match self.doing {
            Doing::Here => check::step(&*self.rules, &self.journal, &before, decision.events.len(), &self.state),
            // Much waits then that would go on otherwise.
            Doing::Elsewhere => {
                check::the_state_is_the_fold_of_the_journal(&*self.rules, &self.journal, &self.state);
            }
        }
        Ok(decision)
    }

    fn try_quickly(&mut self, input: Input) -> Result<Decision, Refusal> {
        let decision = self.decide(input, &self.shelf).map_err(|undecided| match undecided {
            Undecided::Refused(refusal) => refusal,
            Undecided::NeedTexts(ids) => panic!("a stage has every text, yet {ids:?} were wanted"),
        })?;
        self.take(&decision);
        Ok(decision)
    }

    fn take(&mut self, decision: &Decision) {
        self.shelf.put(&decision.bodies);
        self.journal.extend(decision.events.iter().cloned());
        self.state = decision.state.clone();
    }

    /// Plays a long part quickly: the promises are checked once, at its end.
    pub fn unchecked(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.checked = Checked::AtTheEnd;
        play(self);
        self.checked = Checked::AfterEachInput;
        self.check();
        self
    }

    /// Plays a part that is only written down: what is owed then is for somebody else to do.
    pub fn by_hand(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.doing = Doing::Elsewhere;
        play(self);
        self.doing = Doing::Here;
        self
    }

    /// What would be decided about an input with these texts at hand. Nothing changes.
    ///
    /// # Errors
    /// It would be refused, or more texts are needed.
    pub fn decide(&self, input: Input, texts: &dyn Lookup) -> Result<Decision, Undecided> {
        let (now, chance, doing) = (self.now, self.chance, self.doing);
        let env = Env { now, chance, count: &Words, texts, catalog: &self.casting, doing };
        decide(&*self.rules, &self.state, input, env)
    }

    /// Decides with no text at hand but those that were asked for, as an engine does.
    fn decide_thriftily(&self, input: Input) -> Result<Decision, Refusal> {
        let mut at_hand = Shelf::default();
        for _ in 0..FETCH_ROUNDS {
            match self.decide(input.clone(), &at_hand) {
                Ok(decision) => return Ok(decision),
                Err(Undecided::Refused(refusal)) => return Err(refusal),
                Err(Undecided::NeedTexts(ids)) => {
                    assert!(!ids.is_empty(), "it says which");
                    at_hand.fetch(&ids, &self.shelf);
                }
            }
        }
        panic!("a decision asks for texts again and again")
    }

    /// The user says something.
    pub fn say(&mut self, text: &str) -> &mut Self {
        self.give(Input::Message { text: text.to_owned(), key: None, busy: None, images: Vec::new() })
    }

    /// The oldest open call of a role is answered.
    pub fn answer(&mut self, role: &str, text: &str) -> &mut Self {
        self.reply(role, Reply { text: text.to_owned(), ..Reply::default() })
    }

    /// The oldest open call of a role is answered with a wish to run a tool.
    pub fn wants_tool(&mut self, role: &str, tool: &str, arguments: serde_json::Value) -> &mut Self {
        let id = format!("w{}", self.journal.len());
        let tool_calls = vec![ToolCall { id, name: tool.into(), arguments }];
        self.reply(role, Reply { tool_calls, ..Reply::default() })
    }

    /// The oldest open call of a role is answered in full.
    pub fn reply(&mut self, role: &str, reply: Reply) -> &mut Self {
        let (call, attempt) = self.open_call(role);
        self.give(Input::Answer { call, attempt, reply, cost_microusd: Some(10), ms: 5 })
    }

    /// The oldest open call of a role fails.
    pub fn fail(&mut self, role: &str, kind: FailureKind) -> &mut Self {
        let (call, attempt) = self.open_call(role);
        self.give(Input::Failure { call, attempt, failure: Failure::new(kind, "as the test wants") })
    }

    /// The oldest open run of a tool returns.
    pub fn tool(&mut self, tool: &str, result: Result<&str, &str>) -> &mut Self {
        let mut runs = self.state.session.tools.values();
        let run: ToolRunId = runs.find(|run| run.tool == *tool).expect("the tool is running").run;
        self.give(Input::ToolResult { run, result: result.map(str::to_owned).map_err(str::to_owned) })
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.after(ms);
        self.give(Input::Tick)
    }

    /// Time passes and nobody looks.
    pub fn advance(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.after(ms);
        self
    }

    /// A stored text, as it is.
    ///
    /// # Panics
    /// It was never stored.
    #[must_use]
    pub fn body(&self, id: BodyId) -> Arc<str> {
        self.shelf.find(id).expect("what an event names is stored")
    }

    /// All texts that were stored.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Someone at the controls.
    pub fn command(&mut self, command: Command) -> &mut Self {
        self.give(Input::Operator(command))
    }

    /// Checks that the state follows from the journal and keeps all promises.
    pub fn check(&self) {
        check::the_state_is_the_fold_of_the_journal(&*self.rules, &self.journal, &self.state);
        let fresh = State::fresh(&*self.rules);
        check::step(&*self.rules, &self.journal, &fresh, self.journal.len(), &self.state);
    }

    /// The process dies and another takes over: all it has is the journal.
    pub fn crash(&mut self) -> &mut Self {
        self.state = State::fold(&*self.rules, &self.journal);
        self.give(Input::Recovered)
    }

    /// A copy of the first `events` of the journal, which goes on under another name.
    #[must_use]
    pub fn copy_at(&self, events: usize) -> Self {
        let mut copy = self.copied(events);
        copy.fork();
        copy
    }

    /// The same, made by hand: it goes on only when somebody takes it up.
    #[must_use]
    pub fn copy_by_hand_at(&self, events: usize) -> Self {
        let mut copy = self.copied(events);
        copy.by_hand(|copy| {
            copy.fork();
        });
        copy
    }

    fn copied(&self, events: usize) -> Self {
        let mut copy = self.copy_at_nothing();
        copy.journal = self.journal[..events].to_vec();
        copy.state = State::fold(&*copy.rules, &copy.journal);
        copy
    }

    /// The same stage before any event.
    #[must_use]
    pub fn copy_at_nothing(&self) -> Self {
        Self {
            rules: self.rules.clone(),
            state: State::fresh(&*self.rules),
            journal: Vec::new(),
            shelf: self.shelf.clone(),
            casting: self.casting.clone(),
            now: self.now,
            chance: self.chance,
            shown: 0,
            checked: Checked::AfterEachInput,
            doing: Doing::Here,
        }
    }

    /// The session is copied and goes on under another name; this is the copy.
    pub fn fork(&mut self) -> &mut Self {
        let from = self.state.session.id.clone().expect("it was opened");
        let at = self.state.session.seq;
        self.state = State::fold(&*self.rules, &self.journal);
        self.give(Input::Forked { session: "copy".into(), from, at })
    }

    /// Has a past call made once more, beside the timeline; gives the number of the new call.
    ///
    /// # Panics
    /// There was no such call.
    pub fn once_more(&mut self, call: CallId, change: &Change) -> CallId {
        let is_it = |event: &Event| matches!(event, Event::CallOpened(opened) if opened.call == call);
        let place = self.journal.iter().position(|recorded| is_it(&recorded.event)).expect("it was opened");
        let before = State::fold(&*self.rules, &self.journal[..place]);
        let again =
            frozen(&*self.rules, &before, &self.journal[place], &self.journal[place + 1..], change, &self.shelf);
        self.give(Input::Recompute(Box::new(again.expect("every text is at hand"))));
        self.state.session.last.call
    }

    /// The number and try of the oldest open call of a role.
    #[must_use]
    pub fn open_call(&self, role: &str) -> (CallId, u32) {
        let mut calls = self.state.session.calls.iter();
        let found = calls.find(|(_, open)| open.opened.role == *role);
        let (call, open) =
            found.unwrap_or_else(|| panic!("no call of {role} is open; there are {:?}", self.open_roles()));
        (*call, open.attempt)
    }

    /// The roles of all open calls, in order.
    #[must_use]
    pub fn open_roles(&self) -> Vec<String> {
        self.state.session.calls.values().map(|open| open.opened.role.to_string()).collect()
    }

    /// The state as it stands.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.state.session
    }

    /// The journal as it stands.
    #[must_use]
    pub fn journal(&self) -> &[Recorded] {
        &self.journal
    }

    /// What the oldest open call of a role is sent.
    #[must_use]
    pub fn prompt(&self, role: &str) -> Prompt {
        self.prompt_of(self.open_call(role).0)
    }

    /// What an open call is sent.
    ///
    /// # Panics
    /// The call is not open.
    #[must_use]
    pub fn prompt_of(&self, call: CallId) -> Prompt {
        self.state.session.plan(call).expect("the call is open").fill(&self.shelf).expect("every text is at hand")
    }

    /// The same as text: a line a message.
    #[must_use]
    pub fn prompt_lines(&self, role: &str) -> String {
        let prompt = self.prompt(role);
        let lines = prompt.messages.iter();
        lines.map(|message| format!("{:?}: {}\n", message.speaker, message.text().replace('\n', "⏎"))).collect()
    }

    /// What a past call was sent, rebuilt from the journal alone.
    ///
    /// # Panics
    /// It was never opened.
    #[must_use]
    pub fn rebuilt(&self, call: CallId) -> Prompt {
        let mut all = self.rebuild(|opened| opened == call);
        all.remove(&call).unwrap_or_else(|| panic!("{call} was never opened"))
    }

    /// What every call was sent, rebuilt from the journal alone.
    #[must_use]
    pub fn all_rebuilt(&self) -> BTreeMap<CallId, Prompt> {
        self.rebuild(|_| true)
    }

    fn rebuild(&self, wanted: impl Fn(CallId) -> bool) -> BTreeMap<CallId, Prompt> {
        let mut state = State::fresh(&*self.rules);
        let mut prompts = BTreeMap::new();
        // Each on the one before it, so that whoever compares them with others sees that nothing is lost by that.
        let mut filled: BTreeMap<ThreadId, Filled> = BTreeMap::new();
        for event in &self.journal {
            state.apply(&*self.rules, event);
            if let Event::CallOpened(opened) = &event.event
                && wanted(opened.call)
            {
                let plan = state.session.plan(opened.call).expect("it is open now");
                let filled = filled.entry(opened.receipt.thread.thread()).or_default();
                prompts.insert(opened.call, plan.fill_on(filled, &self.shelf).expect("every text is stored"));
            }
        }
        prompts
    }

    /// What was said to the user last.
    #[must_use]
    pub fn said(&self) -> String {
        self.state.session.last_said.map(|text| self.words(text)).unwrap_or_default()
    }

    /// The events since this was last asked, a line each.
    pub fn log(&mut self) -> String {
        let lines = self.journal[self.shown..].iter();
        let lines = lines.map(|recorded| format!("{}\n", recorded.event.line(&|text| self.words(text)))).collect();
        self.shown = self.journal.len();
        lines
    }

    /// The words of a text.
    #[must_use]
    pub fn words(&self, text: Text) -> String {
        self.shelf.find(text.body).map(|text| text.replace('\n', "⏎")).unwrap_or_default()
    }

    /// The journal as JSON lines.
    #[must_use]
    pub fn journal_lines(&self) -> String {
        self.journal.iter().map(|recorded| serde_json::to_string(recorded).expect("events are JSON") + "\n").collect()
    }
}
