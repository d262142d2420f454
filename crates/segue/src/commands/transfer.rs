//! `segue fork`, `segue export` and `segue import`: copies of sessions, in the store and as files.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use segue_core::event::Event;
use segue_core::ids::{Seq, SessionId, TurnId};
use segue_engine::{Engine, SessionResumePolicy};
use serde_json::json;

use crate::cli::{ExportSessionArgs, ForkSessionArgs, GlobalArgs, ImportSessionArgs};
use crate::journal_pager::JournalPager;
use crate::setup::{EngineStartOptions, start_engine};
use crate::{name_lookup, print, setup};

/// Returns the options for an engine that makes no calls.
fn passive_start_options() -> EngineStartOptions<'static> {
    EngineStartOptions { recovery: SessionResumePolicy::Never, ..EngineStartOptions::default() }
}

pub(crate) async fn fork_session(global: &GlobalArgs, arguments: ForkSessionArgs) -> anyhow::Result<()> {
    setup::require_read_only_engine(global).await?.shutdown().await;
    let engine = start_engine(global, passive_start_options()).await?.engine;
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
    let at = at.map(|at| format!(" at event {at}")).unwrap_or_default();
    print::write_stdout(&format!("forked {from}{at} to {to}\n"))
}

/// Returns the sequence number that `t3` (the end of a turn) or `17` (an event) refers to.
async fn resolve_fork_point(engine: &Engine, session: &SessionId, given: &str) -> anyhow::Result<Seq> {
    if let Ok(seq) = given.parse::<u64>() {
        return Ok(Seq(seq));
    }
    let Ok(wanted) = given.parse::<TurnId>() else {
        bail!("`{given}` is neither a turn (like t3) nor the number of an event (like 17)");
    };
    let mut journal = JournalPager::from_start(engine, session);
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
        bail!("session `{session}` has no finished turn yet, so it cannot be forked at {wanted}");
    }
    let near: Vec<String> =
        name_lookup::nearest_numbers(wanted.0, ended).iter().map(|turn| TurnId(*turn).to_string()).collect();
    bail!("session `{session}` has no finished turn {wanted}; the nearest are {}", near.join(", "))
}

pub(crate) async fn export_session(global: &GlobalArgs, arguments: ExportSessionArgs) -> anyhow::Result<()> {
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
    print::write_stdout(&format!("exported {session} to {}\n", file.display()))
}

/// Writes an export to a temporary file and renames it, because a partial export would look like a complete session.
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
        // The error may be dropped: the name of the partial file says that it is incomplete.
        let _ = std::fs::remove_file(&part);
    }
    result
}

pub(crate) async fn import_session(global: &GlobalArgs, arguments: ImportSessionArgs) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    let read_error = || format!("cannot read {}", arguments.file.display());
    if arguments.file.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        std::fs::File::open(&arguments.file)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .with_context(read_error)?;
    }
    let engine = start_engine(global, passive_start_options()).await?.engine;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
    let imported = engine.import_session(lines, arguments.name.map(Into::into)).await;
    engine.shutdown().await;
    let session = imported.with_context(|| format!("cannot import {}", arguments.file.display()))?;
    if global.json {
        return print::print_json(&json!({ "session": session }));
    }
    print::write_stdout(&format!("imported {session}\n"))
}
