//! Child sessions: starting them within an allotment, telling them to close, and taking their results.

use super::draft::DecisionDraft;
use super::steps::json_size_error;
use super::{InboxSubmission, InputRefusal, SubmissionToOtherSession, SubmittingSession};
use crate::event::{ChildSessionAllotment, ChildSessionOutcome, ChildSpawned, Event};
use crate::flow::SpawnChildSessionRequest;
use crate::ids::{CHILD_SEPARATOR, ChildId, SessionId};
use crate::limits::{MESSAGE_BYTES_MAX, ROOT_ALLOTMENT, WAIT_MS_MAX};
use crate::session::OpenChildSession;
use crate::session::ledger::ChildSessionUsage;

impl DecisionDraft<'_> {
    /// Starts a child session, or records why it is refused.
    pub(super) fn spawn_child(&mut self, request: SpawnChildSessionRequest) {
        match self.plan_child(&request) {
            Ok(spawned) => {
                self.record_event(Event::ChildSpawned(Box::new(spawned.clone())));
                self.children.push((spawned, request));
            }
            Err(why) => self.refuse_step(format!("child `{}` of flow `{}`", request.key, request.flow), why),
        }
    }

    fn plan_child(&self, request: &SpawnChildSessionRequest) -> Result<ChildSpawned, String> {
        let session = self.session();
        let Some(parent) = &session.id else { return Err("the session is not open".to_owned()) };
        if !self.spec().child_flows.contains(&request.flow) {
            return Err(format!("flow `{}` does not declare it as a flow of its children", self.spec().name));
        }
        let is_running = |open: &OpenChildSession| open.spawned.key == request.key && !open.close_requested;
        if session.open_children.values().any(is_running) {
            return Err("a child with this key is already open".to_owned());
        }
        if request.message.trim().is_empty() || request.message.len() > MESSAGE_BYTES_MAX {
            return Err(format!("its first message must have 1 to {MESSAGE_BYTES_MAX} bytes"));
        }
        if let Some(why) = json_size_error(&request.settings) {
            return Err(why);
        }
        let allotment = self.allot_to_child(request.allotment)?;
        self.env.child_checker.check_child(&request.flow, &request.settings)?;
        let child = ChildId(session.last_ids.child.0 + 1);
        Ok(ChildSpawned {
            child,
            session: SessionId::from(format!("{parent}{CHILD_SEPARATOR}{}", child.0)),
            flow: request.flow.clone(),
            key: request.key.clone(),
            turn: self.active_cause_turn(),
            deadline: self.env.now.plus_ms(request.wait_ms.min(WAIT_MS_MAX)),
            allotment,
        })
    }

    /// Returns what a new child gets of the session's own allotment.
    fn allot_to_child(&self, wanted: Option<ChildSessionAllotment>) -> Result<ChildSessionAllotment, String> {
        let session = self.session();
        let own = session.child_origin.as_ref().map_or(ROOT_ALLOTMENT, |origin| origin.allotment);
        let open = || session.open_children.values().map(|open| &open.spawned.allotment);
        if own.depth_max == 0 {
            return Err("sessions of this depth may not have children".to_owned());
        }
        if session.open_children.len() >= own.children_at_once_max as usize {
            return Err(format!("{} children are open, which is the maximum", session.open_children.len()));
        }
        let reserved: u32 = open().map(|allotment| allotment.descendants_max.saturating_add(1)).sum();
        let used = session.ledger.descendants.descendants.saturating_add(reserved);
        let left = own.descendants_max.saturating_sub(used);
        if left == 0 {
            return Err(format!("the session may have {} descendants, which are used up", own.descendants_max));
        }
        let cost_left = own.cost_microusd_max.map(|most| {
            let spent = session.ledger.usage_with_descendants().cost_microusd;
            let reserved: u64 = open().filter_map(|allotment| allotment.cost_microusd_max).sum();
            most.saturating_sub(spent.saturating_add(reserved))
        });
        if cost_left == Some(0) {
            return Err("the money that the session may spend is used up or given to other children".to_owned());
        }
        // Without a request the child gets half of what is left, so that there is something for the next one.
        let wanted = wanted.unwrap_or(ChildSessionAllotment {
            cost_microusd_max: cost_left.map(|left| left.div_ceil(2)),
            depth_max: own.depth_max - 1,
            descendants_max: (left - 1) / 2,
            children_at_once_max: own.children_at_once_max,
        });
        let cost_microusd_max = match (wanted.cost_microusd_max, cost_left) {
            (Some(wanted), Some(left)) if wanted > left => {
                return Err(format!("it wants {wanted} millionths of a dollar, but only {left} are left"));
            }
            (Some(wanted), _) => Some(wanted),
            (None, left) => left,
        };
        Ok(ChildSessionAllotment {
            cost_microusd_max,
            depth_max: wanted.depth_max.min(own.depth_max - 1),
            descendants_max: wanted.descendants_max.min(left - 1),
            children_at_once_max: wanted.children_at_once_max.min(own.children_at_once_max),
        })
    }

    /// Tells a child to close. It stays open until it reports its end.
    pub(super) fn request_child_close(&mut self, child: ChildId, reason: &str) {
        let Some(open) = self.session().open_children.get(&child).filter(|open| !open.close_requested) else { return };
        let to = open.spawned.session.clone();
        self.record_event(Event::ChildCloseRequested { child, reason: reason.to_owned() });
        let submission = InboxSubmission::CloseChild { child, reason: reason.to_owned() };
        self.submissions.push(SubmissionToOtherSession { to, expected_uid: None, submission, bounce: None });
    }

    /// Takes the end of a child. If the session no longer waits for it, only its usage counts.
    pub(super) fn end_child(
        &mut self,
        sender: Option<&SubmittingSession>,
        child: ChildId,
        outcome: ChildSessionOutcome,
        usage: ChildSessionUsage,
    ) -> Result<(), InputRefusal> {
        let session = self.session();
        let name = session.id.as_ref().map(|parent| format!("{parent}{CHILD_SEPARATOR}{}", child.0));
        // The session itself reports that a child could not be opened.
        let is_trusted = sender.is_some_and(|sender| {
            Some(sender.session.as_str()) == name.as_deref() || Some(&sender.session) == session.id.as_ref()
        });
        if !is_trusted || child > session.last_ids.child {
            return Err(InputRefusal::NotWaiting(format!("{child} is not a child of this session")));
        }
        if session.open_children.contains_key(&child) {
            self.record_event(Event::ChildEnded { child, outcome, usage });
        } else if matches!(outcome, ChildSessionOutcome::Done { .. } | ChildSessionOutcome::Closed { .. }) {
            self.record_event(Event::ChildUsageReported { child, usage });
        } else {
            return Err(InputRefusal::NotWaiting(format!("{child} has already ended")));
        }
        Ok(())
    }

    /// Closes the session because its parent says so.
    pub(super) fn close_as_child(
        &mut self,
        sender: Option<&SubmittingSession>,
        child: ChildId,
        reason: &str,
    ) -> Result<(), InputRefusal> {
        let origin = self.session().child_origin.as_ref();
        let is_parent =
            origin.zip(sender).is_some_and(|(origin, sender)| origin.child == child && origin.parent == sender.session);
        if !is_parent {
            return Err(InputRefusal::NotWaiting("only the parent session can close this session".to_owned()));
        }
        if self.session().closed_reason.is_none() {
            self.stop_turn(reason, crate::event::TurnOutcome::Cancelled);
            self.record_event(Event::SessionClosed { reason: format!("closed by the parent session: {reason}") });
        }
        Ok(())
    }

    /// Does what remains when a session has closed and nothing of it is pending: releases its claim, and reports its
    /// end to its parent. Returns true if anything was recorded.
    pub(super) fn finish_closed_session(&mut self) -> bool {
        let session = self.session();
        let Some(reason) = session.closed_reason.clone() else { return false };
        let is_done = session.current_turn.is_none()
            && session.open_calls.is_empty()
            && session.open_tool_runs.is_empty()
            && session.open_children.is_empty();
        if !is_done {
            return false;
        }
        if session.claim.is_some() {
            self.release_workspace_claim("the session is closed");
            return true;
        }
        let Some(origin) = session.child_origin.clone().filter(|_| !session.result_reported) else { return false };
        let outcome = match &session.result {
            Some(result) => ChildSessionOutcome::Done { result: (**result).clone() },
            None => ChildSessionOutcome::Closed { reason },
        };
        let usage = session.ledger.usage_with_descendants();
        self.record_event(Event::ResultReported);
        let submission = InboxSubmission::ChildEnded { child: origin.child, outcome, usage };
        self.submissions.push(SubmissionToOtherSession {
            to: origin.parent,
            expected_uid: None,
            submission,
            bounce: None,
        });
        true
    }

    /// Returns true if the parent session sent the entry.
    pub(super) fn is_sent_by_parent(&self, sender: Option<&SubmittingSession>) -> bool {
        let origin = self.session().child_origin.as_ref();
        origin.zip(sender).is_some_and(|(origin, sender)| origin.parent == sender.session)
    }
}
