//! Describes a receipt for people: why a call uses its thread, how much of its prompt can be cached, and where a
//! fragment came from.

use std::fmt;

use super::{CallThread, FragmentContentKind, FragmentSource, PreviousPromptComparison};
use crate::event::CallOpened;
use crate::scope::{Scope, ThreadOpenReason, ThreadReuseMismatch};

impl CallOpened {
    /// Explains in one sentence why the call uses its thread. `scope` is the scope of its role, if known.
    #[must_use]
    pub fn explain_thread_use(&self, scope: Option<&Scope>) -> String {
        let scope_note = scope.map(|scope| format!(" (scope: {scope})")).unwrap_or_default();
        match &self.receipt.thread {
            CallThread::Continued(thread) => {
                format!("{thread} continues: nothing that ends the thread of {} has changed{scope_note}", self.role)
            }
            CallThread::Opened { thread, why, .. } => {
                let why = match why {
                    ThreadOpenReason::Fresh => format!("{} starts a new thread for every call", self.role),
                    ThreadOpenReason::FirstUse => {
                        format!("it is the first call of {} in this scope{scope_note}", self.role)
                    }
                    ThreadOpenReason::TooOld => format!("the earlier thread was too old{scope_note}"),
                    ThreadOpenReason::Changed(parts) => format!("{}{scope_note}", describe_changed_conditions(parts)),
                };
                format!("{thread} is new: {why}")
            }
        }
    }
}

fn describe_changed_conditions(parts: &[ThreadReuseMismatch]) -> String {
    let changes = parts.iter().map(|part| match part {
        ThreadReuseMismatch::Turn => "a new turn started",
        ThreadReuseMismatch::Phase => "a new phase was entered",
        ThreadReuseMismatch::Model => "the model changed",
        ThreadReuseMismatch::WorkItem => "the work item changed",
        ThreadReuseMismatch::Reset => "the thread was reset",
    });
    changes.collect::<Vec<_>>().join(" and ")
}

/// Writes how much of the prompt can be cached.
impl fmt::Display for PreviousPromptComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("the first prompt in this slot, so nothing is cached yet"),
            Self::Extends(from) => write!(f, "extends the prompt of {from}, so all of that prompt can be cached"),
            Self::Broken { from, kept_tokens, cause } => write!(
                f,
                "differs from the prompt of {from} at `{cause}`; the first {} tokens can be cached",
                format_thousands(*kept_tokens)
            ),
        }
    }
}

/// Formats a number with commas between thousands.
fn format_thousands(number: u32) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for FragmentContentKind {
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
    use crate::scope::ThreadEndTrigger;

    #[test]
    fn scopes_are_described_in_words() {
        assert_eq!(Scope::Fresh.to_string(), "none: every call starts a new thread");
        assert_eq!(Scope::per_session().to_string(), "the whole session");
        assert_eq!(Scope::per_model().to_string(), "the whole session, one for each model");
        assert_eq!(
            Scope::per_peer().ended_by(ThreadEndTrigger::WorkItem).to_string(),
            "until the work item changes, one for each peer"
        );
        assert_eq!(
            Scope::Persistent {
                partitions: [].into(),
                boundaries: [ThreadEndTrigger::Phase].into(),
                age_ms_max: Some(60_000)
            }
            .to_string(),
            "until the phase is left or it is 1 min old"
        );
    }

    #[test]
    fn broken_prefix_is_described_with_its_size() {
        let broken =
            PreviousPromptComparison::Broken { from: CallId(3), kept_tokens: 1_234_567, cause: "brief".into() };
        assert_eq!(
            broken.to_string(),
            "differs from the prompt of c3 at `brief`; the first 1,234,567 tokens can be cached"
        );
        assert_eq!(
            (format_thousands(0), format_thousands(999), format_thousands(1_000)),
            ("0".into(), "999".into(), "1,000".into())
        );
    }
}
