//! The private questions of structured signals: their prompts, the JSON schemas of their answers, and what the answers
//! mean. A question leaves no trace in the concierge's thread. One that needs the whole conversation sees the thread; one
//! about the user's last message sees only that, and what it refers to.

use segue_core::body::TextRef;
use segue_core::event::CallRequest;
use segue_core::handover::{HandoverDocument, HandoverFieldType, HandoverFieldValue};
use segue_core::signal::{find_json_where, quote_lines, wrap_in_code_fence};
use serde_json::{Map, Value, json};

use super::consent::ExpertBatchConsentAnswer;
use super::plan::{ConciergePlan, ConciergePlanStep, ConciergePlanStepStatus, truncate_steps};
use super::settings::ConciergeSettings;
use super::spec::{
    ASK_CONSENT_QUESTION, ASK_EXECUTION_QUESTION, ASK_INTENT_QUESTION, ASK_PLAN_QUESTION, ASK_PROGRESS_QUESTION,
    ASK_STANCE_QUESTION, ASK_STEPS_QUESTION, BATCH_BLOCK, CONCIERGE_ROLE, EXECUTION_FIELDS, HANDOVER_BLOCK,
    INTENT_FIELDS,
};
use super::stance::ReplyStance;
use super::state::ConciergeFlowContext;
use super::{messages, sample_echo};
use crate::limits::{
    EXPERT_PROMPT_CHARS_ASKED, PLAN_STEPS_ASKED, QUESTION_EARLIER_REPLY_CHARS_MAX, QUESTION_ITEM_CHARS_ASKED,
    QUESTION_LIST_ITEMS_ASKED, QUESTION_LIST_ITEMS_MAX, QUESTION_REPLY_CHARS_MAX, QUESTION_TEXT_CHARS_ASKED,
    QUESTION_TEXT_CHARS_MAX, SHORT_MESSAGE_WORDS_MAX,
};
use crate::template::fill_template;

/// The fields of an intent handover that the concierge is asked for. The flow knows the others.
const INTENT_QUESTION_FIELDS: [&str; 7] = [
    "goal",
    "constraints",
    "accepted_framing",
    "resisted_framing",
    "unprompted_reveals",
    "still_unclear",
    "effective_stance",
];

/// Returns whether `ask` is one of the private questions.
pub(super) fn is_private_question(ask: &str) -> bool {
    matches!(
        ask,
        ASK_STANCE_QUESTION
            | ASK_INTENT_QUESTION
            | ASK_PLAN_QUESTION
            | ASK_EXECUTION_QUESTION
            | ASK_STEPS_QUESTION
            | ASK_PROGRESS_QUESTION
            | ASK_CONSENT_QUESTION
    )
}

/// Returns whether `ask` is a question about the user's last message, which does not see the concierge's thread.
pub(super) fn is_standalone(ask: &str) -> bool {
    matches!(ask, ASK_STANCE_QUESTION | ASK_PLAN_QUESTION | ASK_PROGRESS_QUESTION | ASK_CONSENT_QUESTION)
}

/// Returns the request for a private question.
pub(super) fn question_request(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    ask: &str,
    metadata: Value,
) -> CallRequest {
    CallRequest {
        model: settings.concierge.clone(),
        metadata,
        output_schema: answer_schema(ask, view.state.active_plan.as_ref()),
        ..CallRequest::new(CONCIERGE_ROLE, ask)
    }
}

/// Renders the text of a private question.
pub(super) fn render_private_question(view: &ConciergeFlowContext<'_>, ask: &str, metadata: &Value) -> String {
    let question = match ask {
        ASK_INTENT_QUESTION => fill_template(
            include_str!("../../prompts/concierge/questions/intent.md"),
            &json!({"fields": describe_fields(HANDOVER_BLOCK, &intent_question_fields())}),
        ),
        ASK_EXECUTION_QUESTION => fill_template(
            include_str!("../../prompts/concierge/questions/execution.md"),
            &json!({"fields": describe_fields(BATCH_BLOCK, &EXECUTION_FIELDS), "guide": guide_for_writing_expert_prompts()}),
        ),
        ASK_STEPS_QUESTION => fill_template(include_str!("../../prompts/concierge/questions/steps.md"), &()),
        ASK_PROGRESS_QUESTION => fill_template(include_str!("../../prompts/concierge/questions/progress.md"), &()),
        ASK_CONSENT_QUESTION => fill_template(include_str!("../../prompts/concierge/questions/consent.md"), &()),
        ASK_STANCE_QUESTION => fill_template(include_str!("../../prompts/concierge/questions/stance.md"), &()),
        _ => fill_template(include_str!("../../prompts/concierge/questions/plan.md"), &()),
    };
    if is_standalone(ask) {
        let standalone = include_str!("../../prompts/concierge/questions/standalone.md");
        return fill_template(standalone, &json!({ "question": question }));
    }
    let answer = render_unusable_answer(view, metadata);
    let arguments = json!({"question": question, "missing": metadata.get("missing"), "answer": answer});
    fill_template(include_str!("../../prompts/concierge/questions/frame.md"), &arguments)
}

/// Renders what a standalone question is about. The user's message comes last.
pub(super) fn render_said(view: &ConciergeFlowContext<'_>, ask: &str, metadata: &Value) -> String {
    let message = messages::current_turn_user_text(view);
    // The last exchange is this turn's, once the user has got a reply.
    let mut replies = view.state.visit.exchanges.iter().rev().map(|exchange| exchange.reply);
    let reply = if view.state.replied_in_phase { replies.next() } else { None };
    let reply = reply.filter(|_| ask == ASK_PROGRESS_QUESTION);
    let is_short = message.split_whitespace().count() <= SHORT_MESSAGE_WORDS_MAX;
    let is_asked_after_reply = matches!(ask, ASK_PLAN_QUESTION | ASK_PROGRESS_QUESTION);
    let before = replies.next().filter(|_| is_short && is_asked_after_reply);
    let asked = view.state.pending_confirmation.as_ref().filter(|_| ask == ASK_CONSENT_QUESTION);
    let arguments = json!({
        "missing": metadata.get("missing"),
        "answer": render_unusable_answer(view, metadata),
        "before": before.map(|text| quote_lines(&last_chars(&view.read_text(text), QUESTION_EARLIER_REPLY_CHARS_MAX))),
        "reply": reply.map(|text| quote_lines(&first_chars(&view.read_text(text), QUESTION_REPLY_CHARS_MAX))),
        "asked": asked.map(|request| quote_lines(&messages::render_confirmation_question(request))),
        "message": quote_lines(&first_chars(&message, QUESTION_TEXT_CHARS_MAX)),
    });
    fill_template(include_str!("../../prompts/concierge/questions/said.md"), &arguments)
}

/// Renders the answer that is asked for again.
fn render_unusable_answer(view: &ConciergeFlowContext<'_>, metadata: &Value) -> Option<String> {
    let answer: TextRef = serde_json::from_value(metadata.get("answer")?.clone()).ok()?;
    Some(wrap_in_code_fence(&first_chars(&view.read_text(answer), QUESTION_TEXT_CHARS_MAX)))
}

fn first_chars(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

fn last_chars(text: &str, chars_max: usize) -> String {
    text.chars().skip(text.chars().count().saturating_sub(chars_max)).collect()
}

/// Returns the guide for prompts to experts.
pub(super) fn guide_for_writing_expert_prompts() -> String {
    fill_template(include_str!("../../prompts/concierge/expert_prompt_guide.md"), &())
}

fn intent_question_fields() -> Vec<(&'static str, HandoverFieldType)> {
    INTENT_FIELDS.into_iter().filter(|(name, _)| INTENT_QUESTION_FIELDS.contains(name)).collect()
}

/// Describes fields with the samples of the blocks, so that a repeated description is recognised in both forms.
fn describe_fields(block: &str, fields: &[(&str, HandoverFieldType)]) -> Vec<Value> {
    let describe = |(name, field_type): &(&str, HandoverFieldType)| {
        let about = sample_echo::sample_text(block, name);
        json!({"name": name, "is_list": *field_type == HandoverFieldType::List, "about": about})
    };
    fields.iter().map(describe).collect()
}

/// Returns the JSON schema of the answer to a question. It lists the steps of the plan that are not complete.
fn answer_schema(ask: &str, plan: Option<&ConciergePlan>) -> Value {
    let text = || json!({"type": "string", "maxLength": QUESTION_TEXT_CHARS_ASKED});
    let choice = |values: &[&str]| json!({"type": "string", "enum": values});
    let fields = |fields: &[(&str, HandoverFieldType)]| -> Map<String, Value> {
        let schema = |field_type: &HandoverFieldType| match field_type {
            HandoverFieldType::Text => text(),
            HandoverFieldType::List => {
                json!({"type": "array", "items": {"type": "string", "maxLength": QUESTION_ITEM_CHARS_ASKED}, "maxItems": QUESTION_LIST_ITEMS_ASKED})
            }
        };
        fields.iter().map(|(name, field_type)| ((*name).to_owned(), schema(field_type))).collect()
    };
    let one = |name: &str, schema: Value| Map::from_iter([(name.to_owned(), schema)]);
    let properties = match ask {
        ASK_INTENT_QUESTION => {
            let mut properties = one("ready", json!({"type": "boolean"}));
            properties.extend(fields(&intent_question_fields()));
            properties.insert("effective_stance".to_owned(), choice(&ReplyStance::ALL.map(ReplyStance::name)));
            properties
        }
        ASK_EXECUTION_QUESTION => {
            let mut properties = fields(&EXECUTION_FIELDS);
            properties.insert("prompt".to_owned(), json!({"type": "string", "maxLength": EXPERT_PROMPT_CHARS_ASKED}));
            properties
        }
        ASK_STEPS_QUESTION => {
            // Models write the members in this order, and what a step is must come before everything about it.
            let names = ["action", "details", "done_when"];
            let entry = closed_object(names.into_iter().map(|name| (name.to_owned(), text())).collect());
            one("steps", json!({"type": "array", "items": entry, "maxItems": PLAN_STEPS_ASKED}))
        }
        ASK_PROGRESS_QUESTION => {
            let open = plan.map(open_step_numbers).unwrap_or_default();
            let chosen: Vec<Value> = open.iter().map(|number| json!(number)).chain([Value::Null]).collect();
            let mut properties = one("done", json!({"type": "array", "items": {"type": "integer", "enum": open}}));
            properties.insert("current".to_owned(), json!({"enum": chosen}));
            properties.insert("needs".to_owned(), choice(&["nothing", "help", "new_plan"]));
            properties.insert("blocker".to_owned(), text());
            properties
        }
        ASK_STANCE_QUESTION => one("stance", choice(&ReplyStance::ALL.map(ReplyStance::name))),
        ASK_CONSENT_QUESTION => one("answer", choice(&["yes", "no", "unclear"])),
        _ => one("kind", choice(&["question", "remark", "plan_request", "unclear"])),
    };
    closed_object(properties)
}

fn closed_object(properties: Map<String, Value>) -> Value {
    let required: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

fn open_step_numbers(plan: &ConciergePlan) -> Vec<usize> {
    (0..plan.steps.len())
        .filter(|index| plan.step_status(*index) != ConciergePlanStepStatus::Complete)
        .map(|index| index + 1)
        .collect()
}

/// The answer to the question for an intent handover.
#[derive(Debug, PartialEq)]
pub(super) struct IntentHandoverAnswer {
    /// Whether the user has said enough.
    pub(super) is_ready: bool,
    pub(super) document: HandoverDocument,
}

/// Parses the answer to the question for an intent handover.
pub(super) fn parse_intent_answer(answer: &str) -> Option<IntentHandoverAnswer> {
    let object = find_object(answer, &["ready", "goal"])?;
    let document = parse_document(HANDOVER_BLOCK, &object, &intent_question_fields());
    Some(IntentHandoverAnswer { is_ready: object.get("ready") != Some(&Value::Bool(false)), document })
}

/// Parses the answer to the question for an execution handover: the document and the prompt for the experts.
pub(super) fn parse_execution_answer(answer: &str) -> Option<(HandoverDocument, Option<String>)> {
    let object = find_object(answer, &["goal", "prompt"])?;
    let prompt = text_unless_sample(BATCH_BLOCK, "prompt", object.get("prompt"));
    Some((parse_document(BATCH_BLOCK, &object, &EXECUTION_FIELDS), prompt))
}

/// Parses the answer to the question what kind of message the user wrote: yes if it asks for a plan.
pub(super) fn parse_plan_answer(answer: &str) -> Option<ExpertBatchConsentAnswer> {
    match find_object(answer, &["kind"])?.get("kind")?.as_str()?.trim().to_lowercase().as_str() {
        "plan_request" => Some(ExpertBatchConsentAnswer::Yes),
        "question" | "remark" => Some(ExpertBatchConsentAnswer::No),
        "unclear" => Some(ExpertBatchConsentAnswer::Unclear),
        _ => None,
    }
}

/// Parses the answer to a question with the answers yes, no and unclear.
pub(super) fn parse_yes_no_answer(answer: &str) -> Option<ExpertBatchConsentAnswer> {
    let object = find_object(answer, &["answer"])?;
    let given = object.get("answer")?;
    match given.as_str().map(|text| text.trim().to_lowercase()).as_deref() {
        Some("yes") => Some(ExpertBatchConsentAnswer::Yes),
        Some("no") => Some(ExpertBatchConsentAnswer::No),
        Some("unclear") => Some(ExpertBatchConsentAnswer::Unclear),
        Some(_) => None,
        None => {
            given.as_bool().map(|yes| if yes { ExpertBatchConsentAnswer::Yes } else { ExpertBatchConsentAnswer::No })
        }
    }
}

/// Parses the answer to the question how the user wants to be answered.
pub(super) fn parse_stance_answer(answer: &str) -> Option<ReplyStance> {
    serde_json::from_value(find_object(answer, &["stance"])?.get("stance")?.clone()).ok()
}

/// Parses the answer to the question for the steps of a plan; `None` if it has no step with a title.
pub(super) fn parse_steps_answer(answer: &str) -> Option<Vec<ConciergePlanStep>> {
    let object = find_object(answer, &["steps"])?;
    let text = |entry: &Value, names: [&str; 2]| {
        let given = names.into_iter().find_map(|name| entry.get(name)).and_then(Value::as_str);
        given.map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let steps = object.get("steps")?.as_array()?.iter().zip(1..).map(|(entry, number)| {
        let action = entry.as_str().map_or_else(|| text(entry, ["action", "title"]), str::to_owned);
        let details = text(entry, ["details", "description"]);
        let done_when = text(entry, ["done_when", "done"]);
        match is_only_number(&action, number) && !details.is_empty() {
            true => ConciergePlanStep { title: details, description: String::new(), done_when },
            false => ConciergePlanStep { title: action, description: details, done_when },
        }
    });
    let steps = truncate_steps(steps.collect());
    (!steps.is_empty()).then_some(steps)
}

/// Returns whether the title of step `number` says only that, such as "Step 3", which small models write.
fn is_only_number(title: &str, number: usize) -> bool {
    let words: Vec<&str> = title.split_whitespace().collect();
    let last = words.last().map(|word| word.trim_matches(|c: char| c.is_ascii_punctuation()));
    words.len() <= 2 && last == Some(number.to_string().as_str())
}

/// What the user needs for the plan to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserNeedForHelpOrNewPlan {
    Nothing,
    /// The experts' help with the current step.
    Help,
    NewPlan,
}

/// The answer to the question about the progress of a plan. Steps are indices.
#[derive(Debug, PartialEq)]
pub(super) struct PlanProgressAnswer {
    pub(super) done: Vec<usize>,
    /// The step that the user chose.
    pub(super) current: Option<usize>,
    pub(super) needs: UserNeedForHelpOrNewPlan,
    pub(super) blocker: Option<String>,
}

/// Parses the answer to the question about the progress of a plan. Steps that are complete or do not exist are ignored.
pub(super) fn parse_progress_answer(answer: &str, plan: &ConciergePlan) -> Option<PlanProgressAnswer> {
    let object = find_object(answer, &["done", "current", "needs"])?;
    let open = open_step_numbers(plan);
    let step = |value: &Value| {
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())?;
        let number = usize::try_from(number).ok().filter(|number| open.contains(number))?;
        Some(number - 1)
    };
    let listed = match object.get("done") {
        Some(Value::Array(items)) => items.iter().filter_map(step).collect(),
        Some(one) => step(one).into_iter().collect(),
        None => Vec::new(),
    };
    let mut done: Vec<usize> = listed;
    done.sort_unstable();
    done.dedup();
    let needs = match object.get("needs").and_then(Value::as_str) {
        Some("help") => UserNeedForHelpOrNewPlan::Help,
        Some("new_plan") => UserNeedForHelpOrNewPlan::NewPlan,
        _ => UserNeedForHelpOrNewPlan::Nothing,
    };
    let current = object.get("current").and_then(step).filter(|step| !done.contains(step));
    let blocker = text_unless_sample(BATCH_BLOCK, "blocker", object.get("blocker"));
    Some(PlanProgressAnswer { done, current, needs, blocker })
}

/// Returns the JSON object in an answer that has at least one of these members.
fn find_object(answer: &str, members: &[&str]) -> Option<Map<String, Value>> {
    let found = find_json_where(answer, |value| members.iter().any(|member| value.get(member).is_some()));
    match found.value {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn parse_document(
    block: &str,
    object: &Map<String, Value>,
    fields: &[(&'static str, HandoverFieldType)],
) -> HandoverDocument {
    let mut document = HandoverDocument::new();
    for (name, field_type) in fields {
        let value = object.get(*name);
        let items = || match value {
            Some(Value::Array(items)) => {
                let texts = items.iter().take(QUESTION_LIST_ITEMS_MAX);
                texts.filter_map(|item| text_unless_sample(block, name, Some(item))).collect()
            }
            value => text_unless_sample(block, name, value).into_iter().collect::<Vec<String>>(),
        };
        let field = match field_type {
            HandoverFieldType::Text => HandoverFieldValue::Text(items().join("; ")),
            HandoverFieldType::List => HandoverFieldValue::List(items()),
        };
        if !field.is_empty() {
            document.insert((*name).to_owned(), field);
        }
    }
    document
}

/// Returns a text that says something: not empty, and no repetition of the field's name or description.
fn text_unless_sample(block: &str, name: &str, value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?.trim();
    let is_none = text.is_empty() || ["null", "none", "n/a"].contains(&text.to_lowercase().as_str());
    (!is_none && !sample_echo::is_sample_echo(block, name, text))
        .then(|| text.chars().take(QUESTION_TEXT_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> ConciergePlan {
        let step = |title: &str| ConciergePlanStep { title: title.into(), ..ConciergePlanStep::default() };
        let mut plan = ConciergePlan::new("a wall".into(), vec![step("Measure"), step("Buy"), step("Paint")]);
        plan.complete_step(0);
        plan
    }

    #[test]
    fn progress_names_only_steps_that_are_open() {
        let answer = parse_progress_answer(
            r#"{"done": [1, 2, "3", 9], "current": 2, "needs": "nothing", "blocker": "none"}"#,
            &plan(),
        );
        let expected = PlanProgressAnswer {
            done: vec![1, 2],
            current: None,
            needs: UserNeedForHelpOrNewPlan::Nothing,
            blocker: None,
        };
        assert_eq!(answer, Some(expected), "step 1 is complete and step 9 does not exist");
        assert_eq!(parse_progress_answer("I think so.", &plan()), None);
        let schema = answer_schema(ASK_PROGRESS_QUESTION, Some(&plan()));
        assert_eq!(schema["properties"]["done"]["items"]["enum"], json!([2, 3]));
    }

    #[test]
    fn field_that_repeats_its_description_is_empty() {
        let answer = r#"{"ready": true, "goal": "What the user really wants", "constraints": ["what limits the user", "money"]}"#;
        let IntentHandoverAnswer { document, .. } = parse_intent_answer(answer).expect("it is JSON");
        assert_eq!(document.get("goal"), None);
        assert_eq!(document.get("constraints"), Some(&HandoverFieldValue::List(vec!["money".to_owned()])));
    }

    #[test]
    fn title_that_is_only_a_number_is_replaced_by_what_to_do() {
        let answer = r#"{"steps": [
            {"title": "Step 1", "description": "Visit the bank", "done_when": "you have a letter"},
            {"action": "2.", "details": "View five flats"},
            {"action": "Route 66", "details": "Drive it"},
            {"action": "Step 4", "details": ""},
            "Sign"
        ]}"#;
        let titles: Vec<String> =
            parse_steps_answer(answer).expect("it has steps").into_iter().map(|step| step.title).collect();
        assert_eq!(titles, ["Visit the bank", "View five flats", "Route 66", "Step 4", "Sign"]);
    }

    #[test]
    fn yes_and_no_are_read_in_the_forms_that_models_write() {
        for (answer, expected) in [
            (r#"{"answer": "yes"}"#, Some(ExpertBatchConsentAnswer::Yes)),
            ("```json\n{\"answer\": \"No\"}\n```", Some(ExpertBatchConsentAnswer::No)),
            (r#"{"answer": "unclear"}"#, Some(ExpertBatchConsentAnswer::Unclear)),
            (r#"{"answer": true}"#, Some(ExpertBatchConsentAnswer::Yes)),
            (r#"{"answer": "perhaps"}"#, None),
            ("yes", None),
        ] {
            assert_eq!(parse_yes_no_answer(answer), expected, "{answer}");
        }
    }

    #[test]
    fn only_a_request_for_a_plan_is_a_yes() {
        for (answer, expected) in [
            (r#"{"kind": "plan_request"}"#, Some(ExpertBatchConsentAnswer::Yes)),
            (r#"{"kind": "Question"}"#, Some(ExpertBatchConsentAnswer::No)),
            (r#"{"kind": "remark"}"#, Some(ExpertBatchConsentAnswer::No)),
            (r#"{"kind": "unclear"}"#, Some(ExpertBatchConsentAnswer::Unclear)),
            (r#"{"kind": "plan"}"#, None),
            (r#"{"plan": "yes"}"#, None),
        ] {
            assert_eq!(parse_plan_answer(answer), expected, "{answer}");
        }
    }

    #[test]
    fn every_schema_requires_all_its_members() {
        for ask in [
            ASK_STANCE_QUESTION,
            ASK_INTENT_QUESTION,
            ASK_PLAN_QUESTION,
            ASK_EXECUTION_QUESTION,
            ASK_STEPS_QUESTION,
            ASK_PROGRESS_QUESTION,
            ASK_CONSENT_QUESTION,
        ] {
            let schema = answer_schema(ask, Some(&plan()));
            let members = schema["properties"].as_object().map(Map::len);
            assert_eq!(schema["required"].as_array().map(Vec::len), members, "{ask}");
            assert!(is_private_question(ask), "{ask}");
        }
    }
}
