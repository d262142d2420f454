//! A past call once more, beside the timeline; and asks that nobody hears.

use segue_core::body::BodyKind;
use segue_core::decide::{InputRefusal, OperatorCommand, RecomputeOptions, SessionInput, prepare_recomputation};
use segue_core::event::Event;
use segue_core::flow::{FlowStep, RoleSpec};
use segue_core::prompt::{FailureKind, ModelReply};
use segue_core::session::SessionState;
use segue_core::signal::BlockSet;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{note, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role().visible_to_user(BlockSet::new())))
}

fn first_call(stage: &SessionHarness) -> segue_core::ids::CallId {
    let opened = stage.journal().iter().find_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    opened.expect("a call was opened")
}

#[test]
fn a_past_call_is_made_once_more_and_nothing_else_changes() {
    let mut stage = chat();
    stage.send_message("one").answer_call("speaker", "uno").send_message("two").answer_call("speaker", "dos");
    let first = first_call(&stage);
    let (threads, turns) = (stage.session().threads.clone(), outcomes(&stage).len());
    let again =
        stage.recompute_call(first, &RecomputeOptions { model: Some("other".into()), ..RecomputeOptions::default() });
    assert_eq!(
        stage.prompt_for_call(again).messages,
        stage.rebuild_prompt(first).messages,
        "nothing that came later is in it"
    );
    stage.answer_call("speaker", "eins");
    assert_eq!((stage.last_reply().as_str(), outcomes(&stage).len()), ("dos", turns));
    assert_eq!(stage.session().threads, threads);
    let ledger = &stage.session().ledger;
    assert_eq!(
        (ledger.total.answered_calls, ledger.by_model["other"].answered_calls, ledger.current_turn.answered_calls),
        (3, 1, 1)
    );
}

#[test]
fn it_is_retried_recovered_and_given_up_like_any_other() {
    let mut stage = chat();
    stage.send_message("one").answer_call("speaker", "uno");
    stage.recompute_call(first_call(&stage), &RecomputeOptions::default());
    stage.fail_call("speaker", FailureKind::Overload).advance_and_tick(100_000).crash_and_recover();
    assert_eq!(stage.oldest_open_call("speaker").1, 3);
    stage.fail_call("speaker", FailureKind::InvalidApiKey);
    assert!(stage.session().is_idle());
    assert_eq!(stage.last_reply(), "uno");
}

#[test]
fn a_turn_does_not_wait_for_it_and_a_closed_session_does_not_make_it() {
    let mut stage = chat();
    stage.send_message("one").answer_call("speaker", "uno");
    let first = first_call(&stage);
    stage.recompute_call(first, &RecomputeOptions::default());
    let aside = stage.oldest_open_call("speaker").0;
    stage.send_message("two");
    let (call, attempt) = (segue_core::ids::CallId(aside.0 + 1), 1);
    stage.apply_input(SessionInput::Answer {
        call,
        attempt,
        reply: ModelReply { text: "dos".into(), ..ModelReply::default() },
        cost_microusd: None,
        duration_ms: 1,
    });
    assert!(stage.session().current_turn.is_none() && !stage.session().is_idle());
    let place = stage.journal().iter().position(|recorded| matches!(recorded.event, Event::CallOpened(_)));
    let place = place.expect("it was opened");
    let rules = ClosureFlow::single_speaker(ClosureFlow::speaker_role());
    let before = SessionState::fold(&rules, &stage.journal()[..place]);
    let again = prepare_recomputation(
        &rules,
        &before,
        &stage.journal()[place],
        &[],
        &RecomputeOptions::default(),
        stage.texts(),
    )
    .expect("at hand");
    stage.run_command(OperatorCommand::Close);
    assert!(stage.session().is_idle(), "closing ends it");
    let refused = stage.try_input(SessionInput::Recompute(Box::new(again)));
    assert!(matches!(refused, Err(InputRefusal::Closed { .. })));
}

#[test]
fn an_answer_to_a_private_ask_is_not_the_users() {
    let role: RoleSpec = ClosureFlow::speaker_role().visible_to_user(BlockSet::new());
    assert!(role.hidden_blocks(&"note".into()).is_some());
    let fragments = role.recipe.asks["note"].clone();
    let role = role.with_private_ask("note", fragments);
    assert!(role.hidden_blocks(&"note".into()).is_none() && role.hidden_blocks(&"reply".into()).is_some());
    let mut stage =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(role), |view, event| match &event.event {
            Event::TurnStarted { .. } => vec![note("speaker", "psst")],
            Event::CallAnswered(_) if view.session.current_turn.is_some() => {
                vec![FlowStep::EndTurn(segue_core::event::TurnResult::Done)]
            }
            _ => Vec::new(),
        }));
    stage.send_message("one");
    let (call, attempt) = stage.oldest_open_call("speaker");
    let reply = ModelReply { text: "between us".into(), ..ModelReply::default() };
    let decision = stage
        .try_input(SessionInput::Answer { call, attempt, reply, cost_microusd: None, duration_ms: 1 })
        .expect("it is owed");
    let kinds: Vec<BodyKind> = decision.bodies.iter().map(|body| body.kind).collect();
    assert_eq!(kinds, [BodyKind::Internal]);
}
