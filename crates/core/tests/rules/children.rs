//! Child sessions: starting, allotments, results, closing, copies.

use segue_core::decide::{Decision, InboxSubmission, InputRefusal, OperatorCommand, SessionInput, SubmittingSession};
use segue_core::event::{
    ChildSessionAllotment, ChildSessionOrigin, ChildSessionOutcome, Event, SessionOpened, TurnOutcome,
};
use segue_core::flow::{FlowStep, SpawnChildSessionRequest};
use segue_core::ids::{ChildId, Seq, SessionUid, SubmissionId};
use segue_core::session::ChildSessionUsage;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

use super::{events, outcomes, refused_steps};

fn request(key: &str) -> SpawnChildSessionRequest {
    SpawnChildSessionRequest {
        flow: "helper".into(),
        key: key.to_owned(),
        title: None,
        settings: Value::Null,
        message: "do it".to_owned(),
        wait_ms: 60_000,
        allotment: None,
    }
}

/// A session that starts the given children in each turn and ends the turn when the first of them has ended.
fn parent(children: Vec<SpawnChildSessionRequest>) -> SessionHarness {
    let mut spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    spec.child_flows.insert("helper".into());
    SessionHarness::open(ClosureFlow::new(spec, move |view, event| match &event.event {
        Event::TurnStarted { .. } => children.iter().cloned().map(FlowStep::Spawn).collect(),
        Event::ChildEnded { .. } if view.session.current_turn.is_some() => {
            vec![FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    }))
}

/// The opening of the fourth child of `boss`.
fn opened_as_child(allotment: ChildSessionAllotment) -> SessionOpened {
    SessionOpened {
        flow_definition: None,
        format: 1,
        session: "boss~4".into(),
        flow: "puppet".into(),
        title: None,
        mid_turn_policy: Default::default(),
        settings: Value::Null,
        model_overrides: Default::default(),
        child_origin: Some(ChildSessionOrigin { parent: "boss".into(), child: ChildId(4), allotment }),
    }
}

/// A child session that starts children itself, and ends its turn at once.
fn child(allotment: ChildSessionAllotment, children: Vec<SpawnChildSessionRequest>) -> SessionHarness {
    let mut spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    spec.child_flows.insert("helper".into());
    let flow = ClosureFlow::new(spec, move |_, event| match &event.event {
        Event::UserMessageReceived(_) => children.iter().cloned().map(FlowStep::Spawn).collect(),
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    });
    SessionHarness::open_session(flow, opened_as_child(allotment))
}

fn allotment(cost: Option<u64>, depth: u32, descendants: u32, at_once: u32) -> ChildSessionAllotment {
    ChildSessionAllotment {
        cost_microusd_max: cost,
        depth_max: depth,
        descendants_max: descendants,
        children_at_once_max: at_once,
    }
}

pub(super) fn submit(harness: &mut SessionHarness, from: Option<&str>, submission: InboxSubmission) -> Decision {
    let sender = from.map(|session| SubmittingSession { session: session.into(), uid: SessionUid(7) });
    let input = SessionInput::Submitted { id: SubmissionId(1), sender, content: Ok(submission) };
    harness.try_input(input).expect("an entry is never refused as an input")
}

fn ended(result: Value, cost: u64) -> InboxSubmission {
    let usage = ChildSessionUsage { calls: 2, cost_microusd: cost, ..ChildSessionUsage::default() };
    InboxSubmission::ChildEnded { child: ChildId(1), outcome: ChildSessionOutcome::Done { result }, usage }
}

#[test]
fn a_child_is_part_of_the_decision_and_its_result_an_event() {
    let mut harness = parent(vec![request("left")]);
    let input = super::message("go");
    let decision = harness.try_input(input).expect("accepted");
    let [(started, _)] = &decision.children[..] else { panic!("{:?}", decision.children) };
    assert_eq!(started.session, "test~1");
    assert!(harness.session().is_at_rest() && !harness.session().is_idle(), "the turn waits, without a task");
    submit(&mut harness, Some("test~1"), ended(json!({"answer": 42}), 30));
    assert_eq!(outcomes(&harness), ["done"]);
    assert_eq!(harness.session().ledger.descendants.cost_microusd, 30);
    assert_eq!(harness.session().ledger.descendants.descendants, 1);
    assert!(harness.session().is_idle());
}

#[test]
fn r6_a_result_counts_only_while_its_child_is_open() {
    let mut harness = parent(vec![request("left")]);
    harness.send_message("go");
    for (from, why) in [(Some("test~2"), "another child"), (None, "a client"), (Some("other"), "another session")] {
        let decision = submit(&mut harness, from, ended(json!(1), 30));
        assert!(matches!(decision.submission_outcome, Some(Err(InputRefusal::NotWaiting(_)))), "{why}");
    }
    assert_eq!(harness.session().open_children.len(), 1);
    submit(&mut harness, Some("test~1"), ended(json!(1), 30));
    // The usage of a child that closed after the parent stopped waiting still counts.
    submit(&mut harness, Some("test~1"), ended(json!(2), 5));
    assert_eq!(harness.session().ledger.descendants.cost_microusd, 35);
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn r16_children_stay_within_the_allotment() {
    let mut harness = child(allotment(Some(100), 1, 2, 2), vec![request("a"), request("b"), request("c")]);
    harness.send_message("go");
    assert_eq!(harness.session().open_children.len(), 2);
    let costs: Vec<Option<u64>> =
        harness.session().open_children.values().map(|open| open.spawned.allotment.cost_microusd_max).collect();
    assert_eq!(costs, [Some(50), Some(25)], "each child gets half of what is left");
    assert_eq!(refused_steps(&harness), ["child `c` of flow `helper`: 2 children are open, which is the maximum"]);
    let mut greedy = child(
        allotment(Some(100), 1, 8, 8),
        vec![SpawnChildSessionRequest { allotment: Some(allotment(Some(101), 0, 0, 0)), ..request("greedy") }],
    );
    greedy.send_message("go");
    assert_eq!(
        refused_steps(&greedy),
        ["child `greedy` of flow `helper`: it wants 101 millionths of a dollar, but only 100 are left"]
    );
    let mut leaf = child(allotment(None, 0, 8, 8), vec![request("a")]);
    leaf.send_message("go");
    assert_eq!(refused_steps(&leaf), ["child `a` of flow `helper`: sessions of this depth may not have children"]);
}

#[test]
fn r16_a_child_makes_no_call_beyond_its_money() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut harness = SessionHarness::open_session(
        ClosureFlow::new(spec, ClosureFlow::react_as_chat),
        opened_as_child(allotment(Some(10), 0, 0, 0)),
    );
    harness.send_message("one").answer_call("speaker", "costs ten").send_message("two");
    assert_eq!(
        refused_steps(&harness),
        ["call of `speaker` for `reply`: the session has used the 10 millionths of a dollar that its parent gave it"]
    );
}

#[test]
fn a_flow_that_is_not_declared_and_settings_that_are_invalid_are_refused() {
    let undeclared = SpawnChildSessionRequest { flow: "unknown".into(), ..request("a") };
    let invalid = SpawnChildSessionRequest { settings: json!("there is no such setting"), ..request("b") };
    let mut harness = parent(vec![undeclared, invalid, request("c"), request("c")]);
    harness.send_message("go");
    assert_eq!(
        refused_steps(&harness),
        [
            "child `a` of flow `unknown`: flow `puppet` does not declare it as a flow of its children",
            "child `b` of flow `helper`: there is no such setting",
            "child `c` of flow `helper`: a child with this key is already open",
        ]
    );
}

#[test]
fn a_cancelled_turn_tells_its_children_to_close() {
    let mut harness = parent(vec![request("left")]);
    harness.send_message("go");
    let decision = harness.try_input(SessionInput::Operator(OperatorCommand::Cancel { turn: None })).expect("accepted");
    let [told] = &decision.submissions[..] else { panic!("{:?}", decision.submissions) };
    assert_eq!(told.to, "test~1");
    assert!(matches!(&told.submission, InboxSubmission::CloseChild { child: ChildId(1), .. }));
    assert!(harness.session().is_at_rest());
    submit(
        &mut harness,
        Some("test~1"),
        InboxSubmission::ChildEnded {
            child: ChildId(1),
            outcome: ChildSessionOutcome::Closed { reason: "told".into() },
            usage: ChildSessionUsage { cost_microusd: 9, ..ChildSessionUsage::default() },
        },
    );
    assert!(harness.session().open_children.is_empty());
    assert_eq!(harness.session().ledger.descendants.cost_microusd, 9);
}

#[test]
fn a_closed_child_reports_its_result_once() {
    let mut harness = child(allotment(None, 0, 0, 0), Vec::new());
    harness.send_message("go");
    let close = InboxSubmission::CloseChild { child: ChildId(4), reason: "enough".into() };
    let stranger = submit(&mut harness, Some("other"), close.clone());
    assert!(matches!(stranger.submission_outcome, Some(Err(_))) && stranger.submissions.is_empty());
    let decision = submit(&mut harness, Some("boss"), close.clone());
    let [report] = &decision.submissions[..] else { panic!("{:?}", decision.submissions) };
    assert_eq!(report.to, "boss");
    assert!(matches!(&report.submission, InboxSubmission::ChildEnded { child: ChildId(4), .. }));
    assert!(submit(&mut harness, Some("boss"), close).submissions.is_empty(), "it was reported");
}

#[test]
fn r7_a_copy_has_neither_parent_nor_children() {
    let mut harness = parent(vec![request("left")]);
    harness.send_message("go");
    let input = SessionInput::Forked { session: "copy".into(), from: "test".into(), at: Seq(99) };
    let decision = harness.try_input(input).expect("accepted");
    assert!(decision.submissions.is_empty() && decision.children.is_empty(), "the original owns the child");
    assert!(harness.session().open_children.is_empty());

    let mut copied_child = child(allotment(None, 0, 0, 0), Vec::new());
    copied_child.apply_input(SessionInput::Forked { session: "copy".into(), from: "boss~4".into(), at: Seq(1) });
    let closed = copied_child.try_input(SessionInput::Operator(OperatorCommand::Close)).expect("accepted");
    assert!(closed.submissions.is_empty(), "only the original reports to the parent");
}

#[test]
fn r11_a_child_that_does_not_end_in_time_is_told_to_close() {
    let mut harness = parent(vec![request("left")]);
    harness.send_message("go");
    harness.advance_and_tick(60_001);
    let timed_out = events(&harness, |event| match event {
        Event::ChildEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    assert_eq!(timed_out, [ChildSessionOutcome::TimedOut]);
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn a_child_whose_first_message_is_refused_closes() {
    let mut harness = child(allotment(None, 0, 0, 0), Vec::new());
    let message = InboxSubmission::Message {
        text: "control \u{7} character".into(),
        idempotency_key: None,
        mid_turn_policy: None,
        images: Vec::new(),
    };
    let decision = submit(&mut harness, Some("boss"), message);
    assert!(matches!(decision.submission_outcome, Some(Err(InputRefusal::ControlCharacter { .. }))));
    assert!(matches!(&decision.submissions[0].submission, InboxSubmission::ChildEnded { .. }));
}
