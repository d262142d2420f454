//! What a role's memory is keyed by, and the one rule that picks a thread before every call.
//!
//! A scope says two things. `per`: beside which others a thread lives (one for each model, one for each peer). `until`: what ends
//! it (the turn, the phase visit, a change of model, a change of work). The wanted slot and tag are computed from the session's
//! state alone; no flow can pass a thread, and no event has to arrive for an old one to be left behind.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{
    AgentName, CallId, ModelName, PhaseGraphName, PhaseName, RoleName, ThreadId, TurnId, UnixMillis, WorkItemName,
};

/// How far a role's memory reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// No memory: every call begins anew.
    Fresh,
    /// A memory that lasts.
    Persistent(PersistentScope),
}

/// A memory that lasts, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PersistentScope {
    /// One thread for each of these, side by side.
    pub partitions: BTreeSet<ThreadPartition>,
    /// A change in any of these ends the thread.
    pub boundaries: BTreeSet<ThreadBoundary>,
    /// A thread older than this is left behind.
    pub age_ms_max: Option<u64>,
}

/// What threads of one role live beside each other for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadPartition {
    /// Each model, and each sample of it, has its own.
    Model,
    /// Each agent the role talks with has its own.
    Peer,
}

/// What ends a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadBoundary {
    /// The next turn.
    Turn,
    /// The next visit of a phase of the role's graph.
    Phase,
    /// Another model.
    Model,
    /// Another work item of the peer (or of the agent itself where there is no peer), as the lease says.
    WorkItem,
}

impl Scope {
    /// One thread for the whole session.
    #[must_use]
    pub fn per_session() -> Self {
        Self::Persistent(PersistentScope::default())
    }

    /// One thread a turn.
    #[must_use]
    pub fn per_turn() -> Self {
        Self::per_session().ended_by(ThreadBoundary::Turn)
    }

    /// One thread a phase visit.
    #[must_use]
    pub fn per_phase() -> Self {
        Self::per_session().ended_by(ThreadBoundary::Phase)
    }

    /// One lasting thread for each model.
    #[must_use]
    pub fn per_model() -> Self {
        Self::per_session().partitioned_by(ThreadPartition::Model)
    }

    /// One lasting thread for each peer.
    #[must_use]
    pub fn per_peer() -> Self {
        Self::per_session().partitioned_by(ThreadPartition::Peer)
    }

    /// One thread for each peer, as long as it works on one thing.
    #[must_use]
    pub fn per_peer_and_work_item() -> Self {
        Self::per_peer().ended_by(ThreadBoundary::WorkItem)
    }

    /// The same scope with threads side by side for each `per`. A fresh scope stays fresh.
    #[must_use]
    pub fn partitioned_by(mut self, per: ThreadPartition) -> Self {
        if let Self::Persistent(kept) = &mut self {
            kept.partitions.insert(per);
        }
        self
    }

    /// The same scope, ended also by `until`. A fresh scope stays fresh.
    #[must_use]
    pub fn ended_by(mut self, until: ThreadBoundary) -> Self {
        if let Self::Persistent(kept) = &mut self {
            kept.boundaries.insert(until);
        }
        self
    }

    /// Whether a change in `until` ends a thread of this scope. A fresh scope knows no ends.
    #[must_use]
    pub fn is_ended_by(&self, until: ThreadBoundary) -> bool {
        match self {
            Self::Fresh => false,
            Self::Persistent(kept) => kept.boundaries.contains(&until),
        }
    }

    /// How far it reaches, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let kept = match self {
            Self::Fresh => return "none: every call begins anew".to_owned(),
            Self::Persistent(kept) => kept,
        };
        let per = kept.partitions.iter().map(|per| match per {
            ThreadPartition::Model => "for each model",
            ThreadPartition::Peer => "for each partner",
        });
        let until = kept.boundaries.iter().map(|until| match until {
            ThreadBoundary::Turn => "the turn ends".to_owned(),
            ThreadBoundary::Phase => "the phase is left".to_owned(),
            ThreadBoundary::Model => "the model changes".to_owned(),
            ThreadBoundary::WorkItem => "the work item changes".to_owned(),
        });
        let age = kept.age_ms_max.map(|ms| format!("it is {} old", crate::phase::diagram::format_duration_ms(ms)));
        let until: Vec<String> = until.chain(age).collect();
        let per: Vec<&str> = per.collect();
        let whole = match until.as_slice() {
            [] => "the whole session".to_owned(),
            until => format!("until {}", until.join(" or ")),
        };
        if per.is_empty() { whole } else { format!("{whole}, one {}", per.join(" and ")) }
    }

    /// The same scope, with threads left behind once they are older than `ms`. A fresh scope stays fresh.
    #[must_use]
    pub fn with_age_ms_max(mut self, ms: u64) -> Self {
        if let Self::Persistent(kept) = &mut self {
            kept.age_ms_max = Some(ms);
        }
        self
    }
}

/// Who is about to call: everything a scope can be keyed by, taken from authoritative state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeContext {
    /// The role that speaks.
    pub role: RoleName,
    /// The individual that speaks, where a role has several.
    pub agent: Option<AgentName>,
    /// The other side of the talk.
    pub peer: Option<AgentName>,
    /// The model that will answer.
    pub model: ModelName,
    /// Which of several samples of the same model; 0 is the first.
    pub sample: u16,
    /// The turn that runs.
    pub turn: Option<TurnId>,
    /// The phase visit of the role's graph.
    pub phase_visit: Option<PhaseVisit>,
    /// The work item the lease names for the peer, or for the agent itself where there is no peer.
    pub work_item: Option<WorkItemName>,
    /// The call at the root: this one, or the one whose tool results it brings.
    pub root_call: CallId,
    /// How often the slot was reset by hand.
    pub slot_resets: u32,
}

/// One stay in a phase.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PhaseVisit {
    /// Of which graph.
    pub graph: PhaseGraphName,
    /// Which phase.
    pub phase: PhaseName,
    /// The how-manieth visit of that graph.
    pub number: u32,
}

/// Where a thread is kept: at most one thread stands in a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadSlot {
    /// Whose memory.
    pub role: RoleName,
    /// Of which individual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// Talking with whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<AgentName>,
    /// On which model, and which sample of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(ModelName, u16)>,
}

/// What a thread is good for: a call whose wanted tag differs does not get it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ScopeTag {
    /// The only call this thread serves, for a fresh role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_call: Option<CallId>,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The phase visit it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_visit: Option<PhaseVisit>,
    /// The model it was held with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(ModelName, u16)>,
    /// The work item it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item: Option<WorkItemName>,
    /// How often the slot had been reset when it was opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slot_resets: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The slot and tag that `scope` wants for `caller`.
#[must_use]
pub fn resolve_slot_and_tag(scope: &Scope, context: &ScopeContext) -> (ThreadSlot, ScopeTag) {
    let mut slot = ThreadSlot { role: context.role.clone(), agent: context.agent.clone(), peer: None, model: None };
    let mut tag = ScopeTag { slot_resets: context.slot_resets, ..ScopeTag::default() };
    let model = || Some((context.model.clone(), context.sample));
    match scope {
        Scope::Fresh => {
            // Beside each other, so that two fresh calls of one role can run at once.
            slot.peer.clone_from(&context.peer);
            slot.model = model();
            tag.single_call = Some(context.root_call);
        }
        Scope::Persistent(kept) => {
            for per in &kept.partitions {
                match per {
                    ThreadPartition::Model => slot.model = model(),
                    ThreadPartition::Peer => slot.peer.clone_from(&context.peer),
                }
            }
            for until in &kept.boundaries {
                match until {
                    ThreadBoundary::Turn => tag.turn = context.turn,
                    ThreadBoundary::Phase => tag.phase_visit.clone_from(&context.phase_visit),
                    ThreadBoundary::Model => tag.model = model(),
                    ThreadBoundary::WorkItem => tag.work_item.clone_from(&context.work_item),
                }
            }
        }
    }
    (slot, tag)
}

/// The slot a role's memory for `caller` stands in; what an explicit reset names.
#[must_use]
pub fn resolve_slot(scope: &Scope, context: &ScopeContext) -> ThreadSlot {
    resolve_slot_and_tag(scope, context).0
}

/// What stands in a slot, as far as the rule cares.
#[derive(Debug, Clone, Copy)]
pub struct CurrentThread<'a> {
    /// Which thread.
    pub thread: ThreadId,
    /// Its tag.
    pub scope_tag: &'a ScopeTag,
    /// When it was opened.
    pub opened_at: UnixMillis,
}

/// What the rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadChoice {
    /// The wanted tag is the thread's tag: go on with it.
    Continue(ThreadId),
    /// Open a new one, for this reason.
    Open(ThreadOpenReason),
}

/// Why a thread was opened rather than continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadOpenReason {
    /// The role has no memory.
    Fresh,
    /// Nothing stood in the slot.
    FirstUse,
    /// These parts of the tag differ.
    Changed(Vec<ThreadChange>),
    /// The thread was older than the role allows.
    TooOld,
}

/// A part of a tag, as it is named to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadChange {
    /// Another turn.
    Turn,
    /// Another phase visit.
    Phase,
    /// Another model.
    Model,
    /// Another work item.
    WorkItem,
    /// Reset by hand.
    Reset,
}

impl fmt::Display for ThreadOpenReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh: this role keeps no memory"),
            Self::FirstUse => f.write_str("new: nothing was remembered here yet"),
            Self::TooOld => f.write_str("new: the earlier thread had grown too old"),
            Self::Changed(parts) => {
                f.write_str("new: ")?;
                for (place, part) in parts.iter().enumerate() {
                    if place > 0 {
                        f.write_str(" and ")?;
                    }
                    f.write_str(match part {
                        ThreadChange::Turn => "another turn",
                        ThreadChange::Phase => "another phase visit",
                        ThreadChange::Model => "another model",
                        ThreadChange::WorkItem => "another work item",
                        ThreadChange::Reset => "reset by hand",
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// The single rule before every call: equal tag, continue; different or none, open.
#[must_use]
pub fn choose_thread(
    scope: &Scope,
    current: Option<CurrentThread<'_>>,
    required: &ScopeTag,
    now: UnixMillis,
) -> ThreadChoice {
    let Some(standing) = current else {
        return ThreadChoice::Open(if required.single_call.is_some() {
            ThreadOpenReason::Fresh
        } else {
            ThreadOpenReason::FirstUse
        });
    };
    if standing.scope_tag != required {
        return ThreadChoice::Open(match required.single_call {
            Some(_) => ThreadOpenReason::Fresh,
            None => ThreadOpenReason::Changed(list_thread_changes(standing.scope_tag, required)),
        });
    }
    let age_ms_max = match scope {
        Scope::Fresh => None,
        Scope::Persistent(kept) => kept.age_ms_max,
    };
    match age_ms_max {
        Some(max) if now.ms_since(standing.opened_at) > max => ThreadChoice::Open(ThreadOpenReason::TooOld),
        _ => ThreadChoice::Continue(standing.thread),
    }
}

fn list_thread_changes(current: &ScopeTag, required: &ScopeTag) -> Vec<ThreadChange> {
    let mut parts = Vec::new();
    let mut note = |differs: bool, part: ThreadChange| {
        if differs {
            parts.push(part);
        }
    };
    note(current.turn != required.turn, ThreadChange::Turn);
    note(current.phase_visit != required.phase_visit, ThreadChange::Phase);
    note(current.model != required.model, ThreadChange::Model);
    note(current.work_item != required.work_item, ThreadChange::WorkItem);
    note(current.slot_resets != required.slot_resets, ThreadChange::Reset);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> ScopeContext {
        ScopeContext {
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

    fn rule(scope: &Scope, before: &ScopeContext, after: &ScopeContext, later_ms: u64) -> ThreadChoice {
        let (slot, tag) = resolve_slot_and_tag(scope, before);
        let (wanted_slot, wanted_tag) = resolve_slot_and_tag(scope, after);
        let standing = (slot == wanted_slot).then_some(CurrentThread {
            thread: ThreadId(7),
            scope_tag: &tag,
            opened_at: UnixMillis(0),
        });
        choose_thread(scope, standing, &wanted_tag, UnixMillis(later_ms))
    }

    #[test]
    fn the_same_caller_continues() {
        for scope in [
            Scope::per_session(),
            Scope::per_turn(),
            Scope::per_model(),
            Scope::per_peer(),
            Scope::per_peer_and_work_item(),
        ] {
            assert_eq!(rule(&scope, &caller(), &caller(), 1), ThreadChoice::Continue(ThreadId(7)), "{scope:?}");
        }
    }

    #[test]
    fn a_fresh_role_never_continues_another_call() {
        let next = ScopeContext { root_call: CallId(2), ..caller() };
        assert_eq!(rule(&Scope::Fresh, &caller(), &next, 1), ThreadChoice::Open(ThreadOpenReason::Fresh));
        assert_eq!(
            rule(&Scope::Fresh, &caller(), &caller(), 1),
            ThreadChoice::Continue(ThreadId(7)),
            "a tool round of one call"
        );
    }

    #[test]
    fn a_changed_work_item_opens_a_new_thread_and_another_peer_has_its_own() {
        let scope = Scope::per_peer_and_work_item();
        let other_story = ScopeContext { work_item: Some("story-2".into()), ..caller() };
        let other_peer = ScopeContext { peer: Some("coder-2".into()), ..caller() };
        assert_eq!(
            rule(&scope, &caller(), &other_story, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadChange::WorkItem]))
        );
        assert_eq!(rule(&scope, &caller(), &other_peer, 1), ThreadChoice::Open(ThreadOpenReason::FirstUse));
    }

    #[test]
    fn age_and_reset_are_inputs_to_the_same_rule() {
        let scope = Scope::per_session().with_age_ms_max(100);
        assert_eq!(rule(&scope, &caller(), &caller(), 100), ThreadChoice::Continue(ThreadId(7)));
        assert_eq!(rule(&scope, &caller(), &caller(), 101), ThreadChoice::Open(ThreadOpenReason::TooOld));
        let reset = ScopeContext { slot_resets: 1, ..caller() };
        assert_eq!(
            rule(&scope, &caller(), &reset, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadChange::Reset]))
        );
    }

    #[test]
    fn a_model_change_ends_a_thread_that_lasts_until_then_and_parts_those_kept_per_model() {
        let other = ScopeContext { model: "n".into(), ..caller() };
        assert_eq!(
            rule(&Scope::per_phase().ended_by(ThreadBoundary::Model), &caller(), &other, 1),
            ThreadChoice::Open(ThreadOpenReason::Changed(vec![ThreadChange::Model]))
        );
        assert_eq!(rule(&Scope::per_model(), &caller(), &other, 1), ThreadChoice::Open(ThreadOpenReason::FirstUse));
    }
}
