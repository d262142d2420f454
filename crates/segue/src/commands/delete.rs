//! Erases a session, after asking.

use std::io::{IsTerminal, Write};

use anyhow::bail;
use segue_engine::RecoveryPolicy;
use serde_json::json;

use crate::cli::{DeleteArgs, GlobalArgs};
use crate::print::number_format;
use crate::print::text::to_single_line;
use crate::setup::{EngineStartOptions, start_engine};
use crate::{name_lookup, print, setup};

pub async fn run_delete(global: &GlobalArgs, arguments: DeleteArgs) -> anyhow::Result<()> {
    setup::require_read_only_engine(global).await?.shutdown().await;
    let engine =
        start_engine(global, EngineStartOptions { recovery: RecoveryPolicy::Never, ..EngineStartOptions::default() })
            .await?
            .engine;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    if !arguments.yes {
        if !std::io::stdin().is_terminal() {
            bail!("`{session}` is not deleted without a word from you; add --yes");
        }
        // One that cannot be read may be deleted all the same.
        let what = engine.load_session(&session).await.map(|(_, state)| {
            let turns = number_format::format_plural(u64::from(state.session.last_ids.turn.0), "turn");
            format!(" “{}” ({turns})", to_single_line(&state.session.title))
        });
        let what = what.unwrap_or_default();
        if !confirm_on_terminal(&format!("Erase {session}{what} for ever? [y/N] "))? {
            return print::write_stdout("nothing was deleted\n");
        }
    }
    engine.delete_session(&session).await?;
    engine.shutdown().await;
    if global.json {
        return print::print_json(&json!({ "deleted": session }));
    }
    print::write_stdout(&format!("{session} is deleted\n"))
}

fn confirm_on_terminal(question: &str) -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
