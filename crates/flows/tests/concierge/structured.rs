//! The same conversations with signals in both forms: as blocks in the replies, and as answers to private questions.

use segue_core::context::CallThread;
use segue_core::event::{Event, TurnOutcome};
use segue_core::handover::HandoverProvenance;
use segue_core::prompt::{CallFailureKind, ModelOutputFormat};
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::failures::outcome;
use super::support::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Inline,
    Structured,
}

const FORMS: [Form; 2] = [Form::Inline, Form::Structured];

fn open_in(form: Form, mut settings: Value) -> SessionHarness {
    settings["signals"] = json!(if form == Form::Inline { "inline" } else { "structured" });
    open_with_settings(settings)
}

/// Answers a call of the concierge: with a block after the text, or with the text alone and then JSON for each question.
fn speak(harness: &mut SessionHarness, form: Form, text: &str, block: &str, answers: &[Value]) {
    match form {
        Form::Inline => {
            harness.answer_call("concierge", format!("{text}\n\n{block}").trim());
        }
        Form::Structured => {
            harness.answer_call("concierge", text);
            answers.iter().for_each(|answer| {
                harness.answer_call("concierge", &answer.to_string());
            });
        }
    }
}

fn intent_answer() -> Value {
    json!({"ready": true, "goal": "a home that lasts", "constraints": ["five years", "little cash"], "accepted_framing": "time decides",
           "resisted_framing": "", "unprompted_reveals": ["a child is coming"], "still_unclear": ["where to"], "effective_stance": "decide"})
}

fn execution_answer() -> Value {
    json!({"goal": "buy a flat by May", "problem_summary": "They want to stop renting.", "situation": "a family of three",
           "constraints": ["little cash"], "priorities": ["quiet"], "decisions_made": ["to buy"], "open_questions": ["which bank"],
           "exploration_highlights": ["the child"], "prompt": "You have bought forty flats for families.\nWrite the plan."})
}

fn steps_answer() -> Value {
    json!({"steps": [
        {"title": "See the bank", "description": "ask for a letter", "done_when": "you hold the letter"},
        {"title": "View flats", "description": "five of them", "done_when": "one is liked"},
    ]})
}

fn progress_answer(done: &[usize], needs: &str, blocker: &str) -> Value {
    json!({"done": done, "current": null, "needs": needs, "blocker": blocker})
}

fn until_explorer(form: Form, settings: Value) -> SessionHarness {
    let mut harness = open_in(form, settings);
    play_first_turn(&mut harness);
    harness.send_message("I stay five years");
    speak(&mut harness, form, "Then buy.", HANDOVER, &[intent_answer()]);
    harness
}

fn until_plan(form: Form) -> SessionHarness {
    let mut harness = until_explorer(form, json!({}));
    harness.send_message("give me a plan");
    speak(&mut harness, form, "I will work it out.", WORKFLOW, &[json!({"kind": "plan_request"}), execution_answer()]);
    answer_experts(&mut harness, PLAN_MAP);
    let block = PLAN.split_once("\n\n").expect("text and block").1;
    speak(&mut harness, form, "Here is the plan.", block, &[steps_answer()]);
    harness
}

#[test]
fn starter_hands_over_in_both_forms() {
    for form in FORMS {
        let harness = until_explorer(form, json!({}));
        assert!(harness.session().is_idle(), "{form:?}");
        assert_eq!(phase(&harness).current, *"explorer", "{form:?}");
        let intent = harness.session().latest_handover("intent").expect("it was made");
        assert_eq!(
            (intent.provenance, intent.text_field("goal")),
            (HandoverProvenance::Emitted, Some("a home that lasts"))
        );
        assert_eq!(intent.list_field("constraints"), ["five years", "little cash"], "{form:?}");
        assert_eq!(intent.text_field("user_query"), Some("rent or buy?"), "{form:?}");
        assert_eq!(visible_replies(&harness), ["Rent, unless you stay for long.", "Then buy."], "{form:?}");
    }
}

/// Opens a session in structured form, sends the first message, and answers the experts' calls.
fn ask_first_question(message: &str) -> SessionHarness {
    let mut harness = open_in(Form::Structured, json!({}));
    harness.send_message(message);
    answer_experts(&mut harness, MAP);
    harness
}

fn open_ask(harness: &SessionHarness) -> String {
    calls(harness, "concierge").last().map(|call| call.ask.to_string()).unwrap_or_default()
}

#[test]
fn s24_concierge_is_asked_for_the_stance_in_any_language() {
    for (answer, stance) in [
        (r#"{"stance": "challenge"}"#, "challenge"),
        (r#"{"stance": "decide"}"#, "decide"),
        // The shape of the map is contested.
        (r#"{"stance": "default"}"#, "default"),
        (r#"{"stance": "angry"}"#, "default"),
        ("I do not know.", "default"),
    ] {
        let mut harness = ask_first_question("Mieten oder kaufen? Spiel bitte den Advocatus Diaboli.");
        assert_eq!(open_ask(&harness), "stance_question");
        let question = concierge_prompt(&harness).1;
        assert!(question.contains("> Mieten oder kaufen? Spiel bitte"), "{question}");
        harness.answer_call("concierge", answer);
        assert_eq!(facts(&harness, "stance_chosen")[0]["stance"], stance, "{answer}");
        assert_eq!(open_ask(&harness), "reply", "it is asked once: {answer}");
        let (system, last) = concierge_prompt(&harness);
        assert_eq!(system.contains("wants their view to be tested"), stance == "challenge", "{system}");
        assert!(!system.contains("stance") && !last.contains("stance:"), "the question is not part of the thread");
    }
}

#[test]
fn s24_stance_is_not_asked_for_if_the_user_said_it() {
    let harness = ask_first_question("rent or buy? decide for me");
    assert_eq!(
        (open_ask(&harness).as_str(), facts(&harness, "stance_chosen")[0]["stance"].as_str()),
        ("reply", Some("decide"))
    );
    let mut harness = open_in(Form::Structured, json!({"stance": "explore"}));
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    assert_eq!(
        (open_ask(&harness).as_str(), facts(&harness, "stance_chosen")[0]["stance"].as_str()),
        ("reply", Some("explore"))
    );
}

#[test]
fn reply_does_not_wait_for_a_stance_question_that_failed() {
    let mut harness = ask_first_question("rent or buy?");
    harness.fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(facts(&harness, "stance_chosen")[0]["stance"], "default");
    harness.answer_call("concierge", "Rent.");
    assert_eq!(harness.last_reply(), "Rent.");
}

#[test]
fn form_of_the_first_question_is_that_of_the_models_so_far() {
    let mut harness = open();
    harness.use_structured_signals("cat");
    for role in ["expert", "mapper", "concierge"] {
        harness.assign_model(role, "cat");
    }
    harness.send_message("rent or buy?");
    answer_experts(&mut harness, MAP);
    assert_eq!(open_ask(&harness), "stance_question");
}

#[test]
fn visible_prompts_in_structured_form_say_nothing_about_blocks() {
    let mut harness = until_plan(Form::Structured);
    harness.send_message("the letter is here");
    for opened in calls(&harness, "concierge") {
        let prompt = prompt_text(&harness, opened.call);
        assert!(!prompt.contains("<<<") && !prompt.to_lowercase().contains("block"), "{}: {prompt}", opened.ask);
        let is_question = opened.ask.as_str().ends_with("_question");
        assert_eq!(opened.output_schema.is_some(), is_question, "{}", opened.ask);
        assert_eq!(opened.is_detached, is_question, "{}", opened.ask);
        if !is_question {
            assert!(!prompt.contains("JSON"), "a question of an earlier turn is not part of the thread: {prompt}");
        }
    }
}

#[test]
fn question_about_the_last_message_sees_only_that_and_what_it_refers_to() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    harness.send_message("where?").answer_call("concierge", "In a quiet street.");
    harness.answer_call("concierge", r#"{"kind": "question"}"#);
    let long = "That is a street in which my aunt has lived for the last thirty years, with her dog.";
    for (message, needs_context) in [("yes, do that", true), (long, false)] {
        harness.send_message(message).answer_call("concierge", "Well, well.");
        assert_eq!(open_ask(&harness), "plan_question");
        let messages = harness.prompt_for_role("concierge").messages;
        assert_eq!(messages.len(), 1, "neither the opening nor the thread: {messages:?}");
        let question = messages[0].text();
        assert!(question.ends_with(&format!("> {message}")), "{question}");
        let before = if needs_context { "> In a quiet street." } else { "> Well, well." };
        assert_eq!(question.contains(before), needs_context, "{question}");
        for other in ["where?", "a home that lasts", "I stay five years"] {
            assert!(!question.contains(other), "{other}: {question}");
        }
        harness.answer_call("concierge", r#"{"kind": "remark"}"#);
    }
}

#[test]
fn progress_question_has_the_plan_and_what_was_said() {
    let mut harness = until_plan(Form::Structured);
    let start = format!("I will look into it. {}", "word ".repeat(200));
    harness.send_message("the bank says no").answer_call("concierge", &format!("{start} This is the end."));
    let question = harness.prompt_for_role("concierge").messages[0].text();
    for wanted in ["[>] 1. See the bank", "> I will look into it.", "> the bank says no"] {
        assert!(question.contains(wanted), "{wanted}: {question}");
    }
    assert!(!question.contains("This is the end."), "the beginning of the reply is enough: {question}");
    assert!(question.contains("> Here is the plan."), "the message is short, so it may refer to that: {question}");
    assert!(question.ends_with("> the bank says no"), "{question}");
}

#[test]
fn questions_do_not_grow_with_the_conversation() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    let mut sizes = Vec::new();
    for _ in 0..4 {
        harness.send_message("and the price?").answer_call("concierge", "It is high.");
        sizes.push(calls(&harness, "concierge").last().expect("it was asked").receipt.tokens);
        harness.answer_call("concierge", r#"{"kind": "question"}"#);
    }
    assert_eq!(sizes[1..], [sizes[1]; 3], "{sizes:?}");
}

#[test]
fn thread_of_a_question_is_not_taken_for_the_concierges() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    harness.send_message("hm").answer_call("concierge", "Think.").answer_call("concierge", r#"{"kind": "remark"}"#);
    harness.send_message("and now?");
    let last = calls(&harness, "concierge").pop().expect("it was called");
    assert!(matches!(last.receipt.thread, CallThread::Continued(_)), "{:?}", last.receipt.thread);
    assert!(prompt_text(&harness, last.call).contains("Think."));
}

#[test]
fn requested_plan_is_made_in_both_forms() {
    for form in FORMS {
        let harness = until_plan(form);
        assert!(harness.session().is_idle(), "{form:?}");
        assert_eq!(phase(&harness).current, *"executor", "{form:?}");
        let execution = harness.session().latest_handover("execution").expect("it was made");
        assert_eq!(
            (execution.provenance, execution.text_field("goal")),
            (HandoverProvenance::Emitted, Some("buy a flat by May")),
            "{form:?}"
        );
        let task = calls(&harness, "expert").last().map(|call| prompt_text(&harness, call.call)).expect("asked");
        assert!(task.contains("You have bought forty flats for families."), "{form:?}: {task}");
        let plan = &facts(&harness, "plan_started")[0];
        assert_eq!(
            (&plan["provenance"], &plan["steps"][1]["title"]),
            (&json!("emitted"), &json!("View flats")),
            "{form:?}"
        );
    }
}

fn asked_for_consent(form: Form) -> SessionHarness {
    let mut harness = until_explorer(form, json!({"confirm_batches": true}));
    harness.send_message("give me a plan");
    speak(&mut harness, form, "Good.", WORKFLOW, &[json!({"kind": "plan_request"}), execution_answer()]);
    assert!(harness.session().is_idle() && harness.last_reply().contains("Shall I?"), "{form:?}");
    harness
}

/// Sends an answer to the pending question, and what the concierge makes of it if it is asked.
fn answer_consent(form: Form, message: &str, meaning: &str) -> SessionHarness {
    let mut harness = asked_for_consent(form);
    harness.send_message(message);
    if form == Form::Structured {
        harness.answer_call("concierge", &json!({"answer": meaning}).to_string());
    }
    harness
}

#[test]
fn consent_starts_the_batch_in_both_forms() {
    for form in FORMS {
        let mut harness = answer_consent(form, "yes, please", "yes");
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{form:?}");
        answer_experts(&mut harness, PLAN_MAP);
        assert_eq!(phase(&harness).current, *"executor", "{form:?}");
    }
}

#[test]
fn declining_spends_nothing_in_both_forms() {
    for form in FORMS {
        let harness = answer_consent(form, "no, leave it", "no");
        assert_eq!(harness.open_call_roles(), ["concierge"], "{form:?}");
        assert!(concierge_prompt(&harness).1.contains("did not want you to ask the experts"), "{form:?}");
        assert_eq!(facts(&harness, "batch_declined").len(), 1, "{form:?}");
    }
}

#[test]
fn consent_is_understood_in_any_language() {
    for message in ["Oui", "Aber gerne doch, leg los!", "いいですよ、お願いします", "dale, metele"] {
        let harness = answer_consent(Form::Structured, message, "yes");
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{message}");
    }
    for message in ["lieber nicht", "trop cher pour moi", "やめておきます"] {
        let harness = answer_consent(Form::Structured, message, "no");
        assert_eq!(harness.open_call_roles(), ["concierge"], "{message}");
        assert_eq!(facts(&harness, "batch_declined").len(), 1, "{message}");
    }
}

#[test]
fn objection_with_a_word_that_means_yes_is_no_yes() {
    for meaning in ["no", "unclear"] {
        let harness = answer_consent(Form::Structured, "Definitely too expensive", meaning);
        assert_eq!(harness.open_call_roles(), ["concierge"], "{meaning}");
        assert_eq!(facts(&harness, "batch_confirmed").len(), 0, "{meaning}");
    }
}

#[test]
fn user_is_asked_again_if_wording_and_meaning_disagree() {
    for (message, meaning) in [("no problem, go ahead", "yes"), ("yes", "no")] {
        let mut harness = answer_consent(Form::Structured, message, meaning);
        assert!(harness.session().is_idle(), "{message}");
        assert!(harness.last_reply().contains("yes or no"), "{}", harness.last_reply());
        assert_eq!((facts(&harness, "batch_confirmed").len(), facts(&harness, "batch_declined").len()), (0, 0));
        harness.send_message("yes").answer_call("concierge", r#"{"answer": "yes"}"#);
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{message}");
    }
    let mut harness = answer_consent(Form::Structured, "yes", "no");
    harness.send_message("yes").answer_call("concierge", r#"{"answer": "no"}"#);
    assert_eq!(harness.open_call_roles(), ["concierge"], "it is asked again only once");
    assert_eq!(facts(&harness, "batch_declined").len(), 1);
}

#[test]
fn without_an_answer_of_the_concierge_only_a_clear_yes_counts() {
    let mut harness = asked_for_consent(Form::Structured);
    harness.send_message("yes").fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    let mut harness = asked_for_consent(Form::Structured);
    harness.send_message("hm, well").answer_call("concierge", "I think so.").answer_call("concierge", "Yes!");
    assert_eq!(harness.open_call_roles(), ["concierge"]);
    assert_eq!(facts(&harness, "confirmation_unclear").len(), 1);
}

#[test]
fn question_about_steps_forces_no_plan() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    for _ in 0..2 {
        harness.send_message("What are the steps to register a company?");
        harness.answer_call("concierge", "Choose a name first.").answer_call("concierge", r#"{"kind": "remark"}"#);
        assert!(harness.session().is_idle());
    }
    assert_eq!(phase(&harness).current, *"explorer");
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Choose a name first."));
}

#[test]
fn plan_that_only_the_wording_asks_for_is_offered() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    harness.send_message("Give me a plan.").answer_call("concierge", "First the money.");
    harness.answer_call("concierge", r#"{"kind": "remark"}"#);
    assert!(harness.session().is_idle() && harness.last_reply().contains("Shall I?"), "{}", harness.last_reply());
    assert_eq!(calls(&harness, "expert").len(), 3, "only those of the first question");
}

#[test]
fn steps_are_completed_in_both_forms() {
    for form in FORMS {
        let mut harness = until_plan(form);
        harness.send_message("the letter is here");
        let done = "<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>";
        speak(&mut harness, form, "Good.", done, &[progress_answer(&[1], "nothing", "")]);
        assert!(harness.session().is_idle(), "{form:?}");
        assert_eq!(facts(&harness, "step_completed")[0]["title"], "See the bank", "{form:?}");
        harness.send_message("we like one");
        let done = "<<<STEP_DONE>>>\nstep: View flats\n<<<END>>>";
        speak(&mut harness, form, "Then all is done.", done, &[progress_answer(&[2], "nothing", "")]);
        assert_eq!(phase(&harness).current, *"explorer", "{form:?}");
        let outcome = harness.session().latest_handover("outcome").expect("it was made");
        assert_eq!(outcome.text_field("outcome"), Some("Then all is done."), "{form:?}");
        assert_eq!(outcome.list_field("steps"), ["See the bank", "View flats"], "{form:?}");
    }
}

#[test]
fn step_is_chosen_and_help_is_requested_with_a_question() {
    let mut harness = until_plan(Form::Structured);
    harness.send_message("let us begin with the flats").answer_call("concierge", "Gladly.");
    harness.answer_call("concierge", r#"{"done": [], "current": 2, "needs": "nothing", "blocker": ""}"#);
    assert_eq!(facts(&harness, "step_started")[0]["title"], "View flats");
    harness.send_message("nobody lets me in").answer_call("concierge", "I will look into it.");
    harness.answer_call("concierge", &progress_answer(&[], "help", "nobody opens the door").to_string());
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    let task = prompt_text(&harness, harness.oldest_open_call("expert").0);
    assert!(task.contains("The step: View flats") && task.contains("nobody opens the door"), "{task}");
}

#[test]
fn changed_goal_gets_a_new_plan_with_a_question() {
    let mut harness = until_plan(Form::Structured);
    harness.send_message("we cannot buy any more").answer_call("concierge", "Then we rent.");
    harness.answer_call("concierge", &progress_answer(&[], "new_plan", "").to_string());
    let mut other = execution_answer();
    other["goal"] = json!("rent a flat by June");
    harness.answer_call("concierge", &other.to_string());
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, PLAN_MAP);
    assert_eq!((phase(&harness).current.as_str(), phase(&harness).visit), ("executor", 4));
}

#[test]
fn unusable_answer_is_asked_for_once_and_then_built() {
    let mut harness = open_in(Form::Structured, json!({}));
    play_first_turn(&mut harness);
    harness.send_message("I stay five years").answer_call("concierge", "Then buy.");
    harness.answer_call("concierge", r#"{"ready": false, "goal": ""}"#);
    assert_eq!(phase(&harness).current, *"starter", "it is not due yet");
    harness.send_message("and a child is coming").answer_call("concierge", "Good.");
    harness.answer_call("concierge", r#"{"ready": true, "goal": "what the user really wants"}"#);
    let (_, again) = concierge_prompt(&harness);
    assert!(
        again.contains("lacks a value of your own for: goal") && again.contains("what the user really wants\""),
        "{again}"
    );
    harness.answer_call("concierge", "No.");
    let intent = harness.session().latest_handover("intent").expect("it was made");
    assert_eq!((intent.provenance, intent.text_field("goal")), (HandoverProvenance::Built, Some("rent or buy?")));
    assert_eq!(outcome(&harness), TurnOutcome::Done);
}

#[test]
fn failed_question_does_not_fail_the_turn() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    harness
        .send_message("hm")
        .answer_call("concierge", "Think.")
        .fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!(outcome(&harness), TurnOutcome::Done);
    let mut harness = open_in(Form::Structured, json!({"handover_by_turn": 2}));
    play_first_turn(&mut harness);
    harness
        .send_message("five years")
        .answer_call("concierge", "Buy.")
        .fail_call("concierge", CallFailureKind::InvalidApiKey);
    assert_eq!((outcome(&harness), phase(&harness).current.as_str()), (TurnOutcome::Done, "explorer"));
}

#[test]
fn block_that_nobody_asked_for_is_hidden_and_has_no_effect() {
    let mut harness = until_explorer(Form::Structured, json!({}));
    harness.send_message("hello").answer_call("concierge", &with_text(WORKFLOW));
    assert_eq!(visible_replies(&harness).last().map(String::as_str), Some("Well."));
    harness.answer_call("concierge", r#"{"kind": "remark"}"#);
    assert!(harness.session().is_idle());
    assert_eq!(facts(&harness, "reply_complaints")[0]["complaints"], json!(["block BATCH was not asked for"]));

    harness.send_message("hello?").answer_call("concierge", WORKFLOW);
    assert!(
        concierge_prompt(&harness).1.contains("no text that the user can see"),
        "it is asked for again as an answer"
    );
}

#[test]
fn auto_uses_the_form_that_suits_the_model() {
    for (model, asks) in [("strong", &["reply", "reply"][..]), ("small", &["reply", "reply", "intent_question"])] {
        let mut harness = open_with_settings(json!({}));
        harness.assign_model("concierge", model);
        harness.use_structured_signals("small");
        play_first_turn(&mut harness);
        harness.send_message("I stay five years").answer_call("concierge", "Then buy.");
        let asked: Vec<String> = calls(&harness, "concierge").iter().map(|call| call.ask.to_string()).collect();
        assert_eq!(asked, asks, "{model}");
    }
}

#[test]
fn question_carries_the_schema_of_its_answer() {
    let mut harness = until_plan(Form::Structured);
    harness.send_message("the letter is here").answer_call("concierge", "Good.");
    let ModelOutputFormat::Json(schema) = harness.prompt_for_role("concierge").output_format else {
        panic!("a question has a schema")
    };
    assert_eq!(schema["properties"]["done"]["items"]["enum"], json!([1, 2]));
    assert!(
        harness
            .journal()
            .iter()
            .any(|recorded| matches!(&recorded.event, Event::CallOpened(opened) if opened.is_detached))
    );
}
