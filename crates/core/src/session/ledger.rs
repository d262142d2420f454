//! Adds up the tokens and cost of calls by role, model, phase, turn and session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::context::PreviousPromptComparison;
use crate::event::{CallAnswered, Event};
use crate::ids::{FragmentName, ModelName, RoleName, TurnId};
use crate::prompt::{FailedCallAttemptCost, TokenUsage};

/// The usage of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    pub total: UsageTotals,
    /// The usage of the current turn, or of the last one.
    pub current_turn: UsageTotals,
    pub current_turn_id: Option<TurnId>,
    pub by_role: BTreeMap<RoleName, UsageTotals>,
    pub by_model: BTreeMap<ModelName, UsageTotals>,
    /// By phase, as `graph/phase`.
    pub by_phase: BTreeMap<String, UsageTotals>,
    /// How prompts relate to the previous ones, which decides what a vendor could cache.
    #[serde(default)]
    pub prompt_prefixes: PrefixReuseStats,
    /// The usage of child sessions and their descendants that have ended. It is not part of `total`.
    #[serde(default, skip_serializing_if = "ChildSessionUsage::is_empty")]
    pub descendants: ChildSessionUsage,
}

/// What a child session and its descendants used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ChildSessionUsage {
    /// The number of sessions, without the child itself.
    pub descendants: u32,
    pub calls: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The cost of calls with a known price, in millionths of a US dollar.
    pub cost_microusd: u64,
    /// Answers without a known price.
    pub unpriced_answers: u32,
}

impl ChildSessionUsage {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the usage of another child. The child itself counts as a descendant.
    pub(crate) fn add_child_usage(&mut self, usage: &Self) {
        self.descendants = self.descendants.saturating_add(usage.descendants).saturating_add(1);
        self.add_call_usage(usage);
    }

    /// Adds the calls, tokens and cost of a child that was counted before.
    pub(crate) fn add_call_usage(&mut self, usage: &Self) {
        self.calls = self.calls.saturating_add(usage.calls);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(usage.cost_microusd);
        self.unpriced_answers = self.unpriced_answers.saturating_add(usage.unpriced_answers);
    }
}

impl Ledger {
    /// Returns the usage of the session and of its descendants that have ended.
    #[must_use]
    pub fn usage_with_descendants(&self) -> ChildSessionUsage {
        let own = ChildSessionUsage {
            descendants: 0,
            calls: self.total.answered_calls,
            input_tokens: self.total.input_tokens,
            output_tokens: self.total.output_tokens,
            cost_microusd: self.total.cost_microusd,
            unpriced_answers: self.total.unpriced_answers,
        };
        let mut sum = self.descendants;
        sum.add_call_usage(&own);
        sum
    }
}

/// Counts how prompts relate to the previous ones in the same slot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefixReuseStats {
    /// Prompts without a previous one.
    pub first: u32,
    /// Prompts that begin with all of the previous one.
    pub extended: u32,
    /// Prompts that differ from the previous one, by the first fragment that differs.
    pub broken_by_fragment: BTreeMap<FragmentName, u32>,
}

/// A sum over calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageTotals {
    pub answered_calls: u32,
    pub failed_attempts: u32,
    /// Attempts whose outcome is unknown and that may have been billed: they were in flight when the process died or
    /// the call was abandoned.
    pub unknown_attempts: u32,
    /// Answers that arrived too late to be used. They are included in the cost.
    pub late_answers: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Input tokens that the vendor had cached.
    pub cached_tokens: u64,
    /// The cost of calls with a known price, in millionths of a US dollar.
    pub cost_microusd: u64,
    /// Answers without a known price, including late and lost ones.
    pub unpriced_answers: u32,
}

impl UsageTotals {
    /// Returns the cost, if the price of every call is known.
    #[must_use]
    pub fn exact_cost_microusd(&self) -> Option<u64> {
        (self.unpriced_answers == 0).then_some(self.cost_microusd)
    }

    fn record_answer(&mut self, answer: &CallAnswered) {
        self.answered_calls += 1;
        self.add_usage(answer.usage, answer.cost_microusd);
    }

    /// Adds the usage that an event of a call reports: of an answer, in time or too late, or of a failed attempt.
    pub fn record_call_event(&mut self, event: &Event) {
        match event {
            Event::CallAnswered(answer) => self.record_answer(answer),
            Event::CallFailed { failure, .. } => self.record_failure(failure.cost),
            Event::CallAnsweredLate { usage, cost_microusd, .. } => self.record_late_answer(*usage, *cost_microusd),
            _ => {}
        }
    }

    /// Adds a failed attempt and its cost.
    fn record_failure(&mut self, cost: Option<FailedCallAttemptCost>) {
        self.failed_attempts += 1;
        if let Some(FailedCallAttemptCost { usage, cost_microusd }) = cost {
            self.add_usage(usage.unwrap_or_default(), cost_microusd);
        }
    }

    /// Adds an answer that arrived too late to be used.
    fn record_late_answer(&mut self, usage: TokenUsage, cost_microusd: Option<u64>) {
        self.late_answers += 1;
        self.add_usage(usage, cost_microusd);
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

/// What a call is attributed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallAttribution<'a> {
    pub(crate) role: &'a RoleName,
    pub(crate) model: &'a ModelName,
    /// The phase, as `graph/phase`.
    pub(crate) phase: Option<&'a str>,
    pub(crate) turn: Option<TurnId>,
}

impl Ledger {
    /// Adds an answer.
    pub(crate) fn record_answer(&mut self, account: CallAttribution<'_>, answer: &CallAnswered) {
        self.update_totals(account, |totals| totals.record_answer(answer));
    }

    /// Adds a failed attempt and its cost.
    pub(crate) fn record_failure(&mut self, account: CallAttribution<'_>, cost: Option<FailedCallAttemptCost>) {
        self.update_totals(account, |totals| totals.record_failure(cost));
    }

    /// Adds an attempt of unknown outcome.
    pub(crate) fn record_unknown_outcome(&mut self, account: CallAttribution<'_>) {
        self.update_totals(account, |totals| totals.unknown_attempts += 1);
    }

    /// Removes an attempt of unknown outcome, because its outcome is now known.
    pub(crate) fn resolve_unknown_outcome(&mut self, account: CallAttribution<'_>) {
        self.update_totals(account, |totals| totals.unknown_attempts = totals.unknown_attempts.saturating_sub(1));
    }

    /// Adds an answer that arrived too late to be used.
    pub(crate) fn record_late_answer(
        &mut self,
        account: CallAttribution<'_>,
        usage: TokenUsage,
        cost_microusd: Option<u64>,
    ) {
        self.update_totals(account, |totals| totals.record_late_answer(usage, cost_microusd));
    }

    /// Counts how a prompt relates to the previous one.
    pub(crate) fn count_prompt_prefix(&mut self, prefix: &PreviousPromptComparison) {
        match prefix {
            PreviousPromptComparison::First => self.prompt_prefixes.first += 1,
            PreviousPromptComparison::Extends(_) => self.prompt_prefixes.extended += 1,
            PreviousPromptComparison::Broken { cause, .. } => {
                *self.prompt_prefixes.broken_by_fragment.entry(cause.clone()).or_default() += 1
            }
        }
    }

    /// Starts counting for a new turn.
    pub(crate) fn start_turn_totals(&mut self, turn: TurnId) {
        self.current_turn = UsageTotals::default();
        self.current_turn_id = Some(turn);
    }

    fn update_totals(&mut self, account: CallAttribution<'_>, update: impl Fn(&mut UsageTotals)) {
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
