//! Tokens and cost of every call, added up by role, model, phase, turn and session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::context::PrefixMatch;
use crate::event::CallAnswered;
use crate::ids::{FragmentName, ModelName, RoleName, TurnId};
use crate::prompt::{AttemptCost, TokenUsage};

/// What a session has spent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// In all.
    pub total: UsageTotals,
    /// In the turn that runs, or in the last one.
    pub current_turn: UsageTotals,
    /// Which turn that is.
    pub current_turn_id: Option<TurnId>,
    /// By role.
    pub by_role: BTreeMap<RoleName, UsageTotals>,
    /// By model.
    pub by_model: BTreeMap<ModelName, UsageTotals>,
    /// By phase, as `graph/phase`.
    pub by_phase: BTreeMap<String, UsageTotals>,
    /// How prompts relate to those before them: what a vendor could have cached.
    #[serde(default)]
    pub prompt_prefixes: PromptPrefixCounts,
}

/// How prompts relate to those before them in the same place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptPrefixCounts {
    /// Those with nothing before them.
    pub first: u32,
    /// Those that begin with all of the one before.
    pub extended: u32,
    /// Those that part from the one before, by the fragment at which they do.
    pub broken_by_fragment: BTreeMap<FragmentName, u32>,
}

/// A sum of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Calls that were answered.
    pub answered_calls: u32,
    /// Tries that failed.
    pub failed_attempts: u32,
    /// Tries of unknown end, maybe billed: they were in flight when the process died, or when nobody wanted them any more.
    pub unknown_attempts: u32,
    /// Answers that came too late to be used, and were paid for.
    pub late_answers: u32,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received.
    pub output_tokens: u64,
    /// Tokens sent that the vendor had cached.
    pub cached_tokens: u64,
    /// Cost of the calls whose price is known, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Answers, late and lost ones among them, whose price is not known.
    pub unpriced_answers: u32,
}

impl UsageTotals {
    /// Tokens sent that the vendor had cached, in percent of all that were sent; nothing if none were sent.
    #[must_use]
    pub fn cached_percent(&self) -> Option<u64> {
        (self.input_tokens > 0).then(|| self.cached_tokens.min(self.input_tokens) * 100 / self.input_tokens)
    }

    /// The cost, if the price of every call is known.
    #[must_use]
    pub fn exact_cost_microusd(&self) -> Option<u64> {
        (self.unpriced_answers == 0).then_some(self.cost_microusd)
    }

    fn record_answer(&mut self, answer: &CallAnswered) {
        self.answered_calls += 1;
        self.add_usage(answer.usage, answer.cost_microusd);
    }

    /// Enters a try that failed, with what it took all the same.
    pub fn record_failure(&mut self, cost: Option<AttemptCost>) {
        self.failed_attempts += 1;
        if let Some(AttemptCost { usage, cost_microusd }) = cost {
            self.add_usage(usage.unwrap_or_default(), cost_microusd);
        }
    }

    /// Enters an answer that came too late to be used.
    pub fn record_late_answer(&mut self, usage: TokenUsage, cost_microusd: Option<u64>) {
        self.late_answers += 1;
        self.add_usage(usage, cost_microusd);
    }

    /// A try that was entered as one of unknown end is heard of after all.
    pub fn resolve_unknown_outcome(&mut self) {
        self.unknown_attempts = self.unknown_attempts.saturating_sub(1);
    }

    fn add_usage(&mut self, usage: TokenUsage, cost_microusd: Option<u64>) {
        self.input_tokens += u64::from(usage.input_tokens);
        self.output_tokens += u64::from(usage.output_tokens);
        self.cached_tokens += u64::from(usage.cached_tokens);
        match cost_microusd {
            Some(cost) => self.cost_microusd = self.cost_microusd.saturating_add(cost),
            None => self.unpriced_answers += 1,
        }
    }
}

/// Whose account a call goes on.
#[derive(Debug, Clone, Copy)]
pub struct LedgerAccount<'a> {
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
    pub fn record_answer(&mut self, account: LedgerAccount<'_>, answer: &CallAnswered) {
        self.update_totals(account, |tally| tally.record_answer(answer));
    }

    /// Enters a try that failed, with what it took all the same.
    pub fn record_failure(&mut self, account: LedgerAccount<'_>, cost: Option<AttemptCost>) {
        self.update_totals(account, |tally| tally.record_failure(cost));
    }

    /// Enters a try whose end is not known.
    pub fn record_unknown_outcome(&mut self, account: LedgerAccount<'_>) {
        self.update_totals(account, |tally| tally.unknown_attempts += 1);
    }

    /// A try that was entered as one of unknown end is heard of after all.
    pub fn resolve_unknown_outcome(&mut self, account: LedgerAccount<'_>) {
        self.update_totals(account, UsageTotals::resolve_unknown_outcome);
    }

    /// Enters an answer that came too late to be used.
    pub fn record_late_answer(&mut self, account: LedgerAccount<'_>, usage: TokenUsage, cost_microusd: Option<u64>) {
        self.update_totals(account, |tally| tally.record_late_answer(usage, cost_microusd));
    }

    /// Enters how a prompt relates to the one before it.
    pub fn record_prompt_prefix(&mut self, prefix: &PrefixMatch) {
        match prefix {
            PrefixMatch::First => self.prompt_prefixes.first += 1,
            PrefixMatch::Extends(_) => self.prompt_prefixes.extended += 1,
            PrefixMatch::Broken { cause: by, .. } => {
                *self.prompt_prefixes.broken_by_fragment.entry(by.clone()).or_default() += 1
            }
        }
    }

    /// Starts the account of a new turn.
    pub fn start_turn(&mut self, turn: TurnId) {
        self.current_turn = UsageTotals::default();
        self.current_turn_id = Some(turn);
    }

    fn update_totals(&mut self, account: LedgerAccount<'_>, update: impl Fn(&mut UsageTotals)) {
        update(&mut self.total);
        if account.turn.is_some() && account.turn == self.current_turn_id {
            update(&mut self.current_turn);
        }
        update(self.by_role.entry(account.role.clone()).or_default());
        update(self.by_model.entry(account.model.clone()).or_default());
        if let Some(phase) = account.phase {
            update(self.by_phase.entry(phase.to_owned()).or_default());
        }
    }
}
