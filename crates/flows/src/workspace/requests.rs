//! What other sessions ask a workspace, and what it replies. A flow sends a [`WorkspaceSessionRequest`] as a step and reads the
//! reply from the body of `AskEnded`.
//!
//! Claims are requested and released with [`FlowStep::Claim`] and [`FlowStep::ReleaseClaim`].

use segue_core::flow::FlowStep;
use segue_core::ids::{FlowName, SessionId, UnixMillis, on_demand_session};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of the flow.
pub const WORKSPACE_FLOW: &str = "workspace";

/// Returns the session of a workspace that belongs to the same owner as `asker`. It opens when it is first asked.
///
/// # Errors
/// Fails with the reason if the name is not valid.
pub fn workspace_session(asker: &SessionId, workspace: &str) -> Result<SessionId, String> {
    on_demand_session(asker, workspace, &FlowName::from(WORKSPACE_FLOW))
}

/// A question to a workspace. The tag is the topic, the content is the body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "topic", content = "body", rename_all = "snake_case")]
pub enum WorkspaceSessionRequest {
    /// Stores a lesson; the reply is [`LessonAddReply`].
    LessonAdd(LessonToAdd),
    /// Lists lessons; the reply is [`LessonList`].
    Lessons(LessonQuery),
    /// Stores knowledge; the reply is [`KnowledgeChangeReply`].
    KnowledgeAdd(KnowledgeEntriesToAdd),
    /// Removes knowledge; the reply is [`KnowledgeChangeReply`] with the entries that are gone.
    KnowledgeRemove(KnowledgeToRemove),
    /// Lists knowledge; the reply is [`WorkspaceKnowledgePage`].
    KnowledgeList(WorkspaceKnowledgeQuery),
    /// Says who holds a claim; the reply is [`WorkspaceClaimStatusReply`].
    ClaimStatus(WorkspaceClaimStatusQuery),
}

impl WorkspaceSessionRequest {
    /// Returns the step that asks a workspace.
    #[must_use]
    pub fn into_step(self, workspace: SessionId, wait_ms: u64) -> FlowStep {
        let (topic, body) = self.into_topic_and_body();
        FlowStep::Ask { to: workspace, topic, body, wait_ms }
    }

    /// Returns the topic and the body of the question.
    #[must_use]
    pub fn into_topic_and_body(self) -> (String, Value) {
        let mut tagged = serde_json::to_value(self).unwrap_or_default();
        let topic = tagged.get("topic").and_then(Value::as_str).unwrap_or_default().to_owned();
        (topic, tagged.get_mut("body").map(Value::take).unwrap_or_default())
    }

    /// Reads a question.
    ///
    /// # Errors
    /// Fails with the reason if the body does not fit the topic.
    pub(super) fn parse(topic: &str, body: &Value) -> Result<Self, String> {
        let tagged = serde_json::json!({ "topic": topic, "body": body });
        serde_json::from_value(tagged).map_err(|error| format!("the question about `{topic}` is malformed: {error}"))
    }
}

/// Reads the body of a workspace's reply.
///
/// # Errors
/// Fails with the reason if the body is not of this type.
pub fn parse_workspace_reply<T: DeserializeOwned>(body: &Value) -> Result<T, String> {
    serde_json::from_value(body.clone()).map_err(|error| format!("the reply of the workspace is malformed: {error}"))
}

/// A lesson to store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonToAdd {
    /// The agent that learned it.
    pub agent: String,
    pub title: String,
    pub text: String,
}

/// What became of a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonAddReply {
    /// False if the agent has an identical lesson.
    pub is_new: bool,
    /// How many lessons the agent has now.
    pub lessons: usize,
}

/// Selects lessons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonQuery {
    /// Only lessons of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// Lessons, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LessonList {
    pub lessons: Vec<Lesson>,
    /// How many older lessons were left out because the reply would have been too large.
    pub omitted: usize,
}

/// A lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    pub agent: String,
    pub title: String,
    pub text: String,
    /// The session in which it was learned.
    pub session: SessionId,
    pub at: UnixMillis,
}

/// Selects a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceClaimStatusQuery {
    pub name: String,
}

/// Who holds a claim, and who waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkspaceClaimStatusReply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<SessionId>,
    /// The sessions that wait, the next one first.
    #[serde(default)]
    pub waiting: Vec<SessionId>,
}

/// Entries of knowledge to store, all or none of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeEntriesToAdd {
    pub entries: Vec<NewKnowledgeEntry>,
}

/// An entry of knowledge to store. The workspace does not look into the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKnowledgeEntry {
    pub kind: String,
    /// The name within the kind.
    pub key: String,
    pub document: Value,
    /// What happens if there is an entry with this kind and key.
    #[serde(default)]
    pub if_exists: ExistingKnowledgeEntryPolicy,
}

/// What happens if an entry exists already. Storing an identical document changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExistingKnowledgeEntryPolicy {
    /// The request is refused.
    #[default]
    Refuse,
    /// The document is replaced.
    Replace,
    /// The document is replaced if it has this revision, otherwise the request is refused.
    ReplaceRevision(u64),
}

/// Entries of knowledge to remove. Those that do not exist are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeToRemove {
    pub kind: String,
    pub keys: Vec<String>,
}

/// The entries that a request changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeChangeReply {
    pub changed: Vec<KnowledgeEntryRevision>,
    /// The revision of the whole knowledge: it rises with every change.
    pub revision: u64,
}

/// The current revision of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeEntryRevision {
    pub kind: String,
    pub key: String,
    pub revision: u64,
}

/// Selects knowledge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceKnowledgeQuery {
    /// Only entries of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only entries after this one, in the order of kinds and keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<KnowledgeEntryKey>,
}

/// A position in the order of kinds and keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnowledgeEntryKey {
    pub kind: String,
    pub key: String,
}

/// Entries of knowledge, by kind and key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceKnowledgePage {
    pub entries: Vec<WorkspaceKnowledgeEntry>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<KnowledgeEntryKey>,
    /// The revision of the whole knowledge.
    pub revision: u64,
}

/// An entry of knowledge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceKnowledgeEntry {
    pub kind: String,
    pub key: String,
    pub document: Value,
    pub revision: u64,
    /// The session that stored it.
    pub session: SessionId,
    pub at: UnixMillis,
}
