//! Streams a response as the events of OpenAI's responses API.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::conversation::ClientHistoryToolCall;
use super::reply_stream::{ReplyToClient, ReplyUpdate, TurnReplyStream};
use super::responses::{ResponsesApiResponseTemplate, function_call_item, output_text_part};
use super::to_openai_error;
use crate::metrics::OpenStreamCountGuard;

/// The event stream of a response.
#[derive(Debug)]
pub(crate) struct ResponsesApiStream {
    reply: TurnReplyStream,
    template: ResponsesApiResponseTemplate,
    queued_events: VecDeque<AxumSseEvent>,
    sent_text: String,
    /// Whether the message item was opened; a reply may consist of tool calls only.
    has_message_item: bool,
    sequence_number: u64,
    is_finished: bool,
}

impl ResponsesApiStream {
    /// Queues the events that precede the first text.
    #[must_use]
    pub(crate) fn new(reply: TurnReplyStream, template: ResponsesApiResponseTemplate) -> Self {
        let mut events = Self {
            reply,
            template,
            queued_events: VecDeque::new(),
            sent_text: String::new(),
            has_message_item: false,
            sequence_number: 0,
            is_finished: false,
        };
        let in_progress = json!(events.template.build_in_progress());
        events.queue_event("response.created", json!({ "response": in_progress }));
        events.queue_event("response.in_progress", json!({ "response": in_progress }));
        events
    }

    /// Queues the events that open the message item, before its first text.
    fn open_message_item(&mut self) {
        if self.has_message_item {
            return;
        }
        self.has_message_item = true;
        let item = self.template.build_message_item(None);
        self.queue_event("response.output_item.added", json!({ "output_index": 0, "item": item }));
        let part = self.with_content_position(json!({ "part": output_text_part("") }));
        self.queue_event("response.content_part.added", part);
    }

    fn close_message_item(&mut self) {
        let text = self.sent_text.clone();
        let done = self.with_content_position(json!({ "text": text, "logprobs": [] }));
        self.queue_event("response.output_text.done", done);
        let part = self.with_content_position(json!({ "part": output_text_part(&text) }));
        self.queue_event("response.content_part.done", part);
        let item = self.template.build_message_item(Some(&text));
        self.queue_event("response.output_item.done", json!({ "output_index": 0, "item": item }));
    }

    fn queue_tool_call(&mut self, output_index: usize, call: &ClientHistoryToolCall) {
        let item = |arguments| json!({ "output_index": output_index, "item": function_call_item(call, arguments) });
        let item_id = function_call_item(call, None)["id"].clone();
        self.queue_event("response.output_item.added", item(None));
        let delta = json!({ "item_id": item_id, "output_index": output_index, "delta": call.arguments });
        self.queue_event("response.function_call_arguments.delta", delta);
        let done = json!({
            "item_id": item_id,
            "output_index": output_index,
            "name": call.name,
            "arguments": call.arguments,
        });
        self.queue_event("response.function_call_arguments.done", done);
        self.queue_event("response.output_item.done", item(Some(&call.arguments)));
    }

    fn queue_end(&mut self, reply: &ReplyToClient) {
        let calls = &reply.content.tool_calls;
        if calls.is_empty() {
            self.open_message_item();
        }
        if self.has_message_item {
            self.close_message_item();
        }
        for (index, call) in calls.iter().enumerate() {
            self.queue_tool_call(index + usize::from(self.has_message_item), call);
        }
        let response = self.template.build_completed(reply);
        let kind = format!("response.{}", response.status);
        self.queue_event(&kind, json!({ "response": response }));
    }

    /// Converts the stream to a response.
    pub(crate) fn into_sse_response(self, permit: OwnedSemaphorePermit, open_stream: OpenStreamCountGuard) -> Response {
        let stream = stream::unfold((self, permit, open_stream), |(mut events, permit, open_stream)| async move {
            let event = events.next_event().await?;
            Some((Ok::<_, Infallible>(event), (events, permit, open_stream)))
        });
        Sse::new(stream).keep_alive(KeepAlive::new()).into_response()
    }

    async fn next_event(&mut self) -> Option<AxumSseEvent> {
        loop {
            if let Some(event) = self.queued_events.pop_front() {
                return Some(event);
            }
            if self.is_finished {
                return None;
            }
            match self.reply.next_update().await {
                Ok(Some(ReplyUpdate::TextDelta(delta))) => {
                    self.open_message_item();
                    self.sent_text.push_str(&delta);
                    let event = self.with_content_position(json!({ "delta": delta, "logprobs": [] }));
                    self.queue_event("response.output_text.delta", event);
                }
                Ok(Some(ReplyUpdate::Finished(ended))) => {
                    self.reply.mark_delivered(&ended.content);
                    self.queue_end(&ended);
                    self.is_finished = true;
                }
                Ok(None) => self.is_finished = true,
                Err(problem) => {
                    let error = to_openai_error(&problem).error;
                    self.queue_event(
                        "error",
                        json!({ "message": error.message, "code": error.code, "param": error.param }),
                    );
                    self.is_finished = true;
                }
            }
        }
    }

    fn with_content_position(&self, mut event: Value) -> Value {
        event["item_id"] = json!(self.template.item_id());
        event["output_index"] = json!(0);
        event["content_index"] = json!(0);
        event
    }

    fn queue_event(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        self.queued_events.push_back(AxumSseEvent::default().event(kind).data(event.to_string()));
    }
}
