//! The artifacts of a session: the plan as a checklist and the claim maps as graphs.

use segue_core::flow::{
    ArtifactButton, ArtifactChecklistItem, ArtifactChecklistItemStatus, ArtifactGraphEdge, ArtifactGraphNode,
    ArtifactMetric, ArtifactTableRow, FlowArtifact, FlowContext, TypedArtifactContent,
};
use serde_json::Value;

use super::analysis::{ClaimMapAnalysis, analyse_claim_map};
use super::claim_map::{self, ClaimMap, ClaimNode};
use super::commands::{NO_COMMAND, YES_COMMAND};
use super::facts::ExpertBatchResult;
use super::messages;
use super::plan::{ConciergePlan, ConciergePlanStepStatus};
use super::state::ConciergeState;
use crate::artifact::new_artifact;

/// Returns all artifacts of the session.
pub(super) fn list_artifacts(view: &FlowContext<'_, ConciergeState>) -> Vec<FlowArtifact> {
    let state = view.state;
    let plan = state.active_plan.as_ref().map(plan_artifact);
    let maps = [
        ("map", "What the answers say", state.opening_result.as_ref()),
        ("plan_map", "What the answers say about the plan", state.plan_research.as_ref().map(|plan| &plan.result)),
        ("findings_map", "What was found last", state.pending_findings.as_ref().map(|findings| &findings.result)),
    ];
    let maps = maps.into_iter().filter_map(|(name, title, result)| {
        let ExpertBatchResult::Mapped { text, answers, .. } = result? else { return None };
        let parsed = claim_map::parse_claim_map(&view.read_text(*text), *answers).ok()?;
        Some(new_artifact(name, title, claim_map_artifact(&parsed.map, *answers)))
    });
    question_artifact(state).into_iter().chain(plan).chain(maps).collect()
}

/// Returns the question that waits for a yes or no, with a button for each.
fn question_artifact(state: &ConciergeState) -> Option<FlowArtifact> {
    let request = state.pending_confirmation.as_ref()?;
    let command = |label: &str, command: &str| ArtifactButton {
        label: label.to_owned(),
        command: command.to_owned(),
        arguments: Value::Null,
    };
    let row = ArtifactTableRow {
        id: request.number.to_string(),
        group: String::new(),
        cells: vec![messages::render_confirmation_question(request)],
        why: String::new(),
        commands: vec![command("Yes", YES_COMMAND), command("No", NO_COMMAND)],
    };
    let content = TypedArtifactContent::Table { columns: vec!["question".to_owned()], rows: vec![row] };
    Some(new_artifact("question", "Open question", content))
}

fn plan_artifact(plan: &ConciergePlan) -> FlowArtifact {
    let items = plan.steps.iter().enumerate().map(|(index, step)| ArtifactChecklistItem {
        title: step.title.clone(),
        detail: step.description.clone(),
        done_when: step.done_when.clone(),
        status: match plan.step_status(index) {
            ConciergePlanStepStatus::Complete => ArtifactChecklistItemStatus::Complete,
            ConciergePlanStepStatus::Active => ArtifactChecklistItemStatus::Active,
            ConciergePlanStepStatus::Pending => ArtifactChecklistItemStatus::Pending,
        },
    });
    let content = TypedArtifactContent::Checklist { goal: plan.goal.clone(), items: items.collect() };
    new_artifact("workflow", "Workflow", content)
}

fn claim_map_artifact(map: &ClaimMap, answers: u32) -> TypedArtifactContent {
    let analysis = analyse_claim_map(map, answers);
    let nodes = map.claims.iter().map(|claim| claim_artifact_node(claim, answers)).collect();
    let edges = map.edges.iter().map(|edge| ArtifactGraphEdge {
        from: edge.from.to_string(),
        to: edge.to.to_string(),
        kind: serialized_name(serde_json::to_value(edge.kind)),
    });
    TypedArtifactContent::Graph {
        nodes,
        edges: edges.collect(),
        notes: map.gaps.clone(),
        metrics: analysis_metrics(&analysis),
    }
}

fn claim_artifact_node(claim: &ClaimNode, answers: u32) -> ArtifactGraphNode {
    let supporters = u32::try_from(claim.supporters.len()).unwrap_or(answers);
    ArtifactGraphNode {
        id: claim.id.to_string(),
        label: claim.label.clone(),
        text: claim.text.clone(),
        kind: serialized_name(serde_json::to_value(claim.kind)),
        role: serialized_name(serde_json::to_value(claim.role)),
        weight: f64::from(supporters) / f64::from(answers.max(1)),
        sources: claim.supporters.iter().map(|answer| format!("answer {answer}")).collect(),
    }
}

fn analysis_metrics(analysis: &ClaimMapAnalysis) -> Vec<ArtifactMetric> {
    let mut metrics = vec![
        ArtifactMetric { name: "shape".to_owned(), value: analysis.shape.name().into() },
        ArtifactMetric { name: "confidence".to_owned(), value: analysis.confidence.into() },
        ArtifactMetric { name: "answers".to_owned(), value: analysis.answers.into() },
    ];
    if let Ok(Value::Object(ratios)) = serde_json::to_value(analysis.ratios) {
        metrics.extend(ratios.into_iter().map(|(name, value)| ArtifactMetric { name, value }));
    }
    metrics
}

/// Returns the serialized name of a unit variant.
fn serialized_name(value: Result<Value, serde_json::Error>) -> String {
    value.ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}
