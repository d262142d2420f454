//! Prints evaluations: a table of measures and one of usage for each flow, and in words what the model is good enough for.

use segue_core::ids::ModelName;
use segue_core::signal::SignalForm;
use segue_eval::conversation::EvalConversationSpec;
use segue_eval::report::{ModelEvaluationInFlow, ModelSuitabilityForRole, RoleUsage};
use serde_json::{Value, json};

use crate::cli::GlobalArgs;
use crate::limits::FAILURES_SHOWN_MAX;
use crate::print::text_table::{ColumnLayout, TextTable};
use crate::print::{self, CliOutputCapabilities, number_format};

/// The evaluations of one model.
pub(super) struct ModelEvaluationInAllFlows {
    pub model: ModelName,
    /// The model as its provider knows it.
    pub identity: Option<String>,
    pub flows: Vec<ModelEvaluationInFlow>,
}

pub(super) fn print_conversations(global: &GlobalArgs, conversations: &[EvalConversationSpec]) -> anyhow::Result<()> {
    if global.json {
        return print::print_json(&json!({ "conversations": conversations }));
    }
    let mut table = TextTable::new([
        ("flow", ColumnLayout::Left),
        ("conversation", ColumnLayout::Left),
        ("turns", ColumnLayout::Right),
        ("about", ColumnLayout::Wrap),
    ]);
    for conversation in conversations {
        let EvalConversationSpec { flow, name, turns, about, .. } = conversation;
        table.add_row([flow.to_string(), name.clone(), turns.to_string(), about.clone()]);
    }
    let screen = CliOutputCapabilities::for_stdout();
    print::write_stdout(&table.render(screen.width, screen.paint))
}

pub(super) fn print_evaluations(
    global: &GlobalArgs,
    evaluations: &[ModelEvaluationInAllFlows],
    is_interrupted: bool,
) -> anyhow::Result<()> {
    if global.json {
        let models: Vec<Value> = evaluations.iter().map(ModelEvaluationInAllFlows::to_json).collect();
        return print::print_json(&json!({ "interrupted": is_interrupted, "models": models }));
    }
    let mut text = String::new();
    for evaluation in evaluations {
        for flow in &evaluation.flows {
            text.push_str(&render_flow(&evaluation.model, flow));
        }
    }
    if is_interrupted {
        text.push_str("Interrupted: only the finished conversations are counted, and no result is kept.\n");
    }
    print::write_stdout(&text)
}

impl ModelEvaluationInAllFlows {
    fn to_json(&self) -> Value {
        let flows = self.flows.iter().map(|flow| {
            let mut value = serde_json::to_value(flow).unwrap_or_default();
            value["verdicts"] = json!(flow.verdicts());
            value
        });
        json!({ "model": self.model, "provider_model": self.identity, "flows": flows.collect::<Vec<_>>() })
    }
}

fn render_flow(model: &ModelName, evaluation: &ModelEvaluationInFlow) -> String {
    let screen = CliOutputCapabilities::for_stdout();
    let signals = match evaluation.signals {
        Some(SignalForm::Inline) => ", signals in replies",
        Some(SignalForm::Structured) => ", signals as separate questions",
        None => "",
    };
    let conversations = number_format::format_plural(evaluation.conversations.len() as u64, "conversation");
    let turns = number_format::format_plural(evaluation.turns as u64, "turn");
    let duration = number_format::format_duration(evaluation.duration_ms);
    let title = format!("{} with {model}: {conversations}, {turns}, {duration}{signals}", evaluation.flow);
    let mut measures = TextTable::new([
        ("role", ColumnLayout::Left),
        ("measure", ColumnLayout::Wrap),
        ("result", ColumnLayout::Right),
        ("wanted", ColumnLayout::Right),
        ("", ColumnLayout::Left),
    ]);
    for measure in &evaluation.measures {
        let wanted = measure.required_percent().map_or_else(|| "–".to_owned(), |percent| format!("{percent} %"));
        let result = format!("{} of {} ({} %)", measure.passed, measure.total, measure.percent());
        let mark = if measure.is_met() { "" } else { "not met" };
        measures.add_row([measure.role.clone(), measure.name.clone(), result, wanted, mark.to_owned()]);
    }
    let failures: Vec<&String> = evaluation.conversations.iter().flat_map(|one| &one.failures).collect();
    let mut text =
        format!("{title}\n\n{}\n{}\n", measures.render(screen.width, screen.paint), render_usage(evaluation));
    if !failures.is_empty() {
        text.push_str("What went wrong:\n");
        for failure in failures.iter().take(FAILURES_SHOWN_MAX) {
            text.push_str(&format!("- {}\n", print::text::sanitize_for_terminal(failure)));
        }
        if failures.len() > FAILURES_SHOWN_MAX {
            text.push_str(&format!("- and {} more (see --json)\n", failures.len() - FAILURES_SHOWN_MAX));
        }
        text.push('\n');
    }
    text.push_str(&render_verdict(model, evaluation));
    text.push('\n');
    text
}

fn render_usage(evaluation: &ModelEvaluationInFlow) -> String {
    let screen = CliOutputCapabilities::for_stdout();
    let mut usage = TextTable::new([
        ("role", ColumnLayout::Left),
        ("calls", ColumnLayout::Right),
        ("tokens in", ColumnLayout::Right),
        ("cached", ColumnLayout::Right),
        ("tokens out", ColumnLayout::Right),
        ("cost", ColumnLayout::Right),
        ("time per call", ColumnLayout::Right),
    ]);
    let total = RoleUsage { role: "all".to_owned(), ..evaluation.total_usage() };
    for role in evaluation.usage.iter().chain([&total]) {
        let cached = (role.cached_tokens * 100).checked_div(role.input_tokens).unwrap_or(0);
        usage.add_row([
            role.role.clone(),
            role.calls.to_string(),
            number_format::format_count(role.input_tokens),
            format!("{cached} %"),
            number_format::format_count(role.output_tokens),
            number_format::format_cost(role.cost_microusd),
            number_format::format_duration(role.duration_ms.checked_div(role.calls).unwrap_or(0)),
        ]);
    }
    usage.render(screen.width, screen.paint)
}

/// Says in words what the model is good enough for.
fn render_verdict(model: &ModelName, evaluation: &ModelEvaluationInFlow) -> String {
    let verdicts = evaluation.verdicts();
    let flow = &evaluation.flow;
    let good: Vec<&str> =
        verdicts.iter().filter(|verdict| verdict.is_good_enough).map(|verdict| verdict.role.as_str()).collect();
    let bad: Vec<&ModelSuitabilityForRole> = verdicts.iter().filter(|verdict| !verdict.is_good_enough).collect();
    if bad.is_empty() {
        return format!("{model} is good enough for every role of {flow} that was measured.\n");
    }
    let mut text = match good.as_slice() {
        [] => format!("{model} is not good enough for {flow}.\n"),
        roles => format!("In {flow}, {model} is good enough for: {}.\n", roles.join(", ")),
    };
    for verdict in bad {
        text.push_str(&format!(
            "It is not good enough for the role {}: {}.\n",
            verdict.role,
            verdict.reasons.join("; ")
        ));
    }
    text
}
