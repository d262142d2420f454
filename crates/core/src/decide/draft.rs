//! A decision in the making: events recorded so far, the state they lead to, and which of them the flow has not seen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{DecideError, Decision, DecisionEnv, Dispatch, InputRefusal};
use crate::body::{BodyId, BodyKind, TextBody, TextRef};
use crate::event::{CallOpened, Event, RecordedEvent, ToolRunOpened, TurnResult};
use crate::flow::{DynFlow, DynFlowContext, EventSubject, FlowSpec, FlowStep, TextResolver};
use crate::ids::{CallId, MessageId, ToolRunId, TurnId};
use crate::limits::STEPS_PER_INPUT_MAX;
use crate::session::{Session, SessionState};

pub(super) struct DecisionDraft<'a> {
    pub flow: &'a dyn DynFlow,
    pub env: DecisionEnv<'a>,
    pub state: SessionState,
    pub texts: TextResolver<'a>,
    pub message: Option<MessageId>,
    events: Vec<RecordedEvent>,
    subjects: Vec<EventSubject>,
    bodies: Vec<TextBody>,
    stored: BTreeSet<BodyId>,
    /// How many of the events the flow has reacted to.
    reacted: usize,
    /// The turn on whose behalf things happen now. What began beside turns goes on beside them, whatever turn runs.
    pub cause_turn: Option<TurnId>,
    /// Tool runs opened in this decision.
    pub opened_tool_runs: Vec<ToolRunId>,
}

fn opened_tool_run(event: &Event) -> Option<ToolRunId> {
    match event {
        Event::ToolRunOpened(opened) => Some(opened.run),
        _ => None,
    }
}

impl<'a> DecisionDraft<'a> {
    pub fn new(flow: &'a dyn DynFlow, state: &SessionState, env: DecisionEnv<'a>) -> Self {
        Self {
            flow,
            env,
            state: state.clone(),
            texts: TextResolver::new(env.texts),
            message: None,
            events: Vec::new(),
            subjects: Vec::new(),
            bodies: Vec::new(),
            stored: BTreeSet::new(),
            reacted: 0,
            cause_turn: state.session.current_turn.as_ref().map(|turn| turn.id),
            opened_tool_runs: Vec::new(),
        }
    }

    pub fn session(&self) -> &Session {
        &self.state.session
    }

    /// The flow's data; outlives the borrow of the draft.
    pub fn spec(&self) -> &'a FlowSpec {
        self.flow.spec()
    }

    /// The turn that what happens now belongs to, if that turn still runs.
    pub fn active_cause_turn(&self) -> Option<TurnId> {
        let running = self.session().current_turn.as_ref().map(|turn| turn.id);
        self.cause_turn.filter(|cause| running == Some(*cause))
    }

    /// Records an event: from here on it is part of the state.
    pub fn record_event(&mut self, event: Event) {
        let recorded = RecordedEvent { seq: self.state.session.last_seq.next(), at: self.env.now, event };
        let about = self.event_subject(&recorded.event);
        self.state.apply(self.flow, &recorded);
        self.events.push(recorded);
        self.subjects.push(about);
    }

    /// What this decision has recorded so far.
    pub fn recorded_events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|recorded| &recorded.event)
    }

    /// What an event is about, looked up before the event closes it.
    fn event_subject(&self, event: &Event) -> EventSubject {
        let session = self.session();
        let about_call = |opened: Option<Arc<CallOpened>>| {
            let turn = opened.as_ref().map_or(self.cause_turn, |opened| opened.turn);
            EventSubject { call: opened, tool: None, turn }
        };
        let about_tool = |opened: Option<ToolRunOpened>| {
            let turn = opened.as_ref().map_or(self.cause_turn, |opened| opened.turn);
            EventSubject { call: None, tool: opened, turn }
        };
        let about_turn = |turn: Option<TurnId>| EventSubject { turn, ..EventSubject::default() };
        let call = |call: &CallId| session.open_calls.get(call).map(|open| open.opened.clone());
        match event {
            Event::CallOpened(opened) => about_call(Some(opened.clone())),
            Event::CallAnswered(answered) => about_call(call(&answered.call)),
            Event::CallFailed { call: id, .. }
            | Event::CallOutcomeUnknown { call: id, .. }
            | Event::InheritedCallStarted { call: id }
            | Event::CallResolved { call: id, .. }
            | Event::CallCancelled { call: id, .. } => about_call(call(id)),
            // It belongs to the turn it was made in, whatever turn runs by now.
            Event::CallAnsweredLate { call: id, .. } => {
                let given_up = session.abandoned_calls.iter().find(|given_up| given_up.call == *id);
                about_turn(given_up.and_then(|given_up| given_up.turn))
            }
            Event::ToolRunOpened(opened) => about_tool(Some(opened.clone())),
            Event::ToolRunEnded { run, .. } => about_tool(session.open_tool_runs.get(run).cloned()),
            Event::TurnStarted { turn, .. } => about_turn(Some(*turn)),
            Event::TimerFired { timer, .. } => about_turn(session.timers.get(timer).and_then(|timer| timer.turn)),
            _ => about_turn(self.cause_turn),
        }
    }

    /// What the flow may look at now, for an event that is about `about`.
    pub fn flow_context<'s>(&'s self, subject: &'s EventSubject) -> DynFlowContext<'s> {
        DynFlowContext { session: &self.state.session, state: &self.state.flow, texts: &self.texts, subject }
    }

    /// Records that the flow tried what the rules do not allow.
    pub fn refuse_step(&mut self, step: impl Into<String>, why: impl Into<String>) {
        self.record_event(Event::StepRefused { step: step.into(), reason: why.into() });
    }

    /// Stores a text that an event is about to name.
    pub fn store_text(&mut self, text: impl Into<Arc<str>>, kind: BodyKind) -> TextRef {
        let text: Arc<str> = text.into();
        let tokens = self.env.token_counter.count_tokens(&text);
        TextRef { body: self.store_uncounted_text(text, kind), tokens }
    }

    /// Stores a text that is not counted: no model is shown it as such.
    pub fn store_uncounted_text(&mut self, text: Arc<str>, kind: BodyKind) -> BodyId {
        let id = BodyId::hash_text(&text);
        if self.stored.insert(id) {
            self.texts.created.insert(id, text.clone());
            self.bodies.push(TextBody { id, text, kind });
        }
        id
    }

    /// Lets the flow react to each event before anything else happens, then takes its steps one by one, then lets the rules
    /// do what is left, until nothing moves any more.
    pub fn run_to_completion(&mut self) -> Result<(), InputRefusal> {
        let mut steps: VecDeque<(Option<TurnId>, FlowStep)> = VecDeque::new();
        for _ in 0..STEPS_PER_INPUT_MAX {
            while self.reacted < self.events.len() {
                let event = self.events[self.reacted].clone();
                let about = std::mem::take(&mut self.subjects[self.reacted]);
                self.reacted += 1;
                self.cause_turn = about.turn;
                self.apply_builtin_rules(&event.event, &about);
                self.opened_tool_runs.extend(opened_tool_run(&event.event));
                // A summary is the rules' own errand, and what is made once more nobody's: no flow has to tell them from the
                // calls it wished. Nor is it told that what it gave up long ago has failed.
                let is_late_failure = matches!(event.event, Event::CallFailed { .. }) && about.call.is_none();
                let is_flows = |call: &Arc<CallOpened>| call.compacts_thread.is_none() && call.recomputation.is_none();
                if about.call.as_ref().is_none_or(is_flows) && !is_late_failure {
                    let next = self.flow.react(self.flow_context(&about), &event);
                    steps.extend(next.into_iter().map(|step| (about.turn, step)));
                }
            }
            match steps.pop_front() {
                Some((cause, step)) => {
                    self.cause_turn = cause;
                    self.perform_step(step);
                }
                None if self.fail_unanswered_flow_tools() || self.advance_session() => {}
                None => return Ok(()),
            }
        }
        Err(InputRefusal::TooManySteps { most: STEPS_PER_INPUT_MAX })
    }

    /// What the rules themselves do once the flow has nothing to add. Says whether anything was recorded.
    fn advance_session(&mut self) -> bool {
        if self.session().closed_reason.is_some()
            && self.session().current_turn.is_none()
            && self.cancel_all_pending("the session is closed")
        {
            return true;
        }
        if self.env.dispatch == Dispatch::Deferred {
            return false;
        }
        if self.continue_after_tools() || self.resume_deferred_call() || self.expire_phases() {
            return true;
        }
        if self.session().current_turn.is_some() {
            return self.end_stalled_turn();
        }
        self.start_turn()
    }

    /// A turn in which nothing is owed any more will never end by itself.
    fn end_stalled_turn(&mut self) -> bool {
        let session = self.session();
        let waits = !session.open_calls.is_empty()
            || !session.open_tool_runs.is_empty()
            || !session.tool_rounds.is_empty()
            || !session.deferred_calls.is_empty()
            || !session.timers.is_empty();
        let Some(turn) = session.current_turn.as_ref().filter(|_| !waits).map(|turn| turn.id) else { return false };
        let reason = "nothing more was to be done, and the flow did not end the turn".to_owned();
        self.record_event(Event::TurnEnded { turn, outcome: TurnResult::Failed { reason } });
        true
    }

    pub fn finish(self, decided: Result<(), InputRefusal>) -> Result<Decision, DecideError> {
        let missing = self.texts.missing_ids();
        if !missing.is_empty() {
            return Err(DecideError::MissingTexts(missing));
        }
        decided.map_err(DecideError::Refused)?;
        Ok(Decision { events: self.events, bodies: self.bodies, state: self.state, message: self.message })
    }
}
