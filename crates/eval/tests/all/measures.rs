//! Each test holds a conversation in which one thing goes wrong, and checks that its measure counts it.

use segue_core::event::Event;
use segue_core::flow::Flow;
use segue_eval::conversation::EvalConversationSpec;
use segue_eval::record::EvalConversationRecord;
use segue_eval::report::ModelEvaluationInFlow;
use segue_eval::score::{
    ANSWERED, HANDOVER_WRITTEN, LANGUAGE_KEPT, MAPS_READ, REFERENCES_AT_ONCE, STEPS_REALLY_DONE, TASKS_RIGHT,
    TURNS_COMPLETED, VALID_AFTER_REPAIR, VALID_AT_ONCE, WITHOUT_SIGNALS,
};
use segue_flows::assistant::AssistantFlow;
use segue_flows::chat::ChatFlow;
use segue_flows::concierge::ConciergeFlow;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

/// A conversation of a flow with these lines after the opening, and more TOML.
fn conversation(flow: &str, messages: &[&str], more: &str) -> EvalConversationSpec {
    let lines: Vec<String> = messages[1..].iter().map(|line| format!("{line:?}")).collect();
    let text = format!(
        "name = \"test\"\nflow = \"{flow}\"\nabout = \"a test\"\nlanguage = \"en\"\ntopic = [\"tea\", \"chicken\"]\n\
         turns = {}\n[user]\nopening = {:?}\nlines = [{}]\n{more}",
        messages.len(),
        messages[0],
        lines.join(", "),
    );
    EvalConversationSpec::parse(&text).expect("a valid conversation")
}

/// Evaluates what a harness recorded.
fn evaluate(flow: &impl Flow, harness: &SessionHarness, conversation: EvalConversationSpec) -> ModelEvaluationInFlow {
    evaluate_events(flow, harness, conversation, |_| true)
}

/// Evaluates the events of a harness that pass a filter.
fn evaluate_events(
    flow: &impl Flow,
    harness: &SessionHarness,
    conversation: EvalConversationSpec,
    keep: impl Fn(&Event) -> bool,
) -> ModelEvaluationInFlow {
    let mut record = EvalConversationRecord::new(conversation.clone(), Flow::spec(flow));
    record.messages = std::iter::once(&conversation.user.opening).chain(&conversation.user.lines).cloned().collect();
    record.events = harness.journal().iter().filter(|recorded| keep(&recorded.event)).cloned().collect();
    let needed = EvalConversationRecord::needed_texts(&record.events);
    record.texts = needed.into_iter().map(|id| (id, harness.stored_text(id))).collect();
    ModelEvaluationInFlow::from_records(conversation.flow.as_str(), &[record])
}

/// Returns how often a measure was right, and how often it was counted.
fn result(evaluation: &ModelEvaluationInFlow, measure: &str) -> (u32, u32) {
    let measure = evaluation.find_measure(measure).unwrap_or_else(|| panic!("`{measure}` was not measured"));
    (measure.passed, measure.total)
}

fn chat(exchanges: &[(&str, &str)], more: &str) -> ModelEvaluationInFlow {
    let flow = ChatFlow::new();
    let mut harness = SessionHarness::open(ChatFlow::new());
    for (message, reply) in exchanges {
        harness.send_message(message).answer_call("assistant", reply);
    }
    let messages: Vec<&str> = exchanges.iter().map(|(message, _)| *message).collect();
    evaluate(&flow, &harness, conversation("chat", &messages, more))
}

#[test]
fn good_conversation_meets_everything() {
    let expected = "[[expect]]\nmeasure = \"facts recalled\"\nreply_has = [\"three\", \"3\"]\n";
    let evaluation = chat(&[("How long should tea steep?", "Tea should steep for three minutes.")], expected);
    for measure in [TURNS_COMPLETED, WITHOUT_SIGNALS, ANSWERED, LANGUAGE_KEPT, TASKS_RIGHT, "facts recalled"] {
        assert_eq!(result(&evaluation, measure), (1, 1), "{measure}");
    }
    let verdicts = evaluation.verdicts();
    assert!(verdicts.iter().all(|verdict| verdict.is_good_enough), "{verdicts:?}");
    let usage = evaluation.total_usage();
    assert_eq!((usage.calls, evaluation.usage[0].role.as_str()), (1, "assistant"));
}

#[test]
fn shown_signals_are_found_in_every_disguise() {
    for reply in [
        "Tea is fine.\n<<<HANDOVER>>>\ngoal: tea\n<<<END>>>",
        ">>>HANDOVER<<<\ntea",
        "Drink tea.\n**HANDOVER**",
        "Drink tea.\nWORKFLOW:",
        "## BATCH\ntea",
    ] {
        let evaluation = chat(&[("Tea?", reply)], "");
        assert_eq!(result(&evaluation, WITHOUT_SIGNALS), (0, 1), "{reply}");
        assert!(!evaluation.verdicts()[0].is_good_enough, "{reply}");
    }
    let harmless = "A batch of tea needs a workflow: first boil the water, then hand over the cup >> done.";
    assert_eq!(result(&chat(&[("Tea?", harmless)], ""), WITHOUT_SIGNALS), (1, 1));
}

#[test]
fn replies_that_do_not_answer_are_counted() {
    for (reply, why) in [
        ("Is tea healthy?", "repeats the user's message"),
        ("The user wants to drink tea.", "speaks about the user"),
        ("I like trains a lot.", "about something else"),
        ("Tea", "wrote no reply"),
    ] {
        let evaluation = chat(&[("Is tea healthy?", reply)], "");
        let measure = evaluation.find_measure(ANSWERED).expect("measured");
        assert_eq!(measure.passed, 0, "{reply}");
        assert!(measure.failures[0].contains(why), "{:?}", measure.failures);
    }
    let repeated = chat(&[("Tea?", "Tea is good."), ("Green tea?", "Tea is good!")], "");
    assert_eq!(result(&repeated, ANSWERED), (1, 2));
}

#[test]
fn reply_in_another_language_is_counted() {
    let german = "Der Tee sollte drei Minuten ziehen, und das Wasser darf nicht kochen.";
    assert_eq!(result(&chat(&[("Tea?", german)], ""), LANGUAGE_KEPT), (0, 1));
}

#[test]
fn unmet_expectation_makes_the_task_wrong() {
    for expectation in [
        "reply_has = [\"coffee\"]",
        "reply_lacks = [\"tea\"]",
        "phase = [\"explorer\"]",
        "fact = [\"planned\"]",
        "handover = \"intent\"",
        "tool = { name = \"records\" }",
    ] {
        let more = format!("[[expect]]\nmeasure = \"extra\"\n{expectation}\n");
        let evaluation = chat(&[("Tea?", "Drink some tea.")], &more);
        assert_eq!((result(&evaluation, "extra"), result(&evaluation, TASKS_RIGHT)), ((0, 1), (0, 1)), "{expectation}");
    }
    let one_of_two = "[[expect]]\nmeasure = \"extra\"\nphase = [\"explorer\"]\nreply_has = [\"tea\"]\n";
    assert_eq!(result(&chat(&[("Tea?", "Drink some tea.")], one_of_two), "extra"), (1, 1));
}

/// The starter and one more turn, in which the concierge writes `second`.
fn concierge(second: &[&str]) -> ModelEvaluationInFlow {
    let settings = json!({"samples": 1, "handover_by_turn": 2});
    let mut harness = SessionHarness::open_with_settings(ConciergeFlow::new(), settings);
    harness.send_message("Tea?").answer_call("expert", "Green tea.").answer_call("concierge", "Drink green tea.");
    harness.send_message("Why tea?");
    for reply in second {
        harness.answer_call("concierge", reply);
    }
    // A missing handover is asked for again before the flow builds one.
    while harness.open_call_roles().iter().any(|role| role == "concierge") {
        harness.answer_call("concierge", "I cannot.");
    }
    evaluate(&ConciergeFlow::new(), &harness, conversation("concierge", &["Tea?", "Why tea?"], ""))
}

#[test]
fn handover_that_the_flow_built_is_not_the_models() {
    let block = "Because tea is mild.\n<<<HANDOVER>>>\ngoal: sleep well\nuser_query: Tea?\nstarter_response: green\n\
                 user_reply: Why tea?\nkey_findings: [mild]\n<<<END>>>";
    assert_eq!(result(&concierge(&[block]), HANDOVER_WRITTEN), (1, 1));
    let evaluation = concierge(&["Because tea is mild."]);
    assert_eq!(result(&evaluation, HANDOVER_WRITTEN), (0, 1));
    assert_eq!(result(&evaluation, WITHOUT_SIGNALS), (2, 2));
}

#[test]
fn map_that_cannot_be_read_is_counted_for_the_mapper() {
    let mut harness = SessionHarness::open_with_settings(ConciergeFlow::new(), json!({"samples": 2}));
    harness.send_message("Tea?").answer_call("expert", "Green.").answer_call("expert", "Black.");
    harness.answer_call("mapper", "There are two teas.").answer_call("mapper", "Two teas, really.");
    harness.answer_call("concierge", "Drink green tea.");
    let evaluation = evaluate(&ConciergeFlow::new(), &harness, conversation("concierge", &["Tea?"], ""));
    assert_eq!(result(&evaluation, MAPS_READ), (0, 1));
    let mapper = evaluation.verdicts().into_iter().find(|verdict| verdict.role == "mapper").expect("measured");
    assert!(!mapper.is_good_enough);
}

/// A turn of the assistant with one read step, in which Act first answers with `first`.
fn assistant(first: &[Value]) -> SessionHarness {
    let understood = json!({"expressed": "asks", "references": ["recipe_7"], "retain": [], "demote": [], "drop": [],
        "clear": false, "pending": null});
    let step = json!({"description": "read", "type": "read", "operation": null, "subdomain": "recipe", "group": 1, "refs": []});
    let plan = json!({"decision": "plan_direct", "goal": "help", "steps": [step], "say": null});
    let mut repaired = understood.clone();
    repaired["references"] = json!([]);
    let mut harness = SessionHarness::open(AssistantFlow::new());
    harness.send_message("Any chicken?").finish_tool("records", Ok(r#"{"snapshot": {}}"#));
    harness.answer_call("understand", &understood.to_string()).answer_call("understand", &repaired.to_string());
    harness.answer_call("think", &plan.to_string());
    // There are too many recipes to read all of them, so Act has to search.
    harness.finish_tool("records", Ok(r#"{"rows": [], "total": 1000}"#));
    for answer in first {
        harness.answer_call("act", &answer.to_string());
    }
    let row = json!({"type": "recipe", "id": "0198c0de-0001-7000-8000-000000000001", "label": "Chicken",
        "fields": {"name": "Chicken", "ingredients": ["chicken"]}});
    harness.finish_tool("records", Ok(&json!({"rows": [row], "total": 1}).to_string()));
    let done = json!({"action": "step_complete", "outcome": "one", "refs": ["recipe_1"]});
    harness.answer_call("act", &done.to_string()).answer_call("reply", "There is one chicken recipe.");
    harness
}

#[test]
fn invented_references_and_invalid_answers_are_counted_by_node() {
    let read = json!({"action": "tool_call", "tool": "read", "arguments": {"type": "recipe"}});
    let early = json!({"action": "step_complete", "outcome": "none"});
    let harness = assistant(&[early, read]);
    let flow = AssistantFlow::new();
    let evaluation = evaluate(&flow, &harness, conversation("assistant", &["Any chicken?"], ""));
    let of = |role: &str, name: &str| {
        let found = evaluation.measures.iter().find(|measure| measure.role == role && measure.name == name);
        found.map(|measure| (measure.passed, measure.total))
    };
    assert_eq!(of("understand", REFERENCES_AT_ONCE), Some((0, 1)), "recipe_7 does not exist");
    assert_eq!(of("act", REFERENCES_AT_ONCE), Some((1, 1)), "recipe_1 was read");
    assert_eq!(of("understand", VALID_AT_ONCE), Some((0, 1)));
    assert_eq!(of("understand", VALID_AFTER_REPAIR), Some((1, 1)));
    assert_eq!(of("think", VALID_AT_ONCE), Some((1, 1)));
    assert_eq!(of("act", VALID_AT_ONCE), Some((0, 1)), "the step was ended before anything was read");
}

#[test]
fn step_that_ended_without_a_tool_run_is_counted() {
    let read = json!({"action": "tool_call", "tool": "read", "arguments": {"type": "recipe"}});
    let harness = assistant(&[read]);
    let flow = AssistantFlow::new();
    let task = || conversation("assistant", &["Any chicken?"], "");
    assert_eq!(result(&evaluate(&flow, &harness, task()), STEPS_REALLY_DONE), (1, 1));
    // The flow does not allow this, so the journal is changed.
    let without_runs = evaluate_events(&flow, &harness, task(), |event| !matches!(event, Event::ToolRunEnded { .. }));
    assert_eq!(result(&without_runs, STEPS_REALLY_DONE), (0, 1));
}

#[test]
fn tool_expectation_checks_arguments() {
    let read = json!({"action": "tool_call", "tool": "read", "arguments": {"type": "recipe"}});
    let harness = assistant(&[read]);
    for (arguments, is_met) in [
        ("{ operation = [\"read\", \"get\"], type = \"recipe\" }", 1),
        ("{ operation = \"create\", type = \"recipe\" }", 0),
        ("{ type = \"meal\" }", 0),
    ] {
        let more =
            format!("[[expect]]\nmeasure = \"reads\"\ntool = {{ name = \"records\", arguments = {arguments} }}\n");
        let task = conversation("assistant", &["Any chicken?"], &more);
        assert_eq!(result(&evaluate(&AssistantFlow::new(), &harness, task), "reads"), (is_met, 1), "{arguments}");
        let more = more.replace("\ntool =", "\nno_tool =");
        let task = conversation("assistant", &["Any chicken?"], &more);
        assert_eq!(result(&evaluate(&AssistantFlow::new(), &harness, task), "reads"), (1 - is_met, 1), "{arguments}");
    }
}
