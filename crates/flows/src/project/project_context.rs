//! The arguments that every reaction of the flow needs: the session's view, the definition and the settings.

use segue_core::event::{CallRequest, TurnOutcome};
use segue_core::flow::{FlowContext, FlowSpec, FlowStep, NewOrStoredReplyText};
use segue_core::ids::{AgentName, PhaseName, SessionId, UnixMillis};
use segue_core::phase::{PhaseConditionVerdict, PhaseGraphState, PhaseTransitionProposer};

use super::definition::{ActionMode, FlowDefinition, PhaseDefinition};
use super::facts::{AskUserReason, ProjectFact};
use super::settings::ProjectSettings;
use super::spec::{agent_role, phases_key};
use super::state::ProjectState;
use super::tools::ROUTER_ROLE;
use super::{account, actions, conditions};
use crate::workspace::requests::workspace_session;

/// The session's view, definition and settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProjectFlowContext<'a> {
    pub(super) view: &'a FlowContext<'a, ProjectState>,
    pub(super) definition: &'a FlowDefinition,
    pub(super) spec: &'a FlowSpec,
    pub(super) settings: &'a ProjectSettings,
}

impl<'a> ProjectFlowContext<'a> {
    pub(super) fn state(&self) -> &'a ProjectState {
        self.view.state
    }

    pub(super) fn now(&self) -> UnixMillis {
        self.view.session.last_event_at
    }

    /// Returns the state of the phase graph; `None` before the session was opened.
    pub(super) fn phase_state(&self) -> Option<&'a PhaseGraphState> {
        self.view.session.phase_graphs.get(&phases_key()).map(|status| &status.state)
    }

    /// Returns the name of the current phase. A session without one is in the phase where it starts.
    pub(super) fn phase_name(&self) -> PhaseName {
        self.phase_state().map_or_else(|| self.definition.start.as_str().into(), |state| state.current.clone())
    }

    /// Returns the current phase.
    pub(super) fn phase(&self) -> &'a PhaseDefinition {
        let name = self.phase_name();
        let found = self.definition.find_phase(name.as_str());
        found.or_else(|| self.definition.phases.first()).expect("a checked definition has phases")
    }

    pub(super) fn has_workspace(&self) -> bool {
        self.settings.workspace.is_some()
    }

    /// Returns the session that keeps the lessons and claims of the workspace.
    pub(super) fn workspace_session(&self) -> Option<SessionId> {
        let workspace = self.settings.workspace.as_deref()?;
        workspace_session(self.view.session.id.as_ref()?, workspace).ok()
    }

    /// Returns all commands that test the content, those of the workspace included.
    pub(super) fn known_check_commands(&self) -> Vec<String> {
        let mut checks = self.state().workspace_checks.clone();
        checks.extend(
            self.extra_check_commands().into_iter().filter(|check| !self.state().workspace_checks.contains(check)),
        );
        checks
    }

    /// Returns the commands that the host does not know itself: those of the settings and those that the user named.
    pub(super) fn extra_check_commands(&self) -> Vec<String> {
        let mut extra = self.settings.checks.clone();
        extra.extend(
            self.state().confirmed_checks.iter().filter(|check| !self.settings.checks.contains(check)).cloned(),
        );
        extra
    }

    /// Returns the phases that the router may choose now. Whether the user asked for something is left open.
    pub(super) fn phases_router_may_choose(&self) -> Vec<PhaseName> {
        let evaluate = |condition: &str| match condition == super::definition::FlowCondition::UserAsked.as_str() {
            true if self.has_user_message() => PhaseConditionVerdict::Holds,
            _ => conditions::evaluate_condition(self, condition),
        };
        self.view.session.allowed_phases(
            self.spec,
            &phases_key(),
            &PhaseTransitionProposer::Role(ROUTER_ROLE.into()),
            evaluate,
        )
    }

    /// Returns whether the current turn answers a message of the user.
    pub(super) fn has_user_message(&self) -> bool {
        self.view.session.current_turn.as_ref().is_some_and(|turn| !turn.messages.is_empty())
    }

    /// Returns whether the user has sent a message since the last routing turn was opened.
    pub(super) fn has_unrouted_message(&self) -> bool {
        let last = self.state().turns.back().map_or(0, |turn| turn.id);
        self.has_user_message() && last < self.state().first_turn_since_message
    }

    /// Returns the user's messages of the current turn.
    pub(super) fn user_text(&self) -> String {
        let turn = self.view.session.current_turn.as_ref();
        let messages = turn.into_iter().flat_map(|turn| &turn.messages);
        messages.map(|message| self.view.read_text(message.text).to_string()).collect::<Vec<_>>().join("\n\n")
    }

    /// Returns whether the event being handled belongs to the current turn.
    pub(super) fn is_event_of_current_turn(&self) -> bool {
        let turn = self.view.session.current_turn.as_ref().map(|turn| turn.id);
        turn.is_some() && self.view.subject.turn == turn
    }

    /// Returns a call of an agent in the current phase.
    pub(super) fn agent_call(&self, agent: &AgentName, ask: &str, metadata: serde_json::Value) -> FlowStep {
        let role = agent_role(agent.as_str(), self.phase());
        let request = CallRequest { agent: Some(agent.clone()), metadata, ..CallRequest::new(role.as_str(), ask) };
        FlowStep::Call(actions::with_action_form(self, agent, request))
    }

    /// Returns how an agent chooses its actions.
    pub(super) fn action_mode(&self, agent: &AgentName) -> ActionMode {
        let declared = || self.definition.find_agent(agent.as_str()).map(|agent| agent.actions);
        self.settings.actions.get(agent.as_str()).copied().or_else(declared).unwrap_or_default()
    }

    /// Returns the name that people see for an agent.
    pub(super) fn display_name(&self, agent: &AgentName) -> String {
        let known = self.definition.find_agent(agent.as_str());
        known.map_or_else(|| agent.to_string(), |agent| agent.display_name().to_owned())
    }

    /// Stops to ask the user: says why, what was done and what to do next, and ends the turn.
    pub(super) fn stop_to_ask_user(&self, why: AskUserReason) -> Vec<FlowStep> {
        let text = account::render_stop(self, why);
        vec![
            ProjectFact::UserAsked { why, text: text.clone() }.into_step(),
            reply_step(text),
            FlowStep::EndTurn(TurnOutcome::Done),
        ]
    }
}

/// Returns a reply in the flow's own words.
pub(super) fn reply_step(text: String) -> FlowStep {
    FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None }
}
