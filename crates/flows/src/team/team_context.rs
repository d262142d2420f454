//! What the parts of the flow decide with: the session, the state and the settings.

use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::{AgentName, MessageId, PhaseName};
use segue_core::phase::{PhaseTransitionNote, PhaseTransitionProposer};

use super::graphs::{self, CODER_GRAPH};
use super::repository_tools::RepositoryToolRequest;
use super::settings::TeamSettings;
use super::spec::{ARCHITECT_AGENT, CODER_ROLE, PRODUCT_MANAGER_AGENT};
use super::state::{CoderWork, TeamState};

pub(super) struct TeamFlowContext<'a> {
    pub(super) view: &'a FlowContext<'a, TeamState>,
    pub(super) settings: &'a TeamSettings,
}

impl TeamFlowContext<'_> {
    pub(super) fn state(&self) -> &TeamState {
        self.view.state
    }

    /// Returns the names of all coders.
    pub(super) fn coders(&self) -> impl Iterator<Item = AgentName> {
        (1..=self.settings.coders).map(|number| AgentName::from(format!("coder-{number}").as_str()))
    }

    pub(super) fn coder(&self, agent: &AgentName) -> CoderWork {
        self.state().coders.get(agent).cloned().unwrap_or_default()
    }

    /// Returns true if the event belongs to a turn in which the product manager talks to the user.
    pub(super) fn is_in_product_manager_turn(&self) -> bool {
        let running = self.view.session.current_turn.as_ref().map(|turn| turn.id);
        !self.settings.is_headless && running.is_some() && self.view.subject.turn == running
    }

    /// Returns the current phase of an agent.
    pub(super) fn phase(&self, agent: &AgentName) -> PhaseName {
        let status = self.view.session.phase_graphs.get(&phase_key(agent));
        status.map_or_else(|| graphs::WAITING.into(), |status| status.state.current.clone())
    }

    pub(super) fn architect_phase(&self) -> PhaseName {
        self.phase(&ARCHITECT_AGENT.into())
    }

    /// Returns true if a call, a tool run or a request of the agent is pending.
    pub(super) fn is_busy(&self, agent: &AgentName) -> bool {
        let session = self.view.session;
        let calls = session.open_calls.values().map(|open| (&open.opened.role, open.opened.agent.as_ref()));
        let deferred = session.deferred_calls.values().map(|wait| (&wait.request.role, wait.request.agent.as_ref()));
        let rounds = session.tool_rounds.values().map(|round| (&round.request.role, round.request.agent.as_ref()));
        let is_own =
            |(role, of): (&segue_core::ids::RoleName, Option<&AgentName>)| *role == *CODER_ROLE && of == Some(agent);
        calls.chain(deferred).chain(rounds).any(is_own)
            || session.open_tool_runs.values().any(|run| run.agent.as_ref() == Some(agent))
            || self.state().requests.values().any(|request| request.agent == *agent)
    }

    /// Returns true if a call about this request is pending.
    pub(super) fn is_being_answered(&self, request: MessageId) -> bool {
        let session = self.view.session;
        let calls = session.open_calls.values().map(|open| &open.opened.metadata);
        let deferred = session.deferred_calls.values().map(|wait| &wait.request.metadata);
        let rounds = session.tool_rounds.values().map(|round| &round.request.metadata);
        calls
            .chain(deferred)
            .chain(rounds)
            .any(|metadata| metadata.get("request").is_some() && request_id(metadata) == request)
    }

    /// Returns the arguments that all repository tools of a coder have.
    pub(super) fn repository_request(&self, agent: &AgentName) -> RepositoryToolRequest {
        let coder = self.coder(agent);
        let story = coder.assignment.as_ref().map(|assignment| assignment.story.clone()).unwrap_or_default();
        RepositoryToolRequest {
            spec: self.spec_branch(),
            work: coder.work_item().unwrap_or_default(),
            story,
            base: coder.base.clone(),
            commit: coder.commit.clone(),
            ..RepositoryToolRequest::default()
        }
    }

    /// Returns the name of the spec in branches.
    pub(super) fn spec_branch(&self) -> String {
        let name = self.state().spec.as_ref().map(|spec| spec.branch_name()).unwrap_or_default();
        if self.state().spec_number <= 1 { name } else { format!("{name}-{}", self.state().spec_number) }
    }
}

/// Returns the key of an agent's state machine.
pub(super) fn phase_key(agent: &AgentName) -> PhaseGraphKey {
    let graph = match agent.as_str() {
        ARCHITECT_AGENT => graphs::ARCHITECT_GRAPH,
        PRODUCT_MANAGER_AGENT => graphs::PRODUCT_MANAGER_GRAPH,
        _ => CODER_GRAPH,
    };
    PhaseGraphKey { graph: graph.into(), owner: PhaseStateOwner::Agent(agent.clone()) }
}

/// Proposes a phase for an agent. The graph decides.
pub(super) fn propose_agent_phase(agent: &AgentName, to: &str, reason: impl Into<String>) -> FlowStep {
    let note = PhaseTransitionNote { reason: Some(reason.into()), ..PhaseTransitionNote::default() };
    FlowStep::ProposePhase { phase: phase_key(agent), to: to.into(), by: PhaseTransitionProposer::Engine, note }
}

/// Proposes a phase for the architect.
pub(super) fn propose_architect(to: &str, reason: impl Into<String>) -> FlowStep {
    propose_agent_phase(&ARCHITECT_AGENT.into(), to, reason)
}

/// Proposes a phase for the product manager.
pub(super) fn propose_product_manager(to: &str, reason: impl Into<String>) -> FlowStep {
    propose_agent_phase(&PRODUCT_MANAGER_AGENT.into(), to, reason)
}

/// Returns the request that a call is about, from the value that the flow stored with it.
pub(super) fn request_id(metadata: &serde_json::Value) -> MessageId {
    let id = metadata["request"].as_u64().and_then(|id| u32::try_from(id).ok());
    MessageId(id.unwrap_or_default())
}
