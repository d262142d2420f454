//! Parses the answers of models into decisions, with complaints about invalid parts. Parsing never fails; the caller decides
//! whether to ask the model to correct its answer.

use segue_core::signal::find_json_where;
use serde_json::{Map, Value};

use super::domain::{DomainSchema, format_name_list};
use super::facts::{
    AnswerRepairLevel, AssistantPlanStep, AssistantPlanStepKind, AssistantTurnPlan, MessageUnderstanding,
    PendingQuestionResponseKind, ReferenceWithRelevanceReason, ThinkDecision,
};
use super::planned_search;
use super::registry::{KnownEntities, RecordLoadLevel};
use super::tools::{REFRESH_ARGUMENT, check_planned_write};
use crate::limits::{
    ANSWER_COMPLAINTS_MAX, ASSISTANT_PLAN_STEPS_MAX, OUTCOME_CHARS_MAX, PARTIAL_ANALYSIS_CHARS_MAX, PROPOSAL_CHARS_MAX,
    REFERENCES_MAX, REMARK_CHARS_MAX,
};

/// The usable part of an answer, and what is wrong with the rest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ParsedAssistantAnswer<T> {
    pub(super) value: Option<T>,
    pub(super) complaints: Vec<String>,
}

impl<T> ParsedAssistantAnswer<T> {
    fn unusable(complaint: impl Into<String>) -> Self {
        Self { value: None, complaints: vec![complaint.into()] }
    }

    fn usable(value: T, mut complaints: Vec<String>) -> Self {
        complaints.truncate(ANSWER_COMPLAINTS_MAX);
        Self { value: Some(value), complaints }
    }
}

/// Returns the JSON object in an answer that has at least one of these members.
fn find_answer_object(text: &str, members: &[&str]) -> Result<Map<String, Value>, String> {
    let found = find_json_where(text, |value| members.iter().any(|member| value.get(member).is_some()));
    match found.value {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(format!("the answer must be one JSON object with {}", format_name_list(members.iter().copied()))),
    }
}

fn get_non_placeholder_text(object: &Map<String, Value>, name: &str, chars_max: usize) -> Option<String> {
    let text = object.get(name)?.as_str()?.trim();
    // A placeholder that was copied from a sample says nothing.
    let is_placeholder =
        text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).is_some_and(|text| !text.contains(['<', '>']));
    let is_none = text.is_empty() || is_placeholder || ["null", "none"].contains(&text.to_lowercase().as_str());
    (!is_none).then(|| truncate_chars(text, chars_max))
}

/// Cuts a text to a number of characters and marks the cut with `…`.
pub(super) fn truncate_chars(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// Returns a list, or a single value as a list of one.
fn member_as_list<'v>(object: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    match object.get(name) {
        Some(Value::Array(items)) => &items[..items.len().min(REFERENCES_MAX)],
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    }
}

/// Returns the known references of a list. Unknown ones are left out and named in `errors`.
fn parse_references(
    object: &Map<String, Value>,
    name: &str,
    entities: &KnownEntities,
    errors: &mut Vec<String>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in member_as_list(object, name) {
        let reference = value.as_str().or_else(|| value.get("ref")?.as_str());
        match reference.map(|reference| entities.expect_entity(reference.trim(), None).map(|_| reference.trim())) {
            Some(Ok(reference)) if !found.iter().any(|known| known == reference) => found.push(reference.to_owned()),
            Some(Ok(_)) => {}
            Some(Err(why)) => errors.push(format!("`{name}`: {why}")),
            None => errors.push(format!(
                "`{name}` must be a list of references, not of {}",
                truncate_chars(&value.to_string(), 80)
            )),
        }
    }
    found
}

/// Parses an answer of Understand.
#[must_use]
pub(super) fn parse_understand_answer(
    answer: &str,
    entities: &KnownEntities,
    turn: u32,
) -> ParsedAssistantAnswer<MessageUnderstanding> {
    let members = ["expressed", "references", "retain", "demote", "drop", "clear", "pending"];
    let object = match find_answer_object(answer, &members) {
        Ok(object) => object,
        Err(why) => return ParsedAssistantAnswer::unusable(why),
    };
    let mut complaints = Vec::new();
    let reasoned = |name: &str, complaints: &mut Vec<String>| {
        let named = parse_references(&object, name, entities, complaints);
        let reason = |reference: &str| {
            let given = member_as_list(&object, name)
                .iter()
                .find(|value| value.get("ref").and_then(Value::as_str) == Some(reference));
            let reason = given.and_then(|value| value.get("reason")?.as_str()).unwrap_or_default();
            truncate_chars(reason.trim(), REMARK_CHARS_MAX)
        };
        named
            .into_iter()
            .map(|reference| ReferenceWithRelevanceReason { reason: reason(&reference), reference })
            .collect::<Vec<_>>()
    };
    let (retained, demoted) = (reasoned("retain", &mut complaints), reasoned("demote", &mut complaints));
    if retained.iter().any(|item| item.reason.is_empty()) {
        complaints.push("`retain`: each reference needs a `reason`".to_owned());
    }
    let response_to_pending = match get_non_placeholder_text(&object, "pending", REMARK_CHARS_MAX) {
        None => None,
        Some(word) => match serde_json::from_value::<PendingQuestionResponseKind>(Value::String(word.to_lowercase())) {
            Ok(answer) => Some(answer),
            Err(_) => {
                complaints.push(format!(
                    "`pending` must be `accepted`, `declined`, `answered`, `ignored` or null, not `{word}`"
                ));
                None
            }
        },
    };
    let understanding = MessageUnderstanding {
        turn,
        intent: get_non_placeholder_text(&object, "expressed", REMARK_CHARS_MAX).unwrap_or_default(),
        references: parse_references(&object, "references", entities, &mut complaints),
        // A reference without a reason is not retained.
        retained: retained.into_iter().filter(|item| !item.reason.is_empty()).collect(),
        demoted,
        dropped: parse_references(&object, "drop", entities, &mut complaints),
        drops_all_saved: object.get("clear").and_then(Value::as_bool).unwrap_or(false),
        response_to_pending,
        quality: AnswerRepairLevel::FirstAttempt,
        complaints: Vec::new(),
    };
    if understanding.intent.is_empty() {
        complaints.push("`expressed` is missing; say in a few words what the user wants".to_owned());
    }
    ParsedAssistantAnswer::usable(understanding, complaints)
}

/// Parses an answer of Think. There is no value if the plan cannot be carried out as it is. If the message asks only for
/// information, the plan changes nothing, unless `may_change` says that the user agreed to a change.
#[must_use]
pub(super) fn parse_think_answer(
    answer: &str,
    domain: &DomainSchema,
    entities: &KnownEntities,
    turn: u32,
    may_change: bool,
) -> ParsedAssistantAnswer<AssistantTurnPlan> {
    let object = match find_answer_object(answer, &["decision", "steps"]) {
        Ok(object) => object,
        Err(why) => return ParsedAssistantAnswer::unusable(why),
    };
    let word = get_non_placeholder_text(&object, "decision", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let Ok(decision) = serde_json::from_value::<ThinkDecision>(Value::String(word.clone())) else {
        return ParsedAssistantAnswer::unusable(format!(
            "`decision` must be `plan_direct`, `propose` or `clarify`, not `{word}`"
        ));
    };
    let message_to_user = get_non_placeholder_text(&object, "say", PROPOSAL_CHARS_MAX);
    let mut complaints = Vec::new();
    let mut is_valid = true;
    let mut steps = Vec::new();
    let mut loaded_reads = Vec::new();
    let mut withheld_writes = Vec::new();
    if decision == ThinkDecision::PlanDirect {
        let planned = member_as_list(&object, "steps");
        if planned.is_empty() {
            complaints.push("`plan_direct` needs at least one step".to_owned());
            is_valid = false;
        }
        if planned.len() > ASSISTANT_PLAN_STEPS_MAX {
            complaints
                .push(format!("the plan has {} steps; at most {ASSISTANT_PLAN_STEPS_MAX} are allowed", planned.len()));
            is_valid = false;
        }
        for (index, step) in planned.iter().take(ASSISTANT_PLAN_STEPS_MAX).enumerate() {
            let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
            match parse_planned_step(step, number, domain, entities, &mut complaints) {
                Some(step) if is_read_already_loaded(&step, entities) => loaded_reads.push(step),
                Some(step) => steps.push(step),
                None => is_valid = false,
            }
        }
        let asks_for_information = !may_change
            && get_non_placeholder_text(&object, "asks_for", REMARK_CHARS_MAX)
                .is_some_and(|word| word.to_lowercase() == "information");
        if asks_for_information {
            withheld_writes = remove_write_steps(&mut steps);
            if steps.is_empty() && loaded_reads.is_empty() && !withheld_writes.is_empty() {
                complaints.push(
                    "all steps change records, but `asks_for` is `information`; plan a read step, or say `change`"
                        .to_owned(),
                );
                is_valid = false;
            }
        }
        // If nothing else is planned, the reads are answered from memory, so that the reply has the records.
        if steps.is_empty() {
            steps.append(&mut loaded_reads);
        }
        sort_and_renumber_steps(&mut steps);
        for step in steps.iter().filter(|step| step.kind == AssistantPlanStepKind::Write && domain.server.is_none()) {
            if let Err(why) = check_planned_write(step, &steps, entities) {
                complaints.push(format!("step {}: {why}", step.step));
                is_valid = false;
            }
        }
    } else if message_to_user.is_none() {
        complaints.push(format!("`{word}` needs `say`: the text for the user"));
        is_valid = false;
    }
    let goal = get_non_placeholder_text(&object, "goal", OUTCOME_CHARS_MAX).unwrap_or_default();
    let plan = AssistantTurnPlan {
        turn,
        decision,
        goal,
        steps,
        message_to_user,
        skipped_steps: loaded_reads.into_iter().map(|step| step.description).collect(),
        withheld_writes,
        quality: AnswerRepairLevel::FirstAttempt,
    };
    let ParsedAssistantAnswer { value, complaints } = ParsedAssistantAnswer::usable(plan, complaints);
    ParsedAssistantAnswer { value: value.filter(|_| is_valid), complaints }
}

fn parse_planned_step(
    value: &Value,
    step: u32,
    domain: &DomainSchema,
    entities: &KnownEntities,
    errors: &mut Vec<String>,
) -> Option<AssistantPlanStep> {
    let Value::Object(object) = value else {
        errors.push(format!("step {step} must be an object, not {}", truncate_chars(&value.to_string(), 80)));
        return None;
    };
    let mut complain = |why: String| errors.push(format!("step {step}: {why}"));
    let word = get_non_placeholder_text(object, "type", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let kind = AssistantPlanStepKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    if kind.is_none() {
        complain(format!(
            "`type` must be {}, not `{word}`",
            format_name_list(AssistantPlanStepKind::ALL.iter().map(|kind| kind.as_str()))
        ));
    }
    let description = get_non_placeholder_text(object, "description", OUTCOME_CHARS_MAX);
    if description.is_none() {
        complain("`description` is missing; say what the step has to do".to_owned());
    }
    let subdomain = get_non_placeholder_text(object, "subdomain", REMARK_CHARS_MAX).unwrap_or_default();
    // A domain that declares only a server has no types, so any name is accepted.
    let is_known = domain.types.is_empty() || domain.find_type(&subdomain).is_some();
    if let Some(why) = domain.expect_type(&subdomain).err().filter(|_| !is_known) {
        complain(format!("`subdomain`: {why}"));
    }
    let operation = get_non_placeholder_text(object, "operation", REMARK_CHARS_MAX)
        .filter(|_| kind == Some(AssistantPlanStepKind::Write));
    if kind == Some(AssistantPlanStepKind::Write) && operation.is_none() && domain.server.is_some() {
        complain("`operation` is missing; name the tool that the write step calls".to_owned());
        return None;
    }
    let group = object.get("group").and_then(Value::as_u64).and_then(|group| u32::try_from(group).ok());
    let mut unknown = Vec::new();
    let refs = parse_references(object, "refs", entities, &mut unknown);
    let all_known = unknown.is_empty();
    unknown.into_iter().for_each(complain);
    let kind = kind?;
    // A write needs all of its references; other steps can do without the unknown ones.
    if !is_known || (!all_known && kind == AssistantPlanStepKind::Write) {
        return None;
    }
    let description = description?;
    let refresh =
        kind == AssistantPlanStepKind::Read && object.get(REFRESH_ARGUMENT).and_then(Value::as_bool).unwrap_or(false);
    let group = group.unwrap_or(step);
    let searched = domain.find_type(&subdomain).filter(|_| kind == AssistantPlanStepKind::Read);
    let filters =
        searched.map(|kind| planned_search::parse_filters(kind, member_as_list(object, "where"))).unwrap_or_default();
    let sort = searched.and_then(|kind| planned_search::parse_sort(kind, object.get("sort")));
    Some(AssistantPlanStep { step, description, kind, operation, subdomain, group, refs, refresh, filters, sort })
}

/// Removes the write steps. Returns their descriptions.
fn remove_write_steps(steps: &mut Vec<AssistantPlanStep>) -> Vec<String> {
    let (writes, others): (Vec<_>, Vec<_>) =
        std::mem::take(steps).into_iter().partition(|step| step.kind == AssistantPlanStepKind::Write);
    *steps = others;
    writes.into_iter().map(|step| step.description).collect()
}

/// Returns whether a step only reads records that are fully loaded.
fn is_read_already_loaded(step: &AssistantPlanStep, entities: &KnownEntities) -> bool {
    let is_full =
        |reference: &String| entities.get(reference).is_some_and(|entity| entity.detail == RecordLoadLevel::Full);
    let is_read = step.kind == AssistantPlanStepKind::Read && !step.refresh;
    is_read && !step.refs.is_empty() && step.refs.iter().all(is_full)
}

/// Sorts steps by group and numbers them from 1. In a group, reads come first: the other steps probably need what they
/// return.
fn sort_and_renumber_steps(steps: &mut [AssistantPlanStep]) {
    let is_read = |step: &AssistantPlanStep| step.kind == AssistantPlanStepKind::Read;
    let is_mixed = steps
        .iter()
        .any(|step| is_read(step) && steps.iter().any(|other| other.group == step.group && !is_read(other)));
    if is_mixed {
        for step in steps.iter_mut() {
            step.group = step.group.saturating_mul(2).saturating_add(u32::from(!is_read(step)));
        }
    }
    steps.sort_by_key(|step| step.group);
    for (step, number) in steps.iter_mut().zip(1..) {
        step.step = number;
    }
}

/// An action that Act can take.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AssistantStepAction {
    /// Call a tool.
    ToolCall { tool: String, arguments: Map<String, Value> },
    /// Complete the step.
    StepComplete(ActStepCompletion),
    /// Ask the user a question.
    AskUser {
        question: String,
        /// What the step has found out so far.
        partial_result: Option<Value>,
    },
    /// Fetch the result of an earlier step.
    RetrieveStep {
        /// The turn of that step; the current one if absent.
        turn: Option<u32>,
        step: u32,
    },
    /// Report that the step is impossible under the current conditions.
    Blocked { reason: String, suggested_next: Option<String> },
    /// Give up.
    Fail { reason: String },
}

/// The content of a `step_complete` action.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ActStepCompletion {
    pub(super) outcome: String,
    pub(super) refs: Vec<String>,
    /// A note for the next step.
    pub(super) note: Option<String>,
    pub(super) drafts: Vec<ActRecordDraft>,
}

/// A draft in an answer of Act.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ActRecordDraft {
    /// The draft that it replaces.
    pub(super) replaces: Option<String>,
    pub(super) kind: String,
    /// The fields; links are references.
    pub(super) content: Map<String, Value>,
}

/// The names of the actions in prompts and answers.
pub(super) const STEP_ACTION_NAMES: [&str; 6] =
    ["tool_call", "step_complete", "ask_user", "retrieve_step", "blocked", "fail"];

/// Parses an answer of Act.
#[must_use]
pub(super) fn parse_act_answer(
    answer: &str,
    domain: &DomainSchema,
    entities: &KnownEntities,
    step: &AssistantPlanStep,
) -> ParsedAssistantAnswer<AssistantStepAction> {
    let object = match find_answer_object(answer, &["action"]) {
        Ok(object) => object,
        Err(why) => return ParsedAssistantAnswer::unusable(why),
    };
    let word = get_non_placeholder_text(&object, "action", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let need = |name: &str, chars_max: usize| {
        get_non_placeholder_text(&object, name, chars_max).ok_or_else(|| format!("`{word}` needs `{name}`"))
    };
    let number = |name: &str| object.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let mut complaints = Vec::new();
    let action = match word.as_str() {
        "tool_call" => tool_name(&object, domain, step).and_then(|tool| match object.get("arguments") {
            None | Some(Value::Null) => Ok(AssistantStepAction::ToolCall { tool, arguments: Map::new() }),
            Some(Value::Object(arguments)) => Ok(AssistantStepAction::ToolCall { tool, arguments: arguments.clone() }),
            Some(_) => Err("`arguments` must be an object".to_owned()),
        }),
        "step_complete" => need("outcome", OUTCOME_CHARS_MAX).map(|outcome| {
            let mut refs = parse_references(&object, "refs", entities, &mut complaints);
            if step.kind == AssistantPlanStepKind::Analyze {
                refs.retain(|reference| is_loaded_or_complain(reference, entities, &mut complaints));
                let result = object.get("result").map(ToString::to_string).unwrap_or_default();
                let unknown = entities.find_unknown_references(&result, domain.type_names());
                complaints.extend(unknown.iter().map(|name| format!("`result`: `{name}` is not a known reference")));
            }
            let note = get_non_placeholder_text(&object, "note_for_next_step", REMARK_CHARS_MAX);
            let drafts = parse_drafts(&object, domain, entities, step, &mut complaints);
            AssistantStepAction::StepComplete(ActStepCompletion { outcome, refs, note, drafts })
        }),
        "ask_user" => need("question", PROPOSAL_CHARS_MAX).map(|question| {
            let partial_result = parse_partial_result(&object);
            if partial_result.is_none() && step.kind == AssistantPlanStepKind::Analyze {
                complaints
                    .push("`ask_user` in an analyze step needs `partial`: what you have found out so far".to_owned());
            }
            AssistantStepAction::AskUser { question, partial_result }
        }),
        "retrieve_step" => number("step")
            .map(|step| AssistantStepAction::RetrieveStep { turn: number("turn"), step })
            .ok_or_else(|| "`retrieve_step` needs `step`: the number of the step".to_owned()),
        "blocked" => need("reason", OUTCOME_CHARS_MAX).map(|reason| AssistantStepAction::Blocked {
            reason,
            suggested_next: get_non_placeholder_text(&object, "next", OUTCOME_CHARS_MAX),
        }),
        "fail" => need("reason", OUTCOME_CHARS_MAX).map(|reason| AssistantStepAction::Fail { reason }),
        _ => Err(format!(
            "`action` must be one of {}, not `{word}`",
            format_name_list(STEP_ACTION_NAMES.iter().copied())
        )),
    };
    match action {
        Ok(action) => ParsedAssistantAnswer::usable(action, complaints),
        Err(why) => ParsedAssistantAnswer::unusable(why),
    }
}

/// Returns the tool that an answer names. A step over tables has only one, so it need not be named.
fn tool_name(object: &Map<String, Value>, domain: &DomainSchema, step: &AssistantPlanStep) -> Result<String, String> {
    let only_tool = || match (&domain.server, step.kind) {
        (Some(_), _) => None,
        (None, AssistantPlanStepKind::Write) => step.operation.clone(),
        (None, _) => Some("read".to_owned()),
    };
    let is_named = object.get("tool").is_some_and(|tool| !tool.is_null());
    let named = get_non_placeholder_text(object, "tool", REMARK_CHARS_MAX);
    named.or_else(|| only_tool().filter(|_| !is_named)).ok_or_else(|| "`tool_call` needs `tool`".to_owned())
}

/// Returns whether a reference may be cited: its record was read, or it is a draft.
fn is_loaded_or_complain(reference: &str, entities: &KnownEntities, errors: &mut Vec<String>) -> bool {
    let is_loaded = entities.get(reference).is_some_and(|entity| entity.detail != RecordLoadLevel::None);
    if !is_loaded {
        errors.push(format!("`refs`: `{reference}` was not read; name only records that were read"));
    }
    is_loaded
}

fn parse_partial_result(object: &Map<String, Value>) -> Option<Value> {
    let given = object.get("partial").or_else(|| object.get("data")?.get("partial_analysis"));
    let given = given.filter(|given| !given.is_null() && **given != Value::String(String::new()))?;
    let written = given.to_string();
    if written.chars().count() <= PARTIAL_ANALYSIS_CHARS_MAX {
        return Some(given.clone());
    }
    Some(Value::String(truncate_chars(&written, PARTIAL_ANALYSIS_CHARS_MAX)))
}

/// Returns the valid drafts of a generate step. Invalid ones are left out and described in `errors`.
fn parse_drafts(
    object: &Map<String, Value>,
    domain: &DomainSchema,
    entities: &KnownEntities,
    step: &AssistantPlanStep,
    errors: &mut Vec<String>,
) -> Vec<ActRecordDraft> {
    let given = member_as_list(object, "drafts");
    if !given.is_empty() && step.kind != AssistantPlanStepKind::Generate {
        errors.push(format!("only a generate step may have `drafts`; this is a `{}` step", step.kind.as_str()));
        return Vec::new();
    }
    let mut drafts = Vec::new();
    for value in given {
        match parse_draft(value, domain, entities, step) {
            Ok(draft) => drafts.push(draft),
            Err(complaints) => errors.extend(complaints.into_iter().map(|why| format!("`drafts`: {why}"))),
        }
    }
    drafts
}

fn parse_draft(
    value: &Value,
    domain: &DomainSchema,
    entities: &KnownEntities,
    step: &AssistantPlanStep,
) -> Result<ActRecordDraft, Vec<String>> {
    let replaces = value.get("ref").and_then(Value::as_str).map(str::to_owned);
    let named = value.get("type").and_then(Value::as_str).unwrap_or(&step.subdomain);
    let kind = domain.expect_type(named).map_err(|why| vec![why])?;
    if let Some(reference) = &replaces {
        let entity = entities.expect_entity(reference, Some(&kind.name)).map_err(|why| vec![why])?;
        if entity.is_saved() {
            return Err(vec![format!("`{reference}` is already saved; a draft can only replace another draft")]);
        }
    }
    let Some(Value::Object(content)) = value.get("content") else {
        return Err(vec!["a draft must be {\"type\": …, \"content\": {field: value, …}}".to_owned()]);
    };
    // A draft may link to another draft; the link is resolved when the draft is saved.
    let known = |field: &super::domain::RecordField, reference: &str| {
        entities.expect_entity(reference, field.to.as_deref()).map(|_| reference.to_owned())
    };
    let content = super::domain::check_record(kind, content, super::domain::RecordValidationMode::AllRequired, &known)?;
    Ok(ActRecordDraft { replaces, kind: kind.name.clone(), content })
}
