//! A flow's data: its roles, what each is shown and how it behaves, its graphs, handovers and tools.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{InvalidSetting, SettingSpec, resolve_settings, settings_json_schema};
use crate::context::{FragmentSpec, PromptRecipe};
use crate::handover::HandoverSpec;
use crate::ids::{AskName, FlowName, FragmentName, HandoverKind, PhaseGraphName, RoleName, ToolName};
use crate::phase::PhaseGraph;
use crate::prompt::{OutputFormat, ToolSpec};
use crate::scope::{Scope, ThreadBoundary};
use crate::signal::BlockSet;

/// A flow's data.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    /// Its name.
    pub name: FlowName,
    /// What it is for, in a sentence.
    pub description: String,
    /// Who speaks.
    pub roles: BTreeMap<RoleName, RoleSpec>,
    /// Phase graphs.
    pub graphs: BTreeMap<PhaseGraphName, PhaseGraph>,
    /// Documents that cross scope boundaries.
    pub handovers: BTreeMap<HandoverKind, HandoverSpec>,
    /// What models may call.
    pub tools: BTreeMap<ToolName, ToolDeclaration>,
    /// What a session can be told to do otherwise.
    pub settings: Vec<SettingSpec>,
    /// What a person at the controls may want of it, beyond what every session offers.
    pub commands: BTreeMap<String, FlowCommandSpec>,
}

/// A command of the flow's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowCommandSpec {
    /// What it does, in a sentence.
    pub description: String,
    /// What may be given with it, by name, and what each means.
    pub arguments: BTreeMap<String, String>,
}

impl FlowSpec {
    /// A flow with nothing in it yet.
    #[must_use]
    pub fn new(name: &str, description: &str) -> Self {
        Self {
            name: name.into(),
            description: description.to_owned(),
            roles: BTreeMap::new(),
            graphs: BTreeMap::new(),
            handovers: BTreeMap::new(),
            tools: BTreeMap::new(),
            settings: Vec::new(),
            commands: BTreeMap::new(),
        }
    }

    /// The same with a role.
    #[must_use]
    pub fn with_role(mut self, role: RoleSpec) -> Self {
        self.roles.insert(role.name.clone(), role);
        self
    }

    /// The same with a graph.
    #[must_use]
    pub fn with_graph(mut self, graph: PhaseGraph) -> Self {
        self.graphs.insert(graph.name.clone(), graph);
        self
    }

    /// The same with a kind of handover.
    #[must_use]
    pub fn with_handover(mut self, schema: HandoverSpec) -> Self {
        self.handovers.insert(schema.kind.clone(), schema);
        self
    }

    /// The same with a tool.
    #[must_use]
    pub fn with_tool(mut self, tool: ToolDeclaration) -> Self {
        self.tools.insert(tool.spec.name.clone(), tool);
        self
    }

    /// The same with a setting.
    #[must_use]
    pub fn with_setting(mut self, setting: SettingSpec) -> Self {
        self.settings.push(setting);
        self
    }

    /// What a session's settings may hold, as a JSON schema with defaults, for forms; null if there is nothing to set.
    #[must_use]
    pub fn settings_schema(&self) -> serde_json::Value {
        if self.settings.is_empty() { serde_json::Value::Null } else { settings_json_schema(&self.settings) }
    }

    /// What does not fit in settings for a session of this flow.
    #[must_use]
    pub fn invalid_settings(&self, settings: &serde_json::Value) -> Vec<InvalidSetting> {
        resolve_settings(&self.settings, settings).1
    }

    /// The same with a command; `arguments` are names with what they mean.
    #[must_use]
    pub fn with_command(mut self, name: &str, description: &str, arguments: &[(&str, &str)]) -> Self {
        let arguments = arguments.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())).collect();
        self.commands.insert(name.to_owned(), FlowCommandSpec { description: description.to_owned(), arguments });
        self
    }

    /// What is wrong with the flow's data; an engine refuses a flow with faults.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for role in self.roles.values() {
            let mut fault = |text: String| faults.push(format!("role `{}`: {text}", role.name));
            role.recipe.validation_errors().into_iter().for_each(&mut fault);
            if let Some(graph) = role.graph.as_ref().filter(|graph| !self.graphs.contains_key(*graph)) {
                fault(format!("there is no graph `{graph}`"));
            }
            for tool in role.tools.iter().filter(|tool| !self.tools.contains_key(*tool)) {
                fault(format!("there is no tool `{tool}`"));
            }
            if let Some(by) = &role.compaction.summarizer
                && !self.roles.get(&by.role).is_some_and(|role| role.recipe.asks.contains_key(&by.ask))
            {
                fault(format!("its compaction asks `{}` for `{}`, which is not there", by.role, by.ask));
            }
            if let Some(by) = &role.compaction.summarizer
                && self.roles.get(&by.role).is_some_and(|by| by.scope != Scope::Fresh || !by.tools.is_empty())
            {
                fault(format!("`{}`, who writes its summaries, must be fresh and use no tools", by.role));
            }
            if role.graph.is_none() && role.scope.is_ended_by(ThreadBoundary::Phase) {
                fault("its memory lasts a phase visit, and it lives by no graph".to_owned());
            }
        }
        for graph in self.graphs.values() {
            if let Err(found) = graph.validate() {
                faults.extend(found.iter().map(|fault| format!("graph `{}`: {fault}", graph.name)));
            }
        }
        for (place, setting) in self.settings.iter().enumerate() {
            let mut fault = |text: &str| faults.push(format!("setting `{}`: {text}", setting.name));
            if self.settings[..place].iter().any(|other| other.name == setting.name) {
                fault("there are two of that name");
            }
            let misfits = self.invalid_settings(&serde_json::json!({ &setting.name: setting.default }));
            misfits.iter().for_each(|misfit| fault(&format!("its default does not fit: {misfit}")));
        }
        faults
    }
}

/// Who speaks, and by what rules.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleSpec {
    /// Its name.
    pub name: RoleName,
    /// How far its memory reaches.
    pub scope: Scope,
    /// The phase graph it lives by.
    pub graph: Option<PhaseGraphName>,
    /// What it is shown.
    pub recipe: PromptRecipe,
    /// What form its answer must have.
    pub output: OutputFormat,
    /// What it may call.
    pub tools: Vec<ToolName>,
    /// Who hears it.
    pub visibility: Visibility,
    /// Asks whose answers nobody hears, whatever the audience: what is settled behind the scenes, in the same thread.
    pub private_asks: BTreeSet<AskName>,
    /// Its longest answer.
    pub reply_tokens_max: u32,
    /// How long we wait for an answer to begin, and for each further piece of it.
    pub timeout_ms: u64,
    /// How often a passing failure is tried again.
    pub retry_policy: RetryPolicy,
    /// What happens to a call that was in flight when the process died.
    pub unknown_outcome: UnknownOutcomePolicy,
    /// How its thread is shortened when it no longer fits.
    pub compaction: CompactionPolicy,
}

impl RoleSpec {
    /// A private role with this memory and plain text answers.
    #[must_use]
    pub fn new(name: &str, scope: Scope) -> Self {
        Self {
            name: name.into(),
            scope,
            graph: None,
            recipe: PromptRecipe::default(),
            output: OutputFormat::Text,
            tools: Vec::new(),
            visibility: Visibility::Private,
            private_asks: BTreeSet::new(),
            reply_tokens_max: 4_096,
            timeout_ms: 120_000,
            retry_policy: RetryPolicy::default(),
            unknown_outcome: UnknownOutcomePolicy::Retry,
            compaction: CompactionPolicy::default(),
        }
    }

    /// The same with an opening fragment more.
    #[must_use]
    pub fn with_opening_fragment(mut self, spec: FragmentSpec) -> Self {
        self.recipe.opening.push(spec);
        self
    }

    /// The same with an ask of these fragments.
    #[must_use]
    pub fn with_ask(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.recipe.asks.insert(name.into(), fragments.into_iter().collect());
        self
    }

    /// The same with an ask of these fragments whose answers nobody hears.
    #[must_use]
    pub fn with_private_ask(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.private_asks.insert(name.into());
        self.with_ask(name, fragments)
    }

    /// The same, living by a graph.
    #[must_use]
    pub fn with_phase_graph(mut self, graph: &str) -> Self {
        self.graph = Some(graph.into());
        self
    }

    /// The same, heard by the user as it speaks; blocks of these names are hidden.
    #[must_use]
    pub fn visible_to_user(mut self, blocks: BlockSet) -> Self {
        self.visibility = Visibility::User { hidden_blocks: blocks };
        self
    }

    /// The blocks hidden from the user who hears the answers to `ask`; nothing if nobody hears them.
    #[must_use]
    pub fn hidden_blocks(&self, ask: &AskName) -> Option<&BlockSet> {
        match &self.visibility {
            Visibility::User { hidden_blocks: blocks } if !self.private_asks.contains(ask) => Some(blocks),
            Visibility::User { .. } | Visibility::Private => None,
        }
    }

    /// The same with a tool more.
    #[must_use]
    pub fn with_tool(mut self, tool: &str) -> Self {
        self.tools.push(tool.into());
        self
    }
}

/// Who hears a role while it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    /// The user, except for what stands in these blocks.
    User {
        /// Names of the hidden blocks.
        hidden_blocks: BlockSet,
    },
    /// Nobody; its answer is the flow's.
    Private,
}

/// How often and how fast a passing failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries in all.
    pub attempts_max: u32,
    /// Wait before the second try; doubles with each further one.
    pub backoff_ms: u64,
    /// Longest wait.
    pub backoff_ms_max: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 4, backoff_ms: 500, backoff_ms_max: 30_000 }
    }
}

impl RetryPolicy {
    /// The wait before try `attempt`, with a jitter of up to half of it; `chance` is any number.
    #[must_use]
    pub fn backoff_delay_ms(&self, attempt: u32, random: u64) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << attempt.saturating_sub(2).min(20));
        let wait = doubled.min(self.backoff_ms_max);
        wait / 2 + random % (wait / 2 + 1)
    }
}

/// What happens to a call that was in flight when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownOutcomePolicy {
    /// It is made again.
    Retry,
    /// A person decides.
    AskOperator,
    /// It has failed.
    Fail,
}

/// How a thread is shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPolicy {
    /// Who writes the summary; nobody: the flow's own words stand in for what is folded.
    pub summarizer: Option<Summarizer>,
    /// The fragment that stands in the place of what was folded. The flow fills it.
    pub summary_fragment: FragmentName,
    /// Most tokens of the summary.
    pub summary_tokens_max: u32,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self {
            summarizer: None,
            summary_fragment: crate::context::COMPACTION_FRAGMENT.into(),
            summary_tokens_max: 1_024,
        }
    }
}

/// Who writes a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summarizer {
    /// The role; it is fresh and has no tools.
    pub role: RoleName,
    /// What it is asked.
    pub ask: AskName,
}

/// A tool as a flow declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDeclaration {
    /// As models are told of it.
    pub spec: ToolSpec,
    /// Who runs it.
    pub runner: ToolRunner,
    /// What happens to a run that was under way when the process died.
    pub unknown_outcome: UnknownOutcomePolicy,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolRunner {
    /// The flow answers it itself, purely.
    Flow,
    /// The engine's tool host.
    Host,
}
