//! What happened in a conversation: its journal, and the texts that the scores need.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{CallAnswered, CallOpened, Event, RecordedEvent, ToolRunOpened, ToolRunOutcome, TurnOutcome};
use segue_core::flow::{FlowSpec, RoleAnswerVisibility};
use segue_core::ids::{CallId, RoleName, Seq, ToolRunId, TurnId};

use crate::conversation::EvalConversationSpec;

/// A conversation that was held, as the journal recorded it.
#[derive(Debug, Clone)]
pub struct EvalConversationRecord {
    pub conversation: EvalConversationSpec,
    /// The roles whose answers the user sees.
    pub visible_roles: Vec<RoleName>,
    /// The names of all fields of the flow's handovers.
    pub handover_fields: Vec<String>,
    /// The user's messages.
    pub messages: Vec<String>,
    pub events: Vec<RecordedEvent>,
    pub texts: BTreeMap<BodyId, Arc<str>>,
    /// The names of all references of the workspace's git repository after the conversation.
    pub references: Vec<String>,
    /// How long the conversation took.
    pub duration_ms: u64,
    /// Why the conversation ended early.
    pub failure: Option<String>,
}

/// A turn of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct EvalConversationTurn<'r> {
    /// The number of the turn, from 1.
    pub number: usize,
    pub message: &'r str,
    pub is_done: bool,
    pub replies: Vec<EvalConversationReply<'r>>,
}

/// A reply that the user saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvalConversationReply<'r> {
    pub text: &'r str,
    /// The call that wrote it; `None` for a text of the flow itself.
    pub call: Option<CallId>,
}

/// A call and its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredCall<'r> {
    pub opened: &'r CallOpened,
    pub answered: &'r CallAnswered,
}

/// A tool run and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedToolRun<'r> {
    /// The sequence number of its end.
    pub seq: Seq,
    pub opened: &'r ToolRunOpened,
    pub outcome: ToolRunOutcome,
    pub value: Option<&'r serde_json::Value>,
}

impl EvalConversationRecord {
    /// Creates an empty record of a conversation in a flow.
    #[must_use]
    pub fn new(conversation: EvalConversationSpec, spec: &FlowSpec) -> Self {
        let is_visible =
            |role: &&segue_core::flow::RoleSpec| matches!(role.visibility, RoleAnswerVisibility::User { .. });
        let visible_roles = spec.roles.values().filter(is_visible).map(|role| role.name.clone()).collect();
        let fields = spec.handovers.values().flat_map(|handover| &handover.fields).map(|field| field.name.clone());
        Self {
            conversation,
            visible_roles,
            handover_fields: fields.collect(),
            messages: Vec::new(),
            events: Vec::new(),
            texts: BTreeMap::new(),
            references: Vec::new(),
            duration_ms: 0,
            failure: None,
        }
    }

    /// Returns the texts that the scores need: replies, answers, results of tools, and instructions.
    #[must_use]
    pub fn needed_texts(events: &[RecordedEvent]) -> Vec<BodyId> {
        let mut needed: Vec<BodyId> = Vec::new();
        for recorded in events {
            match &recorded.event {
                Event::ReplySent(reply) => needed.push(reply.text.body),
                Event::CallAnswered(answered) => needed.push(answered.text.body),
                Event::ToolRunEnded { text, .. } => needed.push(text.body),
                Event::CallOpened(opened) => {
                    let fragments = opened.receipt.opening.iter().chain(&opened.receipt.ask);
                    needed.extend(fragments.filter_map(|fragment| fragment.text).map(|text| text.body));
                }
                _ => {}
            }
        }
        needed.sort_unstable_by_key(|id| id.0);
        needed.dedup();
        needed
    }

    pub(crate) fn text(&self, text: TextRef) -> &str {
        self.texts.get(&text.body).map_or("", |text| text)
    }

    /// Returns the turns in order.
    pub(crate) fn turns(&self) -> Vec<EvalConversationTurn<'_>> {
        let mut turns: Vec<EvalConversationTurn<'_>> = Vec::new();
        for recorded in &self.events {
            match &recorded.event {
                Event::TurnStarted { .. } => {
                    let message = self.messages.get(turns.len()).map_or("", String::as_str);
                    let number = turns.len() + 1;
                    turns.push(EvalConversationTurn { number, message, is_done: false, replies: Vec::new() });
                }
                Event::ReplySent(reply) => {
                    if let Some(turn) = turns.last_mut() {
                        turn.replies.push(EvalConversationReply { text: self.text(reply.text), call: reply.call });
                    }
                }
                Event::TurnEnded { outcome, .. } => {
                    if let Some(turn) = turns.last_mut() {
                        turn.is_done = *outcome == TurnOutcome::Done;
                    }
                }
                _ => {}
            }
        }
        turns
    }

    /// Returns the events of the n-th turn and all later ones.
    pub(crate) fn events_from_turn(&self, number: usize) -> impl Iterator<Item = &RecordedEvent> {
        let is_start = |recorded: &&RecordedEvent| matches!(recorded.event, Event::TurnStarted { .. });
        let starts: Vec<usize> =
            self.events.iter().enumerate().filter(|(_, event)| is_start(event)).map(|(index, _)| index).collect();
        let first = number.checked_sub(1).and_then(|index| starts.get(index)).copied().unwrap_or(self.events.len());
        self.events[if number <= 1 { 0 } else { first }..].iter()
    }

    /// Returns the calls that were answered, in the order of the answers. Recomputations do not count.
    pub(crate) fn answered_calls(&self) -> Vec<AnsweredCall<'_>> {
        let mut open: BTreeMap<CallId, &CallOpened> = BTreeMap::new();
        let mut calls = Vec::new();
        for recorded in &self.events {
            match &recorded.event {
                Event::CallOpened(opened) if opened.recomputation.is_none() => {
                    open.insert(opened.call, opened);
                }
                Event::CallAnswered(answered) => {
                    if let Some(opened) = open.get(&answered.call) {
                        calls.push(AnsweredCall { opened, answered });
                    }
                }
                _ => {}
            }
        }
        calls
    }

    /// Returns the kinds and values of the facts that the flow recorded.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (&str, &serde_json::Value)> {
        self.events.iter().filter_map(|recorded| match &recorded.event {
            Event::FlowFactRecorded { kind, value } => Some((kind.as_str(), value)),
            _ => None,
        })
    }

    /// Returns the role that is responsible for what the user sees: the one that the flow's measures name, or the first
    /// one whose answers the user sees.
    pub(crate) fn visible_role(&self) -> &str {
        let named = crate::score::responsible_role(self.conversation.flow.as_str());
        named.unwrap_or_else(|| self.visible_roles.first().map_or("", RoleName::as_str))
    }

    /// Returns whether the flow is defined by a file of the user.
    pub(crate) fn is_defined_in_a_file(&self) -> bool {
        self.events.iter().any(|recorded| match &recorded.event {
            Event::SessionOpened(opened) => opened.flow_definition.is_some(),
            _ => false,
        })
    }

    /// Returns the tool runs that have ended, in the order of their ends.
    pub(crate) fn ended_tool_runs(&self) -> Vec<EndedToolRun<'_>> {
        let mut open: BTreeMap<ToolRunId, &ToolRunOpened> = BTreeMap::new();
        let mut runs = Vec::new();
        for recorded in &self.events {
            match &recorded.event {
                Event::ToolRunOpened(opened) => {
                    open.insert(opened.run, opened);
                }
                Event::ToolRunEnded { run, outcome, value, .. } => {
                    if let Some(opened) = open.get(run) {
                        let (seq, outcome) = (recorded.seq, *outcome);
                        runs.push(EndedToolRun { seq, opened, outcome, value: value.as_ref() });
                    }
                }
                _ => {}
            }
        }
        runs
    }
}

/// Returns the number of a turn as the flow counts it.
pub(crate) fn turn_number(turn: TurnId) -> u64 {
    u64::from(turn.0)
}
