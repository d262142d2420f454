//! Turns an input into a durable, published decision. A commit with an unknown outcome is resolved before anything else
//! is decided.

use std::panic::{AssertUnwindSafe, catch_unwind};

use segue_core::body::BodyId;
use segue_core::codec;
use segue_core::decide::{DecideError, Decision, DecisionEnv, InputRefusal, SessionInput, decide};
use segue_core::event::{Event, RecordedEvent};
use segue_core::flow::BodyTextLookup;
use segue_core::ids::{MessageId, SubmissionId};
use segue_core::session::SessionState;
use segue_store::{HandledInboxEntry, JournalCommit, PendingWorkStatus, SessionSummary, Snapshot};

use super::{FatalSessionError, SessionActor, find_pending_work, to_session_summary};
use crate::call_policy::SessionUsageChange;
use crate::engine::Engine;
use crate::error::Error;
use crate::event_log::log_recorded_events;
use crate::inbox::is_exempt_from_limit;
use crate::limits::{SNAPSHOT_EVENTS_MIN, WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::load::{UncertainCommitOutcome, encode_events, find_commit_outcome, place_bodies_at_first_use};
use crate::registry::ActorMessage;
use crate::turn_report::{EndedTurnWithWaiters, TurnReport, TurnReportSender};

/// A commit whose append failed, so that it may or may not have been written.
pub(super) struct UncertainCommit {
    decision: Decision,
    waiter: Option<TurnReportSender>,
    error: Error,
}

impl SessionActor {
    /// Commits an input that must not be lost: retries until the store has written it.
    pub(super) async fn commit_until_written(
        &mut self,
        input: SessionInput,
    ) -> Result<Result<Option<MessageId>, Error>, FatalSessionError> {
        self.resolve_commit_with_retry().await?;
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.commit_input(input.clone(), None).await {
                Err(error) if error.is_transient() => {
                    if self.resolve_commit_with_retry().await? == Some(UncertainCommitOutcome::Written) {
                        return Ok(Ok(None));
                    }
                    tracing::warn!(session = %self.session, wait_ms, %error, "write failed; it is retried");
                    self.wait_for_store(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) if error.is_fatal_to_session() => return Err(FatalSessionError(error)),
                result => return Ok(result),
            }
        }
    }

    /// Decides about an input, appends the events, applies and publishes them.
    pub(super) async fn commit_input(
        &mut self,
        input: SessionInput,
        waiter: Option<TurnReportSender>,
    ) -> Result<Option<MessageId>, Error> {
        // Recovering is no progress: a session that ends every process that resumes it would never be quarantined.
        let shows_progress = !matches!(input, SessionInput::Recovered);
        let submission = match &input {
            SessionInput::Submitted { id, .. } => Some(*id),
            _ => None,
        };
        let decision = match self.decide_input(input).await {
            Ok(decision) => decision,
            Err(error) => {
                send_error(waiter, &error);
                return Err(error);
            }
        };
        let message = decision.message;
        match self.append_decision(&decision, submission, shows_progress).await {
            Ok(()) => {
                self.apply_written_decision(decision, waiter).await;
                Ok(message)
            }
            Err(error) if error.is_outcome_unknown() => {
                tracing::warn!(session = %self.session, epoch = self.epoch.0, %error, "outcome of a commit unknown");
                let error = Error::from_store_error(&self.session, error);
                self.uncertain_commit = Some(UncertainCommit { decision, waiter, error: error.clone() });
                match self.resolve_uncertain_commit().await {
                    Ok(Some(UncertainCommitOutcome::Written)) => Ok(message),
                    Ok(Some(UncertainCommitOutcome::NotWritten) | None) => Err(error),
                    Err(error) => Err(error),
                }
            }
            Err(error) => {
                tracing::warn!(session = %self.session, epoch = self.epoch.0, %error, "commit rejected");
                let error = Error::from_store_error(&self.session, error);
                send_error(waiter, &error);
                Err(error)
            }
        }
    }

    /// Finds out whether an uncertain commit was written, if there is one, and applies or drops it.
    async fn resolve_uncertain_commit(&mut self) -> Result<Option<UncertainCommitOutcome>, Error> {
        let Some(uncertain) = self.uncertain_commit.take() else { return Ok(None) };
        match find_commit_outcome(&*self.shared.store, &self.session, &uncertain.decision.events).await {
            Ok((outcome, epoch)) => {
                self.epoch = epoch;
                self.mailbox.set_lease_epoch(epoch);
                tracing::warn!(session = %self.session, epoch = epoch.0, ?outcome, "outcome of a commit resolved");
                match outcome {
                    UncertainCommitOutcome::Written => {
                        self.apply_written_decision(uncertain.decision, uncertain.waiter).await
                    }
                    UncertainCommitOutcome::NotWritten => send_error(uncertain.waiter, &uncertain.error),
                }
                Ok(Some(outcome))
            }
            Err(error) => {
                tracing::warn!(session = %self.session, %error, "cannot find out whether a commit was written");
                self.uncertain_commit = Some(uncertain);
                Err(error)
            }
        }
    }

    async fn resolve_commit_with_retry(&mut self) -> Result<Option<UncertainCommitOutcome>, FatalSessionError> {
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.resolve_uncertain_commit().await {
                Ok(outcome) => return Ok(outcome),
                Err(error) if error.is_transient() => {
                    self.wait_for_store(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) => return Err(FatalSessionError(error)),
            }
        }
    }

    async fn decide_input(&mut self, input: SessionInput) -> Result<Decision, Error> {
        self.resolve_uncertain_commit().await?;
        loop {
            let flow_error = match self.decide_catching_panics(input.clone()) {
                Ok(Ok(decision)) => return Ok(decision),
                Ok(Err(DecideError::MissingTexts(ids))) => {
                    self.fetch_texts(ids).await?;
                    continue;
                }
                Ok(Err(DecideError::Refused(flow_error @ InputRefusal::TooManySteps { .. }))) => {
                    Error::Refused(flow_error)
                }
                Ok(Err(DecideError::Refused(refusal))) => return Err(refusal.into()),
                // The panic message may contain conversation text.
                Err(_) => Error::FlowPanicked(self.flow.spec().name.clone()),
            };
            tracing::error!(session = %self.session, code = flow_error.code(), "the flow has a bug");
            return self.decide_without_flow(input, flow_error);
        }
    }

    fn decide_catching_panics(&self, input: SessionInput) -> std::thread::Result<Result<Decision, DecideError>> {
        let (flow, state, env) = (&*self.flow, &self.cached.state, self.decision_env());
        catch_unwind(AssertUnwindSafe(|| decide(flow, state, input, env)))
    }

    /// Decides about an input on which the flow panics or loops. A new message is refused. Other inputs are recorded
    /// without asking the flow, which fails the turn.
    fn decide_without_flow(&mut self, input: SessionInput, flow_error: Error) -> Result<Decision, Error> {
        let is_refusable = match &input {
            SessionInput::Message { .. } | SessionInput::ClientMessage { .. } | SessionInput::Open(_) => true,
            SessionInput::Submitted { content, .. } => {
                content.as_ref().is_ok_and(|submission| !is_exempt_from_limit(submission))
            }
            _ => false,
        };
        if is_refusable {
            return Err(flow_error);
        }
        if !matches!(input, SessionInput::Tick) {
            // Messages queued behind the failed turn are handled next.
            self.backlog.push_back(ActorMessage::without_reply(SessionInput::Tick));
        }
        let reason = flow_error.to_string();
        let env = DecisionEnv { flow_error: Some(&reason), ..self.decision_env() };
        match decide(&*self.flow, &self.cached.state, input, env) {
            Ok(decision) => Ok(decision),
            Err(DecideError::Refused(refusal)) => Err(refusal.into()),
            Err(DecideError::MissingTexts(_)) => Err(flow_error),
        }
    }

    fn decision_env(&self) -> DecisionEnv<'_> {
        DecisionEnv {
            now: self.shared.clock.now(),
            random: self.shared.random.next_u64(),
            token_counter: &*self.shared.token_counter,
            texts: &self.cached.texts,
            model_selector: &self.shared.model_assignment,
            child_checker: &*self.shared,
            approval_rules: &self.shared.approval_rules,
            dispatch: self.shared.effects_mode(),
            flow_error: None,
        }
    }

    pub(super) async fn fetch_texts(&mut self, ids: Vec<BodyId>) -> Result<(), Error> {
        let texts = self.shared.store.read_bodies(&self.session, &ids).await;
        let texts = texts.map_err(|error| Error::from_store_error(&self.session, error))?;
        for (id, text) in ids.into_iter().zip(texts) {
            self.cached.texts.insert(id, text);
        }
        Ok(())
    }

    async fn append_decision(
        &mut self,
        decision: &Decision,
        submission: Option<SubmissionId>,
        shows_progress: bool,
    ) -> Result<(), segue_store::Error> {
        if decision.events.is_empty() {
            return Ok(());
        }
        self.commit_gate.set_call_starts_allowed(false);
        let pending_work = find_pending_work(&decision.state.session, self.flow.spec());
        let mut commit = JournalCommit {
            bodies: place_bodies_at_first_use(&decision.events, &decision.bodies),
            summary: self.session_summary_if_changed(decision, pending_work),
            shows_progress,
            ..JournalCommit::of_records(
                self.session.clone(),
                self.epoch,
                self.session().last_seq,
                encode_events(&decision.events),
            )
        };
        if let Some((id, outcome)) = submission.zip(decision.submission_outcome.as_ref()) {
            let outcome = serde_json::to_vec(outcome).unwrap_or_default();
            commit.drained.push(HandledInboxEntry { id, outcome });
        }
        Engine::from_shared(self.shared.clone()).open_on_demand_sessions(&self.session, decision).await?;
        self.shared.add_deliveries(&mut commit, decision);
        let head = self.shared.store.append_commit(commit).await?;
        tracing::debug!(session = %self.session, epoch = self.epoch.0, seq = head.0, events = decision.events.len(), "commit written");
        Ok(())
    }

    /// Returns the session's row for lists, if it changed.
    fn session_summary_if_changed(
        &self,
        decision: &Decision,
        pending_work: PendingWorkStatus,
    ) -> Option<SessionSummary> {
        let is_notable = decision.events.iter().any(|event| {
            matches!(
                event.event,
                Event::SessionOpened(_)
                    | Event::SessionForked { .. }
                    | Event::SessionRenamed { .. }
                    | Event::SessionClosed { .. }
                    | Event::TurnEnded { .. }
                    | Event::CallAnsweredLate { .. }
                    | Event::UserMessageReceived(_)
                    | Event::PhaseEntered(_)
            )
        });
        (is_notable || self.stored_pending_work != Some(pending_work))
            .then(|| to_session_summary(&decision.state.session, pending_work))
    }

    /// Makes a written decision the current state.
    async fn apply_written_decision(&mut self, decision: Decision, waiter: Option<TurnReportSender>) {
        if !decision.events.is_empty() {
            self.stored_pending_work = Some(find_pending_work(&decision.state.session, self.flow.spec()));
        }
        let mut repeated = None;
        if let Some((message, waiter)) = decision.message.zip(waiter) {
            if contains_received_message(&decision.events, message) {
                self.turn_waiters.add(message, waiter);
            } else {
                repeated = Some((message, waiter));
            }
        }
        self.cached.texts.insert_bodies(&decision.bodies);
        let told = decision.submissions.iter().map(|submission| submission.to.clone());
        let spawned = decision.children.iter().map(|(spawned, _)| spawned.session.clone());
        let receivers = told.chain(spawned).filter(|receiver| *receiver != self.session).collect();
        let state_before = std::mem::replace(&mut self.cached.state, decision.state);
        self.report_usage_to_call_policy(&state_before).await;
        log_recorded_events(&self.session, &decision.events);
        self.shared.subscriptions.publish_events(&self.session, &decision.events);
        Engine::from_shared(self.shared.clone()).wake_submission_receivers(receivers);
        for ended in self.turn_waiters.apply_events(&decision.events) {
            let report = self.build_turn_report(&state_before, &decision.events, &ended).await;
            ended.notify_waiters(&report);
        }
        if let Some((message, waiter)) = repeated {
            self.add_turn_waiter(message, waiter).await;
        }
        self.cached.texts.evict_unneeded_texts(&self.cached.state.session);
        self.save_snapshot_if_due(SNAPSHOT_EVENTS_MIN);
    }

    /// Tells the call policy what the commit added to the session's ledger.
    async fn report_usage_to_call_policy(&self, state_before: &SessionState) {
        let (before, session) = (state_before.session.ledger.total, self.session());
        let after = session.ledger.total;
        if before != after {
            let (name, session_opened_at) = (self.session.clone(), session.opened_at);
            let change = SessionUsageChange { session: name, session_opened_at, before, after };
            self.shared.call_policy.record_usage(change).await;
        }
    }

    /// Builds the report of a turn that ended among `events`.
    async fn build_turn_report(
        &self,
        state_before: &SessionState,
        events: &[RecordedEvent],
        ended: &EndedTurnWithWaiters,
    ) -> Result<TurnReport, Error> {
        let find_reply_text =
            |text: &segue_core::body::TextRef| self.cached.texts.find_text(text.body).map(|text| text.to_string());
        let replies: Option<Vec<String>> =
            ended.replies.as_ref().and_then(|replies| replies.iter().map(find_reply_text).collect());
        let Some(replies) = replies else {
            return self.shared.rebuild_turn_report(&self.session, ended.message).await;
        };
        // The next turn may have started in the same commit, with totals of its own.
        let mut state_at_end = None;
        if events.last().is_some_and(|event| event.seq > ended.last_seq) {
            let state = state_at_end.insert(state_before.clone());
            events
                .iter()
                .take_while(|event| event.seq <= ended.last_seq)
                .for_each(|event| state.apply(&*self.flow, event));
        }
        let session = &state_at_end.as_ref().unwrap_or(&self.cached.state).session;
        Ok(TurnReport {
            message: ended.message,
            last_seq: ended.last_seq,
            turn: ended.turn,
            outcome: ended.outcome.clone(),
            replies,
            phase: session.phases_label(),
            spent: session.ledger.current_turn,
        })
    }

    /// Registers a caller for the turn of a message that was received before: queued, running or already answered.
    async fn add_turn_waiter(&mut self, message: MessageId, waiter: TurnReportSender) {
        let session = self.session();
        let is_queued = session.queued_messages.iter().any(|received| received.message == message);
        let is_running = session
            .current_turn
            .as_ref()
            .is_some_and(|turn| turn.messages.iter().any(|received| received.message == message));
        match &session.closed_reason {
            Some(reason) if is_queued => {
                let refusal = InputRefusal::Closed { reason: reason.clone() };
                send_error(Some(waiter), &refusal.into());
            }
            _ if is_queued || is_running => self.turn_waiters.add(message, waiter),
            _ => {
                let report = self.shared.rebuild_turn_report(&self.session, message).await;
                // The caller may be gone.
                let _ = waiter.send(report);
            }
        }
    }

    fn save_snapshot_if_due(&mut self, events_min: u64) {
        let seq = self.session().last_seq;
        if seq.0.saturating_sub(self.cached.snapshot_seq.0) < events_min || self.session().current_turn.is_some() {
            return;
        }
        self.cached.snapshot_seq = seq;
        let Some(bytes) = codec::encode_snapshot(&*self.flow, &self.cached.state) else { return };
        let (store, session) = (self.shared.store.clone(), self.session.clone());
        let snapshot = Snapshot { seq, format: codec::SNAPSHOT_FORMAT, bytes };
        tokio::spawn(async move {
            // Only a cache: without it, opening the session takes longer.
            if let Err(error) = store.save_snapshot(&session, snapshot).await {
                tracing::debug!(%session, %error, "snapshot not saved");
            }
        });
    }
}

fn contains_received_message(events: &[RecordedEvent], message: MessageId) -> bool {
    events
        .iter()
        .any(|event| matches!(&event.event, Event::UserMessageReceived(received) if received.message == message))
}

fn send_error(waiter: Option<TurnReportSender>, error: &Error) {
    if let Some(waiter) = waiter {
        // The caller may be gone.
        let _ = waiter.send(Err(error.clone()));
    }
}
