//! What must hold to go along an edge, and what is missing when it does not. Judges from values it is given; which
//! handovers were made and which conditions hold, others find out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, HandoverKind, RoleName, ToolName};

/// A condition on an edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Nothing is asked.
    #[default]
    Always,
    /// A handover of this kind was made during this visit.
    Handover(HandoverKind),
    /// A condition by name, which the flow judges.
    Holds(String),
    /// Only these may propose it.
    By(BTreeSet<ProposerKind>),
    /// Every one of these.
    All(Vec<Guard>),
    /// At least one of these.
    Any(Vec<Guard>),
}

impl Guard {
    /// What is missing for this guard to let `by` pass; `None` if it does.
    #[must_use]
    pub fn unmet(&self, by: &Proposer, conditions: &Conditions) -> Option<Unmet> {
        match self {
            Self::Always => None,
            Self::Handover(kind) => (!conditions.handovers.contains(kind)).then(|| Unmet::Handover(kind.clone())),
            Self::Holds(name) => match conditions.holds.get(name) {
                Some(Verdict::Yes) => None,
                Some(Verdict::No(why)) => Some(Unmet::Condition { name: name.clone(), why: why.clone() }),
                None => Some(Unmet::Condition { name: name.clone(), why: "it was not judged".to_owned() }),
            },
            Self::By(kinds) => (!kinds.contains(&by.kind())).then(|| Unmet::By(kinds.clone())),
            Self::All(guards) => {
                let mut unmet: Vec<Unmet> = guards.iter().filter_map(|guard| guard.unmet(by, conditions)).collect();
                match unmet.len() {
                    0 => None,
                    1 => unmet.pop(),
                    _ => Some(Unmet::All(unmet)),
                }
            }
            Self::Any(guards) => {
                let mut unmet = Vec::with_capacity(guards.len());
                for guard in guards {
                    unmet.push(guard.unmet(by, conditions)?);
                }
                Some(Unmet::Any(unmet))
            }
        }
    }

    /// Whether no proposer and no condition can ever satisfy it.
    #[must_use]
    pub fn is_impossible(&self) -> bool {
        match self {
            Self::Always | Self::Handover(_) | Self::Holds(_) => false,
            Self::By(kinds) => kinds.is_empty(),
            Self::All(guards) => guards.iter().any(Self::is_impossible),
            Self::Any(guards) => guards.iter().all(Self::is_impossible),
        }
    }

    pub(super) fn is_always(&self) -> bool {
        *self == Self::Always
    }

    pub(super) fn collect_conditions<'g>(&'g self, names: &mut BTreeSet<&'g str>) {
        match self {
            Self::Always | Self::Handover(_) | Self::By(_) => {}
            Self::Holds(name) => {
                names.insert(name);
            }
            Self::All(guards) | Self::Any(guards) => {
                guards.iter().for_each(|guard| guard.collect_conditions(names));
            }
        }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Handover(kind) => write!(f, "handover {kind}"),
            Self::Holds(name) => f.write_str(name),
            Self::By(kinds) => f.write_str(&by_whom(kinds)),
            Self::All(guards) if guards.is_empty() => f.write_str("always"),
            Self::Any(guards) if guards.is_empty() => f.write_str("never"),
            Self::All(guards) => f.write_str(&joined(guards, " and ")),
            Self::Any(guards) => f.write_str(&joined(guards, " or ")),
        }
    }
}

/// Who asks for a transition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proposer {
    /// The person whose conversation it is.
    User,
    /// Somebody who acts for them from outside.
    Operator,
    /// A role of the flow.
    Role(RoleName),
    /// An agent.
    Agent(AgentName),
    /// A tool.
    Tool(ToolName),
    /// The engine: a limit ran out, or the flow's own rules say so.
    Engine,
}

impl Proposer {
    /// Which sort it is.
    #[must_use]
    pub fn kind(&self) -> ProposerKind {
        match self {
            Self::User => ProposerKind::User,
            Self::Operator => ProposerKind::Operator,
            Self::Role(_) => ProposerKind::Role,
            Self::Agent(_) => ProposerKind::Agent,
            Self::Tool(_) => ProposerKind::Tool,
            Self::Engine => ProposerKind::Engine,
        }
    }

    /// Whether it has the user's authority: may grant a skip and may roll back.
    #[must_use]
    pub fn speaks_for_user(&self) -> bool {
        matches!(self, Self::User | Self::Operator)
    }
}

impl fmt::Display for Proposer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User | Self::Operator | Self::Engine => write!(f, "the {}", self.kind()),
            Self::Role(name) => write!(f, "role `{name}`"),
            Self::Agent(name) => write!(f, "agent `{name}`"),
            Self::Tool(name) => write!(f, "tool `{name}`"),
        }
    }
}

/// The sorts of proposers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposerKind {
    /// See [`Proposer::User`].
    User,
    /// See [`Proposer::Operator`].
    Operator,
    /// See [`Proposer::Role`].
    Role,
    /// See [`Proposer::Agent`].
    Agent,
    /// See [`Proposer::Tool`].
    Tool,
    /// See [`Proposer::Engine`].
    Engine,
}

impl fmt::Display for ProposerKind {
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

/// What guards are judged by, found out beforehand. [`super::PhaseGraph::conditions_at`] says what is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// The kinds of handover made during this visit.
    pub handovers: BTreeSet<HandoverKind>,
    /// The flow's verdict on each named condition; one that is missing does not hold.
    pub holds: BTreeMap<String, Verdict>,
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does.
    Yes,
    /// It does not, and why.
    No(String),
}

/// What a guard misses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmet {
    /// No such handover was made during this visit.
    Handover(HandoverKind),
    /// A named condition does not hold.
    Condition {
        /// Its name.
        name: String,
        /// Why it does not.
        why: String,
    },
    /// Only these may propose it.
    By(BTreeSet<ProposerKind>),
    /// Each of these is missing.
    All(Vec<Unmet>),
    /// One of these would do.
    Any(Vec<Unmet>),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handover(kind) => write!(f, "a handover `{kind}` made in this phase"),
            Self::Condition { name, why } => write!(f, "that `{name}` holds ({why})"),
            Self::By(kinds) if kinds.is_empty() => f.write_str("a proposer that nobody can be"),
            Self::By(kinds) => write!(f, "a proposal {}", by_whom(kinds)),
            Self::All(unmet) => f.write_str(&joined(unmet, " and ")),
            Self::Any(unmet) if unmet.is_empty() => f.write_str("what can never be"),
            Self::Any(unmet) => write!(f, "either {}", joined(unmet, " or ")),
        }
    }
}

fn by_whom(kinds: &BTreeSet<ProposerKind>) -> String {
    let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    format!("by {}", kinds.join(" or "))
}

fn joined<T: fmt::Display>(parts: &[T], word: &str) -> String {
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
