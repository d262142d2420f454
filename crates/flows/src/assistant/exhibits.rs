//! What the flow puts on show: what exists and how near it is, what was decided and why, what waits for an answer, what was
//! written. What would be empty is left out.

use segue_core::flow::exhibit::{Exhibit, Form, NoteItem, Offer, TableRow};
use segue_core::ids::TurnId;
use serde_json::json;

use super::desk::Desk;
use super::facts::{End, PendingKind};
use super::reasoning::TurnSummary;
use super::registry::Tier;
use super::spec::UNDO;
use super::state::Write;
use crate::limits::EXHIBIT_ROWS_MAX;

/// Everything there is to see.
pub(super) fn on_show(desk: &Desk<'_>) -> Vec<Exhibit> {
    [entities(desk), reasoning(desk), conversation(desk), writes(desk)].into_iter().flatten().collect()
}

fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// References by how near they are, each with the reason why it is kept or set aside.
fn entities(desk: &Desk<'_>) -> Option<Exhibit> {
    let memory = desk.memory();
    let mut shown: Vec<_> = memory.entities.newest(memory.turn());
    shown.retain(|(_, _, tier)| !matches!(tier, Tier::Known | Tier::Dropped));
    shown.sort_by_key(|(_, _, tier)| *tier);
    let rows = shown.iter().take(EXHIBIT_ROWS_MAX).map(|(reference, entity, tier)| {
        let saved = if entity.is_saved() { "yes" } else { "no" };
        let turn = entity.referenced.to_string();
        TableRow {
            id: (*reference).to_owned(),
            group: tier.word().to_owned(),
            cells: cells([reference, &entity.label, saved, entity.detail.word(), entity.last.word(), &turn]),
            why: entity.demoted.as_ref().or(entity.retained.as_ref()).cloned().unwrap_or_default(),
            offers: Vec::new(),
        }
    });
    let (columns, rows) = (cells(["reference", "label", "saved", "at hand", "last", "turn"]), rows.collect::<Vec<_>>());
    (!rows.is_empty()).then(|| Exhibit::new("entities", "Entities", Form::Table { columns, rows }))
}

/// The reasoning trace: what is folded, then turn by turn.
fn reasoning(desk: &Desk<'_>) -> Option<Exhibit> {
    let past = &desk.memory().reasoning;
    let folded = past.folded.map(|folded| NoteItem {
        title: format!("Up to turn {}, in short", folded.through),
        text: desk.view.text(folded.text).trim().to_owned(),
        turn: None,
    });
    let items: Vec<NoteItem> = folded.into_iter().chain(past.aged.iter().chain(&past.full).map(trace)).collect();
    (!items.is_empty()).then(|| Exhibit::new("reasoning", "Reasoning", Form::Notes { items }))
}

fn trace(summary: &TurnSummary) -> NoteItem {
    let decided = summary.decision.map_or("nothing", |decision| decision.word());
    let goal = if summary.goal.is_empty() { String::new() } else { format!(", to {}", summary.goal) };
    let mut lines = vec![format!("decided {decided}{goal}")];
    for step in &summary.steps {
        let end = match step.end {
            Some(End::Done) => String::new(),
            other => format!(", {}", End::words(other)),
        };
        let outcome = if step.outcome.is_empty() { String::new() } else { format!(": {}", step.outcome) };
        lines.push(format!("step {} ({} {}){end}{outcome}", step.step, step.kind.word(), step.subdomain));
    }
    lines.extend(summary.curation.reasons.iter().map(|reason| format!("curated {reason}")));
    lines.extend(summary.blocked_reason.iter().map(|why| format!("not everything was done: {why}")));
    NoteItem {
        title: format!("Turn {} ({}): {}", summary.turn, summary.phase.word(), summary.expressed),
        text: lines.join("\n"),
        turn: Some(TurnId(summary.turn)),
    }
}

/// What was said long ago, and what waits for an answer.
fn conversation(desk: &Desk<'_>) -> Option<Exhibit> {
    let conversation = &desk.memory().conversation;
    let folded = conversation.folded.map(|folded| NoteItem {
        title: format!("Said up to turn {}, in short", folded.through),
        text: desk.view.text(folded.text).trim().to_owned(),
        turn: None,
    });
    let pending = conversation.pending.as_ref().map(|pending| NoteItem {
        title: match pending.what {
            PendingKind::Proposal => "Proposed, and not answered yet".to_owned(),
            PendingKind::Question => "Asked, and not answered yet".to_owned(),
        },
        text: desk.memory().entities.in_words(&pending.text),
        turn: Some(TurnId(pending.turn)),
    });
    let items: Vec<NoteItem> = folded.into_iter().chain(pending).collect();
    (!items.is_empty()).then(|| Exhibit::new("conversation", "Conversation", Form::Notes { items }))
}

fn writes(desk: &Desk<'_>) -> Option<Exhibit> {
    let rows = desk.memory().writes.iter().map(|write| TableRow {
        id: write.run.to_string(),
        group: if write.undone { "taken back" } else { "stands" }.to_owned(),
        cells: cells([&write.run.to_string(), &write.turn.to_string(), &write.what.join("; ")]),
        why: String::new(),
        offers: taking_back(write),
    });
    let mut rows: Vec<TableRow> = rows.collect();
    rows.sort_by(|one, other| one.group.cmp(&other.group));
    let columns = cells(["run", "turn", "what"]);
    (!rows.is_empty()).then(|| Exhibit::new("writes", "Written", Form::Table { columns, rows }))
}

/// What stands can be taken back.
fn taking_back(write: &Write) -> Vec<Offer> {
    let offer = || Offer { text: "Undo".to_owned(), command: UNDO.to_owned(), arguments: json!({"run": write.run.0}) };
    if write.undone { Vec::new() } else { vec![offer()] }
}
