//! A receipt as a page for people.

use segue_core::context::{ContextLayer, FragmentReceipt, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, UsageSource};
use segue_core::flow::RoleSpec;
use segue_core::ids::SessionId;
use segue_core::prompt::StopReason;

use super::call_history::CallHistory;
use crate::print::text::{to_single_line, wrap_lines};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{RenderOptions, number_format};

/// Columns of the names of facts.
const FACT_NAME_COLUMNS: usize = 9;

/// The whole page.
pub fn render_receipt(
    session: &SessionId,
    found: &CallHistory,
    role: Option<&RoleSpec>,
    screen: RenderOptions,
) -> String {
    let (place, opened) = &found.opened;
    let paint = screen.paint;
    let mut title = format!("{} · {} asked {} on {}", paint.bold(opened.call), opened.role, opened.ask, opened.model);
    for (word, name) in [("by", &opened.agent), ("with", &opened.peer)] {
        if let Some(name) = name {
            title.push_str(&format!(" {word} {name}"));
        }
    }
    let mut out = replace_line_breaks(&title);
    let turn = opened.turn.map(|turn| format!(", {turn}")).unwrap_or_default();
    let phase = opened.phase.as_ref().map(|phase| format!(", phase {phase}")).unwrap_or_default();
    let at = number_format::format_date_time(place.at);
    out.push_str(&paint.dim(format!("\nsession {session}{turn}{phase}, {at}, event {}\n\n", place.seq)));
    for (name, fact) in receipt_facts(found, role) {
        let columns = screen.width.saturating_sub(FACT_NAME_COLUMNS + 1).max(20);
        for (place, line) in wrap_lines(&to_single_line(&fact), columns).iter().enumerate() {
            let name = if place == 0 { name } else { "" };
            out.push_str(&format!("{} {line}\n", paint.dim(format!("{name:<FACT_NAME_COLUMNS$}"))));
        }
    }
    out.push('\n');
    out.push_str(&fragment_table(found).render(screen.width, paint));
    let left = omitted_fragments(opened);
    if !left.is_empty() {
        out.push_str(&format!("\n{}\n", paint.bold("Left out or cut")));
        for line in left {
            out.push_str(&format!("  {}\n", to_single_line(&line)));
        }
    }
    out
}

/// The title holds colours of our own, and names that came from a flow or a configuration.
fn replace_line_breaks(title: &str) -> String {
    title.replace(['\n', '\r'], " ")
}

fn receipt_facts(found: &CallHistory, role: Option<&RoleSpec>) -> Vec<(&'static str, String)> {
    let opened = &found.opened.1;
    let receipt = &opened.receipt;
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let tokens = receipt.vendor_tokens();
    let percent = u64::from(tokens) * 100 / u64::from(receipt.window_tokens.max(1));
    let counted = receipt
        .vendor_tokens_estimate
        .map(|_| format!(" by what its vendor reported, {} by our count", count(receipt.tokens)));
    let mut facts = vec![
        ("thread", opened.explain_thread_use(role.map(|role| &role.scope))),
        ("prefix", receipt.prefix.describe()),
        (
            "window",
            format!(
                "{} of {} tokens ({percent} %){}; the answer may take {}",
                count(tokens),
                count(receipt.window_tokens),
                counted.unwrap_or_default(),
                count(opened.reply_tokens_max)
            ),
        ),
    ];
    if !found.tool_results.is_empty() {
        facts.push(("tools", found.tool_results.join("; ")));
    }
    facts.extend(found.failed_attempts.iter().map(|line| ("try", line.clone())));
    facts.push(("answer", found.answered.as_deref().map_or_else(|| "none".to_owned(), describe_answer)));
    facts.push(("digest", receipt.digest.to_string()));
    facts
}

fn describe_answer(answered: &CallAnswered) -> String {
    let usage = answered.usage;
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let whose = match answered.usage_source {
        UsageSource::Vendor => "by the vendor's count",
        UsageSource::Estimated => "by our count",
    };
    let mut parts = vec![format!("{} in, {} out {whose}", count(usage.input_tokens), count(usage.output_tokens))];
    if usage.cached_tokens > 0 {
        let percent = u64::from(usage.cached_tokens) * 100 / u64::from(usage.input_tokens.max(1));
        parts.push(format!("{} of them cached ({percent} %)", count(usage.cached_tokens)));
    }
    if usage.cache_write_tokens > 0 {
        parts.push(format!("{} put into the cache", count(usage.cache_write_tokens)));
    }
    if usage.reasoning_tokens > 0 {
        parts.push(format!("{} reasoning", count(usage.reasoning_tokens)));
    }
    parts.push(number_format::format_cost(answered.cost_microusd));
    parts.push(number_format::format_duration(answered.duration_ms));
    match answered.stop_reason {
        StopReason::Done | StopReason::ToolCalls => {}
        StopReason::Length => parts.push("cut at the longest answer".to_owned()),
        StopReason::ContentFilter => parts.push("cut by the vendor's filter".to_owned()),
    }
    parts.join(" · ")
}

fn fragment_table(found: &CallHistory) -> TextTable {
    let receipt = &found.opened.1.receipt;
    let mut table = TextTable::new([
        ("fragment", ColumnLayout::Left),
        ("layer", ColumnLayout::Left),
        ("tokens", ColumnLayout::Right),
        ("source", ColumnLayout::Truncate),
        ("why", ColumnLayout::Wrap),
    ]);
    let sent =
        |pieces: &[FragmentReceipt]| pieces.iter().filter(|piece| piece.text.is_some()).cloned().collect::<Vec<_>>();
    for piece in sent(&receipt.opening) {
        table.add_row(fragment_row(&piece, ""));
    }
    let mut carried = receipt.carried.tokens;
    if let (ThreadUse::Continued(_), Some((by, pieces))) = (&receipt.thread, &found.thread_opening) {
        for piece in sent(pieces) {
            carried = carried.saturating_sub(piece.text.map_or(0, |text| text.tokens));
            table.add_row(fragment_row(&piece, &format!(" (since {by})")));
        }
    }
    if receipt.carried.entries > 0 {
        let folded = match found.folded_messages {
            0 => String::new(),
            folded => format!("; {folded} older ones were folded"),
        };
        let messages = number_format::format_plural(u64::from(receipt.carried.entries), "message");
        table.add_row([
            "(thread)".to_owned(),
            ContextLayer::Conversation.to_string(),
            number_format::format_count(u64::from(carried)),
            format!("thread {}", receipt.thread.thread_id()),
            format!("what it carried: {messages}{folded}"),
        ]);
    }
    for piece in sent(&receipt.ask) {
        table.add_row(fragment_row(&piece, ""));
    }
    table
}

fn fragment_row(piece: &FragmentReceipt, note: &str) -> [String; 5] {
    let tokens = piece.text.map_or(0, |text| text.tokens);
    [
        piece.name.to_string(),
        piece.layer.to_string(),
        number_format::format_count(u64::from(tokens)),
        piece.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        format!("{}{note}", piece.why),
    ]
}

fn omitted_fragments(opened: &CallOpened) -> Vec<String> {
    let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
    let told = pieces.filter_map(|piece| match (piece.text, piece.tokens_before_cut) {
        (None, Some(from)) => Some(format!("{}: left out, {} tokens are too many ({})", piece.name, from, piece.why)),
        (None, None) => Some(format!("{}: left out, {}", piece.name, piece.why)),
        (Some(text), Some(from)) => Some(format!("{}: cut from {from} to {} tokens", piece.name, text.tokens)),
        (Some(_), None) => None,
    });
    told.collect()
}
