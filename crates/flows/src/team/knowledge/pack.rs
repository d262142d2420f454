//! The knowledge pack of a story: the nodes that match its text, and their neighbours.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::text_search::{KnowledgeWordIndex, search_words};
use super::{KnowledgeGraph, KnowledgeNode};
use crate::limits::{KNOWLEDGE_PACK_HITS_MAX, KNOWLEDGE_PACK_NODES_MAX, KNOWLEDGE_PACK_TERMS_MAX};

/// What the agents of a story are told about the project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnowledgeForStory {
    /// The terms of the story that were searched for, strongest first.
    pub terms: Vec<String>,
    /// The nodes that match, best first.
    pub matches: Vec<KnowledgeNode>,
    /// Nodes that are related to a match.
    pub neighbours: Vec<KnowledgeNode>,
}

impl KnowledgeForStory {
    /// Returns true if nothing is known about the story.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Renders the pack, one line for each node.
    #[must_use]
    pub fn to_lines(&self) -> Vec<String> {
        self.matches.iter().chain(&self.neighbours).map(describe_node).collect()
    }
}

/// Builds the pack of a story from its text.
#[must_use]
pub fn build_knowledge_pack(graph: &KnowledgeGraph, story_text: &str) -> KnowledgeForStory {
    let index = KnowledgeWordIndex::new(graph);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for word in search_words(story_text) {
        *counts.entry(word).or_default() += 1;
    }
    let strength = |word: &str, count: u32| index.word_weight(word) * f64::from(count);
    let mut terms: Vec<(f64, String)> =
        counts.into_iter().map(|(word, count)| (strength(&word, count), word)).collect();
    terms.sort_by(|(strength, word), (other, other_word)| other.total_cmp(strength).then(word.cmp(other_word)));
    let terms: Vec<String> = terms.into_iter().take(KNOWLEDGE_PACK_TERMS_MAX).map(|(_, word)| word).collect();
    let hits = index.search(&terms.iter().cloned().collect(), KNOWLEDGE_PACK_HITS_MAX);
    let hit_ids: BTreeSet<&str> = hits.iter().copied().collect();
    let mut neighbours: Vec<&str> = Vec::new();
    for neighbour in hits.iter().flat_map(|hit| graph.neighbour_ids(hit)) {
        if !hit_ids.contains(neighbour) && !neighbours.contains(&neighbour) {
            neighbours.push(neighbour);
        }
    }
    neighbours.truncate(KNOWLEDGE_PACK_NODES_MAX.saturating_sub(hits.len()));
    let clone_node = |id: &str| graph.nodes[id].clone();
    KnowledgeForStory {
        terms,
        matches: hits.into_iter().map(clone_node).collect(),
        neighbours: neighbours.into_iter().map(clone_node).collect(),
    }
}

/// Describes a node on one line.
fn describe_node(node: &KnowledgeNode) -> String {
    let status = match node.status {
        super::KnowledgeStatus::Current => String::new(),
        other => format!(", {}", other.as_str()),
    };
    let priority = node.priority.map(|priority| format!(", priority {}", priority.as_str())).unwrap_or_default();
    let description = node.description.split_whitespace().collect::<Vec<_>>().join(" ");
    let relations: Vec<String> =
        node.relations.iter().map(|relation| format!("{} {}", relation.relation.as_str(), relation.to)).collect();
    let relations = if relations.is_empty() { String::new() } else { format!(" [{}]", relations.join("; ")) };
    format!("{} ({}{status}{priority}): {description}{relations}", node.id, node.kind.as_str())
}
