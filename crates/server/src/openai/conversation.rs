//! A conversation as a client sends it: what was said before, and what is new. Decides what the first message of a session is, if the
//! client has instructions or a past that no session knows, and by what a conversation is known again.

use segue_core::body::BodyId;
use segue_core::ids::FlowName;
use segue_core::limits::IMAGES_PER_MESSAGE_MAX;
use segue_core::prompt::PromptImage;
use serde_json::Value;

use crate::caller::Caller;
use crate::images;
use crate::limits::HISTORY_MESSAGES_MAX;
use crate::problem::HttpProblem;

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageAuthor {
    /// The user's.
    User,
    /// Ours.
    Assistant,
}

/// Words, and what is shown with them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MessageContent {
    /// What is said.
    pub text: String,
    /// What is shown.
    pub images: Vec<PromptImage>,
}

impl MessageContent {
    /// What they are known by.
    #[must_use]
    pub fn content_hash(&self) -> BodyId {
        self.image_hashes().fold(BodyId::hash_text(trim_for_comparison(&self.text)), BodyId::chain_hash)
    }

    /// What the images are known by.
    pub fn image_hashes(&self) -> impl Iterator<Item = BodyId> {
        self.images.iter().map(|image| BodyId::hash_text(&image.data))
    }

    fn append(&mut self, more: Self) {
        self.text.push_str(PART_SEPARATOR);
        self.text.push_str(&more.text);
        self.images.extend(more.images);
    }
}

/// A conversation as a client sends it. What is said alternates, and ends with the user.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConversation {
    /// Standing instructions of the client.
    pub instructions: String,
    /// What was said, in order; never empty.
    messages: Vec<(MessageAuthor, MessageContent)>,
}

/// What stands between parts of a text.
const PART_SEPARATOR: &str = "\n\n";

impl ClientConversation {
    /// Reads messages of either API: objects with a role and a content.
    ///
    /// # Errors
    /// There is something in them that a flow cannot be told, or nothing new.
    pub fn parse(messages: &[Value], instructions: Option<&str>) -> Result<Self, HttpProblem> {
        if messages.len() > HISTORY_MESSAGES_MAX {
            return Err(invalid_messages(format!(
                "there are {} messages; at most {HISTORY_MESSAGES_MAX} are taken",
                messages.len()
            )));
        }
        let mut standing: Vec<String> =
            instructions.filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned).into_iter().collect();
        let mut said: Vec<(MessageAuthor, MessageContent)> = Vec::new();
        for message in messages {
            // What a model thought is no part of what was said.
            if message["type"] == "reasoning" {
                continue;
            }
            let words = parse_message_content(message)?;
            let role = message["role"].as_str();
            if !words.images.is_empty() && role != Some("user") {
                return Err(invalid_messages("images can be shown by the user only"));
            }
            let side = match role {
                Some("system" | "developer") => {
                    standing.push(words.text);
                    continue;
                }
                Some("user") => MessageAuthor::User,
                Some("assistant") => MessageAuthor::Assistant,
                Some(role) => {
                    return Err(invalid_messages(format!("messages of the role `{role}` cannot be told to a flow")));
                }
                None => return Err(invalid_messages("a message has no `role`")),
            };
            match said.last_mut() {
                Some((last, before)) if *last == side => before.append(words),
                _ => said.push((side, words)),
            }
        }
        match said.last() {
            Some((MessageAuthor::User, words)) if !words.text.trim().is_empty() => {}
            Some((MessageAuthor::User, _)) => {
                return Err(invalid_messages("the last message is empty; write something"));
            }
            Some((MessageAuthor::Assistant, _)) => return Err(invalid_messages("the last message must be the user's")),
            None => return Err(invalid_messages("there is no message of the user")),
        }
        Ok(Self { instructions: standing.join(PART_SEPARATOR), messages: said })
    }

    /// What is new.
    #[must_use]
    pub fn new_message(&self) -> &MessageContent {
        const NOTHING: &MessageContent = &MessageContent { text: String::new(), images: Vec::new() };
        self.messages.last().map_or(NOTHING, |(_, words)| words)
    }

    /// Whether something was said before.
    #[must_use]
    pub fn has_prior_messages(&self) -> bool {
        self.messages.len() > 1
    }

    /// The last thing we are said to have said.
    #[must_use]
    pub fn last_assistant_text(&self) -> Option<&str> {
        self.messages
            .iter()
            .rev()
            .find(|(side, _)| *side == MessageAuthor::Assistant)
            .map(|(_, words)| words.text.as_str())
    }

    /// What a session would begin with that begins with all of this.
    #[must_use]
    pub fn flattened_message(&self) -> MessageContent {
        self.flattened_up_to(self.messages.len() - 1)
    }

    /// The ways in which a session can have come to hold this past: its first message may have been any of the user's, with what
    /// was before put in front of it. The most likely first.
    pub fn possible_prefixes(&self) -> impl Iterator<Item = ConversationPrefix<'_>> {
        let places =
            (0..self.messages.len().saturating_sub(2)).filter(|place| self.messages[*place].0 == MessageAuthor::User);
        places.map(|place| {
            let rest = &self.messages[place + 1..self.messages.len() - 1];
            let replies = rest.iter().step_by(2).map(|(_, words)| words.text.as_str());
            let messages = rest.iter().skip(1).step_by(2).map(|(_, words)| words);
            ConversationPrefix {
                first_message: self.flattened_up_to(place),
                replies: replies.collect(),
                later_messages: messages.collect(),
            }
        })
    }

    fn flattened_up_to(&self, place: usize) -> MessageContent {
        let said = &self.messages[..=place];
        let standing = Some(self.instructions.as_str()).filter(|text| !text.is_empty());
        let parts: Vec<String> = if place == 0 {
            standing.into_iter().chain(said.iter().map(|(_, words)| words.text.as_str())).map(Into::into).collect()
        } else {
            let told = said.iter().map(|(side, words)| match side {
                MessageAuthor::User => format!("user: {}", words.text),
                MessageAuthor::Assistant => format!("assistant: {}", words.text),
            });
            standing.map(|text| format!("system: {text}")).into_iter().chain(told).collect()
        };
        let mut images: Vec<PromptImage> = said.iter().flat_map(|(_, words)| words.images.iter().cloned()).collect();
        if place > 0 {
            // Of a long past, the newest are shown.
            images.drain(..images.len().saturating_sub(IMAGES_PER_MESSAGE_MAX));
        }
        MessageContent { text: parts.join(PART_SEPARATOR), images }
    }
}

/// A past as a session would hold it: a first message, then replies and messages in turn, ending with a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationPrefix<'h> {
    /// The first message.
    pub first_message: MessageContent,
    /// The replies; one more than the messages.
    pub replies: Vec<&'h str>,
    /// The messages after the first.
    pub later_messages: Vec<&'h MessageContent>,
}

impl ConversationPrefix<'_> {
    /// What each turn was asked and answered.
    pub fn exchanges(&self) -> impl Iterator<Item = (&MessageContent, &str)> {
        let asked = std::iter::once(&self.first_message).chain(self.later_messages.iter().copied());
        asked.zip(self.replies.iter().copied())
    }

    /// What it is known by.
    #[must_use]
    pub fn fingerprint(&self, caller: &Caller, flow: &FlowName) -> BodyId {
        self.exchanges().fold(empty_fingerprint(caller, flow), |so_far, (asked, answered)| {
            extend_fingerprint(so_far, asked.content_hash(), answered)
        })
    }
}

/// What a conversation that has not begun is known by.
#[must_use]
pub fn empty_fingerprint(caller: &Caller, flow: &FlowName) -> BodyId {
    BodyId::hash_text(&format!("{}\0{flow}", caller.owner.as_deref().unwrap_or_default()))
}

/// What a conversation is known by after an exchange more.
#[must_use]
pub fn extend_fingerprint(fingerprint: BodyId, asked: BodyId, answered: &str) -> BodyId {
    fingerprint.chain_hash(asked).chain_hash(BodyId::hash_text(trim_for_comparison(answered)))
}

/// A text as it is compared: clients are known to trim.
#[must_use]
pub fn trim_for_comparison(text: &str) -> &str {
    text.trim()
}

fn parse_message_content(message: &Value) -> Result<MessageContent, HttpProblem> {
    if message.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty())) {
        return Err(invalid_messages("tool calls cannot be told to a flow"));
    }
    let (mut texts, mut shown): (Vec<&str>, Vec<PromptImage>) = (Vec::new(), Vec::new());
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
                    Some("image_url") => shown.push(parse_image_part(&part["image_url"]["url"])?),
                    Some("input_image") => shown.push(parse_image_part(&part["image_url"])?),
                    Some(kind) => {
                        let detail =
                            format!("content of the type `{kind}` cannot be told to a flow; send text or images");
                        return Err(invalid_messages(detail));
                    }
                    None => return Err(invalid_messages("a part of the content has no `type`")),
                }
            }
        }
        _ => return Err(invalid_messages("`content` must be a text or a list of parts")),
    }
    Ok(MessageContent { text: texts.join(PART_SEPARATOR), images: shown })
}

fn parse_image_part(url: &Value) -> Result<PromptImage, HttpProblem> {
    let url = url.as_str().ok_or_else(|| invalid_messages("an image has no address"))?;
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
        ClientConversation::parse(messages.as_array().expect("a list"), None).expect("it is understood")
    }

    fn message(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    fn exchanges<'p>(past: &'p ConversationPrefix<'_>) -> Vec<(&'p str, &'p str)> {
        past.exchanges().map(|(asked, answered)| (asked.text.as_str(), answered)).collect()
    }

    #[test]
    fn what_is_shown_is_part_of_what_was_said_in_either_form() {
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
    fn what_is_new_is_what_the_user_said_last() {
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
    fn instructions_stand_before_the_first_message_and_change_nothing_later() {
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
    fn a_past_that_nobody_knows_is_told_with_the_first_message_and_known_again_then() {
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
    fn a_conversation_is_known_by_what_was_said_and_by_whom() {
        let of = |messages: Value, caller: &Caller| {
            history(messages).possible_prefixes().next().expect("a past").fingerprint(caller, &"chat".into())
        };
        let said = || json!([message("user", "a"), message("assistant", "b "), message("user", "c")]);
        let nobody = Caller::default();
        let acme = Caller { owner: Some("acme".into()), ..Caller::default() };
        assert_eq!(
            of(said(), &nobody),
            extend_fingerprint(empty_fingerprint(&nobody, &"chat".into()), BodyId::hash_text("a"), "b")
        );
        assert_ne!(of(said(), &nobody), of(said(), &acme));
    }

    #[test]
    fn what_a_flow_cannot_be_told_is_refused_by_name() {
        let refused = |messages: Value| {
            ClientConversation::parse(messages.as_array().expect("a list"), None).expect_err("refused").detail
        };
        assert!(refused(json!([])).contains("no message"));
        assert!(refused(json!([message("assistant", "hello")])).contains("must be the user's"));
        assert!(refused(json!([message("user", "  ")])).contains("empty"));
        assert!(refused(json!([message("tool", "4")])).contains("`tool`"));
        let part = |part: Value| json!([{"role": "user", "content": [part]}]);
        assert!(refused(part(json!({"type": "input_audio"}))).contains("`input_audio`"));
        let elsewhere = json!({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}});
        assert!(refused(part(elsewhere)).contains("data URLs only"));
        let parts =
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]);
        assert_eq!(history(parts).new_message().text, "a\n\nb");
    }
}
