//! What models answer, read: JSON in, decisions out, and complaints about what was not as it should be. Nothing here fails;
//! whether a complaint is worth another question is decided elsewhere.

use segue_core::signal::json::find_where;
use serde_json::{Map, Value};

use super::domain::{Domain, listed};
use super::facts::{Decision, How, PendingAnswer, Plan, PlannedStep, Reasoned, StepKind, Understood};
use super::registry::{Detail, Registry};
use crate::limits::{
    ANSWER_COMPLAINTS_MAX, OUTCOME_CHARS_MAX, PARTIAL_CHARS_MAX, PROPOSAL_CHARS_MAX, REFERENCES_MAX, REMARK_CHARS_MAX,
    STEPS_MAX,
};

/// What was read, and what was not as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Read<T> {
    /// What can be used of it.
    pub value: Option<T>,
    /// What is wrong with it.
    pub complaints: Vec<String>,
}

impl<T> Read<T> {
    fn nothing(complaint: impl Into<String>) -> Self {
        Self { value: None, complaints: vec![complaint.into()] }
    }

    fn of(value: T, mut complaints: Vec<String>) -> Self {
        complaints.truncate(ANSWER_COMPLAINTS_MAX);
        Self { value: Some(value), complaints }
    }
}

/// The object of an answer that has one of these members.
fn object(text: &str, members: &[&str]) -> Result<Map<String, Value>, String> {
    let found = find_where(text, |value| members.iter().any(|member| value.get(member).is_some()));
    match found.value {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(format!("the answer must be one JSON object with {}", listed(members.iter().copied()))),
    }
}

fn text(object: &Map<String, Value>, name: &str, chars_max: usize) -> Option<String> {
    let text = object.get(name)?.as_str()?.trim();
    let is_none = text.is_empty() || ["null", "none"].contains(&text.to_lowercase().as_str());
    (!is_none).then(|| cut(text, chars_max))
}

/// The beginning of a text.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// A list that may be one thing.
fn list<'v>(object: &'v Map<String, Value>, name: &str) -> &'v [Value] {
    match object.get(name) {
        Some(Value::Array(items)) => &items[..items.len().min(REFERENCES_MAX)],
        Some(Value::Null) | None => &[],
        Some(one) => std::slice::from_ref(one),
    }
}

/// The references of a list; those that are unknown are complained of by name and left out.
fn references(object: &Map<String, Value>, name: &str, entities: &Registry, wrong: &mut Vec<String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in list(object, name) {
        let reference = value.as_str().or_else(|| value.get("ref")?.as_str());
        match reference.map(|reference| entities.expect(reference.trim(), None).map(|_| reference.trim())) {
            Some(Ok(reference)) if !found.iter().any(|known| known == reference) => found.push(reference.to_owned()),
            Some(Ok(_)) => {}
            Some(Err(why)) => wrong.push(format!("`{name}`: {why}")),
            None => {
                wrong.push(format!("`{name}` must be a list of references, not of {}", cut(&value.to_string(), 80)))
            }
        }
    }
    found
}

/// Reads what Understand answers.
#[must_use]
pub fn understood(answer: &str, entities: &Registry, turn: u32) -> Read<Understood> {
    let members = ["expressed", "references", "retain", "demote", "drop", "clear", "pending"];
    let object = match object(answer, &members) {
        Ok(object) => object,
        Err(why) => return Read::nothing(why),
    };
    let mut wrong = Vec::new();
    let reasoned = |name: &str, wrong: &mut Vec<String>| {
        let named = references(&object, name, entities, wrong);
        let reason = |reference: &str| {
            let given =
                list(&object, name).iter().find(|value| value.get("ref").and_then(Value::as_str) == Some(reference));
            let reason = given.and_then(|value| value.get("reason")?.as_str()).unwrap_or_default();
            cut(reason.trim(), REMARK_CHARS_MAX)
        };
        named.into_iter().map(|reference| Reasoned { reason: reason(&reference), reference }).collect::<Vec<_>>()
    };
    let (retain, demote) = (reasoned("retain", &mut wrong), reasoned("demote", &mut wrong));
    if retain.iter().any(|kept| kept.reason.is_empty()) {
        wrong.push("`retain`: each reference needs a `reason`".to_owned());
    }
    let pending = match text(&object, "pending", REMARK_CHARS_MAX) {
        None => None,
        Some(word) => match serde_json::from_value::<PendingAnswer>(Value::String(word.to_lowercase())) {
            Ok(answer) => Some(answer),
            Err(_) => {
                wrong.push(format!(
                    "`pending` must be `accepted`, `declined`, `answered`, `ignored` or null, not `{word}`"
                ));
                None
            }
        },
    };
    let understood = Understood {
        turn,
        expressed: text(&object, "expressed", REMARK_CHARS_MAX).unwrap_or_default(),
        references: references(&object, "references", entities, &mut wrong),
        // What cannot be said to be kept for something is not kept.
        retain: retain.into_iter().filter(|kept| !kept.reason.is_empty()).collect(),
        demote,
        drop: references(&object, "drop", entities, &mut wrong),
        clear: object.get("clear").and_then(Value::as_bool).unwrap_or(false),
        pending,
        how: How::Given,
        complaints: Vec::new(),
    };
    if understood.expressed.is_empty() {
        wrong.push("`expressed` is missing: what the user expressed, in a few words".to_owned());
    }
    Read::of(understood, wrong)
}

/// Reads what Think answers. A plan that cannot be carried out as it stands is no plan.
#[must_use]
pub fn planned(answer: &str, domain: &Domain, entities: &Registry, turn: u32) -> Read<Plan> {
    let object = match object(answer, &["decision", "steps"]) {
        Ok(object) => object,
        Err(why) => return Read::nothing(why),
    };
    let word = text(&object, "decision", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let Ok(decision) = serde_json::from_value::<Decision>(Value::String(word.clone())) else {
        return Read::nothing(format!("`decision` must be `plan_direct`, `propose` or `clarify`, not `{word}`"));
    };
    let say = text(&object, "say", PROPOSAL_CHARS_MAX);
    let mut wrong = Vec::new();
    let mut sound = true;
    let mut steps = Vec::new();
    let mut skipped = Vec::new();
    if decision == Decision::PlanDirect {
        let wished = list(&object, "steps");
        if wished.is_empty() {
            wrong.push("`plan_direct` needs at least one step".to_owned());
            sound = false;
        }
        if wished.len() > STEPS_MAX {
            wrong.push(format!("the plan has {} steps; at most {STEPS_MAX} are taken", wished.len()));
            sound = false;
        }
        for (place, step) in wished.iter().take(STEPS_MAX).enumerate() {
            let number = u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1);
            match planned_step(step, number, domain, entities, &mut wrong) {
                Some(step) if is_loaded(&step, entities) => skipped.push(step.description),
                Some(step) => steps.push(step),
                None => sound = false,
            }
        }
        order(&mut steps);
    } else if say.is_none() {
        wrong.push(format!("`{word}` needs `say`: what the user is to be told"));
        sound = false;
    }
    let goal = text(&object, "goal", OUTCOME_CHARS_MAX).unwrap_or_default();
    let plan = Plan { turn, decision, goal, steps, say, skipped, how: How::Given };
    let Read { value, complaints } = Read::of(plan, wrong);
    Read { value: value.filter(|_| sound), complaints }
}

fn planned_step(
    value: &Value,
    step: u32,
    domain: &Domain,
    entities: &Registry,
    wrong: &mut Vec<String>,
) -> Option<PlannedStep> {
    let Value::Object(object) = value else {
        wrong.push(format!("step {step} must be an object, not {}", cut(&value.to_string(), 80)));
        return None;
    };
    let mut complain = |why: String| wrong.push(format!("step {step}: {why}"));
    let word = text(object, "type", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let kind = StepKind::ALL.into_iter().find(|kind| kind.word() == word);
    if kind.is_none() {
        complain(format!("`type` must be {}, not `{word}`", listed(StepKind::ALL.iter().map(|kind| kind.word()))));
    }
    let description = text(object, "description", OUTCOME_CHARS_MAX);
    if description.is_none() {
        complain("`description` is missing: what is to be done".to_owned());
    }
    let subdomain = text(object, "subdomain", REMARK_CHARS_MAX).unwrap_or_default();
    // Where a server brings tools and nothing else is declared, any word will do.
    let is_known = domain.types.is_empty() || domain.find(&subdomain).is_some();
    if let Some(why) = domain.expect_type(&subdomain).err().filter(|_| !is_known) {
        complain(format!("`subdomain`: {why}"));
    }
    let group = object.get("group").and_then(Value::as_u64).and_then(|group| u32::try_from(group).ok());
    let mut unknown = Vec::new();
    let refs = references(object, "refs", entities, &mut unknown);
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
fn is_loaded(step: &PlannedStep, entities: &Registry) -> bool {
    let is_full = |reference: &String| entities.get(reference).is_some_and(|entity| entity.detail == Detail::Full);
    step.kind == StepKind::Read && !step.refs.is_empty() && step.refs.iter().all(is_full)
}

/// Numbers steps from 1 in the order in which their groups run.
fn order(steps: &mut [PlannedStep]) {
    steps.sort_by_key(|step| step.group);
    for (step, number) in steps.iter_mut().zip(1..) {
        step.step = number;
    }
}

/// What Act answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A tool is to be run.
    ToolCall {
        /// Which.
        tool: String,
        /// With what.
        arguments: Map<String, Value>,
    },
    /// The step is done.
    StepComplete(Completed),
    /// The user must be asked.
    AskUser {
        /// What.
        question: String,
        /// How far the step had come.
        partial: Option<Value>,
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
        next: Option<String>,
    },
    /// It did not succeed.
    Fail {
        /// Why.
        reason: String,
    },
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completed {
    /// What came of it.
    pub outcome: String,
    /// What it is about.
    pub refs: Vec<String>,
    /// What the next step should know.
    pub note: Option<String>,
    /// What was written, each with the draft it takes the place of.
    pub drafts: Vec<Written>,
}

/// A draft as a model writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The draft it takes the place of.
    pub replaces: Option<String>,
    /// Its type.
    pub kind: String,
    /// Its fields, with references for links.
    pub content: Map<String, Value>,
}

/// The actions, as they are written.
pub const ACTIONS: [&str; 6] = ["tool_call", "step_complete", "ask_user", "retrieve_step", "blocked", "fail"];

/// Reads what Act answers.
#[must_use]
pub fn action(answer: &str, domain: &Domain, entities: &Registry, step: &PlannedStep) -> Read<Action> {
    let object = match object(answer, &["action"]) {
        Ok(object) => object,
        Err(why) => return Read::nothing(why),
    };
    let word = text(&object, "action", REMARK_CHARS_MAX).unwrap_or_default().to_lowercase();
    let need =
        |name: &str, chars_max: usize| text(&object, name, chars_max).ok_or_else(|| format!("`{word}` needs `{name}`"));
    let number = |name: &str| object.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let mut wrong = Vec::new();
    let action = match word.as_str() {
        "tool_call" => need("tool", REMARK_CHARS_MAX).and_then(|tool| match object.get("arguments") {
            None | Some(Value::Null) => Ok(Action::ToolCall { tool, arguments: Map::new() }),
            Some(Value::Object(arguments)) => Ok(Action::ToolCall { tool, arguments: arguments.clone() }),
            Some(_) => Err("`arguments` must be an object".to_owned()),
        }),
        "step_complete" => need("outcome", OUTCOME_CHARS_MAX).map(|outcome| {
            let refs = references(&object, "refs", entities, &mut wrong);
            let note = text(&object, "note_for_next_step", REMARK_CHARS_MAX);
            let drafts = drafts(&object, domain, entities, step, &mut wrong);
            Action::StepComplete(Completed { outcome, refs, note, drafts })
        }),
        "ask_user" => need("question", PROPOSAL_CHARS_MAX).map(|question| {
            let partial = partial(&object);
            if partial.is_none() && step.kind == StepKind::Analyze {
                wrong.push("`ask_user` in an analyze step needs `partial`: what was found out so far".to_owned());
            }
            Action::AskUser { question, partial }
        }),
        "retrieve_step" => number("step")
            .map(|step| Action::RetrieveStep { turn: number("turn"), step })
            .ok_or_else(|| "`retrieve_step` needs `step`: its number".to_owned()),
        "blocked" => need("reason", OUTCOME_CHARS_MAX)
            .map(|reason| Action::Blocked { reason, next: text(&object, "next", OUTCOME_CHARS_MAX) }),
        "fail" => need("reason", OUTCOME_CHARS_MAX).map(|reason| Action::Fail { reason }),
        _ => Err(format!("`action` must be one of {}, not `{word}`", listed(ACTIONS.iter().copied()))),
    };
    match action {
        Ok(action) => Read::of(action, wrong),
        Err(why) => Read::nothing(why),
    }
}

fn partial(object: &Map<String, Value>) -> Option<Value> {
    let given = object.get("partial").or_else(|| object.get("data")?.get("partial_analysis"));
    let given = given.filter(|given| !given.is_null() && **given != Value::String(String::new()))?;
    let written = given.to_string();
    if written.chars().count() <= PARTIAL_CHARS_MAX {
        return Some(given.clone());
    }
    Some(Value::String(cut(&written, PARTIAL_CHARS_MAX)))
}

/// The drafts of a step that generates; those that do not fit their type are complained of and left out.
fn drafts(
    object: &Map<String, Value>,
    domain: &Domain,
    entities: &Registry,
    step: &PlannedStep,
    wrong: &mut Vec<String>,
) -> Vec<Written> {
    let given = list(object, "drafts");
    if !given.is_empty() && step.kind != StepKind::Generate {
        wrong.push(format!("`drafts` belong to a generate step, and this is `{}`", step.kind.word()));
        return Vec::new();
    }
    let mut drafts = Vec::new();
    for value in given {
        match draft(value, domain, entities, step) {
            Ok(draft) => drafts.push(draft),
            Err(complaints) => wrong.extend(complaints.into_iter().map(|why| format!("`drafts`: {why}"))),
        }
    }
    drafts
}

fn draft(value: &Value, domain: &Domain, entities: &Registry, step: &PlannedStep) -> Result<Written, Vec<String>> {
    let replaces = value.get("ref").and_then(Value::as_str).map(str::to_owned);
    let named = value.get("type").and_then(Value::as_str).unwrap_or(&step.subdomain);
    let kind = domain.expect_type(named).map_err(|why| vec![why])?;
    if let Some(reference) = &replaces {
        let entity = entities.expect(reference, Some(&kind.name)).map_err(|why| vec![why])?;
        if entity.is_saved() {
            return Err(vec![format!("`{reference}` is saved; a draft takes the place of a draft only")]);
        }
    }
    let Some(Value::Object(content)) = value.get("content") else {
        return Err(vec!["a draft is {\"type\": …, \"content\": {field: value, …}}".to_owned()]);
    };
    // A draft may lead to another draft: it is resolved when it is saved.
    let known = |field: &super::domain::Field, reference: &str| {
        entities.expect(reference, field.to.as_deref()).map(|_| reference.to_owned())
    };
    let content = super::domain::check_record(kind, content, super::domain::Need::All, &known)?;
    Ok(Written { replaces, kind: kind.name.clone(), content })
}
