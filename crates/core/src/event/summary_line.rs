//! An event in one line, for people: timelines, tests, logs. Texts are given by whoever has them.

use std::fmt::Write as _;

use super::{CallOpened, Event, NO_CALL, RetryDecision, TurnResult};
use crate::body::TextRef;
use crate::context::{PrefixMatch, ThreadUse};

impl Event {
    /// The event in one line. `words` gives the words of a text, as short or long as they are wanted.
    #[must_use]
    pub fn summary_line(&self, text_of: &dyn Fn(TextRef) -> String) -> String {
        match self {
            Self::SessionOpened(opened) => format!("session {} opened: {}", opened.session, opened.flow),
            Self::SessionForked { from, at_seq: at, .. } => format!("forked from {from} at {at}"),
            Self::SessionRenamed { title } => format!("titled \"{title}\""),
            Self::SessionClosed { reason } => format!("closed: {reason}"),
            Self::UserMessageReceived(received) => {
                let images = match received.images.len() {
                    0 => String::new(),
                    1 => " [an image]".to_owned(),
                    several => format!(" [{several} images]"),
                };
                format!("{} user: {}{images}", received.message, text_of(received.text))
            }
            Self::AgentMessageSent(posted) => {
                let lane = if posted.priority == super::MessagePriority::Urgent { " (urgent)" } else { "" };
                format!(
                    "{} {} → {} {}{lane}: {}",
                    posted.message,
                    posted.from,
                    posted.to,
                    posted.topic,
                    text_of(posted.text)
                )
            }
            Self::AgentMessageReceived { message } => format!("{message} taken"),
            Self::TurnStarted { turn, messages, retry_of: again } => {
                let messages: Vec<String> = messages.iter().map(ToString::to_string).collect();
                let again = again.map(|again| format!(", trying {again} again")).unwrap_or_default();
                format!("{turn} begins with {}{again}", messages.join(", "))
            }
            Self::ReplySent(said) => {
                let by = said.role.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                format!("said{by}: {}", text_of(said.text))
            }
            Self::TurnEnded { turn, outcome } => format!("{turn} {}", describe_turn_result(outcome)),
            Self::CallOpened(opened) => describe_call_opened(opened),
            Self::CallDeferred(deferred) => {
                let wish = &deferred.request;
                let awaited = match deferred.waits_for_call {
                    NO_CALL => "somebody to make it".to_owned(),
                    call => call.to_string(),
                };
                format!("call of {} for {} waits for {awaited}", wish.role, wish.ask)
            }
            Self::DeferredCallResumed { deferred_id: deferred } => format!("waiting call {deferred} goes on"),
            Self::DeferredCallDropped { deferred_id: deferred, reason } => {
                format!("waiting call {deferred} dropped: {reason}")
            }
            Self::CallAnswered(answered) => {
                let tools: Vec<&str> = answered.tool_calls.iter().map(|wish| wish.name.as_str()).collect();
                let tools = if tools.is_empty() { String::new() } else { format!(" [wants {}]", tools.join(", ")) };
                format!("{} answered: {}{tools}", answered.call, text_of(answered.text))
            }
            Self::CallFailed { call, attempt, failure, next } => {
                format!("{call} try {attempt} failed ({failure}){}", describe_retry_decision(*next))
            }
            Self::CallFailedOver { call, from, to } => format!("{call} goes on on {to}, since {from} cannot answer"),
            Self::CallOutcomeUnknown { call, attempt, next } => {
                format!(
                    "{call} try {attempt} was in flight when the process died, maybe billed{}",
                    describe_retry_decision(*next)
                )
            }
            Self::InheritedCallStarted { call } => format!("{call} is made here, as it was owed before the fork"),
            Self::CallResolved { call, next } => format!("{call} decided by hand{}", describe_retry_decision(*next)),
            Self::CallCancelled { call, reason, in_flight } => {
                let billed = if *in_flight { " in flight, maybe billed" } else { "" };
                format!("{call} cancelled{billed}: {reason}")
            }
            Self::CallAnsweredLate { call, .. } => format!("{call} answered too late; kept and not used"),
            Self::ThreadReset { slot, by, reason } => format!("memory of {} reset by {by}: {reason}", slot.role),
            Self::ThreadCompacted(compacted) => format!(
                "{} compacted: {} messages folded, {} → {} tokens{}",
                compacted.thread,
                compacted.folded_entries,
                compacted.tokens_before,
                compacted.tokens_after,
                compacted.summary_call.map(|call| format!(", summary by {call}")).unwrap_or_default()
            ),
            Self::PhaseEntered(entered) => {
                let transition = &entered.transition;
                let warning = transition.warning().map(|warning| format!(" — {warning}")).unwrap_or_default();
                format!("{}: {} → {} by {}{warning}", entered.graph_key, transition.from, transition.to, transition.by)
            }
            Self::PhaseTransitionRefused(refused) => format!("{}: refused: {}", refused.graph_key, refused.refusal),
            Self::SkipGranted { graph_key: phase, grant } => format!("{phase}: skip granted: {}", grant.warning()),
            Self::HandoverCreated(handover) => {
                format!("{} handover {} ({:?})", handover.id, handover.kind, handover.provenance).to_lowercase()
            }
            Self::HandoverRepairRequested { kind } => format!("handover {kind} asked for again"),
            Self::ToolRunOpened(opened) => format!("{} {} {}", opened.run, opened.tool, opened.arguments),
            Self::ToolRunEnded { run, outcome, text, .. } => {
                format!("{run} {}: {}", format!("{outcome:?}").to_lowercase(), text_of(*text))
            }
            Self::ToolRoundDropped { call, reason } => format!("{call} is not gone on with: {reason}"),
            Self::TimerSet { timer, name, fires_at: at, .. } => format!("{timer} timer {name} set for {}", at.0),
            Self::TimerFired { timer, name } => format!("{timer} timer {name} fired"),
            Self::TimerStopped { timer } => format!("{timer} stopped"),
            Self::WorkItemAssigned { agent, work_item: work } => match work {
                Some(work) => format!("{agent} works on {work}"),
                None => format!("{agent} works on nothing"),
            },
            Self::CommandIssued { command, arguments: serde_json::Value::Null } => format!("asked by hand: {command}"),
            Self::CommandIssued { command, arguments } => format!("asked by hand: {command} {arguments}"),
            Self::StepRefused { step, reason: why } => format!("refused: {step}: {why}"),
            Self::FlowFactRecorded { kind, value } => format!("{kind} {value}"),
        }
    }
}

fn describe_call_opened(opened: &CallOpened) -> String {
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
    if let Some(again) = &opened.recomputation {
        let _ = write!(line, ", {} once more", again.call);
        let changed: Vec<String> = again.changed_fragments.iter().map(ToString::to_string).collect();
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
    if let PrefixMatch::Broken { cause: by, kept_tokens: kept, .. } = &opened.receipt.prefix {
        let _ = write!(line, "; prefix kept {kept}, broken by {by}");
    }
    line
}

fn describe_retry_decision(next: RetryDecision) -> String {
    match next {
        RetryDecision::Retry { at } => format!("; again at {}", at.0),
        RetryDecision::AwaitOperator => "; a person must decide".to_owned(),
        RetryDecision::GiveUp => "; given up".to_owned(),
    }
}

fn describe_turn_result(outcome: &TurnResult) -> String {
    match outcome {
        TurnResult::Done => "done".to_owned(),
        TurnResult::Failed { reason } => format!("failed: {reason}"),
        TurnResult::Cancelled => "cancelled".to_owned(),
        TurnResult::Interrupted => "interrupted".to_owned(),
    }
}
