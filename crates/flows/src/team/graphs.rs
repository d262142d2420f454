//! The state machines of the agents, as phase graphs. Each agent has its own state in the graph of its role.

use segue_core::ids::PhaseName;
use segue_core::phase::{Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseSpec};

pub const CODER_GRAPH: &str = "coder";
pub const ARCHITECT_GRAPH: &str = "architect";
pub const PRODUCT_MANAGER_GRAPH: &str = "product_manager";

pub const WAITING: &str = "WAITING";
pub const SETUP: &str = "SETUP";
pub const PLANNING: &str = "PLANNING";
pub const PLAN_REVIEW: &str = "PLAN_REVIEW";
pub const CODING: &str = "CODING";
pub const TESTING: &str = "TESTING";
pub const CODE_REVIEW: &str = "CODE_REVIEW";
pub const BUDGET_REVIEW: &str = "BUDGET_REVIEW";
pub const QUESTION: &str = "QUESTION";
pub const AWAIT_MERGE: &str = "AWAIT_MERGE";
pub const DONE: &str = "DONE";
pub const ERROR: &str = "ERROR";
pub const SUSPEND: &str = "SUSPEND";
pub const DISPATCHING: &str = "DISPATCHING";
pub const MONITORING: &str = "MONITORING";
pub const REQUEST: &str = "REQUEST";
pub const ESCALATED: &str = "ESCALATED";
pub const AWAIT_USER: &str = "AWAIT_USER";
pub const WORKING: &str = "WORKING";
pub const PREVIEW: &str = "PREVIEW";
pub const AWAIT_ARCHITECT: &str = "AWAIT_ARCHITECT";

/// The prefix of the condition that an agent came from a phase.
pub(super) const CAME_FROM: &str = "came from ";
/// The condition that no plan is needed.
pub(super) const IS_EXPRESS: &str = "express work";
/// The condition that a plan is needed.
pub(super) const IS_ORDINARY: &str = "ordinary work";
/// The condition that nothing was changed.
pub(super) const NOTHING_CHANGED: &str = "nothing was changed";

/// Returns the graph of the coders.
#[must_use]
pub fn coder_graph() -> PhaseGraph {
    let edges = [
        (WAITING, &[SETUP][..]),
        (SETUP, &[ERROR]),
        (PLANNING, &[PLAN_REVIEW, BUDGET_REVIEW, QUESTION]),
        (PLAN_REVIEW, &[PLANNING, CODING, DONE, ERROR]),
        (CODING, &[TESTING, BUDGET_REVIEW, QUESTION, ERROR]),
        (TESTING, &[CODING, CODE_REVIEW, ERROR]),
        (CODE_REVIEW, &[AWAIT_MERGE, CODING, DONE, ERROR]),
        (AWAIT_MERGE, &[DONE, CODING, ERROR]),
        (BUDGET_REVIEW, &[ERROR]),
        (QUESTION, &[ERROR]),
        (DONE, &[WAITING]),
        (ERROR, &[WAITING]),
    ];
    let phases = [
        WAITING,
        SETUP,
        PLANNING,
        PLAN_REVIEW,
        CODING,
        TESTING,
        CODE_REVIEW,
        BUDGET_REVIEW,
        QUESTION,
        AWAIT_MERGE,
        DONE,
        ERROR,
        SUSPEND,
    ];
    let mut graph = agent_phase_graph(CODER_GRAPH, &phases, &edges);
    let condition = |name: &str| Guard::Condition(name.to_owned());
    graph.edges.push(edge(SETUP, PLANNING, condition(IS_ORDINARY)));
    graph.edges.push(edge(SETUP, CODING, condition(IS_EXPRESS)));
    graph.edges.push(edge(CODING, CODE_REVIEW, condition(NOTHING_CHANGED)));
    for from in [BUDGET_REVIEW, QUESTION] {
        for to in [PLANNING, CODING] {
            graph.edges.push(edge(from, to, came_from(to)));
        }
    }
    with_suspension(graph)
}

/// Returns the graph of the architect.
#[must_use]
pub fn architect_graph() -> PhaseGraph {
    let edges = [
        (WAITING, &[DISPATCHING][..]),
        (DISPATCHING, &[MONITORING, ERROR]),
        (MONITORING, &[DISPATCHING, REQUEST, ESCALATED, DONE, ERROR]),
        (REQUEST, &[DISPATCHING, MONITORING, ESCALATED, ERROR]),
        (ESCALATED, &[DISPATCHING, MONITORING, REQUEST, DONE, ERROR]),
        (DONE, &[WAITING]),
        (ERROR, &[WAITING]),
    ];
    let phases = [WAITING, DISPATCHING, MONITORING, REQUEST, ESCALATED, DONE, ERROR, SUSPEND];
    with_suspension(agent_phase_graph(ARCHITECT_GRAPH, &phases, &edges))
}

/// Returns the graph of the product manager.
#[must_use]
pub fn product_manager_graph() -> PhaseGraph {
    let edges = [
        (WAITING, &[AWAIT_USER, WORKING][..]),
        (AWAIT_USER, &[WORKING, PREVIEW, AWAIT_ARCHITECT]),
        (WORKING, &[AWAIT_USER, PREVIEW, AWAIT_ARCHITECT, ERROR]),
        (PREVIEW, &[WORKING, AWAIT_ARCHITECT]),
        (AWAIT_ARCHITECT, &[WORKING, DONE, ERROR]),
        (DONE, &[WAITING]),
        (ERROR, &[WAITING, WORKING]),
    ];
    let phases = [WAITING, AWAIT_USER, WORKING, PREVIEW, AWAIT_ARCHITECT, DONE, ERROR, SUSPEND];
    with_suspension(agent_phase_graph(PRODUCT_MANAGER_GRAPH, &phases, &edges))
}

fn agent_phase_graph(name: &str, phases: &[&str], edges: &[(&str, &[&str])]) -> PhaseGraph {
    let each = |(from, to): &(&str, &[&str])| -> Vec<PhaseEdge> {
        to.iter().map(|to| edge(from, to, Guard::Always)).collect()
    };
    PhaseGraph {
        name: name.into(),
        owner_kind: PhaseGraphOwnerKind::Agent,
        start: WAITING.into(),
        phases: phases.iter().map(|phase| PhaseSpec::new(*phase)).collect(),
        edges: edges.iter().flat_map(each).collect(),
        gates: Vec::new(),
    }
}

/// Adds the edges of a provider outage: from every phase to `SUSPEND`, and back only to where the agent was.
fn with_suspension(mut graph: PhaseGraph) -> PhaseGraph {
    let phases: Vec<PhaseName> = graph.phases.iter().map(|phase| phase.name.clone()).collect();
    for phase in phases.iter().filter(|phase| **phase != *SUSPEND) {
        graph.edges.push(edge(phase.as_str(), SUSPEND, Guard::Always));
        // An attempt that is given up may end here, whatever it was doing.
        let guard = if *phase == *ERROR { Guard::Always } else { came_from(phase.as_str()) };
        graph.edges.push(edge(SUSPEND, phase.as_str(), guard));
    }
    graph
}

fn edge(from: &str, to: &str, guard: Guard) -> PhaseEdge {
    PhaseEdge { from: from.into(), to: to.into(), guard }
}

fn came_from(phase: &str) -> Guard {
    Guard::Condition(format!("{CAME_FROM}{phase}"))
}
