//! A flow with three agents that each have a phase graph and send each other messages, with a reviewer whose threads
//! are separated by peer and work item, and with urgent messages.

use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{
    AgentMessagePriority, AgentMessageSent, CallRequest, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent,
    TurnOutcome,
};
use segue_core::flow::{Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, RoleSpec};
use segue_core::ids::{AgentName, FragmentName, WorkItemName};
use segue_core::phase::{
    Guard, PhaseEdge, PhaseGraph, PhaseGraphOwnerKind, PhaseSpec, PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_core::scope::{Scope, ThreadEndTrigger};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction_fragment, template_text};

/// A flow with an architect and two coders.
#[derive(Debug)]
pub struct MiniTeamFlow {
    spec: FlowSpec,
}

/// All messages that were sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MiniTeamState {
    posted: Vec<AgentMessageSent>,
}

fn agent_phase_key(agent: &AgentName) -> PhaseGraphKey {
    let graph = if agent.as_str() == "arch" { "architect" } else { "coder" };
    PhaseGraphKey { graph: graph.into(), owner: PhaseStateOwner::Agent(agent.clone()) }
}

fn cyclic_phase_graph(name: &str, path: &[&str]) -> PhaseGraph {
    let edges = path.iter().zip(path.iter().cycle().skip(1));
    PhaseGraph {
        name: name.into(),
        owner_kind: PhaseGraphOwnerKind::Agent,
        start: path[0].into(),
        phases: path.iter().map(|name| PhaseSpec::new(*name)).collect(),
        edges: edges
            .map(|(from, to)| PhaseEdge { from: (*from).into(), to: (*to).into(), guard: Guard::Always })
            .collect(),
        gates: Vec::new(),
    }
}

impl MiniTeamFlow {
    #[must_use]
    pub fn new() -> Self {
        let letter = || FragmentSpec::changing("letter", FragmentContentKind::Task);
        let coder =
            RoleSpec::new("coder", Scope::per_session().ended_by(ThreadEndTrigger::WorkItem)).with_phase_graph("coder");
        let architect = RoleSpec::new("architect", Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem))
            .with_phase_graph("architect");
        let spec = FlowSpec::new("mini-team", "an architect and two coders")
            .with_graph(cyclic_phase_graph("coder", &["waiting", "coding", "review"]))
            .with_graph(cyclic_phase_graph("architect", &["waiting", "request"]))
            .with_role(coder.with_opening_fragment(instruction_fragment()).with_ask("letter", [letter()]))
            .with_role(architect.with_opening_fragment(instruction_fragment()).with_ask("letter", [letter()]));
        Self { spec }
    }

    /// Lets an agent that is waiting receive its next message, urgent ones first.
    fn receive_next_mail(&self, view: &FlowContext<'_, MiniTeamState>, agent: &AgentName) -> Vec<FlowStep> {
        // An agent that has not moved is in the first phase, where it waits.
        let phase = view.session.phase_graphs.get(&agent_phase_key(agent)).map(|status| status.state.current.as_str());
        let is_waiting = phase != Some("coding") && phase != Some("request");
        match view.session.next_inbox_message(agent) {
            Some(_) if is_waiting => vec![FlowStep::Receive { agent: agent.clone() }],
            _ => Vec::new(),
        }
    }
}

fn agent_role(agent: &AgentName) -> segue_core::ids::RoleName {
    if agent.as_str() == "arch" { "architect".into() } else { "coder".into() }
}

fn propose_phase(agent: &AgentName, to: &str) -> FlowStep {
    FlowStep::ProposePhase {
        phase: agent_phase_key(agent),
        to: to.into(),
        by: PhaseTransitionProposer::Agent(agent.clone()),
        note: PhaseTransitionNote::default(),
    }
}

fn send_mail(from: &str, to: &str, topic: &str, text: &str) -> FlowStep {
    let priority = if topic == "knowledge" { AgentMessagePriority::Urgent } else { AgentMessagePriority::Normal };
    FlowStep::Send {
        from: from.into(),
        to: to.into(),
        priority,
        topic: topic.into(),
        text: text.into(),
        in_reply_to: None,
    }
}

impl Default for MiniTeamFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for MiniTeamFlow {
    type State = MiniTeamState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut MiniTeamState, event: &RecordedEvent) {
        if let Event::AgentMessageSent(sent) = &event.event {
            state.posted.push(sent.clone());
        }
    }

    fn react(&self, view: &FlowContext<'_, MiniTeamState>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            // "story-1 to ann" assigns a story to ann; "fact to ann" is knowledge, which is urgent.
            (Event::TurnStarted { .. }, _) => {
                let turn = view.session.current_turn.as_ref().expect("a turn has begun");
                let text = view.read_text(turn.messages[0].text);
                let (item, agent) = text.split_once(" to ").unwrap_or(("", ""));
                let mut steps = Vec::new();
                if item.starts_with("story") {
                    steps.push(FlowStep::AssignWork { agent: agent.into(), work: Some(WorkItemName::from(item)) });
                }
                steps.push(send_mail(
                    "user",
                    agent,
                    if item.starts_with("story") { "story" } else { "knowledge" },
                    item,
                ));
                steps.push(FlowStep::EndTurn(TurnOutcome::Done));
                steps
            }
            (Event::AgentMessageSent(sent), _) => self.receive_next_mail(view, &sent.to),
            (Event::AgentMessageReceived { message }, _) => {
                let mail = view.state.posted.iter().find(|mail| mail.message == *message).expect("it was sent");
                let to = if mail.to.as_str() == "arch" { "request" } else { "coding" };
                let request = CallRequest {
                    agent: Some(mail.to.clone()),
                    peer: (mail.to.as_str() == "arch").then(|| mail.from.clone()),
                    metadata: json!(message),
                    ..CallRequest::new(agent_role(&mail.to).as_str(), "letter")
                };
                vec![propose_phase(&mail.to, to), FlowStep::Call(request)]
            }
            (Event::CallAnswered(answered), Some(call)) => {
                let agent = call.agent.clone().expect("an agent spoke");
                let text = view.read_text(answered.text).to_string();
                match &call.peer {
                    Some(peer) => {
                        vec![propose_phase(&agent, "waiting"), send_mail("arch", peer.as_str(), "response", &text)]
                    }
                    None if text.ends_with('?') => {
                        vec![propose_phase(&agent, "review"), send_mail(agent.as_str(), "arch", "request", &text)]
                    }
                    None => vec![propose_phase(&agent, "review"), propose_phase(&agent, "waiting")],
                }
            }
            (Event::PhaseEntered(entered), _) => match &entered.graph_key.owner {
                // A coder on its way through review receives nothing, because it will be waiting in a moment.
                PhaseStateOwner::Agent(agent) if entered.transition.to != "review" => {
                    self.receive_next_mail(view, agent)
                }
                PhaseStateOwner::Agent(_) | PhaseStateOwner::Session | PhaseStateOwner::Role(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, MiniTeamState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        if name.as_str() == "instruction" {
            let agent = request.call_request.agent.as_ref().expect("an agent speaks");
            let worker = request.call_request.peer.as_ref().unwrap_or(agent);
            let work = view.session.work_assignments.get(worker).map_or("nothing", |work| work.as_str());
            return template_text(format!("{agent} on {work} with {worker}"));
        }
        let message = serde_json::from_value(request.call_request.metadata.clone()).expect("every call has its letter");
        let mail = view.state.posted.iter().find(|mail| mail.message == message).expect("it was sent");
        RenderedFragment::Stored { text: mail.text, source: FragmentSource::Message(message), why: mail.topic.clone() }
    }
}
