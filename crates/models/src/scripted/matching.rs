//! Whether an entry is for a call, and if not, why. The first entry that fits and is not used up wins; that choice is
//! made by the model, not here.

use std::cell::OnceCell;
use std::fmt;

use segue_core::ids::TurnId;
use segue_core::prompt::Prompt;

use super::entry::When;
use super::glob::Glob;
use super::span::Span;
use crate::limits::QUOTED_CHARS_MAX;
use crate::model::{CallFacts, Request};
use crate::text;

/// A call, as conditions look at it.
#[derive(Debug)]
pub(super) struct Call<'r> {
    pub(super) facts: &'r CallFacts,
    pub(super) prompt: &'r Prompt,
    last: OnceCell<String>,
    system: OnceCell<String>,
}

impl<'r> Call<'r> {
    pub(super) fn of(request: &'r Request) -> Self {
        Self { facts: &request.call, prompt: &request.prompt, last: OnceCell::new(), system: OnceCell::new() }
    }

    /// The last user message.
    pub(super) fn last(&self) -> &str {
        self.last.get_or_init(|| text::last_user(self.prompt))
    }

    fn system(&self) -> &str {
        self.system.get_or_init(|| text::system(self.prompt))
    }
}

/// A condition that does not hold.
#[derive(Debug)]
pub(super) enum Mismatch<'a> {
    Name { key: &'static str, wanted: &'a [Glob], found: Option<&'a str> },
    Number { key: &'static str, wanted: &'a Span, found: Option<u32> },
    Lacks { place: &'static str, text: &'a str, wanted: &'a str },
    Pattern { wanted: &'a Glob },
}

impl When {
    /// The conditions that do not hold, found one by one: none if the entry is for this call.
    pub(super) fn mismatches<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = Mismatch<'a>> {
        let facts = call.facts;
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
            let fits = wanted.is_empty() || wanted.iter().any(|name| name.fits(found.unwrap_or_default()));
            (!fits).then_some(Mismatch::Name { key, wanted, found })
        });
        let numbers = numbers.into_iter().filter_map(|(key, wanted, found)| {
            let wanted = wanted.as_ref()?;
            let fits = found.is_some_and(|number| wanted.holds(number));
            (!fits).then_some(Mismatch::Number { key, wanted, found })
        });
        let last = self.contains.iter().filter_map(|wanted| lacks("the last user message", call.last(), wanted));
        let system =
            self.system_contains.iter().filter_map(|wanted| lacks("the standing instructions", call.system(), wanted));
        let pattern = self.pattern.iter().filter(|wanted| !wanted.fits(call.last()));
        names.chain(numbers).chain(last).chain(system).chain(pattern.map(|wanted| Mismatch::Pattern { wanted }))
    }
}

fn lacks<'a>(place: &'static str, text: &'a str, wanted: &'a str) -> Option<Mismatch<'a>> {
    (!text.contains(wanted)).then_some(Mismatch::Lacks { place, text, wanted })
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { key, wanted, found } => {
                let wanted: Vec<_> = wanted.iter().map(Glob::to_string).collect();
                write!(f, "{key} is {}, wanted {}", shown(found.map(|name| format!("`{name}`"))), wanted.join(" or "))
            }
            Self::Number { key, wanted, found } => write!(f, "{key} is {}, wanted {wanted}", shown(*found)),
            Self::Lacks { place, text, wanted } => {
                write!(f, "{place} does not contain “{}”", text::shorten(wanted, QUOTED_CHARS_MAX))?;
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

fn shown(found: Option<impl fmt::Display>) -> String {
    found.map_or_else(|| "absent".to_owned(), |found| found.to_string())
}
