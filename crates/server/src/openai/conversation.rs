//! The conversation in a client's request: the earlier messages and the new one. Builds the first message of a session if the
//! client sends instructions or earlier messages that no session contains, and computes the fingerprint by which a
//! conversation is found again.

use segue_core::body::BodyId;
use segue_core::ids::FlowName;
use segue_core::limits::IMAGES_PER_MESSAGE_MAX;
use segue_core::prompt::PromptImage;
use serde_json::Value;

use crate::caller::Caller;
use crate::images;
use crate::limits::HISTORY_MESSAGES_MAX;
use crate::problem::HttpProblem;

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageAuthor {
    User,
    Assistant,
}

/// The text and images of a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MessageContent {
    pub text: String,
    pub images: Vec<PromptImage>,
}

impl MessageContent {
    /// Returns the hash of the text and the images.
    #[must_use]
    pub(crate) fn content_hash(&self) -> BodyId {
        self.image_hashes().fold(BodyId::hash_text(trim_for_comparison(&self.text)), BodyId::chain_hash)
    }

    /// Returns the hash of each image.
    pub(crate) fn image_hashes(&self) -> impl Iterator<Item = BodyId> {
        self.images.iter().map(|image| BodyId::hash_text(&image.data))
    }

    fn append(&mut self, more: Self) {
        self.text.push_str(PART_SEPARATOR);
        self.text.push_str(&more.text);
        self.images.extend(more.images);
    }
}

/// The conversation in a client's request. Authors alternate, and the last message is the user's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientConversation {
    /// The client's system messages and instructions.
    pub instructions: String,
    /// In order; never empty.
    messages: Vec<(MessageAuthor, MessageContent)>,
}

/// Separates the parts of a text.
const PART_SEPARATOR: &str = "\n\n";

impl ClientConversation {
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
        let mut parsed: Vec<(MessageAuthor, MessageContent)> = Vec::new();
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
                _ => parsed.push((author, content)),
            }
        }
        match parsed.last() {
            Some((MessageAuthor::User, content)) if !content.text.trim().is_empty() => {}
            Some((MessageAuthor::User, _)) => {
                return Err(invalid_messages("the last message is empty"));
            }
            Some((MessageAuthor::Assistant, _)) => {
                return Err(invalid_messages("the last message must have the role `user`"));
            }
            None => return Err(invalid_messages("there is no user message")),
        }
        Ok(Self { instructions: instruction_texts.join(PART_SEPARATOR), messages: parsed })
    }

    /// Returns the new message.
    #[must_use]
    pub(crate) fn new_message(&self) -> &MessageContent {
        const NOTHING: &MessageContent = &MessageContent { text: String::new(), images: Vec::new() };
        self.messages.last().map_or(NOTHING, |(_, content)| content)
    }

    /// Returns whether there are messages before the new one.
    #[must_use]
    pub(crate) fn has_prior_messages(&self) -> bool {
        self.messages.len() > 1
    }

    /// Returns the text of the last assistant message.
    #[must_use]
    pub(crate) fn last_assistant_text(&self) -> Option<&str> {
        self.messages
            .iter()
            .rev()
            .find(|(author, _)| *author == MessageAuthor::Assistant)
            .map(|(_, content)| content.text.as_str())
    }

    /// Returns the whole conversation as one message, to start a new session with.
    #[must_use]
    pub(crate) fn flattened_message(&self) -> MessageContent {
        self.flattened_up_to(self.messages.len() - 1)
    }

    /// Returns the forms in which a session may hold the earlier messages, most likely first. The session may have started at
    /// any of the user's messages, with the messages before it flattened into its first message.
    pub(crate) fn possible_prefixes(&self) -> impl Iterator<Item = ConversationPrefix<'_>> {
        let indices =
            (0..self.messages.len().saturating_sub(2)).filter(|index| self.messages[*index].0 == MessageAuthor::User);
        indices.map(|index| {
            let rest = &self.messages[index + 1..self.messages.len() - 1];
            let replies = rest.iter().step_by(2).map(|(_, content)| content.text.as_str());
            let messages = rest.iter().skip(1).step_by(2).map(|(_, content)| content);
            ConversationPrefix {
                first_message: self.flattened_up_to(index),
                replies: replies.collect(),
                later_messages: messages.collect(),
            }
        })
    }

    fn flattened_up_to(&self, index: usize) -> MessageContent {
        let messages = &self.messages[..=index];
        let instruction_texts = Some(self.instructions.as_str()).filter(|text| !text.is_empty());
        let parts: Vec<String> = if index == 0 {
            instruction_texts
                .into_iter()
                .chain(messages.iter().map(|(_, content)| content.text.as_str()))
                .map(Into::into)
                .collect()
        } else {
            let lines = messages.iter().map(|(author, content)| match author {
                MessageAuthor::User => format!("user: {}", content.text),
                MessageAuthor::Assistant => format!("assistant: {}", content.text),
            });
            instruction_texts.map(|text| format!("system: {text}")).into_iter().chain(lines).collect()
        };
        let mut images: Vec<PromptImage> =
            messages.iter().flat_map(|(_, content)| content.images.iter().cloned()).collect();
        if index > 0 {
            // Only the newest images of a long conversation are kept.
            images.drain(..images.len().saturating_sub(IMAGES_PER_MESSAGE_MAX));
        }
        MessageContent { text: parts.join(PART_SEPARATOR), images }
    }
}

/// The earlier messages as a session would hold them: a first message, then replies and messages in turn, ending with a
/// reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConversationPrefix<'h> {
    pub first_message: MessageContent,
    /// One more than the later messages.
    pub replies: Vec<&'h str>,
    pub later_messages: Vec<&'h MessageContent>,
}

impl ConversationPrefix<'_> {
    /// Returns the user's message and the reply of each turn.
    pub(crate) fn exchanges(&self) -> impl Iterator<Item = (&MessageContent, &str)> {
        let asked = std::iter::once(&self.first_message).chain(self.later_messages.iter().copied());
        asked.zip(self.replies.iter().copied())
    }

    /// Returns the fingerprint of the conversation so far.
    #[must_use]
    pub(crate) fn fingerprint(&self, caller: &Caller, flow: &FlowName) -> BodyId {
        self.exchanges().fold(empty_fingerprint(caller, flow), |fingerprint, (asked, answered)| {
            extend_fingerprint(fingerprint, asked.content_hash(), answered)
        })
    }
}

/// Returns the fingerprint of a conversation without messages.
#[must_use]
pub(crate) fn empty_fingerprint(caller: &Caller, flow: &FlowName) -> BodyId {
    BodyId::hash_text(&format!("{}\0{flow}", caller.owner.as_deref().unwrap_or_default()))
}

/// Extends a fingerprint by one exchange.
#[must_use]
pub(crate) fn extend_fingerprint(fingerprint: BodyId, asked: BodyId, answered: &str) -> BodyId {
    fingerprint.chain_hash(asked).chain_hash(BodyId::hash_text(trim_for_comparison(answered)))
}

/// Trims a text for comparison, because clients trim too.
#[must_use]
pub(crate) fn trim_for_comparison(text: &str) -> &str {
    text.trim()
}

fn parse_message_content(message: &Value) -> Result<MessageContent, HttpProblem> {
    if message.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty())) {
        return Err(invalid_messages("tool calls are not supported"));
    }
    let (mut texts, mut images): (Vec<&str>, Vec<PromptImage>) = (Vec::new(), Vec::new());
    match &message["content"] {
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
    Ok(MessageContent { text: texts.join(PART_SEPARATOR), images })
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

    fn exchanges<'p>(past: &'p ConversationPrefix<'_>) -> Vec<(&'p str, &'p str)> {
        past.exchanges().map(|(asked, answered)| (asked.text.as_str(), answered)).collect()
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
        let pasts: Vec<ConversationPrefix<'_>> = all.possible_prefixes().collect();
        assert_eq!(pasts.len(), 1);
        assert_eq!(exchanges(&pasts[0]), [("a", "b")]);
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
        assert_eq!(exchanges(&past), [("be kind\n\na", "b")]);
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
        let pasts: Vec<ConversationPrefix<'_>> = later.possible_prefixes().collect();
        assert_eq!(pasts.len(), 2);
        assert_eq!(exchanges(&pasts[0]), [("a", "b"), ("c", "d")]);
        assert_eq!(exchanges(&pasts[1]), [(opening.text.as_str(), "d")]);
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
            extend_fingerprint(empty_fingerprint(&operator, &"chat".into()), BodyId::hash_text("a"), "b")
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
        assert!(refused(json!([message("tool", "4")])).contains("`tool`"));
        let part = |part: Value| json!([{"role": "user", "content": [part]}]);
        assert!(refused(part(json!({"type": "input_audio"}))).contains("`input_audio`"));
        let elsewhere = json!({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}});
        assert!(refused(part(elsewhere)).contains("must be data URLs"));
        let parts =
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]);
        assert_eq!(history(parts).new_message().text, "a\n\nb");
    }
}
