//! An event in one line, for people: timelines, tests, logs. Texts are given by whoever has them.

use std::fmt::Write as _;

use super::{CallOpened, Event, NO_CALL, Next, Outcome};
use crate::body::Text;
use crate::context::{Prefix, ThreadUse};

impl Event {
    /// The event in one line. `words` gives the words of a text, as short or long as they are wanted.
    #[must_use]
    pub fn line(&self, words: &dyn Fn(Text) -> String) -> String {
        match self {
            Self::SessionOpened(opened) => format!("session {} opened: {}", opened.session, opened.flow),
            Self::SessionForked { from, at, .. } => format!("forked from {from} at {at}"),
            Self::SessionRenamed { title } => format!("titled \"{title}\""),
            Self::SessionClosed { reason } => format!("closed: {reason}"),
            Self::MessageReceived(received) => {
                let images = match received.images.len() {
                    0 => String::new(),
                    1 => " [an image]".to_owned(),
                    several => format!(" [{several} images]"),
                };
                format!("{} user: {}{images}", received.message, words(received.text))
            }
            Self::MessagePosted(posted) => {
                let lane = if posted.lane == super::Lane::Urgent { " (urgent)" } else { "" };
                format!(
                    "{} {} → {} {}{lane}: {}",
                    posted.message,
                    posted.from,
                    posted.to,
                    posted.topic,
                    words(posted.text)
                )
            }
            Self::MessageTaken { message } => format!("{message} taken"),
            Self::TurnStarted { turn, messages, again } => {
                let messages: Vec<String> = messages.iter().map(ToString::to_string).collect();
                let again = again.map(|again| format!(", trying {again} again")).unwrap_or_default();
                format!("{turn} begins with {}{again}", messages.join(", "))
            }
            Self::Said(said) => {
                let by = said.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                format!("said{by}: {}", words(said.text))
            }
            Self::TurnEnded { turn, outcome } => format!("{turn} {}", outcome_line(outcome)),
            Self::CallOpened(opened) => call_line(opened),
            Self::CallDeferred(deferred) => {
                let wish = &deferred.wish;
                let awaited = match deferred.waits_for {
                    NO_CALL => "somebody to make it".to_owned(),
                    call => call.to_string(),
                };
                format!("call of {} for {} waits for {awaited}", wish.role, wish.ask)
            }
            Self::CallResumed { deferred } => format!("waiting call {deferred} goes on"),
            Self::CallDropped { deferred, reason } => format!("waiting call {deferred} dropped: {reason}"),
            Self::CallAnswered(answered) => {
                let tools: Vec<&str> = answered.tool_calls.iter().map(|wish| wish.name.as_str()).collect();
                let tools = if tools.is_empty() { String::new() } else { format!(" [wants {}]", tools.join(", ")) };
                format!("{} answered: {}{tools}", answered.call, words(answered.text))
            }
            Self::CallFailed { call, attempt, failure, next } => {
                format!("{call} try {attempt} failed ({failure}){}", next_line(*next))
            }
            Self::CallMoved { call, from, to } => format!("{call} goes on on {to}, since {from} cannot answer"),
            Self::CallUnknown { call, attempt, next } => {
                format!("{call} try {attempt} was in flight when the process died, maybe billed{}", next_line(*next))
            }
            Self::CallTakenUp { call } => format!("{call} is made here, as it was owed before the fork"),
            Self::CallResolved { call, next } => format!("{call} decided by hand{}", next_line(*next)),
            Self::CallCancelled { call, reason, in_flight } => {
                let billed = if *in_flight { " in flight, maybe billed" } else { "" };
                format!("{call} cancelled{billed}: {reason}")
            }
            Self::CallAnsweredLate { call, .. } => format!("{call} answered too late; kept and not used"),
            Self::ThreadReset { slot, by, reason } => format!("memory of {} reset by {by}: {reason}", slot.role),
            Self::ThreadCompacted(compacted) => format!(
                "{} compacted: {} messages folded, {} → {} tokens{}",
                compacted.thread,
                compacted.folded,
                compacted.tokens_before,
                compacted.tokens_after,
                compacted.by.map(|call| format!(", summary by {call}")).unwrap_or_default()
            ),
            Self::PhaseEntered(entered) => {
                let transition = &entered.transition;
                let warning = transition.warning().map(|warning| format!(" — {warning}")).unwrap_or_default();
                format!("{}: {} → {} by {}{warning}", entered.phase, transition.from, transition.to, transition.by)
            }
            Self::PhaseRefused(refused) => format!("{}: refused: {}", refused.phase, refused.refusal),
            Self::SkipGranted { phase, grant } => format!("{phase}: skip granted: {}", grant.warning()),
            Self::HandoverMade(handover) => {
                format!("{} handover {} ({:?})", handover.id, handover.kind, handover.how).to_lowercase()
            }
            Self::HandoverAsked { kind } => format!("handover {kind} asked for again"),
            Self::ToolOpened(opened) => format!("{} {} {}", opened.run, opened.tool, opened.arguments),
            Self::ToolAnswered { run, outcome, text, .. } => {
                format!("{run} {}: {}", format!("{outcome:?}").to_lowercase(), words(*text))
            }
            Self::RoundDropped { call, reason } => format!("{call} is not gone on with: {reason}"),
            Self::TimerSet { timer, name, at, .. } => format!("{timer} timer {name} set for {}", at.0),
            Self::TimerFired { timer, name } => format!("{timer} timer {name} fired"),
            Self::TimerStopped { timer } => format!("{timer} stopped"),
            Self::WorkLeased { agent, work } => match work {
                Some(work) => format!("{agent} works on {work}"),
                None => format!("{agent} works on nothing"),
            },
            Self::Commanded { command, arguments: serde_json::Value::Null } => format!("asked by hand: {command}"),
            Self::Commanded { command, arguments } => format!("asked by hand: {command} {arguments}"),
            Self::StepRefused { step, why } => format!("refused: {step}: {why}"),
            Self::Fact { kind, value } => format!("{kind} {value}"),
        }
    }
}

fn call_line(opened: &CallOpened) -> String {
    let mut line = format!("{} {}", opened.call, opened.role);
    if let Some(agent) = &opened.agent {
        let _ = write!(line, " {agent}");
    }
    if let Some(peer) = &opened.peer {
        let _ = write!(line, " with {peer}");
    }
    let _ = write!(line, " asked {} on {}", opened.ask, opened.model);
    if let Some(phase) = &opened.phase {
        let _ = write!(line, " in {phase}");
    }
    if let Some(again) = &opened.recomputes {
        let _ = write!(line, ", {} once more", again.call);
        let changed: Vec<String> = again.changed.iter().map(ToString::to_string).collect();
        if !changed.is_empty() {
            let _ = write!(line, " with another {}", changed.join(", "));
        }
        return line;
    }
    match &opened.receipt.thread {
        ThreadUse::Continued(thread) => {
            let _ = write!(line, ", {thread} continued ({} messages)", opened.receipt.carried.entries);
        }
        ThreadUse::Opened { thread, why, .. } => {
            let _ = write!(line, ", {thread} {why}");
        }
    }
    if let Prefix::Broken { by, kept, .. } = &opened.receipt.prefix {
        let _ = write!(line, "; prefix kept {kept}, broken by {by}");
    }
    line
}

fn next_line(next: Next) -> String {
    match next {
        Next::Retry { at } => format!("; again at {}", at.0),
        Next::Ask => "; a person must decide".to_owned(),
        Next::GiveUp => "; given up".to_owned(),
    }
}

fn outcome_line(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Failed { reason } => format!("failed: {reason}"),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Interrupted => "interrupted".to_owned(),
    }
}
