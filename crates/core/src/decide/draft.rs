//! A decision in progress: the events so far, the resulting state, and how many of the events the flow has seen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{DecideError, Decision, DecisionEnv, EffectDispatchMode, InputRefusal, SubmissionToOtherSession};
use crate::body::{BodyId, BodyVisibility, TextRef, TextToStore};
use crate::event::{CallOpened, ChildSpawned, Event, PhaseGraphKey, RecordedEvent, ToolRunOpened, TurnOutcome};
use crate::flow::{
    DecisionTextResolver, DynFlow, DynFlowState, EventSubject, FlowContext, FlowSpec, FlowStep,
    SpawnChildSessionRequest,
};
use crate::ids::{CallId, MessageId, ToolRunId, TurnId};
use crate::limits::STEPS_PER_INPUT_MAX;
use crate::session::{Session, SessionState};

pub(super) struct DecisionDraft<'a> {
    pub flow: &'a dyn DynFlow,
    pub env: DecisionEnv<'a>,
    pub state: SessionState,
    pub texts: DecisionTextResolver<'a>,
    pub message: Option<MessageId>,
    events: Vec<RecordedEvent>,
    subjects: Vec<EventSubject>,
    bodies: Vec<TextToStore>,
    stored: BTreeSet<BodyId>,
    /// The number of events that the flow has reacted to.
    reacted: usize,
    /// The turn that causes the current events. Work that started outside turns stays outside them.
    pub cause_turn: Option<TurnId>,
    /// The phase graph of the role or agent that causes the current events.
    pub cause_graph: Option<PhaseGraphKey>,
    /// The tool runs opened in this decision.
    pub opened_tool_runs: Vec<ToolRunId>,
    pub submission_outcome: Option<Result<Option<MessageId>, InputRefusal>>,
    pub submissions: Vec<SubmissionToOtherSession>,
    pub children: Vec<(ChildSpawned, SpawnChildSessionRequest)>,
}

fn opened_tool_run(event: &Event) -> Option<ToolRunId> {
    match event {
        Event::ToolRunOpened(opened) => Some(opened.run),
        _ => None,
    }
}

impl<'a> DecisionDraft<'a> {
    pub(crate) fn new(flow: &'a dyn DynFlow, state: &SessionState, env: DecisionEnv<'a>) -> Self {
        Self {
            flow,
            env,
            state: state.clone(),
            texts: DecisionTextResolver::new(env.texts),
            message: None,
            events: Vec::new(),
            subjects: Vec::new(),
            bodies: Vec::new(),
            stored: BTreeSet::new(),
            reacted: 0,
            cause_turn: state.session.current_turn.as_ref().map(|turn| turn.id),
            cause_graph: None,
            opened_tool_runs: Vec::new(),
            submission_outcome: None,
            submissions: Vec::new(),
            children: Vec::new(),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.state.session
    }

    /// Returns the flow's data, which outlives the borrow of the draft.
    pub(crate) fn spec(&self) -> &'a FlowSpec {
        self.flow.spec()
    }

    /// Returns the turn that causes the current events, if it is still running.
    pub(crate) fn active_cause_turn(&self) -> Option<TurnId> {
        let running = self.session().current_turn.as_ref().map(|turn| turn.id);
        self.cause_turn.filter(|cause| running == Some(*cause))
    }

    /// Records an event and applies it to the state.
    pub(crate) fn record_event(&mut self, event: Event) {
        let recorded = RecordedEvent { seq: self.state.session.last_seq.next(), at: self.env.now, event };
        let subject = self.event_subject(&recorded.event);
        self.state.apply(self.flow, &recorded);
        self.events.push(recorded);
        self.subjects.push(subject);
    }

    /// Returns the events of this decision so far.
    pub(crate) fn recorded_events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|recorded| &recorded.event)
    }

    /// Returns the call, tool run and turn of an event, before the event is applied.
    fn event_subject(&self, event: &Event) -> EventSubject {
        let session = self.session();
        let about_call = |opened: Option<Arc<CallOpened>>| {
            let turn = opened.as_ref().map_or(self.cause_turn, |opened| opened.turn);
            let phase_graph = opened
                .as_ref()
                .and_then(|opened| Session::phase_graph_key_for_role(self.spec(), &opened.role, opened.agent.as_ref()));
            EventSubject { call: opened, turn, phase_graph, ..EventSubject::default() }
        };
        let about_tool = |opened: Option<ToolRunOpened>| {
            let turn = opened.as_ref().map_or(self.cause_turn, |opened| opened.turn);
            EventSubject { tool: opened, turn, ..EventSubject::default() }
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
            // A late answer belongs to the turn of its call, not to the current one.
            Event::CallAnsweredLate { call: id, .. } => {
                let abandoned = session.abandoned_calls.iter().find(|abandoned| abandoned.call == *id);
                about_turn(abandoned.and_then(|abandoned| abandoned.turn))
            }
            Event::ToolRunOpened(opened) => about_tool(Some(opened.clone())),
            Event::ToolRunHeld { run, .. }
            | Event::ToolRunApproved { run, .. }
            | Event::ToolRunDenied { run, .. }
            | Event::ToolRunResolved { run, .. }
            | Event::ToolRunEnded { run, .. } => about_tool(session.open_tool_runs.get(run).cloned()),
            Event::TurnStarted { turn, .. } => about_turn(Some(*turn)),
            Event::ChildSpawned(spawned) => about_turn(spawned.turn),
            Event::ChildEnded { child, .. } => {
                about_turn(session.open_children.get(child).and_then(|open| open.spawned.turn))
            }
            Event::AskSent(sent) => about_turn(sent.turn),
            Event::AskEnded { ask, .. } => about_turn(session.open_asks.get(ask).and_then(|sent| sent.turn)),
            Event::AskReceived(_) => about_turn(None),
            // A command has no role. What the flow does about it belongs to the phase graph of the session, if it has one.
            Event::CommandIssued { .. } => {
                let mut graphs = session.phase_graphs.keys();
                let phase_graph = graphs.next().filter(|_| graphs.next().is_none()).cloned();
                EventSubject { phase_graph, ..about_turn(self.cause_turn) }
            }
            Event::TimerFired { timer, .. } => about_turn(session.timers.get(timer).and_then(|timer| timer.turn)),
            _ => EventSubject { phase_graph: self.cause_graph.clone(), ..about_turn(self.cause_turn) },
        }
    }

    /// Returns what the flow may read while it handles an event.
    pub(crate) fn flow_context<'s>(&'s self, subject: &'s EventSubject) -> FlowContext<'s, DynFlowState> {
        FlowContext { session: &self.state.session, state: &self.state.flow, texts: &self.texts, subject }
    }

    /// Records that the flow requested a step that the rules forbid.
    pub(crate) fn refuse_step(&mut self, step: impl Into<String>, reason: impl Into<String>) {
        self.record_event(Event::StepRefused { step: step.into(), reason: reason.into() });
    }

    /// Stores a text that an event will refer to.
    pub(crate) fn store_text(&mut self, text: impl Into<Arc<str>>, kind: BodyVisibility) -> TextRef {
        let text: Arc<str> = text.into();
        let tokens = self.env.token_counter.count_tokens(&text);
        TextRef { body: self.store_uncounted_text(text, kind), tokens }
    }

    /// Stores a text without counting its tokens, because it is not sent to a model as it is.
    pub(crate) fn store_uncounted_text(&mut self, text: Arc<str>, kind: BodyVisibility) -> BodyId {
        let id = BodyId::hash_text(&text);
        if self.stored.insert(id) {
            self.texts.created.insert(id, text.clone());
            self.bodies.push(TextToStore { id, text, kind });
        }
        id
    }

    /// Lets the flow react to each event first, then performs its steps one by one, then applies the rules, until
    /// nothing is left to do.
    pub(crate) fn run_to_completion(&mut self) -> Result<(), InputRefusal> {
        let mut steps: VecDeque<(Option<TurnId>, Option<PhaseGraphKey>, FlowStep)> = VecDeque::new();
        for _ in 0..STEPS_PER_INPUT_MAX {
            while self.reacted < self.events.len() {
                let event = self.events[self.reacted].clone();
                let subject = std::mem::take(&mut self.subjects[self.reacted]);
                self.reacted += 1;
                self.cause_turn = subject.turn;
                self.cause_graph.clone_from(&subject.phase_graph);
                self.apply_builtin_rules(&event.event, &subject);
                self.opened_tool_runs.extend(opened_tool_run(&event.event));
                // The flow does not see summaries and repeated calls, which it did not request, nor late failures of
                // calls that it abandoned.
                let is_late_failure = matches!(event.event, Event::CallFailed { .. }) && subject.call.is_none();
                let is_flows = |call: &Arc<CallOpened>| call.compacts_thread.is_none() && call.recomputation.is_none();
                if subject.call.as_ref().is_none_or(is_flows) && !is_late_failure {
                    let next = self.flow.react(self.flow_context(&subject), &event);
                    steps.extend(next.into_iter().map(|step| (subject.turn, subject.phase_graph.clone(), step)));
                }
            }
            match steps.pop_front() {
                Some((turn, graph, step)) => {
                    (self.cause_turn, self.cause_graph) = (turn, graph);
                    self.perform_step(step);
                }
                None if self.fail_unanswered_flow_tools() || self.advance_after_flow_steps() => {}
                None => return Ok(()),
            }
        }
        Err(InputRefusal::TooManySteps { most: STEPS_PER_INPUT_MAX })
    }

    /// Applies the rules when the flow has no more steps. Returns true if anything was recorded.
    fn advance_after_flow_steps(&mut self) -> bool {
        if self.session().closed_reason.is_some()
            && self.session().current_turn.is_none()
            && self.cancel_all_pending("the session is closed")
        {
            return true;
        }
        if self.finish_closed_session() {
            return true;
        }
        if self.env.dispatch == EffectDispatchMode::Deferred {
            return false;
        }
        if self.enter_exit_of_expired_phase() || self.continue_after_tools() || self.resume_deferred_call() {
            return true;
        }
        if self.session().current_turn.is_some() {
            return self.end_stalled_turn();
        }
        self.start_turn()
    }

    /// Fails a turn that has no pending work, because it would never end.
    fn end_stalled_turn(&mut self) -> bool {
        let session = self.session();
        let turn = session.current_turn.as_ref().filter(|_| !session.has_anything_pending());
        let Some(turn) = turn.map(|turn| turn.id) else { return false };
        let reason = "the flow left no pending work and did not end the turn".to_owned();
        self.record_event(Event::TurnEnded { turn, outcome: TurnOutcome::Failed { reason } });
        true
    }

    pub(crate) fn into_decision(self, decided: Result<(), InputRefusal>) -> Result<Decision, DecideError> {
        let missing = self.texts.missing_ids();
        if !missing.is_empty() {
            return Err(DecideError::MissingTexts(missing));
        }
        decided.map_err(DecideError::Refused)?;
        Ok(Decision {
            events: self.events,
            bodies: self.bodies,
            state: self.state,
            message: self.message,
            submission_outcome: self.submission_outcome,
            submissions: self.submissions,
            children: self.children,
        })
    }
}
