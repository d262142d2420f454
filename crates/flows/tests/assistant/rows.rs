//! The checklist, row by row. Rows about operators and labels stand beside the code they are about.

use segue_core::context::ContextLayer;
use segue_core::decide::{OperatorCommand, SessionInput};
use segue_core::event::{Event, TurnResult};
use segue_core::prompt::{FailureKind, ModelReply};
use segue_flows::assistant::registry::RelevanceTier;
use serde_json::json;

use super::play::*;

#[test]
fn a02_each_node_is_shown_its_own_slice_of_the_layers() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    read_turn(&mut stage, "and else?");
    let last = |role: &str| calls(&stage, role).into_iter().rev().find(|call| call.ask == *"go").expect("it was asked");
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
        layers("understand").contains(&ContextLayer::Entities) && layers("think").contains(&ContextLayer::Reasoning)
    );
    assert!(!layers("act").contains(&ContextLayer::Conversation), "Act is not told what was said");
}

#[test]
fn a04_think_sees_references_and_labels_and_no_record() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    stage.send_message("and now?").answer_call("understand", &heard("goes on").to_string());
    let asked = asked(&stage, "think");
    assert!(asked.contains("- recipe_3 (recipe, active, detail full): Baked Cod"), "{asked}");
    for inside in ["tomatoes", "minutes", "spaghetti"] {
        assert!(!asked.contains(inside), "{inside} is part of a record: {asked}");
    }
}

#[test]
fn a05_think_is_told_what_is_loaded_and_not_to_be_read_again() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    stage.send_message("and now?").answer_call("understand", &heard("goes on").to_string());
    let opened = calls(&stage, "think").pop().expect("it was asked");
    let loaded = fragment(&stage, &opened, "loaded").expect("something is loaded");
    assert!(loaded.starts_with("## Loaded already: do not read again"), "{loaded}");
    for line in ["- recipe_1: Lemon Herb Chicken", "- recipe_2: Garlic Pasta", "- everything of type recipe was read"] {
        assert!(loaded.contains(line), "{loaded}");
    }
    assert!(loaded.ends_with("Plan no read step for them."), "{loaded}");
}

#[test]
fn a06_think_sees_what_was_kept_and_set_aside_in_this_turn() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let heard = heard_with(
        "no cod",
        json!({"retain": [{"ref": "recipe_1", "reason": "they like it"}], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}),
    );
    stage.send_message("no cod").answer_call("understand", &heard.to_string());
    let asked = asked(&stage, "think");
    assert!(asked.contains("Kept: recipe_1 (they like it)"), "{asked}");
    assert!(asked.contains("Set aside: recipe_3 (no cod)"), "{asked}");
}

#[test]
fn a07_a12_think_sees_the_last_two_turns_in_full_and_no_more() {
    let mut stage = open();
    for said in ["one", "two", "three"] {
        read_turn(&mut stage, said);
    }
    stage.send_message("four").answer_call("understand", &heard("goes on").to_string());
    let opened = calls(&stage, "think").pop().expect("it was asked");
    let reasoning = fragment(&stage, &opened, "reasoning").expect("there is a past");
    for turn in ["Turn 2 (exploring)", "Turn 3 (exploring)", "step 1 (read recipe), done: found three recipes"] {
        assert!(reasoning.contains(turn), "{reasoning}");
    }
    assert!(!reasoning.contains("Turn 1"), "{reasoning}");
    assert!(reasoning.contains("in short: they want dinner"), "{reasoning}");
    let memory = memory(&stage);
    assert_eq!(memory.reasoning.recent.iter().map(|summary| summary.turn).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a08_act_is_shown_entities_in_every_kind_of_step() {
    for kind in ["read", "analyze", "generate", "write"] {
        let mut stage = open();
        read_turn(&mut stage, "what can I cook?");
        let heard = heard_with("no cod", json!({"demote": [{"ref": "recipe_3", "reason": "no cod"}]}));
        decided(&mut stage, "no cod", heard, plan(&[step(kind, "recipe", 1, &[])]));
        let asked = asked(&stage, "act");
        assert!(asked.contains(r#"{"ref":"recipe_1","#) && asked.contains("\"garlic\""), "{kind}: {asked}");
        assert!(!asked.contains("tomatoes"), "{kind}: what was set aside is only named: {asked}");
        assert!(asked.contains("- recipe_3 (recipe, demoted): Baked Cod; no cod"), "{kind}: {asked}");
    }
}

#[test]
fn a08_act_gets_the_full_records_of_the_references_of_its_step() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let steps = [step("analyze", "recipe", 1, &["recipe_2"])];
    decided(&mut stage, "tell me about the second", heard("asks"), plan(&steps));
    let opened = calls(&stage, "act").pop().expect("it was asked");
    let records = fragment(&stage, &opened, "records").expect("there are some");
    assert!(records.contains("\"recipe_2\"") && records.contains("spaghetti"), "{records}");
    assert!(!records.contains("recipe_1"), "{records}");
}

#[test]
fn a09_reply_is_told_turn_phase_expression_and_its_last_words() {
    let mut stage = open();
    talk_turn(&mut stage, "help me plan meals");
    let steps = [step("analyze", "recipe", 1, &[])];
    decided(&mut stage, "no cod this week", heard("no cod this week"), plan(&steps));
    act(&mut stage, done("two are left"));
    let asked = asked(&stage, "reply");
    for line in [
        "- Turn: 2 of a conversation that is under way",
        "- Phase: narrowing (choices are being made)",
        "- The person expressed: no cod this week",
        "- Your last reply: Shall I?",
    ] {
        assert!(asked.contains(line), "{asked}");
    }
}

#[test]
fn a10_from_the_second_turn_on_reply_is_told_not_to_greet() {
    let mut stage = open();
    decided(&mut stage, "hello", heard("says hello"), propose("What shall we do?"));
    assert!(!asked(&stage, "reply").contains("greet"), "the first turn may greet");
    replied(&mut stage, "Hello! What shall we do?");
    decided(&mut stage, "plan", heard("wants a plan"), propose("For how long?"));
    let asked = asked(&stage, "reply");
    assert!(asked.contains("greet (\"Hello!\", \"Hi there!\") in the middle of a conversation"), "{asked}");
    assert!(asked.contains("introduce yourself again") && asked.contains("That leaves"), "{asked}");
}

#[test]
fn a11_a_turn_leaves_one_summary() {
    let mut stage = open();
    read_turn(&mut stage, "one");
    talk_turn(&mut stage, "two");
    stage.send_message("three").fail_call("understand", FailureKind::InvalidApiKey);
    stage.send_message("four").run_command(OperatorCommand::Cancel);
    let summaries = facts(&stage, "summarized");
    let turns: Vec<_> = summaries.iter().map(|summary| summary["summary"]["turn"].as_u64()).collect();
    assert_eq!(turns, [Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(summaries[0]["summary"]["decision"], "plan_direct");
    assert_eq!(summaries[1]["summary"]["decision"], "propose");
    assert_eq!(summaries[3]["summary"]["blocked_reason"], "it was stopped by hand");
}

#[test]
fn a13_older_summaries_are_folded_by_a_model_into_one_text() {
    let mut stage = open();
    for said in ["one", "two"] {
        talk_turn(&mut stage, said);
    }
    assert!(calls(&stage, "summarize").is_empty(), "two summaries stay as they are");
    decided(&mut stage, "three", heard("talks"), propose("Well?"));
    stage.answer_call("reply", "Well?");
    let older = asked(&stage, "summarize");
    assert!(older.contains("Turn 1 (exploring): the person expressed: talks"), "{older}");
    assert!(!older.contains("Turn 2") && !older.contains("Summary so far"), "{older}");
    stage.answer_call("summarize", "They talked once.");
    assert!(stage.session().is_idle());
    decided(&mut stage, "four", heard("talks"), propose("Well?"));
    stage.answer_call("reply", "Well?");
    let older = asked(&stage, "summarize");
    assert!(older.starts_with("Summary so far:\nThey talked once.\n\nTurns after that:\n\nTurn 2"), "{older}");
}

#[test]
fn a14_a_folding_that_fails_keeps_what_stood_and_the_turn_succeeds() {
    let mut stage = open();
    for said in ["one", "two", "three"] {
        talk_turn(&mut stage, said);
    }
    let before = memory(&stage).reasoning.compacted.expect("the first turn was folded");
    decided(&mut stage, "four", heard("talks"), propose("Well?"));
    stage.answer_call("reply", "Well?").fail_call("summarize", FailureKind::Refused);
    let ended = stage.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::TurnEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(ended, Some(TurnResult::Done));
    assert_eq!(memory(&stage).reasoning.compacted, Some(before));
    assert_eq!(facts(&stage, "not_folded").len(), 1);
    // An empty text is no summary either; and what was not folded is folded the next time.
    decided(&mut stage, "five", heard("talks"), propose("Well?"));
    stage.answer_call("reply", "Well?").answer_call("summarize", "  ");
    assert_eq!(memory(&stage).reasoning.compacted, Some(before));
    decided(&mut stage, "six", heard("talks"), propose("Well?"));
    stage.answer_call("reply", "Well?");
    let older = asked(&stage, "summarize");
    assert!(older.contains("Turn 2") && older.contains("Turn 3") && older.contains("Turn 4"), "{older}");
}

#[test]
fn a17_a_step_summary_has_type_subdomain_outcome_references_and_note() {
    let mut stage = open();
    let steps = [step("read", "recipe", 1, &[])];
    decided(&mut stage, "what can I cook?", heard("wants recipes"), plan(&steps));
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    host(&mut stage, &found(&recipes()));
    let mut end = done("found three");
    end["refs"] = json!(["recipe_1", "recipe_2"]);
    end["note_for_next_step"] = json!("the first is quick");
    act(&mut stage, end);
    replied(&mut stage, "Three.");
    let summary = &facts(&stage, "summarized")[0]["summary"]["steps"][0];
    assert_eq!(
        *summary,
        json!({"step": 1, "type": "read", "subdomain": "recipe", "end": "done", "outcome": "found three",
            "refs": ["recipe_1", "recipe_2"], "note": "the first is quick"})
    );
}

#[test]
fn a18_a_note_reaches_the_next_step_and_the_summary() {
    let mut stage = open();
    let steps = [step("read", "recipe", 1, &[]), step("analyze", "recipe", 2, &[]), step("analyze", "recipe", 3, &[])];
    decided(&mut stage, "what can I cook?", heard("wants recipes"), plan(&steps));
    let mut end = done("nothing was needed");
    end["note_for_next_step"] = json!("mind the allergy");
    act(&mut stage, end);
    assert!(asked(&stage, "act").contains("Note from step 1: mind the allergy"));
    act(&mut stage, done("chosen"));
    assert!(!asked(&stage, "act").contains("mind the allergy"), "it is for the next step");
    act(&mut stage, done("weighed"));
    replied(&mut stage, "Done.");
    assert_eq!(facts(&stage, "summarized")[0]["summary"]["steps"][0]["note"], "mind the allergy");
}

#[test]
fn a19_a_question_from_an_analysis_brings_what_was_found_so_far() {
    let mut stage = open();
    decided(&mut stage, "plan", heard("wants a plan"), plan(&[step("analyze", "recipe", 1, &[])]));
    act(&mut stage, json!({"action": "ask_user", "question": "Chicken or cod first?"}));
    assert!(asked(&stage, "act").contains("needs `partial`"));
    act(
        &mut stage,
        json!({"action": "ask_user", "question": "Chicken or cod first?",
        "data": {"partial_analysis": {"viable_recipes": 6, "expiring": ["chicken", "cod"]}}}),
    );
    let asked = asked(&stage, "reply");
    assert!(asked.contains("Ask them: Chicken or cod first?") && asked.contains("\"viable_recipes\":6"), "{asked}");
    replied(&mut stage, "Six fit. Chicken or cod first?");
    stage.send_message("chicken");
    let understand = shown(&stage, "understand");
    assert!(understand.contains("Chicken or cod first?") && understand.contains("viable_recipes"), "{understand}");
}

#[test]
fn a19_an_analysis_that_will_not_say_what_it_found_is_asked_once_and_then_spoken_for() {
    let mut stage = open();
    let steps = [step("read", "recipe", 1, &[]), step("analyze", "recipe", 2, &[])];
    decided(&mut stage, "plan", heard("wants a plan"), plan(&steps));
    act(&mut stage, done("found eight"));
    for _ in 0..2 {
        act(&mut stage, json!({"action": "ask_user", "question": "Which?"}));
    }
    let end = facts(&stage, "step_ended").pop().expect("it ended");
    assert_eq!((&end["end"], &end["partial"]), (&json!("asked"), &json!({"so_far": ["found eight"]})));
}

#[test]
fn a22_what_is_demoted_leaves_the_active_set_at_once_and_stays_out_until_it_is_referred_to() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let tier = |stage: &segue_testkit::SessionHarness| {
        let memory = memory(stage);
        memory.entities.get("recipe_3").map(|entity| entity.tier(memory.current_turn_number()))
    };
    assert_eq!(tier(&stage), Some(RelevanceTier::Active));
    let heard_no =
        heard_with("no cod", json!({"references": ["recipe_3"], "demote": [{"ref": "recipe_3", "reason": "no cod"}]}));
    stage.send_message("no cod").answer_call("understand", &heard_no.to_string());
    assert_eq!(tier(&stage), Some(RelevanceTier::Demoted), "in the same turn, although it was just referred to");
    assert!(!asked(&stage, "think").contains("- recipe_3 (recipe, active"));
    stage.answer_call("think", &plan(&[step("read", "recipe", 1, &[])]).to_string());
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    host(&mut stage, &found(&recipes()));
    assert_eq!(
        tier(&stage),
        Some(RelevanceTier::Demoted),
        "that it stands among others that were read brings it not back"
    );
    act(&mut stage, done("read"));
    replied(&mut stage, "Well.");
    stage
        .send_message("cod after all")
        .answer_call("understand", &heard_with("wants cod", json!({"references": ["recipe_3"]})).to_string());
    assert_eq!(tier(&stage), Some(RelevanceTier::Active));
}

#[test]
fn a25_without_narratives_there_is_no_third_layer_and_all_else_is_the_same() {
    let layouts = |settings: serde_json::Value| {
        let mut stage = open_set(settings);
        for said in ["one", "two", "three", "four"] {
            read_turn(&mut stage, said);
        }
        let stage_calls = |role: &str| calls(&stage, role).iter().map(layout).collect::<Vec<_>>();
        let prompts: Vec<String> =
            ["act", "reply"].iter().flat_map(|role| calls(&stage, role)).map(|call| sent(&stage, call.call)).collect();
        (NODES.map(stage_calls), prompts, facts(&stage, "summarized"), stage.last_reply())
    };
    let (on, on_prompts, _, on_said) = layouts(json!({}));
    let (off, off_prompts, summarized, off_said) = layouts(json!({"turn_narratives": false}));
    assert!(summarized.iter().all(|fact| fact.get("summary").is_none() && fact.get("reply").is_some()));
    assert!(off[4].is_empty() && on[4].len() == 2, "nothing is folded");
    let without = |layouts: &[String]| {
        layouts.iter().map(|layout| layout.replace(" decisions", "").replace(" reasoning", "")).collect::<Vec<_>>()
    };
    for place in 0..4 {
        assert_eq!(without(&on[place]), off[place]);
    }
    assert_eq!((on_prompts, on_said), (off_prompts, off_said), "those without a part in that layer see the same");
}

#[test]
fn a26_references_are_stable_and_their_numbers_are_never_given_again() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    let heard = heard_with("start over", json!({"drop": ["recipe_3"], "clear": true}));
    decided(&mut stage, "something else", heard, plan(&[step("read", "recipe", 1, &[])]));
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    let mut rows = recipes();
    rows.reverse();
    rows.push(recipe(9, "Lentil Soup", &["lentils"]));
    host(&mut stage, &found(&rows));
    let memory = memory(&stage);
    for (reference, label) in [
        ("recipe_1", "Lemon Herb Chicken"),
        ("recipe_2", "Garlic Pasta"),
        ("recipe_3", "Baked Cod"),
        ("recipe_4", "Lentil Soup"),
    ] {
        assert_eq!(memory.entities.get(reference).map(|entity| entity.label.as_str()), Some(label));
    }
    assert_eq!(memory.entities.get("recipe_4").and_then(|entity| entity.id.clone()), Some(id("recipe", 9)));
}

#[test]
fn a27_no_real_id_is_in_any_prompt() {
    let mut stage = open();
    read_turn(&mut stage, "what can I cook?");
    decided(&mut stage, "the first", heard("chooses"), plan(&[step("write", "meal", 1, &["recipe_1"])]));
    act(&mut stage, meal("recipe_1"));
    host(&mut stage, &created(1, 1, "Lemon Herb Chicken"));
    act(&mut stage, done("added"));
    replied(&mut stage, "Added.");
    read_turn(&mut stage, "what else?");
    let prompts = stage.rebuild_all_prompts();
    assert!(prompts.len() > 10);
    for (call, prompt) in prompts {
        for message in &*prompt.messages {
            assert!(!message.text().contains("0198c0de"), "{call}: {}", message.text());
        }
    }
    let run = runs(&stage).into_iter().find(|run| told(run).operation.as_str() == "create").expect("it was written");
    assert_eq!(told(&run).parameters["records"][0]["recipe"], json!(id("recipe", 1)), "the host is told the id");
}

#[test]
fn a28_a_draft_lives_through_turns_and_is_promoted_in_place_when_it_is_saved() {
    let mut stage = open();
    decided(&mut stage, "make up a soup", heard("wants a soup"), plan(&[step("generate", "recipe", 1, &[])]));
    let content = json!({"name": "Leek Soup", "minutes": 30, "ingredients": ["leek", "potatoes"]});
    let mut end = done("a soup is written");
    end["drafts"] = json!([{"type": "recipe", "content": content}]);
    act(&mut stage, end);
    assert!(asked(&stage, "reply").contains("- Phase: confirming"), "{}", asked(&stage, "reply"));
    assert!(asked(&stage, "reply").contains("Leek Soup (recipe, not saved yet)"));
    replied(&mut stage, "Leek Soup. Shall I keep it?");
    for said in ["hm", "let me think", "still thinking", "nearly"] {
        talk_turn(&mut stage, said);
    }
    let draft = memory(&stage).entities.get("gen_recipe_1").cloned().expect("it is still there");
    assert_eq!((draft.tier(6), draft.id.is_none()), (RelevanceTier::Draft, true));
    decided(&mut stage, "yes", heard("agrees"), plan(&[step("write", "recipe", 1, &["gen_recipe_1"])]));
    assert!(asked(&stage, "act").contains("\"potatoes\""), "its content is at hand");
    act(&mut stage, tool("create", json!({"drafts": ["gen_recipe_1"]})));
    let row = json!({"type": "recipe", "id": id("recipe", 40), "label": "Leek Soup", "fields": content});
    host(&mut stage, &json!({"rows": [row], "changes": [{"type": "recipe", "id": id("recipe", 40), "label": "Leek Soup", "after": content}]}).to_string());
    act(&mut stage, done("saved"));
    assert!(asked(&stage, "reply").contains("Leek Soup (recipe, saved)"));
    replied(&mut stage, "Saved.");
    let memory = memory(&stage);
    let saved = memory.entities.get("gen_recipe_1").expect("under the same reference");
    assert_eq!(saved.id, Some(id("recipe", 40)));
    assert_eq!(memory.entities.find_reference("recipe", &id("recipe", 40)), Some("gen_recipe_1"));
    assert!(memory.entities.get("recipe_1").is_none());
}

#[test]
fn a29_a_proposal_is_seen_in_the_next_turn_and_then_cleared() {
    let mut stage = open();
    decided(&mut stage, "plan meals", heard("wants a plan"), propose("Three days, dinners only?"));
    replied(&mut stage, "Three days, dinners only?");
    stage.send_message("yes");
    assert!(asked(&stage, "understand").contains("This was proposed in turn 1:\n```\nThree days, dinners only?"));
    stage.answer_call("understand", &heard_with("agrees", json!({"pending": "accepted"})).to_string());
    let think = asked(&stage, "think");
    assert!(think.contains("Three days, dinners only?") && think.contains("What waited for an answer was accepted."));
    stage.answer_call("think", &plan(&[step("analyze", "recipe", 1, &[])]).to_string());
    act(&mut stage, done("planned"));
    replied(&mut stage, "Here is the plan.");
    stage.send_message("thanks");
    assert!(!asked(&stage, "understand").contains("waits for the person's answer"));
}

#[test]
fn a30_a_turn_that_was_blocked_records_why() {
    let mut stage = open();
    let steps = [step("analyze", "recipe", 1, &[]), step("write", "meal", 2, &[])];
    decided(&mut stage, "plan", heard("wants a plan"), plan(&steps));
    act(&mut stage, json!({"action": "blocked", "reason": "nothing fits", "next": "loosen the limit"}));
    let asked = asked(&stage, "reply");
    assert!(asked.contains("analyze recipe: could not be done. nothing fits"), "{asked}");
    assert!(
        asked.contains("write meal: not begun") && asked.contains("What could be done: loosen the limit"),
        "{asked}"
    );
    replied(&mut stage, "Nothing fits.");
    let summary = &facts(&stage, "summarized")[0]["summary"];
    assert_eq!(summary["blocked_reason"], "nothing fits");
    assert_eq!(summary["steps"][1]["end"], serde_json::Value::Null);
}

#[test]
fn a31_what_an_answer_leads_to_is_one_commit() {
    let mut stage = open();
    let give = |stage: &mut segue_testkit::SessionHarness, role: &str, text: String| {
        let (call, attempt) = stage.oldest_open_call(role);
        let reply = ModelReply { text, ..ModelReply::default() };
        let input = SessionInput::Answer { call, attempt, reply, cost_microusd: None, duration_ms: 1 };
        let decision = stage.try_input(input).expect("it is owed");
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
    stage.send_message("hello");
    assert_eq!(give(&mut stage, "understand", heard("greets").to_string()), "c1, understood, call think");
    assert_eq!(give(&mut stage, "think", propose("What shall we do?").to_string()), "c2, planned, call reply");
    assert_eq!(give(&mut stage, "reply", "What shall we do?".to_owned()), "c3, said, summarized, t1");
}

#[test]
fn steps_of_a_group_run_at_the_same_time_and_the_next_group_waits_for_all() {
    let mut stage = open();
    let steps = [step("read", "recipe", 1, &[]), step("read", "inventory", 1, &[]), step("analyze", "recipe", 2, &[])];
    decided(&mut stage, "plan", heard("wants a plan"), plan(&steps));
    assert_eq!(stage.open_call_roles(), ["act", "act"]);
    act(&mut stage, done("recipes are read"));
    assert_eq!(stage.open_call_roles(), ["act"], "the other one still runs");
    act(&mut stage, done("the store is read"));
    let asked = asked(&stage, "act");
    assert!(
        asked.contains("Step 1 (read recipe): recipes are read") && asked.contains("Step 2 (read inventory)"),
        "{asked}"
    );
}

#[test]
fn a_crash_anywhere_in_a_turn_loses_nothing_and_asks_nothing_twice() {
    let mut stage = open();
    decided(&mut stage, "plan", heard("wants a plan"), plan(&[step("read", "recipe", 1, &[])]));
    stage.crash_and_recover();
    act(&mut stage, tool("read", json!({"type": "recipe"})));
    stage.crash_and_recover();
    host(&mut stage, &found(&recipes()));
    stage.crash_and_recover();
    act(&mut stage, done("read"));
    stage.crash_and_recover();
    replied(&mut stage, "Three.");
    assert_eq!(runs(&stage).len(), 1);
    assert_eq!(calls(&stage, "think").len(), 1);
}
