//! Which sessions there are.

use segue_store::{Owes, Query, Row};
use serde_json::{Value, json};

use crate::cli::{Global, Sessions};
use crate::print::table::{Column, Table};
use crate::print::{self, Screen, amount};
use crate::{lookup, setup};

pub async fn run(global: &Global, arguments: Sessions) -> anyhow::Result<()> {
    let Some(engine) = setup::look(global).await? else {
        return show_none(global, &arguments);
    };
    let flow = arguments.flow.as_deref().map(|flow| lookup::flow(&engine, flow)).transpose()?;
    let query = Query {
        text: arguments.search.clone(),
        flows: flow.map(|flow| flow.to_string()).into_iter().collect(),
        ..Query::newest(arguments.limit)
    };
    let page = engine.list(&query).await?;
    if global.json {
        return print::json(&page.rows.iter().map(row_json).collect::<Vec<_>>());
    }
    if page.rows.is_empty() {
        return show_none(global, &arguments);
    }
    let screen = Screen::here();
    print::out(&listing(&page.rows).render(screen.width, screen.paint))?;
    if page.next.is_some() {
        print::out(&screen.paint.dim(format!("the newest {}; `--limit` shows more\n", arguments.limit)))?;
    }
    Ok(())
}

/// Sessions as a table.
pub fn listing(rows: &[Row]) -> Table {
    let mut table = Table::new([
        ("session", Column::Left),
        ("flow", Column::Left),
        ("turns", Column::Right),
        ("cost", Column::Right),
        ("changed", Column::Left),
        ("title", Column::Cut),
    ]);
    for Row { session, summary, excerpt, .. } in rows {
        let title = match excerpt {
            Some(excerpt) => format!("{} — {excerpt}", summary.title),
            None => summary.title.clone(),
        };
        let owing = if summary.owes == Owes::Now { " (at work)" } else { "" };
        table.row([
            session.to_string(),
            summary.flow.clone(),
            summary.turns.to_string(),
            amount::cost(summary.cost_microusd),
            amount::moment(summary.updated) + owing,
            title,
        ]);
    }
    table
}

fn show_none(global: &Global, arguments: &Sessions) -> anyhow::Result<()> {
    if global.json {
        return print::json(&json!([]));
    }
    print::out(match (&arguments.search, &arguments.flow) {
        (None, None) => "no sessions yet; `segue chat` begins one\n",
        _ => "no session is like that\n",
    })
}

pub fn row_json(row: &Row) -> Value {
    let Row { session, summary, head, excerpt } = row;
    let owes = match summary.owes {
        Owes::Nothing => json!("nothing"),
        Owes::Now => json!("now"),
        Owes::At(at) => json!({ "at": at }),
    };
    json!({
        "session": session,
        "flow": summary.flow,
        "title": summary.title,
        "phase": summary.phase,
        "turns": summary.turns,
        "calls": summary.calls,
        "cost_microusd": summary.cost_microusd,
        "created": summary.created,
        "updated": summary.updated,
        "owes": owes,
        "events": head,
        "excerpt": excerpt,
    })
}
