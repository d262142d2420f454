//! The architect's contexts: one for each assignment, none of them shared.

use segue_core::decide::OperatorCommand;
use serde_json::json;

use crate::support::{APPROVED, TestTeam, spec, story_json};

const NEEDS_CHANGES: &str = r#"{"verdict": "NEEDS_CHANGES", "feedback": "Use a monotonic clock."}"#;

#[test]
fn m01_each_agent_has_one_context_created_on_first_use() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    team.answer_coder("coder-1", "plan a");
    let first = team.architect_call("coder-1");
    assert!(team.opened_thread(first));
    team.answer_coder("coder-2", "plan b");
    assert!(team.opened_thread(team.architect_call("coder-2")));
    team.answer_architect("coder-1", NEEDS_CHANGES).answer_coder("coder-1", "plan a again");
    assert!(!team.opened_thread(team.architect_call("coder-1")), "the second use continues the context");
}

#[test]
fn m02_two_first_requests_at_once_create_one_context() {
    // A coder has one request at a time, so two first uses can only come from one request that is repeated: the answer is
    // invalid and asked for again, and the process dies in between.
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan");
    team.harness.crash_and_recover();
    team.answer_architect("coder-1", "I like it.");
    team.harness.crash_and_recover();
    team.answer_architect("coder-1", APPROVED);
    let opened = team
        .architect_calls()
        .iter()
        .filter(|call| call.peer.as_ref().is_some_and(|peer| *peer == *"coder-1"))
        .filter(|call| team.opened_thread(call.call))
        .count();
    assert_eq!(opened, 1);
}

#[test]
fn m03_contexts_of_two_agents_share_no_messages() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    team.answer_coder("coder-1", "plan-of-one").answer_coder("coder-2", "plan-of-two");
    let (one, two) = (team.prompt(team.architect_call("coder-1")), team.prompt(team.architect_call("coder-2")));
    assert!(one.contains("plan-of-one") && one.contains("secret-of-a"), "{one}");
    assert!(!one.contains("plan-of-two") && !one.contains("secret-of-b"));
    assert!(two.contains("plan-of-two") && !two.contains("plan-of-one") && !two.contains("secret-of-a"));
}

#[test]
fn m04_second_review_sees_the_first() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan one").answer_architect("coder-1", NEEDS_CHANGES);
    assert_eq!(team.phase("coder-1"), "PLANNING");
    team.answer_coder("coder-1", "plan two");
    let second = team.architect_call("coder-1");
    let prompt = team.prompt(second);
    assert!(prompt.contains("plan one") && prompt.contains("Use a monotonic clock.") && prompt.contains("plan two"));
    let receipt = team.architect_calls().pop().expect("there are calls").receipt;
    assert!(receipt.carried.entries >= 2, "the receipt proves it");
}

#[test]
fn m05_m06_next_story_resets_the_context_without_any_notification() {
    let mut team = TestTeam::start(1, &[story_json("a", &[]), story_json("b", &["a"])]);
    team.finish_story("coder-1");
    assert_eq!(team.story_of("coder-1").as_deref(), Some("b"), "{}", team.describe());
    team.answer_coder("coder-1", "plan b");
    let call = team.architect_call("coder-1");
    assert!(team.opened_thread(call));
    assert!(!team.prompt(call).contains("secret-of-a"), "nothing of the first story is left");
    assert!(team.phases("coder-1").windows(2).any(|pair| pair == ["WAITING", "SETUP"]));
}

#[test]
fn m07_same_story_keeps_its_context_through_all_phases() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.finish_story("coder-1");
    let calls = team.architect_calls();
    let own: Vec<_> = calls.iter().filter(|call| call.peer.as_ref().is_some_and(|peer| *peer == *"coder-1")).collect();
    assert_eq!(own.iter().filter(|call| team.opened_thread(call.call)).count(), 1);
    assert!(own.len() >= 2);
}

#[test]
fn m08_reset_and_age_limit_reopen_with_the_verdicts_so_far() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan one").answer_architect("coder-1", NEEDS_CHANGES);
    team.command("reset_context", json!({"agent": "coder-1"}));
    team.answer_coder("coder-1", "plan two");
    let call = team.architect_call("coder-1");
    assert!(team.opened_thread(call));
    let prompt = team.prompt(call);
    assert!(prompt.contains("Use a monotonic clock.") && !prompt.contains("plan one"), "{prompt}");
    assert!(team.refused_command("reset_context", json!({"agent": "nobody"})).contains("`coder-1`"));

    let settings = json!({"spec": spec(), "coders": 1, "context_age_minutes": 5});
    let mut team = TestTeam::start_with(settings, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan one").answer_architect("coder-1", NEEDS_CHANGES);
    team.harness.advance_clock(4 * 60_000);
    team.answer_coder("coder-1", "plan two").answer_architect("coder-1", NEEDS_CHANGES);
    assert!(!team.opened_thread(team.architect_calls().pop().expect("there are calls").call));
    team.harness.advance_clock(6 * 60_000);
    team.answer_coder("coder-1", "plan three");
    assert!(team.opened_thread(team.architect_call("coder-1")));
}

#[test]
fn m08_operator_can_reset_the_context_too() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan one").answer_architect("coder-1", NEEDS_CHANGES);
    team.harness.run_command(OperatorCommand::Forget {
        role: "architect".into(),
        agent: None,
        peer: Some("coder-1".into()),
    });
    team.answer_coder("coder-1", "plan two");
    assert!(team.opened_thread(team.architect_call("coder-1")));
}

#[test]
fn m09_contexts_with_the_product_manager_survive_specs() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.finish_story("coder-1");
    assert_eq!(team.phase("architect"), "WAITING", "{}", team.describe());
    team.harness.send_message("Now a kettle.");
    let answer =
        json!({"say": "Sure.", "spec": {"title": "Kettle", "goal": "g", "requirements": ["r"], "acceptance": ["x"]}});
    team.harness.answer_call("product_manager", &answer.to_string());
    team.command("start", json!({})).finish_tools();
    let prompt = team.prompt(team.architect_call("pm"));
    assert!(prompt.contains("Tea timer") && prompt.contains("Kettle"), "the architect remembers the first spec");
    team.harness.send_message("And?");
    let prompt = team.harness.prompt_lines("product_manager");
    assert!(prompt.contains("Now a kettle."), "the product manager remembers, too");
}

#[test]
fn m10_assignment_decides_the_story_not_the_message() {
    // A coder that talks about another story in its plan is still reviewed in the context of its own.
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    team.answer_coder("coder-1", r#"{"story": "b", "plan": "I work on b#1.1"}"#);
    let prompt = team.prompt(team.architect_call("coder-1"));
    assert!(prompt.contains("secret-of-a") && !prompt.contains("secret-of-b"), "{prompt}");
}

#[test]
fn m11_system_prompt_holds_agent_story_spec_pack_and_role() {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1}));
    team.knowledge_file = Some(
        r#"digraph { "secret-of-a" [type=rule, level=architecture, priority=high, description="Known before."] }"#
            .to_owned(),
    );
    team.instructions = Some("Indent with tabs.".to_owned());
    team.begin(&[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan");
    let call = team.architect_call("coder-1");
    let receipt = team.architect_calls().into_iter().find(|opened| opened.call == call).expect("it is open").receipt;
    let names: Vec<String> =
        receipt.opening.iter().filter(|part| part.text.is_some()).map(|part| part.name.to_string()).collect();
    assert_eq!(names, ["role", "spec", "project_instructions", "story", "knowledge"]);
    let system = team.prompt(call);
    for part in ["talking to coder-1", "secret-of-a", "People drink better tea.", "Known before.", "Indent with tabs."]
    {
        assert!(system.contains(part), "{part} is missing in {system}");
    }
}

#[test]
fn m12_m13_every_request_is_a_short_message_in_the_same_context() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "<<<QUESTION>>>\nWhich clock?\n<<<END>>>");
    assert_eq!(team.phase("coder-1"), "QUESTION");
    team.answer_architect("coder-1", "The monotonic one.");
    assert_eq!(team.phase("coder-1"), "PLANNING");
    let coder_prompt = team.prompt(team.coder_call("coder-1"));
    assert!(coder_prompt.contains("The monotonic one."), "{coder_prompt}");
    team.finish_story("coder-1");
    let calls = team.architect_calls();
    let requests: Vec<_> =
        calls.iter().filter(|call| call.peer.as_ref().is_some_and(|peer| *peer == *"coder-1")).collect();
    assert_eq!(requests.len(), 3, "a question, a plan and a change");
    for call in &requests[1..] {
        assert!(call.receipt.opening.is_empty(), "the story is not sent again");
        assert_eq!(call.receipt.ask.len(), 1);
    }
    let last = team.prompt(requests[2].call);
    assert!(last.contains("Which clock?") && last.contains("the plan") && last.contains("+one"));
}

/// Answers the calls that compact a thread. Returns true if there were any.
fn summarise(team: &mut TestTeam) -> bool {
    let mut any = false;
    while team.harness.open_call_roles().iter().any(|role| role == "summariser") {
        team.harness.answer_call("summariser", "summary-of-the-reviews");
        any = true;
    }
    any
}

#[test]
fn m15_m16_m17_long_context_is_compacted_and_keeps_its_system_prompt() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.harness.set_window(12_000);
    let mut compacted = false;
    for round in 0..5 {
        compacted |= summarise(&mut team);
        team.answer_coder("coder-1", &format!("plan {round} {}", "word ".repeat(1_500)));
        compacted |= summarise(&mut team);
        let call = team.architect_call("coder-1");
        // A tool call and its result stay together through it all.
        team.answer_with_tool(call, "read_file", json!({"path": "a.txt"}))
            .end_model_tool("read_file", &"line ".repeat(300));
        compacted |= summarise(&mut team);
        let prompt = team.harness.prompt_for_call(team.architect_call("coder-1"));
        let results: Vec<&String> =
            prompt.messages.iter().filter_map(|message| message.tool_call_id.as_ref()).collect();
        let calls: Vec<&String> =
            prompt.messages.iter().flat_map(|message| &message.tool_calls).map(|call| &call.id).collect();
        assert_eq!(results, calls, "no call is parted from its result");
        assert!(prompt.messages[0].text().contains("secret-of-a"), "the system prompt is kept");
        team.answer_architect("coder-1", NEEDS_CHANGES);
    }
    assert!(compacted, "the window was too small for everything");
    summarise(&mut team);
    team.answer_coder("coder-1", "a last plan");
    summarise(&mut team);
    assert!(team.prompt(team.architect_call("coder-1")).contains("summary-of-the-reviews"));
}

#[test]
fn m26_single_context_reproduces_the_contradiction_and_the_default_does_not() {
    let second_review = |contexts: &str| {
        let settings = json!({"spec": spec(), "coders": 1, "contexts": contexts});
        let mut team = TestTeam::start_with(settings, &[story_json("a", &[])]);
        team.answer_coder("coder-1", "plan with a wall clock").answer_architect("coder-1", NEEDS_CHANGES);
        team.answer_coder("coder-1", "plan with a monotonic clock");
        let call = team.architect_call("coder-1");
        let opened = team.architect_calls().pop().expect("there are calls");
        let own_words = team.harness.rebuild_prompt(call).messages.iter().any(|message| {
            message.chat_role == segue_core::prompt::ChatRole::Assistant
                && message.text().contains("Use a monotonic clock.")
        });
        (own_words, opened.receipt.carried.entries)
    };
    assert_eq!(second_review("single"), (false, 0), "the architect has forgotten what it asked for");
    let (saw_own_words, carried) = second_review("per_assignment");
    assert!(saw_own_words && carried >= 2);
}

#[test]
fn m36_choosing_a_thread_costs_the_same_after_many_stories() {
    // What is looked up does not grow: one thread for each agent that the architect talks to, and one for each coder.
    let stories: Vec<_> = (0..30)
        .map(|index: u32| {
            let before: Vec<String> = index.checked_sub(1).map(|before| format!("s{before}")).into_iter().collect();
            story_json(&format!("s{index}"), &before.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    let mut team = TestTeam::start(1, &stories);
    let mut sizes = Vec::new();
    for _ in 0..30 {
        team.finish_story("coder-1");
        sizes.push((team.harness.session().threads.len(), team.harness.session().thread_by_slot.len()));
    }
    assert_eq!(sizes.first(), sizes.last());
    assert_eq!(team.merged.len(), 30, "{}", team.describe());
}
