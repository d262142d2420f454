//! One message, one reply: for scripts, and for whoever has only one question.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use segue_core::decide::Command;
use segue_core::event::Outcome;
use segue_core::ids::{CallId, SessionId};
use segue_core::ledger::Tally;
use segue_engine::{Engine, Error, Message, Opening};
use serde_json::{Value, json};

use crate::cli::{Entry, Global, Send};
use crate::follow::{CallEnd, CallRow, End, Follower, Live, Turned, sum};
use crate::limits::STDIN_BYTES_MAX;
use crate::print::{self, error_paint};
use crate::setup::{Running, Start, start_with};
use crate::{Quiet, image, lookup, settings};

/// The code a program ends with that was interrupted.
pub const INTERRUPTED: u8 = 130;

pub async fn run(global: &Global, arguments: Send) -> anyhow::Result<()> {
    let text = if arguments.message == "-" { read_message()? } else { arguments.message.clone() };
    let images = arguments.image.iter().map(|file| image::read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let running = start_with(global, Start::to_speak(&arguments.entry)).await?;
    if running.rehearsal {
        print::note(&error_paint().warn(crate::commands::REHEARSAL_NOTE));
    }
    let (session, is_new) = session(&running, &arguments.entry).await?;
    let engine = &running.engine;
    let message = Message { key: arguments.key.clone().map(Into::into), images, ..Message::from(text) };
    let live = super::operate::live(global);
    let end = match deliver(engine, &session, message, live).await {
        Err(error) if is_new && matches!(error.downcast_ref(), Some(Error::Refused(_))) => {
            // Nothing was said in it, so it is not begun.
            engine.delete(&session).await?;
            return Err(error);
        }
        end => end?,
    };
    match end {
        End::Turned(turned) => {
            let (_, state) = engine.state(&session).await?;
            engine.shutdown().await;
            if global.json {
                print::json(&report(&session, &turned, &state.session.phase_label(), running.rehearsal))?;
            } else if live == Live::Nothing && !turned.said.is_empty() {
                print::out(&format!("{}\n", turned.said.join("\n\n")))?;
            }
            for shortfall in turned.calls.iter().filter_map(CallRow::shortfall) {
                print::note(&error_paint().warn(&shortfall));
            }
            conclude(&turned.outcome)
        }
        End::Held(call) => Err(held(engine, &session, call).await),
        End::Stopped(turn) => {
            if turn.is_some() {
                engine.command(&session, Command::Cancel).await?;
                print::note(&format!("stopped; the session is `{session}`"));
            } else {
                print::note(&format!(
                    "not waited for; the message is kept, and `segue send --session {session}` goes on with it"
                ));
            }
            engine.store().close().await?;
            Err(Quiet(INTERRUPTED).into())
        }
    }
}

/// The session to speak in, and whether it was begun for this.
async fn session(running: &Running, entry: &Entry) -> anyhow::Result<(SessionId, bool)> {
    let engine = &running.engine;
    let flow = entry.flow.as_deref().map(|flow| lookup::flow(engine, flow)).transpose()?;
    if let Some(name) = &entry.session
        && let Some(session) = lookup::exact(engine, name).await?
    {
        if !entry.set.is_empty() {
            bail!("{}", settings::settled_already(&session));
        }
        if let Some(flow) = flow {
            let (rules, _) = engine.state(&session).await?;
            let its = &rules.spec().name;
            if *its != flow {
                bail!(
                    "the session `{session}` is of the flow `{its}`, not `{flow}`; leave --flow out, or begin another"
                );
            }
        }
        return Ok((session, false));
    }
    let flow = flow.unwrap_or_else(|| running.flow.clone());
    let settings = settings::for_new(engine, &flow, &entry.set)?;
    let name = entry.session.as_deref().map(Into::into);
    let opening = Opening { session: name, busy: running.busy, settings, ..Opening::default() };
    let session = engine.open(&flow, opening).await?;
    Ok((session, true))
}

async fn deliver(engine: &Engine, session: &SessionId, message: Message, live: Live) -> anyhow::Result<End> {
    let (_, before) = engine.state(session).await?;
    let (head, known, held) = (before.session.seq, before.session.last.message, before.session.held().next());
    let id = engine.send(session, message).await?;
    if let Some((call, _)) = held {
        return Ok(End::Held(*call));
    }
    // A message sent before under the same key has its turn somewhere in the past.
    let after = if id > known { head } else { segue_core::ids::Seq(0) };
    Follower::after(engine, session, after, live).await?.answer_to(id).await
}

fn read_message() -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        print::note("reading the message until Ctrl-D");
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
pub async fn held(engine: &Engine, session: &SessionId, call: CallId) -> anyhow::Error {
    // Nothing is under way that could still be written.
    let _ = engine.store().close().await;
    anyhow::anyhow!(
        "{call} was in flight when the process died and may have been billed; decide with `segue resolve {session} {call} retry` \
         or `segue resolve {session} {call} fail`, then it goes on"
    )
}

/// Whether a turn ended well.
pub fn conclude(outcome: &Outcome) -> anyhow::Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Failed { reason } => bail!("the turn failed: {reason}"),
        Outcome::Cancelled => bail!("the turn was cancelled"),
        Outcome::Interrupted => bail!("another message took the turn's place"),
    }
}

/// What a turn came to, for machines.
pub fn report(session: &SessionId, turned: &Turned, phase: &str, rehearsal: bool) -> Value {
    let (outcome, reason) = match &turned.outcome {
        Outcome::Done => ("done", None),
        Outcome::Failed { reason } => ("failed", Some(reason)),
        Outcome::Cancelled => ("cancelled", None),
        Outcome::Interrupted => ("interrupted", None),
    };
    json!({
        "session": session,
        "turn": turned.turn.to_string(),
        "outcome": outcome,
        "reason": reason,
        "reply": turned.said.join("\n\n"),
        "replies": turned.said,
        "phase": phase,
        "calls": turned.calls.iter().map(call_json).collect::<Vec<_>>(),
        "spent": tally_json(&sum(&turned.calls)),
        "rehearsal": rehearsal,
    })
}

fn call_json(row: &CallRow) -> Value {
    let mut value = json!({
        "call": row.call.to_string(),
        "role": row.role,
        "model": row.model,
        "failed_tries": row.lost.failed,
        "unknown_tries": row.lost.unknown,
    });
    let more = match &row.end {
        CallEnd::Open => json!({ "end": "open" }),
        CallEnd::Failed(reason) => json!({ "end": "failed", "reason": reason }),
        CallEnd::Cancelled { reason, .. } => json!({ "end": "failed", "reason": format!("cancelled: {reason}") }),
        CallEnd::Answered { usage, counted_by, cost_microusd, ms, stop } => json!({
            "end": "answered",
            "tokens_in": usage.input,
            "tokens_out": usage.output,
            "tokens_cached": usage.cached,
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
pub fn tally_json(tally: &Tally) -> Value {
    json!({
        "calls": tally.answered,
        "failed_tries": tally.failed,
        "unknown_tries": tally.unknown,
        "tokens_in": tally.input,
        "tokens_out": tally.output,
        "tokens_cached": tally.cached,
        "cost_microusd": tally.cost(),
    })
}
