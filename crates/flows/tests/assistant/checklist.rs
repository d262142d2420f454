//! The checklist of the flow, row by row. The rows about operators and labels are unit tests next to their code.

use std::collections::BTreeSet;

use segue_core::context::FragmentContentKind;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{Event, TurnOutcome};
use segue_core::prompt::{CallFailureKind, ModelReply};
use segue_flows::assistant::registry::EntityRelevanceTier;
use segue_flows::limits::ENTITIES_MAX;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

#[test]
fn a02_each_node_is_shown_its_own_part_of_the_memory() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    read_turn(&mut harness, "and else?");
    let last =
        |role: &str| calls(&harness, role).into_iter().rev().find(|call| call.ask == *"go").expect("the call was made");
    assert_eq!(layout(&last("understand")), "instruction domain | entities conversation decisions message");
    assert_eq!(
        layout(&last("think")),
        "instruction domain | entities loaded conversation reasoning curation today message"
    );
    assert_eq!(layout(&last("act")), "instruction domain guide | step records today message");
    assert_eq!(layout(&last("reply")), "instruction domain | flow entities conversation happened message");
    for role in ["understand", "think", "act", "reply"] {
        assert_eq!(last(role).receipt.carried.entries, 0, "{role} remembers no earlier turn");
    }
    let layers = |role: &str| last(role).receipt.ask.iter().map(|piece| piece.layer).collect::<Vec<_>>();
    assert!(
        layers("understand").contains(&FragmentContentKind::Entities)
            && layers("think").contains(&FragmentContentKind::Reasoning)
    );
    assert!(!layers("act").contains(&FragmentContentKind::Conversation), "Act does not see the conversation");
}

#[test]
fn a04_think_sees_references_and_labels_but_no_records() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    harness.send_message("and now?").answer_call("understand", &understood("goes on").to_string());
    let ask_text = ask_text(&harness, "think");
    assert!(ask_text.contains("- recipe_3 (recipe, active, detail full): Baked Cod"), "{ask_text}");
    for inside in ["tomatoes", "minutes", "spaghetti"] {
        assert!(!ask_text.contains(inside), "{inside} is part of a record: {ask_text}");
    }
}

#[test]
fn a05_think_is_told_which_records_not_to_read_again() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    harness.send_message("and now?").answer_call("understand", &understood("goes on").to_string());
    let opened = calls(&harness, "think").pop().expect("the call was made");
    let loaded = fragment(&harness, &opened, "loaded").expect("something is loaded");
    assert!(loaded.starts_with("## Loaded records: do not read them again"), "{loaded}");
    for line in
        ["- recipe_1: Lemon Herb Chicken", "- recipe_2: Garlic Pasta", "- all records of type recipe are loaded"]
    {
        assert!(loaded.contains(line), "{loaded}");
    }
    assert!(loaded.ends_with("Plan no read step for them."), "{loaded}");
}

#[test]
fn a06_think_sees_what_was_retained_and_demoted_in_this_turn() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let understood = understood_with(
        "no cod",
        json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}),
    );
    harness.send_message("no cod").answer_call("understand", &understood.to_string());
    let ask_text = ask_text(&harness, "think");
    assert!(ask_text.contains("Retained: recipe_1 (they like it)"), "{ask_text}");
    assert!(ask_text.contains("Demoted: recipe_3 (no cod)"), "{ask_text}");
}

#[test]
fn a07_a12_think_sees_only_the_last_two_turns_in_full() {
    let mut harness = open();
    for said in ["one", "two", "three"] {
        read_turn(&mut harness, said);
    }
    harness.send_message("four").answer_call("understand", &understood("goes on").to_string());
    let opened = calls(&harness, "think").pop().expect("the call was made");
    let reasoning = fragment(&harness, &opened, "reasoning").expect("the fragment is shown");
    for turn in ["Turn 2 (exploring)", "Turn 3 (exploring)", "step 1 (read recipe), done: found three recipes"] {
        assert!(reasoning.contains(turn), "{reasoning}");
    }
    assert!(!reasoning.contains("Turn 1"), "{reasoning}");
    assert!(reasoning.contains("in short: they want dinner"), "{reasoning}");
    let flow_state = flow_state(&harness);
    assert_eq!(flow_state.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a08_act_is_shown_entities_in_every_kind_of_step() {
    for kind in ["read", "analyze", "generate", "write"] {
        let mut harness = open();
        read_turn(&mut harness, "what can I cook?");
        let understood = understood_with("no cod", json!({"demote": [{"ref": "recipe_3", "reason": "no cod"}]}));
        let mut planned = step(kind, "recipe", 1, &[]);
        planned["refresh"] = json!(true);
        start_planned_turn(&mut harness, "no cod", understood, plan(&[planned]));
        let ask_text = ask_text(&harness, "act");
        assert!(ask_text.contains(r#"{"ref":"recipe_1","#) && ask_text.contains("\"garlic\""), "{kind}: {ask_text}");
        assert!(!ask_text.contains("tomatoes"), "{kind}: a demoted record is only listed by label: {ask_text}");
        assert!(ask_text.contains("- recipe_3 (recipe, demoted): Baked Cod; no cod"), "{kind}: {ask_text}");
    }
}

#[test]
fn a08_act_sees_the_full_records_of_its_step() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let steps = [step("analyze", "recipe", 1, &["recipe_2"])];
    start_planned_turn(&mut harness, "tell me about the second", understood("asks"), plan(&steps));
    let opened = calls(&harness, "act").pop().expect("the call was made");
    let records = fragment(&harness, &opened, "records").expect("there are some");
    assert!(records.contains("\"recipe_2\"") && records.contains("spaghetti"), "{records}");
    assert!(!records.contains("recipe_1"), "{records}");
}

#[test]
fn a08_act_sees_the_full_rows_that_earlier_steps_read_of_every_type() {
    for kind in ["analyze", "generate"] {
        let mut harness = open();
        let reads = [step("read", "recipe", 1, &[]), step("read", "inventory", 1, &[])];
        let steps = [reads[0].clone(), reads[1].clone(), step(kind, "meal", 2, &[])];
        start_turn(&mut harness, "use up the cod", understood("uses cod"), plan(&steps));
        let cod = json!({"type": "inventory", "id": id("inventory", 1), "label": "cod",
            "fields": {"name": "cod", "amount": "400 g", "expires": "2026-01-13"}});
        let results = [rows_result(&recipes()), rows_result(&[cod])];
        results.iter().for_each(|result| finish_records(&mut harness, result));
        assert_eq!(calls(&harness, "act").len(), 1, "no model was asked what to read");
        let opened = calls(&harness, "act").pop().expect("the call was made");
        let records = fragment(&harness, &opened, "records").expect("there are some");
        assert!(records.contains(r#"{"ref":"recipe_3","#) && records.contains("tomatoes"), "{kind}: {records}");
        assert!(records.contains(r#"{"ref":"inventory_1","#) && records.contains("400 g"), "{kind}: {records}");
    }
}

#[test]
fn a08_summaries_that_a_step_read_are_completed_before_the_next_one() {
    let mut harness = open();
    let steps = [step("read", "recipe", 1, &[]), step("analyze", "inventory", 2, &[])];
    start_planned_turn(&mut harness, "compare", understood("compares"), plan(&steps));
    answer_act(
        &mut harness,
        tool_call("read", json!({"type": "recipe", "where": [{"field": "minutes", "op": "<", "value": 25}]})),
    );
    finish_records(&mut harness, &rows_result(&recipes()[..2]));
    answer_act(&mut harness, step_complete("two are quick"));
    let run = all_runs(&harness).pop().expect("the rest of the records is fetched");
    assert_eq!(tool_request(&run).operation.as_str(), "get");
    let mut full = recipes();
    full.truncate(2);
    full.iter_mut().for_each(|row| row["fields"]["instructions"] = json!("Boil."));
    finish_records(&mut harness, &rows_result(&full));
    assert_eq!(ask_text(&harness, "act").matches("Boil.").count(), 2);
}

#[test]
fn a09_reply_sees_turn_phase_intent_and_last_reply() {
    let mut harness = open();
    talk_turn(&mut harness, "help me plan meals");
    let steps = [step("analyze", "recipe", 1, &[])];
    start_planned_turn(&mut harness, "no cod this week", understood("no cod this week"), plan(&steps));
    answer_act(&mut harness, step_complete("two are left"));
    let ask_text = ask_text(&harness, "reply");
    for line in [
        "- Turn: 2 (the conversation is already going on)",
        "- Phase: narrowing. Name the choices that are left, and what decides between them.",
        "- The user wants: no cod this week",
        "- Your last reply: Shall I?",
    ] {
        assert!(ask_text.contains(line), "{ask_text}");
    }
}

#[test]
fn a10_reply_is_told_not_to_greet_after_the_first_turn() {
    let mut harness = open();
    start_planned_turn(&mut harness, "hello", understood("says hello"), proposal("What shall we do?"));
    assert!(!ask_text(&harness, "reply").contains("greet"), "the first turn may greet");
    finish_reply(&mut harness, "Hello! What shall we do?");
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), proposal("For how long?"));
    let ask_text = ask_text(&harness, "reply");
    assert!(ask_text.contains("## Do not\n\n- greet the user (\"Hello!\", \"Hi there!\")"), "{ask_text}");
    assert!(ask_text.contains("introduce yourself again") && ask_text.contains("That leaves"), "{ask_text}");
}

#[test]
fn a11_every_turn_records_one_summary() {
    let mut harness = open();
    read_turn(&mut harness, "one");
    talk_turn(&mut harness, "two");
    harness.send_message("three").fail_call("understand", CallFailureKind::InvalidApiKey);
    harness.send_message("four").run_command(OperatorCommand::Cancel { turn: None });
    let summaries = facts(&harness, "turn_summarized");
    let turns: Vec<_> = summaries.iter().map(|summary| summary["summary"]["turn"].as_u64()).collect();
    assert_eq!(turns, [Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(summaries[0]["summary"]["decision"], "plan_direct");
    assert_eq!(summaries[1]["summary"]["decision"], "propose");
    assert_eq!(summaries[3]["summary"]["blocked_reason"], "the user stopped the turn");
}

#[test]
fn a13_older_summaries_are_compacted_by_a_model() {
    let mut harness = open();
    for said in ["one", "two"] {
        talk_turn(&mut harness, said);
    }
    assert!(calls(&harness, "summarize").is_empty(), "two summaries stay as they are");
    start_planned_turn(&mut harness, "three", understood("talks"), proposal("Well?"));
    harness.answer_call("reply", "Well?");
    let older = ask_text(&harness, "summarize");
    assert!(older.contains("Turn 1 (exploring): the user wanted: talks"), "{older}");
    assert!(!older.contains("Turn 2") && !older.contains("Summary so far"), "{older}");
    harness.answer_call("summarize", "They talked once.");
    assert!(harness.session().is_idle());
    start_planned_turn(&mut harness, "four", understood("talks"), proposal("Well?"));
    harness.answer_call("reply", "Well?");
    let older = ask_text(&harness, "summarize");
    assert!(older.starts_with("Summary so far:\nThey talked once.\n\nTurns after the summary:\n\nTurn 2"), "{older}");
}

#[test]
fn a14_failed_compaction_changes_nothing_and_the_turn_succeeds() {
    let mut harness = open();
    for said in ["one", "two", "three"] {
        talk_turn(&mut harness, said);
    }
    let before = flow_state(&harness).reasoning.compacted.expect("the first turn was compacted");
    start_planned_turn(&mut harness, "four", understood("talks"), proposal("Well?"));
    harness.answer_call("reply", "Well?").fail_call("summarize", CallFailureKind::Refused);
    let ended = harness.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(ended, Some(TurnOutcome::Done));
    assert_eq!(flow_state(&harness).reasoning.compacted, Some(before));
    assert_eq!(facts(&harness, "compaction_failed").len(), 1);
    // An empty summary is a failure too, and the turns are compacted the next time.
    start_planned_turn(&mut harness, "five", understood("talks"), proposal("Well?"));
    harness.answer_call("reply", "Well?").answer_call("summarize", "  ");
    assert_eq!(flow_state(&harness).reasoning.compacted, Some(before));
    start_planned_turn(&mut harness, "six", understood("talks"), proposal("Well?"));
    harness.answer_call("reply", "Well?");
    let older = ask_text(&harness, "summarize");
    assert!(older.contains("Turn 2") && older.contains("Turn 3") && older.contains("Turn 4"), "{older}");
}

#[test]
fn a17_step_summary_has_type_subdomain_outcome_references_and_note() {
    let mut harness = open();
    let steps = [step("read", "recipe", 1, &[])];
    start_planned_turn(&mut harness, "what can I cook?", understood("wants recipes"), plan(&steps));
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    finish_records(&mut harness, &rows_result(&recipes()));
    let mut end = step_complete("found three");
    end["refs"] = json!(["recipe_1", "recipe_2"]);
    end["note_for_next_step"] = json!("the first is quick");
    answer_act(&mut harness, end);
    finish_reply(&mut harness, "Three.");
    let summary = &facts(&harness, "turn_summarized")[0]["summary"]["steps"][0];
    assert_eq!(
        *summary,
        json!({"step": 1, "type": "read", "subdomain": "recipe", "status": "done", "outcome": "found three",
            "refs": ["recipe_1", "recipe_2"], "note": "the first is quick"})
    );
}

#[test]
fn a18_note_reaches_the_next_step_and_the_summary() {
    let mut harness = open();
    let steps = [1, 2, 3].map(|group| step("analyze", "recipe", group, &[]));
    start_planned_turn(&mut harness, "what can I cook?", understood("wants recipes"), plan(&steps));
    let mut end = step_complete("nothing was needed");
    end["note_for_next_step"] = json!("mind the allergy");
    answer_act(&mut harness, end);
    assert!(ask_text(&harness, "act").contains("Note from step 1: mind the allergy"));
    answer_act(&mut harness, step_complete("chosen"));
    assert!(!ask_text(&harness, "act").contains("mind the allergy"), "it is for the next step");
    answer_act(&mut harness, step_complete("weighed"));
    finish_reply(&mut harness, "Done.");
    assert_eq!(facts(&harness, "turn_summarized")[0]["summary"]["steps"][0]["note"], "mind the allergy");
}

#[test]
fn a19_question_of_an_analyze_step_includes_the_partial_result() {
    let mut harness = open();
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), plan(&[step("analyze", "recipe", 1, &[])]));
    answer_act(&mut harness, json!({"action": "ask_user", "question": "Chicken or cod first?"}));
    assert!(ask_text(&harness, "act").contains("needs `partial`"));
    answer_act(
        &mut harness,
        json!({"action": "ask_user", "question": "Chicken or cod first?",
        "data": {"partial_analysis": {"viable_recipes": 6, "expiring": ["chicken", "cod"]}}}),
    );
    let ask_text = ask_text(&harness, "reply");
    assert!(
        ask_text.contains("Ask the user: Chicken or cod first?") && ask_text.contains("\"viable_recipes\":6"),
        "{ask_text}"
    );
    finish_reply(&mut harness, "Six fit. Chicken or cod first?");
    harness.send_message("chicken");
    let understand = prompt_text(&harness, "understand");
    assert!(understand.contains("Chicken or cod first?") && understand.contains("viable_recipes"), "{understand}");
}

#[test]
fn a19_missing_partial_result_is_requested_once_and_then_filled_in() {
    let mut harness = open();
    let steps = [step("analyze", "inventory", 1, &[]), step("analyze", "recipe", 2, &[])];
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), plan(&steps));
    answer_act(&mut harness, step_complete("found eight"));
    for _ in 0..2 {
        answer_act(&mut harness, json!({"action": "ask_user", "question": "Which?"}));
    }
    let end = facts(&harness, "step_ended").pop().expect("the step ended");
    assert_eq!(
        (&end["status"], &end["partial_result"]),
        (&json!("awaiting_user"), &json!({"so_far": ["found eight"]}))
    );
}

#[test]
fn a22_demotion_is_immediate_and_lasts_until_the_next_reference() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    let tier = |harness: &segue_testkit::SessionHarness| {
        let flow_state = flow_state(harness);
        flow_state.entities.get("recipe_3").map(|entity| entity.relevance_tier(flow_state.current_turn_number()))
    };
    assert_eq!(tier(&harness), Some(EntityRelevanceTier::Active));
    let understood_no_cod = understood_with(
        "no cod",
        json!({"references": ["recipe_3"], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}),
    );
    harness.send_message("no cod").answer_call("understand", &understood_no_cod.to_string());
    assert_eq!(
        tier(&harness),
        Some(EntityRelevanceTier::Demoted),
        "in the same turn, although it was just referred to"
    );
    assert!(!ask_text(&harness, "think").contains("- recipe_3 (recipe, active"));
    let mut read = step("read", "recipe", 1, &[]);
    read["refresh"] = json!(true);
    harness.answer_call("think", &plan(&[read]).to_string());
    finish_records(&mut harness, &rows_result(&recipes()));
    assert_eq!(
        tier(&harness),
        Some(EntityRelevanceTier::Demoted),
        "reading it with other records does not make it active again"
    );
    finish_reply(&mut harness, "Well.");
    harness
        .send_message("cod after all")
        .answer_call("understand", &understood_with("wants cod", json!({"references": ["recipe_3"]})).to_string());
    assert_eq!(tier(&harness), Some(EntityRelevanceTier::Active));
}

#[test]
fn a25_without_narratives_only_the_reasoning_layer_is_missing() {
    let layouts = |settings: serde_json::Value| {
        let mut harness = open_with_settings(settings);
        for said in ["one", "two", "three", "four"] {
            read_turn(&mut harness, said);
        }
        let stage_calls = |role: &str| calls(&harness, role).iter().map(layout).collect::<Vec<_>>();
        let prompts: Vec<String> = ["act", "reply"]
            .iter()
            .flat_map(|role| calls(&harness, role))
            .map(|call| sent_text(&harness, call.call))
            .collect();
        (NODES.map(stage_calls), prompts, facts(&harness, "turn_summarized"), harness.last_reply())
    };
    let (on, on_prompts, _, on_said) = layouts(json!({}));
    let (off, off_prompts, summarized, off_said) = layouts(json!({"turn_narratives": false}));
    assert!(summarized.iter().all(|fact| fact.get("summary").is_none() && fact.get("reply").is_some()));
    assert!(off[4].is_empty() && on[4].len() == 2, "nothing is compacted");
    let without = |layouts: &[String]| {
        layouts.iter().map(|layout| layout.replace(" decisions", "").replace(" reasoning", "")).collect::<Vec<_>>()
    };
    for place in 0..4 {
        assert_eq!(without(&on[place]), off[place]);
    }
    assert_eq!((on_prompts, on_said), (off_prompts, off_said), "the other prompts are the same");
}

/// Lets the flow read all records of a type.
fn read_all(harness: &mut SessionHarness, kind: &str, rows: &[Value]) {
    let mut read = step("read", kind, 1, &[]);
    read["refresh"] = json!(true);
    start_turn(harness, "look", understood("looks"), plan(&[read]));
    finish_records(harness, &rows_result(rows));
    finish_reply(harness, "Well.");
}

/// Returns every reference that was ever assigned to a type, with the id of its record.
fn assigned_references(harness: &SessionHarness, kind: &str) -> BTreeSet<(String, String)> {
    let received = facts(harness, "records_received");
    let rows = received.iter().flat_map(|fact| fact["rows"].as_array().into_iter().flatten());
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    rows.filter(|row| row["type"] == kind).map(|row| (text(row, "ref"), text(row, "id"))).collect()
}

#[test]
fn a26_references_are_stable_and_never_reused() {
    let assigned = |numbers: &[(usize, usize)]| -> BTreeSet<(String, String)> {
        numbers.iter().map(|(reference, record)| (format!("recipe_{reference}"), id("recipe", *record))).collect()
    };
    let mut harness = open();
    read_all(&mut harness, "recipe", &recipes());
    assert_eq!(assigned_references(&harness, "recipe"), assigned(&[(1, 1), (2, 2), (3, 3)]));

    // The records come back in another order, with a new one in front. The user has dropped them before.
    let understood_clear = understood_with("starts over", json!({"drop": ["recipe_3"], "clear": true}));
    start_turn(&mut harness, "something else", understood_clear, proposal("Shall I look again?"));
    finish_reply(&mut harness, "Shall I look again?");
    let soup = recipe(9, "Lentil Soup", &["lentils"]);
    let rows: Vec<Value> = std::iter::once(soup).chain(recipes().into_iter().rev()).collect();
    read_all(&mut harness, "recipe", &rows);
    assert_eq!(assigned_references(&harness, "recipe"), assigned(&[(1, 1), (2, 2), (3, 3), (4, 9)]));

    // The newest record is deleted, and another one is created.
    let steps = plan(&[write_step("delete", "recipe", 1, &["recipe_4"])]);
    start_turn(&mut harness, "delete the soup", understood("deletes"), steps);
    answer_act(&mut harness, tool_call("delete", json!({"refs": ["recipe_4"]})));
    let deleted = json!({"type": "recipe", "id": id("recipe", 9), "label": "Lentil Soup", "before": {"name": "x"}});
    finish_records(&mut harness, &json!({"changes": [deleted]}).to_string());
    answer_act(&mut harness, step_complete("deleted"));
    finish_reply(&mut harness, "It is gone.");
    let rows: Vec<Value> = recipes().into_iter().chain([recipe(10, "Stew", &["beef"])]).collect();
    read_all(&mut harness, "recipe", &rows);
    assert!(assigned_references(&harness, "recipe").contains(&("recipe_5".to_owned(), id("recipe", 10))));

    // So many others follow that the registry forgets all recipes, also the one with the highest number.
    for part in 0..=ENTITIES_MAX.div_ceil(500) {
        let item = |number: usize| {
            let name = format!("jar {number}");
            json!({"type": "inventory", "id": id("inventory", number), "label": name, "fields": {"name": name}})
        };
        let items: Vec<Value> = (part * 500..part * 500 + 500).map(item).collect();
        harness.with_checks_at_end(|harness| read_all(harness, "inventory", &items));
    }
    let is_recipe = |name: &String| name.starts_with("recipe_");
    assert_eq!(flow_state(&harness).entities.entities.keys().filter(|name| is_recipe(name)).count(), 0);
    read_all(&mut harness, "recipe", &[recipe(11, "Toast", &["bread"])]);
    let all = assigned_references(&harness, "recipe");
    assert!(all.contains(&("recipe_6".to_owned(), id("recipe", 11))), "{all:?}");
    let references: BTreeSet<&String> = all.iter().map(|(reference, _)| reference).collect();
    assert_eq!(references.len(), all.len(), "no reference ever meant two records: {all:?}");
}

#[test]
fn a26_numbers_of_drafts_are_never_reused() {
    let mut harness = open();
    let mut write = |said: &str, name: &str, understood: Value| {
        start_turn(&mut harness, said, understood, plan(&[step("generate", "recipe", 1, &[])]));
        let mut end = step_complete("written");
        end["drafts"] = json!([{"type": "recipe", "content": {"name": name, "ingredients": ["leek"]}}]);
        answer_act(&mut harness, end);
        finish_reply(&mut harness, "Here it is.");
        let drafts = flow_state(&harness).entities.entities.clone();
        let live = drafts.iter().filter(|(_, draft)| draft.id.is_none() && !draft.dropped);
        live.map(|(name, draft)| format!("{name} {}", draft.label)).collect::<Vec<_>>()
    };
    assert_eq!(write("make up a soup", "Leek Soup", understood("wants a soup")), ["gen_recipe_1 Leek Soup"]);
    let dropped = understood_with("wants another one", json!({"drop": ["gen_recipe_1"]}));
    assert_eq!(write("no, another one", "Leek Pie", dropped), ["gen_recipe_2 Leek Pie"]);
    let both = write("and one more", "Leek Tart", understood("wants a third one"));
    assert_eq!(both, ["gen_recipe_2 Leek Pie", "gen_recipe_3 Leek Tart"]);
}

#[test]
fn a27_no_real_id_is_in_any_prompt() {
    let mut harness = open();
    read_turn(&mut harness, "what can I cook?");
    start_planned_turn(
        &mut harness,
        "the first",
        understood("chooses"),
        plan(&[step("write", "meal", 1, &["recipe_1"])]),
    );
    answer_act(&mut harness, create_meal("recipe_1"));
    finish_records(&mut harness, &created_meal(1, 1, "Lemon Herb Chicken"));
    answer_act(&mut harness, step_complete("added"));
    finish_reply(&mut harness, "Added.");
    read_turn(&mut harness, "what else?");
    let prompts = harness.rebuild_all_prompts();
    assert!(prompts.len() > 10);
    for (call, prompt) in prompts {
        for message in &*prompt.messages {
            assert!(!message.text().contains("0198c0de"), "{call}: {}", message.text());
        }
    }
    let run = runs(&harness)
        .into_iter()
        .find(|run| tool_request(run).operation.as_str() == "create")
        .expect("it was written");
    assert_eq!(
        tool_request(&run).parameters["records"][0]["recipe"],
        json!(id("recipe", 1)),
        "the records tool gets the id"
    );
}

#[test]
fn a28_draft_survives_turns_and_keeps_its_reference_when_saved() {
    let mut harness = open();
    start_planned_turn(
        &mut harness,
        "make up a soup",
        understood("wants a soup"),
        plan(&[step("generate", "recipe", 1, &[])]),
    );
    let content = json!({"name": "Leek Soup", "minutes": 30, "ingredients": ["leek", "potatoes"]});
    let mut end = step_complete("a soup is written");
    end["drafts"] = json!([{"type": "recipe", "content": content}]);
    answer_act(&mut harness, end);
    assert!(ask_text(&harness, "reply").contains("- Phase: confirming"), "{}", ask_text(&harness, "reply"));
    assert!(ask_text(&harness, "reply").contains("Leek Soup (recipe, not saved yet)"));
    finish_reply(&mut harness, "Leek Soup. Shall I keep it?");
    for said in ["hm", "let me think", "still thinking", "nearly"] {
        talk_turn(&mut harness, said);
    }
    let draft = flow_state(&harness).entities.get("gen_recipe_1").cloned().expect("it is still there");
    assert_eq!((draft.relevance_tier(6), draft.id.is_none()), (EntityRelevanceTier::Draft, true));
    start_planned_turn(
        &mut harness,
        "yes",
        understood("agrees"),
        plan(&[step("write", "recipe", 1, &["gen_recipe_1"])]),
    );
    assert!(ask_text(&harness, "act").contains("\"potatoes\""), "its content is in the prompt");
    answer_act(&mut harness, tool_call("create", json!({"drafts": ["gen_recipe_1"]})));
    let row = json!({"type": "recipe", "id": id("recipe", 40), "label": "Leek Soup", "fields": content});
    finish_records(&mut harness, &json!({"rows": [row], "changes": [{"type": "recipe", "id": id("recipe", 40), "label": "Leek Soup", "after": content}]}).to_string());
    answer_act(&mut harness, step_complete("saved"));
    assert!(ask_text(&harness, "reply").contains("Leek Soup (recipe, saved)"));
    finish_reply(&mut harness, "Saved.");
    let flow_state = flow_state(&harness);
    let saved = flow_state.entities.get("gen_recipe_1").expect("under the same reference");
    assert_eq!(saved.id, Some(id("recipe", 40)));
    assert_eq!(flow_state.entities.find_reference("recipe", &id("recipe", 40)), Some("gen_recipe_1"));
    assert!(flow_state.entities.get("recipe_1").is_none());
}

#[test]
fn a29_proposal_is_pending_for_one_turn() {
    let mut harness = open();
    start_planned_turn(&mut harness, "plan meals", understood("wants a plan"), proposal("Three days, dinners only?"));
    finish_reply(&mut harness, "Three days, dinners only?");
    harness.send_message("yes");
    assert!(
        ask_text(&harness, "understand")
            .contains("The assistant proposed this in turn 1:\n```\nThree days, dinners only?")
    );
    harness.answer_call("understand", &understood_with("agrees", json!({"pending": "accepted"})).to_string());
    let think = ask_text(&harness, "think");
    assert!(
        think.contains("Three days, dinners only?") && think.contains("The open question or proposal was accepted.")
    );
    harness.answer_call("think", &plan(&[step("analyze", "recipe", 1, &[])]).to_string());
    answer_act(&mut harness, step_complete("planned"));
    finish_reply(&mut harness, "Here is the plan.");
    harness.send_message("thanks");
    assert!(!ask_text(&harness, "understand").contains("Waiting for the user's answer"));
}

#[test]
fn a30_blocked_turn_records_the_reason() {
    let mut harness = open();
    let steps = [step("analyze", "recipe", 1, &[]), step("write", "meal", 2, &[])];
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), plan(&steps));
    answer_act(&mut harness, json!({"action": "blocked", "reason": "nothing fits", "next": "loosen the limit"}));
    let ask_text = ask_text(&harness, "reply");
    assert!(ask_text.contains("analyze recipe: could not be done. nothing fits"), "{ask_text}");
    assert!(
        ask_text.contains("write meal: not started")
            && ask_text.contains("What could be done instead: loosen the limit"),
        "{ask_text}"
    );
    finish_reply(&mut harness, "Nothing fits.");
    let summary = &facts(&harness, "turn_summarized")[0]["summary"];
    assert_eq!(summary["blocked_reason"], "nothing fits");
    assert_eq!(summary["steps"][1]["status"], serde_json::Value::Null);
}

#[test]
fn a31_consequences_of_an_answer_are_one_commit() {
    let mut harness = open();
    let give = |harness: &mut segue_testkit::SessionHarness, role: &str, text: String| {
        let (call, attempt) = harness.oldest_open_call(role);
        let reply = ModelReply { text, ..ModelReply::default() };
        let input = SessionInput::Answer { call, attempt, reply, cost_microusd: None, duration_ms: 1 };
        let decision = harness.try_input(input).expect("the call is open");
        decision
            .events
            .iter()
            .map(|recorded| match &recorded.event {
                Event::FlowFactRecorded { kind, .. } => kind.clone(),
                Event::CallOpened(opened) => format!("call {}", opened.role),
                other => {
                    other.summary_line(&|_| String::new()).split_whitespace().next().unwrap_or_default().to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    harness.send_message("hello");
    assert_eq!(
        give(&mut harness, "understand", understood("greets").to_string()),
        "c1, message_understood, call think"
    );
    assert_eq!(give(&mut harness, "think", proposal("What shall we do?").to_string()), "c2, planned, call reply");
    assert_eq!(give(&mut harness, "reply", "What shall we do?".to_owned()), "c3, reply, turn_summarized, t1");
}

#[test]
fn steps_of_a_group_run_together_and_the_next_group_waits() {
    let mut harness = open();
    let steps = [step("analyze", "recipe", 1, &[]), step("analyze", "meal", 1, &[]), step("analyze", "recipe", 2, &[])];
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), plan(&steps));
    assert_eq!(harness.open_call_roles(), ["act", "act"]);
    answer_act(&mut harness, step_complete("recipes are compared"));
    assert_eq!(harness.open_call_roles(), ["act"], "the other one still runs");
    answer_act(&mut harness, step_complete("meals are compared"));
    let ask_text = ask_text(&harness, "act");
    assert!(
        ask_text.contains("Step 1 (analyze recipe): recipes are compared")
            && ask_text.contains("Step 2 (analyze meal)"),
        "{ask_text}"
    );
}

#[test]
fn crash_during_a_turn_loses_nothing_and_repeats_nothing() {
    let mut harness = open();
    start_planned_turn(&mut harness, "plan", understood("wants a plan"), plan(&[step("read", "recipe", 1, &[])]));
    harness.crash_and_recover();
    answer_act(&mut harness, tool_call("read", json!({"type": "recipe"})));
    harness.crash_and_recover();
    finish_records(&mut harness, &rows_result(&recipes()));
    harness.crash_and_recover();
    answer_act(&mut harness, step_complete("read"));
    harness.crash_and_recover();
    finish_reply(&mut harness, "Three.");
    assert_eq!(runs(&harness).len(), 1);
    assert_eq!(calls(&harness, "think").len(), 1);
}
