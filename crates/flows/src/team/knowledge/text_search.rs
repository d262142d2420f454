//! Full-text search over the nodes of a knowledge graph: words of ids and descriptions, weighted by how rare they are.

use std::collections::{BTreeMap, BTreeSet};

use super::{KnowledgeGraph, KnowledgeNode};

/// Words that say nothing about a subject.
const STOP_WORDS: &[&str] = &[
    "about", "after", "all", "also", "and", "any", "are", "because", "been", "before", "but", "can", "could", "does",
    "each", "for", "from", "had", "has", "have", "how", "into", "its", "make", "may", "more", "must", "new", "not",
    "one", "only", "other", "our", "out", "over", "should", "some", "such", "than", "that", "the", "their", "them",
    "then", "there", "they", "this", "use", "used", "was", "well", "were", "what", "when", "where", "which", "while",
    "who", "will", "with", "would", "you", "your",
];

/// Returns the words of a text that can be searched for, in order.
pub(super) fn search_words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
    words.map(stem_word).filter(|word| word.chars().count() >= 3 && !STOP_WORDS.contains(&word.as_str()))
}

/// Removes a plural ending, so that `services` finds `service`.
fn stem_word(word: String) -> String {
    match word.strip_suffix("ies") {
        Some(stem) if stem.len() >= 3 => format!("{stem}y"),
        _ => match word.strip_suffix('s') {
            Some(stem) if stem.len() >= 3 && !stem.ends_with('s') => stem.to_owned(),
            _ => word,
        },
    }
}

/// The words of each node.
pub(super) struct KnowledgeWordIndex<'g> {
    words_by_node: BTreeMap<&'g str, BTreeMap<String, u32>>,
    nodes_with_word: BTreeMap<String, u32>,
}

impl<'g> KnowledgeWordIndex<'g> {
    pub(super) fn new(graph: &'g KnowledgeGraph) -> Self {
        let mut nodes_with_word: BTreeMap<String, u32> = BTreeMap::new();
        let mut words_by_node = BTreeMap::new();
        for node in graph.nodes.values() {
            let words = count_node_words(node);
            for word in words.keys() {
                *nodes_with_word.entry(word.clone()).or_default() += 1;
            }
            words_by_node.insert(node.id.as_str(), words);
        }
        Self { words_by_node, nodes_with_word }
    }

    /// Returns how much a word says: rare words say more. Words that no node has say nothing.
    pub(super) fn word_weight(&self, word: &str) -> f64 {
        let nodes = self.words_by_node.len() as f64;
        self.nodes_with_word.get(word).map_or(0.0, |with_word| (1.0 + nodes / f64::from(*with_word)).ln())
    }

    /// Returns the ids of the best matching nodes, best first.
    pub(super) fn search(&self, words: &BTreeSet<String>, hits_max: usize) -> Vec<&'g str> {
        let score = |node_words: &BTreeMap<String, u32>| -> f64 {
            let matches = words.iter().filter_map(|word| node_words.get(word).map(|count| (word, count)));
            matches.map(|(word, count)| self.word_weight(word) * (1.0 + f64::from(*count).ln())).sum()
        };
        let mut hits: Vec<(f64, &str)> = self
            .words_by_node
            .iter()
            .map(|(id, words)| (score(words), *id))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        hits.sort_by(|(score, id), (other_score, other_id)| other_score.total_cmp(score).then(id.cmp(other_id)));
        hits.into_iter().take(hits_max).map(|(_, id)| id).collect()
    }
}

fn count_node_words(node: &KnowledgeNode) -> BTreeMap<String, u32> {
    let mut words: BTreeMap<String, u32> = BTreeMap::new();
    // A match in the name says more than one in the description.
    for word in search_words(&node.id) {
        *words.entry(word).or_default() += 3;
    }
    for word in search_words(&node.description) {
        *words.entry(word).or_default() += 1;
    }
    words
}
