//! Tokens and cost of every call, added up by role, model, phase, turn and session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::context::Prefix;
use crate::event::CallAnswered;
use crate::ids::{FragmentName, ModelName, RoleName, TurnId};
use crate::prompt::{Spent, Usage};

/// What a session has spent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// In all.
    pub total: Tally,
    /// In the turn that runs, or in the last one.
    pub turn: Tally,
    /// Which turn that is.
    pub turn_id: Option<TurnId>,
    /// By role.
    pub roles: BTreeMap<RoleName, Tally>,
    /// By model.
    pub models: BTreeMap<ModelName, Tally>,
    /// By phase, as `graph/phase`.
    pub phases: BTreeMap<String, Tally>,
    /// How prompts relate to those before them: what a vendor could have cached.
    #[serde(default)]
    pub prefixes: Prefixes,
}

/// How prompts relate to those before them in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prefixes {
    /// Those with nothing before them.
    pub first: u32,
    /// Those that begin with all of the one before.
    pub extended: u32,
    /// Those that part from the one before, by the fragment at which they do.
    pub broken: BTreeMap<FragmentName, u32>,
}

/// A sum of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Calls that were answered.
    pub answered: u32,
    /// Tries that failed.
    pub failed: u32,
    /// Tries of unknown end, maybe billed: they were in flight when the process died, or when nobody wanted them any more.
    pub unknown: u32,
    /// Answers that came too late to be used, and were paid for.
    pub late: u32,
    /// Tokens sent.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Tokens sent that the vendor had cached.
    pub cached: u64,
    /// Cost of the calls whose price is known, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Answers, late and lost ones among them, whose price is not known.
    pub unpriced: u32,
}

impl Tally {
    /// Tokens sent that the vendor had cached, in percent of all that were sent; nothing if none were sent.
    #[must_use]
    pub fn cached_percent(&self) -> Option<u64> {
        (self.input > 0).then(|| self.cached.min(self.input) * 100 / self.input)
    }

    /// The cost, if the price of every call is known.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        (self.unpriced == 0).then_some(self.cost_microusd)
    }

    fn answered(&mut self, answer: &CallAnswered) {
        self.answered += 1;
        self.spent(answer.usage, answer.cost_microusd);
    }

    /// Enters a try that failed, with what it took all the same.
    pub fn failed(&mut self, spent: Option<Spent>) {
        self.failed += 1;
        if let Some(Spent { usage, cost_microusd }) = spent {
            self.spent(usage.unwrap_or_default(), cost_microusd);
        }
    }

    /// Enters an answer that came too late to be used.
    pub fn answered_late(&mut self, usage: Usage, cost_microusd: Option<u64>) {
        self.late += 1;
        self.spent(usage, cost_microusd);
    }

    /// A try that was entered as one of unknown end is heard of after all.
    pub fn found(&mut self) {
        self.unknown = self.unknown.saturating_sub(1);
    }

    fn spent(&mut self, usage: Usage, cost_microusd: Option<u64>) {
        self.input += u64::from(usage.input);
        self.output += u64::from(usage.output);
        self.cached += u64::from(usage.cached);
        match cost_microusd {
            Some(cost) => self.cost_microusd = self.cost_microusd.saturating_add(cost),
            None => self.unpriced += 1,
        }
    }
}

/// Whose account a call goes on.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// The role that spoke.
    pub role: &'a RoleName,
    /// The model that answered.
    pub model: &'a ModelName,
    /// The phase, as `graph/phase`.
    pub phase: Option<&'a str>,
    /// The turn.
    pub turn: Option<TurnId>,
}

impl Ledger {
    /// Enters an answer.
    pub fn answered(&mut self, account: Account<'_>, answer: &CallAnswered) {
        self.each(account, |tally| tally.answered(answer));
    }

    /// Enters a try that failed, with what it took all the same.
    pub fn failed(&mut self, account: Account<'_>, spent: Option<Spent>) {
        self.each(account, |tally| tally.failed(spent));
    }

    /// Enters a try whose end is not known.
    pub fn unknown(&mut self, account: Account<'_>) {
        self.each(account, |tally| tally.unknown += 1);
    }

    /// A try that was entered as one of unknown end is heard of after all.
    pub fn found(&mut self, account: Account<'_>) {
        self.each(account, Tally::found);
    }

    /// Enters an answer that came too late to be used.
    pub fn answered_late(&mut self, account: Account<'_>, usage: Usage, cost_microusd: Option<u64>) {
        self.each(account, |tally| tally.answered_late(usage, cost_microusd));
    }

    /// Enters how a prompt relates to the one before it.
    pub fn prompted(&mut self, prefix: &Prefix) {
        match prefix {
            Prefix::First => self.prefixes.first += 1,
            Prefix::Extends(_) => self.prefixes.extended += 1,
            Prefix::Broken { by, .. } => *self.prefixes.broken.entry(by.clone()).or_default() += 1,
        }
    }

    /// Starts the account of a new turn.
    pub fn start_turn(&mut self, turn: TurnId) {
        self.turn = Tally::default();
        self.turn_id = Some(turn);
    }

    fn each(&mut self, account: Account<'_>, enter: impl Fn(&mut Tally)) {
        enter(&mut self.total);
        if account.turn.is_some() && account.turn == self.turn_id {
            enter(&mut self.turn);
        }
        enter(self.roles.entry(account.role.clone()).or_default());
        enter(self.models.entry(account.model.clone()).or_default());
        if let Some(phase) = account.phase {
            enter(self.phases.entry(phase.to_owned()).or_default());
        }
    }
}
