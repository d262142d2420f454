//! A session held in the hand: inputs go in one by one, and after each the promises of core are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::codec;
use segue_core::decide::{
    DecideError, Decision, DecisionEnv, Dispatch, InputRefusal, ModelSelector, OperatorCommand, RecomputeOptions,
    SessionInput, decide, prepare_recomputation,
};
use segue_core::event::{Event, MidTurnPolicy, RecordedEvent, SessionOpened};
use segue_core::flow::{BodyTextLookup, DynFlow, Flow};
use segue_core::ids::{CallId, FlowName, ModelName, PhaseName, RoleName, ThreadId, ToolRunId, UnixMillis};
use segue_core::prompt::{CallFailure, FailureKind, ModelReply, Prompt, ToolCall};
use segue_core::session::{Session, SessionState, ThreadPromptCache};

use crate::fakes::{InMemoryTexts, WordCounter};
use crate::invariants;

/// The model that answers where a test names none.
pub const TEST_MODEL: &str = "plain";

/// Rounds of fetching texts before one decision.
const FETCH_ROUNDS_MAX: u32 = 64;

/// A session held in the hand.
pub struct SessionHarness {
    flow: Arc<dyn DynFlow>,
    state: SessionState,
    journal: Vec<RecordedEvent>,
    texts: InMemoryTexts,
    models: TestModelSelector,
    now: UnixMillis,
    random: u64,
    logged: usize,
    check_mode: CheckMode,
    dispatch: Dispatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckMode {
    AfterEachInput,
    AtEnd,
}

impl std::fmt::Debug for SessionHarness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("events", &self.journal.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct TestModelSelector {
    models: BTreeMap<RoleName, ModelName>,
    fallbacks: BTreeMap<RoleName, ModelName>,
    window: u32,
    windows: BTreeMap<ModelName, u32>,
}

impl ModelSelector for TestModelSelector {
    fn model_for_role(&self, _flow: &FlowName, role: &RoleName, _phase: Option<&PhaseName>) -> ModelName {
        self.models.get(role).cloned().unwrap_or_else(|| TEST_MODEL.into())
    }

    fn context_window_tokens(&self, model: &ModelName) -> u32 {
        self.windows.get(model).copied().unwrap_or(self.window)
    }

    fn fallback_model(&self, _flow: &FlowName, role: &RoleName) -> Option<ModelName> {
        self.fallbacks.get(role).cloned()
    }
}

impl SessionHarness {
    /// Opens a session of this flow.
    #[must_use]
    pub fn open(flow: impl Flow) -> Self {
        Self::open_with_mid_turn_policy(flow, MidTurnPolicy::Queue)
    }

    /// Opens a session of this flow with a policy for messages that arrive while a turn runs.
    #[must_use]
    pub fn open_with_mid_turn_policy(flow: impl Flow, busy: MidTurnPolicy) -> Self {
        Self::open_configured(flow, busy, serde_json::Value::Null)
    }

    /// Opens a session of this flow with these settings.
    #[must_use]
    pub fn open_with_settings(flow: impl Flow, settings: serde_json::Value) -> Self {
        Self::open_configured(flow, MidTurnPolicy::Queue, settings)
    }

    fn open_configured(flow: impl Flow, busy: MidTurnPolicy, settings: serde_json::Value) -> Self {
        let opened = SessionOpened {
            format: codec::EVENT_FORMAT,
            session: "test".into(),
            flow: Flow::spec(&flow).name.clone(),
            title: None,
            mid_turn_policy: busy,
            settings,
            model_overrides: std::collections::BTreeMap::new(),
        };
        Self::open_session(flow, opened)
    }

    /// Opens this session of this flow.
    ///
    /// # Panics
    /// The flow has faults.
    #[must_use]
    pub fn open_session(flow: impl Flow, opened: SessionOpened) -> Self {
        let faults = Flow::spec(&flow).validation_errors();
        assert!(faults.is_empty(), "the flow has faults: {faults:#?}");
        let rules: Arc<dyn DynFlow> = Arc::new(flow);
        let mut stage = Self {
            state: SessionState::new(&*rules),
            flow: rules,
            journal: Vec::new(),
            texts: InMemoryTexts::default(),
            models: TestModelSelector {
                models: BTreeMap::new(),
                fallbacks: BTreeMap::new(),
                window: 100_000,
                windows: BTreeMap::new(),
            },
            now: UnixMillis(1_000),
            random: 7,
            logged: 0,
            check_mode: CheckMode::AfterEachInput,
            dispatch: Dispatch::Immediate,
        };
        stage.apply_input(SessionInput::Open(opened));
        stage
    }

    /// Has a role played by this model from now on.
    pub fn assign_model(&mut self, role: &str, model: &str) {
        self.models.models.insert(role.into(), model.into());
    }

    /// Has this model step in for a role from now on.
    pub fn set_fallback_model(&mut self, role: &str, model: &str) {
        self.models.fallbacks.insert(role.into(), model.into());
    }

    /// Gives one model this window.
    pub fn set_model_window(&mut self, model: &str, tokens: u32) {
        self.models.windows.insert(model.into(), tokens);
    }

    /// The number that spreads retries from now on.
    pub fn set_random(&mut self, chance: u64) {
        self.random = chance;
    }

    /// The time of the last input.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// Gives every model this window.
    pub fn set_window(&mut self, tokens: u32) {
        self.models.window = tokens;
    }

    /// Hands in an input that must be accepted.
    pub fn apply_input(&mut self, input: SessionInput) -> &mut Self {
        if let Err(refusal) = self.try_input(input) {
            panic!("refused: {refusal}");
        }
        self
    }

    /// Hands in an input.
    ///
    /// # Errors
    /// It was refused; then nothing has changed.
    pub fn try_input(&mut self, input: SessionInput) -> Result<Decision, InputRefusal> {
        self.now = self.now.plus_ms(1);
        if self.check_mode == CheckMode::AtEnd {
            return self.try_input_unchecked(input);
        }
        let thrifty = self.decide_fetching_texts(input.clone());
        let decision = match self.decide(input, &self.texts) {
            Ok(decision) => decision,
            Err(DecideError::Refused(refusal)) => {
                assert_eq!(thrifty.err(), Some(refusal.clone()), "the same arguments give the same refusal");
                return Err(refusal);
            }
            Err(DecideError::MissingTexts(ids)) => panic!("a stage has every text, yet {ids:?} were wanted"),
        };
        let thrifty = thrifty.expect("the same arguments give the same decision");
        assert_eq!(thrifty.events, decision.events, "it does not matter when the texts were fetched");
        assert_eq!(thrifty.bodies, decision.bodies, "nor for what is stored");
        let before = self.state.clone();
        self.commit_decision(&decision);
        match self.dispatch {
            Dispatch::Immediate => invariants::assert_step_invariants(
                &*self.flow,
                &self.journal,
                &before,
                decision.events.len(),
                &self.state,
            ),
            // Much waits then that would go on otherwise.
            Dispatch::Deferred => {
                invariants::assert_state_equals_replay(&*self.flow, &self.journal, &self.state);
            }
        }
        Ok(decision)
    }

    fn try_input_unchecked(&mut self, input: SessionInput) -> Result<Decision, InputRefusal> {
        let decision = self.decide(input, &self.texts).map_err(|undecided| match undecided {
            DecideError::Refused(refusal) => refusal,
            DecideError::MissingTexts(ids) => panic!("a stage has every text, yet {ids:?} were wanted"),
        })?;
        self.commit_decision(&decision);
        Ok(decision)
    }

    fn commit_decision(&mut self, decision: &Decision) {
        self.texts.insert_bodies(&decision.bodies);
        self.journal.extend(decision.events.iter().cloned());
        self.state = decision.state.clone();
    }

    /// Plays a long part quickly: the promises are checked once, at its end.
    pub fn with_checks_at_end(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.check_mode = CheckMode::AtEnd;
        play(self);
        self.check_mode = CheckMode::AfterEachInput;
        self.assert_invariants();
        self
    }

    /// Plays a part that is only written down: what is owed then is for somebody else to do.
    pub fn with_deferred_dispatch(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.dispatch = Dispatch::Deferred;
        play(self);
        self.dispatch = Dispatch::Immediate;
        self
    }

    /// What would be decided about an input with these texts at hand. Nothing changes.
    ///
    /// # Errors
    /// It would be refused, or more texts are needed.
    pub fn decide(&self, input: SessionInput, texts: &dyn BodyTextLookup) -> Result<Decision, DecideError> {
        let (now, chance, doing) = (self.now, self.random, self.dispatch);
        let env = DecisionEnv {
            now,
            random: chance,
            token_counter: &WordCounter,
            texts,
            model_selector: &self.models,
            dispatch: doing,
        };
        decide(&*self.flow, &self.state, input, env)
    }

    /// Decides with no text at hand but those that were asked for, as an engine does.
    fn decide_fetching_texts(&self, input: SessionInput) -> Result<Decision, InputRefusal> {
        let mut at_hand = InMemoryTexts::default();
        for _ in 0..FETCH_ROUNDS_MAX {
            match self.decide(input.clone(), &at_hand) {
                Ok(decision) => return Ok(decision),
                Err(DecideError::Refused(refusal)) => return Err(refusal),
                Err(DecideError::MissingTexts(ids)) => {
                    assert!(!ids.is_empty(), "it says which");
                    at_hand.copy_texts(&ids, &self.texts);
                }
            }
        }
        panic!("a decision asks for texts again and again")
    }

    /// The user says something.
    pub fn send_message(&mut self, text: &str) -> &mut Self {
        self.apply_input(SessionInput::Message {
            text: text.to_owned(),
            idempotency_key: None,
            mid_turn_policy: None,
            images: Vec::new(),
        })
    }

    /// The oldest open call of a role is answered.
    pub fn answer_call(&mut self, role: &str, text: &str) -> &mut Self {
        self.reply_to_call(role, ModelReply { text: text.to_owned(), ..ModelReply::default() })
    }

    /// The oldest open call of a role is answered with a wish to run a tool.
    pub fn answer_with_tool_call(&mut self, role: &str, tool: &str, arguments: serde_json::Value) -> &mut Self {
        let id = format!("w{}", self.journal.len());
        let tool_calls = vec![ToolCall { id, name: tool.into(), arguments }];
        self.reply_to_call(role, ModelReply { tool_calls, ..ModelReply::default() })
    }

    /// The oldest open call of a role is answered in full.
    pub fn reply_to_call(&mut self, role: &str, reply: ModelReply) -> &mut Self {
        let (call, attempt) = self.oldest_open_call(role);
        self.apply_input(SessionInput::Answer { call, attempt, reply, cost_microusd: Some(10), duration_ms: 5 })
    }

    /// The oldest open call of a role fails.
    pub fn fail_call(&mut self, role: &str, kind: FailureKind) -> &mut Self {
        let (call, attempt) = self.oldest_open_call(role);
        self.apply_input(SessionInput::CallFailure {
            call,
            attempt,
            failure: CallFailure::new(kind, "as the test wants"),
        })
    }

    /// The oldest open run of a tool returns.
    pub fn finish_tool(&mut self, tool: &str, result: Result<&str, &str>) -> &mut Self {
        let mut runs = self.state.session.open_tool_runs.values();
        let run: ToolRunId = runs.find(|run| run.tool == *tool).expect("the tool is running").run;
        self.apply_input(SessionInput::ToolResult { run, result: result.map(str::to_owned).map_err(str::to_owned) })
    }

    /// Time passes.
    pub fn advance_and_tick(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self.apply_input(SessionInput::Tick)
    }

    /// Time passes and nobody looks.
    pub fn advance_clock(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self
    }

    /// A stored text, as it is.
    ///
    /// # Panics
    /// It was never stored.
    #[must_use]
    pub fn stored_text(&self, id: BodyId) -> Arc<str> {
        self.texts.find_text(id).expect("what an event names is stored")
    }

    /// All texts that were stored.
    #[must_use]
    pub fn texts(&self) -> &InMemoryTexts {
        &self.texts
    }

    /// Someone at the controls.
    pub fn run_command(&mut self, command: OperatorCommand) -> &mut Self {
        self.apply_input(SessionInput::Operator(command))
    }

    /// Checks that the state follows from the journal and keeps all promises.
    pub fn assert_invariants(&self) {
        invariants::assert_state_equals_replay(&*self.flow, &self.journal, &self.state);
        let fresh = SessionState::new(&*self.flow);
        invariants::assert_step_invariants(&*self.flow, &self.journal, &fresh, self.journal.len(), &self.state);
    }

    /// The process dies and another takes over: all it has is the journal.
    pub fn crash_and_recover(&mut self) -> &mut Self {
        self.state = SessionState::fold(&*self.flow, &self.journal);
        self.apply_input(SessionInput::Recovered)
    }

    /// A copy of the first `events` of the journal, which goes on under another name.
    #[must_use]
    pub fn fork_at(&self, events: usize) -> Self {
        let mut copy = self.copy_prefix(events);
        copy.fork();
        copy
    }

    /// The same, made by hand: it goes on only when somebody takes it up.
    #[must_use]
    pub fn fork_deferred_at(&self, events: usize) -> Self {
        let mut copy = self.copy_prefix(events);
        copy.with_deferred_dispatch(|copy| {
            copy.fork();
        });
        copy
    }

    fn copy_prefix(&self, events: usize) -> Self {
        let mut copy = self.copy_empty();
        copy.journal = self.journal[..events].to_vec();
        copy.state = SessionState::fold(&*copy.flow, &copy.journal);
        copy
    }

    /// The same stage before any event.
    #[must_use]
    pub fn copy_empty(&self) -> Self {
        Self {
            flow: self.flow.clone(),
            state: SessionState::new(&*self.flow),
            journal: Vec::new(),
            texts: self.texts.clone(),
            models: self.models.clone(),
            now: self.now,
            random: self.random,
            logged: 0,
            check_mode: CheckMode::AfterEachInput,
            dispatch: Dispatch::Immediate,
        }
    }

    /// The session is copied and goes on under another name; this is the copy.
    pub fn fork(&mut self) -> &mut Self {
        let from = self.state.session.id.clone().expect("it was opened");
        let at = self.state.session.last_seq;
        self.state = SessionState::fold(&*self.flow, &self.journal);
        self.apply_input(SessionInput::Forked { session: "copy".into(), from, at })
    }

    /// Has a past call made once more, beside the timeline; gives the number of the new call.
    ///
    /// # Panics
    /// There was no such call.
    pub fn recompute_call(&mut self, call: CallId, options: &RecomputeOptions) -> CallId {
        let is_it = |event: &Event| matches!(event, Event::CallOpened(opened) if opened.call == call);
        let place = self.journal.iter().position(|recorded| is_it(&recorded.event)).expect("it was opened");
        let before = SessionState::fold(&*self.flow, &self.journal[..place]);
        let again = prepare_recomputation(
            &*self.flow,
            &before,
            &self.journal[place],
            &self.journal[place + 1..],
            options,
            &self.texts,
        );
        self.apply_input(SessionInput::Recompute(Box::new(again.expect("every text is at hand"))));
        self.state.session.last_ids.call
    }

    /// The number and try of the oldest open call of a role.
    #[must_use]
    pub fn oldest_open_call(&self, role: &str) -> (CallId, u32) {
        let mut calls = self.state.session.open_calls.iter();
        let found = calls.find(|(_, open)| open.opened.role == *role);
        let (call, open) =
            found.unwrap_or_else(|| panic!("no call of {role} is open; there are {:?}", self.open_call_roles()));
        (*call, open.attempt)
    }

    /// The roles of all open calls, in order.
    #[must_use]
    pub fn open_call_roles(&self) -> Vec<String> {
        self.state.session.open_calls.values().map(|open| open.opened.role.to_string()).collect()
    }

    /// The state as it stands.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.state.session
    }

    /// The journal as it stands.
    #[must_use]
    pub fn journal(&self) -> &[RecordedEvent] {
        &self.journal
    }

    /// What the oldest open call of a role is sent.
    #[must_use]
    pub fn prompt_for_role(&self, role: &str) -> Prompt {
        self.prompt_for_call(self.oldest_open_call(role).0)
    }

    /// What an open call is sent.
    ///
    /// # Panics
    /// The call is not open.
    #[must_use]
    pub fn prompt_for_call(&self, call: CallId) -> Prompt {
        self.state
            .session
            .prompt_plan(call)
            .expect("the call is open")
            .resolve_prompt(&self.texts)
            .expect("every text is at hand")
    }

    /// The same as text: a line a message.
    #[must_use]
    pub fn prompt_lines(&self, role: &str) -> String {
        let prompt = self.prompt_for_role(role);
        let lines = prompt.messages.iter();
        lines.map(|message| format!("{:?}: {}\n", message.chat_role, message.text().replace('\n', "⏎"))).collect()
    }

    /// What a past call was sent, rebuilt from the journal alone.
    ///
    /// # Panics
    /// It was never opened.
    #[must_use]
    pub fn rebuild_prompt(&self, call: CallId) -> Prompt {
        let mut all = self.rebuild_prompts_where(|opened| opened == call);
        all.remove(&call).unwrap_or_else(|| panic!("{call} was never opened"))
    }

    /// What every call was sent, rebuilt from the journal alone.
    #[must_use]
    pub fn rebuild_all_prompts(&self) -> BTreeMap<CallId, Prompt> {
        self.rebuild_prompts_where(|_| true)
    }

    fn rebuild_prompts_where(&self, wanted: impl Fn(CallId) -> bool) -> BTreeMap<CallId, Prompt> {
        let mut state = SessionState::new(&*self.flow);
        let mut prompts = BTreeMap::new();
        // Each on the one before it, so that whoever compares them with others sees that nothing is lost by that.
        let mut filled: BTreeMap<ThreadId, ThreadPromptCache> = BTreeMap::new();
        for event in &self.journal {
            state.apply(&*self.flow, event);
            if let Event::CallOpened(opened) = &event.event
                && wanted(opened.call)
            {
                let plan = state.session.prompt_plan(opened.call).expect("it is open now");
                let filled = filled.entry(opened.receipt.thread.thread_id()).or_default();
                prompts.insert(
                    opened.call,
                    plan.resolve_prompt_cached(filled, &self.texts).expect("every text is stored"),
                );
            }
        }
        prompts
    }

    /// What was said to the user last.
    #[must_use]
    pub fn last_reply(&self) -> String {
        self.state.session.last_reply.map(|text| self.text_on_one_line(text)).unwrap_or_default()
    }

    /// The events since this was last asked, a line each.
    pub fn take_log(&mut self) -> String {
        let lines = self.journal[self.logged..].iter();
        let lines = lines
            .map(|recorded| format!("{}\n", recorded.event.summary_line(&|text| self.text_on_one_line(text))))
            .collect();
        self.logged = self.journal.len();
        lines
    }

    /// The words of a text.
    #[must_use]
    pub fn text_on_one_line(&self, text: TextRef) -> String {
        self.texts.find_text(text.body).map(|text| text.replace('\n', "⏎")).unwrap_or_default()
    }

    /// The journal as JSON lines.
    #[must_use]
    pub fn journal_json_lines(&self) -> String {
        self.journal.iter().map(|recorded| serde_json::to_string(recorded).expect("events are JSON") + "\n").collect()
    }
}
