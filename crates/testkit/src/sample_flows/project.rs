//! A flow with a router that calls two agents at once in guarded phases, with a tool and a gate.

use std::collections::BTreeSet;

use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{
    CallRequest, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent, ToolRunOutcome, TurnOutcome,
};
use segue_core::flow::{
    Flow, FlowContext, FlowSpec, FlowStep, FlowToolDeclaration, FragmentRenderContext, RoleSpec, ToolRunnerKind,
    UnknownOutcomePolicy,
};
use segue_core::ids::{AgentName, FragmentName};
use segue_core::phase::{
    Guard, PhaseAllowedTools, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseSpec,
    PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_core::prompt::ModelToolSpec;
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::signal::find_json_where;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction_fragment, latest_user_message, message_fragment, template_text};

/// A flow with a router and its agents.
#[derive(Debug)]
pub struct MiniProjectFlow {
    spec: FlowSpec,
}

/// The current routing: the agents that are expected, and the refusal to tell the router.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MiniProjectState {
    expected: BTreeSet<AgentName>,
    completed: BTreeSet<AgentName>,
    refusal: String,
}

fn work_phase_key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "work".into(), owner: PhaseStateOwner::Session }
}

fn declare_tool(name: &str, runner: ToolRunnerKind) -> FlowToolDeclaration {
    let spec = ModelToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    FlowToolDeclaration { runner, unknown_outcome: UnknownOutcomePolicy::Retry, ..FlowToolDeclaration::for_host(spec) }
}

impl MiniProjectFlow {
    #[must_use]
    pub fn new() -> Self {
        let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
        let mut end = PhaseSpec::new("end");
        end.kind = PhaseKind::End;
        let mut chat = PhaseSpec::new("chat");
        chat.tools = PhaseAllowedTools::Only(BTreeSet::from(["complete".into()]));
        let graph = PhaseGraph {
            name: "work".into(),
            owner_kind: PhaseGraphOwnerKind::Session,
            start: "chat".into(),
            phases: vec![chat, PhaseSpec::new("execute"), PhaseSpec::new("verify"), end],
            edges: vec![
                edge("chat", "execute"),
                edge("execute", "verify"),
                edge("execute", "end"),
                edge("verify", "execute"),
                edge("verify", "end"),
            ],
            gates: vec![PhaseEntryGate {
                name: "tested".into(),
                opened_by: "execute".into(),
                satisfied_by: "verify".into(),
                condition: None,
                blocks: BTreeSet::new(),
            }],
        };
        let worker = RoleSpec::new("worker", Scope::per_session())
            .with_phase_graph("work")
            .with_opening_fragment(instruction_fragment())
            .with_ask("work", [FragmentSpec::changing("phase", FragmentContentKind::Task), message_fragment()])
            .with_tool("look")
            .with_tool("complete");
        let refusal = FragmentSpec::changing("refusal", FragmentContentKind::Task);
        let router = RoleSpec::new("router", Scope::per_session().ended_by(ThreadEndTrigger::Turn))
            .with_opening_fragment(instruction_fragment())
            .with_ask("route", [refusal, message_fragment()]);
        let spec = FlowSpec::new("mini-project", "a router and its agents")
            .with_graph(graph)
            .with_role(worker)
            .with_role(router);
        Self {
            spec: spec
                .with_tool(declare_tool("look", ToolRunnerKind::Host))
                .with_tool(declare_tool("complete", ToolRunnerKind::Flow)),
        }
    }
}

impl Default for MiniProjectFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for MiniProjectFlow {
    type State = MiniProjectState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut MiniProjectState, event: &RecordedEvent) {
        match &event.event {
            Event::FlowFactRecorded { kind, value } if kind == "routed" => {
                *state = MiniProjectState {
                    expected: serde_json::from_value(value.clone()).unwrap_or_default(),
                    ..MiniProjectState::default()
                };
            }
            Event::FlowFactRecorded { kind, value } if kind == "completed" => {
                state.completed.extend(serde_json::from_value::<AgentName>(value.clone()));
            }
            Event::PhaseTransitionRefused { refusal, .. } => state.refusal = refusal.to_string(),
            _ => {}
        }
    }

    fn react(&self, view: &FlowContext<'_, MiniProjectState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let ask_router = || vec![FlowStep::Call(CallRequest::new("router", "route"))];
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => ask_router(),
            (Event::CallAnswered(answered), Some(call)) if call.role == "router" => {
                let decision = find_json_where(&view.read_text(answered.text), |_| true).value.unwrap_or_default();
                let agents: Vec<AgentName> = serde_json::from_value(decision["agents"].clone()).unwrap_or_default();
                let mut steps = vec![FlowStep::RecordFact { kind: "routed".into(), value: json!(agents) }];
                if let Some(to) = decision["phase"].as_str() {
                    steps.push(FlowStep::ProposePhase {
                        phase: work_phase_key(),
                        to: to.into(),
                        by: PhaseTransitionProposer::Role("router".into()),
                        note: PhaseTransitionNote::default(),
                    });
                }
                steps.extend(agents.iter().map(|agent| {
                    FlowStep::Call(CallRequest { agent: Some(agent.clone()), ..CallRequest::new("worker", "work") })
                }));
                steps
            }
            (Event::PhaseTransitionRefused { .. }, _) if view.session.current_turn.is_some() => ask_router(),
            (Event::PhaseEntered(entered), _) if entered.transition.to == "end" => {
                vec![
                    FlowStep::EndTurn(TurnOutcome::Done),
                    FlowStep::CloseSession { reason: "the project is done".into() },
                ]
            }
            (Event::ToolRunOpened(opened), _) if opened.tool == "complete" => {
                let text = "noted".to_owned();
                let agent = json!(opened.agent);
                vec![
                    FlowStep::AnswerTool { run: opened.run, outcome: ToolRunOutcome::Done, text },
                    FlowStep::RecordFact { kind: "completed".into(), value: agent },
                ]
            }
            (Event::CallAnswered(answered), Some(call)) if answered.tool_calls.is_empty() => {
                let workers_open = view.session.open_calls.values().any(|open| open.opened.role == "worker");
                let all_done = view.state.completed.is_superset(&view.state.expected) && !workers_open;
                match (call.role.as_str(), all_done && view.session.tool_rounds.is_empty()) {
                    ("worker", true) => ask_router(),
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, MiniProjectState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        match name.as_str() {
            "instruction" => template_text(format!(
                "be {}",
                request.call_request.agent.as_ref().map_or("router", |agent| agent.as_str())
            )),
            "phase" => {
                let current = view.session.phase_graphs[&work_phase_key()].state.current.to_string();
                RenderedFragment::New {
                    text: format!("[{current}]"),
                    source: FragmentSource::Phase,
                    why: "the phase".into(),
                }
            }
            "refusal" if view.state.refusal.is_empty() => RenderedFragment::Omitted("nothing was refused".into()),
            "refusal" => template_text(view.state.refusal.clone()),
            _ => latest_user_message(view),
        }
    }
}
