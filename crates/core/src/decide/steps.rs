//! What each of a flow's steps comes to: an event, or a refusal that is an event too.

use serde::Serialize;

use super::calls::Errand;
use super::draft::Draft;
use super::inputs::shorten;
use crate::body::BodyKind;
use crate::event::{Event, MessagePosted, Said, ToolOpened};
use crate::flow::{Speech, Step};
use crate::handover::{Handover, check};
use crate::ids::{AgentName, CallId, HandoverId, MessageId, RoleName, TimerId, ToolRunId};
use crate::limits::{FACT_BYTES_MAX, INBOX_MESSAGES_MAX, MESSAGE_BYTES_MAX, TIMERS_MAX};
use crate::phase::guard::Proposer;

impl Draft<'_> {
    pub fn perform(&mut self, step: Step) {
        if let Some(what) = self.too_late(&step) {
            self.refuse_step(what, "the session is closed");
            return;
        }
        match step {
            Step::Call(wish) => match too_big(&wish.note) {
                Some(why) => self.refuse_step(format!("call of `{}` for `{}`", wish.role, wish.ask), why),
                None => {
                    self.call(wish, Errand::default());
                }
            },
            Step::Say { text, by, call } => self.say(text, by, call),
            Step::EndTurn(outcome) => match self.session().turn.as_ref().map(|turn| turn.id) {
                // What is still owed for the turn is not wanted any more.
                Some(_) => self.stop_turn("the turn has ended", outcome),
                None => self.refuse_step("end of turn", "no turn is running"),
            },
            Step::Propose { phase, proposal } => self.propose(phase, &proposal),
            Step::Hand { kind, document, calls, how } => self.hand(kind, document, calls, how),
            Step::AskHandover(kind) => match self.spec().handovers.contains_key(&kind) {
                true => self.record(Event::HandoverAsked { kind }),
                false => self.refuse_step(format!("handover `{kind}`"), "the flow declares no such kind"),
            },
            Step::Note { kind, value } => match too_big(&value) {
                Some(why) => self.refuse_step(format!("fact `{kind}`"), why),
                None => self.record(Event::Fact { kind, value }),
            },
            Step::RunTool { tool, arguments, agent } => {
                let turn = self.turn();
                let run = ToolRunId(0);
                self.open_tool(ToolOpened { run, turn, tool, arguments, wish: None, agent, phase: None });
            }
            Step::AnswerTool { run, outcome, text } => {
                if self.session().tools.contains_key(&run) {
                    self.close_tool(run, outcome, text);
                } else {
                    self.refuse_step(format!("answer to {run}"), "that run is not waiting for a result");
                }
            }
            Step::SetTimer { name, after_ms } => self.set_timer(name, after_ms),
            Step::StopTimer { name } => self.stop_timer(&name),
            Step::Post { from, to, lane, topic, text, answers } => {
                if let Some(why) = self.cannot_post(&to, &text) {
                    self.refuse_step(format!("message from `{from}` to `{to}`"), why);
                    return;
                }
                let message = MessageId(self.session().last.message.0 + 1);
                let text = self.store(text, BodyKind::Inner);
                self.record(Event::MessagePosted(MessagePosted { message, from, to, lane, topic, text, answers }));
            }
            Step::Take { agent } => match self.session().next_mail(&agent).map(|mail| mail.message) {
                Some(message) => self.record(Event::MessageTaken { message }),
                None => self.refuse_step(format!("taking a message for `{agent}`"), "its inbox is empty"),
            },
            Step::Lease { agent, work } => self.record(Event::WorkLeased { agent, work }),
            Step::Forget { wish, reason } => self.forget(&wish, reason),
            Step::Cancel { call, reason } => {
                if self.session().calls.contains_key(&call) {
                    self.cancel(call, reason);
                } else {
                    self.refuse_step(format!("cancelling {call}"), "it is not open");
                }
            }
            Step::Title(title) => self.record(Event::SessionRenamed { title: shorten(&title) }),
            Step::Close { reason } => {
                if self.session().closed.is_none() {
                    self.record(Event::SessionClosed { reason });
                }
            }
        }
    }

    /// What a flow can no longer begin once its session is closed and the last turn is over.
    fn too_late(&self, step: &Step) -> Option<String> {
        let session = self.session();
        if session.closed.is_none() || session.turn.is_some() {
            return None;
        }
        match step {
            Step::Call(wish) => Some(format!("call of `{}` for `{}`", wish.role, wish.ask)),
            Step::RunTool { tool, .. } => Some(format!("run of `{tool}`")),
            Step::SetTimer { name, .. } => Some(format!("timer `{name}`")),
            _ => None,
        }
    }

    fn hand(
        &mut self,
        kind: crate::ids::HandoverKind,
        document: crate::handover::Document,
        calls: Vec<CallId>,
        how: crate::handover::Provenance,
    ) {
        let Some(schema) = self.spec().handovers.get(&kind) else {
            self.refuse_step(format!("handover `{kind}`"), "the flow declares no such kind");
            return;
        };
        let checked = check(schema, document);
        if let Some(why) = too_big(&checked.document) {
            self.refuse_step(format!("handover `{kind}`"), why);
            return;
        }
        let missing = checked.missing.iter().map(|name| format!("`{name}` is missing"));
        let complaints = checked.complaints.iter().cloned().chain(missing).collect();
        let id = HandoverId(self.session().last.handover.0 + 1);
        let at = self.env.now;
        let document = checked.document;
        self.record(Event::HandoverMade(Handover { id, kind, document, calls, how, complaints, at }));
    }

    fn set_timer(&mut self, name: String, after_ms: u64) {
        let session = self.session();
        let replaces = session.timers.values().any(|timer| timer.name == name);
        if session.timers.len() >= TIMERS_MAX && !replaces {
            self.refuse_step(
                format!("timer `{name}`"),
                format!("{TIMERS_MAX} timers run already, the most a session may have"),
            );
            return;
        }
        let timer = TimerId(session.last.timer.0 + 1);
        let at = self.env.now.after(after_ms);
        let turn = self.turn();
        self.record(Event::TimerSet { timer, name, at, turn });
    }

    fn stop_timer(&mut self, name: &str) {
        let running = self.session().timers.iter().find(|(_, timer)| timer.name == name).map(|(id, _)| *id);
        if let Some(timer) = running {
            self.record(Event::TimerStopped { timer });
        }
    }

    fn say(&mut self, text: Speech, by: Option<RoleName>, call: Option<CallId>) {
        let text = match text {
            Speech::New(text) => self.store(text, BodyKind::Said),
            Speech::Stored(text) => text,
        };
        let turn = self.turn();
        self.record(Event::Said(Said { turn, text, by, call }));
    }

    fn cannot_post(&self, to: &AgentName, text: &str) -> Option<String> {
        if text.len() > MESSAGE_BYTES_MAX {
            return Some(format!("it has {} bytes; at most {MESSAGE_BYTES_MAX} are taken", text.len()));
        }
        let waiting = self.session().inboxes.get(to).map_or(0, Vec::len);
        (waiting >= INBOX_MESSAGES_MAX)
            .then(|| format!("{waiting} messages wait there already, the most an inbox takes"))
    }

    fn forget(&mut self, wish: &crate::event::CallWish, reason: String) {
        let Some(role) = self.spec().roles.get(&wish.role) else {
            self.refuse_step(format!("reset of `{}`", wish.role), "the flow has no such role");
            return;
        };
        let slot = self.bearing(role, wish, CallId(0), Errand::default()).slot;
        self.record(Event::ThreadReset { slot, by: Proposer::Engine, reason });
    }
}

/// Why a value is not taken into the journal, if it is not.
pub(super) fn too_big(value: &impl Serialize) -> Option<String> {
    let mut bytes = Bytes(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut bytes, value);
    let bytes = bytes.0;
    (bytes > FACT_BYTES_MAX).then(|| format!("it has {bytes} bytes of JSON; at most {FACT_BYTES_MAX} are taken"))
}

/// Counts what is written.
struct Bytes(usize);

impl std::io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
