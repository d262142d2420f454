//! Erases a session, after asking.

use std::io::{IsTerminal, Write};

use anyhow::bail;
use segue_engine::Recovery;
use serde_json::json;

use crate::cli::{Delete, Global};
use crate::print::amount;
use crate::print::text::one_line;
use crate::setup::{Start, start_with};
use crate::{lookup, print, setup};

pub async fn run(global: &Global, arguments: Delete) -> anyhow::Result<()> {
    setup::look_into(global).await?.shutdown().await;
    let engine = start_with(global, Start { recovery: Recovery::Never, ..Start::default() }).await?.engine;
    let session = lookup::session(&engine, &arguments.session).await?;
    if !arguments.yes {
        if !std::io::stdin().is_terminal() {
            bail!("`{session}` is not deleted without a word from you; add --yes");
        }
        // One that cannot be read may be deleted all the same.
        let what = engine.state(&session).await.map(|(_, state)| {
            let turns = amount::several(u64::from(state.session.last.turn.0), "turn");
            format!(" “{}” ({turns})", one_line(&state.session.title))
        });
        let what = what.unwrap_or_default();
        if !ask(&format!("Erase {session}{what} for ever? [y/N] "))? {
            return print::out("nothing was deleted\n");
        }
    }
    engine.delete(&session).await?;
    engine.shutdown().await;
    if global.json {
        return print::json(&json!({ "deleted": session }));
    }
    print::out(&format!("{session} is deleted\n"))
}

fn ask(question: &str) -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
