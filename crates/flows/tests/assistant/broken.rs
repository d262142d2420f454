//! Broken output at each node: one repair, then a reply that says what was and was not done. Nothing is written that was not
//! planned.

use segue_core::event::{Event, TurnResult};
use segue_core::prompt::FailureKind;
use segue_flows::assistant::tools::DomainOperation;
use segue_testkit::SessionHarness;
use serde_json::json;

use super::play::*;

fn outcome(stage: &SessionHarness) -> Option<TurnResult> {
    stage.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    })
}

fn writes(stage: &SessionHarness) -> usize {
    runs(stage).iter().filter(|run| told(run).operation.is_write()).count()
}

#[test]
fn prose_instead_of_json_is_asked_for_once_more_at_every_node_that_decides() {
    let mut stage = open();
    stage.send_message("plan").answer_call("understand", "Sure, let me think about it!");
    assert!(asked(&stage, "understand").contains("the answer must be one JSON object"));
    stage.answer_call("understand", &heard("wants a plan").to_string());
    stage.answer_call("think", "I would read the recipes.");
    assert!(asked(&stage, "think").contains("the answer must be one JSON object with `decision`, `steps`"));
    stage.answer_call("think", &plan(&[step("read", "recipe", 1, &[])]).to_string());
    stage.answer_call("act", "Reading now.");
    assert!(asked(&stage, "act").contains("the answer must be one JSON object with `action`"));
    act(&mut stage, done("read"));
    stage.answer_call("reply", " \n ");
    assert_eq!(asked(&stage, "reply"), "Your answer was empty. Write the reply to the person now, in plain words.");
    replied(&mut stage, "Here they are.");
    assert_eq!(facts(&stage, "broken").len(), 4);
    assert_eq!(facts(&stage, "understood")[0]["how"], "repaired");
    assert_eq!(facts(&stage, "planned")[0]["how"], "repaired");
    let threads = calls(&stage, "understand").iter().map(|call| call.receipt.thread.thread_id()).collect::<Vec<_>>();
    assert_eq!(threads[0], threads[1], "it is asked again in its own thread");
}

#[test]
fn a_message_that_cannot_be_understood_is_still_answered() {
    let mut stage = open();
    stage.send_message("plan my week").answer_call("understand", "no").answer_call("understand", "no, I said");
    assert_eq!(stage.open_call_roles(), ["think"]);
    assert_eq!(facts(&stage, "understood")[0]["how"], "salvaged");
    stage.answer_call("think", &propose("For how many?").to_string());
    replied(&mut stage, "For how many?");
    assert_eq!(facts(&stage, "summarized")[0]["summary"]["expressed"], "plan my week");
}

#[test]
fn a_plan_that_cannot_be_read_leads_to_a_reply_that_says_that_nothing_was_done() {
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
        let mut stage = open();
        stage.send_message("plan").answer_call("understand", &heard("wants a plan").to_string());
        stage.answer_call("think", &answer).answer_call("think", &answer);
        let asked = asked(&stage, "reply");
        assert!(asked.contains("No plan could be made:") && asked.contains("Nothing was stored or changed"), "{asked}");
        replied(&mut stage, "I could not plan that. Nothing was changed.");
        assert_eq!((outcome(&stage), runs(&stage).len()), (Some(TurnResult::Done), 0), "{answer}");
        assert!(facts(&stage, "summarized")[0]["summary"]["blocked_reason"].is_string());
    }
}

#[test]
fn a27_an_unknown_reference_is_rejected_by_name_wherever_it_is_used() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    stage.send_message("those").answer_call(
        "understand",
        &heard_with("means two", json!({"references": ["recipe_1", "recipe_9"]})).to_string(),
    );
    let complaint = "`recipe_9` is no reference; those known are `recipe_1`, `recipe_2`, `recipe_3`";
    assert!(asked(&stage, "understand").contains(complaint), "{}", asked(&stage, "understand"));
    stage.answer_call(
        "understand",
        &heard_with("means two", json!({"references": ["recipe_1", "recipe_9"]})).to_string(),
    );
    assert_eq!(facts(&stage, "understood").pop().expect("understood")["references"], json!(["recipe_1"]));
    stage.answer_call("think", &plan(&[step("analyze", "recipe", 1, &["recipe_9"])]).to_string());
    assert!(asked(&stage, "think").contains(complaint));
    stage.answer_call("think", &plan(&[step("write", "meal", 1, &["recipe_1"])]).to_string());
    let meal = |of: &str| {
        tool("create", json!({"type": "meal", "records": [{"date": "2026-01-15", "slot": "dinner", "recipe": of}]}))
    };
    act(&mut stage, meal("recipe_9"));
    assert!(asked(&stage, "act").contains(complaint));
    act(&mut stage, meal(&id("recipe", 1)));
    assert_eq!(facts(&stage, "step_ended").pop().expect("it ended")["end"], "failed");
    assert_eq!(writes(&stage), 0, "a real id is no reference either");
    let asked = asked(&stage, "reply");
    assert!(asked.contains("write meal: failed. what came back could not be used"), "{asked}");
    assert!(asked.contains("Nothing was stored or changed in this turn."), "{asked}");
}

#[test]
fn a20_an_unknown_operator_is_refused_and_several_values_go_to_one_not_in() {
    let mut stage = open();
    decided(&mut stage, "no fish", heard("no fish"), plan(&[step("read", "recipe", 1, &[])]));
    act(
        &mut stage,
        tool("read", json!({"type": "recipe", "where": [{"field": "name", "op": "not_ilike", "value": "%cod%"}]})),
    );
    assert!(asked(&stage, "act").contains("there is no operator `not_ilike`; there are `=`, `!=`"));
    assert!(runs(&stage).is_empty());
    let filter = json!({"field": "name", "op": "not_in", "value": ["Baked Cod", "Cod Chowder", "Fish Pie"]});
    act(&mut stage, tool("read", json!({"type": "recipe", "where": [filter]})));
    assert_eq!(told(&runs(&stage)[0]).parameters["where"], json!([filter]));
}

#[test]
fn a_write_is_refused_in_a_step_that_was_not_planned_as_one() {
    for kind in ["read", "analyze", "generate"] {
        let mut stage = open();
        read_turn(&mut stage, "what can I cook?");
        decided(&mut stage, "go", heard("goes"), plan(&[step(kind, "recipe", 1, &[])]));
        for action in [
            tool("delete", json!({"refs": ["recipe_1"]})),
            tool("update", json!({"ref": "recipe_1", "set": {"minutes": 1}})),
        ] {
            act(&mut stage, action);
        }
        assert_eq!(writes(&stage), 0, "{kind}");
        let end = facts(&stage, "step_ended").pop().expect("it ended");
        assert!(end["outcome"].as_str().is_some_and(|why| why.contains("only a `write` step may do that")), "{end}");
    }
}

#[test]
fn a_step_that_only_says_it_wrote_is_not_believed() {
    let mut stage = about_to_write();
    act(&mut stage, done("added the meal"));
    assert!(asked(&stage, "act").contains("nothing was written in this step"));
    act(&mut stage, done("added the meal, really"));
    let asked = asked(&stage, "reply");
    assert!(asked.contains("write meal: failed") && asked.contains("Nothing was stored or changed"), "{asked}");
}

#[test]
fn endless_tool_calls_end() {
    let mut stage = open();
    decided(&mut stage, "look", heard("looks"), plan(&[step("read", "recipe", 1, &[])]));
    for limit in 1..=3 {
        act(&mut stage, tool("read", json!({"type": "recipe", "limit": limit})));
        host(&mut stage, &found(&recipes()));
    }
    assert!(asked(&stage, "act").contains("That was the last tool call of this step."));
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    assert!(asked(&stage, "act").contains("they are used up"));
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    assert_eq!(runs(&stage).len(), 3);
    assert_eq!(facts(&stage, "step_ended")[0]["end"], "failed");
    replied(&mut stage, "I kept looking and found nothing to say.");
    assert_eq!(outcome(&stage), Some(TurnResult::Done));
}

#[test]
fn the_same_read_that_finds_nothing_twice_ends_its_step() {
    let mut stage = open();
    decided(&mut stage, "fish?", heard("wants fish"), plan(&[step("read", "recipe", 1, &[])]));
    for _ in 0..2 {
        act(
            &mut stage,
            tool("read", json!({"type": "recipe", "where": [{"field": "name", "op": "contains", "value": "eel"}]})),
        );
        host(&mut stage, &found(&[]));
    }
    let end = &facts(&stage, "step_ended")[0];
    assert_eq!((&end["end"], &end["outcome"]), (&json!("done"), &json!("nothing was found, twice")));
    assert_eq!(stage.open_call_roles(), ["reply"]);
}

#[test]
fn a_draft_that_does_not_fit_its_type_is_refused_field_by_field() {
    let mut stage = open();
    decided(&mut stage, "a soup", heard("wants a soup"), plan(&[step("generate", "recipe", 1, &[])]));
    let mut end = done("written");
    end["drafts"] = json!([{"type": "recipe", "content": {"name": "Soup", "minutes": "soon", "colour": "green"}}]);
    act(&mut stage, end.clone());
    let asked = asked(&stage, "act");
    for why in ["`minutes` must be a whole number", "`recipe` has no field `colour`", "`ingredients` is required"] {
        assert!(asked.contains(why), "{asked}");
    }
    act(&mut stage, end);
    assert_eq!(facts(&stage, "step_ended")[0]["end"], "failed");
    assert!(memory(&stage).entities.entities.is_empty(), "nothing half-written is kept");
}

#[test]
fn a_host_that_refuses_is_told_to_the_step_and_a_host_that_fails_does_not_fail_the_turn() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "delete it", heard("deletes"), plan(&[step("write", "recipe", 1, &["recipe_1"])]));
    act(&mut stage, tool("delete", json!({"refs": ["recipe_1"]})));
    host(&mut stage, &json!({"refused": "2 meals lead to it"}).to_string());
    assert!(asked(&stage, "act").starts_with("## delete was not done\n\n2 meals lead to it"));
    act(&mut stage, json!({"action": "blocked", "reason": "two meals lead to it", "next": "delete those first"}));
    replied(&mut stage, "Two meals use it.");
    decided(&mut stage, "look", heard("looks"), plan(&[step("read", "inventory", 1, &[])]));
    act(&mut stage, tool("read", json!({"type": "inventory"})));
    stage.finish_tool("records", Err("the disk is gone"));
    assert!(asked(&stage, "act").contains("the disk is gone"));
    act(&mut stage, json!({"action": "fail", "reason": "the records cannot be read"}));
    replied(&mut stage, "I could not look.");
    assert_eq!(outcome(&stage), Some(TurnResult::Done));
}

#[test]
fn a_model_that_does_not_answer_fails_its_step_and_the_reply_says_so() {
    let mut stage = open();
    decided(
        &mut stage,
        "look",
        heard("looks"),
        plan(&[step("read", "recipe", 1, &[]), step("write", "recipe", 2, &[])]),
    );
    stage.fail_call("act", FailureKind::Refused);
    let asked = asked(&stage, "reply");
    assert!(
        asked.contains("read recipe: failed. no answer came: refused") && asked.contains("write recipe: not begun"),
        "{asked}"
    );
    stage.fail_call("reply", FailureKind::Refused);
    let said = stage.last_reply();
    assert!(said.starts_with("Nothing was changed.") && said.contains("This was not done:"), "{said}");
    assert_eq!(outcome(&stage), Some(TurnResult::Done), "the user was told");
}

#[test]
fn what_was_written_is_told_even_if_nobody_can_phrase_it() {
    let mut stage = wrote();
    stage.answer_call("reply", "").answer_call("reply", "");
    let said = stage.last_reply();
    assert!(
        said.contains("This was done:⏎- created meal “Lemon Herb Chicken” (date: 2026-01-15; slot: dinner)"),
        "{said}"
    );
    assert!(!said.contains("recipe_1"), "{said}");
}

#[test]
fn a_model_that_cannot_be_reached_fails_the_turn_with_the_reason() {
    let mut stage = open();
    stage.send_message("look").fail_call("understand", FailureKind::InvalidApiKey);
    assert!(matches!(outcome(&stage), Some(TurnResult::Failed { reason }) if reason.contains("key not accepted")));
    assert!(
        facts(&stage, "summarized")[0]["summary"]["blocked_reason"].as_str().is_some_and(|why| why.contains("key"))
    );
    stage.run_command(segue_core::decide::OperatorCommand::Retry);
    assert!(asked(&stage, "understand").contains("look"), "what was said is asked about again");
    stage.fail_call("understand", FailureKind::InvalidApiKey);
    talk_turn(&mut stage, "again");
}

#[test]
fn a_write_that_was_cut_off_is_settled_with_the_host() {
    // It never happened: the step is told, and may try again.
    let mut stage = writing();
    stage.finish_tool("records", Err("the tool did not answer within 600 s and was stopped"));
    let settle = runs(&stage).pop().expect("it is asked about");
    assert_eq!((told(&settle).operation, &told(&settle).parameters["of"]), (DomainOperation::ResolveRun, &json!(2)));
    host(&mut stage, &json!({"never": true}).to_string());
    assert!(asked(&stage, "act").contains("## create was not done\n\nit was not done"));
    // It did happen: the step goes on as if nothing had been.
    let mut stage = writing();
    stage.finish_tool("records", Err("timed out"));
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    assert!(asked(&stage, "reply").contains("- created meal “Lemon Herb Chicken”"));
    // It is not known: nobody claims anything.
    let mut stage = writing();
    stage.finish_tool("records", Err("timed out")).finish_tool("records", Err("the disk is gone"));
    assert!(asked(&stage, "reply").contains("it is not known whether this was done"));
}

#[test]
fn a_write_that_was_done_although_its_turn_was_stopped_is_told_and_can_be_taken_back() {
    let mut stage = writing();
    stage.run_command(segue_core::decide::OperatorCommand::Cancel);
    assert_eq!(outcome(&stage), Some(TurnResult::Cancelled));
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    assert!(
        stage.last_reply().contains("This was done:⏎- created meal “Lemon Herb Chicken”"),
        "{}",
        stage.last_reply()
    );
    assert_eq!(memory(&stage).writes.len(), 1);
    talk_turn(&mut stage, "hm");
}

#[test]
fn a_session_without_its_domain_says_so_and_stays_usable() {
    let mut stage = open_set(json!({"domain": "garage"}));
    assert_eq!(facts(&stage, "settings").len(), 1);
    stage.send_message("hello");
    assert!(
        stage.last_reply().contains("there is no domain `garage`; there are `kitchen`, `reading`"),
        "{}",
        stage.last_reply()
    );
    assert!(matches!(outcome(&stage), Some(TurnResult::Failed { .. })));
    stage.send_message("hello?");
    assert!(stage.session().is_idle());
}

/// Whatever a model answers, the turn ends, and only planned writes are run.
#[test]
fn nothing_a_model_says_brings_the_flow_down() {
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
            let mut stage = base.fork_at(base.journal().len());
            stage.with_checks_at_end(|stage| insist(stage, answer, place % 2 == 0, kind));
            assert!(stage.session().is_idle(), "{answer} {kind}: {:?}", stage.open_call_roles());
            assert_eq!(writes(&stage), 0, "{answer} {kind}");
        }
    }
}

/// Every node answers the same, and again when it is asked again; Think gives in where it must.
fn insist(stage: &mut SessionHarness, answer: &str, also_think: bool, kind: &str) {
    stage.send_message("go").answer_call("understand", answer);
    if stage.open_call_roles() == ["understand"] {
        stage.answer_call("understand", answer);
    }
    stage.answer_call("think", if also_think { answer } else { "" });
    if stage.open_call_roles() == ["think"] {
        stage.answer_call("think", &plan(&[step(kind, "recipe", 1, &[])]).to_string());
    }
    for _ in 0..2 {
        if stage.open_call_roles() == ["act"] {
            stage.answer_call("act", answer);
        }
    }
    if stage.open_call_roles() == ["reply"] {
        replied(stage, "Well.");
    }
}
