//! The formats vendors speak, side by side: which request a prompt becomes, and who reads the answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::prompt::{Failure, FailureKind, Message, Output, PART_SEPARATOR, Prompt, Speaker, Stop, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::Names;
use super::sse::Event;
use super::{Access, Connection, Json, anthropic, chat, gemini, ollama, responses};
use crate::http::{self, KeyHeader, Method};
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{Chunk, Finish, Growth};

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// OpenAI's chat completions, and every server that speaks like it.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own.
    Ollama,
}

impl Wire {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Its name in files.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }
}

/// Stands before what a failed tool said.
const FAILED: &str = "Error: ";

/// What a tool returned, for a format with no place of its own for whether it failed: then the text says so.
pub(super) fn result_text(message: &Message) -> String {
    let said = message.text();
    let says_so = said.get(..FAILED.len() - 2).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if message.failed && !says_so { format!("{FAILED}{said}") } else { said }
}

/// One call as an adapter sees it.
pub(super) struct Asked<'a> {
    pub connection: &'a Connection,
    pub prompt: &'a Prompt,
    /// Its tokens, as far as we can count them.
    pub prompt_tokens: u32,
    pub growth: Growth,
    pub names: &'a Names,
    /// How the model is held to its schema, if there is one.
    pub json: Json,
    pub asks: Asks,
}

/// What a vendor is asked for beside the answer, unless it has refused that once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asks {
    /// Figures, where it wants to be asked for them.
    pub figures: bool,
    /// To think so hard, and its thoughts, sealed.
    pub thoughts: bool,
    /// What it thought, in short.
    pub summaries: bool,
}

impl Asked<'_> {
    /// Tokens the whole answer may take.
    pub fn output_tokens(&self) -> u32 {
        self.connection.output_tokens(self.prompt.reply_tokens_max, self.prompt_tokens)
    }

    /// The schema, if the answer must satisfy one.
    pub fn schema(&self) -> Option<&Value> {
        match &self.prompt.output {
            Output::Json(schema) => Some(schema),
            Output::Text => None,
        }
    }

    /// The call a message answers, as the vendor is told it.
    pub fn answered_id(&self, message: &Message) -> Option<String> {
        message.answers.as_deref().map(|id| self.connection.call_id(id))
    }

    /// What the model is told about the form of its answer, where the vendor has no field for that.
    pub fn told(&self) -> Option<String> {
        let schema = self.schema()?;
        match self.json {
            Json::Schema => None,
            Json::Object | Json::Told => {
                Some(format!("Answer with JSON that satisfies this schema, and with nothing else:\n{schema}"))
            }
        }
    }

    /// The whole of the standing instructions.
    pub fn system(&self) -> Option<String> {
        let spoken = self.prompt.messages.iter().filter(|message| message.speaker == Speaker::System);
        let mut texts: Vec<String> = spoken.map(Message::text).collect();
        texts.extend(self.told());
        texts.retain(|text| !text.trim().is_empty());
        (!texts.is_empty()).then(|| texts.join(PART_SEPARATOR))
    }

    /// The standing instructions as a message of OpenAI's, and what its cache is told about them.
    pub fn openai_system(&self, kind: &str, body: &mut Value) -> Option<Value> {
        let system = self.system()?;
        if !self.connection.skills.marks {
            return Some(json!({ "role": "system", "content": system }));
        }
        // Left to itself, the vendor would also write what never comes again into its cache, and bill for it.
        if self.growth == Growth::Ends {
            body["prompt_cache_options"] = json!({ "mode": "explicit" });
        }
        let first = self.prompt.messages.iter().find(|message| message.speaker == Speaker::User);
        let first = first.filter(|_| self.growth == Growth::Grows).map(Message::text).unwrap_or_default();
        body["prompt_cache_key"] = json!(BodyId::of(&format!("{system}\n{first}")));
        let mark = json!({ "mode": "explicit" });
        let content = json!([{ "type": kind, "text": system, "prompt_cache_breakpoint": mark }]);
        Some(json!({ "role": "system", "content": content }))
    }

    /// The request.
    pub fn request(&self) -> http::Request {
        let Connection { wire, base_url, model, .. } = self.connection;
        let (path, body) = match wire {
            Wire::Chat => ("/chat/completions".to_owned(), chat::body(self)),
            Wire::Responses => ("/responses".to_owned(), responses::body(self)),
            Wire::Anthropic => ("/messages".to_owned(), anthropic::body(self)),
            Wire::Gemini => (format!("/models/{model}:streamGenerateContent?alt=sse"), gemini::body(self)),
            Wire::Ollama => ("/api/chat".to_owned(), ollama::body(self)),
        };
        let base_url = if *wire == Wire::Ollama { ollama::root(base_url) } else { base_url };
        let (mut headers, key) = self.connection.credentials();
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        http::Request { method: Method::Post, url: format!("{base_url}{path}"), headers, key, body: body.to_string() }
    }
}

impl Connection {
    /// The headers that every request needs, and the one with the key.
    pub(crate) fn credentials(&self) -> (Vec<(String, String)>, Option<KeyHeader>) {
        let (name, scheme) = match (&self.key, self.wire) {
            (Access::Login { .. }, _) => ("authorization", "Basic "),
            (_, Wire::Chat | Wire::Responses | Wire::Ollama) => ("authorization", "Bearer "),
            (_, Wire::Anthropic) => ("x-api-key", ""),
            (_, Wire::Gemini) => ("x-goog-api-key", ""),
        };
        let version = (self.wire == Wire::Anthropic).then_some(anthropic::VERSION);
        let headers = version.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        (headers, self.key.key().map(|key| KeyHeader { name, scheme, key: key.clone() }))
    }
}

/// Whoever reads an answer.
pub(super) enum Reader {
    Chat(chat::Reader),
    Responses(responses::Reader),
    Anthropic(anthropic::Reader),
    Gemini(gemini::Reader),
    Ollama(ollama::Reader),
}

impl Reader {
    pub fn new(connection: &Arc<Connection>, names: Names, prompt: &Prompt) -> Self {
        let ids = prompt.messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.clone());
        let desk = Desk { connection: connection.clone(), names, ids: ids.collect() };
        match connection.wire {
            Wire::Chat => Self::Chat(chat::Reader::new(desk)),
            Wire::Responses => Self::Responses(responses::Reader::new(desk)),
            Wire::Anthropic => Self::Anthropic(anthropic::Reader::new(desk)),
            Wire::Gemini => Self::Gemini(gemini::Reader::new(desk)),
            Wire::Ollama => Self::Ollama(ollama::Reader::new(desk)),
        }
    }

    /// The figures so far, if there are any.
    pub fn usage(&self) -> Option<Usage> {
        match self {
            Self::Chat(reader) => reader.usage,
            Self::Responses(reader) => reader.usage,
            Self::Anthropic(reader) => reader.usage(),
            Self::Gemini(reader) => reader.usage,
            Self::Ollama(reader) => reader.usage,
        }
    }

    /// Reads one event of the stream.
    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        match self {
            Self::Chat(reader) => reader.event(event, out),
            Self::Responses(reader) => reader.event(event, out),
            Self::Anthropic(reader) => reader.event(event, out),
            Self::Gemini(reader) => reader.event(event, out),
            Self::Ollama(reader) => reader.event(event, out),
        }
    }

    /// The stream is over. It was whole if there is a [`Chunk::Finish`] now.
    pub fn end(&mut self, out: &mut Vec<Chunk>) {
        match self {
            Self::Chat(reader) => reader.end(out),
            Self::Gemini(reader) => reader.end(out),
            // These say when they are done.
            Self::Responses(_) | Self::Anthropic(_) | Self::Ollama(_) => {}
        }
    }

    /// Reads an answer that came in one piece although a stream was asked for.
    pub fn whole(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        match self {
            Self::Chat(reader) => reader.whole(body, out),
            Self::Responses(reader) => reader.whole(body, out),
            Self::Anthropic(reader) => reader.desk.refused(body),
            Self::Gemini(reader) => reader.desk.refused(body),
            Self::Ollama(reader) => reader.whole(body, out),
        }
    }
}

/// What every reader needs.
#[derive(Debug)]
pub(super) struct Desk {
    pub connection: Arc<Connection>,
    pub names: Names,
    /// The ids of the calls that the conversation holds already.
    pub ids: BTreeSet<String>,
}

impl Desk {
    /// The JSON of an event.
    pub fn json(&self, event: &Event) -> Result<Value, Failure> {
        serde_json::from_str(&event.data).map_err(|_| {
            let start: String = self.connection.strip(&event.data).chars().take(QUOTED_CHARS_MAX).collect();
            malformed(format!("{}: an event of the stream is no JSON: {start:?}", self.connection.provider))
        })
    }

    /// What an error in the stream means.
    pub fn failure(&self, body: &Value) -> Failure {
        super::failure::of_event(self.connection.refuser(), body)
    }

    /// A body that came in one piece where only errors do.
    fn refused(&self, body: &Value) -> Result<(), Failure> {
        let is_error = body.get("error").or_else(|| body.get(0)?.get("error")).is_some();
        Err(if is_error { self.failure(body) } else { self.strange() })
    }

    /// An answer in no format we know.
    pub fn strange(&self) -> Failure {
        malformed(format!("{} answered in a format that is not its own", self.connection.provider))
    }
}

pub(super) fn malformed(message: String) -> Failure {
    Failure::new(FailureKind::Malformed, message)
}

/// Whether an answer ended before its model was done with it. What is open in it then was not meant so, and nothing of it is mended.
pub(super) fn is_cut(stop: Stop) -> bool {
    match stop {
        Stop::Length | Stop::Filtered => true,
        Stop::Done | Stop::Tools => false,
    }
}

/// What it means that an answer ended for a reason nobody knows. Good ends have known names, so this is hardly one: what came is shown and
/// what is whole in it is used, but nothing of it is mended.
pub(super) fn ended_strangely() -> Stop {
    Stop::Length
}

/// The arguments of a call as they go back: vendors take objects only, and models write what they like.
pub(super) fn arguments_back(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "input": arguments }) }
}

/// The end of an answer.
pub(super) fn finish(stop: Stop, usage: Option<Usage>) -> Chunk {
    Chunk::Finish(Finish { stop, usage, sent_back: None })
}

/// A text at a place in a JSON value, if there is one that is not empty.
pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// A number of tokens at a place in a JSON value.
pub(super) fn tokens(value: &Value, pointer: &str) -> Option<u32> {
    let number = value.pointer(pointer)?;
    let number =
        number.as_u64().or_else(|| number.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
