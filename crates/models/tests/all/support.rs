//! Requests, briefly.

use std::sync::Arc;

use futures_util::StreamExt;
use segue_core::ids::CallId;
use segue_core::prompt::{Failure, Message, Output, Prompt, Reply, Speaker, ToolSpec};
use segue_models::{CallFacts, Chunk, Growth, Model, Request, collect};
use serde_json::Value;

/// A request in the making.
#[derive(Debug, Clone)]
pub struct Asking {
    pub prompt: Prompt,
    pub prompt_tokens: u32,
    pub growth: Growth,
    pub call: CallFacts,
}

/// A call by a speaker, with one message.
pub fn ask(message: &str) -> Asking {
    nothing().user(message)
}

/// A call by a speaker, with no message at all.
pub fn nothing() -> Asking {
    Asking {
        prompt: Prompt {
            model: "any".into(),
            messages: Arc::default(),
            tools: Vec::new(),
            output: Output::Text,
            reply_tokens_max: 4096,
        },
        prompt_tokens: 0,
        growth: Growth::Grows,
        call: CallFacts::new("s".into(), "chat".into(), "speaker".into(), "answer".into(), CallId(1)),
    }
}

impl Asking {
    pub fn user(self, text: &str) -> Self {
        self.message(Speaker::User, text)
    }

    pub fn assistant(self, text: &str) -> Self {
        self.message(Speaker::Assistant, text)
    }

    pub fn system(mut self, text: &str) -> Self {
        self.prompt.messages_mut().insert(0, Message::plain(Speaker::System, text));
        self
    }

    pub fn message(mut self, speaker: Speaker, text: &str) -> Self {
        self.prompt.messages_mut().push(Message::plain(speaker, text));
        self
    }

    pub fn role(mut self, role: &str) -> Self {
        self.call.role = role.into();
        self
    }

    pub fn json(mut self, schema: Value) -> Self {
        self.prompt.output = Output::Json(schema);
        self
    }

    pub fn tool(mut self, name: &str, description: &str, parameters: Value) -> Self {
        self.prompt.tools.push(ToolSpec { name: name.into(), description: description.into(), parameters });
        self
    }

    pub fn hint(mut self, hint: &str) -> Self {
        self.call.hints.rehearse = Some(hint.to_owned());
        self
    }

    pub fn request(&self) -> Request {
        let (prompt, prompt_tokens) = (Arc::new(self.prompt.clone()), self.prompt_tokens);
        Request { prompt, prompt_tokens, growth: self.growth, call: self.call.clone() }
    }

    pub async fn of(&self, model: &dyn Model) -> Result<Reply, Failure> {
        collect(model.stream(self.request()), |_| {}).await
    }

    /// Every chunk, up to the end or the failure.
    pub async fn chunks(&self, model: &dyn Model) -> Vec<Result<Chunk, Failure>> {
        model.stream(self.request()).collect().await
    }
}
