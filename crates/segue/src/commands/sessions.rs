//! `segue sessions`: lists sessions.

use segue_store::{PendingWorkStatus, SessionQuery, StoredSessionEntry};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, SessionsArgs};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, RenderOptions, number_format};
use crate::{name_lookup, setup};

pub(crate) async fn run_sessions(global: &GlobalArgs, arguments: SessionsArgs) -> anyhow::Result<()> {
    let Some(engine) = setup::open_read_only_engine(global).await? else {
        return print_no_sessions(global, &arguments);
    };
    let flow = arguments.flow.as_deref().map(|flow| name_lookup::resolve_flow(&engine, flow)).transpose()?;
    let query = SessionQuery {
        text: arguments.search.clone(),
        flows: flow.map(|flow| flow.to_string()).into_iter().collect(),
        ..SessionQuery::newest(arguments.limit)
    };
    let page = engine.list_sessions(&query).await?;
    if global.json {
        return print::print_json(&page.entries.iter().map(session_row_json).collect::<Vec<_>>());
    }
    if page.entries.is_empty() {
        return print_no_sessions(global, &arguments);
    }
    let screen = RenderOptions::for_stdout();
    print::write_stdout(&session_table(&page.entries).render(screen.width, screen.paint))?;
    if page.next_cursor.is_some() {
        print::write_stdout(&screen.paint.dim(format!("the newest {}; use --limit for more\n", arguments.limit)))?;
    }
    Ok(())
}

/// Returns a table of sessions.
pub(crate) fn session_table(rows: &[StoredSessionEntry]) -> TextTable {
    let mut table = TextTable::new([
        ("session", ColumnLayout::Left),
        ("flow", ColumnLayout::Left),
        ("turns", ColumnLayout::Right),
        ("cost", ColumnLayout::Right),
        ("changed", ColumnLayout::Left),
        ("title", ColumnLayout::Truncate),
    ]);
    for StoredSessionEntry { session, summary, excerpt, .. } in rows {
        let title = match excerpt {
            Some(excerpt) => format!("{} — {excerpt}", summary.title),
            None => summary.title.clone(),
        };
        let active = if summary.pending_work == PendingWorkStatus::Now { " (active)" } else { "" };
        table.add_row([
            session.to_string(),
            summary.flow.clone(),
            summary.turns.to_string(),
            number_format::format_cost(summary.cost_microusd),
            number_format::format_date_time(summary.updated_at) + active,
            title,
        ]);
    }
    table
}

fn print_no_sessions(global: &GlobalArgs, arguments: &SessionsArgs) -> anyhow::Result<()> {
    if global.json {
        return print::print_json(&json!([]));
    }
    print::write_stdout(match (&arguments.search, &arguments.flow) {
        (None, None) => "no sessions yet; `segue chat` starts one\n",
        _ => "no matching sessions\n",
    })
}

pub(crate) fn session_row_json(row: &StoredSessionEntry) -> Value {
    let StoredSessionEntry { session, summary, head, excerpt, .. } = row;
    let pending_work = match summary.pending_work {
        PendingWorkStatus::None => json!("none"),
        PendingWorkStatus::Now => json!("now"),
        PendingWorkStatus::At(at) => json!({ "at": at }),
    };
    json!({
        "session": session,
        "flow": summary.flow,
        "title": summary.title,
        "phase": summary.phase,
        "turns": summary.turns,
        "calls": summary.calls,
        "cost_microusd": summary.cost_microusd,
        "created": summary.created_at,
        "updated": summary.updated_at,
        "pending_work": pending_work,
        "events": head,
        "excerpt": excerpt,
    })
}
