//! A receipt in words, for people: why a call has the thread it has, what of its prompt can be cached, where a fragment came
//! from. Decides nothing.

use std::fmt;

use super::{ContextLayer, FragmentSource, PrefixMatch, ThreadUse};
use crate::event::CallOpened;
use crate::scope::{Scope, ThreadChange, ThreadOpenReason};

impl CallOpened {
    /// In one sentence: why the call has the thread it has. `scope` is its role's, where that is known.
    #[must_use]
    pub fn explain_thread_use(&self, scope: Option<&Scope>) -> String {
        let memory = scope.map(|scope| format!(" (its memory: {})", scope.describe())).unwrap_or_default();
        match &self.receipt.thread {
            ThreadUse::Continued(thread) => {
                format!("{thread} goes on, since nothing that ends the memory of {} has changed{memory}", self.role)
            }
            ThreadUse::Opened { thread, why, .. } => {
                let why = match why {
                    ThreadOpenReason::Fresh => format!("{} keeps no memory from call to call", self.role),
                    ThreadOpenReason::FirstUse => format!("{} remembered nothing here yet{memory}", self.role),
                    ThreadOpenReason::TooOld => format!("the earlier one had grown too old{memory}"),
                    ThreadOpenReason::Changed(parts) => format!("{}{memory}", describe_changes(parts)),
                };
                format!("{thread} is new, since {why}")
            }
        }
    }
}

fn describe_changes(parts: &[ThreadChange]) -> String {
    let words = parts.iter().map(|part| match part {
        ThreadChange::Turn => "another turn has begun",
        ThreadChange::Phase => "another phase was entered",
        ThreadChange::Model => "another model answers",
        ThreadChange::WorkItem => "the work is another",
        ThreadChange::Reset => "it was reset by hand",
    });
    words.collect::<Vec<_>>().join(" and ")
}

impl PrefixMatch {
    /// What of the prompt can be cached, in a sentence.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::First => "the first prompt here, so there is none to extend".to_owned(),
            Self::Extends(from) => format!("extends the prompt of {from}, so all of that can be cached"),
            Self::Broken { from, kept_tokens: kept, cause: by } => {
                format!(
                    "parts from the prompt of {from} at `{by}`; the first {} tokens can be cached",
                    format_thousands(*kept)
                )
            }
        }
    }
}

/// A number with its thousands apart.
fn format_thousands(number: u32) -> String {
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

impl fmt::Display for ContextLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Instruction => "instruction",
            Self::Knowledge => "knowledge",
            Self::Handover => "handover",
            Self::Entities => "entities",
            Self::Conversation => "conversation",
            Self::Reasoning => "reasoning",
            Self::Task => "task",
            Self::UserWords => "user_words",
        })
    }
}

impl fmt::Display for FragmentSource {
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
        assert_eq!(Scope::Fresh.describe(), "none: every call begins anew");
        assert_eq!(Scope::per_session().describe(), "the whole session");
        assert_eq!(Scope::per_model().describe(), "the whole session, one for each model");
        assert_eq!(Scope::per_peer_and_work_item().describe(), "until the work item changes, one for each partner");
        assert_eq!(Scope::per_phase().with_age_ms_max(60_000).describe(), "until the phase is left or it is 1 min old");
    }

    #[test]
    fn what_can_be_cached_is_told_with_its_size() {
        let broken = PrefixMatch::Broken { from: CallId(3), kept_tokens: 1_234_567, cause: "brief".into() };
        assert_eq!(
            broken.describe(),
            "parts from the prompt of c3 at `brief`; the first 1,234,567 tokens can be cached"
        );
        assert_eq!(
            (format_thousands(0), format_thousands(999), format_thousands(1_000)),
            ("0".into(), "999".into(), "1,000".into())
        );
    }
}
