//! Streams a response as the events of OpenAI's responses API.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as AxumSseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::reply_stream::{ReplyUpdate, TurnReplyStream};
use super::responses::{ResponseMetadata, output_text_part};
use super::to_openai_error;
use crate::metrics::OpenStreamGuard;

/// The event stream of a response.
#[derive(Debug)]
pub(crate) struct ResponsesEndpointStream {
    reply: TurnReplyStream,
    template: ResponseMetadata,
    queued_events: VecDeque<AxumSseEvent>,
    sent_text: String,
    sequence_number: u64,
    is_finished: bool,
}

impl ResponsesEndpointStream {
    /// Queues the events that precede the first text.
    #[must_use]
    pub(crate) fn new(reply: TurnReplyStream, template: ResponseMetadata) -> Self {
        let mut events = Self {
            reply,
            template,
            queued_events: VecDeque::new(),
            sent_text: String::new(),
            sequence_number: 0,
            is_finished: false,
        };
        let in_progress = json!(events.template.in_progress());
        events.queue_event("response.created", json!({ "response": in_progress }));
        events.queue_event("response.in_progress", json!({ "response": in_progress }));
        events.queue_event(
            "response.output_item.added",
            json!({ "output_index": 0, "item": events.template.output_item(None) }),
        );
        events.queue_event(
            "response.content_part.added",
            events.with_content_position(json!({ "part": output_text_part("") })),
        );
        events
    }

    /// Converts the stream to a response.
    pub(crate) fn into_sse_response(self, permit: OwnedSemaphorePermit, open_stream: OpenStreamGuard) -> Response {
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
                    self.sent_text.push_str(&delta);
                    self.queue_event(
                        "response.output_text.delta",
                        self.with_content_position(json!({ "delta": delta, "logprobs": [] })),
                    );
                }
                Ok(Some(ReplyUpdate::Finished(ended))) => {
                    self.reply.mark_delivered(&ended.report.reply);
                    let text = self.sent_text.clone();
                    self.queue_event(
                        "response.output_text.done",
                        self.with_content_position(json!({ "text": text, "logprobs": [] })),
                    );
                    self.queue_event(
                        "response.content_part.done",
                        self.with_content_position(json!({ "part": output_text_part(&text) })),
                    );
                    let item = self.template.output_item(Some(&text));
                    self.queue_event("response.output_item.done", json!({ "output_index": 0, "item": item }));
                    let response = self.template.completed(&ended.report, ended.finish_reason);
                    let kind = format!("response.{}", response.status);
                    self.queue_event(&kind, json!({ "response": response }));
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
