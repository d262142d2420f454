//! What an event shows about the history it is part of, to see that random ones are not all alike.

use segue_core::context::{PrefixMatch, ThreadUse};
use segue_core::event::{CallOpened, Event, RetryDecision, TurnResult};
use segue_core::phase::state::TransitionCause;
use segue_core::prompt::FailureKind;
use segue_core::scope::{ThreadChange, ThreadOpenReason};

/// What there is to tell of an event.
pub fn telling(event: &Event) -> Vec<&'static str> {
    match event {
        Event::CallOpened(opened) => of_call(opened),
        Event::CallDeferred(wait) if wait.continues.is_some() => vec!["deferred", "deferred round"],
        Event::CallDeferred(_) => vec!["deferred"],
        Event::DeferredCallDropped { .. } => vec!["dropped"],
        Event::CallCancelled { .. } => vec!["cancelled"],
        Event::CallAnsweredLate { .. } => vec!["late"],
        Event::CallOutcomeUnknown { .. } => vec!["unknown"],
        Event::CallFailed { failure, next: RetryDecision::GiveUp, .. }
            if failure.kind == FailureKind::ContextTooLong =>
        {
            vec!["too long"]
        }
        Event::CallFailed { next: RetryDecision::GiveUp, .. } => vec!["given up"],
        Event::TurnEnded { outcome: TurnResult::Interrupted, .. } => vec!["interrupted"],
        Event::ThreadCompacted(compacted) if compacted.summary_call.is_some() => vec!["summary"],
        Event::ThreadCompacted(_) => vec!["trimmed"],
        Event::PhaseEntered(entered) if matches!(entered.transition.cause, TransitionCause::Expired { .. }) => {
            vec!["expired"]
        }
        Event::SessionForked { .. } => vec!["forked"],
        _ => Vec::new(),
    }
}

fn of_call(opened: &CallOpened) -> Vec<&'static str> {
    let mut told = Vec::new();
    match &opened.receipt.thread {
        ThreadUse::Continued(_) if opened.continues.is_some() => told.push("round"),
        ThreadUse::Continued(_) => told.push("continued"),
        ThreadUse::Opened { why, .. } => match why {
            ThreadOpenReason::Fresh => told.push("fresh"),
            ThreadOpenReason::FirstUse => told.push("first"),
            ThreadOpenReason::TooOld => told.push("aged"),
            ThreadOpenReason::Changed(parts) => told.extend(parts.iter().map(|part| match part {
                ThreadChange::Turn => "turn",
                ThreadChange::Phase => "phase",
                ThreadChange::Model => "model",
                ThreadChange::WorkItem => "work",
                ThreadChange::Reset => "reset",
            })),
        },
    }
    match &opened.receipt.prefix {
        PrefixMatch::Extends(_) => told.push("extends"),
        PrefixMatch::Broken { cause: by, .. } if *by == "compaction" => told.push("broken by compaction"),
        PrefixMatch::Broken { .. } | PrefixMatch::First => {}
    }
    if opened.turn.is_none() {
        told.push("beside turns");
    }
    told
}
