//! What a flow puts on show, for the terminal. It goes by the form alone and knows no flow.

use std::collections::BTreeMap;

use segue_core::flow::artifact::{
    Artifact, ArtifactContent, ArtifactEdge, ArtifactMetric, ArtifactNode, ArtifactNote, ArtifactTableRow,
    ChecklistItem, ChecklistItemStatus,
};

use serde_json::Value;

use super::RenderOptions;
use super::text::{sanitize_for_terminal, to_single_line, wrap_lines};
use super::text_table::{ColumnLayout, TextTable};
use crate::limits::GRAPH_LINES_MAX;

const INDENT: &str = "  ";

/// Everything on show, one below the other.
pub fn render_artifacts(all: &[Artifact], screen: RenderOptions) -> String {
    all.iter()
        .map(|exhibit| {
            format!(
                "\n{}\n{}",
                screen.paint.bold(to_single_line(&exhibit.title)),
                render_artifact_form(&exhibit.content, screen)
            )
        })
        .collect()
}

fn render_artifact_form(form: &ArtifactContent, screen: RenderOptions) -> String {
    match form {
        ArtifactContent::Table { columns, rows } => render_artifact_table(columns, rows, screen),
        ArtifactContent::Notes { items } => items.iter().map(|item| render_note(item, screen)).collect(),
        ArtifactContent::Checklist { goal, items } => {
            let items: String = items.iter().map(render_checklist_item).collect();
            format!("{INDENT}{}\n{items}", to_single_line(goal))
        }
        ArtifactContent::Graph { nodes, edges, notes, metrics: measures } => {
            render_artifact_graph(nodes, edges, notes, measures, screen)
        }
    }
}

fn render_artifact_table(columns: &[String], rows: &[ArtifactTableRow], screen: RenderOptions) -> String {
    let says_why = rows.iter().any(|row| !row.why.is_empty());
    let groups = rows.iter().any(|row| !row.group.is_empty());
    let group = groups.then(|| (String::new(), ColumnLayout::Left));
    let why = says_why.then(|| ("why".to_owned(), ColumnLayout::Wrap));
    let own = columns.iter().enumerate().map(|(place, name)| {
        let column = if place == 0 { ColumnLayout::Left } else { ColumnLayout::Wrap };
        (name.clone(), column)
    });
    let mut drawn = TextTable::new(group.into_iter().chain(own).chain(why));
    for row in rows {
        let group = groups.then(|| row.group.clone());
        let why = says_why.then(|| row.why.clone());
        drawn.add_row(group.into_iter().chain(row.cells.iter().cloned()).chain(why));
    }
    indent_lines(&drawn.render(screen.width.saturating_sub(INDENT.len()), screen.paint))
}

fn indent_lines(text: &str) -> String {
    text.lines().map(|line| format!("{INDENT}{line}\n")).collect()
}

fn render_note(item: &ArtifactNote, screen: RenderOptions) -> String {
    let columns = screen.width.saturating_sub(INDENT.len() * 2).max(20);
    let title =
        if item.title.is_empty() { String::new() } else { format!("{INDENT}{}\n", to_single_line(&item.title)) };
    let lines = item.text.lines().flat_map(|line| wrap_lines(&sanitize_for_terminal(line), columns));
    let lines: String = lines.map(|line| format!("{INDENT}{INDENT}{}\n", screen.paint.dim(line))).collect();
    format!("{title}{lines}")
}

fn render_checklist_item(item: &ChecklistItem) -> String {
    let mark = match item.status {
        ChecklistItemStatus::Complete => "✓",
        ChecklistItemStatus::Active => "→",
        ChecklistItemStatus::Pending => "·",
    };
    let done_when = match (&item.status, item.done_when.as_str()) {
        (ChecklistItemStatus::Active, done_when) if !done_when.is_empty() => {
            format!(" (done when {})", to_single_line(done_when))
        }
        _ => String::new(),
    };
    format!("{INDENT}{mark} {}{done_when}\n", to_single_line(&item.title))
}

fn render_artifact_graph(
    nodes: &[ArtifactNode],
    edges: &[ArtifactEdge],
    notes: &[String],
    measures: &[ArtifactMetric],
    screen: RenderOptions,
) -> String {
    let mut things = TextTable::new([("", ColumnLayout::Left), ("", ColumnLayout::Wrap), ("", ColumnLayout::Wrap)]);
    for node in nodes.iter().take(GRAPH_LINES_MAX) {
        things.add_row([
            node.label.clone(),
            format!("{} {}", node.kind, node.role).trim().to_owned(),
            node.sources.join(", "),
        ]);
    }
    let mut out = indent_lines(&things.render(screen.width.saturating_sub(INDENT.len()), screen.paint));
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
    let measures: Vec<String> =
        measures.iter().map(|measure| format!("{} {}", measure.name, format_measure(&measure.value))).collect();
    if !measures.is_empty() {
        out.push_str(&indent_lines(
            &wrap_lines(&measures.join(", "), screen.width.saturating_sub(INDENT.len()).max(20)).join("\n"),
        ));
    }
    out
}

/// Says how many there are beyond those that were listed.
fn append_omitted_count(out: &mut String, all: usize) {
    if all > GRAPH_LINES_MAX {
        out.push_str(&format!("{INDENT}… and {} more\n", all - GRAPH_LINES_MAX));
    }
}

/// A measure as people read it: words as they are, fractions with two digits.
fn format_measure(value: &Value) -> String {
    match value {
        Value::String(word) => to_single_line(word),
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::paint::Paint;
    use super::*;
    use serde_json::json;

    fn drawn(exhibit: serde_json::Value) -> String {
        let exhibit: Artifact = serde_json::from_value(exhibit).expect("an exhibit");
        render_artifacts(&[exhibit], RenderOptions { paint: Paint::new(false), width: 60, is_terminal: false })
    }

    #[test]
    fn a_table_stands_in_groups_with_its_reasons() {
        let text = drawn(
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
        let text = drawn(json!({"name": "r", "title": "Reasoning", "type": "notes", "items": [
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
    fn checklists_and_graphs_are_told_in_lines() {
        let text =
            drawn(json!({"name": "w", "title": "Workflow", "type": "checklist", "goal": "a flat by May", "items": [
            {"title": "See the bank", "detail": "", "done_when": "you hold the letter", "status": "complete"},
            {"title": "View flats", "detail": "", "done_when": "one is liked", "status": "active"}]}));
        assert_eq!(text, "\nWorkflow\n  a flat by May\n  ✓ See the bank\n  → View flats (done when one is liked)\n");
        let node = |id: &str, label: &str| json!({"id": id, "label": label, "text": "", "kind": "factual", "role": "anchor", "weight": 1.0, "by": ["answer 1"]});
        let text = drawn(
            json!({"name": "m", "title": "Map", "type": "graph", "nodes": [node("a", "rent"), node("b", "buy")],
            "edges": [{"from": "a", "to": "b", "kind": "conflicts"}], "notes": ["how long?"],
            "measures": [{"name": "shape", "value": "contested"}, {"name": "tension", "value": 2.0 / 3.0}, {"name": "answers", "value": 3}]}),
        );
        let told = "  rent conflicts buy\n  ? how long?\n  shape contested, tension 0.67, answers 3\n";
        assert!(text.ends_with(told), "{text}");
    }

    #[test]
    fn of_a_large_graph_the_beginning_is_shown_and_the_rest_counted() {
        let node = |id: usize| json!({"id": id.to_string(), "label": format!("n{id}"), "text": "", "kind": "", "role": "", "weight": 1.0, "by": []});
        let count = GRAPH_LINES_MAX + 2;
        let nodes: Vec<_> = (0..count).map(node).collect();
        let edges: Vec<_> =
            (0..count).map(|id| json!({"from": "0", "to": id.to_string(), "kind": "supports"})).collect();
        let graph = json!({"name": "m", "title": "Map", "type": "graph", "nodes": nodes, "edges": edges, "notes": [], "measures": []});
        let text = drawn(graph);
        assert_eq!(text.matches("… and 2 more").count(), 2, "{text}");
        assert_eq!(text.matches(" supports ").count(), GRAPH_LINES_MAX);
    }
}
