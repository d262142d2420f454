//! A receipt as a page for people.

use segue_core::context::{Layer, Piece, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, CountedBy};
use segue_core::flow::RoleSpec;
use segue_core::ids::SessionId;
use segue_core::prompt::Stop;

use super::find::Found;
use crate::print::table::{Column, Table};
use crate::print::text::{one_line, wrapped};
use crate::print::{Screen, amount};

/// Columns of the names of facts.
const NAME_COLUMNS: usize = 9;

/// The whole page.
pub fn render(session: &SessionId, found: &Found, role: Option<&RoleSpec>, screen: Screen) -> String {
    let (place, opened) = &found.opened;
    let paint = screen.paint;
    let mut title = format!("{} · {} asked {} on {}", paint.bold(opened.call), opened.role, opened.ask, opened.model);
    for (word, name) in [("by", &opened.agent), ("with", &opened.peer)] {
        if let Some(name) = name {
            title.push_str(&format!(" {word} {name}"));
        }
    }
    let mut out = one_line_keeping_colour(&title);
    let turn = opened.turn.map(|turn| format!(", {turn}")).unwrap_or_default();
    let phase = opened.phase.as_ref().map(|phase| format!(", phase {phase}")).unwrap_or_default();
    let at = amount::moment(place.at);
    out.push_str(&paint.dim(format!("\nsession {session}{turn}{phase}, {at}, event {}\n\n", place.seq)));
    for (name, fact) in facts(found, role) {
        let columns = screen.width.saturating_sub(NAME_COLUMNS + 1).max(20);
        for (place, line) in wrapped(&one_line(&fact), columns).iter().enumerate() {
            let name = if place == 0 { name } else { "" };
            out.push_str(&format!("{} {line}\n", paint.dim(format!("{name:<NAME_COLUMNS$}"))));
        }
    }
    out.push('\n');
    out.push_str(&fragments(found).render(screen.width, paint));
    let left = left_out(opened);
    if !left.is_empty() {
        out.push_str(&format!("\n{}\n", paint.bold("Left out or cut")));
        for line in left {
            out.push_str(&format!("  {}\n", one_line(&line)));
        }
    }
    out
}

/// The title holds colours of our own, and names that came from a flow or a configuration.
fn one_line_keeping_colour(title: &str) -> String {
    title.replace(['\n', '\r'], " ")
}

fn facts(found: &Found, role: Option<&RoleSpec>) -> Vec<(&'static str, String)> {
    let opened = &found.opened.1;
    let receipt = &opened.receipt;
    let count = |tokens: u32| amount::count(u64::from(tokens));
    let tokens = receipt.vendor_tokens();
    let percent = u64::from(tokens) * 100 / u64::from(receipt.window.max(1));
    let counted =
        receipt.corrected.map(|_| format!(" by what its vendor reported, {} by our count", count(receipt.tokens)));
    let mut facts = vec![
        ("thread", opened.why_thread(role.map(|role| &role.scope))),
        ("prefix", receipt.prefix.words()),
        (
            "window",
            format!(
                "{} of {} tokens ({percent} %){}; the answer may take {}",
                count(tokens),
                count(receipt.window),
                counted.unwrap_or_default(),
                count(opened.reply_tokens_max)
            ),
        ),
    ];
    if !found.tools.is_empty() {
        facts.push(("tools", found.tools.join("; ")));
    }
    facts.extend(found.tries.iter().map(|line| ("try", line.clone())));
    facts.push(("answer", found.answered.as_deref().map_or_else(|| "none".to_owned(), answer)));
    facts.push(("digest", receipt.digest.to_string()));
    facts
}

fn answer(answered: &CallAnswered) -> String {
    let usage = answered.usage;
    let count = |tokens: u32| amount::count(u64::from(tokens));
    let whose = match answered.counted_by {
        CountedBy::Vendor => "by the vendor's count",
        CountedBy::Us => "by our count",
    };
    let mut parts = vec![format!("{} in, {} out {whose}", count(usage.input), count(usage.output))];
    if usage.cached > 0 {
        let percent = u64::from(usage.cached) * 100 / u64::from(usage.input.max(1));
        parts.push(format!("{} of them cached ({percent} %)", count(usage.cached)));
    }
    if usage.written > 0 {
        parts.push(format!("{} put into the cache", count(usage.written)));
    }
    if usage.reasoning > 0 {
        parts.push(format!("{} reasoning", count(usage.reasoning)));
    }
    parts.push(amount::cost(answered.cost_microusd));
    parts.push(amount::duration(answered.ms));
    match answered.stop {
        Stop::Done | Stop::Tools => {}
        Stop::Length => parts.push("cut at the longest answer".to_owned()),
        Stop::Filtered => parts.push("cut by the vendor's filter".to_owned()),
    }
    parts.join(" · ")
}

fn fragments(found: &Found) -> Table {
    let receipt = &found.opened.1.receipt;
    let mut table = Table::new([
        ("fragment", Column::Left),
        ("layer", Column::Left),
        ("tokens", Column::Right),
        ("source", Column::Cut),
        ("why", Column::Wrap),
    ]);
    let sent = |pieces: &[Piece]| pieces.iter().filter(|piece| piece.text.is_some()).cloned().collect::<Vec<_>>();
    for piece in sent(&receipt.opening) {
        table.row(row(&piece, ""));
    }
    let mut carried = receipt.carried.tokens;
    if let (ThreadUse::Continued(_), Some((by, pieces))) = (&receipt.thread, &found.opening) {
        for piece in sent(pieces) {
            carried = carried.saturating_sub(piece.text.map_or(0, |text| text.tokens));
            table.row(row(&piece, &format!(" (since {by})")));
        }
    }
    if receipt.carried.entries > 0 {
        let folded = match found.folded {
            0 => String::new(),
            folded => format!("; {folded} older ones were folded"),
        };
        let messages = amount::several(u64::from(receipt.carried.entries), "message");
        table.row([
            "(thread)".to_owned(),
            Layer::Conversation.to_string(),
            amount::count(u64::from(carried)),
            format!("thread {}", receipt.thread.thread()),
            format!("what it carried: {messages}{folded}"),
        ]);
    }
    for piece in sent(&receipt.ask) {
        table.row(row(&piece, ""));
    }
    table
}

fn row(piece: &Piece, note: &str) -> [String; 5] {
    let tokens = piece.text.map_or(0, |text| text.tokens);
    [
        piece.name.to_string(),
        piece.layer.to_string(),
        amount::count(u64::from(tokens)),
        piece.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        format!("{}{note}", piece.why),
    ]
}

fn left_out(opened: &CallOpened) -> Vec<String> {
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
    let told = pieces.filter_map(|piece| match (piece.text, piece.cut_from) {
        (None, Some(from)) => Some(format!("{}: left out, {} tokens are too many ({})", piece.name, from, piece.why)),
        (None, None) => Some(format!("{}: left out, {}", piece.name, piece.why)),
        (Some(text), Some(from)) => Some(format!("{}: cut from {from} to {} tokens", piece.name, text.tokens)),
        (Some(_), None) => None,
    });
    told.collect()
}
