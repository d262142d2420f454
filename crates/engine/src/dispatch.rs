//! Acts meet the world here: a model is called, a tool is run, and what comes of it goes back as an input.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use segue_core::decide::SessionInput;
use segue_core::event::CallOpened;
use segue_core::flow::DynFlow;
use segue_core::ids::{SessionId, UnixMillis};
use segue_core::prompt::{CallFailure, FailureKind, ModelReply, Prompt};
use segue_core::scope::Scope;
use segue_core::signal::stream_filter::BlockStreamFilter;
use segue_models::{
    CallMetadata, LanguageModel, ModelRequest, PromptCaching, RehearsalHints, ReplyChunk, ReplyChunkStream,
    collect_reply,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::abandoned_calls::{AttemptProgress, deliver_late_result};
use crate::commit_gate::CommitGate;
use crate::engine::EngineShared;
use crate::limits::{ANSWER_MS_MAX, TOOL_RUN_MS_MAX};
use crate::registry::ActorMessage;
use crate::tools::ToolRequest;

/// How long we wait for an answer where the role is gone from its flow.
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

pub(crate) struct CallTask {
    pub shared: Arc<EngineShared>,
    pub session: SessionId,
    /// When that session was opened: another of its name was opened at another time.
    pub session_opened_at: UnixMillis,
    pub flow: Arc<dyn DynFlow>,
    pub opened: Arc<CallOpened>,
    pub attempt: u32,
    pub not_before: UnixMillis,
    pub prompt: Arc<Prompt>,
    /// What the user said, as far as this call answers it.
    pub user_texts: Vec<Arc<str>>,
    /// What the session knows of how far this has come.
    pub progress: Arc<AttemptProgress>,
    /// Whether its session stands where it seems to stand.
    pub commit_gate: Arc<CommitGate>,
    /// What a stand-in for a model is told; a vendor's model never is.
    pub hints: RehearsalHints,
    pub mailbox_sender: mpsc::Sender<ActorMessage>,
}

/// Makes a call and hands back what comes of it.
pub(crate) async fn run_call(task: CallTask) {
    let wait_ms = task.not_before.ms_since(task.shared.clock.now());
    if wait_ms > 0 {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
    let permit = task.shared.acquire_model_permit(&task.opened.model).await;
    if !task.commit_gate.run_when_clear(|| task.progress.mark_started()).await {
        return;
    }
    let started = Instant::now();
    let outcome = AssertUnwindSafe(call_through_breaker(&task)).catch_unwind().await;
    drop(permit);
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (call, attempt) = (task.opened.call, task.attempt);
    let input = match outcome {
        Ok(Ok(reply)) => {
            let cost_microusd = compute_reply_cost(&task, &reply);
            SessionInput::Answer { call, attempt, reply, cost_microusd, duration_ms: ms }
        }
        Ok(Err(failure)) => SessionInput::CallFailure { call, attempt, failure: add_failure_cost(&task, failure) },
        Err(_) => {
            let failure = CallFailure::new(FailureKind::BadRequest, "the model's adapter broke down on this call");
            SessionInput::CallFailure { call, attempt, failure }
        }
    };
    if task.progress.mark_returned() {
        return deliver_late_result(task.shared, (task.session, task.session_opened_at), (call, attempt), input).await;
    }
    // A session that ended meanwhile takes the call up again when it is opened.
    let _ = task.mailbox_sender.send(ActorMessage::without_reply(input)).await;
}

fn compute_reply_cost(task: &CallTask, reply: &ModelReply) -> Option<u64> {
    let card = task.shared.models.card(&task.opened.model).ok()?;
    card.cost_with_rejected_reply(reply.usage?, reply.rejected_usage)
}

/// A failure with the cost of what it took all the same.
fn add_failure_cost(task: &CallTask, mut failure: CallFailure) -> CallFailure {
    if let Some(spent) = &mut failure.cost {
        let card = task.shared.models.card(&task.opened.model).ok();
        spent.cost_microusd = card.and_then(|card| card.cost_of_failed_call(spent.usage));
    }
    failure
}

/// Makes the call, unless its provider is left alone.
async fn call_through_breaker(task: &CallTask) -> Result<ModelReply, CallFailure> {
    let model = task.shared.models.get(&task.opened.model)?;
    let Some(provider) = model.provider() else { return stream_reply(task, &*model, || {}).await };
    let mut leave = task.shared.circuit_breaker.try_acquire(provider)?;
    let outcome = stream_reply(task, &*model, || leave.mark_reachable()).await;
    leave.record_outcome(&outcome);
    outcome
}

/// Makes the call; `begun` hears of every chunk.
async fn stream_reply(
    task: &CallTask,
    model: &dyn LanguageModel,
    mut on_chunk: impl FnMut(),
) -> Result<ModelReply, CallFailure> {
    let opened = &task.opened;
    let facts = CallMetadata {
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
    let heard = role.filter(|_| opened.recomputation.is_none());
    let heard = heard.and_then(|role| role.hidden_blocks(&opened.ask));
    let mut heard = heard.map(|blocks| BlockStreamFilter::ignoring_quotes(blocks.clone(), &task.user_texts));
    let show = |text: String| {
        if !text.is_empty() {
            task.shared.subscriptions.publish_text(
                &task.session,
                (opened.call, task.attempt),
                &text,
                &task.progress.is_wanted,
            );
        }
    };
    let growth = match role {
        Some(role) if role.scope == Scope::Fresh => PromptCaching::SystemOnly,
        Some(_) | None => PromptCaching::WholePrompt,
    };
    let prompt_tokens = opened.receipt.vendor_tokens();
    let stream =
        model.stream(ModelRequest { prompt: task.prompt.clone(), prompt_tokens, caching: growth, metadata: facts });
    let silence_ms = task.shared.rate_limiter.silence_ms_max(&opened.model);
    let silence_ms = silence_ms.or(role.map(|role| role.timeout_ms)).unwrap_or(DEFAULT_TIMEOUT_MS);
    let reading = collect_reply(with_idle_timeout(stream, silence_ms), |chunk| {
        on_chunk();
        if let (ReplyChunk::Text(text), Some(filter)) = (chunk, heard.as_mut()) {
            show(filter.push(text));
        }
    });
    let reply = match tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), reading).await {
        Ok(reply) => reply?,
        Err(_) => {
            return Err(timeout_failure(format!("no whole answer within {} s", ANSWER_MS_MAX / 1_000)).with_usage(None));
        }
    };
    if let Some(filter) = heard {
        show(filter.finish());
    }
    Ok(reply)
}

/// The stream, given up when nothing comes for too long. A long answer that keeps coming is not.
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
    CallFailure::new(FailureKind::Timeout, message)
}

/// Runs a tool and hands back what comes of it.
pub(crate) async fn run_tool(shared: Arc<EngineShared>, request: ToolRequest, back: mpsc::Sender<ActorMessage>) {
    let run = request.opened.run;
    let running = AssertUnwindSafe(shared.tools.run_tool(request)).catch_unwind();
    let result = match tokio::time::timeout(Duration::from_millis(TOOL_RUN_MS_MAX), running).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the tool broke down".to_owned()),
        Err(_) => Err(format!("the tool did not answer within {} s and was stopped", TOOL_RUN_MS_MAX / 1_000)),
    };
    let _ = back.send(ActorMessage::without_reply(SessionInput::ToolResult { run, result })).await;
}
