//! Calls that were given up or cancelled: what is remembered of them until they are heard of for the last time.

use super::apply::{Missed, account, keep_newest};
use super::{GivenUp, OpenCall, Session};
use crate::ids::CallId;
use crate::ledger::Account;
use crate::limits::GIVEN_UP_MAX;
use crate::prompt::Usage;

impl Session {
    /// A call is not waited for any more; its answer may still come, and will have been paid for.
    pub(super) fn give_up(&mut self, call: CallId) {
        let Some(OpenCall { opened, account, .. }) = self.calls.get(&call) else { return };
        self.given_up.push_back(GivenUp {
            call,
            turn: opened.turn,
            role: opened.role.clone(),
            model: opened.model.clone(),
            account: account.clone(),
            tokens: opened.receipt.tokens,
            stopped: false,
            in_flight: false,
        });
        keep_newest(&mut self.given_up, GIVEN_UP_MAX);
        self.close_call(call);
    }

    /// A call is not wanted any more. What it took while it was under way, if anything, nobody says unless it is heard of.
    pub(super) fn call_cancelled(&mut self, call: CallId, in_flight: bool) {
        let Some(open) = self.calls.get(&call) else { return };
        if in_flight {
            self.ledger.unknown(account(open));
        }
        self.give_up(call);
        if let Some(given_up) = self.given_up.back_mut().filter(|given_up| given_up.call == call) {
            given_up.in_flight = in_flight;
        }
    }

    pub(super) fn answered_late(&mut self, call: CallId, usage: Usage, cost_microusd: Option<u64>) {
        let Some(given_up) = self.take_given_up(call) else { return };
        self.ledger.answered_late(given_up.account(), usage, cost_microusd);
    }

    /// A call that was given up brought no answer either, and took something all the same.
    pub(super) fn failed_late(&mut self, call: CallId, how: Missed) {
        let Missed::Failed(spent) = how else { return };
        let Some(given_up) = self.take_given_up(call) else { return };
        self.ledger.failed(given_up.account(), spent);
    }

    /// A call that was given up is heard of, for the last time.
    fn take_given_up(&mut self, call: CallId) -> Option<GivenUp> {
        let place = self.given_up.iter().position(|given_up| given_up.call == call)?;
        let given_up = self.given_up.remove(place)?;
        if given_up.in_flight {
            self.ledger.found(given_up.account());
        }
        Some(given_up)
    }
}

impl GivenUp {
    fn account(&self) -> Account<'_> {
        let Self { turn, role, model, account, .. } = self;
        Account { role, model, phase: account.as_deref(), turn: *turn }
    }
}
