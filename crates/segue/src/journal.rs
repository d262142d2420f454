//! Reads a session's journal for people: events page by page, with the words they name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::{BodyId, Text};
use segue_core::event::Recorded;
use segue_core::ids::{Seq, SessionId};
use segue_engine::Engine;

use crate::limits::{EVENTS_PAGE_MAX, SHORT_TEXT_CHARS_MAX};
use crate::print::text::{fitted, harmless, one_line};

/// A reader of one session's events, oldest first.
#[derive(Debug)]
pub struct Journal<'e> {
    engine: &'e Engine,
    session: &'e SessionId,
    after: Seq,
}

impl<'e> Journal<'e> {
    /// From after a place on.
    pub fn after(engine: &'e Engine, session: &'e SessionId, after: Seq) -> Self {
        Self { engine, session, after }
    }

    /// From the beginning.
    pub fn of(engine: &'e Engine, session: &'e SessionId) -> Self {
        Self::after(engine, session, Seq(0))
    }

    /// The next events; none at the end.
    pub async fn next(&mut self) -> anyhow::Result<Vec<Recorded>> {
        let events = self.engine.events(self.session, self.after, EVENTS_PAGE_MAX).await?;
        self.after = events.last().map_or(self.after, |event| event.seq);
        Ok(events)
    }

    /// The words that `render` asks for when it renders these events.
    pub async fn words(
        &self,
        events: &[Recorded],
        render: impl Fn(&Recorded, &dyn Fn(Text) -> String),
    ) -> anyhow::Result<Words> {
        let wanted = RefCell::new(BTreeSet::new());
        let note = |text: Text| {
            wanted.borrow_mut().insert(text.body);
            String::new()
        };
        events.iter().for_each(|event| render(event, &note));
        let ids: Vec<BodyId> = wanted.into_inner().into_iter().collect();
        let texts = self.engine.texts(self.session, &ids).await?;
        Ok(Words(ids.into_iter().zip(texts).collect()))
    }
}

/// Words by the id of their text.
#[derive(Debug, Default)]
pub struct Words(BTreeMap<BodyId, Arc<str>>);

impl Words {
    /// The words as they are.
    pub fn whole(&self, text: Text) -> String {
        self.0.get(&text.body).map(|words| words.to_string()).unwrap_or_default()
    }

    /// The words on one line, shortened and harmless.
    pub fn short(&self, text: Text) -> String {
        // Cut before it is cleaned: a text may be very long.
        let beginning: String =
            self.0.get(&text.body).into_iter().flat_map(|words| words.chars().take(4 * SHORT_TEXT_CHARS_MAX)).collect();
        fitted(&one_line(&beginning), SHORT_TEXT_CHARS_MAX)
    }

    /// The words whole and harmless.
    pub fn full(&self, text: Text) -> String {
        harmless(&self.whole(text))
    }
}
