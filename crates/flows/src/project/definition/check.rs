//! Finds mistakes in a definition that concern several of its parts: unknown names, phases that cannot be reached, gates that
//! can never be satisfied. Each is reported with the path of the value that is wrong.

use std::collections::BTreeSet;

use super::{CheckMoment, CompletionMode, EdgeDefinition, FlowCondition, FlowDefinition, PhaseKindDefinition};
use crate::limits::{
    AGENT_TOOL_ROUNDS_MAX, DEFINITION_AGENTS_MAX, DEFINITION_CHECKS_MAX, DEFINITION_MCP_TOOLS_MAX,
    DEFINITION_NAME_CHARS_MAX, DEFINITION_PHASES_MAX, DEFINITION_TEXT_CHARS_MAX, MCP_TOOL_NAME_CHARS_MAX,
    PHASE_TURNS_MAX, PHASE_VISITS_MAX, ROUTING_TURNS_MAX,
};
use crate::mcp_tools::{MCP_TOOL_PREFIX, McpToolName};
use crate::project::mcp_servers::listed_mcp_tools;
use crate::project::tools::{ROUTER_ROLE, is_known_tool_name, tool_names_text};

/// A step from one value of a file to a value inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowDefinitionPathSegment {
    Key(&'static str),
    Index(usize),
}

/// The place of a value in a file.
pub(super) type FlowDefinitionPath = Vec<FlowDefinitionPathSegment>;

macro_rules! path {
    ($($step:expr),* $(,)?) => { vec![$(FlowDefinitionPathSegment::from($step)),*] };
}

impl From<&'static str> for FlowDefinitionPathSegment {
    fn from(key: &'static str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for FlowDefinitionPathSegment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Returns the mistakes, each with the path of the value that is wrong.
pub(super) fn check_definition(definition: &FlowDefinition) -> Vec<(FlowDefinitionPath, String)> {
    let mut check = FlowDefinitionChecker { definition, problems: Vec::new() };
    check.check_names();
    check.check_agents();
    check.check_phases();
    check.check_edges();
    check.check_gates();
    check.check_checks();
    if check.problems.is_empty() {
        check.check_reachability();
    }
    if check.problems.is_empty() {
        check.check_graph();
    }
    check.problems
}

struct FlowDefinitionChecker<'d> {
    definition: &'d FlowDefinition,
    problems: Vec<(FlowDefinitionPath, String)>,
}

/// Formats names as `` `a`, `b` ``.
fn quote_names<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

fn is_valid_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty()
        && name.len() <= DEFINITION_NAME_CHARS_MAX
        && name.chars().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
}

impl<'d> FlowDefinitionChecker<'d> {
    fn add_problem(&mut self, path: FlowDefinitionPath, message: impl Into<String>) {
        self.problems.push((path, message.into()));
    }

    fn phase_names(&self) -> String {
        quote_names(self.definition.phases.iter().map(|phase| phase.name.as_str()))
    }

    fn agent_names(&self) -> String {
        quote_names(self.definition.agents.iter().map(|agent| agent.name.as_str()))
    }

    fn check_phase_name(&mut self, path: FlowDefinitionPath, name: &str) {
        if self.definition.find_phase(name).is_none() {
            let message = format!("there is no phase `{name}`; phases are {}", self.phase_names());
            self.add_problem(path, message);
        }
    }

    fn check_new_name(&mut self, path: FlowDefinitionPath, what: &str, name: &str, earlier: bool) {
        if !is_valid_name(name) {
            let message = format!(
                "`{name}` is not a name of {what}: use at most {DEFINITION_NAME_CHARS_MAX} lower-case letters, digits and \
                 hyphens, with a letter first"
            );
            self.add_problem(path, message);
        } else if earlier {
            self.add_problem(path, format!("{what} `{name}` is declared twice; rename one of them"));
        }
    }

    fn check_names(&mut self) {
        let definition = self.definition;
        self.check_new_name(path!["name"], "a flow", &definition.name, false);
        self.check_phase_name(path!["start"], &definition.start);
        let counts = [
            ("agents", definition.agents.len(), DEFINITION_AGENTS_MAX),
            ("phases", definition.phases.len(), DEFINITION_PHASES_MAX),
            ("checks", definition.checks.len(), DEFINITION_CHECKS_MAX),
        ];
        for (what, count, most) in counts {
            if count > most {
                self.add_problem(path![what], format!("there are {count} {what}; at most {most} are allowed"));
            }
        }
        let of_servers = listed_mcp_tools(definition).len();
        if of_servers > DEFINITION_MCP_TOOLS_MAX {
            let message = format!(
                "the phases list {of_servers} tools of MCP servers; at most {DEFINITION_MCP_TOOLS_MAX} are allowed"
            );
            self.add_problem(path!["phases"], message);
        }
        for (what, empty) in [("agents", definition.agents.is_empty()), ("phases", definition.phases.is_empty())] {
            if empty {
                self.add_problem(path![what], format!("there are no {what}; declare at least one with [[{what}]]"));
            }
        }
        if !(1..=ROUTING_TURNS_MAX).contains(&definition.limits.routing_turns_max) {
            let message = format!("`routing_turns_max` must be between 1 and {ROUTING_TURNS_MAX}");
            self.add_problem(path!["limits", "routing_turns_max"], message);
        }
        let rounds_max = AGENT_TOOL_ROUNDS_MAX;
        if !(1..=rounds_max).contains(&definition.limits.tool_rounds_max) {
            let message = format!("`tool_rounds_max` must be between 1 and {rounds_max}");
            self.add_problem(path!["limits", "tool_rounds_max"], message);
        }
    }

    fn check_agents(&mut self) {
        for (index, agent) in self.definition.agents.iter().enumerate() {
            let earlier = self.definition.agents[..index].iter().any(|other| other.name == agent.name);
            self.check_new_name(path!["agents", index, "name"], "an agent", &agent.name, earlier);
            if agent.name == ROUTER_ROLE || agent.name == "user" || agent.name == "end" {
                self.add_problem(
                    path!["agents", index, "name"],
                    format!("`{}` is reserved; choose another name", agent.name),
                );
            }
            if agent.role.trim().is_empty() {
                self.add_problem(
                    path!["agents", index, "role"],
                    "`role` is empty; say who the agent is and how it works",
                );
            }
            self.check_text_length(path!["agents", index, "role"], &agent.role);
            for (position, tool) in agent.tools.iter().flatten().enumerate() {
                self.check_tool(path!["agents", index, "tools", position], tool);
            }
            for (phase, instruction) in &agent.instructions {
                self.check_phase_name(path!["agents", index, "instructions"], phase);
                self.check_text_length(path!["agents", index, "instructions"], instruction);
            }
            let works = |phase: &super::PhaseDefinition| {
                phase.agents.contains(&agent.name) || phase.completion == CompletionMode::Reflection
            };
            if !self.definition.phases.iter().any(works) {
                let message = format!("agent `{}` works in no phase; add it to the `agents` of one", agent.name);
                self.add_problem(path!["agents", index, "name"], message);
            }
        }
    }

    fn check_text_length(&mut self, path: FlowDefinitionPath, text: &str) {
        let chars = text.chars().count();
        if chars > DEFINITION_TEXT_CHARS_MAX {
            self.add_problem(
                path,
                format!("the text has {chars} characters; at most {DEFINITION_TEXT_CHARS_MAX} are allowed"),
            );
        }
    }

    fn check_tool(&mut self, path: FlowDefinitionPath, tool: &str) {
        if tool.starts_with(MCP_TOOL_PREFIX) && McpToolName::parse(tool).is_none() {
            let message = format!(
                "`{tool}` is not the name of a tool of an MCP server: write `mcp__SERVER__TOOL`, at most \
                 {MCP_TOOL_NAME_CHARS_MAX} letters, digits, `-` and `_`"
            );
            self.add_problem(path, message);
        } else if !is_known_tool_name(tool) {
            self.add_problem(path, format!("there is no tool `{tool}`; there are {}", tool_names_text()));
        }
    }

    fn check_phases(&mut self) {
        for (index, phase) in self.definition.phases.iter().enumerate() {
            let earlier = self.definition.phases[..index].iter().any(|other| other.name == phase.name);
            self.check_new_name(path!["phases", index, "name"], "a phase", &phase.name, earlier);
            for (position, agent) in phase.agents.iter().enumerate() {
                if self.definition.find_agent(agent).is_none() {
                    let message = format!("there is no agent `{agent}`; agents are {}", self.agent_names());
                    self.add_problem(path!["phases", index, "agents", position], message);
                }
            }
            for (position, tool) in phase.tools.iter().enumerate() {
                self.check_tool(path!["phases", index, "tools", position], tool);
            }
            for text in [&phase.entry, &phase.activities, &phase.criteria, &phase.constraints].into_iter().flatten() {
                self.check_text_length(path!["phases", index], text);
            }
            for agent in phase.models.keys().filter(|agent| self.definition.find_agent(agent).is_none()) {
                let message = format!("there is no agent `{agent}`; agents are {}", self.agent_names());
                self.problems.push((path!["phases", index, "models"], message));
            }
            if let Some(to) = &phase.on_message {
                self.check_phase_name(path!["phases", index, "on_message"], to);
            }
            self.check_phase_limits(index);
            self.check_phase_kind(index);
        }
    }

    fn check_phase_limits(&mut self, index: usize) {
        let phase = &self.definition.phases[index];
        if phase.visits_max.is_some_and(|visits| !(1..=PHASE_VISITS_MAX).contains(&visits)) {
            let message = format!("`visits_max` must be between 1 and {PHASE_VISITS_MAX}");
            self.add_problem(path!["phases", index, "visits_max"], message);
        }
        let Some(limit) = &phase.limit else { return };
        self.check_phase_name(path!["phases", index, "limit", "exit"], &limit.exit);
        if limit.exit == phase.name {
            let message = format!("the limit of `{}` leads back to `{0}`; name another phase as its exit", phase.name);
            self.add_problem(path!["phases", index, "limit", "exit"], message);
        }
        if limit.turns_max.is_none() && limit.minutes_max.is_none() {
            self.add_problem(path!["phases", index, "limit"], "the limit is empty; set `turns_max` or `minutes_max`");
        }
        let turns_are_valid = limit.turns_max.is_none_or(|turns| (1..=PHASE_TURNS_MAX).contains(&turns));
        if !turns_are_valid || limit.minutes_max == Some(0) {
            let message = format!("`turns_max` must be between 1 and {PHASE_TURNS_MAX}, and `minutes_max` at least 1");
            self.add_problem(path!["phases", index, "limit"], message);
        }
    }

    fn check_phase_kind(&mut self, index: usize) {
        let phase = &self.definition.phases[index];
        let has_edge = self.definition.edges.iter().any(|edge| edge.from == phase.name);
        if phase.kind != PhaseKindDefinition::Work {
            if has_edge || phase.limit.is_some() {
                let message =
                    format!("`{}` ends the flow, so nothing can follow it; remove its edges and its limit", phase.name);
                self.add_problem(path!["phases", index, "kind"], message);
            }
            return;
        }
        if !has_edge && phase.limit.is_none() {
            let message = format!("`{}` has no exit; add an edge from it, or set `kind = \"end\"`", phase.name);
            self.add_problem(path!["phases", index, "name"], message);
        }
        let participants_reflect = phase.completion == CompletionMode::Reflection;
        if phase.agents.is_empty() && !participants_reflect {
            let message = format!("no agent works in `{}`; list at least one in `agents`", phase.name);
            self.add_problem(path!["phases", index, "name"], message);
        }
        if phase.completion == CompletionMode::Answer && (phase.plan || phase.changes_required) {
            let message = "a phase that is completed by an answer can require neither a plan nor changes";
            self.add_problem(path!["phases", index, "completion"], message);
        }
        if phase.checks == CheckMoment::After && phase.completion == CompletionMode::Answer {
            let message = "`checks = \"after\"` needs a phase that agents complete with the tool `complete`";
            self.add_problem(path!["phases", index, "checks"], message);
        }
    }

    fn check_edges(&mut self) {
        let mut known: BTreeSet<(&str, &str)> = BTreeSet::new();
        for (index, edge) in self.definition.edges.iter().enumerate() {
            self.check_phase_name(path!["edges", index, "from"], &edge.from);
            if edge.to.names().is_empty() {
                self.add_problem(path!["edges", index, "to"], "`to` is empty; name the phases that may follow");
            }
            for (position, to) in edge.to.names().iter().enumerate() {
                self.check_phase_name(path!["edges", index, "to", position], to);
                if *to == edge.from {
                    let message = format!("an edge from `{to}` to itself has no effect; remove it");
                    self.add_problem(path!["edges", index, "to", position], message);
                }
                if !known.insert((&edge.from, to)) {
                    let message = format!("there are two edges from `{}` to `{to}`; keep one", edge.from);
                    self.add_problem(path!["edges", index, "to", position], message);
                }
            }
            for (position, condition) in edge.when.names().iter().enumerate() {
                if FlowCondition::from_name(condition).is_none() {
                    let names = quote_names(FlowCondition::ALL.iter().map(|condition| condition.as_str()));
                    let message = format!("there is no condition `{condition}`; there are {names}");
                    self.add_problem(path!["edges", index, "when", position], message);
                }
            }
            self.check_replaced_phases(index, edge);
            if edge.conditions().any(|condition| condition == FlowCondition::PlanApproved)
                && !self.definition.phases.iter().any(|phase| phase.plan)
            {
                let message = "no phase makes a plan, so `plan_approved` never holds; set `plan = true` in a phase";
                self.add_problem(path!["edges", index, "when"], message);
            }
        }
    }

    /// Checks the phases that the router is not offered while an edge can be taken.
    fn check_replaced_phases(&mut self, index: usize, edge: &EdgeDefinition) {
        if edge.instead_of.names().is_empty() {
            return;
        }
        if edge.when.names().is_empty() {
            let message =
                "`instead_of` needs a condition in `when`, or else the router could never choose these phases";
            self.add_problem(path!["edges", index, "instead_of"], message);
        }
        for (position, replaced) in edge.instead_of.names().iter().enumerate() {
            let mut others = self.definition.edges.iter().filter(|other| other.from == edge.from);
            if edge.leads_to(replaced) || !others.any(|other| other.leads_to(replaced)) {
                let message = format!("`{replaced}` must be a phase to which another edge from `{}` leads", edge.from);
                self.add_problem(path!["edges", index, "instead_of", position], message);
            }
        }
    }

    fn check_gates(&mut self) {
        for (index, gate) in self.definition.gates.iter().enumerate() {
            let earlier = self.definition.gates[..index].iter().any(|other| other.name == gate.name);
            self.check_new_name(path!["gates", index, "name"], "a gate", &gate.name, earlier);
            self.check_phase_name(path!["gates", index, "opened_by"], &gate.opened_by);
            self.check_phase_name(path!["gates", index, "satisfied_by"], &gate.satisfied_by);
            for (position, blocked) in gate.blocks.iter().enumerate() {
                self.check_phase_name(path!["gates", index, "blocks", position], blocked);
            }
            if gate.opened_by == gate.satisfied_by {
                let message =
                    format!("gate `{}` is opened and satisfied by the same phase; name two phases", gate.name);
                self.add_problem(path!["gates", index, "satisfied_by"], message);
            }
            let leaves = self.definition.edges.iter().any(|edge| edge.from == gate.satisfied_by);
            if self.definition.find_phase(&gate.satisfied_by).is_some() && !leaves {
                let message = format!(
                    "gate `{}` has no exit: it is satisfied by leaving `{}`, but no edge leads out of that phase",
                    gate.name, gate.satisfied_by
                );
                self.add_problem(path!["gates", index, "satisfied_by"], message);
            }
        }
    }

    fn check_checks(&mut self) {
        for (index, check) in self.definition.checks.iter().enumerate() {
            let earlier = self.definition.checks[..index].iter().any(|other| other.name == check.name);
            self.check_new_name(path!["checks", index, "name"], "a check", &check.name, earlier);
            if check.command.trim().is_empty() {
                self.add_problem(path!["checks", index, "command"], "`command` is empty; write a command line");
            }
        }
    }

    /// Reports phases to which no path leads, and flows without a reachable way on.
    fn check_reachability(&mut self) {
        let mut reached: BTreeSet<&str> = BTreeSet::from([self.definition.start.as_str()]);
        loop {
            let before = reached.len();
            let edges = self.definition.edges.iter().filter(|edge| reached.contains(edge.from.as_str()));
            let by_edge: Vec<&str> = edges.flat_map(|edge| edge.to.names()).map(String::as_str).collect();
            let phases = self.definition.phases.iter().filter(|phase| reached.contains(phase.name.as_str()));
            let exits = |phase: &'d super::PhaseDefinition| {
                phase.limit.iter().map(|limit| limit.exit.as_str()).chain(phase.on_message.as_deref())
            };
            let by_exit: Vec<&str> = phases.flat_map(exits).collect();
            reached.extend(by_edge.into_iter().chain(by_exit));
            if reached.len() == before {
                break;
            }
        }
        for (index, phase) in self.definition.phases.iter().enumerate() {
            if !reached.contains(phase.name.as_str()) {
                let message = format!(
                    "`{}` cannot be reached from `{}`; add an edge that leads to it, or remove it",
                    phase.name, self.definition.start
                );
                self.problems.push((path!["phases", index, "name"], message));
            }
        }
    }

    /// Has the engine check the phase graph, and places each mistake at the phase or gate that it names first.
    fn check_graph(&mut self) {
        let spec = crate::project::spec::definition_to_spec(self.definition);
        for message in spec.validation_errors() {
            let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
            let place = quoted.iter().find_map(|name| self.find_declaration(name));
            self.add_problem(place.unwrap_or_default(), message.clone());
        }
    }

    fn find_declaration(&self, name: &str) -> Option<FlowDefinitionPath> {
        let definition = self.definition;
        let gate =
            definition.gates.iter().position(|gate| gate.name == name).map(|index| path!["gates", index, "name"]);
        let phase = || definition.phases.iter().position(|phase| phase.name == name);
        let agent = || definition.agents.iter().position(|agent| agent.name == name);
        gate.or_else(|| phase().map(|index| path!["phases", index, "name"]))
            .or_else(|| agent().map(|index| path!["agents", index, "name"]))
    }
}
