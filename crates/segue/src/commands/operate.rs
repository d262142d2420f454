//! What a person at the controls may want of a session.

use anyhow::bail;
use segue_core::decide;
use segue_core::ids::{CallId, Seq, SessionId};
use segue_engine::{Engine, Recovery};
use segue_flows::assistant::spec::UNDO;
use serde_json::{Value, json};

use super::send::{INTERRUPTED, conclude, held, report};
use crate::Quiet;
use crate::cli::{Cancel, Do, Global, Rename, Resolution, Resolve, Retry, Undo};
use crate::follow::{End, Follower, Live, Turned};
use crate::print::{self, Screen};
use crate::setup::{Running, Start, start_with};
use crate::{lookup, setup};

/// An engine that records what it is told and does nothing else, on a store that is there.
async fn by_hand(global: &Global) -> anyhow::Result<Engine> {
    Ok(on_store(global, Start { recovery: Recovery::Never, ..Start::default() }).await?.engine)
}

pub async fn on_store(global: &Global, start: Start<'_>) -> anyhow::Result<Running> {
    // A store is not made for the sake of a session that cannot be in it.
    setup::look_into(global).await?.shutdown().await;
    start_with(global, start).await
}

pub async fn rename(global: &Global, arguments: Rename) -> anyhow::Result<()> {
    let engine = by_hand(global).await?;
    let session = lookup::session(&engine, &arguments.session).await?;
    engine.command(&session, decide::Command::Rename { title: arguments.title }).await?;
    let (_, state) = engine.state(&session).await?;
    engine.shutdown().await;
    let title = &state.session.title;
    if global.json {
        return print::json(&json!({ "session": session, "title": title }));
    }
    print::out(&format!("{session} is called “{title}”\n"))
}

pub async fn cancel(global: &Global, arguments: Cancel) -> anyhow::Result<()> {
    let engine = by_hand(global).await?;
    let session = lookup::session(&engine, &arguments.session).await?;
    let (_, state) = engine.state(&session).await?;
    engine.command(&session, decide::Command::Cancel).await?;
    engine.shutdown().await;
    let turn = state.session.turn.map(|turn| turn.id.to_string()).unwrap_or_default();
    if global.json {
        return print::json(&json!({ "session": session, "cancelled": turn }));
    }
    print::out(&format!("{turn} of {session} is cancelled\n"))
}

pub async fn retry(global: &Global, arguments: Retry) -> anyhow::Result<()> {
    let running = on_store(global, Start::to_act(arguments.script.as_deref())).await?;
    let session = lookup::session(&running.engine, &arguments.session).await?;
    carry_out(global, &running, &session, decide::Command::Retry).await
}

pub async fn resolve(global: &Global, arguments: Resolve) -> anyhow::Result<()> {
    let running = on_store(global, Start::to_act(None)).await?;
    let session = lookup::session(&running.engine, &arguments.session).await?;
    let call: CallId = lookup::number(&arguments.call)?;
    let how = match arguments.how {
        Resolution::Retry => decide::Resolution::Retry,
        Resolution::Fail => decide::Resolution::Fail,
    };
    carry_out(global, &running, &session, decide::Command::Resolve { call, how }).await
}

pub async fn do_as_asked(global: &Global, arguments: Do) -> anyhow::Result<()> {
    let running = on_store(global, Start { recovery: Recovery::OnUse, ..Start::default() }).await?;
    let session = lookup::session(&running.engine, &arguments.session).await?;
    let command = flow_command(&arguments.command, &arguments.arguments)?;
    carry_out(global, &running, &session, command).await
}

pub async fn undo(global: &Global, arguments: Undo) -> anyhow::Result<()> {
    let Undo { session, run } = arguments;
    let arguments = run.map(|run| format!("run={run}")).into_iter().collect();
    do_as_asked(global, Do { session, command: UNDO.to_owned(), arguments }).await
}

/// What a flow offers, as it is typed: the name, then `name=value` as often as wanted.
pub fn flow_command(command: &str, words: &[String]) -> anyhow::Result<decide::Command> {
    let mut arguments = serde_json::Map::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else { bail!("`{word}` has no value; write NAME=VALUE") };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        arguments.insert(name.to_owned(), value);
    }
    let arguments = if arguments.is_empty() { Value::Null } else { Value::Object(arguments) };
    Ok(decide::Command::Flow { command: command.to_owned(), arguments })
}

/// Gives a command, and follows what it sets going until nothing is owed.
async fn carry_out(
    global: &Global,
    running: &Running,
    session: &SessionId,
    command: decide::Command,
) -> anyhow::Result<()> {
    let engine = &running.engine;
    let (_, before) = engine.state(session).await?;
    engine.command(session, command).await?;
    let live = live(global);
    let turned = until_rest(engine, session, before.session.seq, live).await?;
    let (_, state) = engine.state(session).await?;
    engine.shutdown().await;
    if global.json {
        print::json(&report(session, &turned, &state.session.phase_label(), running.rehearsal))?;
    } else if live == Live::Nothing && !turned.said.is_empty() {
        print::out(&format!("{}\n", turned.said.join("\n\n")))?;
    }
    conclude(&turned.outcome)
}

/// Whether words are to be shown as they come.
pub fn live(global: &Global) -> Live {
    if Screen::here().is_terminal && !global.json { Live::Words } else { Live::Nothing }
}

/// Follows a session until nothing is owed.
pub async fn until_rest(engine: &Engine, session: &SessionId, after: Seq, live: Live) -> anyhow::Result<Turned> {
    match Follower::after(engine, session, after, live).await?.until_rest().await? {
        End::Turned(turned) => Ok(turned),
        End::Held(call) => Err(held(engine, session, call).await),
        End::Stopped(_) => {
            print::note("not waited for; what is owed goes on when the session is used next");
            engine.store().close().await?;
            Err(Quiet(INTERRUPTED).into())
        }
    }
}
