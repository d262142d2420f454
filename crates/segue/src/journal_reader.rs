//! Reads a session's journal for people: events page by page, with the words they name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::event::RecordedEvent;
use segue_core::ids::{Seq, SessionId};
use segue_engine::Engine;

use crate::limits::{EVENTS_PAGE_MAX, SHORT_TEXT_CHARS_MAX};
use crate::print::text::{sanitize_for_terminal, to_single_line, truncate_to_width};

/// A reader of one session's events, oldest first.
#[derive(Debug)]
pub struct JournalReader<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    after: Seq,
}

impl<'e> JournalReader<'e> {
    /// From after a place on.
    pub fn starting_after(engine: &'e Engine, session: &'e SessionId, after: Seq) -> Self {
        Self { engine, session, after }
    }

    /// From the beginning.
    pub fn from_start(engine: &'e Engine, session: &'e SessionId) -> Self {
        Self::starting_after(engine, session, Seq(0))
    }

    /// The next events; none at the end.
    pub async fn next_page(&mut self) -> anyhow::Result<Vec<RecordedEvent>> {
        let events = self.engine.read_events(self.session, self.after, EVENTS_PAGE_MAX).await?;
        self.after = events.last().map_or(self.after, |event| event.seq);
        Ok(events)
    }

    /// The words that `render` asks for when it renders these events.
    pub async fn load_texts(
        &self,
        events: &[RecordedEvent],
        render: impl Fn(&RecordedEvent, &dyn Fn(TextRef) -> String),
    ) -> anyhow::Result<JournalTexts> {
        let wanted = RefCell::new(BTreeSet::new());
        let note = |text: TextRef| {
            wanted.borrow_mut().insert(text.body);
            String::new()
        };
        events.iter().for_each(|event| render(event, &note));
        let ids: Vec<BodyId> = wanted.into_inner().into_iter().collect();
        let texts = self.engine.read_texts(self.session, &ids).await?;
        Ok(JournalTexts(ids.into_iter().zip(texts).collect()))
    }
}

/// Words by the id of their text.
#[derive(Debug, Default)]
pub struct JournalTexts(BTreeMap<BodyId, Arc<str>>);

impl JournalTexts {
    /// The words as they are.
    pub fn raw_text(&self, text: TextRef) -> String {
        self.0.get(&text.body).map(|words| words.to_string()).unwrap_or_default()
    }

    /// The words on one line, shortened and harmless.
    pub fn excerpt(&self, text: TextRef) -> String {
        // Cut before it is cleaned: a text may be very long.
        let beginning: String =
            self.0.get(&text.body).into_iter().flat_map(|words| words.chars().take(4 * SHORT_TEXT_CHARS_MAX)).collect();
        truncate_to_width(&to_single_line(&beginning), SHORT_TEXT_CHARS_MAX)
    }

    /// The words whole and harmless.
    pub fn sanitized_text(&self, text: TextRef) -> String {
        sanitize_for_terminal(&self.raw_text(text))
    }
}
