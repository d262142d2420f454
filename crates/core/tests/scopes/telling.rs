//! What an event shows about the history it is part of, to see that random ones are not all alike.

use segue_core::context::{Prefix, ThreadUse};
use segue_core::event::{CallOpened, Event, Next, Outcome};
use segue_core::phase::state::How;
use segue_core::prompt::FailureKind;
use segue_core::scope::{Opening, Part};

/// What there is to tell of an event.
pub fn telling(event: &Event) -> Vec<&'static str> {
    match event {
        Event::CallOpened(opened) => of_call(opened),
        Event::CallDeferred(wait) if wait.follows.is_some() => vec!["deferred", "deferred round"],
        Event::CallDeferred(_) => vec!["deferred"],
        Event::CallDropped { .. } => vec!["dropped"],
        Event::CallCancelled { .. } => vec!["cancelled"],
        Event::CallAnsweredLate { .. } => vec!["late"],
        Event::CallUnknown { .. } => vec!["unknown"],
        Event::CallFailed { failure, next: Next::GiveUp, .. } if failure.kind == FailureKind::ContextTooLong => {
            vec!["too long"]
        }
        Event::CallFailed { next: Next::GiveUp, .. } => vec!["given up"],
        Event::TurnEnded { outcome: Outcome::Interrupted, .. } => vec!["interrupted"],
        Event::ThreadCompacted(compacted) if compacted.by.is_some() => vec!["summary"],
        Event::ThreadCompacted(_) => vec!["trimmed"],
        Event::PhaseEntered(entered) if matches!(entered.transition.how, How::Expired { .. }) => vec!["expired"],
        Event::SessionForked { .. } => vec!["forked"],
        _ => Vec::new(),
    }
}

fn of_call(opened: &CallOpened) -> Vec<&'static str> {
    let mut told = Vec::new();
    match &opened.receipt.thread {
        ThreadUse::Continued(_) if opened.follows.is_some() => told.push("round"),
        ThreadUse::Continued(_) => told.push("continued"),
        ThreadUse::Opened { why, .. } => match why {
            Opening::Fresh => told.push("fresh"),
            Opening::First => told.push("first"),
            Opening::Aged => told.push("aged"),
            Opening::Changed(parts) => told.extend(parts.iter().map(|part| match part {
                Part::Turn => "turn",
                Part::Phase => "phase",
                Part::Model => "model",
                Part::Work => "work",
                Part::Reset => "reset",
            })),
        },
    }
    match &opened.receipt.prefix {
        Prefix::Extends(_) => told.push("extends"),
        Prefix::Broken { by, .. } if *by == "compaction" => told.push("broken by compaction"),
        Prefix::Broken { .. } | Prefix::First => {}
    }
    if opened.turn.is_none() {
        told.push("beside turns");
    }
    told
}
