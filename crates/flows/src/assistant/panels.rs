//! What the flow shows of itself to whoever looks: what exists and how near it is, what was decided, what waits, what was
//! written. Panels that would be empty are left out.

use segue_core::flow::Panel;

use super::desk::Desk;
use super::facts::{End, PendingKind};
use super::reasoning::{Phase, TurnSummary};
use super::registry::Tier;
use crate::limits::PANEL_ROWS_MAX;

/// The panels of a session.
pub(super) fn drawn(desk: &Desk<'_>) -> Vec<Panel> {
    let all =
        [stand(desk), pending(desk), entities(desk), reasoning(desk), earlier(desk), conversation(desk), writes(desk)];
    all.into_iter().flatten().collect()
}

fn stand(desk: &Desk<'_>) -> Option<Panel> {
    let memory = desk.memory();
    let phase = memory.running.as_ref().map(|running| running.phase(&memory.entities));
    let phase = phase.or_else(|| memory.reasoning.full.back().map(|summary| summary.phase)).unwrap_or(Phase::Exploring);
    let pairs = vec![
        ("domain".to_owned(), desk.domain.name.clone()),
        ("phase".to_owned(), phase.word().to_owned()),
        ("references".to_owned(), memory.entities.entities.len().to_string()),
    ];
    (memory.turn() > 0).then(|| Panel::pairs("assistant", "Assistant", pairs))
}

fn pending(desk: &Desk<'_>) -> Option<Panel> {
    let pending = desk.memory().conversation.pending.as_ref()?;
    let title = match pending.what {
        PendingKind::Proposal => "Proposed, and not answered yet",
        PendingKind::Question => "Asked, and not answered yet",
    };
    Some(Panel::text("pending", title, desk.memory().entities.in_words(&pending.text)))
}

fn entities(desk: &Desk<'_>) -> Option<Panel> {
    let memory = desk.memory();
    let mut shown: Vec<_> = memory.entities.newest(memory.turn());
    shown.retain(|(_, _, tier)| !matches!(tier, Tier::Known | Tier::Dropped));
    shown.sort_by_key(|(_, _, tier)| *tier);
    let rows = shown.iter().take(PANEL_ROWS_MAX).map(|(reference, entity, tier)| {
        let why = entity.demoted.as_ref().or(entity.retained.as_ref()).cloned().unwrap_or_default();
        let saved = if entity.is_saved() { "yes" } else { "no" };
        vec![
            tier.word().to_owned(),
            (*reference).to_owned(),
            entity.label.clone(),
            saved.to_owned(),
            entity.detail.word().to_owned(),
            entity.last.word().to_owned(),
            entity.referenced.to_string(),
            why,
        ]
    });
    let columns = ["stands", "reference", "label", "saved", "at hand", "last", "turn", "why"];
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Panel::table("entities", "Entities", &columns, rows))
}

fn reasoning(desk: &Desk<'_>) -> Option<Panel> {
    let past = &desk.memory().reasoning;
    let turns = past.aged.iter().chain(&past.full).map(trace).collect::<Vec<_>>();
    let columns = ["turn", "phase", "expressed", "decided", "steps", "kept and set aside", "not done because"];
    (!turns.is_empty()).then(|| Panel::table("reasoning", "Reasoning", &columns, turns))
}

fn trace(summary: &TurnSummary) -> Vec<String> {
    let steps = summary.steps.iter().map(|step| {
        let end = match step.end {
            Some(End::Done) => String::new(),
            other => format!(", {}", End::words(other)),
        };
        format!("{} {}{end}: {}", step.kind.word(), step.subdomain, step.outcome)
    });
    let decided = summary.decision.map_or("nothing", |decision| decision.word());
    let goal = if summary.goal.is_empty() { String::new() } else { format!(", to {}", summary.goal) };
    vec![
        summary.turn.to_string(),
        summary.phase.word().to_owned(),
        summary.expressed.clone(),
        format!("{decided}{goal}"),
        steps.collect::<Vec<_>>().join("; "),
        summary.curation.reasons.join("; "),
        summary.blocked_reason.clone().unwrap_or_default(),
    ]
}

fn earlier(desk: &Desk<'_>) -> Option<Panel> {
    let folded = desk.memory().reasoning.folded?;
    let title = format!("Reasoning up to turn {}, folded", folded.through);
    Some(Panel::text("earlier_reasoning", &title, desk.view.text(folded.text).trim()))
}

fn conversation(desk: &Desk<'_>) -> Option<Panel> {
    let folded = desk.memory().conversation.folded?;
    let title = format!("Conversation up to turn {}, folded", folded.through);
    Some(Panel::text("earlier_conversation", &title, desk.view.text(folded.text).trim()))
}

fn writes(desk: &Desk<'_>) -> Option<Panel> {
    let rows = desk.memory().writes.iter().map(|write| {
        let stands = if write.undone { "taken back" } else { "stands" };
        vec![write.run.to_string(), write.turn.to_string(), write.what.join("; "), stands.to_owned()]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Panel::table("writes", "Written", &["run", "turn", "what", "now"], rows))
}
