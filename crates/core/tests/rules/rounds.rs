//! Tools: rounds of them, those that are refused, and two calls that want one thread.

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{Event, Outcome, ToolOutcome};
use segue_core::flow::{RoleSpec, Runs, Step};
use segue_core::ids::{CallId, Millis, Seq, ToolRunId};
use segue_core::limits::{TOOL_CALLS_PER_REPLY_MAX, TOOL_RESULT_BYTES_MAX, TOOL_ROUNDS_MAX};
use segue_core::prompt::Reply;
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{events, note, outcomes, refused_steps, tool, wants};

fn user_of(tools: &[&str], scope: Scope) -> RoleSpec {
    tools.iter().fold(Puppet::role("speaker", scope), |role, tool| role.may_use(tool))
}

fn looking(scope: Scope) -> Stage {
    let spec = Puppet::spec_of(user_of(&["look"], scope)).tool(tool("look", Runs::Host));
    Stage::open(Puppet::new(spec, Puppet::chats))
}

fn both(stage: &mut Stage, ids: [&str; 2]) {
    let tool_calls = ids.map(|id| wants(id, "look")).into();
    stage.reply("speaker", Reply { text: "looking".into(), tool_calls, ..Reply::default() });
}

#[test]
fn results_go_back_in_the_order_of_the_wishes_whatever_order_they_come_in() {
    let mut stage = looking(Scope::session());
    stage.say("look twice");
    both(&mut stage, ["a", "b"]);
    let result = |run, text: &str| Input::ToolResult { run: ToolRunId(run), result: Ok(text.to_owned()) };
    stage.give(result(2, "second")).give(result(1, "first"));
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: second\n"
    );
    assert_eq!(stage.try_give(result(1, "first")).err(), Some(Refusal::ToolNotOwed { run: ToolRunId(1) }));
    stage.answer("speaker", "seen");
    assert_eq!((stage.said().as_str(), stage.session().threads.len()), ("seen", 1));
}

#[test]
fn wishes_with_one_id_are_told_apart_by_their_order() {
    let mut stage = looking(Scope::session());
    stage.say("look twice");
    both(&mut stage, ["same", "same"]);
    stage.tool("look", Ok("first")).tool("look", Err("second"));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: first\nTool: second\n"));
}

#[test]
fn what_a_tool_could_not_do_is_marked_in_the_prompt_and_in_every_copy_of_it() {
    let mut stage = looking(Scope::session());
    stage.say("look twice");
    both(&mut stage, ["a", "b"]);
    stage.tool("look", Ok("first")).tool("look", Err("no light"));
    let failed = |prompt: &segue_core::prompt::Prompt| prompt.messages.iter().map(|it| it.failed).collect::<Vec<_>>();
    let prompt = stage.prompt("speaker");
    assert_eq!(failed(&prompt), [false, false, false, false, true]);
    assert!(prompt.written().contains("── tool answers b, failed ──\nno light"), "{}", prompt.written());
    let call = stage.open_call("speaker").0;
    stage.crash();
    assert_eq!(failed(&stage.prompt("speaker")), failed(&prompt), "also after a crash");
    stage.answer("speaker", "seen one");
    assert_eq!(stage.rebuilt(call), prompt, "and next year");
    stage.say("and now?").wants_tool("speaker", "delete_everything", json!({}));
    assert!(stage.prompt("speaker").messages.last().is_some_and(|message| message.failed), "a refusal is no result");
}

#[test]
fn results_of_journals_in_which_models_were_sent_the_text_alone_stay_as_they_were_sent() {
    let written = r#"{"is":"tool_answered","run":1,"outcome":"failed","text":{"body":"00112233445566778899aabbccddeeff","tokens":2}}"#;
    let event = segue_core::codec::decode(Seq(1), Millis(0), written.as_bytes()).expect("it is read").event;
    assert!(matches!(event, Event::ToolAnswered { outcome: ToolOutcome::Failed, failed: false, .. }), "{event:?}");
    assert_eq!(String::from_utf8_lossy(&segue_core::codec::encode(&event)), written);
}

#[test]
fn tools_the_role_does_not_have_are_refused_and_the_model_is_told() {
    let mut stage = looking(Scope::Fresh);
    stage.say("hi").wants_tool("speaker", "delete_everything", json!({"sure": true}));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: there is no tool `delete_everything` for this role\n"));
    stage.answer("speaker", "then not");
    assert!(stage.session().threads.is_empty(), "a fresh thread ends with its last round");
}

#[test]
fn a_tool_that_the_flow_forgets_to_answer_is_answered_for_it() {
    let spec = Puppet::spec_of(user_of(&["complete"], Scope::session())).tool(tool("complete", Runs::Flow));
    let mut stage = Stage::open(Puppet::new(spec, Puppet::chats));
    stage.say("hi").wants_tool("speaker", "complete", json!({}));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: nothing answers to `complete`\n"));
    let outcome = events(&stage, |event| match event {
        Event::ToolAnswered { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome, [ToolOutcome::Failed]);
}

#[test]
fn rounds_and_wishes_have_a_limit() {
    let mut stage = looking(Scope::session());
    stage.say("look");
    let many = (0..TOOL_CALLS_PER_REPLY_MAX + 5).map(|n| wants(&n.to_string(), "look")).collect();
    stage.reply("speaker", Reply { tool_calls: many, ..Reply::default() });
    assert_eq!(stage.session().tools.len(), TOOL_CALLS_PER_REPLY_MAX);
    for _ in 0..TOOL_CALLS_PER_REPLY_MAX {
        stage.tool("look", Ok("ok"));
    }
    for _ in 1..TOOL_ROUNDS_MAX {
        stage.wants_tool("speaker", "look", json!({})).tool("look", Ok("ok"));
    }
    assert_eq!(outcomes(&stage), [""; 0]);
    stage.wants_tool("speaker", "look", json!({}));
    assert_eq!(
        refused_steps(&stage),
        ["tool calls: tools were used for 16 rounds already, the most one call may take"]
    );
    assert_eq!(outcomes(&stage), ["done"], "what it said beside its wish is its answer");
}

#[test]
fn a_result_that_is_too_long_is_cut_and_marked() {
    let mut stage = looking(Scope::session());
    stage.say("look").wants_tool("speaker", "look", json!({}));
    stage.tool("look", Ok(&"ż".repeat(TOOL_RESULT_BYTES_MAX)));
    let prompt = stage.prompt("speaker");
    let result = prompt.messages.last().expect("the result").text();
    assert!(result.len() <= TOOL_RESULT_BYTES_MAX + 10 && result.ends_with("ż[…]"));
}

#[test]
fn a_turn_cancelled_in_the_middle_of_a_round_leaves_a_thread_that_can_be_gone_on_with() {
    let mut stage = looking(Scope::session());
    stage.say("look twice");
    both(&mut stage, ["a", "b"]);
    stage.tool("look", Ok("first")).command(Command::Cancel);
    assert!(stage.session().is_idle() && stage.session().rounds.is_empty());
    stage.say("well?");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: cancelled: stopped by hand\nUser: well?\n"
    );
    let late = Input::ToolResult { run: ToolRunId(2), result: Ok("second".into()) };
    assert_eq!(stage.try_give(late).err(), Some(Refusal::ToolNotOwed { run: ToolRunId(2) }));
}

#[test]
fn a_copy_made_between_a_wish_and_its_run_holds_no_wish_without_a_result() {
    let mut stage = looking(Scope::session());
    stage.say("look twice");
    both(&mut stage, ["a", "b"]);
    let answered = stage.journal().iter().position(|recorded| matches!(recorded.event, Event::CallAnswered(_)));
    let mut copy = stage.copy_at(answered.expect("it was answered") + 1);
    copy.say("well?");
    assert_eq!(
        copy.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: \nTool: \nUser: well?\n"
    );
}

/// Two calls a turn for one role that remembers the session.
fn twice() -> Stage {
    let spec = Puppet::spec_of(user_of(&["look"], Scope::session())).tool(tool("look", Runs::Host));
    Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "first"), note("speaker", "second")],
        Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
            let done = view.session.calls.is_empty() && view.session.deferred.is_empty();
            done.then_some(Step::EndTurn(Outcome::Done)).into_iter().collect()
        }
        _ => Vec::new(),
    }))
}

#[test]
fn a_second_call_on_a_thread_waits_and_then_sees_the_firsts_answer() {
    let mut stage = twice();
    stage.say("go");
    assert_eq!(stage.open_roles(), ["speaker"]);
    stage.answer("speaker", "1");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: 1\nUser: second\n");
    stage.answer("speaker", "2");
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn a_second_call_waits_for_all_rounds_of_the_first() {
    let mut stage = twice();
    stage.say("go").wants_tool("speaker", "look", json!({}));
    assert!(stage.open_roles().is_empty(), "a round is under way");
    stage.tool("look", Ok("seen"));
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: \nTool: seen\n");
    stage.answer("speaker", "1");
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: 1\nUser: second\n"));
}

#[test]
fn a_failed_first_call_lets_the_second_go_on() {
    let mut stage = twice();
    stage.say("go").fail("speaker", segue_core::prompt::FailureKind::Refused);
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: second\n");
}

#[test]
fn a_cancelled_turn_drops_the_call_that_waited_in_it() {
    let mut stage = twice();
    stage.say("go").command(Command::Cancel);
    assert!(stage.session().is_idle() && stage.session().deferred.is_empty());
    stage.say("again").answer("speaker", "1").answer("speaker", "2");
    assert_eq!(outcomes(&stage), ["cancelled", "done"]);
}

#[test]
fn a_call_wished_while_results_come_in_waits_until_the_round_is_over() {
    let spec = Puppet::spec_of(user_of(&["look"], Scope::session())).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::ToolAnswered { .. } => vec![note("speaker", "by the way")],
        Event::CallAnswered(_) if view.about.call.as_ref().is_some_and(|call| call.ask == "note") => Vec::new(),
        _ if matches!(event.event, Event::CallAnswered(_)) => Vec::new(),
        _ => Puppet::chats(view, event),
    }));
    stage.say("look").wants_tool("speaker", "look", json!({})).tool("look", Ok("seen"));
    assert!(stage.prompt_lines("speaker").ends_with("Assistant: \nTool: seen\n"), "the round goes on first");
    stage.answer("speaker", "I saw");
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: I saw\nUser: by the way\n"));
    let dropped = events(&stage, |event| matches!(event, Event::RoundDropped { .. }).then_some(()));
    assert!(dropped.is_empty());
}

#[test]
fn a_reset_during_a_round_leaves_the_round_its_thread_and_takes_the_next_call_a_new_one() {
    let mut stage = looking(Scope::session());
    stage.say("look").wants_tool("speaker", "look", json!({}));
    stage.command(Command::Forget { role: "speaker".into(), agent: None, peer: None }).tool("look", Ok("seen"));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\n"));
    stage.answer("speaker", "I saw").say("what did you see?");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: what did you see?\n");
    assert_eq!(stage.session().threads.len(), 1, "the old one is gone");
    assert_eq!(stage.open_call("speaker").0, CallId(3));
}
