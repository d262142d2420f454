//! Renders the fragments of every node's prompt: picks the template and fills it with the data from `prompt_context`.

use segue_core::body::TextRef;
use segue_core::context::{FragmentSource, RenderedFragment};
use segue_core::flow::FragmentRenderContext;
use segue_core::signal::{canonical_json, wrap_in_code_fence};
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::truncate_chars;
use super::answer_schema::has_records_in_prompt;
use super::assistant_context::AssistantSessionContext;
use super::domain::{DomainSchema, RecordFieldKind, RecordFilterOperator, RecordType};
use super::facts::{AssistantPlanStep, AssistantPlanStepKind};
use super::prompt_context::{
    self, ConversationForPrompt, RecordRenderer, TurnSummariesForPrompt, placeholder_record_and_change,
};
use super::spec::*;
use super::tools::{AvailableMcpTool, DEFAULT_RECORD_TYPE, DomainToolResult, list_available_tools};
use super::{calendar, snapshot};
use crate::fragment_specs::MESSAGE_FRAGMENT;
use crate::limits::{COMPACTED_WORDS_MAX, STEP_TOOL_CALLS_MAX, TOOL_SCHEMAS_CHARS_MAX, TOOL_SUMMARY_CHARS_MAX};
use crate::template::fill_template;

/// The name and text of a template, by its path under `prompts/assistant`.
macro_rules! prompt {
    ($name:literal) => {
        ($name, include_str!(concat!("../../prompts/assistant/", $name, ".md")))
    };
}

/// Renders a fragment of a prompt.
pub(super) fn render_fragment(
    context: &AssistantSessionContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
) -> RenderedFragment {
    match (request.call_request.role.as_str(), name) {
        (_, MESSAGE_FRAGMENT) => render_message(context),
        (_, TODAY_FRAGMENT) => render_today(context),
        (_, SNAPSHOT_FRAGMENT) => render_snapshot(context),
        (REPLY_ROLE, REPAIR_FRAGMENT) => render_template(prompt!("reply/repair"), &(), "the reply was empty"),
        (_, REPAIR_FRAGMENT) => render_repair(request),
        (REPLY_ROLE, DOMAIN_FRAGMENT) => {
            render_template(prompt!("shared/domain_brief"), context.domain, "what the domain is about")
        }
        (role, DOMAIN_FRAGMENT) => {
            let tools = if role == THINK_ROLE { server_tools_template_data(context) } else { Vec::new() };
            render_template(
                prompt!("shared/domain"),
                &domain_template_data(context.domain, &tools),
                "the types of records",
            )
        }
        (UNDERSTAND_ROLE, name) => render_understand_fragment(context, name),
        (THINK_ROLE, name) => render_think_fragment(context, name),
        (ACT_ROLE, name) => render_act_fragment(context, request, name),
        (REPLY_ROLE, name) => render_reply_fragment(context, name),
        (SUMMARIZE_ROLE, name) => render_summarize_fragment(context, request, name),
        _ => omit_fragment("the flow has no such fragment"),
    }
}

fn omit_fragment(why: &str) -> RenderedFragment {
    RenderedFragment::Omitted(why.to_owned())
}

fn render_template(prompt: (&str, &'static str), arguments: &impl Serialize, why: &str) -> RenderedFragment {
    let (name, text) = prompt;
    let source = FragmentSource::Template(format!("assistant/{name}"));
    RenderedFragment::New { text: fill_template(text, arguments), source, why: why.to_owned() }
}

/// Like [`render_template`], for a fragment whose content comes from the state.
fn render_from_state(
    prompt: (&str, &'static str),
    arguments: &impl Serialize,
    why: impl Into<String>,
) -> RenderedFragment {
    RenderedFragment::New { text: fill_template(prompt.1, arguments), source: FragmentSource::State, why: why.into() }
}

fn render_message(context: &AssistantSessionContext<'_>) -> RenderedFragment {
    let Some(running) = context.current_turn() else { return omit_fragment("no turn is running") };
    let messages: Vec<String> =
        running.messages.iter().map(|(_, text)| context.view.read_text(*text).to_string()).collect();
    let Some((last, _)) = running.messages.last() else { return omit_fragment("the turn has no message") };
    let text = fill_template(prompt!("shared/message").1, &json!({"text": wrap_in_code_fence(&messages.join("\n\n"))}));
    RenderedFragment::New { text, source: FragmentSource::Message(*last), why: "the user's message".to_owned() }
}

fn render_today(context: &AssistantSessionContext<'_>) -> RenderedFragment {
    let (at, offset) = (context.view.session.last_event_at, context.settings.utc_offset_minutes);
    let arguments = json!({"day": calendar::local_date(at, offset), "weekday": calendar::local_weekday(at, offset)});
    render_template(prompt!("shared/today"), &arguments, "the current date")
}

fn render_snapshot(context: &AssistantSessionContext<'_>) -> RenderedFragment {
    match snapshot::snapshot_template_data(context) {
        Some(shown) => {
            render_from_state(prompt!("shared/snapshot"), &shown, "standing records and counts of this turn")
        }
        None if context.domain.has_snapshot() => omit_fragment("the snapshot could not be taken"),
        None => omit_fragment("the domain declares no snapshot"),
    }
}

fn render_repair(request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let complaints = request.call_request.metadata.get("complaints").cloned().unwrap_or_else(|| json!([]));
    render_template(prompt!("shared/repair"), &json!({"complaints": complaints}), "what was invalid in the answer")
}

/// The template data of a domain's declaration.
fn domain_template_data(domain: &DomainSchema, tools: &[Value]) -> Value {
    let types = domain.types.iter().map(|kind| {
        let fields = kind.fields.iter().map(|field| {
            json!({"name": field.name, "kind": field.kind.as_str(), "to": field.to, "required": field.required,
                "one_of": field.one_of, "min": field.min, "max": field.max, "about": field.about})
        });
        json!({"name": kind.name, "about": kind.about, "fields": fields.collect::<Vec<_>>()})
    });
    json!({"about": domain.about, "types": types.collect::<Vec<_>>(), "tools": tools})
}

/// The template data of the server's tools, for planning: names and short descriptions.
fn server_tools_template_data(context: &AssistantSessionContext<'_>) -> Vec<Value> {
    let tools = context
        .domain
        .server
        .as_ref()
        .map(|server| list_available_tools(server, &context.state().server_tools))
        .unwrap_or_default();
    let tool_data = |tool: &AvailableMcpTool<'_>| {
        let about = tool.description.split_whitespace().collect::<Vec<_>>().join(" ");
        json!({"name": tool.name, "about": truncate_chars(&about, TOOL_SUMMARY_CHARS_MAX), "writes": tool.is_write})
    };
    tools.iter().map(tool_data).collect()
}

/// The names that a domain gives to the samples in prompts.
fn instruction_template_data(domain: &DomainSchema) -> Value {
    let kind = domain.types.first();
    json!({
        "type": kind.map_or(DEFAULT_RECORD_TYPE, |kind| kind.name.as_str()),
        "typed": kind.is_some(),
        "server": domain.server.is_some(),
        "tool_calls_max": STEP_TOOL_CALLS_MAX,
    })
}

fn render_understand_fragment(context: &AssistantSessionContext<'_>, name: &str) -> RenderedFragment {
    if name == INSTRUCTION_FRAGMENT {
        return render_template(
            prompt!("understand/instruction"),
            &instruction_template_data(context.domain),
            "the node's instruction",
        );
    }
    let shown = prompt_context::build_understand_context(context.view, context.settings);
    match name {
        ENTITIES_FRAGMENT => render_from_state(
            prompt!("understand/entities"),
            &shown,
            format!("the {} newest known records", shown.rows.len()),
        ),
        CONVERSATION_FRAGMENT => render_conversation(&shown.conversation),
        PAST_DECISIONS_FRAGMENT if shown.past_understandings.is_empty() => omit_fragment("this is the first message"),
        PAST_DECISIONS_FRAGMENT => render_from_state(
            prompt!("understand/decisions"),
            &json!({"turns": shown.past_understandings}),
            "its own past decisions",
        ),
        PENDING_INPUT_FRAGMENT => render_pending_input(&shown.pending),
        _ => omit_fragment("the flow has no such fragment"),
    }
}

fn render_conversation(conversation: &ConversationForPrompt) -> RenderedFragment {
    if conversation.is_empty() {
        return omit_fragment("this is the first turn");
    }
    render_from_state(
        prompt!("shared/conversation"),
        conversation,
        format!("the last {} turns", conversation.turns.len()),
    )
}

fn render_pending_input(pending: &Option<prompt_context::PendingQuestionForPrompt>) -> RenderedFragment {
    match pending {
        Some(pending) => render_from_state(prompt!("shared/pending"), pending, "it waits for the user's answer"),
        None => omit_fragment("no question or proposal is open"),
    }
}

fn render_think_fragment(context: &AssistantSessionContext<'_>, name: &str) -> RenderedFragment {
    if name == INSTRUCTION_FRAGMENT {
        return render_template(
            prompt!("think/instruction"),
            &instruction_template_data(context.domain),
            "the node's instruction",
        );
    }
    let shown = prompt_context::build_think_context(context.view, context.settings);
    match name {
        ENTITIES_FRAGMENT => {
            render_from_state(prompt!("think/entities"), &shown, "references and labels of relevant records")
        }
        LOADED_FRAGMENT if shown.loaded.is_empty() && shown.fully_loaded_types.is_empty() => {
            omit_fragment("no records are loaded")
        }
        LOADED_FRAGMENT => render_from_state(prompt!("think/loaded"), &shown, "records that need not be read again"),
        CONVERSATION_FRAGMENT => render_conversation(&shown.conversation),
        PENDING_INPUT_FRAGMENT => render_pending_input(&shown.pending),
        REASONING_FRAGMENT => match &shown.reasoning {
            Some(past) => {
                render_from_state(prompt!("think/reasoning"), past, format!("{} turns in full", past.turns.len()))
            }
            None if !context.settings.turn_narratives => omit_fragment("`turn_narratives` is off"),
            None => omit_fragment("this is the first turn"),
        },
        CURATION_FRAGMENT => match &shown.curation {
            Some(curation) => {
                render_from_state(prompt!("think/curation"), curation, "what Understand decided in this turn")
            }
            None => omit_fragment("Understand gave no usable answer"),
        },
        _ => omit_fragment("the flow has no such fragment"),
    }
}

fn render_act_fragment(
    context: &AssistantSessionContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
) -> RenderedFragment {
    if name == INSTRUCTION_FRAGMENT {
        return render_template(
            prompt!("act/instruction"),
            &instruction_template_data(context.domain),
            "the node's instruction",
        );
    }
    let number =
        request.call_request.metadata.get("step").and_then(Value::as_u64).and_then(|step| u32::try_from(step).ok());
    let number = number.unwrap_or_default();
    let Some(shown) = prompt_context::build_act_context(context.view, context.domain, number) else {
        return omit_fragment("the plan has no such step");
    };
    match name {
        STEP_GUIDE_FRAGMENT => render_step_guide(context, &shown.step),
        STEP_FRAGMENT => render_from_state(prompt!("act/step"), &shown, "the step to carry out"),
        LOADED_RECORDS_FRAGMENT => {
            render_from_state(prompt!("act/records"), &shown.records, "the step's loaded records")
        }
        ENTITIES_FRAGMENT if shown.others.is_empty() => omit_fragment("no other records are known"),
        ENTITIES_FRAGMENT => {
            render_from_state(prompt!("act/entities"), &json!({"rows": shown.others}), "other known records")
        }
        STEP_RESULTS_FRAGMENT if shown.results.is_empty() => omit_fragment("this is the first step"),
        STEP_RESULTS_FRAGMENT => {
            render_from_state(prompt!("act/results"), &json!({"steps": shown.results}), "results of earlier steps")
        }
        TOOL_RESULT_FRAGMENT => render_tool_result(context, request, number),
        _ => omit_fragment("the flow has no such fragment"),
    }
}

/// Renders the guide for a kind of step, with its tools.
fn render_step_guide(context: &AssistantSessionContext<'_>, step: &AssistantPlanStep) -> RenderedFragment {
    let domain = context.domain;
    let about = domain.find_type(&step.subdomain).or_else(|| domain.types.first());
    let sample = about.map(|about| placeholder_record_and_change(about).0).unwrap_or_else(|| json!({}));
    let needs_tools = match step.kind {
        AssistantPlanStepKind::Analyze | AssistantPlanStepKind::Generate => !has_records_in_prompt(context, step),
        AssistantPlanStepKind::Read | AssistantPlanStepKind::Write => true,
    };
    let arguments = json!({
        "type": about.map_or(DEFAULT_RECORD_TYPE, |about| about.name.as_str()),
        "sample": canonical_json(&sample),
        "tools": needs_tools.then(|| render_tools_section(context, step, about)),
    });
    let (prompt, why) = match step.kind {
        AssistantPlanStepKind::Read => (prompt!("act/read"), "the guide for read steps"),
        AssistantPlanStepKind::Analyze => (prompt!("act/analyze"), "the guide for analyze steps"),
        AssistantPlanStepKind::Generate => (prompt!("act/generate"), "the guide for generate steps"),
        AssistantPlanStepKind::Write => (prompt!("act/write"), "the guide for write steps"),
    };
    render_template(prompt, &arguments, why)
}

fn render_tools_section(
    context: &AssistantSessionContext<'_>,
    step: &AssistantPlanStep,
    about: Option<&RecordType>,
) -> String {
    let domain = context.domain;
    let is_callable = |tool: &&AvailableMcpTool<'_>| !tool.is_write || step.operation.as_deref() == Some(tool.name);
    let server = domain.server.as_ref().map(|server| {
        let tools: Vec<AvailableMcpTool<'_>> = list_available_tools(server, &context.state().server_tools);
        let tools: Vec<&AvailableMcpTool<'_>> = tools.iter().filter(is_callable).collect();
        // The more tools there are, the shorter each schema is cut.
        let chars_max = TOOL_SCHEMAS_CHARS_MAX / tools.len().max(1);
        tools.iter().map(|tool| tool_template_data(tool, chars_max)).collect::<Vec<_>>()
    });
    let (sample, change) = about.map(placeholder_record_and_change).unwrap_or_else(|| (json!({}), json!({})));
    let links = about.into_iter().flat_map(|about| &about.fields).find(|field| field.kind == RecordFieldKind::Links);
    let links = links.map(|field| json!({"field": field.name, "to": field.to}));
    let operators: Vec<&str> = RecordFilterOperator::ALL.iter().map(|(word, _)| *word).collect();
    let arguments = json!({
        "server": server,
        "type": about.map(|about| about.name.as_str()),
        "label": about.map(|about| about.fields.iter().find(|field| field.kind == RecordFieldKind::Text).map_or(&about.label, |field| &field.name)),
        "operators": operators.join(", "),
        "operation": step.operation,
        "has_drafts": context.state().entities.entities.keys().any(|reference| reference.starts_with("gen_")),
        "sample": canonical_json(&sample),
        "change": canonical_json(&change),
        "links": links,
    });
    fill_template(prompt!("act/tools").1, &arguments)
}

/// The template data of a server's tool, with its arguments.
fn tool_template_data(tool: &AvailableMcpTool<'_>, chars_max: usize) -> Value {
    let references = tool.config.into_iter().flat_map(|declared| &declared.references);
    let references = references.map(|(name, kind)| json!({"name": name, "type": kind}));
    json!({
        "name": tool.name, "about": tool.description, "writes": tool.is_write,
        "arguments": tool.input_schema.map(|arguments| truncate_chars(arguments, chars_max)),
        "references": references.collect::<Vec<_>>(),
    })
}

/// Renders the result that a step asked for.
fn render_tool_result(
    context: &AssistantSessionContext<'_>,
    request: &FragmentRenderContext<'_>,
    number: u32,
) -> RenderedFragment {
    let metadata = &request.call_request.metadata;
    let used =
        context.current_turn().and_then(|running| running.steps.get(&number)).map_or(0, |state| state.tool_calls);
    let mut arguments = json!({
        "kind": "not_done", "tool": metadata.get("tool"), "why": metadata.get("why"), "calls_left": STEP_TOOL_CALLS_MAX.saturating_sub(used),
        "rows": null, "hidden_count": 0, "total": null, "shown": 0, "write_summaries": [], "server_text": null, "not_found": [],
        "turn": null, "step": null,
    });
    let text = metadata.get("text").and_then(|text| serde_json::from_value::<TextRef>(text.clone()).ok());
    let rows = RecordRenderer::new(context.view, context.domain);
    if let Some(references) = metadata.get("already_loaded").and_then(Value::as_array) {
        let lines = rows.render_references(references.iter().filter_map(Value::as_str));
        arguments["kind"] = json!("already_loaded");
        arguments["rows"] = json!(lines.rows);
        return render_from_state(prompt!("act/result"), &arguments, "the records are already loaded");
    }
    let Some(text) = text else {
        return render_from_state(prompt!("act/result"), &arguments, "why the tool call failed");
    };
    if let Some(source) = metadata.get("retrieved") {
        let result = prompt_context::extract_step_result(&context.view.read_text(text))
            .unwrap_or_else(|| "That step left no result.".to_owned());
        arguments["kind"] = json!("retrieved");
        arguments["rows"] = json!(wrap_in_code_fence(&result));
        (arguments["turn"], arguments["step"]) = (source["turn"].clone(), source["step"].clone());
        return render_from_state(prompt!("act/result"), &arguments, "the result of an earlier step");
    }
    let result = DomainToolResult::parse(&context.view.read_text(text)).unwrap_or_default();
    let lines = rows.render_result_rows(&result);
    let entities = &context.state().entities;
    let not_found = result.not_found.iter().filter_map(|item| entities.find_reference(&item.kind, &item.id));
    let run = metadata.get("run").and_then(Value::as_u64);
    let write = context.state().writes.iter().find(|write| Some(u64::from(write.run.0)) == run);
    arguments["kind"] = json!("rows");
    arguments["rows"] = json!(lines.rows);
    arguments["hidden_count"] = json!(lines.hidden_count);
    arguments["total"] = json!(result.total);
    arguments["shown"] = json!(result.rows.len());
    arguments["write_summaries"] = json!(write.map(|write| write.summaries.clone()).unwrap_or_default());
    arguments["server_text"] =
        json!(result.text.as_deref().map(|text| wrap_in_code_fence(&entities.replace_ids_with_references(text))));
    arguments["not_found"] = json!(not_found.collect::<Vec<_>>());
    render_from_state(prompt!("act/result"), &arguments, "the tool's result")
}

fn render_reply_fragment(context: &AssistantSessionContext<'_>, name: &str) -> RenderedFragment {
    if name == INSTRUCTION_FRAGMENT {
        return render_template(prompt!("reply/instruction"), &(), "the node's instruction");
    }
    let shown = prompt_context::build_reply_context(context.view, context.domain);
    match name {
        PROGRESS_FRAGMENT => render_from_state(prompt!("reply/flow"), &shown, "the phase of the conversation"),
        ENTITIES_FRAGMENT if shown.rows.is_empty() => omit_fragment("no records are known"),
        ENTITIES_FRAGMENT => render_from_state(prompt!("reply/entities"), &shown, "the records in the conversation"),
        CONVERSATION_FRAGMENT => render_conversation(&shown.conversation),
        EXECUTION_FRAGMENT => render_from_state(prompt!("reply/happened"), &shown.execution, "what was executed"),
        _ => omit_fragment("the flow has no such fragment"),
    }
}

fn render_summarize_fragment(
    context: &AssistantSessionContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
) -> RenderedFragment {
    let arguments = json!({"words_max": COMPACTED_WORDS_MAX});
    match (name, request.call_request.ask.as_str()) {
        (INSTRUCTION_FRAGMENT, ASK_REASONING) => {
            render_template(prompt!("summarize/reasoning"), &arguments, "the node's instruction")
        }
        (INSTRUCTION_FRAGMENT, _) => {
            render_template(prompt!("summarize/conversation"), &arguments, "the node's instruction")
        }
        (UNCOMPACTED_FRAGMENT, ASK_REASONING) => render_from_state(
            prompt!("summarize/older_reasoning"),
            &TurnSummariesForPrompt::from_uncompacted_turns(context.view),
            "turns that are no longer kept in full",
        ),
        (UNCOMPACTED_FRAGMENT, _) => render_from_state(
            prompt!("summarize/older_conversation"),
            &ConversationForPrompt::from_uncompacted_turns(context.view),
            "turns that are no longer shown",
        ),
        _ => omit_fragment("the flow has no such fragment"),
    }
}
