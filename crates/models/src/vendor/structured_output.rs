//! Replies that must be JSON matching a schema. Every reply is validated here, whatever the vendor promises. An invalid one is
//! sent back once, with its errors. If the second is invalid too, the better of the two is passed on as long as it is JSON at
//! all: it was paid for, and flows parse it with care. In a truncated reply, JSON counts only if it is complete, because its
//! missing end is unknown.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use segue_core::prompt::{CallFailure, CallFailureKind, ChatRole, PromptMessage, StopReason, TokenUsage};
use segue_core::signal::find_json_where;
use serde_json::Value;

use super::VendorModelClient;
use super::call_driver::VendorCallDriver;
use super::wire_format::is_truncated;
use crate::limits::{REPLY_BYTES_MAX, SCHEMA_ERROR_CHARS_MAX, SCHEMA_ERRORS_MAX};
use crate::model::{ModelRequest, ReplyChunk, ReplyChunkStream, ReplyFinish};

pub(super) fn stream_validated_json(
    vendor: VendorModelClient,
    schema: Value,
    request: ModelRequest,
) -> ReplyChunkStream {
    let first = VendorCallDriver::start(vendor.clone(), request.clone());
    let validated = SchemaRepairingReplyStream {
        vendor,
        // An invalid schema cannot be checked.
        validator: jsonschema::validator_for(&schema).ok(),
        request,
        reply_stream: Some(first),
        text: String::new(),
        has_tool_calls: false,
        rejected: None,
        pending_chunks: Vec::new(),
    };
    stream::unfold(validated, |mut validated| async move {
        let item = validated.next_item().await?;
        Some((item, validated))
    })
    .boxed()
}

struct SchemaRepairingReplyStream {
    vendor: VendorModelClient,
    validator: Option<jsonschema::Validator>,
    request: ModelRequest,
    reply_stream: Option<ReplyChunkStream>,
    text: String,
    has_tool_calls: bool,
    /// The JSON of the rejected reply, if any, and its token usage.
    rejected: Option<(Option<Value>, Option<TokenUsage>)>,
    /// Chunks to emit, last first.
    pending_chunks: Vec<ReplyChunk>,
}

impl SchemaRepairingReplyStream {
    async fn next_item(&mut self) -> Option<Result<ReplyChunk, CallFailure>> {
        if let Some(chunk) = self.pending_chunks.pop() {
            return Some(Ok(chunk));
        }
        let item = self.reply_stream.as_mut()?.next().await;
        Some(match item {
            Some(Ok(ReplyChunk::Text(text))) => {
                self.text.push_str(&text);
                // The caller does not see this text yet, so its limit is enforced here.
                match self.text.len() > REPLY_BYTES_MAX {
                    true => {
                        let message = format!("the reply is longer than {REPLY_BYTES_MAX} bytes");
                        self.fail_with_rejected_usage(
                            CallFailure::new(CallFailureKind::UnusableReply, message).with_usage(None),
                        )
                    }
                    false => Ok(ReplyChunk::KeepAlive),
                }
            }
            Some(Ok(ReplyChunk::ToolCall(call))) => {
                self.has_tool_calls = true;
                Ok(ReplyChunk::ToolCall(call))
            }
            Some(Ok(ReplyChunk::Finish(finish))) => match self.validate_reply(finish) {
                Ok(chunk) => Ok(chunk),
                Err(failure) => self.fail_with_rejected_usage(failure),
            },
            Some(Ok(other)) => Ok(other),
            Some(Err(failure)) => self.fail_with_rejected_usage(failure),
            None => {
                self.reply_stream = None;
                return None;
            }
        })
    }

    /// Ends with a failure that includes the usage of a rejected reply.
    fn fail_with_rejected_usage(&mut self, failure: CallFailure) -> Result<ReplyChunk, CallFailure> {
        self.reply_stream = None;
        match self.rejected.take() {
            Some((_, used)) => Err(failure.with_usage(used)),
            None => Err(failure),
        }
    }

    /// Validates a complete reply: emits it, or sends it back.
    fn validate_reply(&mut self, finish: ReplyFinish) -> Result<ReplyChunk, CallFailure> {
        let text = std::mem::take(&mut self.text);
        self.reply_stream = None;
        if self.has_tool_calls {
            return Ok(self.emit_checked_reply(text, finish));
        }
        let was_truncated = is_truncated(finish.stop);
        let found = find_json_where(&text, |value| self.describe_schema_errors(value).is_none());
        if let Some(value) = found.value.filter(|_| !was_truncated || found.complaints.is_empty()) {
            return Ok(self.emit_checked_reply(preserve_or_serialize(&text, &value), finish));
        }
        let value = if was_truncated { None } else { find_json_where(&text, |_| true).value };
        let first_value = match &mut self.rejected {
            None => {
                self.retry_with_errors(text, value, &finish);
                return Ok(ReplyChunk::KeepAlive);
            }
            Some((first_value, _)) => first_value.take(),
        };
        match (value, first_value) {
            (Some(value), _) => Ok(self.emit_checked_reply(preserve_or_serialize(&text, &value), finish)),
            // The first reply is passed on, and that one was complete.
            (None, Some(value)) => {
                Ok(self.emit_checked_reply(value.to_string(), ReplyFinish { stop: StopReason::Done, ..finish }))
            }
            (None, None) => {
                let message = match was_truncated {
                    true => "the model was asked for JSON twice, and the second reply was cut off",
                    false => "the model was asked for JSON twice and sent none",
                };
                Err(CallFailure::new(CallFailureKind::UnusableReply, message).with_usage(finish.usage))
            }
        }
    }

    fn emit_checked_reply(&mut self, text: String, finish: ReplyFinish) -> ReplyChunk {
        let finish = match self.rejected.take() {
            Some((_, used)) => ReplyFinish { usage: sum_usage(used, finish.usage), rejected_usage: used, ..finish },
            None => finish,
        };
        self.pending_chunks.push(ReplyChunk::Finish(finish));
        ReplyChunk::Text(text)
    }

    fn retry_with_errors(&mut self, text: String, value: Option<Value>, finish: &ReplyFinish) {
        let problem = match (finish.stop, &value) {
            (StopReason::Length, _) => "it was too long and was cut off before its end; it must be shorter".to_owned(),
            (StopReason::Repetition, _) => "it repeated itself without end".to_owned(),
            (StopReason::ContentFilter, _) => {
                "it was broken off before its end; it must be shorter, and say less".to_owned()
            }
            (StopReason::Done | StopReason::ToolCalls, Some(value)) => {
                self.describe_schema_errors(value).unwrap_or_default()
            }
            (StopReason::Done | StopReason::ToolCalls, None) => "there is no JSON in it".to_owned(),
        };
        let mut prompt = (*self.request.prompt).clone();
        // A rough estimate: a token has three bytes or more.
        let added_tokens = (text.len() + SCHEMA_ERROR_CHARS_MAX * SCHEMA_ERRORS_MAX) / 3;
        let prompt_tokens = self.request.prompt_tokens.saturating_add(u32::try_from(added_tokens).unwrap_or(u32::MAX));
        Arc::make_mut(&mut prompt.messages).push(PromptMessage::from_text(ChatRole::Assistant, text));
        let complaint = format!(
            "That is not the JSON that was asked for: {problem}. Send the whole of it once more, corrected, and nothing else."
        );
        Arc::make_mut(&mut prompt.messages).push(PromptMessage::from_text(ChatRole::User, complaint));
        let request = ModelRequest { prompt: Arc::new(prompt), prompt_tokens, ..self.request.clone() };
        self.reply_stream = Some(VendorCallDriver::start(self.vendor.clone(), request));
        self.rejected = Some((value, finish.usage));
    }

    /// Returns the schema errors of a value, if there are any.
    fn describe_schema_errors(&self, value: &Value) -> Option<String> {
        let errors = self.validator.as_ref()?.iter_errors(value).take(SCHEMA_ERRORS_MAX);
        let descriptions = errors.map(|error| {
            let path = error.instance_path().to_string();
            let path = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
            let message: String = error.to_string().chars().take(SCHEMA_ERROR_CHARS_MAX).collect();
            format!("{path}: {message}")
        });
        let descriptions: Vec<String> = descriptions.collect();
        (!descriptions.is_empty()).then(|| descriptions.join("; "))
    }
}

/// Returns the text unchanged if it is exactly the value, else the serialized value.
fn preserve_or_serialize(text: &str, value: &Value) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(read) if read == *value => text.to_owned(),
        _ => value.to_string(),
    }
}

/// Adds two usages; `None` if either is unknown.
fn sum_usage(one: Option<TokenUsage>, other: Option<TokenUsage>) -> Option<TokenUsage> {
    Some(one? + other?)
}
