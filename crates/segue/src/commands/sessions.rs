//! `segue sessions`: lists sessions.

use segue_core::ids::CHILD_SEPARATOR;
use segue_engine::{Engine, parent_session_name};
use segue_store::{PendingWorkStatus, SessionQuery, SessionSummary, StoredSessionListEntry};
use serde_json::{Value, json};

use crate::cli::{GlobalArgs, ListSessionsArgs};
use crate::limits::TREE_SESSIONS_MAX;
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities, number_format};
use crate::{name_lookup, setup};

pub(crate) async fn run_sessions(global: &GlobalArgs, arguments: ListSessionsArgs) -> anyhow::Result<()> {
    let Some(engine) = setup::open_read_only_engine(global).await? else {
        return print_no_sessions(global, &arguments);
    };
    let flow = arguments.flow.as_deref().map(|flow| name_lookup::resolve_flow(&engine, flow)).transpose()?;
    let query = SessionQuery {
        text: arguments.search.clone(),
        // Child sessions and workspaces are listed only if somebody looks for them.
        roots_only: !arguments.all && arguments.search.is_none() && flow.is_none(),
        flows: flow.map(|flow| flow.to_string()).into_iter().collect(),
        ..SessionQuery::newest(arguments.limit)
    };
    let page = engine.list_sessions(&query).await?;
    if arguments.tree && !page.entries.is_empty() {
        return print_session_tree(global, &engine, page.entries).await;
    }
    if global.json {
        return print::print_json(&page.entries.iter().map(session_row_json).collect::<Vec<_>>());
    }
    if page.entries.is_empty() {
        return print_no_sessions(global, &arguments);
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&session_table(&page.entries).render(screen.width, screen.paint))?;
    if page.next_cursor.is_some() {
        print::write_stdout(&screen.paint.dim(format!("the newest {}; use --limit for more\n", arguments.limit)))?;
    }
    Ok(())
}

/// Prints each session with its descendants below it.
async fn print_session_tree(
    global: &GlobalArgs,
    engine: &Engine,
    roots: Vec<StoredSessionListEntry>,
) -> anyhow::Result<()> {
    let mut trees = Vec::new();
    for root in roots {
        let query = SessionQuery {
            name_prefix: Some(format!("{}{CHILD_SEPARATOR}", root.session)),
            ..SessionQuery::newest(TREE_SESSIONS_MAX)
        };
        let mut descendants = engine.list_sessions(&query).await?.entries;
        // A workspace can have the name of a session.
        descendants.retain(|entry| entry.parent.is_some());
        descendants.sort_by_key(|entry| child_numbers(entry.session.as_str()));
        trees.push((root, descendants));
    }
    if global.json {
        let rows = trees.iter().flat_map(|(root, descendants)| std::iter::once(root).chain(descendants));
        return print::print_json(&rows.map(session_row_json).collect::<Vec<_>>());
    }
    let mut table = TextTable::new([
        ("session", ColumnLayout::Left),
        ("flow", ColumnLayout::Left),
        ("turns", ColumnLayout::Right),
        ("cost", ColumnLayout::Right),
        ("with children", ColumnLayout::Right),
        ("changed", ColumnLayout::Left),
        ("title", ColumnLayout::Truncate),
    ]);
    for (root, descendants) in &trees {
        for entry in std::iter::once(root).chain(descendants) {
            let StoredSessionListEntry { session, summary, .. } = entry;
            let depth = child_numbers(session.as_str()).len() - child_numbers(root.session.as_str()).len();
            table.add_row([
                format!("{}{session}", "  ".repeat(depth)),
                summary.flow.clone(),
                summary.turns.to_string(),
                number_format::format_cost(summary.cost_microusd),
                cost_with_descendants(entry, descendants),
                format_changed(summary),
                summary.title.clone(),
            ]);
        }
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}

/// Returns the numbers at the end of a child session's name, so that the second child comes before the tenth.
fn child_numbers(name: &str) -> Vec<u64> {
    let Some(parent) = parent_session_name(name) else { return Vec::new() };
    let number = name[parent.len() + CHILD_SEPARATOR.len_utf8()..].parse().unwrap_or(u64::MAX);
    let mut numbers = child_numbers(parent);
    numbers.push(number);
    numbers
}

/// Returns the cost of a session and its descendants; nothing if it has none.
fn cost_with_descendants(entry: &StoredSessionListEntry, others: &[StoredSessionListEntry]) -> String {
    let prefix = format!("{}{CHILD_SEPARATOR}", entry.session);
    let descendants: Vec<_> = others.iter().filter(|other| other.session.as_str().starts_with(&prefix)).collect();
    if descendants.is_empty() {
        return String::new();
    }
    let costs = descendants.iter().map(|other| other.summary.cost_microusd);
    number_format::format_cost(costs.chain([entry.summary.cost_microusd]).sum::<Option<u64>>())
}

fn format_changed(summary: &SessionSummary) -> String {
    let active = if summary.pending_work == PendingWorkStatus::Now { " (active)" } else { "" };
    number_format::format_date_time(summary.updated_at) + active
}

/// Returns a table of sessions.
pub(crate) fn session_table(rows: &[StoredSessionListEntry]) -> TextTable {
    let mut table = TextTable::new([
        ("session", ColumnLayout::Left),
        ("flow", ColumnLayout::Left),
        ("turns", ColumnLayout::Right),
        ("cost", ColumnLayout::Right),
        ("changed", ColumnLayout::Left),
        ("title", ColumnLayout::Truncate),
    ]);
    for StoredSessionListEntry { session, summary, excerpt, .. } in rows {
        let title = match excerpt {
            Some(excerpt) => format!("{} — {excerpt}", summary.title),
            None => summary.title.clone(),
        };
        table.add_row([
            session.to_string(),
            summary.flow.clone(),
            summary.turns.to_string(),
            number_format::format_cost(summary.cost_microusd),
            format_changed(summary),
            title,
        ]);
    }
    table
}

fn print_no_sessions(global: &GlobalArgs, arguments: &ListSessionsArgs) -> anyhow::Result<()> {
    if global.json {
        return print::print_json(&json!([]));
    }
    print::write_stdout(match (&arguments.search, &arguments.flow) {
        (None, None) => "no sessions yet; `segue chat` starts one\n",
        _ => "no matching sessions\n",
    })
}

pub(crate) fn session_row_json(row: &StoredSessionListEntry) -> Value {
    let StoredSessionListEntry { session, summary, head, excerpt, .. } = row;
    let pending_work = match summary.pending_work {
        PendingWorkStatus::None => json!("none"),
        PendingWorkStatus::Now => json!("now"),
        PendingWorkStatus::At(at) => json!({ "at": at }),
    };
    json!({
        "session": session,
        "parent": row.parent.and(parent_session_name(session.as_str())),
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

#[cfg(test)]
mod tests {
    use segue_core::ids::{Seq, SessionUid, UnixMillis};

    use super::*;

    fn entry(session: &str, cost_microusd: Option<u64>) -> StoredSessionListEntry {
        let summary = SessionSummary {
            flow: "chat".to_owned(),
            title: String::new(),
            phase: String::new(),
            turns: 1,
            calls: 1,
            cost_microusd,
            created_at: UnixMillis(0),
            updated_at: UnixMillis(0),
            pending_work: PendingWorkStatus::None,
        };
        StoredSessionListEntry {
            session: session.into(),
            uid: SessionUid(1),
            parent: None,
            summary,
            head: Seq(1),
            is_quarantined: false,
            excerpt: None,
        }
    }

    #[test]
    fn second_child_comes_before_the_tenth_and_grandchildren_follow_their_parent() {
        let mut names = vec!["boss~10", "boss~2~1", "boss~2", "boss"];
        names.sort_by_key(|name| child_numbers(name));
        assert_eq!(names, ["boss", "boss~2", "boss~2~1", "boss~10"]);
    }

    #[test]
    fn cost_with_descendants_adds_up_and_is_unknown_if_one_is() {
        let (boss, one, two) =
            (entry("boss", Some(1_000_000)), entry("boss~1", Some(2_000_000)), entry("boss~1~1", None));
        assert_eq!(cost_with_descendants(&boss, &[]), "");
        let known = cost_with_descendants(&boss, std::slice::from_ref(&one));
        assert_eq!(known, number_format::format_cost(Some(3_000_000)));
        let unknown = cost_with_descendants(&boss, &[one.clone(), two]);
        assert_eq!(unknown, number_format::format_cost(None));
        // `bossy` is not a descendant of `boss`.
        assert_eq!(cost_with_descendants(&boss, &[entry("bossy", Some(1))]), "");
    }
}
