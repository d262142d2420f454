//! Drives one exchange with a vendor: sends the request, tells refusals from answers, feeds the stream to its reader, and hands on
//! what comes of it. Nothing here grows without bound, however the other side behaves.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use segue_core::prompt::{Failure, FailureKind, Output, Stop, Usage};

use super::names::Names;
use super::sse::{Decoder, Event};
use super::wire::{Asked, Asks, Reader, malformed};
use super::{Connection, Json, Vendor, Wire, failure, schema};
use crate::http::{Body, Response, beginning, whole};
use crate::limits::{REFUSAL_BYTES_MAX, RESPONSE_BYTES_MAX};
use crate::model::{Chunk, ChunkStream, Request};

/// One exchange.
pub(super) struct Drive {
    vendor: Vendor,
    request: Request,
    phase: Phase,
    ready: VecDeque<Result<Chunk, Failure>>,
    /// Whether there were words or tool calls.
    has_said: bool,
    /// Whether there was anything at all that the model made.
    has_begun: bool,
    is_finished: bool,
}

enum Phase {
    Begin,
    Stream(Box<Reading>),
    Over,
}

struct Reading {
    body: Body,
    decoder: Decoder,
    reader: Reader,
    bytes: usize,
}

impl Drive {
    pub fn stream(vendor: Vendor, request: Request) -> ChunkStream {
        let (phase, ready) = (Phase::Begin, VecDeque::new());
        let drive = Self { vendor, request, phase, ready, has_said: false, has_begun: false, is_finished: false };
        stream::unfold(drive, |mut drive| async move {
            let item = drive.next().await?;
            Some((item, drive))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<Chunk, Failure>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            let outcome = match &mut self.phase {
                Phase::Begin => self.begin().await,
                Phase::Stream(reading) => match reading.body.next().await {
                    Some(Ok(bytes)) => self.take(&bytes),
                    Some(Err(failure)) => Err(failure),
                    None => self.end(),
                },
                Phase::Over => return None,
            };
            if let Err(failure) = outcome {
                let failure = match std::mem::replace(&mut self.phase, Phase::Over) {
                    Phase::Stream(reading) => self.after(failure, reading.reader.usage()),
                    Phase::Begin | Phase::Over => failure,
                };
                self.ready.push_back(Err(self.vendor.connection.clean(failure)));
            }
        }
    }

    async fn begin(&mut self) -> Result<(), Failure> {
        let connection = self.vendor.connection.clone();
        if let Some(failure) = connection.objection(&self.request.prompt) {
            return Err(failure);
        }
        let names = Names::of(&self.request.prompt.tools);
        let response = self.response(&names).await?;
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let mut reader = Reader::new(&connection, names, &self.request.prompt);
        if kind.starts_with("application/json") {
            let text = whole(response.body, RESPONSE_BYTES_MAX).await?;
            let body = serde_json::from_str(&text)
                .map_err(|_| malformed(format!("{} answered with broken JSON", connection.provider)))?;
            let mut out = Vec::new();
            let read = reader.whole(&body, &mut out);
            let read = read.and_then(|()| self.hand_on(out)).and_then(|()| self.must_be_finished());
            return read.map_err(|failure| self.after(failure, reader.usage()));
        }
        if kind.starts_with("text/html") {
            let message = format!("{} answered with a web page; is the `base_url` right?", connection.base_url);
            return Err(Failure::new(FailureKind::BadRequest, message));
        }
        let decoder = if connection.wire == Wire::Ollama { Decoder::lines() } else { Decoder::default() };
        let reading = Reading { body: response.body, decoder, reader, bytes: 0 };
        self.phase = Phase::Stream(Box::new(reading));
        Ok(())
    }

    /// The vendor's answer. What it does not take is left out once, and from then on.
    async fn response(&mut self, names: &Names) -> Result<Response, Failure> {
        let refuses = self.vendor.refuses.clone();
        let mut json = self.json();
        loop {
            let asks = refuses.asks();
            let response = self.send(names, json, asks).await?;
            if response.is_ok() {
                return Ok(response);
            }
            let failure = refusal(&self.vendor.connection, response).await;
            let has_schema = matches!(self.request.prompt.output, Output::Json(_));
            if asks.figures && is_about(&failure, &["stream_options"]) {
                refuses.stream_options.store(true, Ordering::Relaxed);
            } else if asks.summaries && is_about(&failure, &["reasoning.summary", "reasoning summar"]) {
                refuses.summaries.store(true, Ordering::Relaxed);
            } else if asks.thoughts
                && is_about(&failure, &["encrypted content", "encrypted_content", "reasoning.effort"])
            {
                refuses.thoughts.store(true, Ordering::Relaxed);
            } else if has_schema && json == Json::Schema && is_about(&failure, &SCHEMA_WORDS) {
                // The model may still do it if it is told.
                refuses.schemas.store(true, Ordering::Relaxed);
                json = Json::Told;
            } else {
                return Err(failure);
            }
        }
    }

    /// A failure with what the try took all the same, if it took anything.
    fn after(&self, failure: Failure, usage: Option<Usage>) -> Failure {
        let took = failure.spent.is_none() && (self.has_begun || usage.is_some());
        if took { failure.after(usage) } else { failure }
    }

    /// How the model is held to its schema in this call.
    fn json(&self) -> Json {
        let json = self.vendor.json();
        let Output::Json(wanted) = &self.request.prompt.output else { return json };
        let cannot = self.vendor.connection.wire == Wire::Anthropic && schema::for_anthropic(wanted).is_none();
        if cannot { Json::Told } else { json }
    }

    fn send(&self, names: &Names, json: Json, asks: Asks) -> BoxFuture<'static, Result<Response, Failure>> {
        let Request { prompt, prompt_tokens, growth, .. } = &self.request;
        let (connection, prompt_tokens, growth) = (&*self.vendor.connection, *prompt_tokens, *growth);
        let asked = Asked { connection, prompt, prompt_tokens, growth, names, json, asks };
        self.vendor.transport.send(asked.request())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Phase::Stream(reading) = &mut self.phase else { return Ok(()) };
        reading.bytes = reading.bytes.saturating_add(bytes.len());
        if reading.bytes > RESPONSE_BYTES_MAX {
            let message = format!("the answer took more than {RESPONSE_BYTES_MAX} bytes to send");
            return Err(Failure::new(FailureKind::Unusable, message));
        }
        let mut events = Vec::new();
        // What came whole before the stream went wrong was said.
        let decoded = reading.decoder.push(bytes, &mut events);
        self.read(&events)?;
        if self.ready.is_empty() {
            self.ready.push_back(Ok(Chunk::Alive));
        }
        decoded
    }

    fn end(&mut self) -> Result<(), Failure> {
        let Phase::Stream(reading) = &mut self.phase else { return Ok(()) };
        let mut events = Vec::new();
        reading.decoder.finish(&mut events)?;
        self.read(&events)?;
        let Phase::Stream(reading) = &mut self.phase else { return Ok(()) };
        let mut out = Vec::new();
        reading.reader.end(&mut out);
        self.hand_on(out)?;
        self.must_be_finished()
    }

    fn read(&mut self, events: &[Event]) -> Result<(), Failure> {
        for event in events {
            let Phase::Stream(reading) = &mut self.phase else { return Ok(()) };
            let mut out = Vec::new();
            let read = reading.reader.event(event, &mut out);
            self.hand_on(out)?;
            read?;
        }
        Ok(())
    }

    fn hand_on(&mut self, chunks: Vec<Chunk>) -> Result<(), Failure> {
        for chunk in chunks {
            self.has_said |= match &chunk {
                Chunk::Text(text) => !text.trim().is_empty(),
                Chunk::ToolCall(_) => true,
                Chunk::Reasoning(_) | Chunk::Seal(_) | Chunk::Alive | Chunk::Finish(_) => false,
            };
            self.has_begun |= matches!(chunk, Chunk::Text(_) | Chunk::Reasoning(_) | Chunk::ToolCall(_));
            if let Chunk::Finish(finish) = &chunk {
                self.phase = Phase::Over;
                self.is_finished = true;
                if let Some(failure) = self.nothing_said(finish.stop) {
                    return Err(failure.after(finish.usage));
                }
            }
            self.ready.push_back(Ok(chunk));
        }
        Ok(())
    }

    /// What it means that an answer ended in this way without a word.
    fn nothing_said(&self, stop: Stop) -> Option<Failure> {
        let Connection { provider, model, .. } = &*self.vendor.connection;
        match stop {
            _ if self.has_said => None,
            Stop::Filtered => {
                Some(Failure::new(FailureKind::Refused, format!("{provider}'s filter let nothing through")))
            }
            Stop::Length => {
                let message = format!(
                    "`{model}` had no room left to answer: thoughts, or a tool call that was cut off, took all of it; `effort` or `window_tokens` gives it more"
                );
                Some(Failure::new(FailureKind::Unusable, message))
            }
            Stop::Done | Stop::Tools => {
                Some(Failure::new(FailureKind::Unusable, format!("`{model}` was done and had answered nothing")))
            }
        }
    }

    fn must_be_finished(&self) -> Result<(), Failure> {
        let provider = &self.vendor.connection.provider;
        let broken_off = || malformed(format!("{provider} broke off before the answer was whole"));
        if self.is_finished { Ok(()) } else { Err(broken_off()) }
    }
}

async fn refusal(connection: &Connection, response: Response) -> Failure {
    let Response { status, headers, body } = response;
    let body = beginning(body, REFUSAL_BYTES_MAX).await;
    failure::of_status(connection.refuser(), status, &headers, &body)
}

/// What refusals of the form that an answer was to have speak of.
const SCHEMA_WORDS: [&str; 7] =
    ["schema", "response_format", "response format", "output_config", "output format", "response mime", "text.format"];

/// Whether a refusal speaks of something that was asked for.
fn is_about(failure: &Failure, words: &[&str]) -> bool {
    let message = failure.message.to_lowercase();
    failure.kind == FailureKind::BadRequest && words.iter().any(|word| message.contains(word))
}
