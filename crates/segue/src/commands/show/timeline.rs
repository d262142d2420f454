//! A journal as a story: who said what in which turn, which calls it took, what was refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::Text;
use segue_core::event::{CallAnswered, CallOpened, CountedBy, Event, Outcome, Recorded};
use segue_core::flow::{Rules, Telling};
use segue_core::ids::MessageId;
use segue_core::session::State;

use crate::journal::Words;
use crate::print::text::{harmless, one_line, wrapped};
use crate::print::{Screen, amount};

/// How much of a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Its beginning, on one line.
    Short,
    /// All of it.
    Full,
}

/// Columns of the name before what somebody says.
const NAME_COLUMNS: usize = 12;

/// Writes the story, event by event.
pub struct Timeline {
    screen: Screen,
    length: Length,
    rules: Arc<dyn Rules>,
    /// The session as it stood, for a flow that tells its facts by it.
    state: State,
    /// Messages that no turn has taken yet, as they will be shown.
    waiting: BTreeMap<MessageId, String>,
}

impl Timeline {
    pub fn new(screen: Screen, length: Length, rules: Arc<dyn Rules>) -> Self {
        let state = State::fresh(&*rules);
        Self { screen, length, rules, state, waiting: BTreeMap::new() }
    }

    /// Asks for the words that [`Timeline::add`] will want.
    pub fn ask_words(event: &Recorded, words: &dyn Fn(Text) -> String) {
        match &event.event {
            // What a model answered is shown when it is said.
            Event::CallAnswered(_) => {}
            other => drop(other.line(words)),
        }
    }

    /// Writes one event.
    pub fn add(&mut self, event: &Recorded, words: &Words, out: &mut String) {
        let paint = self.screen.paint;
        self.state.apply(&*self.rules, event);
        match &event.event {
            // The heading tells these.
            Event::SessionOpened(_) | Event::SessionRenamed { .. } => {}
            Event::MessageReceived(received) => {
                let name = format!("{} user", received.message);
                let mut shown = String::new();
                self.speech(&paint.bold(pad(&name)), received.text, words, &mut shown);
                self.waiting.insert(received.message, shown);
            }
            Event::Said(said) => {
                let name = said.by.as_ref().map_or("segue", |by| by.as_str());
                self.speech(&paint.name(pad(name)), said.text, words, out);
            }
            Event::TurnStarted { turn, messages, again } => {
                let at = amount::time_of_day(event.at);
                let again = again.map(|again| format!(", trying {again} again")).unwrap_or_default();
                out.push_str(&format!("\n{} {}\n", paint.bold(turn), paint.dim(format!("· {at}{again}"))));
                messages
                    .iter()
                    .filter_map(|message| self.waiting.remove(message))
                    .for_each(|shown| out.push_str(&shown));
            }
            Event::TurnEnded { turn, outcome } => match outcome {
                Outcome::Done => {}
                Outcome::Failed { reason } => {
                    self.line(&paint.bad(format!("{turn} failed: {}", one_line(reason))), out)
                }
                Outcome::Cancelled => self.line(&paint.warn(format!("{turn} was cancelled")), out),
                Outcome::Interrupted => self.line(&paint.warn(format!("{turn} was interrupted")), out),
            },
            Event::CallOpened(opened) => self.line(&self.call(event, opened), out),
            Event::CallAnswered(answered) => self.line(&paint.dim(answer(answered)), out),
            Event::PhaseRefused(_)
            | Event::StepRefused { .. }
            | Event::CallFailed { .. }
            | Event::CallMoved { .. }
            | Event::CallUnknown { .. } => {
                self.line(&paint.warn(self.plain(event, words)), out);
            }
            Event::Fact { kind, value } => match self.rules.tell(&self.state.flow, kind, value) {
                Telling::Nothing => {}
                Telling::AsItStands => self.line(&self.plain(event, words), out),
                Telling::Detail(text) | Telling::News(text) => {
                    text.lines().for_each(|line| self.line(&harmless(line), out));
                }
            },
            _ => self.line(&self.plain(event, words), out),
        }
    }

    /// Writes what is left over: messages that wait for their turn.
    pub fn finish(self, out: &mut String) {
        if !self.waiting.is_empty() {
            out.push_str(&format!("\n{}\n", self.screen.paint.bold("waiting")));
            self.waiting.into_values().for_each(|shown| out.push_str(&shown));
        }
    }

    fn call(&self, event: &Recorded, opened: &CallOpened) -> String {
        let line = event.event.line(&|_| String::new());
        let line = line.strip_prefix(&opened.call.to_string()).unwrap_or(&line).trim_start();
        let tokens = amount::count(u64::from(opened.receipt.tokens));
        format!("{} {}; {tokens} tokens", self.screen.paint.name(opened.call), one_line(line))
    }

    fn plain(&self, event: &Recorded, words: &Words) -> String {
        one_line(&amount::timely(&event.event.line(&|text| words.short(text))))
    }

    fn speech(&self, name: &str, text: Text, words: &Words, out: &mut String) {
        let columns = self.screen.width.saturating_sub(NAME_COLUMNS + 3).max(20);
        let (text, height_max) = match self.length {
            Length::Short => (words.short(text), 3),
            Length::Full => (words.full(text), usize::MAX),
        };
        for (place, line) in wrapped(&text, columns).into_iter().take(height_max).enumerate() {
            let name = if place == 0 { name.to_owned() } else { " ".repeat(NAME_COLUMNS) };
            out.push_str(format!("  {name} {line}").trim_end());
            out.push('\n');
        }
    }

    fn line(&self, text: &str, out: &mut String) {
        out.push_str(&format!("  {text}\n"));
    }
}

fn pad(name: &str) -> String {
    format!("{name:<NAME_COLUMNS$}")
}

/// What an answer came to.
fn answer(answered: &CallAnswered) -> String {
    let usage = answered.usage;
    let count = |tokens: u32| amount::count(u64::from(tokens));
    let cached = if usage.cached > 0 { format!(", {} cached", count(usage.cached)) } else { String::new() };
    let counted = if answered.counted_by == CountedBy::Us { ", our count" } else { "" };
    let tools: Vec<&str> = answered.tool_calls.iter().map(|wish| wish.name.as_str()).collect();
    let tools = if tools.is_empty() { String::new() } else { format!(", wants {}", tools.join(", ")) };
    format!(
        "{} answered in {}: {} in, {} out{cached}{counted} · {}{tools}",
        answered.call,
        amount::duration(answered.ms),
        count(usage.input),
        count(usage.output),
        amount::cost(answered.cost_microusd)
    )
}
