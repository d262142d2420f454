//! What exists, as far as this conversation knows: references, what they stand for, and how near each is. A reference is
//! given once and never again; models see references and labels, never ids. This module alone changes that layer.
//!
//! A reference is not data: what of a record is at hand is its [`Detail`], and where that can be read is [`Held`].

mod entity;

use std::collections::{BTreeMap, BTreeSet};

use segue_core::body::Text;
use serde::{Deserialize, Serialize};

pub use entity::{Action, Detail, Draft, Entity, Held, Known, Tier};

use super::domain::listed;
use crate::limits::{
    ACTIVE_TURNS, DRAFTS_MAX, ENTITIES_AT_HAND_MAX, ENTITIES_MAX, ID_CHARS_MIN, KNOWN_NAMED_MAX, LABEL_CHARS_MAX,
};

/// All references of a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Registry {
    /// By reference.
    pub entities: BTreeMap<String, Entity>,
    /// The last number given, by what stands before it: `recipe`, `gen_recipe`.
    pub counters: BTreeMap<String, u32>,
}

impl Registry {
    /// The entity of a reference that models may use.
    #[must_use]
    pub fn get(&self, reference: &str) -> Option<&Entity> {
        self.entities.get(reference)
    }

    /// The reference that stands for an id.
    #[must_use]
    pub fn reference_of(&self, kind: &str, id: &str) -> Option<&str> {
        let mut found = self.entities.iter();
        let found = found.find(|(_, entity)| entity.kind == kind && entity.id.as_deref() == Some(id));
        found.map(|(reference, _)| reference.as_str())
    }

    /// The reference of an id: the standing one, or the next.
    #[must_use]
    pub fn reference_for(&self, kind: &str, id: &str, given: &[Known]) -> String {
        if let Some(reference) = self.reference_of(kind, id) {
            return reference.to_owned();
        }
        if let Some(known) = given.iter().find(|known| known.kind == kind && known.id == id) {
            return known.reference.clone();
        }
        let given = given.iter().filter_map(|known| number(kind, &known.reference)).max().unwrap_or(0);
        format!("{kind}_{}", self.counters.get(kind).copied().unwrap_or(0).max(given) + 1)
    }

    /// The reference of the next draft of a type.
    #[must_use]
    pub fn next_draft(&self, kind: &str, given: &[Draft]) -> String {
        let stem = format!("gen_{kind}");
        let given = given.iter().filter_map(|draft| number(&stem, &draft.reference)).max().unwrap_or(0);
        format!("{stem}_{}", self.counters.get(&stem).copied().unwrap_or(0).max(given) + 1)
    }

    /// The real id behind a reference of a type.
    ///
    /// # Errors
    /// It is unknown, of another type, not saved or gone; says which.
    pub fn id_of(&self, reference: &str, kind: &str) -> Result<String, String> {
        let entity = self.expect(reference, Some(kind))?;
        if entity.last == Action::Deleted {
            return Err(format!("`{reference}` was deleted"));
        }
        entity.id.clone().ok_or_else(|| format!("`{reference}` is a draft that is not saved yet"))
    }

    /// The entity of a reference, or a complaint that names it.
    ///
    /// # Errors
    /// It is unknown, or of another type.
    pub fn expect(&self, reference: &str, kind: Option<&str>) -> Result<&Entity, String> {
        let Some(entity) = self.entities.get(reference) else {
            let known = self.entities.iter().filter(|(_, entity)| kind.is_none_or(|kind| entity.kind == kind));
            let known: Vec<&str> = known.filter(|(_, entity)| !entity.dropped).map(|(name, _)| name.as_str()).collect();
            let more = if known.len() > KNOWN_NAMED_MAX { " and others" } else { "" };
            let known = listed(known.into_iter().take(KNOWN_NAMED_MAX));
            let shown: String = reference.chars().take(LABEL_CHARS_MAX).collect();
            return Err(format!("`{shown}` is no reference; those known are {known}{more}"));
        };
        match kind {
            Some(kind) if entity.kind != kind => {
                Err(format!("`{reference}` is of type `{}`, where a `{kind}` is wanted", entity.kind))
            }
            _ => Ok(entity),
        }
    }

    /// References with their entities and tiers, those referred to last first.
    #[must_use]
    pub fn newest(&self, turn: u32) -> Vec<(&str, &Entity, Tier)> {
        let mut all: Vec<_> =
            self.entities.iter().map(|(name, entity)| (name.as_str(), entity, entity.tier(turn))).collect();
        all.sort_by_key(|(name, entity, _)| {
            (std::cmp::Reverse(entity.referenced), std::cmp::Reverse(entity.created), stem(name), place(name))
        });
        all
    }

    /// Those to work with, in the order they became known.
    #[must_use]
    pub fn near(&self, turn: u32) -> Vec<(&str, &Entity, Tier)> {
        let mut near: Vec<_> = self.newest(turn).into_iter().filter(|(_, _, tier)| tier.is_near()).collect();
        near.sort_by_key(|(name, entity, _)| (entity.created, stem(name), place(name)));
        near
    }

    /// A text in which every reference is replaced by what people call it.
    #[must_use]
    pub fn in_words(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let word = &rest[..end];
            match self.entities.get(word).filter(|entity| !entity.label.is_empty()) {
                Some(entity) => out.push_str(&entity.label),
                None => out.push_str(word),
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    /// A text of somebody else in which every id that is known is replaced by its reference, and whatever else looks like one by
    /// a dash.
    #[must_use]
    pub fn without_ids(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (reference, entity) in &self.entities {
            // A short id is a word like any other.
            if let Some(id) = entity.id.as_deref().filter(|id| id.len() >= ID_CHARS_MIN) {
                out = out.replace(id, reference);
            }
        }
        let words = out.split_inclusive(is_between);
        words
            .map(|word| {
                let bare = word.trim_end_matches(is_between);
                if is_uuid(bare) { word.replacen(bare, "–", 1) } else { word.to_owned() }
            })
            .collect()
    }

    /// What in a text looks like an id and has no reference, each once.
    #[must_use]
    pub fn strange_ids(&self, text: &str) -> Vec<String> {
        let is_known = |id: &str| self.entities.values().any(|entity| entity.id.as_deref() == Some(id));
        let ids: BTreeSet<&str> = text.split(is_between).filter(|word| is_uuid(word)).collect();
        ids.into_iter().filter(|id| !is_known(id)).map(str::to_owned).collect()
    }

    /// Records became known, with the tool's result they stand in.
    pub(super) fn take_in(&mut self, rows: &[Known], action: Action, text: Text, turn: u32) {
        for known in rows {
            self.count(&known.reference);
            let is_new = !self.entities.contains_key(&known.reference);
            let entity = self.entities.entry(known.reference.clone()).or_insert_with(|| Entity::new(&known.kind, turn));
            entity.id = Some(known.id.clone());
            if !known.label.is_empty() {
                entity.label = shortened(&known.label);
            }
            // What merely stood among others that were read, or was led to, was not referred to: it stays where it was put.
            let is_set_aside = entity.demoted.is_some() || (entity.dropped && entity.last != Action::Deleted);
            let is_passing = action == Action::Read && (is_set_aside || (known.place.is_none() && !is_new));
            if !is_passing {
                entity.last = match (known.place, action) {
                    (Some(_), action) => action,
                    (None, Action::Read) => entity.last,
                    // It was led to by what was written.
                    (None, _) => Action::Linked,
                };
                entity.demoted = None;
                entity.dropped = false;
                entity.referenced = turn;
            }
            entity.hold(known, text);
        }
        self.keep_within(turn);
    }

    /// Records are gone.
    pub(super) fn lose(&mut self, references: &[String], turn: u32) {
        for reference in references {
            if let Some(entity) = self.entities.get_mut(reference) {
                entity.last = Action::Deleted;
                entity.referenced = turn;
                entity.dropped = true;
                entity.let_go();
            }
        }
    }

    /// Drafts were written, or written anew.
    pub(super) fn draft(&mut self, drafts: &[Draft], turn: u32) {
        for draft in drafts {
            self.count(&draft.reference);
            let entity = self.entities.entry(draft.reference.clone()).or_insert_with(|| Entity::new(&draft.kind, turn));
            entity.label = shortened(&draft.label);
            entity.last = Action::Generated;
            entity.referenced = turn;
            entity.dropped = false;
            entity.demoted = None;
            entity.detail = Detail::Full;
            entity.held = Some(Held::Draft(draft.content.clone()));
        }
        self.keep_within(turn);
    }

    /// References were spoken of: they are near again, whatever was done to them before.
    pub(super) fn mention(&mut self, references: &[String], turn: u32) {
        for reference in references {
            if let Some(entity) = self.entities.get_mut(reference).filter(|entity| entity.last != Action::Deleted) {
                entity.referenced = turn;
                entity.demoted = None;
                entity.dropped = false;
            }
        }
    }

    /// Steps dealt with these: they stay as near as they are.
    pub(super) fn touch(&mut self, references: &[String], turn: u32) {
        let near = |entity: &&mut Entity| entity.demoted.is_none() && !entity.dropped;
        for reference in references {
            if let Some(entity) = self.entities.get_mut(reference).filter(near) {
                entity.referenced = turn;
            }
        }
    }

    pub(super) fn retain(&mut self, reference: &str, reason: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.retained = Some(reason.to_owned());
            entity.demoted = None;
        }
    }

    pub(super) fn demote(&mut self, reference: &str, reason: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.demoted = Some(reason.to_owned());
            entity.retained = None;
        }
    }

    pub(super) fn remove(&mut self, reference: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.dropped = true;
            entity.retained = None;
            entity.let_go();
        }
    }

    /// Everything that is saved leaves; drafts are lost only by name.
    pub(super) fn clear(&mut self) {
        let saved: Vec<String> =
            self.entities.iter().filter(|(_, entity)| entity.is_saved()).map(|(name, _)| name.clone()).collect();
        saved.iter().for_each(|reference| self.remove(reference));
    }

    /// A turn begins: what is no longer near need not be at hand.
    pub(super) fn age(&mut self, turn: u32) {
        for entity in self.entities.values_mut().filter(|entity| entity.is_saved()) {
            let is_recent = turn.saturating_sub(entity.referenced) <= ACTIVE_TURNS;
            if !is_recent && entity.tier(turn) != Tier::Retained {
                entity.let_go();
            }
        }
    }

    fn count(&mut self, reference: &str) {
        let (stem, place) = (stem(reference), place(reference));
        let counter = self.counters.entry(stem.to_owned()).or_default();
        *counter = (*counter).max(place);
    }

    fn keep_within(&mut self, turn: u32) {
        let is_draft = |entity: &Entity| !entity.is_saved() && !entity.dropped;
        self.forget(
            ENTITIES_MAX,
            |_| true,
            |entities, oldest| {
                entities.remove(oldest);
            },
        );
        self.forget(DRAFTS_MAX, is_draft, |entities, oldest| {
            entities.remove(oldest);
        });
        self.forget(
            ENTITIES_AT_HAND_MAX,
            |entity| entity.held.is_some() && entity.is_saved(),
            |entities, oldest| {
                entities.get_mut(oldest).into_iter().for_each(Entity::let_go);
            },
        );
        debug_assert!(self.entities.len() <= ENTITIES_MAX, "at turn {turn}");
    }

    /// Lets go of those referred to least lately, as long as there are more than `most` of a sort.
    fn forget(
        &mut self,
        most: usize,
        of_sort: impl Fn(&Entity) -> bool,
        let_go: impl Fn(&mut BTreeMap<String, Entity>, &str),
    ) {
        let mut sort: Vec<(u32, u32, String)> = self
            .entities
            .iter()
            .filter(|(_, entity)| of_sort(entity))
            .map(|(name, entity)| (entity.referenced, entity.created, name.clone()))
            .collect();
        let Some(over) = sort.len().checked_sub(most).filter(|over| *over > 0) else { return };
        sort.sort();
        sort.iter().take(over).for_each(|(_, _, name)| let_go(&mut self.entities, name));
    }
}

/// What stands between two words that could be ids.
fn is_between(c: char) -> bool {
    !(c.is_ascii_alphanumeric() || c == '-')
}

fn is_uuid(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let lengths = [8, 4, 4, 4, 12];
    parts.len() == lengths.len()
        && parts
            .iter()
            .zip(lengths)
            .all(|(part, length)| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// What stands before the number of a reference.
fn stem(reference: &str) -> &str {
    reference.rsplit_once('_').map_or(reference, |(stem, _)| stem)
}

/// The number of a reference.
fn place(reference: &str) -> u32 {
    reference.rsplit_once('_').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

fn number(stem_wanted: &str, reference: &str) -> Option<u32> {
    (stem(reference) == stem_wanted).then(|| place(reference))
}

/// A label fit for a list: one line, not too long.
pub(super) fn shortened(label: &str) -> String {
    let line = label.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
    if line.chars().count() <= LABEL_CHARS_MAX {
        return line;
    }
    line.chars().take(LABEL_CHARS_MAX - 1).chain(['…']).collect()
}
