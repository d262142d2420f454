//! `segue delete`: deletes a session after confirmation.

use std::io::IsTerminal;

use anyhow::bail;
use segue_engine::SessionResumePolicy;
use serde_json::json;

use crate::cli::{DeleteSessionArgs, GlobalArgs};
use crate::print::number_format;
use crate::print::text::to_single_line;
use crate::setup::{EngineStartOptions, start_engine};
use crate::{name_lookup, print, setup};

pub(crate) async fn run_delete(global: &GlobalArgs, arguments: DeleteSessionArgs) -> anyhow::Result<()> {
    setup::require_read_only_engine(global).await?.shutdown().await;
    let engine = start_engine(
        global,
        EngineStartOptions { recovery: SessionResumePolicy::Never, ..EngineStartOptions::default() },
    )
    .await?
    .engine;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    if !arguments.yes {
        if !std::io::stdin().is_terminal() {
            bail!("refusing to delete `{session}` without confirmation (use --yes)");
        }
        // A session that cannot be read can still be deleted, so a read error leaves the description empty.
        let description = engine.load_session(&session).await.map(|(_, state)| {
            let turns = number_format::format_plural(u64::from(state.session.last_ids.turn.0), "turn");
            format!(" “{}” ({turns})", to_single_line(&state.session.title))
        });
        let description = description.unwrap_or_default();
        if !print::confirm_on_terminal(&format!("Delete {session}{description} permanently? [y/N] "))? {
            return print::write_stdout("not deleted\n");
        }
    }
    engine.delete_session(&session).await?;
    engine.shutdown().await;
    if global.json {
        return print::print_json(&json!({ "deleted": session }));
    }
    print::write_stdout(&format!("deleted {session}\n"))
}
