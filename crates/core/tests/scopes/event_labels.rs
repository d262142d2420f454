//! Labels what an event shows about its history, to check that random histories cover all cases.

use segue_core::context::{CallThread, PreviousPromptComparison};
use segue_core::event::{CallOpened, Event, RetryDecision, TurnOutcome};
use segue_core::phase::PhaseTransitionCause;
use segue_core::prompt::CallFailureKind;
use segue_core::scope::{ThreadOpenReason, ThreadReuseMismatch};

/// Returns the labels of an event.
pub(crate) fn event_labels(event: &Event) -> Vec<&'static str> {
    match event {
        Event::CallOpened(opened) => call_labels(opened),
        Event::CallDeferred(wait) if wait.continues.is_some() => vec!["deferred", "deferred round"],
        Event::CallDeferred(_) => vec!["deferred"],
        Event::DeferredCallDropped { .. } => vec!["dropped"],
        Event::CallCancelled { .. } => vec!["cancelled"],
        Event::CallAnsweredLate { .. } => vec!["late"],
        Event::CallOutcomeUnknown { .. } => vec!["unknown"],
        Event::CallFailed { failure, next: RetryDecision::GiveUp, .. }
            if failure.kind == CallFailureKind::ContextTooLong =>
        {
            vec!["too long"]
        }
        Event::CallFailed { next: RetryDecision::GiveUp, .. } => vec!["given up"],
        Event::TurnEnded { outcome: TurnOutcome::Interrupted, .. } => vec!["interrupted"],
        Event::ThreadCompacted(compacted) if compacted.summary_call.is_some() => vec!["summary"],
        Event::ThreadCompacted(_) => vec!["trimmed"],
        Event::PhaseEntered(entered) if matches!(entered.transition.cause, PhaseTransitionCause::Expired { .. }) => {
            vec!["expired"]
        }
        Event::SessionForked { .. } => vec!["forked"],
        _ => Vec::new(),
    }
}

fn call_labels(opened: &CallOpened) -> Vec<&'static str> {
    let mut labels = Vec::new();
    match &opened.receipt.thread {
        CallThread::Continued(_) if opened.continues.is_some() => labels.push("round"),
        CallThread::Continued(_) => labels.push("continued"),
        CallThread::Opened { why, .. } => match why {
            ThreadOpenReason::Fresh => labels.push("fresh"),
            ThreadOpenReason::FirstUse => labels.push("first"),
            ThreadOpenReason::TooOld => labels.push("aged"),
            ThreadOpenReason::Changed(parts) => labels.extend(parts.iter().map(|part| match part {
                ThreadReuseMismatch::Turn => "turn",
                ThreadReuseMismatch::Phase => "phase",
                ThreadReuseMismatch::Model => "model",
                ThreadReuseMismatch::WorkItem => "work",
                ThreadReuseMismatch::Reset => "reset",
            })),
        },
    }
    match &opened.receipt.prefix {
        PreviousPromptComparison::Extends(_) => labels.push("extends"),
        PreviousPromptComparison::Broken { cause: by, .. } if *by == "compaction" => {
            labels.push("broken by compaction")
        }
        PreviousPromptComparison::Broken { .. } | PreviousPromptComparison::First => {}
    }
    if opened.turn.is_none() {
        labels.push("outside turns");
    }
    labels
}
