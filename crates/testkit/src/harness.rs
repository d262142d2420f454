//! A session without an engine: tests apply inputs one by one, and the invariants of core are checked after each.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::codec;
use segue_core::decide::{
    ChildSessionValidator, DecideError, Decision, DecisionEnv, EffectDispatchMode, InputRefusal, OperatorCommand,
    RecomputeCallOverrides, SessionInput, decide, prepare_recomputation,
};
use segue_core::event::{Event, MidTurnPolicy, RecordedEvent, SessionOpened};
use segue_core::flow::{BodyTextLookup, DynFlow, Flow, OperatorToolApprovalRules};
use segue_core::ids::{CallId, FlowName, ThreadId, ToolRunId, UnixMillis};
use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply, Prompt, ToolCall};
use segue_core::session::{Session, SessionState, ThreadPromptCache};

use crate::fakes::{InMemoryTexts, TestModelSelector, WordCounter};
use crate::invariants;

/// The model of roles without an assigned one.
pub const TEST_MODEL: &str = "plain";

/// The maximum number of times that one decision may ask for texts.
const FETCH_ROUNDS: u32 = 64;

/// A session under test.
pub struct SessionHarness {
    flow: Arc<dyn DynFlow>,
    state: SessionState,
    journal: Vec<RecordedEvent>,
    texts: InMemoryTexts,
    models: TestModelSelector,
    now: UnixMillis,
    random: u64,
    logged: usize,
    check_mode: InvariantCheckTiming,
    dispatch: EffectDispatchMode,
    approval_rules: OperatorToolApprovalRules,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InvariantCheckTiming {
    AfterEachInput,
    AtEnd,
}

impl std::fmt::Debug for SessionHarness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionHarness").field("events", &self.journal.len()).finish_non_exhaustive()
    }
}

/// Accepts child sessions of all flows, unless their settings are a text, which is then the reason of the refusal.
struct TestChildSessionValidator;

impl ChildSessionValidator for TestChildSessionValidator {
    fn check_child(&self, _: &FlowName, settings: &serde_json::Value) -> Result<(), String> {
        settings.as_str().map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

impl SessionHarness {
    /// Opens a session of this flow.
    #[must_use]
    pub fn open(flow: impl Flow) -> Self {
        Self::open_with_mid_turn_policy(flow, MidTurnPolicy::Queue)
    }

    /// Opens a session with a policy for messages that arrive during a turn.
    #[must_use]
    pub fn open_with_mid_turn_policy(flow: impl Flow, policy: MidTurnPolicy) -> Self {
        Self::open_configured(flow, policy, serde_json::Value::Null)
    }

    /// Opens a session with these settings.
    #[must_use]
    pub fn open_with_settings(flow: impl Flow, settings: serde_json::Value) -> Self {
        Self::open_configured(flow, MidTurnPolicy::Queue, settings)
    }

    fn open_configured(flow: impl Flow, policy: MidTurnPolicy, settings: serde_json::Value) -> Self {
        let opened = SessionOpened {
            flow_definition: None,
            format: codec::EVENT_FORMAT,
            session: "test".into(),
            flow: Flow::spec(&flow).name.clone(),
            title: None,
            mid_turn_policy: policy,
            settings,
            model_overrides: std::collections::BTreeMap::new(),
            child_origin: None,
        };
        Self::open_session(flow, opened)
    }

    /// Opens a session with this event.
    ///
    /// # Panics
    /// Panics if the flow's data is invalid.
    #[must_use]
    pub fn open_session(flow: impl Flow, opened: SessionOpened) -> Self {
        let errors = Flow::spec(&flow).validation_errors();
        assert!(errors.is_empty(), "the flow is invalid: {errors:#?}");
        let flow: Arc<dyn DynFlow> = Arc::new(flow);
        let mut harness = Self {
            state: SessionState::new(&*flow),
            flow,
            journal: Vec::new(),
            texts: InMemoryTexts::default(),
            models: TestModelSelector::new(),
            now: UnixMillis(1_000),
            random: 7,
            logged: 0,
            check_mode: InvariantCheckTiming::AfterEachInput,
            dispatch: EffectDispatchMode::Immediate,
            approval_rules: OperatorToolApprovalRules::default(),
        };
        harness.apply_input(SessionInput::Open(opened));
        harness
    }

    /// Assigns a model to a role.
    pub fn assign_model(&mut self, role: &str, model: &str) {
        self.models.models.insert(role.into(), model.into());
    }

    /// Sets the fallback model of a role.
    pub fn set_fallback_model(&mut self, role: &str, model: &str) {
        self.models.fallbacks.insert(role.into(), model.into());
    }

    /// Sets the context window of one model.
    pub fn set_model_window(&mut self, model: &str, tokens: u32) {
        self.models.windows.insert(model.into(), tokens);
    }

    /// Has a model asked for signals with private questions.
    pub fn use_structured_signals(&mut self, model: &str) {
        self.models.structured_models.insert(model.into());
    }

    /// Makes a model count as one that does not support tool calls.
    pub fn set_tool_calls_unsupported(&mut self, model: &str) {
        self.models.models_without_tools.insert(model.into());
    }

    /// Sets the number that spreads retries.
    pub fn set_retry_random(&mut self, random: u64) {
        self.random = random;
    }

    /// Returns the time of the last input.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// Sets the context window of all models.
    pub fn set_window(&mut self, tokens: u32) {
        self.models.window = tokens;
    }

    /// Applies an input that must be accepted.
    pub fn apply_input(&mut self, input: SessionInput) -> &mut Self {
        if let Err(refusal) = self.try_input(input) {
            panic!("refused: {refusal}");
        }
        self
    }

    /// Applies an input.
    ///
    /// # Errors
    /// Fails if the input is refused; then nothing changes.
    pub fn try_input(&mut self, input: SessionInput) -> Result<Decision, InputRefusal> {
        self.now = self.now.plus_ms(1);
        if self.check_mode == InvariantCheckTiming::AtEnd {
            return self.try_input_unchecked(input);
        }
        let thrifty = self.decide_fetching_texts(input.clone());
        let decision = match self.decide(input, &self.texts) {
            Ok(decision) => decision,
            Err(DecideError::Refused(refusal)) => {
                assert_eq!(thrifty.err(), Some(refusal.clone()), "the same arguments give the same refusal");
                return Err(refusal);
            }
            Err(DecideError::MissingTexts(ids)) => panic!("the harness has every text, but {ids:?} are missing"),
        };
        let thrifty = thrifty.expect("the same arguments give the same decision");
        assert_eq!(thrifty.events, decision.events, "the events do not depend on when texts are loaded");
        assert_eq!(thrifty.bodies, decision.bodies, "the stored texts do not depend on when texts are loaded");
        let before = self.state.clone();
        self.commit_decision(&decision);
        match self.dispatch {
            EffectDispatchMode::Immediate => invariants::assert_step_invariants(
                &*self.flow,
                &self.journal,
                &before,
                decision.events.len(),
                &self.state,
            ),
            // Deferred work violates the invariants about waiting.
            EffectDispatchMode::Deferred => {
                invariants::assert_state_equals_replay(&*self.flow, &self.journal, &self.state);
            }
        }
        Ok(decision)
    }

    fn try_input_unchecked(&mut self, input: SessionInput) -> Result<Decision, InputRefusal> {
        let decision = self.decide(input, &self.texts).map_err(|undecided| match undecided {
            DecideError::Refused(refusal) => refusal,
            DecideError::MissingTexts(ids) => panic!("the harness has every text, but {ids:?} are missing"),
        })?;
        self.commit_decision(&decision);
        Ok(decision)
    }

    fn commit_decision(&mut self, decision: &Decision) {
        self.texts.insert_bodies(&decision.bodies);
        self.journal.extend(decision.events.iter().cloned());
        self.state = decision.state.clone();
    }

    /// Runs a long part of a test quickly: the invariants are checked once at its end.
    pub fn with_checks_at_end(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.check_mode = InvariantCheckTiming::AtEnd;
        play(self);
        self.check_mode = InvariantCheckTiming::AfterEachInput;
        self.assert_invariants();
        self
    }

    /// Runs a part of a test in which decisions are recorded but nothing is started.
    pub fn with_deferred_dispatch(&mut self, play: impl FnOnce(&mut Self)) -> &mut Self {
        self.dispatch = EffectDispatchMode::Deferred;
        play(self);
        self.dispatch = EffectDispatchMode::Immediate;
        self
    }

    /// Returns the session with rules of the operator about tool runs that need approval.
    #[must_use]
    pub fn with_approval_rules(mut self, rules: OperatorToolApprovalRules) -> Self {
        self.approval_rules = rules;
        self
    }

    /// Decides about an input with these texts loaded. Nothing changes.
    ///
    /// # Errors
    /// Fails if the input is refused or texts are missing.
    pub fn decide(&self, input: SessionInput, texts: &dyn BodyTextLookup) -> Result<Decision, DecideError> {
        let (now, random, dispatch) = (self.now, self.random, self.dispatch);
        let env = DecisionEnv {
            now,
            random,
            token_counter: &WordCounter,
            texts,
            model_selector: &self.models,
            child_checker: &TestChildSessionValidator,
            approval_rules: &self.approval_rules,
            dispatch,
            flow_error: None,
        };
        decide(&*self.flow, &self.state, input, env)
    }

    /// Decides with only the texts loaded that the decision asks for, like an engine.
    fn decide_fetching_texts(&self, input: SessionInput) -> Result<Decision, InputRefusal> {
        let mut loaded = InMemoryTexts::default();
        for _ in 0..FETCH_ROUNDS {
            match self.decide(input.clone(), &loaded) {
                Ok(decision) => return Ok(decision),
                Err(DecideError::Refused(refusal)) => return Err(refusal),
                Err(DecideError::MissingTexts(ids)) => {
                    assert!(!ids.is_empty(), "the missing texts are named");
                    loaded.copy_texts(&ids, &self.texts);
                }
            }
        }
        panic!("a decision does not stop asking for texts")
    }

    /// Sends a message from the user.
    pub fn send_message(&mut self, text: &str) -> &mut Self {
        self.apply_input(SessionInput::Message {
            text: text.to_owned(),
            idempotency_key: None,
            mid_turn_policy: None,
            images: Vec::new(),
        })
    }

    /// Answers the oldest open call of a role.
    pub fn answer_call(&mut self, role: &str, text: &str) -> &mut Self {
        self.reply_to_call(role, ModelReply { text: text.to_owned(), ..ModelReply::default() })
    }

    /// Answers the oldest open call of a role with a tool call.
    pub fn answer_with_tool_call(&mut self, role: &str, tool: &str, arguments: serde_json::Value) -> &mut Self {
        let id = format!("w{}", self.journal.len());
        let tool_calls = vec![ToolCall { id, name: tool.into(), arguments }];
        self.reply_to_call(role, ModelReply { tool_calls, ..ModelReply::default() })
    }

    /// Answers the oldest open call of a role with a complete reply.
    pub fn reply_to_call(&mut self, role: &str, reply: ModelReply) -> &mut Self {
        let (call, attempt) = self.oldest_open_call(role);
        self.apply_input(SessionInput::Answer { call, attempt, reply, cost_microusd: Some(10), duration_ms: 5 })
    }

    /// Fails the oldest open call of a role.
    pub fn fail_call(&mut self, role: &str, kind: CallFailureKind) -> &mut Self {
        let (call, attempt) = self.oldest_open_call(role);
        self.apply_input(SessionInput::CallFailure {
            call,
            attempt,
            failure: CallFailure::new(kind, "as the test wants"),
        })
    }

    /// Ends the oldest open run of a tool.
    pub fn finish_tool(&mut self, tool: &str, result: Result<&str, &str>) -> &mut Self {
        let mut runs = self.state.session.open_tool_runs.values();
        let run: ToolRunId = runs.find(|run| run.tool == *tool).expect("the tool is running").run;
        let result = result.map(str::to_owned).map_err(str::to_owned);
        self.apply_input(SessionInput::ToolResult { run, result: result.into() })
    }

    /// Advances the clock and applies a tick.
    pub fn advance_and_tick(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self.apply_input(SessionInput::Tick)
    }

    /// Advances the clock without a tick.
    pub fn advance_clock(&mut self, ms: u64) -> &mut Self {
        self.now = self.now.plus_ms(ms);
        self
    }

    /// Returns a stored text.
    ///
    /// # Panics
    /// Panics if the text is not stored.
    #[must_use]
    pub fn stored_text(&self, id: BodyId) -> Arc<str> {
        self.texts.find_text(id).expect("texts that events refer to are stored")
    }

    /// Returns all stored texts.
    #[must_use]
    pub fn texts(&self) -> &InMemoryTexts {
        &self.texts
    }

    /// Runs an operator command.
    pub fn run_command(&mut self, command: OperatorCommand) -> &mut Self {
        self.apply_input(SessionInput::Operator(command))
    }

    /// Checks all invariants.
    pub fn assert_invariants(&self) {
        invariants::assert_state_equals_replay(&*self.flow, &self.journal, &self.state);
        let fresh = SessionState::new(&*self.flow);
        invariants::assert_step_invariants(&*self.flow, &self.journal, &fresh, self.journal.len(), &self.state);
    }

    /// Simulates a crash: the state is rebuilt from the journal, and the session recovers.
    pub fn crash_and_recover(&mut self) -> &mut Self {
        self.state = SessionState::fold(&*self.flow, &self.journal);
        self.apply_input(SessionInput::Recovered)
    }

    /// Returns a fork of the session after the first `events` events.
    #[must_use]
    pub fn fork_at(&self, events: usize) -> Self {
        let mut copy = self.copy_prefix(events);
        copy.fork();
        copy
    }

    /// Returns a fork whose pending work waits to be started.
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

    /// Returns a harness with the same configuration and no events.
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
            check_mode: InvariantCheckTiming::AfterEachInput,
            dispatch: EffectDispatchMode::Immediate,
            approval_rules: self.approval_rules.clone(),
        }
    }

    /// Turns this session into a fork of itself.
    pub fn fork(&mut self) -> &mut Self {
        let from = self.state.session.id.clone().expect("it was opened");
        let at = self.state.session.last_seq;
        self.state = SessionState::fold(&*self.flow, &self.journal);
        self.apply_input(SessionInput::Forked { session: "copy".into(), from, at })
    }

    /// Repeats an earlier call outside the timeline and returns the id of the new call.
    ///
    /// # Panics
    /// Panics if there was no such call.
    pub fn recompute_call(&mut self, call: CallId, options: &RecomputeCallOverrides) -> CallId {
        let is_call = |event: &Event| matches!(event, Event::CallOpened(opened) if opened.call == call);
        let index = self.journal.iter().position(|recorded| is_call(&recorded.event)).expect("it was opened");
        let before = SessionState::fold(&*self.flow, &self.journal[..index]);
        let recomputation = prepare_recomputation(
            &*self.flow,
            &before,
            &self.journal[index],
            &self.journal[index + 1..],
            options,
            &self.texts,
        );
        self.apply_input(SessionInput::Recompute(Box::new(recomputation.expect("every text is loaded"))));
        self.state.session.last_ids.call
    }

    /// Returns the id and attempt of the oldest open call of a role.
    #[must_use]
    pub fn oldest_open_call(&self, role: &str) -> (CallId, u32) {
        let mut calls = self.state.session.open_calls.iter();
        let found = calls.find(|(_, open)| open.opened.role == *role);
        let (call, open) =
            found.unwrap_or_else(|| panic!("no call of {role} is open; there are {:?}", self.open_call_roles()));
        (*call, open.attempt)
    }

    /// Returns the roles of all open calls, in order.
    #[must_use]
    pub fn open_call_roles(&self) -> Vec<String> {
        self.state.session.open_calls.values().map(|open| open.opened.role.to_string()).collect()
    }

    /// Returns the session's state.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.state.session
    }

    /// Returns the flow's own state as JSON.
    #[must_use]
    pub fn flow_state_json(&self) -> serde_json::Value {
        self.flow.serialize_state(&self.state.flow).unwrap_or_default()
    }

    #[must_use]
    pub fn journal(&self) -> &[RecordedEvent] {
        &self.journal
    }

    /// Returns the prompt of the oldest open call of a role.
    #[must_use]
    pub fn prompt_for_role(&self, role: &str) -> Prompt {
        self.prompt_for_call(self.oldest_open_call(role).0)
    }

    /// Returns the prompt of an open call.
    ///
    /// # Panics
    /// Panics if the call is not open.
    #[must_use]
    pub fn prompt_for_call(&self, call: CallId) -> Prompt {
        self.state
            .session
            .prompt_plan(call)
            .expect("the call is open")
            .resolve_prompt(&mut ThreadPromptCache::default(), &self.texts)
            .expect("every text is loaded")
    }

    /// Returns the prompt as text, with one line per message.
    #[must_use]
    pub fn prompt_lines(&self, role: &str) -> String {
        let prompt = self.prompt_for_role(role);
        let lines = prompt.messages.iter();
        lines.map(|message| format!("{:?}: {}\n", message.chat_role, message.text().replace('\n', "⏎"))).collect()
    }

    /// Returns the prompt of any call, rebuilt from the journal.
    ///
    /// # Panics
    /// Panics if the call was never opened.
    #[must_use]
    pub fn rebuild_prompt(&self, call: CallId) -> Prompt {
        let mut all = self.rebuild_prompts_where(|opened| opened == call);
        all.remove(&call).unwrap_or_else(|| panic!("{call} was never opened"))
    }

    /// Returns the prompts of all calls, rebuilt from the journal.
    #[must_use]
    pub fn rebuild_all_prompts(&self) -> BTreeMap<CallId, Prompt> {
        self.rebuild_prompts_where(|_| true)
    }

    fn rebuild_prompts_where(&self, is_selected: impl Fn(CallId) -> bool) -> BTreeMap<CallId, Prompt> {
        let mut state = SessionState::new(&*self.flow);
        let mut prompts = BTreeMap::new();
        // Each prompt reuses the cache of the previous one, so that comparisons with others test the cache too.
        let mut caches: BTreeMap<ThreadId, ThreadPromptCache> = BTreeMap::new();
        for event in &self.journal {
            state.apply(&*self.flow, event);
            if let Event::CallOpened(opened) = &event.event
                && is_selected(opened.call)
            {
                let plan = state.session.prompt_plan(opened.call).expect("it is open now");
                let cache = caches.entry(opened.receipt.thread.thread_id()).or_default();
                prompts.insert(opened.call, plan.resolve_prompt(cache, &self.texts).expect("every text is stored"));
            }
        }
        prompts
    }

    /// Returns the last reply to the user.
    #[must_use]
    pub fn last_reply(&self) -> String {
        self.state.session.last_reply.map(|text| self.text_on_one_line(text)).unwrap_or_default()
    }

    /// Returns the events since the last call, one per line.
    pub fn take_new_event_lines(&mut self) -> String {
        let lines = self.journal[self.logged..].iter();
        let lines = lines
            .map(|recorded| format!("{}\n", recorded.event.summary_line(&|text| self.text_on_one_line(text))))
            .collect();
        self.logged = self.journal.len();
        lines
    }

    /// Returns a stored text on one line.
    #[must_use]
    pub fn text_on_one_line(&self, text: TextRef) -> String {
        self.texts.find_text(text.body).map(|text| text.replace('\n', "⏎")).unwrap_or_default()
    }

    /// Returns the journal as JSON lines.
    #[must_use]
    pub fn journal_json_lines(&self) -> String {
        self.journal.iter().map(|recorded| serde_json::to_string(recorded).expect("events are JSON") + "\n").collect()
    }
}
