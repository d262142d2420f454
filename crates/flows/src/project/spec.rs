//! Turns a definition into the declaration that the engine reads: a phase graph, a role for each agent, and the tools.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::context::{FragmentContentKind, FragmentSpec};
use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::{FlowSpec, PrivateAskKind, RoleCallLimits, RoleSpec};
use segue_core::ids::{PhaseName, RoleName, ToolName};
use segue_core::phase::{
    Guard, PhaseAllowedTools, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseLimit,
    PhaseSpec, PhaseTransitionProposerKind,
};
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;

use super::commands::command_specs;
use super::definition::{
    AgentDefinition, CompletionMode, FlowCondition, FlowDefinition, PhaseDefinition, PhaseKindDefinition, PhaseMemory,
};
use super::mcp_servers::listed_mcp_tools;
use super::settings::setting_specs;
use super::tools::{ROUTER_ROLE, agent_tools, complete_tool_declaration, learn_tool_declaration, phase_tools};
use crate::fragment_specs::{fragment_keeping_end, fragment_keeping_start, message_fragment};
use crate::limits::{AGENT_CALLS_PER_TURN_MAX, AGENT_REPLY_TOKENS_MAX, CONTENT_TOKENS_MAX, DECISION_TOKENS_MAX};
use crate::mcp_tools::{McpToolName, list_mcp_tools_declaration, mcp_tool_declaration};
use crate::workspace_tools::WorkspaceTool;

/// The name of the phase graph.
pub(super) const PHASES_GRAPH: &str = "phases";
/// The prefix of the condition that a phase may still be entered.
pub(super) const VISITS_LEFT_PREFIX: &str = "visits_left:";

/// An ask that the user sees, in phases that are completed by an answer.
pub(super) const ASK_TALK: &str = "talk";
pub(super) const ASK_WORK: &str = "work";
pub(super) const ASK_REFLECT: &str = "reflect";
pub(super) const ASK_REMIND: &str = "remind";
/// Tells an agent at a tool boundary what it must know before it continues.
pub(super) const ASK_STEER: &str = "steer";
/// Asks an agent for its next action, with the result of the last one.
pub(super) const ASK_ACT: &str = "act";
/// Asks an agent for the content of a file.
pub(super) const ASK_CONTENT: &str = "content";
pub(super) const ASK_ROUTE: &str = "route";

pub(super) const INSTRUCTION_FRAGMENT: &str = "instruction";
pub(super) const GUIDE_FRAGMENT: &str = "guide";
pub(super) const LESSONS_FRAGMENT: &str = "lessons";
pub(super) const PHASE_FRAGMENT: &str = "phase";
pub(super) const HANDOFF_FRAGMENT: &str = "handoff";
pub(super) const UNSEEN_FRAGMENT: &str = "unseen";
pub(super) const PLAN_FRAGMENT: &str = "plan";
pub(super) const EVIDENCE_FRAGMENT: &str = "evidence";
pub(super) const FILES_FRAGMENT: &str = "files";
pub(super) const TASK_FRAGMENT: &str = "task";
pub(super) const NOTICE_FRAGMENT: &str = "notice";
pub(super) const RESULT_FRAGMENT: &str = "result";
pub(super) const SITUATION_FRAGMENT: &str = "situation";
pub(super) const ACTION_FRAGMENT: &str = "action";
pub(super) const CONTENT_FRAGMENT: &str = "content";
pub(super) const OPTIONS_FRAGMENT: &str = "options";
pub(super) const ROUTING_HISTORY_FRAGMENT: &str = "history";
pub(super) const FEEDBACK_FRAGMENT: &str = "feedback";

/// Returns the key of the phase graph.
pub(super) fn phases_key() -> PhaseGraphKey {
    PhaseGraphKey { graph: PHASES_GRAPH.into(), owner: PhaseStateOwner::Session }
}

/// Returns the role in which an agent works in a phase.
pub(super) fn agent_role(agent: &str, phase: &PhaseDefinition) -> RoleName {
    match phase.memory {
        PhaseMemory::Session => agent.into(),
        PhaseMemory::Visit => format!("{agent}-{}", phase.name).into(),
    }
}

/// Returns the declaration of the flow.
pub(super) fn definition_to_spec(definition: &FlowDefinition) -> FlowSpec {
    let mut spec = FlowSpec::new(&definition.name, &definition.description)
        .with_graph(phase_graph(definition))
        .with_role(router_role_spec())
        .with_tool(complete_tool_declaration())
        .with_tool(learn_tool_declaration());
    for tool in WorkspaceTool::ALL {
        spec = spec.with_tool(tool.declaration());
    }
    let of_servers = listed_mcp_tools(definition);
    if !of_servers.is_empty() {
        spec = spec.with_tool(list_mcp_tools_declaration());
    }
    for (name, tool) in of_servers.into_iter().filter_map(|name| Some((name, McpToolName::parse(name)?))) {
        spec = spec.with_tool(mcp_tool_declaration(name, tool));
    }
    for agent in &definition.agents {
        spec = spec.with_role(agent_role_spec(definition, agent, None));
        let judged = definition.phases.iter().filter(|phase| phase.memory == PhaseMemory::Visit);
        for phase in judged.filter(|phase| phase.agents.contains(&agent.name)) {
            spec = spec.with_role(agent_role_spec(definition, agent, Some(phase)));
        }
    }
    FlowSpec { settings: setting_specs(definition), commands: command_specs(), ..spec }
}

fn phase_graph(definition: &FlowDefinition) -> PhaseGraph {
    let edges = definition.edges.iter().flat_map(|edge| {
        edge.to.names().iter().map(|to| {
            let conditions = edge.conditions().map(condition_guard);
            let visits = definition.find_phase(to).and_then(|phase| phase.visits_max);
            let visits = visits.map(|_| Guard::Condition(format!("{VISITS_LEFT_PREFIX}{to}")));
            let mut guards: Vec<Guard> = conditions.chain(visits).collect();
            let guard = match guards.len() {
                0 => Guard::Always,
                1 => guards.remove(0),
                _ => Guard::All(guards),
            };
            PhaseEdge { from: edge.from.as_str().into(), to: to.as_str().into(), guard }
        })
    });
    let on_message = definition.phases.iter().filter_map(|phase| {
        let to = phase.on_message.as_ref()?;
        let declared = |edge: &super::definition::EdgeDefinition| edge.from == phase.name && edge.leads_to(to);
        let edge = || PhaseEdge { from: phase.name.as_str().into(), to: to.as_str().into(), guard: Guard::Always };
        (!definition.edges.iter().any(declared)).then(edge)
    });
    let gates = definition.gates.iter().map(|gate| PhaseEntryGate {
        name: gate.name.clone(),
        opened_by: gate.opened_by.as_str().into(),
        satisfied_by: gate.satisfied_by.as_str().into(),
        condition: Some(gate.evidence.as_str().to_owned()),
        blocks: gate.blocks.iter().map(|phase| PhaseName::from(phase.as_str())).collect(),
    });
    PhaseGraph {
        name: PHASES_GRAPH.into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: definition.start.as_str().into(),
        phases: definition.phases.iter().map(|phase| phase_spec(definition, phase)).collect(),
        edges: edges.chain(on_message).collect(),
        gates: gates.collect(),
    }
}

/// The user's own command is a request of the user, so it needs no further one.
fn condition_guard(condition: FlowCondition) -> Guard {
    let guard = Guard::Condition(condition.as_str().to_owned());
    match condition {
        FlowCondition::UserAsked => Guard::Any(vec![
            Guard::ProposedBy([PhaseTransitionProposerKind::User, PhaseTransitionProposerKind::Operator].into()),
            guard,
        ]),
        _ => guard,
    }
}

fn phase_spec(definition: &FlowDefinition, phase: &PhaseDefinition) -> PhaseSpec {
    let tools: BTreeSet<ToolName> = phase_tools(phase).into_iter().map(ToolName::from).collect();
    let mut models = BTreeMap::new();
    for agent in &definition.agents {
        let model = phase.models.get(&agent.name).or(phase.model.as_ref()).or(agent.model.as_ref());
        models.extend(model.map(|model| (agent_role(&agent.name, phase), model.as_str().into())));
    }
    models.extend(definition.router.model.as_ref().map(|model| (ROUTER_ROLE.into(), model.as_str().into())));
    let limit = phase.limit.as_ref().map(|limit| PhaseLimit {
        rounds_max: limit.turns_max,
        ms_max: limit.minutes_max.map(|minutes| minutes.saturating_mul(60_000)),
        ..PhaseLimit::new(limit.exit.as_str())
    });
    PhaseSpec {
        purpose: phase.purpose.clone(),
        entry: phase.entry.clone(),
        activities: phase.activities.clone(),
        criteria: phase.criteria.clone(),
        constraints: phase.constraints.clone(),
        agents: phase.agents.iter().map(|agent| agent.as_str().into()).collect(),
        tools: PhaseAllowedTools::Only(tools),
        models,
        limit,
        kind: match phase.kind {
            PhaseKindDefinition::Work => PhaseKind::Work,
            PhaseKindDefinition::End => PhaseKind::End,
            PhaseKindDefinition::Failure => PhaseKind::Failure,
        },
        ..PhaseSpec::new(phase.name.as_str())
    }
}

fn router_role_spec() -> RoleSpec {
    let mut role = RoleSpec::new(ROUTER_ROLE, Scope::Fresh)
        .with_phase_graph(PHASES_GRAPH)
        .with_opening_fragment(FragmentSpec::stable(INSTRUCTION_FRAGMENT, FragmentContentKind::Instruction))
        .with_ask(
            ASK_ROUTE,
            [
                fragment_keeping_end(ROUTING_HISTORY_FRAGMENT, FragmentContentKind::Reasoning, 6_000),
                fragment_keeping_end(UNSEEN_FRAGMENT, FragmentContentKind::Conversation, 3_000),
                fragment_keeping_start(EVIDENCE_FRAGMENT, FragmentContentKind::Knowledge, 2_000),
                fragment_keeping_start(FEEDBACK_FRAGMENT, FragmentContentKind::Task, 2_000),
                message_fragment(),
                fragment_keeping_start(OPTIONS_FRAGMENT, FragmentContentKind::Task, 4_000),
            ],
        );
    role.reply_tokens_max = DECISION_TOKENS_MAX;
    role.limits = RoleCallLimits { calls_per_turn_max: AGENT_CALLS_PER_TURN_MAX, ..RoleCallLimits::default() };
    role
}

fn agent_role_spec(
    definition: &FlowDefinition,
    agent: &AgentDefinition,
    judged_phase: Option<&PhaseDefinition>,
) -> RoleSpec {
    let (name, scope) = match judged_phase {
        None => (RoleName::from(agent.name.as_str()), Scope::per_session()),
        Some(phase) => (agent_role(&agent.name, phase), Scope::per_phase()),
    };
    let notice = || fragment_keeping_start(NOTICE_FRAGMENT, FragmentContentKind::Task, 4_000);
    let result = || fragment_keeping_start(RESULT_FRAGMENT, FragmentContentKind::Knowledge, 6_000);
    let action = || fragment_keeping_start(ACTION_FRAGMENT, FragmentContentKind::Task, 6_000);
    let context = || {
        vec![
            fragment_keeping_start(PHASE_FRAGMENT, FragmentContentKind::Task, 2_000),
            fragment_keeping_start(HANDOFF_FRAGMENT, FragmentContentKind::Handover, 2_000),
            fragment_keeping_end(UNSEEN_FRAGMENT, FragmentContentKind::Conversation, 6_000),
            fragment_keeping_start(PLAN_FRAGMENT, FragmentContentKind::Reasoning, 4_000),
            fragment_keeping_start(FILES_FRAGMENT, FragmentContentKind::Knowledge, 2_000),
            fragment_keeping_end(EVIDENCE_FRAGMENT, FragmentContentKind::Knowledge, 4_000),
            fragment_keeping_start(TASK_FRAGMENT, FragmentContentKind::Task, 1_000),
            message_fragment(),
            result(),
            notice(),
            action(),
        ]
    };
    let unseen = || fragment_keeping_end(UNSEEN_FRAGMENT, FragmentContentKind::Conversation, 4_000);
    let situation = || fragment_keeping_start(SITUATION_FRAGMENT, FragmentContentKind::Knowledge, 6_000);
    let content = || fragment_keeping_start(CONTENT_FRAGMENT, FragmentContentKind::Task, CONTENT_TOKENS_MAX);
    let mut role = RoleSpec::new(name.as_str(), scope)
        .with_phase_graph(PHASES_GRAPH)
        .with_opening_fragment(FragmentSpec::stable(INSTRUCTION_FRAGMENT, FragmentContentKind::Instruction))
        .with_opening_fragment(fragment_keeping_start(GUIDE_FRAGMENT, FragmentContentKind::Knowledge, 3_000))
        .with_opening_fragment(fragment_keeping_end(LESSONS_FRAGMENT, FragmentContentKind::Knowledge, 3_000))
        .with_ask(ASK_TALK, context())
        .with_private_ask(ASK_WORK, PrivateAskKind::InThread, context())
        .with_private_ask(ASK_REFLECT, PrivateAskKind::InThread, context())
        .with_private_ask(ASK_REMIND, PrivateAskKind::InThread, [notice(), action()])
        .with_private_ask(ASK_STEER, PrivateAskKind::InThread, [result(), unseen(), situation(), notice(), action()])
        .with_private_ask(ASK_ACT, PrivateAskKind::InThread, [result(), situation(), action()])
        .with_private_ask(ASK_CONTENT, PrivateAskKind::InThread, [content()])
        .visible_to_user(BlockSet::default());
    let tools: BTreeSet<&str> =
        definition.phases.iter().flat_map(|phase| agent_tools(definition, &agent.name, phase)).collect();
    for tool in tools {
        role = role.with_tool(tool);
    }
    role.reply_tokens_max = AGENT_REPLY_TOKENS_MAX;
    role.limits = RoleCallLimits {
        tool_rounds_max: definition.limits.tool_rounds_max,
        calls_per_turn_max: AGENT_CALLS_PER_TURN_MAX,
        ..RoleCallLimits::default()
    };
    role
}

/// Returns whether agents answer the user in this phase.
pub(super) fn is_talk_phase(phase: &PhaseDefinition) -> bool {
    phase.completion == CompletionMode::Answer
}
