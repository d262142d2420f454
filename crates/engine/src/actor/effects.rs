//! What is owed is started, what is no longer owed is stopped or let go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use segue_core::body::BodyId;
use segue_core::decide::SessionInput;
use segue_core::event::CallOpened;
use segue_core::flow::{BodyTextLookup, DynFlowContext, EventSubject, TextResolver};
use segue_core::ids::{CallId, ToolRunId, UnixMillis};
use segue_core::prompt::Prompt;
use segue_core::session::Effect;
use segue_models::{ModelSource, RehearsalHints};
use tokio::task::JoinHandle;

use super::{SessionActor, SessionLost};
use crate::abandoned_calls::{AttemptId, AttemptProgress, InFlightCall};
use crate::dispatch::{CallTask, run_call, run_tool};
use crate::engine::RecoveryPolicy;
use crate::error::Error;
use crate::limits::{WRITE_RETRY_MS_MAX, WRITE_RETRY_MS_MIN};
use crate::tools::ToolRequest;

impl SessionActor {
    /// Starts what is owed and not under way; parts with what is under way and no longer owed.
    pub(super) async fn dispatch_effects(&mut self) -> Result<(), SessionLost> {
        if self.shared.recovery == RecoveryPolicy::Never || self.mailbox.is_draining() {
            return Ok(());
        }
        let owed = self.session().pending_effects(self.flow.spec());
        self.wake_at = None;
        let mut due = Vec::new();
        for act in &owed {
            match act {
                Effect::CallModel { call, attempt, not_before } if !self.calls.contains_key(&(*call, *attempt)) => {
                    due.push((*call, *attempt, *not_before));
                }
                Effect::RunTool { run } if !self.tools.contains_key(run) => self.start_tool_run(*run),
                Effect::CallModel { .. } | Effect::RunTool { .. } => {}
                Effect::Wake { at } => self.wake_at = Some(*at),
            }
        }
        let wanted = |id: &AttemptId| {
            owed.iter().any(|act| matches!(act, Effect::CallModel { call, attempt, .. } if (*call, *attempt) == *id))
        };
        self.release_unwanted_calls(&wanted);
        self.commit_gate.set_clear(self.uncertain_commit.is_none());
        self.tools.retain(|run, _| owed.contains(&Effect::RunTool { run: *run }));
        for (call, attempt, not_before) in due {
            self.start_call(call, attempt, not_before).await?;
        }
        Ok(())
    }

    /// Parts with calls that are no longer wanted. Those that the flow went on without go on by themselves, unless somebody waits
    /// for their model or the engine stops, which would not record them; all others end here.
    fn release_unwanted_calls(&mut self, wanted: &dyn Fn(&AttemptId) -> bool) {
        let stops = self.shared.is_shutting_down.load(Ordering::Acquire);
        let others: Vec<AttemptId> = self.calls.keys().filter(|id| !wanted(id)).copied().collect();
        for id in &others {
            let Some(flight) = self.calls.remove(id) else { continue };
            let is_awaited = !stops
                && self.session().awaits_late_answer(id.0)
                && !self.shared.rate_limiter.has_waiting_calls(&flight.model);
            if let Some(flight) = self.shared.abandoned_calls.take_over_call(&self.session, *id, flight, is_awaited) {
                self.calls.insert(*id, flight);
            }
        }
        if !others.is_empty() {
            self.shared.subscriptions.retain_partial_texts(&self.session, wanted);
        }
        self.shared.abandoned_calls.retain_awaited(&self.session, |call| self.session().awaits_late_answer(call));
    }

    /// Notes that what came of a call has arrived.
    pub(super) fn mark_call_returned(&mut self, input: &SessionInput) {
        if let SessionInput::Answer { call, attempt, .. } | SessionInput::CallFailure { call, attempt, .. } = input
            && let Some(flight) = self.calls.get_mut(&(*call, *attempt))
        {
            flight.has_returned = true;
        }
    }

    /// What the flow tells a stand-in about a call.
    fn collect_rehearsal_hints(&self, opened: &CallOpened, prompt: &Prompt) -> RehearsalHints {
        let model = self.shared.models.get(&opened.model);
        if !model.is_ok_and(|model| model.describe().kind == ModelSource::Rehearsal) {
            return RehearsalHints::default();
        }
        let texts = TextResolver::new(&self.cached.texts);
        let (state, about) = (&self.cached.state, EventSubject::default());
        let sight = DynFlowContext { session: &state.session, state: &state.flow, texts: &texts, subject: &about };
        RehearsalHints { reply_template: self.flow.rehearsal_reply(sight, opened, prompt) }
    }

    async fn start_call(&mut self, call: CallId, attempt: u32, not_before: UnixMillis) -> Result<(), SessionLost> {
        let Some(plan) = self.session().prompt_plan(call) else { return Ok(()) };
        let mut filled = self.cached.texts.render_prompt(&plan);
        // As a rule all of it is at hand, and then nothing need be looked up twice.
        if filled.is_err() {
            let missing = self.cached.texts.missing_ids(plan.required_body_ids());
            self.fetch_texts_with_retry(missing).await?;
            filled = self.cached.texts.render_prompt(&plan);
        }
        let Ok(prompt) = filled else { return Ok(()) };
        let hints = self.collect_rehearsal_hints(&plan.opened, &prompt);
        let words =
            plan.opened.receipt.user_words().filter_map(|text| self.cached.texts.find_text(text.body)).collect();
        let course = AttemptProgress::new();
        let errand = CallTask {
            shared: self.shared.clone(),
            session: self.session.clone(),
            session_opened_at: self.session().opened_at,
            flow: self.flow.clone(),
            opened: plan.opened.clone(),
            attempt,
            not_before,
            prompt: Arc::new(prompt),
            user_texts: words,
            hints,
            progress: course.clone(),
            commit_gate: self.commit_gate.gate(),
            mailbox_sender: self.mailbox.sender.clone(),
        };
        let model = plan.opened.model.clone();
        let flight =
            InFlightCall { task: tokio::spawn(run_call(errand)), progress: course, model, has_returned: false };
        self.calls.insert((call, attempt), flight);
        Ok(())
    }

    /// Fetches texts, however long that takes: a call that is owed is not forgotten because a disk fails for a moment.
    async fn fetch_texts_with_retry(&mut self, ids: Vec<BodyId>) -> Result<(), SessionLost> {
        let mut wait_ms = WRITE_RETRY_MS_MIN;
        loop {
            match self.fetch_texts(ids.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() => {
                    self.wait_for_store(wait_ms, &error).await;
                    wait_ms = (wait_ms * 2).min(WRITE_RETRY_MS_MAX);
                }
                Err(error) => return Err(SessionLost(error)),
            }
        }
    }

    fn start_tool_run(&mut self, run: ToolRunId) {
        let Some(opened) = self.session().open_tool_runs.get(&run).cloned() else { return };
        let (since, settings) = (self.session().opened_at, (*self.session().settings).clone());
        let request = ToolRequest { session: self.session.clone(), session_opened_at: since, settings, opened };
        let task = tokio::spawn(run_tool(self.shared.clone(), request, self.mailbox.sender.clone()));
        self.tools.insert(run, InFlightTool(task));
    }

    /// Waits while the store takes or gives nothing. Whoever asks for something meanwhile is told why it cannot be done;
    /// what was paid for waits.
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
                () = mailbox.wait_for_drain() => break,
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

/// The task of a tool, which ends when nobody wants it any more.
pub(super) struct InFlightTool(JoinHandle<()>);

impl Drop for InFlightTool {
    fn drop(&mut self) {
        self.0.abort();
    }
}
