//! What ends without having come to anything: turns that are stopped, calls and tools nobody wants any more, and what was
//! under way when a process died.

use super::Doing;
use super::draft::Draft;
use crate::event::{Event, Next, Outcome, ToolOutcome};
use crate::flow::UnknownPolicy;
use crate::ids::{CallId, Seq, SessionId, TimerId, ToolRunId, TurnId};
use crate::limits::TRIES_MAX;
use crate::session::{CallStatus, OpenCall};

impl Draft<'_> {
    /// Ends the turn that runs and all that is owed for it.
    pub fn stop_turn(&mut self, reason: &str, outcome: Outcome) {
        let Some(turn) = self.session().turn.as_ref().map(|turn| turn.id) else { return };
        self.cancel_owed(reason, |other| other == Some(turn));
        self.record(Event::TurnEnded { turn, outcome });
    }

    /// Ends everything that is owed and every timer. Says whether there was anything.
    pub fn abandon(&mut self, reason: &str) -> bool {
        let before = self.session().seq;
        self.cancel_owed(reason, |_| true);
        let rounds: Vec<CallId> = self.session().rounds.keys().copied().collect();
        for call in rounds {
            self.record(Event::RoundDropped { call, reason: reason.to_owned() });
        }
        let timers: Vec<TimerId> = self.session().timers.keys().copied().collect();
        for timer in timers {
            self.record(Event::TimerStopped { timer });
        }
        self.session().seq != before
    }

    /// Ends the turn that runs as failed, and every round that nobody will go on with.
    pub fn let_go(&mut self, reason: &str) {
        self.stop_turn(reason, Outcome::Failed { reason: reason.to_owned() });
        let session = self.session();
        let runs =
            |call: CallId| session.tools.values().any(|tool| tool.wish.as_ref().is_some_and(|(of, _)| *of == call));
        let left: Vec<CallId> = session.rounds.keys().copied().filter(|call| !runs(*call)).collect();
        for call in left {
            self.record(Event::RoundDropped { call, reason: reason.to_owned() });
        }
    }

    fn cancel_owed(&mut self, reason: &str, wanted: impl Fn(Option<TurnId>) -> bool) {
        let session = self.session();
        let calls: Vec<CallId> =
            session.calls.iter().filter(|(_, open)| wanted(open.opened.turn)).map(|(call, _)| *call).collect();
        let tools: Vec<ToolRunId> =
            session.tools.values().filter(|tool| wanted(tool.turn)).map(|tool| tool.run).collect();
        let deferred: Vec<u32> =
            session.deferred.values().filter(|wait| wanted(wait.turn)).map(|wait| wait.deferred).collect();
        for call in calls {
            self.cancel(call, reason.to_owned());
        }
        for run in tools {
            self.close_tool(run, ToolOutcome::Cancelled, format!("cancelled: {reason}"));
        }
        for deferred in deferred {
            self.record(Event::CallDropped { deferred, reason: reason.to_owned() });
        }
    }

    /// Ends a call that nobody wants any more.
    pub fn cancel(&mut self, call: CallId, reason: String) {
        let is_due = self.session().calls.get(&call).is_some_and(|open| open.is_due(self.env.now));
        // What this very decision opens, tries again or takes up nobody has begun.
        let in_flight = is_due && !self.recorded().any(|event| is_of_next_try(event, call));
        self.record(Event::CallCancelled { call, reason, in_flight });
    }

    /// The session is a copy from here on. The turn it was copied in the middle of is over; what goes on beside turns goes on here
    /// too, but for what somebody had made once more there.
    pub fn fork(&mut self, session: SessionId, from: SessionId, at: Seq) {
        self.record(Event::SessionForked { session, from, at });
        self.stop_turn("the session was forked in the middle of a turn", Outcome::Cancelled);
        let calls = self.session().calls.iter();
        let again: Vec<CallId> =
            calls.filter(|(_, open)| open.opened.recomputes.is_some()).map(|(call, _)| *call).collect();
        for call in again {
            self.cancel(call, "the session was forked meanwhile".to_owned());
        }
        self.take_up_left();
    }

    /// Makes the calls that a copy was left with, if anybody makes calls here.
    fn take_up_left(&mut self) {
        if self.env.doing == Doing::Elsewhere {
            return;
        }
        let calls = self.session().calls.iter();
        let left: Vec<CallId> =
            calls.filter(|(_, open)| matches!(open.status, CallStatus::Left(_))).map(|(call, _)| *call).collect();
        for call in left {
            self.record(Event::CallTakenUp { call });
        }
    }

    /// What was in flight has an unknown end. A try that was still to come has not begun.
    pub fn recover(&mut self) {
        let now = self.env.now;
        let calls: Vec<(CallId, u32, UnknownPolicy)> = self
            .session()
            .calls
            .iter()
            .filter(|(_, open)| open.is_due(now))
            .map(|(call, open)| (*call, open.attempt, self.unknown_policy(open)))
            .collect();
        for (call, attempt, policy) in calls {
            let next = match policy {
                UnknownPolicy::Retry if attempt < TRIES_MAX => Next::Retry { at: now },
                UnknownPolicy::Ask => Next::Ask,
                UnknownPolicy::Retry | UnknownPolicy::Fail => Next::GiveUp,
            };
            self.record(Event::CallUnknown { call, attempt, next });
        }
        self.take_up_left();
        let runs: Vec<(ToolRunId, UnknownPolicy)> = self
            .session()
            .tools
            .values()
            .map(|tool| (tool.run, self.spec().tools.get(&tool.tool).map_or(UnknownPolicy::Fail, |def| def.unknown)))
            .collect();
        for (run, policy) in runs {
            if policy != UnknownPolicy::Retry {
                let text = "the process died while this ran; it may or may not have had its effect".to_owned();
                self.close_tool(run, ToolOutcome::Unknown, text);
            }
        }
        self.fire_timers();
    }

    fn unknown_policy(&self, open: &OpenCall) -> UnknownPolicy {
        self.spec().roles.get(&open.opened.role).map_or(UnknownPolicy::Fail, |role| role.unknown)
    }
}

/// Whether the next try of a call is to begin only after this event.
fn is_of_next_try(event: &Event, wanted: CallId) -> bool {
    match event {
        Event::CallOpened(opened) => opened.call == wanted,
        Event::CallFailed { call, .. }
        | Event::CallUnknown { call, .. }
        | Event::CallTakenUp { call }
        | Event::CallResolved { call, .. } => *call == wanted,
        _ => false,
    }
}
