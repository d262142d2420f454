//! Sessions as files, and sessions from sessions.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::event::Event;
use segue_core::ids::{Seq, SessionId, TurnId};
use segue_engine::{Engine, RecoveryPolicy};
use serde_json::json;

use crate::cli::{ExportArgs, ForkArgs, GlobalArgs, ImportArgs};
use crate::journal_reader::JournalReader;
use crate::setup::{EngineStartOptions, PlaybackMode, start_engine};
use crate::{name_lookup, print, setup};

const PASSIVE_START: EngineStartOptions<'_> =
    EngineStartOptions { playback: PlaybackMode::Live, model: None, recovery: RecoveryPolicy::Never };

pub async fn fork_session(global: &GlobalArgs, arguments: ForkArgs) -> anyhow::Result<()> {
    setup::require_read_only_engine(global).await?.shutdown().await;
    let engine = start_engine(global, PASSIVE_START).await?.engine;
    let from = name_lookup::resolve_session(&engine, &arguments.session).await?;
    let at = match &arguments.at {
        Some(at) => Some(resolve_fork_point(&engine, &from, at).await?),
        None => None,
    };
    let to = engine.fork_session(&from, at, arguments.name.map(Into::into)).await?;
    engine.shutdown().await;
    if global.json {
        return print::print_json(&json!({ "session": to, "from": from, "at": at }));
    }
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    print::write_stdout(&format!("{to} is forked from {from}{at}\n"))
}

/// The place in a journal that `t3` or `17` means.
async fn resolve_fork_point(engine: &Engine, session: &SessionId, given: &str) -> anyhow::Result<Seq> {
    if let Ok(seq) = given.parse::<u64>() {
        return Ok(Seq(seq));
    }
    let Ok(wanted) = given.parse::<TurnId>() else {
        bail!("`{given}` is no place in a session; give a turn such as `t3` or an event's number such as `17`");
    };
    let mut journal = JournalReader::from_start(engine, session);
    let mut ended = Vec::new();
    loop {
        let events = journal.next_page().await?;
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
    let near: Vec<String> =
        name_lookup::nearest_numbers(wanted.0, ended).iter().map(|turn| TurnId(*turn).to_string()).collect();
    bail!("the session `{session}` has no finished turn {wanted}; near it are {}", near.join(", "))
}

pub async fn export_session(global: &GlobalArgs, arguments: ExportArgs) -> anyhow::Result<()> {
    let engine = setup::require_read_only_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    let Some(file) = &arguments.output else {
        let mut out = std::io::stdout().lock();
        engine.export_session(&session, |line| Ok::<_, anyhow::Error>(out.write_all(line.as_bytes())?)).await?;
        return Ok(out.flush()?);
    };
    write_export_atomically(&engine, &session, file)
        .await
        .with_context(|| format!("cannot write {}", file.display()))?;
    if global.json {
        return print::print_json(&json!({ "session": session, "file": file }));
    }
    print::write_stdout(&format!("{session} is written to {}\n", file.display()))
}

/// Writes a file whole or not at all: a half-written export looks like a session.
async fn write_export_atomically(engine: &Engine, session: &SessionId, file: &Path) -> anyhow::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    let part = std::path::PathBuf::from(name);
    let mut out = std::io::BufWriter::new(std::fs::File::create(&part)?);
    let written = engine.export_session(session, |line| Ok::<_, anyhow::Error>(out.write_all(line.as_bytes())?)).await;
    let written =
        written.and_then(|()| Ok(out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?));
    let result = written.and_then(|()| Ok(std::fs::rename(&part, file)?));
    if result.is_err() {
        // What could not be written is of no use, and what cannot be removed is named like what it is.
        let _ = std::fs::remove_file(&part);
    }
    result
}

pub async fn import_session(global: &GlobalArgs, arguments: ImportArgs) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let named = || format!("cannot read {}", arguments.file.display());
    if arguments.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        std::fs::File::open(&arguments.file).and_then(|mut file| file.read_to_end(&mut bytes)).with_context(named)?;
    }
    let engine = start_engine(global, PASSIVE_START).await?.engine;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let imported = engine.import_session(lines, arguments.name.map(Into::into)).await;
    engine.shutdown().await;
    let session = imported.with_context(|| format!("{} was not imported", arguments.file.display()))?;
    if global.json {
        return print::print_json(&json!({ "session": session }));
    }
    print::write_stdout(&format!("{session} is imported\n"))
}
