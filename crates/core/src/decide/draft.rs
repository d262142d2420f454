//! A decision in the making: events recorded so far, the state they lead to, and which of them the flow has not seen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Decision, Doing, Env, Refusal, Undecided};
use crate::body::{Body, BodyId, BodyKind, Text};
use crate::event::{CallOpened, Event, Outcome, Recorded, ToolOpened};
use crate::flow::{About, FlowSpec, Rules, Sight, Step, Texts};
use crate::ids::{CallId, MessageId, ToolRunId, TurnId};
use crate::limits::STEPS_PER_INPUT_MAX;
use crate::session::{Session, State};

pub(super) struct Draft<'a> {
    pub rules: &'a dyn Rules,
    pub env: Env<'a>,
    pub state: State,
    pub texts: Texts<'a>,
    pub message: Option<MessageId>,
    events: Vec<Recorded>,
    about: Vec<About>,
    bodies: Vec<Body>,
    stored: BTreeSet<BodyId>,
    /// How many of the events the flow has reacted to.
    seen: usize,
    /// The turn on whose behalf things happen now. What began beside turns goes on beside them, whatever turn runs.
    pub cause: Option<TurnId>,
    /// Tool runs opened in this decision.
    pub unanswered: Vec<ToolRunId>,
}

fn tool_opened(event: &Event) -> Option<ToolRunId> {
    match event {
        Event::ToolOpened(opened) => Some(opened.run),
        _ => None,
    }
}

impl<'a> Draft<'a> {
    pub fn new(rules: &'a dyn Rules, state: &State, env: Env<'a>) -> Self {
        Self {
            rules,
            env,
            state: state.clone(),
            texts: Texts::new(env.texts),
            message: None,
            events: Vec::new(),
            about: Vec::new(),
            bodies: Vec::new(),
            stored: BTreeSet::new(),
            seen: 0,
            cause: state.session.turn.as_ref().map(|turn| turn.id),
            unanswered: Vec::new(),
        }
    }

    pub fn session(&self) -> &Session {
        &self.state.session
    }

    /// The flow's data; outlives the borrow of the draft.
    pub fn spec(&self) -> &'a FlowSpec {
        self.rules.spec()
    }

    /// The turn that what happens now belongs to, if that turn still runs.
    pub fn turn(&self) -> Option<TurnId> {
        let running = self.session().turn.as_ref().map(|turn| turn.id);
        self.cause.filter(|cause| running == Some(*cause))
    }

    /// Records an event: from here on it is part of the state.
    pub fn record(&mut self, event: Event) {
        let recorded = Recorded { seq: self.state.session.seq.next(), at: self.env.now, event };
        let about = self.about(&recorded.event);
        self.state.apply(self.rules, &recorded);
        self.events.push(recorded);
        self.about.push(about);
    }

    /// What this decision has recorded so far.
    pub fn recorded(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|recorded| &recorded.event)
    }

    /// What an event is about, looked up before the event closes it.
    fn about(&self, event: &Event) -> About {
        let session = self.session();
        let about_call = |opened: Option<Arc<CallOpened>>| {
            let turn = opened.as_ref().map_or(self.cause, |opened| opened.turn);
            About { call: opened, tool: None, turn }
        };
        let about_tool = |opened: Option<ToolOpened>| {
            let turn = opened.as_ref().map_or(self.cause, |opened| opened.turn);
            About { call: None, tool: opened, turn }
        };
        let about_turn = |turn: Option<TurnId>| About { turn, ..About::default() };
        let call = |call: &CallId| session.calls.get(call).map(|open| open.opened.clone());
        match event {
            Event::CallOpened(opened) => about_call(Some(opened.clone())),
            Event::CallAnswered(answered) => about_call(call(&answered.call)),
            Event::CallFailed { call: id, .. }
            | Event::CallUnknown { call: id, .. }
            | Event::CallTakenUp { call: id }
            | Event::CallResolved { call: id, .. }
            | Event::CallCancelled { call: id, .. } => about_call(call(id)),
            // It belongs to the turn it was made in, whatever turn runs by now.
            Event::CallAnsweredLate { call: id, .. } => {
                let given_up = session.given_up.iter().find(|given_up| given_up.call == *id);
                about_turn(given_up.and_then(|given_up| given_up.turn))
            }
            Event::ToolOpened(opened) => about_tool(Some(opened.clone())),
            Event::ToolAnswered { run, .. } => about_tool(session.tools.get(run).cloned()),
            Event::TurnStarted { turn, .. } => about_turn(Some(*turn)),
            Event::TimerFired { timer, .. } => about_turn(session.timers.get(timer).and_then(|timer| timer.turn)),
            _ => about_turn(self.cause),
        }
    }

    /// What the flow may look at now, for an event that is about `about`.
    pub fn sight<'s>(&'s self, about: &'s About) -> Sight<'s> {
        Sight { session: &self.state.session, state: &self.state.flow, texts: &self.texts, about }
    }

    /// Records that the flow tried what the rules do not allow.
    pub fn refuse_step(&mut self, step: impl Into<String>, why: impl Into<String>) {
        self.record(Event::StepRefused { step: step.into(), why: why.into() });
    }

    /// Stores a text that an event is about to name.
    pub fn store(&mut self, text: impl Into<Arc<str>>, kind: BodyKind) -> Text {
        let text: Arc<str> = text.into();
        let tokens = self.env.count.count(&text);
        Text { body: self.store_body(text, kind), tokens }
    }

    /// Stores a text that is not counted: no model is shown it as such.
    pub fn store_body(&mut self, text: Arc<str>, kind: BodyKind) -> BodyId {
        let id = BodyId::of(&text);
        if self.stored.insert(id) {
            self.texts.new.insert(id, text.clone());
            self.bodies.push(Body { id, text, kind });
        }
        id
    }

    /// Lets the flow react to each event before anything else happens, then takes its steps one by one, then lets the rules
    /// do what is left, until nothing moves any more.
    pub fn run(&mut self) -> Result<(), Refusal> {
        let mut steps: VecDeque<(Option<TurnId>, Step)> = VecDeque::new();
        for _ in 0..STEPS_PER_INPUT_MAX {
            while self.seen < self.events.len() {
                let event = self.events[self.seen].clone();
                let about = std::mem::take(&mut self.about[self.seen]);
                self.seen += 1;
                self.cause = about.turn;
                self.follow(&event.event, &about);
                self.unanswered.extend(tool_opened(&event.event));
                // A summary is the rules' own errand, and what is made once more nobody's: no flow has to tell them from the
                // calls it wished. Nor is it told that what it gave up long ago has failed.
                let is_late_failure = matches!(event.event, Event::CallFailed { .. }) && about.call.is_none();
                let is_flows = |call: &Arc<CallOpened>| call.compacts.is_none() && call.recomputes.is_none();
                if about.call.as_ref().is_none_or(is_flows) && !is_late_failure {
                    let next = self.rules.react(self.sight(&about), &event);
                    steps.extend(next.into_iter().map(|step| (about.turn, step)));
                }
            }
            match steps.pop_front() {
                Some((cause, step)) => {
                    self.cause = cause;
                    self.perform(step);
                }
                None if self.answer_forgotten_tools() || self.settle() => {}
                None => return Ok(()),
            }
        }
        Err(Refusal::TooManySteps { most: STEPS_PER_INPUT_MAX })
    }

    /// What the rules themselves do once the flow has nothing to add. Says whether anything was recorded.
    fn settle(&mut self) -> bool {
        if self.session().closed.is_some() && self.session().turn.is_none() && self.abandon("the session is closed") {
            return true;
        }
        if self.env.doing == Doing::Elsewhere {
            return false;
        }
        if self.continue_rounds() || self.resume_deferred() || self.expire_phases() {
            return true;
        }
        if self.session().turn.is_some() {
            return self.end_stalled_turn();
        }
        self.start_turn()
    }

    /// A turn in which nothing is owed any more will never end by itself.
    fn end_stalled_turn(&mut self) -> bool {
        let session = self.session();
        let waits = !session.calls.is_empty()
            || !session.tools.is_empty()
            || !session.rounds.is_empty()
            || !session.deferred.is_empty()
            || !session.timers.is_empty();
        let Some(turn) = session.turn.as_ref().filter(|_| !waits).map(|turn| turn.id) else { return false };
        let reason = "nothing more was to be done, and the flow did not end the turn".to_owned();
        self.record(Event::TurnEnded { turn, outcome: Outcome::Failed { reason } });
        true
    }

    pub fn finish(self, decided: Result<(), Refusal>) -> Result<Decision, Undecided> {
        let missing = self.texts.missing();
        if !missing.is_empty() {
            return Err(Undecided::NeedTexts(missing));
        }
        decided.map_err(Undecided::Refused)?;
        Ok(Decision { events: self.events, bodies: self.bodies, state: self.state, message: self.message })
    }
}
