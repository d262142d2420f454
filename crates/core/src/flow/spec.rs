//! The data of a flow: its roles, phase graphs, handovers, tools, settings and commands.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{FlowSettingSpec, InvalidFlowSetting, resolve_settings, settings_json_schema};
use crate::context::{FragmentRetention, FragmentSpec, FragmentStability};
use crate::flow::approval::FlowToolApprovalPolicy;
use crate::handover::HandoverSpec;
use crate::ids::{AskName, FlowName, FragmentName, HandoverKind, PhaseGraphName, RoleName, ToolName};
use crate::limits::{
    CALLS_OUTSIDE_TURNS_DEFAULT, CALLS_OUTSIDE_TURNS_MAX, CALLS_PER_TURN_DEFAULT, CALLS_PER_TURN_MAX,
    TOOL_CALLS_PER_TURN_DEFAULT, TOOL_CALLS_PER_TURN_MAX, TOOL_RESULT_BYTES_MAX, TOOL_ROUNDS_DEFAULT, TOOL_ROUNDS_MAX,
    TOOL_RUN_MS_DEFAULT, TOOL_RUN_MS_MAX,
};
use crate::phase::PhaseGraph;
use crate::prompt::{ModelOutputFormat, ModelToolSpec};
use crate::scope::{Scope, ThreadEndTrigger};
use crate::signal::BlockSet;

/// The data of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSpec {
    pub name: FlowName,
    /// What the flow is for, in one sentence.
    pub description: String,
    pub roles: BTreeMap<RoleName, RoleSpec>,
    pub graphs: BTreeMap<PhaseGraphName, PhaseGraph>,
    /// The documents that carry information between scopes.
    pub handovers: BTreeMap<HandoverKind, HandoverSpec>,
    /// The tools that models may call.
    pub tools: BTreeMap<ToolName, FlowToolDeclaration>,
    pub settings: Vec<FlowSettingSpec>,
    /// The flow's own commands for operators, in addition to the general ones.
    pub commands: BTreeMap<String, FlowCommandSpec>,
    /// The flows of the child sessions that it may start.
    pub child_flows: BTreeSet<FlowName>,
    /// The kinds of questions from other sessions that it answers, with a description of each.
    pub ask_topics: BTreeMap<String, String>,
    /// Whether a session of the flow opens when another session first asks it. Its name consists of a name, `~` and the
    /// name of the flow; see [`on_demand_session`](crate::ids::on_demand_session).
    pub opens_on_demand: bool,
}

/// A command that the flow defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowCommandSpec {
    /// What the command does, in one sentence.
    pub description: String,
    /// The meaning of each argument, by name.
    pub arguments: BTreeMap<String, String>,
}

impl FlowSpec {
    /// Creates a flow without roles.
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
            child_flows: BTreeSet::new(),
            ask_topics: BTreeMap::new(),
            opens_on_demand: false,
        }
    }

    /// Returns the flow with a role added.
    #[must_use]
    pub fn with_role(mut self, role: RoleSpec) -> Self {
        self.roles.insert(role.name.clone(), role);
        self
    }

    /// Returns the flow with a phase graph added.
    #[must_use]
    pub fn with_graph(mut self, graph: PhaseGraph) -> Self {
        self.graphs.insert(graph.name.clone(), graph);
        self
    }

    /// Returns the flow with a kind of handover added.
    #[must_use]
    pub fn with_handover(mut self, schema: HandoverSpec) -> Self {
        self.handovers.insert(schema.kind.clone(), schema);
        self
    }

    /// Returns the flow with a tool added.
    #[must_use]
    pub fn with_tool(mut self, tool: FlowToolDeclaration) -> Self {
        self.tools.insert(tool.spec.name.clone(), tool);
        self
    }

    /// Returns the JSON schema of a session's settings, with defaults; null if there are no settings.
    #[must_use]
    pub fn settings_schema(&self) -> serde_json::Value {
        if self.settings.is_empty() { serde_json::Value::Null } else { settings_json_schema(&self.settings) }
    }

    /// Returns what is wrong with the settings of a session.
    #[must_use]
    pub fn invalid_settings(&self, settings: &serde_json::Value) -> Vec<InvalidFlowSetting> {
        resolve_settings(&self.settings, settings).1
    }

    /// Returns what is wrong with the flow's data. The engine rejects a flow with errors.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        for role in self.roles.values() {
            let mut add_error = |text: String| errors.push(format!("role `{}`: {text}", role.name));
            role.recipe_errors().into_iter().for_each(&mut add_error);
            role.limits.validation_errors().into_iter().for_each(&mut add_error);
            if let Some(graph) = role.graph.as_ref().filter(|graph| !self.graphs.contains_key(*graph)) {
                add_error(format!("there is no graph `{graph}`"));
            }
            for tool in role.tools.iter().filter(|tool| !self.tools.contains_key(*tool)) {
                add_error(format!("there is no tool `{tool}`"));
            }
            if let Some(by) = &role.compaction.summarizer
                && !self.roles.get(&by.role).is_some_and(|role| role.asks.contains_key(&by.ask))
            {
                add_error(format!(
                    "its compaction uses ask `{1}` of role `{0}`, which does not exist",
                    by.role, by.ask
                ));
            }
            if let Some(by) = &role.compaction.summarizer
                && self.roles.get(&by.role).is_some_and(|by| by.scope != Scope::Fresh || !by.tools.is_empty())
            {
                add_error(format!("its summarizer `{}` must have a fresh scope and no tools", by.role));
            }
            if role.compaction.thread_limit.is_some_and(|limit| limit.tokens_kept >= limit.tokens_max) {
                add_error("the limit of its threads must keep fewer tokens than it allows".to_owned());
            }
            if !role.tools.is_empty() && role.has_call_only_fragments() {
                // The calls that continue a tool round would not see them.
                add_error("it has tools, so all its fragments must stay in the thread".to_owned());
            }
            if role.accepts_turn_options && !role.tools.is_empty() {
                add_error("it accepts the client's tools, so it must have no tools of its own".to_owned());
            }
            if role.graph.is_none() && role.scope.is_ended_by(ThreadEndTrigger::Phase) {
                add_error("its scope ends with the phase, but it has no phase graph".to_owned());
            }
        }
        for tool in self.tools.values() {
            let name = &tool.spec.name;
            errors.extend(tool.validation_errors().iter().map(|error| format!("tool `{name}`: {error}")));
        }
        for graph in self.graphs.values() {
            if let Err(found) = graph.validate() {
                errors.extend(found.iter().map(|error| format!("graph `{}`: {error}", graph.name)));
            }
        }
        for (index, setting) in self.settings.iter().enumerate() {
            let mut add_error = |text: &str| errors.push(format!("setting `{}`: {text}", setting.name));
            if self.settings[..index].iter().any(|other| other.name == setting.name) {
                add_error("the name is used twice");
            }
            let invalid = self.invalid_settings(&serde_json::json!({ &setting.name: setting.default }));
            invalid.iter().for_each(|problem| add_error(&format!("its default is invalid: {problem}")));
        }
        errors
    }
}

/// A role of a flow and its rules.
#[derive(Debug, Clone, PartialEq)]
pub struct RoleSpec {
    pub name: RoleName,
    /// How long its threads stay valid.
    pub scope: Scope,
    /// The phase graph that the role follows.
    pub graph: Option<PhaseGraphName>,
    /// The opening of the recipe: fragments sent once as the system message, when a thread opens.
    pub opening: Vec<FragmentSpec>,
    /// The asks of the recipe: fragments sent as the user message with each call, by the name of the ask.
    pub asks: BTreeMap<AskName, Vec<FragmentSpec>>,
    pub output: ModelOutputFormat,
    pub tools: Vec<ToolName>,
    pub visibility: RoleAnswerVisibility,
    /// Asks whose answers the user does not see, even if the role is visible.
    pub private_asks: BTreeMap<AskName, PrivateAskKind>,
    pub reply_tokens_max: u32,
    /// How long to wait for the first part of an answer, and for each further part.
    pub timeout_ms: u64,
    pub retry_policy: RetryPolicy,
    /// What happens to a call that was in flight when the process died.
    pub unknown_outcome: UnknownOutcomePolicy,
    pub compaction: CompactionPolicy,
    pub limits: RoleCallLimits,
    /// Whether its calls in a turn use the tools and the output format that the client sent with the message.
    pub accepts_turn_options: bool,
}

/// How much work a role may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleCallLimits {
    /// The maximum number of tool rounds after one call.
    pub tool_rounds_max: u32,
    /// The maximum number of tool calls in one turn.
    pub tool_calls_per_turn_max: u32,
    /// The maximum number of calls in one turn.
    pub calls_per_turn_max: u32,
    /// The maximum number of calls outside turns since the last message of the user.
    pub calls_outside_turns_max: u32,
}

impl Default for RoleCallLimits {
    fn default() -> Self {
        Self {
            tool_rounds_max: TOOL_ROUNDS_DEFAULT,
            tool_calls_per_turn_max: TOOL_CALLS_PER_TURN_DEFAULT,
            calls_per_turn_max: CALLS_PER_TURN_DEFAULT,
            calls_outside_turns_max: CALLS_OUTSIDE_TURNS_DEFAULT,
        }
    }
}

impl RoleCallLimits {
    fn validation_errors(&self) -> Vec<String> {
        let limits = [
            ("tool_rounds_max", self.tool_rounds_max, TOOL_ROUNDS_MAX),
            ("tool_calls_per_turn_max", self.tool_calls_per_turn_max, TOOL_CALLS_PER_TURN_MAX),
            ("calls_per_turn_max", self.calls_per_turn_max, CALLS_PER_TURN_MAX),
            ("calls_outside_turns_max", self.calls_outside_turns_max, CALLS_OUTSIDE_TURNS_MAX),
        ];
        let too_high = limits.into_iter().filter(|(_, limit, most)| limit > most);
        too_high.map(|(name, limit, most)| format!("`{name}` is {limit}, but at most {most} is allowed")).collect()
    }
}

impl RoleSpec {
    /// Creates a private role that answers in plain text.
    #[must_use]
    pub fn new(name: &str, scope: Scope) -> Self {
        Self {
            name: name.into(),
            scope,
            graph: None,
            opening: Vec::new(),
            asks: BTreeMap::new(),
            output: ModelOutputFormat::Text,
            tools: Vec::new(),
            visibility: RoleAnswerVisibility::Private,
            private_asks: BTreeMap::new(),
            reply_tokens_max: 4_096,
            timeout_ms: 120_000,
            retry_policy: RetryPolicy::default(),
            unknown_outcome: UnknownOutcomePolicy::Retry,
            compaction: CompactionPolicy::default(),
            limits: RoleCallLimits::default(),
            accepts_turn_options: false,
        }
    }

    /// Returns the role with an opening fragment added.
    #[must_use]
    pub fn with_opening_fragment(mut self, spec: FragmentSpec) -> Self {
        self.opening.push(spec);
        self
    }

    /// Returns the role with an ask added.
    #[must_use]
    pub fn with_ask(mut self, name: &str, fragments: impl IntoIterator<Item = FragmentSpec>) -> Self {
        self.asks.insert(name.into(), fragments.into_iter().collect());
        self
    }

    /// Returns the role with an ask added whose answers the user does not see.
    #[must_use]
    pub fn with_private_ask(
        mut self,
        name: &str,
        kind: PrivateAskKind,
        fragments: impl IntoIterator<Item = FragmentSpec>,
    ) -> Self {
        self.private_asks.insert(name.into(), kind);
        self.with_ask(name, fragments)
    }

    /// Returns whether the calls of an ask leave no trace in the thread.
    pub(crate) fn is_detached_ask(&self, ask: &AskName) -> bool {
        matches!(self.private_asks.get(ask), Some(PrivateAskKind::Detached | PrivateAskKind::Standalone))
    }

    fn is_standalone_ask(&self, ask: &AskName) -> bool {
        self.private_asks.get(ask) == Some(&PrivateAskKind::Standalone)
    }

    /// Returns what is wrong with the recipe. A stable fragment after a changing one would break the cached prefix at
    /// every call.
    fn recipe_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut changing: Option<&FragmentSpec> = None;
        for spec in &self.opening {
            match (spec.stability, changing) {
                (FragmentStability::Changing, _) => changing = Some(spec),
                (FragmentStability::Stable, Some(before)) => errors.push(format!(
                    "stable fragment `{}` comes after changing fragment `{}`; put stable fragments first",
                    spec.name, before.name
                )),
                (FragmentStability::Stable, None) => {}
            }
        }
        if self.asks.is_empty() {
            errors.push("the recipe has no ask, so the role can never be called".to_owned());
        }
        if self.opening.iter().any(|spec| spec.retention == FragmentRetention::CallOnly) {
            errors.push("an opening fragment stays in the thread, so it cannot be for its call only".to_owned());
        }
        errors
    }

    /// Returns whether an ask has fragments that do not stay in the thread.
    fn has_call_only_fragments(&self) -> bool {
        self.asks.values().flatten().any(|spec| spec.retention == FragmentRetention::CallOnly)
    }

    /// Returns the scope of the threads of an ask.
    #[must_use]
    pub(crate) fn scope_of_ask(&self, ask: &AskName) -> &Scope {
        static FRESH: Scope = Scope::Fresh;
        if self.is_standalone_ask(ask) { &FRESH } else { &self.scope }
    }

    /// Returns the fragments that open a thread of an ask.
    #[must_use]
    pub(crate) fn opening_of_ask(&self, ask: &AskName) -> &[FragmentSpec] {
        if self.is_standalone_ask(ask) { &[] } else { &self.opening }
    }

    /// Returns the role with a phase graph.
    #[must_use]
    pub fn with_phase_graph(mut self, graph: &str) -> Self {
        self.graph = Some(graph.into());
        self
    }

    /// Returns the role with answers that are streamed to the user, without the given blocks.
    #[must_use]
    pub fn visible_to_user(mut self, blocks: BlockSet) -> Self {
        self.visibility = RoleAnswerVisibility::User { hidden_blocks: blocks };
        self
    }

    /// Returns the blocks to hide from the user in answers to `ask`; `None` if the user does not see these answers.
    #[must_use]
    pub fn hidden_blocks(&self, ask: &AskName) -> Option<&BlockSet> {
        match &self.visibility {
            RoleAnswerVisibility::User { hidden_blocks: blocks } if !self.private_asks.contains_key(ask) => {
                Some(blocks)
            }
            RoleAnswerVisibility::User { .. } | RoleAnswerVisibility::Private => None,
        }
    }

    /// Returns the role with a tool added.
    #[must_use]
    pub fn with_tool(mut self, tool: &str) -> Self {
        self.tools.push(tool.into());
        self
    }
}

/// How a private ask uses the role's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateAskKind {
    /// The question and the answer are added to the thread.
    InThread,
    /// It leaves no trace in the thread: the call sees the thread, but later calls see neither its question nor its
    /// answer. Its prompt starts with the thread, which is already cached.
    Detached,
    /// It leaves no trace and needs nothing but its own fragments: the call sees neither the thread nor the opening, so it
    /// costs the same however long the thread is.
    Standalone,
}

/// Who sees a role's answers while they are streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleAnswerVisibility {
    /// The user, except for the content of some blocks.
    User { hidden_blocks: BlockSet },
    /// Only the flow.
    Private,
}

/// How often and how fast a transient failure is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of attempts.
    pub attempts_max: u32,
    /// The delay before the second attempt. It doubles with each further attempt.
    pub backoff_ms: u64,
    /// The maximum delay.
    pub backoff_ms_max: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 4, backoff_ms: 500, backoff_ms_max: 30_000 }
    }
}

impl RetryPolicy {
    /// Returns the delay before `attempt`, with a jitter of up to half of it. `random` may be any number.
    #[must_use]
    pub(crate) fn backoff_delay_ms(&self, attempt: u32, random: u64) -> u64 {
        let doubled = self.backoff_ms.saturating_mul(1 << attempt.saturating_sub(2).min(20));
        let wait = doubled.min(self.backoff_ms_max);
        wait / 2 + random % (wait / 2 + 1)
    }
}

/// What happens to a call or tool run that was in flight when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownOutcomePolicy {
    /// It is attempted again.
    Retry,
    /// An operator decides.
    AskOperator,
    /// It has failed.
    Fail,
}

/// How a thread is compacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPolicy {
    /// The role that writes the summary. Without one, the flow's own text replaces the folded messages.
    pub summarizer: Option<SummarizerRole>,
    /// The fragment that replaces the folded messages. The flow renders it.
    pub summary_fragment: FragmentName,
    pub summary_tokens_max: u32,
    /// How long a thread may become, if that is less than fits into the model's window.
    pub thread_limit: Option<ThreadCompactionThreshold>,
}

/// The length at which a thread is compacted although it would still fit, because each call pays for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadCompactionThreshold {
    /// A thread with more tokens than this is compacted before the next call.
    pub tokens_max: u32,
    /// The size that the thread should have afterwards. The smaller it is, the less often the thread is compacted and the
    /// cached prefix is lost.
    pub tokens_kept: u32,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self {
            summarizer: None,
            summary_fragment: crate::context::COMPACTION_FRAGMENT.into(),
            summary_tokens_max: 1_024,
            thread_limit: None,
        }
    }
}

/// A role that writes summaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizerRole {
    /// The role, with a fresh scope and no tools.
    pub role: RoleName,
    /// The ask of its recipe.
    pub ask: AskName,
}

/// A tool that a flow declares.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowToolDeclaration {
    /// The description for models.
    pub spec: ModelToolSpec,
    pub runner: ToolRunnerKind,
    /// What happens to a run that was in progress when the process died.
    pub unknown_outcome: UnknownOutcomePolicy,
    /// The maximum duration of a run. After that it is stopped and has failed.
    pub run_ms_max: u64,
    /// The maximum length of the text that the model is shown, in bytes. A longer text is cut and marked.
    pub output_bytes_max: usize,
    /// Which runs wait until a person approves them. Does not apply to tools that the flow answers itself.
    pub approval: FlowToolApprovalPolicy,
}

impl FlowToolDeclaration {
    /// Declares a tool that the engine's tool host runs. A run that was in progress when the process died has failed.
    #[must_use]
    pub fn for_host(spec: ModelToolSpec) -> Self {
        Self {
            spec,
            runner: ToolRunnerKind::Host,
            unknown_outcome: UnknownOutcomePolicy::Fail,
            run_ms_max: TOOL_RUN_MS_DEFAULT,
            output_bytes_max: TOOL_RESULT_BYTES_MAX,
            approval: FlowToolApprovalPolicy::NotRequired,
        }
    }

    fn validation_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.run_ms_max == 0 || self.run_ms_max > TOOL_RUN_MS_MAX {
            errors.push(format!("`run_ms_max` must be between 1 and {TOOL_RUN_MS_MAX}"));
        }
        if self.output_bytes_max == 0 || self.output_bytes_max > TOOL_RESULT_BYTES_MAX {
            errors.push(format!("`output_bytes_max` must be between 1 and {TOOL_RESULT_BYTES_MAX}"));
        }
        errors
    }
}

/// Who runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolRunnerKind {
    /// The flow answers it in `react`.
    Flow,
    /// The engine's tool host runs it.
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::FragmentContentKind;

    #[test]
    fn stable_fragment_after_a_changing_one_is_an_error() {
        let role = RoleSpec::new("guide", Scope::Fresh)
            .with_opening_fragment(FragmentSpec::changing("date", FragmentContentKind::Task))
            .with_opening_fragment(FragmentSpec::stable("role", FragmentContentKind::Instruction));
        assert_eq!(role.recipe_errors().len(), 2);
    }

    #[test]
    fn jitter_spreads_retries_over_half_the_backoff() {
        let retries = RetryPolicy::default();
        for attempt in 2..40 {
            let waits: Vec<u64> = (0..2_000).map(|chance| retries.backoff_delay_ms(attempt, chance * 977)).collect();
            let whole = (retries.backoff_ms << (attempt - 2).min(20)).min(retries.backoff_ms_max);
            assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)), "try {attempt}: {waits:?}");
            assert!(waits.iter().any(|wait| *wait > whole * 3 / 4) && waits.iter().any(|wait| *wait < whole * 3 / 4));
        }
    }
}
