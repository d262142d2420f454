//! Performs effects: calls a model or runs a tool, and sends the result back to the session as an input.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use segue_core::decide::SessionInput;
use segue_core::event::CallOpened;
use segue_core::flow::{DynFlow, UnknownOutcomePolicy};
use segue_core::ids::{LeaseEpoch, SessionId, ToolRunId, UnixMillis};
use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply, Prompt};
use segue_core::scope::Scope;
use segue_core::signal::BlockStreamFilter;
use segue_core::tool::ToolResult;
use segue_models::{
    CacheablePromptPart, LanguageModel, ModelCallOrigin, ModelRequest, RehearsalHints, ReplyChunk, ReplyChunkStream,
    collect_reply,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::abandoned_calls::{SharedCallAttemptState, deliver_late_result};
use crate::commit_gate::CallStartGate;
use crate::engine::EngineShared;
use crate::limits::{ANSWER_MS_MAX, TOOL_PROGRESS_MS_MIN};
use crate::registry::ActorMessage;
use crate::repetition_guard::with_repetition_guard;
use crate::tools::{ToolInvocation, ToolRunContext};

/// How long to wait for an answer if the flow no longer has the role.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

pub(crate) struct CallTask {
    pub shared: Arc<EngineShared>,
    pub session: SessionId,
    /// When the session was opened; tells it from another session of the same name.
    pub session_opened_at: UnixMillis,
    pub flow: Arc<dyn DynFlow>,
    pub opened: Arc<CallOpened>,
    pub attempt: u32,
    pub not_before: UnixMillis,
    pub prompt: Arc<Prompt>,
    /// The user's texts that this call answers.
    pub foreign_texts: Vec<Arc<str>>,
    pub progress: Arc<SharedCallAttemptState>,
    pub commit_gate: Arc<CallStartGate>,
    /// Hints for the rehearsal model; models of a vendor never get them.
    pub hints: RehearsalHints,
    pub mailbox_sender: mpsc::Sender<ActorMessage>,
}

/// Makes a call and sends its result to the session.
pub(crate) async fn run_call(task: CallTask) {
    let wait_ms = task.not_before.ms_since(task.shared.clock.now());
    if wait_ms > 0 {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
    // The policy may wait for a database. The lease may be lost meanwhile, so it is asked before anything is in flight.
    let allowed = task.shared.call_policy.check_call(&task.session, &task.opened.model).await;
    let permit = task.shared.acquire_model_permit(&task.opened.model).await;
    task.shared.leases.wait_until_leases_certain().await;
    if !task.commit_gate.run_when_clear(|| task.progress.mark_in_flight()).await {
        return;
    }
    let started = Instant::now();
    let outcome = match allowed {
        Ok(()) => {
            tracing::debug!(session = %task.session, call = %task.opened.call, attempt = task.attempt, "calling the model");
            AssertUnwindSafe(call_through_breaker(&task)).catch_unwind().await
        }
        Err(failure) => Ok(Err(failure)),
    };
    drop(permit);
    let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (call, attempt) = (task.opened.call, task.attempt);
    let input = match outcome {
        Ok(Ok(reply)) => {
            let cost_microusd = compute_reply_cost(&task, &reply);
            SessionInput::Answer { call, attempt, reply, cost_microusd, duration_ms }
        }
        Ok(Err(failure)) => SessionInput::CallFailure { call, attempt, failure: add_failure_cost(&task, failure) },
        Err(_) => {
            tracing::error!(session = %task.session, %call, attempt, "the model adapter panicked; this is a bug");
            let failure = CallFailure::new(CallFailureKind::BadRequest, "the model adapter panicked on this call");
            SessionInput::CallFailure { call, attempt, failure }
        }
    };
    if task.progress.mark_returned_and_check_abandoned() {
        return deliver_late_result(task.shared, (task.session, task.session_opened_at), (call, attempt), input).await;
    }
    // If the session's task has ended, the call is started again when the session is resumed.
    let _ = task.mailbox_sender.send(ActorMessage::without_reply(input)).await;
}

fn compute_reply_cost(task: &CallTask, reply: &ModelReply) -> Option<u64> {
    // The cost of a model that was removed is unknown.
    let card = task.shared.models.card(&task.opened.model).ok()?;
    card.cost_with_rejected_reply(reply.usage?, reply.rejected_usage)
}

/// Adds the price of the tokens that a failed call used.
fn add_failure_cost(task: &CallTask, mut failure: CallFailure) -> CallFailure {
    if let Some(cost) = &mut failure.cost {
        // The cost of a model that was removed is unknown.
        let card = task.shared.models.card(&task.opened.model).ok();
        cost.cost_microusd = card.and_then(|card| card.cost_of_failed_call(cost.usage));
    }
    failure
}

/// Makes the call, unless the provider's circuit breaker is open.
async fn call_through_breaker(task: &CallTask) -> Result<ModelReply, CallFailure> {
    let model = task.shared.models.get(&task.opened.model)?;
    let Some(provider) = model.failure_domain() else { return stream_reply(task, &*model, || {}).await };
    tracing::Span::current().record("provider", provider);
    let mut permit = task.shared.circuit_breaker.try_acquire(provider)?;
    let outcome = stream_reply(task, &*model, || permit.mark_reachable()).await;
    permit.record_outcome(&outcome);
    outcome
}

/// Streams the reply and publishes its visible text. Calls `on_chunk` for every chunk.
async fn stream_reply(
    task: &CallTask,
    model: &dyn LanguageModel,
    mut on_chunk: impl FnMut(),
) -> Result<ModelReply, CallFailure> {
    let opened = &task.opened;
    let metadata = ModelCallOrigin {
        session: task.session.clone(),
        flow: task.flow.spec().name.clone(),
        role: opened.role.clone(),
        ask: opened.ask.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone(),
        phase: opened.phase.clone(),
        turn: opened.turn,
        call: opened.call,
        attempt: task.attempt,
        hints: task.hints.clone(),
    };
    let role = task.flow.spec().roles.get(&opened.role);
    let visible_filter = role.filter(|_| opened.recomputation.is_none());
    let visible_filter = visible_filter.and_then(|role| role.hidden_blocks(&opened.ask));
    let mut visible_filter =
        visible_filter.map(|blocks| BlockStreamFilter::ignoring_quotes(blocks.clone(), &task.foreign_texts));
    let publish = |text: String| {
        if !text.is_empty() {
            task.shared.subscriptions.publish_text(
                &task.session,
                (opened.call, task.attempt),
                &text,
                &task.progress.is_wanted,
            );
        }
    };
    let caching = match role {
        Some(role) if role.scope == Scope::Fresh => CacheablePromptPart::SystemOnly,
        Some(_) | None => CacheablePromptPart::WholePrompt,
    };
    let prompt_tokens = opened.receipt.vendor_tokens_estimate.unwrap_or(opened.receipt.tokens);
    let stream = model.stream(ModelRequest { prompt: task.prompt.clone(), prompt_tokens, caching, metadata });
    let silence_ms = task.shared.rate_limiter.silence_ms_max(&opened.model);
    let silence_ms = silence_ms.or(role.map(|role| role.timeout_ms)).unwrap_or(DEFAULT_TIMEOUT_MS);
    let collecting = collect_reply(with_repetition_guard(with_idle_timeout(stream, silence_ms)), |chunk| {
        on_chunk();
        if let (ReplyChunk::Text(text), Some(filter)) = (chunk, visible_filter.as_mut()) {
            publish(filter.push(text));
        }
    });
    let reply = match tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), collecting).await {
        Ok(reply) => reply?,
        Err(_) => {
            return Err(
                timeout_failure(format!("no complete answer within {} s", ANSWER_MS_MAX / 1_000)).with_usage(None)
            );
        }
    };
    if let Some(filter) = visible_filter {
        publish(filter.finish());
    }
    Ok(reply)
}

/// Ends the stream with an error if no chunk arrives for `silence_ms`. A long answer that keeps streaming is fine.
fn with_idle_timeout(stream: ReplyChunkStream, silence_ms: u64) -> ReplyChunkStream {
    let silence = Duration::from_millis(silence_ms);
    let seconds = silence_ms / 1_000;
    stream::unfold((Some(stream), false), move |(stream, has_begun)| async move {
        let mut stream = stream?;
        match tokio::time::timeout(silence, stream.next()).await {
            Ok(item) => Some((item?, (Some(stream), true))),
            Err(_) if has_begun => {
                let failure =
                    timeout_failure(format!("silent for {seconds} s in the middle of its answer")).with_usage(None);
                Some((Err(failure), (None, true)))
            }
            Err(_) => Some((Err(timeout_failure(format!("no answer within {seconds} s"))), (None, false))),
        }
    })
    .boxed()
}

fn timeout_failure(message: String) -> CallFailure {
    CallFailure::new(CallFailureKind::Timeout, message)
}

pub(crate) struct ToolTask {
    pub shared: Arc<EngineShared>,
    pub flow: Arc<dyn DynFlow>,
    pub request: ToolInvocation,
    pub lease_epoch: LeaseEpoch,
    pub mailbox_sender: mpsc::Sender<ActorMessage>,
}

/// Runs a tool, publishes its progress, and sends its result to the session.
pub(crate) async fn run_tool(task: ToolTask) {
    let ToolTask { shared, flow, request, lease_epoch, mailbox_sender } = task;
    let (session, run) = (request.session.clone(), request.opened.run);
    let declaration = flow.spec().tools.get(&request.opened.tool);
    // A tool that may be run again changes nothing that matters.
    let changes_something = declaration.is_none_or(|tool| tool.unknown_outcome != UnknownOutcomePolicy::Retry);
    let (context, progress) = ToolRunContext::new(declaration, lease_epoch);
    shared.leases.wait_until_leases_certain().await;
    let run_ms_max = context.run_ms_max;
    // Also cancels if this future is dropped.
    let cancel_on_drop = context.cancellation.clone().drop_guard();
    let running = AssertUnwindSafe(shared.tools.run_tool(request, context)).catch_unwind();
    let running = tokio::time::timeout(Duration::from_millis(run_ms_max), running);
    let result = tokio::select! {
        biased;
        ended = running => match ended {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                tracing::error!(%session, %run, "the tool panicked; this is a bug");
                ToolResult::failed("the tool panicked")
            }
            Err(_) => {
                tracing::warn!(%session, %run, run_ms_max, "the tool did not answer and was stopped");
                ToolResult::failed(describe_timeout(run_ms_max))
            }
        },
        never = publish_progress(&shared, &session, run, progress) => match never {},
        () = shared.leases.wait_until_leases_expired(), if changes_something => {
            tracing::warn!(%session, %run, "the tool was stopped, because the lease of the session may be lost");
            ToolResult::failed("the tool was stopped, because the store could not be reached; its outcome is unknown")
        }
    };
    drop(cancel_on_drop);
    // If the session's task has ended, the run is resumed or its outcome is unknown when the session is resumed.
    let _ = mailbox_sender.send(ActorMessage::without_reply(SessionInput::ToolResult { run, result })).await;
}

fn describe_timeout(run_ms_max: u64) -> String {
    format!("the tool did not answer within {} s and was stopped", run_ms_max.div_ceil(1_000))
}

/// Publishes the newest progress report of a run, at a bounded rate, until it is dropped.
async fn publish_progress(
    shared: &EngineShared,
    session: &SessionId,
    run: ToolRunId,
    mut latest: watch::Receiver<Arc<str>>,
) -> Infallible {
    loop {
        if latest.changed().await.is_err() {
            // The tool dropped its context and reports nothing more.
            std::future::pending::<()>().await;
        }
        let text = latest.borrow_and_update().clone();
        shared.subscriptions.publish_tool_progress(session, run, text);
        tokio::time::sleep(Duration::from_millis(TOOL_PROGRESS_MS_MIN)).await;
    }
}
