//! The artifacts of a session: its entities, its reasoning, the open question with older conversation, and its writes. Empty ones
//! are left out.

use segue_core::flow::{ArtifactButton, ArtifactNotesItem, ArtifactTableRow, FlowArtifact, TypedArtifactContent};
use segue_core::ids::TurnId;
use serde_json::json;

use super::assistant_context::AssistantSessionContext;
use super::facts::{AssistantStepEndStatus, ProposalOrQuestion};
use super::reasoning::TurnDecisionSummary;
use super::registry::EntityRelevanceTier;
use super::spec::UNDO_COMMAND;
use super::state::CompletedDomainWrite;
use crate::artifact::new_artifact;
use crate::limits::ARTIFACT_ROWS_MAX;

/// Returns all artifacts that have content.
pub(super) fn build_artifacts(context: &AssistantSessionContext<'_>) -> Vec<FlowArtifact> {
    [entities_artifact(context), reasoning_artifact(context), conversation_artifact(context), writes_artifact(context)]
        .into_iter()
        .flatten()
        .collect()
}

fn table_cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// The known entities by tier, each with the reason why it is retained or demoted.
fn entities_artifact(context: &AssistantSessionContext<'_>) -> Option<FlowArtifact> {
    let state = context.state();
    let mut shown: Vec<_> = state.entities.entities_by_recency(state.current_turn_number());
    shown.retain(|(_, _, tier)| !matches!(tier, EntityRelevanceTier::Known | EntityRelevanceTier::Dropped));
    shown.sort_by_key(|(_, _, tier)| *tier);
    let rows = shown.iter().take(ARTIFACT_ROWS_MAX).map(|(reference, entity, tier)| {
        let saved = if entity.is_saved() { "yes" } else { "no" };
        let turn = entity.referenced_turn.to_string();
        ArtifactTableRow {
            id: (*reference).to_owned(),
            group: tier.as_str().to_owned(),
            cells: table_cells([
                reference,
                &entity.label,
                saved,
                entity.detail.as_str(),
                entity.last_action.as_str(),
                &turn,
            ]),
            why: entity.demoted_reason.as_ref().or(entity.retained_reason.as_ref()).cloned().unwrap_or_default(),
            commands: Vec::new(),
        }
    });
    let (columns, rows) =
        (table_cells(["reference", "label", "saved", "loaded", "last action", "turn"]), rows.collect::<Vec<_>>());
    (!rows.is_empty()).then(|| new_artifact("entities", "Entities", TypedArtifactContent::Table { columns, rows }))
}

/// The summary of older turns, then the newer ones turn by turn.
fn reasoning_artifact(context: &AssistantSessionContext<'_>) -> Option<FlowArtifact> {
    let reasoning = &context.state().reasoning;
    let compacted = reasoning.compacted.map(|compacted| ArtifactNotesItem {
        title: format!("Summary up to turn {}", compacted.through_turn),
        text: context.view.read_text(compacted.text).trim().to_owned(),
        turn: None,
    });
    let items: Vec<ArtifactNotesItem> = compacted
        .into_iter()
        .chain(reasoning.uncompacted.iter().chain(&reasoning.recent).map(turn_summary_note))
        .collect();
    (!items.is_empty()).then(|| new_artifact("reasoning", "Reasoning", TypedArtifactContent::Notes { items }))
}

fn turn_summary_note(summary: &TurnDecisionSummary) -> ArtifactNotesItem {
    let decision = summary.decision.map_or("nothing", |decision| decision.as_str());
    let goal = if summary.goal.is_empty() { String::new() } else { format!(" (goal: {})", summary.goal) };
    let mut lines = vec![format!("decision: {decision}{goal}")];
    for step in &summary.steps {
        let end = match step.status {
            Some(AssistantStepEndStatus::Done) => String::new(),
            other => format!(", {}", AssistantStepEndStatus::describe(other)),
        };
        let outcome = if step.outcome.is_empty() { String::new() } else { format!(": {}", step.outcome) };
        lines.push(format!("step {} ({} {}){end}{outcome}", step.step, step.kind.as_str(), step.subdomain));
    }
    lines.extend(summary.curation.reasons.iter().map(|reason| format!("reason for {reason}")));
    lines.extend(summary.blocked_reason.iter().map(|why| format!("not completed: {why}")));
    ArtifactNotesItem {
        title: format!("Turn {} ({}): {}", summary.turn, summary.phase.as_str(), summary.intent),
        text: lines.join("\n"),
        turn: Some(TurnId(summary.turn)),
    }
}

/// The summary of the older conversation, and the question or proposal that waits for an answer.
fn conversation_artifact(context: &AssistantSessionContext<'_>) -> Option<FlowArtifact> {
    let conversation = &context.state().conversation;
    let compacted = conversation.compacted.map(|compacted| ArtifactNotesItem {
        title: format!("Summary up to turn {}", compacted.through_turn),
        text: context.view.read_text(compacted.text).trim().to_owned(),
        turn: None,
    });
    let pending = conversation.pending.as_ref().map(|pending| ArtifactNotesItem {
        title: match pending.kind {
            ProposalOrQuestion::Proposal => "Open proposal".to_owned(),
            ProposalOrQuestion::Question => "Open question".to_owned(),
        },
        text: context.state().entities.replace_references_with_labels(&pending.text),
        turn: Some(TurnId(pending.turn)),
    });
    let items: Vec<ArtifactNotesItem> = compacted.into_iter().chain(pending).collect();
    (!items.is_empty()).then(|| new_artifact("conversation", "Conversation", TypedArtifactContent::Notes { items }))
}

fn writes_artifact(context: &AssistantSessionContext<'_>) -> Option<FlowArtifact> {
    let rows = context.state().writes.iter().map(|write| ArtifactTableRow {
        id: write.run.to_string(),
        group: if write.undone { "undone" } else { "active" }.to_owned(),
        cells: table_cells([&write.run.to_string(), &write.turn.to_string(), &write.summaries.join("; ")]),
        why: String::new(),
        commands: undo_commands(write),
    });
    let mut rows: Vec<ArtifactTableRow> = rows.collect();
    rows.sort_by(|one, other| one.group.cmp(&other.group));
    let columns = table_cells(["run", "turn", "changes"]);
    (!rows.is_empty()).then(|| new_artifact("writes", "Writes", TypedArtifactContent::Table { columns, rows }))
}

/// A write that was not undone offers the `undo` command.
fn undo_commands(write: &CompletedDomainWrite) -> Vec<ArtifactButton> {
    let undo = || ArtifactButton {
        label: "Undo".to_owned(),
        command: UNDO_COMMAND.to_owned(),
        arguments: json!({"run": write.run.0}),
    };
    if write.undone { Vec::new() } else { vec![undo()] }
}
