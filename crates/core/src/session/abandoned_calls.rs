//! Calls that were given up or cancelled: what is remembered of them until they are heard of for the last time.

use super::apply::{UnansweredAttempt, keep_newest, ledger_account};
use super::{AbandonedCall, OpenCall, Session};
use crate::ids::CallId;
use crate::ledger::LedgerAccount;
use crate::limits::ABANDONED_CALLS_MAX;
use crate::prompt::TokenUsage;

impl Session {
    /// A call is not waited for any more; its answer may still come, and will have been paid for.
    pub(super) fn abandon_call(&mut self, call: CallId) {
        let Some(OpenCall { opened, ledger_phase: account, .. }) = self.open_calls.get(&call) else { return };
        self.abandoned_calls.push_back(AbandonedCall {
            call,
            turn: opened.turn,
            role: opened.role.clone(),
            model: opened.model.clone(),
            ledger_phase: account.clone(),
            prompt_tokens: opened.receipt.tokens,
            turn_stopped: false,
            in_flight: false,
        });
        keep_newest(&mut self.abandoned_calls, ABANDONED_CALLS_MAX);
        self.close_call(call);
    }

    /// A call is not wanted any more. What it took while it was under way, if anything, nobody says unless it is heard of.
    pub(super) fn apply_call_cancelled(&mut self, call: CallId, in_flight: bool) {
        let Some(open) = self.open_calls.get(&call) else { return };
        if in_flight {
            self.ledger.record_unknown_outcome(ledger_account(open));
        }
        self.abandon_call(call);
        if let Some(given_up) = self.abandoned_calls.back_mut().filter(|given_up| given_up.call == call) {
            given_up.in_flight = in_flight;
        }
    }

    pub(super) fn apply_late_answer(&mut self, call: CallId, usage: TokenUsage, cost_microusd: Option<u64>) {
        let Some(given_up) = self.take_abandoned_call(call) else { return };
        self.ledger.record_late_answer(given_up.ledger_account(), usage, cost_microusd);
    }

    /// A call that was given up brought no answer either, and took something all the same.
    pub(super) fn apply_late_failure(&mut self, call: CallId, how: UnansweredAttempt) {
        let UnansweredAttempt::Failed(spent) = how else { return };
        let Some(given_up) = self.take_abandoned_call(call) else { return };
        self.ledger.record_failure(given_up.ledger_account(), spent);
    }

    /// A call that was given up is heard of, for the last time.
    fn take_abandoned_call(&mut self, call: CallId) -> Option<AbandonedCall> {
        let place = self.abandoned_calls.iter().position(|given_up| given_up.call == call)?;
        let given_up = self.abandoned_calls.remove(place)?;
        if given_up.in_flight {
            self.ledger.resolve_unknown_outcome(given_up.ledger_account());
        }
        Some(given_up)
    }
}

impl AbandonedCall {
    fn ledger_account(&self) -> LedgerAccount<'_> {
        let Self { turn, role, model, ledger_phase: account, .. } = self;
        LedgerAccount { role, model, phase: account.as_deref(), turn: *turn }
    }
}
