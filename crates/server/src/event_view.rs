//! Renders events for HTTP: with the session names that the caller knows, a one-line summary, the requested texts, and the
//! turn, call and message that each event belongs to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, BodyVisibility, TextRef};
use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{CallId, MessageId, TurnId};
use segue_engine::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::caller::Caller;
use crate::extract::CallerSessionRef;
use crate::history::SessionHistory;
use crate::limits::SUMMARY_TEXT_CHARS_MAX;

/// Which texts are included with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventTextFilter {
    None,
    /// Only messages and replies.
    #[default]
    Conversation,
    All,
}

/// An event of the journal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventView {
    /// The sequence number.
    pub seq: u64,
    /// When the event was recorded.
    pub at: u64,
    /// The type of the event, as in `event`.
    pub r#type: String,
    /// The event in one line.
    pub summary: String,
    /// The turn that the event belongs to.
    pub turn: Option<String>,
    /// The call that the event is about.
    pub call: Option<String>,
    /// The message that the event is about.
    pub message: Option<String>,
    /// The event as recorded in the journal.
    #[schema(value_type = Object)]
    pub event: Value,
    /// The texts that the event refers to, by id.
    pub texts: BTreeMap<String, String>,
}

/// Renders consecutive events.
#[derive(Debug)]
pub(crate) struct EventViewBuilder {
    session_ref: CallerSessionRef,
    text_filter: EventTextFilter,
    /// The turn that is running at this point of the journal.
    running_turn: Option<TurnId>,
}

impl EventViewBuilder {
    /// Creates a renderer that starts while `turn` is running.
    #[must_use]
    pub(crate) fn new(session_ref: &CallerSessionRef, texts: EventTextFilter, turn: Option<TurnId>) -> Self {
        Self { session_ref: session_ref.clone(), text_filter: texts, running_turn: turn }
    }

    /// Renders events.
    ///
    /// # Errors
    /// The texts cannot be read.
    pub(crate) async fn render_events(&mut self, events: &[RecordedEvent]) -> Result<Vec<EventView>, Error> {
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

    /// Returns the turns of calls that may have ended after their turn. Their events belong to that turn, even if another is
    /// running.
    async fn turns_of_late_calls(&self, events: &[RecordedEvent]) -> Result<BTreeMap<CallId, Option<TurnId>>, Error> {
        let calls = events.iter().filter_map(|recorded| match &recorded.event {
            Event::CallAnsweredLate { call, .. } | Event::CallFailed { call, .. } => Some(*call),
            _ => None,
        });
        let calls: BTreeSet<CallId> = calls.collect();
        if calls.is_empty() {
            return Ok(BTreeMap::new());
        }
        let CallerSessionRef { app, session, .. } = &self.session_ref;
        let read = |history: &SessionHistory| {
            calls.into_iter().filter_map(|call| Some((call, history.calls.get(&call)?.turn))).collect()
        };
        app.histories.with_history(&app.engine, session, None, read).await
    }

    fn wanted_bodies(&self, event: &Event) -> Vec<BodyId> {
        let bodies = event.referenced_bodies().into_iter();
        match self.text_filter {
            EventTextFilter::None => Vec::new(),
            EventTextFilter::Conversation => {
                bodies.filter(|(_, kind)| *kind == BodyVisibility::Conversation).map(|(id, _)| id).collect()
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
        let call_turn = event_call(event).and_then(|call| turns.get(&call).copied());
        let turn = call_turn.unwrap_or_else(|| event_turn(event, self.running_turn));
        if let Event::TurnEnded { .. } = event {
            self.running_turn = None;
        }
        let summary_text =
            |text: TextRef| found.get(&text.body).map(|text| truncate_for_summary(text)).unwrap_or_default();
        let texts = self.wanted_bodies(event).into_iter();
        let texts = texts.filter_map(|id| Some((id.to_string(), found.get(&id)?.to_string())));
        let raw = event_json_for_caller(event, &self.session_ref.caller);
        EventView {
            seq: recorded.seq.0,
            at: recorded.at.0,
            r#type: raw.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            summary: event_summary_for_caller(event, &self.session_ref.caller, &summary_text),
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
    // Only the ids that the line asks for are of interest.
    let _ = event.summary_line(&|text| {
        named.borrow_mut().push(text.body);
        String::new()
    });
    named.into_inner()
}

/// Replaces full session names by the names that the caller knows. Returns `None` if the event contains none.
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
    let renamed = with_public_session_names(event, caller);
    // Our own types can always be serialized.
    serde_json::to_value(renamed.as_ref().unwrap_or(event)).unwrap_or_default()
}

fn event_summary_for_caller(event: &Event, caller: &Caller, summary_text: &dyn Fn(TextRef) -> String) -> String {
    let renamed = with_public_session_names(event, caller);
    renamed.as_ref().unwrap_or(event).summary_line(summary_text)
}

fn truncate_for_summary(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut chars = text.chars();
    let mut summary: String = chars.by_ref().take(SUMMARY_TEXT_CHARS_MAX).map(printable).collect();
    if chars.next().is_some() {
        summary.push('…');
    }
    summary
}

/// Returns the turn that an event belongs to. Recomputations and waiting messages belong to none.
fn event_turn(event: &Event, running: Option<TurnId>) -> Option<TurnId> {
    match event {
        Event::CallOpened(opened) => opened.turn,
        Event::TurnStarted { turn, .. } | Event::TurnEnded { turn, .. } => Some(*turn),
        Event::ReplySent(reply) => reply.turn.or(running),
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
        Event::ReplySent(reply) => reply.call,
        Event::ToolRunOpened(opened) => opened.requested_by.as_ref().map(|(call, _)| *call),
        _ => None,
    }
}

fn event_message(event: &Event) -> Option<MessageId> {
    match event {
        Event::UserMessageReceived(received) => Some(received.message),
        Event::AgentMessageSent(sent) => Some(sent.message),
        Event::AgentMessageReceived { message } => Some(*message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_not_visible_to_its_owner() {
        let caller = Caller { owner: Some("acme".into()), ..Caller::default() };
        let forked =
            Event::SessionForked { session: "acme.b".into(), from: "acme.a".into(), at_seq: segue_core::ids::Seq(3) };
        let renamed = event_json_for_caller(&forked, &caller).to_string()
            + &event_summary_for_caller(&forked, &caller, &|_| String::new());
        assert!(!renamed.contains("acme"), "{renamed}");
    }

    #[test]
    fn long_text_is_truncated_and_control_characters_are_replaced() {
        let summary = truncate_for_summary(&format!("a\u{1b}[2J\n{}", "x".repeat(1_000)));
        assert_eq!(summary.chars().count(), SUMMARY_TEXT_CHARS_MAX + 1);
        assert!(summary.starts_with("a [2J x") && summary.ends_with('…'), "{summary}");
    }
}
