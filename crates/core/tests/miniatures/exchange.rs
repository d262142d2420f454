//! A session that talks to others: the golden journal with every kind of event between sessions.

use segue_core::decide::{InboxSubmission, OperatorCommand, SessionInput, SubmittingSession};
use segue_core::event::{
    AskOutcome, ChildSessionAllotment, ChildSessionOrigin, ChildSessionOutcome, Event, SessionOpened, TurnOutcome,
};
use segue_core::flow::{FlowContext, FlowStep, SpawnChildSessionRequest};
use segue_core::ids::{AskId, ChildId, SessionUid, SubmissionId};
use segue_core::session::ChildSessionUsage;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

/// A flow whose messages name the step to take.
pub(crate) fn flow() -> ClosureFlow {
    let mut spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    spec.child_flows.insert("helper".into());
    spec.ask_topics.insert("status".to_owned(), "how far it is".to_owned());
    ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => steps_for_turn(view),
        Event::AskReceived(received) if received.body == json!("now") => {
            vec![FlowStep::AnswerAsk { ask: received.ask, reply: Ok(json!("half")) }]
        }
        Event::ChildEnded { .. } | Event::AskEnded { .. } if view.session.current_turn.is_some() => {
            vec![FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => Vec::new(),
    })
}

fn steps_for_turn(view: &FlowContext<'_, ()>) -> Vec<FlowStep> {
    let turn = view.session.current_turn.as_ref().expect("a turn has started");
    let done = FlowStep::EndTurn(TurnOutcome::Done);
    match &*view.read_text(turn.messages[0].text) {
        "spawn" => vec![FlowStep::Spawn(SpawnChildSessionRequest {
            flow: "helper".into(),
            key: "left".into(),
            title: Some("the left part".into()),
            settings: json!({"depth": 1}),
            message: "do it".into(),
            wait_ms: 60_000,
            allotment: None,
        })],
        "claim" => vec![FlowStep::Claim { workspace: "shop".into(), name: "execute".into(), wait_ms: 5_000 }],
        "release" => vec![FlowStep::ReleaseClaim { reason: "done with it".into() }, done],
        "ask" => {
            vec![FlowStep::Ask { to: "peer".into(), topic: "status".into(), body: Value::Null, wait_ms: 1_000 }]
        }
        _ => vec![FlowStep::SetResult(json!({"parts": 2})), done],
    }
}

fn submit(harness: &mut SessionHarness, id: u64, from: &str, submission: InboxSubmission) {
    let sender = Some(SubmittingSession { session: from.into(), uid: SessionUid(id + 100) });
    harness.apply_input(SessionInput::Submitted { id: SubmissionId(id), sender, content: Ok(submission) });
}

/// Produces every kind of event between sessions.
pub(crate) fn play() -> SessionHarness {
    let allotment = ChildSessionAllotment {
        cost_microusd_max: Some(5_000),
        depth_max: 2,
        descendants_max: 10,
        children_at_once_max: 3,
    };
    let mut harness = SessionHarness::open_session(
        flow(),
        SessionOpened {
            flow_definition: None,
            format: 1,
            session: "boss~3".into(),
            flow: "puppet".into(),
            title: None,
            mid_turn_policy: Default::default(),
            settings: Value::Null,
            model_overrides: Default::default(),
            child_origin: Some(ChildSessionOrigin { parent: "boss".into(), child: ChildId(3), allotment }),
        },
    );
    let usage = ChildSessionUsage {
        descendants: 1,
        calls: 2,
        input_tokens: 30,
        output_tokens: 4,
        ..ChildSessionUsage::default()
    };
    harness.send_message("spawn");
    let outcome = ChildSessionOutcome::Done { result: json!([1, 2]) };
    submit(&mut harness, 1, "boss~3~1", InboxSubmission::ChildEnded { child: ChildId(1), outcome, usage });
    harness.send_message("spawn").run_command(OperatorCommand::Cancel { turn: None });
    harness.send_message("spawn").advance_and_tick(60_001);
    let outcome = ChildSessionOutcome::Closed { reason: "told to".into() };
    submit(&mut harness, 2, "boss~3~3", InboxSubmission::ChildEnded { child: ChildId(3), outcome, usage });
    harness.send_message("ask").advance_and_tick(1_001);
    let ask = |body: &str| InboxSubmission::Ask { reply_to: Some(AskId(9)), topic: "status".into(), body: json!(body) };
    submit(&mut harness, 3, "peer", ask("now"));
    submit(&mut harness, 4, "peer", ask("later"));
    submit(&mut harness, 5, "peer", InboxSubmission::Ask { reply_to: None, topic: "news".into(), body: Value::Null });
    submit(&mut harness, 6, "boss~3", InboxSubmission::ReplyBounced { ask: AskId(2) });
    // A child may not claim; its copy may.
    harness.send_message("claim").send_message("finish");
    submit(&mut harness, 7, "boss", InboxSubmission::CloseChild { child: ChildId(3), reason: "enough".into() });
    let outcome = ChildSessionOutcome::Closed { reason: "told to".into() };
    submit(&mut harness, 8, "boss~3~2", InboxSubmission::ChildEnded { child: ChildId(2), outcome, usage });
    harness.fork();
    harness.send_message("claim");
    let claim = *harness.session().open_asks.keys().next().expect("the claim was requested");
    let reply = AskOutcome::Answered { body: Value::Null };
    submit(&mut harness, 9, "shop", InboxSubmission::Reply { ask: claim, reply });
    harness.send_message("release");
    harness
}
