//! A conversation as a client sends it: what was said before, and what is new. Decides what the first message of a session is, if the
//! client has instructions or a past that no session knows, and by what a conversation is known again.

use segue_core::body::BodyId;
use segue_core::ids::FlowName;
use serde_json::Value;

use crate::caller::Caller;
use crate::limits::HISTORY_MESSAGES_MAX;
use crate::problem::Problem;

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The user's.
    User,
    /// Ours.
    Assistant,
}

/// A conversation as a client sends it. What is said alternates, and ends with the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Standing instructions of the client.
    pub instructions: String,
    /// What was said, in order; never empty.
    said: Vec<(Side, String)>,
}

/// What stands between parts of a text.
const SEPARATOR: &str = "\n\n";

impl History {
    /// Reads messages of either API: objects with a role and a content.
    ///
    /// # Errors
    /// There is something in them that a flow cannot be told, or nothing new.
    pub fn read(messages: &[Value], instructions: Option<&str>) -> Result<Self, Problem> {
        if messages.len() > HISTORY_MESSAGES_MAX {
            return Err(bad(format!(
                "there are {} messages; at most {HISTORY_MESSAGES_MAX} are taken",
                messages.len()
            )));
        }
        let mut standing: Vec<String> =
            instructions.filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned).into_iter().collect();
        let mut said: Vec<(Side, String)> = Vec::new();
        for message in messages {
            // What a model thought is no part of what was said.
            if message["type"] == "reasoning" {
                continue;
            }
            let text = text_of(message)?;
            let side = match message["role"].as_str() {
                Some("system" | "developer") => {
                    standing.push(text);
                    continue;
                }
                Some("user") => Side::User,
                Some("assistant") => Side::Assistant,
                Some(role) => return Err(bad(format!("messages of the role `{role}` cannot be told to a flow"))),
                None => return Err(bad("a message has no `role`")),
            };
            match said.last_mut() {
                Some((last, before)) if *last == side => {
                    before.push_str(SEPARATOR);
                    before.push_str(&text);
                }
                _ => said.push((side, text)),
            }
        }
        match said.last() {
            Some((Side::User, text)) if !text.trim().is_empty() => {}
            Some((Side::User, _)) => return Err(bad("the last message is empty; write something")),
            Some((Side::Assistant, _)) => return Err(bad("the last message must be the user's")),
            None => return Err(bad("there is no message of the user")),
        }
        Ok(Self { instructions: standing.join(SEPARATOR), said })
    }

    /// What is new.
    #[must_use]
    pub fn new_text(&self) -> &str {
        self.said.last().map_or("", |(_, text)| text)
    }

    /// Whether something was said before.
    #[must_use]
    pub fn has_past(&self) -> bool {
        self.said.len() > 1
    }

    /// The last thing we are said to have said.
    #[must_use]
    pub fn last_reply(&self) -> Option<&str> {
        self.said.iter().rev().find(|(side, _)| *side == Side::Assistant).map(|(_, text)| text.as_str())
    }

    /// What a session would begin with that begins with all of this.
    #[must_use]
    pub fn opening(&self) -> String {
        self.opening_up_to(self.said.len() - 1)
    }

    /// The ways in which a session can have come to hold this past: its first message may have been any of the user's, with what
    /// was before put in front of it. The most likely first.
    pub fn pasts(&self) -> impl Iterator<Item = Past<'_>> {
        let places = (0..self.said.len().saturating_sub(2)).filter(|place| self.said[*place].0 == Side::User);
        places.map(|place| {
            let rest = &self.said[place + 1..self.said.len() - 1];
            let replies = rest.iter().step_by(2).map(|(_, text)| text.as_str());
            let messages = rest.iter().skip(1).step_by(2).map(|(_, text)| text.as_str());
            Past { opening: self.opening_up_to(place), replies: replies.collect(), messages: messages.collect() }
        })
    }

    fn opening_up_to(&self, place: usize) -> String {
        let (_, text) = &self.said[place];
        let standing = Some(self.instructions.as_str()).filter(|text| !text.is_empty());
        if place == 0 {
            return standing.into_iter().chain([text.as_str()]).collect::<Vec<_>>().join(SEPARATOR);
        }
        let told = self.said[..=place].iter().map(|(side, text)| match side {
            Side::User => format!("user: {text}"),
            Side::Assistant => format!("assistant: {text}"),
        });
        standing.map(|text| format!("system: {text}")).into_iter().chain(told).collect::<Vec<_>>().join(SEPARATOR)
    }
}

/// A past as a session would hold it: a first message, then replies and messages in turn, ending with a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past<'h> {
    /// The first message.
    pub opening: String,
    /// The replies; one more than the messages.
    pub replies: Vec<&'h str>,
    /// The messages after the first.
    pub messages: Vec<&'h str>,
}

impl Past<'_> {
    /// What each turn was asked and answered.
    pub fn exchanges(&self) -> impl Iterator<Item = (&str, &str)> {
        let asked = std::iter::once(self.opening.as_str()).chain(self.messages.iter().copied());
        asked.zip(self.replies.iter().copied())
    }

    /// What it is known by.
    #[must_use]
    pub fn fingerprint(&self, caller: &Caller, flow: &FlowName) -> BodyId {
        self.exchanges().fold(beginning(caller, flow), |so_far, (asked, answered)| further(so_far, asked, answered))
    }
}

/// What a conversation that has not begun is known by.
#[must_use]
pub fn beginning(caller: &Caller, flow: &FlowName) -> BodyId {
    BodyId::of(&format!("{}\0{flow}", caller.owner.as_deref().unwrap_or_default()))
}

/// What a conversation is known by after an exchange more.
#[must_use]
pub fn further(so_far: BodyId, asked: &str, answered: &str) -> BodyId {
    so_far.chain(BodyId::of(plain(asked))).chain(BodyId::of(plain(answered)))
}

/// A text as it is compared: clients are known to trim.
#[must_use]
pub fn plain(text: &str) -> &str {
    text.trim()
}

fn text_of(message: &Value) -> Result<String, Problem> {
    if message.get("tool_calls").is_some_and(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty())) {
        return Err(bad("tool calls cannot be told to a flow"));
    }
    match &message["content"] {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match part["type"].as_str() {
                Some("text" | "input_text" | "output_text") => Ok(part["text"].as_str().unwrap_or_default()),
                Some("refusal") => Ok(part["refusal"].as_str().unwrap_or_default()),
                Some(kind) => Err(bad(format!("content of the type `{kind}` cannot be told to a flow; send text"))),
                None => Err(bad("a part of the content has no `type`")),
            });
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(SEPARATOR))
        }
        _ => Err(bad("`content` must be a text or a list of parts")),
    }
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::bad_request(detail).with("field", "messages")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(messages: Value) -> History {
        History::read(messages.as_array().expect("a list"), None).expect("it is understood")
    }

    fn message(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    #[test]
    fn what_is_new_is_what_the_user_said_last() {
        let all = history(json!([
            message("user", "a"),
            message("assistant", "b"),
            message("user", "c"),
            message("user", "d")
        ]));
        assert_eq!(all.new_text(), "c\n\nd");
        assert!(all.has_past());
        assert_eq!(all.last_reply(), Some("b"));
        let pasts: Vec<Past<'_>> = all.pasts().collect();
        assert_eq!(pasts.len(), 1);
        assert_eq!(pasts[0].exchanges().collect::<Vec<_>>(), [("a", "b")]);
    }

    #[test]
    fn instructions_stand_before_the_first_message_and_change_nothing_later() {
        let first = history(json!([message("system", "be kind"), message("user", "a")]));
        assert_eq!(first.opening(), "be kind\n\na");
        let second = history(json!([
            message("system", "be kind"),
            message("user", "a"),
            message("assistant", "b"),
            message("user", "c")
        ]));
        let past = second.pasts().next().expect("one");
        assert_eq!(past.exchanges().collect::<Vec<_>>(), [("be kind\n\na", "b")]);
        assert_eq!(second.new_text(), "c");
    }

    #[test]
    fn a_past_that_nobody_knows_is_told_with_the_first_message_and_known_again_then() {
        let foreign = [message("user", "a"), message("assistant", "b"), message("user", "c")];
        let opening = history(json!(foreign)).opening();
        assert_eq!(opening, "user: a\n\nassistant: b\n\nuser: c");
        let mut later = foreign.to_vec();
        later.extend([message("assistant", "d"), message("user", "e")]);
        let later = history(json!(later));
        let pasts: Vec<Vec<(String, String)>> = later
            .pasts()
            .map(|past| past.exchanges().map(|(asked, answered)| (asked.to_owned(), answered.to_owned())).collect())
            .collect();
        let pair = |asked: &str, answered: &str| (asked.to_owned(), answered.to_owned());
        assert_eq!(pasts, [vec![pair("a", "b"), pair("c", "d")], vec![pair(&opening, "d")]]);
    }

    #[test]
    fn a_conversation_is_known_by_what_was_said_and_by_whom() {
        let of = |messages: Value, caller: &Caller| {
            history(messages).pasts().next().expect("a past").fingerprint(caller, &"chat".into())
        };
        let said = || json!([message("user", "a"), message("assistant", "b "), message("user", "c")]);
        let nobody = Caller::default();
        let acme = Caller { owner: Some("acme".into()), ..Caller::default() };
        assert_eq!(of(said(), &nobody), further(beginning(&nobody, &"chat".into()), "a", "b"));
        assert_ne!(of(said(), &nobody), of(said(), &acme));
    }

    #[test]
    fn what_a_flow_cannot_be_told_is_refused_by_name() {
        let refused =
            |messages: Value| History::read(messages.as_array().expect("a list"), None).expect_err("refused").detail;
        assert!(refused(json!([])).contains("no message"));
        assert!(refused(json!([message("assistant", "hello")])).contains("must be the user's"));
        assert!(refused(json!([message("user", "  ")])).contains("empty"));
        assert!(refused(json!([message("tool", "4")])).contains("`tool`"));
        let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
        assert!(refused(image).contains("`image_url`"));
        let parts =
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]);
        assert_eq!(history(parts).new_text(), "a\n\nb");
    }
}
