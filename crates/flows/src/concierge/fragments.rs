//! Renders every fragment of the flow's recipes from the state, with its source and the reason for including it.

use segue_core::body::TextRef;
use segue_core::context::{COMPACTION_FRAGMENT, FragmentSource, RenderedFragment};
use segue_core::flow::{FlowSettingSpec, FragmentRenderContext};
use segue_core::ids::MessageId;
use segue_core::signal::{SignalForm, wrap_in_code_fence};
use serde::Serialize;
use serde_json::json;

use super::analysis::analyse_claim_map;
use super::facts::{ExpertBatchPurpose, ExpertBatchResult, ExpertTask};
use super::settings::ConciergeSettings;
use super::spec::{
    ASK_PRESENT, ASK_REPAIR_BATCH, ASK_REPAIR_INTENT, CONCIERGE_ROLE, EARLIER_FRAGMENT, EXECUTOR_PHASE, EXPERT_ROLE,
    EXPLORER_PHASE, FINDINGS_FRAGMENT, GUIDANCE_FRAGMENT, HANDOVER_DUE_FRAGMENT, MAPPER_ROLE, MESSAGE_FRAGMENT,
    NOTICES_FRAGMENT, PLAN_FRAGMENT, PLAN_UPDATE_FRAGMENT, QUESTION_FRAGMENT, SAID_FRAGMENT, STARTER_PHASE,
    TURN_FINDINGS_FRAGMENT,
};
use super::state::{ConciergeFlowContext, VisitExchange};
use super::turn::{batch_result_shape, current_phase, turns_in_phase};
use super::{brief, claim_map, handovers, messages, questions, stance};
use crate::chat;
use crate::limits::{BATCH_RESULT_TOKENS_MAX, MAPPER_QUESTION_CHARS_MAX, MAPPER_SOURCES_TOKENS_MAX};
use crate::template::fill_template;

/// Renders the fragment `name` for a call.
pub(super) fn render_fragment(
    view: &ConciergeFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
    specs: &[FlowSettingSpec],
) -> RenderedFragment {
    let role = request.call_request.role.as_str();
    match (name, role) {
        (COMPACTION_FRAGMENT, CONCIERGE_ROLE) => render_compacted_thread(view, request),
        ("summarise" | "folded" | COMPACTION_FRAGMENT, _) => chat::render_compaction_fragment(request, name),
        ("instruction", EXPERT_ROLE) => template_fragment(
            "expert",
            include_str!("../../prompts/concierge/expert.md"),
            &(),
            "the expert's instruction",
        ),
        ("instruction", MAPPER_ROLE) => render_mapper_instruction(),
        ("sources", _) => render_expert_answers(view),
        ("repair", MAPPER_ROLE) => render_mapper_repair(view, request),
        ("repair", _) => render_repair_request(request),
        (QUESTION_FRAGMENT, _) => {
            let text = questions::render_private_question(
                view,
                request.call_request.ask.as_str(),
                &request.call_request.metadata,
            );
            state_fragment(text, "what the rules need to know")
        }
        ("task", _) => render_expert_task(view),
        (MESSAGE_FRAGMENT, _) => render_user_message(view, request),
        (PLAN_UPDATE_FRAGMENT, _) => render_plan_update(view, request),
        (SAID_FRAGMENT, _) => {
            let text = questions::render_said(view, request.call_request.ask.as_str(), &request.call_request.metadata);
            state_fragment(text, "what the question is about")
        }
        (FINDINGS_FRAGMENT | TURN_FINDINGS_FRAGMENT, _) => render_findings(view, name),
        (HANDOVER_DUE_FRAGMENT, _) => render_handover_request(view, request, specs),
        (NOTICES_FRAGMENT, _) => render_notices(view),
        (EARLIER_FRAGMENT, _) => render_earlier_exchanges(view),
        (GUIDANCE_FRAGMENT, _) => render_opening_guidance(view, specs),
        _ => render_opening_fragment(view, name, request_signal_form(view, request, specs)),
    }
}

/// Returns how the call requests signals.
fn request_signal_form(
    view: &ConciergeFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    specs: &[FlowSettingSpec],
) -> SignalForm {
    ConciergeSettings::parse(specs, &view.session.settings).0.signal_form(request.signal_form)
}

/// Renders the opening fragments of the concierge, which depend on the phase.
fn render_opening_fragment(view: &ConciergeFlowContext<'_>, name: &str, form: SignalForm) -> RenderedFragment {
    let inline = form == SignalForm::Inline;
    let phase = current_phase(view);
    let has_plan = view.state.active_plan.is_some();
    match (name, phase.as_str()) {
        ("identity", _) => template_fragment(
            "identity",
            include_str!("../../prompts/concierge/identity.md"),
            &(),
            "the concierge's identity",
        ),
        ("never", _) => template_fragment(
            "never",
            include_str!("../../prompts/concierge/never.md"),
            &(),
            "what the concierge must not say",
        ),
        ("part", STARTER_PHASE) => template_fragment(
            "starter",
            include_str!("../../prompts/concierge/starter.md"),
            &(),
            "the starter's instruction",
        ),
        ("part", EXPLORER_PHASE) => template_fragment(
            "explorer",
            include_str!("../../prompts/concierge/explorer.md"),
            &explorer_arguments(view, inline),
            "the explorer's instruction",
        ),
        ("part", _) if has_plan => template_fragment(
            "continued",
            include_str!("../../prompts/concierge/continued.md"),
            &(),
            "a plan is already under way",
        ),
        ("part", _) => template_fragment(
            "executor",
            include_str!("../../prompts/concierge/executor.md"),
            &json!({"inline": inline}),
            "the executor's instruction",
        ),
        ("capabilities", EXECUTOR_PHASE) => {
            let text = include_str!("../../prompts/concierge/executing.md");
            template_fragment(
                "executing",
                text,
                &json!({"inline": inline, "guide": questions::guide_for_writing_expert_prompts()}),
                "how the executor works with the plan",
            )
        }
        ("capabilities", EXPLORER_PHASE) => omit_fragment("the explorer's instruction says how to ask for a plan"),
        ("capabilities", _) => omit_fragment("the starter can ask for nothing"),
        ("handover", _) => render_handover_fragment(view, &phase),
        ("brief", STARTER_PHASE) => render_batch_result(view, view.state.opening_result.as_ref()),
        ("brief", EXECUTOR_PHASE) if !has_plan => {
            render_batch_result(view, view.state.plan_research.as_ref().map(|plan| &plan.result))
        }
        ("brief", EXECUTOR_PHASE) => omit_fragment("the plan already exists"),
        ("brief", _) => omit_fragment("the handover says what was learnt"),
        (PLAN_FRAGMENT, _) => match &view.state.active_plan {
            Some(plan) => {
                let text = include_str!("../../prompts/concierge/workflow_section.md");
                state_fragment(
                    fill_template(text, &json!({"workflow": plan.render_fenced_plan()})),
                    "a plan is under way",
                )
            }
            None => omit_fragment("no plan is under way"),
        },
        _ => omit_fragment("the flow has no fragment of this name"),
    }
}

fn explorer_arguments(view: &ConciergeFlowContext<'_>, inline: bool) -> serde_json::Value {
    let stance = view.state.stance.map(stance::render_stance_guidance).and_then(|guidance| guidance.framing);
    json!({"inline": inline, "guide": questions::guide_for_writing_expert_prompts(), "stance": stance})
}

fn omit_fragment(why: &str) -> RenderedFragment {
    RenderedFragment::Omitted(why.to_owned())
}

fn template_fragment(name: &str, text: &'static str, arguments: &impl Serialize, why: &str) -> RenderedFragment {
    let source = FragmentSource::Template(format!("concierge/{name}"));
    RenderedFragment::New { text: fill_template(text, arguments), source, why: why.to_owned() }
}

fn state_fragment(text: String, why: &str) -> RenderedFragment {
    RenderedFragment::New { text, source: FragmentSource::State, why: why.to_owned() }
}

fn render_mapper_instruction() -> RenderedFragment {
    let arguments = json!({"format": claim_map::MAP_FORMAT_PROMPT});
    template_fragment(
        "mapper",
        include_str!("../../prompts/concierge/mapper.md"),
        &arguments,
        "the mapper's instruction",
    )
}

fn render_expert_answers(view: &ConciergeFlowContext<'_>) -> RenderedFragment {
    let Some(batch) = &view.state.batch else { return omit_fragment("the experts were not asked") };
    let question = match &batch.request.task {
        Some(task) => expert_task_text(task, batch.request.purpose),
        None => join_message_texts(view, &messages::drop_retry_messages(view, &batch.request.user_messages)),
    };
    let texts = batch.answer_texts();
    let each = fair_token_share(&texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), MAPPER_SOURCES_TOKENS_MAX);
    let source = |text: &TextRef| wrap_in_code_fence(&truncate_to_tokens(&view.read_text(*text), text.tokens, each));
    let sources: Vec<String> = texts.iter().map(source).collect();
    let cut = texts.iter().filter(|text| text.tokens > each).count();
    let why = match cut {
        0 => format!("the {} answers, in slot order", sources.len()),
        _ => format!("the {} answers, in slot order; {cut} were cut to fit", sources.len()),
    };
    let question: String = question.chars().take(MAPPER_QUESTION_CHARS_MAX).collect();
    let arguments = json!({"question": wrap_in_code_fence(&question), "sources": sources});
    let text = fill_template(include_str!("../../prompts/concierge/sources.md"), &arguments);
    RenderedFragment::New { text, source: FragmentSource::State, why }
}

/// Returns the largest token count per text with which all texts fit into `tokens_max`. Short texts leave their share to
/// long ones.
fn fair_token_share(tokens: &[u32], tokens_max: u32) -> u32 {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    let mut left = tokens_max;
    for (index, tokens) in sorted.iter().enumerate() {
        let share = left / u32::try_from(sorted.len() - index).unwrap_or(u32::MAX);
        if *tokens > share {
            return share;
        }
        left -= tokens;
    }
    tokens_max
}

/// Cuts a text of `tokens` tokens to about `tokens_max`.
fn truncate_to_tokens(text: &str, tokens: u32, tokens_max: u32) -> String {
    if tokens <= tokens_max {
        return text.to_owned();
    }
    let keep = text.chars().count() as u64 * u64::from(tokens_max) / u64::from(tokens.max(1));
    let kept: String = text.chars().take(usize::try_from(keep).unwrap_or(usize::MAX)).collect();
    format!("{kept}…")
}

fn render_mapper_repair(view: &ConciergeFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let metadata = &request.call_request.metadata;
    let why = metadata.get("why").and_then(serde_json::Value::as_str).unwrap_or_default();
    let reply = metadata.get("reply").and_then(|reply| serde_json::from_value::<TextRef>(reply.clone()).ok());
    let reply = reply.map(|text| wrap_in_code_fence(&view.read_text(text))).unwrap_or_default();
    let arguments = json!({"why": why, "reply": reply});
    template_fragment(
        "mapper_repair",
        include_str!("../../prompts/concierge/mapper_repair.md"),
        &arguments,
        "the map could not be read",
    )
}

fn render_repair_request(request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let metadata = &request.call_request.metadata;
    let arguments =
        json!({"missing": metadata.get("missing"), "why": metadata.get("why"), "wanted": metadata.get("wanted")});
    let why = "a block was missing or unreadable";
    match request.call_request.ask.as_str() {
        ASK_REPAIR_INTENT => template_fragment(
            "repair_intent",
            include_str!("../../prompts/concierge/repair_intent.md"),
            &arguments,
            why,
        ),
        ASK_REPAIR_BATCH => {
            template_fragment("repair_batch", include_str!("../../prompts/concierge/repair_batch.md"), &arguments, why)
        }
        _ => {
            template_fragment("repair_steps", include_str!("../../prompts/concierge/repair_steps.md"), &arguments, why)
        }
    }
}

fn render_expert_task(view: &ConciergeFlowContext<'_>) -> RenderedFragment {
    let batch = view.state.batch.as_ref();
    let Some((task, purpose)) = batch.and_then(|batch| Some((batch.request.task.as_ref()?, batch.request.purpose)))
    else {
        return omit_fragment("the batch has no task");
    };
    let source = task.call.map_or(FragmentSource::State, FragmentSource::Call);
    RenderedFragment::New { text: expert_task_text(task, purpose), source, why: "the task for the experts".to_owned() }
}

fn expert_task_text(task: &ExpertTask, purpose: ExpertBatchPurpose) -> String {
    let situation = fill_template(
        include_str!("../../prompts/concierge/task_situation.md"),
        &json!({"step": task.step, "blocker": task.blocker, "context": task.context}),
    );
    let arguments = json!({
        "help": purpose == ExpertBatchPurpose::StepHelp,
        "situation": (!situation.is_empty()).then(|| wrap_in_code_fence(&situation)),
        "prompt": task.prompt,
    });
    fill_template(include_str!("../../prompts/concierge/task.md"), &arguments)
}

/// Renders the messages to answer: a single one by reference, several joined into one text.
fn render_user_message(view: &ConciergeFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let state = view.state;
    let mut pending: Vec<(MessageId, TextRef)> = Vec::new();
    if request.call_request.ask == *ASK_PRESENT {
        pending.extend(state.plan_research.iter().flat_map(|plan| plan.user_messages.iter().copied()));
    }
    if request.call_request.role == *EXPERT_ROLE {
        pending.extend(state.batch.iter().flat_map(|batch| batch.request.user_messages.iter().copied()));
    }
    for message in &state.unanswered_messages {
        if !pending.contains(message) {
            pending.push(*message);
        }
    }
    match messages::drop_retry_messages(view, &pending).as_slice() {
        [] => omit_fragment("there is no message"),
        [(message, text)] => RenderedFragment::Stored {
            text: *text,
            source: FragmentSource::Message(*message),
            why: "the user's message".to_owned(),
        },
        several => RenderedFragment::New {
            text: join_message_texts(view, several),
            source: FragmentSource::Message(several[several.len() - 1].0),
            why: format!("the {} unanswered messages", several.len()),
        },
    }
}

fn join_message_texts(view: &ConciergeFlowContext<'_>, messages: &[(MessageId, TextRef)]) -> String {
    messages.iter().map(|(_, text)| view.read_text(*text).to_string()).collect::<Vec<_>>().join("\n\n")
}

fn render_handover_fragment(view: &ConciergeFlowContext<'_>, phase: &str) -> RenderedFragment {
    if phase == STARTER_PHASE {
        return omit_fragment("the first phase has no handover");
    }
    let Some(handover) = messages::visit_handover(view) else { return omit_fragment("there is no handover") };
    RenderedFragment::New {
        text: handovers::render_handover(handover),
        source: FragmentSource::Handover(handover.id),
        why: "the previous phase's handover".to_owned(),
    }
}

/// Renders a batch result as a section of a prompt.
fn render_batch_result(view: &ConciergeFlowContext<'_>, result: Option<&ExpertBatchResult>) -> RenderedFragment {
    let why = match result {
        Some(ExpertBatchResult::Mapped { answers, .. }) => format!("the brief of {answers} answers"),
        Some(ExpertBatchResult::Single { .. }) => "the only answer".to_owned(),
        Some(ExpertBatchResult::Unmapped { texts }) => {
            format!("the {} answers, which could not be mapped", texts.len())
        }
        None => return omit_fragment("the experts were not asked"),
    };
    let source = match result {
        Some(ExpertBatchResult::Mapped { call, .. } | ExpertBatchResult::Single { call, .. }) => {
            FragmentSource::Call(*call)
        }
        _ => FragmentSource::State,
    };
    RenderedFragment::New { text: batch_result_text(view, result), source, why }
}

fn batch_result_text(view: &ConciergeFlowContext<'_>, result: Option<&ExpertBatchResult>) -> String {
    let each = match result {
        Some(ExpertBatchResult::Unmapped { texts }) => {
            fair_token_share(&texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), BATCH_RESULT_TOKENS_MAX)
        }
        _ => BATCH_RESULT_TOKENS_MAX,
    };
    let fenced = |text: &TextRef| wrap_in_code_fence(&truncate_to_tokens(&view.read_text(*text), text.tokens, each));
    let arguments = match result {
        Some(ExpertBatchResult::Mapped { text, answers, .. }) => {
            match claim_map::parse_claim_map(&view.read_text(*text), *answers) {
                Ok(parsed) => {
                    let analysis = analyse_claim_map(&parsed.map, *answers);
                    let brief = wrap_in_code_fence(&brief::render_brief(&parsed.map, &analysis));
                    json!({"kind": "mapped", "brief": brief, "answers": []})
                }
                Err(_) => json!({"kind": "nothing", "brief": "", "answers": []}),
            }
        }
        Some(ExpertBatchResult::Single { text, .. }) => {
            json!({"kind": "alone", "brief": "", "answers": [fenced(text)]})
        }
        Some(ExpertBatchResult::Unmapped { texts }) => {
            json!({"kind": "unmapped", "brief": "", "answers": texts.iter().map(fenced).collect::<Vec<_>>()})
        }
        None => json!({"kind": "nothing", "brief": "", "answers": []}),
    };
    fill_template(include_str!("../../prompts/concierge/brief_section.md"), &arguments)
}

/// Renders how to answer the first question.
fn render_opening_guidance(view: &ConciergeFlowContext<'_>, specs: &[FlowSettingSpec]) -> RenderedFragment {
    if current_phase(view) != STARTER_PHASE {
        return omit_fragment("only the starter has a stance");
    }
    // The setting has priority, also if a past call is recomputed with another setting.
    let (settings, _) = ConciergeSettings::parse(specs, &view.session.settings);
    let stance = settings.stance.or(view.state.stance).unwrap_or_default();
    let guidance = stance::render_stance_guidance(stance);
    let shape = view.state.opening_result.as_ref().and_then(|result| batch_result_shape(view, result));
    let arguments = json!({
        "framing": guidance.framing,
        "shape_guidance": shape.map(brief::render_shape_guidance),
        "behaviour": guidance.behaviour,
        "voice": guidance.voice,
    });
    let why = match shape {
        Some(shape) => format!("the stance is {stance}, the shape {shape}"),
        None => format!("the stance is {stance}"),
    };
    template_fragment("guidance", include_str!("../../prompts/concierge/guidance.md"), &arguments, &why)
}

/// Renders the replacement of compacted messages. It starts with the plan, which may have been among them.
fn render_compacted_thread(view: &ConciergeFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let summary = chat::render_compaction_fragment(request, COMPACTION_FRAGMENT);
    match (&view.state.active_plan, summary) {
        (Some(plan), RenderedFragment::New { text, source, why }) => {
            let section = include_str!("../../prompts/concierge/workflow_section.md");
            let plan_text = fill_template(section, &json!({"workflow": plan.render_fenced_plan()}));
            RenderedFragment::New { text: format!("{plan_text}\n\n{text}"), source, why }
        }
        (_, summary) => summary,
    }
}

/// Renders the plan if it changed since the concierge last saw it.
fn render_plan_update(view: &ConciergeFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let Some(plan) = &view.state.active_plan else { return omit_fragment("no plan is under way") };
    if request.opens_thread {
        return omit_fragment("the thread opens with the plan");
    }
    if view.state.shown_plan_version == Some(plan.version) {
        return omit_fragment("the plan has not changed since it was last shown");
    }
    let text = include_str!("../../prompts/concierge/workflow_changed.md");
    state_fragment(fill_template(text, &json!({"workflow": plan.render_fenced_plan()})), "the plan has changed")
}

/// Renders new findings. Those about one message are shown with it only; those that help with a step stay in the thread.
fn render_findings(view: &ConciergeFlowContext<'_>, name: &str) -> RenderedFragment {
    let is_wanted =
        |purpose: ExpertBatchPurpose| (purpose == ExpertBatchPurpose::EveryTurn) == (name == TURN_FINDINGS_FRAGMENT);
    let Some(findings) = view.state.pending_findings.as_ref().filter(|findings| is_wanted(findings.purpose)) else {
        return omit_fragment("there are no new findings");
    };
    let arguments = json!({
        "help": findings.purpose == ExpertBatchPurpose::StepHelp,
        "known": batch_result_text(view, Some(&findings.result)),
    });
    let source = match &findings.result {
        ExpertBatchResult::Mapped { call, .. } | ExpertBatchResult::Single { call, .. } => FragmentSource::Call(*call),
        ExpertBatchResult::Unmapped { .. } => FragmentSource::State,
    };
    let text = fill_template(include_str!("../../prompts/concierge/findings.md"), &arguments);
    RenderedFragment::New { text, source, why: "new findings, shown once".to_owned() }
}

/// Renders the request for a handover. It is left out of turns in which none is due, and when an empty reply is asked
/// for again.
fn render_handover_request(
    view: &ConciergeFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    specs: &[FlowSettingSpec],
) -> RenderedFragment {
    let (settings, _) = ConciergeSettings::parse(specs, &view.session.settings);
    if settings.signal_form(request.signal_form) == SignalForm::Structured {
        return omit_fragment("the handover is asked for separately");
    }
    let has_answered = view.state.opening_exchange.reply.is_some();
    let is_due = has_answered || turns_in_phase(view) >= settings.handover_by_turn;
    if current_phase(view) != STARTER_PHASE || !is_due {
        return omit_fragment("no handover is due in this turn");
    }
    if view.state.empty_replies > 0 {
        return omit_fragment("the last reply had no visible text or was a repetition, so only an answer is asked for");
    }
    template_fragment(
        "handover_due",
        include_str!("../../prompts/concierge/handover_due.md"),
        &(),
        "the user has replied, so the starter hands over",
    )
}

/// Renders the earlier messages of the visit for a thread that opens again, after a change of the model or a reset.
fn render_earlier_exchanges(view: &ConciergeFlowContext<'_>) -> RenderedFragment {
    let exchanges = &view.state.visit.exchanges;
    if exchanges.is_empty() {
        return omit_fragment("the visit has no earlier messages");
    }
    let exchange = |exchange: &VisitExchange| {
        let messages = exchange.messages.iter().map(|text| view.read_text(*text).to_string()).collect::<Vec<_>>();
        json!({
            "message": wrap_in_code_fence(&messages.join("\n\n")),
            "reply": wrap_in_code_fence(&view.read_text(exchange.reply)),
        })
    };
    let arguments = json!({"exchanges": exchanges.iter().map(exchange).collect::<Vec<_>>()});
    let text = fill_template(include_str!("../../prompts/concierge/earlier.md"), &arguments);
    state_fragment(text, "the thread was opened again in this phase")
}

fn render_notices(view: &ConciergeFlowContext<'_>) -> RenderedFragment {
    if view.state.pending_notices.is_empty() {
        return omit_fragment("there are no notices");
    }
    let arguments = json!({"notices": view.state.pending_notices});
    template_fragment(
        "notices",
        include_str!("../../prompts/concierge/notices.md"),
        &arguments,
        "ignored blocks and similar notices",
    )
}
