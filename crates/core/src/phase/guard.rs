//! Guards: the conditions of edges, and what is missing if one is not met. The caller passes the handovers and the
//! verdicts on conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, HandoverKind, RoleName, ToolName};

/// A condition of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// No condition.
    #[default]
    Always,
    /// A handover of this kind was created during this visit.
    Handover(HandoverKind),
    /// A named condition, which the flow evaluates.
    Condition(String),
    /// Only these may propose the transition.
    ProposedBy(BTreeSet<PhaseTransitionProposerKind>),
    /// All of these.
    All(Vec<Guard>),
    /// At least one of these.
    Any(Vec<Guard>),
}

impl Guard {
    /// Returns what is missing for a proposal by `by`; `None` if the guard is met.
    #[must_use]
    pub(crate) fn unmet_requirement(
        &self,
        by: &PhaseTransitionProposer,
        conditions: &PhaseGuardInputs,
    ) -> Option<UnmetGuardRequirement> {
        match self {
            Self::Always => None,
            Self::Handover(kind) => {
                (!conditions.handovers.contains(kind)).then(|| UnmetGuardRequirement::Handover(kind.clone()))
            }
            Self::Condition(name) => conditions.unmet_condition(name),
            Self::ProposedBy(kinds) => {
                (!kinds.contains(&by.kind())).then(|| UnmetGuardRequirement::ProposedBy(kinds.clone()))
            }
            Self::All(guards) => {
                let mut unmet: Vec<UnmetGuardRequirement> =
                    guards.iter().filter_map(|guard| guard.unmet_requirement(by, conditions)).collect();
                match unmet.len() {
                    0 => None,
                    1 => unmet.pop(),
                    _ => Some(UnmetGuardRequirement::All(unmet)),
                }
            }
            Self::Any(guards) => {
                let mut unmet = Vec::with_capacity(guards.len());
                for guard in guards {
                    unmet.push(guard.unmet_requirement(by, conditions)?);
                }
                Some(UnmetGuardRequirement::Any(unmet))
            }
        }
    }

    /// Returns true if the guard can never be met.
    #[must_use]
    pub(crate) fn can_never_be_met(&self) -> bool {
        match self {
            Self::Always | Self::Handover(_) | Self::Condition(_) => false,
            Self::ProposedBy(kinds) => kinds.is_empty(),
            Self::All(guards) => guards.iter().any(Self::can_never_be_met),
            Self::Any(guards) => guards.iter().all(Self::can_never_be_met),
        }
    }

    pub(super) fn is_always_met(&self) -> bool {
        *self == Self::Always
    }

    pub(super) fn collect_condition_names<'g>(&'g self, names: &mut BTreeSet<&'g str>) {
        match self {
            Self::Always | Self::Handover(_) | Self::ProposedBy(_) => {}
            Self::Condition(name) => {
                names.insert(name);
            }
            Self::All(guards) | Self::Any(guards) => {
                guards.iter().for_each(|guard| guard.collect_condition_names(names));
            }
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Handover(kind) => write!(f, "handover {kind}"),
            Self::Condition(name) => f.write_str(name),
            Self::ProposedBy(kinds) => f.write_str(&format_proposers(kinds)),
            Self::All(guards) if guards.is_empty() => f.write_str("always"),
            Self::Any(guards) if guards.is_empty() => f.write_str("never"),
            Self::All(guards) => f.write_str(&join_with_brackets(guards, " and ")),
            Self::Any(guards) => f.write_str(&join_with_brackets(guards, " or ")),
        }
    }
}

/// The proposer of a transition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransitionProposer {
    User,
    /// A person who acts for the user from outside the conversation.
    Operator,
    Role(RoleName),
    Agent(AgentName),
    Tool(ToolName),
    /// The engine, because a limit was reached or the flow's rules say so.
    Engine,
}

impl PhaseTransitionProposer {
    #[must_use]
    pub(crate) fn kind(&self) -> PhaseTransitionProposerKind {
        match self {
            Self::User => PhaseTransitionProposerKind::User,
            Self::Operator => PhaseTransitionProposerKind::Operator,
            Self::Role(_) => PhaseTransitionProposerKind::Role,
            Self::Agent(_) => PhaseTransitionProposerKind::Agent,
            Self::Tool(_) => PhaseTransitionProposerKind::Tool,
            Self::Engine => PhaseTransitionProposerKind::Engine,
        }
    }

    /// Returns true for the user and operators, who may grant skips and roll back.
    #[must_use]
    pub(crate) fn has_user_authority(&self) -> bool {
        matches!(self, Self::User | Self::Operator)
    }
}

impl fmt::Display for PhaseTransitionProposer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User | Self::Operator | Self::Engine => write!(f, "the {}", self.kind()),
            Self::Role(name) => write!(f, "role `{name}`"),
            Self::Agent(name) => write!(f, "agent `{name}`"),
            Self::Tool(name) => write!(f, "tool `{name}`"),
        }
    }
}

/// The kinds of proposers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransitionProposerKind {
    User,
    Operator,
    Role,
    Agent,
    Tool,
    Engine,
}

impl fmt::Display for PhaseTransitionProposerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Role => "role",
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Engine => "engine",
        })
    }
}

/// The facts on which guards and gates depend. `PhaseGraph::condition_names_from` lists the conditions to evaluate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct PhaseGuardInputs {
    /// The kinds of handovers that were created during this visit.
    pub(crate) handovers: BTreeSet<HandoverKind>,
    /// The flow's verdict on each named condition. A condition without a verdict does not hold.
    pub(crate) verdicts: BTreeMap<String, PhaseConditionVerdict>,
}

impl PhaseGuardInputs {
    /// Returns why a named condition does not hold; `None` if it does.
    pub(super) fn unmet_condition(&self, name: &str) -> Option<UnmetGuardRequirement> {
        let why = match self.verdicts.get(name) {
            Some(PhaseConditionVerdict::Holds) => return None,
            Some(PhaseConditionVerdict::Fails(why)) => why.clone(),
            None => "it was not evaluated".to_owned(),
        };
        Some(UnmetGuardRequirement::Condition { name: name.to_owned(), why })
    }
}

/// The flow's verdict on a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseConditionVerdict {
    Holds,
    /// The condition does not hold, with the reason.
    Fails(String),
}

/// A requirement of a guard that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnmetGuardRequirement {
    /// No such handover was created during this visit.
    Handover(HandoverKind),
    /// A named condition does not hold.
    Condition { name: String, why: String },
    /// Only these may propose the transition.
    ProposedBy(BTreeSet<PhaseTransitionProposerKind>),
    /// All of these are missing.
    All(Vec<UnmetGuardRequirement>),
    /// At least one of these is needed.
    Any(Vec<UnmetGuardRequirement>),
}

impl fmt::Display for UnmetGuardRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handover(kind) => write!(f, "a handover `{kind}` from this phase visit"),
            Self::Condition { name, why } => write!(f, "the condition `{name}` ({why})"),
            Self::ProposedBy(kinds) if kinds.is_empty() => f.write_str("a proposer that does not exist"),
            Self::ProposedBy(kinds) => write!(f, "a proposal {}", format_proposers(kinds)),
            Self::All(unmet) => f.write_str(&join_with_brackets(unmet, " and ")),
            Self::Any(unmet) if unmet.is_empty() => f.write_str("something impossible"),
            Self::Any(unmet) => write!(f, "either {}", join_with_brackets(unmet, " or ")),
        }
    }
}

fn format_proposers(kinds: &BTreeSet<PhaseTransitionProposerKind>) -> String {
    let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    format!("by {}", kinds.join(" or "))
}

fn join_with_brackets<T: fmt::Display>(parts: &[T], word: &str) -> String {
    let brackets = parts.len() > 1;
    let parts: Vec<String> = parts
        .iter()
        .map(|part| part.to_string())
        .map(|text| if brackets && has_connective(&text) { format!("({text})") } else { text })
        .collect();
    parts.join(word)
}

fn has_connective(text: &str) -> bool {
    text.contains(" and ") || text.contains(" or ")
}
