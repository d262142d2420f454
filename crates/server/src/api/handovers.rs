//! Handovers: the documents that crossed from one memory to another, and where their words came from.

use std::collections::BTreeSet;

use axum::Json;
use segue_core::body::Text;
use segue_core::flow::FlowSpec;
use segue_core::handover::Field;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::calls::spec;
use super::session_view::chronicle;
use super::shapes::word;
use super::turns::Texts;
use super::{At, Named};
use crate::chronicle::{CallEnd, Chronicle, HandoverNote};
use crate::extract::{Held, Params};
use crate::problem::Problem;

/// All handovers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Handovers {
    /// In the order they were made.
    pub handovers: Vec<HandoverView>,
}

/// A document handed over.
#[derive(Debug, Serialize, ToSchema)]
pub struct HandoverView {
    /// Which.
    pub handover: String,
    /// Of which kind.
    pub kind: String,
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// `emitted`, `repaired` or `built`.
    pub how: String,
    /// The calls it came from.
    pub calls: Vec<String>,
    /// What was wrong with it and let pass.
    pub complaints: Vec<String>,
    /// What it says, in the order of its kind.
    pub fields: Vec<HandoverField>,
    /// The calls whose prompt held it.
    pub shown_to: Vec<String>,
}

/// A field of a handover.
#[derive(Debug, Serialize, ToSchema)]
pub struct HandoverField {
    /// Its name.
    pub field: String,
    /// `text` or `list`.
    pub form: String,
    /// `required` or `optional`.
    pub need: String,
    /// A text, a list of texts, or nothing.
    pub value: Value,
    /// Where its words were found again, word for word.
    pub found_in: Vec<FoundIn>,
}

/// Where words were found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FoundIn {
    /// `call` or `message`.
    pub is: String,
    /// Which.
    pub name: String,
}

/// The documents handed over, with where their words came from
#[utoipa::path(get, path = "/v1/sessions/{session}/handovers", tag = "handovers", params(Named, At), responses((status = 200, body = Handovers)))]
pub async fn list(held: Held, Params(at): Params<At>) -> Result<Json<Handovers>, Problem> {
    let at = at.seq()?;
    let spec = spec(&held).await?;
    let notes = chronicle(&held, at, |chronicle| {
        let note = |note: &HandoverNote| (note.clone(), sources(chronicle, note));
        chronicle.handovers.iter().map(note).collect::<Vec<_>>()
    });
    let notes = notes.await?;
    let ids: BTreeSet<_> = notes.iter().flat_map(|(_, sources)| sources).map(|(_, text)| text.body).collect();
    let texts = Texts::read(&held, ids).await?;
    let handovers = notes.into_iter().map(|(note, sources)| {
        let sources = sources.into_iter().map(|(found, text)| (found, plain(&texts.words(text)))).collect::<Vec<_>>();
        view(&note, &sources, &spec)
    });
    Ok(Json(Handovers { handovers: handovers.collect() }))
}

/// Where the words of a handover can have come from: the answers it names, and what the user had said by then.
fn sources(chronicle: &Chronicle, note: &HandoverNote) -> Vec<(FoundIn, Text)> {
    let answers = note.handover.calls.iter().filter_map(|call| match &chronicle.calls.get(call)?.end {
        Some(CallEnd::Answered { text, .. }) => {
            Some((FoundIn { is: "call".to_owned(), name: call.to_string() }, *text))
        }
        _ => None,
    });
    let messages = chronicle.messages.values().filter(|message| message.place.seq < note.place.seq);
    let messages =
        messages.map(|message| (FoundIn { is: "message".to_owned(), name: message.message.to_string() }, message.text));
    answers.chain(messages).collect()
}

fn view(note: &HandoverNote, sources: &[(FoundIn, String)], spec: &FlowSpec) -> HandoverView {
    let handover = &note.handover;
    let schema = spec.handovers.get(&handover.kind);
    let declared = schema.map(|schema| schema.fields.as_slice()).unwrap_or_default();
    let mut fields: Vec<HandoverField> = declared
        .iter()
        .map(|field| {
            let value = handover.document.get(&field.name);
            HandoverField {
                field: field.name.clone(),
                form: word(&field.form),
                need: word(&field.need),
                value: value.map(|value| serde_json::to_value(value).unwrap_or_default()).unwrap_or_default(),
                found_in: value.map(|value| found_in(value, sources)).unwrap_or_default(),
            }
        })
        .collect();
    // A document keeps what its kind no longer declares.
    let known: BTreeSet<&str> = declared.iter().map(|field| field.name.as_str()).collect();
    for (name, value) in handover.document.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        fields.push(HandoverField {
            field: name.clone(),
            form: if matches!(value, Field::List(_)) { "list" } else { "text" }.to_owned(),
            need: "optional".to_owned(),
            value: serde_json::to_value(value).unwrap_or_default(),
            found_in: found_in(value, sources),
        });
    }
    HandoverView {
        handover: handover.id.to_string(),
        kind: handover.kind.to_string(),
        seq: note.place.seq.0,
        at: note.place.at.0,
        turn: note.turn.map(|turn| turn.to_string()),
        how: word(&handover.how),
        calls: handover.calls.iter().map(ToString::to_string).collect(),
        complaints: handover.complaints.clone(),
        fields,
        shown_to: note.shown_to.iter().map(ToString::to_string).collect(),
    }
}

/// The sources that hold the text, or any item of the list, word for word.
fn found_in(value: &Field, sources: &[(FoundIn, String)]) -> Vec<FoundIn> {
    let items: Vec<String> = match value {
        Field::Text(text) => vec![plain(text)],
        Field::List(items) => items.iter().map(|item| plain(item)).collect(),
    };
    let holds = |text: &str| items.iter().any(|item| !item.is_empty() && text.contains(item.as_str()));
    sources.iter().filter(|(_, text)| holds(text)).map(|(found, _)| found.clone()).collect()
}

/// A text without its breaks and marks of quotation, in small letters: what stays when it is copied into a document.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.trim_matches(['"', '\'', '“', '”']));
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}
