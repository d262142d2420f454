//! Closing, and going on elsewhere with a copy.

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{Event, Outcome, SessionOpened};
use segue_core::flow::{Runs, Step};
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{message, note, outcomes, refused_steps, tool};

fn chat() -> Stage {
    Stage::open(Puppet::chat(Puppet::speaker()))
}

#[test]
fn a_closed_session_owes_nothing_and_takes_nothing() {
    let mut stage = chat();
    stage.say("one").say("two").command(Command::Close);
    assert_eq!(outcomes(&stage), ["cancelled"]);
    assert!(stage.session().is_idle(), "a message that waits wakes nobody");
    let refusal = stage.try_give(message("three")).expect_err("it is closed");
    assert_eq!(refusal, Refusal::Closed { reason: "closed by hand".into() });
    let before = stage.journal().len();
    stage.command(Command::Close).pass(1_000).crash();
    assert_eq!(stage.journal().len(), before);
}

#[test]
fn closing_ends_what_goes_on_beside_the_turns_and_nothing_new_begins() {
    let worker = Puppet::role("worker", Scope::session()).may_use("look");
    let spec = Puppet::spec_of(worker).role(Puppet::speaker()).tool(tool("look", Runs::Host));
    let mut stage = Stage::open(Puppet::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![
            Step::EndTurn(Outcome::Done),
            note("worker", "a"),
            note("worker", "b"),
            note("speaker", "c"),
            Step::SetTimer { name: "later".into(), after_ms: 10 },
        ],
        Event::CallCancelled { .. } => vec![
            note("worker", "again"),
            Step::RunTool { tool: "look".into(), arguments: json!({}), agent: None },
            Step::SetTimer { name: "again".into(), after_ms: 1 },
        ],
        _ => Vec::new(),
    }));
    stage.say("go").wants_tool("worker", "look", json!({})).log();
    stage.command(Command::Close);
    assert!(stage.session().is_idle() && stage.session().timers.is_empty());
    assert_eq!(
        refused_steps(&stage),
        [
            "call of `worker` for `note`: the session is closed",
            "run of `look`: the session is closed",
            "timer `again`: the session is closed",
        ]
    );
}

#[test]
fn a_flow_that_closes_its_session_may_still_finish_the_turn() {
    let spec = Puppet::spec_of(Puppet::speaker());
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let mut steps = vec![Step::Close { reason: "done".into() }, Step::Close { reason: "twice".into() }];
            steps.extend(Puppet::chats(view, event));
            steps
        }
        _ => Puppet::chats(view, event),
    }));
    stage.say("bye").answer("speaker", "farewell");
    assert_eq!((stage.said().as_str(), outcomes(&stage)), ("farewell", vec!["done".to_owned()]));
    assert_eq!(stage.session().closed.as_deref(), Some("done"));
}

#[test]
fn a_copy_made_in_the_middle_of_a_turn_starts_between_turns_with_the_same_memory() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "1").say("two").fork();
    assert_eq!(outcomes(&stage), ["done", "cancelled"]);
    assert_eq!(stage.session().id, Some("copy".into()));
    stage.say("another two");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: one\nAssistant: 1\nUser: another two\n");
}

#[test]
fn a_copy_of_a_closed_session_is_open() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "1").command(Command::Close).fork();
    stage.say("two").answer("speaker", "2");
    assert_eq!(stage.said(), "2");
}

#[test]
fn a_copy_made_before_a_turn_began_begins_it() {
    let mut stage = chat();
    stage.say("one");
    let received = stage.journal().iter().position(|recorded| matches!(recorded.event, Event::MessageReceived(_)));
    let mut copy = stage.copy_at(received.expect("it was received") + 1);
    assert_eq!(copy.open_roles(), ["speaker"]);
    copy.answer("speaker", "1");
}

#[test]
fn a_session_is_opened_once_and_before_anything_else() {
    let mut stage = chat();
    let opened = SessionOpened {
        format: 1,
        session: "again".into(),
        flow: "puppet".into(),
        title: None,
        busy: segue_core::event::Busy::Queue,
        settings: serde_json::Value::Null,
        cast: std::collections::BTreeMap::new(),
    };
    assert_eq!(stage.try_give(Input::Open(opened)).err(), Some(Refusal::AlreadyOpen));
    let mut unopened = stage.copy_at_nothing();
    for input in [message("hi"), Input::Tick, Input::Recovered, Input::Operator(Command::Close)] {
        assert_eq!(unopened.try_give(input).err(), Some(Refusal::NotOpen));
    }
}
