//! Runs the conversations in `dialogues.txt`. Each begins at a stage, and ends where a sensible person would expect: in this
//! phase, with this many rounds of experts, and with this last reply.
//!
//! - `[name]`, then optionally `stage:` (`start`, `explorer`, `asked` or `plan`) and `signals:` (`structured` or `inline`).
//! - `user:` sends a message, `command:` runs a command.
//! - `says:` is a reply of the concierge; `+NAME` at its end adds a block.
//! - `thinks:` is the answer to a private question: `yes`, `no`, `unclear`, or JSON.
//! - `experts` answers a round of experts and the mapper.
//! - `ends:` is the phase and the number of rounds; `last:` is a part of the last reply.

use segue_core::decide::OperatorCommand;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

const DIALOGUES: &str = include_str!("dialogues.txt");
const DIALOGUES_MIN: usize = 60;

const INTENT: &str = r#"{"ready": true, "goal": "a home that lasts"}"#;
const EXECUTION: &str = r#"{"goal": "buy a flat by May", "prompt": "Write the plan."}"#;
const STEPS: &str = r#"{"steps": [{"title": "See the bank", "description": "ask for a letter", "done_when": "you hold it"},
    {"title": "View flats", "description": "five of them", "done_when": "one is liked"}]}"#;

struct Dialogue<'t> {
    name: &'t str,
    stage: &'t str,
    signals: &'t str,
    lines: Vec<(&'t str, &'t str)>,
}

fn parse_dialogues(text: &str) -> Vec<Dialogue<'_>> {
    let mut dialogues: Vec<Dialogue<'_>> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            dialogues.push(Dialogue { name, stage: "explorer", signals: "structured", lines: Vec::new() });
            continue;
        }
        let dialogue = dialogues.last_mut().expect("a dialogue begins with its name");
        match line.split_once(": ").unwrap_or((line, "")) {
            ("stage", stage) => dialogue.stage = stage,
            ("signals", signals) => dialogue.signals = signals,
            step => dialogue.lines.push(step),
        }
    }
    dialogues
}

fn open_at(stage: &str, signals: &str) -> SessionHarness {
    let mut harness = open_with_settings(json!({"signals": signals, "confirm_batches": stage == "asked"}));
    let inline = signals == "inline";
    let speak = |harness: &mut SessionHarness, text: &str, block: &str, answers: &[&str]| {
        harness.answer_call("concierge", &if inline { format!("{text}\n\n{block}") } else { text.to_owned() });
        for answer in answers.iter().filter(|_| !inline) {
            harness.answer_call("concierge", answer);
        }
    };
    if stage == "start" {
        return harness;
    }
    play_first_turn(&mut harness);
    harness.send_message("I stay five years");
    speak(&mut harness, "Then buy.", HANDOVER, &[INTENT]);
    if stage == "explorer" {
        return harness;
    }
    harness.send_message("give me a plan");
    speak(&mut harness, "Gladly.", WORKFLOW, &[r#"{"kind": "plan_request"}"#, EXECUTION]);
    if stage == "asked" {
        return harness;
    }
    answer_experts(&mut harness, PLAN_MAP);
    speak(&mut harness, "Here is the plan.", PLAN.split_once("\n\n").expect("text and block").1, &[STEPS]);
    harness
}

/// Returns the answer to the open private question.
fn answer_text(harness: &SessionHarness, given: &str) -> String {
    let ask = calls(harness, "concierge").last().map(|call| call.ask.to_string()).unwrap_or_default();
    match (ask.as_str(), given) {
        ("intent_question", "yes") => INTENT.to_owned(),
        ("execution_question", "yes") => EXECUTION.to_owned(),
        ("steps_question", "yes") => STEPS.to_owned(),
        ("progress_question", "no") => r#"{"done": [], "current": null, "needs": "nothing", "blocker": ""}"#.to_owned(),
        ("plan_question", "yes") => json!({"kind": "plan_request"}).to_string(),
        ("plan_question", "no") => json!({"kind": "remark"}).to_string(),
        ("plan_question", "unclear") => json!({"kind": "unclear"}).to_string(),
        ("consent_question", "yes" | "no" | "unclear") => json!({ "answer": given }).to_string(),
        _ => given.to_owned(),
    }
}

fn play_line(harness: &mut SessionHarness, name: &str, (kind, text): (&str, &str)) {
    let text = text.replace("\\n", "\n");
    match kind {
        "user" => {
            harness.send_message(&text);
        }
        "command" => {
            let (command, step) = text.split_once(' ').map_or((text.as_str(), None), |(name, step)| (name, Some(step)));
            let arguments = step.map_or(Value::Null, |step| json!({ "step": step }));
            harness.run_command(OperatorCommand::Flow { command: command.to_owned(), arguments });
        }
        "says" => {
            let blocks = [("+HANDOVER", HANDOVER), ("+WORKFLOW", WORKFLOW), ("+STEP_HELP", STEP_HELP)];
            let reply = blocks.into_iter().fold(text.clone(), |reply, (mark, block)| reply.replace(mark, block));
            let reply = reply.replace("+STEPS", PLAN.split_once("\n\n").expect("text and block").1);
            let reply = reply.replace("+DONE", "<<<STEP_DONE>>>\nstep: See the bank\n<<<END>>>");
            harness.answer_call("concierge", &reply);
        }
        "thinks" => {
            let answer = answer_text(harness, &text);
            harness.answer_call("concierge", &answer);
        }
        "experts" => answer_experts(harness, PLAN_MAP),
        "ends" => {
            assert!(harness.session().is_idle(), "{name}: calls are open: {:?}", harness.open_call_roles());
            let rounds = facts(harness, "batch_started").len();
            assert_eq!(format!("{} {rounds}", phase(harness).current), text, "{name}");
        }
        "last" => {
            let replies = visible_replies(harness);
            let last = replies.last().map(String::as_str).unwrap_or_default();
            assert!(last.contains(&*text), "{name}: {last}");
            assert!(replies.iter().all(|reply| !reply.contains("<<<") && !reply.contains('{')), "{name}: {replies:?}");
        }
        other => panic!("{name}: unknown line `{other}`"),
    }
}

#[test]
fn every_dialogue_ends_where_a_sensible_person_expects() {
    let dialogues = parse_dialogues(DIALOGUES);
    assert!(dialogues.len() >= DIALOGUES_MIN, "{} dialogues", dialogues.len());
    let mut names = std::collections::BTreeSet::new();
    for dialogue in dialogues {
        let Dialogue { name, stage, signals, lines } = dialogue;
        assert!(names.insert(name), "two dialogues are called {name}");
        assert!(lines.iter().any(|(kind, _)| *kind == "ends"), "{name} has no end");
        let mut harness = open_at(stage, signals);
        lines.into_iter().for_each(|line| play_line(&mut harness, name, line));
    }
}
