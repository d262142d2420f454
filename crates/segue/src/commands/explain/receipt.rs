//! Renders the receipt of a call as text.

use segue_core::context::{CallThread, FragmentContentKind, FragmentReceipt};
use segue_core::event::{CallAnswered, CallOpened, UsageSource};
use segue_core::flow::RoleSpec;
use segue_core::ids::SessionId;
use segue_core::prompt::StopReason;

use super::call_history::ExplainedCall;
use crate::print::text::{to_single_line, wrap_lines};
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{CliOutputCapabilities, number_format};

/// Width of the column with the names of facts.
const FACT_NAME_COLUMNS: usize = 9;

/// Renders the whole receipt: a heading, the facts about the call, and the table of fragments.
pub(crate) fn render_receipt(
    session: &SessionId,
    history: &ExplainedCall,
    role: Option<&RoleSpec>,
    screen: CliOutputCapabilities,
) -> String {
    let (position, opened) = &history.opened;
    let paint = screen.paint;
    let mut title = format!("{} · {} asked {} on {}", paint.bold(opened.call), opened.role, opened.ask, opened.model);
    for (preposition, name) in [("by", &opened.agent), ("with", &opened.peer)] {
        if let Some(name) = name {
            title.push_str(&format!(" {preposition} {name}"));
        }
    }
    let mut out = replace_line_breaks(&title);
    let turn = opened.turn.map(|turn| format!(", {turn}")).unwrap_or_default();
    let phase = opened.phase.as_ref().map(|phase| format!(", phase {phase}")).unwrap_or_default();
    let at = number_format::format_date_time(position.at);
    out.push_str(&paint.dim(format!("\nsession {session}{turn}{phase}, {at}, event {}\n\n", position.seq)));
    for (name, fact) in receipt_facts(history, role) {
        let columns = screen.width.saturating_sub(FACT_NAME_COLUMNS + 1).max(20);
        for (index, line) in wrap_lines(&to_single_line(&fact), columns).iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            out.push_str(&format!("{} {line}\n", paint.dim(format!("{name:<FACT_NAME_COLUMNS$}"))));
        }
    }
    out.push('\n');
    out.push_str(&fragment_table(history).render(screen.width, paint));
    let omitted = omitted_fragments(opened);
    if !omitted.is_empty() {
        out.push_str(&format!("\n{}\n", paint.bold("Omitted or cut")));
        for line in omitted {
            out.push_str(&format!("  {}\n", to_single_line(&line)));
        }
    }
    out
}

/// Keeps the title on one line. Its names come from flows and configuration, and its colour codes must stay.
fn replace_line_breaks(title: &str) -> String {
    title.replace(['\n', '\r'], " ")
}

fn receipt_facts(history: &ExplainedCall, role: Option<&RoleSpec>) -> Vec<(&'static str, String)> {
    let opened = &history.opened.1;
    let receipt = &opened.receipt;
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let tokens = receipt.vendor_tokens_estimate.unwrap_or(receipt.tokens);
    let percent = u64::from(tokens) * 100 / u64::from(receipt.window_tokens.max(1));
    let counts = receipt
        .vendor_tokens_estimate
        .map(|_| format!(" by the vendor's count, {} by our count", count(receipt.tokens)));
    let mut facts = vec![
        ("thread", opened.explain_thread_use(role.map(|role| &role.scope))),
        ("prefix", receipt.prefix.to_string()),
        (
            "window",
            format!(
                "{} of {} tokens ({percent} %){}; the answer may have {}",
                count(tokens),
                count(receipt.window_tokens),
                counts.unwrap_or_default(),
                count(opened.reply_tokens_max)
            ),
        ),
    ];
    if !history.tool_results.is_empty() {
        facts.push(("tools", history.tool_results.join("; ")));
    }
    facts.extend(history.failed_attempts.iter().map(|line| ("attempt", line.clone())));
    facts.push(("answer", history.answered.as_deref().map_or_else(|| "none".to_owned(), describe_answer)));
    facts.push(("digest", receipt.digest.to_string()));
    facts
}

fn describe_answer(answered: &CallAnswered) -> String {
    let usage = answered.usage;
    let count = |tokens: u32| number_format::format_count(u64::from(tokens));
    let source = match answered.usage_source {
        UsageSource::Vendor => "by the vendor's count",
        UsageSource::Estimated => "by our count",
    };
    let mut parts = vec![format!("{} in, {} out {source}", count(usage.input_tokens), count(usage.output_tokens))];
    if usage.cached_tokens > 0 {
        let percent = u64::from(usage.cached_tokens) * 100 / u64::from(usage.input_tokens.max(1));
        parts.push(format!("{} of them cached ({percent} %)", count(usage.cached_tokens)));
    }
    if usage.cache_write_tokens > 0 {
        parts.push(format!("{} written to the cache", count(usage.cache_write_tokens)));
    }
    if usage.reasoning_tokens > 0 {
        parts.push(format!("{} reasoning", count(usage.reasoning_tokens)));
    }
    parts.push(number_format::format_cost(answered.cost_microusd));
    parts.push(number_format::format_duration(answered.duration_ms));
    match answered.stop_reason {
        StopReason::Done | StopReason::ToolCalls => {}
        StopReason::Length => parts.push("cut off at the token limit".to_owned()),
        StopReason::ContentFilter => parts.push("cut off by the vendor's content filter".to_owned()),
        StopReason::Repetition => parts.push("cut off because it repeated itself".to_owned()),
    }
    parts.join(" · ")
}

fn fragment_table(history: &ExplainedCall) -> TextTable {
    let receipt = &history.opened.1.receipt;
    let mut table = TextTable::new([
        ("fragment", ColumnLayout::Left),
        ("layer", ColumnLayout::Left),
        ("tokens", ColumnLayout::Right),
        ("source", ColumnLayout::Truncate),
        ("why", ColumnLayout::Wrap),
    ]);
    let sent = |fragments: &[FragmentReceipt]| {
        fragments.iter().filter(|fragment| fragment.text.is_some()).cloned().collect::<Vec<_>>()
    };
    for fragment in sent(&receipt.opening) {
        table.add_row(fragment_row(&fragment, ""));
    }
    let mut carried = receipt.carried.tokens;
    if let (CallThread::Continued(_), Some((call, fragments))) = (&receipt.thread, &history.thread_opening) {
        for fragment in sent(fragments) {
            carried = carried.saturating_sub(fragment.text.map_or(0, |text| text.tokens));
            table.add_row(fragment_row(&fragment, &format!(" (since {call})")));
        }
    }
    if receipt.carried.entries > 0 {
        let folded = match history.folded_messages {
            0 => String::new(),
            folded => format!("; {folded} older messages were compacted"),
        };
        let messages = number_format::format_plural(u64::from(receipt.carried.entries), "message");
        table.add_row([
            "(thread)".to_owned(),
            FragmentContentKind::Conversation.to_string(),
            number_format::format_count(u64::from(carried)),
            format!("thread {}", receipt.thread.thread_id()),
            format!("earlier exchanges: {messages}{folded}"),
        ]);
    }
    for fragment in sent(&receipt.ask) {
        table.add_row(fragment_row(&fragment, ""));
    }
    table
}

fn fragment_row(fragment: &FragmentReceipt, suffix: &str) -> [String; 5] {
    let tokens = fragment.text.map_or(0, |text| text.tokens);
    [
        fragment.name.to_string(),
        fragment.layer.to_string(),
        number_format::format_count(u64::from(tokens)),
        fragment.source.as_ref().map(ToString::to_string).unwrap_or_default(),
        format!("{}{suffix}", fragment.why),
    ]
}

/// Returns a line for each fragment that is missing from the prompt or was cut to its budget.
fn omitted_fragments(opened: &CallOpened) -> Vec<String> {
    let fragments = opened.receipt.opening.iter().chain(&opened.receipt.ask);
    let lines = fragments.filter_map(|fragment| {
        let (name, why) = (&fragment.name, &fragment.why);
        match (fragment.text, fragment.tokens_before_cut) {
            (None, Some(tokens)) => Some(format!("{name}: omitted, {tokens} tokens are too many ({why})")),
            (None, None) => Some(format!("{name}: omitted, {why}")),
            (Some(text), Some(from)) => Some(format!("{name}: cut from {from} to {} tokens", text.tokens)),
            (Some(_), None) => None,
        }
    });
    lines.collect()
}
