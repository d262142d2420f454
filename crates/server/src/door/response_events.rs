//! A response word by word, in the events of OpenAI's API.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::failure;
use super::responses::{Blank, part};
use super::speaking::{Heard, Speaking};
use crate::metrics::Open;

/// A response word by word.
#[derive(Debug)]
pub struct Events {
    speaking: Speaking,
    blank: Blank,
    ready: VecDeque<Sent>,
    told: String,
    number: u64,
    over: bool,
}

impl Events {
    /// Before the first word.
    #[must_use]
    pub fn new(speaking: Speaking, blank: Blank) -> Self {
        let mut events = Self { speaking, blank, ready: VecDeque::new(), told: String::new(), number: 0, over: false };
        let begun = json!(events.blank.begun());
        events.push("response.created", json!({ "response": begun }));
        events.push("response.in_progress", json!({ "response": begun }));
        events.push("response.output_item.added", json!({ "output_index": 0, "item": events.blank.message(None) }));
        events.push("response.content_part.added", events.at(json!({ "part": part("") })));
        events
    }

    /// As an answer.
    pub fn respond(self, permit: OwnedSemaphorePermit, open: Open) -> Response {
        let stream = stream::unfold((self, permit, open), |(mut events, permit, open)| async move {
            let sent = events.next().await?;
            Some((Ok::<_, Infallible>(sent), (events, permit, open)))
        });
        Sse::new(stream).keep_alive(KeepAlive::new()).into_response()
    }

    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Some(sent);
            }
            if self.over {
                return None;
            }
            match self.speaking.next().await {
                Ok(Some(Heard::Words(words))) => {
                    self.told.push_str(&words);
                    self.push("response.output_text.delta", self.at(json!({ "delta": words, "logprobs": [] })));
                }
                Ok(Some(Heard::Ended(ended))) => {
                    self.speaking.heard(&ended.report.reply);
                    let told = self.told.clone();
                    self.push("response.output_text.done", self.at(json!({ "text": told, "logprobs": [] })));
                    self.push("response.content_part.done", self.at(json!({ "part": part(&told) })));
                    let item = self.blank.message(Some(&told));
                    self.push("response.output_item.done", json!({ "output_index": 0, "item": item }));
                    let response = self.blank.completed(&ended.report, ended.finish);
                    let kind = format!("response.{}", response.status);
                    self.push(&kind, json!({ "response": response }));
                    self.over = true;
                }
                Ok(None) => self.over = true,
                Err(problem) => {
                    let error = failure(&problem).error;
                    self.push("error", json!({ "message": error.message, "code": error.code, "param": error.param }));
                    self.over = true;
                }
            }
        }
    }

    fn at(&self, mut event: Value) -> Value {
        event["item_id"] = json!(self.blank.item_id());
        event["output_index"] = json!(0);
        event["content_index"] = json!(0);
        event
    }

    fn push(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.number);
        self.number += 1;
        self.ready.push_back(Sent::default().event(kind).data(event.to_string()));
    }
}
