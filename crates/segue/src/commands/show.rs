//! `segue show`: the timeline and artifacts of a session, every event of its journal, or everything as JSON.

mod timeline;

use std::cell::RefCell;
use std::collections::BTreeMap;

use segue_core::ids::SessionId;
use segue_core::session::{OpenCallStatus, Session};
use segue_engine::Engine;
use serde_json::{Value, json};

use super::send::usage_json;
use crate::cli::{GlobalArgs, ShowSessionArgs};
use crate::journal_pager::JournalPager;
use crate::print::text::to_single_line;
use crate::print::{self, CliOutputCapabilities, number_format};
use crate::{name_lookup, setup};
use timeline::{ShownTextLength, Timeline};

pub(crate) async fn run_show(global: &GlobalArgs, arguments: ShowSessionArgs) -> anyhow::Result<()> {
    let engine = setup::require_read_only_engine(global).await?;
    let session = name_lookup::resolve_session(&engine, &arguments.session).await?;
    if global.json {
        return print_session_json(&engine, &session).await;
    }
    if arguments.events {
        return print_events(&engine, &session, text_length_for(&arguments)).await;
    }
    let (flow, state) = engine.load_session(&session).await?;
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&render_session_heading(&session, &state.session, screen))?;
    let mut journal = JournalPager::from_start(&engine, &session);
    let mut timeline = Timeline::new(screen, text_length_for(&arguments), flow);
    loop {
        let events = journal.next_page().await?;
        let mut page = String::new();
        if events.is_empty() {
            timeline.finish(&mut page);
            let (flow, state) = engine.load_session(&session).await?;
            let artifacts = engine.artifacts(&session, &*flow, &state).await?;
            page.push_str(&print::artifact::render_artifacts(&artifacts, screen));
            return print::write_stdout(&page);
        }
        let texts = journal.load_texts(&events, |event, lookup| Timeline::request_texts(event, lookup)).await?;
        events.iter().for_each(|event| timeline.add_event(event, &texts, &mut page));
        print::write_stdout(&page)?;
    }
}

fn text_length_for(arguments: &ShowSessionArgs) -> ShownTextLength {
    if arguments.full { ShownTextLength::Full } else { ShownTextLength::Short }
}

fn render_session_heading(id: &SessionId, session: &Session, screen: CliOutputCapabilities) -> String {
    let paint = screen.paint;
    let mut lines = vec![format!("{}  {}", paint.bold(id), to_single_line(&session.title))];
    let flow = session.flow.as_ref().map(ToString::to_string).unwrap_or_default();
    lines.push(format!("flow {flow}, opened {}", number_format::format_date_time(session.opened_at)));
    let turns = number_format::format_plural(u64::from(session.last_ids.turn.0), "turn");
    lines.push(format!("{turns} · {}", number_format::format_usage(&session.ledger.total)));
    // The phases of agents are in the timeline.
    let phases = session.phases_label();
    if !phases.is_empty() {
        lines.push(format!("phase {phases}"));
    }
    if let Some(reason) = &session.closed_reason {
        lines.push(paint.warning(format!("closed: {}", to_single_line(reason))));
    }
    if let Some(turn) = &session.current_turn {
        let queued = match session.queued_messages.len() as u64 {
            0 => String::new(),
            queued => format!(", {} queued", number_format::format_plural(queued, "message")),
        };
        lines.push(paint.warning(format!("{} is not finished{queued}", turn.id)));
    } else if !session.queued_messages.is_empty() && session.closed_reason.is_none() {
        let queued = number_format::format_plural(session.queued_messages.len() as u64, "message");
        lines.push(paint.warning(format!("{queued} queued")));
    }
    for (call, open) in &session.open_calls {
        lines.push(paint.warning(match open.status {
            OpenCallStatus::AwaitingOperator => {
                format!("{call} waits for your decision: segue resolve {id} {call} retry|fail")
            }
            OpenCallStatus::Due | OpenCallStatus::Inherited(_) => {
                format!("{call} is pending (attempt {})", open.attempt)
            }
            OpenCallStatus::WaitingUntil(at) => {
                format!("{call} is pending until {}", number_format::format_time_of_day(at))
            }
        }));
    }
    lines.join("\n") + "\n"
}

async fn print_events(engine: &Engine, session: &SessionId, length: ShownTextLength) -> anyhow::Result<()> {
    let screen = CliOutputCapabilities::for_stdout();
    let mut journal = JournalPager::from_start(engine, session);
    loop {
        let events = journal.next_page().await?;
        if events.is_empty() {
            return Ok(());
        }
        let texts = journal.load_texts(&events, |event, lookup| drop(event.event.summary_line(lookup))).await?;
        let mut page = String::new();
        for event in &events {
            let line = event.event.summary_line(&|text| match length {
                ShownTextLength::Short => texts.excerpt(text),
                ShownTextLength::Full => texts.sanitized_text(text),
            });
            let line = if length == ShownTextLength::Full {
                print::text::sanitize_for_terminal(&line)
            } else {
                to_single_line(&number_format::format_timestamps_in_line(&line))
            };
            let prefix = screen.paint.dim(format!("{:>5} {}", event.seq, number_format::format_time_of_day(event.at)));
            page.push_str(&format!("{prefix} {line}\n"));
        }
        print::write_stdout(&page)?;
    }
}

/// Prints the session, its events and the texts that they refer to as JSON.
async fn print_session_json(engine: &Engine, session: &SessionId) -> anyhow::Result<()> {
    let (flow, state) = engine.load_session(session).await?;
    let artifacts = engine.artifacts(session, &*flow, &state).await?;
    let state = &state.session;
    let mut events: Vec<Value> = Vec::new();
    let shown_texts = RefCell::new(BTreeMap::new());
    let mut journal = JournalPager::from_start(engine, session);
    loop {
        let page = journal.next_page().await?;
        if page.is_empty() {
            break;
        }
        let texts = journal.load_texts(&page, |event, lookup| drop(event.event.summary_line(lookup))).await?;
        for event in &page {
            let summary = event.event.summary_line(&|text| {
                shown_texts.borrow_mut().entry(text.body.to_string()).or_insert_with(|| texts.raw_text(text));
                texts.excerpt(text)
            });
            events.push(json!({ "seq": event.seq, "at": event.at, "summary": summary, "event": event.event }));
        }
    }
    let open: Vec<String> = state.open_calls.keys().map(ToString::to_string).collect();
    let awaiting_operator: Vec<String> = state.calls_awaiting_operator().map(|(call, _)| call.to_string()).collect();
    print::print_json(&json!({
        "session": session,
        "flow": state.flow,
        "title": state.title,
        "phase": state.phases_label(),
        "opened": state.opened_at,
        "closed_reason": state.closed_reason,
        "turns": state.last_ids.turn.0,
        "running_turn": state.current_turn.as_ref().map(|turn| turn.id.to_string()),
        "open_calls": open,
        "calls_awaiting_operator": awaiting_operator,
        "usage": usage_json(&state.ledger.total),
        "artifacts": artifacts,
        "events": events,
        "texts": shown_texts.into_inner(),
    }))
}
