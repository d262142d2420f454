//! Answers that must be JSON of a certain shape. Whatever a vendor promises, the answer is checked here; one that is wrong is
//! sent back once, with what is wrong about it. If the second is wrong as well, the better of the two is passed on as long as it is JSON at
//! all: it was paid for, and whoever asked reads it with care.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use segue_core::prompt::{Failure, Message, Speaker, Usage};
use segue_core::signal::json;
use serde_json::Value;

use super::Vendor;
use super::drive::Drive;
use super::wire::malformed;
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
                    true => self.fail(malformed(format!("the answer is longer than {REPLY_BYTES_MAX} bytes"))),
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

    fn fail(&mut self, failure: Failure) -> Result<Chunk, Failure> {
        self.answer = None;
        Err(failure)
    }

    /// The answer is whole: it is passed on, or sent back.
    fn judge(&mut self, finish: Finish) -> Result<Chunk, Failure> {
        let text = std::mem::take(&mut self.text);
        self.answer = None;
        if self.has_calls {
            return Ok(self.hand_on(text, finish));
        }
        let found = json::find_where(&text, |value| self.complaint(value).is_none()).value;
        if let Some(value) = found {
            return Ok(self.hand_on(written(&text, &value), finish));
        }
        let value = json::find(&text).value;
        match self.refused.take() {
            None => {
                self.send_back(text, value, finish.usage);
                Ok(Chunk::Alive)
            }
            Some((earlier, used)) => {
                let finish = Finish { usage: sum(used, finish.usage), ..finish };
                match value.or(earlier) {
                    Some(value) => Ok(self.hand_on(written(&text, &value), finish)),
                    None => Err(malformed("the model was asked for JSON twice and gave none".to_owned())),
                }
            }
        }
    }

    fn hand_on(&mut self, text: String, finish: Finish) -> Chunk {
        let used = self.refused.take().and_then(|(_, used)| used);
        let usage = if used.is_some() { sum(used, finish.usage) } else { finish.usage };
        self.out.push(Chunk::Finish(Finish { usage, ..finish }));
        Chunk::Text(text)
    }

    fn send_back(&mut self, text: String, value: Option<Value>, used: Option<Usage>) {
        let wrong = match &value {
            Some(value) => self.complaint(value).unwrap_or_default(),
            None => "there is no JSON in it".to_owned(),
        };
        let mut prompt = (*self.request.prompt).clone();
        prompt.messages.push(Message::plain(Speaker::Assistant, text));
        let complaint = format!(
            "That is not the JSON that was asked for: {wrong}. Send the whole of it once more, corrected, and nothing else."
        );
        prompt.messages.push(Message::plain(Speaker::User, complaint));
        let request = Request { prompt: Arc::new(prompt), ..self.request.clone() };
        self.answer = Some(Drive::stream(self.vendor.clone(), request));
        self.refused = Some((value, used));
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

fn sum(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    let (one, other) = (one?, other?);
    Some(Usage {
        input: one.input.saturating_add(other.input),
        output: one.output.saturating_add(other.output),
        cached: one.cached.saturating_add(other.cached),
        written: one.written.saturating_add(other.written),
        reasoning: one.reasoning.saturating_add(other.reasoning),
    })
}
