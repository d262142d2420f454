//! Reads a session's journal page by page, with the texts that its events refer to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::event::RecordedEvent;
use segue_core::ids::{Seq, SessionId};
use segue_engine::Engine;

use crate::limits::{EVENTS_PAGE_MAX, SHORT_TEXT_CHARS_MAX};
use crate::print::text::{sanitize_for_terminal, to_single_line, truncate_to_width};

/// Reads the events of one session, oldest first.
#[derive(Debug)]
pub(crate) struct JournalPager<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    after: Seq,
}

impl<'e> JournalPager<'e> {
    /// Reads the events after `after`.
    pub(crate) fn starting_after(engine: &'e Engine, session: &'e SessionId, after: Seq) -> Self {
        Self { engine, session, after }
    }

    /// Reads all events.
    pub(crate) fn from_start(engine: &'e Engine, session: &'e SessionId) -> Self {
        Self::starting_after(engine, session, Seq(0))
    }

    /// Returns the next events; an empty page is the end.
    pub(crate) async fn next_page(&mut self) -> anyhow::Result<Vec<RecordedEvent>> {
        let events = self.engine.read_events(self.session, self.after, EVENTS_PAGE_MAX).await?;
        self.after = events.last().map_or(self.after, |event| event.seq);
        Ok(events)
    }

    /// Loads the texts that `render` looks up when it renders these events.
    pub(crate) async fn load_texts(
        &self,
        events: &[RecordedEvent],
        render: impl Fn(&RecordedEvent, &dyn Fn(TextRef) -> String),
    ) -> anyhow::Result<JournalTexts> {
        let wanted = RefCell::new(BTreeSet::new());
        let record = |text: TextRef| {
            wanted.borrow_mut().insert(text.body);
            String::new()
        };
        events.iter().for_each(|event| render(event, &record));
        let ids: Vec<BodyId> = wanted.into_inner().into_iter().collect();
        let texts = self.engine.read_texts(self.session, &ids).await?;
        Ok(JournalTexts(ids.into_iter().zip(texts).collect()))
    }
}

/// Loaded texts by their id.
#[derive(Debug, Default)]
pub(crate) struct JournalTexts(BTreeMap<BodyId, Arc<str>>);

impl JournalTexts {
    /// Returns the unchanged text.
    pub(crate) fn raw_text(&self, text: TextRef) -> String {
        self.0.get(&text.body).map(|text| text.to_string()).unwrap_or_default()
    }

    /// Returns the beginning of the text on one line, safe to print on a terminal.
    pub(crate) fn excerpt(&self, text: TextRef) -> String {
        // The text may be very long, so it is cut before it is cleaned.
        let beginning: String =
            self.0.get(&text.body).into_iter().flat_map(|text| text.chars().take(4 * SHORT_TEXT_CHARS_MAX)).collect();
        truncate_to_width(&to_single_line(&beginning), SHORT_TEXT_CHARS_MAX)
    }

    /// Returns the whole text, safe to print on a terminal.
    pub(crate) fn sanitized_text(&self, text: TextRef) -> String {
        sanitize_for_terminal(&self.raw_text(text))
    }
}
