//! Acts meet the world here: a model is called, a tool is run, and what comes of it goes back as an input.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use segue_core::decide::Input;
use segue_core::event::CallOpened;
use segue_core::flow::Rules;
use segue_core::ids::{Millis, SessionId};
use segue_core::prompt::{Failure, FailureKind, Prompt, Reply};
use segue_core::scope::Scope;
use segue_core::signal::filter::Filter;
use segue_models::{CallFacts, Chunk, ChunkStream, Growth, Hints, Model, Request, collect};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::late::{Course, bring};
use crate::limits::{ANSWER_MS_MAX, TOOL_MS_MAX};
use crate::registry::Job;
use crate::settled::Settled;
use crate::tools::ToolRequest;

/// How long we wait for an answer where the role is gone from its flow.
const TIMEOUT_MS: u64 = 120_000;

pub(crate) struct CallErrand {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    /// When that session was opened: another of its name was opened at another time.
    pub since: Millis,
    pub rules: Arc<dyn Rules>,
    pub opened: Arc<CallOpened>,
    pub attempt: u32,
    pub not_before: Millis,
    pub prompt: Arc<Prompt>,
    /// What the user said, as far as this call answers it.
    pub words: Vec<Arc<str>>,
    /// What the session knows of how far this has come.
    pub course: Arc<Course>,
    /// Whether its session stands where it seems to stand.
    pub settled: Arc<Settled>,
    /// What a stand-in for a model is told; a vendor's model never is.
    pub hints: Hints,
    pub back: mpsc::Sender<Job>,
}

/// Makes a call and hands back what comes of it.
pub(crate) async fn make_call(errand: CallErrand) {
    let wait_ms = errand.not_before.since(errand.shared.clock.now());
    if wait_ms > 0 {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
    let permit = errand.shared.admit(&errand.opened.model).await;
    if !errand.settled.then(|| errand.course.begin()).await {
        return;
    }
    let started = Instant::now();
    let outcome = AssertUnwindSafe(admitted(&errand)).catch_unwind().await;
    drop(permit);
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (call, attempt) = (errand.opened.call, errand.attempt);
    let input = match outcome {
        Ok(Ok(reply)) => {
            let cost_microusd = cost(&errand, &reply);
            Input::Answer { call, attempt, reply, cost_microusd, ms }
        }
        Ok(Err(failure)) => Input::Failure { call, attempt, failure: priced(&errand, failure) },
        Err(_) => {
            let failure = Failure::new(FailureKind::BadRequest, "the model's adapter broke down on this call");
            Input::Failure { call, attempt, failure }
        }
    };
    if errand.course.end() {
        return bring(errand.shared, (errand.session, errand.since), (call, attempt), input).await;
    }
    // A session that ended meanwhile takes the call up again when it is opened.
    let _ = errand.back.send(Job::quiet(input)).await;
}

fn cost(errand: &CallErrand, reply: &Reply) -> Option<u64> {
    let card = errand.shared.models.card(&errand.opened.model).ok()?;
    card.cost_of_both(reply.usage?, reply.sent_back)
}

/// A failure with the cost of what it took all the same.
fn priced(errand: &CallErrand, mut failure: Failure) -> Failure {
    if let Some(spent) = &mut failure.spent {
        let card = errand.shared.models.card(&errand.opened.model).ok();
        spent.cost_microusd = card.and_then(|card| card.cost_of_lost(spent.usage));
    }
    failure
}

/// Makes the call, unless its provider is left alone.
async fn admitted(errand: &CallErrand) -> Result<Reply, Failure> {
    let model = errand.shared.models.get(&errand.opened.model)?;
    let Some(provider) = model.provider() else { return answer(errand, &*model, || {}).await };
    let mut leave = errand.shared.breaker.leave(provider)?;
    let outcome = answer(errand, &*model, || leave.answers()).await;
    leave.ended(&outcome);
    outcome
}

/// Makes the call; `begun` hears of every chunk.
async fn answer(errand: &CallErrand, model: &dyn Model, mut begun: impl FnMut()) -> Result<Reply, Failure> {
    let opened = &errand.opened;
    let facts = CallFacts {
        session: errand.session.clone(),
        flow: errand.rules.spec().name.clone(),
        role: opened.role.clone(),
        ask: opened.ask.clone(),
        agent: opened.agent.clone(),
        peer: opened.peer.clone(),
        phase: opened.phase.clone(),
        turn: opened.turn,
        call: opened.call,
        attempt: errand.attempt,
        hints: errand.hints.clone(),
    };
    let role = errand.rules.spec().roles.get(&opened.role);
    let heard = role.filter(|_| opened.recomputes.is_none());
    let heard = heard.and_then(|role| role.heard(&opened.ask));
    let mut heard = heard.map(|blocks| Filter::beside(blocks.clone(), &errand.words));
    let show = |text: String| {
        if !text.is_empty() {
            errand.shared.hub.words(&errand.session, (opened.call, errand.attempt), &text, &errand.course.heard);
        }
    };
    let growth = match role {
        Some(role) if role.scope == Scope::Fresh => Growth::Ends,
        Some(_) | None => Growth::Grows,
    };
    let prompt_tokens = opened.receipt.vendor_tokens();
    let stream = model.stream(Request { prompt: errand.prompt.clone(), prompt_tokens, growth, call: facts });
    let silence_ms = errand.shared.pace.silence_ms_max(&opened.model);
    let silence_ms = silence_ms.or(role.map(|role| role.timeout_ms)).unwrap_or(TIMEOUT_MS);
    let reading = collect(unless_silent(stream, silence_ms), |chunk| {
        begun();
        if let (Chunk::Text(text), Some(filter)) = (chunk, heard.as_mut()) {
            show(filter.push(text));
        }
    });
    let reply = match tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), reading).await {
        Ok(reply) => reply?,
        Err(_) => return Err(timed_out(format!("no whole answer within {} s", ANSWER_MS_MAX / 1_000)).after(None)),
    };
    if let Some(filter) = heard {
        show(filter.finish());
    }
    Ok(reply)
}

/// The stream, given up when nothing comes for too long. A long answer that keeps coming is not.
fn unless_silent(stream: ChunkStream, silence_ms: u64) -> ChunkStream {
    let silence = Duration::from_millis(silence_ms);
    let seconds = silence_ms / 1_000;
    stream::unfold((Some(stream), false), move |(stream, has_begun)| async move {
        let mut stream = stream?;
        match tokio::time::timeout(silence, stream.next()).await {
            Ok(item) => Some((item?, (Some(stream), true))),
            Err(_) if has_begun => {
                let failure = timed_out(format!("silent for {seconds} s in the middle of its answer")).after(None);
                Some((Err(failure), (None, true)))
            }
            Err(_) => Some((Err(timed_out(format!("no answer within {seconds} s"))), (None, false))),
        }
    })
    .boxed()
}

fn timed_out(message: String) -> Failure {
    Failure::new(FailureKind::Timeout, message)
}

/// Runs a tool and hands back what comes of it.
pub(crate) async fn run_tool(shared: Arc<Shared>, request: ToolRequest, back: mpsc::Sender<Job>) {
    let run = request.opened.run;
    let running = AssertUnwindSafe(shared.tools.run(request)).catch_unwind();
    let result = match tokio::time::timeout(Duration::from_millis(TOOL_MS_MAX), running).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the tool broke down".to_owned()),
        Err(_) => Err(format!("the tool did not answer within {} s and was stopped", TOOL_MS_MAX / 1_000)),
    };
    let _ = back.send(Job::quiet(Input::ToolResult { run, result })).await;
}
