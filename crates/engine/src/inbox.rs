//! Durable inboxes: inputs for sessions that another process holds, and what sessions send each other.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use segue_core::codec;
use segue_core::decide::{
    ChildSessionValidator, Decision, InboxSubmission, InputRefusal, OperatorCommand, RELEASE_TOPIC, SessionInput,
    SubmissionToOtherSession,
};
use segue_core::event::{ChildSessionOrigin, ChildSessionOutcome, ChildSpawned, SessionOpened};
use segue_core::flow::SpawnChildSessionRequest;
use segue_core::ids::{FlowName, MessageId, Seq, SessionId, SubmissionId, session_owner};
use segue_core::session::{ChildSessionUsage, SessionState};
use segue_store::{InboxSubmissionStatus, JournalCommit, NewInboxSubmission, OutgoingInboxSubmission, SpawnedSession};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::actor::{find_pending_work, to_session_summary};
use crate::config::{SessionResumePolicy, merge_settings};
use crate::engine::{Engine, EngineShared};
use crate::error::Error;
use crate::limits::{INBOX_SESSIONS_PAGE_MAX, OUTCOME_POLL_MS_MAX, OUTCOME_POLL_MS_MIN, OUTCOME_WAIT_MS_MAX};
use crate::load::{encode_events, place_bodies_at_first_use};
use crate::registry::ActorMessage;
use crate::text_cache::TextCache;
use crate::turn_follower::{MessageWithAwaitedTurn, follow_turn_in_background};
use crate::turn_report::TurnReport;

/// What became of a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum InboxSubmissionProgress {
    /// It waits for the process that holds the session.
    Waiting,
    /// It was accepted; the message is given if it was one.
    Accepted(Option<MessageId>),
}

impl Engine {
    /// Submits an input to the inbox of a session that another process holds, and waits for its outcome.
    ///
    /// # Errors
    /// The input was refused, or the process that holds the session did not handle it in time
    /// ([`Error::StillWaiting`]).
    pub(crate) async fn submit_and_wait(
        &self,
        session: &SessionId,
        submission: &InboxSubmission,
    ) -> Result<Option<MessageId>, Error> {
        let entry = self.shared().to_entry(submission);
        let id = entry.id;
        let submitted = self.shared().store.submit(session, None, entry).await;
        submitted.map_err(|error| Error::from_store_error(session, error))?;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(OUTCOME_WAIT_MS_MAX);
        let mut wait_ms = OUTCOME_POLL_MS_MIN;
        while tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            if let InboxSubmissionProgress::Accepted(message) = self.submission_result(session, id).await? {
                return Ok(message);
            }
            if wait_ms >= OUTCOME_POLL_MS_MAX {
                // The holder may have ended: then this process handles the entry.
                self.wake_session_for_inbox(session).await;
            }
            wait_ms = (wait_ms * 2).min(OUTCOME_POLL_MS_MAX);
        }
        Err(Error::StillWaiting { session: session.clone(), submission: id })
    }

    /// Returns what became of a submission.
    ///
    /// # Errors
    /// It was refused, there is no such submission, or the store cannot be read.
    pub async fn submission_result(
        &self,
        session: &SessionId,
        id: SubmissionId,
    ) -> Result<InboxSubmissionProgress, Error> {
        let status = self.shared().store.read_outcome(session, id).await;
        match status.map_err(|error| Error::from_store_error(session, error))? {
            InboxSubmissionStatus::Waiting => Ok(InboxSubmissionProgress::Waiting),
            InboxSubmissionStatus::Unknown => Err(Error::NoSuchSubmission { session: session.clone(), submission: id }),
            InboxSubmissionStatus::Handled { outcome } => {
                match serde_json::from_slice::<Result<Option<MessageId>, InputRefusal>>(&outcome) {
                    Ok(Ok(message)) => Ok(InboxSubmissionProgress::Accepted(message)),
                    Ok(Err(refusal)) => Err(refusal.into()),
                    // Written by a version that knows more refusals.
                    Err(_) => Err(Error::NoSuchSubmission { session: session.clone(), submission: id }),
                }
            }
        }
    }

    /// Waits for the end of the turn that handles a recorded message, in this process or in another one.
    ///
    /// # Errors
    /// The message will not be answered, or the engine shuts down.
    pub async fn follow_turn(&self, session: &SessionId, message: MessageId) -> Result<TurnReport, Error> {
        let (waiter, report) = oneshot::channel();
        let awaited = MessageWithAwaitedTurn { session: session.clone(), message, turn: None };
        follow_turn_in_background(self.shared_arc(), awaited, Seq(0), waiter);
        report.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Lets a session look into its inbox, and resumes it for that if necessary.
    pub(crate) async fn wake_session_for_inbox(&self, session: &SessionId) {
        let message = ActorMessage { drains_inbox: true, ..ActorMessage::without_reply(SessionInput::Tick) };
        self.deliver_message(session, message).await;
    }

    /// Lets the sessions that this process holds and that have entries look into their inboxes.
    pub(crate) async fn wake_held_sessions_with_entries(&self) {
        // A store that cannot be read now is asked again in the next round.
        let Ok(sessions) = self.shared().store.held_sessions_with_entries(INBOX_SESSIONS_PAGE_MAX).await else {
            return;
        };
        for address in sessions {
            self.wake_session_for_inbox(&address.session).await;
        }
    }

    /// Wakes the receivers of a commit in this process. Others find their entries by themselves.
    pub(crate) fn wake_submission_receivers(&self, receivers: BTreeSet<SessionId>) {
        if receivers.is_empty() || self.shared().recovery == SessionResumePolicy::Never {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            for session in receivers {
                engine.wake_session_for_inbox(&session).await;
            }
        });
    }
}

impl EngineShared {
    pub(crate) fn to_entry(&self, submission: &InboxSubmission) -> NewInboxSubmission {
        NewInboxSubmission {
            id: SubmissionId(self.random.next_u64()),
            at: self.clock.now(),
            bytes: serde_json::to_vec(submission).expect("submissions have string keys and no failing parts"),
            exempt_from_limit: is_exempt_from_limit(submission),
        }
    }

    /// Adds to a commit what a decision submits to other sessions, and the children it starts.
    pub(crate) fn add_deliveries(&self, commit: &mut JournalCommit, decision: &Decision) {
        let own_name = commit.session.clone();
        for (child, request) in &decision.children {
            match self.prepare_spawned_session(&own_name, child, request) {
                Ok(spawned) => commit.spawned.push(spawned),
                Err(reason) => {
                    let (child, outcome) = (child.child, ChildSessionOutcome::NotOpened { reason });
                    let submission =
                        InboxSubmission::ChildEnded { child, outcome, usage: ChildSessionUsage::default() };
                    commit.outgoing.push(self.to_outgoing(own_name.clone(), &submission));
                }
            }
        }
        for SubmissionToOtherSession { to, expected_uid, submission, bounce } in &decision.submissions {
            if session_owner(to) == session_owner(&own_name) {
                let bounce = bounce.as_ref().map(|bounce| self.to_entry(bounce));
                let outgoing = self.to_outgoing(to.clone(), submission);
                commit.outgoing.push(OutgoingInboxSubmission { expected: *expected_uid, bounce, ..outgoing });
            } else if let Some(bounce) = bounce {
                // A session of another owner looks like one that does not exist.
                commit.outgoing.push(self.to_outgoing(own_name.clone(), bounce));
            }
        }
    }

    fn to_outgoing(&self, to: SessionId, submission: &InboxSubmission) -> OutgoingInboxSubmission {
        OutgoingInboxSubmission { to, expected: None, submission: self.to_entry(submission), bounce: None }
    }

    /// Decides how a child session opens. Its first message waits in its inbox.
    fn prepare_spawned_session(
        &self,
        parent: &SessionId,
        spawned: &ChildSpawned,
        request: &SpawnChildSessionRequest,
    ) -> Result<SpawnedSession, String> {
        let flow = self.find_registered_flow(Some(&spawned.flow)).map_err(|error| error.to_string())?;
        let opened = SessionOpened {
            flow_definition: flow.definition().map(std::sync::Arc::from),
            format: codec::EVENT_FORMAT,
            session: spawned.session.clone(),
            flow: spawned.flow.clone(),
            title: Some(request.title.clone().unwrap_or_else(|| spawned.key.clone())),
            mid_turn_policy: Default::default(),
            settings: self.child_settings(&spawned.flow, &request.settings),
            model_overrides: Default::default(),
            child_origin: Some(ChildSessionOrigin {
                parent: parent.clone(),
                child: spawned.child,
                allotment: spawned.allotment,
            }),
        };
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let (state, texts) = (SessionState::new(&*flow), TextCache::default());
            self.decide_new_session(&*flow, &state, SessionInput::Open(opened), &texts)
        }));
        let decision = match decided {
            Ok(decision) => decision.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("flow `{}` panicked", spawned.flow)),
        };
        let first_message = InboxSubmission::Message {
            text: request.message.clone(),
            idempotency_key: None,
            mid_turn_policy: None,
            images: Vec::new(),
        };
        let pending_work = find_pending_work(&decision.state.session, flow.spec());
        Ok(SpawnedSession {
            session: spawned.session.clone(),
            records: encode_events(&decision.events),
            bodies: place_bodies_at_first_use(&decision.events, &decision.bodies),
            summary: to_session_summary(&decision.state.session, pending_work),
            entries: vec![self.to_entry(&first_message)],
        })
    }

    fn child_settings(&self, flow: &FlowName, settings: &Value) -> Value {
        merge_settings(self.default_settings.get(flow), settings.clone())
    }
}

impl ChildSessionValidator for EngineShared {
    fn check_child(&self, flow: &FlowName, settings: &Value) -> Result<(), String> {
        let found = self.find_registered_flow(Some(flow)).map_err(|error| error.to_string())?;
        let settings = self.child_settings(flow, settings);
        self.validate_settings(&*found, &settings).map_err(|error| error.to_string())
    }
}

/// Returns true if an entry must be accepted even if the inbox is full, because another session waits for it.
pub(crate) fn is_exempt_from_limit(submission: &InboxSubmission) -> bool {
    match submission {
        InboxSubmission::Message { .. } | InboxSubmission::ClientMessage { .. } => false,
        // A claim that is not released blocks everyone who waits for it.
        InboxSubmission::Ask { reply_to, topic, .. } => reply_to.is_none() && topic == RELEASE_TOPIC,
        InboxSubmission::Command { command } => {
            matches!(command, OperatorCommand::Cancel { .. } | OperatorCommand::Close)
        }
        InboxSubmission::Reply { .. }
        | InboxSubmission::AskBounced { .. }
        | InboxSubmission::ReplyBounced { .. }
        | InboxSubmission::CloseChild { .. }
        | InboxSubmission::ChildEnded { .. } => true,
    }
}

/// Returns the input as a submission, if it can wait in an inbox.
pub(crate) fn to_submission(input: &SessionInput) -> Option<InboxSubmission> {
    match input {
        SessionInput::Message { text, idempotency_key, mid_turn_policy, images } => Some(InboxSubmission::Message {
            text: text.clone(),
            idempotency_key: idempotency_key.clone(),
            mid_turn_policy: *mid_turn_policy,
            images: images.clone(),
        }),
        SessionInput::ClientMessage { text, idempotency_key, images, options } => {
            Some(InboxSubmission::ClientMessage {
                text: text.clone(),
                idempotency_key: idempotency_key.clone(),
                images: images.clone(),
                options: options.clone(),
            })
        }
        SessionInput::Operator(command) => Some(InboxSubmission::Command { command: command.clone() }),
        _ => None,
    }
}
