//! Performs each step of a flow: records an event, or records that the step was refused.

use serde::Serialize;

use super::calls::CallPurpose;
use super::draft::DecisionDraft;
use super::inputs::shorten_to_title;
use super::tool_runs::ToolRequester;
use crate::body::BodyVisibility;
use crate::event::{AgentMessageSent, Event, PhaseStateOwner, ReplySent, ToolRunOpened};
use crate::flow::{FlowStep, NewOrStoredReplyText};
use crate::handover::{Handover, check_handover};
use crate::ids::{AgentName, CallId, HandoverId, MessageId, RoleName, TimerId, ToolRunId};
use crate::limits::{FLOW_VALUE_BYTES_MAX, INBOX_MESSAGES_MAX, MESSAGE_BYTES_MAX, TIMERS_MAX};
use crate::phase::guard::PhaseTransitionProposer;
use crate::phase::state::PhaseProposal;
use crate::prompt::{TEXT_TOOL_CALL_ID, ToolCall};

impl DecisionDraft<'_> {
    pub(crate) fn perform_step(&mut self, step: FlowStep) {
        if let Some(what) = self.describe_step_after_close(&step) {
            self.refuse_step(what, "the session is closed");
            return;
        }
        match step {
            FlowStep::Call(request) => {
                match json_size_error(&request.metadata).or_else(|| json_size_error(&request.output_schema)) {
                    Some(why) => self.refuse_step(format!("call of `{}` for `{}`", request.role, request.ask), why),
                    None => {
                        self.open_or_defer_call(request, CallPurpose::default());
                    }
                }
            }
            FlowStep::Reply { text, role, call } => self.send_reply(text, role, call),
            FlowStep::StartTurn => match self.session().current_turn {
                Some(_) => self.refuse_step("start of a turn", "a turn is running"),
                None => self.start_turn_without_message(),
            },
            FlowStep::EndTurn(outcome) => match self.session().current_turn.as_ref().map(|turn| turn.id) {
                // Pending work of the turn is cancelled.
                Some(_) => self.stop_turn("the turn has ended", outcome),
                None => self.refuse_step("end of turn", "no turn is running"),
            },
            FlowStep::ProposePhase { phase, to, by, note } => {
                self.record_proposal_ruling(phase, &PhaseProposal { to, by, note })
            }
            FlowStep::MakeHandover { kind, document, calls, provenance } => {
                self.record_handover(kind, document, calls, provenance)
            }
            FlowStep::RequestHandover(kind) => match self.spec().handovers.contains_key(&kind) {
                true => self.record_event(Event::HandoverRepairRequested { kind }),
                false => self.refuse_step(format!("handover `{kind}`"), "the flow declares no such kind"),
            },
            FlowStep::RecordFact { kind, value } => match json_size_error(&value) {
                Some(why) => self.refuse_step(format!("fact `{kind}`"), why),
                None => self.record_event(Event::FlowFactRecorded { kind, value }),
            },
            FlowStep::RunTool { tool, arguments, agent } => {
                let turn = self.active_cause_turn();
                let run = ToolRunId(0);
                let run = self.open_tool_run(ToolRunOpened {
                    run,
                    turn,
                    tool,
                    arguments,
                    requested_by: None,
                    agent,
                    phase: None,
                });
                self.hold_if_approval_needed(run, None);
            }
            FlowStep::RunToolFromText { call, role, agent, tool, arguments } => {
                let mut tool_calls = vec![ToolCall { id: TEXT_TOOL_CALL_ID.to_owned(), name: tool, arguments }];
                self.drop_oversized_tool_calls(&mut tool_calls);
                for tool_call in &tool_calls {
                    let requester =
                        ToolRequester { call, turn: self.active_cause_turn(), role: &role, agent: agent.as_ref() };
                    self.open_checked_tool(&requester, tool_call);
                }
            }
            FlowStep::AnswerTool { run, outcome, text } => {
                if self.session().open_tool_runs.contains_key(&run) {
                    self.close_tool_run(run, outcome, text);
                } else {
                    self.refuse_step(format!("answer to {run}"), "that run is not waiting for a result");
                }
            }
            FlowStep::SetTimer { name, after_ms } => self.set_timer(name, after_ms),
            FlowStep::StopTimer { name } => self.stop_timer(&name),
            FlowStep::Send { from, to, priority, topic, text, in_reply_to } => {
                if let Some(why) = self.mail_refusal(&to, &text) {
                    self.refuse_step(format!("message from `{from}` to `{to}`"), why);
                    return;
                }
                let message = MessageId(self.session().last_ids.message.0 + 1);
                let text = self.store_text(text, BodyVisibility::Internal);
                self.record_event(Event::AgentMessageSent(AgentMessageSent {
                    message,
                    from,
                    to,
                    priority,
                    topic,
                    text,
                    in_reply_to,
                }));
            }
            FlowStep::Receive { agent } => match self.session().next_inbox_message(&agent).map(|mail| mail.message) {
                Some(message) => self.record_event(Event::AgentMessageReceived { message }),
                None => self.refuse_step(format!("receiving a message for `{agent}`"), "its inbox is empty"),
            },
            FlowStep::AssignWork { agent, work } => {
                self.record_event(Event::WorkItemAssigned { agent, work_item: work })
            }
            FlowStep::ResetThread { request, reason } => self.reset_thread(&request, reason),
            FlowStep::CancelCall { call, reason } => {
                if self.session().open_calls.contains_key(&call) {
                    self.cancel_call(call, reason);
                } else {
                    self.refuse_step(format!("cancelling {call}"), "it is not open");
                }
            }
            FlowStep::CountRound { phase } => self.count_round(phase),
            FlowStep::EndToolRound { call, reason } => self.end_tool_round(call, reason),
            FlowStep::Spawn(request) => self.spawn_child(request),
            FlowStep::CloseChild { child, reason } => {
                if self.session().open_children.contains_key(&child) {
                    self.request_child_close(child, &reason);
                } else {
                    self.refuse_step(format!("closing {child}"), "it is not open");
                }
            }
            FlowStep::SetResult(result) => match json_size_error(&result) {
                Some(why) => self.refuse_step("result", why),
                None => self.record_event(Event::ResultSet { result }),
            },
            FlowStep::Ask { to, topic, body, wait_ms } => self.send_ask(to, topic, body, wait_ms),
            FlowStep::Tell { to, topic, body } => self.tell_session(to, topic, body),
            FlowStep::AnswerAsk { ask, reply } => self.answer_ask(ask, reply),
            FlowStep::Claim { workspace, name, wait_ms } => self.request_workspace_claim(workspace, name, wait_ms),
            FlowStep::ReleaseClaim { reason } => {
                if self.session().claim.is_some() {
                    self.release_workspace_claim(&reason);
                } else {
                    self.refuse_step("release of the claim", "the session has none");
                }
            }
            FlowStep::SetTitle(title) => self.record_event(Event::SessionRenamed { title: shorten_to_title(&title) }),
            FlowStep::CloseSession { reason } => {
                if self.session().closed_reason.is_none() {
                    self.record_event(Event::SessionClosed { reason });
                }
            }
        }
    }

    /// Describes a step that a flow may no longer take once its session is closed and the last turn has ended.
    fn describe_step_after_close(&self, step: &FlowStep) -> Option<String> {
        let session = self.session();
        if session.closed_reason.is_none() || session.current_turn.is_some() {
            return None;
        }
        match step {
            FlowStep::Call(request) => Some(format!("call of `{}` for `{}`", request.role, request.ask)),
            FlowStep::RunTool { tool, .. } | FlowStep::RunToolFromText { tool, .. } => Some(format!("run of `{tool}`")),
            FlowStep::SetTimer { name, .. } => Some(format!("timer `{name}`")),
            FlowStep::Spawn(request) => Some(format!("child `{}`", request.key)),
            FlowStep::Ask { to, topic, .. } => Some(format!("question about `{topic}` to `{to}`")),
            FlowStep::Claim { name, .. } => Some(format!("claim `{name}`")),
            FlowStep::StartTurn => Some("start of a turn".to_owned()),
            _ => None,
        }
    }

    fn record_handover(
        &mut self,
        kind: crate::ids::HandoverKind,
        document: crate::handover::HandoverDocument,
        calls: Vec<CallId>,
        provenance: crate::handover::HandoverProvenance,
    ) {
        let Some(schema) = self.spec().handovers.get(&kind) else {
            self.refuse_step(format!("handover `{kind}`"), "the flow declares no such kind");
            return;
        };
        let checked = check_handover(schema, document);
        if let Some(why) = json_size_error(&checked.document) {
            self.refuse_step(format!("handover `{kind}`"), why);
            return;
        }
        let missing = checked.missing_fields.iter().map(|name| format!("`{name}` is missing"));
        let complaints = checked.complaints.iter().cloned().chain(missing).collect();
        let id = HandoverId(self.session().last_ids.handover.0 + 1);
        let at = self.env.now;
        let document = checked.document;
        let owned_graph = self.cause_graph.clone().filter(|key| key.owner != PhaseStateOwner::Session);
        self.record_event(Event::HandoverCreated(Handover {
            id,
            kind,
            owned_graph,
            document,
            source_calls: calls,
            provenance,
            complaints,
            created_at: at,
        }));
    }

    fn set_timer(&mut self, name: String, after_ms: u64) {
        let session = self.session();
        let replaces = session.timers.values().any(|timer| timer.name == name);
        if session.timers.len() >= TIMERS_MAX && !replaces {
            self.refuse_step(
                format!("timer `{name}`"),
                format!("{TIMERS_MAX} timers are already running, which is the maximum"),
            );
            return;
        }
        let timer = TimerId(session.last_ids.timer.0 + 1);
        let at = self.env.now.plus_ms(after_ms);
        let turn = self.active_cause_turn();
        self.record_event(Event::TimerSet { timer, name, fires_at: at, turn });
    }

    fn stop_timer(&mut self, name: &str) {
        let running = self.session().timers.iter().find(|(_, timer)| timer.name == name).map(|(id, _)| *id);
        if let Some(timer) = running {
            self.record_event(Event::TimerStopped { timer });
        }
    }

    fn send_reply(&mut self, text: NewOrStoredReplyText, role: Option<RoleName>, call: Option<CallId>) {
        let text = match text {
            NewOrStoredReplyText::New(text) => self.store_text(text, BodyVisibility::Conversation),
            NewOrStoredReplyText::Stored(text) => text,
        };
        let turn = self.active_cause_turn();
        self.record_event(Event::ReplySent(ReplySent { turn, text, role, call }));
    }

    fn mail_refusal(&self, to: &AgentName, text: &str) -> Option<String> {
        if text.len() > MESSAGE_BYTES_MAX {
            return Some(format!("it has {} bytes, but at most {MESSAGE_BYTES_MAX} are allowed", text.len()));
        }
        let waiting = self.session().inboxes.get(to).map_or(0, Vec::len);
        (waiting >= INBOX_MESSAGES_MAX)
            .then(|| format!("{waiting} messages are already in the inbox, which is the maximum"))
    }

    fn reset_thread(&mut self, request: &crate::event::CallRequest, reason: String) {
        let Some(role) = self.spec().roles.get(&request.role) else {
            self.refuse_step(format!("reset of `{}`", request.role), "the flow has no such role");
            return;
        };
        let slot = self.resolve_call_target(role, request, CallId(0), CallPurpose::default()).slot;
        self.record_event(Event::ThreadReset { slot, by: PhaseTransitionProposer::Engine, reason });
    }
}

/// Returns why a value is too large for the journal, if it is.
pub(super) fn json_size_error(value: &impl Serialize) -> Option<String> {
    let mut bytes = WrittenByteCounter(0);
    // Writing to a counter cannot fail.
    let _ = serde_json::to_writer(&mut bytes, value);
    let bytes = bytes.0;
    (bytes > FLOW_VALUE_BYTES_MAX)
        .then(|| format!("it has {bytes} bytes of JSON, but at most {FLOW_VALUE_BYTES_MAX} are allowed"))
}

/// Counts the bytes that are written.
struct WrittenByteCounter(usize);

impl std::io::Write for WrittenByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
