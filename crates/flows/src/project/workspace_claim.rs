//! One session at a time works in a workspace. A phase in which the content may change or is checked needs the workspace's
//! claim. The session keeps it from phase to phase, and releases it when such phases are left and while it waits for the user.

use segue_core::decide::CLAIM_TOPIC;
use segue_core::event::{AskOutcome, Event};
use segue_core::flow::FlowStep;
use segue_core::ids::{AskId, SessionId};
use serde::{Deserialize, Serialize};

use super::definition::{CheckMoment, PhaseDefinition};
use super::facts::{AskUserReason, ProjectFact};
use super::project_context::ProjectFlowContext;
use super::state::ProjectState;
use super::text::count_with_noun;
use super::tools::phase_changes_files;
use crate::limits::{CLAIM_WAIT_MS, WORKSPACE_WAIT_MS};
use crate::workspace::requests::{
    WorkspaceClaimStatusQuery, WorkspaceClaimStatusReply, WorkspaceSessionRequest, parse_workspace_reply,
};

/// The name of the claim.
const EXECUTE_CLAIM: &str = "execute";
const CLAIM_STATUS_TOPIC: &str = "claim_status";

/// The session that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceClaimWait {
    /// The session that works in the workspace.
    pub holder: SessionId,
    /// How many sessions are granted the claim before this one, besides the holder.
    pub ahead: usize,
}

impl WorkspaceClaimWait {
    /// Says for whom the session waits.
    #[must_use]
    pub fn describe_wait(&self) -> String {
        let others = match self.ahead {
            0 => String::new(),
            ahead => format!(" and {} before this one", count_with_noun(ahead, "session")),
        };
        format!("waiting for session `{}`{others} to finish its work in this workspace", self.holder)
    }
}

/// Returns whether a session must be the only one that works in such a phase.
fn phase_needs_claim(phase: &PhaseDefinition) -> bool {
    phase.changes_required || phase.checks != CheckMoment::Never || phase_changes_files(phase)
}

/// Returns the steps that request the claim, or `None` if the session has it or does not need it.
pub(super) fn request_claim(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let session = context.view.session;
    // A copy is nobody else's, and a child works under the claim of its parent.
    let is_alone = context.settings.has_copy || session.child_origin.is_some();
    if is_alone || session.claim.is_some() || !phase_needs_claim(context.phase()) {
        return None;
    }
    let workspace = context.workspace_session()?;
    let name = EXECUTE_CLAIM.to_owned();
    let status = WorkspaceSessionRequest::ClaimStatus(WorkspaceClaimStatusQuery { name: name.clone() });
    Some(vec![
        FlowStep::Claim { workspace: workspace.clone(), name, wait_ms: CLAIM_WAIT_MS },
        status.into_step(workspace, WORKSPACE_WAIT_MS),
    ])
}

/// Returns the step that releases the claim, if the session has one or waits for one.
pub(super) fn release_claim(context: &ProjectFlowContext<'_>, reason: &str) -> Option<FlowStep> {
    context.view.session.claim.as_ref().map(|_| FlowStep::ReleaseClaim { reason: reason.to_owned() })
}

/// Releases the claim after a transition, if the phase does not need it.
pub(super) fn release_after_transition(context: &ProjectFlowContext<'_>) -> Option<FlowStep> {
    match phase_needs_claim(context.phase()) {
        true => None,
        false => release_claim(context, "the session has left the phases that need it"),
    }
}

/// Reacts to the end of a question about the claim: says for whom the session waits, or stops if there is no claim.
pub(super) fn handle_claim_answer(context: &ProjectFlowContext<'_>, ask: AskId, outcome: &AskOutcome) -> Vec<FlowStep> {
    let topic = context.state().workspace_asks.get(&ask).map(String::as_str);
    match (topic, outcome) {
        (Some(CLAIM_TOPIC), AskOutcome::Refused { .. } | AskOutcome::Expired) => {
            context.stop_to_ask_user(AskUserReason::WorkspaceClaim)
        }
        (Some(CLAIM_STATUS_TOPIC), AskOutcome::Answered { body }) => {
            let waits = context.view.session.claim.as_ref().is_some_and(|claim| !claim.is_held);
            let status = parse_workspace_reply::<WorkspaceClaimStatusReply>(body).unwrap_or_default();
            let own = context.view.session.id.as_ref();
            let other = status.holder.filter(|holder| waits && Some(holder) != own);
            let ahead = status.waiting.iter().take_while(|session| Some(*session) != own).count();
            other
                .map(|holder| ProjectFact::ClaimAwaited(WorkspaceClaimWait { holder, ahead }).into_step())
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

impl ProjectState {
    /// Applies the end of a wait for the claim. Another session may have changed the content in the meantime.
    pub(super) fn apply_claim_wait_end(&mut self, event: &Event) {
        match event {
            Event::AskEnded { ask, outcome } => {
                let is_claim = self.workspace_asks.get(ask).is_some_and(|topic| topic == CLAIM_TOPIC);
                if is_claim && matches!(outcome, AskOutcome::Answered { .. }) && self.claim_wait.take().is_some() {
                    self.is_prepared = false;
                }
            }
            Event::TurnStarted { .. } => self.claim_wait = None,
            _ => {}
        }
    }
}
