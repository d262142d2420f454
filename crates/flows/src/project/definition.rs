//! The definition of a flow as data: phases, edges, gates, checks and agents. It is read from a TOML file, so that a flow can
//! be made without Rust. The built-in project flow is such a definition, too.
//!
//! This module declares the fields and their meaning. `load` reads a file and reports every mistake with its line; `check`
//! finds mistakes that concern several parts of the file.

mod check;
mod load;
mod starter;

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use load::{FlowDefinitionErrors, FlowFileMistake, McpToolInFlowFile};
pub use starter::starter_definition;

/// The JSON schema of a flow file, for editors.
pub const FLOW_FILE_SCHEMA: &str = include_str!("../../schema/flow.schema.json");

/// A flow with phases and agents, as declared in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowDefinition {
    /// The name of the flow: lower-case letters, digits and hyphens.
    pub name: String,
    /// What the flow is for, in one sentence.
    #[serde(default)]
    pub description: String,
    /// The phase in which a session starts.
    pub start: String,
    #[serde(default)]
    pub router: RouterDefinition,
    #[serde(default)]
    pub limits: FlowLimits,
    /// The values that sessions use unless they set others.
    #[serde(default)]
    pub defaults: FlowDefaults,
    pub agents: Vec<AgentDefinition>,
    pub phases: Vec<PhaseDefinition>,
    pub edges: Vec<EdgeDefinition>,
    /// Obligations that must be met before certain phases can be entered.
    #[serde(default)]
    pub gates: Vec<GateDefinition>,
    /// Commands that test the content of the workspace. A session can name others in its settings.
    #[serde(default)]
    pub checks: Vec<CheckDefinition>,
}

/// The role that decides which phase and agents come next. It is only asked where there is more than one possibility.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RouterDefinition {
    /// How to choose, in addition to the descriptions of the phases.
    #[serde(default)]
    pub instruction: String,
    /// The model; without it, the one that is configured for the role `router`.
    #[serde(default)]
    pub model: Option<String>,
}

/// How much may happen before the user is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FlowLimits {
    /// Most routing turns after one message of the user.
    pub routing_turns_max: u32,
    /// Most rounds of tool calls of one agent in one routing turn.
    pub tool_rounds_max: u32,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self { routing_turns_max: 40, tool_rounds_max: 32 }
    }
}

/// The values of settings that a session does not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowDefaults {
    #[serde(default)]
    pub plan_approval: PlanApprovalMode,
}

/// Who approves a plan before it is carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PlanApprovalMode {
    /// The flow waits until the user approves it.
    #[default]
    User,
    /// A complete plan is approved at once.
    Auto,
}

/// An agent: a participant with a role of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentDefinition {
    /// The name: lower-case letters, digits and hyphens. It is also the name of the role to which a model is assigned.
    pub name: String,
    /// The name that people see.
    #[serde(default)]
    pub title: String,
    /// Who the agent is and how it works, as an instruction for its model.
    pub role: String,
    /// What the agent is good at, in a few words, for the router.
    #[serde(default)]
    pub skills: String,
    /// The tools that the agent may use, of those that a phase allows. All of them if the list is missing.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// The model; without it, the one that is configured for the role.
    #[serde(default)]
    pub model: Option<String>,
    /// How the agent chooses its actions. A session can set it, too.
    #[serde(default)]
    pub actions: ActionMode,
    /// What the agent should do in a phase, by the name of the phase.
    #[serde(default)]
    pub instructions: BTreeMap<String, String>,
}

/// How an agent chooses its actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActionMode {
    /// With the tool calls of its model.
    Native,
    /// With a small schema, one action after the other, and whole files instead of edits. For models that are weak with tool
    /// calls.
    Structured,
    /// Like `native` if the catalog says that the model supports tool calls, otherwise like `structured`. In a phase in which
    /// agents answer the user, an agent whose model does not support tool calls answers at once, without tools.
    #[default]
    Auto,
}

impl ActionMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Native, Self::Structured, Self::Auto];

    /// Returns the name as written in a file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Structured => "structured",
            Self::Auto => "auto",
        }
    }

    /// Returns the mode with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// A phase of the flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseDefinition {
    /// The name: lower-case letters, digits and hyphens.
    pub name: String,
    #[serde(default)]
    pub kind: PhaseKindDefinition,
    #[serde(default)]
    pub purpose: String,
    /// When the router should choose the phase.
    #[serde(default)]
    pub entry: Vec<String>,
    /// What is done in the phase.
    #[serde(default)]
    pub activities: Vec<String>,
    /// When the phase is finished.
    #[serde(default)]
    pub criteria: Vec<String>,
    /// What agents must observe in the phase.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// The agents that may work in the phase. The first one works by default.
    #[serde(default)]
    pub agents: Vec<String>,
    /// The tools that may be used: names of tools, or the groups `@read`, `@write` and `@run`. A tool of an MCP server is written
    /// `mcp__SERVER__TOOL`.
    #[serde(default)]
    pub tools: Vec<String>,
    #[serde(default)]
    pub completion: CompletionMode,
    #[serde(default)]
    pub memory: PhaseMemory,
    /// Whether the phase must produce a plan, which is approved before the next phase.
    #[serde(default)]
    pub plan: bool,
    /// Whether the phase must change the content of the workspace. An agent that completes it without a change is asked once
    /// whether it is really done.
    #[serde(default)]
    pub changes_required: bool,
    /// When the checks run.
    #[serde(default)]
    pub checks: CheckMoment,
    /// How often the phase may be entered after one message of the user. Then the user is asked.
    #[serde(default)]
    pub visits_max: Option<u32>,
    /// The phase to enter when the user sends a message although the work of this phase is done.
    #[serde(default)]
    pub on_message: Option<String>,
    /// The longest visit, and the phase that follows.
    #[serde(default)]
    pub limit: Option<PhaseLimitDefinition>,
    /// The model of all agents in this phase that `models` does not list.
    #[serde(default)]
    pub model: Option<String>,
    /// The models of single agents in this phase.
    #[serde(default)]
    pub models: BTreeMap<String, String>,
}

/// Whether a phase is an end of the flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PhaseKindDefinition {
    #[default]
    Work,
    /// The session is closed. Every open gate blocks it.
    End,
    /// The session is closed after a failure. Only gates that list it block it.
    Failure,
}

/// How an agent completes its work in a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CompletionMode {
    /// It calls the tool `complete`.
    #[default]
    Complete,
    /// It answers the user, and the flow waits for the next message.
    Answer,
    /// Every agent that took part records what it has learned, once.
    Reflection,
}

/// How long agents remember what happened in a phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PhaseMemory {
    /// For the whole session.
    #[default]
    Session,
    /// For one visit of the phase, so that the agent judges without the memory of its own work.
    Visit,
}

/// When the checks of the workspace run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckMoment {
    #[default]
    Never,
    /// Before the agents of the phase start, and again when files have changed since. The agents are shown the results.
    Before,
    /// After the agents of the phase have completed. If a check fails, the content is restored to what it was when the phase
    /// was entered.
    After,
}

/// The longest visit of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseLimitDefinition {
    /// Most routing turns.
    #[serde(default)]
    pub turns_max: Option<u32>,
    /// Most minutes.
    #[serde(default)]
    pub minutes_max: Option<u64>,
    /// The phase that follows. It needs no edge.
    pub exit: String,
}

/// Allowed transitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EdgeDefinition {
    pub from: String,
    /// The phases that may follow: one, or a list.
    #[cfg_attr(test, schemars(with = "schema_types::NamesSchema"))]
    pub to: OneOrManyNames,
    /// The conditions that must all hold: one, or a list.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema_types::ConditionsSchema"))]
    pub when: OneOrManyNames,
    /// The phases that the router is not offered while this edge can be taken: one, or a list. After a new message of the
    /// user, it is offered them nevertheless.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "schema_types::NamesSchema"))]
    pub instead_of: OneOrManyNames,
}

impl EdgeDefinition {
    /// Returns whether `phase` is one of the phases that may follow.
    pub(super) fn leads_to(&self, phase: &str) -> bool {
        self.to.names().iter().any(|to| to == phase)
    }

    /// Returns the conditions. Unknown names are reported when the definition is loaded.
    pub fn conditions(&self) -> impl Iterator<Item = FlowCondition> {
        self.when.names().iter().filter_map(|name| FlowCondition::from_name(name))
    }
}

/// A list of names, written as one string or as a list of strings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OneOrManyNames(Vec<String>);

impl OneOrManyNames {
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for OneOrManyNames {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameListVisitor;

        impl<'de> serde::de::Visitor<'de> for NameListVisitor {
            type Value = OneOrManyNames;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name or a list of names")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<OneOrManyNames, E> {
                Ok(OneOrManyNames(vec![name.to_owned()]))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<OneOrManyNames, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = items.next_element()? {
                    names.push(name);
                }
                Ok(OneOrManyNames(names))
            }
        }

        deserializer.deserialize_any(NameListVisitor)
    }
}

/// The schema of lists that can also be written as one value.
#[cfg(test)]
mod schema_types {
    use super::{FlowCondition, JsonSchema};

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only the schema is used")]
    pub(super) enum NamesSchema {
        One(String),
        Many(Vec<String>),
    }

    #[derive(JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only the schema is used")]
    pub(super) enum ConditionsSchema {
        One(FlowCondition),
        Many(Vec<FlowCondition>),
    }
}

/// A condition that the engine evaluates. No condition holds because a model says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowCondition {
    /// In this visit, all agents of the last routing turn completed their work themselves.
    Completed,
    /// A plan with steps exists and is approved.
    PlanApproved,
    /// The user asked for it: the router quotes the user's words, or the user proposed the phase.
    UserAsked,
    /// The checks pass on the current content of the workspace. If no check is known, the user has confirmed this content.
    ChecksPass,
    /// Every agent that took part has reflected.
    AllReflected,
    /// The user ran `confirm` in this visit.
    UserConfirmed,
}

impl FlowCondition {
    /// All conditions.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::PlanApproved,
        Self::UserAsked,
        Self::ChecksPass,
        Self::AllReflected,
        Self::UserConfirmed,
    ];

    /// Returns the name as written in a file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::PlanApproved => "plan_approved",
            Self::UserAsked => "user_asked",
            Self::ChecksPass => "checks_pass",
            Self::AllReflected => "all_reflected",
            Self::UserConfirmed => "user_confirmed",
        }
    }

    /// Returns the condition with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|condition| condition.as_str() == name)
    }
}

/// An obligation: after `opened_by` was entered, certain phases cannot be entered before `satisfied_by` was left with
/// evidence, by any detour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GateDefinition {
    pub name: String,
    /// Entering this phase opens the gate.
    pub opened_by: String,
    /// Leaving this phase closes the gate, if the evidence holds.
    pub satisfied_by: String,
    pub evidence: FlowCondition,
    /// The blocked phases, besides every phase of kind `end`.
    #[serde(default)]
    pub blocks: Vec<String>,
}

/// A command that tests the content of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckDefinition {
    pub name: String,
    /// The command line. It passes if its exit code is 0.
    pub command: String,
}

impl FlowDefinition {
    /// Returns the phase with this name.
    #[must_use]
    pub fn find_phase(&self, name: &str) -> Option<&PhaseDefinition> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    /// Returns the agent with this name.
    #[must_use]
    pub fn find_agent(&self, name: &str) -> Option<&AgentDefinition> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}

impl AgentDefinition {
    /// Returns the name that people see.
    #[must_use]
    pub fn display_name(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    #[test]
    fn schema_for_editors_matches_the_definition() {
        let schema = schemars::schema_for!(FlowDefinition);
        let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
        expect_file!["../../schema/flow.schema.json"].assert_eq(&text);
    }

    #[test]
    fn every_condition_is_found_by_its_name() {
        for condition in FlowCondition::ALL {
            assert_eq!(FlowCondition::from_name(condition.as_str()), Some(condition));
            assert_eq!(serde_json::json!(condition), condition.as_str());
        }
    }
}
