//! Serves the handovers of a session, with the sources of their texts.

use std::collections::BTreeSet;

use axum::Json;
use segue_core::body::TextRef;
use segue_core::flow::FlowSpec;
use segue_core::handover::HandoverFieldValue;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::calls::read_flow_spec;
use super::common_types::serialized_name;
use super::session_view::with_session_history;
use super::turns::LoadedSessionTexts;
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, QueryParams};
use crate::history::{CallEndHistoryEntry, HandoverHistoryEntry, SessionHistory};
use crate::problem::HttpProblem;

/// The handovers of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandoverList {
    /// In the order of creation.
    pub handovers: Vec<HandoverView>,
}

/// A handover document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandoverView {
    pub handover: String,
    pub kind: String,
    pub seq: u64,
    pub at: u64,
    pub turn: Option<String>,
    /// `emitted`, `repaired` or `built`.
    pub provenance: String,
    /// The calls whose answers the handover was built from.
    pub calls: Vec<String>,
    /// Violations that were accepted because no repair was left.
    pub complaints: Vec<String>,
    /// In the order of the schema.
    pub fields: Vec<HandoverFieldView>,
    /// The calls whose prompts contain the handover.
    pub shown_to: Vec<String>,
}

/// A field of a handover.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandoverFieldView {
    pub field: String,
    /// `text` or `list`.
    pub form: String,
    /// `required` or `optional`.
    pub need: String,
    /// A text, a list of texts, or `null`.
    pub value: Value,
    /// The calls and messages that contain the text verbatim.
    pub found_in: Vec<TextOccurrenceView>,
}

/// A call or message that contains a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TextOccurrenceView {
    /// `call` or `message`.
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
}

/// List the handovers of a session
///
/// Each field names the calls and messages in which its text was found.
#[utoipa::path(get, path = "/v1/sessions/{session}/handovers", tag = "handovers", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = HandoverList)))]
pub(crate) async fn list_handovers(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<HandoverList>, HttpProblem> {
    let at = at.to_seq()?;
    let spec = read_flow_spec(&session_ref).await?;
    let entries = with_session_history(&session_ref, at, |history| {
        let entry = |entry: &HandoverHistoryEntry| (entry.clone(), collect_text_sources(history, entry));
        history.handovers.iter().map(entry).collect::<Vec<_>>()
    });
    let entries = entries.await?;
    let ids: BTreeSet<_> = entries.iter().flat_map(|(_, sources)| sources).map(|(_, text)| text.body).collect();
    let texts = LoadedSessionTexts::load(&session_ref, ids).await?;
    let handovers = entries.into_iter().map(|(entry, sources)| {
        let sources =
            sources.into_iter().map(|(source, text)| (source, normalize_text(&texts.lookup(text)))).collect::<Vec<_>>();
        handover_view(&entry, &sources, &spec)
    });
    Ok(Json(HandoverList { handovers: handovers.collect() }))
}

/// Collects the texts a handover may quote: the answers of its source calls, and the user messages before it.
fn collect_text_sources(history: &SessionHistory, entry: &HandoverHistoryEntry) -> Vec<(TextOccurrenceView, TextRef)> {
    let answers = entry.handover.source_calls.iter().filter_map(|call| match &history.calls.get(call)?.end {
        Some(CallEndHistoryEntry::Answered { text, .. }) => {
            Some((TextOccurrenceView { kind: "call".to_owned(), id: call.to_string() }, *text))
        }
        _ => None,
    });
    let messages = history.messages.values().filter(|message| message.position.seq < entry.position.seq);
    let messages = messages.map(|message| {
        (TextOccurrenceView { kind: "message".to_owned(), id: message.message.to_string() }, message.text)
    });
    answers.chain(messages).collect()
}

fn handover_view(
    entry: &HandoverHistoryEntry,
    sources: &[(TextOccurrenceView, String)],
    spec: &FlowSpec,
) -> HandoverView {
    let handover = &entry.handover;
    let schema = spec.handovers.get(&handover.kind);
    let declared = schema.map(|schema| schema.fields.as_slice()).unwrap_or_default();
    let mut fields: Vec<HandoverFieldView> = declared
        .iter()
        .map(|field| {
            let value = handover.document.get(&field.name);
            HandoverFieldView {
                field: field.name.clone(),
                form: serialized_name(&field.field_type),
                need: serialized_name(&field.presence),
                // Our own types can always be serialized.
                value: value.map(|value| serde_json::to_value(value).unwrap_or_default()).unwrap_or_default(),
                found_in: value.map(|value| find_text_sources(value, sources)).unwrap_or_default(),
            }
        })
        .collect();
    // A document keeps fields that its schema no longer declares.
    let known: BTreeSet<&str> = declared.iter().map(|field| field.name.as_str()).collect();
    for (name, value) in handover.document.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        fields.push(HandoverFieldView {
            field: name.clone(),
            form: if matches!(value, HandoverFieldValue::List(_)) { "list" } else { "text" }.to_owned(),
            need: "optional".to_owned(),
            // Our own types can always be serialized.
            value: serde_json::to_value(value).unwrap_or_default(),
            found_in: find_text_sources(value, sources),
        });
    }
    HandoverView {
        handover: handover.id.to_string(),
        kind: handover.kind.to_string(),
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        turn: entry.turn.map(|turn| turn.to_string()),
        provenance: serialized_name(&handover.provenance),
        calls: handover.source_calls.iter().map(ToString::to_string).collect(),
        complaints: handover.complaints.clone(),
        fields,
        shown_to: entry.shown_to.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the sources that contain the text, or any item of the list, verbatim.
fn find_text_sources(value: &HandoverFieldValue, sources: &[(TextOccurrenceView, String)]) -> Vec<TextOccurrenceView> {
    let items: Vec<String> = match value {
        HandoverFieldValue::Text(text) => vec![normalize_text(text)],
        HandoverFieldValue::List(items) => items.iter().map(|item| normalize_text(item)).collect(),
    };
    let holds = |text: &str| items.iter().any(|item| !item.is_empty() && text.contains(item.as_str()));
    sources.iter().filter(|(_, text)| holds(text)).map(|(source, _)| source.clone()).collect()
}

/// Collapses white space, strips quotation marks and lowercases, so that quoted text still matches.
fn normalize_text(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.trim_matches(['"', '\'', '“', '”']));
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}
