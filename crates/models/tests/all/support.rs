//! Builds model requests for tests.

use std::sync::Arc;

use futures_util::StreamExt;
use segue_core::ids::CallId;
use segue_core::prompt::{CallFailure, ChatRole, ModelOutputFormat, ModelReply, ModelToolSpec, Prompt, PromptMessage};
use segue_models::{CacheablePromptPart, LanguageModel, ModelCallOrigin, ModelRequest, ReplyChunk, collect_reply};
use serde_json::Value;

/// A model request under construction.
#[derive(Debug, Clone)]
pub(crate) struct TestRequest {
    pub prompt: Prompt,
    pub prompt_tokens: u32,
    pub caching: CacheablePromptPart,
    pub call: ModelCallOrigin,
}

/// Creates a request with one user message.
pub(crate) fn ask(message: &str) -> TestRequest {
    empty_request().user(message)
}

/// Creates a request without messages.
pub(crate) fn empty_request() -> TestRequest {
    TestRequest {
        prompt: Prompt {
            model: "any".into(),
            messages: Arc::default(),
            tools: Vec::new(),
            tool_use: segue_core::prompt::ModelToolUseRules::default(),
            output_format: ModelOutputFormat::Text,
            reply_tokens_max: 4096,
        },
        prompt_tokens: 0,
        caching: CacheablePromptPart::WholePrompt,
        call: ModelCallOrigin::new("s".into(), "chat".into(), "speaker".into(), "answer".into(), CallId(1)),
    }
}

impl TestRequest {
    pub(crate) fn by_call(mut self, call: u32) -> Self {
        self.call.call = CallId(call);
        self
    }

    pub(crate) fn user(self, text: &str) -> Self {
        self.message(ChatRole::User, text)
    }

    pub(crate) fn assistant(self, text: &str) -> Self {
        self.message(ChatRole::Assistant, text)
    }

    pub(crate) fn system(mut self, text: &str) -> Self {
        Arc::make_mut(&mut self.prompt.messages).insert(0, PromptMessage::from_text(ChatRole::System, text));
        self
    }

    pub(crate) fn message(mut self, chat_role: ChatRole, text: &str) -> Self {
        Arc::make_mut(&mut self.prompt.messages).push(PromptMessage::from_text(chat_role, text));
        self
    }

    pub(crate) fn role(mut self, role: &str) -> Self {
        self.call.role = role.into();
        self
    }

    pub(crate) fn json(mut self, schema: Value) -> Self {
        self.prompt.output_format = ModelOutputFormat::Json(schema);
        self
    }

    pub(crate) fn tool(mut self, name: &str, description: &str, parameters: Value) -> Self {
        self.prompt.tools.push(ModelToolSpec { name: name.into(), description: description.into(), parameters });
        self
    }

    pub(crate) fn reply_template(mut self, template: &str) -> Self {
        self.call.hints.reply_template = Some(template.to_owned());
        self
    }

    pub(crate) fn model_request(&self) -> ModelRequest {
        let (prompt, prompt_tokens) = (Arc::new(self.prompt.clone()), self.prompt_tokens);
        ModelRequest { prompt, prompt_tokens, caching: self.caching, metadata: self.call.clone() }
    }

    /// Sends the request and returns the complete reply.
    pub(crate) async fn send_to(&self, model: &dyn LanguageModel) -> Result<ModelReply, CallFailure> {
        collect_reply(model.stream(self.model_request()), |_| {}).await
    }

    /// Sends the request and returns every chunk, up to the end or the failure.
    pub(crate) async fn chunks(&self, model: &dyn LanguageModel) -> Vec<Result<ReplyChunk, CallFailure>> {
        model.stream(self.model_request()).collect().await
    }
}
