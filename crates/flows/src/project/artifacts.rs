//! The artifacts of a session: the phase graph, the plan, the evidence, routing, checkpoints, lessons, and metrics.

use segue_core::flow::{
    ArtifactButton, ArtifactChecklistItem, ArtifactChecklistItemStatus, ArtifactGraphEdge, ArtifactGraphNode,
    ArtifactMetric, ArtifactNotesItem, ArtifactTableRow, FlowArtifact, TypedArtifactContent,
};
use serde_json::{Value, json};

use super::commands::{APPROVE_COMMAND, CONFIRM_COMMAND, CONTINUE_COMMAND, RESTORE_COMMAND};
use super::facts::{AgentTurnEndKind, AskUserReason, WorkspaceClaimWait};
use super::project_context::ProjectFlowContext;
use super::spec::PHASES_GRAPH;
use crate::artifact::new_artifact;
use crate::limits::ARTIFACT_ROWS_MAX;

/// Returns all artifacts that have content.
pub(super) fn build_artifacts(context: &ProjectFlowContext<'_>) -> Vec<FlowArtifact> {
    [
        decision_artifact(context),
        phases_artifact(context),
        plan_artifact(context),
        evidence_artifact(context),
        routing_artifact(context),
        files_artifact(context),
        checkpoints_artifact(context),
        lessons_artifact(context),
        metrics_artifact(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cells<const N: usize>(cells: [String; N]) -> Vec<String> {
    cells.into()
}

fn columns<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).into()
}

fn command_button(label: &str, command: &str, arguments: Value) -> ArtifactButton {
    ArtifactButton { label: label.to_owned(), command: command.to_owned(), arguments }
}

/// What the user is asked, with the commands that answer.
fn decision_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let Some(why) = context.state().stopped else {
        return context.state().claim_wait.as_ref().map(|wait| claim_wait_artifact(context, wait));
    };
    let (question, commands) = match why {
        AskUserReason::PlanApproval => {
            ("approve the plan?", vec![command_button("Approve", APPROVE_COMMAND, Value::Null)])
        }
        AskUserReason::Confirmation => {
            ("is the result right?", vec![command_button("Confirm", CONFIRM_COMMAND, Value::Null)])
        }
        AskUserReason::Loop => {
            ("the same step was repeated", vec![command_button("Continue", CONTINUE_COMMAND, Value::Null)])
        }
        AskUserReason::Visits => {
            ("the work was sent back too often", vec![command_button("Continue", CONTINUE_COMMAND, Value::Null)])
        }
        AskUserReason::WorkspaceClaim => {
            ("another session works in the workspace", vec![command_button("Try again", CONTINUE_COMMAND, Value::Null)])
        }
        AskUserReason::RoutingTurns | AskUserReason::PhaseLimit => {
            ("a limit was reached", vec![command_button("Continue", CONTINUE_COMMAND, Value::Null)])
        }
    };
    let row = ArtifactTableRow {
        id: "decision".to_owned(),
        group: "waiting for you".to_owned(),
        cells: cells([question.to_owned(), context.phase_name().to_string()]),
        why: String::new(),
        commands,
    };
    let content = TypedArtifactContent::Table { columns: columns(["question", "phase"]), rows: vec![row] };
    Some(new_artifact("decision", "Your decision", content))
}

/// Says for whom the session waits.
fn claim_wait_artifact(context: &ProjectFlowContext<'_>, wait: &WorkspaceClaimWait) -> FlowArtifact {
    let row = ArtifactTableRow {
        id: "workspace".to_owned(),
        group: "waiting for another session".to_owned(),
        cells: cells([wait.describe_wait(), context.phase_name().to_string()]),
        why: String::new(),
        commands: Vec::new(),
    };
    let content = TypedArtifactContent::Table { columns: columns(["workspace", "phase"]), rows: vec![row] };
    new_artifact("decision", "Waiting", content)
}

fn phases_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let current = context.phase_name();
    let state = context.state();
    let nodes = context.definition.phases.iter().map(|phase| {
        let metrics = state.metrics.get(phase.name.as_str()).cloned().unwrap_or_default();
        let is_current = phase.name == current.as_str();
        ArtifactGraphNode {
            id: phase.name.clone(),
            label: if is_current { format!("▶ {}", phase.name) } else { phase.name.clone() },
            text: phase.purpose.clone(),
            kind: "phase".to_owned(),
            role: if is_current {
                "current"
            } else if metrics.visits > 0 {
                "visited"
            } else {
                "open"
            }
            .to_owned(),
            weight: if is_current { 1.0 } else { 0.4 },
            sources: phase.agents.clone(),
        }
    });
    let edges = context.definition.edges.iter().flat_map(|edge| {
        let kind = match edge.when.names() {
            [] => "leads to".to_owned(),
            conditions => conditions.join(" and "),
        };
        let to = edge.to.names().iter();
        to.map(move |to| ArtifactGraphEdge { from: edge.from.clone(), to: to.clone(), kind: kind.clone() })
    });
    let working = state.open_turn().map(|turn| {
        let names: Vec<String> = turn.decision.agents.iter().map(|agent| context.display_name(agent)).collect();
        format!("working in {}: {} ({})", turn.decision.phase, names.join(", "), turn.decision.reason)
    });
    let gates = context.phase_state().into_iter().flat_map(|phase| &phase.open_gates);
    let gates = gates.map(|gate| format!("gate `{gate}` is open"));
    let content = TypedArtifactContent::Graph {
        nodes: nodes.collect(),
        edges: edges.collect(),
        notes: working.into_iter().chain(gates).collect(),
        metrics: vec![ArtifactMetric { name: "routing turns".to_owned(), value: json!(state.turns_total) }],
    };
    Some(new_artifact(PHASES_GRAPH, "Phases", content))
}

fn plan_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let status = context.state().plan.as_ref()?;
    let items = status.plan.steps.iter().map(|step| ArtifactChecklistItem {
        title: step.title.clone(),
        detail: step.detail.clone(),
        done_when: step.done_when.clone(),
        status: ArtifactChecklistItemStatus::Pending,
    });
    let approved = if status.approved_by.is_some() { "approved" } else { "not approved yet" };
    let goal = format!("{} ({approved})", status.plan.goal);
    Some(new_artifact("plan", "Plan", TypedArtifactContent::Checklist { goal, items: items.collect() }))
}

fn evidence_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let state = context.state();
    let verdict = state.verdict.as_ref()?;
    let is_current = state.current_verdict().is_some();
    let group = match (verdict.passed, is_current) {
        (true, true) => "passed on the current content",
        (true, false) => "passed on earlier content",
        (false, _) => "not passed",
    };
    let checks = verdict.commands.iter().enumerate().map(|(index, run)| ArtifactTableRow {
        id: format!("check-{index}"),
        group: group.to_owned(),
        cells: cells([
            run.command.clone(),
            if run.has_passed() { "passed".to_owned() } else { serde_json::to_string(&run.end).unwrap_or_default() },
            format!("{} ms", run.duration_ms),
        ]),
        why: if run.has_passed() { String::new() } else { run.output_tail.clone() },
        commands: Vec::new(),
    });
    let issues = verdict.issues.iter().enumerate().map(|(index, issue)| ArtifactTableRow {
        id: format!("issue-{index}"),
        group: "reported issues".to_owned(),
        cells: cells([issue.title.clone(), "issue".to_owned(), String::new()]),
        why: issue.steps_to_reproduce.clone(),
        commands: Vec::new(),
    });
    let rows: Vec<ArtifactTableRow> = checks.chain(issues).collect();
    let content = TypedArtifactContent::Table { columns: columns(["check", "result", "time"]), rows };
    Some(new_artifact("evidence", "Evidence", content))
}

fn routing_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let rows = context.state().turns.iter().rev().map(|turn| {
        let agents = turn.decision.agents.iter().map(|agent| {
            let how = match turn.completions.get(agent).map(|done| done.how) {
                None if turn.is_closed => "given up",
                None => "working",
                Some(AgentTurnEndKind::Completed) => "completed",
                Some(AgentTurnEndKind::Answered) => "answered",
                Some(AgentTurnEndKind::AutoCompleted) => "auto-completed",
                Some(AgentTurnEndKind::Failed) => "failed",
                Some(AgentTurnEndKind::Stopped) => "stopped",
            };
            format!("{} ({how})", context.display_name(agent))
        });
        let agents = agents.collect::<Vec<_>>().join(", ");
        ArtifactTableRow {
            id: turn.id.to_string(),
            group: if turn.is_closed { "closed" } else { "open" }.to_owned(),
            cells: cells([turn.id.to_string(), turn.decision.phase.to_string(), agents]),
            why: turn.decision.reason.clone(),
            commands: Vec::new(),
        }
    });
    let mut rows: Vec<ArtifactTableRow> = rows.collect();
    rows.sort_by(|one, other| other.group.cmp(&one.group));
    let content = TypedArtifactContent::Table { columns: columns(["turn", "phase", "agents"]), rows: rows.clone() };
    (!rows.is_empty()).then(|| new_artifact("routing", "Routing turns", content))
}

fn files_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let changes = context.state().changed_files.values().take(ARTIFACT_ROWS_MAX);
    let rows: Vec<ArtifactTableRow> = changes
        .map(|change| ArtifactTableRow {
            id: change.path.clone(),
            group: serde_json::to_value(change.kind)
                .ok()
                .and_then(|kind| kind.as_str().map(str::to_owned))
                .unwrap_or_default(),
            cells: cells([change.path.clone(), format!("+{} −{}", change.lines_added, change.lines_removed)]),
            why: String::new(),
            commands: Vec::new(),
        })
        .collect();
    let content = TypedArtifactContent::Table { columns: columns(["file", "lines"]), rows: rows.clone() };
    (!rows.is_empty()).then(|| new_artifact("files", "Changed files", content))
}

fn checkpoints_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let state = context.state();
    let rows: Vec<ArtifactTableRow> = state
        .checkpoints
        .iter()
        .rev()
        .map(|entry| {
            let is_current = state.content.digest() == Some(entry.checkpoint.as_str());
            let restore = command_button("Restore files", RESTORE_COMMAND, json!({"checkpoint": entry.checkpoint}));
            ArtifactTableRow {
                id: entry.checkpoint.clone(),
                group: if is_current { "current content" } else { "earlier content" }.to_owned(),
                cells: cells([
                    entry.label.clone(),
                    entry.checkpoint.chars().take(12).collect(),
                    entry.visit.to_string(),
                ]),
                why: String::new(),
                commands: if is_current { Vec::new() } else { vec![restore] },
            }
        })
        .collect();
    let content =
        TypedArtifactContent::Table { columns: columns(["checkpoint", "content", "visit"]), rows: rows.clone() };
    (!rows.is_empty()).then(|| new_artifact("checkpoints", "Checkpoints", content))
}

fn lessons_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let lessons =
        context.state().lessons.iter().flat_map(|(agent, lessons)| lessons.iter().map(move |lesson| (agent, lesson)));
    let items: Vec<ArtifactNotesItem> = lessons
        .map(|(agent, lesson)| ArtifactNotesItem {
            title: format!("{}: {}", context.display_name(agent), lesson.title),
            text: lesson.text.clone(),
            turn: None,
        })
        .collect();
    (!items.is_empty()).then(|| new_artifact("lessons", "Lessons", TypedArtifactContent::Notes { items }))
}

fn metrics_artifact(context: &ProjectFlowContext<'_>) -> Option<FlowArtifact> {
    let ledger = &context.view.session.ledger.by_phase;
    let rows: Vec<ArtifactTableRow> = context
        .state()
        .metrics
        .iter()
        .map(|(phase, metrics)| {
            let usage = ledger.get(&format!("{PHASES_GRAPH}/{phase}")).copied().unwrap_or_default();
            ArtifactTableRow {
                id: phase.to_string(),
                group: "phases".to_owned(),
                cells: cells([
                    phase.to_string(),
                    metrics.visits.to_string(),
                    format!("{} s", metrics.duration_ms / 1_000),
                    metrics.routing_turns.to_string(),
                    metrics.loops.to_string(),
                    metrics.refusals.to_string(),
                    (usage.input_tokens + usage.output_tokens).to_string(),
                    format!("{:.4} USD", usage.cost_microusd as f64 / 1e6),
                ]),
                why: String::new(),
                commands: Vec::new(),
            }
        })
        .collect();
    let columns = columns(["phase", "visits", "time", "routing turns", "loops", "refusals", "tokens", "cost"]);
    (!rows.is_empty()).then(|| {
        new_artifact("metrics", "Phases in numbers", TypedArtifactContent::Table { columns, rows: rows.clone() })
    })
}
