//! The conversation in a client's request: the earlier messages and the new one. Builds the first message of a session if the
//! client sends instructions or earlier messages that no session contains. Fingerprints are in `fingerprint`.

use std::borrow::Cow;

use segue_core::body::BodyId;
use segue_core::ids::FlowName;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::PromptImage;
use serde_json::Value;

use super::fingerprint::{ConversationFingerprint, ConversationHashes};
use crate::caller::Caller;
use crate::images;
use crate::limits::{CONVERSATION_INLINE_BYTES_MAX, HISTORY_MESSAGES_MAX};
use crate::problem::HttpProblem;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageAuthor {
    /// The user, possibly after results of tools.
    User,
    Assistant,
    /// Only results of tools.
    Tool,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ClientMessageContent {
    pub text: String,
    pub images: Vec<PromptImage>,
    /// The tools that the assistant called.
    pub tool_calls: Vec<ClientHistoryToolCall>,
    /// The results of the client's tools.
    pub tool_results: Vec<ClientHistoryToolResult>,
}

/// A tool call in a client's conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientHistoryToolCall {
    pub id: String,
    pub name: String,
    /// The arguments as JSON, as the client sent them.
    pub arguments: String,
}

/// The result of a tool call in a client's conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientHistoryToolResult {
    pub tool_call_id: String,
    pub text: String,
}

impl MessageAuthor {
    /// Returns the label of the author's messages in a flattened conversation.
    #[must_use]
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::User => "user: ",
            Self::Assistant => "assistant: ",
            Self::Tool => "tool: ",
        }
    }
}

impl ClientMessageContent {
    /// Returns the hash of the text and the images.
    #[must_use]
    pub(crate) fn content_hash(&self) -> BodyId {
        let text = BodyId::hash_text(trim_for_comparison(&self.text));
        let calls = self.tool_calls.iter();
        let calls = calls.map(|call| BodyId::hash_text(&format!("{}\0{}\0{}", call.id, call.name, call.arguments)));
        let results = self.tool_results.iter();
        let results = results.map(|result| {
            BodyId::hash_text(&format!("{}\0{}", result.tool_call_id, trim_for_comparison(&result.text)))
        });
        self.image_hashes().chain(calls).chain(results).fold(text, BodyId::chain_hash)
    }

    /// Returns the text with tool results and tool calls written out, for a flattened conversation.
    #[must_use]
    pub(crate) fn flat_text(&self) -> Cow<'_, str> {
        if self.tool_calls.is_empty() && self.tool_results.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let results = self.tool_results.iter().map(|result| result.text.clone());
        let text = Some(self.text.clone()).filter(|text| !text.is_empty());
        let calls = self.tool_calls.iter().map(|call| format!("(called {} with {})", call.name, call.arguments));
        Cow::Owned(results.chain(text).chain(calls).collect::<Vec<_>>().join(PART_SEPARATOR))
    }

    /// Returns the hash of each image.
    pub(crate) fn image_hashes(&self) -> impl Iterator<Item = BodyId> {
        self.images.iter().map(|image| BodyId::hash_text(&image.data))
    }

    fn append(&mut self, more: Self) {
        if !self.text.is_empty() && !more.text.is_empty() {
            self.text.push_str(PART_SEPARATOR);
        }
        self.text.push_str(&more.text);
        self.images.extend(more.images);
        self.tool_calls.extend(more.tool_calls);
        self.tool_results.extend(more.tool_results);
    }
}

/// The conversation in a client's request. The assistant and the others alternate, and the last message is not the
/// assistant's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientConversation {
    /// The client's system messages and instructions.
    pub instructions: String,
    /// In order; never empty.
    messages: Vec<(MessageAuthor, ClientMessageContent)>,
    hashes: ConversationHashes,
}

/// Separates the parts of a text.
pub(crate) const PART_SEPARATOR: &str = "\n\n";

impl ClientConversation {
    /// Parses the messages of either API. A large request is parsed and hashed on a thread of its own, so that others are not
    /// delayed.
    ///
    /// # Errors
    /// A message has unsupported content, or there is no new message.
    pub(crate) async fn parse_off_worker(
        messages: Vec<Value>,
        instructions: Option<String>,
    ) -> Result<Self, HttpProblem> {
        if messages.iter().map(text_byte_len).sum::<usize>() <= CONVERSATION_INLINE_BYTES_MAX {
            return Self::parse(&messages, instructions.as_deref());
        }
        let parsed = tokio::task::spawn_blocking(move || Self::parse(&messages, instructions.as_deref())).await;
        parsed.unwrap_or_else(|_| Err(HttpProblem::new("internal", "the messages could not be parsed")))
    }

    /// Parses the messages of either API.
    ///
    /// # Errors
    /// A message has unsupported content, or there is no new message.
    pub(crate) fn parse(messages: &[Value], instructions: Option<&str>) -> Result<Self, HttpProblem> {
        if messages.len() > HISTORY_MESSAGES_MAX {
            return Err(invalid_messages(format!(
                "there are {} messages; at most {HISTORY_MESSAGES_MAX} are supported",
                messages.len()
            )));
        }
        let mut instruction_texts: Vec<String> =
            instructions.filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned).into_iter().collect();
        let mut parsed: Vec<(MessageAuthor, ClientMessageContent)> = Vec::new();
        for message in messages {
            // Reasoning items are not part of the conversation.
            if message["type"] == "reasoning" {
                continue;
            }
            let content = parse_message_content(message)?;
            let role = message["role"].as_str();
            if !content.images.is_empty() && role != Some("user") {
                return Err(invalid_messages("only user messages may contain images"));
            }
            let author = match role {
                _ if message["type"] == "function_call" => MessageAuthor::Assistant,
                _ if message["type"] == "function_call_output" => MessageAuthor::Tool,
                Some("tool") => MessageAuthor::Tool,
                Some("system" | "developer") => {
                    instruction_texts.push(content.text);
                    continue;
                }
                Some("user") => MessageAuthor::User,
                Some("assistant") => MessageAuthor::Assistant,
                Some(role) => {
                    return Err(invalid_messages(format!("messages with the role `{role}` are not supported")));
                }
                None => return Err(invalid_messages("a message has no `role`")),
            };
            match parsed.last_mut() {
                Some((last, before)) if *last == author => before.append(content),
                // The user's words follow the results of tools in one message.
                Some((last @ MessageAuthor::Tool, before)) if author == MessageAuthor::User => {
                    *last = author;
                    before.append(content);
                }
                _ => parsed.push((author, content)),
            }
        }
        check_tool_messages(&parsed)?;
        match parsed.last() {
            Some((MessageAuthor::Tool, _)) => {}
            Some((MessageAuthor::User, content)) if !content.text.trim().is_empty() => {}
            Some((MessageAuthor::User, _)) => {
                return Err(invalid_messages("the last message is empty"));
            }
            Some((MessageAuthor::Assistant, _)) => {
                return Err(invalid_messages("the last message must have the role `user`"));
            }
            None => return Err(invalid_messages("there is no user message")),
        }
        let instructions = instruction_texts.join(PART_SEPARATOR);
        let first_message = flatten_messages(&instructions, &parsed[..1]);
        let hashes = ConversationHashes::compute(&instructions, &parsed, &first_message);
        Ok(Self { instructions, messages: parsed, hashes })
    }

    /// Returns the conversation without the client's instructions, for a flow that has a setting for them.
    #[must_use]
    pub(crate) fn without_instructions(&self) -> Self {
        let first_message = flatten_messages("", &self.messages[..1]);
        let hashes = ConversationHashes::compute("", &self.messages, &first_message);
        Self { instructions: String::new(), messages: self.messages.clone(), hashes }
    }

    /// Returns the new message.
    #[must_use]
    pub(crate) fn new_message(&self) -> &ClientMessageContent {
        const NOTHING: &ClientMessageContent = &ClientMessageContent {
            text: String::new(),
            images: Vec::new(),
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
        };
        self.messages.last().map_or(NOTHING, |(_, content)| content)
    }

    /// Returns whether there are messages before the new one.
    #[must_use]
    pub(crate) fn has_prior_messages(&self) -> bool {
        self.messages.len() > 1
    }

    /// Returns whether the new message consists of tool results.
    #[must_use]
    pub(crate) fn ends_with_tool_results(&self) -> bool {
        self.messages.last().is_some_and(|(author, _)| *author == MessageAuthor::Tool)
    }

    /// Returns whether the conversation contains tool calls or results.
    #[must_use]
    pub(crate) fn has_tool_messages(&self) -> bool {
        self.messages.iter().any(|(_, content)| !content.tool_calls.is_empty() || !content.tool_results.is_empty())
    }

    /// Returns the ids of tool calls, the last ones first.
    pub(crate) fn tool_call_ids(&self) -> impl Iterator<Item = &str> {
        let ids = self.messages.iter().rev().flat_map(|(_, content)| &content.tool_calls);
        ids.map(|call| call.id.as_str())
    }

    /// Returns the text of the last assistant message.
    #[must_use]
    pub(crate) fn last_assistant_text(&self) -> Option<&str> {
        self.messages
            .iter()
            .rev()
            .find(|(author, content)| *author == MessageAuthor::Assistant && !content.text.trim().is_empty())
            .map(|(_, content)| content.text.as_str())
    }

    /// Returns the whole conversation as one message, to start a new session with.
    #[must_use]
    pub(crate) fn flattened_message(&self) -> ClientMessageContent {
        self.flattened_up_to(self.messages.len() - 1)
    }

    /// Returns the forms in which a session may hold the earlier messages, most likely first. The session may have started at
    /// any of the user's messages, with the messages before it flattened into its first message.
    pub(crate) fn possible_prefixes(&self) -> impl Iterator<Item = ClientHistoryAsExchanges<'_>> {
        let indices =
            (0..self.messages.len().saturating_sub(2)).filter(|index| self.messages[*index].0 == MessageAuthor::User);
        indices.map(|start| ClientHistoryAsExchanges { conversation: self, start })
    }

    fn flattened_up_to(&self, index: usize) -> ClientMessageContent {
        flatten_messages(&self.instructions, &self.messages[..=index])
    }
}

/// Returns the first messages of a conversation as one message.
fn flatten_messages(instructions: &str, messages: &[(MessageAuthor, ClientMessageContent)]) -> ClientMessageContent {
    let instructions = Some(instructions).filter(|text| !text.is_empty());
    let parts: Vec<String> = if messages.len() == 1 {
        instructions
            .into_iter()
            .map(ToOwned::to_owned)
            .chain(messages.iter().map(|(_, content)| content.flat_text().into_owned()))
            .collect()
    } else {
        let lines = messages.iter().map(|(author, content)| format!("{}{}", author.label(), content.flat_text()));
        instructions.map(|text| format!("system: {text}")).into_iter().chain(lines).collect()
    };
    let mut images: Vec<PromptImage> =
        messages.iter().flat_map(|(_, content)| content.images.iter().cloned()).collect();
    if messages.len() > 1 {
        // Only the newest images of a long conversation are kept.
        images.drain(..images.len().saturating_sub(SESSION_LIMITS.images_per_message_max));
    }
    ClientMessageContent { text: parts.join(PART_SEPARATOR), images, ..ClientMessageContent::default() }
}

/// The earlier messages as a session would hold them: a first message, then replies and messages in turn, ending with a
/// reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientHistoryAsExchanges<'h> {
    conversation: &'h ClientConversation,
    /// The last message that is part of the session's first message.
    start: usize,
}

impl<'h> ClientHistoryAsExchanges<'h> {
    /// Returns whether the session's first message is the client's first message.
    #[must_use]
    pub(crate) fn is_from_first_message(self) -> bool {
        self.start == 0
    }

    /// Returns the session's first message.
    #[must_use]
    pub(crate) fn first_message(self) -> ClientMessageContent {
        self.conversation.flattened_up_to(self.start)
    }

    /// Returns the content hash of the session's first message.
    #[must_use]
    pub(crate) fn first_message_hash(self) -> BodyId {
        self.conversation.hashes.flattened_hash(self.start)
    }

    /// Returns what the client sent and the reply to it, in order.
    pub(crate) fn exchanges(self) -> impl Iterator<Item = (Cow<'h, ClientMessageContent>, &'h ClientMessageContent)> {
        let messages = &self.conversation.messages;
        let rest = &messages[self.start + 1..messages.len() - 1];
        let replies = rest.iter().step_by(2).map(|(_, content)| content);
        let later = rest.iter().skip(1).step_by(2).map(|(_, content)| Cow::Borrowed(content));
        std::iter::once_with(move || Cow::Owned(self.first_message())).chain(later).zip(replies)
    }

    /// Returns the fingerprint of the conversation so far.
    #[must_use]
    pub(crate) fn fingerprint(self, caller: &Caller, flow: &FlowName) -> ConversationFingerprint {
        self.conversation.hashes.fingerprint_from(self.start, caller, flow)
    }
}

/// Returns the total length of the strings in a message.
fn text_byte_len(message: &Value) -> usize {
    match message {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_byte_len).sum(),
        Value::Object(fields) => fields.values().map(text_byte_len).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Trims a text for comparison, because clients trim too.
#[must_use]
pub(crate) fn trim_for_comparison(text: &str) -> &str {
    text.trim()
}

/// Checks that each tool call is answered at once, and each result answers a call. Results without a call may only begin a
/// conversation that continues elsewhere.
fn check_tool_messages(messages: &[(MessageAuthor, ClientMessageContent)]) -> Result<(), HttpProblem> {
    for (index, (_, content)) in messages.iter().enumerate() {
        let results = messages.get(index + 1).map_or(&[][..], |(_, next)| &next.tool_results);
        if let Some(call) = content
            .tool_calls
            .iter()
            .find(|call| results.iter().filter(|result| result.tool_call_id == call.id).count() != 1)
        {
            return Err(invalid_messages(format!(
                "the tool call `{}` needs exactly one result, directly after it",
                call.id
            )));
        }
        let is_unknown = |id: &str| !content.tool_calls.iter().any(|call| call.id == id);
        if let Some(result) = results.iter().find(|result| is_unknown(&result.tool_call_id)) {
            let id = &result.tool_call_id;
            return Err(invalid_messages(format!("there is no tool call `{id}` before its result")));
        }
        let too_long = |result: &&ClientHistoryToolResult| result.text.len() > SESSION_LIMITS.tool_result_bytes_max;
        if let Some(result) = content.tool_results.iter().find(too_long) {
            let (bytes, most) = (result.text.len(), SESSION_LIMITS.tool_result_bytes_max);
            return Err(invalid_messages(format!("a tool result has {bytes} bytes, but at most {most} are allowed")));
        }
    }
    Ok(())
}

/// Parses the tool calls of an assistant's message, or a call that is an item of its own.
fn parse_tool_calls(message: &Value) -> Result<Vec<ClientHistoryToolCall>, HttpProblem> {
    let parse = |id: &Value, function: &Value| {
        let field = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let fields = (field(id), field(&function["name"]), field(&function["arguments"]));
        let (Some(id), Some(name), Some(arguments)) = fields else {
            return Err(invalid_messages("a tool call needs an id, a name and arguments, all of them texts"));
        };
        Ok(ClientHistoryToolCall { id, name, arguments })
    };
    if message["type"] == "function_call" {
        return Ok(vec![parse(&message["call_id"], message)?]);
    }
    let calls = message.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    calls.iter().map(|call| parse(&call["id"], &call["function"])).collect()
}

/// Parses a result of a tool.
fn parse_tool_result(message: &Value, id: &Value, content: &Value) -> Result<ClientMessageContent, HttpProblem> {
    let Some(tool_call_id) = id.as_str().map(ToOwned::to_owned) else {
        return Err(invalid_messages("a tool result does not name its tool call"));
    };
    let parsed = parse_text_and_images(content)?;
    if !parsed.images.is_empty() {
        return Err(invalid_messages(format!(
            "the result of `{}` must be text",
            message["role"].as_str().unwrap_or("a tool")
        )));
    }
    let result = ClientHistoryToolResult { tool_call_id, text: parsed.text };
    Ok(ClientMessageContent { tool_results: vec![result], ..ClientMessageContent::default() })
}

fn parse_message_content(message: &Value) -> Result<ClientMessageContent, HttpProblem> {
    if message["type"] == "function_call_output" {
        return parse_tool_result(message, &message["call_id"], &message["output"]);
    }
    if message["role"] == "tool" {
        return parse_tool_result(message, &message["tool_call_id"], &message["content"]);
    }
    let tool_calls = parse_tool_calls(message)?;
    if !tool_calls.is_empty() && message["type"] != "function_call" && message["role"] != "assistant" {
        return Err(invalid_messages("only the assistant calls tools"));
    }
    Ok(ClientMessageContent { tool_calls, ..parse_text_and_images(&message["content"])? })
}

fn parse_text_and_images(content: &Value) -> Result<ClientMessageContent, HttpProblem> {
    let (mut texts, mut images): (Vec<&str>, Vec<PromptImage>) = (Vec::new(), Vec::new());
    match content {
        Value::String(text) => texts.push(text),
        Value::Null => {}
        Value::Array(parts) => {
            for part in parts {
                match part["type"].as_str() {
                    Some("text" | "input_text" | "output_text") => {
                        texts.push(part["text"].as_str().unwrap_or_default())
                    }
                    Some("refusal") => texts.push(part["refusal"].as_str().unwrap_or_default()),
                    Some("image_url") => images.push(parse_image_part(&part["image_url"]["url"])?),
                    Some("input_image") => images.push(parse_image_part(&part["image_url"])?),
                    Some(kind) => {
                        let detail = format!("content of the type `{kind}` is not supported; send text or images");
                        return Err(invalid_messages(detail));
                    }
                    None => return Err(invalid_messages("a part of the content has no `type`")),
                }
            }
        }
        _ => return Err(invalid_messages("`content` must be a text or a list of parts")),
    }
    Ok(ClientMessageContent { text: texts.join(PART_SEPARATOR), images, ..ClientMessageContent::default() })
}

fn parse_image_part(url: &Value) -> Result<PromptImage, HttpProblem> {
    let url = url.as_str().ok_or_else(|| invalid_messages("an image has no URL"))?;
    images::parse_image_data_url(url).map_err(|problem| problem.with_extension("field", "messages"))
}

fn invalid_messages(detail: impl Into<String>) -> HttpProblem {
    HttpProblem::bad_request(detail).with_extension("field", "messages")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(messages: Value) -> ClientConversation {
        ClientConversation::parse(messages.as_array().expect("a list"), None).expect("it parses")
    }

    fn message(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    fn exchanges(past: &ClientHistoryAsExchanges<'_>) -> Vec<(String, String)> {
        past.exchanges().map(|(asked, answered)| (asked.text.clone(), answered.text.clone())).collect()
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> [(String, String); N] {
        pairs.map(|(asked, answered)| (asked.to_owned(), answered.to_owned()))
    }

    #[test]
    fn images_are_parsed_alike_in_both_apis() {
        const GIF: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";
        let of = |image: Value| json!([{"role": "user", "content": [{"type": "text", "text": "look"}, image]}]);
        let chat = history(of(json!({"type": "image_url", "image_url": {"url": GIF, "detail": "low"}})));
        let response = history(of(json!({"type": "input_image", "image_url": GIF})));
        assert_eq!(chat, response);
        assert_eq!((chat.new_message().text.as_str(), chat.new_message().images.len()), ("look", 1));
        assert_ne!(
            chat.new_message().content_hash(),
            history(json!([message("user", "look")])).new_message().content_hash()
        );
    }

    #[test]
    fn last_user_messages_are_the_new_message() {
        let all = history(json!([
            message("user", "a"),
            message("assistant", "b"),
            message("user", "c"),
            message("user", "d")
        ]));
        assert_eq!(all.new_message().text, "c\n\nd");
        assert!(all.has_prior_messages());
        assert_eq!(all.last_assistant_text(), Some("b"));
        let pasts: Vec<ClientHistoryAsExchanges<'_>> = all.possible_prefixes().collect();
        assert_eq!(pasts.len(), 1);
        assert_eq!(exchanges(&pasts[0]), pairs([("a", "b")]));
    }

    #[test]
    fn instructions_are_part_of_the_first_message_only() {
        let first = history(json!([message("system", "be kind"), message("user", "a")]));
        assert_eq!(first.flattened_message().text, "be kind\n\na");
        let second = history(json!([
            message("system", "be kind"),
            message("user", "a"),
            message("assistant", "b"),
            message("user", "c")
        ]));
        let past = second.possible_prefixes().next().expect("one");
        assert_eq!(exchanges(&past), pairs([("be kind\n\na", "b")]));
        assert_eq!(second.new_message().text, "c");
    }

    #[test]
    fn unknown_earlier_messages_are_flattened_and_recognized_later() {
        let foreign = [message("user", "a"), message("assistant", "b"), message("user", "c")];
        let opening = history(json!(foreign)).flattened_message();
        assert_eq!(opening.text, "user: a\n\nassistant: b\n\nuser: c");
        let mut later = foreign.to_vec();
        later.extend([message("assistant", "d"), message("user", "e")]);
        let later = history(json!(later));
        let pasts: Vec<ClientHistoryAsExchanges<'_>> = later.possible_prefixes().collect();
        assert_eq!(pasts.len(), 2);
        assert_eq!(exchanges(&pasts[0]), pairs([("a", "b"), ("c", "d")]));
        assert_eq!(exchanges(&pasts[1]), pairs([(opening.text.as_str(), "d")]));
    }

    #[test]
    fn fingerprint_depends_on_messages_and_owner() {
        let of = |messages: Value, caller: &Caller| {
            history(messages).possible_prefixes().next().expect("a past").fingerprint(caller, &"chat".into())
        };
        let conversation = || json!([message("user", "a"), message("assistant", "b "), message("user", "c")]);
        let operator = Caller::default();
        let acme = Caller { owner: Some("acme".into()), ..Caller::default() };
        assert_eq!(
            of(conversation(), &operator),
            ConversationFingerprint::empty(&operator, &"chat".into())
                .extend(BodyId::hash_text("a"), BodyId::hash_text("b"))
        );
        assert_ne!(of(conversation(), &operator), of(conversation(), &acme));
    }

    #[test]
    fn unsupported_content_is_refused_by_name() {
        let refused = |messages: Value| {
            ClientConversation::parse(messages.as_array().expect("a list"), None).expect_err("refused").detail
        };
        assert!(refused(json!([])).contains("no user message"));
        assert!(refused(json!([message("assistant", "hello")])).contains("must have the role `user`"));
        assert!(refused(json!([message("user", "  ")])).contains("empty"));
        assert!(refused(json!([message("tool", "4")])).contains("does not name its tool call"));
        assert!(refused(json!([message("judge", "4")])).contains("`judge`"));
        let part = |part: Value| json!([{"role": "user", "content": [part]}]);
        assert!(refused(part(json!({"type": "input_audio"}))).contains("`input_audio`"));
        let elsewhere = json!({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}});
        assert!(refused(part(elsewhere)).contains("must be data URLs"));
        let parts =
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]);
        assert_eq!(history(parts).new_message().text, "a\n\nb");
    }
}
