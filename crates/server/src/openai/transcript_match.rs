//! Compares what a client sent with what a session holds.

use segue_core::body::{BodyId, TextRef};
use serde_json::Value;

use super::conversation::{ClientHistoryToolCall, ClientMessageContent, trim_for_comparison};
use super::transcript::{
    RecordedClientExchange, RecordedClientToolCall, RecordedMessageOrToolResults, StoredMessageRefs,
    parse_client_call_id,
};
use crate::extract::CallerSessionRef;
use crate::problem::HttpProblem;

/// Returns whether a session holds this input of the client.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn input_matches(
    session_ref: &CallerSessionRef,
    stored: &RecordedMessageOrToolResults,
    content: &ClientMessageContent,
) -> Result<bool, HttpProblem> {
    let results = match stored {
        RecordedMessageOrToolResults::Message(_) if !content.tool_results.is_empty() => return Ok(false),
        RecordedMessageOrToolResults::Message(stored) => return content_matches(session_ref, stored, content).await,
        RecordedMessageOrToolResults::ToolResults(results) => results,
    };
    if !content.text.is_empty() || results.len() != content.tool_results.len() {
        return Ok(false);
    }
    for (run, stored) in results {
        let names_run = |id: &str| parse_client_call_id(id).is_some_and(|(_, named)| named == *run);
        let Some(result) = content.tool_results.iter().find(|result| names_run(&result.tool_call_id)) else {
            return Ok(false);
        };
        if !texts_match(session_ref, &[*stored], &result.text).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether an exchange ended with this reply.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn reply_matches(
    session_ref: &CallerSessionRef,
    exchange: &RecordedClientExchange,
    reply: &ClientMessageContent,
) -> Result<bool, HttpProblem> {
    Ok(exchange.tool_calls.len() == reply.tool_calls.len()
        && exchange.tool_calls.iter().zip(&reply.tool_calls).all(|(stored, sent)| is_same_call(stored, sent))
        && texts_match(session_ref, &exchange.reply_texts, &reply.text).await?)
}

/// The session in the id does not count: a fork has the runs of its original.
fn is_same_call(stored: &RecordedClientToolCall, sent: &ClientHistoryToolCall) -> bool {
    let names_run = parse_client_call_id(&sent.id).is_some_and(|(_, run)| run == stored.run);
    let has_same_arguments =
        || serde_json::from_str::<Value>(&sent.arguments).is_ok_and(|sent| sent == stored.arguments);
    names_run && sent.name == stored.tool && has_same_arguments()
}

/// Returns whether stored messages have the given content.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn content_matches(
    session_ref: &CallerSessionRef,
    stored: &StoredMessageRefs,
    content: &ClientMessageContent,
) -> Result<bool, HttpProblem> {
    Ok(content.image_hashes().eq(stored.images.iter().copied())
        && texts_match(session_ref, &stored.texts, &content.text).await?)
}

/// Returns whether stored texts, joined, equal the given text.
async fn texts_match(session_ref: &CallerSessionRef, texts: &[TextRef], expected: &str) -> Result<bool, HttpProblem> {
    match texts {
        [] => return Ok(trim_for_comparison(expected).is_empty()),
        // Equal hashes mean equal texts.
        [only] if only.body == BodyId::hash_text(expected) => return Ok(true),
        _ => {}
    }
    let joined = read_joined_text(session_ref, texts).await?;
    // If several attempts were streamed, the client holds their texts too, before the final one.
    Ok(trim_for_comparison(expected) == trim_for_comparison(&joined)
        || (!joined.is_empty()
            && trim_for_comparison(expected).ends_with(&format!("\n\n{}", trim_for_comparison(&joined)))))
}

/// Reads texts and joins them as clients do.
///
/// # Errors
/// The texts cannot be read.
pub(crate) async fn read_joined_text(session_ref: &CallerSessionRef, texts: &[TextRef]) -> Result<String, HttpProblem> {
    let ids: Vec<BodyId> = texts.iter().map(|text| text.body).collect();
    let texts = session_ref
        .app
        .engine
        .read_texts(&session_ref.session, &ids)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    Ok(texts.iter().map(|text| trim_for_comparison(text)).collect::<Vec<_>>().join("\n\n"))
}
