//! The entity layer of the memory: every record and draft that the conversation knows, by reference. A reference is assigned once
//! and never reused. Models see references and labels, never ids. Only this module changes the layer.
//!
//! A reference is not the record itself: [`RecordLoadLevel`] says which fields are loaded, and [`LoadedRecordSource`] where they are.

mod entity;

use std::collections::{BTreeMap, BTreeSet};

use segue_core::body::TextRef;
use serde::{Deserialize, Serialize};

pub use entity::{
    EntityRelevanceTier, KnownRecordOrDraft, LastEntityAction, LoadedRecordSource, RecordDraft, RecordLoadLevel,
    RecordWithReferenceName,
};

use super::domain::format_name_list;
use crate::limits::{
    DRAFTS_MAX, ENTITIES_CACHED_MAX, ENTITIES_MAX, ENTITY_LABEL_CHARS_MAX, REFERENCE_ACTIVE_TURNS,
    SCANNED_ID_CHARS_MIN, SUGGESTED_REFERENCES_MAX,
};

/// The known records and drafts of a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownEntities {
    /// The entities by reference.
    pub entities: BTreeMap<String, KnownRecordOrDraft>,
    /// The last assigned number by prefix, such as `recipe` or `gen_recipe`.
    pub counters: BTreeMap<String, u32>,
}

impl KnownEntities {
    /// Returns the entity behind a reference.
    #[must_use]
    pub fn get(&self, reference: &str) -> Option<&KnownRecordOrDraft> {
        self.entities.get(reference)
    }

    /// Returns the reference of a record.
    #[must_use]
    pub fn find_reference(&self, kind: &str, id: &str) -> Option<&str> {
        let mut found = self.entities.iter();
        let found = found.find(|(_, entity)| entity.kind == kind && entity.id.as_deref() == Some(id));
        found.map(|(reference, _)| reference.as_str())
    }

    /// Returns the reference of a record, or the next free one. `assigned` are new references that are not in the registry yet.
    #[must_use]
    pub fn find_or_next_reference(&self, kind: &str, id: &str, assigned: &[RecordWithReferenceName]) -> String {
        if let Some(reference) = self.find_reference(kind, id) {
            return reference.to_owned();
        }
        if let Some(known) = assigned.iter().find(|known| known.kind == kind && known.id == id) {
            return known.reference.clone();
        }
        let last =
            assigned.iter().filter_map(|known| reference_number_with_prefix(kind, &known.reference)).max().unwrap_or(0);
        format!("{kind}_{}", self.counters.get(kind).copied().unwrap_or(0).max(last) + 1)
    }

    /// Returns the next free reference for a draft of a type.
    #[must_use]
    pub fn next_draft_reference(&self, kind: &str, assigned: &[RecordDraft]) -> String {
        let prefix = format!("gen_{kind}");
        let last = assigned
            .iter()
            .filter_map(|draft| reference_number_with_prefix(&prefix, &draft.reference))
            .max()
            .unwrap_or(0);
        format!("{prefix}_{}", self.counters.get(&prefix).copied().unwrap_or(0).max(last) + 1)
    }

    /// Returns the id behind a reference of a type.
    ///
    /// # Errors
    /// The reference is unknown, of another type, not saved, or deleted.
    pub fn resolve_id(&self, reference: &str, kind: &str) -> Result<String, String> {
        let entity = self.expect_entity(reference, Some(kind))?;
        if entity.last_action == LastEntityAction::Deleted {
            return Err(format!("`{reference}` was deleted"));
        }
        entity.id.clone().ok_or_else(|| format!("`{reference}` is a draft that is not saved yet"))
    }

    /// Returns the entity behind a reference, or an error that lists the known ones.
    ///
    /// # Errors
    /// The reference is unknown, or of another type.
    pub fn expect_entity(&self, reference: &str, kind: Option<&str>) -> Result<&KnownRecordOrDraft, String> {
        let Some(entity) = self.entities.get(reference) else {
            let known = self.entities.iter().filter(|(_, entity)| kind.is_none_or(|kind| entity.kind == kind));
            let known: Vec<&str> = known.filter(|(_, entity)| !entity.dropped).map(|(name, _)| name.as_str()).collect();
            let more = if known.len() > SUGGESTED_REFERENCES_MAX { " and others" } else { "" };
            let known = format_name_list(known.into_iter().take(SUGGESTED_REFERENCES_MAX));
            let shown: String = reference.chars().take(ENTITY_LABEL_CHARS_MAX).collect();
            return Err(format!("`{shown}` is not a known reference; known are {known}{more}"));
        };
        match kind {
            Some(kind) if entity.kind != kind => {
                Err(format!("`{reference}` is of type `{}`, but must be of type `{kind}`", entity.kind))
            }
            _ => Ok(entity),
        }
    }

    /// Returns all references with their entities and tiers, most recently referenced first.
    #[must_use]
    pub fn entities_by_recency(&self, turn: u32) -> Vec<(&str, &KnownRecordOrDraft, EntityRelevanceTier)> {
        let mut all: Vec<_> =
            self.entities.iter().map(|(name, entity)| (name.as_str(), entity, entity.relevance_tier(turn))).collect();
        all.sort_by_key(|(name, entity, _)| {
            (
                std::cmp::Reverse(entity.referenced_turn),
                std::cmp::Reverse(entity.created_turn),
                reference_prefix(name),
                reference_number(name),
            )
        });
        all
    }

    /// Returns the relevant entities, in the order in which they became known.
    #[must_use]
    pub fn relevant_entities(&self, turn: u32) -> Vec<(&str, &KnownRecordOrDraft, EntityRelevanceTier)> {
        let mut relevant: Vec<_> =
            self.entities_by_recency(turn).into_iter().filter(|(_, _, tier)| tier.is_relevant()).collect();
        relevant.sort_by_key(|(name, entity, _)| (entity.created_turn, reference_prefix(name), reference_number(name)));
        relevant
    }

    /// Replaces every reference in a text by its label.
    #[must_use]
    pub fn replace_references_with_labels(&self, text: &str) -> String {
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

    /// Replaces every known id in a server's text by its reference, and every other UUID by a dash.
    #[must_use]
    pub fn replace_ids_with_references(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (reference, entity) in &self.entities {
            // A short id could be an ordinary word.
            if let Some(id) = entity.id.as_deref().filter(|id| id.len() >= SCANNED_ID_CHARS_MIN) {
                out = out.replace(id, reference);
            }
        }
        let words = out.split_inclusive(is_outside_id);
        words
            .map(|word| {
                let bare = word.trim_end_matches(is_outside_id);
                if is_uuid(bare) { word.replacen(bare, "–", 1) } else { word.to_owned() }
            })
            .collect()
    }

    /// Returns the UUIDs in a text that have no reference.
    #[must_use]
    pub fn find_unknown_ids(&self, text: &str) -> Vec<String> {
        let is_known = |id: &str| self.entities.values().any(|entity| entity.id.as_deref() == Some(id));
        let ids: BTreeSet<&str> = text.split(is_outside_id).filter(|word| is_uuid(word)).collect();
        ids.into_iter().filter(|id| !is_known(id)).map(str::to_owned).collect()
    }

    /// Returns the words of a text that have the form of a reference of one of the types, but are not known.
    #[must_use]
    pub fn find_unknown_references<'k>(&self, text: &str, kinds: impl Iterator<Item = &'k str>) -> Vec<String> {
        let prefixes: BTreeSet<String> = kinds.flat_map(|kind| [kind.to_owned(), format!("gen_{kind}")]).collect();
        let words: BTreeSet<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
        let is_reference = |word: &&str| {
            let parts = word.rsplit_once('_');
            parts.is_some_and(|(prefix, number)| prefixes.contains(prefix) && number.parse::<u32>().is_ok())
        };
        let unknown = words.into_iter().filter(is_reference).filter(|word| !self.entities.contains_key(*word));
        unknown.map(str::to_owned).collect()
    }

    /// Adds or updates records from a tool result.
    pub(super) fn upsert_records(
        &mut self,
        rows: &[RecordWithReferenceName],
        action: LastEntityAction,
        text: TextRef,
        turn: u32,
    ) {
        for row in rows {
            self.advance_counter(&row.reference);
            let is_new = !self.entities.contains_key(&row.reference);
            let entity =
                self.entities.entry(row.reference.clone()).or_insert_with(|| KnownRecordOrDraft::new(&row.kind, turn));
            entity.id = Some(row.id.clone());
            if !row.label.is_empty() {
                entity.label = shorten_label(&row.label);
            }
            // A record that was only part of a larger result, or only linked to, was not asked for. It keeps its tier.
            let is_excluded =
                entity.demoted_reason.is_some() || (entity.dropped && entity.last_action != LastEntityAction::Deleted);
            let is_incidental =
                action == LastEntityAction::Read && (is_excluded || (row.row_index.is_none() && !is_new));
            if !is_incidental {
                entity.last_action = match (row.row_index, action) {
                    (Some(_), action) => action,
                    (None, LastEntityAction::Read) => entity.last_action,
                    // A written record links to it.
                    (None, _) => LastEntityAction::Linked,
                };
                entity.demoted_reason = None;
                entity.dropped = false;
                entity.referenced_turn = turn;
            }
            entity.update_source_row(row, text);
        }
        self.evict_entities_over_limits(turn);
    }

    /// Marks records as deleted.
    pub(super) fn mark_deleted(&mut self, references: &[String], turn: u32) {
        for reference in references {
            if let Some(entity) = self.entities.get_mut(reference) {
                entity.last_action = LastEntityAction::Deleted;
                entity.referenced_turn = turn;
                entity.dropped = true;
                entity.unload();
            }
        }
    }

    /// Adds or replaces drafts.
    pub(super) fn upsert_drafts(&mut self, drafts: &[RecordDraft], turn: u32) {
        for draft in drafts {
            self.advance_counter(&draft.reference);
            let entity = self
                .entities
                .entry(draft.reference.clone())
                .or_insert_with(|| KnownRecordOrDraft::new(&draft.kind, turn));
            entity.label = shorten_label(&draft.label);
            entity.last_action = LastEntityAction::Generated;
            entity.referenced_turn = turn;
            entity.dropped = false;
            entity.demoted_reason = None;
            entity.detail = RecordLoadLevel::Full;
            entity.source = Some(LoadedRecordSource::Draft(draft.content.clone()));
        }
        self.evict_entities_over_limits(turn);
    }

    /// Marks references as used by the user or the plan. They become active again, even if they were demoted or dropped.
    pub(super) fn mark_referenced(&mut self, references: &[String], turn: u32) {
        for reference in references {
            if let Some(entity) =
                self.entities.get_mut(reference).filter(|entity| entity.last_action != LastEntityAction::Deleted)
            {
                entity.referenced_turn = turn;
                entity.demoted_reason = None;
                entity.dropped = false;
            }
        }
    }

    /// Marks references as used by a step. Demoted and dropped ones stay so.
    pub(super) fn mark_used_unless_demoted(&mut self, references: &[String], turn: u32) {
        let is_relevant = |entity: &&mut KnownRecordOrDraft| entity.demoted_reason.is_none() && !entity.dropped;
        for reference in references {
            if let Some(entity) = self.entities.get_mut(reference).filter(is_relevant) {
                entity.referenced_turn = turn;
            }
        }
    }

    pub(super) fn retain_entity(&mut self, reference: &str, reason: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.retained_reason = Some(reason.to_owned());
            entity.demoted_reason = None;
        }
    }

    pub(super) fn demote_entity(&mut self, reference: &str, reason: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.demoted_reason = Some(reason.to_owned());
            entity.retained_reason = None;
        }
    }

    pub(super) fn drop_entity(&mut self, reference: &str) {
        if let Some(entity) = self.entities.get_mut(reference) {
            entity.dropped = true;
            entity.retained_reason = None;
            entity.unload();
        }
    }

    /// Drops all saved records. Drafts stay, since they exist nowhere else.
    pub(super) fn drop_saved_entities(&mut self) {
        let saved: Vec<String> =
            self.entities.iter().filter(|(_, entity)| entity.is_saved()).map(|(name, _)| name.clone()).collect();
        saved.iter().for_each(|reference| self.drop_entity(reference));
    }

    /// Unloads records that are neither recent nor retained. Called when a turn starts.
    pub(super) fn unload_stale_records(&mut self, turn: u32) {
        for entity in self.entities.values_mut().filter(|entity| entity.is_saved()) {
            let is_recent = turn.saturating_sub(entity.referenced_turn) <= REFERENCE_ACTIVE_TURNS;
            if !is_recent && entity.relevance_tier(turn) != EntityRelevanceTier::Retained {
                entity.unload();
            }
        }
    }

    /// Unloads the records of types that somebody else has changed.
    pub(super) fn unload_records_of_types(&mut self, kinds: &[String]) {
        let is_changed = |entity: &&mut KnownRecordOrDraft| entity.is_saved() && kinds.contains(&entity.kind);
        self.entities.values_mut().filter(is_changed).for_each(KnownRecordOrDraft::unload);
    }

    fn advance_counter(&mut self, reference: &str) {
        let (prefix, number) = (reference_prefix(reference), reference_number(reference));
        let counter = self.counters.entry(prefix.to_owned()).or_default();
        *counter = (*counter).max(number);
    }

    fn evict_entities_over_limits(&mut self, turn: u32) {
        let is_draft = |entity: &KnownRecordOrDraft| !entity.is_saved() && !entity.dropped;
        self.evict_least_recent(
            ENTITIES_MAX,
            |_| true,
            |entities, oldest| {
                entities.remove(oldest);
            },
        );
        self.evict_least_recent(DRAFTS_MAX, is_draft, |entities, oldest| {
            entities.remove(oldest);
        });
        self.evict_least_recent(
            ENTITIES_CACHED_MAX,
            |entity| entity.source.is_some() && entity.is_saved(),
            |entities, oldest| {
                entities.get_mut(oldest).into_iter().for_each(KnownRecordOrDraft::unload);
            },
        );
        debug_assert!(self.entities.len() <= ENTITIES_MAX, "at turn {turn}");
    }

    /// Evicts the least recently referenced candidates beyond `count_max`.
    fn evict_least_recent(
        &mut self,
        count_max: usize,
        is_candidate: impl Fn(&KnownRecordOrDraft) -> bool,
        evict: impl Fn(&mut BTreeMap<String, KnownRecordOrDraft>, &str),
    ) {
        let mut candidates: Vec<(u32, u32, String)> = self
            .entities
            .iter()
            .filter(|(_, entity)| is_candidate(entity))
            .map(|(name, entity)| (entity.referenced_turn, entity.created_turn, name.clone()))
            .collect();
        let Some(excess) = candidates.len().checked_sub(count_max).filter(|excess| *excess > 0) else { return };
        candidates.sort();
        candidates.iter().take(excess).for_each(|(_, _, name)| evict(&mut self.entities, name));
    }
}

fn is_outside_id(c: char) -> bool {
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

/// Returns the part of a reference before its number.
fn reference_prefix(reference: &str) -> &str {
    reference.rsplit_once('_').map_or(reference, |(prefix, _)| prefix)
}

fn reference_number(reference: &str) -> u32 {
    reference.rsplit_once('_').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

fn reference_number_with_prefix(prefix: &str, reference: &str) -> Option<u32> {
    (reference_prefix(reference) == prefix).then(|| reference_number(reference))
}

/// Shortens a label to one line of limited length.
pub(super) fn shorten_label(label: &str) -> String {
    let line = label.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
    if line.chars().count() <= ENTITY_LABEL_CHARS_MAX {
        return line;
    }
    line.chars().take(ENTITY_LABEL_CHARS_MAX - 1).chain(['…']).collect()
}
