//! Questions between sessions, claims, and the deadlines of everything that a session waits for.

use serde_json::{Value, json};

use super::draft::DecisionDraft;
use super::steps::json_size_error;
use super::{InboxSubmission, InputRefusal, SubmissionToOtherSession, SubmittingSession};
use crate::event::{AskOutcome, AskReceived, AskSent, ChildSessionOutcome, Event};
use crate::ids::{AskId, ChildId, SessionId, TurnId};
use crate::limits::{ASK_BYTES_MAX, OPEN_ASKS_MAX, RECEIVED_ASKS_MAX, WAIT_MS_MAX};
use crate::session::ledger::ChildSessionUsage;

/// The topic by which a session requests a claim of a workspace.
pub const CLAIM_TOPIC: &str = "claim";
/// The topic by which a session releases its claim, or gives up waiting for it.
pub const RELEASE_TOPIC: &str = "release";

impl DecisionDraft<'_> {
    /// Asks another session, or records why the question is refused.
    pub(super) fn send_ask(&mut self, to: SessionId, topic: String, body: Value, wait_ms: u64) {
        if let Some(why) = self.ask_refusal(&to, &body) {
            self.refuse_step(format!("question about `{topic}` to `{to}`"), why);
            return;
        }
        self.record_ask(to, topic, body, wait_ms);
    }

    fn record_ask(&mut self, to: SessionId, topic: String, body: Value, wait_ms: u64) -> AskId {
        let ask = AskId(self.session().last_ids.ask.0 + 1);
        let deadline = self.env.now.plus_ms(wait_ms.min(WAIT_MS_MAX));
        let turn = self.active_cause_turn();
        let submission = InboxSubmission::Ask { reply_to: Some(ask), topic: topic.clone(), body: body.clone() };
        self.record_event(Event::AskSent(Box::new(AskSent { ask, to: to.clone(), topic, body, turn, deadline })));
        let bounce = Some(InboxSubmission::AskBounced { ask });
        self.submissions.push(SubmissionToOtherSession { to, expected_uid: None, submission, bounce });
        ask
    }

    fn ask_refusal(&self, to: &SessionId, body: &Value) -> Option<String> {
        let session = self.session();
        if session.id.as_ref() == Some(to) {
            return Some("a session cannot ask itself".to_owned());
        }
        if session.open_asks.len() >= OPEN_ASKS_MAX {
            return Some(format!("{OPEN_ASKS_MAX} questions already wait for a reply, which is the maximum"));
        }
        body_size_error(body)
    }

    /// Sends something to another session that needs no reply.
    pub(super) fn tell_session(&mut self, to: SessionId, topic: String, body: Value) {
        match body_size_error(&body) {
            Some(why) => self.refuse_step(format!("message about `{topic}` to `{to}`"), why),
            None => {
                let submission = InboxSubmission::Ask { reply_to: None, topic, body };
                self.submissions.push(SubmissionToOtherSession { to, expected_uid: None, submission, bounce: None });
            }
        }
    }

    /// Takes a question from another session. The flow sees it at once, also during a turn.
    pub(super) fn receive_ask(
        &mut self,
        sender: Option<&SubmittingSession>,
        reply_to: Option<AskId>,
        topic: String,
        body: Value,
    ) -> Result<(), InputRefusal> {
        let Some(sender) = sender else {
            return Err(InputRefusal::UnusableSubmission("questions come from other sessions only".to_owned()));
        };
        let session = self.session();
        let refusal = if let Some(reason) = &session.closed_reason {
            Some(InputRefusal::Closed { reason: reason.clone() })
        } else if !self.spec().ask_topics.contains_key(&topic) {
            Some(InputRefusal::UnknownTopic { topic: topic.clone() })
        } else if reply_to.is_some() && session.received_asks.len() >= RECEIVED_ASKS_MAX {
            Some(InputRefusal::QueueFull { waiting: session.received_asks.len() })
        } else {
            None
        };
        if let Some(refusal) = refusal {
            if let Some(ask) = reply_to {
                let reply = AskOutcome::Refused { reason: refusal.to_string() };
                self.submit_reply(sender.clone(), ask, reply, None);
            }
            return Err(refusal);
        }
        let ask = AskId(session.last_ids.ask.0 + 1);
        let SubmittingSession { session: from, uid: from_uid } = sender.clone();
        self.record_event(Event::AskReceived(Box::new(AskReceived { ask, from, from_uid, reply_to, topic, body })));
        if reply_to.is_none() {
            let reason = "no reply is expected".to_owned();
            self.record_event(Event::ReceivedAskDropped { ask, reason });
        }
        Ok(())
    }

    fn submit_reply(&mut self, to: SubmittingSession, ask: AskId, reply: AskOutcome, bounce: Option<InboxSubmission>) {
        let submission = InboxSubmission::Reply { ask, reply };
        self.submissions.push(SubmissionToOtherSession {
            to: to.session,
            expected_uid: Some(to.uid),
            submission,
            bounce,
        });
    }

    /// Replies to a question from another session, or records why the reply is refused.
    pub(super) fn answer_ask(&mut self, ask: AskId, reply: Result<Value, String>) {
        let Some(received) = self.session().received_asks.get(&ask).cloned() else {
            self.refuse_step(format!("reply to {ask}"), "it is not waiting for a reply");
            return;
        };
        let reply = match reply {
            Ok(body) => match body_size_error(&body) {
                Some(reason) => AskOutcome::Refused { reason: format!("the reply is too large: {reason}") },
                None => AskOutcome::Answered { body },
            },
            Err(reason) => AskOutcome::Refused { reason },
        };
        self.record_event(Event::AskReplied { ask, reply: reply.clone() });
        if let Some(remote) = received.reply_to {
            let to = SubmittingSession { session: received.from.clone(), uid: received.from_uid };
            self.submit_reply(to, remote, reply, Some(InboxSubmission::ReplyBounced { ask }));
        }
    }

    /// Takes the reply to a question. It counts only while the question is open.
    pub(super) fn receive_reply(
        &mut self,
        sender: Option<&SubmittingSession>,
        ask: AskId,
        reply: AskOutcome,
    ) -> Result<(), InputRefusal> {
        let open = self.session().open_asks.get(&ask);
        let is_awaited = open.zip(sender).is_some_and(|(open, sender)| open.to == sender.session);
        if !is_awaited {
            return Err(InputRefusal::NotWaiting(format!("{ask} is not waiting for a reply of this session")));
        }
        self.record_event(Event::AskEnded { ask, outcome: reply });
        Ok(())
    }

    /// Ends a question that could not be delivered.
    pub(super) fn receive_bounced_ask(&mut self, ask: AskId) -> Result<(), InputRefusal> {
        let Some(open) = self.session().open_asks.get(&ask) else {
            return Err(InputRefusal::NotWaiting(format!("{ask} is not waiting for a reply")));
        };
        let reason = format!("session `{}` does not exist or accepts nothing more", open.to);
        self.record_event(Event::AskEnded { ask, outcome: AskOutcome::Refused { reason } });
        Ok(())
    }

    /// Requests a claim of a workspace, or records why the request is refused.
    pub(super) fn request_workspace_claim(&mut self, workspace: SessionId, name: String, wait_ms: u64) {
        let session = self.session();
        let why = if session.child_origin.is_some() {
            Some("a child session works under the claim of its parent".to_owned())
        } else if let Some(claim) = &session.claim {
            let verb = if claim.is_held { "holds" } else { "waits for" };
            Some(format!("the session already {verb} the claim `{}`", claim.name))
        } else {
            self.ask_refusal(&workspace, &Value::Null)
        };
        if let Some(why) = why {
            self.refuse_step(format!("claim `{name}` of workspace `{workspace}`"), why);
            return;
        }
        let body = json!({ "name": name });
        let ask = self.record_ask(workspace.clone(), CLAIM_TOPIC.to_owned(), body, wait_ms);
        self.record_event(Event::ClaimRequested { workspace, name, ask });
    }

    /// Releases the session's claim, or gives up waiting for it.
    pub(super) fn release_workspace_claim(&mut self, reason: &str) {
        let Some(claim) = self.session().claim.clone() else { return };
        if self.session().open_asks.contains_key(&claim.ask) {
            let outcome = AskOutcome::Cancelled { reason: reason.to_owned() };
            self.record_event(Event::AskEnded { ask: claim.ask, outcome });
        }
        let (workspace, name) = (claim.workspace.clone(), claim.name.clone());
        self.record_event(Event::ClaimReleased { workspace, name, reason: reason.to_owned() });
        let body = json!({ "name": claim.name });
        let submission = InboxSubmission::Ask { reply_to: None, topic: RELEASE_TOPIC.to_owned(), body };
        self.submissions.push(SubmissionToOtherSession {
            to: claim.workspace,
            expected_uid: None,
            submission,
            bounce: None,
        });
    }

    /// Ends the waits whose deadline has passed.
    pub(super) fn end_overdue_waits(&mut self) {
        let now = self.env.now;
        let session = self.session();
        let asks: Vec<AskId> =
            session.open_asks.values().filter(|sent| sent.deadline <= now).map(|sent| sent.ask).collect();
        let children: Vec<ChildId> = session
            .open_children
            .iter()
            .filter(|(_, open)| open.spawned.deadline <= now && !open.close_requested)
            .map(|(child, _)| *child)
            .collect();
        for ask in asks {
            self.end_ask(ask, AskOutcome::Expired);
        }
        for child in children {
            self.request_child_close(child, "the parent session waited long enough");
            let (outcome, usage) = (ChildSessionOutcome::TimedOut, ChildSessionUsage::default());
            self.record_event(Event::ChildEnded { child, outcome, usage });
        }
    }

    /// Ends a question without a reply. A claim that it requested is released, because the workspace may still grant
    /// it.
    fn end_ask(&mut self, ask: AskId, outcome: AskOutcome) {
        self.record_event(Event::AskEnded { ask, outcome });
        if self.session().claim.as_ref().is_some_and(|claim| claim.ask == ask && !claim.is_held) {
            self.release_workspace_claim("the request was not granted in time");
        }
    }

    /// Ends the questions of a turn, and tells its children to close.
    pub(super) fn end_waits_where(&mut self, reason: &str, is_selected: impl Fn(Option<TurnId>) -> bool) {
        let session = self.session();
        let asks: Vec<AskId> =
            session.open_asks.values().filter(|sent| is_selected(sent.turn)).map(|sent| sent.ask).collect();
        let children: Vec<ChildId> = session
            .open_children
            .iter()
            .filter(|(_, open)| is_selected(open.spawned.turn))
            .map(|(child, _)| *child)
            .collect();
        for ask in asks {
            self.end_ask(ask, AskOutcome::Cancelled { reason: reason.to_owned() });
        }
        for child in children {
            self.request_child_close(child, reason);
        }
    }

    /// Drops what a copy of a session inherited: the original session owns it. Nothing is sent.
    pub(super) fn drop_inherited_waits(&mut self) {
        let session = self.session();
        let children: Vec<ChildId> = session.open_children.keys().copied().collect();
        let asks: Vec<AskId> = session.open_asks.keys().copied().collect();
        let received: Vec<AskId> = session.received_asks.keys().copied().collect();
        let claim = session.claim.clone();
        let reason = "the session was copied".to_owned();
        for child in children {
            let (outcome, usage) = (ChildSessionOutcome::Detached, ChildSessionUsage::default());
            self.record_event(Event::ChildEnded { child, outcome, usage });
        }
        for ask in asks {
            let outcome = AskOutcome::Cancelled { reason: reason.clone() };
            self.record_event(Event::AskEnded { ask, outcome });
        }
        for ask in received {
            self.record_event(Event::ReceivedAskDropped { ask, reason: reason.clone() });
        }
        if let Some(claim) = claim {
            let (workspace, name) = (claim.workspace, claim.name);
            self.record_event(Event::ClaimReleased { workspace, name, reason });
        }
    }
}

fn body_size_error(body: &Value) -> Option<String> {
    let bytes = body.to_string().len();
    if bytes > ASK_BYTES_MAX {
        return Some(format!("it has {bytes} bytes of JSON, but at most {ASK_BYTES_MAX} are allowed"));
    }
    json_size_error(body)
}
