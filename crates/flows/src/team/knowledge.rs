//! The knowledge graph of a project: components, interfaces, patterns and rules, and how they relate. Agents add entries
//! while they work; the graph is stored as a Graphviz file in the repository.
//!
//! Every change is validated. A refusal names what is wrong and what would be right, because a model reads it.

mod dot;
mod entry;
mod pack;
mod text_search;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::limits::{
    KNOWLEDGE_DESCRIPTION_CHARS_MAX, KNOWLEDGE_ID_CHARS_MAX, KNOWLEDGE_NODES_MAX, KNOWLEDGE_RELATIONS_PER_NODE_MAX,
};

pub use dot::{DotError, parse_knowledge_dot, write_knowledge_dot};
pub use entry::{knowledge_add_schema, parse_knowledge_entry};
pub use pack::{KnowledgeForStory, build_knowledge_pack};

/// Nodes by id, and the relations between them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KnowledgeGraph {
    pub nodes: BTreeMap<String, KnowledgeNode>,
}

/// One entry of the knowledge graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeNode {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: KnowledgeKind,
    pub level: KnowledgeLevel,
    #[serde(default)]
    pub status: KnowledgeStatus,
    pub description: String,
    /// How strictly it applies. Required for rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<KnowledgePriority>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub relations: BTreeSet<KnowledgeRelation>,
    /// Attributes of the file that have no meaning here, such as colours. They are kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other_attributes: BTreeMap<String, String>,
}

/// A relation from the node that contains it to another node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnowledgeRelation {
    pub relation: KnowledgeRelationKind,
    pub to: String,
}

/// Defines an enum with a fixed list of names.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// All names, in order.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the value with this name, whatever its case.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                let name = name.trim().to_lowercase();
                $(if name == $text { return Some(Self::$variant); })+
                None
            }
        }
    };
}

named_enum! {
    /// What a node describes.
    KnowledgeKind {
        Component = "component",
        Interface = "interface",
        Abstraction = "abstraction",
        Datastore = "datastore",
        External = "external",
        Pattern = "pattern",
        Rule = "rule",
    }
}

named_enum! {
    /// Whether a node is about the design or about the code.
    KnowledgeLevel {
        Architecture = "architecture",
        Implementation = "implementation",
    }
}

named_enum! {
    /// Whether a node still applies.
    KnowledgeStatus {
        Current = "current",
        Deprecated = "deprecated",
        Future = "future",
        Legacy = "legacy",
    }
}

// The macro that declares the enum derives no `Default`, because the other enums have none.
#[expect(clippy::derivable_impls)]
impl Default for KnowledgeStatus {
    fn default() -> Self {
        Self::Current
    }
}

named_enum! {
    /// How strictly a rule applies.
    KnowledgePriority {
        Critical = "critical",
        High = "high",
        Medium = "medium",
        Low = "low",
    }
}

named_enum! {
    /// How two nodes relate.
    KnowledgeRelationKind {
        Calls = "calls",
        Uses = "uses",
        Implements = "implements",
        ConfiguredWith = "configured_with",
        MustFollow = "must_follow",
        MustNotUse = "must_not_use",
        SupersededBy = "superseded_by",
        Supersedes = "supersedes",
        CoexistsWith = "coexists_with",
    }
}

/// What happens to nodes that exist already when entries are merged into a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExistingKnowledgeNodePolicy {
    /// Existing nodes keep what they say, and get what is new.
    #[default]
    Append,
    /// Existing nodes of the same names are overwritten. Other nodes stay.
    Replace,
}

impl ExistingKnowledgeNodePolicy {
    /// All names, in order.
    pub const NAMES: &'static [&'static str] = &["append", "replace"];
}

impl KnowledgeGraph {
    /// Adds or changes a node.
    ///
    /// # Errors
    /// Fails with all reasons if the node is invalid. The graph is then unchanged.
    pub fn add_node(&mut self, node: KnowledgeNode, action: ExistingKnowledgeNodePolicy) -> Result<(), Vec<String>> {
        let merged = match (self.nodes.get(&node.id), action) {
            (Some(existing), ExistingKnowledgeNodePolicy::Append) => append_to_node(existing, node),
            _ => node,
        };
        let mut problems = node_problems(&merged);
        problems.extend(self.relation_problems(&merged));
        if self.nodes.len() >= KNOWLEDGE_NODES_MAX && !self.nodes.contains_key(&merged.id) {
            problems.push(format!("the graph already has {KNOWLEDGE_NODES_MAX} nodes, which is the maximum"));
        }
        if problems.is_empty() {
            self.nodes.insert(merged.id.clone(), merged);
            Ok(())
        } else {
            Err(problems)
        }
    }

    /// Merges entries in order. A relation may point to a later entry. Returns what was refused, with the reasons.
    pub fn merge_nodes(
        &mut self,
        entries: &[KnowledgeNode],
        action: ExistingKnowledgeNodePolicy,
    ) -> Vec<(String, Vec<String>)> {
        // Nodes first, then relations, because entries may refer to each other.
        let mut refused = Vec::new();
        for entry in entries {
            let mut node = entry.clone();
            node.relations.retain(|relation| self.nodes.contains_key(&relation.to));
            if let Err(problems) = self.add_node(node, action) {
                refused.push((entry.id.clone(), problems));
            }
        }
        for entry in entries {
            let Some(mut node) = self.nodes.get(&entry.id).cloned() else { continue };
            node.relations.extend(entry.relations.iter().cloned());
            if let Err(problems) = self.add_node(node, ExistingKnowledgeNodePolicy::Replace) {
                refused.push((entry.id.clone(), problems));
            }
        }
        refused
    }

    /// Returns everything that is wrong with the graph.
    #[must_use]
    pub fn validation_problems(&self) -> Vec<String> {
        let of_node = |node: &KnowledgeNode| {
            let mut problems = node_problems(node);
            problems.extend(self.relation_problems(node));
            problems.into_iter().map(|problem| format!("`{}`: {problem}", node.id)).collect::<Vec<_>>()
        };
        self.nodes.values().flat_map(of_node).collect()
    }

    /// Returns the ids of the nodes that are related to `id`, in either direction.
    #[must_use]
    pub fn neighbour_ids(&self, id: &str) -> BTreeSet<&str> {
        let outgoing =
            self.nodes.get(id).into_iter().flat_map(|node| &node.relations).map(|relation| relation.to.as_str());
        let points_here = |node: &&KnowledgeNode| node.relations.iter().any(|relation| relation.to == id);
        let incoming = self.nodes.values().filter(points_here).map(|node| node.id.as_str());
        outgoing.chain(incoming).filter(|other| *other != id).collect()
    }

    fn relation_problems(&self, node: &KnowledgeNode) -> Vec<String> {
        let mut problems = Vec::new();
        for relation in &node.relations {
            let name = relation.relation.as_str();
            if relation.to == node.id {
                problems.push(format!("the relation `{name}` points to the node itself"));
            } else if !self.nodes.contains_key(&relation.to) {
                problems.push(format!(
                    "the relation `{name}` points to `{}`, which is not in the graph; add that node first",
                    relation.to
                ));
            }
        }
        problems
    }
}

/// Returns what is wrong with a node, apart from the targets of its relations.
fn node_problems(node: &KnowledgeNode) -> Vec<String> {
    let mut problems = Vec::new();
    let is_id_character = |letter: char| letter.is_alphanumeric() || "_-.:/".contains(letter);
    let id_chars = node.id.chars().count();
    if id_chars == 0 || id_chars > KNOWLEDGE_ID_CHARS_MAX || !node.id.chars().all(is_id_character) {
        problems.push(format!(
            "`id` must have 1 to {KNOWLEDGE_ID_CHARS_MAX} letters, digits or _ - . : /, such as `auth-service`"
        ));
    }
    if node.description.trim().is_empty() {
        problems.push("`description` is required: one or two sentences that a later reader needs".to_owned());
    }
    let chars = node.description.chars().count();
    if chars > KNOWLEDGE_DESCRIPTION_CHARS_MAX {
        problems.push(format!(
            "`description` has {chars} characters, but at most {KNOWLEDGE_DESCRIPTION_CHARS_MAX} are allowed"
        ));
    }
    if node.description.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t')) {
        problems.push("`description` contains a control character".to_owned());
    }
    if node.kind == KnowledgeKind::Rule && node.priority.is_none() {
        let names = KnowledgePriority::NAMES.join(", ");
        problems.push(format!("`priority` is required for a rule; it is one of {names}"));
    }
    if node.relations.len() > KNOWLEDGE_RELATIONS_PER_NODE_MAX {
        problems.push(format!("a node has at most {KNOWLEDGE_RELATIONS_PER_NODE_MAX} relations"));
    }
    problems
}

/// Adds what `new` says to an existing node. Nothing that it said before is lost.
fn append_to_node(existing: &KnowledgeNode, new: KnowledgeNode) -> KnowledgeNode {
    let mut merged = existing.clone();
    if !merged.description.contains(new.description.trim()) {
        merged.description = format!("{}\n{}", merged.description.trim_end(), new.description.trim());
    }
    merged.priority = merged.priority.or(new.priority);
    merged.relations.extend(new.relations);
    for (name, value) in new.other_attributes {
        merged.other_attributes.entry(name).or_insert(value);
    }
    merged
}
