//! What models answer, read: JSON in, decisions out, and complaints about what was not as it should be. Nothing here fails;
//! whether a complaint is worth another question is decided elsewhere.

use segue_core::signal::json::find_json_where;
use serde_json::{Map, Value};

use super::domain::{DomainSchema, format_name_list};
use super::facts::{
    AnswerQuality, MessageUnderstanding, PlannedStep, ReferenceWithReason, StepKind, ThinkDecision, TurnPlan,
    UserResponseKind,
};
use super::registry::{DetailLevel, EntityRegistry};
use crate::limits::{
    ANSWER_COMPLAINTS_MAX, ASSISTANT_PLAN_STEPS_MAX, OUTCOME_CHARS_MAX, PARTIAL_ANALYSIS_CHARS_MAX, PROPOSAL_CHARS_MAX,
    REFERENCES_MAX, REMARK_CHARS_MAX,
};

/// What was read, and what was not as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedAnswer<T> {
    /// What can be used of it.
    pub value: Option<T>,
    /// What is wrong with it.
    pub complaints: Vec<String>,
}

impl<T> ParsedAnswer<T> {
    fn unusable(complaint: impl Into<String>) -> Self {
        Self { value: None, complaints: vec![complaint.into()] }
    }

    fn usable(value: T, mut complaints: Vec<String>) -> Self {
        complaints.truncate(ANSWER_COMPLAINTS_MAX);
        Self { value: Some(value), complaints }
    }
}

/// The object of an answer that has one of these members.
fn find_answer_object(text: &str, members: &[&str]) -> Result<Map<String, Value>, String> {
    let found = find_json_where(text, |value| members.iter().any(|member| value.get(member).is_some()));
    match found.value {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(format!("the answer must be one JSON object with {}", format_name_list(members.iter().copied()))),
    }
}

fn get_text(object: &Map<String, Value>, name: &str, chars_max: usize) -> Option<String> {
    let text = object.get(name)?.as_str()?.trim();
    let is_none = text.is_empty() || ["null", "none"].contains(&text.to_lowercase().as_str());
    (!is_none).then(|| truncate_chars(text, chars_max))
}

/// The beginning of a text.
pub(super) fn truncate_chars(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// A list that may be one thing.
fn get_list<'v>(object: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    match object.get(name) {
        Some(Value::Array(items)) => &items[..items.len().min(REFERENCES_MAX)],
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    }
}

/// The references of a list; those that are unknown are complained of by name and left out.
fn parse_references(
    object: &Map<String, Value>,
    name: &str,
    entities: &EntityRegistry,
    errors: &mut Vec<String>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in get_list(object, name) {
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

/// Reads what Understand answers.
#[must_use]
pub fn parse_understand_answer(
    answer: &str,
    entities: &EntityRegistry,
    turn: u32,
) -> ParsedAnswer<MessageUnderstanding> {
    let members = ["expressed", "references", "retain", "demote", "drop", "clear", "pending"];
    let object = match find_answer_object(answer, &members) {
        Ok(object) => object,
        Err(why) => return ParsedAnswer::unusable(why),
    };
    let mut wrong = Vec::new();
    let reasoned = |name: &str, wrong: &mut Vec<String>| {
        let named = parse_references(&object, name, entities, wrong);
        let reason = |reference: &str| {
            let given = get_list(&object, name)
                .iter()
                .find(|value| value.get("ref").and_then(Value::as_str) == Some(reference));
            let reason = given.and_then(|value| value.get("reason")?.as_str()).unwrap_or_default();
            truncate_chars(reason.trim(), REMARK_CHARS_MAX)
        };
        named
            .into_iter()
            .map(|reference| ReferenceWithReason { reason: reason(&reference), reference })
            .collect::<Vec<_>>()
    };
    let (retain, demote) = (reasoned("retain", &mut wrong), reasoned("demote", &mut wrong));
    if retain.iter().any(|kept| kept.reason.is_empty()) {
        wrong.push("`retain`: each reference needs a `reason`".to_owned());
    }
    let pending = match get_text(&object, "pending", REMARK_CHARS_MAX) {
        None => None,
        Some(word) => match serde_json::from_value::<UserResponseKind>(Value::String(word.to_lowercase())) {
            Ok(answer) => Some(answer),
            Err(_) => {
                wrong.push(format!(
                    "`pending` must be `accepted`, `declined`, `answered`, `ignored` or null, not `{word}`"
                ));
                None
            }
        },
    };
    let understood = MessageUnderstanding {
        turn,
        intent: get_text(&object, "expressed", REMARK_CHARS_MAX).unwrap_or_default(),
        references: parse_references(&object, "references", entities, &mut wrong),
        // What cannot be said to be kept for something is not kept.
        retained: retain.into_iter().filter(|kept| !kept.reason.is_empty()).collect(),
        demoted: demote,
        dropped: parse_references(&object, "drop", entities, &mut wrong),
        drops_all_saved: object.get("clear").and_then(Value::as_bool).unwrap_or(false),
        response_to_pending: pending,
        quality: AnswerQuality::FirstAttempt,
        complaints: Vec::new(),
    };
    if understood.intent.is_empty() {
        wrong.push("`expressed` is missing: what the user expressed, in a few words".to_owned());
    }
    ParsedAnswer::usable(understood, wrong)
}

/// Reads what Think answers. A plan that cannot be carried out as it stands is no plan.
#[must_use]
pub fn parse_think_answer(
    answer: &str,
    domain: &DomainSchema,
    entities: &EntityRegistry,
    turn: u32,
) -> ParsedAnswer<TurnPlan> {
    let object = match find_answer_object(answer, &["decision", "steps"]) {
        Ok(object) => object,
        Err(why) => return ParsedAnswer::unusable(why),
    };
    let word = get_text(&object, "decision", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let Ok(decision) = serde_json::from_value::<ThinkDecision>(Value::String(word.clone())) else {
        return ParsedAnswer::unusable(format!(
            "`decision` must be `plan_direct`, `propose` or `clarify`, not `{word}`"
        ));
    };
    let say = get_text(&object, "say", PROPOSAL_CHARS_MAX);
    let mut wrong = Vec::new();
    let mut sound = true;
    let mut steps = Vec::new();
    let mut skipped = Vec::new();
    if decision == ThinkDecision::PlanDirect {
        let wished = get_list(&object, "steps");
        if wished.is_empty() {
            wrong.push("`plan_direct` needs at least one step".to_owned());
            sound = false;
        }
        if wished.len() > ASSISTANT_PLAN_STEPS_MAX {
            wrong.push(format!("the plan has {} steps; at most {ASSISTANT_PLAN_STEPS_MAX} are taken", wished.len()));
            sound = false;
        }
        for (place, step) in wished.iter().take(ASSISTANT_PLAN_STEPS_MAX).enumerate() {
            let number = u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1);
            match parse_planned_step(step, number, domain, entities, &mut wrong) {
                Some(step) if is_read_already_loaded(&step, entities) => skipped.push(step.description),
                Some(step) => steps.push(step),
                None => sound = false,
            }
        }
        sort_and_renumber_steps(&mut steps);
    } else if say.is_none() {
        wrong.push(format!("`{word}` needs `say`: what the user is to be told"));
        sound = false;
    }
    let goal = get_text(&object, "goal", OUTCOME_CHARS_MAX).unwrap_or_default();
    let plan = TurnPlan {
        turn,
        decision,
        goal,
        steps,
        message_to_user: say,
        skipped_steps: skipped,
        quality: AnswerQuality::FirstAttempt,
    };
    let ParsedAnswer { value, complaints } = ParsedAnswer::usable(plan, wrong);
    ParsedAnswer { value: value.filter(|_| sound), complaints }
}

fn parse_planned_step(
    value: &Value,
    step: u32,
    domain: &DomainSchema,
    entities: &EntityRegistry,
    errors: &mut Vec<String>,
) -> Option<PlannedStep> {
    let Value::Object(object) = value else {
        errors.push(format!("step {step} must be an object, not {}", truncate_chars(&value.to_string(), 80)));
        return None;
    };
    let mut complain = |why: String| errors.push(format!("step {step}: {why}"));
    let word = get_text(object, "type", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let kind = StepKind::ALL.into_iter().find(|kind| kind.as_str() == word);
    if kind.is_none() {
        complain(format!(
            "`type` must be {}, not `{word}`",
            format_name_list(StepKind::ALL.iter().map(|kind| kind.as_str()))
        ));
    }
    let description = get_text(object, "description", OUTCOME_CHARS_MAX);
    if description.is_none() {
        complain("`description` is missing: what is to be done".to_owned());
    }
    let subdomain = get_text(object, "subdomain", REMARK_CHARS_MAX).unwrap_or_default();
    // Where a server brings tools and nothing else is declared, any word will do.
    let is_known = domain.types.is_empty() || domain.find_type(&subdomain).is_some();
    if let Some(why) = domain.expect_type(&subdomain).err().filter(|_| !is_known) {
        complain(format!("`subdomain`: {why}"));
    }
    let group = object.get("group").and_then(Value::as_u64).and_then(|group| u32::try_from(group).ok());
    let mut unknown = Vec::new();
    let refs = parse_references(object, "refs", entities, &mut unknown);
    let is_sound = unknown.is_empty();
    unknown.into_iter().for_each(complain);
    let kind = kind?;
    // A write to something that is not there is no write; a thought about it can do without.
    if !is_known || (!is_sound && kind == StepKind::Write) {
        return None;
    }
    Some(PlannedStep { step, description: description?, kind, subdomain, group: group.unwrap_or(step), refs })
}

/// A read of nothing but what is at hand is not needed.
fn is_read_already_loaded(step: &PlannedStep, entities: &EntityRegistry) -> bool {
    let is_full = |reference: &String| entities.get(reference).is_some_and(|entity| entity.detail == DetailLevel::Full);
    step.kind == StepKind::Read && !step.refs.is_empty() && step.refs.iter().all(is_full)
}

/// Numbers steps from 1 in the order in which their groups run.
fn sort_and_renumber_steps(steps: &mut [PlannedStep]) {
    steps.sort_by_key(|step| step.group);
    for (step, number) in steps.iter_mut().zip(1..) {
        step.step = number;
    }
}

/// What Act answers.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// A tool is to be run.
    ToolCall {
        /// Which.
        tool: String,
        /// With what.
        arguments: Map<String, Value>,
    },
    /// The step is done.
    StepComplete(StepCompletion),
    /// The user must be asked.
    AskUser {
        /// What.
        question: String,
        /// How far the step had come.
        partial_result: Option<Value>,
    },
    /// The result of an earlier step is wanted.
    RetrieveStep {
        /// Of which turn; this one if nothing is said.
        turn: Option<u32>,
        /// Which.
        step: u32,
    },
    /// It cannot be done as things are.
    Blocked {
        /// Why.
        reason: String,
        /// What could be done.
        suggested_next: Option<String>,
    },
    /// It did not succeed.
    Fail {
        /// Why.
        reason: String,
    },
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepCompletion {
    /// What came of it.
    pub outcome: String,
    /// What it is about.
    pub refs: Vec<String>,
    /// What the next step should know.
    pub note: Option<String>,
    /// What was written, each with the draft it takes the place of.
    pub drafts: Vec<ModelDraft>,
}

/// A draft as a model writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelDraft {
    /// The draft it takes the place of.
    pub replaces: Option<String>,
    /// Its type.
    pub kind: String,
    /// Its fields, with references for links.
    pub content: Map<String, Value>,
}

/// The actions, as they are written.
pub const STEP_ACTION_NAMES: [&str; 6] = ["tool_call", "step_complete", "ask_user", "retrieve_step", "blocked", "fail"];

/// Reads what Act answers.
#[must_use]
pub fn parse_act_answer(
    answer: &str,
    domain: &DomainSchema,
    entities: &EntityRegistry,
    step: &PlannedStep,
) -> ParsedAnswer<StepAction> {
    let object = match find_answer_object(answer, &["action"]) {
        Ok(object) => object,
        Err(why) => return ParsedAnswer::unusable(why),
    };
    let word = get_text(&object, "action", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let need = |name: &str, chars_max: usize| {
        get_text(&object, name, chars_max).ok_or_else(|| format!("`{word}` needs `{name}`"))
    };
    let number = |name: &str| object.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let mut wrong = Vec::new();
    let action = match word.as_str() {
        "tool_call" => need("tool", REMARK_CHARS_MAX).and_then(|tool| match object.get("arguments") {
            None | Some(Value::Null) => Ok(StepAction::ToolCall { tool, arguments: Map::new() }),
            Some(Value::Object(arguments)) => Ok(StepAction::ToolCall { tool, arguments: arguments.clone() }),
            Some(_) => Err("`arguments` must be an object".to_owned()),
        }),
        "step_complete" => need("outcome", OUTCOME_CHARS_MAX).map(|outcome| {
            let refs = parse_references(&object, "refs", entities, &mut wrong);
            let note = get_text(&object, "note_for_next_step", REMARK_CHARS_MAX);
            let drafts = parse_drafts(&object, domain, entities, step, &mut wrong);
            StepAction::StepComplete(StepCompletion { outcome, refs, note, drafts })
        }),
        "ask_user" => need("question", PROPOSAL_CHARS_MAX).map(|question| {
            let partial = parse_partial_result(&object);
            if partial.is_none() && step.kind == StepKind::Analyze {
                wrong.push("`ask_user` in an analyze step needs `partial`: what was found out so far".to_owned());
            }
            StepAction::AskUser { question, partial_result: partial }
        }),
        "retrieve_step" => number("step")
            .map(|step| StepAction::RetrieveStep { turn: number("turn"), step })
            .ok_or_else(|| "`retrieve_step` needs `step`: its number".to_owned()),
        "blocked" => need("reason", OUTCOME_CHARS_MAX)
            .map(|reason| StepAction::Blocked { reason, suggested_next: get_text(&object, "next", OUTCOME_CHARS_MAX) }),
        "fail" => need("reason", OUTCOME_CHARS_MAX).map(|reason| StepAction::Fail { reason }),
        _ => Err(format!(
            "`action` must be one of {}, not `{word}`",
            format_name_list(STEP_ACTION_NAMES.iter().copied())
        )),
    };
    match action {
        Ok(action) => ParsedAnswer::usable(action, wrong),
        Err(why) => ParsedAnswer::unusable(why),
    }
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

/// The drafts of a step that generates; those that do not fit their type are complained of and left out.
fn parse_drafts(
    object: &Map<String, Value>,
    domain: &DomainSchema,
    entities: &EntityRegistry,
    step: &PlannedStep,
    errors: &mut Vec<String>,
) -> Vec<ModelDraft> {
    let given = get_list(object, "drafts");
    if !given.is_empty() && step.kind != StepKind::Generate {
        errors.push(format!("`drafts` belong to a generate step, and this is `{}`", step.kind.as_str()));
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
    entities: &EntityRegistry,
    step: &PlannedStep,
) -> Result<ModelDraft, Vec<String>> {
    let replaces = value.get("ref").and_then(Value::as_str).map(str::to_owned);
    let named = value.get("type").and_then(Value::as_str).unwrap_or(&step.subdomain);
    let kind = domain.expect_type(named).map_err(|why| vec![why])?;
    if let Some(reference) = &replaces {
        let entity = entities.expect_entity(reference, Some(&kind.name)).map_err(|why| vec![why])?;
        if entity.is_saved() {
            return Err(vec![format!("`{reference}` is saved; a draft takes the place of a draft only")]);
        }
    }
    let Some(Value::Object(content)) = value.get("content") else {
        return Err(vec!["a draft is {\"type\": …, \"content\": {field: value, …}}".to_owned()]);
    };
    // A draft may lead to another draft: it is resolved when it is saved.
    let known = |field: &super::domain::RecordField, reference: &str| {
        entities.expect_entity(reference, field.to.as_deref()).map(|_| reference.to_owned())
    };
    let content = super::domain::check_record(kind, content, super::domain::RecordCompleteness::AllRequired, &known)?;
    Ok(ModelDraft { replaces, kind: kind.name.clone(), content })
}
