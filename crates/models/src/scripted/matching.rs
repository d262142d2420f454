//! Whether an entry is for a call, and if not, why. The first entry that fits and is not used up wins; that choice is
//! made by the model, not here.

use std::cell::OnceCell;
use std::fmt;

use segue_core::ids::TurnId;
use segue_core::prompt::Prompt;

use super::glob::Glob;
use super::number_range::NumberRange;
use super::scripted_reply::ReplyConditions;
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{CallMetadata, ModelRequest};
use crate::text;

/// A call, as conditions look at it.
#[derive(Debug)]
pub(super) struct MatchableCall<'r> {
    pub(super) metadata: &'r CallMetadata,
    pub(super) prompt: &'r Prompt,
    last: OnceCell<String>,
    system: OnceCell<String>,
}

impl<'r> MatchableCall<'r> {
    pub(super) fn new(request: &'r ModelRequest) -> Self {
        Self { metadata: &request.metadata, prompt: &request.prompt, last: OnceCell::new(), system: OnceCell::new() }
    }

    /// The last user message.
    pub(super) fn last_user_text(&self) -> &str {
        self.last.get_or_init(|| text::last_user_text(self.prompt))
    }

    fn system_text(&self) -> &str {
        self.system.get_or_init(|| text::system_text(self.prompt))
    }
}

/// A condition that does not hold.
#[derive(Debug)]
pub(super) enum ConditionMismatch<'a> {
    Name { key: &'static str, wanted: &'a [Glob], found: Option<&'a str> },
    Number { key: &'static str, wanted: &'a NumberRange, found: Option<u32> },
    MissingText { place: &'static str, text: &'a str, wanted: &'a str },
    Pattern { wanted: &'a Glob },
}

impl ReplyConditions {
    /// The conditions that do not hold, found one by one: none if the entry is for this call.
    pub(super) fn mismatches<'a>(&'a self, call: &'a MatchableCall<'_>) -> impl Iterator<Item = ConditionMismatch<'a>> {
        let facts = call.metadata;
        let names = [
            ("role", &self.role, Some(facts.role.as_str())),
            ("ask", &self.ask, Some(facts.ask.as_str())),
            ("phase", &self.phase, facts.phase.as_ref().map(|name| name.as_str())),
            ("agent", &self.agent, facts.agent.as_ref().map(|name| name.as_str())),
            ("peer", &self.peer, facts.peer.as_ref().map(|name| name.as_str())),
            ("model", &self.model, Some(call.prompt.model.as_str())),
        ];
        let numbers = [
            ("turn", &self.turn, facts.turn.map(|TurnId(number)| number)),
            ("attempt", &self.attempt, Some(facts.attempt)),
            ("call", &self.call, Some(facts.call.0)),
        ];
        let names = names.into_iter().filter_map(|(key, wanted, found)| {
            let fits = wanted.is_empty() || wanted.iter().any(|name| name.matches(found.unwrap_or_default()));
            (!fits).then_some(ConditionMismatch::Name { key, wanted, found })
        });
        let numbers = numbers.into_iter().filter_map(|(key, wanted, found)| {
            let wanted = wanted.as_ref()?;
            let fits = found.is_some_and(|number| wanted.contains(number));
            (!fits).then_some(ConditionMismatch::Number { key, wanted, found })
        });
        let last = self
            .contains
            .iter()
            .filter_map(|wanted| find_missing_text("the last user message", call.last_user_text(), wanted));
        let system = self
            .system_contains
            .iter()
            .filter_map(|wanted| find_missing_text("the standing instructions", call.system_text(), wanted));
        let pattern = self.pattern.iter().filter(|wanted| !wanted.matches(call.last_user_text()));
        names
            .chain(numbers)
            .chain(last)
            .chain(system)
            .chain(pattern.map(|wanted| ConditionMismatch::Pattern { wanted }))
    }
}

fn find_missing_text<'a>(place: &'static str, text: &'a str, wanted: &'a str) -> Option<ConditionMismatch<'a>> {
    (!text.contains(wanted)).then_some(ConditionMismatch::MissingText { place, text, wanted })
}

impl fmt::Display for ConditionMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { key, wanted, found } => {
                let wanted: Vec<_> = wanted.iter().map(Glob::to_string).collect();
                write!(
                    f,
                    "{key} is {}, wanted {}",
                    display_or_absent(found.map(|name| format!("`{name}`"))),
                    wanted.join(" or ")
                )
            }
            Self::Number { key, wanted, found } => write!(f, "{key} is {}, wanted {wanted}", display_or_absent(*found)),
            Self::MissingText { place, text, wanted } => {
                write!(f, "{place} does not contain “{}”", text::shorten_to_line(wanted, QUOTED_CHARS_MAX))?;
                if text.to_lowercase().contains(&wanted.to_lowercase()) {
                    f.write_str(" (only in other letter case)")
                } else {
                    Ok(())
                }
            }
            Self::Pattern { wanted } => write!(f, "the last user message does not fit the pattern {wanted}"),
        }
    }
}

fn display_or_absent(found: Option<impl fmt::Display>) -> String {
    found.map_or_else(|| "absent".to_owned(), |found| found.to_string())
}
