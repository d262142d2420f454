//! Knowledge: JSON documents by kind and key. The workspace does not look into them; the flow that stores them knows
//! what they mean.

use std::collections::BTreeSet;

use segue_core::ids::SessionId;

use super::WorkspaceFactAndReply;
use super::lessons::check_length;
use super::requests::{
    ExistingKnowledgeEntryPolicy, KnowledgeChangeReply, KnowledgeEntriesToAdd, KnowledgeEntryKey,
    KnowledgeEntryRevision, KnowledgeToRemove, NewKnowledgeEntry, WorkspaceKnowledgeEntry, WorkspaceKnowledgePage,
    WorkspaceKnowledgeQuery,
};
use super::state::{StoredKnowledgeDocument, WorkspaceFlowFact, WorkspaceFlowState, document_bytes};
use crate::limits::{
    KNOWLEDGE_BYTES_MAX, KNOWLEDGE_DOCUMENT_BYTES_MAX, KNOWLEDGE_ENTRIES_MAX, KNOWLEDGE_ENTRIES_PER_REQUEST_MAX,
    KNOWLEDGE_KEY_CHARS_MAX, KNOWLEDGE_KIND_CHARS_MAX, WORKSPACE_REPLY_BYTES_MAX,
};

pub(super) fn store_entries(
    state: &WorkspaceFlowState,
    request: KnowledgeEntriesToAdd,
    from: &SessionId,
) -> Result<WorkspaceFactAndReply, String> {
    check_knowledge_entry_count(request.entries.len())?;
    let mut named = BTreeSet::new();
    let mut entries = Vec::new();
    let (mut count, mut bytes) = (state.entries().count(), state.knowledge_bytes);
    for entry in request.entries {
        check_entry(state, &entry)?;
        let NewKnowledgeEntry { kind, key, document, .. } = entry;
        if !named.insert((kind.clone(), key.clone())) {
            return Err(format!("the entry `{key}` of kind `{kind}` is in the request twice"));
        }
        let existing = state.find_entry(&kind, &key);
        if existing.is_some_and(|existing| existing.document == document) {
            continue;
        }
        count += usize::from(existing.is_none());
        bytes += document_bytes(&document);
        bytes -= existing.map_or(0, |existing| document_bytes(&existing.document));
        entries.push(StoredKnowledgeDocument { kind, key, document });
    }
    if count > KNOWLEDGE_ENTRIES_MAX {
        return Err(format!("a workspace has at most {KNOWLEDGE_ENTRIES_MAX} entries of knowledge; remove some first"));
    }
    if bytes > KNOWLEDGE_BYTES_MAX {
        return Err(format!("the knowledge of a workspace has at most {KNOWLEDGE_BYTES_MAX} bytes; remove some first"));
    }
    let changed = entries.iter().zip(state.revision + 1..);
    let changed = changed.map(|(entry, revision)| KnowledgeEntryRevision {
        kind: entry.kind.clone(),
        key: entry.key.clone(),
        revision,
    });
    let changed: Vec<KnowledgeEntryRevision> = changed.collect();
    let revision = state.revision + changed.len() as u64;
    let fact = (!entries.is_empty()).then(|| WorkspaceFlowFact::KnowledgeStored { entries, session: from.clone() });
    Ok(WorkspaceFactAndReply::new(fact, &KnowledgeChangeReply { changed, revision }))
}

fn check_entry(state: &WorkspaceFlowState, entry: &NewKnowledgeEntry) -> Result<(), String> {
    let NewKnowledgeEntry { kind, key, document, if_exists } = entry;
    check_length("the kind of an entry", kind, KNOWLEDGE_KIND_CHARS_MAX)?;
    check_length("the key of an entry", key, KNOWLEDGE_KEY_CHARS_MAX)?;
    let bytes = document_bytes(document);
    if bytes > KNOWLEDGE_DOCUMENT_BYTES_MAX {
        return Err(format!(
            "the document `{key}` has {bytes} bytes of JSON, but at most {KNOWLEDGE_DOCUMENT_BYTES_MAX} are allowed"
        ));
    }
    let Some(existing) = state.find_entry(kind, key).filter(|existing| existing.document != *document) else {
        return Ok(());
    };
    match if_exists {
        ExistingKnowledgeEntryPolicy::Replace => Ok(()),
        ExistingKnowledgeEntryPolicy::ReplaceRevision(revision) if *revision == existing.revision => Ok(()),
        ExistingKnowledgeEntryPolicy::ReplaceRevision(revision) => Err(format!(
            "the entry `{key}` of kind `{kind}` has revision {} by now, not {revision}; read it again",
            existing.revision
        )),
        ExistingKnowledgeEntryPolicy::Refuse => Err(format!(
            "the entry `{key}` of kind `{kind}` exists with another document; say that it is to be replaced"
        )),
    }
}

pub(super) fn remove_entries(
    state: &WorkspaceFlowState,
    request: &KnowledgeToRemove,
    from: &SessionId,
) -> Result<WorkspaceFactAndReply, String> {
    check_knowledge_entry_count(request.keys.len())?;
    let keys: BTreeSet<&String> = request.keys.iter().collect();
    let found = keys.into_iter().filter(|key| state.find_entry(&request.kind, key).is_some());
    let entries: Vec<KnowledgeEntryKey> =
        found.map(|key| KnowledgeEntryKey { kind: request.kind.clone(), key: key.clone() }).collect();
    let changed: Vec<KnowledgeEntryRevision> =
        entries.iter().map(|entry| state.revision_of(&entry.kind, &entry.key)).collect();
    let revision = state.revision + changed.len() as u64;
    let fact = (!entries.is_empty()).then(|| WorkspaceFlowFact::KnowledgeRemoved { entries, session: from.clone() });
    Ok(WorkspaceFactAndReply::new(fact, &KnowledgeChangeReply { changed, revision }))
}

pub(super) fn list_entries(
    state: &WorkspaceFlowState,
    query: &WorkspaceKnowledgeQuery,
) -> Result<WorkspaceFactAndReply, String> {
    let is_selected = |entry: &&WorkspaceKnowledgeEntry| {
        let cursor = (&entry.kind, &entry.key);
        query.kind.as_ref().is_none_or(|kind| *kind == entry.kind)
            && query.after.as_ref().is_none_or(|after| cursor > (&after.kind, &after.key))
    };
    let selected: Vec<&WorkspaceKnowledgeEntry> = state.entries().map(|entry| &**entry).filter(is_selected).collect();
    let mut bytes = 0;
    let fits = |entry: &&&WorkspaceKnowledgeEntry| {
        bytes += serde_json::to_string(entry).map_or(0, |json| json.len());
        bytes <= WORKSPACE_REPLY_BYTES_MAX
    };
    let entries: Vec<WorkspaceKnowledgeEntry> =
        selected.iter().take_while(fits).map(|entry| WorkspaceKnowledgeEntry::clone(entry)).collect();
    let last = entries.last().filter(|_| entries.len() < selected.len());
    let next = last.map(|last| KnowledgeEntryKey { kind: last.kind.clone(), key: last.key.clone() });
    Ok(WorkspaceFactAndReply::new(None, &WorkspaceKnowledgePage { next, revision: state.revision, entries }))
}

fn check_knowledge_entry_count(count: usize) -> Result<(), String> {
    if count == 0 || count > KNOWLEDGE_ENTRIES_PER_REQUEST_MAX {
        return Err(format!("a request must name 1 to {KNOWLEDGE_ENTRIES_PER_REQUEST_MAX} entries, not {count}"));
    }
    Ok(())
}
