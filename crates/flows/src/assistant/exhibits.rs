//! What the flow shows of itself to whoever looks: what exists and how near it is, what was decided, what waits, what was
//! written. What would be empty is left out.

use segue_core::flow::exhibit::{Exhibit, Form, NoteItem, TableRow};
use segue_core::ids::TurnId;

use super::desk::Desk;
use super::facts::{End, PendingKind};
use super::reasoning::{Phase, TurnSummary};
use super::registry::Tier;
use crate::limits::PANEL_ROWS_MAX;

/// What is on show of a session.
pub(super) fn shown(desk: &Desk<'_>) -> Vec<Exhibit> {
    let all =
        [stand(desk), pending(desk), entities(desk), reasoning(desk), earlier(desk), conversation(desk), writes(desk)];
    all.into_iter().flatten().collect()
}

fn stand(desk: &Desk<'_>) -> Option<Exhibit> {
    let memory = desk.memory();
    let phase = memory.running.as_ref().map(|running| running.phase(&memory.entities));
    let phase = phase.or_else(|| memory.reasoning.full.back().map(|summary| summary.phase)).unwrap_or(Phase::Exploring);
    let pairs = vec![
        ("domain".to_owned(), desk.domain.name.clone()),
        ("phase".to_owned(), phase.word().to_owned()),
        ("references".to_owned(), memory.entities.entities.len().to_string()),
    ];
    (memory.turn() > 0).then(|| named("assistant", "Assistant", &pairs))
}

fn pending(desk: &Desk<'_>) -> Option<Exhibit> {
    let pending = desk.memory().conversation.pending.as_ref()?;
    let title = match pending.what {
        PendingKind::Proposal => "Proposed, and not answered yet",
        PendingKind::Question => "Asked, and not answered yet",
    };
    Some(text("pending", title, desk.memory().entities.in_words(&pending.text)))
}

fn entities(desk: &Desk<'_>) -> Option<Exhibit> {
    let memory = desk.memory();
    let mut shown: Vec<_> = memory.entities.newest(memory.turn());
    shown.retain(|(_, _, tier)| !matches!(tier, Tier::Known | Tier::Dropped));
    shown.sort_by_key(|(_, _, tier)| *tier);
    let rows = shown.iter().take(PANEL_ROWS_MAX).map(|(reference, entity, tier)| {
        let saved = if entity.is_saved() { "yes" } else { "no" };
        TableRow {
            id: (*reference).to_owned(),
            group: tier.word().to_owned(),
            cells: vec![
                (*reference).to_owned(),
                entity.label.clone(),
                saved.to_owned(),
                entity.detail.word().to_owned(),
                entity.last.word().to_owned(),
                entity.referenced.to_string(),
            ],
            why: entity.demoted.as_ref().or(entity.retained.as_ref()).cloned().unwrap_or_default(),
        }
    });
    table("entities", "Entities", &["reference", "label", "saved", "at hand", "last", "turn"], rows.collect())
}

fn reasoning(desk: &Desk<'_>) -> Option<Exhibit> {
    let past = &desk.memory().reasoning;
    let items: Vec<NoteItem> = past.aged.iter().chain(&past.full).map(trace).collect();
    (!items.is_empty()).then(|| Exhibit::new("reasoning", "Reasoning", Form::Notes { items }))
}

fn trace(summary: &TurnSummary) -> NoteItem {
    let decided = summary.decision.map_or("nothing", |decision| decision.word());
    let goal = if summary.goal.is_empty() { String::new() } else { format!(", to {}", summary.goal) };
    let mut lines = vec![format!("decided: {decided}{goal}")];
    lines.extend(summary.steps.iter().map(|step| {
        let end = match step.end {
            Some(End::Done) => String::new(),
            other => format!(", {}", End::words(other)),
        };
        format!("{} {}{end}: {}", step.kind.word(), step.subdomain, step.outcome)
    }));
    lines.extend(summary.curation.reasons.iter().cloned());
    lines.extend(summary.blocked_reason.iter().map(|reason| format!("not done because {reason}")));
    let title = match summary.expressed.as_str() {
        "" => summary.phase.word().to_owned(),
        expressed => format!("{}: {expressed}", summary.phase.word()),
    };
    NoteItem { title, text: lines.join("\n"), turn: Some(TurnId(summary.turn.into())) }
}

fn earlier(desk: &Desk<'_>) -> Option<Exhibit> {
    let folded = desk.memory().reasoning.folded?;
    let title = format!("Reasoning up to turn {}, folded", folded.through);
    Some(text("earlier_reasoning", &title, desk.view.text(folded.text).trim()))
}

fn conversation(desk: &Desk<'_>) -> Option<Exhibit> {
    let folded = desk.memory().conversation.folded?;
    let title = format!("Conversation up to turn {}, folded", folded.through);
    Some(text("earlier_conversation", &title, desk.view.text(folded.text).trim()))
}

fn writes(desk: &Desk<'_>) -> Option<Exhibit> {
    let rows = desk.memory().writes.iter().map(|write| TableRow {
        id: write.run.to_string(),
        group: if write.undone { "taken back" } else { "stands" }.to_owned(),
        cells: vec![write.run.to_string(), write.turn.to_string(), write.what.join("; ")],
        why: String::new(),
    });
    table("writes", "Written", &["run", "turn", "what"], rows.collect())
}

fn table(name: &str, title: &str, columns: &[&str], rows: Vec<TableRow>) -> Option<Exhibit> {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    (!rows.is_empty()).then(|| Exhibit::new(name, title, Form::Table { columns, rows }))
}

fn named(name: &str, title: &str, pairs: &[(String, String)]) -> Exhibit {
    let item = |(title, text): &(String, String)| NoteItem { title: title.clone(), text: text.clone(), turn: None };
    Exhibit::new(name, title, Form::Notes { items: pairs.iter().map(item).collect() })
}

pub(super) fn text(name: &str, title: &str, text: impl Into<String>) -> Exhibit {
    let item = NoteItem { title: String::new(), text: text.into(), turn: None };
    Exhibit::new(name, title, Form::Notes { items: vec![item] })
}
