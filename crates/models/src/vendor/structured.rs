//! Answers that must be JSON of a certain shape. Whatever a vendor promises, the answer is checked here; one that is wrong is
//! sent back once, with what is wrong about it. If the second is wrong as well, the better of the two is passed on as long as it is JSON at
//! all: it was paid for, and whoever asked reads it with care. An answer that was cut off counts only if the JSON in it is whole: what
//! its missing end would have said, nobody knows.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use segue_core::prompt::{Failure, FailureKind, Message, Speaker, Stop, Usage};
use segue_core::signal::json;
use serde_json::Value;

use super::Vendor;
use super::drive::Drive;
use super::wire::is_cut;
use crate::limits::{COMPLAINT_CHARS_MAX, COMPLAINTS_MAX, REPLY_BYTES_MAX};
use crate::model::{Chunk, ChunkStream, Finish, Request};

pub(super) fn stream(vendor: Vendor, schema: Value, request: Request) -> ChunkStream {
    let first = Drive::stream(vendor.clone(), request.clone());
    let check = Check {
        vendor,
        // A schema that is none cannot be held against anybody.
        validator: jsonschema::validator_for(&schema).ok(),
        request,
        answer: Some(first),
        text: String::new(),
        has_calls: false,
        refused: None,
        out: Vec::new(),
    };
    stream::unfold(check, |mut check| async move {
        let item = check.next().await?;
        Some((item, check))
    })
    .boxed()
}

struct Check {
    vendor: Vendor,
    validator: Option<jsonschema::Validator>,
    request: Request,
    answer: Option<ChunkStream>,
    text: String,
    has_calls: bool,
    /// The answer that was sent back, and what it took.
    refused: Option<(Option<Value>, Option<Usage>)>,
    /// What is ready, last first.
    out: Vec<Chunk>,
}

impl Check {
    async fn next(&mut self) -> Option<Result<Chunk, Failure>> {
        if let Some(chunk) = self.out.pop() {
            return Some(Ok(chunk));
        }
        let item = self.answer.as_mut()?.next().await;
        Some(match item {
            Some(Ok(Chunk::Text(text))) => {
                self.text.push_str(&text);
                // What is withheld is no longer counted by whoever listens.
                match self.text.len() > REPLY_BYTES_MAX {
                    true => {
                        let message = format!("the answer is longer than {REPLY_BYTES_MAX} bytes");
                        self.fail(Failure::new(FailureKind::Unusable, message).after(None))
                    }
                    false => Ok(Chunk::Alive),
                }
            }
            Some(Ok(Chunk::ToolCall(call))) => {
                self.has_calls = true;
                Ok(Chunk::ToolCall(call))
            }
            Some(Ok(Chunk::Finish(finish))) => match self.judge(finish) {
                Ok(chunk) => Ok(chunk),
                Err(failure) => self.fail(failure),
            },
            Some(Ok(other)) => Ok(other),
            Some(Err(failure)) => self.fail(failure),
            None => {
                self.answer = None;
                return None;
            }
        })
    }

    /// What was sent back was paid for, too.
    fn fail(&mut self, failure: Failure) -> Result<Chunk, Failure> {
        self.answer = None;
        match self.refused.take() {
            Some((_, used)) => Err(failure.after(used)),
            None => Err(failure),
        }
    }

    /// The answer is whole: it is passed on, or sent back.
    fn judge(&mut self, finish: Finish) -> Result<Chunk, Failure> {
        let text = std::mem::take(&mut self.text);
        self.answer = None;
        if self.has_calls {
            return Ok(self.hand_on(text, finish));
        }
        let is_cut = is_cut(finish.stop);
        let found = json::find_where(&text, |value| self.complaint(value).is_none());
        if let Some(value) = found.value.filter(|_| !is_cut || found.complaints.is_empty()) {
            return Ok(self.hand_on(written(&text, &value), finish));
        }
        let value = if is_cut { None } else { json::find(&text).value };
        let earlier = match &mut self.refused {
            None => {
                self.send_back(text, value, &finish);
                return Ok(Chunk::Alive);
            }
            Some((earlier, _)) => earlier.take(),
        };
        match (value, earlier) {
            (Some(value), _) => Ok(self.hand_on(written(&text, &value), finish)),
            // It is the first that is passed on, and that one was not cut off.
            (None, Some(value)) => Ok(self.hand_on(value.to_string(), Finish { stop: Stop::Done, ..finish })),
            (None, None) => {
                // The same model would hardly do it the third time.
                let message = match is_cut {
                    true => "the model was asked for JSON twice, and it was cut off before its end",
                    false => "the model was asked for JSON twice and gave none",
                };
                Err(Failure::new(FailureKind::Unusable, message).after(finish.usage))
            }
        }
    }

    fn hand_on(&mut self, text: String, finish: Finish) -> Chunk {
        let finish = match self.refused.take() {
            Some((_, used)) => Finish { usage: sum(used, finish.usage), sent_back: used, ..finish },
            None => finish,
        };
        self.out.push(Chunk::Finish(finish));
        Chunk::Text(text)
    }

    fn send_back(&mut self, text: String, value: Option<Value>, finish: &Finish) {
        let wrong = match (finish.stop, &value) {
            (Stop::Length, _) => "it was too long and was cut off before its end; it must be shorter".to_owned(),
            (Stop::Filtered, _) => "it was broken off before its end; it must be shorter, and say less".to_owned(),
            (Stop::Done | Stop::Tools, Some(value)) => self.complaint(value).unwrap_or_default(),
            (Stop::Done | Stop::Tools, None) => "there is no JSON in it".to_owned(),
        };
        let mut prompt = (*self.request.prompt).clone();
        // Nobody counts here; a token has three bytes and more.
        let more = (text.len() + COMPLAINT_CHARS_MAX * COMPLAINTS_MAX) / 3;
        let prompt_tokens = self.request.prompt_tokens.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        prompt.messages_mut().push(Message::plain(Speaker::Assistant, text));
        let complaint = format!(
            "That is not the JSON that was asked for: {wrong}. Send the whole of it once more, corrected, and nothing else."
        );
        prompt.messages_mut().push(Message::plain(Speaker::User, complaint));
        let request = Request { prompt: Arc::new(prompt), prompt_tokens, ..self.request.clone() };
        self.answer = Some(Drive::stream(self.vendor.clone(), request));
        self.refused = Some((value, finish.usage));
    }

    /// What is wrong with a value, if anything.
    fn complaint(&self, value: &Value) -> Option<String> {
        let errors = self.validator.as_ref()?.iter_errors(value).take(COMPLAINTS_MAX);
        let told = errors.map(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "at the top".to_owned() } else { format!("at {place}") };
            let words: String = error.to_string().chars().take(COMPLAINT_CHARS_MAX).collect();
            format!("{place}: {words}")
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// The answer as it came if it is the value and nothing else, else the value.
fn written(text: &str, value: &Value) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(read) if read == *value => text.to_owned(),
        _ => value.to_string(),
    }
}

/// What both took; nothing if that is not known of one of them.
fn sum(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    Some(one?.plus(other?))
}
