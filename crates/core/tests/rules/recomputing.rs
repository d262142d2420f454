//! A past call once more, beside the timeline; and asks that nobody hears.

use segue_core::body::BodyKind;
use segue_core::decide::{Change, Command, Input, Refusal, frozen};
use segue_core::event::Event;
use segue_core::flow::{RoleSpec, Step};
use segue_core::prompt::{FailureKind, Reply};
use segue_core::session::State;
use segue_core::signal::BlockNames;
use segue_testkit::{Puppet, Stage};

use super::{note, outcomes};

fn chat() -> Stage {
    Stage::open(Puppet::chat(Puppet::speaker().heard_by_user(BlockNames::new())))
}

fn first_call(stage: &Stage) -> segue_core::ids::CallId {
    let opened = stage.journal().iter().find_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    opened.expect("a call was opened")
}

#[test]
fn a_past_call_is_made_once_more_and_nothing_else_changes() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "uno").say("two").answer("speaker", "dos");
    let first = first_call(&stage);
    let (threads, turns) = (stage.session().threads.clone(), outcomes(&stage).len());
    let again = stage.once_more(first, &Change { model: Some("other".into()), ..Change::default() });
    assert_eq!(stage.prompt_of(again).messages, stage.rebuilt(first).messages, "nothing that came later is in it");
    stage.answer("speaker", "eins");
    assert_eq!((stage.said().as_str(), outcomes(&stage).len()), ("dos", turns));
    assert_eq!(stage.session().threads, threads);
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.total.answered, ledger.models["other"].answered, ledger.turn.answered), (3, 1, 1));
}

#[test]
fn it_is_retried_recovered_and_given_up_like_any_other() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "uno");
    stage.once_more(first_call(&stage), &Change::default());
    stage.fail("speaker", FailureKind::Overload).pass(100_000).crash();
    assert_eq!(stage.open_call("speaker").1, 3);
    stage.fail("speaker", FailureKind::BadKey);
    assert!(stage.session().is_idle());
    assert_eq!(stage.said(), "uno");
}

#[test]
fn a_turn_does_not_wait_for_it_and_a_closed_session_does_not_make_it() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "uno");
    let first = first_call(&stage);
    stage.once_more(first, &Change::default());
    let aside = stage.open_call("speaker").0;
    stage.say("two");
    let (call, attempt) = (segue_core::ids::CallId(aside.0 + 1), 1);
    stage.give(Input::Answer {
        call,
        attempt,
        reply: Reply { text: "dos".into(), ..Reply::default() },
        cost_microusd: None,
        ms: 1,
    });
    assert!(stage.session().turn.is_none() && !stage.session().is_idle());
    let place = stage.journal().iter().position(|recorded| matches!(recorded.event, Event::CallOpened(_)));
    let place = place.expect("it was opened");
    let rules = Puppet::chat(Puppet::speaker());
    let before = State::fold(&rules, &stage.journal()[..place]);
    let again =
        frozen(&rules, &before, &stage.journal()[place], &[], &Change::default(), stage.shelf()).expect("at hand");
    stage.command(Command::Close);
    assert!(stage.session().is_idle(), "closing ends it");
    let refused = stage.try_give(Input::Recompute(Box::new(again)));
    assert!(matches!(refused, Err(Refusal::Closed { .. })));
}

#[test]
fn an_answer_to_a_private_ask_is_not_the_users() {
    let role: RoleSpec = Puppet::speaker().heard_by_user(BlockNames::new());
    assert!(role.heard(&"note".into()).is_some());
    let fragments = role.recipe.asks["note"].clone();
    let role = role.ask_privately("note", fragments);
    assert!(role.heard(&"note".into()).is_none() && role.heard(&"reply".into()).is_some());
    let mut stage = Stage::open(Puppet::new(Puppet::spec_of(role), |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "psst")],
        Event::CallAnswered(_) if view.session.turn.is_some() => vec![Step::EndTurn(segue_core::event::Outcome::Done)],
        _ => Vec::new(),
    }));
    stage.say("one");
    let (call, attempt) = stage.open_call("speaker");
    let reply = Reply { text: "between us".into(), ..Reply::default() };
    let decision =
        stage.try_give(Input::Answer { call, attempt, reply, cost_microusd: None, ms: 1 }).expect("it is owed");
    let kinds: Vec<BodyKind> = decision.bodies.iter().map(|body| body.kind).collect();
    assert_eq!(kinds, [BodyKind::Inner]);
}
