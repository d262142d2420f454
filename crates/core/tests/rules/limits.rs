//! Everything that grows has a limit, and what exceeds it is refused.

use segue_core::decide::SessionInput;
use segue_core::event::{AgentMessagePriority, Event, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailure, CallFailureKind, ModelReply, ToolCall};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{outcomes, refused_steps, tool, wants};
use segue_core::event::CallRequest;
use segue_core::flow::{RoleCallLimits, ToolRunnerKind};
use segue_core::handover::{
    HandoverFieldPresence, HandoverFieldSpec, HandoverFieldType, HandoverProvenance, HandoverSpec,
};

fn once(steps: impl Fn() -> Vec<FlowStep> + Send + Sync + 'static) -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role())
        .with_role(ClosureFlow::test_role("expert", Scope::per_peer()))
        .with_handover(HandoverSpec { kind: "intent".into(), fields: Vec::new(), repairs_max: 0 })
        .with_tool(tool("look", ToolRunnerKind::Host));
    SessionHarness::open(ClosureFlow::new(spec, move |_, event| match &event.event {
        Event::TurnStarted { .. } => steps(),
        _ => Vec::new(),
    }))
}

fn ask(peer: usize) -> FlowStep {
    FlowStep::Call(CallRequest {
        peer: Some(format!("p{peer:04}").into()),
        metadata: json!("hi"),
        ..CallRequest::new("expert", "note")
    })
}

#[test]
fn no_more_calls_are_open_at_once_than_the_limit() {
    let mut harness = once(|| (0..SESSION_LIMITS.open_calls_max + 2).map(ask).collect());
    harness.send_message("go");
    assert_eq!(harness.session().open_calls.len(), SESSION_LIMITS.open_calls_max);
    assert_eq!(refused_steps(&harness).len(), 2);
}

#[test]
fn no_more_calls_wait_than_the_limit() {
    let mut harness =
        once(|| (0..SESSION_LIMITS.deferred_calls_max + 3).map(|_| super::note("speaker", "hi")).collect());
    harness.send_message("go");
    assert_eq!(harness.session().deferred_calls.len(), SESSION_LIMITS.deferred_calls_max);
    assert_eq!(refused_steps(&harness).len(), 2);
}

#[test]
fn timers_inboxes_and_facts_are_bounded() {
    let post = || FlowStep::Send {
        from: "a".into(),
        to: "b".into(),
        priority: AgentMessagePriority::Normal,
        topic: "t".into(),
        text: "x".into(),
        in_reply_to: None,
    };
    let mut harness = once(move || {
        let timers =
            (0..=SESSION_LIMITS.timers_max).map(|n| FlowStep::SetTimer { name: n.to_string(), after_ms: 1_000 });
        let renewed = FlowStep::SetTimer { name: "0".into(), after_ms: 2_000 };
        let posts = (0..=SESSION_LIMITS.inbox_messages_max).map(|_| post());
        let fact =
            FlowStep::RecordFact { kind: "big".into(), value: json!("x".repeat(SESSION_LIMITS.flow_value_bytes_max)) };
        timers.chain([renewed]).chain(posts).chain([fact, FlowStep::EndTurn(TurnOutcome::Done)]).collect()
    });
    harness.send_message("go");
    let refused = refused_steps(&harness);
    assert_eq!(refused.len(), 3, "{refused:#?}");
    assert!(refused[0].starts_with("timer `128`: 128 timers are already running"));
    assert!(refused[1].starts_with("message from `a` to `b`: 256 messages are already in the inbox"));
    assert!(refused[2].starts_with("fact `big`: it has 1048578 bytes"));
}

#[test]
fn oldest_threads_prompts_and_abandoned_calls_are_dropped_first() {
    let threads = std::sync::atomic::AtomicUsize::new(0);
    let mut harness = once(move || vec![ask(threads.fetch_add(1, std::sync::atomic::Ordering::Relaxed))]);
    // Applied directly to the state, because checks after each of a thousand turns would take long.
    harness.with_checks_at_end(|harness| {
        for turn in 0..SESSION_LIMITS.threads_max + 8 {
            harness.send_message("go");
            if turn < SESSION_LIMITS.abandoned_calls_max + 3 {
                harness.fail_call("expert", CallFailureKind::Refused);
            } else {
                harness.answer_call("expert", "hello");
            }
        }
    });
    let session = harness.session();
    assert_eq!(
        (session.threads.len(), session.thread_by_slot.len()),
        (SESSION_LIMITS.threads_max, SESSION_LIMITS.threads_max)
    );
    let stored = serde_json::to_value(session).expect("a session is JSON");
    let last_prompts = stored["last_prompts"].as_array().expect("pairs of slots and prompts");
    assert_eq!(
        (last_prompts.len(), session.abandoned_calls.len()),
        (SESSION_LIMITS.last_prompts_max, SESSION_LIMITS.abandoned_calls_max)
    );
    let oldest = last_prompts.iter().filter_map(|pair| pair[1]["call"].as_u64()).min();
    assert_eq!(oldest, Some(9), "the oldest went first, whatever its name");
    assert_eq!(outcomes(&harness).len(), SESSION_LIMITS.threads_max + 8);
}

#[test]
fn handovers_are_kept_up_to_a_limit_and_undeclared_kinds_are_refused() {
    let hand = |kind: &str| FlowStep::MakeHandover {
        kind: kind.into(),
        document: segue_core::handover::HandoverDocument::new(),
        calls: Vec::new(),
        provenance: HandoverProvenance::Built,
    };
    let mut harness = once(move || {
        (0..SESSION_LIMITS.handovers_kept_max + 5).map(|_| hand("intent")).chain([hand("other")]).collect()
    });
    harness.send_message("go");
    let kept: Vec<u32> = harness.session().handovers.iter().map(|handover| handover.id.0).collect();
    assert_eq!((kept.len(), kept[0], kept[kept.len() - 1]), (SESSION_LIMITS.handovers_kept_max, 6, 69));
    assert_eq!(refused_steps(&harness), ["handover `other`: the flow declares no such kind"]);
}

#[test]
fn values_of_a_flow_are_limited_in_size() {
    let giant = || json!("x".repeat(SESSION_LIMITS.flow_value_bytes_max));
    let document = || {
        let field = segue_core::handover::HandoverFieldValue::Text("x".repeat(SESSION_LIMITS.flow_value_bytes_max));
        segue_core::handover::HandoverDocument::from([("goal".to_owned(), field)])
    };
    let goal = HandoverFieldSpec {
        name: "goal".into(),
        field_type: HandoverFieldType::Text,
        presence: HandoverFieldPresence::Optional,
    };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role()).with_handover(HandoverSpec {
        kind: "intent".into(),
        fields: vec![goal],
        repairs_max: 0,
    });
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, move |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![
            FlowStep::Call(CallRequest { metadata: giant(), ..CallRequest::new("speaker", "note") }),
            FlowStep::MakeHandover {
                kind: "intent".into(),
                document: document(),
                calls: Vec::new(),
                provenance: HandoverProvenance::Built,
            },
            FlowStep::RequestHandover("other".into()),
        ],
        _ => Vec::new(),
    }));
    harness.send_message("go");
    let refused = refused_steps(&harness);
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused[0].starts_with("call of `speaker` for `note`: it has 1048578 bytes of JSON"));
    assert!(refused[1].starts_with("handover `intent`: it has "));
    assert_eq!(refused[2], "handover `other`: the flow declares no such kind");
}

#[test]
fn oversized_tool_call_is_dropped_and_the_others_run() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_tool("look"))
        .with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.send_message("look");
    let giant =
        ToolCall { arguments: json!("x".repeat(SESSION_LIMITS.tool_arguments_bytes_max)), ..wants("a", "look") };
    harness
        .reply_to_call("speaker", ModelReply { tool_calls: vec![giant, wants("b", "look")], ..ModelReply::default() });
    assert_eq!(harness.session().open_tool_runs.len(), 1);
    assert!(refused_steps(&harness)[0].starts_with("call of tool `look`: its arguments have 262146 bytes"));
    harness.finish_tool("look", Ok("seen")).answer_call("speaker", "done");
}

#[test]
fn long_failure_message_is_cut() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.send_message("hi");
    let failure = CallFailure::new(CallFailureKind::Refused, "<html>".repeat(100_000));
    harness.apply_input(SessionInput::CallFailure { call: segue_core::ids::CallId(1), attempt: 1, failure });
    let kept = super::events(&harness, |event| match event {
        Event::CallFailed { failure, .. } => Some(failure.message.len()),
        _ => None,
    });
    assert_eq!(kept, [SESSION_LIMITS.failure_message_bytes_max + "[…]".len()]);
}

#[test]
fn calls_waiting_for_one_thread_cost_one_event_each() {
    let mut harness = once(|| (0..20).map(|n| super::note("speaker", &n.to_string())).collect());
    harness.send_message("go");
    for n in 0..20 {
        let prompt = harness.prompt_for_role("speaker");
        assert_eq!(
            prompt.messages.last().map(|message| message.text()),
            Some(n.to_string()),
            "first come, first served"
        );
        harness.answer_call("speaker", "ok");
    }
    let deferred = super::events(&harness, |event| matches!(event, Event::CallDeferred(_)).then_some(()));
    assert_eq!(deferred.len(), 19);
}

#[test]
fn an_answer_that_is_too_long_is_cut_and_marked() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness.send_message("tell me everything").answer_call("speaker", &"x".repeat(SESSION_LIMITS.reply_bytes_max + 1));
    assert_eq!(harness.last_reply().len(), SESSION_LIMITS.reply_bytes_max + "[…]".len());
}

#[test]
fn calls_outside_turns_are_bounded_until_the_next_message() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    // Ends the turn and then calls for ever.
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done), super::note("speaker", "hi")],
        Event::CallAnswered(_) => vec![super::note("speaker", "hi")],
        _ => Vec::new(),
    }));
    harness.send_message("go");
    harness.with_checks_at_end(|harness| {
        for _ in 0..SESSION_LIMITS.calls_outside_turns_max {
            harness.answer_call("speaker", "hello");
        }
    });
    let refused = refused_steps(&harness);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("`speaker` has made 1000 calls outside turns since the last message"), "{refused:?}");
    assert!(harness.session().open_calls.is_empty());
    harness.send_message("continue");
    assert_eq!(harness.session().open_calls.len(), 1, "a message allows more");
}

#[test]
fn each_role_has_its_own_limits() {
    let limits = RoleCallLimits {
        tool_rounds_max: 2,
        tool_calls_per_turn_max: 3,
        calls_per_turn_max: 3,
        calls_outside_turns_max: 1,
    };
    let with_limits = |limits| {
        let mut speaker = ClosureFlow::speaker_role().with_tool("look");
        speaker.limits = limits;
        ClosureFlow::spec_with_role(speaker).with_tool(tool("look", ToolRunnerKind::Host))
    };
    let look = |harness: &mut SessionHarness, times: usize| {
        let tool_calls = (0..times).map(|n| wants(&n.to_string(), "look")).collect();
        harness.reply_to_call("speaker", ModelReply { tool_calls, ..ModelReply::default() });
        while !harness.session().open_tool_runs.is_empty() {
            harness.finish_tool("look", Ok("seen"));
        }
    };
    let open = |limits| SessionHarness::open(ClosureFlow::new(with_limits(limits), ClosureFlow::react_as_chat));

    let mut rounds = open(RoleCallLimits { calls_per_turn_max: 9, ..limits });
    rounds.send_message("look");
    (0..3).for_each(|_| look(&mut rounds, 1));
    assert!(refused_steps(&rounds)[0].contains("already used 2 tool rounds"), "{:?}", refused_steps(&rounds));

    let mut tool_calls = open(RoleCallLimits { tool_rounds_max: 9, ..limits });
    tool_calls.send_message("look");
    look(&mut tool_calls, 2);
    look(&mut tool_calls, 2);
    assert!(
        refused_steps(&tool_calls)[0].contains("may make 3 tool calls in a turn"),
        "{:?}",
        refused_steps(&tool_calls)
    );
    assert_eq!(tool_calls.session().last_ids.tool_run.0, 3);

    let mut calls = open(RoleCallLimits { tool_rounds_max: 9, tool_calls_per_turn_max: 9, ..limits });
    calls.send_message("look");
    (0..3).for_each(|_| look(&mut calls, 1));
    assert!(refused_steps(&calls)[0].contains("`speaker` has already made 3 calls"), "{:?}", refused_steps(&calls));

    let too_high = RoleCallLimits { calls_per_turn_max: u32::MAX, ..RoleCallLimits::default() };
    assert_eq!(with_limits(too_high).validation_errors().len(), 1);
    assert!(with_limits(RoleCallLimits::default()).validation_errors().is_empty());
}
