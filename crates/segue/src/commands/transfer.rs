//! Sessions as files, and sessions from sessions.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::event::Event;
use segue_core::ids::{Seq, SessionId, TurnId};
use segue_engine::{Engine, Recovery};
use serde_json::json;

use crate::cli::{Export, Fork, Global, Import};
use crate::journal::Journal;
use crate::setup::{Start, Tape, start_with};
use crate::{lookup, print, setup};

const BY_HAND: Start<'_> = Start { tape: Tape::None, model: None, recovery: Recovery::Never };

pub async fn fork(global: &Global, arguments: Fork) -> anyhow::Result<()> {
    setup::look_into(global).await?.shutdown().await;
    let engine = start_with(global, BY_HAND).await?.engine;
    let from = lookup::session(&engine, &arguments.session).await?;
    let at = match &arguments.at {
        Some(at) => Some(place(&engine, &from, at).await?),
        None => None,
    };
    let to = engine.fork(&from, at, arguments.name.map(Into::into)).await?;
    engine.shutdown().await;
    if global.json {
        return print::json(&json!({ "session": to, "from": from, "at": at }));
    }
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    print::out(&format!("{to} is forked from {from}{at}\n"))
}

/// The place in a journal that `t3` or `17` means.
async fn place(engine: &Engine, session: &SessionId, given: &str) -> anyhow::Result<Seq> {
    if let Ok(seq) = given.parse::<u64>() {
        return Ok(Seq(seq));
    }
    let Ok(wanted) = given.parse::<TurnId>() else {
        bail!("`{given}` is no place in a session; give a turn such as `t3` or an event's number such as `17`");
    };
    let mut journal = Journal::of(engine, session);
    let mut ended = Vec::new();
    loop {
        let events = journal.next().await?;
        if events.is_empty() {
            break;
        }
        for event in events {
            match event.event {
                Event::TurnEnded { turn, .. } if turn == wanted => return Ok(event.seq),
                Event::TurnEnded { turn, .. } => ended.push(turn.0),
                _ => {}
            }
        }
    }
    if ended.is_empty() {
        bail!("no turn of the session `{session}` is finished yet, so it cannot be forked at {wanted}");
    }
    let near: Vec<String> = lookup::near(wanted.0, ended).iter().map(|turn| TurnId(*turn).to_string()).collect();
    bail!("the session `{session}` has no finished turn {wanted}; near it are {}", near.join(", "))
}

pub async fn export(global: &Global, arguments: Export) -> anyhow::Result<()> {
    let engine = setup::look_into(global).await?;
    let session = lookup::session(&engine, &arguments.session).await?;
    let Some(file) = &arguments.output else {
        let mut out = std::io::stdout().lock();
        engine.export(&session, |line| Ok::<_, anyhow::Error>(out.write_all(line.as_bytes())?)).await?;
        return Ok(out.flush()?);
    };
    write_beside(&engine, &session, file).await.with_context(|| format!("cannot write {}", file.display()))?;
    if global.json {
        return print::json(&json!({ "session": session, "file": file }));
    }
    print::out(&format!("{session} is written to {}\n", file.display()))
}

/// Writes a file whole or not at all: a half-written export looks like a session.
async fn write_beside(engine: &Engine, session: &SessionId, file: &Path) -> anyhow::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    let part = std::path::PathBuf::from(name);
    let mut out = std::io::BufWriter::new(std::fs::File::create(&part)?);
    let written = engine.export(session, |line| Ok::<_, anyhow::Error>(out.write_all(line.as_bytes())?)).await;
    let written =
        written.and_then(|()| Ok(out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?));
    let result = written.and_then(|()| Ok(std::fs::rename(&part, file)?));
    if result.is_err() {
        // What could not be written is of no use, and what cannot be removed is named like what it is.
        let _ = std::fs::remove_file(&part);
    }
    result
}

pub async fn import(global: &Global, arguments: Import) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let named = || format!("cannot read {}", arguments.file.display());
    if arguments.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        std::fs::File::open(&arguments.file).and_then(|mut file| file.read_to_end(&mut bytes)).with_context(named)?;
    }
    let engine = start_with(global, BY_HAND).await?.engine;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let imported = engine.import(lines, arguments.name.map(Into::into)).await;
    engine.shutdown().await;
    let session = imported.with_context(|| format!("{} was not imported", arguments.file.display()))?;
    if global.json {
        return print::json(&json!({ "session": session }));
    }
    print::out(&format!("{session} is imported\n"))
}
