//! Events as they are told over HTTP: in the caller's names, in one line, with the texts that are wanted, and with what they belong
//! to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, BodyKind, TextRef};
use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{CallId, MessageId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::extract::SessionRef;
use crate::history::SessionHistory;
use crate::limits::SUMMARY_TEXT_CHARS_MAX;

/// Which texts come along with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventTextFilter {
    /// None.
    None,
    /// Those said by or to the user.
    #[default]
    Conversation,
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
    pub r#type: String,
    /// The same in one line.
    pub summary: String,
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
pub struct EventRenderer {
    session_ref: SessionRef,
    text_filter: EventTextFilter,
    /// The turn that runs at this point of the telling.
    running_turn: Option<TurnId>,
}

impl EventRenderer {
    /// Begins to tell where `turn` runs.
    #[must_use]
    pub fn new(session_ref: &SessionRef, texts: EventTextFilter, turn: Option<TurnId>) -> Self {
        Self { session_ref: session_ref.clone(), text_filter: texts, running_turn: turn }
    }

    /// Tells events.
    ///
    /// # Errors
    /// Their texts cannot be read.
    pub async fn render_events(&mut self, events: &[RecordedEvent]) -> Result<Vec<EventView>, Error> {
        let needed = RefCell::new(BTreeSet::new());
        for recorded in events {
            let mut needed = needed.borrow_mut();
            needed.extend(self.wanted_bodies(&recorded.event));
            needed.extend(bodies_in_summary(&recorded.event));
        }
        let ids: Vec<BodyId> = needed.into_inner().into_iter().collect();
        let found = self.session_ref.app.engine.read_texts(&self.session_ref.session, &ids).await?;
        let found: BTreeMap<BodyId, Arc<str>> = ids.into_iter().zip(found).collect();
        let turns = self.turns_of_late_calls(events).await?;
        Ok(events.iter().map(|recorded| self.render_event(recorded, &found, &turns)).collect())
    }

    /// The turns of calls that may have ended after theirs: they belong there, whatever turn runs by then.
    async fn turns_of_late_calls(&self, events: &[RecordedEvent]) -> Result<BTreeMap<CallId, Option<TurnId>>, Error> {
        let calls = events.iter().filter_map(|recorded| match &recorded.event {
            Event::CallAnsweredLate { call, .. } | Event::CallFailed { call, .. } => Some(*call),
            _ => None,
        });
        let calls: BTreeSet<CallId> = calls.collect();
        if calls.is_empty() {
            return Ok(BTreeMap::new());
        }
        let SessionRef { app, session, .. } = &self.session_ref;
        let look = |chronicle: &SessionHistory| {
            calls.into_iter().filter_map(|call| Some((call, chronicle.calls.get(&call)?.turn))).collect()
        };
        app.histories.with_history(&app.engine, session, None, look).await
    }

    fn wanted_bodies(&self, event: &Event) -> Vec<BodyId> {
        let bodies = event.referenced_bodies().into_iter();
        match self.text_filter {
            EventTextFilter::None => Vec::new(),
            EventTextFilter::Conversation => {
                bodies.filter(|(_, kind)| *kind == BodyKind::Conversation).map(|(id, _)| id).collect()
            }
            EventTextFilter::All => bodies.map(|(id, _)| id).collect(),
        }
    }

    fn render_event(
        &mut self,
        recorded: &RecordedEvent,
        found: &BTreeMap<BodyId, Arc<str>>,
        turns: &BTreeMap<CallId, Option<TurnId>>,
    ) -> EventView {
        let event = &recorded.event;
        if let Event::TurnStarted { turn, .. } = event {
            self.running_turn = Some(*turn);
        }
        let of_call = event_call(event).and_then(|call| turns.get(&call).copied());
        let turn = of_call.unwrap_or_else(|| event_turn(event, self.running_turn));
        if let Event::TurnEnded { .. } = event {
            self.running_turn = None;
        }
        let words = |text: TextRef| found.get(&text.body).map(|text| truncate_for_summary(text)).unwrap_or_default();
        let texts = self.wanted_bodies(event).into_iter();
        let texts = texts.filter_map(|id| Some((id.to_string(), found.get(&id)?.to_string())));
        let raw = event_json_for_caller(event, &self.session_ref.caller);
        EventView {
            seq: recorded.seq.0,
            at: recorded.at.0,
            r#type: raw.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            summary: event_summary_for_caller(event, &self.session_ref.caller, &words),
            turn: turn.map(|turn| turn.to_string()),
            call: event_call(event).map(|call| call.to_string()),
            message: event_message(event).map(|message| message.to_string()),
            event: raw,
            texts: texts.collect(),
        }
    }
}

fn bodies_in_summary(event: &Event) -> Vec<BodyId> {
    let named = RefCell::new(Vec::new());
    let _ = event.summary_line(&|text| {
        named.borrow_mut().push(text.body);
        String::new()
    });
    named.into_inner()
}

/// An event in the caller's names: those of sessions are the only ones that differ.
fn with_public_session_names(event: &Event, caller: &Caller) -> Option<Event> {
    let public = |session| caller.public_session_name(session).into();
    match event {
        Event::SessionOpened(opened) => {
            let mut opened = opened.clone();
            opened.session = public(&opened.session);
            Some(Event::SessionOpened(opened))
        }
        Event::SessionForked { session, from, at_seq: at } => {
            Some(Event::SessionForked { session: public(session), from: public(from), at_seq: *at })
        }
        _ => None,
    }
}

fn event_json_for_caller(event: &Event, caller: &Caller) -> Value {
    let told = with_public_session_names(event, caller);
    serde_json::to_value(told.as_ref().unwrap_or(event)).unwrap_or_default()
}

fn event_summary_for_caller(event: &Event, caller: &Caller, words: &dyn Fn(TextRef) -> String) -> String {
    let told = with_public_session_names(event, caller);
    told.as_ref().unwrap_or(event).summary_line(words)
}

fn truncate_for_summary(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(SUMMARY_TEXT_CHARS_MAX).map(plain).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// The turn an event belongs to. What is made once more, and what waits, belongs to none.
fn event_turn(event: &Event, running: Option<TurnId>) -> Option<TurnId> {
    match event {
        Event::CallOpened(opened) => opened.turn,
        Event::TurnStarted { turn, .. } | Event::TurnEnded { turn, .. } => Some(*turn),
        Event::ReplySent(said) => said.turn.or(running),
        Event::UserMessageReceived(_) | Event::SessionOpened(_) | Event::SessionForked { .. } => None,
        _ => running,
    }
}

fn event_call(event: &Event) -> Option<CallId> {
    match event {
        Event::CallOpened(opened) => Some(opened.call),
        Event::CallAnswered(answered) => Some(answered.call),
        Event::CallFailed { call, .. }
        | Event::CallOutcomeUnknown { call, .. }
        | Event::InheritedCallStarted { call }
        | Event::CallResolved { call, .. }
        | Event::CallCancelled { call, .. }
        | Event::CallAnsweredLate { call, .. }
        | Event::ToolRoundDropped { call, .. } => Some(*call),
        Event::ReplySent(said) => said.call,
        Event::ToolRunOpened(opened) => opened.requested_by.as_ref().map(|(call, _)| *call),
        _ => None,
    }
}

fn event_message(event: &Event) -> Option<MessageId> {
    match event {
        Event::UserMessageReceived(received) => Some(received.message),
        Event::AgentMessageSent(posted) => Some(posted.message),
        Event::AgentMessageReceived { message } => Some(*message),
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
            Event::SessionForked { session: "acme.b".into(), from: "acme.a".into(), at_seq: segue_core::ids::Seq(3) };
        let told = event_json_for_caller(&forked, &caller).to_string()
            + &event_summary_for_caller(&forked, &caller, &|_| String::new());
        assert!(!told.contains("acme"), "{told}");
    }

    #[test]
    fn a_long_text_is_shortened_and_harmless_in_a_line() {
        let line = truncate_for_summary(&format!("a\u{1b}[2J\n{}", "x".repeat(1_000)));
        assert_eq!(line.chars().count(), SUMMARY_TEXT_CHARS_MAX + 1);
        assert!(line.starts_with("a [2J x") && line.ends_with('…'), "{line}");
    }
}
