//! Renders a journal as a timeline: the messages, replies, calls, phases and refusals of each turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::TextRef;
use segue_core::event::{CallAnswered, CallOpened, Event, RecordedEvent, TurnOutcome, UsageSource};
use segue_core::flow::{DynFlow, FactDisplay};
use segue_core::ids::MessageId;
use segue_core::session::SessionState;

use crate::journal_pager::JournalTexts;
use crate::print::text::{sanitize_for_terminal, to_single_line, wrap_lines};
use crate::print::{CliOutputCapabilities, number_format};

/// How much of a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownTextLength {
    /// An excerpt of the beginning.
    Short,
    Full,
}

/// Width of the column with the speaker's name.
const SPEAKER_COLUMNS: usize = 12;

/// Renders events one after the other.
pub(crate) struct Timeline {
    screen: CliOutputCapabilities,
    length: ShownTextLength,
    flow: Arc<dyn DynFlow>,
    /// The session after the last event, which the flow needs to describe its facts.
    state: SessionState,
    /// Rendered messages that no turn has started with yet.
    queued_messages: BTreeMap<MessageId, String>,
}

impl Timeline {
    pub(crate) fn new(screen: CliOutputCapabilities, length: ShownTextLength, flow: Arc<dyn DynFlow>) -> Self {
        let state = SessionState::new(&*flow);
        Self { screen, length, flow, state, queued_messages: BTreeMap::new() }
    }

    /// Looks up every text that [`Timeline::add_event`] will need for an event.
    pub(crate) fn request_texts(event: &RecordedEvent, lookup: &dyn Fn(TextRef) -> String) {
        match &event.event {
            // The text of an answer is shown with the reply.
            Event::CallAnswered(_) => {}
            other => drop(other.summary_line(lookup)),
        }
    }

    /// Renders one event and appends it to `out`.
    pub(crate) fn add_event(&mut self, event: &RecordedEvent, texts: &JournalTexts, out: &mut String) {
        let paint = self.screen.paint;
        self.state.apply(&*self.flow, event);
        match &event.event {
            // The heading shows these.
            Event::SessionOpened(_) | Event::SessionRenamed { .. } => {}
            Event::UserMessageReceived(received) => {
                let name = format!("{} user", received.message);
                let mut shown = String::new();
                self.write_message(&paint.bold(pad_name(&name)), received.text, texts, &mut shown);
                self.queued_messages.insert(received.message, shown);
            }
            Event::ReplySent(reply) => {
                let name = reply.role.as_ref().map_or("segue", |role| role.as_str());
                self.write_message(&paint.highlight(pad_name(name)), reply.text, texts, out);
            }
            Event::TurnStarted { turn, messages, retry_of } => {
                let at = number_format::format_time_of_day(event.at);
                let retry = retry_of.map(|failed| format!(", retry of {failed}")).unwrap_or_default();
                out.push_str(&format!("\n{} {}\n", paint.bold(turn), paint.dim(format!("· {at}{retry}"))));
                messages
                    .iter()
                    .filter_map(|message| self.queued_messages.remove(message))
                    .for_each(|shown| out.push_str(&shown));
            }
            Event::TurnEnded { turn, outcome } => match outcome {
                TurnOutcome::Done => {}
                TurnOutcome::Failed { reason } => {
                    self.write_line(&paint.error(format!("{turn} failed: {}", to_single_line(reason))), out)
                }
                TurnOutcome::Cancelled => self.write_line(&paint.warning(format!("{turn} was cancelled")), out),
                TurnOutcome::Interrupted => self.write_line(&paint.warning(format!("{turn} was interrupted")), out),
            },
            Event::CallOpened(opened) => self.write_line(&self.call_line(event, opened), out),
            Event::CallAnswered(answered) => self.write_line(&paint.dim(answer_line(answered)), out),
            Event::PhaseTransitionRefused { .. }
            | Event::StepRefused { .. }
            | Event::CallFailed { .. }
            | Event::CallFailedOver { .. }
            | Event::CallOutcomeUnknown { .. } => {
                self.write_line(&paint.warning(self.event_line(event, texts)), out);
            }
            Event::FlowFactRecorded { kind, value } => match self.flow.describe_fact(&self.state.flow, kind, value) {
                FactDisplay::Hidden => {}
                FactDisplay::Raw => self.write_line(&self.event_line(event, texts), out),
                FactDisplay::Detail(text) | FactDisplay::Notice(text) => {
                    text.lines().for_each(|line| self.write_line(&sanitize_for_terminal(line), out));
                }
            },
            _ => self.write_line(&self.event_line(event, texts), out),
        }
    }

    /// Appends the messages that are still queued.
    pub(crate) fn finish(self, out: &mut String) {
        if !self.queued_messages.is_empty() {
            out.push_str(&format!("\n{}\n", self.screen.paint.bold("queued")));
            self.queued_messages.into_values().for_each(|shown| out.push_str(&shown));
        }
    }

    fn call_line(&self, event: &RecordedEvent, opened: &CallOpened) -> String {
        let line = event.event.summary_line(&|_| String::new());
        let line = line.strip_prefix(&opened.call.to_string()).unwrap_or(&line).trim_start();
        let tokens = number_format::format_count(u64::from(opened.receipt.tokens));
        format!("{} {}; {tokens} tokens", self.screen.paint.highlight(opened.call), to_single_line(line))
    }

    fn event_line(&self, event: &RecordedEvent, texts: &JournalTexts) -> String {
        to_single_line(&number_format::format_timestamps_in_line(
            &event.event.summary_line(&|text| texts.excerpt(text)),
        ))
    }

    fn write_message(&self, name: &str, text: TextRef, texts: &JournalTexts, out: &mut String) {
        let columns = self.screen.width.saturating_sub(SPEAKER_COLUMNS + 3).max(20);
        let (text, height_max) = match self.length {
            ShownTextLength::Short => (texts.excerpt(text), 3),
            ShownTextLength::Full => (texts.sanitized_text(text), usize::MAX),
        };
        for (index, line) in wrap_lines(&text, columns).into_iter().take(height_max).enumerate() {
            let name = if index == 0 { name.to_owned() } else { " ".repeat(SPEAKER_COLUMNS) };
            out.push_str(format!("  {name} {line}").trim_end());
            out.push('\n');
        }
    }

    fn write_line(&self, text: &str, out: &mut String) {
        out.push_str(&format!("  {text}\n"));
    }
}

fn pad_name(name: &str) -> String {
    format!("{name:<SPEAKER_COLUMNS$}")
}

/// Describes the duration, tokens, cost and tool calls of an answer on one line.
fn answer_line(answered: &CallAnswered) -> String {
    let usage = answered.usage;
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let cached =
        if usage.cached_tokens > 0 { format!(", {} cached", count(usage.cached_tokens)) } else { String::new() };
    let estimated = if answered.usage_source == UsageSource::Estimated { ", estimated" } else { "" };
    let tools: Vec<&str> = answered.tool_calls.iter().map(|tool_call| tool_call.name.as_str()).collect();
    let tools = if tools.is_empty() { String::new() } else { format!(", calls {}", tools.join(", ")) };
    format!(
        "{} answered in {}: {} in, {} out{cached}{estimated} · {}{tools}",
        answered.call,
        number_format::format_duration(answered.duration_ms),
        count(usage.input_tokens),
        count(usage.output_tokens),
        number_format::format_cost(answered.cost_microusd)
    )
}
