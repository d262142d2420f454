//! Calls and tools that were under way when the process died.

use segue_core::decide::{Command, Input, Refusal, Resolution};
use segue_core::event::{Event, Next};
use segue_core::flow::{RoleSpec, Runs, UnknownPolicy};
use segue_core::ids::CallId;
use segue_core::limits::TRIES_MAX;
use segue_core::prompt::{FailureKind, Reply};
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{events, outcomes, tool};

fn chat(unknown: UnknownPolicy) -> Stage {
    let mut speaker = Puppet::speaker();
    speaker.unknown = unknown;
    Stage::open(Puppet::chat(speaker))
}

#[test]
fn an_unknown_call_is_made_again_under_the_retry_policy() {
    let mut stage = chat(UnknownPolicy::Retry);
    stage.say("hi").crash();
    assert_eq!(stage.open_call("speaker"), (CallId(1), 2));
    assert_eq!(stage.session().ledger.total.unknown, 1);
    stage.answer("speaker", "here");
    assert_eq!(stage.said(), "here");
}

#[test]
fn an_unknown_call_fails_under_the_fail_policy() {
    let mut stage = chat(UnknownPolicy::Fail);
    stage.say("hi").crash();
    assert_eq!(outcomes(&stage), ["failed"]);
}

#[test]
fn an_unknown_call_waits_for_a_person_under_the_ask_policy() {
    for (how, outcome) in [(Resolution::Retry, "done"), (Resolution::Fail, "failed")] {
        let mut stage = chat(UnknownPolicy::Ask);
        stage.say("hi").crash();
        let spec = segue_core::flow::FlowSpec::new("x", "x");
        assert!(stage.session().owed(&spec).is_empty(), "nobody makes it unasked");
        assert_eq!(stage.session().held().count(), 1);
        let reply = Reply::default();
        let answer = Input::Answer { call: CallId(1), attempt: 1, reply, cost_microusd: None, ms: 0 };
        assert!(matches!(stage.try_give(answer), Err(Refusal::NotOwed { .. })));
        stage.crash().command(Command::Resolve { call: CallId(1), how });
        if how == Resolution::Retry {
            stage.answer("speaker", "here");
        }
        assert_eq!(outcomes(&stage), [outcome]);
        let again = Command::Resolve { call: CallId(1), how };
        assert_eq!(stage.try_give(Input::Operator(again)).err(), Some(Refusal::NotHeld { call: CallId(1) }));
    }
}

#[test]
fn a_held_call_is_dropped_with_its_turn() {
    let mut stage = chat(UnknownPolicy::Ask);
    stage.say("hi").crash().command(Command::Cancel).say("again");
    assert_eq!(stage.open_roles(), ["speaker"]);
    assert_eq!(stage.session().held().count(), 0);
}

#[test]
fn a_try_that_was_still_to_come_is_not_unknown() {
    let mut stage = chat(UnknownPolicy::Fail);
    stage.say("hi").fail("speaker", FailureKind::Overload).crash();
    assert_eq!(outcomes(&stage), [""; 0], "it had not begun");
    stage.pass(1_000).crash();
    assert_eq!(outcomes(&stage), ["failed"], "it was due");
}

#[test]
fn a_call_that_kills_the_process_each_time_is_given_up_in_the_end() {
    let mut stage = chat(UnknownPolicy::Retry);
    stage.say("hi");
    for _ in 0..TRIES_MAX {
        assert!(stage.session().turn.is_some());
        stage.crash();
    }
    assert_eq!(outcomes(&stage), ["failed"]);
    assert_eq!(stage.session().ledger.total.unknown, TRIES_MAX);
}

#[test]
fn recovering_twice_in_a_row_says_no_more_than_is_true() {
    let mut stage = chat(UnknownPolicy::Ask);
    stage.say("hi").crash();
    let before = stage.journal().len();
    stage.crash().crash();
    assert_eq!(stage.journal().len(), before, "what is held was not in flight again");
}

#[test]
fn a_finished_call_is_never_made_twice() {
    let mut stage = chat(UnknownPolicy::Retry);
    stage.say("one").answer("speaker", "1").say("two").crash().answer("speaker", "2").crash();
    let opened = events(&stage, |event| match event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    let unknown = events(&stage, |event| match event {
        Event::CallUnknown { call, next: Next::Retry { .. }, .. } => Some(*call),
        _ => None,
    });
    assert_eq!((opened, unknown), (vec![CallId(1), CallId(2)], vec![CallId(2)]));
}

#[test]
fn a_tool_under_way_is_run_again_or_its_end_is_told_as_unknown() {
    let worker = |name: &str| -> RoleSpec { Puppet::role(name, segue_core::scope::Scope::session()).may_use("look") };
    for (policy, told) in [
        (UnknownPolicy::Retry, "found it"),
        (UnknownPolicy::Fail, "the process died while this ran; it may or may not have had its effect"),
    ] {
        let look = segue_core::flow::ToolDef { unknown: policy, ..tool("look", Runs::Host) };
        let mut stage = Stage::open(Puppet::new(Puppet::spec_of(worker("speaker")).tool(look), Puppet::chats));
        stage.say("look").wants_tool("speaker", "look", json!({})).crash();
        if policy == UnknownPolicy::Retry {
            stage.tool("look", Ok("found it"));
        }
        assert!(stage.prompt_lines("speaker").ends_with(&format!("Tool: {told}\n")));
    }
}
