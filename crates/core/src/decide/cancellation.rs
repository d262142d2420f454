//! Ends work without a result: cancelled turns, abandoned calls and tools, and work that was in flight when the process
//! died.

use super::EffectDispatchMode;
use super::draft::DecisionDraft;
use crate::event::{Event, RetryDecision, ToolRunOutcome, TurnOutcome};
use crate::flow::UnknownOutcomePolicy;
use crate::ids::{CallId, Seq, SessionId, TimerId, ToolRunId, TurnId};
use crate::limits::ATTEMPTS_PER_CALL_MAX;
use crate::session::{OpenCall, OpenCallStatus};

impl DecisionDraft<'_> {
    /// Ends the current turn and cancels its pending work.
    pub(crate) fn stop_turn(&mut self, reason: &str, outcome: TurnOutcome) {
        let Some(turn) = self.session().current_turn.as_ref().map(|turn| turn.id) else { return };
        self.cancel_pending_where(reason, |other| other == Some(turn));
        self.record_event(Event::TurnEnded { turn, outcome });
    }

    /// Cancels all pending work and timers. Returns true if there was any.
    pub(crate) fn cancel_all_pending(&mut self, reason: &str) -> bool {
        let before = self.session().last_seq;
        self.cancel_pending_where(reason, |_| true);
        let rounds: Vec<CallId> = self.session().tool_rounds.keys().copied().collect();
        for call in rounds {
            self.record_event(Event::ToolRoundDropped { call, reason: reason.to_owned() });
        }
        let timers: Vec<TimerId> = self.session().timers.keys().copied().collect();
        for timer in timers {
            self.record_event(Event::TimerStopped { timer });
        }
        self.session().last_seq != before
    }

    /// Fails the current turn and drops every tool round that no call will continue.
    pub(crate) fn fail_turn_and_drop_tool_rounds(&mut self, reason: &str) {
        self.stop_turn(reason, TurnOutcome::Failed { reason: reason.to_owned() });
        let session = self.session();
        let runs = |call: CallId| {
            session.open_tool_runs.values().any(|tool| tool.requested_by.as_ref().is_some_and(|(of, _)| *of == call))
        };
        let left: Vec<CallId> = session.tool_rounds.keys().copied().filter(|call| !runs(*call)).collect();
        for call in left {
            self.record_event(Event::ToolRoundDropped { call, reason: reason.to_owned() });
        }
    }

    fn cancel_pending_where(&mut self, reason: &str, is_selected: impl Fn(Option<TurnId>) -> bool) {
        let session = self.session();
        let calls: Vec<CallId> = session
            .open_calls
            .iter()
            .filter(|(_, open)| is_selected(open.opened.turn))
            .map(|(call, _)| *call)
            .collect();
        let tools: Vec<ToolRunId> =
            session.open_tool_runs.values().filter(|tool| is_selected(tool.turn)).map(|tool| tool.run).collect();
        let deferred: Vec<u32> = session
            .deferred_calls
            .values()
            .filter(|wait| is_selected(wait.turn))
            .map(|wait| wait.deferred_id)
            .collect();
        for call in calls {
            self.cancel_call(call, reason.to_owned());
        }
        for run in tools {
            self.close_tool_run(run, ToolRunOutcome::Cancelled, format!("cancelled: {reason}"));
        }
        for deferred in deferred {
            self.record_event(Event::DeferredCallDropped { deferred_id: deferred, reason: reason.to_owned() });
        }
        self.end_waits_where(reason, is_selected);
    }

    /// Cancels a call.
    pub(crate) fn cancel_call(&mut self, call: CallId, reason: String) {
        let is_due = self.session().open_calls.get(&call).is_some_and(|open| open.is_attempt_due(self.env.now));
        // An attempt that this decision itself schedules has not started.
        let in_flight = is_due && !self.recorded_events().any(|event| schedules_attempt_of(event, call));
        self.record_event(Event::CallCancelled { call, reason, in_flight });
    }

    /// Turns a copy of a session into a session of its own. Its current turn ends. Work outside turns continues, except
    /// for repeated calls.
    pub(crate) fn detach_fork_from_origin(&mut self, session: SessionId, from: SessionId, at: Seq) {
        self.record_event(Event::SessionForked { session, from, at_seq: at });
        self.drop_inherited_waits();
        self.deny_inherited_tool_runs();
        // A turn that waits for its client can be continued in the copy, too: nothing runs here.
        if !self.session().waits_only_for_client() {
            self.stop_turn("the session was forked in the middle of a turn", TurnOutcome::Cancelled);
        }
        let calls = self.session().open_calls.iter();
        let repeated: Vec<CallId> =
            calls.filter(|(_, open)| open.opened.recomputation.is_some()).map(|(call, _)| *call).collect();
        for call in repeated {
            self.cancel_call(call, "the session was forked".to_owned());
        }
        self.close_copied_tools();
        self.resume_copied_calls();
    }

    /// Ends the tool runs that were copied while they ran: the original session runs them, and a copy must not act twice.
    ///
    /// A fork may cut the journal between an answer and the tool runs it asked for. Such a round can never be completed,
    /// so it is dropped.
    fn close_copied_tools(&mut self) {
        let session = self.session();
        let runs = session.open_tool_runs.keys().filter(|run| !session.held_tool_runs.contains_key(run));
        let runs: Vec<ToolRunId> = runs.copied().collect();
        for run in runs {
            let text = "cancelled: the session was forked while this ran".to_owned();
            self.close_tool_run(run, ToolRunOutcome::Cancelled, text);
        }
        let rounds = self.session().tool_rounds.iter();
        let incomplete = rounds.filter(|(_, round)| !round.is_complete()).map(|(call, _)| *call);
        let incomplete: Vec<CallId> = incomplete.filter(|call| !self.session().has_held_runs(*call)).collect();
        for call in incomplete {
            let reason = "the session was forked before its tools ran".to_owned();
            self.record_event(Event::ToolRoundDropped { call, reason });
        }
    }

    /// Starts the calls that were pending in a copy, if this process makes calls.
    fn resume_copied_calls(&mut self) {
        if self.env.dispatch == EffectDispatchMode::Deferred {
            return;
        }
        let calls = self.session().open_calls.iter();
        let inherited: Vec<CallId> = calls
            .filter(|(_, open)| matches!(open.status, OpenCallStatus::Inherited(_)))
            .map(|(call, _)| *call)
            .collect();
        for call in inherited {
            self.record_event(Event::InheritedCallStarted { call });
        }
    }

    /// Marks everything in flight as having an unknown outcome. Attempts that were still scheduled had not started.
    pub(crate) fn recover_from_crash(&mut self) {
        let now = self.env.now;
        let calls: Vec<(CallId, u32, UnknownOutcomePolicy)> = self
            .session()
            .open_calls
            .iter()
            .filter(|(_, open)| open.is_attempt_due(now))
            .map(|(call, open)| (*call, open.attempt, self.unknown_outcome_policy(open)))
            .collect();
        for (call, attempt, policy) in calls {
            let next = match policy {
                UnknownOutcomePolicy::Retry if attempt < ATTEMPTS_PER_CALL_MAX => RetryDecision::Retry { at: now },
                UnknownOutcomePolicy::AskOperator => RetryDecision::AwaitOperator,
                UnknownOutcomePolicy::Retry | UnknownOutcomePolicy::Fail => RetryDecision::GiveUp,
            };
            self.record_event(Event::CallOutcomeUnknown { call, attempt, next });
        }
        self.resume_copied_calls();
        self.recover_tool_runs();
        self.fire_due_timers();
        self.end_overdue_waits();
    }

    fn unknown_outcome_policy(&self, open: &OpenCall) -> UnknownOutcomePolicy {
        self.spec().roles.get(&open.opened.role).map_or(UnknownOutcomePolicy::Fail, |role| role.unknown_outcome)
    }
}

/// Returns true if the next attempt of the call starts only after this event.
fn schedules_attempt_of(event: &Event, call_id: CallId) -> bool {
    match event {
        Event::CallOpened(opened) => opened.call == call_id,
        Event::CallFailed { call, .. }
        | Event::CallOutcomeUnknown { call, .. }
        | Event::InheritedCallStarted { call }
        | Event::CallResolved { call, .. } => *call == call_id,
        _ => false,
    }
}
