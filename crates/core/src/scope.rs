//! What a role's memory is keyed by, and the one rule that picks a thread before every call.
//!
//! A scope says two things. `per`: beside which others a thread lives (one for each model, one for each peer). `until`: what ends
//! it (the turn, the phase visit, a change of model, a change of work). The wanted slot and tag are computed from the session's
//! state alone; no flow can pass a thread, and no event has to arrive for an old one to be left behind.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, CallId, GraphName, Millis, ModelName, PhaseName, RoleName, ThreadId, TurnId, WorkName};

/// How far a role's memory reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// No memory: every call begins anew.
    Fresh,
    /// A memory that lasts.
    Kept(Kept),
}

/// A memory that lasts, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kept {
    /// One thread for each of these, side by side.
    pub per: BTreeSet<Per>,
    /// A change in any of these ends the thread.
    pub until: BTreeSet<Until>,
    /// A thread older than this is left behind.
    pub age_ms_max: Option<u64>,
}

/// What threads of one role live beside each other for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Each model, and each sample of it, has its own.
    Model,
    /// Each agent the role talks with has its own.
    Peer,
}

/// What ends a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The next turn.
    Turn,
    /// The next visit of a phase of the role's graph.
    Phase,
    /// Another model.
    Model,
    /// Another work item of the peer (or of the agent itself where there is no peer), as the lease says.
    Work,
}

impl Scope {
    /// One thread for the whole session.
    #[must_use]
    pub fn session() -> Self {
        Self::Kept(Kept::default())
    }

    /// One thread a turn.
    #[must_use]
    pub fn turn() -> Self {
        Self::session().until(Until::Turn)
    }

    /// One thread a phase visit.
    #[must_use]
    pub fn phase() -> Self {
        Self::session().until(Until::Phase)
    }

    /// One lasting thread for each model.
    #[must_use]
    pub fn model() -> Self {
        Self::session().per(Per::Model)
    }

    /// One lasting thread for each peer.
    #[must_use]
    pub fn peer() -> Self {
        Self::session().per(Per::Peer)
    }

    /// One thread for each peer, as long as it works on one thing.
    #[must_use]
    pub fn peer_and_work() -> Self {
        Self::peer().until(Until::Work)
    }

    /// The same scope with threads side by side for each `per`. A fresh scope stays fresh.
    #[must_use]
    pub fn per(mut self, per: Per) -> Self {
        if let Self::Kept(kept) = &mut self {
            kept.per.insert(per);
        }
        self
    }

    /// The same scope, ended also by `until`. A fresh scope stays fresh.
    #[must_use]
    pub fn until(mut self, until: Until) -> Self {
        if let Self::Kept(kept) = &mut self {
            kept.until.insert(until);
        }
        self
    }

    /// Whether a change in `until` ends a thread of this scope. A fresh scope knows no ends.
    #[must_use]
    pub fn ends_with(&self, until: Until) -> bool {
        match self {
            Self::Fresh => false,
            Self::Kept(kept) => kept.until.contains(&until),
        }
    }

    /// How far it reaches, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let kept = match self {
            Self::Fresh => return "none: every call begins anew".to_owned(),
            Self::Kept(kept) => kept,
        };
        let per = kept.per.iter().map(|per| match per {
            Per::Model => "for each model",
            Per::Peer => "for each partner",
        });
        let until = kept.until.iter().map(|until| match until {
            Until::Turn => "the turn ends".to_owned(),
            Until::Phase => "the phase is left".to_owned(),
            Until::Model => "the model changes".to_owned(),
            Until::Work => "the work item changes".to_owned(),
        });
        let age = kept.age_ms_max.map(|ms| format!("it is {} old", crate::phase::diagram::span(ms)));
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
    pub fn aged(mut self, ms: u64) -> Self {
        if let Self::Kept(kept) = &mut self {
            kept.age_ms_max = Some(ms);
        }
        self
    }
}

/// Who is about to call: everything a scope can be keyed by, taken from authoritative state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
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
    pub phase: Option<Visit>,
    /// The work item the lease names for the peer, or for the agent itself where there is no peer.
    pub work: Option<WorkName>,
    /// The call at the root: this one, or the one whose tool results it brings.
    pub root: CallId,
    /// How often the slot was reset by hand.
    pub resets: u32,
}

/// One stay in a phase.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Visit {
    /// Of which graph.
    pub graph: GraphName,
    /// Which phase.
    pub phase: PhaseName,
    /// The how-manieth visit of that graph.
    pub visit: u32,
}

/// Where a thread is kept: at most one thread stands in a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
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
pub struct Tag {
    /// The only call this thread serves, for a fresh role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<CallId>,
    /// The turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The phase visit it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Visit>,
    /// The model it was held with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<(ModelName, u16)>,
    /// The work item it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkName>,
    /// How often the slot had been reset when it was opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resets: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The slot and tag that `scope` wants for `caller`.
#[must_use]
pub fn wanted(scope: &Scope, caller: &Caller) -> (Slot, Tag) {
    let mut slot = Slot { role: caller.role.clone(), agent: caller.agent.clone(), peer: None, model: None };
    let mut tag = Tag { resets: caller.resets, ..Tag::default() };
    let model = || Some((caller.model.clone(), caller.sample));
    match scope {
        Scope::Fresh => {
            // Beside each other, so that two fresh calls of one role can run at once.
            slot.peer.clone_from(&caller.peer);
            slot.model = model();
            tag.fresh = Some(caller.root);
        }
        Scope::Kept(kept) => {
            for per in &kept.per {
                match per {
                    Per::Model => slot.model = model(),
                    Per::Peer => slot.peer.clone_from(&caller.peer),
                }
            }
            for until in &kept.until {
                match until {
                    Until::Turn => tag.turn = caller.turn,
                    Until::Phase => tag.phase.clone_from(&caller.phase),
                    Until::Model => tag.model = model(),
                    Until::Work => tag.work.clone_from(&caller.work),
                }
            }
        }
    }
    (slot, tag)
}

/// The slot a role's memory for `caller` stands in; what an explicit reset names.
#[must_use]
pub fn slot_of(scope: &Scope, caller: &Caller) -> Slot {
    wanted(scope, caller).0
}

/// What stands in a slot, as far as the rule cares.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Which thread.
    pub thread: ThreadId,
    /// Its tag.
    pub tag: &'a Tag,
    /// When it was opened.
    pub opened: Millis,
}

/// What the rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The wanted tag is the thread's tag: go on with it.
    Continue(ThreadId),
    /// Open a new one, for this reason.
    Open(Opening),
}

/// Why a thread was opened rather than continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// The role has no memory.
    Fresh,
    /// Nothing stood in the slot.
    First,
    /// These parts of the tag differ.
    Changed(Vec<Part>),
    /// The thread was older than the role allows.
    Aged,
}

/// A part of a tag, as it is named to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Another turn.
    Turn,
    /// Another phase visit.
    Phase,
    /// Another model.
    Model,
    /// Another work item.
    Work,
    /// Reset by hand.
    Reset,
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh => f.write_str("fresh: this role keeps no memory"),
            Self::First => f.write_str("new: nothing was remembered here yet"),
            Self::Aged => f.write_str("new: the earlier thread had grown too old"),
            Self::Changed(parts) => {
                f.write_str("new: ")?;
                for (place, part) in parts.iter().enumerate() {
                    if place > 0 {
                        f.write_str(" and ")?;
                    }
                    f.write_str(match part {
                        Part::Turn => "another turn",
                        Part::Phase => "another phase visit",
                        Part::Model => "another model",
                        Part::Work => "another work item",
                        Part::Reset => "reset by hand",
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// The single rule before every call: equal tag, continue; different or none, open.
#[must_use]
pub fn choose(scope: &Scope, standing: Option<Standing<'_>>, wanted: &Tag, now: Millis) -> Choice {
    let Some(standing) = standing else {
        return Choice::Open(if wanted.fresh.is_some() { Opening::Fresh } else { Opening::First });
    };
    if standing.tag != wanted {
        return Choice::Open(match wanted.fresh {
            Some(_) => Opening::Fresh,
            None => Opening::Changed(differences(standing.tag, wanted)),
        });
    }
    let age_ms_max = match scope {
        Scope::Fresh => None,
        Scope::Kept(kept) => kept.age_ms_max,
    };
    match age_ms_max {
        Some(max) if now.since(standing.opened) > max => Choice::Open(Opening::Aged),
        _ => Choice::Continue(standing.thread),
    }
}

fn differences(stood: &Tag, wanted: &Tag) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut note = |differs: bool, part: Part| {
        if differs {
            parts.push(part);
        }
    };
    note(stood.turn != wanted.turn, Part::Turn);
    note(stood.phase != wanted.phase, Part::Phase);
    note(stood.model != wanted.model, Part::Model);
    note(stood.work != wanted.work, Part::Work);
    note(stood.resets != wanted.resets, Part::Reset);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller {
            role: "architect".into(),
            agent: None,
            peer: Some("coder-1".into()),
            model: "m".into(),
            sample: 0,
            turn: Some(TurnId(1)),
            phase: None,
            work: Some("story-1".into()),
            root: CallId(1),
            resets: 0,
        }
    }

    fn rule(scope: &Scope, before: &Caller, after: &Caller, later_ms: u64) -> Choice {
        let (slot, tag) = wanted(scope, before);
        let (wanted_slot, wanted_tag) = wanted(scope, after);
        let standing = (slot == wanted_slot).then_some(Standing { thread: ThreadId(7), tag: &tag, opened: Millis(0) });
        choose(scope, standing, &wanted_tag, Millis(later_ms))
    }

    #[test]
    fn the_same_caller_continues() {
        for scope in [Scope::session(), Scope::turn(), Scope::model(), Scope::peer(), Scope::peer_and_work()] {
            assert_eq!(rule(&scope, &caller(), &caller(), 1), Choice::Continue(ThreadId(7)), "{scope:?}");
        }
    }

    #[test]
    fn a_fresh_role_never_continues_another_call() {
        let next = Caller { root: CallId(2), ..caller() };
        assert_eq!(rule(&Scope::Fresh, &caller(), &next, 1), Choice::Open(Opening::Fresh));
        assert_eq!(
            rule(&Scope::Fresh, &caller(), &caller(), 1),
            Choice::Continue(ThreadId(7)),
            "a tool round of one call"
        );
    }

    #[test]
    fn a_changed_work_item_opens_a_new_thread_and_another_peer_has_its_own() {
        let scope = Scope::peer_and_work();
        let other_story = Caller { work: Some("story-2".into()), ..caller() };
        let other_peer = Caller { peer: Some("coder-2".into()), ..caller() };
        assert_eq!(rule(&scope, &caller(), &other_story, 1), Choice::Open(Opening::Changed(vec![Part::Work])));
        assert_eq!(rule(&scope, &caller(), &other_peer, 1), Choice::Open(Opening::First));
    }

    #[test]
    fn age_and_reset_are_inputs_to_the_same_rule() {
        let scope = Scope::session().aged(100);
        assert_eq!(rule(&scope, &caller(), &caller(), 100), Choice::Continue(ThreadId(7)));
        assert_eq!(rule(&scope, &caller(), &caller(), 101), Choice::Open(Opening::Aged));
        let reset = Caller { resets: 1, ..caller() };
        assert_eq!(rule(&scope, &caller(), &reset, 1), Choice::Open(Opening::Changed(vec![Part::Reset])));
    }

    #[test]
    fn a_model_change_ends_a_thread_that_lasts_until_then_and_parts_those_kept_per_model() {
        let other = Caller { model: "n".into(), ..caller() };
        assert_eq!(
            rule(&Scope::phase().until(Until::Model), &caller(), &other, 1),
            Choice::Open(Opening::Changed(vec![Part::Model]))
        );
        assert_eq!(rule(&Scope::model(), &caller(), &other, 1), Choice::Open(Opening::First));
    }
}
