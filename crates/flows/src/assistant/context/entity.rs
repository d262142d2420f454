//! The entity slice: references with what models may know of them, and records as lines of JSON.

use std::cell::RefCell;
use std::collections::BTreeMap;

use segue_core::body::{BodyId, Text};
use segue_core::signal::fence;
use segue_core::signal::json::canonical;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Sight;
use crate::assistant::domain::{Domain, Field, Kind, RecordType};
use crate::assistant::registry::{Detail, Entity, Held, Tier};
use crate::assistant::tools::{Reported, Row, line, shown_row};
use crate::limits::RECORDS_CHARS_MAX;

/// A reference as models are told of it. There is no id in it.
#[derive(Debug, Clone, Serialize)]
pub struct EntityRow {
    /// The reference.
    pub reference: String,
    /// Its type.
    pub kind: String,
    /// What people call it.
    pub label: String,
    /// How near it is.
    pub tier: &'static str,
    /// What last happened to it.
    pub last: &'static str,
    /// The turn it became known in.
    pub created: u32,
    /// The turn it was last referred to in.
    pub referenced: u32,
    /// Why it is kept, or set aside.
    pub reason: String,
    /// What of it is at hand.
    pub detail: &'static str,
    /// Whether it is stored.
    pub saved: bool,
}

impl EntityRow {
    /// The row of an entity.
    #[must_use]
    pub fn of(row: &(&str, &Entity, Tier)) -> Self {
        let (reference, entity, tier) = row;
        let reason = entity.demoted.as_deref().or(entity.retained.as_deref()).unwrap_or_default();
        Self {
            reference: (*reference).to_owned(),
            kind: entity.kind.clone(),
            label: entity.label.clone(),
            tier: tier.word(),
            last: entity.last.word(),
            created: entity.created,
            referenced: entity.referenced,
            reason: reason.replace(['|', '\n'], " "),
            detail: entity.detail.word(),
            saved: entity.is_saved(),
        }
    }

    /// Whether something of the record is at hand.
    #[must_use]
    pub fn is_at_hand(&self) -> bool {
        self.detail != Detail::None.word()
    }
}

/// Records as lines of JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lines {
    /// The lines, fenced; empty if there are none.
    pub rows: String,
    /// How many did not fit.
    pub more: usize,
    /// References of which nothing but the name is at hand.
    pub bare: Vec<String>,
}

/// Reads records where they are held, each text once.
#[derive(Debug)]
pub struct Rows<'a> {
    view: &'a Sight<'a>,
    domain: &'a Domain,
    read: RefCell<BTreeMap<BodyId, Option<Reported>>>,
}

impl<'a> Rows<'a> {
    /// A reader over what a view can see.
    #[must_use]
    pub fn new(view: &'a Sight<'a>, domain: &'a Domain) -> Self {
        Self { view, domain, read: RefCell::default() }
    }

    /// The records of references, as models are shown them.
    #[must_use]
    pub fn lines<'r>(&self, references: impl IntoIterator<Item = &'r str>) -> Lines {
        let mut lines = Vec::new();
        let mut bare = Vec::new();
        for reference in references {
            match self.line(reference) {
                Some(line) => lines.push(line),
                None => bare.push(reference.to_owned()),
            }
        }
        Lines { bare, ..fitted(lines) }
    }

    /// The rows of a result, as models are shown them.
    #[must_use]
    pub fn result(&self, reported: &Reported) -> Lines {
        let entities = &self.view.state.entities;
        let line = |row: &Row| {
            let reference = entities.reference_of(&row.kind, &row.id)?;
            Some(self.shown(reference, row))
        };
        fitted(reported.rows.iter().filter_map(line).collect())
    }

    fn line(&self, reference: &str) -> Option<String> {
        let entities = &self.view.state.entities;
        match entities.get(reference)?.held.as_ref()? {
            Held::Draft(content) => Some(line(reference, content.clone())),
            Held::Row { text, place } => {
                let row = self.row(*text, *place)?;
                Some(self.shown(reference, &row))
            }
        }
    }

    /// A record as models are shown it; a server may have put ids anywhere.
    fn shown(&self, reference: &str, row: &Row) -> String {
        let entities = &self.view.state.entities;
        let line = shown_row(self.domain, entities, reference, row);
        if self.domain.server.is_some() { entities.without_ids(&line) } else { line }
    }

    /// A draft with names in place of references.
    #[must_use]
    pub fn draft_in_words(&self, reference: &str) -> Option<String> {
        let entities = &self.view.state.entities;
        let Held::Draft(content) = entities.get(reference)?.held.as_ref()? else { return None };
        Some(entities.in_words(&canonical(&Value::Object(content.clone()))))
    }

    fn row(&self, text: Text, place: usize) -> Option<Row> {
        let mut read = self.read.borrow_mut();
        let reported = read.entry(text.body).or_insert_with(|| Reported::read(&self.view.text(text)));
        reported.as_ref()?.rows.get(place).cloned()
    }
}

fn fitted(lines: Vec<String>) -> Lines {
    let count = lines.len();
    let mut chars = 0;
    let fits = |line: &String| {
        chars += line.chars().count() + 1;
        chars <= RECORDS_CHARS_MAX
    };
    let kept: Vec<String> = lines.into_iter().take_while(fits).collect();
    let rows = if kept.is_empty() { String::new() } else { fence(&kept.join("\n")) };
    Lines { rows, more: count - kept.len(), bare: Vec::new() }
}

/// A record of a type as it might look, and a change to one, for samples in prompts.
#[must_use]
pub fn samples(kind: &RecordType) -> (Value, Value) {
    let value = |field: &Field| match field.kind {
        Kind::Text => json!(field.one_of.first().map_or("…", String::as_str)),
        Kind::Integer => json!(field.min.map_or(1, |min| min.max(1.0) as i64)),
        Kind::Number => json!(field.min.unwrap_or(1.0)),
        Kind::YesNo => json!(true),
        Kind::Date => json!("2026-01-31"),
        Kind::List => json!([field.one_of.first().map_or("…", String::as_str)]),
        Kind::Link => json!(format!("{}_1", field.to.as_deref().unwrap_or_default())),
        Kind::Links => json!([format!("{}_1", field.to.as_deref().unwrap_or_default())]),
    };
    let required = kind.fields.iter().filter(|field| field.required || field.name == kind.label);
    let record: Map<String, Value> = required.map(|field| (field.name.clone(), value(field))).collect();
    let changed = kind.fields.iter().find(|field| !field.required).or_else(|| kind.fields.first());
    let change: Map<String, Value> = changed.map(|field| (field.name.clone(), value(field))).into_iter().collect();
    (Value::Object(record), Value::Object(change))
}
