//! Small things that many answers hold. These are the HTTP vocabulary: what a field is called here is a promise.

use segue_core::event::{MidTurnPolicy, PhaseGraphOwner, TurnResult};
use segue_core::ledger::UsageTotals;
use segue_core::phase::guard::Proposer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happens to a message that arrives while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MidTurnPolicyView {
    /// It waits; each gets a turn of its own.
    Queue,
    /// It waits; all that wait share the next turn.
    Coalesce,
    /// It is not accepted.
    Reject,
    /// The running turn is stopped for it.
    Interrupt,
}

impl From<MidTurnPolicy> for MidTurnPolicyView {
    fn from(busy: MidTurnPolicy) -> Self {
        match busy {
            MidTurnPolicy::Queue => Self::Queue,
            MidTurnPolicy::Coalesce => Self::Coalesce,
            MidTurnPolicy::Reject => Self::Reject,
            MidTurnPolicy::Interrupt => Self::Interrupt,
        }
    }
}

impl From<MidTurnPolicyView> for MidTurnPolicy {
    fn from(busy: MidTurnPolicyView) -> Self {
        match busy {
            MidTurnPolicyView::Queue => Self::Queue,
            MidTurnPolicyView::Coalesce => Self::Coalesce,
            MidTurnPolicyView::Reject => Self::Reject,
            MidTurnPolicyView::Interrupt => Self::Interrupt,
        }
    }
}

/// A sum of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallTotalsView {
    /// Calls that were answered.
    pub answered: u32,
    /// Tries that failed.
    pub failed_attempts: u32,
    /// Tries of unknown end: maybe billed.
    pub unknown_attempts: u32,
    /// Answers that came too late to be used.
    pub answered_late: u32,
    /// Tokens sent.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Tokens sent that the vendor had cached.
    pub cached: u64,
    /// Cost of the calls whose price is known, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Answers whose price is not known.
    pub unpriced: u32,
}

impl From<UsageTotals> for CallTotalsView {
    fn from(tally: UsageTotals) -> Self {
        let UsageTotals {
            answered_calls: answered,
            failed_attempts: failed,
            unknown_attempts: unknown,
            late_answers: late,
            input_tokens: input,
            output_tokens: output,
            cached_tokens: cached,
            cost_microusd,
            unpriced_answers: unpriced,
        } = tally;
        Self {
            answered,
            failed_attempts: failed,
            unknown_attempts: unknown,
            answered_late: late,
            input,
            output,
            cached,
            cost_microusd,
            unpriced,
        }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnResultView {
    /// It is done.
    Done,
    /// It could not be done.
    Failed {
        /// Why.
        reason: String,
    },
    /// It was stopped.
    Cancelled,
    /// Another message took its place.
    Interrupted,
}

impl From<TurnResult> for TurnResultView {
    fn from(outcome: TurnResult) -> Self {
        match outcome {
            TurnResult::Done => Self::Done,
            TurnResult::Failed { reason } => Self::Failed { reason },
            TurnResult::Cancelled => Self::Cancelled,
            TurnResult::Interrupted => Self::Interrupted,
        }
    }
}

/// Somebody or something, by sort and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParticipantView {
    /// Which sort: for an owner of phases `session`, `role` or `agent`; for a proposer `user`, `operator`, `role`, `agent`,
    /// `tool` or `engine`.
    pub kind: String,
    /// Its name, where it has one.
    pub name: Option<String>,
}

impl From<&PhaseGraphOwner> for ParticipantView {
    fn from(owner: &PhaseGraphOwner) -> Self {
        let (is, name) = match owner {
            PhaseGraphOwner::Session => ("session", None),
            PhaseGraphOwner::Role(role) => ("role", Some(role.to_string())),
            PhaseGraphOwner::Agent(agent) => ("agent", Some(agent.to_string())),
        };
        Self { kind: is.to_owned(), name }
    }
}

impl From<&Proposer> for ParticipantView {
    fn from(proposer: &Proposer) -> Self {
        let name = match proposer {
            Proposer::User | Proposer::Operator | Proposer::Engine => None,
            Proposer::Role(role) => Some(role.to_string()),
            Proposer::Agent(agent) => Some(agent.to_string()),
            Proposer::Tool(tool) => Some(tool.to_string()),
        };
        Self { kind: proposer.kind().to_string(), name }
    }
}

/// A name and what was spent on it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LedgerAccountView {
    /// Whose.
    pub name: String,
    /// How much.
    pub spent: CallTotalsView,
}

/// How a closed set of words is written down.
pub fn serialized_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}
