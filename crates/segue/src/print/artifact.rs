//! Renders the artifacts of a flow as text. Each kind of artifact has one form, whatever the flow.

use std::collections::BTreeMap;

use segue_core::flow::{
    ArtifactChecklistItem, ArtifactChecklistItemStatus, ArtifactGraphEdge, ArtifactGraphNode, ArtifactMetric,
    ArtifactNotesItem, ArtifactTableRow, FlowArtifact, TypedArtifactContent,
};

use serde_json::Value;

use super::CliOutputCapabilities;
use super::text::{sanitize_for_terminal, to_single_line, wrap_lines};
use super::text_table::{ColumnLayout, TextTable};
use crate::limits::GRAPH_LINES_MAX;

const INDENT: &str = "  ";

/// Renders several artifacts, one below the other.
pub(crate) fn render_artifacts(artifacts: &[FlowArtifact], screen: CliOutputCapabilities) -> String {
    let render = |artifact: &FlowArtifact| {
        let title = screen.paint.bold(to_single_line(&artifact.title));
        format!("\n{title}\n{}", render_artifact_content(&artifact.content, screen))
    };
    artifacts.iter().map(render).collect()
}

fn render_artifact_content(content: &TypedArtifactContent, screen: CliOutputCapabilities) -> String {
    match content {
        TypedArtifactContent::Table { columns, rows } => render_artifact_table(columns, rows, screen),
        TypedArtifactContent::Notes { items } => items.iter().map(|item| render_note(item, screen)).collect(),
        TypedArtifactContent::Checklist { goal, items } => {
            let items: String = items.iter().map(render_checklist_item).collect();
            format!("{INDENT}{}\n{items}", to_single_line(goal))
        }
        TypedArtifactContent::Graph { nodes, edges, notes, metrics } => {
            render_artifact_graph(nodes, edges, notes, metrics, screen)
        }
    }
}

fn render_artifact_table(columns: &[String], rows: &[ArtifactTableRow], screen: CliOutputCapabilities) -> String {
    let has_reasons = rows.iter().any(|row| !row.why.is_empty());
    let has_groups = rows.iter().any(|row| !row.group.is_empty());
    let group = has_groups.then(|| (String::new(), ColumnLayout::Left));
    let reason = has_reasons.then(|| ("why".to_owned(), ColumnLayout::Wrap));
    let columns = columns.iter().enumerate().map(|(index, name)| {
        let layout = if index == 0 { ColumnLayout::Left } else { ColumnLayout::Wrap };
        (name.clone(), layout)
    });
    let mut table = TextTable::new(group.into_iter().chain(columns).chain(reason));
    for row in rows {
        let group = has_groups.then(|| row.group.clone());
        let reason = has_reasons.then(|| row.why.clone());
        table.add_row(group.into_iter().chain(row.cells.iter().cloned()).chain(reason));
    }
    indent_lines(&table.render(screen.width.saturating_sub(INDENT.len()), screen.paint))
}

fn indent_lines(text: &str) -> String {
    text.lines().map(|line| format!("{INDENT}{line}\n")).collect()
}

fn render_note(item: &ArtifactNotesItem, screen: CliOutputCapabilities) -> String {
    let columns = screen.width.saturating_sub(INDENT.len() * 2).max(20);
    let title =
        if item.title.is_empty() { String::new() } else { format!("{INDENT}{}\n", to_single_line(&item.title)) };
    let lines = item.text.lines().flat_map(|line| wrap_lines(&sanitize_for_terminal(line), columns));
    let lines: String = lines.map(|line| format!("{INDENT}{INDENT}{}\n", screen.paint.dim(line))).collect();
    format!("{title}{lines}")
}

fn render_checklist_item(item: &ArtifactChecklistItem) -> String {
    let mark = match item.status {
        ArtifactChecklistItemStatus::Complete => "✓",
        ArtifactChecklistItemStatus::Active => "→",
        ArtifactChecklistItemStatus::Pending => "·",
    };
    let done_when = match (&item.status, item.done_when.as_str()) {
        (ArtifactChecklistItemStatus::Active, done_when) if !done_when.is_empty() => {
            format!(" (done when {})", to_single_line(done_when))
        }
        _ => String::new(),
    };
    format!("{INDENT}{mark} {}{done_when}\n", to_single_line(&item.title))
}

fn render_artifact_graph(
    nodes: &[ArtifactGraphNode],
    edges: &[ArtifactGraphEdge],
    notes: &[String],
    metrics: &[ArtifactMetric],
    screen: CliOutputCapabilities,
) -> String {
    let mut node_table = TextTable::new([("", ColumnLayout::Left), ("", ColumnLayout::Wrap), ("", ColumnLayout::Wrap)]);
    for node in nodes.iter().take(GRAPH_LINES_MAX) {
        node_table.add_row([
            node.label.clone(),
            format!("{} {}", node.kind, node.role).trim().to_owned(),
            node.sources.join(", "),
        ]);
    }
    let mut out = indent_lines(&node_table.render(screen.width.saturating_sub(INDENT.len()), screen.paint));
    append_omitted_count(&mut out, nodes.len());
    let labels: BTreeMap<&str, &str> = nodes.iter().map(|node| (node.id.as_str(), node.label.as_str())).collect();
    let label = |id: &'_ str| labels.get(id).map_or_else(|| id.to_owned(), |label| (*label).to_owned());
    for edge in edges.iter().take(GRAPH_LINES_MAX) {
        let line = format!("{} {} {}", label(&edge.from), edge.kind, label(&edge.to));
        out.push_str(&format!("{INDENT}{}\n", to_single_line(&line)));
    }
    append_omitted_count(&mut out, edges.len());
    notes.iter().take(GRAPH_LINES_MAX).for_each(|note| out.push_str(&format!("{INDENT}? {}\n", to_single_line(note))));
    append_omitted_count(&mut out, notes.len());
    let metrics: Vec<String> =
        metrics.iter().map(|metric| format!("{} {}", metric.name, format_metric_value(&metric.value))).collect();
    if !metrics.is_empty() {
        out.push_str(&indent_lines(
            &wrap_lines(&metrics.join(", "), screen.width.saturating_sub(INDENT.len()).max(20)).join("\n"),
        ));
    }
    out
}

/// Appends the number of list items that were not printed, if any.
fn append_omitted_count(out: &mut String, total: usize) {
    if total > GRAPH_LINES_MAX {
        out.push_str(&format!("{INDENT}… and {} more\n", total - GRAPH_LINES_MAX));
    }
}

/// Formats the value of a metric; fractions get two digits.
fn format_metric_value(value: &Value) -> String {
    match value {
        Value::String(text) => to_single_line(text),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::paint::Paint;
    use super::*;
    use serde_json::json;

    fn rendered(artifact: serde_json::Value) -> String {
        let artifact: FlowArtifact = serde_json::from_value(artifact).expect("an artifact");
        render_artifacts(&[artifact], CliOutputCapabilities { paint: Paint::new(false), width: 60, is_terminal: false })
    }

    #[test]
    fn a_table_has_its_groups_and_reasons() {
        let text = rendered(
            json!({"name": "entities", "title": "Entities", "type": "table", "columns": ["reference", "label"], "rows": [
            {"id": "a", "group": "active", "cells": ["recipe_1", "Lemon Herb Chicken"], "why": ""},
            {"id": "b", "group": "demoted", "cells": ["recipe_3", "Baked Cod"], "why": "no cod this week"}]}),
        );
        expect_test::expect![[r#"

            Entities
                       REFERENCE  LABEL               WHY
              active   recipe_1   Lemon Herb Chicken
              demoted  recipe_3   Baked Cod           no cod this week
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn notes_are_wrapped_below_their_headings() {
        let text = rendered(json!({"name": "r", "title": "Reasoning", "type": "notes", "items": [
            {"title": "Turn 2 (narrowing): no cod", "text": "decided plan_direct\nstep 1 (analyze recipe): six of the eight recipes are left over now", "turn": 2}]}));
        expect_test::expect![[r#"

            Reasoning
              Turn 2 (narrowing): no cod
                decided plan_direct
                step 1 (analyze recipe): six of the eight recipes are
                left over now
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn checklists_and_graphs_are_rendered_as_lines() {
        let text =
            rendered(json!({"name": "w", "title": "Workflow", "type": "checklist", "goal": "a flat by May", "items": [
            {"title": "See the bank", "detail": "", "done_when": "you hold the letter", "status": "complete"},
            {"title": "View flats", "detail": "", "done_when": "one is liked", "status": "active"}]}));
        assert_eq!(text, "\nWorkflow\n  a flat by May\n  ✓ See the bank\n  → View flats (done when one is liked)\n");
        let node = |id: &str, label: &str| json!({"id": id, "label": label, "text": "", "kind": "factual", "role": "anchor", "weight": 1.0, "sources": ["answer 1"]});
        let text = rendered(
            json!({"name": "m", "title": "Map", "type": "graph", "nodes": [node("a", "rent"), node("b", "buy")],
            "edges": [{"from": "a", "to": "b", "kind": "conflicts"}], "notes": ["how long?"],
            "metrics": [{"name": "shape", "value": "contested"}, {"name": "tension", "value": 2.0 / 3.0}, {"name": "answers", "value": 3}]}),
        );
        let expected = "  rent conflicts buy\n  ? how long?\n  shape contested, tension 0.67, answers 3\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn a_large_graph_is_cut_and_the_rest_is_counted() {
        let node = |id: usize| json!({"id": id.to_string(), "label": format!("n{id}"), "text": "", "kind": "", "role": "", "weight": 1.0, "sources": []});
        let count = GRAPH_LINES_MAX + 2;
        let nodes: Vec<_> = (0..count).map(node).collect();
        let edges: Vec<_> =
            (0..count).map(|id| json!({"from": "0", "to": id.to_string(), "kind": "supports"})).collect();
        let graph = json!({"name": "m", "title": "Map", "type": "graph", "nodes": nodes, "edges": edges, "notes": [], "metrics": []});
        let text = rendered(graph);
        assert_eq!(text.matches("… and 2 more").count(), 2, "{text}");
        assert_eq!(text.matches(" supports ").count(), GRAPH_LINES_MAX);
    }
}
