//! Scopes: how long a role's threads stay valid, and the rule that chooses a thread before every call.
//!
//! A scope has two parts. Its partitions separate threads that exist side by side (one for each model or peer). Its
//! boundaries end a thread (a new turn, phase visit, model or work item). The slot and the scope tag are computed from
//! the session's state alone. A flow cannot pass a thread, and no event is needed to end one.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    AgentName, CallId, ModelName, PhaseGraphName, PhaseName, RoleName, ThreadId, TurnId, UnixMillis, WorkItemName,
};

/// How long a role's threads stay valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Every call starts a new thread.
    Fresh,
    /// Calls continue a thread while it is valid.
    Persistent {
        /// There is one thread for each value of these.
        partitions: BTreeSet<ThreadPartitionCriterion>,
        /// A change of any of these ends the thread.
        boundaries: BTreeSet<ThreadEndTrigger>,
        /// A thread that is older than this is replaced.
        age_ms_max: Option<u64>,
    },
}

/// What separates threads of one role that exist side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadPartitionCriterion {
    /// Each model has its own thread, and each sample of it.
    Model,
    /// Each agent that the role talks to has its own thread.
    Peer,
}

/// What ends a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadEndTrigger {
    /// The next turn.
    Turn,
    /// The next phase visit in the role's graph.
    Phase,
    /// A change of the model.
    Model,
    /// A change of the peer's work item, or of the agent's own if there is no peer.
    WorkItem,
}

impl Scope {
    /// Creates a scope with one thread for the whole session.
    #[must_use]
    pub fn per_session() -> Self {
        Self::Persistent { partitions: BTreeSet::new(), boundaries: BTreeSet::new(), age_ms_max: None }
    }

    /// Creates a scope with one thread per phase visit.
    #[must_use]
    pub fn per_phase() -> Self {
        Self::per_session().ended_by(ThreadEndTrigger::Phase)
    }

    /// Creates a scope with one thread per model.
    #[must_use]
    pub fn per_model() -> Self {
        Self::per_session().partitioned_by(ThreadPartitionCriterion::Model)
    }

    /// Creates a scope with one thread per peer.
    #[must_use]
    pub fn per_peer() -> Self {
        Self::per_session().partitioned_by(ThreadPartitionCriterion::Peer)
    }

    /// Returns the scope with a partition added. A fresh scope stays fresh.
    #[must_use]
    pub(crate) fn partitioned_by(mut self, partition: ThreadPartitionCriterion) -> Self {
        if let Self::Persistent { partitions, .. } = &mut self {
            partitions.insert(partition);
        }
        self
    }

    /// Returns the scope with a boundary added. A fresh scope stays fresh.
    #[must_use]
    pub fn ended_by(mut self, boundary: ThreadEndTrigger) -> Self {
        if let Self::Persistent { boundaries, .. } = &mut self {
            boundaries.insert(boundary);
        }
        self
    }

    /// Returns true if `boundary` ends threads of this scope; false for a fresh scope.
    #[must_use]
    pub(crate) fn is_ended_by(&self, boundary: ThreadEndTrigger) -> bool {
        match self {
            Self::Fresh => false,
            Self::Persistent { boundaries, .. } => boundaries.contains(&boundary),
        }
    }
}

/// Writes the lifetime of a thread in words.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Persistent { partitions, boundaries, age_ms_max } = self else {
            return f.write_str("none: every call starts a new thread");
        };
        let partitions = partitions.iter().map(|partition| match partition {
            ThreadPartitionCriterion::Model => "for each model",
            ThreadPartitionCriterion::Peer => "for each peer",
        });
        let boundaries = boundaries.iter().map(|boundary| match boundary {
            ThreadEndTrigger::Turn => "the turn ends".to_owned(),
            ThreadEndTrigger::Phase => "the phase is left".to_owned(),
            ThreadEndTrigger::Model => "the model changes".to_owned(),
            ThreadEndTrigger::WorkItem => "the work item changes".to_owned(),
        });
        let age = age_ms_max.map(|ms| format!("it is {} old", crate::phase::diagram::format_duration_ms(ms)));
        let until: Vec<String> = boundaries.chain(age).collect();
        let partitions: Vec<&str> = partitions.collect();
        match until.as_slice() {
            [] => f.write_str("the whole session")?,
            until => write!(f, "until {}", until.join(" or "))?,
        }
        if partitions.is_empty() { Ok(()) } else { write!(f, ", one {}", partitions.join(" and ")) }
    }
}

/// The state from which the slot and scope tag of a call are computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThreadScopeInputs {
    pub(crate) role: RoleName,
    /// The agent that plays the role, if there are several.
    pub(crate) agent: Option<AgentName>,
    /// The agent that the role talks to.
    pub(crate) peer: Option<AgentName>,
    pub(crate) model: ModelName,
    /// The sample number of the same model, from 0.
    pub(crate) sample: u16,
    /// The current turn.
    pub(crate) turn: Option<TurnId>,
    /// The phase visit in the role's graph.
    pub(crate) phase_visit: Option<PhaseVisit>,
    /// The work item of the peer, or of the agent itself if there is no peer.
    pub(crate) work_item: Option<WorkItemName>,
    /// This call, or the call whose tool results it continues.
    pub(crate) root_call: CallId,
    /// How often the slot was reset.
    pub(crate) slot_resets: u32,
}

/// One stay in a phase.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseVisit {
    pub graph: PhaseGraphName,
    pub phase: PhaseName,
    /// The number of the visit in that graph, from 1.
    pub number: u32,
}

/// The key of a thread. A slot has at most one current thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadKey {
    pub role: RoleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    /// The model and the sample number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(ModelName, u16)>,
}

/// The conditions under which a thread is valid. A call with a different tag does not continue the thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ThreadReuseConditions {
    /// The only call of a thread with a fresh scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_call: Option<CallId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_visit: Option<PhaseVisit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(ModelName, u16)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item: Option<WorkItemName>,
    /// How often the slot had been reset when the thread was opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slot_resets: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns the thread key of a call, and the conditions under which its thread is continued.
#[must_use]
pub(crate) fn resolve_thread_key_and_conditions(
    scope: &Scope,
    context: &ThreadScopeInputs,
) -> (ThreadKey, ThreadReuseConditions) {
    let mut slot = ThreadKey { role: context.role.clone(), agent: context.agent.clone(), peer: None, model: None };
    let mut tag = ThreadReuseConditions { slot_resets: context.slot_resets, ..ThreadReuseConditions::default() };
    let model = || Some((context.model.clone(), context.sample));
    match scope {
        Scope::Fresh => {
            // Separate slots, so that several fresh calls of one role can run at the same time.
            slot.peer.clone_from(&context.peer);
            slot.model = model();
            tag.single_call = Some(context.root_call);
        }
        Scope::Persistent { partitions, boundaries, .. } => {
            for partition in partitions {
                match partition {
                    ThreadPartitionCriterion::Model => slot.model = model(),
                    ThreadPartitionCriterion::Peer => slot.peer.clone_from(&context.peer),
                }
            }
            for boundary in boundaries {
                match boundary {
                    ThreadEndTrigger::Turn => tag.turn = context.turn,
                    ThreadEndTrigger::Phase => tag.phase_visit.clone_from(&context.phase_visit),
                    ThreadEndTrigger::Model => tag.model = model(),
                    ThreadEndTrigger::WorkItem => tag.work_item.clone_from(&context.work_item),
                }
            }
        }
    }
    (slot, tag)
}

/// The current thread of a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CurrentThread<'a> {
    pub(crate) thread: ThreadId,
    pub(crate) scope_tag: &'a ThreadReuseConditions,
    pub(crate) opened_at: UnixMillis,
}

/// The thread to use for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadChoice {
    /// The tags are equal, so the thread is continued.
    Continue(ThreadId),
    /// A new thread is opened.
    Open(ThreadOpenReason),
}

/// Why a new thread was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadOpenReason {
    /// The role's scope is fresh, or the ask stands alone.
    Fresh,
    /// The slot was empty.
    FirstUse,
    /// These parts of the scope tag changed.
    Changed(Vec<ThreadReuseMismatch>),
    /// The thread was older than the scope allows.
    TooOld,
}

/// A part of the scope tag that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadReuseMismatch {
    Turn,
    Phase,
    Model,
    WorkItem,
    Reset,
}

impl fmt::Display for ThreadOpenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("new: every such call starts a new thread"),
            Self::FirstUse => f.write_str("new: first call in this scope"),
            Self::TooOld => f.write_str("new: the earlier thread was too old"),
            Self::Changed(parts) => {
                f.write_str("new: ")?;
                for (index, part) in parts.iter().enumerate() {
                    if index > 0 {
                        f.write_str(" and ")?;
                    }
                    f.write_str(match part {
                        ThreadReuseMismatch::Turn => "another turn",
                        ThreadReuseMismatch::Phase => "another phase visit",
                        ThreadReuseMismatch::Model => "another model",
                        ThreadReuseMismatch::WorkItem => "another work item",
                        ThreadReuseMismatch::Reset => "reset",
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Chooses the thread of a call: an existing thread with an equal tag is continued, otherwise a new one is opened.
#[must_use]
pub(crate) fn choose_thread(
    scope: &Scope,
    current: Option<CurrentThread<'_>>,
    required: &ThreadReuseConditions,
    now: UnixMillis,
) -> ThreadChoice {
    let Some(current) = current else {
        return ThreadChoice::Open(if required.single_call.is_some() {
            ThreadOpenReason::Fresh
        } else {
            ThreadOpenReason::FirstUse
        });
    };
    if current.scope_tag != required {
        return ThreadChoice::Open(match required.single_call {
            Some(_) => ThreadOpenReason::Fresh,
            None => ThreadOpenReason::Changed(list_thread_changes(current.scope_tag, required)),
        });
    }
    let age_ms_max = match scope {
        Scope::Fresh => None,
        Scope::Persistent { age_ms_max, .. } => *age_ms_max,
    };
    match age_ms_max {
        Some(max) if now.ms_since(current.opened_at) > max => ThreadChoice::Open(ThreadOpenReason::TooOld),
        _ => ThreadChoice::Continue(current.thread),
    }
}

fn list_thread_changes(current: &ThreadReuseConditions, required: &ThreadReuseConditions) -> Vec<ThreadReuseMismatch> {
    let mut parts = Vec::new();
    let mut add_if = |differs: bool, part: ThreadReuseMismatch| {
        if differs {
            parts.push(part);
        }
    };
    add_if(current.turn != required.turn, ThreadReuseMismatch::Turn);
    add_if(current.phase_visit != required.phase_visit, ThreadReuseMismatch::Phase);
    add_if(current.model != required.model, ThreadReuseMismatch::Model);
    add_if(current.work_item != required.work_item, ThreadReuseMismatch::WorkItem);
    add_if(current.slot_resets != required.slot_resets, ThreadReuseMismatch::Reset);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> ThreadScopeInputs {
        ThreadScopeInputs {
            role: "architect".into(),
            agent: None,
            peer: Some("coder-1".into()),
            model: "m".into(),
            sample: 0,
            turn: Some(TurnId(1)),
            phase_visit: None,
            work_item: Some("story-1".into()),
            root_call: CallId(1),
            slot_resets: 0,
        }
    }

    fn rule(scope: &Scope, before: &ThreadScopeInputs, after: &ThreadScopeInputs, later_ms: u64) -> ThreadChoice {
        let (slot, tag) = resolve_thread_key_and_conditions(scope, before);
        let (wanted_slot, wanted_tag) = resolve_thread_key_and_conditions(scope, after);
        let existing = (slot == wanted_slot).then_some(CurrentThread {
            thread: ThreadId(7),
            scope_tag: &tag,
            opened_at: UnixMillis(0),
        });
        choose_thread(scope, existing, &wanted_tag, UnixMillis(later_ms))
    }

    #[test]
    fn the_same_caller_continues() {
        for scope in [
            Scope::per_session(),
            Scope::per_session().ended_by(ThreadEndTrigger::Turn),
            Scope::per_model(),
            Scope::per_peer(),
            Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem),
        ] {
            assert_eq!(rule(&scope, &caller(), &caller(), 1), ThreadChoice::Continue(ThreadId(7)), "{scope:?}");
        }
    }

    #[test]
    fn a_fresh_role_never_continues_another_call() {
        let next = ThreadScopeInputs { root_call: CallId(2), ..caller() };
        assert_eq!(rule(&Scope::Fresh, &caller(), &next, 1), ThreadChoice::Open(ThreadOpenReason::Fresh));
        assert_eq!(
            rule(&Scope::Fresh, &caller(), &caller(), 1),
            ThreadChoice::Continue(ThreadId(7)),
            "a tool round of one call"
        );
    }

    #[test]
    fn a_changed_work_item_opens_a_new_thread_and_another_peer_has_its_own() {
        let scope = Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem);
        let other_story = ThreadScopeInputs { work_item: Some("story-2".into()), ..caller() };
        let other_peer = ThreadScopeInputs { peer: Some("coder-2".into()), ..caller() };
        assert_eq!(
            rule(&scope, &caller(), &other_story, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadReuseMismatch::WorkItem]))
        );
        assert_eq!(rule(&scope, &caller(), &other_peer, 1), ThreadChoice::Open(ThreadOpenReason::FirstUse));
    }

    #[test]
    fn age_and_reset_are_inputs_to_the_same_rule() {
        let scope = Scope::Persistent { partitions: [].into(), boundaries: [].into(), age_ms_max: Some(100) };
        assert_eq!(rule(&scope, &caller(), &caller(), 100), ThreadChoice::Continue(ThreadId(7)));
        assert_eq!(rule(&scope, &caller(), &caller(), 101), ThreadChoice::Open(ThreadOpenReason::TooOld));
        let reset = ThreadScopeInputs { slot_resets: 1, ..caller() };
        assert_eq!(
            rule(&scope, &caller(), &reset, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadReuseMismatch::Reset]))
        );
    }

    #[test]
    fn model_change_ends_a_thread_bounded_by_model_and_selects_another_per_model() {
        let other = ThreadScopeInputs { model: "n".into(), ..caller() };
        assert_eq!(
            rule(&Scope::per_phase().ended_by(ThreadEndTrigger::Model), &caller(), &other, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadReuseMismatch::Model]))
        );
        assert_eq!(rule(&Scope::per_model(), &caller(), &other, 1), ThreadChoice::Open(ThreadOpenReason::FirstUse));
    }
}
