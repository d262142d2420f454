//! The entity part of a prompt: references with what models may know of them, and records as lines of JSON.

use std::cell::RefCell;
use std::collections::BTreeMap;

use segue_core::body::{BodyId, TextRef};
use segue_core::signal::{canonical_json, wrap_in_code_fence};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AssistantFlowContext, truncate_chars};
use crate::assistant::domain::{DomainSchema, RecordField, RecordFieldKind, RecordType};
use crate::assistant::registry::{EntityRelevanceTier, KnownRecordOrDraft, LoadedRecordSource, RecordLoadLevel};
use crate::assistant::tools::{
    DomainToolResult, ReturnedDomainRecord, render_plain_row, render_record_line, render_record_row,
};
use crate::limits::{STEP_RECORDS_CHARS_MAX, STEP_RESULT_CHARS_MAX};

/// A known record or draft as prompts show it. It has no id.
#[derive(Debug, Clone, Serialize)]
pub struct EntityForPrompt {
    pub reference: String,
    pub kind: String,
    pub label: String,
    pub tier: &'static str,
    pub last_action: &'static str,
    pub created_turn: u32,
    pub referenced_turn: u32,
    /// Why it is retained or demoted.
    pub reason: String,
    pub detail: &'static str,
    pub saved: bool,
}

impl EntityForPrompt {
    /// Converts an entry of the registry.
    #[must_use]
    pub fn from_entity(row: &(&str, &KnownRecordOrDraft, EntityRelevanceTier)) -> Self {
        let (reference, entity, tier) = row;
        let reason = entity.demoted_reason.as_deref().or(entity.retained_reason.as_deref()).unwrap_or_default();
        Self {
            reference: (*reference).to_owned(),
            kind: entity.kind.clone(),
            label: entity.label.clone(),
            tier: tier.as_str(),
            last_action: entity.last_action.as_str(),
            created_turn: entity.created_turn,
            referenced_turn: entity.referenced_turn,
            reason: reason.replace(['|', '\n'], " "),
            detail: entity.detail.as_str(),
            saved: entity.is_saved(),
        }
    }

    /// Returns whether some fields of the record are loaded.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.detail != RecordLoadLevel::None.as_str()
    }
}

/// Records as lines of JSON, as many as fit.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RecordsAsJsonLines {
    /// The lines in a code fence; empty if there are none.
    pub rows: String,
    /// The number of records that did not fit.
    pub hidden_count: usize,
    /// References whose record is not loaded.
    pub label_only: Vec<String>,
}

/// Renders records from the tool results that contain them. Each result is parsed once.
#[derive(Debug)]
pub struct RecordRenderer<'a> {
    view: &'a AssistantFlowContext<'a>,
    domain: &'a DomainSchema,
    parsed_results: RefCell<BTreeMap<BodyId, Option<DomainToolResult>>>,
}

impl<'a> RecordRenderer<'a> {
    /// Creates a renderer for the records of a session.
    #[must_use]
    pub fn new(view: &'a AssistantFlowContext<'a>, domain: &'a DomainSchema) -> Self {
        Self { view, domain, parsed_results: RefCell::default() }
    }

    /// Renders the records behind references.
    #[must_use]
    pub fn render_references<'r>(&self, references: impl IntoIterator<Item = &'r str>) -> RecordsAsJsonLines {
        let mut lines = Vec::new();
        let mut label_only = Vec::new();
        for reference in references {
            match self.render_referenced_record(reference) {
                Some(line) => lines.push(line),
                None => label_only.push(reference.to_owned()),
            }
        }
        RecordsAsJsonLines { label_only, ..fit_record_lines(lines) }
    }

    /// Renders the rows of a tool result.
    #[must_use]
    pub fn render_result_rows(&self, result: &DomainToolResult) -> RecordsAsJsonLines {
        let entities = &self.view.state.entities;
        let line = |row: &ReturnedDomainRecord| {
            let reference = entities.find_reference(&row.kind, &row.id)?;
            Some(self.render_row(reference, row))
        };
        fit_record_lines(result.rows.iter().filter_map(line).collect())
    }

    /// Renders the records behind references as plain text for a reply, as many as fit; `None` if there are none.
    #[must_use]
    pub fn render_plain_rows<'r>(&self, references: impl IntoIterator<Item = &'r str>) -> Option<String> {
        let entities = &self.view.state.entities;
        let row = |reference: &str| match entities.get(reference)?.source.as_ref()? {
            LoadedRecordSource::Draft(_) => None,
            LoadedRecordSource::ToolResultRow { text, row_index } => self.load_result_row(*text, *row_index),
        };
        let rows = references.into_iter().filter_map(row);
        let lines: Vec<String> = rows.map(|row| format!("- {}", render_plain_row(self.domain, &row))).collect();
        let text = truncate_chars(&lines.join("\n"), STEP_RESULT_CHARS_MAX);
        (!lines.is_empty()).then(|| wrap_in_code_fence(&text))
    }

    fn render_referenced_record(&self, reference: &str) -> Option<String> {
        let entities = &self.view.state.entities;
        match entities.get(reference)?.source.as_ref()? {
            LoadedRecordSource::Draft(content) => Some(render_record_line(reference, content.clone())),
            LoadedRecordSource::ToolResultRow { text, row_index } => {
                let row = self.load_result_row(*text, *row_index)?;
                Some(self.render_row(reference, &row))
            }
        }
    }

    /// Renders one record. A server may put ids into any field, so these are replaced too.
    fn render_row(&self, reference: &str, row: &ReturnedDomainRecord) -> String {
        let entities = &self.view.state.entities;
        let line = render_record_row(self.domain, entities, reference, row);
        if self.domain.server.is_some() { entities.replace_ids_with_references(&line) } else { line }
    }

    /// Renders a draft with labels in place of references.
    #[must_use]
    pub fn render_draft_with_reference_labels(&self, reference: &str) -> Option<String> {
        let entities = &self.view.state.entities;
        let LoadedRecordSource::Draft(content) = entities.get(reference)?.source.as_ref()? else { return None };
        Some(entities.replace_references_with_labels(&canonical_json(&Value::Object(content.clone()))))
    }

    fn load_result_row(&self, text: TextRef, row_index: usize) -> Option<ReturnedDomainRecord> {
        let mut parsed = self.parsed_results.borrow_mut();
        let result = parsed.entry(text.body).or_insert_with(|| DomainToolResult::parse(&self.view.read_text(text)));
        result.as_ref()?.rows.get(row_index).cloned()
    }
}

fn fit_record_lines(lines: Vec<String>) -> RecordsAsJsonLines {
    let count = lines.len();
    let mut chars = 0;
    let fits = |line: &String| {
        chars += line.chars().count() + 1;
        chars <= STEP_RECORDS_CHARS_MAX
    };
    let kept: Vec<String> = lines.into_iter().take_while(fits).collect();
    let rows = if kept.is_empty() { String::new() } else { wrap_in_code_fence(&kept.join("\n")) };
    RecordsAsJsonLines { rows, hidden_count: count - kept.len(), label_only: Vec::new() }
}

/// Returns a record of a type and a change, for the samples in prompts. Texts, dates and references are placeholders that cannot be
/// mistaken for data.
#[must_use]
pub fn placeholder_record_and_change(kind: &RecordType) -> (Value, Value) {
    let placeholder = |name: &String, sample: &Value| {
        let field = kind.field(name);
        let to = || field.and_then(|field| field.to.as_deref()).unwrap_or_default();
        match field.map(|field| (field.kind, field.one_of.is_empty())) {
            Some((RecordFieldKind::Text, true)) => json!(format!("<{name}>")),
            Some((RecordFieldKind::List, true)) => json!([format!("<{name}>")]),
            Some((RecordFieldKind::Date, _)) => json!("YYYY-MM-DD"),
            Some((RecordFieldKind::Link, _)) => json!(format!("{}_X", to())),
            Some((RecordFieldKind::Links, _)) => json!([format!("{}_X", to())]),
            _ => sample.clone(),
        }
    };
    let replace = |sample: &Value| {
        let fields = sample.as_object().into_iter().flatten();
        Value::Object(fields.map(|(name, value)| (name.clone(), placeholder(name, value))).collect())
    };
    let (record, change) = sample_record_and_change(kind);
    (replace(&record), replace(&change))
}

/// Returns a valid example record of a type and an example change.
#[must_use]
pub fn sample_record_and_change(kind: &RecordType) -> (Value, Value) {
    let value = |field: &RecordField| match field.kind {
        RecordFieldKind::Text => json!(field.one_of.first().map_or("…", String::as_str)),
        RecordFieldKind::Integer => json!(field.min.map_or(1, |min| min.max(1.0) as i64)),
        RecordFieldKind::Number => json!(field.min.unwrap_or(1.0)),
        RecordFieldKind::YesNo => json!(true),
        RecordFieldKind::Date => json!("2026-01-31"),
        RecordFieldKind::List => json!([field.one_of.first().map_or("…", String::as_str)]),
        RecordFieldKind::Link => json!(format!("{}_1", field.to.as_deref().unwrap_or_default())),
        RecordFieldKind::Links => json!([format!("{}_1", field.to.as_deref().unwrap_or_default())]),
    };
    let required = kind.fields.iter().filter(|field| field.required || field.name == kind.label);
    let record: Map<String, Value> = required.map(|field| (field.name.clone(), value(field))).collect();
    let changed = kind.fields.iter().find(|field| !field.required).or_else(|| kind.fields.first());
    let change: Map<String, Value> = changed.map(|field| (field.name.clone(), value(field))).into_iter().collect();
    (Value::Object(record), Value::Object(change))
}
