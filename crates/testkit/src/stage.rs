//! A session held in the hand: inputs go in one by one, and after each the promises of core are checked.

use std::collections::BTreeMap;

use segue_core::body::Text;
use segue_core::codec;
use segue_core::decide::{Catalog, Command, Decision, Env, Input, Refusal, Undecided, decide};
use segue_core::event::{Busy, Event, Recorded, SessionOpened};
use segue_core::flow::{Flow, Lookup, Rules};
use segue_core::ids::{CallId, FlowName, Millis, ModelName, PhaseName, RoleName, ToolRunId};
use segue_core::prompt::{Failure, FailureKind, Prompt, Reply, ToolCall};
use segue_core::session::{Session, State};

use crate::words::{Shelf, Words};

/// The model that answers where a test names none.
pub const MODEL: &str = "plain";

/// A session held in the hand.
pub struct Stage {
    rules: Box<dyn Rules>,
    state: State,
    journal: Vec<Recorded>,
    shelf: Shelf,
    casting: Casting,
    now: Millis,
    shown: usize,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("events", &self.journal.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Casting {
    models: BTreeMap<RoleName, ModelName>,
    window: u32,
}

impl Catalog for Casting {
    fn model_for(&self, _flow: &FlowName, role: &RoleName, _phase: Option<&PhaseName>) -> ModelName {
        self.models.get(role).cloned().unwrap_or_else(|| MODEL.into())
    }

    fn window_tokens(&self, _model: &ModelName) -> u32 {
        self.window
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
        let faults = Flow::spec(&flow).faults();
        assert!(faults.is_empty(), "the flow has faults: {faults:#?}");
        let rules: Box<dyn Rules> = Box::new(flow);
        let mut stage = Self {
            state: State::fresh(&*rules),
            rules,
            journal: Vec::new(),
            shelf: Shelf::default(),
            casting: Casting { models: BTreeMap::new(), window: 100_000 },
            now: Millis(1_000),
            shown: 0,
        };
        let flow = stage.rules.spec().name.clone();
        let session = "test".into();
        stage.give(Input::Open(SessionOpened {
            format: codec::FORMAT,
            session,
            flow,
            title: None,
            busy,
            settings: serde_json::Value::Null,
        }));
        stage
    }

    /// Has a role played by this model from now on.
    pub fn cast(&mut self, role: &str, model: &str) {
        self.casting.models.insert(role.into(), model.into());
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
        let env = Env { now: self.now, chance: 7, count: &Words, texts: &self.shelf, catalog: &self.casting };
        let decision = match decide(&*self.rules, &self.state, input, env) {
            Ok(decision) => decision,
            Err(Undecided::Refused(refusal)) => return Err(refusal),
            Err(Undecided::NeedTexts(ids)) => panic!("a stage has every text, yet {ids:?} were wanted"),
        };
        self.shelf.put(&decision.bodies);
        self.journal.extend(decision.events.iter().cloned());
        self.state = decision.state.clone();
        self.check();
        Ok(decision)
    }

    /// The user says something.
    pub fn say(&mut self, text: &str) -> &mut Self {
        self.give(Input::Message { text: text.to_owned(), key: None, busy: None })
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

    /// Someone at the controls.
    pub fn command(&mut self, command: Command) -> &mut Self {
        self.give(Input::Operator(command))
    }

    /// The process dies and another takes over: all it has is the journal.
    pub fn crash(&mut self) -> &mut Self {
        self.state = State::fold(&*self.rules, &self.journal);
        self.give(Input::Recovered)
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
        let (call, _) = self.open_call(role);
        self.state.session.plan(call).expect("the call is open").fill(&self.shelf).expect("every text is at hand")
    }

    /// The same as text: a line a message.
    #[must_use]
    pub fn prompt_lines(&self, role: &str) -> String {
        let lines = self.prompt(role).messages.into_iter();
        lines.map(|message| format!("{:?}: {}\n", message.speaker, message.text().replace('\n', "⏎"))).collect()
    }

    /// What a past call was sent, rebuilt from the journal alone.
    #[must_use]
    pub fn rebuilt(&self, call: CallId) -> Prompt {
        let mut state = State::fresh(&*self.rules);
        for event in &self.journal {
            state.apply(&*self.rules, event);
            if matches!(&event.event, Event::CallOpened(opened) if opened.call == call) {
                return state
                    .session
                    .plan(call)
                    .expect("it is open now")
                    .fill(&self.shelf)
                    .expect("every text is stored");
            }
        }
        panic!("{call} was never opened")
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

    /// What must hold after every input.
    fn check(&self) {
        for (place, recorded) in self.journal.iter().enumerate() {
            assert_eq!(recorded.seq.0, place as u64 + 1, "the journal has no gap");
        }
        if let Some(last) = self.journal.last() {
            let written = codec::encode(&last.event);
            let read = codec::decode(last.seq, last.at, &written).expect("what is written can be read");
            assert_eq!(&read, last, "an event survives being written down");
        }
        let folded = State::fold(&*self.rules, &self.journal);
        assert_eq!(folded.session, self.state.session, "the state is the fold of the journal");
        assert_eq!(self.rules.save(&folded.flow), self.rules.save(&self.state.flow), "so is the flow's");
        let snapshot = codec::encode_snapshot(&*self.rules, &self.state).expect("a state can be written down");
        let opened = codec::decode_snapshot(&*self.rules, &snapshot).expect("and read again");
        assert_eq!(opened.session, self.state.session, "a snapshot is the state");
        for call in self.state.session.calls.keys() {
            assert!(self.state.session.plan(*call).is_some(), "an owed call can be made");
        }
        let session = &self.state.session;
        let waits = session.calls.len() + session.tools.len() + session.rounds.len() + session.deferred.len();
        assert!(session.turn.is_none() || waits + session.timers.len() > 0, "a turn that runs waits for something");
    }
}
