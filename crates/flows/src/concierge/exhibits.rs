//! What the flow puts on show: the plan that is carried out, and the maps of what was answered.

use segue_core::flow::View;
use segue_core::flow::exhibit::{Exhibit, Form, Item, ItemStatus, Link, Measure, Node};
use serde_json::Value;

use super::analysis::{Analysis, analyse};
use super::facts::Known;
use super::map::{self, Claim, Map};
use super::state::Memory;
use super::workflow::{Status, Workflow};

/// Everything there is to see.
pub(super) fn on_show(view: &View<'_, Memory>) -> Vec<Exhibit> {
    let memory = view.state;
    let workflow = memory.workflow.as_ref().map(checklist);
    let maps = [
        ("map", "What the answers say", memory.opening.as_ref()),
        ("plan_map", "What the answers say about the plan", memory.plan.as_ref().map(|plan| &plan.known)),
        ("findings_map", "What was found last", memory.findings.as_ref().map(|findings| &findings.known)),
    ];
    let maps = maps.into_iter().filter_map(|(name, title, known)| {
        let Known::Mapped { text, answers, .. } = known? else { return None };
        let reading = map::parse(&view.text(*text), *answers).ok()?;
        Some(Exhibit::new(name, title, graph(&reading.map, *answers)))
    });
    workflow.into_iter().chain(maps).collect()
}

fn checklist(workflow: &Workflow) -> Exhibit {
    let items = workflow.steps.iter().enumerate().map(|(place, step)| Item {
        title: step.title.clone(),
        detail: step.description.clone(),
        done_when: step.done_when.clone(),
        status: match workflow.status(place) {
            Status::Complete => ItemStatus::Complete,
            Status::Active => ItemStatus::Active,
            Status::Pending => ItemStatus::Pending,
        },
    });
    let form = Form::Checklist { goal: workflow.goal.clone(), items: items.collect() };
    Exhibit::new("workflow", "Workflow", form)
}

fn graph(map: &Map, answers: u32) -> Form {
    let analysis = analyse(map, answers);
    let nodes = map.claims.iter().map(|claim| node(claim, answers)).collect();
    let edges = map.edges.iter().map(|edge| Link {
        from: edge.from.to_string(),
        to: edge.to.to_string(),
        kind: word(serde_json::to_value(edge.kind)),
    });
    Form::Graph { nodes, edges: edges.collect(), notes: map.gaps.clone(), measures: measures(&analysis) }
}

fn node(claim: &Claim, answers: u32) -> Node {
    let supporters = u32::try_from(claim.supporters.len()).unwrap_or(answers);
    Node {
        id: claim.id.to_string(),
        label: claim.label.clone(),
        text: claim.text.clone(),
        kind: word(serde_json::to_value(claim.kind)),
        role: word(serde_json::to_value(claim.role)),
        weight: f64::from(supporters) / f64::from(answers.max(1)),
        by: claim.supporters.iter().map(|answer| format!("answer {answer}")).collect(),
    }
}

fn measures(analysis: &Analysis) -> Vec<Measure> {
    let mut measures = vec![
        Measure { name: "shape".to_owned(), value: analysis.shape.name().into() },
        Measure { name: "confidence".to_owned(), value: analysis.confidence.into() },
        Measure { name: "answers".to_owned(), value: analysis.answers.into() },
    ];
    if let Ok(Value::Object(ratios)) = serde_json::to_value(analysis.ratios) {
        measures.extend(ratios.into_iter().map(|(name, value)| Measure { name, value }));
    }
    measures
}

/// What a closed set of words says, as it is written down.
fn word(value: Result<Value, serde_json::Error>) -> String {
    value.ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}
