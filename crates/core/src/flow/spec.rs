//! A flow's data: its roles, what each is shown and how it behaves, its graphs, handovers and tools.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{Misfit, SettingSpec, schema, settled};
use crate::context::{FragmentSpec, Recipe};
use crate::handover::Schema;
use crate::ids::{AskName, FlowName, FragmentName, GraphName, HandoverKind, RoleName, ToolName};
use crate::phase::PhaseGraph;
use crate::prompt::{Output, ToolSpec};
use crate::scope::{Scope, Until};
use crate::signal::BlockNames;

/// A flow's data.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    /// Its name.
    pub name: FlowName,
    /// What it is for, in a sentence.
    pub about: String,
    /// Who speaks.
    pub roles: BTreeMap<RoleName, RoleSpec>,
    /// Phase graphs.
    pub graphs: BTreeMap<GraphName, PhaseGraph>,
    /// Documents that cross scope boundaries.
    pub handovers: BTreeMap<HandoverKind, Schema>,
    /// What models may call.
    pub tools: BTreeMap<ToolName, ToolDef>,
    /// What a session can be told to do otherwise.
    pub settings: Vec<SettingSpec>,
    /// What a person at the controls may want of it, beyond what every session offers.
    pub commands: BTreeMap<String, CommandSpec>,
}

/// A command of the flow's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// What it does, in a sentence.
    pub about: String,
    /// What may be given with it, by name, and what each means.
    pub arguments: BTreeMap<String, String>,
}

impl FlowSpec {
    /// A flow with nothing in it yet.
    #[must_use]
    pub fn new(name: &str, about: &str) -> Self {
        Self {
            name: name.into(),
            about: about.to_owned(),
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
    pub fn role(mut self, role: RoleSpec) -> Self {
        self.roles.insert(role.name.clone(), role);
        self
    }

    /// The same with a graph.
    #[must_use]
    pub fn graph(mut self, graph: PhaseGraph) -> Self {
        self.graphs.insert(graph.name.clone(), graph);
        self
    }

    /// The same with a kind of handover.
    #[must_use]
    pub fn handover(mut self, schema: Schema) -> Self {
        self.handovers.insert(schema.kind.clone(), schema);
        self
    }

    /// The same with a tool.
    #[must_use]
    pub fn tool(mut self, tool: ToolDef) -> Self {
        self.tools.insert(tool.spec.name.clone(), tool);
        self
    }

    /// The same with a setting.
    #[must_use]
    pub fn setting(mut self, setting: SettingSpec) -> Self {
        self.settings.push(setting);
        self
    }

    /// What a session's settings may hold, as a JSON schema with defaults, for forms; null if there is nothing to set.
    #[must_use]
    pub fn settings_schema(&self) -> serde_json::Value {
        if self.settings.is_empty() { serde_json::Value::Null } else { schema(&self.settings) }
    }

    /// What does not fit in settings for a session of this flow.
    #[must_use]
    pub fn misfits(&self, settings: &serde_json::Value) -> Vec<Misfit> {
        settled(&self.settings, settings).1
    }

    /// The same with a command; `arguments` are names with what they mean.
    #[must_use]
    pub fn command(mut self, name: &str, about: &str, arguments: &[(&str, &str)]) -> Self {
        let arguments = arguments.iter().map(|(name, about)| ((*name).to_owned(), (*about).to_owned())).collect();
        self.commands.insert(name.to_owned(), CommandSpec { about: about.to_owned(), arguments });
        self
    }

    /// What is wrong with the flow's data; an engine refuses a flow with faults.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for role in self.roles.values() {
            let mut fault = |text: String| faults.push(format!("role `{}`: {text}", role.name));
            role.recipe.faults().into_iter().for_each(&mut fault);
            if let Some(graph) = role.graph.as_ref().filter(|graph| !self.graphs.contains_key(*graph)) {
                fault(format!("there is no graph `{graph}`"));
            }
            for tool in role.tools.iter().filter(|tool| !self.tools.contains_key(*tool)) {
                fault(format!("there is no tool `{tool}`"));
            }
            if let Some(by) = &role.compaction.by
                && !self.roles.get(&by.role).is_some_and(|role| role.recipe.asks.contains_key(&by.ask))
            {
                fault(format!("its compaction asks `{}` for `{}`, which is not there", by.role, by.ask));
            }
            if let Some(by) = &role.compaction.by
                && self.roles.get(&by.role).is_some_and(|by| by.scope != Scope::Fresh || !by.tools.is_empty())
            {
                fault(format!("`{}`, who writes its summaries, must be fresh and use no tools", by.role));
            }
            if role.graph.is_none() && role.scope.ends_with(Until::Phase) {
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
            let misfits = self.misfits(&serde_json::json!({ &setting.name: setting.default }));
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
    pub graph: Option<GraphName>,
    /// What it is shown.
    pub recipe: Recipe,
    /// What form its answer must have.
    pub output: Output,
    /// What it may call.
    pub tools: Vec<ToolName>,
    /// Who hears it.
    pub audience: Audience,
    /// Asks whose answers nobody hears, whatever the audience: what is settled behind the scenes, in the same thread.
    pub private: BTreeSet<AskName>,
    /// Its longest answer.
    pub reply_tokens_max: u32,
    /// How long we wait for an answer to begin, and for each further piece of it.
    pub timeout_ms: u64,
    /// How often a passing failure is tried again.
    pub retries: Retries,
    /// What happens to a call that was in flight when the process died.
    pub unknown: UnknownPolicy,
    /// How its thread is shortened when it no longer fits.
    pub compaction: Compaction,
}

impl RoleSpec {
    /// A private role with this memory and plain text answers.
    #[must_use]
    pub fn new(name: &str, scope: Scope) -> Self {
        Self {
            name: name.into(),
            scope,
            graph: None,
            recipe: Recipe::default(),
            output: Output::Text,
            tools: Vec::new(),
            audience: Audience::Private,
            private: BTreeSet::new(),
            reply_tokens_max: 4_096,
            timeout_ms: 120_000,
            retries: Retries::default(),
            unknown: UnknownPolicy::Retry,
            compaction: Compaction::default(),
        }
    }

    /// The same with an opening fragment more.
    #[must_use]
    pub fn opens_with(mut self, spec: FragmentSpec) -> Self {
        self.recipe.opening.push(spec);
        self
    }

    /// The same with an ask of these fragments.
    #[must_use]
    pub fn ask(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.recipe.asks.insert(name.into(), fragments.into_iter().collect());
        self
    }

    /// The same with an ask of these fragments whose answers nobody hears.
    #[must_use]
    pub fn ask_privately(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.private.insert(name.into());
        self.ask(name, fragments)
    }

    /// The same, living by a graph.
    #[must_use]
    pub fn lives_by(mut self, graph: &str) -> Self {
        self.graph = Some(graph.into());
        self
    }

    /// The same, heard by the user as it speaks; blocks of these names are hidden.
    #[must_use]
    pub fn heard_by_user(mut self, blocks: BlockNames) -> Self {
        self.audience = Audience::User { blocks };
        self
    }

    /// The blocks hidden from the user who hears the answers to `ask`; nothing if nobody hears them.
    #[must_use]
    pub fn heard(&self, ask: &AskName) -> Option<&BlockNames> {
        match &self.audience {
            Audience::User { blocks } if !self.private.contains(ask) => Some(blocks),
            Audience::User { .. } | Audience::Private => None,
        }
    }

    /// The same with a tool more.
    #[must_use]
    pub fn may_use(mut self, tool: &str) -> Self {
        self.tools.push(tool.into());
        self
    }
}

/// Who hears a role while it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// The user, except for what stands in these blocks.
    User {
        /// Names of the hidden blocks.
        blocks: BlockNames,
    },
    /// Nobody; its answer is the flow's.
    Private,
}

/// How often and how fast a passing failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all.
    pub attempts_max: u32,
    /// Wait before the second try; doubles with each further one.
    pub backoff_ms: u64,
    /// Longest wait.
    pub backoff_ms_max: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts_max: 4, backoff_ms: 500, backoff_ms_max: 30_000 }
    }
}

impl Retries {
    /// The wait before try `attempt`, with a jitter of up to half of it; `chance` is any number.
    #[must_use]
    pub fn wait_ms(&self, attempt: u32, chance: u64) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << attempt.saturating_sub(2).min(20));
        let wait = doubled.min(self.backoff_ms_max);
        wait / 2 + chance % (wait / 2 + 1)
    }
}

/// What happens to a call that was in flight when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownPolicy {
    /// It is made again.
    Retry,
    /// A person decides.
    Ask,
    /// It has failed.
    Fail,
}

/// How a thread is shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Who writes the summary; nobody: the flow's own words stand in for what is folded.
    pub by: Option<Summariser>,
    /// The fragment that stands in the place of what was folded. The flow fills it.
    pub stands: FragmentName,
    /// Most tokens of the summary.
    pub tokens_max: u32,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { by: None, stands: crate::context::COMPACTION.into(), tokens_max: 1_024 }
    }
}

/// Who writes a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summariser {
    /// The role; it is fresh and has no tools.
    pub role: RoleName,
    /// What it is asked.
    pub ask: AskName,
}

/// A tool as a flow declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDef {
    /// As models are told of it.
    pub spec: ToolSpec,
    /// Who runs it.
    pub runs: Runs,
    /// What happens to a run that was under way when the process died.
    pub unknown: UnknownPolicy,
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The flow answers it itself, purely.
    Flow,
    /// The engine's tool host.
    Host,
}
