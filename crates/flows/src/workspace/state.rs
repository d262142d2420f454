//! What a workspace stores, and the facts that change it. Everything is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{SessionId, UnixMillis};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claims::{WorkspaceClaimTable, WorkspaceClaimant};
use super::requests::{KnowledgeEntryKey, KnowledgeEntryRevision, Lesson, WorkspaceKnowledgeEntry};
use crate::fact::parse_fact_event;
use crate::limits::LESSONS_PER_AGENT_MAX;

/// The state of a workspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WorkspaceFlowState {
    /// The lessons of each agent, oldest first.
    pub(super) lessons: BTreeMap<String, VecDeque<Arc<Lesson>>>,
    /// By kind and key.
    pub(super) knowledge: BTreeMap<String, BTreeMap<String, Arc<WorkspaceKnowledgeEntry>>>,
    /// The size of all documents, in bytes of JSON.
    pub(super) knowledge_bytes: usize,
    /// The number of changes of the knowledge.
    pub(super) revision: u64,
    pub(super) claims: WorkspaceClaimTable,
}

/// What a workspace records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub(super) enum WorkspaceFlowFact {
    LessonStored {
        agent: String,
        title: String,
        text: String,
        session: SessionId,
    },
    KnowledgeStored {
        entries: Vec<StoredKnowledgeDocument>,
        session: SessionId,
    },
    KnowledgeRemoved {
        entries: Vec<KnowledgeEntryKey>,
        session: SessionId,
    },
    ClaimQueued {
        claim: String,
        by: WorkspaceClaimant,
    },
    ClaimGranted {
        claim: String,
        to: WorkspaceClaimant,
    },
    /// The holder no longer has the claim.
    ClaimFreed {
        claim: String,
        from: WorkspaceClaimant,
        reason: String,
    },
    /// A session no longer waits for the claim.
    ClaimWithdrawn {
        claim: String,
        by: WorkspaceClaimant,
        reason: String,
    },
}

/// A document as it was stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredKnowledgeDocument {
    pub kind: String,
    pub key: String,
    pub document: Value,
}

impl WorkspaceFlowState {
    pub(super) fn apply_event(&mut self, recorded: &RecordedEvent) {
        if matches!(recorded.event, Event::SessionForked { .. }) {
            // The claims belong to the original workspace.
            self.claims = WorkspaceClaimTable::default();
        }
        let Some(fact) = parse_fact_event::<WorkspaceFlowFact>(&recorded.event) else { return };
        match fact {
            WorkspaceFlowFact::LessonStored { agent, title, text, session } => {
                let lesson = Lesson { agent: agent.clone(), title, text, session, at: recorded.at };
                let lessons = self.lessons.entry(agent).or_default();
                lessons.push_back(Arc::new(lesson));
                while lessons.len() > LESSONS_PER_AGENT_MAX {
                    lessons.pop_front();
                }
            }
            WorkspaceFlowFact::KnowledgeStored { entries, session } => {
                self.store_documents(entries, &session, recorded.at)
            }
            WorkspaceFlowFact::KnowledgeRemoved { entries, .. } => self.remove_documents(&entries),
            WorkspaceFlowFact::ClaimQueued { claim, by } => self.claims.queue(claim, by),
            WorkspaceFlowFact::ClaimGranted { claim, to } => self.claims.grant(claim, to, recorded.at),
            WorkspaceFlowFact::ClaimFreed { claim, from, .. } => self.claims.free(&claim, &from),
            WorkspaceFlowFact::ClaimWithdrawn { claim, by, .. } => self.claims.withdraw(&claim, &by),
        }
    }

    fn store_documents(&mut self, entries: Vec<StoredKnowledgeDocument>, session: &SessionId, at: UnixMillis) {
        for StoredKnowledgeDocument { kind, key, document } in entries {
            self.revision += 1;
            let entry = WorkspaceKnowledgeEntry {
                kind: kind.clone(),
                key: key.clone(),
                document,
                revision: self.revision,
                session: session.clone(),
                at,
            };
            self.knowledge_bytes += document_bytes(&entry.document);
            let replaced = self.knowledge.entry(kind).or_default().insert(key, Arc::new(entry));
            self.knowledge_bytes -= replaced.map_or(0, |replaced| document_bytes(&replaced.document));
        }
    }

    fn remove_documents(&mut self, entries: &[KnowledgeEntryKey]) {
        for KnowledgeEntryKey { kind, key } in entries {
            let removed = self.knowledge.get_mut(kind).and_then(|entries| entries.remove(key));
            if let Some(removed) = removed {
                self.revision += 1;
                self.knowledge_bytes -= document_bytes(&removed.document);
            }
        }
        self.knowledge.retain(|_, entries| !entries.is_empty());
    }

    pub(super) fn find_entry(&self, kind: &str, key: &str) -> Option<&Arc<WorkspaceKnowledgeEntry>> {
        self.knowledge.get(kind)?.get(key)
    }

    /// Returns all entries, by kind and key.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<WorkspaceKnowledgeEntry>> {
        self.knowledge.values().flat_map(BTreeMap::values)
    }

    pub(super) fn revision_of(&self, kind: &str, key: &str) -> KnowledgeEntryRevision {
        let revision = self.find_entry(kind, key).map_or(0, |entry| entry.revision);
        KnowledgeEntryRevision { kind: kind.to_owned(), key: key.to_owned(), revision }
    }
}

/// Returns the size of a document, in bytes of JSON.
pub(super) fn document_bytes(document: &Value) -> usize {
    document.to_string().len()
}
