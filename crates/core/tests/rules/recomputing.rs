//! Repeated calls outside the timeline, and private asks.

use segue_core::body::BodyVisibility;
use segue_core::decide::{InputRefusal, OperatorCommand, RecomputeCallOverrides, SessionInput, prepare_recomputation};
use segue_core::event::Event;
use segue_core::flow::{FlowStep, PrivateAskKind, RoleSpec};
use segue_core::prompt::{CallFailureKind, ModelReply};
use segue_core::session::SessionState;
use segue_core::signal::BlockSet;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{note, outcomes};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role().visible_to_user(BlockSet::default())))
}

fn first_call(harness: &SessionHarness) -> segue_core::ids::CallId {
    let opened = harness.journal().iter().find_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    opened.expect("a call was opened")
}

#[test]
fn past_call_is_repeated_and_nothing_else_changes() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "uno").send_message("two").answer_call("speaker", "dos");
    let first = first_call(&harness);
    let (threads, turns) = (harness.session().threads.clone(), outcomes(&harness).len());
    let again = harness.recompute_call(
        first,
        &RecomputeCallOverrides { model: Some("other".into()), ..RecomputeCallOverrides::default() },
    );
    assert_eq!(
        harness.prompt_for_call(again).messages,
        harness.rebuild_prompt(first).messages,
        "nothing that came later is in it"
    );
    harness.answer_call("speaker", "eins");
    assert_eq!((harness.last_reply().as_str(), outcomes(&harness).len()), ("dos", turns));
    assert_eq!(harness.session().threads, threads);
    let ledger = &harness.session().ledger;
    assert_eq!(
        (ledger.total.answered_calls, ledger.by_model["other"].answered_calls, ledger.current_turn.answered_calls),
        (3, 1, 1)
    );
}

#[test]
fn repeated_call_is_retried_recovered_and_abandoned_like_any_other() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "uno");
    harness.recompute_call(first_call(&harness), &RecomputeCallOverrides::default());
    harness.fail_call("speaker", CallFailureKind::Overload).advance_and_tick(100_000).crash_and_recover();
    assert_eq!(harness.oldest_open_call("speaker").1, 3);
    harness.fail_call("speaker", CallFailureKind::InvalidApiKey);
    assert!(harness.session().is_idle());
    assert_eq!(harness.last_reply(), "uno");
}

#[test]
fn turn_does_not_wait_for_a_repeated_call_and_a_closed_session_makes_none() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "uno");
    let first = first_call(&harness);
    harness.recompute_call(first, &RecomputeCallOverrides::default());
    let aside = harness.oldest_open_call("speaker").0;
    harness.send_message("two");
    let (call, attempt) = (segue_core::ids::CallId(aside.0 + 1), 1);
    harness.apply_input(SessionInput::Answer {
        call,
        attempt,
        reply: ModelReply { text: "dos".into(), ..ModelReply::default() },
        cost_microusd: None,
        duration_ms: 1,
    });
    assert!(harness.session().current_turn.is_none() && !harness.session().is_idle());
    let place = harness.journal().iter().position(|recorded| matches!(recorded.event, Event::CallOpened(_)));
    let place = place.expect("it was opened");
    let flow = ClosureFlow::single_speaker(ClosureFlow::speaker_role());
    let before = SessionState::fold(&flow, &harness.journal()[..place]);
    let again = prepare_recomputation(
        &flow,
        &before,
        &harness.journal()[place],
        &[],
        &RecomputeCallOverrides::default(),
        harness.texts(),
    )
    .expect("every text is loaded");
    harness.run_command(OperatorCommand::Close);
    assert!(harness.session().is_idle(), "closing ends it");
    let refused = harness.try_input(SessionInput::Recompute(Box::new(again)));
    assert!(matches!(refused, Err(InputRefusal::Closed { .. })));
}

#[test]
fn answer_to_a_private_ask_is_not_visible_to_the_user() {
    let role: RoleSpec = ClosureFlow::speaker_role().visible_to_user(BlockSet::default());
    assert!(role.hidden_blocks(&"note".into()).is_some());
    let fragments = role.asks["note"].clone();
    let role = role.with_private_ask("note", PrivateAskKind::InThread, fragments);
    assert!(role.hidden_blocks(&"note".into()).is_none() && role.hidden_blocks(&"reply".into()).is_some());
    let mut harness =
        SessionHarness::open(ClosureFlow::new(ClosureFlow::spec_with_role(role), |view, event| match &event.event {
            Event::TurnStarted { .. } => vec![note("speaker", "psst")],
            Event::CallAnswered(_) if view.session.current_turn.is_some() => {
                vec![FlowStep::EndTurn(segue_core::event::TurnOutcome::Done)]
            }
            _ => Vec::new(),
        }));
    harness.send_message("one");
    let (call, attempt) = harness.oldest_open_call("speaker");
    let reply = ModelReply { text: "between us".into(), ..ModelReply::default() };
    let decision = harness
        .try_input(SessionInput::Answer { call, attempt, reply, cost_microusd: None, duration_ms: 1 })
        .expect("it is pending");
    let kinds: Vec<BodyVisibility> = decision.bodies.iter().map(|body| body.kind).collect();
    assert_eq!(kinds, [BodyVisibility::Internal]);
}
