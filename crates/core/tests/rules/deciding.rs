//! Deciding is a function: of its arguments alone, with all texts it needs, changing nothing.

use segue_core::body::BodyId;
use segue_core::decide::{Command, Input, Undecided};
use segue_core::event::{CallWish, Event, Outcome};
use segue_core::flow::Step;
use segue_core::limits::STEPS_PER_INPUT_MAX;
use segue_core::prompt::Reply;
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Shelf, Stage};
use serde_json::json;

use super::{message, outcomes};

/// A flow that decides by what was said: it calls the role the answer names.
fn by_word() -> Stage {
    let spec = Puppet::spec_of(Puppet::speaker()).role(Puppet::role("worker", Scope::Fresh));
    Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let turn = view.session.turn.as_ref().expect("it has begun");
            vec![Step::Call(CallWish::new(&view.text(turn.messages[0].text), "note").note(json!("go")))]
        }
        Event::CallAnswered(_) => {
            let turn = view.session.turn.as_ref().expect("it runs");
            let said = view.text(turn.messages[0].text);
            // Misled by a missing text, this flow would never stop.
            match &*said {
                "" => vec![Step::Note { kind: "lost".into(), value: json!(null) }],
                _ => vec![Step::EndTurn(Outcome::Done)],
            }
        }
        Event::Fact { .. } => vec![Step::Note { kind: "lost".into(), value: json!(null) }],
        _ => Vec::new(),
    }))
}

fn answer(stage: &Stage, role: &str) -> Input {
    let (call, attempt) = stage.open_call(role);
    Input::Answer { call, attempt, reply: Reply::default(), cost_microusd: None, ms: 1 }
}

#[test]
fn the_same_arguments_give_the_same_decision() {
    let stage = by_word();
    let shelf = Shelf::default();
    let decide = || stage.decide(message("worker"), &shelf).expect("its own text is enough");
    let (one, other) = (decide(), decide());
    assert_eq!((one.events, one.bodies), (other.events, other.bodies));
    assert_eq!(one.state.session, other.state.session);
}

#[test]
fn texts_that_are_not_at_hand_are_asked_for_by_id_and_then_suffice() {
    let mut stage = by_word();
    stage.say("worker");
    let input = answer(&stage, "worker");
    let mut shelf = Shelf::default();
    let asked = stage.decide(input.clone(), &shelf).expect_err("the flow reads the message again");
    assert_eq!(asked, Undecided::NeedTexts(vec![BodyId::of("worker")]), "even where the flow went astray without it");
    shelf.fetch(&[BodyId::of("worker")], stage.shelf());
    let decision = stage.decide(input, &shelf).expect("now it is there");
    assert!(matches!(decision.events.last().map(|last| &last.event), Some(Event::TurnEnded { .. })));
    assert!(decision.events.len() < STEPS_PER_INPUT_MAX);
}

#[test]
fn a_refused_input_changes_nothing() {
    let mut stage = by_word();
    stage.say("worker");
    let before = stage.session().clone();
    for input in [
        message(""),
        Input::Operator(Command::Resolve {
            call: segue_core::ids::CallId(1),
            how: segue_core::decide::Resolution::Fail,
        }),
        Input::Operator(Command::Forget { role: "nobody".into(), agent: None, peer: None }),
        Input::ToolResult { run: segue_core::ids::ToolRunId(1), result: Ok(String::new()) },
    ] {
        assert!(stage.try_give(input).is_err());
        assert_eq!(stage.session(), &before);
    }
    let given = answer(&stage, "worker");
    stage.give(given);
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn bodies_are_handed_out_once_and_only_when_new_to_the_decision() {
    let stage = by_word();
    let decision = stage.decide(message("worker"), &Shelf::default()).expect("its own text is enough");
    let mut ids: Vec<BodyId> = decision.bodies.iter().map(|body| body.id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all);
    assert!(decision.bodies.iter().any(|body| &*body.text == "worker"));
}

#[test]
fn nothing_happened_is_no_event() {
    let mut stage = by_word();
    let before = stage.journal().len();
    stage.give(Input::Tick).give(Input::Recovered);
    stage.command(Command::Forget { role: "speaker".into(), agent: None, peer: None });
    assert_eq!(stage.journal().len(), before);
}
