//! Events as they are told over HTTP: in the caller's names, in one line, with the texts that are wanted, and with what they belong
//! to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, BodyKind, Text};
use segue_core::event::{Event, Recorded};
use segue_core::ids::{CallId, MessageId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::chronicle::Chronicle;
use crate::extract::Held;
use crate::limits::LINE_TEXT_CHARS_MAX;

/// Which texts come along with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextsWanted {
    /// None.
    None,
    /// Those said by or to the user.
    #[default]
    Said,
    /// All.
    All,
}

/// An event.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Its place in the journal.
    pub seq: u64,
    /// When it was recorded.
    pub at: u64,
    /// What happened.
    pub is: String,
    /// The same in one line.
    pub line: String,
    /// The turn it belongs to.
    pub turn: Option<String>,
    /// The call it is about.
    pub call: Option<String>,
    /// The message it is about.
    pub message: Option<String>,
    /// The event as it stands in the journal.
    #[schema(value_type = Object)]
    pub event: Value,
    /// The texts that it names, by their id.
    pub texts: BTreeMap<String, String>,
}

/// Tells events one after another.
#[derive(Debug)]
pub struct Teller {
    held: Held,
    texts: TextsWanted,
    /// The turn that runs at this point of the telling.
    turn: Option<TurnId>,
}

impl Teller {
    /// Begins to tell where `turn` runs.
    #[must_use]
    pub fn new(held: &Held, texts: TextsWanted, turn: Option<TurnId>) -> Self {
        Self { held: held.clone(), texts, turn }
    }

    /// Tells events.
    ///
    /// # Errors
    /// Their texts cannot be read.
    pub async fn tell(&mut self, events: &[Recorded]) -> Result<Vec<EventView>, Error> {
        let needed = RefCell::new(BTreeSet::new());
        for recorded in events {
            let mut needed = needed.borrow_mut();
            needed.extend(self.wanted(&recorded.event));
            needed.extend(named_in_line(&recorded.event));
        }
        let ids: Vec<BodyId> = needed.into_inner().into_iter().collect();
        let found = self.held.app.engine.texts(&self.held.session, &ids).await?;
        let found: BTreeMap<BodyId, Arc<str>> = ids.into_iter().zip(found).collect();
        let turns = self.turns_of_late(events).await?;
        Ok(events.iter().map(|recorded| self.view(recorded, &found, &turns)).collect())
    }

    /// The turns of calls that may have ended after theirs: they belong there, whatever turn runs by then.
    async fn turns_of_late(&self, events: &[Recorded]) -> Result<BTreeMap<CallId, Option<TurnId>>, Error> {
        let calls = events.iter().filter_map(|recorded| match &recorded.event {
            Event::CallAnsweredLate { call, .. } | Event::CallFailed { call, .. } => Some(*call),
            _ => None,
        });
        let calls: BTreeSet<CallId> = calls.collect();
        if calls.is_empty() {
            return Ok(BTreeMap::new());
        }
        let Held { app, session, .. } = &self.held;
        let look = |chronicle: &Chronicle| {
            calls.into_iter().filter_map(|call| Some((call, chronicle.calls.get(&call)?.turn))).collect()
        };
        app.chronicles.look(&app.engine, session, None, look).await
    }

    fn wanted(&self, event: &Event) -> Vec<BodyId> {
        let bodies = event.bodies().into_iter();
        match self.texts {
            TextsWanted::None => Vec::new(),
            TextsWanted::Said => bodies.filter(|(_, kind)| *kind == BodyKind::Said).map(|(id, _)| id).collect(),
            TextsWanted::All => bodies.map(|(id, _)| id).collect(),
        }
    }

    fn view(
        &mut self,
        recorded: &Recorded,
        found: &BTreeMap<BodyId, Arc<str>>,
        turns: &BTreeMap<CallId, Option<TurnId>>,
    ) -> EventView {
        let event = &recorded.event;
        if let Event::TurnStarted { turn, .. } = event {
            self.turn = Some(*turn);
        }
        let of_call = call_of(event).and_then(|call| turns.get(&call).copied());
        let turn = of_call.unwrap_or_else(|| turn_of(event, self.turn));
        if let Event::TurnEnded { .. } = event {
            self.turn = None;
        }
        let words = |text: Text| found.get(&text.body).map(|text| shortened(text)).unwrap_or_default();
        let texts = self.wanted(event).into_iter();
        let texts = texts.filter_map(|id| Some((id.to_string(), found.get(&id)?.to_string())));
        let raw = named_for(event, &self.held.caller);
        EventView {
            seq: recorded.seq.0,
            at: recorded.at.0,
            is: raw.get("is").and_then(Value::as_str).unwrap_or_default().to_owned(),
            line: told_for(event, &self.held.caller, &words),
            turn: turn.map(|turn| turn.to_string()),
            call: call_of(event).map(|call| call.to_string()),
            message: message_of(event).map(|message| message.to_string()),
            event: raw,
            texts: texts.collect(),
        }
    }
}

fn named_in_line(event: &Event) -> Vec<BodyId> {
    let named = RefCell::new(Vec::new());
    let _ = event.line(&|text| {
        named.borrow_mut().push(text.body);
        String::new()
    });
    named.into_inner()
}

/// An event in the caller's names: those of sessions are the only ones that differ.
fn in_names_of(event: &Event, caller: &Caller) -> Option<Event> {
    let public = |session| caller.public(session).into();
    match event {
        Event::SessionOpened(opened) => {
            let mut opened = opened.clone();
            opened.session = public(&opened.session);
            Some(Event::SessionOpened(opened))
        }
        Event::SessionForked { session, from, at } => {
            Some(Event::SessionForked { session: public(session), from: public(from), at: *at })
        }
        _ => None,
    }
}

fn named_for(event: &Event, caller: &Caller) -> Value {
    let told = in_names_of(event, caller);
    serde_json::to_value(told.as_ref().unwrap_or(event)).unwrap_or_default()
}

fn told_for(event: &Event, caller: &Caller, words: &dyn Fn(Text) -> String) -> String {
    let told = in_names_of(event, caller);
    told.as_ref().unwrap_or(event).line(words)
}

fn shortened(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(LINE_TEXT_CHARS_MAX).map(plain).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// The turn an event belongs to. What is made once more, and what waits, belongs to none.
fn turn_of(event: &Event, running: Option<TurnId>) -> Option<TurnId> {
    match event {
        Event::CallOpened(opened) => opened.turn,
        Event::TurnStarted { turn, .. } | Event::TurnEnded { turn, .. } => Some(*turn),
        Event::Said(said) => said.turn.or(running),
        Event::MessageReceived(_) | Event::SessionOpened(_) | Event::SessionForked { .. } => None,
        _ => running,
    }
}

fn call_of(event: &Event) -> Option<CallId> {
    match event {
        Event::CallOpened(opened) => Some(opened.call),
        Event::CallAnswered(answered) => Some(answered.call),
        Event::CallFailed { call, .. }
        | Event::CallUnknown { call, .. }
        | Event::CallTakenUp { call }
        | Event::CallResolved { call, .. }
        | Event::CallCancelled { call, .. }
        | Event::CallAnsweredLate { call, .. }
        | Event::RoundDropped { call, .. } => Some(*call),
        Event::Said(said) => said.call,
        Event::ToolOpened(opened) => opened.wish.as_ref().map(|(call, _)| *call),
        _ => None,
    }
}

fn message_of(event: &Event) -> Option<MessageId> {
    match event {
        Event::MessageReceived(received) => Some(received.message),
        Event::MessagePosted(posted) => Some(posted.message),
        Event::MessageTaken { message } => Some(*message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reads_the_name_of_a_room() {
        let caller = Caller { owner: Some("acme".into()), ..Caller::default() };
        let forked =
            Event::SessionForked { session: "acme.b".into(), from: "acme.a".into(), at: segue_core::ids::Seq(3) };
        let told = named_for(&forked, &caller).to_string() + &told_for(&forked, &caller, &|_| String::new());
        assert!(!told.contains("acme"), "{told}");
    }

    #[test]
    fn a_long_text_is_shortened_and_harmless_in_a_line() {
        let line = shortened(&format!("a\u{1b}[2J\n{}", "x".repeat(1_000)));
        assert_eq!(line.chars().count(), LINE_TEXT_CHARS_MAX + 1);
        assert!(line.starts_with("a [2J x") && line.ends_with('…'), "{line}");
    }
}
