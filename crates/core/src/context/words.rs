//! A receipt in words, for people: why a call has the thread it has, what of its prompt can be cached, where a fragment came
//! from. Decides nothing.

use std::fmt;

use super::{Layer, Prefix, Source, ThreadUse};
use crate::event::CallOpened;
use crate::scope::{Opening, Part, Scope};

impl CallOpened {
    /// In one sentence: why the call has the thread it has. `scope` is its role's, where that is known.
    #[must_use]
    pub fn why_thread(&self, scope: Option<&Scope>) -> String {
        let memory = scope.map(|scope| format!(" (its memory: {})", scope.words())).unwrap_or_default();
        match &self.receipt.thread {
            ThreadUse::Continued(thread) => {
                format!("{thread} goes on, since nothing that ends the memory of {} has changed{memory}", self.role)
            }
            ThreadUse::Opened { thread, why, .. } => {
                let why = match why {
                    Opening::Fresh => format!("{} keeps no memory from call to call", self.role),
                    Opening::First => format!("{} remembered nothing here yet{memory}", self.role),
                    Opening::Aged => format!("the earlier one had grown too old{memory}"),
                    Opening::Changed(parts) => format!("{}{memory}", changed(parts)),
                };
                format!("{thread} is new, since {why}")
            }
        }
    }
}

fn changed(parts: &[Part]) -> String {
    let words = parts.iter().map(|part| match part {
        Part::Turn => "another turn has begun",
        Part::Phase => "another phase was entered",
        Part::Model => "another model answers",
        Part::Work => "the work is another",
        Part::Reset => "it was reset by hand",
    });
    words.collect::<Vec<_>>().join(" and ")
}

impl Prefix {
    /// What of the prompt can be cached, in a sentence.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::First => "the first prompt here, so there is none to extend".to_owned(),
            Self::Extends(from) => format!("extends the prompt of {from}, so all of that can be cached"),
            Self::Broken { from, kept, by } => {
                format!("parts from the prompt of {from} at `{by}`; the first {} tokens can be cached", grouped(*kept))
            }
        }
    }
}

/// A number with its thousands apart.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Instruction => "instruction",
            Self::Knowledge => "knowledge",
            Self::Handover => "handover",
            Self::Entities => "entities",
            Self::Conversation => "conversation",
            Self::Reasoning => "reasoning",
            Self::Task => "task",
            Self::Words => "words",
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template(file) => write!(f, "template {file}"),
            Self::Message(message) => write!(f, "message {message}"),
            Self::Handover(handover) => write!(f, "handover {handover}"),
            Self::Call(call) => write!(f, "answer of {call}"),
            Self::Tool(run) => write!(f, "tool run {run}"),
            Self::State => f.write_str("the flow's state"),
            Self::Phase => f.write_str("the phase graph"),
            Self::Thread(thread) => write!(f, "thread {thread}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CallId;

    #[test]
    fn a_scope_is_told_in_words() {
        assert_eq!(Scope::Fresh.words(), "none: every call begins anew");
        assert_eq!(Scope::session().words(), "the whole session");
        assert_eq!(Scope::model().words(), "the whole session, one for each model");
        assert_eq!(Scope::peer_and_work().words(), "until the work item changes, one for each partner");
        assert_eq!(Scope::phase().aged(60_000).words(), "until the phase is left or it is 1 min old");
    }

    #[test]
    fn what_can_be_cached_is_told_with_its_size() {
        let broken = Prefix::Broken { from: CallId(3), kept: 1_234_567, by: "brief".into() };
        assert_eq!(broken.words(), "parts from the prompt of c3 at `brief`; the first 1,234,567 tokens can be cached");
        assert_eq!((grouped(0), grouped(999), grouped(1_000)), ("0".into(), "999".into(), "1,000".into()));
    }
}
