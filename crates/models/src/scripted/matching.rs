//! Checks whether an entry matches a call and explains why not. Which matching entry is used is decided by the model.

use std::cell::OnceCell;
use std::fmt;

use segue_core::ids::TurnId;
use segue_core::prompt::Prompt;

use super::glob::ScenarioGlobPattern;
use super::number_range::ScenarioConditionRange;
use super::scripted_reply::ScriptedReplyConditions;
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{ModelCallOrigin, ModelRequest};
use crate::text;

/// A call as the conditions see it.
#[derive(Debug)]
pub(super) struct ScriptedReplyConditionInputs<'r> {
    pub(super) metadata: &'r ModelCallOrigin,
    pub(super) prompt: &'r Prompt,
    last: OnceCell<String>,
    system: OnceCell<String>,
}

impl<'r> ScriptedReplyConditionInputs<'r> {
    pub(super) fn new(request: &'r ModelRequest) -> Self {
        Self { metadata: &request.metadata, prompt: &request.prompt, last: OnceCell::new(), system: OnceCell::new() }
    }

    pub(super) fn last_user_text(&self) -> &str {
        self.last.get_or_init(|| text::last_user_text(self.prompt))
    }

    fn system_text(&self) -> &str {
        self.system.get_or_init(|| text::system_text(self.prompt))
    }
}

/// A condition that is not met.
#[derive(Debug)]
pub(super) enum ScriptedReplyConditionMismatch<'a> {
    Name { key: &'static str, expected: &'a [ScenarioGlobPattern], found: Option<&'a str> },
    Number { key: &'static str, expected: &'a ScenarioConditionRange, found: Option<u32> },
    MissingText { location: &'static str, text: &'a str, expected: &'a str },
    Pattern { expected: &'a ScenarioGlobPattern },
}

impl ScriptedReplyConditions {
    /// Returns the conditions that are not met; none if the entry matches.
    pub(super) fn mismatches<'a>(
        &'a self,
        call: &'a ScriptedReplyConditionInputs<'_>,
    ) -> impl Iterator<Item = ScriptedReplyConditionMismatch<'a>> {
        let metadata = call.metadata;
        let names = [
            ("role", &self.role, Some(metadata.role.as_str())),
            ("ask", &self.ask, Some(metadata.ask.as_str())),
            ("phase", &self.phase, metadata.phase.as_ref().map(|name| name.as_str())),
            ("agent", &self.agent, metadata.agent.as_ref().map(|name| name.as_str())),
            ("peer", &self.peer, metadata.peer.as_ref().map(|name| name.as_str())),
            ("model", &self.model, Some(call.prompt.model.as_str())),
        ];
        let numbers = [
            ("turn", &self.turn, metadata.turn.map(|TurnId(number)| number)),
            ("attempt", &self.attempt, Some(metadata.attempt)),
            ("call", &self.call, Some(metadata.call.0)),
        ];
        let names = names.into_iter().filter_map(|(key, expected, found)| {
            let is_match = expected.is_empty() || expected.iter().any(|name| name.matches(found.unwrap_or_default()));
            (!is_match).then_some(ScriptedReplyConditionMismatch::Name { key, expected, found })
        });
        let numbers = numbers.into_iter().filter_map(|(key, expected, found)| {
            let expected = expected.as_ref()?;
            let is_match = found.is_some_and(|number| expected.contains(number));
            (!is_match).then_some(ScriptedReplyConditionMismatch::Number { key, expected, found })
        });
        let last = self
            .contains
            .iter()
            .filter_map(|expected| find_missing_text("the last user message", call.last_user_text(), expected));
        let system = self
            .system_contains
            .iter()
            .filter_map(|expected| find_missing_text("the system prompt", call.system_text(), expected));
        let pattern = self.pattern.iter().filter(|expected| !expected.matches(call.last_user_text()));
        names
            .chain(numbers)
            .chain(last)
            .chain(system)
            .chain(pattern.map(|expected| ScriptedReplyConditionMismatch::Pattern { expected }))
    }
}

fn find_missing_text<'a>(
    location: &'static str,
    text: &'a str,
    expected: &'a str,
) -> Option<ScriptedReplyConditionMismatch<'a>> {
    (!text.contains(expected)).then_some(ScriptedReplyConditionMismatch::MissingText { location, text, expected })
}

impl fmt::Display for ScriptedReplyConditionMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { key, expected, found } => {
                let expected: Vec<_> = expected.iter().map(ScenarioGlobPattern::to_string).collect();
                write!(
                    f,
                    "{key} is {}, expected {}",
                    display_or_absent(found.map(|name| format!("`{name}`"))),
                    expected.join(" or ")
                )
            }
            Self::Number { key, expected, found } => {
                write!(f, "{key} is {}, expected {expected}", display_or_absent(*found))
            }
            Self::MissingText { location, text, expected } => {
                write!(f, "{location} does not contain “{}”", text::shorten_to_line(expected, QUOTED_CHARS_MAX))?;
                if text.to_lowercase().contains(&expected.to_lowercase()) {
                    f.write_str(" (the letter case differs)")
                } else {
                    Ok(())
                }
            }
            Self::Pattern { expected } => write!(f, "the last user message does not match the pattern {expected}"),
        }
    }
}

fn display_or_absent(found: Option<impl fmt::Display>) -> String {
    found.map_or_else(|| "absent".to_owned(), |found| found.to_string())
}
