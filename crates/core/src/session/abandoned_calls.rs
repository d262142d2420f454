//! Keeps track of abandoned and cancelled calls until their outcome is known.

use super::apply::{UnansweredCallAttemptOutcome, keep_newest, ledger_account};
use super::{AbandonedUnansweredCall, OpenCall, Session};
use crate::ids::CallId;
use crate::limits::ABANDONED_CALLS_MAX;
use crate::prompt::TokenUsage;
use crate::session::ledger::CallAttribution;

impl Session {
    /// Closes a call whose answer may still arrive and be billed.
    pub(super) fn abandon_call(&mut self, call: CallId) {
        let Some(OpenCall { opened, ledger_phase, .. }) = self.open_calls.get(&call) else { return };
        self.abandoned_calls.push_back(AbandonedUnansweredCall {
            call,
            turn: opened.turn,
            role: opened.role.clone(),
            model: opened.model.clone(),
            ledger_phase: ledger_phase.clone(),
            prompt_tokens: opened.receipt.tokens,
            turn_stopped: false,
            in_flight: false,
        });
        keep_newest(&mut self.abandoned_calls, ABANDONED_CALLS_MAX);
        self.close_call(call);
    }

    /// Cancels a call. If an attempt is in flight, its cost is unknown until its outcome arrives.
    pub(super) fn apply_call_cancelled(&mut self, call: CallId, in_flight: bool) {
        let Some(open) = self.open_calls.get(&call) else { return };
        if in_flight {
            self.ledger.record_unknown_outcome(ledger_account(open));
        }
        self.abandon_call(call);
        if let Some(abandoned) = self.abandoned_calls.back_mut().filter(|abandoned| abandoned.call == call) {
            abandoned.in_flight = in_flight;
        }
    }

    pub(super) fn apply_late_answer(&mut self, call: CallId, usage: TokenUsage, cost_microusd: Option<u64>) {
        let Some(abandoned) = self.take_abandoned_call(call) else { return };
        self.ledger.record_late_answer(abandoned.ledger_account(), usage, cost_microusd);
    }

    /// Records the cost of a call that failed after it was abandoned.
    pub(super) fn apply_late_failure(&mut self, call: CallId, attempt: UnansweredCallAttemptOutcome) {
        let UnansweredCallAttemptOutcome::Failed(cost) = attempt else { return };
        let Some(abandoned) = self.take_abandoned_call(call) else { return };
        self.ledger.record_failure(abandoned.ledger_account(), cost);
    }

    /// Removes an abandoned call, because its outcome is known now.
    fn take_abandoned_call(&mut self, call: CallId) -> Option<AbandonedUnansweredCall> {
        let index = self.abandoned_calls.iter().position(|abandoned| abandoned.call == call)?;
        let abandoned = self.abandoned_calls.remove(index)?;
        if abandoned.in_flight {
            self.ledger.resolve_unknown_outcome(abandoned.ledger_account());
        }
        Some(abandoned)
    }
}

impl AbandonedUnansweredCall {
    fn ledger_account(&self) -> CallAttribution<'_> {
        let Self { turn, role, model, ledger_phase, .. } = self;
        CallAttribution { role, model, phase: ledger_phase.as_deref(), turn: *turn }
    }
}
