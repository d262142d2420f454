//! What happened in a session: a timeline of turns, calls, phases and refusals, and what its flow puts on show; or every event; or all of it as JSON.

mod timeline;

use std::cell::RefCell;
use std::collections::BTreeMap;

use segue_core::ids::SessionId;
use segue_core::session::{CallStatus, Session};
use segue_engine::Engine;
use serde_json::{Value, json};

use super::send::tally_json;
use crate::cli::{Global, Show};
use crate::journal::Journal;
use crate::print::text::one_line;
use crate::print::{self, Screen, amount};
use crate::{lookup, setup};
use timeline::{Length, Timeline};

pub async fn run(global: &Global, arguments: Show) -> anyhow::Result<()> {
    let engine = setup::look_into(global).await?;
    let session = lookup::session(&engine, &arguments.session).await?;
    if global.json {
        return show_json(&engine, &session).await;
    }
    if arguments.events {
        return show_events(&engine, &session, length(&arguments)).await;
    }
    let (rules, state) = engine.state(&session).await?;
    let screen = Screen::here();
    print::out(&heading(&session, &state.session, screen))?;
    let mut journal = Journal::of(&engine, &session);
    let mut timeline = Timeline::new(screen, length(&arguments), rules);
    loop {
        let events = journal.next().await?;
        let mut page = String::new();
        if events.is_empty() {
            timeline.finish(&mut page);
            let (rules, state) = engine.state(&session).await?;
            let on_show = engine.exhibits(&session, &*rules, &state).await?;
            page.push_str(&print::exhibit::exhibits(&on_show, screen));
            return print::out(&page);
        }
        let words = journal.words(&events, |event, words| Timeline::ask_words(event, words)).await?;
        events.iter().for_each(|event| timeline.add(event, &words, &mut page));
        print::out(&page)?;
    }
}

fn length(arguments: &Show) -> Length {
    if arguments.full { Length::Full } else { Length::Short }
}

fn heading(id: &SessionId, session: &Session, screen: Screen) -> String {
    let paint = screen.paint;
    let mut lines = vec![format!("{}  {}", paint.bold(id), one_line(&session.title))];
    let flow = session.flow.as_ref().map(ToString::to_string).unwrap_or_default();
    lines.push(format!("flow {flow}, opened {}", amount::moment(session.opened)));
    let turns = amount::several(u64::from(session.last.turn.0), "turn");
    lines.push(format!("{turns} · {}", amount::tally(&session.ledger.total)));
    if !session.phases.is_empty() {
        lines.push(format!("phase {}", session.phase_label()));
    }
    if let Some(reason) = &session.closed {
        lines.push(paint.warn(format!("closed: {}", one_line(reason))));
    }
    if let Some(turn) = &session.turn {
        let waiting = match session.queue.len() as u64 {
            0 => String::new(),
            waiting => format!(", {} waiting behind it", amount::several(waiting, "message")),
        };
        lines.push(paint.warn(format!("{} is not finished{waiting}", turn.id)));
    } else if !session.queue.is_empty() && session.closed.is_none() {
        let waiting = amount::several(session.queue.len() as u64, "message");
        lines.push(paint.warn(format!("{waiting} waiting for an answer")));
    }
    for (call, open) in &session.calls {
        lines.push(paint.warn(match open.status {
            CallStatus::Held => format!("{call} waits for your decision: segue resolve {id} {call} retry|fail"),
            CallStatus::Due | CallStatus::Left(_) => format!("{call} is owed (try {})", open.attempt),
            CallStatus::Waiting(at) => format!("{call} is owed again at {}", amount::time_of_day(at)),
        }));
    }
    lines.join("\n") + "\n"
}

async fn show_events(engine: &Engine, session: &SessionId, length: Length) -> anyhow::Result<()> {
    let screen = Screen::here();
    let mut journal = Journal::of(engine, session);
    loop {
        let events = journal.next().await?;
        if events.is_empty() {
            return Ok(());
        }
        let words = journal.words(&events, |event, words| drop(event.event.line(words))).await?;
        let mut page = String::new();
        for event in &events {
            let line = event.event.line(&|text| match length {
                Length::Short => words.short(text),
                Length::Full => words.full(text),
            });
            let line = if length == Length::Full { print::text::harmless(&line) } else { one_line(&line) };
            let place = screen.paint.dim(format!("{:>5} {}", event.seq, amount::time_of_day(event.at)));
            page.push_str(&format!("{place} {line}\n"));
        }
        print::out(&page)?;
    }
}

/// Everything, with the texts that the events name.
async fn show_json(engine: &Engine, session: &SessionId) -> anyhow::Result<()> {
    let (rules, state) = engine.state(session).await?;
    let exhibits = engine.exhibits(session, &*rules, &state).await?;
    let state = &state.session;
    let mut events: Vec<Value> = Vec::new();
    let texts = RefCell::new(BTreeMap::new());
    let mut journal = Journal::of(engine, session);
    loop {
        let page = journal.next().await?;
        if page.is_empty() {
            break;
        }
        let words = journal.words(&page, |event, words| drop(event.event.line(words))).await?;
        for event in &page {
            let line = event.event.line(&|text| {
                texts.borrow_mut().entry(text.body.to_string()).or_insert_with(|| words.whole(text));
                words.short(text)
            });
            events.push(json!({ "seq": event.seq, "at": event.at, "line": line, "event": event.event }));
        }
    }
    let open: Vec<String> = state.calls.keys().map(ToString::to_string).collect();
    let held: Vec<String> = state.held().map(|(call, _)| call.to_string()).collect();
    print::json(&json!({
        "session": session,
        "flow": state.flow,
        "title": state.title,
        "phase": state.phase_label(),
        "opened": state.opened,
        "closed": state.closed,
        "turns": state.last.turn.0,
        "running_turn": state.turn.as_ref().map(|turn| turn.id.to_string()),
        "open_calls": open,
        "held_calls": held,
        "spent": tally_json(&state.ledger.total),
        "exhibits": exhibits,
        "events": events,
        "texts": texts.into_inner(),
    }))
}
