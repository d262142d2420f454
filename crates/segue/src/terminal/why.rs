//! The receipt of a call as a table: what the model was shown, why, and how that relates to the call before.

use segue_core::context::{Piece, Prefix, Source, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, CountedBy};

use super::journal::Made;
use super::lists::dollars;
use super::progress::{call_label, seconds};
use super::style::Style;
use super::table::{Column, shortened, table, thousands};

/// What `/why` says; lines are cut to `columns` where that does no harm.
#[must_use]
pub fn why(made: &Made, style: Style, columns: usize) -> String {
    let Made { opened, answered } = made;
    let heading = format!("{} · {} · asked to {}", opened.call, call_label(opened), opened.ask);
    let turn = opened.turn.map(|turn| format!(" · turn {}", turn.0)).unwrap_or_default();
    let phase = opened.phase.as_ref().map(|phase| format!(" · phase {phase}")).unwrap_or_default();
    format!(
        "{}\n{}\n{}{}\n{}",
        style.strong(&format!("{heading}{turn}{phase}")),
        thread(opened),
        fragments(opened, columns),
        prompt(opened),
        answer(answered.as_ref()),
    )
}

fn thread(opened: &CallOpened) -> String {
    match &opened.receipt.thread {
        ThreadUse::Continued(thread) => format!("memory: {thread}, continued"),
        ThreadUse::Opened { thread, why, .. } => format!("memory: {thread}, {why}"),
    }
}

fn fragments(opened: &CallOpened, columns: usize) -> String {
    let receipt = &opened.receipt;
    let mut rows = vec![["fragment", "kind", "tokens", "from", "why"].map(ToOwned::to_owned).to_vec()];
    rows.extend(receipt.opening.iter().map(row));
    if receipt.carried.entries > 0 || receipt.carried.tokens > 0 {
        let messages = match receipt.carried.entries {
            1 => "1 message".to_owned(),
            count => format!("{count} messages"),
        };
        let from = receipt.thread.thread().to_string();
        let tokens = thousands(receipt.carried.tokens.into());
        rows.push(vec!["(memory)".to_owned(), "conversation".to_owned(), tokens, from, messages]);
    }
    rows.extend(receipt.ask.iter().map(row));
    let columns_of = [Column::Text, Column::Text, Column::Number, Column::Text, Column::Text];
    table(&columns_of, rows).lines().map(|line| cut(line, columns) + "\n").collect()
}

/// Cuts the end of a long row; the columns before it stay as they are.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns - 1).chain(['…']).collect()
}

fn row(piece: &Piece) -> Vec<String> {
    let tokens = match (piece.text, piece.cut_from) {
        (Some(text), Some(from)) => format!("{} of {}", thousands(text.tokens.into()), thousands(from.into())),
        (Some(text), None) => thousands(text.tokens.into()),
        (None, _) => "–".to_owned(),
    };
    let why = if piece.text.is_none() { format!("left out: {}", piece.why) } else { piece.why.clone() };
    let from = piece.source.as_ref().map(source).unwrap_or_default();
    vec![piece.name.to_string(), format!("{:?}", piece.layer).to_lowercase(), tokens, from, shortened(&why, 200)]
}

fn source(source: &Source) -> String {
    match source {
        Source::Template(file) => file.clone(),
        Source::Message(message) => format!("message {message}"),
        Source::Handover(handover) => format!("handover {handover}"),
        Source::Call(call) => format!("answer {call}"),
        Source::Tool(run) => format!("tool {run}"),
        Source::State => "state".to_owned(),
        Source::Phase => "phase graph".to_owned(),
        Source::Thread(thread) => format!("folded {thread}"),
    }
}

fn prompt(opened: &CallOpened) -> String {
    let receipt = &opened.receipt;
    let prefix = match &receipt.prefix {
        Prefix::First => "the first of its kind".to_owned(),
        Prefix::Extends(call) => format!("extends {call}"),
        Prefix::Broken { from, kept, by } => {
            format!("shares {} tokens with {from}, then `{by}` differs", thousands((*kept).into()))
        }
    };
    let (tokens, window) = (thousands(receipt.tokens.into()), thousands(receipt.window.into()));
    format!("prompt: {tokens} tokens of a window of {window}; {prefix}")
}

fn answer(answered: Option<&CallAnswered>) -> String {
    let Some(answered) = answered else { return "answer: none yet".to_owned() };
    let usage = answered.usage;
    let cached = if usage.cached > 0 { format!(", {} cached", thousands(usage.cached.into())) } else { String::new() };
    let counted = if answered.counted_by == CountedBy::Us { " by our count" } else { "" };
    format!(
        "answer: {} tokens in{cached}, {} out{counted}; {}; {}",
        thousands(usage.input.into()),
        thousands(usage.output.into()),
        dollars(answered.cost_microusd),
        seconds(answered.ms),
    )
}
