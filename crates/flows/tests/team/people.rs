//! What people do: talk to the product manager, pause, change, skip, take over, land; and express work and knowledge.

use segue_core::event::Event;
use segue_flows::team::facts::{StoryStatus, TeamFact};
use segue_flows::team::knowledge::parse_knowledge_dot;
use serde_json::json;

use crate::support::{APPROVED, TestTeam, spec, story_json};

fn entry(id: &str, description: &str) -> serde_json::Value {
    json!({"id": id, "type": "component", "level": "architecture", "description": description})
}

#[test]
fn product_manager_asks_for_one_missing_field_at_a_time_and_shows_a_preview() {
    let mut team = TestTeam::open(json!({"coders": 1}));
    team.harness.send_message("I want a tea timer.");
    let first = json!({"say": "Nice.", "spec": {"title": "Tea timer", "requirements": ["a timer"]}});
    team.harness.answer_call("product_manager", &first.to_string());
    assert!(team.harness.last_reply().ends_with("What should be better afterwards, and for whom?"));
    assert_eq!(team.phase("pm"), "AWAIT_USER");
    assert!(team.refused_command("start", json!({})).contains("not complete"));
    team.harness.send_message("Better tea. Done when it rings.");
    let second = json!({"say": "Thanks.", "spec": {"goal": "Better tea.", "acceptance": ["it rings"]}});
    team.harness.answer_call("product_manager", &second.to_string());
    let preview = team.harness.last_reply();
    assert!(
        preview.contains("**Tea timer**") && preview.contains("- it rings") && preview.contains("`start`"),
        "{preview}"
    );
    assert_eq!(team.phase("pm"), "PREVIEW");
    team.command("edit_spec", json!({"spec": {"title": "Kettle"}}));
    assert!(team.harness.last_reply().contains("**Kettle**"));
    team.command("start", json!({}));
    assert_eq!(team.phase("architect"), "DISPATCHING");
}

#[test]
fn user_can_talk_to_the_product_manager_while_the_team_works() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.harness.send_message("How is it going?");
    let prompt = team.harness.prompt_lines("product_manager");
    assert!(prompt.contains("a \"Title of a\": in progress"), "{prompt}");
    team.answer_coder("coder-1", "plan");
    team.harness.answer_call("product_manager", r#"{"say": "Well.", "spec": null}"#);
    assert_eq!(team.harness.last_reply(), "Well.");
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.phase("coder-1"), "CODING", "the end of the turn stopped nobody");
}

#[test]
fn headless_run_ends_its_turn_with_the_result() {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1, "headless": true}));
    team.harness.send_message("go");
    team.finish_tools();
    team.answer_architect("pm", &json!({"stories": [story_json("a", &[])]}).to_string());
    assert!(team.harness.session().current_turn.is_some());
    team.finish_story("coder-1");
    assert!(team.harness.session().current_turn.is_none() && team.harness.session().failed_turn.is_none());
}

#[test]
fn settings_say_what_is_wrong() {
    use segue_core::flow::Flow;
    let problems = |settings| segue_flows::team::TeamFlow::new().validate_settings(&settings).join("; ");
    assert!(problems(json!({"coders": 99})).contains("coders"));
    assert!(problems(json!({"knowledge_file": "../k.dot"})).contains("not a path within the repository"));
    assert!(problems(json!({"spec": {"title": "x"}})).contains("`spec` lacks goal, requirements, acceptance"));
    assert!(problems(json!({"headless": true})).contains("`headless` needs `spec`"));
    assert_eq!(problems(json!({"spec": spec()})), "");
}

#[test]
fn pause_gives_out_no_work_and_resume_continues() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.command("pause", json!({}));
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    assert_eq!(team.phase("coder-1"), "CODING");
    assert!(team.harness.open_call_roles().is_empty(), "no new round starts");
    assert!(team.refused_command("pause", json!({})).contains("already paused"));
    team.harness.crash_and_recover();
    team.command("resume", json!({}));
    team.answer_coder("coder-1", "done").answer_architect("coder-1", APPROVED);
    assert_eq!(team.merged.len(), 1);
}

#[test]
fn skipped_story_blocks_its_dependants_and_can_be_tried_again() {
    let mut team = TestTeam::start(1, &[story_json("a", &[]), story_json("b", &["a"]), story_json("c", &[])]);
    team.command("skip_story", json!({"story": "a"})).finish_tools();
    assert_eq!(team.story_of("coder-1").as_deref(), Some("c"), "{}", team.describe());
    let blocked = team
        .facts()
        .into_iter()
        .any(|fact| matches!(fact, TeamFact::StoryMoved { story, status: StoryStatus::Blocked, .. } if story == "b"));
    assert!(blocked);
    team.command("retry_story", json!({"story": "a", "note": "use bash"}));
    team.finish_story("coder-1");
    assert_eq!(team.story_of("coder-1").as_deref(), Some("a"));
    assert!(team.prompt(team.coder_call("coder-1")).contains("A note of the user: use bash"));
    assert!(
        team.refused_command("skip_story", json!({"story": "z"})).contains("there is no story `z`; there are a, b, c")
    );
}

#[test]
fn changed_spec_affects_only_the_stories_that_differ() {
    let mut team = TestTeam::start(2, &[story_json("a", &[]), story_json("b", &[])]);
    team.answer_coder("coder-1", "plan a");
    team.harness.send_message("The timer must also blink.");
    let changed = json!({"say": "Noted.", "spec": {"requirements": ["a timer", "it blinks"]}});
    team.harness.answer_call("product_manager", &changed.to_string());
    team.command("start", json!({})).finish_tools();
    let mut second = story_json("b", &[]);
    second["description"] = json!("it blinks");
    team.answer_architect("pm", &json!({"stories": [story_json("a", &[]), second]}).to_string());
    assert_eq!(team.work_of("coder-1"), "a#1.1", "a goes on");
    assert_eq!(team.phase("coder-1"), "PLAN_REVIEW");
    assert_eq!(team.work_of("coder-2"), "b#2.2");
    assert!(team.prompt(team.coder_call("coder-2")).contains("it blinks"));
}

#[test]
fn story_can_be_taken_over_and_given_back_to_its_tests() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    assert!(team.refused_command("take_over", json!({"story": "a"})).contains("plan"));
    team.answer_coder("coder-1", "plan").answer_architect("coder-1", APPROVED);
    team.command("take_over", json!({"story": "a"}));
    assert!(team.harness.open_call_roles().is_empty(), "the coder stops");
    team.command("give_back", json!({"story": "a"})).finish_tools();
    assert_eq!(team.phase("coder-1"), "CODE_REVIEW", "{}", team.describe());
    assert!(team.phases("coder-1").ends_with(&["SUSPEND", "CODING", "TESTING", "CODE_REVIEW"].map(str::to_owned)));
    team.answer_architect("coder-1", APPROVED);
    assert_eq!(team.merged.len(), 1);
}

#[test]
fn landing_can_be_undone() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.finish_story("coder-1");
    assert!(team.refused_command("land", json!({})).contains("`branch`"));
    team.command("land", json!({"branch": "release"})).finish_tools();
    assert!(team.facts().iter().any(|fact| matches!(fact, TeamFact::Landed { branch, .. } if branch == "release")));
    team.command("undo_landing", json!({})).finish_tools();
    assert!(team.refused_command("undo_landing", json!({})).contains("nothing was landed"));
}

#[test]
fn m18_m19_knowledge_update_takes_the_express_channel_without_a_plan_or_a_model() {
    let mut team = TestTeam::start(2, &[story_json("a", &[])]);
    let calls = team.harness.session().last_ids.call;
    team.command(
        "update_knowledge",
        json!({"entries": [entry("timer", "Counts down.")], "file_path": "knowledge.dot", "action": "append"}),
    );
    team.finish_tools();
    assert_eq!(
        team.phases("coder-2"),
        ["SETUP", "CODING", "TESTING", "CODE_REVIEW", "AWAIT_MERGE", "DONE", "WAITING"],
        "{}",
        team.describe()
    );
    assert_eq!(team.harness.session().last_ids.call, calls, "no model was called");
    let file = parse_knowledge_dot(team.knowledge_file.as_deref().expect("it was written")).expect("it is valid");
    assert_eq!(file.nodes["timer"].description, "Counts down.");
    let sent = team.harness.journal().iter().any(|recorded| {
        matches!(&recorded.event, Event::AgentMessageSent(sent) if sent.topic == "knowledge_update" && sent.to == *"express")
    });
    assert!(sent, "it has a channel of its own");
    let update = json!({"entries": [entry("timer", "Counts up.")], "action": "replace"});
    team.command("update_knowledge", update).finish_tools();
    let file = parse_knowledge_dot(team.knowledge_file.as_deref().expect("it was written")).expect("it is valid");
    assert_eq!(file.nodes["timer"].description, "Counts up.");
}

#[test]
fn m21_m22_entries_are_kept_at_once_and_written_at_the_end_of_the_spec() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let call = team.coder_call("coder-1");
    team.answer_with_tool(call, "knowledge_add", json!({"knowledge": entry("clock", "Monotonic.")}));
    assert!(
        team.facts().iter().any(|fact| matches!(fact, TeamFact::KnowledgeAdded { .. })),
        "it is in the journal at once"
    );
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("`clock` was added"), "the coder goes on: {prompt}");
    team.answer_coder("coder-1", "plan");
    let call = team.architect_call("coder-1");
    team.answer_with_tool(call, "knowledge_add", json!({"knowledge": entry("bell", "Rings once.")}));
    assert!(team.knowledge_file.is_none(), "the file is written at the end");
    team.answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done").answer_architect("coder-1", APPROVED);
    let file = parse_knowledge_dot(team.knowledge_file.as_deref().expect("it was written")).expect("it is valid");
    assert_eq!(file.nodes.keys().collect::<Vec<_>>(), ["bell", "clock"]);
    assert!(team.harness.last_reply().contains("All 1 stories"), "{}", team.harness.last_reply());
}

#[test]
fn m22_knowledge_of_a_failed_spec_is_written_too() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let call = team.coder_call("coder-1");
    team.answer_with_tool(call, "knowledge_add", json!({"knowledge": entry("clock", "Monotonic.")}));
    team.command("skip_story", json!({"story": "a"})).finish_tools();
    assert!(team.knowledge_file.as_deref().is_some_and(|file| file.contains("Monotonic.")), "{}", team.describe());
}

#[test]
fn m23_refused_entry_tells_the_model_why() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let call = team.coder_call("coder-1");
    team.answer_with_tool(
        call,
        "knowledge_add",
        json!({"knowledge": {"id": "x", "type": "rule", "level": "architecture", "description": "d"}}),
    );
    let prompt = team.prompt(team.coder_call("coder-1"));
    assert!(prompt.contains("the entry was refused: `priority` is required for a rule"), "{prompt}");
}

#[test]
fn m24_queued_updates_merge_with_what_others_wrote_in_the_meantime() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    for id in ["one", "two", "three"] {
        team.command("update_knowledge", json!({"entries": [entry(id, "Text.")]}));
    }
    team.knowledge_file =
        Some(r#"digraph { other [type=pattern, level=implementation, description="By a person."] }"#.to_owned());
    team.finish_tools().finish_story("coder-1");
    let file = parse_knowledge_dot(team.knowledge_file.as_deref().expect("it was written")).expect("it is valid");
    assert_eq!(file.nodes.keys().collect::<Vec<_>>(), ["one", "other", "three", "two"], "{}", team.describe());
}

#[test]
fn m31_only_the_knowledge_file_can_be_written_this_way() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    let refusal =
        team.refused_command("update_knowledge", json!({"entries": [entry("x", "d")], "file_path": "src/main.rs"}));
    assert!(refusal.contains("only the knowledge file `knowledge.dot`"), "{refusal}");
    let refusal = team.refused_command("update_knowledge", json!({"entries": [entry("x", "d")], "action": "erase"}));
    assert!(refusal.contains("append, replace"), "{refusal}");
    assert!(team.refused_command("update_knowledge", json!({"entries": []})).contains("at least one entry"));
}

#[test]
fn m32_knowledge_work_runs_no_set_up_command() {
    let mut team = TestTeam::start(2, &[story_json("a", &[])]);
    team.command("update_knowledge", json!({"entries": [entry("x", "d")]})).finish_tools();
    let set_ups: Vec<(String, bool)> = team
        .harness
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::ToolRunOpened(run) if run.tool == *"git_worktree" => {
                Some((run.arguments["story"].as_str().unwrap_or_default().to_owned(), run.arguments["set_up"] == true))
            }
            _ => None,
        })
        .collect();
    assert_eq!(set_ups, [("a".to_owned(), true), ("knowledge-1".to_owned(), false)]);
}

#[test]
fn m34_architect_can_read_the_coders_worktree_and_change_nothing() {
    let mut team = TestTeam::start(1, &[story_json("a", &[])]);
    team.answer_coder("coder-1", "plan");
    let call = team.architect_call("coder-1");
    let tools: Vec<String> =
        team.harness.prompt_for_call(call).tools.iter().map(|tool| tool.name.to_string()).collect();
    assert!(
        tools.contains(&"read_file".to_owned())
            && !tools.iter().any(|tool| tool.contains("write") || tool.contains("run_"))
    );
    team.answer_with_tool(call, "read_file", json!({"path": "a.txt"}));
    let run = team.harness.session().open_tool_runs.values().next().expect("it reads").clone();
    assert_eq!(run.agent, Some("architect@coder-1".into()), "the host knows whose worktree it is");
    team.end_model_tool("read_file", "content of a.txt");
    let call = team.architect_call("coder-1");
    team.answer_with_tool(call, "write_file", json!({"path": "a.txt", "content": "x"}));
    assert!(team.prompt(team.architect_call("coder-1")).contains("this role has no tool `write_file`"));
}

#[test]
fn m35_entry_of_story_one_is_in_the_pack_of_story_two() {
    let mut second = story_json("b", &["a"]);
    second["description"] = json!("Use the clock.");
    let mut team = TestTeam::start(1, &[story_json("a", &[]), second]);
    let call = team.coder_call("coder-1");
    team.answer_with_tool(call, "knowledge_add", json!({"knowledge": entry("clock", "Never goes back.")}));
    team.finish_story("coder-1");
    team.answer_coder("coder-1", "plan b");
    let call = team.architect_call("coder-1");
    let receipt = team.architect_calls().into_iter().find(|opened| opened.call == call).expect("it is open").receipt;
    let pack = receipt.opening.iter().find(|part| part.name == *"knowledge").expect("it is declared");
    assert_eq!(pack.why, "the knowledge pack of b#1.1");
    let text = team.harness.stored_text(pack.text.expect("it is included").body);
    assert!(text.contains("Never goes back."), "{text}");
}

#[test]
fn m37_user_product_manager_and_architect_start_express_work_before_ordinary_stories() {
    let mut team = TestTeam::start(1, &[story_json("a", &[]), story_json("b", &["a"])]);
    let fix = |file: &str| json!({"title": format!("fix {file}"), "description": "d", "files": [file]});
    team.answer_coder("coder-1", "plan");
    let call = team.architect_call("coder-1");
    team.answer_with_tool(call, "hot_fix", fix("x.txt"));
    team.command("hot_fix", fix("y.txt"));
    team.harness.send_message("And fix z.");
    let answer = json!({"say": "Yes.", "spec": null, "hot_fix": fix("z.txt")});
    team.harness.answer_call("product_manager", &answer.to_string());
    team.answer_architect("coder-1", APPROVED).answer_coder("coder-1", "done").answer_architect("coder-1", APPROVED);
    for expected in ["fix-1", "fix-2", "fix-3"] {
        assert_eq!(team.story_of("coder-1").as_deref(), Some(expected), "{}", team.describe());
        assert_eq!(team.phase("coder-1"), "CODING", "a hot fix is not planned");
        let file = ["x.txt", "y.txt", "z.txt"][expected[4..].parse::<usize>().expect("it is a number") - 1];
        team.diffs.insert(expected.to_owned(), crate::support::diff_of(file));
        team.answer_coder("coder-1", "fixed");
        assert_eq!(team.phase("coder-1"), "CODE_REVIEW", "but tested and reviewed");
        team.answer_architect("coder-1", APPROVED);
    }
    assert_eq!(team.story_of("coder-1").as_deref(), Some("b"));
    assert!(team.refused_command("hot_fix", json!({"title": "x"})).contains("`files`"));
}

#[test]
fn m38_knowledge_file_is_imported_and_an_invalid_one_is_reported_and_left_alone() {
    let mut team = TestTeam::open(json!({"spec": spec(), "coders": 1}));
    team.knowledge_file = Some("digraph { a [type=nonsense] }".to_owned());
    team.begin(&[story_json("a", &[])]);
    let problem = team.facts().into_iter().find_map(|fact| match fact {
        TeamFact::RepositoryInspected(repository) => repository.knowledge_problem,
        _ => None,
    });
    assert!(problem.expect("it is reported").contains("`type` is `nonsense`"));
    let call = team.coder_call("coder-1");
    team.answer_with_tool(call, "knowledge_add", json!({"knowledge": entry("clock", "Monotonic.")}));
    team.finish_story("coder-1");
    assert_eq!(team.knowledge_file.as_deref(), Some("digraph { a [type=nonsense] }"), "it is left as it is");
    assert!(team.harness.last_reply().contains("All 1 stories"));
}
