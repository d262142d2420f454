//! Many stories over several coders, interleaved at random, with restarts: no context contains another assignment's text.

use std::collections::BTreeMap;

use segue_core::ids::{CallId, ThreadId};
use segue_core::prompt::ModelReply;
use serde_json::{Value, json};

use segue_flows::team::TeamFlow;
use segue_testkit::SessionHarness;

use crate::support::{TestTeam, spec};

/// A small generator of random numbers, so that a failure can be repeated.
struct TestRandom(u64);

impl TestRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn stories(round: usize) -> Vec<Value> {
    let story = |index: usize| {
        let id = format!("r{round}s{index}");
        // Some stories depend on an earlier one.
        let depends_on: Vec<String> = if index % 4 == 3 { vec![format!("r{round}s{}", index - 1)] } else { Vec::new() };
        json!({"id": id, "title": id, "description": format!("token-{id}-end"), "acceptance": ["works"],
            "files": [format!("{id}.txt")], "depends_on": depends_on})
    };
    (0..50).map(story).collect()
}

/// Returns the story of a call, by its work item.
fn story_of_work(work: &Value) -> Option<String> {
    Some(work.as_str()?.split('#').next()?.to_owned())
}

#[test]
fn m03_no_prompt_contains_the_text_of_another_assignment() {
    let mut random = TestRandom(42);
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 5}));
    // The invariants are checked once at the end, because there are thousands of inputs.
    let harness = std::mem::replace(&mut team.harness, SessionHarness::open(TeamFlow::new()));
    let mut played = TestTeam { harness, ..team };
    let mut checked = SessionHarness::open(TeamFlow::new());
    std::mem::swap(&mut checked, &mut played.harness);
    checked.with_checks_at_end(|harness| {
        std::mem::swap(harness, &mut played.harness);
        for round in 0..4 {
            play_spec(&mut played, &mut random, round);
        }
        std::mem::swap(harness, &mut played.harness);
    });
    let team = TestTeam { harness: checked, ..played };
    let calls = team.architect_calls();
    let mut work_of_thread: BTreeMap<ThreadId, &Value> = BTreeMap::new();
    let prompts = team.harness.rebuild_all_prompts();
    let mut reviews = 0;
    for call in calls.iter().filter(|call| call.peer.as_ref().is_some_and(|peer| *peer != *"pm")) {
        let work = &call.metadata["work"];
        let before = work_of_thread.insert(call.receipt.thread.thread_id(), work);
        assert!(before.is_none_or(|before| before == work), "thread of {before:?} was continued for {work}");
        let own = format!("token-{}-end", story_of_work(work).expect("it has a story"));
        let prompt = prompts[&call.call].to_string();
        let tokens: Vec<&str> = prompt
            .split(|letter: char| !letter.is_alphanumeric() && letter != '-')
            .filter(|word| word.starts_with("token-"))
            .collect();
        assert!(!tokens.is_empty() && tokens.iter().all(|token| **token == own), "{work}: {tokens:?}");
        reviews += 1;
    }
    assert!(reviews >= 400, "each of the 200 stories was reviewed at least twice: {reviews}");
    assert_eq!(team.merged.len(), 200, "{}", team.describe());
}

fn play_spec(team: &mut TestTeam, random: &mut TestRandom, round: usize) {
    if round == 0 {
        team.harness.send_message("go");
    } else {
        team.harness.send_message("next");
        team.harness.answer_call("product_manager", &json!({"say": "yes", "spec": spec()}).to_string());
    }
    team.command("start", json!({})).finish_tools();
    team.answer_architect("pm", &json!({"stories": stories(round)}).to_string());
    for _ in 0..100_000 {
        if !step(team, random) {
            return;
        }
    }
    panic!("the spec does not end: {}", team.describe());
}

/// Lets one random thing happen. Returns false if nothing is left to do.
fn step(team: &mut TestTeam, random: &mut TestRandom) -> bool {
    if random.below(50) == 0 {
        team.harness.crash_and_recover();
    }
    let open: Vec<CallId> = team.harness.session().open_calls.keys().copied().collect();
    let has_tools = !team.harness.session().open_tool_runs.is_empty();
    if has_tools && (open.is_empty() || random.below(2) == 0) {
        let (run, result) = team.next_tool_result().expect("only repository tools are open");
        team.harness.apply_input(segue_core::decide::SessionInput::ToolResult { run, result });
        return true;
    }
    if open.is_empty() {
        return has_tools;
    }
    let call = open[random.below(open.len())];
    let opened = team.harness.session().open_calls[&call].opened.clone();
    let story = story_of_work(&opened.metadata["work"]).unwrap_or_default();
    let text = match opened.role.as_str() {
        "coder" => format!("my work on token-{story}-end"),
        _ if random.below(5) == 0 => json!({"verdict": "NEEDS_CHANGES", "feedback": format!("more token-{story}-end"),
            "findings": [{"file": format!("{story}.txt"), "line": 1, "text": format!("about token-{story}-end")}]})
        .to_string(),
        _ => json!({"verdict": "APPROVED", "feedback": format!("good token-{story}-end")}).to_string(),
    };
    team.answer(call, ModelReply { text, ..ModelReply::default() });
    true
}
