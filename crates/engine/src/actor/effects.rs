//! Starts pending effects, and cancels or abandons those that are no longer pending.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::body::BodyId;
use segue_core::decide::SessionInput;
use segue_core::event::CallOpened;
use segue_core::flow::{BodyTextLookup, DecisionTextResolver, EventSubject, FlowContext};
use segue_core::ids::{CallId, ToolRunId, UnixMillis};
use segue_core::prompt::Prompt;
use segue_core::session::Effect;
use segue_models::{ModelBackendKind, RehearsalHints};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::{FatalSessionError, SessionActor};
use crate::abandoned_calls::{CallAttemptId, InFlightCallAttempt, SharedCallAttemptState};
use crate::config::SessionResumePolicy;
use crate::dispatch::{CallTask, ToolTask, run_call, run_tool};
use crate::error::Error;
use crate::limits::{WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::tools::ToolInvocation;

impl SessionActor {
    /// Starts effects that are pending and not running; releases running ones that are no longer pending.
    pub(super) async fn dispatch_effects(&mut self) -> Result<(), FatalSessionError> {
        if self.shared.recovery == SessionResumePolicy::Never || self.mailbox.is_draining() {
            return Ok(());
        }
        let effects = self.session().pending_effects(self.flow.spec());
        self.wake_at = None;
        let mut due = Vec::new();
        for effect in &effects {
            match effect {
                Effect::CallModel { call, attempt, not_before } if !self.calls.contains_key(&(*call, *attempt)) => {
                    due.push((*call, *attempt, *not_before));
                }
                Effect::RunTool { run } if !self.tools.contains_key(run) => self.start_tool_run(*run),
                Effect::CallModel { .. } | Effect::RunTool { .. } => {}
                Effect::Wake { at } => self.wake_at = Some(*at),
            }
        }
        let is_pending = |id: &CallAttemptId| {
            effects
                .iter()
                .any(|effect| matches!(effect, Effect::CallModel { call, attempt, .. } if (*call, *attempt) == *id))
        };
        self.release_unwanted_calls(&is_pending);
        self.commit_gate.set_call_starts_allowed(self.uncertain_commit.is_none());
        self.tools.retain(|run, _| effects.contains(&Effect::RunTool { run: *run }));
        for (call, attempt, not_before) in due {
            self.start_call(call, attempt, not_before).await?;
        }
        Ok(())
    }

    /// Releases calls that are no longer pending. A call that the flow abandoned continues on its own, unless another
    /// call waits for its model or the engine is shutting down and could not record the answer. All others are aborted.
    fn release_unwanted_calls(&mut self, is_pending: &dyn Fn(&CallAttemptId) -> bool) {
        let is_shutting_down = self.shared.is_shutting_down.load(Ordering::Acquire);
        let released: Vec<CallAttemptId> = self.calls.keys().filter(|id| !is_pending(id)).copied().collect();
        for id in &released {
            let Some(in_flight) = self.calls.remove(id) else { continue };
            let is_awaited = !is_shutting_down
                && self.session().awaits_late_answer(id.0)
                && !self.shared.rate_limiter.has_waiting_calls(&in_flight.model);
            if let Some(in_flight) =
                self.shared.abandoned_calls.take_over_unneeded_attempt(&self.session, *id, in_flight, is_awaited)
            {
                self.calls.insert(*id, in_flight);
            }
        }
        if !released.is_empty() {
            self.shared.subscriptions.drop_unwanted_partial_texts(&self.session, is_pending);
        }
        self.shared
            .abandoned_calls
            .abort_unawaited_calls(&self.session, |call| self.session().awaits_late_answer(call));
    }

    /// Records that the result of a call has arrived.
    pub(super) fn mark_call_returned(&mut self, input: &SessionInput) {
        if let SessionInput::Answer { call, attempt, .. } | SessionInput::CallFailure { call, attempt, .. } = input
            && let Some(in_flight) = self.calls.get_mut(&(*call, *attempt))
        {
            in_flight.has_returned = true;
        }
    }

    /// Asks the flow for hints for the rehearsal model.
    fn collect_rehearsal_hints(&self, opened: &CallOpened, prompt: &Prompt) -> RehearsalHints {
        let model = self.shared.models.get(&opened.model);
        if !model.is_ok_and(|model| model.describe().kind == ModelBackendKind::Rehearsal) {
            return RehearsalHints::default();
        }
        let texts = DecisionTextResolver::new(&self.cached.texts);
        let (state, subject) = (&self.cached.state, EventSubject::default());
        let context = FlowContext { session: &state.session, state: &state.flow, texts: &texts, subject: &subject };
        let reply = self.flow.rehearsal_reply(context, opened, prompt);
        let tool_calls = reply.as_ref().map(|reply| reply.tool_calls.clone()).unwrap_or_default();
        RehearsalHints { reply_template: reply.map(|reply| reply.text), tool_calls }
    }

    async fn start_call(
        &mut self,
        call: CallId,
        attempt: u32,
        not_before: UnixMillis,
    ) -> Result<(), FatalSessionError> {
        let Some(plan) = self.session().prompt_plan(call) else { return Ok(()) };
        let mut rendered = self.cached.texts.render_prompt(&plan);
        // Usually all texts are cached; only otherwise are they looked up one by one.
        if rendered.is_err() {
            let missing = self.cached.texts.missing_ids(plan.required_prompt_body_ids());
            self.fetch_texts_with_retry(missing).await?;
            rendered = self.cached.texts.render_prompt(&plan);
        }
        let Ok(prompt) = rendered else {
            tracing::error!(session = %self.session, %call, "the prompt cannot be rendered, so the call is not made");
            return Ok(());
        };
        let hints = self.collect_rehearsal_hints(&plan.opened, &prompt);
        let foreign_texts = self.session().foreign_texts(&plan.opened).into_iter();
        let foreign_texts = foreign_texts.filter_map(|text| self.cached.texts.find_text(text.body)).collect();
        let progress = SharedCallAttemptState::new();
        let task = CallTask {
            shared: self.shared.clone(),
            session: self.session.clone(),
            session_opened_at: self.session().opened_at,
            flow: self.flow.clone(),
            opened: plan.opened.clone(),
            attempt,
            not_before,
            prompt: Arc::new(prompt),
            foreign_texts,
            hints,
            progress: progress.clone(),
            commit_gate: self.commit_gate.call_start_gate(),
            mailbox_sender: self.mailbox.sender.clone(),
        };
        let model = plan.opened.model.clone();
        let span = tracing::debug_span!(
            parent: &self.current_turn_span(), "call", %call, attempt, %model, role = %plan.opened.role,
            provider = tracing::field::Empty
        );
        let in_flight = InFlightCallAttempt {
            task: tokio::spawn(run_call(task).instrument(span)),
            progress,
            model,
            has_returned: false,
        };
        self.calls.insert((call, attempt), in_flight);
        Ok(())
    }

    /// Loads texts, retrying while the store fails: a pending call must not be forgotten.
    async fn fetch_texts_with_retry(&mut self, ids: Vec<BodyId>) -> Result<(), FatalSessionError> {
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.fetch_texts(ids.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() => {
                    tracing::warn!(session = %self.session, wait_ms, %error, "cannot read texts; it is retried");
                    self.wait_for_store(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) => return Err(FatalSessionError(error)),
            }
        }
    }

    fn start_tool_run(&mut self, run: ToolRunId) {
        let Some(opened) = self.session().open_tool_runs.get(&run).cloned() else { return };
        let (opened_at, settings) = (self.session().opened_at, (*self.session().settings).clone());
        let request = ToolInvocation { session: self.session.clone(), session_opened_at: opened_at, settings, opened };
        let task = ToolTask {
            shared: self.shared.clone(),
            flow: self.flow.clone(),
            request,
            lease_epoch: self.epoch,
            mailbox_sender: self.mailbox.sender.clone(),
        };
        let span =
            tracing::debug_span!(parent: &self.current_turn_span(), "tool_run", %run, tool = %task.request.opened.tool);
        self.tools.insert(run, InFlightToolRun(tokio::spawn(run_tool(task).instrument(span))));
    }

    /// Waits while the store fails. Callers that ask for something meanwhile get the error; results of calls and tools
    /// wait.
    pub(super) async fn wait_for_store(&mut self, wait_ms: u64, error: &Error) {
        // At shutdown there is little time left, so the next attempt follows soon.
        let wait_ms = if self.mailbox.is_draining() { WRITE_RETRY_MS_MIN } else { wait_ms };
        let deadline = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        self.shared.subscriptions.set_write_error(&self.session, Some(error.clone()));
        let mailbox = self.mailbox.clone();
        loop {
            let message = tokio::select! {
                biased;
                message = tokio::time::timeout_at(deadline, self.inbox.recv()) => message,
                () = mailbox.wait_for_drain_or_lease_loss() => break,
            };
            let Ok(Some(message)) = message else { break };
            if message.is_unawaited() {
                self.backlog.push_back(message);
            } else {
                message.reply_with_error(error);
            }
        }
        self.shared.subscriptions.set_write_error(&self.session, None);
    }
}

/// The task of a tool run. Dropping it aborts the run.
pub(super) struct InFlightToolRun(JoinHandle<()>);

impl Drop for InFlightToolRun {
    fn drop(&mut self) {
        self.0.abort();
    }
}
