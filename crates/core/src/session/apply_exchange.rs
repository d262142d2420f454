//! Applies the events between sessions to a session's state.

use std::sync::Arc;

use super::{OpenChildSession, Session, WorkspaceClaim};
use crate::event::{AskOutcome, Event};
use crate::ids::AskId;

impl Session {
    /// Applies an event about children, questions or claims. Other events change nothing here.
    pub(super) fn apply_cross_session_event(&mut self, event: &Event) {
        match event {
            Event::ChildSpawned(spawned) => {
                self.last_ids.child = self.last_ids.child.max(spawned.child);
                let open = OpenChildSession { spawned: Arc::new((**spawned).clone()), close_requested: false };
                self.open_children.insert(spawned.child, open);
            }
            Event::ChildCloseRequested { child, .. } => {
                if let Some(open) = self.open_children.get_mut(child) {
                    open.close_requested = true;
                }
            }
            Event::ChildEnded { child, usage, .. } => {
                let was_open = self.open_children.remove(child).is_some();
                if was_open {
                    self.ledger.descendants.add_child_usage(usage);
                }
            }
            Event::ChildUsageReported { usage, .. } => self.ledger.descendants.add_call_usage(usage),
            Event::ResultSet { result } => self.result = Some(Arc::new(result.clone())),
            Event::ResultReported => self.result_reported = true,
            Event::AskSent(sent) => {
                self.last_ids.ask = self.last_ids.ask.max(sent.ask);
                self.open_asks.insert(sent.ask, Arc::new((**sent).clone()));
            }
            Event::AskEnded { ask, outcome } => {
                self.open_asks.remove(ask);
                self.apply_workspace_claim_outcome(*ask, outcome);
            }
            Event::AskReceived(received) => {
                self.last_ids.ask = self.last_ids.ask.max(received.ask);
                self.received_asks.insert(received.ask, Arc::new((**received).clone()));
            }
            Event::AskReplied { ask, .. } | Event::ReceivedAskDropped { ask, .. } => {
                self.received_asks.remove(ask);
            }
            Event::ClaimRequested { workspace, name, ask } => {
                let (workspace, name) = (workspace.clone(), name.clone());
                self.claim = Some(WorkspaceClaim { workspace, name, ask: *ask, is_held: false });
            }
            Event::ClaimReleased { .. } => self.claim = None,
            _ => {}
        }
    }

    fn apply_workspace_claim_outcome(&mut self, ask: AskId, outcome: &AskOutcome) {
        if let Some(claim) = self.claim.as_mut().filter(|claim| claim.ask == ask) {
            match outcome {
                AskOutcome::Answered { .. } => claim.is_held = true,
                AskOutcome::Refused { .. } => self.claim = None,
                // The workspace may grant it all the same, so it is released explicitly.
                AskOutcome::Expired | AskOutcome::Cancelled { .. } => {}
            }
        }
    }
}
