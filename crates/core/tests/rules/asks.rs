//! Questions between sessions, and claims.

use segue_core::decide::{CLAIM_TOPIC, InboxSubmission, InputRefusal, OperatorCommand, RELEASE_TOPIC, SessionInput};
use segue_core::event::{AskOutcome, Event, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::{AskId, Seq, SessionUid};
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::children::submit;
use super::{events, outcomes, refused_steps};

/// A session that takes a step in each turn, and ends the turn when its question has ended.
fn asking(step: impl Fn() -> FlowStep + Send + Sync + 'static) -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    SessionHarness::open(ClosureFlow::new(spec, move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![step()],
        Event::AskEnded { .. } if view.session.current_turn.is_some() => {
            vec![FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }))
}

fn ask_peer() -> FlowStep {
    FlowStep::Ask { to: "peer".into(), topic: "weather".into(), body: json!({"city": "Bern"}), wait_ms: 1_000 }
}

/// A session that answers questions about the weather.
fn answering() -> SessionHarness {
    let mut spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    spec.ask_topics.insert("weather".to_owned(), "the weather".to_owned());
    SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::AskReceived(received) if received.reply_to.is_some() => {
            vec![FlowStep::AnswerAsk { ask: received.ask, reply: Ok(json!("sunny")) }]
        }
        _ => Vec::new(),
    }))
}

fn ask(topic: &str) -> InboxSubmission {
    InboxSubmission::Ask { reply_to: Some(AskId(3)), topic: topic.into(), body: json!({}) }
}

fn ask_outcomes(harness: &SessionHarness) -> Vec<AskOutcome> {
    events(harness, |event| match event {
        Event::AskEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    })
}

#[test]
fn a_question_is_sent_with_the_commit_and_its_reply_ends_the_wait() {
    let mut harness = asking(ask_peer);
    let decision = harness.try_input(super::message("go")).expect("accepted");
    let [sent] = &decision.submissions[..] else { panic!("{:?}", decision.submissions) };
    assert_eq!(sent.to, "peer");
    assert_eq!(sent.bounce, Some(InboxSubmission::AskBounced { ask: AskId(1) }));
    assert!(harness.session().is_at_rest() && harness.session().current_turn.is_some());
    let reply = InboxSubmission::Reply { ask: AskId(1), reply: AskOutcome::Answered { body: json!("sunny") } };
    let stranger = submit(&mut harness, Some("stranger"), reply.clone());
    assert!(matches!(stranger.submission_outcome, Some(Err(InputRefusal::NotWaiting(_)))));
    submit(&mut harness, Some("peer"), reply.clone());
    assert_eq!(outcomes(&harness), ["done"]);
    let repeated = submit(&mut harness, Some("peer"), reply);
    assert!(matches!(repeated.submission_outcome, Some(Err(InputRefusal::NotWaiting(_)))), "R6");
}

#[test]
fn r11_a_question_without_a_reply_expires() {
    let mut harness = asking(ask_peer);
    harness.send_message("go").advance_and_tick(1_001);
    assert_eq!(ask_outcomes(&harness), [AskOutcome::Expired]);
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn a_question_to_nobody_bounces() {
    let mut harness = asking(ask_peer);
    harness.send_message("go");
    let forged = submit(&mut harness, Some("peer"), InboxSubmission::AskBounced { ask: AskId(1) });
    assert!(matches!(forged.submission_outcome, Some(Err(_))), "only the session's own commits bounce");
    submit(&mut harness, Some("test"), InboxSubmission::AskBounced { ask: AskId(1) });
    assert!(matches!(&ask_outcomes(&harness)[..], [AskOutcome::Refused { .. }]));
}

#[test]
fn r11_a_question_reaches_the_flow_during_a_turn() {
    let mut harness = answering();
    harness.with_checks_at_end(|harness| {
        let decision = submit(harness, Some("peer"), ask("weather"));
        let [reply] = &decision.submissions[..] else { panic!("{:?}", decision.submissions) };
        assert_eq!((reply.to.as_str(), reply.expected_uid), ("peer", Some(SessionUid(7))));
        let expected = InboxSubmission::Reply { ask: AskId(3), reply: AskOutcome::Answered { body: json!("sunny") } };
        assert_eq!(reply.submission, expected);
    });
}

#[test]
fn an_unknown_topic_is_answered_with_an_error() {
    let mut harness = answering();
    let decision = submit(&mut harness, Some("peer"), ask("politics"));
    assert!(matches!(decision.submission_outcome, Some(Err(InputRefusal::UnknownTopic { .. }))));
    assert!(matches!(
        &decision.submissions[0].submission,
        InboxSubmission::Reply { reply: AskOutcome::Refused { .. }, .. }
    ));
    let from_client = submit(&mut harness, None, ask("weather"));
    assert!(matches!(from_client.submission_outcome, Some(Err(InputRefusal::UnusableSubmission(_)))));
}

fn claiming() -> SessionHarness {
    asking(|| FlowStep::Claim { workspace: "shop".into(), name: "execute".into(), wait_ms: 1_000 })
}

fn granted() -> InboxSubmission {
    InboxSubmission::Reply { ask: AskId(1), reply: AskOutcome::Answered { body: json!({}) } }
}

#[test]
fn a_claim_is_held_until_the_session_closes() {
    let mut harness = claiming();
    let decision = harness.try_input(super::message("go")).expect("accepted");
    assert!(matches!(&decision.submissions[0].submission, InboxSubmission::Ask { topic, .. } if topic == CLAIM_TOPIC));
    submit(&mut harness, Some("shop"), granted());
    assert!(harness.session().claim.as_ref().is_some_and(|claim| claim.is_held));
    harness.send_message("again");
    assert_eq!(
        refused_steps(&harness),
        ["claim `execute` of workspace `shop`: the session already holds the claim `execute`"]
    );
    let closed = harness.try_input(SessionInput::Operator(OperatorCommand::Close)).expect("accepted");
    assert!(harness.session().claim.is_none());
    assert!(matches!(&closed.submissions[..], [released]
        if matches!(&released.submission, InboxSubmission::Ask { topic, .. } if topic == RELEASE_TOPIC)));
}

#[test]
fn r11_a_claim_that_is_not_granted_in_time_is_released() {
    let mut harness = claiming();
    harness.send_message("go");
    harness.advance_and_tick(1_001);
    assert!(harness.session().claim.is_none());
    let late = submit(&mut harness, Some("shop"), granted());
    assert!(matches!(late.submission_outcome, Some(Err(InputRefusal::NotWaiting(_)))));
    let released = events(&harness, |event| matches!(event, Event::ClaimReleased { .. }).then_some(()));
    assert_eq!(released.len(), 1, "the workspace is told, because it may still grant the claim");
}

#[test]
fn r7_a_copy_holds_no_claim_and_owes_no_reply() {
    let mut harness = claiming();
    harness.send_message("go");
    submit(&mut harness, Some("shop"), granted());
    let input = SessionInput::Forked { session: "copy".into(), from: "test".into(), at: Seq(9) };
    let decision = harness.try_input(input).expect("accepted");
    assert!(decision.submissions.is_empty(), "the original still holds the claim");
    assert!(harness.session().claim.is_none() && harness.session().open_asks.is_empty());
}

#[test]
fn an_entry_that_cannot_be_read_is_recorded_and_refused() {
    let mut harness = answering();
    let unknown = serde_json::from_str::<InboxSubmission>("{\"type\":\"from_the_future\"}");
    let content = Err(unknown.expect_err("there is no such submission").to_string());
    let input = SessionInput::Submitted { id: segue_core::ids::SubmissionId(5), sender: None, content };
    let decision = harness.try_input(input).expect("handled");
    assert!(matches!(decision.submission_outcome, Some(Err(InputRefusal::UnusableSubmission(_)))));
    assert!(matches!(decision.events.last().map(|event| &event.event), Some(Event::SubmissionHandled { .. })));
}
