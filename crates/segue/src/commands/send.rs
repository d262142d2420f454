//! One message, one reply: for scripts, and for whoever has only one question.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use segue_core::decide::OperatorCommand;
use segue_core::event::TurnResult;
use segue_core::ids::{CallId, SessionId};
use segue_core::ledger::UsageTotals;
use segue_engine::{Engine, Error, SessionOptions, UserMessage};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, SendArgs, SessionArgs};
use crate::follow::{
    FinishedTurn, FollowOutcome, FollowedCall, FollowedCallOutcome, LiveOutput, SessionFollower, sum_call_usage,
};
use crate::limits::STDIN_BYTES_MAX;
use crate::print::{self, stderr_paint};
use crate::setup::{EngineStartOptions, RunningEngine, start_engine};
use crate::{SilentExit, image, name_lookup, setting_values};

/// The code a program ends with that was interrupted.
pub const EXIT_CODE_INTERRUPTED: u8 = 130;

pub async fn run_send(global: &GlobalArgs, arguments: SendArgs) -> anyhow::Result<()> {
    let text = if arguments.message == "-" { read_message_from_stdin()? } else { arguments.message.clone() };
    let images = arguments.image.iter().map(|file| image::load_image(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let running = start_engine(global, EngineStartOptions::for_session_args(&arguments.session_args)).await?;
    if running.uses_rehearsal_model {
        print::write_stderr_line(&stderr_paint().warning(crate::commands::REHEARSAL_WARNING));
    }
    let (session, is_new) = find_or_open_session(&running, &arguments.session_args).await?;
    let engine = &running.engine;
    let message =
        UserMessage { idempotency_key: arguments.key.clone().map(Into::into), images, ..UserMessage::from(text) };
    let live = super::session_actions::live_output_for(global);
    let end = match send_and_follow(engine, &session, message, live).await {
        Err(error) if is_new && matches!(error.downcast_ref(), Some(Error::Refused(_))) => {
            // Nothing was said in it, so it is not begun.
            engine.delete_session(&session).await?;
            return Err(error);
        }
        end => end?,
    };
    match end {
        FollowOutcome::TurnFinished(turned) => {
            let (_, state) = engine.load_session(&session).await?;
            engine.shutdown().await;
            if global.json {
                print::print_json(&turn_json(
                    &session,
                    &turned,
                    &state.session.phases_label(),
                    running.uses_rehearsal_model,
                ))?;
            } else if live == LiveOutput::Off && !turned.replies.is_empty() {
                print::write_stdout(&format!("{}\n", turned.replies.join("\n\n")))?;
            }
            for shortfall in turned.calls.iter().filter_map(FollowedCall::truncation_warning) {
                print::write_stderr_line(&stderr_paint().warning(&shortfall));
            }
            check_turn_outcome(&turned.outcome)
        }
        FollowOutcome::AwaitingOperator(call) => Err(awaiting_operator_error(engine, &session, call).await),
        FollowOutcome::Interrupted(turn) => {
            if turn.is_some() {
                engine.apply_command(&session, OperatorCommand::Cancel).await?;
                print::write_stderr_line(&format!("stopped; the session is `{session}`"));
            } else {
                print::write_stderr_line(&format!(
                    "not waited for; the message is kept, and `segue send --session {session}` goes on with it"
                ));
            }
            engine.store().close().await?;
            Err(SilentExit(EXIT_CODE_INTERRUPTED).into())
        }
    }
}

/// The session to speak in, and whether it was begun for this.
async fn find_or_open_session(
    running: &RunningEngine,
    session_args: &SessionArgs,
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
            let (rules, _) = engine.load_session(&session).await?;
            let its = &rules.spec().name;
            if *its != flow {
                bail!(
                    "the session `{session}` is of the flow `{its}`, not `{flow}`; leave --flow out, or begin another"
                );
            }
        }
        return Ok((session, false));
    }
    let flow = flow.unwrap_or_else(|| running.default_flow.clone());
    let settings = setting_values::parse_new_session_settings(engine, &flow, &session_args.set)?;
    let name = session_args.session.as_deref().map(Into::into);
    let opening = SessionOptions {
        session: name,
        mid_turn_policy: running.mid_turn_policy,
        settings,
        ..SessionOptions::default()
    };
    let session = engine.open_session(&flow, opening).await?;
    Ok((session, true))
}

async fn send_and_follow(
    engine: &Engine,
    session: &SessionId,
    message: UserMessage,
    live: LiveOutput,
) -> anyhow::Result<FollowOutcome> {
    let (_, before) = engine.load_session(session).await?;
    let (head, known, held) =
        (before.session.last_seq, before.session.last_ids.message, before.session.calls_awaiting_operator().next());
    let id = engine.send_message(session, message).await?;
    if let Some((call, _)) = held {
        return Ok(FollowOutcome::AwaitingOperator(*call));
    }
    // A message sent before under the same key has its turn somewhere in the past.
    let after = if id > known { head } else { segue_core::ids::Seq(0) };
    SessionFollower::start_after(engine, session, after, live).await?.follow_message(id).await
}

fn read_message_from_stdin() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        print::write_stderr_line("reading the message until Ctrl-D");
    }
    let mut bytes = Vec::new();
    stdin.lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        bail!("there are more than {STDIN_BYTES_MAX} bytes on standard input, far more than any message may have");
    }
    let mut text = String::from_utf8(bytes).context("the message on standard input is no UTF-8 text")?;
    let end = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text).len());
    text.truncate(end.unwrap_or(text.len()));
    Ok(text)
}

/// A call waits for a person, so nothing goes on.
pub async fn awaiting_operator_error(engine: &Engine, session: &SessionId, call: CallId) -> anyhow::Error {
    // Nothing is under way that could still be written.
    let _ = engine.store().close().await;
    anyhow::anyhow!(
        "{call} was in flight when the process died and may have been billed; decide with `segue resolve {session} {call} retry` \
         or `segue resolve {session} {call} fail`, then it goes on"
    )
}

/// Whether a turn ended well.
pub fn check_turn_outcome(outcome: &TurnResult) -> anyhow::Result<()> {
    match outcome {
        TurnResult::Done => Ok(()),
        TurnResult::Failed { reason } => bail!("the turn failed: {reason}"),
        TurnResult::Cancelled => bail!("the turn was cancelled"),
        TurnResult::Interrupted => bail!("another message took the turn's place"),
    }
}

/// What a turn came to, for machines.
pub fn turn_json(session: &SessionId, turned: &FinishedTurn, phase: &str, rehearsal: bool) -> Value {
    let (outcome, reason) = match &turned.outcome {
        TurnResult::Done => ("done", None),
        TurnResult::Failed { reason } => ("failed", Some(reason)),
        TurnResult::Cancelled => ("cancelled", None),
        TurnResult::Interrupted => ("interrupted", None),
    };
    json!({
        "session": session,
        "turn": turned.turn.to_string(),
        "outcome": outcome,
        "reason": reason,
        "reply": turned.replies.join("\n\n"),
        "replies": turned.replies,
        "phase": phase,
        "calls": turned.calls.iter().map(call_json).collect::<Vec<_>>(),
        "spent": tally_json(&sum_call_usage(&turned.calls)),
        "rehearsal": rehearsal,
    })
}

fn call_json(row: &FollowedCall) -> Value {
    let mut value = json!({
        "call": row.call.to_string(),
        "role": row.role,
        "model": row.model,
        "failed_tries": row.lost_attempts.failed_attempts,
        "unknown_tries": row.lost_attempts.unknown_attempts,
    });
    let more = match &row.outcome {
        FollowedCallOutcome::Open => json!({ "end": "open" }),
        FollowedCallOutcome::Failed(reason) => json!({ "end": "failed", "reason": reason }),
        FollowedCallOutcome::Cancelled { reason, .. } => {
            json!({ "end": "failed", "reason": format!("cancelled: {reason}") })
        }
        FollowedCallOutcome::Answered { usage, counted_by, cost_microusd, ms, stop } => json!({
            "end": "answered",
            "tokens_in": usage.input_tokens,
            "tokens_out": usage.output_tokens,
            "tokens_cached": usage.cached_tokens,
            "counted_by": counted_by,
            "cost_microusd": cost_microusd,
            "ms": ms,
            "stop": stop,
        }),
    };
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

/// A sum of calls, for machines.
pub fn tally_json(tally: &UsageTotals) -> Value {
    json!({
        "calls": tally.answered_calls,
        "failed_tries": tally.failed_attempts,
        "unknown_tries": tally.unknown_attempts,
        "tokens_in": tally.input_tokens,
        "tokens_out": tally.output_tokens,
        "tokens_cached": tally.cached_tokens,
        "cost_microusd": tally.exact_cost_microusd(),
    })
}
