//! `segue send`: sends one message and prints the reply. Also the JSON form of a finished turn.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use segue_core::decide::OperatorCommand;
use segue_core::event::{ToolRunHoldReason, TurnOutcome};
use segue_core::ids::{CallId, SessionId, ToolRunId};
use segue_core::session::UsageTotals;
use segue_engine::{Engine, Error, SessionOptions, UserMessage};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, SendMessageArgs, SessionAndReplySourceArgs};
use crate::follow::{
    FollowedCall, FollowedCallOutcome, FollowedTurnResult, LiveTurnOutputMode, SessionFollowOutcome, SessionFollower,
    blocking_tool_run, sum_call_usage,
};
use crate::limits::STDIN_BYTES_MAX;
use crate::print::{self, stderr_paint};
use crate::setup::{EngineStartOptions, EngineWithSessionDefaults, start_engine};
use crate::{SilentExit, image, name_lookup, setting_values};

/// The exit code of a program that was interrupted by Ctrl-C.
pub(crate) const EXIT_CODE_INTERRUPTED: u8 = 130;

pub(crate) async fn run_send(global: &GlobalArgs, arguments: SendMessageArgs) -> anyhow::Result<()> {
    let text = read_message(&arguments.message)?;
    let images = arguments.image.iter().map(|file| image::load_image(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let running = start_engine(global, EngineStartOptions::for_session_args(&arguments.session_args)).await?;
    running.print_rehearsal_warning();
    let (session, is_new) = find_or_open_session(&running, &arguments.session_args).await?;
    let engine = &running.engine;
    let idempotency_key = arguments.idempotency_key.clone().map(Into::into);
    let message = UserMessage { idempotency_key, images, ..UserMessage::from(text) };
    let live = super::session_actions::live_output_for(global);
    let outcome = match send_and_follow(engine, &session, message, live).await {
        Err(error) if is_new && matches!(error.downcast_ref(), Some(Error::Refused(_))) => {
            // A refused first message leaves no empty session behind.
            engine.delete_session(&session).await?;
            return Err(error);
        }
        outcome => outcome?,
    };
    match outcome {
        SessionFollowOutcome::TurnFinished(turn) => {
            let (_, state) = engine.load_session(&session).await?;
            engine.shutdown().await;
            if global.json {
                print::print_json(&turn_json(
                    &session,
                    &turn,
                    &state.session.phases_label(),
                    running.uses_rehearsal_model(),
                ))?;
            } else if live == LiveTurnOutputMode::Off && !turn.replies.is_empty() {
                print::write_stdout(&format!("{}\n", turn.replies.join("\n\n")))?;
            }
            for warning in turn.calls.iter().filter_map(FollowedCall::truncation_warning) {
                print::write_stderr_line(&stderr_paint().warning(&warning));
            }
            check_turn_outcome(&turn.outcome)
        }
        SessionFollowOutcome::AwaitingOperator(call) => Err(awaiting_operator_error(engine, &session, call).await),
        SessionFollowOutcome::AwaitingToolDecision(run) => {
            Err(awaiting_tool_decision_error(engine, &session, run).await)
        }
        SessionFollowOutcome::Interrupted(turn) => {
            if turn.is_some() {
                engine.apply_command(&session, OperatorCommand::Cancel { turn }).await?;
                print::write_stderr_line(&format!("cancelled the turn; the session is `{session}`"));
            } else {
                print::write_stderr_line(&format!(
                    "stopped waiting; the message is saved and will be answered when session `{session}` is used next"
                ));
            }
            engine.store().close().await?;
            Err(SilentExit(EXIT_CODE_INTERRUPTED).into())
        }
    }
}

/// Finds or creates the session of a message. Returns `true` with a session that was created.
async fn find_or_open_session(
    running: &EngineWithSessionDefaults,
    session_args: &SessionAndReplySourceArgs,
) -> anyhow::Result<(SessionId, bool)> {
    let engine = &running.engine;
    let flow = session_args.flow.as_deref().map(|flow| name_lookup::resolve_flow(engine, flow)).transpose()?;
    if let Some(name) = &session_args.session
        && let Some(session) = name_lookup::find_session(engine, name).await?
    {
        if !session_args.set.is_empty() {
            bail!("{}", setting_values::settings_fixed_message(&session));
        }
        if let Some(flow) = flow {
            let (session_flow, _) = engine.load_session(&session).await?;
            let name = &session_flow.spec().name;
            if *name != flow {
                bail!("session `{session}` uses flow `{name}`, not `{flow}`; omit --flow, or start another session");
            }
        }
        return Ok((session, false));
    }
    let flow = flow.unwrap_or_else(|| running.default_flow.clone());
    let settings = setting_values::parse_new_session_settings(engine, &flow, &session_args.set)?;
    let options = SessionOptions {
        session: session_args.session.as_deref().map(Into::into),
        mid_turn_policy: running.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    let session = engine.open_session(&flow, options).await?;
    Ok((session, true))
}

async fn send_and_follow(
    engine: &Engine,
    session: &SessionId,
    message: UserMessage,
    live: LiveTurnOutputMode,
) -> anyhow::Result<SessionFollowOutcome> {
    let (_, before) = engine.load_session(session).await?;
    let before = &before.session;
    let id = engine.send_message(session, message).await?;
    if let Some((call, _)) = before.calls_awaiting_operator().next() {
        return Ok(SessionFollowOutcome::AwaitingOperator(*call));
    }
    if let Some(run) = blocking_tool_run(before) {
        return Ok(SessionFollowOutcome::AwaitingToolDecision(run));
    }
    // A message that repeats an idempotency key was answered earlier, so the whole journal is read.
    let after = if id > before.last_ids.message { before.last_seq } else { segue_core::ids::Seq(0) };
    SessionFollower::start_after(engine, session, after, live).await?.follow_message(id).await
}

/// Returns the text of a message; `-` reads it from standard input.
pub(super) fn read_message(message: &str) -> anyhow::Result<String> {
    if message == "-" { read_message_from_stdin() } else { Ok(message.to_owned()) }
}

fn read_message_from_stdin() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        print::write_stderr_line("reading the message from the terminal; Ctrl-D ends it");
    }
    let mut bytes = Vec::new();
    stdin.lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        bail!("standard input has more than {STDIN_BYTES_MAX} bytes, which is too long for a message");
    }
    let mut text = String::from_utf8(bytes).context("the message on standard input is not UTF-8")?;
    let end = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text).len());
    text.truncate(end.unwrap_or(text.len()));
    Ok(text)
}

/// Returns the error for a session that is blocked until an operator decides about a call.
pub(crate) async fn awaiting_operator_error(engine: &Engine, session: &SessionId, call: CallId) -> anyhow::Error {
    // The error may be dropped: the session is blocked, so no write is pending.
    let _ = engine.store().close().await;
    anyhow::anyhow!(
        "{call} was in flight when the process died and may have been billed; continue with `segue resolve {session} {call} retry` \
         or `segue resolve {session} {call} fail`"
    )
}

/// Returns the error for a session that is blocked until a person decides about a tool run.
pub(crate) async fn awaiting_tool_decision_error(
    engine: &Engine,
    session: &SessionId,
    run: ToolRunId,
) -> anyhow::Error {
    let state = match engine.load_session(session).await {
        Ok((_, state)) => state.session,
        Err(error) => return error.into(),
    };
    // The error may be dropped: the session is blocked, so no write is pending.
    let _ = engine.store().close().await;
    let opened = state.open_tool_runs.get(&run);
    let what = opened.map(|opened| format!("{} {}", opened.tool, opened.arguments)).unwrap_or_default();
    match state.held_tool_runs.get(&run).map(|held| held.reason) {
        Some(ToolRunHoldReason::UnknownOutcome) => anyhow::anyhow!(
            "{run} ({what}) was in progress when the process died and may have taken effect; continue with \
             `segue resolve {session} {run} retry`, `… fail` or `… done --text RESULT`"
        ),
        Some(ToolRunHoldReason::ClientResult) => anyhow::anyhow!(
            "{run} waits for the program that offered this tool: {what}; `segue cancel {session}` ends the turn"
        ),
        Some(ToolRunHoldReason::Approval) | None => anyhow::anyhow!(
            "{run} waits for your approval: {what}; `segue approve {session} {run}` runs it, \
             `segue deny {session} {run}` refuses it"
        ),
    }
}

/// Returns an error if the turn did not complete.
pub(crate) fn check_turn_outcome(outcome: &TurnOutcome) -> anyhow::Result<()> {
    match outcome {
        TurnOutcome::Done => Ok(()),
        TurnOutcome::Failed { reason } => bail!("the turn failed: {reason}"),
        TurnOutcome::Cancelled => bail!("the turn was cancelled"),
        TurnOutcome::Interrupted => bail!("the turn was interrupted by another message"),
    }
}

/// Returns a finished turn as JSON.
pub(crate) fn turn_json(session: &SessionId, turn: &FollowedTurnResult, phase: &str, rehearsal: bool) -> Value {
    let (outcome, reason) = match &turn.outcome {
        TurnOutcome::Done => ("done", None),
        TurnOutcome::Failed { reason } => ("failed", Some(reason)),
        TurnOutcome::Cancelled => ("cancelled", None),
        TurnOutcome::Interrupted => ("interrupted", None),
    };
    json!({
        "session": session,
        "turn": turn.turn.to_string(),
        "outcome": outcome,
        "reason": reason,
        "reply": turn.replies.join("\n\n"),
        "replies": turn.replies,
        "phase": phase,
        "calls": turn.calls.iter().map(call_json).collect::<Vec<_>>(),
        "usage": usage_json(&sum_call_usage(&turn.calls)),
        "rehearsal": rehearsal,
    })
}

fn call_json(call: &FollowedCall) -> Value {
    let mut value = json!({
        "call": call.call.to_string(),
        "role": call.role,
        "model": call.model,
        "failed_attempts": call.lost_attempts.failed_attempts,
        "unknown_attempts": call.lost_attempts.unknown_attempts,
    });
    let outcome = match &call.outcome {
        FollowedCallOutcome::Open => json!({ "outcome": "open" }),
        FollowedCallOutcome::Failed(reason) => json!({ "outcome": "failed", "reason": reason }),
        FollowedCallOutcome::Cancelled { reason, .. } => {
            json!({ "outcome": "failed", "reason": format!("cancelled: {reason}") })
        }
        FollowedCallOutcome::Answered { usage, usage_source, cost_microusd, duration_ms, stop_reason } => json!({
            "outcome": "answered",
            "tokens_in": usage.input_tokens,
            "tokens_out": usage.output_tokens,
            "tokens_cached": usage.cached_tokens,
            "usage_source": usage_source,
            "cost_microusd": cost_microusd,
            "duration_ms": duration_ms,
            "stop_reason": stop_reason,
        }),
    };
    if let (Value::Object(value), Value::Object(outcome)) = (&mut value, outcome) {
        value.extend(outcome);
    }
    value
}

/// Returns the total usage of several calls as JSON.
pub(crate) fn usage_json(totals: &UsageTotals) -> Value {
    json!({
        "calls": totals.answered_calls,
        "failed_attempts": totals.failed_attempts,
        "unknown_attempts": totals.unknown_attempts,
        "tokens_in": totals.input_tokens,
        "tokens_out": totals.output_tokens,
        "tokens_cached": totals.cached_tokens,
        "cost_microusd": totals.exact_cost_microusd(),
    })
}
