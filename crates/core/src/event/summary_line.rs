//! Describes an event in one line for people: in timelines, tests and logs. The caller supplies the texts.

use std::fmt::Write as _;

use super::{
    AskOutcome, CallOpened, ChildSessionOutcome, Event, NO_CALL, RetryDecision, ToolRunHoldReason, TurnOutcome,
    UnknownToolRunOutcomeResolution,
};
use crate::body::TextRef;
use crate::context::{CallThread, PreviousPromptComparison};
use crate::flow::approval::SessionToolApproval;

impl Event {
    /// Returns the event in one line. `text_of` returns a text, shortened as the caller likes.
    #[must_use]
    pub fn summary_line(&self, text_of: &dyn Fn(TextRef) -> String) -> String {
        match self {
            Self::SessionOpened(opened) => format!("session {} opened with flow {}", opened.session, opened.flow),
            Self::SessionForked { from, at_seq: at, .. } => format!("forked from {from} at event {at}"),
            Self::SubmissionHandled { submission, refusal: None } => format!("submission {submission} handled"),
            Self::SubmissionHandled { submission, refusal: Some(why) } => {
                format!("submission {submission} refused: {why}")
            }
            Self::ChildSpawned(spawned) => {
                format!(
                    "{} started: session {} with flow {} ({})",
                    spawned.child, spawned.session, spawned.flow, spawned.key
                )
            }
            Self::ChildCloseRequested { child, reason } => format!("{child} told to close: {reason}"),
            Self::ChildEnded { child, outcome, .. } => format!("{child} {}", describe_child_outcome(outcome)),
            Self::ChildUsageReported { child, usage } => format!("{child} reported {} late calls", usage.calls),
            Self::ResultSet { .. } => "result set".to_owned(),
            Self::ResultReported => "end reported to the parent session".to_owned(),
            Self::AskSent(sent) => format!("{} asked session {} about {}", sent.ask, sent.to, sent.topic),
            Self::AskEnded { ask, outcome } => format!("{ask} {}", describe_ask_outcome(outcome)),
            Self::AskReceived(received) => {
                format!("{} from session {}: {}", received.ask, received.from, received.topic)
            }
            Self::AskReplied { ask, reply } => format!("{ask} reply: {}", describe_ask_outcome(reply)),
            Self::ReceivedAskDropped { ask, reason } => format!("{ask} dropped: {reason}"),
            Self::ReplyUndelivered { ask } => format!("{ask} reply not delivered: the session no longer exists"),
            Self::ClaimRequested { workspace, name, .. } => {
                format!("claim `{name}` of workspace {workspace} requested")
            }
            Self::ClaimReleased { workspace, name, reason } => {
                format!("claim `{name}` of workspace {workspace} released: {reason}")
            }
            Self::SessionRenamed { title } => format!("renamed to \"{title}\""),
            Self::SessionClosed { reason } => format!("session closed: {reason}"),
            Self::UserMessageReceived(received) => {
                let images = match received.images.len() {
                    0 => String::new(),
                    1 => " [1 image]".to_owned(),
                    several => format!(" [{several} images]"),
                };
                let options = if received.options.is_some() { " [with options]" } else { "" };
                format!("{} user: {}{images}{options}", received.message, text_of(received.text))
            }
            Self::TurnOptionsChanged { turn, .. } => format!("{turn} continues with other options of the client"),
            Self::AgentMessageSent(sent) => {
                let urgent = if sent.priority == super::AgentMessagePriority::Urgent { " (urgent)" } else { "" };
                format!("{} {} → {} {}{urgent}: {}", sent.message, sent.from, sent.to, sent.topic, text_of(sent.text))
            }
            Self::AgentMessageReceived { message } => format!("{message} received"),
            Self::TurnStarted { turn, messages, retry_of } => {
                let messages: Vec<String> = messages.iter().map(ToString::to_string).collect();
                let retry = retry_of.map(|failed| format!(", retrying {failed}")).unwrap_or_default();
                format!("{turn} started with {}{retry}", messages.join(", "))
            }
            Self::ReplySent(reply) => {
                let by = reply.role.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                format!("reply{by}: {}", text_of(reply.text))
            }
            Self::TurnEnded { turn, outcome } => format!("{turn} {}", describe_turn_result(outcome)),
            Self::CallOpened(opened) => describe_call_opened(opened),
            Self::CallDeferred(deferred) => {
                let request = &deferred.request;
                let awaited = match deferred.waits_for_call {
                    NO_CALL => "a client to start it".to_owned(),
                    call => call.to_string(),
                };
                format!("call of {} for {} waits for {awaited}", request.role, request.ask)
            }
            Self::DeferredCallResumed { deferred_id } => format!("deferred call {deferred_id} resumed"),
            Self::DeferredCallDropped { deferred_id, reason } => {
                format!("deferred call {deferred_id} dropped: {reason}")
            }
            Self::CallAnswered(answered) => {
                let tools: Vec<&str> = answered.tool_calls.iter().map(|tool_call| tool_call.name.as_str()).collect();
                let tools = if tools.is_empty() { String::new() } else { format!(" [calls {}]", tools.join(", ")) };
                format!("{} answered: {}{tools}", answered.call, text_of(answered.text))
            }
            Self::CallFailed { call, attempt, failure, next } => {
                format!("{call} attempt {attempt} failed ({failure}){}", describe_retry_decision(*next))
            }
            Self::CallFailedOver { call, from, to } => format!("{call} failed over from {from} to {to}"),
            Self::CallOutcomeUnknown { call, attempt, next } => {
                format!(
                    "{call} attempt {attempt} was in flight when the process died, possibly billed{}",
                    describe_retry_decision(*next)
                )
            }
            Self::InheritedCallStarted { call } => format!("{call} started here; it was pending before the fork"),
            Self::CallResolved { call, next } => {
                format!("{call} resolved by an operator{}", describe_retry_decision(*next))
            }
            Self::CallCancelled { call, reason, in_flight } => {
                let billed = if *in_flight { " in flight, possibly billed" } else { "" };
                format!("{call} cancelled{billed}: {reason}")
            }
            Self::CallAnsweredLate { call, .. } => {
                format!("{call} answered too late; the answer is recorded but not used")
            }
            Self::ThreadReset { slot, by, reason } => format!("thread of {} reset by {by}: {reason}", slot.role),
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
                let warning = transition
                    .describe_skips_or_blocked_exit()
                    .map(|warning| format!(" — {warning}"))
                    .unwrap_or_default();
                format!("{}: {} → {} by {}{warning}", entered.graph_key, transition.from, transition.to, transition.by)
            }
            Self::PhaseTransitionRefused { graph_key, refusal } => format!("{graph_key}: refused: {refusal}"),
            Self::PhaseRoundCounted { graph_key } => format!("{graph_key}: a round was counted"),
            Self::SkipGranted { graph_key, grant } => format!("{graph_key}: skip granted: {grant}"),
            Self::HandoverCreated(handover) => {
                format!("{} handover {} ({:?})", handover.id, handover.kind, handover.provenance).to_lowercase()
            }
            Self::HandoverRepairRequested { kind } => format!("repair of handover {kind} requested"),
            Self::ToolRunOpened(opened) => format!("{} {} {}", opened.run, opened.tool, opened.arguments),
            Self::ToolRunHeld { run, reason: ToolRunHoldReason::Approval, .. } => format!("{run} waits for approval"),
            Self::ToolRunHeld { run, reason: ToolRunHoldReason::UnknownOutcome, .. } => {
                format!("{run} was in progress when the process died; waiting for an operator")
            }
            Self::ToolRunHeld { run, reason: ToolRunHoldReason::ClientResult, .. } => {
                format!("{run} was passed to the client, which runs it")
            }
            Self::ToolRunResolved { run, resolution } => {
                let decision = match resolution {
                    UnknownToolRunOutcomeResolution::RunAgain => "run again",
                    UnknownToolRunOutcomeResolution::Fail => "failed",
                    UnknownToolRunOutcomeResolution::Done => "done",
                };
                format!("{run} resolved by an operator: {decision}")
            }
            Self::ToolRunApproved { run, by, edited_arguments } => {
                let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let edited = edited_arguments.as_ref().map(|edited| format!(" with {edited}")).unwrap_or_default();
                format!("{run} approved{by}{edited}")
            }
            Self::ToolRunDenied { run, reason } if reason.is_empty() => format!("{run} denied"),
            Self::ToolRunDenied { run, reason } => format!("{run} denied: {reason}"),
            Self::ToolApprovalRuleAdded(SessionToolApproval { tool, role: Some(role) }) => {
                format!("{tool} allowed for {role} in this session")
            }
            Self::ToolApprovalRuleAdded(SessionToolApproval { tool, role: None }) => {
                format!("{tool} allowed for the flow in this session")
            }
            Self::ToolRunEnded { run, outcome, text, artifacts, .. } => {
                let mut line = format!("{run} {}: {}", format!("{outcome:?}").to_lowercase(), text_of(*text));
                for artifact in artifacts {
                    let _ = write!(line, " [{}]", artifact.name);
                }
                line
            }
            Self::ToolRoundDropped { call, reason } => format!("tool results of {call} dropped: {reason}"),
            Self::TimerSet { timer, name, fires_at: at, .. } => format!("{timer} timer {name} set for {}", at.0),
            Self::TimerFired { timer, name } => format!("{timer} timer {name} fired"),
            Self::TimerStopped { timer } => format!("{timer} stopped"),
            Self::WorkItemAssigned { agent, work_item: work } => match work {
                Some(work) => format!("{agent} works on {work}"),
                None => format!("{agent} has no work item"),
            },
            Self::CommandIssued { command, arguments: serde_json::Value::Null } => format!("command {command}"),
            Self::CommandIssued { command, arguments } => format!("command {command} {arguments}"),
            Self::StepRefused { step, reason } => format!("step refused: {step}: {reason}"),
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
    if let Some(repeated) = &opened.recomputation {
        let _ = write!(line, ", repeats {}", repeated.call);
        let changed: Vec<String> = repeated.changed_fragments.iter().map(ToString::to_string).collect();
        if !changed.is_empty() {
            let _ = write!(line, " with changed {}", changed.join(", "));
        }
        return line;
    }
    match &opened.receipt.thread {
        CallThread::Continued(thread) => {
            let _ = write!(line, ", {thread} continued ({} messages)", opened.receipt.carried.entries);
        }
        CallThread::Opened { thread, why, .. } => {
            let _ = write!(line, ", {thread} {why}");
        }
    }
    if let PreviousPromptComparison::Broken { cause, kept_tokens, .. } = &opened.receipt.prefix {
        let _ = write!(line, "; prefix broken by {cause} after {kept_tokens} tokens");
    }
    line
}

fn describe_retry_decision(next: RetryDecision) -> String {
    match next {
        RetryDecision::Retry { at } => format!("; retry at {}", at.0),
        RetryDecision::AwaitOperator => "; waiting for an operator".to_owned(),
        RetryDecision::GiveUp => "; given up".to_owned(),
    }
}

fn describe_turn_result(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Done => "done".to_owned(),
        TurnOutcome::Failed { reason } => format!("failed: {reason}"),
        TurnOutcome::Cancelled => "cancelled".to_owned(),
        TurnOutcome::Interrupted => "interrupted".to_owned(),
    }
}

fn describe_child_outcome(outcome: &ChildSessionOutcome) -> String {
    match outcome {
        ChildSessionOutcome::Done { .. } => "ended with a result".to_owned(),
        ChildSessionOutcome::Closed { reason } => format!("closed without a result: {reason}"),
        ChildSessionOutcome::NotOpened { reason } => format!("could not be opened: {reason}"),
        ChildSessionOutcome::TimedOut => "did not end in time".to_owned(),
        ChildSessionOutcome::Deleted => "was deleted".to_owned(),
        ChildSessionOutcome::Detached => "belongs to the original session".to_owned(),
    }
}

fn describe_ask_outcome(outcome: &AskOutcome) -> String {
    match outcome {
        AskOutcome::Answered { .. } => "answered".to_owned(),
        AskOutcome::Refused { reason } => format!("refused: {reason}"),
        AskOutcome::Expired => "expired without a reply".to_owned(),
        AskOutcome::Cancelled { reason } => format!("cancelled: {reason}"),
    }
}
