//! Types that several responses share.

use segue_core::event::{MidTurnPolicy, PhaseStateOwner, TurnOutcome};
use segue_core::phase::PhaseTransitionProposer;
use segue_core::session::UsageTotals;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happens to a message that arrives while a turn is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MidTurnPolicyView {
    /// The message waits for a turn of its own.
    Queue,
    /// The message waits; it shares a turn with the messages next to it in the queue that have this policy, too.
    Coalesce,
    /// The message is rejected.
    Reject,
    /// The running turn is stopped and a new one starts.
    Interrupt,
}

impl From<MidTurnPolicy> for MidTurnPolicyView {
    fn from(policy: MidTurnPolicy) -> Self {
        match policy {
            MidTurnPolicy::Queue => Self::Queue,
            MidTurnPolicy::Coalesce => Self::Coalesce,
            MidTurnPolicy::Reject => Self::Reject,
            MidTurnPolicy::Interrupt => Self::Interrupt,
        }
    }
}

impl From<MidTurnPolicyView> for MidTurnPolicy {
    fn from(policy: MidTurnPolicyView) -> Self {
        match policy {
            MidTurnPolicyView::Queue => Self::Queue,
            MidTurnPolicyView::Coalesce => Self::Coalesce,
            MidTurnPolicyView::Reject => Self::Reject,
            MidTurnPolicyView::Interrupt => Self::Interrupt,
        }
    }
}

/// Totals over a number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CallTotalsView {
    pub answered: u32,
    pub failed_attempts: u32,
    /// Attempts whose outcome is unknown; they may have been billed.
    pub unknown_attempts: u32,
    /// Answers that arrived too late to be used.
    pub answered_late: u32,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens that the vendor served from its cache.
    pub cached: u64,
    /// The cost of all answers with a known price, in millionths of a dollar.
    pub cost_microusd: u64,
    /// The number of answers without a known price.
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
pub(crate) enum TurnOutcomeView {
    Done,
    Failed {
        reason: String,
    },
    Cancelled,
    /// Another message replaced the turn.
    Interrupted,
}

impl From<TurnOutcome> for TurnOutcomeView {
    fn from(outcome: TurnOutcome) -> Self {
        match outcome {
            TurnOutcome::Done => Self::Done,
            TurnOutcome::Failed { reason } => Self::Failed { reason },
            TurnOutcome::Cancelled => Self::Cancelled,
            TurnOutcome::Interrupted => Self::Interrupted,
        }
    }
}

/// The owner of a phase graph, or the proposer of a transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PhaseOwnerOrProposerView {
    /// For an owner `session`, `role` or `agent`; for a proposer `user`, `operator`, `role`, `agent`, `tool` or `engine`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Absent for `session`, `user`, `operator` and `engine`.
    pub name: Option<String>,
}

impl From<&PhaseStateOwner> for PhaseOwnerOrProposerView {
    fn from(owner: &PhaseStateOwner) -> Self {
        let (kind, name) = match owner {
            PhaseStateOwner::Session => ("session", None),
            PhaseStateOwner::Role(role) => ("role", Some(role.to_string())),
            PhaseStateOwner::Agent(agent) => ("agent", Some(agent.to_string())),
        };
        Self { kind: kind.to_owned(), name }
    }
}

impl From<&PhaseTransitionProposer> for PhaseOwnerOrProposerView {
    fn from(proposer: &PhaseTransitionProposer) -> Self {
        let name = match proposer {
            PhaseTransitionProposer::User | PhaseTransitionProposer::Operator | PhaseTransitionProposer::Engine => None,
            PhaseTransitionProposer::Role(role) => Some(role.to_string()),
            PhaseTransitionProposer::Agent(agent) => Some(agent.to_string()),
            PhaseTransitionProposer::Tool(tool) => Some(tool.to_string()),
        };
        Self { kind: serialized_name(proposer), name }
    }
}

/// The totals of one role, model, phase or turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LedgerAccountView {
    pub name: String,
    pub spent: CallTotalsView,
}

/// Returns the serialized name of an enum value: the string itself, or the only key of an object.
pub(crate) fn serialized_name<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        // Other values have no name. Serializing our own types cannot fail.
        _ => String::new(),
    }
}
