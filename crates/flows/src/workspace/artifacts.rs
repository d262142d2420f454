//! What people see of a workspace: its claims, lessons and knowledge as tables, and its facts in words.

use segue_core::flow::{ArtifactButton, ArtifactTableRow, FlowArtifact, TypedArtifactContent};
use serde_json::json;

use super::claims::WorkspaceClaimHolderAndWaiters;
use super::state::{WorkspaceFlowFact, WorkspaceFlowState};
use super::{CLAIM_ARGUMENT, RELEASE_COMMAND};
use crate::artifact::new_artifact;
use crate::limits::WORKSPACE_ROWS_SHOWN_MAX;

pub(super) fn list_artifacts(state: &WorkspaceFlowState) -> Vec<FlowArtifact> {
    let mut artifacts = Vec::new();
    let mut add_table = |name: &str, title: &str, columns: &[&str], rows: Vec<ArtifactTableRow>| {
        if !rows.is_empty() {
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            artifacts.push(new_artifact(name, title, TypedArtifactContent::Table { columns, rows }));
        }
    };
    let claims = state.claims.iter().map(|(claim, status)| claim_row(claim, status));
    add_table("claims", "Claims", &["Claim", "Held by", "Waiting"], claims.collect());
    let lessons = state.lessons.values().flat_map(|lessons| lessons.iter().rev()).take(WORKSPACE_ROWS_SHOWN_MAX);
    let lessons = lessons.enumerate().map(|(index, lesson)| ArtifactTableRow {
        id: format!("lesson {}", index + 1),
        group: lesson.agent.clone(),
        cells: vec![lesson.title.clone(), lesson.text.clone()],
        why: format!("learned in {}", lesson.session),
        commands: Vec::new(),
    });
    add_table("lessons", "Lessons", &["Title", "Lesson"], lessons.collect());
    let knowledge = state.entries().take(WORKSPACE_ROWS_SHOWN_MAX).map(|entry| ArtifactTableRow {
        id: format!("{} {}", entry.kind, entry.key),
        group: entry.kind.clone(),
        cells: vec![entry.key.clone(), entry.revision.to_string()],
        why: format!("stored by {}", entry.session),
        commands: Vec::new(),
    });
    add_table("knowledge", "Knowledge", &["Key", "Revision"], knowledge.collect());
    artifacts
}

fn claim_row(claim: &str, status: &WorkspaceClaimHolderAndWaiters) -> ArtifactTableRow {
    let holder = status.holder.as_ref().map_or_else(|| "nobody".to_owned(), |holder| holder.session.to_string());
    let waiting: Vec<String> = status.waiting.iter().map(|waiting| waiting.session.to_string()).collect();
    let release = ArtifactButton {
        label: "Release".to_owned(),
        command: RELEASE_COMMAND.to_owned(),
        arguments: json!({ CLAIM_ARGUMENT: claim }),
    };
    ArtifactTableRow {
        id: claim.to_owned(),
        group: "Claims".to_owned(),
        cells: vec![claim.to_owned(), holder, waiting.join(", ")],
        why: "an exclusive right; the next session in the queue gets it when it is released".to_owned(),
        commands: status.holder.iter().map(|_| release.clone()).collect(),
    }
}

/// Describes a fact in one sentence.
pub(super) fn describe_workspace_fact(fact: &WorkspaceFlowFact) -> String {
    match fact {
        WorkspaceFlowFact::LessonStored { agent, title, session, .. } => {
            format!("{agent} learned in {session}: {title}")
        }
        WorkspaceFlowFact::KnowledgeStored { entries, session } => {
            format!("{session} stored {} entries of knowledge", entries.len())
        }
        WorkspaceFlowFact::KnowledgeRemoved { entries, session } => {
            format!("{session} removed {} entries of knowledge", entries.len())
        }
        WorkspaceFlowFact::ClaimQueued { claim, by } => format!("{} waits for the claim {claim}", by.session),
        WorkspaceFlowFact::ClaimGranted { claim, to } => format!("{} holds the claim {claim}", to.session),
        WorkspaceFlowFact::ClaimFreed { claim, from, reason } => {
            format!("the claim {claim} of {} is free: {reason}", from.session)
        }
        WorkspaceFlowFact::ClaimWithdrawn { claim, by, reason } => {
            format!("{} does not wait for the claim {claim}: {reason}", by.session)
        }
    }
}
