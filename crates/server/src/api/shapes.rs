//! Small things that many answers hold. These are the HTTP vocabulary: what a field is called here is a promise.

use segue_core::event::{Busy, Outcome, Owner};
use segue_core::ledger::Tally;
use segue_core::phase::guard::Proposer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happens to a message that arrives while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusyPolicy {
    /// It waits; each gets a turn of its own.
    Queue,
    /// It waits; all that wait share the next turn.
    Coalesce,
    /// It is not accepted.
    Reject,
    /// The running turn is stopped for it.
    Interrupt,
}

impl From<Busy> for BusyPolicy {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Queue => Self::Queue,
            Busy::Coalesce => Self::Coalesce,
            Busy::Reject => Self::Reject,
            Busy::Interrupt => Self::Interrupt,
        }
    }
}

impl From<BusyPolicy> for Busy {
    fn from(busy: BusyPolicy) -> Self {
        match busy {
            BusyPolicy::Queue => Self::Queue,
            BusyPolicy::Coalesce => Self::Coalesce,
            BusyPolicy::Reject => Self::Reject,
            BusyPolicy::Interrupt => Self::Interrupt,
        }
    }
}

/// A sum of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spent {
    /// Calls that were answered.
    pub answered: u32,
    /// Tries that failed.
    pub failed: u32,
    /// Tries of unknown end: maybe billed.
    pub unknown: u32,
    /// Answers that came too late to be used.
    pub late: u32,
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

impl From<Tally> for Spent {
    fn from(tally: Tally) -> Self {
        let Tally { answered, failed, unknown, late, input, output, cached, cost_microusd, unpriced } = tally;
        Self { answered, failed, unknown, late, input, output, cached, cost_microusd, unpriced }
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TurnOutcome {
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

impl From<Outcome> for TurnOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Failed { reason } => Self::Failed { reason },
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Interrupted => Self::Interrupted,
        }
    }
}

/// Somebody or something, by sort and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Party {
    /// Which sort: for an owner of phases `session`, `role` or `agent`; for a proposer `user`, `operator`, `role`, `agent`,
    /// `tool` or `engine`.
    pub is: String,
    /// Its name, where it has one.
    pub name: Option<String>,
}

impl From<&Owner> for Party {
    fn from(owner: &Owner) -> Self {
        let (is, name) = match owner {
            Owner::Session => ("session", None),
            Owner::Role(role) => ("role", Some(role.to_string())),
            Owner::Agent(agent) => ("agent", Some(agent.to_string())),
        };
        Self { is: is.to_owned(), name }
    }
}

impl From<&Proposer> for Party {
    fn from(proposer: &Proposer) -> Self {
        let name = match proposer {
            Proposer::User | Proposer::Operator | Proposer::Engine => None,
            Proposer::Role(role) => Some(role.to_string()),
            Proposer::Agent(agent) => Some(agent.to_string()),
            Proposer::Tool(tool) => Some(tool.to_string()),
        };
        Self { is: proposer.kind().to_string(), name }
    }
}

/// A name and what was spent on it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Account {
    /// Whose.
    pub name: String,
    /// How much.
    pub spent: Spent,
}

/// How a closed set of words is written down.
pub fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(fields)) => fields.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}
