//! A conversation of an evaluation: what the user says, by which rules they answer, and what must be true afterwards. It
//! is data in a TOML file; `docs/evals.md` describes the format.

use segue_core::ids::{FlowName, RoleName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::language::DetectableLanguage;
use crate::limits::{
    CONVERSATION_BYTES_MAX, CONVERSATION_ITEMS_MAX, CONVERSATION_TURNS_MAX, SIMULATED_MESSAGE_CHARS_MAX,
};
use crate::workspace_fixture::{EvalWorkspaceFixture, SimulatedApproval};

/// Why a file is not a conversation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EvalConversationFileError(String);

/// A conversation with a simulated user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalConversationSpec {
    /// A name that is unique in the flow.
    pub name: String,
    pub flow: FlowName,
    /// What the conversation tests, in one sentence.
    pub about: String,
    /// The language of the user, as a code such as `en`. Replies must be in the same language.
    pub language: String,
    /// Words of the subject. A reply that contains none of them does not answer the user. No check if empty.
    #[serde(default)]
    pub topic: Vec<String>,
    /// How many messages the user sends.
    pub turns: usize,
    /// Settings of the session.
    #[serde(default)]
    pub settings: Value,
    /// The folder in which agents work, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<EvalWorkspaceFixture>,
    /// What happens to tool runs that wait for a person.
    #[serde(default)]
    pub approvals: SimulatedApproval,
    pub user: EvalUserScript,
    /// What must be true after the conversation.
    #[serde(default, rename = "expect")]
    pub expectations: Vec<EvalConversationExpectation>,
}

/// What the simulated user says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalUserScript {
    /// The first message.
    pub opening: String,
    /// Answers to what the assistant says. The first rule that applies is used, each rule once.
    #[serde(default)]
    pub rules: Vec<ScriptedUserRule>,
    /// What the user says if no rule applies, in order. When they are used up, the conversation ends.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// An answer, and when the user gives it. All conditions must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUserRule {
    /// At least one of these texts is in the last reply.
    #[serde(default)]
    pub reply_has: Vec<String>,
    /// The session is in this phase.
    #[serde(default)]
    pub phase: Option<String>,
    /// The message would be at least the n-th of the conversation.
    #[serde(default)]
    pub from_turn: usize,
    pub say: String,
}

/// Something that must be true after the conversation. At least one of the positive conditions must hold (`reply_has`,
/// `phase`, `handover`, `fact`, `tool`), if there is any, and none of the negative ones (`reply_lacks`, `no_fact`,
/// `no_tool`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalConversationExpectation {
    /// The measure that the result counts for.
    pub measure: String,
    /// The role that is responsible; the role that talks to the user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleName>,
    /// The turn whose replies are meant; the last one if absent. Other conditions count from this turn on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<usize>,
    /// The reply contains at least one of these texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_has: Vec<String>,
    /// The reply contains none of these texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reply_lacks: Vec<String>,
    /// One of these phases was entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase: Vec<String>,
    /// A handover of this kind exists, and the model wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
    /// The flow recorded a fact of one of these kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fact: Vec<String>,
    /// The flow recorded no fact of these kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_fact: Vec<String>,
    /// A tool was run with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ExpectedToolRun>,
    /// No such tool was run with success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_tool: Option<ExpectedToolRun>,
}

/// A run of a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedToolRun {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Members that the arguments contain, with one of the given values each.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub arguments: Value,
    /// Texts that occur in the arguments, in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<String>,
}

impl EvalConversationSpec {
    /// Parses the file of a conversation.
    ///
    /// # Errors
    /// The text is not a valid conversation.
    pub fn parse(text: &str) -> Result<Self, EvalConversationFileError> {
        if text.len() > CONVERSATION_BYTES_MAX {
            let problem = format!("it has {} bytes; the limit is {CONVERSATION_BYTES_MAX}", text.len());
            return Err(EvalConversationFileError(problem));
        }
        let mut parsed: Self = toml::from_str(text).map_err(|error| EvalConversationFileError(error.to_string()))?;
        if parsed.settings.is_null() {
            parsed.settings = Value::Object(serde_json::Map::new());
        }
        match parsed.find_problem() {
            Some(problem) => Err(EvalConversationFileError(problem)),
            None => Ok(parsed),
        }
    }

    fn find_problem(&self) -> Option<String> {
        let is_valid_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || !self.name.bytes().all(is_valid_name) {
            return Some(format!("`name` must consist of a–z, 0–9 and `-`, not `{}`", self.name));
        }
        if !(1..=CONVERSATION_TURNS_MAX).contains(&self.turns) {
            return Some(format!("`turns` must be from 1 to {CONVERSATION_TURNS_MAX}, not {}", self.turns));
        }
        if DetectableLanguage::from_language_code(&self.language).is_none() {
            let known = DetectableLanguage::language_codes();
            return Some(format!("`language` must be one of {}, not `{}`", known.join(", "), self.language));
        }
        let items = [self.user.rules.len(), self.user.lines.len(), self.expectations.len()];
        if items.into_iter().any(|count| count > CONVERSATION_ITEMS_MAX) {
            return Some(format!("at most {CONVERSATION_ITEMS_MAX} rules, lines and expectations are allowed"));
        }
        if self.user.lines.len() + self.user.rules.len() + 1 < self.turns {
            return Some(format!("`turns` is {}, but the user has fewer rules and lines than that", self.turns));
        }
        let said = self.user.rules.iter().map(|rule| &rule.say).chain(&self.user.lines).chain([&self.user.opening]);
        if said.clone().any(|text| text.trim().is_empty()) {
            return Some("the user cannot say nothing".to_owned());
        }
        if said.clone().any(|text| text.chars().count() > SIMULATED_MESSAGE_CHARS_MAX) {
            return Some(format!("a message of the user has more than {SIMULATED_MESSAGE_CHARS_MAX} characters"));
        }
        if let Some(problem) = self.workspace.as_ref().and_then(EvalWorkspaceFixture::find_problem) {
            return Some(problem);
        }
        let expectation = self.expectations.iter().find_map(|expectation| expectation.find_problem(self.turns));
        expectation.or_else(|| (!self.settings.is_object()).then(|| "`settings` must be a table".to_owned()))
    }
}

impl EvalConversationExpectation {
    fn find_problem(&self, turns: usize) -> Option<String> {
        let about = format!("the expectation `{}`", self.measure);
        if self.measure.trim().is_empty() {
            return Some("an expectation needs a `measure`".to_owned());
        }
        if self.turn.is_some_and(|turn| turn == 0 || turn > turns) {
            return Some(format!("{about}: `turn` must be from 1 to {turns}"));
        }
        let has_condition = self.has_positive_condition()
            || !(self.reply_lacks.is_empty() && self.no_fact.is_empty() && self.no_tool.is_none());
        (!has_condition).then(|| format!("{about} has no condition, so it cannot fail"))
    }

    pub(crate) fn has_positive_condition(&self) -> bool {
        let lists = [&self.reply_has, &self.phase, &self.fact];
        lists.into_iter().any(|list| !list.is_empty()) || self.handover.is_some() || self.tool.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "name = \"a\"\nflow = \"chat\"\nabout = \"x\"\nlanguage = \"en\"\nturns = 1\n\
                           [user]\nopening = \"Hello\"\n";

    #[test]
    fn errors_say_what_is_wrong() {
        assert!(EvalConversationSpec::parse(MINIMAL).is_ok());
        for (from, to, problem) in [
            ("name = \"a\"", "name = \"A b\"", "`name` must consist of"),
            ("turns = 1", "turns = 0", "`turns` must be from 1 to"),
            ("turns = 1", "turns = 2", "fewer rules and lines"),
            ("language = \"en\"", "language = \"xx\"", "`language` must be one of"),
            ("opening = \"Hello\"", "opening = \" \"", "cannot say nothing"),
            ("[user]", "tunrs = 3\n[user]", "unknown field `tunrs`"),
            ("[user]", "approvals = \"maybe\"\n[user]", "unknown variant `maybe`"),
            ("[user]", "[workspace.files]\n\"../a\" = \"\"\n[user]", "relative to the workspace"),
        ] {
            let error = EvalConversationSpec::parse(&MINIMAL.replace(from, to)).expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn expectation_without_a_condition_is_an_error() {
        let text = format!("{MINIMAL}[[expect]]\nmeasure = \"facts recalled\"\n");
        let error = EvalConversationSpec::parse(&text).expect_err("it cannot fail").to_string();
        assert!(error.contains("has no condition"), "{error}");
        assert!(EvalConversationSpec::parse(&format!("{text}reply_has = [\"x\"]\n")).is_ok());
    }
}
