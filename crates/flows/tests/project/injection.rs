//! Texts of users, models, tools and files stay content: in every prompt of a whole project they are fenced, and they do
//! not move the work to another phase.

use segue_core::prompt::ChatRole;
use segue_testkit::{INJECTION_MARK, injection_corpus, unconfined_injection_lines};
use serde_json::json;

use crate::mcp_servers::{CLOSE, open_with_server};
use crate::support::Project;

/// Carries out a request in which everybody says `text` wherever they can: the user, `AGENTS.md`, the router, the agents,
/// the checks, the names of files and the lessons of earlier sessions.
fn carry_out(text: &'static str) -> Project {
    let mut project = Project::open_with(json!({"workspace": "w"}));
    project.agents_md = Some(text);
    project.foreign_text = Some(text);
    for agent in ["executor", "planner", "project-manager"] {
        let lesson = json!({"agent": agent, "title": text, "text": text, "session": "earlier", "at": 0});
        project.lessons.push(lesson);
    }
    let routed = |project: &mut Project, phase: &str, agents: &[&str]| {
        project.route_with(json!({"phase": phase, "agents": agents, "reason": text, "user_words": text}));
    };
    project.say(text);
    routed(&mut project, "chat", &["project-manager"]);
    // An answer that only repeats the reason would be asked for again.
    project.answer("project-manager", &format!("{text} Really."));
    project.say(text);
    // A decision that cannot be used is answered with what is wrong.
    routed(&mut project, "execute", &[text]);
    routed(&mut project, "plan", &["planner"]);
    let step = json!({"title": text, "detail": text, "done_when": text});
    let plan = json!({"summary": text, "plan": {"goal": text, "steps": [step]}});
    // A message is feedback on the plan.
    project.complete_with("planner", plan.clone()).say(text).complete_with("planner", plan);
    project.command("approve", json!(null));
    project.use_tool("executor", "read_file", json!({"path": "main.rs"}), json!({"text": text}));
    project.passes = false;
    project.write("executor").complete("executor", text);
    routed(&mut project, "verification", &["executor", "project-manager"]);
    let issue = json!({"title": text, "steps_to_reproduce": text});
    let found = json!({"summary": text, "issues": [issue]});
    project.complete_with("executor-verification", found.clone());
    project.complete_with("project-manager-verification", found);
    routed(&mut project, "execute", &["executor"]);
    project.passes = true;
    project.write("executor").complete("executor", text);
    routed(&mut project, "verification", &["executor"]);
    project.complete("executor-verification", text);
    routed(&mut project, "chores", &["executor"]);
    project.complete("executor", text);
    project
}

/// Carries out a request with agents that choose structured actions and use the tools of a server. Everybody says `text`
/// wherever they can: the user, files and their names, commands and their output, the server, and the agents.
fn carry_out_structured(text: &'static str) -> Project {
    let mut project = open_with_server(json!({"workspace": "w", "actions": "structured"}));
    project.foreign_text = Some(text);
    let schema = json!({"type": "object", "properties": {"ticket": {"type": "string", "description": text}}});
    let tool = json!({"name": "close", "description": text, "input_schema": schema});
    project.listing = json!({"servers": {"tickets": {"tools": [tool]}}});
    project.passes = false;
    project.say(text);
    project.route_with(json!({"phase": "execute", "agents": ["executor"], "reason": text}));
    let run_value = json!({"run": {"command": text, "end": {"kind": "exited", "code": 1}, "duration_ms": 1,
        "output_bytes": 9, "output_tail": text}, "changes": [{"path": text, "kind": "created"}]});
    for (answer, value) in [
        // Unusable answers are complained about.
        (json!(text), json!(null)),
        (json!({"action": text}), json!(null)),
        (json!({"action": "read_file", "path": "main.rs"}), json!({"text": text})),
        (json!({"action": "read_file", "path": format!("{text}.txt")}), json!(null)),
        (json!({"action": "run_command", "command": text}), run_value),
        (json!({"action": CLOSE, "arguments": {"ticket": text}}), json!({"text": text})),
        (json!({"action": "write_file", "path": "main.rs"}), json!({"path": "main.rs", "text": text})),
    ] {
        project.answer("executor", &answer.to_string());
        finish_run_of_agent(&mut project, value);
    }
    // A content without a fence is complained about.
    project.answer("executor", "no fence").answer("executor", "```\nok\n```");
    finish_run_of_agent(&mut project, json!({"changes": [{"path": "main.rs", "kind": "modified"}]}));
    project.answer("executor", &json!({"action": "write_file", "path": "new", "path_new": text.trim()}).to_string());
    // The command has made a file of this name, so the agent is shown its content first.
    finish_run_of_agent(&mut project, json!({"path": text, "text": text}));
    project.answer("executor", "```\nok\n```");
    finish_run_of_agent(&mut project, json!({"changes": [{"path": text, "kind": "created"}]}));
    project.answer("executor", &json!({"action": "complete", "summary": text}).to_string());
    // In the next turn the server cannot be asked, and says why in its own words.
    project.listing = json!({"servers": {"tickets": {"error": text}}});
    project.say(text);
    project.route_with(json!({"phase": "verification", "agents": ["executor"], "reason": text}));
    project
}

fn finish_run_of_agent(project: &mut Project, value: serde_json::Value) {
    let mut runs = project.session.session().open_tool_runs.values();
    let run = runs.find(|run| run.requested_by.is_some()).map(|run| run.run);
    if let Some(run) = run {
        project.finish(run, value);
    }
    project.settle();
}

fn entered_phases(project: &Project) -> Vec<String> {
    project.transitions().iter().map(|transition| transition.to.to_string()).collect()
}

/// Returns the lines of all prompts in which a text is not confined, with the calls.
fn violations(project: &Project) -> Vec<String> {
    let mut found = Vec::new();
    for (call, prompt) in project.session.rebuild_all_prompts() {
        for message in prompt.messages.iter() {
            // A model's own earlier replies, and the results of tools.
            if matches!(message.chat_role, ChatRole::Assistant | ChatRole::Tool) {
                continue;
            }
            for part in &message.parts {
                let lines = unconfined_injection_lines(part).into_iter();
                found.extend(lines.map(|line| format!("{call} {:?}: {line}", message.chat_role)));
            }
        }
    }
    found
}

#[test]
fn untrusted_text_is_confined_in_every_prompt_and_moves_nothing() {
    let baseline = carry_out("INJECTED into nothing at all");
    let phases = entered_phases(&baseline);
    assert!(phases.iter().any(|phase| phase == "chores"), "{phases:?}");
    for text in injection_corpus() {
        let project = carry_out(text);
        let prompts = project.session.rebuild_all_prompts();
        let mentions = prompts.values().filter(|prompt| prompt.to_string().contains(INJECTION_MARK)).count();
        assert!(mentions > 10, "the text is in {mentions} prompts: {text}");
        assert_eq!(violations(&project), Vec::<String>::new(), "{text}");
        assert_eq!(entered_phases(&project), phases, "{text}");
    }
}

#[test]
fn untrusted_text_is_confined_in_every_prompt_of_structured_actions_and_moves_nothing() {
    let phases = entered_phases(&carry_out_structured("INJECTED into nothing at all"));
    assert_eq!(phases, ["execute", "verification"]);
    for text in injection_corpus() {
        let project = carry_out_structured(text);
        let prompts = project.session.rebuild_all_prompts();
        let mentions = prompts.values().filter(|prompt| prompt.to_string().contains(INJECTION_MARK)).count();
        assert!(mentions > 8, "the text is in {mentions} prompts: {text}");
        assert_eq!(violations(&project), Vec::<String>::new(), "{text}");
        assert_eq!(entered_phases(&project), phases, "{text}");
    }
}
