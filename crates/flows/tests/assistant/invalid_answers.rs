//! Invalid answers and failed calls at each node: one repair, then a reply that says what was done and what was not. Only planned
//! writes are executed.

use segue_core::event::{Event, TurnOutcome};
use segue_core::prompt::CallFailureKind;
use segue_flows::assistant::tools::DomainOperation;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::support::*;

fn outcome(harness: &SessionHarness) -> Option<TurnOutcome> {
    harness.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    })
}

fn writes(harness: &SessionHarness) -> usize {
    runs(harness).iter().filter(|run| tool_request(run).operation.is_table_write()).count()
}

#[test]
fn every_node_that_answers_in_prose_is_asked_once_for_json() {
    let mut harness = open();
    harness.send_message("plan").answer_call("understand", "Sure, let me think about it!");
    assert!(ask_text(&harness, "understand").contains("the answer must be one JSON object"));
    harness.answer_call("understand", &understood("wants a plan").to_string());
    harness.answer_call("think", "I would read the recipes.");
    assert!(ask_text(&harness, "think").contains("the answer must be one JSON object with `decision`, `steps`"));
    harness.answer_call("think", &plan(&[step("read", "recipe", 1, &[])]).to_string());
    finish_records(&mut harness, &json!({"rows": [], "total": 1000}).to_string());
    harness.answer_call("act", "Reading now.");
    assert!(ask_text(&harness, "act").contains("the answer must be one JSON object with `action`"));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    finish_records(&mut harness, &rows_result(&recipes()));
    answer_act(&mut harness, step_complete("read"));
    harness.answer_call("reply", " \n ");
    assert_eq!(ask_text(&harness, "reply"), "Your answer was empty. Write your reply to the user now.");
    finish_reply(&mut harness, "Here they are.");
    assert_eq!(facts(&harness, "answer_rejected").len(), 4);
    assert_eq!(facts(&harness, "message_understood")[0]["quality"], "repaired");
    assert_eq!(facts(&harness, "planned")[0]["quality"], "repaired");
    let threads = calls(&harness, "understand").iter().map(|call| call.receipt.thread.thread_id()).collect::<Vec<_>>();
    assert_eq!(threads[0], threads[1], "it is asked again in its own thread");
}

#[test]
fn message_is_answered_even_if_understand_fails() {
    let mut harness = open();
    harness.send_message("plan my week").answer_call("understand", "no").answer_call("understand", "no, I said");
    assert_eq!(harness.open_call_roles(), ["think"]);
    assert_eq!(facts(&harness, "message_understood")[0]["quality"], "salvaged");
    harness.answer_call("think", &proposal("For how many?").to_string());
    finish_reply(&mut harness, "For how many?");
    assert_eq!(facts(&harness, "turn_summarized")[0]["summary"]["intent"], "plan my week");
}

#[test]
fn invalid_plan_leads_to_a_reply_that_nothing_was_done() {
    for answer in [
        "no plan today".to_owned(),
        json!({"decision": "ponder", "steps": []}).to_string(),
        json!({"decision": "plan_direct", "goal": "x", "steps": []}).to_string(),
        json!({"decision": "clarify", "goal": "x", "steps": []}).to_string(),
        plan(&[json!({"description": "x", "type": "conjure", "subdomain": "recipe"})]).to_string(),
        plan(&[step("read", "garage", 1, &[])]).to_string(),
        plan(&[step("write", "recipe", 1, &["recipe_77"])]).to_string(),
        plan(&vec![step("read", "recipe", 1, &[]); 40]).to_string(),
    ] {
        let mut harness = open();
        harness.send_message("plan").answer_call("understand", &understood("wants a plan").to_string());
        harness.answer_call("think", &answer).answer_call("think", &answer);
        let ask_text = ask_text(&harness, "reply");
        assert!(
            ask_text.contains("No plan could be made:") && ask_text.contains("Nothing was stored or changed"),
            "{ask_text}"
        );
        finish_reply(&mut harness, "I could not plan that. Nothing was changed.");
        assert_eq!((outcome(&harness), runs(&harness).len()), (Some(TurnOutcome::Done), 0), "{answer}");
        assert!(facts(&harness, "turn_summarized")[0]["summary"]["blocked_reason"].is_string());
    }
}

#[test]
fn a27_unknown_reference_is_rejected_by_name_everywhere() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    harness.send_message("those").answer_call(
        "understand",
        &understood_with("means two", json!({"references": ["recipe_1", "recipe_9"]})).to_string(),
    );
    let complaint = "`recipe_9` is not a known reference; known are `recipe_1`, `recipe_2`, `recipe_3`";
    assert!(ask_text(&harness, "understand").contains(complaint), "{}", ask_text(&harness, "understand"));
    harness.answer_call(
        "understand",
        &understood_with("means two", json!({"references": ["recipe_1", "recipe_9"]})).to_string(),
    );
    assert_eq!(facts(&harness, "message_understood").pop().expect("understood")["references"], json!(["recipe_1"]));
    harness.answer_call("think", &plan(&[step("analyze", "recipe", 1, &["recipe_9"])]).to_string());
    assert!(ask_text(&harness, "think").contains(complaint));
    harness.answer_call("think", &plan(&[step("write", "meal", 1, &["recipe_1"])]).to_string());
    answer_act(&mut harness, create_meal("recipe_9"));
    assert!(ask_text(&harness, "act").contains(complaint));
    answer_act(&mut harness, create_meal(&id("recipe", 1)));
    assert_eq!(facts(&harness, "step_ended").pop().expect("the step ended")["status"], "failed");
    assert_eq!(writes(&harness), 0, "an id is not accepted as a reference");
    let ask_text = ask_text(&harness, "reply");
    assert!(ask_text.contains("write meal: failed. the model's answers were invalid"), "{ask_text}");
    assert!(ask_text.contains("Nothing was stored or changed in this turn."), "{ask_text}");
}

#[test]
fn a20_unknown_operator_is_refused_and_not_in_takes_several_values() {
    let mut harness = open();
    start_planned_turn(&mut harness, "no fish", understood("no fish"), plan(&[step("read", "recipe", 1, &[])]));
    answer_act(
        &mut harness,
        tool_call("read", json!({"type": "recipe", "where": [{"field": "name", "op": "not_ilike", "value": "%cod%"}]})),
    );
    assert!(ask_text(&harness, "act").contains("there is no operator `not_ilike`; the operators are `=`, `!=`"));
    assert!(runs(&harness).is_empty());
    let filter = json!({"field": "name", "op": "not_in", "value": ["Baked Cod", "Cod Chowder", "Fish Pie"]});
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe", "where": [filter]})));
    assert_eq!(tool_request(&runs(&harness)[0]).parameters["where"], json!([filter]));
}

#[test]
fn write_is_refused_outside_of_write_steps() {
    for kind in ["read", "analyze", "generate"] {
        let mut harness = open();
        read_turn(&mut harness, "what can I cook?");
        let mut planned = step(kind, "recipe", 1, &[]);
        planned["refresh"] = json!(true);
        start_planned_turn(&mut harness, "go", understood("goes"), plan(&[planned]));
        for action in [
            tool_call("delete", json!({"refs": ["recipe_1"]})),
            tool_call("update", json!({"ref": "recipe_1", "set": {"minutes": 1}})),
        ] {
            answer_act(&mut harness, action);
        }
        assert_eq!(writes(&harness), 0, "{kind}");
        let end = facts(&harness, "step_ended").pop().expect("the step ended");
        assert!(end["outcome"].as_str().is_some_and(|why| why.contains("only a `write` step may call it")), "{end}");
    }
}

#[test]
fn write_step_without_a_write_fails() {
    let mut harness = before_write();
    answer_act(&mut harness, step_complete("added the meal"));
    assert!(ask_text(&harness, "act").contains("nothing was written in this step"));
    answer_act(&mut harness, step_complete("added the meal, really"));
    let ask_text = ask_text(&harness, "reply");
    assert!(
        ask_text.contains("write meal: failed") && ask_text.contains("Nothing was stored or changed"),
        "{ask_text}"
    );
}

#[test]
fn tool_calls_of_a_step_are_limited() {
    let mut harness = open();
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "recipe", 1, &[])]));
    for limit in 1..=3 {
        answer_act(&mut harness, tool_call("read", json!({"type": "recipe", "limit": limit, "refresh": true})));
        finish_records(&mut harness, &rows_result(&recipes()));
    }
    assert!(ask_text(&harness, "act").contains("That was the last tool call of this step."));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    assert!(ask_text(&harness, "act").contains("all 3 tool calls of this step are used up"));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    assert_eq!(runs(&harness).len(), 3);
    assert_eq!(facts(&harness, "step_ended")[0]["status"], "failed");
    finish_reply(&mut harness, "I kept looking and found nothing to say.");
    assert_eq!(outcome(&harness), Some(TurnOutcome::Done));
}

#[test]
fn same_empty_read_twice_ends_the_step() {
    let mut harness = open();
    start_planned_turn(&mut harness, "fish?", understood("wants fish"), plan(&[step("read", "recipe", 1, &[])]));
    for _ in 0..2 {
        answer_act(
            &mut harness,
            tool_call(
                "read",
                json!({"type": "recipe", "where": [{"field": "name", "op": "contains", "value": "eel"}]}),
            ),
        );
        finish_records(&mut harness, &rows_result(&[]));
    }
    let end = &facts(&harness, "step_ended")[0];
    assert_eq!((&end["status"], &end["outcome"]), (&json!("done"), &json!("the same search found nothing twice")));
    assert_eq!(harness.open_call_roles(), ["reply"]);
}

#[test]
fn invalid_draft_is_refused_with_all_field_errors() {
    let mut harness = open();
    start_planned_turn(&mut harness, "a soup", understood("wants a soup"), plan(&[step("generate", "recipe", 1, &[])]));
    let mut end = step_complete("written");
    end["drafts"] = json!([{"type": "recipe", "content": {"name": "Soup", "minutes": "soon", "colour": "green"}}]);
    answer_act(&mut harness, end.clone());
    let ask_text = ask_text(&harness, "act");
    for why in ["`minutes` must be a whole number", "`recipe` has no field `colour`", "`ingredients` is required"] {
        assert!(ask_text.contains(why), "{ask_text}");
    }
    answer_act(&mut harness, end);
    assert_eq!(facts(&harness, "step_ended")[0]["status"], "failed");
    assert!(flow_state(&harness).entities.entities.is_empty(), "no invalid draft is kept");
}

#[test]
fn refusal_and_failure_of_a_tool_are_reported_to_the_step() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(
        &mut harness,
        "delete it",
        understood("deletes"),
        plan(&[write_step("delete", "recipe", 1, &["recipe_1"])]),
    );
    answer_act(&mut harness, tool_call("delete", json!({"refs": ["recipe_1"]})));
    finish_records(&mut harness, &json!({"refusal": "2 meals lead to it"}).to_string());
    assert!(ask_text(&harness, "act").starts_with("## delete failed\n\n2 meals lead to it"));
    answer_act(
        &mut harness,
        json!({"action": "blocked", "reason": "two meals lead to it", "next": "delete those first"}),
    );
    finish_reply(&mut harness, "Two meals use it.");
    start_planned_turn(&mut harness, "look", understood("looks"), plan(&[step("read", "inventory", 1, &[])]));
    answer_act(&mut harness, tool_call("read", json!({"type": "inventory"})));
    harness.finish_tool("records", Err("the disk is gone"));
    assert!(ask_text(&harness, "act").contains("the disk is gone"));
    answer_act(&mut harness, json!({"action": "fail", "reason": "the records cannot be read"}));
    finish_reply(&mut harness, "I could not look.");
    assert_eq!(outcome(&harness), Some(TurnOutcome::Done));
}

#[test]
fn failed_act_call_fails_its_step_and_the_reply_says_so() {
    let mut harness = open();
    start_planned_turn(
        &mut harness,
        "look",
        understood("looks"),
        plan(&[step("read", "recipe", 1, &[]), step("write", "recipe", 2, &[])]),
    );
    harness.fail_call("act", CallFailureKind::Refused);
    let ask_text = ask_text(&harness, "reply");
    assert!(
        ask_text.contains("read recipe: failed. the model did not answer: refused")
            && ask_text.contains("write recipe: not started"),
        "{ask_text}"
    );
    harness.fail_call("reply", CallFailureKind::Refused);
    let said = harness.last_reply();
    assert!(said.starts_with("Nothing was changed.") && said.contains("This was not done:"), "{said}");
    assert_eq!(outcome(&harness), Some(TurnOutcome::Done), "the user got a reply");
}

#[test]
fn writes_are_reported_even_if_reply_is_empty() {
    let mut harness = after_write();
    harness.answer_call("reply", "").answer_call("reply", "");
    let said = harness.last_reply();
    assert!(
        said.contains("These changes were made:⏎- created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)"),
        "{said}"
    );
    assert!(!said.contains("recipe_1"), "{said}");
}

#[test]
fn failed_understand_call_fails_the_turn_with_the_reason() {
    let mut harness = open();
    harness.send_message("look").fail_call("understand", CallFailureKind::InvalidApiKey);
    assert!(matches!(outcome(&harness), Some(TurnOutcome::Failed { reason }) if reason.contains("key not accepted")));
    assert!(
        facts(&harness, "turn_summarized")[0]["summary"]["blocked_reason"]
            .as_str()
            .is_some_and(|why| why.contains("key"))
    );
    harness.run_command(segue_core::decide::OperatorCommand::Retry { turn: None });
    assert!(ask_text(&harness, "understand").contains("look"), "the retry answers the same message");
    harness.fail_call("understand", CallFailureKind::InvalidApiKey);
    talk_turn(&mut harness, "again");
}

#[test]
fn interrupted_write_is_resolved_with_the_records_tool() {
    // It was not executed: the step is told and may try again.
    let mut harness = during_write();
    harness.finish_tool("records", Err("the tool did not answer within 600 s and was stopped"));
    let settle = runs(&harness).pop().expect("the run is resolved");
    assert_eq!(
        (tool_request(&settle).operation, &tool_request(&settle).parameters["run"]),
        (DomainOperation::ResolveRun, &json!(3))
    );
    finish_records(&mut harness, &json!({"never_executed": true}).to_string());
    assert!(ask_text(&harness, "act").contains("## create failed\n\nthe request was not executed"));
    // It was executed: the step continues normally.
    let mut harness = during_write();
    harness.finish_tool("records", Err("timed out"));
    finish_records(&mut harness, &created_meal(1, 1, "Lemon Herb Chicken"));
    answer_act(&mut harness, step_complete("added"));
    assert!(ask_text(&harness, "reply").contains("- created meal “Lemon Herb Chicken”"));
    // It is unknown: nothing is claimed.
    let mut harness = during_write();
    harness.finish_tool("records", Err("timed out")).finish_tool("records", Err("the disk is gone"));
    assert!(ask_text(&harness, "reply").contains("it is unknown whether this was executed"));
}

#[test]
fn write_that_ends_after_its_turn_was_stopped_is_reported_and_undoable() {
    let mut harness = during_write();
    harness.run_command(segue_core::decide::OperatorCommand::Cancel { turn: None });
    assert_eq!(outcome(&harness), Some(TurnOutcome::Cancelled));
    finish_records(&mut harness, &created_meal(1, 1, "Lemon Herb Chicken"));
    assert!(
        harness.last_reply().contains("These changes were made:⏎- created meal “Lemon Herb Chicken”"),
        "{}",
        harness.last_reply()
    );
    assert_eq!(flow_state(&harness).writes.len(), 1);
    talk_turn(&mut harness, "hm");
}

#[test]
fn session_with_unknown_domain_says_so_and_stays_usable() {
    let mut harness = open_with_settings(json!({"domain": "garage"}));
    assert_eq!(facts(&harness, "invalid_settings").len(), 1);
    harness.send_message("hello");
    assert!(
        harness.last_reply().contains("there is no domain `garage`; known domains are `kitchen`, `reading`"),
        "{}",
        harness.last_reply()
    );
    assert!(matches!(outcome(&harness), Some(TurnOutcome::Failed { .. })));
    harness.send_message("hello?");
    assert!(harness.session().is_idle());
}

/// Every turn ends, and no unplanned write is executed.
#[test]
fn no_invalid_answer_breaks_the_flow() {
    let answers = [
        "",
        "null",
        "[]",
        "{}",
        "{\"action\": 1}",
        "{\"action\": \"tool_call\", \"tool\": []}",
        "{\"decision\": \"plan_direct\", \"steps\": [1, null, {\"type\": \"read\"}]}",
        "{\"expressed\": 3, \"retain\": [{\"ref\": 1}], \"demote\": \"x\", \"drop\": {}, \"pending\": \"maybe\"}",
        "{\"action\": \"step_complete\", \"outcome\": \"x\", \"drafts\": [[], {\"content\": 1}]}",
        "{\"action\": \"tool_call\", \"tool\": \"read\", \"arguments\": {\"where\": [[]], \"sort\": 3, \"limit\": \"x\"}}",
        "{\"action\": \"tool_call\", \"tool\": \"update\", \"arguments\": {\"updates\": [1, {\"ref\": \"recipe_1\"}]}}",
        "{\"action\": \"tool_call\", \"tool\": \"link\", \"arguments\": {\"ref\": \"recipe_1\", \"field\": \"x\"}}",
        "```json\n{\"action\": \"retrieve_step\", \"step\": -1}\n```",
    ];
    let mut base = open();
    read_turn(&mut base, "what can I cook?");
    for (place, answer) in answers.iter().enumerate() {
        for kind in ["read", "analyze", "generate", "write"] {
            let mut harness = base.fork_at(base.journal().len());
            harness.with_checks_at_end(|harness| answer_all_with(harness, answer, place % 2 == 0, kind));
            assert!(harness.session().is_idle(), "{answer} {kind}: {:?}", harness.open_call_roles());
            assert_eq!(writes(&harness), 0, "{answer} {kind}");
        }
    }
}

/// Lets every node give the same answer, also to a repair; Think gives a valid plan in the end.
fn answer_all_with(harness: &mut SessionHarness, answer: &str, also_think: bool, kind: &str) {
    harness.send_message("go").answer_call("understand", answer);
    if harness.open_call_roles() == ["understand"] {
        harness.answer_call("understand", answer);
    }
    harness.answer_call("think", if also_think { answer } else { "" });
    if harness.open_call_roles() == ["think"] {
        harness.answer_call("think", &plan(&[step(kind, "recipe", 1, &[])]).to_string());
    }
    for _ in 0..2 {
        if harness.open_call_roles() == ["act"] {
            harness.answer_call("act", answer);
        }
    }
    if harness.open_call_roles() == ["reply"] {
        finish_reply(harness, "Well.");
    }
}
